/* Times that a card takes of datagrams, and of streams: one program receives, another one sends, over the card. Prints what is wrong, and nothing else but "ready".
 *
 *   stamped send ADDRESS PORT       sends, an answer for each datagram
 *   stamped CLOCK ADDRESS PORT      receives; CLOCK is what VMA_HW_TS_CONVERSION asks for: system, raw or none
 *   stamped CLOCK ADDRESS PORT HOW  the same, told by a "callback", or by "completions" of SocketXtreme
 *   stamped serve ADDRESS PORT      sends the same by a connection, to who opens one
 *   stamped CLOCK ADDRESS PORT stream [HOW]   opens it, and receives
 */
#include "xtreme.h"

#include <errno.h>
#include <linux/net_tstamp.h>
#include <time.h>

enum { COUNT = 300, SLACK_NS = 200000000 };

static int64_t nanoseconds(struct timespec at)
{
	return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static int64_t wall(void)
{
	struct timespec now;

	MUST(clock_gettime(CLOCK_REALTIME, &now));
	return nanoseconds(now);
}

static void send_on(int fd)
{
	struct timeval patience = {.tv_sec = 10};
	int64_t sent_at;
	char answer;

	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	for (int number = 0; number < 2 * COUNT && !wrong; number++) {
		sent_at = wall();
		CHECK(send(fd, &sent_at, sizeof sent_at, 0) == sizeof sent_at);
		CHECK(recv(fd, &answer, 1, 0) == 1);
	}
	MUST(close(fd));
}

static void send_all(const struct sockaddr_in *to)
{
	int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));

	MUST(connect(fd, SA(*to), sizeof *to));
	send_on(fd);
}

static void serve(const struct sockaddr_in *at)
{
	int on = 1, listener = MUST(socket(AF_INET, SOCK_STREAM, 0));

	MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	MUST(bind(listener, SA(*at), sizeof *at));
	MUST(listen(listener, 1));
	int fd = MUST(accept(listener, NULL, NULL));
	char none;

	/* (Whoever receives says when it has asked for the times.) */
	CHECK(recv(fd, &none, 1, 0) == 1);
	send_on(fd);
	MUST(close(listener));
}

/* Receives so many bytes, and what SCM_TIMESTAMPING says of them, which it does of any. */
static void receive_bytes(int fd, void *into, size_t len, int flags, struct sockaddr_in *from, struct timespec stamps[3])
{
	char control[256];
	struct iovec piece = {into, len};
	struct msghdr message = {.msg_name = from, .msg_namelen = from ? sizeof *from : 0, .msg_iov = &piece, .msg_iovlen = 1,
				 .msg_control = control, .msg_controllen = sizeof control};
	ssize_t got;
	int found = 0;

	got = recvmsg(fd, &message, flags);
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at))
		if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SO_TIMESTAMPING) {
			if (stamps)
				memcpy(stamps, CMSG_DATA(at), 3 * sizeof *stamps);
			found++;
		}
	CHECK(stamps ? got == (ssize_t)len && found == 1 : got == 0 && found == 0);
}

/* Receives one: when it was sent, and what is said of it. */
static int64_t receive(int fd, struct timespec stamps[3])
{
	int64_t sent_at = 0;
	struct sockaddr_in from;

	receive_bytes(fd, &sent_at, sizeof sent_at, 0, &from, stamps);
	CHECK(sendto(fd, "", 1, 0, SA(from), sizeof from) == 1);
	return sent_at;
}

/* The same on a connection, by several calls: of all bytes of a segment the same is said. */
static int64_t receive_pieces(int fd, struct timespec stamps[3], int is_system)
{
	char bytes[sizeof(int64_t)];
	struct timespec peeked[3] = {{0}}, first[3] = {{0}};
	int64_t sent_at;

	receive_bytes(fd, bytes, 5, MSG_PEEK, NULL, peeked);
	receive_bytes(fd, bytes, 3, 0, NULL, first);
	receive_bytes(fd, bytes + 3, sizeof bytes - 3, 0, NULL, stamps);
	/* (The clocks' difference may be known better by the next call.) */
	if (!is_system)
		CHECK(!memcmp(&peeked[2], &first[2], sizeof *first) && !memcmp(&first[2], &stamps[2], sizeof *first));
	CHECK(send(fd, "", 1, 0) == 1);
	memcpy(&sent_at, bytes, sizeof sent_at);
	return sent_at;
}

/* Whether a card's time is one: by the clock that is asked for, of a datagram that was sent then. `last`: that of the one before. */
static void look_at(int64_t by_card, int64_t last, int64_t sent_at, int is_system)
{
	CHECK(by_card > 0 && (last == 0 || by_card > last - (is_system ? SLACK_NS : 0)));
	if (is_system)
		/* (Not before it was sent, but for what a slow look makes of the clocks' difference.) */
		CHECK(sent_at - SLACK_NS < by_card && by_card <= wall());
	else
		/* The card began to count when this process opened it. */
		CHECK(by_card < 60 * 1000000000LL);
}

/* What the callback was told of the latest datagram. */
static struct {
	int64_t by_card, by_software;
	int calls;
} told;

