// What TCP holds back (Nagle's algorithm, a window, a handshake) goes on when the peer answers, while the program is elsewhere: the kernel's does.
// The progress thread's tick is set so long that it helps nobody.
#include "common.h"

#define ROUNDS 40
#define PATIENCE_MS 5000

static int told[2], asked[2];

// The other process is told, and waited for, by pipes: the kernel's, so that nobody is in the library meanwhile.
static void tell(void) { MUST(write(asked[1], "!", 1)); }
static int answer(void) {
    char c = '?';
    return read(told[0], &c, 1) == 1 ? c : 'E';
}

// Reads exactly `n` bytes, each wait bounded. 1: they came.
static int take(int fd, size_t n) {
    static char bytes[65536];
    while (n > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MS) != 1) return 0;
        ssize_t got = read(fd, bytes, n < sizeof bytes ? n : sizeof bytes);
        if (got <= 0) return 0;
        n -= got;
    }
    return 1;
}

static int accept_soon(int listening) {
    struct pollfd p = {.fd = listening, .events = POLLIN};
    return poll(&p, 1, PATIENCE_MS) == 1 ? accept(listening, NULL, NULL) : -1;
}

static void say(char c) { MUST(write(told[1], &c, 1)); }

static void wait_for_word(void) {
    char c;
    MUST(read(asked[0], &c, 1));
}

// The reader's process.
static void reader(int listening) {
    alarm(50);
    int fd = accept_soon(listening);
    for (int round = 0; round < ROUNDS; round++) say(take(fd, 16) ? 'y' : 'n');
    close(fd);
    // A window: nothing is read until the writer is elsewhere.
    for (int turn = 0; turn < 2; turn++) {
        fd = accept_soon(listening);
        wait_for_word();
        size_t total;
        MUST(read(asked[0], &total, sizeof total));
        say(take(fd, total) ? 'y' : 'n');
        close(fd);
    }
    fd = accept_soon(listening);
    say(fd >= 0 ? 'y' : 'n');
    exit(0);
}

static int connected(struct sockaddr_in where) {
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(where), sizeof where));
    return fd;
}

static size_t fill(int fd) {
    static char bytes[65536];
    size_t total = 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = write(fd, bytes, sizeof bytes)) > 0;) total += n;
    return total;
}

int main(int argc, char **argv) {
    (void)argc;
    if (getenv("VMA_PROGRESS_ENGINE_INTERVAL") == NULL) {
        setenv("VMA_PROGRESS_ENGINE_INTERVAL", "3600000", 1);
        execv("/proc/self/exe", argv);
    }
    MUST(pipe(told));
    MUST(pipe(asked));
    struct sockaddr_in where;
    int listening = listener(&where);
    pid_t child = MUST(fork());
    if (child == 0) reader(listening);
    close(listening);

    // Two small writes, the second held until the first is acknowledged.
    int fd = connected(where);
    for (int round = 0; round < ROUNDS; round++) {
        MUST(write(fd, "8 bytes.", 8));
        MUST(write(fd, "8 more..", 8));
        printf("round %d: %c\n", round, answer());
    }
    close(fd);

    // A window, and one that is shut when the connection is closed.
    for (int closes = 0; closes < 2; closes++) {
        fd = connected(where);
        size_t total = fill(fd);
        if (closes) close(fd);
        tell();
        MUST(write(asked[1], &total, sizeof total));
        printf("all of it, closed %d: %c\n", closes, answer());
        if (!closes) close(fd);
    }

    // A handshake that nobody waits for.
    fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    SHOW(connect(fd, SA(where), sizeof where) == 0 || errno == EINPROGRESS);
    printf("accepted: %c\n", answer());
    int status;
    MUST(waitpid(child, &status, 0));
    printf("status %d\n", status);
}
