/* Waits in every way, and prints what it sees. Run with and without libvma.so: both must print the same.
 * usage: mux CASE */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { printf("FAILED %s:%d %s errno %d\n", __FILE__, __LINE__, #x, errno); exit(1); } } while (0)

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static int listener(struct sockaddr_in *a) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof *a;
    *a = loopback(0);
    CHECK(l >= 0 && bind(l, (void *)a, sizeof *a) == 0 && listen(l, 64) == 0 && getsockname(l, (void *)a, &len) == 0);
    return l;
}

/* a connected pair: s[0] accepted, s[1] connecting side */
static void pair(int s[2]) {
    struct sockaddr_in a;
    int l = listener(&a), one = 1;
    s[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(s[1], (void *)&a, sizeof a) == 0);
    s[0] = accept(l, 0, 0);
    CHECK(s[0] >= 0);
    setsockopt(s[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(s[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(l);
}

static void ctl(int ep, int op, int fd, uint32_t events, uint64_t data) {
    struct epoll_event e = { .events = events, .data.u64 = data };
    errno = 0;
    int r = epoll_ctl(ep, op, fd, &e);
    if (r) printf("ctl %d: errno %d\n", op, errno);
}

static int by_data(const void *a, const void *b) {
    uint64_t x = ((struct epoll_event *)a)->data.u64, y = ((struct epoll_event *)b)->data.u64;
    return x < y ? -1 : x > y;
}

static void show(const char *what, int ep, int timeout) {
    struct epoll_event e[16];
    int n = epoll_wait(ep, e, 16, timeout);
    printf("%s: %d", what, n);
    if (n < 0) printf(" errno %d", errno);
    if (n > 0) qsort(e, n, sizeof *e, by_data);
    for (int i = 0; i < n; i++) printf(" %llu:%x", (unsigned long long)e[i].data.u64, e[i].events);
    printf("\n");
}

static void show_poll(const char *what, struct pollfd *p, int n, int timeout) {
    int r = poll(p, n, timeout);
    printf("%s: %d", what, r);
    for (int i = 0; i < n; i++) printf(" %x", p[i].revents);
    printf("\n");
}

static void put(int fd, const char *s) { CHECK(write(fd, s, strlen(s)) == (ssize_t)strlen(s)); }
static void get(int fd, int n) { char b[64]; CHECK(read(fd, b, n) == n); }

static void level(void) {
    int s[2], ep = epoll_create1(0);
    pair(s);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    show("nothing", ep, 0);
    put(s[1], "ab");
    show("two bytes", ep, 1000);
    show("still", ep, 0);
    get(s[0], 1);
    show("one left", ep, 0);
    get(s[0], 1);
    show("none left", ep, 0);
    ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLOUT, 2);
    show("writable", ep, 0);
    ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLRDHUP, 3);
    show("not asked", ep, 0);
    shutdown(s[1], SHUT_WR);
    show("peer finished", ep, 1000);
    shutdown(s[0], SHUT_WR);
    usleep(20000);
    show("both finished", ep, 1000);
    ctl(ep, EPOLL_CTL_DEL, s[0], 0, 0);
    show("deleted", ep, 0);
}

static void edge(void) {
    int s[2], ep = epoll_create1(0);
    pair(s);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLOUT | EPOLLET, 1);
    show("writable at first", ep, 1000);
    show("no edge", ep, 0);
    put(s[1], "a");
    show("an edge", ep, 1000);
    show("no edge", ep, 0);
    put(s[1], "b");
    show("another", ep, 1000);
    ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLET, 2);
    show("modified", ep, 1000);
    show("no edge", ep, 0);
    close(s[1]);
    show("closed", ep, 1000);
}

static void oneshot(void) {
    int s[2], ep = epoll_create1(0);
    pair(s);
    put(s[1], "abc");
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLONESHOT, 1);
    show("once", ep, 1000);
    show("disarmed", ep, 50);
    put(s[1], "d");
    show("still disarmed", ep, 50);
    ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLONESHOT, 2);
    show("armed again", ep, 1000);
    show("disarmed", ep, 0);
}

