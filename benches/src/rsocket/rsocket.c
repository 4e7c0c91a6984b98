/*
 * Two processes, each on a core of its own, connected by TCP or, compiled with -DRSOCKETS, by rsockets.
 *
 *   rsocket ping|bulk|write-ping|write-bulk SECONDS
 *
 * ping: 64 bytes there and back. bulk: 64 KiB at a time, one way. write-ping, write-bulk: the same by riowrite; who gets the bytes looks at its memory and
 * makes no call. Prints round trips a second, or MB a second.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef RSOCKETS
#include <rdma/rsocket.h>
#define CALL(name) r##name
#else
#define CALL(name) name
#endif

/* BURST: chunks of write-bulk that nobody has answered. */
enum { MESSAGE = 64, CHUNK = 64 << 10, BURST = 16, CHECKED = 64 };

static char bytes[CHUNK];

static void check(int holds, const char *what) {
    if (!holds) {
        perror(what);
        _exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void stay_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % sysconf(_SC_NPROCESSORS_ONLN), &set);
    check(!sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}

static void send_all(int fd, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t sent = CALL(send)(fd, bytes + done, len - done, 0);
        check(sent > 0, "send");
        done += sent;
    }
}

/* 0: the peer is through. */
static int recv_all(int fd, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t got = CALL(recv)(fd, bytes + done, len - done, 0);
        if (!got)
            return 0;
        check(got > 0, "recv");
        done += got;
    }
    return 1;
}

static void ends(int fd) {
    CALL(shutdown)(fd, SHUT_WR);
    while (recv_all(fd, sizeof bytes))
        ;
    CALL(close)(fd);
}

static double ping(int fd, int asks, double seconds) {
    uint64_t count = 0;
    double start = now(), end = start;
    if (asks)
        for (; end - start < seconds; end = now())
            for (int i = 0; i < CHECKED; i++, count++) {
                send_all(fd, MESSAGE);
                check(recv_all(fd, MESSAGE), "an answer");
            }
    else
        while (recv_all(fd, MESSAGE))
            send_all(fd, MESSAGE);
    return count / (end - start);
}

static double bulk(int fd, int asks, double seconds) {
    uint64_t count = 0;
    double start = now(), end = start;
    if (!asks) {
        while (recv_all(fd, CHUNK))
            ;
        return 0;
    }
    for (; end - start < seconds; end = now())
        for (int i = 0; i < CHECKED; i++, count += CHUNK)
            send_all(fd, CHUNK);
    return count / (end - start) / 1e6;
}

#ifdef RSOCKETS
/* What the peer writes: chunks, and behind them a number. */
static volatile char *memory;

static void riowrite_all(int fd, const void *from, size_t len, off_t offset) {
    for (size_t done = 0; done < len;) {
        ssize_t sent = riowrite(fd, (const char *)from + done, len - done, offset + done, 0);
        check(sent > 0, "send");
        done += sent;
    }
}

/* The number at the end of a chunk is what is looked at. */
static volatile uint64_t *number_of(uint64_t chunk) {
    return (volatile uint64_t *)(memory + (chunk % BURST + 1) * CHUNK - sizeof(uint64_t));
}

static uint64_t look(volatile uint64_t *at, uint64_t wanted) {
    uint64_t seen;
    while ((seen = *at) != wanted && seen != UINT64_MAX)
        ;
    return seen;
}

static void write_number(int fd, uint64_t number, size_t len, off_t end) {
    memcpy(bytes + len - sizeof number, &number, sizeof number);
    riowrite_all(fd, bytes, len, end - len);
}

/* Numbers go to and fro, each at the end of a message or a chunk; the last one is UINT64_MAX. */
static double write_to_memory(int fd, int asks, double seconds, size_t len, int burst) {
    double start = now(), end = start;
    uint64_t chunk = 0;
    for (;; chunk += burst) {
        if (!asks) {
            for (int i = 0; i < burst; i++)
                if (look(number_of(chunk + i), chunk + i + 1) == UINT64_MAX)
                    return 0;
            write_number(fd, chunk + burst, burst == 1 ? len : sizeof(uint64_t), CHUNK);
            continue;
        }
        if (chunk % (CHECKED * burst) == 0)
            end = now();
        if (end - start >= seconds)
            break;
        for (int i = 0; i < burst; i++)
            write_number(fd, chunk + i + 1, len, ((chunk + i) % BURST + 1) * CHUNK);
        look(number_of(0), chunk + burst);
    }
    write_number(fd, UINT64_MAX, sizeof(uint64_t), (chunk % BURST + 1) * CHUNK);
    return burst == 1 ? chunk / (end - start) : chunk * len / (end - start) / 1e6;
}

static void map(int fd) {
    memory = mmap(NULL, BURST * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(memory != MAP_FAILED && riomap(fd, (void *)memory, BURST * CHUNK, PROT_WRITE, 0, 0) == 0, "riomap");
    /* The peer hears of it before what is sent now. */
    send_all(fd, 1);
    check(recv_all(fd, 1), "the peer's mapping");
}
#endif

static double play(const char *what, int fd, int asks, double seconds) {
#ifdef RSOCKETS
    if (!strncmp(what, "write", 5)) {
        int is_ping = !strcmp(what, "write-ping");
        map(fd);
        return write_to_memory(fd, asks, seconds, is_ping ? MESSAGE : CHUNK, is_ping ? 1 : BURST);
    }
#endif
    return !strcmp(what, "ping") ? ping(fd, asks, seconds) : bulk(fd, asks, seconds);
}

static void set_up(int fd) {
    int one = 1;
    CALL(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
#ifdef RSOCKETS
    check(!rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &one, sizeof one), "RDMA_IOMAPSIZE");
#endif
}

static int serve(int told) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof name;
    int door = CALL(socket)(AF_INET, SOCK_STREAM, 0);
    check(door >= 0, "socket");
    set_up(door);
    check(!CALL(bind)(door, (struct sockaddr *)&name, len) && !CALL(listen)(door, 1), "listen");
    check(!CALL(getsockname)(door, (struct sockaddr *)&name, &len), "getsockname");
    check(write(told, &name, sizeof name) == sizeof name, "write");
    int fd = CALL(accept)(door, NULL, NULL);
    check(fd >= 0, "accept");
    return fd;
}

static int ask(int told) {
    struct sockaddr_in name;
    check(read(told, &name, sizeof name) == sizeof name, "read");
    int fd = CALL(socket)(AF_INET, SOCK_STREAM, 0);
    set_up(fd);
    check(!CALL(connect)(fd, (struct sockaddr *)&name, sizeof name), "connect");
    return fd;
}

int main(int argc, char **argv) {
    check(argc == 3, "usage: rsocket ping|bulk|write-ping|write-bulk SECONDS");
    double seconds = atof(argv[2]);
    int told[2], status;
    check(!pipe(told), "pipe");
    pid_t child = fork();
    check(child >= 0, "fork");
    stay_on(!child);
    int fd = child ? ask(told[0]) : serve(told[1]);
    double rate = play(argv[1], fd, child != 0, seconds);
    ends(fd);
    if (!child)
        return 0;
    check(waitpid(child, &status, 0) == child && !status, "the child");
    printf("%.1f\n", rate);
    return 0;
}
