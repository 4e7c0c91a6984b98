/*
 * Two queue pairs of one process, connected to each other, and what libibverbs says of each operation. One line for each thing that is so;
 * the first that is not ends the program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
    do {                                                                                  \
        if (!(what)) {                                                                    \
            printf("line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);           \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define ROOM 65536

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static char *buffer;
static struct ibv_mr *mr;

static struct ibv_context *open_device(void)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1 && !strcmp(ibv_get_device_name(list[0]), "mlx5_0"));
    struct ibv_context *opened = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    return opened;
}

static struct ibv_qp *make_qp(enum ibv_qp_type type, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type,
        .cap = { .max_send_wr = 16, .max_recv_wr = srq ? 0 : 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
    };
    return ibv_create_qp(pd, &init);
}

static int init(struct ibv_qp *qp, int access)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void connect_to(struct ibv_qp *qp, uint32_t dest, int rnr_retry)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .rq_psn = 7,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
    };
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr send = {
        .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 12, .retry_cnt = 2, .rnr_retry = rnr_retry, .max_rd_atomic = 4,
    };
    CHECK(!ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_MAX_QP_RD_ATOMIC));
}

static void pair(struct ibv_qp **a, struct ibv_qp **b, struct ibv_srq *srq, int rnr_retry)
{
    int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK((*a = make_qp(IBV_QPT_RC, NULL)) && (*b = make_qp(IBV_QPT_RC, srq)));
    CHECK(!init(*a, all) && !init(*b, all));
    connect_to(*a, (*b)->qp_num, rnr_retry);
    connect_to(*b, (*a)->qp_num, rnr_retry);
}

/* Unreliable ones, which take less to connect, and nothing more. */
static void unreliable_pair(struct ibv_qp *pair[2])
{
    int peer = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    CHECK((pair[0] = make_qp(IBV_QPT_UC, NULL)) && (pair[1] = make_qp(IBV_QPT_UC, NULL)));
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = {
            .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = pair[1 - i]->qp_num, .rq_psn = 9, .min_rnr_timer = 1,
            .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
        };
        CHECK(!init(pair[i], IBV_ACCESS_REMOTE_WRITE) && !ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
        CHECK(ibv_modify_qp(pair[i], &attr, peer | IBV_QP_MIN_RNR_TIMER) == EINVAL && ibv_modify_qp(pair[i], &attr, IBV_QP_STATE) == EINVAL);
        CHECK(!ibv_modify_qp(pair[i], &attr, peer));
        struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS, .sq_psn = 9, .timeout = 12 };
        CHECK(ibv_modify_qp(pair[i], &send, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT) == EINVAL);
        CHECK(!ibv_modify_qp(pair[i], &send, IBV_QP_STATE | IBV_QP_SQ_PSN));
    }
}

static struct ibv_wc next(void)
{
    struct ibv_wc wc;
    for (int turn = 0; turn < 50000; turn++) {
        int got = ibv_poll_cq(cq, 1, &wc);
        CHECK(got >= 0);
        if (got)
            return wc;
        usleep(100);
    }
    CHECK(!"a completion within five seconds");
    abort();
}

static struct ibv_sge at(size_t offset, uint32_t len)
{
    return (struct ibv_sge){ .addr = (uintptr_t)buffer + offset, .length = len, .lkey = mr->lkey };
}

