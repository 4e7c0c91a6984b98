//! Which process has which queue pairs' numbers on an interface, and which ports of RDMA-CM's.
//!
//! Both are names of Unix sockets, of the abstract kind (unix(7)): one process alone has each, of the network namespace, and when the process ends, however it does, nobody has it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringway_host::Fd;
use ringway_stack::device::Protocol;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

use crate::error::AttachError;
use crate::interface::Interface;

/// A process's share of the queue pairs' numbers on an interface: those with these highest five of 24 bits.
#[derive(Debug)]
pub struct Seat {
    number: u8,
    interface: u32,
    _name: Fd,
}

impl Seat {
    /// Bits of a queue pair's number, of its highest eight, that say whose it is.
    pub const MASK: u8 = 0xf8;
    /// How many queue pairs one process has at most. (Numbers begin 256 after where an adapter's are said to.)
    pub const QPS: usize = (1 << 11) - 1;
    /// Seats of an interface. (Queue pair 1 is of none, and neither is the one that groups have, whose bits are all ones.)
    pub const COUNT: u8 = 30;

    /// One that is free, from some number on: numbers of a process that has just ended are not to be the next one's.
    ///
    /// # Errors
    /// [`AttachError::Taken`]: as many processes have the interface; [`AttachError::NoInterface`], [`AttachError::NotEthernet`].
    pub fn take(interface: &str, from: u64) -> Result<Self, AttachError> {
        Self::take_of(Interface::find(interface)?.index, from)
    }

    pub(super) fn take_of(interface: u32, from: u64) -> Result<Self, AttachError> {
        for turn in 0..Self::COUNT {
            let number = 1 + ((from % u64::from(Self::COUNT)) as u8 + turn) % Self::COUNT;
            match name(&format!("ringway-roce/{interface}/seat/{number}")) {
                Ok(name) => return Ok(Self { number, interface, _name: name }),
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(error) => return Err(AttachError::system("the name of a seat")(error)),
            }
        }
        Err(AttachError::Taken { what: "a seat" })
    }

    /// These bits, where they are in the highest eight.
    pub const fn mark(&self) -> u8 {
        self.number << 3
    }

    /// Where its numbers begin, in steps of 256.
    pub const fn first_qp(&self) -> u16 {
        (self.mark() as u16) << 8
    }

    /// For ports on the same interface.
    pub const fn ports(&self) -> Ports {
        Ports { interface: self.interface, known: Mutex::new(Known { held: BTreeMap::new(), closed: BTreeMap::new() }) }
    }
}

/// Ports of RDMA-CM's that this process has on an interface.
#[derive(Debug)]
pub struct Ports {
    interface: u32,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Names of ports, and how many sockets have each.
    held: BTreeMap<(Protocol, u16), (Fd, usize)>,
    /// Names by which others know that this process had a port until then, so that it has connections of it, perhaps.
    closed: BTreeMap<(Protocol, u16), (Fd, Instant)>,
}

/// How long after a listener is closed its port is known to have been this process's: requests of connections that it has may come again as long, by a peer that has not heard the answer (Linux asks each 4 s).
const CLOSED_FOR: Duration = Duration::from_secs(10);
/// Of so many ports at most, the last ones: each is a descriptor, and clients' ports come and go.
const CLOSED_MAX: usize = 32;

impl Ports {
    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.closed.retain(|_, (_, at)| at.elapsed() < CLOSED_FOR);
        known
    }

    fn name_of(&self, protocol: Protocol, port: u16, is_closed: bool) -> String {
        let protocol = match protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        format!("ringway-roce/{}/{}{protocol}/{port}", self.interface, if is_closed { "closed/" } else { "" })
    }

    /// Takes a port, at whichever of the interface's addresses; several sockets of the process may.
    ///
    /// # Errors
    /// EADDRINUSE: another process has it; else what socket(2) says.
    pub fn take(&self, protocol: Protocol, port: u16) -> io::Result<()> {
        let mut known = self.known();
        match known.held.get_mut(&(protocol, port)) {
            Some((_, count)) => *count += 1,
            None => _ = known.held.insert((protocol, port), (name(&self.name_of(protocol, port, false))?, 1)),
        }
        Ok(())
    }

    /// Gives it back.
    pub fn give_back(&self, protocol: Protocol, port: u16) {
        let mut known = self.known();
        if let Some((_, count)) = known.held.get_mut(&(protocol, port)) {
            *count -= 1;
            if *count == 0 {
                known.held.remove(&(protocol, port));
                let oldest = known.closed.iter().min_by_key(|(_, (_, at))| *at).map(|(port, _)| *port);
                if let Some(oldest) = oldest.filter(|_| known.closed.len() >= CLOSED_MAX) {
                    known.closed.remove(&oldest);
                }
                // (Another process that has closed one has the name until then.)
                if let Ok(name) = name(&self.name_of(protocol, port, true)) {
                    known.closed.insert((protocol, port), (name, Instant::now()));
                }
            }
        }
    }

    /// Ports that it is known to have had.
    #[cfg(test)]
    pub(super) fn closed(&self) -> Vec<u16> {
        self.known().closed.keys().map(|(_, port)| *port).collect()
    }

    /// Whether another process has it now, or had it a moment ago; or that is not to be found out.
    pub fn is_others(&self, protocol: Protocol, port: u16) -> bool {
        let known = self.known();
        if known.held.contains_key(&(protocol, port)) {
            return false;
        }
        is_anybodys(&self.name_of(protocol, port, false))
            || !known.closed.contains_key(&(protocol, port)) && is_anybodys(&self.name_of(protocol, port, true))
    }
}

/// Whether somebody has a name, as far as can be told. (By connecting, since who asked by taking it would have it meanwhile.)
fn is_anybodys(name: &str) -> bool {
    let connected =
        unix_socket().and_then(|socket| connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?).map_err(io::Error::from));
    !connected.is_err_and(|error| error.raw_os_error() == Some(libc::ECONNREFUSED))
}

fn unix_socket() -> io::Result<Fd> {
    Fd::of(|| socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)).map_err(io::Error::from)
}

/// A socket of that name, if nobody has one.
fn name(name: &str) -> io::Result<Fd> {
    let socket = unix_socket()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}
