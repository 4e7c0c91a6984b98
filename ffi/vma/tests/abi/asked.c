// getsockopt and ioctl: what iproute2, redis, nginx and Python ask of connections, and TCP_INFO field by field.
// (The kernel's struct tcp_info, in place of libc's older one.)
#define _NETINET_TCP_H 1
#include <linux/tcp.h>

#include "common.h"
#include <linux/sockios.h>

static int s[2];

static int queued(int fd, unsigned long request) {
    int n = -1;
    return ioctl(fd, request, &n) < 0 ? -errno : n;
}

static struct tcp_info info(int fd) {
    struct tcp_info i;
    memset(&i, 0xee, sizeof i);
    socklen_t len = sizeof i;
    MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len));
    return i;
}

// Whether everything is acknowledged, after a while.
static int drained(int fd) {
    for (int tries = 0; tries < 500 && queued(fd, SIOCOUTQ) > 0; tries++)
        nap(10);
    return queued(fd, SIOCOUTQ);
}

static void queues(void) {
    char b[64];
    SHOW(queued(s[0], SIOCINQ));
    SHOW(queued(s[0], SIOCOUTQ));
    SHOW(queued(s[0], SIOCOUTQNSD));
    MUST(send(s[0], "1234567", 7, 0));
    ready(s[1], POLLIN);
    SHOW(queued(s[1], SIOCINQ));
    SHOW(queued(s[1], FIONREAD));
    SHOW(drained(s[0]));
    SHOW(queued(s[0], SIOCOUTQNSD));
    SHOW(recv(s[1], b, 64, 0));
    SHOW(queued(s[1], SIOCINQ));
    SHOW(queued(s[1], SIOCATMARK));
    // A peer that does not read: what is on its way, and what has yet to go.
    static char big[1 << 22];
    MUST(fcntl(s[0], F_SETFL, O_NONBLOCK));
    long sent = 0;
    for (ssize_t n; (n = send(s[0], big, sizeof big, 0)) > 0 || sent == 0; sent += n > 0 ? n : 0) {}
    nap(100);
    SHOW(queued(s[0], SIOCOUTQ) > 0);
    SHOW(queued(s[0], SIOCOUTQNSD) > 0);
    SHOW(queued(s[0], SIOCOUTQNSD) <= queued(s[0], SIOCOUTQ));
    SHOW(queued(s[0], SIOCOUTQ) + queued(s[1], SIOCINQ) >= sent);
    SHOW(info(s[0]).tcpi_notsent_bytes > 0);
    SHOW(info(s[0]).tcpi_bytes_acked <= (unsigned long)sent + 8);
    SHOW(info(s[1]).tcpi_bytes_received >= 7);
    for (ssize_t n; (n = recv(s[1], big, sizeof big, 0)) > 0 && (sent -= n) > 0;) {}
    SHOW(sent);
    SHOW(drained(s[0]));
    MUST(fcntl(s[0], F_SETFL, 0));
    int l = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(queued(l, SIOCOUTQ));
    MUST(listen(l, 1));
    SHOW(queued(l, SIOCINQ));
    SHOW(queued(l, SIOCOUTQ));
    MUST(close(l));
}

static void fields(void) {
    char b[1000] = "";
    struct tcp_info before = info(s[0]), peer = info(s[1]);
    for (int i = 0; i < 20; i++) {
        MUST(send(s[0], b, 100, 0));
        MUST(recv(s[1], b, 100, MSG_WAITALL));
        MUST(send(s[1], b, 50, 0));
        MUST(recv(s[0], b, 50, MSG_WAITALL));
    }
    drained(s[0]);
    drained(s[1]);
    struct tcp_info i = info(s[0]), p = info(s[1]);
    SHOW(i.tcpi_state);
    SHOW(i.tcpi_ca_state);
    SHOW(i.tcpi_retransmits);
    SHOW(i.tcpi_probes);
    SHOW(i.tcpi_backoff);
    SHOW(i.tcpi_options & (TCPI_OPT_TIMESTAMPS | TCPI_OPT_SACK | TCPI_OPT_WSCALE));
    SHOW(i.tcpi_snd_wscale == p.tcpi_rcv_wscale && i.tcpi_rcv_wscale == p.tcpi_snd_wscale);
    SHOW(i.tcpi_rto >= 200000 && i.tcpi_rto <= 400000);
    SHOW(i.tcpi_snd_mss > 500 && i.tcpi_snd_mss <= 65535);
    SHOW(i.tcpi_advmss >= i.tcpi_snd_mss && i.tcpi_pmtu > i.tcpi_advmss);
    SHOW(i.tcpi_unacked);
    SHOW(i.tcpi_sacked);
    SHOW(i.tcpi_lost);
    SHOW(i.tcpi_retrans);
    SHOW(i.tcpi_total_retrans);
    // (The ring's are since any segment, and an acknowledgment may have waited.)
    SHOW(i.tcpi_last_data_sent < 5000);
    SHOW(i.tcpi_last_data_recv < 5000);
    SHOW(i.tcpi_rtt > 0 && i.tcpi_rtt < 200000);
    SHOW(i.tcpi_rttvar < 200000);
    SHOW(i.tcpi_snd_cwnd >= 10);
    SHOW((long)(i.tcpi_bytes_acked - before.tcpi_bytes_acked));
    SHOW((long)(i.tcpi_bytes_received - before.tcpi_bytes_received));
    SHOW((long)(i.tcpi_bytes_sent - before.tcpi_bytes_sent));
    SHOW((long)(p.tcpi_bytes_received - peer.tcpi_bytes_received));
    SHOW(i.tcpi_bytes_retrans);
    SHOW(i.tcpi_segs_out - before.tcpi_segs_out >= 20);
    SHOW(i.tcpi_segs_in - before.tcpi_segs_in >= 20);
    SHOW(i.tcpi_notsent_bytes);
    SHOW(i.tcpi_snd_wnd > 1000);
    // A short answer is the beginning; a long question gets what there is.
    socklen_t len = 4;
    SHOW(getsockopt(s[0], IPPROTO_TCP, TCP_INFO, b, &len));
    SHOW(len);
    SHOW(b[0]);
    len = sizeof b;
    SHOW(getsockopt(s[0], IPPROTO_TCP, TCP_INFO, b, &len));
    SHOW(len >= 104 && len <= 400);
    len = -1;
    SHOW(getsockopt(s[0], IPPROTO_TCP, TCP_INFO, b, &len));
}

