// A process that does what it is told: each thread has a line to the driver, takes one call at a time, and answers with result,
// errno and what came of it. The lines are Unix sockets, which are never offloaded, under high numbers, so that the sockets that
// are watched get the lowest ones.
#define _GNU_SOURCE
#include "wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { WORKERS = 2, OBSERVER = WORKERS, LINE_MIN = 300, SPACE = 4 << 20, MARK = 0xa5, FDS_MAX = 64 };

static const char *path;
static int token;
static int lines[WORKERS + 1];
static pthread_t threads[WORKERS + 1];
static __thread volatile sig_atomic_t pipes;

static void on_pipe(int signal) { pipes += signal == SIGPIPE; }
static void on_interrupt(int signal) { (void)signal; }

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &a, NULL);
}

static void whole_read(int line, void *to, size_t length) {
    for (char *at = to; length > 0;) {
        ssize_t n = read(line, at, length);
        if (n < 0 && errno == EINTR)
            continue;
        // The driver is gone, and with it the reason to live.
        if (n <= 0)
            _exit(0);
        at += n, length -= (size_t)n;
    }
}

static void whole_write(int line, const void *from, size_t length) {
    for (const char *at = from; length > 0;) {
        ssize_t n = send(line, at, length, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0);
        at += n, length -= (size_t)n;
    }
}

static void connect_line(int thread) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (low < 0 || connect(low, (struct sockaddr *)&to, sizeof to) != 0)
        _exit(3);
    lines[thread] = fcntl(low, F_DUPFD_CLOEXEC, LINE_MIN);
    close(low);
}

// `ip` is IPv4's, which an address of IPv6 has mapped, or LOOPBACK_OF_IPV6.
static socklen_t to_sockaddr(struct sockaddr_storage *out, int family, int64_t ip, int port) {
    memset(out, 0, sizeof *out);
    out->ss_family = (sa_family_t)family;
    if (family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
        six->sin6_port = htons((uint16_t)port);
        uint32_t mapped[4] = {0, 0, htonl(0xffff), htonl((uint32_t)ip)};
        if (ip == LOOPBACK_OF_IPV6)
            six->sin6_addr = in6addr_loopback;
        else if (ip != 0)
            memcpy(&six->sin6_addr, mapped, sizeof mapped);
        return sizeof *six;
    }
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    four->sin_port = htons((uint16_t)port);
    four->sin_addr.s_addr = htonl((uint32_t)ip);
    return sizeof *four;
}

static struct address from_sockaddr(const struct sockaddr_storage *in, socklen_t length) {
    struct address out = {0};
    if (length == 0)
        return out;
    out.family = in->ss_family;
    if (in->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)in;
        uint32_t mapped[4] = {0, 0, htonl(0xffff), four->sin_addr.s_addr};
        out.port = ntohs(four->sin_port);
        memcpy(out.ip, mapped, sizeof mapped);
        if (length != sizeof *four)
            out.family |= ODD;
    } else if (in->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)in;
        out.port = ntohs(six->sin6_port);
        memcpy(out.ip, &six->sin6_addr, sizeof out.ip);
        if (length != sizeof *six || six->sin6_flowinfo != 0 || six->sin6_scope_id != 0)
            out.family |= ODD;
    }
    return out;
}

// Two pieces of a buffer, the first of them short.
static int pieces(struct iovec *v, char *data, size_t length) {
    size_t first = length / 3;
    v[0] = (struct iovec){data, first};
    v[1] = (struct iovec){data + first, length - first};
    return 2;
}

enum { BY_WRITE, BY_SEND, BY_SENDTO, BY_WRITEV, BY_SENDMSG, BY_SENDMMSG };

static long do_send(const struct head *h, char *data) {
    int fd = (int)h->a[0], flags = (int)h->a[2];
    struct sockaddr_storage to;
    socklen_t length = to_sockaddr(&to, (int)h->a[5], h->a[3], (int)h->a[4]);
    struct iovec v[2];
    pieces(v, data, h->length);
    struct mmsghdr m = {.msg_hdr = {.msg_iov = v, .msg_iovlen = 2}};
    if (h->a[5] != 0)
        m.msg_hdr.msg_name = &to, m.msg_hdr.msg_namelen = length;
    switch (h->a[1]) {
    case BY_WRITE: return write(fd, data, h->length);
    case BY_SEND: return send(fd, data, h->length, flags);
    case BY_SENDTO: return sendto(fd, data, h->length, flags, h->a[5] ? (struct sockaddr *)&to : NULL, h->a[5] ? length : 0);
    case BY_WRITEV: return writev(fd, v, 2);
    case BY_SENDMSG: return sendmsg(fd, &m.msg_hdr, flags);
    default: {
        int n = sendmmsg(fd, &m, 1, flags);
        return n == 1 ? (long)m.msg_len : n;
    }
    }
}

