/* A program that talks to another one, on whichever machine that is. It knows nothing of who carries its sockets. What is wrong is printed; nothing else is.
 *
 *   far serve ADDRESS PORT      echoes streams and datagrams, by epoll, until a stream says "quit"
 *   far talk ADDRESS PORT       talks to such a server in every way that it knows
 *   far carry ADDRESS PORT      the same, but for ports where nobody is
 *   far fork ADDRESS PORT       has a child go on with a connection, and then goes on itself
 *   far forking ADDRESS PORT    a server that forks for each connection; after two it ends
 *   far worker ADDRESS PORT     serves by a child that it forks before anybody waits for anything
 *   far daemon ADDRESS PORT     the same, and ends at once
 *   far busy ADDRESS PORT       serves, and has a child beside it meanwhile: it says when that is there, and when it is not any more
 *   far beside ADDRESS PORT     has a connection that the kernel accepts, and then serves at the same address: it says when it is to come, and when it is there
 *   far split ADDRESS PORT      has such a server fork, whose child does nothing
 *   far slow ADDRESS PORT       exchanges something, and after a while something else
 *   far nobody ADDRESS PORT     nobody has that address: EHOSTUNREACH
 *   far streams ADDRESS PORT    exchanges several streams
 *   far removed ADDRESS PORT    waits on a connection and on datagrams until what carries them is removed (it says when), and goes on without
 *   far again ADDRESS PORT      for each byte of its standard input exchanges something, and says when it has
 *   far turns ADDRESS PORT      serves one connection by a child, then one itself, and so on
 *   far spray ADDRESS PORT      sends a datagram from each of 64 sockets
 */
#include "far.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>

#define STREAM (1 << 20)

static void add(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void by_itself(void) {
}

/* `begin`: what comes between the sockets and the first wait. */
static void serve(void (*begin)(void)) {
    static char bytes[1 << 16];
    int listener = listening(), datagrams = opened(SOCK_DGRAM), epoll;
    CHECK(bind(datagrams, (struct sockaddr *)&to, to_len) == 0);
    begin();
    CHECK((epoll = epoll_create1(0)) >= 0);
    add(epoll, listener), add(epoll, datagrams);
    for (;;) {
        struct epoll_event event;
        int ready = epoll_wait(epoll, &event, 1, 30000);
        CHECK(ready == 1);
        int fd = event.data.fd;
        struct sockaddr_storage from;
        socklen_t len = sizeof from;
        if (fd == listener) {
            int accepted = accept(listener, (struct sockaddr *)&from, &len);
            CHECK(accepted >= 0 && from.ss_family == to.ss_family);
            add(epoll, accepted);
        } else if (fd == datagrams) {
            ssize_t count = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);
            CHECK(count >= 0 && sendto(fd, bytes, count, 0, (struct sockaddr *)&from, len) == count);
        } else {
            ssize_t count = recv(fd, bytes, sizeof bytes, 0);
            CHECK(count >= 0);
            if (count == 0) {
                CHECK(close(fd) == 0);
            } else if (count == 4 && memcmp(bytes, "fork", 4) == 0) {
                pid_t child = fork();
                CHECK(child >= 0);
                if (child == 0) {
                    prctl(PR_SET_PDEATHSIG, SIGKILL);
                    pause();
                }
                send_all(fd, bytes, count);
            } else if (count == 4 && memcmp(bytes, "quit", 4) == 0) {
                CHECK(close(fd) == 0 && close(listener) == 0 && close(datagrams) == 0);
                return;
            } else {
                send_all(fd, bytes, count);
            }
        }
    }
}

static void stream(void) {
    static char out[STREAM], in[STREAM];
    size_t sent = 0, got = 0;
    struct sockaddr_storage own, peer;
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    int fd = connected();
    CHECK(getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 && own_len == to_len && ((struct sockaddr_in *)&own)->sin_port != 0);
    CHECK(getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && peer_len == to_len && memcmp(&peer, &to, 8) == 0);
    for (size_t at = 0; at < STREAM; at++) {
        out[at] = at * 2654435761u >> 24;
    }
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while (got < STREAM) {
        struct pollfd wait = {.fd = fd, .events = POLLIN | (sent < STREAM ? POLLOUT : 0)};
        CHECK(poll(&wait, 1, 20000) == 1);
        if (wait.revents & POLLOUT && sent < STREAM) {
            ssize_t count = send(fd, out + sent, STREAM - sent, MSG_NOSIGNAL);
            CHECK(count > 0 || errno == EAGAIN);
            sent += count > 0 ? count : 0;
        }
        if (wait.revents & POLLIN) {
            ssize_t count = recv(fd, in + got, STREAM - got, 0);
            CHECK(count > 0 || (count < 0 && errno == EAGAIN));
            got += count > 0 ? count : 0;
        }
    }
    CHECK(memcmp(out, in, STREAM) == 0);
    CHECK(fcntl(fd, F_SETFL, 0) == 0 && shutdown(fd, SHUT_WR) == 0);
    CHECK(recv(fd, in, 1, 0) == 0 && close(fd) == 0);
}

