//! Ports for connections whose program named none.
//!
//! The kernel's connect(2) has one port for as many destinations as want it; its bind(2) to port 0, all that a socket can do which is not to be
//! connected there, gives each port once, and searches for as long as half of them are taken. So the library chooses: one port after the
//! other, by net.ipv4.ip_local_port_range and net.ipv4.ip_local_reserved_ports, and binds the placeholder to it. That keeps all others away: two
//! processes never have a connection of the same addresses, in whichever world. A port that this process holds already is good for every other
//! destination; the sockets that hold it are told that they share it (SO_REUSEADDR) for the moment of the bind, and no longer. A new port takes
//! fewer system calls; but a process that holds many leaves the others to other processes, and shares its own first.

use core::ffi::c_int;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use libc::socklen_t;
use ringway_stack::device::Protocol;

use super::Family;
use super::address::{self, Raw};
use crate::errno::Errno;
use crate::interfaces::Lands;
use crate::process::{Offload, Process};
use crate::real;
use crate::slab::Key;

/// Linux's range, where /proc does not tell it.
const RANGE: (u16, u16) = (32_768, 60_999);

/// So many sockets hold one port: each of them is told twice for each that joins them.
const HOLDERS_MAX: usize = 8;

/// A process that holds one port of so many in the range shares its own ports before it takes another.
const MANY: usize = 8;

/// So many of its own ports are looked at for that.
const OWN_LOOKS: u32 = 64;

/// After so many ports that others turn out to have, the process looks at all of its own.
const AHEAD_MAX: u32 = 8;

/// After so many of them, the kernel is left to search.
const REFUSED_MAX: u32 = 256;

/// Ports that are passed over at the most because their answers would come to another ring. (Of 16 rings, one in as many ports is for each.)
const CHOOSY: u32 = 512;

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
    held: HashMap<SocketAddr, ArrayVec<Key, HOLDERS_MAX>>,
    /// The keys of `held`, and which of them is looked at next.
    own: Vec<SocketAddr>,
    next: usize,
}

/// What is looked at, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Some of the process's own ports, if it holds many.
    #[default]
    SomeOwn,
    /// New ports. Where another has one, it has its neighbours too: each that is refused is leaped over, farther than the one before.
    Ahead,
    /// All of the process's own.
    Own,
    /// Each port of the range.
    Each,
    /// Nothing is left.
    End,
}

/// How far a search has come.
#[derive(Debug, Default)]
struct Search {
    stage: Stage,
    /// Ports looked at, and refused, in this stage.
    looked: u32,
    refused: u32,
    /// How many places to leave out.
    leap: u32,
    /// Answers are to come to this ring, where its interface says to which they do.
    ring: u16,
    /// So many ports may yet be passed over because they would not.
    choosy: u32,
}

impl Search {
    fn enter(&mut self, stage: Stage) {
        let Self { ring, choosy, .. } = *self;
        *self = Self { stage, ring, choosy, ..Self::default() };
    }

    /// Somebody else has the port that was found.
    fn refuse(&mut self) {
        self.refused += 1;
        match self.stage {
            Stage::Ahead if self.refused < AHEAD_MAX => self.leap = 1 << self.refused,
            Stage::Ahead => self.enter(Stage::Own),
            Stage::Each if self.refused >= REFUSED_MAX => self.enter(Stage::End),
            _ => {}
        }
    }
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
    Fresh(SocketAddr),
    /// The placeholder is bound to it, and so are others.
    Shared(SocketAddr),
    /// Of those that were looked at, none.
    None,
    /// All were looked at.
    End,
}

/// Binds a placeholder to a port from which `remote` can be connected to; to one whose answers come to that ring, if there is one. `None`: there is none, as far as can be told by asking for it; the
/// kernel may have one.
///
/// # Errors
/// As bind(2).
pub(super) fn bind(
    process: &Process,
    (fd, key, family): (c_int, Key, Family),
    (source, remote): (IpAddr, SocketAddr),
    ring: u16,
) -> Result<Option<SocketAddr>, Errno> {
    let mut search = Search { ring, choosy: CHOOSY, ..Search::default() };
    loop {
        let found = process.lock().find_port((fd, key, family), (source, remote), &mut search, process.now());
        let local = match found {
            Found::Shared(local) => return Ok(Some(local)),
            Found::Fresh(local) => local,
            Found::None => continue,
            Found::End => return Ok(None),
        };
        match bind_to(fd, family, local) {
            Ok(()) => {
                process.lock().hold_port(local, key);
                return Ok(Some(local));
            }
            // (EACCES: a range that begins below 1024.)
            Err(Errno(libc::EADDRINUSE | libc::EACCES)) => search.refuse(),
            Err(error) => return Err(error),
        }
    }
}

