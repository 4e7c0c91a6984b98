//! What a socket asks of a ring: object-safe, so that rings of several devices stand side by side, at one virtual call for each call of a program.

use core::any::Any;
use core::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use crate::device::Queues;
use crate::error::Error;
use crate::flow::Readiness;
use crate::ring::{Datagram, FlowId, FlowInfo, Handover, NextHop, RecvFlags, Ring, SendFlags, Shutdown, UdpHandover, UdpOptions};
use crate::tcp;
use crate::time::Instant;

/// The rings of one owner, by their numbers ([`FlowId::ring`]).
pub trait Rings {
    /// A ring, for one call or a few. Whoever has locks takes that ring's here, and has released the one before: no two are ever held at once, so that
    /// their order does not matter. `None`: there is none of that number.
    fn at(&mut self, number: u16) -> Option<&mut dyn FlowRing>;
}

/// A connection, or a datagram socket's address, between two rings of one device. Dropped, it is gone without a word to the peer.
pub struct Parcel(Box<dyn Any>);

impl Parcel {
    /// Of what one kind of ring gives away, and takes.
    pub fn new<T: 'static>(content: T) -> Self {
        Self(Box::new(content))
    }

    /// What is in it, if it is of that kind.
    ///
    /// # Errors
    /// It is of another kind, and comes back.
    pub fn open<T: 'static>(self) -> Result<T, Self> {
        self.0.downcast().map(|content| *content).map_err(Self)
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").finish_non_exhaustive()
    }
}

