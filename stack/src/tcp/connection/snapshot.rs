//! A connection as bytes, for a ring of another process: all that it is, so that it goes on there as if it had not moved, and its peer can't tell. Its times are
//! on the host's clock, which both processes read, and so the time of the move counts.
//!
//! Nothing is left out by oversight: [`Connection::snapshot`] names each of the connection's variables, and so does each part of those that it has.
//!
//! Not in it, since it is not the connection's: addresses and next hop, which travel beside it; what the ring and its device give each connection (the largest
//! segment, how much they gather and cut, the default sizes of buffers); and in which of the device's buffers bytes lie.

mod control_block;
mod parts;
mod resume;
mod same;

use super::{Connection, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::flow::Counters;
use crate::mutants::Mutant;
use crate::tcp::acks::AckPolicy;
use crate::tcp::congestion::Selected;
use crate::tcp::connection::ecn::Ecn;
use crate::tcp::fields::{LONGEST, Reader, Writer};
use crate::tcp::handshake::Agreement;
use crate::tcp::reassembly::Held;
use crate::tcp::records::Flight;
use crate::tcp::rtt::Rtt;
use crate::tcp::timers::Timers;
use crate::tcp::window::ReceiveWindow;
use crate::wire::tcp::{SackBlock, SeqNumber};

pub use self::control_block::ControlBlock;
pub use crate::tcp::fields::SnapshotError;

use self::parts::{Clock, Flags, Loss, Path, Sending, Silence, SocketOptions};

/// The layout's number, first of all.
const VERSION: u32 = 9;

/// The states in which a connection can be written down.
const STATES: [State; 6] = [State::Established, State::FinWait1, State::FinWait2, State::CloseWait, State::Closing, State::LastAck];

/// A connection between two processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// All but the bytes.
    variables: Variables,
    unacknowledged: Vec<u8>,
    unread: Vec<u8>,
    /// What arrived out of order: the bytes of all blocks, one behind the other.
    held: Vec<u8>,
}

/// Everything of fixed size, or nearly so.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variables {
    state: State,
    agreement: Agreement,
    ecn: Ecn,
    path: Path,
    sending: Sending,
    window: ReceiveWindow,
    acks: AckPolicy,
    clock: Clock,
    silence: Silence,
    timers: Timers,
    rtt: Rtt,
    congestion: Selected,
    loss: Loss,
    /// What the peer has reported of what is in flight.
    reported: Vec<SackBlock>,
    /// When what is in flight was sent.
    flight: Flight,
    /// What arrived out of order, but for its bytes; `None`: nothing did.
    held: Option<Held>,
    flags: Flags,
    options: SocketOptions,
    counters: Counters,
}

