/* Writes that need nothing of the peer's processor: it is stopped, killed, refuses, has unmapped its memory, or ends the mapping in the middle. */
#include "check.h"

#include <sys/prctl.h>

#define LEN (1 << 20)

/* Seen by both processes: what a stopped server has in its memory. */
static unsigned char *shared;
static volatile int *flags;

static int open_one(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), entries = 2;
	CHECK(fd >= 0 && rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0);
	return fd;
}

static int accepted(int told)
{
	int door = open_one();
	struct sockaddr_in address = at_port(0);
	CHECK(rbind(door, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(door, 1) == 0);
	tell_port(told, door);
	int fd = raccept(door, NULL, NULL);
	CHECK(fd >= 0);
	return fd;
}

static int mapped(int told)
{
	int fd = accepted(told);
	CHECK(riomap(fd, shared, LEN, PROT_WRITE, 0, 0) == 0);
	CHECK(rsend(fd, "m", 1, 0) == 1);
	return fd;
}

static int connect_to(uint16_t port)
{
	int fd = open_one();
	struct sockaddr_in address = at_port(port);
	CHECK(rconnect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 1 && byte == 'm');
	return fd;
}

static void heard(int fd)
{
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 1 && rsend(fd, "m", 1, 0) == 1);
	CHECK(rrecv(fd, &byte, 1, 0) == 0);
	CHECK(rclose(fd) == 0);
}

static void server(int told)
{
	heard(mapped(told));
}

static void await_stop(pid_t child)
{
	int status;
	CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
}

static unsigned char bytes[LEN];

/* All of it is there while the server is stopped, and what is sent afterwards comes after it. */
static void stopped(void)
{
	uint16_t port;
	pid_t child = serve(server, &port);
	int fd = connect_to(port);
	await_stop(child);
	for (size_t i = 0; i < LEN; i++)
		bytes[i] = byte_at(i, 3);
	CHECK(riowrite(fd, bytes, LEN, 0, 0) == LEN && memcmp(shared, bytes, LEN) == 0);
	for (size_t len = 1; len < 5000; len = len * 2 + 1) {
		CHECK(riowrite(fd, bytes + len, len, 7, 0) == len);
		CHECK(memcmp(shared + 7, bytes + len, len) == 0 && shared[6] == bytes[6] && shared[7 + len] == bytes[7 + len]);
		memcpy(shared, bytes, LEN);
	}
	CHECK(riowrite(fd, bytes, 100, LEN - 10, 0) == 10 && riowrite(fd, bytes, 100, LEN, 0) == 0);
	CHECK(rsend(fd, "x", 1, 0) == 1);
	/* A write that comes after what waits for the server to take it. */
	CHECK(riowrite(fd, "late", 4, 0, 0) == 4);
	kill(child, SIGCONT);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 1 && memcmp(shared, "late", 4) == 0);
	CHECK(rclose(fd) == 0);
	ends_well(child);
}

/* A card in the process is stopped with it: what is written meanwhile waits, longer than a queue pair asks in vain, and comes in its turn. */
static void stopped_with_its_card(void)
{
	const size_t some = 50000;
	uint16_t port;
	pid_t child = serve(server, &port);
	int fd = connect_to(port);
	await_stop(child);
	for (size_t i = 0; i < LEN; i++)
		bytes[i] = byte_at(i, 3);
	CHECK(riowrite(fd, bytes, some, 0, 0) == some);
	CHECK(riowrite(fd, bytes, 100, LEN - 10, 0) == 10 && riowrite(fd, bytes, 100, LEN, 0) == 0);
	CHECK(rsend(fd, "x", 1, 0) == 1);
	usleep(1200000);
	kill(child, SIGCONT);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 1);
	CHECK(memcmp(shared, bytes, some) == 0 && shared[some] == 0 && memcmp(shared + LEN - 10, bytes, 10) == 0);
	CHECK(rclose(fd) == 0);
	ends_well(child);
}

/* Killed in the middle of writes: the writer hears of it as of any peer's end. */
static void server_killed(void)
{
	uint16_t port;
	pid_t child = serve(server, &port);
	int fd = connect_to(port);
	pid_t killer = fork();
	if (killer == 0) {
		usleep(30000);
		kill(child, SIGKILL);
		_exit(0);
	}
	double began = seconds();
	while (riowrite(fd, bytes, LEN, 0, 0) == LEN)
		CHECK(seconds() - began < 20);
	FAILS(riowrite(fd, bytes, LEN, 0, 0), ECONNRESET);
	CHECK(rclose(fd) == 0 && waitpid(child, NULL, 0) == child);
	ends_well(killer);
}

