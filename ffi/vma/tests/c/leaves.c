/* Programs whose connections leave them: by exec, SCM_RIGHTS, urgent data, or the program's end; and those at the other end, who see what becomes of it. It is the
 * same whoever carries the sockets. What is wrong is printed; nothing else is.
 *
 *   leaves exec ADDRESS PORT          talks to "far serve", becomes another program (itself), and talks on
 *   leaves plain-exec ADDRESS PORT    the same, without what is preloaded
 *   leaves rights ADDRESS PORT        has another process talk to it as well, by SCM_RIGHTS
 *   leaves urgent ADDRESS PORT        sends an urgent byte amidst others
 *   leaves urges-nobody ADDRESS PORT  the same, twice, once it is told to
 *   leaves unsent ADDRESS PORT        ends while bytes are yet to be sent
 *   leaves unread ADDRESS PORT        ends while bytes are yet to be read
 *
 *   leaves idle ADDRESS PORT          talks to somebody, and waits
 *   leaves stuck ADDRESS PORT         writes more than is read, and waits
 *   leaves serving ADDRESS PORT       accepts somebody, answers, and waits
 *
 *   leaves hears-urgent ADDRESS PORT  hears it
 *   leaves reads-urgent ADDRESS PORT  reads the others alone
 *   leaves inline-urgent ADDRESS PORT reads it among the others, once it is nobody, for whom the kernel takes no connection over
 *   leaves late ADDRESS PORT          reads all of what was unsent, late
 *   leaves reset ADDRESS PORT         writes what is not read, and sees a reset
 *   leaves stalls ADDRESS PORT        reads late, until a reset
 *   leaves sends-on ADDRESS PORT      answers somebody, and sends until a reset
 *   leaves asks-on ADDRESS PORT       talks to somebody, and sends until a reset
 *
 *   leaves asks-and-is-reset ADDRESS PORT         talks to somebody, says that it waits, sees a reset of somebody else's, and waits again, for the end of its input
 *   leaves answers-and-is-reset ADDRESS PORT      the same of one who answers
 *   leaves answers-and-sends-on ADDRESS PORT      answers somebody, waits for the end of its input, and sends until a reset
 *   leaves urges-and-is-aborted ADDRESS PORT      as the first, once an urgent byte was sent; it is this machine that ends it
 *   leaves listens-and-is-aborted ADDRESS PORT    waits for somebody, until this machine ends that
 *   leaves is-refused ADDRESS PORT                connects to nobody
 *
 * Those that wait say that they do; the others of them are there to be killed.
 */
#include "far.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/time.h>

/* Bytes that are yet to be sent: more than a window. */
#define UNSENT 600000

static char byte_at(size_t at) {
    return at * 2654435761u >> 24;
}

static int accepted(void) {
    int listener = listening(), fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0);
    return fd;
}

