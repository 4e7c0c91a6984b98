/* Forks, and receivers that are killed with packets in their hands. Prints what is wrong, and nothing else. */
#include "xtreme.h"

static char bytes[60000], got[60000];

/* What is lent is the process's that received it. */
static void forked(void)
{
	struct sockaddr_in where;
	int fd = datagram(&where), ring = ring_of(fd), status;

	MUST(sendto(fd, bytes, 50000, 0, SA(where), sizeof where));
	struct vma_completion_t done = next_with(ring, VMA_SOCKETXTREME_PACKET);
	for (int i = 0; i < 3; i++) {
		pid_t child = MUST(fork());
		if (child == 0) {
			struct vma_completion_t mine;
			FAILS(vma->socketxtreme_poll(ring, &mine, 1, 0), EBADFD);
			FAILS(vma->socketxtreme_free_vma_packets(&done.packet, 1), EINVAL);
			FAILS(vma->socketxtreme_ref_vma_buff(done.packet.buff_lst), EINVAL);
			/* It has rings of its own. */
			struct sockaddr_in there;
			int other = datagram(&there), other_ring = ring_of(other);
			FAILS(vma->socketxtreme_poll(ring, &mine, 1, 0), EBADFD);
			MUST(sendto(other, bytes, 100, 0, SA(there), sizeof there));
			mine = next_with(other_ring, VMA_SOCKETXTREME_PACKET);
			FAILS(vma->socketxtreme_free_vma_packets(&done.packet, 1), EINVAL);
			if (i == 0)
				CHECK(vma->socketxtreme_free_vma_packets(&mine.packet, 1) == 0);
			if (i == 1)
				_exit(wrong);
			exit(wrong);
		}
		MUST(waitpid(child, &status, 0));
		CHECK(status == 0);
		CHECK(copy_out(&done.packet, got, sizeof got) == 50000 && memcmp(got, bytes, 50000) == 0);
	}
	CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	MUST(sendto(fd, bytes, 10, 0, SA(where), sizeof where));
	done = next_with(ring, VMA_SOCKETXTREME_PACKET);
	CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	MUST(close(fd));
}

/* A server that keeps whatever it gets. */
static void keeps(int to_parent)
{
	struct sockaddr_in where;
	int l = listener(&where), ring = ring_of(l);

	MUST(write(to_parent, &where, sizeof where));
	for (;;)
		(void)next_on(ring);
}

/* A sender's buffers come back from receivers that die with them, or its pool would be empty after a few. */
static void killed(void)
{
	for (int round = 0; round < 12; round++) {
		struct sockaddr_in where;
		int pipes[2], status;

		MUST(pipe(pipes));
		pid_t child = MUST(fork());
		if (child == 0)
			keeps(pipes[1]);
		MUST(read(pipes[0], &where, sizeof where));
		int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
		MUST(connect(fd, SA(where), sizeof where));
		/* As much as it takes without anybody giving anything back. */
		size_t sent = 0;
		struct timeval patience = {.tv_usec = 200000};
		MUST(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience));
		for (ssize_t more; sent < 2000000 && (more = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0;)
			sent += (size_t)more;
		if (sent < 500000) {
			CHECK(!"the pool is empty");
			printf("round %d: %zu bytes\n", round, sent);
		}
		MUST(kill(child, SIGKILL));
		MUST(waitpid(child, &status, 0));
		struct pollfd p = {.fd = fd, .events = POLLIN};
		CHECK(poll(&p, 1, 5000) == 1 && recv(fd, got, 1, 0) == -1 && errno == ECONNRESET);
		MUST(close(fd));
		MUST(close(pipes[0]));
		MUST(close(pipes[1]));
	}
}

int main(void)
{
	begin();
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 31 + i / 251);
	forked();
	killed();
	return wrong;
}
