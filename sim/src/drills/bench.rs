//! A ring on the bench: time goes as far as a drill says, segments come as it makes them, and what the stack sends is looked at one by one.

use core::cell::RefCell;
use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use ringway_stack::device::{ChecksumVerdict, Queues};
use ringway_stack::mutants::Mutant;
use ringway_stack::raw::RawQueue;
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Ring, RingConfig, SendFlags};
use ringway_stack::tcp::Ecn;
use ringway_stack::tcp::congestion::Algorithm;
use ringway_stack::{Error, Instant, tcp};

use super::card::{Card, OWN, PEER, Wire};
use crate::addresses::v4;
use crate::apps::by_hand::{Ends, Outgoing};
use crate::checksum;
use crate::dissect::{self, Payload};
use crate::random::{SplitMix, scale};
use crate::segment::{ACK, CWR, ECE, FIN, PSH, RST, SYN, Segment};

/// Lines of what happened that a breach shows.
const LOG_MAX: usize = 40;
/// More polls than any drill needs to come to its end.
const POLLS_MAX: u32 = 200_000;
/// A timer wheel's tick, and what is rounded beside it.
pub(super) const TICK: Duration = Duration::from_millis(3);
/// How long the bench's stack stays in TIME-WAIT.
pub(super) const TIME_WAIT: Duration = Duration::from_secs(20);
/// The type of service of a packet behind an Ethernet header.
pub(super) const TOS_AT: usize = 15;
/// The port of listeners.
pub(super) const PORT: u16 = 80;

/// A segment that the stack sent, and when.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) at: Instant,
    pub(super) segment: Segment,
    pub(super) bytes: Vec<u8>,
}

impl core::ops::Deref for Heard {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.segment
    }
}

/// What two ends agree on, and how they begin.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) config: tcp::Config,
    pub(super) stamps: bool,
    pub(super) sack: bool,
    /// What the peer offers to shift windows by.
    pub(super) scale: Option<u8>,
    pub(super) mss: u16,
    /// The window field of the peer's segments.
    pub(super) window: u16,
    /// The stack's connection comes from the listener.
    pub(super) passive: bool,
    /// The peer asks for ECN, or agrees to it (RFC 3168 s6.1.1).
    pub(super) ecn: bool,
}

/// The peer's end of a connection of the stack.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The stack's address, and the peer's.
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
    pub(super) socket: Option<FlowId>,
    /// What the peer sends next, and its first number.
    pub(super) nxt: u32,
    pub(super) iss: u32,
    /// What the peer awaits, and the stack's first number.
    pub(super) rcv: u32,
    pub(super) irs: u32,
    pub(super) window: u16,
    /// Shifts of the peer's windows and of the stack's.
    pub(super) scale: u8,
    pub(super) stack_scale: u8,
    pub(super) stamps: bool,
    pub(super) sack: bool,
    /// Payload bytes of a full segment of the stack.
    pub(super) mss: u32,
    /// The newest timestamp of the stack.
    pub(super) echo: u32,
    /// The window field of the stack's SYN.
    pub(super) syn_window: u16,
    /// The right edge that the stack announced last.
    pub(super) edge: u32,
}

impl Peer {
    /// The program's socket.
    pub(super) fn id(&self) -> FlowId {
        self.socket.expect("the program has it")
    }
}

/// A line of what happened, which is written out when somebody wants to read it.
pub(super) enum Line {
    Given(Segment),
    Heard(Segment),
    /// A frame of so many bytes comes, or is sent.
    Comes(usize),
    Sent(usize),
    Wrote(usize, Result<usize, Error>),
    Read(usize, Result<usize, Error>),
}

