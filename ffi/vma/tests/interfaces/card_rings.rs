//! Rings of a card, by the allocation logic: each has queues and a lock of its own, and flow rules lead to it. (How many a program came to have, its statistics tell.)

use ringway_report::ProcessReport;

use crate::cable::{Cable, ENDS, PORT, Running, on_cable};
use crate::cards::Bus;
use crate::kernels;
use crate::namespaces::ip;
use crate::programs::compile;
use crate::statistics::Statistics;

const LOGIC: &str = "VMA_RING_ALLOCATION_LOGIC_RX";
const BY_THREAD: (&str, &str) = (LOGIC, "20");
const SOON: (&str, &str) = ("VMA_RING_MIGRATION_RATIO_RX", "20");

/// Has the program talk at our end, on a card; its statistics.
fn reported(bus: &Bus, arguments: &[&str], environment: &[(&str, &str)]) -> (Running, Statistics) {
    let statistics = Statistics::new();
    let mut command = bus.command(&compile("tests/c/rings.c"), "a0", arguments);
    command.envs(environment.iter().copied()).env("RINGWAY_STATS_FILE", statistics.path());
    (Running::start(command), statistics)
}

/// A program of ours that talks to a server on a card at the other end: how it ended, by its statistics.
fn served(cable: &Cable, arguments: &[&str], environment: &[(&str, &str)]) -> ProcessReport {
    let (bus, [_, there], before) = (Bus::new(), ENDS[0], kernels());
    let server = bus.command(&cable.program, "b0", &["serve", there, PORT]);
    let server = cable.within_there(|| Running::start(server));
    cable.await_listener(false);
    let (client, statistics) = reported(&bus, &[arguments, &[there, PORT]].concat(), environment);
    client.ends_well();
    server.ends_well();
    let now = kernels();
    assert!(now[1] == before[1] && now[0] - before[0] < 8, "all of it came by the card: {now:?} {before:?}");
    statistics.report()
}

fn rings(report: &ProcessReport) -> usize {
    let [of_card] = &report.interfaces[..] else { panic!("{report:?}") };
    assert_eq!(of_card.card.as_deref(), Some("mlx5_0"));
    of_card.rings.len()
}

/// How the program makes its sockets, what is in its environment, and how many rings there are then.
type Wanted<'a> = (&'a str, &'a [(&'a str, &'a str)], usize);

#[test]
fn a_card_has_as_many_rings_as_the_allocation_logic_wants() {
    on_cable(|cable| {
        ip("addr add 10.78.0.3/24 dev a0\n");
        // SAFETY: plain integers.
        let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let by_core = usize::try_from(cores).expect("there are some").min(2);
        let ways: &[Wanted<'_>] = &[
            ("plain", &[(LOGIC, "0")], 1),
            ("bound", &[(LOGIC, "1")], 2),
            ("plain", &[(LOGIC, "10")], 3),
            ("plain", &[(LOGIC, "10"), ("VMA_RING_LIMIT_PER_INTERFACE", "2")], 2),
            ("users", &[(LOGIC, "0")], 2),
            ("plain", &[BY_THREAD], 2),
            ("plain", &[], 2),
            ("pinned", &[(LOGIC, "30")], by_core),
            ("plain", &[(LOGIC, "31")], by_core),
        ];
        for (how, environment, wanted) in ways {
            if *how == "pinned" && by_core == 1 {
                continue;
            }
            let report = served(cable, &["share", how], environment);
            assert_eq!((rings(&report), report.ring.migrations), (*wanted, 0), "{how} {environment:?}");
        }
    });
}

#[test]
fn what_another_thread_uses_goes_over_to_its_ring() {
    on_cable(|cable| {
        let report = served(cable, &["hand", "over"], &[BY_THREAD, SOON]);
        assert_eq!((rings(&report), report.ring.migrations), (2, 2), "a connection, and a UDP socket: {report:?}");
        let report =
            served(cable, &["hand", "not"], &[BY_THREAD, ("VMA_RING_MIGRATION_RATIO_RX", "-1"), ("VMA_RING_MIGRATION_RATIO_TX", "-1")]);
        assert_eq!((rings(&report), report.ring.migrations), (1, 0), "nothing does by itself: {report:?}");
    });
}

#[test]
fn what_is_accepted_goes_over_to_the_rings_of_those_who_serve_it() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            let (bus, before) = (Bus::new(), kernels());
            let (server, statistics) = reported(&bus, &["serve", "over", here, PORT], &[BY_THREAD, SOON]);
            cable.await_listener(true);
            let client = bus.command(&compile("tests/c/rings.c"), "b0", &["call", "plain", here, PORT]);
            cable.within_there(|| Running::start(client)).ends_well();
            server.ends_well();
            let (now, report) = (kernels(), statistics.report());
            assert!(now[1] == before[1] && now[0] - before[0] < 8, "all of it came by the card: {now:?} {before:?}");
            assert_eq!((rings(&report), report.ring.migrations), (4, 3), "two connections, and a UDP socket: {report:?}");
        }
    });
}

/// What one ring does, several do.
#[test]
fn threads_talk_by_rings_of_their_own_and_bulk_arrives() {
    on_cable(|cable| {
        for [_, there] in ENDS {
            let bus = Bus::new();
            let server = bus.command(&cable.program, "b0", &["serve", there, PORT]);
            let server = cable.within_there(|| Running::start(server));
            cable.await_listener(false);
            let statistics = Statistics::new();
            let mut talks = bus.command(&compile("tests/c/queues.c"), "a0", &["talk", there, PORT]);
            talks.envs([BY_THREAD]).env("RINGWAY_STATS_FILE", statistics.path());
            Running::start(talks).ends_well();
            server.ends_well();
            let report = statistics.report();
            // (Who comes when another one has ended has that one's.)
            assert!((2..=4).contains(&rings(&report)), "each of four threads has one: {report:?}");
        }
        let (bus, [here, _], program) = (Bus::new(), ENDS[0], compile("tests/c/bulk.c"));
        let mut reader = bus.command(&program, "a0", &["drains", here, PORT]);
        reader.envs([BY_THREAD, SOON]);
        let reader = Running::start(reader);
        cable.await_listener(true);
        let writer = bus.command(&program, "b0", &["pours", here, PORT]);
        cable.within_there(|| Running::start(writer)).ends_well();
        reader.ends_well();
    });
}