static void post(struct ibv_qp *qp, struct ibv_send_wr wr, struct ibv_sge sge)
{
    struct ibv_send_wr *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void receive(struct ibv_qp *qp, uint64_t id, struct ibv_sge first, struct ibv_sge second)
{
    struct ibv_sge list[2] = { first, second };
    struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = list, .num_sge = 2 };
    CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static void transfers(void)
{
    struct ibv_qp *a, *b;
    pair(&a, &b, NULL, 7);
    /* A send of three packets, with immediate data, into two pieces. */
    for (int i = 0; i < 3000; i++)
        buffer[i] = (char)(i * 7);
    receive(b, 11, at(8192, 1000), at(16384, 4000));
    post(a, (struct ibv_send_wr){ .wr_id = 1, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(0xabcd) },
         at(0, 3000));
    struct ibv_wc one = next(), two = next(), recv = one.wr_id == 11 ? one : two, send = one.wr_id == 11 ? two : one;
    CHECK(!recv.status && recv.byte_len == 3000 && recv.opcode == IBV_WC_RECV && recv.qp_num == b->qp_num);
    CHECK((recv.wc_flags & IBV_WC_WITH_IMM) && be32toh(recv.imm_data) == 0xabcd);
    CHECK(!send.status && send.wr_id == 1 && send.opcode == IBV_WC_SEND && send.qp_num == a->qp_num);
    CHECK(!memcmp(buffer, buffer + 8192, 1000) && !memcmp(buffer + 1000, buffer + 16384, 2000));
    puts("send with immediate data");
    /* A write, in line, and then a read of it; the write asks for no completion. */
    strcpy(buffer, "written in line");
    post(a, (struct ibv_send_wr){ .wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE,
                                  .wr.rdma = { (uintptr_t)buffer + 20000, mr->rkey } }, at(0, 16));
    memset(buffer, 'x', 16);
    post(a, (struct ibv_send_wr){ .wr_id = 3, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
                                  .wr.rdma = { (uintptr_t)buffer + 20000, mr->rkey } }, at(24000, 16));
    one = next();
    CHECK(!one.status && one.wr_id == 3 && one.opcode == IBV_WC_RDMA_READ && one.byte_len == 16);
    CHECK(!strcmp(buffer + 20000, "written in line") && !strcmp(buffer + 24000, "written in line"));
    puts("write and read");
    /* Atomics. */
    uint64_t *target = (uint64_t *)(buffer + 32768), *result = (uint64_t *)(buffer + 32776);
    *target = 40;
    post(a, (struct ibv_send_wr){ .wr_id = 4, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
                                  .wr.atomic = { (uintptr_t)target, 2, 0, mr->rkey } }, at(32776, 8));
    one = next();
    CHECK(!one.status && one.wr_id == 4 && one.opcode == IBV_WC_FETCH_ADD && *target == 42 && *result == 40);
    post(a, (struct ibv_send_wr){ .wr_id = 5, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .send_flags = IBV_SEND_SIGNALED,
                                  .wr.atomic = { (uintptr_t)target, 42, 99, mr->rkey } }, at(32776, 8));
    one = next();
    CHECK(!one.status && one.opcode == IBV_WC_COMP_SWAP && *target == 99 && *result == 42);
    puts("atomics");
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr asked;
    CHECK(!ibv_query_qp(a, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN, &asked));
    CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == b->qp_num && attr.path_mtu == IBV_MTU_1024);
    puts("query");
    /* RESET, and everything once more. */
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    CHECK(!ibv_modify_qp(a, &reset, IBV_QP_STATE) && !ibv_modify_qp(b, &reset, IBV_QP_STATE));
    CHECK(!init(a, 0) && !init(b, IBV_ACCESS_REMOTE_WRITE));
    connect_to(a, b->qp_num, 7);
    connect_to(b, a->qp_num, 7);
    post(a, (struct ibv_send_wr){ .wr_id = 6, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                                  .wr.rdma = { (uintptr_t)buffer + 40000, mr->rkey } }, at(20000, 16));
    one = next();
    CHECK(!one.status && one.wr_id == 6 && !strcmp(buffer + 40000, "written in line"));
    puts("reset and again");
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
}

static void failure(const char *what, struct ibv_send_wr wr, struct ibv_sge sge, enum ibv_wc_status status, int vendor)
{
    struct ibv_qp *a, *b;
    pair(&a, &b, NULL, 0);
    wr.wr_id = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    post(a, wr, sge);
    post(a, (struct ibv_send_wr){ .wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)buffer, mr->rkey } }, at(0, 1));
    struct ibv_wc first = next(), second = next();
    if (first.status != status || (int)first.vendor_err != vendor)
        printf("%s: status %d vendor %#x\n", what, first.status, first.vendor_err);
    CHECK(first.wr_id == 1 && first.status == status && (int)first.vendor_err == vendor);
    CHECK(second.wr_id == 2 && second.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    puts(what);
}

