//! Sockets: what a descriptor remembers, and the calls of its life. The rest is the ring's.

use core::ffi::c_int;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_stack::Error;
use ringway_stack::ring::{EarlyData, FlowId, NextHop, Readiness, RecvFlags, Ring, SendFlags, Shutdown};
use ringway_stack::tcp;

use crate::address::Named;
use crate::device::{Link, PEER};
use crate::errno::Errno;
use crate::world::{Object, World};

/// net.core.somaxconn: the ceiling of a backlog.
const BACKLOG_MAX: usize = 4096;

/// What became of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Neither listening nor connected, yet or again.
    Fresh,
    Listener(FlowId),
    /// connect(2) has promised a connection (TCP_FASTOPEN_CONNECT): its SYN waits for the first bytes.
    Deferred(SocketAddr),
    /// `is_new`: connect(2) has not reported yet how it went.
    Stream {
        flow: FlowId,
        is_new: bool,
    },
}

/// A TCP socket.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) domain: c_int,
    pub(crate) kind: Kind,
    pub(crate) bound: Option<SocketAddr>,
    pub(crate) nonblocking: bool,
    pub(crate) config: tcp::Config,
    pub(crate) keepalive: tcp::Keepalive,
    /// SO_LINGER's time in seconds, if it is on.
    pub(crate) linger: Option<u32>,
    /// SO_RCVTIMEO and SO_SNDTIMEO.
    pub(crate) timeouts: [Option<Duration>; 2],
    /// TCP_INQ: recvmsg tells how much is left.
    pub(crate) tells_rest: bool,
    /// TCP_FASTOPEN_CONNECT and TCP_FASTOPEN_NO_COOKIE.
    pub(crate) defers_connect: bool,
    pub(crate) without_cookie: bool,
    /// Options that mean nothing here but are to be read as they were set: level, name, value.
    pub(crate) remembered: Vec<(c_int, c_int, c_int)>,
}

impl Socket {
    pub(crate) fn flow(&self) -> Option<FlowId> {
        match self.kind {
            Kind::Fresh | Kind::Deferred(_) => None,
            Kind::Listener(flow) | Kind::Stream { flow, .. } => Some(flow),
        }
    }

    /// The flow of a socket that is, or was, connected.
    pub(crate) fn stream(&self) -> Result<FlowId, Errno> {
        match self.kind {
            Kind::Stream { flow, .. } => Ok(flow),
            // (Nothing has come yet.)
            Kind::Deferred(_) => Err(Errno::AGAIN),
            Kind::Fresh | Kind::Listener(_) => Err(Errno::NOT_CONNECTED),
        }
    }

    /// In poll(2)'s bits.
    pub(crate) fn readiness(&self, ring: &Ring<Link>) -> u32 {
        let bits = match self.flow() {
            Some(flow) => ring.readiness(flow),
            // tcp_poll: neither direction is there.
            None if matches!(self.kind, Kind::Deferred(_)) => Readiness::OUT,
            None => Readiness::OUT | Readiness::HUP,
        };
        bits.bits()
    }

    /// Whether the connection has come to an end, or never to a beginning.
    fn is_over(&self, ring: &Ring<Link>) -> bool {
        let state = self.flow().and_then(|flow| ring.info(flow)).and_then(|info| info.state);
        state.is_none_or(|state| state == tcp::State::Closed)
    }
}

