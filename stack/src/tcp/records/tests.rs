//! Records beside a model that remembers each byte.

use core::time::Duration;

use proptest::prelude::*;

use super::flight::PIECES_MAX;
use super::*;
use crate::tcp::fields::{Reader, SnapshotError, Writer};

const MSS: usize = 100;

/// Sequence numbers wrap in the course of each story.
const BEGIN: SeqNumber = SeqNumber(0xffff_ff00);

/// What is known of a byte: when it was sent last, whether it was sent again, whether it was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Byte {
    sent_at: Instant,
    again: bool,
    reported: bool,
    /// It was reported once: nobody has to know when it was sent.
    hazy: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    /// Of what is in flight, by place.
    Report(usize, usize),
    Resend(usize, usize),
    Acknowledge(usize),
    Renege,
}

fn step(largest: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..=largest).prop_map(Step::Send),
        3 => (0..3000usize, 1..400usize).prop_map(|(at, len)| Step::Report(at, len)),
        2 => (0..3000usize, 1..=MSS).prop_map(|(at, len)| Step::Resend(at, len)),
        3 => (1..600usize).prop_map(Step::Acknowledge),
        1 => Just(Step::Renege),
    ]
}

#[derive(Default)]
struct Story {
    records: Records,
    bytes: Vec<Byte>,
    una: usize,
    now: Instant,
    delivered: u64,
}

impl Story {
    /// The part of what is in flight, if there is any.
    fn part(&self, at: usize, len: usize) -> Option<core::ops::Range<usize>> {
        let start = at % self.bytes.len().max(1);
        let end = (start + len).min(self.bytes.len());
        (start < end).then_some(start..end)
    }

    fn numbers(&self, part: &core::ops::Range<usize>) -> (SeqNumber, SeqNumber) {
        (BEGIN + (self.una + part.start), BEGIN + (self.una + part.end))
    }

    /// What the acknowledgment told of a round trip, and what the model has of it.
    fn take(&mut self, step: Step) -> Option<(Timed, Timed)> {
        self.now += Duration::from_millis(1);
        let now = self.now;
        match step {
            Step::Send(len) => {
                let start = BEGIN + (self.una + self.bytes.len());
                self.records.push(now, (start, start + len), self.bytes.len(), MSS);
                self.bytes.extend(vec![Byte { sent_at: now, again: false, reported: false, hazy: false }; len]);
            }
            Step::Report(at, len) => {
                let part = self.part(at, len)?;
                self.records.report(now, self.numbers(&part), MSS, &Rtt::new(), &mut Arrived::default());
                for byte in &mut self.bytes[part] {
                    self.delivered += u64::from(!byte.reported);
                    (byte.reported, byte.hazy) = (true, true);
                }
            }
            Step::Resend(at, len) => {
                let part = self.part(at, len)?;
                self.records.resend(now, self.numbers(&part), 0, MSS);
                self.bytes[part].iter_mut().for_each(|byte| (byte.sent_at, byte.again) = (now, true));
            }
            Step::Acknowledge(len) => {
                let len = len.min(self.bytes.len());
                let mut arrived = Arrived::default();
                let ends = self.records.queue().iter().map(|record| record.end.since(BEGIN + self.una)).filter(|&end| end <= len).max();
                let acked: Vec<_> = self.bytes.drain(..len).collect();
                self.una += len;
                self.records.acknowledge(now, BEGIN + self.una, len, &Rtt::new(), &mut arrived);
                self.delivered += acked.iter().filter(|byte| !byte.reported).count() as u64;
                let news = |byte: &&Byte| !byte.reported;
                let whole = &acked[..ends.unwrap_or(0)];
                let expected = match whole.iter().find(news) {
                    _ if acked.iter().filter(news).any(|byte| byte.again) => Timed::Ambiguous,
                    Some(byte) => Timed::Since(byte.sent_at),
                    None if acked.iter().any(|byte| news(&byte)) => Timed::Later,
                    None => Timed::Ambiguous,
                };
                let is_certain = len > 0 && acked.iter().all(|byte| byte.reported || !byte.hazy);
                return is_certain.then_some((arrived.timed(), expected));
            }
            Step::Renege => {
                // (What was delivered once has been counted.)
                self.records.forget_reports();
                for byte in &mut self.bytes {
                    byte.reported = false;
                }
            }
        }
        None
    }

