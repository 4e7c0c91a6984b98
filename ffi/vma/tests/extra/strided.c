/* A cyclic ring whose records a card writes: one program receives, another one sends, over the card. Prints what is wrong, and nothing else but "ready". */
#include "check.h"

#include <poll.h>
#include <time.h>

enum { NET = 14 + 20 + 8, STRIDE = 256, PACKETS = 5000, ROUND = 100, PATIENCE_MS = 20000, PART = 1024 * STRIDE };

static int is_padded;

/* Bytes of a packet's payload. With padding, some take two strides. */
static size_t length(uint32_t number)
{
	return is_padded && number % 50 == 7 ? 400 : 8 + number % 200;
}

static void fill(unsigned char *out, uint32_t number)
{
	memcpy(out, &number, sizeof number);
	for (size_t i = sizeof number; i < length(number); i++)
		out[i] = (unsigned char)(number * 31 + i);
}

static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

	CHECK(inet_pton(AF_INET, ip, &at.sin_addr) == 1);
	return at;
}

static void send_all(const struct sockaddr_in *to)
{
	unsigned char bytes[512];
	char answer;
	int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};

	MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	for (uint32_t number = 0; number < PACKETS; number++) {
		fill(bytes, number);
		CHECK(sendto(fd, bytes, length(number), 0, SA(*to), sizeof *to) == (ssize_t)length(number));
		if (number % ROUND == ROUND - 1)
			CHECK(recv(fd, &answer, 1, 0) == 1);
	}
	if (!is_padded) {
		memset(bytes, 7, sizeof bytes);
		CHECK(sendto(fd, bytes, 300, 0, SA(*to), sizeof *to) == 300);
	}
	MUST(close(fd));
}

static int receiver(const struct sockaddr_in *at, int *ring)
{
	struct vma_ring_type_attr attr = {
		.ring_type = VMA_RING_CYCLIC_BUFFER,
		/* With padding, strides are of the next power of two. */
		.ring_cyclicb = {.num = 64,
				 .stride_bytes = (uint16_t)(is_padded ? 200 : STRIDE - NET),
				 .packet_receive_mode = is_padded ? PADDED_PACKET : RAW_PACKET},
	};
	struct vma_ring_alloc_logic_attr logic = {
		.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY | VMA_RING_ALLOC_MASK_RING_INGRESS,
		.ring_alloc_logic = RING_LOGIC_PER_SOCKET,
		.ingress = 1,
	};
	vma_ring_profile_key key = 0;
	int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));

	CHECK(vma->vma_add_ring_profile(&attr, &key) == 0);
	logic.ring_profile_key = (uint32_t)key;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) == 0);
	MUST(bind(fd, SA(*at), sizeof *at));
	CHECK(vma->get_socket_rings_fds(fd, ring, 1) == 1);
	return fd;
}

/* A run is as it says: whole packets, in the order in which they were sent. */
static uint32_t check(const struct vma_completion_cb_t *run, uint32_t number, struct sockaddr_in *from)
{
	const unsigned char *packet = run->payload_ptr;

	for (size_t i = 0; i < run->packets; i++, number++) {
		unsigned char expected[512];
		size_t len = length(number);

		fill(expected, number);
		CHECK(packet[12] == 8 && packet[13] == 0 && packet[23] == IPPROTO_UDP && (size_t)(packet[16] << 8 | packet[17]) == 28 + len);
		CHECK(memcmp(packet + NET, expected, len) == 0);
		memcpy(&from->sin_addr, packet + 26, 4);
		memcpy(&from->sin_port, packet + 34, 2);
		packet += is_padded && NET + len > STRIDE ? 2 * STRIDE : STRIDE;
	}
	CHECK(packet == (unsigned char *)run->payload_ptr + run->payload_length && run->usr_hdr_ptr == NULL && run->usr_hdr_ptr_length == 0);
	return number;
}

