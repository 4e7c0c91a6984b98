/*
 * The VMA Extra API, as Ringway's libvma.so offers it: what the socket calls have no words for. A program includes this header, is not
 * linked with anything, and asks at run time whether the library is there:
 *
 *	struct vma_api_t *vma = vma_get_api();
 *
 *	if (vma == NULL)
 *		// not preloaded: use the socket calls
 *	else
 *		vma->recvfrom_zcopy(...);
 *
 * Conventions. Functions return -1 and set errno on failure unless they say otherwise. Every pointer that is handed in is checked for
 * NULL (EINVAL or EFAULT, as told with each function). Packets and buffers that the library lends are named by what it returned and
 * nothing else: a name that is made up, or was given back before, is an error (ENOENT or EINVAL) and touches no memory. All functions
 * may be called from any thread, and may be mixed with the socket calls. What is lent is the process's that received it: a child of a fork has
 * no packets, and must not read them, for they may lie in memory that it does not have. A function that can only fail here,
 * whatever its arguments, fails with EOPNOTSUPP where they are right, and its bit in vma_extra_supported_mask is off. An option or flag that it does not serve fails with
 * ENOPROTOOPT or EINVAL.
 *
 * Layouts. This is the table that libvma 9.8.70 and later have, with two functions behind it that libvma had up to 9.2
 * (vma_cyclic_buffer_read, get_mem_info). A program that was compiled with the header of libvma 9.0 to 9.2 runs with
 * VMA_API_LAYOUT=9.2 in its environment (or its own release: 9.1, 9.2.2), one of libvma 8.4 (vma_poll) with VMA_API_LAYOUT=8.4: then the
 * table, the structures and the constants are those of that header. One of 9.3 to 9.8.31 that calls get_dpcp_devices, in whose place ioctl
 * now is, sets that release, and the call fails with EOPNOTSUPP. Programs of 8.5 to 9.8 that use nothing behind dump_fd_stats need no setting but for the
 * structures of 8.5 and 8.6.0, which are those of 8.4 and are not told apart from outside.
 *
 * Languages. C from C90 on and C++ from C++98 on, as gcc has them, without a warning from -Wall -Wextra -pedantic: what is theirs and not
 * the language's (members without a length or a name, __inline in C90) is spelt as they ask for it.
 */
#ifndef VMA_EXTRA_H
#define VMA_EXTRA_H

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

/* --- flags and options ------------------------------------------------------------------------------------------------------------ */

/* recvfrom_zcopy, in *flags. In: fail rather than copy. */
#define MSG_VMA_ZCOPY_FORCE 0x01000000
/* recvfrom_zcopy, in *flags. Out: the buffer holds a struct vma_packets_t, not data. */
#define MSG_VMA_ZCOPY 0x00040000

/*
 * A flag of send, sendto, sendmsg and sendmmsg: goes the whole way of a packet but the last step, to keep that way in the processor's
 * caches. Nothing reaches the peer, and a connection knows nothing of it. Returns as the call does without it; -1 and EINVAL where the kernel would
 * send it, or the device cannot drop it (VMA_TRACELEVEL=debug says: "HW Dummy send support for QP = 0"); -1 and EAGAIN on a TCP socket that has
 * unsent data, or where it is not one piece of memory (of at least a byte, and at most a segment), or more than may be sent now.
 */
#define VMA_SND_FLAGS_DUMMY 0x400

/* getsockopt(-1, SOL_SOCKET, ...): a pointer to the table. See vma_get_api(). */
#define SO_VMA_GET_API 2800
/* set/getsockopt, 8 bytes: what completions of this socket carry in user_data. Default: the descriptor. EINVAL: another length. An accepted
 * connection has its own default, not its listener's value. */
#define SO_VMA_USER_DATA 2801
/* setsockopt, struct vma_ring_alloc_logic_attr: which ring the socket uses. A socket that is on a ring goes over to the other one, with what waits
 * there to be polled; accepted connections have their listener's. EINVAL: another length, no bit in comp_mask, no such logic, or a second profile. */
#define SO_VMA_RING_ALLOC_LOGIC 2810
/*
 * setsockopt, struct iovec: memory of the program's for the packets of a cyclic ring, for as long as the socket lives; before the socket has its
 * ring. Sockets that name other memory have other rings, whatever SO_VMA_RING_ALLOC_LOGIC says; those that name the same share it, until the last is
 * closed. EINVAL: another length, none, or too little for the profile that the socket has named (or names afterwards).
 */
#define SO_VMA_RING_USER_MEMORY 2811
/* set/getsockopt, 4 bytes: a tag that the device puts on the socket's packets. EINVAL: 0, 2^20 - 1 and more, or another length. (A device
 * that steers by itself, as shared memory does, has no use for it; it is kept, and told.) */
#define SO_VMA_FLOW_TAG 2820
/*
 * setsockopt, any value: the socket receives nothing from the device any more. What others send to a UDP socket or listener goes to the kernel's
 * half of it; a connection's peer sees a reset when it sends.
 */
#define SO_VMA_SHUTDOWN_RX 2821

