/* Threads that talk to "far serve", each on connections and a datagram socket of its own. What is wrong is printed; nothing else is.
 *
 *   queues talk ADDRESS PORT      all of them, and then the server is told to end
 *   queues given ADDRESS PORT     the same, from ports that the program names
 *   queues hears ADDRESS PORT     hears a datagram of each that "far spray" sends; says "ready" once it does
 */
#include "far.h"
#include <poll.h>
#include <pthread.h>
#include <time.h>

#define THREADS 4
#define CONNECTIONS 6
/* So long a connection is talked on, at least: 50 ms. */
#define TALKS_NS 50000000

static int first_port;

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int bound(int kind, int which) {
    int fd = opened(kind);
    if (first_port != 0) {
        struct sockaddr_storage own = {.ss_family = to.ss_family};
        ((struct sockaddr_in *)&own)->sin_port = htons(first_port + which);
        CHECK(bind(fd, (struct sockaddr *)&own, to_len) == 0);
    }
    return fd;
}

static int nonblocking(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int error = -1;
    socklen_t len = sizeof error;
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) < 0 && errno == EINPROGRESS);
    CHECK(poll(&wait, 1, 20000) == 1 && wait.revents == POLLOUT);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    return fd;
}

static void stream(int which) {
    char byte;
    int fd = bound(SOCK_STREAM, which);
    if (which % 2 == 0) {
        CHECK(connect(fd, (struct sockaddr *)&to, to_len) == 0);
    } else {
        nonblocking(fd);
    }
    for (long long began = now(); now() - began < TALKS_NS;) {
        exchange(fd, "hello"), exchange(fd, "somewhat longer than that");
    }
    CHECK(shutdown(fd, SHUT_WR) == 0 && recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
}

static void datagrams(int which) {
    int fd = bound(SOCK_DGRAM, which);
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    for (int turn = 0; turn < 100; turn++) {
        int back = -1;
        if (turn == 50) {
            CHECK(connect(fd, (struct sockaddr *)&to, to_len) == 0);
        }
        CHECK(turn < 50 ? sendto(fd, &turn, sizeof turn, 0, (struct sockaddr *)&to, to_len) == sizeof turn
                        : send(fd, &turn, sizeof turn, 0) == sizeof turn);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        CHECK(poll(&wait, 1, 20000) == 1);
        CHECK(recvfrom(fd, &back, sizeof back, 0, (struct sockaddr *)&from, &len) == sizeof back && back == turn);
    }
    CHECK(close(fd) == 0);
}

static void *thread(void *number) {
    int first = (int)(long)number * (CONNECTIONS + 1);
    for (int which = first; which < first + CONNECTIONS; which++) {
        stream(which);
    }
    datagrams(first + CONNECTIONS);
    return NULL;
}

static void hears(void) {
    char bytes[16];
    int fd = opened(SOCK_DGRAM);
    CHECK(bind(fd, (struct sockaddr *)&to, to_len) == 0);
    printf("ready\n");
    fflush(stdout);
    for (int count = 0; count < 64; count++) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        CHECK(poll(&wait, 1, 20000) == 1 && recv(fd, bytes, sizeof bytes, 0) == 5);
    }
    CHECK(close(fd) == 0);
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    char byte;
    CHECK(argc == 4);
    name(argv[2], argv[3]);
    if (strcmp(argv[1], "hears") == 0) {
        hears();
        return 0;
    }
    first_port = strcmp(argv[1], "given") == 0 ? 20000 : 0;
    for (long number = 0; number < THREADS; number++) {
        CHECK(pthread_create(&threads[number], NULL, thread, (void *)number) == 0);
    }
    for (int number = 0; number < THREADS; number++) {
        CHECK(pthread_join(threads[number], NULL) == 0);
    }
    int fd = connected();
    send_all(fd, "quit", 4);
    CHECK(recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
    return 0;
}
