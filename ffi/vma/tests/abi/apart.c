// UDP sockets of several threads, each of which another thread changes meanwhile: what they are connected to, whether they block, what they ask to be told,
// who is at the other end. Where threads have rings of their own, a datagram's call looks at its socket by the ring's lock alone, and is to heed what was
// changed before it. Every request is answered, so nothing depends on order or speed. (What is missed ends the program by its alarm.)
#include "common.h"

enum { SERVERS = 3, CLIENTS = 3, ROUNDS = 1200, STAMPED = 300, REBORN = 250, BY_KERNEL = 90 };

struct server {
    int fd, port;
    long heard, stamped, unstamped, wrong;
};

struct client {
    struct server *server;
    int number;
    long done, wrong, strangers;
};

static int bound(int port, struct sockaddr_in *where) {
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in a = loopback(port);
    MUST(bind(fd, SA(a), sizeof a));
    if (where) {
        socklen_t len = sizeof *where;
        MUST(getsockname(fd, (struct sockaddr *)where, &len));
    }
    return fd;
}

// Waits for a descriptor that does not block, or that a call found empty.
static void await(int fd) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    MUST(poll(&polled, 1, -1));
}

// Answers each datagram to whom it is from, and changes its own socket on the way: the very next call is to heed it.
static void *serves(void *argument) {
    struct server *server = argument;
    int on = 0, total = CLIENTS * ROUNDS;
    while (server->heard < total) {
        char data[64], control[128];
        struct sockaddr_in from;
        struct iovec v = {data, sizeof data};
        struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t got = recvmsg(server->fd, &m, 0);
        if (got < 0 && errno == EAGAIN) {
            await(server->fd);
            continue;
        }
        if (got < 1) {
            server->wrong++;
            continue;
        }
        // (One that came before SO_TIMESTAMP was set has a stamp all the same, made when it is read.)
        int has_stamp = CMSG_FIRSTHDR(&m) != NULL;
        server->stamped += has_stamp && on;
        server->unstamped += !has_stamp && !on;
        server->wrong += has_stamp != on;
        for (ssize_t i = 0; i < got; i++) data[i] ^= 0x5a;
        server->wrong += sendto(server->fd, data, got, 0, SA(from), sizeof from) != got;
        if (++server->heard % STAMPED == 0) {
            on = !on;
            MUST(setsockopt(server->fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
        }
    }
    return NULL;
}

// One datagram that the kernel carries, for what its control message asks for.
static ssize_t by_kernel(int fd, const char *data, size_t len, struct sockaddr_in *to) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TTL}};
    int ttl = 9;
    memcpy(CMSG_DATA(&control.header), &ttl, sizeof ttl);
    struct iovec v = {(void *)data, len};
    struct msghdr m = {.msg_name = to, .msg_namelen = to ? sizeof *to : 0, .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    return sendmsg(fd, &m, 0);
}

// Asks and waits: connected or not, blocking or not, by its number and as the rounds go.
static void *asks(void *argument) {
    struct client *client = argument;
    struct sockaddr_in where = loopback(client->server->port), unspecified = {.sin_family = AF_UNSPEC};
    int fd = bound(0, NULL), connected = 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (i % REBORN == REBORN - 1) {
            MUST(close(fd));
            fd = bound(0, NULL);
            connected = 0;
        }
        if (client->number > 0 && i % 50 == 10) {
            if (connected)
                MUST(connect(fd, SA(unspecified), sizeof unspecified));
            else
                MUST(connect(fd, SA(where), sizeof where));
            connected = !connected;
        }
        char data[16], back[64];
        int len = snprintf(data, sizeof data, "%d %d", client->number, i);
        int kernels = i % BY_KERNEL == BY_KERNEL - 1;
        ssize_t sent = kernels     ? by_kernel(fd, data, len, connected ? NULL : &where)
                       : connected ? send(fd, data, len, 0)
                                   : sendto(fd, data, len, 0, SA(where), sizeof where);
        client->wrong += sent != len;
        ssize_t got;
        struct sockaddr_in from = {0};
        socklen_t from_len = sizeof from;
        while ((got = recvfrom(fd, back, sizeof back, client->number == 2 ? MSG_DONTWAIT : 0, SA(from), &from_len)) < 0 && errno == EAGAIN)
            if (i % 2) await(fd);
        for (ssize_t k = 0; k < got; k++) back[k] ^= 0x5a;
        client->wrong += got != len || memcmp(data, back, len) != 0;
        client->strangers += from.sin_port != where.sin_port;
        client->done++;
    }
    MUST(close(fd));
    return NULL;
}

int main(void) {
    alarm(100);
    struct server servers[SERVERS] = {0};
    struct client clients[SERVERS][CLIENTS] = {0};
    pthread_t thread[SERVERS][CLIENTS + 1];
    for (int s = 0; s < SERVERS; s++) {
        struct sockaddr_in where;
        servers[s].fd = bound(0, &where);
        servers[s].port = ntohs(where.sin_port);
    }
    for (int s = 0; s < SERVERS; s++) {
        MUST(-pthread_create(&thread[s][CLIENTS], NULL, serves, &servers[s]));
        for (int c = 0; c < CLIENTS; c++) {
            clients[s][c] = (struct client){.server = &servers[s], .number = c};
            MUST(-pthread_create(&thread[s][c], NULL, asks, &clients[s][c]));
        }
    }
    // Another thread's: whether a server blocks, and for how long, changes all the while.
    for (int i = 0; i < 300; i++) {
        for (int s = 0; s < SERVERS; s++) {
            struct timeval patience = {.tv_usec = i % 3 == 0 ? 0 : 500};
            MUST(fcntl(servers[s].fd, F_SETFL, i % 2 ? O_NONBLOCK : 0));
            MUST(setsockopt(servers[s].fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
        }
        usleep(300);
    }
    for (int s = 0; s < SERVERS; s++)
        for (int c = 0; c <= CLIENTS; c++) MUST(-pthread_join(thread[s][c], NULL));
    for (int s = 0; s < SERVERS; s++) {
        struct server *server = &servers[s];
        printf("server %d: heard %ld, stamped %ld, unstamped %ld, wrong %ld\n", s, server->heard, server->stamped, server->unstamped, server->wrong);
        for (int c = 0; c < CLIENTS; c++)
            printf(" client %d: done %ld, wrong %ld, strangers %ld\n", c, clients[s][c].done, clients[s][c].wrong, clients[s][c].strangers);
    }
    return 0;
}
