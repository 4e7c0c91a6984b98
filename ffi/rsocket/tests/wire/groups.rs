//! Groups on interfaces: datagrams of UD queue pairs, between message planes of the test's own process, each with a seat of its own as another process would have one.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;
use std::time::{Duration, Instant as Time};

use ringway_devices::messages::{AreaPart, CardMemory, Fabric, Pages, Plane, attach};
use ringway_host::Clock;
use ringway_stack::device::messages::{
    Access, CmError, Connections as _, Data, MULTICAST_QP, Memory, Messages as _, Modify, Psn, QpConfig, SendOp, SendWr, Sge, Status,
    Transport,
};

use crate::in_world;
use crate::world::{Host, World};

const QKEY: u32 = 0x0123_4567;
/// Bytes of a receive: the network's header, and one number.
const LEN: usize = 40 + 8;
const RECEIVES: usize = 16;
const GROUPS: [&str; 2] = ["239.78.0.1", "ff15::78"];

/// Memory of the test's own.
struct Bytes(Vec<u8>);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<AreaPart> for Bytes {
    fn from(_: AreaPart) -> Self {
        unreachable!("shared memory's")
    }
}

impl From<Pages> for Bytes {
    fn from(_: Pages) -> Self {
        unreachable!("a card's")
    }
}

// SAFETY: it is registered with no card.
unsafe impl CardMemory for Bytes {
    fn start(&self) -> Option<NonNull<u8>> {
        None
    }
}

impl Memory for Bytes {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        self.0.read(offset, out);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0.write(offset, bytes);
    }
}

/// A process's queue pair of datagrams.
struct Ear {
    plane: Plane<Bytes>,
    fabric: Fabric,
    host: Host,
    qp: u32,
    cq: u32,
    key: u32,
    address: u64,
}

impl Ear {
    fn new(world: &World, host: Host, seed: u64) -> Self {
        let device = if host == Host::Client { "xdp:wa" } else { "xdp:wb" };
        let (mut plane, fabric) = world.within(host, || attach::<Bytes>(seed, device, Path::new("")).expect("a message plane"));
        let (pd, cq) = (plane.alloc_pd(), plane.create_cq(64).expect("room"));
        let depth = RECEIVES;
        let config = QpConfig {
            transport: Transport::Ud,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: depth,
            recv_depth: depth,
            sges_max: 1,
            inline_max: 64,
        };
        let qp = plane.create_qp(config).expect("room");
        let now = Clock::system().now();
        let to = [Modify::Init { access: Access::empty(), qkey: QKEY }, Modify::RtrDatagram, Modify::RtsDatagram { sq_psn: Psn::new(0) }];
        to.iter().for_each(|modify| plane.modify_qp(now, qp, modify).expect("a new queue pair"));
        let region = plane.register(pd, Bytes(vec![0; RECEIVES * LEN]), Access::LOCAL_WRITE).expect("room");
        let mut ear = Self { plane, fabric, host, qp, cq, key: region.key, address: region.address };
        (0..RECEIVES as u64).for_each(|place| ear.post(place));
        ear
    }

    fn post(&mut self, place: u64) {
        let sge = Sge { address: self.address + place * LEN as u64, len: LEN as u32, lkey: self.key };
        self.plane.post_recv(Clock::system().now(), self.qp, place, &[sge]).expect("room");
    }

    fn join(&mut self, world: &World, group: IpAddr) {
        let (qp, plane) = (self.qp, &mut self.plane);
        world.within(self.host, || plane.join(qp, group)).expect("a group");
    }

    fn send(&mut self, group: IpAddr, number: u64) {
        let (path, _) = self.plane.group_path(None, group).expect("a way");
        let op = SendOp::Datagram { path, dest_qp: MULTICAST_QP, qkey: QKEY, immediate: None };
        let bytes = number.to_be_bytes();
        self.plane.post_send(Clock::system().now(), self.qp, &SendWr::new(u64::MAX, op, Data::Inline(&bytes))).expect("room");
    }

    fn drive(&mut self) {
        let now = Clock::system().now();
        self.fabric.service();
        self.plane.take(now);
        self.plane.transmit(now);
    }

    /// The numbers that came.
    fn heard(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(completion) = self.plane.poll_cq(self.cq) {
            assert_eq!(completion.status, Status::Success);
            if completion.id == u64::MAX {
                continue;
            }
            let mut bytes = [0; 8];
            let memory = self.plane.memory(self.key).expect("registered");
            memory.read(completion.id * LEN as u64 + 40, &mut bytes);
            numbers.push(u64::from_be_bytes(bytes));
            self.post(completion.id);
        }
        numbers
    }
}

/// What each of them hears, within a second or until it is as it should be.
fn hear(ears: &mut [Ear], expected: &[&[u64]]) {
    let mut heard = vec![Vec::new(); ears.len()];
    let begun = Time::now();
    let least = Duration::from_millis(50);
    while begun.elapsed() < Duration::from_secs(1) && (heard != expected || begun.elapsed() < least) {
        for (ear, heard) in ears.iter_mut().zip(&mut heard) {
            ear.drive();
            heard.extend(ear.heard());
        }
    }
    assert_eq!(heard, expected);
}

/// Whether the kernel is a member on the server's interface.
fn is_member(world: &World, group: &str) -> bool {
    let output = world.within(Host::Server, || Command::new("ip").args(["maddr", "show", "dev", "wb"]).output().expect("ip(8)"));
    String::from_utf8_lossy(&output.stdout).contains(group)
}

/// One process at one end of the cable, and two at the other: the first by AF_XDP, the second by a packet socket.
#[test]
fn groups() {
    in_world(1500, |world| {
        let mut ears = [(Host::Client, 1), (Host::Server, 2), (Host::Server, 3)].map(|(host, seed)| Ear::new(world, host, seed));
        for name in GROUPS {
            let group: IpAddr = name.parse().expect("an address");
            assert!(!is_member(world, name));
            ears[0].send(group, 1);
            hear(&mut ears, &[&[], &[], &[]]);
            ears.iter_mut().for_each(|ear| ear.join(world, group));
            assert!(is_member(world, name), "routers and switches are told");
            for (from, number) in [(0, 2), (1, 3), (2, 4)] {
                ears[from].send(group, number);
                // Its sender hears it as well, and once.
                hear(&mut ears, &[&[number][..]; 3]);
            }
            let qp = ears[1].qp;
            ears[1].plane.leave(qp, group).expect("a member");
            assert_eq!(ears[1].plane.leave(qp, group), Err(CmError::Missing));
            assert!(is_member(world, name), "the other process is one still");
            ears[0].send(group, 5);
            hear(&mut ears, &[&[5], &[], &[5]]);
            ears[1].send(group, 6);
            hear(&mut ears, &[&[6], &[], &[6]]);
        }
        // With the queue pair its memberships end.
        let qp = ears[2].qp;
        ears[2].plane.destroy_qp(qp).expect("it is there");
        assert!(GROUPS.iter().all(|name| !is_member(world, name)));
    });
}
