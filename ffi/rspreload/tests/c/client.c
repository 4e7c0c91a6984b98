// Talks to a server that sends back what it gets: client MODE PORT rsocket|tcp.
#include "check.h"

#define BYTES 200000

static char sent[BYTES], got[BYTES];
static int port, wants_rsocket;

static int connected(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = at(port);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

static void check_carrier(int fd)
{
    if (is_rsocket(fd) != wants_rsocket) {
        fprintf(stderr, "it is %s\n", wants_rsocket ? "no rsocket" : "an rsocket");
        exit(1);
    }
}

static void echo(int fd, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sent[i] = rand();
    send_all(fd, sent, len);
    recv_all(fd, got, len);
    CHECK(memcmp(sent, got, len) == 0);
}

// Several at once, which connect and talk without waiting.
static void several(void)
{
    enum { N = 4 };
    struct pollfd fds[N];
    size_t out[N] = {0}, in[N] = {0}, left = N;
    static char back[N][BYTES];
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = rand();
    for (int i = 0; i < N; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct sockaddr_in to = at(port);
        int done = connect(fd, (struct sockaddr *)&to, sizeof to);
        CHECK(done == 0 || errno == EINPROGRESS);
        fds[i] = (struct pollfd){.fd = fd, .events = POLLOUT};
        if (done < 0) {
            CHECK(poll(&fds[i], 1, 10000) == 1 && fds[i].revents & POLLOUT);
            int error = -1;
            socklen_t len = sizeof error;
            CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
        }
        check_carrier(fd);
    }
    while (left > 0) {
        for (int i = 0; i < N; i++)
            fds[i].events = POLLIN | (out[i] < BYTES ? POLLOUT : 0);
        CHECK(poll(fds, N, 20000) > 0);
        for (int i = 0; i < N; i++) {
            if (fds[i].revents & POLLOUT && out[i] < BYTES) {
                struct iovec iov[2] = {{sent + out[i], (BYTES - out[i]) / 2}, {sent + out[i] + (BYTES - out[i]) / 2, BYTES - out[i] - (BYTES - out[i]) / 2}};
                ssize_t n = writev(fds[i].fd, iov, 2);
                CHECK(n > 0 || errno == EAGAIN);
                out[i] += n > 0 ? n : 0;
            }
            if (fds[i].revents & POLLIN) {
                ssize_t n = read(fds[i].fd, back[i] + in[i], BYTES - in[i]);
                CHECK(n > 0);
                in[i] += n;
                if (in[i] == BYTES) {
                    CHECK(memcmp(sent, back[i], BYTES) == 0 && close(fds[i].fd) == 0);
                    fds[i].fd = -1;
                    left--;
                }
            }
        }
    }
}

// Numbers and flags.
static void numbers(void)
{
    int fd = connected();
    int copy = dup(fd), other = fcntl(fd, F_DUPFD_CLOEXEC, 100), onto = dup2(fd, 77);
    CHECK(copy >= 0 && other >= 100 && onto == 77);
    CHECK(fcntl(other, F_GETFD) == FD_CLOEXEC && fcntl(copy, F_GETFD) == 0);
    CHECK(close(fd) == 0);
    errno = 0;
    CHECK(recv(fd, got, 1, 0) == -1 && errno == EBADF);
    echo(copy, 1000);
    check_carrier(copy);
    // Flags are the open file's.
    set_nonblocking(other);
    CHECK(recv(onto, got, 1, 0) == -1 && errno == EAGAIN);
    int off = 0;
    CHECK(ioctl(copy, FIONBIO, &off) == 0);
    // Something else under a number of it.
    int null = open("/dev/null", O_RDWR);
    CHECK(null >= 0 && dup2(null, 77) == 77 && write(77, "x", 1) == 1);
    CHECK(close_range(100, ~0U, 0) == 0);
    echo(copy, 1000);

    struct timeval time = {.tv_usec = 50000};
    CHECK(setsockopt(copy, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(recv(copy, got, 1, 0) == -1 && errno == EAGAIN);
    time = (struct timeval){.tv_sec = 10};
    CHECK(setsockopt(copy, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(setsockopt(copy, IPPROTO_TCP, TCP_NODELAY, &copy, sizeof copy) == 0);
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    CHECK(getpeername(copy, (struct sockaddr *)&name, &len) == 0 && ntohs(name.sin_port) == port);
    len = sizeof name;
    CHECK(getsockname(copy, (struct sockaddr *)&name, &len) == 0 && name.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && name.sin_port != 0);

    // A file.
    FILE *file = tmpfile();
    CHECK(file && fwrite(sent, 1, BYTES, file) == BYTES && fflush(file) == 0);
    off_t from = 1000;
    CHECK(sendfile(copy, fileno(file), &from, 5000) == 5000 && from == 6000);
    CHECK(recv(copy, got, 5000, MSG_PEEK | MSG_WAITALL) > 0);
    int count = 0;
    while (ioctl(copy, FIONREAD, &count) == 0 && count < 5000)
        CHECK(poll(&(struct pollfd){.fd = copy, .events = POLLIN}, 1, 1000) == 1);
    CHECK(count == 5000);
    CHECK(recv(copy, got, 5000, MSG_WAITALL) == 5000 && memcmp(got, sent + 1000, 5000) == 0);

    // libc's streams.
    CHECK(dprintf(copy, "%s %d\n", "number", 5) == 9);
    FILE *stream = fdopen(dup(copy), "r+");
    char line[32];
    CHECK(stream && fileno(stream) >= 0 && fgets(line, sizeof line, stream) && strcmp(line, "number 5\n") == 0);
    CHECK(fprintf(stream, "%s\n", "again") == 6 && fflush(stream) == 0 && fgets(line, sizeof line, stream) && strcmp(line, "again\n") == 0);
    CHECK(fclose(stream) == 0);
    echo(copy, 10);

    // Half of it ends, and then the other.
    send_all(copy, "bye", 3);
    CHECK(shutdown(copy, SHUT_WR) == 0);
    CHECK(send(copy, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    recv_all(copy, got, 3);
    CHECK(recv(copy, got, 1, 0) == 0 && close(copy) == 0);
}

// One connection after the other, which blocks.
static void plain(int times)
{
    for (int i = 0; i < times; i++) {
        int fd = connected();
        echo(fd, 10);
        check_carrier(fd);
        echo(fd, 100000);
        CHECK(close(fd) == 0);
    }
}

// Stops itself when it is connected, and hears the server's first words when it goes on.
static void stopped(void)
{
    static const char greeting[] = "SSH-2.0-some greeting";
    int fd = connected();
    raise(SIGSTOP);
    recv_all(fd, got, strlen(greeting));
    CHECK(memcmp(got, greeting, strlen(greeting)) == 0);
    echo(fd, 1000);
    check_carrier(fd);
    CHECK(close(fd) == 0);
}

// Waits for a server that will be killed, in a call of each kind.
static void waits(void)
{
    int reads = connected(), polls = connected(), epolls = connected();
    check_carrier(reads);
    puts("waiting");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    ssize_t n = recv(reads, got, 1, 0);
    CHECK(n == 0 || (n == -1 && errno == ECONNRESET));
    struct pollfd fds = {.fd = polls, .events = POLLIN};
    CHECK(poll(&fds, 1, 10000) == 1 && fds.revents & (POLLIN | POLLHUP | POLLERR));
    int instance = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, epolls, &event) == 0 && epoll_wait(instance, &event, 1, 10000) == 1);
    // And nobody is there any more: the kernel says so, once it has closed what a process had whose memory is gone already.
    struct sockaddr_in to = at(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0), turns = 0;
    while (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
        CHECK(turns++ < 500 && close(fd) == 0 && usleep(10000) == 0);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    }
    CHECK(errno == ECONNREFUSED);
}

static void *wait_for_one(void *instance)
{
    struct epoll_event event;
    CHECK(epoll_wait(*(int *)instance, &event, 1, 20000) == 1 && event.data.u64 == 42 && event.events & EPOLLIN);
    return NULL;
}

static void *recv_nothing(void *fd)
{
    char byte;
    CHECK(recv(*(int *)fd, &byte, 1, 0) == 0);
    return NULL;
}

// Threads that wait for what another one does: which adds a socket to the instance in which nothing was yet, and ends a connection.
static void threads(void)
{
    int instance = epoll_create1(0), one_shot = epoll_create1(0);
    pthread_t thread[2];
    CHECK(pthread_create(&thread[0], NULL, wait_for_one, &instance) == 0);
    usleep(100000);
    int fd = connected();
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 42};
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event) == 0);
    send_all(fd, "x", 1);
    CHECK(pthread_join(thread[0], NULL) == 0);
    // Once, and once more after it was asked for again.
    event.events = EPOLLIN | EPOLLONESHOT;
    CHECK(epoll_ctl(one_shot, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(one_shot, &event, 1, 1000) == 1 && epoll_wait(one_shot, &event, 1, 20) == 0);
    event.events = EPOLLIN | EPOLLONESHOT;
    CHECK(epoll_ctl(one_shot, EPOLL_CTL_MOD, fd, &event) == 0 && epoll_wait(one_shot, &event, 1, 1000) == 1);
    CHECK(epoll_ctl(one_shot, EPOLL_CTL_DEL, fd, NULL) == 0 && epoll_ctl(one_shot, EPOLL_CTL_DEL, fd, NULL) == -1 && errno == ENOENT);
    recv_all(fd, got, 1);
    check_carrier(fd);
    CHECK(pthread_create(&thread[1], NULL, recv_nothing, &fd) == 0);
    usleep(50000);
    CHECK(shutdown(fd, SHUT_RDWR) == 0 && pthread_join(thread[1], NULL) == 0);
}

static volatile sig_atomic_t ran;

static void handler(int signal)
{
    (void)signal;
    ran++;
}

// A handler with these flags runs every three milliseconds. (One that comes before a call ends nothing.)
static void begin_signals(int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    struct itimerval timer = {{0, 3000}, {0, 3000}};
    ran = 0;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void end_signals(void)
{
    struct itimerval never = {0};
    sigset_t mask;
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(ran > 0 && sigprocmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGALRM));
}

static void *say_later(void *fd)
{
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    usleep(30000);
    send_all(*(int *)fd, "x", 1);
    return NULL;
}

// What handlers of signals end.
static void signals(void)
{
    int fd = connected();
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct timeval none = {0}, time = {.tv_sec = 10};
    pthread_t thread;
    echo(fd, 10);
    check_carrier(fd);
    begin_signals(0);
    CHECK(recv(fd, got, 1, 0) == -1 && errno == EINTR);
    end_signals();
    begin_signals(SA_RESTART);
    CHECK(poll(&one, 1, 10000) == -1 && errno == EINTR);
    end_signals();
    // With a limit, a call is not begun anew.
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    begin_signals(SA_RESTART);
    CHECK(recv(fd, got, 1, 0) == -1 && errno == EINTR);
    end_signals();
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    // (The thread's own signals are blocked: the handler runs in this one.)
    CHECK(pthread_create(&thread, NULL, say_later, &fd) == 0);
    begin_signals(SA_RESTART);
    CHECK(recv(fd, got, 1, 0) == 1);
    end_signals();
    CHECK(pthread_join(thread, NULL) == 0 && close(fd) == 0);
}

static void datagrams(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = at(port), from;
    socklen_t len = sizeof from;
    size_t lens[] = {0, 1, 1500, 20000};
    for (int i = 0; i < 20; i++) {
        size_t n = lens[i % 4];
        CHECK(sendto(fd, sent, n, 0, (struct sockaddr *)&to, sizeof to) == (ssize_t)n);
        CHECK(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 5000) == 1);
        CHECK(recvfrom(fd, got, BYTES, 0, (struct sockaddr *)&from, &len) == (ssize_t)n && from.sin_port == to.sin_port);
    }
    check_carrier(fd);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK(send(fd, "end", 3, 0) == 3 && recv(fd, got, BYTES, 0) == 3);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    alarm(40);
    port = atoi(argv[2]);
    wants_rsocket = strcmp(argv[3], "rsocket") == 0;
    if (strcmp(argv[1], "several") == 0)
        several();
    else if (strcmp(argv[1], "numbers") == 0)
        numbers();
    else if (strcmp(argv[1], "plain") == 0)
        plain(1);
    else if (strcmp(argv[1], "three") == 0)
        plain(3);
    else if (strcmp(argv[1], "stopped") == 0)
        stopped();
    else if (strcmp(argv[1], "waits") == 0)
        waits();
    else if (strcmp(argv[1], "threads") == 0)
        threads();
    else if (strcmp(argv[1], "signals") == 0)
        signals();
    else if (strcmp(argv[1], "datagrams") == 0)
        datagrams();
    else
        CHECK(0);
    return 0;
}
