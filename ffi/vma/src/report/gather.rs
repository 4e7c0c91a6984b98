//! Gathering: under the lock only what must be, a few sockets at a time; text is made of it outside.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use libc::c_int;
use ringway_report::{Decision, DeviceReport, ProcessReport, RingReport, SocketReport, TcpReport, WaitReport};
use ringway_stack::device::Protocol;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{Backlog, FlowInfo};
use ringway_stack::{Instant, tcp};

use super::kernels;
use crate::devices::Ring;
use crate::extra::rings::{self, Direction};
use crate::fd_counters::{self, Count, Sums, Way};
use crate::fdtable::{self, Entry};
use crate::params;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Kind, Socket};

/// Sockets that are looked at in one hold of the lock: some microseconds.
const AT_A_TIME: usize = 32;

/// The whole process, with `most` of its sockets.
pub(super) fn process(process: &Process, most: usize) -> ProcessReport {
    let began = std::time::Instant::now();
    let all = names();
    let sockets_total = all.len() as u64;
    let mut report = ProcessReport {
        pid: std::process::id(),
        program: params::program_name(),
        sockets: sockets(process, all.into_iter().take(most)),
        sockets_total,
        waits: waits(),
        ..overall(process)
    };
    report.gathering_ns = began.elapsed().as_nanos() as u64;
    report
}

/// What is not of one socket.
fn overall(process: &Process) -> ProcessReport {
    let peers = u32::try_from(process.rendezvous().peers().len()).unwrap_or(u32::MAX);
    let mut guard = process.lock();
    let ring = ring(process, &mut guard);
    let offload = &*guard;
    let device = &offload.rings.first().ring;
    let capabilities = device.capabilities();
    ProcessReport {
        device: Some(DeviceReport {
            kind: capabilities.kind.name().to_owned(),
            mac: device.mac().to_string(),
            peers,
            mtu: u32::try_from(capabilities.mtu).unwrap_or(u32::MAX),
        }),
        ring,
        closed_sockets: offload.closed,
        decisions: offload.decisions.iter().map(|d| decision(d.what, d.reason, d.count)).collect(),
        ..ProcessReport::default()
    }
}

/// The rings' totals.
pub(super) fn ring(process: &Process, offload: &mut Offload) -> RingReport {
    let of_all = RingReport {
        polls: offload.mux.calls,
        sleeps: offload.mux.sleeps,
        lock_contended: process.state().contended(),
        migrations: offload.migrations.done,
        core_claims: offload.mux.core_claims,
        core_claims_refused: offload.mux.core_claims_refused,
        ..RingReport::default()
    };
    offload.rings.iter_mut().fold(of_all, |sum, own| add(sum, &mut own.ring))
}

