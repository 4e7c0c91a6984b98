// A signal that comes after what a call waits for ends no call with EINTR: what is ready is told. Another process makes it ready, then sends the signal.
#include "common.h"
#include <sys/epoll.h>
#include <sys/select.h>

#define ROUNDS 150
// What the kernel's loopback carries may come after the signal where cores are busy (ksoftirqd brings it then): its own calls may be interrupted in
// some rounds. What comes by shared memory is there before the signal is sent.
#define INTERRUPTED_MAX (getenv("LD_PRELOAD") ? 0 : 10)

// When the peer acts: the caller sleeps in its call; at once, so that the call finds it done or nearly so; a moment later, so that it is being done.
enum { ASLEEP, AT_ONCE, SOON, TIMES };
struct order {
    char what, when;
};

static volatile sig_atomic_t handled;
static int orders[2];
static struct sockaddr_in stream_at, datagram_at;

static void handler(int signal) {
    (void)signal;
    handled++;
}

// Waits until a process sleeps (proc_pid_stat(5)); one that never does is not waited for forever.
static void await_sleep(pid_t pid) {
    char path[64], line[256], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (int tries = 0; state != 'S' && tries < 20000; tries++) {
        usleep(100);
        FILE *file = fopen(path, "r");
        char *behind = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        state = behind ? behind[2] : 0;
        if (file) fclose(file);
    }
}

// Connects, writes or sends, as told, and then signals.
static void peer(pid_t to) {
    struct order order;
    int fd = -1, datagrams = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    alarm(50);
    while (read(orders[0], &order, sizeof order) == sizeof order) {
        if (order.when == ASLEEP) await_sleep(to);
        if (order.when == SOON) usleep(500);
        switch (order.what) {
        case 'c':
            close(fd);
            fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
            MUST(connect(fd, SA(stream_at), sizeof stream_at));
            break;
        case 'w':
            MUST(write(fd, "x", 1));
            break;
        case 'd':
            MUST(sendto(datagrams, "x", 1, 0, SA(datagram_at), sizeof datagram_at));
            break;
        }
        MUST(kill(to, SIGUSR1));
    }
    exit(0);
}

static void order(char what, int round) {
    struct order order = {what, round % TIMES};
    MUST(write(orders[1], &order, sizeof order));
}

// The signal of each round must have come before the next: the handler tells.
static void settle(int before) {
    while (handled == before) usleep(100);
}

static int select_one(int fd, const sigset_t *mask) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return mask ? pselect(fd + 1, &set, NULL, NULL, NULL, mask) : select(fd + 1, &set, NULL, NULL, NULL);
}

#define INTERRUPTED(what, ready, call)                                                             \
    do {                                                                                           \
        int interrupted = 0, others = 0;                                                           \
        for (int round = 0; round < ROUNDS; round++) {                                             \
            int before = handled;                                                                  \
            order(what, round);                                                                    \
            ssize_t result;                                                                        \
            while ((result = (call)) < 0 && errno == EINTR) interrupted++;                         \
            others += result < 0;                                                                  \
            ready;                                                                                 \
            settle(before);                                                                        \
        }                                                                                          \
        printf("%s: %s interrupted, %d failed\n", #call, interrupted > INTERRUPTED_MAX ? "too often" : "not", others); \
    } while (0)

int main(void) {
    char byte;
    // (No SA_RESTART: every call could be interrupted.)
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    int told[2], fd = -1;
    MUST(pipe(orders));
    MUST(pipe(told));
    pid_t own = getpid(), child = MUST(fork());
    if (child == 0) {
        close(orders[1]);
        MUST(read(told[0], &stream_at, sizeof stream_at));
        MUST(read(told[0], &datagram_at, sizeof datagram_at));
        peer(own);
    }
    close(orders[0]);
    int listening = listener(&stream_at);
    int datagrams = datagram(&datagram_at);
    MUST(write(told[1], &stream_at, sizeof stream_at));
    MUST(write(told[1], &datagram_at, sizeof datagram_at));
    INTERRUPTED('c', { close(fd); fd = (int)result; }, accept(listening, NULL, NULL));
    struct pollfd accepts = {.fd = listening, .events = POLLIN};
    INTERRUPTED('c', { close(fd); fd = accept(listening, NULL, NULL); }, poll(&accepts, 1, 5000));
    struct pollfd p = {.fd = fd, .events = POLLIN};
    INTERRUPTED('w', , recv(fd, &byte, 1, 0));
    INTERRUPTED('w', MUST(read(fd, &byte, 1)), poll(&p, 1, 5000));
    INTERRUPTED('w', MUST(read(fd, &byte, 1)), ppoll(&p, 1, NULL, NULL));
    sigset_t none;
    sigemptyset(&none);
    INTERRUPTED('w', MUST(read(fd, &byte, 1)), ppoll(&p, 1, NULL, &none));
    INTERRUPTED('w', MUST(read(fd, &byte, 1)), select_one(fd, NULL));
    INTERRUPTED('w', MUST(read(fd, &byte, 1)), select_one(fd, &none));
    int ep = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event));
    INTERRUPTED('w', MUST(read(fd, &byte, 1)), epoll_wait(ep, &event, 1, 5000));
    INTERRUPTED('w', MUST(read(fd, &byte, 1)), epoll_pwait(ep, &event, 1, 5000, &none));
    struct iovec piece = {&byte, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}};
    INTERRUPTED('w', , recvmsg(fd, &message.msg_hdr, 0));
    INTERRUPTED('d', , recv(datagrams, &byte, 1, 0));
    INTERRUPTED('d', , recvmmsg(datagrams, &message, 1, 0, NULL));
    struct pollfd d = {.fd = datagrams, .events = POLLIN};
    INTERRUPTED('d', MUST(recv(datagrams, &byte, 1, 0)), poll(&d, 1, 5000));
    close(orders[1]);
    int status;
    MUST(waitpid(child, &status, 0));
    printf("status %d\n", status);
}
