// A server that ends while a client still has to read, and starts again on the same port, as SO_REUSEADDR lets it.
#include "common.h"

enum { BYTES = 200000 };
static char bytes[BYTES];

static int serving(int port) {
    struct sockaddr_in where = loopback(port);
    int l = MUST(socket(AF_INET, SOCK_STREAM, 0)), one = 1;
    MUST(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    if (bind(l, SA(where), sizeof where) < 0 || listen(l, 16) < 0)
        return -1;
    return l;
}

static void server(int port, int up, int closes) {
    int l = MUST(serving(port)), value = -1;
    socklen_t len = sizeof value;
    MUST(write(up, "x", 1));
    int c = MUST(accept(l, NULL, NULL));
    MUST(getsockopt(c, SOL_SOCKET, SO_REUSEADDR, &value, &len));
    printf("an accepted socket's SO_REUSEADDR: %d\n", value);
    for (int sent = 0; sent < BYTES;)
        sent += MUST(send(c, bytes + sent, BYTES - sent, 0));
    if (closes)
        MUST(close(c));
    fflush(stdout);
    _exit(0);
}

static void client(int port, int down) {
    struct sockaddr_in where = loopback(port);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    char c;
    MUST(connect(fd, SA(where), sizeof where));
    MUST(recv(fd, &c, 1, 0));
    // Until the server has started again.
    MUST(read(down, &c, 1));
    long n, all = 1;
    while ((n = recv(fd, bytes, BYTES, 0)) > 0)
        all += n;
    printf("the client got %ld, and then %s\n", all, n < 0 ? strerrorname_np(errno) : "the end");
    fflush(stdout);
    _exit(0);
}

static int free_port(void) {
    struct sockaddr_in where = loopback(0);
    socklen_t len = sizeof where;
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(bind(fd, SA(where), sizeof where));
    MUST(getsockname(fd, SA(where), &len));
    MUST(close(fd));
    return ntohs(where.sin_port);
}

static void restarted(int closes) {
    int up[2], down[2], status, port = free_port();
    MUST(pipe(up));
    MUST(pipe(down));
    pid_t s = MUST(fork());
    if (s == 0)
        server(port, up[1], closes);
    char c;
    MUST(read(up[0], &c, 1));
    pid_t reader = MUST(fork());
    if (reader == 0)
        client(port, down[0]);
    MUST(waitpid(s, &status, 0));
    int l = serving(port);
    printf("again: %s\n", l < 0 ? strerrorname_np(errno) : "ok");
    MUST(write(down[1], "x", 1));
    MUST(waitpid(reader, &status, 0));
    close(l);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < 4; i++)
        restarted(i % 2);
    return 0;
}
