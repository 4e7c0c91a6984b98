//! Programs of a user without privileges, on an interface that a broker has.

mod hostile;
pub(crate) mod serving;
mod sockets;

use serving::{NOBODY, Serving, with_broker};

use crate::cable::{Cable, ENDS, PORT, eventually, has_program, on_cable};
use crate::kernels;
use crate::kills::{moment, rules_of};
use crate::programs::compile;

/// What a broker says when nobody's program has the ring.
const LENT: &str = "of user 65534 has the ring of a0";

/// Whether what came since then came by the ring.
fn came_by_ring([streams, datagrams]: [u64; 2]) -> bool {
    let now = kernels();
    now[1] == datagrams && now[0] - streams < 8
}

/// Has a program of nobody's talk to a server of the kernel's. What it says.
fn talk(cable: &Cable, broker: &Serving, there: &str) -> String {
    let mut log = String::new();
    cable.while_served(&cable.program, &["serve", there, PORT], || {
        log = broker.start(&cable.program, &["talk", there, PORT]).says();
    });
    log
}

#[test]
fn a_user_without_privileges_talks_over_the_interface() {
    with_broker(NOBODY, |cable, broker| {
        for [_, there] in ENDS {
            let before = kernels();
            assert_eq!(talk(cable, broker, there), "");
            assert!(came_by_ring(before), "{:?} {before:?}", kernels());
        }
        assert_eq!(broker.said(LENT), 2);
    });
}

#[test]
fn and_serves_those_who_come_by_it() {
    with_broker(NOBODY, |cable, broker| {
        for [here, _] in ENDS {
            for address in [here, if here.contains(':') { "::" } else { "0.0.0.0" }] {
                let before = kernels();
                let server = broker.start(&cable.program, &["serve", address, PORT]);
                cable.await_listener(true);
                cable.there(&["talk", here, PORT]).join().expect("the kernel's program");
                server.ends_well();
                assert!(came_by_ring(before), "{:?} {before:?} ({address})", kernels());
            }
        }
    });
}

#[test]
fn who_is_not_listed_is_told_so_and_has_the_kernel() {
    with_broker("", |cable, broker| {
        let [_, there] = ENDS[0];
        let before = kernels();
        let log = talk(cable, broker, there);
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("a0")).collect();
        let [line] = lines[..] else { panic!("{log}") };
        assert!(line.contains("a0 is the kernel's") && line.contains("user 65534 is not one of its users"), "{line}");
        assert!(line.contains("the process lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF"), "{line}");
        assert!(kernels()[1] > before[1], "datagrams came by the kernel");
        assert_eq!(broker.said("is not one of its users"), 1);
    });
}

#[test]
fn the_second_program_has_the_kernel_until_the_first_has_ended() {
    with_broker(NOBODY, |cable, broker| {
        let [_, there] = ENDS[0];
        let loads = compile("tests/c/loads.c");
        let first = broker.start(&loads, &["echoes", "10.78.0.1", "7101"]);
        eventually("it has the ring", || broker.said(LENT) == 1);
        let log = talk(cable, broker, there);
        assert!(log.contains("another program has the ring of a0"), "{log}");
        first.kill();
        assert_eq!(talk(cable, broker, there), "");
        assert_eq!(broker.said(LENT), 2);
    });
}

#[test]
fn who_is_killed_under_load_leaves_no_rule_and_the_next_one_has_its_queue() {
    const KILLS: usize = 20;
    with_broker(NOBODY, |cable, broker| {
        let loads = compile("tests/c/loads.c");
        for [_, there] in ENDS {
            cable.while_served(&loads, &["echoes", there, PORT], || {
                for turn in 0..KILLS {
                    let client = broker.start(&loads, &["presses", there, PORT]);
                    eventually("it has connections by the ring", || rules_of(broker.pid()) > 0);
                    std::thread::sleep(moment(turn));
                    client.kill();
                    eventually("no rule is left", || rules_of(broker.pid()) == 0);
                }
                cable.there_of(&loads, &["quits", there, PORT]).join().expect("the kernel's program");
            });
        }
        assert_eq!(broker.said(LENT), 2 * KILLS);
        eventually("all are gone", || broker.said("has left a0") == 2 * KILLS);
    });
}

/// One of ours leaves that talks to the kernel's server of before.
fn talks_on(leaves: &'static str) {
    with_broker(NOBODY, move |cable, broker| {
        let program = compile("tests/c/leaves.c");
        for [_, there] in ENDS {
            cable.while_served(&cable.program, &["serve", there, PORT], || {
                broker.start(&program, &[leaves, there, PORT]).ends_well();
            });
            eventually("no rule is left", || rules_of(broker.pid()) == 0);
        }
    });
}

