// Ports that nobody named: as many connections to each destination as there are, and each of other addresses than all others. In a network
// namespace of its own, where ports are few.
#define _GNU_SOURCE
#include "common.h"
#include <net/if.h>
#include <sched.h>
#include <sys/syscall.h>

enum { LOW = 40000, PORTS = 40, RESERVED = 40007, DESTINATIONS = 3, EACH = 36, ALL = DESTINATIONS * EACH, SHARE = 18 };

static void put(const char *path, const char *text) {
    int fd = MUST(open(path, O_WRONLY));
    MUST(write(fd, text, strlen(text)));
    MUST(close(fd));
}

// Before the library is used: it belongs to the namespace in which it begins.
static void own_network(void) {
    MUST(unshare(CLONE_NEWNET));
    int fd = MUST(syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0));
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    MUST(ioctl(fd, SIOCSIFFLAGS, &lo));
    MUST(close(fd));
    put("/proc/sys/net/ipv4/ip_local_port_range", "40000 40039");
    put("/proc/sys/net/ipv4/ip_local_reserved_ports", "40007");
}

static int listeners[DESTINATIONS];
static struct sockaddr_in destinations[DESTINATIONS];

static int listen_at(int i) {
    int l = MUST(socket(AF_INET, SOCK_STREAM, 0));
    destinations[i] = loopback(5000 + i);
    MUST(bind(l, SA(destinations[i]), sizeof destinations[i]));
    MUST(listen(l, 100));
    return l;
}

static int port_of(int fd) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    MUST(getsockname(fd, SA(a), &len));
    return ntohs(a.sin_port);
}

