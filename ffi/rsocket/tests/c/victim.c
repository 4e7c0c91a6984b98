/* An echo server that anybody may talk to, however badly: it goes on, its memory is its own, and it does not grow. */
#include "check.h"

#define CLIENTS 64
#define CANARY (1 << 20)

static long resident_kib(void)
{
	char line[200];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "r");
	CHECK(status != NULL);
	while (fgets(line, sizeof line, status))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	fclose(status);
	return kib;
}

static unsigned char *canary, mapped[4096];

static void check_memory(long before)
{
	for (size_t i = 0; i < CANARY; i++)
		CHECK(canary[i] == 0x5a);
	for (size_t i = 0; i < sizeof mapped; i++)
		CHECK(mapped[i] == 0x5a);
	long after = resident_kib();
	if (after - before > 64 << 10)
		fprintf(stderr, "%ld KiB, and %ld before\n", after, before);
	CHECK(after - before <= 64 << 10);
}

/* Whether the client is to be let go of. Who says QUIT ends the server. */
static int serve_one(int fd, int *quits)
{
	char bytes[2000];
	ssize_t n = rrecv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		return 1;
	*quits |= n == 4 && memcmp(bytes, "QUIT", 4) == 0;
	return rsend(fd, bytes, n, MSG_DONTWAIT) < 0 && errno != EAGAIN;
}

int main(void)
{
	canary = malloc(CANARY);
	memset(canary, 0x5a, CANARY);
	memset(mapped, 0x5a, sizeof mapped);
	struct pollfd fds[CLIENTS + 1];
	int count = 1, quits = 0;
	fds[0] = (struct pollfd){.fd = listener(), .events = POLLIN};
	CHECK(rfcntl(fds[0].fd, F_SETFL, O_NONBLOCK) == 0);
	printf("%u\n", port_of(fds[0].fd));
	fflush(stdout);
	long before = -1;
	while (!quits) {
		CHECK(rpoll(fds, count, 20000) > 0);
		for (int i = 1; i < count; i++) {
			if (fds[i].revents != 0 && serve_one(fds[i].fd, &quits)) {
				CHECK(rclose(fds[i].fd) == 0);
				fds[i--] = fds[--count];
			}
		}
		int fd = count <= CLIENTS ? raccept(fds[0].fd, NULL, NULL) : -1;
		if (fd >= 0) {
			CHECK(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0);
			/* Memory of the connection that is for nobody else. */
			riomap(fd, mapped, sizeof mapped, PROT_NONE, 0, -1);
			fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
			if (before < 0)
				before = resident_kib();
		}
		if (count > CLIENTS) {
			/* Whoever has been there longest goes. */
			CHECK(rclose(fds[1].fd) == 0);
			memmove(fds + 1, fds + 2, (--count - 1) * sizeof *fds);
		}
	}
	check_memory(before);
	return 0;
}
