/*
 * Raw packet queue pairs of two contexts of one process, and what libibverbs and libmlx5 say of each operation. One line for each thing that
 * is so; the first that is not ends the program.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
    do {                                                                                  \
        if (!(what)) {                                                                    \
            printf("line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);           \
            fflush(stdout);                                                               \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define ROOM 65536
#define SLOT 2048
#define SLOTS 32

/* One end: a context with all that it has. */
struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t *buffer;
};

static struct end sender, receiver;
static const uint8_t A[6] = { 2, 0, 0, 0, 0, 0xa }, B[6] = { 2, 0, 0, 0, 0, 0xb }, GROUP[6] = { 1, 0, 0x5e, 1, 2, 3 };

static void open_end(struct end *end)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && (end->context = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    CHECK((end->pd = ibv_alloc_pd(end->context)) && (end->cq = ibv_create_cq(end->context, 256, NULL, NULL, 0)));
    end->buffer = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(end->buffer != MAP_FAILED && (end->mr = ibv_reg_mr(end->pd, end->buffer, ROOM, IBV_ACCESS_LOCAL_WRITE)));
}

static void to_rts(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

static struct ibv_qp *make(struct end *end, struct ibv_cq *cq, unsigned tso_header)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET, .pd = end->pd,
        .cap = { .max_send_wr = 64, .max_recv_wr = SLOTS, .max_send_sge = 4, .max_recv_sge = 2, .max_inline_data = 128 },
        .comp_mask = IBV_QP_INIT_ATTR_PD | (tso_header ? IBV_QP_INIT_ATTR_MAX_TSO_HEADER : 0), .max_tso_header = tso_header,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(end->context, &init);
    CHECK(qp);
    to_rts(qp);
    return qp;
}

/* The next completion, or one of status -1 if there is none for a while. */
static struct ibv_wc maybe(struct ibv_cq *cq, int turns)
{
    struct ibv_wc wc = { .status = -1 };
    for (int turn = 0; turn < turns; turn++) {
        int got = ibv_poll_cq(cq, 1, &wc);
        CHECK(got >= 0);
        if (got)
            return wc;
        usleep(100);
    }
    return (struct ibv_wc){ .status = -1 };
}

static struct ibv_wc next(struct ibv_cq *cq)
{
    struct ibv_wc wc = maybe(cq, 50000);
    CHECK((int)wc.status != -1);
    return wc;
}

/* Nothing comes: what was sent before is completed, and 20 ms go by. */
static int nothing(struct ibv_cq *cq)
{
    return (int)maybe(cq, 200).status == -1;
}

static void post_receives(struct ibv_qp *qp, int count, uint32_t len)
{
    for (int i = 0; i < count; i++) {
        struct ibv_sge sge = { (uintptr_t)receiver.buffer + SLOT * i, len, receiver.mr->lkey };
        struct ibv_recv_wr *bad, wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
        CHECK(!ibv_post_recv(qp, &wr, &bad));
    }
}

/* Sends `len` bytes of the sender's buffer, in two pieces; it is completed. */
static struct ibv_wc send_flags(struct ibv_qp *qp, uint32_t len, unsigned flags, uint32_t key)
{
    uint32_t first = len / 2;
    struct ibv_sge list[2] = { { (uintptr_t)sender.buffer, first, key }, { (uintptr_t)sender.buffer + first, len - first, key } };
    struct ibv_send_wr *bad, wr = { .wr_id = 77, .sg_list = list, .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags };
    CHECK(!ibv_post_send(qp, &wr, &bad));
    return next(qp->send_cq);
}

static void transmit(struct ibv_qp *qp, uint32_t len, unsigned flags)
{
    struct ibv_wc wc = send_flags(qp, len, flags, sender.mr->lkey);
    CHECK(!wc.status && wc.wr_id == 77 && wc.opcode == IBV_WC_SEND);
}

/* A datagram or a TCP segment to port 7, with `payload` bytes; its length. */
static uint32_t packet(const uint8_t *dst, int v6, int tcp, uint16_t src_port, uint32_t payload)
{
    uint8_t *at = sender.buffer;
    uint32_t l4 = tcp ? 20 : 8, total = l4 + payload;
    memset(at, 0, 14 + 40 + total);
    memcpy(at, dst, 6);
    memcpy(at + 6, B, 6);
    at += 12;
    if (v6) {
        uint8_t header[] = { 0x86, 0xdd, 0x6b, 0x81, 0x23, 0x45, total >> 8, total, tcp ? 6 : 17, 64 };
        memcpy(at, header, sizeof header);
        at[10] = at[26] = 0xfd, at[25] = 1, at[41] = 2;
        at += 42;
    } else {
        uint8_t header[] = { 8, 0, 0x45, 0xb8, (20 + total) >> 8, 20 + total, 0, 9, 0, 0, 64, tcp ? 6 : 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2 };
        memcpy(at, header, sizeof header);
        at += 22;
    }
    at[0] = src_port >> 8, at[1] = src_port, at[3] = 7;
    if (tcp)
        at[7] = 100, at[12] = 0x50, at[13] = 0x19;
    else
        at[4] = total >> 8, at[5] = total;
    for (uint32_t i = 0; i < payload; i++)
        at[l4 + i] = (uint8_t)(i * 3);
    return (uint32_t)(at - sender.buffer) + total;
}