static void fresh(void) {
    int ep = epoll_create1(0), f = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in a;
    int l = listener(&a);
    ctl(ep, EPOLL_CTL_ADD, f, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    show("fresh", ep, 0);
    struct pollfd p = { f, POLLIN | POLLOUT, 0 };
    show_poll("fresh", &p, 1, 0);
    int r = connect(f, (void *)&a, sizeof a);
    CHECK(r == 0 || errno == EINPROGRESS);
    struct pollfd c = { f, POLLOUT, 0 };
    show_poll("connected", &c, 1, 1000);
    show("connected", ep, 1000);
    int s = accept(l, 0, 0);
    put(s, "x");
    show("a byte", ep, 1000);
    /* nobody listens there: the connection is refused, wherever it is tried */
    int g = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    close(l);
    ctl(ep, EPOLL_CTL_ADD, g, EPOLLIN | EPOLLOUT | EPOLLET, 2);
    show("fresh", ep, 0);
    r = connect(g, (void *)&a, sizeof a);
    printf("refused: %d\n", r == 0 || errno == EINPROGRESS || errno == ECONNREFUSED);
    show("refused", ep, 1000);
    int error = 0;
    socklen_t len = sizeof error;
    getsockopt(g, SOL_SOCKET, SO_ERROR, &error, &len);
    printf("error %d\n", error);
}

static void nested(void) {
    int s[2], in = epoll_create1(0), out = epoll_create1(0), p[2];
    pair(s);
    CHECK(pipe(p) == 0);
    ctl(in, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    ctl(in, EPOLL_CTL_ADD, p[0], EPOLLIN, 2);
    ctl(out, EPOLL_CTL_ADD, in, EPOLLIN, 3);
    show("nothing", out, 0);
    put(s[1], "a");
    show("outer", out, 1000);
    struct pollfd q = { in, POLLIN, 0 };
    show_poll("polled", &q, 1, 1000);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(in, &set);
    struct timeval t = { 1, 0 };
    printf("selected: %d\n", select(in + 1, &set, 0, 0, &t));
    show("inner", in, 0);
    get(s[0], 1);
    show("inner empty", in, 0);
    show("outer empty", out, 0);
    put(p[1], "b");
    show("outer by pipe", out, 1000);
    put(s[1], "c");
    usleep(20000);
    show("inner both", in, 1000);
    ctl(in, EPOLL_CTL_ADD, in, EPOLLIN, 9);
    ctl(in, EPOLL_CTL_ADD, out, EPOLLIN, 9);
    ctl(out, EPOLL_CTL_ADD, in, EPOLLIN, 9);
    ctl(out, EPOLL_CTL_DEL, in, 0, 0);
    show("outer deleted", out, 0);
    ctl(out, EPOLL_CTL_DEL, in, 0, 0);
    ctl(out, EPOLL_CTL_ADD, in, EPOLLIN | EPOLLET, 4);
    show("outer again", out, 0);
    close(in);
    show("inner closed", out, 0);
}

static void two(void) {
    int s[2], a = epoll_create1(0), b = epoll_create1(0);
    pair(s);
    ctl(a, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    ctl(b, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLET, 2);
    put(s[1], "x");
    show("first", a, 1000);
    show("second", b, 1000);
    show("first", a, 0);
    show("second", b, 0);
    int d = dup(s[0]);
    ctl(a, EPOLL_CTL_ADD, d, EPOLLIN, 3);
    show("two items", a, 0);
    ctl(a, EPOLL_CTL_DEL, s[0], 0, 0);
    show("the duplicate", a, 0);
    close(s[0]);
    show("still the duplicate", a, 0);
    close(d);
    show("none", a, 0);
}

static void mixed(void) {
    int s[2], p[2], ep = epoll_create1(0);
    pair(s);
    CHECK(pipe(p) == 0);
    ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 2);
    show("nothing", ep, 0);
    show("nothing", ep, 20);
    put(p[1], "a");
    show("pipe", ep, 1000);
    put(s[1], "b");
    /* both are reported within a bounded number of calls, whichever is first */
    int seen = 0;
    for (int i = 0; i < 100 && seen != 3; i++) {
        struct epoll_event e;
        CHECK(epoll_wait(ep, &e, 1, 1000) == 1);
        seen |= (int)e.data.u64;
    }
    printf("seen %d\n", seen);
    get(p[0], 1);
    show("socket", ep, 1000);
    struct pollfd q[4] = { { p[0], POLLIN, 0 }, { s[0], POLLIN, 0 }, { -1, POLLIN, 77 }, { 999, POLLIN, 0 } };
    show_poll("poll", q, 3, 1000);
    q[1].events = 0;
    show_poll("invalid", q, 4, 1000);
    put(p[1], "c");
    fd_set r, w;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(p[0], &r);
    FD_SET(s[0], &r);
    FD_SET(s[1], &w);
    int max = p[0] > s[0] ? p[0] : s[0];
    struct timeval t = { 5, 0 };
    get(s[0], 1);
    int n = select((max > s[1] ? max : s[1]) + 1, &r, &w, 0, &t);
    printf("select %d: write %d, time left %d\n", n > 0, !!FD_ISSET(s[1], &w), t.tv_sec == 4 || t.tv_sec == 5);
    FD_ZERO(&r);
    FD_SET(s[0], &r);
    t = (struct timeval){ 0, 30000 };
    n = select(s[0] + 1, &r, 0, 0, &t);
    printf("timeout %d %d %ld %ld\n", n, !!FD_ISSET(s[0], &r), (long)t.tv_sec, (long)t.tv_usec);
}

static void errors(void) {
    int s[2], ep = epoll_create1(0), file = open("/proc/self/exe", O_RDONLY);
    pair(s);
    ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_DEL, s[0], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    ctl(ep, 99, s[0], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, ep, EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, 998, EPOLLIN, 1);
    ctl(998, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    ctl(s[0], EPOLL_CTL_ADD, s[1], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, file, EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLEXCLUSIVE, 1);
    ctl(ep, EPOLL_CTL_ADD, s[1], EPOLLIN | EPOLLEXCLUSIVE, 2);
    ctl(ep, EPOLL_CTL_MOD, s[1], EPOLLIN, 1);
    printf("null event %d", epoll_ctl(ep, EPOLL_CTL_MOD, s[0], 0));
    printf(" errno %d\n", errno);
    struct epoll_event e;
    printf("no room %d", epoll_wait(ep, &e, 0, 0));
    printf(" errno %d\n", errno);
    printf("closed %d", epoll_wait(998, &e, 1, 0));
    printf(" errno %d\n", errno);
    printf("not an epoll %d", epoll_wait(s[0], &e, 1, 0));
    printf(" errno %d\n", errno);
}

/* data that looks like the library's own tokens is reported as it was given */
static void alike(void) {
    int s[2], p[2], ep = epoll_create1(0);
    pair(s);
    CHECK(pipe(p) == 0);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 0xa751d30000000000);
    ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 0xa751d30000000000);
    put(p[1], "a");
    show("alike", ep, 1000);
    ctl(ep, EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLET, 0xa751d3ffffffffff);
    show("modified", ep, 1000);
    show("an edge", ep, 20);
    ctl(ep, EPOLL_CTL_DEL, p[0], 0, 0);
    ctl(ep, EPOLL_CTL_DEL, p[0], 0, 0);
    ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 2);
    show("unlike", ep, 1000);
    put(s[1], "b");
    usleep(20000);
    show("both", ep, 1000);
}

