/*
 * Doorbells, in whatever way the card sees them: of threads that share registers and block signals, by instructions that libmlx5 does not use, on small stacks for
 * handlers, in a child; a program's own handler for faults; and the card's clock. One line for each thing that is so; the first that is not ends the program.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
    do {                                                                                  \
        if (!(what)) {                                                                    \
            printf("line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);           \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define THREADS 8
#define MESSAGES 300
#define SIZE 64

static struct ibv_context *context;
static struct ibv_pd *pd;

/* Two queue pairs that are connected, each with a completion queue of its own. */
struct pair {
    struct ibv_cq *sent, *received;
    struct ibv_qp *a, *b;
    struct ibv_mr *mr;
    char *buffer;
};

static void connect_to(struct ibv_qp *qp, uint32_t dest)
{
    struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE };
    CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .rq_psn = 7, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
    };
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
    CHECK(!ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_MAX_QP_RD_ATOMIC));
}

static void make(struct pair *pair)
{
    CHECK((pair->sent = ibv_create_cq(context, 16, NULL, NULL, 0)) && (pair->received = ibv_create_cq(context, 16, NULL, NULL, 0)));
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC, .send_cq = pair->sent, .recv_cq = pair->received,
        .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = SIZE },
    };
    CHECK((pair->a = ibv_create_qp(pd, &init)) && (pair->b = ibv_create_qp(pd, &init)));
    connect_to(pair->a, pair->b->qp_num);
    connect_to(pair->b, pair->a->qp_num);
    CHECK((pair->buffer = calloc(2, SIZE)));
    CHECK((pair->mr = ibv_reg_mr(pd, pair->buffer, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE)));
}

static void wait_for(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int found;
    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        sched_yield();
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS);
}

static void post_receive(struct pair *pair)
{
    struct ibv_sge list = { .addr = (uintptr_t)pair->buffer + SIZE, .length = SIZE, .lkey = pair->mr->lkey };
    struct ibv_recv_wr receive = { .sg_list = &list, .num_sge = 1 }, *bad_receive;
    CHECK(!ibv_post_recv(pair->b, &receive, &bad_receive));
}

static void post_send(struct pair *pair, uint64_t what, int flags)
{
    memcpy(pair->buffer, &what, sizeof what);
    struct ibv_sge list = { .addr = (uintptr_t)pair->buffer, .length = SIZE / 2, .lkey = pair->mr->lkey };
    struct ibv_send_wr send = { .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags }, *bad_send;
    CHECK(!ibv_post_send(pair->a, &send, &bad_send));
}

/* A message, from doorbell to completions. */
static void turn(struct pair *pair, uint64_t what, int flags)
{
    post_receive(pair);
    post_send(pair, what, flags);
    wait_for(pair->sent);
    wait_for(pair->received);
    CHECK(!memcmp(pair->buffer + SIZE, &what, sizeof what));
}

static void *talk(void *given)
{
    struct pair *pair = given;
    sigset_t all, old;
    sigfillset(&all);
    CHECK(!pthread_sigmask(SIG_SETMASK, &all, &old));
    for (uint64_t message = 1; message <= MESSAGES; message++)
        turn(pair, message << 8 | pair->a->qp_num, message & 1 ? IBV_SEND_INLINE : 0);
    return NULL;
}

static void threads(void)
{
    struct pair pairs[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        make(&pairs[i]);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, talk, &pairs[i]));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    puts("threads");
}

#ifdef __x86_64__
/* The register is written by 16 bytes at once, and by a string instruction: the entry before, once more. */
static void instructions(struct pair *pair)
{
    struct mlx5dv_qp dv = { 0 };
    struct mlx5dv_obj object = { .qp = { .in = pair->a, .out = &dv } };
    CHECK(!mlx5dv_init_obj(&object, MLX5DV_OBJ_QP));
    turn(pair, 1, 0);
    uint32_t next = be32toh(dv.dbrec[MLX5_SND_DBR]);
    for (int way = 0; way < 5; way++, next++) {
        char *entry = (char *)dv.sq.buf + next % dv.sq.wqe_cnt * dv.sq.stride;
        memcpy(entry, (char *)dv.sq.buf + (next - 1) % dv.sq.wqe_cnt * dv.sq.stride, 64);
        uint32_t *control = (uint32_t *)entry;
        *control = htobe32((be32toh(*control) & 0xff0000ff) | (next & 0xffff) << 8);
        post_receive(pair);
        uint64_t what = 100 + way;
        memcpy(pair->buffer, &what, sizeof what);
        __sync_synchronize();
        dv.dbrec[MLX5_SND_DBR] = htobe32((next + 1) & 0xffff);
        __sync_synchronize();
        char *to = dv.bf.reg, *from = entry;
        uint64_t words = 4;
        if (way == 0)
            asm volatile("movups (%1), %%xmm0\n movups %%xmm0, (%0)" : : "r"(to), "r"(from) : "xmm0", "memory");
        else if (way == 1)
            asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
        else if (way == 2)
            asm volatile("movaps (%1), %%xmm9\n movaps %%xmm9, (%0)" : : "r"(to), "r"(from) : "xmm9", "memory");
        else if (way == 3)
            asm volatile("movdqa (%1), %%xmm1\n movdqa %%xmm1, (%0)" : : "r"(to), "r"(from) : "xmm1", "memory");
        else
            asm volatile("movnti %1, (%0)" : : "r"(to), "r"(*(uint64_t *)from) : "memory");
        wait_for(pair->received);
        CHECK(!memcmp(pair->buffer + SIZE, &what, sizeof what));
    }
    puts("other instructions");
}
#endif

