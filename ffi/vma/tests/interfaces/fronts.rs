//! What others do to the program in front of an interface, and to the interface: nothing of that is told to who has it. Whoever waits hears of it within a second, what can go
//! on does, and all that is new goes by the kernel.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::broker::serving::{NOBODY, with_broker};
use crate::cable::{Cable, ENDS, PORT, Running, await_nothing_left, eventually, has_program, on_cable};
use crate::kernels;
use crate::namespaces::ip;
use crate::programs::compile;

/// Within so long all have heard of it, on a machine that has much to do.
const AT_LAST: Duration = Duration::from_secs(3);

// bpf(2): include/uapi/linux/bpf.h.
const PROG_LOAD: i32 = 5;
const PROG_GET_FD_BY_ID: i32 = 13;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const LINK_UPDATE: i32 = 29;
const LINK_GET_FD_BY_ID: i32 = 30;
const LINK_GET_NEXT_ID: i32 = 31;
const LINK_DETACH: i32 = 34;
const PROG_TYPE_XDP: u32 = 6;
const LINK_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

fn bpf(command: i32, words: &[(usize, u32)]) -> (i64, [u32; 32]) {
    let mut attributes = [0_u32; 32];
    words.iter().for_each(|(at, word)| attributes[at / 4] = *word);
    // SAFETY: the attributes are readable and writable; what the callers have them point to is borrowed meanwhile.
    (unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of_val(&attributes)) }, attributes)
}

fn opened(command: i32, words: &[(usize, u32)]) -> OwnedFd {
    let (fd, _) = bpf(command, words);
    assert!(fd >= 0, "bpf({command}): {}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made it, for us.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn done(command: i32, words: &[(usize, u32)]) {
    assert!(bpf(command, words).0 >= 0, "bpf({command}): {}", std::io::Error::last_os_error());
}

fn halves(pointer: u64) -> [u32; 2] {
    [pointer as u32, (pointer >> 32) as u32]
}

/// The link that is in front of our interface, in this network namespace, and its program's number.
fn link() -> (OwnedFd, u32) {
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(c"a0".as_ptr()) };
    let mut id = 0;
    loop {
        let (result, answer) = bpf(LINK_GET_NEXT_ID, &[(0, id)]);
        assert!(result >= 0, "no link is in front of a0");
        id = answer[1];
        // (One of another test's, which is gone by now, is none.)
        let (fd, _) = bpf(LINK_GET_FD_BY_ID, &[(0, id)]);
        if fd < 0 {
            continue;
        }
        // SAFETY: the kernel has just made it, for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        let mut info = [0_u32; 16];
        let [low, high] = halves(info.as_mut_ptr() as u64);
        done(OBJ_GET_INFO_BY_FD, &[(0, fd.as_raw_fd() as u32), (4, size_of_val(&info) as u32), (8, low), (12, high)]);
        // (The index is one of its own network namespace: ours has it, if `ip` sees its program.)
        if info[0] == LINK_TYPE_XDP && info[4] == index && shown().contains(&format!("id {} ", info[2])) {
            return (fd, info[2]);
        }
    }
}

fn shown() -> String {
    let shown = Command::new("ip").args(["-details", "link", "show", "a0"]).output().expect("ip(8)");
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

/// `bpftool link detach`.
fn detach() {
    let (link, _) = link();
    done(LINK_DETACH, &[(0, link.as_raw_fd() as u32)]);
}

/// A program that leaves everything to the kernel.
fn passes_all() -> OwnedFd {
    // r0 = XDP_PASS; exit.
    let program: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    let ([low, high], [name_low, name_high]) = (halves(program.as_ptr() as u64), halves(c"MIT".as_ptr() as u64));
    opened(PROG_LOAD, &[(0, PROG_TYPE_XDP), (4, 2), (8, low), (12, high), (16, name_low), (20, name_high), (68, ATTACH_XDP)])
}

/// Has the link put another program there.
fn replace(with: &OwnedFd) {
    let (link, _) = link();
    done(LINK_UPDATE, &[(0, link.as_raw_fd() as u32), (4, with.as_raw_fd() as u32)]);
}

/// A program of ours that waits on a connection and on datagrams, for a server that the kernel has at the other end. What it says in the end, and how long after `fault` that is.
fn hears_of(cable: &Cable, ours: impl FnOnce(&Cable) -> Running, fault: impl FnOnce()) -> String {
    let server = cable.there(&["serve", ENDS[0][1], PORT]);
    cable.await_listener(false);
    let mut client = ours(cable);
    client.await_ready();
    // (It waits in earnest.)
    std::thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    fault();
    let log = client.says();
    assert!(begin.elapsed() < AT_LAST, "{:?}, its farewell by the kernel included", begin.elapsed());
    server.join().expect("the kernel's program");
    log
}

fn waits(cable: &Cable) -> Running {
    cable.here(&["removed", ENDS[0][1], PORT])
}

/// The lines of a log, which are to be so many.
fn lines<const COUNT: usize>(log: &str) -> [&str; COUNT] {
    log.lines().collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("{log}"))
}

