//! libvma.conf: a preloaded program's sockets go where the rules say, and its report says which rule it was.

use std::path::PathBuf;

use ringway_report::{ProcessReport, SocketReport};

use super::{report, run, scratch, text};

/// A rule file of the test's own.
fn file(name: &str, rules: &str) -> PathBuf {
    let path = scratch(&format!("rules-{name}.conf"));
    std::fs::write(&path, rules).expect("a file");
    path
}

/// What a program with a connection and datagrams says of itself under these rules.
fn under(name: &str, rules: &str, environment: &[(&str, &str)]) -> ProcessReport {
    let path = file(name, rules).to_string_lossy().into_owned();
    report("use", &[&[("VMA_CONFIG_FILE", path.as_str())], environment].concat())
}

fn decided(report: &ProcessReport, what: &str) -> bool {
    report.decisions.iter().any(|decision| decision.what == what && decision.reason == "rule")
}

fn sockets<'a>(report: &'a ProcessReport, protocol: &'a str) -> impl Iterator<Item = &'a SocketReport> {
    report.sockets.iter().filter(move |socket| socket.protocol == protocol)
}

fn carried(report: &ProcessReport, protocol: &str) -> u64 {
    sockets(report, protocol).map(|socket| socket.rx_packets).sum()
}

#[test]
fn without_rules_all_is_offloaded() {
    let report = under("none", "# nothing\n", &[]);
    assert!(carried(&report, "tcp") > 0 && carried(&report, "udp") == 2, "{report:?}");
    assert!(report.decisions.iter().all(|decision| decision.reason != "rule"));
}

#[test]
fn a_server_is_left_to_the_kernel_with_what_it_accepts() {
    let report = under("server", "use os tcp_server *:*\n", &[]);
    assert!(decided(&report, "listen"), "{report:?}");
    assert_eq!((carried(&report, "tcp"), carried(&report, "udp")), (0, 2));
}

#[test]
fn a_client_is_left_to_the_kernel_and_says_by_which_rule() {
    let report = under("client", "\nuse vma tcp_client 10.0.0.0/8:*\nuse os tcp_client 127.0.0.0/8:*\n", &[]);
    assert!(decided(&report, "connect"), "{report:?}");
    assert_eq!(carried(&report, "tcp"), 0);
    let rules: Vec<_> = sockets(&report, "tcp").filter_map(|socket| socket.rule.as_deref()).collect();
    assert!(matches!(rules[..], [rule] if rule.ends_with("rules-client.conf:3: use os tcp_client 127.0.0.0/8:*")), "{rules:?}");
}

#[test]
fn datagrams_are_sent_by_the_kernel_and_may_come_on_the_ring() {
    let report = under("sender", "use os udp_sender *:*\n", &[]);
    assert!(decided(&report, "send"), "{report:?}");
    assert_eq!(sockets(&report, "udp").map(|socket| socket.tx_packets).sum::<u64>(), 0);
    assert!(sockets(&report, "udp").all(|socket| socket.offloaded), "they are still there for others");
    assert!(carried(&report, "tcp") > 0);
}

#[test]
fn who_may_not_receive_on_the_ring_does_not_send_there() {
    let report = under("receiver", "use os udp_receiver *:*\n", &[]);
    assert!(decided(&report, "bind"), "{report:?}");
    assert!(sockets(&report, "udp").all(|socket| !socket.offloaded && socket.reason.as_deref() == Some("rule")));
    assert!(carried(&report, "tcp") > 0);
}

#[test]
fn a_connected_socket_is_left_to_the_kernel_as_a_whole() {
    let report = under("connect", "use os udp_connect *:*\n", &[]);
    assert!(decided(&report, "connect"), "{report:?}");
    let left = sockets(&report, "udp").filter(|socket| !socket.offloaded).count();
    assert_eq!((left, sockets(&report, "udp").count()), (1, 2), "one of them was connected");
}

#[test]
fn rules_are_for_programs_and_ids() {
    let rules = "application-id redis-* *\nuse os tcp_server *:*\napplication-id par?ms 7\nuse os tcp_client *:*\n";
    assert!(carried(&under("other", rules, &[]), "tcp") > 0, "neither instance is this process's");
    assert_eq!(carried(&under("id", rules, &[("VMA_APPLICATION_ID", "7")]), "tcp"), 0);
}

#[test]
fn what_is_wrong_is_one_line() {
    let path = file("wrong", "use os tcp_client *:*\nuse os tcp_sever *:*\nuse os udp_receiver *:*\n").to_string_lossy().into_owned();
    let output = run("use", &[("VMA_CONFIG_FILE", &path)]);
    let said = text(&output.stderr);
    assert_eq!((text(&output.stdout).as_str(), said.lines().count()), ("done\n", 1), "{said}");
    assert!(said.starts_with("VMA WARNING: ") && said.contains("rules-wrong.conf, line 2, column 8: expected tcp_server"), "{said}");
    let report = report("use", &[("VMA_CONFIG_FILE", &path)]);
    assert!(decided(&report, "connect") && !decided(&report, "bind"), "the rules before it hold, and no others: {report:?}");
}

#[test]
fn an_id_that_no_rule_knows_is_one_line() {
    let path = file("ids", "application-id * 7\nuse os tcp_server *:*\n").to_string_lossy().into_owned();
    let output = run("use", &[("VMA_CONFIG_FILE", &path), ("VMA_APPLICATION_ID", "8")]);
    let said = text(&output.stderr);
    assert!(said.lines().count() == 1 && said.contains("VMA_APPLICATION_ID=8"), "{said}");
    // A directory is no file, and said to be none; nor is what has no end.
    for path in [env!("CARGO_TARGET_TMPDIR"), "/dev/zero"] {
        let output = run("use", &[("VMA_CONFIG_FILE", path)]);
        assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).lines().count()), ("done\n", 1));
    }
}
