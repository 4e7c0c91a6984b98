//! Who has which buffer, whatever addresses are handed back.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const STREAM: FlowId = FlowId { ring: 0, index: 3, generation: 1 };

fn pieces(lens: &[usize]) -> Vec<Lent<RxBuf>> {
    (0u8..).zip(lens).map(|(value, &len)| Lent::Copied(vec![value; len])).collect()
}

fn lend(buffers: &mut Buffers, owner: Owner, lens: &[usize]) -> Described {
    assert!(buffers.have_room());
    buffers.lend(owner, pieces(lens)).expect("there is room")
}

/// A packet's nodes, as a program walks them.
fn walk(packet: Described) -> Vec<*mut Buff> {
    let mut nodes = Vec::new();
    let mut at = packet.first;
    while !at.is_null() {
        nodes.push(at);
        // SAFETY: a node of a packet that is lent.
        at = unsafe { (*at).next };
    }
    nodes
}

fn bytes(node: *mut Buff) -> Vec<u8> {
    // SAFETY: a node that is lent, and what it points at is as long as it says.
    unsafe { core::slice::from_raw_parts((*node).payload.cast::<u8>(), usize::from((*node).len)).to_vec() }
}

#[test]
fn a_packet_is_strung_together_as_its_pieces_came() {
    let mut buffers = Buffers::default();
    let packet = lend(&mut buffers, Owner::Stream(STREAM), &[5, 1, 700]);
    assert_eq!((packet.nodes, packet.bytes), (3, 706));
    let nodes = walk(packet);
    assert_eq!(nodes.iter().map(|&node| bytes(node).len()).collect::<Vec<_>>(), [5, 1, 700]);
    assert_eq!(bytes(nodes[1]), [1]);
    assert_eq!(buffers.take_packet(packet.first), Some(Some(Credit { to: Creditor::Ring(STREAM), bytes: 706 })));
    assert_eq!((buffers.take_packet(packet.first), buffers.held()), (None, 0));
}

#[test]
fn an_empty_datagram_has_a_buffer_too() {
    let mut buffers = Buffers::default();
    let packet = lend(&mut buffers, Owner::Datagram(STREAM, 0), &[]);
    assert_eq!((packet.nodes, packet.bytes, walk(packet).len()), (1, 0, 1));
    assert_eq!(buffers.take_packet(packet.first), Some(Some(Credit { to: Creditor::Ring(STREAM), bytes: 0 })));
}

#[test]
fn a_streams_window_opens_byte_by_byte_and_a_datagram_counts_until_its_last() {
    let mut buffers = Buffers::default();
    let stream = lend(&mut buffers, Owner::Stream(STREAM), &[10, 20]);
    let kept = walk(stream)[0];
    assert_eq!(buffers.reference(kept), Some(2));
    assert_eq!(buffers.take_packet(stream.first), Some(Some(Credit { to: Creditor::Ring(STREAM), bytes: 20 })));
    assert_eq!(buffers.unreference(kept), Some((0, Some(Credit { to: Creditor::Ring(STREAM), bytes: 10 }))));
    let datagram = lend(&mut buffers, Owner::Datagram(STREAM, 30), &[10, 20]);
    let kept = walk(datagram)[1];
    assert_eq!(buffers.reference(kept), Some(2));
    assert_eq!(buffers.take_packet(datagram.first), Some(None));
    assert_eq!(buffers.take_packet(datagram.first), None);
    assert_eq!(buffers.unreference(kept), Some((0, Some(Credit { to: Creditor::Ring(STREAM), bytes: 30 }))));
    assert_eq!(buffers.held(), 0);
}

#[test]
fn what_was_copied_in_one_piece_is_lent_in_as_many_as_it_needs() {
    let mut buffers = Buffers::default();
    assert!(buffers.have_room());
    let datagram = vec![Lent::Copied(vec![7; 3]), Lent::Copied(vec![8; NODE_BYTES + 5])];
    let packet = buffers.lend(Owner::Datagram(STREAM, 0), datagram).expect("there is room");
    assert_eq!(walk(packet).into_iter().map(|node| bytes(node).len()).collect::<Vec<_>>(), [3, NODE_BYTES, 5]);
}

#[test]
fn a_node_rests_before_it_is_used_again() {
    let mut buffers = Buffers::default();
    let first = lend(&mut buffers, Owner::Stream(STREAM), &[1]).first;
    buffers.take_packet(first);
    for _ in 0..REST {
        let other = lend(&mut buffers, Owner::Stream(STREAM), &[1]).first;
        assert!(other != first && buffers.take_packet(first).is_none());
        buffers.take_packet(other);
    }
    assert!(buffers.chunks.len() <= 2, "few packets at a time need few nodes");
}

#[test]
fn there_is_an_end_to_nodes_and_it_is_no_loss() {
    let mut buffers = Buffers::default();
    let mut packets = Vec::new();
    while buffers.have_room() {
        packets.push(lend(&mut buffers, Owner::Stream(STREAM), &[1; PACKET_NODES]));
    }
    assert_eq!(buffers.held(), packets.len() * PACKET_NODES);
    assert!(buffers.held() > CHUNK * CHUNKS_MAX - 2 * PACKET_NODES);
    for packet in packets {
        assert!(buffers.take_packet(packet.first).is_some());
    }
    assert!(buffers.held() == 0 && buffers.have_room());
}