/// A ring's own totals, on top of others'.
fn add(sum: RingReport, ring: &mut Ring) -> RingReport {
    let (counters, batches, usage) = (ring.counters(), ring.batches(), ring.usage());
    let (buffers, in_use) = ring.tx_buffers();
    RingReport {
        rx_packets: sum.rx_packets + counters.rx_packets,
        rx_bytes: sum.rx_bytes + counters.rx_bytes,
        rx_drops: sum.rx_drops + counters.rx_drops,
        tx_packets: sum.tx_packets + counters.tx_packets,
        tx_bytes: sum.tx_bytes + counters.tx_bytes,
        tx_drops: sum.tx_drops + counters.tx_drops,
        retransmissions: sum.retransmissions + counters.retransmissions,
        copied_bytes: sum.copied_bytes + ring.copied_bytes(),
        batches: sum.batches + batches.count,
        batch_max: sum.batch_max.max(batches.max as u64),
        sockets: sum.sockets + usage.flows as u64,
        flows: sum.flows + usage.addresses as u64,
        tx_buffers: sum.tx_buffers + buffers as u64,
        tx_buffers_used: sum.tx_buffers_used + in_use as u64,
        ..sum
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

/// poll, select, and the epoll instances, as far as they were used.
fn waits() -> Vec<WaitReport> {
    let wait = |kind: &str, fd, sums: Sums| {
        let [ready, timeouts, errors] = sums.waited();
        let (poll_hits, poll_misses) = (sums.count(Count::PollHits), sums.count(Count::PollMisses));
        WaitReport { kind: kind.to_owned(), fd, ready, timeouts, errors, poll_hits, poll_misses }
    };
    let epolls = fdtable::entries().filter(|(_, entry)| matches!(entry, Entry::Epoll(_)));
    let used = |wait: &WaitReport| wait.ready + wait.timeouts + wait.errors + wait.poll_hits + wait.poll_misses > 0;
    [("poll", fd_counters::POLL.sums()), ("select", fd_counters::SELECT.sums())]
        .into_iter()
        .map(|(kind, sums)| wait(kind, -1, sums))
        .chain(epolls.map(|(fd, _)| wait("epoll", fd, fd_counters::of(fd))))
        .filter(used)
        .collect()
}

/// A socket, by the lowest of its descriptors; and what was counted of all of them.
struct Named {
    key: Key,
    fd: c_int,
    sums: Sums,
    kernel: (u64, u64),
}

impl Named {
    fn new(key: Key, fd: c_int) -> Self {
        Self { key, fd, sums: fd_counters::of(fd), kernel: fdtable::kernel_counts(fd) }
    }

    /// Another descriptor of the same socket.
    fn add(&mut self, fd: c_int) {
        self.sums.add(&fd_counters::of(fd));
        let (rx, tx) = fdtable::kernel_counts(fd);
        self.kernel = (self.kernel.0 + rx, self.kernel.1 + tx);
    }
}

/// Every socket, in the order of their descriptors. Needs no lock.
fn names() -> Vec<Named> {
    let mut names: Vec<Named> = Vec::new();
    // A socket's slot -> its place among the names.
    let mut places: Vec<usize> = Vec::new();
    for (fd, entry) in fdtable::entries() {
        let Some(key) = entry.socket() else { continue };
        let slot = key.index as usize;
        if let Some(named) = places.get(slot).and_then(|&place| names.get_mut(place)).filter(|named| named.key == key) {
            named.add(fd);
            continue;
        }
        if places.len() <= slot {
            places.resize(slot + 1, usize::MAX);
        }
        places[slot] = names.len();
        names.push(Named::new(key, fd));
    }
    names
}

/// One descriptor's socket alone. `None`: it has none.
pub(crate) fn one(process: &Process, fd: c_int) -> Option<SocketReport> {
    let key = fdtable::peek(fd).socket()?;
    let mut named = Named::new(key, fd);
    if process.lock().sockets.find(key)?.fds > 1 {
        let others = fdtable::entries().filter(|&(other, entry)| other != fd && entry.socket() == Some(key));
        others.for_each(|(other, _)| named.add(other));
    }
    sockets(process, [named].into_iter()).pop()
}

/// Every socket of the process.
pub(crate) fn all(process: &Process) -> Vec<SocketReport> {
    sockets(process, names().into_iter())
}

fn sockets(process: &Process, mut names: impl Iterator<Item = Named>) -> Vec<SocketReport> {
    let now = process.now();
    let mut reports = Vec::new();
    let (mut few, mut samples) = (Vec::with_capacity(AT_A_TIME), Vec::with_capacity(AT_A_TIME));
    let mut held: Option<BTreeMap<u32, u64>> = None;
    loop {
        few.extend(names.by_ref().take(AT_A_TIME));
        if few.is_empty() {
            return reports;
        }
        {
            let offload = process.lock();
            let held = held.get_or_insert_with(|| {
                let mut held = BTreeMap::new();
                offload.loans.holders().for_each(|key| *held.entry(key.index).or_default() += 1);
                held
            });
            for named in few.drain(..) {
                if let Some(socket) = offload.sockets.find(named.key) {
                    let held = held.get(&named.key.index).copied().unwrap_or(0);
                    samples.push((Sample::of(&offload, now, socket, named.fd), named, held));
                }
            }
        }
        for (sample, named, held_packets) in samples.drain(..) {
            let told = sample.is_kernels().then(|| kernels::ask(named.fd, sample.protocol));
            // (Asked without the lock: the number may have come to mean another socket meanwhile.)
            let told = told.filter(|_| fdtable::peek(named.fd).socket() == Some(named.key));
            let mut report = SocketReport { held_packets, ..sample.into_report(told) };
            add_counts(&mut report, &named);
            reports.push(report);
        }
    }
}

fn add_counts(report: &mut SocketReport, named: &Named) {
    let count = |what| named.sums.count(what);
    (report.kernel_rx_packets, report.kernel_tx_packets) = named.kernel;
    (report.kernel_rx_bytes, report.kernel_tx_bytes) = (count(Count::KernelRxBytes), count(Count::KernelTxBytes));
    (report.kernel_rx_eagains, report.kernel_rx_errors) = (count(Count::KernelRxEagain), count(Count::KernelRxError));
    (report.kernel_tx_eagains, report.kernel_tx_errors) = (count(Count::KernelTxEagain), count(Count::KernelTxError));
    (report.rx_eagains, report.rx_errors) = (count(Count::RxEagain), count(Count::RxError));
    (report.tx_eagains, report.tx_errors) = (count(Count::TxEagain), count(Count::TxError));
    report.tx_dummies = count(Count::TxDummies);
    (report.rx_poll_hits, report.rx_poll_misses) = (count(Count::PollHits), count(Count::PollMisses));
    (report.rx_thread, report.tx_thread) = (named.sums.thread(Way::Rx), named.sums.thread(Way::Tx));
}

/// A socket that is closed for good, and was known as `fd`, which may be open still.
pub(super) fn closed(offload: &Offload, socket: &Socket, (fd, is_open): (c_int, bool), now: Instant) -> SocketReport {
    let sample = Sample::of(offload, now, socket, fd);
    let told = (is_open && sample.is_kernels()).then(|| kernels::ask(fd, sample.protocol));
    let mut report = sample.into_report(told);
    // (The descriptor's own counts of the kernel's calls went with its last name.)
    add_counts(
        &mut report,
        &Named { key: Key { index: 0, generation: 0 }, fd, sums: fd_counters::of(fd), kernel: fdtable::kernel_counts(fd) },
    );
    report
}

/// A socket as it is under the lock, without text.
struct Sample {
    fd: c_int,
    protocol: Protocol,
    blocking: bool,
    multicast_loop: bool,
    bound: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    is_listener: bool,
    /// Left to the kernel; `moved`: by another name, maybe, than the program knows it by.
    is_kernels: bool,
    moved: bool,
    offloaded: bool,
    reason: Option<Reason>,
    rule: Option<String>,
    info: Option<FlowInfo>,
    tcp: Option<tcp::Details>,
    backlog: Option<Backlog>,
    groups: Vec<IpAddr>,
    multicast_interface: Option<Ipv4Addr>,
    rings: [rings::Told; 2],
}

impl Sample {
    fn of(offload: &Offload, now: Instant, socket: &Socket, fd: c_int) -> Self {
        let id = socket.ring_id();
        Self {
            fd,
            protocol: socket.protocol,
            blocking: !socket.nonblocking,
            multicast_loop: socket.protocol == Protocol::Udp && socket.udp.multicast_loop,
            bound: socket.bound,
            peer: socket.peer,
            is_listener: matches!(socket.kind, Kind::Listener(_)),
            is_kernels: socket.kind == Kind::Kernel,
            moved: socket.moved,
            offloaded: id.is_some(),
            reason: socket.reason,
            rule: socket.rare.as_ref().and_then(|rare| rare.rule.clone()),
            info: info_of(offload, socket),
            tcp: id.and_then(|id| offload.rings.of(id).tcp_details(now, id)),
            backlog: backlog_of(offload, socket),
            groups: {
                let on_ring = id.map_or(&[][..], |id| offload.rings.of(id).udp_groups(id)).iter().copied();
                on_ring.chain(socket.rare.iter().flat_map(|rare| rare.groups.members.iter().copied().map(IpAddr::V4))).collect()
            },
            multicast_interface: socket.rare.as_ref().and_then(|rare| rare.groups.interface),
            rings: [Direction::Rx, Direction::Tx].map(|direction| offload.extra_rings.told(socket, direction)),
        }
    }

    /// Whether the kernel alone knows what became of it.
    fn is_kernels(&self) -> bool {
        self.is_kernels
    }

    /// With what the kernel has told of it, if it is the kernel's.
    fn into_report(self, told: Option<kernels::Told>) -> SocketReport {
        let told = told.unwrap_or_default();
        // (A port may be another one there than the program knows: names::of_moved.)
        let of_kernel = |address: Option<SocketAddr>| address.filter(|_| !self.moved);
        let address = |kernels: Option<SocketAddr>, own: Option<SocketAddr>| {
            of_kernel(kernels).or(own).map_or_else(String::new, |address| address.to_string())
        };
        let [rx, tx] = self.rings;
        let mut report = SocketReport {
            fd: self.fd,
            protocol: if self.protocol == Protocol::Tcp { "tcp" } else { "udp" }.to_owned(),
            local: address(told.local, self.bound),
            remote: address(told.remote, self.peer),
            state: told.state.map_or_else(String::new, |state| state_name(state).to_owned()),
            offloaded: self.offloaded,
            reason: self.reason.map(|r| r.name().to_owned()),
            rule: self.rule,
            blocking: self.blocking,
            multicast_loop: self.multicast_loop,
            groups: self.groups.iter().map(IpAddr::to_string).collect(),
            multicast_interface: self.multicast_interface.map(|address| address.to_string()),
            rx_ring_user_id: rx.user_id,
            tx_ring_user_id: tx.user_id,
            rx_ring_migrations: rx.migrations,
            tx_ring_migrations: tx.migrations,
            ..SocketReport::default()
        };
        if self.is_listener {
            "LISTEN".clone_into(&mut report.state);
        }
        let Some(info) = self.info else { return report };
        if !self.is_listener {
            report.state = info.state.map_or_else(String::new, |s| state_name(s).to_owned());
        }
        report.rx_packets = info.counters.rx_packets;
        report.rx_bytes = info.counters.rx_bytes;
        report.rx_drops = info.counters.rx_drops;
        report.tx_packets = info.counters.tx_packets;
        report.tx_bytes = info.counters.tx_bytes;
        report.recv_queue = info.recv_queue as u64;
        // What may still come, and what has.
        report.recv_limit = self.tcp.map_or(0, |tcp| (tcp.rcv_wnd + info.recv_queue) as u64);
        report.send_queue = info.send_queue as u64;
        report.retransmissions = info.counters.retransmissions;
        report.tcp = self.tcp.map(|details| tcp_report(&info, &details));
        if let Some(backlog) = self.backlog {
            report.recv_packets = backlog.packets as u64;
            report.recv_packets_max = backlog.packets_max as u64;
            report.recv_queue_max = backlog.bytes_max as u64;
            report.recv_limit = backlog.limit as u64;
            report.rx_drop_bytes = backlog.dropped_bytes;
        }
        report
    }
}

/// What the rings say of a socket: of all its flows.
fn info_of(offload: &Offload, socket: &Socket) -> Option<FlowInfo> {
    let mut infos = socket.flows().filter_map(|id| offload.rings.of(id).info(id));
    let mut info = infos.next()?;
    for other in infos {
        let (all, more) = (&mut info.counters, &other.counters);
        all.rx_packets += more.rx_packets;
        all.rx_bytes += more.rx_bytes;
        all.rx_drops += more.rx_drops;
        all.tx_packets += more.tx_packets;
        all.tx_bytes += more.tx_bytes;
        info.recv_queue += other.recv_queue;
    }
    Some(info)
}

/// Likewise. (The limit is each flow's.)
fn backlog_of(offload: &Offload, socket: &Socket) -> Option<Backlog> {
    let mut backlogs = socket.flows().filter_map(|id| offload.rings.of(id).udp_backlog(id));
    let mut backlog = backlogs.next()?;
    for other in backlogs {
        backlog.packets += other.packets;
        backlog.packets_max += other.packets_max;
        backlog.bytes_max += other.bytes_max;
        backlog.dropped_bytes += other.dropped_bytes;
    }
    Some(backlog)
}

fn tcp_report(info: &FlowInfo, details: &tcp::Details) -> TcpReport {
    let micros = |time: core::time::Duration| time.as_micros() as u64;
    TcpReport {
        rtt_us: micros(info.srtt),
        rtt_var_us: micros(details.rtt_var),
        rto_us: micros(details.rto),
        mss: info.mss.into(),
        cwnd: info.cwnd as u64,
        ssthresh: details.ssthresh.map(|bytes| bytes as u64),
        in_flight: details.in_flight as u64,
        not_sent: details.not_sent as u64,
        snd_wnd: details.snd_wnd as u64,
        rcv_wnd: details.rcv_wnd as u64,
        retries: details.retries.into(),
        recovering: details.congestion_state != 0,
    }
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
