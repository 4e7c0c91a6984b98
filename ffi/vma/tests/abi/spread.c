// SO_REUSEPORT (socket(7)): connections are shared out among the listeners of an address, whichever process has them.
#include "common.h"

#define CLIENTS 400
#define LISTENERS 4

static int sharing(int kind, in_addr_t host, int port) {
    int on = 1, fd = MUST(socket(AF_INET, kind, 0));
    struct sockaddr_in a = loopback(port ? port : unused_port(kind));
    if (host == INADDR_ANY) a.sin_addr = INET_EVERYWHERE;
    MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    MUST(bind(fd, SA(a), sizeof a));
    if (kind == SOCK_STREAM) {
        MUST(listen(fd, CLIENTS));
        MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    }
    return fd;
}

static int port_of(int fd) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    MUST(getsockname(fd, SA(a), &len));
    return ntohs(a.sin_port);
}

static int connected(int port) {
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in to = loopback(port);
    MUST(connect(fd, SA(to), sizeof to));
    return fd;
}

// Accepts all that waits, writes a byte to each, and closes it. How many those were.
static int serve(int listener) {
    int served = 0, fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        served++;
        MUST(write(fd, "x", 1));
        MUST(close(fd));
    }
    return served;
}

// Connects so many times, and has these listeners serve meanwhile. With a byte from each, all were served.
static int clients(int port, const int *listeners, int n, int *counts) {
    int served = 0;
    for (int i = 0; i < CLIENTS; i++) {
        int fd = connected(port);
        struct pollfd p[LISTENERS + 1] = {{.fd = fd, .events = POLLIN}};
        for (int l = 0; l < n; l++) p[l + 1] = (struct pollfd){.fd = listeners[l], .events = POLLIN};
        char byte;
        do {
            if (poll(p, 1 + n, 5000) <= 0) break;
            for (int l = 0; l < n; l++) counts[l] += serve(listeners[l]);
        } while (!p[0].revents);
        served += read(fd, &byte, 1) == 1;
        MUST(close(fd));
    }
    return served;
}

// Each of them has at least a quarter of its share.
static int spread(const int *counts, int n, int all) {
    int least = all;
    for (int i = 0; i < n; i++) least = counts[i] < least ? counts[i] : least;
    return least * 4 >= all / n;
}

static void one_process(void) {
    int fds[LISTENERS], counts[LISTENERS] = {0};
    fds[0] = sharing(SOCK_STREAM, INADDR_LOOPBACK, 0);
    int port = port_of(fds[0]);
    for (int i = 1; i < LISTENERS; i++) fds[i] = sharing(SOCK_STREAM, INADDR_LOOPBACK, port);
    SHOW(clients(port, fds, LISTENERS, counts));
    SHOW(spread(counts, LISTENERS, CLIENTS));
    // One that has gone gets none, and the others go on.
    MUST(close(fds[0]));
    memset(counts, 0, sizeof counts);
    SHOW(clients(port, fds + 1, LISTENERS - 1, counts + 1));
    SHOW(spread(counts + 1, LISTENERS - 1, CLIENTS));
    for (int i = 1; i < LISTENERS; i++) MUST(close(fds[i]));
}

// A full address is asked before a wildcard, whichever came first.
static void exact_and_wildcard(in_addr_t first, in_addr_t second) {
    int fds[2], counts[2] = {0};
    fds[0] = sharing(SOCK_STREAM, first, 0);
    int port = port_of(fds[0]);
    fds[1] = sharing(SOCK_STREAM, second, port);
    SHOW(clients(port, fds, 2, counts));
    SHOW(counts[0]);
    SHOW(counts[1]);
    for (int i = 0; i < 2; i++) MUST(close(fds[i]));
}

