/* recvfrom_zcopy and free_packets, with every input that they must refuse. Prints what is wrong, and nothing else. */
#include "check.h"

static char bytes[60000];

/* A received buffer, as packets. */
union lent {
    struct vma_packets_t packets;
    char room[4096];
};

static struct vma_packet_t *after(struct vma_packet_t *packet) {
    return (struct vma_packet_t *)((char *)packet + sizeof *packet + packet->sz_iov * sizeof(struct iovec));
}

/* The number of bytes in all packets that are the ones sent, from the first on. */
static size_t good(union lent *lent) {
    size_t at = 0;
    struct vma_packet_t *packet = lent->packets.pkts;
    for (size_t i = 0; i < lent->packets.n_packet_num; i++, packet = after(packet))
        for (size_t v = 0; v < packet->sz_iov; v++) {
            struct iovec iov = packet->iov[v];
            if (memcmp(iov.iov_base, bytes + at, iov.iov_len) != 0)
                return 0;
            at += iov.iov_len;
        }
    return at;
}

static int lend(int fd, union lent *lent, size_t room) {
    int flags = 0, n = vma->recvfrom_zcopy(fd, lent, room, &flags, NULL, NULL);
    CHECK(n < 0 || flags == MSG_VMA_ZCOPY);
    return n;
}

static void udp(void) {
    struct sockaddr_in where = loopback(0), from;
    socklen_t len = sizeof where;
    int r = MUST(socket(AF_INET, SOCK_DGRAM, 0)), s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), other = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    union lent lent;
    MUST(bind(r, SA(where), sizeof where));
    MUST(getsockname(r, SA(where), &len));
    where = reached(where);
    MUST(connect(s, SA(where), sizeof where));
    int flags = MSG_DONTWAIT;
    FAILS(vma->recvfrom_zcopy(r, &lent, sizeof lent, &flags, NULL, NULL), EAGAIN);
    FAILS(vma->recvfrom_zcopy(r, &lent, sizeof lent, NULL, NULL, NULL), EFAULT);
    MUST(send(s, bytes, 100, 0));
    flags = 0;
    FAILS(vma->recvfrom_zcopy(r, NULL, sizeof lent, &flags, NULL, NULL), EFAULT);
    FAILS(vma->recvfrom_zcopy(r, NULL, 0, &flags, NULL, NULL), ENOBUFS);
    CHECK(lend(r, &lent, sizeof lent) == 100 && vma->free_packets(r, lent.packets.pkts, 1) == 0);
    int sizes[] = {1, 18, 64, 150, 213, 214, 1400, 9000, 60000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= longest(); i++) {
        MUST(send(s, bytes, sizes[i], 0));
        len = sizeof from;
        flags = MSG_VMA_ZCOPY_FORCE;
        CHECK(vma->recvfrom_zcopy(r, &lent, sizeof lent, &flags, SA(from), &len) == sizes[i]);
        CHECK(flags == (MSG_VMA_ZCOPY_FORCE | MSG_VMA_ZCOPY) && len == sizeof from && from.sin_addr.s_addr == where.sin_addr.s_addr);
        CHECK(lent.packets.n_packet_num == 1 && good(&lent) == (size_t)sizes[i]);
        struct vma_packet_t *packet = lent.packets.pkts;
        void *id = packet->packet_id;
        FAILS(vma->free_packets(other, packet, 1), ENOENT);
        packet->packet_id = (char *)id + 1;
        FAILS(vma->free_packets(r, packet, 1), ENOENT);
        packet->packet_id = NULL;
        FAILS(vma->free_packets(r, packet, 1), ENOENT);
        packet->packet_id = &lent;
        FAILS(vma->free_packets(r, packet, 1), ENOENT);
        packet->packet_id = id;
        FAILS(vma->free_packets(-1, packet, 1), EINVAL);
        FAILS(vma->free_packets(0, packet, 1), EINVAL);
        FAILS(vma->free_packets(r, NULL, 1), EINVAL);
        CHECK(vma->free_packets(r, NULL, 0) == 0);
        CHECK(vma->free_packets(r, packet, 1) == 0);
        FAILS(vma->free_packets(r, packet, 1), ENOENT);
    }
    /* Too little room consumes nothing. */
    MUST(send(s, bytes, 100, 0));
    flags = 0;
    FAILS(vma->recvfrom_zcopy(r, &lent, 23, &flags, NULL, NULL), ENOBUFS);
    CHECK(lend(r, &lent, 40) == 100 && vma->free_packets(r, lent.packets.pkts, 1) == 0);
    /* An empty datagram is one. */
    MUST(send(s, bytes, 0, 0));
    CHECK(lend(r, &lent, sizeof lent) == 0 && lent.packets.n_packet_num == 1 && vma->free_packets(r, lent.packets.pkts, 1) == 0);
    /* What is peeked at is copied. */
    MUST(send(s, bytes + 5, 3, 0));
    flags = MSG_PEEK | MSG_VMA_ZCOPY_FORCE;
    FAILS(vma->recvfrom_zcopy(r, &lent, sizeof lent, &flags, NULL, NULL), EIO);
    flags = MSG_PEEK | MSG_VMA_ZCOPY;
    CHECK(vma->recvfrom_zcopy(r, &lent, sizeof lent, &flags, NULL, NULL) == 3 && flags == MSG_PEEK && memcmp(&lent, bytes + 5, 3) == 0);
    CHECK(recv(r, &lent, sizeof lent, 0) == 3);
    /* Where nobody's name can be written, nobody holds a datagram. */
    for (int i = 0; i < 2000; i++) {
        MUST(send(s, bytes, 500, 0));
        flags = 0;
        FAILS(vma->recvfrom_zcopy(r, &lent, sizeof lent, &flags, SA(from), NULL), EFAULT);
    }
    /* What a closed socket lent is there, until it is given back by its number. */
    MUST(send(s, bytes, 700, 0));
    CHECK(lend(r, &lent, sizeof lent) == 700);
    MUST(close(r));
    CHECK(good(&lent) == 700 && vma->free_packets(r, lent.packets.pkts, 1) == 0);
    FAILS(vma->free_packets(r, lent.packets.pkts, 1), EINVAL);
    MUST(close(s));
    MUST(close(other));
}

