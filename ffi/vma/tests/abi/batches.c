// recvmmsg and sendmmsg, in whole and in part: the time that is left, messages that fail behind others, and errors that wait.
#include "common.h"

enum { N = 6 };
static struct mmsghdr m[N];
static struct iovec v[N];
static char data[N][70000];
static struct sockaddr_in names[N];

static void fresh(size_t len, struct sockaddr_in *to) {
    memset(m, 0, sizeof m);
    for (int i = 0; i < N; i++) {
        v[i] = (struct iovec){data[i], len};
        m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1, .msg_name = to, .msg_namelen = to ? sizeof *to : 0};
        m[i].msg_len = 0x5555;
    }
}

static void lengths(void) {
    printf("  lengths and flags:");
    for (int i = 0; i < N; i++) printf(" %x/%x", m[i].msg_len, m[i].msg_hdr.msg_flags);
    printf("\n");
}

static long since_ms(struct timespec start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
}

static int drain(int fd) {
    int n = 0;
    char c[10];
    while (recv(fd, c, 10, MSG_DONTWAIT) >= 0) n++;
    return n;
}

static void *later(void *argument) {
    int fd = *(int *)argument;
    for (int i = 0; i < 3; i++) {
        nap(100);
        send(fd, "late", 4, 0);
    }
    return NULL;
}

static void burst(int fd, int count) {
    for (int i = 0; i < count; i++) MUST(send(fd, "abcdef", 6 - i, 0));
}

// The time is looked at after a datagram only, and what is left of it is told.
static void waited(int a, int b, long ms, int count) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000}, start;
    pthread_t thread;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pthread_create(&thread, NULL, later, &a);
    fresh(100, NULL);
    SHOW(recvmmsg(b, m, count, 0, &left));
    lengths();
    long took = since_ms(start), rest = left.tv_sec * 1000 + left.tv_nsec / 1000000;
    SHOW(took >= 100);
    SHOW(left.tv_sec == 0 && left.tv_nsec == 0);
    SHOW(rest == 0 || (rest <= ms - 200 && rest >= ms - took - 2));
    pthread_join(thread, NULL);
    nap(20);
    SHOW(drain(b));
}

static void receives(int a, int b) {
    burst(a, 3);
    fresh(100, NULL);
    SHOW(recvmmsg(b, m, N, MSG_DONTWAIT, NULL));
    lengths();
    SHOW(recvmmsg(b, m, N, MSG_DONTWAIT, NULL));
    burst(a, 3);
    fresh(100, NULL);
    SHOW(recvmmsg(b, m, N, MSG_WAITFORONE, NULL));
    lengths();
    waited(a, b, 50, N);
    waited(a, b, 150, N);
    waited(a, b, 5000, 2);
    struct timespec none = {0, 0}, nanoseconds = {0, 1000000000}, negative = {-1, 0};
    burst(a, 2);
    SHOW(recvmmsg(b, m, N, 0, &none));
    SHOW(drain(b));
    SHOW(recvmmsg(b, m, N, MSG_DONTWAIT, &none));
    SHOW(recvmmsg(b, m, N, 0, &nanoseconds));
    SHOW(nanoseconds.tv_nsec);
    SHOW(recvmmsg(b, m, N, 0, &negative));
    SHOW(recvmmsg(b, m, 0, 0, NULL));
    SHOW(recvmmsg(b, NULL, 0, 0, NULL));
    // The second has a bad buffer.
    burst(a, 2);
    fresh(100, NULL);
    v[1].iov_base = (void *)8;
    SHOW(recvmmsg(b, m, N, MSG_DONTWAIT, NULL));
    lengths();
    drain(b);
    // The second has little room for its name.
    burst(a, 3);
    fresh(100, names);
    m[1].msg_hdr.msg_namelen = 3;
    SHOW(recvmmsg(b, m, N, MSG_DONTWAIT, NULL));
    for (int i = 0; i < 3; i++) SHOW(m[i].msg_hdr.msg_namelen);
    for (int flags = MSG_DONTWAIT; flags <= (MSG_DONTWAIT | MSG_TRUNC | MSG_PEEK); flags++) {
        if (flags & ~(MSG_DONTWAIT | MSG_TRUNC | MSG_PEEK)) continue;
        burst(a, 2);
        fresh(2, NULL);
        SHOW(recvmmsg(b, m, 3, flags, NULL));
        lengths();
        SHOW(drain(b));
    }
}

