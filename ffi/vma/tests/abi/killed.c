// How a connection ends whose other process is killed, or ends without closing it: by the end of its stream where that process had read everything,
// by a reset where it had not, or where it had asked for one.
#include "common.h"
#include <sys/epoll.h>

enum { NOTHING, ANSWERED, SENT, UNREAD, UNREAD_SENT, PARTLY, PEEKED, SHUT, SHUT_UNREAD, PEER_SHUT, PEER_SHUT_UNSEEN, PEER_SHUT_UNREAD, BOTH_SHUT,
       LINGER_0, LINGER_1, LINGER_OFF, BACKLOG, BACKLOG_SENT, STOPPED, STOPPED_SENT, STREAMED, SCENES };

static const char *const names[] = {
    "nothing was sent",
    "everything was answered",
    "the dead one had sent",
    "it had not read",
    "it had sent, and had not read",
    "it had read a part",
    "it had only peeked",
    "it had shut its side down",
    "the same, and had not read",
    "this side was shut down",
    "the same, which it had not seen",
    "the same, behind what it had not read",
    "both sides were shut down",
    "it lingered for no time",
    "it lingered for a second",
    "it lingered no more",
    "nobody had accepted it",
    "the same, with bytes",
    "it was stopped",
    "it was stopped, and did not see what was sent",
    "it had sent many pieces",
};

enum { KILLED, TERMINATED, FAULTED, EXITED, EXITED_AT_ONCE, EXECED, ENDS };

static const char *const end_names[] = {"SIGKILL", "SIGTERM", "SIGSEGV", "exit", "_exit", "exec"};

static int is_shut(int scene) { return scene == SHUT || scene == SHUT_UNREAD || scene == BOTH_SHUT; }
static int is_peer_shut(int scene) { return scene == PEER_SHUT || scene == PEER_SHUT_UNSEEN || scene == PEER_SHUT_UNREAD || scene == BOTH_SHUT; }
static int is_backlog(int scene) { return scene == BACKLOG || scene == BACKLOG_SENT; }
static int is_stopped(int scene) { return scene == STOPPED || scene == STOPPED_SENT; }

// What the survivor sends before the end.
static int sends(int scene) {
    return scene == ANSWERED || scene == UNREAD || scene == UNREAD_SENT || scene == PARTLY || scene == PEEKED || scene == SHUT_UNREAD ||
           scene == PEER_SHUT_UNREAD || scene == BACKLOG_SENT || scene == LINGER_0 || scene == LINGER_1;
}

static void set_linger(int fd, int on, int seconds) {
    struct linger l = {.l_onoff = on, .l_linger = seconds};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l));
}

static void victim(int scene, int fd) {
    char b[64];
    if (scene == ANSWERED || scene == LINGER_0 || scene == LINGER_1) {
        MUST(recv(fd, b, 7, MSG_WAITALL));
        MUST(send(fd, "answer", 6, 0));
    }
    if (scene == SENT || scene == UNREAD_SENT)
        MUST(send(fd, "words", 5, 0));
    if (scene == PARTLY)
        MUST(recv(fd, b, 3, MSG_WAITALL));
    if (scene == PEEKED)
        MUST(recv(fd, b, 7, MSG_PEEK | MSG_WAITALL));
    if (is_shut(scene))
        MUST(shutdown(fd, SHUT_WR));
    if (scene == PEER_SHUT || scene == BOTH_SHUT)
        MUST(recv(fd, b, 1, 0));
    if (scene == LINGER_0)
        set_linger(fd, 1, 0);
    if (scene == LINGER_1)
        set_linger(fd, 1, 1);
    if (scene == LINGER_OFF)
        set_linger(fd, 1, 0), set_linger(fd, 0, 0);
    for (int i = 0; scene == STREAMED && i < 200; i++)
        MUST(send(fd, "0123456789", 10, MSG_NOSIGNAL));
    // (Bytes that Nagle's algorithm holds go with a process that is killed.)
    if (scene == STREAMED)
        nap(50);
    // It is time for what the other side sends, too.
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (scene == UNREAD || scene == UNREAD_SENT || scene == SHUT_UNREAD || scene == PEER_SHUT_UNREAD)
        poll(&p, 1, 3000);
}

