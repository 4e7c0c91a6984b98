//! Two of us on one interface, each with some of its queues, and the kernel, which has what comes for one by the other's.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};

use ringway_host::Clock;
use ringway_stack::device::{Device as _, FlowRule, Protocol, QueueId, RuleError, Target};
use ringway_stack::ring::{FlowId, RecvFlags, Ring, RingConfig, UdpOptions};
use ringway_xdp::{AttachError, Settings, XdpDevice, XdpQueues};

use crate::link::{Cable, Link};
use crate::world::{PATIENCE, on_link};

/// So many senders that some of them come by each queue, most likely; and by each half of them for sure, all but.
const SENDERS: usize = 32;

/// One of us.
struct Part {
    device: XdpDevice,
    rings: Vec<Ring<XdpQueues>>,
    flows: Vec<FlowId>,
    /// The kernel's half of the socket.
    placeholder: UdpSocket,
    local: SocketAddr,
}

fn attach(queues: (u32, u32)) -> Result<XdpDevice, AttachError> {
    XdpDevice::attach(&Settings { queues: Some(queues), ..Settings::new("a0") })
}

impl Part {
    /// With these queues, a ring on each, and a socket at that port.
    fn new(link: &Link, queues: (u32, u32), port: u16) -> Self {
        let device = attach(queues).expect("its queues");
        let opened = device.open_rings(1 + queues.1 - queues.0).expect("its rings");
        let config = |number| RingConfig { number, addresses: vec![link.local], ..RingConfig::default() };
        let mut rings: Vec<_> = (0..).zip(opened).map(|(number, queues)| Ring::new(queues, config(number), [port as u8; 32])).collect();
        let local = SocketAddr::new(link.local, port);
        let placeholder = UdpSocket::bind(local).expect("a socket");
        placeholder.set_nonblocking(true).expect("a socket");
        let flows = rings.iter_mut().map(|ring| ring.udp_open(local, &UdpOptions::default()).expect("room")).collect();
        Self { device, rings, flows, placeholder, local }
    }

    /// What it has received by its rings, and by the kernel.
    fn receive(&mut self, clock: &Clock) -> [usize; 2] {
        let (mut into, mut by) = ([0; 16], [0; 2]);
        for (ring, flow) in self.rings.iter_mut().zip(&self.flows) {
            ring.poll(clock.now());
            while ring.udp_recv(*flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()).is_ok() {
                by[0] += 1;
            }
        }
        while self.placeholder.recv(&mut into).is_ok() {
            by[1] += 1;
        }
        by
    }
}

/// Has the peer send a datagram from many sockets to each. What came to each, by its rings and by the kernel.
fn sprayed(link: &Link, parts: &mut [&mut Part]) -> Vec<[usize; 2]> {
    let (clock, remote) = (Clock::system(), link.remote);
    let to: Vec<SocketAddr> = parts.iter().map(|part| part.local).collect();
    let peer = link.as_peer(move || {
        for _ in 0..SENDERS {
            let socket = UdpSocket::bind(SocketAddr::new(remote, 0)).expect("a socket");
            to.iter().for_each(|to| assert_eq!(socket.send_to(b"spray", to).expect("it leaves"), 5));
        }
    });
    let (end, mut came) = (clock.now() + PATIENCE, vec![[0; 2]; parts.len()]);
    while came.iter().any(|by| by.iter().sum::<usize>() < SENDERS) {
        assert!(clock.now() < end, "{came:?}");
        for (part, by) in parts.iter_mut().zip(&mut came) {
            let more = part.receive(&clock);
            (by[0], by[1]) = (by[0] + more[0], by[1] + more[1]);
        }
    }
    peer.join().expect("the peer");
    came
}

/// Whether all of it came, and some of it each way.
fn is_shared_out(came: &[usize; 2]) -> bool {
    came.iter().sum::<usize>() == SENDERS && came.iter().all(|count| *count > 0)
}

#[test]
fn each_has_what_comes_for_it_by_its_own_queues_and_the_kernel_the_rest() {
    for is_v6 in [false, true] {
        on_link(Cable { is_v6, queues: 4, ..Cable::default() }, |link| {
            let mut one = Part::new(&link, (0, 1), 5001);
            let mut other = Part::new(&link, (2, 3), 5002);
            assert!(one.device.is_partial() && other.device.is_partial());
            let came = sprayed(&link, &mut [&mut one, &mut other]);
            assert!(came.iter().all(is_shared_out), "{came:?}");
            // Of the same sockets of the peer's, each went to both: what one has by its rings the other has by the kernel, but for how the peer's kernel spreads.
            let rule = FlowRule::flow(Protocol::Udp, one.local, None);
            let taken = other.device.attach(&rule, Target::Queue(QueueId(0))).map(drop);
            assert_eq!(taken, Err(RuleError::Taken), "a flow is one of them's");
        });
    }
}

#[test]
fn whoever_is_left_goes_on_and_the_queues_of_who_has_gone_are_the_next_ones() {
    on_link(Cable { queues: 4, ..Cable::default() }, |link| {
        // (The program in front is the first one's.)
        let first = Part::new(&link, (0, 1), 5001);
        let mut second = Part::new(&link, (2, 2), 5002);
        drop(first);
        let came = sprayed(&link, &mut [&mut second]);
        assert!(is_shared_out(&came[0]), "{came:?}");
        let mut third = Part::new(&link, (0, 0), 5001);
        let came = sprayed(&link, &mut [&mut second, &mut third]);
        assert!(came.iter().all(is_shared_out), "{came:?}");
    });
}

#[test]
fn a_queue_is_one_ones_and_has_to_be_there() {
    on_link(Cable { queues: 4, ..Cable::default() }, |link| {
        let _first = Part::new(&link, (1, 2), 5001);
        for asked in [(0, 4), (2, 1)] {
            assert!(matches!(attach(asked), Err(AttachError::NoQueue { there: 4, .. })), "{asked:?}");
        }
        let beside = attach((2, 3)).expect("the program is shared");
        assert!(matches!(beside.open_rings(1), Err(AttachError::Taken { .. })));
        assert!(matches!(XdpDevice::attach(&Settings::new("a0")), Err(AttachError::Taken { .. })), "who wants all has none");
    });
}
