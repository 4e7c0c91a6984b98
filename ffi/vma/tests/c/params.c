// What parameters do, as a program sees it: each case prints what tests/params.rs compares.
#include "../abi/common.h"
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

static void tcp(void) {
    int s[2];
    stream_pair(s);
    struct tcp_info info;
    socklen_t len = sizeof info;
    MUST(getsockopt(s[0], IPPROTO_TCP, TCP_INFO, &info, &len));
    printf("%u %u\n", info.tcpi_advmss, info.tcpi_options & TCPI_OPT_TIMESTAMPS);
}

static void multicast(void) {
    int on = -1, fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    socklen_t len = sizeof on;
    MUST(getsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &on, &len));
    printf("%d\n", on);
}

static int datagrams[2];
static struct sockaddr_in first, second;

static void pair(void) {
    datagrams[0] = datagram(&first);
    datagrams[1] = datagram(&second);
    MUST(connect(datagrams[0], SA(second), sizeof second));
    char byte;
    MUST(send(datagrams[0], "x", 1, 0));
    MUST(recv(datagrams[1], &byte, 1, 0));
}

// How many of 64 large datagrams wait for a reader that is late.
static void waiting(void) {
    static char large[16000];
    pair();
    for (int i = 0; i < 64; i++)
        MUST(send(datagrams[0], large, sizeof large, 0));
    int kept = 0;
    while (recv(datagrams[1], large, sizeof large, MSG_DONTWAIT) > 0)
        kept++;
    printf("%d\n", kept);
}

// Whether a sender that does not block is told of datagrams that were lost at once, because the receiver's process is stopped; and
// whether it was held up by that no more than once.
static void full(void) {
    int ends[2], told = 0, status = 0;
    char byte;
    MUST(pipe(ends));
    pid_t child = MUST(fork());
    if (child == 0) {
        datagrams[1] = datagram(&second);
        MUST(write(ends[1], &second, sizeof second));
        MUST(recv(datagrams[1], &byte, 1, 0));
        raise(SIGSTOP);
        _exit(0);
    }
    MUST(read(ends[0], &second, sizeof second));
    datagrams[0] = datagram(&first);
    MUST(connect(datagrams[0], SA(second), sizeof second));
    MUST(send(datagrams[0], "x", 1, 0));
    MUST(waitpid(child, &status, WUNTRACED));
    MUST(fcntl(datagrams[0], F_SETFL, O_NONBLOCK));
    time_t began = time(0);
    for (int i = 0; i < 2000; i++) {
        if (send(datagrams[0], "x", 1, 0) < 0 && errno == EAGAIN)
            told++;
    }
    printf("%d %s\n", told > 0, time(0) - began < 10 ? "soon" : "late");
    MUST(kill(child, SIGKILL));
}

// How many of 100 polls that have a datagram see the pipe as well.
static void both(void) {
    int ends[2], seen = 0;
    pair();
    MUST(pipe(ends));
    MUST(write(ends[1], "x", 1));
    MUST(send(datagrams[0], "x", 1, 0));
    for (int i = 0; i < 100; i++) {
        struct pollfd p[] = {{.fd = datagrams[1], .events = POLLIN}, {.fd = ends[0], .events = POLLIN}};
        seen += MUST(poll(p, 2, -1)) == 2;
    }
    printf("%d\n", seen);
}

// A socket that the library does not know of, so that what it sends goes through the kernel.
static int plain(int type) {
    return MUST(syscall(SYS_socket, AF_INET, type, 0));
}

// Of what two worlds sent before, as much from each, how much of the kernel's is among the first half of what is received. (The
// kernel's has come before.)
static void turns(void) {
    char byte;
    pair();
    int sender = plain(SOCK_DGRAM), of_kernel = 0;
    MUST(syscall(SYS_sendto, sender, "k", 1, 0, &second, sizeof second));
    MUST(recv(datagrams[1], &byte, 1, 0));
    for (int i = 0; i < 60; i++) {
        MUST(send(datagrams[0], "r", 1, 0));
        MUST(syscall(SYS_sendto, sender, "k", 1, 0, &second, sizeof second));
    }
    for (int i = 0; i < 60; i++) {
        MUST(recv(datagrams[1], &byte, 1, MSG_DONTWAIT));
        of_kernel += byte == 'k';
    }
    printf("%d\n", of_kernel);
}

