// Sends back what it gets, until each of COUNT clients has closed: server MODE COUNT. Its port goes to standard output.
#include "check.h"

#define CLIENTS_MAX 64
#define ROOM (256 * 1024)

struct client {
    int fd;
    size_t len;
    char *bytes;
};

static struct client clients[CLIENTS_MAX];
static int count, ended, wanted;

static struct client *accept_one(int listener)
{
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        CHECK(errno == EAGAIN);
        return NULL;
    }
    CHECK(from.sin_family == AF_INET && count < CLIENTS_MAX);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    struct client *client = &clients[count++];
    *client = (struct client){.fd = fd, .bytes = malloc(ROOM)};
    return client;
}

// Reads and writes until there is nothing to read, or no room.
static void serve(struct client *client)
{
    for (;;) {
        ssize_t got = client->len < ROOM ? recv(client->fd, client->bytes + client->len, ROOM - client->len, 0) : -2;
        if (got == 0) {
            CHECK(client->len == 0);
            close(client->fd);
            client->fd = -1;
            ended++;
            return;
        }
        if (got == -1)
            CHECK(errno == EAGAIN);
        if (got > 0)
            client->len += got;
        if (client->len == 0)
            return;
        ssize_t sent = send(client->fd, client->bytes, client->len, MSG_NOSIGNAL);
        if (sent < 0) {
            CHECK(errno == EAGAIN);
            return;
        }
        memmove(client->bytes, client->bytes + sent, client->len - sent);
        client->len -= sent;
    }
}

static void by_poll(int listener)
{
    while (ended < wanted) {
        struct pollfd fds[CLIENTS_MAX + 1] = {{.fd = listener, .events = POLLIN}};
        int n = count;
        for (int i = 0; i < n; i++)
            fds[i + 1] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN | (clients[i].len ? POLLOUT : 0)};
        CHECK(poll(fds, n + 1, -1) > 0);
        for (int i = 0; i < n; i++)
            if (fds[i + 1].revents)
                serve(&clients[i]);
        if (fds[0].revents)
            accept_one(listener);
    }
}

static void by_select(int listener)
{
    while (ended < wanted) {
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(listener, &in);
        int n = count, top = listener;
        for (int i = 0; i < n; i++) {
            if (clients[i].fd < 0)
                continue;
            FD_SET(clients[i].fd, &in);
            if (clients[i].len)
                FD_SET(clients[i].fd, &out);
            if (clients[i].fd > top)
                top = clients[i].fd;
        }
        CHECK(select(top + 1, &in, &out, NULL, NULL) > 0);
        for (int i = 0; i < n; i++)
            if (clients[i].fd >= 0 && (FD_ISSET(clients[i].fd, &in) || FD_ISSET(clients[i].fd, &out)))
                serve(&clients[i]);
        if (FD_ISSET(listener, &in))
            accept_one(listener);
    }
}

// Beside a pipe, in an instance that is in another one.
static void by_epoll(int listener, uint32_t edges)
{
    int inner = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create1(0), ends[2], is_told = 0;
    CHECK(inner >= 0 && outer >= 0 && pipe(ends) == 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 1000};
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, ends[0], &event) == 0);
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 1001};
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, listener, &event) == 0);
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, listener, &event) == -1 && errno == EEXIST);
    CHECK(write(ends[1], "x", 1) == 1);
    int turns = 0;
    while (ended < wanted) {
        struct pollfd fds = {.fd = outer, .events = POLLIN};
        CHECK(poll(&fds, 1, -1) == 1);
        struct epoll_event events[8];
        int n = epoll_wait(inner, events, 8, -1);
        CHECK(n > 0);
        // With edges, what is not read or written is told of once.
        CHECK(++turns < 100000);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == 1000) {
                char byte;
                is_told += read(ends[0], &byte, 1);
            } else if (events[i].data.u64 == 1001) {
                struct client *client = accept_one(listener);
                if (client) {
                    uint32_t wants = edges ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | edges : EPOLLIN;
                    event = (struct epoll_event){.events = wants, .data.u64 = client - clients};
                    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, client->fd, &event) == 0);
                }
            } else {
                struct client *client = &clients[events[i].data.u64];
                serve(client);
                if (!edges && client->fd >= 0) {
                    event = (struct epoll_event){.events = EPOLLIN | (client->len ? EPOLLOUT : 0), .data.u64 = client - clients};
                    CHECK(epoll_ctl(inner, EPOLL_CTL_MOD, client->fd, &event) == 0);
                }
            }
        }
    }
    CHECK(is_told == 1);
}

