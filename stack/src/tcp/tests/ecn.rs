//! Explicit congestion notification (RFC 3168): who agrees on it, which segments may be marked, and what follows from a mark at both ends.

use super::pair::Side::{A, B};
use super::pair::{Packet, Pair, ms, pattern};
use crate::tcp::congestion::Algorithm;
use crate::tcp::{Config, Ecn};
use crate::wire::tcp::Flags;

const SEGMENT: usize = 1448;

fn with(ecn: Ecn) -> Config {
    Config { ecn, ..Config::default() }
}

/// What the two said in their SYNs, and whether either's bytes may be marked.
fn agreed(a: &Config, b: &Config) -> ([Flags; 2], [bool; 2]) {
    let mut pair = Pair::new(a, b);
    pair.settle();
    let said = |packets: Vec<Packet>| packets[0].header.flags & (Flags::ECE | Flags::CWR);
    let (first, second) = (pair.sent(A), pair.sent(B));
    assert!(first.iter().chain(&second).all(|packet| !packet.capable), "SYNs and acknowledgments are not to be marked");
    let said = [said(first), said(second)];
    let capable = [A, B].map(|side| {
        pair.write(side, &pattern(3000)).unwrap();
        pair.settle();
        let sent = pair.sent(side);
        assert!(sent.iter().all(|packet| !packet.payload.is_empty() || !packet.capable));
        let data: Vec<_> = sent.iter().filter(|packet| !packet.payload.is_empty()).map(|packet| packet.capable).collect();
        assert!(data.windows(2).all(|pair| pair[0] == pair[1]));
        data[0]
    });
    (said, capable)
}

/// RFC 3168 s6.1.1, and Linux's tcp_ecn: 0, 1, and 2, which is its default.
#[test]
fn who_agrees() {
    let (no, yes, both) = (Flags::empty(), Flags::ECE, Flags::ECE | Flags::CWR);
    assert_eq!(agreed(&Config::default(), &Config::default()), ([no, no], [false; 2]));
    assert_eq!(agreed(&with(Ecn::Asked), &Config::default()), ([both, yes], [true; 2]));
    assert_eq!(agreed(&with(Ecn::Asked), &with(Ecn::Asked)), ([both, yes], [true; 2]));
    assert_eq!(agreed(&with(Ecn::Asked), &with(Ecn::Off)), ([both, no], [false; 2]));
    assert_eq!(agreed(&with(Ecn::Accepted), &with(Ecn::Asked)), ([no, no], [false; 2]));
    let dctcp = Config { congestion: Algorithm::Dctcp, ..Config::default() };
    assert_eq!(agreed(&dctcp, &Config::default()), ([both, yes], [true; 2]));
    assert_eq!(agreed(&Config { ecn: Ecn::Off, ..dctcp }, &Config::default()), ([no, no], [false; 2]));
}

/// RFC 3168 s6.1.1.1: a SYN that gets no answer may have been dropped for what it asks.
#[test]
fn a_syn_that_gets_no_answer_asks_no_more() {
    let mut pair = Pair::new(&with(Ecn::Asked), &Config::default());
    pair.lose(|packet| packet.is(Flags::SYN | Flags::ECE | Flags::CWR));
    pair.run(ms(5000));
    let syns: Vec<_> = pair.sent(A).iter().filter(|packet| packet.is(Flags::SYN)).map(|packet| packet.header.flags).collect();
    assert_eq!(syns, [Flags::SYN | Flags::ECE | Flags::CWR, Flags::SYN]);
    pair.write(A, &pattern(3000)).unwrap();
    pair.settle();
    assert!(pair.sent(A).iter().all(|packet| !packet.capable));
}

/// The same if it is the answer that is lost: the second SYN does not ask, and then nobody's bytes may be marked.
#[test]
fn a_lost_answer_agrees_on_nothing() {
    let mut pair = Pair::new(&with(Ecn::Asked), &Config::default());
    let mut lost = false;
    pair.lose(move |packet| packet.from == B && !core::mem::replace(&mut lost, true));
    pair.run(ms(500));
    pair.lose_nothing();
    pair.run(ms(5000));
    for side in [A, B] {
        pair.write(side, &pattern(3000)).unwrap();
        pair.settle();
        assert!(pair.sent(side).iter().all(|packet| !packet.capable), "{side:?}");
    }
}