/* A datagram to `port` in the tunnel `vni`; its length. */
static uint32_t tunnelled(uint32_t vni, uint16_t port)
{
    uint8_t inside[14 + 20 + 8 + 4];
    uint32_t len = packet(B, 0, 0, 5, 4);
    CHECK(len == sizeof inside);
    memcpy(inside, sender.buffer, sizeof inside);
    inside[36] = port >> 8, inside[37] = port;
    len = packet(A, 0, 0, 5, 8 + sizeof inside);
    uint8_t *udp = sender.buffer + 34, header[8] = { 8, 0, 0, 0, vni >> 16, vni >> 8, vni };
    udp[2] = 4789 >> 8, udp[3] = 4789 & 0xff;
    memcpy(udp + 8, header, sizeof header);
    memcpy(udp + 16, inside, sizeof inside);
    return len;
}

/* Rules, as bytes behind each other. */
struct rule {
    struct ibv_flow_attr attr;
    uint8_t specs[400];
};

static struct rule rule(enum ibv_flow_attr_type type, int priority)
{
    return (struct rule){ .attr = { .type = type, .size = sizeof(struct ibv_flow_attr), .priority = priority, .port = 1 } };
}

static void add(struct rule *rule, const void *spec, size_t size)
{
    memcpy((uint8_t *)rule + rule->attr.size, spec, size);
    rule->attr.size += size;
    rule->attr.num_of_specs++;
}

static void add_mac(struct rule *rule, const uint8_t *dst, uint16_t type, int vlan)
{
    struct ibv_flow_spec_eth spec = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof spec };
    memcpy(spec.val.dst_mac, dst, 6);
    memset(spec.mask.dst_mac, 0xff, 6);
    spec.val.ether_type = htons(type), spec.mask.ether_type = type ? 0xffff : 0;
    if (vlan >= 0)
        spec.val.vlan_tag = htons(vlan), spec.mask.vlan_tag = htons(0xfff);
    add(rule, &spec, sizeof spec);
}

static void add_ipv4(struct rule *rule, uint32_t dst, uint8_t tos)
{
    struct ibv_flow_spec_ipv4_ext spec = { .type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof spec };
    spec.val.dst_ip = htonl(dst), spec.mask.dst_ip = 0xffffffff;
    spec.val.tos = tos, spec.mask.tos = tos ? 0xfc : 0;
    add(rule, &spec, sizeof spec);
}

static void add_ports(struct rule *rule, enum ibv_flow_spec_type type, uint16_t src, uint16_t dst)
{
    struct ibv_flow_spec_tcp_udp spec = { .type = type, .size = sizeof spec };
    spec.val.src_port = htons(src), spec.mask.src_port = src ? 0xffff : 0;
    spec.val.dst_port = htons(dst), spec.mask.dst_port = dst ? 0xffff : 0;
    add(rule, &spec, sizeof spec);
}

static void add_tag(struct rule *rule, uint32_t tag)
{
    struct ibv_flow_spec_action_tag spec = { .type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof spec, .tag_id = tag };
    add(rule, &spec, sizeof spec);
}

static struct ibv_flow *flow(struct ibv_qp *qp, struct rule rule)
{
    return ibv_create_flow(qp, &rule.attr);
}

static struct ibv_flow *to_mac(struct ibv_qp *qp, const uint8_t *mac, int priority)
{
    struct rule of = rule(IBV_FLOW_ATTR_NORMAL, priority);
    add_mac(&of, mac, 0, -1);
    struct ibv_flow *made = flow(qp, of);
    CHECK(made);
    return made;
}

static void refused(struct ibv_qp *qp, struct rule rule, int code)
{
    errno = 0;
    struct ibv_flow *made = flow(qp, rule);
    if (made || errno != code)
        printf("errno %d, not %d\n", errno, code);
    CHECK(!made && errno == code);
}

static void frames(struct ibv_qp *tx, struct ibv_qp *rx)
{
    post_receives(rx, SLOTS, SLOT);
    struct ibv_flow *mine = to_mac(rx, A, 0);
    uint32_t len = packet(A, 0, 0, 5, 700);
    transmit(tx, len, 0);
    struct ibv_wc wc = next(receiver.cq);
    CHECK(!wc.status && wc.opcode == IBV_WC_RECV && wc.byte_len == len && wc.wr_id == 0 && !memcmp(receiver.buffer, sender.buffer, len));
    /* To somebody else; and short ones are padded. */
    packet(B, 0, 0, 5, 700);
    transmit(tx, len, 0);
    packet(A, 0, 0, 5, 700);
    transmit(tx, 20, IBV_SEND_INLINE);
    wc = next(receiver.cq);
    CHECK(!wc.status && wc.byte_len == 60 && wc.wr_id == 1 && !memcmp(receiver.buffer + SLOT, sender.buffer, 20) && !receiver.buffer[SLOT + 59]);
    puts("frames");
    for (int v6 = 0; v6 < 2; v6++)
        for (int tcp = 0; tcp < 2; tcp++) {
            len = packet(A, v6, tcp, 5, 333);
            transmit(tx, len, IBV_SEND_IP_CSUM);
            wc = next(receiver.cq);
            /* libmlx5 reports checksums of IPv4 alone. */
            CHECK(!wc.status && wc.byte_len == len && !!(wc.wc_flags & IBV_WC_IP_CSUM_OK) == !v6);
            transmit(tx, len, 0);
            CHECK(!(next(receiver.cq).wc_flags & IBV_WC_IP_CSUM_OK));
        }
    puts("checksums");
    /* What a context sends itself it does not hear. */
    struct ibv_flow *own = to_mac(tx, A, 0);
    len = packet(A, 0, 0, 5, 100);
    transmit(tx, len, 0);
    CHECK(!next(receiver.cq).status && nothing(sender.cq));
    CHECK(ibv_destroy_qp(rx) == EBUSY && !ibv_destroy_flow(own) && !ibv_destroy_flow(mine));
    transmit(tx, len, 0);
    CHECK(nothing(receiver.cq));
    puts("own frames");
}

