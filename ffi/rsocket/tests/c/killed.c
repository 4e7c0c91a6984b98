/* The peer is killed: whoever waits for it hears of it at once, and gets what had come before. */
#include "check.h"

static void server(int told)
{
	int door = listener();
	tell_port(told, door);
	int silent = raccept(door, NULL, NULL), talks = raccept(door, NULL, NULL);
	CHECK(silent >= 0 && talks >= 0);
	send_pattern(talks, 50000, 1);
	for (;;)
		pause();
}

static pid_t killer(pid_t victim)
{
	pid_t child = fork();
	if (child == 0) {
		usleep(200000);
		kill(victim, SIGKILL);
		_exit(0);
	}
	return child;
}

int main(void)
{
	uint16_t port;
	pid_t child = serve(server, &port);
	int silent = connected(port), talks = connected(port);
	int polled = connected(port);
	ends_well(killer(child));
	char byte;
	double began = seconds();
	FAILS(rrecv(silent, &byte, 1, 0), ECONNRESET);
	CHECK(seconds() - began < 2);
	FAILS(rsend(silent, &byte, 1, 0), ECONNRESET);
	struct pollfd gone = {.fd = silent, .events = POLLIN | POLLOUT};
	CHECK(rpoll(&gone, 1, -1) == 1 && gone.revents == (POLLIN | POLLOUT | POLLERR | POLLHUP));
	int error = 0;
	socklen_t len = sizeof error;
	CHECK(rgetsockopt(silent, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNRESET);
	/* What had come before. */
	recv_pattern(talks, 50000, 1);
	FAILS(rrecv(talks, &byte, 1, 0), ECONNRESET);
	gone.fd = polled;
	CHECK(rpoll(&gone, 1, 10000) == 1 && (gone.revents & POLLHUP));
	CHECK(rshutdown(talks, SHUT_WR) == -1 && errno == ENOTCONN);
	CHECK(rclose(silent) == 0 && rclose(talks) == 0 && rclose(polled) == 0);
	CHECK(waitpid(child, NULL, 0) == child);

	/* Its port is free, and whoever has it next is found. */
	int door = rsocket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = at_port(port);
	CHECK(rbind(door, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(door, 1) == 0);
	int fd = connected(port);
	int accepted = raccept(door, NULL, NULL);
	CHECK(accepted >= 0);
	CHECK(rsend(fd, "x", 1, 0) == 1 && rrecv(accepted, &byte, 1, 0) == 1 && byte == 'x');
	return 0;
}
