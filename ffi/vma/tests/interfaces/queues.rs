//! An interface with several queues, and a ring on each. (What comes to which a veth pair does not say: so a program has several rings there if a ring logic asks for them.)

use ringway_report::ProcessReport;

use crate::cable::{Cable, ENDS, PORT, Running, on_cable_of};
use crate::kernels;
use crate::programs::compile;
use crate::statistics::Statistics;

const QUEUES: u32 = 4;
/// A ring for each thread's sockets, and for each core's.
const BY_THREAD: (&str, &str) = ("VMA_RING_ALLOCATION_LOGIC_RX", "20");
const BY_CORE: (&str, &str) = ("VMA_RING_ALLOCATION_LOGIC_RX", "30");

/// Has our threads talk to a server of the kernel's. What the program says in its log at that level, and its statistics.
fn talk(cable: &Cable, word: &str, there: &str, logic: Option<(&str, &str)>) -> (String, ProcessReport) {
    let (program, statistics) = (compile("tests/c/queues.c"), Statistics::new());
    let environment: Vec<_> = logic.into_iter().chain([("RINGWAY_STATS_FILE", statistics.path()), ("VMA_TRACELEVEL", "info")]).collect();
    let mut log = String::new();
    let before = kernels();
    cable.while_served(&cable.program, &["serve", there, PORT], || {
        log = Cable::preloaded(&program, &[word, there, PORT], &environment).says();
    });
    let now = kernels();
    assert!(now[1] == before[1] && now[0] - before[0] < 8, "all of it came by the rings: {now:?} {before:?}");
    (log, statistics.report())
}

#[test]
fn threads_talk_by_rings_of_their_own() {
    on_cable_of(QUEUES, |cable| {
        for [_, there] in ENDS {
            for (word, logic) in [("talk", BY_THREAD), ("given", BY_THREAD), ("talk", BY_CORE)] {
                let (log, report) = talk(cable, word, there, Some(logic));
                assert!(log.contains("a0 has 4 rings, and does not say what comes to which"), "{log}");
                let rings: Vec<_> = report.interfaces.iter().map(|interface| (interface.name.as_str(), interface.rings.clone())).collect();
                assert_eq!(rings, [("a0", vec![vec![0], vec![1], vec![2], vec![3]])]);
                assert!(report.ring.migrations > 0, "connections went where their frames come: {report:?}");
            }
        }
    });
}

#[test]
fn nobody_who_says_nothing_has_several_rings_where_the_interface_does_not_say_what_comes_to_which() {
    on_cable_of(QUEUES, |cable| {
        let [_, there] = ENDS[0];
        for logic in [None, Some(("VMA_RING_ALLOCATION_LOGIC_RX", "0"))] {
            let (log, report) = talk(cable, "talk", there, logic);
            assert!(log.contains("offloading over a0 as well") && !log.contains(" rings"), "{log}");
            let rings: Vec<_> = report.interfaces.iter().map(|interface| interface.rings.clone()).collect();
            assert_eq!((rings, report.ring.migrations), (vec![vec![vec![0, 1, 2, 3]]], 0));
        }
    });
}

#[test]
fn who_comes_by_any_queue_is_served() {
    on_cable_of(QUEUES, |cable| {
        let program = compile("tests/c/queues.c");
        for [here, _] in ENDS {
            for address in [here, if here.contains(':') { "::" } else { "0.0.0.0" }] {
                let before = kernels();
                let server = Cable::preloaded(&cable.program, &["serve", address, PORT], &[BY_THREAD]);
                cable.await_listener(true);
                cable.there_of(&program, &["talk", here, PORT]).join().expect("the kernel's program");
                server.ends_well();
                let now = kernels();
                assert!(now[1] == before[1] && now[0] - before[0] < 8, "all of it came by the rings: {now:?} {before:?} ({address})");
            }
        }
    });
}

/// What one ring does, several do.
#[test]
fn a_program_talks_in_every_way_that_it_knows() {
    on_cable_of(QUEUES, |cable| {
        for [_, there] in ENDS {
            let server = cable.there(&["serve", there, PORT]);
            cable.await_listener(false);
            Cable::preloaded(&cable.program, &["talk", there, PORT], &[BY_THREAD]).ends_well();
            server.join().expect("the kernel's program");
        }
        // And by those who go on in another process.
        let [_, there] = ENDS[0];
        let leaves = compile("tests/c/leaves.c");
        for word in ["exec", "plain-exec", "rights"] {
            let server = cable.there(&["serve", there, PORT]);
            cable.await_listener(false);
            Cable::preloaded(&leaves, &[word, there, PORT], &[BY_THREAD]).ends_well();
            server.join().expect("the kernel's program");
        }
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        Cable::preloaded(&cable.program, &["fork", there, PORT], &[BY_THREAD]).ends_well();
        server.join().expect("the kernel's program");
    });
}

