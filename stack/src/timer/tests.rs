use proptest::prelude::*;

use super::*;

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

#[test]
fn fires_in_time_and_only_once() {
    let mut wheel = Wheel::default();
    wheel.insert(ms(5), 'a');
    wheel.insert(ms(500), 'b');
    let mut fired = Vec::new();
    wheel.advance(ms(4), &mut fired);
    assert!(fired.is_empty());
    wheel.advance(ms(7), &mut fired);
    assert_eq!(fired, ['a']);
    wheel.advance(ms(499), &mut fired);
    assert_eq!(fired, ['a']);
    wheel.advance(ms(502), &mut fired);
    assert_eq!(fired, ['a', 'b']);
    assert_eq!(wheel.next(), None);
}

#[test]
fn what_is_overdue_fires_at_the_next_advance() {
    let mut wheel = Wheel::default();
    let mut fired = Vec::new();
    wheel.advance(ms(100), &mut fired);
    wheel.insert(ms(3), 'x');
    assert!(wheel.is_due(ms(100)));
    wheel.advance(ms(100), &mut fired);
    assert_eq!(fired, ['x']);
}

#[test]
fn what_is_forgotten_ends_nobodys_sleep_and_what_is_not_fires() {
    let mut wheel = Wheel::default();
    let mut fired = Vec::new();
    wheel.advance(ms(1), &mut fired);
    for at in 5..40 {
        wheel.insert(ms(at), at);
    }
    wheel.insert(ms(500), 500);
    wheel.forget(|at| at < 20);
    let next = wheel.next().unwrap();
    assert!(ms(20) <= next && next <= ms(22), "{next:?}");
    wheel.advance(ms(30), &mut fired);
    assert!(fired.contains(&20) && fired.iter().all(|&at| at >= 20), "{fired:?}");
    // Behind those that are forgotten, the wheel turns on.
    wheel.forget(|at| at != 500);
    fired.clear();
    wheel.advance(ms(600), &mut fired);
    assert!(fired.contains(&500), "{fired:?}");
    assert_eq!(wheel.next(), None);
}

/// Places are used again, in whatever order they become free, and given back when a crowd has gone.
#[test]
fn as_much_memory_is_held_as_timers_were_ever_set_at_a_time() {
    let mut wheel = Wheel::default();
    let mut fired = Vec::new();
    for second in 0..1000 {
        for at in 0..300 {
            wheel.insert(ms(1000 * second + 3 * at + 7), at);
        }
        fired.clear();
        wheel.advance(ms(1000 * (second + 1)), &mut fired);
        assert!(fired.len() == 300 + usize::from(second > 0), "{}", fired.len());
        wheel.insert(ms(1000 * second + 1500), 0);
        wheel.advance(ms(1000 * (second + 1)), &mut fired);
        assert!(wheel.len() <= 2 && wheel.entries.pieces() <= 2, "{}", wheel.entries.pieces());
    }
    for at in 0..100_000 {
        wheel.insert(ms(2_000_000 + at), 1);
    }
    assert!(wheel.entries.pieces() > 300);
    fired.clear();
    wheel.advance(ms(3_000_000), &mut fired);
    assert_eq!((fired.len(), wheel.len(), wheel.entries.pieces()), (100_001, 0, 1));
    wheel.insert(ms(3_000_005), 9);
    wheel.advance(ms(3_000_007), &mut fired);
    assert_eq!(fired.last(), Some(&9));
}

proptest! {
    /// Whatever is forgotten now and then, the rest fires in time.
    #[test]
    fn what_is_not_forgotten_fires_in_time(
        deadlines in prop::collection::vec((0u64..2_000_000_000, any::<bool>()), 1..60),
        steps in prop::collection::vec(1u64..60_000_000, 1..60),
    ) {
        let mut wheel = Wheel::default();
        for (token, (at, _)) in deadlines.iter().enumerate() {
            wheel.insert(Instant::from_nanos(*at), token);
        }
        let mut pending: Vec<usize> = (0..deadlines.len()).filter(|&token| !deadlines[token].1).collect();
        let mut now = 0;
        for step in steps {
            now += step;
            let mut fired = Vec::new();
            wheel.advance(Instant::from_nanos(now), &mut fired);
            wheel.forget(|token| deadlines[token].1);
            pending.retain(|token| !fired.contains(token));
            if let Some(earliest) = pending.iter().map(|&token| deadlines[token].0).min() {
                prop_assert!(earliest + (1 << TICK_SHIFT) > now, "not fired");
                prop_assert!(wheel.next().unwrap().as_nanos() < earliest + (1 << TICK_SHIFT));
            }
        }
    }

    /// Against a sorted list: nothing early, nothing late by more than a tick, nothing twice, and `next` is never late.
    #[test]
    fn agrees_with_a_sorted_list(
        deadlines in prop::collection::vec(0u64..20_000_000_000_000, 1..60),
        steps in prop::collection::vec(1u64..400_000_000_000, 1..60),
    ) {
        let mut wheel = Wheel::default();
        for (token, at) in deadlines.iter().enumerate() {
            wheel.insert(Instant::from_nanos(*at), token);
        }
        let mut pending: Vec<(u64, usize)> = deadlines.iter().copied().zip(0..).collect();
        let mut now = 0;
        for step in steps {
            now += step;
            let at = Instant::from_nanos(now);
            if let Some(earliest) = pending.iter().map(|p| p.0).min() {
                prop_assert!(wheel.next().unwrap().as_nanos() <= earliest + (1 << TICK_SHIFT));
            }
            let mut fired = Vec::new();
            wheel.advance(at, &mut fired);
            for token in fired {
                let position = pending.iter().position(|p| p.1 == token);
                prop_assert!(position.is_some(), "fired twice");
                prop_assert!(pending.remove(position.unwrap()).0 <= now, "fired early");
            }
            prop_assert!(pending.iter().all(|p| p.0 + (1 << TICK_SHIFT) > now), "not fired");
        }
    }
}