/// One ring, as sockets see it. All calls are [`Ring`]'s, with its errors.
#[expect(clippy::missing_errors_doc, reason = "they are the ring's, and each call names its own")]
pub trait FlowRing {
    /// See [`Ring::tcp_listen`].
    fn listen(&mut self, local: SocketAddr, backlog: usize, config: &tcp::Config) -> Result<FlowId, Error>;
    /// See [`Ring::tcp_set_backlog`].
    fn set_backlog(&mut self, listener: FlowId, backlog: usize) -> Result<(), Error>;
    /// See [`Ring::tcp_accept`].
    fn accept(&mut self, listener: FlowId) -> Result<FlowId, Error>;
    /// See [`Ring::tcp_connect`].
    fn connect(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr, hop: NextHop, config: &tcp::Config)
    -> Result<FlowId, Error>;
    /// See [`Ring::tcp_send`].
    fn send(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error>;
    /// See [`Ring::tcp_recv`].
    fn recv(&mut self, now: Instant, flow: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Error>;

    /// See [`Ring::udp_open`].
    fn open(&mut self, local: SocketAddr, options: &UdpOptions) -> Result<FlowId, Error>;
    /// See [`Ring::udp_connect`].
    fn set_peer(&mut self, flow: FlowId, source: IpAddr, remote: Option<(SocketAddr, NextHop)>) -> Result<(), Error>;
    /// See [`Ring::udp_send`].
    fn send_to(
        &mut self,
        now: Instant,
        flow: FlowId,
        data: &[IoSlice<'_>],
        source: IpAddr,
        to: Option<(SocketAddr, NextHop)>,
    ) -> Result<usize, Error>;
    /// See [`Ring::udp_recv`].
    fn recv_from(&mut self, flow: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error>;
    /// See [`Ring::udp_join`].
    fn join(&mut self, now: Instant, flow: FlowId, group: IpAddr, from: IpAddr) -> Result<(), Error>;
    /// See [`Ring::udp_leave`].
    fn leave(&mut self, now: Instant, flow: FlowId, group: IpAddr) -> Result<(), Error>;

    /// See [`Ring::arrived`].
    fn arrived(&self, flow: FlowId) -> Option<Instant>;
    /// See [`Ring::readiness`].
    fn readiness(&self, flow: FlowId) -> Readiness;
    /// See [`Ring::take_error`].
    fn take_error(&mut self, flow: FlowId) -> Option<Error>;
    /// See [`Ring::info`].
    fn info(&self, flow: FlowId) -> Option<FlowInfo>;
    /// See [`Ring::shutdown`].
    fn shutdown(&mut self, now: Instant, flow: FlowId, how: Shutdown) -> Result<(), Error>;
    /// See [`Ring::close`].
    fn close(&mut self, now: Instant, flow: FlowId, abort: bool);
    /// See [`Ring::next_deadline`].
    fn next_deadline(&self) -> Option<Instant>;

    /// See [`Ring::tcp_may_leave`] and [`Ring::udp_may_leave`].
    fn may_leave(&self, flow: FlowId) -> bool;
    /// Gives a connection away, for another ring of the same device: see [`Ring::detach_stream`].
    fn detach(&mut self, now: Instant, flow: FlowId) -> Result<Parcel, Error>;
    /// Takes a connection over: see [`Ring::adopt`]. [`Error::NotSupported`]: it is of another kind of device. Whatever the error, it comes back whole.
    fn adopt(&mut self, now: Instant, parcel: Parcel) -> Result<FlowId, (Error, Parcel)>;

    /// Gives a datagram socket's address away, for another ring of the same device: see [`Ring::udp_hand_over`].
    fn hand_over(&mut self, flow: FlowId) -> Result<Parcel, Error>;
    /// Takes a datagram socket's address over: see [`Ring::udp_adopt`]. Errors as [`FlowRing::adopt`].
    fn take_over(&mut self, parcel: Parcel) -> Result<FlowId, (Error, Parcel)>;
    /// See [`Ring::udp_take_back`]; `parcel` is what [`FlowRing::hand_over`] gave.
    fn take_back(&mut self, flow: FlowId, parcel: Parcel);
    /// See [`Ring::udp_come_to`].
    fn come_to(&mut self, now: Instant, flow: FlowId) -> usize;
    /// See [`Ring::udp_count_elsewhere`].
    fn count_elsewhere(&mut self, flow: FlowId, filled: usize);
    /// See [`Ring::give_back`].
    fn give_back(&mut self, now: Instant, flow: FlowId, len: usize);
}

impl<Q: Queues + 'static> FlowRing for Ring<Q> {
    fn listen(&mut self, local: SocketAddr, backlog: usize, config: &tcp::Config) -> Result<FlowId, Error> {
        self.tcp_listen(local, backlog, config)
    }

    fn set_backlog(&mut self, listener: FlowId, backlog: usize) -> Result<(), Error> {
        self.tcp_set_backlog(listener, backlog)
    }

    fn accept(&mut self, listener: FlowId) -> Result<FlowId, Error> {
        self.tcp_accept(listener)
    }

    fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        hop: NextHop,
        config: &tcp::Config,
    ) -> Result<FlowId, Error> {
        self.tcp_connect(now, local, remote, hop, config)
    }

    fn send(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error> {
        self.tcp_send(now, flow, data, flags)
    }

    fn recv(&mut self, now: Instant, flow: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Error> {
        self.tcp_recv(now, flow, into, flags)
    }

    fn open(&mut self, local: SocketAddr, options: &UdpOptions) -> Result<FlowId, Error> {
        self.udp_open(local, options)
    }

    fn set_peer(&mut self, flow: FlowId, source: IpAddr, remote: Option<(SocketAddr, NextHop)>) -> Result<(), Error> {
        self.udp_connect(flow, source, remote)
    }

    fn send_to(
        &mut self,
        now: Instant,
        flow: FlowId,
        data: &[IoSlice<'_>],
        source: IpAddr,
        to: Option<(SocketAddr, NextHop)>,
    ) -> Result<usize, Error> {
        self.udp_send(now, flow, data, source, to)
    }

    fn recv_from(&mut self, flow: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error> {
        self.udp_recv(flow, into, flags)
    }

    fn join(&mut self, now: Instant, flow: FlowId, group: IpAddr, from: IpAddr) -> Result<(), Error> {
        self.udp_join(now, flow, group, from)
    }

    fn leave(&mut self, now: Instant, flow: FlowId, group: IpAddr) -> Result<(), Error> {
        self.udp_leave(now, flow, group)
    }

    fn arrived(&self, flow: FlowId) -> Option<Instant> {
        Self::arrived(self, flow)
    }

    fn readiness(&self, flow: FlowId) -> Readiness {
        Self::readiness(self, flow)
    }

    fn take_error(&mut self, flow: FlowId) -> Option<Error> {
        Self::take_error(self, flow)
    }

    fn info(&self, flow: FlowId) -> Option<FlowInfo> {
        Self::info(self, flow)
    }

    fn shutdown(&mut self, now: Instant, flow: FlowId, how: Shutdown) -> Result<(), Error> {
        Self::shutdown(self, now, flow, how)
    }

    fn close(&mut self, now: Instant, flow: FlowId, abort: bool) {
        Self::close(self, now, flow, abort);
    }

    fn next_deadline(&self) -> Option<Instant> {
        Self::next_deadline(self)
    }

    fn may_leave(&self, flow: FlowId) -> bool {
        self.tcp_may_leave(flow) || self.udp_may_leave(flow)
    }

    fn detach(&mut self, now: Instant, flow: FlowId) -> Result<Parcel, Error> {
        self.detach_stream(now, flow).map(Parcel::new)
    }

    fn adopt(&mut self, now: Instant, parcel: Parcel) -> Result<FlowId, (Error, Parcel)> {
        match parcel.open::<Handover<Q>>() {
            Ok(handover) => Self::adopt(self, now, handover).map_err(|(error, handover)| (error, Parcel::new(handover))),
            Err(parcel) => Err((Error::NotSupported, parcel)),
        }
    }

    fn hand_over(&mut self, flow: FlowId) -> Result<Parcel, Error> {
        self.udp_hand_over(flow).map(Parcel::new)
    }

    fn take_over(&mut self, parcel: Parcel) -> Result<FlowId, (Error, Parcel)> {
        match parcel.open::<Box<UdpHandover<Q>>>() {
            Ok(handover) => self.udp_adopt(handover).map_err(|(error, handover)| (error, Parcel::new(handover))),
            Err(parcel) => Err((Error::NotSupported, parcel)),
        }
    }

    fn take_back(&mut self, flow: FlowId, parcel: Parcel) {
        if let Ok(handover) = parcel.open::<Box<UdpHandover<Q>>>() {
            self.udp_take_back(flow, *handover);
        }
    }

    fn come_to(&mut self, now: Instant, flow: FlowId) -> usize {
        self.udp_come_to(now, flow)
    }

    fn count_elsewhere(&mut self, flow: FlowId, filled: usize) {
        self.udp_count_elsewhere(flow, filled);
    }

    fn give_back(&mut self, now: Instant, flow: FlowId, len: usize) {
        Self::give_back(self, now, flow, len);
    }
}