static void end(int how) {
    switch (how) {
    case EXITED: exit(0);
    case EXITED_AT_ONCE: _exit(0);
    case EXECED: execl("/bin/true", "true", (char *)NULL); _exit(1);
    default: for (;;) pause();
    }
}

static void show_error(int fd) {
    int error = 0;
    socklen_t len = sizeof error;
    MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("  SO_ERROR %s\n", error ? strerrorname_np(error) : "0");
}

static void show_events(const char *by, int events) {
    printf("  %s says%s%s%s%s%s\n", by, events & POLLIN ? " IN" : "", events & POLLOUT ? " OUT" : "", events & POLLRDHUP ? " RDHUP" : "",
           events & POLLHUP ? " HUP" : "", events & POLLERR ? " ERR" : "");
}

static void read_out(int fd) {
    char b[4096];
    ssize_t n;
    int all = 0;
    while ((n = recv(fd, b, sizeof b, 0)) > 0)
        all += n;
    int code = errno;
    printf("  %d bytes, then %s\n", all, n == 0 ? "the end" : strerrorname_np(code));
    n = recv(fd, b, sizeof b, 0);
    code = errno;
    printf("  and then %s\n", n == 0 ? "the end" : n > 0 ? "bytes" : strerrorname_np(code));
}

static void write_twice(int fd) {
    for (int i = 0; i < 2; i++) {
        ssize_t n = send(fd, "more", 4, MSG_NOSIGNAL);
        printf("  send: %s\n", n == 4 ? "4" : strerrorname_np(errno));
        // Who sends to an ended process is answered by a reset, however busy the machine is: on the kernel, too, that has taken more than 60 ms.
        struct pollfd p = {.fd = fd};
        if (n == 4)
            poll(&p, 1, 5000);
    }
    show_events("poll", ready(fd, POLLIN | POLLOUT | POLLRDHUP));
    show_error(fd);
}

struct way {
    int fd, tells;
};

static void *blocked(void *argument) {
    read_out(((struct way *)argument)->fd);
    return NULL;
}

static void *polled(void *argument) {
    struct pollfd p = {.fd = ((struct way *)argument)->fd, .events = POLLRDHUP};
    poll(&p, 1, 5000);
    show_events("poll", p.revents);
    return NULL;
}

static void *edges(void *argument) {
    struct way *way = argument;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    int ep = MUST(epoll_create1(0)), all = 0;
    MUST(epoll_ctl(ep, EPOLL_CTL_ADD, way->fd, &e));
    while (!(all & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) && epoll_wait(ep, &e, 1, 5000) == 1)
        all |= e.events;
    show_events("epoll", all);
    MUST(close(ep));
    return NULL;
}

static void *(*const waits[])(void *) = {NULL, blocked, polled, edges};
static const char *const wait_names[] = {"reads later", "waits in recv", "waits in poll", "waits at an edge"};

