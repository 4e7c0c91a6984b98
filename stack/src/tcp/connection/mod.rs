//! One connection: its variables, how it begins, and what can be asked of it.

mod ack;
#[cfg(any(test, feature = "fuzzing"))]
mod check;
mod close;
mod congestion;
mod details;
mod dummy;
mod ecn;
mod path;
mod prediction;
mod receive;
mod recv_filter;
mod rest;
mod snapshot;
mod stream;
mod timeouts;
mod transmit;
mod undelivered;

pub(crate) use path::PATH_MTU_TIME;
pub(crate) use rest::Rest;
pub use snapshot::{ControlBlock, Snapshot, SnapshotError};
pub use undelivered::Undelivered;

use core::time::Duration;

use self::ecn::Ecn;
use super::acks::AckPolicy;
use super::config::Config;
use super::congestion::Selected;
use super::handshake::{Agreement, TIMESTAMPS_LEN};
use super::profile::{Profile, Profiles};
use super::reassembly::Reassembly;
use super::records::Records;
use super::recv_queue::RecvQueue;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::send_buffer::SendBuffer;
use super::timers::{Timer, Timers};
use super::window::ReceiveWindow;
use super::{Opening, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::flow::{Counters, Readiness};
use crate::mutants::Mutant;
use crate::time::Instant;
use crate::wire::tcp::{Header, SeqNumber};

pub use details::{Details, Pending};

/// The slowest that a timestamp clock may tick (RFC 7323 s5.4).
const TIMESTAMP_TICK_MAX: Duration = Duration::from_secs(1);

/// The numbers, ends included, that a connection's peer can have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plausible {
    /// What it sends next.
    sent: (SeqNumber, SeqNumber),
    /// What it expects next.
    expected: (SeqNumber, SeqNumber),
}

impl Plausible {
    /// Whether it can send and expect these next.
    pub(crate) fn includes(&self, (sent, expected): (SeqNumber, SeqNumber)) -> bool {
        let is_in = |number: SeqNumber, (least, most): (SeqNumber, SeqNumber)| number.ge(least) && number.le(most);
        is_in(sent, self.sent) && is_in(expected, self.expected)
    }
}

/// Which retransmissions are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// None: nothing is thought to be lost.
    Open,
    /// Holes that duplicate acknowledgments or SACK point to (RFC 5681 s3.2, RFC 6675).
    Recovery,
    /// Everything that was on its way when the retransmission timer ran out.
    Loss,
}

/// A TCP connection, over a device's receive and send buffers.
pub struct Connection<R, T> {
    state: State,
    phase: Phase,
    /// [`Connection::poll_transmit`] has something to look at.
    tx_pending: bool,
    /// A SYN or SYN-ACK must be sent, or sent again.
    syn_due: bool,
    /// The program ended our stream: a FIN follows the last byte.
    fin_queued: bool,
    /// The peer's FIN was received, and everything before it.
    peer_fin: bool,
    /// The program won't read any more.
    read_shut: bool,
    /// The peer is dead, which only shows when the program writes: see [`Connection::peer_died`]. Invariant: [`State::CloseWait`], or the
    /// connection is over.
    peer_exited: bool,
    /// The program closed the socket.
    orphaned: bool,
    /// A reset must be sent.
    reset_due: bool,
    /// An empty segment below the window must be sent, to be answered.
    probe_due: bool,
    /// Partial segments may go: a cork's or a silly window's time ran out.
    push: bool,
    /// The last write said that more follows.
    more: bool,
    /// Bytes that could be sent wait for an acknowledgment or a window.
    held: bool,
    /// One lost segment goes out whatever the congestion window says (RFC 6675 s5 step 4.3).
    retransmit_now: bool,
    /// A write found too little room.
    write_blocked: bool,
    /// How often, one after the other, writers found no buffers.
    starved: u8,
    edges: Readiness,

    local_port: u16,
    remote_port: u16,
    agreement: Agreement,
    ecn: Ecn,
    dupacks: u16,
    /// Retransmissions of the same bytes so far.
    retries: u32,

