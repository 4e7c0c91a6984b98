//! One TCP connection as two programs use it: what each side writes, when, and how it parts.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use ringway_stack::ring::{Event, FlowId, Readiness, RecvFlags, SendFlags, Shutdown};
use ringway_stack::{Error, Instant};

use super::{Pattern, Shared};
use crate::host::Context;

/// When a side writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it can.
    Free,
    /// Requests of so many bytes, each after the whole response of so many to the one before.
    Asks {
        /// Bytes of a request.
        request: u64,
        /// Bytes of a response.
        response: u64,
    },
    /// A response to each whole request.
    Answers {
        /// Bytes of a request.
        request: u64,
        /// Bytes of a response.
        response: u64,
    },
    /// After the peer has ended its stream: a half-closed connection.
    AfterPeer,
}

/// How a side parts: when it has written everything, or sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Ends its stream, reads to the end of the peer's, closes.
    Close,
    /// Closes with a reset, whatever is under way.
    Abort,
    /// Closes once it has read so many bytes and nothing is left to be read just then, whatever its peer has yet to say and it has yet to write.
    /// What still arrives then is answered with a reset (RFC 9293 s3.10.4, RFC 2525 s2.17).
    Leave {
        /// After so many bytes.
        read: u64,
    },
}

/// One side of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The key of what it writes.
    pub pattern: Pattern,
    /// How many bytes it writes.
    pub total: u64,
    /// When it writes them.
    pub pace: Pace,
    /// What it does then.
    pub parting: Parting,
    /// Most bytes in one write.
    pub write_max: usize,
    /// Most bytes in one read.
    pub read_max: usize,
    /// How long it rests after a read: a slow reader.
    pub read_pause: Duration,
    /// How long it sleeps after its first read.
    pub nap: Duration,
}

impl Side {
    /// Writes nothing, reads what comes, and closes after the peer.
    pub fn silent() -> Self {
        Self {
            pattern: Pattern(0),
            total: 0,
            pace: Pace::Free,
            parting: Parting::Close,
            write_max: 16 << 10,
            read_max: 16 << 10,
            read_pause: Duration::ZERO,
            nap: Duration::ZERO,
        }
    }

    /// What it may write at first, in one write.
    pub(super) fn first(&self) -> Vec<u8> {
        let len = usize::try_from(self.allowance(0, false)).unwrap_or(usize::MAX).min(self.write_max);
        let mut bytes = vec![0; len];
        self.pattern.fill(0, &mut bytes);
        bytes
    }

    /// How many bytes it may have written by now.
    fn allowance(&self, read: u64, peer_ended: bool) -> u64 {
        let allowed = match self.pace {
            Pace::Free => self.total,
            Pace::AfterPeer if peer_ended => self.total,
            Pace::AfterPeer => 0,
            Pace::Asks { request, response } => (read / response + 1).saturating_mul(request),
            Pace::Answers { request, response } => (read / request).saturating_mul(response),
        };
        allowed.min(self.total)
    }
}

/// A conversation from one side's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialogue {
    /// What this side does.
    pub own: Side,
    /// What the other side does.
    pub peer: Side,
}

impl Dialogue {
    /// The same from the other side.
    #[must_use]
    pub fn turned(self) -> Self {
        Self { own: self.peer, peer: self.own }
    }
}

/// How a side's part in a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both streams came to their ends.
    Whole,
    /// It aborted, as it was to.
    Aborted,
    /// It left, as it was to, before its peer's stream had ended.
    Left,
    /// The connection failed under it.
    Failed(Error),
    /// The connection left the ring, and goes on by another carrier.
    Carried,
}

/// What a side came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes that the connection took.
    pub written: u64,
    /// Bytes that it gave.
    pub read: u64,
    /// How it ended; `None`: it hasn't.
    pub ending: Option<Ending>,
}

