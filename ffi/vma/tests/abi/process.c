// fork, daemons, threads, signals, exits, IPv4 through IPv6 sockets.
#include "common.h"

static int caught;
static void on_alarm(int signal) { caught += signal == SIGALRM; }

static void interrupted(int flags) {
    int s[2];
    char b[8];
    stream_pair(s);
    struct sigaction a = {.sa_handler = on_alarm, .sa_flags = flags}, old;
    SHOW(sigaction(SIGALRM, &a, NULL));
    SHOW(sigaction(SIGALRM, NULL, &old));
    SHOW(old.sa_handler == on_alarm);
    SHOW((old.sa_flags & (SA_RESTART | SA_SIGINFO)) == flags);
    struct itimerval soon = {.it_value.tv_usec = 30000};
    caught = 0;
    if (flags & SA_RESTART) {
        // A restarted read ends by the bytes that a child thread's worth of time later come from the other side.
        if (fork() == 0) {
            _exit(0);
        }
        wait(NULL);
        struct timeval t = {.tv_usec = 100000};
        MUST(setsockopt(s[0], SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
    }
    MUST(setitimer(ITIMER_REAL, &soon, NULL));
    if (flags & SA_RESTART) {
        struct pollfd p = {.fd = s[0], .events = POLLIN};
        SHOW(poll(&p, 1, 1000));
    } else {
        SHOW(recv(s[0], b, 8, 0));
    }
    SHOW(caught);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void *echo(void *argument) {
    int l = *(int *)argument, fd = MUST(accept(l, NULL, NULL));
    char b[4096];
    ssize_t n;
    while ((n = read(fd, b, sizeof b)) > 0)
        if (write(fd, b, n) != n)
            break;
    close(fd);
    return NULL;
}

static void threads(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, echo, &l);
    for (int i = 0; i < 4; i++) {
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(fd, SA(where), sizeof where));
        char b[4096], c[4096];
        memset(b, 'a' + i, sizeof b);
        long sum = 0;
        for (int k = 0; k < 50; k++) {
            MUST(send(fd, b, sizeof b, 0));
            sum += MUST(recv(fd, c, sizeof c, MSG_WAITALL));
            if (memcmp(b, c, sizeof b))
                printf("wrong bytes\n");
        }
        SHOW(sum);
        MUST(close(fd));
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    MUST(close(l));
}

// A child that execs a helper must not disturb the parent's connection.
static void helper(void) {
    int s[2];
    char b[8];
    stream_pair(s);
    SHOW(system("exit 3") >> 8);
    pid_t child = fork();
    if (child == 0) {
        close(s[0]);
        close(s[1]);
        execlp("true", "true", NULL);
        _exit(1);
    }
    int status = -1;
    SHOW(waitpid(child, &status, 0) == child);
    SHOW(status);
    child = vfork();
    if (child == 0) {
        close(s[0]);
        execlp("true", "true", NULL);
        _exit(1);
    }
    SHOW(waitpid(child, &status, 0) == child);
    SHOW(send(s[0], "alive", 5, 0));
    SHOW(recv(s[1], b, 8, 0));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static int closes(void *fd) {
    close(*(int *)fd);
    _exit(0);
}

// A child that shares its parent's memory has descriptors of its own: what it closes stays open for its parent. (Each way is the first of its
// process.)
static void shares_memory(int by_clone) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    pid_t apart = MUST(fork());
    int status = -1;
    if (apart == 0) {
        int s[2];
        char b[8];
        stream_pair(s);
        pid_t child = by_clone ? clone(closes, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &s[0]) : vfork();
        if (child == 0) {
            close(s[0]);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status)
            _exit(2);
        _exit(send(s[0], "alive", 5, 0) != 5 || recv(s[1], b, 8, 0) != 5);
    }
    SHOW(waitpid(apart, &status, 0) == apart);
    SHOW(status);
}

// listen, then become a daemon: the child serves.
static void daemonised(void) {
    struct sockaddr_in where;
    int l = listener(&where), up[2];
    MUST(pipe(up));
    if (fork() == 0) {
        // The middle process ends as daemon(3)'s does.
        if (fork() != 0)
            _exit(0);
        char b[8];
        MUST(write(up[1], "!", 1));
        int fd = MUST(accept(l, NULL, NULL));
        ssize_t n = read(fd, b, 8);
        if (write(fd, b, n) != n)
            _exit(1);
        close(fd);
        _exit(0);
    }
    wait(NULL);
    char b[8];
    MUST(close(l));
    MUST(read(up[0], b, 1));
    nap(50);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(fd, SA(where), sizeof where));
    SHOW(send(fd, "daemon", 6, 0));
    SHOW(recv(fd, b, 8, MSG_WAITALL));
    MUST(close(fd));
}

static void mapped(void) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}, from;
    int l = socket(AF_INET6, SOCK_STREAM, 0);
    if (l < 0)
        return;
    MUST(bind(l, SA(any), sizeof any));
    MUST(listen(l, 4));
    socklen_t len = sizeof any;
    MUST(getsockname(l, SA(any), &len));
    struct sockaddr_in v4 = loopback(ntohs(any.sin6_port));
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(fd, SA(v4), sizeof v4));
    len = sizeof from;
    int a = MUST(accept(l, SA(from), &len));
    char text[INET6_ADDRSTRLEN];
    printf("from %s length %d\n", inet_ntop(AF_INET6, &from.sin6_addr, text, sizeof text), (int)len);
    len = sizeof from;
    SHOW(getsockname(a, SA(from), &len));
    printf("at %s length %d\n", inet_ntop(AF_INET6, &from.sin6_addr, text, sizeof text), (int)len);
    int v = -1;
    len = sizeof v;
    SHOW(getsockopt(a, SOL_SOCKET, SO_DOMAIN, &v, &len));
    SHOW(v);
    SHOW(send(a, "six", 3, 0));
    char b[8];
    SHOW(recv(fd, b, 8, 0));
    // An IPv6 socket to an IPv4 listener.
    struct sockaddr_in where;
    int l4 = listener(&where);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = where.sin_port};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr);
    int six = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    SHOW(connect(six, SA(to), sizeof to));
    SHOW(connect(six, SA(where), sizeof where));
    SHOW(close(six));
    close(l4);
    close(a);
    close(fd);
    close(l);
}

static void ranges(void) {
    int s[2];
    char b[8];
    stream_pair(s);
    int high = MUST(fcntl(s[0], F_DUPFD, 200));
    MUST(close(s[0]));
    SHOW(close_range(high, high, 0));
    SHOW(recv(s[1], b, 8, 0));
    MUST(close(s[1]));
    // A daemon's way to close what it may have inherited: later sockets must still work.
    for (int fd = 3; fd < 2000; fd++)
        close(fd);
    stream_pair(s);
    SHOW(send(s[0], "after", 5, 0));
    SHOW(recv(s[1], b, 8, 0));
    SHOW(close_range(3, ~0U, 0));
    stream_pair(s);
    SHOW(send(s[0], "again", 5, 0));
    SHOW(recv(s[1], b, 8, 0));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    interrupted(0);
    interrupted(SA_RESTART);
    threads();
    shares_memory(0);
    shares_memory(1);
    helper();
    daemonised();
    mapped();
    ranges();
    return 0;
}
