// splice, tee, vmsplice, sendfile and the calls with an offset, on sockets.
#include "common.h"

static void out_of_a_socket(void) {
    int s[2], p[2];
    char b[64] = "";
    stream_pair(s);
    MUST(pipe(p));
    SHOW(send(s[1], "spliced bytes", 13, 0));
    ready(s[0], POLLIN);
    SHOW(splice(s[0], NULL, p[1], NULL, 7, 0));
    SHOW(read(p[0], b, 64));
    SHOW(strcmp(b, "spliced"));
    SHOW(splice(s[0], NULL, p[1], NULL, 4096, 0));
    SHOW(read(p[0], b, 64));
    loff_t at = 0;
    SHOW(splice(s[0], &at, p[1], NULL, 4, 0));
    SHOW(splice(s[0], NULL, p[1], &at, 4, 0));
    SHOW(splice(s[0], NULL, s[1], NULL, 4, 0));
    SHOW(splice(s[0], NULL, p[0], NULL, 4, SPLICE_F_NONBLOCK));
    SHOW(splice(s[0], NULL, p[1], NULL, 0, 0));
    SHOW(splice(s[0], NULL, p[1], NULL, 4, 0x100));
    MUST(fcntl(s[0], F_SETFL, O_NONBLOCK));
    SHOW(splice(s[0], NULL, p[1], NULL, 4, 0));
    // A pipe that is full takes nothing, and nothing is lost.
    MUST(fcntl(p[1], F_SETPIPE_SZ, 4096));
    static char page[4096];
    MUST(write(p[1], page, sizeof page));
    MUST(send(s[1], "kept", 4, 0));
    ready(s[0], POLLIN);
    SHOW(splice(s[0], NULL, p[1], NULL, 4, SPLICE_F_NONBLOCK));
    SHOW(read(p[0], page, sizeof page));
    SHOW(splice(s[0], NULL, p[1], NULL, 4, SPLICE_F_NONBLOCK));
    SHOW(read(p[0], b, 64));
    SHOW(memcmp(b, "kept", 4));
    MUST(shutdown(s[1], SHUT_WR));
    ready(s[0], POLLIN);
    SHOW(splice(s[0], NULL, p[1], NULL, 4, 0));
    MUST(close(p[0]));
    MUST(close(p[1]));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void into_a_socket(void) {
    int s[2], p[2], q[2];
    char b[64] = "";
    stream_pair(s);
    MUST(pipe(p));
    SHOW(splice(p[0], NULL, s[0], NULL, 4, SPLICE_F_NONBLOCK));
    MUST(write(p[1], "through the pipe", 16));
    SHOW(splice(p[0], NULL, s[0], NULL, 7, SPLICE_F_MORE));
    SHOW(splice(p[0], NULL, s[0], NULL, 4096, 0));
    SHOW(recv(s[1], b, 16, MSG_WAITALL));
    SHOW(strcmp(b, "through the pipe"));
    // tee and vmsplice are for pipes alone.
    MUST(pipe(q));
    MUST(write(p[1], "twice", 5));
    SHOW(tee(p[0], q[1], 64, 0));
    SHOW(tee(p[0], s[0], 64, 0));
    SHOW(tee(s[0], q[1], 64, 0));
    SHOW(splice(p[0], NULL, s[0], NULL, 64, 0));
    SHOW(splice(q[0], NULL, s[0], NULL, 64, 0));
    SHOW(recv(s[1], b, 10, MSG_WAITALL));
    SHOW(memcmp(b, "twicetwice", 10));
    struct iovec v = {"memory", 6};
    SHOW(vmsplice(s[0], &v, 1, 0));
    SHOW(vmsplice(p[1], &v, 1, 0));
    SHOW(splice(p[0], NULL, s[0], NULL, 64, 0));
    SHOW(recv(s[1], b, 6, MSG_WAITALL));
    MUST(close(p[1]));
    SHOW(splice(p[0], NULL, s[0], NULL, 64, 0));
    MUST(close(p[0]));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

// A megabyte through a pipe and two connections, by two threads that splice: nothing lost, nothing twice.
enum { MUCH = 1 << 20 };
static int first[2], second[2], between[2];

static void *produce(void *unused) {
    (void)unused;
    static char data[MUCH];
    for (int i = 0; i < MUCH; i++)
        data[i] = (char)(i * 31 + (i >> 10));
    for (int done = 0; done < MUCH;)
        done += MUST(send(first[0], data + done, MUCH - done, 0));
    MUST(shutdown(first[0], SHUT_WR));
    return NULL;
}

static void *pump(void *unused) {
    (void)unused;
    for (ssize_t n; (n = splice(first[1], NULL, between[1], NULL, 50000, 0)) > 0;)
        while (n > 0)
            n -= MUST(splice(between[0], NULL, second[0], NULL, n, SPLICE_F_MORE));
    MUST(shutdown(second[0], SHUT_WR));
    return NULL;
}

static void relay(void) {
    stream_pair(first);
    stream_pair(second);
    MUST(pipe(between));
    pthread_t p, r;
    pthread_create(&p, NULL, produce, NULL);
    pthread_create(&r, NULL, pump, NULL);
    static char b[10000];
    long sum = 0, wrong = 0;
    for (ssize_t n; (n = recv(second[1], b, sizeof b, 0)) > 0; sum += n)
        for (int i = 0; i < n; i++)
            wrong += b[i] != (char)((sum + i) * 31 + ((sum + i) >> 10));
    SHOW(sum);
    SHOW(wrong);
    pthread_join(p, NULL);
    pthread_join(r, NULL);
}

static void files(void) {
    int s[2], p[2];
    char b[64] = "", name[] = "/tmp/ringway-abi-XXXXXX";
    stream_pair(s);
    int f = MUST(mkstemp(name));
    unlink(name);
    MUST(write(f, "contents", 8));
    off_t at = 2;
    SHOW(sendfile64(s[0], f, &at, 100));
    SHOW(at);
    SHOW(recv(s[1], b, 6, MSG_WAITALL));
    SHOW(memcmp(b, "ntents", 6));
    at = -1;
    SHOW(sendfile(s[0], f, &at, 100));
    at = 0;
    SHOW(sendfile(s[0], f, &at, 0));
    SHOW(sendfile(s[0], 9999, NULL, 10));
    // Not out of a socket, nor out of a pipe.
    MUST(send(s[1], "x", 1, 0));
    SHOW(sendfile(f, s[0], NULL, 1));
    SHOW(sendfile(s[1], s[0], NULL, 1));
    SHOW(sendfile(s[1], s[0], &at, 1));
    MUST(pipe(p));
    MUST(write(p[1], "x", 1));
    SHOW(sendfile(s[0], p[0], NULL, 1) < 0);
    SHOW(copy_file_range(s[0], NULL, f, NULL, 1, 0));
    SHOW(copy_file_range(f, NULL, s[0], NULL, 1, 0));
    int w = MUST(open("/dev/null", O_WRONLY));
    SHOW(sendfile(s[0], w, NULL, 1));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

static void offsets(void) {
    int s[2];
    char b[64] = "";
    stream_pair(s);
    struct iovec v = {"vector", 6}, w = {b, 64};
    SHOW(pwrite(s[0], "x", 1, 0));
    SHOW(pread(s[0], b, 1, 0));
    SHOW(pwritev(s[0], &v, 1, 0));
    SHOW(preadv(s[0], &w, 1, 0));
    SHOW(pwritev2(s[0], &v, 1, 0, 0));
    SHOW(pwritev2(s[0], &v, 1, -1, 0));
    SHOW(preadv2(s[1], &w, 1, 0, 0));
    SHOW(preadv2(s[1], &w, 1, -1, 0));
    SHOW(memcmp(b, "vector", 6));
    SHOW(preadv2(s[1], &w, 1, -1, RWF_NOWAIT));
    SHOW(pwritev2(s[1], &v, 1, -1, RWF_NOWAIT));
    SHOW(preadv2(s[0], &w, 1, -1, RWF_HIPRI));
    SHOW(preadv2(s[0], &w, 1, -1, 0x10000));
    SHOW(pwritev2(s[0], &v, 1, -1, RWF_DSYNC | RWF_SYNC));
    SHOW(pwritev2(s[0], &v, 1, -1, RWF_APPEND));
    SHOW(pwritev2(s[0], &v, -1, -1, 0));
    SHOW(lseek(s[0], 0, SEEK_END));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGPIPE, SIG_IGN);
    out_of_a_socket();
    into_a_socket();
    relay();
    files();
    offsets();
    return 0;
}