static void hangup(void) {
    int s[2];
    pair(s);
    struct pollfd p = { s[0], POLLIN | POLLRDHUP, 0 };
    show_poll("quiet", &p, 1, 10);
    put(s[1], "a");
    show_poll("a byte", &p, 1, 1000);
    p.events = POLLRDNORM | POLLWRNORM | POLLPRI;
    show_poll("synonyms", &p, 1, 1000);
    p.events = POLLRDHUP;
    shutdown(s[1], SHUT_WR);
    show_poll("half closed", &p, 1, 1000);
    get(s[0], 1);
    shutdown(s[0], SHUT_WR);
    usleep(20000);
    p.events = 0;
    show_poll("closed", &p, 1, 1000);
    pair(s);
    struct linger l = { 1, 0 };
    setsockopt(s[1], SOL_SOCKET, SO_LINGER, &l, sizeof l);
    close(s[1]);
    p = (struct pollfd){ s[0], POLLIN | POLLOUT | POLLRDHUP, 0 };
    usleep(20000);
    show_poll("reset", &p, 1, 1000);
}

/* what the library does not see: a socket of the kernel's own */
static int kernel_socket(int type) { return (int)syscall(SYS_socket, AF_INET, type, 0); }

static void both_worlds(void) {
    struct sockaddr_in a, u = loopback(0);
    int l = listener(&a), ep = epoll_create1(0), d = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t len = sizeof u;
    CHECK(bind(d, (void *)&u, sizeof u) == 0 && getsockname(d, (void *)&u, &len) == 0);
    ctl(ep, EPOLL_CTL_ADD, l, EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN, 2);
    show("nothing", ep, 10);
    int k = kernel_socket(SOCK_STREAM), o = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(syscall(SYS_connect, k, &a, sizeof a) == 0);
    show("kernel connection", ep, 1000);
    close(accept(l, 0, 0));
    show("accepted", ep, 10);
    CHECK(connect(o, (void *)&a, sizeof a) == 0);
    show("own connection", ep, 1000);
    close(accept(l, 0, 0));
    show("accepted", ep, 10);
    int kd = kernel_socket(SOCK_DGRAM), od = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(syscall(SYS_sendto, kd, "k", 1, 0, &u, sizeof u) == 1);
    show("kernel datagram", ep, 1000);
    struct pollfd p = { d, POLLIN, 0 };
    show_poll("kernel datagram", &p, 1, 1000);
    get(d, 1);
    show_poll("taken", &p, 1, 10);
    CHECK(sendto(od, "o", 1, 0, (void *)&u, sizeof u) == 1);
    show("own datagram", ep, 1000);
    show_poll("own datagram", &p, 1, 1000);
    get(d, 1);
    show("taken", ep, 10);
    /* both at once: one event */
    CHECK(syscall(SYS_sendto, kd, "k", 1, 0, &u, sizeof u) == 1);
    CHECK(sendto(od, "o", 1, 0, (void *)&u, sizeof u) == 1);
    for (int i = 0; i < 25; i++) {
        struct epoll_event e[4];
        CHECK(epoll_wait(ep, e, 4, 1000) == 1 && e[0].data.u64 == 2);
    }
    get(d, 1);
    show("one left", ep, 1000);
    get(d, 1);
    show("none left", ep, 10);
}

