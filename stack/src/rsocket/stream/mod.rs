//! A connection: a stream of bytes each way, and direct writes beside it.
//!
//! - `open`: queues, buffers, and what the peers tell each other of them
//! - `post`: requests to the send queue
//! - `completions`: what became of them, and what came
//! - `send`, `receive`: the program's bytes; `credits`: what the peer may send
//! - `info`: what there is to say of it
//! - `close`: the ends of a connection; `direct`: riomap and riowrite

mod close;
mod completions;
mod credits;
mod direct;
mod info;
mod open;
mod post;
mod receive;
mod send;

pub use direct::{DirectTarget, Mapping};
pub use info::{StreamInfo, StreamStage};
pub use open::OpenError;

use core::time::Duration;
use std::collections::VecDeque;

use super::config::{Host, Sizes};
use super::wire::{ByteOrder, Control, TargetSge};
use crate::device::messages::{Messages, Pd, Region};
use crate::error::Error;
use crate::flow::Readiness;
use crate::time::Instant;

/// Which directions of a stream end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The program reads no more.
    Read,
    /// The program sends no more.
    Write,
    /// Neither.
    Both,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The peer's answer is outstanding.
    Opening,
    Connected,
    /// Both directions ended, by either side.
    Disconnected,
    /// It failed, or never was.
    Failed(Error),
}

/// An array in the peer's memory.
#[derive(Clone, Copy, Debug)]
struct RemoteTable {
    address: u64,
    key: u32,
    /// Entries.
    len: u32,
}

/// What is known of the peer.
#[derive(Clone, Copy, Debug)]
struct Peer {
    order: ByteOrder,
    targets: RemoteTable,
    iomap: RemoteTable,
}

/// The sending half.
#[derive(Debug)]
struct Sender {
    /// Messages that were sent, modulo 2^16, those about mappings included.
    seq: u16,
    /// Up to which number the peer lets us send.
    limit: u16,
    /// Requests that the send queue has room for, without those of control messages.
    free_requests: u16,
    silent: post::Silent,
    /// Direct writes that are not completed.
    direct_writes: u16,
    /// Control messages that are not completed.
    controls: u16,
    /// Which place for what a control message writes is next.
    control_place: u16,
    /// Bytes that the send buffer has room for: those in flight are not counted, be they in the buffer or inline.
    room: u32,
    /// Where in the send buffer the next byte goes.
    offset: u32,
    /// What is left of the piece of the peer's buffer that is written to.
    target: TargetSge,
    /// Which entry of our table has the next piece.
    next_target: u32,
    totals: info::Totals,
    /// The last message's bytes were placed.
    was_placed: bool,
    /// How many messages had come at the last send.
    answered: u64,
    /// Entries that the peer has said that it wrote, and that we have not taken: a device may be in the middle of writing any other.
    offered: u32,
}

/// The receiving half.
#[derive(Debug)]
struct Receiver {
    /// What is left of each message that came and was not read; never empty ones.
    messages: VecDeque<u32>,
    /// Where in the receive buffer the next byte is read.
    offset: u32,
    /// Bytes that were read and not offered again.
    free: u32,
    /// Where the next half begins that is offered.
    free_offset: u32,
    /// Bytes that the peer may still write.
    granted: u64,
    /// Messages that were read to their end, modulo 2^16, those about mappings included.
    seq: u16,
    /// At which number the peer is to be told of more credits.
    tell_at: u16,
    /// Receives whose messages came, and that were not posted anew.
    spent: u16,
    /// Which entry of the peer's table gets the next half.
    next_slot: u32,
    totals: info::Totals,
}

