//! A connection in which little can happen, in a small form: one whose handshake the peer has yet to complete (RFC 9293 s3.3.2, SYN-RECEIVED), or one that
//! waits out its TIME-WAIT and that the program has closed.
//!
//! There may be many of them: a peer begins the former by a single segment, and the latter last a minute. The small form is what the connection is made of
//! again, as it was, as soon as anything comes for it or a timer runs out; so nothing of what RFC 9293 s3.10.7.4 asks of these states is written a second time.

use std::sync::Arc;

use super::{Connection, Phase, have_clocks_ticked};
use crate::device::{RxBuffer, TxBuffer};
use crate::flow::Counters;
use crate::tcp::handshake::Agreement;
use crate::tcp::profile::Profile;
use crate::tcp::rtt::Rtt;
use crate::tcp::send_buffer::SendBuffer;
use crate::tcp::timers::{Timer, Timers};
use crate::tcp::{Config, Opening, State};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// The small form.
#[derive(Debug)]
pub(crate) struct Rest {
    config: Arc<Config>,
    ports: (u16, u16),
    agreement: Agreement,
    snd_nxt: SeqNumber,
    snd_wl1: SeqNumber,
    snd_wl2: SeqNumber,
    rcv_nxt: SeqNumber,
    rcv_adv: SeqNumber,
    rcv_wup: SeqNumber,
    snd_wnd: u32,
    snd_wnd_max: u32,
    ts_recent: u32,
    ts_recent_known: bool,
    ts_offset: u32,
    ts_recent_at: Instant,
    last_rx: Instant,
    challenge_at: Instant,
    path_mss: u16,
    lends: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    HalfOpen(HalfOpen),
    TimeWait(TimeWait),
}

/// What else a connection in SYN-RECEIVED consists of. Its SYN-ACK was sent.
#[derive(Debug)]
struct HalfOpen {
    begun: Instant,
    last_tx: Instant,
    stalled_since: Instant,
    retransmit_at: Instant,
    /// When the SYN-ACK was sent whose round trip is timed, or was.
    timed_at: Instant,
    is_timed: bool,
    backoff: u8,
    retries: u8,
    high_rxt: SeqNumber,
    rx_packets: u16,
    rx_drops: u16,
    tx_packets: u16,
    retransmissions: u16,
}

/// What else one in TIME-WAIT consists of. It neither sends bytes nor receives any: what it knew for that (round trips, congestion, its counters) is gone.
#[derive(Debug)]
struct TimeWait {
    rcv_limit: u32,
    peer_mss: u32,
    linger_at: Instant,
    release_at: Instant,
    path_mtu_until: Instant,
}

impl Rest {
    /// [`State::SynReceived`] or [`State::TimeWait`].
    pub(crate) fn state(&self) -> State {
        match self.kind {
            Kind::HalfOpen(_) => State::SynReceived,
            Kind::TimeWait(_) => State::TimeWait,
        }
    }

    /// See [`Connection::may_be_reused`].
    pub(crate) fn may_be_reused(&self, now: Instant) -> bool {
        self.state() == State::TimeWait && self.agreement.timestamps && have_clocks_ticked(now, self.last_rx, &self.config)
    }

    /// (Whoever sets what all connections do, sets it here too.)
    pub(crate) fn lend_from_now_on(&mut self) {
        self.lends = true;
    }
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// The small form. `None`: it has none now.
    pub(crate) fn at_rest(&self) -> Option<Rest> {
        let kind = match self.state {
            State::SynReceived => Kind::HalfOpen(self.half_open()?),
            State::TimeWait if self.orphaned => Kind::TimeWait(self.time_wait()?),
            _ => return None,
        };
        let rest = Rest {
            config: self.config.shared(),
            ports: (self.local_port, self.remote_port),
            agreement: self.agreement,
            snd_nxt: self.snd_nxt,
            snd_wl1: self.snd_wl1,
            snd_wl2: self.snd_wl2,
            rcv_nxt: self.window.nxt,
            rcv_adv: self.window.adv,
            rcv_wup: self.window.wup,
            snd_wnd: self.snd_wnd,
            snd_wnd_max: self.snd_wnd_max,
            ts_recent: self.ts_recent,
            ts_recent_known: self.ts_recent_known,
            ts_offset: self.ts_offset,
            ts_recent_at: self.ts_recent_at,
            last_rx: self.last_rx,
            challenge_at: self.challenge_at,
            path_mss: self.path_mss,
            lends: self.recv.lends(),
            kind,
        };
        debug_assert!(self.does_as(&Self::woken(&rest)), "a connection at rest is another one: {rest:?}");
        Some(rest)
    }