static void bye(int fd) {
    char byte;
    CHECK(shutdown(fd, SHUT_WR) == 0 && recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
}

/* "far serve" ends then. */
static void quit(void) {
    int fd = connected();
    char byte;
    send_all(fd, "quit", 4);
    CHECK(recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
}

static void becomes_another(char **argv, int keeps_preload) {
    int fd = connected();
    char number[16];
    exchange(fd, "before");
    snprintf(number, sizeof number, "%d", fd);
    if (!keeps_preload) {
        CHECK(unsetenv("LD_PRELOAD") == 0);
    }
    execl("/proc/self/exe", argv[0], "goes-on", argv[2], argv[3], number, NULL);
    CHECK(!"exec");
}

static void goes_on(int fd) {
    exchange(fd, "after"), exchange(fd, "and once more");
    bye(fd);
    quit();
}

static void passes(void) {
    int pair[2], status;
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = "";
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        CHECK(recvmsg(pair[1], &message, 0) == 1 && CMSG_FIRSTHDR(&message));
        int fd;
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        exchange(fd, "by another");
        exit(0);
    }
    int fd = connected();
    exchange(fd, "by its owner");
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    CHECK(waitpid(other, &status, 0) == other && status == 0);
    exchange(fd, "and by its owner again");
    bye(fd);
    quit();
}

static void urges(void) {
    int fd = connected();
    char word[5];
    send_all(fd, "ab", 2);
    CHECK(send(fd, "!", 1, MSG_OOB) == 1);
    send_all(fd, "cd", 2);
    CHECK(recv(fd, word, 5, MSG_WAITALL) == 5 && memcmp(word, "heard", 5) == 0);
    bye(fd);
}

/* It is not among the others, whether anybody waits for it or not. */
static void reads_urgent(void) {
    int fd = accepted();
    char word[8] = "";
    usleep(500000);
    /* (A read ends at the mark.) */
    CHECK(recv(fd, word, 4, 0) == 2 && memcmp(word, "ab", 2) == 0);
    CHECK(recv(fd, word, 4, 0) == 2 && memcmp(word, "cd", 2) == 0);
    send_all(fd, "heard", 5);
    CHECK(recv(fd, word, 1, 0) == 0 && close(fd) == 0);
}

static void hears_urgent(void) {
    int fd = accepted(), mark = 0;
    char word[8] = "", urgent = 0;
    struct pollfd wait = {.fd = fd, .events = POLLPRI};
    CHECK(poll(&wait, 1, 30000) == 1 && wait.revents & POLLPRI);
    CHECK(recv(fd, &urgent, 1, MSG_OOB) == 1 && urgent == '!');
    /* A read ends at the mark. */
    CHECK(recv(fd, word, sizeof word, 0) == 2 && memcmp(word, "ab", 2) == 0);
    CHECK(ioctl(fd, SIOCATMARK, &mark) == 0 && mark);
    CHECK(recv(fd, word, 2, MSG_WAITALL) == 2 && memcmp(word, "cd", 2) == 0);
    send_all(fd, "heard", 5);
    CHECK(recv(fd, word, 1, 0) == 0 && close(fd) == 0);
}

static void reads_urgent_inline(void) {
    int fd = accepted();
    char word[8] = "";
    CHECK(setresuid(65534, 65534, 65534) == 0);
    send_all(fd, "nobody", 6);
    for (int turn = 0; turn < 2; turn++) {
        CHECK(recv(fd, word, 5, MSG_WAITALL) == 5 && memcmp(word, "ab!cd", 5) == 0);
    }
    send_all(fd, "heard", 5);
    CHECK(recv(fd, word, 1, 0) == 0 && close(fd) == 0);
}

/* Urgent bytes for one who is nobody first. */
static void urges_nobody(void) {
    int fd = connected();
    char word[6];
    CHECK(recv(fd, word, 6, MSG_WAITALL) == 6 && memcmp(word, "nobody", 6) == 0);
    for (int turn = 0; turn < 2; turn++) {
        send_all(fd, "ab", 2);
        CHECK(send(fd, "!", 1, MSG_OOB) == 1);
        send_all(fd, "cd", 2);
    }
    CHECK(recv(fd, word, 5, MSG_WAITALL) == 5 && memcmp(word, "heard", 5) == 0);
    bye(fd);
}

static int with_unsent(int flags) {
    static char bytes[UNSENT];
    int fd = opened(SOCK_STREAM), room = 2 * UNSENT, left = 0;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, to_len) == 0);
    for (size_t at = 0; at < UNSENT; at++) {
        bytes[at] = byte_at(at);
    }
    for (size_t sent = 0; sent < UNSENT;) {
        ssize_t count = send(fd, bytes + sent, UNSENT - sent, MSG_NOSIGNAL | flags);
        if (count < 0 && errno == EAGAIN) {
            break;
        }
        CHECK(count > 0);
        sent += count;
    }
    CHECK(ioctl(fd, TIOCOUTQ, &left) == 0 && left > 50000);
    return fd;
}

static void late(void) {
    static char bytes[1 << 16];
    int listener = listening(), small = 1 << 16;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    int fd = accept(listener, NULL, NULL);
    size_t got = 0;
    ssize_t count;
    CHECK(fd >= 0);
    usleep(3000000);
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        for (ssize_t at = 0; at < count; at++) {
            CHECK(bytes[at] == byte_at(got + at));
        }
        got += count;
    }
    CHECK(count == 0 && got == UNSENT);
}

static void unread(void) {
    int fd = connected();
    char byte;
    CHECK(recv(fd, &byte, 1, MSG_PEEK) == 1);
}

static void sees_reset(void) {
    int fd = accepted();
    char byte;
    send_all(fd, "nobody reads this", 17);
    CHECK(recv(fd, &byte, 1, 0) < 0 && errno == ECONNRESET);
}

static void reads_until_reset(int fd) {
    static char bytes[1 << 16];
    struct timeval patience = {.tv_sec = 40};
    ssize_t count;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) {
    }
    CHECK(count < 0 && errno == ECONNRESET);
}

static void sends_until_reset(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (int turn = 0; turn < 2000 && poll(&wait, 1, 20) == 0; turn++) {
        CHECK(send(fd, "?", 1, MSG_NOSIGNAL) == 1 || errno == ECONNRESET);
    }
    char byte;
    CHECK(wait.revents & POLLERR && recv(fd, &byte, 1, 0) < 0 && errno == ECONNRESET);
}