// A process for each client, as inetd's. It speaks first, once it is told to, if `greeting` is anything.
static void by_fork(int listener, const char *greeting)
{
    for (int i = 0; i < wanted; i++) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(listener);
            if (*greeting) {
                CHECK(getchar() == '\n');
                send_all(fd, greeting, strlen(greeting));
                puts("greeted");
                fflush(stdout);
            }
            char bytes[4096];
            ssize_t got;
            while ((got = read(fd, bytes, sizeof bytes)) > 0)
                send_all(fd, bytes, got);
            CHECK(got == 0);
            _exit(0);
        }
        close(fd);
    }
    for (int i = 0; i < wanted; i++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
}

// As a program that has others do something now and then: its children have no part in its connections.
static void beside_forks(int listener)
{
    for (int i = 0; i < wanted; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(0);
        CHECK(waitpid(child, NULL, 0) == child);
        // The client is told when somebody accepts again.
        if (i == 0) {
            struct pollfd fds = {.fd = listener, .events = POLLIN};
            CHECK(poll(&fds, 1, 0) == 0);
            puts("ready");
            fflush(stdout);
        }
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        CHECK(i > 0 || is_rsocket(fd));
        char bytes[4096];
        ssize_t got;
        while ((got = read(fd, bytes, sizeof bytes)) > 0)
            send_all(fd, bytes, got);
        CHECK(got == 0 && close(fd) == 0);
    }
}

// Another program goes on with the connection.
static void by_exec(int listener)
{
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
    execlp("cat", "cat", (char *)NULL);
    CHECK(0);
}

// Takes COUNT clients, says so, and answers none.
static void silent(int listener)
{
    for (int i = 0; i < wanted; i++) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0 && is_rsocket(fd));
    }
    puts("full");
    fflush(stdout);
    pause();
}

static void datagrams(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = at(0);
    socklen_t len = sizeof address;
    CHECK(bind(fd, (struct sockaddr *)&address, len) == 0 && getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int ends = 0; ends < wanted;) {
        static char bytes[65536];
        struct pollfd fds = {.fd = fd, .events = POLLIN};
        CHECK(poll(&fds, 1, -1) == 1 && fds.revents == POLLIN);
        len = sizeof address;
        ssize_t got = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&address, &len);
        CHECK(got >= 0);
        CHECK(sendto(fd, bytes, got, 0, (struct sockaddr *)&address, len) == got);
        ends += got == 3 && memcmp(bytes, "end", 3) == 0;
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    wanted = atoi(argv[2]);
    if (strcmp(argv[1], "datagrams") == 0) {
        datagrams();
        return 0;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    CHECK(listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    struct sockaddr_in address = at(0);
    socklen_t len = sizeof address;
    CHECK(bind(listener, (struct sockaddr *)&address, len) == 0 && listen(listener, 64) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &len) == 0);
    CHECK(!(fcntl(listener, F_GETFL) & O_NONBLOCK));
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    if (strcmp(argv[1], "poll") == 0)
        by_poll(listener);
    else if (strcmp(argv[1], "select") == 0)
        by_select(listener);
    else if (strcmp(argv[1], "epoll") == 0)
        by_epoll(listener, 0);
    else if (strcmp(argv[1], "edges") == 0)
        by_epoll(listener, EPOLLET);
    else if (strcmp(argv[1], "fork") == 0)
        by_fork(listener, "");
    else if (strcmp(argv[1], "greets") == 0)
        by_fork(listener, "SSH-2.0-some greeting");
    else if (strcmp(argv[1], "forks") == 0)
        beside_forks(listener);
    else if (strcmp(argv[1], "exec") == 0)
        by_exec(listener);
    else if (strcmp(argv[1], "silent") == 0)
        silent(listener);
    else
        CHECK(0);
    return 0;
}
