// Connections that several processes use: inherited, passed on to programs, sent to others.
#include "common.h"
#include <spawn.h>
#include <sys/epoll.h>

extern char **environ;

static void echo_until_end(int fd) {
    char b[4096];
    ssize_t n;
    while ((n = read(fd, b, sizeof b)) > 0)
        if (write(fd, b, n) != n)
            _exit(2);
    _exit(n != 0);
}

static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void patience(int fd) {
    struct timeval t = {.tv_sec = 10};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
}

// What comes back for what was sent; where it fails, which call it was, and errno.
static long said(int fd, const char *words) {
    char b[64] = {0};
    size_t len = strlen(words), got = 0;
    if (send(fd, words, len, MSG_NOSIGNAL) != (ssize_t)len)
        return -20000 - errno;
    while (got < len) {
        ssize_t n = recv(fd, b + got, len - got, 0);
        if (n <= 0)
            return n ? -30000 - errno : -40000;
        got += n;
    }
    return memcmp(b, words, len) ? -9 : (long)len;
}

static int ended(int fd) {
    char b[16];
    return recv(fd, b, sizeof b, 0);
}

// A client in a process of its own: what `talk` returns comes through a pipe.
struct client {
    int result;
    pid_t pid;
};

static struct client client(struct sockaddr_in where, long (*talk)(int)) {
    int up[2];
    MUST(pipe(up));
    pid_t pid = MUST(fork());
    if (pid == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        patience(fd);
        long result = connect(fd, SA(where), sizeof where) ? -10000 - errno : talk(fd);
        if (write(up[1], &result, sizeof result) < 0)
            _exit(1);
        _exit(0);
    }
    close(up[1]);
    return (struct client){up[0], pid};
}

static long result(struct client c) {
    long r = -99;
    if (read(c.result, &r, sizeof r) != sizeof r)
        r = -98;
    close(c.result);
    waitpid(c.pid, NULL, 0);
    return r;
}

static long three_rounds(int fd) {
    long sum = said(fd, "one");
    nap(30);
    sum += said(fd, "two two");
    nap(30);
    sum += said(fd, "three three three");
    shutdown(fd, SHUT_WR);
    return sum * 10 + ended(fd);
}

// accept, fork: the child serves, the parent closes.
static void forked_per_connection(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    for (int i = 0; i < 3; i++) {
        struct client c = client(where, three_rounds);
        int fd = MUST(accept(l, NULL, NULL));
        pid_t child = MUST(fork());
        if (child == 0) {
            close(l);
            if (i == 2)
                nap(100);
            echo_until_end(fd);
        }
        MUST(close(fd));
        SHOW(result(c));
        SHOW(status_of(child));
    }
    close(l);
}

// The parent reads the beginning before it forks, and exits first.
static void parent_exits_first(void) {
    struct sockaddr_in where;
    int l = listener(&where), up[2];
    MUST(pipe(up));
    struct client c = client(where, three_rounds);
    pid_t middle = MUST(fork());
    if (middle == 0) {
        char b[8];
        int fd = accept(l, NULL, NULL);
        if (read(fd, b, 3) != 3 || write(fd, b, 3) != 3)
            _exit(3);
        if (fork() == 0) {
            // Not before its parent is gone.
            while (getppid() != 1 && kill(getppid(), 0) == 0 && up[0] >= 0) {
                struct pollfd p = {.fd = up[0], .events = POLLIN};
                if (poll(&p, 1, 20) == 1)
                    break;
            }
            nap(100);
            echo_until_end(fd);
        }
        _exit(0);
    }
    SHOW(status_of(middle));
    MUST(write(up[1], "!", 1));
    SHOW(result(c));
    close(l);
    close(up[0]);
    close(up[1]);
}

static long reads_all(int fd) {
    char b[64];
    long sum = 0, n;
    while ((n = recv(fd, b, sizeof b, 0)) > 0)
        for (long i = 0; i < n; i++)
            sum += b[i];
    return n < 0 ? -1 : sum;
}

