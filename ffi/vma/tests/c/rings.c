/* Sockets that share rings of a card, or have some of their own. What is wrong is printed; nothing else is.
 *
 *   rings share HOW ADDRESS PORT     three connections at once to "far serve": two of the first thread's, one of another's. HOW: "plain"; "bound", the third to another
 *                                    address than the others; "users", which says by SO_VMA_RING_ALLOC_LOGIC that the third one is another user's, to receive, and "senders",
 *                                    to send; "pinned", each thread to a core; "profiles", of which the first one has no ring profile, and the others one each, and "alike", which have
 *                                    the same. In the end the server is told to end
 *   rings hand HOW ADDRESS PORT      one thread opens a connection and a UDP socket to "far serve", and another one uses both for long
 *   rings change HOW ADDRESS PORT    has a connection and a UDP socket to "far serve" change rings time and again, by SO_VMA_RING_ALLOC_LOGIC, while another thread waits for
 *                                    what comes by the connection. HOW: "over"; "listening", a listener, which stays where it is
 *   rings serve HOW ADDRESS PORT     one thread listens, and has a UDP socket; others serve what it accepts, and that socket
 *   rings call HOW ADDRESS PORT      calls that one, for long
 *   rings answer HOW :: PORT         one UDP socket of both families: one thread answers the first datagrams, prints "ready", and another one answers the others
 *   rings ask HOW ADDRESS PORT       asks that one, by two addresses in turn: HOW is the one of IPv6
 */
#include "far.h"
#include <mellanox/vma_extra.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

enum { CALLS = 1500, CALLERS = 2, PIECE = 3000 };

static const char *how;

static int is(const char *word) {
    return strcmp(how, word) == 0;
}

static void stay_on(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    CHECK(sched_setaffinity(0, sizeof cores, &cores) == 0);
}

/* A connection: the third one differs from the others. */
static int different(int is_third) {
    static int count;
    int fd = opened(SOCK_STREAM), nth = count++;
    if ((is("profiles") || is("alike")) && nth > 0) {
        struct vma_ring_type_attr type = {.ring_type = is_third && is("profiles") ? VMA_RING_EXTERNAL_MEM : VMA_RING_PACKET};
        struct vma_ring_alloc_logic_attr attr = {.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY | VMA_RING_ALLOC_MASK_RING_INGRESS,
                                                 .ring_alloc_logic = RING_LOGIC_PER_INTERFACE,
                                                 .ingress = 1};
        struct vma_api_t *api = vma_get_api();
        vma_ring_profile_key key = 0;
        CHECK(api && api->vma_add_ring_profile(&type, &key) == 0);
        attr.ring_profile_key = key;
        CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr) == 0);
    }
    if (is("users") || is("senders")) {
        int direction = is("users") ? VMA_RING_ALLOC_MASK_RING_INGRESS : VMA_RING_ALLOC_MASK_RING_ENGRESS;
        struct vma_ring_alloc_logic_attr attr = {.comp_mask = VMA_RING_ALLOC_MASK_RING_USER_ID | direction,
                                                 .ring_alloc_logic = RING_LOGIC_PER_USER_ID,
                                                 .user_id = 1 + is_third,
                                                 .ingress = is("users"),
                                                 .engress = is("senders")};
        CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr) == 0);
    }
    if (is("bound")) {
        struct sockaddr_in own = {.sin_family = AF_INET};
        CHECK(inet_pton(AF_INET, is_third ? "10.78.0.3" : "10.78.0.1", &own.sin_addr) == 1);
        CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
    }
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) == 0);
    return fd;
}

static pthread_barrier_t has_two;

static void *third(void *room) {
    if (is("pinned")) {
        stay_on(1);
    }
    pthread_barrier_wait(&has_two);
    int fd = different(1);
    for (int turn = 0; turn < 20; turn++) {
        exchange(fd, "by another thread");
    }
    *(int *)room = fd;
    return NULL;
}

static void share(void) {
    int fds[3];
    char byte;
    pthread_t thread;
    /* (It begins with the cores that all may run on.) */
    CHECK(pthread_barrier_init(&has_two, NULL, 2) == 0 && pthread_create(&thread, NULL, third, &fds[2]) == 0);
    if (is("pinned")) {
        stay_on(0);
    }
    fds[0] = different(0), fds[1] = different(0);
    pthread_barrier_wait(&has_two);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int turn = 0; turn < 60; turn++) {
        exchange(fds[turn % 2], "by the first thread");
    }
    send_all(fds[0], "quit", 4);
    CHECK(recv(fds[0], &byte, 1, 0) == 0);
    for (int which = 0; which < 3; which++) {
        CHECK(close(fds[which]) == 0);
    }
}