enum { THREADS = 8, ROUNDS = 500 };
static int rows[THREADS][2];

static void *echo(void *arg) {
    int *s = arg, ep = epoll_create1(0);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLET, 5);
    for (int i = 0; i < ROUNDS; i++) {
        struct epoll_event e;
        int n;
        while ((n = epoll_wait(ep, &e, 1, 10000)) == 1 && !(e.events & EPOLLIN)) {}
        CHECK(n == 1 && e.data.u64 == 5);
        char c;
        CHECK(read(s[0], &c, 1) == 1 && write(s[0], &c, 1) == 1);
    }
    close(ep);
    return 0;
}

static void threads(void) {
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pair(rows[i]);
        pthread_create(&t[i], 0, echo, rows[i]);
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < THREADS; i++) put(rows[i][1], "x");
        for (int i = 0; i < THREADS; i++) get(rows[i][1], 1);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
    printf("echoed %d\n", THREADS * ROUNDS);
}

static void *wait_for_one(void *arg) {
    show("woken", *(int *)arg, 10000);
    return 0;
}

static void *wait_in_poll(void *arg) {
    struct pollfd p = { *(int *)arg, POLLIN, 0 };
    show_poll("woken in poll", &p, 1, 10000);
    return 0;
}

/* a thread waits in an instance while another one adds the first socket to it */
static void added(void) {
    int s[2], p[2], ep = epoll_create1(0);
    pthread_t t;
    CHECK(pipe(p) == 0);
    ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 1);
    pthread_create(&t, 0, wait_for_one, &ep);
    usleep(50000);
    pair(s);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 2);
    usleep(50000);
    put(s[1], "a");
    pthread_join(t, 0);
    get(s[0], 1);
    pthread_create(&t, 0, wait_for_one, &ep);
    usleep(50000);
    put(p[1], "b");
    pthread_join(t, 0);
    get(p[0], 1);
    int q[2];
    pair(q);
    pthread_create(&t, 0, wait_for_one, &ep);
    usleep(50000);
    put(q[1], "c");
    usleep(50000);
    ctl(ep, EPOLL_CTL_ADD, q[0], EPOLLIN, 3);
    pthread_join(t, 0);
    pthread_create(&t, 0, wait_in_poll, &s[0]);
    usleep(50000);
    put(s[1], "d");
    pthread_join(t, 0);
    /* poll of an instance that has no socket of any kind */
    int empty = epoll_create1(0);
    pthread_create(&t, 0, wait_in_poll, &empty);
    usleep(50000);
    ctl(empty, EPOLL_CTL_ADD, s[0], EPOLLOUT | EPOLLET, 4);
    pthread_join(t, 0);
}

static void *wait_in_select(void *arg) {
    int fd = *(int *)arg;
    fd_set in;
    struct timeval limit = { 5, 0 };
    FD_ZERO(&in);
    FD_SET(fd, &in);
    int n = select(fd + 1, &in, 0, 0, &limit);
    printf("woken in select: %d %d\n", n, FD_ISSET(fd, &in) != 0);
    return 0;
}

/* the same, in every call that waits, of instances that have nothing yet, and of those that are in one: in a process that has no socket yet, and in
   one that has */
static void first(void) {
    void *(*const waits[])(void *) = { wait_for_one, wait_in_poll, wait_in_select };
    for (int round = 0; round < 2; round++)
        for (int way = 0; way < 3; way++)
            for (int depth = 0; depth < 3; depth++) {
                /* (Each in a process of its own, of which the first has no socket.) */
                pid_t child = fork();
                if (child == 0) {
                    int s[2], eps[3];
                    pthread_t t;
                    if (round) pair(s);
                    for (int i = 0; i <= depth; i++) eps[i] = epoll_create1(0);
                    /* (the innermost is in them before or after the wait begins) */
                    for (int i = 0; i < depth; i++)
                        if (i == 0 || round) ctl(eps[i], EPOLL_CTL_ADD, eps[i + 1], EPOLLIN, 7);
                    printf("round %d, depth %d, ", round, depth);
                    fflush(stdout);
                    pthread_create(&t, 0, waits[way], &eps[0]);
                    usleep(30000);
                    if (!round) pair(s);
                    for (int i = 1; i < depth && !round; i++) ctl(eps[i], EPOLL_CTL_ADD, eps[i + 1], EPOLLIN, 7);
                    ctl(eps[depth], EPOLL_CTL_ADD, s[0], EPOLLIN, 8);
                    usleep(30000);
                    put(s[1], "x");
                    pthread_join(t, 0);
                    fflush(stdout);
                    _exit(0);
                }
                int status;
                CHECK(waitpid(child, &status, 0) == child && status == 0);
            }
    int s[2];
    pair(s);
    put(s[1], "y");
    get(s[0], 1);
}

