//! Flow rules: which ring gets what, under which tag.

use ringway_mlx5::Mlx5Queues;
use ringway_stack::device::{
    Device as _, EthernetMatch, FlowRule, HeaderMatch, IpMatch, MacAddr, Protocol, Queues as _, QueuesConfig, RuleError, TxOffload,
    VxlanMatch,
};

use crate::world::{HEAD, MACS, address, bytes, card, nothing_comes, on_card, path_of, poll, receive, send, settings, udp_frame};

/// A sender, and a card with two rings.
fn three() -> (Mlx5Queues, ringway_mlx5::Mlx5Device, [Mlx5Queues; 2]) {
    let from = card(&settings(0)).open(&QueuesConfig { steered_only: true }).expect("a ring");
    let device = card(&settings(1));
    let rings = [(); 2].map(|()| device.open(&QueuesConfig { steered_only: true }).expect("a ring"));
    (from, device, rings)
}

/// Sends a frame between these ports.
fn say(from: &mut Mlx5Queues, ports: (u16, u16)) {
    send(from, &udp_frame(0, 1, ports, &bytes(60, 1)), HEAD, 1, TxOffload::default()).expect("room");
}

fn tag(ring: &mut Mlx5Queues) -> u32 {
    receive(ring, 1)[0].meta.flow_tag
}

fn udp(port: u16, peer: Option<u16>) -> FlowRule {
    FlowRule::flow(Protocol::Udp, address(1, port), peer.map(|port| address(0, port)))
}

#[test]
fn the_rule_that_names_more_comes_first_whichever_was_attached_first() {
    on_card(path_of!(the_rule_that_names_more_comes_first_whichever_was_attached_first), || {
        let (mut from, device, [mut one, mut two]) = three();
        let wide = one.steer(&udp(7, None).tag(1)).expect("room");
        let narrow = two.steer(&udp(7, Some(5)).tag(0xff_ffff)).expect("room");
        say(&mut from, (5, 7));
        say(&mut from, (6, 7));
        assert_eq!((tag(&mut two), tag(&mut one)), (0xff_ffff, 1));
        device.detach(narrow.rule);
        say(&mut from, (5, 7));
        assert_eq!(tag(&mut one), 1);
        // The other way round.
        device.detach(wide.rule);
        let narrow = one.steer(&udp(7, Some(5)).tag(3)).expect("room");
        two.steer(&FlowRule::flow(Protocol::Udp, "0.0.0.0:7".parse().unwrap(), None).tag(4)).expect("room");
        say(&mut from, (5, 7));
        say(&mut from, (6, 7));
        assert_eq!((tag(&mut one), tag(&mut two)), (3, 4));
        device.detach(narrow.rule);
        device.detach(narrow.rule);
        say(&mut from, (5, 8));
        nothing_comes(&mut one);
        nothing_comes(&mut two);
        assert_eq!(device.rules(), 1);
        drop(two);
        assert_eq!(device.rules(), 0, "a ring's rules end with it");
    });
}

#[test]
fn a_rule_is_one_ring_s_and_what_the_card_lacks_is_refused() {
    on_card(path_of!(a_rule_is_one_ring_s_and_what_the_card_lacks_is_refused), || {
        let (_, device, [one, two]) = three();
        one.steer(&udp(7, None)).expect("room");
        assert_eq!([one.steer(&udp(7, None)), two.steer(&udp(7, None).tag(3))], [Err(RuleError::Taken); 2]);
        assert_eq!(two.steer(&udp(7, None).shared()), Err(RuleError::Taken));
        let lacking =
            [udp(8, None).priority(3), FlowRule { vxlan: Some(VxlanMatch::default()), ..udp(8, None) }, udp(8, None).tag(1 << 24)];
        assert!(lacking.iter().all(|rule| matches!(one.steer(rule), Err(RuleError::Unsupported(_)))));
        let id = two.id();
        drop(two);
        assert_eq!(device.attach(&udp(9, None), id.into()), Err(RuleError::NoQueue));
        assert_eq!(device.rules(), 1);
    });
}