/// RFC 3168 s6.1.2, s6.1.3: one mark is told of until the sender answers, takes what a loss would, once, and loses nothing.
#[test]
fn a_mark_halves_the_window_once() {
    for (congestion, tenths) in [(Algorithm::Reno, 5), (Algorithm::Cubic, 7)] {
        let mut pair = Pair::open(&Config { ecn: Ecn::Asked, congestion, ..Config::default() }, &Config::default());
        let data = pattern(200_000);
        assert_eq!(pair.transfer(A, &data), data);
        pair.settle();
        pair.log.clear();
        let mut count = 0;
        pair.marks = Box::new(move |packet| {
            count += usize::from(packet.from == A);
            count == 3
        });
        let flight = 20 * SEGMENT;
        pair.write(A, &pattern(flight)).unwrap();
        pair.settle();
        assert_eq!(pair.read(B).len(), flight);
        let (before, wanted) = (pair.a.cwnd(), flight * tenths / 10);
        // What was in flight as the peer told.
        assert!(before <= wanted + SEGMENT && before >= wanted / 2, "{congestion:?}: {before} of {flight}");
        let echoes = pair.sent(B).iter().filter(|packet| packet.is(Flags::ECE)).count();
        assert!(echoes > 1, "{echoes}");
        // The next new segment says that the window came down, and ends it.
        pair.write(A, &pattern(2 * SEGMENT)).unwrap();
        pair.settle();
        let sent: Vec<_> = pair.sent(A).into_iter().filter(|packet| packet.is(Flags::CWR)).collect();
        assert_eq!(sent.len(), 1, "{congestion:?}");
        assert!(!sent[0].payload.is_empty() && sent[0].capable);
        assert!(pair.sent(B).iter().all(|packet| !packet.is(Flags::ECE)));
        assert_eq!((pair.a.cwnd().abs_diff(before) <= SEGMENT, pair.a.counters().retransmissions), (true, 0));
    }
}

/// RFC 3168 s6.1.5: what is sent again may not be marked; nor does it say anything of the window, which the next new bytes do.
#[test]
fn what_is_sent_again_may_not_be_marked() {
    let mut pair = Pair::open(&with(Ecn::Asked), &Config::default());
    let data = pattern(100_000);
    assert_eq!(pair.transfer(A, &data), data);
    pair.settle();
    pair.log.clear();
    let mut count = 0;
    pair.lose(move |packet| {
        count += usize::from(packet.from == A && !packet.payload.is_empty());
        packet.from == A && count == 2
    });
    pair.write(A, &pattern(40 * SEGMENT)).unwrap();
    pair.settle();
    let sent = pair.sent(A);
    let again: Vec<_> = sent
        .iter()
        .enumerate()
        .filter(|(at, packet)| {
            sent[..*at]
                .iter()
                .any(|before| before.header.seq == packet.header.seq && !before.payload.is_empty() && !packet.payload.is_empty())
        })
        .map(|(_, packet)| packet)
        .collect();
    assert_eq!(again.len(), 1);
    assert!(!again[0].capable && !again[0].is(Flags::CWR));
    // All that was written had been sent when the loss showed: what is written next says so.
    assert!(sent.iter().all(|packet| !packet.is(Flags::CWR)));
    pair.write(A, &pattern(3 * SEGMENT)).unwrap();
    pair.settle();
    let answers: Vec<_> = pair.sent(A).iter().filter(|packet| !packet.payload.is_empty()).map(|packet| packet.is(Flags::CWR)).collect();
    assert_eq!(answers, [true, false, false], "a loss is answered as well");
}

/// Whatever is marked, all bytes arrive, and nothing is sent again for it.
#[test]
fn marks_lose_nothing() {
    for each in [1, 2, 7] {
        let mut pair = Pair::open(&with(Ecn::Asked), &Config::default());
        let mut count = 0;
        pair.marks = Box::new(move |_| {
            count += 1;
            count % each == 0
        });
        let data = pattern(100_000);
        assert_eq!(pair.transfer(A, &data), data, "each {each}th");
        assert_eq!(pair.a.counters().retransmissions, 0);
    }
}

