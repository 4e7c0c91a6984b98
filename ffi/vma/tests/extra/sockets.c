/* get_socket_network_header, and the header's options. Prints what is wrong, and nothing else. */
#include "check.h"

#include <netinet/ip.h>
#include <netinet/udp.h>
#include <time.h>

static void headers(void) {
    unsigned char head[100];
    uint16_t len = sizeof head;
    int ends[2], s;
    struct sockaddr_in where, peer;
    socklen_t peer_len = sizeof peer;
    FAILS(vma->get_socket_network_header(-1, head, &len), EINVAL);
    FAILS(vma->get_socket_network_header(0, head, &len), EINVAL);
    s = MUST(socket(AF_INET, SOCK_STREAM, 0));
    FAILS(vma->get_socket_network_header(s, head, &len), ENOTCONN);
    MUST(close(s));
    stream_pair(ends);
    FAILS(vma->get_socket_network_header(ends[0], head, NULL), EINVAL);
    len = 0;
    CHECK(vma->get_socket_network_header(ends[0], NULL, &len) == 0 && len == 54);
    len = 53;
    FAILS(vma->get_socket_network_header(ends[0], head, &len), ENOBUFS);
    len = 60;
    CHECK(vma->get_socket_network_header(ends[0], head, &len) == 0 && len == 54);
    MUST(getpeername(ends[0], SA(peer), &peer_len));
    peer_len = sizeof where;
    MUST(getsockname(ends[0], SA(where), &peer_len));
    FAILS(recv(ends[1], head, 1, MSG_DONTWAIT), EAGAIN);
    struct iphdr *ip = (struct iphdr *)(head + 14);
    struct tcphdr *tcp = (struct tcphdr *)(head + 34);
    CHECK(head[12] == 8 && head[13] == 0 && ip->version == 4 && ip->protocol == IPPROTO_TCP && ip->daddr == htonl(INADDR_LOOPBACK));
    CHECK(tcp->dest == peer.sin_port && tcp->source != 0 && tcp->doff == 5);
    MUST(close(ends[0]));
    MUST(close(ends[1]));
    int r = datagram(&where);
    FAILS(vma->get_socket_network_header(r, head, &len), ENOTCONN);
    s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(connect(s, SA(where), sizeof where));
    len = sizeof head;
    CHECK(vma->get_socket_network_header(s, head, &len) == 0 && len == 42);
    struct udphdr *udp = (struct udphdr *)(head + 34);
    CHECK(ip->protocol == IPPROTO_UDP && udp->dest == where.sin_port && ip->saddr == htonl(INADDR_LOOPBACK));
    MUST(close(r));
    MUST(close(s));
}

static void flow_tags(void) {
    int s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    uint32_t tag = 7;
    socklen_t len = sizeof tag;
    CHECK(setsockopt(s, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == 0);
    tag = 0;
    CHECK(getsockopt(s, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, &len) == 0 && tag == 7 && len == 4);
    uint32_t bad[] = {0, 0xfffff, 0x100000, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        FAILS(setsockopt(s, SOL_SOCKET, SO_VMA_FLOW_TAG, &bad[i], sizeof bad[i]), EINVAL);
    FAILS(setsockopt(s, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, 3), EINVAL);
    FAILS(setsockopt(s, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, 8), EINVAL);
    FAILS(setsockopt(s, SOL_SOCKET, SO_VMA_FLOW_TAG, NULL, 4), EFAULT);
    len = 3;
    FAILS(getsockopt(s, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, &len), EINVAL);
    MUST(close(s));
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == -1);
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

/* What the ring brings is lent; what the kernel does is not, by force. */
static int comes_by(int fd) {
    char buffer[256];
    int flags = MSG_VMA_ZCOPY_FORCE;
    ssize_t n;
    CHECK(ready(fd, POLLIN) == POLLIN);
    n = vma->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, NULL, NULL);
    if (n < 0) {
        CHECK(errno == EIO && recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == 1);
        return 'k';
    }
    CHECK(vma->free_packets(fd, ((struct vma_packets_t *)buffer)->pkts, 1) == 0);
    return 'r';
}

static void shutdown_rx(void) {
    struct sockaddr_in where;
    int ends[2], any = 0, r = datagram(&where), s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    char byte;
    MUST(sendto(s, "x", 1, 0, SA(where), sizeof where));
    CHECK(comes_by(r) == 'r');
    CHECK(setsockopt(r, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, &any, sizeof any) == 0);
    CHECK(setsockopt(r, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, &any, sizeof any) == 0);
    FAILS(setsockopt(r, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, NULL, 0), EFAULT);
    int t = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(sendto(t, "x", 1, 0, SA(where), sizeof where));
    CHECK(comes_by(r) == 'k');
    MUST(close(r));
    MUST(close(s));
    MUST(close(t));
    stream_pair(ends);
    MUST(send(ends[1], "x", 1, 0));
    nap(20);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_VMA_SHUTDOWN_RX, &any, sizeof any) == 0);
    MUST(send(ends[1], "y", 1, 0));
    nap(50);
    int n = recv(ends[0], &byte, 1, MSG_DONTWAIT);
    CHECK(n == -1 || byte == 'x');
    FAILS(recv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

static void pacing(void) {
    int s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    struct vma_rate_limit_t limit = {.rate = 1000, .max_burst_sz = 1500, .typical_pkt_sz = 1000};
    uint32_t rate = 1000000, now = 0;
    uint64_t fast = 5000000000, long_now = 0;
    socklen_t len = sizeof now;
    FAILS(setsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, 3), EINVAL);
    FAILS(setsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &limit, 11), EINVAL);
    FAILS(setsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, NULL, 12), EFAULT);
    FAILS(setsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &limit, sizeof limit), EOPNOTSUPP);
    CHECK(setsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0);
    CHECK(getsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &now, &len) == 0 && now == rate);
    /* As Linux: an unsigned long, and as much of it as there is room for. */
    CHECK(setsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &fast, sizeof fast) == 0);
    len = sizeof long_now;
    CHECK(getsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &long_now, &len) == 0 && long_now == fast && len == 8);
    len = sizeof now;
    CHECK(getsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &now, &len) == 0 && now == UINT32_MAX && len == 4);
    MUST(close(s));
}