static void answers(int fd) {
    char word[5];
    CHECK(recv(fd, word, sizeof word, MSG_WAITALL) == 5);
    send_all(fd, word, sizeof word);
}

static void ready(void) {
    CHECK(write(1, "ready\n", 6) == 6);
}

static void waits(void) {
    ready();
    pause();
}

static void waits_for_the_end_of_input(void) {
    char byte;
    ready();
    CHECK(read(0, &byte, 1) == 0);
}

/* Somebody ends a connection on which nothing is said, and there is nothing more to it. */
static void is_ended(int fd, int error) {
    int all = POLLIN | POLLRDHUP | POLLERR | POLLHUP;
    struct pollfd wait = {.fd = fd, .events = POLLIN | POLLRDHUP};
    char byte;
    ready();
    CHECK(poll(&wait, 1, 30000) == 1 && wait.revents == all);
    CHECK(recv(fd, &byte, 1, 0) < 0 && errno == error);
    CHECK(recv(fd, &byte, 1, 0) == 0);
    CHECK(send(fd, "?", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
    waits_for_the_end_of_input();
    CHECK(close(fd) == 0);
}

static void is_aborted(void) {
    int fd = connected();
    exchange(fd, "hello");
    CHECK(send(fd, "!", 1, MSG_OOB) == 1);
    is_ended(fd, ECONNABORTED);
}

/* A listener that is none any more: nobody waits in accept for ever. */
static void listens_and_is_aborted(void) {
    int fd = listening();
    ready();
    CHECK(accept(fd, NULL, NULL) < 0 && errno == EINVAL);
    CHECK(accept(fd, NULL, NULL) < 0 && errno == EINVAL);
    waits_for_the_end_of_input();
}

int main(int argc, char **argv) {
    CHECK(argc >= 4);
    const char *word = argv[1];
    name(argv[2], argv[3]);
    if (strcmp(word, "exec") == 0) {
        becomes_another(argv, 1);
    } else if (strcmp(word, "plain-exec") == 0) {
        becomes_another(argv, 0);
    } else if (strcmp(word, "goes-on") == 0) {
        goes_on(atoi(argv[4]));
    } else if (strcmp(word, "rights") == 0) {
        passes();
    } else if (strcmp(word, "urgent") == 0) {
        urges();
    } else if (strcmp(word, "hears-urgent") == 0) {
        hears_urgent();
    } else if (strcmp(word, "reads-urgent") == 0) {
        reads_urgent();
    } else if (strcmp(word, "inline-urgent") == 0) {
        reads_urgent_inline();
    } else if (strcmp(word, "urges-nobody") == 0) {
        urges_nobody();
    } else if (strcmp(word, "unsent") == 0) {
        with_unsent(0);
    } else if (strcmp(word, "late") == 0) {
        late();
    } else if (strcmp(word, "unread") == 0) {
        unread();
    } else if (strcmp(word, "reset") == 0) {
        sees_reset();
    } else if (strcmp(word, "idle") == 0) {
        exchange(connected(), "hello"), waits();
    } else if (strcmp(word, "stuck") == 0) {
        with_unsent(MSG_DONTWAIT), waits();
    } else if (strcmp(word, "serving") == 0) {
        answers(accepted()), waits();
    } else if (strcmp(word, "stalls") == 0) {
        int fd = accepted();
        usleep(1500000), reads_until_reset(fd);
    } else if (strcmp(word, "sends-on") == 0) {
        int fd = accepted();
        answers(fd), sends_until_reset(fd);
    } else if (strcmp(word, "asks-on") == 0) {
        int fd = connected();
        exchange(fd, "hello"), sends_until_reset(fd);
    } else if (strcmp(word, "asks-and-is-reset") == 0) {
        int fd = connected();
        exchange(fd, "hello"), is_ended(fd, ECONNRESET);
    } else if (strcmp(word, "answers-and-is-reset") == 0) {
        int fd = accepted();
        answers(fd), is_ended(fd, ECONNRESET);
    } else if (strcmp(word, "answers-and-sends-on") == 0) {
        int fd = accepted();
        answers(fd), waits_for_the_end_of_input(), sends_until_reset(fd);
    } else if (strcmp(word, "urges-and-is-aborted") == 0) {
        is_aborted();
    } else if (strcmp(word, "listens-and-is-aborted") == 0) {
        listens_and_is_aborted();
    } else if (strcmp(word, "is-refused") == 0) {
        CHECK(connect(opened(SOCK_STREAM), (struct sockaddr *)&to, to_len) < 0 && errno == ECONNREFUSED);
    } else {
        CHECK(!"such a word");
    }
    return 0;
}