// Both write by turns, and both hold it to the end.
static void both_write(void) {
    struct sockaddr_in where;
    int l = listener(&where), turn[2], back[2];
    MUST(pipe(turn));
    MUST(pipe(back));
    struct client c = client(where, reads_all);
    int fd = MUST(accept(l, NULL, NULL));
    SHOW(write(fd, "abc", 3));
    pid_t child = MUST(fork());
    char b[1];
    if (child == 0) {
        for (int i = 0; i < 5; i++)
            if (read(turn[0], b, 1) != 1 || write(fd, "child ", 6) != 6 || write(back[1], "!", 1) != 1)
                _exit(1);
        _exit(0);
    }
    for (int i = 0; i < 5; i++) {
        MUST(write(turn[1], "!", 1));
        MUST(read(back[0], b, 1));
        SHOW(write(fd, "parent ", 7));
    }
    SHOW(status_of(child));
    SHOW(send(fd, "end", 3, 0));
    MUST(close(fd));
    SHOW(result(c));
    close(l);
}

// The child never uses what it inherited; the peer's end of stream waits for it all the same.
static void never_used(void) {
    int s[2];
    stream_pair(s);
    patience(s[0]);
    int hold[2];
    MUST(pipe(hold));
    pid_t child = MUST(fork());
    if (child == 0) {
        char b[1];
        close(hold[1]);
        _exit(read(hold[0], b, 1) != 0);
    }
    SHOW(send(s[1], "last", 4, 0));
    MUST(close(s[1]));
    char b[8];
    SHOW(recv(s[0], b, 8, 0));
    SHOW(recv(s[0], b, 8, MSG_DONTWAIT));
    close(hold[1]);
    SHOW(status_of(child));
    // Now nobody has it.
    SHOW(recv(s[0], b, 8, 0));
    close(s[0]);
    close(hold[0]);
}

// A helper that is forked and closes everything, or execs, leaves the parent's connections alone.
static void helpers(void) {
    int s[2];
    stream_pair(s);
    patience(s[0]);
    patience(s[1]);
    pid_t child = vfork();
    if (child == 0) {
        for (int fd = 3; fd < 100; fd++)
            close(fd);
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    SHOW(status_of(child));
    SHOW(send(s[0], "still", 5, 0));
    char b[16];
    SHOW(recv(s[1], b, 16, 0));
    SHOW(system("exit 3"));
    pid_t spawned;
    char *argv[] = {"true", NULL};
    MUST(posix_spawnp(&spawned, "true", NULL, NULL, argv, environ));
    SHOW(status_of(spawned));
    SHOW(send(s[1], "here", 4, 0));
    SHOW(recv(s[0], b, 16, 0));
    // A grandchild that is left behind for a moment, and has closed them.
    child = fork();
    if (child == 0) {
        close(s[0]);
        close(s[1]);
        if (fork() == 0)
            nap(200);
        _exit(0);
    }
    SHOW(status_of(child));
    SHOW(send(s[0], "bye", 3, 0));
    MUST(close(s[0]));
    SHOW(recv(s[1], b, 16, 0));
    SHOW(recv(s[1], b, 16, 0));
    MUST(close(s[1]));
}

// exec with a connection as standard input and output, in every way that there is.
static void run_on(int fd, int how) {
    char *argv[] = {"cat", NULL};
    pid_t child;
    if (how == 3) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fd, 0);
        posix_spawn_file_actions_adddup2(&actions, fd, 1);
        posix_spawn_file_actions_addclose(&actions, fd);
        MUST(posix_spawnp(&child, "cat", &actions, NULL, argv, environ));
        posix_spawn_file_actions_destroy(&actions);
    } else {
        child = how == 2 ? vfork() : fork();
        if (child == 0) {
            dup2(fd, 0);
            dup2(fd, 1);
            close(fd);
            if (how == 1)
                execlp("cat", "cat", NULL);
            execvp("cat", argv);
            _exit(9);
        }
    }
    MUST(close(fd));
    SHOW(status_of(child));
}

static void given_to_programs(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    for (int how = 0; how < 4; how++) {
        struct client c = client(where, three_rounds);
        run_on(MUST(accept4(l, NULL, NULL, how == 3 ? SOCK_CLOEXEC : 0)), how);
        SHOW(result(c));
    }
    close(l);
}

