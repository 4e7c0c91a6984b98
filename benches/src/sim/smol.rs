//! smoltcp in a loop: two interfaces, a queue of frames each way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use super::{BUFFER, Run, TURN};

const CHUNK: usize = 64 << 10;
const PORT: u16 = 9;
/// Frames that one interface may send before the other gets its turn.
const QUEUE_MAX: usize = 1024;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of the wire. Frames are allocated as they are sent, and let go of when they have been read: as ours are.
struct Wire {
    incoming: Queue,
    outgoing: Queue,
    received: u64,
}

struct Received(Vec<u8>);
struct Room(Queue);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Room {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.borrow_mut().push_back(frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Room;

    fn receive(&mut self, _: Instant) -> Option<(Received, Room)> {
        let frame = self.incoming.borrow_mut().pop_front()?;
        self.received += 1;
        Some((Received(frame), Room(Rc::clone(&self.outgoing))))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room> {
        (self.outgoing.borrow().len() < QUEUE_MAX).then(|| Room(Rc::clone(&self.outgoing)))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// An interface with its wire and its one socket.
struct End {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl End {
    fn new(number: u8, incoming: &Queue, outgoing: &Queue) -> Result<Self> {
        let mut wire = Wire { incoming: Rc::clone(incoming), outgoing: Rc::clone(outgoing), received: 0 };
        let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, number]).into());
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        let mut full = Ok(());
        interface.update_ip_addrs(|addresses| full = addresses.push(IpCidr::new(IpAddress::v4(10, 0, 0, number), 24)).map_err(|_| ()));
        full.map_err(|()| anyhow!("no room for an address"))?;
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Ok(Self { wire, interface, sockets, socket })
    }

    fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

/// One stream of so many bytes from one end to the other, in a virtual time that passes by [`TURN`] a turn.
pub(super) fn bulk(bytes: u64) -> Result<Run> {
    let (there, back) = (Queue::default(), Queue::default());
    let mut source = End::new(1, &back, &there)?;
    let mut sink = End::new(2, &there, &back)?;
    sink.socket().listen(PORT)?;
    let End { interface, sockets, socket, .. } = &mut source;
    sockets.get_mut::<tcp::Socket<'_>>(*socket).connect(interface.context(), (IpAddress::v4(10, 0, 0, 2), PORT), 40_000)?;
    let (mut now, mut sent, mut read) = (Instant::ZERO, 0u64, 0u64);
    let (chunk, mut buffer) = (vec![0x5a; CHUNK], vec![0; CHUNK]);
    Run::measure(|| {
        while read < bytes {
            while source.socket().can_send() && sent < bytes {
                let len = usize::try_from(bytes - sent).unwrap_or(CHUNK).min(CHUNK);
                sent += source.socket().send_slice(&chunk[..len])? as u64;
            }
            source.poll(now);
            sink.poll(now);
            while sink.socket().can_recv() {
                read += sink.socket().recv_slice(&mut buffer)? as u64;
            }
            sink.poll(now);
            now += smoltcp::time::Duration::from_micros(u64::try_from(TURN.as_micros())?);
            ensure!(now < Instant::from_secs(600), "{read} of {bytes} bytes arrived in ten minutes");
        }
        let passed = u64::try_from(now.total_micros()).unwrap_or(0);
        Ok((source.wire.received + sink.wire.received, Duration::from_micros(passed)))
    })
}
