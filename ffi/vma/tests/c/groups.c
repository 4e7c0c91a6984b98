/* Members of a group, and who speaks to it. It knows nothing of who carries its sockets. What is wrong is printed, and "ready" by who hears; nothing else is.
 *
 *   groups tell GROUP PORT IF COUNT RATE FIRST   sends so many datagrams, numbered from there on, so many a second
 *   groups hear GROUP PORT IF COUNT          hears all of them, in order, each once
 *   groups later GROUP PORT IF COUNT         hears so many of them, whichever comes first
 *   groups read GROUP PORT IF COUNT          as hear, by epoll, without blocking, and as who shares its port with nobody
 *   groups forks GROUP PORT IF COUNT         as hear, and has a child halfway
 *   groups several GROUP PORT IF COUNT       many sockets, whose filters differ: the speaker is 10.78.0.2 or fd78::2
 *   groups loops GROUP PORT IF               speaks to itself, and is not to hear it, and is
 *   groups leaves GROUP PORT IF COUNT        hears half of them, leaves, and comes back for what "tell" says to it then
 */
#include "far.h"
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

#define LEN 200
/* So long nobody speaks who is about to. */
#define PATIENCE_MS 20000

static unsigned interface;
static uint32_t count;

static int level(void) { return to.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6; }

static void set(int fd, int level, int name, const void *value, socklen_t len) { CHECK(setsockopt(fd, level, name, value, len) == 0); }

static void turn(int fd, int level, int name, int value) { set(fd, level, name, &value, sizeof value); }

/* The group's address, or no address, with the port. */
static int bound(int to_group, int shares) {
    struct sockaddr_storage at = to;
    int fd = opened(SOCK_DGRAM);
    if (shares) {
        turn(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    }
    /* (No reader is so slow that this is full. Who has no privileges has less.) */
    int room = 32 << 20;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) == 0 || errno == EPERM);
    if (!to_group && to.ss_family == AF_INET) {
        ((struct sockaddr_in *)&at)->sin_addr.s_addr = 0;
    } else if (!to_group) {
        memset(&((struct sockaddr_in6 *)&at)->sin6_addr, 0, 16);
    }
    CHECK(bind(fd, (struct sockaddr *)&at, to_len) == 0);
    return fd;
}

static void join(int fd, int name) {
    struct group_req request = {.gr_interface = interface};
    memcpy(&request.gr_group, &to, to_len);
    set(fd, level(), name, &request, sizeof request);
}

static void source(int fd, int name, const char *v4, const char *v6) {
    struct group_source_req request = {.gsr_interface = interface};
    memcpy(&request.gsr_group, &to, to_len);
    request.gsr_source.ss_family = to.ss_family;
    struct sockaddr_in *in = (struct sockaddr_in *)&request.gsr_source;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&request.gsr_source;
    CHECK(to.ss_family == AF_INET ? inet_pton(AF_INET, v4, &in->sin_addr) : inet_pton(AF_INET6, v6, &in6->sin6_addr));
    set(fd, level(), name, &request, sizeof request);
}

static int member(void) {
    int fd = bound(0, 1);
    join(fd, MCAST_JOIN_GROUP);
    return fd;
}

static void ready(void) { CHECK(printf("ready\n") > 0 && fflush(stdout) == 0); }