/* Which of two queue pairs gets a datagram: bits. */
static int who(struct ibv_qp *tx, struct ibv_qp *a, struct ibv_qp *b, uint32_t len)
{
    int got = 0;
    transmit(tx, len, 0);
    for (;;) {
        struct ibv_wc wc = maybe(receiver.cq, got ? 50 : 200);
        if ((int)wc.status == -1)
            return got;
        CHECK(!wc.status && wc.byte_len == (len < 60 ? 60 : len));
        got |= wc.wr_id >= 1000 ? 2 : 1;
        struct ibv_sge sge = { (uintptr_t)receiver.buffer, SLOT, receiver.mr->lkey };
        struct ibv_recv_wr *bad, wr = { .wr_id = wc.wr_id, .sg_list = &sge, .num_sge = 1 };
        CHECK(!ibv_post_recv(wc.wr_id >= 1000 ? b : a, &wr, &bad));
    }
}

static void rules(struct ibv_qp *tx)
{
    struct ibv_qp *a = make(&receiver, receiver.cq, 0), *b = make(&receiver, receiver.cq, 0);
    for (int i = 0; i < 4; i++) {
        struct ibv_sge sge = { (uintptr_t)receiver.buffer, SLOT, receiver.mr->lkey };
        struct ibv_recv_wr *bad, wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
        CHECK(!ibv_post_recv(a, &wr, &bad));
        wr.wr_id = 1000 + i;
        CHECK(!ibv_post_recv(b, &wr, &bad));
    }
    struct ibv_flow *low = to_mac(a, A, 1), *high = to_mac(b, A, 0);
    uint32_t len = packet(A, 0, 0, 5, 100);
    CHECK(who(tx, a, b, len) == 2 && !ibv_destroy_flow(high) && who(tx, a, b, len) == 1);
    puts("priorities");
    struct ibv_flow *same = to_mac(b, A, 1);
    CHECK(who(tx, a, b, len) == 3 && !ibv_destroy_flow(same));
    struct rule tagged = rule(IBV_FLOW_ATTR_NORMAL, 1);
    add_mac(&tagged, A, 0, -1);
    add_tag(&tagged, 5);
    refused(b, tagged, EEXIST);
    puts("copies");
    struct rule drop = rule(IBV_FLOW_ATTR_NORMAL, 0);
    struct ibv_flow_spec_action_drop spec = { .type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof spec };
    add_mac(&drop, A, 0, -1);
    add_ports(&drop, IBV_FLOW_SPEC_UDP, 5, 7);
    add(&drop, &spec, sizeof spec);
    struct ibv_flow *dropping = flow(b, drop);
    CHECK(dropping && who(tx, a, b, len) == 0);
    packet(A, 0, 0, 6, 100);
    CHECK(who(tx, a, b, len) == 1 && !ibv_destroy_flow(dropping));
    puts("drop");
    /* Layers: each rule takes one kind of packet from the rule of the address. */
    struct rule layers = rule(IBV_FLOW_ATTR_NORMAL, 0);
    add_mac(&layers, A, 0x0800, -1);
    add_ipv4(&layers, 0x0a000002, 0xb8);
    add_ports(&layers, IBV_FLOW_SPEC_TCP, 0, 7);
    struct ibv_flow *tcp = flow(b, layers);
    CHECK(tcp && who(tx, a, b, packet(A, 0, 0, 5, 100)) == 1 && who(tx, a, b, packet(A, 0, 1, 5, 100)) == 2);
    CHECK(who(tx, a, b, packet(A, 1, 1, 5, 100)) == 1 && !ibv_destroy_flow(tcp));
    layers = rule(IBV_FLOW_ATTR_NORMAL, 0);
    struct ibv_flow_spec_ipv6 ipv6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof ipv6 };
    ipv6.val.dst_ip[0] = 0xfd, ipv6.val.dst_ip[15] = 2;
    memset(ipv6.mask.dst_ip, 0xff, 16);
    ipv6.val.traffic_class = 0xb8, ipv6.mask.traffic_class = 0xfc;
    ipv6.val.flow_label = htonl(0x12345), ipv6.mask.flow_label = htonl(0xfffff);
    add(&layers, &ipv6, sizeof ipv6);
    struct ibv_flow *six = flow(b, layers);
    CHECK(six && who(tx, a, b, packet(A, 1, 0, 5, 100)) == 2 && who(tx, a, b, packet(A, 0, 0, 5, 100)) == 1 && !ibv_destroy_flow(six));
    layers = rule(IBV_FLOW_ATTR_NORMAL, 0);
    add_mac(&layers, A, 0, 9);
    struct ibv_flow *vlan = flow(b, layers);
    len = packet(A, 0, 0, 5, 100);
    CHECK(vlan && who(tx, a, b, len) == 1);
    memmove(sender.buffer + 16, sender.buffer + 12, len - 12);
    memcpy(sender.buffer + 12, "\x81\x00\x60\x09", 4);
    CHECK(who(tx, a, b, len + 4) == 2 && !ibv_destroy_flow(vlan) && !ibv_destroy_flow(low));
    puts("layers");
    struct rule in_tunnel = rule(IBV_FLOW_ATTR_NORMAL, 0);
    struct ibv_flow_spec_tunnel vxlan = { .type = IBV_FLOW_SPEC_VXLAN_TUNNEL, .size = sizeof vxlan, .mask = { htonl(0xffffff) } };
    vxlan.val.tunnel_id = htonl(77);
    add_mac(&in_tunnel, A, 0, -1);
    add(&in_tunnel, &vxlan, sizeof vxlan);
    add_ports(&in_tunnel, IBV_FLOW_SPEC_UDP | IBV_FLOW_SPEC_INNER, 0, 53);
    struct ibv_flow *tunnel_rule = flow(a, in_tunnel);
    CHECK(tunnel_rule && who(tx, a, b, tunnelled(77, 53)) == 1 && who(tx, a, b, tunnelled(78, 53)) == 0);
    CHECK(who(tx, a, b, tunnelled(77, 54)) == 0 && !ibv_destroy_flow(tunnel_rule));
    puts("tunnels");
    struct ibv_flow *all = flow(a, rule(IBV_FLOW_ATTR_ALL_DEFAULT, 0)), *groups = flow(b, rule(IBV_FLOW_ATTR_MC_DEFAULT, 0));
    CHECK(all && groups && who(tx, a, b, packet(A, 0, 0, 5, 100)) == 1 && who(tx, a, b, packet(GROUP, 0, 0, 5, 100)) == 3);
    CHECK(!ibv_destroy_flow(all) && who(tx, a, b, packet(B, 0, 0, 5, 100)) == 0 && !ibv_destroy_flow(groups));
    struct ibv_flow *sniffer = flow(b, rule(IBV_FLOW_ATTR_SNIFFER, 0)), *one = to_mac(a, A, 0);
    CHECK(sniffer && who(tx, a, b, packet(A, 0, 0, 5, 100)) == 3 && who(tx, a, b, packet(B, 0, 0, 5, 100)) == 2);
    CHECK(!ibv_destroy_flow(sniffer) && !ibv_destroy_flow(one));
    puts("defaults and sniffers");
    struct rule bad = rule(IBV_FLOW_ATTR_NORMAL, 16);
    add_mac(&bad, A, 0, -1);
    refused(a, bad, ENOMEM);
    bad = rule(IBV_FLOW_ATTR_NORMAL, 0);
    add_mac(&bad, A, 0x86dd, -1);
    add_ipv4(&bad, 1, 0);
    refused(a, bad, EINVAL);
    bad = rule(IBV_FLOW_ATTR_NORMAL, 0);
    add_mac(&bad, A, 0, -1);
    add_tag(&bad, 1 << 24);
    refused(a, bad, EINVAL);
    bad = rule(IBV_FLOW_ATTR_NORMAL, 0);
    add_ports(&bad, IBV_FLOW_SPEC_TCP, 0, 7);
    add_ports(&bad, IBV_FLOW_SPEC_UDP, 0, 7);
    refused(a, bad, EINVAL);
    bad = rule(IBV_FLOW_ATTR_NORMAL, 0);
    struct ibv_flow_spec_tunnel tunnel = { .type = IBV_FLOW_SPEC_VXLAN_TUNNEL, .size = sizeof tunnel, .mask = { htonl(1 << 24) } };
    add(&bad, &tunnel, sizeof tunnel);
    refused(a, bad, EINVAL);
    bad = rule(IBV_FLOW_ATTR_NORMAL, 0);
    bad.attr.port = 2;
    add_mac(&bad, A, 0, -1);
    refused(a, bad, EINVAL);
    bad = rule(IBV_FLOW_ATTR_NORMAL, 0);
    struct ibv_flow_spec_ipv4_ext ttl = { .type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof ttl, .mask = { .ttl = 0xff } };
    add(&bad, &ttl, sizeof ttl);
    refused(a, bad, EOPNOTSUPP);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    puts("refusals");
}

