//! Direct placement.

use core::time::Duration;

use super::pair::{A, B, End, Options, Pair, pattern};
use crate::device::messages::{Memory, Messages};
use crate::error::Error;
use crate::flow::Readiness;
use crate::rsocket::wire::{ByteOrder, IomapEntry};
use crate::rsocket::{Host, Mapping, Sizes};

/// A's table has room for this many mappings of B's.
fn pair(iomap: u16) -> Pair {
    let mut options = [Options::new(A), Options::new(B)];
    options[A].settings.sizes = Sizes { iomap, ..Sizes::default() };
    let mut pair = Pair::connected(options);
    pair.settle();
    pair
}

fn map(pair: &mut Pair, len: usize, offset: Option<u64>) -> Result<Mapping, Error> {
    let End { node, sockets, socket } = &mut pair.ends[B];
    sockets.map(node, *socket, vec![0; len], true, offset)
}

fn bytes(pair: &Pair, mapping: &Mapping) -> Vec<u8> {
    let mut out = vec![0; mapping.region.len as usize];
    Messages::memory(&pair.ends[B].node, mapping.region.key).unwrap().read(0, &mut out);
    out
}

#[test]
fn direct_writes_are_there_when_what_was_sent_after_them_is() {
    let mut pair = pair(4);
    let mapping = map(&mut pair, 100_000, Some(0)).unwrap();
    assert_eq!(pair.send(B, b"mapped"), Ok(6));
    let all = pattern(7, 0, 100_000);
    let (mut got, mut written, mut told) = (Vec::new(), 0, false);
    let end = pair.now + Duration::from_secs(10);
    let done = pair.run_until(end, |pair| {
        got.extend(pair.drain(A).0);
        if got == b"mapped" && written < all.len() {
            written += pair.write_direct(A, &all[written..], written as u64).unwrap_or(0);
        }
        if written == all.len() && !told {
            told = pair.send(A, b"written") == Ok(7);
        }
        pair.drain(B).0 == b"written"
    });
    assert!(done);
    assert!(bytes(&pair, &mapping) == all, "and nobody read anything");
}

#[test]
fn a_mapping_is_told_as_in_the_capture() {
    let mut pair = pair(4);
    pair.writes(B);
    let mapping = map(&mut pair, 5000, Some(0)).unwrap();
    pair.settle();
    assert!(pair.writes(B).is_empty(), "before what is sent next");
    assert_eq!(pair.send(B, b"x"), Ok(1));
    pair.settle();
    let writes = pair.writes(B);
    assert_eq!(writes.iter().map(|(_, word, _)| word.unwrap()).collect::<Vec<_>>(), [0xc000_0000, 1]);
    let entry = IomapEntry::parse(writes[0].2[..].try_into().unwrap(), ByteOrder::Little);
    assert_eq!((entry.offset, entry.buffer.address, entry.buffer.len), (0, mapping.region.address, 5000));
}

#[test]
fn an_offset_of_none_is_the_buffer_s_address() {
    let mut pair = pair(4);
    let mapping = map(&mut pair, 100, None).unwrap();
    assert_eq!(mapping.offset, mapping.region.address);
    pair.send(B, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.drain(A).0, b"x");
    assert_eq!(pair.write_direct(A, b"here", mapping.offset + 96), Ok(4));
    pair.settle();
    assert_eq!(bytes(&pair, &mapping)[96..], *b"here");
}

#[test]
fn what_is_not_mapped_is_not_written() {
    let mut pair = pair(4);
    assert_eq!(pair.write_direct(A, b"x", 0), Ok(0));
    let mapping = map(&mut pair, 10, Some(100)).unwrap();
    pair.send(B, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.drain(A).0, b"x");
    assert_eq!(pair.write_direct(A, b"too long for it", 105), Ok(5), "up to the mapping's end");
    assert_eq!(pair.write_direct(A, b"x", 99), Ok(0));
    assert_eq!(pair.write_direct(A, b"x", 110), Ok(0));
    assert_eq!(pair.write_direct(A, b"x", u64::MAX), Ok(0));
    pair.settle();
    assert_eq!(bytes(&pair, &mapping), b"\0\0\0\0\0too l");
    // Two that touch are written across.
    map(&mut pair, 10, Some(110)).unwrap();
    pair.send(B, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.drain(A).0, b"x");
    assert_eq!(pair.write_direct(A, b"too long for it", 100), Ok(15));
}

