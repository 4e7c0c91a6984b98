//! What the path below does: its MTU, what ICMP says of it, and a carrier that comes back.

use core::time::Duration;

use super::{Config, Connection, Phase, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::timers::Timer;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// How long a smaller path MTU is believed before a larger one is tried again (RFC 1191 s6.3).
pub(crate) const PATH_MTU_TIME: Duration = Duration::from_secs(600);
/// What is tried first when full segments vanish without a word (Linux's tcp_base_mss).
const BLACK_HOLE_MSS: u16 = 1024;
/// Timeouts of the same full segment after which the path counts as a black hole (RFC 2923 s2.1; as many as Linux waits for, with tcp_mtu_probing=1).
const BLACK_HOLE_TIMEOUTS: u32 = 3;
/// As many where a segment as long, which was sent later, has arrived: then this one was lost again and again by chance, unless the path has changed since.
const UNLIKELY_BLACK_HOLE_TIMEOUTS: u32 = 6;

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// The path carries packets of at most `mtu` bytes (RFC 1191), as somebody else was told: what is sent from now on has no more. What is on its way may be as
    /// short, or has passed: of that a message of its own will tell ([`Connection::on_packet_too_big`]), or the timer.
    pub fn set_path_mtu(&mut self, now: Instant, mtu: u16) {
        if self.limit_path(now, self.path_mss_of(mtu)) {
            self.oversized = Some(self.snd_nxt);
        }
    }

    /// ICMP says that a segment of ours, which began at `seq` and is on its way, was too long for a path that carries packets of at most `mtu` bytes
    /// (RFC 1191): it is lost, with all others like it, and they are sent again at once. It is no sign of congestion (RFC 8201 s5.4). RFC 1191 s6.4: that
    /// is for the connection alone that the message is about, and for the first of several such messages.
    pub fn on_packet_too_big(&mut self, now: Instant, seq: SeqNumber, mtu: u16) {
        let before = self.path_mss;
        let news = self.limit_path(now, self.path_mss_of(mtu));
        if self.path_mss < before && self.sends_early() && !self.config.is(Mutant::SynTooLongWaits) {
            // A SYN that was too long for its bytes. They follow the handshake.
            (self.syn_due, self.tx_pending) = (true, true);
        }
        // Somebody else's message may have come first.
        let oversized = self.oversized.is_some_and(|end| seq.lt(end) && end.le(self.snd_nxt));
        if (news || oversized) && !self.config.is(Mutant::PathMtuResendsNothing) {
            self.resend_flight();
        }
    }

    /// Payload bytes and options of a segment on a path that carries packets of at most `mtu` bytes.
    fn path_mss_of(&self, mtu: u16) -> u16 {
        let (headers, least) = (self.config.family.headers(), self.config.family.path_mtu_min());
        let least = if self.config.is(Mutant::BelieveTinyPath) { headers + Config::MSS_MIN } else { least };
        mtu.max(least) - headers
    }

    /// A path MTU was believed long enough: whatever the device and the peer can take is tried again.
    pub(super) fn on_path_mtu_expired(&mut self) {
        self.path_mss = u16::MAX;
        self.update_mss();
    }

    /// ICMP says that a segment of ours, which began at `seq` and made a packet of `len` bytes, is too long for a path whose MTU is `mtu`.
    /// Only what may be on its way can have been dropped, and only for being longer (RFC 5927 s4.1, s7.2). Whether it is to be
    /// believed, of which nothing follows yet.
    pub fn believes_path_mtu(&self, seq: SeqNumber, len: u16, mtu: u16) -> bool {
        let in_flight = seq.within(self.snd_una, self.snd_nxt) || self.config.is(Mutant::BelieveAnyError);
        let longer = mtu < len && !self.config.is(Mutant::PathMtuIgnored);
        (self.state.is_synchronized() || self.sends_early()) && in_flight && longer
    }

    /// The retransmission timer ran out again and again for one full segment: perhaps it is too long for a path on which nobody says so.
    pub(super) fn suspect_black_hole(&mut self, now: Instant) {
        let full = self.in_flight() >= self.mss && self.send.end().since(self.snd_una) >= self.mss;
        let full = full || self.config.is(Mutant::BlackHoleBySmallSegments);
        let is_unlikely = self.agreement.sack && self.scoreboard.has_range_of(self.mss);
        let timeouts_min = if is_unlikely { UNLIKELY_BLACK_HOLE_TIMEOUTS } else { BLACK_HOLE_TIMEOUTS };
        let timeouts = self.retries + 1;
        if self.config.black_hole_detection && full && timeouts >= timeouts_min {
            let mss = self.mss as u16 + if self.agreement.timestamps { crate::tcp::handshake::TIMESTAMPS_LEN as u16 } else { 0 };
            let smaller = if mss > BLACK_HOLE_MSS { BLACK_HOLE_MSS } else { mss / 2 };
            let family = self.config.family;
            self.limit_path(now, smaller.max(family.path_mtu_min() - family.headers()));
        }
    }

    /// The link found its carrier again. What timed out meanwhile needn't wait for its timer, which may have doubled a few times.
    pub fn on_link_up(&mut self) {
        if self.retries == 0 || self.config.is(Mutant::LinkUpIgnored) {
            return;
        }
        if self.state.is_synchronized() {
            self.resend_flight();
        } else if self.state != State::Closed {
            self.syn_due = true;
            self.tx_pending = true;
        }
    }

    /// ICMP says that a segment of ours, which began at `seq`, did not arrive; `hard`: because nobody is there to take it.
    /// It counts only if that segment may be on its way (RFC 5927 s4.1). It ends a handshake; else it is the reason given if
    /// the connection times out (RFC 5927 s5.2).
    pub fn on_unreachable(&mut self, seq: SeqNumber, hard: bool) {
        if self.config.is(Mutant::HardErrorEnds) && hard && self.state.is_synchronized() {
            return self.fail(Error::Refused);
        }
        if seq.within(self.snd_una, self.snd_nxt) || self.config.is(Mutant::BelieveAnyError) {
            self.note_unreachable(if hard { Error::Refused } else { Error::HostUnreachable });
        }
    }

    /// The next hop doesn't answer.
    pub fn on_host_unreachable(&mut self) {
        self.note_unreachable(Error::HostUnreachable);
    }

    fn note_unreachable(&mut self, error: Error) {
        mark!(self, UnreachableReceived);
        match self.state {
            State::Closed | State::Listen | State::TimeWait => {}
            // (What its program has accepted is as any other connection, as on Linux.)
            State::SynReceived if self.is_accepted_early() => self.soft_error = Some(error),
            State::SynSent | State::SynReceived => self.fail(error),
            _ if self.config.is(Mutant::UnreachableAborts) => self.fail(error),
            _ => self.soft_error = Some(error),
        }
    }

    /// Segments have at most `mss` bytes, for a time. Whether that is news.
    fn limit_path(&mut self, now: Instant, mss: u16) -> bool {
        let mss = mss.max(Config::MSS_MIN);
        let (before, news) = (self.mss, mss < self.path_mss);
        if news {
            mark!(self, PathMtuLowered);
            self.path_mss = mss;
            self.update_mss();
            let long = if self.config.is(Mutant::PathMtuForever) { 1000 } else { 1 };
            self.timers.set(Timer::PathMtu, now + PATH_MTU_TIME * long);
        }
        let shorter = news && self.mss < before;
        // What a cork or Nagle's algorithm holds may be a full segment now.
        self.tx_pending |= shorter;
        shorter
    }

    /// Everything on its way counts as lost, though not for congestion.
    fn resend_flight(&mut self) {
        if self.in_flight() == 0 || !self.state.is_synchronized() {
            return;
        }
        if self.config.is(Mutant::MtuCutTakenForCongestion) {
            self.tell_timeout(self.last_tx, true);
        }
        self.oversized = None;
        self.phase = Phase::Loss;
        self.recover = self.snd_nxt;
        self.high_rxt = self.snd_una;
        self.records.unfollow();
        // (Which is nothing that the controller has to hear of.)
        self.records.look_from(self.snd_nxt);
        self.retransmit_now = true;
        self.dupacks = 0;
        self.tx_pending = true;
    }
}