/* The writer is killed in the middle: the mapping ends at once, and nobody writes there. */
static void server_of_killed(int told)
{
	int fd = mapped(told);
	while (flags[0] == 0)
		usleep(100);
	CHECK(kill(flags[0], SIGKILL) == 0);
	double began = seconds();
	CHECK(riounmap(fd, shared, LEN) == 0 && seconds() - began < 1);
	memset(shared, 0x11, LEN);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) <= 0);
	for (size_t i = 0; i < LEN; i++)
		CHECK(shared[i] == 0x11);
	rclose(fd);
}

static void writer_killed(void)
{
	uint16_t port;
	flags[0] = 0;
	pid_t child = serve(server_of_killed, &port), writer = fork();
	if (writer == 0) {
		int fd = connect_to(port);
		CHECK(riowrite(fd, bytes, LEN, 0, 0) == LEN);
		flags[0] = getpid();
		for (;;)
			CHECK(riowrite(fd, bytes, LEN, 0, 0) == LEN);
	}
	int status;
	CHECK(waitpid(writer, &status, 0) == writer && WIFSIGNALED(status));
	ends_well(child);
}

/* A mapping ends while writes are under way: once it has, the memory stays as it is, and the connection of who writes ends. */
static void server_that_revokes(int told)
{
	int fd = mapped(told);
	while (flags[0] == 0)
		;
	CHECK(riounmap(fd, shared, LEN) == 0);
	memset(shared, 0x22, LEN);
	for (int look = 0; look < 20; look++) {
		usleep(500);
		for (size_t i = 0; i < LEN; i++)
			CHECK(shared[i] == 0x22);
	}
	char byte;
	FAILS(rrecv(fd, &byte, 1, 0), ECONNRESET);
	rclose(fd);
}

static void revoked(void)
{
	for (int round = 0; round < 5; round++) {
		uint16_t port;
		flags[0] = 0;
		pid_t child = serve(server_that_revokes, &port);
		int fd = connect_to(port);
		while (riowrite(fd, bytes, LEN, 0, 0) != (size_t)-1)
			flags[0] = 1;
		CHECK(errno == ECONNRESET);
		CHECK(rclose(fd) == 0);
		ends_well(child);
	}
}

/* The server's memory is gone though it is still mapped: the writer's connection ends, and the server goes on. */
static void server_that_unmaps(int told)
{
	int fd = accepted(told);
	unsigned char *own = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(own != MAP_FAILED && riomap(fd, own, LEN, PROT_WRITE, 0, 0) == 0 && munmap(own + LEN / 2, LEN / 2) == 0);
	CHECK(rsend(fd, "m", 1, 0) == 1);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 1);
	CHECK(memcmp(own, bytes, 100) == 0);
	CHECK(rrecv(fd, &byte, 1, 0) <= 0);
	CHECK(riounmap(fd, own, LEN) == 0 && rclose(fd) == 0);
}

static void unmapped(void)
{
	uint16_t port;
	pid_t child = serve(server_that_unmaps, &port);
	int fd = connect_to(port);
	CHECK(riowrite(fd, bytes, 100, 0, 0) == 100 && rsend(fd, "x", 1, 0) == 1);
	if (is_on_card()) {
		/* (A card has what was registered for as long as it is, whatever the process does with its addresses.) */
		CHECK(riowrite(fd, bytes, 100, LEN - 1000, 0) == 100 && riowrite(fd, bytes, 100, 0, 0) == 100);
	} else {
		FAILS(riowrite(fd, bytes, 100, LEN - 1000, 0), ECONNRESET);
		FAILS(riowrite(fd, bytes, 100, 0, 0), ECONNRESET);
	}
	CHECK(rclose(fd) == 0);
	ends_well(child);
}

/* The kernel lets nobody write to a process that is not dumpable (but one that may trace any): its queue pair takes the bytes. */
static void server_that_is_closed(int told)
{
	CHECK(setgid(65534) == 0 && setuid(65534) == 0);
	CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	heard(mapped(told));
}

static void refused(void)
{
	if (getuid() != 0) {
		printf("refused: needs root\n");
		return;
	}
	pid_t client = fork();
	if (client == 0) {
		uint16_t port;
		pid_t child = serve(server_that_is_closed, &port);
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		int fd = connect_to(port);
		/* (By the queue pair, which takes nothing from who is stopped but what there is room for.) */
		CHECK(riowrite(fd, bytes, LEN, 0, 0) == LEN);
		CHECK(rsend(fd, "x", 1, 0) == 1);
		char byte;
		CHECK(rrecv(fd, &byte, 1, 0) == 1 && memcmp(shared, bytes, LEN) == 0);
		CHECK(rclose(fd) == 0);
		ends_well(child);
		exit(0);
	}
	ends_well(client);
}

int main(void)
{
	shared = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	flags = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED && flags != MAP_FAILED);
	if (is_on_card())
		stopped_with_its_card();
	else
		stopped();
	server_killed();
	writer_killed();
	memset(shared, 0, LEN);
	revoked();
	unmapped();
	memset(shared, 0, LEN);
	refused();
	return 0;
}
