/* register_recv_callback: every answer, from inside every call, with every call inside of it. Prints what is wrong, and nothing else. */
#include "check.h"

#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>

static char bytes[60000];

/* What the callback does next, and what it saw. */
static struct {
    vma_recv_callback_retval_t answer;
    int calls, fd;
    void *context, *packet_id;
    size_t len;
    unsigned ready;
    char seen[64];
    pthread_t thread;
    void (*meanwhile)(int fd);
} cb;

static vma_recv_callback_retval_t look(int fd, size_t n, struct iovec iov[], struct vma_info_t *info, void *context) {
    cb.calls++;
    cb.fd = fd;
    cb.context = context;
    cb.packet_id = info->packet_id;
    cb.len = 0;
    cb.thread = pthread_self();
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < iov[i].iov_len && cb.len + j < sizeof cb.seen; j++)
            cb.seen[cb.len + j] = ((char *)iov[i].iov_base)[j];
        cb.len += iov[i].iov_len;
    }
    cb.ready = info->socket_ready_queue_pkt_count;
    CHECK(info->struct_sz == sizeof *info && info->payload_sz == cb.len && info->packet_id != NULL);
    CHECK(info->src->sin_family == AF_INET && info->dst->sin_addr.s_addr == loopback(0).sin_addr.s_addr && info->dst->sin_port != 0);
    CHECK(info->hw_timestamp.tv_sec == 0 && info->hw_timestamp.tv_nsec == 0);
    if (cb.meanwhile != NULL) {
        void (*meanwhile)(int) = cb.meanwhile;
        cb.meanwhile = NULL;
        errno = E2BIG;
        meanwhile(fd);
    }
    return cb.answer;
}