// Connects, and accepts at the other end, whose port is told: 0, if there is none left.
static int visit(int to, int ends[2], int bound) {
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    ends[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
    int named = 0;
    if (bound) {
        struct sockaddr_in any = loopback(0);
        if (bind(ends[0], SA(any), sizeof any) < 0)
            return 0;
        named = port_of(ends[0]);
    }
    if (connect(ends[0], SA(destinations[to]), sizeof peer) < 0) {
        int error = errno;
        MUST(close(ends[0]));
        errno = error;
        return 0;
    }
    ends[1] = MUST(accept(listeners[to], SA(peer), &len));
    int port = port_of(ends[0]);
    if (port != ntohs(peer.sin_port) || (bound && port != named))
        printf("the ends do not agree: %d, %d, %d\n", named, port, ntohs(peer.sin_port));
    return port;
}

static int works(int ends[2]) {
    char byte = 'x';
    return write(ends[0], "y", 1) == 1 && read(ends[1], &byte, 1) == 1 && byte == 'y';
}

// By a reset: no port waits.
static void end(int ends[2]) {
    struct linger at_once = {.l_onoff = 1};
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

static int ends[ALL][2], ports[ALL];

// Opens as many as that to each destination; how many work, after all are open.
static int fill(void) {
    int open = 0, work = 0, wrong = 0, twice = 0;
    for (int i = 0; i < ALL; i++) {
        ports[i] = visit(i % DESTINATIONS, ends[i], 0);
        if (ports[i] == 0)
            continue;
        open++;
        wrong += ports[i] < LOW || ports[i] >= LOW + PORTS || ports[i] == RESERVED;
        for (int j = i % DESTINATIONS; j < i; j += DESTINATIONS)
            twice += ports[j] == ports[i];
    }
    for (int i = 0; i < ALL; i++)
        work += ports[i] != 0 && works(ends[i]);
    SHOW(open);
    SHOW(wrong);
    SHOW(twice);
    return work;
}

// Another process, with as many connections to each destination as are left to it.
static int neighbour(int begin, int done) {
    int opened = 0, fds[SHARE * DESTINATIONS];
    char byte;
    MUST(read(begin, &byte, 1));
    for (int i = 0; i < SHARE * DESTINATIONS; i++) {
        fds[i] = MUST(socket(AF_INET, SOCK_STREAM, 0));
        opened += connect(fds[i], SA(destinations[i % DESTINATIONS]), sizeof destinations[0]) == 0;
    }
    MUST(write(done, &opened, sizeof opened));
    MUST(read(begin, &byte, 1));
    return 0;
}

// Two processes share the ports: neither takes more than it needs. Their connections end by resets, so that no port waits.
static void share_with(int begin, int done) {
    int own[SHARE * DESTINATIONS][2], theirs[SHARE * DESTINATIONS], opened = 0, working = 0;
    struct linger at_once = {.l_onoff = 1};
    for (int i = 0; i < SHARE * DESTINATIONS; i++)
        MUST(visit(i % DESTINATIONS, own[i], 0) != 0 ? 0 : -1);
    MUST(write(begin, "x", 1));
    MUST(read(done, &opened, sizeof opened));
    SHOW(opened == SHARE * DESTINATIONS);
    for (int i = 0; i < opened; i++) {
        theirs[i] = MUST(accept(listeners[i % DESTINATIONS], NULL, NULL));
        MUST(setsockopt(theirs[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    }
    for (int i = 0; i < SHARE * DESTINATIONS; i++)
        working += works(own[i]);
    SHOW(working);
    for (int i = 0; i < SHARE * DESTINATIONS; i++)
        end(own[i]);
    for (int i = 0; i < opened; i++)
        MUST(close(theirs[i]));
    MUST(write(begin, "x", 1));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    own_network();
    int begin[2], done[2], status;
    MUST(pipe(begin));
    MUST(pipe(done));
    pid_t child = MUST(fork());
    if (child == 0) {
        for (int i = 0; i < DESTINATIONS; i++)
            destinations[i] = loopback(5000 + i);
        return neighbour(begin[0], done[1]);
    }
    for (int i = 0; i < DESTINATIONS; i++)
        listeners[i] = listen_at(i);
    share_with(begin[1], done[0]);
    MUST(waitpid(child, &status, 0));
    SHOW(status);

    // Ports that were asked for before the destination was known, or shared, or are not to be chosen before it is.
    int pair[2];
    for (int how = 0; how < 3; how++) {
        SHOW(visit(how, pair, 1) != 0);
        SHOW(works(pair));
        end(pair);
    }
    for (int how = 0; how < 3; how++) {
        int on = 1;
        struct sockaddr_in any = loopback(0);
        pair[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
        if (how == 0)
            MUST(setsockopt(pair[0], SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
        if (how == 1)
            MUST(setsockopt(pair[0], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
        if (how == 2) {
            MUST(setsockopt(pair[0], IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on));
            MUST(bind(pair[0], SA(any), sizeof any));
            SHOW(port_of(pair[0]));
        }
        SHOW(connect(pair[0], SA(destinations[how]), sizeof any));
        pair[1] = MUST(accept(listeners[how], NULL, NULL));
        SHOW(works(pair));
        SHOW(port_of(pair[0]) >= LOW && port_of(pair[0]) < LOW + PORTS);
        end(pair);
    }

    // More connections than ports, and each destination has nearly as many as there are.
    SHOW(fill() == ALL);

    // What they have, no other socket may bind to.
    int other = MUST(socket(AF_INET, SOCK_STREAM, 0)), option = -1, free_ports = 0;
    socklen_t len = sizeof option;
    for (int port = LOW; port < LOW + PORTS; port++) {
        struct sockaddr_in address = loopback(port);
        if (port != RESERVED && bind(other, SA(address), sizeof address) == 0) {
            free_ports++;
            MUST(close(other));
            other = MUST(socket(AF_INET, SOCK_STREAM, 0));
        }
    }
    SHOW(free_ports < 12);

    // What lends a port to others has the options that its program gave it.
    int set = 0;
    for (int i = 0; i < ALL; i++) {
        MUST(getsockopt(ends[i][0], SOL_SOCKET, SO_REUSEADDR, &option, &len));
        set += option;
    }
    SHOW(set);

    // At last there are none for one destination.
    int extra[2 * PORTS][2], more = 0;
    while (more < 2 * PORTS && visit(0, extra[more], 0) != 0)
        more++;
    option = errno;
    SHOW(option == EADDRNOTAVAIL);
    SHOW(more == PORTS - 1 - EACH);

    // Who closed first of those that shared a port takes nothing from the others; and the port is good for its destination again.
    for (int i = 0; i < ALL; i += 2) {
        MUST(shutdown(ends[i][1], SHUT_WR));
        char byte;
        MUST(read(ends[i][0], &byte, 1));
        MUST(close(ends[i][0]));
        MUST(close(ends[i][1]));
    }
    int working = 0;
    for (int i = 1; i < ALL; i += 2)
        working += works(ends[i]);
    SHOW(working == ALL / 2);
    for (int i = 0; i < more; i++) {
        MUST(close(extra[i][0]));
        MUST(close(extra[i][1]));
    }
    for (int i = 1; i < ALL; i += 2) {
        MUST(close(ends[i][0]));
        MUST(close(ends[i][1]));
    }
    return 0;
}
