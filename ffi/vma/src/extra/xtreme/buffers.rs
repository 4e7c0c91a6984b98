//! `vma_buff_t`: the nodes by which packets are lent to the program, and who has which.
//!
//! A program hands back addresses, and those may be anything. So nothing is read through one: an address is looked up among those of the nodes, which
//! are made in chunks that are never freed, and what is known of the node is kept apart from the node itself, where the program cannot write. A node
//! is used again only when its whole packet was given back, and then after all others that are free, so that what is given back twice is
//! noticed.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use std::collections::VecDeque;

use arrayvec::ArrayVec;
use libc::c_int;
use ringway_devices::RxBuf;
use ringway_stack::device::{LendBuffer, RxBuffer};
use ringway_stack::ring::{FlowId, Lent};

use crate::slab::Key;

/// `vma_buff_t`.
#[repr(C)]
pub(in crate::extra) struct Buff {
    next: *mut Self,
    payload: *mut c_void,
    len: u16,
}

/// Nodes that are made at a time.
const CHUNK: usize = 256;
/// Chunks at most: a million nodes. Where they are all held, what arrives waits in its sockets.
const CHUNKS_MAX: usize = 4096;
/// So many nodes are free before one is used again.
const REST: usize = CHUNK;
/// A node has no more than this.
const NODE_BYTES: usize = u16::MAX as usize;

/// Nodes that a packet may need: what a poll asks for before it takes one from its socket.
pub(super) const PACKET_NODES: usize = 128;

/// Where nodes are, for the program to read.
struct Chunk {
    nodes: [UnsafeCell<Buff>; CHUNK],
}

// SAFETY: nodes are written by whoever has the process's lock, and only between two of their packets. (A program that reads, or writes, what it
// has given back meets what it deserves; nobody here reads them.)
unsafe impl Sync for Chunk {}

/// A node's number.
type Place = u32;

/// What is known of a node.
#[derive(Debug, Default)]
struct Node {
    /// References that the program has; 0: it has none (any more).
    refs: u32,
    /// The packet's first node.
    head: Place,
    /// The packet's next.
    next: Option<Place>,
    bytes: u32,
    data: Option<Lent<RxBuf>>,
    /// Of a packet's first.
    packet: Option<Packet>,
}

/// A packet that was lent.
#[derive(Debug)]
struct Packet {
    owner: Owner,
    /// Nodes that the program has references of.
    held: u32,
    /// It was not given back as a whole yet.
    is_whole: bool,
}

/// Who received a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A stream: what is given back opens its window, byte by byte.
    Stream(FlowId),
    /// A socket of datagrams, of which this one had so many bytes.
    Datagram(FlowId, usize),
    /// The kernel; what this one counts against what the program may hold of the socket's.
    Kernel(Key, usize),
}

/// A packet, as completions describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::extra) struct Described {
    pub(super) nodes: usize,
    pub(super) bytes: u16,
    pub(super) first: *mut Buff,
}

/// A packet while its nodes are strung together.
struct Building {
    head: Place,
    last: Option<Place>,
    nodes: u32,
    bytes: usize,
}

/// What a socket has back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credit {
    pub(super) to: Creditor,
    pub(super) bytes: usize,
}

/// Who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creditor {
    Ring(FlowId),
    Kernel(Key),
}

/// All nodes.
#[derive(Default)]
pub(crate) struct Buffers {
    chunks: Vec<&'static Chunk>,
    /// The chunks' addresses, ascending, with their numbers.
    by_address: Vec<(usize, u32)>,
    nodes: Vec<Node>,
    /// First in, first out.
    free: VecDeque<Place>,
    /// Storage for the pieces of one packet.
    pub(super) spare: Vec<Lent<RxBuf>>,
}

impl core::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Buffers").field("held", &(self.nodes.len() - self.free.len())).finish_non_exhaustive()
    }
}

impl Buffers {
    /// Whether there are nodes for any packet.
    #[inline]
    pub(super) fn have_room(&mut self) -> bool {
        while self.free.len() < PACKET_NODES + REST && self.chunks.len() < CHUNKS_MAX {
            self.grow();
        }
        self.free.len() >= PACKET_NODES
    }

    #[cold]
    fn grow(&mut self) {
        // SAFETY: all of it is pointers and integers, for which zero is a value. (Not by way of the stack.)
        let chunk: Box<Chunk> = unsafe { Box::new_zeroed().assume_init() };
        let chunk: &'static Chunk = Box::leak(chunk);
        let number = self.chunks.len() as u32;
        let address = chunk.nodes.as_ptr().addr();
        let at = self.by_address.partition_point(|&(other, _)| other < address);
        self.by_address.insert(at, (address, number));
        self.chunks.push(chunk);
        self.nodes.extend(core::iter::repeat_with(Node::default).take(CHUNK));
        self.free.extend((0..CHUNK as u32).map(|index| number * CHUNK as u32 + index));
    }

