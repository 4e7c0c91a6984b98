/* Cyclic rings: packets as records of one length, one behind the other. Prints what is wrong, and nothing else. */
#include "check.h"

#include <net/if.h>
#include <sys/epoll.h>
#include <sys/mman.h>

enum { NET = 14 + 20 + 8, PATIENCE_MS = 20000 };

static int profile_key(vma_cb_packet_rec_mode mode, uint32_t num, uint16_t bytes, uint16_t header)
{
	struct vma_ring_type_attr attr = {
		.ring_type = VMA_RING_CYCLIC_BUFFER,
		.ring_cyclicb = {.comp_mask = header ? VMA_CB_HDR_BYTE : 0,
				 .num = num,
				 .stride_bytes = bytes,
				 .hdr_bytes = header,
				 .packet_receive_mode = mode},
	};
	vma_ring_profile_key key = -1;

	return vma->vma_add_ring_profile(&attr, &key) == 0 ? key : -1;
}

static int name_profile(int fd, int key, uint32_t user)
{
	struct vma_ring_alloc_logic_attr attr = {
		.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY | VMA_RING_ALLOC_MASK_RING_USER_ID | VMA_RING_ALLOC_MASK_RING_INGRESS,
		.ring_alloc_logic = RING_LOGIC_PER_USER_ID,
		.ring_profile_key = (uint32_t)key,
		.user_id = user,
		.ingress = 1,
	};

	return setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr);
}

/* A socket on a ring of its own, and the ring's descriptor. */
static int receiver(int key, int *ring, struct sockaddr_in *where)
{
	static uint32_t user;
	int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	socklen_t len = sizeof *where;

	CHECK(name_profile(fd, key, ++user) == 0);
	*where = loopback(0);
	MUST(bind(fd, SA(*where), sizeof *where));
	MUST(getsockname(fd, SA(*where), &len));
	*ring = -1;
	CHECK(vma->get_socket_rings_fds(fd, ring, 1) == 1 && *ring >= 0);
	return fd;
}

static void fill(unsigned char *out, int number, size_t len)
{
	for (size_t i = 0; i < len; i++)
		out[i] = (unsigned char)(number * 31 + (int)i);
}

static void say(int from, const struct sockaddr_in *to, int number, size_t len)
{
	unsigned char bytes[2048];

	fill(bytes, number, len);
	CHECK(sendto(from, bytes, len, 0, (const struct sockaddr *)to, sizeof *to) == (ssize_t)len);
}

static int is_said(const void *at, int number, size_t from, size_t to)
{
	unsigned char bytes[2048];

	fill(bytes, number, to);
	return memcmp(at, bytes + from, to - from) == 0;
}

/* The next run: waits for one, if there must be one. */
static struct vma_completion_cb_t next_run(int ring, size_t min, size_t max)
{
	struct vma_completion_cb_t run = {.packets = 99};

	for (int ms = 0; ms < PATIENCE_MS; ms++) {
		int result = vma->vma_cyclic_buffer_read(ring, &run, min, max, MSG_DONTWAIT);

		CHECK(result == 0);
		if (result < 0 || run.packets > 0)
			break;
		nap(1);
	}
	return run;
}

static int is_within(int ring, const void *at, size_t len)
{
	void *base = NULL;
	size_t all = 0;
	uint32_t lkey = 9;

	CHECK(vma->get_mem_info(ring, &base, &all, &lkey) == 0 && lkey == 0);
	return (char *)at >= (char *)base && (char *)at + len <= (char *)base + all;
}

