//! What happened to one socket, as completions.

use core::time::Duration;
use std::collections::VecDeque;

use ringway_devices::RxBuf;
use ringway_stack::ring::{FlowId, Lent, Readiness};

use super::abi::{Completed, PACKET};
use super::buffers::{Owner, PACKET_NODES};
use super::kernel::CHARGE;
use crate::errno::Errno;
use crate::extra::rings::options::default_user_data;
use crate::process::Offload;
use crate::slab::Key;
use crate::socket::Kind;

/// What there is to tell of a socket.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// What happened since it was last told of.
    edges: Readiness,
    /// It is in its ring's queue.
    is_queued: bool,
    /// Ends and errors that were told already.
    told: Readiness,
    /// Taken from its queue, and not told yet: what had been copied before was more than a packet has.
    rest: VecDeque<Lent<RxBuf>>,
    /// What the program holds that came by the kernel, in bytes, and so much more for each packet.
    pub(crate) kernel_held: usize,
    /// That was too much: the kernel's half is not watched until some was given back.
    pub(crate) kernel_pauses: bool,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            edges: Readiness::empty(),
            is_queued: false,
            told: Readiness::empty(),
            rest: VecDeque::new(),
            kernel_held: 0,
            kernel_pauses: false,
        }
    }
}

impl Waiting {
    /// The socket has a connection, or an address, that it had not.
    pub(crate) fn begin(&mut self) {
        self.told = Readiness::empty();
        self.rest.clear();
    }

    /// Something happened. Whether it is to be queued for that.
    pub(crate) fn note(&mut self, edges: Readiness) -> bool {
        self.edges |= edges;
        !core::mem::replace(&mut self.is_queued, true)
    }

    /// What nobody was told yet, to be queued for elsewhere.
    pub(crate) fn pending(&self) -> Readiness {
        if self.has_rest() { self.edges | Readiness::IN } else { self.edges }
    }

    /// Whether bytes were taken from its queue that nobody was told of.
    pub(crate) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Those need not be told any more. Whether anything else is to be.
    pub(crate) fn forget(&mut self, edges: Readiness) -> bool {
        self.edges -= edges;
        !self.pending().is_empty()
    }

    /// It is to be queued no more. Whether it was.
    pub(crate) fn unqueue(&mut self) -> bool {
        core::mem::take(&mut self.is_queued)
    }
}

/// Where completions go.
pub(super) trait Sink {
    fn is_full(&self) -> bool;
    fn is_empty(&self) -> bool;
    fn put(&mut self, completed: &Completed);
}

/// What is to be done with a socket next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// There is more to tell than there was room for.
    Again,
    /// A connection waits at this listener.
    Accept(FlowId),
}

/// The most bytes of a packet.
const BYTES_MAX: usize = u16::MAX as usize;
/// The most pieces of a stream in one packet.
const PIECES_MAX: usize = PACKET_NODES / 2;

/// Fills in completions for what happened to a socket, as far as there is room.
pub(super) fn harvest(offload: &mut Offload, key: Key, sink: &mut impl Sink) -> Next {
    let Some(socket) = offload.sockets.find_mut(key) else { return Next::Nothing };
    let (kind, fd, peer) = (socket.kind, socket.fd, socket.peer);
    let on = &mut socket.rare().rings;
    on.waiting.is_queued = false;
    let edges = core::mem::replace(&mut on.waiting.edges, Readiness::empty());
    let user_data = on.user_data.unwrap_or_else(|| default_user_data(fd));
    let told = Completed { packet: None, events: 0, user_data, from: peer, listener: None, by_card: None };
    match kind {
        Kind::Listener(_) => waits_at(offload, key).map_or(Next::Nothing, Next::Accept),
        Kind::Stream(id) | Kind::Connecting(id) => stream(offload, key, id, edges, told, sink),
        Kind::Datagram(Some(id)) => datagrams(offload, key, id, edges, told, sink),
        Kind::Kernel => moved(offload, key, edges, told, sink),
        _ => Next::Nothing,
    }
}

/// The flow of a listener at which a connection waits.
pub(super) fn waits_at(offload: &Offload, key: Key) -> Option<FlowId> {
    let socket = offload.sockets.find(key).filter(|socket| matches!(socket.kind, Kind::Listener(_)))?;
    socket.flows().find(|&id| offload.rings.of(id).readiness(id).contains(Readiness::IN))
}

