// A server's parent, which accepted itself, ends: its child has the listener and the UDP socket. (Only what the child then
// serves can be offloaded here, so the test sees whether it was.)
#include "common.h"
#include <sys/epoll.h>

static void serve(int l, int u) {
    int e = MUST(epoll_create1(0));
    struct epoll_event v = {.events = EPOLLIN, .data.fd = l};
    MUST(epoll_ctl(e, EPOLL_CTL_ADD, l, &v));
    v.data.fd = u;
    MUST(epoll_ctl(e, EPOLL_CTL_ADD, u, &v));
    char b[64];
    while (epoll_wait(e, &v, 1, 5000) == 1) {
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        if (v.data.fd == u) {
            ssize_t n = recvfrom(u, b, sizeof b, 0, SA(from), &len);
            if (sendto(u, b, n, 0, SA(from), len) != n)
                _exit(1);
            continue;
        }
        int fd = MUST(accept(l, NULL, NULL));
        ssize_t n = read(fd, b, sizeof b);
        if (write(fd, b, n) != n)
            _exit(1);
        close(fd);
        if (n == 4)
            _exit(0);
    }
    _exit(1);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int up[2], stop[2];
    char b[64];
    MUST(pipe(up));
    MUST(pipe(stop));
    pid_t parent = MUST(fork());
    if (parent == 0) {
        struct sockaddr_in where[2];
        int l = listener(&where[0]), u = datagram(&where[1]);
        struct pollfd p = {.fd = l, .events = POLLIN};
        MUST(poll(&p, 1, 0));
        if (MUST(fork()) == 0)
            serve(l, u);
        nap(200);
        MUST(write(up[1], where, sizeof where));
        MUST(read(stop[0], b, 1));
        _exit(0);
    }
    struct sockaddr_in where[2];
    MUST(read(up[0], where, sizeof where));
    MUST(write(stop[1], "!", 1));
    waitpid(parent, NULL, 0);
    nap(200);
    struct timeval t = {.tv_sec = 3};
    int fd;
    for (int i = 0; i < 3; i++) {
        fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
        SHOW(connect(fd, SA(where[0]), sizeof where[0]));
        SHOW(send(fd, "heritage", 8, MSG_NOSIGNAL));
        SHOW(recv(fd, b, sizeof b, 0));
        close(fd);
        fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
        MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
        SHOW(sendto(fd, "heritage", 8, 0, SA(where[1]), sizeof where[1]));
        SHOW(recv(fd, b, sizeof b, 0));
        close(fd);
    }
    fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(where[0]), sizeof where[0]));
    SHOW(send(fd, "last", 4, MSG_NOSIGNAL));
    SHOW(recv(fd, b, sizeof b, 0));
    return 0;
}
