//! What of a connection another implementation of TCP can take over, and what it can give back: the variables of RFC 9293 s3.3.1, what both ends
//! agreed on, and the bytes. A snapshot has more (timers, congestion control, what was reported), which only this stack understands.

use core::time::Duration;

use super::parts::{Clock, Flags, Loss, Path, Sending, Silence, SocketOptions};
use super::{STATES, Snapshot, SnapshotError, Variables};
use crate::flow::Counters;
use crate::tcp::acks::AckPolicy;
use crate::tcp::config::Config;
use crate::tcp::congestion::{Beginning, Reduction};
use crate::tcp::connection::Phase;
use crate::tcp::connection::ecn::Ecn;
use crate::tcp::connection::tail::TailProbe;
use crate::tcp::handshake::Agreement;
use crate::tcp::records::Flight;
use crate::tcp::rtt::Rtt;
use crate::tcp::state::State;
use crate::tcp::timers::{Timer, Timers};
use crate::tcp::window::ReceiveWindow;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// A transmission control block (RFC 9293 s3.3.1), with both queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlBlock {
    /// One in which a connection can be written down: synchronised, and not TIME-WAIT.
    pub state: State,
    /// The largest segment that the peer takes, in bytes, options included: what its SYN said.
    pub peer_mss: u16,
    /// The shift counts of window scaling: of the windows that the peer announces, and of ours. `None`: not in force.
    pub scales: Option<(u8, u8)>,
    /// SACK is in force.
    pub sack: bool,
    /// Our timestamp clock at [`ControlBlock::at`]; `None`: timestamps are not in force.
    pub timestamp: Option<u32>,
    /// The peer's timestamp that is to be echoed; `None`: not known.
    pub ts_recent: Option<u32>,
    /// When the clock read so.
    pub at: Instant,
    /// The first number that is not acknowledged; behind our FIN in [`State::FinWait2`].
    pub snd_una: SeqNumber,
    /// Behind all that was ever sent, our FIN included.
    pub snd_nxt: SeqNumber,
    /// The peer's window in bytes, the largest that it ever announced, and the number of the segment that brought it last.
    pub snd_wnd: u32,
    /// See [`ControlBlock::snd_wnd`].
    pub snd_wnd_max: u32,
    /// See [`ControlBlock::snd_wnd`].
    pub snd_wl1: SeqNumber,
    /// The number that is expected next; behind the peer's FIN if that was received.
    pub rcv_nxt: SeqNumber,
    /// What our last segment acknowledged, and the right edge of the window that it announced.
    pub rcv_wup: SeqNumber,
    /// See [`ControlBlock::rcv_wup`].
    pub rcv_adv: SeqNumber,
    /// What was written and not acknowledged, sent or not.
    pub unacknowledged: Vec<u8>,
    /// What was received in order and not read.
    pub unread: Vec<u8>,
    /// What was received out of order: where each run of bytes begins, and the bytes. In order, disjoint.
    pub out_of_order: Vec<(SeqNumber, Vec<u8>)>,
    /// Where the peer's stream ends, if its FIN came out of order.
    pub early_fin: Option<SeqNumber>,
    /// The round-trip time and its mean deviation; zero: not known.
    pub rtt: (Duration, Duration),
    /// SO_RCVBUF and SO_SNDBUF in bytes, if the program set them.
    pub buffers: (Option<usize>, Option<usize>),
    /// TCP_MAXSEG, if the program set it.
    pub mss_user: Option<u16>,
}

impl ControlBlock {
    /// Whether the peer's FIN was received, and all before it.
    pub const fn peer_ended(&self) -> bool {
        matches!(self.state, State::CloseWait | State::Closing | State::LastAck)
    }

    /// Whether our FIN was sent.
    pub fn fin_sent(&self) -> bool {
        let in_flight = self.snd_nxt.since(self.snd_una);
        self.state == State::FinWait2 || (self.state.has_ended() && in_flight > self.unacknowledged.len())
    }

    /// The bytes that were sent and not acknowledged, and those that were not sent.
    pub fn sent_and_unsent(&self) -> (&[u8], &[u8]) {
        let sent = self.snd_nxt.since(self.snd_una).min(self.unacknowledged.len());
        self.unacknowledged.split_at(sent)
    }

    /// Our timestamp clock at `now`: in milliseconds, as [`ControlBlock::timestamp`] was.
    pub fn timestamp_at(&self, now: Instant) -> Option<u32> {
        let passed = (now.as_millis() as u32).wrapping_sub(self.at.as_millis() as u32);
        self.timestamp.map(|timestamp| timestamp.wrapping_add(passed))
    }
}