impl World {
    /// socket(2).
    ///
    /// # Errors
    /// EAFNOSUPPORT, EPROTONOSUPPORT, EINVAL.
    pub(crate) fn open(&mut self, domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int, Errno> {
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        if kind & !flags != libc::SOCK_STREAM || !matches!(protocol, 0 | libc::IPPROTO_TCP) {
            return Err(Errno(libc::EPROTONOSUPPORT));
        }
        let socket = Socket {
            domain,
            kind: Kind::Fresh,
            bound: None,
            nonblocking: kind & libc::SOCK_NONBLOCK != 0,
            config: self.settings.tcp.clone(),
            keepalive: self.settings.keepalive,
            linger: None,
            timeouts: [None; 2],
            tells_rest: false,
            defers_connect: false,
            without_cookie: false,
            remembered: Vec::new(),
        };
        self.add(Object::Socket(Box::new(socket)))
    }

    /// bind(2).
    ///
    /// # Errors
    /// EINVAL: it has an address already; EADDRNOTAVAIL.
    pub(crate) fn bind(&mut self, fd: c_int, name: Named) -> Result<(), Errno> {
        let Named::Address(mut address) = name else { return Err(Errno(libc::EAFNOSUPPORT)) };
        let socket = self.socket(fd)?;
        if socket.bound.is_some() || socket.kind != Kind::Fresh {
            return Err(Errno::INVALID);
        }
        if address.port() == 0 {
            address.set_port(self.free_port(address.ip(), None)?);
        }
        self.socket(fd)?.bound = Some(address);
        Ok(())
    }

    /// listen(2).
    ///
    /// # Errors
    /// EINVAL: it is connected; EADDRINUSE.
    pub(crate) fn listen(&mut self, fd: c_int, backlog: c_int) -> Result<(), Errno> {
        // A negative backlog is a huge one: Linux compares it unsigned.
        let backlog = usize::try_from(backlog).unwrap_or(BACKLOG_MAX).min(BACKLOG_MAX);
        let socket = self.socket(fd)?.clone();
        match socket.kind {
            Kind::Stream { .. } | Kind::Deferred(_) => Err(Errno::INVALID),
            Kind::Listener(flow) => Ok(self.ring.tcp_set_backlog(flow, backlog)?),
            Kind::Fresh => {
                let any = if socket.domain == libc::AF_INET { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
                let local = match socket.bound {
                    Some(local) => local,
                    None => SocketAddr::new(any, self.free_port(any, None)?),
                };
                let mut config = socket.config.clone();
                let fast_open = self.settings.fast_open;
                config.fast_open.without_cookie |= fast_open & 0x200 != 0;
                if fast_open & 0x402 == 0x402 && config.fast_open.under_way_max == 0 {
                    config.fast_open.under_way_max = backlog;
                }
                if fast_open & 2 == 0 {
                    config.fast_open.under_way_max = 0;
                }
                let flow = self.ring.tcp_listen(local, backlog, &config)?;
                let socket = self.socket(fd)?;
                socket.config = config;
                (socket.kind, socket.bound) = (Kind::Listener(flow), Some(local));
                self.owns(fd, flow);
                Ok(())
            }
        }
    }

    /// accept(2): the descriptor, and whose connection it is.
    ///
    /// # Errors
    /// EAGAIN, EINVAL: it does not listen.
    pub(crate) fn accept(&mut self, fd: c_int) -> Result<(c_int, SocketAddr), Errno> {
        let listener = self.socket(fd)?.clone();
        let Kind::Listener(flow) = listener.kind else { return Err(Errno::INVALID) };
        let flow = self.ring.tcp_accept(flow)?;
        let info = self.ring.info(flow).ok_or(Errno(libc::ECONNABORTED))?;
        let remote = info.remote.unwrap_or(info.local);
        let kind = Kind::Stream { flow, is_new: false };
        let socket = Socket { kind, bound: Some(info.local), nonblocking: false, ..listener };
        let accepted = self.add(Object::Socket(Box::new(socket)))?;
        self.owns(accepted, flow);
        Ok((accepted, remote))
    }

    /// connect(2), begun.
    ///
    /// # Errors
    /// As connect(2); never EINPROGRESS, which is for who waits.
    pub(crate) fn connect(&mut self, fd: c_int, name: Named) -> Result<(), Errno> {
        self.begin(fd, name, None).map(|_| ())
    }

    /// Whether bytes can go with a SYN to that address.
    fn has_cookie(&mut self, fd: c_int, remote: SocketAddr) -> Result<bool, Errno> {
        let (now, without_cookie) = (self.now(), self.opens_without_cookie(fd)?);
        Ok(self.ring.tcp_has_cookie(now, remote.ip(), without_cookie))
    }

    fn opens_without_cookie(&mut self, fd: c_int) -> Result<bool, Errno> {
        Ok(self.socket(fd)?.without_cookie || self.settings.fast_open & 4 != 0)
    }

    /// sendto(2) with MSG_FASTOPEN, or the first bytes of a connection that waits for them: how many were taken. `all`: those too that do not go with the SYN.
    ///
    /// # Errors
    /// As connect(2); EOPNOTSUPP: it is switched off.
    pub(crate) fn connect_fast(&mut self, fd: c_int, name: Named, bytes: &[u8], all: bool) -> Result<usize, Errno> {
        if self.settings.fast_open & 1 == 0 {
            return Err(Errno::NOT_SUPPORTED);
        }
        self.begin(fd, name, Some((bytes, all)))
    }

    fn begin(&mut self, fd: c_int, name: Named, early: Option<(&[u8], bool)>) -> Result<usize, Errno> {
        let now = self.now();
        let (socket, ring) = self.socket_and_ring(fd)?;
        let Named::Address(remote) = name else { return self.disconnect(fd).map(|()| 0) };
        match socket.kind {
            Kind::Deferred(_) if early.is_none() => return Err(Error::AlreadyConnected.into()),
            Kind::Deferred(_) => {}
            Kind::Listener(_) => return Err(Error::AlreadyConnected.into()),
            Kind::Stream { flow, is_new } if !socket.is_over(ring) => {
                return match ring.info(flow).and_then(|info| info.state) {
                    Some(tcp::State::SynSent) => Err(Error::Already.into()),
                    _ if is_new => {
                        socket.kind = Kind::Stream { flow, is_new: false };
                        Ok(0)
                    }
                    _ => Err(Error::AlreadyConnected.into()),
                };
            }
            Kind::Stream { .. } => {
                if let Some(error) = self.connect_error(fd)? {
                    return Err(error);
                }
                self.disconnect(fd)?;
            }
            Kind::Fresh => {}
        }
        let defers = self.socket(fd)?.defers_connect && early.is_none();
        if defers && self.has_cookie(fd, remote)? {
            self.socket(fd)?.kind = Kind::Deferred(remote);
            return Ok(0);
        }
        let early = early.or(defers.then_some((&[], false)));
        let without_cookie = self.opens_without_cookie(fd)?;
        let bound = self.socket(fd)?.bound;
        let ip = bound.map(|bound| bound.ip()).filter(|ip| !ip.is_unspecified()).unwrap_or_else(|| self.local_for(remote.ip()));
        let port = match bound {
            Some(bound) => bound.port(),
            None => self.free_port(ip, Some(remote))?,
        };
        let local = SocketAddr::new(ip, port);
        let config = self.socket(fd)?.config.clone();
        let (flow, taken) = match early {
            None => (self.ring.tcp_connect(now, local, remote, NextHop::Mac(PEER), &config)?, 0),
            Some((bytes, all)) => {
                let early = EarlyData { data: &[IoSlice::new(bytes)], all, without_cookie };
                self.ring.tcp_connect_fast(now, (local, remote), NextHop::Mac(PEER), &config, &early)?
            }
        };
        let socket = self.socket(fd)?;
        (socket.kind, socket.bound) = (Kind::Stream { flow, is_new: true }, Some(local));
        self.owns(fd, flow);
        Ok(taken)
    }

    /// Why the connection has failed that was begun, if it has; told once.
    fn connect_error(&mut self, fd: c_int) -> Result<Option<Errno>, Errno> {
        let (socket, ring) = self.socket_and_ring(fd)?;
        let flow = socket.stream()?;
        Ok(ring.take_error(flow).map(Errno::from))
    }

    /// How connect(2) went.
    ///
    /// # Errors
    /// EAGAIN: it is under way; else why it failed.
    pub(crate) fn connected(&mut self, fd: c_int) -> Result<(), Errno> {
        let (socket, ring) = self.socket_and_ring(fd)?;
        let flow = socket.stream()?;
        match ring.info(flow).and_then(|info| info.state) {
            Some(tcp::State::SynSent | tcp::State::SynReceived) => Err(Errno::AGAIN),
            Some(tcp::State::Closed) | None => Err(self.connect_error(fd)?.unwrap_or(Errno(libc::ECONNABORTED))),
            Some(_) => {
                socket.kind = Kind::Stream { flow, is_new: false };
                Ok(())
            }
        }
    }

    /// connect(2) to AF_UNSPEC: the socket is as it was at first (tcp_disconnect).
    fn disconnect(&mut self, fd: c_int) -> Result<(), Errno> {
        let now = self.now();
        let (socket, ring) = self.socket_and_ring(fd)?;
        let Some(flow) = socket.flow() else {
            socket.kind = if matches!(socket.kind, Kind::Deferred(_)) { Kind::Fresh } else { socket.kind };
            return Ok(());
        };
        (socket.kind, socket.bound) = (Kind::Fresh, None);
        ring.close(now, flow, true);
        self.disown(flow);
        Ok(())
    }

    /// close(2).
    ///
    /// # Errors
    /// EBADF.
    pub(crate) fn close(&mut self, fd: c_int) -> Result<(), Errno> {
        let now = self.now();
        if let Object::Socket(socket) = self.remove(fd)?
            && let Some(flow) = socket.flow()
        {
            self.ring.close(now, flow, socket.linger == Some(0));
            self.disown(flow);
        }
        Ok(())
    }

    /// shutdown(2).
    ///
    /// # Errors
    /// As shutdown(2).
    pub(crate) fn shutdown(&mut self, fd: c_int, how: c_int) -> Result<(), Errno> {
        let now = self.now();
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::INVALID),
        };
        let (socket, ring) = self.socket_and_ring(fd)?;
        Ok(ring.shutdown(now, socket.stream()?, how)?)
    }

