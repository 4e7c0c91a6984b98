// What poll, select, epoll and ioctl say of connections that are half closed, reset, shut down or disconnected, step by step; by a table, and at random.
#include "common.h"
#include <sys/epoll.h>
#include <sys/select.h>

static int instance;

static void look(int fd) {
    struct pollfd all = {.fd = fd, .events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP}, none = {.fd = fd};
    struct pollfd bands = {.fd = fd, .events = POLLRDNORM | POLLWRNORM | POLLRDBAND | POLLWRBAND};
    poll(&all, 1, 0);
    poll(&none, 1, 0);
    poll(&bands, 1, 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI};
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event));
    int found = epoll_wait(instance, &event, 1, 0);
    MUST(epoll_ctl(instance, EPOLL_CTL_DEL, fd, NULL));
    fd_set sets[3];
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        FD_SET(fd, &sets[i]);
    }
    struct timeval at_once = {0, 0};
    int selected = select(fd + 1, &sets[0], &sets[1], &sets[2], &at_once), in = -1, out = -1;
    if (ioctl(fd, FIONREAD, &in)) in = -errno;
    if (ioctl(fd, TIOCOUTQ, &out)) out = -errno;
    struct tcp_info info;
    socklen_t len = sizeof info;
    MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
    // (How long an acknowledgment of the end may wait is nobody's promise; and of what was on its way when a reset came, the kernel goes on telling.)
    if (info.tcpi_state == TCP_FIN_WAIT1 || info.tcpi_state == TCP_FIN_WAIT2) info.tcpi_state = TCP_FIN_WAIT1, out = 0;
    if (info.tcpi_state == TCP_CLOSE) out = 0;
    struct sockaddr_in peer;
    len = sizeof peer;
    int nameless = getpeername(fd, SA(peer), &len) ? errno : 0;
    printf(" [poll %x %x %x, epoll %d %x, select %d %d%d%d, in %d, out %d, state %d, peer %d]", all.revents, none.revents, bands.revents, found,
           found > 0 ? event.events : 0, selected, !!FD_ISSET(fd, &sets[0]), !!FD_ISSET(fd, &sets[1]), !!FD_ISSET(fd, &sets[2]), in, out,
           info.tcpi_state, nameless);
}

// One step: by a small letter the client's, by a capital one the server's.
static void step(int *s, char what) {
    char b[100] = "";
    int who = what >= 'a' ? 0 : 1, fd = s[who], value = -1;
    long r = -99;
    socklen_t len = sizeof value;
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    struct linger hard = {1, 0};
    switch (what | 32) {
    case 'w': r = send(fd, "hello", 5, MSG_NOSIGNAL); break;
    case 'r': r = recv(fd, b, 3, MSG_DONTWAIT); break;
    case 'd': r = recv(fd, b, 100, MSG_DONTWAIT); break;
    case 'p': r = recv(fd, b, 2, MSG_DONTWAIT | MSG_PEEK); break;
    case 't': r = recv(fd, b, 4, MSG_DONTWAIT | MSG_TRUNC); break;
    case 'z': r = recv(fd, b, 0, MSG_DONTWAIT); break;
    case 'y': r = send(fd, b, 0, MSG_NOSIGNAL); break;
    case 's': r = shutdown(fd, SHUT_WR); break;
    case 'h': r = shutdown(fd, SHUT_RD); break;
    case 'b': r = shutdown(fd, SHUT_RDWR); break;
    case 'l': r = setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); break;
    case 'e': r = getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len) ? -1 : value; break;
    case 'u': r = connect(fd, &nobody, sizeof nobody); break;
    case 'c': r = close(fd), s[who] = -1; break;
    }
    printf("  %c %ld %s:", what, r, r < 0 ? strerrorname_np(errno) : "");
}

// What one end answers has come to the other: both are this process's, which looks a few times.
static void settle(const int *s) {
    for (int i = 0; i < 5; i++) {
        struct pollfd both[] = {{.fd = s[0], .events = POLLIN}, {.fd = s[1], .events = POLLIN}};
        poll(both, 2, 0);
        nap(4);
    }
}

static void play(const char *steps) {
    int s[2];
    stream_pair(s);
    printf("%s\n", steps);
    for (const char *at = steps; *at; at++) {
        if (s[*at >= 'a' ? 0 : 1] < 0) continue;
        step(s, *at);
        settle(s);
        for (int i = 0; i < 2; i++)
            if (s[i] >= 0) look(s[i]);
        printf("\n");
    }
    for (int i = 0; i < 2; i++)
        if (s[i] >= 0) MUST(close(s[i]));
}

// Of a connection that was shut down, nothing is left when it is disconnected: the next one of the same socket goes both ways, also in the kernel.
static void anew(const char *first) {
    int s[2], status;
    char b[8] = "";
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    stream_pair(s);
    for (const char *at = first; *at; at++) step(s, *at);
    printf("\n");
    MUST(connect(s[0], &nobody, sizeof nobody));
    struct sockaddr_in where;
    int l = listener(&where);
    SHOW(connect(s[0], SA(where), sizeof where));
    int other = MUST(accept(l, NULL, NULL));
    SHOW(send(s[0], "to", 2, MSG_NOSIGNAL));
    SHOW(recv(other, b, 2, MSG_WAITALL));
    SHOW(ready(s[0], POLLIN | POLLOUT | POLLRDHUP));
    pid_t child = MUST(fork());
    if (child == 0) _exit(send(s[0], "child", 5, MSG_NOSIGNAL) != 5);
    SHOW(waitpid(child, &status, 0) == child && status == 0);
    SHOW(recv(other, b, 5, MSG_WAITALL));
    SHOW(send(s[0], "more", 4, MSG_NOSIGNAL));
    SHOW(recv(other, b, 4, MSG_WAITALL));
    SHOW(send(other, "back", 4, MSG_NOSIGNAL));
    SHOW(recv(s[0], b, 4, MSG_WAITALL));
    MUST(close(s[0]) | close(s[1]) | close(l) | close(other));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    instance = MUST(epoll_create1(EPOLL_CLOEXEC));
    static const char *const table[] = {"sDdSDdwW", "wsRDDcW", "hWdwRDcWW", "HwWdDhC", "bWDdeEcC", "SwDWrs", "wcRDDWWEe", "WcDWEWE",
                                        "lcDWEWe", "wlcRDWEE", "wLCdweEd", "uWDeEcC", "wuDDEW", "sUdwe", "bUwdWD", "wWsScC",
                                        "hhHHsSbBuU", "zyZY", "sZYsz", "wWtTdD", "cWWEDzZ", "wzcEtTD"};
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++) play(table[i]);
    static const char letters[] = "wWrRdDsShHbBcClLeEpPuUzZyYtT";
    unsigned drawn = getenv("SEED") ? atoi(getenv("SEED")) : 12345;
    for (int i = 0; i < 30; i++) {
        char steps[8] = "";
        for (int k = 0; k < 7; k++) {
            drawn = drawn * 1103515245 + 12345;
            steps[k] = letters[(drawn >> 16) % (sizeof letters - 1)];
        }
        play(steps);
    }
    anew("s");
    anew("h");
    anew("b");
    return 0;
}
