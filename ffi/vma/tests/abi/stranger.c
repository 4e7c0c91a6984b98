// A process of the same user leaves another the rest of connections that it has nothing to do with: nothing is kept of that, however much.
#include "common.h"
#include <stddef.h>
#include <sys/mman.h>
#include <sys/un.h>

// Connects to where the process is talked to: names do not tell whose they are, but the kernel does.
static int dialogue_with(pid_t pid) {
    char prefix[64], line[512];
    int len = snprintf(prefix, sizeof prefix, "@ringway/%d/dialogue/", (int)geteuid());
    FILE *names = fopen("/proc/net/unix", "r");
    while (names && fgets(line, sizeof line, names)) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        struct ucred who = {0};
        socklen_t whos = sizeof who;
        char *name = strrchr(line, ' ');
        if (!name || strncmp(name + 1, prefix, len) != 0)
            continue;
        int bytes = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
        int fd = MUST(socket(AF_UNIX, SOCK_SEQPACKET, 0));
        if (connect(fd, SA(a), offsetof(struct sockaddr_un, sun_path) + 1 + bytes) == 0
            && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &whos) == 0 && who.pid == pid) {
            fclose(names);
            return fd;
        }
        close(fd);
    }
    fprintf(stderr, "process %d has no such name\n", (int)pid);
    exit(1);
}

static void keep(int dialogue, const char *what, int other, int file, struct sockaddr_in local, struct sockaddr_in remote) {
    char words[100], space[CMSG_SPACE(2 * sizeof(int))] = {0}, answer[64] = {0};
    snprintf(words, sizeof words, "keep 127.0.0.1:%d 127.0.0.1:%d", ntohs(local.sin_port), ntohs(remote.sin_port));
    struct iovec data = {words, strlen(words)};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(h), (int[]){other, file}, 2 * sizeof(int));
    // (Descriptors are let through once the other side has seen whose the connection is: EPERM until then.)
    ssize_t sent;
    for (int tries = 0; (sent = sendmsg(dialogue, &m, 0)) < 0 && errno == EPERM && tries < 5000; tries++) nap(1);
    MUST(sent);
    MUST(recv(dialogue, answer, sizeof answer - 1, 0));
    printf("%s: %s\n", what, answer);
}

int main(void) {
    struct sockaddr_in ends[2], strange;
    int up[2], down[2], pair[2];
    setvbuf(stdout, NULL, _IONBF, 0);
    MUST(pipe(up));
    MUST(pipe(down));
    pid_t victim = MUST(fork());
    if (victim == 0) {
        socklen_t len = sizeof ends[1];
        char b[1];
        int l = listener(&ends[0]), c = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(c, SA(ends[0]), sizeof ends[0]));
        MUST(accept(l, NULL, NULL));
        MUST(getsockname(c, SA(ends[1]), &len));
        MUST(write(up[1], ends, sizeof ends));
        close(down[1]);
        read(down[0], b, 1);
        _exit(0);
    }
    MUST(read(up[0], ends, sizeof ends));
    int talk = dialogue_with(victim), file = MUST(memfd_create("rest", MFD_ALLOW_SEALING)), huge = MUST(memfd_create("rest", MFD_ALLOW_SEALING));
    MUST(ftruncate(file, 1 << 20));
    MUST(ftruncate(huge, 200 << 20));
    int elsewhere = MUST(socket(AF_INET, SOCK_STREAM, 0)), l = listener(&strange);
    MUST(connect(elsewhere, SA(strange), sizeof strange));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    keep(talk, "no TCP", pair[0], file, ends[0], ends[1]);
    keep(talk, "a connection to somebody else", elsewhere, file, ends[0], ends[1]);
    keep(talk, "no such connection", elsewhere, file, strange, ends[1]);
    keep(talk, "more than is ever kept", elsewhere, huge, ends[0], ends[1]);
    keep(talk, "no memory file", elsewhere, l, ends[0], ends[1]);
    close(down[1]);
    waitpid(victim, NULL, 0);
    return 0;
}
