/* One end of a wire: `peer server CASE ADDRESS PORT`, and once that says that it is ready, `peer client CASE ADDRESS PORT` with the same. */
#include "../c/check.h"

#define LEN 3000000

static struct sockaddr_storage address;
static socklen_t address_len;

static void ready(void)
{
	CHECK(write(1, "ready\n", 6) == 6);
}

static int made(int type)
{
	int fd = rsocket(address.ss_family, type, 0);
	CHECK(fd >= 0);
	return fd;
}

static int door(void)
{
	int fd = made(SOCK_STREAM);
	CHECK(rbind(fd, (struct sockaddr *)&address, address_len) == 0 && rlisten(fd, 8) == 0);
	ready();
	return fd;
}

static int accepted(int listener)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	int fd = raccept(listener, (struct sockaddr *)&peer, &len);
	CHECK(fd >= 0 && peer.ss_family == address.ss_family && len == address_len);
	return fd;
}

static int connected_with(int fd)
{
	CHECK(rconnect(fd, (struct sockaddr *)&address, address_len) == 0);
	return fd;
}

/* Whoever waits hears of it in this time. */
static void ends(int fd, int code, double within)
{
	char byte;
	double began = seconds();
	FAILS(rrecv(fd, &byte, 1, 0), code);
	CHECK(seconds() - began < within);
}

/* Bytes both ways, all at once and one by one; then the end. */
static void streams(int is_server)
{
	int fd = is_server ? accepted(door()) : connected_with(made(SOCK_STREAM));
	struct sockaddr_storage name;
	socklen_t len = sizeof name;
	CHECK(rgetsockname(fd, (struct sockaddr *)&name, &len) == 0 && name.ss_family == address.ss_family);
	if (is_server) {
		recv_pattern(fd, LEN, 1);
		send_pattern(fd, LEN, 2);
	} else {
		send_pattern(fd, LEN, 1);
		recv_pattern(fd, LEN, 2);
	}
	char byte = 'a';
	for (int turn = 0; turn < 500; turn++) {
		if (is_server || turn > 0)
			CHECK(rrecv(fd, &byte, 1, 0) == 1);
		CHECK(rsend(fd, &byte, 1, 0) == 1);
	}
	if (!is_server)
		CHECK(rrecv(fd, &byte, 1, 0) == 1);
	if (is_server) {
		CHECK(rrecv(fd, &byte, 1, 0) == 0);
	} else {
		/* Nobody listens at the next port. */
		((struct sockaddr_in *)&address)->sin_port ^= htons(1);
		FAILS(rconnect(made(SOCK_STREAM), (struct sockaddr *)&address, address_len), ECONNREFUSED);
	}
	CHECK(rclose(fd) == 0);
}