    /// Reads at most `room` bytes.
    ///
    /// # Errors
    /// EAGAIN, and the connection's.
    pub(crate) fn recv(&mut self, fd: c_int, room: usize, is_peek: bool) -> Result<Vec<u8>, Errno> {
        let now = self.now();
        let (socket, ring) = self.socket_and_ring(fd)?;
        let flow = socket.stream()?;
        let waiting = ring.info(flow).map_or(0, |info| info.recv_queue);
        // (A read of no bytes says at once that there are none; of none that wait, whether that is the end.)
        let mut bytes = vec![0; room.min(waiting.max(1))];
        let flags = if is_peek { RecvFlags::PEEK } else { RecvFlags::empty() };
        let read = ring.tcp_recv(now, flow, &mut [IoSliceMut::new(&mut bytes)], flags)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// What TCP_INQ tells after a read, if it is on: the bytes that wait, or one for the end of the stream, if nothing else does (tcp_inq_hint).
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub(crate) fn rest(&mut self, fd: c_int) -> Result<Option<usize>, Errno> {
        let now = self.now();
        let (socket, ring) = self.socket_and_ring(fd)?;
        let Some(flow) = socket.flow().filter(|_| socket.tells_rest) else { return Ok(None) };
        let waiting = ring.info(flow).map_or(0, |info| info.recv_queue);
        let has_ended = ring.tcp_details(now, flow).is_some_and(|details| details.peer_ended);
        Ok(Some(waiting.max(has_ended.into())))
    }

    /// Writes what fits of these bytes; how many those are.
    ///
    /// # Errors
    /// EAGAIN, and the connection's.
    pub(crate) fn send(&mut self, fd: c_int, bytes: &[u8], flags: SendFlags) -> Result<usize, Errno> {
        let now = self.now();
        let (socket, ring) = self.socket_and_ring(fd)?;
        let Kind::Stream { flow, .. } = socket.kind else { return Err(Error::Pipe.into()) };
        Ok(ring.tcp_send(now, flow, &[IoSlice::new(bytes)], flags)?)
    }

    /// Changes a socket's configuration, here and in the ring.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub(crate) fn configure(&mut self, fd: c_int, change: impl Fn(&mut tcp::Config)) -> Result<(), Errno> {
        let now = self.now();
        let (socket, ring) = self.socket_and_ring(fd)?;
        change(&mut socket.config);
        if let Some(flow) = socket.flow() {
            // (Of a connection that is gone nothing is left to configure.)
            let _ = ring.tcp_configure(now, flow, change);
        }
        Ok(())
    }
}
