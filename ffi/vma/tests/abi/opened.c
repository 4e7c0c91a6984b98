// Signals end calls of a library that was opened by dlopen(3), past which the program installs its handlers; and so they end a pselect that looks for
// ever and whose mask alone lets them through. The library is named by the first argument; without one, what is preloaded (or libc) is called.
#include "common.h"
#include <dlfcn.h>
#include <sys/select.h>

enum { ROUNDS = 50 };

static volatile sig_atomic_t handled;

static void handler(int signal) {
    (void)signal;
    handled++;
}

// Signals a while after it was asked, and again each 100 ms until it is asked for the next.
static void signaller(pid_t to, int orders) {
    struct pollfd next = {.fd = orders, .events = POLLIN};
    char order;
    alarm(50);
    while (read(orders, &order, 1) == 1) {
        usleep(1000 + order * 100);
        do MUST(kill(to, SIGUSR1));
        while (poll(&next, 1, 100) == 0);
    }
    exit(0);
}

#define ROUND(call)                                                                                                                        \
    do {                                                                                                                                   \
        int interrupted = 0, late = 0;                                                                                                     \
        for (int round = 0; round < ROUNDS; round++) {                                                                                     \
            char order = round;                                                                                                            \
            handled = 0;                                                                                                                   \
            MUST(write(orders[1], &order, 1));                                                                                             \
            interrupted += (call) == -1 && errno == EINTR;                                                                                 \
            late += handled > 1;                                                                                                           \
        }                                                                                                                                  \
        sigset_t mask;                                                                                                                     \
        MUST(sigprocmask(SIG_BLOCK, NULL, &mask));                                                                                         \
        printf("%s: EINTR %s, by the first signal %s, blocked after it: %d %d\n", #call, interrupted == ROUNDS ? "always" : "not always",   \
               late <= ROUNDS / 5 ? "nearly always" : "seldom", sigismember(&mask, SIGUSR1), sigismember(&mask, SIGUSR2));                 \
    } while (0)

#define FROM(name) __typeof__(&name) on_##name = dlsym(library, #name)

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : RTLD_DEFAULT;
    if (argc > 1 && !library) return printf("%s\n", dlerror()), 1;
    FROM(socket);
    FROM(bind);
    FROM(listen);
    FROM(accept);
    FROM(connect);
    FROM(recv);
    FROM(poll);
    FROM(pselect);
    FROM(getsockname);
    int orders[2];
    MUST(pipe(orders));
    pid_t parent = getpid();
    if (!MUST(fork())) {
        close(orders[1]);
        signaller(parent, orders[0]);
    }
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    alarm(50);
    struct sockaddr_in where = loopback(0);
    socklen_t len = sizeof where;
    int listener = MUST(on_socket(AF_INET, SOCK_STREAM, 0)), client = MUST(on_socket(AF_INET, SOCK_STREAM, 0));
    MUST(on_bind(listener, SA(where), sizeof where));
    MUST(on_listen(listener, 16));
    MUST(on_getsockname(listener, SA(where), &len));
    MUST(on_connect(client, SA(where), sizeof where));
    int server = MUST(on_accept(listener, NULL, NULL));
    char byte;
    struct pollfd readable = {.fd = server, .events = POLLIN};
    ROUND(on_accept(listener, NULL, NULL));
    ROUND(on_recv(server, &byte, 1, 0));
    ROUND(on_poll(&readable, 1, -1));
    // Of a mask that lets nothing but it through, and of which nothing else is ready.
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &blocked, NULL));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(server, &set);
    ROUND(on_pselect(server + 1, &set, NULL, NULL, NULL, &none));
    for (int line = 0; line < 8; line++) printf("done\n");
    return 0;
}
