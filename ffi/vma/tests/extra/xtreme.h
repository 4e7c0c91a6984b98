/* What the programs of SocketXtreme share: one process that polls its rings, and speaks to itself. */
#include "check.h"

#include <sys/epoll.h>

/* How long anything may take. */
enum { PATIENCE_S = 20 };

static inline double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The ring that fd is on. */
static inline int ring_of(int fd)
{
	int ring = -1;

	CHECK(vma->get_socket_rings_num(fd) == 1);
	CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1 && ring >= 0);
	return ring;
}

/* The next completion of a ring. Exits where none comes. */
static inline struct vma_completion_t next_on(int ring)
{
	double until = now_s() + PATIENCE_S;
	struct vma_completion_t done;

	while (now_s() < until) {
		int n = vma->socketxtreme_poll(ring, &done, 1, 0);

		if (n == 1)
			return done;
		if (n < 0)
			break;
	}
	printf("no completion (errno %s)\n", strerrorname_np(errno));
	exit(1);
}

/* The next completion with one of these events; others are freed, and forgotten. */
static inline struct vma_completion_t next_with(int ring, uint64_t events)
{
	for (;;) {
		struct vma_completion_t done = next_on(ring);

		if (done.events & events)
			return done;
		if (done.events & VMA_SOCKETXTREME_PACKET)
			CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	}
}

/* Whether nothing happens on a ring for a while. */
static inline int is_quiet(int ring)
{
	struct vma_completion_t done;

	for (int i = 0; i < 20; i++) {
		if (vma->socketxtreme_poll(ring, &done, 1, 0) != 0)
			return 0;
		nap(1);
	}
	return 1;
}

/* Copies a packet out, and checks its list. */
static inline size_t copy_out(const struct vma_packet_desc_t *packet, char *to, size_t room)
{
	size_t bytes = 0, buffers = 0;

	for (struct vma_buff_t *b = packet->buff_lst; b != NULL; b = b->next, buffers++) {
		CHECK(bytes + b->len <= room);
		memcpy(to + bytes, b->payload, b->len);
		bytes += b->len;
	}
	CHECK(buffers == packet->num_bufs && bytes == packet->total_len);
	return bytes;
}

static inline void begin(void)
{
	vma = vma_get_api();
	if (vma == NULL) {
		printf("no table\n");
		exit(2);
	}
}
