// UDP sockets that two threads hand to each other, while other processes send: with a ring for each thread, each socket goes over to the ring of the thread
// whose turn it is, while more comes. Every datagram says whose it is and which, so that none can be lost, come twice, or before its turn, unseen. One sender
// is there from the beginning, and one comes later, when the socket is where it was not at first. (What hangs is ended by the alarm.)
#include "common.h"
#include <sys/epoll.h>
#include <sys/mman.h>

enum { TURNS = 6, TURN_MS = 1300, LATE = 3, GREETINGS = 20, ACKED_EVERY = 16, WINDOW = 48, LONG = 20000, SENDERS = 2 };
enum kind { BLOCKS, POLLS, EDGES, LOOKS, BATCHES, CONNECTED, QUEUES, KINDS };
static const char *const names[KINDS] = {"blocks", "polls", "edges", "looks", "batches", "connected", "queues"};

struct head {
    uint32_t sender, number;
};

// What all processes see.
static struct shared {
    volatile int ports[KINDS], turn[KINDS], is_over[KINDS], is_read[KINDS];
    volatile uint32_t sent[KINDS][SENDERS], is_done[KINDS][SENDERS], stuck[KINDS][SENDERS];
} *shared;

struct server {
    enum kind kind;
    int fd, epoll, is_connected;
    uint32_t next[SENDERS], acked[SENDERS];
    long got, early, late, wrong, answers;
    pthread_t threads[2];
};

static int senders_of(enum kind kind) {
    return kind == CONNECTED ? 1 : SENDERS;
}

static size_t len_of(uint32_t number) {
    return number % 64 == 63 ? LONG : sizeof(struct head) + number * 37 % 1400;
}

