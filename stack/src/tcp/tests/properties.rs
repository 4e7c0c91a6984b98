//! Under any mix of faults, what a reader gets is a prefix of what was written; after the faults stop, it is all of it.

use core::time::Duration;

use proptest::prelude::*;

use super::pair::Side::{A, B};
use super::pair::{Pair, pattern};
use crate::tcp::{Config, State};

/// A small generator, so that a failing case replays from its seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

#[derive(Clone, Debug)]
struct Faults {
    lose_percent: u64,
    double_percent: u64,
    delay_percent: u64,
    seed: u64,
}

fn faults() -> impl Strategy<Value = Faults> {
    (0..40u64, 0..30u64, 0..40u64, 1..u64::MAX).prop_map(|(lose_percent, double_percent, delay_percent, seed)| Faults {
        lose_percent,
        double_percent,
        delay_percent,
        seed,
    })
}

fn config() -> impl Strategy<Value = Config> {
    let sizes = (
        prop_oneof![Just(200u16), Just(1460), Just(65_495)],
        proptest::option::of(2000..200_000usize),
        1..9usize,
        prop_oneof![Just(0), 500..65_000usize],
    );
    (sizes, any::<(bool, bool, bool, bool)>()).prop_map(
        |((mss_max, rcvbuf, gather_max, tso_max), (timestamps, sack, window_scaling, nodelay))| Config {
            mss_max,
            rcvbuf,
            gather_max,
            tso_max,
            timestamps,
            sack,
            window_scaling,
            nodelay,
            ..Config::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn streams_survive_any_faults(
        faults in faults(),
        config_a in config(),
        config_b in config(),
        there in 0..120_000usize,
        back in 0..60_000usize,
        read_max in 50..5000usize,
    ) {
        let mut pair = Pair::new(&config_a, &config_b);
        let mut dice = Dice(faults.seed);
        let faulty = faults.clone();
        pair.fate = Box::new(move |_, latency| {
            let mut arrivals = vec![];
            if dice.roll(100) >= faulty.lose_percent {
                let late = if dice.roll(100) < faulty.delay_percent { dice.roll(20_000) } else { 0 };
                arrivals.push(latency + Duration::from_micros(late));
            }
            if dice.roll(100) < faulty.double_percent {
                arrivals.push(latency + Duration::from_micros(dice.roll(5_000)));
            }
            arrivals
        });
        let (there, back) = (pattern(there), pattern(back));
        let mut written = [0, 0];
        let mut got = [Vec::new(), Vec::new()];
        let mut ended = [false, false];
        let mut step = |pair: &mut Pair| {
            for (i, side, data) in [(0, A, &there), (1, B, &back)] {
                if pair.b.is_none() || pair.side(side).state() == State::SynReceived {
                    continue;
                }
                if let Ok(n) = pair.write(side, &data[written[i]..]) {
                    written[i] += n;
                }
                if written[i] == data.len() && pair.side(side).state() == State::Established
                    || pair.side(side).state() == State::CloseWait && written[i] == data.len()
                {
                    pair.shutdown(side);
                }
                match pair.read_some(side, read_max) {
                    Ok(bytes) if bytes.is_empty() => ended[i] = true,
                    Ok(bytes) => got[i].extend(bytes),
                    Err(_) => {}
                }
            }
            assert_eq!(got[0][..], back[..got[0].len()], "a prefix of what B wrote");
            assert_eq!(got[1][..], there[..got[1].len()], "a prefix of what A wrote");
            ended == [true, true]
        };
        let end = pair.now + Duration::from_secs(20);
        let mut done = pair.run_until(end, &mut step);
        // The faults stop.
        pair.lose_nothing();
        let end = pair.now + Duration::from_secs(300);
        while !done && pair.now < end {
            let soon = pair.now + Duration::from_millis(100);
            done = pair.run_until(soon, &mut step);
            // Nothing may be left to happen but reading.
            for _ in 0..3000 {
                done = done || step(&mut pair);
            }
        }
        let gave_up = pair.a.take_error().is_some() || pair.side(B).take_error().is_some();
        prop_assert!(done, "ended {:?}, got {:?}, states {:?} {:?}", ended, [got[0].len(), got[1].len()], pair.state(A), pair.state(B));
        if !gave_up {
            prop_assert_eq!(&got[0], &back);
            prop_assert_eq!(&got[1], &there);
        }
    }
}
