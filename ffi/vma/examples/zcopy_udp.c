/*
 * Receives datagrams without copying them: recvfrom_zcopy lends each from where the device put it, and free_packets gives it back.
 *
 * Without the library it does the same by recvfrom, as it does for datagrams that come from outside of it.
 *
 *	zcopy_udp PORT
 *
 * Try it:
 *	cc -o sender sender.c
 *	cc -o zcopy_udp zcopy_udp.c $(pkg-config --cflags libvma)
 *	ringway run -- ./zcopy_udp 7201 &
 *	ringway run -- ./sender udp 7201 1000
 *	wait $!
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mellanox/vma_extra.h>

static long datagrams, bytes, copied;

/* One datagram, in as many pieces as the device made of it. Returns 0 at the end. */
static int use(const struct iovec *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		bytes += (long)pieces[i].iov_len;
	datagrams++;
	return !(count == 1 && pieces[0].iov_len == 3 && memcmp(pieces[0].iov_base, "end", 3) == 0);
}

int main(int argc, char **argv)
{
	struct vma_api_t *vma = vma_get_api();
	int fd = socket(AF_INET, SOCK_DGRAM, 0), goes_on = 1;
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};

	if (argc != 2) {
		fprintf(stderr, "zcopy_udp PORT\n");
		return 2;
	}
	here.sin_port = htons((uint16_t)atoi(argv[1]));
	if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0) {
		perror("bind");
		return 1;
	}
	while (goes_on) {
		/* Room for the description of a packet, or for a packet that has to be copied. */
		union {
			struct vma_packets_t packets;
			char data[2048];
		} buffer;
		struct sockaddr_in from;
		socklen_t from_len = sizeof from;
		int flags = 0, got;

		if (vma != NULL)
			got = vma->recvfrom_zcopy(fd, &buffer, sizeof buffer, &flags, (struct sockaddr *)&from, &from_len);
		else
			got = (int)recvfrom(fd, &buffer, sizeof buffer, 0, (struct sockaddr *)&from, &from_len);
		if (got < 0) {
			perror("receive");
			return 1;
		}
		if (flags & MSG_VMA_ZCOPY) {
			struct vma_packet_t *packet = buffer.packets.pkts;

			goes_on = use(packet->iov, packet->sz_iov);
			/* From now on the memory is the device's again. */
			if (vma->free_packets(fd, packet, 1) < 0)
				perror("free_packets");
		} else {
			struct iovec whole = {buffer.data, (size_t)got};

			copied++;
			goes_on = use(&whole, 1);
		}
	}
	printf("%ld datagrams, %ld bytes; %ld of them had to be copied\n", datagrams, bytes, copied);
	return 0;
}