static void profiles(void)
{
	struct vma_ring_type_attr attr = {.ring_type = VMA_RING_PACKET};
	vma_ring_profile_key key;
	uint64_t bits = VMA_EXTRA_API_CYCLIC_BUFFER_READ | VMA_EXTRA_API_ADD_RING_PROFILE | VMA_EXTRA_API_GET_MEM_INFO;

	CHECK((vma->vma_extra_supported_mask & bits) == bits);
	FAILS(vma->vma_add_ring_profile(NULL, &key), EINVAL);
	FAILS(vma->vma_add_ring_profile(&attr, NULL), EINVAL);
	CHECK(vma->vma_add_ring_profile(&attr, &key) == 0 && key >= 1);
	attr.ring_type = (vma_ring_type)3;
	FAILS(vma->vma_add_ring_profile(&attr, &key), EINVAL);
	int one = profile_key(RAW_PACKET, 16, 100, 0), two = profile_key(RAW_PACKET, 32, 100, 0);
	CHECK(one > key && two > one);
	CHECK(profile_key(RAW_PACKET, 16, 100, 0) == one);
	CHECK(profile_key(RAW_PACKET, 16, 100, 4) == -1 && errno == EINVAL);
	CHECK(profile_key(STRIP_NETWORK_HDRS, 0, 100, 4) == -1 && profile_key(STRIP_NETWORK_HDRS, 16, 0, 4) == -1);
	CHECK(profile_key((vma_cb_packet_rec_mode)4, 16, 100, 0) == -1);
}

static void bad_calls(void)
{
	struct sockaddr_in where;
	struct vma_completion_cb_t run;
	void *base;
	size_t len;
	uint32_t lkey;
	int ring, fd = receiver(profile_key(STRIP_NETWORK_HDRS, 16, 100, 0), &ring, &where), other = datagram(&where), its = -1;

	FAILS(vma->vma_cyclic_buffer_read(ring, NULL, 1, 1, MSG_DONTWAIT), EINVAL);
	FAILS(vma->vma_cyclic_buffer_read(ring, &run, 2, 1, MSG_DONTWAIT), EINVAL);
	FAILS(vma->vma_cyclic_buffer_read(ring, &run, 0, 0, MSG_DONTWAIT), EINVAL);
	FAILS(vma->vma_cyclic_buffer_read(ring, &run, 1, 1, 0), EINVAL);
	FAILS(vma->vma_cyclic_buffer_read(ring, &run, 1, 1, MSG_DONTWAIT | MSG_PEEK), EINVAL);
	CHECK(vma->get_socket_rings_fds(other, &its, 1) == 1 && its != ring);
	int not_rings[] = {its, fd, other, -1, 100000, STDOUT_FILENO};
	for (size_t i = 0; i < sizeof not_rings / sizeof *not_rings; i++) {
		FAILS(vma->vma_cyclic_buffer_read(not_rings[i], &run, 1, 1, MSG_DONTWAIT), EBADFD);
		FAILS(vma->get_mem_info(not_rings[i], &base, &len, &lkey), EINVAL);
	}
	FAILS(vma->get_mem_info(ring, NULL, &len, &lkey), EINVAL);
	FAILS(vma->get_mem_info(ring, &base, NULL, &lkey), EINVAL);
	FAILS(vma->get_mem_info(ring, &base, &len, NULL), EINVAL);
	MUST(close(fd));
	FAILS(vma->vma_cyclic_buffer_read(ring, &run, 1, 1, MSG_DONTWAIT), EBADFD);
	MUST(close(other));
}

