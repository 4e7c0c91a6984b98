// A process that is stopped while it waits goes on waiting when it goes on (signal(7)): neither recv(2) nor poll(2) nor select(2) ends by SIGCONT alone.
#include "common.h"

#include <sys/select.h>

static long waits(int how, int fd) {
    char byte;
    fd_set set;
    struct timeval while_long = {.tv_sec = 5};
    if (how == 1)
        return ready(fd, POLLIN);
    if (how == 2) {
        FD_ZERO(&set);
        FD_SET(fd, &set);
        return select(fd + 1, &set, NULL, NULL, &while_long);
    }
    return recv(fd, &byte, 1, 0);
}

int main(void) {
    static const char *const names[] = {"recv", "poll", "select"};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int datagrams = 0; datagrams < 2; datagrams++) {
        for (int how = 0; how < 3; how++) {
            struct sockaddr_in where;
            int up[2], status = 0;
            MUST(pipe(up));
            pid_t reader = MUST(fork());
            if (reader == 0) {
                int fd = datagrams ? datagram(&where) : listener(&where);
                MUST(write(up[1], &where, sizeof where));
                if (!datagrams)
                    fd = MUST(accept(fd, NULL, NULL));
                errno = 0;
                long result = waits(how, fd);
                printf("%s of %s: %ld, %s\n", names[how], datagrams ? "datagrams" : "a stream", result, strerrorname_np(errno));
                _exit(0);
            }
            MUST(read(up[0], &where, sizeof where));
            int fd = MUST(socket(AF_INET, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0));
            MUST(connect(fd, SA(where), sizeof where));
            nap(150);
            MUST(kill(reader, SIGSTOP));
            nap(50);
            MUST(kill(reader, SIGCONT));
            nap(100);
            MUST(send(fd, "x", 1, 0));
            MUST(waitpid(reader, &status, 0));
            SHOW(status);
            close(fd);
            close(up[0]);
            close(up[1]);
        }
    }
    return 0;
}
