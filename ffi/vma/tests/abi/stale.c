// What the peer has done before a call begins is known to the call: a reset, an end, bytes. The peer does it in another process, and says so by a pipe.
#include "common.h"

static int orders[2], done[2];

// The peer: does what it is told with the connection that it accepts next.
static void peer(int listening) {
    char order;
    int fd = -1, on = 1;
    alarm(50);
    while (read(orders[0], &order, 1) == 1) {
        char result = order;
        struct linger reset = {1, 0};
        char byte;
        switch (order) {
        case 'a':
            fd = MUST(accept(listening, NULL, NULL));
            MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
            break;
        case 'r':
            MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset));
            MUST(close(fd));
            break;
        case 'f':
            MUST(close(fd));
            break;
        case 'w':
            MUST(write(fd, "bytes", 5));
            break;
        case 'e': {
            // How the connection ends for the peer.
            ssize_t n = read(fd, &byte, 1);
            result = n == 0 ? '0' : n > 0 ? '1' : errno == ECONNRESET ? 'R' : '?';
            close(fd);
            break;
        }
        }
        MUST(write(done[1], &result, 1));
    }
    exit(0);
}

static char order(char what) {
    char result = 0;
    MUST(write(orders[1], &what, 1));
    MUST(read(done[0], &result, 1));
    return result;
}

static int connected(struct sockaddr_in where) {
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(where), sizeof where));
    order('a');
    return fd;
}

static int state(int fd) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_state : -1;
}

int main(void) {
    struct sockaddr_in where, other;
    char bytes[64];
    int queued, error, fd;
    socklen_t len;
    MUST(pipe(orders));
    MUST(pipe(done));
    int told[2];
    MUST(pipe(told));
    pid_t child = MUST(fork());
    if (child == 0) {
        close(orders[1]);
        int listening = listener(&where);
        MUST(write(told[1], &where, sizeof where));
        peer(listening);
    }
    close(orders[0]);
    MUST(read(told[0], &where, sizeof where));

    // The peer's reset.
    fd = connected(where);
    order('r');
    len = sizeof other;
    SHOW(getpeername(fd, SA(other), &len));
    SHOW(recv(fd, bytes, sizeof bytes, 0));
    close(fd);
    fd = connected(where);
    order('r');
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
    fd = connected(where);
    order('r');
    SHOW(shutdown(fd, SHUT_WR));
    close(fd);
    fd = connected(where);
    order('r');
    len = sizeof error;
    SHOW(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("SO_ERROR %s\n", strerrorname_np(error));
    printf("state %d\n", state(fd));
    close(fd);
    fd = connected(where);
    order('r');
    SHOW(recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT));
    close(fd);

    // The peer's end.
    fd = connected(where);
    order('f');
    printf("state %d\n", state(fd));
    len = sizeof other;
    SHOW(getpeername(fd, SA(other), &len));
    SHOW(shutdown(fd, SHUT_RD));
    SHOW(recv(fd, bytes, sizeof bytes, 0));
    close(fd);
    fd = connected(where);
    SHOW(shutdown(fd, SHUT_WR));
    order('f');
    len = sizeof other;
    SHOW(getpeername(fd, SA(other), &len));
    SHOW(shutdown(fd, SHUT_RDWR));
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);

    // The peer's bytes.
    fd = connected(where);
    SHOW(shutdown(fd, SHUT_RD));
    order('w');
    SHOW(recv(fd, bytes, sizeof bytes, 0));
    SHOW(recv(fd, bytes, sizeof bytes, 0));
    close(fd);
    order('e');
    fd = connected(where);
    order('w');
    struct pollfd p = {.fd = fd, .events = POLLIN};
    SHOW(poll(&p, 1, 1000));
    order('w');
    SHOW(recv(fd, bytes, sizeof bytes, MSG_PEEK));
    SHOW(ioctl(fd, FIONREAD, &queued));
    printf("queued %d\n", queued);
    order('w');
    SHOW(ioctl(fd, FIONREAD, &queued));
    printf("queued %d\n", queued);
    SHOW(recv(fd, bytes, sizeof bytes, 0));
    close(fd);
    printf("read to its end, the peer has %c\n", order('e'));
    fd = connected(where);
    order('w');
    close(fd);
    printf("unread, the peer has %c\n", order('e'));

    // An address nobody wants, of no length at all.
    fd = connected(where);
    order('w');
    len = (socklen_t)-1;
    SHOW(recvfrom(fd, bytes, 1, 0, SA(other), &len));
    SHOW(recvfrom(fd, bytes, 1, 0, NULL, &len));
    SHOW(recvfrom(fd, bytes, 1, 0, SA(other), NULL));
    len = sizeof other;
    SHOW(recvfrom(fd, bytes, 1, 0, SA(other), &len));
    printf("length %d\n", (int)len);
    struct iovec piece = {bytes, 1};
    struct msghdr message = {.msg_name = &other, .msg_namelen = -1, .msg_iov = &piece, .msg_iovlen = 1};
    SHOW(recvmsg(fd, &message, 0));
    message.msg_name = NULL;
    SHOW(recvmsg(fd, &message, 0));
    close(fd);

    close(orders[1]);
    int status;
    MUST(waitpid(child, &status, 0));
    printf("status %d\n", status);
}
