/*
 * Whatever a program hands in: control messages, options, and names of packets that are wrong in every way. Each lies directly before a page
 * that nobody may touch, so that one byte read or written too many is the end of this program. Its argument is the seed, its second one what is
 * done: "zcopy", "xtreme" (with VMA_SOCKETXTREME=1), or "told", which prints what the kernel's own calls answer, to be compared with a run on
 * the kernel. But for that it prints what is wrong, and nothing else.
 */
#include "check.h"

#include <sys/mman.h>

static uint64_t state;

/* xorshift64*. */
static uint64_t any(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

static size_t below(size_t most)
{
	return (size_t)(any() % most);
}

/* The end of what may be touched, and how much there is before it. */
static unsigned char *edge;
enum { ROOM = 8192 };

static void make_edge(void)
{
	unsigned char *room = mmap(NULL, ROOM + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(room == MAP_FAILED ? -1 : 0);
	MUST(mprotect(room + ROOM, 4096, PROT_NONE));
	edge = room + ROOM;
}

/* Random bytes that end there. */
static unsigned char *at_edge(size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		edge[-1 - (ssize_t)i] = below(3) ? 0 : (unsigned char)any();
	return edge - bytes;
}

/* A length that is right, or a little wrong, or very. */
static size_t length(size_t right)
{
	static const size_t odd[] = {0, 1, 15, 16, 17, 1 << 20, (size_t)1 << 40, SIZE_MAX, SIZE_MAX - 6, SIZE_MAX / 2, INT32_MAX};

	switch (below(8)) {
	case 0:
		return odd[below(sizeof odd / sizeof *odd)];
	case 1:
		return right + below(9);
	case 2:
		return right > 4 ? right - 1 - below(4) : 0;
	default:
		return right;
	}
}

/* A room of control messages at the edge; its length. Where they lie is as random as what they say. */
static size_t control(unsigned char **room, const int *levels, const int *kinds, size_t count, int fd)
{
	unsigned char built[512] = {0};
	size_t used = 0;

	while (used < 300 && below(4) != 0) {
		size_t payload = below(3) ? 4 * below(8) : below(40), len = length(sizeof(struct cmsghdr) + payload);
		size_t pick = below(count);
		struct cmsghdr head = {.cmsg_len = len, .cmsg_level = levels[pick], .cmsg_type = kinds[pick]};

		memcpy(built + used, &head, sizeof head);
		used += sizeof head;
		for (size_t i = 0; i < payload; i++)
			built[used + i] = below(2) ? 0 : (unsigned char)any();
		/* (A descriptor of ours, perhaps.) */
		if (payload >= 4 && below(4) == 0)
			memcpy(built + used, &fd, sizeof fd);
		used = (used + payload + 7) & ~(size_t)7;
	}
	if (used > 0 && below(4) == 0)
		used -= below(used < 24 ? used : 24);
	*room = at_edge(used);
	memcpy(*room, built, used);
	return used;
}

/* ioctl: no allocator that is one, or the library would call it. */
static void to_the_library(void)
{
	static const int levels[] = {SOL_SOCKET, 0, SOL_SOCKET, SOL_SOCKET}, kinds[] = {CMSG_VMA_IOCTL_USER_ALLOC, CMSG_VMA_IOCTL_USER_ALLOC, 7, 2901};

	for (int i = 0; i < 20000; i++) {
		unsigned char *room;
		size_t len = control(&room, levels, kinds, 4, -1);
		/* Exactly that long is the only form that could be one. */
		for (size_t at = 0; at + 33 <= len; at++) {
			struct cmsghdr head;
			memcpy(&head, room + at, sizeof head);
			if (head.cmsg_len == 33)
				room[at + 16] &= (unsigned char)~VMA_IOCTL_USER_ALLOC_FLAG_RX;
		}
		errno = 0;
		int answer = vma->ioctl(len ? room : NULL, len);
		CHECK(answer == 0 || (answer == -1 && (errno == EINVAL || errno == EOPNOTSUPP)));
	}
	FAILS(vma->ioctl(edge - 1, SIZE_MAX), EINVAL);
	FAILS(vma->ioctl(edge - 1, (size_t)1 << 31), EINVAL);
}

static const struct option {
	int name;
	size_t lengths[3]; /* (none is zero) */
} OPTIONS[] = {
	{SO_VMA_USER_DATA, {8}},         {SO_VMA_RING_ALLOC_LOGIC, {sizeof(struct vma_ring_alloc_logic_attr)}},
	{SO_VMA_RING_USER_MEMORY, {16}}, {SO_VMA_FLOW_TAG, {4}},
	{SO_MAX_PACING_RATE, {sizeof(struct vma_rate_limit_t), sizeof(unsigned), sizeof(unsigned long)}},
};

/* A structure of another length is refused, and not looked at. */
static void options_of(int fd)
{
	for (size_t o = 0; o < sizeof OPTIONS / sizeof *OPTIONS; o++)
		for (socklen_t len = 0; len < 64; len++) {
			const size_t *lengths = OPTIONS[o].lengths;
			int is_right = len > 0 && (len == lengths[0] || len == lengths[1] || len == lengths[2]);

			if (!is_right)
				FAILS(setsockopt(fd, SOL_SOCKET, OPTIONS[o].name, at_edge(len), len), EINVAL);
			/* (A profile's memory would be written to.) */
			for (int i = 0; is_right && OPTIONS[o].name != SO_VMA_RING_USER_MEMORY && i < 50; i++)
				CHECK(setsockopt(fd, SOL_SOCKET, OPTIONS[o].name, at_edge(len), len) == 0 || errno == EINVAL || errno == EOPNOTSUPP);
		}
	for (int name = SO_VMA_GET_API - 3; name < SO_VMA_SHUTDOWN_RX; name++)
		for (socklen_t len = 0; len < 64; len++) {
			socklen_t room = len;
			unsigned char *value = at_edge(len), *before = value - 16;

			memset(before, 0x5a, 16);
			errno = 0;
			int answer = getsockopt(fd, SOL_SOCKET, name, value, &room);
			CHECK(answer == 0 ? room <= len : errno == EINVAL || errno == ENOPROTOOPT);
			for (int i = 0; i < 16; i++)
				CHECK(before[i] == 0x5a);
		}
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, NULL, 8), EFAULT);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, at_edge(20), (socklen_t)-20), EINVAL);
}

