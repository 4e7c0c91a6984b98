//! What calls say while something is wrong with an interface: a program of ours and the same one on the kernel see the same, at the same time; and one line of our log says what
//! is wrong.

use std::time::Duration;

use crate::cable::{Cable, ENDS, PORT, Running, on_cable};
use crate::namespaces::ip;
use crate::programs::compile;

const A_WELL: &str = "to 0, send 0, whole 0, stream 0, connect 0, then 0 0 0";

struct Both {
    ours: Running,
    kernels: Running,
}

impl Both {
    /// What both say. (Ours hears of what is wrong by rtnetlink, a moment later.)
    fn say(&mut self, when: &str) -> String {
        self.say_before("\n", when)
    }

    /// The same, of which what comes before that word is to be the same.
    fn say_before(&mut self, end: &str, when: &str) -> String {
        let before = |said: &str| said.split(end).next().map(str::to_owned);
        let mut said = [String::new(), String::new()];
        for _ in 0..20 {
            self.ours.ask();
            self.kernels.ask();
            said = [&mut self.ours, &mut self.kernels].map(Running::line);
            if before(&said[0]) == before(&said[1]) {
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
            if said == A_WELL {
                return;
            }
        }
        panic!("no longer {after}: {said}");
    }
}

#[test]
fn whatever_is_wrong_calls_say_what_a_kernels_sockets_say() {
    on_cable(|cable| {
        let [here, there] = ENDS[0];
        // (The kernel is to find soon that a neighbour does not answer.)
        std::fs::write("/proc/sys/net/ipv4/neigh/a0/retrans_time_ms", "100").expect("a setting");
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        let program = compile("tests/c/errnos.c");
        let words = ["errnos", there, PORT];
        let ours = Cable::preloaded(&program, &words, &[("VMA_TRACELEVEL", "info")]);
        let mut both = Both { ours, kernels: Cable::kernels_of(&program, &words) };
        both.ours.await_ready();
        both.kernels.await_ready();
        assert_eq!(both.say("at first"), A_WELL);

        let route = |kind: &str| [format!("route add {kind} {there}/32\n"), format!("route del {there}/32\n")];
        for (kind, error) in [("unreachable", "EHOSTUNREACH"), ("prohibit", "EACCES"), ("blackhole", "EINVAL")] {
            let [wrong, right] = route(kind);
            let said = both.see(kind, &wrong, &right);
            assert!(said.starts_with(&format!("to {error}, ")), "{kind}: {said}");
        }
        let mtu = both.see("a route of 1300 bytes", &format!("route add {there}/32 dev a0 mtu 1300\n"), &format!("route del {there}/32\n"));
        assert!(mtu.contains("send 0, whole EMSGSIZE, "), "{mtu}");
        let mtu = both.see("an MTU of 1300 bytes", "link set a0 mtu 1300\n", "link set a0 mtu 1500\n");
        assert!(mtu.contains("send 0, whole EMSGSIZE, "), "{mtu}");
        let gone = format!("addr del {here}/24 dev a0\n");
        both.see("without its address", &gone, &format!("addr add {here}/24 dev a0\n"));
        let down = both.see("down", "link set a0 down\n", "link set a0 up\n");
        assert!(down.starts_with("to ENETUNREACH, ") && down.contains("connect ENETUNREACH, "), "{down}");
        // (A kernel's sockets hear by and by that the neighbour does not answer: `docs/interfaces.md`.)
        cable.within_there(|| ip("link set b0 down\n"));
        let carrier = both.say_before("connect ", "without a carrier");
        assert!(carrier.starts_with("to 0, send 0, whole 0, stream 0, "), "{carrier}");
        cable.within_there(|| ip("link set b0 up\n"));
        both.await_well("without a carrier");
        cable.within_there(|| ip("link set b0 arp off\n"));
        ip("neigh flush dev a0\n");
        let silent = both.say_before("then ", "where the neighbour does not answer");
        assert!(silent.contains("connect EHOSTUNREACH, "), "{silent}");
        cable.within_there(|| ip("link set b0 arp on\n"));
        both.await_well("where the neighbour does not answer");

        let Both { mut ours, mut kernels } = both;
        [&mut ours, &mut kernels].into_iter().for_each(Running::close_input);
        kernels.ends_well();
        let log = ours.says();
        for line in [
            "routes have changed, to 10.78.0.2/32",
            "a0 has an MTU of 1300 bytes now",
            "a0 has lost the address 10.78.0.1",
            "a0 has the address 10.78.0.1 now",
            "VMA WARNING: a0 was set down: its connections wait",
            "VMA WARNING: a0 is up again",
            "VMA WARNING: a0 has lost its carrier",
            "10.78.0.2 does not answer (ip neigh)",
        ] {
            assert!(log.contains(line), "{line}\n{log}");
        }
        Cable::kernels_of(&cable.program, &["quit", there, PORT]).ends_well();
        server.join().expect("the kernel's program");
    });
}
