//! The world that a script sees: one ring, its clock, and the descriptors of the program.

use core::ffi::c_int;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};

use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, Ring, RingConfig};

use crate::device::Link;
use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::settings::Settings;
use crate::sockets::{Kind, Socket};

/// When the world begins: not at zero, which would be a time that no clock shows.
const BEGIN: Duration = Duration::from_secs(1_000);
/// Ports for sockets that are not bound (net.ipv4.ip_local_port_range).
const PORTS: core::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Polls at one moment: more means that the ring does not come to rest, which would hang the tester.
const POLLS_MAX: usize = 1 << 16;

/// What a descriptor is.
pub(crate) enum Object {
    Socket(Box<Socket>),
    Epoll(Epoll),
}

/// A descriptor of ours. Its number is one of the kernel's, so that the tester has no other of that number, and can close at its end what a script has left
/// open: it does so by the system's close(2), whatever it tests.
struct Descriptor {
    object: Object,
    placeholder: OwnedFd,
}

/// See the module's documentation.
pub(crate) struct World {
    pub(crate) ring: Ring<Link>,
    pub(crate) settings: Settings,
    now: Instant,
    objects: BTreeMap<c_int, Descriptor>,
    owners: BTreeMap<FlowId, c_int>,
    next_port: u16,
}

impl World {
    /// A host with these settings. Every run is like every other.
    pub(crate) fn new(settings: Settings) -> Self {
        let config = RingConfig { time_wait: settings.tcp.time_wait, ..RingConfig::default() };
        let ring = Ring::new(Link::new(settings.mtu), config, [7; 32]);
        let now = Instant::ZERO + BEGIN;
        let mut world = Self { ring, settings, now, objects: BTreeMap::new(), owners: BTreeMap::new(), next_port: *PORTS.start() };
        world.set_now(now);
        world
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Moves the clock, and nothing else. It never goes back.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.ring.queues_mut().now = self.now;
    }

    /// Does all that is to be done by now.
    pub(crate) fn run(&mut self) {
        for _ in 0..POLLS_MAX {
            if self.ring.poll(self.now) == 0 {
                break;
            }
        }
        self.ring.tidy();
        while let Some(event) = self.ring.take_event() {
            if let Some(fd) = self.owners.get(&event.flow) {
                epolls(&mut self.objects).for_each(|epoll| epoll.changed(*fd));
            }
        }
    }

    /// Takes notice of sysctls that have changed. What a connection agrees on concerns listeners that are there already; all else, what is opened from now on.
    pub(crate) fn look_at_sysctls(&mut self) {
        if !self.settings.change() {
            return;
        }
        let now = self.settings.tcp.clone();
        let fds: Vec<c_int> = self.objects.keys().copied().collect();
        for fd in fds {
            if self.socket(fd).is_ok_and(|socket| !matches!(socket.kind, Kind::Stream { .. })) {
                let _ = self.configure(fd, |config| {
                    (config.timestamps, config.sack, config.window_scaling) = (now.timestamps, now.sack, now.window_scaling);
                    config.fast_open.keys = config.fast_open.keys.or(now.fast_open.keys);
                });
            }
        }
    }

