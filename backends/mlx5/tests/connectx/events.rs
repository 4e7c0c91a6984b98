//! What a card tells beside completions: its port, its queues, and itself are no more, or are there again.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use ringway_host::Clock;
use ringway_stack::Error;
use ringway_stack::device::{Device as _, DeviceEvent, FlowRule, Protocol, Queues as _, QueuesConfig, TxOffload, Wake};
use ringway_stack::ring::{FlowId, NextHop, Readiness, RecvFlags, SendFlags, UdpOptions};
use ringway_stack::tcp::Config;

use crate::frames::pair;
use crate::streams::{STREAM, Side, is_established};
use crate::world::{
    End, HEAD, MACS, PATIENCE, address, bytes, card, ip, on_card, path_of, receive, send, settings, tell_card, udp_frame, until,
};

/// What a card is told (ringway-uverbs's README): kinds of events, by verbs' numbers, and a removal.
const CQ_ERROR: [u8; 2] = [5, 0];
const QP_FATAL: [u8; 2] = [5, 1];
const DEVICE_FATAL: [u8; 2] = [5, 8];
const WQ_FATAL: [u8; 2] = [5, 19];
const REMOVAL: [u8; 2] = [5, 255];
const PORT_DOWN: [u8; 2] = [4, 0];
const PORT_UP: [u8; 2] = [4, 1];

/// A connection between two rings, and the listener that it came by.
fn connected(a: &mut End, b: &mut End) -> [FlowId; 3] {
    let listener = b.ring.tcp_listen(address(1, 80), 4, &Config::default()).expect("room");
    let hop = a.hop();
    let flow = a.ring.tcp_connect(a.now(), address(0, 5000), address(1, 80), hop, &Config::default()).expect("room");
    let accepted = until(&mut [a, b], "the handshake", |ends| {
        let accepted = ends[1].ring.tcp_accept(listener).ok()?;
        Some(accepted).filter(|_| is_established(ends[0], flow))
    });
    [flow, accepted, listener]
}

#[test]
fn streams_arrive_whole_whatever_happens_to_the_link_and_to_queues() {
    on_card(path_of!(streams_arrive_whole_whatever_happens_to_the_link_and_to_queues), || {
        let (mut a, mut b) = (End::new(0), End::new(1));
        let [flow, accepted, _] = connected(&mut a, &mut b);
        let mut sides = [Side::new(flow, 0), Side::new(accepted, 1)];
        let plan = [PORT_DOWN, QP_FATAL, WQ_FATAL, CQ_ERROR, WQ_FATAL, PORT_DOWN, CQ_ERROR, QP_FATAL];
        let (mut told, mut down_until) = (0, None);
        until(&mut [&mut a, &mut b], "both streams", |ends| {
            let now = ends[0].now();
            if down_until.is_some_and(|until| now >= until) {
                down_until = None;
                tell_card(&PORT_UP);
            }
            let due = told < plan.len() && sides[0].arrived() >= (told + 1) * STREAM / (plan.len() + 1) && down_until.is_none();
            if due {
                tell_card(&plan[told]);
                down_until = (plan[told] == PORT_DOWN).then(|| now + Duration::from_millis(100));
                told += 1;
            }
            let done = [0, 1].map(|at| sides[at].go_on(ends[at]));
            done.iter().all(|done| *done).then_some(())
        });
        assert_eq!(told, plan.len(), "all of it happened while the streams were on their way");
        for end in [&a, &b] {
            let counters = end.ring.queues().counters();
            assert!(counters.send_failures >= 2 && counters.receive_failures >= 2, "{counters:?}");
        }
    });
}

/// Nobody sends, so that no completion tells of it; and rules lead to the new queue, with their tags.
#[test]
fn queues_that_fail_in_silence_come_back() {
    on_card(path_of!(queues_that_fail_in_silence_come_back), || {
        let [(_, mut from), (device, mut to)] = pair();
        let frame = udp_frame(0, 1, (5, 7), &bytes(1000, 1));
        let rule = FlowRule::flow(Protocol::Udp, address(1, 9), None).tag(99);
        to.steer(&rule).expect("room");
        let failures = |ring: &ringway_mlx5::Mlx5Queues| [ring.counters().send_failures, ring.counters().receive_failures];
        for (turn, (fault, hits)) in [(CQ_ERROR, [1, 1]), (QP_FATAL, [1, 0]), (WQ_FATAL, [0, 1]), (CQ_ERROR, [1, 1])].iter().enumerate() {
            assert!(to.arm(Wake::Any), "nothing has come");
            let wanted = [&from, &to].map(|ring| [failures(ring)[0] + hits[0], failures(ring)[1] + hits[1]]);
            tell_card(fault);
            let end = Clock::system().now() + PATIENCE;
            while [&from, &to].map(failures) != wanted {
                assert!(Clock::system().now() < end, "{fault:?} is told: {:?}, not {wanted:?}", [&from, &to].map(failures));
                assert!(
                    [&mut from, &mut to].map(|ring| ring.poll_event()).iter().all(|event| matches!(event, None | Some(DeviceEvent::Reset)))
                );
            }
            to.disarm();
            while to.poll_event().is_some() || from.poll_event().is_some() || to.rx_ready() || from.rx_ready() {
                assert!(Clock::system().now() < end, "and then nothing more is");
            }
            for (port, tag) in [(7, 77), (9, 99)] {
                let frame = if port == 7 { frame.clone() } else { udp_frame(0, 1, (5, port), &bytes(1000, 1)) };
                assert!(to.arm(Wake::Any), "nothing has come");
                send(&mut from, &frame, HEAD, 3, TxOffload::default()).expect("room");
                let mut poll = libc::pollfd { fd: to.wait_fd().expect("a descriptor"), events: libc::POLLIN, revents: 0 };
                // SAFETY: one entry is readable and writable.
                assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 5000) }, 1, "who sleeps is woken, in turn {turn}");
                to.disarm();
                let arrived = receive(&mut to, 1).remove(0);
                assert!(arrived.bytes == frame && arrived.meta.flow_tag == tag);
                from.reap();
            }
        }
        assert_eq!((device.rules(), from.tx_free(1)), (2, 4096 * 4096));
    });
}

