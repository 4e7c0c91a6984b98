// IPv6: names, both families at one listener, IPV6_V6ONLY, mapped addresses, options, datagrams.
#include "common.h"

#define IPV6_FLOWINFO_SEND 33

static struct sockaddr_in6 at6(const char *ip, int port) {
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET6, ip, &a.sin6_addr) != 1)
        exit(1);
    return a;
}

// Ports differ from run to run: what is shown is whether it is `port`.
static void show(const char *what, struct sockaddr_in6 *a, socklen_t len, int port) {
    char text[INET6_ADDRSTRLEN] = "-";
    inet_ntop(AF_INET6, &a->sin6_addr, text, sizeof text);
    printf("%s: family %d, %s, %s port, flow %u, scope %u, length %d\n", what, a->sin6_family, text,
           ntohs(a->sin6_port) == port ? "that" : a->sin6_port ? "another" : "no", ntohl(a->sin6_flowinfo), a->sin6_scope_id, (int)len);
}

static int port_of(int fd) {
    struct sockaddr_in6 a;
    socklen_t len = sizeof a;
    MUST(getsockname(fd, SA(a), &len));
    return ntohs(a.sin6_port);
}

static void names(const char *what, int fd, int own, int peer) {
    struct sockaddr_in6 a = {0};
    socklen_t len = sizeof a;
    printf("%s\n", what);
    SHOW(getsockname(fd, SA(a), &len));
    show(" own", &a, len, own);
    memset(&a, 0, sizeof a);
    len = sizeof a;
    SHOW(getpeername(fd, SA(a), &len));
    show(" peer", &a, len, peer);
}

static int listen_at(const char *ip, int port, int v6only) {
    int fd = MUST(socket(AF_INET6, SOCK_STREAM, 0)), one = 1;
    MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only));
    MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    struct sockaddr_in6 a = at6(ip, port);
    MUST(bind(fd, SA(a), sizeof a));
    MUST(listen(fd, 16));
    return fd;
}

static void talk(int a, int b) {
    char got[16] = {0};
    SHOW(send(a, "there", 5, 0));
    SHOW(recv(b, got, sizeof got, 0));
    SHOW(send(b, "back", 4, 0));
    SHOW(recv(a, got, sizeof got, 0));
    printf("%s\n", got);
}

static void stream(void) {
    int l = listen_at("::1", 0, 0), port = port_of(l);
    struct sockaddr_in6 to = at6("::1", port), from;
    // (Of an address that belongs to no interface, the scope is nothing.)
    to.sin6_scope_id = 7, to.sin6_flowinfo = htonl(0x12345);
    for (int room = 0; room <= 40; room += room < 28 ? 7 : 12) {
        int c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
        SHOW(connect(c, SA(to), room == 7 ? 24 : sizeof to));
        char raw[64];
        memset(raw, 0xee, sizeof raw);
        socklen_t len = room;
        int s = MUST(accept(l, (struct sockaddr *)raw, &len));
        // (Bytes 2 and 3 are the port.)
        unsigned sum = 0;
        for (int i = 4; i < 64; i++)
            sum = sum * 31 + (unsigned char)raw[i];
        printf("room %d: length %d, family %d, rest %x\n", room, (int)len, room > 1 ? raw[0] : -1, sum);
        names("client", c, port_of(c), port);
        names("server", s, port, port_of(c));
        talk(c, s);
        SHOW(shutdown(c, SHUT_WR));
        SHOW(recv(s, raw, 8, 0));
        close(s);
        SHOW(recv(c, raw, 8, 0));
        close(c);
    }
    int c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    SHOW(connect(c, SA(to), 23));
    SHOW(connect(c, SA(to), 16));
    struct sockaddr_in v4 = loopback(port);
    SHOW(connect(c, SA(v4), sizeof v4));
    close(c);
    c = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(c, SA(to), sizeof to));
    close(c);
    // Nobody in particular is this host.
    to = at6("::", port);
    c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    SHOW(connect(c, SA(to), sizeof to));
    socklen_t len = sizeof from;
    int s = MUST(accept(l, SA(from), &len));
    show("to ::", &from, len, port_of(c));
    names("client", c, port_of(c), port);
    close(c), close(s), close(l);
    // Nobody listens there any more.
    c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    to = at6("::1", port);
    SHOW(connect(c, SA(to), sizeof to));
    close(c);
}

