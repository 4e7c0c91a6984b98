/* ioctl: the program's allocator, before the first socket and never after. Prints what is wrong, and nothing else. */
#include "check.h"

#include <stddef.h>

static size_t asked;
static char *given;

static void *allocate(size_t bytes) {
    asked += bytes;
    given = malloc(bytes);
    return given;
}

union messages {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(struct vma_cmsg_ioctl_user_alloc_t)) + CMSG_SPACE(4)];
};

static size_t message(union messages *m, int type, const void *payload, size_t len) {
    memset(m, 0, sizeof *m);
    m->head.cmsg_len = CMSG_LEN(len);
    m->head.cmsg_level = SOL_SOCKET;
    m->head.cmsg_type = type;
    memcpy(CMSG_DATA(&m->head), payload, len);
    return CMSG_SPACE(len);
}

int main(int argc, char **argv) {
    union messages m;
    struct vma_cmsg_ioctl_user_alloc_t user = {.flags = VMA_IOCTL_USER_ALLOC_FLAG_RX | VMA_IOCTL_USER_ALLOC_FLAG_TX, .memalloc = allocate, .memfree = free};
    struct vma_cmsg_ioctl_user_alloc_t none = {.flags = VMA_IOCTL_USER_ALLOC_FLAG_RX}, nothing = user, tx = user;
    size_t len;
    vma = vma_get_api();
    if (vma == NULL) {
        printf("no table\n");
        return 2;
    }
    CHECK((vma->vma_extra_supported_mask & VMA_EXTRA_API_IOCTL) != 0);
    CHECK(vma->ioctl(NULL, 0) == 0 && vma->ioctl(NULL, 100) == 0);
    len = message(&m, 1, "what", 4);
    CHECK(vma->ioctl(&m, len) == 0);
    FAILS(vma->ioctl(&m, sizeof(struct cmsghdr) - 1), EINVAL);
    FAILS(vma->ioctl(&m, sizeof(struct cmsghdr)), EINVAL);
    len = message(&m, CMSG_VMA_IOCTL_USER_ALLOC, &user, sizeof user - 1);
    FAILS(vma->ioctl(&m, len), EINVAL);
    len = message(&m, CMSG_VMA_IOCTL_USER_ALLOC, &none, sizeof none);
    FAILS(vma->ioctl(&m, len), EINVAL);
    nothing.flags = 4;
    len = message(&m, CMSG_VMA_IOCTL_USER_ALLOC, &nothing, sizeof nothing);
    FAILS(vma->ioctl(&m, len), EINVAL);
    tx.flags = VMA_IOCTL_USER_ALLOC_FLAG_TX;
    len = message(&m, CMSG_VMA_IOCTL_USER_ALLOC, &tx, sizeof tx);
    FAILS(vma->ioctl(&m, len), EOPNOTSUPP);
    len = message(&m, CMSG_VMA_IOCTL_USER_ALLOC, &user, sizeof user);
    CHECK(vma->ioctl(&m, len) == 0 && asked == 0);
    FAILS(vma->ioctl(&m, len), EINVAL);
    /* The first socket makes the ring, and the ring has its buffers from there. */
    struct sockaddr_in where;
    int r = datagram(&where), s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), flags = 0;
    CHECK(asked > 1500);
    FAILS(vma->ioctl(&m, len), EINVAL);
    len = message(&m, 1, "what", 4);
    CHECK(vma->ioctl(&m, len) == 0);
    char buffer[256];
    struct vma_packets_t *packets = (struct vma_packets_t *)buffer;
    FAILS(vma->recvfrom_zcopy(r, buffer, sizeof buffer, (int[]){MSG_DONTWAIT}, NULL, NULL), EAGAIN);
    MUST(sendto(s, "small", 5, 0, SA(where), sizeof where));
    CHECK(vma->recvfrom_zcopy(r, buffer, sizeof buffer, &flags, NULL, NULL) == 5 && flags == MSG_VMA_ZCOPY);
    struct iovec iov = packets->pkts[0].iov[0];
    CHECK((char *)iov.iov_base >= given && (char *)iov.iov_base + 5 <= given + asked && memcmp(iov.iov_base, "small", 5) == 0);
    CHECK(vma->free_packets(r, packets->pkts, 1) == 0);
    /* Beyond VMA_RX_BUFS, packets are copied to elsewhere. */
    int within = 0, most = argc > 1 ? atoi(argv[1]) : 8;
    for (int i = 0; i < 8; i++) {
        MUST(sendto(s, "small", 5, 0, SA(where), sizeof where));
        CHECK(vma->recvfrom_zcopy(r, buffer, sizeof buffer, &flags, NULL, NULL) == 5 && flags == MSG_VMA_ZCOPY);
        char *at = packets->pkts[0].iov[0].iov_base;
        CHECK(memcmp(at, "small", 5) == 0);
        within += at >= given && at < given + asked;
    }
    CHECK(within == most);
    return wrong;
}
