//! A program on an interface (RINGWAY_DEVICE=shm,xdp:IF) and one of the kernel's at the other end of a cable: two network namespaces and a veth pair, which are
//! the test's own. They take root; where CI is set they must be had. (Or a card, with the same cable beside it: RINGWAY_DEVICE=mlx5:NAME.)

mod broker;
mod cable;
mod capture;
mod card_rings;
mod cards;
mod commands;
mod errnos;
mod faults;
mod forks;
mod fronts;
mod groups;
mod killed;
mod kills;
mod leaving;
mod mirror;
mod mirrored;
#[path = "../../../../backends/host/tests/leave/namespaces.rs"]
#[allow(dead_code, reason = "each test has its own needs")]
mod namespaces;
mod paths;
#[path = "../extra/programs.rs"]
mod programs;
mod queues;
mod reflected;
mod replay;
mod resets;
mod statistics;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cable::{DEVICE, ENDS, PORT, Running, on_cable};
use programs::{compile, library};
use ringway_report::ProcessReport;

/// Segments and datagrams that our end's kernel has received.
fn kernels() -> [u64; 2] {
    let snmp = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let of = |kind: &str, field: usize| -> u64 {
        let line = snmp.lines().filter(|line| line.starts_with(kind)).nth(1).expect("its numbers");
        line.split_whitespace().nth(field).and_then(|number| number.parse().ok()).expect("a number")
    };
    let snmp6 = fs::read_to_string("/proc/thread-self/net/snmp6").expect("counters");
    let v6 = snmp6.lines().find_map(|line| line.strip_prefix("Udp6InDatagrams")).and_then(|rest| rest.trim().parse::<u64>().ok());
    [of("Tcp:", 10), of("Udp:", 1) + v6.unwrap_or(0)]
}

#[test]
fn a_program_talks_over_the_interface_and_the_kernel_sees_none_of_it() {
    on_cable(|cable| {
        for [_, there] in ENDS {
            let before = kernels();
            let server = cable.there(&["serve", there, PORT]);
            cable.await_listener(false);
            cable.here(&["talk", there, PORT]).ends_well();
            server.join().expect("the kernel's program");
            assert_eq!(kernels()[1], before[1], "datagrams came by the ring");
            // (A connection that nobody accepts is the kernel's to try once more; and what is left of one that is over, when its process is, is the kernel's to refuse.)
            assert!(kernels()[0] - before[0] < 8, "and so did streams: {:?} {before:?}", kernels());
        }
    });
}

#[test]
fn a_program_serves_those_who_come_by_the_interface() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            for address in [here, if here.contains(':') { "::" } else { "0.0.0.0" }] {
                let before = kernels();
                let server = cable.here(&["serve", address, PORT]);
                cable.await_listener(true);
                cable.there(&["talk", here, PORT]).join().expect("the kernel's program");
                server.ends_well();
                assert_eq!(kernels()[1], before[1], "datagrams came by the ring ({address})");
                assert!(kernels()[0] - before[0] < 8, "and so did streams: {:?} {before:?} ({address})", kernels());
            }
        }
    });
}

#[test]
fn one_server_has_peers_of_all_kinds() {
    on_cable(|cable| {
        let [here, _] = ENDS[0];
        let server = cable.here(&["serve", "0.0.0.0", PORT]);
        cable.await_listener(true);
        // By shared memory, by the kernel's loopback, and by the interface.
        cable.here(&["exchange", "127.0.0.1", PORT]).says();
        let mut by_kernel = Command::new(&cable.program);
        by_kernel.args(["exchange", "127.0.0.1", PORT]);
        Running::start(by_kernel).ends_well();
        cable.there(&["exchange", here, PORT]).join().expect("the kernel's program");
        cable.there(&["talk", here, PORT]).join().expect("the kernel's program");
        server.ends_well();
    });
}

#[test]
fn a_connection_that_a_child_goes_on_with_is_the_kernels() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        cable.here(&["fork", there, PORT]).ends_well();
        server.join().expect("the kernel's program");
    });
}

#[test]
fn a_server_forks_for_each_connection() {
    on_cable(|cable| {
        let [here, _] = ENDS[0];
        let server = cable.here(&["forking", here, PORT]);
        cable.await_listener(true);
        for _ in 0..2 {
            cable.there(&["exchange", here, PORT]).join().expect("the kernel's program");
        }
        server.ends_well();
    });
}

/// What programs leave unread is not what others are received into, and what comes does not lie in the interface's queue.
#[test]
fn bulk_by_several_streams_finds_room() {
    on_cable(|cable| {
        let program = compile("tests/c/bulk.c");
        for [here, _] in ENDS {
            let reader = cable.here_of(&program, &["drinks", here, PORT]);
            cable.await_listener(true);
            cable.there_of(&program, &["pours", here, PORT]).join().expect("the kernel's program");
            reader.ends_well();
        }
    });
}

