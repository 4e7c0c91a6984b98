// Which of a port's UDP sockets gets a datagram (udp_lib_lookup in the kernel): one with that peer before one with that address, that before one
// with every address; of equal ones the last with SO_REUSEADDR, and any of those with SO_REUSEPORT. In one process and in several,
// one of which is never preloaded.
#include "common.h"
#include <sched.h>

#define ACTORS 3
#define SOCKETS 4
#define SENDERS 300

enum { HERE, BESIDE, OUTSIDE };

// What an actor is asked to do.
struct request {
    char what;
    int slot, option, wildcard, port, peer, preference;
};

static int sockets[SOCKETS];

// What makes the kernel prefer a socket to its equals.
static int prefer(int fd, int preference, int on) {
    int cpu = on ? 0 : -1;
    if (preference == SO_BINDTODEVICE) return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", on ? 3 : 0);
    return setsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &cpu, sizeof cpu);
}
static int to_actor[ACTORS], from_actor[ACTORS];

static int port_of(int fd) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    MUST(getsockname(fd, SA(a), &len));
    return ntohs(a.sin_port);
}

static int opened(const struct request *r) {
    int on = 1, fd = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    struct sockaddr_in a = loopback(r->port);
    if (r->wildcard) a.sin_addr = INET_EVERYWHERE;
    if (r->option) MUST(setsockopt(fd, SOL_SOCKET, r->option, &on, sizeof on));
    if (r->preference) MUST(prefer(fd, r->preference, 1));
    if (bind(fd, SA(a), sizeof a) < 0) {
        close(fd);
        return -errno;
    }
    sockets[r->slot] = fd;
    struct sockaddr_in to = loopback(r->peer);
    if (r->peer) MUST(connect(fd, SA(to), sizeof to));
    return port_of(fd);
}

// How many datagrams wait, which are read.
static int received(int slot) {
    char bytes[8];
    int n = 0;
    struct pollfd p = {.fd = sockets[slot], .events = POLLIN};
    while (poll(&p, 1, 0) == 1 && recv(sockets[slot], bytes, sizeof bytes, 0) >= 0) n++;
    return n;
}

static int act(const struct request *r) {
    struct sockaddr_in to = loopback(r->port), none = {.sin_family = AF_UNSPEC};
    switch (r->what) {
    case 'o': return opened(r);
    case 'r': return received(r->slot);
    case 'c': return close(sockets[r->slot]);
    case 'p': to = loopback(r->peer); return connect(sockets[r->slot], SA(to), sizeof to);
    case 'd': return connect(sockets[r->slot], SA(none), sizeof none);
    case '+':
    case '-': return prefer(sockets[r->slot], r->preference, r->what == '+');
    case 's': return sendto(sockets[r->slot], "x", 1, 0, SA(to), sizeof to);
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
        execl("/proc/self/exe", "fits", "actor", NULL);
        _exit(9);
    }
    close(in[0]);
    close(out[1]);
    to_actor[actor] = in[1];
    from_actor[actor] = out[0];
}

// Who of the first `n` sockets got something, each in its actor. Somebody does before long, or nobody does.
static const char *who(const int *actors, int n) {
    static char names[SOCKETS + 1];
    int count = 0;
    for (int turn = 0; turn < 10 && !count; turn++) {
        if (turn > 2) nap(5);
        for (int i = 0; i < n; i++)
            for (int got = ask(actors[i], (struct request){.what = 'r', .slot = i}); got > 0 && count < SOCKETS; got--)
                names[count++] = '0' + i;
    }
    names[count] = 0;
    return names;
}

// What was told at once to whoever runs the library, the others notice soon.
static void settle(const int *actors, int n) {
    for (int i = 0; i < n; i++)
        if (actors[i] == OUTSIDE) {
            nap(12);
            return;
        }
}

static const char *const worlds[] = {"here", "beside", "outside"};

struct shape {
    int wildcard, connected;
};

static int sender, sender_port;

static void send_to(int port) {
    struct sockaddr_in to = loopback(port);
    MUST(sendto(sender, "x", 1, 0, SA(to), sizeof to));
}

