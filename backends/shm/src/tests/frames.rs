//! Frames between two members of one process.

use proptest::prelude::*;
use ringway_stack::device::{Queues, RxBuffer, SendError, TxFrame, TxOffload};

use super::{Got, Node, fresh_address, pair, pair_with, pattern, small, tcp, until};
use crate::Settings;
use crate::layout::{FLIGHTS, FRAME_MAX, INLINE_MAX, SLOTS};

#[test]
fn frames_of_every_size_arrive_whole_in_both_directions() {
    let (mut a, mut b, to_b) = pair();
    let mut to_a = None;
    let sizes = (0..300).chain([1000, 2047, 2048, 2049, 4096, 32767, 32768, 32769, 65000, FRAME_MAX - 14]);
    for len in sizes {
        let sent = pattern(len, len);
        a.send(to_b, &sent).unwrap();
        a.device.doorbell();
        let got = b.receive();
        assert_eq!(got.payload, sent, "{len} bytes there");
        assert_eq!(got.body.is_some(), 14 + len > INLINE_MAX, "{len}");
        assert_eq!(*to_a.get_or_insert(got.source), got.source);

        b.send(got.source, &sent).unwrap();
        let back = a.receive();
        assert_eq!((back.payload, back.source), (sent, to_b), "{len} bytes back");
    }
    a.device.reap();
    b.device.reap();
    assert_eq!((a.device.buffers_in_use(), b.device.buffers_in_use()), (0, 0));
}

#[test]
fn a_vlan_tag_travels_beside_the_frame() {
    let (mut a, mut b, to_b) = pair();
    a.send_tagged(to_b, b"x", Some(0x2ABC)).unwrap();
    a.send_tagged(to_b, &[7; 5000], Some(0xFFFF)).unwrap();
    a.send(to_b, b"y").unwrap();
    let tags: Vec<_> = b.poll().iter().map(|got| got.vlan).collect();
    assert_eq!(tags, [Some(0x2ABC), Some(0xFFFF), None]);
}

#[test]
fn what_it_does_not_cut_is_refused() {
    let (mut a, mut b, to_b) = pair();
    let head = [&to_b.0[..], &a.device.mac().0, &[8, 0]].concat();
    let offload = TxOffload { tso_mss: Some(1000), ..TxOffload::default() };
    let sent = a.device.send(&TxFrame { head: &head, body: &[], offload });
    assert!(matches!(sent, Err(SendError::Unsupported(_))), "{sent:?}");
    a.device.doorbell();
    assert!(b.poll().is_empty());
}

#[test]
fn it_tells_of_no_completions_and_says_so() {
    let (mut a, mut b, to_b) = pair();
    assert_eq!((a.device.capabilities().completions, a.device.capabilities().completion_time), (false, None));
    let head = [&to_b.0[..], &a.device.mac().0, &[8, 0]].concat();
    let frame = TxFrame { head: &head, body: &[], offload: TxOffload::default() };
    assert_eq!(a.device.send_with_cookie(&frame, 7), Err(a.device.capabilities().lacks("completions of sends").into()));
    a.device.doorbell();
    assert!(b.poll().is_empty());
    assert_eq!((a.device.send_with_cookie(&frame, 0), a.device.completion()), (Ok(()), None));
    a.device.doorbell();
}

#[test]
fn too_long_is_refused_and_a_full_ring_says_full_until_it_is_read() {
    let (mut a, mut b, to_b) = pair();
    assert_eq!(a.send(to_b, &pattern(FRAME_MAX - 13, 0)), Err(SendError::TooLong));
    for i in 0..SLOTS {
        a.send(to_b, &[i as u8; 20]).unwrap();
    }
    assert_eq!(a.send(to_b, &[0; 20]), Err(SendError::Full));
    let got: Vec<Got> = (0..4).flat_map(|_| b.poll()).collect();
    assert!(got.iter().enumerate().all(|(i, got)| got.payload == [i as u8; 20]) && got.len() == SLOTS);
    a.send(to_b, &[0; 20]).unwrap();
}

#[test]
fn handles_outlive_their_sender_and_slices_share_its_buffers() {
    let (mut a, mut b, to_b) = pair();
    let sent = pattern(50_000, 3);
    a.send(to_b, &sent).unwrap();
    let body = b.receive().body.unwrap();
    drop(a);
    until("the end of the peer", || {
        b.poll();
        b.device.poll_event()
    });
    let part = body.slice(30_000, 10_000).slice(1000, 500);
    drop(body);
    let mut bytes = vec![0; part.len()];
    part.copy_to(0, &mut bytes);
    assert_eq!(bytes, sent[10 + 31_000..10 + 31_500]);
    let mut sum = crate::copy::Sum::default();
    sum.add(&bytes[3..400]);
    assert_eq!(part.checksum(3, 397), sum.fold());
}

