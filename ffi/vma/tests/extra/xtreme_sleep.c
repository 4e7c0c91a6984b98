/* Threads that sleep on a ring's descriptor, and threads that share a ring. Prints what is wrong, and nothing else. */
#include "xtreme.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/select.h>

enum { MESSAGES = 300 };

static int ring;
static atomic_int taken;

/* How to sleep until a ring has something. */
typedef int sleeper(int ring, int ms);

static int by_poll(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms);
}

static int by_select(int fd, int ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &t);
}

static int instance, nested;

static int by_epoll(int fd, int ms)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd}, found;

	(void)epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event);
	int n = epoll_wait(instance, &found, 1, ms);
	CHECK(n != 1 || (found.data.fd == fd && found.events == EPOLLIN));
	return n;
}

/* Edge-triggered, in an instance within another. */
static int by_nested(int fd, int ms)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd}, inner = {.events = EPOLLIN, .data.u64 = 7}, found;

	if (epoll_ctl(nested, EPOLL_CTL_ADD, fd, &event) == 0)
		MUST(epoll_ctl(instance, EPOLL_CTL_ADD, nested, &inner));
	int n = epoll_wait(instance, &found, 1, ms);
	CHECK(n != 1 || found.data.u64 == 7);
	if (n == 1)
		n = epoll_wait(nested, &found, 1, 0);
	return n;
}

static void *answers(void *how)
{
	sleeper *wait = *(sleeper **)how;
	struct vma_completion_t done[4];

	while (atomic_load(&taken) < MESSAGES) {
		if (wait(ring, PATIENCE_S * 1000) != 1) {
			CHECK(!"slept for ever");
			return NULL;
		}
		int n;
		while ((n = vma->socketxtreme_poll(ring, done, 4, 0)) > 0)
			for (int i = 0; i < n; i++) {
				CHECK(done[i].events == VMA_SOCKETXTREME_PACKET);
				/* Whoever sent it is waiting for this. */
				MUST(sendto((int)done[i].user_data, done[i].packet.buff_lst->payload, done[i].packet.total_len, 0,
					    SA(done[i].src), sizeof done[i].src));
				CHECK(vma->socketxtreme_free_vma_packets(&done[i].packet, 1) == 0);
				atomic_fetch_add(&taken, 1);
			}
		CHECK(n == 0);
	}
	return NULL;
}

static void ask(int s, int pause_ms)
{
	char got[64];

	for (int i = 0; i < MESSAGES; i++) {
		struct pollfd p = {.fd = s, .events = POLLIN};
		MUST(send(s, &i, sizeof i, 0));
		if (poll(&p, 1, PATIENCE_S * 1000) != 1) {
			CHECK(!"an answer");
			break;
		}
		CHECK(recv(s, got, sizeof got, 0) == sizeof i && memcmp(got, &i, sizeof i) == 0);
		if (pause_ms > 0 && i % 10 == 0)
			nap(pause_ms);
	}
}

/* One process sends and waits for the answer; another sleeps on a ring. */
static void slept_on(sleeper *wait, int pause_ms)
{
	struct sockaddr_in where;
	int to_child[2], to_parent[2];
	char byte;

	MUST(pipe(to_child));
	MUST(pipe(to_parent));
	pid_t child = MUST(fork());
	if (child == 0) {
		MUST(read(to_child[0], &where, sizeof where));
		int s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
		MUST(connect(s, SA(where), sizeof where));
		ask(s, pause_ms);
		MUST(write(to_parent[1], "x", 1));
		exit(wrong);
	}
	instance = MUST(epoll_create1(0));
	nested = MUST(epoll_create1(0));
	int fd = datagram(&where), status;
	ring = ring_of(fd);
	CHECK(wait(ring, 0) == 0);
	atomic_store(&taken, 0);
	pthread_t thread;
	MUST(-pthread_create(&thread, NULL, answers, &wait));
	MUST(write(to_child[1], &where, sizeof where));
	MUST(-pthread_join(thread, NULL));
	MUST(read(to_parent[0], &byte, 1));
	MUST(waitpid(child, &status, 0));
	CHECK(status == 0);
	MUST(close(fd));
	MUST(close(instance));
	MUST(close(nested));
	for (int i = 0; i < 2; i++) {
		MUST(close(to_child[i]));
		MUST(close(to_parent[i]));
	}
}

