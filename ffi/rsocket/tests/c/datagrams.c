/* Datagram sockets. */
#include "check.h"

static int bound(int type)
{
	int fd = rsocket(AF_INET, type, 0);
	struct sockaddr_in address = at_port(0);
	CHECK(fd >= 0 && rbind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	return fd;
}

/* Sends back what comes, until a datagram of nothing comes. */
static void server(int told)
{
	int fd = bound(SOCK_DGRAM);
	tell_port(told, fd);
	static char bytes[3000];
	for (;;) {
		struct sockaddr_in from;
		socklen_t len = sizeof from;
		ssize_t n = rrecvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);
		CHECK(n >= 0 && len == sizeof from && from.sin_addr.s_addr == own_address());
		if (n == 0)
			break;
		CHECK(rsendto(fd, bytes, n, 0, (struct sockaddr *)&from, len) == n);
	}
	CHECK(rclose(fd) == 0);
}

static void echo(int fd, const struct sockaddr_in *to, size_t len, unsigned seed)
{
	static unsigned char bytes[2048], back[2048];
	for (size_t i = 0; i < len; i++)
		bytes[i] = byte_at(i, seed);
	CHECK(rsendto(fd, bytes, len, 0, (const struct sockaddr *)to, sizeof *to) == (ssize_t)len);
	struct sockaddr_in from;
	socklen_t from_len = sizeof from;
	struct pollfd one = {.fd = fd, .events = POLLIN};
	CHECK(rpoll(&one, 1, 10000) == 1 && one.revents == POLLIN);
	CHECK(rrecvfrom(fd, back, sizeof back, 0, (struct sockaddr *)&from, &from_len) == (ssize_t)len);
	CHECK(memcmp(bytes, back, len) == 0 && from.sin_port == to->sin_port && from_len == sizeof from);
}

/* One that was connected. */
static void connected_one(const struct sockaddr_in *to)
{
	int fd = rsocket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP);
	char byte;
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	FAILS(rsend(fd, "x", 1, 0), EDESTADDRREQ);
	FAILS(rgetpeername(fd, (struct sockaddr *)&peer, &len), ENOTCONN);
	CHECK(rconnect(fd, (const struct sockaddr *)to, sizeof *to) == 0);
	CHECK(rgetpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_port == to->sin_port);
	FAILS(rrecv(fd, &byte, 1, 0), EAGAIN);
	CHECK(rwrite(fd, "hello", 5) == 5);
	struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
	while (rpoll(&one, 1, 10000) == 1 && !(one.revents & POLLIN))
		;
	/* As much as there is room for; the rest is gone, and is told of. */
	struct iovec two[] = {{&byte, 1}, {&byte, 1}};
	struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = two, .msg_iovlen = 2};
	CHECK(rrecvmsg(fd, &message, MSG_PEEK) == 2 && message.msg_flags == MSG_TRUNC && message.msg_namelen == sizeof peer);
	CHECK(rrecv(fd, &byte, 1, 0) == 1 && byte == 'h');
	FAILS(rrecv(fd, &byte, 1, 0), EAGAIN);
	CHECK(rclose(fd) == 0);
}

static void errors(int fd, const struct sockaddr_in *to)
{
	static char bytes[2100];
	FAILS(rsendto(fd, bytes, 2041, 0, (const struct sockaddr *)to, sizeof *to), EMSGSIZE);
	FAILS(rlisten(fd, 1), EOPNOTSUPP);
	FAILS(raccept(fd, NULL, NULL), EOPNOTSUPP);
	FAILS(rshutdown(fd, SHUT_WR), EOPNOTSUPP);
	FAILS(riomap(fd, bytes, 10, PROT_WRITE, 0, 0), EOPNOTSUPP);
	struct sockaddr_in other = at_port(port_of(fd));
	FAILS(rbind(fd, (struct sockaddr *)&other, sizeof other), EINVAL);
	int second = rsocket(AF_INET, SOCK_DGRAM, 0);
	FAILS(rbind(second, (struct sockaddr *)&other, sizeof other), EADDRINUSE);
	CHECK(inet_pton(AF_INET, "192.0.2.1", &other.sin_addr) == 1);
	FAILS(rbind(second, (struct sockaddr *)&other, sizeof other), EADDRNOTAVAIL);
	FAILS(rsendto(second, "x", 1, 0, (struct sockaddr *)&other, sizeof other), ENETUNREACH);
	int value = 30000;
	socklen_t len = sizeof value;
	CHECK(rsetsockopt(second, SOL_SOCKET, SO_SNDBUF, &value, sizeof value) == 0);
	FAILS(rsetsockopt(second, SOL_RDMA, RDMA_SQSIZE, &value, sizeof value), EINVAL);
	CHECK(rgetsockopt(second, SOL_SOCKET, SO_ERROR, &value, &len) == 0 && value == 0);
	CHECK(rclose(second) == 0);
}

