//! Programs that are killed at any moment, under load: their peers hear of it, and nothing of them is left, neither in front of the interface nor in the rules of
//! those who live on.

use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use crate::cable::{ENDS, PORT, await_nothing_left, eventually, on_cable};
use crate::programs::compile;

/// How often one is killed here, and two are there: two hundred kills.
const KILLS: usize = 67;

/// Some milliseconds, other ones each time.
pub(crate) fn moment(turn: usize) -> Duration {
    Duration::from_millis(20 + ((turn as u64 * 2_654_435_761) >> 7) % 200)
}

/// How many connections the kernel of the calling thread's namespace has there: those of /proc/net/tcp, but listeners and TIME-WAIT (proc(5): 0A, 06).
fn connections() -> usize {
    let port = format!(":{:04X} ", PORT.parse::<u16>().expect("a port"));
    let text = fs::read_to_string("/proc/thread-self/net/tcp").expect("the kernel's table");
    text.lines().filter(|line| line.contains(&port) && !line.contains(" 0A ") && !line.contains(" 06 ")).count()
}

#[test]
fn whoever_is_killed_under_load_is_gone_for_its_peers() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let program = compile("tests/c/loads.c");
        let server = cable.there_of(&program, &["echoes", there, PORT]);
        cable.await_listener(false);
        for turn in 0..KILLS {
            let client = cable.here_of(&program, &["presses", there, PORT]);
            cable.within_there(|| eventually("it has connections", || connections() > 0));
            std::thread::sleep(moment(turn));
            client.kill();
            await_nothing_left();
            cable.within_there(|| eventually("the server has none of its connections", || connections() == 0));
        }
        cable.there_of(&program, &["quits", there, PORT]).join().expect("the kernel's program");
        server.join().expect("the kernel's program");
    });
}

#[test]
fn the_rules_of_the_dead_are_reaped() {
    on_cable(|cable| {
        let [here, _] = ENDS[0];
        let program = compile("tests/c/loads.c");
        let server = cable.here_of(&program, &["echoes", here, PORT]);
        cable.await_listener(true);
        let rules = rules_of(server.pid());
        assert_ne!(rules, 0, "a listener has one");
        for turn in 0..KILLS {
            let clients = [(); 2].map(|()| cable.start_there(&program, &["presses", here, PORT]));
            std::thread::sleep(moment(turn));
            for client in clients {
                client.kill();
            }
        }
        eventually("no rule is left but those of before", || rules_of(server.pid()) == rules);
        cable.there_of(&program, &["quits", here, PORT]).join().expect("the kernel's program");
        server.ends_well();
        await_nothing_left();
    });
}

/// `bpf(2)`'s BPF_MAP_GET_NEXT_KEY.
const MAP_GET_NEXT_KEY: i32 = 4;
/// Bytes of a flow rule's key.
const KEY_LEN: usize = 40;

/// Flow rules in the map of a process.
pub(crate) fn rules_of(pid: i32) -> usize {
    keys_of(pid).len()
}

/// Those of them that are for groups: a key has the destination, as on the wire, behind the source, of which each takes sixteen bytes; and a byte for the family.
pub(crate) fn group_rules_of(pid: i32) -> usize {
    let is_group = |key: &&[u8; KEY_LEN]| if key[37] == 4 { key[16] & 0xf0 == 0xe0 } else { key[16] == 0xff };
    keys_of(pid).iter().filter(is_group).count()
}

/// The keys of its map of rules (proc(5): what /proc/PID/fdinfo says of a hash, whose type is 1, with such keys).
fn keys_of(pid: i32) -> Vec<[u8; KEY_LEN]> {
    let is_rules = |text: &str| {
        let has = |name: &str, value: &str| text.lines().any(|line| line.split_once(":\t") == Some((name, value)));
        has("map_type", "1") && has("key_size", &KEY_LEN.to_string())
    };
    let mut descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("a living process").flatten();
    let has_rules = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| is_rules(&text));
    let map = descriptors.find(|entry| has_rules(entry.path())).expect("its map of rules");
    let number: i32 = map.file_name().to_string_lossy().parse().expect("a number");
    // SAFETY: plain integers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    assert!(process >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made it, for us.
    let process = unsafe { OwnedFd::from_raw_fd(process as i32) };
    // SAFETY: plain integers.
    let map = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    assert!(map >= 0, "pidfd_getfd: {}", std::io::Error::last_os_error());
    // SAFETY: as above.
    let map = unsafe { OwnedFd::from_raw_fd(map as i32) };
    let mut keys: Vec<[u8; KEY_LEN]> = Vec::new();
    let mut next = [0_u8; KEY_LEN];
    loop {
        let mut attributes = [0_u64; 16];
        let before = keys.last().map_or(0, |key| key.as_ptr() as u64);
        (attributes[0], attributes[1], attributes[2]) = (map.as_raw_fd() as u64, before, next.as_mut_ptr() as u64);
        // SAFETY: the attributes are readable for their length, and the keys that they name readable and writable for the map's.
        let found = unsafe { libc::syscall(libc::SYS_bpf, MAP_GET_NEXT_KEY, attributes.as_mut_ptr(), size_of_val(&attributes)) };
        if found != 0 {
            return keys;
        }
        keys.push(next);
    }
}
