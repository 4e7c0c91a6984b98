// Handlers that run once, that end the process, and that leave a wait; options and messages that only the kernel can serve.
#include "common.h"
#include <netinet/udp.h>
#include <setjmp.h>
#include <sys/resource.h>

static volatile sig_atomic_t caught, arm_again;
static sighandler_t (*install)(int, sighandler_t);

static void once(int signal) {
    // Before it counts: who sees the count sends the next, which must find a handler.
    if (arm_again)
        install(signal, once);
    caught++;
}

static sighandler_t by_sigaction(int signal, sighandler_t handler) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESETHAND | SA_RESTART}, old;
    return sigaction(signal, &a, &old) == 0 ? old.sa_handler : SIG_ERR;
}

extern sighandler_t sysv_signal(int, sighandler_t), __sysv_signal(int, sighandler_t), bsd_signal(int, sighandler_t);

static void flags_of(int signal) {
    struct sigaction a;
    MUST(sigaction(signal, NULL, &a));
    printf("handler %s flags %x\n", a.sa_handler == once ? "once" : a.sa_handler == SIG_DFL ? "default" : "other", a.sa_flags);
}

static volatile int stop;
static pthread_t busy;

static void *pester(void *argument) {
    (void)argument;
    for (int sent = 0; sent < 400; sent++) {
        int before = caught;
        pthread_kill(busy, SIGUSR1);
        for (int i = 0; i < 500000 && caught == before; i++)
            usleep(20);
    }
    stop = 1;
    return NULL;
}

// A handler that runs once, however often its signal comes while the thread is in the middle of a call.
static void handlers_that_run_once(sighandler_t (*by)(int, sighandler_t)) {
    int s[2];
    char b[8];
    stream_pair(s);
    install = by;
    arm_again = 1, stop = 0, caught = 0;
    SHOW(by(SIGUSR1, once) == SIG_DFL);
    flags_of(SIGUSR1);
    busy = pthread_self();
    pthread_t t;
    pthread_create(&t, NULL, pester, NULL);
    while (!stop)
        recv(s[0], b, 8, MSG_DONTWAIT);
    pthread_join(t, NULL);
    SHOW(caught);
    arm_again = 0;
    SHOW(raise(SIGUSR1));
    SHOW(caught);
    flags_of(SIGUSR1);
    SHOW(by(SIGUSR1, once) == SIG_DFL);
    SHOW(by(SIGUSR1, SIG_DFL) == once);
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void last_words(int signal) { _exit(40 + (signal == SIGALRM)); }

// _exit is async-signal-safe: what the handler interrupted may hold any lock of libc's or ours.
static void exits_in_handlers(void) {
    int statuses = 0;
    for (int round = 0; round < 24; round++) {
        // A listener that nobody waited at before the fork is the kernel's until the parent accepts; one that it lets wait for long
        // becomes so again, perhaps while the child ends.
        struct sockaddr_in where;
        struct timespec begun, ended;
        int l = listener(&where), sort = round % 3;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        pid_t child = fork();
        if (child == 0) {
            nap(sort ? 8 : 0);
            int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
            MUST(connect(fd, SA(where), sizeof where));
            MUST(send(fd, "words", 5, 0));
            signal(SIGALRM, last_words);
            struct itimerval soon = {.it_value.tv_usec = sort == 2 ? 14000 + 500 * round : 2000 + 150 * round};
            setitimer(ITIMER_REAL, &soon, NULL);
            for (;;) {
                void *volatile p[64];
                for (int i = 0; i < 64; i++)
                    p[i] = malloc(1500 + 600 * (i % 7));
                for (int i = 0; i < 64; i++)
                    free(p[(i * 37) % 64]);
                if (round % 2) {
                    struct sockaddr_in own;
                    close(listener(&own));
                }
            }
        }
        if (sort == 2) {
            struct pollfd p = {.fd = l, .events = POLLIN};
            poll(&p, 1, 500);
            nap(50);
        }
        int fd = MUST(accept(l, NULL, NULL)), status = 0;
        char b[8];
        int n = recv(fd, b, 5, MSG_WAITALL), end = recv(fd, b, 8, 0);
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 41 && n == 5 && end == 0)
            statuses++;
        else
            printf("round %d status %x, %d bytes, then %d\n", round, status, n, end);
        close(fd);
        close(l);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        if (ended.tv_sec - begun.tv_sec > 1)
            printf("round %d took %ld s\n", round, ended.tv_sec - begun.tv_sec);
    }
    SHOW(statuses);
}

