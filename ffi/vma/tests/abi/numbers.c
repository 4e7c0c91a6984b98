// Numbers: descriptors that are closed behind the library's back and handed out anew, ranges that are closed, duplicates.
#include "common.h"
#include "unseen.h"
#include <linux/close_range.h>
#include <sys/eventfd.h>

// The number that `fd` had is the descriptor that the next call gives.
static void is_a_pipe(int number, int ends[2]) {
    char b[8] = "";
    SHOW(ends[0] == number);
    SHOW(write(ends[1], "pipe", 4));
    SHOW(ready(ends[0], POLLIN));
    SHOW(read(ends[0], b, 8));
    SHOW(strcmp(b, "pipe"));
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

// A pair without free numbers below it: what is closed of it is handed out next.
static void dense_pair(int fds[2]) {
    stream_pair(fds);
    for (int hole; (hole = MUST(open("/dev/null", O_RDONLY)));) {
        if (hole > fds[0] && hole > fds[1]) {
            close(hole);
            return;
        }
    }
}

// After a close that nobody saw, what the kernel hands out under the number is not the old socket; its peer sees the end.
static void handed_out_anew(void) {
    int s[2], ends[2];
    char b[64];
    dense_pair(s);
    MUST(send(s[1], "for the dead", 12, 0));
    ready(s[0], POLLIN);
    MUST(unseen(SYS_close, s[0], 0, 0));
    MUST(pipe2(ends, O_CLOEXEC));
    is_a_pipe(s[0], ends);
    SHOW(ready(s[1], POLLIN) & POLLIN);
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(s[1]));

    dense_pair(s);
    MUST(unseen(SYS_close, s[0], 0, 0));
    int e = MUST(eventfd(3, 0));
    SHOW(e == s[0]);
    SHOW(read(e, b, 8));
    SHOW(b[0]);
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(e));
    MUST(close(s[1]));

    dense_pair(s);
    MUST(unseen(SYS_close, s[0], 0, 0));
    int f = MUST(open("/proc/self/stat", O_RDONLY));
    SHOW(f == s[0]);
    SHOW(read(f, b, 1));
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(f));
    MUST(close(s[1]));

    // Two sockets in turn: the second works, the first's peer is told.
    dense_pair(s);
    int t[2];
    MUST(unseen(SYS_close, s[0], 0, 0));
    dense_pair(t);
    SHOW(t[0] == s[0] || t[1] == s[0]);
    SHOW(send(t[0], "new", 3, 0));
    SHOW(recv(t[1], b, 64, 0));
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(s[1]));
    MUST(close(t[0]));
    MUST(close(t[1]));

    // Nobody saw the new one either.
    dense_pair(s);
    MUST(unseen(SYS_close, s[0], 0, 0));
    MUST(unseen(SYS_pipe2, (long)ends, 0, 0));
    nap(200);
    is_a_pipe(s[0], ends);
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(s[1]));
    dense_pair(s);
    MUST(unseen(SYS_close, s[0], 0, 0));
    MUST(unseen(SYS_pipe2, (long)ends, 0, 0));
    is_a_pipe(s[0], ends);
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(s[1]));
}

// libc's function for calls by number is seen.
static void by_number(void) {
    int s[2];
    char b[64] = "";
    stream_pair(s);
    SHOW(syscall(SYS_write, s[0], "number", 6));
    SHOW(syscall(SYS_read, s[1], b, 64));
    SHOW(syscall(SYS_sendto, s[1], "to", 2, 0, NULL, 0));
    SHOW(syscall(SYS_recvfrom, s[0], b, 64, 0, NULL, NULL));
    int d = MUST(syscall(SYS_dup, s[0]));
    SHOW(syscall(SYS_close, s[0]));
    SHOW(send(s[0], "x", 1, MSG_NOSIGNAL));
    SHOW(send(d, "dup", 3, 0));
    SHOW(recv(s[1], b, 64, 0));
    SHOW(syscall(SYS_shutdown, d, SHUT_WR));
    SHOW(recv(s[1], b, 64, 0));
    SHOW(syscall(SYS_close, d));
    SHOW(syscall(SYS_close, d));
    MUST(close(s[1]));
}

