//! A connection as bytes, for a ring of another process: what the two ends have agreed on and how far both streams got, with the bytes of
//! both queues. What can be found out anew begins anew: the congestion window, which segments of those on their way have arrived, bytes
//! that came out of order.

use core::time::Duration;

use super::path::PATH_MTU_TIME;
use super::{Config, Connection, Opening, State};
use crate::device::{RxBuffer, TxBuffer};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::tcp::handshake::Agreement;
use crate::tcp::rtt::Rtt;
use crate::tcp::send_buffer::SendBuffer;
use crate::tcp::timers::Timer;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// The layout's number, first of all.
const VERSION: u32 = 1;

const TIMESTAMPS: u32 = 1;
const SACK: u32 = 2;
const SCALING: u32 = 4;
const FIN_QUEUED: u32 = 8;
const PEER_FIN: u32 = 16;
const READ_SHUT: u32 = 32;

/// RFC 7323 s2.3.
const SCALE_MAX: u32 = 14;

/// A connection between two processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    state: State,
    flags: u32,
    peer_mss: u16,
    path_mss: u16,
    send_scale: u8,
    receive_scale: u8,
    snd_una: SeqNumber,
    snd_nxt: SeqNumber,
    /// Behind the last byte that was written.
    written: SeqNumber,
    snd_small: SeqNumber,
    snd_wl1: SeqNumber,
    snd_wl2: SeqNumber,
    snd_wnd: u32,
    snd_wnd_max: u32,
    rcv_nxt: SeqNumber,
    rcv_adv: SeqNumber,
    rcv_wup: SeqNumber,
    /// What our timestamp clock said.
    clock: u32,
    ts_recent: u32,
    ts_recent_age_ms: u32,
    srtt_ns: u64,
    var_ns: u64,
    unacknowledged: Vec<u8>,
    unread: Vec<u8>,
}

/// The states in which a connection can be written down.
const STATES: [State; 6] = [State::Established, State::FinWait1, State::FinWait2, State::CloseWait, State::Closing, State::LastAck];

impl Snapshot {
    /// The bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let state = STATES.iter().position(|state| *state == self.state).unwrap_or(0) as u32;
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (high, low) = (|word: u64| (word >> 32) as u32, |word: u64| word as u32);
        let words = [
            VERSION,
            state,
            self.flags,
            u32::from(self.peer_mss),
            u32::from(self.path_mss),
            u32::from(self.send_scale),
            u32::from(self.receive_scale),
            self.snd_una.0,
            self.snd_nxt.0,
            self.written.0,
            self.snd_small.0,
            self.snd_wl1.0,
            self.snd_wl2.0,
            self.snd_wnd,
            self.snd_wnd_max,
            self.rcv_nxt.0,
            self.rcv_adv.0,
            self.rcv_wup.0,
            self.clock,
            self.ts_recent,
            self.ts_recent_age_ms,
            low(self.srtt_ns),
            high(self.srtt_ns),
            low(self.var_ns),
            high(self.var_ns),
            len(&self.unacknowledged),
            len(&self.unread),
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(&self.unacknowledged);
        bytes.extend_from_slice(&self.unread);
        bytes
    }

