// A thread that sleeps in recv(2), epoll_wait(2) or poll(2), on a socket of its own, for as long as it takes, and what others do meanwhile: its peer, signals, threads that use or
// change the socket, a fork. Where threads have rings of their own, it sleeps by its ring's lock alone, and each of these is to find it.
#include "common.h"

#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum what { SENDS, SIGNAL, RESTARTS, CANCELS, JUMPS, SHUTS, BLOCKS_NOT, TIMES, ENDS, RESETS, FORKS, BY_KERNEL, TWO, POLLS, WATCHES, ADDS, NESTS };
static const char *names[] = {"its peer sends", "a signal",          "a signal with SA_RESTART",  "cancelled",          "a handler leaves by longjmp",
                              "shut down",      "made non-blocking", "given a timeout",           "its peer ends",      "its peer resets",
                              "a fork",         "by the kernel",     "another thread waits, too", "another one polls",  "an epoll instance has it",
                              "an eventfd is added",  "an instance is nested"};

static enum { RECV, EPOLL, POLL } by;
enum { ADDED = 7 };
static int udp;
static enum what what;
static int ours, theirs, instance;
static pthread_barrier_t both;
static sigjmp_buf out;

static void quiet(int signal) { (void)signal; }
static void leaves(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

static void moment(void) { usleep(30000); }

static void show(const char *who, long got, int code, const char *data) {
    printf(" %s: %ld%s%s%s%.*s\n", who, got, got < 0 ? " " : "", got < 0 ? strerrorname_np(code) : "", got > 0 ? " " : "", got > 0 ? (int)got : 0, data);
}

static long receive(const char *who) {
    char data[64];
    struct epoll_event event;
    long got;
    if (what == ADDS || what == NESTS) {
        event.data.u64 = 0;
        got = epoll_wait(instance, &event, 1, 5000);
        printf(" epoll_wait: %ld, of %s\n", got, event.data.u64 == ADDED ? "what was added" : "the socket");
        if (event.data.u64 == ADDED) return got;
    }
    do {
        struct pollfd polled = {.fd = ours, .events = POLLIN};
        errno = 0;
        if (by == EPOLL && (got = epoll_wait(instance, &event, 1, -1)) < 0) break;
        if (by == POLL && (got = poll(&polled, 1, -1)) < 0) break;
        got = recv(ours, data, sizeof data, by ? MSG_DONTWAIT : 0);
    } while (by && got < 0 && errno == EAGAIN);
    show(who, got, errno, data);
    return got;
}

static void ended(void *argument) {
    (void)argument;
    printf(" ended in the middle\n");
}

static void *sleeps(void *argument) {
    struct sockaddr_in *where = argument, own = loopback(0);
    ours = MUST(socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0));
    if (udp) MUST(bind(ours, SA(own), sizeof own));
    MUST(connect(ours, SA(*where), sizeof *where));
    char data[64];
    struct epoll_event event = {.events = EPOLLIN};
    instance = MUST(epoll_create1(0));
    if (by == EPOLL) MUST(epoll_ctl(instance, EPOLL_CTL_ADD, ours, &event));
    pthread_barrier_wait(&both);
    // (The first calls show the library what the socket is.)
    for (int i = 0; i < 40; i++) {
        MUST(send(ours, "warm", 4, 0));
        struct pollfd polled = {.fd = ours, .events = POLLIN};
        if (by == EPOLL) MUST(epoll_wait(instance, &event, 1, -1));
        if (by == POLL) MUST(poll(&polled, 1, -1));
        if (recv(ours, data, sizeof data, 0) != 4) printf("nothing comes back\n");
    }
    pthread_barrier_wait(&both);
    struct sigaction action = {.sa_handler = what == JUMPS ? leaves : quiet, .sa_flags = what == RESTARTS ? SA_RESTART : 0};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_cleanup_push(ended, NULL);
    if (what != JUMPS || !sigsetjmp(out, 1))
        receive("got");
    else
        printf(" left\n");
    if (what != SENDS && what != ENDS && what != RESETS && what != SHUTS) receive(what == TWO ? "got" : "then");
    pthread_cleanup_pop(0);
    return NULL;
}

static void *also(void *argument) {
    (void)argument;
    receive("got");
    return NULL;
}

static void *polls(void *argument) {
    (void)argument;
    // (What it finds, if it is before the one that takes it, is no matter.)
    struct pollfd polled = {.fd = ours, .events = POLLIN};
    poll(&polled, 1, 200);
    return NULL;
}

// A datagram that the kernel carries, for what its control message asks for.
static void send_by_kernel(const char *data) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TTL}};
    int ttl = 9;
    memcpy(CMSG_DATA(&control.header), &ttl, sizeof ttl);
    struct iovec v = {(void *)data, strlen(data)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = udp ? &control : NULL, .msg_controllen = udp ? sizeof control : 0};
    MUST(sendmsg(theirs, &m, 0));
}

static void says(const char *data) { MUST(send(theirs, data, strlen(data), MSG_NOSIGNAL)); }

