//! Rsockets of the stack's own RoCE, as a machine at the other end of a TAP interface: what stands on the kernel's side, its soft-RoCE and librdmacm's programs,
//! meets a peer that it was not written with.
//!
//! `interop TAP serve ADDRESS` gives one connection all of its bytes back. `interop TAP ask ADDRESS PEER SIZE COUNT` does what `rstream -T v -s PEER -S SIZE -C COUNT
//! -I 1` does: 16 bytes there and back, COUNT messages there, and as many back, of bytes that count up; all that comes is checked. The interface is
//! there, and the kernel knows by `ip neighbour` that ADDRESS is at [`MAC`].

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::ExitCode;
use std::time::Duration;

use ringway_host::Clock;
use ringway_stack::roce::{Node, NodeConfig};
use ringway_stack::rsocket::{Host, Settings, SocketId, Sockets};
use ringway_stack::{Error, Instant};

/// This machine's.
const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

/// rstream's.
const PORT: u16 = 7471;

/// Bytes that rstream's ends exchange at first, so that both are there.
const SYNC: usize = 16;

/// How long the peer may take to say its last.
const LINGER: Duration = Duration::from_secs(1);

const ETHERNET: usize = 14;
type Machine = Node<Vec<u8>>;
type Failure = Box<dyn std::error::Error>;

/// The machine.
struct Peer {
    clock: Clock,
    tap: File,
    /// The kernel's.
    to: [u8; 6],
    node: Machine,
    sockets: Sockets,
}

impl Peer {
    fn new(interface: &str, address: IpAddr) -> Result<Self, Failure> {
        let mut node = Machine::new(NodeConfig::new(address), u64::from(std::process::id()));
        let sockets = Sockets::new(&mut node, Settings::default(), Host::default());
        let to = mac_of(interface)?;
        Ok(Self { clock: Clock::system(), tap: attach(interface)?, to, node, sockets })
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Takes what has come, does what is due, sends what follows, and waits a moment for more.
    fn turn(&mut self) -> Result<(), Failure> {
        let mut frame = [0; ETHERNET + Machine::PACKET_MAX];
        loop {
            let len = match self.tap.read(&mut frame) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            // (Of IPv4; what else the kernel says is not for RoCE.)
            if len > ETHERNET && frame[12..14] == [0x08, 0x00] && frame[..6] == MAC {
                self.node.on_packet(self.now(), &frame[ETHERNET..len]);
            }
        }
        let now = self.now();
        self.node.on_timer(now);
        self.sockets.poll(now, &mut self.node);
        self.sockets.on_timer(now, &mut self.node);
        while let Some(len) = self.node.poll_transmit(now, &mut frame[ETHERNET..]) {
            frame[..6].copy_from_slice(&self.to);
            frame[6..12].copy_from_slice(&MAC);
            frame[12..14].copy_from_slice(&[0x08, 0x00]);
            // (What the interface has no room for is sent again.)
            _ = self.tap.write(&frame[..ETHERNET + len]);
        }
        let deadline = [self.node.deadline(), self.sockets.deadline()].into_iter().flatten().min();
        let most = Duration::from_millis(10);
        let pause = deadline.map_or(most, |at| at.since(self.now()).min(most));
        let mut poll = libc::pollfd { fd: self.tap.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry is readable and writable.
        unsafe { libc::poll(&raw mut poll, 1, pause.as_millis() as i32) };
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

    fn serve(&mut self, address: IpAddr) -> Result<(), Failure> {
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

    fn ask(&mut self, address: SocketAddr, size: usize, count: usize) -> Result<(), Failure> {
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

/// The kernel's end of the interface.
fn mac_of(interface: &str) -> Result<[u8; 6], Failure> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
    let bytes: Vec<u8> = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>()?;
    bytes.try_into().map_err(|_| "an address that is none of Ethernet's".into())
}

/// The other end of it, without waiting.
fn attach(interface: &str) -> Result<File, Failure> {
    let tap = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: all zeroes are a valid request.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    let name = interface.as_bytes();
    if name.len() >= request.ifr_name.len() {
        return Err("a name that is too long for an interface".into());
    }
    for (to, &from) in request.ifr_name.iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    // SAFETY: the request is readable and writable, and its name ends with a zero.
    if unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } != 0 {
        return Err(format!("{interface}: {}", std::io::Error::last_os_error()).into());
    }
    Ok(tap)
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [interface, "serve", address] => {
            let address = address.parse()?;
            Peer::new(interface, address)?.serve(address)
        }
        [interface, "ask", address, peer, size, count] => {
            let peer = SocketAddr::new(peer.parse()?, PORT);
            Peer::new(interface, address.parse()?)?.ask(peer, size.parse()?, count.parse()?)
        }
        _ => Err("interop TAP (serve ADDRESS | ask ADDRESS PEER SIZE COUNT)".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}
