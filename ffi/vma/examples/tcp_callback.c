/*
 * Zero copy on a TCP connection by a callback: it is called for each segment in order, keeps the segment where the device put it
 * (VMA_PACKET_HOLD), and the program works on it later and then gives it back. Until then, that much of the window stays shut.
 *
 *	tcp_callback PORT
 *
 * Try it:
 *	cc -o sender sender.c
 *	cc -o tcp_callback tcp_callback.c $(pkg-config --cflags libvma)
 *	ringway run -- ./tcp_callback 7203 &
 *	ringway run -- ./sender tcp 7203 10000
 *	wait $!
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <mellanox/vma_extra.h>

enum { HELD_MAX = 64, PIECES = 4 };

/* Segments that were held and not worked on yet. */
static struct held {
	void *packet_id;
	size_t pieces;
	struct iovec piece[PIECES];
} held[HELD_MAX];
static int waiting;
static long bytes, lines, segments;

static vma_recv_callback_retval_t keep(int fd, size_t sz_iov, struct iovec iov[], struct vma_info_t *info, void *context)
{
	struct held *next = &held[waiting];

	(void)fd, (void)context;
	/* What cannot be kept is received in the ordinary way. */
	if (waiting == HELD_MAX || sz_iov > PIECES)
		return VMA_PACKET_RECV;
	next->packet_id = info->packet_id;
	next->pieces = sz_iov;
	for (size_t i = 0; i < sz_iov; i++)
		next->piece[i] = iov[i];
	waiting++;
	return VMA_PACKET_HOLD;
}

static void use(const char *data, size_t len)
{
	bytes += (long)len;
	for (size_t i = 0; i < len; i++)
		lines += data[i] == '\n';
}

/* Works on what is held, and gives it back. */
static int work(struct vma_api_t *vma, int fd)
{
	for (int i = 0; i < waiting; i++) {
		struct vma_packet_t packet = {.packet_id = held[i].packet_id, .sz_iov = 0};

		for (size_t p = 0; p < held[i].pieces; p++)
			use(held[i].piece[p].iov_base, held[i].piece[p].iov_len);
		segments++;
		if (vma->free_packets(fd, &packet, 1) < 0)
			return -1;
	}
	waiting = 0;
	return 0;
}

int main(int argc, char **argv)
{
	struct vma_api_t *vma = vma_get_api();
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd, yes = 1;
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	char rest[4096];
	ssize_t got;

	if (argc != 2) {
		fprintf(stderr, "tcp_callback PORT\n");
		return 2;
	}
	if (vma == NULL || !(vma->vma_extra_supported_mask & VMA_EXTRA_API_REGISTER_RECV_CALLBACK)) {
		fprintf(stderr, "there is no library, or it has no receive callbacks\n");
		return 77;
	}
	here.sin_port = htons((uint16_t)atoi(argv[1]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(listener, (struct sockaddr *)&here, sizeof here) < 0 || listen(listener, 1) < 0 || (fd = accept(listener, NULL, NULL)) < 0 ||
	    vma->register_recv_callback(fd, keep, NULL) < 0) {
		perror("tcp_callback");
		return 1;
	}
	do {
		struct pollfd ready = {.fd = fd, .events = POLLIN};

		/* The callback runs in here, and in recv; what it held is worked on outside of both. */
		poll(&ready, 1, 1000);
		got = recv(fd, rest, sizeof rest, MSG_DONTWAIT);
		if (got > 0)
			use(rest, (size_t)got);
		if (work(vma, fd) < 0) {
			perror("free_packets");
			return 1;
		}
	} while (got != 0);
	printf("%ld bytes, %ld lines; %ld segments were held\n", bytes, lines, segments);
	return lines == 10000 && segments > 0 ? 0 : 1;
}
