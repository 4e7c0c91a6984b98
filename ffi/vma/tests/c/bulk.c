/* Bulk by several streams at once, to a reader who is away now and then. What is wrong is printed; nothing else is.
 *
 *   bulk pours ADDRESS PORT     sends it
 *   bulk drinks ADDRESS PORT    reads it, on an interface, which is to have dropped next to none of it
 *   bulk drains ADDRESS PORT    reads it, whoever brings it
 */
#include "far.h"
#include <linux/if_xdp.h>
#include <poll.h>
#include <sys/syscall.h>

#define STREAMS 4
#define BYTES (16l << 20)
/* Frames of all streams, and how many of them may have found no room: the machine may have other things to do than to run the reader. */
#define FRAMES (STREAMS * BYTES / 1460)
#define DROPPED_MAX (FRAMES / 20)

static char bytes[1 << 17];

static void pours(void) {
    struct pollfd streams[STREAMS];
    long sent[STREAMS] = {0}, retransmitted = 0;
    for (int at = 0; at < STREAMS; at++) {
        streams[at] = (struct pollfd){.fd = connected(), .events = POLLOUT};
        CHECK(fcntl(streams[at].fd, F_SETFL, O_NONBLOCK) == 0);
    }
    for (int left = STREAMS; left > 0;) {
        CHECK(poll(streams, STREAMS, 30000) > 0);
        for (int at = 0; at < STREAMS; at++) {
            size_t rest = BYTES - sent[at];
            if (!(streams[at].revents & POLLOUT) || rest == 0) {
                continue;
            }
            ssize_t count = send(streams[at].fd, bytes, rest < sizeof bytes ? rest : sizeof bytes, MSG_NOSIGNAL);
            CHECK(count > 0 || errno == EAGAIN);
            sent[at] += count > 0 ? count : 0;
            if (sent[at] == BYTES) {
                CHECK(shutdown(streams[at].fd, SHUT_WR) == 0);
                streams[at].events = 0, left--;
            }
        }
    }
    for (int at = 0; at < STREAMS; at++) {
        struct tcp_info info;
        socklen_t len = sizeof info;
        CHECK(fcntl(streams[at].fd, F_SETFL, 0) == 0 && recv(streams[at].fd, bytes, 1, 0) == 0);
        CHECK(getsockopt(streams[at].fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
        retransmitted += info.tcpi_total_retrans;
    }
    if (retransmitted > DROPPED_MAX) {
        printf("%ld of %ld segments were sent again\n", retransmitted, FRAMES);
    }
}

/* What the kernel has dropped in front of the process's AF_XDP sockets: for want of room, and for anything else. */
static long dropped(void) {
    long count = 0, sockets = 0;
    for (int fd = 0; fd < 4096; fd++) {
        struct xdp_statistics of;
        socklen_t len = sizeof of;
        if (syscall(SYS_getsockopt, fd, SOL_XDP, XDP_STATISTICS, &of, &len) == 0) {
            count += of.rx_dropped + of.rx_ring_full, sockets++;
        }
    }
    CHECK(sockets > 0);
    return count;
}

static void drinks(int is_on_interface) {
    struct pollfd streams[STREAMS];
    int listener = listening(), reads = 0;
    long got[STREAMS] = {0};
    for (int at = 0; at < STREAMS; at++) {
        streams[at] = (struct pollfd){.fd = accept(listener, NULL, NULL), .events = POLLIN};
        CHECK(streams[at].fd >= 0);
    }
    for (int left = STREAMS; left > 0;) {
        CHECK(poll(streams, STREAMS, 30000) > 0);
        for (int at = 0; at < STREAMS; at++) {
            if (!(streams[at].revents & POLLIN)) {
                continue;
            }
            ssize_t count = recv(streams[at].fd, bytes, sizeof bytes, 0);
            CHECK(count >= 0);
            got[at] += count;
            if (count == 0) {
                CHECK(got[at] == BYTES);
                streams[at].events = 0, left--;
            }
            if (++reads % 64 == 0) {
                usleep(20000);
            }
        }
    }
    if (is_on_interface && dropped() > DROPPED_MAX) {
        printf("%ld of %ld frames were dropped\n", dropped(), FRAMES);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    name(argv[2], argv[3]);
    if (strcmp(argv[1], "pours") == 0) {
        pours();
    } else {
        CHECK(strcmp(argv[1], "drinks") == 0 || strcmp(argv[1], "drains") == 0);
        drinks(argv[1][2] == 'i');
    }
    return 0;
}
