// Who does not answer holds up nobody who must not wait: a listener that is stopped, and one whose name another user has taken.
#include "common.h"
#include <stddef.h>
#include <sys/un.h>

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

// What a wait for an answer would take at least is 500 ms. (Of several, the quickest: the machine may have been busy.)
#define PROMPT(best) ((best) < 250)

static double quickest(double best, double since) {
    double took = now_ms() - since;
    return took < best ? took : best;
}

static int error_of(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    return error;
}

// A server whose process stops before anybody has greeted it, and echoes once it goes on; so many connections, then so many datagrams.
static pid_t stopped_server(struct sockaddr_in *where, struct sockaddr_in *datagrams, int connections, int messages) {
    int told[2];
    MUST(pipe(told));
    pid_t server = MUST(fork());
    if (server == 0) {
        char b[64];
        int l = listener(where), d = datagram(datagrams);
        // Whoever waits there has published it.
        struct pollfd p = {.fd = l, .events = POLLIN};
        poll(&p, 1, 10);
        MUST(write(told[1], where, sizeof *where));
        MUST(write(told[1], datagrams, sizeof *datagrams));
        raise(SIGSTOP);
        for (; connections; connections--) {
            int fd = MUST(accept(l, NULL, NULL));
            MUST(send(fd, b, MUST(recv(fd, b, sizeof b, 0)), 0));
            close(fd);
        }
        for (; messages; messages--)
            MUST(recv(d, b, sizeof b, 0));
        _exit(0);
    }
    MUST(read(told[0], where, sizeof *where));
    MUST(read(told[0], datagrams, sizeof *datagrams));
    int status;
    MUST(waitpid(server, &status, WUNTRACED));
    close(told[0]), close(told[1]);
    return server;
}

static int begin_connect(struct sockaddr_in where) {
    int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    int result = connect(fd, SA(where), sizeof where);
    if (result == 0 || errno != EINPROGRESS)
        printf("connect = %d %s\n", result, strerrorname_np(errno));
    return fd;
}

static void talk(int fd) {
    char b[8] = {0};
    SHOW(ready(fd, POLLOUT));
    SHOW(error_of(fd));
    SHOW(send(fd, "hello", 5, 0));
    SHOW(ready(fd, POLLIN));
    SHOW(recv(fd, b, sizeof b, 0));
    SHOW(strcmp(b, "hello"));
    SHOW(close(fd));
}

static void nonblocking(void) {
    enum { ATTEMPTS = 3 };
    struct sockaddr_in where, datagrams;
    double connects = 1e9, sends = 1e9, since;
    for (int i = 0; i < ATTEMPTS; i++) {
        // Each is a server of its own, which nobody knows yet.
        pid_t server = stopped_server(&where, &datagrams, 2, 1);
        since = now_ms();
        int first = begin_connect(where);
        connects = quickest(connects, since);
        since = now_ms();
        int second = begin_connect(where);
        connects = quickest(connects, since);
        int u = MUST(socket(AF_INET, SOCK_DGRAM, 0));
        since = now_ms();
        SHOW(sendto(u, "x", 1, MSG_DONTWAIT, SA(datagrams), sizeof datagrams));
        sends = quickest(sends, since);
        // The kernel's listener accepts for it, soon.
        SHOW(ready(first, POLLOUT));
        SHOW(error_of(first));
        // It takes what is written until then, and says so in the meantime as of any handshake.
        MUST(kill(server, SIGCONT));
        talk(first);
        talk(second);
        close(u);
        int status;
        SHOW(waitpid(server, &status, 0) == server && status == 0);
    }
    SHOW(PROMPT(connects));
    SHOW(PROMPT(sends));
}

