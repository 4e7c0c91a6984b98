// Connections that one thread makes, or accepts, and others use: with a ring for each thread, each goes over to the ring of the thread that uses it, while its
// peer sends, while other threads wait for it, and shortly before it ends. Between two processes, and within one. Every byte is one that says where in its
// stream it belongs, so that none can be lost, or come twice, unseen. (What hangs is ended by the alarm.)
#include "common.h"
#include <sys/epoll.h>

enum { ROUNDS = 500, REQUESTS = 300, BULK = 6 << 20, LAST = 60000, PIECE = 9000 };
enum kind { PING, BOTH_WAYS, WATCHED, AWAITED, CLOSED, HALVED, KINDS };
static const char *const names[KINDS] = {"ping", "both ways", "watched", "awaited", "closed", "halved"};
static const int counts[KINDS] = {10, 3, 3, 2, 8, 4};

struct end {
    int fd, number, is_server;
    enum kind kind;
    long got, wrong;
    pthread_t thread;
};

static unsigned char expected(long at, int number, int from_server) {
    return (unsigned char)(at * 7 + (at >> 8) * 31 + (at >> 16) * 3 + number * 13 + from_server * 101);
}

static void fill(unsigned char *bytes, long len, long at, struct end *end) {
    for (long i = 0; i < len; i++) bytes[i] = expected(at + i, end->number, end->is_server);
}

static void check(const unsigned char *bytes, long len, struct end *end) {
    for (long i = 0; i < len; i++) end->wrong += bytes[i] != expected(end->got + i, end->number, !end->is_server);
    end->got += len;
}

static void send_all(struct end *end, long at, long len) {
    unsigned char bytes[PIECE];
    while (len > 0) {
        long piece = len < PIECE ? len : PIECE;
        fill(bytes, piece, at, end);
        MUST(send(end->fd, bytes, piece, MSG_NOSIGNAL) == piece ? 0 : -1);
        at += piece, len -= piece;
    }
}

// Receives so much, or until the end: how much it was.
static long receive(struct end *end, long len) {
    unsigned char bytes[PIECE];
    long done = 0;
    while (done < len) {
        long piece = len - done < PIECE ? len - done : PIECE;
        ssize_t got = recv(end->fd, bytes, piece, 0);
        if (got < 0) printf("%s: %s\n", names[end->kind], strerror(errno)), exit(1);
        if (got == 0) break;
        check(bytes, got, end);
        done += got;
    }
    return done;
}

static long size_of_round(int round) {
    return round % 50 == 49 ? 20000 : 1 + round * 37 % 900;
}

static void *echoes(void *argument) {
    struct end *end = argument;
    unsigned char bytes[PIECE];
    long sent = 0;
    ssize_t got;
    while ((got = recv(end->fd, bytes, sizeof bytes, 0)) > 0) {
        check(bytes, got, end);
        send_all(end, sent, got);
        sent += got;
    }
    end->wrong += got != 0;
    return NULL;
}

static void *asks(void *argument) {
    struct end *end = argument;
    long sent = 0;
    for (int round = 0; round < ROUNDS; round++) {
        long len = size_of_round(round);
        send_all(end, sent, len);
        sent += len;
        end->wrong += receive(end, len) != len;
    }
    return NULL;
}

// Sends and receives at once, in one thread, and waits by poll.
static void *exchanges(void *argument) {
    struct end *end = argument;
    unsigned char bytes[PIECE];
    long sent = 0;
    int is_over = 0;
    MUST(fcntl(end->fd, F_SETFL, O_NONBLOCK));
    while (!is_over || sent < BULK) {
        struct pollfd p = {.fd = end->fd, .events = (is_over ? 0 : POLLIN) | (sent < BULK ? POLLOUT : 0)};
        MUST(poll(&p, 1, -1));
        if (p.revents & POLLOUT) {
            long len = BULK - sent < PIECE ? BULK - sent : 1 + (sent * 13) % PIECE;
            fill(bytes, len, sent, end);
            ssize_t done = send(end->fd, bytes, len, MSG_NOSIGNAL);
            if (done < 0 && errno != EAGAIN) MUST(done);
            if (done > 0) sent += done;
            if (sent == BULK) MUST(shutdown(end->fd, SHUT_WR));
        }
        if (p.revents & POLLIN) {
            ssize_t got = recv(end->fd, bytes, sizeof bytes, 0);
            if (got < 0 && errno != EAGAIN) MUST(got);
            if (got > 0) check(bytes, got, end);
            is_over = got == 0;
        }
    }
    end->wrong += end->got != BULK;
    return NULL;
}