static int is_ready(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static void answer(vma_recv_callback_retval_t with) {
    memset(&cb, 0, sizeof cb);
    cb.answer = with;
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How long what a card carries is waited for, before there was no room for it. */
enum { CARRIED_MS = 2000 };

/* So many turns; by a card, each of which takes longer, a tenth of them. */
static int turns(int count) {
    return has_mirror() ? count / 10 : count;
}

/* Looks for what was just sent, and is not let through: by shared memory it is there. */
static void arrives(int fd) {
    char byte;
    int before = cb.calls;
    long since = now_ms();
    do
        FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    while (has_mirror() && cb.calls == before && now_ms() - since < CARRIED_MS && sched_yield() == 0);
}

/* Two UDP sockets, the second connected to the first. */
static void udp(int ends[2]) {
    struct sockaddr_in where;
    ends[0] = datagram(&where);
    ends[1] = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(connect(ends[1], SA(where), sizeof where));
}

/* Two ends of a connection; what is sent on the second goes out at once. */
static void tcp(int ends[2]) {
    int both[2];
    pair(both);
    ends[0] = both[1];
    ends[1] = both[0];
}

static void shut(int ends[2]) {
    close(ends[0]);
    MUST(close(ends[1]));
}

typedef void make(int ends[2]);
static make *const kinds[] = {udp, tcp};

/* Each answer, by the call that does not wait. */
static void answers(make *kind) {
    int ends[2];
    char room[100];
    kind(ends);
    answer(VMA_PACKET_DROP);
    CHECK(vma->register_recv_callback(ends[0], look, &cb) == 0);
    FAILS(recv(ends[0], room, sizeof room, MSG_DONTWAIT), EAGAIN);
    MUST(send(ends[1], "drop", 4, 0));
    CHECK(!is_ready(ends[0]));
    nap(20);
    FAILS(recv(ends[0], room, sizeof room, MSG_DONTWAIT), EAGAIN);
    CHECK(cb.calls == 1 && cb.fd == ends[0] && cb.context == &cb && cb.len == 4 && memcmp(cb.seen, "drop", 4) == 0);
    CHECK(pthread_equal(cb.thread, pthread_self()));
    FAILS(vma->free_packets(ends[0], (struct vma_packet_t[]){{.packet_id = cb.packet_id}}, 1), ENOENT);
    answer(VMA_PACKET_RECV);
    MUST(send(ends[1], "recv", 4, 0));
    nap(20);
    errno = E2BIG;
    CHECK(recv(ends[0], room, sizeof room, MSG_DONTWAIT) == 4 && memcmp(room, "recv", 4) == 0 && cb.calls == 1 && errno == E2BIG);
    answer(VMA_PACKET_HOLD);
    MUST(send(ends[1], "hold", 4, 0));
    nap(20);
    FAILS(recv(ends[0], room, sizeof room, MSG_DONTWAIT), EAGAIN);
    CHECK(cb.calls == 1);
    struct vma_packet_t held = {.packet_id = cb.packet_id};
    FAILS(vma->free_packets(ends[1], &held, 1), ENOENT);
    CHECK(vma->free_packets(ends[0], &held, 1) == 0);
    FAILS(vma->free_packets(ends[0], &held, 1), ENOENT);
    /* Several, in one call. */
    answer(VMA_PACKET_DROP);
    for (int i = 0; i < 5; i++)
        MUST(send(ends[1], "more", 4, 0));
    nap(20);
    FAILS(recv(ends[0], room, sizeof room, MSG_DONTWAIT), EAGAIN);
    CHECK(cb.calls == 5);
    /* The end of it. */
    MUST(send(ends[1], "last", 4, 0));
    nap(20);
    CHECK(vma->register_recv_callback(ends[0], NULL, NULL) == 0);
    CHECK(recv(ends[0], room, sizeof room, MSG_DONTWAIT) == 4 && cb.calls == 5);
    CHECK(vma->register_recv_callback(ends[0], NULL, NULL) == 0);
    shut(ends);
}

static void *send_later(void *fd) {
    nap(30);
    MUST(send(*(int *)fd, "late", 4, 0));
    return NULL;
}

/* One answer for each letter: drop, recv, hold. Sends them 5 ms apart. */
static void *send_each(void *fd) {
    for (int i = 0; i < 8; i++) {
        nap(5);
        MUST(send(*(int *)fd, i == 7 ? "r" : "d", 1, 0));
    }
    return NULL;
}

static vma_recv_callback_retval_t by_letter(int fd, size_t n, struct iovec iov[], struct vma_info_t *info, void *context) {
    (void)fd, (void)n, (void)info, (void)context;
    cb.calls++;
    return *(char *)iov[0].iov_base == 'd' ? VMA_PACKET_DROP : *(char *)iov[0].iov_base == 'r' ? VMA_PACKET_RECV : VMA_PACKET_HOLD;
}

/* A call that waits. */
typedef int wait_for(int fd);

static char got[8];
static int by_recv(int fd) { return recv(fd, got, 1, 0); }
static int by_read(int fd) { return read(fd, got, 1); }
static int by_recvfrom(int fd) { return recvfrom(fd, got, 1, 0, NULL, NULL); }
static int by_readv(int fd) {
    struct iovec iov = {got, 1};
    return readv(fd, &iov, 1);
}
static int by_recvmsg(int fd) {
    struct iovec iov = {got, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    return recvmsg(fd, &message, 0);
}
static int by_recvmmsg(int fd) {
    struct iovec iov = {got, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
    return recvmmsg(fd, &message, 1, 0, NULL);
}
static int by_peek(int fd) { return recv(fd, got, 1, MSG_PEEK) == 1 ? recv(fd, got, 1, MSG_DONTWAIT) : -1; }
static int by_poll(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, -1) == 1 && poll_fd.revents == POLLIN ? recv(fd, got, 1, MSG_DONTWAIT) : -1;
}
static int by_select(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &set) ? recv(fd, got, 1, MSG_DONTWAIT) : -1;
}
static int by_epoll_as(int fd, uint32_t manner) {
    struct epoll_event event = {.events = EPOLLIN | manner, .data = {.fd = fd}};
    int epoll = MUST(epoll_create1(0)), result = -1;
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    if (epoll_wait(epoll, &event, 1, -1) == 1 && event.data.fd == fd && event.events == EPOLLIN)
        result = recv(fd, got, 1, MSG_DONTWAIT);
    MUST(close(epoll));
    return result;
}
static int by_epoll(int fd) { return by_epoll_as(fd, 0); }
static int by_epoll_edge(int fd) { return by_epoll_as(fd, EPOLLET); }
static int by_zcopy(int fd) {
    char room[64];
    int flags = 0;
    struct vma_packets_t *packets = (struct vma_packets_t *)room;
    if (vma->recvfrom_zcopy(fd, room, sizeof room, &flags, NULL, NULL) != 1 || flags != MSG_VMA_ZCOPY)
        return -1;
    got[0] = *(char *)packets->pkts[0].iov[0].iov_base;
    return vma->free_packets(fd, packets->pkts, 1) == 0;
}
static int by_stdio(int fd) {
    FILE *stream = fdopen(MUST(dup(fd)), "r");
    got[0] = (char)fgetc(stream);
    MUST(fclose(stream));
    return 1;
}
static int by_splice(int fd) {
    int pipe_ends[2];
    MUST(pipe(pipe_ends));
    ssize_t n = splice(fd, NULL, pipe_ends[1], NULL, 1, 0);
    if (n == 1)
        MUST(read(pipe_ends[0], got, 1));
    MUST(close(pipe_ends[0]));
    MUST(close(pipe_ends[1]));
    return n;
}

/* A call that blocks goes on while all is dropped, and ends with what is let through. */
static void waits(make *kind) {
    wait_for *calls[] = {by_recv, by_read, by_recvfrom, by_readv, by_recvmsg, by_recvmmsg, by_peek, by_poll, by_select, by_epoll, by_epoll_edge, by_zcopy, by_stdio, by_splice};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int ends[2], calls_before;
        pthread_t sender;
        kind(ends);
        answer(VMA_PACKET_DROP);
        calls_before = cb.calls;
        CHECK(vma->register_recv_callback(ends[0], by_letter, NULL) == 0);
        MUST(pthread_create(&sender, NULL, send_each, &ends[1]));
        int n = calls[i](ends[0]);
        if (n != 1 || got[0] != 'r' || cb.calls - calls_before != 8) {
            wrong = 1;
            printf("waits: call %zu: %d, %c, %d calls (errno %s)\n", i, n, got[0], cb.calls - calls_before, strerrorname_np(errno));
        }
        MUST(pthread_join(sender, NULL));
        shut(ends);
    }
}

static volatile int stop;
static void *send_on(void *fd) {
    while (!stop) {
        send(*(int *)fd, "d", 1, 0);
        nap(3);
    }
    return NULL;
}

/* However much is dropped meanwhile, time passes. */
static void times(make *kind) {
    int ends[2], epoll = MUST(epoll_create1(0)), limit_ms = has_mirror() ? 600 : 150;
    struct timeval time = {.tv_usec = limit_ms * 1000};
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t sender;
    fd_set set;
    kind(ends);
    stop = 0;
    answer(VMA_PACKET_DROP);
    CHECK(vma->register_recv_callback(ends[0], by_letter, NULL) == 0);
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    MUST(pthread_create(&sender, NULL, send_on, &ends[1]));
    for (int way = 0; way < 4; way++) {
        struct pollfd poll_fd = {.fd = ends[0], .events = POLLIN};
        long began = now_ms();
        int before = cb.calls;
        switch (way) {
        case 0:
            FAILS(recv(ends[0], got, 1, 0), EAGAIN);
            break;
        case 1:
            CHECK(poll(&poll_fd, 1, limit_ms) == 0 && poll_fd.revents == 0);
            break;
        case 2:
            FD_ZERO(&set);
            FD_SET(ends[0], &set);
            time = (struct timeval){.tv_usec = limit_ms * 1000};
            CHECK(select(ends[0] + 1, &set, NULL, NULL, &time) == 0 && time.tv_sec == 0 && time.tv_usec == 0);
            break;
        case 3:
            CHECK(epoll_wait(epoll, &event, 1, limit_ms) == 0);
            break;
        }
        long took = now_ms() - began;
        CHECK(took >= limit_ms - 1 && took < 3000);
        CHECK(cb.calls > before);
    }
    stop = 1;
    MUST(pthread_join(sender, NULL));
    MUST(close(epoll));
    shut(ends);
}

static void on_alarm(int number) { (void)number; }
static void alarm_now(int fd) {
    (void)fd;
    raise(SIGALRM);
}

/* A handler ends a call that waits, whether it runs between packets or in the callback. */
static void interruptions(make *kind) {
    int ends[2], epoll = MUST(epoll_create1(0));
    struct sigaction action = {.sa_handler = on_alarm};
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t sender;
    MUST(sigaction(SIGALRM, &action, NULL));
    /* (What comes back from a mirror may do so within the call that sends it: then no later one is interrupted.) */
    for (int way = has_mirror() ? 1 : 0; way < 6; way += has_mirror() ? 2 : 1) {
        kind(ends);
        answer(VMA_PACKET_DROP);
        CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
        stop = 0;
        if (way % 2 == 0) {
            cb.meanwhile = alarm_now;
            MUST(send(ends[1], "x", 1, 0));
        } else {
            /* (Again and again: one may come before the call.) */
            int pause_us = has_mirror() ? 500000 : 50000;
            struct itimerval timer = {.it_value.tv_usec = pause_us, .it_interval.tv_usec = pause_us};
            MUST(pthread_create(&sender, NULL, send_on, &ends[1]));
            MUST(setitimer(ITIMER_REAL, &timer, NULL));
        }
        struct pollfd poll_fd = {.fd = ends[0], .events = POLLIN};
        switch (way / 2) {
        case 0:
            FAILS(recv(ends[0], got, 1, 0), EINTR);
            break;
        case 1:
            FAILS(poll(&poll_fd, 1, 5000), EINTR);
            break;
        case 2:
            FAILS(epoll_wait(epoll, &event, 1, 5000), EINTR);
            break;
        }
        CHECK(cb.calls > 0);
        stop = 1;
        if (way % 2 != 0) {
            MUST(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 0}, NULL));
            MUST(pthread_join(sender, NULL));
        }
        shut(ends);
    }
    MUST(close(epoll));
}