    fn node(&self, place: Place) -> *mut Buff {
        self.chunks[place as usize / CHUNK].nodes[place as usize % CHUNK].get()
    }

    /// The node at an address.
    #[inline]
    fn place_of(&self, node: *const Buff) -> Option<Place> {
        let address = node.addr();
        let behind = self.by_address.partition_point(|&(chunk, _)| chunk <= address);
        let (chunk, number) = *self.by_address.get(behind.checked_sub(1)?)?;
        let offset = address - chunk;
        let index = offset / size_of::<Buff>();
        (index < CHUNK && offset.is_multiple_of(size_of::<Buff>())).then_some(number * CHUNK as u32 + index as u32)
    }

    /// Lends a packet of one piece, in one node if it lies in one place.
    #[inline(always)]
    pub(super) fn lend_one(&mut self, owner: Owner, piece: Lent<RxBuf>) -> Option<Described> {
        let only = match &piece {
            Lent::Buffer(buffer) => buffer.only_piece().filter(|&(_, len)| len <= NODE_BYTES),
            Lent::Copied(_) => None,
        };
        let Some((at, len)) = only else { return self.lend(owner, [piece]) };
        let head = self.free.pop_front()?;
        let first = self.fill(head, at, len);
        let node = &mut self.nodes[head as usize];
        (node.refs, node.head, node.next, node.bytes) = (1, head, None, len as u32);
        node.data = Some(piece);
        node.packet = Some(Packet { owner, held: 1, is_whole: true });
        Some(Described { nodes: 1, bytes: len as u16, first })
    }

    /// What the program sees of a node that was free.
    #[inline]
    fn fill(&self, place: Place, at: *const u8, bytes: usize) -> *mut Buff {
        let node = self.node(place);
        let buff = Buff { next: ptr::null_mut(), payload: at.cast_mut().cast(), len: bytes as u16 };
        // SAFETY: nobody else writes it (the process's lock is held), and no packet has it yet.
        unsafe { node.write(buff) };
        node
    }

    /// Lends a packet of these pieces, which together have no more bytes than a packet may have, and in no more nodes than
    /// [`Buffers::have_room`] has found.
    pub(super) fn lend(&mut self, owner: Owner, pieces: impl IntoIterator<Item = Lent<RxBuf>>) -> Option<Described> {
        let mut building = Building { head: *self.free.front()?, last: None, nodes: 0, bytes: 0 };
        for piece in pieces {
            self.put_piece(piece, &mut building);
        }
        if building.nodes == 0 {
            // An empty datagram is one, too.
            self.put(&mut building, ptr::NonNull::dangling().as_ptr(), 0, None);
        }
        let Building { head, nodes, bytes, .. } = building;
        self.nodes[head as usize].packet = Some(Packet { owner, held: nodes, is_whole: true });
        Some(Described { nodes: nodes as usize, bytes: bytes as u16, first: self.node(head) })
    }

    /// A node for each place in which a piece lies.
    fn put_piece(&mut self, piece: Lent<RxBuf>, to: &mut Building) {
        match piece {
            Lent::Copied(bytes) if bytes.len() <= NODE_BYTES => {
                let (at, len) = (bytes.as_ptr(), bytes.len());
                self.put(to, at, len, Some(Lent::Copied(bytes)));
            }
            Lent::Copied(bytes) => bytes.chunks(NODE_BYTES).for_each(|part| self.put_piece(Lent::Copied(part.to_vec()), to)),
            Lent::Buffer(mut buffer) => {
                buffer.make_writable();
                let mut places = ArrayVec::<(*const u8, usize), PIECES_MAX>::new();
                buffer.for_each_piece(|at, len| _ = places.try_push((at, len)));
                if let [(at, len)] = places[..] {
                    return self.put(to, at, len, Some(Lent::Buffer(buffer)));
                }
                let mut offset = 0;
                for (at, len) in places {
                    self.put(to, at, len, Some(Lent::Buffer(buffer.slice(offset, len))));
                    offset += len;
                }
            }
        }
    }