// Answers so many requests at once.
static void *answers_in_bulk(void *argument) {
    struct end *end = argument;
    long sent = 0;
    while (receive(end, REQUESTS * 16) == REQUESTS * 16) {
        send_all(end, sent, 100);
        sent += 100;
    }
    return NULL;
}

static void *requests(void *argument) {
    struct end *end = argument;
    for (int i = 0; i < 3 * REQUESTS; i++) {
        send_all(end, i * 16, 16);
        if (i % REQUESTS == REQUESTS - 1) usleep(20000);
    }
    return NULL;
}

// Its last words follow hard upon the calls by which it goes over.
static void *asks_and_ends(void *argument) {
    struct end *end = argument;
    long sent = 0;
    for (int round = 0; round < 51 + end->number % 3; round++) {
        send_all(end, sent, 100);
        sent += 100;
        end->wrong += receive(end, 100) != 100;
    }
    send_all(end, sent, LAST);
    if (end->kind == HALVED) {
        MUST(shutdown(end->fd, SHUT_WR));
        end->wrong += receive(end, LAST) != LAST;
        end->wrong += receive(end, 1) != 0;
    } else {
        // (All that comes back is read: what is not would make a reset of the end.)
        end->wrong += receive(end, LAST) != LAST;
    }
    MUST(close(end->fd));
    end->fd = -1;
    return NULL;
}

static void *(*const served[KINDS])(void *) = {echoes, exchanges, echoes, answers_in_bulk, echoes, echoes};
static void *(*const used[KINDS])(void *) = {asks, exchanges, asks, requests, asks_and_ends, asks_and_ends};

static int total(void) {
    int sum = 0;
    for (int kind = 0; kind < KINDS; kind++) sum += counts[kind];
    return sum;
}

// What was served, to be told in turn.
static char told[2048];

static void *serves(void *argument) {
    int listening = *(int *)argument, all = total(), at = 0;
    struct end *ends = calloc(all, sizeof *ends);
    for (int i = 0; i < all; i++) {
        unsigned char hello[2];
        ends[i].fd = MUST(accept(listening, NULL, NULL));
        MUST(recv(ends[i].fd, hello, 2, MSG_WAITALL) == 2 ? 0 : -1);
        ends[i].kind = hello[0], ends[i].number = hello[1], ends[i].is_server = 1;
        MUST(-pthread_create(&ends[i].thread, NULL, served[hello[0]], &ends[i]));
    }
    long wrong[KINDS] = {0}, got[KINDS] = {0};
    for (int i = 0; i < all; i++) {
        pthread_join(ends[i].thread, NULL);
        wrong[ends[i].kind] += ends[i].wrong, got[ends[i].kind] += ends[i].got;
        MUST(close(ends[i].fd));
    }
    for (int kind = 0; kind < KINDS; kind++) at += snprintf(told + at, sizeof told - at, "served, %s: %ld bytes, %ld wrong\n", names[kind], got[kind], wrong[kind]);
    free(ends);
    return NULL;
}

// What the thread that made the connections does with them meanwhile.
static void waits_beside(struct end *end, int epoll) {
    if (end->kind == WATCHED) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = end};
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, end->fd, &event));
    }
}

