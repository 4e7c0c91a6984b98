//! A sender as TCP with SACK would be: each segment is acknowledged, each transmission has a record.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use ringway_stack::Instant;
use ringway_stack::tcp::congestion::{
    Ack, Cause, Congestion, CongestionControl, Idle, Lost, Phase, RateSampler, Recovered, Report, Selected, SendRecord, Sending, Supply,
    Timeout,
};

pub(crate) const MSS: u64 = 1448;
/// A transmission is lost when one that came so many later has arrived (RFC 5681 s3.2, by order of transmission as RFC 8985).
const REORDERING: u64 = 3;
const RTO_MIN: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    InFlight,
    Delivered,
    Lost,
}

struct Transmission {
    segment: u64,
    record: SendRecord,
    fate: Fate,
    again: bool,
}

/// What the program has to send.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    Endless,
    /// A segment each so often.
    Every(Duration),
    Nothing,
}

pub(crate) struct Flow {
    pub(crate) control: Selected,
    sampler: RateSampler,
    program: Program,
    written: u64,
    next_write: Instant,
    sent: VecDeque<Transmission>,
    /// The number of the first one in `sent`.
    first_id: u64,
    /// Which segments from `una` on have arrived.
    arrived: VecDeque<bool>,
    /// Segments, not bytes.
    una: u64,
    nxt: u64,
    to_resend: BTreeSet<u64>,
    in_flight: u64,
    sacked: u64,
    phase: Phase,
    recover: u64,
    blocked_at: Option<u64>,
    srtt: Duration,
    rttvar: Duration,
    pub(crate) min_rtt: Option<Duration>,
    rto_at: Option<Instant>,
    backoff: u32,
    last_sent: Instant,
    next_send: Instant,
    pub(crate) delivered: u64,
    pub(crate) transmissions: u64,
    pub(crate) timeouts: u64,
    pub(crate) recoveries: u64,
}

impl Flow {
    pub(crate) fn new(control: Selected, start: Instant) -> Self {
        Self {
            control,
            sampler: RateSampler::new(),
            program: Program::Endless,
            written: 0,
            next_write: start,
            sent: VecDeque::new(),
            first_id: 0,
            arrived: VecDeque::new(),
            una: 0,
            nxt: 0,
            to_resend: BTreeSet::new(),
            in_flight: 0,
            sacked: 0,
            phase: Phase::Open,
            recover: 0,
            blocked_at: None,
            srtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            min_rtt: None,
            rto_at: None,
            backoff: 0,
            last_sent: start,
            next_send: start,
            delivered: 0,
            transmissions: 0,
            timeouts: 0,
            recoveries: 0,
        }
    }

    fn flight(&self) -> u64 {
        (self.nxt - self.una) * MSS
    }

    fn unsent(&self) -> u64 {
        match self.program {
            Program::Endless => u64::MAX,
            _ => self.written.saturating_sub(self.nxt),
        }
    }

    fn check_supply(&mut self) {
        let cwnd = self.control.cwnd();
        let to_resend = self.to_resend.len() as u64;
        self.sampler.check(&Supply { unsent: self.unsent(), pending: 0, in_flight: self.in_flight, cwnd, to_resend });
    }

    /// The program has more to send, or nothing more.
    pub(crate) fn let_program(&mut self, program: Program, now: Instant) {
        self.check_supply();
        (self.program, self.next_write, self.written) = (program, now, self.nxt);
    }

    /// The program writes what it has by now.
    fn write(&mut self, now: Instant) {
        let Program::Every(interval) = self.program else { return self.next_write = now };
        while self.next_write <= now {
            self.check_supply();
            self.written = self.written.max(self.nxt) + 1;
            self.next_write += interval;
        }
    }