/// Of a connection that is the kernel's now: what was taken before it was, and that it can be written to. The rest is told by [`super::kernel`].
fn moved(offload: &mut Offload, key: Key, edges: Readiness, told: Completed, sink: &mut impl Sink) -> Next {
    let mut left = edges & Readiness::OUT;
    while !sink.is_full() && offload.buffers.have_room() {
        let next = waiting(offload, key).and_then(|waiting| waiting.rest.pop_front());
        let Some(Lent::Copied(mut bytes)) = next else { break };
        let later = bytes.split_off(bytes.len().min(BYTES_MAX));
        let charge = bytes.len() + CHARGE;
        if let Some(waiting) = waiting(offload, key) {
            waiting.kernel_held += charge;
            if !later.is_empty() {
                waiting.rest.push_front(Lent::Copied(later));
            }
        }
        let packet = offload.buffers.lend(Owner::Kernel(key, charge), [Lent::Copied(bytes)]);
        sink.put(&Completed { packet, events: PACKET | bits(left), ..told });
        left = Readiness::empty();
    }
    let has_rest = waiting(offload, key).is_some_and(|waiting| waiting.has_rest());
    if !has_rest && !left.is_empty() && !sink.is_full() {
        sink.put(&Completed { events: bits(left), from: None, ..told });
        return Next::Nothing;
    }
    again(offload, key, left, has_rest)
}

/// All that arrived of a stream; then how it ended.
fn stream(offload: &mut Offload, key: Key, id: FlowId, edges: Readiness, told: Completed, sink: &mut impl Sink) -> Next {
    let mut left = edges & Readiness::OUT;
    let wants_card_time = offload.sockets.find(key).is_some_and(|socket| socket.ancillary.hardware_times);
    while !sink.is_full() && offload.buffers.have_room() {
        let by_card = if wants_card_time { card_time_of_next(offload, key, id) } else { None };
        let mut pieces = core::mem::take(&mut offload.buffers.spare);
        gather(offload, key, id, &mut pieces);
        let packet = if pieces.is_empty() { None } else { offload.buffers.lend(Owner::Stream(id), pieces.drain(..)) };
        offload.buffers.spare = pieces;
        if packet.is_none() {
            break;
        }
        sink.put(&Completed { packet, events: PACKET | bits(left), by_card, ..told });
        left = Readiness::empty();
    }
    let ready = offload.rings.of(id).readiness(id);
    let Some(waiting) = waiting(offload, key) else { return Next::Nothing };
    // (Before its end, all that came is told.)
    let has_more = !waiting.rest.is_empty();
    let news = (ready & (Readiness::RDHUP | Readiness::HUP | Readiness::ERR)) - waiting.told;
    let has_more = has_more || has_bytes(offload, id);
    if !has_more && !sink.is_full() {
        if let Some(waiting) = self::waiting(offload, key) {
            waiting.told |= news;
        }
        left |= news;
        if news.contains(Readiness::RDHUP) {
            left |= Readiness::IN;
        }
        if !left.is_empty() {
            sink.put(&Completed { events: bits(left), from: None, ..told });
        }
        return Next::Nothing;
    }
    again(offload, key, left, has_more || !news.is_empty())
}

/// When the first of a stream's next bytes came, as its card says. (What waited while there was no room for it has none.)
fn card_time_of_next(offload: &mut Offload, key: Key, id: FlowId) -> Option<Duration> {
    if !waiting(offload, key)?.rest.is_empty() {
        return None;
    }
    let at = offload.rings.of(id).tcp_arrival(id, 1)?;
    offload.card_time(id.ring, at.hardware_time?, at.received)
}

