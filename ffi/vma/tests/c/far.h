/* What programs that talk to another one have in common, of which not everybody needs all. What is wrong is printed; nothing else is. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno));                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static struct sockaddr_storage to;
static socklen_t to_len;

static void name(const char *address, const char *port) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)&to;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&to;
    if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET, v4->sin_port = htons(atoi(port)), to_len = sizeof *v4;
    } else {
        CHECK(inet_pton(AF_INET6, address, &v6->sin6_addr) == 1);
        v6->sin6_family = AF_INET6, v6->sin6_port = htons(atoi(port)), to_len = sizeof *v6;
    }
}

static int opened(int kind) {
    int fd = socket(to.ss_family, kind, 0);
    CHECK(fd >= 0);
    return fd;
}

__attribute__((unused)) static int connected(void) {
    int fd = opened(SOCK_STREAM);
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) == 0);
    return fd;
}

static void send_all(int fd, const void *bytes, size_t len) {
    for (size_t sent = 0; sent < len;) {
        ssize_t count = send(fd, (const char *)bytes + sent, len - sent, MSG_NOSIGNAL);
        CHECK(count > 0);
        sent += count;
    }
}

/* Sends, and reads the same back. */
__attribute__((unused)) static void exchange(int fd, const char *word) {
    char back[64] = "";
    size_t got = 0;
    send_all(fd, word, strlen(word));
    while (got < strlen(word)) {
        ssize_t count = recv(fd, back + got, sizeof back - got, 0);
        CHECK(count > 0);
        got += count;
    }
    CHECK(memcmp(back, word, got) == 0);
}

__attribute__((unused)) static int listening(void) {
    int fd = opened(SOCK_STREAM), on = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(fd, (struct sockaddr *)&to, to_len) == 0 && listen(fd, 8) == 0);
    return fd;
}