#[test]
fn there_are_as_many_mappings_as_the_peer_has_room_for() {
    let mut none = pair(0);
    assert_eq!(map(&mut none, 10, None), Err(Error::NoBuffers), "RDMA_IOMAPSIZE is zero at first");
    let mut two = pair(2);
    let first = map(&mut two, 10, Some(0)).unwrap();
    map(&mut two, 10, Some(10)).unwrap();
    assert_eq!(map(&mut two, 10, Some(20)), Err(Error::NoBuffers));
    let End { node, sockets, socket } = &mut two.ends[B];
    assert!(sockets.map(node, *socket, vec![0; 10], false, None).is_ok(), "a local one takes none");
    assert_eq!(sockets.unmap(node, *socket, first.region.address, 9).err(), Some(Error::Invalid));
    assert_eq!(sockets.unmap(node, *socket, first.region.address, 10), Ok(vec![0; 10]));
    assert!(map(&mut two, 10, Some(20)).is_ok());
    assert_eq!(map(&mut two, 10, Some(u64::MAX - 3)).err(), Some(Error::Invalid), "its offsets wrap");
}

#[test]
fn who_writes_where_a_mapping_was_loses_the_connection() {
    let mut pair = pair(4);
    let mapping = map(&mut pair, 10, Some(0)).unwrap();
    pair.send(B, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.drain(A).0, b"x");
    let End { node, sockets, socket } = &mut pair.ends[B];
    sockets.unmap(node, *socket, mapping.region.address, 10).unwrap();
    assert_eq!(pair.write_direct(A, b"x", 0), Ok(1));
    pair.settle();
    assert_eq!(pair.recv(A, &mut [0]), Err(Error::Reset));
    assert_eq!(pair.recv(B, &mut [0]), Err(Error::Reset), "its queue pair failed, too");
}

#[test]
fn mappings_do_not_use_up_credits() {
    let mut options = [Options::new(A), Options::new(B)];
    options[A].settings.sizes = Sizes { iomap: 1, recv_queue: 16, ..Sizes::default() };
    let mut pair = Pair::connected(options);
    pair.settle();
    for round in 0..100 {
        let mapping = map(&mut pair, 10, Some(0)).unwrap();
        assert_eq!(pair.send(B, b"x"), Ok(1), "round {round}");
        pair.settle();
        assert_eq!(pair.drain(A).0, b"x");
        assert_eq!(pair.write_direct(A, b"direct", 0), Ok(6));
        pair.settle();
        let End { node, sockets, socket } = &mut pair.ends[B];
        assert_eq!(sockets.unmap(node, *socket, mapping.region.address, 10).unwrap()[..6], *b"direct");
    }
    assert!(pair.readiness(B).contains(Readiness::OUT));
}

#[test]
fn a_big_endian_peer_s_table_is_written_big_endian() {
    for by_sends in [false, true] {
        let mut options = [Options::new(A), Options::new(B)];
        options[A].settings.sizes = Sizes { iomap: 4, ..Sizes::default() };
        options[A].host = Host { order: ByteOrder::Big, by_sends, ..Host::default() };
        options[B].host.by_sends = by_sends;
        let mut pair = Pair::connected(options);
        pair.settle();
        let mapping = map(&mut pair, 100, Some(1000)).unwrap();
        pair.send(B, b"x").unwrap();
        pair.settle();
        assert_eq!(pair.drain(A).0, b"x");
        assert_eq!(pair.write_direct(A, b"here", 1050), Ok(4));
        pair.settle();
        assert_eq!(bytes(&pair, &mapping)[50..54], *b"here");
    }
}

#[test]
fn a_target_is_told_once_no_write_is_on_its_way() {
    let mut pair = pair(4);
    let mapping = map(&mut pair, 1000, Some(50)).unwrap();
    pair.send(B, b"x").unwrap();
    pair.settle();
    let target = |pair: &mut Pair, offset| {
        let (now, End { node, sockets, socket }) = (pair.now, &mut pair.ends[A]);
        sockets.direct_target(now, node, *socket, offset)
    };
    let told = target(&mut pair, 60).unwrap().unwrap();
    assert_eq!((told.key, told.address, told.len), (mapping.region.key, mapping.region.address + 10, 990));
    assert_eq!((target(&mut pair, 49), target(&mut pair, 1050)), (Ok(None), Ok(None)));
    assert_eq!(pair.write_direct(A, b"first", 60), Ok(5));
    assert_eq!(target(&mut pair, 60), Ok(None), "it would overtake that one");
    pair.settle();
    assert_eq!(target(&mut pair, 60), Ok(Some(told)));
    let (now, End { node, sockets, socket }) = (pair.now, &mut pair.ends[A]);
    sockets.fail_direct(now, node, *socket).unwrap();
    assert_eq!(target(&mut pair, 60), Err(Error::Reset));
}
