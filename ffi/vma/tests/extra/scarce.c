/* A process whose send buffers are held by connections that nobody reads: writers wait, as they do for room, and other connections go on. Prints
 * what is wrong, and nothing else. */
#include "check.h"

enum { STREAMS = 4, BYTES = 5000000 };

static char bytes[1 << 16];

static int is_writable(int fd, int timeout_ms)
{
	struct pollfd poll_of = {.fd = fd, .events = POLLOUT};

	return MUST(poll(&poll_of, 1, timeout_ms)) == 1 && (poll_of.revents & POLLOUT);
}

/* Writes until there is no room, and says how much that was. */
static size_t fill(int fd)
{
	size_t all = 0;

	for (;;) {
		ssize_t sent = send(fd, bytes, sizeof bytes, MSG_DONTWAIT);
		if (sent < 0) {
			CHECK(errno == EAGAIN);
			return all;
		}
		CHECK(sent > 0);
		all += (size_t)sent;
	}
}

static void drain(int fd, size_t all)
{
	for (ssize_t got; all > 0 && (got = recv(fd, bytes, sizeof bytes, 0)) > 0;)
		all -= (size_t)got;
	CHECK(all == 0);
}

/* Each full connection is writable again once it was read, and a fresh one is at once. */
static void others(void)
{
	int full[STREAMS][2], fresh[2];
	size_t held[STREAMS] = {0};

	for (int i = 0; i < STREAMS; i++) {
		pair(full[i]);
		held[i] = fill(full[i][0]);
		CHECK(held[i] > 0);
		/* (What found no buffers is tried again, in vain, a few times.) */
		for (int tries = 0; tries < 20; tries++) {
			if (is_writable(full[i][0], 10))
				held[i] += fill(full[i][0]);
		}
		CHECK(!is_writable(full[i][0], 0));
	}
	pair(fresh);
	CHECK(is_writable(fresh[0], 0) && send(fresh[0], "hello", 5, MSG_DONTWAIT) == 5);
	CHECK(recv(fresh[1], bytes, sizeof bytes, 0) == 5 && memcmp(bytes, "hello", 5) == 0);
	for (int i = 0; i < STREAMS; i++) {
		drain(full[i][1], held[i]);
		CHECK(is_writable(full[i][0], 5000) && send(full[i][0], bytes, 1000, MSG_DONTWAIT) == 1000);
		MUST(close(full[i][0]));
		MUST(close(full[i][1]));
	}
	MUST(close(fresh[0]));
	MUST(close(fresh[1]));
}

static void *read_slowly(void *fd)
{
	size_t all = 0;

	for (ssize_t got; (got = recv(*(int *)fd, bytes, sizeof bytes, 0)) > 0; all += (size_t)got)
		usleep(100);
	CHECK(all == BYTES);
	return NULL;
}

/* A blocking call returns when all is written, however few buffers there are. */
static void blocking(void)
{
	static char all[BYTES];
	pthread_t reader;
	int ends[2];

	pair(ends);
	MUST(pthread_create(&reader, NULL, read_slowly, &ends[1]));
	CHECK(send(ends[0], all, BYTES, 0) == BYTES);
	MUST(close(ends[0]));
	MUST(pthread_join(reader, NULL));
	MUST(close(ends[1]));
}

int main(int count, char **arguments)
{
	(void)arguments;
	vma = vma_get_api();
	CHECK(vma != NULL);
	blocking();
	/* (What a peer was sent and has not read lies in these buffers as well: there must be some beyond that.) */
	if (count > 1)
		others();
	return wrong;
}
