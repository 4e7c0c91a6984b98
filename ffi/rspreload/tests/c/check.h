// What the programs here have in common. They are ordinary ones, and know nothing of rsockets but for an option that only these have.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                      \
    do {                                                                                                 \
        if (!(what)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s: errno %d (%s)\n", __FILE__, __LINE__, #what, errno, strerror(errno)); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

static inline struct sockaddr_in at(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return address;
}

// Whether an rsocket carries it: RDMA_SQSIZE is an option of these alone.
static inline int is_rsocket(int fd)
{
    int value = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, 0x10000, 0, &value, &len) == 0 && value > 0;
}

static inline void set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    CHECK(flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static inline void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        CHECK(sent > 0);
        bytes += sent;
        len -= sent;
    }
}

static inline void recv_all(int fd, char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t got = recv(fd, bytes, len, 0);
        CHECK(got > 0);
        bytes += got;
        len -= got;
    }
}
