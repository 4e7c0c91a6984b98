use super::*;
use proptest::prelude::*;

const CEILING: Limit = Limit::Ceiling(Duration::from_millis(100));

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// A spin that never had to share its core.
fn alone() -> Spin {
    Spin::new(Instant::ZERO, &History::new(), CEILING)
}

fn after(waits: impl IntoIterator<Item = (Duration, Outcome)>) -> History {
    let mut history = History::new();
    for (waited, outcome) in waits {
        history.ended(CEILING, waited, outcome, &alone());
    }
    history
}

#[test]
fn a_ping_pong_with_a_slow_answer_now_and_then_keeps_spinning() {
    let mut history = after((0..1000).map(|_| (us(1), Outcome::Satisfied)));
    for round in 0..200 {
        let wait = if round % 10 == 0 { us(1000) } else { us(1) };
        assert!(history.budget(CEILING) >= wait, "round {round}: {:?}", history.budget(CEILING));
        history.ended(CEILING, wait, Outcome::Satisfied, &alone());
    }
}

#[test]
fn a_server_that_waits_in_vain_stops_spinning() {
    let mut history = after((0..1000).map(|_| (us(5), Outcome::Satisfied)));
    let spun: Duration = (0..100)
        .map(|_| {
            let budget = history.budget(CEILING);
            history.ended(CEILING, us(100_000), Outcome::InVain, &alone());
            budget
        })
        .sum();
    assert!(spun < us(4000), "spun {spun:?} in ten idle seconds");
    assert_eq!(history.budget(CEILING), Duration::ZERO);
}

#[test]
fn rare_arrivals_are_slept_for() {
    let history = after((0..20).map(|_| (us(50_000), Outcome::Satisfied)));
    assert_eq!(history.budget(CEILING), Duration::ZERO);
}

#[test]
fn a_burst_after_a_quiet_time_is_spun_for_again() {
    let mut history = after((0..20).map(|_| (us(100_000), Outcome::InVain)));
    history.ended(CEILING, us(40), Outcome::Satisfied, &alone());
    assert!(history.budget(CEILING) >= us(40));
}

#[test]
fn who_finds_the_core_taken_sleeps_soon_for_a_while() {
    let start = Instant::from_nanos(1_000_000);
    let mut history = after((0..100).map(|_| (us(300), Outcome::Satisfied)));
    let mut spun = Duration::ZERO;
    for _ in 0..99 {
        let mut spin = Spin::new(start, &history, CEILING);
        let now = start + us(21);
        if spin.step(now) != Step::Stop {
            spin.refused(now);
            assert_eq!(spin.step(now), Step::Stop);
        }
        spun += history.budget(CEILING).min(us(21));
        history.ended(CEILING, us(300), Outcome::Satisfied, &spin);
    }
    assert!(spun < us(99 * 3), "spun {spun:?} in vain");
    let mut exact = Spin::new(start, &history, Limit::Exact(Duration::MAX));
    exact.refused(start);
    assert_eq!(exact.step(start), Step::Poll, "what the user set is obeyed");
}

#[test]
fn what_the_user_sets_is_exact() {
    let for_ever = Limit::from_vma(-1, true);
    let never = Limit::from_vma(0, true);
    let mut history = History::new();
    for _ in 0..10 {
        assert_eq!(history.budget(for_ever), Duration::MAX);
        assert_eq!(history.budget(never), Duration::ZERO);
        history.ended(for_ever, us(1_000_000), Outcome::InVain, &alone());
        history.ended(never, us(1), Outcome::Satisfied, &alone());
    }
    assert_eq!(Limit::from_vma(100_000, false), CEILING);
}

#[test]
fn a_spin_polls_then_yields_then_stops() {
    let start = Instant::from_nanos(1_000_000);
    let mut spin = Spin::new(start, &History { budget_ns: 120_000, ..History::new() }, CEILING);
    assert_eq!(spin.step(start + us(49)), Step::Poll);
    assert_eq!(spin.step(start + us(50)), Step::Yield);
    spin.yielded(start + us(50), start + us(51));
    assert_eq!(spin.step(start + us(60)), Step::Poll, "alone on the core");
    assert_eq!(spin.step(start + us(101)), Step::Yield);
    spin.yielded(start + us(101), start + us(102));
    assert_eq!(spin.step(start + us(120)), Step::Stop);
}

