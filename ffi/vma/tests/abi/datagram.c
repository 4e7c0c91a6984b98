// UDP: destinations, truncation, flags, ancillary data, errors, many at once.
#include "common.h"

static void basics(void) {
    struct sockaddr_in a, b, from;
    int x = datagram(&a), y = datagram(&b);
    char buf[64];
    socklen_t len = sizeof from;
    SHOW(send(x, "no", 2, 0));
    SHOW(sendto(x, "abcdef", 6, 0, SA(b), sizeof b));
    SHOW(ready(y, POLLIN));
    SHOW(recvfrom(y, buf, 3, MSG_PEEK, SA(from), &len));
    SHOW(len);
    SHOW(memcmp(&from, &a, sizeof a));
    SHOW(recv(y, buf, 3, MSG_TRUNC));
    SHOW(recv(y, buf, 3, MSG_DONTWAIT));
    SHOW(sendto(x, "", 0, 0, SA(b), sizeof b));
    SHOW(recv(y, buf, 64, 0));
    SHOW(sendto(x, buf, 64, 0, SA(b), 4));
    SHOW(sendto(x, NULL, 8, 0, SA(b), sizeof b));
    static char big[70000];
    SHOW(sendto(x, big, 65507, 0, SA(b), sizeof b));
    SHOW(sendto(x, big, 65508, 0, SA(b), sizeof b));
    SHOW(recv(y, big, sizeof big, 0));
    SHOW(connect(x, SA(b), sizeof b));
    SHOW(send(x, "conn", 4, 0));
    SHOW(recv(y, buf, 64, 0));
    SHOW(write(x, "wr", 2));
    SHOW(read(y, buf, 64));
    struct sockaddr_in c;
    int z = datagram(&c);
    SHOW(sendto(z, "stranger", 8, 0, SA(a), sizeof a));
    nap(20);
    SHOW(recv(x, buf, 64, MSG_DONTWAIT));
    SHOW(sendto(y, "friend", 6, 0, SA(a), sizeof a));
    SHOW(recv(x, buf, 64, 0));
    len = sizeof from;
    SHOW(getpeername(x, SA(from), &len));
    SHOW(memcmp(&from, &b, sizeof b));
    MUST(close(y));
    SHOW(send(x, "gone", 4, 0));
    nap(20);
    SHOW(send(x, "gone", 4, 0));
    SHOW(recv(x, buf, 64, MSG_DONTWAIT));
    SHOW(recv(x, buf, 64, MSG_DONTWAIT));
    struct sockaddr_in none = {.sin_family = AF_UNSPEC};
    SHOW(connect(x, SA(none), sizeof none));
    SHOW(getpeername(x, SA(from), &len));
    SHOW(sendto(z, "again", 5, 0, SA(a), sizeof a));
    SHOW(listen(x, 1));
    SHOW(accept(x, NULL, NULL));
    MUST(close(x));
    MUST(close(z));
}

