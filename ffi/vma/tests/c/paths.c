/* A program that says how long its packets may be. It knows nothing of who carries its sockets. What is wrong is printed; nothing else is.
 *
 *   paths peer ADDRESS PORT MSS          accepts a connection whose other end announced that size of segments (0: any), and reads it to its end
 *   paths reads ADDRESS PORT MSS         the same of a connection that it opens
 *   paths to ADDRESS PORT MSS THEN       connects, sends no longer segments than MSS, then no longer ones than THEN
 *   paths serves ADDRESS PORT MSS THEN   the same of a connection that it accepts
 *   paths tells ADDRESS PORT BYTES       has datagrams of so many bytes echoed
 *
 * Sizes are without options, as TCP_MAXSEG's are; each segment has a timestamp.
 */
#include "far.h"
#include <time.h>

#define STAMPS 12
#define BYTES 200000

static int segments(int fd) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
    return (int)info.tcpi_snd_mss + STAMPS;
}

static int accepted(void) {
    int listener = listening(), fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0);
    return fd;
}

static void reads(int fd, int size) {
    static char bytes[1 << 16];
    size_t got = 0;
    for (ssize_t count; (count = recv(fd, bytes, sizeof bytes, 0)) != 0; got += count) {
        CHECK(count > 0);
    }
    if (size != 0 && segments(fd) != size) {
        printf("%d instead of %d\n", segments(fd), size);
    }
    CHECK(got == 2 * BYTES && close(fd) == 0);
}

static void await_size(int fd, int size) {
    for (int look = 0; segments(fd) != size && look < 2000; look++) {
        CHECK(nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL) == 0);
    }
    if (segments(fd) != size) {
        printf("%d instead of %d\n", segments(fd), size);
    }
}

static void sends(int fd, int size, int then) {
    static const char bytes[BYTES];
    await_size(fd, size);
    send_all(fd, bytes, sizeof bytes);
    printf("ready\n");
    fflush(stdout);
    /* (An option that is set in between changes nothing of it.) */
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0);
    await_size(fd, then);
    send_all(fd, bytes, sizeof bytes);
    CHECK(close(fd) == 0);
}

static void tells(size_t size) {
    static char bytes[1 << 16], back[1 << 16];
    int fd = opened(SOCK_DGRAM);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 20}, sizeof(struct timeval)) == 0);
    for (int turn = 0; turn < 10; turn++) {
        memset(bytes, turn + 1, size);
        CHECK(sendto(fd, bytes, size, 0, (struct sockaddr *)&to, to_len) == (ssize_t)size);
        CHECK(recv(fd, back, sizeof back, 0) == (ssize_t)size && memcmp(back, bytes, size) == 0);
    }
    CHECK(close(fd) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc >= 5);
    name(argv[2], argv[3]);
    int size = atoi(argv[4]), then = argc > 5 ? atoi(argv[5]) : size;
    if (strcmp(argv[1], "peer") == 0) {
        reads(accepted(), size);
    } else if (strcmp(argv[1], "reads") == 0) {
        reads(connected(), size);
    } else if (strcmp(argv[1], "to") == 0) {
        sends(connected(), size, then);
    } else if (strcmp(argv[1], "serves") == 0) {
        sends(accepted(), size, then);
    } else if (strcmp(argv[1], "tells") == 0) {
        tells(size);
    }
    return 0;
}
