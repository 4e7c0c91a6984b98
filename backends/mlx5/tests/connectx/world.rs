//! Processes that have the software ConnectX, and cards in them.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ringway_host::Clock;
use ringway_mlx5::{Mlx5Device, Mlx5Queues, Received, SendBuffer, Settings};
use ringway_stack::Instant;
use ringway_stack::device::{
    Device as _, MacAddr, Queues as _, QueuesConfig, RxBatch, SendError, TxBuffer as _, TxFrame, TxOffload, TxSlice,
};
use ringway_stack::ring::{NextHop, Ring, RingConfig};

/// What is waited for, at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// In the environment of a process that has the card: what it is to be.
const ROLE: &str = "RINGWAY_MLX5_TEST_ROLE";

/// The library that was built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.parent().expect("target/<profile>/deps/<test>").join("libringway_connectx.so");
    assert!(library.exists(), "ringway-uverbs is built with the package's tests");
    library
}

fn start(test: &str, role: &str, bus: &str) -> Child {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "env"]).arg(format!("LD_PRELOAD={}", library().display()));
    command.arg(std::env::current_exe().expect("the test has a path")).args(["--exact", test, "--nocapture"]);
    command.env(ROLE, role).env("RINGWAY_CONNECTX_BUS", bus).env("RINGWAY_CONNECTX_LOG", "1").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout(1) and env(1)")
}

/// Runs a test, by its path in this crate, in a process for each role, all on one bus, and gives what the processes wrote to standard error.
pub(crate) fn on_cards(test: &str, roles: &[(&str, fn())]) -> Vec<String> {
    if let Ok(own) = std::env::var(ROLE) {
        let (_, body) = roles.iter().find(|(role, _)| *role == own).expect("one of the roles");
        body();
        std::process::exit(0);
    }
    let (_, name) = test.split_once("::").expect("the crate's name first");
    let bus = format!("mlx5-{}-{}", name.replace("::", "-"), std::process::id());
    let children: Vec<Child> = roles.iter().map(|(role, _)| start(name, role, &bus)).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().expect("its output")).collect();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for ((role, _), output) in roles.iter().zip(&outputs) {
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{name}, as {role} (Debian's ibverbs-providers is needed): {said}");
    }
    outputs.iter().map(|output| text(&output.stderr)).collect()
}

/// The same of a test of one process.
pub(crate) fn on_card(test: &str, body: fn()) -> String {
    on_cards(test, &[("only", body)]).remove(0)
}

/// A test's path, for the above.
macro_rules! path_of {
    ($name:ident) => {
        concat!(module_path!(), "::", stringify!($name))
    };
}
pub(crate) use path_of;

/// Two cards, or rather two openings of the one: neither hears itself, as a card's context does not.
pub(crate) const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 0x0a]), MacAddr([2, 0, 0, 0, 0, 0x0b])];

/// Tells this process's card something from outside, as the README of ringway-uverbs has it.
pub(crate) fn tell_card(datagram: &[u8]) {
    // SAFETY: getuid(2) has no arguments.
    let (user, bus) = (unsafe { libc::getuid() }, std::env::var("RINGWAY_CONNECTX_BUS").expect("the bus"));
    let card = UnixAddress::from_abstract_name(format!("ringway-connectx/{user}/{bus}/0")).expect("a name");
    UnixDatagram::unbound().expect("a socket").send_to_addr(datagram, &card).expect("it is there");
}

pub(crate) fn settings(end: usize) -> Settings {
    Settings { mac: Some(MACS[end]), mtu: Some(1500), is_beside_kernel: false, ..Settings::new("mlx5_0") }
}

pub(crate) fn card(settings: &Settings) -> Mlx5Device {
    Mlx5Device::open_card(settings).expect("the software ConnectX")
}

pub(crate) fn ip(end: usize) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, 1 + end as u8).into()
}

pub(crate) fn address(end: usize, port: u16) -> SocketAddr {
    SocketAddr::new(ip(end), port)
}

pub(crate) fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at / 7 + salt).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u8 ^ at as u8).collect()
}

/// Numbers below what is asked for, that look random and are a seed's.
pub(crate) fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6a09_e667_f3bc_c909;
    move |limit| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % limit
    }
}

/// A ring of its own card.
pub(crate) struct End {
    pub(crate) clock: Clock,
    pub(crate) ring: Ring<Mlx5Queues>,
    pub(crate) number: usize,
}

