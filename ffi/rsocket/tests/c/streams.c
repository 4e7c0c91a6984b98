/* Bytes each way, ends of streams, names, vectors, and the end of a process. */
#include "check.h"

#define MIB (1 << 20)

static void server(int told)
{
	int door = listener();
	tell_port(told, door);
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	int fd = raccept(door, (struct sockaddr *)&from, &len);
	CHECK(fd >= 0 && len == sizeof from && from.sin_addr.s_addr == own_address() && from.sin_port != 0);
	struct sockaddr_in peer;
	len = sizeof peer;
	CHECK(rgetpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_port == from.sin_port);
	CHECK(port_of(fd) == port_of(door));
	recv_pattern(fd, MIB, 1);
	send_pattern(fd, MIB, 2);
	/* The client sends no more, and still reads. */
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 0);
	CHECK(rsend(fd, "late", 4, 0) == 4);
	CHECK(rclose(fd) == 0);

	/* One more, which ends with the process: what was sent arrives, and the end. */
	fd = raccept(door, NULL, NULL);
	CHECK(fd >= 0);
	send_pattern(fd, 100000, 3);
}

static void vectors(int fd)
{
	char one[3], two[8];
	struct iovec in[] = {{one, sizeof one}, {NULL, 0}, {two, sizeof two}};
	/* All of them are filled, and nothing is taken by a peek. */
	struct msghdr peek = {.msg_iov = in, .msg_iovlen = 3};
	CHECK(rrecvmsg(fd, &peek, MSG_PEEK) == 4 && memcmp(one, "lat", 3) == 0 && two[0] == 'e');
	memset(one, 0, sizeof one);
	CHECK(rreadv(fd, in, 3) == 4 && memcmp(one, "lat", 3) == 0 && two[0] == 'e');
}

int main(void)
{
	uint16_t port;
	pid_t child = serve(server, &port);
	int fd = connected(port);
	struct sockaddr_in own;
	socklen_t len = sizeof own;
	CHECK(rgetsockname(fd, (struct sockaddr *)&own, &len) == 0);
	CHECK(own.sin_addr.s_addr == own_address() && own.sin_port != 0);
	send_pattern(fd, MIB, 1);
	recv_pattern(fd, MIB, 2);
	CHECK(rshutdown(fd, SHUT_WR) == 0);
	FAILS(rsend(fd, "x", 1, 0), EPIPE);
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	CHECK(rpoll(&readable, 1, 10000) == 1 && (readable.revents & POLLIN));
	vectors(fd);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 0);
	CHECK(rclose(fd) == 0);
	FAILS(rclose(fd), EBADF);

	fd = connected(port);
	ends_well(child);
	recv_pattern(fd, 100000, 3);
	CHECK(rrecv(fd, &byte, 1, 0) == 0);
	CHECK(rclose(fd) == 0);
	return 0;
}
