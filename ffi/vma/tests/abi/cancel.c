// Threads that are cancelled: in a blocking call, before one, and while they don't let themselves be.
#include "common.h"
#include <sys/epoll.h>

static int pair_[2], listening, instance, pipe_[2], udp;
static int cleanups;

static void cleanup(void *argument) { cleanups += *(int *)argument; }

static void wait_in(int what) {
    char b[64];
    struct pollfd p = {.fd = pair_[0], .events = POLLIN};
    struct epoll_event e;
    fd_set set;
    struct msghdr m = {0};
    struct iovec v = {b, sizeof b};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    FD_ZERO(&set);
    FD_SET(pair_[0], &set);
    switch (what) {
    case 0: recv(pair_[0], b, 64, 0); break;
    case 1: read(pair_[0], b, 64); break;
    case 2: accept(listening, NULL, NULL); break;
    case 3: poll(&p, 1, -1); break;
    case 4: epoll_wait(instance, &e, 1, -1); break;
    case 5: select(pair_[0] + 1, &set, NULL, NULL, NULL); break;
    case 6: recvmsg(pair_[0], &m, 0); break;
    case 7: recv(udp, b, 64, 0); break;
    case 8: read(pipe_[0], b, 64); break;
    case 9: ppoll(&p, 1, NULL, NULL); break;
    case 10:
        for (;;) // Never blocks, and yet is a cancellation point.
            recv(pair_[0], b, 64, MSG_DONTWAIT);
    case 11: {
        static char big[1 << 20];
        while (send(pair_[0], big, sizeof big, 0) > 0) {}
    }
    }
}

static void *waiter(void *argument) {
    int one = 1;
    pthread_cleanup_push(cleanup, &one);
    wait_in(*(int *)argument);
    pthread_cleanup_pop(0);
    return NULL;
}

static void blocked(void) {
    for (int what = 0; what < 12; what++) {
        for (int early = 0; early < 2; early++) {
            pthread_t t;
            void *result = NULL;
            cleanups = 0;
            pthread_create(&t, NULL, waiter, &what);
            if (!early)
                nap(30);
            SHOW(pthread_cancel(t));
            SHOW(pthread_join(t, &result));
            SHOW(result == PTHREAD_CANCELED);
            SHOW(cleanups);
        }
    }
}

static void *stubborn(void *argument) {
    (void)argument;
    int old;
    char b[8];
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    SHOW(recv(pair_[0], b, 8, 0));
    pthread_setcancelstate(old, NULL);
    SHOW(old);
    pthread_testcancel();
    printf("not reached\n");
    return NULL;
}

static void disabled(void) {
    pthread_t t;
    void *result = NULL;
    pthread_create(&t, NULL, stubborn, NULL);
    nap(30);
    SHOW(pthread_cancel(t));
    nap(50);
    MUST(send(pair_[1], "bytes", 5, 0));
    SHOW(pthread_join(t, &result));
    SHOW(result == PTHREAD_CANCELED);
}

// After all that, no lock is held, and threads that are not cancelled wait as ever.
static void *plain(void *argument) {
    char b[8];
    *(long *)argument = recv(pair_[0], b, 8, 0);
    return NULL;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    struct sockaddr_in where;
    stream_pair(pair_);
    listening = listener(&where);
    udp = datagram(&where);
    MUST(pipe(pipe_));
    instance = MUST(epoll_create1(0));
    struct epoll_event e = {.events = EPOLLIN};
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, pair_[0], &e));
    blocked();
    close(pair_[0]);
    close(pair_[1]);
    stream_pair(pair_);
    disabled();
    pthread_t t;
    long received = -1;
    pthread_create(&t, NULL, plain, &received);
    nap(30);
    SHOW(send(pair_[1], "again", 5, 0));
    SHOW(pthread_join(t, NULL));
    SHOW(received);
    SHOW(close(pair_[0]));
    SHOW(close(pair_[1]));
    return 0;
}