/* ioctl: a control message with struct vma_cmsg_ioctl_user_alloc_t. */
#define CMSG_VMA_IOCTL_USER_ALLOC 2900

enum { VMA_IOCTL_USER_ALLOC_FLAG_TX = 1 << 0, VMA_IOCTL_USER_ALLOC_FLAG_RX = 1 << 1 };

/*
 * The program's allocator for the library's packet buffers (ioctl). flags: which of them. memfree gets what memalloc returned. It must use no
 * socket: it is called in the middle of receiving. Of the shared-memory device, received packets of up to some 190 bytes lie there; longer ones,
 * and whatever is sent, lie in memory that the peers see too, so that VMA_IOCTL_USER_ALLOC_FLAG_TX alone is EOPNOTSUPP.
 */
#pragma pack(push, 1)
struct vma_cmsg_ioctl_user_alloc_t {
	uint8_t flags;
	void *(*memalloc)(size_t);
	void (*memfree)(void *);
};
#pragma pack(pop)

/* --- received packets ------------------------------------------------------------------------------------------------------------- */

/* What a completion tells of, in events; besides, the bits of epoll (EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP). */
__extension__ typedef enum {
	VMA_SOCKETXTREME_PACKET = ((uint64_t)1 << 32), /* packet is set */
	VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED = ((uint64_t)1 << 33) /* user_data is the new connection's; src, listen_fd are set */
} vma_socketxtreme_events_t;

/*
 * A piece of a packet, where the device put it. The program may read and write there until it gives the packet back.
 *
 * On shared memory, payload of more than some 200 bytes lies in its sender's memory, which no write reaches: the first one to a
 * page gives this program a copy of it, and what is lent from then on is copied beforehand. That first write is a SIGSEGV, which
 * the library handles before the program's handler sees it; so from vma_get_api() on, pthread_sigmask and sigprocmask block all
 * signals but that one. Threads that blocked it before, signal handlers whose sa_mask has it, and system calls that are to write
 * there, need RINGWAY_LEND_COPIES=1, with which payload is copied from the start.
 */
struct vma_buff_t {
	struct vma_buff_t *next; /* NULL: the last one */
	void *payload;
	uint16_t len;
};

/* A packet, or what arrived of a stream since the last completion. */
struct vma_packet_desc_t {
	size_t num_bufs;
	uint16_t total_len; /* of all buffers */
	struct vma_buff_t *buff_lst;
	struct timespec hw_timestamp; /* zero unless SO_TIMESTAMPING asks for SOF_TIMESTAMPING_RAW_HARDWARE, and the device has it; where it has not, as
				     * shared memory, that takes the socket off its ring */
};

/*
 * See socketxtreme_poll(). The parts that the events do not speak of are zero, and listen_fd is -1. Data, and what else is to be told of a socket, may
 * come in one completion (EPOLLOUT with VMA_SOCKETXTREME_PACKET); the end of a stream (EPOLLIN | EPOLLRDHUP) comes in one behind its last data,
 * EPOLLHUP when both directions have ended, EPOLLERR when SO_ERROR has something to tell; each of them once.
 */
struct vma_completion_t {
	struct vma_packet_desc_t packet;
	uint64_t events;
	uint64_t user_data; /* the descriptor, or what SO_VMA_USER_DATA said */
	struct sockaddr_in src; /* with VMA_SOCKETXTREME_PACKET and VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED */
	int listen_fd; /* with VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED: the listener */
};

#pragma pack(push, 1)
/* A packet that recvfrom_zcopy lends. */
struct vma_packet_t {
	void *packet_id; /* for free_packets */
	size_t sz_iov;
	__extension__ struct iovec iov[]; /* sz_iov of them */
};

/*
 * What recvfrom_zcopy fills the buffer with. Entries differ in size: the one behind p is at
 * (char *)p + sizeof(struct vma_packet_t) + p->sz_iov * sizeof(struct iovec).
 */
struct vma_packets_t {
	size_t n_packet_num;
	__extension__ struct vma_packet_t pkts[];
};

/* What a receive callback is told beside the data. Valid until it returns. */
struct vma_info_t {
	size_t struct_sz; /* of this structure, as the library knows it */
	void *packet_id; /* for free_packets, after VMA_PACKET_HOLD */
	struct sockaddr_in *src;
	struct sockaddr_in *dst;
	size_t payload_sz; /* bytes in iov (libvma left this field undefined) */
	uint32_t socket_ready_queue_pkt_count; /* waiting in the socket */
	uint32_t socket_ready_queue_byte_count;
	struct timespec hw_timestamp; /* zero, unless asked for by SO_TIMESTAMPING */
	struct timespec sw_timestamp; /* zero, unless asked for by SO_TIMESTAMP, SO_TIMESTAMPNS or SO_TIMESTAMPING */
};
#pragma pack(pop)

/* What a receive callback decides. */
typedef enum {
	VMA_PACKET_DROP = 0, /* forget it; of a stream: the bytes are acknowledged and gone */
	VMA_PACKET_RECV = 1, /* queue it for the receive calls */
	VMA_PACKET_HOLD = 2 /* the program keeps it, until free_packets */
} vma_recv_callback_retval_t;