/* Memory on the card: what is copied there is sent from there. */
static void device_memory(struct ibv_qp *tx)
{
    struct ibv_device_attr_ex attr;
    CHECK(!ibv_query_device_ex(sender.context, NULL, &attr) && attr.max_dm_size == 128 << 10);
    struct ibv_alloc_dm_attr all = { .length = attr.max_dm_size }, more = { .length = attr.max_dm_size + 1 };
    struct ibv_dm *dm = ibv_alloc_dm(sender.context, &all);
    CHECK(dm && !ibv_alloc_dm(sender.context, &(struct ibv_alloc_dm_attr){ .length = 4 }) && !ibv_alloc_dm(sender.context, &more));
    uint32_t len = packet(A, 0, 0, 5, 102), at = 4096 + 8;
    CHECK(len == 144 && !ibv_memcpy_to_dm(dm, at, sender.buffer, len) && ibv_memcpy_to_dm(dm, at + 2, sender.buffer, len));
    CHECK(!ibv_reg_dm_mr(sender.pd, dm, at, len, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
    CHECK(!ibv_reg_dm_mr(sender.pd, dm, all.length - 4, 8, IBV_ACCESS_ZERO_BASED) && errno == EINVAL);
    struct ibv_mr *mr = ibv_reg_dm_mr(sender.pd, dm, at, len, IBV_ACCESS_ZERO_BASED);
    CHECK(mr && ibv_free_dm(dm) == EBUSY);
    struct ibv_qp *rx = make(&receiver, receiver.cq, 0);
    post_receives(rx, 1, SLOT);
    struct rule of = rule(IBV_FLOW_ATTR_NORMAL, 0);
    add_mac(&of, A, 0, -1);
    struct ibv_flow *to_rx = flow(rx, of);
    CHECK(to_rx);
    struct ibv_sge list[2] = { { 0, 100, mr->lkey }, { 100, len - 100, mr->lkey } };
    struct ibv_send_wr *bad, wr = { .wr_id = 77, .sg_list = list, .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
    CHECK(!ibv_post_send(tx, &wr, &bad) && !next(sender.cq).status);
    CHECK(next(receiver.cq).byte_len == len && !memcmp(receiver.buffer, sender.buffer, len));
    memset(sender.buffer, 0, len);
    CHECK(!ibv_memcpy_from_dm(sender.buffer, dm, at, len) && !memcmp(receiver.buffer, sender.buffer, len));
    CHECK(!ibv_destroy_flow(to_rx) && !ibv_destroy_qp(rx) && !ibv_dereg_mr(mr) && !ibv_free_dm(dm));
    puts("memory on the card");
}

/* The tag of a rule is in the completion. */
static void tags(struct ibv_qp *tx)
{
    struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_BYTE_LEN };
    struct ibv_cq_ex *cq = ibv_create_cq_ex(receiver.context, &init);
    CHECK(cq);
    struct ibv_qp *rx = make(&receiver, ibv_cq_ex_to_cq(cq), 0);
    post_receives(rx, 2, SLOT);
    struct rule of = rule(IBV_FLOW_ATTR_NORMAL, 0);
    add_mac(&of, A, 0, -1);
    add_tag(&of, 0x123456);
    struct ibv_flow *tagged = flow(rx, of);
    CHECK(tagged);
    uint32_t len = packet(A, 0, 0, 5, 100);
    transmit(tx, len, 0);
    struct ibv_poll_cq_attr none = { 0 };
    int turns = 0, empty;
    while ((empty = ibv_start_poll(cq, &none)) == ENOENT && turns++ < 50000)
        usleep(100);
    CHECK(!empty && !cq->status && ibv_wc_read_flow_tag(cq) == 0x123456 && ibv_wc_read_byte_len(cq) == len);
    ibv_end_poll(cq);
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == EBUSY);
    CHECK(!ibv_destroy_flow(tagged) && !ibv_destroy_qp(rx) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
    puts("tags");
}

/* Tags are taken off where it was asked for, and are in the completion. */
static void stripped_tags(struct ibv_qp *tx)
{
    struct ibv_cq_init_attr_ex of = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_BYTE_LEN };
    struct ibv_cq_ex *cq = ibv_create_cq_ex(receiver.context, &of);
    struct ibv_qp_init_attr_ex init = {
        .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .qp_type = IBV_QPT_RAW_PACKET, .pd = receiver.pd,
        .cap = { .max_recv_wr = 4, .max_recv_sge = 1 }, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
        .create_flags = IBV_QP_CREATE_CVLAN_STRIPPING,
    };
    struct ibv_qp *rx = cq ? ibv_create_qp_ex(receiver.context, &init) : NULL;
    CHECK(rx);
    to_rts(rx);
    post_receives(rx, 2, SLOT);
    struct ibv_flow *mine = to_mac(rx, A, 0);
    uint32_t len = packet(A, 0, 0, 5, 100);
    memmove(sender.buffer + 16, sender.buffer + 12, len - 12);
    memcpy(sender.buffer + 12, "\x81\x00\x60\x09", 4);
    transmit(tx, len + 4, 0);
    struct ibv_poll_cq_attr none = { 0 };
    int turns = 0, empty;
    while ((empty = ibv_start_poll(cq, &none)) == ENOENT && turns++ < 50000)
        usleep(100);
    CHECK(!empty && !cq->status && ibv_wc_read_cvlan(cq) == 0x6009 && ibv_wc_read_byte_len(cq) == len);
    ibv_end_poll(cq);
    CHECK(!memcmp(receiver.buffer, sender.buffer, 12) && !memcmp(receiver.buffer + 12, sender.buffer + 16, len - 12));
    CHECK(!ibv_destroy_flow(mine) && !ibv_destroy_qp(rx) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
    puts("tags taken off");
}

/* A context's own frames come back where that was asked for. */
static void loopback(void)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = receiver.cq, .recv_cq = receiver.cq, .qp_type = IBV_QPT_RAW_PACKET, .pd = receiver.pd,
        .cap = { 4, 4, 1, 1, 0 }, .comp_mask = IBV_QP_INIT_ATTR_PD,
    };
    struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS, .create_flags = MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC };
    struct ibv_qp *both = mlx5dv_create_qp(receiver.context, &init, &dv);
    CHECK(both);
    to_rts(both);
    post_receives(both, 2, SLOT);
    struct ibv_flow *one = to_mac(both, A, 0), *group = to_mac(both, GROUP, 0);
    for (int turn = 0; turn < 2; turn++) {
        uint32_t len = packet(turn ? GROUP : A, 0, 0, 5, 100);
        memcpy(receiver.buffer + 2 * SLOT, sender.buffer, len);
        struct ibv_sge sge = { (uintptr_t)receiver.buffer + 2 * SLOT, len, receiver.mr->lkey };
        struct ibv_send_wr *bad, wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
        CHECK(!ibv_post_send(both, &wr, &bad));
        CHECK(turn ? nothing(receiver.cq) : next(receiver.cq).byte_len == len);
    }
    CHECK(!ibv_destroy_flow(one) && !ibv_destroy_flow(group) && !ibv_destroy_qp(both));
    puts("loopback");
}

