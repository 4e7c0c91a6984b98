//! Datagram sockets: a queue pair, and the UDP socket beside it by which peers tell each other of theirs. The descriptor is the UDP socket's.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use ringway_devices::messages::{Fabric, Found};
use ringway_preload::Errno;
use ringway_stack::device::messages::Messages as _;
use ringway_stack::flow::Readiness;
use ringway_stack::rsocket::wire::ServiceHeader;
use ringway_stack::rsocket::{Datagrams, Options};
use ringway_stack::{Error, Instant};
use rustix::io::Errno as System;
use rustix::net::{RecvFlags, SendFlags};

use crate::library::errno;
use crate::memory::Plane;

/// The longest datagram of rsockets' on UDP: a header, and what a receiver has a place for.
const UDP_MAX: usize = 2048 + 28;
/// Peers whose processes are remembered; of any more, all are asked for anew.
const WAYS_MAX: usize = 4096;
/// The longest of UDP's own.
const PLAIN_MAX: usize = 65_535;
/// So many of these wait to be read; what comes then is lost, as where a socket's buffer is full.
const PLAIN_QUEUE_MAX: usize = 256;
/// Datagrams that are taken from UDP at a time: others want the lock, too.
const BURST: usize = 64;

/// A datagram socket.
pub(crate) struct Datagram {
    pub(crate) options: Options,
    /// `None` until it is bound.
    pub(crate) open: Option<Open>,
}

/// One that is bound.
pub(crate) struct Open {
    pub(crate) local: SocketAddr,
    /// Whom it was connected to.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) state: Datagrams,
    /// Which processes have the addresses that it sends to.
    ways: BTreeMap<SocketAddr, Found>,
    /// [`Fabric::losses`] when all of them were there.
    losses: u64,
    /// Where it is of both worlds: datagrams of UDP's own, from peers that are no rsockets.
    pub(crate) plain: Option<VecDeque<(SocketAddr, Vec<u8>)>>,
}

impl Datagram {
    pub(crate) const fn new(options: Options) -> Self {
        Self { options, open: None }
    }

    /// Makes queue pairs for a UDP socket that was bound to `local`.
    ///
    /// # Errors
    /// ENOMEM: the device's limits.
    pub(crate) fn open(&mut self, plane: &mut Plane, local: SocketAddr) -> Result<(), Errno> {
        let device = plane;
        let pd = device.alloc_pd();
        let mut state = Datagrams::open(device, pd, &self.options, local).map_err(|_| Errno(libc::ENOMEM))?;
        state.set_doubts(!device.tells_of_peers());
        self.open = Some(Open { local, peer: None, state, ways: BTreeMap::new(), losses: 0, plain: None });
        Ok(())
    }
}

impl Open {
    /// Whether it is known for certain which process has `to`.
    pub(crate) fn knows(&self, fabric: &Fabric, to: SocketAddr) -> bool {
        self.ways.get(&to).is_some_and(|found| fabric.still_holds(found))
    }

    /// A process has that address.
    pub(crate) fn learn(&mut self, fabric: &Fabric, of: SocketAddr, found: Found) {
        let losses = fabric.losses();
        if self.ways.len() >= WAYS_MAX || self.losses != losses {
            // (What is known of one that is gone keeps its memory.)
            self.losses = losses;
            let is_full = self.ways.len() >= WAYS_MAX;
            for (known, _) in self.ways.extract_if(.., |_, found| is_full || !fabric.still_holds(found)) {
                self.state.forget(known);
            }
        }
        if self.ways.insert(of, found).is_some() {
            // Its rules have changed since: it may have another queue pair, or be another process.
            self.state.forget(of);
        }
    }

    /// Sends to whoever is known to have `to`.
    ///
    /// # Errors
    /// [`Datagrams::send_to`]'s.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        udp: BorrowedFd<'_>,
        plane: &mut Plane,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Result<usize, Errno> {
        // (The adapter has it for as long as the call lasts: another socket's may be another one.)
        plane.resolve_datagrams(to, self.ways.get(&to).and_then(Found::gid));
        let sent = self.state.send_to(now, plane, bytes, to).map_err(errno);
        plane.resolve_datagrams(to, None);
        self.send_udp(udp);
        sent
    }