    /// What the records say of each byte in flight.
    fn told(&self) -> Vec<Byte> {
        let mut next = BEGIN + self.una;
        let mut told = Vec::new();
        for record in &self.records.queue() {
            assert_eq!(record.start, next, "no byte is left out");
            next = record.end;
            let byte = Byte { sent_at: record.sent.sent_at, again: record.again, reported: record.reported, hazy: false };
            told.extend(vec![byte; record.len()]);
        }
        told
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// As long as no two segments share a record, the records know of each byte what there is to know.
    #[test]
    fn records_are_what_a_model_of_bytes_is(steps in proptest::collection::vec(step(3 * MSS), 1..SMALL_MAX)) {
        let mut story = Story::default();
        for step in steps {
            if let Some((told, expected)) = story.take(step) {
                prop_assert_eq!(told, expected, "after {:?}", step);
            }
            let told = story.told();
            prop_assert_eq!(told.len(), story.bytes.len());
            for (told, byte) in told.iter().zip(&story.bytes) {
                prop_assert_eq!(told.reported, byte.reported, "after {:?}", step);
                prop_assert!(byte.hazy || (told.sent_at, told.again) == (byte.sent_at, byte.again), "{:?} is {:?}", byte, told);
            }
            prop_assert_eq!(story.records.delivered(), story.delivered, "after {:?}", step);
        }
    }

    /// Small segments share records, which know the latest of times; and there are never more of them than are allowed.
    #[test]
    fn small_segments_and_many_pieces_take_no_more_than_their_share(steps in proptest::collection::vec(step(20), 200..900)) {
        let (mut story, mut largest) = (Story::default(), 0);
        for step in steps {
            story.take(step);
            largest = largest.max(story.bytes.len());
            let told = story.told();
            prop_assert_eq!(told.len(), story.bytes.len());
            let is_later = |(told, byte): (&Byte, &Byte)| byte.hazy || told.sent_at >= byte.sent_at && told.again >= byte.again;
            prop_assert!(told.iter().zip(&story.bytes).all(is_later));
            prop_assert!(story.records.queue().len() <= PIECES_MAX + SMALL_MAX + 2 * largest / MSS);
        }
    }
}

/// Segments of a byte: from a certain number on, a hundred of them share a record.
#[test]
fn a_flight_of_single_bytes_has_few_records() {
    let mut story = Story::default();
    for _ in 0..100_000 {
        story.take(Step::Send(1));
    }
    let count = story.records.queue().len();
    assert!((1000..1040).contains(&count), "{count}");
    story.take(Step::Acknowledge(100_000));
    assert!(story.records.queue().is_empty());
    story.records.rest();
    assert!(!story.records.holds_memory());
}

/// A peer that reports every other byte.
#[test]
fn reports_of_single_bytes_make_no_more_pieces_than_are_allowed() {
    let mut story = Story::default();
    story.take(Step::Send(50_000));
    for at in (0..50_000).step_by(2) {
        story.take(Step::Report(at, 1));
    }
    let count = story.records.queue().len();
    assert!(count <= PIECES_MAX + SMALL_MAX + 1000, "{count}");
    assert_eq!(story.told().len(), 50_000);
}

/// What was delivered is where the stream goes on after a rest: no snapshot may have it about to run over.
#[test]
fn a_count_that_would_run_over_is_refused() {
    let delivered = 0x0123_4567_89ab_cdef_u64;
    let mut flight = Flight { sampler: RateSampler::after_a_rest(delivered), ..Flight::default() };
    let mut writer = Writer(Vec::new());
    flight.walk(&mut writer).unwrap();
    let mut bytes = writer.0;
    assert_eq!(Flight::default().walk(&mut Reader(&bytes)), Ok(()));
    let at = bytes.windows(8).position(|window| window == delivered.to_le_bytes() || window == delivered.to_be_bytes()).unwrap();
    bytes[at..at + 8].fill(0xff);
    assert_eq!(Flight::default().walk(&mut Reader(&bytes)), Err(SnapshotError::Value));
}

/// What little is noted of a segment that is alone tells the same, at once or later, as a record does.
#[test]
fn a_segment_alone_is_as_any() {
    let ms = |n: u64| Instant::ZERO + Duration::from_millis(n);
    let mut rtt = Rtt::new();
    let (mut short, mut long) = (Records::default(), Records::default());
    for (round, len) in [(1u64, 5usize), (2, 90), (3, 100), (4, 1), (5, 60)] {
        let (start, now) = (BEGIN + 1000 * round as usize, ms(100 * round));
        for records in [&mut short, &mut long] {
            records.push(now, (start, start + len), 0, MSS);
        }
        assert_eq!(short.written(), long.written());
        // (Nobody has reported anything.)
        long.forget_reports();
        assert_eq!(long.lone(start + len), None);
        assert_eq!((short.lone(start), short.lone(start + len + 1)), (None, None));
        let lone = short.lone(start + len).expect("it is alone");
        let later = now + Duration::from_millis(10 + round % 3);
        let mut arrived = Arrived::default();
        long.acknowledge(later, start + len, len, &rtt, &mut arrived);
        assert_eq!(arrived.timed(), Timed::Since(lone.sent_at()));
        rtt.acknowledged(later, arrived.timed(), || None);
        long.sample(arrived, &rtt);
        short.acknowledge_lone(later, &lone, len, &rtt);
        assert_eq!((short.written(), short.is_app_limited()), (long.written(), long.is_app_limited()));
        if round == 3 {
            // The program has little to send, from then on.
            for records in [&mut short, &mut long] {
                records.mark_app_limited(30);
            }
        }
    }
    assert_eq!(short.delivered(), 256);
}

/// RFC 8985 s6.2: what was sent again is lost again if what was sent later has arrived, by more than a quarter of the shortest round trip, and not sooner; then it
/// is sent once more, and once.
#[test]
fn what_is_sent_again_is_lost_by_what_was_sent_later() {
    let ms = |n: u64| Instant::ZERO + Duration::from_millis(n);
    let at = |segment: usize| BEGIN + segment * MSS;
    let mut rtt = Rtt::new();
    rtt.acknowledged(ms(20), Timed::Since(ms(0)), || None);
    let mut records = Records::default();
    for segment in 0..6 {
        records.push(ms(100), (at(segment), at(segment + 1)), segment * MSS, MSS);
    }
    let report =
        |records: &mut Records, now, segment| records.report(now, (at(segment), at(segment + 1)), MSS, &rtt, &mut Arrived::default());
    report(&mut records, ms(120), 1);
    report(&mut records, ms(120), 2);
    records.follow(ms(120));
    records.resend(ms(120), (at(0), at(1)), 4 * MSS, MSS);
    // What was sent before it, and what was sent too soon after it, says nothing.
    records.push(ms(124), (at(6), at(7)), 4 * MSS, MSS);
    records.push(ms(125), (at(7), at(8)), 4 * MSS, MSS);
    for (now, segment) in [(121, 3), (144, 6)] {
        report(&mut records, ms(now), segment);
        assert_eq!((records.lose_again(ms(now), &rtt), records.due()), (None, None));
    }
    report(&mut records, ms(145), 7);
    let lost = records.lose_again(ms(145), &rtt).map(|(record, is_new)| (record.start, record.end, is_new));
    assert_eq!(lost, Some((at(0), at(1), true)));
    assert_eq!((records.lose_again(ms(145), &rtt), records.due(), records.due_bytes()), (None, Some((at(0), at(1))), MSS));
    // A part of it arrives nevertheless.
    records.acknowledge(ms(145), at(0) + 10, 10, &rtt, &mut Arrived::default());
    assert_eq!((records.due(), records.due_bytes()), (Some((at(0) + 10, at(1))), MSS - 10));
    records.resend(ms(145), (at(0) + 10, at(1)), 2 * MSS, MSS);
    assert_eq!((records.due(), records.due_bytes()), (None, 0));
    // What acknowledges it sooner than anything can answer it does not say when it arrived, and with that nothing of others.
    records.acknowledge(ms(150), at(1), MSS - 10, &rtt, &mut Arrived::default());
    assert_eq!((records.lose_again(ms(150), &rtt), records.due_bytes()), (None, 0));
}

/// What counts as lost again is reported, or given up, with no trace.
#[test]
fn what_was_lost_again_and_has_arrived_is_due_no_more() {
    let ms = |n: u64| Instant::ZERO + Duration::from_millis(n);
    let at = |segment: usize| BEGIN + segment * MSS;
    let mut rtt = Rtt::new();
    rtt.acknowledged(ms(20), Timed::Since(ms(0)), || None);
    let mut records = Records::default();
    records.push(ms(100), (at(0), at(4)), 0, MSS);
    records.follow(ms(120));
    records.resend(ms(120), (at(0), at(2)), 2 * MSS, MSS);
    records.push(ms(140), (at(4), at(5)), 2 * MSS, MSS);
    records.report(ms(160), (at(4), at(5)), MSS, &rtt, &mut Arrived::default());
    assert!(records.lose_again(ms(160), &rtt).is_some());
    // Byte by byte, and twice.
    for _ in 0..2 {
        for byte in (0..MSS).step_by(2) {
            records.report(ms(161), (at(1) + byte, at(1) + byte + 1), MSS, &rtt, &mut Arrived::default());
        }
    }
    // (A snapshot has none that are due.)
    let flight = records.flight.as_ref().unwrap();
    let all = flight.queue.iter().filter(|record| record.due).map(Record::len).sum::<usize>();
    assert_eq!(records.due_bytes(), all);
    assert!(all < 2 * MSS);
    records.unfollow();
    assert_eq!((records.due(), records.due_bytes(), records.queue().iter().any(|record| record.due)), (None, 0, false));
}
