// A callback that throws: the exception passes through the call that it runs in, and nothing of the library stays behind.
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>
#include <mellanox/vma_extra.h>
#include <poll.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>

static struct vma_api_t *vma;
static bool wrong, throws;
static int calls;

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            wrong = true;                                                                      \
            std::printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno);       \
        }                                                                                      \
    } while (0)

static vma_recv_callback_retval_t look(int, size_t, struct iovec *, struct vma_info_t *, void *)
{
    calls++;
    if (throws)
        throw std::runtime_error("thrown");
    return VMA_PACKET_RECV;
}

template <typename Call> static void catches(int sender, Call call)
{
    bool caught = false;
    throws = true;
    CHECK(send(sender, "lost", 4, 0) == 4);
    usleep(20000);
    try {
        call();
        CHECK(!"it did not throw");
    } catch (const std::runtime_error &error) {
        caught = std::strcmp(error.what(), "thrown") == 0;
    }
    CHECK(caught);
    throws = false;
}

int main()
{
    vma = vma_get_api();
    if (vma == nullptr) {
        std::printf("no table\n");
        return 2;
    }
    struct sockaddr_in where = {};
    socklen_t len = sizeof where;
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int r = socket(AF_INET, SOCK_DGRAM, 0), s = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(r, reinterpret_cast<struct sockaddr *>(&where), sizeof where) == 0);
    CHECK(getsockname(r, reinterpret_cast<struct sockaddr *>(&where), &len) == 0);
    CHECK(connect(s, reinterpret_cast<struct sockaddr *>(&where), sizeof where) == 0);
    CHECK(vma->register_recv_callback(r, look, nullptr) == 0);
    char room[10];
    auto next = [&] {
        CHECK(send(s, "next", 4, 0) == 4);
        CHECK(recv(r, room, sizeof room, 0) == 4 && std::memcmp(room, "next", 4) == 0);
    };
    for (int i = 0; i < 100; i++) {
        catches(s, [&] { recv(r, room, sizeof room, i % 2 ? MSG_DONTWAIT : 0); });
        next();
    }
    catches(s, [&] {
        struct pollfd fd = {r, POLLIN, 0};
        poll(&fd, 1, -1);
    });
    next();
    catches(s, [&] {
        int flags = 0;
        char buffer[64];
        vma->recvfrom_zcopy(r, buffer, sizeof buffer, &flags, nullptr, nullptr);
    });
    // Another thread goes on with it, while this one never calls anything again.
    std::thread(next).join();
    CHECK(calls == 100 * 2 + 2 + 2);
    return wrong;
}