#[test]
fn on_a_shared_core_it_sleeps_and_tries_again_later() {
    let start = Instant::from_nanos(1_000_000);
    let mut history = after((0..10).map(|_| (us(1), Outcome::Satisfied)));
    let mut spin = Spin::new(start, &history, CEILING);
    spin.yielded(start + us(50), start + us(65));
    assert_eq!(spin.step(start + us(65)), Step::Stop, "somebody else ran");
    history.ended(CEILING, us(70), Outcome::Satisfied, &spin);
    for wait in 0..CONTENDED_WAITS {
        assert_eq!(history.budget(CEILING), if wait < CONTENDED_IN_VAIN { us(2) } else { us(0) }, "{wait}");
        history.ended(CEILING, us(10), Outcome::Satisfied, &alone());
    }
    assert!(history.budget(CEILING) > us(50));
}

#[test]
fn on_a_shared_core_spins_that_catch_nothing_end() {
    let start = Instant::from_nanos(1_000_000);
    let mut history = after((0..10).map(|_| (us(1), Outcome::Satisfied)));
    let is_shared_again = |history: &mut History| {
        let mut spin = Spin::new(start, history, CEILING);
        spin.yielded(start + us(50), start + us(65));
        history.ended(CEILING, us(70), Outcome::Satisfied, &spin);
    };
    // How many of the waits while the core is taken to be shared spin, if each takes so long.
    let spins = |history: &mut History, waited| {
        let waits = (0..CONTENDED_WAITS).map(|_| {
            let spins = history.budget(CEILING) > us(0);
            history.ended(CEILING, waited, Outcome::Satisfied, &alone());
            spins
        });
        waits.filter(|&spins| spins).count()
    };
    is_shared_again(&mut history);
    assert_eq!(spins(&mut history, us(10)), usize::from(CONTENDED_IN_VAIN));
    is_shared_again(&mut history);
    assert_eq!(spins(&mut history, us(10)), 1, "one is tried");
    is_shared_again(&mut history);
    assert_eq!(spins(&mut history, us(1)), usize::from(CONTENDED_WAITS), "which caught something");
    is_shared_again(&mut history);
    assert_eq!(spins(&mut history, us(10)), usize::from(CONTENDED_IN_VAIN));
}

#[test]
fn no_spinning_without_a_budget_and_no_end_without_a_limit() {
    let now = Instant::from_nanos(5);
    let history = History::new();
    assert_eq!(Spin::new(now, &history, Limit::Exact(Duration::ZERO)).step(now), Step::Stop);
    let mut endless = Spin::new(now, &history, Limit::Exact(Duration::MAX));
    let late = now + Duration::from_secs(1_000_000);
    assert_eq!(endless.step(late), Step::Yield);
    endless.yielded(late, late + us(20));
    assert_eq!(endless.step(late + us(22)), Step::Poll, "shared or not");
    assert_eq!(endless.step(late + us(23)), Step::Yield);
}

proptest! {
    #[test]
    fn the_ceiling_holds_and_silence_ends_it(
        ceiling_us in 0u64..200_000,
        waits in proptest::collection::vec((0u64..10_000_000, any::<bool>()), 0..200),
    ) {
        let limit = Limit::Ceiling(us(ceiling_us));
        let mut history = History::new();
        for (ns, satisfied) in waits {
            let outcome = if satisfied { Outcome::Satisfied } else { Outcome::InVain };
            let before = history;
            history.ended(limit, Duration::from_nanos(ns), outcome, &alone());
            prop_assert!(!satisfied || !before.is_content(ns, &alone()) || history == before);
            prop_assert!(history.budget(limit) <= us(ceiling_us));
        }
        for _ in 0..12 {
            history.ended(limit, us(200_000), Outcome::InVain, &alone());
        }
        prop_assert_eq!(history.budget(limit), Duration::ZERO);
    }
}