enum { BY_READ, BY_RECV, BY_RECVFROM, BY_READV, BY_RECVMSG, BY_RECVMMSG };

static long do_recv(const struct head *h, char *out, uint32_t *out_length) {
    int fd = (int)h->a[0], flags = (int)h->a[2];
    size_t length = (size_t)h->a[3];
    struct received about = {0};
    char *data = out + sizeof about;
    memset(data, MARK, length + 16);
    struct sockaddr_storage from;
    struct iovec v[2];
    pieces(v, data, length);
    struct mmsghdr m = {.msg_hdr = {.msg_iov = v, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = sizeof from}};
    socklen_t from_length = sizeof from;
    memset(&from, 0, sizeof from);
    long n;
    switch (h->a[1]) {
    case BY_READ: n = read(fd, data, length); break;
    case BY_RECV: n = recv(fd, data, length, flags); break;
    case BY_RECVFROM:
        n = recvfrom(fd, data, length, flags, (struct sockaddr *)&from, &from_length);
        if (n >= 0)
            about.from = from_sockaddr(&from, from_length);
        break;
    case BY_READV: n = readv(fd, v, 2); break;
    case BY_RECVMSG: n = recvmsg(fd, &m.msg_hdr, flags); break;
    default:
        n = recvmmsg(fd, &m, 1, flags, NULL);
        n = n == 1 ? (long)m.msg_len : n;
    }
    int error = errno;
    if (n >= 0 && h->a[1] >= BY_RECVMSG) {
        about.flags = m.msg_hdr.msg_flags;
        about.from = from_sockaddr(&from, m.msg_hdr.msg_namelen);
    }
    size_t kept = n < 0 ? 0 : (size_t)n < length ? (size_t)n : length;
    for (size_t i = kept; i < length + 16; i++)
        about.beyond |= (unsigned char)data[i] != MARK;
    memcpy(out, &about, sizeof about);
    *out_length = (uint32_t)(sizeof about + kept);
    errno = error;
    return n;
}

static long do_dup(const struct head *h) {
    int fd = (int)h->a[0], argument = (int)h->a[2];
    switch (h->a[1]) {
    case 0: return dup(fd);
    case 1: return dup2(fd, argument);
    case 2: return dup3(fd, argument, O_CLOEXEC);
    case 3: return fcntl(fd, F_DUPFD, argument);
    default: return fcntl(fd, F_DUPFD_CLOEXEC, argument);
    }
}

static long do_select(const struct head *h, struct pollfd *p, int count) {
    fd_set in, out, except;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    int highest = 0;
    for (int i = 0; i < count; i++) {
        if (p[i].events & POLLIN)
            FD_SET(p[i].fd, &in);
        if (p[i].events & POLLOUT)
            FD_SET(p[i].fd, &out);
        if (p[i].events & POLLPRI)
            FD_SET(p[i].fd, &except);
        highest = p[i].fd >= highest ? p[i].fd + 1 : highest;
    }
    int ms = (int)h->a[0];
    struct timeval t = {.tv_usec = ms * 1000};
    struct timespec s = {.tv_nsec = ms * 1000000L};
    long n = h->a[1] == 2 ? select(highest, &in, &out, &except, ms < 0 ? NULL : &t)
                          : pselect(highest, &in, &out, &except, ms < 0 ? NULL : &s, NULL);
    for (int i = 0; i < count && n >= 0; i++)
        p[i].revents = (short)((FD_ISSET(p[i].fd, &in) ? POLLIN : 0) | (FD_ISSET(p[i].fd, &out) ? POLLOUT : 0) |
                               (FD_ISSET(p[i].fd, &except) ? POLLPRI : 0));
    return n;
}

