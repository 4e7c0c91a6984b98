/* The peer is stopped for a while: nothing is lost, and others are served meanwhile. */
#include "check.h"

static void server(int told)
{
	int door = listener();
	tell_port(told, door);
	int fd = raccept(door, NULL, NULL);
	recv_pattern(fd, 3000000, 1);
	CHECK(rsend(fd, "all", 3, 0) == 3);
	CHECK(rclose(fd) == 0);
}

int main(void)
{
	uint16_t port, port_of_other;
	pid_t child = serve(server, &port), other = serve(server, &port_of_other);
	int fd = connected(port);
	CHECK(rsend(fd, NULL, 0, 0) == 0);
	kill(child, SIGSTOP);
	/* As much as there is room for. */
	static unsigned char bytes[3000000];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = byte_at(i, 1);
	ssize_t sent = 0, n;
	while ((n = rsend(fd, bytes + sent, sizeof bytes - sent, MSG_DONTWAIT)) > 0)
		sent += n;
	CHECK(errno == EAGAIN && sent < (ssize_t)sizeof bytes);
	int fast = connected(port_of_other);
	send_pattern(fast, 3000000, 1);
	char word[3];
	CHECK(rrecv(fast, word, 3, MSG_WAITALL) == 3 && memcmp(word, "all", 3) == 0);
	CHECK(rclose(fast) == 0);
	/* Longer than eight times the time for an acknowledgment, after which a queue pair would give up. */
	usleep(1200000);
	kill(child, SIGCONT);
	while (sent < (ssize_t)sizeof bytes) {
		n = rsend(fd, bytes + sent, sizeof bytes - sent, 0);
		CHECK(n > 0);
		sent += n;
	}
	CHECK(rrecv(fd, word, 3, MSG_WAITALL) == 3 && memcmp(word, "all", 3) == 0);
	CHECK(rclose(fd) == 0);
	ends_well(child);
	ends_well(other);
	return 0;
}