/*
 * Called for each packet (UDP), or for each segment that arrives in order while nothing waits to be read (TCP), before it is queued, in a
 * thread of the program's that is inside one of its own calls that receive or wait: read, readv, recv, recvfrom, recvmsg, recvmmsg, splice,
 * recvfrom_zcopy, poll, select, epoll_wait and their kin, on this socket or any other. What arrives meanwhile waits, and is not there for
 * anybody: no call that waits ends for a packet that is dropped. For one that is held, poll, select and epoll_wait say once that the socket is
 * readable, though there is nothing to be received. What the kernel receives on the socket has no callback.
 *
 * It may call any socket function, also on this socket (close, for one), and any function of this table. One thread at a time is in the callback
 * of a socket, so that to wait there for what comes next on it would be for ever: EDEADLK. It may leave by longjmp, by an exception, by
 * pthread_exit or by being cancelled: the packet is dropped. iov and info are valid until it returns. What it writes to the payload of a
 * packet that it lets through is what the receiver gets.
 */
typedef vma_recv_callback_retval_t (*vma_recv_callback_t)(int fd, size_t sz_iov, struct iovec iov[], struct vma_info_t *info,
							  void *context);

/* --- rings ------------------------------------------------------------------------------------------------------------------------ */

/*
 * Which sockets share a ring: those of one process, of one local address, of one socket, of one user id, of one thread or core that they were
 * made in. A ring is something to poll and to sleep on, for the sockets that share it; all rings of a process lie on the one queue of its
 * device. It begins with its first socket and ends with its last, and its descriptor with it.
 */
typedef enum {
	RING_LOGIC_PER_INTERFACE = 0,
	RING_LOGIC_PER_IP = 1,
	RING_LOGIC_PER_SOCKET = 10,
	RING_LOGIC_PER_USER_ID = 11, /* of struct vma_ring_alloc_logic_attr; not by VMA_RING_ALLOCATION_LOGIC_* */
	RING_LOGIC_PER_THREAD = 20,
	RING_LOGIC_PER_CORE = 30,
	RING_LOGIC_PER_CORE_ATTACH_THREADS = 31,
	RING_LOGIC_LAST = 32
} ring_logic_t;

typedef enum {
	VMA_RING_ALLOC_MASK_RING_PROFILE_KEY = (1 << 0),
	VMA_RING_ALLOC_MASK_RING_USER_ID = (1 << 1),
	VMA_RING_ALLOC_MASK_RING_INGRESS = (1 << 2),
	VMA_RING_ALLOC_MASK_RING_ENGRESS = (1 << 3) /* (its name is misspelt since its beginning) */
} vma_ring_alloc_logic_attr_comp_mask;

/* SO_VMA_RING_ALLOC_LOGIC. comp_mask says which fields count; a direction counts if its bit is in comp_mask and its field is 1. */
struct vma_ring_alloc_logic_attr {
	uint32_t comp_mask;
	ring_logic_t ring_alloc_logic;
	uint32_t ring_profile_key; /* of vma_add_ring_profile; can be set once */
	uint32_t user_id;
	uint32_t ingress : 1;
	uint32_t engress : 1;
	uint32_t reserved : 30;
};

/* A key of vma_add_ring_profile. */
typedef int vma_ring_profile_key;

typedef enum { VMA_RING_ATTR_LAST = 0 } vma_ring_type_attr_mask;

/* VMA_RING_CYCLIC_BUFFER was 1, and VMA_RING_EXTERNAL_MEM 2, in libvma 9.0 to 9.2. */
typedef enum { VMA_RING_PACKET = 0, VMA_RING_EXTERNAL_MEM = 1, VMA_RING_CYCLIC_BUFFER = 2 } vma_ring_type;

/* What of a packet a cyclic ring keeps, and where. */
typedef enum {
	RAW_PACKET = 0, /* all of it, one behind the other */
	STRIP_NETWORK_HDRS = 1, /* no Ethernet, IP and UDP header; the program's header, if it has one, in an array of its own */
	SEPERATE_NETWORK_HDRS = 2, /* these headers, and then the program's, in an array of their own (misspelt since its beginning) */
	PADDED_PACKET = 3 /* all of it, each in as many whole strides as it needs */
} vma_cb_packet_rec_mode;

typedef enum { VMA_CB_HDR_BYTE = (1 << 0), VMA_CB_EXTERNAL_MEM = (1 << 1) } vma_cb_ring_attr_mask;

/*
 * A cyclic ring: for at least num packets, whose payload is a header of the program's of hdr_bytes, and stride_bytes behind it. What a shorter
 * packet leaves of its record is zero.
 */
struct vma_cyclic_buffer_ring_attr {
	uint32_t comp_mask;
	uint32_t num;
	uint16_t stride_bytes;
	uint16_t hdr_bytes; /* counts with VMA_CB_HDR_BYTE; not with RAW_PACKET */
	vma_cb_packet_rec_mode packet_receive_mode;
};

struct vma_packet_queue_ring_attr {
	uint32_t comp_mask;
};

