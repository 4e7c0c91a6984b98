// One thread waits for the sockets of several others, which are on their rings, by poll(2), select(2) and epoll_wait(2), and answers each. Of the others, some wait
// for the answer in recv(2), on the ring that the one sleeps on as well; some look for it again and again, so that they find what is the other one's; and some do
// something else meanwhile. If a wake-up is lost, it does not end.
#include "common.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { OTHERS = 5, ROUNDS = 1500 };
static const char *ways[] = {"poll", "select", "epoll_wait", "epoll_wait, told once"};

static int udp, way, instance;
static int asks[OTHERS], answers[OTHERS];
static pthread_barrier_t both;

static void pair(int fds[2]) {
    if (!udp) {
        stream_pair(fds);
        return;
    }
    struct sockaddr_in a, b;
    fds[0] = datagram(&a);
    fds[1] = datagram(&b);
    MUST(connect(fds[0], SA(b), sizeof b));
    MUST(connect(fds[1], SA(a), sizeof a));
}

static void *other(void *argument) {
    long me = (long)argument;
    unsigned seed = me;
    int fds[2];
    pair(fds);
    asks[me] = fds[0];
    answers[me] = fds[1];
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    long wrong = 0;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        unsigned answer = 0;
        MUST(send(fds[0], &round, sizeof round, 0));
        if (me == 4) usleep(rand_r(&seed) % 60);
        while (recv(fds[0], &answer, sizeof answer, me % 2 ? MSG_DONTWAIT : 0) < 0) {
            if (errno != EAGAIN) return (void *)-1;
            sched_yield();
        }
        wrong += answer != round;
    }
    MUST(shutdown(fds[0], SHUT_WR));
    return (void *)wrong;
}

// Which has something, of those that are not over: as bits.
static int those_ready(int waits_for) {
    struct pollfd polled[OTHERS];
    struct epoll_event events[2];
    fd_set set;
    FD_ZERO(&set);
    int found = 0, count;
    for (int i = 0; i < OTHERS; i++) {
        int fd = waits_for >> i & 1 ? answers[i] : -1;
        polled[i] = (struct pollfd){.fd = fd, .events = POLLIN};
        if (fd >= 0) FD_SET(fd, &set);
    }
    if (way == 0) {
        count = MUST(poll(polled, OTHERS, -1));
        for (int i = 0; i < OTHERS; i++) found |= (polled[i].revents != 0) << i;
    } else if (way == 1) {
        count = MUST(select(FD_SETSIZE, &set, NULL, NULL, NULL));
        for (int i = 0; i < OTHERS; i++) found |= (polled[i].fd >= 0 && FD_ISSET(polled[i].fd, &set)) << i;
    } else {
        count = MUST(epoll_wait(instance, events, 2, -1));
        for (int i = 0; i < count; i++) found |= 1 << events[i].data.u32;
    }
    if (__builtin_popcount(found) != count) printf("%d are ready, of %d\n", __builtin_popcount(found), count);
    return found;
}

static void scenario(void) {
    pthread_t threads[OTHERS];
    pthread_barrier_init(&both, NULL, OTHERS + 1);
    for (long i = 0; i < OTHERS; i++) MUST(-pthread_create(&threads[i], NULL, other, (void *)i));
    pthread_barrier_wait(&both);
    instance = MUST(epoll_create1(0));
    for (int i = 0; i < OTHERS; i++) {
        struct epoll_event event = {.events = EPOLLIN | (way == 3 ? (int)EPOLLET : 0), .data.u32 = i};
        MUST(epoll_ctl(instance, EPOLL_CTL_ADD, answers[i], &event));
    }
    pthread_barrier_wait(&both);
    long asked[OTHERS] = {0}, wrong = 0;
    for (int waits_for = (1 << OTHERS) - 1; waits_for;) {
        int found = those_ready(waits_for) & waits_for;
        for (int i = 0; i < OTHERS; i++) {
            while (found >> i & 1) {
                unsigned round;
                long got = recv(answers[i], &round, sizeof round, MSG_DONTWAIT);
                if (got == sizeof round) {
                    wrong += round != ++asked[i];
                    MUST(send(answers[i], &round, sizeof round, 0));
                    // (A datagram socket tells of no end.)
                    if (!udp || asked[i] < ROUNDS) continue;
                } else if (got < 0) {
                    wrong += errno != EAGAIN;
                    break;
                }
                waits_for &= ~(1 << i);
                break;
            }
        }
    }
    for (int i = 0; i < OTHERS; i++) {
        void *result;
        MUST(-pthread_join(threads[i], &result));
        printf("%s, %s: %ld asked, %ld wrong, %ld answers wrong\n", udp ? "datagrams" : "streams", ways[way], asked[i], wrong, (long)result);
        MUST(close(asks[i]));
        MUST(close(answers[i]));
    }
    MUST(close(instance));
}

int main(void) {
    alarm(100);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (udp = 0; udp < 2; udp++)
        for (way = 0; way < 4; way++) scenario();
    return 0;
}
