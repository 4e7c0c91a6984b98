//! Receive buffers that a peer places bytes in by itself.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use super::pair::{A, B, Options, Pair, pattern};
use crate::device::messages::{Memory as _, Messages as _, Region};
use crate::error::Error;
use crate::roce::Sharing;
use crate::rsocket::wire::Message;

/// What both ends share, and what was placed there and is not in their memory yet.
#[derive(Debug, Default)]
struct Common {
    regions: [BTreeMap<u32, Region>; 2],
    placed: Vec<(usize, Region, u64, Vec<u8>)>,
    asked: u32,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Shared {
    end: usize,
    common: Arc<Mutex<Common>>,
    /// Every so manyth time it places nothing.
    refuses: u32,
    /// It says so of what it did not place, too.
    lies: bool,
}

impl Sharing<Vec<u8>> for Shared {
    fn share(&mut self, _: IpAddr, _: u32, region: &Region) -> Option<Vec<u8>> {
        self.common.lock().unwrap().regions[self.end].insert(region.key, *region);
        Some(vec![0; region.len as usize])
    }

    fn place(&mut self, _: IpAddr, _: u32, key: u32, address: u64, bytes: &[u8]) -> bool {
        let mut common = self.common.lock().unwrap();
        common.asked += 1;
        let other = 1 - self.end;
        let Some(region) = common.regions[other].get(&key).copied().filter(|_| !common.asked.is_multiple_of(self.refuses)) else {
            return self.lies;
        };
        let offset = address - region.address;
        assert!(offset + bytes.len() as u64 <= region.len, "it is told of what it may write to");
        common.placed.push((other, region, offset, bytes.to_vec()));
        common.bytes += bytes.len();
        true
    }
}

/// A pair that is connected; `ends` share memory.
fn connected(ends: &[usize], refuses: u32, lies: bool) -> (Pair, Arc<Mutex<Common>>) {
    let common = Arc::<Mutex<Common>>::default();
    let mut pair = Pair::new([Options::new(A), Options::new(B)]);
    for &end in ends {
        pair.ends[end].node.share_by(Box::new(Shared { end, common: common.clone(), refuses, lies }));
    }
    pair.connect_now();
    (pair, common)
}

/// What was placed is there before any packet that is sent after it.
fn put(pair: &mut Pair, common: &Mutex<Common>) {
    for (end, region, offset, bytes) in core::mem::take(&mut common.lock().unwrap().placed) {
        if let Some(memory) = pair.ends[end].node.memory_mut(region.key) {
            memory.write(offset, &bytes);
        }
    }
}

#[test]
fn bytes_arrive_in_order_placed_or_not() {
    for refuses in [u32::MAX, 2, 3] {
        let (mut pair, common) = connected(&[A, B], refuses, false);
        for from in [A, B] {
            let (all, mut sent, mut got) = (pattern(from as u64, 0, 400_000), 0, Vec::new());
            let end = pair.now + Duration::from_secs(60);
            pair.run_until(end, |pair| {
                // (Of all lengths, also those that go inline.)
                while let Ok(len) = pair.send(from, &all[sent..(sent * 5 / 4 + 1).min(all.len())]) {
                    sent += len;
                    if len == 0 {
                        break;
                    }
                }
                put(pair, &common);
                got.extend(pair.drain(1 - from).0);
                got.len() == all.len()
            });
            assert!(got == all, "{refuses}");
            pair.ends.iter().for_each(|end| end.sockets.check());
        }
        let placed = common.lock().unwrap().bytes;
        assert!(if refuses == u32::MAX { placed > 790_000 } else { placed > 200_000 }, "{placed}");
        let carried: usize = [A, B].into_iter().flat_map(|end| pair.writes(end)).map(|(_, _, bytes)| bytes.len()).sum();
        assert!(refuses != u32::MAX || carried < 10_000, "{carried}");
    }
}

#[test]
fn who_shares_nothing_believes_nobody_who_says_that_bytes_were_placed() {
    let (mut pair, _) = connected(&[A], 1, true);
    pair.settle();
    assert_eq!(pair.send(A, &[1; 1000]), Ok(1000));
    pair.settle();
    assert_eq!(pair.recv(B, &mut [0; 10]), Err(Error::Reset));
}

#[test]
fn no_more_is_placed_than_the_buffer_has_room_for() {
    let (mut pair, common) = connected(&[A, B], u32::MAX, false);
    pair.settle();
    let region = *common.lock().unwrap().regions[B].values().next().unwrap();
    assert_eq!(region.len, 1 << 17);
    let mut sent = 0;
    while let Ok(len) = pair.send(A, &[1; 5000]) {
        sent += len;
    }
    assert_eq!(sent as u64, region.len, "as much as the buffer has room for, and no more");
    put(&mut pair, &common);
    pair.settle();
    assert_eq!(pair.drain(B).0.len(), sent);
}

#[test]
fn of_sends_that_nobody_answers_a_long_one_is_one_message() {
    let (mut pair, common) = connected(&[A, B], u32::MAX, false);
    pair.settle();
    let lengths = |pair: &mut Pair, end: usize| -> Vec<u32> {
        let words = pair.writes(end).into_iter().filter_map(|(_, immediate, _)| immediate);
        words.filter_map(|word| if let Message::Data(len) = Message::parse(word) { Some(len) } else { None }).collect()
    };
    let send = |pair: &mut Pair, from: usize, len: usize| {
        assert_eq!(pair.send(from, &vec![7; len]), Ok(len));
        put(pair, &common);
        pair.settle();
        assert_eq!(pair.drain(1 - from).0.len(), len);
        pair.settle();
        lengths(pair, from)
    };
    let first = [2048, 4096, 8192, 1664];
    assert_eq!(send(&mut pair, A, 16_000), first, "the peer is to begin soon");
    assert_eq!(send(&mut pair, A, 16_000), [16_000]);
    assert_eq!(send(&mut pair, A, 16_000), [16_000]);
    assert_eq!(send(&mut pair, B, 10), [10], "an answer");
    assert_eq!(send(&mut pair, A, 16_000), first);
}
