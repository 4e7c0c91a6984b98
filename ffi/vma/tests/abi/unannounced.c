// Forks that pass by pthread_atfork(3)'s handlers: system calls by number, `_Fork`, clone(3), and one that no library can see. A server
// forks so for each connection, as vsftpd does; the child serves, the parent closes.
#include "common.h"
#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

extern char **environ;

enum how { BY_FORK, BY_VFORK, BY_CLONE, BY_CLONE_TIDS, BY_CLONE3, SUSPENDED, NEW_PIDS, NEW_NET, NEW_USER, ALONE, PSEUDO_TERMINAL, WAYS };

// Namespaces need privileges, or a user namespace that gives them.
static long apart(long flags) {
    return flags | (geteuid() ? CLONE_NEWUSER : 0);
}

static pid_t forked(enum how how) {
    static pid_t tids[2];
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    int terminal;
    switch (how) {
    case BY_FORK:
        return syscall(SYS_fork);
    case BY_VFORK:
        // (It returns twice through the frame of libc's function, which is over then: on the kernel it cannot be called so.)
        return dlsym(RTLD_DEFAULT, "vma_get_api") ? syscall(SYS_vfork) : fork();
    case BY_CLONE:
        return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    case BY_CLONE_TIDS:
        return syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &tids[0], &tids[1], 0);
    case BY_CLONE3:
        return syscall(SYS_clone3, &arguments, sizeof arguments);
    case SUSPENDED:
        return syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
    case NEW_PIDS:
        return syscall(SYS_clone, apart(CLONE_NEWPID | CLONE_NEWIPC) | SIGCHLD, 0, 0, 0, 0);
    case NEW_NET:
        return syscall(SYS_clone, apart(CLONE_NEWNET) | SIGCHLD, 0, 0, 0, 0);
    case NEW_USER:
        return syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    case ALONE:
        return _Fork();
    case PSEUDO_TERMINAL:
        return forkpty(&terminal, NULL, NULL, NULL);
    default:
        return -1;
    }
}