/* Each mode, with packets that have and have not a header of the program's. */
static void modes(void)
{
	static const struct {
		vma_cb_packet_rec_mode mode;
		uint16_t payload, header;
		size_t record, net, apart;
	} all[] = {
		{RAW_PACKET, 100, 0, NET + 100, NET, 0},
		{RAW_PACKET, 1400, 0, NET + 1400, NET, 0},
		{STRIP_NETWORK_HDRS, 100, 0, 100, 0, 0},
		{STRIP_NETWORK_HDRS, 92, 8, 92, 0, 8},
		{SEPERATE_NETWORK_HDRS, 100, 0, 100, 0, NET},
		{SEPERATE_NETWORK_HDRS, 1000, 16, 1000, 0, NET + 16},
		{PADDED_PACKET, 100, 0, 256, NET, 0},
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct sockaddr_in where, mine;
		int ring, fd = receiver(profile_key(all[i].mode, 64, all[i].payload, all[i].header), &ring, &where), from = datagram(&mine);
		size_t len = (size_t)all[i].payload + all[i].header, user = all[i].header, record = all[i].record, apart = all[i].apart;
		struct timespec before, after;

		MUST(clock_gettime(CLOCK_REALTIME, &before));
		for (int number = 0; number < 10; number++)
			say(from, &where, number, len);
		for (int number = 0; number < 10; number += 5) {
			struct vma_completion_cb_t run = next_run(ring, 5, 5);
			const char *at = run.payload_ptr, *headers = run.usr_hdr_ptr;

			CHECK(run.packets == 5 && run.payload_length == 5 * record && run.usr_hdr_ptr_length == 5 * apart);
			CHECK(is_within(ring, at, run.payload_length) && (headers != NULL) == (apart != 0));
			if (run.packets != 5)
				return;
			for (int packet = 0; packet < 5; packet++, at += record, headers += apart) {
				const char *network = all[i].net ? at : headers;

				CHECK(is_said(at + all[i].net, number + packet, user, len));
				if (user)
					CHECK(is_said(headers + apart - user, number + packet, 0, user));
				if (all[i].net || apart > user) {
					/* Ethernet's type, IP's protocol, UDP's ports and length. */
					uint16_t udp[4];
					memcpy(udp, network + NET - 8, sizeof udp);
					CHECK(network[12] == 8 && network[13] == 0 && network[23] == IPPROTO_UDP);
					CHECK(memcmp(network + 30, &where.sin_addr, 4) == 0 && udp[0] == mine.sin_port);
					CHECK(udp[1] == where.sin_port && ntohs(udp[2]) == len + 8);
				}
			}
			/* The next call may say when the first came. */
			CHECK(apart == 0 || is_within(ring, run.usr_hdr_ptr, run.usr_hdr_ptr_length));
		}
		say(from, &where, 1, len);
		struct vma_completion_cb_t run = {.comp_mask = VMA_CB_MASK_TIMESTAMP};
		for (int ms = 0; ms < PATIENCE_MS && run.packets == 0; ms++, nap(1))
			CHECK(vma->vma_cyclic_buffer_read(ring, &run, 1, 8, MSG_DONTWAIT) == 0);
		MUST(clock_gettime(CLOCK_REALTIME, &after));
		CHECK(run.packets == 1 && run.hw_timestamp.tv_sec >= before.tv_sec && run.hw_timestamp.tv_sec <= after.tv_sec);
		MUST(close(fd));
		MUST(close(from));
	}
}

/* Runs are as long as was asked for, but at the end; what was given out stays until the next call; then it goes on at the beginning. */
static void laps(void)
{
	enum { RECORDS = 8, PACKETS = 100 };
	struct sockaddr_in where, mine;
	int ring, fd = receiver(profile_key(STRIP_NETWORK_HDRS, RECORDS, 64, 0), &ring, &where), from = datagram(&mine);
	struct vma_completion_cb_t run = {0}, none = {.packets = 7};
	void *base;
	size_t bytes;
	uint32_t lkey;
	int said = 0, heard = 0, rewinds = 0;

	CHECK(vma->vma_cyclic_buffer_read(ring, &none, 1, 3, MSG_DONTWAIT) == 0 && none.packets == 0);
	MUST(vma->get_mem_info(ring, &base, &bytes, &lkey));
	CHECK(bytes == RECORDS * 64);
	while (heard < PACKETS && !wrong) {
		for (; said < PACKETS && said < heard + 20; said++)
			say(from, &where, said, 64);
		run = next_run(ring, 3, 5);
		size_t first = (size_t)((char *)run.payload_ptr - (char *)base) / 64;
		CHECK(first == (size_t)heard % RECORDS && run.packets <= 5);
		CHECK(run.packets >= 3 || first + run.packets == RECORDS || heard + 3 > PACKETS);
		/* More arrives; the run stays as it is. */
		for (; said < PACKETS && said < heard + 40; said++)
			say(from, &where, said, 64);
		nap(1);
		for (size_t i = 0; i < run.packets; i++)
			CHECK(is_said((char *)run.payload_ptr + i * 64, heard + (int)i, 0, 64));
		heard += (int)run.packets;
		rewinds += first + run.packets == RECORDS;
		if (heard + 3 > PACKETS && heard < PACKETS) {
			run = next_run(ring, 1, 5);
			heard += (int)run.packets;
		}
	}
	CHECK(heard == PACKETS && rewinds == PACKETS / RECORDS);
	/* Too few, for now. */
	say(from, &where, 1, 64);
	nap(5);
	CHECK(vma->vma_cyclic_buffer_read(ring, &none, 2, 3, MSG_DONTWAIT) == 0 && none.packets == 0);
	say(from, &where, 2, 64);
	run = next_run(ring, 2, 3);
	CHECK(run.packets == 2 && is_said(run.payload_ptr, 1, 0, 64));
	MUST(close(fd));
	MUST(close(from));
}

