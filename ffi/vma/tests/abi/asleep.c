// A thread that sleeps in recv(2), epoll_wait(2) or poll(2), on a socket of its own, for as long as it takes, and what others do meanwhile: its peer, signals, threads that use or
// change the socket, a fork. Where threads have rings of their own, it sleeps by its ring's lock alone, and each of these is to find it.
// With -DSEVERAL it sleeps for several sockets at once, of its own and of another thread's, by poll(2), select(2) or epoll_wait(2): on several rings.
#include "common.h"

#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

enum what { SENDS, SIGNAL, RESTARTS, CANCELS, JUMPS, SHUTS, BLOCKS_NOT, TIMES, ENDS, RESETS, FORKS, BY_KERNEL, TWO, POLLS, WATCHES, ADDS, NESTS,
            BESIDE, ACROSS, WRITES, CHANGES, CLOSES, ACROSS_BY_KERNEL, ENDS_ACROSS };
static const char *names[] = {"its peer sends", "a signal",          "a signal with SA_RESTART",  "cancelled",          "a handler leaves by longjmp",
                              "shut down",      "made non-blocking", "given a timeout",           "its peer ends",      "its peer resets",
                              "a fork",         "by the kernel",     "another thread waits, too", "another one polls",  "an epoll instance has it",
                              "an eventfd is added",  "an instance is nested",
                              "the peer of another socket of its own sends", "the peer of another thread's socket sends", "an eventfd beside is written to",
                              "another thread's socket is changed", "another thread's socket is closed", "another thread's socket has something by the kernel",
                              "the peer of another thread's socket ends"};

// (From SEVERAL on, there are four descriptors that it waits for.)
static enum { RECV, EPOLL, POLL, SEVERAL_BY_POLL, SEVERAL_BY_SELECT, SEVERAL_BY_EPOLL } by;
static const char *ways[] = {"", " by epoll", " by poll", " and others by poll", " and others by select", " and others by epoll"};
enum { ADDED = 7, MINE = 1, MAINS, EVENT, ALL };
static int several(void) { return by >= SEVERAL_BY_POLL; }
// A socket of the sleeping thread's and one of the main thread's, the other ends of both, and an eventfd.
static int beside[ALL], ends[ALL];
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

// (With others to do something on the machine, the thread takes its time to see what happened.)
static void moment(void) { usleep(60000); }

static void show(const char *who, long got, int code, const char *data) {
    printf(" %s: %ld%s%s%s%.*s\n", who, got, got < 0 ? " " : "", got < 0 ? strerrorname_np(code) : "", got > 0 ? " " : "", got > 0 ? (int)got : 0, data);
}

// (What was sent one after the other is taken so, however late the thread is.)
static size_t size_of_one(void) { return what == TWO ? 4 : 3; }

// Which of the descriptors is readable; -1 and errno where the call fails, 0 where that is not known.
static long which(void) {
    struct pollfd polled[ALL];
    struct epoll_event event;
    fd_set set;
    FD_ZERO(&set);
    for (int i = 0; i < ALL; i++) {
        int fd = i ? beside[i] : ours;
        polled[i] = (struct pollfd){.fd = fd, .events = POLLIN};
        if (fd >= 0) FD_SET(fd, &set);
    }
    long got = by == SEVERAL_BY_POLL ? poll(polled, ALL, -1) : by == SEVERAL_BY_SELECT ? select(FD_SETSIZE, &set, NULL, NULL, NULL)
                                                                                       : epoll_wait(instance, &event, 1, -1);
    if (got < 0) return got;
    if (by == SEVERAL_BY_EPOLL) return event.data.u64;
    for (int i = 0; i < ALL; i++) {
        if (by == SEVERAL_BY_POLL ? polled[i].revents != 0 : FD_ISSET(polled[i].fd, &set)) return i;
    }
    return 0;
}

static long receive_one(const char *who) {
    char data[64];
    long got, one;
    do {
        errno = 0;
        one = which();
        if (one < 0) {
            got = one;
            break;
        }
        got = one == EVENT ? read(beside[EVENT], data, 8) : recv(one ? beside[one] : ours, data, size_of_one(), MSG_DONTWAIT);
    } while (got < 0 && errno == EAGAIN);
    int code = errno;
    if (one > 0) printf(" of number %ld:", one);
    if (one == EVENT) got = 0;
    show(who, got, code, data);
    return got;
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
    if (several()) return receive_one(who);
    do {
        struct pollfd polled = {.fd = ours, .events = POLLIN};
        errno = 0;
        if (by == EPOLL && (got = epoll_wait(instance, &event, 1, -1)) < 0) break;
        if (by == POLL && (got = poll(&polled, 1, -1)) < 0) break;
        got = recv(ours, data, size_of_one(), by ? MSG_DONTWAIT : 0);
    } while (by && got < 0 && errno == EAGAIN);
    show(who, got, errno, data);
    return got;
}

// Two sockets that are connected to each other, of the calling thread's.
static void pair(int of) {
    int fds[2];
    if (udp) {
        struct sockaddr_in a, b;
        fds[0] = datagram(&a);
        fds[1] = datagram(&b);
        MUST(connect(fds[0], SA(b), sizeof b));
        MUST(connect(fds[1], SA(a), sizeof a));
    } else {
        stream_pair(fds);
    }
    beside[of] = fds[0];
    ends[of] = fds[1];
}