struct vma_external_mem_attr {
	uint32_t comp_mask;
};

/*
 * A ring's profile. The library reads the wider member of the union for VMA_RING_CYCLIC_BUFFER only, so that programs whose header
 * does not have it may hand in the 12 bytes of theirs.
 */
struct vma_ring_type_attr {
	uint32_t comp_mask;
	vma_ring_type ring_type;
	__extension__ union {
		struct vma_cyclic_buffer_ring_attr ring_cyclicb;
		struct vma_packet_queue_ring_attr ring_pktq;
		struct vma_external_mem_attr ring_ext;
	};
};

typedef enum { VMA_MODIFY_RING_CQ_MODERATION = (1 << 0), VMA_MODIFY_RING_CQ_ARM = (1 << 1) } vma_modify_ring_mask;

struct vma_cq_moderation_attr {
	uint32_t cq_moderation_count; /* packets */
	uint32_t cq_moderation_period_usec;
};

__extension__ struct vma_cq_arm_attr {
};

/* See vma_modify_ring(). */
struct vma_modify_ring_attr {
	uint32_t comp_bit_mask;
	int ring_fd;
	__extension__ union {
		struct vma_cq_moderation_attr cq_moderation;
		struct vma_cq_arm_attr cq_arm;
	};
};

/*
 * SO_MAX_PACING_RATE, the long form. (The short ones, 4 or 8 bytes, are bytes a second.) A stream keeps it on any device. Of a UDP socket it is EOPNOTSUPP where
 * the device does not pace. A rate of zero lifts the limit; a burst of zero leaves it to the device.
 */
struct vma_rate_limit_t {
	uint32_t rate; /* kilobits a second */
	uint32_t max_burst_sz; /* bytes */
	uint16_t typical_pkt_sz; /* bytes */
};

typedef enum { VMA_CB_MASK_TIMESTAMP = (1 << 0) } vma_completion_cb_mask;

/* See vma_cyclic_buffer_read(). */
struct vma_completion_cb_t {
	uint32_t comp_mask;
	void *payload_ptr; /* the first of the packets, which lie one behind the other */
	size_t payload_length; /* bytes of all of them */
	size_t packets; /* 0: none */
	void *usr_hdr_ptr; /* the array of headers, if there is one */
	size_t usr_hdr_ptr_length;
	struct timespec hw_timestamp; /* of the first; with VMA_CB_MASK_TIMESTAMP */
};

/* --- a ring's queues, for programs that drive them themselves --------------------------------------------------------------------- */

typedef enum { VMA_HW_PP_EN = (1 << 0), VMA_HW_UMR_EN = (1 << 1), VMA_HW_MP_RQ_EN = (1 << 2), VMA_HW_PP_BURST_EN = (1 << 3) } mlx_hw_device_cap;

typedef enum { DATA_VALID_DEV = 0, DATA_VALID_SQ = 1, DATA_VALID_RQ = 2 } vma_mlx_hw_valid_data_mask;

struct dev_data {
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t device_cap; /* mlx_hw_device_cap */
};

struct hw_cq_data {
	void *buf;
	volatile uint32_t *dbrec;
	uint32_t cq_size;
	uint32_t cqe_size;
	uint32_t cqn;
	void *uar;
	uint32_t *cons_idx;
};

struct hw_wq_data {
	void *buf;
	uint32_t wqe_cnt;
	uint32_t stride;
	volatile uint32_t *dbrec;
	struct hw_cq_data cq_data;
};

struct hw_rq_data {
	struct hw_wq_data wq_data;
	uint32_t *head;
	uint32_t *tail;
};

struct hw_sq_data {
	struct hw_wq_data wq_data;
	uint32_t sq_num;
	struct {
		void *reg;
		uint32_t size;
		uint32_t offset;
	} bf;
};

struct vma_mlx_hw_device_data {
	uint32_t valid_mask; /* vma_mlx_hw_valid_data_mask */
	struct dev_data dev_data;
	struct hw_sq_data sq_data;
	struct hw_rq_data rq_data;
};

/* --- the table -------------------------------------------------------------------------------------------------------------------- */

/* Bits of vma_extra_supported_mask: which functions do more than fail. */
typedef enum {
	VMA_EXTRA_API_REGISTER_RECV_CALLBACK = (1 << 0),
	VMA_EXTRA_API_RECVFROM_ZCOPY = (1 << 1),
	VMA_EXTRA_API_FREE_PACKETS = (1 << 2),
	VMA_EXTRA_API_ADD_CONF_RULE = (1 << 3),
	VMA_EXTRA_API_THREAD_OFFLOAD = (1 << 4),
	VMA_EXTRA_API_DUMP_FD_STATS = (1 << 5),
	VMA_EXTRA_API_SOCKETXTREME_POLL = (1 << 6),
	VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS = (1 << 7),
	VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF = (1 << 8),
	VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF = (1 << 9),
	VMA_EXTRA_API_GET_SOCKET_RINGS_NUM = (1 << 10),
	VMA_EXTRA_API_GET_SOCKET_RINGS_FDS = (1 << 11),
	VMA_EXTRA_API_GET_SOCKET_TX_RING_FD = (1 << 12),
	VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER = (1 << 13),
	VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS = (1 << 14),
	VMA_EXTRA_API_CYCLIC_BUFFER_READ = (1 << 15),
	VMA_EXTRA_API_ADD_RING_PROFILE = (1 << 16),
	VMA_EXTRA_API_REGISTER_MEMORY_ON_RING = (1 << 17),
	VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING = (1 << 18),
	VMA_EXTRA_API_GET_MEM_INFO = (1 << 19),
	VMA_EXTRA_API_MODIFY_RING = (1 << 20),
	VMA_EXTRA_API_IOCTL = (1 << 21)
} vma_extra_api_mask;

