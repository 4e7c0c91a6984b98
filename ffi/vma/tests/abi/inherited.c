// Listeners across fork: workers, helpers, a parent that never accepts, sharers on either side.
#include "common.h"
#include <sys/epoll.h>

static void echo_once(int fd) {
    char b[64];
    ssize_t n = read(fd, b, sizeof b);
    if (n > 0 && write(fd, b, n) != n)
        _exit(1);
    close(fd);
}

static int patient_client(void) {
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct timeval t = {.tv_sec = 3};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    return fd;
}

static long exchange(struct sockaddr_in where) {
    char b[64];
    int fd = patient_client();
    long got = connect(fd, SA(where), sizeof where);
    if (got == 0 && send(fd, "echo", 4, MSG_NOSIGNAL) == 4)
        got = recv(fd, b, sizeof b, 0);
    close(fd);
    return got;
}

// The child's first call of all is one that watches the listener.
static void watched(int how) {
    struct sockaddr_in where;
    int l = listener(&where), up[2];
    MUST(pipe(up));
    pid_t child = MUST(fork());
    if (child == 0) {
        int e = epoll_create1(0);
        struct epoll_event v = {.events = EPOLLIN};
        struct pollfd p = {.fd = l, .events = POLLIN};
        fd_set r;
        FD_ZERO(&r);
        FD_SET(l, &r);
        if (how == 0)
            MUST(epoll_ctl(e, EPOLL_CTL_ADD, l, &v));
        MUST(write(up[1], "!", 1));
        struct timeval t = {.tv_sec = 5};
        int n = how == 0 ? epoll_wait(e, &v, 1, 5000) : how == 1 ? poll(&p, 1, 5000) : select(l + 1, &r, NULL, NULL, &t);
        if (n == 1)
            echo_once(MUST(accept(l, NULL, NULL)));
        _exit(n != 1);
    }
    char b[1];
    MUST(read(up[0], b, 1));
    nap(60);
    int status = -1;
    SHOW(exchange(where));
    waitpid(child, &status, 0);
    SHOW(status);
    close(l);
    close(up[0]);
    close(up[1]);
}

static pid_t worker(int l) {
    pid_t child = MUST(fork());
    if (child == 0)
        for (;;)
            echo_once(MUST(accept(l, NULL, NULL)));
    return child;
}

static void end(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

// The parent listens, and leaves accepting to its workers.
static void preforked(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t a = worker(l), b = worker(l);
    nap(60);
    for (int i = 0; i < 6; i++)
        SHOW(exchange(where));
    end(a);
    end(b);
    close(l);
}

static void *client(void *where) { return (void *)exchange(*(struct sockaddr_in *)where); }

// The parent forks a helper that outlives its first accept.
static void helped(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t child = MUST(fork());
    if (child == 0) {
        // It uses the network itself, but waits on no listener.
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        nap(3000);
        _exit(fd < 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        void *got;
        pthread_create(&t, NULL, client, &where);
        echo_once(MUST(accept(l, NULL, NULL)));
        pthread_join(t, &got);
        SHOW(got);
    }
    end(child);
    close(l);
}

// Both a parent and its child block in accept; connections come over the kernel and over the ring, by turns.
static void shared(int ask[2], int answer[2]) {
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t a = worker(l), b = worker(l), c = worker(l);
    nap(60);
    long kernel = 0, ring = 0;
    for (int i = 0; i < 60; i++) {
        long got;
        MUST(write(ask[1], &where, sizeof where));
        MUST(read(answer[0], &got, sizeof got));
        kernel += got;
        ring += exchange(where);
    }
    SHOW(kernel);
    SHOW(ring);
    struct timeval t;
    socklen_t len = sizeof t;
    SHOW(getsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, &len));
    SHOW(t.tv_sec * 1000000 + t.tv_usec);
    end(a);
    end(b);
    end(c);
    close(l);
}

static void *accept_on(void *l) {
    for (;;)
        echo_once(MUST(accept(*(int *)l, NULL, NULL)));
    return NULL;
}

// Threads accept from the kernel while the process forks; every child opens sockets of its own.
static void forking(int ask[2], int answer[2]) {
    static int l;
    struct sockaddr_in where;
    l = listener(&where);
    pthread_t t;
    for (int i = 0; i < 3; i++)
        pthread_create(&t, NULL, accept_on, &l);
    long bad = 0, kernel = 0;
    for (int i = 0; i < 20; i++) {
        long got;
        MUST(write(ask[1], &where, sizeof where));
        pid_t child = MUST(fork());
        if (child == 0) {
            alarm(5);
            struct sockaddr_in mine;
            int own = listener(&mine);
            pthread_create(&t, NULL, client, &mine);
            void *echoed;
            echo_once(MUST(accept(own, NULL, NULL)));
            pthread_join(t, &echoed);
            _exit((long)echoed != 4);
        }
        int status = -1;
        waitpid(child, &status, 0);
        bad += status != 0;
        MUST(read(answer[0], &got, sizeof got));
        kernel += got;
    }
    SHOW(bad);
    SHOW(kernel);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int ask[2], answer[2];
    MUST(pipe(ask));
    MUST(pipe(answer));
    // A client that is not offloaded.
    pid_t plain = MUST(fork());
    if (plain == 0) {
        setenv("RINGWAY_DEVICE", "off", 1);
        struct sockaddr_in where;
        while (read(ask[0], &where, sizeof where) == sizeof where) {
            long got = exchange(where);
            if (write(answer[1], &got, sizeof got) != sizeof got)
                break;
        }
        _exit(0);
    }
    for (int how = 0; how < 3; how++)
        watched(how);
    preforked();
    helped();
    shared(ask, answer);
    forking(ask, answer);
    end(plain);
    return 0;
}