/// While frames come without a pause, a rule goes to and fro: each frame comes to one of the two rings, and to it once.
#[test]
fn a_rule_that_is_moved_loses_and_doubles_nothing() {
    on_card(path_of!(a_rule_that_is_moved_loses_and_doubles_nothing), || {
        let (mut from, device, [mut one, mut two]) = three();
        let rule = one.steer(&udp(7, None).tag(1)).expect("room").rule;
        let (mut sent, mut seen, mut came) = (0u32, Vec::new(), [0, 0]);
        for turn in 0..60 {
            for _ in 0..5 {
                let mut frame = udp_frame(0, 1, (5, 7), &bytes(60, 1));
                frame[HEAD..HEAD + 4].copy_from_slice(&sent.to_be_bytes());
                send(&mut from, &frame, HEAD, 1, TxOffload::default()).expect("room");
                sent += 1;
            }
            let to = if turn % 2 == 0 { two.id() } else { one.id() };
            device.retarget(rule, to.into(), 2 + turn).expect("it moves");
            from.reap();
            for (at, ring) in [&mut one, &mut two].into_iter().enumerate() {
                let arrived = poll(ring);
                came[at] += arrived.len();
                seen.extend(arrived.iter().map(|one| u32::from_be_bytes(one.bytes[HEAD..HEAD + 4].try_into().unwrap())));
            }
        }
        let clock = std::time::Instant::now();
        while seen.len() < sent as usize && clock.elapsed() < crate::world::PATIENCE {
            for ring in [&mut one, &mut two] {
                seen.extend(poll(ring).iter().map(|one| u32::from_be_bytes(one.bytes[HEAD..HEAD + 4].try_into().unwrap())));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..sent).collect::<Vec<_>>());
        assert!(came.iter().all(|came| *came > 0), "{came:?}");
        say(&mut from, (5, 7));
        assert_eq!(tag(&mut one), 61, "and its tag went with it");
    });
}

#[test]
fn a_group_s_frames_are_copied_to_all_who_want_them() {
    on_card(path_of!(a_group_s_frames_are_copied_to_all_who_want_them), || {
        let (mut from, device, [mut one, mut two]) = three();
        let group = FlowRule::flow(Protocol::Udp, "239.1.2.3:7".parse().unwrap(), None);
        let first = one.steer(&group.tag(1)).expect("room");
        two.steer(&group.tag(2)).expect("room");
        let mut frame = udp_frame(0, 1, (5, 7), &bytes(60, 1));
        frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 2, 3]);
        frame[30..34].copy_from_slice(&[239, 1, 2, 3]);
        let mut say = |frame: &[u8]| send(&mut from, frame, HEAD, 1, TxOffload::default()).expect("room");
        say(&frame);
        assert_eq!((receive(&mut one, 1)[0].bytes.clone(), receive(&mut two, 1)[0].bytes.clone()), (frame.clone(), frame.clone()));
        device.detach(first.rule);
        say(&frame);
        assert_eq!(receive(&mut two, 1)[0].bytes, frame);
        nothing_comes(&mut one);
        frame[32] = 9;
        say(&frame);
        nothing_comes(&mut two);
    });
}

/// Each flow of a group of rings comes to one of them, and as long as the group stays as it is, to the same one.
#[test]
fn rings_that_share_a_rule_share_its_flows() {
    on_card(path_of!(rings_that_share_a_rule_share_its_flows), || {
        let (mut from, device, mut rings) = three();
        let shares = [0, 1].map(|at| rings[at].steer(&udp(7, None).shared()).expect("room").rule);
        let mut landing = |rings: &mut [Mlx5Queues; 2], port| {
            say(&mut from, (port, 7));
            let clock = std::time::Instant::now();
            loop {
                if let Some(at) = (0..2).find(|at| !poll(&mut rings[*at]).is_empty()) {
                    return at;
                }
                assert!(clock.elapsed() < crate::world::PATIENCE);
            }
        };
        let first: Vec<usize> = (100..140).map(|port| landing(&mut rings, port)).collect();
        let again: Vec<usize> = (100..140).map(|port| landing(&mut rings, port)).collect();
        assert!(first == again && first.contains(&0) && first.contains(&1), "{first:?}");
        device.detach(shares[0]);
        assert!((100..140).all(|port| landing(&mut rings, port) == 1), "the one that is left");
        assert_eq!(device.rules(), 1);
        device.detach(shares[1]);
        assert_eq!(device.rules(), 0);
    });
}

#[test]
fn rules_of_a_program_name_other_headers() {
    on_card(path_of!(rules_of_a_program_name_other_headers), || {
        let (mut from, _, [mut one, mut two]) = three();
        let ethernet = EthernetMatch { dst: Some(MACS[1]), src: Some(MACS[0]), ethertype: Some(0x88b5) };
        one.steer(&FlowRule { outer: HeaderMatch { ethernet, ..Default::default() }, ..FlowRule::any() }.tag(1)).expect("room");
        let tos = Some(IpMatch::V4 { src: None, dst: None, tos: Some(0xb8) });
        two.steer(&FlowRule { outer: HeaderMatch { ip: tos, ..Default::default() }, ..FlowRule::any() }.tag(2)).expect("room");
        let mut frame = udp_frame(0, 1, (5, 7), &bytes(60, 1));
        frame[15] = 0xb8;
        send(&mut from, &frame, HEAD, 1, TxOffload::default()).expect("room");
        assert_eq!(tag(&mut two), 2);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        send(&mut from, &frame, HEAD, 1, TxOffload::default()).expect("room");
        assert_eq!(tag(&mut one), 1);
        frame[..6].copy_from_slice(&MacAddr([2, 0, 0, 0, 0, 0x0c]).0);
        send(&mut from, &frame, HEAD, 1, TxOffload::default()).expect("room");
        nothing_comes(&mut one);
    });
}
