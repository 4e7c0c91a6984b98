// Connections move to the kernel whatever the processes at their ends are called: two containers in one network namespace, whose processes have
// the same numbers; and another user who has taken each name that can be guessed.
#include "common.h"
#include "namespace.h"
#include <stddef.h>
#include <sys/resource.h>
#include <sys/un.h>

enum { AMOUNT = 1 << 20 };

// Sums up what comes until the end, after `read` bytes with that sum.
static unsigned long sum_up(int fd, unsigned long *sum, unsigned long read) {
    static unsigned char b[1 << 16];
    int n;
    while ((n = recv(fd, b, sizeof b, 0)) > 0)
        for (int i = 0; i < n; i++)
            *sum += b[i] * (unsigned long)(++read % 251 + 1);
    if (n < 0)
        printf("recv: %s\n", strerrorname_np(errno));
    return read;
}

static void hand_over(int through, int fd) {
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    MUST(sendmsg(through, &m, 0));
}

static int take_over(int through) {
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd;
    MUST(recvmsg(through, &m, 0));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static void report(const char *how, unsigned long sum, unsigned long read) {
    printf("%s: %lu bytes, sum %lu\n", how, read, sum);
    _exit(read != AMOUNT);
}

// Begins to read, and lets another process go on.
static void serve(int told) {
    struct sockaddr_in where;
    int l = listener(&where), pair[2], status;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t taker = MUST(fork());
    if (taker == 0) {
        unsigned long sum = 0, read = sum_up(take_over(pair[1]), &sum, 0);
        report("handed over", sum, read);
    }
    printf("server is process %d\n", getpid());
    MUST(write(told, &where, sizeof where));
    for (int i = 0; i < 3; i++) {
        int fd = MUST(accept(l, NULL, NULL));
        // So that much is under way.
        nap(50);
        if (i == 0) {
            unsigned char first[100];
            unsigned long sum = 0;
            MUST(recv(fd, first, sizeof first, MSG_WAITALL));
            for (int k = 0; k < 100; k++)
                sum += first[k] * (unsigned long)((k + 1) % 251 + 1);
            pid_t child = MUST(fork());
            if (child == 0) {
                close(l);
                unsigned long read = sum_up(fd, &sum, sizeof first);
                report("forked", sum, read);
            }
            SHOW(waitpid(child, &status, 0) == child && status == 0);
        } else if (i == 1) {
            pid_t child = MUST(fork());
            if (child == 0) {
                MUST(dup2(fd, 0));
                execlp("wc", "wc", "-c", (char *)NULL);
                _exit(127);
            }
            SHOW(waitpid(child, &status, 0) == child && status == 0);
        } else {
            hand_over(pair[0], fd);
            SHOW(waitpid(taker, &status, 0) == taker && status == 0);
        }
        SHOW(send(fd, "done", 4, 0));
        close(fd);
    }
}

static void talk(struct sockaddr_in where) {
    static unsigned char b[AMOUNT];
    printf("client is process %d\n", getpid());
    for (int i = 0; i < AMOUNT; i++)
        b[i] = i * 7 + i / 1000;
    for (int i = 0; i < 3; i++) {
        char answer[8] = {0};
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(fd, SA(where), sizeof where));
        for (int sent = 0; sent < AMOUNT;)
            sent += MUST(send(fd, b + sent, AMOUNT - sent, 0));
        MUST(shutdown(fd, SHUT_WR));
        MUST(recv(fd, answer, 4, MSG_WAITALL));
        if (strcmp(answer, "done"))
            printf("the answer is '%s'\n", answer);
        close(fd);
    }
}

// Runs a role as the first process of a PID namespace.
static pid_t container(void role(int), int argument) {
    pid_t outer = MUST(fork());
    if (outer == 0) {
        int status;
        MUST(unshare(CLONE_NEWPID));
        pid_t inner = MUST(fork());
        if (inner == 0) {
            role(argument);
            exit(0);
        }
        MUST(waitpid(inner, &status, 0));
        _exit(status != 0);
    }
    return outer;
}

static void client(int told) {
    struct sockaddr_in where;
    MUST(read(told, &where, sizeof where));
    talk(where);
}

// Two that do not see each other's numbers, nor know that they are the same.
static void containers(void) {
    int told[2], status;
    MUST(pipe(told));
    pid_t a = container(serve, told[1]), b = container(client, told[0]);
    // The server first: it prints what its last call came to when the client may have ended already.
    SHOW(waitpid(a, &status, 0) == a && status == 0);
    SHOW(waitpid(b, &status, 0) == b && status == 0);
    close(told[0]), close(told[1]);
}

// Another user takes the names of all processes that there may soon be.
static pid_t squatter(void) {
    enum { NAMES = 3000 };
    int told[2];
    char b;
    MUST(pipe(told));
    pid_t squatter = MUST(fork());
    if (squatter == 0) {
        struct rlimit many = {NAMES + 100, NAMES + 100};
        unsigned uid = geteuid();
        MUST(setrlimit(RLIMIT_NOFILE, &many));
        if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            setresuid(0, 0, 0);
        // From here on, numbers rise by one for each process; those of PID namespaces begin at one.
        for (int i = 1; i <= NAMES; i++) {
            struct sockaddr_un name = {.sun_family = AF_UNIX};
            int pid = i <= NAMES / 3 ? i : getpid() + i - NAMES / 3, s = MUST(socket(AF_UNIX, SOCK_SEQPACKET, 0));
            int len = sprintf(name.sun_path + 1, "ringway/%u/dialogue/%d", uid, pid);
            if (bind(s, SA(name), offsetof(struct sockaddr_un, sun_path) + 1 + len) == 0)
                MUST(listen(s, 1));
        }
        MUST(write(told[1], "", 1));
        pause();
    }
    MUST(read(told[0], &b, 1));
    close(told[0]), close(told[1]);
    return squatter;
}

static void squatted(void) {
    pid_t other = squatter();
    int told[2], status;
    struct sockaddr_in where;
    MUST(pipe(told));
    pid_t server = MUST(fork());
    if (server == 0) {
        struct sockaddr_in own;
        int l = listener(&own);
        MUST(write(told[1], &own, sizeof own));
        int fd = MUST(accept(l, NULL, NULL));
        nap(50);
        pid_t child = MUST(fork());
        if (child == 0) {
            unsigned long sum = 0, read = sum_up(fd, &sum, 0);
            report("forked", sum, read);
        }
        SHOW(waitpid(child, &status, 0) == child && status == 0);
        SHOW(send(fd, "done", 4, 0));
        exit(0);
    }
    MUST(read(told[0], &where, sizeof where));
    static unsigned char b[AMOUNT];
    char answer[8] = {0};
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(where), sizeof where));
    for (int sent = 0; sent < AMOUNT;)
        sent += MUST(send(fd, b + sent, AMOUNT - sent, 0));
    MUST(shutdown(fd, SHUT_WR));
    int got = recv(fd, answer, 4, MSG_WAITALL);
    SHOW(waitpid(server, &status, 0) == server && status == 0);
    SHOW(got);
    MUST(kill(other, SIGKILL));
    MUST(waitpid(other, NULL, 0));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGPIPE, SIG_IGN);
    unshare_network();
    containers();
    squatted();
    return 0;
}
