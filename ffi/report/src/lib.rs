//! What a process on Ringway tells about itself. `libvma.so` fills a [`ProcessReport`] and answers with it, as JSON, to
//! `ringway stats` and `ringway doctor`; at its end it appends it as one line to the file that [`STATS_FILE_ENV`] names.
//!
//! Fields are only added, never renamed or given another meaning: readers ignore what they do not know, and every
//! field that is absent has a default.
//!
//! The same report, of as many sockets as VMA_STATS_FD_NUM says, lies in a file beside every process, for `vma_stats` and for readers that
//! the control socket does not answer: [`published`] is that file's form, and [`reader`] (feature `reader`) reads it.
#![forbid(unsafe_code)]

pub mod birth;
mod clean;
pub mod full;
pub mod published;
#[cfg(feature = "reader")]
pub mod reader;

pub use clean::printable;
use serde::{Deserialize, Serialize};

/// The environment variable that names the file to which a process appends its report, one line of JSON, when it ends.
/// `%d` in the name stands for the process id.
pub const STATS_FILE_ENV: &str = "RINGWAY_STATS_FILE";

/// What the control socket is asked for a report that has [`ProcessReport::without_owner`] as well.
pub const SOCKETS: &str = "sockets";

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// Its process id, in its own pid namespace.
    pub pid: u32,
    /// The program's short name.
    pub program: String,
    /// The device that carries its flows; `None`: the process runs on the kernel, and `decisions` says why.
    pub device: Option<DeviceReport>,
    /// The interfaces that it has queues of.
    pub interfaces: Vec<InterfaceReport>,
    /// The ring's totals since the process started.
    pub ring: RingReport,
    /// Open sockets, by descriptor.
    pub sockets: Vec<SocketReport>,
    /// Of who asked for them: connections on rings that the program has closed, or not accepted yet. Their descriptor is -1.
    pub without_owner: Vec<SocketReport>,
    /// How many there are, which may be more than are told of.
    pub sockets_total: u64,
    /// poll, select, and each epoll instance that has been waited in.
    pub waits: Vec<WaitReport>,
    /// Nanoseconds that gathering this report took, the state being locked for at most a part of them.
    pub gathering_ns: u64,
    /// Sums over the sockets that were closed.
    pub closed_sockets: ClosedSockets,
    /// What was decided for and against offloading, and how often.
    pub decisions: Vec<Decision>,
}

/// A device in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceReport {
    /// Its name, as `ringway_stack::offload::DeviceKind` has it.
    pub kind: String,
    /// Its Ethernet address, `aa:bb:cc:dd:ee:ff`.
    pub mac: String,
    /// Peers that frames can be sent to now.
    pub peers: u32,
    /// The largest IP packet in bytes.
    pub mtu: u32,
}

/// An interface that the process has queues of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceReport {
    /// As `ip link` calls it.
    pub name: String,
    /// The queues of each of the process's rings there.
    pub rings: Vec<Vec<u32>>,
    /// Frames that each of these rings received, and sent, by its own queues.
    pub carried: Vec<CarriedReport>,
    /// How many queues the interface has, of which others may have some.
    pub queues: u32,
    /// The interface says by which queue what comes for a flow comes (RSS).
    pub knows_queues: bool,
    /// A broker gave it the ring.
    pub by_broker: bool,
    /// The RDMA device whose rings these are: a card has no queues of its interface, but some of its own.
    pub card: Option<String>,
}

/// What one ring of an interface carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CarriedReport {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
}

/// A ring's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingReport {
    /// Frames received.
    pub rx_packets: u64,
    /// Payload bytes received.
    pub rx_bytes: u64,
    /// Received frames that were dropped.
    pub rx_drops: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Payload bytes sent.
    pub tx_bytes: u64,
    /// Frames that the device did not take.
    pub tx_drops: u64,
    /// TCP segments sent again.
    pub retransmissions: u64,
    /// Bytes copied into and out of the device's memory, in copies of 1 KiB and more: of a stream, each byte once by the process that
    /// sends it and once by the one that receives it.
    pub copied_bytes: u64,
    /// Times that the ring was polled.
    pub polls: u64,
    /// Times that a wait stopped spinning and slept.
    pub sleeps: u64,
    /// Times that a thread found the library's state locked by another one.
    pub lock_contended: u64,
    /// Times that a wait which spun for a while claimed its core.
    pub core_claims: u64,
    /// Times that it found its core claimed, by this process or another one.
    pub core_claims_refused: u64,
    /// Connections that went over to the ring of the thread that uses them.
    pub migrations: u64,
    /// Connections over interfaces that the kernel took over (TCP_REPAIR): their peers noticed nothing.
    pub to_kernel: u64,
    /// Looks at the completion queue in which there was something.
    pub batches: u64,
    /// The most frames that one of them took.
    pub batch_max: u64,
    /// Sockets that the ring has, closed connections that linger included.
    pub sockets: u64,
    /// Pairs of addresses that are taken.
    pub flows: u64,
    /// Buffers of the send pool.
    pub tx_buffers: u64,
    /// Of these, the ones that are handed out or held by peers.
    pub tx_buffers_used: u64,
}