static void options(void)
{
	struct sockaddr_in where;
	int ends[2], fresh = MUST(socket(AF_INET, SOCK_STREAM, 0)), udp = datagram(&where), l = listener(&where);

	stream_pair(ends);
	options_of(fresh);
	options_of(udp);
	options_of(l);
	options_of(ends[0]);
	MUST(send(ends[0], "still", 5, 0));
	char got[8];
	CHECK(recv(ends[1], got, sizeof got, 0) == 5);
	MUST(close(fresh));
	MUST(close(udp));
	MUST(close(l));
	MUST(close(ends[0]));
	MUST(close(ends[1]));
}

/* What is received never says more than its room has. */
static void told_of_datagrams(void)
{
	struct sockaddr_in where;
	int fd = datagram(&where), one = 1, all = 0x5f;
	char byte;

	MUST(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof one));
	MUST(setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &one, sizeof one));
	MUST(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one));
	(void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &all, sizeof all);
	for (size_t room = 0; room < 300; room++) {
		struct iovec iov = {&byte, 1};
		unsigned char *at = at_edge(room), *before = at - 16;
		struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = at, .msg_controllen = room};

		memset(before, 0x5a, 16);
		MUST(sendto(fd, "x", 1, 0, SA(where), sizeof where));
		CHECK(recvmsg(fd, &message, 0) == 1 && byte == 'x' && message.msg_controllen <= room);
		CHECK(room >= sizeof(struct cmsghdr) || message.msg_flags & MSG_CTRUNC);
		CHECK(room < 256 || !(message.msg_flags & MSG_CTRUNC));
		for (int i = 0; i < 16; i++)
			CHECK(before[i] == 0x5a);
	}
	MUST(close(fd));
}

/* Messages to a peer, with control messages that the kernel would look at. */
static void to_a_peer(int tells)
{
	static const int levels[] = {SOL_SOCKET, SOL_SOCKET, SOL_SOCKET, 20000, SOL_SOCKET},
			 kinds[] = {SCM_RIGHTS, SCM_CREDENTIALS, 2900, 1, SCM_RIGHTS};
	int ends[2], sent[200] = {0};

	for (int i = 0; i < 3000; i++) {
		if (i % 100 == 0) {
			/* (Under a number that is the same in every run: it may come to be taken for something else.) */
			stream_pair(ends);
			MUST(dup2(ends[0], 200));
			MUST(close(ends[0]));
			ends[0] = 200;
		}
		unsigned char *room;
		size_t len = control(&room, levels, kinds, 5, below(2) ? ends[0] : 2);
		struct iovec iov = {"m", 1};
		struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = len ? room : NULL, .msg_controllen = len};
		char got = 0;

		errno = 0;
		ssize_t answer = sendmsg(ends[0], &message, 0);
		if (tells && answer != 1)
			printf("%d: %zd %s\n", i, answer, strerrorname_np(errno));
		else if (!tells)
			CHECK(answer == 1 || errno == EINVAL);
		sent[answer == 1 ? 0 : errno % 200]++;
		if (answer == 1)
			CHECK(recv(ends[1], &got, 1, 0) == 1 && got == 'm');
		if (i % 100 == 99) {
			MUST(close(ends[0]));
			MUST(close(ends[1]));
		}
	}
	/* (Or it would prove nothing.) */
	CHECK(sent[0] > 500 && sent[EINVAL] > 500);
}

