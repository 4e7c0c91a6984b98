/* Speaks to an echo server at the port that it is told, by TCP and UDP. Prints what is wrong, and nothing else. */
#include "check.h"

static char bytes[50000], got[50000];

static void over(int type, int port)
{
	struct sockaddr_in where = reached(loopback(port));
	int fd = MUST(socket(AF_INET, type, 0));
	size_t sizes[] = {1, 100, 1400, 20000, 50000};
	struct timeval patience = {.tv_sec = 20};

	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	MUST(connect(fd, SA(where), sizeof where));
	for (int round = 0; round < 100; round++) {
		size_t n = sizes[round % 5];
		if (type == SOCK_DGRAM && n > (size_t)longest())
			continue;
		MUST(send(fd, bytes, n, 0));
		memset(got, 0, n);
		CHECK(recv(fd, got, n, MSG_WAITALL) == (ssize_t)n && memcmp(got, bytes, n) == 0);
		if (round % 20 == 0)
			nap(30);
	}
	if (type == SOCK_STREAM) {
		MUST(shutdown(fd, SHUT_WR));
		CHECK(recv(fd, got, 1, 0) == 0);
	}
	MUST(close(fd));
}

int main(int argc, char **argv)
{
	int port = argc > 1 ? atoi(argv[1]) : 0;

	vma = vma_get_api();
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 31 + i / 251);
	over(SOCK_STREAM, port);
	over(SOCK_DGRAM, port);
	over(SOCK_STREAM, port);
	return wrong;
}