/// A connection goes over to where its frames come with all that it has, while both sides are at it.
#[test]
fn bulk_by_several_streams_arrives() {
    on_cable_of(QUEUES, |cable| {
        let program = compile("tests/c/bulk.c");
        for [here, there] in ENDS {
            let reader = Cable::preloaded(&program, &["drinks", here, PORT], &[BY_THREAD]);
            cable.await_listener(true);
            cable.there_of(&program, &["pours", here, PORT]).join().expect("the kernel's program");
            reader.ends_well();
            let reader = cable.there_of(&program, &["drains", there, PORT]);
            cable.await_listener(false);
            Cable::preloaded(&program, &["pours", there, PORT], &[BY_THREAD]).ends_well();
            reader.join().expect("the kernel's program");
        }
    });
}

/// A program that has these queues hears what the other end sprays. Its statistics, in the end.
struct Hearer {
    running: Running,
    statistics: Statistics,
    port: &'static str,
}

impl Hearer {
    fn start(queues: &str, port: &'static str) -> Self {
        let (device, statistics, [here, _]) = (format!("shm,xdp:a0/{queues}"), Statistics::new(), ENDS[0]);
        let environment = [("RINGWAY_DEVICE", device.as_str()), ("RINGWAY_STATS_FILE", statistics.path()), BY_THREAD];
        let mut running = Cable::preloaded(&compile("tests/c/queues.c"), &["hears", here, port], &environment);
        running.await_ready();
        Self { running, statistics, port }
    }

    /// It has heard all, by its rings and by the kernel, which had what came by other queues; and says which are its.
    fn has_heard(self, cable: &Cable, rings: &[Vec<u32>]) {
        let [here, _] = ENDS[0];
        cable.there(&["spray", here, self.port]).join().expect("the kernel's program");
        self.running.ends_well();
        let report = self.statistics.report();
        let of_a0: Vec<_> = report.interfaces.iter().map(|of| (of.name.as_str(), &of.rings[..], of.queues)).collect();
        assert_eq!(of_a0, [("a0", rings, QUEUES)]);
        let by_rings = report.closed_sockets.offloaded;
        let (packets, by_kernel) = (report.ring.rx_packets, report.closed_sockets.kernel_rx_packets);
        assert!(by_rings == 1 && packets > 0 && by_kernel > 0 && packets + by_kernel == 64, "{report:?}");
    }
}

#[test]
fn processes_with_different_queues_have_an_interface_together() {
    on_cable_of(QUEUES, |cable| {
        let first = Hearer::start("0-1", PORT);
        let second = Hearer::start("2", "7101");
        // Who asks for what another one has is the kernel's there, and says so.
        let environment = [("RINGWAY_DEVICE", "shm,xdp:a0/1-2")];
        let [_, there] = ENDS[0];
        let mut log = String::new();
        cable.while_served(&cable.program, &["serve", there, PORT], || {
            log = Cable::preloaded(&cable.program, &["talk", there, PORT], &environment).says();
        });
        assert!(log.contains("a0 is the kernel's") && log.contains("taken by another program"), "{log}");
        first.has_heard(cable, &[vec![0], vec![1]]);
        second.has_heard(cable, &[vec![2]]);
    });
}

#[test]
fn who_is_killed_leaves_the_others_and_the_next_one_what_they_need() {
    on_cable_of(QUEUES, |cable| {
        let first = Hearer::start("0-1", PORT);
        let second = Hearer::start("2-3", "7101");
        first.running.kill();
        // (The same port, of which the first one's rule is there still.)
        let third = Hearer::start("0-1", PORT);
        second.has_heard(cable, &[vec![2], vec![3]]);
        third.has_heard(cable, &[vec![0], vec![1]]);
    });
}

/// Where the interface does not say what comes to which queue, streams are the kernel's for who has not all.
#[test]
fn streams_are_the_kernels_for_who_has_some_queues() {
    on_cable_of(QUEUES, |cable| {
        let environment = [("RINGWAY_DEVICE", "shm,xdp:a0/1-2"), BY_THREAD];
        for [here, there] in ENDS {
            let server = cable.there(&["serve", there, PORT]);
            cable.await_listener(false);
            Cable::preloaded(&cable.program, &["talk", there, PORT], &environment).ends_well();
            server.join().expect("the kernel's program");
            let server = Cable::preloaded(&cable.program, &["serve", here, PORT], &environment);
            cable.await_listener(true);
            cable.there(&["talk", here, PORT]).join().expect("the kernel's program");
            server.ends_well();
        }
    });
}
