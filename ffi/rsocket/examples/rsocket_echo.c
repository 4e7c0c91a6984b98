/*
 * rsockets: a server that sends back what it gets, and a client that sends it a million bytes and checks what comes back.
 *
 * The calls are those of sockets with an r before them. Programs that were written for librdmacm's are compiled as this one is.
 *
 *	rsocket_echo PORT
 *	rsocket_echo PORT ADDRESS
 *
 * Try it:
 *	cc -o rsocket_echo rsocket_echo.c $(pkg-config --cflags --libs librsocket)
 *	export LD_LIBRARY_PATH=$(pkg-config --variable=libdir librsocket)
 *	./rsocket_echo 7201 &
 *	./rsocket_echo 7201 127.0.0.1
 *	wait $!
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/rsocket.h>

#define LEN 1000000

static char sent[LEN], came[LEN];

static int serve(struct sockaddr_in at)
{
	int door = rsocket(AF_INET, SOCK_STREAM, 0), fd;

	if (door < 0 || rbind(door, (struct sockaddr *)&at, sizeof at) != 0 || rlisten(door, 1) != 0) {
		perror("listen");
		return 1;
	}
	fd = raccept(door, NULL, NULL);
	for (ssize_t got; (got = rrecv(fd, came, sizeof came, 0)) > 0;)
		for (ssize_t done = 0, now; done < got; done += now) {
			now = rsend(fd, came + done, (size_t)(got - done), 0);
			if (now < 0) {
				perror("send");
				return 1;
			}
		}
	return rclose(fd) != 0 || rclose(door) != 0;
}

static int ask(struct sockaddr_in at)
{
	struct timespec pause = {.tv_nsec = 10000000};
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), tries = 0;

	/* (The server may have just been started.) */
	while (rconnect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
		if (++tries == 500) {
			perror("connect");
			return 1;
		}
		rclose(fd);
		nanosleep(&pause, NULL);
		fd = rsocket(AF_INET, SOCK_STREAM, 0);
	}
	for (int i = 0; i < LEN; i++)
		sent[i] = (char)(i * 7 + i / 1000);
	/* No more than the buffers hold at a time: a server that sends does not receive. */
	for (int done = 0; done < LEN; done += 10000)
		if (rsend(fd, sent + done, 10000, 0) != 10000 || rrecv(fd, came + done, 10000, MSG_WAITALL) != 10000) {
			perror("send or receive");
			return 1;
		}
	rclose(fd);
	if (memcmp(sent, came, LEN) != 0) {
		fprintf(stderr, "other bytes came back\n");
		return 1;
	}
	printf("%d bytes came back\n", LEN);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};

	if (argc < 2 || argc > 3 || (argc == 3 && inet_pton(AF_INET, argv[2], &at.sin_addr) != 1)) {
		fprintf(stderr, "rsocket_echo PORT [ADDRESS]\n");
		return 2;
	}
	at.sin_port = htons((uint16_t)atoi(argv[1]));
	return argc == 2 ? serve(at) : ask(at);
}
