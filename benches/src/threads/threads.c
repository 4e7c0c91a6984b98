/*
 * What a thread of several gets done: each has connections of its own, both ends of them, so that it waits for nobody.
 *
 *   threads tcp|udp ping|bulk plain|epoll threads|processes N SECONDS
 *
 * ping: 64 bytes there and back. bulk: 64 KiB (of UDP, 16 datagrams of 1,400 bytes), one way. plain: the calls alone. epoll: each
 * receive after an epoll_wait. Prints what one of the N did a second, on average: exchanges, or MB.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 64, CHUNK = 64 << 10, DATAGRAM = 1400, BURST = 16, MOST = 64 };

struct worker {
    /* Both ends, and an epoll instance for each. */
    int ends[2], epolls[2];
    double rate;
};

static int is_udp, is_bulk, by_epoll, count;
static double seconds;
static struct worker *workers;
static pthread_barrier_t *ready;

static void check(int holds, const char *what) {
    if (!holds) {
        perror(what);
        _exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int bound(int kind, struct sockaddr_in *name) {
    int fd = socket(AF_INET, kind, 0);
    socklen_t len = sizeof *name;
    *name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(fd >= 0 && !bind(fd, (struct sockaddr *)name, len) && !getsockname(fd, (struct sockaddr *)name, &len), "bind");
    return fd;
}

static void connect_to(int fd, struct sockaddr_in *name) {
    check(!connect(fd, (struct sockaddr *)name, sizeof *name), "connect");
}

static void open_ends(struct worker *w) {
    struct sockaddr_in names[2];
    int one = 1;
    if (is_udp) {
        for (int i = 0; i < 2; i++)
            w->ends[i] = bound(SOCK_DGRAM, &names[i]);
        for (int i = 0; i < 2; i++)
            connect_to(w->ends[i], &names[1 - i]);
    } else {
        int listener = bound(SOCK_STREAM, &names[0]);
        check(!listen(listener, 1), "listen");
        w->ends[0] = socket(AF_INET, SOCK_STREAM, 0);
        connect_to(w->ends[0], &names[0]);
        w->ends[1] = accept(listener, NULL, NULL);
        check(w->ends[1] >= 0, "accept");
        close(listener);
        for (int i = 0; i < 2; i++)
            setsockopt(w->ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN};
        w->epolls[i] = epoll_create1(0);
        check(w->epolls[i] >= 0 && !epoll_ctl(w->epolls[i], EPOLL_CTL_ADD, w->ends[i], &event), "epoll_ctl");
    }
}

/* Receives `bytes` at an end; of UDP, one datagram. */
static void take(struct worker *w, int end, char *into, size_t bytes) {
    for (size_t got = 0; got < bytes;) {
        struct epoll_event event;
        if (by_epoll)
            check(epoll_wait(w->epolls[end], &event, 1, -1) == 1, "epoll_wait");
        ssize_t n = recv(w->ends[end], into + got, bytes - got, 0);
        check(n > 0, "recv");
        got += n;
    }
}

static void give(struct worker *w, int end, const char *from, size_t bytes) {
    check(send(w->ends[end], from, bytes, 0) == (ssize_t)bytes, "send");
}

static double once(struct worker *w, char *bytes) {
    if (!is_bulk) {
        for (int i = 0; i < 2; i++) {
            give(w, i, bytes, MESSAGE);
            take(w, 1 - i, bytes, MESSAGE);
        }
        return 1;
    }
    if (!is_udp) {
        give(w, 0, bytes, CHUNK);
        take(w, 1, bytes, CHUNK);
        return CHUNK / 1e6;
    }
    for (int i = 0; i < BURST; i++)
        give(w, 0, bytes, DATAGRAM);
    for (int i = 0; i < BURST; i++)
        take(w, 1, bytes, DATAGRAM);
    return BURST * DATAGRAM / 1e6;
}

static void *work(void *argument) {
    struct worker *w = argument;
    char *bytes = calloc(1, CHUNK);
    check(bytes != NULL, "calloc");
    open_ends(w);
    for (double until = now() + 0.1; now() < until;)
        once(w, bytes);
    pthread_barrier_wait(ready);
    double began = now(), done = 0, time;
    do {
        for (int i = 0; i < 64; i++)
            done += once(w, bytes);
        time = now() - began;
    } while (time < seconds);
    w->rate = done / time;
    pthread_barrier_wait(ready);
    return NULL;
}

static void *shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "mmap");
    return memory;
}

int main(int argc, char **argv) {
    if (argc != 7 || (count = atoi(argv[5])) < 1 || count > MOST) {
        fprintf(stderr, "usage: threads tcp|udp ping|bulk plain|epoll threads|processes N SECONDS\n");
        return 2;
    }
    is_udp = !strcmp(argv[1], "udp"), is_bulk = !strcmp(argv[2], "bulk"), by_epoll = !strcmp(argv[3], "epoll");
    seconds = atof(argv[6]);
    workers = shared(count * sizeof *workers);
    ready = shared(sizeof *ready);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(ready, &attributes, count);
    if (!strcmp(argv[4], "threads")) {
        pthread_t threads[MOST];
        for (int i = 0; i < count; i++)
            check(!pthread_create(&threads[i], NULL, work, &workers[i]), "pthread_create");
        for (int i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
    } else {
        for (int i = 0; i < count; i++)
            if (!fork()) {
                work(&workers[i]);
                exit(0);
            }
        int status;
        while (wait(&status) > 0)
            check(status == 0, "a child");
    }
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += workers[i].rate;
    printf("%.1f\n", sum / count);
    return 0;
}
