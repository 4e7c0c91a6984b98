//! What TCP_INFO tells of a connection beyond [`crate::ring::FlowInfo`].

use core::time::Duration;

use super::{Connection, Phase};
use crate::device::{RxBuffer, TxBuffer};
use crate::tcp::congestion::{Algorithm, CongestionControl as _};
use crate::tcp::timers::Timer;
use crate::time::Instant;

/// A connection's inside at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Nothing is thought to be lost (0), something has arrived out of order (1), the window comes down for a mark (2), fast recovery (3), or recovery after a timeout (4): Linux's
    /// `enum tcp_ca_state`.
    pub congestion_state: u8,
    /// Timeouts in a row of the same bytes.
    pub retries: u32,
    /// Probes of a closed window, or of an idle connection, without an answer.
    pub probes: u32,
    /// Both sides use timestamps.
    pub timestamps: bool,
    /// Both sides use SACK.
    pub sack: bool,
    /// ECN is agreed on (RFC 3168).
    pub ecn: bool,
    /// All bytes of our SYN were acknowledged with it, or what came with the peer's was taken (RFC 7413).
    pub syn_data: bool,
    /// The peer's and our window scale; `None`: not used.
    pub window_scales: Option<(u8, u8)>,
    /// The retransmission timeout.
    pub rto: Duration,
    /// The mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// Bytes of sequence space on their way, SYN and FIN included.
    pub in_flight: usize,
    /// Bytes written and not sent.
    pub not_sent: usize,
    /// The slow-start threshold in bytes; `None`: there is none yet.
    pub ssthresh: Option<usize>,
    /// The congestion controller.
    pub congestion: Algorithm,
    /// Bytes on their way that the peer has reported by SACK.
    pub sacked: usize,
    /// Bytes that count as lost, and have not been sent again.
    pub lost: usize,
    /// All bytes that were ever delivered, in order or not.
    pub delivered: u64,
    /// How fast the path delivered lately, in bytes per second (zero: not known), and whether that was for want of more to send.
    pub delivery_rate: (u64, bool),
    /// How fast segments leave, in bytes per second; `None`: as fast as they can.
    pub pacing_rate: Option<u64>,
    /// The shortest round trip that was ever measured.
    pub rtt_min: Option<Duration>,
    /// The peer's window in bytes.
    pub snd_wnd: usize,
    /// The window that the peer was told, in bytes.
    pub rcv_wnd: usize,
    /// The segment size that we announced.
    pub mss_announced: u16,
    /// The peer's FIN came, and all that goes before it.
    pub peer_ended: bool,
    /// Since a segment was last sent, and received.
    pub silence: (Duration, Duration),
    /// Which timer runs, and how long yet; of several, the one that `ss` tells of (inet_diag's `idiag_timer`).
    pub pending: Option<(Pending, Duration)>,
}

/// What a connection's timer is for, where somebody who looks at connections wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// What was sent is sent again (RFC 6298).
    Retransmission,
    /// A shut window is asked about (RFC 9293 s3.8.6.1).
    WindowProbe,
    /// A silent peer is asked whether it is there (RFC 9293 s3.8.4).
    Keepalive,
    /// TIME-WAIT ends, or the wait for the end of a peer whose connection the program has closed.
    TimeWait,
}

impl<R: RxBuffer, T: TxBuffer> Connection<R, T> {
    /// What TCP_INFO tells beyond the usual.
    pub fn details(&self, now: Instant) -> Details {
        let in_flight = self.snd_nxt.since(self.snd_una);
        let agreed = self.agreement;
        Details {
            congestion_state: match self.phase {
                Phase::Open if self.ecn.reduces() => 2,
                Phase::Open if self.dupacks > 0 || !self.scoreboard.is_empty() => 1,
                Phase::Open => 0,
                Phase::Recovery => 3,
                Phase::Loss => 4,
            },
            retries: self.retries,
            probes: self.unanswered_probes,
            timestamps: agreed.timestamps,
            sack: agreed.sack,
            ecn: agreed.ecn,
            syn_data: self.syn_data,
            window_scales: agreed.scaling.then_some((agreed.send_scale, agreed.receive_scale)),
            rto: self.rtt.rto(),
            rtt_var: self.rtt.var(),
            in_flight,
            // A FIN on its way is no byte of the queue's.
            not_sent: self.send.len().saturating_sub(in_flight),
            ssthresh: self.congestion.ssthresh().map(|bytes| bytes as usize),
            congestion: self.congestion.algorithm(),
            sacked: self.scoreboard.bytes(),
            lost: self.records.lost_bytes(),
            delivered: self.records.delivered(),
            delivery_rate: self.records.delivery_rate(),
            pacing_rate: self.congestion.pacing_rate(),
            rtt_min: self.rtt.shortest(),
            snd_wnd: self.snd_wnd as usize,
            rcv_wnd: self.window.offered(),
            mss_announced: self.config.mss_announced(),
            peer_ended: self.peer_fin,
            silence: (now.since(self.last_tx), now.since(self.last_rx)),
            pending: self.pending(now),
        }
    }

    /// In the order in which Linux looks for one (net/ipv4/inet_diag.c, inet_sk_diag_fill); what waits out its TIME-WAIT has no other there.
    fn pending(&self, now: Instant) -> Option<(Pending, Duration)> {
        [
            (Timer::Linger, Pending::TimeWait),
            (Timer::Retransmit, Pending::Retransmission),
            (Timer::Persist, Pending::WindowProbe),
            (Timer::Keepalive, Pending::Keepalive),
        ]
        .into_iter()
        .find(|&(timer, _)| self.timers.is_set(timer))
        .map(|(timer, pending)| (pending, self.timers.at(timer).since(now)))
    }
}
