//! What a snapshot consists of beside the parts that a connection has, too: in groups, each with what must hold of it.

use core::time::Duration;

use super::{STATES, VERSION, Variables};
use crate::error::Error;
use crate::flow::Counters;
use crate::mutants::Mutation;
use crate::tcp::acks::AckPolicy;
use crate::tcp::config::{Config, Keepalive};
use crate::tcp::congestion::{Algorithm, Selected};
use crate::tcp::connection::Phase;
use crate::tcp::connection::ecn::Ecn;
use crate::tcp::connection::tail::TailProbe;
use crate::tcp::fields::{Fields, LONGEST, SnapshotError};
use crate::tcp::handshake::Agreement;
use crate::tcp::records::Flight;
use crate::tcp::rtt::Rtt;
use crate::tcp::scoreboard::RANGES_MAX;
use crate::tcp::state::State;
use crate::tcp::timers::Timers;
use crate::tcp::window::ReceiveWindow;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// What was heard of why the peer may not be reached, unless the connection is over.
const SOFT_ERRORS: [Error; 2] = [Error::Refused, Error::HostUnreachable];
/// The most that is counted of what ends a connection when it comes to a few.
const COUNT_MAX: u32 = 1 << 16;

/// What is believed of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// The longest segment; the largest number if no path was found to carry less than the link.
    pub(super) mss: u16,
    pub(super) oversized: Option<SeqNumber>,
}

impl Default for Path {
    fn default() -> Self {
        Self { mss: u16::MAX, oversized: None }
    }
}

impl Path {
    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { mss, oversized } = self;
        fields.short(mss)?;
        fields.option(oversized, |fields, number| fields.number(number))
    }
}

/// The send side's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sending {
    pub(super) snd_una: SeqNumber,
    pub(super) snd_nxt: SeqNumber,
    /// Behind the last byte that was written.
    pub(super) written: SeqNumber,
    pub(super) snd_small: SeqNumber,
    pub(super) snd_wl1: SeqNumber,
    pub(super) snd_wl2: SeqNumber,
    pub(super) snd_wnd: u32,
    pub(super) snd_wnd_max: u32,
}

impl Sending {
    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { snd_una, snd_nxt, written, snd_small, snd_wl1, snd_wl2, snd_wnd, snd_wnd_max } = self;
        for number in [snd_una, snd_nxt, written, snd_small, snd_wl1, snd_wl2] {
            fields.number(number)?;
        }
        fields.word_at_most(snd_wnd, LONGEST as u32)?;
        fields.word_at_most(snd_wnd_max, LONGEST as u32)
    }
}

/// The timestamp clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// How far ours is before the host's: as that goes on, so does ours (RFC 7323 s5.4; a clock set back would have the peer drop what is sent).
    pub(super) ts_offset: u32,
    /// The peer's, and when it was heard.
    pub(super) ts_recent: u32,
    pub(super) ts_recent_known: bool,
    pub(super) ts_recent_at: Instant,
}

impl Clock {
    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { ts_offset, ts_recent, ts_recent_known, ts_recent_at } = self;
        fields.word(ts_offset)?;
        fields.word(ts_recent)?;
        fields.flag(ts_recent_known)?;
        fields.instant(ts_recent_at)
    }
}

/// Since when nothing was heard, or said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) last_rx: Instant,
    pub(super) last_tx: Instant,
    pub(super) last_data_tx: Instant,
    pub(super) challenge_at: Instant,
    pub(super) stalled_since: Instant,
    pub(super) persist_backoff: u8,
    pub(super) unanswered_probes: u32,
}

impl Silence {
    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { last_rx, last_tx, last_data_tx, challenge_at, stalled_since, persist_backoff, unanswered_probes } = self;
        for instant in [last_rx, last_tx, last_data_tx, challenge_at, stalled_since] {
            fields.instant(instant)?;
        }
        fields.byte(persist_backoff)?;
        fields.word_at_most(unanswered_probes, COUNT_MAX)
    }
}

/// What is thought to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) phase: Phase,
    pub(super) recover: SeqNumber,
    pub(super) high_rxt: SeqNumber,
    pub(super) partially_acked: bool,
    pub(super) went_elsewhere: bool,
    pub(super) retransmit_now: bool,
    pub(super) tail_probe: TailProbe,
    pub(super) dupacks: u16,
    pub(super) retries: u32,
}

