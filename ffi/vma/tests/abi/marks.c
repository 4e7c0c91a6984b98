// How much is received at once: SO_RCVLOWAT, MSG_WAITALL, MSG_PEEK, MSG_TRUNC; and what recvmsg leaves in its header.
#include "common.h"
#include <sys/epoll.h>

static void *later(void *argument) {
    int fd = *(int *)argument;
    nap(40);
    send(fd, "67890", 5, 0);
    return NULL;
}

static void *later_still(void *argument) {
    int fd = *(int *)argument;
    nap(40);
    send(fd, "6789012345", 10, 0);
    return NULL;
}

static int low(int fd, int bytes) { return setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes); }

static int polled(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    nap(10);
    poll(&p, 1, 0);
    return p.revents;
}

static void low_water(void) {
    int s[2], v = -1;
    char b[64];
    pthread_t t;
    socklen_t len = sizeof v;
    stream_pair(s);
    int e = MUST(epoll_create1(0)), edge = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN}, once = {.events = EPOLLIN | EPOLLET};
    MUST(epoll_ctl(e, EPOLL_CTL_ADD, s[0], &event));
    MUST(epoll_ctl(edge, EPOLL_CTL_ADD, s[0], &once));
    SHOW(low(s[0], 8));
    SHOW(getsockopt(s[0], SOL_SOCKET, SO_RCVLOWAT, &v, &len));
    SHOW(v);
    MUST(send(s[1], "12345", 5, 0));
    SHOW(polled(s[0]));
    SHOW(epoll_wait(e, &event, 1, 20));
    SHOW(epoll_wait(edge, &once, 1, 20));
    // Who does not block takes what there is; who does waits for as much as is wanted, or the mark.
    SHOW(recv(s[0], b, 64, MSG_DONTWAIT | MSG_PEEK));
    SHOW(recv(s[0], b, 3, MSG_PEEK));
    pthread_create(&t, NULL, later, &s[1]);
    SHOW(epoll_wait(e, &event, 1, 3000));
    SHOW(event.events);
    SHOW(epoll_wait(edge, &once, 1, 3000));
    SHOW(polled(s[0]));
    pthread_join(t, NULL);
    SHOW(recv(s[0], b, 4, 0));
    SHOW(polled(s[0]));
    MUST(send(s[1], "abc", 3, 0));
    SHOW(polled(s[0]));
    SHOW(recv(s[0], b, 64, 0));
    // (The kernel only wakes a reader for the mark's worth of new bytes, however few it lacks.)
    pthread_create(&t, NULL, later_still, &s[1]);
    MUST(send(s[1], "abcde", 5, 0));
    SHOW(recv(s[0], b, 64, 0));
    pthread_join(t, NULL);
    // Time over: what is there.
    struct timeval soon = {.tv_usec = 40000};
    MUST(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    MUST(send(s[1], "few", 3, 0));
    SHOW(recv(s[0], b, 64, 0));
    SHOW(recv(s[0], b, 64, 0));
    // The end of the stream is above any mark.
    MUST(send(s[1], "end", 3, 0));
    MUST(shutdown(s[1], SHUT_WR));
    SHOW(polled(s[0]));
    SHOW(recv(s[0], b, 64, 0));
    SHOW(recv(s[0], b, 64, 0));
    MUST(close(e));
    MUST(close(edge));
    MUST(close(s[0]));
    MUST(close(s[1]));

    // A mark above what the buffer holds at first.
    stream_pair(s);
    SHOW(low(s[0], 300000));
    static char big[300000];
    MUST(fcntl(s[1], F_SETFL, O_NONBLOCK));
    long sent = 0;
    for (int tries = 0; sent < (long)sizeof big && tries < 2000; tries++) {
        ssize_t n = send(s[1], big, sizeof big - sent, 0);
        if (n > 0)
            sent += n;
        else
            nap(1);
    }
    SHOW(sent);
    SHOW(ready(s[0], POLLIN));
    SHOW(recv(s[0], big, sizeof big, 0));
    SHOW(low(s[0], 0));
    SHOW(getsockopt(s[0], SOL_SOCKET, SO_RCVLOWAT, &v, &len));
    SHOW(v);
    SHOW(low(s[0], -1));
    SHOW(getsockopt(s[0], SOL_SOCKET, SO_RCVLOWAT, &v, &len));
    SHOW(v > 1000);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void all(void) {
    int s[2];
    char b[64] = "";
    pthread_t t;
    stream_pair(s);
    MUST(send(s[1], "12345", 5, 0));
    ready(s[0], POLLIN);
    pthread_create(&t, NULL, later, &s[1]);
    SHOW(recv(s[0], b, 10, MSG_PEEK | MSG_WAITALL));
    SHOW(strcmp(b, "1234567890"));
    pthread_join(t, NULL);
    SHOW(recv(s[0], b, 64, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
    SHOW(recv(s[0], b, 64, MSG_WAITALL | MSG_DONTWAIT));
    struct timeval soon = {.tv_usec = 40000};
    MUST(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    MUST(send(s[1], "abc", 3, 0));
    SHOW(recv(s[0], b, 64, MSG_PEEK | MSG_WAITALL));
    SHOW(recv(s[0], b, 64, MSG_WAITALL));
    SHOW(recv(s[0], b, 64, MSG_WAITALL));
    MUST(send(s[1], "xyz", 3, 0));
    MUST(shutdown(s[1], SHUT_WR));
    SHOW(recv(s[0], b, 64, MSG_WAITALL));
    SHOW(recv(s[0], b, 64, MSG_WAITALL));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void truncated(void) {
    int s[2];
    char b[64] = "untouched";
    stream_pair(s);
    MUST(send(s[1], "0123456789", 10, 0));
    ready(s[0], POLLIN);
    SHOW(recv(s[0], NULL, 4, MSG_PEEK | MSG_TRUNC));
    SHOW(recv(s[0], NULL, 64, MSG_PEEK | MSG_TRUNC));
    SHOW(recv(s[0], b, 4, MSG_PEEK | MSG_TRUNC));
    SHOW(strcmp(b, "untouched"));
    SHOW(recv(s[0], b, 4, MSG_TRUNC));
    SHOW(strcmp(b, "untouched"));
    SHOW(recv(s[0], b, 64, MSG_DONTWAIT));
    SHOW(memcmp(b, "456789", 6));
    SHOW(recv(s[0], NULL, 64, MSG_DONTWAIT | MSG_TRUNC));
    SHOW(recv(s[0], NULL, 64, MSG_DONTWAIT | MSG_TRUNC | MSG_PEEK));
    SHOW(recv(s[0], b, 1, MSG_OOB));
    SHOW(recv(s[0], b, 1, MSG_OOB | MSG_DONTWAIT));
    int at = -1;
    SHOW(ioctl(s[0], SIOCATMARK, &at));
    SHOW(at);
    MUST(close(s[0]));
    MUST(close(s[1]));

    struct sockaddr_in where;
    int u = datagram(&where), v = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(connect(v, SA(where), sizeof where));
    MUST(send(v, "0123456789", 10, 0));
    ready(u, POLLIN);
    SHOW(recv(u, b, 4, MSG_PEEK | MSG_TRUNC));
    SHOW(recv(u, b, 4, MSG_PEEK));
    SHOW(recv(u, b, 4, MSG_TRUNC));
    SHOW(recv(u, b, 4, MSG_TRUNC | MSG_DONTWAIT));
    MUST(close(u));
    MUST(close(v));
}

static void headers(void) {
    int s[2];
    char b[64], control[64];
    stream_pair(s);
    struct sockaddr_in name;
    memset(&name, 0x55, sizeof name);
    struct iovec v = {b, 4};
    struct msghdr m = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = sizeof control, .msg_flags = 0x1234};
    MUST(send(s[1], "0123456789", 10, 0));
    ready(s[0], POLLIN);
    SHOW(recvmsg(s[0], &m, 0));
    SHOW(m.msg_namelen);
    SHOW(m.msg_controllen);
    SHOW(m.msg_flags);
    SHOW(name.sin_family == 0x5555);
    m.msg_name = NULL;
    m.msg_namelen = 77;
    SHOW(recvmsg(s[0], &m, MSG_CMSG_CLOEXEC));
    SHOW(m.msg_namelen);
    SHOW(m.msg_flags == MSG_CMSG_CLOEXEC);
    socklen_t len = sizeof name;
    SHOW(recvfrom(s[0], b, 1, 0, SA(name), &len));
    SHOW(len);
    MUST(close(s[0]));
    MUST(close(s[1]));

    // A datagram's: whose, what was cut, and control messages for which there is too little room.
    struct sockaddr_in where;
    int u = datagram(&where), w = MUST(socket(AF_INET, SOCK_DGRAM, 0)), on = 1;
    MUST(connect(w, SA(where), sizeof where));
    MUST(setsockopt(u, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
    MUST(setsockopt(u, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
    for (size_t room = 0; room <= 64; room += 4) {
        MUST(send(w, "0123456789", 10, 0));
        ready(u, POLLIN);
        m = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room, .msg_namelen = 5};
        SHOW(recvmsg(u, &m, 0));
        SHOW(m.msg_namelen);
        SHOW(m.msg_flags);
        SHOW(m.msg_controllen);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            SHOW(c->cmsg_level);
            SHOW(c->cmsg_type);
            SHOW(c->cmsg_len);
        }
    }
    MUST(close(u));
    MUST(close(w));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    low_water();
    all();
    truncated();
    headers();
    return 0;
}