#pragma pack(push, 1)
struct vma_api_t {
	/*
	 * Has a function called for each packet that s receives; see vma_recv_callback_t.
	 *
	 * s: an offloaded socket, connected or not; of a listener it has no effect, and is not inherited. callback: NULL ends it; one that is running
	 * in another thread goes on, and what it decides still counts. context: handed to it.
	 * Returns 0; -1 EINVAL: s is not offloaded.
	 *
	 *	vma->register_recv_callback(fd, drop_what_is_short, NULL);
	 */
	int (*register_recv_callback)(int s, vma_recv_callback_t callback, void *context);

	/*
	 * Receives without copying: the buffer is filled with a struct vma_packets_t whose iovecs point to where the device put the data.
	 * A UDP socket gives one datagram, a TCP socket as many pieces of the stream as fit. The packets are the program's until it gives
	 * them to free_packets; until then a TCP socket's window, or a UDP socket's receive buffer, has that much less room.
	 *
	 * len: at least 24 bytes (UDP) or 40 (TCP), and 16 for each further iovec.
	 * flags: those of recvmsg, and MSG_VMA_ZCOPY_FORCE; MSG_WAITALL and SO_RCVLOWAT do not apply, and what is peeked at is copied. Out:
	 * MSG_VMA_ZCOPY is set if the buffer holds packets and not data, and else cleared.
	 * from, fromlen: as recvfrom's; may be NULL.
	 * Returns the bytes of data in all packets; 0 for an empty datagram, and, without MSG_VMA_ZCOPY, at the end of a stream.
	 * -1 EFAULT: flags or buf is NULL (libvma crashed). -1 ENOBUFS: len is too small; nothing was consumed. -1 EIO: with
	 * MSG_VMA_ZCOPY_FORCE, the data lie in the kernel and could only be copied. -1 EAGAIN, EINTR, and the rest of recvfrom's errors.
	 * A descriptor that is no offloaded socket's: as recvfrom.
	 *
	 *	int flags = 0;
	 *	char buffer[256];
	 *	int got = vma->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, NULL, NULL);
	 *
	 *	if (got > 0 && flags & MSG_VMA_ZCOPY) {
	 *		struct vma_packets_t *packets = (struct vma_packets_t *)buffer;
	 *
	 *		use(packets->pkts[0].iov[0].iov_base, packets->pkts[0].iov[0].iov_len);
	 *		vma->free_packets(fd, packets->pkts, packets->n_packet_num);
	 *	}
	 */
	int (*recvfrom_zcopy)(int s, void *buf, size_t len, int *flags, struct sockaddr *from, socklen_t *fromlen);

	/*
	 * Gives back what recvfrom_zcopy lent, or what a receive callback held.
	 *
	 * s: the socket that received them; the number of one that was closed since gives back what it lent, which stays until then. packets: count of them, one behind the other as recvfrom_zcopy wrote them: of each,
	 * packet_id is used, and sz_iov to find the next.
	 * Returns 0. -1 EINVAL: s is not offloaded, or packets is NULL and count is not 0. -1 ENOENT: a packet is not one that s lent, or was
	 * given back before (the others of the array are given back all the same).
	 *
	 *	struct vma_packet_t held = {info->packet_id, 0};	// of a callback that returned VMA_PACKET_HOLD
	 *
	 *	if (vma->free_packets(fd, &held, 1) < 0)
	 *		perror("free_packets");
	 */
	int (*free_packets)(int s, struct vma_packet_t *packets, size_t count);

	/*
	 * Adds a rule before all others of libvma.conf, for what sockets do from now on. It holds for every program and application id, or for those
	 * of the application-id statement that was added last.
	 *
	 * line: one statement, such as "use vma udp_receiver *:*", or none.
	 * Returns 0; 1, and not -1: NULL, or not a statement (one log line says where); errno is EINVAL.
	 *
	 *	if (vma->add_conf_rule("use os udp_receiver *:5000-5010") != 0)
	 *		fprintf(stderr, "the rule is not understood\n");
	 */
	int (*add_conf_rule)(const char *line);

	/*
	 * Whether sockets that a thread creates from now on are offloaded; over VMA_OFFLOADED_SOCKETS, under libvma.conf.
	 *
	 * offload: 1 or 0. tid: the thread. (Of another thread that ends before it has made a socket, it goes to the next one with its pthread_t.)
	 * Returns 0; -1: there is no device (ENODEV).
	 *
	 *	vma->thread_offload(0, pthread_self());
	 *	fd = socket(AF_INET, SOCK_STREAM, 0);	// the kernel's
	 *	vma->thread_offload(1, pthread_self());
	 */
	int (*thread_offload)(int offload, pthread_t tid);