    snd_una: SeqNumber,
    /// Behind everything ever sent.
    snd_nxt: SeqNumber,
    /// The peer's window in bytes, and the largest that it ever offered.
    snd_wnd: usize,
    snd_wnd_max: usize,
    snd_wl1: SeqNumber,
    snd_wl2: SeqNumber,
    /// The end of the last partial segment sent (Minshall's variant of Nagle's algorithm).
    snd_small: SeqNumber,
    /// Payload bytes of a full segment without SACK.
    mss: usize,
    /// Where a recovery ends, and what was retransmitted in it so far.
    recover: SeqNumber,
    high_rxt: SeqNumber,
    /// A part of what the fast recovery began with was acknowledged.
    partially_acked: bool,
    /// What was on its way when one of the ends went elsewhere, and was not sent again since, nobody may have ([`Connection::is_nowhere`]).
    went_elsewhere: bool,

    window: ReceiveWindow,
    acks: AckPolicy,
    ts_recent: u32,
    /// The peer's timestamp was heard. (The kernel does not tell what it heard, when a connection comes from there.)
    ts_recent_known: bool,
    ts_offset: u32,
    ts_recent_at: Instant,
    last_rx: Instant,
    last_tx: Instant,
    /// The same of bytes, for the restart after idle.
    last_data_tx: Instant,
    timers: Timers,
    rtt: Rtt,
    congestion: Selected,
    /// Its window in bytes.
    cwnd: usize,
    send: SendBuffer<T>,
    recv: RecvQueue<R>,
    reassembly: Option<Box<Reassembly<R>>>,
    scoreboard: Scoreboard,
    records: Records,
    counters: Counters,

    /// No challenge ACK before then (RFC 5961 s7).
    challenge_at: Instant,
    /// When the oldest unacknowledged bytes timed out first.
    stalled_since: Instant,
    persist_backoff: u8,
    unanswered_probes: u32,
    path_mss: u16,
    /// What was sent before this may have been in segments that are longer than the path carries, and was not sent again.
    oversized: Option<SeqNumber>,
    error: Option<Error>,
    soft_error: Option<Error>,
    config: Profile,
    #[cfg(feature = "marks")]
    marks: crate::marks::MarkSet,
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    fn new(now: Instant, config: Profile, (local_port, remote_port): (u16, u16), opening: Opening, state: State) -> Self {
        let iss = opening.iss;
        let mut window = ReceiveWindow::new(now, config.receive_limits());
        window.scale = config.receive_scale();
        window.mutation = config.mutation();
        let mut connection = Self {
            state,
            phase: Phase::Open,
            tx_pending: true,
            syn_due: true,
            fin_queued: false,
            peer_fin: false,
            read_shut: false,
            peer_exited: false,
            orphaned: false,
            reset_due: false,
            probe_due: false,
            push: false,
            more: false,
            held: false,
            retransmit_now: false,
            write_blocked: false,
            starved: 0,
            edges: Readiness::empty(),
            local_port,
            remote_port,
            agreement: Agreement::offer(&config, state == State::SynSent),
            ecn: Ecn::default(),
            dupacks: 0,
            retries: 0,
            snd_una: iss,
            snd_nxt: iss,
            snd_wnd: 0,
            snd_wnd_max: 0,
            snd_wl1: SeqNumber(0),
            snd_wl2: iss,
            snd_small: iss,
            mss: 0,
            recover: iss,
            high_rxt: iss,
            partially_acked: false,
            went_elsewhere: false,
            window,
            acks: AckPolicy::new(),
            ts_recent: 0,
            ts_recent_known: false,
            ts_offset: opening.timestamp_offset,
            ts_recent_at: now,
            last_rx: now,
            last_tx: now,
            last_data_tx: now,
            timers: Timers::new(),
            rtt: Rtt::new().of(config.mutation()),
            congestion: Selected::before_the_handshake(config.congestion, usize::from(Config::MSS_MIN), config.mutation()),
            cwnd: 0,
            send: SendBuffer::new(iss + 1),
            recv: RecvQueue::new(),
            reassembly: None,
            scoreboard: Scoreboard::default().of(config.mutation()),
            records: Records::default().of(config.mutation()),
            counters: Counters::default(),
            challenge_at: Instant::ZERO,
            stalled_since: now,
            persist_backoff: 0,
            unanswered_probes: 0,
            path_mss: u16::MAX,
            oversized: None,
            error: None,
            soft_error: None,
            config,
            #[cfg(feature = "marks")]
            marks: crate::marks::MarkSet::default(),
        };
        connection.recv.keep_arrivals(connection.config.arrival_times);
        connection.update_mss();
        connection
    }

