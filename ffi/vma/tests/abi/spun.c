// Two processes that send each other datagrams and bytes and wait by looking for ever: nothing else happens that would tell a waiting thread what has
// come. Each has threads with sockets of their own. (A wake-up that is missed ends the program by its alarm.)
#include "common.h"
#include <sys/epoll.h>

enum { ROUNDS = 100 };

static void *has_one_too(void *argument) {
    (void)argument;
    struct sockaddr_in where;
    char b[4];
    int u = datagram(&where);
    MUST(sendto(u, "own", 3, 0, SA(where), sizeof where));
    MUST(recv(u, b, sizeof b, 0));
    return NULL;
}

// Another thread opens a socket, and stays.
static void *stays(void *argument) {
    has_one_too(argument);
    pause();
    return NULL;
}

static int next(int fd, int epoll) {
    char byte = -1;
    struct epoll_event event;
    if (epoll >= 0) MUST(epoll_wait(epoll, &event, 1, -1));
    return recv(fd, &byte, 1, 0) == 1 ? byte : -2;
}

static long talk(int fd, int epoll, int begins) {
    long wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char byte = (char)(i % 100);
        if (begins) MUST(send(fd, &byte, 1, 0));
        wrong += next(fd, epoll) != byte;
        if (!begins) MUST(send(fd, &byte, 1, 0));
    }
    return wrong;
}

static int instance(int fd, uint32_t manner) {
    struct epoll_event event = {.events = EPOLLIN | manner};
    int epoll = MUST(epoll_create1(0));
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    return epoll;
}

// Plain calls; epoll, which tells as long as there is something; epoll, which tells once.
static long all_ways(int fd, int begins) {
    long wrong = talk(fd, -1, begins);
    int level = instance(fd, 0);
    wrong += talk(fd, level, begins);
    MUST(close(level));
    int edge = instance(fd, EPOLLET);
    wrong += talk(fd, edge, begins);
    MUST(close(edge));
    return wrong;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int there[2], back[2];
    MUST(pipe(there));
    MUST(pipe(back));
    pid_t child = MUST(fork());
    alarm(120);
    pthread_t thread;
    MUST(-pthread_create(&thread, NULL, stays, NULL));
    struct sockaddr_in own, other, where;
    int begins = child != 0, u = datagram(&own);
    MUST(write(begins ? there[1] : back[1], &own, sizeof own));
    MUST(read(begins ? back[0] : there[0], &other, sizeof other));
    MUST(connect(u, SA(other), sizeof other));
    // Both are connected before the first datagram.
    MUST(write(begins ? there[1] : back[1], "x", 1));
    MUST(read(begins ? back[0] : there[0], &(char){0}, 1));
    long of_datagrams = all_ways(u, begins);
    int s;
    if (begins) {
        int l = listener(&where);
        MUST(write(there[1], &where, sizeof where));
        s = MUST(accept(l, NULL, NULL));
    } else {
        MUST(read(there[0], &where, sizeof where));
        s = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(s, SA(where), sizeof where));
    }
    long of_bytes = all_ways(s, begins);
    if (child == 0) _exit(of_datagrams + of_bytes == 0 ? 7 : 8);
    int status = -1;
    MUST(waitpid(child, &status, 0));
    SHOW(WIFEXITED(status));
    SHOW(WEXITSTATUS(status));
    SHOW(of_datagrams);
    SHOW(of_bytes);
    for (int i = 0; i < 8; i++) {
        MUST(-pthread_create(&thread, NULL, has_one_too, NULL));
        SHOW(-pthread_join(thread, NULL));
    }
    return 0;
}