/// A second cable between the two ends, which has the addresses once the first has them no longer.
fn second_cable(cable: &Cable) {
    let here = File::open("/proc/thread-self/ns/net").expect("our namespace");
    let at = format!("/proc/{}/fd/{}", std::process::id(), here.as_raw_fd());
    cable.within_there(move || ip(&format!("link add b1 type veth peer name a1\nlink set a1 netns {at}\nlink set b1 up\n")));
    ip("link set a1 up\n");
    drop(here);
}

fn addresses_move(cable: &Cable) {
    ip("addr add 10.78.0.1/24 dev a1\n");
    cable.within_there(|| {
        let _ = Command::new("ip").args(["addr", "flush", "dev", "b0"]).output();
        ip("addr add 10.78.0.2/24 dev b1\n");
    });
}

#[test]
fn an_interface_that_is_deleted_or_moves_away_is_gone_and_the_kernel_goes_on_without() {
    for moves in [false, true] {
        on_cable(move |cable| {
            second_cable(cable);
            let there = cable.within_there(|| File::open("/proc/thread-self/ns/net").expect("its namespace"));
            let away = format!("link set a0 netns /proc/{}/fd/{}\n", std::process::id(), there.as_raw_fd());
            let log = hears_of(cable, waits, || {
                ip(if moves { &away } else { "link del a0\n" });
                addresses_move(cable);
            });
            let [line] = lines(&log);
            assert!(line.contains("a0 is gone: it was deleted, or is in another network namespace"), "{line}");
            assert!(line.contains("new ones are the kernel's until the program is started again"), "{line}");
        });
    }
}

#[test]
fn a_program_that_somebody_detaches_is_attached_again() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let program = compile("tests/c/idle.c");
        let before = kernels();
        let mut log = String::new();
        cable.while_served(&cable.program, &["serve", there, PORT], || {
            let mut client = cable.here_of(&program, &["idle", there, PORT]);
            client.await_ready();
            detach();
            assert!(!has_program());
            eventually("it is attached again", has_program);
            client.close_input();
            log = client.says();
        });
        let [line] = lines(&log);
        assert!(line.contains("somebody has detached our program from a0: it is attached again"), "{line}");
        let now = kernels();
        assert!(now[1] == before[1] && now[0] - before[0] < 8, "all of it came by the ring: {now:?} {before:?}");
        await_nothing_left();
    });
}

#[test]
fn who_detaches_it_twice_means_it() {
    on_cable(|cable| {
        let log = hears_of(cable, waits, || {
            detach();
            eventually("it is attached again", has_program);
            detach();
        });
        let [first, second] = lines(&log);
        assert!(
            first.contains("it is attached again") && second.contains("a0 is gone: somebody has detached our program from it twice"),
            "{log}"
        );
        assert!(!has_program());
    });
}

#[test]
fn another_program_in_place_of_ours_stays_and_whoever_waits_hears_of_it() {
    on_cable(|cable| {
        let other = passes_all();
        let log = hears_of(cable, waits, || {
            // Ours is back before anybody is in need of it.
            let (_, own) = link();
            let ours = opened(PROG_GET_FD_BY_ID, &[(0, own)]);
            replace(&other);
            replace(&ours);
            drop(ours);
            std::thread::sleep(Duration::from_millis(700));
            replace(&other);
        });
        let [first, second] = lines(&log);
        assert!(first.contains("another program is in front of a0 in place of ours (bpftool prog show id "), "{log}");
        assert!(second.contains("a0 is gone: another program is in front of it"), "{log}");
    });
}

#[test]
fn who_has_the_ring_from_a_broker_hears_of_it_as_well() {
    with_broker(NOBODY, |cable, broker| {
        let ours = |cable: &Cable| broker.start(&cable.program, &["removed", ENDS[0][1], PORT]);
        let log = hears_of(cable, ours, detach);
        let [line] = lines(&log);
        assert!(line.contains("a0 is gone: our program was detached from it") && line.contains("it is a broker's"), "{line}");
        // The broker's next program has the interface, with the program in front of it.
        let before = kernels();
        cable.while_served(&cable.program, &["serve", ENDS[0][1], PORT], || {
            broker.start(&cable.program, &["talk", ENDS[0][1], PORT]).ends_well();
        });
        assert_eq!(kernels()[1], before[1], "datagrams came by the ring");
    });
}