static int send_number(int fd, int number) {
    return sendto(fd, &number, sizeof number, 0, (struct sockaddr *)&to, to_len) == sizeof number;
}

static void await_number(int fd, int number) {
    int back = -1;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(poll(&wait, 1, 20000) == 1 && recv(fd, &back, sizeof back, 0) == sizeof back && back == number);
}

static void datagram(int fd, int number) {
    CHECK(send_number(fd, number));
    await_number(fd, number);
}

/* As many bytes as are several segments, there and back. */
static void piece(int fd, char fill) {
    char out[PIECE], in[PIECE];
    memset(out, fill, sizeof out);
    send_all(fd, out, sizeof out);
    for (size_t got = 0; got < sizeof in;) {
        ssize_t count = recv(fd, in + got, sizeof in - got, 0);
        CHECK(count > 0);
        got += count;
    }
    CHECK(memcmp(in, out, sizeof in) == 0);
}

static void *uses(void *both) {
    int *fds = both;
    for (int turn = 0; turn < CALLS; turn++) {
        piece(fds[0], 'a' + turn % 26);
        datagram(fds[1], turn);
    }
    return NULL;
}

static void hand(void) {
    int fds[2];
    char byte;
    pthread_t thread;
    fds[0] = connected(), fds[1] = opened(SOCK_DGRAM);
    exchange(fds[0], "before"), datagram(fds[1], -7);
    CHECK(pthread_create(&thread, NULL, uses, fds) == 0 && pthread_join(thread, NULL) == 0);
    exchange(fds[0], "after"), datagram(fds[1], -8);
    send_all(fds[0], "quit", 4);
    CHECK(recv(fds[0], &byte, 1, 0) == 0 && close(fds[0]) == 0 && close(fds[1]) == 0);
}

static void for_user(int fd, unsigned user) {
    struct vma_ring_alloc_logic_attr attr = {.comp_mask = VMA_RING_ALLOC_MASK_RING_USER_ID | VMA_RING_ALLOC_MASK_RING_INGRESS,
                                             .ring_alloc_logic = RING_LOGIC_PER_USER_ID,
                                             .user_id = user,
                                             .ingress = 1};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr) == 0);
}

enum { CHANGES = 20, TURNS = 20 };

static void *reads(void *number) {
    char in[PIECE];
    for (size_t got = 0; got < (size_t)CHANGES * TURNS * PIECE;) {
        ssize_t count = recv((int)(long)number, in, sizeof in, 0);
        CHECK(count > 0);
        for (ssize_t at = 0; at < count; at++, got++) {
            CHECK(in[at] == (char)('a' + got / PIECE % 26));
        }
    }
    return NULL;
}

static void change(void) {
    char out[PIECE], byte;
    int fds[2] = {opened(SOCK_STREAM), opened(SOCK_DGRAM)}, listener = opened(SOCK_STREAM);
    pthread_t reader;
    for_user(fds[0], 1), for_user(fds[1], 1);
    CHECK(connect(fds[0], (struct sockaddr *)&to, to_len) == 0);
    if (is("listening")) {
        struct sockaddr_in own = {.sin_family = AF_INET};
        for_user(listener, 1);
        CHECK(bind(listener, (struct sockaddr *)&own, sizeof own) == 0 && listen(listener, 1) == 0);
        for_user(listener, 2);
    } else {
        datagram(fds[1], -7);
        CHECK(pthread_create(&reader, NULL, reads, (void *)(long)fds[0]) == 0);
        for (int turn = 0; turn < CHANGES * TURNS; turn++) {
            memset(out, 'a' + turn % 26, sizeof out);
            send_all(fds[0], out, sizeof out);
            CHECK(send_number(fds[1], turn));
            if (turn % TURNS == 0) {
                /* (The first time, to another one; some of both is on its way.) */
                for_user(fds[0], 2 - turn / TURNS % 2), for_user(fds[1], 2 - turn / TURNS % 2);
            }
            await_number(fds[1], turn);
        }
        CHECK(pthread_join(reader, NULL) == 0);
    }
    send_all(fds[0], "quit", 4);
    CHECK(recv(fds[0], &byte, 1, 0) == 0 && close(fds[0]) == 0 && close(fds[1]) == 0 && close(listener) == 0);
}

