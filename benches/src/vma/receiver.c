/*
 * Receives datagrams that sender.c sends.
 *
 *	receiver flood WAY PORT MS	what arrives in so many milliseconds
 *	receiver burst WAY PORT TURNS	asks (stdout) for a burst, is told (stdin) that it is there, takes it: that many times
 *	receiver ping WAY PORT PEER COUNT	sends a datagram to a peer's port, and waits for its answer
 *	receiver pong WAY PORT PEER COUNT	answers so many
 *
 * Prints its figures as one line of JSON to stderr.
 */
#include "ways.h"

#include <x86intrin.h>

/* Before anything counts: caches, the peer's start. */
static const uint64_t WARM_UP_NS = 100000000;
/* The longest that anything is waited for. */
static const uint64_t PATIENCE_NS = 20000000000;

static uint64_t cpu_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

static void flood(const struct way *way, int fd, uint64_t lasts_ns)
{
	uint64_t calls = 0, empty = 0, busy = 0, idle = 0, begun_ns, begun_cpu, begun_tsc, before, ns;

	for (ns = now_ns(); way->take(fd) == 0;)
		check(now_ns() - ns < PATIENCE_NS, "nothing came");
	for (ns = now_ns(); now_ns() - ns < WARM_UP_NS;)
		way->take(fd);
	received = 0;
	begun_ns = now_ns();
	begun_cpu = cpu_ns();
	before = begun_tsc = __rdtsc();
	do {
		/* (Reading the clock costs as much as some calls do.) */
		for (int i = 0; i < 256; i++) {
			int taken = way->take(fd);
			uint64_t after = __rdtsc();

			if (taken > 0)
				busy += after - before;
			else {
				idle += after - before;
				empty++;
			}
			before = after;
		}
		calls += 256;
		ns = now_ns() - begun_ns;
	} while (ns < lasts_ns);
	double tick = (double)ns / (double)(__rdtsc() - begun_tsc);
	uint64_t sent = received ? last_number - first_number + 1 : 0;
	fprintf(stderr, "{\"packets\":%lu,\"lost\":%lu,\"ns\":%lu,\"cpu_ns\":%lu,\"busy_ns\":%.0f,\"idle_ns\":%.0f,\"calls\":%lu,\"empty\":%lu}\n",
		received, sent - received, ns, cpu_ns() - begun_cpu, (double)busy * tick, (double)idle * tick, calls, empty);
}

/* Takes a burst that is there. */
static inline void take_all(const struct way *way, int fd)
{
	for (uint64_t all = received + BURST, tries = 0; received < all && tries < 4 * BURST; tries++)
		way->take(fd);
}

/* (Its name is callgrind's.) */
__attribute__((noinline)) static void drain(const struct way *way, int fd)
{
	take_all(way, fd);
}

static void burst(const struct way *way, int fd, int turns)
{
	uint64_t all = 0, count = 0, ns;
	char byte = 0;

	for (int turn = 0; turn < turns; turn++) {
		check(write(1, &byte, 1) == 1 && read(0, &byte, 1) == 1, "the sender");
		/* The first turns find nothing in any cache, and not all of it may have come by the ring: until the sender has found that, the kernel brings it. */
		warms_up = turn < turns / 4;
		if (warms_up) {
			take_all(way, fd);
			continue;
		}
		uint64_t before = received;
		ns = now_ns();
		drain(way, fd);
		all += now_ns() - ns;
		count += received - before;
	}
	fprintf(stderr, "{\"packets\":%lu,\"counted\":%lu,\"busy_ns\":%lu}\n", received, count, all);
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void exchange(const struct way *way, int fd, const char *peer, int count, int asks)
{
	struct sockaddr_in to = loopback(peer);
	uint64_t *took = calloc((size_t)count, sizeof *took), begun;
	char bytes[SIZE] = {0};

	/* (A connected socket is not seen to be bound, which whoever starts the peer waits for.) */
	if (asks)
		check(connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
	for (int i = 0; i < count; i++) {
		begun = now_ns();
		if (asks)
			check(send(fd, bytes, SIZE, 0) == SIZE, "send");
		for (uint64_t tries = 0; way->take(fd) == 0;)
			check(++tries % 1024 != 0 || now_ns() - begun < PATIENCE_NS, "no answer");
		if (!asks && i == 0)
			check(connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
		if (!asks)
			check(send(fd, bytes, SIZE, 0) == SIZE, "send");
		took[i] = now_ns() - begun;
	}
	/* The first tenth warms up. */
	int from = count / 10, left = count - from;
	qsort(took + from, (size_t)left, sizeof *took, ascending);
	fprintf(stderr, "{\"median_ns\":%lu,\"p99_ns\":%lu}\n", took[from + left / 2], took[from + (int)((double)left * 0.99)]);
	free(took);
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	struct way way = way_of(argv[2]);
	int fd = open_for(&way, argv[3]);

	if (strcmp(argv[1], "flood") == 0)
		flood(&way, fd, (uint64_t)atoi(argv[4]) * 1000000);
	else if (strcmp(argv[1], "burst") == 0)
		burst(&way, fd, atoi(argv[4]));
	else if (argc > 5)
		exchange(&way, fd, argv[4], atoi(argv[5]), strcmp(argv[1], "ping") == 0);
	else
		return 2;
	return 0;
}
