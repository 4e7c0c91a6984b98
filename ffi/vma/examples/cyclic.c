/*
 * A market-data reader on a cyclic buffer: the device writes one datagram behind the other into a ring of equal strides, and the program
 * reads hundreds of them at a time as an array, without a call for each.
 *
 *	cyclic PORT
 *
 * Try it:
 *	cc -o sender sender.c
 *	cc -o cyclic cyclic.c $(pkg-config --cflags libvma)
 *	ringway run -- ./cyclic 7204 &
 *	ringway run -- ./sender udp 7204 5000
 *	wait $!
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mellanox/vma_extra.h>

/* The longest message of the feed; the library makes a stride of it. */
enum { MESSAGE = 64, PACKETS = 4096 };

int main(int argc, char **argv)
{
	struct vma_api_t *vma = vma_get_api();
	int fd = socket(AF_INET, SOCK_DGRAM, 0), ring, ended = 0;
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	/* Without the network's headers; the feed has none of its own. */
	struct vma_ring_type_attr profile = {
		.ring_type = VMA_RING_CYCLIC_BUFFER,
		.ring_cyclicb = {.num = PACKETS, .stride_bytes = MESSAGE, .packet_receive_mode = STRIP_NETWORK_HDRS}};
	struct vma_ring_alloc_logic_attr logic = {
		.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY | VMA_RING_ALLOC_MASK_RING_INGRESS,
		.ring_alloc_logic = RING_LOGIC_PER_SOCKET,
		.ingress = 1};
	vma_ring_profile_key key;
	long messages = 0, reads = 0, last = -1, gaps = 0;

	if (argc != 2) {
		fprintf(stderr, "cyclic PORT\n");
		return 2;
	}
	if (vma == NULL || !(vma->vma_extra_supported_mask & VMA_EXTRA_API_CYCLIC_BUFFER_READ)) {
		fprintf(stderr, "there is no library, or it has no cyclic buffers\n");
		return 77;
	}
	here.sin_port = htons((uint16_t)atoi(argv[1]));
	if (vma->vma_add_ring_profile(&profile, &key) < 0) {
		perror("vma_add_ring_profile");
		return 1;
	}
	logic.ring_profile_key = (uint32_t)key;
	/* The socket's ring is made when it is bound. */
	if (setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) < 0 ||
	    bind(fd, (struct sockaddr *)&here, sizeof here) < 0 || vma->get_socket_rings_fds(fd, &ring, 1) != 1) {
		perror("cyclic");
		return 1;
	}
	while (!ended) {
		struct vma_completion_cb_t done = {.packets = 0};

		/* Up to 512 at a time; what was returned stays as it is until the next call. */
		if (vma->vma_cyclic_buffer_read(ring, &done, 1, 512, MSG_DONTWAIT) < 0) {
			perror("vma_cyclic_buffer_read");
			return 1;
		}
		if (done.packets == 0)
			continue;
		size_t stride = done.payload_length / done.packets;

		reads++;
		for (size_t i = 0; i < done.packets && !ended; i++) {
			const char *message = (const char *)done.payload_ptr + i * stride;

			ended = memcmp(message, "end", 3) == 0;
			if (memcmp(message, "message ", 8) == 0) {
				long number = atol(message + 8);

				gaps += number != last + 1;
				last = number;
				messages++;
			}
		}
	}
	printf("%ld messages in %ld reads, %ld gaps\n", messages, reads, gaps);
	return messages > 0 ? 0 : 1;
}
