//! Ethernet frames in UD datagrams: how the packet plane runs on a verbs device that has no raw packet queue pairs, the kernel's soft-RoCE (rxe) above all.
//!
//! Each datagram has a [`Header`] and a piece of one frame. A UD message is no longer than the port's IB MTU (1024 bytes on an interface with Ethernet's 1500), so a
//! longer frame goes in several ([`pieces`]), and who receives puts it together again ([`Reassembly`]). Nothing is acknowledged: what is lost is the transport's to repeat.
//!
//! Whoever can reach a queue pair can write any header. What one peer can have waiting here is bounded in memory and in time, and a frame is given up
//! whole or not at all.

mod ends;
mod header;
mod reassembly;

pub use ends::Ends;
pub use header::{HEADER_LEN, Header, HeaderError, PIECES_MAX, Piece, VERSION, pieces};
pub use reassembly::{Limits, Reassembly, Source};

#[cfg(test)]
mod tests;
