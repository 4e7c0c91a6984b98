/*
 * Does what the lines of its input say, so that there is something to tell of: work, fork, close. Prints a line for each.
 */
#include "../abi/common.h"

#include <sys/syscall.h>

#include <mellanox/vma_extra.h>

enum { DATAGRAMS = 100, BYTES = 300000 };

static int receiver, sender, pair[2], extra = -1;
static char bytes[BYTES];

/* 100 datagrams of 14 bytes, of which each is waited for; one receive too many; and 300000 bytes over a connection, and 10 back. */
static void work(void) {
    char buffer[64];
    for (int i = 0; i < DATAGRAMS; i++) {
        MUST(send(sender, "fourteen bytes", 14, 0));
        MUST(recv(receiver, buffer, sizeof buffer, 0));
    }
    recv(receiver, buffer, sizeof buffer, MSG_DONTWAIT);
    size_t sent = 0, got = 0;
    while (got < BYTES) {
        if (sent < BYTES) {
            ssize_t n = send(pair[0], bytes + sent, BYTES - sent, MSG_DONTWAIT);
            sent += n > 0 ? n : 0;
        }
        static char sink[BYTES];
        ssize_t n = recv(pair[1], sink, sizeof sink, MSG_DONTWAIT);
        got += n > 0 ? n : 0;
    }
    MUST(send(pair[1], bytes, 10, 0));
    MUST(recv(pair[0], buffer, 10, MSG_WAITALL));
}

/* Three datagrams that reach nobody, and one that is received by reference and kept. */
static void extra_api(void) {
    struct vma_api_t *vma = vma_get_api();
    char buffer[256];
    int flags = 0;
    for (int i = 0; i < 3; i++)
        MUST(send(sender, "warm", 4, VMA_SND_FLAGS_DUMMY));
    MUST(send(sender, "kept", 4, 0));
    MUST(vma->recvfrom_zcopy(receiver, buffer, sizeof buffer, &flags, NULL, NULL));
}

/* The receiver's rings are those of a number. */
static void choose_rings(void) {
    struct vma_ring_alloc_logic_attr wanted = {
        .comp_mask = VMA_RING_ALLOC_MASK_RING_USER_ID | VMA_RING_ALLOC_MASK_RING_INGRESS | VMA_RING_ALLOC_MASK_RING_ENGRESS,
        .ring_alloc_logic = RING_LOGIC_PER_USER_ID,
        .user_id = 77,
        .ingress = 1,
        .engress = 1,
    };
    MUST(setsockopt(receiver, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &wanted, sizeof wanted));
}

static void *receive_often(void *unused) {
    char buffer[64];
    for (int i = 0; i < 50; i++) {
        MUST(send(sender, "x", 1, 0));
        MUST(recv(receiver, buffer, sizeof buffer, 0));
    }
    return unused;
}

/* The receiver is on the ring of the thread that asks; another one uses it from then on. */
static void use_in_another_thread(void) {
    pthread_t thread;
    int ring;
    MUST(vma_get_api()->get_socket_rings_fds(receiver, &ring, 1));
    pthread_create(&thread, NULL, receive_often, NULL);
    pthread_join(thread, NULL);
}

/* Past the library: what it is connected to is the kernel's. */
static int plain_client(struct sockaddr_in to) {
    int fd = MUST(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
    MUST(syscall(SYS_connect, fd, &to, sizeof to));
    return fd;
}

/* A listener, a connection from a plain client to it, and one to a plain listener. */
static void kernels(void) {
    struct sockaddr_in where, plain;
    int listening = listener(&where);
    plain_client(where);
    int accepted = MUST(accept(listening, NULL, NULL));
    int server = MUST(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
    plain = loopback(0);
    MUST(syscall(SYS_bind, server, &plain, sizeof plain));
    MUST(syscall(SYS_listen, server, 16));
    socklen_t len = sizeof plain;
    MUST(syscall(SYS_getsockname, server, &plain, &len));
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(client, SA(plain), sizeof plain));
    printf("kernels %d %d %d %d %d\n", listening, accepted, client, ntohs(where.sin_port), ntohs(plain.sin_port));
    extra = client;
}

/* One end closes, and then the other. */
static void part(void) {
    char byte;
    MUST(close(pair[0]));
    MUST(recv(pair[1], &byte, 1, 0));
    MUST(close(pair[1]));
}

/* A listener with a connection that nobody accepts. */
static void wait_in_line(void) {
    struct sockaddr_in where;
    int listening = listener(&where);
    extra = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(extra, SA(where), sizeof where));
    printf("waits %d\n", listening);
}