impl Snapshot {
    /// The bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let queues = [&self.unacknowledged, &self.unread, &self.held];
        let mut writer = Writer(Vec::with_capacity(1024 + queues.iter().map(|queue| queue.len()).sum::<usize>()));
        let mut lens = queues.map(|queue| u32::try_from(queue.len()).unwrap_or(u32::MAX));
        let walked = parts::walk_all(&mut self.variables.clone(), &mut lens, &mut writer);
        debug_assert_eq!(walked, Ok(()), "a writer refuses nothing");
        queues.iter().for_each(|queue| writer.0.extend_from_slice(queue));
        writer.0
    }

    /// Reads what [`Snapshot::to_bytes`] wrote. It takes no more memory than the bytes are long.
    ///
    /// # Errors
    /// [`SnapshotError`]: it is not that, or no connection can be so.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut reader = Reader(bytes);
        let (mut variables, mut lens) = (Variables::blank(), [0; 3]);
        parts::walk_all(&mut variables, &mut lens, &mut reader)?;
        let [unacknowledged, unread, held] = lens;
        let unacknowledged = reader.bytes(unacknowledged)?.to_vec();
        let unread = reader.bytes(unread)?.to_vec();
        let held = reader.bytes(held)?.to_vec();
        if !reader.0.is_empty() {
            return Err(SnapshotError::Length);
        }
        let snapshot = Self { variables, unacknowledged, unread, held };
        if snapshot.is_consistent() { Ok(snapshot) } else { Err(SnapshotError::Inconsistent) }
    }

    /// Whether the numbers can be a connection's.
    fn is_consistent(&self) -> bool {
        let Variables { state, agreement, sending, window, acks, loss, flight, held, flags, .. } = &self.variables;
        let lens_fit = self.unacknowledged.len() <= LONGEST && self.unread.len() <= LONGEST;
        let held_fits = match held {
            Some(held) => held.len() == self.held.len() && held.is_within(window.nxt, window.adv) && (held.is_bare() || state.receives()),
            None => self.held.is_empty(),
        };
        agreement.is_possible()
            && window.scale == agreement.receive_scale
            && acks.peer_mss > 0
            && lens_fit
            && held_fits
            && window.adv.ge(window.nxt)
            && window.adv.since(window.nxt) <= LONGEST
            && sending.snd_nxt.ge(sending.snd_una)
            && loss.fits(sending.snd_una, sending.snd_nxt)
            && flight.fits(sending.snd_una, sending.snd_nxt)
            && flags.fit(*state)
            && self.sent_is_written()
            && self.reported_was_sent()
    }

    /// What was sent is what was written, and a FIN behind it if there is one.
    fn sent_is_written(&self) -> bool {
        let Variables { state, sending, flags, .. } = &self.variables;
        let begins = self.begins();
        let is_fin_acknowledged = *state == State::FinWait2;
        let from = if is_fin_acknowledged { begins + 1usize } else { begins };
        from == sending.snd_una
            && (!is_fin_acknowledged || self.unacknowledged.is_empty())
            && sending.snd_nxt.le(sending.written + usize::from(flags.fin_queued))
    }

    /// The first byte that is not acknowledged, if there is one.
    fn begins(&self) -> SeqNumber {
        SeqNumber(self.variables.sending.written.0.wrapping_sub(self.unacknowledged.len() as u32))
    }

    fn reported_was_sent(&self) -> bool {
        let Sending { snd_una, snd_nxt, .. } = self.variables.sending;
        let ranges = &self.variables.reported;
        let are_apart = ranges.windows(2).all(|pair| pair[0].end.lt(pair[1].start));
        are_apart && ranges.iter().all(|range| range.start.ge(snd_una) && range.end.gt(range.start) && range.end.le(snd_nxt))
    }
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// The connection as it is. `None`: it is over, or about to be, or has yet to begin; or the program has borrowed some of its bytes, or has yet to decide
    /// about some.
    pub fn snapshot(&self) -> Option<Snapshot> {
        if self.orphaned { None } else { self.snapshot_even_if_closed() }
    }

    /// The same, also of one that the program has closed. (What is written down does not say so.)
    pub fn snapshot_even_if_closed(&self) -> Option<Snapshot> {
        let stands = STATES.contains(&self.state) && !self.syn_due && !self.reset_due && self.error.is_none();
        if !stands || self.recv.charged() != self.recv.len() || self.recv.undecided() > 0 {
            return None;
        }
        let (mut variables, mut held) = self.written();
        let mut unread = self.recv.to_vec();
        self.forget_as_a_mutant(&mut variables, &mut unread, &mut held);
        Some(Snapshot { variables, unacknowledged: self.send.to_vec(), unread, held })
    }

    /// Its variables, and the bytes that came out of order.
    fn written(&self) -> (Variables, Vec<u8>) {
        #[rustfmt::skip]
        let &Self {
            state, phase, tx_pending, fin_queued, peer_fin, read_shut, peer_exited, probe_due, push, more, held, retransmit_now, tail_probe, write_blocked, starved, syn_data,
            agreement, ecn, dupacks, retries, snd_una, snd_nxt, snd_wnd, snd_wnd_max, snd_wl1, snd_wl2, snd_small, recover, high_rxt, partially_acked, went_elsewhere, ref window,
            ref acks, ts_recent, ts_recent_known, ts_offset, ts_recent_at, last_rx, last_tx, last_data_tx, ref timers, ref rtt, ref congestion, ref send, ref reassembly,
            ref scoreboard, ref records, counters, challenge_at, stalled_since, persist_backoff, unanswered_probes, path_mss, oversized, soft_error, ref config,
            // One that begins, is over or that nobody has any more is not written down.
            syn_due: _, reset_due: _, orphaned: _, error: _, fast_open: _,
            // The ring has been told what newly happened, and tells the program all that it finds when it takes the connection.
            edges: _,
            // It follows from what both ends and the path take, and from the controller.
            mss: _, cwnd: _,
            // Beside the variables, or outside of the snapshot.
            recv: _, local_port: _, remote_port: _,
            #[cfg(feature = "marks")]
            marks: _,
        } = self;
        let (out_of_order, bytes) = reassembly.as_ref().map(|reassembly| reassembly.written()).unzip();
        let variables = Variables {
            state,
            agreement,
            ecn,
            path: Path { mss: path_mss, oversized },
            sending: Sending { snd_una, snd_nxt, written: send.end(), snd_small, snd_wl1, snd_wl2, snd_wnd, snd_wnd_max },
            window: window.clone(),
            acks: acks.clone(),
            clock: Clock { ts_offset, ts_recent, ts_recent_known, ts_recent_at },
            silence: Silence { last_rx, last_tx, last_data_tx, challenge_at, stalled_since, persist_backoff, unanswered_probes },
            timers: timers.clone(),
            rtt: rtt.clone(),
            congestion: self.congestion_awake().unwrap_or_else(|| congestion.clone()),
            loss: Loss { phase, recover, high_rxt, partially_acked, went_elsewhere, retransmit_now, tail_probe, dupacks, retries },
            reported: scoreboard.ranges().to_vec(),
            flight: records.written(),
            held: out_of_order,
            flags: Flags {
                fin_queued,
                peer_fin,
                read_shut,
                peer_exited,
                tx_pending,
                probe_due,
                push,
                more,
                held,
                write_blocked,
                starved,
                syn_data,
                soft_error,
            },
            options: SocketOptions::of(config),
            counters,
        };
        (variables, bytes.unwrap_or_default())
    }

    fn forget_as_a_mutant(&self, variables: &mut Variables, unread: &mut Vec<u8>, held: &mut Vec<u8>) {
        let is = |mutant| self.config.is(mutant);
        if is(Mutant::SnapshotLosesUnread) {
            unread.clear();
        }
        if is(Mutant::SnapshotForgetsHeld) {
            held.clear();
            variables.held = None;
        }
        if is(Mutant::SnapshotForgetsReported) {
            variables.reported.clear();
        }
        // (What came out of order lies in the window.)
        if is(Mutant::SnapshotForgetsWindow) && variables.held.is_none() {
            variables.window.adv = variables.window.nxt;
        }
        if is(Mutant::SnapshotForgetsTimers) {
            variables.timers = Timers::new();
        }
        if is(Mutant::SnapshotForgetsBackoff) {
            variables.rtt = variables.rtt.clone().without_backoff();
            (variables.loss.retries, variables.silence.persist_backoff) = (0, 0);
        }
        if is(Mutant::SnapshotForgetsPath) {
            variables.path = Path::default();
        }
        if is(Mutant::SnapshotForgetsCounters) {
            variables.counters = Counters::default();
        }
        variables.flags.read_shut &= !is(Mutant::SnapshotForgetsReadShut);
        variables.flags.more &= !is(Mutant::SnapshotForgetsMore);
    }
}

#[cfg(test)]
mod tests;