static void datagrams(void) {
    char word[16] = "";
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd = opened(SOCK_DGRAM);
    CHECK(sendto(fd, "hello", 5, 0, (struct sockaddr *)&to, to_len) == 5);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval time = {.tv_sec = 20};
    CHECK(select(fd + 1, &set, NULL, NULL, &time) == 1);
    CHECK(recvfrom(fd, word, sizeof word, 0, (struct sockaddr *)&from, &len) == 5 && memcmp(word, "hello", 5) == 0);
    CHECK(len == to_len && memcmp(&from, &to, 8) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) == 0);
    for (int turn = 0; turn < 100; turn++) {
        CHECK(send(fd, &turn, sizeof turn, 0) == sizeof turn);
        int back = -1;
        CHECK(recv(fd, &back, sizeof back, 0) == sizeof back && back == turn);
    }
    CHECK(recv(fd, word, sizeof word, MSG_DONTWAIT) < 0 && errno == EAGAIN && close(fd) == 0);
}

/* At the next port there is nobody. */
static void refused(void) {
    in_port_t *port = &((struct sockaddr_in *)&to)->sin_port, there = *port;
    *port = htons(ntohs(there) + 1);
    int fd = opened(SOCK_STREAM);
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) < 0 && errno == ECONNREFUSED && close(fd) == 0);
    fd = opened(SOCK_DGRAM);
    char byte = 0;
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) == 0 && send(fd, &byte, 1, 0) == 1);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(poll(&wait, 1, 20000) == 1 && wait.revents & POLLERR);
    CHECK(recv(fd, &byte, 1, 0) < 0 && errno == ECONNREFUSED && close(fd) == 0);
    *port = there;
}

static void forks(void) {
    int fd = connected();
    exchange(fd, "before");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        exchange(fd, "by the child");
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    exchange(fd, "by the parent");
    CHECK(close(fd) == 0);
}

static void echo_on(int fd) {
    char bytes[64];
    ssize_t count;
    CHECK(fd >= 0);
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        send_all(fd, bytes, count);
    }
    CHECK(count == 0 && close(fd) == 0);
}

static void forking(void) {
    int listener = listening();
    for (int turn = 0; turn < 2; turn++) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            echo_on(fd);
            exit(0);
        }
        CHECK(close(fd) == 0);
    }
    int status;
    while (waitpid(-1, &status, 0) > 0) {
        CHECK(status == 0);
    }
}

static void by_worker(void) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        exit(0);
    }
}

static void by_daemon(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        exit(0);
    }
}

static void echo(int listener) {
    echo_on(accept(listener, NULL, NULL));
}

static void sprayed(int fd) {
    char bytes[8];
    for (int count = 0; count < 64; count++) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        CHECK(poll(&wait, 1, 20000) == 1 && recv(fd, bytes, sizeof bytes, 0) == 5);
    }
}

static void say_ready(void) {
    printf("ready\n"), fflush(stdout);
}

/* One connection before, two while the child is there; and datagrams while it is there, and afterwards. */
static void busy(void) {
    int listener = listening(), datagrams = opened(SOCK_DGRAM), status;
    CHECK(bind(datagrams, (struct sockaddr *)&to, to_len) == 0);
    echo(listener);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pause();
    }
    say_ready();
    echo(listener), echo(listener), sprayed(datagrams);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    say_ready();
    sprayed(datagrams);
}

enum { LISTENER = 9, TOLD = 8 };

/* Another program takes the child's place, which knows no library. */
static void beside(char *self) {
    int listener = listening(), ends[2], status;
    CHECK(pipe(ends) == 0);
    echo(listener);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *arguments[] = {self, "accepts", "0.0.0.0", "0", NULL}, *nothing[] = {NULL};
        CHECK(dup2(listener, LISTENER) == LISTENER && dup2(ends[1], TOLD) == TOLD);
        execve(self, arguments, nothing);
        _exit(1);
    }
    char byte;
    say_ready();
    CHECK(read(ends[0], &byte, 1) == 1);
    say_ready();
    echo(listener);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void accepts(void) {
    int fd = accept(LISTENER, NULL, NULL);
    CHECK(fd >= 0 && write(TOLD, "!", 1) == 1);
    echo_on(fd);
}

