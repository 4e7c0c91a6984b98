// Threads that talk to each other, each of whose connections is another one's too: where threads have rings of their own, an end is on one ring and who
// waits for it, or writes to it, on another. Nobody may miss a wake-up, whatever it waits by; and what one thread changes of a socket is heeded by the
// next call of another. (A wake-up that is missed ends the program by its alarm.)
#include "common.h"
#include <sys/epoll.h>

enum { PAIRS = 4, ROUNDS = 1500 };

// How a thread waits for the next byte.
enum way { RECEIVE, POLL, LEVEL, EDGE, ONESHOT, WAYS };

struct pair {
    enum way way;
    int near, far, port;
    long done, wrong;
};

static int instance(int fd, enum way way) {
    uint32_t manner = way == EDGE ? EPOLLET : way == ONESHOT ? EPOLLONESHOT : 0;
    struct epoll_event event = {.events = EPOLLIN | manner, .data.fd = fd};
    int epoll = MUST(epoll_create1(0));
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    return epoll;
}

// The next byte, waited for in that way.
static int next(int fd, int epoll, enum way way) {
    unsigned char byte;
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    struct epoll_event event;
    for (;;) {
        ssize_t got = recv(fd, &byte, 1, way == RECEIVE ? 0 : MSG_DONTWAIT);
        if (got >= 0) return got == 1 ? byte : -1;
        if (errno != EAGAIN) return -errno;
        switch (way) {
        case POLL: MUST(poll(&polled, 1, -1)); break;
        case ONESHOT:
            event = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
            MUST(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
            __attribute__((fallthrough));
        case LEVEL:
        case EDGE:
            if (MUST(epoll_wait(epoll, &event, 1, -1)) == 1 && event.data.fd != fd) return -1;
            break;
        default: break;
        }
    }
}

static void *answers(void *argument) {
    struct pair *pair = argument;
    struct sockaddr_in where = loopback(pair->port);
    pair->far = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(pair->far, SA(where), sizeof where));
    int epoll = instance(pair->far, pair->way);
    for (int i = 0; i < ROUNDS; i++) {
        int byte = next(pair->far, epoll, pair->way);
        pair->wrong += byte != (i & 0xff);
        unsigned char back = (unsigned char)byte ^ 0x5a;
        MUST(send(pair->far, &back, 1, 0));
    }
    pair->wrong += next(pair->far, epoll, pair->way) != -1;
    MUST(close(epoll));
    MUST(close(pair->far));
    return NULL;
}

