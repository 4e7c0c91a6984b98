/* Ping-pong over plain BSD sockets. It knows nothing of Ringway: `cargo xtask demo` runs it on the kernel, and the same
 * binary again with libvma.so preloaded.
 *
 *   pingpong server [--udp] PORT                 serves one client (UDP: until an empty datagram), then ends
 *   pingpong client [--udp] [--count N] [--size BYTES] [--warmup N] [--json] [--samples FILE] HOST PORT
 *
 * The client sends a message, waits for it to come back, and takes the time: that is one round trip. --json prints one
 * line of JSON instead of a table; --samples writes every round trip as a 32-bit count of nanoseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_MAX = 65507 };

struct options {
    int udp;
    int json;
    size_t count;
    size_t warmup;
    size_t size;
    const char *samples;
    const char *host;
    int port;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void usage(void)
{
    fprintf(stderr, "usage: pingpong server [--udp] PORT\n"
                    "       pingpong client [--udp] [--count N] [--size BYTES] [--warmup N] [--json] [--samples FILE] HOST PORT\n");
    exit(2);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct sockaddr_in address(const char *host, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1) {
        fprintf(stderr, "pingpong: %s is not an IPv4 address\n", host);
        exit(2);
    }
    return a;
}

static void no_delay(int fd)
{
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        die("TCP_NODELAY");
}

static void send_all(int fd, const char *from, size_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, from, size, 0);
        if (n < 0)
            die("send");
        from += n;
        size -= (size_t)n;
    }
}

/* Returns 0 at the end of the stream. */
static int receive_all(int fd, char *to, size_t size)
{
    while (size > 0) {
        ssize_t n = recv(fd, to, size, 0);
        if (n < 0)
            die("recv");
        if (n == 0)
            return 0;
        to += n;
        size -= (size_t)n;
    }
    return 1;
}

static int serve_tcp(int port)
{
    static char message[MESSAGE_MAX];
    struct sockaddr_in me = address("127.0.0.1", port);
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0)
        die("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&me, sizeof me) != 0)
        die("bind");
    if (listen(listener, 1) != 0)
        die("listen");
    puts("ready");
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        die("accept");
    no_delay(fd);
    for (;;) {
        ssize_t n = recv(fd, message, sizeof message, 0);
        if (n < 0)
            die("recv");
        if (n == 0)
            break;
        send_all(fd, message, (size_t)n);
    }
    close(fd);
    close(listener);
    return 0;
}

static int serve_udp(int port)
{
    static char message[MESSAGE_MAX];
    struct sockaddr_in me = address("127.0.0.1", port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0)
        die("socket");
    if (bind(fd, (struct sockaddr *)&me, sizeof me) != 0)
        die("bind");
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        ssize_t n = recvfrom(fd, message, sizeof message, 0, (struct sockaddr *)&peer, &length);
        if (n < 0)
            die("recvfrom");
        if (n == 0)
            break;
        if (sendto(fd, message, (size_t)n, 0, (struct sockaddr *)&peer, length) != n)
            die("sendto");
    }
    close(fd);
    return 0;
}

