/*
 * Events of librdmacm: that one waits on if it cannot be told, and goes over to another channel with its listener; and that who waits for one hears that the card is removed, and
 * nothing if the channel is closed meanwhile. One line for each thing that is so; the first that is not ends the program.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
    do {                                                                                  \
        if (!(what)) {                                                                    \
            printf("line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);           \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static struct rdma_event_channel *channel(void)
{
    struct rdma_event_channel *made = rdma_create_event_channel();
    CHECK(made && !fcntl(made->fd, F_SETFL, O_NONBLOCK));
    return made;
}

static int has_event(struct rdma_event_channel *of, int wait_ms)
{
    struct pollfd end = { .fd = of->fd, .events = POLLIN };
    return poll(&end, 1, wait_ms) == 1;
}

static void expect(struct rdma_event_channel *of, enum rdma_cm_event_type kind)
{
    struct rdma_cm_event *event;
    CHECK(has_event(of, 10000) && !rdma_get_cm_event(of, &event) && event->event == kind);
    CHECK(!rdma_ack_cm_event(event));
}

static int is_empty(struct rdma_event_channel *of)
{
    struct rdma_cm_event *event;
    return !has_event(of, 0) && rdma_get_cm_event(of, &event) == -1 && errno == EAGAIN;
}

static struct sockaddr_in address = { .sin_family = AF_INET };

/* Somebody who has the way to the listener's port. */
static struct rdma_cm_id *seeker(struct rdma_event_channel *of)
{
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(of, &id, NULL, RDMA_PS_TCP) && !rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000));
    expect(of, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_resolve_route(id, 1000));
    expect(of, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

/* The part that the numbers of all queue pairs of this process have: it says where on the bus that is. */
static uint32_t own_part(struct ibv_context *verbs)
{
    struct ibv_pd *pd = ibv_alloc_pd(verbs);
    struct ibv_cq *cq = ibv_create_cq(verbs, 4, NULL, NULL, 0);
    CHECK(pd && cq);
    struct ibv_qp_init_attr attr = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    CHECK(qp);
    uint32_t part = qp->qp_num & 0xff0000;
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    return part;
}

static void asks(struct rdma_cm_id *id)
{
    /* (A queue pair that asks twice would be taken for one that has begun anew.) */
    static uint32_t number = 7;
    struct rdma_conn_param param = { .qp_num = own_part(id->verbs) | number++ };
    CHECK(!rdma_connect(id, &param));
}

static struct rdma_cm_id *listener(struct rdma_event_channel *of)
{
    struct rdma_cm_id *id;
    address.sin_port = 0;
    CHECK(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr) == 1);
    CHECK(!rdma_create_id(of, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, (struct sockaddr *)&address) && !rdma_listen(id, 8));
    address.sin_port = rdma_get_src_port(id);
    return id;
}

/* Who listens without an address is bound to a port like any other: nobody else may have it. */
static void unbound(void)
{
    struct rdma_event_channel *own = channel();
    struct rdma_cm_id *listens, *other;
    CHECK(!rdma_create_id(own, &listens, NULL, RDMA_PS_TCP) && !rdma_create_id(own, &other, NULL, RDMA_PS_TCP));
    CHECK(!rdma_listen(listens, 8));
    struct sockaddr_in same = { .sin_family = AF_INET, .sin_port = rdma_get_src_port(listens) };
    CHECK(same.sin_port && rdma_bind_addr(other, (struct sockaddr *)&same) == -1 && errno == EADDRINUSE);
    CHECK(!rdma_destroy_id(listens) && !rdma_bind_addr(other, (struct sockaddr *)&same));
    CHECK(!rdma_destroy_id(other));
    rdma_destroy_event_channel(own);
    puts("a listener without an address");
}

/* An event for whose response there is no place. */
static void untold(void)
{
    struct rdma_event_channel *own = channel();
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(own, &id, NULL, RDMA_PS_TCP) && !rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000));
    CHECK(has_event(own, 10000));
    /* (rdma/rdma_user_cm.h: RDMA_USER_CM_CMD_GET_EVENT, and the bytes of struct rdma_ucm_event_resp. That header does not go with librdmacm's.) */
    struct { uint32_t cmd; uint16_t in, out; uint64_t response; } get = { 12, 8, 336, 8 };
    for (int times = 0; times < 2; times++)
        CHECK(write(own->fd, &get, sizeof get) == -1 && errno == EFAULT);
    expect(own, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(is_empty(own));
    /* (It was told once: the kernel has counted as many, or this waits for ever.) */
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(own);
    puts("an event that could not be told");
}