static double seconds(struct timespec at)
{
	return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int next_run(int ring, struct vma_completion_cb_t *run, size_t min, size_t max)
{
	int result = 0;

	for (int ms = 0; ms < PATIENCE_MS; ms++) {
		*run = (struct vma_completion_cb_t){.comp_mask = VMA_CB_MASK_TIMESTAMP};
		result = vma->vma_cyclic_buffer_read(ring, run, min, max, MSG_DONTWAIT);
		if (result < 0 || run->packets > 0)
			break;
		nap(1);
	}
	return result;
}

static void receive_all(const struct sockaddr_in *at)
{
	struct sockaddr_in from = {.sin_family = AF_INET};
	void *base = NULL;
	size_t all = 0;
	uint32_t lkey = 0, number = 0, acknowledged = 0;
	int ring = -1, fd = receiver(at, &ring);
	struct vma_completion_cb_t run, kept = {0};
	unsigned char copy[64 * 2 * STRIDE];
	char *end = NULL;
	double last = 0;
	int ends = 0;

	/* The card has a key for its memory, and nobody has one for software's. */
	for (int ms = 0; ms < PATIENCE_MS && lkey == 0; ms++, nap(1))
		CHECK(vma->get_mem_info(ring, &base, &all, &lkey) == 0);
	CHECK(lkey != 0 && all == 2 * PART);
	printf("ready\n");
	fflush(stdout);
	struct pollfd wait = {.fd = ring, .events = POLLIN};
	CHECK(poll(&wait, 1, PATIENCE_MS) == 1);
	while (number < PACKETS && !wrong) {
		struct timespec now;
		char *begin;

		CHECK(next_run(ring, &run, ROUND - number % ROUND < 3 ? 1 : 3, 64) == 0);
		begin = run.payload_ptr;
		CHECK(run.packets >= 1 && run.packets <= 64 && begin >= (char *)base && begin + run.payload_length <= (char *)base + all);
		MUST(clock_gettime(CLOCK_REALTIME, &now));
		CHECK(seconds(now) - seconds(run.hw_timestamp) < 1 && seconds(run.hw_timestamp) < seconds(now) + 0.001);
		CHECK(seconds(run.hw_timestamp) > last - 0.001);
		last = seconds(run.hw_timestamp);
		if (end != NULL && begin != end) {
			/* It goes on where it ended, or behind a linear end, from the beginning, with fewer than were asked for, perhaps. */
			CHECK((end - (char *)base) % PART == 0 || begin > end);
			CHECK(begin > end || begin == base);
		}
		ends += (begin - (char *)base) / PART != ((char *)kept.payload_ptr - (char *)base) / PART;
		/* What was given out before is as it was, if it is on this side of the last linear end. */
		if (kept.packets > 0 && (begin - (char *)base) / PART == ((char *)kept.payload_ptr - (char *)base) / PART)
			CHECK(memcmp(kept.payload_ptr, copy, kept.payload_length) == 0);
		number = check(&run, number, &from);
		end = begin + run.payload_length;
		kept = run;
		memcpy(copy, run.payload_ptr, run.payload_length);
		for (; number - acknowledged >= ROUND; acknowledged += ROUND)
			CHECK(sendto(fd, "!", 1, 0, SA(from), sizeof from) == 1);
	}
	CHECK(ends >= 4);
	if (!is_padded)
		CHECK(next_run(ring, &run, 1, 64) == -1 && errno == EMSGSIZE);
	MUST(close(fd));
	FAILS(vma->vma_cyclic_buffer_read(ring, &run, 1, 1, MSG_DONTWAIT), EBADFD);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at;

	vma = vma_get_api();
	CHECK(argc == 5 && vma != NULL);
	if (wrong)
		return 1;
	is_padded = strcmp(argv[2], "padded") == 0;
	at = address(argv[3], argv[4]);
	if (strcmp(argv[1], "receive") == 0)
		receive_all(&at);
	else
		send_all(&at);
	return wrong;
}