	/*
	 * What happened on a ring, without waiting: data, new connections, changes of readiness. See vma_completion_t. Data arrive where the
	 * device put them, and are given back by socketxtreme_free_vma_packets. A listener's connections are accepted by this call, as long as
	 * there are descriptors for them. Needs VMA_SOCKETXTREME=1 in the environment.
	 *
	 * A datagram is one completion; of a stream, what has arrived is, up to 65535 bytes. What is not polled stays in its socket, where
	 * the receive calls find it, too: bytes are in order however they are taken. Of two sockets on one ring, it is not told which had its
	 * packets first. Threads may poll one ring at once; each completion goes to
	 * one of them. Receive callbacks run in it, and decide first: of what they drop, or keep (VMA_PACKET_HOLD), there is no completion, for the
	 * callback has had it.
	 *
	 * fd: a ring's (get_socket_rings_fds), or a duplicate; not a socket's or an epoll instance's, as libvma's header had it. It can be slept on by poll,
	 * select and epoll, and is readable while there is something to poll. completions: room for ncompletions. flags: not looked at.
	 * Returns how many completions were filled in; 0: nothing happened. -1 EOPNOTSUPP: VMA_SOCKETXTREME is not set. -1 EBADFD: fd is not a
	 * ring's. -1 EINVAL: completions is NULL, or ncompletions 0.
	 *
	 *	struct vma_completion_t done;
	 *
	 *	while (vma->socketxtreme_poll(ring, &done, 1, 0) > 0)
	 *		if (done.events & VMA_SOCKETXTREME_PACKET) {
	 *			use(done.packet.buff_lst);
	 *			vma->socketxtreme_free_vma_packets(&done.packet, 1);
	 *		}
	 */
	int (*socketxtreme_poll)(int fd, struct vma_completion_t *completions, unsigned int ncompletions, int flags);

	/*
	 * How many rings a socket receives from: one, or none. Returns 0 also for a descriptor that is not offloaded (libvma's header promised an
	 * error there, and its code did as this one).
	 *
	 *	if (vma->get_socket_rings_num(fd) == 0)
	 *		fprintf(stderr, "not bound yet, or not offloaded\n");
	 */
	int (*get_socket_rings_num)(int fd);

	/*
	 * The descriptors of the rings that a socket receives from. A UDP socket has some after bind or connect, a TCP socket after listen,
	 * connect, or SO_BINDTODEVICE.
	 *
	 * ring_fds: room for ring_fds_sz. Not touched beyond what is returned.
	 * Returns how many were filled in, with every call (libvma: only the first); 0: there are none, or fd is not offloaded. -1 EINVAL:
	 * ring_fds is NULL, or ring_fds_sz not positive.
	 *
	 * Without VMA_SOCKETXTREME, a ring's descriptor is readable while one of its sockets is.
	 *
	 *	int ring = -1;
	 *
	 *	if (vma->get_socket_rings_fds(fd, &ring, 1) == 1)
	 *		poll(&(struct pollfd){.fd = ring, .events = POLLIN}, 1, -1);
	 */
	int (*get_socket_rings_fds)(int fd, int *ring_fds, int ring_fds_sz);

	/*
	 * The descriptor of the ring by which a UDP socket sends to an address, after it was connected to it or has sent to it.
	 *
	 * Returns the descriptor. -1 EINVAL: the socket is not offloaded, or to is NULL. -1 ENOSYS: a TCP socket. -1 ENODATA: it does not send
	 * there (yet).
	 *
	 *	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
	 *		ring = vma->get_socket_tx_ring_fd(fd, (struct sockaddr *)&to, sizeof to);
	 */
	int (*get_socket_tx_ring_fd)(int sock_fd, struct sockaddr *to, socklen_t tolen);

	/*
	 * Gives back packets of socketxtreme_poll: each buffer loses the reference that the completion had, and a TCP socket's window opens
	 * again by the bytes of those that have none left. (libvma opened it by all, and by none for what socketxtreme_free_vma_buff gave back.)
	 *
	 * packets: of each, buff_lst is used, which is as socketxtreme_poll had it; the rest of the list is known. num: of packets; 0 does nothing.
	 * Returns 0. -1 EOPNOTSUPP: VMA_SOCKETXTREME is not set. -1 EINVAL: packets is NULL; or one of them is not lent, or was given back before (those
	 * before it in the array were given back).
	 *
	 *	vma->socketxtreme_free_vma_packets(&done.packet, 1);
	 */
	int (*socketxtreme_free_vma_packets)(struct vma_packet_desc_t *packets, int num);