static void on_alarm(int n) { (void)n; }

static void interrupted(void) {
    int s[2], ep = epoll_create1(0);
    struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    pair(s);
    sigaction(SIGALRM, &sa, 0);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    alarm(1);
    show("alarm", ep, 20000);
    struct pollfd p = { s[0], POLLIN, 0 };
    alarm(1);
    printf("poll %d", poll(&p, 1, 20000));
    printf(" errno %d\n", errno);
    /* pending while blocked, let through by the mask of the wait */
    sigset_t block, open;
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    sigemptyset(&open);
    sigprocmask(SIG_BLOCK, &block, 0);
    raise(SIGALRM);
    struct epoll_event e;
    printf("pwait %d", epoll_pwait(ep, &e, 1, 20000, &open));
    printf(" errno %d\n", errno);
    raise(SIGALRM);
    printf("ppoll %d", ppoll(&p, 1, 0, &open));
    printf(" errno %d\n", errno);
}

static void idle(void) {
    struct sockaddr_in a;
    int s[2], l = listener(&a), ep = epoll_create1(0);
    struct rusage before, after;
    pair(s);
    ctl(ep, EPOLL_CTL_ADD, l, EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 2);
    usleep(200000);
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 20; i++) {
        struct epoll_event e;
        CHECK(epoll_wait(ep, &e, 1, 100) == 0);
    }
    getrusage(RUSAGE_SELF, &after);
    long us = (after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) * 1000000L
            + after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec - before.ru_stime.tv_usec;
    long switches = after.ru_nvcsw - before.ru_nvcsw;
    /* Two seconds of waiting, in which next to nobody wakes in between, and of which the processor had at most a twentieth to do: a machine with much else to do is slow. */
    printf("idle %d\n", us < 100000 && switches < 100);
    fprintf(stderr, "cpu %ld us, switches %ld\n", us, switches);
}

/* An instance that was duplicated before there was any socket, as tokio does: one number adds, the other waits. */
static void renamed(void) {
    int ep = epoll_create1(0), copy = fcntl(ep, F_DUPFD_CLOEXEC, 3), s[2];
    CHECK(copy >= 0);
    pair(s);
    ctl(copy, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLET, 1);
    CHECK(write(s[1], "x", 1) == 1);
    show("by its first name", ep, 1000);
    ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN, 2);
    show("by its second", copy, 1000);
    close(copy);
    show("by the one that is left", ep, 1000);
    ctl(ep, EPOLL_CTL_DEL, s[0], 0, 0);
    show("empty", ep, 0);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *answer_each(void *arg) {
    int fd = *(int *)arg;
    char c;
    while (read(fd, &c, 1) == 1)
        CHECK(write(fd, &c, 1) == 1);
    return 0;
}

enum { DAYS = 12, BUSY = 1000, TURNS = 100 };

