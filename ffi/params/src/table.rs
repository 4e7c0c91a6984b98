//! The table of parameters: one row each, in the order in which they are shown.
//!
//! A row says what the parameter does *here*. Where a default differs from upstream's, its meaning ends with upstream's. What
//! cannot be honoured is understood and checked all the same, and listed with the reason.

use crate::kind::Kind;

/// Whether a parameter does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does what its meaning says.
    Heeded,
    /// It is read and checked, and changes nothing, for this reason.
    Meaningless(&'static str),
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which one.
    pub id: Id,
    /// The environment variable.
    pub name: &'static str,
    /// What it may be set to.
    pub kind: Kind,
    /// What it is while nobody sets it.
    pub default: &'static str,
    /// Whether it is heeded.
    pub effect: Effect,
    /// What it means, in a sentence, units included.
    pub meaning: &'static str,
}

macro_rules! rows {
    ($($id:ident = $name:literal, $kind:expr, $default:literal, $effect:expr, $meaning:literal;)*) => {
        /// Names a parameter: its row is at this place of [`TABLE`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is named after its variable, and its row says what it means")]
        pub enum Id { $($id),* }

        /// Every parameter.
        pub const TABLE: &[Row] =
            &[$(Row { id: Id::$id, name: $name, kind: $kind, default: $default, effect: $effect, meaning: $meaning }),*];
    };
}

impl Id {
    /// Its row.
    pub const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The parameter that the environment variable `name` sets.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.id)
    }
}

const YES: Effect = Effect::Heeded;

const fn no(reason: &'static str) -> Effect {
    Effect::Meaningless(reason)
}

const fn from(least: i64) -> Kind {
    Kind::Number { least, greatest: i64::MAX }
}

const fn within(least: i64, greatest: i64) -> Kind {
    Kind::Number { least, greatest }
}

const fn zero_or(least: i64, greatest: i64) -> Kind {
    Kind::ZeroOr { least, greatest }
}

/// What is counted in 32 bits.
const COUNT: Kind = within(0, u32::MAX as i64);

/// VMA_RX_POLL's and VMA_SELECT_POLL's microseconds.
const POLL_US: Kind = within(-1, 100_000_000);

const RING_LOGIC: Kind = Kind::OneOf(&[
    (0, "per interface"),
    (1, "per address"),
    (10, "per socket"),
    (20, "per thread"),
    (30, "per core"),
    (31, "per core, threads attached"),
]);

const NO_QUEUES: Effect = no("no device here has work queues of its own size (needs mlx5); those between two processes have 256 places");
const NO_INTERRUPTS: Effect = no("no device here raises interrupts (needs mlx5); a sleeper is woken once, by its peer");
const NO_PIPES: Effect = no("pipes are the kernel's");
const NO_NEIGHBOURS: Effect = no("no device here has neighbours to ask for (needs a NIC)");
const NO_NIC_RULES: Effect = no("no device here steers by rules of a NIC (needs mlx5)");
const NO_PREFETCH: Effect = no("payload is read where the peer wrote it, once, and not fetched before");
const KERNELS_ANSWER: Effect = no("an option is always set on the kernel's descriptor first, and its answer is the program's");
const NOT_MEASURED: Effect = no("no such build: ringway stats and cargo xtask bench measure instead");

