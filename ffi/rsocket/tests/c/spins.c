/* Programs that look at mapped memory, and make no call while they wait: what the peer writes comes all the same, its last byte last. */
#include "check.h"

#define ROUNDS 40
#define LEN 3000
/* (The thread that carries the bytes may wait long for a processor.) */
#define LATE_S 20

static volatile unsigned char memory[LEN];

static void await(unsigned char marker)
{
	double began = seconds();
	while (memory[LEN - 1] != marker)
		CHECK(seconds() - began < LATE_S);
	/* All of it is there. */
	for (int i = 0; i < LEN; i++)
		CHECK(memory[i] == marker);
}

static void give(int fd, unsigned char marker)
{
	unsigned char bytes[LEN];
	memset(bytes, marker, sizeof bytes);
	CHECK(riowrite(fd, bytes, sizeof bytes, 0, 0) == sizeof bytes);
}

static void map(int fd)
{
	char byte;
	CHECK(riomap(fd, (void *)memory, LEN, PROT_WRITE, 0, 0) == 0);
	CHECK(rsend(fd, "x", 1, 0) == 1 && rrecv(fd, &byte, 1, 0) == 1);
}

static int open_one(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), entries = 1;
	CHECK(fd >= 0 && rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0);
	return fd;
}

static void server(int told)
{
	int door = open_one();
	struct sockaddr_in address = at_port(0);
	CHECK(rbind(door, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(door, 1) == 0);
	tell_port(told, door);
	int fd = raccept(door, NULL, NULL);
	map(fd);
	for (int i = 0; i < ROUNDS; i++) {
		await(2 * i % 250 + 1);
		give(fd, 2 * i % 250 + 2);
	}
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 0);
}

int main(void)
{
	uint16_t port;
	pid_t child = serve(server, &port);
	int fd = open_one();
	struct sockaddr_in address = at_port(port);
	CHECK(rconnect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	map(fd);
	for (int i = 0; i < ROUNDS; i++) {
		give(fd, 2 * i % 250 + 1);
		await(2 * i % 250 + 2);
	}
	CHECK(rclose(fd) == 0);
	ends_well(child);
	return 0;
}