// Two sockets, one after the other; a datagram before the second, with it, and once it is gone.
static void two(int option, struct shape a, struct shape b, int first, int second) {
    int actors[2] = {first, second};
    int port = ask(first, (struct request){.what = 'o', .option = option, .wildcard = a.wildcard, .peer = a.connected ? sender_port : 0});
    printf("%s %s%s %s, %s%s %s:", option == SO_REUSEPORT ? "port" : option ? "addr" : "none", a.wildcard ? "any" : "exact",
           a.connected ? "+peer" : "", worlds[first], b.wildcard ? "any" : "exact", b.connected ? "+peer" : "", worlds[second]);
    send_to(port);
    printf(" %s", who(actors, 1));
    int came = ask(second, (struct request){
                               .what = 'o', .slot = 1, .option = option, .wildcard = b.wildcard, .port = port, .peer = b.connected ? sender_port : 0});
    if (came < 0) {
        printf(" %s\n", strerrorname_np(-came));
    } else {
        settle(actors, 2);
        send_to(port);
        const char *got = who(actors, 2);
        int equal = option == SO_REUSEPORT && a.wildcard == b.wildcard && !a.connected && !b.connected;
        printf(" %s", equal && strlen(got) == 1 ? "either" : got);
        MUST(ask(second, (struct request){.what = 'c', .slot = 1}));
        settle(actors, 2);
        send_to(port);
        printf(" %s\n", who(actors, 1));
    }
    MUST(ask(first, (struct request){.what = 'c'}));
}

static void all_pairs(int option) {
    static const int places[][2] = {{HERE, HERE}, {HERE, BESIDE}, {BESIDE, HERE}, {HERE, OUTSIDE}, {OUTSIDE, HERE}, {BESIDE, OUTSIDE}, {OUTSIDE, BESIDE}};
    for (unsigned place = 0; place < sizeof places / sizeof *places; place++)
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++)
                two(option, (struct shape){a & 1, a >> 1}, (struct shape){b & 1, b >> 1}, places[place][0], places[place][1]);
}

// As DTLS and QUIC servers do: once a client has spoken, a socket of its own has it, until it is disconnected or closed.
static void client_of_its_own(int first, int second, int wildcard) {
    int actors[2] = {first, second};
    int port = ask(first, (struct request){.what = 'o', .option = SO_REUSEADDR, .wildcard = 1});
    int other = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in from = loopback(0), to = loopback(port);
    MUST(bind(other, SA(from), sizeof from));
    send_to(port);
    printf("client of %s to %s: %s", worlds[first], worlds[second], who(actors, 1));
    // The datagram between bind(2) and connect(2) is the new one's, too, as the kernel has it.
    MUST(ask(second, (struct request){.what = 'o', .slot = 1, .option = SO_REUSEADDR, .wildcard = wildcard, .port = port}));
    settle(actors, 2);
    send_to(port);
    printf(" %s", who(actors, 2));
    MUST(ask(second, (struct request){.what = 'p', .slot = 1, .peer = sender_port}));
    settle(actors, 2);
    send_to(port);
    printf(" %s", who(actors, 2));
    MUST(sendto(other, "x", 1, 0, SA(to), sizeof to));
    printf(" %s", who(actors, 2));
    MUST(ask(second, (struct request){.what = 'd', .slot = 1}));
    settle(actors, 2);
    MUST(sendto(other, "x", 1, 0, SA(to), sizeof to));
    printf(" %s", who(actors, 2));
    MUST(ask(second, (struct request){.what = 'c', .slot = 1}));
    settle(actors, 2);
    send_to(port);
    printf(" %s\n", who(actors, 1));
    MUST(ask(first, (struct request){.what = 'c'}));
    MUST(close(other));
}

// Who is bound to every address, and sends to its own port at one that another has: not to itself.
static void to_ones_own_port(int first, int second) {
    int actors[2] = {first, second};
    int port = ask(first, (struct request){.what = 'o', .option = SO_REUSEADDR, .wildcard = 1});
    SHOW(ask(first, (struct request){.what = 's', .port = port}));
    printf("own port, %s: %s\n", worlds[first], who(actors, 1));
    MUST(ask(second, (struct request){.what = 'o', .slot = 1, .option = SO_REUSEADDR, .port = port}));
    settle(actors, 2);
    SHOW(ask(first, (struct request){.what = 's', .port = port}));
    printf("own port, %s and %s: %s\n", worlds[first], worlds[second], who(actors, 2));
    for (int i = 0; i < 2; i++) MUST(ask(actors[i], (struct request){.what = 'c', .slot = i}));
}

// SO_REUSEPORT shares datagrams out by their senders, each of whom goes on with the same socket.
static void shared_out(const int *actors, int n) {
    int port = 0, counts[SOCKETS] = {0}, whole = 0, same = 0;
    for (int i = 0; i < n; i++) {
        int got = ask(actors[i], (struct request){.what = 'o', .slot = i, .option = SO_REUSEPORT, .port = port});
        port = port ? port : got;
    }
    settle(actors, n);
    struct sockaddr_in to = loopback(port);
    for (int i = 0; i < SENDERS; i++) {
        struct sockaddr_in from = loopback(0);
        int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
        MUST(bind(fd, SA(from), sizeof from));
        char first[SOCKETS + 1];
        MUST(sendto(fd, "x", 1, 0, SA(to), sizeof to));
        strcpy(first, who(actors, n));
        MUST(sendto(fd, "x", 1, 0, SA(to), sizeof to));
        same += !strcmp(first, who(actors, n));
        whole += strlen(first) == 1;
        if (*first) counts[*first - '0']++;
        MUST(close(fd));
    }
    SHOW(whole);
    SHOW(same);
    int least = SENDERS;
    for (int i = 0; i < n; i++) least = counts[i] < least ? counts[i] : least;
    // A quarter of its share.
    SHOW(least >= SENDERS / n / 4);
    for (int i = 0; i < n; i++) MUST(ask(actors[i], (struct request){.what = 'c', .slot = i}));
}