/// poll, select or an epoll instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitReport {
    /// `poll`, `select` or `epoll`.
    pub kind: String,
    /// The epoll instance's descriptor; else -1.
    pub fd: i32,
    /// Calls that found something.
    pub ready: u64,
    /// Calls whose time ran out.
    pub timeouts: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Waits that found something while they spun.
    pub poll_hits: u64,
    /// Waits that slept, or gave up, after they had spun.
    pub poll_misses: u64,
}

/// One socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketReport {
    /// Its descriptor (the lowest, if it was duplicated).
    pub fd: i32,
    /// `tcp` or `udp`; of rsockets, `rstream` or `rdgram`.
    pub protocol: String,
    /// Its own address, `ip:port` (`[ip]:port`, if the kernel carries it by IPv6); empty while unbound.
    pub local: String,
    /// The peer's, likewise; empty if there is none.
    pub remote: String,
    /// The TCP state in RFC 9293's words (`ESTABLISHED`), `LISTEN` for listeners, empty for UDP. (Rsockets' states are called the same.)
    pub state: String,
    /// Whether a ring carries it. A listener and an unconnected UDP socket may be served by both worlds: then it is true.
    pub offloaded: bool,
    /// Why not: `ringway_stack::offload::Reason`'s name.
    pub reason: Option<String>,
    /// The rule of libvma.conf that says so, with its file and line.
    pub rule: Option<String>,
    /// Segments or datagrams received through the ring.
    pub rx_packets: u64,
    /// Payload bytes received through the ring.
    pub rx_bytes: u64,
    /// Segments or datagrams sent through the ring.
    pub tx_packets: u64,
    /// Payload bytes sent through the ring.
    pub tx_bytes: u64,
    /// Successful receive calls that the kernel served.
    pub kernel_rx_packets: u64,
    /// Successful send calls that the kernel served.
    pub kernel_tx_packets: u64,
    /// Bytes (listener: connections) that wait to be taken by the program.
    pub recv_queue: u64,
    /// Bytes that were written and are not acknowledged yet.
    pub send_queue: u64,
    /// TCP segments sent again.
    pub retransmissions: u64,
    /// Whether its calls wait.
    pub blocking: bool,
    /// UDP: whether what it sends to a group comes back to this host.
    pub multicast_loop: bool,
    /// UDP: the address of the interface by which it sends to groups, if one was chosen.
    pub multicast_interface: Option<String>,
    /// UDP: the groups that it is a member of.
    pub groups: Vec<String>,
    /// The thread that last received; 0: none since somebody began to watch.
    pub rx_thread: i32,
    /// The thread that last sent; 0: none since somebody began to watch.
    pub tx_thread: i32,
    /// Receive calls that ended by EAGAIN, since it is not the kernel's alone.
    pub rx_eagains: u64,
    /// Receive calls that failed otherwise.
    pub rx_errors: u64,
    /// Send calls that ended by EAGAIN, likewise.
    pub tx_eagains: u64,
    /// Send calls that failed otherwise.
    pub tx_errors: u64,
    /// Messages that were sent to warm up, and reached nobody.
    pub tx_dummies: u64,
    /// Bytes received through the kernel.
    pub kernel_rx_bytes: u64,
    /// Bytes sent through the kernel.
    pub kernel_tx_bytes: u64,
    /// Receive calls that the kernel answered by EAGAIN.
    pub kernel_rx_eagains: u64,
    /// Receive calls that the kernel failed otherwise.
    pub kernel_rx_errors: u64,
    /// Send calls that the kernel answered by EAGAIN.
    pub kernel_tx_eagains: u64,
    /// Send calls that the kernel failed otherwise.
    pub kernel_tx_errors: u64,
    /// The most bytes that ever waited (UDP).
    pub recv_queue_max: u64,
    /// Bytes of the receive buffer; of a connection, of its receive window.
    pub recv_limit: u64,
    /// Datagrams that wait.
    pub recv_packets: u64,
    /// The most datagrams that ever waited.
    pub recv_packets_max: u64,
    /// Datagrams that were dropped for want of room.
    pub rx_drops: u64,
    /// Bytes of those.
    pub rx_drop_bytes: u64,
    /// Packets that the program holds by reference.
    pub held_packets: u64,
    /// Blocking receives that found something while they spun.
    pub rx_poll_hits: u64,
    /// Blocking receives that slept, or gave up, after they had spun.
    pub rx_poll_misses: u64,
    /// The number that the program chose its ring to receive by (VMA_RING_ALLOCATION_LOGIC_RX 11); `None`: that is not how it is chosen.
    pub rx_ring_user_id: Option<u32>,
    /// The same of its ring to send.
    pub tx_ring_user_id: Option<u32>,
    /// How often it went over to another ring to receive.
    pub rx_ring_migrations: u64,
    /// How often it went over to another ring to send.
    pub tx_ring_migrations: u64,
    /// The connection, if it is one of the ring's.
    pub tcp: Option<TcpReport>,
    /// What carries it: `shm`, `xdp:eth0`, several with commas between them, or `kernel`. What has a device, and no peer of its own, takes what comes by the
    /// kernel as well.
    pub device: String,
    /// Connections that may wait to be accepted.
    pub backlog: u64,
    /// What waits to be taken of what came by the kernel: bytes, or connections.
    pub kernel_recv_queue: u64,
    /// Bytes that the kernel has yet to send, or to have acknowledged.
    pub kernel_send_queue: u64,
    /// The connection, if it is one of the kernel's.
    pub kernel_tcp: Option<TcpReport>,
}

