/* Which sockets share a ring, and when they have one. Prints what is wrong, and nothing else. */
#include "xtreme.h"

static int logic = -1;

static int ring_or_none(int fd)
{
	int ring = -1, n = vma->get_socket_rings_fds(fd, &ring, 1);

	CHECK(n == (ring >= 0) && vma->get_socket_rings_num(fd) == n);
	return ring;
}

static void ask(int fd, ring_logic_t how, uint32_t user)
{
	struct vma_ring_alloc_logic_attr attr = {
		.comp_mask = VMA_RING_ALLOC_MASK_RING_USER_ID | VMA_RING_ALLOC_MASK_RING_INGRESS,
		.ring_alloc_logic = how,
		.user_id = user,
		.ingress = 1,
	};

	CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr) == 0);
}

static void *elsewhere(void *out)
{
	struct sockaddr_in where;
	int *fds = out;

	fds[0] = datagram(&where);
	fds[1] = ring_or_none(fds[0]);
	return NULL;
}

/* VMA_RING_ALLOCATION_LOGIC_RX. */
static void process_wide(void)
{
	struct sockaddr_in where, other = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)};
	int a = datagram(&where), b = datagram(&where), c = MUST(socket(AF_INET, SOCK_DGRAM, 0)), there[2];
	pthread_t thread;

	MUST(bind(c, SA(other), sizeof other));
	int ra = ring_or_none(a), rb = ring_or_none(b), rc = ring_or_none(c);
	MUST(-pthread_create(&thread, NULL, elsewhere, there));
	MUST(-pthread_join(thread, NULL));
	CHECK(ra >= 0 && rb >= 0 && rc >= 0 && there[1] >= 0);
	switch (logic) {
	case RING_LOGIC_PER_INTERFACE:
		CHECK(ra == rb && ra == rc && ra == there[1]);
		break;
	case RING_LOGIC_PER_IP:
		CHECK(ra == rb && ra != rc && ra == there[1]);
		break;
	case RING_LOGIC_PER_SOCKET:
		CHECK(ra != rb && ra != rc && rb != rc && ra != there[1]);
		break;
	case RING_LOGIC_PER_THREAD:
		CHECK(ra == rb && ra == rc && ra != there[1]);
		break;
	case RING_LOGIC_PER_CORE_ATTACH_THREADS:
		CHECK(ra == rb && ra == rc);
		break;
	}
	/* What arrives on one ring is not told on another. */
	if (ra != rb) {
		struct sockaddr_in mine;
		socklen_t len = sizeof mine;
		struct vma_completion_t done;
		MUST(getsockname(a, SA(mine), &len));
		mine = reached(mine);
		MUST(sendto(b, "z", 1, 0, SA(mine), sizeof mine));
		CHECK(vma->socketxtreme_poll(rb, &done, 1, 0) == 0);
		done = next_on(ra);
		CHECK(done.user_data == (uint64_t)a && vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	}
	MUST(close(a));
	MUST(close(b));
	MUST(close(c));
	MUST(close(there[0]));
}