static void users_memory(void)
{
	enum { RECORDS = 4 };
	int key = profile_key(STRIP_NETWORK_HDRS, RECORDS, 64, 0), fd = MUST(socket(AF_INET, SOCK_DGRAM, 0)), ring = -1;
	char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec iov = {memory, RECORDS * 64 - 1};
	struct sockaddr_in where, mine;
	socklen_t len = sizeof where;

	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &iov, sizeof iov - 1), EINVAL);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, NULL, sizeof iov), EFAULT);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &iov, sizeof iov) == 0);
	FAILS(name_profile(fd, key, 9000), EINVAL);
	iov.iov_len++;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &iov, sizeof iov) == 0);
	CHECK(name_profile(fd, key, 9000) == 0);
	iov.iov_len--;
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &iov, sizeof iov), EINVAL);
	where = loopback(0);
	MUST(bind(fd, SA(where), sizeof where));
	MUST(getsockname(fd, SA(where), &len));
	CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1);
	int from = datagram(&mine);
	for (int number = 0; number < 3; number++)
		say(from, &where, number, 64);
	struct vma_completion_cb_t run = next_run(ring, 3, 3);
	CHECK(run.payload_ptr == memory && run.packets == 3 && is_said(memory + 64, 1, 0, 64));
	MUST(close(fd));
	CHECK(is_said(memory + 128, 2, 0, 64));
	MUST(munmap(memory, 4096));
	MUST(close(from));
}

