/* Processes that end, or become another program, while others have copies of what they had: their peers hear of it at once. */
#include "check.h"

#include <spawn.h>

/* (On a machine with much to do, whoever tells may wait for a processor.) */
#define SOON_S 5

static int accepted_one(int told)
{
	int door = listener();
	tell_port(told, door);
	int fd = raccept(door, NULL, NULL);
	CHECK(fd >= 0 && rsend(fd, "a", 1, 0) == 1);
	return fd;
}

static int met(uint16_t port)
{
	char byte;
	int fd = connected(port);
	CHECK(rrecv(fd, &byte, 1, 0) == 1 && byte == 'a');
	return fd;
}

/* The end of a peer's process is a reset. */
static void hears(int fd)
{
	char byte;
	double began = seconds();
	FAILS(rrecv(fd, &byte, 1, 0), ECONNRESET);
	CHECK(seconds() - began < SOON_S);
	CHECK(rclose(fd) == 0);
}

/* By a pipe, the process says which child it has. */
static int child_told[2];

static void server_with_child(int told)
{
	accepted_one(told);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child)
		CHECK(write(child_told[1], &child, sizeof child) == sizeof child);
	for (;;)
		pause();
}

/* A process is killed whose child lives on, with all of its descriptors. */
static void killed_with_a_child(void)
{
	uint16_t port;
	pid_t server = serve(server_with_child, &port), child;
	int fd = met(port);
	CHECK(read(child_told[0], &child, sizeof child) == sizeof child);
	CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
	hears(fd);
	CHECK(kill(child, SIGKILL) == 0);
}

static void server_that_becomes_another(int told)
{
	int fd = accepted_one(told);
	char byte;
	/* (What was sent right before may not have left.) */
	CHECK(rrecv(fd, &byte, 1, 0) == 1);
	execlp("sleep", "sleep", "30", NULL);
	exit(1);
}

static void becomes_another_program(void)
{
	uint16_t port;
	pid_t server = serve(server_that_becomes_another, &port);
	int fd = met(port);
	CHECK(rsend(fd, "b", 1, 0) == 1);
	hears(fd);
	CHECK(waitpid(server, NULL, WNOHANG) == 0);
	CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
}

static void server_that_waits(int told)
{
	accepted_one(told);
	for (;;)
		pause();
}

/* Whose peer is killed has a child, which has nothing of the connection. The other child executes a program, and the connection goes on. */
static void peer_killed_with_a_child_here(void)
{
	uint16_t port;
	pid_t server = serve(server_that_waits, &port);
	int fd = met(port);
	int ends[2];
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;
		FAILS(rrecv(fd, &byte, 1, 0), EBADF);
		close(ends[1]);
		CHECK(read(ends[0], &byte, 1) == 0);
		FAILS(rsend(fd, &byte, 1, 0), EBADF);
		_exit(0);
	}
	CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
	hears(fd);
	CHECK(close(ends[1]) == 0);
	ends_well(child);
}

static void server_that_echoes(int told)
{
	int fd = accepted_one(told);
	char byte;
	while (rrecv(fd, &byte, 1, 0) == 1)
		CHECK(rsend(fd, &byte, 1, 0) == 1);
	CHECK(rclose(fd) == 0);
}

static void children_that_become_another_program(void)
{
	uint16_t port;
	pid_t server = serve(server_that_echoes, &port), child;
	int fd = met(port);
	char *const argv[] = {"true", NULL};
	for (int i = 0; i < 3; i++) {
		char byte;
		extern char **environ;
		CHECK(posix_spawnp(&child, "true", NULL, NULL, argv, environ) == 0);
		ends_well(child);
		child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			execvp("true", argv);
			_exit(1);
		}
		ends_well(child);
		CHECK(rsend(fd, "e", 1, 0) == 1 && rrecv(fd, &byte, 1, 0) == 1 && byte == 'e');
	}
	CHECK(rclose(fd) == 0);
	ends_well(server);
}

int main(void)
{
	CHECK(pipe(child_told) == 0);
	killed_with_a_child();
	becomes_another_program();
	peer_killed_with_a_child_here();
	children_that_become_another_program();
	return 0;
}
