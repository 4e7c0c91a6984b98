// What only the kernel serves moves a connection there: before its peer has accepted it, and after.
#include "common.h"

static int is_echoed(int fd) {
    char b[8] = {0};
    return send(fd, "words", 5, MSG_NOSIGNAL) == 5 && recv(fd, b, 5, MSG_WAITALL) == 5 && !memcmp(b, "words", 5);
}

static void client(struct sockaddr_in where, int turn[2], int early) {
    char b[1];
    struct timeval t = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    if (connect(fd, SA(where), sizeof where))
        _exit(1);
    if (early && fcntl(fd, F_SETFL, O_ASYNC))
        _exit(2);
    if (write(turn[1], "!", 1) != 1)
        _exit(3);
    if (!early && (!is_echoed(fd) || fcntl(fd, F_SETFL, O_ASYNC)))
        _exit(4);
    if (!is_echoed(fd))
        _exit(5);
    shutdown(fd, SHUT_WR);
    _exit(recv(fd, b, 1, 0));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int early = 0; early < 2; early++) {
        struct sockaddr_in where;
        int turn[2], status;
        char b[64];
        ssize_t n;
        MUST(pipe(turn));
        // (The client comes from a process that has nothing to do with this one's sockets.)
        int l = listener(&where);
        pid_t pid = MUST(fork());
        if (pid == 0) {
            close(l);
            client(where, turn, early);
        }
        struct pollfd p = {.fd = l, .events = POLLIN};
        SHOW(poll(&p, 1, 5000));
        SHOW(read(turn[0], b, 1));
        int fd = MUST(accept(l, NULL, NULL));
        while ((n = read(fd, b, sizeof b)) > 0)
            MUST(write(fd, b, n));
        SHOW(n);
        SHOW(close(fd));
        SHOW(waitpid(pid, &status, 0) == pid);
        SHOW(status);
        close(l);
    }
    return 0;
}
