//! Ports for connections whose program named none.
//!
//! The kernel's connect(2) has one port for as many destinations as want it; its bind(2) to port 0, all that a socket can do which is not to be
//! connected there, gives each port once, and searches for as long as half of them are taken. So the library chooses: one port after the
//! other, by net.ipv4.ip_local_port_range and net.ipv4.ip_local_reserved_ports, and binds the placeholder to it. That keeps all others away: two
//! processes never have a connection of the same addresses, in whichever world. A port that this process holds already is good for every other
//! destination; the sockets that hold it are told that they share it (SO_REUSEADDR) for the moment of the bind, and no longer.

use core::ffi::c_int;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use arrayvec::ArrayVec;
use libc::socklen_t;

use super::Family;
use super::address::{self, Raw};
use crate::errno::Errno;
use crate::process::{Offload, Process};
use crate::real;
use crate::slab::Key;

/// Linux's range, where /proc does not tell it.
const RANGE: (u16, u16) = (32_768, 60_999);

/// So many sockets hold one port: each of them is told twice for each that joins them.
const HOLDERS_MAX: usize = 8;

/// Ports that others turn out to have, before the kernel is left to search.
const REFUSED_MAX: u32 = 256;

/// Ports that are looked at in one hold of the lock.
const LOOKS: u32 = 1024;

/// Ports whose holders may be gone, beside one for each socket, before they are gone through.
const FORGOTTEN_MAX: usize = 4096;

/// The ports that a process has connections on.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    allowed: Option<Allowed>,
    /// Which one was chosen last, as a place in the range.
    last: u32,
    /// The sockets that were bound to each; some of them may be gone.
    held: HashMap<SocketAddrV4, ArrayVec<Key, HOLDERS_MAX>>,
}

/// What the kernel would choose from.
#[derive(Debug, PartialEq, Eq)]
struct Allowed {
    low: u16,
    count: u32,
    reserved: Vec<(u16, u16)>,
}

impl Allowed {
    fn read() -> Self {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let reserved = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
        Self::parse(&range, &reserved)
    }

    /// Of "low high" and of "from-to,port,...", as /proc/sys has them.
    fn parse(range: &str, reserved: &str) -> Self {
        let mut ends = range.split_whitespace().map_while(|port| port.parse::<u16>().ok());
        let (low, high) = match (ends.next(), ends.next()) {
            (Some(low @ 1..), Some(high)) if low <= high => (low, high),
            _ => RANGE,
        };
        let span = |part: &str| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        let count = u32::from(high - low) + 1;
        Self { low, count, reserved: reserved.trim().split(',').filter_map(span).collect() }
    }

    /// The port at that place: first every other one, and then those in between, for the kernel's connect begins with the even.
    fn at(&self, place: u32) -> u16 {
        let odd = self.count / 2;
        let place = place % self.count;
        let offset = if place < odd { 2 * place + 1 } else { 2 * (place - odd) };
        self.low + offset as u16
    }

    fn is_reserved(&self, port: u16) -> bool {
        self.reserved.iter().any(|&(from, to)| (from..=to).contains(&port))
    }
}

/// A port that may do.
enum Found {
    /// Nobody of this process holds it.
    Fresh(SocketAddrV4),
    /// The placeholder is bound to it, and so are others.
    Shared(SocketAddrV4),
    /// Of those that were looked at, none.
    None,
    /// All were looked at.
    End,
}

