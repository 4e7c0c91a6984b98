/* Threads: both ends in one process, several that wait for one rsocket, and a child of a process that has some. */
#include "check.h"
#include <pthread.h>

#define CLIENTS 4
#define LEN 300000

static int door;

static void *accepts(void *unused)
{
	for (int i = 0; i < CLIENTS; i++) {
		int fd = raccept(door, NULL, NULL);
		CHECK(fd >= 0);
		recv_pattern(fd, LEN, 1);
		send_pattern(fd, LEN, 2);
		CHECK(rclose(fd) == 0);
	}
	return unused;
}

static void *connects(void *port)
{
	int fd = connected((uint16_t)(uintptr_t)port);
	send_pattern(fd, LEN, 1);
	recv_pattern(fd, LEN, 2);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 0);
	CHECK(rclose(fd) == 0);
	return NULL;
}

static int pair[2];

/* Waits for the same rsocket as others; all of them are woken. */
static void *waits(void *unused)
{
	struct pollfd one = {.fd = pair[0], .events = POLLIN};
	CHECK(rpoll(&one, 1, 20000) == 1 && (one.revents & POLLIN));
	return unused;
}

int main(void)
{
	door = listener();
	uint16_t port = port_of(door);
	pthread_t server, clients[CLIENTS];
	CHECK(pthread_create(&server, NULL, accepts, NULL) == 0);
	for (int i = 0; i < CLIENTS; i++)
		CHECK(pthread_create(&clients[i], NULL, connects, (void *)(uintptr_t)port) == 0);
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(clients[i], NULL);
	pthread_join(server, NULL);

	/* One thread alone connects to itself: it is accepted before the other end asks. */
	pair[0] = connected(port);
	pair[1] = raccept(door, NULL, NULL);
	CHECK(pair[1] >= 0);
	pthread_t waiting[3];
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&waiting[i], NULL, waits, NULL) == 0);
	usleep(100000);
	CHECK(rsend(pair[1], "x", 1, 0) == 1);
	for (int i = 0; i < 3; i++)
		pthread_join(waiting[i], NULL);

	/* A child has none of them, and its own are new; its parent's go on. */
	pid_t child = fork();
	if (child == 0) {
		FAILS(rsend(pair[1], "y", 1, 0), EBADF);
		int fd = connected(port);
		send_pattern(fd, 1000, 5);
		CHECK(rclose(fd) == 0);
		exit(0);
	}
	int fd = raccept(door, NULL, NULL);
	recv_pattern(fd, 1000, 5);
	ends_well(child);
	char byte;
	CHECK(rrecv(fd, &byte, 1, 0) == 0);
	CHECK(rrecv(pair[0], &byte, 1, 0) == 1 && byte == 'x');
	CHECK(rsend(pair[0], "z", 1, 0) == 1 && rrecv(pair[1], &byte, 1, 0) == 1 && byte == 'z');
	/* All of it is still open: exit closes it. */
	return 0;
}
