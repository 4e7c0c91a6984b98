//! What happens to an interface while programs talk over it. A connection goes on as soon as it can, as a kernel's does, and so does the kernel's own beside it.

use std::process::Command;
use std::time::Duration;

use crate::cable::{DEVICE, ENDS, PORT, Running, has_program, on_cable};
use crate::kernels;
use crate::namespaces::ip;
use crate::programs::{compile, library};

/// Has a program of ours and one of the kernel's talk to servers at the other end while `fault` happens at our end. Our programs' logs say this of it, once, and nothing else.
fn goes_on(said: &'static [&str], fault: impl Fn() + Send + 'static) {
    let says = move |log: String| {
        let lines: Vec<&str> = log.lines().collect();
        assert!(lines.len() == said.len() && lines.iter().zip(said).all(|(line, said)| line.contains(said)), "{said:?}\n{log}");
    };
    on_cable(move |cable| {
        let program = compile("tests/c/loads.c");
        for [here, there] in ENDS {
            let before = kernels();
            let server = cable.there(&["serve", there, PORT]);
            cable.await_listener(false);
            let mut ours = cable.here_of(&program, &["keeps", there, PORT]);
            // (It talks by now, most likely. If not, it begins amidst the fault.)
            std::thread::sleep(Duration::from_millis(500));
            fault();
            std::thread::sleep(Duration::from_millis(500));
            ours.close_input();
            says(ours.says());
            server.join().expect("the kernel's program");

            let server = cable.here(&["serve", here, PORT]);
            cable.await_listener(true);
            let mut theirs = cable.start_there(&program, &["keeps", here, PORT]);
            std::thread::sleep(Duration::from_millis(500));
            fault();
            std::thread::sleep(Duration::from_millis(500));
            theirs.close_input();
            theirs.ends_well();
            says(server.says());
            // (Each of them says something a thousand times a second. What comes for no ring that is there yet is the kernel's.)
            assert!(kernels()[0] - before[0] < 100, "all of it came by the ring: {:?} {before:?}", kernels());
        }
    });
}

/// The kernel takes addresses of IPv6 away with an interface that goes down.
const GIVE_BACK: &str = "addr replace fd78::1/64 dev a0 nodad\n";

#[test]
fn an_interface_goes_down_and_up() {
    goes_on(&["a0 was set down: its connections wait", "a0 is up again: its sockets go on"], || {
        ip("link set a0 down\n");
        std::thread::sleep(Duration::from_millis(300));
        ip(&format!("link set a0 up\n{GIVE_BACK}"));
    });
}

#[test]
fn neighbours_are_forgotten() {
    goes_on(&[], || (0..20).for_each(|_| ip("neigh flush dev a0\n")));
}

#[test]
fn addresses_go_and_come_back() {
    goes_on(&[], || {
        ip("addr del 10.78.0.1/24 dev a0\naddr del fd78::1/64 dev a0\n");
        std::thread::sleep(Duration::from_millis(300));
        ip(&format!("addr add 10.78.0.1/24 dev a0\n{GIVE_BACK}"));
    });
}

/// ip(8) does not take the program away that a link has put there, and the connection goes on. (Who can, and what becomes of it: `fronts.rs`.)
#[test]
fn somebody_tries_to_take_the_program_away() {
    goes_on(&[], || {
        assert!(has_program());
        for mode in ["xdp", "xdpdrv"] {
            let tried = Command::new("ip").args(["link", "set", "dev", "a0", mode, "off"]).output().expect("ip(8)");
            let said = String::from_utf8_lossy(&tried.stderr);
            assert!(!tried.status.success() && said.contains("active BPF XDP link"), "{mode}: {said}");
        }
        assert!(has_program());
    });
}

#[test]
fn without_memory_to_lock_the_kernel_serves_and_one_line_says_so() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        let mut command = Command::new("prlimit");
        command.args(["--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]);
        command.arg(&cable.program).args(["talk", there, PORT]);
        command.env("RINGWAY_DEVICE", DEVICE).env("VMA_CONFIG_FILE", "").env("LD_PRELOAD", library());
        let log = Running::start(command).says();
        server.join().expect("the kernel's program");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("a0")).collect();
        let [line] = lines[..] else { panic!("{log}") };
        assert!(line.contains("RLIMIT_MEMLOCK"), "{line}");
    });
}