static void rates(void)
{
    struct ibv_qp *tx = make(&sender, sender.cq, 0);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .rate_limit = 8000 };
    CHECK(!ibv_modify_qp(tx, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT));
    /* Twenty frames of 1000 bytes, at a megabyte a second. */
    struct ibv_sge sge = { (uintptr_t)sender.buffer, 1000, sender.mr->lkey };
    struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
    struct timespec begin, end;
    packet(A, 0, 0, 5, 958);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 20; i++)
        CHECK(!ibv_post_send(tx, &wr, &bad));
    for (int i = 0; i < 20; i++)
        CHECK(!next(sender.cq).status);
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK((end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec >= 19000000L);
    attr.rate_limit = 100000001;
    CHECK(ibv_modify_qp(tx, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT) == EINVAL && !ibv_destroy_qp(tx));
    puts("rates");
}

/* The doorbell's register: the first words of an entry, which name it and its queue. Without it the card does nothing. */
static void ring(struct mlx5dv_qp *dv, struct ibv_qp *qp, uint32_t index)
{
    uint32_t words[2] = { htobe32(index << 8 | MLX5_OPCODE_SEND), htobe32(qp->qp_num << 8 | 4) };
    uint64_t value;
    memcpy(&value, words, sizeof value);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    *(volatile uint64_t *)dv->bf.reg = value;
}

