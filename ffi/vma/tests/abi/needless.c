// System calls of one connection: a parent counts, by ptrace(2), those of a client's and of a server's program thread. What a connection takes
// is bounded by kind; time plays no part.
#include "common.h"

#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define CONNECTIONS 100
#define WARM 20
#define KINDS 512

// How often the program has called epoll_wait(2). How many of its calls sleep is up to the machine's load.
static long waits;

// The counting begins and ends with a system call that neither side makes otherwise. It tells the counter of the waits so far.
static void mark(void) { syscall(SYS_getpriority, 0, waits); }

static void connect_and_ask(struct sockaddr_in *where) {
    char bytes[64] = {0};
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(*where), sizeof *where));
    MUST(write(fd, bytes, sizeof bytes));
    ssize_t got = 0, count;
    while ((count = read(fd, bytes, sizeof bytes)) > 0) got += count;
    if (got != sizeof bytes) exit(2);
    close(fd);
}

// `rests`: its server is to wait for each.
static void client(struct sockaddr_in *where, int rests) {
    for (int i = 0; i < CONNECTIONS; i++) {
        if (rests) nap(3);
        if (i == WARM) mark();
        connect_and_ask(where);
    }
    mark();
    exit(0);
}

// An event loop that accepts, answers, and closes first.
static void server(int listening) {
    int epoll = MUST(epoll_create1(0));
    fcntl(listening, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event));
    for (int closed = 0, begun = 0; closed < CONNECTIONS;) {
        struct epoll_event ready[8];
        int count = epoll_wait(epoll, ready, 8, -1);
        waits++;
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            char bytes[64];
            if (fd == listening) {
                while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    event.data.fd = fd;
                    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
                }
            } else if (read(fd, bytes, sizeof bytes) == sizeof bytes) {
                MUST(write(fd, bytes, sizeof bytes));
                close(fd);
                if (++closed == WARM && !begun++) mark();
            }
        }
    }
    mark();
    exit(0);
}

// The same, one after the other, by calls that block.
static void blocking_server(int listening) {
    char bytes[64];
    for (int i = 0; i < CONNECTIONS; i++) {
        if (i == WARM) mark();
        int fd = MUST(accept(listening, NULL, NULL));
        if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes) exit(2);
        MUST(write(fd, bytes, sizeof bytes));
        close(fd);
    }
    mark();
    exit(0);
}

// Runs a child's thread to its end, and counts its system calls between the marks. Returns how often it waited between them.
static long count_calls(pid_t child, int *counts) {
    int status, counting = 0;
    long before = 0, waited = 0;
    MUST(waitpid(child, &status, 0));
    MUST(ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
    long signal = 0;
    while (!ptrace(PTRACE_SYSCALL, child, 0, signal) && waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
        struct __ptrace_syscall_info info = {0};
        if (signal || ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
        if (info.entry.nr == SYS_getpriority) {
            counting = !counting;
            if (counting)
                before = info.entry.args[1];
            else
                waited += (long)info.entry.args[1] - before;
        } else if (counting && info.entry.nr < KINDS)
            counts[info.entry.nr]++;
    }
    printf("ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return waited;
}

// At most so many halves of one for each connection. (A wait that is ended by what another wait was for begins again.)
static void at_most(const char *who, const char *what, int count, int halves) {
    int limit = (CONNECTIONS - WARM) * halves / 2;
    if (count <= limit)
        printf("%s: %s, no more than %d halves\n", who, what, halves);
    else
        printf("%s: %s, %d for %d connections\n", who, what, count, CONNECTIONS - WARM);
}

static long side(const char *who, int traces_server, void serve(int), int *counts) {
    int told[2];
    MUST(pipe(told));
    pid_t children[2];
    fflush(stdout);
    for (int child = 0; child < 2; child++) {
        children[child] = MUST(fork());
        if (children[child]) continue;
        alarm(40);
        if ((child == 0) == traces_server) {
            MUST(ptrace(PTRACE_TRACEME, 0, 0, 0));
            raise(SIGSTOP);
        }
        struct sockaddr_in where;
        if (child == 0) {
            int listening = listener(&where);
            MUST(write(told[1], &where, sizeof where));
            serve(listening);
        }
        MUST(read(told[0], &where, sizeof where));
        client(&where, traces_server);
    }
    long waited = count_calls(children[traces_server ? 0 : 1], counts);
    int status;
    MUST(waitpid(children[traces_server ? 1 : 0], &status, 0));
    printf("%s: the other ended with %d\n", who, status);
    return waited;
}

int main(void) {
    int asks[KINDS] = {0}, serves[KINDS] = {0}, blocks[KINDS] = {0};
    side("client", 0, server, asks);
    at_most("client", "signals blocked or let through", asks[SYS_rt_sigprocmask], 8);
    at_most("client", "getsockname", asks[SYS_getsockname], 0);
    at_most("client", "getpid", asks[SYS_getpid], 1);
    // (One when the number comes, and one before it is connected: nobody else may have it by then. One that is used is looked at every 100 ms.)
    at_most("client", "fstat", asks[SYS_newfstatat] + asks[SYS_fstat], 5);
    at_most("client", "bind", asks[SYS_bind], 3);
    long waited = side("server", 1, server, serves);
    at_most("server", "fstat", serves[SYS_newfstatat] + serves[SYS_fstat], 3);
    at_most("server", "getsockname", serves[SYS_getsockname], 0);
    at_most("server", "getpid", serves[SYS_getpid], 1);
    // (A sleep is one call: on the ring and on the kernel's half of the epoll instance at once.)
    // While another thread sleeps on the ring it is two, so the bound is by the waits, of which a client that rests makes sleeps.
    if (serves[SYS_ppoll] <= waited / 2 && waited >= CONNECTIONS - WARM)
        printf("server: ppoll, for less than half of the waits\n");
    else
        printf("server: ppoll, %d for %ld waits\n", serves[SYS_ppoll], waited);
    at_most("server", "signals blocked or let through", serves[SYS_rt_sigprocmask], 3);
    // (F_DUPFD, and no record locks.)
    side("blocking server", 1, blocking_server, blocks);
    at_most("blocking server", "fcntl", blocks[SYS_fcntl], 3);
    at_most("blocking server", "getpid", blocks[SYS_getpid], 1);
    at_most("blocking server", "fstat", blocks[SYS_newfstatat] + blocks[SYS_fstat], 2);
    at_most("blocking server", "signals blocked or let through", blocks[SYS_rt_sigprocmask], 1);
}
