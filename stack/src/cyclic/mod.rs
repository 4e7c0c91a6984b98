//! Cyclic buffers in software: received packets as records of one length, one behind the other in one piece of memory.
//!
//! A striding receive queue has its device write packets into one buffer ([`crate::device::Queues::cyclic_create`]). This is the same for any
//! device: the stack writes the records, once, from where the device put the packets. So a program takes a run of packets with one look,
//! whatever carries them; what it costs is a copy of each byte ([`CyclicBuffer::lacking`] has the words for saying so).
//!
//! Where a device has such queues and the records are as it would write them, it does ([`Strides`], [`crate::ring::Ring::strides_read`]), and nothing is copied.
//!
//! [`Geometry`] says what of a packet is kept, and where; [`CyclicBuffer`] fills the memory and gives runs out;
//! [`crate::ring::Ring::cyclic_read`] has it filled from UDP sockets. Seed 002 and vma.md s2.14 are the source of what is promised:
//!
//! - the packets of a run lie one behind the other; a run has as many as were asked for at least, but where the buffer ends, and at most;
//! - records are written behind the last one, up to the linear end; only a call to read goes back to the beginning, and only once everything before
//!   the end was given out. So what was given out stays as it is until the call that rewinds, and that is never the call that gave it out;
//! - what finds no room waits where it came from.

mod buffer;
mod geometry;
mod headers;
mod strides;

pub use buffer::{CyclicBuffer, CyclicError, Packet, RecordMemory, Refused, Run};
pub use geometry::{Geometry, GeometryError, Layout, Records};
pub use headers::{NetworkHeaders, made_up_headers};
pub use strides::Strides;

#[cfg(test)]
mod tests;