impl Loss {
    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { phase, recover, high_rxt, partially_acked, went_elsewhere, retransmit_now, tail_probe, dupacks, retries } = self;
        fields.one_of(phase, &[Phase::Open, Phase::Recovery, Phase::Loss])?;
        fields.number(recover)?;
        fields.number(high_rxt)?;
        fields.flag(partially_acked)?;
        fields.flag(went_elsewhere)?;
        fields.flag(retransmit_now)?;
        fields.one_of(tail_probe, &TailProbe::ALL)?;
        fields.short(dupacks)?;
        fields.word_at_most(retries, COUNT_MAX)
    }

    /// A recovery ends in what is in flight, and so does what was sent again in it.
    pub(super) fn fits(&self, una: SeqNumber, nxt: SeqNumber) -> bool {
        self.phase == Phase::Open || (self.recover.gt(una) && self.recover.le(nxt) && self.high_rxt.le(nxt))
    }
}

/// What the program did, what it waits for, and what is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) fin_queued: bool,
    pub(super) peer_fin: bool,
    pub(super) read_shut: bool,
    pub(super) peer_exited: bool,
    pub(super) tx_pending: bool,
    pub(super) probe_due: bool,
    pub(super) push: bool,
    pub(super) more: bool,
    pub(super) held: bool,
    pub(super) write_blocked: bool,
    pub(super) starved: u8,
    pub(super) syn_data: bool,
    pub(super) soft_error: Option<Error>,
}

impl Flags {
    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        #[rustfmt::skip]
        let Self {
            fin_queued, peer_fin, read_shut, peer_exited, tx_pending, probe_due, push, more, held, write_blocked, starved, syn_data, soft_error,
        } = self;
        for flag in [fin_queued, peer_fin, read_shut, peer_exited, tx_pending, probe_due, push, more, held, write_blocked, syn_data] {
            fields.flag(flag)?;
        }
        fields.byte(starved)?;
        let (mut is_there, mut error) = (soft_error.is_some(), soft_error.unwrap_or(SOFT_ERRORS[0]));
        fields.flag(&mut is_there)?;
        fields.one_of(&mut error, &SOFT_ERRORS)?;
        *soft_error = is_there.then_some(error);
        Ok(())
    }

    /// The ends of both streams are where the state says.
    pub(super) fn fit(&self, state: State) -> bool {
        let peer_ended = matches!(state, State::CloseWait | State::Closing | State::LastAck);
        let ended = matches!(state, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck);
        self.fin_queued == ended && self.peer_fin == peer_ended && (!self.peer_exited || state == State::CloseWait)
    }
}

/// What a program has set of a connection (setsockopt). The rest of the configuration is its ring's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketOptions {
    pub(super) nodelay: bool,
    pub(super) cork: bool,
    pub(super) quickack: bool,
    pub(super) linger_zero: bool,
    pub(super) keepalive: Option<Keepalive>,
    pub(super) user_timeout: Option<Duration>,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) mss_user: Option<u16>,
    pub(super) rcvbuf: Option<usize>,
    pub(super) sndbuf: Option<usize>,
    pub(super) congestion: Algorithm,
}

impl SocketOptions {
    pub(super) fn of(config: &Config) -> Self {
        #[rustfmt::skip]
        let &Config {
            nodelay, cork, quickack, linger_zero, keepalive, user_timeout, ttl, tos, mss_user, rcvbuf, sndbuf, congestion,
            // The device's.
            mss_max: _, family: _, gather_max: _, tso_max: _, urgent_waits: _, ecn: _,
            // The host's, for all of its connections.
            rcvbuf_initial: _, rcvbuf_max: _, sndbuf_initial: _, sndbuf_max: _, syn_retries: _, retries: _, timestamps: _, sack: _, window_scaling: _,
            time_wait: _, fin_wait2: _, black_hole_detection: _, delayed_ack: _,
            // A listener's.
            reuse_port: _, syn_rate_max: _, fast_open: _,
            // Of what was received; whoever takes the socket over has it set there.
            arrival_times: _,
            #[cfg(feature = "mutants")]
            mutant: _,
        } = config;
        Self { nodelay, cork, quickack, linger_zero, keepalive, user_timeout, ttl, tos, mss_user, rcvbuf, sndbuf, congestion }
    }

