/* Programs that are not on Ringway speak to one of SocketXtreme. Prints what is wrong, and nothing else. */
#include "xtreme.h"

enum { MESSAGES = 200, BULK = 8 << 20 };

static char bytes[60000], got[70000];

/* The other program: this one, without the library. */
static int plain(int udp_port, int tcp_port)
{
	struct sockaddr_in udp = loopback(udp_port), tcp = loopback(tcp_port);
	struct timeval patience = {.tv_sec = PATIENCE_S};
	int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));

	if (vma_get_api() != NULL)
		return 3;
	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	MUST(connect(fd, SA(udp), sizeof udp));
	for (int i = 0; i < MESSAGES; i++) {
		int n = 1 + i * 300;
		MUST(send(fd, bytes, n, 0));
		CHECK(recv(fd, got, sizeof got, 0) == n && memcmp(got, bytes, n) == 0);
		if (i % 50 == 0)
			nap(30);
	}
	MUST(close(fd));
	for (int round = 0; round < 3; round++) {
		fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
		MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
		MUST(connect(fd, SA(tcp), sizeof tcp));
		for (int i = 0; i < MESSAGES; i++) {
			int n = 1 + i * 100;
			MUST(send(fd, bytes, n, 0));
			CHECK(recv(fd, got, n, MSG_WAITALL) == n && memcmp(got, bytes, n) == 0);
		}
		MUST(shutdown(fd, SHUT_WR));
		CHECK(recv(fd, got, 1, 0) == 0);
		MUST(close(fd));
	}
	/* More than the other end will hold, to which it does not answer. */
	fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(fd, SA(tcp), sizeof tcp));
	MUST(send(fd, "B", 1, 0));
	MUST(recv(fd, got, 1, MSG_WAITALL));
	for (int sent = 0; sent < BULK;)
		sent += MUST(send(fd, bytes, (size_t)(BULK - sent) < sizeof bytes ? (size_t)(BULK - sent) : sizeof bytes, 0));
	MUST(close(fd));
	return wrong;
}

static pid_t start(const char *self, int udp_port, int tcp_port)
{
	char udp[16], tcp[16];
	pid_t child;

	snprintf(udp, sizeof udp, "%d", udp_port);
	snprintf(tcp, sizeof tcp, "%d", tcp_port);
	child = MUST(fork());
	if (child == 0) {
		unsetenv("LD_PRELOAD");
		execl(self, self, udp, tcp, (char *)NULL);
		_exit(9);
	}
	return child;
}

int main(int argc, char **argv)
{
	struct sockaddr_in udp_at, tcp_at;
	int status, accepted = 0, ended = 0, bulk = -1, stops = 0;
	static struct vma_packet_desc_t kept[100000];
	size_t in_bulk = 0, held = 0, n_kept = 0;

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 31 + i / 251);
	if (argc == 3)
		return plain(atoi(argv[1]), atoi(argv[2]));
	begin();
	int udp = datagram(&udp_at), tcp = listener(&tcp_at), ring = ring_of(udp);
	CHECK(ring_of(tcp) == ring);
	pid_t child = start("/proc/self/exe", ntohs(udp_at.sin_port), ntohs(tcp_at.sin_port));
	double until = now_s() + 2 * PATIENCE_S;
	while (ended < 4 && now_s() < until) {
		struct pollfd asleep = {.fd = ring, .events = POLLIN};
		struct vma_completion_t done;
		if (poll(&asleep, 1, 300) == 0 && n_kept > 0) {
			/* It has stopped: what is held is all that is told. Now the rest comes. */
			CHECK(held < 3 << 20);
			stops++;
			CHECK(vma->socketxtreme_free_vma_packets(kept, (int)n_kept) == 0);
			FAILS(vma->socketxtreme_free_vma_packets(kept, 1), EINVAL);
			held = n_kept = 0;
		}
		while (vma->socketxtreme_poll(ring, &done, 1, 0) == 1) {
			int fd = (int)done.user_data;
			if (done.events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED) {
				struct sockaddr_in peer;
				socklen_t len = sizeof peer;
				MUST(getpeername(fd, SA(peer), &len));
				CHECK(done.listen_fd == tcp && done.src.sin_port == peer.sin_port);
				accepted++;
				continue;
			}
			if (done.events & VMA_SOCKETXTREME_PACKET) {
				size_t n = copy_out(&done.packet, got, sizeof got);
				if (fd == udp)
					MUST(sendto(fd, got, n, 0, SA(done.src), sizeof done.src));
				else if (accepted < 4 || bulk < 0)
					MUST(send(fd, got, n, MSG_NOSIGNAL));
				if (accepted == 4 && bulk < 0 && n == 1)
					bulk = fd;
				else if (fd == bulk) {
					int other = 0;
					for (size_t i = 0; i < n; i++)
						other |= got[i] != bytes[(in_bulk + i) % sizeof bytes];
					CHECK(!other);
					in_bulk += n;
					held += n;
					kept[n_kept++] = done.packet;
					continue;
				}
				CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
			} else {
				CHECK(done.events & EPOLLRDHUP);
				MUST(close(fd));
				ended++;
			}
		}
	}
	CHECK(accepted == 4 && ended == 4 && in_bulk == BULK && stops > 1);
	if (n_kept > 0)
		CHECK(vma->socketxtreme_free_vma_packets(kept, (int)n_kept) == 0);
	MUST(waitpid(child, &status, 0));
	CHECK(status == 0);
	MUST(close(udp));
	MUST(close(tcp));
	FAILS(fcntl(ring, F_GETFD), EBADF);
	return wrong;
}