static void failures(void)
{
    struct ibv_sge wrong = at(0, 8), outside = at(ROOM - 4, 8);
    wrong.lkey += 0x100000;
    struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)buffer, mr->rkey } };
    failure("wrong local key", write, wrong, IBV_WC_LOC_PROT_ERR, 0x51);
    failure("outside of the region", write, outside, IBV_WC_LOC_PROT_ERR, 0x51);
    write.wr.rdma.rkey += 0x100000;
    failure("wrong remote key", write, at(0, 8), IBV_WC_REM_ACCESS_ERR, 0x88);
    failure("no receive posted", (struct ibv_send_wr){ .opcode = IBV_WR_SEND }, at(0, 8), IBV_WC_RNR_RETRY_EXC_ERR, 0x87);
    /* A peer that is not there any more. */
    struct ibv_qp *a, *b;
    pair(&a, &b, NULL, 0);
    CHECK(!ibv_destroy_qp(b));
    post(a, (struct ibv_send_wr){ .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, at(0, 8));
    struct ibv_wc wc = next();
    CHECK(wc.status == IBV_WC_RETRY_EXC_ERR && wc.vendor_err == 0x81);
    CHECK(!ibv_destroy_qp(a));
    puts("nobody answers");
}

static void events(void)
{
    struct ibv_qp *a, *b;
    struct ibv_cq *of;
    void *mine;
    struct pollfd poll_for = { .fd = channel->fd, .events = POLLIN };
    pair(&a, &b, NULL, 7);
    CHECK(!ibv_req_notify_cq(cq, 0) && poll(&poll_for, 1, 20) == 0);
    for (int turn = 0; turn < 3; turn++) {
        post(a, (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                                      .wr.rdma = { (uintptr_t)buffer, mr->rkey } }, at(0, 8));
        CHECK(poll(&poll_for, 1, 5000) == 1 && !ibv_get_cq_event(channel, &of, &mine) && of == cq && mine == &cq);
        ibv_ack_cq_events(cq, 1);
        CHECK(!next().status && !ibv_req_notify_cq(cq, 0) && poll(&poll_for, 1, 20) == 0);
    }
    /* Solicited completions alone. */
    receive(b, 1, at(0, 8), at(8, 8));
    receive(b, 2, at(0, 8), at(8, 8));
    post(a, (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, at(0, 8));
    CHECK(poll(&poll_for, 1, 5000) == 1 && !ibv_get_cq_event(channel, &of, &mine));
    ibv_ack_cq_events(cq, 1);
    next(), next();
    CHECK(!ibv_req_notify_cq(cq, 1));
    post(a, (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                                  .wr.rdma = { (uintptr_t)buffer, mr->rkey } }, at(0, 8));
    next();
    CHECK(poll(&poll_for, 1, 50) == 0);
    post(a, (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SOLICITED }, at(0, 8));
    /* The event is left unread: destroying the queue must not wait for it. */
    CHECK(poll(&poll_for, 1, 5000) == 1 && next().wr_id == 2);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    puts("events");
}

static void shared(void)
{
    struct ibv_qp *a, *b;
    struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    struct ibv_recv_wr *bad, wr = { .num_sge = 1 };
    CHECK(srq);
    pair(&a, &b, srq, 7);
    for (int i = 0; i < 10; i++) {
        struct ibv_sge sge = at(4096 + 64 * i, 64);
        wr.wr_id = 100 + i;
        wr.sg_list = &sge;
        CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
        buffer[0] = (char)i;
        post(a, (struct ibv_send_wr){ .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, at(0, 1));
        struct ibv_wc one = next(), two = next(), recv = one.wr_id >= 100 ? one : two;
        CHECK(!one.status && !two.status && recv.wr_id == 100u + i && recv.qp_num == b->qp_num && buffer[4096 + 64 * i] == (char)i);
    }
    CHECK(ibv_destroy_srq(srq) == EBUSY);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_srq(srq));
    puts("shared receives");
}

static void unreliable(void)
{
    struct ibv_qp *qps[2], *a, *b;
    unreliable_pair(qps);
    a = qps[0], b = qps[1];
    for (int i = 0; i < 3000; i++)
        buffer[i] = (char)(i * 11);
    /* Without a receive, outside of what is there, longer than the receive: done for the sender, and nothing to the receiver. */
    struct ibv_send_wr send = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
    struct ibv_send_wr write = { .wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = { (uintptr_t)buffer + ROOM - 2999, mr->rkey } };
    post(a, send, at(0, 3000));
    struct ibv_wc one = next(), two;
    CHECK(!one.status && one.wr_id == 1 && one.opcode == IBV_WC_SEND);
    post(a, write, at(0, 3000));
    one = next();
    CHECK(!one.status && one.wr_id == 2 && one.opcode == IBV_WC_RDMA_WRITE);
    memset(buffer + 8192, 0, 20000);
    receive(b, 11, at(8192, 1000), at(16384, 1999));
    post(a, send, at(0, 3000));
    CHECK(!next().status);
    /* What fits comes into the same receive. */
    send.opcode = IBV_WR_SEND_WITH_IMM;
    send.imm_data = htobe32(0xabcd);
    post(a, send, at(0, 2999));
    one = next(), two = next();
    struct ibv_wc recv = one.wr_id == 11 ? one : two;
    CHECK(!one.status && !two.status && recv.wr_id == 11 && recv.byte_len == 2999 && be32toh(recv.imm_data) == 0xabcd && recv.qp_num == b->qp_num);
    CHECK(!memcmp(buffer, buffer + 8192, 1000) && !memcmp(buffer + 1000, buffer + 16384, 1999) && !buffer[16384 + 1999]);
    receive(b, 12, at(0, 0), at(0, 0));
    write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write.wr.rdma.remote_addr = (uintptr_t)buffer + 40000;
    post(a, write, at(0, 3000));
    one = next(), two = next();
    recv = one.wr_id == 12 ? one : two;
    CHECK(!one.status && !two.status && recv.wr_id == 12 && recv.opcode == IBV_WC_RECV_RDMA_WITH_IMM && recv.byte_len == 3000);
    CHECK(!memcmp(buffer, buffer + 40000, 3000));
    /* A peer that is not there any more is none of the sender's business. */
    CHECK(!ibv_destroy_qp(b));
    post(a, send, at(0, 3000));
    CHECK(!next().status);
    /* But its own memory is. */
    struct ibv_sge wrong = at(0, 8);
    wrong.lkey += 0x100000;
    post(a, send, wrong);
    CHECK(next().status == IBV_WC_LOC_PROT_ERR && !ibv_destroy_qp(a));
    puts("unreliable connections");
}

static struct ibv_qp *made_listen(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7 };
    CHECK(qp && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    return qp;
}

static struct ibv_qp *listener(void)
{
    return made_listen(make_qp(IBV_QPT_UD, NULL));
}

static enum ibv_qp_state state(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr asked;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &asked) && attr.qp_state == attr.cur_qp_state);
    return attr.qp_state;
}