/* What was let through is there for every way of looking. */
static void looks(make *kind) {
    int ends[2], count = -1;
    kind(ends);
    answer(VMA_PACKET_RECV);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    MUST(send(ends[1], "abc", 3, 0));
    nap(20);
    MUST(ioctl(ends[0], FIONREAD, &count));
    CHECK(count == 0 && cb.calls == 0);
    CHECK(ready(ends[0], POLLIN) == POLLIN && cb.calls == 1);
    MUST(ioctl(ends[0], FIONREAD, &count));
    CHECK(count == 3);
    CHECK(recv(ends[0], got, 3, MSG_PEEK) == 3 && recv(ends[0], got, 3, MSG_DONTWAIT) == 3 && cb.calls == 1 && memcmp(got, "abc", 3) == 0);
    CHECK(!is_ready(ends[0]));
    /* Who polls is told of what is held, once. */
    answer(VMA_PACKET_HOLD);
    MUST(send(ends[1], "held", 4, 0));
    struct pollfd poll_fd = {.fd = ends[0], .events = POLLIN};
    CHECK(poll(&poll_fd, 1, 5000) == 1 && poll_fd.revents == POLLIN && cb.calls == 1);
    CHECK(poll(&poll_fd, 1, 0) == 0);
    FAILS(recv(ends[0], got, 3, MSG_DONTWAIT), EAGAIN);
    CHECK(vma->free_packets(ends[0], (struct vma_packet_t[]){{.packet_id = cb.packet_id}}, 1) == 0);
    int epoll = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    MUST(send(ends[1], "held", 4, 0));
    CHECK(epoll_wait(epoll, &event, 1, 5000) == 1 && cb.calls == 2 && epoll_wait(epoll, &event, 1, 0) == 0);
    MUST(close(epoll));
    /* Of a socket that is closed, too. */
    shut(ends);
    CHECK(memcmp(cb.seen, "held", 4) == 0);
    CHECK(vma->free_packets(ends[0], (struct vma_packet_t[]){{.packet_id = cb.packet_id}}, 1) == 0);
}