    /// Opens a connection actively: SYN-SENT. The SYN comes out of [`Connection::poll_transmit`].
    pub fn connect(now: Instant, config: impl Into<Profile>, local_port: u16, remote_port: u16, opening: Opening) -> Self {
        Self::new(now, config.into(), (local_port, remote_port), opening, State::SynSent)
    }

    /// Opens a connection passively, from a received SYN: SYN-RECEIVED. The SYN-ACK comes out of
    /// [`Connection::poll_transmit`].
    pub fn accept(now: Instant, config: impl Into<Profile>, syn: &Header, opening: Opening) -> Self {
        let mut connection = Self::new(now, config.into(), (syn.dst_port, syn.src_port), opening, State::SynReceived);
        connection.take_syn(now, syn);
        connection
    }

    /// Takes in what the peer's SYN says.
    fn take_syn(&mut self, now: Instant, syn: &Header) {
        self.agreement.settle(syn, &self.config);
        self.window.start(syn.seq + 1);
        self.window.scale = self.agreement.receive_scale;
        if let Some((value, _)) = syn.options.timestamps {
            (self.ts_recent, self.ts_recent_known) = (value, true);
            self.ts_recent_at = now;
        }
        // A SYN's window is never scaled (RFC 7323 s2.2).
        let scale = if self.config.is(Mutant::SynWindowScaled) { self.agreement.send_scale } else { 0 };
        self.snd_wnd = usize::from(syn.window) << scale;
        self.snd_wnd_max = self.snd_wnd;
        self.snd_wl1 = syn.seq;
        self.snd_wl2 = self.snd_una;
        self.update_mss();
    }

    /// The handshake is complete, after so many timeouts.
    fn establish(&mut self, now: Instant, timeouts: u32) {
        self.state = State::Established;
        if timeouts > 0 {
            self.rtt.lost_syn();
        }
        self.begin_congestion_control(now, timeouts);
        self.syn_due = false;
        // The device has not taken the answer to an acknowledgment of another connection (RFC 9293 s3.10.7.4) yet: from now on it would be a
        // reset of this one.
        self.reset_due = false;
        self.retries = 0;
        self.timers.stop(Timer::Retransmit);
        if !self.config.is(Mutant::ConnectedRaisesNothing) {
            self.edges |= Readiness::OUT;
        }
        self.start_keepalive(now);
    }

    fn update_mss(&mut self) {
        let peer_mss = if self.config.is(Mutant::IgnorePeerMss) { u16::MAX } else { self.agreement.peer_mss };
        let mss = peer_mss.min(self.config.mss_announced()).min(self.path_mss).max(Config::MSS_MIN);
        let stamped = self.agreement.timestamps && !self.config.is(Mutant::TimestampLengthForgotten);
        self.mss = usize::from(mss) - if stamped { TIMESTAMPS_LEN } else { 0 };
        self.tell_mss();
    }