static void large_sends(void)
{
    struct ibv_qp *tx = make(&sender, sender.cq, 64), *rx = make(&receiver, receiver.cq, 0);
    post_receives(rx, SLOTS, SLOT);
    struct ibv_flow *mine = to_mac(rx, A, 0);
    uint32_t header = 14 + 20 + 20, payload = 3500;
    packet(A, 0, 1, 5, payload);
    struct ibv_sge sge = { (uintptr_t)sender.buffer + header, payload, sender.mr->lkey };
    struct ibv_send_wr *bad, wr = {
        .wr_id = 78, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_TSO, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM,
        .tso = { .hdr = sender.buffer, .hdr_sz = header, .mss = 1000 },
    };
    CHECK(!ibv_post_send(tx, &wr, &bad));
    struct ibv_wc wc = next(sender.cq);
    CHECK(!wc.status && wc.wr_id == 78 && wc.opcode == IBV_WC_TSO);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t len = i < 3 ? 1000 : 500;
        uint8_t *got = receiver.buffer + SLOT * i;
        wc = next(receiver.cq);
        CHECK(!wc.status && wc.byte_len == header + len && (wc.wc_flags & IBV_WC_IP_CSUM_OK));
        CHECK(!memcmp(got + header, sender.buffer + header + 1000 * i, len));
        uint32_t seq = (uint32_t)got[38] << 24 | got[39] << 16 | got[40] << 8 | got[41];
        CHECK(seq == 100 + 1000 * i && got[19] == 9 + i && got[47] == (i < 3 ? 0x10 : 0x19));
    }
    CHECK(nothing(receiver.cq));
    puts("large sends");
    /* Several frames in one entry: libmlx5 writes no such entry itself. */
    struct mlx5dv_qp dv = { 0 };
    struct mlx5dv_obj object = { .qp = { .in = tx, .out = &dv } };
    CHECK(!mlx5dv_init_obj(&object, MLX5DV_OBJ_QP));
    uint32_t len = packet(A, 0, 0, 5, 100), index = be32toh(dv.dbrec[MLX5_SND_DBR]) & 0xffff;
    uint8_t *entry = (uint8_t *)dv.sq.buf + (index % dv.sq.wqe_cnt) * 64;
    memset(entry, 0, 64);
    mlx5dv_set_ctrl_seg((struct mlx5_wqe_ctrl_seg *)entry, index, 0x29, 0, tx->qp_num, MLX5_WQE_CTRL_CQ_UPDATE, 4, 0, 0);
    for (int i = 0; i < 2; i++)
        mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)(entry + 32 + 16 * i), len, sender.mr->lkey, (uintptr_t)sender.buffer);
    dv.dbrec[MLX5_SND_DBR] = htobe32(index + 1);
    CHECK(nothing(receiver.cq));
    ring(&dv, tx, index);
    CHECK(!next(receiver.cq).status && next(receiver.cq).byte_len == len && nothing(receiver.cq));
    puts("several frames in one entry");
    /* (The completion is of an entry that libmlx5 did not post.) */
    CHECK(!ibv_destroy_flow(mine) && !ibv_destroy_qp(rx) && !ibv_destroy_qp(tx));
}

