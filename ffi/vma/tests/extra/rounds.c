/*
 * Rounds in which threads take what comes, forked children send and receive, and are killed in the middle of it. After each it says on a line
 * what it holds, and waits for a byte, so that whoever started it can count what it has. Its argument is how it receives: "zcopy", or "xtreme"
 * (with VMA_SOCKETXTREME=1).
 */
#include "xtreme.h"

#include <stdatomic.h>
#include <sys/prctl.h>

/* (What all hold together counts against each socket's receive buffer, and must leave room in it.) */
enum { THREADS = 3, VICTIMS = 2, HELD = 12, ENOUGH = 300, SIZE = 3000 };

/* What a thread holds: the oldest is given back for the newest. */
struct held {
	int fd;
	struct vma_packet_t packet;
	struct vma_packet_desc_t lent;
};

static int by_rings, udp, streams[VICTIMS], ring;
static atomic_int stop, taken, bad;

static void give_back(const struct held *one)
{
	struct vma_packet_t packet = one->packet;
	struct vma_packet_desc_t lent = one->lent;

	if (by_rings ? vma->socketxtreme_free_vma_packets(&lent, 1) : vma->free_packets(one->fd, &packet, 1))
		atomic_fetch_add(&bad, 1);
}

/* Takes a packet, if there is one. */
static int take(int fd, struct held *one)
{
	if (by_rings) {
		struct vma_completion_t done;

		if (vma->socketxtreme_poll(ring, &done, 1, 0) != 1 || !(done.events & VMA_SOCKETXTREME_PACKET))
			return 0;
		one->lent = done.packet;
		return 1;
	}
	char room[40];
	int flags = MSG_DONTWAIT;

	if (vma->recvfrom_zcopy(fd, room, sizeof room, &flags, NULL, NULL) <= 0 || !(flags & MSG_VMA_ZCOPY))
		return 0;
	one->fd = fd;
	one->packet = ((struct vma_packets_t *)room)->pkts[0];
	one->packet.sz_iov = 0;
	return 1;
}

static void *takes(void *number)
{
	struct held held[HELD];
	int count = 0, oldest = 0, turn = (int)(intptr_t)number, from[] = {udp, streams[0], streams[1]};

	while (!stop) {
		struct held one;

		if (!take(from[turn++ % 3], &one)) {
			nap(by_rings ? 0 : 1);
			continue;
		}
		if (count < HELD)
			held[count++] = one;
		else {
			give_back(&held[oldest]);
			held[oldest] = one;
			oldest = (oldest + 1) % HELD;
		}
		atomic_fetch_add(&taken, 1);
	}
	for (int i = 0; i < count; i++)
		give_back(&held[i]);
	return NULL;
}

/* A child: sends all it can to the parent, keeps whatever it gets, in sockets of its own, until it is killed. */
static void is_killed(struct sockaddr_in datagrams, struct sockaddr_in listens, int to_parent)
{
	static char bytes[SIZE];
	struct sockaddr_in mine;
	int s = datagram(&mine), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
	struct held any_more;

	/* (However this ends, it does not outlive its parent.) */
	MUST(prctl(PR_SET_PDEATHSIG, SIGKILL));
	ring = -1;
	if (by_rings)
		ring = ring_of(s);
	MUST(connect(c, SA(listens), sizeof listens));
	MUST(write(to_parent, &mine, sizeof mine));
	for (int i = 0;; i++) {
		sendto(s, bytes, sizeof bytes, MSG_DONTWAIT, SA(datagrams), sizeof datagrams);
		send(c, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		take(i % 2 ? s : c, &any_more);
	}
}

static void round_of(int number)
{
	struct sockaddr_in datagrams, listens, theirs[VICTIMS];
	static char bytes[SIZE];
	pid_t children[VICTIMS];
	pthread_t threads[THREADS];
	int l = listener(&listens), status;

	udp = datagram(&datagrams);
	if (by_rings)
		ring = ring_of(udp);
	stop = taken = 0;
	for (int i = 0; i < VICTIMS; i++) {
		int ends[2];

		MUST(pipe(ends));
		children[i] = MUST(fork());
		if (children[i] == 0)
			is_killed(datagrams, listens, ends[1]);
		if (by_rings) {
			struct vma_completion_t done = next_with(ring_of(l), VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED);
			streams[i] = (int)done.user_data;
		} else
			streams[i] = MUST(accept(l, NULL, NULL));
		CHECK(read(ends[0], &theirs[i], sizeof theirs[i]) == sizeof theirs[i]);
		MUST(close(ends[0]));
		MUST(close(ends[1]));
	}
	for (intptr_t i = 0; i < THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, takes, (void *)i));
	/* Forked while the threads take and hold; it has none of it, and ends at once. */
	pid_t idle = MUST(fork());
	if (idle == 0)
		_exit(0);
	double until = now_s() + PATIENCE_S;
	for (int i = 0; taken < ENOUGH * (1 + number % 3); i++) {
		sendto(udp, bytes, sizeof bytes, MSG_DONTWAIT, SA(theirs[i % VICTIMS]), sizeof *theirs);
		send(streams[i % VICTIMS], bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (i % 64 == 0)
			nap(1);
		if (now_s() > until) {
			printf("round %d: %d packets came\n", number, taken);
			exit(1);
		}
	}
	for (int i = 0; i < VICTIMS; i++)
		MUST(kill(children[i], SIGKILL));
	for (int i = 0; i < VICTIMS; i++)
		MUST(waitpid(children[i], &status, 0));
	MUST(waitpid(idle, &status, 0));
	CHECK(status == 0);
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		MUST(pthread_join(threads[i], NULL));
	CHECK(bad == 0);
	for (int i = 0; i < VICTIMS; i++)
		MUST(close(streams[i]));
	MUST(close(udp));
	MUST(close(l));
}

int main(int argc, char **argv)
{
	char byte;

	begin();
	setvbuf(stdout, NULL, _IOLBF, 0);
	by_rings = argc > 1 && strcmp(argv[1], "xtreme") == 0;
	for (int number = 0;; number++) {
		round_of(number);
		printf("round %d: %s\n", number, wrong ? "wrong" : "well");
		if (read(0, &byte, 1) != 1)
			return wrong;
	}
}
