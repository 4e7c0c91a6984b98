/* A program writes into what it was lent, as it may where the device's receive buffers are its own: the peer's memory, what else is lent, and what
 * arrives later are as they would be without. Prints what is wrong, and nothing else. */
#include "xtreme.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { LENGTH = 1400, HELD = 32 };

/* A received datagram. */
union lent {
	struct vma_packets_t packets;
	char room[sizeof(struct vma_packets_t) + sizeof(struct vma_packet_t) + 8 * sizeof(struct iovec)];
};

/* Datagram number n. */
static void fill(unsigned char *bytes, size_t length, unsigned n)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)(n * 31 + i);
}

static int is(const unsigned char *bytes, size_t length, unsigned n)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != (unsigned char)(n * 31 + i))
			return 0;
	return 1;
}

static unsigned char *payload(union lent *lent, size_t length)
{
	struct iovec *iov = lent->packets.pkts[0].iov;

	CHECK(lent->packets.n_packet_num == 1 && lent->packets.pkts[0].sz_iov == 1 && iov->iov_len == length);
	return iov->iov_base;
}

static unsigned char *lend(int fd, union lent *lent, size_t length)
{
	int flags = 0;

	CHECK(vma->recvfrom_zcopy(fd, lent, sizeof *lent, &flags, NULL, NULL) == (int)length && flags == MSG_VMA_ZCOPY);
	return payload(lent, length);
}

static void send_datagram(int s, struct sockaddr_in to, unsigned n)
{
	unsigned char bytes[LENGTH];

	fill(bytes, LENGTH, n);
	CHECK(sendto(s, bytes, LENGTH, 0, SA(to), sizeof to) == LENGTH);
}

/* What is held beside a written one, on the same page, stays; what is written in place goes out as it is; what comes later is what was sent. */
static void datagrams(void)
{
	static union lent lent[HELD];
	struct sockaddr_in here, there;
	unsigned char echoed[LENGTH];
	int r = datagram(&here), s = datagram(&there);

	for (unsigned round = 0; round < 100; round++) {
		unsigned char *at[HELD];
		for (unsigned i = 0; i < HELD; i++) {
			send_datagram(s, here, round * HELD + i);
			at[i] = lend(r, &lent[i], LENGTH);
		}
		for (unsigned i = 0; i < HELD; i += 2) {
			fill(at[i], LENGTH, ~i);
			CHECK(sendto(r, at[i], LENGTH, 0, SA(there), sizeof there) == LENGTH);
			CHECK(recv(s, echoed, LENGTH, 0) == LENGTH && is(echoed, LENGTH, ~i));
		}
		for (unsigned i = 0; i < HELD; i++) {
			CHECK(is(at[i], LENGTH, i % 2 == 0 ? ~i : round * HELD + i));
			CHECK(vma->free_packets(r, lent[i].packets.pkts, 1) == 0);
		}
	}
	MUST(close(r));
	MUST(close(s));
}

/* A stream's bytes, of which each is changed where it lies. */
static void stream(void)
{
	static unsigned char bytes[1 << 18];
	union {
		struct vma_packets_t packets;
		char room[4096];
	} lent;
	int ends[2];

	pair(ends);
	for (unsigned round = 0; round < 20; round++) {
		size_t sent = 0, seen = 0;
		fill(bytes, sizeof bytes, round);
		while (seen < sizeof bytes) {
			if (sent < sizeof bytes) {
				ssize_t n = send(ends[0], bytes + sent, sizeof bytes - sent, MSG_DONTWAIT);
				sent += n > 0 ? (size_t)n : 0;
			}
			int flags = 0;
			CHECK(vma->recvfrom_zcopy(ends[1], &lent, sizeof lent, &flags, NULL, NULL) > 0);
			struct vma_packet_t *packet = lent.packets.pkts;
			for (size_t p = 0; p < lent.packets.n_packet_num; p++) {
				for (size_t v = 0; v < packet->sz_iov; v++) {
					unsigned char *at = packet->iov[v].iov_base;
					for (size_t i = 0; i < packet->iov[v].iov_len; i++, seen++) {
						CHECK(at[i] == (unsigned char)(round * 31 + seen));
						at[i] = 0;
					}
				}
				packet = (struct vma_packet_t *)((char *)packet + sizeof *packet + packet->sz_iov * sizeof(struct iovec));
			}
			CHECK(vma->free_packets(ends[1], lent.packets.pkts, lent.packets.n_packet_num) == 0);
		}
		CHECK(is(bytes, sizeof bytes, round));
	}
	MUST(close(ends[0]));
	MUST(close(ends[1]));
}

static pthread_barrier_t together;

