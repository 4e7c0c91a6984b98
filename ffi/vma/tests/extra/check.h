/* What the programs that print what is wrong, and nothing else, share. */
#include "../abi/common.h"

#include <mellanox/vma_extra.h>

static struct vma_api_t *vma;
static int wrong;

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            wrong = 1;                                                                               \
            printf("%s:%d: %s (errno %s)\n", __func__, __LINE__, #condition, strerrorname_np(errno)); \
        }                                                                                            \
    } while (0)

#define FAILS(call, code)                                                                            \
    do {                                                                                             \
        errno = 0;                                                                                   \
        CHECK((call) == -1 && errno == (code));                                                      \
    } while (0)

/* The most bytes of a datagram that the program is to see: a longer one would leave a card's port by the kernel, in fragments. */
static inline int longest(void) {
    return has_mirror() ? 8900 : 60000;
}

/* Two ends of a connection; what is sent on the first goes out at once. */
static inline void pair(int ends[2]) {
    int one = 1;
    stream_pair(ends);
    MUST(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
}
