/* Sends that send nothing (VMA_SND_FLAGS_DUMMY). Prints what is wrong, and nothing else. */
#include "check.h"

static char bytes[3000], room[3000];

/* By each of the four calls. */
static ssize_t by_sendmsg(int fd, const void *from, size_t len, int flags) {
    struct iovec iov = {(void *)from, len};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    return sendmsg(fd, &message, flags);
}
static ssize_t by_sendmmsg(int fd, const void *from, size_t len, int flags) {
    struct iovec iov = {(void *)from, len};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
    int sent = sendmmsg(fd, &message, 1, flags);
    return sent == 1 ? (ssize_t)message.msg_len : sent;
}
static ssize_t by_sendto(int fd, const void *from, size_t len, int flags) { return sendto(fd, from, len, flags, NULL, 0); }

typedef ssize_t sending(int fd, const void *from, size_t len, int flags);
static sending *const calls[] = {send, by_sendto, by_sendmsg, by_sendmmsg};

static void nothing_waits(int fd) {
    nap(20);
    FAILS(recv(fd, room, sizeof room, MSG_DONTWAIT), EAGAIN);
}

static void udp(void) {
    struct sockaddr_in where, elsewhere;
    int r = datagram(&where), s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), k = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    FAILS(send(s, bytes, 5, VMA_SND_FLAGS_DUMMY), EINVAL);
    CHECK(sendto(s, bytes, 5, VMA_SND_FLAGS_DUMMY, SA(where), sizeof where) == 5);
    MUST(connect(s, SA(where), sizeof where));
    for (size_t i = 0; i < 4; i++) {
        CHECK(calls[i](s, bytes, 5, VMA_SND_FLAGS_DUMMY) == 5);
        CHECK(calls[i](s, bytes, sizeof bytes, VMA_SND_FLAGS_DUMMY) == sizeof bytes);
        CHECK(calls[i](s, NULL, 0, VMA_SND_FLAGS_DUMMY) == 0);
    }
    nothing_waits(r);
    CHECK(send(s, "real", 4, 0) == 4 && recv(r, room, sizeof room, 0) == 4 && memcmp(room, "real", 4) == 0);
    /* A thousand cost no buffer, and no place in a queue. */
    for (int i = 0; i < 1000; i++)
        CHECK(send(s, bytes, 2000, VMA_SND_FLAGS_DUMMY | MSG_DONTWAIT) == 2000);
    CHECK(send(s, bytes, 2000, 0) == 2000 && recv(r, room, sizeof room, 0) == 2000);
    /* Nobody offloads that address. */
    elsewhere = loopback(9);
    FAILS(sendto(k, bytes, 5, VMA_SND_FLAGS_DUMMY, SA(elsewhere), sizeof elsewhere), EINVAL);
    MUST(close(r));
    MUST(close(s));
    MUST(close(k));
}

static void tcp(void) {
    int ends[2], one = 1;
    stream_pair(ends);
    MUST(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    for (size_t i = 0; i < 4; i++) {
        CHECK(calls[i](ends[0], bytes, 5, VMA_SND_FLAGS_DUMMY) == 5);
        CHECK(calls[i](ends[0], bytes, sizeof bytes, VMA_SND_FLAGS_DUMMY) == sizeof bytes);
        FAILS(calls[i](ends[0], bytes, 0, VMA_SND_FLAGS_DUMMY), EAGAIN);
    }
    nothing_waits(ends[1]);
    CHECK(send(ends[0], "real", 4, 0) == 4 && recv(ends[1], room, sizeof room, 0) == 4 && memcmp(room, "real", 4) == 0);
    FAILS(send(ends[0], bytes, 5, VMA_SND_FLAGS_DUMMY | MSG_MORE), EAGAIN);
    struct iovec iov[2] = {{bytes, 5}, {bytes, 5}};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
    FAILS(sendmsg(ends[0], &message, VMA_SND_FLAGS_DUMMY), EAGAIN);
    /* More than a window. */
    while (send(ends[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
    FAILS(send(ends[0], bytes, 5, VMA_SND_FLAGS_DUMMY), EAGAIN);
    MUST(shutdown(ends[0], SHUT_WR));
    signal(SIGPIPE, SIG_IGN);
    FAILS(send(ends[0], bytes, 5, VMA_SND_FLAGS_DUMMY), EPIPE);
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

/* Where the kernel would send, it does not. */
static void refusals(void) {
    int ends[2], l, fresh = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in where;
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    for (size_t i = 0; i < 4; i++) {
        FAILS(calls[i](ends[0], "x", 1, VMA_SND_FLAGS_DUMMY), EINVAL);
        FAILS(calls[i](fresh, "x", 1, VMA_SND_FLAGS_DUMMY), EINVAL);
        FAILS(calls[i](-1, "x", 1, VMA_SND_FLAGS_DUMMY), EINVAL);
    }
    nothing_waits(ends[1]);
    l = listener(&where);
    FAILS(send(l, "x", 1, VMA_SND_FLAGS_DUMMY), EINVAL);
    MUST(close(l));
    MUST(close(fresh));
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

int main(void) {
    vma = vma_get_api();
    if (vma == NULL) {
        printf("no table\n");
        return 2;
    }
    udp();
    tcp();
    refusals();
    return wrong;
}