static void options(void) {
    static const struct { int level, name; const char *what; } asked[] = {
        {SOL_SOCKET, SO_TYPE, "TYPE"}, {SOL_SOCKET, SO_PROTOCOL, "PROTOCOL"}, {SOL_SOCKET, SO_DOMAIN, "DOMAIN"},
        {SOL_SOCKET, SO_ERROR, "ERROR"}, {SOL_SOCKET, SO_KEEPALIVE, "KEEPALIVE"}, {SOL_SOCKET, SO_REUSEADDR, "REUSEADDR"},
        {SOL_SOCKET, SO_REUSEPORT, "REUSEPORT"}, {SOL_SOCKET, SO_BROADCAST, "BROADCAST"}, {SOL_SOCKET, SO_OOBINLINE, "OOBINLINE"},
        {SOL_SOCKET, SO_PRIORITY, "PRIORITY"}, {SOL_SOCKET, SO_MARK, "MARK"}, {SOL_SOCKET, SO_PASSCRED, "PASSCRED"},
        {SOL_SOCKET, SO_RCVLOWAT, "RCVLOWAT"}, {SOL_SOCKET, SO_SNDLOWAT, "SNDLOWAT"}, {SOL_SOCKET, SO_ACCEPTCONN, "ACCEPTCONN"},
        {SOL_SOCKET, SO_TIMESTAMP, "TIMESTAMP"}, {SOL_SOCKET, SO_BUSY_POLL, "BUSY_POLL"}, {SOL_SOCKET, SO_PEERCRED, "PEERCRED"},
        {SOL_SOCKET, 9999, "unknown"}, {IPPROTO_TCP, TCP_NODELAY, "NODELAY"}, {IPPROTO_TCP, TCP_CORK, "CORK"},
        {IPPROTO_TCP, TCP_KEEPIDLE, "KEEPIDLE"}, {IPPROTO_TCP, TCP_KEEPINTVL, "KEEPINTVL"}, {IPPROTO_TCP, TCP_KEEPCNT, "KEEPCNT"},
        {IPPROTO_TCP, TCP_SYNCNT, "SYNCNT"}, {IPPROTO_TCP, TCP_LINGER2, "LINGER2"}, {IPPROTO_TCP, TCP_DEFER_ACCEPT, "DEFER_ACCEPT"},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, "USER_TIMEOUT"}, {IPPROTO_TCP, TCP_FASTOPEN, "FASTOPEN"},
        {IPPROTO_TCP, TCP_NOTSENT_LOWAT, "NOTSENT_LOWAT"}, {IPPROTO_TCP, 9999, "unknown"}, {IPPROTO_IP, IP_TOS, "TOS"},
        {IPPROTO_IP, IP_TTL, "TTL"}, {IPPROTO_IP, IP_MTU_DISCOVER, "MTU_DISCOVER"}, {IPPROTO_IP, 80, "ORIGINAL_DST"},
        {IPPROTO_IPV6, 26, "V6ONLY"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        for (int side = 0; side < 2; side++) {
            int value[8] = {0};
            socklen_t len = 4;
            errno = 0;
            int result = getsockopt(s[side], asked[i].level, asked[i].name, value, &len);
            printf("%s of %d: %d %s %d len %d\n", asked[i].what, side, result, result ? strerrorname_np(errno) : "", value[0], (int)len);
        }
    }
    int on = 1;
    SHOW(setsockopt(s[0], IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    char b[64];
    MUST(send(s[0], "corked", 6, 0));
    nap(50);
    SHOW(recv(s[1], b, 64, MSG_DONTWAIT));
    on = 0;
    SHOW(setsockopt(s[0], IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    SHOW(recv(s[1], b, 64, 0));
    // Data with the handshake, where there is no cookie: after it.
    struct sockaddr_in where;
    int l = listener(&where), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(sendto(fd, "early", 5, MSG_FASTOPEN, SA(where), sizeof where));
    int a = MUST(accept(l, NULL, NULL));
    SHOW(recv(a, b, 64, 0));
    SHOW(send(fd, "later", 5, 0));
    SHOW(recv(a, b, 64, 0));
    SHOW(sendto(fd, "again", 5, MSG_FASTOPEN, SA(where), sizeof where));
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    stream_pair(s);
    fields();
    queues();
    options();
    return 0;
}