	/*
	 * Keeps a buffer beyond socketxtreme_free_vma_packets. Returns how many references it has now. -1 EINVAL: buff is not lent.
	 *
	 *	struct vma_buff_t *kept = done.packet.buff_lst;
	 *
	 *	vma->socketxtreme_ref_vma_buff(kept);	// 2
	 *	vma->socketxtreme_free_vma_packets(&done.packet, 1);	// kept->payload stays, until
	 *	vma->socketxtreme_free_vma_buff(kept);	// 0
	 */
	int (*socketxtreme_ref_vma_buff)(struct vma_buff_t *buff);

	/*
	 * Gives back what socketxtreme_ref_vma_buff took, or the completion's own reference. Returns how many references are left; 0: the device has
	 * it again. -1 EINVAL: buff is not lent.
	 *
	 *	if (vma->socketxtreme_free_vma_buff(kept) == 0)
	 *		kept = NULL;
	 */
	int (*socketxtreme_free_vma_buff)(struct vma_buff_t *buff);

	/*
	 * Writes a socket's statistics to the log.
	 *
	 * fd: 0 for all; of what is no offloaded socket, there is a frame with nothing in it. log_level: that of the lines, of which the log has those
	 * that VMA_TRACELEVEL lets through. The numbers are vlogger.h's: -1 nothing, 0 panic, 1 error, 2 warning, 3 info, 4 details, 5 debug, 6 fine,
	 * 7 finer, 8 all; others mean 3. (Those of VMA_TRACELEVEL are not the same: there debug is 4.)
	 * Returns 0. -1 ENODEV: the process is not offloaded.
	 *
	 *	vma->dump_fd_stats(fd, 2);	// as a warning
	 */
	int (*dump_fd_stats)(int fd, int log_level);

	/*
	 * Registers a kind of ring, for SO_VMA_RING_ALLOC_LOGIC (in whose comp_mask VMA_RING_ALLOC_MASK_RING_PROFILE_KEY and _INGRESS are set, as is
	 * ingress): UDP sockets that name a cyclic ring's profile go onto such a ring.
	 *
	 * Returns 0, and in *key a number from 1 on; the same for the same profile. -1 EINVAL: a pointer is NULL, or the profile makes no sense.
	 *
	 *	struct vma_ring_type_attr profile = {
	 *		.ring_type = VMA_RING_CYCLIC_BUFFER,
	 *		.ring_cyclicb = {.num = 4096, .stride_bytes = 64, .packet_receive_mode = STRIP_NETWORK_HDRS}};
	 *	vma_ring_profile_key key;
	 *
	 *	if (vma->vma_add_ring_profile(&profile, &key) == 0) {
	 *		struct vma_ring_alloc_logic_attr logic = {
	 *			.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY | VMA_RING_ALLOC_MASK_RING_INGRESS,
	 *			.ring_alloc_logic = RING_LOGIC_PER_SOCKET, .ring_profile_key = (uint32_t)key, .ingress = 1};
	 *
	 *		setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic);
	 *	}
	 */
	int (*vma_add_ring_profile)(struct vma_ring_type_attr *profile, vma_ring_profile_key *key);

	/*
	 * The headers of what a connected socket sends, from Ethernet on: for programs that build packets themselves.
	 *
	 * ptr: NULL to ask for their length. len: in: room at ptr; out: their length.
	 * Returns 0. -1 EINVAL: fd is not offloaded, or len is NULL. -1 ENOTCONN: fd is not connected. -1 ENOBUFS: too little room.
	 *
	 *	uint8_t header[128];
	 *	uint16_t len = sizeof header;
	 *
	 *	if (vma->get_socket_network_header(fd, header, &len) == 0)
	 *		printf("%u bytes of headers\n", len);	// 42 of UDP
	 */
	int (*get_socket_network_header)(int fd, void *ptr, uint16_t *len);

	/*
	 * A ring's queues in the card's own terms. Returns 0; valid_mask says which parts there are (DATA_VALID_DEV, which is 0: only the
	 * device's numbers; those of shared memory are 0). -1 EINVAL: data is NULL, or ring_fd is not a ring's.
	 *
	 *	struct vma_mlx_hw_device_data device;
	 *
	 *	if (vma->get_ring_direct_descriptors(ring, &device) == 0 && device.valid_mask & DATA_VALID_SQ)
	 *		printf("a send queue of %u places\n", device.sq_data.wq_data.wqe_cnt);
	 */
	int (*get_ring_direct_descriptors)(int ring_fd, struct vma_mlx_hw_device_data *data);

	/*
	 * Registers memory of the program's with a ring's device, for packets that it builds itself.
	 *
	 * Returns 0, and the key in *key; the same again for the same range, which is then registered twice. -1 EINVAL: addr or key is NULL,
	 * length is 0, or ring_fd is not a ring's. -1 EOPNOTSUPP: the ring's device does not read the program's memory.
	 *
	 *	uint32_t key;
	 *
	 *	if (vma->register_memory_on_ring(ring, memory, sizeof memory, &key) < 0 && errno == EOPNOTSUPP)
	 *		fprintf(stderr, "no such device\n");
	 */
	int (*register_memory_on_ring)(int ring_fd, void *addr, size_t length, uint32_t *key);

