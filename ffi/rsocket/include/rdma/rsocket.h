/*
 * rsockets: sockets whose bytes go by RDMA (rsocket(7)), as Ringway's librsocket.so offers them. A program includes this header and is linked with the
 * library; programs that were written for librdmacm's rsockets are compiled as they are.
 *
 * Every call has the arguments, the result and the errno of the call of its name without the r, but for what is said below. All may be called by any thread;
 * none from a handler of signals. A descriptor is an rsocket's alone: calls that are not declared here find nothing behind it, and rpoll and rselect take both
 * kinds. A child of fork has none of its parent's rsockets (EBADF), and can make its own.
 *
 * What a process that exits has sent still arrives, for up to two seconds, and its connections end as if they had been closed. Of one that is killed, or ends
 * by _exit, the peer is told by ECONNRESET.
 */
#ifndef RDMA_RSOCKET_H
#define RDMA_RSOCKET_H

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * PF_INET, PF_INET6; SOCK_STREAM or SOCK_DGRAM, with SOCK_NONBLOCK and SOCK_CLOEXEC; protocol 0, IPPROTO_TCP or IPPROTO_UDP.
 * ENOTSUP: anything else; ENODEV: this machine has no device for it.
 */
int rsocket(int domain, int type, int protocol);

/* Ports are RDMA-CM's, and not TCP's. EADDRINUSE: another process of this user, or this one, has the port. */
int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen);
int rlisten(int socket, int backlog);

/* The new rsocket blocks, whatever the listener does. EINVAL: it does not listen. */
int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen);

/*
 * ECONNREFUSED: no process of this user listens there; ETIMEDOUT: the one that does is stopped, and stays so (half a second, or a minute if the two are connected
 * already); ENETUNREACH: no address of this machine; ENOMEM. On one that does not block EINPROGRESS: it is writable once it has ended, and SO_ERROR says how.
 * After a refusal that comes late, the rsocket can only be closed.
 */
int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen);

/*
 * On an rsocket that blocks, what was sent has arrived at the peer's machine when these return, or could not within 30 seconds; else they do not wait. ENOTCONN.
 */
int rshutdown(int socket, int how);
int rclose(int socket);

/*
 * Flags: MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL; others mean nothing. EINTR: a handler of a signal ran while nothing was received or sent, and was installed without
 * SA_RESTART (or, while the call slept, some handler of the program's is). ECONNRESET: the peer is gone, or broke the protocol; receiving gets all that came before
 * that first. EPIPE, without a signal: this side was shut down. ENOTSUP: control data. EISCONN: an address to send to, for a stream.
 *
 * Datagrams go between processes of one user on this machine, whatever address they have; they are 2040 bytes at most, of IPv6 2024, and to somebody who has
 * not answered yet 2032 or 2020 (EMSGSIZE). One that is sent to nobody is lost; ECONNREFUSED: the socket was connected to nobody. EOPNOTSUPP: what only
 * streams have.
 */
ssize_t rrecv(int socket, void *buf, size_t len, int flags);
ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr, socklen_t *addrlen);
ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags);
ssize_t rsend(int socket, const void *buf, size_t len, int flags);
ssize_t rsendto(int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr, socklen_t addrlen);
ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags);
ssize_t rread(int socket, void *buf, size_t count);
ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt);
ssize_t rwrite(int socket, const void *buf, size_t count);
ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt);

/* rsockets and other descriptors together; any number of threads. EINTR: a handler ran, whatever SA_RESTART says. */
int rpoll(struct pollfd *fds, nfds_t nfds, int timeout);
int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout);

/*
 * As epoll_create1, epoll_ctl and epoll_wait, for both kinds of descriptors; level-triggered alone. rclose ends an instance. What fails returns -1, with errno
 * (librdmacm's return errno's number). EINVAL: EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE; an instance cannot be waited for by another call.
 */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen);
int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen);

/* The level of the options below. */
#ifndef SOL_RDMA
#define SOL_RDMA 0x10000
#endif

/* All but the last are an int each, and are set before the connection is begun (EINVAL). */
enum {
	RDMA_SQSIZE,	/* work requests in the send queue */
	RDMA_RQSIZE,	/* work requests in the receive queue */
	RDMA_INLINE,	/* bytes that are sent inline */
	RDMA_IOMAPSIZE,	/* mappings that the peer may offer */
	RDMA_ROUTE	/* struct ibv_path_data: kept, and not used */
};

/*
 * SOL_SOCKET: SO_REUSEADDR, SO_ERROR (to get), SO_SNDBUF, SO_RCVBUF (before the connection), SO_KEEPALIVE, SO_OOBINLINE, SO_LINGER (kept);
 * IPPROTO_TCP: TCP_NODELAY, TCP_MAXSEG, TCP_KEEPIDLE; TCP_KEEPINTVL, TCP_KEEPCNT and TCP_CONGESTION mean nothing; IPPROTO_IPV6: IPV6_V6ONLY;
 * IPPROTO_IP: IP_TOS (kept). ENOTSUP: any other.
 */
int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen);
int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen);

/* F_GETFL and F_SETFL (O_NONBLOCK), F_GETFD and F_SETFD. ENOTSUP: any other. */
int rfcntl(int socket, int cmd, ... /* arg */);

/*
 * Direct placement. riomap lets the peer write to a buffer (PROT_WRITE) at an offset: the one given, or, for -1, the buffer's address; or nobody (PROT_NONE).
 * It returns the offset. The peer knows of it once it receives what is sent afterwards, and must have set RDMA_IOMAPSIZE before it connected or listened.
 * ENOMEM: it has no room for one more; EINVAL: other protections, no bytes, 4 GiB or more; ENOTCONN. The buffer must stay until riounmap or rclose.
 */
off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset);

/*
 * EINVAL: no such buffer is mapped; EBUSY: the peer has been stopped in the middle of a write for two seconds, and the buffer is still mapped. The peer is not told:
 * if it writes there afterwards, the connection ends.
 */
int riounmap(int socket, void *buf, size_t len);

/*
 * Writes to what the peer has mapped at `offset`, and returns how many bytes: fewer than `count`, or none, where the mapping ends; (size_t) -1 if it fails, as
 * rsend does. The peer is told of nothing; what is sent afterwards comes after it.
 */
size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags);

#ifdef __cplusplus
}
#endif

#endif
