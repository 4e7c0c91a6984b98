//! Rsockets against librdmacm's: `serve` gives one connection all of its bytes back; `ask` does what `rstream -T v -s PEER -S SIZE -C COUNT -I 1` does: 16 bytes
//! there and back, COUNT messages there, and as many back, of bytes that count up; all that comes is checked.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringway_host::Clock;
use ringway_stack::roce::{Node, NodeConfig};
use ringway_stack::rsocket::{Host, Settings, SocketId, Sockets};
use ringway_stack::{Error, Instant};

use super::Failure;
use super::tap::{ETHERNET, Tap};

/// rstream's.
pub(crate) const PORT: u16 = 7471;

/// Bytes that rstream's ends exchange at first, so that both are there.
const SYNC: usize = 16;

/// How long the peer may take to say its last.
const LINGER: Duration = Duration::from_secs(1);

type Machine = Node<Vec<u8>>;

/// The machine.
pub(crate) struct Peer {
    clock: Clock,
    tap: Tap,
    node: Machine,
    sockets: Sockets,
}

impl Peer {
    pub(crate) fn new(interface: &str, address: IpAddr) -> Result<Self, Failure> {
        let mut node = Machine::new(NodeConfig::new(address), u64::from(std::process::id()));
        let sockets = Sockets::new(&mut node, Settings::default(), Host::default());
        Ok(Self { clock: Clock::system(), tap: Tap::attach(interface)?, node, sockets })
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Takes what has come, does what is due, sends what follows, and waits a moment for more.
    fn turn(&mut self) -> Result<(), Failure> {
        let mut frame = [0; ETHERNET + Machine::PACKET_MAX];
        while let Some(packet) = self.tap.receive(&mut frame)? {
            self.node.on_packet(self.now(), packet);
        }
        let now = self.now();
        self.node.on_timer(now);
        self.sockets.poll(now, &mut self.node);
        self.sockets.on_timer(now, &mut self.node);
        while let Some(len) = self.node.poll_transmit(now, &mut frame[ETHERNET..]) {
            self.tap.send(&mut frame, len);
        }
        let deadline = [self.node.deadline(), self.sockets.deadline()].into_iter().flatten().min();
        self.tap.wait(deadline.map(|at| at.since(self.now())));
        Ok(())
    }

    /// Turns until `done` gives something.
    fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Result<Option<T>, Failure>) -> Result<T, Failure> {
        loop {
            if let Some(result) = done(self)? {
                return Ok(result);
            }
            self.turn()?;
        }
    }

    fn send_all(&mut self, socket: SocketId, bytes: &[u8]) -> Result<(), Failure> {
        let mut sent = 0;
        self.until(|peer| {
            let now = peer.now();
            match peer.sockets.send(now, &mut peer.node, socket, &bytes[sent..]) {
                Ok(len) => sent += len,
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(format!("send: {error}").into()),
            }
            Ok((sent == bytes.len()).then_some(()))
        })
    }

    /// What has come, up to so many bytes; empty: the peer has ended its stream.
    fn receive(&mut self, socket: SocketId, most: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; most];
        let len = self.until(|peer| {
            let now = peer.now();
            match peer.sockets.recv(now, &mut peer.node, socket, &mut bytes, false) {
                Ok(len) => Ok(Some(len)),
                Err(Error::WouldBlock) => Ok(None),
                Err(error) => Err(format!("receive: {error}").into()),
            }
        })?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Closes in an orderly way, and turns until that is over, and what the peer says last has had its answer.
    fn close(&mut self, socket: SocketId) -> Result<(), Failure> {
        let now = self.now();
        self.sockets.close(now, &mut self.node, socket).map_err(|error| format!("close: {error}"))?;
        self.until(|peer| Ok((peer.sockets.closing() == 0).then_some(())))?;
        let end = self.now() + LINGER;
        self.until(|peer| Ok((peer.now() > end).then_some(())))
    }

    pub(crate) fn serve(&mut self, address: IpAddr) -> Result<(), Failure> {
        let listener = self.sockets.socket();
        self.sockets.bind(listener, SocketAddr::new(address, PORT))?;
        self.sockets.listen(&mut self.node, listener, 8)?;
        let (socket, from) = self.until(|peer| match peer.sockets.accept(listener) {
            Ok(accepted) => Ok(Some(accepted)),
            Err(Error::WouldBlock) => Ok(None),
            Err(error) => Err(error.into()),
        })?;
        let (mut count, mut held) = (0, Vec::new());
        // (rstream reads nothing until it has sent everything: what it has no room for is kept.)
        loop {
            let now = self.now();
            if !held.is_empty() {
                match self.sockets.send(now, &mut self.node, socket, &held) {
                    Ok(len) => drop(held.drain(..len)),
                    Err(Error::WouldBlock) => {}
                    Err(error) => return Err(format!("send: {error}").into()),
                }
            }
            let mut bytes = [0; 65536];
            match self.sockets.recv(now, &mut self.node, socket, &mut bytes, false) {
                Ok(0) => break,
                Ok(len) => {
                    count += len;
                    held.extend_from_slice(&bytes[..len]);
                    continue;
                }
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(format!("receive: {error}").into()),
            }
            self.turn()?;
        }
        println!("{from} had {count} bytes back, but for the last {}", held.len());
        self.close(socket)
    }

    pub(crate) fn ask(&mut self, address: SocketAddr, size: usize, count: usize) -> Result<(), Failure> {
        let socket = self.sockets.socket();
        let now = self.now();
        match self.sockets.connect(now, &mut self.node, socket, address) {
            Ok(()) | Err(Error::InProgress) => {}
            Err(error) => return Err(format!("connect: {error}").into()),
        }
        self.until(|peer| Ok((!peer.sockets.is_connecting(socket)?).then_some(())))?;
        let mut counting = (0..=u8::MAX).cycle();
        let mut expected = (0..=u8::MAX).cycle();
        for (size, count) in [(SYNC, 1), (size, count)] {
            for _ in 0..count {
                let message: Vec<u8> = counting.by_ref().take(size).collect();
                self.send_all(socket, &message)?;
            }
            let mut left = size * count;
            while left > 0 {
                let bytes = self.receive(socket, left.min(65536))?;
                if bytes.is_empty() {
                    return Err(format!("the stream ended {left} bytes too early").into());
                }
                if !bytes.iter().copied().eq(expected.by_ref().take(bytes.len())) {
                    return Err(format!("bytes are not what was sent, {left} before the end").into());
                }
                left -= bytes.len();
            }
        }
        println!("{} bytes there, and as many back, as they were sent", SYNC + size * count);
        self.close(socket)
    }
}
