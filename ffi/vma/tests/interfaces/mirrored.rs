//! The VMA Extra API on a card: the programs that show it on shared memory, each of which talks to itself by way of a mirror at the other end of the cable.

use std::fs;
use std::path::Path;

use ringway_report::ProcessReport;

use crate::cable::{ENDS, PORT, Running, on_cable};
use crate::cards::Bus;
use crate::kernels;
use crate::mirror::Mirrored;
use crate::programs::compile;

pub(crate) const XTREME: (&str, &str) = ("VMA_SOCKETXTREME", "1");

/// A run of a program: its arguments, and what is in its environment.
pub(crate) type Way = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const LOGIC: &str = "VMA_RING_ALLOCATION_LOGIC_RX";

/// A program that looks which sockets share rings, by each logic.
pub(crate) const BY_LOGIC: &[Way] = &[
    (&["0"], &[XTREME, (LOGIC, "0")]),
    (&["1"], &[XTREME, (LOGIC, "1")]),
    (&["10"], &[XTREME, (LOGIC, "10")]),
    (&["20"], &[XTREME, (LOGIC, "20")]),
    (&["30"], &[XTREME, (LOGIC, "30")]),
    (&["31"], &[XTREME, (LOGIC, "31")]),
];

/// Runs a program of `tests/extra` once in each of these ways. It finds nothing wrong, and no datagram comes by the kernel.
fn finds_nothing_wrong(name: &'static str, ways: &'static [Way]) {
    on_cable(move |cable| {
        let (mirrored, program, before) = (Mirrored::new(cable), compile(&format!("tests/extra/{name}.c")), kernels());
        for (arguments, environment) in ways {
            mirrored.run(&program, arguments, environment);
        }
        let [segments, datagrams] = kernels();
        assert_eq!(datagrams, before[1], "datagrams came by the card");
        // (What is left of a connection that is over, when its process is, is the kernel's to refuse.)
        assert!(segments - before[0] < 8 * ways.len() as u64, "and so did streams: {segments} {before:?}");
    });
}

#[test]
fn completions_buffers_and_their_bad_inputs() {
    finds_nothing_wrong("xtreme", &[(&[], &[XTREME]), (&[], &[XTREME, ("VMA_API_LAYOUT", "9.2")])]);
}

#[test]
fn without_the_parameter_there_are_rings_and_nothing_to_poll() {
    on_cable(|cable| {
        let log = Mirrored::new(cable).run(&compile("tests/extra/xtreme.c"), &["off"], &[]);
        assert_eq!(log.matches("VMA_SOCKETXTREME=1").count(), 1, "{log}");
    });
}

#[test]
fn rings_are_slept_on_and_shared_by_threads() {
    finds_nothing_wrong("xtreme_sleep", &[(&[], &[XTREME]), (&[], &[XTREME, ("VMA_SELECT_POLL", "0")])]);
}

#[test]
fn sockets_share_rings_by_the_allocation_logic() {
    finds_nothing_wrong("xtreme_rings", BY_LOGIC);
}

#[test]
fn programs_of_8_4_have_their_own_structures() {
    finds_nothing_wrong("xtreme_84", &[(&[], &[XTREME, ("VMA_API_LAYOUT", "8.4")])]);
}

#[test]
fn receive_callbacks() {
    finds_nothing_wrong("callback", &[(&[], &[])]);
}

#[test]
fn zero_copy() {
    finds_nothing_wrong("zcopy", &[(&[], &[])]);
}

#[test]
fn dummy_sends() {
    finds_nothing_wrong("dummy", &[(&[], &[])]);
}

#[test]
fn rules_and_statistics() {
    finds_nothing_wrong("control", &[(&[], &[]), (&[], &[("VMA_OFFLOADED_SOCKETS", "0")])]);
}

