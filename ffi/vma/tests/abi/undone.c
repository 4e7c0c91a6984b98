// Connections that are taken back: connect with AF_UNSPEC, shutdown of a handshake, connect after the end; and MSG_ZEROCOPY's completions.
#include "common.h"
#include <linux/errqueue.h>
#include <sys/epoll.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

static int pending(int fd) {
    int e = -1;
    socklen_t len = sizeof e;
    MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len));
    return e;
}

static int no_connection(int fd) {
    struct sockaddr no = {.sa_family = AF_UNSPEC};
    return connect(fd, &no, sizeof no);
}

static int state(int fd) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
    return info.tcpi_state;
}

static void unspecified(void) {
    int s[2];
    char b[8];
    struct sockaddr_in where;
    stream_pair(s);
    SHOW(no_connection(s[0]));
    SHOW(state(s[0]));
    SHOW(ready(s[0], POLLIN | POLLOUT));
    SHOW(pending(s[0]));
    SHOW(pending(s[0]));
    SHOW(ready(s[0], POLLIN | POLLOUT));
    SHOW(recv(s[1], b, 8, 0));
    MUST(close(s[0]));
    MUST(close(s[1]));
    // The error is the next call's.
    stream_pair(s);
    MUST(no_connection(s[0]));
    SHOW(recv(s[0], b, 8, 0));
    SHOW(recv(s[0], b, 8, 0));
    MUST(close(s[1]));
    int l = listener(&where);
    SHOW(connect(s[0], SA(where), sizeof where));
    int a = MUST(accept(l, NULL, NULL));
    SHOW(send(s[0], "again", 5, 0));
    SHOW(recv(a, b, 8, 0));
    SHOW(no_connection(s[0]));
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    SHOW(connect(s[0], SA(where), sizeof where));
    SHOW(pending(s[0]));
    MUST(close(a));
    MUST(close(s[0]));
    MUST(close(l));
    // Nothing to undo.
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(no_connection(fd));
    SHOW(pending(fd));
    MUST(close(fd));
    // After a reset, and after both ends: there is nothing to reset any more.
    stream_pair(s);
    struct linger none = {.l_onoff = 1};
    MUST(setsockopt(s[1], SOL_SOCKET, SO_LINGER, &none, sizeof none));
    MUST(close(s[1]));
    nap(20);
    SHOW(recv(s[0], b, 8, 0));
    SHOW(no_connection(s[0]));
    SHOW(pending(s[0]));
    MUST(close(s[0]));
    stream_pair(s);
    MUST(shutdown(s[0], SHUT_WR));
    MUST(shutdown(s[1], SHUT_WR));
    nap(20);
    SHOW(recv(s[0], b, 8, 0));
    SHOW(no_connection(s[0]));
    SHOW(pending(s[0]));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

// A listener whose queue is full answers nobody: handshakes stay under way.
static int half_open(int *l, int others[3]) {
    struct sockaddr_in where = loopback(0);
    *l = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(bind(*l, SA(where), sizeof where));
    MUST(listen(*l, 0));
    socklen_t len = sizeof where;
    MUST(getsockname(*l, SA(where), &len));
    for (int i = 0; i < 3; i++) {
        others[i] = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        connect(others[i], SA(where), sizeof where);
        nap(20);
    }
    int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    SHOW(connect(fd, SA(where), sizeof where));
    nap(20);
    SHOW(state(fd));
    return fd;
}

static void handshakes(void) {
    char b[8];
    for (int how = SHUT_RD; how <= SHUT_RDWR; how++) {
        int l, others[3], fd = half_open(&l, others);
        SHOW(shutdown(fd, how));
        SHOW(state(fd));
        SHOW(ready(fd, POLLIN | POLLOUT));
        SHOW(how == SHUT_RD ? pending(fd) : recv(fd, b, 8, 0));
        SHOW(shutdown(fd, how));
        SHOW(ready(fd, POLLIN | POLLOUT));
        for (int i = 0; i < 3; i++)
            MUST(close(others[i]));
        MUST(close(fd));
        MUST(close(l));
    }
    int l, others[3], fd = half_open(&l, others);
    SHOW(no_connection(fd));
    SHOW(pending(fd));
    for (int i = 0; i < 3; i++)
        MUST(close(others[i]));
    MUST(close(fd));
    MUST(close(l));
}

static void after_the_end(void) {
    struct sockaddr_in where;
    char b[8];
    int l = listener(&where), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(where), sizeof where));
    int a = MUST(accept(l, NULL, NULL));
    MUST(shutdown(fd, SHUT_WR));
    SHOW(recv(a, b, 8, 0));
    MUST(close(a));
    nap(30);
    SHOW(recv(fd, b, 8, 0));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(pending(fd));
    MUST(close(fd));
    // The program was never told that the handshake had ended.
    fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    SHOW(connect(fd, SA(where), sizeof where));
    a = MUST(accept(l, NULL, NULL));
    MUST(shutdown(fd, SHUT_WR));
    MUST(close(a));
    nap(30);
    SHOW(connect(fd, SA(where), sizeof where));
    MUST(close(fd));
    MUST(close(l));
}