/* What else is waited for, what is not waited for, and whose the descriptor is. */
static void calls(int is_server)
{
	char byte = 0;
	if (is_server) {
		int fd = accepted(door());
		while (rrecv(fd, &byte, 1, 0) == 1)
			CHECK(rsend(fd, &byte, 1, 0) == 1);
		return;
	}
	int fd = connected_with(made(SOCK_STREAM)), ends[2];
	CHECK(pipe(ends) == 0);
	FAILS(rrecv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
	FAILS(send(fd, &byte, 1, 0), ENOTSOCK);
	struct pollfd both[2] = {{.fd = fd, .events = POLLIN}, {.fd = ends[0], .events = POLLIN}};
	CHECK(rpoll(both, 2, 50) == 0);
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(rpoll(both, 2, -1) == 1 && both[0].revents == 0 && both[1].revents == POLLIN);
	CHECK(read(ends[0], &byte, 1) == 1 && rsend(fd, &byte, 1, 0) == 1);
	CHECK(rpoll(both, 2, -1) == 1 && both[0].revents == POLLIN && both[1].revents == 0);
	fd_set readable;
	FD_ZERO(&readable);
	FD_SET(fd, &readable);
	FD_SET(ends[0], &readable);
	CHECK(rselect((fd > ends[0] ? fd : ends[0]) + 1, &readable, NULL, NULL, NULL) == 1);
	CHECK(FD_ISSET(fd, &readable) && !FD_ISSET(ends[0], &readable));
	CHECK(rrecv(fd, &byte, 1, 0) == 1 && byte == 'x');
	pid_t child = fork();
	if (child == 0) {
		FAILS(rsend(fd, "y", 1, 0), EBADF);
		/* It has rsockets of its own on the same interface, and finds nobody at the next port. */
		((struct sockaddr_in *)&address)->sin_port ^= htons(1);
		FAILS(rconnect(made(SOCK_STREAM), (struct sockaddr *)&address, address_len), ECONNREFUSED);
		_exit(0);
	}
	ends_well(child);
	CHECK(rsend(fd, "z", 1, 0) == 1 && rrecv(fd, &byte, 1, 0) == 1 && byte == 'z');
	CHECK(rclose(fd) == 0);
}

/* Memory that the peer writes to. */
static void direct(int is_server)
{
	static unsigned char memory[100000];
	char byte = 'x';
	if (is_server) {
		int fd = accepted(door());
		CHECK(riomap(fd, memory, sizeof memory, PROT_WRITE, 0, 5000) == 5000);
		CHECK(rsend(fd, &byte, 1, 0) == 1 && rrecv(fd, &byte, 1, 0) == 1);
		for (size_t i = 0; i < sizeof memory; i++)
			CHECK(memory[i] == byte_at(i, 9));
		CHECK(riounmap(fd, memory, sizeof memory) == 0);
		CHECK(rsend(fd, &byte, 1, 0) == 1);
		memset(memory, 0, sizeof memory);
		/* What the peer writes now goes nowhere, and ends the connection. */
		ends(fd, ECONNRESET, 10);
		for (size_t i = 0; i < sizeof memory; i++)
			CHECK(memory[i] == 0);
		return;
	}
	int entries = 1, fd = made(SOCK_STREAM);
	CHECK(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0);
	connected_with(fd);
	CHECK(rrecv(fd, &byte, 1, 0) == 1);
	for (size_t i = 0; i < sizeof memory; i++)
		memory[i] = byte_at(i, 9);
	CHECK(riowrite(fd, memory, sizeof memory, 5000, 0) == sizeof memory);
	CHECK(rsend(fd, &byte, 1, 0) == 1 && rrecv(fd, &byte, 1, 0) == 1);
	CHECK(riowrite(fd, memory, 100, 5000, 0) == 100);
	ends(fd, ECONNRESET, 10);
}

/* Datagrams of several lengths, sent back; until one of nothing comes. */
static void datagrams(int is_server)
{
	static unsigned char bytes[2048], back[2048];
	int fd = made(SOCK_DGRAM);
	if (is_server) {
		CHECK(rbind(fd, (struct sockaddr *)&address, address_len) == 0);
		ready();
		for (;;) {
			struct sockaddr_storage from;
			socklen_t len = sizeof from;
			ssize_t n = rrecvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);
			CHECK(n >= 0 && len == address_len);
			if (n == 0)
				break;
			CHECK(rsendto(fd, bytes, n, 0, (struct sockaddr *)&from, len) == n);
		}
		CHECK(rclose(fd) == 0);
		return;
	}
	for (size_t len = 1; len < 960; len += 7) {
		for (size_t i = 0; i < len; i++)
			bytes[i] = byte_at(i, len);
		struct pollfd one = {.fd = fd, .events = POLLIN};
		/* (A datagram may be lost.) */
		int tries = 0;
		do {
			CHECK(tries++ < 10);
			CHECK(rsendto(fd, bytes, len, 0, (struct sockaddr *)&address, address_len) == (ssize_t)len);
		} while (rpoll(&one, 1, 1000) == 0);
		CHECK(rrecv(fd, back, sizeof back, 0) == (ssize_t)len);
		CHECK(memcmp(bytes, back, len) == 0);
	}
	for (int i = 0; i < 3; i++) {
		CHECK(rsendto(fd, bytes, 0, 0, (struct sockaddr *)&address, address_len) == 0);
		usleep(1000);
	}
	CHECK(rclose(fd) == 0);
}

