//! The peer's end of a connection, as far as these drills need one.

use std::net::SocketAddrV4;

use ringway_stack::ring::{FlowId, NextHop};
use ringway_stack::tcp;

use super::host::{Host, OURS};
use crate::apps::by_hand::{Ends, Outgoing};
use crate::drills::bench::bytes_at;
use crate::drills::card::{OWN, PEER};
use crate::segment::{ACK, SYN, Segment};

/// The peer's end: what it sends next, and awaits.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerEnd {
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
    pub(super) socket: FlowId,
    pub(super) nxt: u32,
    pub(super) rcv: u32,
}

/// Without options but the MSS.
pub(super) fn plain() -> tcp::Config {
    tcp::Config { timestamps: false, sack: false, window_scaling: false, nodelay: true, ..tcp::Config::default() }
}

/// A segment's frame.
pub(super) fn segment(from: SocketAddrV4, to: SocketAddrV4, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let options: &[u8] = if flags & SYN != 0 { &[2, 4, 5, 180] } else { &[] };
    let ends = Ends { from: PEER, to: OWN, vlan: None, src: from.into(), dst: to.into() };
    let (head, payload) = Outgoing { seq, ack, flags, window: 60_000, options, payload }.frame(&ends);
    [&head, payload].concat()
}

impl PeerEnd {
    /// An active open, as far as its SYN, which is the first frame that it sends.
    pub(super) fn begin(host: &mut Host<'_>, port: u16, remote: SocketAddrV4, hop: NextHop, config: &tcp::Config) -> Self {
        let local = SocketAddrV4::new(OURS[0], port);
        let opened = host.ring.tcp_connect(host.now, local.into(), remote.into(), hop, config);
        host.must(opened.is_ok(), format_args!("connect(2): {opened:?} of {local}, which nobody has"));
        let socket = opened.unwrap_or(FlowId { ring: 0, index: 0, generation: 0 });
        Self { local, remote, socket, nxt: 1000, rcv: 0 }
    }

    /// The peer has the SYN, which was sent, and answers.
    pub(super) fn finish(&mut self, host: &mut Host<'_>) {
        let sent = host.sent();
        let syn = sent.iter().find_map(|frame| Segment::parse(&frame.bytes, &frame.ip()?).filter(|syn| syn.has(SYN)));
        host.must(syn.is_some(), "RFC 9293 s3.10.1: an active open begins with a SYN");
        let seq = syn.map_or(0, |syn| syn.seq);
        self.rcv = seq.wrapping_add(1);
        host.give(segment(self.remote, self.local, self.nxt, self.rcv, SYN | ACK, &[]));
        self.nxt += 1;
        host.sent();
    }

    /// A connection that stands.
    pub(super) fn connect(host: &mut Host<'_>, port: u16, remote: SocketAddrV4, config: &tcp::Config) -> Self {
        let mut stream = Self::begin(host, port, remote, NextHop::Mac(PEER), config);
        stream.finish(host);
        stream
    }

    /// The peer sends so many bytes.
    pub(super) fn give(&mut self, host: &mut Host<'_>, flags: u8, len: u32) {
        let payload = bytes_at(self.nxt, len as usize);
        host.give(segment(self.remote, self.local, self.nxt, self.rcv, flags | ACK, &payload));
        self.nxt = self.nxt.wrapping_add(len);
    }

    /// The connection's segments among what was sent, and where each begins.
    pub(super) fn heard(&self, host: &mut Host<'_>) -> Vec<Segment> {
        let sent = host.sent();
        let segments = sent.iter().filter_map(|frame| Segment::parse(&frame.bytes, &frame.ip()?));
        segments.filter(|segment| segment.src == self.local.into() && segment.dst == self.remote.into()).collect()
    }
}
