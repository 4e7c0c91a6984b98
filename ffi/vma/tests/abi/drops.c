// A UDP receiver with a full buffer drops what comes, and SO_RXQ_OVFL tells how many that were before what is read.
#include "common.h"

enum { BURST = 600, LEN = 1000 };

static int set(int fd, int name, int value) {
    return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value);
}

static int get(int fd, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &len) == 0 && len == sizeof value ? value : -1;
}

// Numbered datagrams, from `*number` on.
static void burst(int fd, struct sockaddr_in to, int count, int *number) {
    char data[LEN] = "";
    for (; count > 0; count--, ++*number) {
        memcpy(data, number, sizeof *number);
        MUST(sendto(fd, data, sizeof data, 0, SA(to), sizeof to));
    }
}

// A datagram's number; and what it says of drops, zero where it says nothing.
static int next(int fd, unsigned *drops, int flags, size_t room) {
    int number = -1;
    char control[256];
    struct iovec v = {&number, sizeof number};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    *drops = 0;
    if (recvmsg(fd, &m, flags | MSG_DONTWAIT) < 0)
        return -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL)
            memcpy(drops, CMSG_DATA(c), sizeof *drops);
    return number;
}

// What a datagram has of control messages, in their order.
static void show(int fd, size_t room) {
    char byte, control[256];
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    SHOW(recvmsg(fd, &m, MSG_DONTWAIT));
    SHOW(m.msg_flags);
    SHOW(m.msg_controllen);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        printf("level %d, type %d, length %zu\n", c->cmsg_level, c->cmsg_type, c->cmsg_len);
}

static int receiver(struct sockaddr_in *where, int family) {
    if (family == AF_INET) {
        int fd = datagram(where);
        MUST(set(fd, SO_RCVBUF, 20000));
        return fd;
    }
    int fd = MUST(socket(AF_INET6, SOCK_DGRAM, 0));
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    socklen_t len = sizeof any;
    MUST(set(fd, SO_RCVBUF, 20000));
    MUST(bind(fd, SA(any), sizeof any));
    MUST(getsockname(fd, SA(any), &len));
    *where = loopback(ntohs(any.sin6_port));
    return fd;
}

// Each datagram's number is how many were read before it and how many were dropped, from the first to the last.
static void law(int family) {
    struct sockaddr_in where, own;
    int fd = receiver(&where, family), from = datagram(&own), sent = 0, read = 0, lawless = 0, silent = 0, waiting;
    unsigned drops, before = 0;
    SHOW(get(fd, SO_RXQ_OVFL));
    SHOW(set(fd, SO_RXQ_OVFL, 7));
    SHOW(get(fd, SO_RXQ_OVFL));
    for (int round = 0; round < 6; round++) {
        burst(from, where, round % 3 == 1 ? 3 : BURST, &sent);
        nap(30);
        // Of every second round, some are left.
        for (int left = round % 2 ? 5 : sent; left > 0; left--) {
            int peeked = next(fd, &drops, MSG_PEEK, 256);
            unsigned seen = drops;
            int number = next(fd, &drops, 0, 256);
            if (number < 0)
                break;
            lawless += number != read + (int)drops || peeked != number || seen != drops || drops < before;
            silent += drops == 0;
            before = drops;
            read++;
        }
    }
    while ((waiting = next(fd, &drops, 0, 256)) >= 0) {
        lawless += waiting != read + (int)drops;
        read++;
    }
    SHOW(lawless);
    // Those of the first round came before any was dropped.
    SHOW(silent > 3 && silent < BURST);
    burst(from, where, 1, &sent);
    SHOW(ready(fd, POLLIN));
    SHOW(next(fd, &drops, 0, 256) == sent - 1);
    SHOW(read + (int)drops == sent - 1 && drops > BURST);
    SHOW(ioctl(fd, FIONREAD, &read));
    MUST(close(fd));
    MUST(close(from));
}