static void disturb(pthread_t thread) {
    pthread_t other;
    struct timeval patience = {.tv_usec = 1000};
    struct linger abort = {1, 0};
    int another = -1, added = -1;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = ADDED};
    moment();
    switch (what) {
    case SENDS: says("one"); return;
    case SIGNAL: MUST(-pthread_kill(thread, SIGUSR1)); break;
    case RESTARTS:
        MUST(-pthread_kill(thread, SIGUSR1));
        moment();
        says("one");
        break;
    case CANCELS: MUST(-pthread_cancel(thread)); return;
    case JUMPS: MUST(-pthread_kill(thread, SIGUSR1)); break;
    case SHUTS: MUST(shutdown(ours, SHUT_RD)); return;
    case BLOCKS_NOT:
        MUST(fcntl(ours, F_SETFL, O_NONBLOCK));
        moment();
        says("one");
        moment();
        return;
    case TIMES:
        MUST(setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
        moment();
        says("one");
        moment();
        return;
    case ENDS: MUST(close(theirs)); return;
    case RESETS:
        MUST(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &abort, sizeof abort));
        MUST(close(theirs));
        return;
    case FORKS: {
        int child = MUST(fork());
        if (child == 0) _exit(0);
        MUST(waitpid(child, NULL, 0));
        says("one");
        break;
    }
    case BY_KERNEL:
        send_by_kernel("one");
        moment();
        says("two");
        return;
    case TWO:
        MUST(-pthread_create(&other, NULL, also, NULL));
        moment();
        says("same");
        moment();
        says("same");
        moment();
        says("same");
        MUST(-pthread_join(other, NULL));
        return;
    case POLLS:
        MUST(-pthread_create(&other, NULL, polls, NULL));
        moment();
        says("one");
        MUST(-pthread_join(other, NULL));
        break;
    case WATCHES: {
        another = MUST(epoll_create1(0));
        event.events = EPOLLIN | EPOLLET;
        MUST(epoll_ctl(another, EPOLL_CTL_ADD, ours, &event));
        moment();
        says("one");
        epoll_wait(another, &event, 1, 200);
        break;
    }
    case ADDS: {
        added = MUST(eventfd(0, 0));
        uint64_t one = 1;
        event.events = EPOLLIN | EPOLLONESHOT;
        MUST(epoll_ctl(instance, EPOLL_CTL_ADD, added, &event));
        moment();
        MUST(write(added, &one, sizeof one));
        break;
    }
    case NESTS: {
        // (The inner one has a socket of the sleeping thread's ring that is readable already.)
        added = MUST(epoll_create1(0));
        event.events = EPOLLIN | EPOLLONESHOT;
        MUST(epoll_ctl(instance, EPOLL_CTL_ADD, added, &event));
        moment();
        event = (struct epoll_event){.events = EPOLLOUT};
        MUST(epoll_ctl(added, EPOLL_CTL_ADD, ours, &event));
        break;
    }
    }
    moment();
    says("two");
    moment();
    if (another >= 0) MUST(close(another));
    if (added >= 0) MUST(close(added));
}

static void scenario(void) {
    printf("%s%s, %s\n", udp ? "datagrams" : "a stream", by == EPOLL ? " by epoll" : by == POLL ? " by poll" : "", names[what]);
    struct sockaddr_in where = loopback(0), from;
    socklen_t len = sizeof where;
    int listener = MUST(socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0));
    MUST(bind(listener, SA(where), sizeof where));
    MUST(getsockname(listener, SA(where), &len));
    if (!udp) MUST(listen(listener, 1));
    pthread_barrier_init(&both, NULL, 2);
    pthread_t thread;
    MUST(-pthread_create(&thread, NULL, sleeps, &where));
    char data[64];
    theirs = udp ? listener : MUST(accept(listener, NULL, NULL));
    pthread_barrier_wait(&both);
    for (int i = 0; i < 40; i++) {
        len = sizeof from;
        MUST(recvfrom(theirs, data, sizeof data, 0, SA(from), &len));
        if (udp && i == 0) MUST(connect(theirs, SA(from), sizeof from));
        MUST(send(theirs, data, 4, 0));
    }
    pthread_barrier_wait(&both);
    disturb(thread);
    MUST(-pthread_join(thread, NULL));
    if (what != ENDS && what != RESETS) MUST(close(theirs));
    if (!udp) MUST(close(listener));
    MUST(close(ours));
    MUST(close(instance));
}

// (A datagram socket that is shut down is readable and has nothing, for who does not block; and such calls know no timeout.)
static int is_meant(void) {
    if (udp && (what == ENDS || what == RESETS)) return 0;
    if (what == ADDS || what == NESTS) return by == EPOLL;
    return !by || (what != BLOCKS_NOT && what != TIMES && (!udp || what != SHUTS));
}

int main(void) {
    alarm(100);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (by = RECV; by <= POLL; by++)
        for (udp = 0; udp < 2; udp++)
            for (what = SENDS; what <= NESTS; what++)
                if (is_meant()) scenario();
    return 0;
}
