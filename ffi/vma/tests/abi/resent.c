// TCP_INFO counts bytes, however long the segments are in which they go, and go again: the peer's process is stopped, so that on the ring
// nothing acknowledges them until it goes on. (The kernel answers for a stopped process.)
// (The kernel's struct tcp_info, in place of libc's older one.)
#define _NETINET_TCP_H 1
#include <linux/tcp.h>

#include "common.h"

enum { LENGTH = 100 };

static struct tcp_info info(int fd) {
    struct tcp_info i;
    memset(&i, 0, sizeof i);
    socklen_t len = sizeof i;
    MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len));
    return i;
}

int main(void) {
    static char b[LENGTH];
    struct sockaddr_in where;
    int up[2], status;
    MUST(pipe(up));
    pid_t reader = MUST(fork());
    if (reader == 0) {
        int listening = listener(&where);
        MUST(write(up[1], &where, sizeof where));
        int fd = MUST(accept(listening, NULL, NULL));
        MUST(recv(fd, b, LENGTH, MSG_WAITALL));
        MUST(send(fd, b, 1, 0));
        MUST(recv(fd, b, LENGTH, MSG_WAITALL));
        MUST(send(fd, b, 1, 0));
        exit(0);
    }
    MUST(read(up[0], &where, sizeof where));
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, SA(where), sizeof where));
    struct tcp_info before = info(fd);
    SHOW(send(fd, b, LENGTH, 0));
    SHOW(recv(fd, b, 1, 0));
    SHOW((long)(info(fd).tcpi_bytes_acked - before.tcpi_bytes_acked));
    SHOW((long)info(fd).tcpi_bytes_retrans);
    MUST(kill(reader, SIGSTOP));
    nap(20);
    SHOW(send(fd, b, LENGTH, 0));
    struct tcp_info i = info(fd);
    for (int n = 0; n < 2000 && i.tcpi_total_retrans == 0 && i.tcpi_bytes_acked - before.tcpi_bytes_acked < 2 * LENGTH; n++) {
        nap(5);
        i = info(fd);
    }
    SHOW(i.tcpi_bytes_retrans == (unsigned long)LENGTH * i.tcpi_total_retrans);
    SHOW((long)(i.tcpi_bytes_sent - before.tcpi_bytes_sent - i.tcpi_bytes_retrans));
    // A ring acknowledges nothing meanwhile, the kernel everything.
    SHOW(i.tcpi_bytes_acked - before.tcpi_bytes_acked == (i.tcpi_total_retrans > 0 ? LENGTH : 2 * LENGTH));
    MUST(kill(reader, SIGCONT));
    SHOW(recv(fd, b, 1, 0));
    i = info(fd);
    SHOW((long)(i.tcpi_bytes_acked - before.tcpi_bytes_acked));
    SHOW(i.tcpi_bytes_retrans == (unsigned long)LENGTH * i.tcpi_total_retrans);
    SHOW((long)(i.tcpi_bytes_sent - before.tcpi_bytes_sent - i.tcpi_bytes_retrans));
    SHOW(waitpid(reader, &status, 0) == reader);
    SHOW(status);
    return 0;
}
