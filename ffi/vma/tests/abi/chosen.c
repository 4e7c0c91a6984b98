// Sockets that share a port by SO_REUSEPORT, among which a program chooses (SO_ATTACH_REUSEPORT_CBPF): those that were there, those that come later,
// and those that are left.
#include "common.h"
#include <linux/filter.h>

enum { SOCKETS = 3 };
static int port, fds[SOCKETS];

static int bound(int kind) {
    int on = 1, fd = MUST(socket(AF_INET, kind | SOCK_NONBLOCK, 0));
    struct sockaddr_in a = loopback(port);
    socklen_t len = sizeof a;
    MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    MUST(bind(fd, SA(a), sizeof a));
    MUST(getsockname(fd, SA(a), &len));
    port = ntohs(a.sin_port);
    if (kind == SOCK_STREAM) MUST(listen(fd, 50));
    return fd;
}

// By the first byte; or always the second.
static int attach(int fd, int by_data) {
    struct sock_filter data[] = {{BPF_LD | BPF_B | BPF_ABS, 0, 0, 0}, {BPF_ALU | BPF_AND | BPF_K, 0, 0, 1}, {BPF_RET | BPF_A, 0, 0, 0}};
    struct sock_filter second[] = {{BPF_RET | BPF_K, 0, 0, 1}};
    struct sock_fprog program = {by_data ? 3 : 1, by_data ? data : second};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

static void datagrams(const char *what, int sender) {
    struct sockaddr_in to = loopback(port);
    printf("%s:", what);
    for (const char *c = "abcabd"; *c; c++) {
        char got;
        MUST(sendto(sender, c, 1, 0, SA(to), sizeof to));
        nap(5);
        printf(" %c", *c);
        for (int i = 0; i < SOCKETS; i++)
            while (fds[i] >= 0 && recv(fds[i], &got, 1, 0) == 1) printf("%d", i);
    }
    printf("\n");
}

static void connections(const char *what) {
    int counts[SOCKETS] = {0};
    struct sockaddr_in to = loopback(port);
    for (int i = 0; i < 10; i++) {
        int c = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(c, SA(to), sizeof to));
        nap(2);
        for (int k = 0; k < SOCKETS; k++)
            for (int a; fds[k] >= 0 && (a = accept(fds[k], NULL, NULL)) >= 0; counts[k]++) MUST(close(a));
        MUST(close(c));
    }
    printf("%s: %d %d %d\n", what, counts[0], counts[1], counts[2]);
}

static void begin(void) {
    for (int i = 0; i < SOCKETS; i++) {
        if (port && fds[i] >= 0) MUST(close(fds[i]));
        fds[i] = -1;
    }
    port = 0;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    struct sockaddr_in own;
    int sender = datagram(&own), other = 0;
    begin();
    for (int i = 0; i < 2; i++) fds[i] = bound(SOCK_DGRAM);
    SHOW(attach(fds[0], 1));
    datagrams("both were there", sender);
    fds[2] = bound(SOCK_DGRAM);
    datagrams("a third comes", sender);
    MUST(close(fds[2]));
    fds[2] = -1;
    datagrams("and goes", sender);
    begin();
    fds[0] = bound(SOCK_DGRAM);
    SHOW(attach(fds[0], 1));
    fds[1] = bound(SOCK_DGRAM);
    datagrams("one comes later", sender);
    begin();
    for (int i = 0; i < 2; i++) fds[i] = bound(SOCK_STREAM);
    SHOW(attach(fds[0], 0));
    connections("listeners that were there");
    begin();
    fds[0] = bound(SOCK_STREAM);
    SHOW(attach(fds[0], 0));
    fds[1] = bound(SOCK_STREAM);
    connections("a listener that comes later");
    begin();
    // Others' ports are none of theirs.
    int l = listener(&own), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(c, SA(own), sizeof own));
    SHOW((other = accept(l, NULL, NULL)) >= 0);
    SHOW(send(c, "abc", 3, 0));
    SHOW(ready(other, POLLIN));
    return 0;
}
