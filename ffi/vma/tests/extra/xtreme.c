/* SocketXtreme on one thread: every completion, every input that must be refused. Prints what is wrong, and nothing else. */
#include "xtreme.h"

#include <sys/resource.h>

static char bytes[60000], got[1 << 20];

static int no_descriptor(void)
{
	int fd = MUST(dup(0));

	MUST(close(fd));
	return fd;
}

/* Without VMA_SOCKETXTREME there are rings, and nothing to poll on them. */
static void off(void)
{
	struct vma_completion_t done;
	struct sockaddr_in where;
	int fd = datagram(&where), s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), ring = ring_of(fd);
	struct vma_packet_desc_t packet = {0};
	struct vma_buff_t made_up = {0};

	FAILS(vma->socketxtreme_poll(ring, &done, 1, 0), EOPNOTSUPP);
	FAILS(vma->socketxtreme_free_vma_packets(&packet, 1), EOPNOTSUPP);
	FAILS(vma->socketxtreme_ref_vma_buff(&made_up), EINVAL);
	FAILS(vma->socketxtreme_free_vma_buff(NULL), EINVAL);
	/* Its descriptor tells of sockets that are readable. */
	struct pollfd p = {.fd = ring, .events = POLLIN};
	CHECK(poll(&p, 1, 0) == 0);
	MUST(sendto(s, "x", 1, 0, SA(where), sizeof where));
	CHECK(poll(&p, 1, 5000) == 1 && p.revents == POLLIN);
	CHECK(recv(fd, got, sizeof got, 0) == 1);
	CHECK(poll(&p, 1, 0) == 0);
	MUST(close(s));
	MUST(close(fd));
	CHECK(fcntl(ring, F_GETFD) == -1);
}

static void refused(void)
{
	struct vma_completion_t done;
	struct sockaddr_in where;
	int fd = datagram(&where), tcp = MUST(socket(AF_INET, SOCK_STREAM, 0)), ring = ring_of(fd), other = 77, pipes[2];

	FAILS(vma->socketxtreme_poll(ring, NULL, 1, 0), EINVAL);
	FAILS(vma->socketxtreme_poll(ring, &done, 0, 0), EINVAL);
	FAILS(vma->socketxtreme_poll(-1, &done, 1, 0), EBADFD);
	FAILS(vma->socketxtreme_poll(1 << 28, &done, 1, 0), EBADFD);
	FAILS(vma->socketxtreme_poll(fd, &done, 1, 0), EBADFD);
	FAILS(vma->socketxtreme_poll(no_descriptor(), &done, 1, 0), EBADFD);
	int instance = MUST(epoll_create1(0));
	FAILS(vma->socketxtreme_poll(instance, &done, 1, 0), EBADFD);
	MUST(close(instance));
	CHECK(vma->socketxtreme_poll(ring, &done, 1, 0) == 0);
	CHECK(vma->socketxtreme_poll(ring, &done, 1, -1) == 0);
	/* Who has no ring. */
	MUST(pipe(pipes));
	CHECK(vma->get_socket_rings_num(pipes[0]) == 0 && vma->get_socket_rings_num(-1) == 0 && vma->get_socket_rings_num(tcp) == 0);
	CHECK(vma->get_socket_rings_fds(pipes[0], &other, 1) == 0 && vma->get_socket_rings_fds(tcp, &other, 1) == 0 && other == 77);
	FAILS(vma->get_socket_rings_fds(fd, NULL, 1), EINVAL);
	FAILS(vma->get_socket_rings_fds(fd, &other, 0), EINVAL);
	FAILS(vma->get_socket_rings_fds(fd, &other, -1), EINVAL);
	int many[3] = {-1, -7, -7};
	for (int i = 0; i < 3; i++)
		CHECK(vma->get_socket_rings_fds(fd, many, 3) == 1 && many[0] == ring && many[1] == -7);
	/* Sending. */
	FAILS(vma->get_socket_tx_ring_fd(pipes[0], SA(where), sizeof where), EINVAL);
	FAILS(vma->get_socket_tx_ring_fd(tcp, SA(where), sizeof where), ENOSYS);
	FAILS(vma->get_socket_tx_ring_fd(fd, NULL, 0), EINVAL);
	FAILS(vma->get_socket_tx_ring_fd(fd, SA(where), sizeof where), ENODATA);
	MUST(sendto(fd, "y", 1, 0, SA(where), sizeof where));
	CHECK(vma->get_socket_tx_ring_fd(fd, SA(where), sizeof where) == ring);
	done = next_with(ring, VMA_SOCKETXTREME_PACKET);
	CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 0) == 0);
	CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	FAILS(vma->socketxtreme_free_vma_packets(NULL, 1), EINVAL);
	FAILS(vma->socketxtreme_free_vma_packets(&done.packet, 1), EINVAL);
	/* A ring whose last socket is closed is none, and neither is one whose descriptor was closed. */
	int copy = MUST(dup(ring));
	CHECK(vma->socketxtreme_poll(copy, &done, 1, 0) == 0);
	MUST(close(ring));
	FAILS(vma->socketxtreme_poll(ring, &done, 1, 0), EBADFD);
	CHECK(vma->socketxtreme_poll(copy, &done, 1, 0) == 0);
	/* It goes by the other number from now on, which stays the program's. */
	CHECK(ring_of(fd) == copy);
	MUST(close(fd));
	FAILS(vma->socketxtreme_poll(copy, &done, 1, 0), EBADFD);
	MUST(close(copy));
	MUST(close(tcp));
	MUST(close(pipes[0]));
	MUST(close(pipes[1]));
}

