// TCP_INQ: how much more there is to be received, as a control message with what recvmsg received; and other options that programs set as a
// matter of course.
#include "common.h"

#ifndef SO_INCOMING_CPU
#define SO_INCOMING_CPU 49
#endif
#ifndef TCP_INQ
#define TCP_INQ 36
#endif

static int set(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

static int get(int fd, int level, int name) {
    int value = -77;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, name, &value, &len) == 0 ? value : -errno;
}

// Bytes that wait, the peer's end not counted.
static void await_bytes(int fd, int bytes) {
    int there = -1;
    for (int tries = 0; tries < 2000 && there != bytes; tries++) {
        MUST(ioctl(fd, FIONREAD, &there));
        if (there != bytes)
            nap(1);
    }
    SHOW(there);
}

// Receives, and shows the messages that come with it.
static void receive(int fd, size_t wanted, size_t room, int flags) {
    static char bytes[4096];
    char control[128];
    struct iovec v = {bytes, wanted};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room, .msg_flags = 0x1234};
    ssize_t got = 0;
    memset(control, 0, sizeof control);
    SHOW(got = recvmsg(fd, &m, flags));
    SHOW(m.msg_controllen);
    SHOW(m.msg_flags);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); got >= 0 && c; c = CMSG_NXTHDR(&m, c)) {
        SHOW(c->cmsg_level);
        SHOW(c->cmsg_type);
        SHOW(c->cmsg_len);
        int value = -1;
        if (c->cmsg_type == TCP_INQ && c->cmsg_len == CMSG_LEN(sizeof value)) {
            memcpy(&value, CMSG_DATA(c), sizeof value);
            SHOW(value);
        }
    }
}