/* Who holds everything starves itself, and nobody else. */
static void udp_held(void) {
    struct sockaddr_in where = loopback(0), elsewhere = loopback(0);
    socklen_t len = sizeof where;
    int r = MUST(socket(AF_INET, SOCK_DGRAM, 0)), q = MUST(socket(AF_INET, SOCK_DGRAM, 0)), s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    static union lent lent[3000];
    int held = 0;
    MUST(bind(r, SA(where), sizeof where));
    MUST(getsockname(r, SA(where), &len));
    MUST(bind(q, SA(elsewhere), sizeof elsewhere));
    MUST(getsockname(q, SA(elsewhere), &len));
    where = reached(where);
    elsewhere = reached(elsewhere);
    for (int i = 0; i < 3000; i++) {
        MUST(sendto(s, bytes, 500, 0, SA(where), sizeof where));
        int flags = MSG_DONTWAIT;
        if (vma->recvfrom_zcopy(r, &lent[held], sizeof *lent, &flags, NULL, NULL) == 500)
            held++;
    }
    /* (By a card, the last are on their way still.) */
    for (int quiet = 0; has_mirror() && quiet < 20; quiet++, nap(1)) {
        int flags = MSG_DONTWAIT;
        for (; vma->recvfrom_zcopy(r, &lent[held], sizeof *lent, &flags, NULL, NULL) == 500; quiet = 0, flags = MSG_DONTWAIT)
            held++;
    }
    CHECK(held > 100 && held < 2000);
    MUST(sendto(s, bytes, 500, 0, SA(elsewhere), sizeof elsewhere));
    CHECK(recv(q, &lent[held], 500, 0) == 500);
    for (int i = 0; i < held; i++)
        CHECK(good(&lent[i]) == 500 && vma->free_packets(r, lent[i].packets.pkts, 1) == 0);
    MUST(sendto(s, bytes, 500, 0, SA(where), sizeof where));
    CHECK(lend(r, lent, sizeof *lent) == 500 && vma->free_packets(r, lent->packets.pkts, 1) == 0);
    MUST(close(r));
    MUST(close(q));
    MUST(close(s));
}