    /// Whether [`Connection::poll_transmit`] may have something to send.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.tx_pending
    }

    /// When [`Connection::on_timer`] must be called at the latest.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The earliest deadline set since the last call: a cheap hint for an owner that already waits for
    /// [`Connection::deadline`] as of then. It may be early, never late.
    #[inline]
    pub fn take_sooner_deadline(&mut self) -> Option<Instant> {
        self.timers.take_sooner()
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// The configuration.
    pub fn config(&self) -> &Profile {
        &self.config
    }

    /// Changes the configuration; it takes effect with the next call or segment.
    pub fn configure(&mut self, now: Instant, change: impl FnOnce(&mut Config)) {
        let mut config = Config::clone(&self.config);
        change(&mut config);
        self.set_profile(now, (&config).into());
    }

    /// From now on its configuration is one with that of others which have the same.
    pub(crate) fn share_profile(&mut self, profiles: &mut Profiles) {
        self.config = profiles.share(&self.config);
    }

    /// As [`Connection::configure`], with a configuration that others may have as well.
    pub(crate) fn set_profile(&mut self, now: Instant, profile: Profile) {
        let keepalive = self.config.keepalive;
        self.config = profile;
        self.window.set_limits(self.config.receive_limits());
        self.recv.keep_arrivals(self.config.arrival_times);
        self.update_mss();
        self.change_congestion_control(now);
        if self.config.keepalive != keepalive && !(self.config.is(Mutant::KeepaliveSetLateIgnored) && keepalive.is_none()) {
            self.start_keepalive(now);
        }
        // Uncorking, and no delay, let go what was held back.
        self.tx_pending |= !self.config.is(Mutant::OptionsWakeNothing);
    }

    fn start_keepalive(&mut self, now: Instant) {
        match &self.config.keepalive {
            Some(keepalive) if self.state.is_synchronized() && self.state != State::TimeWait && !self.peer_exited => {
                let early = if self.config.is(Mutant::KeepaliveEarly) { 2 } else { 1 };
                self.timers.set(Timer::Keepalive, now + keepalive.idle / early);
            }
            _ => self.timers.stop(Timer::Keepalive),
        }
    }

    /// What can be done without blocking (Linux's `tcp_poll`).
    pub fn readiness(&self) -> Readiness {
        let ready = self.readiness_when_decided();
        // What the reader is not to have yet comes before an end, or an error.
        let hides_end = self.recv.undecided() > 0 && self.recv.len() == 0;
        if hides_end { ready - Readiness::IN } else { ready }
    }

    fn readiness_when_decided(&self) -> Readiness {
        let mut ready = Readiness::empty();
        if self.error.is_some() {
            ready |= Readiness::ERR;
        }
        match self.state {
            State::Closed => return ready | Readiness::IN | Readiness::OUT | Readiness::RDHUP | Readiness::HUP,
            State::SynSent if self.config.is(Mutant::WritableWhileConnecting) => return ready | Readiness::OUT,
            State::Listen | State::SynSent | State::SynReceived => return ready,
            _ => {}
        }
        let read_ended = self.peer_fin || self.read_shut;
        if read_ended {
            ready |= Readiness::RDHUP;
        }
        if read_ended || self.recv.len() > 0 {
            ready |= Readiness::IN;
        }
        let ended = self.fin_queued || self.config.is(Mutant::HangUpHalfway);
        if read_ended && ended && !self.config.is(Mutant::NoHangUp) {
            ready |= Readiness::HUP;
        }
        // (Who found no buffers is told when to try again.)
        let lacks_buffers = self.write_blocked && self.starved > 0;
        if self.fin_queued || (self.is_writable() && !lacks_buffers) {
            ready |= Readiness::OUT;
        }
        ready
    }

    /// Whether a third of the send buffer is free (Linux's `sk_stream_is_writeable`).
    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        // What no limit excludes needs no look at the limits.
        const ALWAYS: usize = Config::SEND_LIMIT_MIN / 2;
        let queued = self.send.len();
        queued < ALWAYS || queued + queued / 2 < self.config.send_limit(self.cwnd)
    }

    /// What newly happened since the last call: [`Readiness::IN`] for every arrival, [`Readiness::OUT`] when there is room again.
    #[inline]
    pub fn take_edges(&mut self) -> Readiness {
        core::mem::take(&mut self.edges)
    }

    /// The marks hit since the last call.
    #[cfg(feature = "marks")]
    #[inline]
    pub(crate) fn take_marks(&mut self) -> crate::marks::MarkSet {
        self.marks.take()
    }

    /// Whether a connection of ours may take the place of this one, which is in TIME-WAIT, because timestamps tell the segments of the two
    /// apart (RFC 6191 s2): both sides' clocks must have ticked since, at the slowest rate that RFC 7323 s5.4 allows (as Linux's
    /// tcp_tw_reuse).
    pub fn may_be_reused(&self, now: Instant) -> bool {
        self.state == State::TimeWait && self.agreement.timestamps && have_clocks_ticked(now, self.last_rx, &self.config)
    }

    /// The first sequence number that it has not used.
    pub(crate) fn sent_up_to(&self) -> SeqNumber {
        self.snd_nxt
    }

    /// The sequence number that it expects next.
    pub(crate) fn received_up_to(&self) -> SeqNumber {
        self.window.nxt
    }

    /// What its peer may have sent, and may expect, as far as this end knows.
    pub(crate) fn plausible(&self) -> Plausible {
        // (A FIN, or a probe of a closed window, lies beyond it.)
        Plausible { sent: (self.window.nxt, self.window.adv + 1), expected: (self.snd_una, self.snd_nxt) }
    }

    /// Takes the pending error.
    pub fn take_error(&mut self) -> Option<Error> {
        if self.config.is(Mutant::ErrorToldAgain) {
            return self.error;
        }
        self.error.take()
    }

    /// Whether no segment will be sent or expected any more. What was received can still be read.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.state == State::Closed && !self.reset_due
    }

    /// Whether the program closed the socket.
    pub fn is_orphaned(&self) -> bool {
        self.orphaned
    }

    /// Bytes that can be read.
    #[inline]
    pub fn available(&self) -> usize {
        self.recv.len()
    }

    /// Bytes written and not acknowledged.
    #[inline]
    pub fn send_queue(&self) -> usize {
        self.send.len()
    }

    /// The smoothed round-trip time; zero if unknown.
    pub fn srtt(&self) -> Duration {
        self.rtt.srtt()
    }

    /// Payload bytes of a full segment.
    pub fn mss(&self) -> u16 {
        self.mss.min(usize::from(u16::MAX)) as u16
    }

    /// The congestion window in bytes.
    pub fn cwnd(&self) -> usize {
        self.cwnd
    }

    /// What it counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Our port.
    pub fn local_port(&self) -> u16 {
        self.local_port
    }

    /// The peer's port.
    pub fn remote_port(&self) -> u16 {
        self.remote_port
    }

    /// Bytes on their way, and a FIN.
    #[inline]
    fn in_flight(&self) -> usize {
        self.snd_nxt.since(self.snd_una)
    }

    /// The timestamp clock: milliseconds, as Linux's. It does not run back where a caller read the time, and then had to wait for its turn: the peer would
    /// drop the segment (RFC 7323 s5.3).
    #[inline]
    fn timestamp(&self, now: Instant) -> u32 {
        let clock = (now.max(self.last_tx).as_millis() as u32).wrapping_add(self.ts_offset);
        if self.config.is(Mutant::TimestampBackwards) && now.as_millis() % 8 == 7 {
            return clock.wrapping_sub(100);
        }
        clock
    }

    #[inline]
    fn ack_now(&mut self) {
        self.acks.now = true;
        self.tx_pending = true;
    }

    /// Whether buffers or queues hold memory.
    #[cfg(test)]
    pub(super) fn holds_memory(&self) -> bool {
        self.send.holds_buffers() || self.recv.holds_memory() || self.records.holds_memory()
    }

    /// How many separate ranges wait for a gap to be filled.
    #[cfg(test)]
    pub(super) fn out_of_order_blocks(&self) -> usize {
        self.reassembly.as_ref().map_or(0, |reassembly| reassembly.block_count())
    }
}

/// Whether timestamps tell what is sent now from what came before ([`Connection::may_be_reused`]).
fn have_clocks_ticked(now: Instant, last_rx: Instant, config: &Config) -> bool {
    now.since(last_rx) >= TIMESTAMP_TICK_MAX || config.is(Mutant::ReusedAtOnce)
}
