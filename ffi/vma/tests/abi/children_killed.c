// Somebody is killed while a connection changes from a parent to its child: the parent, the child or the peer, at any moment. Whoever lives
// ends soon, and has read nothing but what was written, in order and once.
#include "common.h"
#include <sys/prctl.h>

enum { STEPS = 30, BYTES = 40000 };

static char byte_at(long n) {
    return (char)(n * 31 + (n >> 8) * 7);
}

// What comes is what was sent, up to the end: 0 if that was all, 1 if it ended before, or was reset.
static int is_in_order(int fd, long upto) {
    static char b[4096];
    for (long from = 0; from < upto;) {
        ssize_t n = recv(fd, b, sizeof b, 0);
        if (n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE)))
            return 1;
        if (n < 0)
            return 10;
        for (ssize_t i = 0; i < n; i++, from++)
            if (from >= upto || b[i] != byte_at(from))
                return 20;
    }
    return 0;
}

// 0: sent; 1: there is nobody any more.
static int send_all(int fd) {
    static char b[BYTES];
    for (long i = 0; i < BYTES; i++)
        b[i] = byte_at(i);
    for (long done = 0; done < BYTES;) {
        ssize_t n = send(fd, b + done, BYTES - done, MSG_NOSIGNAL);
        if (n < 0 && errno != EPIPE && errno != ECONNRESET)
            return 10;
        if (n < 0)
            return 1;
        done += n;
    }
    return 0;
}

static int run_peer(struct sockaddr_in where) {
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct timeval t = {.tv_sec = 10};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    if (connect(fd, SA(where), sizeof where))
        return errno == ECONNRESET ? 1 : 40;
    int sent = send_all(fd);
    return sent > 1 ? sent : is_in_order(fd, BYTES);
}

static void run_child(int fd, int began) {
    struct timeval t = {.tv_sec = 10};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) && errno != ECONNRESET)
        _exit(30);
    MUST(write(began, "!", 1));
    int heard = is_in_order(fd, BYTES);
    _exit(heard ? heard : send_all(fd));
}

static int status_of(pid_t pid, int is_killed) {
    int status = -1;
    MUST(waitpid(pid, &status, 0));
    if (is_killed || (WIFEXITED(status) && WEXITSTATUS(status) <= 1))
        return 0;
    printf("a process that was not killed ended with %#x\n", status);
    return 1;
}

static long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

enum { PARENT, CHILD, PEER, NOBODY };

// One connection, and somebody's death so long after the fork. How long the child took for its first use; -1: something is wrong.
static long round_of(int victim, long after_us) {
    struct sockaddr_in where;
    int up[2], began[2];
    MUST(pipe(up));
    MUST(pipe(began));
    pid_t parent = MUST(fork());
    if (parent == 0) {
        int l = listener(&where);
        MUST(write(up[1], &where, sizeof where));
        int fd = MUST(accept(l, NULL, NULL));
        pid_t child = MUST(fork());
        if (child == 0) {
            close(l);
            run_child(fd, began[1]);
        }
        MUST(write(up[1], &child, sizeof child));
        close(fd);
        for (;;)
            pause();
    }
    MUST(read(up[0], &where, sizeof where));
    pid_t peer = MUST(fork());
    if (peer == 0)
        _exit(run_peer(where));
    pid_t child;
    MUST(read(up[0], &child, sizeof child));
    long forked = now_us(), took = 0;
    if (victim == NOBODY) {
        char b;
        MUST(read(began[0], &b, 1));
        took = now_us() - forked;
    } else {
        struct timespec t = {.tv_sec = after_us / 1000000, .tv_nsec = after_us % 1000000 * 1000};
        nanosleep(&t, NULL);
        MUST(kill(victim == PARENT ? parent : victim == CHILD ? child : peer, SIGKILL));
    }
    int wrong = status_of(peer, victim == PEER);
    if (victim != PARENT)
        kill(parent, SIGKILL);
    wrong += status_of(parent, 1);
    wrong += status_of(child, victim == CHILD || victim == PEER);
    for (int i = 0; i < 2; i++) {
        close(up[i]);
        close(began[i]);
    }
    return wrong ? -1 : took;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    alarm(55);
    // The child of a parent that is killed is waited for here.
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
    long usual = 0;
    for (int i = 0; i < 5; i++) {
        long took = round_of(NOBODY, 0);
        SHOW(took < 0);
        usual = took > usual ? took : usual;
    }
    // From the fork on, through the first use of the child's, which makes it a ring of its own, to the bytes that follow.
    for (int i = 0; i < STEPS; i++)
        for (int victim = PARENT; victim <= PEER; victim++)
            SHOW(round_of(victim, usual * i * 5 / 4 / STEPS) < 0);
    return 0;
}