static volatile int visits, visits_well;

// Opens, connects, writes, reads and closes, all of them async-signal-safe.
static void visits_itself(int signal) {
    (void)signal;
    int saved = errno;
    struct sockaddr_in where;
    char b[8];
    int l = listener(&where), c = socket(AF_INET, SOCK_STREAM, 0);
    int connected = connect(c, SA(where), sizeof where), a = accept(l, NULL, NULL);
    int well = connected == 0 && send(c, "visit", 5, 0) == 5 && recv(a, b, 5, MSG_WAITALL) == 5;
    visits_well += close(a) == 0 && close(c) == 0 && close(l) == 0 && well;
    visits++;
    errno = saved;
}

// What the handler interrupts holds malloc's lock, most of the time.
static void calls_in_handlers(void) {
    void *volatile p[64];
    struct sigaction action = {.sa_handler = visits_itself}, before;
    MUST(sigaction(SIGALRM, &action, &before));
    struct itimerval often = {{.tv_usec = 700}, {.tv_usec = 700}}, never = {{0}, {0}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (visits < 300) {
        for (int i = 0; i < 64; i++)
            p[i] = malloc(1500 + 600 * (i % 7));
        for (int i = 0; i < 64; i++)
            free(p[(i * 37) % 64]);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    MUST(sigaction(SIGALRM, &before, NULL));
    SHOW(visits_well == visits);
}

static sigjmp_buf out;
static void leap(int signal) { siglongjmp(out, signal); }

static void *sleeper(void *argument) {
    char b[8];
    int *s = argument;
    long rounds = 0;
    while (recv(s[0], b, 1, 0) == 1 && send(s[0], b, 1, 0) == 1)
        rounds++;
    return (void *)rounds;
}

// A process that sends a byte now and then, when all here has long been asleep, and counts the answers.
static pid_t peer(int *connected) {
    struct sockaddr_in where;
    int l = listener(&where), answers = 0;
    pid_t child = fork();
    if (child == 0) {
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        struct timeval t = {.tv_sec = 1};
        char b[8];
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        MUST(connect(fd, SA(where), sizeof where));
        nap(100);
        for (int i = 0; i < 4; i++) {
            nap(60);
            MUST(send(fd, "x", 1, 0));
            answers += recv(fd, b, 1, 0) == 1;
        }
        exit(answers);
    }
    *connected = MUST(accept(l, NULL, NULL));
    MUST(close(l));
    return child;
}

static int answers(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static long processor_ms(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000 + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1000;
}

// A handler leaves a wait by longjmp, while it spins or sleeps; other threads' waits must not notice.
static void leaps(int shortest_us) {
    int s[1], silent[2];
    char b[8];
    pid_t child = peer(s);
    stream_pair(silent);
    signal(SIGALRM, leap);
    for (volatile int round = 0; round < 20; round++) {
        struct itimerval soon = {.it_value.tv_usec = shortest_us + 2 * round};
        if (sigsetjmp(out, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, NULL);
            for (;;)
                recv(silent[0], b, 8, 0);
        }
    }
    pthread_t t;
    void *rounds;
    long before = processor_ms();
    pthread_create(&t, NULL, sleeper, s);
    SHOW(answers(child));
    pthread_join(t, &rounds);
    SHOW((long)rounds);
    SHOW(processor_ms() - before < 100);
    signal(SIGALRM, SIG_DFL);
    MUST(close(s[0]));
    MUST(close(silent[0]));
    MUST(close(silent[1]));
}

static int received(int fd, int *longest) {
    char b[4096];
    int count = 0, n;
    *longest = 0;
    while (ready(fd, POLLIN) == POLLIN && (n = recv(fd, b, sizeof b, MSG_DONTWAIT)) >= 0) {
        count++;
        if (n > *longest)
            *longest = n;
        if (count == 4)
            break;
    }
    return count;
}

static int quiet_socket;

static void wait_a_little(int signal) {
    struct pollfd p = {.fd = quiet_socket, .events = POLLIN};
    caught += signal == SIGALRM && poll(&p, 1, 1) == 0;
}

// A handler waits on top of the wait that it interrupted.
static void waits_in_handlers(void) {
    int s[1], silent[2];
    pid_t child = peer(s);
    stream_pair(silent);
    quiet_socket = silent[0];
    caught = 0;
    signal(SIGALRM, wait_a_little);
    struct itimerval often = {.it_value.tv_usec = 2000, .it_interval.tv_usec = 3700}, never = {0};
    long before = processor_ms();
    MUST(setitimer(ITIMER_REAL, &often, NULL));
    SHOW((long)sleeper(s));
    MUST(setitimer(ITIMER_REAL, &never, NULL));
    SHOW(caught > 10);
    SHOW(answers(child));
    pthread_t t;
    pid_t other = peer(s);
    pthread_create(&t, NULL, sleeper, s);
    SHOW(answers(other));
    pthread_join(t, NULL);
    SHOW(processor_ms() - before < 500);
    signal(SIGALRM, SIG_DFL);
    MUST(close(s[0]));
    MUST(close(silent[0]));
    MUST(close(silent[1]));
}

// A peer that does not read does not hold up the end of the process for long, although it answers window probes.
static void stopped_peer(void) {
    struct sockaddr_in where;
    struct timespec from, to;
    int l = listener(&where);
    clock_gettime(CLOCK_MONOTONIC, &from);
    pid_t child = fork();
    if (child == 0) {
        static char bytes[65536];
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(fd, SA(where), sizeof where));
        struct timeval t = {.tv_usec = 50000};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
        while (send(fd, bytes, sizeof bytes, 0) > 0) {}
        exit(5);
    }
    int fd = MUST(accept(l, NULL, NULL));
    SHOW(answers(child));
    clock_gettime(CLOCK_MONOTONIC, &to);
    SHOW(to.tv_sec - from.tv_sec < 4);
    MUST(close(fd));
    MUST(close(l));
}

// Segmentation is the kernel's, asked for by an option of a bound socket or by a control message.
static void segments(void) {
    struct sockaddr_in a, b;
    int x = datagram(&a), y = datagram(&b), longest, size = 100;
    static char big[400];
    char c[8];
    MUST(sendto(x, "ring", 4, 0, SA(b), sizeof b));
    MUST(recv(y, c, 8, 0));
    char space[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct iovec data = {big, sizeof big};
    struct msghdr m = {.msg_name = &b, .msg_namelen = sizeof b, .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = IPPROTO_UDP;
    h->cmsg_type = UDP_SEGMENT;
    h->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    *(uint16_t *)(void *)CMSG_DATA(h) = 100;
    SHOW(sendmsg(x, &m, 0));
    SHOW(received(y, &longest));
    SHOW(longest);
    SHOW(setsockopt(x, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
    SHOW(sendto(x, big, sizeof big, 0, SA(b), sizeof b));
    SHOW(received(y, &longest));
    SHOW(longest);
    // Both ways still work.
    SHOW(sendto(y, "back", 4, 0, SA(a), sizeof a));
    SHOW(recv(x, c, 8, 0));
    MUST(close(x));
    MUST(close(y));
}

// dup2 onto numbers that the program does not know of must not cut the library's wires.
static void onto_strangers(void) {
    int s[1], quiet[2];
    pid_t child = peer(s);
    MUST(pipe(quiet));
    for (int fd = 590; fd < 1000; fd++)
        dup2(quiet[0], fd);
    for (int fd = 590; fd < 1000; fd++)
        close(fd);
    pthread_t t;
    void *rounds;
    pthread_create(&t, NULL, sleeper, s);
    SHOW(answers(child));
    pthread_join(t, &rounds);
    SHOW((long)rounds);
    MUST(close(s[0]));
    MUST(close(quiet[0]));
    MUST(close(quiet[1]));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    // Every wait spins for so long before it sleeps.
    setenv("VMA_RX_POLL", "2000", 1);
    handlers_that_run_once(by_sigaction);
    handlers_that_run_once(sysv_signal);
    SHOW(__sysv_signal(SIGUSR2, once) == SIG_DFL);
    flags_of(SIGUSR2);
    SHOW(bsd_signal(SIGUSR2, once) == once);
    flags_of(SIGUSR2);
    // While it spins, and while it sleeps.
    leaps(20);
    leaps(3500);
    waits_in_handlers();
    exits_in_handlers();
    calls_in_handlers();
    stopped_peer();
    segments();
    onto_strangers();
    return 0;
}
