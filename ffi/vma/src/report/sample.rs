//! One socket: what is read of it under the lock, and the text that is made of that afterwards.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use libc::c_int;
use ringway_report::{SocketReport, TcpReport, TimerKind, TimerReport};
use ringway_stack::device::Protocol;
use ringway_stack::offload::{DeviceKind, Reason};
use ringway_stack::ring::{Backlog, FlowId, FlowInfo};
use ringway_stack::{Instant, tcp};

use super::kernels;
use crate::extra::rings::{self, Direction};
use crate::interfaces::Interfaces;
use crate::process::Offload;
use crate::rings::RingSet;
use crate::socket::{Kind, Socket};

/// What the rings are on. All but the interfaces' are on shared memory.
pub(super) struct DeviceNames {
    of_interfaces: Vec<(u16, String)>,
}

impl DeviceNames {
    pub(super) fn of(offload: &Offload) -> Self {
        let named = offload.interfaces.as_deref().map(Interfaces::names).unwrap_or_default();
        // (What was given up is the kernel's, as far as this process goes.)
        let absent = offload.rings.interfaces.iter().filter(|&ring| offload.rings.at(ring).ring.is_absent());
        Self { of_interfaces: named.into_iter().chain(absent.map(|ring| (ring, "kernel".to_owned()))).collect() }
    }

    /// A ring's.
    pub(super) fn of_ring(&self, ring: u16) -> &str {
        let of_interface = self.of_interfaces.iter().find(|(number, _)| *number == ring);
        of_interface.map_or(DeviceKind::Shm.name(), |(_, name)| name)
    }

    /// Those of some rings, each once.
    fn all(&self, rings: RingSet) -> String {
        let mut names = Vec::new();
        for ring in rings.iter() {
            let name = self.of_ring(ring);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { "kernel".to_owned() } else { names.join(",") }
    }
}

/// A socket as it is under the lock, without text.
pub(super) struct Sample {
    fd: c_int,
    pub(super) protocol: Protocol,
    blocking: bool,
    multicast_loop: bool,
    bound: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    is_listener: bool,
    backlog_max: u64,
    /// Left to the kernel; `moved`: by another name, maybe, than the program knows it by.
    is_kernels: bool,
    moved: bool,
    offloaded: bool,
    on: RingSet,
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
    pub(super) fn of(offload: &Offload, now: Instant, socket: &Socket, fd: c_int) -> Self {
        let id = socket.ring_id();
        Self {
            fd,
            protocol: socket.protocol,
            blocking: !socket.nonblocking,
            multicast_loop: socket.protocol == Protocol::Udp && socket.udp.multicast_loop,
            bound: socket.bound,
            peer: socket.peer,
            is_listener: matches!(socket.kind, Kind::Listener(_)),
            backlog_max: u64::try_from(socket.backlog).unwrap_or(0),
            is_kernels: socket.kind == Kind::Kernel,
            moved: socket.moved,
            offloaded: id.is_some(),
            on: socket.rings(),
            reason: socket.reason,
            rule: socket.rare.as_ref().and_then(|rare| rare.rule.clone()),
            info: info_of(offload, socket),
            tcp: id.and_then(|id| offload.rings.of(id).tcp_details(now, id)),
            backlog: backlog_of(offload, socket),
            groups: socket.rare.iter().flat_map(|rare| rare.groups.members.iter().copied()).collect(),
            multicast_interface: socket.rare.as_ref().and_then(|rare| rare.groups.interface),
            rings: [Direction::Rx, Direction::Tx].map(|direction| offload.extra_rings.told(socket, direction)),
        }
    }

    /// A connection on a ring that no program has.
    pub(super) fn without_owner(offload: &Offload, now: Instant, flow: FlowId) -> Option<Self> {
        let ring = offload.rings.of(flow);
        let info = ring.info(flow)?;
        Some(Self {
            fd: -1,
            protocol: Protocol::Tcp,
            blocking: false,
            multicast_loop: false,
            bound: Some(info.local),
            peer: info.remote,
            is_listener: false,
            backlog_max: 0,
            is_kernels: false,
            moved: false,
            offloaded: true,
            on: RingSet::of(flow.ring),
            reason: None,
            rule: None,
            tcp: ring.tcp_details(now, flow),
            info: Some(info),
            backlog: None,
            groups: Vec::new(),
            multicast_interface: None,
            rings: Default::default(),
        })
    }

    /// Whether the kernel may have something of it that waits to be taken: of a connection of a ring's it has nothing.
    pub(super) fn is_kernels_too(&self) -> bool {
        self.is_kernels || self.is_listener || self.protocol == Protocol::Udp
    }

    /// Whether the kernel alone knows what became of it.
    pub(super) fn is_kernels(&self) -> bool {
        self.is_kernels
    }

    /// With what the kernel has told of it, if it is the kernel's.
    pub(super) fn into_report(self, told: Option<kernels::Told>, devices: &DeviceNames) -> SocketReport {
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
            device: devices.all(self.on),
            backlog: if self.is_listener { self.backlog_max } else { 0 },
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
        recovering: details.congestion_state >= 3,
        timestamps: details.timestamps,
        sack: details.sack,
        window_scales: details.window_scales,
        probes: details.probes.into(),
        acked_bytes: acked_bytes(info, details),
        retransmitted_bytes: info.counters.retransmitted_bytes,
        retransmissions: info.counters.retransmissions,
        since_sent_ms: details.silence.0.as_millis() as u64,
        since_received_ms: details.silence.1.as_millis() as u64,
        timer: details.pending.map(|(pending, left)| TimerReport { kind: timer_kind(pending), left_us: micros(left) }),
    }
}

/// What was sent once, but for what is on its way.
fn acked_bytes(info: &FlowInfo, details: &tcp::Details) -> u64 {
    let on_the_way = info.send_queue.saturating_sub(details.not_sent) as u64;
    info.counters.tx_bytes.saturating_sub(info.counters.retransmitted_bytes).saturating_sub(on_the_way)
}

const fn timer_kind(pending: tcp::Pending) -> TimerKind {
    match pending {
        tcp::Pending::Retransmission => TimerKind::On,
        tcp::Pending::WindowProbe => TimerKind::Persist,
        tcp::Pending::Keepalive => TimerKind::Keepalive,
        tcp::Pending::TimeWait => TimerKind::TimeWait,
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