	/*
	 * Takes a registration back. Returns 0; -1 EINVAL: that range is not registered with that ring.
	 *
	 *	vma->deregister_memory_on_ring(ring, memory, sizeof memory);
	 */
	int (*deregister_memory_on_ring)(int ring_fd, void *addr, size_t length);

	/*
	 * Changes how often a ring interrupts (VMA_MODIFY_RING_CQ_MODERATION), or arms it (VMA_MODIFY_RING_CQ_ARM, which wins over the other).
	 *
	 * Returns 0; 1: armed too late, there is something to poll. -1 EINVAL: NULL, no ring, or no bit that is known. -1 EOPNOTSUPP: the
	 * device cannot.
	 *
	 *	struct vma_modify_ring_attr arm = {.comp_bit_mask = VMA_MODIFY_RING_CQ_ARM, .ring_fd = ring};
	 *
	 *	if (vma->vma_modify_ring(&arm) == 0)
	 *		poll(&(struct pollfd){.fd = ring, .events = POLLIN}, 1, -1);	// nothing waits
	 */
	int (*vma_modify_ring)(struct vma_modify_ring_attr *attr);

	/* VMA_EXTRA_API_*. */
	uint64_t vma_extra_supported_mask;

	/*
	 * Control messages (cmsg(3)), one behind the other. CMSG_VMA_IOCTL_USER_ALLOC: before the first socket, epoll instance or
	 * thread_offload.
	 *
	 * Returns 0, also for messages that it does not know. -1 EINVAL: a message that is cut short, too late, or makes no sense. -1 EOPNOTSUPP: the
	 * device cannot use such memory.
	 *
	 *	struct vma_cmsg_ioctl_user_alloc_t mine = {VMA_IOCTL_USER_ALLOC_FLAG_RX, malloc, free};
	 *	union { struct cmsghdr first; char room[CMSG_SPACE(sizeof mine)]; } message;
	 *
	 *	message.first = (struct cmsghdr){
	 *		.cmsg_len = CMSG_LEN(sizeof mine), .cmsg_level = SOL_SOCKET, .cmsg_type = CMSG_VMA_IOCTL_USER_ALLOC};
	 *	memcpy(CMSG_DATA(&message.first), &mine, sizeof mine);
	 *	if (vma->ioctl(&message.first, message.first.cmsg_len) < 0)
	 *		perror("ioctl");
	 */
	int (*ioctl)(void *cmsg_hdr, size_t cmsg_len);

	/*
	 * What a cyclic ring (VMA_RING_CYCLIC_BUFFER) received: between min and max packets, one behind the other. Fewer than min: only where
	 * the buffer ends; the call after that goes back to its beginning. What was returned stays as it is until the next call. Packets that nobody has read
	 * wait at their socket, as many as the ring has room for at least (num), and further ones are dropped. Receive callbacks run in it, and decide
	 * first. (Where the device has no such queues, as shared memory
	 * has not, records are written by software, with one copy; the log says so.) What comes through the kernel is there too, with headers that are made up: Ethernet addresses of zeros, and
	 * the socket's own address as the destination.
	 *
	 * ring_fd: the ring's. completion: its comp_mask is read, the rest is written; packets is 0 if there are fewer than min.
	 * flags: MSG_DONTWAIT, and nothing else.
	 * Returns 0. -1 EINVAL: completion is NULL, min is above max, max is 0, other flags. -1 EBADFD: not a cyclic ring. -1 EMSGSIZE: a packet
	 * was longer than a record; it is lost, which is told before packets that came ahead of it are given out.
	 *
	 *	int ring;
	 *	struct vma_completion_cb_t run = {0};
	 *	vma->get_socket_rings_fds(fd, &ring, 1);
	 *	while (vma->vma_cyclic_buffer_read(ring, &run, 1, 1000, MSG_DONTWAIT) == 0)
	 *		if (run.packets > 0)
	 *			handle(run.payload_ptr, run.payload_length, run.packets);
	 */
	int (*vma_cyclic_buffer_read)(int ring_fd, struct vma_completion_cb_t *completion, size_t min, size_t max, int flags);

	/*
	 * Where a cyclic ring's packets lie, and their headers behind them. *lkey is 0 where no card knows of it.
	 *
	 * Returns 0; -1 EINVAL: a pointer is NULL, or ring_fd is not a cyclic ring's.
	 *
	 *	void *begin;
	 *	size_t length;
	 *	uint32_t lkey;
	 *
	 *	if (vma->get_mem_info(ring, &begin, &length, &lkey) == 0)
	 *		mlock(begin, length);
	 */
	int (*get_mem_info)(int ring_fd, void **addr, size_t *length, uint32_t *lkey);
};
#pragma pack(pop)

/*
 * The table, or NULL: the library is not preloaded. It stays the same, and valid, as long as the process lives, and may be asked for
 * before the first socket. (A program that loads the library by dlopen calls the getsockopt that dlsym finds there.)
 */
static __inline struct vma_api_t *vma_get_api(void)
{
	struct vma_api_t *api = NULL;
	socklen_t len = sizeof api;
	int saved = errno;

	if (getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &api, &len) < 0) {
		errno = saved;
		return NULL;
	}
	return api;
}

#endif