rows! {
    Device = "RINGWAY_DEVICE", Kind::Device, "auto", YES, "The devices: auto, shm (shared memory), shm and others (shm,xdp:eth0,mlx5:mlx5_0), or off (stay on the kernel). Beside shared memory, a ConnectX (mlx5: its RDMA device's name; it takes CAP_NET_RAW and rdma-core's libraries) carries the sockets whose peers its interface leads to, and an interface carries the sockets whose peers it leads to; it takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, or a broker (RINGWAY_BROKER), without which those sockets are the kernel's. Of an interface's queues, a process may be given some (xdp:eth0/0-3), and another one others. Any other value leaves the program on the kernel, with one warning.";
    Broker = "RINGWAY_BROKER", Kind::Path, "/run/ringway/broker", YES, "The socket of the broker (ringway broker) that is asked for an interface which the process itself may not attach to, or which the broker has attached to. Empty: none is asked.";
    BusyPoll = "RINGWAY_BUSY_POLL", within(0, 65_535), "0", YES, "On an interface: the number of frames that the kernel takes from its queue, in a system call, each time that a thread looks for some and finds none (SO_BUSY_POLL_BUDGET; 64 is usual), so that a thread that spins need not be interrupted. It takes CAP_NET_ADMIN and Linux 5.11, and spares interrupts only where the administrator has them deferred (napi_defer_hard_irqs and gro_flush_timeout of the interface). 0: frames come by interrupts alone. A broker's rings have none.";
    StatsFileOwn = "RINGWAY_STATS_FILE", Kind::Path, "", YES, "A process appends its statistics to this file when it ends, as one line of JSON.";
    LendCopies = "RINGWAY_LEND_COPIES", Kind::Bool, "0", YES, "1: payload of other processes is always copied before it is lent. 0: it is copied only after the program has written to lent memory. Set it for programs that have the kernel write to lent memory, or that write there in threads or signal handlers that block SIGSEGV.";
    Library = "RINGWAY_LIBVMA", Kind::Path, "", YES, "Where ringway run looks for the library, if it is not beside the command or in ../lib.";
    ApiLayout = "VMA_API_LAYOUT", Kind::Layout, "9.8", YES, "The release of libvma whose header the program was compiled with, for the VMA Extra API: 9.8 (9.8.32 and later), 9.3 (to 9.8.31), 9.2 (8.6.1 to 9.2), or 8.4. A release with one of these layouts, such as 9.2.2, is shown as that layout.";

    Tracelevel = "VMA_TRACELEVEL", Kind::Level, "warn", YES, "The level up to which messages are logged (upstream: info).";
    LogDetails = "VMA_LOG_DETAILS", Kind::OneOf(&[(0, "the message"), (1, "also the thread"), (2, "also the process"), (3, "also the time")]), "0", YES, "What each line of the log shows. The default is 2 if the level is debug or above.";
    LogColors = "VMA_LOG_COLORS", Kind::Bool, "1", YES, "1: errors and warnings are coloured if the log is a terminal.";
    LogFile = "VMA_LOG_FILE", Kind::Path, "", YES, "The file that the log is appended to. Empty: standard error.";

    Spec = "VMA_SPEC", Kind::Spec, "none", YES, "A preset, which sets several parameters for a purpose. A parameter that is set by name overrides the preset. With ultra-latency, 7750 and multi_ring_latency, waits spin for ever without looking at the kernel (as in libvma), so a blocking call sees data from programs that are not on Ringway only when its time is over.";
    SpecParam1 = "VMA_SPEC_PARAM1", from(0), "1", NO_PIPES, "Microseconds for which the presets 29west and wombat_fh gather writes to a pipe.";
    SpecParam2 = "VMA_SPEC_PARAM2", from(0), "1", NO_PIPES, "Writes to a pipe that these presets gather.";

    StatsFile = "VMA_STATS_FILE", Kind::Path, "", YES, "The file that each socket's statistics are appended to, as one line of JSON, when the socket is closed or the process ends.";
    StatsShmemDir = "VMA_STATS_SHMEM_DIR", Kind::Path, "/tmp/", YES, "The directory of the file vmastat.PID, in which a process publishes its statistics for vma_stats and for readers of other users. The file is written only while somebody reads. Empty: no file.";
    VmadNotifyDir = "VMA_VMAD_NOTIFY_DIR", Kind::Path, "/tmp/vma", no("there is no daemon: a process's end is seen by its peers"), "The directory by which the daemon vmad learns of processes.";
    StatsFdNum = "VMA_STATS_FD_NUM", within(0, 1024), "100", YES, "The most sockets that are reported in that file. ringway stats sees all sockets of its own user.";
    CpuUsageStats = "VMA_CPU_USAGE_STATS", Kind::Bool, "0", no("the share of time that polls take is not measured; ringway stats counts polls and sleeps"), "Measures how much of the CPU polling takes.";

    ConfigFile = "VMA_CONFIG_FILE", Kind::Path, "/etc/libvma.conf", YES, "The file of rules that leave sockets to the kernel (libvma.conf).";
    ApplicationId = "VMA_APPLICATION_ID", Kind::Text, "VMA_DEFAULT_APPLICATION_ID", YES, "The name by which the application-id statements of libvma.conf tell processes of one program apart.";

    HandleSigintr = "VMA_HANDLE_SIGINTR", Kind::Bool, "0", no("a signal always ends a wait as it would end the kernel's, and handlers run"), "Ends waits at SIGINT before the program's handler runs.";
    HandleSigsegv = "VMA_HANDLE_SIGSEGV", Kind::Bool, "0", YES, "1: a program that dies of SIGSEGV prints where, unless it has a handler of its own when it makes its first socket.";

    TxSegsTcp = "VMA_TX_SEGS_TCP", from(0), "1000000", no("segments are made of what is in the send buffers; there is no pool of them"), "TCP segments in the pool.";
    TxBufs = "VMA_TX_BUFS", within(1, 311_296), "38912", YES, "The number of send buffers. Of each 19, 16 have 2 KiB and 3 have 32 KiB. The default takes 256 MiB of address space and the greatest value 2 GiB; memory is only taken when it is used. Upstream: 200000.";
    TxWre = "VMA_TX_WRE", from(0), "2048", NO_QUEUES, "Places of a send queue.";
    TxWreBatching = "VMA_TX_WRE_BATCHING", within(1, 64), "64", NO_QUEUES, "Sends that are reported together as done.";
    TxMaxInline = "VMA_TX_MAX_INLINE", within(0, 884), "204", NO_QUEUES, "Bytes of a message that are copied into the send queue itself.";
    TxMcLoopback = "VMA_TX_MC_LOOPBACK", Kind::Bool, "1", YES, "The initial value of a UDP socket's IP_MULTICAST_LOOP.";
    TxNonblockedEagains = "VMA_TX_NONBLOCKED_EAGAINS", Kind::Bool, "0", YES, "What happens to a datagram on a non-blocking socket when the queue is full. 1: the call fails with EAGAIN. 0: the datagram is dropped and counted.";
    TxPrefetchBytes = "VMA_TX_PREFETCH_BYTES", within(0, 65_535), "256", NO_PREFETCH, "Bytes of a send buffer that are prefetched into the cache.";

    RingAllocationTx = "VMA_RING_ALLOCATION_LOGIC_TX", RING_LOGIC, "0", YES, "Which sockets send by one ring. A connection, and on shared memory or a ConnectX a UDP socket, receives and sends by one ring: it shares that with those alone that this logic and VMA_RING_ALLOCATION_LOGIC_RX both put together with it. On an interface with several queues a UDP socket sends by another ring than it receives by, if this says so. Where this is 0 and that one is not, sends go by that one.";
    RingAllocationRx = "VMA_RING_ALLOCATION_LOGIC_RX", RING_LOGIC, "0", YES, "Which sockets share one ring: one device queue with its own lock and, in the Extra API, one descriptor to sleep on and one queue of completions. Where it is not set, each thread's sockets are on a ring of its own, up to 16 of them, unless the program uses the Extra API's rings. An accepted connection is on its listener's ring. An interface with several queues has as many rings, up to 16, if the logic is not 0, or is not set and the interface says which queue a connection's frames come by (RSS); there, an accepted connection is on the ring that it came to. A ConnectX makes a ring for each that wants one. A process has 64 rings at most (see VMA_RING_LIMIT_PER_INTERFACE). With 31, a thread whose socket goes onto a ring is bound to its core.";
    RingMigrationTx = "VMA_RING_MIGRATION_RATIO_TX", from(-1), "100", YES, "The number of consecutive sends by another thread (or on another core) after which a socket moves to that thread's (or core's) ring, where rings are chosen by those. See VMA_RING_MIGRATION_RATIO_RX. -1: never.";
    RingMigrationRx = "VMA_RING_MIGRATION_RATIO_RX", from(-1), "100", YES, "The number of consecutive receive calls by another thread (or on another core) after which a socket moves to that thread's (or core's) ring, where rings are chosen by those. A TCP connection moves with all that it has; it stays if its socket has extra options or callbacks, if the program holds bytes of it by reference, or if a forked child has it. So does a UDP socket, unless it also shares its address (SO_REUSEADDR, SO_REUSEPORT), takes both families, or has flows on interfaces; at most once a second. On the rings of the Extra API, every socket moves that is not on a cyclic one. -1: never.";
    RingLimit = "VMA_RING_LIMIT_PER_INTERFACE", COUNT, "0", YES, "The most rings, of shared memory and of each interface. Beyond the limit a socket goes onto the ring with the fewest sockets, preferring rings with the same profile and memory. 0: no limit.";
    RingDevMemTx = "VMA_RING_DEV_MEM_TX", from(0), "0", YES, "Bytes of a card's memory, for each ring on it, into which the payload of what is sent is copied, so that the card fetches it from nowhere else. What there is no room for is sent from the process's memory, and so is what fits into a work queue entry. Other devices have no such memory.";

    RxBufs = "VMA_RX_BUFS", within(0, 1 << 24), "200000", YES, "The most small packets (256 bytes with their headers) that all sockets together can hold by reference. Beyond the limit packets are copied. The payload of larger packets stays in the memory of the process that sent them.";
    RxWre = "VMA_RX_WRE", from(0), "16000", YES, "Places of a receive queue: set, and more than 2048, so many frames can have come to each ring of an interface that no thread has looked at yet (up to 131072, of 4 KiB locked memory each); else 2048. A broker's rings have 2048, and queues between two processes 256.";
    RxWreBatching = "VMA_RX_WRE_BATCHING", within(1, 1024), "64", NO_QUEUES, "Places that are filled again together.";
    RxBytesMin = "VMA_RX_BYTES_MIN", within(0, 1 << 30), "65536", YES, "The least number of bytes that a receive buffer holds, whatever SO_RCVBUF says.";
    RxPoll = "VMA_RX_POLL", POLL_US, "100000", YES, "How many microseconds a receive call on one socket spins before it sleeps. -1: for ever. The default is a ceiling; a value that is set is exact. Upstream counts polls.";
    RxPollInit = "VMA_RX_POLL_INIT", POLL_US, "0", no("a UDP socket is offloaded from its bind on; before, it waits in the kernel"), "As VMA_RX_POLL, before a socket is offloaded.";
    RxUdpPollOsRatio = "VMA_RX_UDP_POLL_OS_RATIO", COUNT, "100", YES, "Polls of the ring for one look at the kernel's side of a UDP socket or listener; 0: only before sleeping, and when the call's time is over.";
    HwTsConversion = "VMA_HW_TS_CONVERSION", Kind::OneOf(&[(0, "off"), (1, "raw"), (2, "the best there is"), (3, "the system's clock"), (4, "PTP")]), "3", YES, "How the times are told at which datagrams arrived by a card's clock (SO_TIMESTAMPING with SOF_TIMESTAMPING_RX_HARDWARE, on UDP). 0: they are not, and asking for them fails with EPERM. 1: nanoseconds since the card began to count. 2 to 4: by the system's clock; the two clocks are taken to be apart by what they differ in the least when a datagram is seen. Upstream's 4 is by the clock that PTP keeps on the card. Other devices take no times.";
    RxPollYield = "VMA_RX_POLL_YIELD", COUNT, "0", YES, "The number of polling rounds after which a spinning receive call yields its core. 0: every 50 us.";
    RxPrefetchBytes = "VMA_RX_PREFETCH_BYTES", within(32, 2044), "256", NO_PREFETCH, "Bytes of a packet that are prefetched into the cache when the packet is received.";
    RxPrefetchBefore = "VMA_RX_PREFETCH_BYTES_BEFORE_POLL", zero_or(32, 2044), "0", NO_PREFETCH, "Bytes of the next packet that are prefetched before the packet has arrived.";
    RxCqDrainRate = "VMA_RX_CQ_DRAIN_RATE_NSEC", from(0), "0", no("a socket's call polls the ring whenever the socket has nothing, and every poll is cheap where nothing came"), "Nanoseconds after which a receive call polls although the socket has data.";
    RxPollOnTxTcp = "VMA_RX_POLL_ON_TX_TCP", Kind::Bool, "0", YES, "1: every TCP send polls the ring. 0: only a send that finds no room does, or that comes 20 us or more after the last poll.";
    TriggerDummySend = "VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME", Kind::Bool, "0", YES, "1: each getsockname on a connected socket makes a dummy send of 264 bytes (VMA_SND_FLAGS_DUMMY), which keeps the send path warm and sends nothing.";
    GroStreamsMax = "VMA_GRO_STREAMS_MAX", from(0), "32", no("a segment already is as long as 64 KiB; nothing needs to be put together"), "The most streams whose segments are merged on reception. 0: none.";
    Tcp3tRules = "VMA_TCP_3T_RULES", Kind::Bool, "0", NO_NIC_RULES, "Steers TCP by the local address alone.";
    Udp3tRules = "VMA_UDP_3T_RULES", Kind::Bool, "1", NO_NIC_RULES, "Steers connected UDP by the local address alone.";
    EthMcL2OnlyRules = "VMA_ETH_MC_L2_ONLY_RULES", Kind::Bool, "0", NO_NIC_RULES, "Steers multicast by Ethernet addresses alone.";
    McForceFlowtag = "VMA_MC_FORCE_FLOWTAG", Kind::Bool, "0", NO_NIC_RULES, "1: flows of a multicast group are tagged, whoever else is in the group.";

    SelectPoll = "VMA_SELECT_POLL", POLL_US, "100000", YES, "How many microseconds poll, select and epoll_wait spin before they sleep. -1: for ever. The default is a ceiling; a value that is set is exact.";
    SelectPollOsForce = "VMA_SELECT_POLL_OS_FORCE", Kind::Bool, "0", YES, "1: sets VMA_SELECT_POLL_OS_RATIO and VMA_SELECT_SKIP_OS to 1. Deprecated.";
    SelectPollOsRatio = "VMA_SELECT_POLL_OS_RATIO", COUNT, "10", YES, "Polls of the ring for one look at the kernel's descriptors in poll, select and epoll_wait; 0: only before sleeping, and when the call's time is over.";
    SelectSkipOs = "VMA_SELECT_SKIP_OS", COUNT, "10", YES, "Calls that find something on the ring for one that looks at the kernel's descriptors as well; 0: none does. Not set, it is as VMA_SELECT_POLL_OS_RATIO. Upstream: 4.";

    ProgressInterval = "VMA_PROGRESS_ENGINE_INTERVAL", within(0, 1 << 31), "10", YES, "Milliseconds between two polls of the ring while the program is busy elsewhere. 0: no such polls. Upstream: none with VMA_SOCKETXTREME=1, whatever is set.";
    ProgressWceMax = "VMA_PROGRESS_ENGINE_WCE_MAX", within(1, u32::MAX as i64), "1024", YES, "The most frames that one such poll takes before it lets the program have the ring. Upstream: 10000.";
    CqModeration = "VMA_CQ_MODERATION_ENABLE", Kind::Bool, "1", NO_INTERRUPTS, "Coalesces interrupts.";
    CqModerationCount = "VMA_CQ_MODERATION_COUNT", from(0), "48", NO_INTERRUPTS, "Packets after which an interrupt is raised.";
    CqModerationPeriod = "VMA_CQ_MODERATION_PERIOD_USEC", from(0), "50", NO_INTERRUPTS, "Microseconds after which an interrupt is raised in any case.";
    CqAimMaxCount = "VMA_CQ_AIM_MAX_COUNT", from(0), "560", NO_INTERRUPTS, "The most packets for one interrupt, when moderation adapts.";
    CqAimMaxPeriod = "VMA_CQ_AIM_MAX_PERIOD_USEC", from(0), "250", NO_INTERRUPTS, "The most microseconds for one interrupt, when moderation adapts.";
    CqAimInterval = "VMA_CQ_AIM_INTERVAL_MSEC", from(0), "250", NO_INTERRUPTS, "Milliseconds after which moderation adapts. 0: never.";
    CqAimRate = "VMA_CQ_AIM_INTERRUPTS_RATE_PER_SEC", from(0), "5000", NO_INTERRUPTS, "The rate of interrupts that moderation aims at, in interrupts a second.";
    CqPollBatchMax = "VMA_CQ_POLL_BATCH_MAX", within(1, 128), "16", YES, "The most frames that one poll takes.";
    CqKeepQpFull = "VMA_CQ_KEEP_QP_FULL", Kind::Bool, "1", NO_QUEUES, "Keeps the receive queue full, even if packets are dropped for it.";
    QpCompensation = "VMA_QP_COMPENSATION_LEVEL", from(0), "256", NO_QUEUES, "Spare receive buffers of a queue.";

    OffloadedSockets = "VMA_OFFLOADED_SOCKETS", Kind::Bool, "1", YES, "0: sockets stay on the kernel, except in threads for which the Extra API's thread_offload says otherwise.";
    TimerResolution = "VMA_TIMER_RESOLUTION_MSEC", from(0), "10", no("timers run when they are due, to the microsecond"), "Milliseconds between looks at the timers.";
    TcpTimerResolution = "VMA_TCP_TIMER_RESOLUTION_MSEC", from(0), "100", no("timers run when they are due, to the microsecond"), "The same for TCP.";
    TcpCtlThread = "VMA_TCP_CTL_THREAD", Kind::OneOf(&[(0, "off"), (1, "with wake-ups"), (2, "without")]), "0", no("handshakes and timers are served by whoever polls, and by the progress thread"), "A thread for TCP's timers and handshakes.";
    TcpTimestampOption = "VMA_TCP_TIMESTAMP_OPTION", Kind::OneOf(&[(0, "off"), (1, "on"), (2, "as net.ipv4.tcp_timestamps")]), "1", YES, "TCP's timestamps option (RFC 7323). Upstream: 0.";
    TcpNodelay = "VMA_TCP_NODELAY", Kind::Bool, "0", YES, "1: the Nagle algorithm is off, whatever the program asks for.";
    TcpQuickack = "VMA_TCP_QUICKACK", Kind::Bool, "0", YES, "1: acknowledgements are never delayed, whatever the program asks for.";
    ExceptionHandling = "VMA_EXCEPTION_HANDLING", within(-2, 3), "-1", no("what cannot be offloaded always goes on in the kernel, and ringway doctor says why"), "What happens when a call is not supported.";
    AvoidSysCalls = "VMA_AVOID_SYS_CALLS_ON_TCP_FD", Kind::Bool, "0", no("options and flags must be true in the kernel, where a connection may have to go on"), "1: options and flags of TCP sockets are not passed to the kernel.";
    AllowPrivilegedSockOpt = "VMA_ALLOW_PRIVILEGED_SOCK_OPT", Kind::Bool, "1", KERNELS_ANSWER, "1: options succeed that the program has no privilege for.";
    InternalThreadAffinity = "VMA_INTERNAL_THREAD_AFFINITY", Kind::Cpus, "-1", YES, "The CPUs that the progress thread may run on. -1: all of the program's.";
    InternalThreadCpuset = "VMA_INTERNAL_THREAD_CPUSET", Kind::Path, "", YES, "A control group's directory that the progress thread joins (its cgroup.threads, or tasks).";
    InternalThreadArmCq = "VMA_INTERNAL_THREAD_ARM_CQ", Kind::Bool, "0", no("while the program is elsewhere, the progress thread is woken by a peer anyhow"), "1: every packet wakes the internal thread.";
    WaitAfterJoin = "VMA_WAIT_AFTER_JOIN_MSEC", from(0), "0", no("multicast is the kernel's (needs a NIC)"), "Milliseconds before the first datagram to a group that was just joined.";
    ThreadMode = "VMA_THREAD_MODE", Kind::OneOf(&[(0, "one thread"), (1, "spinning"), (2, "mutex"), (3, "yielding")]), "1", no("one lock a process, which costs no system call unless a thread waits for it"), "How threads are kept from disturbing each other.";
    BufferBatching = "VMA_BUFFER_BATCHING_MODE", Kind::OneOf(&[(0, "none"), (1, "batches, given back"), (2, "batches, kept")]), "1", no("buffers are taken one by one from memory of the process's own, without a lock of their own"), "Whether sockets keep buffers of their own.";
    MemAllocType = "VMA_MEM_ALLOC_TYPE", Kind::OneOf(&[(0, "malloc"), (1, "contiguous"), (2, "huge pages")]), "2", YES, "The memory of the send buffers, which are always in shared memory that peers map. 2, if set by name or by a preset: huge pages, where the system has some (shmem_enabled). 0 and 1: ordinary pages. The memory of a card's rings is on huge pages, where there are some, unless 0 or 1 is set.";
    NeighUcArpQuata = "VMA_NEIGH_UC_ARP_QUATA", from(0), "3", NO_NEIGHBOURS, "Unicast ARP requests before a broadcast.";
    NeighUcArpDelay = "VMA_NEIGH_UC_ARP_DELAY_MSEC", from(0), "10000", NO_NEIGHBOURS, "Milliseconds between them.";
    NeighErrRetries = "VMA_NEIGH_NUM_ERR_RETRIES", from(0), "1", NO_NEIGHBOURS, "Tries after a failure.";
    NetlinkTimer = "VMA_NETLINK_TIMER", from(0), "10000", NO_NEIGHBOURS, "Milliseconds between looks at netlink.";
    Bf = "VMA_BF", Kind::Bool, "1", no("no device here has doorbells (needs mlx5)"), "Rings doorbells by BlueFlame.";
    Fork = "VMA_FORK", Kind::Bool, "1", no("forks are always seen, and children find what they inherit"), "Supports fork.";
    CloseOnDup2 = "VMA_CLOSE_ON_DUP2", Kind::Bool, "1", no("what a number named is always closed when dup2 puts something else there, as in the kernel"), "Closes what dup2 replaces.";
    Socketxtreme = "VMA_SOCKETXTREME", Kind::Bool, "0", YES, "1: events of sockets are recorded on their rings, for the Extra API's socketxtreme_poll.";
    Mtu = "VMA_MTU", zero_or(128, 65_535), "0", YES, "The largest packet of a TCP connection in bytes, at least 128. The payload of its segments is 40 bytes less. 0: the device's MTU. Datagrams always use the device's MTU, since none is fragmented.";
    Mss = "VMA_MSS", zero_or(88, 65_535), "0", YES, "The largest payload of a TCP segment in bytes, at least 88. 0: follows from the MTU.";
    TcpCcAlgo = "VMA_TCP_CC_ALGO", Kind::OneOf(&[(0, "NewReno"), (1, "CUBIC"), (2, "none")]), "1", YES, "Congestion control of TCP connections whose program does not choose one by TCP_CONGESTION. 0: NewReno, which libvma has by default. 1: CUBIC, as Linux. 2: as 0, since no connection goes without.";
    TcpMaxSynRate = "VMA_TCP_MAX_SYN_RATE", within(0, 100_000), "0", YES, "The most connections that a listener begins in a second. Beyond that a SYN is dropped, and comes again after a second. 0: no limit.";
    DeferredClose = "VMA_DEFERRED_CLOSE", Kind::Bool, "0", no("a number is given back when close returns, as in the kernel"), "Keeps a closed socket's number for a while.";
    Hugetbl = "VMA_HUGETBL", Kind::Bool, "0", no("obsolete, upstream as well: it was replaced by VMA_MEM_ALLOC_TYPE"), "Huge pages.";
    DbgMcpktCounter = "VMA_DBG_SEND_MCPKT_COUNTER", from(0), "0", no("a libvma developer's debugging aid"), "Sends multicast packets of its own.";
    DbgMcpktGroup = "VMA_DBG_SEND_MCPKT_MCGROUP", Kind::Text, "", no("a libvma developer's debugging aid"), "Where it sends them.";
    TimeMeasureSamples = "VMA_TIME_MEASURE_NUM_SAMPLES", from(0), "10000", NOT_MEASURED, "Samples that a build for measuring times keeps.";
    TimeMeasureFile = "VMA_TIME_MEASURE_DUMP_FILE", Kind::Path, "/tmp/VMA_inst.dump", NOT_MEASURED, "Where it leaves them.";
}

#[cfg(test)]
mod tests;