/* The other process: to the busy thread again and again, and to the other as soon as the first computes. */
static void visit_both(const struct sockaddr_in *a) {
    int s[2], prompt = 0, one = 1;
    char c = 'x';
    usleep(20000);
    for (int i = 0; i < 2; i++) {
        s[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(s[i], (const void *)a, sizeof *a) == 0);
        setsockopt(s[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    for (int day = 0; day < DAYS; day++) {
        for (int i = 0; i < BUSY; i++)
            CHECK(write(s[0], &c, 1) == 1 && read(s[0], &c, 1) == 1);
        double sent = seconds();
        CHECK(write(s[1], &c, 1) == 1 && read(s[1], &c, 1) == 1);
        prompt += seconds() - sent < 0.05;
    }
    close(s[0]);
    close(s[1]);
    exit(prompt);
}

/* One thread answers and answers, so that nobody need watch the ring for the other, which sleeps; and then it computes. */
static void busy(void) {
    struct sockaddr_in a;
    int l = listener(&a), s[2], status = 0;
    char c;
    pthread_t t;
    pid_t child = fork();
    if (child == 0)
        visit_both(&a);
    for (int i = 0; i < 2; i++)
        CHECK((s[i] = accept(l, 0, 0)) >= 0);
    pthread_create(&t, 0, answer_each, &s[1]);
    for (int day = 0; day < DAYS; day++) {
        for (int i = 0; i < BUSY; i++)
            CHECK(read(s[0], &c, 1) == 1 && write(s[0], &c, 1) == 1);
        for (double from = seconds(); seconds() - from < 0.15;) {}
    }
    pthread_join(t, 0);
    waitpid(child, &status, 0);
    printf("answered within 50 ms, while the other computes: %s\n", WEXITSTATUS(status) >= DAYS - 2 ? "yes" : "no");
    fprintf(stderr, "%d of %d\n", WEXITSTATUS(status), DAYS);
}

/* Two threads on one core, each of which waits for the other: who has written goes to sleep, or the other cannot read. */
static void one_core(void) {
    cpu_set_t here;
    pthread_t t;
    int s[2];
    char c = 'x';
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    CHECK(sched_setaffinity(0, sizeof here, &here) == 0);
    pair(s);
    pthread_create(&t, 0, answer_each, &s[1]);
    for (int i = 0; i < TURNS; i++) {
        /* the other one sleeps by now */
        usleep(2000);
        CHECK(write(s[0], &c, 1) == 1 && read(s[0], &c, 1) == 1);
    }
    CHECK(shutdown(s[0], SHUT_WR) == 0);
    pthread_join(t, 0);
    printf("done\n");
}

/* More of what an inner instance has already is news to an outer one that wants edges. */
static void again(void) {
    int s[2], in = epoll_create1(0), out = epoll_create1(0);
    pair(s);
    ctl(in, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1);
    ctl(out, EPOLL_CTL_ADD, in, EPOLLIN | EPOLLET, 2);
    show("room", out, 1000);
    show("no news", out, 0);
    put(s[1], "x");
    usleep(20000);
    show("bytes", out, 1000);
    show("no news", out, 0);
    CHECK(shutdown(s[0], SHUT_RD) == 0);
    show("end", out, 1000);
    show("inner", in, 0);
}

/* Sends so many datagrams of a size, one each 20 us, and goes. */
static void send_burst(const struct sockaddr_in *to, int count, int size) {
    static char bytes[8000];
    int s = socket(AF_INET, SOCK_DGRAM, 0), lost = 0;
    double next = seconds();
    for (int i = 0; i < count; i++, next += 20e-6) {
        while (seconds() < next) {}
        lost += sendto(s, bytes, size, 0, (void *)to, sizeof *to) != size;
    }
    exit(lost != 0);
}

/* How many of a burst a receiver finds in its buffer that did not call in all that time; `sleeps`, or it computed. */
static int kept_of(int count, int size, int buffer, int sleeps) {
    static char bytes[8000];
    struct sockaddr_in a = loopback(0);
    socklen_t len = sizeof a;
    int s = socket(AF_INET, SOCK_DGRAM, 0), kept = 0, status = 1;
    CHECK(bind(s, (void *)&a, sizeof a) == 0 && getsockname(s, (void *)&a, &len) == 0);
    if (buffer)
        CHECK(setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) == 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(100000);
        send_burst(&a, count, size);
    }
    /* (Long after it found what it waits for: a process that has just used its sockets is another case than one that has slept for long.) */
    for (pid_t gone = 0; gone == 0; gone = waitpid(child, &status, WNOHANG))
        for (double from = seconds(); seconds() - from < 0.02;)
            if (sleeps)
                usleep(20000);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    while (recv(s, bytes, sizeof bytes, MSG_DONTWAIT) == size)
        kept++;
    close(s);
    return kept;
}

/* What SO_RCVBUF has room for arrives, whatever the receiver does. */
static void burst(void) {
    enum { COUNT = 2000, LARGE = 4 << 20 };
    const struct { int size, fewest; } small[] = { { 16, 200 }, { 200, 150 }, { 1400, 80 }, { 8000, 10 } };
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        for (int i = 0; i < 4; i++) {
            int kept = kept_of(COUNT, small[i].size, 0, sleeps);
            printf("%d bytes, the default buffer: %s\n", small[i].size, kept >= small[i].fewest && kept < COUNT ? "as many as it holds" : "too few or too many");
            fprintf(stderr, "%d bytes: %d\n", small[i].size, kept);
        }
        for (int i = 0; i < 3; i++)
            printf("%d bytes, 4 MB: %d\n", small[i].size, kept_of(COUNT, small[i].size, LARGE, sleeps));
        int kept = kept_of(COUNT, 8000, LARGE, sleeps);
        printf("8000 bytes, 4 MB: %s\n", kept >= 450 ? "as many as it holds" : "too few");
        fprintf(stderr, "8000 bytes, 4 MB: %d\n", kept);
    }
}

/* What a thread writes: each as soon as it is asked, after a nap, in which the main thread falls asleep. */
struct puts { int fds[40], count, asked; };

static void *put_each(void *arg) {
    const struct puts *puts = arg;
    for (int i = 0; i < puts->count; i++) {
        get(puts->asked, 1);
        usleep(3000);
        put(puts->fds[i], "x");
    }
    return 0;
}

/* Of each instance, some events come over a connection and some over a pipe, to a thread that sleeps. */
static void sleep_in(const char *what, int ep, int connection[2], int others[2], int count) {
    int ask[2];
    CHECK(pipe(ask) == 0);
    struct puts puts = { .count = count, .asked = ask[0] };
    for (int i = 0; i < count; i++) puts.fds[i] = i % 3 == 2 ? others[1] : connection[1];
    pthread_t thread;
    pthread_create(&thread, 0, put_each, &puts);
    for (int i = 0; i < count; i++) {
        put(ask[1], "x");
        show(what, ep, 2000);
        get(i % 3 == 2 ? others[0] : connection[0], 1);
    }
    pthread_join(thread, 0);
    close(ask[0]);
    close(ask[1]);
}

static long used_us(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

/* Time that the library's progress thread has had a core for, in ns (0), or how often it had one (2): a process without the library has none. */
static long long progress_had(int which) {
    DIR *tasks = opendir("/proc/self/task");
    long long had[3] = { 0 };
    CHECK(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], name[20] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = task->d_name[0] == '.' ? 0 : fopen(path, "r");
        if (file && fgets(name, sizeof name, file) && strcmp(name, "ringway\n") == 0) {
            fclose(file);
            snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task->d_name);
            file = fopen(path, "r");
            CHECK(file && fscanf(file, "%lld %lld %lld", &had[0], &had[1], &had[2]) == 3);
        }
        if (file) {
            fclose(file);
        }
    }
    closedir(tasks);
    return had[which];
}

