/*
 * Sends datagrams of 64 bytes, numbered, to a port of this host.
 *
 *	sender flood CALL PORT MS	as many as it can, in so many milliseconds
 *	sender burst CALL PORT		256 for each byte that it reads, and a byte when they are on their way; to the end of its input
 *
 * CALL: send or sendmmsg. Prints its figures as one line of JSON to stderr.
 */
#include "common.h"

static uint64_t sent, refused, number;

/* What a full queue refuses is sent again, under the same number. */
static void count(int went, int of)
{
	if (went > 0) {
		sent += (uint64_t)went;
		number += (uint64_t)went;
	}
	if (went < of)
		refused++;
}

static void by_send(int fd)
{
	static uint64_t bytes[SIZE / sizeof(uint64_t)];

	bytes[0] = number;
	count(send(fd, bytes, SIZE, MSG_DONTWAIT) == SIZE, 1);
}

static void by_sendmmsg(int fd)
{
	static uint64_t bytes[BATCH][SIZE / sizeof(uint64_t)];
	static struct iovec iov[BATCH];
	static struct mmsghdr messages[BATCH];

	for (int i = 0; i < BATCH; i++) {
		if (iov[i].iov_len == 0) {
			iov[i] = (struct iovec){bytes[i], SIZE};
			messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
		}
		bytes[i][0] = number + (uint64_t)i;
	}
	count(sendmmsg(fd, messages, BATCH, MSG_DONTWAIT), BATCH);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	struct sockaddr_in to = loopback(argv[3]);
	void (*some)(int) = strcmp(argv[2], "sendmmsg") == 0 ? by_sendmmsg : by_send;
	int asked = strcmp(argv[1], "burst") == 0;
	char byte;

	/* (A port that is bound is not yet known to other processes, and what is sent before goes through the kernel. Who asks is known.) */
	if (asked)
		check(read(0, &byte, 1) == 1, "the receiver");
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	check(connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
	if (asked) {
		do {
			for (uint64_t all = sent + BURST; sent < all;)
				some(fd);
			check(write(1, &byte, 1) == 1, "the receiver");
		} while (read(0, &byte, 1) == 1);
	} else if (argc > 4) {
		uint64_t until = now_ns() + (uint64_t)atoi(argv[4]) * 1000000;

		while (now_ns() < until)
			for (int i = 0; i < 64; i++)
				some(fd);
	}
	fprintf(stderr, "{\"sent\":%lu,\"refused\":%lu}\n", sent, refused);
	return 0;
}