    /// A transmission, if one may go now: its number.
    pub(crate) fn send(&mut self, now: Instant) -> Option<u64> {
        self.write(now);
        let has_data = !self.to_resend.is_empty() || self.unsent() > 0;
        if !has_data || now < self.next_send {
            return None;
        }
        self.restart_after_idle(now);
        if !self.fits() {
            return None;
        }
        let again = self.to_resend.pop_first();
        let segment = again.unwrap_or(self.nxt);
        let app_limited = self.sampler.is_app_limited();
        self.control.on_sending(&Sending { now, bytes: MSS, in_flight: self.in_flight, app_limited });
        let record = self.sampler.on_sent(now, MSS, self.in_flight);
        if again.is_none() {
            self.nxt += 1;
            self.arrived.push_back(false);
        }
        self.sent.push_back(Transmission { segment, record, fate: Fate::InFlight, again: again.is_some() });
        self.in_flight += MSS;
        self.transmissions += 1;
        self.last_sent = now;
        if !self.fits() {
            self.blocked_at = Some(self.nxt);
        }
        if let Some(rate) = self.control.pacing_rate() {
            self.next_send = self.next_send.max(now) + Duration::from_nanos(MSS * 1_000_000_000 / rate);
        }
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rto());
        }
        Some(self.first_id + self.sent.len() as u64 - 1)
    }

    /// Whether the window has room. (One segment always goes.)
    fn fits(&self) -> bool {
        self.in_flight == 0 || self.in_flight + MSS <= self.control.cwnd()
    }

    fn restart_after_idle(&mut self, now: Instant) {
        let silence = now.since(self.last_sent);
        if self.flight() == 0 && silence > self.rto() {
            self.control.on_idle(&Idle { now, silence });
        }
    }

    /// When it does something by itself.
    pub(crate) fn wakes_at(&self) -> Instant {
        let paced = if self.fits() && (self.unsent() > 0 || !self.to_resend.is_empty()) { self.next_send } else { Instant::MAX };
        let write = if matches!(self.program, Program::Every(_)) { self.next_write } else { Instant::MAX };
        paced.min(write).min(self.rto_at.unwrap_or(Instant::MAX))
    }

    fn rto(&self) -> Duration {
        let rto = if self.srtt.is_zero() { Duration::from_secs(1) } else { self.srtt + (4 * self.rttvar).max(RTO_MIN) };
        rto * (1 << self.backoff.min(6))
    }

    /// An acknowledgment of transmissions comes, with whether they were marked.
    pub(crate) fn on_ack(&mut self, now: Instant, ids: &[(u64, bool)]) {
        self.check_supply();
        let (una_before, flight_most) = (self.una, self.flight());
        let (mut rtt, mut delivered, mut marked, mut newest, mut report) = (None, 0, 0, None, Report::default());
        for &(id, ce) in ids {
            let Some(index) = id.checked_sub(self.first_id) else { continue };
            let transmission = &mut self.sent[index as usize];
            newest = newest.max(Some(id));
            let was_in_flight = core::mem::replace(&mut transmission.fate, Fate::Delivered) == Fate::InFlight;
            self.in_flight -= if was_in_flight { MSS } else { 0 };
            let (segment, record, again) = (transmission.segment, transmission.record, transmission.again);
            if segment < self.una || core::mem::replace(&mut self.arrived[(segment - self.una) as usize], true) {
                continue;
            }
            self.to_resend.remove(&segment);
            self.sampler.on_delivered(&mut report, now, &record, MSS, id);
            if !again {
                rtt = Some(now.since(record.sent_at));
            }
            delivered += MSS;
            self.sacked += MSS;
            marked += if ce { MSS } else { 0 };
        }
        while self.arrived.front() == Some(&true) {
            self.arrived.pop_front();
            self.una += 1;
            self.sacked -= MSS;
        }
        self.delivered += delivered;
        if let Some(rtt) = rtt {
            self.take_rtt(rtt);
        }
        let acked = (self.una - una_before) * MSS;
        let lost = newest.map(|id| self.losses_before(now, id)).unwrap_or_default();
        let phase = self.tell_changes(now, delivered, marked > 0, &lost);
        let rate = self.sampler.sample(&mut report, self.min_rtt);
        self.control.on_ack(&Ack {
            now,
            acked,
            delivered,
            sacked: delivered.saturating_sub(acked),
            lost: lost.len() as u64 * MSS,
            flight_most,
            in_flight: self.in_flight,
            una: self.una * MSS,
            nxt: self.nxt * MSS,
            delivered_total: self.sampler.delivered(),
            rtt,
            srtt: self.srtt,
            rate,
            cwnd_limited: self.blocked_at.is_some_and(|nxt| self.una <= nxt),
            ce_bytes: marked.min(acked),
            phase,
        });
        if self.control.holds_back() {
            self.sampler.mark_app_limited(self.in_flight);
        }
        if acked > 0 {
            self.backoff = 0;
            self.rto_at = (self.una < self.nxt).then(|| now + self.rto());
        }
        self.forget_old();
    }

    /// What is counted as lost since transmission `id` arrived.
    fn losses_before(&mut self, now: Instant, id: u64) -> Vec<Lost> {
        let end = (id + 1).saturating_sub(REORDERING).saturating_sub(self.first_id) as usize;
        let lost: Vec<usize> = (0..end.min(self.sent.len())).filter(|index| self.sent[*index].fate == Fate::InFlight).collect();
        lost.into_iter().map(|index| self.lose(now, index)).collect()
    }

    fn lose(&mut self, now: Instant, index: usize) -> Lost {
        let transmission = &mut self.sent[index];
        transmission.fate = Fate::Lost;
        let (segment, sent) = (transmission.segment, transmission.record);
        self.in_flight -= MSS;
        self.sampler.on_lost(MSS);
        if segment >= self.una && !self.arrived[(segment - self.una) as usize] {
            self.to_resend.insert(segment);
        }
        Lost {
            now,
            offset: segment * MSS,
            bytes: MSS,
            sent,
            lost_total: self.sampler.lost(),
            delivered_total: self.sampler.delivered(),
            in_flight: self.in_flight,
        }
    }

    /// Recoveries that begin and end. Which phase the acknowledgment belongs to.
    fn tell_changes(&mut self, now: Instant, delivered: u64, marked: bool, lost: &[Lost]) -> Phase {
        let mut phase = self.phase;
        let cause = match phase {
            Phase::Open | Phase::Reduced if !lost.is_empty() => Some(Cause::Loss),
            Phase::Open if marked => Some(Cause::Ecn),
            _ => None,
        };
        if let Some(cause) = cause {
            phase = if cause == Cause::Loss { Phase::Recovery } else { Phase::Reduced };
            (self.phase, self.recover) = (phase, self.nxt);
            self.recoveries += u64::from(cause == Cause::Loss);
            self.control.on_congestion(&Congestion { now, cause, flight: self.flight(), sacked: self.sacked, delivered });
        }
        lost.iter().for_each(|lost| self.control.on_lost(lost));
        if self.phase != Phase::Open && self.una >= self.recover {
            self.control.on_recovered(&Recovered { now, flight: self.flight(), phase: self.phase });
            self.phase = Phase::Open;
        }
        phase
    }

    fn take_rtt(&mut self, rtt: Duration) {
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        if self.srtt.is_zero() {
            (self.srtt, self.rttvar) = (rtt, rtt / 2);
        } else {
            self.rttvar = self.rttvar * 3 / 4 + self.srtt.abs_diff(rtt) / 4;
            self.srtt = self.srtt * 7 / 8 + rtt / 8;
        }
    }

    /// The retransmission timer, if it is due.
    pub(crate) fn on_timer(&mut self, now: Instant) {
        if self.rto_at.is_none_or(|at| now < at) {
            return;
        }
        self.check_supply();
        self.timeouts += 1;
        let first = self.backoff == 0;
        let flight = self.flight();
        let lost: Vec<usize> = (0..self.sent.len()).filter(|index| self.sent[*index].fate == Fate::InFlight).collect();
        let lost: Vec<Lost> = lost.into_iter().map(|index| self.lose(now, index)).collect();
        self.control.on_timeout(&Timeout { now, flight, in_flight: self.in_flight, first });
        lost.iter().for_each(|lost| self.control.on_lost(lost));
        (self.phase, self.recover) = (Phase::Loss, self.nxt);
        self.backoff += 1;
        self.next_send = now;
        self.rto_at = Some(now + self.rto());
    }

    fn forget_old(&mut self) {
        while self.sent.front().is_some_and(|transmission| transmission.fate != Fate::InFlight) {
            self.sent.pop_front();
            self.first_id += 1;
        }
    }
}
