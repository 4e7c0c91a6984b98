use super::*;

#[test]
fn both_clocks_tell_the_same_time() {
    let clock = Clock::new();
    for _ in 0..5 {
        let (ours, system) = (clock.now().as_nanos(), system_ns());
        assert!(ours.abs_diff(system) < 1_000_000, "{ours} and {system} ns");
        std::thread::sleep(Duration::from_millis(4));
    }
}

#[test]
fn time_does_not_run_backwards() {
    let clock = Clock::new();
    let mut last = clock.now();
    for _ in 0..100_000 {
        let now = clock.now();
        assert!(now >= last);
        last = now;
    }
}

#[test]
fn a_counter_before_its_base_is_the_base() {
    let counter = Counter { base_ticks: u64::MAX, base_ns: 77, ns_per_tick_q32: 1 << 32 };
    assert_eq!(counter.now_ns(), 77);
}
