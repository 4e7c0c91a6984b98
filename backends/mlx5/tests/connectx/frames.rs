//! Frames from ring to ring, whatever their form, and what the card says of them.

use ringway_mlx5::{Mlx5Device, Mlx5Queues, Settings};
use ringway_stack::device::{
    ChecksumVerdict, Device as _, FlowRule, Protocol, Queues as _, QueuesConfig, SendError, SendStatus, TxFrame, TxOffload,
};
use ringway_stack::wire::checksum;

use crate::world::{HEAD, MACS, address, bytes, card, nothing_comes, on_card, path_of, poll, post, receive, send, settings, udp_frame};

/// Sender and receiver, with a rule for port 7.
pub(crate) fn pair() -> [(Mlx5Device, Mlx5Queues); 2] {
    pair_with(&settings(0), &settings(1))
}

pub(crate) fn pair_with(from: &Settings, to: &Settings) -> [(Mlx5Device, Mlx5Queues); 2] {
    let ends = [from, to].map(|settings| {
        let device = card(settings);
        let queues = device.open(&QueuesConfig { steered_only: true }).expect("a ring");
        (device, queues)
    });
    ends[1].1.steer(&FlowRule::flow(Protocol::Udp, address(1, 7), None).tag(77)).expect("room");
    ends
}

const CHECKSUMS: TxOffload = TxOffload { checksum: true, tso_mss: None, vlan: None, unsolicited: false, flow: 0, dummy: false };

#[test]
fn each_byte_of_frames_comes_whatever_their_form() {
    on_card(path_of!(each_byte_of_frames_comes_whatever_their_form), || {
        let [(_, mut from), (_, mut to)] = pair();
        let mut last = None;
        for len in [18, 19, 100, 183, 184, 185, 186, 200, 256 - HEAD, 257 - HEAD, 1000, 1472] {
            for (head, pieces) in [(HEAD, 0), (HEAD, 1), (HEAD, 3), (HEAD - 1, 16), (14, 2), (18, 1), (200, 5)] {
                let frame = udp_frame(0, 1, (5, 7), &bytes(len, 3));
                let head = if pieces == 0 { frame.len().min(256) } else { head.min(frame.len()) };
                let offload = if len % 2 == 0 { CHECKSUMS } else { TxOffload::default() };
                send(&mut from, &frame, head, pieces, offload).expect("room");
                let arrived = receive(&mut to, 1).remove(0);
                assert_eq!(arrived.bytes.len(), frame.len());
                // (Checksums apart, of which those that were not asked for are none.)
                let same = |range: core::ops::Range<usize>| arrived.bytes[range.clone()] == frame[range];
                assert!(same(0..24) && same(26..40) && same(HEAD..frame.len()), "{len} bytes, {head} in the head, {pieces} pieces");
                assert_eq!((arrived.meta.flow_tag, arrived.meta.vlan), (77, None));
                let is_good = checksum::sum(&arrived.bytes[14..34]) == 0xffff;
                assert_eq!((is_good, arrived.meta.checksum == ChecksumVerdict::Good), (offload.checksum, offload.checksum));
                let time = arrived.meta.hardware_time.expect("the card's time");
                assert!(last.is_none_or(|last| last <= time));
                last = Some(time);
                from.reap();
            }
        }
        let (sent, received) = (from.counters(), to.counters());
        assert_eq!((sent.sent, sent.doorbells, received.received), (84, 84, 84));
        assert_eq!((sent.send_failures, received.receive_failures), (0, 0));
    });
}

/// Queues are small here, so that counters go around them, and around their own 16 bits.
#[test]
fn counters_go_around_queues_and_around_themselves() {
    on_card(path_of!(counters_go_around_queues_and_around_themselves), || {
        let small = |end| Settings { received_frames: 64, send_blocks: 64, send_buffers: 64, ..settings(end) };
        let [(_, mut from), (_, mut to)] = pair_with(&small(0), &small(1));
        let (mut sent, mut come) = (0u32, 0u32);
        // At 5 to 8 blocks each: more than 65,536 of them.
        let frames: Vec<Vec<u8>> = (0..16).map(|at| udp_frame(0, 1, (5, 7), &bytes(350, at))).collect();
        while come < 14_000 {
            for _ in 0..8 {
                let mut frame = frames[sent as usize % 16].clone();
                frame[HEAD..HEAD + 4].copy_from_slice(&sent.to_be_bytes());
                let head = 200 + sent as usize % 56;
                let is_sent = sent < 14_000 && sent < come + 48 && send(&mut from, &frame, head, 1, TxOffload::default()).is_ok();
                sent += u32::from(is_sent);
            }
            from.reap();
            for arrived in poll(&mut to) {
                let mut frame = frames[come as usize % 16].clone();
                frame[HEAD..HEAD + 4].copy_from_slice(&come.to_be_bytes());
                assert!(arrived.bytes == frame, "frame {come}");
                come += 1;
            }
        }
        assert_eq!(from.counters().send_failures + to.counters().receive_failures, 0);
    });
}

