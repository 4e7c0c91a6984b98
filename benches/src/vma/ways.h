/*
 * The ways in which a program receives datagrams: each asks once, does with each packet what a program would at least do (reads its number),
 * gives it back, and says how many there were.
 */
#ifndef WAYS_H
#define WAYS_H

#include "common.h"

#include <mellanox/vma_extra.h>

static struct vma_api_t *vma;
/* The ring of a SocketXtreme's or cyclic receiver. */
static int ring = -1;

/* What was received: how many, the numbers of the first and of the last. */
static uint64_t received, first_number, last_number;
/* What comes by the kernel is taken as well. */
static int warms_up;

static inline void look_at(const void *payload)
{
	memcpy(&last_number, payload, sizeof last_number);
	if (received++ == 0)
		first_number = last_number;
}

static int by_recvfrom(int fd)
{
	char bytes[SIZE];

	if (recvfrom(fd, bytes, SIZE, MSG_DONTWAIT, NULL, NULL) < 0)
		return 0;
	look_at(bytes);
	return 1;
}

static int by_recvmmsg(int fd)
{
	static char bytes[BATCH][SIZE];
	static struct iovec iov[BATCH];
	static struct mmsghdr messages[BATCH];
	int got;

	if (messages[0].msg_hdr.msg_iov == NULL)
		for (int i = 0; i < BATCH; i++) {
			iov[i] = (struct iovec){bytes[i], SIZE};
			messages[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
		}
	got = recvmmsg(fd, messages, BATCH, MSG_DONTWAIT, NULL);
	for (int i = 0; i < got; i++)
		look_at(bytes[i]);
	return got > 0 ? got : 0;
}

static int by_zcopy(int fd)
{
	char buffer[sizeof(struct vma_packets_t) + sizeof(struct vma_packet_t) + 2 * sizeof(struct iovec)];
	int flags = MSG_DONTWAIT;

	if (vma->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, NULL, NULL) < 0)
		return 0;
	if (!(flags & MSG_VMA_ZCOPY)) {
		look_at(buffer);
		return 1;
	}
	struct vma_packets_t *packets = (struct vma_packets_t *)buffer;
	look_at(packets->pkts[0].iov[0].iov_base);
	vma->free_packets(fd, packets->pkts, packets->n_packet_num);
	return 1;
}

static int by_xtreme(int fd)
{
	struct vma_completion_t done[BATCH];
	struct vma_packet_desc_t packets[BATCH];
	int count = vma->socketxtreme_poll(ring, done, BATCH, 0), kept = 0;

	(void)fd;
	for (int i = 0; i < count; i++)
		if (done[i].events & VMA_SOCKETXTREME_PACKET) {
			look_at(done[i].packet.buff_lst->payload);
			packets[kept++] = done[i].packet;
		}
	if (kept > 0)
		check(vma->socketxtreme_free_vma_packets(packets, kept) == 0, "socketxtreme_free_vma_packets");
	return kept;
}

static int by_cyclic(int fd)
{
	struct vma_completion_cb_t done = {.packets = 0};

	(void)fd;
	if (vma->vma_cyclic_buffer_read(ring, &done, 1, BATCH, MSG_DONTWAIT) != 0)
		return 0;
	for (size_t i = 0; i < done.packets; i++)
		look_at((const char *)done.payload_ptr + i * SIZE);
	return (int)done.packets;
}

/* A callback that has done with the packet. */
static vma_recv_callback_retval_t takes_it(int fd, size_t count, struct iovec iov[], struct vma_info_t *info, void *context)
{
	(void)fd, (void)count, (void)info, (void)context;
	look_at(iov[0].iov_base);
	return VMA_PACKET_DROP;
}

static int by_callback(int fd)
{
	uint64_t before = received;
	char bytes[SIZE];
	ssize_t got = recvfrom(fd, bytes, SIZE, MSG_DONTWAIT, NULL, NULL);

	check(got < 0 ? errno == EAGAIN : warms_up, "the callback drops everything");
	return (int)(received - before);
}

/* A callback that leaves the packet to the call. */
static vma_recv_callback_retval_t lets_it_through(int fd, size_t count, struct iovec iov[], struct vma_info_t *info, void *context)
{
	(void)fd, (void)count, (void)iov, (void)info, (void)context;
	return VMA_PACKET_RECV;
}

static int by_recvfrom_behind_a_callback(int fd)
{
	return by_recvfrom(fd);
}

struct way {
	const char *name;
	int (*take)(int fd);
};

static const struct way WAYS[] = {
	{"recvfrom", by_recvfrom}, {"recvmmsg", by_recvmmsg}, {"zcopy", by_zcopy}, {"xtreme", by_xtreme}, {"cyclic", by_cyclic},
	{"callback", by_callback}, {"behind", by_recvfrom_behind_a_callback},
};

static struct way way_of(const char *name)
{
	for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
		if (strcmp(WAYS[i].name, name) == 0)
			return WAYS[i];
	fprintf(stderr, "%s is no way to receive\n", name);
	exit(2);
}

/* A ring whose records are the packets' payload, one behind the other. */
static void use_cyclic_ring(int fd)
{
	struct vma_ring_type_attr profile = {
		.ring_type = VMA_RING_CYCLIC_BUFFER,
		.ring_cyclicb = {.num = 4096, .stride_bytes = SIZE, .packet_receive_mode = STRIP_NETWORK_HDRS},
	};
	struct vma_ring_alloc_logic_attr logic = {
		.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY | VMA_RING_ALLOC_MASK_RING_USER_ID | VMA_RING_ALLOC_MASK_RING_INGRESS,
		.ring_alloc_logic = RING_LOGIC_PER_USER_ID,
		.user_id = 1,
		.ingress = 1,
	};
	vma_ring_profile_key key;

	check(vma->vma_add_ring_profile(&profile, &key) == 0, "vma_add_ring_profile");
	logic.ring_profile_key = (uint32_t)key;
	check(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) == 0, "SO_VMA_RING_ALLOC_LOGIC");
}

/* A bound socket that receives in this way. */
static int open_for(const struct way *way, const char *port)
{
	struct sockaddr_in address = loopback(port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0), room = 1 << 20;

	vma = vma_get_api();
	check(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room) == 0, "SO_RCVBUF");
	if (way->take == by_cyclic)
		use_cyclic_ring(fd);
	if (way->take == by_callback)
		check(vma->register_recv_callback(fd, takes_it, NULL) == 0, "register_recv_callback");
	if (way->take == by_recvfrom_behind_a_callback)
		check(vma->register_recv_callback(fd, lets_it_through, NULL) == 0, "register_recv_callback");
	check(bind(fd, (struct sockaddr *)&address, sizeof address) == 0, "bind");
	if (way->take == by_xtreme || way->take == by_cyclic)
		check(vma->get_socket_rings_fds(fd, &ring, 1) == 1, "get_socket_rings_fds");
	return fd;
}

#endif
