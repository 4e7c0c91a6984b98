// UDP: datagrams put together by several sends, connect and its undoing, control messages, times.
#include "common.h"
#include <linux/net_tstamp.h>
#include <netinet/udp.h>
#include <sys/epoll.h>

static struct sockaddr_in where;

static ssize_t next(int fd, char *into, size_t room) {
    nap(5);
    memset(into, 0, room);
    return recv(fd, into, room, MSG_DONTWAIT);
}

static void more(void) {
    int u = datagram(&where), v = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    char b[70000];
    struct sockaddr_in elsewhere;
    int w = datagram(&elsewhere);
    MUST(connect(v, SA(where), sizeof where));
    MUST(send(v, "first", 5, 0));
    SHOW(next(u, b, 64));
    SHOW(send(v, "one ", 4, MSG_MORE));
    SHOW(next(u, b, 64));
    SHOW(send(v, "two ", 4, MSG_MORE));
    SHOW(send(v, "three", 5, 0));
    SHOW(next(u, b, 64));
    SHOW(strcmp(b, "one two three"));
    SHOW(next(u, b, 64));
    // The first piece says where to.
    SHOW(sendto(v, "else ", 5, MSG_MORE, SA(elsewhere), sizeof elsewhere));
    SHOW(sendto(v, "where", 5, 0, SA(where), sizeof where));
    SHOW(next(u, b, 64));
    SHOW(next(w, b, 64));
    SHOW(strcmp(b, "else where"));
    // An empty last piece.
    SHOW(send(v, "lone", 4, MSG_MORE));
    SHOW(send(v, "", 0, 0));
    SHOW(next(u, b, 64));
    // Corked, and let go.
    int on = 1, off = 0, value = -1;
    socklen_t len = sizeof value;
    SHOW(setsockopt(v, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
    SHOW(getsockopt(v, IPPROTO_UDP, UDP_CORK, &value, &len));
    SHOW(value);
    SHOW(send(v, "cork ", 5, 0));
    SHOW(write(v, "and ", 4));
    struct iovec parts[2] = {{"bottle", 6}, {"s", 1}};
    SHOW(writev(v, parts, 2));
    SHOW(next(u, b, 64));
    SHOW(setsockopt(v, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
    SHOW(next(u, b, 64));
    SHOW(strcmp(b, "cork and bottles"));
    SHOW(setsockopt(v, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
    SHOW(send(v, "plain", 5, 0));
    SHOW(next(u, b, 64));
    // Too much drops it all.
    static char big[40000];
    SHOW(send(v, big, sizeof big, MSG_MORE));
    SHOW(send(v, big, sizeof big, MSG_MORE));
    SHOW(send(v, "after", 5, 0));
    SHOW(next(u, b, sizeof b));
    // Not connected: nowhere to go.
    int x = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    SHOW(send(x, "x", 1, MSG_MORE));
    SHOW(sendto(x, "to ", 3, MSG_MORE, SA(where), sizeof where));
    SHOW(send(x, "here", 4, 0));
    SHOW(next(u, b, 64));
    MUST(close(x));
    MUST(close(w));
    MUST(close(v));
    MUST(close(u));
}

// Connected elsewhere, or nowhere, between the pieces: who gets the whole. `named`: the first piece says where to.
static void connected_between(int named, int again, int longer) {
    struct sockaddr_in other, third, mine, no = {.sin_family = AF_UNSPEC};
    int u = datagram(&where), w = datagram(&other), x = datagram(&third), v = datagram(&mine);
    char b[64];
    MUST(connect(v, SA(where), sizeof where));
    SHOW(send(v, "warm", 4, 0));
    SHOW(next(u, b, sizeof b));
    SHOW(named ? sendto(v, "one ", 4, MSG_MORE, SA(third), sizeof third) : send(v, "one ", 4, MSG_MORE));
    SHOW(again ? connect(v, SA(other), sizeof other) : connect(v, SA(no), sizeof no));
    if (longer) SHOW(send(v, "two ", 4, MSG_MORE));
    SHOW(send(v, "three", 5, 0));
    SHOW(next(u, b, sizeof b));
    SHOW(next(w, b, sizeof b));
    SHOW(next(x, b, sizeof b));
    // And the next one goes to the peer.
    SHOW(send(v, "plain", 5, 0));
    SHOW(next(u, b, sizeof b));
    SHOW(next(w, b, sizeof b));
    for (int i = 0, all[] = {u, w, x, v}; i < 4; i++) MUST(close(all[i]));
}

static void connected(void) {
    struct sockaddr_in other, name, no = {.sin_family = AF_UNSPEC};
    char b[64];
    socklen_t len = sizeof name;
    int u = datagram(&where), w = datagram(&other), v = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    SHOW(send(v, "x", 1, 0));
    SHOW(connect(v, SA(where), sizeof where));
    SHOW(send(v, "x", 1, 0));
    SHOW(next(u, b, 64));
    SHOW(getsockname(v, SA(name), &len));
    SHOW(sendto(w, "stranger", 8, 0, SA(name), sizeof name));
    SHOW(next(v, b, 64));
    SHOW(sendto(u, "friend", 6, 0, SA(name), sizeof name));
    SHOW(next(v, b, 64));
    SHOW(connect(v, SA(other), sizeof other));
    SHOW(send(v, "to the other", 12, 0));
    SHOW(next(w, b, 64));
    SHOW(next(u, b, 64));
    SHOW(connect(v, SA(no), sizeof no));
    SHOW(send(v, "x", 1, 0));
    len = sizeof name;
    SHOW(getpeername(v, SA(name), &len));
    SHOW(sendto(v, "any", 3, 0, SA(where), sizeof where));
    SHOW(next(u, b, 64));
    // A bound one keeps its address.
    struct sockaddr_in mine;
    int x = datagram(&mine);
    SHOW(connect(x, SA(where), sizeof where));
    SHOW(connect(x, SA(no), sizeof no));
    SHOW(sendto(w, "again", 5, 0, SA(mine), sizeof mine));
    SHOW(next(x, b, 64));
    SHOW(shutdown(x, SHUT_RDWR));
    MUST(close(x));
    MUST(close(u));
    MUST(close(v));
    MUST(close(w));
}

// The times are near now, and in order; each kind has its message.
static void times(int option, int value) {
    int u = datagram(&where), v = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    char b[64], control[256];
    struct iovec vector = {b, 64};
    SHOW(setsockopt(u, SOL_SOCKET, option, &value, sizeof value));
    struct timespec before, after;
    MUST(connect(v, SA(where), sizeof where));
    MUST(send(v, "warm", 4, 0));
    SHOW(recv(u, b, 64, 0));
    clock_gettime(CLOCK_REALTIME, &before);
    MUST(send(v, "stamped", 7, 0));
    nap(300);
    clock_gettime(CLOCK_REALTIME, &after);
    struct msghdr m = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    SHOW(recvmsg(u, &m, 0));
    SHOW(m.msg_controllen);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        SHOW(c->cmsg_level);
        SHOW(c->cmsg_type);
        SHOW(c->cmsg_len);
        struct timespec t;
        memcpy(&t, CMSG_DATA(c), sizeof t);
        double at = t.tv_sec + t.tv_nsec / (option == SO_TIMESTAMP ? 1e6 : 1e9);
        double first = before.tv_sec + before.tv_nsec / 1e9, last = after.tv_sec + after.tv_nsec / 1e9;
        SHOW(at > first - 0.001);
        SHOW(at < last - 0.02);
    }
    MUST(close(u));
    MUST(close(v));
}

// Both worlds wake one waiter for what is exclusive, and refuse what cannot be.
static void exclusive(void) {
    int e = MUST(epoll_create1(0)), s[2];
    stream_pair(s);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    SHOW(epoll_ctl(e, EPOLL_CTL_ADD, s[0], &event));
    SHOW(epoll_ctl(e, EPOLL_CTL_MOD, s[0], &event));
    event.events = EPOLLIN;
    SHOW(epoll_ctl(e, EPOLL_CTL_MOD, s[0], &event));
    event.events = EPOLLIN | EPOLLONESHOT | EPOLLEXCLUSIVE;
    SHOW(epoll_ctl(e, EPOLL_CTL_ADD, s[1], &event));
    MUST(send(s[1], "x", 1, 0));
    struct timespec soon = {.tv_nsec = 500000000}, bad = {.tv_nsec = 1000000000};
    SHOW(epoll_pwait2(e, &event, 1, &soon, NULL));
    SHOW(event.events);
    SHOW(epoll_pwait2(e, &event, 1, &bad, NULL));
    char b;
    MUST(recv(s[0], &b, 1, 0));
    soon.tv_nsec = 1000;
    SHOW(epoll_pwait2(e, &event, 1, &soon, NULL));
    SHOW(epoll_pwait2(e, &event, 0, &soon, NULL));
    SHOW(epoll_ctl(e, EPOLL_CTL_DEL, s[0], NULL));
    // Beyond FD_SETSIZE.
    struct pollfd p = {.fd = MUST(fcntl(s[0], F_DUPFD, 1500)), .events = POLLIN};
    MUST(send(s[1], "y", 1, 0));
    SHOW(poll(&p, 1, 1000));
    unsigned long sets[3][32] = {0};
    sets[0][p.fd / 64] |= 1UL << p.fd % 64;
    sets[1][p.fd / 64] |= 1UL << p.fd % 64;
    struct timeval tv = {.tv_sec = 1};
    SHOW(select(p.fd + 1, (fd_set *)sets[0], (fd_set *)sets[1], NULL, &tv));
    SHOW(sets[0][p.fd / 64] != 0);
    SHOW(select(0, NULL, NULL, NULL, &(struct timeval){0}));
    SHOW(select(-1, NULL, NULL, NULL, &(struct timeval){0}));
    sets[2][0] = 1UL << 60;
    SHOW(select(64, (fd_set *)sets[2], NULL, NULL, &(struct timeval){0}));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    // The kernel begins to take times some moments after the first socket that asked for them.
    int on = 1, first = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(setsockopt(first, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
    more();
    for (int i = 0; i < 8; i++) connected_between(i & 1, i & 2, i & 4);
    connected();
    times(SO_TIMESTAMP, 1);
    times(SO_TIMESTAMPNS, 1);
    times(SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
    exclusive();
    return 0;
}
