// What the driver (wire.rs) and the actors say to each other. Little-endian, as the machines are that this runs on.
#pragma once
#include <stdint.h>

enum request {
    SOCKET = 1, BIND, LISTEN, CONNECT, ACCEPT, CLOSE, SHUTDOWN, SEND, RECV, DUP, FCNTL, IOCTL, SETSOCKOPT, GETSOCKOPT, POLL,
    EPOLL_CREATE, EPOLL_CTL, EPOLL_WAIT, VIEW, FORK, EXIT, INTERRUPT, CLOSE_ALL,
};

struct head {
    int32_t request;
    uint32_t length; // of what follows
    int64_t a[6];
};

struct answer {
    int64_t result;
    int32_t error;
    int32_t pipes; // SIGPIPEs that the call raised
    uint32_t length; // of what follows
    uint32_t zero;
};

struct hello {
    int32_t token, thread, pid, tid;
};

// IPv4's are IPv4-mapped; the port is in host byte order. Family zero: none was given.
struct address {
    uint16_t family, port;
    uint8_t ip[16];
};

// In an address's family: it is not as long as that family's are, or says more than address and port.
enum { ODD = 0x8000 };

// What requests name instead of an IPv4 address in host byte order.
enum { LOOPBACK_OF_IPV6 = -1 };

struct received {
    struct address from;
    int32_t flags;
    int32_t beyond; // whether anything was written behind the returned bytes
};

struct view {
    int32_t revents, local_error, peer_error, unread_error, unread, status, descriptor, kind;
    struct address local, peer;
};
