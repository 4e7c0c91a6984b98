//! A connection that was written down elsewhere is one again.

use super::parts::{Clock, Flags, Loss, Path, Sending, Silence};
use super::{Snapshot, Variables};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::tcp::connection::Connection;
use crate::tcp::connection::receive::CHALLENGE_INTERVAL;
use crate::tcp::reassembly::Reassembly;
use crate::tcp::send_buffer::SendBuffer;
use crate::tcp::{Config, Opening, State};
use crate::time::Instant;

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// A connection that was written down elsewhere, as it was. `now` is on the same clock as there. What the program had set of it comes with it; the rest of
    /// `config` is its new ring's. `alloc` gives buffers for what is still to be sent, or to be acknowledged.
    ///
    /// # Errors
    /// [`Error::NoBuffers`].
    pub fn resume(
        now: Instant,
        config: &Config,
        (local_port, remote_port): (u16, u16),
        from: &Snapshot,
        alloc: &mut impl FnMut(usize) -> Option<T>,
    ) -> Result<Self, Error> {
        let Snapshot { variables: _, unacknowledged, unread, held: _ } = from;
        let mut connection = Self::without_queues(now, config, (local_port, remote_port), from);
        connection.send = SendBuffer::new(from.begins());
        let bytes = std::io::IoSlice::new(unacknowledged);
        if connection.send.write(&[bytes], usize::MAX, alloc) < unacknowledged.len() {
            return Err(Error::NoBuffers);
        }
        connection.recv.push_bytes(unread, None);
        Ok(connection)
    }

    /// All of it but what is still to be sent or acknowledged, and to be read.
    fn without_queues(now: Instant, config: &Config, ports: (u16, u16), from: &Snapshot) -> Self {
        let Snapshot { variables, unacknowledged: _, unread: _, held: held_bytes } = from;
        #[rustfmt::skip]
        let Variables {
            state, agreement, ecn, path, sending, window, acks, clock, silence, timers, rtt, congestion, loss, reported, flight, held, flags, options, counters,
        } = variables;
        let opening = Opening { iss: sending.snd_una, timestamp_offset: clock.ts_offset };
        let mut connection = Self::new(now, (&options.over(config)).into(), ports, opening, *state);
        connection.syn_due = false;
        (connection.agreement, connection.ecn) = (*agreement, *ecn);
        connection.take_numbers(sending, loss);
        connection.take_times(now, clock, silence);
        connection.take_flags(flags);
        connection.window.resume(window);
        connection.acks = acks.clone();
        connection.timers.resume(timers);
        connection.rtt = rtt.clone().of(connection.config.mutation());
        Path { mss: connection.path_mss, oversized: connection.oversized } = *path;
        connection.update_mss();
        connection.congestion = congestion.algorithm().begin(&connection.beginning(now)).of(connection.config.mutation());
        if !connection.config.is(Mutant::ResumeRestoresInitialWindow) {
            connection.congestion.resume(congestion);
        }
        connection.note_window();
        for &range in reported {
            connection.scoreboard.add(range, sending.snd_una, sending.snd_nxt);
        }
        connection.records.resume(now, flight);
        connection.counters = *counters;
        if let Some(held) = held {
            connection.reassembly = Some(Box::new(Reassembly::resume(held, held_bytes)));
            connection.reassembly_mut();
        }
        connection
    }

    /// Writes it down and reads it in again, where it is, but for the buffers of its queues, in which bytes go on to lie as they do. Whether that could be: see
    /// [`Connection::snapshot`].
    #[cfg(feature = "mutants")]
    pub(crate) fn rewrite(&mut self, now: Instant) -> bool {
        let Some(written) = self.snapshot() else { return false };
        let snapshot = Snapshot::from_bytes(&written.to_bytes()).expect("what was written can be read");
        let connection = Self::without_queues(now, &self.config, (self.local_port, self.remote_port), &snapshot);
        let old = core::mem::replace(self, connection);
        let out_of_order = |connection: &Self| connection.reassembly.as_ref().map(|reassembly| reassembly.written());
        if out_of_order(self) == out_of_order(&old) {
            self.reassembly = old.reassembly;
        }
        (self.send, self.recv, self.edges) = (old.send, old.recv, old.edges);
        // The ring has its timers in its wheel, in the order in which it heard of them.
        self.timers.take_sooner();
        if let Some(sooner) = old.timers.clone().take_sooner() {
            self.timers.hasten(sooner);
        }
        #[cfg(feature = "marks")]
        {
            self.marks = old.marks;
        }
        true
    }

    fn take_numbers(&mut self, sending: &Sending, loss: &Loss) {
        // (Up to where bytes were written shows in the send buffer.)
        let Sending { snd_una, snd_nxt, written: _, snd_small, snd_wl1, snd_wl2, snd_wnd, snd_wnd_max } = *sending;
        (self.snd_una, self.snd_nxt, self.snd_small) = (snd_una, snd_nxt, snd_small);
        (self.snd_wl1, self.snd_wl2, self.snd_wnd, self.snd_wnd_max) = (snd_wl1, snd_wl2, snd_wnd, snd_wnd_max);
        let Loss { phase, recover, high_rxt, partially_acked, went_elsewhere, retransmit_now, tail_probe, dupacks, retries } = *loss;
        (self.phase, self.recover, self.high_rxt, self.partially_acked) = (phase, recover, high_rxt, partially_acked);
        (self.retransmit_now, self.dupacks, self.retries, self.went_elsewhere) = (retransmit_now, dupacks, retries, went_elsewhere);
        self.tail_probe = tail_probe;
    }

    /// (What has happened is not yet to come.)
    fn take_times(&mut self, now: Instant, clock: &Clock, silence: &Silence) {
        let Clock { ts_offset, ts_recent, ts_recent_known, ts_recent_at } = *clock;
        // Two processes' clocks may differ by what they were off at their beginnings, for as long as each has run: timestamps go on from the last one.
        let behind = silence.last_tx.since(now).as_millis() as u32;
        self.ts_offset = match self.config.is(Mutant::ResumeRestartsTimestamps) {
            true => 0u32.wrapping_sub(now.as_millis() as u32),
            false => ts_offset.wrapping_add(behind),
        };
        (self.ts_recent, self.ts_recent_known, self.ts_recent_at) = (ts_recent, ts_recent_known, ts_recent_at.min(now));
        let Silence { last_rx, last_tx, last_data_tx, challenge_at, stalled_since, persist_backoff, unanswered_probes } = *silence;
        (self.last_rx, self.last_tx, self.last_data_tx) = (last_rx.min(now), last_tx.min(now), last_data_tx.min(now));
        self.challenge_at = challenge_at.min(now + CHALLENGE_INTERVAL);
        self.stalled_since = stalled_since.min(now);
        (self.persist_backoff, self.unanswered_probes) = (persist_backoff, unanswered_probes);
    }

    fn take_flags(&mut self, flags: &Flags) {
        #[rustfmt::skip]
        let Flags {
            fin_queued, peer_fin, read_shut, peer_exited, tx_pending, probe_due, push, more, held, write_blocked, starved, syn_data, soft_error,
        } = *flags;
        (self.fin_queued, self.peer_fin, self.read_shut, self.peer_exited) = (fin_queued, peer_fin, read_shut, peer_exited);
        (self.tx_pending, self.probe_due, self.push, self.more, self.held) = (tx_pending, probe_due, push, more, held);
        (self.write_blocked, self.starved, self.soft_error, self.syn_data) = (write_blocked, starved, soft_error, syn_data);
    }

    /// One of the two ends is elsewhere from now on, and each knows where the other is: what was on its way is lost, and is sent again without
    /// waiting for the timer; and what was received is told again.
    pub(crate) fn go_on_elsewhere(&mut self, now: Instant) {
        if !self.state.is_synchronized() || self.state == State::TimeWait {
            return;
        }
        if self.in_flight() > 0 {
            self.enter_loss(now);
            self.went_elsewhere = true;
            self.set_timeout(self.rtt.timeout_at(now));
        }
        self.ack_now();
    }
}
