//! `librspreload.so`: unmodified programs' TCP and UDP sockets become rsockets (rsocket(7)), where their peers have them too.
//!
//! Each socket of the program's is one of the kernel's, under the kernel's number. With connect or listen it gets an rsocket beside it, which carries its
//! bytes from then on; what cannot be an rsocket stays the kernel's, and says so at the log's level `debug`. So numbers, dup, close-on-exec and options
//! are the kernel's, listeners accept from both worlds, and a peer without rsockets is reached by TCP.
//!
//! - `intercept`: what each call of libc's comes to, a line or two each
//! - `table`: which descriptors are ours; `socket`: what a socket is, and its way from socket to close
//! - `stream`, `datagram`: bytes and datagrams; `messages`: the calls in their many forms; `options`: setsockopt and its like
//! - `poll`, `epoll`: waits for several; `stdio`: libc's streams on sockets
//! - `fork`, `handover`: a child has none of its parent's rsockets; by RDMAV_FORK_SAFE, a connection becomes one in the process that uses it
//! - `config`: the file preload_config
//!
//! What it never does: touch a descriptor that is no socket of these kinds, or change bytes of a connection whose peer does not expect it.

mod config;
mod datagram;
mod epoll;
mod fork;
mod handover;
mod intercept;
mod messages;
mod options;
mod poll;
mod socket;
mod stdio;
mod stream;
mod table;

/// This library, to `ringway_preload`.
struct Rspreload;

ringway_preload::interpose!(Rspreload);
