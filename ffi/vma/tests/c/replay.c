/* A replay of market data: numbered datagrams for a group, at a rate. It knows nothing of who carries its sockets.
 *
 *   replay tell GROUP PORT IF COUNT RATE     sends so many, so many a second at most, and says how many it has come to (on standard error)
 *   replay hear GROUP PORT IF COUNT          says how many of them were lost, or came out of turn (on standard error), once the last has come, or a while later
 */
#include "far.h"
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <time.h>

#define LEN 128
#define BUFFER (64 << 20)
/* Who has said something says more within this time. */
#define PATIENCE_MS 3000

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void tell(unsigned interface, uint32_t count, double rate) {
    int fd = opened(SOCK_DGRAM);
    struct ip_mreqn by = {.imr_ifindex = interface};
    if (to.ss_family == AF_INET) {
        CHECK(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) == 0);
    } else {
        CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &interface, sizeof interface) == 0);
    }
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) == 0);
    uint32_t words[LEN / 4] = {0};
    double began = now();
    for (uint32_t number = 0; number < count; number++) {
        words[0] = number;
        while (now() - began < number / rate) {
        }
        CHECK(send(fd, words, LEN, 0) == LEN);
    }
    fprintf(stderr, "rate %.0f\n", count / (now() - began));
}

static void hear(unsigned interface, uint32_t count) {
    struct group_req request = {.gr_interface = interface};
    int fd = opened(SOCK_DGRAM), buffer = BUFFER;
    memcpy(&request.gr_group, &to, to_len);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) == 0 && bind(fd, (struct sockaddr *)&to, to_len) == 0);
    CHECK(setsockopt(fd, to.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &request, sizeof request) == 0);
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    CHECK(printf("ready\n") > 0 && fflush(stdout) == 0);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(poll(&wait, 1, 20000) == 1 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    uint32_t words[LEN / 4], heard = 0, late = 0;
    int64_t last = -1;
    while (last + 1 < count) {
        ssize_t len = recv(fd, words, sizeof words, 0);
        if (len < 0) {
            CHECK(errno == EAGAIN);
            break;
        }
        CHECK(len == LEN);
        heard++;
        late += words[0] <= last;
        last = words[0] > last ? words[0] : last;
    }
    fprintf(stderr, "lost %u late %u\n", count - heard, late);
}

int main(int argc, char **argv) {
    CHECK(argc >= 6);
    name(argv[2], argv[3]);
    unsigned interface = if_nametoindex(argv[4]);
    CHECK(interface != 0);
    if (strcmp(argv[1], "tell") == 0) {
        CHECK(argc == 7);
        tell(interface, atoi(argv[5]), atof(argv[6]));
    } else {
        CHECK(strcmp(argv[1], "hear") == 0);
        hear(interface, atoi(argv[5]));
    }
    return 0;
}