// Who is told, and when: what comes while the option is on.
static void asked(void) {
    struct sockaddr_in where, own;
    int fd = receiver(&where, AF_INET), from = datagram(&own), sent = 0, count = 0;
    unsigned drops;
    burst(from, where, BURST, &sent);
    nap(30);
    SHOW(next(fd, &drops, 0, 256));
    SHOW(next(fd, &drops, 0, 256));
    burst(from, where, 1, &sent);
    SHOW(set(fd, SO_RXQ_OVFL, 1));
    // What waits has nothing to tell, though it came after drops.
    while (next(fd, &drops, 0, 256) >= 0)
        count += drops != 0;
    SHOW(count);
    for (int on = 0; on < 3; on++) {
        int one = 1;
        SHOW(set(fd, SO_RXQ_OVFL, on != 1));
        SHOW(set(fd, SO_TIMESTAMP, on == 2));
        SHOW(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof one));
        burst(from, where, 3, &sent);
        SHOW(ready(fd, POLLIN));
        show(fd, 256);
        show(fd, 0);
        show(fd, CMSG_LEN(3));
    }
    MUST(set(fd, SO_TIMESTAMP, 0));
    burst(from, where, 3, &sent);
    struct mmsghdr m[3] = {0};
    char control[3][CMSG_SPACE(4)], byte[3];
    struct iovec v[3];
    for (int i = 0; i < 3; i++) {
        v[i] = (struct iovec){&byte[i], 1};
        m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i]};
    }
    SHOW(ready(fd, POLLIN));
    SHOW(recvmmsg(fd, m, 3, MSG_DONTWAIT, NULL));
    for (int i = 0; i < 3; i++) {
        SHOW(m[i].msg_hdr.msg_flags);
        SHOW(m[i].msg_hdr.msg_controllen);
        SHOW(((struct cmsghdr *)control[i])->cmsg_type);
    }
    MUST(close(fd));
    MUST(close(from));
}

// Half of the datagrams come from a program without the library: the count is of both worlds.
static void worlds(char *self) {
    struct sockaddr_in where, own;
    int fd = receiver(&where, AF_INET), from = datagram(&own), sent = 0, read = 0;
    unsigned drops, before = 0, backwards = 0;
    char port[8];
    sprintf(port, "%d", ntohs(where.sin_port));
    MUST(set(fd, SO_RXQ_OVFL, 1));
    for (int round = 0; round < 3; round++) {
        burst(from, where, BURST, &sent);
        if (fork() == 0) {
            unsetenv("LD_PRELOAD");
            execl(self, self, port, NULL);
            exit(1);
        }
        int status;
        MUST(wait(&status));
        SHOW(status);
        sent += BURST;
        nap(30);
        while (next(fd, &drops, 0, 256) >= 0)
            read++;
        // When one of each world was read, nothing is unknown any more.
        for (int last = 0; last < 2; last++) {
            if (fork() == 0) {
                unsetenv("LD_PRELOAD");
                execl(self, self, port, "one", NULL);
                exit(1);
            }
            MUST(wait(&status));
            sent++;
            SHOW(ready(fd, POLLIN));
            SHOW(next(fd, &drops, 0, 256) >= 0);
            read++;
            backwards += drops < before;
            before = drops;
            SHOW(read + (int)drops == sent);
            burst(from, where, 1, &sent);
            SHOW(ready(fd, POLLIN));
            SHOW(next(fd, &drops, 0, 256) >= 0);
            read++;
            backwards += drops < before;
            before = drops;
            SHOW(read + (int)drops == sent);
        }
    }
    SHOW(backwards);
    // A socket that is shut has nothing to tell.
    SHOW(connect(fd, SA(own), sizeof own));
    SHOW(shutdown(fd, SHUT_RD));
    char byte, control[64];
    memset(control, 0x55, sizeof control);
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_name = &own, .msg_namelen = sizeof own, .msg_control = control,
                       .msg_controllen = sizeof control};
    SHOW(recvmsg(fd, &m, 0));
    SHOW(m.msg_controllen);
    SHOW(m.msg_namelen);
    SHOW(m.msg_flags);
    // Nor does it name anybody.
    socklen_t len = sizeof own;
    SHOW(recvfrom(fd, &byte, 1, 0, SA(own), &len));
    SHOW(len);
    MUST(close(fd));
    MUST(close(from));
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc > 1) {
        struct sockaddr_in own;
        int fd = datagram(&own), number = 0;
        burst(fd, loopback(atoi(argv[1])), argc > 2 ? 1 : BURST, &number);
        return 0;
    }
    law(AF_INET);
    law(AF_INET6);
    asked();
    worlds(argv[0]);
    return 0;
}
