/* What a UDP socket does that has flows on several devices, at our end of a cable; `far` is at the other. What is wrong is printed; nothing else is.
 *
 *   several lent ADDRESS PORT     takes what a server sends back by recvfrom_zcopy, and asks for the headers of what it sends
 *   several named ADDRESS PORT    asks by which link it came (IP_PKTINFO)
 *   several sent ADDRESS PORT     sends, and takes what comes back
 *   several warm ADDRESS PORT     sends nothing (VMA_SND_FLAGS_DUMMY)
 *   several reused ADDRESS PORT   has the address by SO_REUSEADDR, reads what comes at first, says that it is ready, and reads the rest when its input ends
 *   several newcomer ADDRESS PORT has it by SO_REUSEADDR too, and reads as much
 *   several newest ADDRESS PORT   two sockets have the address by SO_REUSEADDR: the last has all
 *   several spread ADDRESS PORT   two have it by SO_REUSEPORT, one of which shares it when it is bound already: each has some
 *   several within ADDRESS PORT   is bound to the loopback: nothing that comes by an interface is its, and none leads there
 *   several child ADDRESS PORT    a child receives, and its parent waits for it
 */
#include "../extra/check.h"

#include <net/if.h>
#include <netinet/udp.h>

#define SPRAYED 64

static struct sockaddr_storage to;
static socklen_t to_len;

static void name(const char *address, const char *port) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)&to;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&to;
    if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET, v4->sin_port = htons(atoi(port)), to_len = sizeof *v4;
    } else {
        v6->sin6_family = AF_INET6, v6->sin6_port = htons(atoi(port)), to_len = sizeof *v6;
        MUST(inet_pton(AF_INET6, address, &v6->sin6_addr) - 1);
    }
}

static int opened(int option) {
    int fd = MUST(socket(to.ss_family, SOCK_DGRAM, 0)), on = 1;
    if (option != 0) {
        MUST(setsockopt(fd, SOL_SOCKET, option, &on, sizeof on));
    }
    return fd;
}

static void send_word(int fd) {
    MUST(sendto(fd, "hello", 5, 0, SA(to), to_len));
}

static void await(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(poll(&wait, 1, 20000) == 1 && wait.revents == POLLIN);
}

static void lent(void) {
    union {
        struct vma_packets_t packets;
        char room[4096];
    } lent;
    struct sockaddr_storage from;
    int fd = opened(0), flags = 0;
    for (int turn = 0; turn < 10; turn++) {
        socklen_t len = sizeof from;
        send_word(fd);
        if (turn % 2 == 0) {
            await(fd);
        }
        flags = 0;
        CHECK(vma->recvfrom_zcopy(fd, &lent, sizeof lent, &flags, SA(from), &len) == 5 && flags == MSG_VMA_ZCOPY);
        CHECK(lent.packets.n_packet_num == 1 && lent.packets.pkts[0].sz_iov == 1 && len == to_len);
        CHECK(memcmp(lent.packets.pkts[0].iov[0].iov_base, "hello", 5) == 0);
        CHECK(vma->free_packets(fd, lent.packets.pkts, 1) == 0);
    }
    flags = MSG_DONTWAIT;
    FAILS(vma->recvfrom_zcopy(fd, &lent, sizeof lent, &flags, NULL, NULL), EAGAIN);
    unsigned char head[128], nobody[6] = {0};
    uint16_t len = sizeof head;
    FAILS(vma->get_socket_network_header(fd, head, &len), ENOTCONN);
    MUST(connect(fd, SA(to), to_len));
    CHECK(vma->get_socket_network_header(fd, head, &len) == 0 && len == (to.ss_family == AF_INET ? 42 : 62));
    CHECK(memcmp(head, nobody, 6) != 0);
    /* Whom the kernel sends to it sends to. */
    struct sockaddr_in kernels = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int other = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(connect(other, SA(kernels), sizeof kernels));
    len = sizeof head;
    FAILS(vma->get_socket_network_header(other, head, &len), EINVAL);
    MUST(close(other));
}

static void named(void) {
    int fd = opened(0), on = 1;
    MUST(to.ss_family == AF_INET ? setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on)
                                 : setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on));
    send_word(fd);
    char bytes[8], room[256];
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK(recvmsg(fd, &message, 0) == 5);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    CHECK(head != NULL);
    unsigned link = 0;
    if (head != NULL && head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_PKTINFO) {
        link = ((struct in_pktinfo *)CMSG_DATA(head))->ipi_ifindex;
    } else if (head != NULL && head->cmsg_level == IPPROTO_IPV6 && head->cmsg_type == IPV6_PKTINFO) {
        link = ((struct in6_pktinfo *)CMSG_DATA(head))->ipi6_ifindex;
    }
    CHECK(link == if_nametoindex("a0"));
}

