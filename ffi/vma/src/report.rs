//! What `ringway stats` and `ringway doctor` hear from this process.

use std::ffi::{CString, OsString};
use std::io;
use std::sync::OnceLock;

use ringway_params::Id;
use ringway_report::{Decision, DeviceReport, ProcessReport, RingReport, STATS_FILE_ENV, SocketReport};
use ringway_stack::device::{Device, Protocol};
use ringway_stack::offload::Reason;
use ringway_stack::tcp;
use serde::Serialize;

use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Kind, Socket};
use crate::{fdtable, params, real};

/// Where the report goes, as the environment had it when the state was first made: nginx's workers clear theirs.
fn stats_file() -> Option<&'static OsString> {
    static PATH: OnceLock<Option<OsString>> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os(STATS_FILE_ENV)).as_ref()
}

/// VMA_STATS_FILE: where each socket's statistics go.
fn sockets_file() -> Option<String> {
    params::settings().path(Id::StatsFile)
}

/// A socket is closed for good: what there is to say of it goes to the file that VMA_STATS_FILE names.
pub(crate) fn closed(offload: &Offload, socket: &Socket, fd: i32) {
    if let Some(path) = sockets_file() {
        append_lines(&path, &[socket_report(offload, socket, fd)]);
    }
}

/// Appends each as a line of JSON, all of them in one write.
fn append_lines<T: Serialize>(path: &str, values: &[T]) {
    let lines = values.iter().map(|value| serde_json::to_string(value).map(|line| line + "\n")).collect::<Result<String, _>>();
    let written = lines.map_err(io::Error::from).and_then(|lines| append_to(path, lines.as_bytes()));
    if let Err(error) = written {
        tracing::warn!("the statistics were not written to {path}: {error}");
    }
}

/// By libc's own calls: the state may be locked, for which the library's wait where a number was used before.
fn append_to(path: &str, bytes: &[u8]) -> io::Result<()> {
    let path = CString::new(path)?;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: a C string and plain integers; the pointer and length are a slice's; the descriptor was made here.
    unsafe {
        let fd = real::open(path.as_ptr(), flags, 0o666);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let written = real::write(fd, bytes.as_ptr().cast(), bytes.len());
        let result = if usize::try_from(written) == Ok(bytes.len()) { Ok(()) } else { Err(io::Error::last_os_error()) };
        real::close(fd);
        result
    }
}

/// Answers the control socket with the report.
pub(crate) fn serve(process: &'static Process) {
    stats_file();
    process.rendezvous.set_control_handler(Box::new(move |_request| {
        serde_json::to_string(&gather(process)).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }));
}

/// The report for the files that RINGWAY_STATS_FILE and VMA_STATS_FILE name, if they name any: taken while the sockets are still there, to be
/// written by [`append`] once what they had queued was sent.
pub(crate) fn last(process: &Process) -> Option<ProcessReport> {
    (stats_file().is_some() || sockets_file().is_some()).then(|| gather(process))
}

/// Appends the report, with the ring's totals as they are now, in one write; and the sockets that are open to the other file.
pub(crate) fn append(process: &Process, mut report: ProcessReport) {
    report.ring = ring_report(&process.lock());
    if let Some(path) = sockets_file() {
        append_lines(&path, &report.sockets);
    }
    let Some(path) = stats_file() else { return };
    append_lines(&path.to_string_lossy().replacen("%d", &std::process::id().to_string(), 1), &[report]);
}

fn ring_report(offload: &Offload) -> RingReport {
    let counters = offload.ring.counters();
    RingReport {
        rx_packets: counters.rx_packets,
        rx_bytes: counters.rx_bytes,
        rx_drops: counters.rx_drops,
        tx_packets: counters.tx_packets,
        tx_bytes: counters.tx_bytes,
        tx_drops: counters.tx_drops,
        retransmissions: counters.retransmissions,
        copied_bytes: ringway_shm::bulk_copied(),
        polls: offload.mux.calls,
        sleeps: offload.mux.sleeps,
        seats: offload.mux.seats,
        seats_refused: offload.mux.seats_refused,
    }
}