static void uses(struct sockaddr_in where) {
    int all = total(), at = 0, epoll = MUST(epoll_create1(0));
    struct end *ends = calloc(all, sizeof *ends);
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < counts[kind]; i++, at++) {
            struct end *end = &ends[at];
            unsigned char hello[2] = {kind, at};
            *end = (struct end){.fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), .number = at, .kind = kind};
            MUST(connect(end->fd, SA(where), sizeof where));
            MUST(send(end->fd, hello, 2, 0));
            waits_beside(end, epoll);
        }
    for (int i = 0; i < all; i++) MUST(-pthread_create(&ends[i].thread, NULL, used[ends[i].kind], &ends[i]));
    // Edges of the watched ones, and a byte now and then of the awaited ones, whose requests other threads send.
    int edges = 0;
    for (int i = 0; i < all; i++) {
        struct epoll_event event;
        edges += epoll_wait(epoll, &event, 1, 1000) == 1;
        if (ends[i].kind == AWAITED) {
            ends[i].wrong += receive(&ends[i], 300) != 300;
        } else if (ends[i].kind == WATCHED) {
            // (The thread that uses it may have taken what it was readable for.)
            struct pollfd p = {.fd = ends[i].fd, .events = POLLIN};
            MUST(poll(&p, 1, 100));
        }
    }
    printf("edges: %s\n", edges > 0 ? "some" : "none");
    long wrong[KINDS] = {0}, got[KINDS] = {0};
    for (int i = 0; i < all; i++) {
        pthread_join(ends[i].thread, NULL);
        wrong[ends[i].kind] += ends[i].wrong, got[ends[i].kind] += ends[i].got;
        if (ends[i].fd >= 0) {
            struct tcp_info info;
            socklen_t len = sizeof info;
            MUST(getsockopt(ends[i].fd, IPPROTO_TCP, TCP_INFO, &info, &len));
            int is_open = ends[i].kind != BOTH_WAYS;
            if (is_open && info.tcpi_state != 1) printf("%s: state %d\n", names[ends[i].kind], info.tcpi_state);
            MUST(close(ends[i].fd));
        }
    }
    for (int kind = 0; kind < KINDS; kind++) printf("used, %s: %ld bytes, %ld wrong\n", names[kind], got[kind], wrong[kind]);
    MUST(close(epoll));
    free(ends);
}

// A connection that goes over, and is inherited and used by a child then.
static void inherited(void) {
    int fds[2];
    stream_pair(fds);
    struct end client = {.fd = fds[0], .kind = PING}, server = {.fd = fds[1], .kind = PING, .is_server = 1};
    MUST(-pthread_create(&server.thread, NULL, echoes, &server));
    MUST(-pthread_create(&client.thread, NULL, asks, &client));
    pthread_join(client.thread, NULL);
    printf("inherited: %ld wrong\n", client.wrong);
    fflush(stdout);
    pid_t child = MUST(fork());
    if (child == 0) {
        long sent = client.got;
        send_all(&client, sent, 1000);
        client.wrong += receive(&client, 1000) != 1000;
        printf("in the child: %ld wrong\n", client.wrong);
        fflush(stdout);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0));
    MUST(shutdown(client.fd, SHUT_WR));
    pthread_join(server.thread, NULL);
    printf("served: %ld bytes, %ld wrong\n", server.got, server.wrong);
    MUST(close(fds[0]));
    MUST(close(fds[1]));
}

int main(void) {
    alarm(200);
    struct sockaddr_in where;
    printf("two processes\n");
    fflush(stdout);
    int tell[2], ahead[2];
    MUST(pipe(tell));
    MUST(pipe(ahead));
    pid_t child = MUST(fork());
    if (child == 0) {
        alarm(200);
        int listening = listener(&where);
        MUST(write(tell[1], &where, sizeof where));
        serves(&listening);
        char go;
        MUST(read(ahead[0], &go, 1));
        fputs(told, stdout);
        exit(0);
    }
    MUST(read(tell[0], &where, sizeof where));
    uses(where);
    fflush(stdout);
    MUST(write(ahead[1], "", 1));
    int status;
    MUST(waitpid(child, &status, 0));
    printf("the child ended with %d\n", status);
    printf("one process\n");
    int listening = listener(&where);
    pthread_t server;
    MUST(-pthread_create(&server, NULL, serves, &listening));
    uses(where);
    pthread_join(server, NULL);
    fputs(told, stdout);
    MUST(close(listening));
    inherited();
    return 0;
}