impl Snapshot {
    /// What another implementation of TCP needs of it, with the timestamp clock as it is at `now`.
    pub fn control_block(&self, now: Instant) -> ControlBlock {
        let Self { variables, unacknowledged, unread, held } = self;
        let Variables { state, agreement, sending, window, clock, rtt, options, .. } = variables;
        let timestamp = (now.as_millis() as u32).wrapping_add(clock.ts_offset);
        let mut held = held.as_slice();
        let mut out_of_order = Vec::new();
        for block in variables.held.iter().flat_map(|held| &held.blocks) {
            let Some((its, rest)) = held.split_at_checked(block.end.since(block.start)) else { break };
            held = rest;
            out_of_order.push((block.start, its.to_vec()));
        }
        ControlBlock {
            state: *state,
            peer_mss: agreement.peer_mss,
            scales: agreement.scaling.then_some((agreement.send_scale, agreement.receive_scale)),
            sack: agreement.sack,
            timestamp: agreement.timestamps.then_some(timestamp),
            ts_recent: (agreement.timestamps && clock.ts_recent_known).then_some(clock.ts_recent),
            at: now,
            snd_una: sending.snd_una,
            snd_nxt: sending.snd_nxt,
            snd_wnd: sending.snd_wnd,
            snd_wnd_max: sending.snd_wnd_max,
            snd_wl1: sending.snd_wl1,
            rcv_nxt: window.nxt,
            rcv_wup: window.wup,
            rcv_adv: window.adv,
            unacknowledged: unacknowledged.clone(),
            unread: unread.clone(),
            out_of_order,
            early_fin: variables.held.as_ref().and_then(|held| held.fin),
            rtt: (rtt.srtt(), rtt.var()),
            buffers: (options.rcvbuf, options.sndbuf),
            mss_user: options.mss_user,
        }
    }

    /// A connection that another implementation of TCP had, for [`crate::ring::Ring::adopt_snapshot`] and then [`crate::ring::Ring::tcp_retarget`]. What that one
    /// does not tell begins anew: congestion control, timers, what was reported of what is in flight; what arrived out of order there was dropped. `config`: the
    /// options that the program set.
    ///
    /// # Errors
    /// [`SnapshotError::Inconsistent`]: no connection can be so.
    pub fn from_control_block(block: &ControlBlock, now: Instant, config: &Config) -> Result<Self, SnapshotError> {
        if !STATES.contains(&block.state) {
            return Err(SnapshotError::Inconsistent);
        }
        let agreement = Agreement {
            peer_mss: block.peer_mss,
            send_scale: block.scales.map_or(0, |scales| scales.0),
            receive_scale: block.scales.map_or(0, |scales| scales.1),
            scaling: block.scales.is_some(),
            timestamps: block.timestamp.is_some(),
            sack: block.sack,
            // (A kernel forgets it of a connection that it gives away or takes: its TCP_REPAIR has no word for it.)
            ecn: false,
            echoes: false,
        };
        let variables = Variables {
            state: block.state,
            agreement,
            ecn: Ecn::default(),
            path: Path::default(),
            sending: block.sending(),
            window: block.window(now, config, agreement.receive_scale),
            acks: AckPolicy::new(),
            clock: Clock {
                ts_offset: block.timestamp_at(now).unwrap_or(0).wrapping_sub(now.as_millis() as u32),
                ts_recent: block.ts_recent.unwrap_or(0),
                ts_recent_known: block.ts_recent.is_some(),
                ts_recent_at: now,
            },
            silence: Silence { last_rx: now, last_tx: now, last_data_tx: now, stalled_since: now, ..Silence::default() },
            timers: timers(now, config),
            rtt: Rtt::known(block.rtt),
            congestion: config.congestion.begin(&Beginning {
                now,
                mss: u64::from(block.peer_mss.min(config.mss_announced())),
                sack: block.sack,
                reduction: if block.sack { Reduction::Proportional } else { Reduction::AtOnce },
                ..Beginning::default()
            }),
            loss: Loss {
                phase: Phase::Open,
                recover: block.snd_una,
                high_rxt: block.snd_una,
                partially_acked: false,
                went_elsewhere: false,
                retransmit_now: false,
                tail_probe: TailProbe::None,
                dupacks: 0,
                retries: 0,
            },
            reported: Vec::new(),
            flight: Flight::of_unknown((block.snd_una, block.snd_nxt), now),
            held: None,
            flags: Flags { fin_queued: block.state.has_ended(), peer_fin: block.peer_ended(), tx_pending: true, ..Flags::default() },
            options: SocketOptions::of(config),
            counters: Counters::default(),
        };
        let snapshot = Self { variables, unacknowledged: block.unacknowledged.clone(), unread: block.unread.clone(), held: Vec::new() };
        if snapshot.is_consistent() { Ok(snapshot) } else { Err(SnapshotError::Inconsistent) }
    }
}

impl ControlBlock {
    fn sending(&self) -> Sending {
        let Self { snd_una, snd_nxt, snd_wl1, .. } = *self;
        let acknowledged_fin = usize::from(self.state == State::FinWait2);
        Sending {
            snd_una,
            snd_nxt,
            written: snd_una + self.unacknowledged.len() - acknowledged_fin,
            snd_small: snd_una,
            snd_wl1,
            snd_wl2: snd_una,
            snd_wnd: self.snd_wnd,
            snd_wnd_max: self.snd_wnd_max,
        }
    }

    fn window(&self, now: Instant, config: &Config, scale: u8) -> ReceiveWindow {
        let mut window = ReceiveWindow::new(now, config.receive_limits());
        (window.nxt, window.wup, window.scale) = (self.rcv_nxt, self.rcv_wup, scale);
        window.adv = self.rcv_adv.max(self.rcv_nxt);
        window
    }
}

fn timers(now: Instant, config: &Config) -> Timers {
    let mut timers = Timers::new();
    if let Some(keepalive) = &config.keepalive {
        timers.set(Timer::Keepalive, now + keepalive.idle);
    }
    timers
}

#[cfg(test)]
mod tests;
