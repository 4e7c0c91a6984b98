// Datagrams to somebody who is too busy to say who he is (stopped, here) go by the kernel: once he looks whom to answer, he finds the asker.
#include "common.h"

#define ROUNDS 20

// Waits until a process is in that state (proc_pid_stat(5)).
static void await_state(pid_t pid, char state) {
    char path[64], line[256], found = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    while (found != state) {
        FILE *file = fopen(path, "r");
        char *behind = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        found = behind ? behind[2] : 0;
        if (file)
            fclose(file);
        nap(1);
    }
}

static int echo(int told, int tell) {
    struct sockaddr_in where, from;
    int fd = datagram(&where);
    char b[64];
    MUST(write(tell, &where, sizeof where));
    MUST(read(told, b, 1));
    for (int round = 0; round < ROUNDS; round++) {
        socklen_t len = sizeof from;
        ssize_t n = MUST(recvfrom(fd, b, sizeof b, 0, SA(from), &len));
        MUST(sendto(fd, b, n, 0, SA(from), len));
    }
    // (What it sends last is taken from its ring while it lives.)
    MUST(read(told, b, 1));
    return 0;
}

static int ask(pid_t other, const struct sockaddr_in *where, int tell) {
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    struct timeval time = {.tv_sec = 5};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    MUST(kill(other, SIGSTOP));
    await_state(other, 'T');
    MUST(write(tell, "g", 1));
    for (int round = 0; round < ROUNDS; round++) {
        char byte = 'a' + round, answer = 0;
        SHOW(sendto(fd, &byte, 1, MSG_DONTWAIT, SA(*where), sizeof *where));
        if (round == 0)
            MUST(kill(other, SIGCONT));
        SHOW(recv(fd, &answer, 1, 0));
        SHOW(answer == byte);
    }
    MUST(write(tell, "e", 1));
    return 0;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int up[2], down[2], status;
    struct sockaddr_in where;
    MUST(pipe(up));
    MUST(pipe(down));
    pid_t server = MUST(fork());
    if (server == 0)
        return echo(down[0], up[1]);
    MUST(read(up[0], &where, sizeof where));
    pid_t client = MUST(fork());
    if (client == 0)
        return ask(server, &where, down[1]);
    SHOW(waitpid(client, &status, 0) == client);
    SHOW(status);
    SHOW(waitpid(server, &status, 0) == server);
    SHOW(status);
    return 0;
}