// What waits at a listener that goes is reset, and what waits at the others is theirs.
static void closed_with_waiting(void) {
    int fds[2], first = 0, waiting = 0, reset = 0, served = 0;
    fds[0] = sharing(SOCK_STREAM, INADDR_LOOPBACK, 0);
    int port = port_of(fds[0]), clients[100];
    fds[1] = sharing(SOCK_STREAM, INADDR_LOOPBACK, port);
    for (int i = 0; i < 100; i++) clients[i] = connected(port);
    nap(50);
    MUST(close(fds[0]));
    served = serve(fds[1]);
    for (int i = 0; i < 100; i++) {
        char byte;
        int n = read(clients[i], &byte, 1);
        first += n == 1;
        reset += n < 0 && errno == ECONNRESET;
        waiting += n == 0;
        MUST(close(clients[i]));
    }
    SHOW(first == served);
    SHOW(first + reset);
    SHOW(waiting);
    SHOW(first > 10 && reset > 10);
    MUST(close(fds[1]));
}

// The first listener's thread has something else to do: those that are not its are served.
static void busy_first(void) {
    int fds[LISTENERS], served = 0;
    fds[0] = sharing(SOCK_STREAM, INADDR_LOOPBACK, 0);
    int port = port_of(fds[0]), waiting[100];
    for (int i = 1; i < LISTENERS; i++) fds[i] = sharing(SOCK_STREAM, INADDR_LOOPBACK, port);
    for (int i = 0; i < 100; i++) waiting[i] = connected(port);
    nap(50);
    for (int i = 1; i < LISTENERS; i++) served += serve(fds[i]);
    SHOW(served > 40);
    served += serve(fds[0]);
    SHOW(served);
    for (int i = 0; i < 100; i++) MUST(close(waiting[i]));
    for (int i = 0; i < LISTENERS; i++) MUST(close(fds[i]));
}

// Three listeners of one process and one of another: by listeners, not by processes. `is_known`: the address had listeners just now, and those that it has
// get connections before the other process has one.
static void two_processes(int is_known) {
    int told[2], done[2], fds[3], counts[4] = {0};
    MUST(pipe(told));
    MUST(pipe(done));
    fflush(stdout);
    pid_t child = MUST(fork());
    if (child == 0) {
        int port, count = 0;
        MUST(read(told[0], &port, sizeof port));
        int fd = sharing(SOCK_STREAM, INADDR_LOOPBACK, port);
        MUST(write(done[1], "r", 1));
        struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = told[0], .events = POLLIN}};
        while (poll(p, 2, 20000) > 0 && !p[1].revents) count += serve(fd);
        MUST(write(done[1], &count, sizeof count));
        // (An exit gives what is left to write its time.)
        exit(0);
    }
    fds[0] = sharing(SOCK_STREAM, INADDR_LOOPBACK, 0);
    int port = port_of(fds[0]);
    if (is_known) {
        int before = 0;
        SHOW(clients(port, fds, 1, &before));
        MUST(close(fds[0]));
        fds[0] = sharing(SOCK_STREAM, INADDR_LOOPBACK, port);
    }
    for (int i = 1; i < 3; i++) fds[i] = sharing(SOCK_STREAM, INADDR_LOOPBACK, port);
    if (is_known) SHOW(clients(port, fds, 3, counts));
    memset(counts, 0, sizeof counts);
    char ready;
    MUST(write(told[1], &port, sizeof port));
    MUST(read(done[0], &ready, 1));
    SHOW(clients(port, fds, 3, counts));
    MUST(write(told[1], &port, sizeof port));
    MUST(read(done[0], &counts[3], sizeof counts[3]));
    SHOW(counts[0] + counts[1] + counts[2] + counts[3]);
    SHOW(spread(counts, 4, CLIENTS));
    SHOW(counts[3] < CLIENTS * 3 / 8);
    int status;
    MUST(waitpid(child, &status, 0));
    SHOW(status);
    for (int i = 0; i < 3; i++) MUST(close(fds[i]));
}

int main(void) {
    one_process();
    exact_and_wildcard(INADDR_ANY, INADDR_LOOPBACK);
    exact_and_wildcard(INADDR_LOOPBACK, INADDR_ANY);
    closed_with_waiting();
    busy_first();
    two_processes(0);
    two_processes(1);
    return 0;
}
