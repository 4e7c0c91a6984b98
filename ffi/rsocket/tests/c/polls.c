/* Rsockets that do not block, and waits for them together with other descriptors. */
#include "check.h"

static void nonblocking(int fd)
{
	CHECK(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rfcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK));
}

static void server(int told)
{
	int door = listener();
	nonblocking(door);
	FAILS(raccept(door, NULL, NULL), EAGAIN);
	struct pollfd nobody = {.fd = door, .events = POLLIN};
	CHECK(rpoll(&nobody, 1, 0) == 0 && nobody.revents == 0);
	tell_port(told, door);
	CHECK(rpoll(&nobody, 1, 10000) == 1 && nobody.revents == POLLIN);
	int fd = raccept(door, NULL, NULL);
	/* It blocks, though its listener does not. */
	CHECK(fd >= 0 && rfcntl(fd, F_GETFL) == O_RDWR);
	char line[6];
	CHECK(rrecv(fd, line, 6, MSG_WAITALL) == 6 && memcmp(line, "hello\n", 6) == 0);
	/* Nobody reads for a while, so that the other side finds no room. */
	usleep(100000);
	static char bytes[50000];
	ssize_t n, all = 0;
	while ((n = rrecv(fd, bytes, sizeof bytes, 0)) > 0)
		all += n;
	CHECK(n == 0);
	CHECK(rsend(fd, &all, sizeof all, 0) == sizeof all);
	CHECK(rclose(fd) == 0 && rclose(door) == 0);
}

static int is_in_time(double began, double least, double most)
{
	double took = seconds() - began;
	return took >= least && took < most;
}

static void timeouts(int fd, int pipe_end)
{
	struct pollfd both[] = {{.fd = fd, .events = POLLIN}, {.fd = pipe_end, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
	double began = seconds();
	CHECK(rpoll(both, 3, 50) == 0 && is_in_time(began, 0.05, 5));
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	FD_SET(pipe_end, &set);
	struct timeval time = {0, 50000};
	began = seconds();
	CHECK(rselect((fd > pipe_end ? fd : pipe_end) + 1, &set, NULL, NULL, &time) == 0 && is_in_time(began, 0.05, 5));
	CHECK(!FD_ISSET(fd, &set) && !FD_ISSET(pipe_end, &set));
	CHECK(rpoll(NULL, 0, 10) == 0);
}

static void handler(int signal)
{
	(void)signal;
}

/* A signal ends a wait. */
static void interrupted(int fd)
{
	struct sigaction action = {.sa_handler = handler};
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	struct pollfd one = {.fd = fd, .events = POLLIN};
	ualarm(50000, 0);
	FAILS(rpoll(&one, 1, 10000), EINTR);
	CHECK(rfcntl(fd, F_SETFL, 0) == 0);
	char byte;
	ualarm(50000, 0);
	FAILS(rrecv(fd, &byte, 1, 0), EINTR);
	nonblocking(fd);
}

int main(void)
{
	uint16_t port;
	pid_t child = serve(server, &port);
	int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	CHECK(fd >= 0 && rfcntl(fd, F_GETFD) == FD_CLOEXEC);
	struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
	CHECK(rpoll(&one, 1, 0) == 1 && one.revents == (POLLOUT | POLLHUP));
	struct sockaddr_in address = at_port(port);
	FAILS(rconnect(fd, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
	one.events = POLLOUT;
	CHECK(rpoll(&one, 1, 10000) == 1 && one.revents == POLLOUT);
	FAILS(rconnect(fd, (struct sockaddr *)&address, sizeof address), EISCONN);
	int error = -1;
	socklen_t len = sizeof error;
	CHECK(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0 && len == sizeof error);
	char byte;
	FAILS(rrecv(fd, &byte, 1, 0), EAGAIN);
	int ends[2];
	CHECK(pipe(ends) == 0);
	timeouts(fd, ends[0]);
	interrupted(fd);

	/* What is another's to answer for, while an rsocket is silent. */
	CHECK(write(ends[1], "x", 1) == 1);
	struct pollfd both[] = {{.fd = fd, .events = POLLIN}, {.fd = ends[0], .events = POLLIN}};
	CHECK(rpoll(both, 2, 10000) == 1 && both[0].revents == 0 && both[1].revents == POLLIN);
	fd_set readable, writable;
	FD_ZERO(&readable);
	FD_ZERO(&writable);
	FD_SET(fd, &readable);
	FD_SET(ends[0], &readable);
	FD_SET(fd, &writable);
	CHECK(rselect((fd > ends[0] ? fd : ends[0]) + 1, &readable, &writable, NULL, NULL) == 2);
	CHECK(!FD_ISSET(fd, &readable) && FD_ISSET(ends[0], &readable) && FD_ISSET(fd, &writable));

	CHECK(rwrite(fd, "hello\n", 6) == 6);
	static char bytes[40000];
	ssize_t sent = 0, n;
	while ((n = rsend(fd, bytes, sizeof bytes, 0)) > 0)
		sent += n;
	CHECK(n == -1 && errno == EAGAIN && sent > 0);
	CHECK(rpoll(&one, 1, 0) == 0);
	CHECK(rpoll(&one, 1, 10000) == 1 && one.revents == POLLOUT);
	CHECK(rshutdown(fd, SHUT_WR) == 0);
	one.events = POLLIN;
	CHECK(rpoll(&one, 1, 10000) == 1 && (one.revents & POLLIN));
	ssize_t all;
	CHECK(rrecv(fd, &all, sizeof all, MSG_DONTWAIT) == sizeof all && all == sent);
	CHECK(rpoll(&one, 1, 10000) == 1 && (one.revents & POLLIN));
	CHECK(rrecv(fd, &all, sizeof all, 0) == 0);
	CHECK(rclose(fd) == 0);
	ends_well(child);

	/* Nobody listens any more. */
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	FAILS(rconnect(fd, (struct sockaddr *)&address, sizeof address), ECONNREFUSED);
	CHECK(rclose(fd) == 0);
	return 0;
}