static sigjmp_buf back;
static volatile int faults, sent;
static char *volatile at;

static void on_fault(int number, siginfo_t *info, void *ucontext)
{
    (void)ucontext;
    CHECK(number == SIGSEGV);
    if (info->si_code <= 0) {
        sent++;
        return;
    }
    CHECK(info->si_addr == at);
    if (++faults == 1)
        siglongjmp(back, 1);
    CHECK(!mprotect(at, 4096, PROT_READ | PROT_WRITE));
}

static void handlers(struct pair *pair)
{
    struct sigaction own = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, told;
    sigaddset(&own.sa_mask, SIGUSR1);
    CHECK(!sigaction(SIGSEGV, &own, NULL) && !sigaction(SIGSEGV, NULL, &told));
    CHECK(told.sa_sigaction == on_fault && told.sa_flags & SA_SIGINFO && sigismember(&told.sa_mask, SIGUSR1) == 1);
    at = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    if (!sigsetjmp(back, 1))
        *at = 1;
    CHECK(faults == 1);
    turn(pair, 2, 0);
    *at = 2;
    CHECK(faults == 2 && *at == 2);
    CHECK(!raise(SIGSEGV) && sent == 1);
    turn(pair, 3, 0);
    puts("a handler for faults");

    /* Without one, a fault ends the program. */
    CHECK(signal(SIGSEGV, SIG_DFL) == (sighandler_t)(void *)on_fault);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        mprotect(at, 4096, PROT_NONE);
        *at = 3;
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    puts("a fault that is none's");
}

static void small_stack(struct pair *pair)
{
    char *room = malloc(16384);
    stack_t small = { .ss_sp = room, .ss_size = 16384 }, none = { .ss_flags = SS_DISABLE };
    CHECK(room && !sigaltstack(&small, NULL));
    for (uint64_t message = 0; message < 20; message++)
        turn(pair, message, 0);
    CHECK(!sigaltstack(&none, NULL));
    free(room);
    puts("a small stack");
}

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    CHECK(!clock_gettime(clock, &time));
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* The card's clock, as it can be read. */
static uint64_t counter(void)
{
    struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
    CHECK(!ibv_query_rt_values_ex(context, &values) && values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
    return values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec;
}

static void clocks(int is_trapped)
{
    struct mlx5dv_clock_info info;
    CHECK(!mlx5dv_get_clock_info(context, &info));
    int64_t real = now(CLOCK_REALTIME), by_it = mlx5dv_ts_to_ns(&info, counter());
    CHECK(llabs(by_it - real) < 1000000000);
    uint64_t before = now(CLOCK_MONOTONIC), first = counter(), from = now(CLOCK_MONOTONIC);
    usleep(100000);
    uint64_t to = now(CLOCK_MONOTONIC), second = counter(), after = now(CLOCK_MONOTONIC);
    CHECK(second > first);
    /* Where each look at it is seen, it is what the time was then. */
    CHECK(!is_trapped || (second - first >= to - from && second - first <= after - before));
    CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, context->cmd_fd, 5 << 20) == MAP_FAILED && errno == EPERM);
    CHECK(mmap(NULL, 8192, PROT_READ, MAP_SHARED, context->cmd_fd, 7 << 20) == MAP_FAILED && errno == EINVAL);
    puts("the clock");
}

/* What a child rings for is not the parent's. */
static void children(struct pair *pair)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        post_send(pair, 77, IBV_SEND_INLINE);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (uint64_t message = 0; message < 20; message++)
        turn(pair, message, 0);
    puts("a child");
}

