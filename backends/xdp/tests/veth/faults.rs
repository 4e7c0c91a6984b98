//! What an interface does when it is short of something, goes down, or is somebody else's.

use core::time::Duration;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use ringway_host::Refused;
use ringway_stack::device::{Device as _, FlowRule, OpenError, Protocol, QueueId, QueuesConfig, RuleError, Target};
use ringway_stack::ring::SendFlags;
use ringway_xdp::{AttachError, Settings, XdpDevice};

use crate::link::Cable;
use crate::namespaces::ip;
use crate::peers::{both_streams, bytes, exchange_by_ring, open};
use crate::world::{World, in_world, in_worlds};

fn small(received_frames: u32, sent_frames: u32) -> Settings {
    Settings { received_frames, sent_frames, ..Settings::new("a0") }
}

/// A send queue that is full all the time, and so few frames to receive into that the interface drops some.
#[test]
fn few_frames_are_enough() {
    for settings in [small(2048, 4), small(16, 1024), small(16, 4)] {
        in_world(Cable::default(), &settings, |mut world| both_streams(&mut world));
    }
}

/// What was sent meanwhile is lost, and sent again.
#[test]
fn a_connection_outlives_an_interface_that_goes_down_and_up() {
    in_worlds(|world| {
        let (flow, peer) = open(world);
        let data = bytes(1 << 16, 1);
        let now = world.now();
        // (The first bytes of our stream, which the exchange goes on with.)
        ip("link set a0 down");
        let sent = world.ring.tcp_send(now, flow, &[IoSlice::new(&data[..0])], SendFlags::empty());
        assert_eq!(sent, Ok(0));
        let end = now + Duration::from_millis(300);
        world.until("some time", |world| (world.now() > end).then_some(()));
        ip("link set a0 up");
        if world.link.local.is_ipv6() {
            // (The kernel takes an address of IPv6 away with its interface.)
            ip("addr add fd77::1/64 dev a0 nodad");
        }
        exchange_by_ring(world, flow);
        world.until("the peer's end", |_| peer.is_finished().then_some(()));
        peer.join().expect("the peer");
    });
}

fn has_program() -> bool {
    let shown = Command::new("ip").args(["-details", "link", "show", "a0"]).output().expect("ip(8)");
    String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
}

#[test]
fn the_interface_is_the_kernels_again_when_the_device_is_gone() {
    in_world(Cable::default(), &Settings::new("a0"), |world| {
        assert!(has_program());
        let World { ring, device, .. } = world;
        drop(device);
        assert!(has_program(), "the ring has a handle of its own");
        drop(ring);
        // (The kernel ends a link a little later than its last descriptor.)
        for _ in 0..100 {
            if !has_program() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the program is still there");
    });
}

#[test]
fn rules_are_one_rings_and_end_with_it() {
    in_world(Cable::default(), &Settings::new("a0"), |mut world| {
        let rule = |port| FlowRule::flow(Protocol::Udp, SocketAddr::new(world.link.local, port), None);
        let (first, second, here) = (rule(1), rule(2), Target::Queue(QueueId(0)));
        let attached = world.device.attach(&first, here).expect("room");
        assert!(attached.is_ready);
        assert_eq!(world.device.attach(&first, here), Err(RuleError::Taken));
        assert_eq!(world.device.attach(&second, Target::Queue(QueueId(1))), Err(RuleError::NoQueue), "there is no such ring");
        assert!(matches!(world.device.attach(&second.tag(7), here), Err(RuleError::Unsupported(_))));
        assert!(matches!(world.device.attach(&second.shared(), here), Err(RuleError::Unsupported(_))));
        world.device.detach(attached.rule);
        world.device.detach(attached.rule);
        assert_eq!(world.device.retarget(attached.rule, here, 0), Err(RuleError::Ended));
        let again = world.device.attach(&first, here).expect("it is free again");
        assert_eq!(world.device.retarget(again.rule, here, 0), Ok(()));
        assert_eq!(world.device.open(&QueuesConfig::default()).map(drop), Err(OpenError::Full), "the interface has one queue");
        let local = world.fresh();
        world.ring.udp_open(local, &Default::default()).expect("room");
        assert_eq!(world.device.rules(), 2);
        let World { ring, device, .. } = world;
        drop(ring);
        assert_eq!(device.rules(), 0);
        let anew = device.open(&QueuesConfig::default()).expect("its queue is free");
        drop(anew);
    });
}

#[test]
fn who_cannot_have_an_interface_is_told_why() {
    in_world(Cable::default(), &Settings::new("a0"), |world| {
        assert!(matches!(world.link.local, IpAddr::V4(_)));
        let why = |name: &str| XdpDevice::attach(&Settings::new(name)).map(drop).expect_err("it is not to be had");
        assert!(matches!(why("a0"), AttachError::Taken { .. }), "{}", why("a0"));
        assert!(matches!(why("nobody0"), AttachError::NoInterface(_)));
        assert!(matches!(why("much-too-long-a-name"), AttachError::NoInterface(_)));
        assert!(matches!(why(""), AttachError::NoInterface(_)));
        assert!(matches!(why("lo"), AttachError::NotEthernet(_)));
        ip("link add a1 type veth peer name b1");
        without_capabilities();
        assert!(matches!(why("a1"), AttachError::Refused(Refused::NotPermitted { .. })), "{}", why("a1"));
    });
}

/// The calling thread has no privileges from now on.
fn without_capabilities() {
    // `struct __user_cap_header_struct` of version 3, and twice `struct __user_cap_data_struct`: none.
    let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    // SAFETY: both are readable for their lengths; the header is not written to, for its version is known.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
