/* riomap, riounmap, riowrite. */
#include "check.h"

static unsigned char memory[3 * 100000];
#define MAPPED (memory + 100000)
#define OFFSET 5000

static void server(int told)
{
	int door = rsocket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = at_port(0);
	CHECK(rbind(door, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(door, 1) == 0);
	tell_port(told, door);
	int fd = raccept(door, NULL, NULL);
	memset(memory, 0x5a, sizeof memory);
	CHECK(riomap(fd, MAPPED, 100000, PROT_WRITE, 0, OFFSET) == OFFSET);
	static unsigned char second[64];
	CHECK(riomap(fd, second, sizeof second, PROT_WRITE, 0, -1) == (off_t)(uintptr_t)second);
	FAILS(riomap(fd, second, sizeof second, PROT_WRITE, 0, -1), ENOMEM);
	CHECK(riomap(fd, second, sizeof second, PROT_NONE, 0, 7) == 7);
	FAILS(riomap(fd, second, sizeof second, PROT_READ, 0, 7), EINVAL);
	FAILS(riomap(fd, NULL, sizeof second, PROT_WRITE, 0, 7), EFAULT);
	FAILS(riomap(fd, second, 0, PROT_WRITE, 0, 7), EINVAL);
	FAILS(riounmap(fd, second, 63), EINVAL);
	uint64_t where = (uintptr_t)second;
	CHECK(rsend(fd, &where, sizeof where, 0) == sizeof where);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 1);
	for (size_t i = 0; i < sizeof memory; i++) {
		int is_inside = i >= 100000 && i < 200000;
		CHECK(memory[i] == (is_inside ? byte_at(i - 100000, 9) : 0x5a));
	}
	CHECK(memcmp(second + 60, "tail", 4) == 0);
	/* It was mapped twice. */
	CHECK(riounmap(fd, second, sizeof second) == 0 && riounmap(fd, second, sizeof second) == 0);
	FAILS(riounmap(fd, second, sizeof second), EINVAL);
	CHECK(riounmap(fd, MAPPED, 100000) == 0);
	memset(memory, 0x5a, sizeof memory);
	CHECK(rsend(fd, "x", 1, 0) == 1);
	/* What the peer writes now goes nowhere, and ends the connection. */
	FAILS(rrecv(fd, &byte, 1, 0), ECONNRESET);
	for (size_t i = 0; i < sizeof memory; i++)
		CHECK(memory[i] == 0x5a);
}

int main(void)
{
	uint16_t port;
	pid_t child = serve(server, &port);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	int entries = 2;
	CHECK(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0);
	struct sockaddr_in address = at_port(port);
	CHECK(rconnect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	/* The peer set none aside. */
	FAILS(riomap(fd, memory, 100, PROT_WRITE, 0, 0), ENOMEM);
	uint64_t where;
	CHECK(rrecv(fd, &where, sizeof where, MSG_WAITALL) == sizeof where);
	for (size_t i = 0; i < 100000; i++)
		memory[i] = byte_at(i, 9);
	CHECK(riowrite(fd, memory, 100000, OFFSET, 0) == 100000);
	/* Only as far as it is mapped. */
	CHECK(riowrite(fd, memory + 99990, 20, OFFSET + 99990, 0) == 10);
	CHECK(riowrite(fd, memory, 20, OFFSET + 100000, 0) == 0);
	CHECK(riowrite(fd, memory, 20, OFFSET - 1, 0) == 0);
	FAILS(riowrite(fd, memory, 20, -5, 0), EINVAL);
	CHECK(riowrite(fd, "tail", 4, where + 60, 0) == 4);
	char byte = 'x';
	CHECK(rsend(fd, &byte, 1, 0) == 1);
	CHECK(rrecv(fd, &byte, 1, 0) == 1);
	CHECK(riowrite(fd, memory, 100, OFFSET, 0) == 100);
	FAILS(rrecv(fd, &byte, 1, 0), ECONNRESET);
	ends_well(child);
	return 0;
}
