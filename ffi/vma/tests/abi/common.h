// What the ABI programs share. Each prints what it observes; the test runs it with and without libvma.so and compares.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Prints a call's result, and errno where it failed.
#define SHOW(call)                                                                                   \
    do {                                                                                             \
        errno = 0;                                                                                   \
        long shown = (long)(call);                                                                   \
        int code = errno;                                                                            \
        printf("%s:%d %s = %ld%s%s\n", __func__, __LINE__, #call, shown, shown < 0 ? " " : "",       \
               shown < 0 ? strerrorname_np(code) : (code ? " errno touched" : ""));                  \
    } while (0)

// A call that must work for the rest to mean anything.
#define MUST(call)                                                                                   \
    ({                                                                                               \
        long must = (long)(call);                                                                    \
        if (must < 0) {                                                                              \
            printf("%s:%d %s failed: %s\n", __func__, __LINE__, #call, strerror(errno));             \
            exit(1);                                                                                 \
        }                                                                                            \
        (int)must;                                                                                   \
    })

// Compiled with -DSIX, a program that names no address of its own is one of IPv6.
#ifdef SIX
#undef AF_INET
#define AF_INET AF_INET6
#define sockaddr_in sockaddr_in6
#define sin_family sin6_family
#define sin_port sin6_port
#define sin_addr sin6_addr
#define INET_LOOPBACK IN6ADDR_LOOPBACK_INIT
#define INET_EVERYWHERE in6addr_any
#define INET_LAST(a) (a).s6_addr32[3]
#else
#define INET_LOOPBACK {htonl(INADDR_LOOPBACK)}
#define INET_EVERYWHERE (struct in_addr){htonl(INADDR_ANY)}
#define INET_LAST(a) (a).s_addr
#endif

// A program that talks to itself does so by the loopback; or, at one end of a cable, by way of a mirror at the other, which sends back what comes for its address, as if that
// had come from there. RINGWAY_TEST_OWN is the program's address then, and RINGWAY_TEST_MIRROR the one by which it reaches itself.
static inline int has_mirror(void) {
    return getenv("RINGWAY_TEST_MIRROR") != NULL;
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = INET_LOOPBACK};
    if (has_mirror()) inet_pton(AF_INET, getenv("RINGWAY_TEST_OWN"), &a.sin_addr);
    return a;
}

// The address by which the program itself reaches the one that a socket of it is bound to.
static inline struct sockaddr_in reached(struct sockaddr_in a) {
    if (has_mirror()) inet_pton(AF_INET, getenv("RINGWAY_TEST_MIRROR"), &a.sin_addr);
    return a;
}

#define SA(a) ((struct sockaddr *)&(a))

// A port that nobody has, another one each time, from below those that the kernel hands out: whoever connects meanwhile gets none of these.
static inline int unused_port(int kind) {
    static int n;
    for (;;) {
        int port = 10000 + (getpid() * 37 + n++ * 101) % 20000, fd = MUST(socket(AF_INET, kind, 0));
        struct sockaddr_in a = loopback(port);
        a.sin_addr = INET_EVERYWHERE;
        int is_unused = bind(fd, SA(a), sizeof a) == 0;
        MUST(close(fd));
        if (is_unused) return port;
    }
}

// With -DBOTH, listeners take both families, and their clients are IPv4's.
#ifdef BOTH
static inline int listener(struct sockaddr_in *where) {
    int fd = MUST(socket(AF_INET6, SOCK_STREAM, 0)), no = 0;
    MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no));
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    MUST(bind(fd, SA(any), sizeof any));
    MUST(listen(fd, 16));
    socklen_t len = sizeof any;
    MUST(getsockname(fd, SA(any), &len));
    *where = loopback(ntohs(any.sin6_port));
    return fd;
}
#else
static inline int listener(struct sockaddr_in *where) {
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    *where = loopback(0);
    MUST(bind(fd, SA(*where), sizeof *where));
    MUST(listen(fd, 16));
    socklen_t len = sizeof *where;
    MUST(getsockname(fd, SA(*where), &len));
    *where = reached(*where);
    return fd;
}
#endif

// A connected pair of TCP sockets.
static inline void stream_pair(int fds[2]) {
    struct sockaddr_in where;
    int listening = listener(&where);
    fds[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fds[0], SA(where), sizeof where));
    fds[1] = MUST(accept(listening, NULL, NULL));
    MUST(close(listening));
}

static inline int datagram(struct sockaddr_in *where) {
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    *where = loopback(0);
    MUST(bind(fd, SA(*where), sizeof *where));
    socklen_t len = sizeof *where;
    MUST(getsockname(fd, SA(*where), &len));
    *where = reached(*where);
    return fd;
}

// Waits until `fd` has one of `events`, and shows which.
static inline int ready(int fd, int events) {
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, 3000);
    return n == 1 ? p.revents : -1000 - n;
}

// (By way of a mirror, things take longer: two cards' threads, and the mirror's process, need processors as well.)
static inline void nap(int ms) {
    ms *= !has_mirror() ? 1 : ms < 20 ? 3 : 10;
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}
