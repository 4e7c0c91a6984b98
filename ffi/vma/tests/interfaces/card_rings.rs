//! Rings of a card, by the allocation logic: each has queues and a lock of its own, and flow rules lead to it. (How many a program came to have, its statistics tell.)

use ringway_report::ProcessReport;

use crate::cable::{Cable, ENDS, PORT, Running, on_cable};
use crate::cards::Bus;
use crate::kernels;
use crate::namespaces::ip;
use crate::programs::compile;
use crate::statistics::Statistics;

const LOGIC: &str = "VMA_RING_ALLOCATION_LOGIC_RX";
const TX: &str = "VMA_RING_ALLOCATION_LOGIC_TX";
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

/// The frames that each ring sent, by its own queue.
fn sent(report: &ProcessReport) -> Vec<u64> {
    let mut sent: Vec<u64> = report.interfaces[0].carried.iter().map(|ring| ring.tx_packets).collect();
    sent.sort_unstable();
    sent
}

/// How the program does it, its environment, and the messages that go by each queue.
type Way<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [u64]);

/// Two connections of the first thread send 30 messages each, and another thread's sends 20.
#[test]
fn what_is_sent_goes_by_as_many_queues_as_the_allocation_logic_wants() {
    on_cable(|cable| {
        ip("addr add 10.78.0.3/24 dev a0\n");
        // SAFETY: plain integers.
        let has_cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } > 1;
        let of_all = (LOGIC, "0");
        let ways: &[Way<'_>] = &[
            ("plain", &[of_all, (TX, "0")], &[80]),
            ("bound", &[of_all, (TX, "1")], &[20, 60]),
            ("plain", &[of_all, (TX, "10")], &[20, 30, 30]),
            ("senders", &[of_all, (TX, "0")], &[20, 60]),
            ("plain", &[of_all, (TX, "20")], &[20, 60]),
            ("plain", &[(TX, "20")], &[20, 60]),
            ("bound", &[(LOGIC, "1"), (TX, "20")], &[20, 60]),
            ("pinned", &[of_all, (TX, "30")], &[20, 60]),
            ("plain", &[of_all, (TX, "31")], &[20, 60]),
            ("plain", &[of_all, (TX, "20"), ("VMA_RING_LIMIT_PER_INTERFACE", "1")], &[80]),
        ];
        for (how, environment, messages) in ways {
            if matches!(environment[environment.len() - 1].1, "30" | "31") && !has_cores {
                continue;
            }
            let report = served(cable, &["share", how], environment);
            let sent = sent(&report);
            // (Beside messages there are acknowledgements, a beginning and an end; of messages there are no fewer.)
            let is_right = sent.len() == messages.len() && sent.iter().zip(*messages).all(|(sent, messages)| sent >= messages);
            assert!(is_right && sent[0] < messages[0] * 3, "{how} {environment:?}: {sent:?}");
            assert_eq!(report.ring.migrations, 0);
        }
    });
}

/// The second connection of the first thread has a profile, and so does another thread's.
#[test]
fn profiles_have_rings_of_their_own_and_share_them_with_who_names_the_same() {
    on_cable(|cable| {
        for (how, messages) in [("profiles", &[20, 30, 30][..]), ("alike", &[30, 50])] {
            let report = served(cable, &["share", how], &[(LOGIC, "0")]);
            let sent = sent(&report);
            let is_right = sent.len() == messages.len() && sent.iter().zip(messages).all(|(sent, messages)| sent >= messages);
            assert!(is_right && sent[0] < messages[0] * 3 && report.ring.migrations == 0, "{how}: {sent:?}");
        }
    });
}

#[test]
fn who_sends_for_long_has_it_sent_by_a_queue_of_its_own() {
    on_cable(|cable| {
        let by_sender = [(LOGIC, "0"), (TX, "20"), ("VMA_RING_MIGRATION_RATIO_TX", "20")];
        let report = served(cable, &["hand", "over"], &by_sender);
        assert_eq!((rings(&report), report.ring.migrations), (2, 2), "a connection, and a UDP socket: {report:?}");
        let sent = sent(&report);
        assert!(sent[1] > 2800 && sent[0] < 1500, "{sent:?}");
        // What receives goes by another logic, whose ratio counts nothing here.
        let by_receiver = [(LOGIC, "0"), (TX, "20"), SOON, ("VMA_RING_MIGRATION_RATIO_TX", "-1")];
        let report = served(cable, &["hand", "not"], &by_receiver);
        assert_eq!((rings(&report), report.ring.migrations), (1, 0), "{report:?}");
    });
}