static void *serves(void *number) {
    static __thread char bytes[1 << 16];
    int fd = (int)(long)number;
    ssize_t count;
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        send_all(fd, bytes, count);
    }
    CHECK(count == 0 && close(fd) == 0);
    return NULL;
}

static void *answers(void *number) {
    char bytes[64];
    struct sockaddr_storage from;
    for (;;) {
        socklen_t len = sizeof from;
        ssize_t count = recvfrom((int)(long)number, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);
        CHECK(count > 0);
        if (count == 1) {
            return NULL;
        }
        CHECK(sendto((int)(long)number, bytes, count, 0, (struct sockaddr *)&from, len) == count);
    }
}

static void serve(void) {
    pthread_t threads[CALLERS + 1];
    int listener = listening(), datagrams = opened(SOCK_DGRAM);
    CHECK(bind(datagrams, (struct sockaddr *)&to, to_len) == 0);
    CHECK(pthread_create(&threads[CALLERS], NULL, answers, (void *)(long)datagrams) == 0);
    for (int which = 0; which < CALLERS; which++) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0 && pthread_create(&threads[which], NULL, serves, (void *)(long)fd) == 0);
    }
    for (int which = 0; which <= CALLERS; which++) {
        CHECK(pthread_join(threads[which], NULL) == 0);
    }
    CHECK(close(listener) == 0 && close(datagrams) == 0);
}

static void call(void) {
    int fds[CALLERS], udp = opened(SOCK_DGRAM);
    for (int which = 0; which < CALLERS; which++) {
        fds[which] = connected();
    }
    for (int turn = 0; turn < CALLS; turn++) {
        piece(fds[turn % CALLERS], 'a' + turn % 26);
        datagram(udp, turn);
    }
    CHECK(sendto(udp, "", 1, 0, (struct sockaddr *)&to, to_len) == 1 && close(udp) == 0);
    for (int which = 0; which < CALLERS; which++) {
        CHECK(close(fds[which]) == 0);
    }
}

enum { ASKED_BEFORE = 20, ASKED = 2000 };

static void answer(void) {
    pthread_t other;
    int fd = opened(SOCK_DGRAM);
    CHECK(bind(fd, (struct sockaddr *)&to, to_len) == 0);
    for (int turn = 0; turn < ASKED_BEFORE; turn++) {
        char bytes[64];
        struct sockaddr_storage from;
        socklen_t len = sizeof from;
        ssize_t got = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);
        CHECK(got > 0 && sendto(fd, bytes, got, 0, (struct sockaddr *)&from, len) == got);
    }
    CHECK(puts("ready") > 0 && fflush(stdout) == 0);
    /* (Whoever is told may do something to the card now.) */
    CHECK(usleep(1500000) == 0);
    CHECK(pthread_create(&other, NULL, answers, (void *)(long)fd) == 0 && pthread_join(other, NULL) == 0);
    CHECK(close(fd) == 0);
}

/* Asks until there is an answer: who begins late has not heard the first words. */
static void ask_again(int fd, int number) {
    int back = -1;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (int tries = 0; back != number; tries++) {
        CHECK(tries < 100 && sendto(fd, &number, sizeof number, 0, (struct sockaddr *)&to, to_len) == sizeof number);
        while (back != number && poll(&wait, 1, 1000) == 1) {
            CHECK(recv(fd, &back, sizeof back, 0) == sizeof back && back <= number);
        }
    }
}

static void ask(char *v6, char *v4, char *port) {
    int fds[2];
    struct sockaddr_storage there[2];
    socklen_t len[2];
    for (int which = 0; which < 2; which++) {
        name(which ? v6 : v4, port);
        there[which] = to, len[which] = to_len, fds[which] = opened(SOCK_DGRAM);
    }
    for (int turn = 0; turn < ASKED; turn++) {
        int which = turn % 2;
        to = there[which], to_len = len[which];
        ask_again(fds[which], turn);
    }
    CHECK(sendto(fds[1], "", 1, 0, (struct sockaddr *)&to, to_len) == 1);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    how = argv[2];
    name(argv[3], argv[4]);
    if (strcmp(argv[1], "share") == 0) {
        share();
    } else if (strcmp(argv[1], "hand") == 0) {
        hand();
    } else if (strcmp(argv[1], "change") == 0) {
        change();
    } else if (strcmp(argv[1], "serve") == 0) {
        serve();
    } else if (strcmp(argv[1], "answer") == 0) {
        answer();
    } else if (strcmp(argv[1], "ask") == 0) {
        ask(argv[2], argv[3], argv[4]);
    } else {
        call();
    }
    return 0;
}
