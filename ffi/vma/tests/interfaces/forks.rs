//! Servers that fork, on an interface: who of them has what comes by it.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::cable::{Cable, ENDS, PORT, await_nothing_left, eventually, has_program, on_cable};
use crate::kernels;
use crate::namespaces::ip;

/// Until a server waits that said so just before.
const MOMENT: Duration = Duration::from_millis(300);

/// Segments and datagrams that our kernel receives meanwhile.
fn by_kernel(work: impl FnOnce()) -> [u64; 2] {
    let before = kernels();
    work();
    let after = kernels();
    [after[0] - before[0], after[1] - before[1]]
}

fn exchange(cable: &Cable, here: &'static str) {
    cable.there(&["exchange", here, PORT]).join().expect("the kernel's program");
}

fn spray(cable: &Cable, here: &'static str) {
    cable.there(&["spray", here, PORT]).join().expect("the kernel's program");
}

/// A program serves by a child, which comes to have the interface.
fn is_served_by_a_child(word: &'static str) {
    on_cable(move |cable| {
        for [here, _] in ENDS {
            let server = cable.here(&[word, here, PORT]);
            cable.await_listener(true);
            eventually("connections come by the child's ring", || by_kernel(|| exchange(cable, here))[0] == 0);
            cable.there(&["quit", here, PORT]).join().expect("the kernel's program");
            server.ends_well();
            await_nothing_left();
        }
    });
}

/// As nginx does.
#[test]
fn a_worker_has_the_interface_that_its_master_has_no_use_for() {
    is_served_by_a_child("worker");
}

#[test]
fn a_daemon_has_the_interface_that_was_its_parents() {
    is_served_by_a_child("daemon");
}

/// A process gives its interface up, and has it again, as often as it likes: its ring has the number that it had, for there are 64.
#[test]
fn the_interface_is_a_childs_and_its_parents_in_turn() {
    on_cable(|cable| {
        let [here, _] = ENDS[0];
        let log = std::env::temp_dir().join(format!("ringway-turns-{}", std::process::id()));
        let settings = [("VMA_TRACELEVEL", "debug"), ("VMA_LOG_FILE", log.to_str().expect("a name"))];
        let server = Cable::preloaded(&cable.program, &["turns", here, PORT], &settings);
        cable.await_listener(true);
        let come_by_the_ring = |pause| {
            sleep(pause);
            by_kernel(|| exchange(cable, here))[0] == 0
        };
        let turn = |pause| (come_by_the_ring(pause), come_by_the_ring(pause));
        // (Which of them come too early depends on what else the machine does.)
        let in_time = (0..11).filter(|_| turn(Duration::from_millis(200)) == (true, true)).count();
        assert!(in_time > 1, "in {in_time} turns of 11");
        assert_eq!(turn(Duration::from_secs(5)), (true, true), "after {in_time} turns");
        server.ends_well();
        let said = std::fs::read_to_string(&log).expect("a log");
        std::fs::remove_file(&log).expect("it is there");
        assert!(said.matches("ring 1: xdp:a0").count() > 3 && !said.contains("ring 2: "), "{said}");
    });
}

/// What it connects is the kernel's, meanwhile.
#[test]
fn a_client_has_the_interface_once_another_process_has_ended() {
    on_cable(|cable| {
        for [_, there] in ENDS {
            let server = cable.there(&["serve", there, PORT]);
            cable.await_listener(false);
            let (first, mut second) = (cable.here(&["serve", ENDS[0][0], "7101"]), cable.here(&["again", there, PORT]));
            eventually("another process has the interface", has_program);
            let mut exchange = || {
                let [segments, _] = by_kernel(|| {
                    second.ask();
                    second.await_ready();
                });
                segments == 0
            };
            assert!(!exchange(), "another process has the interface");
            first.kill();
            eventually("connections go by the interface", exchange);
            second.close_input();
            let log = second.says();
            assert!(log.contains("a0 is the kernel's: "), "{log}");
            server.join().expect("the kernel's program");
        }
    });
}