/* The server is killed while the client waits: it hears of it, and what had come before is there. */
static void killed(int is_server)
{
	if (is_server) {
		int listener = door();
		int silent = accepted(listener), talks = accepted(listener);
		CHECK(silent >= 0);
		send_pattern(talks, 50000, 1);
		for (;;)
			pause();
	}
	int silent = connected_with(made(SOCK_STREAM)), talks = connected_with(made(SOCK_STREAM));
	struct pollfd one = {.fd = talks, .events = POLLIN};
	CHECK(rpoll(&one, 1, 10000) == 1);
	usleep(200000);
	ready();
	ends(silent, ETIMEDOUT, 20);
	char byte = 0;
	FAILS(rsend(silent, &byte, 1, 0), ETIMEDOUT);
	recv_pattern(talks, 50000, 1);
	ends(talks, ETIMEDOUT, 20);
	/* Whoever comes now is told that nobody is there. */
	double began = seconds();
	errno = 0;
	CHECK(rconnect(made(SOCK_STREAM), (struct sockaddr *)&address, address_len) == -1);
	CHECK(errno == ETIMEDOUT || errno == ECONNREFUSED);
	CHECK(seconds() - began < 5);
}

/* The link goes down while the client waits. */
static void down(int is_server)
{
	if (is_server) {
		int fd = accepted(door());
		ends(fd, ENETDOWN, 20);
		return;
	}
	int fd = connected_with(made(SOCK_STREAM));
	char byte = 0;
	ready();
	ends(fd, ENETDOWN, 20);
	FAILS(rsend(fd, &byte, 1, 0), ENETDOWN);
	errno = 0;
	CHECK(rconnect(made(SOCK_STREAM), (struct sockaddr *)&address, address_len) == -1);
	CHECK(errno == EHOSTUNREACH);
}

/* A port that another process on the interface has. */
static void taken(int is_server)
{
	if (is_server) {
		int listener = door();
		CHECK(listener >= 0);
		pause();
	}
	int fd = made(SOCK_STREAM);
	FAILS(rbind(fd, (struct sockaddr *)&address, address_len), EADDRINUSE);
	((struct sockaddr_in *)&address)->sin_port ^= htons(1);
	CHECK(rbind(fd, (struct sockaddr *)&address, address_len) == 0 && rlisten(fd, 1) == 0);
}

/* An interface that another process has alone: an error, and one line. */
static void refused(int is_server)
{
	CHECK(!is_server);
	FAILS(rsocket(address.ss_family, SOCK_STREAM, 0), ENODEV);
	FAILS(rsocket(address.ss_family, SOCK_STREAM, 0), ENODEV);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(int is_server);
	} cases[] = {{"streams", streams}, {"calls", calls}, {"direct", direct}, {"datagrams", datagrams}, {"killed", killed}, {"down", down}, {"taken", taken}, {"refused", refused}};
	CHECK(argc == 5);
	struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
	if (inet_pton(AF_INET, argv[3], &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		address_len = sizeof *v4;
	} else {
		memset(v6, 0, sizeof *v6);
		CHECK(inet_pton(AF_INET6, argv[3], &v6->sin6_addr) == 1);
		v6->sin6_family = AF_INET6;
		address_len = sizeof *v6;
	}
	/* (Both have it at the same place.) */
	v4->sin_port = htons(atoi(argv[4]));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (strcmp(argv[2], cases[i].name) == 0) {
			cases[i].run(strcmp(argv[1], "server") == 0);
			return 0;
		}
	CHECK(!"no such case");
	return 1;
}