/* Sockets that name memory of their own have rings of their own, whatever else they share; and when one is closed, nobody writes to its memory. */
static void users_memories(void)
{
	enum { RECORDS = 4 };
	int key = profile_key(STRIP_NETWORK_HDRS, RECORDS, 64, 0), fds[2], rings[2], from;
	char *memory[2];
	struct sockaddr_in where[2], mine;

	for (int i = 0; i < 2; i++) {
		memory[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct iovec iov = {memory[i], 4096};
		socklen_t len = sizeof *where;

		fds[i] = MUST(socket(AF_INET, SOCK_DGRAM, 0));
		MUST(setsockopt(fds[i], SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &iov, sizeof iov));
		CHECK(name_profile(fds[i], key, 9100) == 0);
		where[i] = loopback(0);
		MUST(bind(fds[i], SA(where[i]), sizeof *where));
		MUST(getsockname(fds[i], SA(where[i]), &len));
		CHECK(vma->get_socket_rings_fds(fds[i], &rings[i], 1) == 1);
	}
	CHECK(rings[0] != rings[1]);
	from = datagram(&mine);
	for (int i = 0; i < 2; i++) {
		say(from, &where[i], i, 64);
		struct vma_completion_cb_t run = next_run(rings[i], 1, 1);
		CHECK(run.packets == 1 && run.payload_ptr == memory[i] && is_said(memory[i], i, 0, 64));
	}
	MUST(close(fds[0]));
	MUST(munmap(memory[0], 4096));
	for (int number = 2; number < 20; number++) {
		say(from, &where[1], number, 64);
		struct vma_completion_cb_t run = next_run(rings[1], 1, 1);
		CHECK(run.packets == 1 && is_said(run.payload_ptr, number, 0, 64));
	}
	MUST(close(fds[1]));
	MUST(munmap(memory[1], 4096));
	MUST(close(from));
}

/* Who asks for the ring that a socket is on already finds everything where it was. */
static void asked_again(void)
{
	int key = profile_key(STRIP_NETWORK_HDRS, 4, 64, 0), fd = MUST(socket(AF_INET, SOCK_DGRAM, 0)), ring, same;
	struct sockaddr_in where = loopback(0), mine;
	struct vma_ring_alloc_logic_attr attr = {
		.comp_mask = VMA_RING_ALLOC_MASK_RING_USER_ID | VMA_RING_ALLOC_MASK_RING_INGRESS,
		.ring_alloc_logic = RING_LOGIC_PER_USER_ID,
		.user_id = 9200,
		.ingress = 1,
	};
	socklen_t len = sizeof where;
	void *base[2];
	size_t bytes;
	uint32_t lkey;

	CHECK(name_profile(fd, key, 9200) == 0);
	MUST(bind(fd, SA(where), sizeof where));
	MUST(getsockname(fd, SA(where), &len));
	CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1);
	int from = datagram(&mine);
	say(from, &where, 1, 64);
	struct vma_completion_cb_t run = next_run(ring, 1, 1);
	MUST(vma->get_mem_info(ring, &base[0], &bytes, &lkey));
	MUST(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr));
	CHECK(vma->get_socket_rings_fds(fd, &same, 1) == 1 && same == ring);
	MUST(vma->get_mem_info(ring, &base[1], &bytes, &lkey));
	CHECK(base[0] == base[1] && run.packets == 1 && is_said(run.payload_ptr, 1, 0, 64));
	say(from, &where, 2, 64);
	struct vma_completion_cb_t next = next_run(ring, 1, 1);
	CHECK((char *)next.payload_ptr == (char *)run.payload_ptr + 64 && is_said(next.payload_ptr, 2, 0, 64));
	MUST(close(fd));
	MUST(close(from));
}

/* As many packets may wait as the ring has room for, whatever SO_RCVBUF says. */
static void room(void)
{
	enum { RECORDS = 4000 };
	struct sockaddr_in where, mine;
	int ring, fd = receiver(profile_key(STRIP_NETWORK_HDRS, RECORDS, 64, 0), &ring, &where), from = datagram(&mine), small = 4096;
	struct vma_completion_cb_t run = {0};
	int heard = 0;

	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
	CHECK(vma->vma_cyclic_buffer_read(ring, &run, 1, 1000, MSG_DONTWAIT) == 0 && run.packets == 0);
	for (int number = 0; number < RECORDS; number++) {
		struct pollfd look = {.fd = from, .events = POLLIN};

		say(from, &where, number, 64);
		/* (So that they are taken off the queue between the two, and wait at the socket.) */
		for (int turn = 0; turn < 10 && number % 64 == 63; turn++)
			CHECK(poll(&look, 1, 0) == 0);
	}
	for (int ms = 0; ms < PATIENCE_MS && !wrong && heard < RECORDS; ms++) {
		run.packets = 0;
		CHECK(vma->vma_cyclic_buffer_read(ring, &run, 1, 1000, MSG_DONTWAIT) == 0);
		for (size_t i = 0; i < run.packets; i++)
			CHECK(is_said((char *)run.payload_ptr + i * 64, heard + (int)i, 0, 64));
		heard += (int)run.packets;
		if (run.packets == 0)
			nap(1);
	}
	CHECK(heard == RECORDS);
	MUST(close(fd));
	MUST(close(from));
}