fn gather(process: &Process) -> ProcessReport {
    let guard = process.lock();
    let offload = &*guard;
    let device = offload.ring.device();
    let capabilities = device.capabilities();
    ProcessReport {
        pid: std::process::id(),
        program: params::program_name(),
        device: Some(DeviceReport {
            kind: capabilities.kind.name().to_owned(),
            mac: device.mac().to_string(),
            peers: u32::try_from(process.rendezvous.peers().len()).unwrap_or(u32::MAX),
            mtu: u32::try_from(capabilities.mtu).unwrap_or(u32::MAX),
        }),
        ring: ring_report(offload),
        sockets: sockets(offload),
        closed_sockets: offload.closed,
        decisions: offload.decisions.iter().map(|d| decision(d.what, d.reason, d.count)).collect(),
    }
}

fn decision(what: &str, reason: Option<Reason>, count: u64) -> Decision {
    Decision {
        what: what.to_owned(),
        device: "shm".to_owned(),
        reason: reason.map_or_else(String::new, |r| r.name().to_owned()),
        advice: reason.map_or_else(String::new, |r| r.advice().to_owned()),
        count,
    }
}

/// Every socket of the process.
pub(crate) fn sockets(offload: &Offload) -> Vec<SocketReport> {
    let mut reports: Vec<(Key, SocketReport)> = Vec::new();
    // A socket's slot -> its place among the reports: this runs under the lock, and there may be many descriptors.
    let mut places: Vec<usize> = Vec::new();
    for (fd, entry) in fdtable::entries() {
        let Some(key) = entry.socket() else { continue };
        let (rx, tx) = fdtable::kernel_counts(fd);
        let slot = key.index as usize;
        let seen = places.get(slot).and_then(|&place| reports.get_mut(place)).filter(|(seen, _)| *seen == key);
        if let Some((_, report)) = seen {
            report.kernel_rx_packets += rx;
            report.kernel_tx_packets += tx;
        } else if let Some(socket) = offload.sockets.find(key) {
            let mut report = socket_report(offload, socket, fd);
            report.kernel_rx_packets = rx;
            report.kernel_tx_packets = tx;
            if places.len() <= slot {
                places.resize(slot + 1, usize::MAX);
            }
            places[slot] = reports.len();
            reports.push((key, report));
        }
    }
    reports.into_iter().map(|(_, report)| report).collect()
}

fn socket_report(offload: &Offload, socket: &Socket, fd: i32) -> SocketReport {
    let mut report = SocketReport {
        fd,
        protocol: if socket.protocol == Protocol::Tcp { "tcp" } else { "udp" }.to_owned(),
        local: socket.bound.map_or_else(String::new, |a| a.to_string()),
        remote: socket.peer.map_or_else(String::new, |a| a.to_string()),
        offloaded: socket.ring_id().is_some(),
        reason: socket.reason.map(|r| r.name().to_owned()),
        rule: socket.rare.as_ref().and_then(|rare| rare.rule.clone()),
        ..SocketReport::default()
    };
    if matches!(socket.kind, Kind::Listener(_)) {
        "LISTEN".clone_into(&mut report.state);
    }
    let Some(info) = socket.ring_id().and_then(|id| offload.ring.info(id)) else { return report };
    if !matches!(socket.kind, Kind::Listener(_)) {
        report.state = info.state.map_or_else(String::new, |s| state_name(s).to_owned());
    }
    report.rx_packets = info.counters.rx_packets;
    report.rx_bytes = info.counters.rx_bytes;
    report.tx_packets = info.counters.tx_packets;
    report.tx_bytes = info.counters.tx_bytes;
    report.recv_queue = info.recv_queue as u64;
    report.send_queue = info.send_queue as u64;
    report.retransmissions = info.counters.retransmissions;
    report
}

/// RFC 9293 s3.3.2's words.
const fn state_name(state: tcp::State) -> &'static str {
    match state {
        tcp::State::Closed => "CLOSED",
        tcp::State::Listen => "LISTEN",
        tcp::State::SynSent => "SYN-SENT",
        tcp::State::SynReceived => "SYN-RECEIVED",
        tcp::State::Established => "ESTABLISHED",
        tcp::State::FinWait1 => "FIN-WAIT-1",
        tcp::State::FinWait2 => "FIN-WAIT-2",
        tcp::State::CloseWait => "CLOSE-WAIT",
        tcp::State::Closing => "CLOSING",
        tcp::State::LastAck => "LAST-ACK",
        tcp::State::TimeWait => "TIME-WAIT",
    }
}