/// One side, at work.
#[derive(Debug)]
pub(super) struct Conversation {
    socket: FlowId,
    dialogue: Dialogue,
    transfer: Shared<Transfer>,
    read_at: Instant,
    peer_ended: bool,
    own_ended: bool,
    /// Most reads, and most writes, in one step.
    burst: u32,
    /// It has read all there was and written all it may: nothing but an arrival changes anything.
    pauses: bool,
    buffer: Vec<u8>,
    /// What is being written, and where in the stream it begins.
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl Conversation {
    pub(super) fn new(socket: FlowId, dialogue: Dialogue, transfer: Shared<Transfer>) -> Self {
        let buffer = vec![0; usize::try_from(dialogue.peer.total).unwrap_or(usize::MAX).clamp(1, dialogue.own.read_max.max(1))];
        Self {
            socket,
            dialogue,
            transfer,
            read_at: Instant::ZERO,
            peer_ended: false,
            own_ended: false,
            pauses: false,
            burst: u32::MAX,
            buffer,
            chunk: Vec::new(),
            chunk_at: 0,
        }
    }

    pub(super) fn socket(&self) -> FlowId {
        self.socket
    }

    /// The connection has another name now: it moved.
    pub(super) fn moved(&mut self, socket: FlowId) {
        self.socket = socket;
    }

    /// Reads and writes at most so often in one step: what a level-triggered loop does, which is called again while there is more.
    pub(super) fn set_burst(&mut self, burst: u32) {
        self.burst = burst;
    }

    /// Whether it would write if it could.
    pub(super) fn wants_room(&self) -> bool {
        let Transfer { written, read, .. } = *self.transfer.read();
        self.dialogue.own.allowance(read, self.peer_ended) > written
    }

    /// Whether it would read if there were anything.
    pub(super) fn wants_bytes(&self) -> bool {
        !self.peer_ended
    }

    /// Whether its program ended its stream, by a close at the latest.
    pub(super) fn ended_stream(&self) -> bool {
        self.own_ended || matches!(self.transfer.read().ending, Some(Ending::Whole | Ending::Left))
    }

    pub(super) fn ended(&self) -> bool {
        self.transfer.read().ending.is_some()
    }

    /// Whether a step can have anything to do: `events` are all that happened to the host's sockets, or none if that isn't known.
    pub(super) fn may_step(&self, events: &[Event]) -> bool {
        !self.pauses || events.is_empty() || events.iter().any(|event| event.flow == self.socket)
    }

    /// Does what can be done. Says when it wants to go on by itself.
    pub(super) fn step(&mut self, cx: &mut Context<'_>) -> Option<Instant> {
        if self.ended() {
            return None;
        }
        let ready = cx.ring.readiness(self.socket);
        if ready.is_empty() {
            return None;
        }
        // A read of what can only be written to would block.
        let read = if ready == Readiness::OUT { Ok(()) } else { self.read(cx) };
        let outcome = read.and_then(|()| self.write(cx));
        match outcome {
            Err(error) => self.end(cx, Ending::Failed(error)),
            Ok(()) => self.part(cx),
        }
        if self.ended() {
            return None;
        }
        let Transfer { written, read, .. } = *self.transfer.read();
        let waits = self.read_at > cx.now;
        self.pauses = !waits && self.dialogue.own.allowance(read, self.peer_ended) == written;
        waits.then_some(self.read_at)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let (own, peer) = (self.dialogue.own, self.dialogue.peer);
        for _ in 0..self.burst {
            if self.peer_ended || self.read_at > cx.now {
                break;
            }
            let into = &mut [IoSliceMut::new(&mut self.buffer)];
            let len = match cx.ring.tcp_recv(cx.now, self.socket, into, RecvFlags::empty()) {
                Ok(len) => len,
                Err(Error::WouldBlock) => break,
                Err(error) => return Err(error),
            };
            let offset = self.transfer.read().read;
            if len == 0 {
                self.check_end(cx, offset);
                self.peer_ended = true;
                break;
            }
            let read = offset + len as u64;
            // (The checkers know which streams may have changed; a program can't.)
            let wrong = peer.pattern.mismatch(offset, &self.buffer[..len]).filter(|_| !cx.tainted);
            assert!(wrong.is_none(), "{}: byte {wrong:?} of the stream is not what was written (read at {offset}, {len} bytes)", cx.ip);
            assert!(read <= peer.total, "{}: {read} bytes read of a stream of {}", cx.ip, peer.total);
            self.transfer.change(|t| t.read = read);
            let pause = if offset == 0 { own.read_pause.max(own.nap) } else { own.read_pause };
            if pause > Duration::ZERO {
                self.read_at = cx.now + pause;
            }
        }
        Ok(())
    }

    /// The end of a stream, without an error: it must be the whole, and its writer must have meant to end it. (Of who leaves, only the
    /// checkers know how much that is.)
    fn check_end(&self, cx: &Context<'_>, read: u64) {
        let peer = self.dialogue.peer;
        if matches!(peer.parting, Parting::Leave { .. }) {
            return;
        }
        assert_eq!(read, peer.total, "{}: the stream ended early, without an error", cx.ip);
        assert_eq!(peer.parting, Parting::Close, "{}: the stream ended, but its writer aborted", cx.ip);
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let own = self.dialogue.own;
        for _ in 0..self.burst {
            let Transfer { written, read, .. } = *self.transfer.read();
            let room = own.allowance(read, self.peer_ended) - written;
            if room == 0 {
                break;
            }
            let len = usize::try_from(room).unwrap_or(usize::MAX).min(own.write_max);
            // What a write did not take is what the next one begins with, as it lies there.
            if written >= self.chunk_at + self.chunk.len() as u64 {
                self.chunk.resize(len, 0);
                self.chunk_at = written;
                own.pattern.fill(written, &mut self.chunk);
            }
            let rest = &self.chunk[usize::try_from(written - self.chunk_at).unwrap_or(0)..];
            let len = rest.len();
            match cx.ring.tcp_send(cx.now, self.socket, &[IoSlice::new(rest)], SendFlags::empty()) {
                Ok(taken) => {
                    assert!((1..=len).contains(&taken), "{}: a write of {len} bytes took {taken}", cx.ip);
                    self.transfer.change(|t| t.written += taken as u64);
                }
                Err(Error::WouldBlock) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends what is to be ended.
    fn part(&mut self, cx: &mut Context<'_>) {
        let own = self.dialogue.own;
        let written = self.transfer.read().written;
        if written == own.total && own.parting == Parting::Abort {
            self.end(cx, Ending::Aborted);
            return;
        }
        if let Parting::Leave { read } = own.parting
            && !self.peer_ended
            && self.transfer.read().read >= read
            && cx.ring.info(self.socket).is_some_and(|info| info.recv_queue == 0)
            && !cx.ring.has_candidate(self.socket)
        {
            self.end(cx, Ending::Left);
            return;
        }
        // Even with nothing to say, the side that speaks second ends second.
        let waits = own.pace == Pace::AfterPeer && !self.peer_ended;
        if written == own.total && !self.own_ended && !waits {
            self.own_ended = true;
            if let Err(error) = cx.ring.shutdown(cx.now, self.socket, Shutdown::Write) {
                self.end(cx, Ending::Failed(error));
                return;
            }
        }
        if self.own_ended && self.peer_ended {
            self.end(cx, Ending::Whole);
        }
    }

    fn end(&mut self, cx: &mut Context<'_>, ending: Ending) {
        cx.ring.close(cx.now, self.socket, ending == Ending::Aborted);
        self.transfer.change(|t| t.ending = Some(ending));
        assert_eq!(cx.ring.readiness(self.socket), Readiness::ERR | Readiness::HUP, "a closed socket is dead");
    }
}