static void values(void) {
    int s[2];
    stream_pair(s);
    SHOW(get(s[0], IPPROTO_TCP, TCP_INQ));
    for (int value = -1; value <= 3; value++) {
        SHOW(set(s[0], IPPROTO_TCP, TCP_INQ, value));
        SHOW(get(s[0], IPPROTO_TCP, TCP_INQ));
        SHOW(set(s[1], IPPROTO_TCP, TCP_INQ, value));
        SHOW(get(s[1], IPPROTO_TCP, TCP_INQ));
    }
    char one = 1;
    SHOW(setsockopt(s[0], IPPROTO_TCP, TCP_INQ, &one, 1));
    SHOW(setsockopt(s[1], IPPROTO_TCP, TCP_INQ, &one, 1));
    SHOW(setsockopt(s[0], IPPROTO_TCP, TCP_INQ, NULL, sizeof(int)));
    MUST(send(s[1], "0123456789", 10, 0));
    await_bytes(s[0], 10);
    receive(s[0], 4, 64, 0);
    SHOW(set(s[0], IPPROTO_TCP, TCP_INQ, 0));
    receive(s[0], 2, 64, 0);
    SHOW(set(s[0], IPPROTO_TCP, TCP_INQ, 1));
    receive(s[0], 2, 64, 0);
    int copy = MUST(dup(s[0]));
    receive(copy, 1, 64, 0);
    MUST(close(copy));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void how_much(void) {
    int s[2];
    char b[16];
    stream_pair(s);
    MUST(set(s[0], IPPROTO_TCP, TCP_INQ, 1));
    receive(s[0], 10, 64, MSG_DONTWAIT);
    MUST(send(s[1], "0123456789", 10, 0));
    await_bytes(s[0], 10);
    receive(s[0], 3, 64, MSG_PEEK);
    receive(s[0], 10, 64, MSG_PEEK);
    receive(s[0], 0, 64, 0);
    receive(s[0], 3, 64, 0);
    receive(s[0], 2, 64, MSG_TRUNC);
    receive(s[0], 1, 64, MSG_WAITALL);
    receive(s[0], 1, 64, MSG_ERRQUEUE);
    SHOW(recv(s[0], b, 1, 0));
    receive(s[0], 10, 64, 0);
    receive(s[0], 10, 64, MSG_DONTWAIT);
    SHOW(set(s[0], SOL_SOCKET, SO_TIMESTAMP, 1));
    // (The kernel takes its time to begin with stamps.)
    nap(100);
    MUST(send(s[1], "0123456789", 10, 0));
    await_bytes(s[0], 10);
    for (size_t room = 0; room <= 72; room += 4)
        receive(s[0], 3, room, MSG_PEEK);
    SHOW(set(s[0], SOL_SOCKET, SO_TIMESTAMP, 0));
    for (size_t room = 0; room <= 32; room += 2)
        receive(s[0], 3, room, MSG_PEEK);
    // The end counts as something to be received, before it was and after.
    MUST(shutdown(s[1], SHUT_WR));
    SHOW(ready(s[0], POLLRDHUP));
    receive(s[0], 3, 64, MSG_PEEK);
    receive(s[0], 3, 64, 0);
    receive(s[0], 7, 64, MSG_PEEK);
    receive(s[0], 7, 64, 0);
    receive(s[0], 7, 64, MSG_PEEK);
    receive(s[0], 7, 64, 0);
    receive(s[0], 7, 64, 0);
    receive(s[0], 0, 64, 0);
    MUST(shutdown(s[0], SHUT_WR));
    nap(20);
    receive(s[0], 7, 64, 0);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void ends(void) {
    int s[2];
    // Our own end.
    stream_pair(s);
    MUST(set(s[0], IPPROTO_TCP, TCP_INQ, 1));
    MUST(send(s[1], "0123456789", 10, 0));
    await_bytes(s[0], 10);
    SHOW(shutdown(s[0], SHUT_RD));
    receive(s[0], 3, 64, 0);
    receive(s[0], 7, 64, 0);
    receive(s[0], 7, 64, 0);
    MUST(close(s[0]));
    MUST(close(s[1]));
    // A reset.
    stream_pair(s);
    MUST(set(s[0], IPPROTO_TCP, TCP_INQ, 1));
    struct linger at_once = {1, 0};
    MUST(setsockopt(s[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    MUST(close(s[1]));
    SHOW(ready(s[0], POLLRDHUP));
    receive(s[0], 3, 64, 0);
    receive(s[0], 3, 64, 0);
    MUST(close(s[0]));
}

static void inherited(void) {
    struct sockaddr_in where;
    int l = listener(&where), before[2], after[2];
    MUST(set(l, IPPROTO_TCP, TCP_INQ, 1));
    for (int i = 0; i < 2; i++) {
        before[i] = MUST(socket(AF_INET, SOCK_STREAM, 0));
        if (i == 1)
            MUST(set(before[i], IPPROTO_TCP, TCP_INQ, 1));
        MUST(connect(before[i], SA(where), sizeof where));
        after[i] = MUST(accept4(l, NULL, NULL, i ? SOCK_NONBLOCK : 0));
        SHOW(get(before[i], IPPROTO_TCP, TCP_INQ));
        SHOW(get(after[i], IPPROTO_TCP, TCP_INQ));
        MUST(send(before[i], "0123456789", 10, 0));
        MUST(send(after[i], "0123456789", 10, 0));
        await_bytes(before[i], 10);
        await_bytes(after[i], 10);
        receive(before[i], 4, 64, 0);
        receive(after[i], 4, 64, 0);
    }
    receive(l, 4, 64, 0);
    // Whatever carries the connection after a fork, and in whichever process.
    pid_t child = fork();
    if (child == 0) {
        receive(after[1], 4, 64, 0);
        receive(before[0], 1, 64, 0);
        SHOW(get(before[1], IPPROTO_TCP, TCP_INQ));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    SHOW(get(before[1], IPPROTO_TCP, TCP_INQ));
    SHOW(get(after[1], IPPROTO_TCP, TCP_INQ));
    receive(before[1], 4, 64, 0);
    receive(after[1], 1, 64, 0);
    receive(after[0], 1, 64, 0);
    for (int i = 0; i < 2; i++) {
        MUST(close(before[i]));
        MUST(close(after[i]));
    }
    MUST(close(l));
}

static void several(void) {
    int s[2];
    stream_pair(s);
    MUST(set(s[0], IPPROTO_TCP, TCP_INQ, 1));
    MUST(send(s[1], "0123456789", 10, 0));
    await_bytes(s[0], 10);
    char bytes[4][4], control[4][64];
    struct iovec v[4];
    struct mmsghdr m[4] = {0};
    for (int i = 0; i < 4; i++) {
        v[i] = (struct iovec){bytes[i], 3};
        m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = i == 1 ? 18 : 64};
    }
    SHOW(recvmmsg(s[0], m, 4, MSG_DONTWAIT, NULL));
    for (int i = 0; i < 4; i++) {
        int value = -1;
        SHOW(m[i].msg_len);
        SHOW(m[i].msg_hdr.msg_flags);
        SHOW(m[i].msg_hdr.msg_controllen);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m[i].msg_hdr);
        if (i != 1)
            memcpy(&value, CMSG_DATA(c), sizeof value);
        SHOW(value);
    }
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static const struct {
    int level, name, value;
} USUAL[] = {
    // nginx, haproxy, envoy, Go, Node, Netty, gRPC, PostgreSQL, OpenSSH and curl set these on connections or on listeners.
    {SOL_SOCKET, SO_KEEPALIVE, 1},      {SOL_SOCKET, SO_PRIORITY, 5},        {SOL_SOCKET, SO_MARK, 7},
    {SOL_SOCKET, SO_BUSY_POLL, 0},      {SOL_SOCKET, SO_INCOMING_CPU, 0},    {SOL_SOCKET, SO_ZEROCOPY, 1},
    {SOL_SOCKET, SO_RXQ_OVFL, 1},       {SOL_SOCKET, SO_OOBINLINE, 1},       {SOL_SOCKET, SO_TIMESTAMPNS, 1},
    {SOL_SOCKET, SO_REUSEADDR, 1},      {SOL_SOCKET, SO_DONTROUTE, 1},       {SOL_SOCKET, SO_BROADCAST, 1},
    {SOL_SOCKET, SO_RCVBUF, 70000},     {SOL_SOCKET, SO_SNDBUF, 70000},      {SOL_SOCKET, SO_RCVLOWAT, 1},
    {SOL_SOCKET, SO_NO_CHECK, 0},       {SOL_SOCKET, SO_PASSCRED, 0},        {SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1},
    {IPPROTO_TCP, TCP_NODELAY, 1},      {IPPROTO_TCP, TCP_KEEPIDLE, 45},     {IPPROTO_TCP, TCP_KEEPINTVL, 45},
    {IPPROTO_TCP, TCP_KEEPCNT, 5},      {IPPROTO_TCP, TCP_USER_TIMEOUT, 20000}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, 1}, {IPPROTO_TCP, TCP_LINGER2, 9},       {IPPROTO_TCP, TCP_SYNCNT, 3},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP, 65536}, {IPPROTO_TCP, TCP_QUICKACK, 1},  {IPPROTO_TCP, TCP_CORK, 0},
    {IPPROTO_TCP, TCP_INQ, 1},          {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1}, {IPPROTO_TCP, 37 /* TCP_TX_DELAY */, 0},
    {IPPROTO_IP, IP_TOS, 0x10},         {IPPROTO_IP, IP_TTL, 33},            {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1},
    {IPPROTO_IP, IP_RECVERR, 1},        {IPPROTO_IP, IP_RECVTOS, 1},         {IPPROTO_IP, IP_RECVTTL, 1},
    {IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO}, {IPPROTO_IP, IP_FREEBIND, 1}, {IPPROTO_IP, IP_TRANSPARENT, 0},
};

// What programs set as a matter of course is set, and the bytes go where they went before.
static void usual(void) {
    int s[2];
    char b[16] = "";
    stream_pair(s);
    for (unsigned i = 0; i < sizeof USUAL / sizeof *USUAL; i++)
        for (int side = 0; side < 2; side++) {
            printf("%d %d: ", USUAL[i].level, USUAL[i].name);
            SHOW(set(s[side], USUAL[i].level, USUAL[i].name, USUAL[i].value));
        }
    // A kernel without TLS says so; where one has it, this is no name of a protocol.
    SHOW(setsockopt(s[0], IPPROTO_TCP, TCP_ULP, "none such", 9));
    SHOW(setsockopt(s[1], IPPROTO_TCP, TCP_ULP, "none such", 9));
    SHOW(setsockopt(s[1], IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    SHOW(send(s[1], "0123456789", 10, 0));
    SHOW(recv(s[0], b, 10, MSG_WAITALL));
    SHOW(strcmp(b, "0123456789"));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    values();
    how_much();
    ends();
    several();
    usual();
    inherited();
    return 0;
}