/// RFC 8257 s3.3: after many windows without marks, one takes less of the window than NewReno's half.
#[test]
fn dctcp_comes_down_by_the_share_of_marks() {
    let [half, less] = [Algorithm::Reno, Algorithm::Dctcp].map(|congestion| {
        let mut pair = Pair::open(&Config { congestion, ..with(Ecn::Asked) }, &Config::default());
        // DCTCP's estimate begins with all, and comes down in windows without marks. (Then comes a rest, after which both begin with ten segments.)
        let data = pattern(3_000_000);
        assert_eq!(pair.transfer(A, &data), data);
        pair.settle();
        pair.log.clear();
        let mut count = 0;
        pair.marks = Box::new(move |_| {
            count += 1;
            count == 5
        });
        pair.write(A, &pattern(20 * SEGMENT)).unwrap();
        pair.settle();
        // The reduction is over with the first bytes that are sent after it.
        pair.write(A, &pattern(SEGMENT)).unwrap();
        pair.settle();
        assert_eq!(pair.sent(A).iter().filter(|packet| packet.is(Flags::CWR)).count(), 1, "{congestion:?}");
        pair.a.cwnd()
    });
    assert!(less >= half + 4 * SEGMENT, "{less}, where NewReno leaves {half}");
}

/// RFC 8257 s3.2: whatever is marked, of each byte the sender hears whether it was, although acknowledgments are delayed.
#[test]
fn dctcp_is_told_of_each_byte() {
    for (seed, each) in [(1, 2), (2, 3), (3, 7), (4, 1)] {
        let config = Config { congestion: Algorithm::Dctcp, ..Config::default() };
        let mut pair = Pair::open(&config, &config);
        let data = pattern(400_000);
        assert_eq!(pair.transfer(A, &data), data);
        pair.settle();
        pair.log.clear();
        let mut random: u64 = seed;
        let marked = std::rc::Rc::new(core::cell::RefCell::new(Vec::new()));
        let log = marked.clone();
        pair.marks = Box::new(move |packet| {
            random = (random * 1_103_515_245 + 12_345) % (1 << 31);
            let is_marked = (random / 65_536).is_multiple_of(each);
            if is_marked {
                log.borrow_mut().push(packet.payload.len());
            }
            is_marked
        });
        pair.write(A, &pattern(40 * SEGMENT)).unwrap();
        pair.settle();
        assert_eq!(pair.read(B).len(), 40 * SEGMENT);
        pair.settle();
        let (mut una, mut told) = (pair.sent(A)[0].header.seq, 0);
        let acks = pair.sent(B);
        for ack in &acks {
            told += if ack.is(Flags::ECE) { ack.header.ack.since(una) } else { 0 };
            una = una.max(ack.header.ack);
        }
        assert_eq!(told, marked.borrow().iter().sum::<usize>(), "each {each}th");
        assert!(acks.len() < 36 || each == 2, "acknowledgments are delayed: {}", acks.len());
    }
}

/// RFC 3168 s6.1.2: one segment says that the window came down, also where a device cuts what is sent.
#[test]
fn no_piece_but_the_first_answers() {
    let mut pair = Pair::open(&Config { tso_max: 64 << 10, ..with(Ecn::Asked) }, &Config::default());
    let data = pattern(200_000);
    assert_eq!(pair.transfer(A, &data), data);
    pair.settle();
    let mut count = 0;
    pair.marks = Box::new(move |packet| {
        count += usize::from(packet.from == A);
        count == 3
    });
    pair.write(A, &pattern(20 * SEGMENT)).unwrap();
    pair.settle();
    pair.log.clear();
    let cuts = pair.cuts;
    pair.write(A, &pattern(8 * SEGMENT)).unwrap();
    pair.settle();
    let answers: Vec<_> = pair.sent(A).iter().filter(|packet| !packet.payload.is_empty()).map(|packet| packet.is(Flags::CWR)).collect();
    assert!(answers[0] && answers[1..].iter().all(|answers| !answers), "{answers:?}");
    assert!(pair.cuts > cuts, "the rest goes in one piece");
}
