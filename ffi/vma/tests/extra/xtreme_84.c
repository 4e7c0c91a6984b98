/*
 * A program of libvma 8.4: the functions have their first names and places, and the structures no hardware times. It declares what it uses
 * by itself, for this header has the later ones. Prints what is wrong, and nothing else.
 */
#include "check.h"

struct old_packet {
	size_t num_bufs;
	uint16_t total_len;
	struct vma_buff_t *buff_lst;
};

struct old_completion {
	struct old_packet packet;
	uint64_t events, user_data;
	struct sockaddr_in src;
	int listen_fd;
};

struct old_table {
	void *before[5];
	int (*vma_poll)(int fd, struct old_completion *completions, unsigned int count, int flags);
	int (*get_socket_rings_num)(int fd);
	int (*get_socket_rings_fds)(int fd, int *rings, int room);
	int (*free_vma_packets)(struct old_packet *packets, int count);
	int (*ref_vma_buff)(struct vma_buff_t *buff);
	int (*free_vma_buff)(struct vma_buff_t *buff);
	int (*dump_fd_stats)(int fd, int level);
	void *behind[2];
};

_Static_assert(sizeof(struct old_table) == 112 && sizeof(struct old_completion) == 64, "as 8.4 has them");

static struct old_completion next_on(struct old_table *old, int ring)
{
	struct old_completion two[2];

	memset(two, 0x5a, sizeof two);
	for (int i = 0; i < 20000; i++) {
		int n = old->vma_poll(ring, two, 1, 0);
		CHECK(n >= 0);
		if (n == 1)
			break;
		nap(1);
	}
	/* Nothing is written behind what there is room for. */
	for (size_t i = 0; i < sizeof two[1]; i++)
		CHECK(((char *)&two[1])[i] == 0x5a);
	return two[0];
}

int main(void)
{
	struct old_table *old;
	struct sockaddr_in where, server;
	int fd = datagram(&where), ring = -1;

	vma = vma_get_api();
	old = (struct old_table *)vma;
	if (old == NULL) {
		printf("no table\n");
		return 2;
	}
	CHECK(old->get_socket_rings_num(fd) == 1 && old->get_socket_rings_fds(fd, &ring, 1) == 1);
	MUST(sendto(fd, "old", 3, 0, SA(where), sizeof where));
	MUST(sendto(fd, "times", 5, 0, SA(where), sizeof where));
	struct old_completion first = next_on(old, ring), second = next_on(old, ring);
	CHECK(first.events == 1ULL << 32 && first.user_data == (uint64_t)fd && first.src.sin_port == where.sin_port);
	CHECK(first.packet.total_len == 3 && first.packet.num_bufs == 1 && memcmp(first.packet.buff_lst->payload, "old", 3) == 0);
	CHECK(old->ref_vma_buff(first.packet.buff_lst) == 2 && old->free_vma_buff(first.packet.buff_lst) == 1);
	struct old_packet both[] = {first.packet, second.packet};
	CHECK(old->free_vma_packets(both, 2) == 0);
	FAILS(old->free_vma_packets(both, 2), EINVAL);
	int l = listener(&server), client = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(client, SA(server), sizeof server));
	struct old_completion accepted = next_on(old, ring);
	while (accepted.events == 4)
		accepted = next_on(old, ring);
	CHECK(accepted.events == 1ULL << 33 && accepted.listen_fd == l);
	MUST(close((int)accepted.user_data));
	MUST(close(client));
	MUST(close(l));
	MUST(close(fd));
	return wrong;
}