// a: timeout in ms, by which call.
static long do_poll(const struct head *h, const char *data, char *out, uint32_t *out_length) {
    const int32_t *pairs = (const void *)data;
    int count = (int)(h->length / 8);
    struct pollfd p[FDS_MAX] = {0};
    for (int i = 0; i < count; i++)
        p[i] = (struct pollfd){.fd = pairs[2 * i], .events = (short)pairs[2 * i + 1]};
    int ms = (int)h->a[0];
    struct timespec t = {.tv_nsec = ms * 1000000L};
    long n;
    if (h->a[1] >= 2)
        n = do_select(h, p, count);
    else if (h->a[1] == 1)
        n = ppoll(p, (nfds_t)count, ms < 0 ? NULL : &t, NULL);
    else
        n = poll(p, (nfds_t)count, ms);
    int error = errno;
    int32_t *result = (void *)out;
    for (int i = 0; i < count && n >= 0; i++)
        result[i] = p[i].revents;
    *out_length = n >= 0 ? (uint32_t)count * 4 : 0;
    errno = error;
    return n;
}

static long do_epoll_wait(const struct head *h, char *out, uint32_t *out_length) {
    int ep = (int)h->a[0], max = (int)h->a[1], ms = (int)h->a[2];
    struct epoll_event events[FDS_MAX];
    struct timespec t = {.tv_nsec = ms * 1000000L};
    long n;
    if (h->a[3] == 0)
        n = epoll_wait(ep, events, max, ms);
    else if (h->a[3] == 1)
        n = epoll_pwait(ep, events, max, ms, NULL);
    else
        n = epoll_pwait2(ep, events, max, ms < 0 ? NULL : &t, NULL);
    int error = errno;
    uint32_t *result = (void *)out;
    for (long i = 0; i < n; i++)
        result[2 * i] = events[i].data.u32, result[2 * i + 1] = events[i].events;
    *out_length = n > 0 ? (uint32_t)n * 8 : 0;
    errno = error;
    return n;
}

static struct view look(int fd) {
    struct view v = {0};
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP};
    v.revents = poll(&p, 1, 0) < 0 ? -errno : p.revents;
    struct sockaddr_storage a;
    socklen_t length = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &length) == 0)
        v.local = from_sockaddr(&a, length);
    else
        v.local_error = errno;
    length = sizeof a;
    if (getpeername(fd, (struct sockaddr *)&a, &length) == 0)
        v.peer = from_sockaddr(&a, length);
    else
        v.peer_error = errno;
    if (ioctl(fd, FIONREAD, &v.unread) != 0)
        v.unread_error = errno, v.unread = 0;
    v.status = fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE);
    v.descriptor = fcntl(fd, F_GETFD);
    struct stat s;
    v.kind = fstat(fd, &s) != 0 ? -errno : (int)(s.st_mode & S_IFMT);
    return v;
}

// All descriptors that are asked for; the result is the lowest number that is free.
static long do_view(const struct head *h, const char *data, char *out, uint32_t *out_length) {
    const int32_t *fds = (const void *)data;
    int count = (int)(h->length / 4);
    for (int i = 0; i < count; i++) {
        struct view v = look(fds[i]);
        memcpy(out + (size_t)i * sizeof v, &v, sizeof v);
    }
    *out_length = (uint32_t)count * (uint32_t)sizeof(struct view);
    int lowest = dup(STDIN_FILENO);
    close(lowest);
    return lowest;
}

// What a program left open: a call that it ended may have made a descriptor that nobody was told of any more.
static long do_close_all(void) {
    long closed = 0;
    for (int fd = STDERR_FILENO + 1; fd < LINE_MIN; fd++)
        if (fcntl(fd, F_GETFD) >= 0 && close(fd) == 0)
            closed++;
    return closed;
}

static void start(void);

static long do_fork(const struct head *h) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    for (int i = 0; i <= OBSERVER; i++)
        close(lines[i]);
    token = (int)h->a[0];
    start();
    return 0;
}

static long do_interrupt(const struct head *h) {
    handle(SIGUSR1, on_interrupt, h->a[1] ? SA_RESTART : 0);
    return pthread_kill(threads[h->a[0]], SIGUSR1);
}

static long do_getsockopt(const struct head *h, char *out, uint32_t *out_length) {
    socklen_t length = (socklen_t)h->a[3];
    long n = getsockopt((int)h->a[0], (int)h->a[1], (int)h->a[2], out, &length);
    *out_length = n == 0 ? length : 0;
    return n;
}