    fn put(&mut self, to: &mut Building, at: *const u8, bytes: usize, data: Option<Lent<RxBuf>>) {
        let Some(place) = self.free.pop_front() else { return };
        let node = self.fill(place, at, bytes);
        self.nodes[place as usize] = Node { refs: 1, head: to.head, next: None, bytes: bytes as u32, data, packet: None };
        if let Some(last) = to.last.replace(place) {
            self.nodes[last as usize].next = Some(place);
            // SAFETY: a node of this packet, which the program does not have yet.
            unsafe { (&raw mut (*self.node(last)).next).write(node) };
        }
        to.nodes += 1;
        to.bytes += bytes;
    }

    /// Takes a packet back, by its first node: each node loses the completion's reference. `None`: it is not lent.
    #[inline(always)]
    pub(super) fn take_packet(&mut self, first: *const Buff) -> Option<Option<Credit>> {
        let head = self.place_of(first)?;
        let only = &mut self.nodes[head as usize];
        let packet = only.packet.as_mut().filter(|packet| packet.is_whole)?;
        packet.is_whole = false;
        let owner = packet.owner;
        // Most packets: one node, which nobody keeps.
        if only.refs != 1 || only.next.is_some() {
            return Some(self.take_nodes(head, owner));
        }
        only.refs = 0;
        only.data = None;
        only.packet = None;
        let bytes = only.bytes as usize;
        self.free.push_back(head);
        Some(credit(owner, bytes, true))
    }

    /// The same of a packet of many nodes, or of one that is kept.
    #[inline(never)]
    fn take_nodes(&mut self, head: Place, owner: Owner) -> Option<Credit> {
        let (mut at, mut bytes) = (Some(head), 0);
        while let Some(place) = at {
            let node = &mut self.nodes[place as usize];
            at = node.next;
            if node.refs > 0 {
                bytes += self.drop_reference(head, place);
            }
        }
        self.settle(head, owner, bytes)
    }

    /// A reference less. How many bytes nobody has any more.
    fn drop_reference(&mut self, head: Place, place: Place) -> usize {
        let node = &mut self.nodes[place as usize];
        node.refs -= 1;
        if node.refs > 0 {
            return 0;
        }
        node.data = None;
        let bytes = node.bytes as usize;
        if let Some(packet) = &mut self.nodes[head as usize].packet {
            packet.held -= 1;
        }
        bytes
    }

    /// After references were dropped: frees the nodes of a packet of which none is held, and says what its socket has back.
    fn settle(&mut self, head: Place, owner: Owner, bytes: usize) -> Option<Credit> {
        let is_over = self.nodes[head as usize].packet.as_ref().is_some_and(|packet| packet.held == 0);
        if is_over {
            let mut at = Some(head);
            while let Some(place) = at {
                let node = &mut self.nodes[place as usize];
                at = node.next.take();
                node.packet = None;
                self.free.push_back(place);
            }
        }
        credit(owner, bytes, is_over)
    }

    /// A reference more on a node; how many there are. `None`: it is not lent, or has as many as can be.
    pub(super) fn reference(&mut self, node: *const Buff) -> Option<c_int> {
        let place = self.place_of(node)?;
        let node = &mut self.nodes[place as usize];
        let refs = c_int::try_from(node.refs).ok().filter(|&refs| refs > 0)?.checked_add(1)?;
        node.refs += 1;
        Some(refs)
    }

    /// A reference less on a node; how many are left, and what its socket has back. `None`: it is not lent.
    pub(super) fn unreference(&mut self, node: *const Buff) -> Option<(c_int, Option<Credit>)> {
        let place = self.place_of(node)?;
        let node = &self.nodes[place as usize];
        if node.refs == 0 {
            return None;
        }
        let head = node.head;
        let owner = self.nodes[head as usize].packet.as_ref()?.owner;
        let bytes = self.drop_reference(head, place);
        let left = self.nodes[place as usize].refs;
        let credit = if left == 0 { self.settle(head, owner, bytes) } else { None };
        Some((left.cast_signed(), credit))
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}

/// What a packet's owner has back, when so many `bytes` of it were given back, and all of it or not.
#[inline]
fn credit(owner: Owner, bytes: usize, is_over: bool) -> Option<Credit> {
    match owner {
        Owner::Stream(to) => (bytes > 0).then_some(Credit { to: Creditor::Ring(to), bytes }),
        Owner::Datagram(to, bytes) => is_over.then_some(Credit { to: Creditor::Ring(to), bytes }),
        Owner::Kernel(to, bytes) => is_over.then_some(Credit { to: Creditor::Kernel(to), bytes }),
    }
}

/// Places in which one buffer lies, at most.
const PIECES_MAX: usize = 32;

const _: () = assert!(size_of::<Buff>() == 24 && 3 * PIECES_MAX <= PACKET_NODES);

#[cfg(test)]
mod tests;
