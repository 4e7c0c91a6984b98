//! Datagrams: on the ring as soon as the socket has a port.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr};

use ringway_stack::ring::{FlowId, RecvFlags};

use super::super::sockets::{Address, Errno, Flags, How, Received, Slot};
use super::tcp::direction;
use super::{Ringway, State, errno, options};

impl Ringway {
    /// Puts the socket onto the ring, with a port of the system's choice if it has none.
    pub(super) fn udp_publish(&mut self, slot: Slot) -> Result<FlowId, Errno> {
        if let State::Datagram(Some(id)) = self.get(slot).state {
            if self.holds_port(slot) {
                return Ok(id);
            }
            // It was disconnected, and kept its queue until now.
            self.call(slot, |now, ring| ring.close(now, id, false));
        }
        let local = self.ensure_bound(slot);
        let local = self.resolve(local);
        let id = self.call(slot, |_, ring| ring.udp_open(local, &options())).map_err(errno)?;
        let socket = self.get_mut(slot);
        socket.state = State::Datagram(Some(id));
        let how = match socket.shut {
            [false, false] => return Ok(id),
            [true, false] => How::Read,
            [false, true] => How::Write,
            [true, true] => How::Both,
        };
        // It isn't connected yet, and is shut down all the same.
        let _ = self.call(slot, |now, ring| ring.shutdown(now, id, direction(how)));
        Ok(id)
    }

    pub(super) fn udp_connect(&mut self, slot: Slot, to: Address) -> Result<(), Errno> {
        let id = self.udp_publish(slot)?;
        let (remote, source) = ((self.resolve(to), self.hop(to)), self.ip(slot.host()));
        self.call(slot, |_, ring| ring.udp_connect(id, source, Some(remote))).map_err(errno)?;
        self.get_mut(slot).peer = Some(to);
        Ok(())
    }

    /// The peer is forgotten, and a port that the system chose is given back.
    pub(super) fn udp_disconnect(&mut self, slot: Slot) {
        let State::Datagram(Some(id)) = self.get(slot).state else { return };
        let socket = self.get_mut(slot);
        socket.peer = None;
        if socket.chosen {
            socket.port = None;
            socket.held = false;
        }
        let nowhere = if self.ip(slot.host()).is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let undone = self.call(slot, |_, ring| ring.udp_connect(id, nowhere, None));
        undone.expect("the id is the ring's");
    }

    pub(super) fn udp_send(&mut self, slot: Slot, data: &[u8], to: Option<Address>) -> Result<usize, Errno> {
        let id = self.udp_publish(slot)?;
        let source = self.ip(slot.host());
        let to = to.map(|to| (self.resolve(to), self.hop(to)));
        self.call(slot, |now, ring| ring.udp_send(now, id, &[IoSlice::new(data)], source, to)).map_err(errno)
    }

    pub(super) fn udp_recv(&mut self, slot: Slot, len: usize, flags: Flags) -> Result<Received, Errno> {
        let State::Datagram(Some(id)) = self.get(slot).state else { return Err(Errno::AGAIN) };
        let ring_flags = if flags.peek { RecvFlags::PEEK } else { RecvFlags::empty() };
        let mut bytes = vec![0; len];
        let received = self.call(slot, |_, ring| ring.udp_recv(id, &mut [IoSliceMut::new(&mut bytes)], ring_flags)).map_err(errno)?;
        bytes.truncate(received.copied);
        let count = if flags.trunc { received.len } else { received.copied };
        Ok(Received { count, bytes, from: Some(self.address(received.from)) })
    }

    pub(super) fn udp_shutdown(&mut self, slot: Slot, how: How) -> Result<(), Errno> {
        self.get_mut(slot).shut_early(how);
        let State::Datagram(Some(id)) = self.get(slot).state else { return Err(Errno::NOT_CONNECTED) };
        self.call(slot, |now, ring| ring.shutdown(now, id, direction(how))).map_err(errno)
    }
}