/* The same within one process: a child has no rings of its parent's card. The socket that asks is on a ring of its own. */
static void slept_on_by_a_thread(sleeper *wait, int pause_ms)
{
	struct sockaddr_in where;
	int s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), fd = datagram(&where);
	struct vma_ring_alloc_logic_attr apart = {.comp_mask = VMA_RING_ALLOC_MASK_RING_INGRESS, .ring_alloc_logic = RING_LOGIC_PER_SOCKET, .ingress = 1};
	pthread_t thread;

	CHECK(setsockopt(s, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &apart, sizeof apart) == 0);
	MUST(connect(s, SA(where), sizeof where));
	instance = MUST(epoll_create1(0));
	nested = MUST(epoll_create1(0));
	ring = ring_of(fd);
	CHECK(ring_of(s) != ring && wait(ring, 0) == 0);
	atomic_store(&taken, 0);
	MUST(-pthread_create(&thread, NULL, answers, &wait));
	ask(s, pause_ms);
	MUST(-pthread_join(thread, NULL));
	MUST(close(s));
	MUST(close(fd));
	MUST(close(instance));
	MUST(close(nested));
}

/* Threads poll one ring: each packet goes to one of them. */
enum { SHARED = 20000, POLLERS = 4 };
static unsigned char seen[SHARED];
static atomic_int shared;

static void *polls(void *unused)
{
	struct vma_completion_t done[8];
	double until = now_s() + PATIENCE_S;

	(void)unused;
	while (atomic_load(&shared) < SHARED && now_s() < until) {
		int n = vma->socketxtreme_poll(ring, done, 8, 0);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			int number;
			memcpy(&number, done[i].packet.buff_lst->payload, sizeof number);
			/* Kept by one reference, given back by two calls. */
			CHECK(vma->socketxtreme_ref_vma_buff(done[i].packet.buff_lst) == 2);
			CHECK(vma->socketxtreme_free_vma_packets(&done[i].packet, 1) == 0);
			CHECK(vma->socketxtreme_free_vma_buff(done[i].packet.buff_lst) == 0);
			CHECK(number >= 0 && number < SHARED && seen[number]++ == 0);
			atomic_fetch_add(&shared, 1);
		}
		if (n == 0)
			sched_yield();
	}
	return NULL;
}

static void shared_by_threads(void)
{
	struct sockaddr_in where;
	int fd = datagram(&where), s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	pthread_t threads[POLLERS];

	ring = ring_of(fd);
	for (int i = 0; i < POLLERS; i++)
		MUST(-pthread_create(&threads[i], NULL, polls, NULL));
	double until = now_s() + PATIENCE_S;
	for (int i = 0; i < SHARED; i++) {
		while (i - atomic_load(&shared) > 100 && now_s() < until)
			sched_yield();
		MUST(sendto(s, &i, sizeof i, 0, SA(where), sizeof where));
	}
	for (int i = 0; i < POLLERS; i++)
		MUST(-pthread_join(threads[i], NULL));
	CHECK(atomic_load(&shared) == SHARED);
	MUST(close(s));
	MUST(close(fd));
}

/* Whoever sleeps on a ring that ends does not sleep for ever. */
static void *closes(void *fd)
{
	nap(100);
	MUST(close(*(int *)fd));
	return NULL;
}

static void ended(void)
{
	struct sockaddr_in where;
	int fd = datagram(&where), n;
	pthread_t thread;
	struct vma_completion_t done;

	ring = ring_of(fd);
	MUST(-pthread_create(&thread, NULL, closes, &fd));
	struct pollfd p = {.fd = ring, .events = POLLIN};
	do
		n = poll(&p, 1, 1000);
	while (n == 0 && vma->socketxtreme_poll(ring, &done, 1, 0) == 0);
	MUST(-pthread_join(thread, NULL));
	FAILS(vma->socketxtreme_poll(ring, &done, 1, 0), EBADFD);
}

int main(void)
{
	void (*sleeps)(sleeper *, int) = has_mirror() ? slept_on_by_a_thread : slept_on;

	begin();
	sleeps(by_poll, 0);
	sleeps(by_poll, 3);
	sleeps(by_select, 0);
	sleeps(by_epoll, 0);
	sleeps(by_epoll, 30);
	sleeps(by_nested, 1);
	shared_by_threads();
	ended();
	return wrong;
}
