// getsockopt of every option of every level, with lengths that are too short and too long, on sockets in every state; and what an accepted
// connection has of its listener's options.
#include "common.h"

static const struct {
    int level, last;
} levels[] = {{SOL_SOCKET, 85}, {IPPROTO_IP, 60}, {IPPROTO_TCP, 48}, {IPPROTO_IPV6, 90}, {IPPROTO_UDP, 110}, {IPPROTO_RAW, 5}};
static const int lengths[] = {0, 1, 2, 3, 4, 5, 8, 16, 64, 256, -1};

// Whose value is another one each time.
static int varies(int level, int name) {
    if (level == SOL_SOCKET)
        return name == SO_COOKIE || name == SO_PEERCRED || name == SO_MEMINFO || name == SO_INCOMING_NAPI_ID || name == SO_INCOMING_CPU ||
               name == SO_SNDBUF || name == SO_RCVBUF || name == SO_PEERNAME;
    return level == IPPROTO_TCP && (name == 26 || name == 24);
}

// What the ring has values of its own for, by calls.md; IP_PROTOCOL, which tells a port (how long that is depends on it); and IP_MULTICAST_TTL, which
// tells of an accepted connection how many hops the SYN had to go yet.
static int is_own(int level, int name) {
    if (level == IPPROTO_IP) return name == IP_MULTICAST_TTL || name == 52;
    return level == IPPROTO_TCP && (name == TCP_MAXSEG || name == TCP_WINDOW_CLAMP || name == TCP_INFO || name == TCP_CONGESTION);
}

static void ask(const char *what, int fd) {
    for (unsigned l = 0; l < sizeof levels / sizeof *levels; l++)
        for (int name = 0; name <= levels[l].last; name++) {
            int level = levels[l].level;
            if (is_own(level, name)) continue;
            printf("%s %d %d:", what, level, name);
            for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                unsigned char value[512];
                socklen_t len = lengths[i];
                memset(value, 0xaa, sizeof value);
                if (getsockopt(fd, level, name, value, &len) < 0) {
                    printf(" %s/%d", strerrorname_np(errno), (int)len);
                    continue;
                }
                printf(" %d", (int)len);
                unsigned beyond = 0;
                for (unsigned k = len; k < sizeof value; k++) beyond += value[k] != 0xaa;
                if (beyond) printf("!%u", beyond);
                for (unsigned k = 0; k < len && k < 16 && !varies(level, name) && len <= 16; k++) printf("%s%02x", k ? "" : "=", value[k]);
            }
            printf("\n");
        }
}

struct option {
    int level, name, value;
};

static const struct option inherited[] = {
    {SOL_SOCKET, SO_KEEPALIVE, 1}, {SOL_SOCKET, SO_RCVBUF, 30000}, {SOL_SOCKET, SO_SNDBUF, 40000}, {SOL_SOCKET, SO_OOBINLINE, 1},
    {SOL_SOCKET, SO_REUSEADDR, 1}, {SOL_SOCKET, SO_REUSEPORT, 1}, {SOL_SOCKET, SO_PRIORITY, 3}, {SOL_SOCKET, SO_RCVLOWAT, 5},
    {SOL_SOCKET, SO_TIMESTAMP, 1}, {SOL_SOCKET, SO_MARK, 7}, {SOL_SOCKET, SO_DONTROUTE, 1}, {SOL_SOCKET, SO_ZEROCOPY, 1},
    {SOL_SOCKET, SO_BUSY_POLL, 50}, {SOL_SOCKET, SO_RXQ_OVFL, 1}, {SOL_SOCKET, SO_PASSCRED, 1}, {IPPROTO_TCP, TCP_NODELAY, 1},
    {IPPROTO_TCP, TCP_CORK, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 44}, {IPPROTO_TCP, TCP_KEEPINTVL, 33}, {IPPROTO_TCP, TCP_KEEPCNT, 5},
    {IPPROTO_TCP, TCP_SYNCNT, 4}, {IPPROTO_TCP, TCP_LINGER2, 20}, {IPPROTO_TCP, TCP_DEFER_ACCEPT, 3}, {IPPROTO_TCP, TCP_QUICKACK, 0},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 9000}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 7000}, {IPPROTO_TCP, TCP_INQ, 1}, {IPPROTO_TCP, TCP_SAVE_SYN, 1},
    {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1}, {IPPROTO_TCP, TCP_FASTOPEN, 5}, {IPPROTO_IP, IP_TOS, 0x10}, {IPPROTO_IP, IP_TTL, 9},
    {IPPROTO_IP, IP_MTU_DISCOVER, 0}, {IPPROTO_IP, IP_RECVERR, 1}, {IPPROTO_IP, IP_PKTINFO, 1}, {IPPROTO_IP, IP_RECVTTL, 1},
    {IPPROTO_IP, IP_RECVTOS, 1}, {IPPROTO_IP, IP_FREEBIND, 1}, {IPPROTO_IP, IP_MINTTL, 3}, {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1},
    {IPPROTO_IP, IP_MULTICAST_ALL, 0},
};

static void show(const char *what, int fd, const struct option *o) {
    int value = -7;
    socklen_t len = sizeof value;
    int result = getsockopt(fd, o->level, o->name, &value, &len);
    printf(" %s %d %d", what, result, result ? errno : value);
}

static void inherit(const struct option *o) {
    struct sockaddr_in where;
    int l = listener(&where), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
    printf("inherited %d %d: %d", o->level, o->name, setsockopt(l, o->level, o->name, &o->value, sizeof o->value));
    show("listener", l, o);
    MUST(connect(c, SA(where), sizeof where));
    if (o->level == IPPROTO_TCP && o->name == TCP_DEFER_ACCEPT) MUST(send(c, "x", 1, 0));
    int a = MUST(accept(l, NULL, NULL));
    show("accepted", a, o);
    printf("\n");
    MUST(close(a) | close(c) | close(l));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int s[2], d[2];
    struct sockaddr_in a, b;
    char bytes[4];
    ask("stream", MUST(socket(AF_INET, SOCK_STREAM, 0)));
    ask("listener", listener(&a));
    stream_pair(s);
    MUST(send(s[0], "abc", 3, 0));
    MUST(recv(s[1], bytes, 3, MSG_WAITALL));
    nap(60);
    ask("connected", s[0]);
    ask("accepted", s[1]);
    MUST(shutdown(s[0], SHUT_WR));
    nap(20);
    MUST(close(s[1]));
    nap(20);
    ask("ended", s[0]);
    ask("datagrams", MUST(socket(AF_INET, SOCK_DGRAM, 0)));
    d[0] = datagram(&a), d[1] = datagram(&b);
    MUST(connect(d[0], SA(b), sizeof b));
    MUST(send(d[0], "x", 1, 0));
    MUST(recv(d[1], bytes, 1, 0));
    ask("datagrams with a peer", d[0]);
    ask("datagrams bound", d[1]);
    for (unsigned i = 0; i < sizeof inherited / sizeof *inherited; i++) inherit(&inherited[i]);
    return 0;
}