// The whole process becomes another program, and another of its connections ends by that.
static void becomes_another(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    struct client c = client(where, three_rounds), d = client(where, reads_all);
    pid_t child = MUST(fork());
    if (child == 0) {
        int a = accept(l, NULL, NULL), b = accept4(l, NULL, NULL, SOCK_CLOEXEC), e;
        // Whose is whose?
        struct pollfd p = {.fd = a, .events = POLLIN};
        if (poll(&p, 1, 200) != 1)
            e = a, a = dup(b), fcntl(b = e, F_SETFD, FD_CLOEXEC);
        if (write(b, "farewell", 8) != 8)
            _exit(1);
        dup2(a, 0);
        dup2(a, 1);
        close(a);
        execlp("cat", "cat", NULL);
        _exit(9);
    }
    close(l);
    SHOW(result(c));
    SHOW(result(d));
    SHOW(status_of(child));
}

static void send_fd(int channel, int fd) {
    char byte = '!', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    SHOW(sendmsg(channel, &m, 0));
}

static int receive_fd(int channel) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd = -1;
    if (recvmsg(channel, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

// A worker that was forked before gets connections by SCM_RIGHTS.
static void sent(void) {
    struct sockaddr_in where;
    int l = listener(&where), channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    pid_t worker = MUST(fork());
    if (worker == 0) {
        close(l);
        echo_until_end(receive_fd(channel[1]));
    }
    struct client c = client(where, three_rounds);
    int fd = MUST(accept(l, NULL, NULL));
    nap(50);
    send_fd(channel[0], fd);
    MUST(close(fd));
    SHOW(result(c));
    SHOW(status_of(worker));
    close(l);
    close(channel[0]);
    close(channel[1]);
}

// The client's side is shared, before the server has accepted; and then forked again.
static void client_forks(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(fd, SA(where), sizeof where));
    pid_t child = MUST(fork());
    if (child == 0) {
        if (write(fd, "unaccepted", 10) != 10)
            _exit(1);
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(write(fd, " words", 6) != 6);
        _exit(status_of(grandchild) != 0);
    }
    SHOW(status_of(child));
    struct sockaddr_in a = {0}, b = {0};
    socklen_t len = sizeof a;
    int served = MUST(accept(l, SA(a), &len));
    MUST(getsockname(fd, SA(b), &len));
    SHOW(a.sin_port == b.sin_port);
    MUST(getpeername(fd, SA(b), &len));
    SHOW(b.sin_port == where.sin_port);
    char buffer[32];
    patience(served);
    SHOW(recv(served, buffer, 16, MSG_WAITALL));
    SHOW(memcmp(buffer, "unaccepted words", 16));
    SHOW(send(served, "back", 4, 0));
    patience(fd);
    SHOW(recv(fd, buffer, 32, 0));
    MUST(close(fd));
    SHOW(recv(served, buffer, 32, 0));
    MUST(close(served));
    close(l);
}

enum { BULK = 6 << 20 };

static long sends_bulk(int fd) {
    static char piece[65536];
    for (int sent = 0; sent < BULK; sent += sizeof piece) {
        for (size_t i = 0; i < sizeof piece; i++)
            piece[i] = (char)((sent + i) * 7 >> 3);
        for (size_t done = 0; done < sizeof piece;) {
            ssize_t n = send(fd, piece + done, sizeof piece - done, MSG_NOSIGNAL);
            if (n <= 0)
                return -1;
            done += n;
        }
    }
    shutdown(fd, SHUT_WR);
    char b[4];
    return recv(fd, b, 4, MSG_WAITALL) == 4 && !memcmp(b, "done", 4);
}

// Queues on both sides are full when the child takes over.
static void full_queues(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    struct client c = client(where, sends_bulk);
    int fd = MUST(accept(l, NULL, NULL));
    static char b[100000];
    size_t before = 0;
    while (before < 300000)
        before += MUST(recv(fd, b, sizeof b, 0));
    nap(100);
    pid_t child = MUST(fork());
    if (child == 0) {
        size_t at = before;
        for (ssize_t n; (n = recv(fd, b, sizeof b, 0)) > 0;)
            for (ssize_t i = 0; i < n; i++, at++)
                if (b[i] != (char)((at / 65536 * 65536 + at % 65536) * 7 >> 3))
                    _exit(5);
        _exit(at != BULK || write(fd, "done", 4) != 4);
    }
    MUST(close(fd));
    SHOW(status_of(child));
    SHOW(result(c));
    close(l);
}

static void *blocked_reader(void *fd) {
    char b[8];
    return (void *)(long)recv(*(int *)fd, b, 8, 0);
}

// A thread of the parent's waits on it, in recv and in epoll, while the child writes.
static void watched_meanwhile(void) {
    int s[2], e = epoll_create1(0);
    stream_pair(s);
    struct epoll_event v = {.events = EPOLLIN, .data.u32 = 7};
    MUST(epoll_ctl(e, EPOLL_CTL_ADD, s[0], &v));
    pthread_t t;
    pthread_create(&t, NULL, blocked_reader, &s[1]);
    nap(50);
    pid_t child = MUST(fork());
    if (child == 0) {
        nap(30);
        if (write(s[1], "to epoll", 8) != 8)
            _exit(1);
        nap(30);
        _exit(write(s[0], "to recv", 7) != 7);
    }
    SHOW(epoll_wait(e, &v, 1, 5000));
    SHOW(v.data.u32);
    void *got;
    pthread_join(t, &got);
    SHOW(got);
    SHOW(status_of(child));
    char b[16];
    SHOW(recv(s[0], b, 16, 0));
    SHOW(epoll_wait(e, &v, 1, 0));
    SHOW(send(s[1], "again", 5, 0));
    SHOW(epoll_wait(e, &v, 1, 5000));
    SHOW(recv(s[0], b, 16, 0));
    MUST(close(s[1]));
    SHOW(epoll_wait(e, &v, 1, 5000));
    SHOW(recv(s[0], b, 16, 0));
    MUST(close(s[0]));
    close(e);
}

// connect, then become a daemon.
static void daemonised(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t child = MUST(fork());
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, SA(where), sizeof where) || write(fd, "before ", 7) != 7 || daemon(0, 0))
            _exit(1);
        nap(100);
        if (write(fd, "after", 5) != 5)
            _exit(1);
        _exit(0);
    }
    int fd = MUST(accept(l, NULL, NULL));
    SHOW(status_of(child));
    char b[16];
    patience(fd);
    SHOW(recv(fd, b, 12, MSG_WAITALL));
    SHOW(memcmp(b, "before after", 12));
    SHOW(recv(fd, b, 12, 0));
    MUST(close(fd));
    close(l);
}

