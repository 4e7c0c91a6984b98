//! Whatever a controller is told, its window and rate stay within bounds, and nothing overflows.

use core::time::Duration;

use proptest::prelude::*;
use ringway_stack::Instant;
use ringway_stack::tcp::congestion::{
    Ack, Algorithm, Beginning, Cause, Congestion, CongestionControl as _, Idle, Lost, MSS_MAX, Phase, RATE_MAX, RateSample, RateSampler,
    Recovered, Reduction, Report, SendRecord, Sending, Timeout, Undo, WINDOW_MAX,
};

#[derive(Clone, Debug)]
enum Event {
    Sending(Sending),
    Ack(Ack),
    Lost(Lost),
    Congestion(Congestion),
    Timeout(Timeout),
    Recovered(Recovered),
    Undo(Undo),
    Idle(Idle),
    Mss(u64),
}

/// Amounts of all sizes, and the largest.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..100_000u64, 2 => 0..(1u64 << 31), 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(0)]
}

fn instant() -> impl Strategy<Value = Instant> {
    amount().prop_map(Instant::from_nanos)
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![4 => amount().prop_map(Duration::from_nanos), 1 => Just(Duration::MAX), 1 => (0..2_000_000_000u64).prop_map(Duration::from_nanos)]
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::Open), Just(Phase::Reduced), Just(Phase::Recovery), Just(Phase::Loss)]
}

fn rate() -> impl Strategy<Value = RateSample> {
    ([amount(), amount(), amount(), amount()], duration(), any::<(bool, bool)>()).prop_map(
        |([delivered, prior_delivered, lost, tx_in_flight], interval, (implausible, app_limited))| RateSample {
            delivered,
            interval,
            implausible,
            prior_delivered,
            lost,
            tx_in_flight,
            app_limited,
        },
    )
}

fn ack() -> impl Strategy<Value = Ack> {
    let amounts = ([amount(), amount(), amount(), amount(), amount()], [amount(), amount(), amount(), amount(), amount()]);
    let others = (instant(), proptest::option::of(duration()), duration(), proptest::option::of(rate()), any::<bool>(), phase());
    (amounts, others).prop_map(|((a, b), (now, rtt, srtt, rate, cwnd_limited, phase))| Ack {
        now,
        acked: a[0],
        delivered: a[1],
        sacked: a[2],
        lost: a[3],
        flight_most: a[4],
        in_flight: b[0],
        una: b[1],
        nxt: b[2],
        delivered_total: b[3],
        rtt,
        srtt,
        rate,
        cwnd_limited,
        ce_bytes: b[4],
        phase,
    })
}

fn lost() -> impl Strategy<Value = Lost> {
    (instant(), [amount(), amount(), amount(), amount()], [amount(), amount(), amount()], any::<bool>()).prop_map(
        |(now, a, b, app_limited)| Lost {
            now,
            offset: a[0],
            bytes: a[1],
            sent: SendRecord { lost: b[0], tx_in_flight: b[1], delivered: b[2], app_limited, ..SendRecord::default() },
            lost_total: a[2],
            delivered_total: a[3],
            in_flight: 0,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let three = || (instant(), amount(), amount(), any::<bool>());
    let congestion = (three(), amount()).prop_map(|((now, flight, sacked, mark), delivered)| {
        Event::Congestion(Congestion { now, cause: if mark { Cause::Ecn } else { Cause::Loss }, flight, sacked, delivered })
    });
    prop_oneof![
        3 => three().prop_map(|(now, bytes, in_flight, app_limited)| Event::Sending(Sending { now, bytes, in_flight, app_limited })),
        8 => ack().prop_map(Event::Ack),
        3 => lost().prop_map(Event::Lost),
        2 => congestion,
        1 => three().prop_map(|(now, flight, in_flight, first)| Event::Timeout(Timeout { now, flight, in_flight, first })),
        2 => (instant(), amount(), phase()).prop_map(|(now, flight, phase)| Event::Recovered(Recovered { now, flight, phase })),
        1 => (instant(), amount(), amount(), phase())
            .prop_map(|(now, flight, acked, phase)| Event::Undo(Undo { now, flight, acked, phase })),
        1 => (instant(), duration()).prop_map(|(now, silence)| Event::Idle(Idle { now, silence })),
        1 => amount().prop_map(Event::Mss),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn window_and_rate_stay_within_bounds(
        mss in amount(),
        seed in any::<u64>(),
        sack in any::<bool>(),
        at_once in any::<bool>(),
        srtt in proptest::option::of(duration()),
        events in proptest::collection::vec(event(), 1..60),
    ) {
        let reduction = if at_once { Reduction::AtOnce } else { Reduction::Proportional };
        for algorithm in Algorithm::ALL {
            let mut control = algorithm.begin(&Beginning { now: Instant::ZERO, mss, sack, srtt, seed, reduction });
            let mut mss = mss.clamp(1, MSS_MAX);
            for event in &events {
                match event {
                    Event::Sending(sending) => control.on_sending(sending),
                    Event::Ack(ack) => control.on_ack(ack),
                    Event::Lost(lost) => control.on_lost(lost),
                    Event::Congestion(congestion) => control.on_congestion(congestion),
                    Event::Timeout(timeout) => {
                        control.on_timeout(timeout);
                        // RFC 5681 s3.1: the loss window, one segment; with BBR, one more than what is still in the network.
                        let in_flight = if algorithm == Algorithm::Bbr { timeout.in_flight } else { 0 };
                        prop_assert_eq!(control.cwnd(), in_flight.saturating_add(mss).min(WINDOW_MAX));
                    }
                    Event::Recovered(recovered) => control.on_recovered(recovered),
                    Event::Undo(undo) => control.on_undo(undo),
                    Event::Idle(idle) => control.on_idle(idle),
                    Event::Mss(to) => {
                        mss = (*to).clamp(1, MSS_MAX);
                        control.set_mss(*to);
                    }
                }
                prop_assert!((mss..=WINDOW_MAX).contains(&control.cwnd()), "{:?}: {} after {:?}", algorithm, control.cwnd(), event);
                prop_assert!(control.ssthresh().is_none_or(|ssthresh| ssthresh > 0), "{:?} after {:?}", algorithm, event);
                prop_assert!(control.pacing_rate().is_none_or(|rate| (1..=RATE_MAX).contains(&rate)), "{:?} after {:?}", algorithm, event);
                prop_assert!(control.send_quantum().is_none_or(|quantum| quantum >= mss), "{:?} after {:?}", algorithm, event);
            }
        }
    }

    /// A sampler fed records from anywhere neither overflows nor shows more than the highest rate.
    #[test]
    fn no_sample_is_beyond_the_highest_rate(steps in proptest::collection::vec((instant(), amount(), amount(), instant(), instant()), 1..40)) {
        let (mut sampler, mut report) = (RateSampler::new(), Report::default());
        for (now, bytes, in_flight, sent_at, delivered_at) in steps {
            let record = sampler.on_sent(now, bytes, in_flight);
            sampler.on_lost(bytes / 7);
            sampler.on_delivered(&mut report, now, &SendRecord { sent_at, delivered_at, ..record }, bytes, in_flight);
            sampler.mark_app_limited(in_flight);
            let sample = sampler.sample(&mut report, Some(Duration::from_nanos(bytes)));
            prop_assert!(sample.is_some_and(|sample| sample.rate() <= RATE_MAX));
        }
    }
}
