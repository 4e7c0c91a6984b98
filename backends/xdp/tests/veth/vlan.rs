//! Frames with a VLAN tag: the kernel's, which may have interfaces above ours, whatever rules the ring has for the same addresses.
//!
//! A packet socket on our interface hears what the kernel has of it: so the test needs no kernel that has VLANs.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use std::io::IoSliceMut;

use ringway_stack::Error;
use ringway_stack::ring::{FlowId, RecvFlags, UdpOptions};
use ringway_xdp::Settings;

use crate::link::{Cable, OUR_MAC, PEERS_MAC};
use crate::world::{PATIENCE, World, in_world};

/// A socket for all frames of an interface of the calling thread's namespace.
fn packets(interface: &std::ffi::CStr) -> OwnedFd {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(all)) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made it, for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeroes is a valid address, and the name ends with a zero.
    let (mut address, index) = unsafe { (core::mem::zeroed::<libc::sockaddr_ll>(), libc::if_nametoindex(interface.as_ptr())) };
    (address.sll_family, address.sll_protocol, address.sll_ifindex) = (libc::AF_PACKET as u16, all, index as i32);
    // SAFETY: the address is readable for its length.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    fd
}

/// Whether a frame that ends like this is heard within that time.
fn hears(packets: &OwnedFd, end: &[u8], within: core::time::Duration) -> bool {
    let (begin, mut frame) = (std::time::Instant::now(), [0_u8; 2048]);
    while let Some(left) = within.checked_sub(begin.elapsed()) {
        let mut fds = [libc::pollfd { fd: packets.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        // SAFETY: one descriptor is there.
        unsafe { libc::poll(fds.as_mut_ptr(), 1, left.as_millis() as i32 + 1) };
        // SAFETY: the frame is writable for its length.
        let len = unsafe { libc::recv(packets.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        if frame.get(..len.max(0) as usize).is_some_and(|frame| frame.ends_with(end)) {
            return true;
        }
    }
    false
}

/// A datagram in a frame with these tags. (No checksum: nobody is to look at it.)
fn tagged(tags: &[u16], from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut frame = [OUR_MAC.0, PEERS_MAC.0].concat();
    tags.iter().for_each(|kind| frame.extend([kind.to_be_bytes(), [0, 5]].concat()));
    let len = (8 + payload.len()) as u16;
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, libc::IPPROTO_UDP as u8, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([libc::IPPROTO_UDP as u8, 64]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => panic!("{from} and {to} are of one family"),
    }
    [from.port(), to.port(), len, 0].iter().for_each(|word| frame.extend(word.to_be_bytes()));
    frame.extend(payload);
    frame
}

/// What has come by the ring.
fn received(world: &mut World, flow: FlowId) -> Option<Vec<u8>> {
    let mut into = [0; 16];
    match world.ring.udp_recv(flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()) {
        Err(Error::WouldBlock) => None,
        got => Some(into[..got.expect("a datagram").copied].to_vec()),
    }
}

#[test]
fn a_tagged_frame_of_a_flow_is_the_kernels_and_an_untagged_one_the_rings() {
    for is_v6 in [false, true] {
        let settings = Settings { checksums: is_v6, ..Settings::new("a0") };
        in_world(Cable { is_v6, ..Cable::default() }, &settings, |mut world| {
            let kernels = packets(c"a0");
            let (local, from) = (world.fresh(), SocketAddr::new(world.link.remote, 7000));
            let flow = world.ring.udp_open(local, &UdpOptions::default()).expect("room");
            let say = |world: &World| {
                let sent =
                    world.link.as_peer(move || UdpSocket::bind(from).expect("a socket").send_to(b"untagged", local).expect("it leaves"));
                assert_eq!(sent.join().expect("the peer"), 8);
            };
            say(&world);
            let got = world.until("what has no tag", |world| received(world, flow));
            assert_eq!(got, b"untagged");
            assert!(!hears(&kernels, b"untagged", core::time::Duration::from_millis(20)), "the kernel has none of it");

            for (tags, what) in [(&[0x8100][..], b"tagged"), (&[0x88a8, 0x8100], b"twice!")] {
                let frame = tagged(tags, from, local, what);
                let peer = world.link.as_peer(move || {
                    let socket = packets(c"b0");
                    // SAFETY: the frame is readable for its length.
                    unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) == frame.len() as isize }
                });
                assert!(peer.join().expect("the peer"), "it leaves");
                assert!(hears(&kernels, what, PATIENCE), "a frame with tags {tags:x?} is the kernel's");
            }
            // What comes behind them is the ring's again, and the first that it hears.
            say(&world);
            let got = world.until("what has no tag", |world| received(world, flow));
            assert_eq!(got, b"untagged", "the ring has heard nothing of what has a tag");
        });
    }
}
