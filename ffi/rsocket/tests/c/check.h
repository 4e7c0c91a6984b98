/* What the programs share: each prints what was not as it should be, and its line, and exits by 1. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

/* The call fails with that errno. */
#define FAILS(call, code) \
	do { \
		errno = 0; \
		long result_ = (long)(call); \
		if (result_ != -1 || errno != (code)) { \
			fprintf(stderr, "%s:%d: %s: %ld, errno %d, not %d\n", __FILE__, __LINE__, #call, result_, errno, (code)); \
			exit(1); \
		} \
	} while (0)

/* Where programs are: at the loopback, or where RINGWAY_TEST_OWN says, for devices that are at an address of their own. */
static inline in_addr_t own_address(void)
{
	const char *own = getenv("RINGWAY_TEST_OWN");
	return own ? inet_addr(own) : htonl(INADDR_LOOPBACK);
}

/* Whether a card carries what is sent, which nobody of this machine tells of other processes. (RINGWAY_TEST_CARD says which: `process` is the software ConnectX, which is in the process.) */
static inline int is_on_card(void)
{
	return getenv("RINGWAY_TEST_CARD") != NULL;
}

static inline struct sockaddr_in at_port(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	address.sin_addr.s_addr = own_address();
	return address;
}

static inline uint16_t port_of(int fd)
{
	struct sockaddr_in address;
	socklen_t len = sizeof address;
	CHECK(rgetsockname(fd, (struct sockaddr *)&address, &len) == 0 && len == sizeof address);
	return ntohs(address.sin_port);
}

/* A listener at a port of its own. */
static inline int listener(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	struct sockaddr_in address = at_port(0);
	CHECK(rbind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(rlisten(fd, 16) == 0);
	CHECK(port_of(fd) != 0);
	return fd;
}

static inline int connected(uint16_t port)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	struct sockaddr_in address = at_port(port);
	CHECK(rconnect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	return fd;
}

static inline double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static inline unsigned char byte_at(size_t at, unsigned seed)
{
	return (unsigned char)((at * 2654435761u + seed) >> 13);
}

static inline void send_pattern(int fd, size_t len, unsigned seed)
{
	unsigned char *bytes = malloc(len);
	for (size_t i = 0; i < len; i++)
		bytes[i] = byte_at(i, seed);
	for (size_t sent = 0; sent < len;) {
		ssize_t n = rsend(fd, bytes + sent, len - sent, 0);
		CHECK(n > 0);
		sent += n;
	}
	free(bytes);
}

static inline void recv_pattern(int fd, size_t len, unsigned seed)
{
	static _Thread_local unsigned char bytes[100000];
	for (size_t got = 0; got < len;) {
		size_t wanted = len - got < sizeof bytes ? len - got : sizeof bytes;
		ssize_t n = rrecv(fd, bytes, wanted, 0);
		CHECK(n > 0);
		for (ssize_t i = 0; i < n; i++)
			CHECK(bytes[i] == byte_at(got + i, seed));
		got += n;
	}
}

/* Starts a process that serves: it tells its port by the pipe, and exits by 0 if all was well. */
static inline pid_t serve(void (*server)(int told), uint16_t *port)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(ends[0]);
		server(ends[1]);
		exit(0);
	}
	close(ends[1]);
	CHECK(read(ends[0], port, sizeof *port) == sizeof *port);
	close(ends[0]);
	return child;
}

static inline void tell_port(int told, int fd)
{
	uint16_t port = port_of(fd);
	CHECK(write(told, &port, sizeof port) == sizeof port);
}

static inline void ends_well(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
