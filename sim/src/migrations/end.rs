//! One end of a connection: it writes and reads, and ends as its kind has it. That what is read is what was written, to the last byte, is the checkers' to see.

use std::io::{IoSlice, IoSliceMut};

use ringway_stack::ring::{FlowId, RecvFlags, SendFlags, Shutdown};
use ringway_stack::tcp::State;
use ringway_stack::{Error, Instant};

use super::breach;
use crate::apps::Pattern;
use crate::random::{SplitMix, scale};
use crate::sockets::Sockets;

/// The longest stream, and the longest piece of it.
const TOTAL_MAX: u64 = 60_000;
const PIECE_MAX: u64 = 6_000;

/// How an end ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It writes all, and reads all.
    Whole,
    /// It ends its stream early, while its peer has yet to follow, and reads all.
    Half,
    /// It closes, or aborts, while its peer has yet to follow; at the latest when all is written.
    Closes,
    Aborts,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct End {
    pub(super) socket: FlowId,
    kind: Kind,
    peers: Kind,
    pattern: Pattern,
    written: u64,
    total: u64,
    read: u64,
    is_at_end: bool,
    is_shut: bool,
    pub(super) is_over: bool,
}

impl End {
    pub(super) fn new(socket: FlowId, seed: u64, port: u16, is_opener: bool) -> Self {
        let dice = |is_openers: bool| SplitMix(seed ^ (u64::from(port) * 2 + u64::from(is_openers)).rotate_left(40));
        let kind = |is_openers: bool| match scale(dice(is_openers).next(), 10) {
            0 => Kind::Half,
            1 => Kind::Closes,
            2 => Kind::Aborts,
            _ => Kind::Whole,
        };
        let mut own = dice(is_opener);
        let (_, pattern, total) = (own.next(), Pattern(own.next()), 1 + scale(own.next(), TOTAL_MAX));
        let (kind, peers) = (kind(is_opener), kind(!is_opener));
        Self { socket, kind, peers, pattern, written: 0, total, read: 0, is_at_end: false, is_shut: false, is_over: false }
    }

    /// A call or two. `may_fail`: its peer's process is dead. Whether it got anywhere.
    pub(super) fn go(&mut self, now: Instant, ring: &mut Sockets, dice: &mut SplitMix, is_silent: bool, may_fail: bool) -> bool {
        let state = ring.info(self.socket).and_then(|info| info.state);
        if matches!(state, Some(State::SynSent | State::SynReceived)) {
            return false;
        }
        let result = match self.ends_now(is_silent) && scale(dice.next(), 3) == 0 {
            true => self.end(now, ring),
            false if (dice.next() & 1 == 0 || self.is_shut) && self.kind != Kind::Closes => self.read(now, ring, dice),
            false if self.is_shut => self.read(now, ring, dice),
            false => self.write(now, ring, dice),
        };
        let result = if self.kind == Kind::Closes && self.read == 0 && !self.is_at_end && !self.is_over {
            self.read(now, ring, dice)
        } else {
            result
        };
        match result {
            Ok(got_on) => got_on,
            Err(Error::WouldBlock | Error::NoBuffers) => false,
            Err(_) if may_fail || matches!(self.peers, Kind::Closes | Kind::Aborts) => {
                self.close(now, ring, false);
                true
            }
            Err(error) => breach(format_args!("a connection that nobody ended fails: {error}, {self:?}")),
        }
    }

    /// (Its peer has accepted it if something was read.)
    fn ends_now(&self, is_silent: bool) -> bool {
        let is_due = is_silent || self.written == self.total;
        (self.read > 0 || self.is_at_end) && is_due && !self.is_shut && self.kind != Kind::Whole
    }

    fn end(&mut self, now: Instant, ring: &mut Sockets) -> Result<bool, Error> {
        match self.kind {
            Kind::Whole | Kind::Half => self.shut_down(now, ring)?,
            Kind::Closes | Kind::Aborts => self.close(now, ring, self.kind == Kind::Aborts),
        }
        Ok(true)
    }

    fn shut_down(&mut self, now: Instant, ring: &mut Sockets) -> Result<(), Error> {
        ring.shutdown(now, self.socket, Shutdown::Write)?;
        self.is_shut = true;
        Ok(())
    }

    fn close(&mut self, now: Instant, ring: &mut Sockets, abort: bool) {
        ring.close(now, self.socket, abort);
        self.is_over = true;
    }

    fn read(&mut self, now: Instant, ring: &mut Sockets, dice: &mut SplitMix) -> Result<bool, Error> {
        let mut bytes = vec![0; 1 + scale(dice.next(), PIECE_MAX) as usize];
        let read = ring.tcp_recv(now, self.socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())?;
        self.read += read as u64;
        if read == 0 {
            self.is_at_end = true;
            if !self.is_shut {
                return self.write(now, ring, dice);
            }
            self.close(now, ring, false);
        }
        Ok(true)
    }

    fn write(&mut self, now: Instant, ring: &mut Sockets, dice: &mut SplitMix) -> Result<bool, Error> {
        let len = (1 + scale(dice.next(), PIECE_MAX)).min(self.total - self.written);
        if len > 0 {
            let mut bytes = vec![0; len as usize];
            self.pattern.fill(self.written, &mut bytes);
            self.written += ring.tcp_send(now, self.socket, &[IoSlice::new(&bytes)], SendFlags::empty())? as u64;
        } else if matches!(self.kind, Kind::Whole | Kind::Half) && !self.is_shut {
            self.shut_down(now, ring)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}