static void completion(int fd) {
    char b[8], control[128];
    struct iovec v = {b, 8};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n;
    SHOW(n = recvmsg(fd, &m, MSG_ERRQUEUE));
    if (n < 0)
        return;
    SHOW(m.msg_flags);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        SHOW(c->cmsg_level);
        SHOW(c->cmsg_type);
        SHOW(c->cmsg_len);
        struct sock_extended_err *e = (void *)CMSG_DATA(c);
        SHOW(e->ee_errno);
        SHOW(e->ee_origin);
        SHOW(e->ee_type);
        SHOW(e->ee_code);
        SHOW(e->ee_info);
        SHOW(e->ee_data);
    }
}

static void zerocopy(void) {
    int s[2], on = 1, v = -1;
    char b[64];
    socklen_t len = sizeof v;
    stream_pair(s);
    // Without the option the flag means nothing.
    SHOW(send(s[0], "copied", 6, MSG_ZEROCOPY));
    SHOW(recv(s[1], b, 64, 0));
    SHOW(recv(s[0], b, 64, MSG_ERRQUEUE));
    SHOW(setsockopt(s[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
    SHOW(getsockopt(s[0], SOL_SOCKET, SO_ZEROCOPY, &v, &len));
    SHOW(v);
    int e = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(e, EPOLL_CTL_ADD, s[0], &event));
    SHOW(send(s[0], "first", 5, MSG_ZEROCOPY));
    SHOW(recv(s[1], b, 64, 0));
    SHOW(epoll_wait(e, &event, 1, 3000));
    SHOW(event.events);
    SHOW(ready(s[0], POLLIN));
    completion(s[0]);
    SHOW(epoll_wait(e, &event, 1, 0));
    for (int i = 0; i < 3; i++) {
        MUST(send(s[0], "more", 4, MSG_ZEROCOPY));
        MUST(send(s[0], "plain", 5, 0));
        SHOW(recv(s[1], b, 9, MSG_WAITALL));
        nap(5);
    }
    SHOW(ready(s[0], 0));
    completion(s[0]);
    completion(s[0]);
    SHOW(pending(s[0]));
    v = 5;
    SHOW(setsockopt(s[0], SOL_SOCKET, SO_ZEROCOPY, &v, sizeof v));
    v = 0;
    SHOW(setsockopt(s[0], SOL_SOCKET, SO_ZEROCOPY, &v, sizeof v));
    SHOW(send(s[0], "off", 3, MSG_ZEROCOPY));
    SHOW(recv(s[1], b, 64, 0));
    SHOW(recv(s[0], b, 64, MSG_ERRQUEUE));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    unspecified();
    handshakes();
    after_the_end();
    zerocopy();
    return 0;
}