static int echo(int fd) {
    char b[4096];
    ssize_t n;
    while ((n = read(fd, b, sizeof b)) > 0)
        if (write(fd, b, n) != n)
            return 2;
    return n != 0;
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

// A client in a process of its own, which says a kilobyte so many times, and hears it.
static pid_t client(struct sockaddr_in where, int rounds) {
    pid_t pid = MUST(fork());
    if (pid != 0)
        return pid;
    char out[1024], in[1024];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    patience(fd);
    if (connect(fd, SA(where), sizeof where))
        _exit(10);
    for (int i = 0; i < rounds; i++) {
        memset(out, 'a' + i % 26, sizeof out);
        if (send(fd, out, sizeof out, MSG_NOSIGNAL) != sizeof out)
            _exit(11);
        if (recv(fd, in, sizeof in, MSG_WAITALL) != sizeof in || memcmp(in, out, sizeof in))
            _exit(12);
    }
    shutdown(fd, SHUT_WR);
    _exit(recv(fd, in, sizeof in, 0) ? 13 : 0);
}

static void per_connection(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    for (enum how how = 0; how < WAYS; how++) {
        printf("way %d\n", how);
        pid_t asks = client(where, 20), child;
        int fd = MUST(accept(l, NULL, NULL));
        // Something on the ring before.
        char b[1024];
        SHOW(recv(fd, b, sizeof b, MSG_WAITALL));
        SHOW(send(fd, b, sizeof b, 0));
        child = forked(how);
        if (child == 0) {
            close(l);
            _exit(echo(fd));
        }
        SHOW(child > 0);
        SHOW(close(fd));
        SHOW(status_of(asks));
        SHOW(status_of(child));
    }
    close(l);
}

static int served_by_clone(void *fd) {
    return echo(*(int *)fd);
}

// clone(3), which begins with a function on a stack of its own.
static void on_another_stack(void) {
    static char stack[1 << 20] __attribute__((aligned(16)));
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t asks = client(where, 20);
    int fd = MUST(accept(l, NULL, NULL));
    pid_t child = clone(served_by_clone, stack + sizeof stack, SIGCHLD, &fd);
    SHOW(child > 0);
    SHOW(close(fd));
    SHOW(status_of(asks));
    SHOW(status_of(child));
    // With its parent's memory.
    asks = client(where, 20);
    fd = MUST(accept(l, NULL, NULL));
    child = clone(served_by_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &fd);
    SHOW(child > 0);
    SHOW(close(fd));
    SHOW(status_of(asks));
    SHOW(status_of(child));
    close(l);
}

static long unseen(long number, long a, long b) {
#if defined __x86_64__
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(0L), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = 0;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
#endif
}

// A system call of the program's own. The child's first call is on the connection; the parent lets go of it after that.
static void below_the_library(void) {
    struct sockaddr_in where;
    int l = listener(&where), begun[2];
    MUST(pipe(begun));
    for (int first = 0; first < 4; first++) {
        pid_t asks = client(where, 20);
        int fd = MUST(accept(l, NULL, NULL));
        pid_t child = unseen(SYS_clone, SIGCHLD, 0);
        if (child == 0) {
            char b[1024];
            struct pollfd p = {.fd = fd, .events = POLLIN};
            if (first == 0 && (recv(fd, b, sizeof b, MSG_WAITALL) != sizeof b || send(fd, b, sizeof b, 0) != sizeof b))
                _exit(20);
            if (first == 1 && poll(&p, 1, 5000) != 1)
                _exit(21);
            if (first == 2)
                close(l);
            if (first == 3) {
                int s[2];
                stream_pair(s);
                if (send(s[0], "mine", 4, 0) != 4 || recv(s[1], b, 4, 0) != 4 || memcmp(b, "mine", 4))
                    _exit(22);
            }
            if (write(begun[1], "!", 1) != 1)
                _exit(23);
            _exit(echo(fd));
        }
        char b[1];
        SHOW(read(begun[0], b, 1));
        SHOW(close(fd));
        SHOW(status_of(asks));
        SHOW(status_of(child));
    }
    // One that has nothing to do with it, and ends.
    int s[2];
    char b[8];
    stream_pair(s);
    pid_t child = unseen(SYS_clone, SIGCHLD, 0);
    if (child == 0) {
        for (int fd = 3; fd < 100; fd++)
            close(fd);
        _exit(0);
    }
    SHOW(status_of(child));
    SHOW(send(s[0], "still", 5, 0));
    SHOW(recv(s[1], b, sizeof b, 0));
    // Who inherited listeners and UDP sockets.
    struct sockaddr_in at;
    int u = datagram(&at);
    child = unseen(SYS_clone, SIGCHLD, 0);
    if (child == 0) {
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        ssize_t n = recvfrom(u, b, sizeof b, 0, SA(from), &len);
        if (sendto(u, b, n, 0, SA(from), len) != n)
            _exit(24);
        int fd = accept(l, NULL, NULL);
        _exit(fd < 0 ? 25 : echo(fd));
    }
    close(u);
    close(l);
    int v = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    patience(v);
    SHOW(sendto(v, "datagram", 8, 0, SA(at), sizeof at));
    SHOW(recv(v, b, sizeof b, 0));
    SHOW(status_of(client(where, 5)));
    SHOW(status_of(child));
    close(s[0]);
    close(s[1]);
    close(v);
}

static atomic_int stop;

static void *chatters(void *nothing) {
    int s[2];
    char b[512] = {0};
    stream_pair(s);
    while (!stop)
        if (send(s[0], b, sizeof b, 0) != sizeof b || recv(s[1], b, sizeof b, MSG_WAITALL) != sizeof b)
            return (void *)1;
    close(s[0]);
    close(s[1]);
    return nothing;
}

static long seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

// Another thread is in the middle of calls all the time. (Where cores are busy, each fork waits for several turns of theirs: then there are fewer.)
static void beside_a_thread(void) {
    struct sockaddr_in where;
    int l = listener(&where), failed = 0;
    pthread_t t;
    pthread_create(&t, NULL, chatters, NULL);
    for (long i = 0, until = seconds() + 12; i < 60 && (i < 6 || seconds() < until); i++) {
        pid_t asks = client(where, 3);
        int fd = MUST(accept(l, NULL, NULL));
        pid_t child = i % 3 == 0 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : i % 3 == 1 ? _Fork() : syscall(SYS_fork);
        if (child == 0)
            _exit(echo(fd));
        close(fd);
        failed += status_of(asks) != 0 || status_of(child) != 0;
    }
    // And forks that nobody sees: the children neither crash nor hang, whatever that thread was doing.
    for (long i = 0, until = seconds() + 12; i < 100 && (i < 6 || seconds() < until); i++) {
        pid_t child = unseen(SYS_clone, SIGCHLD, 0);
        if (child == 0) {
            alarm(20);
            int s[2];
            char b[4];
            stream_pair(s);
            _exit(send(s[0], "mine", 4, 0) != 4 || recv(s[1], b, 4, 0) != 4 || close(l));
        }
        failed += status_of(child) != 0;
    }
    stop = 1;
    void *chatted;
    pthread_join(t, &chatted);
    SHOW(failed);
    SHOW(chatted);
    close(l);
}

static int pipe_of_raw[2];

static int raw_thread(void *nothing) {
    (void)nothing;
    unseen(SYS_write, pipe_of_raw[1], (long)"!"); // (Of no bytes: its length is zero.)
    return 0;
}

// A thread that libc does not know.
static void raw_threads(void) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    static pid_t tid = 1;
    MUST(pipe(pipe_of_raw));
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    int s[2];
    char b[8];
    stream_pair(s);
    SHOW(clone(raw_thread, stack + sizeof stack, flags, NULL, NULL, NULL, &tid) > 0);
    while (__atomic_load_n(&tid, __ATOMIC_SEQ_CST) == 1)
        nap(1);
    SHOW(send(s[0], "after", 5, 0));
    SHOW(recv(s[1], b, sizeof b, 0));
    close(s[0]);
    close(s[1]);
}