static void by_socket(void)
{
	struct sockaddr_in where;
	int a = datagram(&where), b = datagram(&where), s = datagram(&where);
	struct vma_ring_alloc_logic_attr attr = {.ring_alloc_logic = RING_LOGIC_PER_SOCKET, .ingress = 1};

	FAILS(setsockopt(a, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr), EINVAL);
	attr.comp_mask = VMA_RING_ALLOC_MASK_RING_INGRESS;
	FAILS(setsockopt(a, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr - 4), EINVAL);
	FAILS(setsockopt(a, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, NULL, sizeof attr), EFAULT);
	attr.ring_alloc_logic = 12;
	FAILS(setsockopt(a, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr), EINVAL);
	/* What waits goes over with the socket. */
	int before = ring_or_none(a);
	CHECK(before == ring_or_none(b));
	socklen_t len = sizeof where;
	MUST(getsockname(a, SA(where), &len));
	where = reached(where);
	MUST(sendto(s, "m", 1, 0, SA(where), sizeof where));
	nap(20);
	ask(a, RING_LOGIC_PER_USER_ID, 1);
	int after = ring_or_none(a);
	CHECK(after != before && ring_or_none(b) == before);
	struct vma_completion_t done;
	CHECK(vma->socketxtreme_poll(before, &done, 1, 0) == 0);
	done = next_on(after);
	CHECK(done.user_data == (uint64_t)a && vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	ask(b, RING_LOGIC_PER_USER_ID, 2);
	CHECK(ring_or_none(b) != after);
	ask(b, RING_LOGIC_PER_USER_ID, 1);
	CHECK(ring_or_none(b) == after);
	/* A profile can be named once. */
	attr.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY;
	attr.ring_alloc_logic = RING_LOGIC_PER_SOCKET;
	attr.ring_profile_key = 1;
	CHECK(setsockopt(s, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr) == 0);
	CHECK(setsockopt(s, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr) == -1);
	/* A listener's connections have its logic. */
	struct sockaddr_in server;
	int l = MUST(socket(AF_INET, SOCK_STREAM, 0));
	ask(l, RING_LOGIC_PER_USER_ID, 5);
	server = loopback(0);
	MUST(bind(l, SA(server), sizeof server));
	CHECK(ring_or_none(l) == -1);
	MUST(listen(l, 4));
	len = sizeof server;
	MUST(getsockname(l, SA(server), &len));
	server = reached(server);
	int client = MUST(socket(AF_INET, SOCK_STREAM, 0)), ring = ring_of(l);
	CHECK(ring_or_none(client) == -1);
	MUST(connect(client, SA(server), sizeof server));
	CHECK(ring_or_none(client) >= 0 && ring_or_none(client) != ring);
	done = next_on(ring);
	CHECK(done.events == VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED && ring_or_none((int)done.user_data) == ring);
	MUST(close((int)done.user_data));
	MUST(close(client));
	MUST(close(l));
	MUST(close(a));
	MUST(close(b));
	MUST(close(s));
}

/* That a connection can be written to goes over to its new ring as well. */
static void pending(void)
{
	struct sockaddr_in server = loopback(0);
	int l = MUST(socket(AF_INET, SOCK_STREAM, 0)), client = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	socklen_t len = sizeof server;

	MUST(bind(l, SA(server), sizeof server));
	MUST(listen(l, 4));
	MUST(getsockname(l, SA(server), &len));
	server = reached(server);
	CHECK(connect(client, SA(server), sizeof server) == -1 && errno == EINPROGRESS);
	struct pollfd p = {.fd = client, .events = POLLOUT};
	CHECK(poll(&p, 1, 1000 * PATIENCE_S) == 1);
	int before = ring_or_none(client);
	ask(client, RING_LOGIC_PER_USER_ID, 77);
	CHECK(ring_or_none(client) != before);
	struct vma_completion_t done = next_on(ring_of(client));
	CHECK(done.events == EPOLLOUT && done.user_data == (uint64_t)client);
	MUST(close(client));
	MUST(close(l));
}

struct use { int fd, calls, ring; };

static void *uses(void *out)
{
	struct use *use = out;
	char byte;

	for (int i = 0; i < use->calls; i++)
		FAILS(recv(use->fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
	use->ring = ring_or_none(use->fd);
	return NULL;
}

/* VMA_RING_MIGRATION_RATIO_RX=5, or -1: a socket goes over to the thread that alone uses it. */
static void migrates(int moves)
{
	struct sockaddr_in where;
	int fd = datagram(&where), stays = datagram(&where), mine = ring_or_none(fd);
	struct use use = {fd, 5, -1};
	pthread_t thread;

	MUST(-pthread_create(&thread, NULL, uses, &use));
	MUST(-pthread_join(thread, NULL));
	CHECK(use.ring == mine);
	/* Its own thread's call in between: the other begins again. */
	uses(&use);
	MUST(-pthread_create(&thread, NULL, uses, &use));
	MUST(-pthread_join(thread, NULL));
	CHECK(use.ring == mine);
	use.calls = 6;
	MUST(-pthread_create(&thread, NULL, uses, &use));
	MUST(-pthread_join(thread, NULL));
	CHECK((use.ring != mine) == moves && use.ring >= 0 && ring_or_none(stays) == mine);
	MUST(close(fd));
	MUST(close(stays));
}

/* SO_BINDTODEVICE gives a socket its ring at once. */
static void bound_to_device(void)
{
	int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), ring = -1, client;
	struct sockaddr_in where = loopback(0);
	socklen_t len = sizeof where;

	if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) != 0) {
		/* (Linux before 5.7 lets root alone.) */
		CHECK(errno == EPERM);
		MUST(close(fd));
		return;
	}
	ring = ring_of(fd);
	MUST(bind(fd, SA(where), sizeof where));
	CHECK(ring_of(fd) == ring);
	MUST(getsockname(fd, SA(where), &len));
	MUST(listen(fd, 5));
	CHECK(ring_of(fd) == ring);
	client = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(setsockopt(client, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	int mine = ring_of(client);
	MUST(connect(client, SA(where), sizeof where));
	CHECK(ring_of(client) == mine);
	struct vma_completion_t done = next_with(ring, VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED);
	CHECK(done.listen_fd == fd);
	MUST(close((int)done.user_data));
	MUST(close(client));
	MUST(close(fd));
}

int main(int argc, char **argv)
{
	begin();
	if (argc > 1 && strstr(argv[1], "migrates") != NULL) {
		migrates(strcmp(argv[1], "migrates") == 0);
		return wrong;
	}
	/* VMA_RING_LIMIT_PER_INTERFACE=1: all share one, whatever the logic. */
	logic = argc > 1 && strcmp(argv[1], "limited") != 0 ? atoi(argv[1]) : 0;
	process_wide();
	if (argc > 1 && strcmp(argv[1], "0") == 0) {
		by_socket();
		pending();
		/* (That device is the loopback.) */
		if (!has_mirror())
			bound_to_device();
	}
	return wrong;
}