/// Which program is in front of an interface, as ip(8) shows it.
fn program_of(interface: &str) -> Option<String> {
    let shown = Command::new("ip").args(["-details", "link", "show", interface]).output().expect("ip(8)");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let (_, behind) = shown.split_once("prog/xdp id ")?;
    behind.split_whitespace().next().map(str::to_owned)
}

/// It has one interface from the beginning, and gets the other later.
#[test]
fn who_has_one_of_two_interfaces_gets_the_other_once_that_is_free() {
    on_cable(|cable| {
        ip("link add c0 type veth peer name d0\nlink set c0 up\nlink set d0 up\naddr add 10.79.0.1/24 dev c0\n");
        let [here, _] = ENDS[0];
        let device = |device| [("RINGWAY_DEVICE", device)];
        let first = Cable::preloaded(&cable.program, &["serve", "10.79.0.1", PORT], &device("shm,xdp:c0"));
        eventually("the other interface is taken", || program_of("c0").is_some());
        let taken = program_of("c0");
        let both = Cable::preloaded(&cable.program, &["serve", here, PORT], &device("shm,xdp:a0,xdp:c0"));
        eventually("it has one", || program_of("a0").is_some());
        first.kill();
        eventually("it has both", || program_of("c0").is_some_and(|program| Some(program) != taken));
        assert_eq!(by_kernel(|| exchange(cable, here))[0], 0, "it serves by the one that it had");
        cable.there(&["quit", here, PORT]).join().expect("the kernel's program");
        let log = both.says();
        assert!(log.contains("c0 is the kernel's: "), "{log}");
    });
}

/// By epoll, a listener is waited at with all others.
#[test]
fn a_server_that_waits_for_many_has_the_interface_again() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            let server = cable.here(&["serve", here, PORT]);
            cable.await_listener(true);
            cable.there(&["split", here, PORT]).join().expect("the kernel's program");
            sleep(MOMENT);
            assert_eq!(by_kernel(|| exchange(cable, here))[0], 0, "the listener is the ring's again");
            cable.there(&["quit", here, PORT]).join().expect("the kernel's program");
            server.ends_well();
        }
    });
}

/// The kernel has accepted it while the listener was nobody's on the interface; when it is the ring's again, the ring would answer the connection's segments by a reset.
#[test]
fn a_connection_of_the_kernels_goes_on_beside_a_listener_of_the_rings() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            let mut server = cable.here(&["beside", here, PORT]);
            cable.await_listener(true);
            exchange(cable, here);
            server.await_ready();
            let slow = cable.there(&["slow", here, PORT]);
            server.await_ready();
            sleep(MOMENT);
            let [segments, _] = by_kernel(|| exchange(cable, here));
            assert_eq!(segments, 0, "the listener is the ring's again");
            slow.join().expect("the kernel's program");
            server.ends_well();
        }
    });
}

/// What came before the fork, what comes while a child has all of it, too, and what comes afterwards.
#[test]
fn a_server_that_waits_again_has_the_interface_again() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            let mut server = cable.here(&["busy", here, PORT]);
            cable.await_listener(true);
            exchange(cable, here);
            server.await_ready();
            sleep(MOMENT);
            let [segments, _] = by_kernel(|| (0..2).for_each(|_| exchange(cable, here)));
            assert_eq!(segments, 0, "connections came by the ring");
            let before = kernels()[1];
            spray(cable, here);
            // (The kernel counts what was read.)
            eventually("all come by the kernel, where whoever reads them first has them", || kernels()[1] - before == 64);
            server.await_ready();
            // (Children are looked for less often the longer they stay.)
            sleep(Duration::from_millis(2500));
            let [_, datagrams] = by_kernel(|| spray(cable, here));
            assert_eq!(datagrams, 0, "nobody else has the socket");
            server.ends_well();
        }
    });
}
