use super::*;
use crate::addresses::Family;
use crate::apps::Pattern;
use crate::scenario::Scenario;

#[test]
fn a_set_reads_back() {
    for text in [
        "none",
        "bulk",
        "bulk+udp",
        "half-close+multicast",
        "request+churn+idle+abort+overflow+epoll+slow+handover+meeting+stranger+shared",
    ] {
        assert_eq!(text.parse::<WorkloadSet>().unwrap().to_string(), text);
    }
    assert_eq!("all".parse(), Ok(WorkloadSet::all()));
    assert_eq!("bulk+war".parse::<WorkloadSet>(), Err(UnknownWorkload("war".to_owned())));
}

#[test]
fn only_what_destroys_frames_excuses_a_failure() {
    let verdict = |faults, counts| Verdict { faults, counts, unsent: 0, lends: false, slow_rules: false };
    let none = FaultCounts::default();
    assert!(verdict(FaultSet::empty(), none).calm());
    assert!(!verdict(FaultSet::empty(), none).may_fail());
    assert!(!verdict(FaultSet::LOSS, none).may_fail(), "it was let loose, but never struck");
    let late = FaultCounts { duplicated: 5, held_back: 7, ..none };
    assert!(!verdict(FaultSet::DUPLICATION | FaultSet::REORDERING, late).may_fail());
    assert!(verdict(FaultSet::LOSS, FaultCounts { lost: 1, ..late }).may_fail());
    assert!(verdict(FaultSet::empty(), FaultCounts { queue_full: 1, ..none }).may_fail());
}

#[test]
fn what_the_stack_must_see_through_excuses_nothing() {
    let may_fail = |counts| Verdict { faults: FaultSet::all(), counts, unsent: 0, lends: false, slow_rules: false }.may_fail();
    let none = FaultCounts::default();
    assert!(!may_fail(FaultCounts { delayed: 9, delayed_doorbells: 9, icmp_forged: 9, ..none }));
    assert!(!may_fail(FaultCounts { send_full: 9, registration_failures: 9, hidden_corrupted: 9, ..none }));
    assert!(!may_fail(FaultCounts { too_long: 2, fragmentation_needed: 2, ..none }));
    assert!(may_fail(FaultCounts { too_long: 2, fragmentation_needed: 1, ..none }), "a black hole");
}

/// Of datagrams with nothing in them but their number, one is another where that was changed and no checksum tells (as in the seed 71191232).
#[test]
fn what_was_changed_unnoticed_may_be_heard_twice() {
    let pings = Pings::new(10, (8, 11), Duration::from_millis(1), Pattern(3));
    let may_be_heard = |counts, number, times| {
        let verdict = Verdict { faults: FaultSet::all(), counts, unsent: 0, lends: false, slow_rules: false };
        verdict.may_be_heard(&pings, number, times)
    };
    let none = FaultCounts::default();
    let (changed, twice) = (FaultCounts { hidden_corrupted: 1, ..none }, FaultCounts { duplicated: 1, ..none });
    // Their lengths: 8, 11, 10, 9.
    assert_eq!([0, 1, 2, 3].map(|number| may_be_heard(changed, number, 2)), [true, false, false, true]);
    assert_eq!([0, 1, 2, 3].map(|number| may_be_heard(none, number, 2)), [false; 4]);
    assert_eq!([none, changed, twice].map(|counts| may_be_heard(counts, 1, 1)), [true; 3]);
    assert!(may_be_heard(twice, 1, 2));
}

/// Three sleep, one after the other, on a host with 25 receive buffers; and whom they kept from being heard tries again two minutes later at the latest.
#[test]
fn who_sleeps_on_few_receive_buffers_keeps_others_waiting() {
    let scenario: Scenario = "68191063/none/8/slow".parse().unwrap();
    let mut hosts = scenario.options().hosts;
    let silence = |hosts: &[HostOptions]| draw(scenario.seed, scenario.scale, scenario.workloads, hosts)[0].silence();
    assert_eq!(silence(&hosts), Duration::from_secs(81 + 79 + 73 + 3 * 120));
    hosts[0].nic.rx_buffers_max = 512;
    assert_eq!(silence(&hosts), Duration::ZERO, "more than what is under way before anything is read");
}

/// A member of a group of listeners that gets its rule late resets the handshakes that it takes over.
#[test]
fn a_listener_that_joins_late_resets_handshakes() {
    let excuses = |registration_failures, slow_rules, error| {
        let counts = FaultCounts { registration_failures, ..FaultCounts::default() };
        Verdict { faults: FaultSet::REGISTRATION, counts, unsent: 0, lends: false, slow_rules }.excuses(error)
    };
    assert!(excuses(1, true, Error::Reset));
    for (failures, slow, error) in [(0, true, Error::Reset), (1, false, Error::Reset), (1, true, Error::TimedOut)] {
        assert!(!excuses(failures, slow, error), "{failures} {slow} {error:?}");
    }
}

#[test]
#[should_panic(expected = "yet one (test) did")]
fn an_unexcused_failure_is_noticed() {
    let verdict = Verdict { faults: FaultSet::DUPLICATION, counts: FaultCounts::default(), unsent: 0, lends: false, slow_rules: false };
    let transfer = Transfer { ending: Some(Ending::Failed(Error::Reset)), ..Transfer::default() };
    verdict.check_ending(&"test", &transfer, false);
}

/// Groups of IPv6, with filters and a router that asks; alone, and beside whatever befalls a seed's hosts.
#[test]
fn groups_of_ipv6_are_heard_and_told_of() {
    for seed in 0..12 {
        for faults in [FaultSet::empty(), Scenario::of_seed(seed).faults] {
            let scenario = Scenario { seed, faults, scale: (seed % 4) as u8, workloads: WorkloadSet::MULTICAST, family: Family::V6 };
            let marks = crate::scenario::Stage::set(&scenario).play().marks;
            assert_eq!(marks.of(ringway_stack::marks::Mark::ListenerReported) > 0, cfg!(feature = "marks"), "{scenario}");
        }
    }
}