/*
 * An entry that fails by its local key, between two that do not: the one before it is sent, the one behind it flushed. A reliable connection is in error then. Of the others
 * the send queue is (SQE: IBTA spec, volume 1, s10.3.1.6): they receive, and send again once they are told to.
 */
static void send_errors(void)
{
    struct ibv_ah_attr here = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
    CHECK(!ibv_query_gid(context, 1, 0, &here.grh.dgid));
    struct ibv_ah *ah = ibv_create_ah(pd, &here);
    CHECK(ah);
    for (int kind = 0; kind < 3; kind++) {
        struct ibv_qp *qps[2];
        if (kind == 0)
            pair(&qps[0], &qps[1], NULL, 7);
        else if (kind == 1)
            unreliable_pair(qps);
        else
            CHECK((qps[0] = listener()) && (qps[1] = listener()));
        struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
        if (kind == 2)
            send.wr.ud.ah = ah, send.wr.ud.remote_qpn = qps[1]->qp_num, send.wr.ud.remote_qkey = 7;
        struct ibv_sge wrong = at(0, 8);
        wrong.lkey += 0x100000;
        CHECK(state(qps[0]) == IBV_QPS_RTS);
        for (int i = 0; i < 2; i++)
            receive(qps[i], 10 + i, at(1024, 200), at(0, 0));
        for (int i = 1; i <= 3; i++) {
            send.wr_id = i;
            post(qps[0], send, i == 2 ? wrong : at(0, 8));
        }
        int seen = 0;
        for (int left = kind == 0 ? 5 : 4; left; left--) {
            struct ibv_wc wc = next();
            if (wc.wr_id < 4)
                CHECK(wc.status == (wc.wr_id == 1 ? IBV_WC_SUCCESS : wc.wr_id == 2 ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR));
            else
                CHECK(wc.status == (wc.wr_id == 11 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR));
            seen |= 1 << wc.wr_id;
        }
        CHECK(seen == (kind == 0 ? 0xc0e : 0x80e));
        CHECK(state(qps[0]) == (kind == 0 ? IBV_QPS_ERR : IBV_QPS_SQE) && state(qps[1]) == IBV_QPS_RTS);
        struct ibv_qp_attr again = { .qp_state = IBV_QPS_RTS };
        CHECK(ibv_modify_qp(qps[0], &again, IBV_QP_STATE) == (kind == 0 ? EINVAL : 0));
        if (kind != 0) {
            CHECK(state(qps[0]) == IBV_QPS_RTS);
            receive(qps[1], 11, at(1024, 200), at(0, 0));
            send.wr_id = 4;
            post(qps[0], send, at(0, 8));
            for (int left = 2; left; left--) {
                struct ibv_wc wc = next();
                CHECK(!wc.status && (wc.wr_id == 4 || wc.wr_id == 11));
            }
        }
        CHECK(!ibv_destroy_qp(qps[0]) && !ibv_destroy_qp(qps[1]));
    }
    CHECK(!ibv_destroy_ah(ah));
    puts("send queues in error");
}

