// A process is killed, or stopped for a while, as a connection of its goes over to the ring of another of its threads, or its peer's does: both ends are used by
// other threads than those that made them. A stream that ends in order has all that was sent, and whatever else becomes of it, no thread waits for ever. When
// each is killed is up to chance, so that only what must be is told. (What hangs is ended by the alarm.)
#include "common.h"
#include <sys/mman.h>

enum { RUNS = 40, PIECE = 512, PAUSED_TOTAL = 3000 * PIECE };

// What the sender has got rid of, for who outlives it.
static volatile long *sent;

static unsigned char expected(long at) {
    return (unsigned char)(at * 7 + (at >> 8) * 31 + (at >> 16) * 3);
}

static void *streams(void *argument) {
    int fd = *(int *)argument;
    unsigned char bytes[PIECE], answer;
    for (long at = 0; at < PAUSED_TOTAL; at += PIECE) {
        for (int i = 0; i < PIECE; i++) bytes[i] = expected(at + i);
        if (send(fd, bytes, PIECE, MSG_NOSIGNAL) != PIECE) _exit(3);
        *sent = at + PIECE;
        // Now and then it waits for the other end, and so both receive and send. (A process that was stopped may find its call interrupted: signal(7).)
        ssize_t got = 1;
        if (at / PIECE % 4 == 3)
            while ((got = recv(fd, &answer, 1, 0)) < 0 && errno == EINTR) {}
        if (got != 1) _exit(4);
    }
    return NULL;
}

// The child: accepts with one thread, and sends with another.
static void serve(int tell) {
    alarm(60);
    struct sockaddr_in where;
    int listening = listener(&where);
    MUST(write(tell, &where, sizeof where));
    int fd = MUST(accept(listening, NULL, NULL)), on = 1;
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    pthread_t thread;
    MUST(-pthread_create(&thread, NULL, streams, &fd));
    pthread_join(thread, NULL);
    _exit(close(fd) ? 5 : 0);
}

struct reader {
    int fd, error;
    long got, wrong;
};

static void *reads(void *argument) {
    struct reader *reader = argument;
    unsigned char bytes[PIECE];
    long answered = 0;
    for (;;) {
        ssize_t got = recv(reader->fd, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            reader->error = got < 0 ? errno : 0;
            return NULL;
        }
        for (ssize_t i = 0; i < got; i++) reader->wrong += bytes[i] != expected(reader->got + i);
        reader->got += got;
        for (; answered < reader->got / (4 * PIECE); answered++)
            if (send(reader->fd, "", 1, MSG_NOSIGNAL) != 1 && errno != EPIPE && errno != ECONNRESET) reader->wrong++;
    }
}

static void run(int is_killed) {
    long wrong = 0, cut = 0, unknown = 0, whole = 0;
    for (int i = 0; i < RUNS; i++) {
        int tell[2];
        struct sockaddr_in where;
        MUST(pipe(tell));
        *sent = 0;
        pid_t child = MUST(fork());
        if (child == 0) serve(tell[1]);
        MUST(read(tell[0], &where, sizeof where));
        struct reader reader = {.fd = MUST(socket(AF_INET, SOCK_STREAM, 0))};
        MUST(connect(reader.fd, SA(where), sizeof where));
        pthread_t thread;
        MUST(-pthread_create(&thread, NULL, reads, &reader));
        usleep(i * 100);
        if (is_killed) {
            MUST(kill(child, SIGKILL));
        } else {
            MUST(kill(child, SIGSTOP));
            usleep(5000 + i * 200);
            MUST(kill(child, SIGCONT));
        }
        pthread_join(thread, NULL);
        wrong += reader.wrong;
        cut += reader.error == 0 && reader.got < *sent;
        unknown += reader.error != 0 && reader.error != ECONNRESET && reader.error != EPIPE;
        whole += reader.got == PAUSED_TOTAL;
        MUST(waitpid(child, NULL, 0));
        MUST(close(reader.fd));
        MUST(close(tell[0]));
        MUST(close(tell[1]));
    }
    printf("%s\n  %ld bytes were wrong\n  %ld streams ended too soon\n  %ld ended otherwise\n", is_killed ? "killed" : "stopped", wrong, cut, unknown);
    if (!is_killed) printf("  %ld were whole\n", whole);
}

int main(void) {
    alarm(200);
    signal(SIGPIPE, SIG_IGN);
    sent = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 2; round++) {
        run(1);
        run(0);
    }
    return 0;
}
