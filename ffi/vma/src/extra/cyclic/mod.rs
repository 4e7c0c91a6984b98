//! Cyclic buffers, MP-RQ's form of receiving: `vma_add_ring_profile`, SO_VMA_RING_USER_MEMORY, `vma_cyclic_buffer_read`, `get_mem_info` (vma.md
//! s2.13 to 2.15, seed 002).
//!
//! A socket whose SO_VMA_RING_ALLOC_LOGIC names a profile of a cyclic ring goes onto one, and its datagrams are read there, as records of one length
//! that lie one behind the other. The stack writes the records ([`ringway_stack::cyclic`]), and the log says why; where a device has
//! striding receive queues, and the records are such as they write, the card does ([`strides`]). What comes through the kernel is written there too, with headers that are made up; what a TCP connection brings is
//! received as ever.
//!
//! - [`profiles`]: what rings programs have described; [`memory`]: where records lie; [`read`]: the calls that look at them; [`kernel`]: what came
//!   through there; [`strides`]: what a card writes by itself

mod kernel;
mod memory;
mod profiles;
mod read;
mod strides;

use ringway_stack::cyclic::{CyclicBuffer, Geometry};
use ringway_stack::device::Protocol;
use ringway_stack::ring::FlowId;

use self::memory::Memory;
pub(super) use self::memory::UserMemory;
use self::profiles::Profile;
pub(super) use self::profiles::{RingType, add_older, add_ring_profile};
pub(super) use self::read::{Completion, cyclic_buffer_read, mem_info};
use self::strides::Striding;
use crate::process::Offload;
use crate::slab::Key;

/// What a packet takes of a receive buffer beside its record: the stack's overhead, and then some.
const PACKET_OVERHEAD: usize = 512;
/// The most that waits at one socket, in bytes.
const ROOM_MAX: usize = 256 << 20;

/// What the process has of cyclic rings.
#[derive(Debug, Default)]
pub(crate) struct Cyclic {
    profiles: Vec<Profile>,
    rings: Vec<CyclicRing>,
}

/// A cyclic ring. It begins and ends with its sockets.
#[derive(Debug)]
struct CyclicRing {
    /// The ring that it is, to whoever asks for a descriptor.
    ring: Key,
    buffer: CyclicBuffer<Memory>,
    /// The sockets on it; at least one.
    members: Vec<u32>,
    /// Those of the stack's below them, as of the last call, by their rings.
    ids: Vec<FlowId>,
    /// Queues whose records a card writes.
    striding: Vec<Striding>,
    /// The kernel is to be asked before the ring.
    asks_kernel: bool,
}

impl Cyclic {
    /// The records that a profile describes, if it is one of a cyclic ring.
    pub(super) fn geometry(&self, profile: u32) -> Option<Geometry> {
        let index = usize::try_from(profile).ok()?.checked_sub(1)?;
        match self.profiles.get(index)? {
            Profile::Cyclic(geometry) => Some(*geometry),
            Profile::Packets | Profile::External => None,
        }
    }

    /// Whether a profile's records have room in the program's memory.
    pub(super) fn fits(&self, profile: u32, memory: Option<UserMemory>) -> bool {
        let wanted = self.geometry(profile).and_then(|geometry| geometry.layout().ok()).map(|layout| layout.bytes());
        wanted.zip(memory).is_none_or(|(wanted, memory)| memory.len() >= wanted)
    }

    /// A socket has left a ring, which ends with its last.
    fn leave(&mut self, ring: Key, socket: u32) -> impl Iterator<Item = CyclicRing> {
        for cyclic in self.rings.iter_mut().filter(|cyclic| cyclic.ring == ring) {
            cyclic.members.retain(|&member| member != socket);
        }
        self.rings.extract_if(.., |cyclic| cyclic.members.is_empty())
    }

    fn find(&mut self, ring: Key) -> Option<&mut CyclicRing> {
        self.rings.iter_mut().find(|cyclic| cyclic.ring == ring)
    }
}

impl Offload {
    /// A UDP socket has come to a ring, of which it said that it is to be cyclic.
    pub(super) fn join_cyclic(&mut self, ring: Key, index: u32, profile: u32) {
        let (Some(geometry), Some(socket)) = (self.cyclic.geometry(profile), self.sockets.get(index)) else { return };
        if socket.protocol != Protocol::Udp {
            return;
        }
        let memory = socket.rare.as_ref().and_then(|rare| rare.rings.user_memory);
        if let Some(cyclic) = self.cyclic.find(ring) {
            cyclic.members.push(index);
        } else if let Some(buffer) = make(&geometry, memory) {
            let why = CyclicBuffer::<Memory>::lacking(self.rings.at(socket.ring).ring.capabilities());
            tracing::info!(
                "a cyclic ring of {} bytes; its records are written by software{}",
                buffer.layout().bytes(),
                why.map_or_else(String::new, |why| format!(": {why}"))
            );
            self.cyclic.rings.push(CyclicRing {
                ring,
                buffer,
                members: vec![index],
                ids: Vec::new(),
                striding: Vec::new(),
                asks_kernel: false,
            });
        }
        self.prepare_for_records(index);
    }

    /// A socket on a cyclic ring has room for as many packets as that, and keeps their headers if those are a part of its records.
    pub(super) fn prepare_for_records(&mut self, index: u32) {
        let Self { cyclic, sockets, rings, .. } = self;
        let Some(cyclic) = cyclic.rings.iter().find(|cyclic| cyclic.members.contains(&index)) else { return };
        let Some(socket) = sockets.get(index) else { return };
        for id in socket.flows() {
            // (Only of sockets that are not of UDP, which never come here, is either an error.)
            let _ = rings.of_mut(id).udp_configure(id, |options| options.rcvbuf = options.rcvbuf.max(cyclic.room()));
            if cyclic.buffer.layout().keeps_headers() {
                let _ = rings.of_mut(id).udp_keep_headers(id);
            }
        }
    }
}

impl CyclicRing {
    /// What its packets take of a socket's receive buffer while they wait.
    fn room(&self) -> usize {
        let layout = self.buffer.layout();
        layout.count.saturating_mul(layout.record_bytes + layout.header_bytes + PACKET_OVERHEAD).min(ROOM_MAX)
    }
}

/// A buffer, in the program's memory if it named some. `None`, and a line in the log: there is no memory for it.
fn make(geometry: &Geometry, memory: Option<UserMemory>) -> Option<CyclicBuffer<Memory>> {
    let bytes = geometry.layout().ok()?.bytes();
    let made = match memory {
        Some(memory) => Some(Memory::of_the_program(memory)),
        None => Memory::new(bytes),
    };
    let made = made.and_then(|memory| CyclicBuffer::new(geometry, memory).ok());
    if made.is_none() {
        tracing::warn!("no memory for a cyclic ring of {bytes} bytes: its sockets receive as others do");
    }
    made
}
