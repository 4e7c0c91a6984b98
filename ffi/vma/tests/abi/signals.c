// Signals: which calls they end, which go on (SA_RESTART), SIGPIPE, and sockets that send them (O_ASYNC).
#include "common.h"
#include <sys/epoll.h>

static volatile int caught;
static void on_signal(int signal) { caught = signal; }

static int s[2], listening, instance;

// A call that waits, for as long as nothing is sent.
static long waits(int what) {
    char b[64];
    struct pollfd p = {.fd = s[0], .events = POLLIN};
    struct epoll_event e;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(s[0], &set);
    switch (what) {
    case 0: return recv(s[0], b, 64, 0);
    case 1: return read(s[0], b, 64);
    case 2: return recv(s[0], b, 64, MSG_WAITALL);
    case 3: return poll(&p, 1, 2000);
    case 4: return epoll_wait(instance, &e, 1, 2000);
    case 5: return select(s[0] + 1, &set, NULL, NULL, &(struct timeval){.tv_sec = 2});
    default: return accept(listening, NULL, NULL) >= 0 ? 1 : -1;
    }
}

// After the signal, what the call waits for.
static void *relieve(void *argument) {
    pthread_t waiter = *(pthread_t *)argument;
    nap(150);
    pthread_kill(waiter, SIGUSR1);
    nap(100);
    send(s[1], "bytes", 5, 0);
    shutdown(s[1], SHUT_WR);
    struct sockaddr_in where;
    socklen_t len = sizeof where;
    getsockname(listening, SA(where), &len);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    connect(fd, SA(where), len);
    nap(50);
    close(fd);
    return NULL;
}

static void restarted(int flags, int with_timeout) {
    for (int what = 0; what < 7; what++) {
        struct sockaddr_in where;
        stream_pair(s);
        listening = listener(&where);
        instance = MUST(epoll_create1(0));
        struct epoll_event e = {.events = EPOLLIN};
        MUST(epoll_ctl(instance, EPOLL_CTL_ADD, s[0], &e));
        struct timeval time = {.tv_sec = 3};
        if (with_timeout) {
            MUST(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
            MUST(setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
        }
        struct sigaction a = {.sa_handler = on_signal, .sa_flags = flags};
        MUST(sigaction(SIGUSR1, &a, NULL));
        pthread_t me = pthread_self(), other;
        pthread_create(&other, NULL, relieve, &me);
        caught = 0;
        SHOW(waits(what));
        SHOW(caught);
        pthread_join(other, NULL);
        MUST(close(instance));
        MUST(close(s[0]));
        MUST(close(s[1]));
        MUST(close(listening));
    }
}

// A send that waits for room: what went out counts.
static void sending(void) {
    stream_pair(s);
    struct sigaction a = {.sa_handler = on_signal};
    MUST(sigaction(SIGALRM, &a, NULL));
    // (More than once: where cores are busy, the first may come before the call.)
    struct itimerval soon = {.it_value.tv_usec = 50000, .it_interval.tv_usec = 50000};
    static char big[64 << 20];
    MUST(setitimer(ITIMER_REAL, &soon, NULL));
    ssize_t n = send(s[0], big, sizeof big, 0);
    SHOW(n > 0 && n < (ssize_t)sizeof big);
    // Once there is no room at all, the signal is all there is to tell.
    while ((n = send(s[0], big, sizeof big, 0)) > 0) {}
    SHOW(n < 0 ? -errno : n);
    soon = (struct itimerval){0};
    MUST(setitimer(ITIMER_REAL, &soon, NULL));
    struct timeval short_time = {.tv_usec = 30000};
    MUST(setsockopt(s[0], SOL_SOCKET, SO_SNDTIMEO, &short_time, sizeof short_time));
    while ((n = send(s[0], big, sizeof big, 0)) > 0) {}
    SHOW(n < 0 ? -errno : n);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void broken(void) {
    struct sigaction a = {.sa_handler = on_signal};
    MUST(sigaction(SIGPIPE, &a, NULL));
    struct iovec v = {"x", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    for (int what = 0; what < 8; what++) {
        stream_pair(s);
        MUST(shutdown(s[0], SHUT_WR));
        caught = 0;
        switch (what) {
        case 0: SHOW(write(s[0], "x", 1)); break;
        case 1: SHOW(writev(s[0], &v, 1)); break;
        case 2: SHOW(send(s[0], "x", 1, 0)); break;
        case 3: SHOW(send(s[0], "x", 1, MSG_NOSIGNAL)); break;
        case 4: SHOW(sendmsg(s[0], &m, 0)); break;
        case 5: SHOW(sendmsg(s[0], &m, MSG_NOSIGNAL)); break;
        case 6: SHOW(sendto(s[0], "x", 1, MSG_DONTWAIT, NULL, 0)); break;
        case 7: SHOW(dprintf(s[0], "x")); break;
        }
        SHOW(caught == SIGPIPE);
        MUST(close(s[0]));
        MUST(close(s[1]));
    }
    // Blocked, it stays pending.
    sigset_t pipe, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipe, NULL);
    stream_pair(s);
    MUST(shutdown(s[0], SHUT_WR));
    caught = 0;
    SHOW(write(s[0], "x", 1));
    sigpending(&pending);
    SHOW(sigismember(&pending, SIGPIPE));
    SHOW(caught);
    sigprocmask(SIG_UNBLOCK, &pipe, NULL);
    SHOW(caught == SIGPIPE);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

// A UDP socket and a listener that send signals: they are the kernel's from then on.
static void told_by_signals(void) {
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGIO, &a, NULL));
    struct sockaddr_in where;
    int u = datagram(&where), v = MUST(socket(AF_INET, SOCK_DGRAM, 0)), on = 1;
    SHOW(fcntl(u, F_SETOWN, getpid()));
    SHOW(fcntl(u, F_GETOWN) == getpid());
    SHOW(fcntl(u, F_SETFL, O_ASYNC | O_NONBLOCK));
    SHOW((fcntl(u, F_GETFL) & O_ASYNC) != 0);
    caught = 0;
    MUST(sendto(v, "x", 1, 0, SA(where), sizeof where));
    for (int tries = 0; !caught && tries < 300; tries++)
        nap(10);
    SHOW(caught == SIGIO);
    char b[8];
    SHOW(recv(u, b, 8, 0));
    MUST(close(u));
    int l = listener(&where), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(fcntl(l, F_SETOWN, getpid()));
    SHOW(ioctl(l, FIOASYNC, &on));
    caught = 0;
    MUST(connect(fd, SA(where), sizeof where));
    for (int tries = 0; !caught && tries < 300; tries++)
        nap(10);
    SHOW(caught == SIGIO);
    int c = MUST(accept(l, NULL, NULL));
    SHOW(send(fd, "kernel", 6, 0));
    SHOW(recv(c, b, 8, 0));
    MUST(close(c));
    MUST(close(fd));
    MUST(close(l));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    restarted(0, 0);
    restarted(SA_RESTART, 0);
    restarted(SA_RESTART, 1);
    sending();
    broken();
    told_by_signals();
    return 0;
}
