//! Delivery rate samples (draft-ietf-ccwg-bbr s4.1).

use super::{at, ms};
use crate::tcp::congestion::{RateSampler, Report, SendRecord, Supply};

const MSS: u64 = 1000;

/// Segments of which each one's record is kept: (record, id).
fn send(sampler: &mut RateSampler, now: u64, in_flight: u64) -> SendRecord {
    sampler.on_sent(at(now), MSS, in_flight)
}

/// s4.1.1.2.1: the slope between what was acknowledged when a segment was sent, and its own acknowledgment.
#[test]
fn a_steady_flow_shows_the_rate_of_its_acknowledgments() {
    let (mut sampler, mut report) = (RateSampler::new(), Report::default());
    let mut records = (0..10).map(|i| send(&mut sampler, i, i * MSS)).collect::<Vec<_>>();
    let mut rates = Vec::new();
    // A segment a millisecond, each acknowledged 10 ms after it was sent.
    for i in 0..40u64 {
        sampler.on_delivered(&mut report, at(10 + i), &records[i as usize], MSS, i);
        rates.push(sampler.sample(&mut report, Some(ms(10))).unwrap().rate());
        records.push(send(&mut sampler, 10 + i, 9 * MSS));
    }
    assert!(rates[20..].iter().all(|rate| *rate == 1_000_000), "{rates:?}");
}

/// s4.1.1.2.3: acknowledgments that come all at once do not show more than was sent.
#[test]
fn compressed_acknowledgments_are_capped_by_the_rate_of_sending() {
    let (mut sampler, mut report) = (RateSampler::new(), Report::default());
    let records: Vec<_> = (0..20).map(|i| send(&mut sampler, 10 * i, i * MSS)).collect();
    sampler.on_delivered(&mut report, at(200), &records[0], MSS, 0);
    sampler.sample(&mut report, None);
    let after = send(&mut sampler, 210, 19 * MSS);
    for (i, record) in records.iter().enumerate().skip(1) {
        sampler.on_delivered(&mut report, at(211), record, MSS, i as u64);
    }
    sampler.on_delivered(&mut report, at(211), &after, MSS, 20);
    let sample = sampler.sample(&mut report, None).unwrap();
    assert_eq!(sample.delivered, 20 * MSS);
    assert_eq!(sample.interval, ms(210), "the time of sending, not the 11 ms since the acknowledgment before");
}

/// s4.1.2.3: the newest segment of an acknowledgment is the one that is judged by, in whatever order they are reported.
#[test]
fn the_newest_segment_counts() {
    let (mut sampler, mut report) = (RateSampler::new(), Report::default());
    let first = send(&mut sampler, 0, 0);
    let second = send(&mut sampler, 5, MSS);
    sampler.on_lost(300);
    let third = send(&mut sampler, 5, 2 * MSS);
    for (record, id) in [(third, 3), (first, 1), (second, 2)] {
        sampler.on_delivered(&mut report, at(20), &record, MSS, id);
    }
    let sample = sampler.sample(&mut report, None).unwrap();
    assert_eq!((sample.tx_in_flight, sample.lost, sample.delivered), (3 * MSS, 0, 3 * MSS));
    assert_eq!(sampler.sample(&mut report, None), None, "an acknowledgment that reports nothing");
}

/// What was lost between a segment's sending and its acknowledgment.
#[test]
fn losses_are_counted_from_when_it_was_sent() {
    let (mut sampler, mut report) = (RateSampler::new(), Report::default());
    sampler.on_lost(700);
    let record = send(&mut sampler, 0, 0);
    sampler.on_lost(300);
    sampler.on_delivered(&mut report, at(10), &record, MSS, 1);
    assert_eq!(sampler.sample(&mut report, None).unwrap().lost, 300);
    assert_eq!(sampler.lost(), 1000);
}

/// s4.1.2.3: less than the shortest round trip is not to be believed.
#[test]
fn a_sample_of_less_than_a_round_trip_has_no_rate() {
    let (mut sampler, mut report) = (RateSampler::new(), Report::default());
    let record = send(&mut sampler, 0, 0);
    sampler.on_delivered(&mut report, at(4), &record, MSS, 1);
    let sample = sampler.sample(&mut report, Some(ms(5))).unwrap();
    assert!(sample.implausible);
    assert_eq!(sample.rate(), 0);
}

/// s4.1.1.3: from when the program had nothing to send until all that was in flight then is delivered, samples say so.
#[test]
fn a_bubble_marks_a_round_trip() {
    let (mut sampler, mut report) = (RateSampler::new(), Report::default());
    let before = send(&mut sampler, 0, 0);
    assert!(!before.app_limited);
    let busy = Supply { unsent: 1, pending: 0, in_flight: MSS, cwnd: 9 * MSS, to_resend: 0 };
    for supply in [busy, Supply { unsent: 0, pending: 1, ..busy }, Supply { unsent: 0, to_resend: 1, ..busy }] {
        sampler.check(&supply);
        assert!(!sampler.is_app_limited(), "{supply:?}");
    }
    sampler.check(&Supply { unsent: 0, in_flight: 9 * MSS, ..busy });
    assert!(!sampler.is_app_limited(), "the window is full");
    sampler.check(&Supply { unsent: 0, ..busy });
    let during = send(&mut sampler, 1, MSS);
    assert!(during.app_limited);
    sampler.on_delivered(&mut report, at(10), &before, MSS, 1);
    assert!(!sampler.sample(&mut report, None).unwrap().app_limited);
    assert!(sampler.is_app_limited(), "not beyond it yet");
    sampler.on_delivered(&mut report, at(11), &during, MSS, 2);
    assert!(sampler.sample(&mut report, None).unwrap().app_limited);
    assert!(!sampler.is_app_limited());
}

/// s4.1.2.2: with nothing in flight the time in which nothing was sent is no part of a sample.
#[test]
fn idle_time_is_no_part_of_a_sample() {
    let (mut sampler, mut report) = (RateSampler::new(), Report::default());
    let record = send(&mut sampler, 0, 0);
    sampler.on_delivered(&mut report, at(10), &record, MSS, 1);
    sampler.sample(&mut report, None);
    let record = send(&mut sampler, 5000, 0);
    sampler.on_delivered(&mut report, at(5010), &record, MSS, 2);
    assert_eq!(sampler.sample(&mut report, None).unwrap().interval, ms(10));
}
