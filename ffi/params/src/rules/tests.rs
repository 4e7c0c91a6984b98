use proptest::prelude::*;

use super::grammar::{Destination, Log, statement};
use super::*;

fn process(program: &str, id: &str) -> Process {
    Process { program: program.to_owned(), id: id.to_owned() }
}

fn at(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

fn rules(text: &str) -> Rules {
    let (rules, error) = Rules::parse(text);
    assert_eq!(error, None);
    rules
}

/// The line that decides, and whether it is for the kernel.
fn decided(rules: &Rules, program: &str, role: Role, first: &str) -> Option<(u32, Transport)> {
    let placed = rules.decide(&process(program, "VMA_DEFAULT_APPLICATION_ID"), role, at(first), None);
    placed.map(|placed| (placed.line, placed.rule.transport))
}

#[test]
fn statements_are_understood() {
    for (line, printed) in [
        ("application-id * *", "application-id * *"),
        ("  application-id\tredis-*  7 # for redis", "application-id redis-* 7"),
        ("log", "log"),
        ("log destination stderr min-level 3", "log destination stderr min-level 3"),
        ("log min-level 9 destination ystderr", "log destination stderr min-level 9"),
        ("log destination syslog", "log destination syslog"),
        ("log destination yfile /tmp/log", "log destination file /tmp/log"),
        ("use os tcp_server *:*", "use os tcp_server *:*"),
        ("use vma tcp_client 10.0.0.1:80", "use vma tcp_client 10.0.0.1:80"),
        ("use * udp_sender 10.1.0.0/16:1000-2000", "use * udp_sender 10.1.0.0/16:1000-2000"),
        ("use sdp udp_receiver 10.0.0.1/33:0", "use sdp udp_receiver 10.0.0.1:0"),
        ("use sa udp_connect *:53:192.168.0.0/24:*\r", "use sa udp_connect *:53:192.168.0.0/24:*"),
        ("use os tcp_server 10.0.0.1 / 8 : 1 - 2", "use os tcp_server 10.0.0.1/8:1-2"),
    ] {
        let found = statement(line, 1).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(found.map(|statement| statement.to_string()).as_deref(), Some(printed), "{line}");
    }
    for nothing in ["", " \t ", "# use os tcp_server *:*", "\r"] {
        assert_eq!(statement(nothing, 1), Ok(None), "{nothing:?}");
    }
}

#[test]
fn errors_say_where() {
    for (line, column, found) in [
        ("use", 4, "found the line's end"),
        ("use  kernel tcp_server *:*", 6, "found \"kernel\""),
        ("use os server *:*", 8, "found \"server\""),
        ("use os tcp_server", 18, "found the line's end"),
        ("use os tcp_server *", 20, "expected \":\""),
        ("use os tcp_server 10.0.0:80", 19, "expected an address"),
        ("use os tcp_server 10.0.0.256:80", 19, "expected an address"),
        ("use os tcp_server *:080", 21, "expected a port"),
        ("use os tcp_server *:65536", 21, "expected a port"),
        ("use os tcp_server *:9-8", 22, "does not end before"),
        ("use os tcp_server *:*:*", 24, "expected \":\""),
        ("use os tcp_server *:* extra", 23, "expected the line's end"),
        ("Use os tcp_server *:*", 1, "expected application-id, log or use"),
        ("application-id redis", 21, "expected an application's id"),
        ("log destination nowhere", 17, "expected stderr"),
        ("log min-level 0", 15, "expected a level from 1 to 9, found \"0\""),
        ("log min-level  0 destination syslog", 16, "found \"0\""),
        ("log min-level", 14, "found the line's end"),
        ("log min-level 10", 15, "from 1 to 9"),
        ("\u{e4}\u{e4} os", 1, "found \"\u{e4}\u{e4}\""),
        ("use \u{e4} x", 5, "found \"\u{e4}\""),
    ] {
        let error = statement(line, 7).expect_err(line);
        assert_eq!((error.line, error.column), (7, column), "{line}: {error}");
        assert!(error.what.contains(found), "{line}: {error}");
    }
}

#[test]
fn what_stands_before_an_error_holds() {
    let (rules, error) = Rules::parse("use os tcp_server *:80\n\nuse os tcp_sever *:81\nuse os tcp_server *:82\n");
    assert_eq!(error.map(|error| (error.line, error.column)), Some((3, 8)));
    assert!(decided(&rules, "x", Role::TcpServer, "1.2.3.4:80").is_some());
    assert!(decided(&rules, "x", Role::TcpServer, "1.2.3.4:82").is_none());
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = rules("use vma tcp_server 10.0.0.0/8:80-90\nuse os tcp_server *:85\nuse * udp_sender *:7\nuse os udp_sender *:*");
    let of = |role, first| decided(&rules, "x", role, first);
    assert_eq!(of(Role::TcpServer, "10.1.2.3:85"), Some((1, Transport::Vma)));
    assert_eq!(of(Role::TcpServer, "11.1.2.3:85"), Some((2, Transport::Os)));
    assert_eq!(of(Role::TcpServer, "11.1.2.3:86"), None);
    assert_eq!(of(Role::TcpClient, "11.1.2.3:85"), None, "another role");
    assert_eq!(of(Role::UdpSender, "11.1.2.3:7"), Some((3, Transport::Any)));
    assert_eq!(of(Role::UdpSender, "11.1.2.3:8"), Some((4, Transport::Os)));
}

#[test]
fn other_transports_decide_nothing() {
    let rules = rules("use sdp tcp_server *:*\nuse sa tcp_server *:*\nuse os tcp_server *:*");
    assert_eq!(decided(&rules, "x", Role::TcpServer, "1.2.3.4:1"), Some((3, Transport::Os)));
}

#[test]
fn only_the_first_instance_that_matches_counts() {
    let rules = rules("application-id redis* *\nuse os tcp_server *:1\napplication-id * *\nuse os tcp_server *:2");
    assert_eq!(decided(&rules, "redis-server", Role::TcpServer, "0.0.0.0:1").map(|found| found.0), Some(2));
    assert_eq!(decided(&rules, "redis-server", Role::TcpServer, "0.0.0.0:2"), None, "the second instance is not asked");
    assert_eq!(decided(&rules, "nginx", Role::TcpServer, "0.0.0.0:2").map(|found| found.0), Some(4));
    assert_eq!(decided(&rules, "nginx", Role::TcpServer, "0.0.0.0:1"), None);
}

#[test]
fn an_instance_can_be_opened_again_and_the_first_is_everybodys() {
    let rules = rules("use os tcp_server *:1\napplication-id a *\nuse os tcp_server *:2\napplication-id * *\nuse os tcp_server *:3\n");
    for port in [1, 3] {
        assert!(decided(&rules, "a", Role::TcpServer, &format!("0.0.0.0:{port}")).is_some(), "{port}");
    }
    assert!(decided(&rules, "a", Role::TcpServer, "0.0.0.0:2").is_none(), "the file's first instance is everybody's");
}

#[test]
fn ids_tell_processes_apart() {
    let rules = rules("application-id * 7\nuse os tcp_server *:*\n");
    let decides = |id: &str| rules.decide(&process("x", id), Role::TcpServer, at("1.2.3.4:1"), None).is_some();
    assert!(decides("7") && decides("*") && !decides("8") && !decides("VMA_DEFAULT_APPLICATION_ID"));
    assert!(rules.knows_id("7") && !rules.knows_id("8"));
    assert!(Rules::default().knows_id("8"), "where there is no instance, none is missing");
}

#[test]
fn a_second_pair_counts_where_both_have_one() {
    let with_second = rules("use os tcp_client 10.0.0.1:80:192.168.0.0/16:*");
    let decides =
        |second: Option<&str>| with_second.decide(&process("x", "*"), Role::TcpClient, at("10.0.0.1:80"), second.map(at)).is_some();
    assert!(decides(Some("192.168.3.4:5")) && !decides(Some("10.0.0.9:5")) && decides(None));
    let without = rules("use os udp_connect *:53");
    assert!(without.decide(&process("x", "*"), Role::UdpConnect, at("9.9.9.9:53"), Some(at("1.2.3.4:5"))).is_some());
}

#[test]
fn masks_are_applied_to_both_sides() {
    let matches = |rule: &str, address: &str| {
        let found = statement(&format!("use os tcp_server {rule}"), 1);
        let Ok(Some(Statement::Use(rule))) = found else { panic!("{found:?}") };
        rule.first.matches(at(address))
    };
    assert!(matches("10.9.9.9/8:*", "10.1.2.3:1"));
    assert!(!matches("10.9.9.9/8:*", "11.9.9.9:1"));
    assert!(matches("10.9.9.9/0:*", "1.2.3.4:1"));
    assert!(matches("10.9.9.9/40:*", "10.9.9.9:1") && !matches("10.9.9.9/40:*", "10.9.9.8:1"));
    assert!(!matches("10.9.9.9:*", "0.0.0.0:1"), "an address that is not named is none of them");
    assert!(matches("*:80", "[::1]:80") && !matches("*:80", "[::1]:81") && !matches("0.0.0.0/0:*", "[::1]:80"));
}

#[test]
fn the_shipped_file_leaves_name_servers_to_the_kernel() {
    let rules = rules(include_str!("../../../vma/libvma.conf"));
    assert!(matches!(decided(&rules, "x", Role::UdpConnect, "9.9.9.9:53"), Some((_, Transport::Os))));
    for role in Role::ALL {
        assert_eq!(decided(&rules, "x", role, "9.9.9.9:54"), None);
    }
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let net = prop::option::of((any::<u32>().prop_map(Ipv4Addr::from), 0..=32_u8));
    (net, any::<u16>(), any::<u16>()).prop_map(|(net, one, other)| Endpoint { net, first: one.min(other), last: one.max(other) })
}

fn any_statement() -> impl Strategy<Value = Statement> {
    let rule = (prop::sample::select(&Transport::ALL[..]), prop::sample::select(&Role::ALL[..]), endpoint(), prop::option::of(endpoint()));
    let destination = prop_oneof![
        Just(Destination::Stderr),
        Just(Destination::Syslog),
        "[^ \t\r\n#]+".prop_filter("it is split at blanks alone", |name| !name.is_empty()).prop_map(Destination::File),
    ];
    prop_oneof![
        rule.prop_map(|(transport, role, first, second)| Statement::Use(Rule { transport, role, first, second })),
        ("[^ \t\r\n#]+", "[^ \t\r\n#]+").prop_map(|(program, id)| Statement::ApplicationId(Scope { program, id })),
        (prop::option::of(destination), prop::option::of(1..=9_u8))
            .prop_map(|(destination, min_level)| Statement::Log(Log { destination, min_level })),
    ]
}

proptest! {
    #[test]
    fn no_text_is_too_much(text in "(use|os|log|application-id|min-level|tcp_server|[ \t*:/.0-9-]|\\PC|\n){0,40}") {
        let _ = Rules::parse(&text);
    }

    #[test]
    fn what_is_printed_means_the_same(statement in any_statement()) {
        prop_assert_eq!(grammar::statement(&statement.to_string(), 1), Ok(Some(statement)));
    }
}