/// A connection.
#[derive(Debug)]
pub struct Stream {
    host: Host,
    sizes: Sizes,
    pd: Pd,
    cq: u32,
    qp: u32,
    /// Our table of targets, and the table of mappings behind it: the peer writes both.
    tables: Region,
    send_buffer: Region,
    recv_buffer: Region,
    /// The peer may place bytes in the receive buffer by itself.
    is_shared: bool,
    state: State,
    /// It is of the active side, or the peer was heard of.
    is_heard: bool,
    readable: bool,
    writable: bool,
    /// The peer said that it sends no more.
    peer_ended: bool,
    /// The peer has all that it wants, or is no more: nothing needs to arrive there.
    peer_gone: bool,
    /// Which end is to be told as soon as there is room.
    to_tell: Option<Control>,
    /// Somebody waits, or has waited, until all that was sent has arrived, and it has not since.
    wants_drained: bool,
    error: Option<Error>,
    peer: Option<Peer>,
    tx: Sender,
    rx: Receiver,
    direct: direct::Direct,
    keepalive: Option<Duration>,
    next_keepalive: Option<Instant>,
}

impl Stream {
    /// Its queue pair.
    pub const fn qp(&self) -> u32 {
        self.qp
    }

    /// Its completion queue.
    pub const fn cq(&self) -> u32 {
        self.cq
    }

    /// Its sizes, as they are.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Whether the peer's answer is outstanding.
    pub fn is_opening(&self) -> bool {
        self.state == State::Opening
    }

    /// Whether bytes go to and fro, in one direction at least.
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// Whether the peer can be sent to: the passive side waits until it is heard of, for its queue pair may not be ready before.
    fn is_live(&self) -> bool {
        self.state == State::Connected && self.is_heard
    }

    /// The last error, once (SO_ERROR).
    pub const fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// What can be done now without waiting. [`Stream::poll`] comes first.
    pub fn readiness<D: Messages>(&self, device: &D) -> Readiness {
        let mut ready = Readiness::empty();
        let over = match self.state {
            State::Opening => return ready,
            State::Connected => false,
            State::Disconnected => true,
            State::Failed(_) => {
                ready |= Readiness::ERR;
                true
            }
        };
        ready.set(Readiness::HUP, over);
        ready.set(Readiness::RDHUP, over || self.peer_ended);
        ready.set(Readiness::IN, over || !self.readable || !self.rx.messages.is_empty());
        ready.set(Readiness::OUT, over || !self.writable || self.can_send(device));
        ready
    }

    /// When [`Stream::on_timer`] has something to do.
    pub const fn deadline(&self) -> Option<Instant> {
        self.next_keepalive
    }

    /// Holds what is counted against what there is: every byte of the receive buffer is either the peer's to write, or waits to be read, or is free; and what
    /// has arrived counts no more.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let unread: u64 = self.rx.messages.iter().map(|len| u64::from(*len)).sum();
        assert_eq!(self.rx.granted + unread + u64::from(self.rx.free), u64::from(self.sizes.recv_buffer), "{self:?}");
        assert!(self.rx.messages.len() <= usize::from(self.sizes.recv_queue) && self.tx.room <= self.sizes.send_buffer, "{self:?}");
        assert!(self.tx.controls <= super::config::CONTROL_SLOTS, "{self:?}");
        if self.state == State::Connected && self.is_drained() {
            assert_eq!(self.tx.room, self.sizes.send_buffer, "{self:?}");
        }
    }

    /// Holds what both ends of one direction count against each other: no credit is made on the way, none is used twice, and nothing comes that was not sent.
    #[cfg(test)]
    pub(super) fn check_credits(&self, receiver: &Self) {
        let is_ahead = |number: u16, of: u16| number.wrapping_sub(of) as i16 >= 0;
        let granted = receiver.rx.seq.wrapping_add(receiver.sizes.recv_queue);
        let arrived = receiver.rx.seq.wrapping_add(receiver.rx.messages.len() as u16);
        assert!(is_ahead(granted, self.tx.limit), "more credits are believed than were given: {self:?} to {receiver:?}");
        assert!(is_ahead(self.tx.limit, self.tx.seq), "a message went without a credit: {self:?} to {receiver:?}");
        assert!(is_ahead(self.tx.seq, arrived), "a message came that was not sent: {self:?} to {receiver:?}");
    }

    fn fail(&mut self, error: Error) {
        if matches!(self.state, State::Opening | State::Connected) {
            self.state = State::Failed(error);
            self.error = Some(error);
            self.to_tell = None;
            self.next_keepalive = None;
            (self.readable, self.writable) = (false, false);
        }
    }
}