static void ranges(void) {
    int s[2], t[2];
    char b[64];
    stream_pair(s);
    stream_pair(t);
    for (int i = 0; i < 2; i++) {
        MUST(dup2(s[i], 100 + i));
        MUST(close(s[i]));
    }
    SHOW(close_range(100, 99, 0));
    SHOW(close_range(100, 101, 0x100));
    SHOW(send(100, "still", 5, 0));
    SHOW(recv(101, b, 64, 0));
    SHOW(close_range(100, 101, CLOSE_RANGE_CLOEXEC));
    SHOW(fcntl(100, F_GETFD));
    SHOW(send(100, "still", 5, 0));
    SHOW(recv(101, b, 64, 0));
    SHOW(close_range(100, 100, CLOSE_RANGE_UNSHARE));
    SHOW(fcntl(100, F_GETFD));
    SHOW(recv(101, b, 64, 0));
    SHOW(close_range(101, ~0U, 0));
    SHOW(recv(101, b, 64, 0));
    // Everything else of the program's is closed; what the library needs is not.
    MUST(dup2(t[0], 50));
    MUST(dup2(t[1], 51));
    MUST(close(t[0]));
    MUST(close(t[1]));
    closefrom(52);
    SHOW(send(50, "open", 4, 0));
    SHOW(recv(51, b, 64, 0));
    struct timeval soon = {.tv_usec = 30000};
    MUST(setsockopt(51, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    SHOW(recv(51, b, 64, 0));
    closefrom(3);
    SHOW(recv(51, b, 64, 0));
    stream_pair(s);
    SHOW(s[0]);
    SHOW(send(s[0], "again", 5, 0));
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void *quiet(void *go) {
    char b;
    read(*(int *)go, &b, 1);
    return NULL;
}

static void duplicates(void) {
    int s[2];
    char b[64];
    stream_pair(s);
    SHOW(dup3(s[0], 200, O_CLOEXEC));
    SHOW(fcntl(200, F_GETFD));
    SHOW(dup3(s[0], 200, O_APPEND));
    SHOW(dup3(s[0], -1, 0));
    SHOW(dup2(s[0], 1 << 30));
    SHOW(fcntl(s[0], F_DUPFD, 300));
    SHOW(fcntl(s[0], F_DUPFD, 300));
    SHOW(fcntl(s[0], F_DUPFD_CLOEXEC, 1 << 30));
    SHOW(fcntl(s[0], F_DUPFD, -1));
    MUST(close(s[0]));
    MUST(fcntl(200, F_SETFL, O_NONBLOCK));
    SHOW(fcntl(301, F_GETFL) & O_NONBLOCK ? 1 : 0);
    SHOW(recv(301, b, 64, 0));
    MUST(close(200));
    MUST(close(300));
    SHOW(send(301, "last", 4, 0));
    SHOW(recv(s[1], b, 64, 0));
    // A duplicate over a connection: the connection ends.
    int t[2];
    stream_pair(t);
    SHOW(dup2(301, t[0]) == t[0]);
    SHOW(recv(t[1], b, 64, 0));
    SHOW(send(t[0], "both", 4, 0));
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(301));
    MUST(close(t[0]));
    MUST(close(t[1]));
    SHOW(recv(s[1], b, 64, 0));
    MUST(close(s[1]));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    handed_out_anew();
    by_number();
    ranges();
    duplicates();
    // A thread apart from the others keeps the offloaded sockets from them; only the preloaded run refuses, so nothing is shown.
    int s[2], ends[2];
    stream_pair(s);
    MUST(pipe(ends));
    pthread_t other;
    pthread_create(&other, NULL, quiet, &ends[0]);
    close_range(1000, 1001, CLOSE_RANGE_UNSHARE);
    SHOW(send(s[0], "x", 1, 0));
    SHOW(recv(s[1], &ends, 1, 0));
    return 0;
}