/// The bench.
pub(super) struct Bench {
    pub(super) ring: Ring<Card>,
    pub(super) now: Instant,
    pub(super) wire: Rc<RefCell<Wire>>,
    dice: SplitMix,
    heard: VecDeque<Heard>,
    log: VecDeque<(Instant, Line)>,
    /// What the program reads into.
    room: Vec<u8>,
    name: &'static str,
    mutant: Mutant,
    listener: Option<FlowId>,
    port: u16,
    polls: u32,
    /// Numbers are drawn that wrap soon.
    wraps: Option<SplitMix>,
    has_begun: bool,
}

impl Bench {
    pub(super) fn new(name: &'static str, seed: u64, mutant: Mutant) -> Self {
        let wire = Rc::new(RefCell::new(Wire::default()));
        let config = RingConfig { time_wait: TIME_WAIT, ..RingConfig::default() };
        let mut dice = SplitMix(seed);
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&dice.next().to_le_bytes());
        let ring = super::infected(Ring::new(Card::new(&wire), config, secret), mutant);
        let now = Instant::from_nanos(1_000_000_000 + scale(dice.next(), 1 << 40));
        // (With dice of their own, so that drills draw what they drew before.)
        let mut wraps = SplitMix(!seed);
        let wraps = (scale(wraps.next(), 3) == 0).then_some(wraps);
        let (heard, log, room, listener, has_begun) = (VecDeque::new(), VecDeque::new(), Vec::new(), None, false);
        Self { ring, now, wire, dice, heard, log, room, name, mutant, listener, port: 20_000, polls: 0, wraps, has_begun }
    }

    /// Another bench, with the same mutant.
    pub(super) fn another(&self, seed: u64) -> Self {
        Self::new(self.name, seed, self.mutant)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        scale(self.dice.next(), bound.max(1))
    }

    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(super) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Ends the run, unless the stack kept the law.
    pub(super) fn must(&self, kept: bool, law: impl fmt::Display) {
        if !kept {
            self.breach(law);
        }
    }

    #[cold]
    fn breach(&self, law: impl fmt::Display) -> ! {
        let line = |(at, line): &(Instant, Line)| {
            let at = at.as_nanos() / 1000;
            match line {
                Line::Given(segment) => format!("{at:>12} us < {}", describe(segment)),
                Line::Heard(segment) => format!("{at:>12} us > {}", describe(segment)),
                Line::Comes(len) => format!("{at:>12} us   a frame of {len} bytes comes"),
                Line::Sent(len) => format!("{at:>12} us   a frame of {len} bytes is sent"),
                Line::Wrote(len, wrote) => format!("{at:>12} us   write {len}: {wrote:?}"),
                Line::Read(len, read) => format!("{at:>12} us   read {len}: {read:?}"),
            }
        };
        let log: Vec<_> = self.log.iter().map(line).collect();
        panic!("checker drills: {law} ({} at {} us)\n{}", self.name, self.now.as_nanos() / 1000, log.join("\n"));
    }

    /// The ring, with the bench's mutant.
    pub(super) fn infected<Q: Queues>(&self, ring: Ring<Q>) -> Ring<Q> {
        super::infected(ring, self.mutant)
    }

    /// A queue without a ring above it, with the bench's mutant.
    pub(super) fn infected_raw<Q: Queues>(&self, queues: Q) -> RawQueue<Q> {
        super::infected_raw(RawQueue::new(queues), self.mutant)
    }

    /// Notes what was done, for whoever reads of a breach.
    pub(super) fn note(&mut self, line: Line) {
        if self.log.len() >= LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back((self.now, line));
    }

    /// The stack does all that is due now.
    pub(super) fn poll(&mut self) {
        // What a call queued goes at once, too.
        self.must(!self.wire.borrow().queued, "a frame is queued, and the device is not told");
        loop {
            self.polls += 1;
            self.must(self.polls < POLLS_MAX, "the stack is never at rest");
            let done = self.ring.poll(self.now);
            while self.ring.take_event().is_some() {}
            let again = self.ring.next_deadline().is_some_and(|at| at <= self.now);
            if done == 0 && !again {
                break;
            }
        }
        self.must(!self.wire.borrow().queued, "a frame is queued, and the device is not told");
        let sent = core::mem::take(&mut self.wire.borrow_mut().from_stack);
        for bytes in sent {
            self.hear(bytes);
        }
    }

    fn hear(&mut self, bytes: Vec<u8>) {
        let Payload::Ip(ip) = dissect::payload(&bytes) else { self.breach("a frame that is no IP packet") };
        self.must(checksum::verify(&bytes) == ChecksumVerdict::Good, "RFC 9293 s3.1: a checksum that is wrong, or missing");
        let Some(segment) = Segment::parse(&bytes, &ip) else { self.breach("a frame that is no segment") };
        self.note(Line::Heard(segment.clone()));
        self.heard.push_back(Heard { at: self.now, segment, bytes });
    }

    /// The stack is on a link with neighbours, and begins anew.
    pub(super) fn join_link(&mut self) {
        let config = RingConfig { addresses: vec![Ipv4Addr::new(10, 0, 0, 1).into()], ..RingConfig::default() };
        self.ring = super::infected(Ring::new(Card::on_link(&self.wire), config, [7; 32]), self.mutant);
    }

    /// A frame comes for the stack, and waits for a poll.
    pub(super) fn give_frame(&mut self, frame: Vec<u8>) {
        self.wire.borrow_mut().to_stack.push_back(frame);
    }

    /// All frames that the stack sends within `time`, TCP's or not, and when.
    pub(super) fn frames(&mut self, time: Duration) -> Vec<(Instant, Vec<u8>)> {
        let until = self.now + time;
        let mut all = Vec::new();
        loop {
            while self.ring.poll(self.now) > 0 || self.ring.next_deadline().is_some_and(|at| at <= self.now) {
                self.polls += 1;
                self.must(self.polls < POLLS_MAX, "the stack is never at rest");
            }
            while self.ring.take_event().is_some() {}
            let sent = core::mem::take(&mut self.wire.borrow_mut().from_stack);
            self.wire.borrow_mut().queued = false;
            all.extend(sent.into_iter().map(|frame| (self.now, frame)));
            match self.ring.next_deadline().filter(|&at| at <= until) {
                Some(at) => self.now = at,
                None => break,
            }
        }
        self.now = until;
        all
    }

    /// Time passes, and the stack does what is due when it is.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        self.poll();
        while let Some(at) = self.ring.next_deadline().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.poll();
        }
        self.now = until;
        self.poll();
    }

    /// Time passes until the stack sends something, for as long as `time`.
    pub(super) fn await_segment(&mut self, time: Duration) -> Option<Heard> {
        let until = self.now + time;
        self.poll();
        while self.heard.is_empty()
            && let Some(at) = self.ring.next_deadline().filter(|&at| at <= until)
        {
            self.now = self.now.max(at);
            self.poll();
        }
        if self.heard.is_empty() {
            self.now = until;
        }
        self.heard.pop_front()
    }

    /// All that the stack has sent since this was asked last.
    pub(super) fn take(&mut self) -> Vec<Heard> {
        self.poll();
        self.heard.drain(..).collect()
    }

    /// The one segment that the stack has sent since.
    pub(super) fn one(&mut self, law: &str) -> Heard {
        let mut all = self.take();
        self.must(all.len() == 1, format_args!("{law}: {} segments were sent", all.len()));
        all.remove(0)
    }

    /// It has sent none.
    pub(super) fn silence(&mut self, law: &str) {
        let all = self.take();
        self.must(all.is_empty(), format_args!("{law}: {} segments were sent", all.len()));
    }

    /// A segment comes for the stack, and is looked at.
    pub(super) fn give(&mut self, peer: &Peer, seq: u32, ack: u32, flags: u8, len: u32) {
        self.give_with(peer, seq, ack, flags, len, &[]);
    }

    /// As [`Bench::give`], with options behind the timestamps.
    pub(super) fn give_with(&mut self, peer: &Peer, seq: u32, ack: u32, flags: u8, len: u32, more: &[u8]) {
        let value = self.clock();
        self.give_stamped(peer, seq, ack, flags, len, more, value);
    }

    /// The peer's timestamp clock.
    pub(super) fn clock(&self) -> u32 {
        (self.now.as_nanos() / 1_000_000) as u32
    }

    #[expect(clippy::too_many_arguments, reason = "a segment's fields")]
    pub(super) fn give_stamped(&mut self, peer: &Peer, seq: u32, ack: u32, flags: u8, len: u32, more: &[u8], value: u32) {
        self.queue_stamped(peer, seq, ack, flags, len, more, value);
        self.poll();
    }

    /// As [`Bench::give`], but a router has marked it (RFC 3168 s5).
    pub(super) fn give_marked(&mut self, peer: &Peer, seq: u32, ack: u32, flags: u8, len: u32) {
        let value = self.clock();
        self.queue_stamped(peer, seq, ack, flags, len, &[], value);
        let mut wire = self.wire.borrow_mut();
        if let Some(frame) = wire.to_stack.back_mut() {
            frame[TOS_AT] |= 3;
            checksum::fill_ip_header(frame);
        }
        drop(wire);
        self.poll();
    }

    #[expect(clippy::too_many_arguments, reason = "a segment's fields")]
    fn queue_stamped(&mut self, peer: &Peer, seq: u32, ack: u32, flags: u8, len: u32, more: &[u8], value: u32) {
        let mut options = Vec::with_capacity(12 + more.len());
        if peer.stamps && flags & RST == 0 {
            options.extend([1, 1, 8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(peer.echo.to_be_bytes());
        }
        options.extend(more);
        let first = peer.iss.wrapping_add(1);
        let payload = bytes_at(seq.wrapping_sub(first), len as usize);
        self.queue((peer.remote, peer.local), seq, ack, flags, peer.window, &options, &payload);
    }

    /// A segment comes between these addresses, and waits for a poll.
    #[expect(clippy::too_many_arguments, reason = "a segment's fields")]
    pub(super) fn queue(
        &mut self,
        (src, dst): (SocketAddrV4, SocketAddrV4),
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        options: &[u8],
        payload: &[u8],
    ) {
        let ack = if flags & ACK == 0 { 0 } else { ack };
        let ends = Ends { from: PEER, to: OWN, vlan: None, src: src.into(), dst: dst.into() };
        let bytes = Outgoing { seq, ack, flags, window, options, payload }.whole(&ends);
        if let Payload::Ip(ip) = dissect::payload(&bytes)
            && let Some(segment) = Segment::parse(&bytes, &ip)
        {
            self.note(Line::Given(segment));
        }
        self.wire.borrow_mut().to_stack.push_back(bytes);
    }

    /// Options and behaviour of a connection to come.
    pub(super) fn setup(&mut self) -> Setup {
        let config = tcp::Config {
            nodelay: true,
            rcvbuf: Some(self.between(8_000, 200_000) as usize),
            delayed_ack: Duration::from_millis(self.between(5, 100)),
            timestamps: self.chance(2),
            sack: self.chance(2),
            window_scaling: !self.chance(4),
            // (Its window can be told to the byte. CUBIC has drills of its own.)
            congestion: Algorithm::Reno,
            ..tcp::Config::default()
        };
        let scale = (!self.chance(4)).then(|| self.below(9) as u8);
        Setup {
            stamps: self.chance(2),
            sack: self.chance(2),
            scale,
            mss: self.pick(&[536, 1000, 1460]),
            window: 60_000,
            passive: self.chance(2),
            ecn: false,
            config,
        }
    }

    /// Another pair of addresses: the stack's, and the peer's.
    pub(super) fn addresses(&mut self, passive: bool) -> (SocketAddrV4, SocketAddrV4) {
        self.port += 1;
        let address = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port);
        if passive { (address(1, PORT), address(2, self.port)) } else { (address(1, self.port), address(2, PORT)) }
    }

    /// The listener, anew with this configuration.
    pub(super) fn listen(&mut self, backlog: usize, config: &tcp::Config) -> FlowId {
        if let Some(listener) = self.listener.take() {
            self.ring.close(self.now, listener, false);
        }
        let local = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), PORT);
        let listener = self.ring.tcp_listen(local.into(), backlog, config).expect("nobody else has the port");
        self.listener = Some(listener);
        listener
    }

    /// The options of the peer's SYN.
    pub(super) fn syn_options(&self, setup: &Setup, echo: u32) -> Vec<u8> {
        let mut options = vec![2, 4];
        options.extend(setup.mss.to_be_bytes());
        if let Some(scale) = setup.scale {
            options.extend([1, 3, 3, scale]);
        }
        if setup.sack {
            options.extend([1, 1, 4, 2]);
        }
        if setup.stamps {
            options.extend([1, 1, 8, 10]);
            options.extend(self.clock().to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        options
    }

    /// A SYN goes out, or has come; `Peer` is as far as that.
    pub(super) fn begin(&mut self, setup: &Setup) -> Peer {
        let (local, remote) = self.addresses(setup.passive);
        self.begin_between(setup, local, remote)
    }

    /// Time goes on until a connection of these addresses would begin a few numbers before they wrap (RFC 9293 s3.4): first numbers follow a clock (RFC 6528 s3).
    fn near_the_wrap(&mut self, local: SocketAddrV4, remote: SocketAddrV4, config: &tcp::Config, before: u32) {
        const TICK_NS: u64 = 4096;
        loop {
            let Ok(socket) = self.ring.tcp_connect(self.now, local.into(), remote.into(), NextHop::Mac(PEER), config) else { return };
            let ahead = self.take().pop().map_or(0, |syn| 0_u32.wrapping_sub(before).wrapping_sub(syn.seq));
            self.ring.close(self.now, socket, true);
            self.take();
            // (A connection begins some way beyond the one before, and numbers compare over half of their space.)
            if ahead < 1 << 17 {
                return;
            }
            self.now += Duration::from_nanos(u64::from(ahead.min(1 << 30)) * TICK_NS);
            if ahead <= 1 << 30 {
                return;
            }
        }
    }

    /// As [`Bench::begin`], for these addresses.
    pub(super) fn begin_between(&mut self, setup: &Setup, local: SocketAddrV4, remote: SocketAddrV4) -> Peer {
        let mut iss = self.dice.next() as u32;
        if let Some(dice) = &mut self.wraps {
            let [ours, theirs] = [(); 2].map(|()| {
                let most = 4 << scale(dice.next(), 11);
                scale(dice.next(), most) as u32
            });
            iss = 0_u32.wrapping_sub(theirs);
            if !core::mem::replace(&mut self.has_begun, true) && self.ring.usage().flows == 0 {
                self.near_the_wrap(local, remote, &setup.config, ours);
            }
        }
        let syn = if setup.passive {
            self.listen(16, &setup.config);
            let options = self.syn_options(setup, 0);
            let asks = if setup.ecn { ECE | CWR } else { 0 };
            self.queue((remote, local), iss, 0, SYN | asks, setup.window, &options, &[]);
            let syn = self.one("RFC 9293 s3.10.7.2: a SYN for a listener");
            let agrees = if setup.ecn && setup.config.ecn != Ecn::Off { ECE } else { 0 };
            self.must(
                syn.flags & !PSH == SYN | ACK | agrees && syn.ack == iss.wrapping_add(1),
                "RFC 9293 s3.10.7.2: a SYN is answered by a SYN-ACK",
            );
            syn
        } else {
            let socket = self.ring.tcp_connect(self.now, local.into(), remote.into(), NextHop::Mac(PEER), &setup.config);
            self.must(socket.is_ok(), format_args!("connect(2): {socket:?} of addresses that nobody has"));
            let syn = self.one("RFC 9293 s3.10.1: an active open");
            let asks = if setup.config.ecn == Ecn::Asked { ECE | CWR } else { 0 };
            self.must(syn.flags == SYN | asks, "RFC 9293 s3.10.1, RFC 3168 s6.1.1: an active open begins with a SYN");
            syn
        };
        let socket = self.socket_of(local, remote);
        let offered = &syn.options;
        let stamps = setup.stamps && (setup.passive || offered.timestamps.is_some()) && setup.config.timestamps;
        let scales = setup.scale.is_some() && offered.scale.is_some();
        let mss = u32::from(setup.mss.min(offered.mss.unwrap_or(536))) - if stamps { 12 } else { 0 };
        Peer {
            local,
            remote,
            socket,
            nxt: iss.wrapping_add(u32::from(setup.passive)),
            iss,
            rcv: syn.end(),
            irs: syn.seq,
            window: setup.window,
            scale: setup.scale.filter(|_| scales).unwrap_or(0),
            stack_scale: offered.scale.filter(|_| scales).unwrap_or(0),
            stamps,
            sack: setup.sack && setup.config.sack,
            mss,
            echo: offered.timestamps.map_or(0, |(value, _)| value),
            syn_window: syn.window,
            edge: iss.wrapping_add(1).wrapping_add(u32::from(syn.window)),
        }
    }

    /// The socket with these addresses, if it is the program's already.
    fn socket_of(&self, local: SocketAddrV4, remote: SocketAddrV4) -> Option<FlowId> {
        self.ring
            .open_flows()
            .into_iter()
            .find(|&socket| self.ring.info(socket).is_some_and(|info| v4(info.local) == local && info.remote.map(v4) == Some(remote)))
    }

    /// The peer does its part of the handshake.
    pub(super) fn finish_handshake(&mut self, setup: &Setup, peer: &mut Peer) {
        if setup.passive {
            self.give(peer, peer.nxt, peer.rcv, ACK, 0);
            // (What came before, and was not acceptable, may be answered now.)
            for heard in self.take() {
                self.is_ack(&heard, peer, "RFC 9293 s3.10.7.4: the end of a handshake needs no answer");
            }
            let socket = self.ring.tcp_accept(self.listener.expect("it listens"));
            self.must(socket.is_ok(), format_args!("RFC 9293 s3.10.7.4: {socket:?} of a connection whose handshake is over"));
            peer.socket = socket.ok();
        } else {
            let options = self.syn_options(setup, peer.echo);
            let agrees = if setup.ecn { ECE } else { 0 };
            self.queue((peer.remote, peer.local), peer.iss, peer.rcv, SYN | ACK | agrees, setup.window, &options, &[]);
            peer.nxt = peer.iss.wrapping_add(1);
            let ack = self.one("RFC 9293 s3.10.7.3: a SYN-ACK");
            self.is_ack(&ack, peer, "RFC 9293 s3.10.7.3: a SYN-ACK is acknowledged");
            self.note_window(peer, &ack);
        }
    }

    /// A connection that stands.
    pub(super) fn connect(&mut self, setup: &Setup) -> Peer {
        let mut peer = self.begin(setup);
        self.finish_handshake(setup, &mut peer);
        peer
    }

    /// It is an acknowledgment of all that the peer sent, and nothing else.
    pub(super) fn is_ack(&self, heard: &Heard, peer: &Peer, law: &str) {
        self.must(
            heard.flags & !PSH == ACK && heard.len() == 0 && heard.ack == peer.nxt && heard.seq == peer.rcv,
            format_args!(
                "{law}: {}, where the next numbers are {} and {}",
                describe(heard),
                peer.rcv.wrapping_sub(peer.irs),
                peer.nxt.wrapping_sub(peer.iss)
            ),
        );
    }

    /// Notes what an acknowledgment of the stack says.
    pub(super) fn note_window(&self, peer: &mut Peer, heard: &Heard) {
        peer.edge = heard.ack.wrapping_add(u32::from(heard.window) << peer.stack_scale);
        if let Some((value, _)) = heard.options.timestamps {
            peer.echo = value;
        }
    }

    /// The peer takes data in order, each with the bytes that were written, and acknowledges nothing yet. How many segments there were.
    pub(super) fn receive(&mut self, peer: &mut Peer) -> usize {
        let all = self.take();
        for heard in &all {
            self.take_in(peer, heard);
        }
        all.len()
    }

    /// One segment in order.
    pub(super) fn take_in(&self, peer: &mut Peer, heard: &Heard) {
        self.must(heard.seq == peer.rcv, format_args!("RFC 9293 s3.10.4: {} is sent, and {} is next", heard.seq, peer.rcv));
        self.bytes_are_right(peer, heard);
        peer.rcv = heard.end();
        self.note_window(peer, heard);
    }

    /// What is sent is what was written.
    pub(super) fn bytes_are_right(&self, peer: &Peer, heard: &Heard) {
        let first = heard.seq.wrapping_sub(peer.irs).wrapping_sub(1);
        let sent = &heard.bytes[heard.payload.clone()];
        let right = sent == bytes_at(first, sent.len());
        self.must(right, "RFC 9293 s3.7: other bytes are sent than were written");
    }

    /// The program writes `len` bytes, `written` after its first.
    pub(super) fn write(&mut self, peer: &Peer, written: usize, len: usize, flags: SendFlags) -> usize {
        let bytes = bytes_at(written as u32, len);
        let wrote = self.ring.tcp_send(self.now, peer.id(), &[IoSlice::new(&bytes)], flags);
        self.note(Line::Wrote(len, wrote));
        self.poll();
        match wrote {
            Ok(wrote) => wrote,
            Err(error) => {
                self.must(error == Error::WouldBlock, format_args!("send(2): {error:?}"));
                0
            }
        }
    }

    /// The program reads.
    pub(super) fn read(&mut self, peer: &Peer, len: usize) -> Result<usize, Error> {
        if self.room.len() < len {
            self.room.resize(len, 0);
        }
        let room = &mut self.room[..len];
        let read = self.ring.tcp_recv(self.now, peer.id(), &mut [IoSliceMut::new(room)], RecvFlags::empty());
        self.note(Line::Read(len, read));
        self.poll();
        read
    }

    /// How the connection stands, for all that a program can ask.
    pub(super) fn state(&self, peer: &Peer) -> Option<tcp::State> {
        self.ring.tcp_state(peer.local.into(), peer.remote.into())
    }
}

/// What both streams consist of: `len` bytes, from a place on.
pub(super) fn bytes_at(place: u32, len: usize) -> Vec<u8> {
    const STEP: u32 = 0x9e37_79b1;
    let mut next = place.wrapping_mul(STEP);
    let mut bytes = vec![0; len];
    for byte in &mut bytes {
        *byte = (next >> 13) as u8;
        next = next.wrapping_add(STEP);
    }
    bytes
}

pub(super) fn describe(segment: &Segment) -> String {
    let names = [(SYN, "S"), (FIN, "F"), (RST, "R"), (PSH, "P"), (ACK, ".")];
    let flags: String = names.iter().filter(|&&(flag, _)| segment.has(flag)).map(|&(_, name)| name).collect();
    let sack = if segment.options.sack().is_empty() { String::new() } else { format!(" sack {:?}", segment.options.sack()) };
    let stamps = segment.options.timestamps.map_or(String::new(), |stamps| format!(" TS {stamps:?}"));
    format!("{flags} {}({}) ack {} win {}{sack}{stamps}", segment.seq, segment.len(), segment.ack, segment.window)
}