/// Seed 001, "Verifying 'Dummy Send' capability in HW".
#[test]
fn the_log_tells_of_the_cards_queues_to_whoever_asks() {
    on_cable(|cable| {
        let (mirrored, program) = (Mirrored::new(cable), compile("tests/extra/dummy.c"));
        let debug = mirrored.run(&program, &[], &[("VMA_TRACELEVEL", "DEBUG")]);
        let of_card = |line: &&str| line.contains("qpm[a0]:configure()");
        let lines: Vec<&str> = debug.lines().filter(of_card).collect();
        let [made, dummy] = lines[..] else { panic!("{debug}") };
        assert!(made.contains("Creating QP of transport type 'ETH' on device 'mlx5_0' [a0] on port 1"), "{made}");
        assert!(dummy.ends_with("HW Dummy send support for QP = 1"), "{dummy}");
        assert!(!mirrored.run(&program, &[], &[("VMA_TRACELEVEL", "info")]).contains("HW Dummy"));
    });
}

/// What comes by a card is lent, named and counted as what comes by an interface or by shared memory; a server on another card sends it back.
#[test]
fn what_comes_by_a_card_is_lent_named_and_counted() {
    on_cable(|cable| {
        let (bus, [_, there], program) = (Bus::new(), ENDS[0], compile("tests/c/several.c"));
        let server = bus.command(&cable.program, "b0", &["serve", there, PORT]);
        let server = cable.within_there(|| Running::start(server));
        cable.await_listener(false);
        for word in ["lent", "named", "sent"] {
            Running::start(bus.command(&program, "a0", &[word, there, PORT])).ends_well();
        }
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mirrored-{}.json", std::process::id()));
        let mut warm = bus.command(&program, "a0", &["warm", there, PORT]);
        warm.env("RINGWAY_STATS_FILE", &file);
        Running::start(warm).ends_well();
        server.end();
        let text = fs::read_to_string(&file).expect("its statistics");
        fs::remove_file(&file).expect("it was just read");
        let report: ProcessReport = serde_json::from_str(text.trim()).expect("a report");
        let counts: Vec<_> = report.sockets.iter().map(|socket| (socket.tx_packets, socket.tx_dummies)).collect();
        assert_eq!(counts, [(1, 1)], "{text}");
    });
}

/// The example, with a client on another card.
#[test]
fn the_example_echoes() {
    on_cable(|cable| {
        let (bus, [here, there]) = (Bus::new(), ENDS[0]);
        let mut server = bus.command(&compile("examples/socketxtreme_echo.c"), "a0", &[here, PORT]);
        server.envs([XTREME]);
        let server = Running::start(server);
        cable.await_listener(true);
        let mut client = bus.command(&compile("tests/extra/echo_client.c"), "b0", &[PORT]);
        client.env("RINGWAY_TEST_OWN", there).env("RINGWAY_TEST_MIRROR", here);
        cable.within_there(|| Running::start(client)).ends_well();
        server.end();
    });
}

/// VMA_MEM_ALLOC_TYPE. (Pages of the larger kind are advised where the system keeps none for those who ask for them.)
#[test]
fn the_memory_of_the_cards_rings_is_on_huge_pages_unless_somebody_says_otherwise() {
    on_cable(|cable| {
        let (bus, [here, _]) = (Bus::new(), ENDS[0]);
        for (kind, is_huge) in [(None, true), (Some("2"), true), (Some("0"), false), (Some("1"), false)] {
            let mut server = bus.command(&cable.program, "a0", &["serve", here, PORT]);
            server.envs(kind.map(|kind| ("VMA_MEM_ALLOC_TYPE", kind)));
            let server = Running::start(server);
            cable.await_listener(true);
            let maps = fs::read_to_string(format!("/proc/{}/smaps", server.pid())).expect("its memory");
            // (What a child has no copy of, dc, is the card's.)
            let flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
            let of_card: Vec<Vec<&str>> =
                flags.map(|flags| flags.split_whitespace().collect()).filter(|flags: &Vec<&str>| flags.contains(&"dc")).collect();
            let has = |flags: &Vec<&str>| ["hg", "ht"].iter().any(|flag| flags.contains(flag));
            assert_eq!(of_card.iter().any(has), is_huge, "{kind:?}: {of_card:?}");
            server.end();
        }
    });
}