// What glibc forks and execs by itself leaves the connections alone.
static void helpers(void) {
    int s[2], out;
    char b[8];
    stream_pair(s);
    FILE *program = popen("exit 5", "r");
    SHOW(pclose(program));
    SHOW(system("exit 3"));
    char *argv[] = {"true", NULL};
    pid_t child;
    MUST(posix_spawnp(&child, "true", NULL, NULL, argv, environ));
    SHOW(status_of(child));
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        syscall(SYS_execve, "/bin/true", argv, environ);
        _exit(9);
    }
    SHOW(status_of(child));
    SHOW(send(s[0], "still", 5, 0));
    SHOW(recv(s[1], b, sizeof b, 0));
    // A failed one changes nothing.
    SHOW(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0));
    SHOW(syscall(SYS_clone3, NULL, sizeof(struct clone_args)));
    SHOW(syscall(SYS_execve, "/nonexistent", argv, environ));
    SHOW(send(s[1], "here", 4, 0));
    SHOW(recv(s[0], b, sizeof b, 0));
    // exec by number: what the new program has is the kernel's.
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t asks = client(where, 5);
    int fd = MUST(accept(l, NULL, NULL));
    child = MUST(fork());
    if (child == 0) {
        char *cat[] = {"cat", NULL};
        out = fd;
        syscall(SYS_dup3, out, 0, 0);
        syscall(SYS_dup3, out, 1, 0);
        close(fd);
        syscall(SYS_execve, "/bin/cat", cat, environ);
        _exit(9);
    }
    close(fd);
    SHOW(status_of(asks));
    SHOW(status_of(child));
    close(l);
    close(s[0]);
    close(s[1]);
}

// Only a few system calls are left: what comes over a connection does not need any others than the kernel's own sockets do.
static void filtered(int by_number) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#define ALLOWED(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
        ALLOWED(SYS_read),       ALLOWED(SYS_write),     ALLOWED(SYS_recvfrom), ALLOWED(SYS_sendto), ALLOWED(SYS_close),
        ALLOWED(SYS_exit_group), ALLOWED(SYS_exit),      ALLOWED(SYS_futex),    ALLOWED(SYS_munmap), ALLOWED(SYS_mmap),
        ALLOWED(SYS_madvise),    ALLOWED(SYS_rt_sigreturn), ALLOWED(SYS_rt_sigprocmask), ALLOWED(SYS_getpid), ALLOWED(SYS_fcntl),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    struct sockaddr_in where;
    int l = listener(&where);
    pid_t child = MUST(fork());
    if (child == 0) {
        int fd = accept(l, NULL, NULL);
        char b[1024];
        if (recv(fd, b, sizeof b, MSG_WAITALL) != sizeof b || send(fd, b, sizeof b, 0) != sizeof b)
            _exit(30);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
            _exit(31);
        if (by_number ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) : syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
            _exit(32);
        _exit(echo(fd));
    }
    SHOW(status_of(client(where, 10)));
    SHOW(status_of(child));
    close(l);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGCHLD, SIG_DFL);
    per_connection();
    on_another_stack();
    helpers();
    filtered(0);
    filtered(1);
    raw_threads();
    below_the_library();
    beside_a_thread();
    return 0;
}
