// Urgent data (MSG_OOB): the mark, what is read around it, SO_OOBINLINE, SIOCATMARK, POLLPRI in its forms, and SIGURG.
#include "common.h"
#include <sys/epoll.h>
#include <sys/select.h>

static volatile sig_atomic_t urgent;

static void note(int signal) {
    (void)signal;
    urgent++;
}

static int at_mark(int fd) {
    int at = -1;
    MUST(ioctl(fd, SIOCATMARK, &at));
    return at;
}

static void inline_too(int fd, int on) { MUST(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on)); }

// Waits until so many bytes are there to be read.
static void await_bytes(int fd, int bytes) {
    int there = -1;
    for (int tries = 0; tries < 3000 && there < bytes; tries++) {
        MUST(ioctl(fd, FIONREAD, &there));
        if (there < bytes)
            nap(1);
    }
}

static void show(int fd, int len, int flags) {
    char b[64] = "";
    SHOW(recv(fd, b, len, flags | MSG_DONTWAIT));
    printf("  \"%s\"\n", b);
}

// From a to b, and back before: bytes around the mark, in both directions.
static void around(int a, int b, int inlined) {
    inline_too(b, inlined);
    MUST(send(b, "back", 4, 0));
    SHOW(send(a, "before", 6, 0));
    SHOW(send(a, "now!", 4, MSG_OOB));
    SHOW(send(a, "after", 5, 0));
    SHOW(ready(b, POLLPRI) & POLLPRI);
    nap(50);
    SHOW(at_mark(b));
    if (!inlined) {
        show(b, 8, MSG_OOB | MSG_PEEK);
        show(b, 8, MSG_OOB);
        show(b, 8, MSG_OOB);
    } else {
        show(b, 8, MSG_OOB);
    }
    show(b, 60, 0);
    SHOW(at_mark(b));
    show(b, 60, 0);
    SHOW(at_mark(b));
    show(b, 60, 0);
    show(a, 60, 0);
    // Once more, now that it is where it is.
    SHOW(send(a, "!", 1, MSG_OOB));
    SHOW(ready(b, POLLPRI) & POLLPRI);
    SHOW(at_mark(b));
    show(b, 8, inlined ? 0 : MSG_OOB);
    SHOW(send(b, "?", 1, MSG_OOB));
    SHOW(ready(a, POLLPRI) & POLLPRI);
    show(a, 8, MSG_OOB);
}

static void marks(void) {
    for (int which = 0; which < 8; which++) {
        int s[2];
        stream_pair(s);
        int from = which & 1, nonblocking = which & 2, inlined = which >> 2;
        if (nonblocking)
            for (int i = 0; i < 2; i++)
                MUST(fcntl(s[i], F_SETFL, O_NONBLOCK));
        printf("from %d, %s, %s\n", from, nonblocking ? "non-blocking" : "blocking", inlined ? "inline" : "apart");
        around(s[from], s[!from], inlined);
        MUST(close(s[0]));
        MUST(close(s[1]));
    }
}

// SO_OOBINLINE as a listener's connections have it.
static void inherited(void) {
    struct sockaddr_in where;
    int l = listener(&where), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
    inline_too(l, 1);
    MUST(connect(c, SA(where), sizeof where));
    int s = MUST(accept(l, NULL, NULL));
    SHOW(send(c, "12", 2, MSG_OOB));
    await_bytes(s, 2);
    show(s, 8, 0);
    SHOW(at_mark(s));
    show(s, 8, 0);
    MUST(close(s));
    MUST(close(c));
    MUST(close(l));
}

// Whoever waits is told: by poll, select and epoll, and by a signal.
struct waiter {
    int fd, how, result;
};

static void *wait_for_it(void *argument) {
    struct waiter *w = argument;
    sigset_t signal;
    sigemptyset(&signal);
    sigaddset(&signal, SIGURG);
    pthread_sigmask(SIG_BLOCK, &signal, NULL);
    if (w->how == 0) {
        w->result = ready(w->fd, POLLPRI) & POLLPRI;
    } else if (w->how == 1) {
        fd_set except;
        struct timeval limit = {.tv_sec = 3};
        FD_ZERO(&except);
        FD_SET(w->fd, &except);
        w->result = select(w->fd + 1, NULL, NULL, &except, &limit) * 10 + !!FD_ISSET(w->fd, &except);
    } else {
        struct epoll_event event = {.events = EPOLLPRI | (w->how == 3 ? EPOLLET : 0)}, told = {0};
        int e = epoll_create1(0);
        epoll_ctl(e, EPOLL_CTL_ADD, w->fd, &event);
        w->result = epoll_wait(e, &told, 1, 3000) * 1000 + told.events;
        close(e);
    }
    return NULL;
}

static void told(void) {
    for (int how = 0; how < 4; how++) {
        int s[2];
        pthread_t t;
        stream_pair(s);
        MUST(fcntl(s[1], F_SETOWN, getpid()));
        SHOW(fcntl(s[1], F_GETOWN) == getpid());
        struct waiter w = {s[1], how, -1};
        urgent = 0;
        pthread_create(&t, NULL, wait_for_it, &w);
        nap(50);
        SHOW(send(s[0], "u", 1, MSG_OOB));
        pthread_join(t, NULL);
        SHOW(w.result);
        nap(20);
        SHOW(urgent);
        SHOW(fcntl(s[1], F_GETOWN) == getpid());
        show(s[1], 1, MSG_OOB);
        MUST(close(s[0]));
        MUST(close(s[1]));
    }
}