static int speaker(void) {
    int fd = opened(SOCK_DGRAM);
    if (to.ss_family == AF_INET) {
        struct ip_mreqn by = {.imr_ifindex = interface};
        set(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
    } else {
        turn(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, interface);
    }
    return fd;
}

static void say(int fd, uint32_t number) {
    uint32_t words[LEN / 4] = {number};
    CHECK(sendto(fd, words, LEN, 0, (struct sockaddr *)&to, to_len) == LEN);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void tell(int rate, uint32_t first) {
    int fd = speaker();
    double began = now();
    for (uint32_t number = 0; number < count; number++) {
        double ahead = began + (double)number / rate - now();
        if (ahead > 0.0002) {
            usleep(ahead * 1e6);
        }
        say(fd, first + number);
    }
}

static uint32_t hear(int fd) {
    uint32_t words[LEN / 4] = {0};
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(poll(&wait, 1, PATIENCE_MS) == 1);
    struct sockaddr_storage from;
    socklen_t from_len = sizeof from;
    CHECK(recvfrom(fd, words, sizeof words, 0, (struct sockaddr *)&from, &from_len) == LEN && from_len == to_len && from.ss_family == to.ss_family);
    return words[0];
}

static void hear_these(int fd, uint32_t first, uint32_t end) {
    for (uint32_t number = first; number < end; number++) {
        uint32_t heard = hear(fd);
        if (heard != number) {
            printf("%u came, and not %u\n", heard, number);
            exit(1);
        }
    }
}

static void nothing(int fd) {
    char byte;
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

static void read_all(void) {
    uint32_t words[LEN / 4], next = 0;
    int fd = bound(1, 0), epoll = epoll_create1(0);
    join(fd, MCAST_JOIN_GROUP);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    ready();
    while (next < count) {
        CHECK(epoll_wait(epoll, &event, 1, PATIENCE_MS) == 1);
        ssize_t len;
        while ((len = recv(fd, words, sizeof words, 0)) >= 0) {
            CHECK(len == LEN && words[0] == next++);
        }
        CHECK(errno == EAGAIN);
    }
}

static void forks(void) {
    int fd = member();
    ready();
    hear_these(fd, 0, count / 2);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(300000);
        _exit(0);
    }
    hear_these(fd, count / 2, count);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    nothing(fd);
}

static void several(void) {
    enum { HEAR = 6, ALL = 10 };
    int fds[ALL];
    for (int i = 0; i < ALL; i++) {
        /* One that is bound to the group's address, and nine to any. */
        fds[i] = bound(i == 1, 1);
    }
    int all = to.ss_family == AF_INET ? IP_MULTICAST_ALL : 29 /* IPV6_MULTICAST_ALL */;
    join(fds[0], MCAST_JOIN_GROUP);
    join(fds[1], MCAST_JOIN_GROUP);
    source(fds[2], MCAST_JOIN_SOURCE_GROUP, "10.78.0.2", "fd78::2");
    join(fds[3], MCAST_JOIN_GROUP);
    source(fds[3], MCAST_BLOCK_SOURCE, "10.78.0.9", "fd78::9");
    /* No member hears what members do, unless it says otherwise. */
    join(fds[5], MCAST_JOIN_GROUP);
    source(fds[5], MCAST_BLOCK_SOURCE, "10.78.0.2", "fd78::2");
    source(fds[5], MCAST_UNBLOCK_SOURCE, "10.78.0.2", "fd78::2");
    /* From here on nobody hears. */
    source(fds[6], MCAST_JOIN_SOURCE_GROUP, "10.78.0.9", "fd78::9");
    join(fds[7], MCAST_JOIN_GROUP);
    source(fds[7], MCAST_BLOCK_SOURCE, "10.78.0.2", "fd78::2");
    turn(fds[8], level(), all, 0);
    join(fds[9], MCAST_JOIN_GROUP);
    join(fds[9], MCAST_LEAVE_GROUP);
    turn(fds[9], level(), all, 0);
    ready();
    for (uint32_t number = 0; number < count; number++) {
        for (int i = 0; i < HEAR; i++) {
            CHECK(hear(fds[i]) == number);
        }
    }
    for (int i = 0; i < ALL; i++) {
        nothing(fds[i]);
    }
}

static void loops(void) {
    int fd = member(), out = speaker();
    int level_of = level(), name = to.ss_family == AF_INET ? IP_MULTICAST_LOOP : IPV6_MULTICAST_LOOP;
    ready();
    say(out, 0);
    CHECK(hear(fd) == 0);
    turn(out, level_of, name, 0);
    say(out, 1);
    turn(out, level_of, name, 1);
    say(out, 2);
    CHECK(hear(fd) == 2);
    nothing(fd);
}

/* What came before it left is there to be read. */
static void leaves(void) {
    int fd = bound(0, 0);
    turn(fd, level(), to.ss_family == AF_INET ? IP_MULTICAST_ALL : 29 /* IPV6_MULTICAST_ALL */, 0);
    join(fd, MCAST_JOIN_GROUP);
    ready();
    hear_these(fd, 0, count / 2);
    usleep(count * 1000);
    join(fd, MCAST_LEAVE_GROUP);
    hear_these(fd, count / 2, count);
    usleep(200000);
    nothing(fd);
    join(fd, MCAST_JOIN_GROUP);
    ready();
    hear_these(fd, 0, count);
}

int main(int argc, char **argv) {
    CHECK(argc >= 5);
    name(argv[2], argv[3]);
    interface = if_nametoindex(argv[4]);
    CHECK(interface != 0);
    count = argc > 5 ? atoi(argv[5]) : 0;
    const char *word = argv[1];
    if (strcmp(word, "tell") == 0) {
        CHECK(argc == 8);
        tell(atoi(argv[6]), atoi(argv[7]));
    } else if (strcmp(word, "hear") == 0) {
        int fd = member();
        ready();
        hear_these(fd, 0, count);
        nothing(fd);
    } else if (strcmp(word, "later") == 0) {
        int fd = member();
        uint32_t first = hear(fd);
        hear_these(fd, first + 1, first + count);
    } else if (strcmp(word, "read") == 0) {
        read_all();
    } else if (strcmp(word, "forks") == 0) {
        forks();
    } else if (strcmp(word, "several") == 0) {
        several();
    } else if (strcmp(word, "loops") == 0) {
        loops();
    } else if (strcmp(word, "leaves") == 0) {
        leaves();
    } else {
        CHECK(!"such a word");
    }
    return 0;
}