impl End {
    pub(crate) fn new(number: usize) -> Self {
        Self::with(&settings(number), number)
    }

    pub(crate) fn with(settings: &Settings, number: usize) -> Self {
        let device = card(settings);
        let queues = device.open(&QueuesConfig::default()).expect("its ring");
        let ring = Ring::new(queues, RingConfig { addresses: vec![ip(number)], ..RingConfig::default() }, [number as u8; 32]);
        Self { clock: Clock::system(), ring, number }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// To the other end.
    pub(crate) fn hop(&self) -> NextHop {
        NextHop::Mac(MACS[1 - self.number])
    }
}

/// Serves rings until `done` gives something.
pub(crate) fn until<T>(ends: &mut [&mut End], what: &str, mut done: impl FnMut(&mut [&mut End]) -> Option<T>) -> T {
    let end = Clock::system().now() + PATIENCE;
    loop {
        for end in ends.iter_mut() {
            let now = end.now();
            end.ring.poll(now);
        }
        if let Some(result) = done(ends) {
            return result;
        }
        let counters: Vec<_> = ends.iter().map(|end| end.ring.queues().counters()).collect();
        assert!(Clock::system().now() < end, "not within {PATIENCE:?}: {what}; {counters:?}");
        std::thread::yield_now();
    }
}

/// A UDP frame of `len` bytes of payload from one end to the other, without checksums.
pub(crate) fn udp_frame(from: usize, to: usize, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut frame = [&MACS[to].0[..], &MACS[from].0, &[8, 0, 0x45, 0]].concat();
    frame.extend((20 + udp).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1 + from as u8, 10, 9, 0, 1 + to as u8]);
    [ports.0, ports.1, udp, 0].iter().for_each(|word| frame.extend(word.to_be_bytes()));
    frame.extend(payload);
    frame
}

/// Bytes of the headers of the above.
pub(crate) const HEAD: usize = 42;

/// Sends a frame, whose head is so long, with the rest in pieces of send buffers.
pub(crate) fn send(queues: &mut Mlx5Queues, frame: &[u8], head: usize, pieces: usize, offload: TxOffload) -> Result<(), SendError> {
    post(queues, frame, head, pieces, offload)?;
    queues.doorbell();
    Ok(())
}

/// The same without the doorbell.
pub(crate) fn post(queues: &mut Mlx5Queues, frame: &[u8], head: usize, pieces: usize, offload: TxOffload) -> Result<(), SendError> {
    let (head, body) = frame.split_at(head);
    let part = body.len().div_ceil(pieces.max(1)).max(1);
    let buffers: Vec<(SendBuffer, usize)> = body
        .chunks(part)
        .map(|bytes| {
            let mut buffer = queues.tx_alloc(bytes.len()).expect("a buffer");
            buffer.write(3, bytes);
            (buffer, bytes.len())
        })
        .collect();
    let body: Vec<TxSlice<'_, SendBuffer>> = buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 3, len: *len }).collect();
    queues.send(&TxFrame { head, body: &body, offload })
}

/// What came in a frame.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) bytes: Vec<u8>,
    pub(crate) meta: ringway_stack::device::RxMeta,
}

/// Takes frames until there are so many.
pub(crate) fn receive(queues: &mut Mlx5Queues, count: usize) -> Vec<Arrived> {
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    let mut arrived = Vec::new();
    while arrived.len() < count {
        assert!(clock.now() < end, "{} of {count} frames; {:?}", arrived.len(), queues.counters());
        arrived.extend(poll(queues));
        std::thread::yield_now();
    }
    assert_eq!(arrived.len(), count, "no more than were sent");
    arrived
}

/// Takes what is there.
pub(crate) fn poll(queues: &mut Mlx5Queues) -> Vec<Arrived> {
    let mut batch = RxBatch::<Received>::new(16);
    queues.poll_rx(Clock::system().now(), &mut batch);
    let arrived = batch.frames_mut().iter().map(|frame| Arrived { bytes: frame.to_vec(), meta: frame.meta }).collect();
    batch.clear();
    arrived
}

/// Nothing comes any more, as far as one can tell.
pub(crate) fn nothing_comes(queues: &mut Mlx5Queues) {
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1));
        assert!(poll(queues).is_empty());
    }
}