/* By a rule for that address. */
static void listen_by_rule(void) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)};
    extra = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(bind(extra, SA(where), sizeof where));
    MUST(listen(extra, 16));
    printf("listens %d\n", extra);
}

static void name_often(void) {
    struct sockaddr_in where;
    socklen_t len = sizeof where;
    for (int i = 0; i < 5; i++) {
        MUST(getsockname(sender, SA(where), &len));
        MUST(getsockname(receiver, SA(where), &len));
    }
}

/* As a program does that looks at every file of a folder. */
static void look_at_own_file(void) {
    char name[64], byte;
    snprintf(name, sizeof name, "vmastat.%d", (int)getpid());
    int fd = MUST(open(name, O_RDWR));
    MUST(read(fd, &byte, 1));
    MUST(close(fd));
}

/* A child with a state of its own, which waits for the end of its input. */
static void with_child(void) {
    int go[2], said[2];
    char c;
    MUST(pipe(go));
    MUST(pipe(said));
    pid_t child = MUST(fork());
    if (child == 0) {
        close(go[1]);
        struct sockaddr_in where;
        datagram(&where);
        MUST(write(said[1], "x", 1));
        c = read(go[0], &c, 1);
        exit(0);
    }
    MUST(read(said[0], &c, 1));
    printf("child %d\n", child);
    fflush(stdout);
    fgetc(stdin);
    close(go[1]);
    waitpid(child, NULL, 0);
}

int main(void) {
    struct sockaddr_in where;
    receiver = datagram(&where);
    sender = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(connect(sender, SA(where), sizeof where));
    stream_pair(pair);
    printf("ready %d %d %d %d\n", receiver, sender, pair[0], pair[1]);
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "work\n") == 0)
            work();
        else if (strcmp(line, "fork\n") == 0)
            with_child();
        else if (strcmp(line, "exec\n") == 0)
            execl("./broken", "broken", NULL);
        else if (strcmp(line, "open\n") == 0)
            extra = MUST(socket(AF_INET, SOCK_DGRAM, 0));
        else if (strcmp(line, "look\n") == 0)
            look_at_own_file();
        else if (strcmp(line, "extra\n") == 0)
            extra_api();
        else if (strcmp(line, "rings\n") == 0)
            choose_rings();
        else if (strcmp(line, "migrate\n") == 0)
            use_in_another_thread();
        else if (strcmp(line, "kernels\n") == 0)
            kernels();
        else if (strcmp(line, "rule\n") == 0)
            listen_by_rule();
        else if (strcmp(line, "part\n") == 0)
            part();
        else if (strcmp(line, "wait\n") == 0)
            wait_in_line();
        else if (strcmp(line, "name\n") == 0)
            name_often();
        else if (strcmp(line, "join\n") == 0) {
            struct ip_mreq group = {.imr_multiaddr.s_addr = htonl(0xef010203), .imr_interface.s_addr = htonl(INADDR_LOOPBACK)};
            MUST(setsockopt(receiver, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
            MUST(setsockopt(receiver, IPPROTO_IP, IP_MULTICAST_IF, &group.imr_interface, sizeof group.imr_interface));
            MUST(setsockopt(receiver, IPPROTO_IP, IP_MULTICAST_LOOP, &(int){0}, sizeof(int)));
        } else if (strcmp(line, "close\n") == 0)
            MUST(close(extra));
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