/* A name of no packet. */
static void *forged(void *real)
{
	switch (below(4)) {
	case 0:
		return (void *)any();
	case 1:
		return (char *)real + 1 + below(64);
	case 2:
		return (void *)((uintptr_t)real ^ (uintptr_t)1 << below(64));
	default:
		return edge - below(64);
	}
}

static void forged_packets(void)
{
	struct sockaddr_in where;
	int fd = datagram(&where);

	for (int i = 0; i < 5000; i++) {
		char room[64];
		struct vma_packets_t *lent = (struct vma_packets_t *)room;
		int flags = 0;

		MUST(sendto(fd, "abc", 3, 0, SA(where), sizeof where));
		CHECK(vma->recvfrom_zcopy(fd, room, sizeof room, &flags, NULL, NULL) == 3 && flags == MSG_VMA_ZCOPY);
		struct vma_packet_t real = lent->pkts[0], bad = {.packet_id = forged(real.packet_id), .sz_iov = length(1)};
		unsigned char *entries = edge - sizeof bad;

		memcpy(entries, &bad, sizeof bad);
		FAILS(vma->free_packets(fd, (struct vma_packet_t *)entries, 1), ENOENT);
		/* One that nobody could walk over: what is behind it is not looked for. */
		bad.sz_iov = SIZE_MAX / 16 - below(1 << 20);
		memcpy(entries, &bad, sizeof bad);
		FAILS(vma->free_packets(fd, (struct vma_packet_t *)entries, 2), ENOENT);
		CHECK(memcmp(lent->pkts[0].iov[0].iov_base, "abc", 3) == 0);
		real.sz_iov = 0;
		memcpy(entries, &real, sizeof real);
		CHECK(vma->free_packets(fd, (struct vma_packet_t *)entries, 1) == 0);
		FAILS(vma->free_packets(fd, (struct vma_packet_t *)entries, 1), ENOENT);
	}
	MUST(close(fd));
}

static void forged_buffers(void)
{
	struct sockaddr_in where;
	int fd = datagram(&where), ring = -1;

	CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1);
	for (int i = 0; i < 5000; i++) {
		struct vma_completion_t done;
		int got = 0;

		MUST(sendto(fd, "abc", 3, 0, SA(where), sizeof where));
		for (int tries = 0; tries < 2000 && got == 0; tries++)
			got = vma->socketxtreme_poll(ring, &done, 1, 0);
		CHECK(got == 1 && done.events & VMA_SOCKETXTREME_PACKET && done.packet.total_len == 3);
		struct vma_packet_desc_t bad = done.packet;
		struct vma_buff_t *buff = done.packet.buff_lst;

		bad.buff_lst = forged(buff);
		if (below(8) == 0)
			bad.buff_lst = NULL;
		if (bad.buff_lst == buff)
			continue;
		memcpy(edge - sizeof bad, &bad, sizeof bad);
		FAILS(vma->socketxtreme_free_vma_packets((struct vma_packet_desc_t *)(edge - sizeof bad), 1), EINVAL);
		FAILS(vma->socketxtreme_ref_vma_buff(bad.buff_lst), EINVAL);
		FAILS(vma->socketxtreme_free_vma_buff(bad.buff_lst), EINVAL);
		/* What else a descriptor says is not believed either. */
		bad = done.packet;
		bad.num_bufs = (size_t)any();
		bad.total_len = (uint16_t)any();
		CHECK(buff->len == 3 && memcmp(buff->payload, "abc", 3) == 0);
		if (below(2)) {
			/* What a program writes into the list is its own affair. */
			buff->next = (struct vma_buff_t *)any();
			buff->payload = (void *)any();
			buff->len = (uint16_t)any();
		}
		CHECK(vma->socketxtreme_ref_vma_buff(buff) == 2 && vma->socketxtreme_free_vma_buff(buff) == 1);
		CHECK(vma->socketxtreme_free_vma_packets(&bad, 1) == 0);
		FAILS(vma->socketxtreme_free_vma_packets(&bad, 1), EINVAL);
		FAILS(vma->socketxtreme_free_vma_buff(buff), EINVAL);
	}
	MUST(close(fd));
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	state = strtoull(argv[1], NULL, 0) * 2 + 1;
	make_edge();
	if (strcmp(argv[2], "told") == 0) {
		to_a_peer(1);
		return wrong;
	}
	vma = vma_get_api();
	if (vma == NULL) {
		printf("no table\n");
		return 2;
	}
	to_the_library();
	options();
	told_of_datagrams();
	to_a_peer(0);
	if (strcmp(argv[2], "xtreme") == 0)
		forged_buffers();
	else
		forged_packets();
	return wrong;
}