    /// Reads what [`Snapshot::to_bytes`] wrote. `None`: it is not that, or no connection can be so.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.word()? != VERSION {
            return None;
        }
        let mut snapshot = Self {
            state: *STATES.get(reader.word()? as usize)?,
            flags: reader.word()?,
            peer_mss: u16::try_from(reader.word()?).ok().filter(|mss| *mss >= Config::MSS_MIN)?,
            path_mss: u16::try_from(reader.word()?).ok()?,
            send_scale: reader.scale()?,
            receive_scale: reader.scale()?,
            snd_una: reader.number()?,
            snd_nxt: reader.number()?,
            written: reader.number()?,
            snd_small: reader.number()?,
            snd_wl1: reader.number()?,
            snd_wl2: reader.number()?,
            snd_wnd: reader.word()?,
            snd_wnd_max: reader.word()?,
            rcv_nxt: reader.number()?,
            rcv_adv: reader.number()?,
            rcv_wup: reader.number()?,
            clock: reader.word()?,
            ts_recent: reader.word()?,
            ts_recent_age_ms: reader.word()?,
            srtt_ns: reader.long()?,
            var_ns: reader.long()?,
            unacknowledged: Vec::new(),
            unread: Vec::new(),
        };
        let (unacknowledged, unread) = (reader.word()? as usize, reader.word()? as usize);
        let (first, second) = reader.0.split_at_checked(unacknowledged)?;
        if second.len() != unread {
            return None;
        }
        (snapshot.unacknowledged, snapshot.unread) = (first.to_vec(), second.to_vec());
        snapshot.is_consistent().then_some(snapshot)
    }

    /// Whether the numbers can be a connection's: what was sent is what was written, and a FIN behind it if there is one.
    fn is_consistent(&self) -> bool {
        let fin = u32::from(self.flags & FIN_QUEUED != 0);
        let peer_fin = self.flags & PEER_FIN != 0;
        let acknowledged_fin = self.state == State::FinWait2;
        let begins = SeqNumber(self.written.0.wrapping_sub(self.unacknowledged.len() as u32));
        (if acknowledged_fin { begins + 1usize == self.snd_una && self.unacknowledged.is_empty() } else { begins == self.snd_una })
            && self.snd_nxt.ge(self.snd_una)
            && self.snd_nxt.le(SeqNumber(self.written.0.wrapping_add(fin)))
            && self.rcv_adv.ge(self.rcv_nxt)
            && self.rcv_adv.since(self.rcv_nxt) <= 65_536 << SCALE_MAX
            && (fin == 1) == matches!(self.state, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck)
            && peer_fin == matches!(self.state, State::CloseWait | State::Closing | State::LastAck)
            && self.snd_wnd <= 65_535 << SCALE_MAX
            && self.snd_wnd_max <= 65_535 << SCALE_MAX
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from(self.word()?) | u64::from(self.word()?) << 32)
    }

    fn number(&mut self) -> Option<SeqNumber> {
        self.word().map(SeqNumber)
    }

    fn scale(&mut self) -> Option<u8> {
        self.word().filter(|scale| *scale <= SCALE_MAX).map(|scale| scale as u8)
    }
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// The connection as it is. `None`: it is over, or about to be; or the program has borrowed some of its bytes.
    pub fn snapshot(&self, now: Instant) -> Option<Snapshot> {
        let is_whole = self.error.is_none() && !self.orphaned && self.recv.charged() == self.recv.len() && self.recv.undecided() == 0;
        if !is_whole || !STATES.contains(&self.state) {
            return None;
        }
        let flag = |set, flag| if set { flag } else { 0 };
        let bound = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        Some(Snapshot {
            state: self.state,
            flags: flag(self.agreement.timestamps, TIMESTAMPS)
                | flag(self.agreement.sack, SACK)
                | flag(self.agreement.scaling, SCALING)
                | flag(self.fin_queued, FIN_QUEUED)
                | flag(self.peer_fin, PEER_FIN)
                | flag(self.read_shut && !self.config.is(Mutant::SnapshotForgetsReadShut), READ_SHUT),
            peer_mss: self.agreement.peer_mss,
            path_mss: self.path_mss,
            send_scale: self.agreement.send_scale,
            receive_scale: self.agreement.receive_scale,
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt,
            written: self.send.end(),
            snd_small: self.snd_small,
            snd_wl1: self.snd_wl1,
            snd_wl2: self.snd_wl2,
            snd_wnd: bound(self.snd_wnd),
            snd_wnd_max: bound(self.snd_wnd_max),
            rcv_nxt: self.window.nxt,
            rcv_adv: if self.config.is(Mutant::SnapshotForgetsWindow) { self.window.nxt } else { self.window.adv },
            rcv_wup: self.window.wup,
            clock: self.timestamp(now),
            ts_recent: self.ts_recent,
            ts_recent_age_ms: u32::try_from(now.since(self.ts_recent_at).as_millis()).unwrap_or(u32::MAX),
            srtt_ns: self.rtt.srtt().as_nanos() as u64,
            var_ns: self.rtt.var().as_nanos() as u64,
            unacknowledged: self.send.to_vec(),
            unread: if self.config.is(Mutant::SnapshotLosesUnread) { Vec::new() } else { self.recv.to_vec() },
        })
    }

    /// A connection that was written down elsewhere, at rest: it goes on with `go_on_elsewhere`, or when its peer is heard. `alloc`
    /// gives buffers for what is still to be sent.
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
        let clock = if config.is(Mutant::ResumeRestartsTimestamps) { 0 } else { from.clock };
        let opening = Opening { iss: from.snd_una, timestamp_offset: clock.wrapping_sub(now.as_millis() as u32) };
        let mut connection = Self::new(now, config, (local_port, remote_port), opening, from.state);
        let has = |flag| from.flags & flag != 0;
        connection.syn_due = false;
        connection.agreement = Agreement {
            peer_mss: from.peer_mss,
            send_scale: from.send_scale,
            receive_scale: from.receive_scale,
            scaling: has(SCALING),
            timestamps: has(TIMESTAMPS),
            sack: has(SACK),
        };
        (connection.fin_queued, connection.peer_fin, connection.read_shut) = (has(FIN_QUEUED), has(PEER_FIN), has(READ_SHUT));
        (connection.snd_nxt, connection.snd_small) = (from.snd_nxt, from.snd_small);
        (connection.snd_wl1, connection.snd_wl2) = (from.snd_wl1, from.snd_wl2);
        (connection.snd_wnd, connection.snd_wnd_max) = (from.snd_wnd as usize, from.snd_wnd_max as usize);
        connection.window.resume(from.rcv_nxt, from.rcv_adv, from.rcv_wup, from.receive_scale);
        connection.ts_recent = from.ts_recent;
        let age = Duration::from_millis(u64::from(from.ts_recent_age_ms));
        connection.ts_recent_at = Instant::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64));
        connection.path_mss = from.path_mss;
        connection.rtt = Rtt::known(from.srtt_ns, from.var_ns);
        connection.update_mss();
        let begins = SeqNumber(from.written.0.wrapping_sub(from.unacknowledged.len() as u32));
        connection.send = SendBuffer::new(begins);
        let bytes = std::io::IoSlice::new(&from.unacknowledged);
        if connection.send.write(&[bytes], usize::MAX, alloc) < from.unacknowledged.len() {
            return Err(Error::NoBuffers);
        }
        connection.recv.push_bytes(&from.unread);
        connection.start_keepalive(now);
        if connection.path_mss < u16::MAX {
            // What was believed of the path is believed as long as if it had just been heard (RFC 1191 s6.3).
            connection.timers.set(Timer::PathMtu, now + PATH_MTU_TIME);
        }
        // A writer that waits for room waits here now.
        connection.write_blocked = !connection.is_writable();
        // It says nothing by itself: until the peer knows where it is, a peer would refuse what comes from there.
        connection.tx_pending = false;
        Ok(connection)
    }

    /// One of the two ends is elsewhere from now on, and each knows where the other is: what was on its way is lost, and is sent again without
    /// waiting for the timer; and what was received is told again.
    pub(crate) fn go_on_elsewhere(&mut self, now: Instant) {
        if !self.state.is_synchronized() || self.state == State::TimeWait {
            return;
        }
        if self.in_flight() > 0 {
            self.enter_loss();
            self.timers.set(Timer::Retransmit, now + self.rtt.rto());
        }
        self.ack_now();
    }
}

#[cfg(test)]
mod tests;