static void *writes(void *where)
{
	unsigned char *at = where;
	sigset_t all;

	/* As threads do that leave signals to another. */
	MUST(sigfillset(&all));
	CHECK((at - (unsigned char *)NULL) % 2 == 0 ? pthread_sigmask(SIG_BLOCK, &all, NULL) == 0 : sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	MUST(pthread_sigmask(SIG_BLOCK, NULL, &all));
	CHECK(sigismember(&all, SIGTERM) == 1 && sigismember(&all, SIGSEGV) == 0);
	pthread_barrier_wait(&together);
	for (unsigned i = 0; i < LENGTH / 4; i++)
		at[i * 4] = 77;
	return NULL;
}

/* Four threads write to one datagram at once, every fourth byte each; the first of them to fault is not the last. Run before anything else. */
static void threads(void)
{
	struct sockaddr_in here;
	union lent lent;
	pthread_t thread[4];
	int r = datagram(&here);

	send_datagram(r, here, 5);
	unsigned char *at = lend(r, &lent, LENGTH);
	MUST(pthread_barrier_init(&together, NULL, 4));
	for (unsigned i = 0; i < 4; i++)
		MUST(pthread_create(&thread[i], NULL, writes, at + i));
	for (unsigned i = 0; i < 4; i++)
		MUST(pthread_join(thread[i], NULL));
	for (unsigned i = 0; i < LENGTH; i++)
		CHECK(at[i] == 77);
	CHECK(vma->free_packets(r, lent.packets.pkts, 1) == 0);
	MUST(close(r));
}

static sigjmp_buf before;
static void *volatile faulted;

/* What the last handler found blocked. */
static sigset_t in_handler;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	faulted = info->si_addr;
	pthread_sigmask(SIG_BLOCK, NULL, &in_handler);
	siglongjmp(before, 1);
}

