// TCP: connecting, the ends of streams, flags, names, errors.
#include "common.h"

static void connecting(void) {
    struct sockaddr_in where, nobody;
    int l = listener(&where), fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    int other = listener(&nobody);
    MUST(close(other));
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    char b[8];
    SHOW(recv(fd, b, 8, 0));
    socklen_t len = sizeof nobody;
    struct sockaddr_in name;
    SHOW(getpeername(fd, SA(name), &len));
    SHOW(connect(fd, SA(where), 3));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(ready(fd, POLLOUT));
    int e = -1;
    len = sizeof e;
    SHOW(getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len));
    SHOW(e);
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(listen(fd, 1));
    SHOW(bind(fd, SA(where), sizeof where));
    SHOW(accept(fd, NULL, NULL));
    SHOW(recv(fd, b, 8, 0));
    MUST(close(fd));
    fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(fd, SA(nobody), sizeof nobody));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(connect(fd, SA(where), sizeof where));
    struct sockaddr_in no = {.sin_family = AF_UNSPEC};
    SHOW(connect(fd, SA(no), sizeof no));
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    SHOW(close(fd));
    SHOW(close(fd));
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    SHOW(recv(fd, b, 8, 0));
    SHOW(close(l));
}

static void flags(void) {
    int s[2];
    stream_pair(s);
    char b[64];
    SHOW(recv(s[0], b, 8, MSG_DONTWAIT));
    SHOW(recv(s[0], b, 0, MSG_DONTWAIT));
    SHOW(send(s[1], "", 0, 0));
    SHOW(send(s[1], "abcdef", 6, 0));
    SHOW(ready(s[0], POLLIN));
    SHOW(recv(s[0], b, 0, 0));
    SHOW(recv(s[0], b, 3, MSG_PEEK));
    int n = -1;
    SHOW(ioctl(s[0], FIONREAD, &n));
    SHOW(n);
    SHOW(recv(s[0], NULL, 2, MSG_TRUNC));
    SHOW(recv(s[0], b, 2, 0));
    SHOW(memcmp(b, "cd", 2));
    SHOW(send(s[1], "ghij", 4, MSG_MORE));
    SHOW(send(s[1], "kl", 2, 0));
    SHOW(recv(s[0], b, 8, MSG_WAITALL));
    SHOW(memcmp(b, "efghijkl", 8));
    SHOW(recv(s[0], b, 8, MSG_OOB));
    SHOW(recv(s[0], b, 8, MSG_ERRQUEUE));
    struct iovec v[3] = {{"one", 3}, {NULL, 0}, {"three", 5}};
    SHOW(writev(s[1], v, 3));
    volatile int negative = -1;
    SHOW(writev(s[1], v, negative));
    SHOW(writev(s[1], v, 0));
    SHOW(ready(s[0], POLLIN));
    struct iovec w[2] = {{b, 4}, {b + 10, 20}};
    SHOW(readv(s[0], w, 2));
    SHOW(memcmp(b, "onet", 4) | memcmp(b + 10, "hree", 4));
    struct timeval t = {.tv_usec = 50000};
    SHOW(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    SHOW(recv(s[0], b, 8, 0));
    SHOW(fcntl(s[0], F_SETFL, O_NONBLOCK));
    SHOW(fcntl(s[0], F_GETFL) & O_NONBLOCK ? 1 : 0);
    SHOW(read(s[0], b, 8));
    int off = 0;
    SHOW(ioctl(s[0], FIONBIO, &off));
    SHOW(fcntl(s[0], F_GETFL) & O_NONBLOCK ? 1 : 0);
    SHOW(lseek(s[0], 0, SEEK_CUR));
    SHOW(pread(s[0], b, 1, 0));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void ends(void) {
    int s[2];
    char b[64];
    stream_pair(s);
    SHOW(send(s[0], "last", 4, 0));
    SHOW(shutdown(s[0], SHUT_WR));
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    SHOW(ready(s[1], POLLIN | POLLRDHUP) & POLLRDHUP ? 1 : 0);
    SHOW(read(s[1], b, 64));
    SHOW(read(s[1], b, 64));
    SHOW(send(s[1], "back", 4, 0));
    SHOW(recv(s[0], b, 64, 0));
    SHOW(shutdown(s[1], 7));
    SHOW(shutdown(s[1], SHUT_RDWR));
    nap(20);
    SHOW(recv(s[0], b, 64, 0));
    MUST(close(s[0]));
    MUST(close(s[1]));

    // Unread bytes at close: a reset.
    stream_pair(s);
    MUST(send(s[0], "unread", 6, 0));
    ready(s[1], POLLIN);
    MUST(close(s[1]));
    nap(20);
    SHOW(ready(s[0], POLLIN));
    SHOW(recv(s[0], b, 64, 0));
    SHOW(recv(s[0], b, 64, 0));
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    MUST(close(s[0]));

    // SO_LINGER of zero: a reset too.
    stream_pair(s);
    struct linger none = {.l_onoff = 1};
    MUST(setsockopt(s[1], SOL_SOCKET, SO_LINGER, &none, sizeof none));
    MUST(close(s[1]));
    nap(20);
    int e = -1;
    socklen_t len = sizeof e;
    SHOW(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &e, &len));
    SHOW(e);
    SHOW(recv(s[0], b, 64, 0));
    struct sockaddr_in name;
    len = sizeof name;
    SHOW(getpeername(s[0], SA(name), &len));
    MUST(close(s[0]));

    // Writing to a peer that is gone.
    stream_pair(s);
    MUST(close(s[1]));
    nap(20);
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    nap(20);
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    SHOW(recv(s[0], b, 64, 0));
    MUST(close(s[0]));
}

static volatile int pipes;
static void on_pipe(int signal) { pipes += signal == SIGPIPE; }

static void sigpipe(void) {
    int s[2];
    stream_pair(s);
    signal(SIGPIPE, on_pipe);
    MUST(shutdown(s[0], SHUT_WR));
    SHOW(write(s[0], "x", 1));
    SHOW(pipes);
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    SHOW(pipes);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void names(void) {
    struct sockaddr_in where, mine, theirs;
    int l = listener(&where), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(where), sizeof where));
    socklen_t len = sizeof theirs;
    int a = MUST(accept4(l, SA(theirs), &len, SOCK_NONBLOCK | SOCK_CLOEXEC));
    SHOW(len);
    SHOW(fcntl(a, F_GETFL) & O_NONBLOCK ? 1 : 0);
    SHOW(fcntl(a, F_GETFD));
    SHOW(accept4(l, NULL, NULL, 0x40000000));
    len = sizeof mine;
    SHOW(getsockname(fd, SA(mine), &len));
    SHOW(memcmp(&mine, &theirs, sizeof mine));
    len = sizeof mine;
    SHOW(getsockname(a, SA(mine), &len));
    SHOW(memcmp(&mine, &where, sizeof mine));
    len = 4;
    SHOW(getpeername(a, SA(mine), &len));
    SHOW(len);
    len = -1;
    SHOW(getpeername(a, SA(mine), &len));
    int v = -1;
    len = sizeof v;
    SHOW(getsockopt(a, SOL_SOCKET, SO_TYPE, &v, &len));
    SHOW(v);
    SHOW(getsockopt(l, SOL_SOCKET, SO_ACCEPTCONN, &v, &len));
    SHOW(v);
    SHOW(getsockopt(a, SOL_SOCKET, SO_ACCEPTCONN, &v, &len));
    SHOW(v);
    SHOW(getsockopt(a, SOL_SOCKET, SO_DOMAIN, &v, &len));
    SHOW(v);
    SHOW(getsockopt(a, SOL_SOCKET, 9999, &v, &len));
    SHOW(setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, &v, 1));
    SHOW(setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, NULL, 4));
    v = 1;
    SHOW(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &v, sizeof v));
    v = -1;
    SHOW(getsockopt(a, IPPROTO_TCP, TCP_NODELAY, &v, &len));
    SHOW(v);
    struct tcp_info info = {0};
    len = sizeof info;
    SHOW(getsockopt(a, IPPROTO_TCP, TCP_INFO, &info, &len));
    SHOW(info.tcpi_state);
    MUST(close(a));
    MUST(close(fd));
    MUST(close(l));
}

