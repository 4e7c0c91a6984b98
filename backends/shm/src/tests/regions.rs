//! Memory that peers write to by themselves.

use std::ptr;

use super::{Node, fresh_address, tcp, until};
use crate::layout::REGIONS_MAX;
use crate::{AreaPart, PublishedRegion, RegionWrite, WriteError};

const KEY: u32 = 0x300;
const QP: u32 = 0x101;
const ADDRESS: u64 = 0x1000_0000_0000;

/// Two members that are connected: who writes, and whose memory it is.
struct Pair {
    writer: Node,
    owner: Node,
    memory: Box<[u8; 64]>,
}

impl Pair {
    /// The middle of the memory is published.
    fn new() -> Self {
        let (writer, owner) = (Node::new(), Node::new());
        let address = fresh_address();
        owner.rendezvous.publish(&tcp(address)).unwrap();
        writer.find(address).expect("it is there");
        until("both know each other", || owner.rendezvous.peers().iter().any(|peer| peer.id == id(&writer)).then_some(()));
        let mut memory = Box::new([0; 64]);
        let start = memory.as_mut_ptr().expose_provenance() + 16;
        let region = PublishedRegion { key: KEY, peer: id(&writer), qp: QP, address: ADDRESS, len: 32, start };
        // SAFETY: it is the test's, which looks at it by pointer until it is revoked.
        assert!(unsafe { owner.rendezvous.publish_region(&region) });
        Self { writer, owner, memory }
    }

    fn write(&self, key: u32, qp: u32, address: u64, bytes: &[u8]) -> Result<(), WriteError> {
        self.writer.rendezvous.write_region(&RegionWrite { owner: id(&self.owner), qp, key, address, bytes })
    }

    fn bytes(&self) -> [u8; 64] {
        // SAFETY: an array that lives; volatile, for the kernel writes it.
        unsafe { ptr::read_volatile(&raw const *self.memory) }
    }
}

fn id(node: &Node) -> u64 {
    node.rendezvous.member_ref().id()
}

#[test]
fn a_peer_writes_within_bounds_by_key_and_queue_pair() {
    let pair = Pair::new();
    for (key, qp, address, len) in [
        (KEY + 1, QP, ADDRESS, 1),
        (KEY + 0x100, QP, ADDRESS, 1),
        (KEY + ((REGIONS_MAX as u32) << 8), QP, ADDRESS, 1),
        (KEY, QP + 1, ADDRESS, 1),
        (KEY, QP, ADDRESS - 1, 1),
        (KEY, QP, ADDRESS, 33),
        (KEY, QP, ADDRESS + 32, 1),
        (KEY, QP, u64::MAX, 2),
        (KEY, QP, 0, 1),
    ] {
        assert_eq!(pair.write(key, qp, address, &[9; 40][..len]), Err(WriteError::Refused), "{key:x} {qp:x} {address:x} {len}");
    }
    assert_eq!(pair.bytes(), [0; 64]);
    assert_eq!(pair.write(KEY, QP, ADDRESS, &[1; 32]), Ok(()));
    assert_eq!(pair.write(KEY, QP, ADDRESS + 31, &[2]), Ok(()));
    assert_eq!(pair.write(KEY, QP, ADDRESS + 32, &[]), Ok(()));
    let mut expected = [0; 64];
    expected[16..47].fill(1);
    expected[47] = 2;
    assert_eq!(pair.bytes(), expected);
}

#[test]
fn nobody_else_writes_there_and_nobody_once_it_was_revoked() {
    let pair = Pair::new();
    let (other, address) = (Node::new(), fresh_address());
    pair.owner.rendezvous.publish(&tcp(address)).unwrap();
    other.find(address).expect("it is there");
    let write = RegionWrite { owner: id(&pair.owner), qp: QP, key: KEY, address: ADDRESS, bytes: &[9] };
    assert_eq!(other.rendezvous.write_region(&write), Err(WriteError::Refused));
    pair.owner.rendezvous.revoke_region(KEY + 1);
    assert_eq!(pair.write(KEY, QP, ADDRESS, &[1]), Ok(()), "another key's end is not its own");
    pair.owner.rendezvous.revoke_region(KEY);
    assert_eq!(pair.write(KEY, QP, ADDRESS + 1, &[2]), Err(WriteError::Refused));
    assert_eq!(pair.bytes()[16..18], [1, 0]);
}

#[test]
fn what_is_not_mapped_is_a_fault_and_nothing_worse() {
    let pair = Pair::new();
    let region = PublishedRegion { key: KEY + 0x100, peer: id(&pair.writer), qp: QP, address: 0, len: u64::MAX, start: 4096 };
    // SAFETY: nothing is there that could be written.
    assert!(unsafe { pair.owner.rendezvous.publish_region(&region) });
    assert_eq!(pair.write(KEY + 0x100, QP, 0, &[1; 8]), Err(WriteError::Fault));
    assert_eq!(pair.write(KEY + 0x100, QP, u64::MAX - 9000, &[1; 8]), Err(WriteError::Fault), "beyond the address space");
    assert_eq!(pair.write(KEY, QP, ADDRESS, &[1]), Ok(()), "others go on");
}

#[test]
fn there_is_one_region_in_a_place() {
    let pair = Pair::new();
    let region = PublishedRegion { key: KEY + 1, peer: id(&pair.writer), qp: QP, address: ADDRESS, len: 0, start: 0 };
    let further = PublishedRegion { key: KEY + ((REGIONS_MAX as u32) << 8), ..region };
    // SAFETY: they have no bytes.
    unsafe {
        assert!(!pair.owner.rendezvous.publish_region(&region) && !pair.owner.rendezvous.publish_region(&further));
        pair.owner.rendezvous.revoke_region(KEY);
        assert!(pair.owner.rendezvous.publish_region(&region) && !pair.owner.rendezvous.publish_region(&further));
    }
}

