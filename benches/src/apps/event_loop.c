/*
 * Round trips between two programs whose sockets belong to a thread of their own, an event loop that sleeps on an eventfd beside its
 * sockets, as message libraries have it (ZeroMQ, nanomsg, gRPC): the program's thread hands a message over and wakes the loop, the loop
 * sends it; the other side's loop receives it and wakes its program's thread, which answers likewise.
 *
 *   event_loop serve PORT             one connection, then the end
 *   event_loop ask PORT EXCHANGES     prints the median round trip in nanoseconds
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 64 };

/* One message at a time is under way, so each way needs no queue: an eventfd says that its message is there. */
static int connection, to_loop, to_program;

static void check(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static void wake(int fd) {
    uint64_t one = 1;
    check(write(fd, &one, sizeof one) == sizeof one, "write to an eventfd");
}

static void *loop(void *unused) {
    (void)unused;
    int epoll = epoll_create1(0), fds[] = {connection, to_loop};
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        check(!epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event), "epoll_ctl");
    }
    size_t got = 0;
    char bytes[MESSAGE] = {0};
    for (;;) {
        struct epoll_event ready[2];
        int count = epoll_wait(epoll, ready, 2, -1);
        for (int i = 0; i < count; i++) {
            if (ready[i].data.fd == to_loop) {
                uint64_t times;
                check(read(to_loop, &times, sizeof times) == sizeof times, "read of an eventfd");
                check(send(connection, bytes, MESSAGE, MSG_NOSIGNAL) == MESSAGE, "send");
                continue;
            }
            ssize_t more = read(connection, bytes, MESSAGE - got);
            if (more <= 0)
                exit(0);
            if ((got += more) == MESSAGE) {
                got = 0;
                wake(to_program);
            }
        }
    }
}

static void await(void) {
    uint64_t times;
    check(read(to_program, &times, sizeof times) == sizeof times, "read of an eventfd");
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int serves = argc == 3 && !strcmp(argv[1], "serve");
    if (!serves && (argc != 4 || strcmp(argv[1], "ask"))) {
        fprintf(stderr, "usage: event_loop serve PORT | ask PORT EXCHANGES\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (serves) {
        setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        check(!bind(socket_fd, (struct sockaddr *)&address, sizeof address) && !listen(socket_fd, 1), "listen");
        check((connection = accept(socket_fd, NULL, NULL)) >= 0, "accept");
    } else {
        check(!connect(socket_fd, (struct sockaddr *)&address, sizeof address), "connect");
        connection = socket_fd;
    }
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    to_loop = eventfd(0, 0);
    to_program = eventfd(0, 0);
    pthread_t thread;
    check(!pthread_create(&thread, NULL, loop, NULL), "pthread_create");
    if (serves)
        for (;;) {
            await();
            wake(to_loop);
        }
    int exchanges = atoi(argv[3]);
    int64_t *took = calloc(exchanges, sizeof *took);
    for (int i = 0; i < exchanges; i++) {
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        wake(to_loop);
        await();
        clock_gettime(CLOCK_MONOTONIC, &end);
        took[i] = (end.tv_sec - start.tv_sec) * 1000000000ll + end.tv_nsec - start.tv_nsec;
    }
    qsort(took, exchanges, sizeof *took, by_value);
    printf("%lld\n", (long long)took[exchanges / 2]);
    return 0;
}
