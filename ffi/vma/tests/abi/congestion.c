// TCP_CONGESTION: the congestion controller that a program chooses, by name, before a connection and while it goes on.
#include "common.h"

static int set(int fd, const char *name, socklen_t len) { return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, len); }

static void told(int fd, socklen_t room) {
    char name[64];
    memset(name, '!', sizeof name);
    SHOW(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &room));
    printf("%u: %.*s\n", (unsigned)room, room < 16 ? (int)room : 15, name);
}

// So many bytes go through, and come back.
static void exchange(int a, int b) {
    static char out[100000], in[100000];
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 7 >> 3);
    size_t sent = 0, got = 0;
    while (got < sizeof in) {
        if (sent < sizeof out) {
            size_t more = sizeof out - sent < 20000 ? sizeof out - sent : 20000;
            sent += (size_t)MUST(send(a, out + sent, more, 0));
        }
        while (got < sent)
            got += (size_t)MUST(recv(b, in + got, sent - got, 0));
    }
    SHOW(memcmp(in, out, sizeof in));
}

int main(void) {
    int fresh = MUST(socket(AF_INET, SOCK_STREAM, 0)), s[2];
    SHOW(set(fresh, "reno", 4));
    told(fresh, 64);
    told(fresh, 3);
    SHOW(set(fresh, "cubic", 6));
    told(fresh, 16);
    SHOW(set(fresh, "none such", 9));
    SHOW(set(fresh, "", 0));
    SHOW(set(fresh, (void *)8, 4));
    told(fresh, 16);
    MUST(close(fresh));
    stream_pair(s);
    for (int side = 0; side < 2; side++) {
        SHOW(set(s[side], "reno", 4));
        told(s[side], 64);
        exchange(s[side], s[!side]);
        // What is longer than any name is cut off, and what follows the end of one is none of it.
        SHOW(set(s[side], "cubic\0and more", 14));
        told(s[side], 64);
        exchange(s[side], s[!side]);
        SHOW(set(s[side], "cubical", 7));
        SHOW(set(s[side], "a name that is much too long for one", 36));
        SHOW(set(s[side], NULL, 0));
        told(s[side], 5);
    }
    MUST(close(s[0]));
    MUST(close(s[1]));
    return 0;
}
