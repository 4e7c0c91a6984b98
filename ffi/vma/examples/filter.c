/*
 * A packet filter: a callback sees each datagram before it is queued, and decides whether the program is to receive it at all.
 *
 * What it drops costs no wake-up and no room in the socket's buffer. The callback runs in the program's own thread, inside recv.
 *
 *	filter PORT
 *
 * Try it:
 *	cc -o sender sender.c
 *	cc -o filter filter.c $(pkg-config --cflags libvma)
 *	ringway run -- ./filter 7202 &
 *	ringway run -- ./sender udp 7202 1000
 *	wait $!
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mellanox/vma_extra.h>

struct filter {
	long seen, dropped;
};

/* Lets only messages with an even number pass, and the last one. */
static vma_recv_callback_retval_t is_wanted(int fd, size_t sz_iov, struct iovec iov[], struct vma_info_t *info, void *context)
{
	struct filter *filter = context;
	char text[64];
	size_t len = 0;

	(void)fd, (void)info;
	/* A datagram may lie in several pieces. */
	for (size_t i = 0; i < sz_iov && len < sizeof text - 1; i++) {
		size_t part = iov[i].iov_len < sizeof text - 1 - len ? iov[i].iov_len : sizeof text - 1 - len;

		memcpy(text + len, iov[i].iov_base, part);
		len += part;
	}
	text[len] = 0;
	filter->seen++;
	if (strncmp(text, "message ", 8) != 0 || atoi(text + 8) % 2 == 0)
		return VMA_PACKET_RECV;
	filter->dropped++;
	return VMA_PACKET_DROP;
}

int main(int argc, char **argv)
{
	struct vma_api_t *vma = vma_get_api();
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	struct filter filter = {0, 0};
	long received = 0, odd = 0;
	char text[64] = "";

	if (argc != 2) {
		fprintf(stderr, "filter PORT\n");
		return 2;
	}
	if (vma == NULL || !(vma->vma_extra_supported_mask & VMA_EXTRA_API_REGISTER_RECV_CALLBACK)) {
		fprintf(stderr, "there is no library, or it has no receive callbacks\n");
		return 77;
	}
	here.sin_port = htons((uint16_t)atoi(argv[1]));
	if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0 || vma->register_recv_callback(fd, is_wanted, &filter) < 0) {
		perror("filter");
		return 1;
	}
	while (strcmp(text, "end") != 0) {
		ssize_t got = recv(fd, text, sizeof text - 1, 0);

		if (got < 0) {
			perror("recv");
			return 1;
		}
		text[got] = 0;
		received++;
		odd += strncmp(text, "message ", 8) == 0 && atoi(text + 8) % 2 == 1;
	}
	printf("%ld datagrams came, %ld were dropped, %ld received\n", filter.seen, filter.dropped, received);
	return odd == 0 && filter.dropped > 0 ? 0 : 1;
}