/* A stream keeps its order, its end, and what a call has of it already. */
static void streams(void) {
    int ends[2];
    char room[30000];
    pthread_t sender;
    struct pollfd poll_fd = {.events = POLLIN};
    tcp(ends);
    /* One call's beginning is not the next one's. */
    MUST(send(ends[1], "all", 3, 0));
    CHECK(recv(ends[0], room, 3, MSG_WAITALL) == 3);
    nap(200);
    poll_fd.fd = ends[0];
    long began = now_ms();
    CHECK(poll(&poll_fd, 1, 150) == 0 && now_ms() - began >= 149);
    answer(VMA_PACKET_RECV);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    MUST(send(ends[1], "one", 3, 0));
    CHECK(ready(ends[0], POLLIN) == POLLIN && cb.calls == 1);
    /* Behind what waits to be read: not shown. */
    MUST(send(ends[1], "two", 3, 0));
    nap(20);
    CHECK(ready(ends[0], POLLIN) == POLLIN && cb.calls == 1);
    CHECK(recv(ends[0], room, 6, MSG_WAITALL) == 6 && memcmp(room, "onetwo", 6) == 0);
    /* A call that waits for all of it, and gets it by and by. */
    MUST(pthread_create(&sender, NULL, send_later, &ends[1]));
    MUST(send(ends[1], "first", 5, 0));
    CHECK(recv(ends[0], room, 9, MSG_WAITALL) == 9 && memcmp(room, "firstlate", 9) == 0);
    MUST(pthread_join(sender, NULL));
    int low = 9;
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    MUST(pthread_create(&sender, NULL, send_later, &ends[1]));
    MUST(send(ends[1], "first", 5, 0));
    CHECK(recv(ends[0], room, sizeof room, 0) == 9 && memcmp(room, "firstlate", 9) == 0);
    MUST(pthread_join(sender, NULL));
    low = 1;
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    /* Bytes that are dropped make room: many times the window goes through. */
    answer(VMA_PACKET_DROP);
    for (size_t sent = 0; sent < 16 << 20;) {
        ssize_t n = send(ends[1], bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0)
            sent += n;
        FAILS(recv(ends[0], room, sizeof room, MSG_DONTWAIT), EAGAIN);
    }
    /* The end comes behind the last packet, whatever becomes of that. */
    MUST(send(ends[1], "tail", 4, 0));
    MUST(shutdown(ends[1], SHUT_WR));
    /* (By a card, the tail is the end of a long segment.) */
    CHECK(recv(ends[0], room, sizeof room, 0) == 0 && (has_mirror() || memcmp(cb.seen + cb.len - 4, "tail", 4) == 0));
    shut(ends);
    tcp(ends);
    answer(VMA_PACKET_RECV);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    MUST(send(ends[1], "tail", 4, 0));
    MUST(close(ends[1]));
    nap(20);
    CHECK(recv(ends[0], room, sizeof room, 0) == 4 && recv(ends[0], room, sizeof room, 0) == 0);
    MUST(close(ends[0]));
}

