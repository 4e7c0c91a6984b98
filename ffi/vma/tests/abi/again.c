// A client that uses its ports again as soon as its server has closed: each connect succeeds, and at once. (A SYN that is dropped comes again
// after a second: half of that tells the two apart on any machine.)
#include "common.h"

#define ROUNDS 60
#define REQUEST 4000

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// Answers nothing: reads each request, and closes first. Every third time it is busy elsewhere afterwards.
static void server(int listening) {
    static char bytes[REQUEST];
    for (int round = 0; round < ROUNDS; round++) {
        int fd = MUST(accept(listening, NULL, NULL));
        if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes) exit(2);
        close(fd);
        if (round % 3 == 2) usleep(2000);
    }
    exit(0);
}

int main(void) {
    static char bytes[REQUEST];
    struct sockaddr_in where, own[2];
    int told[2];
    MUST(pipe(told));
    pid_t child = MUST(fork());
    if (child == 0) {
        alarm(30);
        int listening = listener(&where);
        MUST(write(told[1], &where, sizeof where));
        server(listening);
    }
    MUST(read(told[0], &where, sizeof where));
    for (int i = 0; i < 2; i++) {
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        own[i] = loopback(0);
        MUST(bind(fd, SA(own[i]), sizeof own[i]));
        socklen_t len = sizeof own[i];
        MUST(getsockname(fd, SA(own[i]), &len));
        MUST(close(fd));
    }
    for (int round = 0; round < ROUNDS; round++) {
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(bind(fd, SA(own[round / 2 % 2]), sizeof own[0]));
        double began = seconds();
        SHOW(connect(fd, SA(where), sizeof where));
        if (seconds() - began > 0.5) printf("round %d: slowly\n", round);
        SHOW(send(fd, bytes, sizeof bytes, 0));
        SHOW(recv(fd, bytes, sizeof bytes, 0));
        SHOW(close(fd));
    }
    int status;
    MUST(waitpid(child, &status, 0));
    printf("status %d\n", status);
}
