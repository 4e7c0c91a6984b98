/*
 * Sends a small message, sleeps until the answer must have come, and receives it: so that neither call waits, and what the two cost
 * can be counted. "message server PORT" answers one client, "message client PORT COUNT" asks.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64 };

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct timespec moment = { .tv_nsec = 2000000 };
	int one = 1, stream = socket(AF_INET, SOCK_STREAM, 0);
	char message[SIZE] = { 0 };

	if (argc < 3)
		return 2;
	address.sin_port = htons((unsigned short)atoi(argv[2]));
	check(setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
	if (strcmp(argv[1], "server") == 0) {
		int listener = stream;
		check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0, "listen");
		stream = accept(listener, NULL, NULL);
		check(stream >= 0, "accept");
		while (recv(stream, message, SIZE, MSG_WAITALL) == SIZE)
			check(send(stream, message, SIZE, 0) == SIZE, "send");
		return 0;
	}
	check(connect(stream, (struct sockaddr *)&address, sizeof address) == 0, "connect");
	for (int left = argc > 3 ? atoi(argv[3]) : 1; left > 0; left--) {
		check(send(stream, message, SIZE, 0) == SIZE, "send");
		nanosleep(&moment, NULL);
		check(recv(stream, message, SIZE, 0) == SIZE, "recv");
	}
	return 0;
}