static long do_accept(const struct head *h, char *out, uint32_t *out_length) {
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    int fd = (int)h->a[0], flags = (int)h->a[1];
    long n = flags < 0 ? accept(fd, (struct sockaddr *)&from, &length) : accept4(fd, (struct sockaddr *)&from, &length, flags);
    if (n >= 0) {
        struct address a = from_sockaddr(&from, length);
        memcpy(out, &a, sizeof a);
        *out_length = sizeof a;
    }
    return n;
}

static long act(const struct head *h, char *data, char *out, uint32_t *out_length) {
    const int64_t *a = h->a;
    struct sockaddr_storage address;
    socklen_t length;
    int value = (int)a[2];
    long n;
    switch (h->request) {
    case SOCKET: return socket((int)a[0], (int)a[1], (int)a[2]);
    case BIND:
    case CONNECT:
        length = to_sockaddr(&address, (int)a[3], a[1], (int)a[2]);
        return h->request == BIND ? bind((int)a[0], (struct sockaddr *)&address, length)
                                  : connect((int)a[0], (struct sockaddr *)&address, length);
    case LISTEN: return listen((int)a[0], (int)a[1]);
    case ACCEPT: return do_accept(h, out, out_length);
    case CLOSE: return close((int)a[0]);
    case CLOSE_ALL: return do_close_all();
    case SHUTDOWN: return shutdown((int)a[0], (int)a[1]);
    case SEND: return do_send(h, data);
    case RECV: return do_recv(h, out, out_length);
    case DUP: return do_dup(h);
    case FCNTL: return fcntl((int)a[0], (int)a[1], (int)a[2]);
    case IOCTL:
        n = ioctl((int)a[0], (unsigned long)a[1], &value);
        memcpy(out, &value, sizeof value);
        *out_length = sizeof value;
        return n;
    case SETSOCKOPT: return setsockopt((int)a[0], (int)a[1], (int)a[2], data, h->length);
    case GETSOCKOPT: return do_getsockopt(h, out, out_length);
    case POLL: return do_poll(h, data, out, out_length);
    case EPOLL_CREATE: return epoll_create1((int)a[0]);
    case EPOLL_CTL: {
        struct epoll_event event = {.events = (uint32_t)a[3], .data.u32 = (uint32_t)a[4]};
        return epoll_ctl((int)a[0], (int)a[1], (int)a[2], &event);
    }
    case EPOLL_WAIT: return do_epoll_wait(h, out, out_length);
    case VIEW: return do_view(h, data, out, out_length);
    case FORK: return do_fork(h);
    case EXIT: exit((int)a[0]);
    case INTERRUPT: return do_interrupt(h);
    default: _exit(4);
    }
}

static void serve(int thread) {
    char *in = malloc(SPACE), *out = malloc(SPACE);
    struct hello hello = {.token = token, .thread = thread, .pid = getpid(), .tid = gettid()};
    whole_write(lines[thread], &hello, sizeof hello);
    for (;;) {
        struct head h;
        struct answer answer = {0};
        whole_read(lines[thread], &h, sizeof h);
        if (h.length > SPACE)
            _exit(5);
        whole_read(lines[thread], in, h.length);
        pipes = 0;
        errno = 0;
        answer.result = act(&h, in, out + sizeof answer, &answer.length);
        answer.error = answer.result < 0 ? errno : 0;
        answer.pipes = pipes;
        memcpy(out, &answer, sizeof answer);
        whole_write(lines[thread], out, sizeof answer + answer.length);
    }
}

static void *worker(void *argument) {
    serve((int)(intptr_t)argument);
    return NULL;
}

// The lines come first, one after the other, so that no thread's passing descriptor is in another's way.
static void start(void) {
    for (int i = 0; i < WORKERS; i++) {
        connect_line(i);
        if (pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i) != 0)
            _exit(6);
    }
    threads[OBSERVER] = pthread_self();
    connect_line(OBSERVER);
    serve(OBSERVER);
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    path = arguments[1];
    token = atoi(arguments[2]);
    handle(SIGPIPE, on_pipe, 0);
    handle(SIGCHLD, SIG_IGN, 0);
    start();
    return 0;
}