/* Who reads one packet at a time loses none of those that the queue between the two holds, though there are more of them than its socket has room
 * for: twice VMA_RX_BYTES_MIN, which is less than 150 times 1400. (Nobody else takes them: the reader's process is stopped
 * while they are sent, and then the progress thread takes few, by its parameters.) */
static void one_by_one(void)
{
	enum { RECORDS = 32, FIRST = 20, PACKETS = 150, BYTES = 1400 };
	struct sockaddr_in where, mine;
	int ring, fd = receiver(profile_key(STRIP_NETWORK_HDRS, RECORDS, BYTES, 0), &ring, &where), small = 4096, to[2], status;
	char byte = 0;

	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
	MUST(pipe(to));
	pid_t child = MUST(fork());
	if (child == 0) {
		int from = datagram(&mine);
		for (int number = 0; number < FIRST + PACKETS; number++) {
			/* (By now they go by the queue.) */
			if (number == FIRST)
				MUST(kill(getppid(), SIGSTOP));
			say(from, &where, number, BYTES);
			if (number < FIRST)
				nap(5);
		}
		MUST(kill(getppid(), SIGCONT));
		MUST(read(to[0], &byte, 1));
		_exit(wrong);
	}
	for (int number = 0; number < FIRST + PACKETS && !wrong; number++) {
		struct vma_completion_cb_t run = next_run(ring, 1, 1);
		CHECK(run.packets == 1 && is_said(run.payload_ptr, number, 0, BYTES));
	}
	MUST(write(to[1], "x", 1));
	MUST(waitpid(child, &status, 0));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(close(fd));
	MUST(close(to[0]));
	MUST(close(to[1]));
}

/* A receive callback sees each packet before it becomes a record. */
static vma_recv_callback_retval_t every_other(int fd, size_t n, struct iovec iov[], struct vma_info_t *info, void *context)
{
	(void)fd, (void)n, (void)info, (void)iov;
	return ++*(int *)context % 2 ? VMA_PACKET_RECV : VMA_PACKET_DROP;
}

static void filtered(void)
{
	struct sockaddr_in where, mine;
	int ring, fd = receiver(profile_key(STRIP_NETWORK_HDRS, 16, 64, 0), &ring, &where), from = datagram(&mine), seen = 0;

	CHECK(vma->register_recv_callback(fd, every_other, &seen) == 0);
	for (int number = 0; number < 10; number++)
		say(from, &where, number, 64);
	for (int number = 0; number < 10 && !wrong; number += 2) {
		struct vma_completion_cb_t run = next_run(ring, 1, 1);
		CHECK(run.packets == 1 && is_said(run.payload_ptr, number, 0, 64));
	}
	for (int ms = 0; ms < PATIENCE_MS && seen < 10; ms++, nap(1)) {
		struct vma_completion_cb_t run = {0};
		CHECK(vma->vma_cyclic_buffer_read(ring, &run, 1, 1, MSG_DONTWAIT) == 0 && run.packets == 0);
	}
	CHECK(seen == 10);
	MUST(close(fd));
	MUST(close(from));
}

/* Under SocketXtreme: reading the records of a ring leaves what is to be told of others on it. */
static void beside_completions(void)
{
	struct sockaddr_in where, server = loopback(0);
	socklen_t len = sizeof server;
	int key = profile_key(STRIP_NETWORK_HDRS, 16, 64, 0), fd = datagram(&where), ring = -1, same = -2;
	int l = MUST(socket(AF_INET, SOCK_STREAM, 0)), client = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	struct vma_completion_cb_t run = {0};
	struct vma_completion_t done = {0};

	CHECK(name_profile(fd, key, 9300) == 0 && name_profile(client, key, 9300) == 0);
	MUST(bind(l, SA(server), sizeof server));
	MUST(listen(l, 4));
	MUST(getsockname(l, SA(server), &len));
	CHECK(connect(client, SA(server), sizeof server) == -1 && errno == EINPROGRESS);
	struct pollfd p = {.fd = client, .events = POLLOUT};
	CHECK(poll(&p, 1, PATIENCE_MS) == 1);
	CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1 && vma->get_socket_rings_fds(client, &same, 1) == 1 && ring == same);
	CHECK(vma->vma_cyclic_buffer_read(ring, &run, 1, 1, MSG_DONTWAIT) == 0 && run.packets == 0);
	CHECK(vma->socketxtreme_poll(ring, &done, 1, 0) == 1 && done.events == EPOLLOUT && done.user_data == (uint64_t)client);
	MUST(close(client));
	MUST(close(l));
	MUST(close(fd));
}