#[test]
fn who_is_in_the_middle_of_a_write_is_waited_for_while_it_lives() {
    let Pair { writer, owner, memory: _memory } = Pair::new();
    owner.rendezvous.revoke_region(KEY);
    assert!(!owner.rendezvous.is_region_written(KEY));
    let word = id(&owner) << 32 | u64::from(KEY);
    writer.rendezvous.say_writing(word);
    assert!(owner.rendezvous.is_region_written(KEY) && !owner.rendezvous.is_region_written(KEY + 1));
    writer.rendezvous.say_writing(word + 1);
    assert!(!owner.rendezvous.is_region_written(KEY), "it writes to another one");
    writer.rendezvous.say_writing(word);
    drop(writer);
    until("it is gone", || (!owner.rendezvous.is_region_written(KEY)).then_some(()));
}

fn read(part: &AreaPart) -> Vec<u8> {
    let mut bytes = vec![0; part.len()];
    part.read(0, &mut bytes);
    bytes
}

#[test]
fn a_peer_writes_to_shared_memory_within_bounds_by_key_and_queue_pair() {
    let pair = Pair::new();
    let share = |key| pair.owner.rendezvous.share(id(&pair.writer), key, QP, ADDRESS, 32);
    let [key, other_key] = [KEY + 0x100, KEY + 0x200];
    let write = |key, qp, address, bytes: &[u8]| {
        pair.writer.rendezvous.write_shared(&RegionWrite { owner: id(&pair.owner), qp, key, address, bytes })
    };
    let (part, other) = (share(key).unwrap(), share(other_key).unwrap());
    for part in [&part, &other] {
        part.write(0, &[0; 32]);
    }
    for (key, qp, address, len) in [
        (key + 1, QP, ADDRESS, 1),
        (key, QP + 1, ADDRESS, 1),
        (key, QP, ADDRESS - 1, 1),
        (key, QP, ADDRESS, 33),
        (key, QP, ADDRESS + 32, 1),
        (key, QP, u64::MAX, 2),
    ] {
        assert!(!write(key, qp, address, &[9; 40][..len]), "{key:x} {qp:x} {address:x} {len}");
    }
    assert!(!write(KEY, QP, ADDRESS, &[9]), "the other one's process has it alone");
    assert_eq!(pair.write(key, QP, ADDRESS, &[9]), Err(WriteError::Refused), "its process has not got it at a place that it says");
    assert!(write(key, QP, ADDRESS, &[1; 31]) && write(key, QP, ADDRESS + 31, &[2]) && write(key, QP, ADDRESS + 32, &[]));
    assert_eq!((read(&part)[..31].to_vec(), read(&part)[31], read(&other)), (vec![1; 31], 2, vec![0; 32]));
    drop(part);
    assert!(!write(key, QP, ADDRESS, &[9]), "it was let go of");
    assert!(share(KEY).is_none() && share(other_key).is_none(), "those keys are published");
    assert!(write(other_key, QP, ADDRESS, &[3; 32]));
    assert_eq!(read(&other), [3; 32]);
}

#[test]
fn who_writes_to_two_peers_in_turn_writes_to_each_and_to_none_that_is_gone() {
    let pair = Pair::new();
    let (second, address) = (Node::new(), fresh_address());
    second.rendezvous.publish(&tcp(address)).unwrap();
    pair.writer.find(address).expect("it is there");
    until("it knows the writer", || second.rendezvous.peers().iter().any(|peer| peer.id == id(&pair.writer)).then_some(()));
    let key = KEY + 0x100;
    let parts = [&pair.owner, &second].map(|owner| owner.rendezvous.share(id(&pair.writer), key, QP, ADDRESS, 32).unwrap());
    let (first_id, second_id) = (id(&pair.owner), id(&second));
    let write =
        |owner, byte| pair.writer.rendezvous.write_shared(&RegionWrite { owner, qp: QP, key, address: ADDRESS, bytes: &[byte; 32] });
    for turn in 0..4 {
        assert!(write(first_id, turn) && write(second_id, turn + 100));
        assert_eq!(parts.each_ref().map(|part| read(part)[31]), [turn, turn + 100]);
        assert_eq!(pair.write(KEY, QP, ADDRESS, &[turn]), Ok(()));
    }
    assert!(write(second_id, 50), "it is the one that was written to last");
    drop(second);
    until("it is gone", || (!write(second_id, 51)).then_some(()));
    assert!(write(first_id, 52) && !write(second_id, 53) && read(&parts[0])[0] == 52);
}

#[test]
fn shared_memory_is_given_to_nobody_else_while_it_is_written() {
    let pair = Pair::new();
    let bytes = super::small().area_bytes;
    let share = |key| pair.owner.rendezvous.share(id(&pair.writer), key, QP, ADDRESS, bytes);
    assert!(pair.owner.rendezvous.share(id(&pair.writer), KEY + 0x100, QP, ADDRESS, bytes + 1).is_none());
    let part = share(KEY + 0x100).unwrap();
    pair.writer.rendezvous.say_writing(id(&pair.owner) << 32 | u64::from(KEY + 0x100));
    drop(part);
    assert!(share(KEY + 0x200).is_none(), "the peer writes there");
    pair.writer.rendezvous.say_writing(0);
    let part = share(KEY + 0x200).unwrap();
    let Pair { writer, owner, memory: _memory } = pair;
    drop(writer);
    until("it is gone", || owner.rendezvous.peers().is_empty().then_some(()));
    assert_eq!(part.len(), bytes);
    // (Whose writer is gone can still be read.)
    part.read(bytes - 1, &mut [0]);
}