    /// The connection again.
    pub(crate) fn woken(rest: &Rest) -> Self {
        let config = Profile::from(rest.config.clone());
        let (begun, iss) = match &rest.kind {
            Kind::HalfOpen(half_open) => (half_open.begun, SeqNumber(rest.snd_nxt.0.wrapping_sub(1))),
            Kind::TimeWait(_) => (rest.last_rx, rest.snd_nxt),
        };
        let opening = Opening { iss, timestamp_offset: rest.ts_offset };
        let mut connection = Self::new(begun, config, rest.ports, opening, rest.state());
        (connection.tx_pending, connection.syn_due) = (false, false);
        connection.agreement = rest.agreement;
        connection.snd_nxt = rest.snd_nxt;
        (connection.snd_wl1, connection.snd_wl2) = (rest.snd_wl1, rest.snd_wl2);
        (connection.snd_wnd, connection.snd_wnd_max) = (rest.snd_wnd, rest.snd_wnd_max);
        let window = &mut connection.window;
        (window.nxt, window.adv, window.wup, window.scale) = (rest.rcv_nxt, rest.rcv_adv, rest.rcv_wup, rest.agreement.receive_scale);
        (connection.ts_recent, connection.ts_recent_known, connection.ts_recent_at) =
            (rest.ts_recent, rest.ts_recent_known, rest.ts_recent_at);
        (connection.last_rx, connection.challenge_at) = (rest.last_rx, rest.challenge_at);
        connection.path_mss = rest.path_mss;
        connection.update_mss();
        if rest.lends {
            connection.lend_from_now_on();
        }
        match &rest.kind {
            Kind::HalfOpen(half_open) => connection.take_half_open(half_open),
            Kind::TimeWait(time_wait) => connection.take_time_wait(time_wait),
        }
        connection
    }

    fn half_open(&self) -> Option<HalfOpen> {
        let (is_timed, timed_at, backoff) = self.rtt.handshake();
        let counters = &self.counters;
        let half_open = HalfOpen {
            begun: self.last_data_tx,
            last_tx: self.last_tx,
            stalled_since: self.stalled_since,
            retransmit_at: self.timers.at(Timer::Retransmit),
            timed_at,
            is_timed,
            backoff: u8::try_from(backoff).ok()?,
            retries: u8::try_from(self.retries).ok()?,
            high_rxt: self.high_rxt,
            rx_packets: u16::try_from(counters.rx_packets).ok()?,
            rx_drops: u16::try_from(counters.rx_drops).ok()?,
            tx_packets: u16::try_from(counters.tx_packets).ok()?,
            retransmissions: u16::try_from(counters.retransmissions).ok()?,
        };
        let is_plain = self.snd_una + 1usize == self.snd_nxt
            && self.fast_open.is_none()
            && !(self.tx_pending || self.syn_due || self.orphaned || self.fin_queued || self.read_shut)
            && self.acks.is_new()
            && self.window.is_new(half_open.begun, self.config.receive_limits())
            && self.rtt == Rtt::of_handshake(is_timed, timed_at, backoff).of(self.config.mutation())
            && self.timers == Timers::only(&[(Timer::Retransmit, half_open.retransmit_at)])
            && *counters == half_open.counters();
        (is_plain && self.is_undisturbed()).then_some(half_open)
    }

    fn take_half_open(&mut self, half_open: &HalfOpen) {
        self.timers = Timers::only(&[(Timer::Retransmit, half_open.retransmit_at)]);
        let backoff = u32::from(half_open.backoff);
        self.rtt = Rtt::of_handshake(half_open.is_timed, half_open.timed_at, backoff).of(self.config.mutation());
        (self.last_tx, self.stalled_since) = (half_open.last_tx, half_open.stalled_since);
        (self.retries, self.high_rxt) = (u32::from(half_open.retries), half_open.high_rxt);
        self.counters = half_open.counters();
    }

    fn time_wait(&self) -> Option<TimeWait> {
        let time_wait = TimeWait {
            rcv_limit: u32::try_from(self.window.limit()).ok()?,
            peer_mss: u32::try_from(self.acks.peer_mss).ok()?,
            linger_at: self.timers.at(Timer::Linger),
            release_at: self.timers.at(Timer::Release),
            path_mtu_until: self.timers.at(Timer::PathMtu),
        };
        let is_plain = self.snd_una == self.snd_nxt
            && self.send.end() + 1usize == self.snd_nxt
            && !(self.tx_pending || self.acks.now || self.acks.asks || self.write_blocked)
            && self.fin_queued
            && self.peer_fin
            && self.read_shut
            && self.window.scale == self.agreement.receive_scale
            && self.timers == time_wait.timers();
        (is_plain && self.is_undisturbed()).then_some(time_wait)
    }

    fn take_time_wait(&mut self, time_wait: &TimeWait) {
        (self.fin_queued, self.peer_fin, self.read_shut, self.orphaned) = (true, true, true, true);
        self.send = SendBuffer::new(SeqNumber(self.snd_nxt.0.wrapping_sub(1)));
        self.window.set_limit(time_wait.rcv_limit as usize);
        self.acks.peer_mss = time_wait.peer_mss as usize;
        self.timers = time_wait.timers();
    }

    /// Nothing is wrong, due or kept.
    fn is_undisturbed(&self) -> bool {
        let is_due = self.reset_due || self.probe_due || self.peer_exited || self.starved > 0;
        let is_kept = self.send.len() > 0 || self.recv.charged() > 0 || self.recv.undecided() > 0 || self.reassembly.is_some();
        let is_wrong = self.error.is_some() || self.phase != Phase::Open || !self.scoreboard.is_empty();
        !(is_due || is_kept || is_wrong) && self.edges.is_empty()
    }
}

impl HalfOpen {
    fn counters(&self) -> Counters {
        Counters {
            rx_packets: self.rx_packets.into(),
            rx_drops: self.rx_drops.into(),
            tx_packets: self.tx_packets.into(),
            retransmissions: self.retransmissions.into(),
            ..Counters::default()
        }
    }
}

impl TimeWait {
    fn timers(&self) -> Timers {
        Timers::only(&[(Timer::Linger, self.linger_at), (Timer::Release, self.release_at), (Timer::PathMtu, self.path_mtu_until)])
    }
}