fn bind_to(fd: c_int, family: Family, local: SocketAddr) -> Result<(), Errno> {
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
        socket: (c_int, Key, Family),
        (source, remote): (IpAddr, SocketAddr),
        search: &mut Search,
        now: ringway_stack::Instant,
    ) -> Found {
        let Self { sockets, ports, .. } = self;
        let count = ports.range(now.as_nanos() as u32 ^ sockets.len() as u32).count;
        ports.last = (ports.last + core::mem::take(&mut search.leap)) % count;
        for _ in 0..LOOKS {
            let held = self.ports.own.len();
            let (limit, then) = match search.stage {
                Stage::SomeOwn if held > count as usize / MANY => (OWN_LOOKS.min(held as u32), Stage::Ahead),
                Stage::SomeOwn => (0, Stage::Ahead),
                Stage::Ahead => (count, Stage::Own),
                Stage::Own => (held as u32, Stage::Each),
                Stage::Each => (count, Stage::End),
                Stage::End => return Found::End,
            };
            if search.looked >= limit {
                search.enter(then);
                continue;
            }
            search.looked += 1;
            let found = match search.stage {
                Stage::SomeOwn | Stage::Own => self.look_at_own(socket, (source, remote), now, search),
                _ => self.look_ahead((source, remote), now, search),
            };
            if !matches!(found, Found::None) {
                return found;
            }
        }
        Found::None
    }

    /// The next port of the range, if nobody in this process holds it.
    fn look_ahead(&mut self, (source, remote): (IpAddr, SocketAddr), now: ringway_stack::Instant, search: &mut Search) -> Found {
        let Some(allowed) = &self.ports.allowed else { return Found::None };
        self.ports.last = (self.ports.last + 1) % allowed.count;
        let local = SocketAddr::new(source, allowed.at(self.ports.last));
        if self.passes_over(local, remote, search) {
            return Found::None;
        }
        let Self { rings, ports, .. } = self;
        let Some(allowed) = &ports.allowed else { return Found::None };
        if allowed.is_reserved(local.port()) || ports.held.contains_key(&local) || !rings.tcp_is_free(now, local, remote) {
            return Found::None;
        }
        Found::Fresh(local)
    }

    /// The next port that this process holds, if its holders can share it.
    fn look_at_own(
        &mut self,
        (fd, key, family): (c_int, Key, Family),
        (source, remote): (IpAddr, SocketAddr),
        now: ringway_stack::Instant,
        search: &mut Search,
    ) -> Found {
        self.ports.next = (self.ports.next + 1) % self.ports.own.len();
        let local = self.ports.own[self.ports.next];
        if self.passes_over(local, remote, search) {
            return Found::None;
        }
        let Self { rings, sockets, ports, .. } = self;
        if local.ip() != source || !rings.tcp_is_free(now, local, remote) {
            return Found::None;
        }
        let Some(holders) = ports.held.get_mut(&local) else { return Found::None };
        holders.retain(|&mut holder| {
            sockets.find(holder).is_some_and(|socket| address::of_placeholder(socket.fd, socket.family) == Some(local))
        });
        if holders.is_empty() {
            ports.held.remove(&local);
            ports.own.swap_remove(ports.next);
            return Found::Fresh(local);
        }
        let may_share = |&holder: &Key| sockets.find(holder).is_some_and(|socket| socket.has_plain_port);
        if holders.is_full() || !holders.iter().all(may_share) {
            return Found::None;
        }
        // (Under the lock, so that no holder's number becomes another's meanwhile.)
        let fds = holders.iter().filter_map(|&holder| Some(sockets.find(holder)?.fd)).chain([fd]);
        fds.clone().for_each(|fd| share(fd, true));
        let bound = bind_to(fd, family, local);
        fds.for_each(|fd| share(fd, false));
        if bound.is_err() {
            return Found::None;
        }
        holders.push(key);
        Found::Shared(local)
    }

    /// Whether answers to a port would come to another ring than they are to, and there may be a better one.
    fn passes_over(&self, local: SocketAddr, remote: SocketAddr, search: &mut Search) -> bool {
        let is_other = search.choosy > 0
            && match self.lands_at(search.ring, Protocol::Tcp, (local, remote)) {
                Lands::Unknown => false,
                Lands::At(ring) => ring != search.ring,
                Lands::Elsewhere => true,
            };
        search.choosy -= u32::from(is_other);
        is_other
    }

    fn hold_port(&mut self, local: SocketAddr, key: Key) {
        let Self { sockets, ports, .. } = self;
        if ports.held.len() > sockets.len() + FORGOTTEN_MAX {
            ports.held.retain(|_, holders| holders.iter().any(|&holder| sockets.find(holder).is_some()));
            ports.own.clear();
            ports.own.extend(ports.held.keys());
        }
        let holders = ports.held.entry(local).or_insert_with(|| {
            ports.own.push(local);
            ArrayVec::new()
        });
        holders.clear();
        holders.push(key);
    }
}

impl Ports {
    /// The ports to choose from. `seed`: where to begin, the first time.
    fn range(&mut self, seed: u32) -> &Allowed {
        self.allowed.get_or_insert_with(|| {
            self.last = seed ^ std::process::id().wrapping_mul(0x9e37_79b9);
            Allowed::read()
        })
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
