// A UDP socket that is bound to every address, and has one of them once it is connected (connect(2)); and again all of them afterwards.
#include "common.h"

#define ROUNDS 100

static const char *local(int fd) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    MUST(getsockname(fd, SA(a), &len));
    static char text[INET6_ADDRSTRLEN];
    return inet_ntop(AF_INET, &a.sin_addr, text, sizeof text);
}

// So many datagrams and their answers.
static int rounds(int wide, int peer, const struct sockaddr_in *to_wide) {
    int whole = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char byte = 0, back = 0;
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        MUST(sendto(peer, "x", 1, 0, (const struct sockaddr *)to_wide, sizeof *to_wide));
        MUST(recvfrom(wide, &byte, 1, 0, SA(from), &len));
        MUST(sendto(wide, "y", 1, 0, SA(from), len));
        MUST(recv(peer, &back, 1, 0));
        whole += byte == 'x' && back == 'y';
    }
    return whole;
}

int main(void) {
    struct sockaddr_in at, to, none = {.sin_family = AF_UNSPEC}, any = {.sin_family = AF_INET};
    struct timeval second = {.tv_sec = 5};
    int peer = datagram(&at), wide = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    // A port that the program names, and so keeps.
    MUST(close(datagram(&to)));
    any.sin_port = to.sin_port;
    MUST(bind(wide, SA(any), sizeof any));
    MUST(setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second));
    MUST(setsockopt(wide, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second));
    for (int again = 0; again < 3; again++) {
        printf("wide: %s\n", local(wide));
        SHOW(rounds(wide, peer, &to));
        SHOW(connect(wide, SA(at), sizeof at));
        printf("connected: %s\n", local(wide));
        SHOW(rounds(wide, peer, &to));
        SHOW(connect(wide, SA(none), sizeof none));
    }
    return 0;
}
