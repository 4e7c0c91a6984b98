// A server that forks for each connection, as PostgreSQL's does: the parent accepts and closes, the child alone goes on.
#include "common.h"
#include <sys/epoll.h>

static void patience(int fd) {
    struct timeval t = {.tv_sec = 10};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
}

static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

// The n-th byte of a stream.
static char byte_at(long n, int stream) {
    return (char)(n * 31 + (n >> 8) * 7 + stream);
}

static int write_some(int fd, int stream, long from, long to) {
    static char piece[50000];
    while (from < to) {
        long len = to - from < (long)sizeof piece ? to - from : (long)sizeof piece;
        for (long i = 0; i < len; i++)
            piece[i] = byte_at(from + i, stream);
        for (long done = 0; done < len;) {
            ssize_t n = send(fd, piece + done, len - done, MSG_NOSIGNAL);
            if (n <= 0)
                return -errno;
            done += n;
        }
        from += len;
    }
    return 0;
}

// How many bytes of a stream were as they should be, from one on and up to another.
static long read_some(int fd, int stream, long from, long to) {
    static char piece[50000];
    while (from < to) {
        ssize_t n = recv(fd, piece, to - from < (long)sizeof piece ? to - from : (long)sizeof piece, 0);
        if (n <= 0)
            return n ? -errno : from;
        for (long i = 0; i < n; i++, from++)
            if (piece[i] != byte_at(from, stream))
                return -100000 - from;
    }
    return from;
}

struct client {
    int result;
    pid_t pid;
};

static struct client client(struct sockaddr_in where, long (*talk)(int)) {
    int up[2];
    MUST(pipe(up));
    pid_t pid = MUST(fork());
    if (pid == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        patience(fd);
        long result = connect(fd, SA(where), sizeof where) ? -10000 - errno : talk(fd);
        _exit(write(up[1], &result, sizeof result) < 0);
    }
    close(up[1]);
    return (struct client){up[0], pid};
}

static long result(struct client c) {
    long r = -99;
    if (read(c.result, &r, sizeof r) != sizeof r)
        r = -98;
    close(c.result);
    status_of(c.pid);
    return r;
}

// Questions of some bytes, answers of more, and a pause now and then.
static long asks(int fd) {
    for (int i = 0; i < 200; i++) {
        if (write_some(fd, 1, i * 40, i * 40 + 40))
            return -1000 - i;
        long got = read_some(fd, 2, i * 3000, i * 3000 + 3000);
        if (got != i * 3000 + 3000)
            return got;
        if (i % 50 == 0)
            nap(5);
    }
    shutdown(fd, SHUT_WR);
    return read_some(fd, 2, 600000, 600001);
}

static void answers(int fd, int from) {
    for (int i = from; i < 200; i++)
        if (read_some(fd, 1, i * 40, i * 40 + 40) != i * 40 + 40 || write_some(fd, 2, i * 3000, i * 3000 + 3000))
            _exit(1);
    char b;
    _exit(recv(fd, &b, 1, 0) != 0);
}

