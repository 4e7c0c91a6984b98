/* The functions for a NIC's own queues, where there is no NIC. Prints what is wrong, and nothing else. */
#include "xtreme.h"

int main(void)
{
	struct sockaddr_in where;
	struct vma_mlx_hw_device_data queues, zeros;
	struct vma_modify_ring_attr change = {.comp_bit_mask = VMA_MODIFY_RING_CQ_ARM};
	uint32_t key = 7;
	char memory[64];

	begin();
	int fd = datagram(&where), ring = ring_of(fd);
	memset(&zeros, 0, sizeof zeros);
	memset(&queues, 0xff, sizeof queues);
	FAILS(vma->get_ring_direct_descriptors(ring, NULL), EINVAL);
	FAILS(vma->get_ring_direct_descriptors(fd, &queues), EINVAL);
	FAILS(vma->get_ring_direct_descriptors(-1, &queues), EINVAL);
	CHECK(vma->get_ring_direct_descriptors(ring, &queues) == 0 && memcmp(&queues, &zeros, sizeof queues) == 0);

	FAILS(vma->register_memory_on_ring(ring, NULL, 1, &key), EINVAL);
	FAILS(vma->register_memory_on_ring(ring, memory, 0, &key), EINVAL);
	FAILS(vma->register_memory_on_ring(ring, memory, sizeof memory, NULL), EINVAL);
	FAILS(vma->register_memory_on_ring(fd, memory, sizeof memory, &key), EINVAL);
	FAILS(vma->register_memory_on_ring(ring, memory, sizeof memory, &key), EOPNOTSUPP);
	FAILS(vma->deregister_memory_on_ring(ring, memory, sizeof memory), EINVAL);
	CHECK(key == 7);

	FAILS(vma->vma_modify_ring(NULL), EINVAL);
	change.ring_fd = fd;
	FAILS(vma->vma_modify_ring(&change), EINVAL);
	change.ring_fd = ring;
	change.comp_bit_mask = 0;
	FAILS(vma->vma_modify_ring(&change), EINVAL);
	change.comp_bit_mask = 4;
	FAILS(vma->vma_modify_ring(&change), EINVAL);
	change.comp_bit_mask = VMA_MODIFY_RING_CQ_MODERATION;
	change.cq_moderation.cq_moderation_count = 16;
	FAILS(vma->vma_modify_ring(&change), EOPNOTSUPP);
	/* Arming tells of what it came too late for. */
	change.comp_bit_mask |= VMA_MODIFY_RING_CQ_ARM;
	CHECK(vma->vma_modify_ring(&change) == 0);
	MUST(sendto(fd, "x", 1, 0, SA(where), sizeof where));
	struct pollfd sleeping = {.fd = ring, .events = POLLIN};
	CHECK(poll(&sleeping, 1, 5000) == 1);
	CHECK(vma->vma_modify_ring(&change) == 1);
	struct vma_completion_t done = next_on(ring);
	CHECK(vma->socketxtreme_free_vma_packets(&done.packet, 1) == 0);
	CHECK(vma->vma_modify_ring(&change) == 0);
	MUST(close(fd));
	return wrong;
}