    /// When the ring is to be looked at next; never in the past.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.ring.next_deadline().map(|at| at.max(self.now))
    }

    /// A new descriptor.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn add(&mut self, object: Object) -> Result<c_int, Errno> {
        // SAFETY: the call has no memory to care for.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(Errno(libc::EMFILE));
        }
        // SAFETY: the kernel has just given it to us, and to nobody else.
        let placeholder = unsafe { OwnedFd::from_raw_fd(fd) };
        self.objects.insert(fd, Descriptor { object, placeholder });
        Ok(fd)
    }

    /// Whether the descriptor is one of ours.
    pub(crate) fn has(&self, fd: c_int) -> bool {
        self.objects.contains_key(&fd)
    }

    /// Takes a descriptor away.
    ///
    /// # Errors
    /// EBADF.
    pub(crate) fn remove(&mut self, fd: c_int) -> Result<Object, Errno> {
        let Descriptor { object, placeholder } = self.objects.remove(&fd).ok_or(Errno::BAD_DESCRIPTOR)?;
        drop(placeholder);
        epolls(&mut self.objects).for_each(|epoll| epoll.forget(fd));
        Ok(object)
    }

    /// A socket.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub(crate) fn socket(&mut self, fd: c_int) -> Result<&mut Socket, Errno> {
        Ok(self.socket_and_ring(fd)?.0)
    }

    /// A socket, and the ring beside it.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub(crate) fn socket_and_ring(&mut self, fd: c_int) -> Result<(&mut Socket, &mut Ring<Link>), Errno> {
        match self.objects.get_mut(&fd).map(|descriptor| &mut descriptor.object) {
            Some(Object::Socket(socket)) => Ok((socket, &mut self.ring)),
            Some(Object::Epoll(_)) => Err(Errno(libc::ENOTSOCK)),
            None => Err(Errno::BAD_DESCRIPTOR),
        }
    }

    /// An instance of epoll.
    ///
    /// # Errors
    /// EBADF; EINVAL: it is something else.
    pub(crate) fn epoll(&mut self, fd: c_int) -> Result<&mut Epoll, Errno> {
        match self.objects.get_mut(&fd).map(|descriptor| &mut descriptor.object) {
            Some(Object::Epoll(epoll)) => Ok(epoll),
            Some(Object::Socket(_)) => Err(Errno::INVALID),
            None => Err(Errno::BAD_DESCRIPTOR),
        }
    }

    /// What a descriptor is ready for, in poll(2)'s bits; of epoll's instances: nothing.
    ///
    /// # Errors
    /// EBADF.
    pub(crate) fn readiness(&self, fd: c_int) -> Result<u32, Errno> {
        match self.objects.get(&fd).map(|descriptor| &descriptor.object) {
            Some(Object::Socket(socket)) => Ok(socket.readiness(&self.ring)),
            Some(Object::Epoll(_)) => Ok(0),
            None => Err(Errno::BAD_DESCRIPTOR),
        }
    }

    /// A flow belongs to a descriptor from now on.
    pub(crate) fn owns(&mut self, fd: c_int, flow: FlowId) {
        self.owners.insert(flow, fd);
    }

    /// A flow is gone.
    pub(crate) fn disown(&mut self, flow: FlowId) {
        self.owners.remove(&flow);
    }

    /// The address of this host that a connection to `remote` comes from.
    pub(crate) fn local_for(&self, remote: IpAddr) -> IpAddr {
        if remote.is_ipv4() { self.settings.local_v4 } else { self.settings.local_v6 }
    }

    /// A port that no connection between these addresses has.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: there is none.
    pub(crate) fn free_port(&mut self, local: IpAddr, remote: Option<SocketAddr>) -> Result<u16, Errno> {
        for _ in PORTS {
            let port = self.next_port;
            self.next_port = if port == *PORTS.end() { *PORTS.start() } else { port + 1 };
            if remote.is_none_or(|remote| self.ring.tcp_is_free(self.now, SocketAddr::new(local, port), remote)) {
                return Ok(port);
            }
        }
        Err(Errno(libc::EADDRNOTAVAIL))
    }
}

fn epolls(objects: &mut BTreeMap<c_int, Descriptor>) -> impl Iterator<Item = &mut Epoll> {
    objects.values_mut().filter_map(|descriptor| match &mut descriptor.object {
        Object::Epoll(epoll) => Some(epoll),
        Object::Socket(_) => None,
    })
}

impl Drop for World {
    /// What a program has left open until now, the tester has closed itself, by number.
    fn drop(&mut self) {
        for (_, Descriptor { placeholder, .. }) in core::mem::take(&mut self.objects) {
            let _ = placeholder.into_raw_fd();
        }
    }
}
