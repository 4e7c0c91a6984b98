/*
 * Does what the lines of its input say, so that there is something to tell of: work, fork, close. Prints a line for each.
 */
#include "../abi/common.h"

enum { DATAGRAMS = 100, BYTES = 300000 };

static int receiver, sender, pair[2], extra = -1;
static char bytes[BYTES];

/* 100 datagrams of 14 bytes, of which each is waited for; one receive too many; and 300000 bytes over a connection, and 10 back. */
static void work(void) {
    char buffer[64];
    for (int i = 0; i < DATAGRAMS; i++) {
        MUST(send(sender, "fourteen bytes", 14, 0));
        MUST(recv(receiver, buffer, sizeof buffer, 0));
    }
    recv(receiver, buffer, sizeof buffer, MSG_DONTWAIT);
    size_t sent = 0, got = 0;
    while (got < BYTES) {
        if (sent < BYTES) {
            ssize_t n = send(pair[0], bytes + sent, BYTES - sent, MSG_DONTWAIT);
            sent += n > 0 ? n : 0;
        }
        static char sink[BYTES];
        ssize_t n = recv(pair[1], sink, sizeof sink, MSG_DONTWAIT);
        got += n > 0 ? n : 0;
    }
    MUST(send(pair[1], bytes, 10, 0));
    MUST(recv(pair[0], buffer, 10, MSG_WAITALL));
}

/* A child with a state of its own, which waits for the end of its input. */
static void with_child(void) {
    int go[2], said[2];
    char c;
    MUST(pipe(go));
    MUST(pipe(said));
    pid_t child = MUST(fork());
    if (child == 0) {
        close(go[1]);
        struct sockaddr_in where;
        datagram(&where);
        MUST(write(said[1], "x", 1));
        c = read(go[0], &c, 1);
        exit(0);
    }
    MUST(read(said[0], &c, 1));
    printf("child %d\n", child);
    fflush(stdout);
    fgetc(stdin);
    close(go[1]);
    waitpid(child, NULL, 0);
}

int main(void) {
    struct sockaddr_in where;
    receiver = datagram(&where);
    sender = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(connect(sender, SA(where), sizeof where));
    stream_pair(pair);
    printf("ready %d %d %d %d\n", receiver, sender, pair[0], pair[1]);
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "work\n") == 0)
            work();
        else if (strcmp(line, "fork\n") == 0)
            with_child();
        else if (strcmp(line, "exec\n") == 0)
            execl("./broken", "broken", NULL);
        else if (strcmp(line, "open\n") == 0)
            extra = MUST(socket(AF_INET, SOCK_DGRAM, 0));
        else if (strcmp(line, "join\n") == 0) {
            struct ip_mreq group = {.imr_multiaddr.s_addr = htonl(0xef010203), .imr_interface.s_addr = htonl(INADDR_LOOPBACK)};
            MUST(setsockopt(receiver, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
            MUST(setsockopt(receiver, IPPROTO_IP, IP_MULTICAST_IF, &group.imr_interface, sizeof group.imr_interface));
            MUST(setsockopt(receiver, IPPROTO_IP, IP_MULTICAST_LOOP, &(int){0}, sizeof(int)));
        } else if (strcmp(line, "close\n") == 0)
            MUST(close(extra));
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
