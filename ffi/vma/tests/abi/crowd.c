// A server forks for each of many short connections: the child serves, the parent closes, and is now and then busy with something else. So
// connections change hands in every way at once: before they were accepted, just then, and while they are closed.
#include "common.h"

#define CLIENTS 8
#define CONNECTIONS 60

static void echo_until_end(int fd) {
    char b[8192];
    ssize_t n;
    while ((n = read(fd, b, sizeof b)) > 0)
        if (write(fd, b, n) != n)
            _exit(2);
    _exit(n != 0);
}

static void serve(int l) {
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0;; i++) {
        if (i % 8 == 0)
            nap(22);
        int fd = accept(l, NULL, NULL);
        if (fd < 0)
            printf("accept: %s\n", strerror(errno));
        if (fork() == 0) {
            close(l);
            echo_until_end(fd);
        }
        close(fd);
    }
}

static int failed(int client, int connection, const char *what) {
    printf("client %d, connection %d, %s: %s\n", client, connection, what, strerror(errno));
    return 1;
}

static int talk(int client, int connection, struct sockaddr_in where, int waits) {
    char out[4096], in[4096];
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), len = 1 + connection * 977 % 4096, fails = 0;
    struct timeval t = {.tv_sec = 20};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    if (!waits) {
        int error = 0;
        socklen_t size = sizeof error;
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
        if (connect(fd, SA(where), sizeof where) && errno != EINPROGRESS)
            fails = failed(client, connection, "connect");
        else if (poll(&p, 1, 20000) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) || error)
            errno = error, fails = failed(client, connection, "connect, at the end");
        MUST(fcntl(fd, F_SETFL, 0));
    } else if (connect(fd, SA(where), sizeof where)) {
        fails = failed(client, connection, "connect");
    }
    for (int round = 0; round < 2 && !fails; round++) {
        memset(out, 'a' + (connection + round) % 26, len);
        errno = 0;
        if (send(fd, out, len, MSG_NOSIGNAL) != len)
            fails = failed(client, connection, "send");
        else if (recv(fd, in, len, MSG_WAITALL) != len || memcmp(in, out, len))
            fails = failed(client, connection, "recv");
    }
    shutdown(fd, SHUT_WR);
    errno = 0;
    if (!fails && recv(fd, in, 1, 0) != 0)
        fails = failed(client, connection, "the end");
    close(fd);
    return fails;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int connections = argc > 1 ? atoi(argv[1]) : CONNECTIONS;
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t clients[CLIENTS], server = MUST(fork());
    if (server == 0)
        serve(l);
    close(l);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = MUST(fork());
        if (clients[i] == 0) {
            int fails = 0;
            for (int k = 0; k < connections; k++)
                fails += talk(i, k, where, i % 2);
            _exit(fails > 255 ? 255 : fails);
        }
    }
    for (int i = 0; i < CLIENTS; i++) {
        int status = -1;
        waitpid(clients[i], &status, 0);
        SHOW(status);
    }
    int status;
    SHOW(kill(server, SIGKILL));
    SHOW(waitpid(server, &status, 0) == server);
    SHOW(WTERMSIG(status));
    return 0;
}
