// An ordinary server and its client: `plain server ADDRESS CARRIER`, and `plain client ADDRESS CARRIER`, which is rsocket or kernel.
#include "../c/check.h"

#define LEN 300000

static char bytes[LEN], back[LEN];

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    int is_expected = strcmp(argv[3], "rsocket") == 0;
    struct sockaddr_in address = at(7472);
    CHECK(inet_pton(AF_INET, argv[2], &address.sin_addr) == 1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    if (strcmp(argv[1], "server") == 0) {
        CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 4) == 0);
        CHECK(write(1, "ready\n", 6) == 6);
        struct sockaddr_in peer;
        socklen_t len = sizeof peer;
        int accepted = accept(fd, (struct sockaddr *)&peer, &len);
        CHECK(accepted >= 0 && peer.sin_addr.s_addr != address.sin_addr.s_addr);
        CHECK(is_rsocket(accepted) == is_expected);
        recv_all(accepted, bytes, LEN);
        send_all(accepted, bytes, LEN);
        CHECK(recv(accepted, bytes, 1, 0) == 0);
        return 0;
    }
    for (int i = 0; i < LEN; i++)
        bytes[i] = i * 7 + i / 251;
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(is_rsocket(fd) == is_expected);
    send_all(fd, bytes, LEN);
    recv_all(fd, back, LEN);
    CHECK(memcmp(bytes, back, LEN) == 0);
    CHECK(close(fd) == 0);
    return 0;
}