/* What is held fills the socket's own buffer, and nobody else's; what is dropped does not. */
static void held(void) {
    int ends[2], other[2], holding = 0;
    static struct vma_packet_t packets[4000];
    udp(ends);
    udp(other);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    for (int round = 0; round < 2; round++) {
        answer(VMA_PACKET_HOLD);
        for (holding = 0; holding < 4000; holding++) {
            int before = cb.calls;
            MUST(send(ends[1], bytes, 500, 0));
            arrives(ends[0]);
            if (cb.calls == before)
                break;
            packets[holding].packet_id = cb.packet_id;
        }
        CHECK(holding > 100 && holding < 4000);
        MUST(send(other[1], "x", 1, 0));
        CHECK(recv(other[0], got, 1, 0) == 1);
        /* An array of ids, as vma.md says a callback's holder has. */
        CHECK(vma->free_packets(ends[0], packets, holding) == 0);
        answer(VMA_PACKET_DROP);
        for (int i = 0; i < turns(10000); i++) {
            MUST(send(ends[1], bytes, 500, 0));
            arrives(ends[0]);
        }
        CHECK(cb.calls == turns(10000));
    }
    shut(ends);
    shut(other);
}

/* Whoever polls is told once of what was held, also by a call that watches for it and then does not ask. */
static void told_once(void) {
    int ends[2], watch = MUST(epoll_create1(0));
    udp(ends);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(watch, EPOLL_CTL_ADD, ends[0], &event));
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    answer(VMA_PACKET_HOLD);
    MUST(send(ends[1], "x", 1, 0));
    nap(20);
    FAILS(recv(ends[0], got, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(cb.calls == 1);
    CHECK(is_ready(ends[0]));
    CHECK(!is_ready(ends[0]));
    struct vma_packet_t packet = {.packet_id = cb.packet_id};
    CHECK(vma->free_packets(ends[0], &packet, 1) == 0);
    MUST(close(watch));
    shut(ends);
}

static void refusals(void) {
    int ends[2], l = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in where = loopback(0);
    FAILS(vma->register_recv_callback(-1, look, NULL), EINVAL);
    FAILS(vma->register_recv_callback(0, look, NULL), EINVAL);
    FAILS(vma->register_recv_callback(100000, look, NULL), EINVAL);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    FAILS(vma->register_recv_callback(ends[0], look, NULL), EINVAL);
    FAILS(vma->register_recv_callback(ends[0], NULL, NULL), EINVAL);
    shut(ends);
    /* Before there is a connection, and on a listener, whose connections do not inherit it. */
    answer(VMA_PACKET_DROP);
    CHECK(vma->register_recv_callback(l, look, NULL) == 0);
    MUST(bind(l, SA(where), sizeof where));
    MUST(listen(l, 1));
    CHECK(vma->register_recv_callback(l, look, NULL) == 0);
    socklen_t len = sizeof where;
    MUST(getsockname(l, SA(where), &len));
    where = reached(where);
    ends[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    MUST(connect(ends[0], SA(where), sizeof where));
    ends[1] = MUST(accept(l, NULL, NULL));
    MUST(send(ends[0], "in", 2, 0));
    CHECK(recv(ends[1], got, 2, 0) == 2 && cb.calls == 0);
    MUST(send(ends[1], "out", 3, 0));
    nap(20);
    FAILS(recv(ends[0], got, 2, MSG_DONTWAIT), EAGAIN);
    CHECK(cb.calls == 1);
    shut(ends);
    MUST(close(l));
    /* A UDP socket that is bound afterwards. */
    ends[0] = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    ends[1] = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    where = loopback(0);
    MUST(bind(ends[0], SA(where), sizeof where));
    len = sizeof where;
    MUST(getsockname(ends[0], SA(where), &len));
    where = reached(where);
    int yes = 1;
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes));
    MUST(sendto(ends[1], "udp", 3, 0, SA(where), sizeof where));
    arrives(ends[0]);
    CHECK(cb.calls == 2);
    shut(ends);
}

/* --- any call, from inside ------------------------------------------------------------------------------------------------------- */

static int other_end;

