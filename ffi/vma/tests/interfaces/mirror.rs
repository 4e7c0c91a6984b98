//! A mirror at the other end of the cable: a card that sends back each packet which comes for its address, as if that had come from there. So a program at our end, on a card as
//! well, that talks to that address talks to itself, and all of it goes from card to card, twice: programs that were written for one process on shared memory are tried
//! on cards as they are.
//!
//! (Addresses change places, which leaves each checksum as it is: RFC 1071's sum does not know in which order it was added up.)

use std::path::Path;
use std::process::Command;

use ringway_host::Clock;
use ringway_mlx5::{Mlx5Device, Mlx5Queues, Settings};
use ringway_stack::device::{Device as _, HEAD_MAX, QueuesConfig, RxBatch, TxOffload};
use ringway_stack::raw::RawQueue;

use crate::cable::{Cable, ENDS, Running};
use crate::cards::{Bus, card};
use crate::namespaces::ip;

/// In the environment of the process that is the mirror.
const IS_MIRROR: &str = "RINGWAY_INTERFACES_IS_MIRROR";
/// What the longest frame of a card's port has, without its Ethernet header.
pub(crate) const MTU: &str = "9000";

/// A cable with a mirror at its other end.
pub(crate) struct Mirrored {
    bus: Bus,
    mirror: Option<Running>,
}

impl Mirrored {
    pub(crate) fn new(cable: &Cable) -> Self {
        ip(&format!("link set a0 mtu {MTU}\n"));
        cable.within_there(|| ip(&format!("link set b0 mtu {MTU}\n")));
        let (bus, own) = (Bus::new(), std::env::current_exe().expect("the test has a path"));
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "600"]).arg(own).args(["--exact", "mirror::is_a_mirror", "--ignored", "--nocapture"]);
        command.env("LD_PRELOAD", card()).env(IS_MIRROR, "1");
        bus.lead(&mut command, "b0");
        let mut mirror = cable.within_there(|| Running::start(command));
        while mirror.line() != "mirror" {
            assert!(!mirror.is_over(), "the mirror has a card");
        }
        Self { bus, mirror: Some(mirror) }
    }

    /// Runs a program on a card, which reaches itself by way of the mirror. What it says to its log; it says nothing else.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let [own, mirror] = ENDS[0];
        let mut command = self.bus.command(program, "a0", arguments);
        command.env("RINGWAY_TEST_OWN", own).env("RINGWAY_TEST_MIRROR", mirror).envs(environment.iter().copied());
        Running::start(command).says()
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        if let Some(mirror) = self.mirror.take() {
            mirror.end();
        }
    }
}

#[test]
#[ignore = "a process that other tests begin"]
fn is_a_mirror() {
    if std::env::var_os(IS_MIRROR).is_none() {
        return;
    }
    let settings = Settings { is_beside_kernel: false, ..Settings::new("mlx5_0") };
    let device = Mlx5Device::open_card(&settings).expect("a card");
    let mut queue = RawQueue::new(device.open(&QueuesConfig::default()).expect("a ring"));
    let (clock, mut batch) = (Clock::system(), RxBatch::new(64));
    println!("\nmirror");
    loop {
        if queue.poll(clock.now(), &mut batch) == 0 {
            std::thread::yield_now();
            continue;
        }
        batch.frames_mut().iter().for_each(|frame| reflect(&mut queue, frame.to_vec()));
        queue.flush();
        queue.reap();
        batch.clear();
    }
}

/// Sends a frame back, if it is a packet of IP.
fn reflect(queue: &mut RawQueue<Mlx5Queues>, mut frame: Vec<u8>) {
    if !turned(&mut frame) {
        return;
    }
    let (head, payload) = frame.split_at(frame.len().min(HEAD_MAX));
    while queue.send(head, payload, TxOffload::default()).is_err() {
        queue.flush();
        queue.reap();
    }
}

/// Has both ends of a frame change places. Whether it is a packet of IP.
pub(crate) fn turned(frame: &mut [u8]) -> bool {
    let (at, len) = match frame.get(12..14) {
        Some([0x08, 0x00]) => (26, 4),
        Some([0x86, 0xdd]) => (22, 16),
        _ => return false,
    };
    if frame.len() < at + 2 * len {
        return false;
    }
    for (at, len) in [(0, 6), (at, len)] {
        let (first, second) = frame[at..at + 2 * len].split_at_mut(len);
        first.swap_with_slice(second);
    }
    true
}
