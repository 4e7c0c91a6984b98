//! Fast Open (RFC 7413): bytes in the SYN. Who opens a connection shows a cookie that the peer once gave to this host, and the peer's program has the bytes, and may
//! answer, before the handshake is over.
//!
//! What the SYN's bytes are to the sender: nothing that was sent. No record is kept of them; what the SYN-ACK does not acknowledge of them goes again as if for the first
//! time. What they are to the receiver: in order, once and for all, so that a SYN that comes again brings nothing.

use std::io::IoSlice;

use arrayvec::ArrayVec;

use super::{Config, Connection};
use crate::device::{GATHER_LIMIT, RxBuffer, SendError, TxBuffer, TxSlice};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::payload::RxPayload;
use crate::tcp::profile::Profile;
use crate::tcp::{Opening, Segment, State};
use crate::time::Instant;
use crate::wire::tcp::{self as wire, Flags, Header};

/// What a SYN's options may take of its segment.
const OPTIONS_MAX: usize = 40;

/// What a connection has of it until its handshake is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastOpen {
    /// What our first SYN, or SYN-ACK, says.
    option: Option<wire::FastOpen>,
    side: Side,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    /// We open it. The peer's segments have no more than so many bytes, as far as we know; and our SYN was to have bytes.
    Opens { peer_mss: u16, with_bytes: bool },
    /// We are to be sent a cookie, or the peer is.
    Answers,
    /// What came with the SYN is the program's, who may answer; and whether it has accepted the connection.
    Open { is_accepted: bool },
    /// We opened it, and this is what came of that.
    Done(Learnt),
}

