/* Signals at bad moments, whose handlers leave by longjmp, and sockets that take others' places. Prints what is wrong, and nothing else. */
#include "xtreme.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

enum { LENGTH = 1400, HELD = 400, ROUNDS = 1500 };

static sigjmp_buf before;
static volatile int may_jump;

static void on_alarm(int signal)
{
	(void)signal;
	if (may_jump) {
		may_jump = 0;
		siglongjmp(before, 1);
	}
}

/* One signal, some microseconds from now. */
static void alarm_in(suseconds_t us)
{
	struct itimerval once = {{0, 0}, {0, us}};

	MUST(setitimer(ITIMER_REAL, &once, NULL));
}

/* What a program holds: datagrams on pages of their own. */
static union {
	struct vma_packets_t packets;
	char room[sizeof(struct vma_packets_t) + sizeof(struct vma_packet_t) + 8 * sizeof(struct iovec)];
} lent[HELD];

/* A socket that has sent itself as many as it can hold. */
static int hold(int *held)
{
	static char bytes[LENGTH];
	struct sockaddr_in here;
	int r = datagram(&here), room = 1 << 20;

	MUST(setsockopt(r, SOL_SOCKET, SO_RCVBUF, &room, sizeof room));
	for (*held = 0; *held < HELD; ++*held) {
		int flags = MSG_DONTWAIT;
		if (sendto(r, bytes, LENGTH, MSG_DONTWAIT, SA(here), sizeof here) != LENGTH ||
		    vma->recvfrom_zcopy(r, &lent[*held], sizeof lent[*held], &flags, NULL, NULL) != LENGTH)
			break;
	}
	CHECK(*held > 100);
	return r;
}

static void let_go(int r, int held)
{
	for (int i = 0; i < held; i++)
		CHECK(vma->free_packets(r, lent[i].packets.pkts, 1) == 0);
	MUST(close(r));
}

static char *payload(int i)
{
	return lent[i].packets.pkts[0].iov[0].iov_base;
}

/* Writes into what was lent, each of which is a page's first one, are interrupted, and made again. */
static void writes(void)
{
	int held, r = hold(&held);

	for (volatile int i = 0; i < held; i++) {
		char *volatile at = payload(i);
		if (sigsetjmp(before, 1) == 0) {
			may_jump = 1;
			alarm_in(1 + i % 12);
		}
		for (int k = 0; k < LENGTH; k += 100)
			at[k] = 1;
		may_jump = 0;
		CHECK(at[0] == 1 && at[LENGTH - 1] == 0);
	}
	let_go(r, held);
}

static pthread_t writer;
static volatile int is_over;
static char *volatile next_written;

static void on_storm(int signal)
{
	(void)signal;
	if (next_written != NULL)
		*next_written = 1;
}

static void *storm(void *unused)
{
	(void)unused;
	while (!is_over)
		pthread_kill(writer, SIGUSR1);
	return NULL;
}

/* A handler that writes to what was lent interrupts its thread, which does the same: each of them is a page's first write. */
static void writes_in_handlers(void)
{
	int held, r = hold(&held);
	pthread_t thread;

	writer = pthread_self();
	MUST(pthread_create(&thread, NULL, storm, NULL));
	for (int i = 0; i + 1 < held; i++) {
		next_written = payload(i + 1);
		for (int k = 0; k < LENGTH; k += 100)
			((volatile char *)payload(i))[k] = 1;
	}
	is_over = 1;
	MUST(pthread_join(thread, NULL));
	next_written = NULL;
	let_go(r, held);
}

static volatile int calls, is_inside, may_go_on;

static vma_recv_callback_retval_t lets_through(int fd, size_t count, struct iovec iov[], struct vma_info_t *info, void *context)
{
	(void)fd, (void)count, (void)iov, (void)info, (void)context;
	calls++;
	return VMA_PACKET_RECV;
}

/* Calls that run callbacks are left; the next ones find the socket as it was. */
static void receives(void)
{
	struct sockaddr_in here;
	struct timeval patience = {5, 0};
	char bytes[64] = {0};
	int r = datagram(&here);

	CHECK(vma->register_recv_callback(r, lets_through, NULL) == 0);
	MUST(setsockopt(r, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	for (volatile int round = 0; round < ROUNDS && !wrong; round++) {
		MUST(sendto(r, bytes, 32, 0, SA(here), sizeof here));
		if (sigsetjmp(before, 1) == 0) {
			may_jump = 1;
			alarm_in(1 + round % 10);
			recv(r, bytes, sizeof bytes, 0);
		}
		may_jump = 0;
		while (recv(r, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
			;
		MUST(sendto(r, bytes, 32, 0, SA(here), sizeof here));
		CHECK(recv(r, bytes, sizeof bytes, 0) == 32);
	}
	alarm_in(0);
	MUST(close(r));
}

static vma_recv_callback_retval_t waits(int fd, size_t count, struct iovec iov[], struct vma_info_t *info, void *context)
{
	(void)fd, (void)count, (void)iov, (void)info, (void)context;
	is_inside = 1;
	while (!may_go_on)
		nap(1);
	return VMA_PACKET_RECV;
}

static void *receive(void *fd)
{
	char bytes[64];

	recv(*(int *)fd, bytes, sizeof bytes, 0);
	return NULL;
}

/* A thread is in the callback of a socket that is closed meanwhile: the one that takes its place is another, whose packets are looked at. */
static void places(void)
{
	struct sockaddr_in one_is, other_is, sender_is;
	int one = datagram(&one_is), sender = datagram(&sender_is);
	struct timeval patience = {5, 0};
	char bytes[64] = {0};
	pthread_t thread;

	CHECK(vma->register_recv_callback(one, waits, NULL) == 0);
	MUST(pthread_create(&thread, NULL, receive, &one));
	MUST(sendto(sender, bytes, 32, 0, SA(one_is), sizeof one_is));
	while (!is_inside)
		nap(1);
	MUST(close(one));
	/* (The number is another's, for the thread goes on receiving on it.) */
	int number = MUST(dup(sender)), other = datagram(&other_is);
	calls = 0;
	CHECK(vma->register_recv_callback(other, lets_through, NULL) == 0);
	MUST(setsockopt(other, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	MUST(sendto(sender, bytes, 32, 0, SA(other_is), sizeof other_is));
	/* (Whoever looks takes it off the device.) */
	recv(other, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
	may_go_on = 1;
	CHECK(recv(other, bytes, sizeof bytes, 0) == 32 && calls == 1);
	MUST(sendto(sender, bytes, 32, 0, SA(sender_is), sizeof sender_is));
	MUST(pthread_join(thread, NULL));
	MUST(close(number));
	MUST(close(other));
	MUST(close(sender));
}

int main(int count, char **arguments)
{
	(void)arguments;
	begin();
	/* (Whoever writes first has what others do not: pages that are the peer's until then.) */
	if (count > 1) {
		signal(SIGUSR1, on_storm);
		writes_in_handlers();
		return wrong;
	}
	signal(SIGALRM, on_alarm);
	writes();
	receives();
	places();
	return wrong;
}
