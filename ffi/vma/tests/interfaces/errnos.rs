//! What calls say while something is wrong with an interface: a program of ours and the same one on the kernel see the same, at the same time; and one line of our log says what
//! is wrong.

use std::time::Duration;

use crate::cable::{Cable, ENDS, PORT, Running, eventually, on_cable};
use crate::namespaces::ip;
use crate::programs::compile;

const A_WELL: &str = "to 0, send 0, whole 0, stream 0, connect 0, then 0 0 0";

struct Both {
    ours: Running,
    kernels: Running,
    /// What is compared of what they say.
    told: fn(&str) -> &str,
}

impl Both {
    /// What both say. (Ours hears of what is wrong by rtnetlink, a moment later.)
    fn say(&mut self, when: &str) -> String {
        self.say_by(self.told, when)
    }

    /// The same, of which what comes before that word is to be the same.
    fn say_before(&mut self, end: &str, when: &str) -> String {
        self.say_by(|said| said.split(end).next().unwrap_or(said), when)
    }

    /// The same, of which that is to be the same.
    fn say_by(&mut self, told: impl Fn(&str) -> &str, when: &str) -> String {
        let mut said = [String::new(), String::new()];
        for _ in 0..20 {
            self.ours.ask();
            self.kernels.ask();
            said = [&mut self.ours, &mut self.kernels].map(Running::line);
            if told(&said[0]) == told(&said[1]) {
                let [ours, _] = said;
                return ours;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{when}: ours, and the kernel's: {said:#?}")
    }

    /// The same while something is wrong at our end, and when it no longer is.
    fn see(&mut self, what: &str, wrong: &str, right: &str) -> String {
        ip(wrong);
        let said = self.say(what);
        ip(right);
        self.await_well(what);
        said
    }

    /// (A carrier is back a moment later.)
    fn await_well(&mut self, after: &str) {
        let mut said = String::new();
        for _ in 0..20 {
            said = self.say(after);
            if (self.told)(&said) == (self.told)(A_WELL) {
                return;
            }
        }
        panic!("no longer {after}: {said}");
    }
}

#[test]
fn whatever_is_wrong_calls_say_what_a_kernels_sockets_say() {
    on_cable(|cable| calls_say_what_a_kernels_sockets_say(cable, &V4));
}

#[test]
fn whatever_is_wrong_calls_of_ipv6_say_what_a_kernels_sockets_say() {
    on_cable(|cable| calls_say_what_a_kernels_sockets_say(cable, &V6));
}

/// What is of a family.
struct Family {
    ends: [&'static str; 2],
    /// As the kernel's settings have it.
    name: &'static str,
    /// Lengths of a prefix: all of an address, and the network's.
    prefixes: [u8; 2],
    /// What is compared.
    told: fn(&str) -> &str,
}

const V4: Family = Family { ends: ENDS[0], name: "ipv4", prefixes: [32, 24], told: |said| said };
/// (SO_ERROR of a kernel's connection of IPv6 tells of a route that is no more, which ends nothing: `docs/interfaces.md`.)
const V6: Family = Family { ends: ENDS[1], name: "ipv6", prefixes: [128, 64], told: but_for_the_connections };

/// What is said before a connection's SO_ERROR.
fn but_for_the_connections(said: &str) -> &str {
    said.rsplit_once(' ').map_or(said, |(before, _)| before)
}

fn calls_say_what_a_kernels_sockets_say(cable: &Cable, family: &Family) {
    let ([here, there], [host, network]) = (family.ends, family.prefixes);
    // (The kernel is to find soon that a neighbour does not answer, and an address of IPv6 is to outlive its interface's being down, as one of IPv4 does.)
    std::fs::write(format!("/proc/sys/net/{}/neigh/a0/retrans_time_ms", family.name), "100").expect("a setting");
    let keep = |interface: &str| std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/keep_addr_on_down"), "1").expect("a setting");
    keep("a0");
    cable.within_there(move || keep("b0"));
    let server = cable.there(&["serve", there, PORT]);
    cable.await_listener(false);
    let program = compile("tests/c/errnos.c");
    let words = ["errnos", there, PORT];
    let log = std::env::temp_dir().join(format!("ringway-errnos-{}-{}", family.name, std::process::id()));
    let logged = |line: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(line));
    let file = log.to_str().expect("a path of ASCII");
    let ours = Cable::preloaded(&program, &words, &[("VMA_TRACELEVEL", "info"), ("VMA_LOG_FILE", file)]);
    let mut both = Both { ours, kernels: Cable::kernels_of(&program, &words), told: family.told };
    both.ours.await_ready();
    both.kernels.await_ready();
    assert_eq!(both.say("at first"), A_WELL);

    let route = |kind: &str| [format!("route add {kind} {there}/{host}\n"), format!("route del {there}/{host}\n")];
    for (kind, error) in [("unreachable", "EHOSTUNREACH"), ("prohibit", "EACCES"), ("blackhole", "EINVAL")] {
        let [wrong, right] = route(kind);
        let said = both.see(kind, &wrong, &right);
        assert!(said.starts_with(&format!("to {error}, ")), "{kind}: {said}");
    }
    let mtu =
        both.see("a route of 1300 bytes", &format!("route add {there}/{host} dev a0 mtu 1300\n"), &format!("route del {there}/{host}\n"));
    assert!(mtu.contains("send 0, whole EMSGSIZE, "), "{mtu}");
    ip("link set a0 mtu 1300\n");
    let mtu = both.say("an MTU of 1300 bytes");
    assert!(mtu.contains("send 0, whole EMSGSIZE, "), "{mtu}");
    // (What is changed back before anybody has looked was never so. The kernel tells of the routes' first.)
    eventually("the log tells of the MTU", || logged("a0 has an MTU of 1300 bytes now"));
    ip("link set a0 mtu 1500\n");
    both.await_well("an MTU of 1300 bytes");
    let gone = format!("addr del {here}/{network} dev a0\n");
    both.see("without its address", &gone, &format!("addr add {here}/{network} dev a0\n"));
    let down = both.see("down", "link set a0 down\n", "link set a0 up\n");
    assert!(down.starts_with("to ENETUNREACH, ") && down.contains("connect ENETUNREACH, "), "{down}");
    // (A kernel's sockets hear by and by that the neighbour does not answer: `docs/interfaces.md`.)
    cable.within_there(|| ip("link set b0 down\n"));
    let carrier = both.say_before("connect ", "without a carrier");
    assert!(carrier.starts_with("to 0, send 0, whole 0, stream 0, "), "{carrier}");
    cable.within_there(|| ip("link set b0 up\n"));
    both.await_well("without a carrier");
    // (Which takes Neighbour Discovery from a link, too.)
    cable.within_there(|| ip("link set b0 arp off\n"));
    ip("neigh flush dev a0\n");
    // (SO_ERROR of a kernel's connection tells of it for once, though that ends nothing.)
    let silent = both.say_by(but_for_the_connections, "where the neighbour does not answer");
    assert!(silent.contains("connect EHOSTUNREACH, "), "{silent}");
    cable.within_there(|| ip("link set b0 arp on\n"));
    both.await_well("where the neighbour does not answer");

    let Both { mut ours, mut kernels, .. } = both;
    [&mut ours, &mut kernels].into_iter().for_each(Running::close_input);
    kernels.ends_well();
    ours.ends_well();
    let said = std::fs::read_to_string(&log).expect("the log");
    for line in [
        &format!("routes have changed, to {there}/{host}"),
        "a0 has an MTU of 1300 bytes now",
        &format!("a0 has lost the address {here}"),
        &format!("a0 has the address {here} now"),
        "VMA WARNING: a0 was set down: its connections wait",
        "VMA WARNING: a0 is up again",
        "VMA WARNING: a0 has lost its carrier",
        &format!("{there} does not answer (ip neigh)"),
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    std::fs::remove_file(&log).expect("it is there");
    Cable::kernels_of(&cable.program, &["quit", there, PORT]).ends_well();
    server.join().expect("the kernel's program");
}
