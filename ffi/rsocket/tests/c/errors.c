/* What fails, and with which errno. */
#include "check.h"

static void options(int fd)
{
	int value = 1;
	socklen_t len = sizeof value;
	int round[][3] = {{SOL_SOCKET, SO_REUSEADDR, 1}, {SOL_SOCKET, SO_KEEPALIVE, 1}, {SOL_SOCKET, SO_OOBINLINE, 1},
			  {IPPROTO_TCP, TCP_NODELAY, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 30}, {SOL_RDMA, RDMA_SQSIZE, 100},
			  {SOL_RDMA, RDMA_RQSIZE, 100}, {SOL_RDMA, RDMA_INLINE, 32}, {SOL_RDMA, RDMA_IOMAPSIZE, 64},
			  {IPPROTO_IP, IP_TOS, 8}};
	for (size_t i = 0; i < sizeof round / sizeof *round; i++) {
		value = round[i][2];
		CHECK(rsetsockopt(fd, round[i][0], round[i][1], &value, sizeof value) == 0);
		value = -1;
		CHECK(rgetsockopt(fd, round[i][0], round[i][1], &value, &len) == 0 && value == round[i][2] && len == sizeof value);
	}
	value = 70000;
	CHECK(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value) == 0);
	CHECK(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &len) == 0 && value == 140000);
	struct linger linger = {0, 5};
	CHECK(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
	len = sizeof linger;
	CHECK(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len) == 0 && linger.l_onoff == 0 && len == sizeof linger);
	char route[72] = "a path", got[100];
	CHECK(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, route, sizeof route) == 0);
	len = sizeof got;
	CHECK(rgetsockopt(fd, SOL_RDMA, RDMA_ROUTE, got, &len) == 0 && len == 72 && memcmp(got, route, 72) == 0);
	len = 2;
	CHECK(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, got, &len) == 0 && len == 2);
	FAILS(rsetsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof value), ENOTSUP);
	FAILS(rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len), ENOTSUP);
	FAILS(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, 2), EINVAL);
	FAILS(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, NULL, 4), EFAULT);
	FAILS(rgetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, NULL), EFAULT);
	value = 0;
	FAILS(rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value), EINVAL);
}

static void of_six(uint16_t port)
{
	int door = rsocket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	CHECK(door >= 0 && rbind(door, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(door, 4) == 0);
	/* It takes IPv4, and shows it mapped. */
	int fd = connected(port);
	struct sockaddr_in6 from;
	socklen_t len = sizeof from;
	int accepted = raccept(door, (struct sockaddr *)&from, &len);
	CHECK(accepted >= 0 && len == sizeof from && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
	CHECK(rclose(fd) == 0 && rclose(accepted) == 0);
	struct sockaddr_in other = at_port(port);
	fd = rsocket(AF_INET6, SOCK_STREAM, 0);
	FAILS(rconnect(fd, (struct sockaddr *)&other, sizeof other), EAFNOSUPPORT);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr);
	CHECK(rconnect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	len = sizeof from;
	CHECK(rgetpeername(fd, (struct sockaddr *)&from, &len) == 0 && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
	CHECK(rclose(fd) == 0 && rclose(door) == 0);

	/* Unless it is not to. */
	door = rsocket(AF_INET6, SOCK_STREAM, 0);
	int only = 1;
	CHECK(rsetsockopt(door, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only) == 0);
	address.sin6_addr = in6addr_any;
	CHECK(rbind(door, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(door, 4) == 0);
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	FAILS(rconnect(fd, (struct sockaddr *)&other, sizeof other), ECONNREFUSED);
	CHECK(rclose(fd) == 0 && rclose(door) == 0);
}

int main(void)
{
	char byte;
	struct sockaddr_in address = at_port(0);
	struct sockaddr *at = (struct sockaddr *)&address;
	/* Before there is any. */
	FAILS(rsend(0, "x", 1, 0), EBADF);
	FAILS(rclose(5), EBADF);
	struct pollfd none = {.fd = 99, .events = POLLIN};
	CHECK(rpoll(&none, 1, 0) == 1 && none.revents == POLLNVAL);

	FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
	FAILS(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), ENOTSUP);
	FAILS(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP);
	FAILS(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), ENOTSUP);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	options(fd);

	FAILS(rrecv(fd, &byte, 1, 0), ENOTCONN);
	FAILS(rsend(fd, &byte, 1, 0), ENOTCONN);
	FAILS(rshutdown(fd, SHUT_RDWR), ENOTCONN);
	FAILS(rshutdown(fd, 7), EINVAL);
	socklen_t len = sizeof address;
	FAILS(rgetpeername(fd, at, &len), ENOTCONN);
	FAILS(rgetsockname(fd, NULL, &len), EFAULT);
	FAILS(raccept(fd, NULL, NULL), EINVAL);
	FAILS(riomap(fd, &byte, 1, PROT_WRITE, 0, 0), ENOTCONN);
	FAILS(riowrite(fd, &byte, 1, 0, 0), ENOTCONN);
	FAILS(rfcntl(fd, F_DUPFD, 0), ENOTSUP);
	FAILS(rbind(fd, NULL, sizeof address), EFAULT);
	FAILS(rbind(fd, at, 4), EINVAL);
	FAILS(rpoll(NULL, 1, 0), EFAULT);
	FAILS(rselect(-1, NULL, NULL, NULL, NULL), EINVAL);
	FAILS(rread(fd, NULL, 1), EFAULT);
	FAILS(rwritev(fd, NULL, 2), EFAULT);
	FAILS(rwritev(fd, NULL, -1), EINVAL);
	FAILS(rwrite(99, "x", 1), EBADF);

	CHECK(inet_pton(AF_INET, "192.0.2.1", &address.sin_addr) == 1);
	FAILS(rbind(fd, at, sizeof address), EADDRNOTAVAIL);
	address.sin_port = htons(7);
	FAILS(rconnect(fd, at, sizeof address), ENETUNREACH);

	int door = listener();
	uint16_t port = port_of(door);
	address = at_port(port);
	FAILS(rbind(fd, at, sizeof address), EADDRINUSE);
	FAILS(rbind(door, at, sizeof address), EINVAL);
	FAILS(rconnect(door, at, sizeof address), EINVAL);
	CHECK(rlisten(door, 3) == 0);
	CHECK(rconnect(fd, at, sizeof address) == 0);
	FAILS(rconnect(fd, at, sizeof address), EISCONN);
	FAILS(rlisten(fd, 1), EINVAL);
	FAILS(rbind(fd, at, sizeof address), EINVAL);
	FAILS(rsendto(fd, "x", 1, 0, at, sizeof address), EISCONN);
	int value = 20;
	FAILS(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, sizeof value), EINVAL);
	char control[64];
	struct iovec one = {&byte, 1};
	struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	FAILS(rsendmsg(fd, &message, 0), ENOTSUP);
	FAILS(rrecvmsg(fd, &message, 0), ENOTSUP);
	FAILS(rrecv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
	CHECK(rrecv(fd, &byte, 0, 0) == 0);
	/* A bound port that nobody listens at. */
	int bound = rsocket(AF_INET, SOCK_STREAM, 0);
	address = at_port(0);
	CHECK(rbind(bound, at, sizeof address) == 0);
	address = at_port(port_of(bound));
	int refused = rsocket(AF_INET, SOCK_STREAM, 0);
	FAILS(rconnect(refused, at, sizeof address), ECONNREFUSED);
	CHECK(rclose(door) == 0);
	of_six(port);
	return 0;
}
