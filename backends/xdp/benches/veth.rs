//! Round trips and datagrams a second over a veth pair: the kernel with itself, a ring with the kernel, and a ring with a ring, in turn in one run. Everybody
//! spins. `cargo bench -p ringway-xdp` needs root, and two processors that have nothing else to do.

#[path = "../tests/veth/link.rs"]
mod link;
#[path = "../../host/tests/leave/namespaces.rs"]
mod namespaces;

use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_host::Clock;
use ringway_stack::device::{Device as _, Queues as _, QueuesConfig, RxBatch};
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Ring, RingConfig, SendFlags, UdpOptions};
use ringway_stack::tcp;
use ringway_xdp::{Counters, Settings, XdpDevice, XdpQueues};

use crate::link::{Cable, Link, OUR_MAC, PEERS_MAC};

const ROUNDS: usize = 5;
const EXCHANGES: usize = 5_000;
const MESSAGE: usize = 64;
const FLOOD: Duration = Duration::from_millis(500);

/// One end of an exchange.
enum End {
    KernelTcp(TcpStream),
    KernelUdp(UdpSocket),
    Ring { ring: Box<Ring<XdpQueues>>, clock: Clock, flow: FlowId, to: Option<(SocketAddr, NextHop)>, local: IpAddr, is_tcp: bool },
}

impl End {
    /// Sends a message, whole.
    fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::KernelTcp(stream) => stream.write_all(bytes).expect("64 bytes fit"),
            Self::KernelUdp(socket) => drop(socket.send(bytes)),
            Self::Ring { ring, clock, flow, to, local, is_tcp } => {
                let (now, data) = (clock.now(), [IoSlice::new(bytes)]);
                let sent = if *is_tcp {
                    ring.tcp_send(now, *flow, &data, SendFlags::empty())
                } else {
                    ring.udp_send(now, *flow, &data, *local, *to)
                };
                assert_eq!(sent, Ok(bytes.len()));
            }
        }
    }

    /// Receives a message, or gives up when told to.
    fn receive(&mut self, bytes: &mut [u8], stop: &AtomicBool) -> bool {
        while !stop.load(Ordering::Relaxed) {
            let got = match self {
                Self::KernelTcp(stream) => tried(stream.read(bytes)),
                Self::KernelUdp(socket) => tried(socket.recv(bytes)),
                Self::Ring { ring, clock, flow, is_tcp, .. } => {
                    let now = clock.now();
                    ring.poll(now);
                    let mut into = [IoSliceMut::new(bytes)];
                    if *is_tcp {
                        ring.tcp_recv(now, *flow, &mut into, RecvFlags::empty()).is_ok()
                    } else {
                        ring.udp_recv(*flow, &mut into, RecvFlags::empty()).is_ok()
                    }
                }
            };
            if got {
                return true;
            }
        }
        false
    }

    fn counters(&self) -> Option<Counters> {
        if let Self::Ring { ring, .. } = self { Some(ring.queues().counters()) } else { None }
    }
}

fn tried(result: std::io::Result<usize>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    }
}

/// A ring on an interface of the calling thread's namespace.
fn ring(interface: &str, local: IpAddr) -> Box<Ring<XdpQueues>> {
    let device = XdpDevice::attach(&Settings::new(interface)).expect("an interface with XDP");
    let queues = device.open(&QueuesConfig::default()).expect("its ring");
    Box::new(Ring::new(queues, RingConfig { addresses: vec![local], ..RingConfig::default() }, [9; 32]))
}

/// The end that listens, and echoes.
fn server(by_ring: bool, is_tcp: bool, local: SocketAddr, remote: SocketAddr, ready: &AtomicBool, stop: &AtomicBool) -> End {
    if !by_ring && is_tcp {
        let listener = TcpListener::bind(local).expect("a listener");
        ready.store(true, Ordering::Release);
        let stream = listener.accept().expect("a client").0;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).expect("options");
        return End::KernelTcp(stream);
    }
    if !by_ring {
        let socket = UdpSocket::bind(local).expect("a socket");
        socket.connect(remote).and_then(|()| socket.set_nonblocking(true)).expect("options");
        ready.store(true, Ordering::Release);
        return End::KernelUdp(socket);
    }
    let (mut ring, clock) = (ring("b0", local.ip()), Clock::system());
    let flow = if is_tcp { ring.tcp_listen(local, 4, &config()) } else { ring.udp_open(local, &UdpOptions::default()) };
    let mut flow = flow.expect("room");
    ready.store(true, Ordering::Release);
    while is_tcp && !stop.load(Ordering::Relaxed) {
        ring.poll(clock.now());
        if let Ok(accepted) = ring.tcp_accept(flow) {
            flow = accepted;
            break;
        }
    }
    End::Ring { ring, clock, flow, to: Some((remote, NextHop::Mac(OUR_MAC))), local: local.ip(), is_tcp }
}

fn config() -> tcp::Config {
    tcp::Config { nodelay: true, ..tcp::Config::default() }
}