// Of 100 datagrams that the kernel has, how many do 100 calls receive that do not wait; by recv, and by recvmmsg.
static void full_kernel(void) {
    static struct mmsghdr messages[100];
    struct iovec part = {&(char){0}, 1};
    char byte;
    pair();
    int sender = plain(SOCK_DGRAM), one_by_one = 0;
    for (int i = 0; i < 200; i++)
        MUST(syscall(SYS_sendto, sender, "k", 1, 0, &second, sizeof second));
    for (int i = 0; i < 100; i++)
        one_by_one += recv(datagrams[1], &byte, 1, MSG_DONTWAIT) == 1;
    for (int i = 0; i < 100; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    printf("%d %d\n", one_by_one, recvmmsg(datagrams[1], messages, 100, MSG_DONTWAIT, 0));
}

// The same as turns of connections: who came by the kernel has another program's address.
static void connections(void) {
    enum { EACH = 20 };
    int one = 1, listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), of_kernel = 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, mine;
    socklen_t len = sizeof address;
    in_port_t by_kernel[EACH];
    MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    MUST(bind(listener, SA(address), len));
    MUST(getsockname(listener, SA(address), &len));
    MUST(listen(listener, 100));
    MUST(syscall(SYS_connect, plain(SOCK_STREAM), &address, len));
    MUST(accept(listener, 0, 0));
    for (int i = 0; i < EACH; i++) {
        int by = plain(SOCK_STREAM);
        MUST(syscall(SYS_connect, by, &address, len));
        MUST(syscall(SYS_getsockname, by, &mine, &len));
        by_kernel[i] = mine.sin_port;
        MUST(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(address), len));
    }
    for (int i = 0; i < EACH; i++) {
        MUST(accept(listener, SA(mine), &len));
        for (int j = 0; j < EACH; j++)
            of_kernel += mine.sin_port == by_kernel[j];
    }
    printf("%d\n", of_kernel);
}

// How many of 100 collections of an epoll instance that has a datagram see the pipe as well.
static void both_collected(void) {
    int ends[2], seen = 0, epoll = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN}, found[8];
    pair();
    MUST(pipe(ends));
    MUST(write(ends[1], "x", 1));
    MUST(send(datagrams[0], "x", 1, 0));
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, datagrams[1], &event));
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    for (int i = 0; i < 100; i++)
        seen += MUST(epoll_wait(epoll, found, 8, -1)) == 2;
    printf("%d\n", seen);
}