/// What a handshake that we began has taught of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// What our SYN said.
    pub asked: Option<wire::FastOpen>,
    /// What the SYN-ACK said.
    pub answer: Option<wire::FastOpen>,
    /// The largest segment that the peer takes.
    pub mss: u16,
    /// The SYN was sent again, and neither bytes of it nor a cookie have shown that the first one arrived.
    pub is_lost: bool,
    /// The SYN had bytes.
    pub with_bytes: bool,
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Has a connection that was just begun ([`Connection::connect`]) say `option` in its first SYN, and, if `with_bytes`, send what is written by then
    /// ([`Connection::write_early`]) along with it, to a peer that takes segments of `peer_mss` bytes.
    pub fn open_fast(&mut self, option: Option<wire::FastOpen>, peer_mss: u16, with_bytes: bool) {
        debug_assert!(self.state == State::SynSent && self.snd_nxt == self.snd_una, "its SYN has yet to be sent");
        self.fast_open = Some(Box::new(FastOpen { option, side: Side::Opens { peer_mss, with_bytes } }));
    }

    /// As [`Connection::write`], before the first SYN has left: what goes with it, or, if `all`, whatever fits.
    ///
    /// # Errors
    /// [`Error::NoBuffers`]: `alloc` had none.
    pub fn write_early(&mut self, data: &[IoSlice<'_>], all: bool, alloc: &mut impl FnMut(usize) -> Option<T>) -> Result<usize, Error> {
        let room = if all { self.config.send_limit(0) } else { self.syn_room() };
        let copied = self.send.write(data, room.saturating_sub(self.send.len()), alloc);
        let wanted = data.iter().any(|slice| !slice.is_empty());
        if copied == 0 && wanted && room > 0 { Err(Error::NoBuffers) } else { Ok(copied) }
    }

    /// Bytes that go with our SYN (RFC 7413 s4.2.1: no more than the peer takes, as far as we know).
    fn syn_room(&self) -> usize {
        match self.fast_open.as_deref() {
            Some(&FastOpen { side: Side::Opens { peer_mss, with_bytes: true }, .. }) => {
                let spared = if self.config.is(Mutant::SynBytesBeyondMss) { 0 } else { OPTIONS_MAX };
                usize::from(peer_mss.min(self.config.mss_announced()).min(self.path_mss).max(Config::MSS_MIN)) - spared
            }
            _ => 0,
        }
    }

    /// As [`Connection::accept`], of a SYN whose cookie is good: what came with it can be read at once, and answered. `offer`: the cookie that the peer is to have;
    /// `lends`: see [`Connection::lend_from_now_on`].
    pub fn accept_fast(
        now: Instant,
        config: impl Into<Profile>,
        (syn, mut payload): (&Header, RxPayload<'_, R>),
        opening: Opening,
        offer: Option<wire::FastOpen>,
        lends: bool,
    ) -> Self {
        let mut connection = Self::accept(now, config, syn, opening);
        if lends {
            connection.lend_from_now_on();
        }
        connection.fast_open = Some(Box::new(FastOpen { option: offer, side: Side::Open { is_accepted: false } }));
        payload.truncate(connection.window.limit());
        let len = payload.len();
        connection.counters.rx_packets += 1;
        connection.begin_congestion_control(now, 0);
        connection.edges |= Readiness::OUT;
        if len > 0 {
            mark!(connection, SynBytesTaken);
            connection.recv.push(payload, now);
            if !connection.config.is(Mutant::SynBytesTwice) {
                connection.window.start(syn.seq + 1 + len);
            }
            connection.counters.rx_bytes += len as u64;
            connection.syn_data = true;
            connection.edges |= Readiness::IN;
        }
        connection
    }

    /// Has the SYN-ACK of a connection that was just accepted tell the peer a cookie.
    pub fn offer_cookie(&mut self, offer: wire::FastOpen) {
        self.fast_open = Some(Box::new(FastOpen { option: Some(offer), side: Side::Answers }));
    }

    /// Whether the program has the connection, and may answer, although its handshake is not over.
    #[cold]
    #[inline(never)]
    pub fn is_open_early(&self) -> bool {
        self.state == State::SynReceived && matches!(self.fast_open.as_deref(), Some(FastOpen { side: Side::Open { .. }, .. }))
    }

    /// The program has accepted the connection, whose handshake may not be over.
    #[inline]
    pub fn accepted(&mut self) {
        if let Some(FastOpen { side: Side::Open { is_accepted }, .. }) = self.fast_open.as_deref_mut() {
            *is_accepted = true;
        }
    }

    /// Whether the program has accepted it, although its handshake is not over.
    #[cold]
    pub(super) fn is_accepted_early(&self) -> bool {
        self.state == State::SynReceived
            && matches!(self.fast_open.as_deref(), Some(FastOpen { side: Side::Open { is_accepted: true }, .. }))
    }

    /// What a handshake that we began has taught, told once.
    pub fn take_learnt(&mut self) -> Option<Learnt> {
        match self.fast_open.as_deref() {
            Some(&FastOpen { side: Side::Done(learnt), .. }) => {
                self.fast_open = None;
                Some(learnt)
            }
            _ => None,
        }
    }

    /// Sends the first SYN, or SYN-ACK, with what it says of Fast Open.
    pub(super) fn emit_fast_syn(
        &mut self,
        now: Instant,
        flags: Flags,
        emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let Some(fast) = self.fast_open.as_deref().copied() else { return Ok(()) };
        let seq = self.snd_una;
        let (mut header, edge) = self.header(now, seq, flags);
        header.options.set_fast_open(fast.option);
        let mut slices = ArrayVec::<TxSlice<'_, T>, GATHER_LIMIT>::new();
        let len = self.syn_room().min(self.send.len());
        let sent = if len > 0 { self.send.gather(seq + 1, len, usize::from(self.config.gather_max), &mut slices) } else { 0 };
        let emitted = emit(&Segment { header, payload: &slices, payload_len: sent, cut: None, unsolicited: false, capable: false });
        drop(slices);
        if emitted == Err(SendError::Full) {
            return Err(SendError::Full);
        }
        self.counters.tx_packets += 1;
        self.counters.tx_bytes += sent as u64;
        self.last_tx = self.last_tx.max(now);
        if sent > 0 {
            self.last_data_tx = now;
        }
        if flags.contains(Flags::ACK) {
            self.acknowledged_peer(edge);
        }
        self.snd_nxt = seq + 1 + sent;
        if matches!(fast.side, Side::Answers) {
            self.fast_open = None;
        }
        Ok(())
    }

    /// Our SYN is acknowledged by `header`: what the peer has not taken of its bytes is as if it had never been sent.
    pub(super) fn conclude_fast_open(&mut self, header: &Header) {
        let Some(fast) = self.fast_open.as_deref().copied() else { return };
        let Side::Opens { .. } = fast.side else { return };
        let sent = self.snd_nxt.since(self.snd_una) - 1;
        let left = self.snd_nxt.since(header.ack);
        if left > 0 {
            mark!(self, SynBytesNotTaken);
        }
        self.syn_data = sent > 0 && left == 0;
        if left > 0 && !self.config.is(Mutant::SynBytesTakenForArrived) {
            self.counters.retransmissions += 1;
            self.counters.retransmitted_bytes += left as u64;
            self.snd_nxt = header.ack;
        }
        let answer = header.options.fast_open().filter(|answer| answer.cookie.is_some());
        let is_lost = self.retries > 0 && answer.is_none() && (sent == 0 || left == sent);
        let mss = self.agreement.peer_mss;
        let learnt = Learnt { asked: fast.option, answer, mss, is_lost, with_bytes: sent > 0 };
        self.fast_open = Some(Box::new(FastOpen { option: None, side: Side::Done(learnt) }));
    }

    /// Takes what came with a SYN-ACK beside its number (RFC 9293 s3.10.7.3).
    pub(super) fn take_syn_ack_bytes(&mut self, now: Instant, header: &Header, mut payload: RxPayload<'_, R>) {
        let (mut seq, mut fin) = (header.seq + 1, header.flags.contains(Flags::FIN));
        let kept = self.trim(&mut seq, &mut payload, &mut fin);
        if kept > 0 || (payload.is_empty() && fin) {
            self.receive(now, seq, payload, kept, fin);
        }
    }

    /// Whether this is the SYN again that began a connection in SYN-RECEIVED, and another matter than one without bytes that comes again to one that took none.
    pub(super) fn is_fast_syn_again(&self, header: &Header, len: usize) -> bool {
        self.state == State::SynReceived && header.opens() && header.seq == self.snd_wl1 && (len > 0 || self.is_open_early())
    }

    /// Whether our SYN had bytes, and nothing of them is acknowledged.
    #[cold]
    #[inline(never)]
    pub(super) fn sends_early(&self) -> bool {
        self.state == State::SynSent && self.in_flight() > 1
    }

    /// What is sent before the handshake's last acknowledgment (RFC 7413 s3).
    #[cold]
    #[inline(never)]
    pub(super) fn transmit_early(
        &mut self,
        now: Instant,
        emit: &mut impl FnMut(&Segment<'_, T>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        if !self.is_open_early() || self.snd_nxt == self.snd_una || self.config.is(Mutant::EarlyAnswerHeld) {
            return Ok(());
        }
        // (The SYN, which is on its way as well, has a number, and takes no room.)
        self.cwnd += 1;
        let before = self.snd_nxt;
        let stop = self.transmit_new(now, emit);
        self.cwnd -= 1;
        if self.snd_nxt != before {
            mark!(self, AnsweredEarly);
        }
        self.note_stop(now, stop?);
        Ok(())
    }

    /// The program writes before the handshake is over.
    pub(super) fn may_write_early(&self) -> bool {
        self.is_open_early() && !self.fin_queued
    }

    /// What can be done with a connection whose handshake is not over.
    #[cold]
    pub(super) fn readiness_early(&self) -> Readiness {
        let mut ready = Readiness::empty();
        if self.is_open_early() {
            ready.set(Readiness::IN, self.read_shut || self.recv.len() > 0);
            ready.set(Readiness::RDHUP, self.read_shut);
            ready.set(Readiness::HUP, self.read_shut && self.fin_queued);
            ready.set(Readiness::OUT, self.fin_queued || self.is_writable());
        }
        ready
    }
}