static void messages(void) {
    struct sockaddr_in a, b, from;
    int x = datagram(&a), y = datagram(&b), one = 1;
    MUST(setsockopt(y, IPPROTO_IP, IP_PKTINFO, &one, sizeof one));
    MUST(setsockopt(y, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one));
    char buf[8], control[128];
    struct iovec out[2] = {{"hello", 5}, {"world", 5}}, in = {buf, sizeof buf};
    struct msghdr m = {.msg_name = &b, .msg_namelen = sizeof b, .msg_iov = out, .msg_iovlen = 2};
    SHOW(sendmsg(x, &m, 0));
    struct msghdr r = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &in, .msg_iovlen = 1,
                       .msg_control = control, .msg_controllen = sizeof control};
    SHOW(recvmsg(y, &r, 0));
    SHOW(r.msg_flags);
    SHOW(r.msg_namelen);
    SHOW(memcmp(&from, &a, sizeof a));
    SHOW(r.msg_controllen);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&r); c; c = CMSG_NXTHDR(&r, c)) {
        printf("cmsg level %d type %d len %zu\n", c->cmsg_level, c->cmsg_type, c->cmsg_len);
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            printf("to %08x interface %d\n", ntohl(info.ipi_addr.s_addr), info.ipi_ifindex);
        }
    }
    SHOW(recvmsg(y, NULL, MSG_DONTWAIT) < 0);
    m.msg_iovlen = 5000;
    SHOW(sendmsg(x, &m, 0));

    struct mmsghdr batch[4];
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < 4; i++)
        batch[i].msg_hdr = (struct msghdr){.msg_name = &b, .msg_namelen = sizeof b, .msg_iov = out, .msg_iovlen = 1};
    SHOW(sendmmsg(x, batch, 4, 0));
    SHOW(batch[3].msg_len);
    nap(20);
    struct mmsghdr got[8];
    char space[8][16];
    struct iovec each[8];
    memset(got, 0, sizeof got);
    for (int i = 0; i < 8; i++) {
        each[i] = (struct iovec){space[i], 16};
        got[i].msg_hdr = (struct msghdr){.msg_iov = &each[i], .msg_iovlen = 1};
    }
    SHOW(recvmmsg(y, got, 8, MSG_WAITFORONE, NULL));
    SHOW(got[3].msg_len);
    SHOW(recvmmsg(y, got, 8, MSG_DONTWAIT, NULL));
    struct timeval t = {.tv_usec = 50000};
    MUST(setsockopt(y, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    SHOW(recv(y, buf, 8, 0));
    int n = -1;
    SHOW(ioctl(y, FIONREAD, &n));
    SHOW(n);
    MUST(sendto(x, "12345", 5, 0, SA(b), sizeof b));
    ready(y, POLLIN);
    SHOW(ioctl(y, FIONREAD, &n));
    SHOW(n);
    MUST(close(x));
    MUST(close(y));
}

static void unbound(void) {
    struct sockaddr_in b, from;
    int x = MUST(socket(AF_INET, SOCK_DGRAM, 0)), y = datagram(&b);
    char buf[8];
    socklen_t len = sizeof from;
    SHOW(recv(x, buf, 8, MSG_DONTWAIT));
    SHOW(getsockname(x, SA(from), &len));
    SHOW(from.sin_port);
    SHOW(sendto(x, "hi", 2, 0, SA(b), sizeof b));
    SHOW(getsockname(x, SA(from), &len));
    SHOW(from.sin_port != 0);
    SHOW(ntohl(INET_LAST(from.sin_addr)));
    SHOW(recvfrom(y, buf, 8, 0, SA(from), &len));
    SHOW(sendto(y, "ho", 2, 0, SA(from), sizeof from));
    SHOW(recv(x, buf, 8, 0));
    MUST(close(x));
    x = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    SHOW(connect(x, SA(b), sizeof b));
    SHOW(getsockname(x, SA(from), &len));
    SHOW(ntohl(INET_LAST(from.sin_addr)));
    SHOW(send(x, "hi", 2, 0));
    SHOW(recvfrom(y, buf, 8, 0, SA(from), &len));
    SHOW(sendto(y, "ho", 2, 0, SA(from), sizeof from));
    SHOW(recv(x, buf, 8, 0));
    int v;
    len = sizeof v;
    SHOW(getsockopt(x, SOL_SOCKET, SO_ERROR, &v, &len));
    SHOW(v);
    SHOW(shutdown(x, SHUT_WR));
    SHOW(send(x, "hi", 2, MSG_NOSIGNAL));
    MUST(close(x));
    MUST(close(y));
}

// A server that answers more clients than it remembers the ways to, of which some are gone, and come again.
static void clients(void) {
    enum { CLIENTS = 40 };
    struct sockaddr_in to[CLIENTS], mine;
    int x = datagram(&mine), client[CLIENTS], got = 0, right = 0;
    for (int i = 0; i < CLIENTS; i++)
        client[i] = datagram(&to[i]);
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < CLIENTS; i += 1 + round % 3) {
            char said = (char)(i + round), heard = 0;
            if (i % 5 == round) {
                MUST(close(client[i]));
                client[i] = MUST(socket(AF_INET, SOCK_DGRAM, 0));
                MUST(bind(client[i], SA(to[i]), sizeof to[i]));
            }
            MUST(sendto(x, &said, 1, 0, SA(to[i]), sizeof to[i]));
            got += ready(client[i], POLLIN) == POLLIN && recv(client[i], &heard, 1, MSG_DONTWAIT) == 1;
            right += heard == said;
        }
    }
    SHOW(got);
    SHOW(right);
    for (int i = 0; i < CLIENTS; i++)
        MUST(close(client[i]));
    MUST(close(x));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    basics();
    messages();
    unbound();
    clients();
    return 0;
}