/* IPv6's, which take IPv4's as well. */
static void of_six(void)
{
	int six = rsocket(AF_INET6, SOCK_DGRAM, 0), four = bound(SOCK_DGRAM);
	struct sockaddr_in6 address = {.sin6_family = AF_INET6}, from;
	CHECK(rbind(six, (struct sockaddr *)&address, sizeof address) == 0);
	socklen_t len = sizeof address;
	CHECK(rgetsockname(six, (struct sockaddr *)&address, &len) == 0 && address.sin6_port != 0);
	struct sockaddr_in to = at_port(ntohs(address.sin6_port));
	char byte;
	for (int i = 0; i < 3; i++) {
		CHECK(rsendto(four, "4", 1, 0, (struct sockaddr *)&to, sizeof to) == 1);
		len = sizeof from;
		CHECK(rrecvfrom(six, &byte, 1, 0, (struct sockaddr *)&from, &len) == 1 && byte == '4');
		CHECK(IN6_IS_ADDR_V4MAPPED(&from.sin6_addr) && ntohs(from.sin6_port) == port_of(four));
		CHECK(rsendto(six, "6", 1, 0, (struct sockaddr *)&from, len) == 1);
		CHECK(rrecv(four, &byte, 1, 0) == 1 && byte == '6');
	}
	CHECK(rclose(six) == 0 && rclose(four) == 0);
}

int main(void)
{
	uint16_t port;
	pid_t child = serve(server, &port);
	struct sockaddr_in to = at_port(port);
	int fd = bound(SOCK_DGRAM);
	size_t lens[] = {1, 64, 65, 1000, 2030};
	for (int round = 0; round < 100; round++)
		echo(fd, &to, lens[round % 5], round);
	echo(fd, &to, 2040, 1);
	connected_one(&to);
	errors(fd, &to);

	/* Another process gets the port. */
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(rsendto(fd, "lost", 4, 0, (struct sockaddr *)&to, sizeof to) == 4);
	int own = rsocket(AF_INET, SOCK_DGRAM, 0);
	CHECK(rbind(own, (struct sockaddr *)&to, sizeof to) == 0);
	char byte;
	/* What is sent before it is known that the other is dead is lost. */
	struct pollfd one = {.fd = own, .events = POLLIN};
	int sent = 0;
	do {
		CHECK(rsendto(fd, "y", 1, 0, (struct sockaddr *)&to, sizeof to) == 1 && ++sent < 100);
	} while (rpoll(&one, 1, 100) == 0);
	CHECK(rrecv(own, &byte, 1, 0) == 1 && byte == 'y');
	CHECK(!is_on_card() || rpoll(&one, 1, 300) == 0 || rrecv(own, &byte, 1, 0) == 1);
	for (int i = 0; i < 3; i++) {
		CHECK(rsendto(fd, "w", 1, 0, (struct sockaddr *)&to, sizeof to) == 1);
		CHECK(rrecv(own, &byte, 1, 0) == 1 && byte == 'w');
	}
	/* And another socket of the same process. */
	CHECK(rclose(own) == 0);
	own = rsocket(AF_INET, SOCK_DGRAM, 0);
	CHECK(rbind(own, (struct sockaddr *)&to, sizeof to) == 0);
	one.fd = own;
	do {
		CHECK(rsendto(fd, "z", 1, 0, (struct sockaddr *)&to, sizeof to) == 1 && ++sent < 200);
	} while (is_on_card() && rpoll(&one, 1, 100) == 0);
	CHECK(rrecv(own, &byte, 1, 0) == 1 && byte == 'z');
	CHECK(rclose(own) == 0);
	CHECK(rconnect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	if (!is_on_card())
		FAILS(rsend(fd, "x", 1, 0), ECONNREFUSED);
	of_six();
	return 0;
}