/* What a driver without manners writes: each entry fails as it should, and so does what is behind it. */
static void wrong_entry(const char *what, uint8_t opcode, uint32_t qpn_offset, uint16_t index_offset, uint8_t ds, enum ibv_wc_status status)
{
    struct ibv_qp *tx = make(&sender, sender.cq, 0);
    struct mlx5dv_qp dv = { 0 };
    struct mlx5dv_obj object = { .qp = { .in = tx, .out = &dv } };
    CHECK(!mlx5dv_init_obj(&object, MLX5DV_OBJ_QP));
    memset(dv.sq.buf, 0, 64);
    mlx5dv_set_ctrl_seg(dv.sq.buf, index_offset, opcode, 0, tx->qp_num + qpn_offset, MLX5_WQE_CTRL_CQ_UPDATE, ds, 0, 0);
    mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)((uint8_t *)dv.sq.buf + 32), 60, sender.mr->lkey, (uintptr_t)sender.buffer);
    dv.dbrec[MLX5_SND_DBR] = htobe32(1);
    ring(&dv, tx, 0);
    struct ibv_wc wc = next(sender.cq);
    if (wc.status != status)
        printf("%s: status %d vendor %#x\n", what, wc.status, wc.vendor_err);
    CHECK(wc.status == status && !ibv_destroy_qp(tx));
}

static void failures(void)
{
    uint32_t key = sender.mr->lkey, wrong = key + 0x100000, len = packet(A, 0, 0, 5, 1000);
    struct ibv_qp *tx = make(&sender, sender.cq, 0);
    struct ibv_wc wc = send_flags(tx, len, 0, wrong);
    CHECK(wc.status == IBV_WC_LOC_PROT_ERR && wc.vendor_err == 0x51);
    CHECK(send_flags(tx, len, 0, key).status == IBV_WC_WR_FLUSH_ERR);
    /* RESET, and it sends again. */
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    CHECK(!ibv_modify_qp(tx, &reset, IBV_QP_STATE));
    to_rts(tx);
    transmit(tx, len, 0);
    CHECK(send_flags(tx, 10, 0, key).status == IBV_WC_LOC_QP_OP_ERR && !ibv_destroy_qp(tx));
    tx = make(&sender, sender.cq, 0);
    CHECK(send_flags(tx, 9100, 0, key).status == IBV_WC_LOC_LEN_ERR && !ibv_destroy_qp(tx));
    wrong_entry("ds of zero", MLX5_OPCODE_SEND, 0, 0, 0, IBV_WC_LOC_QP_OP_ERR);
    wrong_entry("ds beyond what is posted", MLX5_OPCODE_SEND, 0, 0, 20, IBV_WC_LOC_QP_OP_ERR);
    wrong_entry("an index of another lap", MLX5_OPCODE_SEND, 0, 64, 3, IBV_WC_LOC_QP_OP_ERR);
    wrong_entry("another queue's number", MLX5_OPCODE_SEND, 1, 0, 3, IBV_WC_LOC_QP_OP_ERR);
    wrong_entry("an opcode of connections", MLX5_OPCODE_RDMA_WRITE, 0, 0, 3, IBV_WC_LOC_QP_OP_ERR);
    puts("wrong sends");
    tx = make(&sender, sender.cq, 0);
    struct ibv_qp *rx = make(&receiver, receiver.cq, 0);
    struct ibv_flow *mine = to_mac(rx, A, 0);
    post_receives(rx, 2, 100);
    packet(A, 0, 0, 5, 1000);
    transmit(tx, len, 0);
    CHECK(next(receiver.cq).status == IBV_WC_LOC_LEN_ERR && next(receiver.cq).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!ibv_destroy_flow(mine) && !ibv_destroy_qp(rx));
    rx = make(&receiver, receiver.cq, 0);
    mine = to_mac(rx, A, 0);
    struct ibv_sge sge = { (uintptr_t)receiver.buffer + ROOM - 100, 2000, receiver.mr->lkey };
    struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
    CHECK(!ibv_post_recv(rx, &wr, &bad));
    transmit(tx, len, 0);
    CHECK(next(receiver.cq).status == IBV_WC_LOC_PROT_ERR);
    CHECK(!ibv_destroy_flow(mine) && !ibv_destroy_qp(rx));
    rx = make(&receiver, receiver.cq, 0);
    post_receives(rx, 2, SLOT);
    struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
    CHECK(!ibv_modify_qp(rx, &error, IBV_QP_STATE));
    CHECK(next(receiver.cq).status == IBV_WC_WR_FLUSH_ERR && next(receiver.cq).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!ibv_destroy_qp(rx) && !ibv_destroy_qp(tx));
    puts("wrong receives");
}

