// Each flag of what is sent and received, and each size of room for control messages, on datagrams and streams.
#include "common.h"

// (The Extra API's mark of a packet that is to reach nobody.)
#define MSG_SYN_ 0x400

static void take(int fd, size_t data, size_t room, int flags, int name) {
    char b[64], control[256];
    struct sockaddr_in from;
    memset(control, 0x77, sizeof control);
    memset(&from, 0x66, sizeof from);
    struct iovec v = {b, data};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room ? control : NULL, .msg_controllen = room,
                       .msg_name = name < 0 ? NULL : &from, .msg_namelen = name < 0 ? 0 : name, .msg_flags = 0x1234};
    long n = recvmsg(fd, &m, flags);
    printf("data %zu, room %zu, flags %x, name %d: %ld %s, flags %x, control %zu, name %d of %x", data, room, flags, name, n,
           n < 0 ? strerrorname_np(errno) : "", m.msg_flags, m.msg_controllen, m.msg_namelen, from.sin_family);
    for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) printf(" (%d %d %zu)", c->cmsg_level, c->cmsg_type, c->cmsg_len);
    printf("\n");
}

static void empty(int fd) {
    char b[64];
    while (recv(fd, b, sizeof b, MSG_DONTWAIT) > 0) {}
}

static void set(int fd, int level, int name, int value) { MUST(setsockopt(fd, level, name, &value, sizeof value)); }

static void rooms(int from, int to) {
    for (int asked = 0; asked < 8; asked++) {
        set(to, SOL_SOCKET, SO_TIMESTAMP, asked & 1);
        set(to, IPPROTO_IP, IP_PKTINFO, asked >> 1 & 1);
        set(to, SOL_SOCKET, SO_RXQ_OVFL, asked >> 2 & 1);
        for (size_t room = 0; room <= 104; room += asked == 7 ? 1 : 8) {
            MUST(send(from, "abcdef", 6, 0));
            ready(to, POLLIN);
            take(to, 3, room, MSG_PEEK, -1);
            take(to, 3, room, MSG_TRUNC | MSG_PEEK, 16);
            take(to, 6, room, MSG_DONTWAIT, 4);
        }
    }
}

static void received(int from, int to, int with_urgent) {
    for (unsigned i = 0; i < 32; i++) {
        int flag = 1u << i;
        if (!with_urgent && (flag == MSG_OOB || flag == MSG_WAITALL)) continue;
        MUST(send(from, "abcdef", 6, 0));
        ready(to, POLLIN);
        take(to, 3, 200, flag | MSG_DONTWAIT, 16);
        empty(to);
    }
}

static void sent(int from, int to, int with_urgent) {
    char b[20] = "";
    for (unsigned i = 0; i < 32; i++) {
        int flag = 1u << i;
        if (flag == MSG_SYN_ || flag == MSG_ZEROCOPY || flag == MSG_FASTOPEN || (!with_urgent && flag == MSG_OOB)) continue;
        struct iovec v = {"abcdef", 6};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
        for (int as_message = 0; as_message < 2; as_message++) {
            long n = as_message ? sendmsg(from, &m, flag | MSG_DONTWAIT) : send(from, "abcdef", 6, flag | MSG_DONTWAIT);
            printf("sent with %x: %ld %s", flag, n, n < 0 ? strerrorname_np(errno) : "");
            if (flag == MSG_MORE) printf(" %ld", (long)send(from, "gh", 2, 0));
            nap(5);
            n = recv(to, b, sizeof b, MSG_DONTWAIT);
            printf(", received %ld %s\n", n, n < 0 ? strerrorname_np(errno) : "");
        }
    }
}

// Control messages that go with what is sent. (Rights and credentials are for Unix sockets.)
static void controls(const char *what, int from, int to) {
    static const int levels[] = {SOL_SOCKET, IPPROTO_IP, IPPROTO_UDP, IPPROTO_TCP};
    struct iovec v = {"abc", 3};
    for (int level = 0; level < 4; level++)
        for (int kind = 0; kind < 60; kind++)
            for (int len = 0; len < 20; len += 4) {
                char room[64] = "", b[8];
                if (level == 0 && (kind == SCM_RIGHTS || kind == 2)) continue;
                struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = CMSG_SPACE(len)};
                struct cmsghdr *c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = levels[level], c->cmsg_type = kind, c->cmsg_len = CMSG_LEN(len);
                if (len) CMSG_DATA(c)[0] = 1;
                long n = sendmsg(from, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
                printf("%s with %d %d %d: %ld %s\n", what, levels[level], kind, len, n, n < 0 ? strerrorname_np(errno) : "");
                if (n > 0) ready(to, POLLIN);
                if (n > 0) MUST(recv(to, b, sizeof b, 0));
            }
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    struct sockaddr_in a, b;
    int from = datagram(&a), to = datagram(&b), s[2];
    MUST(connect(from, SA(b), sizeof b));
    rooms(from, to);
    received(from, to, 1);
    sent(from, to, 1);
    stream_pair(s);
    // (Of what comes in two segments, a receiver may see one.)
    set(s[0], IPPROTO_TCP, TCP_NODELAY, 1);
    received(s[0], s[1], 0);
    sent(s[0], s[1], 0);
    controls("stream", s[0], s[1]);
    controls("datagram", from, to);
    set(s[1], SOL_SOCKET, SO_RXQ_OVFL, 1);
    set(s[1], IPPROTO_IP, IP_PKTINFO, 1);
    set(s[1], IPPROTO_IP, IP_RECVTTL, 1);
    set(s[1], SOL_SOCKET, SO_TIMESTAMP, 1);
    for (size_t room = 0; room < 60; room += 4) {
        MUST(send(s[0], "abc", 3, 0));
        ready(s[1], POLLIN);
        take(s[1], 10, room, 0, 16);
    }
    return 0;
}