/* The parent ends, and its child does not: its number is told. */
static void leave_a_child(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        for (int fd = 0; fd < 3; fd++)
            close(fd);
        sleep(30);
        _exit(0);
    }
    printf("%d\n", child);
}

static struct pair alarmed;
static volatile int alarms;

static void alarm_in(int usec)
{
    struct itimerval in = { .it_value.tv_usec = usec };
    CHECK(!setitimer(ITIMER_REAL, &in, NULL));
}

static void on_alarm(int number)
{
    (void)number;
    turn(&alarmed, ++alarms, 0);
    alarm_in(50 + alarms * 37 % 400);
}

/* A handler that rings, and waits for what comes of it, whatever the thread is in the middle of: commands, and forks. (None of these calls malloc.) */
static void interrupted(struct pair *pair)
{
    struct sigaction own = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    make(&alarmed);
    CHECK(!sigaction(SIGALRM, &own, NULL));
    alarm_in(100);
    while (alarms < 100) {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        struct ibv_port_attr port;
        CHECK(!ibv_query_qp(pair->a, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
        CHECK(!ibv_query_port(context, 1, &port));
    }
    for (int child = 0; child < 20; child++) {
        pid_t made = fork();
        CHECK(made >= 0);
        if (!made)
            _exit(0);
        int status;
        CHECK(waitpid(made, &status, 0) == made && WIFEXITED(status) && !WEXITSTATUS(status));
    }
    CHECK(signal(SIGALRM, SIG_IGN) != SIG_ERR);
    alarm_in(0);
    puts("a handler that waits");
}

static struct mlx5dv_qp registers_of(struct pair *pair)
{
    struct mlx5dv_qp dv = { 0 };
    struct mlx5dv_obj object = { .qp = { .in = pair->a, .out = &dv } };
    CHECK(!mlx5dv_init_obj(&object, MLX5DV_OBJ_QP));
    return dv;
}

static volatile uint64_t *rung_at;
static uint64_t rung_with;

static void *ring(void *given)
{
    (void)given;
    int type;
    CHECK(!pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type));
    for (;;)
        *rung_at = rung_with;
    return NULL;
}

/* Threads that are cancelled while they ring, at whatever instruction. */
static void cancelled(struct pair *pair)
{
    turn(pair, 5, 0);
    struct mlx5dv_qp dv = registers_of(pair);
    /* (The doorbell of the entry before, again and again.) */
    uint32_t last = be32toh(dv.dbrec[MLX5_SND_DBR]) - 1;
    memcpy(&rung_with, (char *)dv.sq.buf + last % dv.sq.wqe_cnt * dv.sq.stride, sizeof rung_with);
    rung_at = dv.bf.reg;
    for (int round = 0; round < 40; round++) {
        pthread_t thread;
        void *end;
        CHECK(!pthread_create(&thread, NULL, ring, NULL));
        usleep(500 + round * 37 % 1000);
        CHECK(!pthread_cancel(thread) && !pthread_join(thread, &end) && end == PTHREAD_CANCELED);
    }
    turn(pair, 6, 0);
    puts("threads that are cancelled");
}

#ifdef __x86_64__
#define TRAP_FLAG 0x100
static volatile int traps, left;

static void on_tick(int number, siginfo_t *info, void *of)
{
    (void)number, (void)info;
    ucontext_t *interrupted = of;
    /* The one instruction is to be executed next: it never is. */
    if (interrupted->uc_mcontext.gregs[REG_EFL] & TRAP_FLAG) {
        left = 1;
        siglongjmp(back, 1);
    }
}

static void on_trap(int number)
{
    CHECK(number == SIGTRAP);
    traps++;
}

/* Whether a page may be written to without a fault. */
static int is_open(char *page)
{
    char line[512];
    int found = 0, open = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char access[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, access) == 3 && from <= (uintptr_t)page && (uintptr_t)page < to)
            found = 1, open = access[1] == 'w';
    }
    fclose(maps);
    CHECK(found);
    return open;
}

