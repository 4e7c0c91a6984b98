// What depends on the order of calls: a UDP client before its server, a connect that nobody asked the end of, IPV6_V6ONLY.
#include "common.h"

// The client is connected before its server is there; more than a moment later it must be offloaded all the same.
static void before_the_server(void) {
    struct sockaddr_in where;
    MUST(close(datagram(&where)));
    int c = MUST(socket(AF_INET, SOCK_DGRAM, 0)), s = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    SHOW(connect(c, SA(where), sizeof where));
    MUST(bind(s, SA(where), sizeof where));
    nap(150);
    struct timeval t = {.tv_sec = 3};
    MUST(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    MUST(setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    struct sockaddr_in from;
    for (int i = 0; i < 3; i++) {
        char b[8];
        socklen_t len = sizeof from;
        SHOW(send(c, "late", 4, 0));
        SHOW(recvfrom(s, b, 8, 0, SA(from), &len));
        SHOW(sendto(s, b, 4, 0, SA(from), len));
        SHOW(recv(c, b, 8, 0));
    }
    // A stranger's datagrams are not for a connected socket.
    struct sockaddr_in other;
    int stranger = datagram(&other);
    char b[8];
    SHOW(sendto(stranger, "strange", 7, 0, SA(from), sizeof from));
    SHOW(recv(c, b, 8, MSG_DONTWAIT));
    MUST(close(stranger));
    MUST(close(c));
    MUST(close(s));
}

static void unasked(void) {
    struct sockaddr_in where;
    int l = listener(&where), fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(ready(fd, POLLOUT));
    struct sockaddr_in no = {.sin_family = AF_UNSPEC};
    SHOW(connect(fd, SA(no), sizeof no));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(ready(fd, POLLOUT));
    MUST(close(accept(l, NULL, NULL)));
    int a = MUST(accept(l, NULL, NULL));
    // A timed SO_LINGER waits for the peer although nobody asked how the connect ended.
    struct linger g = {.l_onoff = 1, .l_linger = 1};
    SHOW(setsockopt(fd, SOL_SOCKET, SO_LINGER, &g, sizeof g));
    static char block[1 << 16];
    while (send(fd, block, sizeof block, 0) > 0) {}
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    SHOW(close(fd));
    clock_gettime(CLOCK_MONOTONIC, &after);
    SHOW((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 > 800);
    MUST(close(a));
    MUST(close(l));
}

static void v6_only(void) {
    int one = 1, six = socket(AF_INET6, SOCK_STREAM, 0);
    if (six < 0)
        return;
    struct sockaddr_in where = loopback(unused_port(SOCK_STREAM));
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = where.sin_port};
    MUST(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
    MUST(bind(six, SA(any), sizeof any));
    MUST(listen(six, 4));
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(fd, SA(where), sizeof where));
    MUST(close(fd));
    int four = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(bind(four, SA(where), sizeof where));
    SHOW(listen(four, 4));
    fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(ready(four, POLLIN));
    MUST(close(fd));
    // A V6ONLY client does not reach IPv4 by a mapped address.
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = where.sin_port};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
    fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
    SHOW(connect(fd, SA(mapped), sizeof mapped));
    MUST(close(fd));
    fd = MUST(socket(AF_INET6, SOCK_DGRAM, 0));
    MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
    struct sockaddr_in udp;
    int u = datagram(&udp);
    mapped.sin6_port = udp.sin_port;
    SHOW(sendto(fd, "x", 1, 0, SA(mapped), sizeof mapped));
    MUST(close(u));
    MUST(close(fd));
    MUST(close(four));
    MUST(close(six));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    before_the_server();
    unasked();
    v6_only();
    return 0;
}