/* How a child ends that does something. */
static int end_of(void (*act)(void))
{
	int status;
	pid_t child = MUST(fork());

	if (child == 0) {
		act();
		_exit(0);
	}
	MUST(waitpid(child, &status, 0));
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static unsigned char *volatile nowhere = (unsigned char *)16;

static void faults(void)
{
	*nowhere = 1;
}

static void raises(void)
{
	raise(SIGSEGV);
}

static void ignores(void)
{
	signal(SIGSEGV, SIG_IGN);
	raise(SIGSEGV);
}

static void ignores_and_faults(void)
{
	signal(SIGSEGV, SIG_IGN);
	faults();
}

/* Other faults are the program's, as they would be without the library. */
static void handlers(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, old;
	unsigned char *fixed = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sockaddr_in here;
	int r = datagram(&here);
	union lent lent;

	CHECK(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
	CHECK(end_of(faults) == SIGSEGV && end_of(raises) == SIGSEGV && end_of(ignores) == 0 && end_of(ignores_and_faults) == SIGSEGV);
	MUST(sigaction(SIGSEGV, &action, &old));
	CHECK(old.sa_handler == SIG_DFL);
	if (sigsetjmp(before, 1) == 0) {
		*nowhere = 1;
		CHECK(0);
	}
	CHECK(faulted == nowhere);
	if (sigsetjmp(before, 1) == 0) {
		*(unsigned char *volatile)fixed = 1;
		CHECK(0);
	}
	CHECK(faulted == fixed);
	/* Its handler finds blocked what it would without the library. */
	sigset_t ours;
	MUST(sigemptyset(&ours));
	MUST(sigaddset(&ours, SIGUSR1));
	MUST(pthread_sigmask(SIG_BLOCK, &ours, NULL));
	MUST(sigaddset(&action.sa_mask, SIGUSR2));
	for (volatile int nested = 0; nested < 2; nested++) {
		action.sa_flags = SA_SIGINFO | (nested ? SA_NODEFER : 0);
		MUST(sigaction(SIGSEGV, &action, NULL));
		if (sigsetjmp(before, 1) == 0) {
			*nowhere = 1;
			CHECK(0);
		}
		CHECK(sigismember(&in_handler, SIGUSR1) == 1 && sigismember(&in_handler, SIGUSR2) == 1 && sigismember(&in_handler, SIGALRM) == 0);
		CHECK(sigismember(&in_handler, SIGSEGV) == !nested);
	}
	struct sigaction seen;
	MUST(sigaction(SIGSEGV, NULL, &seen));
	CHECK(sigismember(&seen.sa_mask, SIGUSR2) == 1 && sigismember(&seen.sa_mask, SIGALRM) == 0 && sigismember(&seen.sa_mask, SIGUSR1) == 0);
	MUST(pthread_sigmask(SIG_UNBLOCK, &ours, NULL));
	faulted = NULL;
	send_datagram(r, here, 9);
	fill(lend(r, &lent, LENGTH), LENGTH, 10);
	CHECK(faulted == NULL && is(payload(&lent, LENGTH), LENGTH, 10) && vma->free_packets(r, lent.packets.pkts, 1) == 0);
	MUST(sigaction(SIGSEGV, &old, &action));
	CHECK(action.sa_sigaction == on_fault && end_of(faults) == SIGSEGV);
	/* A handler that runs once is gone after the program's first fault, and not after one of what is lent. */
	action.sa_flags = SA_SIGINFO | SA_RESETHAND;
	MUST(sigaction(SIGSEGV, &action, NULL));
	send_datagram(r, here, 11);
	fill(lend(r, &lent, LENGTH), LENGTH, 12);
	CHECK(vma->free_packets(r, lent.packets.pkts, 1) == 0);
	if (sigsetjmp(before, 1) == 0) {
		*nowhere = 1;
		CHECK(0);
	}
	MUST(sigaction(SIGSEGV, NULL, &old));
	CHECK(old.sa_handler == SIG_DFL && end_of(faults) == SIGSEGV);
	MUST(close(r));
}

/* To jump to what is lent is a fault, and no write. */
static void jumps(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, old;
	struct sockaddr_in here;
	int r = datagram(&here);
	union lent lent;

	MUST(sigaction(SIGSEGV, &action, &old));
	send_datagram(r, here, 8);
	void (*volatile jump)(void) = (void (*)(void))(uintptr_t)lend(r, &lent, LENGTH);
	if (sigsetjmp(before, 1) == 0) {
		jump();
		CHECK(0);
	}
	CHECK(faulted == (void *)(uintptr_t)jump && vma->free_packets(r, lent.packets.pkts, 1) == 0);
	MUST(sigaction(SIGSEGV, &old, NULL));
	MUST(close(r));
}

/* What a callback is shown, and lets through, may be written to as well: it is what the reader gets. */
static vma_recv_callback_retval_t shown(int fd, size_t count, struct iovec iov[], struct vma_info_t *info, void *context)
{
	(void)fd, (void)info;
	for (size_t i = 0; i < count; i++)
		for (size_t at = 0; at < iov[i].iov_len; at++)
			((unsigned char *)iov[i].iov_base)[at] ^= 0xff;
	++*(int *)context;
	return VMA_PACKET_RECV;
}

static void callback(size_t length)
{
	struct sockaddr_in here;
	unsigned char sent[LENGTH], bytes[LENGTH];
	int r = datagram(&here), calls = 0, ends[2];

	CHECK(vma->register_recv_callback(r, shown, &calls) == 0);
	for (unsigned i = 0; i < 50; i++) {
		fill(sent, length, i);
		CHECK(sendto(r, sent, length, 0, SA(here), sizeof here) == (ssize_t)length && recv(r, bytes, LENGTH, 0) == (ssize_t)length);
		for (size_t at = 0; at < length; at++)
			CHECK(bytes[at] == (unsigned char)~sent[at]);
	}
	CHECK(calls == 50);
	MUST(close(r));
	pair(ends);
	CHECK(vma->register_recv_callback(ends[1], shown, &calls) == 0);
	for (unsigned i = 0; i < 50; i++) {
		fill(sent, length, i);
		CHECK(send(ends[0], sent, length, 0) == (ssize_t)length && recv(ends[1], bytes, length, MSG_WAITALL) == (ssize_t)length);
		for (size_t at = 0; at < length; at++)
			CHECK(bytes[at] == (unsigned char)~sent[at]);
	}
	MUST(close(ends[0]));
	MUST(close(ends[1]));
}

/* The same by SocketXtreme: a server that turns requests into answers where they lie. */
static void completions(void)
{
	struct sockaddr_in here, there;
	int r = datagram(&here), s = datagram(&there), ring = ring_of(r);
	struct vma_completion_t done[2];

	(void)ring_of(s);
	for (unsigned round = 0; round < 500; round++) {
		for (unsigned i = 0; i < 2; i++) {
			send_datagram(s, here, 2 * round + i);
			done[i] = next_with(ring, VMA_SOCKETXTREME_PACKET);
			CHECK(done[i].packet.num_bufs == 1 && is(done[i].packet.buff_lst->payload, LENGTH, 2 * round + i));
		}
		fill(done[0].packet.buff_lst->payload, LENGTH, 7);
		CHECK(is(done[1].packet.buff_lst->payload, LENGTH, 2 * round + 1));
		for (unsigned i = 0; i < 2; i++)
			CHECK(vma->socketxtreme_free_vma_packets(&done[i].packet, 1) == 0);
	}
	MUST(close(r));
	MUST(close(s));
}

int main(int count, char **arguments)
{
	begin();
	if (count > 1 && strcmp(arguments[1], "completions") == 0) {
		completions();
		return wrong;
	}
	/* (Whoever writes first has what others do not: a page that is the peer's until then.) */
	if (count > 1) {
		jumps();
		callback(LENGTH);
	}
	threads();
	datagrams();
	stream();
	handlers();
	callback(LENGTH);
	callback(64);
	return wrong;
}
