//! A network namespace with links, addresses, routes and rules.

use core::time::Duration;
use std::io::Write;
use std::process::{Command, Stdio};

use ringway_stack::net::Change;

use crate::netlink::Monitor;
use crate::sleep::ppoll;

/// Runs a test in a network namespace of its thread's own, which ends with it. `None`: this run may not have one; it fails where CI is set, and
/// says so elsewhere.
pub(super) fn in_namespace(test: impl FnOnce() + Send) {
    let is_made = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no memory is involved.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 || Command::new("ip").arg("-V").output().is_err() {
                return false;
            }
            // Addresses can be used at once, not after a second of duplicate address detection.
            let set = |name: &str| std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"), "0");
            set("default").and_then(|()| set("all")).expect("settings of a new namespace");
            ip("link set lo up\n");
            test();
            true
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if !is_made {
        assert!(std::env::var_os("CI").is_none(), "no network namespace, or no ip(8), is to be had");
        eprintln!("left out: a network namespace needs root, and ip(8)");
    }
}

/// Runs lines of ip(8), each of which must do.
pub(super) fn ip(lines: &str) {
    let errors = try_ip(lines);
    assert!(errors.is_empty(), "ip: {errors}\n{lines}");
}

/// Runs lines of ip(8), and gives what it complains about.
pub(super) fn try_ip(lines: &str) -> String {
    let mut command = Command::new("ip");
    command.args(["-force", "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("ip(8)");
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("ip(8) reads");
    let output = child.wait_with_output().expect("ip(8)");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What ip(8) prints.
pub(super) fn show(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip(8)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sleeps and refreshes until what changed since this began, and the tables, are as wanted.
pub(super) fn until(monitor: &mut Monitor, mut is_done: impl FnMut(&Monitor, &[Change]) -> bool) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..200 {
        if let Some(new) = monitor.refresh().expect("rtnetlink") {
            changes.extend(new.iter().cloned());
        }
        if is_done(monitor, &changes) {
            return changes;
        }
        let mut fds = [libc::pollfd { fd: monitor.fd(), events: libc::POLLIN, revents: 0 }];
        ppoll(&mut fds, Some(Duration::from_millis(50)), None).expect("ppoll");
    }
    panic!("it does not come: {changes:?}");
}

/// Random numbers that are the same each time (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    pub(super) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// The links of [`world`] that are up.
pub(super) const LINKS: [&str; 4] = ["a0", "b0", "c0", "br0"];

/// Tables that routes are in.
const TABLES: [&str; 5] = ["main", "main", "100", "101", "102"];

/// Makes links with addresses, and random routes, rules and neighbours.
pub(super) fn world(random: &mut Random) {
    let mut lines = String::new();
    for link in ["a", "b", "c", "d"] {
        // (Fixed addresses make a world the same each time.)
        lines += &format!("link add {link}0 address 02:00:00:00:0{link}:00 type veth peer name {link}1 address 02:00:00:00:0{link}:01\n");
        lines += &format!("link set {link}1 up\n");
    }
    lines += "link add br0 address 02:00:00:00:00:0b type bridge\nlink set d1 master br0\n";
    lines += "link set a0 up\nlink set b0 up mtu 9000\nlink set c0 up mtu 1400\nlink set br0 up\n";
    // (d0 stays down.)
    lines += "addr add 10.0.1.1/24 dev a0\naddr add 10.0.1.2/24 dev a0\naddr add 10.1.0.1/16 dev a0\n";
    lines += "addr add 10.0.2.1/24 dev b0\naddr add 10.2.0.1 peer 10.2.0.2/32 dev b0\naddr add 10.9.0.1/24 dev b0 scope link\n";
    lines += "addr add 10.0.3.1/25 dev c0\naddr add 192.168.0.1/16 dev br0\naddr add 10.99.0.1/32 dev lo\naddr add 10.0.4.1/24 dev d0\n";
    lines += "addr add fd00:1::1/64 dev a0\naddr add fd00:1::2/64 dev a0 preferred_lft 0\naddr add fd00:2::1/64 dev b0\n";
    lines +=
        "addr add 2001:db8:3::1/64 dev c0\naddr add 2002:a00::1/64 dev c0\naddr add fd00:4::1/48 dev br0\naddr add fd00:99::1/128 dev lo\n";
    super::world::ip(&lines);
    let mut lines = String::new();
    let mut v6: Vec<(u32, String)> = (0..40).map(|_| route_v6(random)).collect();
    // A source-specific route whose prefix was a mere fork of the kernel's tree before is not found by the kernel: so they come first, and the
    // shortest before all.
    v6.sort_by_key(|(length, line)| if line.contains(" from ") { *length } else { u32::MAX });
    for (_, line) in v6 {
        lines += &route_v4(random);
        lines += &line;
    }
    if !random.one_in(3) {
        for family in ["-4", "-6"] {
            for _ in 0..1 + random.below(6) {
                lines += &rule(random, family);
            }
        }
    }
    // A router that does not answer.
    lines += "neigh add fd00:1::fe dev a0 nud failed\nneigh add fd00:2::fe dev b0 lladdr 02:00:00:00:00:fe nud permanent\n";
    let errors = super::world::try_ip(&batch(&lines));
    // Routes that are there already, and ways that the kernel does not take, are refused; most are not.
    let refused = errors.matches("Command failed").count();
    assert!(refused * 2 < lines.lines().count(), "{refused} of\n{lines}\n{errors}");
}

/// A batch knows no -4 and -6: lines of rules name the family by their addresses, or are run apart.
fn batch(lines: &str) -> String {
    let (mut all, mut v6) = (String::new(), String::new());
    for line in lines.lines() {
        match (line.strip_prefix("-4 "), line.strip_prefix("-6 ")) {
            (Some(line), _) => all += &format!("{line}\n"),
            (_, Some(line)) => v6 += &format!("{line}\n"),
            _ => all += &format!("{line}\n"),
        }
    }
    if !v6.is_empty() {
        let mut command = Command::new("ip");
        command.args(["-6", "-force", "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("ip(8)");
        child.stdin.take().expect("piped").write_all(v6.as_bytes()).expect("ip(8) reads");
        child.wait().expect("ip(8)");
    }
    all
}

fn way(random: &mut Random, is_v6: bool) -> String {
    let v4 =
        ["via 10.0.1.254 dev a0", "via 10.0.2.254 dev b0", "via 10.1.3.3 dev a0", "via 10.0.3.100 dev c0", "dev c0", "dev br0", "dev a0"];
    let v6 = [
        "via fd00:1::fe dev a0",
        "via fd00:2::fe dev b0",
        "via fd00:1::fd dev a0",
        "via 2001:db8:3::9 dev c0",
        "via fe80::9 dev b0",
        "dev br0",
        "dev b0",
    ];
    random.of(if is_v6 { &v6 } else { &v4 }).into()
}

fn several_ways(random: &mut Random, is_v6: bool) -> String {
    let mut ways = String::new();
    for _ in 0..2 + random.below(2) {
        ways += &format!(" nexthop {} weight {}", way(random, is_v6), 1 + random.below(3));
    }
    ways
}

fn route_v4(random: &mut Random) -> String {
    let length = random.of(&[0, 8, 9, 12, 14, 15, 16, 20, 23, 24, 28, 31, 32]);
    let network = std::net::Ipv4Addr::from(random_v4(random).to_bits() & (u64::MAX << (32 - length)) as u32);
    let table = random.of(&TABLES);
    let metric = random.of(&["", "", " metric 5", " metric 100"]);
    let tos = random.of(&["", "", "", " tos 0x10", " tos 0x08"]);
    if random.one_in(6) {
        let kind = random.of(&["unreachable", "blackhole", "prohibit", "throw"]);
        return format!("route add {kind} {network}/{length} table {table}{metric}{tos}\n");
    }
    let source = random.of(&["", "", "", " src 10.0.2.1", " src 10.99.0.1"]);
    let mtu = random.of(&["", "", " mtu 1200", " mtu 4000"]);
    let ways = if random.one_in(4) { several_ways(random, false) } else { format!(" {}", way(random, false)) };
    format!("route add {network}/{length} table {table}{metric}{tos}{source}{mtu}{ways}\n")
}

/// The length of its prefix, and the line that adds it.
fn route_v6(random: &mut Random) -> (u32, String) {
    let length = random.of(&[0, 7, 16, 20, 32, 40, 48, 56, 64, 96, 127, 128]);
    let network = random_v6(random).to_bits() & u128::MAX.checked_shl(128 - length).unwrap_or(0);
    let network = std::net::Ipv6Addr::from(network);
    let table = random.of(&TABLES);
    let metric = random.of(&["", "", " metric 5", " metric 2000"]);
    let from = random.of(&["", "", "", "", " from fd00:1::/64", " from fd00::/16"]);
    // (Where link-local and multicast addresses part is a fork from the start.)
    let from = if length == 7 { "" } else { from };
    if random.one_in(6) {
        let kind = random.of(&["unreachable", "blackhole", "prohibit", "throw"]);
        return (length, format!("route add {kind} {network}/{length} table {table}{metric}\n"));
    }
    let source = random.of(&["", "", "", " src fd00:2::1", " src fd00:99::1"]);
    let mtu = random.of(&["", "", " mtu 1300", " mtu 4000"]);
    let preference = random.of(&["", "", " pref high", " pref low"]);
    let ways = if random.one_in(4) { several_ways(random, true) } else { format!(" {}", way(random, true)) };
    // Routers appended one by one become one multipath route, of which a dump tells the first one's MTU alone.
    let add = if ways.contains("via") { "add" } else { "append" };
    (length, format!("route {add} {network}/{length}{from} table {table}{metric}{source}{mtu}{preference}{ways}\n"))
}

fn rule(random: &mut Random, family: &str) -> String {
    let is_v6 = family == "-6";
    let priority = 100 + random.below(50);
    let not = if random.one_in(8) { " not" } else { "" };
    let from = if is_v6 {
        random.of(&[" from fd00:1::/64", " from fd00:2::1", ""])
    } else {
        random.of(&[" from 10.0.1.0/24", " from 10.0.2.1", ""])
    };
    let to = if is_v6 { random.of(&[" to fd00::/17", "", ""]) } else { random.of(&[" to 10.0.0.0/9", "", ""]) };
    let what = random.of(&[
        "",
        " fwmark 0x5",
        " fwmark 0x4/0x6",
        " uidrange 1000-1400",
        " tos 0x10",
        " iif lo",
        " oif b0",
        " iif a0",
        " ipproto tcp",
        " dport 80-90",
    ]);
    let action = random.of(&[
        "table 100",
        "table 101",
        "table 102",
        "table 100 suppress_prefixlength 16",
        "table main suppress_prefixlength 0",
        "goto 32766",
        "type unreachable",
        "type prohibit",
        "type blackhole",
    ]);
    format!("{family} rule add{not} pref {priority}{from}{to}{what} {action}\n")
}

/// Mostly where the routes are.
pub(super) fn random_v4(random: &mut Random) -> std::net::Ipv4Addr {
    let low = random.word() as u32;
    let bits = match random.below(12) {
        0..6 => 0x0a00_0000 | low & 0x000f_07ff,
        6 | 7 => 0x0a00_0000 | low & 0x00ff_ffff,
        8 => 0xc0a8_0000 | low & 0xffff,
        9 => 0x7f00_0000 | low & 0x00ff_ffff,
        10 => random.of(&[
            0xe000_0001,
            0xe000_0101,
            0xefff_0102,
            0xffff_ffff,
            0x0a00_01ff,
            0x0a00_02ff,
            0x0a01_ffff,
            0x0000_0001,
            0xc0a8_ffff,
        ]),
        _ => low,
    };
    bits.into()
}

/// Mostly where the routes are.
pub(super) fn random_v6(random: &mut Random) -> std::net::Ipv6Addr {
    let low = u128::from(random.word()) << 64 | u128::from(random.word());
    let bits = match random.below(12) {
        0..6 => 0xfd00 << 112 | (low & 0x7) << 96 | low >> 64 & 0x3,
        6 | 7 => 0xfd00 << 112 | low & (u128::MAX >> 16),
        8 => 0x2001_0db8 << 96 | (low & 7) << 80 | low & 0xff,
        9 => 0x2002 << 112 | low & (u128::MAX >> 16),
        10 => random.of(&[
            1,
            0xfe80 << 112 | 9,
            0xff02 << 112 | 1,
            0xff05 << 112 | 0x1_0003,
            0xff0e << 112 | 7,
            0xfd00_0001 << 96 | 1,
            0xfd00_0099 << 96 | 1,
        ]),
        _ => low,
    };
    bits.into()
}