/* A packet that no record holds is told of once; those around it are there. */
static void oversized(void)
{
	struct sockaddr_in where, mine;
	int ring, fd = receiver(profile_key(STRIP_NETWORK_HDRS, 8, 64, 0), &ring, &where), from = datagram(&mine), refused = 0;
	struct vma_completion_cb_t run = {0};
	size_t heard = 0;

	say(from, &where, 1, 64);
	say(from, &where, 2, 65);
	say(from, &where, 3, 64);
	for (int ms = 0; ms < PATIENCE_MS && heard < 2; ms++, nap(1)) {
		run.packets = 0;
		if (vma->vma_cyclic_buffer_read(ring, &run, 1, 1, MSG_DONTWAIT) == 0)
			heard += run.packets;
		else
			refused += errno == EMSGSIZE;
	}
	CHECK(refused == 1 && heard == 2 && is_said(run.payload_ptr, 3, 0, 64));
	MUST(close(fd));
	MUST(close(from));
}

/* Two sockets on one ring, which can be slept on. */
static void shared_and_slept_on(void)
{
	int key = profile_key(STRIP_NETWORK_HDRS, 64, 8, 0), fds[2], ring = -1, same = -2;
	struct sockaddr_in where[2], mine;

	for (int i = 0; i < 2; i++) {
		fds[i] = datagram(&where[i]);
		CHECK(name_profile(fds[i], key, 7000) == 0);
	}
	CHECK(vma->get_socket_rings_fds(fds[0], &ring, 1) == 1 && vma->get_socket_rings_fds(fds[1], &same, 1) == 1 && ring == same);
	int from = datagram(&mine), epoll = MUST(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.fd = ring};
	MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ring, &event));
	CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
	for (int number = 0; number < 6; number++) {
		say(from, &where[number % 2], number, 8);
		CHECK(epoll_wait(epoll, &event, 1, PATIENCE_MS) == 1 && event.data.fd == ring);
		struct vma_completion_cb_t run = next_run(ring, 1, 8);
		CHECK(run.packets == 1 && is_said(run.payload_ptr, number, 0, 8));
	}
	CHECK(epoll_wait(epoll, &event, 1, 10) == 0);
	/* A socket that goes leaves the ring to the other. */
	MUST(close(fds[0]));
	say(from, &where[1], 6, 8);
	struct vma_completion_cb_t run = next_run(ring, 1, 8);
	CHECK(run.packets == 1 && is_said(run.payload_ptr, 6, 0, 8));
	/* And what it receives can be had by recv(2) all the same. */
	char bytes[8];
	say(from, &where[1], 7, 8);
	CHECK(recv(fds[1], bytes, sizeof bytes, 0) == 8 && is_said(bytes, 7, 0, 8));
	MUST(close(fds[1]));
	FAILS(vma->vma_cyclic_buffer_read(ring, &run, 1, 1, MSG_DONTWAIT), EBADFD);
	MUST(close(epoll));
	MUST(close(from));
}

/* A program that is not on Ringway: this one, without the library. */
static int plain(int port)
{
	struct sockaddr_in to = loopback(port), mine;
	int from = datagram(&mine);

	if (vma_get_api() != NULL)
		return 3;
	for (int number = 0; number < 20; number++) {
		say(from, &to, number, 64);
		if (number % 5 == 4)
			nap(20);
	}
	say(from, &to, 20, 65);
	say(from, &to, 21, 64);
	return wrong;
}

