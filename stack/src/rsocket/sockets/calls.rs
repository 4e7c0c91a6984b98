//! What programs do with one socket. Nothing blocks: what would is [`Error::WouldBlock`].

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::{Closing, Connected, Kind, Listener, Socket, SocketId, Sockets};
use crate::device::messages::{Arm, CmError, Connections, Messages};
use crate::error::Error;
use crate::flow::Readiness;
use crate::rsocket::options::{OptionName, OptionValue, Stage};
use crate::rsocket::stream::{DirectTarget, Mapping, Shutdown, Stream};
use crate::time::Instant;

/// The most connections that wait for one listener, as Linux has it (SOMAXCONN).
const BACKLOG_MAX: usize = 4096;

impl Sockets {
    /// Gives a socket its own name.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it has one already.
    pub fn bind(&mut self, id: SocketId, at: SocketAddr) -> Result<(), Error> {
        let socket = self.get_mut(id)?;
        if socket.local.port() != 0 || !matches!(socket.kind, Kind::Fresh) {
            return Err(Error::Invalid);
        }
        socket.local = at;
        Ok(())
    }

    /// Says which name a socket has that is about to be connected: where it was bound to no address, or not at all, the way there says which it is.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it has another one already, or is beyond that.
    pub fn assign(&mut self, id: SocketId, name: SocketAddr) -> Result<(), Error> {
        let socket = self.get_mut(id)?;
        let (ip, port) = (socket.local.ip(), socket.local.port());
        let fits = (port == 0 || port == name.port()) && (ip.is_unspecified() || ip == name.ip());
        if !fits || !matches!(socket.kind, Kind::Fresh) {
            return Err(Error::Invalid);
        }
        socket.local = name;
        Ok(())
    }

    /// Listens. A socket that listens already gets another backlog.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it is connected, or has no port; [`Error::AddressInUse`].
    pub fn listen<D: Connections>(&mut self, device: &mut D, id: SocketId, backlog: usize) -> Result<(), Error> {
        let socket = self.get_mut(id)?;
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        match &mut socket.kind {
            Kind::Listener(listener) => listener.backlog = backlog,
            Kind::Fresh if socket.local.port() != 0 => {
                // Requests are answered at once, so that few wait below.
                device.listen(socket.local, BACKLOG_MAX).map_err(|_| Error::AddressInUse)?;
                socket.kind = Kind::Listener(Listener { backlog, waiting: VecDeque::new() });
                self.listening.insert(id);
            }
            Kind::Fresh | Kind::Stream(_) => return Err(Error::Invalid),
        }
        Ok(())
    }