static void call_everything(int fd) {
    char room[10];
    int value = 0, flags = MSG_DONTWAIT;
    socklen_t len = sizeof value;
    struct sockaddr_in name;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    FAILS(recv(fd, room, sizeof room, MSG_DONTWAIT), EAGAIN);
    FAILS(recv(fd, room, sizeof room, MSG_DONTWAIT | MSG_PEEK), EAGAIN);
    FAILS(recv(fd, room, sizeof room, 0), EDEADLK);
    FAILS(vma->recvfrom_zcopy(fd, room, 64, &flags, NULL, NULL), EAGAIN);
    CHECK(poll(&poll_fd, 1, 0) == 0);
    CHECK(poll(&poll_fd, 1, 10) == 0);
    MUST(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &len));
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
    len = sizeof name;
    MUST(getsockname(fd, SA(name), &len));
    MUST(ioctl(fd, FIONREAD, &value));
    CHECK(value == 0);
    MUST(send(other_end, "more", 4, 0));
    int copy = MUST(dup(fd)), epoll = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
    MUST(close(epoll));
    MUST(close(copy));
    CHECK(vma->dump_fd_stats(fd, 6) == 0);
    FAILS(vma->free_packets(fd, (struct vma_packet_t[]){{.packet_id = NULL}}, 1), ENOENT);
    int ends[2];
    udp(ends);
    MUST(send(ends[1], "u", 1, 0));
    CHECK(recv(ends[0], room, 1, 0) == 1);
    shut(ends);
    tcp(ends);
    MUST(send(ends[1], "t", 1, 0));
    CHECK(recv(ends[0], room, 1, 0) == 1);
    shut(ends);
}

static void close_it(int fd) { MUST(close(fd)); }
static void unregister(int fd) { CHECK(vma->register_recv_callback(fd, NULL, NULL) == 0); }
static void give_back(int fd) {
    struct vma_packet_t packet = {.packet_id = cb.packet_id};
    CHECK(vma->free_packets(fd, &packet, 1) == 0);
    FAILS(vma->free_packets(fd, &packet, 1), ENOENT);
}

static vma_recv_callback_retval_t second(int fd, size_t n, struct iovec iov[], struct vma_info_t *info, void *context) {
    (void)fd, (void)n, (void)iov, (void)info;
    *(int *)context += 1;
    return VMA_PACKET_DROP;
}
static int seconds;
static void register_again(int fd) { CHECK(vma->register_recv_callback(fd, second, &seconds) == 0); }

/* A callback that gives this answer, and does this meanwhile, is to see what is sent. */
static void calls_inside(make *kind, int ends[2], vma_recv_callback_retval_t with, void (*meanwhile)(int), const char *what) {
    kind(ends);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    answer(with);
    cb.meanwhile = meanwhile;
    MUST(send(ends[1], what, strlen(what), 0));
    nap(20);
}

static void inside(make *kind) {
    int ends[2];
    char room[20];
    vma_recv_callback_retval_t all[] = {VMA_PACKET_DROP, VMA_PACKET_RECV, VMA_PACKET_HOLD};
    for (size_t i = 0; i < 3; i++) {
        kind(ends);
        other_end = ends[1];
        CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
        answer(all[i]);
        cb.meanwhile = call_everything;
        MUST(send(ends[1], "call", 4, 0));
        nap(20);
        ssize_t n = recv(ends[0], room, sizeof room, MSG_DONTWAIT);
        CHECK(all[i] == VMA_PACKET_RECV ? n == 4 || n == 8 : n == -1 && errno == EAGAIN);
        shut(ends);
        /* close, and what is held outlives it. */
        calls_inside(kind, ends, all[i], close_it, "call");
        FAILS(recv(ends[0], room, sizeof room, 0), EBADF);
        struct vma_packet_t packet = {.packet_id = cb.packet_id};
        CHECK(vma->free_packets(ends[0], &packet, 1) == (all[i] == VMA_PACKET_HOLD ? 0 : -1));
        /* What the callback saw was read: the peer gets an end, not a reset. */
        CHECK(kind == udp || recv(ends[1], room, sizeof room, 0) == 0);
        MUST(close(ends[1]));
        /* register another, or none. */
        seconds = 0;
        calls_inside(kind, ends, all[i], register_again, "one");
        recv(ends[0], room, sizeof room, MSG_DONTWAIT);
        MUST(send(ends[1], "two", 3, 0));
        nap(20);
        FAILS(recv(ends[0], room, sizeof room, MSG_DONTWAIT), EAGAIN);
        CHECK(seconds == 1 && cb.calls == 1);
        shut(ends);
        calls_inside(kind, ends, all[i], unregister, "one");
        recv(ends[0], room, sizeof room, MSG_DONTWAIT);
        MUST(send(ends[1], "two", 3, 0));
        nap(20);
        CHECK(recv(ends[0], room, sizeof room, MSG_DONTWAIT) == 3 && memcmp(room, "two", 3) == 0 && cb.calls == 1);
        shut(ends);
        /* Given back before it is held. */
        calls_inside(kind, ends, all[i], give_back, "one");
        ssize_t after = recv(ends[0], room, sizeof room, MSG_DONTWAIT);
        CHECK(all[i] == VMA_PACKET_RECV ? after == 3 : after == -1);
        shut(ends);
    }
}

/* --- ways to leave --------------------------------------------------------------------------------------------------------------- */