static vma_recv_callback_retval_t tell(int fd, size_t n, struct iovec iov[], struct vma_info_t *info, void *context)
{
	(void)fd, (void)n, (void)iov, (void)context;
	told.by_card = nanoseconds(info->hw_timestamp);
	told.by_software = nanoseconds(info->sw_timestamp);
	told.calls++;
	return VMA_PACKET_RECV;
}

/* Receives one whose time the callback is told: when it was sent. */
static int64_t receive_told(int fd)
{
	int64_t sent_at = 0;
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	int before = told.calls;

	CHECK(recvfrom(fd, &sent_at, sizeof sent_at, 0, SA(from), &len) == sizeof sent_at && told.calls == before + 1);
	/* (A stream says nothing of who sent it.) */
	CHECK((len ? sendto(fd, "", 1, 0, SA(from), sizeof from) : send(fd, "", 1, 0)) == 1);
	return sent_at;
}

/* The same by a completion. */
static int64_t receive_completed(int fd, int ring, int is_stream)
{
	int64_t sent_at;
	struct vma_completion_t done = next_with(ring, VMA_SOCKETXTREME_PACKET);

	CHECK(copy_out(&done.packet, (char *)&sent_at, sizeof sent_at) == sizeof sent_at);
	told.by_card = nanoseconds(done.packet.hw_timestamp);
	CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	CHECK((is_stream ? send(fd, "", 1, 0) : sendto(fd, "", 1, 0, SA(done.src), sizeof done.src)) == 1);
	return sent_at;
}

/* Receives all; of the first half nothing is asked. */
static void receive_all_by(const char *how, int fd, int is_system, int is_stream)
{
	int by_hardware = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
	int is_callback = !strcmp(how, "callback"), ring = is_callback ? -1 : ring_of(fd);
	int64_t last = 0;

	if (is_callback)
		CHECK(vma->register_recv_callback(fd, tell, NULL) == 0);
	puts("ready");
	CHECK(!is_stream || send(fd, "", 1, 0) == 1);
	for (int number = 0; number < 2 * COUNT && !wrong; number++) {
		if (number == COUNT)
			MUST(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &by_hardware, sizeof by_hardware));
		int64_t sent_at = is_callback ? receive_told(fd) : receive_completed(fd, ring, is_stream);

		CHECK(told.by_software == 0);
		if (number < COUNT)
			CHECK(told.by_card == 0);
		else if (number > COUNT || !is_stream)
			/* (The first one of a stream may have come before it was asked for.) */
			look_at(told.by_card, last, sent_at, is_system);
		last = told.by_card;
	}
	MUST(close(fd));
}

static void receive_all(const char *clock, const struct sockaddr_in *at, int is_stream, const char *how)
{
	int by_hardware = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
	int all = by_hardware | SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE, is_system = !strcmp(clock, "system");
	int fd = MUST(socket(AF_INET, is_stream ? SOCK_STREAM : SOCK_DGRAM, 0));
	int64_t last = 0, sent_at, by_card;
	struct timeval patience = {.tv_sec = 10};
	struct timespec stamps[3];
	char none;

	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	MUST(is_stream ? connect(fd, SA(*at), sizeof *at) : bind(fd, SA(*at), sizeof *at));
	if (!strcmp(clock, "none")) {
		CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &by_hardware, sizeof by_hardware) == -1 && errno == EPERM);
		return;
	}
	if (how)
		return receive_all_by(how, fd, is_system, is_stream);
	MUST(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &all, sizeof all));
	puts("ready");
	CHECK(!is_stream || send(fd, "", 1, 0) == 1);
	for (int number = 0; number < 2 * COUNT && !wrong; number++) {
		if (number == COUNT)
			/* The card's alone. */
			MUST(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &by_hardware, sizeof by_hardware));
		sent_at = is_stream ? receive_pieces(fd, stamps, is_system) : receive(fd, stamps);
		by_card = nanoseconds(stamps[2]);
		CHECK(nanoseconds(stamps[1]) == 0);
		/* Software's is told as long as it is asked for. */
		CHECK(number < COUNT ? sent_at - SLACK_NS < nanoseconds(stamps[0]) && nanoseconds(stamps[0]) <= wall() : nanoseconds(stamps[0]) == 0);
		look_at(by_card, last, sent_at, is_system);
		last = by_card;
	}
	if (is_stream && !wrong)
		/* Of the end of a stream nothing is said. */
		receive_bytes(fd, &none, 1, 0, NULL, NULL);
	MUST(close(fd));
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};

	setvbuf(stdout, NULL, _IONBF, 0);
	vma = vma_get_api();
	CHECK(argc >= 4 && argc <= 6 && vma != NULL);
	if (wrong)
		return 1;
	at.sin_port = htons((uint16_t)atoi(argv[3]));
	CHECK(inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
	if (strcmp(argv[1], "send") == 0)
		send_all(&at);
	else if (strcmp(argv[1], "serve") == 0)
		serve(&at);
	else if (argc > 4 && strcmp(argv[4], "stream") == 0)
		receive_all(argv[1], &at, 1, argv[5]);
	else
		receive_all(argv[1], &at, 0, argv[4]);
	return wrong;
}
