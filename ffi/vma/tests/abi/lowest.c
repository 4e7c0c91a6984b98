// POSIX: a call that makes a descriptor gives it the lowest number that is free, whatever the library has and makes meanwhile in other threads.
#include "common.h"
#include "unseen.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/un.h>

static volatile int is_over;

// Each time that it is connected to a socket which the library has not seen, the library looks for whoever has that, by sockets of its own. (The program
// makes none meanwhile.)
static void *asks(void *unused) {
    (void)unused;
    struct sockaddr_in to[2];
    socklen_t len = sizeof to[0];
    for (int i = 0; i < 2; i++) {
        int fd = MUST(unseen(SYS_socket, AF_INET, SOCK_DGRAM, 0));
        to[i] = loopback(0);
        MUST(unseen(SYS_bind, fd, (long)&to[i], len));
        MUST(getsockname(fd, SA(to[i]), &len));
    }
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    for (int i = 0; !is_over; i++) MUST(connect(fd, SA(to[i & 1]), len));
    return NULL;
}

// How many numbers were others than those from `first` on; all of them are free again.
static int others(int first, const int *numbers, int n) {
    int wrong = 0;
    for (int i = 0; i < n; i++) wrong += numbers[i] != first + i;
    for (int i = 0; i < n; i++) MUST(close(numbers[i]));
    return wrong;
}

static int made_at_once(int first) {
    int n[12];
    n[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
    n[1] = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    n[2] = MUST(dup(n[0]));
    n[3] = MUST(fcntl(n[1], F_DUPFD_CLOEXEC, 0));
    MUST(pipe(n + 4));
    n[6] = MUST(eventfd(0, 0));
    n[7] = MUST(epoll_create1(0));
    n[8] = MUST(open("/dev/null", O_RDONLY));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, n + 9));
    n[11] = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    return others(first, n, 12);
}

static int accepted(int listener, const struct sockaddr *to, socklen_t len, int first) {
    int n[2];
    n[0] = MUST(socket(to->sa_family, SOCK_STREAM, 0));
    MUST(connect(n[0], to, len));
    n[1] = MUST(accept(listener, NULL, NULL));
    // (A reset needs no port afterwards.)
    struct linger at_once = {1, 0};
    setsockopt(n[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return others(first, n, 2);
}

// One that waits in accept when the connection comes.
static void *waits(void *listener) { return (void *)(long)MUST(accept(*(int *)listener, NULL, NULL)); }

static int accepted_after_waiting(int listener, const struct sockaddr *to, socklen_t len, int first) {
    pthread_t thread;
    void *got;
    int n[2] = {MUST(socket(to->sa_family, SOCK_STREAM, 0))};
    pthread_create(&thread, NULL, waits, &listener);
    nap(1);
    MUST(connect(n[0], to, len));
    pthread_join(thread, &got);
    n[1] = (int)(long)got;
    return others(first, n, 2);
}

int main(void) {
    // (What whoever started this has left.)
    closefrom(3);
    struct sockaddr_in to;
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    snprintf(local.sun_path + 1, sizeof local.sun_path - 1, "lowest-%d", getpid());
    int listening = listener(&to), unix_listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    MUST(bind(unix_listener, SA(local), sizeof local));
    MUST(listen(unix_listener, 8));
    // What the library makes with the first connection is made.
    int pair[2];
    stream_pair(pair);
    pthread_t thread;
    pthread_create(&thread, NULL, asks, NULL);
    nap(50);
    int first = MUST(dup(0)), once = 0, tcp = 0, by_unix = 0, waited = 0;
    MUST(close(first));
    SHOW(first);
    for (int i = 0; i < 3000; i++) once += made_at_once(first);
    SHOW(once);
    for (int i = 0; i < 300; i++) tcp += accepted(listening, SA(to), sizeof to, first);
    SHOW(tcp);
    for (int i = 0; i < 3000; i++) by_unix += accepted(unix_listener, SA(local), sizeof local, first);
    SHOW(by_unix);
    for (int i = 0; i < 100; i++) waited += accepted_after_waiting(unix_listener, SA(local), sizeof local, first);
    SHOW(waited);
    is_over = 1;
    pthread_join(thread, NULL);
    // And a number that is free is not taken under a duplicate's hands.
    for (int i = 0; i < 6; i++) SHOW(MUST(dup2(0, first)) == first && close(first) == 0);
    SHOW(made_at_once(first));
    return 0;
}
