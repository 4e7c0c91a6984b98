// Connections of one listener, whose kernel's descriptors may be one and the same: none may notice what another does.
#include "common.h"
#include <sys/stat.h>

enum { MANY = 40 };
static int ours[MANY], theirs[MANY];

static void many(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    for (int i = 0; i < MANY; i++) {
        theirs[i] = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(theirs[i], SA(where), sizeof where));
        ours[i] = MUST(accept4(l, NULL, NULL, i % 4 == 1 ? SOCK_CLOEXEC : i % 4 == 2 ? SOCK_NONBLOCK : 0));
    }
    MUST(close(l));
}

static int option(int fd, int level, int name) {
    int value = -77;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, name, &value, &len) == 0 ? value : -errno;
}

static int set(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

static int works(int i) {
    char b[4] = "";
    return send(theirs[i], "in", 2, 0) == 2 && recv(ours[i], b, 2, 0) == 2 && send(ours[i], "out", 3, 0) == 3 && recv(theirs[i], b, 3, MSG_WAITALL) == 3;
}

static int all_work(void) {
    int n = 0;
    for (int i = 0; i < MANY; i++) {
        if (i % 4 == 2)
            MUST(ready(ours[i], POLLOUT));
        send(theirs[i], "a", 1, 0);
        char c = 0;
        while (recv(ours[i], &c, 1, 0) < 0 && errno == EAGAIN)
            nap(1);
        n += c == 'a';
    }
    return n;
}

static int count(int level, int name, int value) {
    int n = 0;
    for (int i = 0; i < MANY; i++)
        n += option(ours[i], level, name) == value;
    return n;
}

static int flagged(int command, int flag) {
    int n = 0;
    for (int i = 0; i < MANY; i++)
        n += (fcntl(ours[i], command) & flag) != 0;
    return n;
}

static void kinds(void) {
    struct stat st;
    SHOW(fstat(ours[3], &st));
    SHOW(S_ISSOCK(st.st_mode));
    SHOW(option(ours[3], SOL_SOCKET, SO_TYPE));
    SHOW(option(ours[3], SOL_SOCKET, SO_DOMAIN));
    SHOW(option(ours[3], SOL_SOCKET, SO_ACCEPTCONN));
    SHOW(flagged(F_GETFL, O_NONBLOCK));
    SHOW(flagged(F_GETFD, FD_CLOEXEC));
    SHOW(fcntl(ours[0], F_GETFL) == O_RDWR);
}

static void options(void) {
    SHOW(set(ours[0], IPPROTO_TCP, TCP_NODELAY, 1));
    SHOW(set(ours[1], IPPROTO_TCP, TCP_NODELAY, 1));
    SHOW(count(IPPROTO_TCP, TCP_NODELAY, 1));
    SHOW(set(ours[0], IPPROTO_TCP, TCP_NODELAY, 0));
    SHOW(count(IPPROTO_TCP, TCP_NODELAY, 1));
    SHOW(set(ours[2], SOL_SOCKET, SO_KEEPALIVE, 1));
    SHOW(set(ours[2], IPPROTO_TCP, TCP_KEEPIDLE, 77));
    SHOW(count(IPPROTO_TCP, TCP_KEEPIDLE, 77));
    SHOW(flagged(F_GETFL, O_NONBLOCK));
    SHOW(flagged(F_GETFD, FD_CLOEXEC));
    SHOW(set(ours[3], IPPROTO_TCP, TCP_KEEPIDLE, -3));
    SHOW(set(ours[3], IPPROTO_TCP, 9999, 1));
    SHOW(set(ours[3], SOL_SOCKET, 9999, 1));
    SHOW(setsockopt(ours[3], IPPROTO_TCP, TCP_NODELAY, (void *)8, sizeof(int)));
    SHOW(setsockopt(ours[3], IPPROTO_TCP, TCP_NODELAY, NULL, 0));
    char one = 1;
    SHOW(setsockopt(ours[3], IPPROTO_TCP, TCP_NODELAY, &one, 1));
    SHOW(setsockopt(ours[3], IPPROTO_IP, IP_TTL, &one, 1));
    SHOW(count(IPPROTO_IP, IP_TTL, 1));
    struct linger linger = {1, 3}, read = {0};
    socklen_t len = sizeof read;
    SHOW(setsockopt(ours[4], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    SHOW(getsockopt(ours[4], SOL_SOCKET, SO_LINGER, &read, &len));
    SHOW(read.l_onoff * 100 + read.l_linger);
    SHOW(getsockopt(ours[5], SOL_SOCKET, SO_LINGER, &read, &len));
    SHOW(read.l_onoff * 100 + read.l_linger);
    char name[64] = "reno";
    SHOW(setsockopt(ours[6], IPPROTO_TCP, TCP_CONGESTION, name, sizeof name));
    struct timeval soon = {.tv_usec = 20000};
    SHOW(setsockopt(ours[7], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    SHOW(recv(ours[7], name, 8, 0));
    // More kinds than anybody has in earnest.
    for (int i = 0; i < MANY; i++)
        MUST(set(ours[i], SOL_SOCKET, SO_RCVLOWAT, 1) | set(ours[i], SOL_SOCKET, SO_PRIORITY, i % 6) | set(ours[i], IPPROTO_TCP, TCP_KEEPCNT, 2 + i));
    int right = 0;
    for (int i = 0; i < MANY; i++)
        right += option(ours[i], SOL_SOCKET, SO_PRIORITY) == i % 6 && option(ours[i], IPPROTO_TCP, TCP_KEEPCNT) == 2 + i;
    SHOW(right);
    SHOW(all_work());
}

static void flags(void) {
    int on = 1, off = 0;
    SHOW(fcntl(ours[0], F_SETFL, O_NONBLOCK));
    SHOW(ioctl(ours[4], FIONBIO, &on));
    SHOW(flagged(F_GETFL, O_NONBLOCK));
    char b[4];
    SHOW(recv(ours[0], b, 4, 0));
    SHOW(recv(ours[4], b, 4, 0));
    SHOW(fcntl(ours[0], F_SETFL, 0));
    SHOW(ioctl(ours[4], FIONBIO, &off));
    SHOW(flagged(F_GETFL, O_NONBLOCK));
    SHOW(fcntl(ours[5], F_SETFD, 0));
    SHOW(fcntl(ours[8], F_SETFD, FD_CLOEXEC));
    SHOW(set(ours[8], IPPROTO_TCP, TCP_NODELAY, 1));
    SHOW(flagged(F_GETFD, FD_CLOEXEC));
    int copy = MUST(dup(ours[12]));
    SHOW(set(copy, IPPROTO_TCP, TCP_NODELAY, 1));
    SHOW(option(ours[12], IPPROTO_TCP, TCP_NODELAY));
    SHOW(fcntl(copy, F_SETFL, O_NONBLOCK));
    SHOW((fcntl(ours[12], F_GETFL) & O_NONBLOCK) != 0);
    SHOW(fcntl(ours[12], F_SETFL, 0));
    SHOW(close(copy));
    SHOW(fcntl(ours[9], F_SETOWN, getpid()));
    int owners = 0;
    for (int i = 0; i < MANY; i++)
        owners += fcntl(ours[i], F_GETOWN) == getpid();
    SHOW(owners);
    SHOW(all_work());
}

static void undone(void) {
    struct sockaddr nobody = {.sa_family = AF_UNSPEC}, name;
    socklen_t len = sizeof name;
    SHOW(connect(ours[10], &nobody, sizeof nobody));
    SHOW(getpeername(ours[10], &name, &len));
    struct sockaddr_in where;
    int l = listener(&where);
    SHOW(connect(ours[10], SA(where), sizeof where));
    int other = MUST(accept(l, NULL, NULL));
    SHOW(send(other, "anew", 4, 0));
    char b[8];
    SHOW(recv(ours[10], b, 8, 0));
    MUST(close(l));
    MUST(close(theirs[10]));
    theirs[10] = other;
    SHOW(bind(ours[11], SA(where), sizeof where));
    SHOW(listen(ours[11], 1));
    SHOW(shutdown(ours[13], SHUT_WR));
    SHOW(recv(theirs[13], b, 8, 0));
    SHOW(works(11));
    SHOW(works(12));
}

static int ended(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

// Whom a descriptor is handed to has the connection, whatever carried it.
static void handed_on(void) {
    char b[8] = "";
    pid_t child = vfork();
    if (child == 0)
        _exit(write(ours[16], "vfork", 5) == 5 ? 0 : 1);
    SHOW(ended(child));
    SHOW(recv(theirs[16], b, 5, MSG_WAITALL));
    SHOW(strcmp(b, "vfork"));
    child = vfork();
    if (child == 0) {
        dup2(ours[17], 1);
        execl("/bin/echo", "echo", "-n", "echo", NULL);
        _exit(1);
    }
    SHOW(ended(child));
    SHOW(recv(theirs[17], b, 4, MSG_WAITALL));
    SHOW(works(17));
    child = vfork();
    if (child == 0)
        _exit(fcntl(ours[19], F_SETFL, O_NONBLOCK));
    SHOW(ended(child));
    SHOW((fcntl(ours[19], F_GETFL) & O_NONBLOCK) != 0);
    SHOW((fcntl(ours[20], F_GETFL) & O_NONBLOCK) != 0);
    child = fork();
    if (child == 0) {
        int sent = 0;
        for (int i = 20; i < MANY; i++)
            sent += send(ours[i], "child", 5, 0) == 5;
        _exit(sent);
    }
    SHOW(WEXITSTATUS(ended(child)));
    int got = 0;
    for (int i = 20; i < MANY; i++)
        got += recv(theirs[i], b, 5, MSG_WAITALL) == 5;
    SHOW(got);
    SHOW(works(31));
}

static struct sockaddr_in busy;
static volatile int over;

// Sets options on whatever number may be a connection just now, or not any more.
static void *meddle(void *argument) {
    (void)argument;
    while (!over)
        for (int fd = 3; fd < 200; fd++)
            set(fd, IPPROTO_TCP, TCP_NODELAY, fd % 2);
    return NULL;
}

static void *come_and_go(void *argument) {
    int *failures = argument;
    for (int i = 0; i < 400; i++) {
        char b = 'x';
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, SA(busy), sizeof busy) || send(fd, &b, 1, 0) != 1 || recv(fd, &b, 1, 0) != 1)
            ++*failures;
        close(fd);
    }
    over = 1;
    return NULL;
}

// Numbers come and go while another thread sets options on them.
static void races(void) {
    pthread_t t[2];
    int failures = 0, files = 0, l = listener(&busy);
    pthread_create(&t[0], NULL, meddle, NULL);
    pthread_create(&t[1], NULL, come_and_go, &failures);
    for (int i = 0; i < 400; i++) {
        char b;
        struct stat st;
        int fd = MUST(accept(l, NULL, NULL));
        if (recv(fd, &b, 1, 0) == 1)
            send(fd, &b, 1, 0);
        close(fd);
        // Its number is free: nobody may put a socket there.
        int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
        usleep(20);
        files += fstat(file, &st) == 0 && S_ISCHR(st.st_mode);
        close(file);
    }
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    SHOW(failures);
    SHOW(files);
    close(l);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    many();
    kinds();
    options();
    flags();
    undone();
    handed_on();
    races();
    for (int i = 0; i < MANY; i++)
        MUST(close(ours[i]) | close(theirs[i]));
    return 0;
}
