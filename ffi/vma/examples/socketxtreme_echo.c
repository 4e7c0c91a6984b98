/*
 * A server that sends back whatever it receives, over TCP and UDP, without a receive call, without accept, and without copying what it
 * received: by SocketXtreme.
 *
 * All sockets of a process share a ring by default. One call tells what happened on it, to any of them; while nothing does, the
 * server sleeps on the ring's descriptor.
 *
 *	VMA_SOCKETXTREME=1 socketxtreme_echo ADDRESS PORT [CONNECTIONS]
 *
 * It ends when so many connections have ended, if it is told how many.
 *
 * Try it:
 *	cc -o sender sender.c
 *	cc -o socketxtreme_echo socketxtreme_echo.c $(pkg-config --cflags libvma)
 *	VMA_SOCKETXTREME=1 ringway run -- ./socketxtreme_echo 127.0.0.1 7206 1 &
 *	ringway run -- ./sender tcp 7206 1000
 *	wait $!
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <mellanox/vma_extra.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int bound(int type, struct sockaddr_in *where)
{
	int fd = socket(AF_INET, type, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)where, sizeof *where) != 0)
		die("bind");
	return fd;
}

/* What arrived goes back from where it is: each buffer is a piece of it. */
static void answer(int fd, int is_datagram, struct vma_completion_t *done)
{
	struct iovec pieces[256];
	struct msghdr message = {.msg_iov = pieces};

	if (is_datagram) {
		message.msg_name = &done->src;
		message.msg_namelen = sizeof done->src;
	}
	for (struct vma_buff_t *b = done->packet.buff_lst; b != NULL && message.msg_iovlen < 256; b = b->next)
		pieces[message.msg_iovlen++] = (struct iovec){b->payload, b->len};
	if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
		perror("sendmsg");
}

int main(int argc, char **argv)
{
	struct vma_api_t *vma = vma_get_api();
	struct sockaddr_in where = {.sin_family = AF_INET};
	socklen_t len = sizeof where;
	int ring = -1;
	int connections = argc > 3 ? atoi(argv[3]) : 0;

	if (argc < 3 || argc > 4 || inet_pton(AF_INET, argv[1], &where.sin_addr) != 1) {
		fprintf(stderr, "usage: %s ADDRESS PORT [CONNECTIONS]\n", argv[0]);
		return 2;
	}
	if (vma == NULL) {
		fprintf(stderr, "libvma.so is not preloaded\n");
		return 1;
	}
	where.sin_port = htons((uint16_t)atoi(argv[2]));
	int tcp = bound(SOCK_STREAM, &where);
	if (getsockname(tcp, (struct sockaddr *)&where, &len) != 0 || listen(tcp, 128) != 0)
		die("listen");
	int udp = bound(SOCK_DGRAM, &where);
	if (vma->get_socket_rings_fds(tcp, &ring, 1) != 1) {
		fprintf(stderr, "the listener is not offloaded\n");
		return 1;
	}
	printf("echoing on %s port %d\n", argv[1], ntohs(where.sin_port));
	fflush(stdout);

	for (;;) {
		struct vma_completion_t done[32];
		int n = vma->socketxtreme_poll(ring, done, 32, 0);

		if (n < 0)
			die("socketxtreme_poll");
		for (int i = 0; i < n; i++) {
			int fd = (int)done[i].user_data; /* as nobody said otherwise (SO_VMA_USER_DATA) */

			if (done[i].events & VMA_SOCKETXTREME_PACKET) {
				answer(fd, fd == udp, &done[i]);
				vma->socketxtreme_free_vma_packets(&done[i].packet, 1);
			}
			/* A new connection needs nothing; one whose peer has ended is closed. */
			if (fd != udp && done[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
				close(fd);
				if (connections > 0 && --connections == 0)
					return 0;
			}
		}
		if (n == 0) {
			struct pollfd asleep = {.fd = ring, .events = POLLIN};
			poll(&asleep, 1, -1);
		}
	}
}
