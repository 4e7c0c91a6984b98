// What a process leaves to others together with a connection: what they write comes after all of what it wrote, or there is a reset; what is
// kept for a reader is there for the children that it has later; and the end does not take long. All cases at once.
#include "common.h"
#include <sys/mman.h>
#include <sys/resource.h>

// More than the kernel has room for, if the reader reads at speed first.
enum { FLUENT = 16 << 20, MUCH = 40 << 20, TAIL = 4 };

enum way { EXECS, ENDS_BEFORE_ITS_CHILD, READER_FORKS, HAS_NO_DESCRIPTORS, EXEC_FAILS, IN_HANDLER, SOON_IN_HANDLER, WAYS };
static const char *const ways[] = {"exec with the connection", "end before a child", "end before the reader forks",
                                   "end without descriptors", "exec of nothing", "_exit in a handler while the reader leaves it to a child",
                                   "_exit in a handler when the reader has left it to a child"};
// When the reader reads on: the writer is over by then.
static const int late_ms[] = {6300, 6300, 2500, 3000, 1500, 150, 20};

struct outcome {
    volatile long written, read, wrong;
    volatile int last, port, status, is_over, was_over, tail_at_end, failed, prompt;
};

static unsigned char byte_at(long i) { return (unsigned char)(i * 7 + i / 251); }

static long ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void read_up_to(int fd, long most, struct outcome *o) {
    static unsigned char b[1 << 16];
    struct timeval t = {.tv_sec = 3};
    long n = 1;
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    while (o->read < most && (n = recv(fd, b, sizeof b, 0)) > 0)
        for (long i = 0; i < n; i++, o->read++)
            if (o->written && o->read >= o->written)
                o->tail_at_end += b[i] == "END\n"[(o->read - o->written) % TAIL];
            else
                o->wrong += b[i] != byte_at(o->read);
    o->last = n < 0 ? errno : 0;
}

static void reader(enum way way, struct outcome *o) {
    struct sockaddr_in where;
    int l = listener(&where);
    o->port = ntohs(where.sin_port);
    int fd = MUST(accept(l, NULL, NULL));
    read_up_to(fd, FLUENT, o);
    while (o->written == 0)
        nap(10);
    nap(late_ms[way]);
    // (Those of the last ways are in the middle of it.)
    o->was_over = o->is_over || way >= IN_HANDLER;
    if (way == READER_FORKS && MUST(fork()) > 0)
        _exit(0);
    if (way == READER_FORKS)
        nap(300);
    if (way >= IN_HANDLER && MUST(fork()) > 0) {
        close(fd);
        wait(NULL);
        _exit(0);
    }
    read_up_to(fd, 1L << 40, o);
    o->status = 1;
    _exit(0);
}

static void exec_nothing(int fd, struct outcome *o) {
    char *argv[] = {"nothing", NULL};
    long from = ms();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    o->failed = (execv("/nonexistent/nothing", argv) == -1 && errno == ENOENT) + (execvp("ringway-nothing", argv) == -1 && errno == ENOENT) +
                (execl("/etc/passwd", "passwd", (char *)NULL) == -1 && errno == EACCES);
    o->failed += poll(&p, 1, 0) == 0 && recv(fd, argv, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
    o->prompt = ms() - from < 300;
}

static void last_words(int signal) {
    (void)signal;
    _exit(0);
}

static void writer(enum way way, struct outcome *o) {
    static unsigned char b[1 << 16];
    while (o->port == 0)
        nap(1);
    struct sockaddr_in where = loopback(o->port);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(where), sizeof where));
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    long sent = 0;
    while (sent < MUCH && poll(&p, 1, sent < FLUENT ? 3000 : 100) == 1) {
        long len = MUCH - sent < (long)sizeof b ? MUCH - sent : (long)sizeof b;
        for (long i = 0; i < len; i++)
            b[i] = byte_at(sent + i);
        long n = send(fd, b, len, MSG_DONTWAIT);
        sent += n > 0 ? n : 0;
    }
    o->written = sent;
    if (way == EXECS) {
        char command[64];
        snprintf(command, sizeof command, "printf 'END\\n' >&%d", fd);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    }
    if (way == ENDS_BEFORE_ITS_CHILD && MUST(fork()) == 0) {
        // Until all that there is room for is written, and its parent is gone.
        nap(late_ms[way] - 300);
        send(fd, "END\n", TAIL, MSG_NOSIGNAL);
        _exit(0);
    }
    if (way == HAS_NO_DESCRIPTORS) {
        struct rlimit r;
        MUST(getrlimit(RLIMIT_NOFILE, &r));
        r.rlim_cur = 800 < r.rlim_max / 2 ? 800 : r.rlim_max / 2;
        MUST(setrlimit(RLIMIT_NOFILE, &r));
        while (open("/dev/null", O_RDONLY) >= 0) {}
    }
    if (way == EXEC_FAILS)
        exec_nothing(fd, o);
    if (way >= IN_HANDLER) {
        signal(SIGALRM, last_words);
        raise(SIGALRM);
    }
    _exit(0);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    struct outcome *o = mmap(NULL, WAYS * sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t readers[WAYS], writers[WAYS];
    for (int i = 0; i < WAYS; i++)
        if ((readers[i] = MUST(fork())) == 0)
            reader(i, &o[i]);
    for (int i = 0; i < WAYS; i++)
        if ((writers[i] = MUST(fork())) == 0)
            writer(i, &o[i]);
    for (int left = WAYS, i; left > 0; nap(20))
        for (i = 0; i < WAYS; i++)
            if (writers[i] > 0 && o[i].written > 0 && waitpid(writers[i], NULL, WNOHANG) == writers[i]) {
                o[i].is_over = 1;
                writers[i] = 0;
                left--;
            }
    for (int i = 0; i < WAYS; i++)
        waitpid(readers[i], NULL, 0);
    for (int i = 0; i < 100 && o[READER_FORKS].status == 0; i++)
        nap(50);
    for (int i = 0; i < WAYS; i++) {
        int whole = o[i].read >= o[i].written, tail = i <= ENDS_BEFORE_ITS_CHILD ? TAIL : 0;
        // The kernel has room for all that it took; the library may have taken more than that, and then tells.
        int told = !whole && o[i].last == ECONNRESET && i <= ENDS_BEFORE_ITS_CHILD;
        int well = whole && o[i].last == 0 && o[i].tail_at_end == tail && o[i].read == o[i].written + tail;
        printf("%s: read on %d, after the end of the writer %d\n", ways[i], o[i].status, o[i].was_over);
        printf("%s: wrong %ld\n", ways[i], o[i].wrong);
        printf("%s: all or a reset %d\n", ways[i], well || told);
        fprintf(stderr, "%s: %ld of %ld, tail %d, then %s\n", ways[i], o[i].read, o[i].written, o[i].tail_at_end,
                o[i].last ? strerrorname_np(o[i].last) : "the end");
    }
    SHOW(o[EXEC_FAILS].failed);
    SHOW(o[EXEC_FAILS].prompt);
    return 0;
}
