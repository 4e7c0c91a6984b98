/* A program that says nothing while something happens. It is the same whoever carries the sockets. What is wrong is printed; nothing else is, but that it is ready.
 *
 *   idle idle ADDRESS PORT    talks to "far serve", is silent until there is no standard input, and talks on, by what it had and anew
 */
#include "far.h"

int main(int argc, char **argv) {
    CHECK(argc == 4 && strcmp(argv[1], "idle") == 0);
    name(argv[2], argv[3]);
    int fd = connected(), datagrams = opened(SOCK_DGRAM);
    CHECK(connect(datagrams, (struct sockaddr *)&to, to_len) == 0);
    exchange(fd, "before"), exchange(datagrams, "datagram");
    printf("ready\n"), fflush(stdout);
    char byte;
    CHECK(read(0, &byte, 1) == 0);
    exchange(fd, "after"), exchange(datagrams, "another");
    int second = connected();
    exchange(second, "anew");
    CHECK(close(second) == 0 && close(datagrams) == 0);
    send_all(fd, "quit", 4);
    CHECK(recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
    return 0;
}