// Of equals, the one that is bound to the interface, or has the processor that the sender runs on, wherever it stands; and nobody else notices.
static void preferred(int preference, int option, int first, int second) {
    int actors[2] = {first, second};
    // In which order they come does not matter, and neither does when the option is set.
    for (int favourite = 0; favourite < 2; favourite++)
        for (int later = 0; later < 2; later++) {
            int port = 0;
            printf("%s %s, %s and %s, %d, %s:", preference == SO_INCOMING_CPU ? "cpu" : "lo", option == SO_REUSEPORT ? "port" : "addr",
                   worlds[first], worlds[second], favourite, later ? "later" : "first");
            for (int i = 0; i < 2; i++) {
                struct request r = {.what = 'o', .slot = i, .option = option, .port = port};
                if (i == favourite && !later) r.preference = preference;
                port = ask(actors[i], r);
            }
            settle(actors, 2);
            if (later) {
                send_to(port);
                printf(" %s", option == SO_REUSEPORT ? (strlen(who(actors, 2)) == 1 ? "either" : "?") : who(actors, 2));
                MUST(ask(actors[favourite], (struct request){.what = '+', .slot = favourite, .preference = preference}));
                // (Whose datagrams of those that share a port by SO_REUSEPORT these were, each sender's own, nobody can tell.)
                if (option == SO_REUSEPORT) nap(12);
                settle(actors, 2);
            }
            for (int i = 0; i < 3; i++) {
                send_to(port);
                printf(" %s", who(actors, 2));
            }
            MUST(ask(actors[favourite], (struct request){.what = 'c', .slot = favourite}));
            settle(actors, 2);
            send_to(port);
            printf(" %s\n", who(actors, 2));
            MUST(ask(actors[!favourite], (struct request){.what = 'c', .slot = !favourite}));
        }
}

// What is allowed after bind(2) counts as well.
static void allowed_later(int second) {
    int on = 1, actors[2] = {HERE, second};
    int port = ask(HERE, (struct request){.what = 'o', .wildcard = 1});
    send_to(port);
    printf("allowed later, %s: %s", worlds[second], who(actors, 1));
    MUST(setsockopt(sockets[0], SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    int came = ask(second, (struct request){.what = 'o', .slot = 1, .option = SO_REUSEADDR, .port = port});
    settle(actors, 2);
    send_to(port);
    printf(" %s %s\n", came == port ? "bound" : "refused", who(actors, 2));
    for (int i = 0; i < 2; i++) MUST(ask(actors[i], (struct request){.what = 'c', .slot = i}));
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) serve();
    start(BESIDE);
    start(OUTSIDE);
    struct sockaddr_in where;
    sender = datagram(&where);
    sender_port = ntohs(where.sin_port);
    all_pairs(SO_REUSEADDR);
    all_pairs(SO_REUSEPORT);
    two(0, (struct shape){0, 0}, (struct shape){1, 0}, HERE, HERE);
    two(0, (struct shape){1, 1}, (struct shape){0, 0}, HERE, BESIDE);
    static const int pairs[][2] = {{HERE, HERE}, {HERE, BESIDE}, {BESIDE, HERE}, {HERE, OUTSIDE}, {OUTSIDE, BESIDE}};
    for (int i = 0; i < 5; i++) {
        client_of_its_own(pairs[i][0], pairs[i][1], 0);
        client_of_its_own(pairs[i][0], pairs[i][1], 1);
        if (pairs[i][0] != OUTSIDE) to_ones_own_port(pairs[i][0], pairs[i][1]);
    }
    shared_out((int[]){HERE, HERE, HERE}, 3);
    shared_out((int[]){BESIDE, HERE, BESIDE}, 3);
    shared_out((int[]){OUTSIDE, HERE, BESIDE}, 3);
    for (int second = HERE; second <= OUTSIDE; second++) allowed_later(second);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
    for (int i = 0; i < 5; i++)
        for (int option = 0; option < 2; option++) {
            preferred(SO_BINDTODEVICE, option ? SO_REUSEPORT : SO_REUSEADDR, pairs[i][0], pairs[i][1]);
            preferred(SO_INCOMING_CPU, option ? SO_REUSEPORT : SO_REUSEADDR, pairs[i][0], pairs[i][1]);
        }
    return 0;
}