/* How many receives complete by what a sends to the group, each with its bytes. */
static int heard(struct ibv_qp *from, struct ibv_ah *ah, int receives)
{
    post(from, (struct ibv_send_wr){ .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
                                     .wr.ud = { .ah = ah, .remote_qpn = 0xffffff, .remote_qkey = 7 } }, at(0, 100));
    int count = 0;
    for (int i = 0; i < receives + 1; i++) {
        struct ibv_wc wc = next();
        CHECK(!wc.status && (wc.wr_id == 1 || (wc.byte_len == 140 && wc.src_qp == from->qp_num && wc.wr_id >= 100)));
        count += wc.wr_id != 1;
        CHECK(wc.wr_id == 1 || !memcmp(buffer, buffer + 1000 * (wc.wr_id - 99) + 40, 100));
    }
    struct ibv_wc wc;
    usleep(20000);
    CHECK(!ibv_poll_cq(cq, 1, &wc));
    return count;
}

static void groups(void)
{
    union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [14] = 2, [15] = 3 } }, other = group, one = group;
    struct ibv_qp *a = listener(), *b = listener(), *rc = make_qp(IBV_QPT_RC, NULL);
    struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = group, .hop_limit = 1 } };
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    other.raw[15] = 4;
    one.raw[12] = 10;
    CHECK(ah && rc);
    CHECK(ibv_attach_mcast(a, &one, 0) == EINVAL && ibv_attach_mcast(rc, &group, 0) == EINVAL && ibv_detach_mcast(a, &group, 0) == EINVAL);
    for (int i = 0; i < 100; i++)
        buffer[i] = (char)(i * 3);
    for (int i = 0; i < 4; i++)
        receive(a, 100 + i, at(1000 * (i + 1), 500), at(0, 0)), receive(b, 110 + i, at(1000 * (i + 11), 500), at(0, 0));
    CHECK(heard(a, ah, 0) == 0);
    /* Twice is once; the sender is a member as any other. */
    CHECK(!ibv_attach_mcast(a, &group, 0) && !ibv_attach_mcast(a, &group, 0) && !ibv_attach_mcast(a, &other, 0) && !ibv_attach_mcast(b, &group, 0));
    CHECK(heard(a, ah, 2) == 2);
    CHECK(ibv_destroy_qp(a) == EBUSY);
    CHECK(!ibv_detach_mcast(a, &group, 0) && ibv_detach_mcast(a, &group, 0) == EINVAL && heard(a, ah, 1) == 1);
    CHECK(!ibv_detach_mcast(a, &other, 0) && !ibv_detach_mcast(b, &group, 0) && heard(a, ah, 0) == 0);
    /* IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: the other member hears it alone. It is of datagrams. */
    struct ibv_qp_init_attr_ex deaf = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 2, 0 }, .qp_type = IBV_QPT_RC, .pd = pd,
                                        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB };
    CHECK(!ibv_create_qp_ex(context, &deaf));
    deaf.qp_type = IBV_QPT_UD;
    struct ibv_qp *c = made_listen(ibv_create_qp_ex(context, &deaf));
    receive(c, 120, at(1000 * 21, 500), at(0, 0));
    CHECK(!ibv_attach_mcast(c, &group, 0) && heard(c, ah, 0) == 0 && heard(a, ah, 1) == 1);
    CHECK(!ibv_attach_mcast(a, &group, 0) && heard(c, ah, 1) == 1 && !ibv_detach_mcast(a, &group, 0) && !ibv_detach_mcast(c, &group, 0));
    CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_qp(c) && !ibv_destroy_qp(rc));
    puts("groups");
}