/// A TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpReport {
    /// The smoothed round-trip time in microseconds; 0: not known.
    pub rtt_us: u64,
    /// Its mean deviation in microseconds.
    pub rtt_var_us: u64,
    /// The retransmission timeout in microseconds.
    pub rto_us: u64,
    /// The largest segment's payload in bytes.
    pub mss: u64,
    /// The congestion window in bytes.
    pub cwnd: u64,
    /// The slow-start threshold in bytes; `None`: there is none yet.
    pub ssthresh: Option<u64>,
    /// Bytes on their way.
    pub in_flight: u64,
    /// Bytes written and not sent.
    pub not_sent: u64,
    /// The peer's window in bytes.
    pub snd_wnd: u64,
    /// The window that the peer was told, in bytes.
    pub rcv_wnd: u64,
    /// Timeouts in a row of the same bytes.
    pub retries: u64,
    /// Bytes are thought to be lost: it recovers.
    pub recovering: bool,
    /// Both sides use timestamps.
    pub timestamps: bool,
    /// Both sides use SACK.
    pub sack: bool,
    /// The peer's and our window scale; `None`: not used.
    pub window_scales: Option<(u8, u8)>,
    /// Probes of a shut window, or of an idle connection, without an answer.
    pub probes: u64,
    /// Bytes that the peer has acknowledged; 0: not known.
    pub acked_bytes: u64,
    /// Bytes sent again; 0: not known.
    pub retransmitted_bytes: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Milliseconds since something was sent.
    pub since_sent_ms: u64,
    /// Milliseconds since something came.
    pub since_received_ms: u64,
    /// The timer that runs; `None`: none, or the kernel has not told.
    pub timer: Option<TimerReport>,
}

/// A connection's timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimerReport {
    /// What it is for.
    pub kind: TimerKind,
    /// Microseconds until it runs out.
    pub left_us: u64,
}

/// What a timer is for, in the words of `ss` (ss(8), -o).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimerKind {
    /// What was sent is sent again.
    On,
    /// A shut window is asked about.
    Persist,
    /// A silent peer is asked whether it is there.
    Keepalive,
    /// TIME-WAIT ends, or the wait for the end of a peer whose connection the program has closed.
    TimeWait,
    /// Another one, which this reader does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl TimerKind {
    /// As `ss` calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Persist => "persist",
            Self::Keepalive => "keepalive",
            Self::TimeWait => "timewait",
            Self::Unknown => "unknown",
        }
    }
}

/// Sums over closed sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClosedSockets {
    /// Sockets that a ring carried.
    pub offloaded: u64,
    /// Sockets that the kernel carried.
    pub kernel: u64,
    /// Payload bytes received through the ring.
    pub rx_bytes: u64,
    /// Payload bytes sent through the ring.
    pub tx_bytes: u64,
    /// Successful receive calls that the kernel served.
    pub kernel_rx_packets: u64,
    /// Successful send calls that the kernel served.
    pub kernel_tx_packets: u64,
}

/// One kind of decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Decision {
    /// What was decided about: `process`, `device`, or a call such as `connect`, `bind`, `listen`, `socket`.
    pub what: String,
    /// The device it is about; empty if it holds for all.
    pub device: String,
    /// `ringway_stack::offload::Reason`'s name; empty: it was offloaded.
    pub reason: String,
    /// `ringway_stack::offload::Reason`'s advice; empty if offloaded.
    pub advice: String,
    /// How often.
    pub count: u64,
}

#[cfg(test)]
mod tests;