static void slow(void) {
    int fd = connected();
    char byte;
    exchange(fd, "one");
    sleep(2);
    exchange(fd, "two");
    CHECK(shutdown(fd, SHUT_WR) == 0 && recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
}

static void nobody(void) {
    int fd = opened(SOCK_STREAM);
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) < 0 && errno == EHOSTUNREACH && close(fd) == 0);
}

static void spray(void) {
    int fds[64];
    for (int i = 0; i < 64; i++) {
        fds[i] = opened(SOCK_DGRAM);
        CHECK(sendto(fds[i], "spray", 5, 0, (struct sockaddr *)&to, to_len) == 5);
    }
    for (int i = 0; i < 64; i++) {
        CHECK(close(fds[i]) == 0);
    }
}

/* Nothing waits for ever: the connection fails, what belongs to nobody else goes on, and so does who connects anew. */
static void removed(void) {
    int fd = connected(), datagrams = opened(SOCK_DGRAM);
    exchange(fd, "before");
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    CHECK(getsockname(fd, (struct sockaddr *)&own, &len) == 0);
    ((struct sockaddr_in *)&own)->sin_port = 0;
    CHECK(bind(datagrams, (struct sockaddr *)&own, len) == 0 && connect(datagrams, (struct sockaddr *)&to, to_len) == 0);
    exchange(datagrams, "datagram");
    say_ready();
    char byte;
    CHECK(recv(fd, &byte, 1, 0) < 0 && errno == ENETDOWN);
    CHECK(recv(fd, &byte, 1, 0) == 0 && send(fd, "!", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
    struct pollfd wait = {.fd = datagrams, .events = POLLIN};
    CHECK(poll(&wait, 1, 100) == 0 && recv(datagrams, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK(send(datagrams, "!", 1, 0) == 1);
    CHECK(close(fd) == 0 && close(datagrams) == 0);
}

static void split(void) {
    int fd = connected();
    exchange(fd, "fork");
    CHECK(close(fd) == 0);
}

static void quit(void) {
    int fd = connected();
    char byte;
    send_all(fd, "quit", 4);
    CHECK(recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
}

static void again(void) {
    char byte;
    while (read(0, &byte, 1) == 1) {
        int fd = connected();
        exchange(fd, "one");
        CHECK(shutdown(fd, SHUT_WR) == 0);
        CHECK(recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
        printf("ready\n"), fflush(stdout);
    }
    quit();
}

static void serve_one(int listener) {
    char bytes[64];
    ssize_t count;
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        send_all(fd, bytes, count);
    }
    CHECK(count == 0 && close(fd) == 0);
}

static void turns(void) {
    int listener = listening(), status;
    for (int turn = 0; turn < 12; turn++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve_one(listener);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        serve_one(listener);
    }
    CHECK(close(listener) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    name(argv[2], argv[3]);
    if (strcmp(argv[1], "serve") == 0) {
        serve(by_itself);
    } else if (strcmp(argv[1], "worker") == 0) {
        serve(by_worker);
    } else if (strcmp(argv[1], "daemon") == 0) {
        serve(by_daemon);
    } else if (strcmp(argv[1], "busy") == 0) {
        busy();
    } else if (strcmp(argv[1], "beside") == 0) {
        beside(argv[0]);
    } else if (strcmp(argv[1], "accepts") == 0) {
        accepts();
    } else if (strcmp(argv[1], "slow") == 0) {
        slow();
    } else if (strcmp(argv[1], "talk") == 0) {
        stream(), datagrams(), refused(), quit();
    } else if (strcmp(argv[1], "carry") == 0) {
        stream(), datagrams(), quit();
    } else if (strcmp(argv[1], "fork") == 0) {
        forks(), quit();
    } else if (strcmp(argv[1], "forking") == 0) {
        forking();
    } else if (strcmp(argv[1], "exchange") == 0) {
        int fd = connected();
        exchange(fd, "one"), exchange(fd, "two");
        CHECK(shutdown(fd, SHUT_WR) == 0);
        char byte;
        CHECK(recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
    } else if (strcmp(argv[1], "streams") == 0) {
        for (int turn = 0; turn < 6; turn++) {
            stream();
        }
        quit();
    } else if (strcmp(argv[1], "removed") == 0) {
        removed(), quit();
    } else if (strcmp(argv[1], "nobody") == 0) {
        nobody();
    } else if (strcmp(argv[1], "spray") == 0) {
        spray();
    } else if (strcmp(argv[1], "again") == 0) {
        again();
    } else if (strcmp(argv[1], "turns") == 0) {
        turns();
    } else if (strcmp(argv[1], "split") == 0) {
        split();
    } else if (strcmp(argv[1], "quit") == 0) {
        quit();
    } else {
        CHECK(!"such a word");
    }
    return 0;
}
