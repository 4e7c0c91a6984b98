//! A timer runs out.

use core::time::Duration;

use super::{Connection, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::keepalive::{self, Verdict};
use crate::tcp::timers::{Timer, Timers};
use crate::time::Instant;

/// Linux's tcp_orphan_retries.
const ORPHAN_RETRIES: u32 = 8;
/// Linux's tcp_synack_retries.
const SYN_ACK_RETRIES: u32 = 5;
const PERSIST_MAX: Duration = Duration::from_secs(120);

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// Runs the timers that are due.
    pub fn on_timer(&mut self, now: Instant) {
        for timer in Timers::ALL {
            if !self.timers.expired(timer, now) {
                continue;
            }
            match timer {
                Timer::Retransmit => self.on_retransmission_timeout(now),
                Timer::Persist => self.on_persist(now),
                Timer::DelayedAck if self.config.is(Mutant::NoDelayedAck) => {}
                Timer::DelayedAck => {
                    mark!(self, DelayedAck);
                    self.acks.on_delayed();
                    self.tx_pending = true;
                }
                Timer::Keepalive => self.on_keepalive(now),
                Timer::Linger => {
                    mark!(self, LingerExpired);
                    self.finish();
                }
                Timer::Cork => {
                    mark!(self, CorkExpired);
                    (self.push, self.more) = (true, false);
                    self.tx_pending = true;
                }
                Timer::Release => self.on_release(),
                Timer::PathMtu => self.on_path_mtu_expired(),
                Timer::Pace => {
                    self.stop_waiting();
                    self.tx_pending = true;
                }
            }
        }
    }

    /// RFC 6298 s5.4 to s5.6.
    fn on_retransmission_timeout(&mut self, now: Instant) {
        if self.on_reordering_timeout(now) || self.on_probe_timeout(now) {
            return;
        }
        let known = self.config.is(Mutant::StallCountedFromFirst) && self.counters.retransmissions > 0;
        if (self.retries == 0 && !known && !self.is_probed()) || self.config.is(Mutant::UserTimeoutRestarts) {
            // The bytes were sent one timeout ago.
            self.stalled_since = Instant::from_nanos(now.as_nanos().saturating_sub(self.rtt.rto_ns()));
        }
        let handshake = !self.state.is_synchronized();
        let limit = match self.state {
            State::SynSent => self.config.syn_retries,
            State::SynReceived => self.config.syn_retries.min(SYN_ACK_RETRIES),
            _ if self.orphaned && !self.config.is(Mutant::OrphanRetriesAsLong) => self.config.retries.min(ORPHAN_RETRIES),
            _ => self.config.retries,
        };
        // RFC 5482 s3: how long bytes may stay without an acknowledgment.
        let out_of_time = !handshake && self.config.user_timeout.is_some_and(|limit| now.since(self.stalled_since) >= limit);
        if out_of_time {
            mark!(self, UserTimeout);
        }
        let limit = limit + u32::from(self.config.is(Mutant::OneRetryMore));
        if self.retries >= limit || out_of_time {
            mark!(self, GaveUp);
            let told = self.soft_error.filter(|_| !self.config.is(Mutant::SoftErrorForgotten));
            self.fail(told.unwrap_or(Error::TimedOut));
            return;
        }
        if handshake {
            self.syn_due = true;
            self.tx_pending = true;
        } else if self.in_flight() > 0 {
            self.suspect_black_hole(now);
            self.enter_loss(now);
        } else {
            return;
        }
        mark!(self, RetransmissionTimeout);
        if self.retries > 0 {
            mark!(self, BackedOff);
        }
        self.retries += 1;
        let flat = handshake && self.config.is(Mutant::SynNotBackedOff);
        if !self.config.is(Mutant::NoBackoff) && !flat {
            self.rtt.timed_out();
        }
        self.set_timeout(self.next_timeout(now));
    }

    /// When what is sent again now times out: the last time is cut short where the user's timeout ends first.
    pub(super) fn next_timeout(&self, now: Instant) -> Instant {
        let next = self.rtt.timeout_at(now);
        let user_timeout = self.config.user_timeout.filter(|_| (self.retries > 0 || self.is_probed()) && self.state.is_synchronized());
        user_timeout.map_or(next, |limit| next.min(self.stalled_since + limit))
    }

    /// RFC 9293 s3.8.6.1: a shut window is asked about until it opens.
    fn on_persist(&mut self, now: Instant) {
        let silent = now.since(self.last_rx);
        let limit = if self.orphaned { self.config.retries.min(ORPHAN_RETRIES) } else { self.config.retries };
        let limit = if self.orphaned && self.config.is(Mutant::OrphanProbesForever) { u32::MAX } else { limit };
        let out_of_time = self.config.user_timeout.is_some_and(|limit| self.unanswered_probes > 0 && silent >= limit);
        if self.unanswered_probes > limit || out_of_time {
            self.fail(self.soft_error.unwrap_or(Error::TimedOut));
            return;
        }
        if self.snd_wnd > 0 {
            // Open, but silly: after this time it is filled nevertheless.
            mark!(self, SillyWindowOverride);
            self.push = !self.config.is(Mutant::SillyWindowNeverOverridden);
        } else {
            mark!(self, PersistProbe);
            self.probe_due = true;
            self.unanswered_probes += 1;
            if !self.config.is(Mutant::PersistNotBackedOff) {
                self.persist_backoff = self.persist_backoff.saturating_add(1);
            }
            self.timers.set(Timer::Persist, now + self.persist_interval());
        }
        self.tx_pending = true;
    }

    pub(super) fn persist_interval(&self) -> Duration {
        let most = if self.config.is(Mutant::PersistUncapped) { PERSIST_MAX * 30 } else { PERSIST_MAX };
        self.rtt.rto().saturating_mul(1 << self.persist_backoff.min(12)).min(most)
    }

    fn on_keepalive(&mut self, now: Instant) {
        let Some(mut settings) = self.config.keepalive else { return };
        if self.config.is(Mutant::KeepaliveEarly) {
            settings.idle /= 2;
        }
        if self.config.is(Mutant::KeepaliveOnceMore) {
            settings.count += 1;
        }
        if self.config.is(Mutant::KeepaliveByIdle) {
            settings.interval = settings.idle;
        }
        if !self.state.is_synchronized() || self.state == State::TimeWait {
            return;
        }
        let ends = self.fin_queued && self.snd_nxt.le(self.send.end());
        let awaits = self.send.len() > 0 || self.in_flight() > 0 || ends;
        if awaits && !self.config.is(Mutant::KeepaliveWhileSending) {
            // Retransmissions and window probes find out as well.
            self.timers.set(Timer::Keepalive, now + settings.idle);
            return;
        }
        if self.config.is(Mutant::NoKeepalive) {
            self.timers.set(Timer::Keepalive, now + settings.idle);
            return;
        }
        let silence = now.since(self.last_rx);
        let unanswered = if self.config.is(Mutant::KeepaliveForever) { 0 } else { self.unanswered_probes };
        let timeout = self.config.user_timeout.filter(|_| !self.config.is(Mutant::KeepaliveIgnoresUserTimeout));
        match keepalive::judge(&settings, silence, unanswered, timeout) {
            Verdict::Wait(time) => self.timers.set(Timer::Keepalive, now + time),
            Verdict::Probe(time) => {
                mark!(self, KeepaliveProbe);
                self.unanswered_probes += 1;
                self.probe_due = true;
                self.tx_pending = true;
                self.timers.set(Timer::Keepalive, now + time);
            }
            Verdict::Dead => {
                mark!(self, KeepaliveDead);
                self.fail(self.soft_error.unwrap_or(Error::TimedOut));
                self.reset_due = true;
                self.tx_pending = true;
            }
        }
    }

    fn on_release(&mut self) {
        if self.config.is(Mutant::SpuriousEdge) {
            self.edges |= Readiness::IN;
        }
        if !self.config.is(Mutant::IdleBuffersKept) {
            self.send.release_idle();
            self.rest_congestion_control();
        }
        self.recv.release_idle(self.config.is(Mutant::IdleForgetsLent));
        if self.write_blocked && self.is_writable() {
            self.write_blocked = false;
            self.edges |= Readiness::OUT;
        }
    }
}