/* A handler leaves by siglongjmp while an instruction is about to be executed with the page open to it. The program's own breakpoints are its own then, and the page is closed again. */
static void left_behind(struct pair *pair)
{
    turn(pair, 7, 0);
    char *page = (char *)((uintptr_t)registers_of(pair).bf.reg & ~4095ul);
    struct sigaction tick = { .sa_sigaction = on_tick, .sa_flags = SA_SIGINFO };
    CHECK(!sigaction(SIGALRM, &tick, NULL) && signal(SIGTRAP, on_trap) != SIG_ERR);
    struct itimerval often = { .it_value.tv_usec = 100, .it_interval.tv_usec = 100 }, never = { 0 };
    CHECK(!setitimer(ITIMER_REAL, &often, NULL));
    if (!sigsetjmp(back, 1))
        for (;;) {
            /* (Nothing rings there.) */
            char *to = page + 64;
            uint64_t word = 0, *from = &word, words = 1;
            asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
        }
    CHECK(!setitimer(ITIMER_REAL, &never, NULL) && signal(SIGALRM, SIG_IGN) != SIG_ERR && left);
    asm volatile("int3");
    CHECK(traps == 1);
    for (int turns = 0; turns < 500 && is_open(page); turns++)
        usleep(10000);
    CHECK(!is_open(page));
    turn(pair, 8, 0);
    puts("a step that was left");
}
#endif

/* The register page is moved, and rung at where it is then. */
static void moved(struct pair *pair)
{
    turn(pair, 9, 0);
    struct mlx5dv_qp dv = registers_of(pair);
    char *page = (char *)((uintptr_t)dv.bf.reg & ~4095ul);
    uint32_t next = be32toh(dv.dbrec[MLX5_SND_DBR]);
    char *entry = (char *)dv.sq.buf + next % dv.sq.wqe_cnt * dv.sq.stride;
    memcpy(entry, (char *)dv.sq.buf + (next - 1) % dv.sq.wqe_cnt * dv.sq.stride, 64);
    uint32_t *control = (uint32_t *)entry;
    *control = htobe32((be32toh(*control) & 0xff0000ff) | (next & 0xffff) << 8);
    post_receive(pair);
    char *elsewhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(elsewhere != MAP_FAILED && mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
    __sync_synchronize();
    dv.dbrec[MLX5_SND_DBR] = htobe32((next + 1) & 0xffff);
    __sync_synchronize();
    *(volatile uint64_t *)(elsewhere + ((char *)dv.bf.reg - page)) = *(uint64_t *)entry;
    wait_for(pair->received);
    CHECK(mremap(elsewhere, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
    puts("registers that are moved");
}

/* All descriptors are closed that the program has not opened, as daemons do. */
static void closed(struct pair *pair)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel);
    for (int fd = 3; fd < 2000; fd++)
        if (fd != context->cmd_fd && fd != context->async_fd && fd != channel->fd)
            close(fd);
    turn(pair, 10, 0);
    closefrom(channel->fd > context->async_fd ? channel->fd + 1 : context->async_fd + 1);
    turn(pair, 11, 0);
    struct pair other;
    make(&other);
    turn(&other, 12, 0);
    counter();
    struct ibv_alloc_dm_attr attr = { .length = 64 };
    struct ibv_dm *memory = ibv_alloc_dm(context, &attr);
    uint64_t word = 77, read = 0;
    CHECK(memory && !ibv_memcpy_to_dm(memory, 0, &word, sizeof word) && !ibv_memcpy_from_dm(&read, memory, 0, sizeof read) && read == word);
    CHECK(!ibv_free_dm(memory) && !ibv_destroy_comp_channel(channel));
    puts("descriptors that are closed");
}

/* (What is counted nowhere.) */
static void disturbed(void)
{
    struct pair pair;
    make(&pair);
    interrupted(&pair);
    cancelled(&pair);
#ifdef __x86_64__
    const char *mode = getenv("RINGWAY_CONNECTX_DOORBELLS");
    if (mode && !strcmp(mode, "trap"))
        left_behind(&pair);
#endif
    struct pair other;
    make(&other);
    moved(&other);
    make(&pair);
    closed(&pair);
    CHECK(!ibv_close_device(context));
    puts("done");
}

int main(int arguments, char **argument)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1 && (context = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(context)));
    ibv_free_device_list(list);
    struct pair pair;
    if (arguments > 1 && !strcmp(argument[1], "leave")) {
        make(&pair);
        leave_a_child();
        return 0;
    }
    if (arguments > 1 && !strcmp(argument[1], "disturbed")) {
        setvbuf(stdout, NULL, _IONBF, 0);
        disturbed();
        return 0;
    }
    threads();
#ifdef __x86_64__
    /* (libmlx5 knows nothing of what is posted there.) */
    make(&pair);
    instructions(&pair);
#else
    puts("other instructions");
#endif
    make(&pair);
    handlers(&pair);
    small_stack(&pair);
    const char *mode = getenv("RINGWAY_CONNECTX_DOORBELLS");
    clocks(mode && !strcmp(mode, "trap"));
    make(&pair);
    children(&pair);
    CHECK(!ibv_close_device(context));
    puts("done");
    return 0;
}