    /// Takes the next connection of a listener.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]; [`Error::Invalid`]: it does not listen.
    pub fn accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddr), Error> {
        let ready = self.ready_to_accept(id)?.ok_or(Error::WouldBlock)?;
        let Kind::Listener(listener) = &mut self.get_mut(id)?.kind else { return Err(Error::Invalid) };
        let accepted = listener.waiting.remove(ready).ok_or(Error::WouldBlock)?;
        self.unaccepted -= 1;
        Ok((accepted, self.remote(accepted)?))
    }

    /// Which of a listener's connections is ready first. Those that failed since are given out as well: their calls say so.
    fn ready_to_accept(&self, id: SocketId) -> Result<Option<usize>, Error> {
        let Kind::Listener(listener) = &self.get(id)?.kind else { return Err(Error::Invalid) };
        let is_ready = |id: &SocketId| match self.sockets.get(*id).map(|socket| &socket.kind) {
            Some(Kind::Stream(connected)) => connected.stream.is_heard() || !connected.stream.is_connected(),
            _ => false,
        };
        Ok(listener.waiting.iter().position(is_ready))
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// [`Error::InProgress`]: it has begun, and [`Sockets::readiness`] tells the end. [`Error::Already`], [`Error::AlreadyConnected`];
    /// [`Error::HostUnreachable`], and the other reasons of [`NoWay`](crate::device::messages::NoWay); [`Error::NoBuffers`]; [`Error::Invalid`]: it listens; why
    /// an earlier attempt failed.
    pub fn connect<D: Connections>(&mut self, now: Instant, device: &mut D, id: SocketId, to: SocketAddr) -> Result<(), Error> {
        let (pd, host) = (self.pd, self.host);
        let socket = self.get_mut(id)?;
        match &mut socket.kind {
            Kind::Fresh => {}
            Kind::Listener(_) => return Err(Error::Invalid),
            Kind::Stream(connected) if connected.stream.is_opening() => return Err(Error::Already),
            Kind::Stream(connected) if connected.stream.is_connected() => return Err(Error::AlreadyConnected),
            Kind::Stream(connected) => return Err(connected.stream.take_error().unwrap_or(Error::NotConnected)),
        }
        // An address of the other family that names nothing is none.
        let from = if socket.local.ip().is_unspecified() && socket.local.is_ipv4() != to.is_ipv4() {
            SocketAddr::new(unspecified(to), socket.local.port())
        } else {
            socket.local
        };
        let mut stream = Stream::open(now, device, pd, host, &socket.options).map_err(|_| Error::NoBuffers)?;
        let asked = device.connect(now, stream.qp(), from, to, &stream.connection_data());
        let connection = asked.map_err(|error| {
            stream.destroy(device);
            match error {
                CmError::Full => Error::NoBuffers,
                CmError::Unroutable => Error::HostUnreachable,
                CmError::NoWay(why) => why.into(),
                CmError::Missing | CmError::State | CmError::InUse | CmError::TooLong | CmError::Unsupported => Error::Invalid,
            }
        })?;
        socket.kind = Kind::Stream(Box::new(Connected { stream, connection: Some(connection), remote: to }));
        self.by_connection.insert(connection, id);
        Err(Error::InProgress)
    }

    /// [`Stream::send`].
    ///
    /// # Errors
    /// Its; [`Error::NotConnected`].
    #[inline(always)]
    pub fn send<D: Messages>(&mut self, now: Instant, device: &mut D, id: SocketId, bytes: &[u8]) -> Result<usize, Error> {
        self.stream(id)?.send(now, device, bytes)
    }

    /// [`Stream::recv`].
    ///
    /// # Errors
    /// Its; [`Error::NotConnected`].
    #[inline(always)]
    pub fn recv<D: Messages>(&mut self, now: Instant, device: &mut D, id: SocketId, out: &mut [u8], peek: bool) -> Result<usize, Error> {
        self.stream(id)?.recv(now, device, out, peek)
    }

    /// [`Stream::shutdown`].
    ///
    /// # Errors
    /// Its.
    pub fn shutdown<D: Messages>(&mut self, now: Instant, device: &mut D, id: SocketId, how: Shutdown) -> Result<(), Error> {
        self.stream(id)?.shutdown(now, device, how)
    }

    /// Whether a socket has begun to connect, and has no answer yet.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn is_connecting(&self, id: SocketId) -> Result<bool, Error> {
        Ok(matches!(&self.get(id)?.kind, Kind::Stream(connected) if connected.stream.is_opening()))
    }

    /// Whether what a socket sent that was let go of is still on its way.
    pub fn is_closing(&self, id: SocketId) -> bool {
        self.closing.contains_key(&id)
    }

    /// Whether all that was sent has arrived, or never will: what a shutdown that blocks waits for.
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub fn is_drained(&mut self, id: SocketId) -> Result<bool, Error> {
        Ok(self.stream(id)?.is_drained())
    }

    /// [`Stream::map`].
    ///
    /// # Errors
    /// Its.
    pub fn map<D: Messages>(
        &mut self,
        device: &mut D,
        id: SocketId,
        memory: D::Memory,
        remote: bool,
        offset: Option<u64>,
    ) -> Result<Mapping, Error> {
        self.stream(id)?.map(device, memory, remote, offset)
    }

    /// [`Stream::unmap`].
    ///
    /// # Errors
    /// Its.
    pub fn unmap<D: Messages>(&mut self, device: &mut D, id: SocketId, address: u64, len: u64) -> Result<D::Memory, Error> {
        self.stream(id)?.unmap(device, address, len)
    }

    /// [`Stream::write_direct`].
    ///
    /// # Errors
    /// Its; [`Error::NotConnected`].
    pub fn write_direct<D: Messages>(
        &mut self,
        now: Instant,
        device: &mut D,
        id: SocketId,
        bytes: &[u8],
        offset: u64,
    ) -> Result<usize, Error> {
        self.stream(id)?.write_direct(now, device, bytes, offset)
    }

    /// [`Stream::direct_target`].
    ///
    /// # Errors
    /// Its; [`Error::NotConnected`].
    pub fn direct_target<D: Messages>(
        &mut self,
        now: Instant,
        device: &mut D,
        id: SocketId,
        offset: u64,
    ) -> Result<Option<DirectTarget>, Error> {
        self.stream(id)?.direct_target(now, device, offset)
    }

    /// [`Stream::fail_direct`].
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub fn fail_direct<D: Messages>(&mut self, now: Instant, device: &mut D, id: SocketId) -> Result<(), Error> {
        self.stream(id)?.fail_direct(now, device);
        Ok(())
    }

    /// Looks at what a socket's device did, and says what can be done now without waiting.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn readiness<D: Messages>(&mut self, now: Instant, device: &mut D, id: SocketId) -> Result<Readiness, Error> {
        if let Kind::Listener(_) = self.get(id)?.kind {
            return Ok(if self.ready_to_accept(id)?.is_some() { Readiness::IN } else { Readiness::empty() });
        }
        match self.stream(id) {
            Ok(stream) => {
                stream.poll(now, device);
                Ok(stream.readiness(device))
            }
            // As poll(2) has it for a socket that was never connected.
            Err(_) => Ok(Readiness::OUT | Readiness::HUP),
        }
    }

    /// A socket's completion queue, whose events wake.
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub fn cq(&mut self, id: SocketId) -> Result<u32, Error> {
        Ok(self.stream(id)?.cq())
    }

    /// A socket's queue pair.
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub fn qp(&mut self, id: SocketId) -> Result<u32, Error> {
        Ok(self.stream(id)?.qp())
    }

    /// Asks the device for an event at the next completion of a socket; whoever does looks at its readiness once more before sleeping.
    pub fn arm<D: Messages>(&mut self, device: &mut D, id: SocketId) {
        if let Ok(stream) = self.stream(id) {
            device.arm_cq(stream.cq(), Arm::Next);
        }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`crate::rsocket::Options::set`]'s.
    pub fn set_option(&mut self, now: Instant, id: SocketId, name: OptionName, value: &OptionValue) -> Result<(), Error> {
        let socket = self.get_mut(id)?;
        let stage = if matches!(socket.kind, Kind::Stream(_)) { Stage::Opened } else { Stage::Fresh };
        socket.options.set(name, value, stage)?;
        if let (Kind::Stream(connected), OptionName::KeepAlive | OptionName::KeepIdle) = (&mut socket.kind, name) {
            connected.stream.set_keepalive(now, socket.options.keepalive);
            let timer = connected.stream.deadline();
            self.has_timer(timer);
        }
        Ok(())
    }

    /// What an option is.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn option<D: Connections>(&mut self, device: &D, id: SocketId, name: OptionName) -> Result<OptionValue, Error> {
        let socket = self.get_mut(id)?;
        let (mut error, mut mtu) = (None, None);
        if let Kind::Stream(connected) = &mut socket.kind {
            error = if name == OptionName::Error { connected.stream.take_error() } else { None };
            mtu = device.path(None, connected.remote.ip()).map(|(_, mtu)| mtu.bytes());
        }
        Ok(socket.options.get(name, error, mtu))
    }

    /// A socket's own name.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn local(&self, id: SocketId) -> Result<SocketAddr, Error> {
        Ok(self.get(id)?.local)
    }

    /// Its peer's.
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub fn remote(&self, id: SocketId) -> Result<SocketAddr, Error> {
        match &self.get(id)?.kind {
            Kind::Stream(connected) => Ok(connected.remote),
            Kind::Fresh | Kind::Listener(_) => Err(Error::NotConnected),
        }
    }

    /// Lets go of a socket. What was sent still arrives, if it does within [`crate::rsocket::Settings::close_timeout`]; nothing is waited for here.
    ///
    /// # Errors
    /// [`Error::BadSocket`].
    pub fn close<D: Connections>(&mut self, now: Instant, device: &mut D, id: SocketId) -> Result<(), Error> {
        let Socket { kind, local, .. } = self.sockets.remove(id).ok_or(Error::BadSocket)?;
        match kind {
            Kind::Fresh => {}
            Kind::Listener(listener) => {
                device.unlisten(local.port());
                self.listening.remove(&id);
                self.unaccepted -= listener.waiting.len();
                for waiting in listener.waiting {
                    let _ = self.close(now, device, waiting);
                }
            }
            Kind::Stream(mut connected) => {
                // One that is not connected has nothing to end.
                let _ = connected.stream.shutdown(now, device, Shutdown::Both);
                let until = now + self.settings.close_timeout;
                self.closing.insert(id, Closing { connected, until });
                self.finish_closing(now, device);
            }
        }
        Ok(())
    }
}

fn unspecified(like: SocketAddr) -> std::net::IpAddr {
    if like.is_ipv4() { std::net::Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() }
}
