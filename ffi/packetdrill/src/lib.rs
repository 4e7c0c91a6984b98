//! `libringway_packetdrill.so`: what packetdrill loads by `--so_filename`, to run its scripts against Ringway's stack. It is one host with one ring
//! ([`ringway_stack::ring::Ring`]) over a device made of two queues, in virtual time: nothing happens between two calls, and a script of minutes
//! takes milliseconds.
//!
//! `interface` is the structure of functions that [`packetdrill_interface_init`] fills, and `calls` are those functions: each reads C's arguments,
//! takes the `host`'s lock and does its work in the `world`, where the ring, the clock and the `sockets` are. A call that blocks comes from a
//! second thread of the tester's, and sleeps in `host` until the first has moved time on. The crate has no clock but that
//! one, and decides nothing that the stack decides.
//!
//! packetdrill reads TCP_INFO by the system's getsockopt(2), whatever it tests. So the library has a function of that name as well
//! ([`preloaded`]): whoever puts it into `LD_PRELOAD` too has its answers there.

mod address;
mod calls;
mod device;
mod epoll;
mod errno;
mod host;
mod info;
mod interface;
mod memory;
mod options;
pub mod preloaded;
mod settings;
mod sockets;
mod world;

pub use interface::{Interface, packetdrill_interface_init};