static void tcp(void) {
    int ends[2], flags = 0;
    union lent lent;
    pair(ends);
    FAILS(vma->recvfrom_zcopy(ends[1], &lent, 39, &flags, NULL, NULL), ENOBUFS);
    MUST(send(ends[0], bytes, 11, 0));
    MUST(ready(ends[1], POLLIN));
    FAILS(vma->recvfrom_zcopy(ends[1], &lent, 39, &flags, NULL, NULL), ENOBUFS);
    CHECK(lend(ends[1], &lent, 40) == 11 && lent.packets.n_packet_num == 1 && good(&lent) == 11);
    CHECK(vma->free_packets(ends[1], lent.packets.pkts, 1) == 0);
    FAILS(vma->free_packets(ends[1], lent.packets.pkts, 1), ENOENT);
    /* Half of it read, half of it lent. */
    MUST(send(ends[0], bytes, 30000, 0));
    MUST(recv(ends[1], &lent, 1000, MSG_WAITALL));
    size_t got = 1000;
    while (got < 30000) {
        int n = lend(ends[1], &lent, sizeof lent);
        CHECK(n > 0);
        if (n <= 0)
            break;
        struct vma_packet_t *packet = lent.packets.pkts;
        for (size_t i = 0; i < lent.packets.n_packet_num; i++, packet = after(packet))
            for (size_t v = 0; v < packet->sz_iov; v++) {
                struct iovec iov = packet->iov[v];
                CHECK(memcmp(iov.iov_base, bytes + got, iov.iov_len) == 0);
                got += iov.iov_len;
            }
        CHECK(vma->free_packets(ends[1], lent.packets.pkts, lent.packets.n_packet_num) == 0);
    }
    CHECK(got == 30000);
    /* The end. */
    MUST(shutdown(ends[0], SHUT_WR));
    flags = MSG_VMA_ZCOPY;
    CHECK(vma->recvfrom_zcopy(ends[1], &lent, sizeof lent, &flags, NULL, NULL) == 0 && flags == 0);
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

/* A window that shuts while packets are held, and opens when they are given back. */
static void tcp_held(void) {
    int ends[2];
    static union lent lent[20000];
    size_t held = 0, sent = 0, got = 0;
    pair(ends);
    for (int quiet = 0; quiet < 20;) {
        ssize_t n = send(ends[0], bytes, sizeof bytes, MSG_DONTWAIT);
        int flags = MSG_DONTWAIT;
        int m = held < 20000 ? vma->recvfrom_zcopy(ends[1], &lent[held], sizeof *lent, &flags, NULL, NULL) : -1;
        sent += n > 0 ? n : 0;
        if (m > 0) {
            held++;
            got += m;
        }
        quiet = n > 0 || m > 0 ? 0 : quiet + 1;
        if (quiet > 0)
            nap(10);
    }
    CHECK(held < 20000 && got < sent && got < (64 << 20));
    for (size_t i = 0; i < held; i++)
        CHECK(vma->free_packets(ends[1], lent[i].packets.pkts, lent[i].packets.n_packet_num) == 0);
    CHECK(ready(ends[1], POLLIN));
    size_t more = 0;
    while (got + more < sent) {
        int n = lend(ends[1], lent, sizeof *lent);
        if (n <= 0)
            break;
        more += n;
        CHECK(vma->free_packets(ends[1], lent->packets.pkts, lent->packets.n_packet_num) == 0);
    }
    CHECK(got + more == sent);
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

/* Only the kernel has it, and only a copy can be had. */
static void kernels(void) {
    int flags = MSG_VMA_ZCOPY_FORCE | MSG_VMA_ZCOPY, ends[2];
    char byte = 0;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    MUST(write(ends[0], "k", 1));
    CHECK(vma->recvfrom_zcopy(ends[1], &byte, 1, &flags, NULL, NULL) == 1 && byte == 'k' && flags == MSG_VMA_ZCOPY_FORCE);
    FAILS(vma->free_packets(ends[1], NULL, 0), EINVAL);
    FAILS(vma->recvfrom_zcopy(-1, &byte, 1, &flags, NULL, NULL), EBADF);
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

int main(void) {
    vma = vma_get_api();
    if (vma == NULL) {
        printf("no table\n");
        return 2;
    }
    CHECK(vma_get_api() == vma);
    CHECK((vma->vma_extra_supported_mask & (VMA_EXTRA_API_RECVFROM_ZCOPY | VMA_EXTRA_API_FREE_PACKETS)) != 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31 + i / 251);
    udp();
    udp_held();
    tcp();
    tcp_held();
    kernels();
    return wrong;
}
