/* A malloc such as jemalloc, preloaded behind the card: its lock is held from before a fork until after it, by handlers that it registers when it is first called, before any
 * constructor runs. Whoever wants memory meanwhile, in the parent or in the child, waits for ever. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *place, size_t size);
void __libc_free(void *place);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void before(void)
{
    pthread_mutex_lock(&lock);
}

static void after(void)
{
    pthread_mutex_unlock(&lock);
}

static void begin(void)
{
    static int is_begun;
    if (!is_begun) {
        is_begun = 1;
        pthread_atfork(before, after, after);
    }
    before();
}

void *malloc(size_t size)
{
    begin();
    void *place = __libc_malloc(size);
    after();
    return place;
}

void *calloc(size_t count, size_t size)
{
    begin();
    void *place = __libc_calloc(count, size);
    after();
    return place;
}

void *realloc(void *old, size_t size)
{
    begin();
    void *place = __libc_realloc(old, size);
    after();
    return place;
}

void free(void *place)
{
    int saved = errno;
    begin();
    __libc_free(place);
    after();
    errno = saved;
}