static void *asks(void *argument) {
    struct pair *pair = argument;
    int one = 1, epoll = instance(pair->near, pair->way);
    MUST(setsockopt(pair->near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char byte = (unsigned char)i;
        MUST(send(pair->near, &byte, 1, 0));
        pair->wrong += next(pair->near, epoll, pair->way) != (byte ^ 0x5a);
        pair->done++;
    }
    MUST(shutdown(pair->near, SHUT_WR));
    MUST(close(epoll));
    return NULL;
}

static void talks(enum way way) {
    struct pair pairs[PAIRS];
    pthread_t threads[2 * PAIRS];
    struct sockaddr_in where;
    int listening = listener(&where);
    for (int i = 0; i < PAIRS; i++) {
        pairs[i] = (struct pair){.way = way, .port = ntohs(where.sin_port)};
        MUST(-pthread_create(&threads[2 * i], NULL, answers, &pairs[i]));
        pairs[i].near = MUST(accept(listening, NULL, NULL));
        // (Connections come in the order of their threads, for each is accepted before the next begins.)
        MUST(-pthread_create(&threads[2 * i + 1], NULL, asks, &pairs[i]));
    }
    long done = 0, wrong = 0;
    for (int i = 0; i < 2 * PAIRS; i++)
        MUST(-pthread_join(threads[i], NULL));
    for (int i = 0; i < PAIRS; i++) {
        done += pairs[i].done, wrong += pairs[i].wrong;
        MUST(close(pairs[i].near));
    }
    MUST(close(listening));
    SHOW(way);
    SHOW(done);
    SHOW(wrong);
}

// One thread writes, another reads, in large pieces: who has no room waits for it.
static long long sum(const unsigned char *bytes, size_t count, long long so_far) {
    for (size_t i = 0; i < count; i++)
        so_far = (so_far * 31 + bytes[i]) & 0xffffffffffff;
    return so_far;
}

enum { STREAM = 12 << 20, PIECE = 40000 };

struct stream {
    int fd;
    long long sum, bytes;
};

static void *writes(void *argument) {
    struct stream *stream = argument;
    unsigned char piece[PIECE];
    for (size_t at = 0; at < STREAM;) {
        size_t count = STREAM - at < PIECE ? STREAM - at : PIECE;
        for (size_t i = 0; i < count; i++)
            piece[i] = (unsigned char)((at + i) * 7 >> 3);
        MUST(send(stream->fd, piece, count, 0));
        stream->sum = sum(piece, count, stream->sum), stream->bytes += (long long)count;
        at += count;
    }
    MUST(shutdown(stream->fd, SHUT_WR));
    return NULL;
}

static void *reads(void *argument) {
    struct stream *stream = argument;
    unsigned char piece[PIECE];
    for (ssize_t got; (got = MUST(recv(stream->fd, piece, 1 + stream->bytes % PIECE, 0))) > 0;)
        stream->sum = sum(piece, (size_t)got, stream->sum), stream->bytes += got;
    return NULL;
}

static void floods(void) {
    struct stream ends[4] = {{0}};
    pthread_t threads[4];
    int fds[2];
    for (int i = 0; i < 4; i += 2) {
        stream_pair(fds);
        ends[i].fd = fds[i / 2], ends[i + 1].fd = fds[1 - i / 2];
    }
    for (int i = 0; i < 4; i++)
        MUST(-pthread_create(&threads[i], NULL, i % 2 ? reads : writes, &ends[i]));
    for (int i = 0; i < 4; i++)
        MUST(-pthread_join(threads[i], NULL));
    for (int i = 0; i < 4; i += 2) {
        SHOW(ends[i].bytes);
        SHOW(ends[i + 1].bytes);
        SHOW(ends[i].sum == ends[i + 1].sum);
        MUST(close(ends[i].fd));
        MUST(close(ends[i + 1].fd));
    }
}

static void *sends_a_byte(void *argument) {
    nap(20);
    MUST(send(*(int *)argument, "x", 1, 0));
    return NULL;
}

static void *opens_one(void *argument) {
    stream_pair(argument);
    return NULL;
}

// A connection that one thread opened, and others change, use and close.
static void changes(void) {
    int fds[2], low = 4, flags, waiting = 0;
    pthread_t thread;
    char b[8] = {0};
    struct timeval soon = {.tv_usec = 30000};
    MUST(-pthread_create(&thread, NULL, opens_one, fds));
    MUST(-pthread_join(thread, NULL));
    for (int i = 0; i < 3; i++) {
        SHOW(send(fds[0], "ab", 2, 0));
        SHOW(recv(fds[1], b, 8, 0));
    }
    // What is plain is not so any more.
    MUST(setsockopt(fds[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    MUST(setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    SHOW(send(fds[0], "ab", 2, 0));
    SHOW(recv(fds[1], b, 8, 0));
    SHOW(recv(fds[1], b, 8, 0));
    low = 1;
    MUST(setsockopt(fds[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    flags = fcntl(fds[1], F_GETFL);
    SHOW(fcntl(fds[1], F_SETFL, flags | O_NONBLOCK));
    SHOW(recv(fds[1], b, 8, 0));
    SHOW(fcntl(fds[1], F_SETFL, flags));
    soon.tv_usec = 0;
    MUST(setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    // Another thread's byte ends the wait.
    MUST(-pthread_create(&thread, NULL, sends_a_byte, &fds[0]));
    SHOW(recv(fds[1], b, 8, 0));
    MUST(-pthread_join(thread, NULL));
    SHOW(send(fds[0], "peek", 4, 0));
    SHOW(recv(fds[1], b, 8, MSG_PEEK));
    SHOW(ioctl(fds[1], FIONREAD, &waiting));
    SHOW(waiting);
    SHOW(recv(fds[1], b, 8, MSG_WAITALL | MSG_DONTWAIT));
    int other = MUST(dup(fds[1]));
    SHOW(close(fds[1]));
    SHOW(recv(fds[1], b, 8, 0));
    SHOW(send(fds[0], "dup", 3, 0));
    SHOW(recv(other, b, 8, 0));
    SHOW(shutdown(fds[0], SHUT_WR));
    SHOW(recv(other, b, 8, 0));
    SHOW(send(fds[0], "late", 4, MSG_NOSIGNAL));
    SHOW(close(fds[0]));
    SHOW(recv(other, b, 8, 0));
    SHOW(close(other));
}

// A child has the connection too: both may use it.
static void with_a_child(void) {
    int fds[2];
    char b[8];
    pthread_t thread;
    MUST(-pthread_create(&thread, NULL, opens_one, fds));
    MUST(-pthread_join(thread, NULL));
    for (int i = 0; i < 3; i++) {
        SHOW(send(fds[0], "ab", 2, 0));
        SHOW(recv(fds[1], b, 8, 0));
    }
    fflush(stdout);
    pid_t child = MUST(fork());
    if (child == 0) {
        send(fds[0], "child", 5, 0);
        _exit(recv(fds[0], b, 8, 0) == 2 ? 0 : 1);
    }
    SHOW(recv(fds[1], b, 5, MSG_WAITALL));
    SHOW(send(fds[1], "ok", 2, 0));
    int status = -1;
    MUST(waitpid(child, &status, 0));
    SHOW(status);
    MUST(close(fds[0]));
    SHOW(recv(fds[1], b, 8, 0));
    MUST(close(fds[1]));
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(200);
    for (enum way way = RECEIVE; way < WAYS; way++)
        talks(way);
    floods();
    changes();
    with_a_child();
    return 0;
}