// One that waits does so once.
static void blocking(void) {
    struct sockaddr_in where, datagrams;
    double connects = 1e9, sends = 1e9, since;
    pid_t server = stopped_server(&where, &datagrams, 5, 5);
    int fds[5], u = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    for (int i = 0; i < 5; i++) {
        fds[i] = MUST(socket(AF_INET, SOCK_STREAM, 0));
        since = now_ms();
        MUST(connect(fds[i], SA(where), sizeof where));
        connects = quickest(connects, since);
        since = now_ms();
        MUST(sendto(u, "x", 1, 0, SA(datagrams), sizeof datagrams));
        sends = quickest(sends, since);
    }
    MUST(kill(server, SIGCONT));
    for (int i = 0; i < 5; i++)
        talk(fds[i]);
    int status;
    SHOW(waitpid(server, &status, 0) == server && status == 0);
    SHOW(PROMPT(connects));
    SHOW(PROMPT(sends));
}

// What is given up while the peer is asked is gone; what a child gets meanwhile is the kernel's.
static void undecided(void) {
    struct sockaddr_in where, datagrams;
    pid_t server = stopped_server(&where, &datagrams, 1, 0);
    int closed = begin_connect(where), again = begin_connect(where), shared = begin_connect(where), status;
    char b[8] = {0};
    // It talks to nobody: the server's accept takes it, and finds its end.
    SHOW(shutdown(closed, SHUT_RDWR) == 0 || errno == ENOTCONN);
    SHOW(close(closed));
    SHOW(close(again));
    pid_t child = MUST(fork());
    if (child == 0) {
        struct pollfd p = {.fd = shared, .events = POLLOUT};
        poll(&p, 1, 3000);
        _exit(send(shared, "child", 5, 0) != 5);
    }
    SHOW(waitpid(child, &status, 0) == child && status == 0);
    MUST(kill(server, SIGKILL));
    MUST(waitpid(server, &status, 0));
    SHOW(ready(shared, POLLIN) > 0);
    SHOW(recv(shared, b, sizeof b, 0) <= 0);
    SHOW(close(shared));
}

// Another user has the name by which a server of ours would be found, and lets nobody in.
static void squatted(void) {
    struct sockaddr_in where;
    int l = listener(&where), told[2];
    MUST(pipe(told));
    pid_t squatter = MUST(fork());
    if (squatter == 0) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        int len = sprintf(name.sun_path + 1, "ringway/%d/udp/127.0.0.1:%d", geteuid(), ntohs(where.sin_port));
        int s = MUST(socket(AF_UNIX, SOCK_SEQPACKET, 0)), c = MUST(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0));
        socklen_t size = offsetof(struct sockaddr_un, sun_path) + 1 + len;
        if (geteuid() == 0)
            MUST(setresuid(65534, 65534, 65534));
        MUST(bind(s, SA(name), size));
        MUST(listen(s, 0));
        MUST(connect(c, SA(name), size));
        MUST(write(told[1], "", 1));
        pause();
    }
    char b[8];
    MUST(read(told[0], b, 1));
    // (A datagram's: the server's own name cannot be had while it listens.)
    int u = MUST(socket(AF_INET, SOCK_DGRAM, 0)), v = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(bind(v, SA(where), sizeof where));
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double since = now_ms();
        SHOW(sendto(u, "x", 1, i % 2 ? 0 : MSG_DONTWAIT, SA(where), sizeof where));
        best = quickest(best, since);
        // Longer than the library leaves an address to the kernel without a look.
        nap(150);
        SHOW(ready(v, POLLIN));
        SHOW(recv(v, b, sizeof b, 0));
    }
    SHOW(PROMPT(best));
    MUST(kill(squatter, SIGKILL));
    MUST(waitpid(squatter, NULL, 0));
    close(l);
}

// One that answers is reached at once, as ever.
static void lively(void) {
    int fds[2];
    stream_pair(fds);
    SHOW(send(fds[0], "x", 1, 0));
    SHOW(ready(fds[1], POLLIN));
    struct sockaddr_in where;
    int l = listener(&where), fd = begin_connect(where), other;
    SHOW(ready(l, POLLIN));
    other = MUST(accept(l, NULL, NULL));
    SHOW(ready(fd, POLLOUT));
    SHOW(error_of(fd));
    SHOW(send(fd, "x", 1, 0));
    SHOW(ready(other, POLLIN));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGPIPE, SIG_IGN);
    lively();
    nonblocking();
    blocking();
    undecided();
    squatted();
    return 0;
}