static void sent(void) {
    int fd = opened(0);
    char bytes[8];
    for (int turn = 0; turn < 10; turn++) {
        send_word(fd);
        await(fd);
        CHECK(recv(fd, bytes, sizeof bytes, 0) == 5);
    }
}

static void warm(void) {
    int fd = opened(0);
    char bytes[8];
    send_word(fd);
    await(fd);
    CHECK(recv(fd, bytes, sizeof bytes, 0) == 5);
    /* A device that has no dummies says so. */
    ssize_t count = sendto(fd, "hello", 5, VMA_SND_FLAGS_DUMMY, SA(to), to_len);
    CHECK(count == 5 || (count == -1 && errno == EINVAL));
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(poll(&wait, 1, 200) == 0);
}

/* What each of two sockets gets of what is sprayed at their address. */
static void counted(const int fds[2], int got[2]) {
    struct pollfd wait[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
    while (got[0] + got[1] < SPRAYED) {
        int ready = poll(wait, 2, 10000);
        CHECK(ready > 0);
        if (ready <= 0) {
            return;
        }
        for (int i = 0; i < 2; i++) {
            char bytes[8];
            while (wait[i].revents & POLLIN && recv(fds[i], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
                got[i]++;
            }
        }
    }
}

static void take(int fd, int count) {
    char bytes[8];
    for (; count > 0; count--) {
        await(fd);
        CHECK(recv(fd, bytes, sizeof bytes, 0) >= 0);
    }
}

static void reused(void) {
    char byte;
    int fd = opened(SO_REUSEADDR);
    MUST(bind(fd, SA(to), to_len));
    take(fd, SPRAYED);
    MUST(write(1, "ready\n", 6));
    CHECK(read(0, &byte, 1) == 0);
    take(fd, 2 * SPRAYED);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

static void newcomer(void) {
    int fd = opened(SO_REUSEADDR);
    MUST(bind(fd, SA(to), to_len));
    take(fd, SPRAYED);
}

static void newest(void) {
    int fds[2] = {opened(SO_REUSEADDR), opened(SO_REUSEADDR)}, got[2] = {0};
    MUST(bind(fds[0], SA(to), to_len));
    MUST(bind(fds[1], SA(to), to_len));
    counted(fds, got);
    CHECK(got[0] == 0 && got[1] == SPRAYED);
}

static void spread(void) {
    int fds[2] = {opened(0), opened(SO_REUSEPORT)}, got[2] = {0}, on = 1;
    MUST(bind(fds[0], SA(to), to_len));
    MUST(setsockopt(fds[0], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    MUST(bind(fds[1], SA(to), to_len));
    counted(fds, got);
    CHECK(got[0] > 0 && got[1] > 0);
}

static void within(void) {
    int fd = opened(0), late = opened(0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
    MUST(bind(fd, SA(to), to_len));
    struct sockaddr_storage where = to;
    ((struct sockaddr_in *)&where)->sin_port = htons(ntohs(((struct sockaddr_in *)&to)->sin_port) + 1);
    MUST(bind(late, SA(where), to_len));
    MUST(setsockopt(late, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
    struct pollfd wait[2] = {{.fd = fd, .events = POLLIN}, {.fd = late, .events = POLLIN}};
    CHECK(poll(wait, 2, 2000) == 0);
    /* By the loopback it comes. */
    MUST(sendto(late, "hello", 5, 0, SA(to), to_len));
    await(fd);
}

static void child(void) {
    int fd = opened(0), status;
    MUST(bind(fd, SA(to), to_len));
    pid_t pid = MUST(fork());
    if (pid == 0) {
        char bytes[8];
        for (int count = 0; count < SPRAYED; count++) {
            await(fd);
            CHECK(recv(fd, bytes, sizeof bytes, 0) == 5);
        }
        exit(wrong);
    }
    MUST(waitpid(pid, &status, 0));
    CHECK(status == 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *word;
        void (*what)(void);
    } all[] = {{"lent", lent}, {"named", named}, {"sent", sent}, {"warm", warm}, {"reused", reused}, {"newcomer", newcomer},
                {"newest", newest}, {"spread", spread}, {"within", within}, {"child", child}};
    vma = vma_get_api();
    if (argc != 4 || (vma == NULL && strcmp(argv[1], "newcomer") != 0)) {
        printf("usage: several WORD ADDRESS PORT, with the library\n");
        return 1;
    }
    name(argv[2], argv[3]);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(argv[1], all[i].word) == 0) {
            all[i].what();
            return wrong;
        }
    }
    printf("no such word: %s\n", argv[1]);
    return 1;
}