static void round_trip(int fd, const struct options *o, char *message, char *answer, size_t serial)
{
    /* The serial number makes every message another one, so that a stale answer is noticed. */
    memcpy(message, &serial, sizeof serial);
    if (o->udp) {
        do {
            if (send(fd, message, o->size, 0) != (ssize_t)o->size)
                die("send");
            ssize_t n = recv(fd, answer, o->size, 0);
            if (n < 0 && errno != EAGAIN)
                die("recv");
            /* A datagram may be lost: SO_RCVTIMEO ends the wait, and it is sent again. */
        } while (memcmp(answer, message, sizeof serial) != 0);
    } else {
        send_all(fd, message, o->size);
        if (!receive_all(fd, answer, o->size)) {
            fprintf(stderr, "pingpong: the server closed the connection\n");
            exit(1);
        }
    }
    if (memcmp(answer, message, o->size) != 0) {
        fprintf(stderr, "pingpong: other bytes came back\n");
        exit(1);
    }
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t percentile(const uint32_t *sorted, size_t count, double share)
{
    size_t at = (size_t)(share * (double)count);
    return sorted[at < count ? at : count - 1];
}

static void report(const struct options *o, uint32_t *samples)
{
    static const struct {
        const char *name;
        double share;
    } rows[] = {{"min", 0.0}, {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1.0}};
    qsort(samples, o->count, sizeof *samples, ascending);
    if (o->json)
        printf("{\"protocol\":\"%s\",\"size\":%zu,\"count\":%zu", o->udp ? "udp" : "tcp", o->size, o->count);
    else
        printf("%s round trips of %zu bytes, %zu of them, in us\n", o->udp ? "UDP" : "TCP", o->size, o->count);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t ns = percentile(samples, o->count, rows[i].share);
        if (o->json)
            printf(",\"%s_ns\":%u", rows[i].name, ns);
        else
            printf("  %-6s %10.3f\n", rows[i].name, ns / 1000.0);
    }
    if (o->json)
        puts("}");
}

static int ask(const struct options *o)
{
    static char message[MESSAGE_MAX], answer[MESSAGE_MAX];
    struct sockaddr_in peer = address(o->host, o->port);
    int fd = socket(AF_INET, o->udp ? SOCK_DGRAM : SOCK_STREAM, 0);
    if (fd < 0)
        die("socket");
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) != 0)
        die("connect");
    if (o->udp) {
        struct timeval patience = {.tv_sec = 1};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    } else {
        no_delay(fd);
    }
    uint32_t *samples = calloc(o->count, sizeof *samples);
    if (samples == NULL)
        die("calloc");
    for (size_t i = 1; i <= o->warmup; i++)
        round_trip(fd, o, message, answer, i);
    for (size_t i = 0; i < o->count; i++) {
        uint64_t start = now_ns();
        round_trip(fd, o, message, answer, o->warmup + i + 1);
        uint64_t took = now_ns() - start;
        samples[i] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
    }
    if (o->udp && send(fd, message, 0, 0) != 0)
        die("send");
    close(fd);
    if (o->samples != NULL) {
        FILE *file = fopen(o->samples, "wb");
        if (file == NULL || fwrite(samples, sizeof *samples, o->count, file) != o->count || fclose(file) != 0)
            die(o->samples);
    }
    report(o, samples);
    free(samples);
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.count = 100000, .warmup = 1000, .size = 64};
    const char *positional[3];
    int positionals = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--udp") == 0) {
            o.udp = 1;
        } else if (strcmp(argv[i], "--json") == 0) {
            o.json = 1;
        } else if (strcmp(argv[i], "--count") == 0) {
            o.count = strtoul(value, NULL, 10), i++;
        } else if (strcmp(argv[i], "--warmup") == 0) {
            o.warmup = strtoul(value, NULL, 10), i++;
        } else if (strcmp(argv[i], "--size") == 0) {
            o.size = strtoul(value, NULL, 10), i++;
        } else if (strcmp(argv[i], "--samples") == 0) {
            o.samples = value, i++;
        } else if (argv[i][0] != '-' && positionals < 3) {
            positional[positionals++] = argv[i];
        } else {
            usage();
        }
    }
    if (o.size < sizeof(size_t) || o.size > MESSAGE_MAX || o.count == 0)
        usage();
    if (positionals == 2 && strcmp(positional[0], "server") == 0)
        return o.udp ? serve_udp(atoi(positional[1])) : serve_tcp(atoi(positional[1]));
    if (positionals == 3 && strcmp(positional[0], "client") == 0) {
        o.host = positional[1];
        o.port = atoi(positional[2]);
        return ask(&o);
    }
    usage();
}
