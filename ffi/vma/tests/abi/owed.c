// What a process has written before it ends, in whatever way, arrives: its peer, which begins to read long afterwards, gets all of it,
// and then the end. All cases at once.
#include "common.h"
#include <sys/epoll.h>
#include <sys/mman.h>

// However long a writer may wait for its reader, this is longer.
enum { LATE_MS = 4000, MUCH = 32 << 20, FLUENT = 16 << 20, AMOUNTS = 4 };

enum way { RETURNS, LEAVES, IN_HANDLER, CLOSES, CLOSES_IN_HANDLER, EXECS, SHUTS, WAYS };
static const char *const ways[] = {"return",  "_exit", "_exit in a handler", "close, then exit", "close, then _exit in a handler",
                                   "execve", "shutdown, then exit"};
enum idleness { SLEEPS, POLLS, WAITS_BY_EPOLL, LETS_WAIT, READS_SLOWLY, IDLENESSES };
static const char *const idlenesses[] = {"sleeps", "polls", "waits by epoll", "has not accepted", "reads a little now and then"};
static const char *const amounts[] = {"few bytes", "200 kB", "all that is taken", "all that is taken at speed"};

struct outcome {
    volatile long written, read, wrong;
    volatile int last, port, is_over;
};

static unsigned char byte_at(long i) { return (unsigned char)(i * 7 + i / 251); }

static long ms_since(const struct timespec *from) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - from->tv_sec) * 1000 + (now.tv_nsec - from->tv_nsec) / 1000000;
}

static void check(const unsigned char *b, long n, struct outcome *o) {
    for (long i = 0; i < n; i++)
        o->wrong += b[i] != byte_at(o->read++);
}

static void idle(int fd, enum idleness how, struct outcome *o, const struct timespec *from) {
    unsigned char b[1000];
    if (how == SLEEPS || how == LETS_WAIT)
        nap(LATE_MS);
    if (how == POLLS) {
        // For what does not come.
        struct pollfd p = {.fd = fd, .events = POLLPRI};
        while (ms_since(from) < LATE_MS && poll(&p, 1, LATE_MS - ms_since(from)) != 0)
            nap(50);
    }
    if (how == WAITS_BY_EPOLL) {
        int e = MUST(epoll_create1(0));
        struct epoll_event v = {.events = EPOLLIN | EPOLLET};
        MUST(epoll_ctl(e, EPOLL_CTL_ADD, fd, &v));
        while (ms_since(from) < LATE_MS)
            epoll_wait(e, &v, 1, LATE_MS - ms_since(from));
        close(e);
    }
    while (how == READS_SLOWLY && ms_since(from) < LATE_MS) {
        nap(300);
        int n = recv(fd, b, sizeof b, MSG_DONTWAIT);
        check(b, n, o);
    }
}

// `begun`: how much it reads at once.
static void reader(enum idleness how, long begun, struct outcome *o) {
    static unsigned char b[1 << 16];
    struct sockaddr_in where;
    struct timespec from;
    struct timeval t = {.tv_sec = 3};
    int l = listener(&where), fd = -1;
    o->port = ntohs(where.sin_port);
    struct pollfd p = {.fd = l, .events = POLLIN};
    MUST(poll(&p, 1, 5000));
    if (how != LETS_WAIT)
        fd = MUST(accept(l, NULL, NULL));
    long n = 1;
    while (o->read < begun && n > 0)
        check(b, n = MUST(recv(fd, b, sizeof b, 0)), o);
    clock_gettime(CLOCK_MONOTONIC, &from);
    idle(fd, how, o, &from);
    if (how == LETS_WAIT)
        fd = MUST(accept(l, NULL, NULL));
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    while ((n = recv(fd, b, sizeof b, 0)) > 0)
        check(b, n, o);
    o->last = n < 0 ? errno : 0;
    _exit(0);
}

static void last_words(int signal) {
    (void)signal;
    _exit(7);
}

static int writer(enum way way, int amount, struct outcome *o) {
    static unsigned char b[1 << 16];
    struct sockaddr_in where;
    struct pollfd p = {.events = POLLOUT};
    while (o->port == 0)
        nap(1);
    where = loopback(o->port);
    int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    MUST(connect(fd, SA(where), sizeof where));
    long most = amount == 0 ? 100 : amount == 1 ? 200000 : MUCH, sent = 0;
    p.fd = fd;
    while (sent < most && poll(&p, 1, amount == 3 && sent < FLUENT ? 3000 : 100) == 1) {
        long len = most - sent < (long)sizeof b ? most - sent : (long)sizeof b;
        for (long i = 0; i < len; i++)
            b[i] = byte_at(sent + i);
        long n = send(fd, b, len, MSG_DONTWAIT);
        sent += n > 0 ? n : 0;
    }
    o->written = sent;
    if (way == CLOSES || way == CLOSES_IN_HANDLER)
        MUST(close(fd));
    if (way == SHUTS)
        MUST(shutdown(fd, SHUT_WR));
    if (way == IN_HANDLER || way == CLOSES_IN_HANDLER) {
        signal(SIGALRM, last_words);
        raise(SIGALRM);
    }
    if (way == EXECS)
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
    if (way == RETURNS)
        return 7;
    if (way == LEAVES)
        _exit(7);
    exit(7);
}

static enum idleness idleness_of(int i) {
    enum idleness how = (i / AMOUNTS * 2 + i) % IDLENESSES;
    return i % AMOUNTS == 3 && how == LETS_WAIT ? SLEEPS : how;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    enum { CASES = WAYS * AMOUNTS };
    struct outcome *o = mmap(NULL, CASES * sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t readers[CASES], writers[CASES];
    struct timespec from;
    for (int i = 0; i < CASES; i++)
        if ((readers[i] = MUST(fork())) == 0)
            reader(idleness_of(i), i % AMOUNTS == 3 ? FLUENT : 0, &o[i]);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < CASES; i++)
        if ((writers[i] = MUST(fork())) == 0)
            return writer(i / AMOUNTS, i % AMOUNTS, &o[i]);
    for (int i = 0; i < CASES; i++) {
        int status = 0;
        MUST(waitpid(writers[i], &status, 0));
        o[i].is_over = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    long took = ms_since(&from);
    for (int i = 0; i < CASES; i++)
        waitpid(readers[i], NULL, 0);
    for (int i = 0; i < CASES; i++) {
        printf("%s, %s, while the peer %s: ", ways[i / AMOUNTS], amounts[i % AMOUNTS], idlenesses[idleness_of(i)]);
        printf("all of it %d, wrong %ld, then %s, status %d\n", o[i].read == o[i].written && o[i].written > 0, o[i].wrong,
               o[i].last ? strerrorname_np(o[i].last) : "the end", o[i].is_over);
        fprintf(stderr, "%ld of %ld\n", o[i].read, o[i].written);
    }
    // (What they wait for, they don't wait for their readers.)
    SHOW(took < LATE_MS);
    fprintf(stderr, "%ld ms\n", took);
    return 0;
}