#[test]
fn tags_go_in_and_come_off() {
    on_card(path_of!(tags_go_in_and_come_off), || {
        let [(_, mut from), (_, mut to)] = pair();
        assert!(to.capabilities().vlan_strip && from.capabilities().vlan_insert);
        for len in [20, 1000] {
            let frame = udp_frame(0, 1, (5, 7), &bytes(len, 1));
            send(&mut from, &frame, HEAD, 1, TxOffload { vlan: Some(0x6009), ..TxOffload::default() }).expect("room");
            let arrived = receive(&mut to, 1).remove(0);
            assert_eq!((arrived.meta.vlan, arrived.bytes), (Some(0x6009), frame));
        }
    });
}

#[test]
fn a_dummy_is_done_and_does_not_leave() {
    on_card(path_of!(a_dummy_is_done_and_does_not_leave), || {
        let [(_, mut from), (_, mut to)] = pair();
        let frame = udp_frame(0, 1, (5, 7), &bytes(1000, 1));
        send(&mut from, &frame, HEAD, 2, TxOffload { dummy: true, ..TxOffload::default() }).expect("room");
        send(&mut from, &frame, HEAD, 2, TxOffload::default()).expect("room");
        assert_eq!(receive(&mut to, 1)[0].bytes, frame);
        nothing_comes(&mut to);
    });
}

