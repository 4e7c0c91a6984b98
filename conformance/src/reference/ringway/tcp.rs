//! Streams, as `libvma.so` carries them.

use std::io::{IoSlice, IoSliceMut};

use ringway_stack::Error;
use ringway_stack::ring::{FlowId, RecvFlags, SendFlags, Shutdown};
use ringway_stack::tcp::State as Tcp;

use super::super::sockets::{Address, Errno, Flags, How, Received, Slot};
use super::{Ringway, Socket, State, errno};

impl Ringway {
    pub(super) fn tcp_listen(&mut self, slot: Slot, backlog: i32) -> Result<(), Errno> {
        // Compared unsigned, and with net.core.somaxconn.
        let backlog = usize::try_from(backlog).unwrap_or(4096).min(4096);
        match self.get(slot).state {
            State::Fresh => {
                let local = self.ensure_bound(slot);
                let (local, config) = (self.resolve(local), self.get(slot).config.clone());
                let id = self.call(slot, |_, ring| ring.tcp_listen(local, backlog, &config)).map_err(errno)?;
                self.get_mut(slot).state = State::Listener(id);
                Ok(())
            }
            State::Listener(id) => self.call(slot, |_, ring| ring.tcp_set_backlog(id, backlog)).map_err(errno),
            State::Connecting(_) | State::Stream(_) => Err(Errno::INVALID),
            State::Datagram(_) => Err(Errno::NOT_SUPPORTED),
        }
    }

    pub(super) fn tcp_connect(&mut self, slot: Slot, to: Address) -> Result<(), Errno> {
        match self.get(slot).state {
            _ if self.get(slot).spoilt => Err(Errno::INVALID),
            State::Fresh => self.tcp_open(slot, to),
            State::Connecting(id) => self.tcp_connect_again(slot, id),
            _ => Err(Errno::IS_CONNECTED),
        }
    }

    fn tcp_open(&mut self, slot: Slot, to: Address) -> Result<(), Errno> {
        let local = self.ensure_bound(slot);
        let (local, remote, hop) = (self.resolve(local), self.resolve(to), self.hop(to));
        let config = self.get(slot).config.clone();
        let id = self.call(slot, |now, ring| ring.tcp_connect(now, local, remote, hop, &config)).map_err(|error| match error {
            Error::AddressInUse => Errno::NOT_AVAILABLE,
            other => errno(other),
        })?;
        let socket = self.get_mut(slot);
        socket.state = State::Connecting(id);
        socket.peer = Some(to);
        socket.error = None;
        Err(Errno::IN_PROGRESS)
    }

    /// A second connect: how the first one ended.
    fn tcp_connect_again(&mut self, slot: Slot, id: FlowId) -> Result<(), Errno> {
        match self.tcp_state(slot, id) {
            Tcp::SynSent | Tcp::SynReceived => Err(Errno::ALREADY),
            Tcp::Closed | Tcp::TimeWait => {
                let error = self.call(slot, |_, ring| ring.take_error(id));
                self.renew(slot);
                Err(error.map_or(Errno::ABORTED, errno))
            }
            _ => {
                self.get_mut(slot).state = State::Stream(id);
                Ok(())
            }
        }
    }

    pub(super) fn tcp_disconnect(&mut self, slot: Slot) {
        if let State::Connecting(id) | State::Stream(id) = self.get(slot).state {
            let error = self.call(slot, |_, ring| ring.take_error(id)).map(errno);
            // What Linux resets leaves that as the socket's error (tcp_disconnect), and what is half through its end does not.
            let resets = !matches!(self.tcp_state(slot, id), Tcp::Closed | Tcp::TimeWait | Tcp::Closing | Tcp::LastAck);
            self.renew(slot);
            self.get_mut(slot).error = error.or(resets.then(|| errno(Error::Reset)));
        } else {
            self.renew(slot);
        }
    }

    /// The connection, or the listener, is gone; the socket is as new, but for a port that the program chose.
    fn renew(&mut self, slot: Slot) {
        if let Some(id) = super::id_of(self.get(slot).state) {
            // Nothing is left to abort in a TIME-WAIT, which goes on without the socket.
            let abort = self.tcp_state(slot, id) != Tcp::TimeWait;
            self.call(slot, |now, ring| ring.close(now, id, abort));
        }
        let socket = self.get_mut(slot);
        socket.held &= !socket.chosen || socket.later || socket.state == State::Fresh;
        socket.later = false;
        socket.state = State::Fresh;
        socket.peer = None;
        socket.shut = [false; 2];
        socket.spoilt = false;
    }

