/* Which table there is: the mask of supported functions has its place in D (152) and in B (168), and A0 has none. */
#include <mellanox/vma_extra.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

enum { SERVED = VMA_EXTRA_API_RECVFROM_ZCOPY | VMA_EXTRA_API_FREE_PACKETS | VMA_EXTRA_API_ADD_CONF_RULE |
       VMA_EXTRA_API_THREAD_OFFLOAD | VMA_EXTRA_API_DUMP_FD_STATS | VMA_EXTRA_API_REGISTER_RECV_CALLBACK |
       VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER | VMA_EXTRA_API_SOCKETXTREME_POLL |
       VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS | VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF | VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF |
       VMA_EXTRA_API_GET_SOCKET_RINGS_NUM | VMA_EXTRA_API_GET_SOCKET_RINGS_FDS | VMA_EXTRA_API_GET_SOCKET_TX_RING_FD |
       VMA_EXTRA_API_CYCLIC_BUFFER_READ | VMA_EXTRA_API_ADD_RING_PROFILE | VMA_EXTRA_API_GET_MEM_INFO |
       VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS | VMA_EXTRA_API_MODIFY_RING };

int main(void)
{
	struct vma_api_t *vma = vma_get_api();
	uint64_t word;
	char *table = (char *)vma;
	void *room = NULL;
	socklen_t len;

	if (vma == NULL) {
		printf("no table\n");
		return 0;
	}
	/* Too little room for a pointer is the kernel's to refuse, and so is any other descriptor or level. */
	len = 7;
	if (getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &room, &len) != -1 || errno != EBADF)
		printf("7 bytes\n");
	len = 8;
	if (getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &room, NULL) != -1 || getsockopt(-2, SOL_SOCKET, SO_VMA_GET_API, &room, &len) != -1)
		printf("no length, or another descriptor\n");
	len = 100;
	if (getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &room, &len) != 0 || len != 8 || room != vma)
		printf("100 bytes\n");
	/* A function that needs a parameter says so. */
	errno = 0;
	if (vma->socketxtreme_poll(0, NULL, 0, 0) != -1 || errno != EOPNOTSUPP)
		printf("socketxtreme_poll\n");
	memcpy(&word, table + 152, sizeof word);
	if (word == (SERVED | VMA_EXTRA_API_IOCTL)) {
		printf("D\n");
		return 0;
	}
	if (word == SERVED) {
		int (*get_dpcp_devices)(uintptr_t **, size_t *);
		uintptr_t *devices = NULL;
		size_t count = 0;

		memcpy(&get_dpcp_devices, table + 160, sizeof get_dpcp_devices);
		errno = 0;
		printf("%s\n", get_dpcp_devices(&devices, &count) == -1 && errno == EOPNOTSUPP ? "C1" : "not get_dpcp_devices");
		return 0;
	}
	memcpy(&word, table + 104, sizeof word);
	if (word == 0) {
		printf("nothing at 104\n");
		return 1;
	}
	printf("%s\n", getenv("VMA_API_LAYOUT")[0] == '8' ? "A0" : memcmp(table + 168, &(uint64_t){SERVED}, 8) == 0 ? "B" : "?");
	return 0;
}
