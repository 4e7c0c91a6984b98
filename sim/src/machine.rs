//! A host with several NICs: several hosts of a world whose rings are one machine's, for a program that calls its sockets
//! ([`ringway_stack::socket`]).

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use ringway_stack::ring::{
    Datagram, FlowId, FlowInfo, Handover, NextHop, Readiness, RecvFlags, SendFlags, Shutdown, UdpHandover, UdpOptions,
};
use ringway_stack::socket::{FlowRing, Parcel, Rings};
use ringway_stack::{Error, Instant, tcp};

use crate::host::Step;
use crate::nic::SimQueues;
use crate::sockets::Sockets;

/// A program on a machine. As with [`crate::App`], it is called when something changed, and when the time that it asked for has come.
pub trait MachineApp {
    /// Does what can be done now, and says when to be called next at the latest.
    fn step(&mut self, cx: &mut MachineContext<'_>) -> Step;
}

/// What it sees of its machine.
#[derive(Debug)]
pub struct MachineContext<'a> {
    /// The time on the machine's clock.
    pub now: Instant,
    /// Its rings.
    pub ports: Ports<'a>,
}

/// A machine's rings: the number of each is its place.
#[derive(Debug)]
pub struct Ports<'a>(pub(crate) Vec<&'a mut Sockets>);

impl Ports<'_> {
    /// A ring, to look at, or to be called beside all sockets.
    ///
    /// # Panics
    /// There is none of that number.
    pub fn ring(&mut self, number: u16) -> &mut Sockets {
        self.0[usize::from(number)]
    }

    /// All of them, to look at.
    pub fn iter(&self) -> impl Iterator<Item = &Sockets> {
        self.0.iter().map(|ring| &**ring)
    }
}

impl Rings for Ports<'_> {
    fn at(&mut self, number: u16) -> Option<&mut dyn FlowRing> {
        self.0.get_mut(usize::from(number)).map(|ring| *ring as &mut dyn FlowRing)
    }
}

/// The ring's calls, as its checkers see them.
impl FlowRing for Sockets {
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
        (**self).arrived(flow)
    }

    fn readiness(&self, flow: FlowId) -> Readiness {
        Self::readiness(self, flow)
    }

    fn take_error(&mut self, flow: FlowId) -> Option<Error> {
        Self::take_error(self, flow)
    }

    fn info(&self, flow: FlowId) -> Option<FlowInfo> {
        (**self).info(flow)
    }

    fn shutdown(&mut self, now: Instant, flow: FlowId, how: Shutdown) -> Result<(), Error> {
        Self::shutdown(self, now, flow, how)
    }

    fn close(&mut self, now: Instant, flow: FlowId, abort: bool) {
        Self::close(self, now, flow, abort);
    }

    fn next_deadline(&self) -> Option<Instant> {
        (**self).next_deadline()
    }

    fn may_leave(&self, flow: FlowId) -> bool {
        self.tcp_may_leave(flow) || self.udp_may_leave(flow)
    }

    fn detach(&mut self, now: Instant, flow: FlowId) -> Result<Parcel, Error> {
        self.detach_stream(now, flow).map(Parcel::new)
    }

    fn adopt(&mut self, now: Instant, parcel: Parcel) -> Result<FlowId, (Error, Parcel)> {
        match parcel.open::<Handover<SimQueues>>() {
            Ok(handover) => Self::adopt(self, now, handover).map_err(|(error, handover)| (error, Parcel::new(handover))),
            Err(parcel) => Err((Error::NotSupported, parcel)),
        }
    }

    fn hand_over(&mut self, flow: FlowId) -> Result<Parcel, Error> {
        self.udp_hand_over(flow).map(Parcel::new)
    }

    fn take_over(&mut self, parcel: Parcel) -> Result<FlowId, (Error, Parcel)> {
        match parcel.open::<Box<UdpHandover<SimQueues>>>() {
            Ok(handover) => self.udp_adopt(handover).map_err(|(error, handover)| (error, Parcel::new(handover))),
            Err(parcel) => Err((Error::NotSupported, parcel)),
        }
    }

    fn take_back(&mut self, flow: FlowId, parcel: Parcel) {
        if let Ok(handover) = parcel.open::<Box<UdpHandover<SimQueues>>>() {
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
        (**self).give_back(now, flow, len);
    }
}
