/* Waits when told to. Runs pinned to one processor, several at once.
 * usage: claims CPU
 * Prints the port that it listens on; then obeys lines of standard input:
 *   accept         accepts a connection, and keeps it
 *   connect PORT   connects to another of its kind
 *   wait N         waits N times in vain, each time in a new thread, which has no history of vain waits
 *   forget         waits until a connection ends, and closes it
 *   spin           waits for ever
 * and prints "done" after each. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { printf("FAILED %s:%d %s errno %d\n", __FILE__, __LINE__, #x, errno); exit(1); } } while (0)

static struct pollfd connections[16];
static int count;

static void keep(int fd) {
    CHECK(fd >= 0 && count < 16);
    connections[count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
}

static void *wait_once(void *unused) {
    struct pollfd copy[16];
    memcpy(copy, connections, sizeof copy);
    CHECK(poll(copy, count, 100) == 0);
    return unused;
}

int main(int argc, char **argv) {
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t len = sizeof a;
    char line[64];
    int argument, l;
    cpu_set_t set;
    CHECK(argc == 2);
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[1]), &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
    setvbuf(stdout, 0, _IOLBF, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    l = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(l >= 0 && bind(l, (void *)&a, sizeof a) == 0 && listen(l, 16) == 0 && getsockname(l, (void *)&a, &len) == 0);
    printf("%d\n", ntohs(a.sin_port));
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "accept\n")) {
            keep(accept(l, 0, 0));
        } else if (sscanf(line, "connect %d", &argument) == 1) {
            int s = socket(AF_INET, SOCK_STREAM, 0);
            a.sin_port = htons(argument);
            CHECK(s >= 0 && connect(s, (void *)&a, sizeof a) == 0);
            keep(s);
        } else if (sscanf(line, "wait %d", &argument) == 1) {
            for (int i = 0; i < argument; i++) {
                pthread_t thread;
                CHECK(pthread_create(&thread, 0, wait_once, 0) == 0 && pthread_join(thread, 0) == 0);
            }
        } else if (!strcmp(line, "forget\n")) {
            CHECK(poll(connections, count, -1) == 1);
            for (int i = 0; i < count; i++)
                if (connections[i].revents) {
                    CHECK(close(connections[i].fd) == 0);
                    connections[i] = connections[--count];
                    break;
                }
        } else {
            CHECK(!strcmp(line, "spin\n"));
            poll(connections, count, -1);
        }
        printf("done\n");
    }
    return 0;
}