static void *echo_slowly(void *arg) {
    int *fds = arg;
    char c;
    while (read(fds[0], &c, 1) == 1) {
        usleep(100);
        CHECK(write(fds[1], &c, 1) == 1);
    }
    return 0;
}

/* A loop that has a socket of the library's, and whose traffic is the kernel's: it alone wakes for that. */
static void elsewhere(void) {
    enum { ROUNDS = 4000 };
    int s[2], there[2], back[2], ep = epoll_create1(0);
    struct epoll_event event;
    pthread_t t;
    char c = 'x';
    pair(s);
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN, 1);
    ctl(ep, EPOLL_CTL_ADD, back[0], EPOLLIN, 2);
    int ends[2] = { there[0], back[1] };
    pthread_create(&t, 0, echo_slowly, ends);
    usleep(200000);
    long long before = progress_had(0);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(write(there[1], &c, 1) == 1 && epoll_wait(ep, &event, 1, 5000) == 1 && event.data.u32 == 2);
        CHECK(read(back[0], &c, 1) == 1);
    }
    long long ns = progress_had(0) - before;
    fprintf(stderr, "the progress thread had a core for %lld us\n", ns / 1000);
    printf("left alone: %d\n", ns / ROUNDS < 5000);
    close(there[1]);
    pthread_join(t, 0);
}

/* Who writes little pieces as fast as it can, with Nagle's algorithm on: what is held is the next write's affair, and the progress thread comes by the
 * clock, once in a millisecond, and not for each acknowledgment. */
static void rushing(void) {
    enum { WRITES = 500000, LENGTH = 100 };
    static char bytes[1 << 16];
    struct sockaddr_in a;
    struct timespec t[2];
    int where[2], status;
    long long total = 0;
    CHECK(pipe(where) == 0);
    pid_t child = fork();
    if (child == 0) {
        int l = listener(&a);
        CHECK(write(where[1], &a, sizeof a) == sizeof a);
        int s = accept(l, 0, 0);
        for (ssize_t n; (n = read(s, bytes, sizeof bytes)) > 0;) total += n;
        _exit(total != (long long)WRITES * LENGTH);
    }
    CHECK(read(where[0], &a, sizeof a) == sizeof a);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(s, (void *)&a, sizeof a) == 0);
    usleep(50000);
    long long before = progress_had(2);
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    for (int i = 0; i < WRITES; i++) CHECK(write(s, bytes, LENGTH) == LENGTH);
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    long long turns = progress_had(2) - before, ms = (t[1].tv_sec - t[0].tv_sec) * 1000LL + (t[1].tv_nsec - t[0].tv_nsec) / 1000000;
    fprintf(stderr, "%lld turns of the progress thread in %lld ms\n", turns, ms);
    printf("by the clock: %d\n", turns <= ms + ms / 4 + 20);
    close(s);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("all came\n");
}

static long long since_ms(const struct timespec *start) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (t.tv_sec - start->tv_sec) * 1000LL + (t.tv_nsec - start->tv_nsec) / 1000000;
}

static void *talk_to_itself(void *arg) {
    struct timespec start;
    int s[2];
    char c = 'x';
    (void)arg;
    pair(s);
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (since_ms(&start) < 1000) {
        for (int i = 0; i < 100; i++) CHECK(send(s[0], &c, 1, 0) == 1 && recv(s[1], &c, 1, 0) == 1);
    }
    close(s[0]);
    close(s[1]);
    return 0;
}

/* A thread that is busy with its own connection, for a second. */
static void undisturbed(void) {
    talk_to_itself(0);
    printf("done\n");
}

/* Two of them. */
static void undisturbed_two(void) {
    pthread_t t;
    CHECK(pthread_create(&t, 0, talk_to_itself, 0) == 0);
    talk_to_itself(0);
    CHECK(pthread_join(t, 0) == 0);
    printf("done\n");
}

static void *wait_on_what_is_on_no_ring(void *unused) {
    char byte;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    (void)unused;
    recv(fd, &byte, 1, 0);
    return NULL;
}

