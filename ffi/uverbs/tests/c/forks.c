/*
 * Forks while another thread uses the card: parent and children go on. The thread has a lock while it does, which is held over forks as well, by a handler that is registered before
 * any constructor runs: the card's own lock has to be taken behind it.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(holds)                                                  \
    do {                                                              \
        if (!(holds)) {                                               \
            printf("line %d: not so: %s\n", __LINE__, #holds);        \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static struct ibv_context *open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
    ibv_free_device_list(list);
    return context;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take(void)
{
    pthread_mutex_lock(&lock);
}

static void leave(void)
{
    pthread_mutex_unlock(&lock);
}

static void begin_first(void)
{
    /* (A malloc's handlers are older.) */
    void *volatile some = malloc(1);
    free(some);
    pthread_atfork(take, leave, leave);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = begin_first;

static volatile int is_over;

static void *uses(void *context)
{
    while (!is_over) {
        take();
        struct ibv_pd *pd = ibv_alloc_pd(context);
        struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
        CHECK(pd && cq && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
        leave();
    }
    return NULL;
}

int main(void)
{
    struct ibv_context *context = open_device();
    pthread_t thread;
    CHECK(context && !pthread_create(&thread, NULL, uses, context));
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            struct ibv_context *own = open_device();
            struct ibv_pd *pd = own ? ibv_alloc_pd(own) : NULL;
            _exit(pd && !ibv_dealloc_pd(pd) && !ibv_close_device(own) ? 0 : 2);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    }
    is_over = 1;
    CHECK(!pthread_join(thread, NULL) && !ibv_close_device(context));
    puts("done");
    return 0;
}
