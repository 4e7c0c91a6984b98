//! The queues against simple models of them.

use std::io::IoSliceMut;

use proptest::prelude::*;

use super::pair::pattern;
use crate::tcp::payload::RxPayload;
use crate::tcp::reassembly::Reassembly;
use crate::tcp::recv_queue::RecvQueue;
use crate::tcp::scoreboard::Scoreboard;
use crate::tcp::test_util::TestRx;
use crate::time::Instant;
use crate::wire::tcp::{SackBlock, SeqNumber};

fn payload(bytes: &[u8], head: usize) -> RxPayload<'_, TestRx> {
    let (head, body) = bytes.split_at(head.min(bytes.len()));
    RxPayload { head, frame: None, body: (!body.is_empty()).then(|| TestRx::new(body)) }
}

proptest! {
    #[test]
    fn a_receive_queue_is_a_queue(
        steps in proptest::collection::vec((0..3000usize, 0..300usize, 0..4000usize, any::<bool>()), 1..60)
    ) {
        let mut queue = RecvQueue::<TestRx>::new();
        let mut model = Vec::new();
        let all = pattern(200_000);
        let mut at = 0;
        for (len, head, read, peek) in steps {
            queue.push(payload(&all[at..at + len], head), Instant::ZERO);
            model.extend_from_slice(&all[at..at + len]);
            at += len;
            let mut out = vec![0; read];
            let (first, second) = out.split_at_mut(read / 3);
            let n = queue.read(&mut [IoSliceMut::new(first), IoSliceMut::new(second)], peek);
            prop_assert_eq!(n, read.min(model.len()));
            prop_assert_eq!(&out[..n], &model[..n]);
            if !peek {
                model.drain(..n);
            }
            prop_assert_eq!(queue.len(), model.len());
        }
        let mut out = vec![0; model.len()];
        queue.read(&mut [IoSliceMut::new(&mut out)], false);
        prop_assert_eq!(out, model);
        queue.release_idle(false);
        prop_assert!(!queue.holds_memory());
    }

    #[test]
    fn reassembly_puts_any_pieces_in_order(
        pieces in proptest::collection::vec((0..20_000usize, 1..2500usize, 0..300usize), 1..80),
        start in any::<u32>(),
    ) {
        let base = SeqNumber(start);
        let all = pattern(25_000);
        let mut queue = RecvQueue::<TestRx>::new();
        let mut reassembly = Reassembly::new();
        let mut there = vec![false; 25_000];
        for &(from, len, head) in &pieces {
            // The first byte is missing until the end.
            let from = from + 1;
            reassembly.insert(base + from, payload(&all[from..from + len], head), None);
            there[from..from + len].fill(true);
            let sack = reassembly.sack();
            let newest = sack.as_slice().iter().any(|b| b.start.le(base + from) && b.end.ge(base + from + len));
            prop_assert!(newest, "what came last is reported");
            for block in sack.as_slice() {
                prop_assert!(there[block.start.since(base)..block.end.since(base)].iter().all(|&t| t));
            }
        }
        there[0] = true;
        queue.push_bytes(&all[..1], None);
        let end = reassembly.drain(base + 1, &mut queue);
        let expected = there.iter().position(|&t| !t).unwrap();
        prop_assert_eq!(end.since(base), expected);
        let mut out = vec![0; expected];
        prop_assert_eq!(queue.read(&mut [IoSliceMut::new(&mut out)], false), expected);
        prop_assert_eq!(&out[..], &all[..expected]);
    }

    #[test]
    fn a_scoreboard_is_a_set(
        blocks in proptest::collection::vec((0..500usize, 0..60usize), 0..60),
        start in any::<u32>(),
        una in 0..300usize,
        from in 0..600usize,
        to in 0..600usize,
    ) {
        let base = SeqNumber(start);
        let (una, from, to) = (una, from.max(una), to.max(from).max(una));
        let mut board = Scoreboard::default();
        let mut set = vec![false; 700];
        for &(at, len) in &blocks {
            let news = board.add(SackBlock { start: base + at, end: base + at + len }, base, base + 600);
            let range = &mut set[at..at + len];
            prop_assert_eq!(news, range.iter().any(|&there| !there));
            range.fill(true);
        }
        board.advance(base + una);
        set[..una].fill(false);
        prop_assert_eq!(board.bytes(), set.iter().filter(|&&there| there).count());
        let holes = set[from..to].iter().filter(|&&there| !there).count();
        prop_assert_eq!(board.hole_bytes(base + from, base + to), holes);
        let first = (from..to).find(|&i| !set[i]);
        let hole = board.next_hole(base + from, base + to).map(|(a, b)| (a.since(base), b.since(base)));
        let expected = first.map(|a| (a, (a..to).find(|&i| set[i]).unwrap_or(to)));
        prop_assert_eq!(hole, expected);
    }
}