/// The end that asks.
fn client(by_ring: bool, is_tcp: bool, local: SocketAddr, remote: SocketAddr) -> End {
    if !by_ring && is_tcp {
        let stream = TcpStream::connect(remote).expect("a server");
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).expect("options");
        return End::KernelTcp(stream);
    }
    if !by_ring {
        let socket = UdpSocket::bind(local).expect("a socket");
        socket.connect(remote).and_then(|()| socket.set_nonblocking(true)).expect("options");
        return End::KernelUdp(socket);
    }
    let (mut ring, clock, hop) = (ring("a0", local.ip()), Clock::system(), NextHop::Mac(PEERS_MAC));
    let flow = if is_tcp {
        let flow = ring.tcp_connect(clock.now(), local, remote, hop, &config()).expect("room");
        while ring.info(flow).and_then(|info| info.state) != Some(tcp::State::Established) {
            ring.poll(clock.now());
        }
        flow
    } else {
        ring.udp_open(local, &UdpOptions::default()).expect("room")
    };
    End::Ring { ring, clock, flow, to: Some((remote, hop)), local: local.ip(), is_tcp }
}

/// The median round trip in microseconds, and system calls to send of each message of ours.
fn exchange(link: &Link, is_tcp: bool, [ours, theirs]: [bool; 2], port: u16) -> (f64, Option<f64>) {
    let (local, remote) = (SocketAddr::new(link.local, port), SocketAddr::new(link.remote, port));
    let [ready, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let server = link.as_peer({
        let (ready, stop) = (Arc::clone(&ready), Arc::clone(&stop));
        move || {
            let mut end = server(theirs, is_tcp, remote, local, &ready, &stop);
            let mut bytes = [0; MESSAGE];
            while end.receive(&mut bytes, &stop) {
                end.send(&bytes);
            }
        }
    });
    while !ready.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let mut end = client(ours, is_tcp, local, remote);
    let mut bytes = [7; MESSAGE];
    let mut times = Vec::with_capacity(EXCHANGES);
    let before = end.counters();
    for _ in 0..EXCHANGES {
        let began = Instant::now();
        end.send(&bytes);
        end.receive(&mut bytes, &stop);
        times.push(began.elapsed());
    }
    let wakeups = end.counters().zip(before).map(|(now, before)| (now.wakeups - before.wakeups) as f64 / EXCHANGES as f64);
    stop.store(true, Ordering::Relaxed);
    server.join().expect("the server");
    times.sort_unstable();
    (times[EXCHANGES / 2].as_secs_f64() * 1e6, wakeups)
}

/// Frames a second that a device takes of a kernel's flood, and does nothing with; and datagrams a second that a ring's program receives of the same.
fn flood(link: &Link, by_ring: bool, port: u16) -> f64 {
    let (local, remote) = (SocketAddr::new(link.local, port), link.remote);
    let stop = Arc::new(AtomicBool::new(false));
    let mut ring = ring("a0", local.ip());
    let flow = ring.udp_open(local, &UdpOptions { rcvbuf: 8 << 20, ..UdpOptions::default() }).expect("room");
    let sender = link.as_peer({
        let stop = Arc::clone(&stop);
        move || {
            let socket = UdpSocket::bind(SocketAddr::new(remote, 0)).expect("a socket");
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.send_to(&[1; MESSAGE], local);
            }
        }
    });
    let (clock, began, mut count) = (Clock::system(), Instant::now(), 0);
    let mut batch = RxBatch::new(64);
    let mut bytes = [0; MESSAGE];
    while began.elapsed() < FLOOD {
        if by_ring {
            ring.poll(clock.now());
            while ring.udp_recv(flow, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()).is_ok() {
                count += 1;
            }
        } else {
            count += ring.queues_mut().poll_rx(clock.now(), &mut batch);
            batch.clear();
        }
    }
    let elapsed = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    sender.join().expect("the sender");
    count as f64 / elapsed.as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A kind of exchange, and who is at our end and at the other one: a ring?
const KINDS: [(&str, bool); 2] = [("tcp", true), ("udp", false)];
const WHO: [(&str, [bool; 2]); 4] = [
    ("kernel with kernel", [false, false]),
    ("ring with kernel", [true, false]),
    ("kernel with ring", [false, true]),
    ("ring with ring", [true, true]),
];

fn main() {
    // (Cargo passes options for its own harness.)
    let Some(link) = Link::make(Cable::default()) else {
        eprintln!("network namespaces need root, and ip(8)");
        std::process::exit(1);
    };
    let mut ports = 6000..;
    let mut port = || ports.next().expect("there are more");
    let mut times = vec![Vec::new(); KINDS.len() * WHO.len()];
    let mut wakeups = vec![None; times.len()];
    let mut floods = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (at, ((_, is_tcp), (_, who))) in KINDS.iter().flat_map(|kind| WHO.iter().map(move |who| (kind, who))).enumerate() {
            let (time, calls) = exchange(&link, *is_tcp, *who, port());
            times[at].push(time);
            wakeups[at] = calls;
        }
        for (by_ring, rates) in [false, true].into_iter().zip(&mut floods) {
            rates.push(flood(&link, by_ring, port()));
        }
    }
    println!("| 64 bytes, round trip, median | us | of the kernel's | calls to send, a message |\n|---|--:|--:|--:|");
    let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
    for (at, ((kind, _), (who, _))) in KINDS.iter().flat_map(|kind| WHO.iter().map(move |who| (kind, who))).enumerate() {
        let kernels = medians[at / WHO.len() * WHO.len()];
        let calls = wakeups[at].map_or("-".to_owned(), |calls| format!("{calls:.2}"));
        println!("| {kind}, {who} | {:.2} | {:.2} | {calls} |", medians[at], medians[at] / kernels);
    }
    let [device, ring] = floods.each_mut().map(|rates| median(rates));
    println!(
        "| datagrams of 64 bytes a second, of a kernel's flood | a ring's program: {ring:.0} | the device alone: {device:.0} | {:.2} |",
        ring / device
    );
}