/// Binds a placeholder to a port from which `remote` can be connected to. `None`: there is none, as far as can be told by asking for it; the
/// kernel may have one.
///
/// # Errors
/// As bind(2).
pub(super) fn bind(
    process: &Process,
    (fd, key, family): (c_int, Key, Family),
    source: Ipv4Addr,
    remote: SocketAddrV4,
) -> Result<Option<SocketAddrV4>, Errno> {
    let (mut looked, mut refused) = (0, 0);
    while refused < REFUSED_MAX {
        let found = process.lock().find_port((fd, key, family), (source, remote), &mut looked, process.now());
        let local = match found {
            Found::Shared(local) => return Ok(Some(local)),
            Found::Fresh(local) => local,
            Found::None => continue,
            Found::End => break,
        };
        match bind_to(fd, family, local) {
            Ok(()) => {
                process.lock().hold_port(local, key);
                return Ok(Some(local));
            }
            // (EACCES: a range that begins below 1024.)
            Err(Errno(libc::EADDRINUSE | libc::EACCES)) => refused += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn bind_to(fd: c_int, family: Family, local: SocketAddrV4) -> Result<(), Errno> {
    let raw = Raw::new(local, family);
    // SAFETY: the address is as long as it says.
    if unsafe { real::bind(fd, raw.as_ptr(), raw.len()) } == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// SO_REUSEADDR, of a socket whose program has not set it.
fn share(fd: c_int, on: bool) {
    let on = c_int::from(on);
    // SAFETY: the value is as long as it says.
    unsafe { real::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const on).cast(), size_of::<c_int>() as socklen_t) };
}

impl Offload {
    fn find_port(
        &mut self,
        (fd, key, family): (c_int, Key, Family),
        (source, remote): (Ipv4Addr, SocketAddrV4),
        looked: &mut u32,
        now: ringway_stack::Instant,
    ) -> Found {
        let seed = self.sockets.len() as u32;
        let Self { ring, sockets, ports, .. } = self;
        let allowed = ports.allowed.get_or_insert_with(|| {
            ports.last = now.as_nanos() as u32 ^ std::process::id().wrapping_mul(0x9e37_79b9) ^ seed;
            Allowed::read()
        });
        for _ in 0..LOOKS {
            if *looked >= allowed.count {
                return Found::End;
            }
            *looked += 1;
            ports.last = (ports.last % allowed.count + 1) % allowed.count;
            let local = SocketAddrV4::new(source, allowed.at(ports.last));
            if allowed.is_reserved(local.port()) || !ring.tcp_is_free(now, local, remote) {
                continue;
            }
            let Some(holders) = ports.held.get_mut(&local) else { return Found::Fresh(local) };
            holders.retain(|&mut holder| {
                sockets.find(holder).is_some_and(|socket| address::of_placeholder(socket.fd, socket.family) == Some(local))
            });
            if holders.is_empty() {
                return Found::Fresh(local);
            }
            let may_share = |&holder: &Key| sockets.find(holder).is_some_and(|socket| socket.has_plain_port);
            if holders.is_full() || !holders.iter().all(may_share) {
                continue;
            }
            // (Under the lock, so that no holder's number becomes another's meanwhile.)
            let fds = holders.iter().filter_map(|&holder| Some(sockets.find(holder)?.fd)).chain([fd]);
            fds.clone().for_each(|fd| share(fd, true));
            let bound = bind_to(fd, family, local);
            fds.for_each(|fd| share(fd, false));
            if bound.is_ok() {
                holders.push(key);
                return Found::Shared(local);
            }
        }
        Found::None
    }

    fn hold_port(&mut self, local: SocketAddrV4, key: Key) {
        let Self { sockets, ports, .. } = self;
        if ports.held.len() > sockets.len() + FORGOTTEN_MAX {
            ports.held.retain(|_, holders| holders.iter().any(|&holder| sockets.find(holder).is_some()));
        }
        let holders = ports.held.entry(local).or_default();
        holders.clear();
        holders.push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_of_the_range_has_its_place() {
        for range in ["32768\t60999\n", "40000 40000", "40001 40004", "1 65535"] {
            let allowed = Allowed::parse(range, "");
            let mut ports = (0..allowed.count).map(|place| allowed.at(place)).collect::<Vec<_>>();
            ports.sort_unstable();
            assert_eq!(ports, (allowed.low..=allowed.low + (allowed.count - 1) as u16).collect::<Vec<_>>(), "{range}");
        }
        let kernels = Allowed::parse("32768 60999", "");
        assert!((0..kernels.count / 2).all(|place| kernels.at(place) % 2 == 1), "the even ones come last");
    }

    #[test]
    fn what_cannot_be_read_is_linuxs_range() {
        for range in ["", "0 100", "a b", "50000", "60000 50000", "70000 80000"] {
            assert_eq!(Allowed::parse(range, ""), Allowed { low: 32_768, count: 28_232, reserved: Vec::new() }, "{range}");
        }
    }

    #[test]
    fn reserved_ports_are_not_chosen() {
        let allowed = Allowed::parse("40000 40010", "8080,40002-40004,40010\n");
        let free = (40000..=40010).filter(|&port| !allowed.is_reserved(port)).collect::<Vec<_>>();
        assert_eq!(free, [40000, 40001, 40005, 40006, 40007, 40008, 40009]);
    }
}