/// What a program may do, with addresses of its choice.
#[derive(Clone, Debug)]
enum Step {
    Lend(Vec<usize>, bool),
    Take(Which),
    Reference(Which),
    Unreference(Which),
}

/// An address: a node that was lent at some time, as many bytes beside it; or anything.
#[derive(Clone, Debug)]
enum Which {
    Known(prop::sample::Index, isize),
    Any(usize),
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        6 => any::<prop::sample::Index>().prop_map(|index| Which::Known(index, 0)),
        1 => (any::<prop::sample::Index>(), -64..64isize).prop_map(|(index, beside)| Which::Known(index, beside)),
        1 => any::<usize>().prop_map(Which::Any),
        1 => (0..1000usize).prop_map(Which::Any),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (prop::collection::vec(0..200usize, 0..5), any::<bool>()).prop_map(|(lens, is_stream)| Step::Lend(lens, is_stream)),
        which().prop_map(Step::Take),
        which().prop_map(Step::Reference),
        which().prop_map(Step::Unreference),
    ]
}

/// What should be known of a node.
#[derive(Clone, Debug)]
struct Model {
    refs: c_int,
    packet: usize,
    bytes: usize,
    value: Vec<u8>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Each address is answered as a table of what is lent says; what is held stays as it was; and in the end everything is back.
    #[test]
    fn forged_addresses_are_errors_and_nothing_else(steps in prop::collection::vec(step(), 1..300)) {
        let mut buffers = Buffers::default();
        let mut seen: Vec<usize> = Vec::new();
        let mut nodes: HashMap<usize, Model> = HashMap::new();
        // First node, all nodes, whole, stream.
        let mut packets: Vec<(usize, Vec<usize>, bool, bool)> = Vec::new();
        let (mut lent, mut back) = (0, 0);
        for step in steps {
            let address = |which: &Which, seen: &[usize]| match which {
                Which::Known(_, _) if seen.is_empty() => 24,
                Which::Known(index, beside) => seen[index.index(seen.len())].wrapping_add_signed(*beside),
                Which::Any(address) => *address,
            };
            let mut credited = |credit: Option<Credit>| back += credit.map_or(0, |credit| credit.bytes);
            match step {
                Step::Lend(lens, is_stream) => {
                    let sum: usize = lens.iter().sum();
                    let owner = if is_stream { Owner::Stream(STREAM) } else { Owner::Datagram(STREAM, sum) };
                    let packet = lend(&mut buffers, owner, &lens);
                    lent += sum;
                    let its = walk(packet);
                    for &node in &its {
                        let model = Model { refs: 1, packet: packets.len(), bytes: bytes(node).len(), value: bytes(node) };
                        let old = nodes.insert(node.addr(), model);
                        prop_assert!(old.is_none_or(|old| old.refs == 0), "a node that is held was used again");
                        seen.push(node.addr());
                    }
                    packets.push((packet.first.addr(), its.iter().map(|node| node.addr()).collect(), true, is_stream));
                }
                Step::Take(which) => {
                    let address = address(&which, &seen);
                    let is_held = |node: &usize, number: usize| nodes.get(node).is_some_and(|node| node.refs > 0 && node.packet == number);
                    let expected = nodes.get(&address).map(|node| node.packet).filter(|&number| {
                        let (first, its, is_whole, _) = &packets[number];
                        *first == address && *is_whole && its.iter().any(|node| is_held(node, number))
                    });
                    let got = buffers.take_packet(core::ptr::without_provenance(address));
                    prop_assert_eq!(got.is_some(), expected.is_some());
                    if let Some(number) = expected {
                        packets[number].2 = false;
                        for node in &packets[number].1 {
                            if let Some(model) = nodes.get_mut(node).filter(|model| model.packet == number && model.refs > 0) {
                                model.refs -= 1;
                            }
                        }
                    }
                    credited(got.flatten());
                }
                Step::Reference(which) => {
                    let address = address(&which, &seen);
                    let expected = nodes.get_mut(&address).filter(|node| node.refs > 0).map(|node| { node.refs += 1; node.refs });
                    prop_assert_eq!(buffers.reference(core::ptr::without_provenance(address)), expected);
                }
                Step::Unreference(which) => {
                    let address = address(&which, &seen);
                    let expected = nodes.get_mut(&address).filter(|node| node.refs > 0).map(|node| { node.refs -= 1; node.refs });
                    let got = buffers.unreference(core::ptr::without_provenance(address));
                    prop_assert_eq!(got.map(|(left, _)| left), expected);
                    credited(got.and_then(|(_, credit)| credit));
                }
            }
            for (&node, model) in nodes.iter().filter(|(_, model)| model.refs > 0) {
                prop_assert_eq!(&bytes(core::ptr::with_exposed_provenance_mut(node)), &model.value);
            }
        }
        for (&node, model) in &mut nodes {
            for _ in 0..model.refs {
                let (_, credit) = buffers.unreference(core::ptr::without_provenance(node)).expect("it is held");
                back += credit.map_or(0, |credit| credit.bytes);
            }
            prop_assert!(model.bytes == model.value.len());
        }
        prop_assert_eq!((buffers.held(), back), (0, lent));
    }
}