// Half of it is closed when the child takes over.
static void half_closed(void) {
    int s[2];
    stream_pair(s);
    patience(s[0]);
    MUST(shutdown(s[0], SHUT_WR));
    SHOW(send(s[1], "one", 3, 0));
    pid_t child = MUST(fork());
    if (child == 0) {
        char b[4];
        close(s[0]);
        if (read(s[1], b, 4) != 0 || write(s[1], "two", 3) != 3)
            _exit(1);
        _exit(0);
    }
    MUST(close(s[1]));
    SHOW(status_of(child));
    char b[8];
    SHOW(recv(s[0], b, 6, MSG_WAITALL));
    SHOW(recv(s[0], b, 6, 0));
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    MUST(close(s[0]));
}

static pid_t server(int l) {
    pid_t child = MUST(fork());
    if (child == 0)
        for (;;) {
            int fd = accept(l, NULL, NULL);
            if (fd < 0)
                _exit(1);
            if (fork() == 0)
                echo_until_end(fd);
            close(fd);
        }
    return child;
}

// Several wait at a listener, and one of them does something else when connections come; or closes it; or ends.
static void busy_sharers(void) {
    for (int how = 0; how < 3; how++) {
        struct sockaddr_in where;
        int l = listener(&where), up[2];
        MUST(pipe(up));
        pid_t serving = server(l);
        pid_t busy = MUST(fork());
        if (busy == 0) {
            struct pollfd p = {.fd = l, .events = POLLIN};
            int n = poll(&p, 1, 3000);
            nap(how == 0 ? 600 : 15);
            if (how == 1)
                close(l), nap(300);
            _exit(n < 0 || write(up[1], "!", 1) != 1);
        }
        nap(50);
        struct client c[6];
        for (int i = 0; i < 6; i++)
            c[i] = client(where, three_rounds);
        for (int i = 0; i < 6; i++)
            SHOW(result(c[i]));
        SHOW(status_of(busy));
        kill(serving, SIGKILL);
        status_of(serving);
        close(l);
        close(up[0]);
        close(up[1]);
    }
}

