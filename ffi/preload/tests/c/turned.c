/*
 * Connects to a port of the loopback's, receives 15 bytes by functions in several forms, and does what passes by a preloaded library in other
 * ways: vfork, dprintf, execl, system calls by number. "turned PORT" ends with 0 if all of it went as without the library; "turned leave" only
 * ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

/* A compiler that knows the length calls no checking form. */
static volatile size_t five = 5;

static void ignore(int number)
{
	(void)number;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct timespec second = { .tv_sec = 1 };
	char bytes[8], text[64] = "";
	struct iovec vector = { .iov_base = text, .iov_len = sizeof text };
	int stream = socket(AF_INET, SOCK_STREAM, 0), ends[2], status;
	pid_t child;

	if (argc > 1 && strcmp(argv[1], "leave") == 0)
		_exit(4);
	address.sin_port = htons((unsigned short)atoi(argc > 1 ? argv[1] : "0"));
	check(connect(stream, (struct sockaddr *)&address, sizeof address) == 0, "connect");

	struct pollfd entry = { .fd = stream, .events = POLLIN };
	check(poll(&entry, 1, 10000) == 1, "poll");
	check(ppoll(&entry, 1, &second, NULL) == 1, "ppoll");
	check(read(stream, bytes, five) == 5 && memcmp(bytes, "hello", 5) == 0, "read");
	check(recv(stream, bytes, five, MSG_WAITALL) == 5 && memcmp(bytes, "there", 5) == 0, "recv");
	check(syscall(SYS_read, stream, bytes, five) == 5 && memcmp(bytes, "again", 5) == 0, "SYS_read");
	errno = 0;
	check(recv(-1, bytes, five, 0) == -1 && errno == EBADF, "recv on no descriptor");

	check(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
	check(dprintf(ends[1], "%d %s %.1f", 7, "seven", 7.5) == 11, "dprintf");
	check(preadv2(ends[0], &vector, 1, -1, 0) == 11 && strcmp(text, "7 seven 7.5") == 0, "preadv2");
	check(fcntl(ends[0], F_GETFD) == FD_CLOEXEC && dup2(ends[0], 90) == 90 && fcntl(90, F_GETFD) == 0, "fcntl");

	check(signal(SIGUSR1, ignore) == SIG_DFL && signal(SIGUSR1, SIG_IGN) == ignore, "signal");

	child = vfork();
	if (child == 0)
		_exit(3);
	check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3, "vfork");
	child = fork();
	if (child == 0) {
		execl(argv[0], argv[0], "leave", (char *)NULL);
		_exit(127);
	}
	check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 4, "execl");
	_exit(0);
}
