/* What a handler of a signal ends, and what it does not: as on the kernel's sockets (signal(7)). */
#include "check.h"

#include <sys/time.h>

/* Between two signals. (One that comes before the call ends nothing, so there are several.) */
#define EVERY_US 3000
#define ROUNDS 10

static volatile sig_atomic_t ran;

static void handler(int signal)
{
	(void)signal;
	ran++;
}

static void install(int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}

static void signals(int every_us)
{
	struct itimerval timer = {{0, every_us}, {0, every_us}};
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* The mask is what it was, whatever the call did with it. */
static void nothing_is_blocked(void)
{
	sigset_t mask;
	CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
	for (int signal = 1; signal < 32; signal++)
		CHECK(sigismember(&mask, signal) == 0);
}

#define IS_ENDED(call) \
	do { \
		signals(EVERY_US); \
		FAILS(call, EINTR); \
		signals(0); \
		nothing_is_blocked(); \
	} while (0)

/* Answers each byte 20 ms later, until there are no more. */
static void server(int told)
{
	int door = listener();
	tell_port(told, door);
	int fd = raccept(door, NULL, NULL);
	CHECK(fd >= 0);
	for (char byte; rrecv(fd, &byte, 1, 0) == 1;) {
		if (byte == 'L')
			usleep(20000);
		CHECK(rsend(fd, &byte, 1, 0) == 1);
	}
	CHECK(rclose(fd) == 0);
}

static void ask(int fd, char byte)
{
	char answer;
	CHECK(rsend(fd, &byte, 1, 0) == 1);
	CHECK(rrecv(fd, &answer, 1, 0) == 1 && answer == byte);
}

/* Waits for several end, whatever the handler's flags are. */
static void polls(int fd)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};
	IS_ENDED(rpoll(&one, 1, 10000));
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	IS_ENDED(rselect(fd + 1, &set, NULL, NULL, NULL));
	int instance = repoll_create(0);
	struct epoll_event event = {.events = EPOLLIN};
	CHECK(instance >= 0 && repoll_ctl(instance, EPOLL_CTL_ADD, fd, &event) == 0);
	IS_ENDED(repoll_wait(instance, &event, 1, -1));
	CHECK(rclose(instance) == 0);
}

static void end(int signal)
{
	(void)signal;
	exit(0);
}

/* A handler may end the process (sockperf's does), also where it has interrupted a call in the middle. */
static void ends_in_a_handler(void)
{
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			int door = listener();
			struct pollfd one = {.fd = door, .events = POLLIN};
			CHECK(signal(SIGALRM, end) != SIG_ERR);
			signals(EVERY_US);
			for (;;)
				rpoll(&one, 1, 0);
		}
		ends_well(child);
	}
}

int main(void)
{
	uint16_t port;
	ends_in_a_handler();
	pid_t child = serve(server, &port);
	int fd = connected(port), door = listener();
	char byte, much[1 << 20] = {0};

	for (int round = 0; round < ROUNDS; round++) {
		/* (Waits that follow short ones look longer before they sleep.) */
		for (int i = 0; i < 50; i++)
			ask(fd, 's');
		install(0);
		IS_ENDED(rrecv(fd, &byte, 1, 0));
		IS_ENDED(rrecv(fd, &byte, 1, MSG_PEEK));
		IS_ENDED(raccept(door, NULL, NULL));
		polls(fd);
		install(SA_RESTART);
		polls(fd);
		/* The call goes on, and the handler runs all the same. */
		ran = 0;
		signals(EVERY_US);
		ask(fd, 'L');
		signals(0);
		CHECK(ran > 0);
		nothing_is_blocked();
	}

	/* What was sent when the handler ran counts. */
	int other = rsocket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = at_port(port_of(door));
	CHECK(rfcntl(other, F_SETFL, O_NONBLOCK) == 0);
	FAILS(rconnect(other, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
	int silent = raccept(door, NULL, NULL);
	CHECK(silent >= 0 && rfcntl(other, F_SETFL, 0) == 0);
	struct pollfd one = {.fd = other, .events = POLLOUT};
	CHECK(rpoll(&one, 1, 10000) == 1 && one.revents == POLLOUT);
	install(0);
	signals(EVERY_US);
	ssize_t sent;
	do
		sent = rsend(other, much, sizeof much, 0);
	while (sent > 0);
	CHECK(sent == -1 && errno == EINTR);
	signals(0);
	nothing_is_blocked();

	CHECK(rclose(fd) == 0 && rclose(silent) == 0);
	ends_well(child);
	return 0;
}
