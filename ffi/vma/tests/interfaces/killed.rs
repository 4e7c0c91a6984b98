//! Programs that are killed. Nothing of theirs is left, neither in front of the interface nor in the kernel; and as nobody is left to tell their peers, each of these hears
//! of it from the kernel beside the interface, as soon as it sends something: by a reset (RFC 9293 s3.10.7.1).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use crate::cable::{ENDS, PORT, Running, await_nothing_left, eventually, on_cable};
use crate::programs::compile;

/// Kills it, and sees that nothing of it is left.
fn kill(ours: Running) {
    let objects = objects_of(ours.pid());
    // (The program is there twice: as it was loaded, and as its link's.)
    let count = |kind| objects.iter().filter(|object| object.kind == kind).map(|object| object.id).collect::<BTreeSet<_>>().len();
    assert!(count(MAP) >= 2 && count(PROGRAM) == 1, "rules, sockets, and a program: {objects:?}");
    ours.kill();
    await_nothing_left();
    eventually("the kernel has none of its maps, and not its program", || !objects.iter().any(Object::is_there));
}

/// One of ours is killed that has connected itself to one of the kernel's, which then sees a reset.
fn is_killed_and_heard(killed: &'static str, hears: &'static str) {
    on_cable(move |cable| {
        let program = compile("tests/c/leaves.c");
        for [_, there] in ENDS {
            let peer = cable.there_of(&program, &[hears, there, PORT]);
            cable.await_listener(false);
            let mut ours = cable.here_of(&program, &[killed, there, PORT]);
            ours.await_ready();
            kill(ours);
            peer.join().expect("the kernel's program");
        }
    });
}

#[test]
fn who_sends_to_one_that_was_killed_hears_a_reset() {
    is_killed_and_heard("idle", "sends-on");
}

#[test]
fn who_reads_what_one_that_was_killed_had_sent_hears_a_reset() {
    is_killed_and_heard("stuck", "stalls");
}

#[test]
fn who_sends_to_a_server_that_was_killed_hears_a_reset() {
    on_cable(|cable| {
        let program = compile("tests/c/leaves.c");
        for [here, _] in ENDS {
            for address in [here, if here.contains(':') { "::" } else { "0.0.0.0" }] {
                let mut server = cable.here_of(&program, &["serving", address, PORT]);
                cable.await_listener(true);
                let client = cable.there_of(&program, &["asks-on", here, PORT]);
                server.await_ready();
                kill(server);
                client.join().expect("the kernel's program");
            }
        }
    });
}

/// Something that a process has of the kernel's BPF, and its number there.
#[derive(Debug)]
struct Object {
    kind: &'static str,
    id: u32,
}

/// What proc(5) calls them, in /proc/PID/fdinfo.
const MAP: &str = "map_id";
const PROGRAM: &str = "prog_id";

/// What a process has descriptors of.
fn objects_of(pid: i32) -> Vec<Object> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("a living process").flatten();
    let texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let object = |text: &str| {
        // (A link names its program.)
        let of = |kind| {
            Some(Object { kind, id: text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(':'))?.trim().parse().ok()? })
        };
        of(MAP).or_else(|| of(PROGRAM))
    };
    texts.filter_map(|text| object(&text)).collect()
}

impl Object {
    /// Whether the kernel still has it (bpf(2)).
    fn is_there(&self) -> bool {
        const PROG_GET_FD_BY_ID: i32 = 13;
        const MAP_GET_FD_BY_ID: i32 = 14;
        let command = if self.kind == MAP { MAP_GET_FD_BY_ID } else { PROG_GET_FD_BY_ID };
        let attributes = [self.id, 0, 0, 0];
        // SAFETY: the attributes are readable for their length.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(&attributes)) };
        if fd >= 0 {
            // SAFETY: the kernel has just made it, for us.
            drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
            return true;
        }
        let error = io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}");
        false
    }
}