#[test]
fn nobody_is_unreachable() {
    on_cable(|cable| {
        for nobody in ["10.78.0.99", "fd78::99"] {
            cable.here(&["nobody", nobody, PORT]).ends_well();
        }
    });
}

#[test]
fn without_the_privileges_the_kernel_serves_and_one_line_says_what_is_missing() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-bpf,-sys_admin", "--inh-caps=-bpf,-sys_admin"]).arg(&cable.program).args(["talk", there, PORT]);
        command.env("LD_PRELOAD", library()).env("RINGWAY_DEVICE", DEVICE).env("VMA_CONFIG_FILE", "");
        let log = Running::start(command).says();
        server.join().expect("the kernel's program");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("a0")).collect();
        let [line] = lines[..] else { panic!("{log}") };
        assert!(line.contains("the process lacks CAP_BPF"), "{line}");
    });
}

#[test]
fn what_comes_by_an_interface_is_lent_named_and_counted_as_what_comes_by_shared_memory() {
    on_cable(|cable| {
        for [_, there] in ENDS {
            for word in ["lent", "named", "warm"] {
                // (A datagram to nobody is the kernel's, and so is its way back.)
                let by_kernel = cable.with_server(there, || cable.several(&[word, there, PORT], &[]).ends_well());
                assert_eq!(by_kernel, [0; 2], "{word} {there}");
            }
            let stats = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("several-{}.json", std::process::id()));
            let path = stats.to_string_lossy().into_owned();
            cable.with_server(there, || cable.several(&["sent", there, PORT], &[("RINGWAY_STATS_FILE", &path)]).ends_well());
            let text = fs::read_to_string(&stats).expect("its statistics");
            fs::remove_file(&stats).expect("it was just read");
            let report: ProcessReport = serde_json::from_str(text.trim()).expect("a report");
            let udp: Vec<_> = report.sockets.iter().filter(|socket| socket.protocol == "udp").collect();
            assert_eq!(udp.iter().map(|socket| (socket.tx_packets, socket.rx_packets)).collect::<Vec<_>>(), [(10, 10)], "{text}");
        }
    });
}

#[test]
fn a_rule_leaves_what_is_sent_over_an_interface_to_the_kernel() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let rules = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("several-{}.conf", std::process::id()));
        fs::write(&rules, "use os udp_sender *:*\n").expect("a file");
        let path = rules.to_string_lossy().into_owned();
        let [sent, _] = cable.with_server(there, || cable.several(&["sent", there, PORT], &[("VMA_CONFIG_FILE", &path)]).ends_well());
        fs::remove_file(&rules).expect("it was just made");
        assert_eq!(sent, 10);
    });
}

#[test]
fn the_kernel_shares_out_what_comes_for_an_address_that_several_sockets_have() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            for word in ["newest", "spread"] {
                let receiver = cable.several(&[word, here, PORT], &[]);
                cable.await_sockets(true, "udp", " 07 ", 2);
                cable.there(&["spray", here, PORT]).join().expect("the kernel's program");
                receiver.ends_well();
            }
        }
    });
}

/// As most servers have it, so that they can be started again at once.
#[test]
fn an_address_that_others_may_share_is_the_rings_until_one_does() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            let spray = || cable.there(&["spray", here, PORT]).join().expect("the kernel's program");
            // (The kernel is asked who has the port four times a second.)
            let is_noticed = || std::thread::sleep(Duration::from_millis(700));
            let mut receiver = cable.several(&["reused", here, PORT], &[]);
            cable.await_sockets(true, "udp", " 07 ", 1);
            is_noticed();
            let before = kernels();
            spray();
            receiver.await_ready();
            spray();
            assert_eq!(kernels()[1], before[1], "all of it came by the ring");

            let newcomer = cable.kernels(&["newcomer", here, PORT]);
            cable.await_sockets(true, "udp", " 07 ", 2);
            is_noticed();
            spray();
            newcomer.ends_well();
            is_noticed();
            let before = kernels();
            spray();
            assert_eq!(kernels()[1], before[1], "and so it does again");
            receiver.close_input();
            receiver.ends_well();
        }
    });
}

#[test]
fn a_socket_that_is_bound_to_the_loopback_receives_nothing_that_comes_by_an_interface() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            let receiver = cable.several(&["within", here, PORT], &[]);
            cable.await_sockets(true, "udp", " 07 ", 1);
            let next = (PORT.parse::<u16>().expect("a port") + 1).to_string();
            for port in [PORT, &next] {
                cable.there(&["spray", here, port]).join().expect("the kernel's program");
            }
            receiver.ends_well();
        }
    });
}

#[test]
fn a_child_receives_what_comes_by_an_interface() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            let receiver = cable.several(&["child", here, PORT], &[]);
            cable.await_sockets(true, "udp", " 07 ", 1);
            // (The fork comes after that.)
            std::thread::sleep(Duration::from_millis(500));
            cable.there(&["spray", here, PORT]).join().expect("the kernel's program");
            receiver.ends_well();
        }
    });
}
