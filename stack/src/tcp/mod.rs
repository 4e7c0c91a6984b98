//! TCP (RFC 9293) as a state machine without I/O: a segment in ([`Connection::on_segment`]), segments out
//! ([`Connection::poll_transmit`]), time by [`Connection::deadline`] and [`Connection::on_timer`], the program by
//! [`Connection::write`] and [`Connection::read`].
//!
//! Payload is never looked at: what is received stays behind the device's handles until it is read, what is written lies in
//! the device's buffers until it is acknowledged, and a retransmission refers to them again. Where RFCs leave a choice, this
//! does as Linux does.

mod acks;
mod arrivals;
mod config;
pub mod congestion;
mod connection;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod handshake;
mod keepalive;
mod payload;
mod profile;
mod reassembly;
mod records;
mod recv_filter;
mod recv_queue;
mod rtt;
mod scoreboard;
mod send_buffer;
mod state;
mod timers;
mod window;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod test_util;
#[cfg(test)]
mod tests;

pub use arrivals::Arrival;
pub use config::{Config, Ecn, Family, Keepalive};
pub use connection::{Connection, ControlBlock, Details, Pending, Snapshot, SnapshotError, Undelivered};
pub(crate) use connection::{PATH_MTU_TIME, Plausible, Rest};
pub use payload::RxPayload;
pub use profile::Profile;
pub(crate) use profile::Profiles;
pub use recv_filter::{Decision, LentPieces};
pub use recv_queue::Lent;
pub use state::State;

use crate::device::TxSlice;
use crate::wire;
use crate::wire::tcp::{Flags, SeqNumber};

/// What a new connection needs of chance (RFC 6528, RFC 7323 s5.4): its owner draws or derives it.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The initial sequence number.
    pub iss: SeqNumber,
    /// Added to the timestamp clock.
    pub timestamp_offset: u32,
}

/// A segment to send. The owner adds the addresses and the checksum.
#[derive(Debug)]
pub struct Segment<'a, T> {
    /// The header, but for its checksum.
    pub header: wire::tcp::Header,
    /// The payload, in at most [`Config::gather_max`] slices.
    pub payload: &'a [TxSlice<'a, T>],
    /// The payload's length in bytes.
    pub payload_len: usize,
    /// Longer than a segment may be: the device cuts the payload into pieces of this many bytes. (Only with [`Config::tso_max`].)
    pub cut: Option<u16>,
    /// A pure acknowledgment, which asks for no answer: [`crate::device::TxOffload::unsolicited`].
    pub unsolicited: bool,
    /// Its packet is capable of ECN: routers may mark it instead of dropping it (RFC 3168 s5).
    pub capable: bool,
}

/// How a segment came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carriage {
    /// How many segments the device merged into one.
    pub segments: u16,
    /// A router marked its packet: there is congestion on the way (RFC 3168 s5).
    pub marked: bool,
}

impl Default for Carriage {
    fn default() -> Self {
        Self { segments: 1, marked: false }
    }
}

/// The answer to a segment that no connection matches (RFC 9293 s3.10.7.1). To a reset there is none: the caller must not ask.
pub fn reset_for(header: &wire::tcp::Header, payload_len: usize) -> wire::tcp::Header {
    let mut reset = wire::tcp::Header { src_port: header.dst_port, dst_port: header.src_port, ..wire::tcp::Header::default() };
    if header.flags.contains(Flags::ACK) {
        reset.seq = header.ack;
        reset.flags = Flags::RST;
    } else {
        reset.ack = header.seq + payload_len + control_len(header.flags);
        reset.flags = Flags::RST | Flags::ACK;
    }
    reset
}

/// Sequence numbers that the control bits take (RFC 9293 s3.4).
#[inline]
fn control_len(flags: Flags) -> usize {
    usize::from(flags.contains(Flags::SYN)) + usize::from(flags.contains(Flags::FIN))
}