static jmp_buf away;
static void jump(int fd) {
    (void)fd;
    longjmp(away, 1);
}
static void jump_nearby(int fd) {
    jmp_buf here;
    (void)fd;
    if (setjmp(here) == 0)
        longjmp(here, 1);
}
static void *exit_thread(void *fd) {
    recv(*(int *)fd, got, 1, 0);
    return "came back";
}
static void pthread_away(int fd) {
    (void)fd;
    pthread_exit("went");
}
static void cancelled(int fd) {
    char byte;
    int ends[2];
    (void)fd;
    udp(ends);
    MUST(pthread_cancel(pthread_self()));
    recv(ends[0], &byte, 1, 0);
}

/* The socket goes on, for this thread and for others; the packet is dropped. */
static void goes_on(int ends[2]) {
    char room[20];
    answer(VMA_PACKET_RECV);
    MUST(send(ends[1], "next", 4, 0));
    nap(20);
    CHECK(recv(ends[0], room, sizeof room, 0) == 4 && memcmp(room, "next", 4) == 0 && cb.calls == 1);
}

static void *other_thread(void *ends) {
    goes_on(ends);
    return NULL;
}

static void leaves(make *kind) {
    int ends[2];
    pthread_t thread;
    void *result = NULL;
    for (volatile int round = 0; round < 2; round++) {
        kind(ends);
        CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
        answer(VMA_PACKET_RECV);
        cb.meanwhile = jump;
        MUST(send(ends[1], "jump", 4, 0));
        if (setjmp(away) == 0) {
            recv(ends[0], got, 1, 0);
            CHECK(!"came back");
        }
        if (round == 0)
            goes_on(ends);
        else {
            MUST(pthread_create(&thread, NULL, other_thread, ends));
            MUST(pthread_join(thread, NULL));
        }
        shut(ends);
    }
    /* However often: nothing of it counts against the socket. */
    kind(ends);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    for (volatile int i = 0; i < turns(3000); i++) {
        answer(VMA_PACKET_RECV);
        cb.meanwhile = jump;
        MUST(send(ends[1], bytes, 500, 0));
        if (setjmp(away) == 0) {
            recv(ends[0], got, 1, 0);
            CHECK(!"came back");
        }
    }
    goes_on(ends);
    shut(ends);
    kind(ends);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    answer(VMA_PACKET_RECV);
    cb.meanwhile = jump_nearby;
    MUST(send(ends[1], "near", 4, 0));
    CHECK(recv(ends[0], got, 4, 0) == 4 && memcmp(got, "near", 4) == 0);
    void (*ways[])(int) = {pthread_away, cancelled};
    for (int i = 0; i < 2; i++) {
        answer(VMA_PACKET_RECV);
        cb.meanwhile = ways[i];
        MUST(pthread_create(&thread, NULL, exit_thread, &ends[0]));
        MUST(send(ends[1], "exit", 4, 0));
        MUST(pthread_join(thread, &result));
        CHECK(i == 0 ? strcmp(result, "went") == 0 : result == PTHREAD_CANCELED);
        goes_on(ends);
    }
    shut(ends);
}

/* --- threads and forks ----------------------------------------------------------------------------------------------------------- */

static atomic_int inside_now, most_inside, seen_in_all;

static vma_recv_callback_retval_t slow(int fd, size_t n, struct iovec iov[], struct vma_info_t *info, void *context) {
    (void)fd, (void)n, (void)info, (void)context;
    int now = ++inside_now;
    if (now > most_inside)
        most_inside = now;
    sched_yield();
    seen_in_all++;
    inside_now--;
    return ((char *)iov[0].iov_base)[0] == 'd' ? VMA_PACKET_DROP : VMA_PACKET_RECV;
}

static void *read_numbers(void *arg) {
    int fd = *(int *)arg;
    long sum = 0, number;
    while (recv(fd, &number, sizeof number, 0) == sizeof number && number != 0)
        sum += number >> 8;
    return (void *)sum;
}

/* Two threads read one socket: its callback runs in one at a time, and each number that it lets through is read by one of them. */
static void two_threads(void) {
    int ends[2];
    pthread_t readers[2];
    void *sums[2];
    long expected = 0, zero = 0, count = turns(2000);
    udp(ends);
    CHECK(vma->register_recv_callback(ends[0], slow, NULL) == 0);
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&readers[i], NULL, read_numbers, &ends[0]));
    for (long i = 1; i <= count; i++) {
        long number = i << 8 | (i % 3 == 0 ? 'd' : 'r');
        expected += i % 3 == 0 ? 0 : i;
        MUST(send(ends[1], &number, sizeof number, 0));
        for (int spin = 0; seen_in_all < i && spin < 5000; spin++)
            nap(1);
    }
    MUST(send(ends[1], &zero, sizeof zero, 0));
    MUST(send(ends[1], &zero, sizeof zero, 0));
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(readers[i], &sums[i]));
    CHECK(most_inside == 1 && seen_in_all == count + 2 && (long)sums[0] + (long)sums[1] == expected);
    shut(ends);
}