#[test]
fn a_program_that_another_takes_the_place_of_talks_on() {
    talks_on("exec");
}

#[test]
fn and_so_does_one_that_knows_nothing_of_ringway() {
    talks_on("plain-exec");
}

#[test]
fn a_process_that_is_sent_a_connection_talks_on_it() {
    talks_on("rights");
}

/// One of ours leaves, and one of the kernel's sees what becomes of it.
fn leaves_and_sees(leaves: &'static str, sees: &'static str) {
    with_broker(NOBODY, move |cable, broker| {
        let program = compile("tests/c/leaves.c");
        for [_, there] in ENDS {
            cable.while_served(&program, &[sees, there, PORT], || {
                broker.start(&program, &[leaves, there, PORT]).ends_well();
            });
        }
    });
}

#[test]
fn an_urgent_byte_is_heard_as_one() {
    leaves_and_sees("urgent", "hears-urgent");
}

#[test]
fn what_was_not_sent_at_the_end_arrives() {
    leaves_and_sees("unsent", "late");
}

#[test]
fn a_server_forks_for_each_connection() {
    with_broker(NOBODY, |cable, broker| {
        let [here, _] = ENDS[0];
        let server = broker.start(&cable.program, &["forking", here, PORT]);
        cable.await_listener(true);
        for _ in 0..2 {
            cable.there(&["exchange", here, PORT]).join().expect("the kernel's program");
        }
        server.ends_well();
    });
}

/// Neither its connection nor the interface ends with the broker; what is new is the kernel's. The next broker serves once that program has ended.
#[test]
fn a_program_goes_on_without_its_broker_and_the_next_one_serves_the_next() {
    with_broker(NOBODY, |cable, broker| {
        let [_, there] = ENDS[0];
        let loads = compile("tests/c/loads.c");
        let mut next = None;
        cable.while_served(&cable.program, &["serve", there, PORT], || {
            let mut ours = broker.start(&loads, &["keeps", there, PORT]);
            eventually("it has a rule", || rules_of(broker.pid()) == 1);
            // (Before that its neighbour may not be known yet, whom nobody asks for without a broker.)
            cable.await_sockets(false, "tcp", " 01 ", 1);
            broker.kill();
            let before = kernels();
            std::thread::sleep(std::time::Duration::from_millis(500));
            assert!(came_by_ring(before) && has_program(), "its connection goes on by the ring: {:?} {before:?}", kernels());

            let after = next.insert(broker.again(NOBODY));
            assert_eq!(after.said("is tried again when a program asks for it"), 1);
            // (It says goodbye by another connection, which the kernel has.)
            ours.close_input();
            let log = ours.says();
            assert!(log.contains("the broker is gone"), "{log}");
        });
        let next = next.expect("it was begun");
        eventually("the interface is free", || !has_program());

        assert_eq!(talk(cable, &next, there), "");
        assert_eq!(next.said(LENT), 1);
    });
}

/// A program with all privileges asks the broker, too, that has the interface.
#[test]
fn root_is_served_as_anybody() {
    with_broker("", |cable: &Cable, broker: &Serving| {
        let [_, there] = ENDS[0];
        let before = kernels();
        cable.while_served(&cable.program, &["serve", there, PORT], || {
            let environment = [("RINGWAY_BROKER", broker.socket().to_string_lossy().into_owned())];
            let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
            Cable::preloaded(&cable.program, &["talk", there, PORT], &environment).ends_well();
        });
        assert!(came_by_ring(before), "{:?} {before:?}", kernels());
        assert_eq!(broker.said("of user 0 has the ring of a0"), 1);
    });
}

/// Who is second at a path, or on an interface, says so, and leaves the first one alone.
#[test]
fn two_brokers_are_not_at_one_place() {
    with_broker(NOBODY, |cable, broker| {
        let [_, there] = ENDS[0];
        for (socket, told) in [("socket", "a broker listens at"), ("another", "a broker serves a0 already")] {
            let said = broker.beside(socket);
            assert!(said.starts_with("does not begin: ") && said.contains(told), "{said}");
        }
        assert_eq!(talk(cable, broker, there), "");
    });
}

#[test]
fn of_two_brokers_that_begin_at_once_one_serves() {
    on_cable(|_| {
        for _ in 0..10 {
            let said = Serving::at_once(4);
            assert_eq!(said.iter().filter(|said| said.contains("serves")).count(), 1, "{said:?}");
            assert_eq!(said.iter().filter(|said| said.contains("a broker listens at")).count(), 3, "{said:?}");
        }
    });
}
