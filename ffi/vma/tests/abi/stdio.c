// stdio on sockets: streams by fdopen, dprintf, fileno, what is left in buffers at the end.
#include "common.h"
#include <stdarg.h>

static int vd(int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vdprintf(fd, format, list);
    va_end(list);
    return n;
}

static void lines(void) {
    int s[2];
    char b[256] = "";
    stream_pair(s);
    FILE *out = fdopen(s[0], "w"), *in = fdopen(s[1], "r");
    SHOW(out && in);
    SHOW(fileno(out) == s[0]);
    SHOW(fileno_unlocked(in) == s[1]);
    SHOW(fprintf(out, "GET %s %d\r\n", "/", 1));
    SHOW(fputs("Host: here\r\n\r\n", out) >= 0);
    SHOW(ready(s[1], POLLOUT));
    SHOW(recv(s[1], b, sizeof b, MSG_DONTWAIT | MSG_PEEK));
    SHOW(fflush(out));
    SHOW(fgets(b, sizeof b, in) == b);
    SHOW(strcmp(b, "GET / 1\r\n"));
    SHOW(fgets(b, sizeof b, in) == b);
    SHOW(strcmp(b, "Host: here\r\n"));
    SHOW(fgetc(in));
    SHOW(ungetc('x', in));
    SHOW(fgetc(in));
    SHOW(getc(in));
    SHOW(fseek(in, 0, SEEK_SET));
    SHOW(ftell(in));
    SHOW(setvbuf(out, NULL, _IONBF, 0));
    SHOW(fwrite("unbuffered", 1, 10, out));
    SHOW(fread(b, 1, 10, in));
    SHOW(memcmp(b, "unbuffered", 10));
    SHOW(fputs("end", out) >= 0);
    SHOW(fclose(out));
    SHOW(fcntl(s[0], F_GETFD));
    SHOW(fread(b, 1, 10, in));
    SHOW(feof(in));
    SHOW(ferror(in));
    SHOW(fclose(in));
    SHOW(fcntl(s[1], F_GETFD));
}

static void both_ways(void) {
    int s[2];
    char b[256] = "";
    stream_pair(s);
    FILE *f = fdopen(s[0], "r+");
    setvbuf(f, NULL, _IOLBF, 0);
    SHOW(fprintf(f, "line\n"));
    SHOW(recv(s[1], b, 64, 0));
    MUST(send(s[1], "answer\n", 7, 0));
    SHOW(fgets(b, sizeof b, f) == b);
    SHOW(strcmp(b, "answer\n"));
    SHOW(fdopen(s[0], "q") == NULL);
    SHOW(fdopen(9999, "r") == NULL);
    // Time over, the end, nobody to write to.
    struct timeval soon = {.tv_usec = 20000};
    MUST(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    SHOW(fgets(b, sizeof b, f) == NULL);
    SHOW(ferror(f) != 0);
    clearerr(f);
    MUST(close(s[1]));
    nap(20);
    SHOW(fgets(b, sizeof b, f) == NULL);
    SHOW(feof(f) != 0);
    signal(SIGPIPE, SIG_IGN);
    SHOW(fprintf(f, "x\n"));
    nap(20);
    SHOW(fprintf(f, "x\n"));
    SHOW(ferror(f) != 0);
    clearerr(f);
    SHOW(fclose(f));

    // A socket that becomes a connection later.
    struct sockaddr_in where;
    int l = listener(&where), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    f = fdopen(fd, "w");
    MUST(connect(fd, SA(where), sizeof where));
    int a = MUST(accept(l, NULL, NULL));
    SHOW(fputs("later", f) >= 0);
    SHOW(fclose(f));
    SHOW(recv(a, b, 64, MSG_WAITALL));
    MUST(close(a));
    MUST(close(l));
}

static void formatted(void) {
    int s[2];
    char b[3000] = "";
    stream_pair(s);
    SHOW(dprintf(s[0], "%d %s %.2f %ld %c %s %d %d %.1f", 1, "two", 3.25, 4L, '5', "six", 7, 8, 9.5));
    SHOW(recv(s[1], b, sizeof b, 0));
    SHOW(strncmp(b, "1 two 3.25 4 5 six 7 8 9.5", 26));
    SHOW(vd(s[0], "%s-%g-%s", "a", 0.5, "b"));
    SHOW(recv(s[1], b, sizeof b, 0));
    SHOW(strncmp(b, "a-0.5-b", 7));
    SHOW(dprintf(s[0], "%2000d", 1));
    SHOW(recv(s[1], b, 2000, MSG_WAITALL));
    SHOW(dprintf(s[0], "%s", ""));
    SHOW(dprintf(9999, "x"));
    int p[2];
    MUST(pipe(p));
    SHOW(dprintf(p[1], "%d %f", 12, 1.5));
    SHOW(read(p[0], b, 64));
    MUST(shutdown(s[0], SHUT_WR));
    SHOW(dprintf(s[0], "x"));
    MUST(close(s[0]));
    MUST(close(s[1]));
}

// What is in a stream's buffer when the program returns from main arrives.
static void at_exit(void) {
    struct sockaddr_in where;
    int l = listener(&where);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(fd, SA(where), sizeof where));
        fputs("never flushed", fdopen(fd, "w"));
        exit(0);
    }
    char b[64] = "";
    int a = MUST(accept(l, NULL, NULL));
    SHOW(recv(a, b, 64, MSG_WAITALL));
    SHOW(strcmp(b, "never flushed"));
    int status = -1;
    SHOW(waitpid(child, &status, 0) == child);
    SHOW(status);
    MUST(close(a));
    MUST(close(l));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    lines();
    both_ways();
    formatted();
    at_exit();
    return 0;
}