/* What comes by the kernel lies there too; the ring's descriptor is readable for it, and no longer. */
static void by_kernel(const char *self)
{
	struct sockaddr_in where;
	int ring, fd = receiver(profile_key(RAW_PACKET, 8, 64, 0), &ring, &where), epoll = MUST(epoll_create1(0)), heard = 0, refused = 0, status;
	struct epoll_event event = {.events = EPOLLIN};
	struct vma_completion_cb_t run = {0};
	pid_t child = MUST(fork());

	if (child == 0) {
		char port[16];
		snprintf(port, sizeof port, "%d", ntohs(where.sin_port));
		unsetenv("LD_PRELOAD");
		execl(self, self, port, NULL);
		_exit(4);
	}
	MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ring, &event));
	while (heard < 21 && epoll_wait(epoll, &event, 1, PATIENCE_MS) == 1) {
		run.packets = 0;
		if (vma->vma_cyclic_buffer_read(ring, &run, 1, 3, MSG_DONTWAIT) < 0)
			refused += errno == EMSGSIZE;
		for (size_t i = 0; i < run.packets; i++, heard++) {
			const char *at = (char *)run.payload_ptr + i * (NET + 64);
			uint16_t ports[2];
			memcpy(ports, at + NET - 8, sizeof ports);
			CHECK(ports[1] == where.sin_port && at[23] == IPPROTO_UDP && memcmp(at + 26, &where.sin_addr, 4) == 0);
			CHECK(is_said(at + NET, heard < 20 ? heard : 21, 0, 64));
		}
	}
	CHECK(heard == 21 && refused == 1);
	CHECK(epoll_wait(epoll, &event, 1, 20) == 0);
	MUST(waitpid(child, &status, 0));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(close(fd));
	MUST(close(epoll));
}

/* A group's datagrams, which only the kernel brings: the ring has no flow of its socket at all. */
static void by_kernel_alone(void)
{
	struct sockaddr_in mine, group = {.sin_family = AF_INET};
	struct ip_mreqn membership = {.imr_ifindex = (int)if_nametoindex("lo")};
	int ring = -1, fd = MUST(socket(AF_INET, SOCK_DGRAM, 0)), from = datagram(&mine);
	socklen_t len = sizeof group;

	inet_pton(AF_INET, "239.77.1.9", &group.sin_addr);
	membership.imr_multiaddr = group.sin_addr;
	CHECK(name_profile(fd, profile_key(RAW_PACKET, 8, 64, 0), 990) == 0);
	MUST(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	MUST(bind(fd, SA(group), sizeof group));
	MUST(getsockname(fd, SA(group), &len));
	MUST(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership));
	MUST(setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &membership, sizeof membership));
	CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1 && ring >= 0);
	for (int number = 0; number < 3; number++) {
		say(from, &group, number, 64);
		struct vma_completion_cb_t run = next_run(ring, 1, 8);
		CHECK(run.packets == 1 && is_said((char *)run.payload_ptr + NET, number, 0, 64));
	}
	MUST(close(fd));
	MUST(close(from));
}

int main(int argc, char **argv)
{
	int is_alone = argc > 1 && strcmp(argv[1], "one_by_one") == 0;

	if (argc > 1 && !is_alone)
		return plain(atoi(argv[1]));
	vma = vma_get_api();
	if (vma == NULL) {
		printf("no table\n");
		return 2;
	}
	if (is_alone) {
		one_by_one();
		return wrong;
	}
	profiles();
	bad_calls();
	modes();
	laps();
	users_memory();
	users_memories();
	asked_again();
	room();
	filtered();
	if (getenv("VMA_SOCKETXTREME") != NULL)
		beside_completions();
	oversized();
	shared_and_slept_on();
	by_kernel(argv[0]);
	by_kernel_alone();
	return wrong;
}