static void udp(void)
{
	struct sockaddr_in where, mine;
	int fd = datagram(&where), s = datagram(&mine), ring = ring_of(fd);
	int sizes[] = {1, 18, 64, 150, 213, 214, 1400, 9000, 60000, 0};

	CHECK(ring_of(s) == ring);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (sizes[i] > longest())
			continue;
		MUST(sendto(s, bytes, sizes[i], 0, SA(where), sizeof where));
		struct vma_completion_t done = next_on(ring);
		CHECK(done.events == VMA_SOCKETXTREME_PACKET && done.user_data == (uint64_t)fd);
		CHECK(done.src.sin_family == AF_INET && done.src.sin_port == mine.sin_port && done.src.sin_addr.s_addr == mine.sin_addr.s_addr);
		CHECK(done.packet.total_len == sizes[i] && done.packet.num_bufs >= 1);
		CHECK(copy_out(&done.packet, got, sizeof got) == (size_t)sizes[i] && memcmp(got, bytes, sizes[i]) == 0);
		CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	}
	CHECK(is_quiet(ring));
	/* Many at once, in as many completions as there is room for, in order. */
	static struct vma_completion_t done[300];
	for (int i = 0; i < 200; i++)
		MUST(sendto(s, bytes, 1 + i, 0, SA(where), sizeof where));
	int n = 0;
	for (double until = now_s() + PATIENCE_S; n < 200 && now_s() < until;) {
		int more = vma->socketxtreme_poll(ring, done + n, 7, 0);
		CHECK(more >= 0 && more <= 7);
		n += more > 0 ? more : 0;
	}
	CHECK(n == 200);
	for (int i = 0; i < n; i++)
		CHECK(done[i].packet.total_len == 1 + i);
	struct vma_packet_desc_t packets[200];
	for (int i = 0; i < n; i++)
		packets[i] = done[i].packet;
	CHECK(vma->socketxtreme_free_vma_packets(packets, n) == 0);
	/* What recv takes is nothing to poll, and the other way round. */
	MUST(sendto(s, bytes, 5, 0, SA(where), sizeof where));
	CHECK(recv(fd, got, sizeof got, 0) == 5);
	CHECK(is_quiet(ring));
	MUST(sendto(s, bytes, 6, 0, SA(where), sizeof where));
	done[0] = next_on(ring);
	CHECK(recv(fd, got, sizeof got, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(vma->socketxtreme_free_vma_packets(&done[0].packet, 1) == 0);
	/* What the program wants to be told. */
	uint64_t data = 0x1122334455667788, told = 0;
	socklen_t len = sizeof told;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &told, &len) == 0 && told == (uint64_t)fd);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, sizeof data) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &told, &len) == 0 && told == data);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, 4), EINVAL);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, NULL, 8), EFAULT);
	len = 4;
	FAILS(getsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &told, &len), EINVAL);
	MUST(sendto(s, bytes, 7, 0, SA(where), sizeof where));
	done[0] = next_on(ring);
	CHECK(done[0].user_data == data && vma->socketxtreme_free_vma_packets(&done[0].packet, 1) == 0);
	uint32_t tag = 0;
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag), EINVAL);
	tag = 0xfffff;
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag), EINVAL);
	tag = 0xffffe;
	FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, 3), EINVAL);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == 0);
	len = sizeof tag;
	tag = 0;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, &len) == 0 && tag == 0xffffe);
	/* Nobody is there any more: the error is told, and left for SO_ERROR. */
	MUST(close(s));
	MUST(close(fd));
	CHECK(fcntl(ring, F_GETFD) == -1);
}