static unsigned char byte_of(const struct head *head, size_t at) {
    return (unsigned char)(head->sender * 101 + head->number * 7 + at * 3);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// --- a sender, in a process of its own

static void sends(enum kind kind, uint32_t sender) {
    alarm(100);
    while (shared->ports[kind] == 0 || (sender > 0 && shared->turn[kind] < LATE)) usleep(1000);
    struct sockaddr_in to = loopback(shared->ports[kind]), own;
    int fd = datagram(&own);
    MUST(connect(fd, SA(to), sizeof to));
    struct timeval patience = {.tv_sec = 10};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    struct head head = {.sender = sender};
    uint32_t acked = 0, ack;
    // (Nothing is on its way when the next one leaves.)
    for (int i = 0; i < GREETINGS && !shared->is_over[kind]; i++) {
        MUST(send(fd, &head, sizeof head, 0));
        if (recv(fd, &ack, sizeof ack, 0) != sizeof ack) shared->stuck[kind][sender] = 1;
        usleep(2000);
    }
    unsigned char bytes[LONG];
    for (uint32_t number = 1; !shared->is_over[kind]; number++) {
        head.number = number;
        size_t len = len_of(number);
        memcpy(bytes, &head, sizeof head);
        for (size_t at = sizeof head; at < len; at++) bytes[at] = byte_of(&head, at);
        MUST(send(fd, bytes, len, 0));
        shared->sent[kind][sender] = number;
        while (recv(fd, &ack, sizeof ack, MSG_DONTWAIT) == sizeof ack) acked = ack > acked ? ack : acked;
        while (number - acked >= WINDOW && !shared->is_over[kind]) {
            if (recv(fd, &ack, sizeof ack, 0) != sizeof ack) {
                shared->stuck[kind][sender] = number;
                break;
            }
            acked = ack > acked ? ack : acked;
        }
        usleep(400);
    }
    shared->is_done[kind][sender] = 1;
    // (Who is connected to it, and answers what is yet to be read, is refused once it is gone.)
    while (!shared->is_read[kind]) usleep(1000);
    _exit(0);
}

// --- the receiver

static void came(struct server *server, const unsigned char *bytes, ssize_t len, struct sockaddr_in *from) {
    struct head head;
    if (len < (ssize_t)sizeof head) {
        server->wrong++;
        return;
    }
    memcpy(&head, bytes, sizeof head);
    if (head.sender >= SENDERS || (head.number > 0 && len != (ssize_t)len_of(head.number))) {
        server->wrong++;
        return;
    }
    for (size_t at = sizeof head; at < (size_t)len; at++) {
        if (bytes[at] != byte_of(&head, at)) {
            server->wrong++;
            break;
        }
    }
    uint32_t *next = &server->next[head.sender], ack = head.number;
    if (head.number > 0) {
        server->got++;
        server->early += head.number > *next + 1;
        server->late += head.number <= *next;
        if (head.number > *next) *next = head.number;
        if (*next - server->acked[head.sender] < ACKED_EVERY) return;
        server->acked[head.sender] = ack = *next;
    } else if (server->kind == CONNECTED && !server->is_connected) {
        MUST(connect(server->fd, SA(*from), sizeof *from));
        server->is_connected = 1;
    }
    int is_sent = server->is_connected ? send(server->fd, &ack, sizeof ack, 0) : sendto(server->fd, &ack, sizeof ack, 0, SA(*from), sizeof *from);
    MUST(is_sent);
    server->answers++;
}

// One call, or two. Whether anything came.
static int receives(struct server *server, int waits) {
    static __thread unsigned char bytes[4][LONG + 1];
    struct sockaddr_in from[4];
    socklen_t len = sizeof from[0];
    int flags = server->kind == BLOCKS || server->kind == CONNECTED ? 0 : MSG_DONTWAIT;
    if (!waits) flags = MSG_DONTWAIT;
    if (waits && (server->kind == POLLS || server->kind == QUEUES)) {
        struct pollfd p = {.fd = server->fd, .events = POLLIN};
        MUST(poll(&p, 1, 1000));
    }
    if (waits && server->kind == EDGES) {
        struct epoll_event event;
        MUST(epoll_wait(server->epoll, &event, 1, 1000));
    }
    if (server->kind == BATCHES) {
        struct iovec parts[4];
        struct mmsghdr heads[4] = {0};
        for (int i = 0; i < 4; i++) {
            parts[i] = (struct iovec){bytes[i], sizeof bytes[i]};
            heads[i].msg_hdr = (struct msghdr){.msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &parts[i], .msg_iovlen = 1};
        }
        int got = recvmmsg(server->fd, heads, 4, flags, NULL);
        for (int i = 0; i < got; i++) came(server, bytes[i], heads[i].msg_len, &from[i]);
        return got > 0;
    }
    int any = 0;
    do {
        ssize_t got = recvfrom(server->fd, bytes[0], sizeof bytes[0], flags, SA(from[0]), &len);
        if (got < 0) {
            if (errno != EAGAIN) MUST(got);
            return any;
        }
        any = 1;
        came(server, bytes[0], got, &from[0]);
        // (What is watched for edges is read to its end.)
    } while (server->kind == EDGES);
    return any;
}

struct part {
    struct server *server;
    int own;
};

static void *takes_turns(void *argument) {
    struct part *part = argument;
    struct server *server = part->server;
    volatile int *turn = &shared->turn[server->kind];
    while (*turn < TURNS) {
        if (*turn % 2 != part->own) {
            usleep(500);
            continue;
        }
        long until = now_ms() + TURN_MS;
        while (now_ms() < until) {
            if (!receives(server, 1) && server->kind == LOOKS) usleep(100);
            // (So that there is something to be taken along.)
            if (server->kind == QUEUES && server->got % 64 == 0) usleep(3000);
        }
        __atomic_add_fetch(turn, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void hands_over(struct server *server) {
    struct part parts[2] = {{server, 0}, {server, 1}};
    for (int i = 0; i < 2; i++) MUST(-pthread_create(&server->threads[i], NULL, takes_turns, &parts[i]));
    for (int i = 0; i < 2; i++) pthread_join(server->threads[i], NULL);
    // What was sent last.
    shared->is_over[server->kind] = 1;
    for (long until = now_ms() + 5000; now_ms() < until;) {
        int is_all = 1;
        for (int i = 0; i < senders_of(server->kind); i++)
            is_all &= shared->is_done[server->kind][i] && server->next[i] == shared->sent[server->kind][i];
        if (is_all) break;
        if (!receives(server, 0)) usleep(1000);
    }
    shared->is_read[server->kind] = 1;
}

static void *serves(void *argument) {
    hands_over(argument);
    return NULL;
}

int main(void) {
    alarm(200);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[KINDS * SENDERS];
    int count = 0;
    fflush(stdout);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int sender = 0; sender < senders_of(kind); sender++) {
            children[count] = MUST(fork());
            if (children[count++] == 0) sends(kind, sender);
        }
    }
    struct server servers[KINDS] = {0};
    pthread_t threads[KINDS];
    for (int kind = 0; kind < KINDS; kind++) {
        struct server *server = &servers[kind];
        struct sockaddr_in where;
        server->kind = kind;
        server->fd = datagram(&where);
        int size = 1 << 21;
        MUST(setsockopt(server->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
        if (kind == EDGES) {
            struct epoll_event event = {.events = EPOLLIN | EPOLLET};
            server->epoll = MUST(epoll_create1(0));
            MUST(epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->fd, &event));
        }
        shared->ports[kind] = ntohs(where.sin_port);
    }
    for (int kind = 0; kind < KINDS; kind++) MUST(-pthread_create(&threads[kind], NULL, serves, &servers[kind]));
    for (int kind = 0; kind < KINDS; kind++) pthread_join(threads[kind], NULL);
    for (int kind = 0; kind < KINDS; kind++) {
        struct server *server = &servers[kind];
        long sent = 0, stuck = 0;
        for (int i = 0; i < senders_of(kind); i++) sent += shared->sent[kind][i], stuck += shared->stuck[kind][i];
        printf("%s\n", names[kind]);
        printf(" %s, %ld lost, %ld ahead of their turn, %ld behind it or twice, %ld wrong, %ld stuck\n", sent > 2000 ? "some thousand" : "few",
               sent - server->got + server->late, server->early, server->late, server->wrong, stuck);
        // What is left of it is as ever: nothing waits, and it hears.
        int waiting = -1;
        MUST(ioctl(server->fd, FIONREAD, &waiting));
        printf(" %d bytes wait, %s\n", waiting, server->answers > 100 ? "some hundred answers" : "few answers");
        MUST(close(server->fd));
        if (kind == EDGES) MUST(close(server->epoll));
    }
    for (int i = 0; i < count; i++) {
        int status;
        MUST(waitpid(children[i], &status, 0));
        if (status != 0) printf("a sender ended with %d\n", status);
    }
    return 0;
}
