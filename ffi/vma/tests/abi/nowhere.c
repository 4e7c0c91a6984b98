// Pointers that lead nowhere: null, a field of a structure at null, -1. The call fails with EFAULT, as in the kernel, and nobody dies of it.
#include "common.h"
#include <sys/epoll.h>
#include <sys/select.h>

static int s[2], listening, epolls;
static socklen_t len;

// A pair, and something to read.
static void prepare(int kind) {
    struct sockaddr_in a, b;
    listening = listener(&a);
    if (kind == SOCK_DGRAM) {
        s[0] = datagram(&a), s[1] = datagram(&b);
        MUST(connect(s[0], SA(b), sizeof b));
        MUST(connect(s[1], SA(a), sizeof a));
    } else {
        stream_pair(s);
    }
    MUST(send(s[1], "hello", 5, 0));
    ready(s[0], POLLIN);
    len = sizeof a;
}

static void tidy_up(void) { MUST(close(s[0]) | close(s[1]) | close(listening)); }

#define TRY(call)                                                                                    \
    do {                                                                                             \
        prepare(kind);                                                                               \
        SHOW(call);                                                                                  \
        tidy_up();                                                                                   \
    } while (0)

static void data(int kind, void *x) {
    char b[9];
    struct iovec bad = {x, 5}, two[2] = {{b, 5}, {x, 5}};
    TRY(send(s[0], x, 5, 0));
    TRY(recv(s[0], x, 5, 0));
    TRY(write(s[0], x, 5));
    TRY(read(s[0], x, 5));
    TRY(writev(s[0], x, 1));
    TRY(readv(s[0], x, 1));
    TRY(writev(s[0], &bad, 1));
    TRY(readv(s[0], &bad, 1));
    TRY(writev(s[0], two, 2));
    TRY(sendto(s[0], x, 5, 0, NULL, 0));
    TRY(recvfrom(s[0], x, 5, 0, NULL, NULL));
}

static void names(int kind, void *x) {
    char b[9];
    struct sockaddr_in a;
    if (x) TRY(sendto(s[0], "x", 1, 0, x, sizeof a));
    TRY(recvfrom(s[0], b, 5, 0, x, &len));
    TRY(recvfrom(s[0], b, 5, 0, SA(a), x));
    TRY(getsockname(s[0], x, &len));
    TRY(getsockname(s[0], SA(a), x));
    TRY(getpeername(s[0], x, &len));
    TRY(getpeername(s[0], SA(a), x));
    TRY(connect(s[0], x, sizeof a));
    TRY(bind(s[0], x, sizeof a));
    TRY(connect(s[0], SA(a), 4000));
}

static void messages(int kind, void *x) {
    char b[9];
    struct iovec good = {b, 5}, bad = {x, 5};
    struct msghdr m = {.msg_iov = &bad, .msg_iovlen = 1}, mi = {.msg_iov = x, .msg_iovlen = 1};
    struct msghdr mn = {.msg_iov = &good, .msg_iovlen = 1, .msg_name = x, .msg_namelen = 16};
    struct msghdr mc = {.msg_iov = &good, .msg_iovlen = 1, .msg_control = x, .msg_controllen = 64};
    TRY(sendmsg(s[0], x, 0));
    TRY(recvmsg(s[0], x, 0));
    TRY(sendmsg(s[0], &m, 0));
    TRY(recvmsg(s[0], &m, 0));
    TRY(sendmsg(s[0], &mi, 0));
    TRY(recvmsg(s[0], &mi, 0));
    TRY(sendmsg(s[0], &mn, 0));
    TRY(recvmsg(s[0], &mn, 0));
    TRY(sendmsg(s[0], &mc, 0));
    TRY(recvmsg(s[0], &mc, 0));
    struct mmsghdr mm[2] = {{.msg_hdr = m}};
    TRY(sendmmsg(s[0], x, 1, 0));
    TRY(recvmmsg(s[0], x, 1, 0, NULL));
    TRY(sendmmsg(s[0], mm, 1, 0));
    TRY(recvmmsg(s[0], mm, 1, 0, NULL));
    mm[0].msg_hdr.msg_iov = &good;
    if (x) TRY(recvmmsg(s[0], mm, 1, 0, x));
}

static void options(int kind, void *x) {
    char value[256];
    static const int names[][2] = {{SOL_SOCKET, SO_ERROR}, {SOL_SOCKET, SO_TYPE}, {SOL_SOCKET, SO_LINGER}, {SOL_SOCKET, SO_RCVTIMEO},
                                   {SOL_SOCKET, SO_RCVBUF}, {SOL_SOCKET, SO_BINDTODEVICE}, {IPPROTO_TCP, TCP_INFO}, {IPPROTO_TCP, TCP_NODELAY},
                                   {IPPROTO_TCP, TCP_MAXSEG}, {IPPROTO_IP, IP_TTL}};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        printf("option %d %d\n", names[i][0], names[i][1]);
        TRY(getsockopt(s[0], names[i][0], names[i][1], x, &len));
        TRY(getsockopt(s[0], names[i][0], names[i][1], value, x));
        // (Which takes null for no name, and leaves the device.)
        if (x || names[i][1] != SO_BINDTODEVICE) TRY(setsockopt(s[0], names[i][0], names[i][1], x, 16));
    }
}

static void others(int kind, void *x) {
    TRY(ioctl(s[0], FIONREAD, x));
    TRY(ioctl(s[0], TIOCOUTQ, x));
    TRY(ioctl(s[0], FIONBIO, x));
    TRY(poll(x, 1, 0));
    TRY(ppoll(x, 1, NULL, NULL));
    TRY(epoll_ctl(epolls, EPOLL_CTL_ADD, s[0], x));
    TRY(socketpair(AF_INET, SOCK_STREAM, 0, x));
    // (Times are read by libc itself.)
    if (x) TRY(select(s[0] + 1, x, NULL, NULL, NULL));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGPIPE, SIG_IGN);
    epolls = MUST(epoll_create1(0));
    void *const nowhere[] = {NULL, (void *)8, (void *)-1};
    for (int i = 0; i < 3; i++)
        for (int kind = SOCK_STREAM; kind <= SOCK_DGRAM; kind++) {
            printf("%p of %s\n", nowhere[i], kind == SOCK_STREAM ? "streams" : "datagrams");
            data(kind, nowhere[i]);
            names(kind, nowhere[i]);
            messages(kind, nowhere[i]);
            options(kind, nowhere[i]);
            others(kind, nowhere[i]);
        }
    return 0;
}
