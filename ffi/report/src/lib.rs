//! What a process on Ringway tells about itself. `libvma.so` fills a [`ProcessReport`] and answers with it, as JSON, to
//! `ringway stats` and `ringway doctor`; at its end it appends it as one line to the file that [`STATS_FILE_ENV`] names.
//!
//! Fields are only added, never renamed or given another meaning: readers ignore what they do not know, and every
//! field that is absent has a default.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// The environment variable that names the file to which a process appends its report, one line of JSON, when it ends.
/// `%d` in the name stands for the process id.
pub const STATS_FILE_ENV: &str = "RINGWAY_STATS_FILE";

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
    /// The ring's totals since the process started.
    pub ring: RingReport,
    /// Open sockets, by descriptor.
    pub sockets: Vec<SocketReport>,
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
    /// Stations that frames can be sent to now.
    pub peers: u32,
    /// The largest IP packet in bytes.
    pub mtu: u32,
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
    /// Times that a wait which spun for a while took its core's only seat for a spinner.
    pub seats: u64,
    /// Times that it found the seat taken, by this process or another one.
    pub seats_refused: u64,
}

/// One socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketReport {
    /// Its descriptor (the lowest, if it was duplicated).
    pub fd: i32,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Its own address, `ip:port`; empty while unbound.
    pub local: String,
    /// The peer's, `ip:port`; empty if there is none.
    pub remote: String,
    /// The TCP state in RFC 9293's words (`ESTABLISHED`), `LISTEN` for listeners, empty for UDP.
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