/* Who holds everything starves that socket, and no other. */
static void held(void)
{
	struct sockaddr_in where, elsewhere;
	static struct vma_packet_desc_t packets[4000];
	int fd = datagram(&where), other = datagram(&elsewhere), ring = ring_of(fd), n = 0;
	struct vma_completion_t done;

	for (int i = 0; i < 4000; i++) {
		MUST(sendto(other, bytes, 500, 0, SA(where), sizeof where));
		if (vma->socketxtreme_poll(ring, &done, 1, 0) == 1)
			packets[n++] = done.packet;
	}
	/* (By a card, the last are on their way still.) */
	for (int quiet = 0; has_mirror() && quiet < 20; quiet++, nap(1))
		for (; vma->socketxtreme_poll(ring, &done, 1, 0) == 1; quiet = 0)
			packets[n++] = done.packet;
	CHECK(n > 100 && n < 2000);
	MUST(sendto(fd, bytes, 500, 0, SA(elsewhere), sizeof elsewhere));
	done = next_on(ring);
	CHECK(done.user_data == (uint64_t)other && vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	for (int i = 0; i < n; i++)
		CHECK(memcmp(packets[i].buff_lst->payload, bytes, 100) == 0);
	CHECK(vma->socketxtreme_free_vma_packets(packets, n) == 0);
	MUST(sendto(other, bytes, 500, 0, SA(where), sizeof where));
	done = next_on(ring);
	CHECK(done.user_data == (uint64_t)fd && vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	MUST(close(fd));
	MUST(close(other));
}

/* A connection, whose both ends are polled. */
static void connected(int *ring, int *client, int *server)
{
	struct sockaddr_in where;
	int l = listener(&where), one = 1;

	*ring = ring_of(l);
	*client = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	CHECK(connect(*client, SA(where), sizeof where) == -1 && errno == EINPROGRESS);
	CHECK(ring_of(*client) == *ring);
	/* Both are told of: which first is the handshake's business. */
	*server = -1;
	for (int told = 0; told < 2; told++) {
		struct vma_completion_t done = next_on(*ring);
		if (done.events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED) {
			struct sockaddr_in peer, self;
			socklen_t len = sizeof peer;
			CHECK(done.events == VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED && done.listen_fd == l && *server == -1);
			*server = (int)done.user_data;
			MUST(getpeername(*server, SA(peer), &len));
			MUST(getsockname(*client, SA(self), &len));
			CHECK(done.src.sin_port == peer.sin_port && done.src.sin_addr.s_addr == peer.sin_addr.s_addr && self.sin_port == peer.sin_port);
		} else {
			CHECK(done.events == EPOLLOUT && done.user_data == (uint64_t)*client);
		}
	}
	CHECK(*server != -1 && ring_of(*server) == *ring);
	MUST(fcntl(l, F_SETFL, O_NONBLOCK));
	CHECK(accept(l, NULL, NULL) == -1 && errno == EAGAIN);
	MUST(setsockopt(*client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
	CHECK(is_quiet(*ring));
	MUST(close(l));
}

/* A way to receive what is long, in several buffers: a datagram by shared memory; by a card, segments of a stream. */
struct way {
	int ring, from, to;
	struct sockaddr_in where;
};

/* More than one buffer has. */
enum { MANY = 60000 };

static struct way begin_way(void)
{
	struct way way;

	if (has_mirror()) {
		connected(&way.ring, &way.from, &way.to);
	} else {
		way.from = way.to = datagram(&way.where);
		way.ring = ring_of(way.to);
	}
	return way;
}

/* Sends so many bytes, and takes the packet that they come in, or begin in. */
static struct vma_completion_t brings(const struct way *way, const char *what, size_t n)
{
	if (!has_mirror()) {
		MUST(sendto(way->from, what, n, 0, SA(way->where), sizeof way->where));
		return next_with(way->ring, VMA_SOCKETXTREME_PACKET);
	}
	MUST(send(way->from, what, n, 0));
	if (n == MANY)
		nap(30);
	struct vma_completion_t first = next_with(way->ring, VMA_SOCKETXTREME_PACKET);
	for (size_t have = first.packet.total_len; have < n;) {
		struct vma_completion_t more = next_with(way->ring, VMA_SOCKETXTREME_PACKET);
		have += more.packet.total_len;
		CHECK(vma->socketxtreme_free_vma_packets(&more.packet, 1) == 0);
	}
	return first;
}

/* Buffers that are kept, given back twice, or made up. */
static void references(void)
{
	struct way way = begin_way();
	struct vma_buff_t made_up = {0};
	struct vma_completion_t done = brings(&way, bytes, MANY), wrong_one = done;
	struct vma_buff_t *first = done.packet.buff_lst, *second = first->next;
	CHECK(done.packet.num_bufs >= 2 && second != NULL);
	CHECK(vma->socketxtreme_ref_vma_buff(first) == 2 && vma->socketxtreme_ref_vma_buff(first) == 3);
	CHECK(vma->socketxtreme_free_vma_buff(first) == 2);
	/* What is not a packet's first, or near one, or nothing at all. */
	wrong_one.packet.buff_lst = second;
	FAILS(vma->socketxtreme_free_vma_packets(&wrong_one.packet, 1), EINVAL);
	wrong_one.packet.buff_lst = (struct vma_buff_t *)((char *)first + 8);
	FAILS(vma->socketxtreme_free_vma_packets(&wrong_one.packet, 1), EINVAL);
	wrong_one.packet.buff_lst = first + 100000;
	FAILS(vma->socketxtreme_free_vma_packets(&wrong_one.packet, 1), EINVAL);
	wrong_one.packet.buff_lst = (struct vma_buff_t *)1;
	FAILS(vma->socketxtreme_free_vma_packets(&wrong_one.packet, 1), EINVAL);
	wrong_one.packet.buff_lst = &made_up;
	FAILS(vma->socketxtreme_free_vma_packets(&wrong_one.packet, 1), EINVAL);
	wrong_one.packet.buff_lst = NULL;
	FAILS(vma->socketxtreme_free_vma_packets(&wrong_one.packet, 1), EINVAL);
	FAILS(vma->socketxtreme_ref_vma_buff(&made_up), EINVAL);
	FAILS(vma->socketxtreme_ref_vma_buff(NULL), EINVAL);
	FAILS(vma->socketxtreme_free_vma_buff(&made_up), EINVAL);
	FAILS(vma->socketxtreme_free_vma_buff(NULL), EINVAL);
	FAILS(vma->socketxtreme_free_vma_buff((struct vma_buff_t *)-24), EINVAL);
	CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	FAILS(vma->socketxtreme_free_vma_packets(&done.packet, 1), EINVAL);
	FAILS(vma->socketxtreme_ref_vma_buff(second), EINVAL);
	/* The one that is kept is as it was, though others come and go. */
	for (int i = 0; i < 3000; i++) {
		struct vma_completion_t other = brings(&way, bytes + 1, 100);
		CHECK(other.packet.buff_lst != first && vma->socketxtreme_free_vma_packets(&other.packet, 1) == 0);
	}
	CHECK(memcmp(first->payload, bytes, first->len) == 0);
	CHECK(vma->socketxtreme_free_vma_buff(first) == 0);
	FAILS(vma->socketxtreme_free_vma_buff(first), EINVAL);
	/* An array in which one is wrong: those before it are free. */
	struct vma_packet_desc_t three[3];
	for (int i = 0; i < 3; i++)
		three[i] = brings(&way, bytes, 10).packet;
	struct vma_buff_t *kept = three[1].buff_lst;
	three[1].buff_lst = &made_up;
	FAILS(vma->socketxtreme_free_vma_packets(three, 3), EINVAL);
	FAILS(vma->socketxtreme_free_vma_buff(three[0].buff_lst), EINVAL);
	CHECK(vma->socketxtreme_free_vma_buff(kept) == 0 && vma->socketxtreme_free_vma_buff(three[2].buff_lst) == 0);
	/* Buffer by buffer, in any order, is as good as all at once; and what a closed socket lent stays until then. */
	done = brings(&way, bytes, MANY);
	MUST(close(way.to));
	CHECK(copy_out(&done.packet, got, sizeof got) == done.packet.total_len && memcmp(got, bytes, done.packet.total_len) == 0);
	second = done.packet.buff_lst->next;
	while (second != NULL) {
		struct vma_buff_t *after = second->next;
		CHECK(vma->socketxtreme_free_vma_buff(second) == 0);
		second = after;
	}
	CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	FAILS(vma->socketxtreme_free_vma_packets(&done.packet, 1), EINVAL);
	if (way.from != way.to)
		MUST(close(way.from));
}

/* Receives so many bytes of a stream, which are those of a pattern from `at` on. */
static void expect(int ring, int fd, size_t at, size_t n)
{
	for (size_t have = 0; have < n;) {
		struct vma_completion_t done = next_with(ring, VMA_SOCKETXTREME_PACKET);
		CHECK(done.user_data == (uint64_t)fd);
		size_t more = copy_out(&done.packet, got, sizeof got);
		for (size_t i = 0; i < more; i++)
			if (got[i] != bytes[(at + have + i) % sizeof bytes]) {
				CHECK(!"other bytes");
				exit(1);
			}
		have += more;
		CHECK(more > 0 && have <= n && vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	}
}

static void tcp(void)
{
	int ring, client, server;

	connected(&ring, &client, &server);
	size_t sizes[] = {1, 11, 58, 59, 300, 1460, 9000, 59000};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		MUST(send(client, bytes, sizes[i], 0));
		expect(ring, server, 0, sizes[i]);
		MUST(send(server, bytes, sizes[i], 0));
		expect(ring, client, 0, sizes[i]);
	}
	/* One end stops sending, then the other: each is told once. */
	MUST(send(client, bytes, 100, 0));
	MUST(shutdown(client, SHUT_WR));
	expect(ring, server, 0, 100);
	struct vma_completion_t done = next_on(ring);
	CHECK(done.events == (EPOLLIN | EPOLLRDHUP) && done.user_data == (uint64_t)server);
	CHECK(is_quiet(ring) && recv(server, got, 1, 0) == 0);
	MUST(send(server, bytes, 50, 0));
	expect(ring, client, 0, 50);
	MUST(close(server));
	for (uint64_t told = 0; (told & EPOLLHUP) == 0;) {
		done = next_on(ring);
		CHECK(done.user_data == (uint64_t)client && (done.events & told & (EPOLLHUP | EPOLLRDHUP)) == 0);
		told |= done.events;
	}
	CHECK(is_quiet(ring));
	MUST(close(client));
}

static void reset(void)
{
	int ring, client, server, error = 0;
	socklen_t len = sizeof error;
	struct linger at_once = {.l_onoff = 1};

	connected(&ring, &client, &server);
	MUST(setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
	MUST(close(server));
	struct vma_completion_t done = next_on(ring);
	CHECK(done.user_data == (uint64_t)client && (done.events & (EPOLLERR | EPOLLHUP)) == (EPOLLERR | EPOLLHUP));
	CHECK((done.events & VMA_SOCKETXTREME_PACKET) == 0 && is_quiet(ring));
	MUST(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len));
	CHECK(error == ECONNRESET);
	MUST(close(client));
}

/* A window that shuts while packets are held, and opens when they are given back. */
static void window(void)
{
	int ring, client, server, n = 0, closed = 0;
	static struct vma_packet_desc_t packets[20000];
	size_t sent = 0, received = 0;
	struct vma_completion_t done;

	connected(&ring, &client, &server);
	for (int quiet = 0; quiet < 20;) {
		ssize_t more = send(client, bytes + sent % sizeof bytes, sizeof bytes - sent % sizeof bytes, MSG_DONTWAIT);
		int one = n < 20000 ? vma->socketxtreme_poll(ring, &done, 1, 0) : 0;
		sent += more > 0 ? (size_t)more : 0;
		if (one == 1 && done.events & VMA_SOCKETXTREME_PACKET) {
			packets[n++] = done.packet;
			received += done.packet.total_len;
		}
		quiet = more > 0 || one == 1 ? 0 : quiet + 1;
		if (quiet > 0)
			nap(10);
	}
	CHECK(n < 20000 && received < sent && received < (64 << 20));
	size_t at = 0;
	for (int i = 0; i < n; i++) {
		size_t length = copy_out(&packets[i], got, sizeof got);
		for (size_t j = 0; j < length; j++)
			closed |= got[j] != bytes[(at + j) % sizeof bytes];
		at += length;
	}
	CHECK(!closed);
	CHECK(vma->socketxtreme_free_vma_packets(packets, n) == 0);
	/* There is room to write again, and the rest comes. */
	expect(ring, server, received, sent - received);
	MUST(send(client, bytes, 1000, 0));
	expect(ring, server, 0, 1000);
	MUST(close(client));
	MUST(close(server));
}

/* A receive callback sees each packet first: what it drops is not told of. */
static int looked_at;

static vma_recv_callback_retval_t every_other(int fd, size_t n, struct iovec iov[], struct vma_info_t *info, void *context)
{
	(void)fd, (void)n, (void)info, (void)context;
	looked_at++;
	return ((char *)iov[0].iov_base)[0] % 2 ? VMA_PACKET_DROP : VMA_PACKET_RECV;
}

static void filtered(void)
{
	struct sockaddr_in where;
	int fd = datagram(&where), ring = ring_of(fd);

	CHECK(vma->register_recv_callback(fd, every_other, NULL) == 0);
	for (char i = 0; i < 10; i++)
		MUST(sendto(fd, &i, 1, 0, SA(where), sizeof where));
	for (char i = 0; i < 10; i += 2) {
		struct vma_completion_t done = next_with(ring, VMA_SOCKETXTREME_PACKET);
		CHECK(done.packet.total_len == 1 && *(char *)done.packet.buff_lst->payload == i);
		CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	}
	CHECK(is_quiet(ring) && looked_at == 10);
	MUST(close(fd));
}

/* What happens to a connection after it moved to the kernel is told all the same. */
static void moved(void)
{
	int ring, client, server;

	connected(&ring, &client, &server);
	MUST(send(client, bytes, 1000, 0));
	expect(ring, server, 0, 1000);
	/* (Signals are the kernel's to send.) */
	MUST(fcntl(server, F_SETFL, MUST(fcntl(server, F_GETFL)) | O_ASYNC));
	for (int i = 0; i < 3; i++) {
		MUST(send(client, bytes, 20000, 0));
		for (size_t have = 0; have < 20000;) {
			struct vma_completion_t done = next_with(ring, VMA_SOCKETXTREME_PACKET);
			CHECK(done.user_data == (uint64_t)server);
			size_t more = copy_out(&done.packet, got, sizeof got);
			CHECK(more > 0 && have + more <= 20000 && memcmp(got, bytes + have, more) == 0);
			have += more;
			CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
		}
		MUST(send(server, bytes, 100, 0));
		expect(ring, client, 0, 100);
	}
	struct pollfd asleep = {.fd = ring, .events = POLLIN};
	MUST(close(client));
	CHECK(poll(&asleep, 1, 1000 * PATIENCE_S) == 1);
	struct vma_completion_t done = next_with(ring, EPOLLRDHUP);
	CHECK(done.user_data == (uint64_t)server && is_quiet(ring));
	MUST(close(server));
}

/* The end of reading is told once, and then the ring is quiet. */
static void shut(void)
{
	struct sockaddr_in where;
	int fd = datagram(&where), ring = ring_of(fd);
	struct pollfd asleep = {.fd = ring, .events = POLLIN};

	CHECK(shutdown(fd, SHUT_RD) == -1 && errno == ENOTCONN);
	CHECK(poll(&asleep, 1, 1000 * PATIENCE_S) == 1);
	struct vma_completion_t done = next_on(ring);
	CHECK(done.events == (EPOLLIN | EPOLLRDHUP) && done.user_data == (uint64_t)fd);
	int is_readable = 1;
	for (double until = now_s() + PATIENCE_S; is_readable && now_s() < until; is_readable = poll(&asleep, 1, 0))
		CHECK(vma->socketxtreme_poll(ring, &done, 1, 0) == 0);
	CHECK(!is_readable);
	MUST(close(fd));
}

/* A connection that there is no descriptor for waits until there is one. */
static void no_room(void)
{
	struct sockaddr_in where;
	struct rlimit limit, low;
	int l = listener(&where), ring = ring_of(l), client = MUST(socket(AF_INET, SOCK_STREAM, 0)), taken[64], n = 0;
	struct vma_completion_t done;

	/* (The library's own descriptors are above.) */
	MUST(getrlimit(RLIMIT_NOFILE, &limit));
	low = (struct rlimit){.rlim_cur = 40, .rlim_max = limit.rlim_max};
	MUST(setrlimit(RLIMIT_NOFILE, &low));
	while (n < 64 && (taken[n] = dup(l)) >= 0)
		n++;
	CHECK(n < 64 && errno == EMFILE);
	MUST(connect(client, SA(where), sizeof where));
	for (int i = 0; i < 50; i++) {
		int got = vma->socketxtreme_poll(ring, &done, 1, 0);
		CHECK(got == 0 || (got == 1 && done.events == EPOLLOUT));
		nap(1);
	}
	struct pollfd p = {.fd = ring, .events = POLLIN};
	CHECK(poll(&p, 1, 0) == 1);
	while (n > 0)
		MUST(close(taken[--n]));
	MUST(setrlimit(RLIMIT_NOFILE, &limit));
	done = next_with(ring, VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED);
	CHECK(done.listen_fd == l);
	MUST(close((int)done.user_data));
	MUST(close(client));
	MUST(close(l));
}

/* Nobody listens. */
static void nobody(void)
{
	struct sockaddr_in where;
	int l = listener(&where), client, ring, error = 0;
	socklen_t len = sizeof error;

	/* (An address that was this process's, and is nobody's: the kernel says no, at once.) */
	MUST(close(l));
	client = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	CHECK(connect(client, SA(where), sizeof where) == -1 && (errno == EINPROGRESS || errno == ECONNREFUSED));
	if (vma->get_socket_rings_fds(client, &ring, 1) == 1) {
		CHECK(next_on(ring).events & EPOLLERR);
		MUST(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len));
		CHECK(error == ECONNREFUSED);
	}
	MUST(close(client));
}

int main(int argc, char **argv)
{
	begin();
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 31 + i / 251);
	if (argc > 1 && strcmp(argv[1], "off") == 0) {
		off();
		return wrong;
	}
	refused();
	udp();
	references();
	held();
	tcp();
	reset();
	window();
	filtered();
	shut();
	no_room();
	/* (What the kernel goes on with has no mirror; nor has what no socket is for.) */
	if (!has_mirror()) {
		moved();
		nobody();
	}
	return wrong;
}
