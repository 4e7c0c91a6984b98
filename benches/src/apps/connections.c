/*
 * Connections a second, set up and torn down: each carries one request and one answer of 64 bytes.
 *
 *   connections serve PORT                     one thread, accept4 and epoll; until it is killed
 *   connections ask PORT CLIENTS CONNECTIONS   so many client processes at once; prints connections a second, of all
 *
 * The server closes first, as a server of HTTP without keep-alive does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 64 };

static void check(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static struct sockaddr_in at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return address;
}

static void serve(int port) {
    struct sockaddr_in address = at(port);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 1024), "listen");
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    check(!epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
    for (;;) {
        struct epoll_event ready[64];
        int count = epoll_wait(epoll, ready, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                int accepted;
                while ((accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    event.data.fd = accepted;
                    check(!epoll_ctl(epoll, EPOLL_CTL_ADD, accepted, &event), "epoll_ctl");
                }
                continue;
            }
            char bytes[MESSAGE];
            ssize_t got = read(fd, bytes, sizeof bytes);
            if (got < 0 && errno == EAGAIN)
                continue;
            if (got == MESSAGE)
                check(write(fd, bytes, MESSAGE) == MESSAGE, "write");
            close(fd);
        }
    }
}

static void ask(int port, int connections) {
    struct sockaddr_in address = at(port);
    for (int i = 0; i < connections; i++) {
        char bytes[MESSAGE] = {0}, answer[MESSAGE + 1];
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        check(!connect(fd, (struct sockaddr *)&address, sizeof address), "connect");
        check(write(fd, bytes, MESSAGE) == MESSAGE, "write");
        size_t got = 0;
        ssize_t count;
        while ((count = read(fd, answer + got, sizeof answer - got)) > 0)
            got += count;
        check(count == 0 && got == MESSAGE, "read");
        close(fd);
    }
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && !strcmp(argv[1], "serve"))
        serve(atoi(argv[2]));
    if (argc != 5) {
        fprintf(stderr, "usage: connections serve PORT | ask PORT CLIENTS CONNECTIONS\n");
        return 2;
    }
    int port = atoi(argv[2]), clients = atoi(argv[3]), connections = atoi(argv[4]) / clients;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < clients; i++)
        if (!fork()) {
            ask(port, connections);
            exit(0);
        }
    int failed = 0, status;
    while (wait(&status) > 0)
        failed |= status;
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.0f\n", clients * connections / (end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9));
    return failed != 0;
}
