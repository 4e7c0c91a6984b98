//! What cannot leave, and says why; and goes on in its ring as if nothing had been.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};

use ringway_host::leave::{FromKernel, Kernel, LeaveError};
use ringway_stack::Error;
use ringway_stack::device::Queues as _;
use ringway_stack::ring::RingConfig;
use ringway_stack::tcp::{Config, State};

use crate::namespaces::ip;
use crate::pair::{Ours, PEER, Pair, US};
use crate::world::{World, in_world, in_worlds};

const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;

/// Takes a capability from the calling thread's effective ones, or gives it back (capset(2), version 3).
fn may(capability: u32, may: bool) {
    let mut header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    // SAFETY: the header is readable, and there is room for the version's two sets.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    assert_eq!(got, 0);
    sets[0] = if may { sets[0] | 1 << capability } else { sets[0] & !(1 << capability) };
    // SAFETY: header and sets are readable.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn without_cap_net_admin_it_stays_and_goes_on() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        pair.write_all(PEER, 3000);
        let placeholder = pair.world.placeholder(pair.local);
        may(CAP_NET_ADMIN, false);
        assert!(matches!(Kernel::open(pair.world.clock), Err(LeaveError::NeedsNetAdmin)));
        let refused = pair.try_kernel(placeholder);
        may(CAP_NET_ADMIN, true);
        let Err((error, placeholder)) = refused else { panic!("it was taken over") };
        assert!(matches!(error, LeaveError::NeedsNetAdmin), "{error}");
        assert!(error.to_string().contains("CAP_NET_ADMIN") && !error.to_string().contains('\n'));
        pair.talk();
        pair.try_kernel(placeholder).map_err(|(error, _)| error).expect("it may now");
        // And the way back.
        may(CAP_NET_ADMIN, false);
        let Ours::Kernel(stream, _) = &pair.ours else { panic!("it is the kernel's") };
        let refused = FromKernel::take(stream.as_fd(), &pair.world.clock).map(drop);
        may(CAP_NET_ADMIN, true);
        assert!(matches!(refused, Err(LeaveError::NeedsNetAdmin)));
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

#[test]
fn without_cap_net_raw_the_states_that_need_it_stay() {
    in_world(false, RingConfig::default(), |world| {
        let mut pair = Pair::connect(world);
        may(CAP_NET_RAW, false);
        pair.kernel = Kernel::open(pair.world.clock).expect("CAP_NET_ADMIN is enough for that");
        may(CAP_NET_RAW, true);
        assert!(!pair.kernel.abilities().injects);
        pair.move_to_kernel();
        pair.talk();
        pair.move_to_ring();
        pair.write_all(PEER, 3000);
        pair.shut(PEER);
        pair.until(State::CloseWait);
        let placeholder = pair.world.placeholder(pair.local);
        let Err((error, _)) = pair.try_kernel(placeholder) else { panic!("it was taken over") };
        assert!(matches!(error, LeaveError::NeedsNetRaw(State::CloseWait)), "{error}");
        pair.write_all(US, 3000);
        pair.finish(&[US]);
    });
}

/// In the middle of being restored: its socket is the placeholder again, and the peer has heard nothing.
#[test]
fn what_fails_halfway_goes_back_unharmed() {
    in_worlds(|world| {
        let mut pair = Pair::connect(world);
        pair.talk();
        pair.write_all(PEER, 3000);
        pair.write(US, 3000);
        let family = if pair.local.is_ipv4() { "route del 10.77.0.0/24 dev a0" } else { "-6 route del fd77::/64 dev a0" };
        let placeholder = pair.world.placeholder(pair.local);
        in_family(family);
        let Err((error, placeholder)) = pair.try_kernel(placeholder) else { panic!("there was no way to the peer") };
        in_family(&family.replace("del", "add"));
        assert!(matches!(error, LeaveError::Step { step: "connect", .. }), "{error}");
        for whose in [US, PEER] {
            pair.drain(whose);
        }
        pair.talk();
        pair.try_kernel(placeholder).map_err(|(error, _)| error).expect("the same socket will do");
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

fn in_family(line: &str) {
    match line.strip_prefix("-6 ") {
        Some(line) => {
            let ran = std::process::Command::new("ip").arg("-6").args(line.split(' ')).status().expect("ip(8)");
            assert!(ran.success(), "{line}");
        }
        None => ip(&format!("{line}\n")),
    }
}

#[test]
fn a_socket_that_is_not_the_connections_is_refused() {
    in_world(false, RingConfig::default(), |world| {
        let mut pair = Pair::connect(world);
        let other = SocketAddr::new(pair.local.ip(), 4999);
        let placeholder = pair.world.placeholder(other);
        let Err((error, _)) = pair.try_kernel(placeholder) else { panic!("it was taken over") };
        assert!(matches!(error, LeaveError::Placeholder(_)), "{error}");
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

/// Nobody needs its descriptor, and its owner waits for late segments.
#[test]
fn one_in_time_wait_stays() {
    in_world(false, RingConfig::default(), |world| {
        let mut pair = Pair::connect(world);
        pair.shut(US);
        pair.until(State::FinWait2);
        pair.shut(PEER);
        pair.until(State::TimeWait);
        let placeholder = pair.world.placeholder(pair.local);
        let Err((error, _)) = pair.try_kernel(placeholder) else { panic!("it was taken over") };
        assert!(matches!(error, LeaveError::State(State::TimeWait)), "{error}");
        assert_eq!(pair.state(), Some(State::TimeWait));
        pair.finish(&[]);
    });
}

/// A connection that a listener accepted has no rule of its own as long as that is there.
#[test]
fn one_that_comes_by_its_listeners_rule_stays_until_the_listener_ends() {
    in_worlds(|world| {
        let local = world.fresh();
        let listener = world.ring.tcp_listen(local, 4, &Config::default()).expect("a rule");
        let from = SocketAddr::new(world.remote, 7000);
        let peers = world.as_peer(|| world.placeholder(from));
        connect(&peers, local);
        let id = loop {
            world.ring.poll(world.now());
            match world.ring.tcp_accept(listener) {
                Ok(id) => break id,
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
        };
        let mut pair = Pair::of(world, Ours::Ring(id), TcpStream::from(peers), local, from);
        pair.talk();
        let placeholder = pair.world.placeholder(local);
        let Err((error, placeholder)) = pair.try_kernel(placeholder) else { panic!("it was taken over") };
        assert!(matches!(error, LeaveError::NoRuleOfItsOwn), "{error}");
        pair.talk();
        pair.world.ring.tcp_withdraw(listener);
        pair.try_kernel(placeholder).map_err(|(error, _)| error).expect("it has one now");
        pair.talk();
        pair.move_to_ring();
        pair.talk();
        pair.finish(&[US, PEER]);
    });
}

fn connect(socket: &std::os::fd::OwnedFd, to: SocketAddr) {
    let address = crate::world::sockaddr(to);
    // SAFETY: the address is readable for its length.
    unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) };
}

/// Nobody can use such a socket's connection.
#[test]
fn a_socket_without_a_connection_is_not_taken() {
    in_world(false, RingConfig::default(), |world: &mut World| {
        let listener = std::net::TcpListener::bind(SocketAddr::new(world.local, 4000)).expect("a listener");
        assert!(FromKernel::take(listener.as_fd(), &world.clock).is_err());
        assert_eq!(world.ring.queues().device().rules(), 0);
        assert!(world.as_peer(|| TcpStream::connect(SocketAddr::new(world.local, 4000))).is_ok(), "it listens on");
    });
}
