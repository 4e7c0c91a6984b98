// A server listens, and forks before it ever waits: its listener is the kernel's then, just while a client connects. Nobody is refused.
#include "common.h"

#define ROUNDS 1500

static const char *talk(int i, struct sockaddr_in where) {
    char b[4];
    struct timeval t = {.tv_sec = 10};
    const char *failed = NULL;
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), error = 0;
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    if (i % 2)
        MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    for (volatile int k = 0; k < i * 37 % 3000 * 10; k++) {}
    errno = 0;
    if (connect(fd, SA(where), sizeof where)) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        socklen_t len = sizeof error;
        if (errno != EINPROGRESS)
            failed = "connect";
        else if (poll(&p, 1, 10000) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) || error)
            errno = error, failed = "connect, at the end";
    }
    if (!failed) {
        MUST(fcntl(fd, F_SETFL, 0));
        errno = 0;
        if (send(fd, "hey", 3, MSG_NOSIGNAL) != 3)
            failed = "send";
        else if (recv(fd, b, 3, MSG_WAITALL) != 3)
            failed = "recv";
    }
    if (failed)
        printf("round %d, %s: %s\n", i, failed, strerror(errno));
    close(fd);
    return failed;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int places[2], results[2], status, failed = 0;
    MUST(pipe(places));
    MUST(pipe(results));
    pid_t client = MUST(fork());
    if (client == 0) {
        for (int i = 0; i < ROUNDS; i++) {
            struct sockaddr_in where;
            MUST(read(places[0], &where, sizeof where));
            const char *result = talk(i, where);
            MUST(write(results[1], result ? "-" : "+", 1));
        }
        _exit(0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct sockaddr_in where;
        char b[8];
        int l = listener(&where);
        MUST(write(places[1], &where, sizeof where));
        pid_t helper = MUST(fork());
        if (helper == 0)
            _exit(0);
        struct pollfd p[2] = {{.fd = l, .events = POLLIN}, {.fd = results[0], .events = POLLIN}};
        MUST(poll(p, 2, 20000));
        if (p[0].revents) {
            int fd = MUST(accept(l, NULL, NULL));
            ssize_t n = recv(fd, b, 3, MSG_WAITALL);
            if (n > 0)
                send(fd, b, n, MSG_NOSIGNAL);
            close(fd);
        }
        MUST(read(results[0], b, 1));
        failed += b[0] != '+';
        waitpid(helper, NULL, 0);
        close(l);
        if (i % 100 == 99)
            SHOW(failed);
    }
    SHOW(waitpid(client, &status, 0) == client);
    SHOW(status);
    return 0;
}
