//! What `ringway stats`, `ringway sockets` and `ringway doctor` hear of the process, by its control socket, which the progress thread answers: the same report
//! as libvma's ([`ringway_report`]), as far as rsockets have what it tells.

use std::net::SocketAddr;

use ringway_report::{DeviceReport, ProcessReport, RingReport, SocketReport};
use ringway_stack::device::messages::Messages as _;
use ringway_stack::rsocket::StreamStage;

use crate::library::{Library, enter_or_none};
use crate::table::Kind;

/// The report, as JSON. The library is not entered.
pub(crate) fn answer() -> String {
    let report = enter_or_none().map(|mut library| gather(&mut library));
    // (In a fork's child nobody has an rsocket.)
    serde_json::to_string(&report.unwrap_or_default()).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}

fn gather(library: &mut Library) -> ProcessReport {
    let began = library.now();
    let traffic = library.plane.traffic();
    let device = DeviceReport {
        kind: library.plane.kind().name().to_owned(),
        mac: library.plane.mac().map(|mac| mac.to_string()).unwrap_or_default(),
        peers: u32::try_from(library.fabric.peers()).unwrap_or(u32::MAX),
        mtu: u32::try_from(library.plane.message_limits().datagram).unwrap_or(0),
    };
    let sockets: Vec<_> = library.table.keys().copied().collect::<Vec<_>>().into_iter().filter_map(|fd| socket(library, fd)).collect();
    ProcessReport {
        pid: std::process::id(),
        program: program(),
        device: Some(device),
        ring: RingReport {
            rx_packets: traffic.received,
            rx_drops: traffic.strange,
            tx_packets: traffic.sent,
            tx_drops: traffic.lost,
            sockets: sockets.len() as u64,
            ..RingReport::default()
        },
        sockets_total: sockets.len() as u64,
        sockets,
        gathering_ns: u64::try_from(library.now().since(began).as_nanos()).unwrap_or(u64::MAX),
        ..ProcessReport::default()
    }
}

/// The program's short name.
pub(crate) fn program() -> String {
    std::fs::read_to_string("/proc/self/comm").map(|name| name.trim_end().to_owned()).unwrap_or_default()
}

fn socket(library: &mut Library, fd: i32) -> Option<SocketReport> {
    let kind = library.plane.kind();
    let entry = library.table.get_mut(&fd)?;
    let report = SocketReport {
        // (One of a library that stands on this one has its descriptor there.)
        fd: if entry.descriptor.is_some() { fd } else { -1 },
        offloaded: true,
        blocking: !entry.is_nonblocking,
        device: kind.name().to_owned(),
        ..SocketReport::default()
    };
    let Kind::Stream(id) = entry.kind else {
        let names = entry.open_datagram().map(|(open, _)| (open.local, open.peer)).ok();
        let (local, remote) = names.map_or_else(Default::default, |(local, peer)| (local.to_string(), text(peer)));
        return Some(SocketReport { protocol: "rdgram".to_owned(), local, remote, ..report });
    };
    let sockets = &library.sockets;
    let info = sockets.info(id).unwrap_or_default();
    let (state, waiting) = match (sockets.backlog_of(id), sockets.info(id)) {
        (Some(waiting), _) => ("LISTEN", waiting),
        (None, Some(info)) => (name(info.stage), (0, 0)),
        (None, None) => ("CLOSED", (0, 0)),
    };
    Some(SocketReport {
        protocol: "rstream".to_owned(),
        local: text(sockets.local(id).ok().filter(|local| local.port() != 0)),
        remote: text(sockets.remote(id).ok()),
        state: state.to_owned(),
        rx_packets: info.received.1,
        rx_bytes: info.received.0,
        tx_packets: info.sent.1,
        tx_bytes: info.sent.0,
        recv_queue: info.unread + waiting.0 as u64,
        send_queue: info.in_flight,
        recv_limit: info.recv_buffer.into(),
        backlog: waiting.1 as u64,
        ..report
    })
}

fn text(address: Option<SocketAddr>) -> String {
    address.map_or_else(String::new, |address| address.to_string())
}

/// In the words that TCP has for it.
const fn name(stage: StreamStage) -> &'static str {
    match stage {
        StreamStage::Opening => "SYN-SENT",
        StreamStage::Connected => "ESTABLISHED",
        StreamStage::Over => "CLOSED",
    }
}
