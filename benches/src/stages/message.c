/*
 * Sends a small message, sleeps until the answer must have come, and receives it: so that neither call waits, and what the two cost
 * can be counted. "message server tcp|udp PORT" answers one client, "message client tcp|udp PORT COUNT" asks.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64, WARM_UP = 100 };

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

/* Answers one client's messages. */
static void serve(int fd, int is_stream, const struct sockaddr_in *address)
{
	struct sockaddr_in client;
	socklen_t len = sizeof client;
	char message[SIZE];

	check(bind(fd, (const struct sockaddr *)address, sizeof *address) == 0, "bind");
	if (is_stream) {
		check(listen(fd, 1) == 0, "listen");
		fd = accept(fd, NULL, NULL);
	} else {
		check(recvfrom(fd, message, SIZE, MSG_PEEK, (struct sockaddr *)&client, &len) == SIZE, "recvfrom");
		check(connect(fd, (struct sockaddr *)&client, len) == 0, "connect");
	}
	check(fd >= 0, "accept");
	while (recv(fd, message, SIZE, is_stream ? MSG_WAITALL : 0) == SIZE)
		check(send(fd, message, SIZE, 0) == SIZE, "send");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct timespec moment = { .tv_nsec = 2000000 };
	char message[SIZE] = { 0 };

	if (argc < 4)
		return 2;
	int one = 1, is_stream = strcmp(argv[2], "tcp") == 0;
	int fd = socket(AF_INET, is_stream ? SOCK_STREAM : SOCK_DGRAM, 0);
	address.sin_port = htons((unsigned short)atoi(argv[3]));
	check(!is_stream || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
	if (strcmp(argv[1], "server") == 0) {
		serve(fd, is_stream, &address);
		return 0;
	}
	check(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
	/* By other calls than those that are counted: where a port is, is found out by the first datagrams to it. */
	for (int left = WARM_UP; left > 0; left--) {
		check(write(fd, message, SIZE) == SIZE, "write");
		check(read(fd, message, SIZE) == SIZE, "read");
	}
	for (int left = argc > 4 ? atoi(argv[4]) : 1; left > 0; left--) {
		check(send(fd, message, SIZE, 0) == SIZE, "send");
		nanosleep(&moment, NULL);
		check(recv(fd, message, SIZE, 0) == SIZE, "recv");
	}
	return 0;
}
