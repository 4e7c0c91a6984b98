//! What takes privileges, done in a process's stead by one that has them: a broker.

use core::fmt::Debug;
use core::net::{IpAddr, SocketAddr};
use std::io;
use std::os::fd::BorrowedFd;

/// A broker, as a process sees it that may do little itself.
pub trait Lender: Debug + Send + Sync {
    /// Has the kernel ask for a neighbour ([`crate::Monitor::use_neighbour`]).
    ///
    /// # Errors
    /// The kernel's; or the broker refuses, or is gone.
    fn use_neighbour(&self, address: IpAddr) -> io::Result<()>;

    /// Puts a TCP socket into repair mode, bound to `local`, to become the process's connection with `remote`. It is as it was where this fails.
    ///
    /// # Errors
    /// As above.
    fn begin_repair(&self, socket: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr) -> io::Result<()>;

    /// Ends it, with a window probe or without: of that connection's socket, or of one that is connected to nobody. Where this fails, it is nobody's.
    ///
    /// # Errors
    /// As above.
    fn end_repair(&self, socket: BorrowedFd<'_>, probes: bool) -> io::Result<()>;

    /// Makes the buffers of a socket in repair mode at least so large, as the kernel counts them.
    ///
    /// # Errors
    /// As above.
    fn reserve(&self, socket: BorrowedFd<'_>, receive: usize, send: usize) -> io::Result<()>;

    /// Whether it puts packets into the kernel's input path.
    fn injects(&self) -> bool;

    /// Puts a packet of TCP there, from its IP header on, which is for `local`, an address of the process's.
    ///
    /// # Errors
    /// As above.
    fn inject(&self, packet: &[u8], local: SocketAddr) -> io::Result<()>;
}