static void hashes(struct ibv_qp *tx)
{
    struct ibv_wq *wqs[2];
    for (int i = 0; i < 2; i++) {
        struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1, .pd = receiver.pd, .cq = receiver.cq };
        CHECK((wqs[i] = ibv_create_wq(receiver.context, &init)));
        struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
        CHECK(!ibv_modify_wq(wqs[i], &ready));
        for (int slot = 0; slot < 16; slot++) {
            struct ibv_sge sge = { (uintptr_t)receiver.buffer, SLOT, receiver.mr->lkey };
            struct ibv_recv_wr *bad, wr = { .wr_id = 1000 * i, .sg_list = &sge, .num_sge = 1 };
            CHECK(!ibv_post_wq_recv(wqs[i], &wr, &bad));
        }
    }
    struct ibv_rwq_ind_table_init_attr table_of = { .log_ind_tbl_size = 1, .ind_tbl = wqs };
    struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(receiver.context, &table_of);
    uint8_t key[40] = { 0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb };
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_RAW_PACKET, .pd = receiver.pd, .rwq_ind_tbl = table,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
        .rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof key, key, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP },
    };
    struct ibv_qp *rx = ibv_create_qp_ex(receiver.context, &init);
    CHECK(table && rx);
    struct ibv_flow *mine = to_mac(rx, A, 0);
    int got[2] = { 0, 0 }, first = -1;
    for (int turn = 0; turn < 12; turn++) {
        /* The same flow comes to the same queue. */
        transmit(tx, packet(A, 0, 0, 100 + turn / 2, 100), 0);
        int to = next(receiver.cq).wr_id >= 1000;
        got[to]++;
        CHECK(turn % 2 == 0 || to == first);
        first = to;
    }
    CHECK(got[0] && got[1]);
    init.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_SRC_IPV6;
    CHECK(!ibv_create_qp_ex(receiver.context, &init) && errno == EINVAL);
    CHECK(ibv_destroy_wq(wqs[0]) == EBUSY && ibv_destroy_rwq_ind_table(table) == EBUSY);
    CHECK(!ibv_destroy_flow(mine) && !ibv_destroy_qp(rx) && !ibv_destroy_rwq_ind_table(table) && !ibv_destroy_wq(wqs[0]) && !ibv_destroy_wq(wqs[1]));
    puts("hashes");
}

static struct ibv_async_event event(struct ibv_context *context)
{
    struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
    struct ibv_async_event event;
    CHECK(poll(&fd, 1, 5000) == 1 && !ibv_get_async_event(context, &event));
    return event;
}

static void events(void)
{
    struct ibv_cq *cq = ibv_create_cq(sender.context, 1, NULL, NULL, 0);
    struct ibv_qp *tx = make(&sender, cq, 0);
    uint32_t len = packet(A, 0, 0, 5, 100);
    struct ibv_sge sge = { (uintptr_t)sender.buffer, len, sender.mr->lkey };
    struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
    for (int i = 0; i < 4; i++)
        CHECK(!ibv_post_send(tx, &wr, &bad));
    struct ibv_async_event full = event(sender.context);
    CHECK(full.event_type == IBV_EVENT_CQ_ERR && full.element.cq == cq);
    ibv_ack_async_event(&full);
    CHECK(!ibv_destroy_qp(tx) && !ibv_destroy_cq(cq));
    /* A peer writes where it may not. */
    struct ibv_qp *rc[2];
    for (int i = 0; i < 2; i++) {
        struct end *end = i ? &receiver : &sender;
        struct ibv_qp_init_attr init = { .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
        CHECK((rc[i] = ibv_create_qp(end->pd, &init)));
    }
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
        CHECK(!ibv_modify_qp(rc[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
        attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = rc[!i]->qp_num, .min_rnr_timer = 1,
                                     .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } } };
        CHECK(!ibv_query_gid(sender.context, 1, 0, &attr.ah_attr.grh.dgid));
        CHECK(!ibv_modify_qp(rc[i], &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
        attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 2 };
        CHECK(!ibv_modify_qp(rc[i], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                               IBV_QP_MAX_QP_RD_ATOMIC));
    }
    wr = (struct ibv_send_wr){ .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                               .wr.rdma = { (uintptr_t)receiver.buffer, receiver.mr->rkey + 0x100000 } };
    CHECK(!ibv_post_send(rc[0], &wr, &bad) && next(sender.cq).status == IBV_WC_REM_ACCESS_ERR);
    struct ibv_async_event refused = event(receiver.context);
    CHECK(refused.event_type == IBV_EVENT_QP_ACCESS_ERR && refused.element.qp == rc[1]);
    ibv_ack_async_event(&refused);
    struct pollfd fd = { .fd = sender.context->async_fd, .events = POLLIN };
    CHECK(poll(&fd, 1, 20) == 0 && "the completion told it");
    CHECK(!ibv_destroy_qp(rc[0]) && !ibv_destroy_qp(rc[1]));
    puts("events");
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_end(&sender);
    open_end(&receiver);
    struct ibv_qp *tx = make(&sender, sender.cq, 0), *rx = make(&receiver, receiver.cq, 0);
    frames(tx, rx);
    CHECK(!ibv_destroy_qp(rx));
    rules(tx);
    device_memory(tx);
    tags(tx);
    stripped_tags(tx);
    hashes(tx);
    CHECK(!ibv_destroy_qp(tx));
    loopback();
    rates();
    large_sends();
    failures();
    events();
    /* The rest ends with the contexts. */
    CHECK(!ibv_close_device(sender.context) && !ibv_close_device(receiver.context));
    puts("done");
    return 0;
}
