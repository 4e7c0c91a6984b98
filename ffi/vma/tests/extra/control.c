/* add_conf_rule and dump_fd_stats. Prints what is wrong, and nothing else. */
#include "check.h"

/* Whether a listener is one of the ring's: only then are its connections lent without force. */
static int is_offloaded(void) {
    struct sockaddr_in where = loopback(0);
    socklen_t len = sizeof where;
    char buffer[256];
    int r = MUST(socket(AF_INET, SOCK_DGRAM, 0)), s = MUST(socket(AF_INET, SOCK_DGRAM, 0)), flags = 0;
    MUST(bind(r, SA(where), sizeof where));
    MUST(getsockname(r, SA(where), &len));
    where = reached(where);
    MUST(sendto(s, "x", 1, 0, SA(where), sizeof where));
    if (has_mirror()) {
        /* (What the kernel sends, or is to receive, the mirror of a card knows nothing of.) */
        struct timeval patience = {.tv_sec = 1};
        MUST(setsockopt(r, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    }
    int n = vma->recvfrom_zcopy(r, buffer, sizeof buffer, &flags, NULL, NULL);
    CHECK(n == 1 || (has_mirror() && n == -1 && errno == EAGAIN));
    MUST(close(s));
    MUST(close(r));
    return n == 1 && flags == MSG_VMA_ZCOPY;
}

int main(void) {
    vma = vma_get_api();
    if (vma == NULL) {
        printf("no table\n");
        return 2;
    }
    const char *sockets = getenv("VMA_OFFLOADED_SOCKETS");
    if (sockets != NULL && sockets[0] == '0') {
        CHECK(!is_offloaded());
        CHECK(vma->thread_offload(1, pthread_self()) == 0);
    }
    CHECK(is_offloaded());
    /* An error code, which is not -1. */
    errno = 0;
    CHECK(vma->add_conf_rule(NULL) == 1 && errno == EINVAL);
    errno = 0;
    CHECK(vma->add_conf_rule("use vma nowhere *:*") == 1 && errno == EINVAL);
    errno = 0;
    CHECK(vma->add_conf_rule("no statement") == 1 && errno == EINVAL);
    CHECK(is_offloaded());
    CHECK(vma->add_conf_rule("use os udp_receiver *:*") == 0);
    CHECK(!is_offloaded());
    /* The latest comes first. */
    CHECK(vma->add_conf_rule("use vma udp_receiver *:*\n") == 0);
    CHECK(is_offloaded());
    CHECK(vma->thread_offload(0, pthread_self()) == 0);
    CHECK(!is_offloaded());
    CHECK(vma->thread_offload(1, pthread_self()) == 0);
    CHECK(is_offloaded());
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    /* vlogger.h's levels: -1 is none of them, 2 a warning; what is no level is 3, of information. What is no socket has a frame alone. */
    for (int level = -2; level < 10; level++)
        CHECK(vma->dump_fd_stats(fd, level) == 0);
    CHECK(vma->dump_fd_stats(0, 2) == 0);
    CHECK(vma->dump_fd_stats(999, 2) == 0);
    CHECK(vma->dump_fd_stats(-1, 2) == 0);
    return wrong;
}