// How the child comes to use it first, and when.
static void first_use(int how, int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    int one = 1, e;
    struct epoll_event v = {.events = EPOLLIN};
    switch (how) {
    case 1:
        nap(60);
        break;
    case 2:
        if (poll(&p, 1, 5000) != 1)
            _exit(3);
        break;
    case 3:
        if (getpeername(fd, SA(a), &len) || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
            _exit(4);
        break;
    case 4:
        e = epoll_create1(0);
        if (epoll_ctl(e, EPOLL_CTL_ADD, fd, &v) || epoll_wait(e, &v, 1, 5000) != 1)
            _exit(5);
        break;
    case 5:
        if (dup2(fd, 40) != 40 || fcntl(fd, F_SETFL, O_NONBLOCK) || !(fcntl(40, F_GETFL) & O_NONBLOCK) || fcntl(fd, F_SETFL, 0))
            _exit(6);
        break;
    }
}

static void forked_per_connection(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    for (int how = 0; how < 6; how++) {
        struct client c = client(where, asks);
        int fd = MUST(accept(l, NULL, NULL));
        pid_t child = MUST(fork());
        if (child == 0) {
            close(l);
            first_use(how, fd);
            answers(fd, 0);
        }
        MUST(close(fd));
        SHOW(result(c));
        SHOW(status_of(child));
    }
    close(l);
}

// The parent says something before it forks, and many children live at once.
static void several(void) {
    enum { COUNT = 8 };
    struct sockaddr_in where;
    int l = listener(&where);
    struct client c[COUNT];
    pid_t child[COUNT];
    for (int i = 0; i < COUNT; i++) {
        c[i] = client(where, asks);
        int fd = MUST(accept(l, NULL, NULL));
        SHOW(read_some(fd, 1, 0, 40));
        SHOW(write_some(fd, 2, 0, 3000));
        child[i] = MUST(fork());
        if (child[i] == 0) {
            close(l);
            answers(fd, 1);
        }
        MUST(close(fd));
    }
    for (int i = 0; i < COUNT; i++) {
        SHOW(result(c[i]));
        SHOW(status_of(child[i]));
    }
    close(l);
}

enum { BULK = 3 << 20 };

static long bulk_both_ways(int fd) {
    pid_t writer = fork();
    if (writer == 0)
        _exit(write_some(fd, 3, 0, BULK) != 0);
    long got = read_some(fd, 4, 0, BULK);
    return status_of(writer) ? -1 : got;
}

// Queues on both sides are full of bytes, and a sender waits for room, when the connection changes hands.
static void full_queues(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    for (int i = 0; i < 2; i++) {
        struct client c = client(where, bulk_both_ways);
        int fd = MUST(accept(l, NULL, NULL));
        SHOW(read_some(fd, 3, 0, 200000));
        nap(50);
        long sent = 0;
        if (i == 1)
            SHOW(write_some(fd, 4, 0, sent = 50000));
        pid_t child = MUST(fork());
        if (child == 0) {
            close(l);
            nap(20);
            pid_t reader = fork();
            if (reader == 0)
                _exit(read_some(fd, 3, 200000, BULK) != BULK);
            int failed = write_some(fd, 4, sent, BULK) != 0;
            _exit(failed || status_of(reader));
        }
        MUST(close(fd));
        SHOW(result(c));
        SHOW(status_of(child));
    }
    close(l);
}

static long sends_bulk(int fd) {
    if (write_some(fd, 3, 0, BULK))
        return -1;
    shutdown(fd, SHUT_WR);
    return read_some(fd, 4, 0, 4);
}

static void one_way(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    struct client c = client(where, sends_bulk);
    int fd = MUST(accept(l, NULL, NULL));
    nap(50);
    pid_t child = MUST(fork());
    if (child == 0) {
        close(l);
        nap(20);
        char b;
        _exit(read_some(fd, 3, 0, BULK) != BULK || recv(fd, &b, 1, 0) != 0 || write_some(fd, 4, 0, 4));
    }
    MUST(close(fd));
    SHOW(result(c));
    SHOW(status_of(child));
    close(l);
}

static long waits_for_end(int fd) {
    char b[8];
    return recv(fd, b, sizeof b, 0);
}

// The child ends, in whatever way, and has never used it; or closes it and lives on; or uses it late.
static void unused(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    for (int how = 0; how < 4; how++) {
        struct client c = client(where, waits_for_end);
        int fd = MUST(accept(l, NULL, NULL));
        pid_t child = MUST(fork());
        if (child == 0) {
            close(l);
            if (how == 1)
                kill(getpid(), SIGKILL);
            if (how == 2)
                close(fd);
            if (how >= 2)
                nap(1500);
            if (how == 3)
                _exit(send(fd, "late", 4, 0) != 4);
            _exit(0);
        }
        MUST(close(fd));
        SHOW(result(c));
        SHOW(status_of(child));
    }
    close(l);
}

// The parent goes on using it, or closes it late; the child has children of its own, which use it first.
static void not_alone(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    for (int how = 0; how < 3; how++) {
        struct client c = client(where, asks);
        int fd = MUST(accept(l, NULL, NULL));
        pid_t child = MUST(fork());
        if (child == 0) {
            close(l);
            if (how < 2)
                answers(fd, 0);
            pid_t grandchild = fork();
            if (grandchild == 0)
                answers(fd, 0);
            _exit(status_of(grandchild) != 0);
        }
        if (how == 1)
            nap(100);
        if (how != 0)
            MUST(close(fd));
        SHOW(how == 0 ? status_of(child) : 0);
        if (how == 0)
            MUST(close(fd));
        SHOW(result(c));
        SHOW(how == 0 ? 0 : status_of(child));
    }
    close(l);
}

// The child has it, and then forks in its turn, or becomes another program.
static void handed_on(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    struct client c = client(where, asks);
    int fd = MUST(accept(l, NULL, NULL));
    pid_t child = MUST(fork());
    if (child == 0) {
        close(l);
        if (read_some(fd, 1, 0, 40) != 40 || write_some(fd, 2, 0, 3000))
            _exit(1);
        pid_t grandchild = fork();
        if (grandchild == 0)
            answers(fd, 1);
        close(fd);
        _exit(status_of(grandchild) != 0);
    }
    MUST(close(fd));
    SHOW(result(c));
    SHOW(status_of(child));
    c = client(where, waits_for_end);
    fd = MUST(accept(l, NULL, NULL));
    child = MUST(fork());
    if (child == 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        poll(&p, 1, 5000);
        dup2(fd, 1);
        execlp("echo", "echo", "words", NULL);
        _exit(9);
    }
    MUST(close(fd));
    SHOW(result(c));
    SHOW(status_of(child));
    // The child has it, and becomes another user before it forks.
    c = client(where, asks);
    fd = MUST(accept(l, NULL, NULL));
    child = MUST(fork());
    if (child == 0) {
        close(l);
        if (read_some(fd, 1, 0, 40) != 40 || write_some(fd, 2, 0, 3000))
            _exit(1);
        if (setuid(getuid() ? getuid() : 65534))
            _exit(2);
        pid_t grandchild = fork();
        if (grandchild == 0)
            answers(fd, 1);
        _exit(status_of(grandchild) != 0);
    }
    MUST(close(fd));
    SHOW(result(c));
    SHOW(status_of(child));
    close(l);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    forked_per_connection();
    several();
    full_queues();
    one_way();
    unused();
    not_alone();
    handed_on();
    return 0;
}