static double now(void) {
    struct timespec at;
    MUST(clock_gettime(CLOCK_MONOTONIC, &at));
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* How long so many bytes take from one end to the other. */
static double transfer(int from, int to, size_t len) {
    static char bytes[1 << 16];
    double began = now();
    size_t sent = 0, received = 0;
    while (received < len) {
        if (sent < len) {
            size_t more = len - sent < sizeof bytes ? len - sent : sizeof bytes;
            ssize_t n = send(from, bytes, more, MSG_DONTWAIT);
            CHECK(n > 0 || errno == EAGAIN);
            sent += n > 0 ? n : 0;
        }
        struct pollfd ready = {.fd = to, .events = POLLIN};
        MUST(poll(&ready, 1, sent < len ? 1 : 5000));
        ssize_t n = recv(to, bytes, sizeof bytes, MSG_DONTWAIT);
        CHECK(n > 0 || errno == EAGAIN);
        received += n > 0 ? n : 0;
    }
    return now() - began;
}

/* A stream keeps its rate, in each form of the option, and what a listener accepts has the listener's. */
static void pacing_of_streams(void) {
    struct vma_rate_limit_t limit = {.rate = 16000, .max_burst_sz = 20000, .typical_pkt_sz = 1000};
    uint32_t rate = 2000000;
    uint64_t none = UINT64_MAX, shown = 0;
    socklen_t len = sizeof shown;
    int ends[2];
    stream_pair(ends);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_MAX_PACING_RATE, &limit, sizeof limit) == 0);
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_MAX_PACING_RATE, &shown, &len) == 0 && shown == 2000000 && len == 8);
    CHECK(transfer(ends[0], ends[1], 600000) > 0.25);
    /* The other direction has none. */
    transfer(ends[1], ends[0], 600000);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_MAX_PACING_RATE, &none, sizeof none) == 0);
    transfer(ends[0], ends[1], 600000);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0);
    CHECK(transfer(ends[1], ends[0], 600000) > 0.25);
    /* What was written leaves at its rate while its program does something else. */
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0);
    static char bytes[100000];
    CHECK(send(ends[0], bytes, sizeof bytes, 0) == sizeof bytes);
    size_t there = 0;
    for (int look = 0; look < 5 && there < sizeof bytes; look++) {
        nap(1000);
        ssize_t n = recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT);
        there += n > 0 ? n : 0;
    }
    CHECK(there == sizeof bytes);
    MUST(close(ends[0]));
    MUST(close(ends[1]));

    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    len = sizeof where;
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
    CHECK(setsockopt(listener, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0);
    MUST(bind(listener, SA(where), sizeof where));
    MUST(getsockname(listener, SA(where), &len));
    MUST(listen(listener, 1));
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    CHECK(setsockopt(client, SOL_SOCKET, SO_MAX_PACING_RATE, &limit, sizeof limit) == 0);
    MUST(connect(client, SA(where), sizeof where));
    int server = MUST(accept(listener, NULL, NULL));
    CHECK(transfer(server, client, 600000) > 0.25);
    CHECK(transfer(client, server, 600000) > 0.25);
    MUST(close(client));
    MUST(close(server));
    MUST(close(listener));
}

int main(void) {
    vma = vma_get_api();
    if (vma == NULL) {
        printf("no table\n");
        return 2;
    }
    CHECK((vma->vma_extra_supported_mask & VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER) != 0);
    headers();
    flow_tags();
    shutdown_rx();
    pacing();
    pacing_of_streams();
    return wrong;
}