static void migrated(void)
{
    struct rdma_event_channel *first = channel(), *second = channel(), *peers = channel();
    struct rdma_cm_id *listens = listener(first), *asking[2] = { seeker(peers), seeker(peers) };
    asks(asking[0]);
    CHECK(has_event(first, 10000));
    CHECK(!rdma_migrate_id(listens, second));
    CHECK(is_empty(first));
    asks(asking[1]);
    for (int request = 0; request < 2; request++) {
        struct rdma_cm_event *event;
        CHECK(has_event(second, 10000) && !rdma_get_cm_event(second, &event));
        CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->listen_id == listens && event->id->channel == second);
        struct rdma_cm_id *asked = event->id;
        CHECK(!rdma_ack_cm_event(event));
        /* (It is the second channel's: the command goes there.) */
        CHECK(!rdma_reject(asked, NULL, 0) && !rdma_destroy_id(asked));
        expect(peers, RDMA_CM_EVENT_REJECTED);
    }
    CHECK(is_empty(first) && is_empty(second));
    CHECK(!rdma_destroy_id(asking[0]) && !rdma_destroy_id(asking[1]) && !rdma_destroy_id(listens));
    rdma_destroy_event_channel(first);
    rdma_destroy_event_channel(second);
    rdma_destroy_event_channel(peers);
    puts("a listener that goes over");
}

/* A thread that waits at a channel, which another closes. */
struct waiter {
    int fd;
    atomic_int has_begun, has_ended;
};

static void *waits(void *argument)
{
    struct waiter *own = argument;
    struct rdma_event_channel same = { .fd = own->fd };
    struct rdma_cm_event *event;
    own->has_begun = 1;
    /* (Who does not wait is not to wait; too late, there is no such descriptor any more.) */
    do
        CHECK(rdma_get_cm_event(&same, &event) == -1 && (errno == EBADF || errno == EAGAIN));
    while (errno == EAGAIN);
    own->has_ended = 1;
    return NULL;
}

/* Closes a channel while another thread has begun to wait there. */
static pthread_t closes(struct waiter *waiter, int flags, int turns)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    pthread_t thread;
    CHECK(own && !fcntl(own->fd, F_SETFL, flags));
    waiter->fd = own->fd;
    CHECK(!pthread_create(&thread, NULL, waits, waiter));
    while (!waiter->has_begun)
        ;
    for (; turns > 0; turns--)
        __asm__ volatile("");
    /* (The number stays taken, or the thread might find the next channel.) */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(null >= 0 && dup2(null, own->fd) == own->fd && !close(null));
    return thread;
}

/* Who waits at a channel that is closed waits on, as in the kernel's file, and hears of no error (rping ends so); who does not wait goes on. */
static void closed(void)
{
    enum { COUNT = 200 };
    static struct waiter waiters[COUNT], others[COUNT];
    int ended = 0;
    for (int times = 0; times < COUNT; times++)
        CHECK(!pthread_detach(closes(&waiters[times], 0, times * 50)));
    for (int times = 0; times < COUNT; times++)
        CHECK(!pthread_join(closes(&others[times], O_NONBLOCK, times * 50), NULL));
    for (int times = 0; times < COUNT; times++)
        ended += waiters[times].has_ended;
    CHECK(ended < COUNT);
    puts("a channel that is closed");
}

static void removed(void)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct rdma_cm_event *event;
    CHECK(own);
    puts("waits");
    CHECK(rdma_get_cm_event(own, &event) == -1 && errno == EIO);
    puts("removed");
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    CHECK(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr) == 1);
    address.sin_port = htons(7);
    if (count > 1 && !strcmp(arguments[1], "removed")) {
        removed();
        return 0;
    }
    unbound();
    untold();
    migrated();
    closed();
    puts("done");
    return 0;
}