// How many of three waits see, when their time is over at the latest, what the kernel has.
static void expiring(void) {
    int ends[2], seen = 0, epoll = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    struct timeval patience = {.tv_usec = 100000};
    char byte;
    pair();
    MUST(pipe(ends));
    MUST(write(ends[1], "x", 1));
    struct pollfd p[] = {{.fd = datagrams[1], .events = POLLIN}, {.fd = ends[0], .events = POLLIN}};
    seen += MUST(poll(p, 2, 100)) == 1;
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, datagrams[1], &event));
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    seen += MUST(epoll_wait(epoll, &event, 1, 100)) == 1;
    // (A socket that the library does not know sends through the kernel.)
    int plain = MUST(syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0));
    MUST(syscall(SYS_sendto, plain, "x", 1, 0, &second, sizeof second));
    MUST(setsockopt(datagrams[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    seen += recv(datagrams[1], &byte, 1, 0) == 1;
    // What poll(2) calls readable for ever, and recv(2) does not: the call ends all the same.
    int refused = MUST(socket(AF_INET, SOCK_DGRAM, 0)), on = 1;
    struct sockaddr_in nobody;
    int gone = datagram(&nobody);
    MUST(close(gone));
    MUST(setsockopt(refused, IPPROTO_IP, IP_RECVERR, &on, sizeof on));
    MUST(setsockopt(refused, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    MUST(connect(refused, SA(nobody), sizeof nobody));
    MUST(send(refused, "x", 1, 0));
    for (int i = 0; i < 3; i++)
        recv(refused, &byte, 1, 0);
    printf("%d\n", seen);
}

// Where the progress thread may run, and its number.
static void thread(void) {
    pair();
    nap(100);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], line[200], name[200] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            sscanf(line, "Name: %199s", name);
            if (!strcmp(name, "ringway") && !strncmp(line, "Cpus_allowed_list:", 18))
                printf("%s %s", task->d_name, strchr(line, '\t') + 1);
        }
        if (status)
            fclose(status);
    }
    closedir(tasks);
}

// Bytes that a connection takes whose reader is late.
static void buffers(void) {
    static char large[65536];
    int s[2];
    long sent = 0;
    stream_pair(s);
    MUST(fcntl(s[0], F_SETFL, O_NONBLOCK));
    for (ssize_t n; (n = send(s[0], large, sizeof large, 0)) > 0;)
        sent += n;
    // All of it arrives.
    long left = sent;
    for (ssize_t n; left > 0 && (n = recv(s[1], large, sizeof large, 0)) > 0; left -= n) {}
    printf("%ld %ld\n", sent, left);
}

// Whether the second of two connections in a row took its time.
static void rate(void) {
    struct timespec begin, end;
    struct sockaddr_in where;
    listener(&where);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 2; i++)
        MUST(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(where), sizeof where));
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%d\n", (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 > 500);
}

// Whether datagrams pile up in the queue although the program sends on a connection meanwhile.
static void piling(void) {
    enum { COUNT = 36, TRIES = 20 };
    int s[2], pile = 0, on = 1, little = 2304;
    char byte;
    stream_pair(s);
    pair();
    // (Neither Nagle's algorithm nor the initial window holds any of what is sent here: a send that leaves something held looks as well.)
    MUST(setsockopt(s[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    // (The socket's buffer has room for half of them: what comes there meanwhile is lost.)
    MUST(setsockopt(datagrams[1], SOL_SOCKET, SO_RCVBUF, &little, sizeof little));
    // (So does a send a while after the last look: one of these tries is quick enough.)
    for (int try = 0; try < TRIES; try++) {
        int kept = 0;
        for (int i = 0; i < COUNT; i++) {
            MUST(send(datagrams[0], "x", 1, 0));
            if (i % 4 == 3)
                MUST(send(s[0], "x", 1, 0));
        }
        while (recv(datagrams[1], &byte, 1, MSG_DONTWAIT) > 0)
            kept++;
        pile += kept == COUNT;
        nap(20);
        while (recv(s[1], &byte, 1, MSG_DONTWAIT) > 0)
            continue;
    }
    printf("%d\n", pile > 0);
}

static void crash(void) {
    pair();
    *(volatile int *)0 = 1;
}

// A connection, and datagrams that are sent to an address, and over a connected socket; what the peer's address is, is the test's.
static void use(void) {
    int s[2];
    char byte;
    stream_pair(s);
    MUST(send(s[0], "x", 1, 0));
    MUST(recv(s[1], &byte, 1, 0));
    int a = datagram(&first), b = datagram(&second);
    MUST(sendto(a, "x", 1, 0, SA(second), sizeof second));
    MUST(recv(b, &byte, 1, 0));
    MUST(connect(b, SA(first), sizeof first));
    MUST(send(b, "x", 1, 0));
    MUST(recv(a, &byte, 1, 0));
    puts("done");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"tcp", tcp},       {"multicast", multicast}, {"waiting", waiting}, {"full", full}, {"both", both},
                 {"thread", thread}, {"buffers", buffers},     {"crash", crash},     {"use", use},
                 {"rate", rate},     {"piling", piling}, {"expiring", expiring}, {"turns", turns},
                 {"full_kernel", full_kernel}, {"connections", connections}, {"both_collected", both_collected}};
    for (unsigned i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++) {
        if (!strcmp(argv[1], cases[i].name)) {
            cases[i].run();
            return 0;
        }
    }
    return 2;
}
