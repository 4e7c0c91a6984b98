// A thread that waits in send(2) for room, on a connection of its own whose peer does not read, and what others do meanwhile. Where threads have rings of their
// own, it sleeps by its ring's lock alone, and each of these is to find it. It sends one byte where there is no room for any, or more than there is room for.
#include "common.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <sys/epoll.h>

enum what { READS, SIGNAL, RESTARTS, CANCELS, JUMPS, SHUTS, ENDS, BLOCKS_NOT, TIMES, FORKS, WATCHES, RECEIVES, SENDS };
static const char *names[] = {"its peer reads",     "a signal",          "a signal with SA_RESTART", "cancelled",
                              "a handler leaves by longjmp", "shut down", "its peer is gone",       "made non-blocking",
                              "given a timeout",    "a fork",            "an epoll instance has it", "another thread receives",
                              "another thread sends"};
enum { LARGE = 8 << 20, WARM = 160 };
static const int small = 16384;

static enum what what;
static int ours, theirs, large;
static long sent;
static atomic_int is_over;
static pthread_barrier_t full;
static sigjmp_buf out;
static char bytes[LARGE];

static void quiet(int signal) { (void)signal; }
static void leaves(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

static void moment(void) { usleep(30000); }
// Until the thread waits, most likely, on a machine with other things to do.
static void settle(void) { usleep(100000); }

// The bytes are numbered, so that it shows whether each comes once.
static long sends(long count, int flags) {
    for (long i = 0; i < count; i++) bytes[i] = (char)((sent + i) % 251);
    errno = 0;
    long went = send(ours, bytes, count, flags | MSG_NOSIGNAL);
    if (went > 0) sent += went;
    return went;
}

static void show(long asked) {
    long went = sends(asked, 0);
    int code = errno;
    printf(" sent %s%s%s\n", went == asked ? "all" : went > 0 ? "some" : "nothing", went < 0 ? " " : "", went < 0 ? strerrorname_np(code) : "");
}

static void *fills(void *argument) {
    struct sockaddr_in *where = argument;
    ours = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
    MUST(connect(ours, SA(*where), sizeof *where));
    char data[4];
    // (The first calls show the library what the socket is.)
    for (int i = 0; i < 40; i++) {
        if (sends(4, 0) != 4 || recv(ours, data, sizeof data, 0) != 4) printf("nothing comes back\n");
    }
    // (What the peer's buffer takes, after a while, makes room for more, until there is none.)
    for (int quiet_rounds = 0; quiet_rounds < 10; moment()) {
        long before = sent;
        while (sends(1 << 14, MSG_DONTWAIT) > 0) {}
        while (sends(1, MSG_DONTWAIT) > 0) {}
        quiet_rounds = before == sent ? quiet_rounds + 1 : 0;
    }
    struct sigaction action = {.sa_handler = what == JUMPS ? leaves : quiet, .sa_flags = what == RESTARTS ? SA_RESTART : 0};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_barrier_wait(&full);
    if (what != JUMPS || !sigsetjmp(out, 1))
        show(large ? LARGE : 1);
    else
        printf(" left\n");
    is_over = 1;
    return NULL;
}

static void *receives(void *argument) {
    (void)argument;
    char data[4];
    printf(" received %ld\n", (long)recv(ours, data, sizeof data, 0));
    return NULL;
}

static void *also(void *argument) {
    char data = 0;
    *(long *)argument = send(ours, &data, 1, MSG_NOSIGNAL);
    return NULL;
}

// Reads until all has come that was sent, or nothing more comes. Whether the bytes come in order.
static int drains(long *count) {
    static char data[1 << 16];
    int in_order = 1;
    struct pollfd polled = {.fd = theirs, .events = POLLIN};
    while (!is_over || *count < sent - WARM + (what == SENDS)) {
        if (poll(&polled, 1, 3000) != 1) break;
        long got = recv(theirs, data, sizeof data, MSG_DONTWAIT);
        if (got <= 0) break;
        for (long i = 0; i < got && what != SENDS; i++) in_order &= data[i] == (char)((WARM + *count + i) % 251);
        *count += got;
    }
    return in_order;
}

static void scenario(void) {
    printf("%s, %s\n", large ? "much" : "a byte", names[what]);
    struct sockaddr_in where = loopback(0);
    socklen_t len = sizeof where;
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), another = -1;
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    MUST(bind(listener, SA(where), sizeof where));
    MUST(getsockname(listener, SA(where), &len));
    MUST(listen(listener, 1));
    pthread_barrier_init(&full, NULL, 2);
    sent = is_over = 0;
    pthread_t thread, other = 0;
    MUST(-pthread_create(&thread, NULL, fills, &where));
    theirs = MUST(accept(listener, NULL, NULL));
    char data[4];
    for (int i = 0; i < 40; i++) {
        MUST(recv(theirs, data, sizeof data, MSG_WAITALL));
        MUST(send(theirs, data, 4, 0));
    }
    pthread_barrier_wait(&full);
    settle();
    long came = 0, went = 0;
    struct timeval patience = {.tv_usec = 1000};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    switch (what) {
    case READS: break;
    case SIGNAL:
    case RESTARTS:
    case JUMPS: MUST(-pthread_kill(thread, SIGUSR1)); break;
    case CANCELS: MUST(-pthread_cancel(thread)); break;
    case SHUTS: MUST(shutdown(ours, SHUT_WR)); break;
    case ENDS: MUST(close(theirs)); break;
    case BLOCKS_NOT: MUST(fcntl(ours, F_SETFL, O_NONBLOCK)); break;
    case TIMES: MUST(setsockopt(ours, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience)); break;
    case FORKS: {
        int child = MUST(fork());
        if (child == 0) _exit(0);
        MUST(waitpid(child, NULL, 0));
        break;
    }
    case WATCHES:
        another = MUST(epoll_create1(0));
        MUST(epoll_ctl(another, EPOLL_CTL_ADD, ours, &event));
        break;
    case RECEIVES:
        MUST(-pthread_create(&other, NULL, receives, NULL));
        moment();
        MUST(send(theirs, data, 4, 0));
        break;
    case SENDS: MUST(-pthread_create(&other, NULL, also, &went)); break;
    }
    moment();
    printf(" it %s\n", what == CANCELS ? "was cancelled" : is_over ? "is over" : "waits");
    // (A byte that was cancelled, or left, may have gone or not.)
    int in_order = what == ENDS ? 1 : drains(&came);
    void *result;
    MUST(-pthread_join(thread, &result));
    if (other) MUST(-pthread_join(other, NULL));
    if (what == SENDS) printf(" the other sent %ld\n", went);
    if (result == PTHREAD_CANCELED) printf(" it was ended\n");
    if (what != ENDS && what != CANCELS && what != JUMPS) printf(" in order %d, all that was sent %d\n", in_order, came == sent - WARM + (what == SENDS));
    if (another >= 0) MUST(close(another));
    if (what != ENDS) MUST(close(theirs));
    MUST(close(listener));
    MUST(close(ours));
}

int main(void) {
    alarm(100);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (large = 0; large < 2; large++)
        for (what = READS; what <= SENDS; what++)
            // (With some of its bytes gone, the kernel's send ends by any signal.)
            if (!large || what != RESTARTS) scenario();
    return 0;
}