    pub(super) fn tcp_accept(&mut self, slot: Slot, into: Slot) -> Result<Address, Errno> {
        let listener = self.get(slot);
        let id = match listener.state {
            State::Listener(id) => id,
            State::Datagram(_) => return Err(Errno::NOT_SUPPORTED),
            _ => return Err(Errno::INVALID),
        };
        let (port, linger_zero, config) = (listener.port, listener.linger_zero, listener.config.clone());
        let child = self.call(slot, |_, ring| ring.tcp_accept(id)).map_err(errno)?;
        let remote = self.ring(slot).info(child).and_then(|info| info.remote).expect("an accepted connection has a peer");
        let peer = self.address(remote);
        let socket = Socket { port, held: true, chosen: true, peer: Some(peer), linger_zero, ..Socket::new(State::Stream(child), config) };
        self.sockets[into.index()] = Some(socket);
        Ok(peer)
    }

    pub(super) fn tcp_send(&mut self, slot: Slot, data: &[u8], more: bool) -> Result<usize, Errno> {
        let (State::Connecting(id) | State::Stream(id)) = self.get(slot).state else {
            return Err(self.get_mut(slot).error.take().unwrap_or(Errno::PIPE));
        };
        let flags = if more { SendFlags::MORE } else { SendFlags::empty() };
        self.call(slot, |now, ring| ring.tcp_send(now, id, &[IoSlice::new(data)], flags)).map_err(errno)
    }

    pub(super) fn tcp_recv(&mut self, slot: Slot, len: usize, flags: Flags) -> Result<Received, Errno> {
        let (State::Connecting(id) | State::Stream(id)) = self.get(slot).state else { return self.recv_unconnected(slot) };
        let ring_flags = if flags.peek { RecvFlags::PEEK } else { RecvFlags::empty() };
        let mut bytes = vec![0; len];
        let read = self.call(slot, |now, ring| ring.tcp_recv(now, id, &mut [IoSliceMut::new(&mut bytes)], ring_flags));
        let count = read.map_err(errno)?;
        // tcp(7): MSG_TRUNC discards the bytes instead of copying them.
        bytes.truncate(if flags.trunc { 0 } else { count });
        Ok(Received { count, bytes, from: None })
    }

    fn recv_unconnected(&mut self, slot: Slot) -> Result<Received, Errno> {
        let socket = self.get_mut(slot);
        if socket.state != State::Fresh {
            return Err(Errno::NOT_CONNECTED);
        }
        match socket.error.take() {
            Some(error) => Err(error),
            None if socket.shut[0] => Ok(Received { count: 0, bytes: Vec::new(), from: None }),
            None => Err(Errno::NOT_CONNECTED),
        }
    }

    pub(super) fn tcp_shutdown(&mut self, slot: Slot, how: How) -> Result<(), Errno> {
        match self.get(slot).state {
            State::Connecting(id) | State::Stream(id) => {
                // Linux notes how the handshake ended here too (inet_shutdown): no later connect will say so.
                if self.get(slot).state == State::Connecting(id) {
                    match self.tcp_state(slot, id) {
                        Tcp::SynSent => {
                            self.tcp_disconnect(slot);
                            return Ok(());
                        }
                        Tcp::Closed | Tcp::TimeWait => self.get_mut(slot).spoilt = true,
                        _ => self.get_mut(slot).state = State::Stream(id),
                    }
                }
                self.call(slot, |now, ring| ring.shutdown(now, id, direction(how))).map_err(errno)
            }
            State::Listener(_) if how != How::Write => {
                self.renew(slot);
                Ok(())
            }
            State::Listener(_) => Ok(()),
            State::Fresh | State::Datagram(_) => {
                self.get_mut(slot).shut_early(how);
                Err(Errno::NOT_CONNECTED)
            }
        }
    }

    /// Whether getpeername(2) knows the peer.
    pub(super) fn is_connected(&self, slot: Slot, id: FlowId) -> bool {
        !matches!(self.tcp_state(slot, id), Tcp::Closed | Tcp::SynSent | Tcp::TimeWait)
    }

    /// Whether it is a connection, and nothing will come of it any more: a TIME-WAIT goes on without the socket.
    pub(super) fn has_ended(&self, slot: Slot) -> bool {
        match self.get(slot).state {
            State::Connecting(id) | State::Stream(id) => matches!(self.tcp_state(slot, id), Tcp::Closed | Tcp::TimeWait),
            _ => false,
        }
    }

    fn tcp_state(&self, slot: Slot, id: FlowId) -> Tcp {
        self.ring(slot).info(id).and_then(|info| info.state).unwrap_or(Tcp::Closed)
    }
}

impl Socket {
    /// A shutdown that Linux refuses, and heeds nevertheless.
    pub(super) fn shut_early(&mut self, how: How) {
        self.shut[0] |= how != How::Write;
        self.shut[1] |= how != How::Read;
    }
}

pub(super) const fn direction(how: How) -> Shutdown {
    match how {
        How::Read => Shutdown::Read,
        How::Write => Shutdown::Write,
        How::Both => Shutdown::Both,
    }
}
