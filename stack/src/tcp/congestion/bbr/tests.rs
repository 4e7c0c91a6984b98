//! Single rules of the draft. What a flow does on a path is in `stack/tests/congestion/bbr.rs`.

use super::loss::inflight_at_loss;
use super::*;
use crate::tcp::congestion::SendRecord;
use crate::tcp::congestion::tests::{MSS, at, loss, mark, ms};

fn new(sack: bool) -> Bbr {
    Bbr::new(Instant::ZERO, MSS, sack, Some(ms(100)), 1)
}

/// A flow that has a full path of ten segments a millisecond and a hundred milliseconds, in CRUISE.
fn settled(seed: u64) -> Bbr {
    let mut bbr = Bbr::new(Instant::ZERO, MSS, true, Some(ms(100)), seed);
    bbr.max_bw.update(10_000_000);
    bbr.bound_bw_for_model();
    bbr.full.reached = true;
    bbr.cwnd = 2000 * MSS;
    bbr.start_probe_bw_down(at(0));
    bbr.start_probe_bw_cruise();
    bbr
}

/// An acknowledgment of a segment sent when `prior` bytes had been delivered.
fn sampled(now: u64, prior: u64, total: u64, rate: u64) -> Ack {
    let sample =
        RateSample { delivered: rate / 10, interval: ms(100), prior_delivered: prior, tx_in_flight: 1000 * MSS, ..RateSample::default() };
    Ack {
        now: at(now),
        delivered: MSS,
        delivered_total: total,
        in_flight: 1000 * MSS,
        rate: Some(sample),
        rtt: Some(ms(100)),
        ..Ack::default()
    }
}

fn lost(offset: u64, lost_total: u64) -> Lost {
    let sent = SendRecord { tx_in_flight: 100 * MSS, ..SendRecord::default() };
    Lost { offset, bytes: MSS, lost_total, sent, ..Lost::default() }
}

/// s5.6.2: 2.77 initial windows a round trip, or a millisecond as long as none is known; then what the first one says.
#[test]
fn the_first_pacing_rate() {
    assert_eq!(new(true).pacing_rate, 277_000);
    let mut bbr = Bbr::new(Instant::ZERO, MSS, true, None, 1);
    assert_eq!(bbr.pacing_rate, 27_700_000);
    bbr.on_ack(&Ack { now: at(50), rtt: Some(ms(50)), ..Ack::default() });
    assert_eq!(bbr.pacing_rate, 554_000);
}

/// s5.6.3: a millisecond's worth, two segments at least, 64 KiB at most.
#[test]
fn the_quantum() {
    let mut bbr = new(true);
    for (rate, quantum) in [(1_000, 2 * MSS), (10_000_000, 10_000), (1_000_000_000, 65_536)] {
        bbr.pacing_rate = rate;
        bbr.set_send_quantum();
        assert_eq!(bbr.send_quantum, quantum);
    }
}

/// s5.5.10.2: of a burst of which a part fitted, that part. With 98 in flight before it, two per cent are lost with two of it.
#[test]
fn where_in_a_burst_losses_passed_the_threshold() {
    assert_eq!(inflight_at_loss(108 * MSS, 10 * MSS, 10 * MSS), 100 * MSS);
    assert_eq!(inflight_at_loss(100 * MSS, 3 * MSS, MSS), 99 * MSS, "before it already");
    assert_eq!(inflight_at_loss(0, 0, u64::MAX), 0);
}

/// s5.5.10.3: a round trip with a loss brings the short-term model down to what was delivered, but by no more than 0.7.
#[test]
fn losses_while_cruising_lower_the_short_term_model() {
    for (rate, expected) in [(9_000_000, 9_000_000), (1_000_000, 7_000_000)] {
        let mut bbr = settled(1);
        bbr.bw_latest = 0;
        bbr.on_ack(&sampled(1, 0, 100_000, rate));
        bbr.on_lost(&Lost { delivered_total: 100_000, ..lost(0, MSS) });
        bbr.on_ack(&sampled(101, 100_000, 200_000, rate));
        assert_eq!(bbr.bw_shortterm, expected);
        assert_eq!(bbr.info().bw, expected);
        assert_eq!(bbr.inflight_longterm, INFINITY, "nothing was probed");
        bbr.start_probe_bw_refill();
        assert_eq!((bbr.bw_shortterm, bbr.inflight_shortterm), (INFINITY, INFINITY), "REFILL forgets");
    }
}

/// s5.3.3.8: two to three seconds, by chance, and zero or one round trip.
#[test]
fn the_time_between_probes_is_chance() {
    let waits: Vec<_> = (0..50).map(|seed| settled(seed).cycle.wait).collect();
    assert!(waits.iter().all(|wait| (ms(2000)..ms(3000)).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait < ms(2300)) && waits.iter().any(|wait| *wait > ms(2700)));
    assert_ne!(settled(1), settled(2));
    assert_eq!(settled(1), settled(1));
}