static void fork_it(int fd) {
    (void)fd;
    pid_t child = MUST(fork());
    if (child == 0) {
        /* The child goes on in its copy of the callback, and returns out of it. */
        cb.len = 99;
        return;
    }
    int status = -1;
    MUST(waitpid(child, &status, 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void forks(void) {
    int ends[2];
    char room[10];
    udp(ends);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    answer(VMA_PACKET_RECV);
    cb.meanwhile = fork_it;
    MUST(send(ends[1], "fork", 4, 0));
    nap(20);
    ssize_t n = recv(ends[0], room, sizeof room, MSG_DONTWAIT);
    if (cb.len == 99)
        _exit(n == -1 && errno == EAGAIN ? wrong : 3);
    /* (What comes by an interface for a UDP socket that a child has too is the kernel's, and what had come by the ring is lost.) */
    if (!has_mirror()) {
        CHECK(n == 4 && memcmp(room, "fork", 4) == 0);
        answer(VMA_PACKET_RECV);
        MUST(send(ends[1], "next", 4, 0));
        CHECK(recv(ends[0], room, sizeof room, 0) == 4 && cb.calls == 1);
    }
    shut(ends);
}

/* A connection that a child comes to use moves to the kernel with what nobody has looked at. */
static void moves(void) {
    int ends[2], status = -1;
    char room[10];
    tcp(ends);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    answer(VMA_PACKET_DROP);
    MUST(send(ends[1], "undecided", 9, 0));
    nap(20);
    pid_t child = MUST(fork());
    if (child == 0)
        _exit(recv(ends[0], room, 9, MSG_WAITALL) == 9 && memcmp(room, "undecided", 9) == 0 && cb.calls == 0 ? 0 : 3);
    MUST(waitpid(child, &status, 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    FAILS(vma->register_recv_callback(ends[0], look, NULL), EINVAL);
    MUST(send(ends[1], "kernel's", 8, 0));
    CHECK(recv(ends[0], room, 8, MSG_WAITALL) == 8 && cb.calls == 0);
    shut(ends);
}

/* In a callback of one socket, a call has another's run; and a chain of them comes to an end. */
static int chain[20];
static vma_recv_callback_retval_t link_on(int fd, size_t n, struct iovec iov[], struct vma_info_t *info, void *context) {
    (void)fd, (void)n, (void)iov, (void)info, (void)context;
    char byte;
    cb.calls++;
    recv(chain[0], &byte, 1, MSG_DONTWAIT);
    return VMA_PACKET_DROP;
}

static void chains(void) {
    int ends[20][2], idle[2];
    udp(idle);
    chain[0] = idle[0];
    answer(VMA_PACKET_DROP);
    for (int i = 0; i < 20; i++) {
        udp(ends[i]);
        CHECK(vma->register_recv_callback(ends[i][0], link_on, NULL) == 0);
        MUST(send(ends[i][1], "x", 1, 0));
    }
    nap(20);
    FAILS(recv(idle[0], got, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(cb.calls == 20);
    for (int i = 0; i < 20; i++)
        shut(ends[i]);
    shut(idle);
}

/* Calls that are none of those in which callbacks run. */
static void elsewhere(void) {
    int ends[2], other[2], value;
    udp(ends);
    tcp(other);
    answer(VMA_PACKET_DROP);
    CHECK(vma->register_recv_callback(ends[0], look, NULL) == 0);
    MUST(send(ends[1], "x", 1, 0));
    nap(50);
    for (int i = 0; i < 20; i++) {
        MUST(send(other[1], bytes, 1000, 0));
        MUST(ioctl(ends[0], FIONREAD, &value));
        nap(5);
    }
    CHECK(cb.calls == 0);
    /* Any socket's receiving will do. */
    CHECK(recv(other[0], got, 1, MSG_DONTWAIT) == 1);
    CHECK(ready(other[0], POLLIN) == POLLIN);
    CHECK(cb.calls == 1);
    shut(ends);
    shut(other);
}

/* Any argument: without what needs its time, for who slows this down (valgrind). */
int main(int argc, char **argv) {
    (void)argv;
    vma = vma_get_api();
    if (vma == NULL) {
        printf("no table\n");
        return 2;
    }
    CHECK((vma->vma_extra_supported_mask & VMA_EXTRA_API_REGISTER_RECV_CALLBACK) != 0);
    refusals();
    for (size_t i = 0; i < 2; i++) {
        answers(kinds[i]);
        if (argc == 1) {
            waits(kinds[i]);
            times(kinds[i]);
            interruptions(kinds[i]);
        }
        looks(kinds[i]);
        inside(kinds[i]);
        leaves(kinds[i]);
    }
    held();
    told_once();
    chains();
    if (argc == 1) {
        streams();
        two_threads();
        forks();
        /* (What the kernel goes on with has no mirror.) */
        if (!has_mirror())
            moves();
        elsewhere();
    }
    return wrong;
}
