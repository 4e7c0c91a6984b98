//! When bytes came, as whoever asks is told once they are read.

use std::io::IoSliceMut;

use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{Pair, card_time, ms, pattern};
use crate::tcp::{Arrival, Config, Decision};
use crate::time::Instant;

fn asking() -> Pair {
    // (Each write is a segment.)
    Pair::open(&Config { nodelay: true, ..Config::default() }, &Config { arrival_times: true, ..Config::default() })
}

/// Writes bytes that are in B's queue when it is done: when they came.
fn arrive(pair: &mut Pair, data: &[u8]) -> Instant {
    pair.run(ms(5));
    pair.write(A, data).unwrap();
    pair.settle();
    pair.sent(A).last().expect("it was sent").sent + ms(1)
}

/// Reads so many: when the last of them came.
fn read(pair: &mut Pair, len: usize) -> Option<Instant> {
    assert_eq!(pair.read_some(B, len).unwrap().len(), len);
    pair.side(B).arrival(0).map(|at| at.received)
}

#[test]
fn a_read_has_the_time_of_the_segment_that_its_last_byte_came_in() {
    let mut pair = asking();
    let [first, second, third] = [3, 1400, 600].map(|len| arrive(&mut pair, &pattern(len)));
    assert!(first < second && second < third);
    assert_eq!(pair.side(B).arrival(0), None, "nothing was read");
    assert_eq!([3, 4, 1403, 1404].map(|peeked| pair.side(B).arrival(peeked).unwrap().received), [first, second, second, third]);
    assert_eq!([2, 1, 1, 1398, 1, 1, 599].map(|len| read(&mut pair, len).unwrap()), [first, first, second, second, second, third, third]);
    let fourth = arrive(&mut pair, b"more");
    assert_eq!(read(&mut pair, 4), Some(fourth));
}

#[test]
fn small_segments_have_the_device_s_time() {
    let mut pair = asking();
    for len in [1, 100] {
        let received = arrive(&mut pair, &pattern(len));
        read(&mut pair, len);
        assert_eq!(pair.side(B).arrival(0), Some(Arrival { received, hardware_time: Some(card_time(received)) }));
    }
    assert!(pair.short > 0);
}

#[test]
fn bytes_that_came_out_of_order_have_the_time_at_which_they_came() {
    for len in [100, 1000] {
        let mut pair = asking();
        let mut lost = Some(());
        pair.lose(move |packet| !packet.payload.is_empty() && lost.take().is_some());
        let began = pair.now;
        for wait in [0, 1, 1, 200] {
            pair.write(A, &pattern(len)).unwrap();
            pair.run(Duration::from_micros(wait));
        }
        pair.run(ms(500));
        let times: Vec<_> = (0..4).map(|_| read(&mut pair, len).unwrap().since(began)).collect();
        assert!(times[0] > times[3] && times[3] < ms(6), "the first one came last: {times:?}");
        // Small ones that wait are put together, and have the last one's time.
        assert_eq!(times[1] == times[3], len == 100, "{times:?}");
    }
}

#[test]
fn it_is_kept_from_when_it_is_asked_for_and_no_longer() {
    let mut pair = Pair::plain();
    arrive(&mut pair, b"before");
    let (now, set) = (pair.now, |arrival_times| (&Config { arrival_times, ..Config::default() }).into());
    pair.side(B).set_profile(now, set(true));
    let asked = arrive(&mut pair, b"asked");
    assert_eq!(read(&mut pair, 6), None);
    assert_eq!(read(&mut pair, 1), Some(asked));
    let now = pair.now;
    pair.side(B).set_profile(now, set(true));
    assert_eq!(read(&mut pair, 1), Some(asked), "and set again it changes nothing");
    pair.side(B).set_profile(now, set(false));
    arrive(&mut pair, b"after");
    assert_eq!(read(&mut pair, 8), None);
}

#[test]
fn what_a_reader_lets_by_or_is_lent_has_its_time() {
    let mut pair = asking();
    pair.side(B).set_recv_filter(true);
    let [dropped, first, second] = [10, 100, 1000].map(|len| arrive(&mut pair, &pattern(len)));
    let now = pair.now;
    for (time, decision) in [(dropped, Decision::Drop), (first, Decision::Admit), (second, Decision::Admit)] {
        assert_eq!(pair.side(B).candidate().unwrap().1.unwrap().received, time);
        pair.side(B).decide(now, decision);
    }
    assert_eq!([99, 2].map(|len| read(&mut pair, len).unwrap()), [first, second]);
    // (As much as lies in one place.)
    let lent = pair.side(B).lend(|_| 500).unwrap().unwrap().len();
    assert_eq!(pair.side(B).arrival(0).unwrap().received, second);
    let mut rest = [0; 1000];
    assert_eq!(pair.side(B).read(now, &mut [IoSliceMut::new(&mut rest)], false), Ok(999 - lent));
    assert_eq!(pair.side(B).arrival(0).unwrap().received, second);
}