/// The next bytes of a stream, as many as a packet has.
fn gather(offload: &mut Offload, key: Key, id: FlowId, pieces: &mut Vec<Lent<RxBuf>>) {
    let mut bytes = 0;
    while bytes < BYTES_MAX && pieces.len() < PIECES_MAX {
        let room = BYTES_MAX - bytes;
        let next = match waiting(offload, key).and_then(|waiting| waiting.rest.pop_front()) {
            // (A read that finds nothing takes the error, which is SO_ERROR's.)
            None if offload.rings.of(id).readiness(id).contains(Readiness::ERR) && !has_bytes(offload, id) => return,
            None => match offload.rings.of_mut(id).tcp_lend(id, 1, room) {
                Ok(Some(piece)) => piece,
                _ => return,
            },
            Some(rest) => rest,
        };
        let fits = match next {
            Lent::Copied(mut copied) if copied.len() > room => {
                let later = copied.split_off(room);
                if let Some(waiting) = waiting(offload, key) {
                    waiting.rest.push_front(Lent::Copied(later));
                }
                Lent::Copied(copied)
            }
            whole => whole,
        };
        bytes += fits.len();
        pieces.push(fits);
    }
}

fn has_bytes(offload: &Offload, id: FlowId) -> bool {
    offload.rings.of(id).info(id).is_some_and(|info| info.recv_queue > 0)
}

/// A completion for each datagram, whichever flow it came by; an error in one of its own.
fn datagrams(offload: &mut Offload, key: Key, id: FlowId, edges: Readiness, told: Completed, sink: &mut impl Sink) -> Next {
    let mut more = core::mem::take(&mut offload.buffers.spare);
    let next = datagrams_by(offload, &mut more, (key, id), edges, told, sink);
    offload.buffers.spare = more;
    next
}

fn datagrams_by(
    offload: &mut Offload,
    more: &mut Vec<Lent<RxBuf>>,
    (key, id): (Key, FlowId),
    edges: Readiness,
    told: Completed,
    sink: &mut impl Sink,
) -> Next {
    let wants_card_time = offload.sockets.find(key).is_some_and(|socket| socket.ancillary.hardware_times);
    while !sink.is_full() && offload.buffers.have_room() {
        let id = offload.turn(key).unwrap_or(id);
        let mut first = None;
        let lent = offload.rings.of_mut(id).udp_lend_each(id, |piece| match first {
            None => first = Some(piece),
            Some(_) => more.push(piece),
        });
        match lent {
            Ok(datagram) => {
                let owner = Owner::Datagram(id, datagram.len);
                let packet = match first {
                    // (Most of them.)
                    Some(only) if more.is_empty() => offload.buffers.lend_one(owner, only),
                    first => offload.buffers.lend(owner, first.into_iter().chain(more.drain(..))),
                };
                let by_card = datagram.hardware_time.filter(|_| wants_card_time);
                let by_card = by_card.and_then(|at| offload.card_time(id.ring, at, datagram.received));
                sink.put(&Completed { packet, events: PACKET, from: Some(datagram.from), by_card, ..told });
            }
            Err(ringway_stack::Error::WouldBlock) => {
                let ends = edges & (Readiness::RDHUP | Readiness::HUP);
                if !ends.is_empty() {
                    sink.put(&Completed { events: bits(ends | Readiness::IN), from: None, ..told });
                }
                return Next::Nothing;
            }
            Err(error) => {
                // It stays for SO_ERROR.
                if let Some(socket) = offload.sockets.find_mut(key) {
                    socket.rare().error = Some(Errno::from(error).0);
                }
                sink.put(&Completed { events: bits(Readiness::ERR), from: None, ..told });
            }
        }
    }
    let is_ready = |id: FlowId| offload.rings.of(id).readiness(id).intersects(Readiness::IN | Readiness::ERR);
    let ready = offload.sockets.find(key).is_some_and(|socket| socket.flows().any(is_ready));
    again(offload, key, edges & (Readiness::RDHUP | Readiness::HUP), ready)
}

/// What there was no room for: the socket is queued again if that is anything.
fn again(offload: &mut Offload, key: Key, edges: Readiness, has_more: bool) -> Next {
    let Some(waiting) = waiting(offload, key) else { return Next::Nothing };
    waiting.edges |= edges;
    if !has_more && edges.is_empty() {
        return Next::Nothing;
    }
    waiting.is_queued = true;
    Next::Again
}

fn waiting(offload: &mut Offload, key: Key) -> Option<&mut Waiting> {
    offload.sockets.find_mut(key).map(|socket| &mut socket.rare().rings.waiting)
}

/// In epoll's bits, as the ring's are.
const fn bits(ready: Readiness) -> u64 {
    ready.bits() as u64
}