static void duplicates(void) {
    int s[2];
    char b[8];
    stream_pair(s);
    int d = MUST(dup(s[0]));
    MUST(close(s[0]));
    SHOW(send(d, "via", 3, 0));
    SHOW(recv(s[1], b, 8, 0));
    int t = MUST(open("/dev/null", O_RDWR));
    SHOW(dup2(d, t) == t);
    MUST(close(d));
    SHOW(send(t, "dup2", 4, 0));
    SHOW(recv(s[1], b, 8, 0));
    SHOW(dup2(99999, t));
    SHOW(send(t, "x", 1, 0));
    SHOW(recv(s[1], b, 8, 0));
    int u = MUST(fcntl(t, F_DUPFD_CLOEXEC, 50));
    SHOW(u >= 50);
    SHOW(fcntl(u, F_GETFD));
    MUST(close(t));
    SHOW(send(u, "fcntl", 5, 0));
    SHOW(recv(s[1], b, 8, 0));
    SHOW(dup3(u, u, 0));
    SHOW(dup2(u, u) == u);
    MUST(close(u));
    SHOW(recv(s[1], b, 8, 0));
    MUST(close(s[1]));
}

static void files(void) {
    int s[2];
    char b[300000], name[] = "/tmp/ringway-abi-XXXXXX";
    stream_pair(s);
    int f = MUST(mkstemp(name));
    unlink(name);
    memset(b, 'f', sizeof b);
    MUST(write(f, b, sizeof b));
    off_t at = 100000;
    SHOW(sendfile(s[0], f, &at, 1000));
    SHOW(at);
    SHOW(recv(s[1], b, 1000, MSG_WAITALL));
    MUST(lseek(f, 299990, SEEK_SET));
    SHOW(sendfile(s[0], f, NULL, 1000));
    SHOW(lseek(f, 0, SEEK_CUR));
    SHOW(recv(s[1], b, 10, MSG_WAITALL));
    SHOW(sendfile(s[0], f, NULL, 1000));
    MUST(close(f));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    connecting();
    flags();
    ends();
    sigpipe();
    names();
    duplicates();
    files();
    return 0;
}