// The connection is over, and a child reads what came before its end.
static void ended_unread(void) {
    int s[2];
    stream_pair(s);
    SHOW(send(s[1], "the answer", 10, 0));
    MUST(close(s[1]));
    MUST(shutdown(s[0], SHUT_WR));
    nap(50);
    pid_t child = MUST(fork());
    if (child == 0) {
        char b[16];
        _exit(read(s[0], b, 16) != 10 || read(s[0], b, 16) != 0);
    }
    SHOW(status_of(child));
    MUST(close(s[0]));
}

// A child that closes every number but one; and has a helper of its own by vfork before it uses that.
static void closes_all_others(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    struct client c = client(where, three_rounds);
    int fd = MUST(accept(l, NULL, NULL));
    pid_t child = MUST(fork());
    if (child == 0) {
        for (int i = 3; i < 1024; i++)
            if (i != fd)
                close(i);
        nap(100);
        pid_t helper = vfork();
        if (helper == 0) {
            for (int i = 3; i < 1024; i++)
                close(i);
            execl("/bin/true", "true", NULL);
            _exit(9);
        }
        if (status_of(helper) != 0)
            _exit(4);
        echo_until_end(fd);
    }
    MUST(close(fd));
    SHOW(result(c));
    SHOW(status_of(child));
    close(l);
}

// A program that is not there: everything goes on as it was.
static void fails_to_exec(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    struct client c = client(where, three_rounds), d;
    int fd = MUST(accept(l, NULL, NULL));
    char *argv[] = {"nothing", NULL}, b[32];
    SHOW(execv("/nonexistent/nothing", argv));
    SHOW(execl("/nonexistent/nothing", "nothing", "a", "b", "c", "d", "e", NULL));
    for (int got = 0, n; got < 27 && (n = recv(fd, b, sizeof b, 0)) > 0; got += n)
        MUST(send(fd, b, n, 0));
    MUST(close(fd));
    SHOW(result(c));
    d = client(where, reads_all);
    fd = MUST(accept(l, NULL, NULL));
    SHOW(send(fd, "again", 5, 0));
    MUST(close(fd));
    SHOW(result(d));
    close(l);
}

static int told[2];

// As much as there is room for; then it closes it, and goes on with something else.
static long sends_much(int fd) {
    static char much[1 << 16];
    long sent = 0;
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    for (int idle = 0; idle < 20;) {
        ssize_t n = send(fd, much, sizeof much, MSG_NOSIGNAL);
        if (n > 0)
            sent += n, idle = 0;
        else
            nap(10), idle++;
    }
    MUST(write(told[1], &sent, sizeof sent));
    MUST(close(fd));
    nap(1000);
    return 0;
}

// More is unread than a connection of the kernel's takes at once, its writer has closed it, and a child reads first.
static void much_unread(void) {
    struct sockaddr_in where;
    int l = listener(&where), up[2];
    MUST(pipe(up));
    MUST(pipe(told));
    struct client c = client(where, sends_much);
    int fd = MUST(accept(l, NULL, NULL));
    patience(fd);
    long sent = -1, read_there = -1;
    MUST(read(told[0], &sent, sizeof sent));
    pid_t child = MUST(fork());
    if (child == 0) {
        static char b[1 << 16];
        long got = 0, n;
        while ((n = read(fd, b, sizeof b)) > 0)
            got += n;
        _exit(write(up[1], &got, sizeof got) != sizeof got || n != 0);
    }
    SHOW(read(up[0], &read_there, sizeof read_there));
    SHOW(read_there == sent && sent > 0);
    SHOW(status_of(child));
    SHOW(result(c));
    close(fd);
    close(l);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    much_unread();
    signal(SIGCHLD, SIG_DFL);
    forked_per_connection();
    parent_exits_first();
    both_write();
    never_used();
    helpers();
    given_to_programs();
    becomes_another();
    sent();
    client_forks();
    full_queues();
    watched_meanwhile();
    daemonised();
    half_closed();
    busy_sharers();
    ended_unread();
    closes_all_others();
    fails_to_exec();
    return 0;
}