    /// Receives, with its whole length, and from whom.
    ///
    /// # Errors
    /// [`Datagrams::recv_from`]'s.
    pub(crate) fn recv(
        &mut self,
        now: Instant,
        plane: &mut Plane,
        out: &mut [u8],
        peek: bool,
    ) -> Result<(usize, usize, SocketAddr), Error> {
        if let Some(plain) = &mut self.plain
            && let Some((from, bytes)) = plain.front()
        {
            let (from, whole, len) = (*from, bytes.len(), bytes.len().min(out.len()));
            out[..len].copy_from_slice(&bytes[..len]);
            if !peek {
                plain.pop_front();
            }
            return Ok((len, whole, from));
        }
        let device = plane;
        self.state.poll(now, device);
        let whole = self.state.next_len().ok_or(Error::WouldBlock)?;
        let (len, from) = self.state.recv_from(now, device, out, peek)?;
        Ok((len, whole, from))
    }

    /// Takes what came by UDP. Whether anything did.
    pub(crate) fn take_udp(&mut self, now: Instant, udp: BorrowedFd<'_>, plane: &mut Plane, fabric: &Fabric) -> bool {
        let mut bytes = vec![0; if self.plain.is_some() { PLAIN_MAX } else { UDP_MAX }];
        for taken in 0..BURST {
            let received = rustix::net::recvfrom(udp, &mut bytes, RecvFlags::DONTWAIT);
            let (len, from) = match received {
                Ok((len, _, Some(from))) => (len, from),
                // What was sent before may have come to nobody: that is told once, and nobody wants to know.
                Ok(_) | Err(System::CONNREFUSED | System::INTR) => continue,
                Err(_) => return taken > 0,
            };
            let Ok(from) = SocketAddr::try_from(from) else { continue };
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            if !is_of_rsockets(&bytes[..len])
                && let Some(plain) = &mut self.plain
            {
                if plain.len() < PLAIN_QUEUE_MAX && self.peer.is_none_or(|peer| peer == from) {
                    plain.push_back((from, bytes[..len].to_vec()));
                }
                continue;
            }
            // Whoever sends to us has found us, and so is connected with us.
            if !self.knows(fabric, from)
                && let Some(found) = fabric.known_datagrams(from)
            {
                self.learn(fabric, from, found);
            }
            plane.resolve_datagrams(from, self.ways.get(&from).and_then(Found::gid));
            self.state.on_udp(now, plane, from, &bytes[..len.min(UDP_MAX)]);
            plane.resolve_datagrams(from, None);
        }
        self.send_udp(udp);
        true
    }

    /// What it is ready for.
    pub(crate) fn readiness(&self) -> Readiness {
        let mut ready = self.state.readiness();
        ready.set(Readiness::IN, ready.contains(Readiness::IN) || self.plain.as_ref().is_some_and(|plain| !plain.is_empty()));
        ready
    }

    /// Gives the UDP socket what it is to send. What it does not take is lost, as datagrams may be.
    fn send_udp(&mut self, udp: BorrowedFd<'_>) {
        while let Some((to, bytes)) = self.state.poll_udp() {
            let _ = send_plain(udp, &bytes, to);
        }
    }
}

fn is_of_rsockets(bytes: &[u8]) -> bool {
    ServiceHeader::parse(bytes).is_some()
}

/// Sends by UDP itself.
///
/// # Errors
/// sendto(2)'s.
pub(crate) fn send_plain(udp: BorrowedFd<'_>, bytes: &[u8], to: SocketAddr) -> Result<usize, Errno> {
    let of_v6 = rustix::net::sockopt::socket_domain(udp) == Ok(rustix::net::AddressFamily::INET6);
    let to = match to {
        SocketAddr::V4(to) if of_v6 => SocketAddr::new(to.ip().to_ipv6_mapped().into(), to.port()),
        to => to,
    };
    rustix::net::sendto(udp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to).map_err(|error| Errno(error.raw_os_error()))
}
