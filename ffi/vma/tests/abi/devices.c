// Which of a port's UDP sockets gets a datagram where some are bound to the loopback, some to another interface, and some have a processor
// (compute_score in the kernel's udp.c): up to four sockets, in one process and in several, one of which is never preloaded.
#include "common.h"
#include "namespace.h"
#include <linux/if_tun.h>

#define SOCKETS 4
#define SO_BINDTOIFINDEX_ 62

enum { HERE, BESIDE, OUTSIDE, ACTORS };
enum { ANY, LOOPBACK, OTHER };

// What an actor is asked to do.
struct request {
    char what;
    int slot, option, wildcard, port, device, by_index, cpu;
};

static int sockets[SOCKETS], to_actor[ACTORS], from_actor[ACTORS];

static int bind_to(int fd, int device, int by_index) {
    static const char *const names[] = {"", "lo", "other"};
    int index = device == ANY ? 0 : if_nametoindex(names[device]);
    if (by_index) return setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX_, &index, sizeof index);
    return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, names[device], strlen(names[device]));
}

static void prefer(int fd, const struct request *r) {
    if (r->device != ANY) MUST(bind_to(fd, r->device, r->by_index));
    if (r->cpu >= 0) MUST(setsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &r->cpu, sizeof r->cpu));
}

static int opened(const struct request *r) {
    int on = 1, fd = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    struct sockaddr_in a = loopback(r->port);
    socklen_t len = sizeof a;
    if (r->wildcard) a.sin_addr = INET_EVERYWHERE;
    MUST(setsockopt(fd, SOL_SOCKET, r->option, &on, sizeof on));
    if (r->what == 'o') prefer(fd, r);
    MUST(bind(fd, SA(a), sizeof a));
    if (r->what == 'l') prefer(fd, r);
    MUST(getsockname(fd, SA(a), &len));
    sockets[r->slot] = fd;
    return ntohs(a.sin_port);
}

static int received(int slot) {
    char bytes[8];
    int n = 0;
    struct pollfd p = {.fd = sockets[slot], .events = POLLIN};
    while (poll(&p, 1, 0) == 1 && recv(sockets[slot], bytes, sizeof bytes, 0) >= 0) n++;
    return n;
}

static int act(const struct request *r) {
    switch (r->what) {
    case 'o':
    case 'l': return opened(r);
    case 'r': return received(r->slot);
    case 'u': return bind_to(sockets[r->slot], ANY, r->by_index);
    case 'c': return close(sockets[r->slot]);
    }
    return -1;
}

static int ask(int actor, struct request r) {
    int answer;
    if (actor == HERE) return act(&r);
    MUST(write(to_actor[actor], &r, sizeof r));
    if (read(from_actor[actor], &answer, sizeof answer) != sizeof answer) exit(3);
    return answer;
}

static void serve(void) {
    struct request r;
    while (read(0, &r, sizeof r) == sizeof r) {
        int answer = act(&r);
        MUST(write(1, &answer, sizeof answer));
    }
    exit(0);
}

static void start(int actor) {
    int in[2], out[2];
    MUST(pipe2(in, O_CLOEXEC));
    MUST(pipe2(out, O_CLOEXEC));
    fflush(stdout);
    if (MUST(fork()) == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        if (actor == OUTSIDE) unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", "devices", "actor", NULL);
        _exit(9);
    }
    close(in[0]);
    close(out[1]);
    to_actor[actor] = in[1];
    from_actor[actor] = out[0];
}

static unsigned drawn = 1;

static int draw(int n) {
    drawn = drawn * 1103515245 + 12345;
    return (drawn >> 16) % n;
}

static void on_processor(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
}

static int sender;

// What a socket is: equals that share a port by SO_REUSEPORT are not told apart.
static void who(const int *actors, const struct request *all, int n, int port) {
    struct sockaddr_in to = loopback(port);
    MUST(sendto(sender, "x", 1, 0, SA(to), sizeof to));
    int count = 0;
    for (int turn = 0; turn < 6 && !count; turn++) {
        if (turn > 1) nap(3);
        for (int i = 0; i < n; i++)
            for (int got = ask(actors[i], (struct request){.what = 'r', .slot = i}); got > 0; got--) {
                if (all[i].option == SO_REUSEPORT)
                    printf(" %s/%s", all[i].wildcard ? "any" : "exact", all[i].device == ANY ? "-" : "lo");
                else
                    printf(" %d", i);
                count++;
            }
    }
    if (!count) printf(" nobody");
}

static void play(int processors) {
    static const char *const worlds[] = {"here", "beside", "outside"}, *const devices[] = {"-", "lo", "other"};
    struct request all[SOCKETS];
    int actors[SOCKETS], n = 2 + draw(SOCKETS - 1), option = draw(2) ? SO_REUSEPORT : SO_REUSEADDR, port = 0, slow = option == SO_REUSEPORT;
    for (int i = 0; i < n; i++) {
        actors[i] = draw(ACTORS);
        // (Processors decide within a group of SO_REUSEPORT by its hash, too: see fits.c.)
        all[i] = (struct request){.what = "ol"[draw(2)], .slot = i, .option = option, .wildcard = draw(2), .device = draw(3), .by_index = draw(2),
                                  .cpu = option == SO_REUSEADDR ? draw(3) - 1 : -1};
        if (all[i].cpu >= processors) all[i].cpu = 0;
        printf("%s%s %s%s%s cpu %d", i ? ", " : option == SO_REUSEPORT ? "port: " : "addr: ", worlds[actors[i]], all[i].wildcard ? "any" : "exact",
               all[i].what == 'l' ? " later " : " ", devices[all[i].device], all[i].cpu);
    }
    printf("\n ");
    on_processor(0);
    for (int i = 0; i < n; i++) {
        all[i].port = port;
        port = ask(actors[i], all[i]);
        slow |= actors[i] == OUTSIDE;
        if (slow) nap(12);
        who(actors, all, i + 1, port);
    }
    printf(";");
    for (int k = 0; k < 4; k++) {
        on_processor(k % processors);
        who(actors, all, n, port);
    }
    printf(";");
    on_processor(0);
    // Those of the loopback are bound to no interface any more; and then the last one goes.
    for (int i = 0; i < n; i++)
        if (all[i].device == LOOPBACK) {
            MUST(ask(actors[i], (struct request){.what = 'u', .slot = i, .by_index = all[i].by_index}));
            all[i].device = ANY;
        }
    if (slow) nap(12);
    who(actors, all, n, port);
    MUST(ask(actors[n - 1], (struct request){.what = 'c', .slot = n - 1}));
    if (slow) nap(12);
    who(actors, all, n - 1, port);
    printf("\n");
    for (int i = 0; i < n - 1; i++) MUST(ask(actors[i], (struct request){.what = 'c', .slot = i}));
}

// An interface that nobody is at the other end of.
static void other_interface(void) {
    struct ifreq other = {.ifr_name = "other", .ifr_flags = IFF_TAP | IFF_NO_PI};
    int fd = MUST(open("/dev/net/tun", O_RDWR));
    MUST(ioctl(fd, TUNSETIFF, &other));
    struct ifreq up = {.ifr_name = "other", .ifr_flags = IFF_UP};
    int any = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(ioctl(any, SIOCSIFFLAGS, &up));
    MUST(close(any));
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "actor")) serve();
    if (getenv("SEED")) drawn = atoi(getenv("SEED"));
    int processors = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1;
    unshare_network();
    other_interface();
    start(BESIDE);
    start(OUTSIDE);
    struct sockaddr_in where;
    sender = datagram(&where);
    for (int i = 0; i < 150; i++) play(processors);
    return 0;
}
