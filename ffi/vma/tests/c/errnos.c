/* What a program's calls say while something is wrong with its interface. It is the same whoever carries the sockets, and prints the same, if all is well.
 *
 *   errnos errnos ADDRESS PORT    talks to "far serve", says that it is ready, and for each byte of its standard input what its calls say
 */
#include "far.h"
#include <poll.h>

static const char *name_of(int error) {
    static char other[32];
    switch (error) {
    case 0:
        return "0";
    case EAGAIN:
        return "EAGAIN";
    case EINPROGRESS:
        return "EINPROGRESS";
    case EMSGSIZE:
        return "EMSGSIZE";
    case ENETUNREACH:
        return "ENETUNREACH";
    case EHOSTUNREACH:
        return "EHOSTUNREACH";
    case ECONNREFUSED:
        return "ECONNREFUSED";
    case EINVAL:
        return "EINVAL";
    case EACCES:
        return "EACCES";
    case ENETDOWN:
        return "ENETDOWN";
    case EADDRNOTAVAIL:
        return "EADDRNOTAVAIL";
    default:
        snprintf(other, sizeof other, "%d", error);
        return other;
    }
}

static int pending(int fd) {
    int error = 0;
    socklen_t len = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
    return error;
}

static void says(const char *what, int failed) { printf("%s %s, ", what, name_of(failed ? errno : 0)); }

/* One that is not answered within 0.7 s is pending: a kernel needs 0.3 s, here, to find that a neighbour does not answer. */
static void connects(void) {
    int fd = opened(SOCK_STREAM);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    if (connect(fd, (struct sockaddr *)&to, to_len) < 0 && errno != EINPROGRESS) {
        says("connect", 1);
    } else {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        int ready = poll(&wait, 1, 700);
        printf("connect %s, ", ready == 0 ? "pending" : name_of(pending(fd)));
    }
    CHECK(close(fd) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 4 && strcmp(argv[1], "errnos") == 0);
    name(argv[2], argv[3]);
    int fd = connected(), peer = opened(SOCK_DGRAM), whole = opened(SOCK_DGRAM), on = IP_PMTUDISC_DO, read_some;
    CHECK(connect(peer, (struct sockaddr *)&to, to_len) == 0 && connect(whole, (struct sockaddr *)&to, to_len) == 0);
    if (to.ss_family == AF_INET) {
        CHECK(setsockopt(whole, IPPROTO_IP, IP_MTU_DISCOVER, &on, sizeof on) == 0);
    } else {
        CHECK(setsockopt(whole, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &on, sizeof on) == 0);
    }
    exchange(fd, "before"), exchange(peer, "datagram"), exchange(whole, "datagram");
    printf("ready\n"), fflush(stdout);
    char byte, bytes[1400] = "";
    while ((read_some = read(0, &byte, 1)) == 1) {
        int any = opened(SOCK_DGRAM);
        says("to", sendto(any, bytes, 100, 0, (struct sockaddr *)&to, to_len) < 0);
        says("send", send(peer, bytes, 100, 0) < 0);
        says("whole", send(whole, bytes, sizeof bytes, 0) < 0);
        says("stream", send(fd, "!", 1, MSG_NOSIGNAL) < 0);
        connects();
        printf("then %s", name_of(pending(peer)));
        printf(" %s %s\n", name_of(pending(any)), name_of(pending(fd))), fflush(stdout);
        CHECK(close(any) == 0);
    }
    CHECK(read_some == 0);
    /* (What is left unread would be a reset.) */
    CHECK(shutdown(fd, SHUT_WR) == 0);
    ssize_t count;
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) {
    }
    CHECK(count == 0 && close(fd) == 0);
    return 0;
}