    /// `base`, with these options.
    pub(super) fn over(&self, base: &Config) -> Config {
        let Self { nodelay, cork, quickack, linger_zero, keepalive, user_timeout, ttl, tos, mss_user, rcvbuf, sndbuf, congestion } = *self;
        #[rustfmt::skip]
        let config = Config {
            nodelay, cork, quickack, linger_zero, keepalive, user_timeout, ttl, tos, mss_user, rcvbuf, sndbuf, congestion, ..base.clone()
        };
        config
    }

    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { nodelay, cork, quickack, linger_zero, keepalive, user_timeout, ttl, tos, mss_user, rcvbuf, sndbuf, congestion } = self;
        for flag in [nodelay, cork, quickack, linger_zero] {
            fields.flag(flag)?;
        }
        fields.option(keepalive, |fields, Keepalive { idle, interval, count }| {
            fields.duration(idle)?;
            fields.duration(interval)?;
            fields.word(count)
        })?;
        fields.option(user_timeout, |fields, timeout| fields.duration(timeout))?;
        fields.byte(ttl)?;
        fields.byte(tos)?;
        fields.option(mss_user, |fields, mss| fields.short(mss))?;
        fields.option(rcvbuf, |fields, len| fields.size(len))?;
        fields.option(sndbuf, |fields, len| fields.size(len))?;
        fields.one_of(congestion, &Algorithm::ALL)
    }
}

fn walk_counters(counters: &mut Counters, fields: &mut impl Fields) -> Result<(), SnapshotError> {
    let Counters { rx_packets, rx_bytes, rx_drops, tx_packets, tx_bytes, tx_drops, retransmissions, retransmitted_bytes, tx_dummies } =
        counters;
    for count in [rx_packets, rx_bytes, rx_drops, tx_packets, tx_bytes, tx_drops, retransmissions, retransmitted_bytes, tx_dummies] {
        fields.count_of(count)?;
    }
    Ok(())
}

/// Walks over the layout's number, everything in order, and how long the queues behind are.
pub(super) fn walk_all(variables: &mut Variables, lens: &mut [u32; 3], fields: &mut impl Fields) -> Result<(), SnapshotError> {
    let mut version = VERSION;
    fields.word(&mut version)?;
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    variables.walk(fields)?;
    lens.iter_mut().try_for_each(|len| fields.word(len))
}

impl Variables {
    /// What everything is read into.
    pub(super) fn blank() -> Self {
        let open = SeqNumber(0);
        Self {
            state: State::Closed,
            agreement: Agreement::offer(&Config::default(), false),
            ecn: Ecn::default(),
            path: Path::default(),
            sending: Sending::default(),
            window: ReceiveWindow::new(Instant::ZERO, (0, 0)),
            acks: AckPolicy::new(),
            clock: Clock::default(),
            silence: Silence::default(),
            timers: Timers::new(),
            rtt: Rtt::new(),
            congestion: Selected::before_the_handshake(Algorithm::default(), usize::from(Config::MSS_MIN), Mutation::HEALTHY),
            loss: Loss {
                phase: Phase::Open,
                recover: open,
                high_rxt: open,
                partially_acked: false,
                went_elsewhere: false,
                retransmit_now: false,
                tail_probe: TailProbe::None,
                dupacks: 0,
                retries: 0,
            },
            reported: Vec::new(),
            flight: Flight::default(),
            held: None,
            flags: Flags::default(),
            options: SocketOptions::default(),
            counters: Counters::default(),
        }
    }

    fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        #[rustfmt::skip]
        let Self {
            state, agreement, ecn, path, sending, window, acks, clock, silence, timers, rtt, congestion, loss, reported, flight, held, flags, options, counters,
        } = self;
        fields.one_of(state, &STATES)?;
        agreement.walk(fields)?;
        ecn.walk(fields)?;
        path.walk(fields)?;
        sending.walk(fields)?;
        window.walk(fields)?;
        acks.walk(fields)?;
        clock.walk(fields)?;
        silence.walk(fields)?;
        timers.walk(fields)?;
        rtt.walk(fields)?;
        congestion.walk(fields)?;
        loss.walk(fields)?;
        fields.ranges(reported, RANGES_MAX)?;
        flight.walk(fields)?;
        fields.option(held, |fields, held| held.walk(fields))?;
        flags.walk(fields)?;
        options.walk(fields)?;
        walk_counters(counters, fields)
    }
}