// A reader that waits for all of it stops at the mark.
static void *read_all(void *argument) {
    struct waiter *w = argument;
    char b[64];
    w->result = recv(w->fd, b, 20, MSG_WAITALL);
    return NULL;
}

static void stops(void) {
    int s[2];
    pthread_t t;
    stream_pair(s);
    struct waiter w = {s[1], 0, -1};
    pthread_create(&t, NULL, read_all, &w);
    MUST(send(s[0], "12345", 5, 0));
    nap(50);
    MUST(send(s[0], "67u", 3, MSG_OOB));
    nap(50);
    MUST(send(s[0], "890123456789012345", 18, 0));
    pthread_join(t, NULL);
    SHOW(w.result);
    SHOW(at_mark(s[1]));
    nap(20);
    show(s[1], 60, 0);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

// Much on its way in both directions when the urgent byte comes.
static void full(void) {
    static char big[400000], back[sizeof big];
    int s[2];
    for (unsigned i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 7 + i / 251);
    stream_pair(s);
    long sent[2];
    for (int side = 0; side < 2; side++) {
        MUST(fcntl(s[side], F_SETFL, O_NONBLOCK));
        sent[side] = 0;
        while (sent[side] < 150000) {
            ssize_t n = send(s[side], big + sent[side], 150000 - sent[side], 0);
            if (n > 0)
                sent[side] += n;
            else
                nap(1);
        }
    }
    int tries = 0;
    ssize_t n;
    while ((n = send(s[0], "u", 1, MSG_OOB)) < 0 && errno == EAGAIN && tries++ < 300)
        nap(10);
    SHOW(n);
    for (int side = 0; side < 2; side++) {
        long got = 0;
        for (int empty = 0; got < 150000 && empty < 3000;) {
            n = recv(s[!side], back + got, sizeof back - got, 0);
            if (n > 0)
                got += n, empty = 0;
            else
                empty++, nap(1);
        }
        SHOW(got);
        SHOW(memcmp(back, big, 150000));
    }
    SHOW(at_mark(s[1]));
    show(s[1], 1, MSG_OOB);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

// Nobody to send to.
static void refused(void) {
    int s[2], v = MUST(socket(AF_INET, SOCK_STREAM, 0));
    signal(SIGPIPE, SIG_IGN);
    SHOW(send(v, "u", 1, MSG_OOB));
    show(v, 1, MSG_OOB);
    MUST(close(v));
    stream_pair(s);
    SHOW(send(s[0], "", 0, MSG_OOB));
    show(s[1], 8, MSG_OOB);
    SHOW(shutdown(s[0], SHUT_WR));
    SHOW(send(s[0], "u", 1, MSG_OOB));
    SHOW(send(s[1], "u", 1, MSG_OOB));
    SHOW(ready(s[0], POLLPRI) & POLLPRI);
    show(s[0], 1, MSG_OOB);
    MUST(close(s[0]));
    MUST(close(s[1]));
    stream_pair(s);
    struct linger at_once = {1, 0};
    MUST(setsockopt(s[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    MUST(close(s[1]));
    ready(s[0], POLLRDHUP);
    SHOW(send(s[0], "u", 1, MSG_OOB));
    SHOW(send(s[0], "u", 1, MSG_OOB));
    MUST(close(s[0]));
    int u = datagram(&(struct sockaddr_in){0});
    SHOW(send(u, "u", 1, MSG_OOB));
    MUST(close(u));
}

// By the other calls, and between processes.
static void processes(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t child = fork();
    if (child == 0) {
        int c = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(c, SA(where), sizeof where));
        struct iovec v = {"abc", 3};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
        struct mmsghdr mm = {.msg_hdr = m};
        char b;
        int sent = MUST(sendmsg(c, &m, 0));
        MUST(recv(c, &b, 1, 0));
        sent += MUST(sendmsg(c, &m, MSG_OOB));
        MUST(recv(c, &b, 1, 0));
        sent += MUST(sendmmsg(c, &mm, 1, MSG_OOB));
        MUST(recv(c, &b, 1, 0));
        sent += MUST(sendto(c, "d", 1, MSG_OOB, NULL, 0));
        MUST(recv(c, &b, 1, 0));
        _exit(sent);
    }
    int s = MUST(accept(l, NULL, NULL));
    MUST(fcntl(s, F_SETOWN, getpid()));
    urgent = 0;
    for (int i = 0; i < 4; i++) {
        // (The signal comes before the byte, and may end a wait for it.)
        int now = -1;
        for (int tries = 0; tries < 100 && now < 0; tries++)
            now = ready(s, i ? POLLPRI : POLLIN);
        SHOW(now);
        nap(20);
        if (i)
            show(s, 8, MSG_OOB);
        show(s, 8, 0);
        show(s, 8, 0);
        SHOW(urgent);
        MUST(send(s, ".", 1, 0));
    }
    int status = -1;
    waitpid(child, &status, 0);
    SHOW(WEXITSTATUS(status));
    show(s, 8, 0);
    MUST(close(s));
    MUST(close(l));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    struct sigaction a = {.sa_handler = note, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGURG, &a, NULL));
    marks();
    inherited();
    told();
    stops();
    full();
    refused();
    processes();
    return 0;
}
