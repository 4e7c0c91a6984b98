//! A host's sockets as its programs call them: the ring, with each call noted for the checkers.

use core::cell::RefCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use ringway_stack::ring::{Datagram, Event, NextHop, RecvFlags, Ring, SendFlags, Shutdown, SocketId, UdpOptions};
use ringway_stack::{Error, Instant, tcp};

use crate::checkers::Checkers;
use crate::device::SimDevice;

/// A host's ring. Its calls are [`Ring`]'s; those that programs make with bytes are compared with what the wire shows.
pub struct Sockets {
    ring: Ring<SimDevice>,
    host: usize,
    checkers: Option<Rc<RefCell<Checkers>>>,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Deref for Sockets {
    type Target = Ring<SimDevice>;

    fn deref(&self) -> &Ring<SimDevice> {
        &self.ring
    }
}

impl DerefMut for Sockets {
    fn deref_mut(&mut self) -> &mut Ring<SimDevice> {
        &mut self.ring
    }
}

impl Sockets {
    /// Nobody checks yet.
    pub(crate) fn new(host: usize, ring: Ring<SimDevice>) -> Self {
        Self { ring, host, checkers: None }
    }

    /// From now on `checkers` see every call.
    pub(crate) fn watch(&mut self, checkers: &Rc<RefCell<Checkers>>, ip: Ipv4Addr, time_wait: Duration) {
        checkers.borrow_mut().adopt(self.host, ip, time_wait);
        self.checkers = Some(Rc::clone(checkers));
    }

    /// Puts a new ring in the place of the old one, whose sockets are gone: the host crashed.
    pub fn replace(&mut self, ring: Ring<SimDevice>) {
        self.ring = ring;
        if let Some(checkers) = &self.checkers {
            checkers.borrow_mut().restart(self.host);
        }
    }

    fn note(&self, note: impl FnOnce(&mut Checkers, usize, &Ring<SimDevice>)) {
        if let Some(checkers) = &self.checkers {
            note(&mut checkers.borrow_mut(), self.host, &self.ring);
        }
    }

    /// See [`Ring::poll`].
    pub fn poll(&mut self, now: Instant) -> usize {
        self.note(|checkers, host, _| checkers.polls(host, now));
        self.ring.poll(now)
    }

    /// See [`Ring::take_event`].
    pub fn take_event(&mut self) -> Option<Event> {
        let event = self.ring.take_event();
        self.note(|checkers, host, ring| match event {
            Some(event) => checkers.event(host, event),
            None => checkers.polled(host, ring),
        });
        event
    }

    /// See [`Ring::tcp_connect`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        hop: NextHop,
        config: &tcp::Config,
    ) -> Result<SocketId, Error> {
        let socket = self.ring.tcp_connect(now, local, remote, hop, config)?;
        self.note(|checkers, host, ring| checkers.connected(host, now, ring, (local, remote), config.keepalive, socket));
        Ok(socket)
    }

    /// See [`Ring::tcp_listen`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_listen(&mut self, local: SocketAddrV4, backlog: usize, config: &tcp::Config) -> Result<SocketId, Error> {
        let socket = self.ring.tcp_listen(local, backlog, config)?;
        self.note(|checkers, host, ring| checkers.opened(host, ring, true, local.port(), config.keepalive, socket));
        Ok(socket)
    }

    /// See [`Ring::tcp_accept`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_accept(&mut self, listener: SocketId) -> Result<SocketId, Error> {
        let socket = self.ring.tcp_accept(listener)?;
        self.note(|checkers, host, ring| checkers.accepted(host, ring, listener, socket));
        Ok(socket)
    }

    /// See [`Ring::tcp_configure`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_configure(&mut self, now: Instant, socket: SocketId, change: impl FnOnce(&mut tcp::Config)) -> Result<(), Error> {
        let mut keepalive = None;
        self.ring.tcp_configure(now, socket, |config| {
            change(config);
            keepalive = config.keepalive;
        })?;
        self.note(|checkers, host, ring| checkers.configured(host, now, ring, socket, keepalive));
        Ok(())
    }

    /// See [`Ring::tcp_send`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_send(&mut self, now: Instant, socket: SocketId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error> {
        let result = self.ring.tcp_send(now, socket, data, flags);
        self.note(|checkers, host, ring| checkers.wrote(host, now, ring, socket, data, result));
        result
    }

    /// See [`Ring::tcp_recv`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_recv(&mut self, now: Instant, socket: SocketId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Error> {
        let result = self.ring.tcp_recv(now, socket, into, flags);
        self.note(|checkers, host, ring| checkers.read(host, now, ring, socket, into, flags, result));
        result
    }

    /// See [`Ring::take_error`].
    pub fn take_error(&mut self, socket: SocketId) -> Option<Error> {
        let error = self.ring.take_error(socket);
        self.note(|checkers, host, ring| checkers.took_error(host, ring, socket, error));
        error
    }

    /// See [`Ring::shutdown`].
    ///
    /// # Errors
    /// The ring's.
    pub fn shutdown(&mut self, now: Instant, socket: SocketId, how: Shutdown) -> Result<(), Error> {
        let result = self.ring.shutdown(now, socket, how);
        self.note(|checkers, host, ring| checkers.shut(host, now, ring, socket, how, result));
        result
    }

    /// See [`Ring::close`].
    pub fn close(&mut self, now: Instant, socket: SocketId, abort: bool) {
        self.note(|checkers, host, ring| checkers.closes(host, now, ring, socket, abort));
        self.ring.close(now, socket, abort);
        self.note(|checkers, host, _| checkers.closed(host, socket));
    }

    /// See [`Ring::udp_open`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_open(&mut self, local: SocketAddrV4, options: &UdpOptions) -> Result<SocketId, Error> {
        let socket = self.ring.udp_open(local, options)?;
        self.note(|checkers, host, ring| checkers.opened(host, ring, false, local.port(), None, socket));
        Ok(socket)
    }

    /// See [`Ring::udp_send`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_send(
        &mut self,
        now: Instant,
        socket: SocketId,
        data: &[IoSlice<'_>],
        source: Ipv4Addr,
        to: Option<(SocketAddrV4, NextHop)>,
    ) -> Result<usize, Error> {
        let result = self.ring.udp_send(now, socket, data, source, to);
        self.note(|checkers, host, ring| checkers.udp_sent(host, now, ring, socket, data, source, to.map(|(to, _)| to)));
        result
    }

    /// See [`Ring::udp_recv`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_recv(&mut self, socket: SocketId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error> {
        let result = self.ring.udp_recv(socket, into, flags);
        self.note(|checkers, host, ring| checkers.udp_read(host, ring, socket, into, flags, result));
        result
    }
}