static void sends(int a, int b, struct sockaddr_in *where) {
    struct sockaddr_in other = *where;
    int on = 1;
    fresh(5, where);
    SHOW(sendmmsg(a, m, 4, 0));
    lengths();
    SHOW(drain(b));
    for (int way = 0; way < 13; way++) {
        fresh(5, where);
        other = *where;
        struct msghdr *second = &m[1].msg_hdr;
        switch (way) {
        case 0: v[1].iov_len = 66000; break;
        case 1: v[1].iov_base = (void *)8; break;
        case 2: second->msg_namelen = 4; break;
        case 3: second->msg_namelen = 300; break;
        case 4: second->msg_namelen = -1; break;
        case 5: second->msg_name = (void *)8; break;
        case 6: second->msg_iovlen = 1025; break;
        case 7: second->msg_control = &on, second->msg_controllen = sizeof on; break;
        case 8: v[1].iov_len = 0; break;
        case 9: second->msg_iov = NULL, second->msg_iovlen = 0; break;
        case 10: other.sin_family = AF_UNIX, second->msg_name = &other; break;
        case 11: other.sin_port = 0, second->msg_name = &other; break;
        case 12: second->msg_name = NULL, second->msg_namelen = 0; break;
        }
        printf("way %d\n", way);
        SHOW(sendmmsg(a, m, 4, 0));
        lengths();
        SHOW(drain(b));
        SHOW(sendmmsg(a, m + 1, 1, 0));
        SHOW(drain(b));
    }
    fresh(5, where);
    SHOW(sendmmsg(a, m, 0, 0));
    SHOW(sendmmsg(a, m, 4, MSG_OOB));
    SHOW(drain(b));
    SHOW(sendmmsg(a, m, 4, MSG_MORE));
    SHOW(drain(b));
    SHOW(send(a, "", 0, 0));
    SHOW(drain(b));
}

static void streams(void) {
    int s[2];
    stream_pair(s);
    fresh(5, NULL);
    SHOW(sendmmsg(s[0], m, 4, 0));
    lengths();
    nap(30);
    fresh(7, NULL);
    SHOW(recvmmsg(s[1], m, 4, MSG_DONTWAIT, NULL));
    lengths();
    fresh(5, NULL);
    v[2].iov_base = (void *)8;
    SHOW(sendmmsg(s[0], m, 4, 0));
    lengths();
    MUST(shutdown(s[0], SHUT_WR));
    nap(30);
    fresh(4, NULL);
    SHOW(recvmmsg(s[1], m, N, 0, NULL));
    lengths();
    fresh(4, NULL);
    SHOW(recvmmsg(s[1], m, 3, MSG_WAITFORONE, NULL));
    MUST(close(s[0]));
    MUST(close(s[1]));
    stream_pair(s);
    MUST(close(s[1]));
    nap(20);
    MUST(send(s[0], "x", 1, 0));
    nap(20);
    fresh(5, NULL);
    SHOW(sendmmsg(s[0], m, 4, MSG_NOSIGNAL));
    lengths();
    SHOW(sendmmsg(s[0], m, 4, MSG_NOSIGNAL));
    MUST(close(s[0]));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    struct sockaddr_in a, b, gone;
    int from = datagram(&a), to = datagram(&b), g = datagram(&gone);
    sends(from, to, &b);
    MUST(connect(from, SA(b), sizeof b));
    sends(from, to, &b);
    receives(from, to);
    streams();
    // An error that waits.
    MUST(connect(from, SA(gone), sizeof gone));
    MUST(close(g));
    MUST(send(from, "x", 1, 0));
    nap(20);
    fresh(5, NULL);
    SHOW(recvmmsg(from, m, 4, MSG_DONTWAIT, NULL));
    SHOW(recvmmsg(from, m, 4, MSG_DONTWAIT, NULL));
    MUST(send(from, "x", 1, 0));
    nap(20);
    SHOW(sendmmsg(from, m, 1, 0));
    lengths();
    return 0;
}
