/* Programs that talk all the time while something happens to their interface, or to one of them. It is the same whoever carries the sockets. What is wrong is
 * printed; nothing else is.
 *
 *   loads keeps ADDRESS PORT      talks to "far serve" until there is no standard input
 *   loads presses ADDRESS PORT    keeps several connections to "loads echoes" busy, for ever
 *   loads echoes ADDRESS PORT     echoes streams, whatever they end by, until one says "quit"
 *   loads quits ADDRESS PORT      says so
 */
#include "far.h"
#include <poll.h>
#include <sys/epoll.h>

#define CONNECTIONS 8

/* "far serve" and "loads echoes" end then. */
static void quits(void) {
    int fd = connected();
    char byte;
    send_all(fd, "quit", 4);
    CHECK(recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
}

static void keeps(void) {
    int fd = connected(), is_over = 0;
    char byte;
    while (!is_over) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        exchange(fd, "still there");
        CHECK(poll(&input, 1, 1) >= 0);
        is_over = input.revents != 0;
    }
    CHECK(shutdown(fd, SHUT_WR) == 0 && recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
    quits();
}

static void presses(void) {
    static char bytes[1 << 14];
    struct pollfd wait[CONNECTIONS];
    for (int at = 0; at < CONNECTIONS; at++) {
        wait[at] = (struct pollfd){.fd = connected(), .events = POLLIN | POLLOUT};
        CHECK(fcntl(wait[at].fd, F_SETFL, O_NONBLOCK) == 0);
    }
    for (;;) {
        CHECK(poll(wait, CONNECTIONS, 20000) > 0);
        for (int at = 0; at < CONNECTIONS; at++) {
            ssize_t sent = send(wait[at].fd, bytes, sizeof bytes, MSG_NOSIGNAL);
            CHECK(sent > 0 || errno == EAGAIN);
            ssize_t got = recv(wait[at].fd, bytes, sizeof bytes, 0);
            CHECK(got > 0 || (got < 0 && errno == EAGAIN));
        }
    }
}

/* A peer that is killed before it has sent a word is only found by asking for it. */
static void asks_for_the_silent(int fd) {
    int on = 1, idle = 1, between = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between) == 0);
}

static void echoes(void) {
    static char bytes[1 << 14];
    int listener = listening(), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) == 0);
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    for (;;) {
        CHECK(epoll_wait(epoll, &event, 1, 40000) == 1);
        int fd = event.data.fd;
        if (fd == listener) {
            fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            CHECK(fd >= 0 || errno == ECONNABORTED || errno == EAGAIN);
            if (fd >= 0) {
                event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
                asks_for_the_silent(fd);
                CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
            }
            continue;
        }
        ssize_t count = recv(fd, bytes, sizeof bytes, 0);
        if (count == 4 && memcmp(bytes, "quit", 4) == 0) {
            return;
        }
        if (count > 0) {
            /* (What there is no room for is not echoed.) */
            count = send(fd, bytes, count, MSG_NOSIGNAL);
        }
        if (count == 0 || (count < 0 && errno != EAGAIN)) {
            CHECK(count == 0 || errno == ECONNRESET || errno == EPIPE);
            CHECK(close(fd) == 0);
        }
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *word = argv[1];
    name(argv[2], argv[3]);
    if (strcmp(word, "keeps") == 0) {
        keeps();
    } else if (strcmp(word, "presses") == 0) {
        presses();
    } else if (strcmp(word, "echoes") == 0) {
        echoes();
    } else if (strcmp(word, "quits") == 0) {
        quits();
    } else {
        CHECK(!"such a word");
    }
    return 0;
}