/// s5.3.3.9: inflight_longterm grows by one segment in the first round, then two, four...
#[test]
fn the_long_term_bound_grows_ever_faster() {
    let mut bbr = settled(1);
    let slopes: Vec<_> = (0..4)
        .map(|_| {
            bbr.raise_inflight_longterm_slope();
            bbr.cwnd / bbr.cycle.up_acked_per_inc
        })
        .collect();
    assert_eq!(slopes, [1, 2, 4, 8]);
    bbr.inflight_longterm = 1000 * MSS;
    assert_eq!(bbr.inflight_with_headroom(), 850 * MSS);
    bbr.inflight_longterm = 4 * MSS;
    assert_eq!(bbr.inflight_with_headroom(), 4 * MSS, "BBR.MinPipeCwnd");
}

/// s5.3.1.3: six places, more than two per cent, a round trip of recovery. Fewer places are one burst.
#[test]
fn startup_ends_on_losses_in_six_places() {
    for (places, state) in [(5, State::Startup), (6, State::Drain)] {
        let mut bbr = new(true);
        bbr.on_ack(&sampled(1, 0, 100_000, 10_000_000));
        bbr.on_congestion(&loss(100 * MSS));
        // Places of two segments each: touching ones are one.
        for place in 0..places {
            for segment in 0..2 {
                let lost_total = (2 * place + segment + 1) * MSS;
                bbr.on_lost(&Lost { delivered_total: 100_000, ..lost((10 * place + segment) * MSS, lost_total) });
            }
        }
        let mut ack = sampled(101, 100_000, 200_000, 20_000_000);
        ack.rate = ack.rate.map(|sample| RateSample { lost: 100 * MSS, ..sample });
        ack.in_flight = 5000 * MSS;
        bbr.on_ack(&Ack { phase: super::super::Phase::Recovery, ..ack });
        assert_eq!(bbr.state, state, "{places} places");
    }
}

/// s5.3.1.3: without SACK no more than one loss a round trip is seen, and one is enough.
#[test]
fn without_sack_a_single_loss_ends_startup() {
    let mut bbr = new(false);
    bbr.on_ack(&sampled(1, 0, 100_000, 10_000_000));
    bbr.on_congestion(&loss(100 * MSS));
    bbr.on_lost(&Lost { delivered_total: 100_000, ..lost(0, MSS) });
    bbr.on_ack(&Ack { phase: super::super::Phase::Recovery, in_flight: 5000 * MSS, ..sampled(2, 50_000, 110_000, 10_000_000) });
    assert_eq!(bbr.state, State::Drain);
}

/// s3.7: marks are congestion: Startup ends, and a probe.
#[test]
fn marks_end_startup_and_probes() {
    let mut bbr = new(true);
    bbr.on_ack(&sampled(1, 0, 100_000, 10_000_000));
    bbr.on_congestion(&mark(100 * MSS));
    bbr.on_ack(&Ack { in_flight: 5000 * MSS, ..sampled(2, 50_000, 110_000, 10_000_000) });
    assert_eq!(bbr.state, State::Drain);
    let mut bbr = settled(1);
    bbr.state = State::ProbeBwUp;
    bbr.cycle.is_bw_probe_sample = true;
    bbr.on_congestion(&mark(1100 * MSS));
    assert_eq!((bbr.state, bbr.inflight_longterm), (State::ProbeBwDown, 1100 * MSS));
}

/// s5.6.4.4: after a timeout one segment; with recovery's end the window that was.
#[test]
fn a_timeout_leaves_one_segment_until_it_is_repaired() {
    let mut bbr = settled(1);
    let before = bbr.cwnd;
    bbr.on_timeout(&Timeout { flight: 1000 * MSS, first: true, ..Timeout::default() });
    assert_eq!(bbr.cwnd, MSS);
    bbr.on_ack(&sampled(300, 0, 100_000, 10_000_000));
    assert!(bbr.cwnd < 10 * MSS, "by what arrives: {}", bbr.cwnd);
    bbr.on_recovered(&Recovered::default());
    assert_eq!(bbr.cwnd, before);
}

/// s5.3.4.3: a shorter round trip counts at once, a longer one after ten seconds.
#[test]
fn the_shortest_round_trip_is_remembered_for_ten_seconds() {
    let mut bbr = settled(1);
    let mut rtt = |now, rtt: u64| {
        bbr.on_ack(&Ack { now: at(now), rtt: Some(ms(rtt)), ..Ack::default() });
        bbr.rtt.min_rtt
    };
    assert_eq!([rtt(1000, 80), rtt(2000, 90), rtt(9000, 90), rtt(11_100, 95)], [ms(80), ms(80), ms(80), ms(90)]);
}
