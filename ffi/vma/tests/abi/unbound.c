// A process that has an address no more, though it says so: what is sent there goes where the kernel takes it, to nobody or to another user.
#include "common.h"
#include <sys/syscall.h>

enum { NOBODY = 65534 };

// close(2) of which the library does not hear.
static void close_unseen(int fd) {
    long result;
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "=a"(result) : "a"((long)SYS_close), "D"((long)fd) : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = SYS_close, first __asm__("x0") = fd;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(number) : "memory");
    result = first;
#endif
    if (result != 0)
        abort();
}

static int try(struct sockaddr_in where, int nonblocking) {
    int fd = MUST(socket(AF_INET, SOCK_STREAM | (nonblocking ? SOCK_NONBLOCK : 0), 0)), error = 0;
    socklen_t len = sizeof error;
    if (connect(fd, SA(where), sizeof where) < 0 && errno != EINPROGRESS)
        error = errno;
    else if (nonblocking) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        MUST(poll(&p, 1, 5000));
        MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    }
    if (error) {
        printf("connect: %s\n", strerrorname_np(error));
        close(fd);
        return -1;
    }
    return fd;
}

static void greeted(const char *by, struct sockaddr_in where, int nonblocking) {
    char b[32] = {0};
    int fd = try(where, nonblocking);
    if (fd < 0)
        return;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ready = poll(&p, 1, 5000);
    printf("%s, who: %s\n", by, ready == 1 && recv(fd, b, sizeof b - 1, 0) >= 0 ? b : "nobody");
    close(fd);
}

// Greets who comes, and closes after it: a connection that is closed here first would keep the address from others for a while.
static void greet(int l, const char *words) {
    char b;
    int fd = MUST(accept(l, NULL, NULL));
    MUST(send(fd, words, strlen(words), MSG_NOSIGNAL));
    while (recv(fd, &b, 1, 0) > 0)
        continue;
    close(fd);
}

// Takes the address as another user, who may have it now.
static pid_t other(struct sockaddr_in where) {
    int told[2];
    char b;
    MUST(pipe(told));
    pid_t pid = MUST(fork());
    if (pid == 0) {
        int on = 1;
        MUST(setresuid(NOBODY, NOBODY, NOBODY));
        int l = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
        MUST(bind(l, SA(where), sizeof where));
        MUST(listen(l, 8));
        MUST(write(told[1], "", 1));
        for (;;)
            greet(l, "the other");
    }
    MUST(read(told[0], &b, 1));
    close(told[0]), close(told[1]);
    return pid;
}

int main(void) {
    int up[2], down[2];
    char b;
    struct sockaddr_in where;
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGPIPE, SIG_IGN);
    MUST(pipe(up));
    MUST(pipe(down));
    pid_t first = MUST(fork());
    if (first == 0) {
        int l = listener(&where);
        MUST(write(up[1], &where, sizeof where));
        greet(l, "the first");
        MUST(read(down[0], &b, 1));
        // From here on it has no listener, while its library goes on saying so.
        close_unseen(l);
        MUST(write(up[1], "", 1));
        for (;;)
            pause();
    }
    MUST(read(up[0], &where, sizeof where));
    greeted("while it listens", where, 0);
    MUST(write(down[1], "", 1));
    MUST(read(up[0], &b, 1));
    // What was known of it may be believed for a second.
    nap(1500);
    for (int i = 0; i < 12; i++)
        greeted("once it is closed", where, i % 2);
    // (Only root can become another user.)
    if (geteuid() == 0) {
        pid_t second = other(where);
        for (int i = 0; i < 4; i++)
            greeted("once another has it", where, i % 2);
        MUST(kill(second, SIGKILL));
        MUST(waitpid(second, NULL, 0));
    }
    MUST(kill(first, SIGKILL));
    MUST(waitpid(first, NULL, 0));
    return 0;
}