static void play(int scene, int how, int serves, int waiting) {
    printf("%s, ended by %s, %s; the survivor %s\n", names[scene], end_names[how], serves ? "the server" : "the client", wait_names[waiting]);
    fflush(stdout);
    int up[2], down[2], fd, l = -1;
    char b[64];
    struct sockaddr_in where;
    MUST(pipe2(up, O_CLOEXEC));
    MUST(pipe2(down, O_CLOEXEC));
    if (!serves)
        l = listener(&where);
    pid_t child = MUST(fork());
    if (child == 0) {
        close(up[0]), close(down[1]);
        int v, vl = -1;
        if (serves) {
            vl = listener(&where);
            MUST(write(up[1], &where, sizeof where));
            if (is_backlog(scene)) {
                struct pollfd p = {.fd = vl, .events = POLLIN};
                MUST(poll(&p, 1, 3000));
                v = -1;
            } else {
                v = MUST(accept(vl, NULL, NULL));
            }
        } else {
            close(l);
            v = MUST(socket(AF_INET, SOCK_STREAM, 0));
            MUST(connect(v, SA(where), sizeof where));
        }
        MUST(fcntl(v < 0 ? vl : v, F_SETFD, FD_CLOEXEC));
        if (!is_backlog(scene))
            victim(scene, v);
        MUST(write(up[1], "r", 1));
        MUST(read(down[0], b, 1));
        end(how);
    }
    close(up[1]), close(down[0]);
    if (serves) {
        MUST(read(up[0], &where, sizeof where));
        fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(fd, SA(where), sizeof where));
    } else {
        fd = MUST(accept(l, NULL, NULL));
        close(l);
    }
    if (sends(scene))
        MUST(send(fd, "request", 7, 0));
    if (is_peer_shut(scene))
        MUST(shutdown(fd, SHUT_WR));
    if (read(up[0], b, 1) != 1)
        printf("  the victim ended too early\n");
    if (scene == ANSWERED)
        MUST(recv(fd, b, 6, MSG_WAITALL));
    pthread_t thread;
    struct way way = {.fd = fd};
    if (waiting) {
        pthread_create(&thread, NULL, waits[waiting], &way);
        nap(10);
    }
    if (is_stopped(scene)) {
        int status;
        MUST(kill(child, SIGSTOP));
        MUST(waitpid(child, &status, WUNTRACED));
        if (scene == STOPPED_SENT)
            MUST(send(fd, "request", 7, 0));
    }
    int signals[] = {SIGKILL, SIGTERM, SIGSEGV};
    if (how <= FAULTED)
        MUST(kill(child, signals[how]));
    else
        MUST(write(down[1], "e", 1));
    int status;
    MUST(waitpid(child, &status, 0));
    if (waiting)
        pthread_join(thread, NULL);
    // (Where its end of stream came before, nobody waits for the news of its death.)
    if (is_shut(scene))
        nap(100);
    show_events("poll", ready(fd, POLLRDHUP));
    show_events("poll", ready(fd, POLLIN | POLLOUT | POLLRDHUP));
    if (waiting == 0 && scene % 2)
        show_error(fd);
    if (waiting != 1)
        read_out(fd);
    show_events("poll", ready(fd, POLLIN | POLLOUT | POLLRDHUP));
    if (!is_peer_shut(scene))
        write_twice(fd);
    MUST(close(fd));
    close(up[0]), close(down[1]);
}

// A process is killed whose child has the connection, too, or had it: its end is not the end of the stream, or it is.
static void forks_before(int stays) {
    printf("it has a child that %s\n", stays ? "has the connection" : "has ended");
    fflush(stdout);
    int up[2], fd, l;
    struct sockaddr_in where;
    char b[8];
    MUST(pipe2(up, O_CLOEXEC));
    l = listener(&where);
    pid_t child = MUST(fork());
    if (child == 0) {
        close(l);
        int v = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(v, SA(where), sizeof where));
        MUST(send(v, "words", 5, 0));
        MUST(recv(v, b, 3, MSG_WAITALL));
        pid_t grandchild = MUST(fork());
        if (grandchild == 0) {
            close(up[1]);
            if (!stays)
                _exit(0);
            for (;;)
                pause();
        }
        if (!stays)
            MUST(waitpid(grandchild, NULL, 0));
        nap(200);
        MUST(write(up[1], &grandchild, sizeof grandchild));
        for (;;)
            pause();
    }
    close(up[1]);
    fd = MUST(accept(l, NULL, NULL));
    close(l);
    MUST(recv(fd, b, 5, MSG_WAITALL));
    MUST(send(fd, "yes", 3, 0));
    pid_t grandchild;
    MUST(read(up[0], &grandchild, sizeof grandchild));
    MUST(kill(child, SIGKILL));
    MUST(waitpid(child, NULL, 0));
    struct timeval t = {.tv_usec = 300000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    // (Here the connection is lost with the process that was killed, and says so. On the kernel the child goes on with it.)
    printf("  %s\n", recv(fd, b, 1, 0) == 0 ? "the end" : "not the end");
    if (stays)
        kill(grandchild, SIGKILL);
    MUST(close(fd));
    close(up[0]);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    (void)argv;
    for (int scene = 0; scene < SCENES; scene++)
        for (int how = 0; how < ENDS; how++)
            for (int serves = is_backlog(scene); serves < 2; serves++) {
                if (is_stopped(scene) && how != KILLED)
                    continue;
                // All ways of waiting where they are killed, unless there is an end of stream before that nobody waits for; else the usual one.
                int ways = argc > 1 || (how == KILLED && !is_shut(scene)) ? 4 : 1;
                for (int waiting = 0; waiting < ways; waiting++)
                    play(scene, how, serves, waiting);
            }
    forks_before(0);
    forks_before(1);
    return 0;
}