#[test]
fn completions_tell_of_each_cookie_once_and_in_order() {
    on_card(path_of!(completions_tell_of_each_cookie_once_and_in_order), || {
        let [(_, mut from), (_, mut to)] = pair();
        let frame = udp_frame(0, 1, (5, 7), &bytes(100, 1));
        let free = from.tx_free(1);
        for cookie in [5, 0, 6, 7, 0, 8] {
            from.send_with_cookie(&TxFrame { head: &frame, body: &[], offload: TxOffload::default() }, cookie).expect("room");
        }
        from.doorbell();
        let mut told = Vec::new();
        while told.len() < 4 {
            from.reap();
            told.extend(core::iter::from_fn(|| from.completion()));
        }
        assert_eq!(told.iter().map(|one| one.cookie).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(told.iter().all(|one| one.status == SendStatus::Sent && one.at.is_some()));
        assert_eq!((receive(&mut to, 6).len(), from.tx_free(1), from.counters().doorbells), (6, free, 1));
    });
}

#[test]
fn large_sends_are_cut_by_the_card() {
    on_card(path_of!(large_sends_are_cut_by_the_card), || {
        let [(_, mut from), (_, mut to)] = pair();
        to.steer(&FlowRule::flow(Protocol::Tcp, address(1, 7), None)).expect("room");
        let payload = bytes(40_000, 9);
        let mut frame = [&MACS[1].0[..], &MACS[0].0, &[8, 0, 0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]].concat();
        frame.extend([0, 5, 0, 7, 0, 0, 0, 100, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        let head = frame.len();
        frame.extend(&payload);
        send(&mut from, &frame, head, 12, TxOffload { tso_mss: Some(1400), ..CHECKSUMS }).expect("room");
        let segments = receive(&mut to, payload.len().div_ceil(1400));
        let mut together: Vec<u8> = Vec::new();
        for (at, segment) in segments.iter().enumerate() {
            let seq = u32::from_be_bytes(segment.bytes[38..42].try_into().unwrap());
            assert_eq!((seq as usize, segment.meta.checksum), (100 + 1400 * at, ChecksumVerdict::Good));
            together.extend(&segment.bytes[head..]);
        }
        assert!(together == payload);
    });
}

#[test]
fn what_is_too_much_is_refused_and_comes_back() {
    on_card(path_of!(what_is_too_much_is_refused_and_comes_back), || {
        let small = Settings { send_blocks: 64, send_buffers: 64, ..settings(0) };
        let [(device, mut from), (_, mut to)] = pair_with(&small, &settings(1));
        let long = udp_frame(0, 1, (5, 7), &bytes(1600, 1));
        assert_eq!(send(&mut from, &long, HEAD, 1, TxOffload::default()), Err(SendError::TooLong));
        let tso = TxOffload { tso_mss: Some(9000), ..TxOffload::default() };
        assert_eq!(send(&mut from, &long, HEAD, 1, tso), Err(SendError::TooLong));
        let frame = udp_frame(0, 1, (5, 7), &bytes(1000, 1));
        let whole = from.tx_free(1);
        // A frame of 54 + 1000 bytes takes two blocks; and without a doorbell none of them comes back.
        let count = (0..).take_while(|_| {
            let (head, body) = frame.split_at(HEAD);
            let mut buffer = from.tx_alloc(body.len()).expect("a buffer");
            ringway_stack::device::TxBuffer::write(&mut buffer, 0, body);
            let slice = ringway_stack::device::TxSlice { buffer: &buffer, offset: 0, len: body.len() };
            from.send(&TxFrame { head, body: &[slice], offload: TxOffload::default() }).is_ok()
        });
        let count = count.count();
        assert_eq!((count, from.tx_free(1)), (32, whole - 32 * 4096));
        from.doorbell();
        receive(&mut to, 32);
        while from.tx_free(1) < whole {
            from.reap();
        }
        assert!(device.open(&QueuesConfig::default()).is_ok(), "another ring of the card");
    });
}

/// Of the card's memory there is room for four frames: the others of a batch are sent from the process's, and none is overwritten that was not sent.
#[test]
fn payload_is_sent_from_the_card_s_memory_as_far_as_there_is_room() {
    on_card(path_of!(payload_is_sent_from_the_card_s_memory_as_far_as_there_is_room), || {
        let [(_, mut from), (_, mut to)] = pair_with(&Settings { staged_bytes: 4096, ..settings(0) }, &settings(1));
        let mut count = 0;
        for round in 0..200 {
            let len = 500 + round;
            let frames: Vec<Vec<u8>> = (0..16).map(|at| udp_frame(0, 1, (5, 7), &bytes(len, (16 * round + at) as u64))).collect();
            for (frame, pieces) in frames.iter().zip([1, 2, 5].into_iter().cycle()) {
                post(&mut from, frame, HEAD, pieces, CHECKSUMS).expect("room");
            }
            from.doorbell();
            let arrived = receive(&mut to, frames.len());
            assert!(arrived.iter().zip(&frames).all(|(arrived, frame)| arrived.bytes[HEAD..] == frame[HEAD..]), "{len} bytes");
            while from.unsent() > 0 {
                from.reap();
            }
            let fit = 4096 / len.next_multiple_of(4);
            count += fit as u64;
            let done = from.counters();
            assert_eq!((done.staged, done.staged + done.staged_not), (count, 16 * (round as u64 + 1)), "{len} bytes");
        }
        // Of a queue that fails, all is free again.
        let frame = udp_frame(0, 1, (5, 7), &bytes(1000, 1));
        post(&mut from, &frame, HEAD, 1, CHECKSUMS).expect("room");
        // SAFETY: the entry's opcode is none, so that the card reads nothing.
        unsafe { from.change_last_entry(|block| block[3] = 0xee) };
        from.doorbell();
        while from.counters().send_failures == 0 {
            from.reap();
        }
        for _ in 0..4 {
            post(&mut from, &frame, HEAD, 1, CHECKSUMS).expect("room");
        }
        from.doorbell();
        assert!(receive(&mut to, 4).iter().all(|arrived| arrived.bytes[HEAD..] == frame[HEAD..]));
        assert_eq!((from.counters().staged, from.counters().staged_bytes > 1000 * 4), (count + 5, true));
    });
}

/// Another ring has most of the card's memory: frames are sent from the process's.
#[test]
fn a_card_without_room_sends_from_the_process_s_memory() {
    on_card(path_of!(a_card_without_room_sends_from_the_process_s_memory), || {
        let lots = Settings { staged_bytes: 100 << 10, ..settings(0) };
        let [(_, first), (_, mut to)] = pair_with(&lots, &settings(1));
        let mut second = card(&lots).open(&QueuesConfig { steered_only: true }).expect("a ring");
        let frame = udp_frame(0, 1, (5, 7), &bytes(1000, 1));
        send(&mut second, &frame, HEAD, 1, CHECKSUMS).expect("room");
        assert_eq!(receive(&mut to, 1)[0].bytes[HEAD..], frame[HEAD..]);
        assert_eq!((second.counters().staged, second.counters().staged_not), (0, 0));
        drop(first);
    });
}
