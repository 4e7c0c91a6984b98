/*
 * What the other examples are tried with: sends numbered messages to a port of this machine, over UDP or TCP, and then "end".
 *
 * It uses nothing but sockets, and waits for its receiver to begin.
 *
 *	sender udp|tcp PORT COUNT
 */
#define _DEFAULT_SOURCE /* nanosleep, where the compiler is asked for C alone (-std=c11) */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void nap(long us)
{
	struct timespec time = {.tv_nsec = us * 1000};

	nanosleep(&time, NULL);
}

/* Sends all of a message; a datagram that nobody is there for is sent again, for ten seconds. */
static void send_all(int fd, const char *message)
{
	size_t len = strlen(message);

	for (int tries = 0; send(fd, message, len, MSG_NOSIGNAL) != (ssize_t)len; tries++) {
		if (errno != ECONNREFUSED || tries == 1000) {
			perror("send");
			exit(1);
		}
		nap(10000);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "sender udp|tcp PORT COUNT\n");
		return 2;
	}
	int is_udp = strcmp(argv[1], "udp") == 0, count = atoi(argv[3]), fd;
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	for (int tries = 0;; tries++) {
		fd = socket(AF_INET, is_udp ? SOCK_DGRAM : SOCK_STREAM, 0);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
			break;
		if (fd < 0 || errno != ECONNREFUSED || tries == 1000) {
			perror("connect");
			return 1;
		}
		close(fd);
		nap(10000);
	}
	/*
	 * Whether a UDP receiver is there shows only after something was sent: who is there does not mind two more. (And the library looks again
	 * after 100 ms for one that it did not find.)
	 */
	for (int i = 0; is_udp && i < 2; i++) {
		send_all(fd, "hello\n");
		nap(80000);
	}
	for (int i = 0; i < count; i++) {
		char message[64];

		snprintf(message, sizeof message, "message %d\n", i);
		send_all(fd, message);
		/* A datagram that the receiver has no room for is lost: let it keep up. */
		if (is_udp && i % 64 == 63)
			nap(1000);
	}
	/* A datagram may get lost, the last one too: until nobody is there any more, or for five seconds. */
	for (int i = 0; i < (is_udp ? 250 : 1) && send(fd, "end", 3, MSG_NOSIGNAL) == 3; i++)
		nap(20000);
	close(fd);
	return 0;
}
