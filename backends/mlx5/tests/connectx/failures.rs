//! What the card refuses: the queue comes back, and whoever sent hears what became of it.

use ringway_host::Clock;
use ringway_mlx5::{Mlx5Device, Settings};
use ringway_stack::device::{Device as _, DeviceEvent, Queues as _, QueuesConfig, SendStatus, TxFrame, TxOffload};

use crate::frames::{pair, pair_with};
use crate::world::{HEAD, PATIENCE, bytes, card, on_card, path_of, receive, send, settings, tell_card, udp_frame};

#[test]
fn a_send_queue_that_fails_is_made_anew() {
    let log = on_card(path_of!(a_send_queue_that_fails_is_made_anew), || {
        let [(_, mut from), (_, mut to)] = pair();
        let good = udp_frame(0, 1, (5, 7), &bytes(1000, 1));
        let short = udp_frame(0, 1, (5, 7), &bytes(100, 2));
        let plain = |head| TxFrame { head, body: &[], offload: TxOffload::default() };
        for turn in 0..3 {
            send(&mut from, &good, HEAD, 3, TxOffload::default()).expect("room");
            from.send_with_cookie(&plain(&short), 1).expect("room");
            // No card sends a frame without an Ethernet header.
            from.send_with_cookie(&plain(&good[..10]), 2).expect("room");
            from.send_with_cookie(&plain(&short), 3).expect("room");
            send(&mut from, &good, HEAD, 3, TxOffload::default()).expect("room");
            let mut told = Vec::new();
            let end = Clock::system().now() + PATIENCE;
            while told.len() < 3 && Clock::system().now() < end {
                from.reap();
                told.extend(core::iter::from_fn(|| from.completion()));
            }
            let told: Vec<_> = told.iter().map(|one| (one.cookie, one.status)).collect();
            assert_eq!(told, [(1, SendStatus::Sent), (2, SendStatus::Failed), (3, SendStatus::Flushed)]);
            assert!(from.rx_ready() && from.poll_event() == Some(DeviceEvent::Reset) && from.poll_event().is_none());
            assert_eq!((from.counters().send_failures, from.tx_free(1)), (turn + 1, 4096 * 4096), "all buffers are back");
            let arrived = receive(&mut to, 2);
            assert!(arrived[0].bytes == good && arrived[1].bytes == short);
        }
        send(&mut from, &good, HEAD, 3, TxOffload::default()).expect("room");
        assert!(receive(&mut to, 1)[0].bytes == good);
    });
    assert!(log.contains("a frame of 10 bytes"), "{log}");
}

#[test]
fn a_receive_queue_that_fails_is_started_again() {
    let log = on_card(path_of!(a_receive_queue_that_fails_is_started_again), || {
        let long = Settings { mtu: Some(9000), ..settings(0) };
        let small = Settings { received_frames: 32, ..settings(1) };
        let [(_, mut from), (_, mut to)] = pair_with(&long, &small);
        let (good, bad) = (udp_frame(0, 1, (5, 7), &bytes(1000, 1)), udp_frame(0, 1, (5, 7), &bytes(4000, 1)));
        for turn in 0..5 {
            // (So that the queue fails at other places of it, and of its completions' queue.)
            for _ in 0..7 {
                send(&mut from, &good, HEAD, 1, TxOffload::default()).expect("room");
                assert!(receive(&mut to, 1)[0].bytes == good);
            }
            send(&mut from, &bad, HEAD, 1, TxOffload::default()).expect("room");
            let end = Clock::system().now() + PATIENCE;
            while to.counters().receive_failures == turn {
                assert!(Clock::system().now() < end, "it fails");
                receive(&mut to, 0);
                assert!(crate::world::poll(&mut to).is_empty());
            }
            assert!(to.rx_ready() && to.poll_event() == Some(DeviceEvent::Reset) && to.poll_event().is_none());
            assert_eq!(to.counters().receive_failures, turn + 1);
        }
        // As many as there are entries, and more.
        for _ in 0..100 {
            send(&mut from, &good, HEAD, 1, TxOffload::default()).expect("room");
            assert!(receive(&mut to, 1)[0].bytes == good);
            from.reap();
        }
        assert_eq!((to.counters().receive_failures, to.poll_event()), (5, None));
    });
    assert!(log.contains("4042 bytes for a receive of 2048"), "{log}");
}

/// The queue of completions goes on where it was, while that of receives begins anew: also after several rounds, of which the library knows nothing.
#[test]
fn a_receive_queue_that_fails_late_is_started_again() {
    let log = on_card(path_of!(a_receive_queue_that_fails_late_is_started_again), || {
        let long = Settings { mtu: Some(9000), ..settings(0) };
        let small = Settings { received_frames: 32, ..settings(1) };
        let [(_, mut from), (_, mut to)] = pair_with(&long, &small);
        let (good, bad) = (udp_frame(0, 1, (5, 7), &bytes(1000, 1)), udp_frame(0, 1, (5, 7), &bytes(4000, 1)));
        let mut pass = |to: &mut ringway_mlx5::Mlx5Queues, frame: &[u8]| {
            send(&mut from, frame, HEAD, 1, TxOffload::default()).expect("room");
            from.reap();
            receive(to, usize::from(frame.len() == good.len()));
        };
        // (The queue has 64 places: it is gone around twice, and somewhat more.)
        for turn in 0..3 {
            (0..140).for_each(|_| pass(&mut to, &good));
            pass(&mut to, &bad);
            let end = Clock::system().now() + PATIENCE;
            while to.counters().receive_failures == turn {
                assert!(Clock::system().now() < end, "it fails");
                assert!(crate::world::poll(&mut to).is_empty());
            }
        }
        (0..140).for_each(|_| pass(&mut to, &good));
        assert_eq!(to.counters().receive_failures, 3);
    });
    assert!(!log.contains("is full"), "{log}");
}

#[test]
fn a_port_that_goes_down_is_an_event_of_each_ring() {
    on_card(path_of!(a_port_that_goes_down_is_an_event_of_each_ring), || {
        let device = card(&settings(0));
        let mut rings = [(); 2].map(|()| device.open(&QueuesConfig::default()).expect("a ring"));
        for (state, up) in [(0, false), (1, true)] {
            tell_card(&[4, state]);
            let end = Clock::system().now() + PATIENCE;
            for ring in &mut rings {
                while !ring.rx_ready() {
                    assert!(Clock::system().now() < end, "an event");
                }
                assert_eq!((ring.poll_event(), ring.poll_event(), ring.rx_ready()), (Some(DeviceEvent::Link { up }), None, false));
            }
        }
    });
}

/// What is missing is said, in a process without the card as well.
#[test]
fn what_is_missing_has_a_name() {
    let error = Mlx5Device::open_card(&Settings::new("mlx5_7")).expect_err("no such card");
    assert!(!error.to_string().is_empty());
    on_card(path_of!(what_is_missing_has_a_name), || {
        let error = Mlx5Device::open_card(&Settings { mac: None, ..settings(0) });
        assert_eq!(error.expect("lo has an address").open(&QueuesConfig::default()).expect("a ring").mac().0, [0; 6]);
        let error = Mlx5Device::open_card(&Settings::new("mlx5_7")).expect_err("no such card").to_string();
        assert_eq!(error, "no RDMA device is called mlx5_7");
    });
}
