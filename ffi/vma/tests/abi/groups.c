// Who gets what is sent to a group: its members, and who is bound to the group's port for every address, unless it has said by IP_MULTICAST_ALL
// that it wants its own groups' alone. What is sent to one socket of the port goes to one of them all the while.
#include "common.h"

static const char *GROUPS[] = {"239.7.7.1", "239.7.7.2"};

static struct in_addr group(int i) {
    struct in_addr a;
    inet_aton(GROUPS[i], &a);
    return a;
}

static int member(int fd, int i, int option) {
    struct ip_mreq m = {.imr_multiaddr = group(i), .imr_interface.s_addr = htonl(INADDR_LOOPBACK)};
    return setsockopt(fd, IPPROTO_IP, option, &m, sizeof m);
}

static int all(int fd, int value) {
    return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &value, sizeof value);
}

static int bound(int *port, int to_group) {
    int one = 1, fd = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t len = sizeof a;
    if (to_group) a.sin_addr = group(0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    MUST(bind(fd, SA(a), sizeof a));
    MUST(getsockname(fd, SA(a), &len));
    *port = ntohs(a.sin_port);
    return fd;
}

// What each of the sockets gets of one datagram to either group, and one to the loopback's address.
static void who(const char *what, int sender, int port, const int *fds, int n) {
    struct sockaddr_in to[] = {{.sin_addr = group(0)}, {.sin_addr = group(1)}, loopback(0)};
    printf("%s:", what);
    for (int i = 0; i < 3; i++) {
        to[i].sin_family = AF_INET;
        to[i].sin_port = htons(port);
        MUST(sendto(sender, "abc" + i, 1, 0, SA(to[i]), sizeof to[i]));
        nap(5);
        printf(" ");
        for (int k = 0; k < n; k++) {
            char byte;
            int count = 0;
            while (recv(fds[k], &byte, 1, 0) == 1) count += byte == "abc"[i] ? 1 : 100;
            printf("%d", count);
        }
    }
    printf("\n");
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int port = 0, value = -1, fds[3];
    socklen_t len = sizeof value;
    struct in_addr lo = {htonl(INADDR_LOOPBACK)};
    struct sockaddr_in own;
    int sender = datagram(&own);
    MUST(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof lo));
    for (int i = 0; i < 2; i++) fds[i] = bound(&port, 0);
    fds[2] = bound(&port, 1);
    who("nobody is a member", sender, port, fds, 3);
    SHOW(member(fds[0], 0, IP_ADD_MEMBERSHIP));
    who("one is, of the first group", sender, port, fds, 3);
    SHOW(getsockopt(fds[1], IPPROTO_IP, IP_MULTICAST_ALL, &value, &len));
    SHOW(value);
    SHOW(all(fds[1], 0));
    SHOW(getsockopt(fds[1], IPPROTO_IP, IP_MULTICAST_ALL, &value, &len));
    SHOW(value);
    who("another wants its own alone", sender, port, fds, 3);
    SHOW(member(fds[1], 1, IP_ADD_MEMBERSHIP));
    who("and has one", sender, port, fds, 3);
    SHOW(all(fds[0], 0));
    who("as the first does", sender, port, fds, 3);
    SHOW(all(fds[2], 0));
    who("and the one that is bound to a group", sender, port, fds, 3);
    SHOW(member(fds[2], 0, IP_ADD_MEMBERSHIP));
    who("which is a member now", sender, port, fds, 3);
    SHOW(member(fds[0], 0, IP_DROP_MEMBERSHIP));
    who("the first is none any more", sender, port, fds, 3);
    SHOW(all(fds[0], 1));
    who("and wants all again", sender, port, fds, 3);
    SHOW(all(fds[0], 7));
    SHOW(connect(fds[1], SA(own), sizeof own));
    who("one has a peer", sender, port, fds, 3);
    SHOW(close(fds[1]));
    fds[1] = fds[2];
    who("which is gone", sender, port, fds, 2);
    return 0;
}
