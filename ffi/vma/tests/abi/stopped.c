// A process ends while its peer is stopped, and so can neither read nor take anything over: it does not wait for long, the log says what is
// lost, and the peer, once it goes on, sees a reset and no end of a stream.
#include "common.h"

int main(void) {
    static char b[1 << 16];
    int up[2], status = 0;
    struct sockaddr_in where;
    setvbuf(stdout, NULL, _IONBF, 0);
    MUST(pipe(up));
    pid_t reader = MUST(fork());
    if (reader == 0) {
        int l = listener(&where), fd, n;
        MUST(write(up[1], &where, sizeof where));
        fd = MUST(accept(l, NULL, NULL));
        MUST(recv(fd, b, 1, 0));
        raise(SIGSTOP);
        long read = 1;
        while ((n = recv(fd, b, sizeof b, 0)) > 0)
            read += n;
        printf("some of it %d, then %s\n", read > 0 && read < 300000, n < 0 ? strerrorname_np(errno) : "the end");
        _exit(0);
    }
    MUST(read(up[0], &where, sizeof where));
    pid_t writer = MUST(fork());
    if (writer == 0) {
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(fd, SA(where), sizeof where));
        // These end with it, and make the log no longer.
        for (int i = 0; i < 5; i++) {
            int other = MUST(socket(AF_INET, SOCK_STREAM, 0));
            MUST(connect(other, SA(where), sizeof where));
        }
        MUST(send(fd, b, 1, 0));
        nap(200);
        for (long sent = 1; sent < 300000;)
            sent += MUST(send(fd, b, 300000 - sent < (long)sizeof b ? 300000 - sent : (long)sizeof b, 0));
        return 0;
    }
    SHOW(waitpid(writer, &status, 0) == writer);
    SHOW(status);
    MUST(kill(reader, SIGCONT));
    SHOW(waitpid(reader, &status, 0) == reader);
    return 0;
}