static void refusals(void)
{
    char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone + 4096, 4096);
    CHECK(!ibv_reg_mr(pd, gone, 8192, 0) && errno == EFAULT);
    CHECK(!ibv_reg_mr(pd, buffer, 64, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(!make_qp(IBV_QPT_XRC_RECV, NULL) && errno);
    CHECK(!ibv_alloc_mw(pd, IBV_MW_TYPE_1) && errno == EOPNOTSUPP);
    struct ibv_qp *qp = make_qp(IBV_QPT_RC, NULL);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
    CHECK(qp && ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
    attr.qp_state = IBV_QPS_INIT;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
    CHECK(ibv_destroy_cq(cq) == EBUSY && !ibv_destroy_qp(qp));
    errno = 0;
    CHECK(ioctl(context->cmd_fd, TIOCGWINSZ, buffer) == -1 && errno == ENOTTY);
    CHECK(ioctl(context->cmd_fd, 0xc0181b01, NULL) == -1 && errno == EFAULT);
    puts("refusals");
}

static int pd_works(struct ibv_context *of)
{
    struct ibv_pd *made = ibv_alloc_pd(of);
    return made && !ibv_dealloc_pd(made);
}

/* A handler of fork's that is registered before any constructor runs. */
static int worked_before_fork;

static void use_before_fork(void)
{
    worked_before_fork = context && pd_works(context);
}

static void begin_first(void)
{
    pthread_atfork(use_before_fork, NULL, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = begin_first;

static void processes(char **argv)
{
    int copy = dup(context->cmd_fd), status;
    CHECK(copy >= 0 && !close(copy) && pd_works(context));
    struct ibv_context *second = open_device();
    CHECK(second && pd_works(second));
    /* What a child of vfork closes is its own, though the memory is the parent's. */
    pid_t quick = vfork();
    if (!quick) {
        close(context->cmd_fd);
        _exit(0);
    }
    CHECK(waitpid(quick, &status, 0) == quick && pd_works(context));
    /* A channel ends with its last descriptor. */
    int before = dup(0), after;
    for (int i = 0; i < 3; i++) {
        struct ibv_comp_channel *one = ibv_create_comp_channel(context);
        int other = one ? dup(one->fd) : -1;
        CHECK(other >= 0 && !ibv_destroy_comp_channel(one) && !close(other));
    }
    CHECK(!close(before) && (after = dup(0)) == before && !close(after));
    pid_t child = fork();
    CHECK(worked_before_fork);
    if (!child) {
        /* The parent's device is not the child's, which may have its own. */
        CHECK(!ibv_alloc_pd(context) && errno == EIO);
        struct ibv_context *own = open_device();
        /* Then it may make protection domains by the parent's, and nothing else. */
        CHECK(own && pd_works(own) && pd_works(context) && !ibv_create_cq(context, 1, NULL, NULL, 0) && errno == EIO && !ibv_close_device(own));
        fflush(stdout);
        char *again[] = { argv[0], "executed", NULL };
        execv(argv[0], again);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(!ibv_close_device(second) && pd_works(context));
    puts("processes");
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        context = open_device();
        CHECK(context && pd_works(context));
        puts("executed");
        return 0;
    }
    CHECK((context = open_device()) && (pd = ibv_alloc_pd(context)) && (channel = ibv_create_comp_channel(context)));
    CHECK((cq = ibv_create_cq(context, 63, &cq, channel, 0)) && cq->cqe == 63);
    buffer = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mr = ibv_reg_mr(pd, buffer, ROOM,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    CHECK(mr);
    transfers();
    failures();
    events();
    shared();
    unreliable();
    send_errors();
    groups();
    refusals();
    processes(argv);
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("done");
    return 0;
}