/// Who waits hears of it within a second, of whatever is waited for; nothing is asked of the card after that, and all ends.
/// `later`: what happens after that, of which nobody hears.
fn goes(fault: [u8; 2], later: &[[u8; 2]]) {
    let (mut a, mut b) = (End::new(0), End::new(1));
    let [flow, accepted, listener] = connected(&mut a, &mut b);
    let socket = b.ring.udp_open(address(1, 7), &UdpOptions::default()).expect("room");
    let sent = a.ring.tcp_send(a.now(), flow, &[IoSlice::new(b"last words")], SendFlags::empty());
    assert_eq!(sent, Ok(10));
    until(&mut [&mut a, &mut b], "the last words", |ends| (ends[1].ring.info(accepted)?.recv_queue == 10).then_some(()));
    let begin = b.now();
    let fd = b.ring.queues().wait_fd().expect("a descriptor");
    until(&mut [&mut b], "sleep", |ends| ends[0].ring.queues_mut().arm(Wake::Any).then_some(()));
    std::thread::spawn(move || tell_card(&fault)).join().expect("it is told");
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry is readable and writable.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 1000) }, 1, "who sleeps is woken");
    b.ring.queues_mut().disarm();
    until(&mut [&mut a, &mut b], "both hear of it", |ends| ends.iter().all(|end| end.ring.is_gone()).then_some(()));
    assert!(b.now() - begin < Duration::from_secs(1));
    let mut into = [0; 64];
    let mut read = |end: &mut End, flow| end.ring.tcp_recv(end.clock.now(), flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty());
    // (What had come is there still.)
    assert_eq!([read(&mut b, accepted), read(&mut b, accepted), read(&mut b, accepted)], [Ok(10), Err(Error::NetworkDown), Ok(0)]);
    assert_eq!(read(&mut a, flow), Err(Error::NetworkDown));
    let now = b.now();
    assert_eq!(b.ring.tcp_send(now, accepted, &[IoSlice::new(b"!")], SendFlags::empty()), Err(Error::Pipe));
    assert!(b.ring.readiness(socket).contains(Readiness::ERR) && b.ring.readiness(listener).contains(Readiness::ERR));
    for _ in 0..3 {
        let received = b.ring.udp_recv(socket, &mut [IoSliceMut::new(&mut [0; 8])], RecvFlags::empty());
        assert_eq!(received.map(|datagram| datagram.len), Err(Error::NetworkDown));
        let to = Some((address(0, 5), NextHop::Mac(MACS[0])));
        assert_eq!(b.ring.udp_send(now, socket, &[IoSlice::new(b"!")], ip(1), to), Err(Error::NetworkDown));
        assert_eq!(b.ring.tcp_accept(listener), Err(Error::NetworkDown));
    }
    assert!(b.ring.udp_open(address(1, 8), &UdpOptions::default()).is_err());
    let hop = a.hop();
    assert!(a.ring.tcp_connect(a.now(), address(0, 5001), address(1, 80), hop, &Config::default()).is_err());
    assert!(b.ring.queues().device().open(&QueuesConfig::default()).is_err());
    // And who sleeps, sleeps.
    later.iter().for_each(|fault| tell_card(fault));
    until(&mut [&mut b], "sleep", |ends| ends[0].ring.queues_mut().arm(Wake::Any).then_some(()));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 50) }, 0, "nothing comes by a card that is gone");
    b.ring.queues_mut().disarm();
    assert_eq!(b.ring.queues_mut().tx_free(1), 4096 * 4096, "all buffers are back");
    drop((a, b));
}

#[test]
fn a_card_that_is_removed_fails_every_call_within_a_second() {
    on_card(path_of!(a_card_that_is_removed_fails_every_call_within_a_second), || {
        goes(REMOVAL, &[]);
        let error = ringway_mlx5::Mlx5Device::open_card(&settings(0)).expect_err("there is none any more").to_string();
        assert!(!error.is_empty());
    });
}

#[test]
fn a_card_that_has_failed_does_so_too_and_its_removal_is_no_news() {
    on_card(path_of!(a_card_that_has_failed_does_so_too_and_its_removal_is_no_news), || {
        goes(DEVICE_FATAL, &[REMOVAL]);
    });
}

/// What no card says is not heard: nor by the card that is told to say it.
#[test]
fn what_makes_no_sense_changes_nothing() {
    on_card(path_of!(what_makes_no_sense_changes_nothing), || {
        let device = card(&settings(0));
        let mut ring = device.open(&QueuesConfig::default()).expect("a ring");
        let long = [5; 9000];
        for nonsense in [&[][..], &[5], &[5, 7], &[5, 200, 100], &[4], &[4, 1], &[6, 255], &[255], &[3, 9, 9], &[2], &[1, 0x45], &long] {
            tell_card(nonsense);
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ring.rx_ready() && ring.poll_event().is_none());
        tell_card(&PORT_DOWN);
        let end = Clock::system().now() + PATIENCE;
        while !ring.rx_ready() {
            assert!(Clock::system().now() < end, "an event");
        }
        assert_eq!(ring.poll_event(), Some(DeviceEvent::Link { up: false }));
    });
}