// Something comes on each socket, and is waited for and received.
static void rounds(int from, int count) {
    char data[64];
    for (int i = 0; i < count; i++) {
        if (!from) MUST(send(ours, "warm", 4, 0));
        for (int of = MINE; of <= MAINS; of++) MUST(send(ends[of], "warm", 4, 0));
        for (int left = EVENT - from; left > 0;) {
            long one = MUST(which());
            left -= recv(one ? beside[one] : ours, data, sizeof data, MSG_DONTWAIT) == 4;
        }
    }
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
    if (several()) pair(MINE);
    if (by == EPOLL || by == SEVERAL_BY_EPOLL) MUST(epoll_ctl(instance, EPOLL_CTL_ADD, ours, &event));
    for (int i = MINE; i < ALL && by == SEVERAL_BY_EPOLL; i++) {
        event.data.u64 = i;
        MUST(epoll_ctl(instance, EPOLL_CTL_ADD, beside[i], &event));
    }
    pthread_barrier_wait(&both);
    // (The first calls show the library what the socket is.)
    if (several()) rounds(0, 40);
    for (int i = 0; i < 40 && !several(); i++) {
        MUST(send(ours, "warm", 4, 0));
        struct pollfd polled = {.fd = ours, .events = POLLIN};
        if (by == EPOLL) MUST(epoll_wait(instance, &event, 1, -1));
        if (by == POLL) MUST(poll(&polled, 1, -1));
        if (recv(ours, data, sizeof data, 0) != 4) printf("nothing comes back\n");
    }
    pthread_barrier_wait(&both);
    // (Now the main thread waits for nothing.)
    if (several()) rounds(MINE, 5);
    struct sigaction action = {.sa_handler = what == JUMPS ? leaves : quiet, .sa_flags = what == RESTARTS ? SA_RESTART : 0};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_cleanup_push(ended, NULL);
    if (what != JUMPS || !sigsetjmp(out, 1))
        receive("got");
    else
        printf(" left\n");
    if (what != SENDS && what != ENDS && what != RESETS && what != SHUTS && what != ENDS_ACROSS) receive(what == TWO ? "got" : "then");
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
static void send_by_kernel(int from, const char *data) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TTL}};
    int ttl = 9;
    memcpy(CMSG_DATA(&control.header), &ttl, sizeof ttl);
    struct iovec v = {(void *)data, strlen(data)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = udp ? &control : NULL, .msg_controllen = udp ? sizeof control : 0};
    MUST(sendmsg(from, &m, 0));
}

static void says(const char *data) { MUST(send(theirs, data, strlen(data), MSG_NOSIGNAL)); }

static void disturb(pthread_t thread) {
    pthread_t other;
    struct timeval patience = {.tv_usec = 1000};
    struct linger abort = {1, 0};
    int another = -1, added = -1, size = 100000;
    uint64_t one = 1;
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
        send_by_kernel(theirs, "one");
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
    case BESIDE: MUST(send(ends[MINE], "one", 3, 0)); break;
    case ACROSS: MUST(send(ends[MAINS], "one", 3, 0)); break;
    case WRITES: MUST(write(beside[EVENT], &one, sizeof one)); break;
    case CHANGES:
        MUST(setsockopt(beside[MAINS], SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
        moment();
        MUST(send(ends[MAINS], "one", 3, 0));
        break;
    case CLOSES:
        MUST(close(beside[MAINS]));
        moment();
        says("one");
        break;
    case ACROSS_BY_KERNEL: send_by_kernel(ends[MAINS], "one"); break;
    case ENDS_ACROSS:
        MUST(close(ends[MAINS]));
        ends[MAINS] = -1;
        return;
    }
    moment();
    says("two");
    moment();
    if (another >= 0) MUST(close(another));
    if (added >= 0) MUST(close(added));
}

static void scenario(void) {
    printf("%s%s, %s\n", udp ? "datagrams" : "a stream", ways[by], names[what]);
    struct sockaddr_in where = loopback(0), from;
    socklen_t len = sizeof where;
    int listener = MUST(socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0));
    MUST(bind(listener, SA(where), sizeof where));
    MUST(getsockname(listener, SA(where), &len));
    if (!udp) MUST(listen(listener, 1));
    pthread_barrier_init(&both, NULL, 2);
    if (several()) {
        pair(MAINS);
        beside[EVENT] = MUST(eventfd(0, 0));
    }
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
    for (int i = MINE; i < ALL && several(); i++) {
        if (i != MAINS || what != CLOSES) MUST(close(beside[i]));
        if (i != EVENT && ends[i] >= 0) MUST(close(ends[i]));
    }
}

// (A datagram socket that is shut down is readable and has nothing, for who does not block; and such calls know no timeout.)
static int is_meant(void) {
    if (udp && (what == ENDS || what == RESETS || what == ENDS_ACROSS)) return 0;
    if (what == ADDS || what == NESTS) return by == EPOLL || by == SEVERAL_BY_EPOLL;
    // (What poll and select say of a descriptor that is closed meanwhile is unspecified: select(2).)
    if (what == CLOSES) return by == SEVERAL_BY_EPOLL;
    if (what >= BESIDE) return several();
    return !by || (what != BLOCKS_NOT && what != TIMES && (!udp || what != SHUTS));
}

int main(void) {
    alarm(100);
    setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef SEVERAL
    int from = SEVERAL_BY_POLL, to = SEVERAL_BY_EPOLL;
#else
    int from = RECV, to = POLL;
#endif
    for (int way = from; way <= to; way++)
        for (udp = 0; udp < 2; udp++)
            for (what = SENDS; what <= ENDS_ACROSS; what++) {
                by = way;
                if (is_meant()) scenario();
            }
    return 0;
}
