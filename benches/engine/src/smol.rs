//! smoltcp as it comes, on the same wire: with window scaling, and SACK as far as it has it (it reports what it holds, and does not heed what it is told);
//! timestamps and congestion control are off by default.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use crate::wire::{Bytes, Checksums, Direction, Pool};

const PORT: u16 = 80;
/// Ports of a client.
const PORTS: u32 = 50_000;

/// One end of the wire.
struct Wire {
    mtu: usize,
    checksums: Checksums,
    frames: Rc<Pool>,
    inward: Rc<Direction>,
    outward: Rc<Direction>,
}

struct Received(Bytes);

struct Room {
    frames: Rc<Pool>,
    outward: Rc<Direction>,
}

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        self.0.read(f)
    }
}

impl TxToken for Room {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = self.frames.take().expect("a pool has more places than queues have");
        let result = frame.fill(len, f);
        self.outward.push(frame);
        result
    }
}

impl Wire {
    fn room(&self) -> Room {
        Room { frames: Rc::clone(&self.frames), outward: Rc::clone(&self.outward) }
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Room;

    fn receive(&mut self, _: Instant) -> Option<(Received, Room)> {
        Some((Received(self.inward.pop()?), self.room()))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room> {
        (!self.outward.is_full()).then(|| self.room())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        if self.checksums == Checksums::Device {
            capabilities.checksum = ChecksumCapabilities::ignored();
        }
        capabilities
    }
}

/// An interface with its end of the wire.
pub(crate) struct Host {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    /// The socket that connections are made with.
    socket: SocketHandle,
}

impl Host {
    fn new(number: u8, wire: Wire, buffer: usize) -> Result<Self> {
        let mut wire = wire;
        let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, number]).into());
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        let mut full = Ok(());
        interface.update_ip_addrs(|addresses| full = addresses.push(IpCidr::new(IpAddress::v4(10, 0, 0, number), 24)).map_err(|_| ()));
        full.map_err(|()| anyhow!("no room for an address"))?;
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(new_socket(buffer));
        Ok(Self { wire, interface, sockets, socket })
    }

    pub(crate) fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
    }

    pub(crate) fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

fn new_socket(buffer: usize) -> tcp::Socket<'static> {
    let room = || tcp::SocketBuffer::new(vec![0; buffer]);
    tcp::Socket::new(room(), room())
}

/// A client and a server.
pub(crate) struct Hosts {
    pub(crate) now: Instant,
    pub(crate) client: Host,
    pub(crate) server: Host,
    there: Rc<Direction>,
    buffer: usize,
    begun: u32,
}

impl Hosts {
    /// With frames of up to `mtu` bytes of IP packet. `buffer`: bytes of each socket's buffers.
    pub(crate) fn new(mtu: usize, buffer: usize, checksums: Checksums) -> Result<Self> {
        let (there, back, frames) = (Direction::new(), Direction::new(), Pool::new(mtu + 14));
        let wire = |inward: &Rc<Direction>, outward: &Rc<Direction>| {
            let (inward, outward, frames) = (Rc::clone(inward), Rc::clone(outward), Rc::clone(&frames));
            Wire { mtu, checksums, frames, inward, outward }
        };
        let client = Host::new(1, wire(&back, &there), buffer)?;
        let server = Host::new(2, wire(&there, &back), buffer)?;
        Ok(Self { now: Instant::from_secs(1), client, server, there, buffer, begun: 0 })
    }

    /// Segments with payload that the client has sent.
    pub(crate) fn segments(&self) -> u64 {
        self.there.segments()
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time.into();
    }

    /// A connection between the two sockets.
    pub(crate) fn connect(&mut self) -> Result<()> {
        let port = 1024 + (self.begun % PORTS) as u16;
        self.begun += 1;
        self.server.socket().listen(PORT)?;
        let Host { interface, sockets, socket, .. } = &mut self.client;
        sockets.get_mut::<tcp::Socket<'_>>(*socket).connect(interface.context(), (IpAddress::v4(10, 0, 0, 2), PORT), port)?;
        self.settle();
        let states = [self.client.socket().state(), self.server.socket().state()];
        ensure!(states == [tcp::State::Established; 2], "connected, the sockets are {states:?}");
        Ok(())
    }

    /// Closes both ends, the client's first. (Its socket is used again out of TIME-WAIT.)
    pub(crate) fn close(&mut self) -> Result<()> {
        self.client.socket().close();
        self.settle();
        self.server.socket().close();
        self.settle();
        let states = [self.client.socket().state(), self.server.socket().state()];
        ensure!(states == [tcp::State::TimeWait, tcp::State::Closed], "closed, the sockets are {states:?}");
        Ok(())
    }

    /// Lets that connection stand idle, and has new sockets for the next one.
    pub(crate) fn keep(&mut self) {
        for host in [&mut self.client, &mut self.server] {
            host.socket = host.sockets.add(new_socket(self.buffer));
        }
    }

    /// Both look until nothing comes any more.
    fn settle(&mut self) {
        loop {
            self.client.poll(self.now);
            self.server.poll(self.now);
            if self.client.wire.inward.is_empty() && self.server.wire.inward.is_empty() {
                return;
            }
        }
    }
}