/// A connection and a UDP socket are one user's first, and then that one's and another's in turn.
#[test]
fn a_logic_that_is_set_of_a_socket_with_flows_takes_it_to_another_ring() {
    on_cable(|cable| {
        let report = served(cable, &["change", "over"], &[(LOGIC, "0")]);
        assert_eq!((rings(&report), report.ring.migrations), (2, 40), "20 times each: {report:?}");
        let sent = sent(&report);
        assert!(sent[0] > 500 && sent[1] < 3 * sent[0], "half of 400 pieces, of three segments, and of as many datagrams: {sent:?}");
    });
}

#[test]
fn a_listener_stays_on_its_ring_and_that_is_said() {
    on_cable(|cable| {
        let (bus, [_, there]) = (Bus::new(), ENDS[0]);
        let server = bus.command(&cable.program, "b0", &["serve", there, PORT]);
        let server = cable.within_there(|| Running::start(server));
        cable.await_listener(false);
        let (client, statistics) = reported(&bus, &["change", "listening", there, PORT], &[(LOGIC, "0")]);
        let log = client.says();
        assert!(
            log.contains("SO_VMA_RING_ALLOC_LOGIC") && log.contains("a listener, and what it accepts") && log.lines().count() == 1,
            "{log}"
        );
        server.ends_well();
        let report = statistics.report();
        assert_eq!((rings(&report), report.ring.migrations), (1, 0), "none is made in vain: {report:?}");
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

/// A listener is on the ring that the logic gives it, and so is what it accepts, whichever thread serves that: until one has used it for as long as the ratio says.
#[test]
fn a_listener_has_one_ring_and_what_it_accepts_begins_there() {
    on_cable(|cable| {
        let (bus, [here, _]) = (Bus::new(), ENDS[0]);
        let stays = [BY_THREAD, ("VMA_RING_MIGRATION_RATIO_RX", "-1"), ("VMA_RING_MIGRATION_RATIO_TX", "-1")];
        let (server, statistics) = reported(&bus, &["serve", "alone", here, PORT], &stays);
        cable.await_listener(true);
        let client = bus.command(&compile("tests/c/rings.c"), "b0", &["call", "plain", here, PORT]);
        cable.within_there(|| Running::start(client)).ends_well();
        server.ends_well();
        let report = statistics.report();
        let carried = &report.interfaces[0].carried;
        assert!(report.ring.migrations == 0 && carried.len() == 1 && carried[0].rx_packets > 4500, "{report:?}");
    });
}

/// A socket of both families has two flow rules, of which the card does not move all.
#[test]
fn a_socket_goes_over_with_all_of_its_rules_or_with_none() {
    on_cable(|cable| {
        let [[v4, _], [v6, _]] = ENDS;
        // Which flow rules are refused, from the one on that is the first to be moved; whether the socket goes over in the end; and how often the progress thread looks by itself.
        let ways: &[(&[u8], bool, &str)] = &[
            (&[], true, "10"),
            (&[1], false, "10"),
            (&[2], false, "10"),
            (&[2, 3], true, "10"),
            (&[2, 3], true, "0"),
            (&[2, 3, 4, 5], true, "0"),
        ];
        for (refused, goes, interval) in ways {
            let bus = Bus::new();
            let environment = [BY_THREAD, SOON, ("VMA_PROGRESS_ENGINE_INTERVAL", *interval)];
            let (mut server, statistics) = reported(&bus, &["answer", "both", "::", PORT], &environment);
            cable.await_sockets(true, "udp", " 07 ", 1);
            let client = bus.command(&compile("tests/c/rings.c"), "b0", &["ask", v6, v4, PORT]);
            let client = cable.within_there(|| Running::start(client));
            server.await_ready();
            // (The other card has all its rules by then.)
            refused.iter().for_each(|at| bus.tell(0..2, [5, 254, *at]));
            client.ends_well();
            server.ends_well();
            let report = statistics.report();
            assert_eq!((rings(&report), report.ring.migrations), (2, u64::from(*goes)), "{refused:?}: {report:?}");
            let mut carried = report.interfaces[0].carried.clone();
            carried.sort_unstable_by_key(|ring| ring.rx_packets);
            let [other, most] = [&carried[0], &carried[1]];
            assert!(most.rx_packets > 2 * other.rx_packets, "all of it comes to one ring: {refused:?} {carried:?}");
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