#[test]
fn a_reader_that_holds_everything_does_not_stop_the_others() {
    let (mut a, mut b, to_b) = pair_with(&Settings { pool_bytes: 64 << 20, ..small() });
    let mut held = Vec::new();
    for i in 0..FLIGHTS * 2 {
        let sent = pattern(400, i);
        until("room", || {
            a.device.reap();
            a.send(to_b, &sent).ok()
        });
        let got = b.receive();
        assert_eq!(got.payload, sent);
        held.push(got);
    }
    assert!(b.rendezvous.peers()[0].frames_copied >= FLIGHTS as u64);
    drop(held);
    a.device.reap();
    assert_eq!(a.device.buffers_in_use(), 0);
}

#[test]
fn buffers_run_out_and_come_back() {
    let (mut a, mut b, to_b) = pair();
    let mut sent = 0;
    while let Some(buffer) = a.device.tx_alloc(100) {
        drop(buffer);
        if a.send(to_b, &pattern(32_000, sent)).is_err() {
            break;
        }
        sent += 1;
        if a.device.tx_alloc(32_768).is_none_or(|buffer| ringway_stack::device::TxBuffer::capacity(&buffer) < 32_768) {
            break;
        }
    }
    assert!(sent > 100, "{sent} buffers of 8 MiB");
    let got: Vec<_> = (0..10).flat_map(|_| b.poll()).collect();
    assert_eq!(got.len(), sent);
    a.device.reap();
    assert_eq!(a.device.buffers_in_use(), sent);
    drop(got);
    a.device.reap();
    assert_eq!(a.device.buffers_in_use(), 0);
}

#[test]
fn a_member_reaches_itself_without_a_progress_thread() {
    let (device, rendezvous) = crate::attach(&small()).unwrap();
    let address = fresh_address();
    rendezvous.publish(&tcp(address)).unwrap();
    let mac = rendezvous.resolve(ringway_stack::device::Protocol::Tcp, address).unwrap().unwrap().mac;
    assert_eq!(mac, device.mac());
    let mut node = Node { device, batch: ringway_stack::device::RxBatch::new(64), _progress: super::Progress::of(&rendezvous), rendezvous };
    for len in [0, 30, 300, 60_000] {
        let sent = pattern(len, 1);
        node.send(mac, &sent).unwrap();
        assert_eq!(node.receive().payload, sent);
    }
    node.device.reap();
    assert_eq!(node.device.buffers_in_use(), 0);
}

#[test]
fn many_senders_get_their_turns() {
    let mut b = Node::new();
    let address = fresh_address();
    b.device.steer(&tcp(address)).unwrap();
    let mut senders: Vec<_> = (0..5).map(|_| Node::new()).collect();
    for (i, sender) in senders.iter_mut().enumerate() {
        let to = sender.find(address).unwrap().mac;
        for _ in 0..200 {
            sender.send(to, &[i as u8; 30]).unwrap();
        }
    }
    let mut counts = [0; 5];
    let mut halfway = None;
    while counts != [200; 5] {
        for got in b.poll() {
            counts[usize::from(got.payload[0])] += 1;
        }
        if counts.iter().sum::<i32>() >= 500 && halfway.is_none() {
            halfway = Some(counts);
        }
    }
    let halfway = halfway.unwrap();
    assert!(halfway.iter().all(|&count| count > 60), "{halfway:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the sizes and the reader's rhythm, what arrives is what was accepted, in order; and all buffers come back.
    #[test]
    fn what_arrives_is_what_was_sent(steps in prop::collection::vec((0usize..3000, 0usize..8, 0usize..6), 1..400)) {
        let (mut a, mut b, to_b) = pair();
        let mut expected = std::collections::VecDeque::new();
        let mut held = Vec::new();
        for (i, (len, polls, keep)) in steps.into_iter().enumerate() {
            let sent = pattern(len, i);
            if a.send(to_b, &sent).is_ok() {
                expected.push_back(sent);
            }
            if polls == 0 {
                for got in b.poll() {
                    prop_assert_eq!(Some(&got.payload), expected.front());
                    expected.pop_front();
                    held.push(got);
                }
                held.truncate(keep);
                a.device.reap();
            }
        }
        while let Some(next) = expected.pop_front() {
            let mut got = b.poll();
            expected.push_front(next);
            prop_assert!(!got.is_empty());
            for got in got.drain(..) {
                prop_assert_eq!(Some(got.payload), expected.pop_front());
            }
        }
        held.clear();
        a.device.reap();
        prop_assert_eq!(a.device.buffers_in_use(), 0);
    }
}