/* A thread that waits on a socket that is on no ring is the only one that looks: who connects meanwhile is answered. */
static void unpublished(void) {
    struct sockaddr_in where = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof where;
    pthread_t thread;
    int told[2], status;
    CHECK(pipe(told) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct timeval patience = { .tv_sec = 5 };
        CHECK(read(told[0], &where, sizeof where) == sizeof where);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        _exit(connect(fd, (struct sockaddr *)&where, sizeof where) != 0);
    }
    int l = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(l, (struct sockaddr *)&where, sizeof where) == 0 && listen(l, 1) == 0);
    CHECK(getsockname(l, (struct sockaddr *)&where, &len) == 0);
    CHECK(pthread_create(&thread, NULL, wait_on_what_is_on_no_ring, NULL) == 0);
    usleep(300000);
    CHECK(write(told[1], &where, sizeof where) == sizeof where);
    CHECK(waitpid(child, &status, 0) == child);
    printf("connected: %d\n", WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void beside(void) {
    int s[2][2], p[2][2], ep[2];
    for (int i = 0; i < 2; i++) {
        pair(s[i]);
        CHECK(pipe(p[i]) == 0 && (ep[i] = epoll_create1(0)) >= 0);
        ctl(ep[i], EPOLL_CTL_ADD, s[i][0], EPOLLIN, 1);
        ctl(ep[i], EPOLL_CTL_ADD, p[i][0], EPOLLIN, 2);
    }
    for (int round = 0; round < 3; round++) {
        sleep_in("one", ep[0], s[0], p[0], 6);
        sleep_in("other", ep[1], s[1], p[1], round == 1 ? 40 : 6);
    }
    /* What is ready in an instance that nobody waits in wakes nobody. */
    struct timeval patience = { .tv_usec = 400000 };
    char byte;
    setsockopt(s[1][0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (int i = 0; i < 2; i++) {
        sleep_in(i ? "other" : "one", ep[i], s[i], p[i], 20);
        put(p[i][1], "x");
        long before = used_us();
        CHECK(recv(s[1][0], &byte, 1, 0) == -1 && errno == EAGAIN);
        usleep(400000);
        long used = used_us() - before;
        printf("asleep elsewhere: %d\n", used < 100000);
        fprintf(stderr, "cpu %ld us\n", used);
        show("and then", ep[i], 0);
        get(p[i][0], 1);
    }
    /* A child sleeps in what its parent sleeps in. */
    pid_t child = fork();
    if (child == 0) {
        show("child", ep[1], 2000);
        get(p[1][0], 1);
        _exit(0);
    }
    sleep_in("parent, of a child", ep[0], s[0], p[0], 6);
    put(p[1][1], "x");
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    sleep_in("parent, after its child", ep[1], s[1], p[1], 20);
    /* By another name, and not at all. */
    int copy = dup(ep[1]);
    close(ep[1]);
    sleep_in("by its other name", copy, s[1], p[1], 9);
    close(copy);
    put(p[1][1], "x");
    sleep_in("one, alone", ep[0], s[0], p[0], 9);
}

/* As deep as the kernel lets instances be nested, and no deeper, however often the outermost was slept in. */
static void deeply(void) {
    enum { DEPTH = 7 };
    int s[2], p[2], ep[DEPTH];
    pair(s);
    CHECK(pipe(p) == 0);
    for (int i = 0; i < DEPTH; i++) CHECK((ep[i] = epoll_create1(0)) >= 0);
    ctl(ep[0], EPOLL_CTL_ADD, s[0], EPOLLIN, 100);
    ctl(ep[0], EPOLL_CTL_ADD, p[0], EPOLLIN, 101);
    for (int i = 0; i + 1 < DEPTH; i++) {
        show("slept in", ep[0], 20);
        ctl(ep[i], EPOLL_CTL_ADD, ep[i + 1], EPOLLIN, i);
    }
    sleep_in("the outermost", ep[0], s, p, 6);
}

static const struct { const char *name; void (*run)(void); } cases[] = {
    { "level", level }, { "edge", edge }, { "oneshot", oneshot }, { "fresh", fresh }, { "nested", nested }, { "two", two },
    { "mixed", mixed }, { "errors", errors }, { "hangup", hangup }, { "alike", alike }, { "both_worlds", both_worlds }, { "threads", threads },
    { "added", added }, { "first", first }, { "interrupted", interrupted }, { "idle", idle }, { "renamed", renamed }, { "busy", busy }, { "again", again },
    { "burst", burst }, { "one_core", one_core }, { "elsewhere", elsewhere }, { "rushing", rushing }, { "beside", beside }, { "deeply", deeply },
    { "undisturbed", undisturbed }, { "undisturbed_two", undisturbed_two },
    { "unpublished", unpublished },
};

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1])) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "usage: %s CASE\n", argv[0]);
    return 2;
}
