/*
 * Keeps the way of a packet warm: while there is nothing to send, messages that go the whole way but the last step keep that way's code and
 * data in the processor's caches, so that the message that matters does not pay for a cold start.
 *
 * It echoes a message every 50 ms to itself, once with and once without dummies between, and prints how long the send call takes.
 *
 * Try it:
 *	cc -O2 -o dummy_send dummy_send.c $(pkg-config --cflags libvma)
 *	ringway run -- ./dummy_send
 */
#define _DEFAULT_SOURCE /* clock_gettime, where the compiler is asked for C alone (-std=c11) */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <mellanox/vma_extra.h>

enum { MESSAGES = 20, GAP_US = 50000, DUMMY_EVERY_US = 100 };

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Waits until then; with dummies, if they are wanted: at most 50000 a second are advised. Returns -1 where they are refused. */
static int wait_until(double end, int fd, const char *message, size_t len, int dummies)
{
	double next = now_us();

	while (now_us() < end) {
		if (!dummies || now_us() < next)
			continue;
		next += DUMMY_EVERY_US;
		if (send(fd, message, len, VMA_SND_FLAGS_DUMMY) < 0)
			return -1;
	}
	return 0;
}

int main(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t here_len = sizeof here;
	int receiver = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
	char message[64] = "buy", got[64];

	if (vma_get_api() == NULL) {
		fprintf(stderr, "there is no library: a dummy would be a message\n");
		return 77;
	}
	if (bind(receiver, (struct sockaddr *)&here, sizeof here) < 0 || getsockname(receiver, (struct sockaddr *)&here, &here_len) < 0 ||
	    connect(fd, (struct sockaddr *)&here, sizeof here) < 0) {
		perror("dummy_send");
		return 1;
	}
	for (int dummies = 0; dummies <= 1; dummies++) {
		double spent = 0;

		for (int i = 0; i < MESSAGES; i++) {
			if (wait_until(now_us() + GAP_US, fd, message, sizeof message, dummies) < 0) {
				perror("this device sends no dummies");
				return errno == EINVAL ? 77 : 1;
			}
			double began = now_us();

			if (send(fd, message, sizeof message, 0) != sizeof message) {
				perror("send");
				return 1;
			}
			spent += now_us() - began;
			/* Nothing but the message itself ever arrives. */
			if (recv(receiver, got, sizeof got, 0) != sizeof message || recv(receiver, got, sizeof got, MSG_DONTWAIT) >= 0) {
				fprintf(stderr, "a dummy has arrived\n");
				return 1;
			}
		}
		printf("%s dummies: %.2f us a send\n", dummies ? "with" : "without", spent / MESSAGES);
	}
	return 0;
}
