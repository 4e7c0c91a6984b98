/* Large sends, posted at once, of a card that is plugged into an interface: how many frames that makes. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                       \
    do {                                                                                  \
        if (!(what)) {                                                                    \
            printf("line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);           \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define HEADER 54
#define PAYLOAD 60000
#define MSS 100
#define SENDS 64

static void to(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)));
}

int main(void)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *context = list && count == 1 ? ibv_open_device(list[0]) : NULL;
    CHECK(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, SENDS, NULL, NULL, 0);
    char *memory = calloc(1, PAYLOAD);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, PAYLOAD, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_RAW_PACKET, .send_cq = cq, .recv_cq = cq, .pd = pd, .max_tso_header = 64,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
        .cap = { .max_send_wr = SENDS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
    CHECK(pd && cq && mr && qp);
    to(qp, IBV_QPS_INIT);
    to(qp, IBV_QPS_RTR);
    to(qp, IBV_QPS_RTS);

    /* TCP over IPv4, to an address that nobody has, and that no address is asked for. */
    unsigned char header[HEADER] = {
        2, 0, 0, 0, 0x79, 9, 2, 0, 0, 0, 0x79, 1, 8, 0,
        0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 79, 0, 1, 10, 79, 0, 9,
        0x10, 1, 0x10, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0,
    };
    struct ibv_sge list_of = { .addr = (unsigned long)memory, .length = PAYLOAD, .lkey = mr->lkey };
    struct ibv_send_wr sends[SENDS], *bad;
    for (int i = 0; i < SENDS; i++)
        sends[i] = (struct ibv_send_wr){
            .wr_id = i, .sg_list = &list_of, .num_sge = 1, .opcode = IBV_WR_TSO, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM,
            .tso = { .hdr = header, .hdr_sz = HEADER, .mss = MSS }, .next = i + 1 < SENDS ? &sends[i + 1] : NULL,
        };
    CHECK(!ibv_post_send(qp, sends, &bad));
    for (int done = 0; done < SENDS;) {
        struct ibv_wc wc;
        int found = ibv_poll_cq(cq, 1, &wc);
        CHECK(found >= 0 && (!found || wc.status == IBV_WC_SUCCESS));
        done += found;
    }
    CHECK(!ibv_destroy_qp(qp) && !ibv_close_device(context));
    printf("%d frames\n", SENDS * PAYLOAD / MSS);
    return 0;
}