static void nonblocking(void) {
    int l = listen_at("::1", 0, 1), port = port_of(l);
    struct sockaddr_in6 to = at6("::1", port), from;
    int c = MUST(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
    SHOW(connect(c, SA(to), sizeof to));
    SHOW(ready(c, POLLOUT));
    int e = -1;
    socklen_t len = sizeof e;
    SHOW(getsockopt(c, SOL_SOCKET, SO_ERROR, &e, &len));
    SHOW(e);
    SHOW(ready(l, POLLIN));
    len = sizeof from;
    int s = MUST(accept4(l, SA(from), &len, SOCK_NONBLOCK));
    show("from", &from, len, port_of(c));
    char b[8];
    SHOW(recv(s, b, 8, 0));
    SHOW(fcntl(s, F_GETFL));
    close(c), close(s), close(l);
}

// A client's connection to a listener: who it is there, and here.
static void visit(const char *what, int l, int family, const char *ip, const char *own, int port) {
    struct sockaddr_in6 to = at6(ip, port), from = {0}, me;
    struct sockaddr_in to4 = loopback(port);
    int c = MUST(socket(family, SOCK_STREAM, 0));
    printf("%s\n", what);
    if (own) {
        me = at6(own, 0);
        SHOW(bind(c, SA(me), sizeof me));
    }
    int done;
    SHOW(done = family == AF_INET6 ? connect(c, SA(to), sizeof to) : connect(c, SA(to4), sizeof to4));
    if (done == 0) {
        struct sockaddr_in6 mine;
        socklen_t len = sizeof mine;
        MUST(getsockname(c, SA(mine), &len));
        if (family == AF_INET6)
            names("client", c, ntohs(mine.sin6_port), port);
        len = sizeof from;
        int s = MUST(accept(l, SA(from), &len));
        show("accepted", &from, len, ntohs(mine.sin6_port));
        names("server", s, port, ntohs(mine.sin6_port));
        talk(c, s);
        close(s);
    }
    close(c);
}

static void both_families(void) {
    int l = listen_at("::", 0, 0), port = port_of(l);
    names("listener", l, port, 0);
    visit("IPv4", l, AF_INET, "::", NULL, port);
    visit("IPv6", l, AF_INET6, "::1", NULL, port);
    visit("mapped", l, AF_INET6, "::ffff:127.0.0.1", NULL, port);
    visit("mapped any", l, AF_INET6, "::ffff:0.0.0.0", NULL, port);
    visit("any", l, AF_INET6, "::", NULL, port);
    visit("bound to any", l, AF_INET6, "::1", "::", port);
    visit("bound to any, mapped", l, AF_INET6, "::ffff:127.0.0.1", "::", port);
    visit("bound", l, AF_INET6, "::1", "::1", port);
    visit("bound, mapped", l, AF_INET6, "::ffff:127.0.0.1", "::1", port);
    visit("mapped, bound", l, AF_INET6, "::1", "::ffff:127.0.0.1", port);
    visit("mapped, bound, mapped", l, AF_INET6, "::ffff:127.0.0.1", "::ffff:127.0.0.1", port);
    visit("mapped, bound, any", l, AF_INET6, "::", "::ffff:127.0.0.1", port);
    // Both wait, and both are had.
    struct sockaddr_in6 to = at6("::1", port);
    struct sockaddr_in to4 = loopback(port);
    int c[4];
    for (int i = 0; i < 4; i++) {
        c[i] = MUST(socket(i % 2 ? AF_INET6 : AF_INET, SOCK_STREAM, 0));
        MUST(i % 2 ? connect(c[i], SA(to), sizeof to) : connect(c[i], SA(to4), sizeof to4));
    }
    int sixes = 0;
    for (int i = 0; i < 4; i++) {
        struct sockaddr_in6 from;
        socklen_t len = sizeof from;
        SHOW(ready(l, POLLIN));
        int s = MUST(accept(l, SA(from), &len));
        sixes += !IN6_IS_ADDR_V4MAPPED(&from.sin6_addr);
        close(s);
    }
    printf("%d by IPv6\n", sixes);
    for (int i = 0; i < 4; i++)
        close(c[i]);
    SHOW(fcntl(l, F_SETFL, O_NONBLOCK));
    SHOW(accept(l, NULL, NULL));
    close(l);
}

static void one_family(void) {
    int port = unused_port(SOCK_STREAM), l = listen_at("::", port, 1), one = 1;
    visit("IPv6", l, AF_INET6, "::1", NULL, port);
    visit("IPv4, refused", l, AF_INET, "::", NULL, port);
    visit("mapped, refused", l, AF_INET6, "::ffff:127.0.0.1", NULL, port);
    // The port of the other family is another's.
    int l4 = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(l4, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    SHOW(bind(l4, SA(a4), sizeof a4));
    SHOW(listen(l4, 4));
    int c = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in to4 = loopback(port);
    SHOW(connect(c, SA(to4), sizeof to4));
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    int s = MUST(accept(l4, SA(from), &len));
    printf("family %d, length %d\n", from.sin_family, (int)len);
    close(c), close(s), close(l4);
    SHOW(setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
    close(l);
    c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    SHOW(setsockopt(c, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
    l = listen_at("::", 0, 0);
    struct sockaddr_in6 to = at6("::ffff:127.0.0.1", port_of(l));
    SHOW(connect(c, SA(to), sizeof to));
    to = at6("::1", port_of(l));
    SHOW(connect(c, SA(to), sizeof to));
    s = MUST(accept(l, NULL, NULL));
    talk(c, s);
    close(s), close(c), close(l);
}

static void option(const char *what, int fd, int name) {
    int value = -7;
    socklen_t len = sizeof value;
    errno = 0;
    int r = getsockopt(fd, IPPROTO_IPV6, name, &value, &len);
    printf("%s: %d %s, %d, length %d\n", what, r, r < 0 ? strerrorname_np(errno) : "", value, (int)len);
}

static void options(void) {
    static const struct {
        int name, values[3];
        const char *text;
    } known[] = {
        {IPV6_UNICAST_HOPS, {5, -1, 300}, "hops"}, {IPV6_TCLASS, {0x28, -1, 300}, "class"}, {IPV6_V6ONLY, {1, 0, 1}, "v6only"},
        {IPV6_RECVPKTINFO, {1, 0, 1}, "packet info"}, {IPV6_RECVHOPLIMIT, {1, 0, 1}, "hop limit"}, {IPV6_RECVTCLASS, {1, 0, 1}, "class told"},
        {IPV6_MULTICAST_HOPS, {3, -1, 1}, "group hops"}, {IPV6_MULTICAST_LOOP, {0, 1, 1}, "group loop"}, {IPV6_RECVERR, {1, 0, 1}, "errors"},
        {IPV6_DONTFRAG, {1, 0, 0}, "whole"}, {IPV6_MTU_DISCOVER, {2, 0, 1}, "discover"}, {IPV6_AUTOFLOWLABEL, {1, 0, 1}, "label"},
    };
    int l = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    struct sockaddr_in6 a = at6("::1", 0);
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        for (int v = 0; v < 3; v++) {
            printf("%s %d: ", known[i].text, known[i].values[v]);
            SHOW(setsockopt(l, IPPROTO_IPV6, known[i].name, &known[i].values[v], sizeof(int)));
            option(known[i].text, l, known[i].name);
        }
    int hops = 9, class = 0x10, one = 1;
    MUST(setsockopt(l, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hops, sizeof hops));
    MUST(setsockopt(l, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof class));
    MUST(setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
    MUST(bind(l, SA(a), sizeof a));
    MUST(listen(l, 4));
    a = at6("::1", port_of(l));
    int c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    MUST(connect(c, SA(a), sizeof a));
    int s = MUST(accept(l, NULL, NULL));
    option("client's hops", c, IPV6_UNICAST_HOPS), option("client's class", c, IPV6_TCLASS), option("client's family", c, IPV6_V6ONLY);
    option("server's hops", s, IPV6_UNICAST_HOPS), option("server's class", s, IPV6_TCLASS), option("server's family", s, IPV6_V6ONLY);
    SHOW(setsockopt(c, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
    SHOW(setsockopt(c, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hops, sizeof hops));
    option("client's hops", c, IPV6_UNICAST_HOPS);
    SHOW(setsockopt(c, IPPROTO_IPV6, 12345, &hops, sizeof hops));
    int domain = 0;
    socklen_t len = sizeof domain;
    SHOW(getsockopt(s, SOL_SOCKET, SO_DOMAIN, &domain, &len));
    SHOW(domain);
    talk(c, s);
    close(c), close(s), close(l);
}

// An option for which the connection moves to the kernel, and goes on there.
static void moved(void) {
    int l = listen_at("::", 0, 0), port = port_of(l);
    for (int mapped = 0; mapped < 2; mapped++) {
        struct sockaddr_in6 to = at6(mapped ? "::ffff:127.0.0.1" : "::1", port);
        int c = MUST(socket(AF_INET6, SOCK_STREAM, 0)), one = 1;
        MUST(connect(c, SA(to), sizeof to));
        int s = MUST(accept(l, NULL, NULL)), own = port_of(c);
        SHOW(send(c, "before", 6, 0));
        SHOW(setsockopt(c, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, &one, sizeof one));
        char b[16] = {0};
        SHOW(recv(s, b, 6, MSG_WAITALL));
        talk(c, s);
        names("client", c, own, port);
        names("server", s, port, own);
        close(c);
        SHOW(recv(s, b, 8, 0));
        close(s);
        // A mapped connection becomes one of IPv4.
        c = MUST(socket(AF_INET6, SOCK_STREAM, 0));
        MUST(connect(c, SA(to), sizeof to));
        s = MUST(accept(l, NULL, NULL));
        int four = AF_INET;
        SHOW(setsockopt(c, IPPROTO_IPV6, IPV6_ADDRFORM, &four, sizeof four));
        struct sockaddr_in6 name = {0};
        socklen_t len = sizeof name;
        SHOW(getpeername(c, SA(name), &len));
        printf("family %d, length %d\n", name.sin6_family, (int)len);
        talk(c, s);
        close(c), close(s);
    }
    close(l);
}

static int datagram_at(const char *ip, int port, int v6only) {
    int fd = MUST(socket(AF_INET6, SOCK_DGRAM, 0));
    MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only));
    struct sockaddr_in6 a = at6(ip, port);
    MUST(bind(fd, SA(a), sizeof a));
    return fd;
}

// Receives one with its sender, and where it was sent to.
static void take(int fd, int port) {
    char data[32] = {0}, control[256];
    struct sockaddr_in6 from = {0};
    struct iovec v = {data, sizeof data};
    struct msghdr m = {&from, sizeof from, &v, 1, control, sizeof control, 0};
    SHOW(ready(fd, POLLIN));
    int got;
    SHOW(got = recvmsg(fd, &m, MSG_DONTWAIT));
    if (got < 0)
        return;
    show(data, &from, m.msg_namelen, port);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        char text[INET6_ADDRSTRLEN];
        struct in6_pktinfo info;
        memcpy(&info, CMSG_DATA(c), sizeof info);
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO)
            printf(" to %s by %d\n", inet_ntop(AF_INET6, &info.ipi6_addr, text, sizeof text), (int)info.ipi6_ifindex);
        else
            printf(" level %d type %d\n", c->cmsg_level, c->cmsg_type);
    }
}

static void datagrams(void) {
    int s = datagram_at("::1", 0, 0), c = datagram_at("::1", 0, 0), one = 1;
    struct sockaddr_in6 to = at6("::1", port_of(s)), back = at6("::1", port_of(c));
    SHOW(setsockopt(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof one));
    SHOW(sendto(c, "one", 3, 0, SA(to), sizeof to));
    take(s, port_of(c));
    SHOW(sendto(s, "two", 3, 0, SA(back), sizeof back));
    take(c, port_of(s));
    to.sin6_scope_id = 9;
    SHOW(sendto(c, "", 0, 0, SA(to), 24));
    take(s, port_of(c));
    SHOW(connect(c, SA(to), sizeof to));
    names("connected", c, port_of(c), port_of(s));
    SHOW(send(c, "three", 5, 0));
    take(s, port_of(c));
    struct sockaddr_in6 mapped = at6("::ffff:127.0.0.1", port_of(s));
    int other = MUST(socket(AF_INET6, SOCK_DGRAM, 0));
    SHOW(sendto(s, "four", 4, 0, SA(mapped), sizeof mapped));
    SHOW(sendto(other, "five", 4, 0, SA(to), sizeof to));
    take(s, port_of(other));
    struct sockaddr no = {.sa_family = AF_UNSPEC};
    SHOW(connect(c, &no, sizeof no));
    names("free", c, port_of(c), 0);
    close(s), close(c), close(other);
}

static void datagrams_of_both(void) {
    // (A port that is named stays when the socket is disconnected.)
    int port = unused_port(SOCK_DGRAM), s = datagram_at("::", port, 0), one = 1;
    SHOW(setsockopt(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof one));
    struct sockaddr_in6 to = at6("::1", port), mapped = at6("::ffff:127.0.0.1", port), any = at6("::", port);
    struct sockaddr_in to4 = loopback(port), own4;
    int c6 = datagram_at("::1", 0, 1), c4 = datagram(&own4), both = datagram_at("::", 0, 0);
    for (int i = 0; i < 3; i++) {
        SHOW(sendto(c6, "six", 3, 0, SA(to), sizeof to));
        take(s, port_of(c6));
        SHOW(sendto(c4, "four", 4, 0, SA(to4), sizeof to4));
        take(s, ntohs(own4.sin_port));
        SHOW(sendto(both, "both six", 8, 0, SA(to), sizeof to));
        take(s, port_of(both));
        SHOW(sendto(both, "both four", 9, 0, SA(mapped), sizeof mapped));
        take(s, port_of(both));
        SHOW(sendto(both, "both any", 8, 0, SA(any), sizeof any));
        take(s, port_of(both));
    }
    struct sockaddr_in6 six = at6("::1", port_of(c6));
    // What was looked at is what is taken, though the other family has something too.
    char b[16] = {0};
    SHOW(sendto(c4, "A4", 2, 0, SA(to4), sizeof to4));
    nap(20);
    SHOW(recv(s, b, 16, MSG_PEEK));
    printf("%s\n", b);
    SHOW(sendto(c6, "B6", 2, 0, SA(to), sizeof to));
    nap(20);
    SHOW(recv(s, b, 16, MSG_PEEK));
    printf("%s\n", b);
    SHOW(recv(s, b, 16, 0));
    printf("%s\n", b);
    SHOW(recv(s, b, 16, 0));
    printf("%s\n", b);
    SHOW(recv(s, b, 16, MSG_DONTWAIT));
    // Connected to one family, it hears none of the other; and then again.
    SHOW(connect(s, SA(own4), sizeof own4));
    struct sockaddr_in6 peer = at6("::ffff:127.0.0.1", ntohs(own4.sin_port));
    SHOW(connect(s, SA(peer), sizeof peer));
    names("connected", s, port, ntohs(own4.sin_port));
    SHOW(sendto(c6, "six", 3, 0, SA(to), sizeof to));
    SHOW(sendto(c4, "four", 4, 0, SA(to4), sizeof to4));
    take(s, ntohs(own4.sin_port));
    nap(20);
    SHOW(recv(s, b, 16, MSG_DONTWAIT));
    SHOW(send(s, "to four", 7, 0));
    SHOW(recv(c4, b, 16, 0));
    struct sockaddr no = {.sa_family = AF_UNSPEC};
    SHOW(connect(s, &no, sizeof no));
    names("free", s, port, 0);
    SHOW(sendto(c4, "four", 4, 0, SA(to4), sizeof to4));
    take(s, ntohs(own4.sin_port));
    SHOW(sendto(c6, "six", 3, 0, SA(to), sizeof to));
    take(s, port_of(c6));
    SHOW(connect(s, SA(six), sizeof six));
    names("connected", s, port, port_of(c6));
    SHOW(sendto(c4, "four", 4, 0, SA(to4), sizeof to4));
    SHOW(sendto(c6, "six", 3, 0, SA(to), sizeof to));
    take(s, port_of(c6));
    SHOW(connect(s, &no, sizeof no));
    SHOW(sendto(c6, "six", 3, 0, SA(to), sizeof to));
    take(s, port_of(c6));
    SHOW(sendto(s, "back", 4, 0, SA(six), sizeof six));
    SHOW(recv(c6, b, 16, 0));
    close(s), close(c6), close(c4), close(both);
}

static void datagrams_of_one(void) {
    int s = datagram_at("::", 0, 1), port = port_of(s);
    struct sockaddr_in6 to = at6("::1", port), mapped = at6("::ffff:127.0.0.1", port);
    int c = MUST(socket(AF_INET6, SOCK_DGRAM, 0)), one = 1;
    SHOW(setsockopt(c, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one));
    SHOW(sendto(c, "mapped", 6, 0, SA(mapped), sizeof mapped));
    SHOW(sendto(c, "six", 3, 0, SA(to), sizeof to));
    take(s, port_of(c));
    SHOW(connect(c, SA(mapped), sizeof mapped));
    SHOW(connect(c, SA(to), sizeof to));
    names("connected", c, port_of(c), port);
    SHOW(send(c, "more", 4, 0));
    take(s, port_of(c));
    close(s);
    nap(20);
    SHOW(send(c, "refused", 7, 0));
    nap(20);
    char b[8];
    SHOW(recv(c, b, 8, MSG_DONTWAIT));
    close(c);
}

// The longest, and one that is too long.
static void long_datagrams(void) {
    static char b[70000], got[70000];
    int s = datagram_at("::1", 0, 0), c = datagram_at("::1", 0, 0), space = 1 << 20;
    MUST(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &space, sizeof space));
    struct sockaddr_in6 to = at6("::1", port_of(s));
    MUST(connect(c, SA(to), sizeof to));
    for (unsigned i = 0; i < sizeof b; i++)
        b[i] = i * 31;
    static const int lengths[] = {65487, 65488, 65507, 65527, 65528, 66000};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int more = 0; more < 2; more++) {
            int sent;
            if (more)
                MUST(send(c, b, 10, MSG_MORE));
            SHOW(sent = send(c, b + 10 * more, lengths[i] - 10 * more, 0));
            if (sent < 0)
                continue;
            SHOW(ready(s, POLLIN));
            SHOW(recv(s, got, sizeof got, 0));
            SHOW(memcmp(b, got, lengths[i]));
        }
    close(s), close(c);
}

int main(void) {
    stream();
    nonblocking();
    both_families();
    one_family();
    options();
    moved();
    datagrams();
    datagrams_of_both();
    datagrams_of_one();
    long_datagrams();
    return 0;
}
