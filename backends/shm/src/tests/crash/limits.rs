//! A process that runs into its limits in the middle of a greeting: the other goes to the kernel, nobody hangs or spins, and
//! afterwards everything works again.

use std::fs::File;
use std::time::{Duration, Instant};

use ringway_stack::device::Protocol;

use super::frames::Member;
use super::run_alone;
use super::stage::{Endpoint, State, end, fork, state};
use crate::attach;
use crate::tests::{fresh_address, small, until};

/// So many free descriptors are more than a greeting takes.
const PLENTY: usize = 14;
/// Numbers below which all descriptors are used up.
const LIMIT: u64 = 700;

#[test]
fn a_greeting_that_runs_out_of_descriptors_fails_and_hurts_nobody() {
    run_alone("tests::crash::limits::descriptors");
}

#[test]
fn a_greeting_beyond_the_file_size_limit_fails_and_hurts_nobody() {
    run_alone("tests::crash::limits::file_size");
}

fn set_limit(resource: libc::__rlimit_resource_t, soft: u64) {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is readable and writable.
    unsafe {
        assert_eq!(libc::getrlimit64(resource, &raw mut limit), 0);
        limit.rlim_cur = soft.min(limit.rlim_max);
        assert_eq!(libc::setrlimit64(resource, &raw const limit), 0);
    }
}

/// Uses up all descriptors but `free`.
fn fill(free: usize) -> Vec<File> {
    let mut files: Vec<File> = core::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len() - free);
    files
}

fn descriptors_in_use() -> usize {
    (0..LIMIT as i32)
        // SAFETY: no memory is involved.
        .filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0)
        .count()
}

/// How the other process's search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    Found,
    Nobody,
    Failed,
}

/// Serves while another process looks for `node`. What it found.
fn be_searched(node: &mut Member, address: std::net::SocketAddrV4) -> Search {
    let child = fork(|| {
        node.rendezvous().after_fork_in_child();
        set_limit(libc::RLIMIT_FSIZE, u64::MAX);
        // Above what is inherited.
        set_limit(libc::RLIMIT_NOFILE, 2 * LIMIT);
        // It waits for as long as a busy machine's greeting may take: to be given no answer would be an error of its own too.
        let (_device, seeker) = attach(&small()).unwrap();
        let search = match seeker.resolve(Protocol::Tcp, address) {
            Ok(Some(_)) => Search::Found,
            Ok(None) => Search::Nobody,
            Err(_) => Search::Failed,
        };
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(search as i32) };
    });
    let begin = Instant::now();
    let status = loop {
        node.turn();
        match state(child) {
            State::Exited(status) => break status,
            State::Killed => panic!("the seeker was killed"),
            State::Runs | State::Stopped => assert!(begin.elapsed() < Duration::from_secs(60), "the seeker hangs"),
        }
    };
    [Search::Found, Search::Nobody, Search::Failed][libc::WEXITSTATUS(status) as usize]
}

/// Until the last peer's end was seen, and nothing is ready any more.
fn comes_to_rest(node: &mut Member) {
    let begin = Instant::now();
    loop {
        node.turn();
        let mut entry = libc::pollfd { fd: node.rendezvous().epoll_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        let ready = unsafe { libc::poll(&raw mut entry, 1, 20) };
        if ready == 0 && node.rendezvous().peers().is_empty() {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "it spins: its rendezvous is ready for ever");
    }
}

#[test]
#[ignore = "run alone, by a test above"]
fn descriptors() {
    set_limit(libc::RLIMIT_NOFILE, LIMIT);
    let mut node = Member::join();
    let address = fresh_address();
    node.settle(address);
    let mut found = 0;
    for free in 0..PLENTY {
        let at_rest = descriptors_in_use();
        let files = fill(free);
        let search = be_searched(&mut node, address);
        assert!(search != Search::Failed, "with {free} descriptors free, its peer sees an error of its own");
        found += u32::from(search == Search::Found);
        comes_to_rest(&mut node);
        drop(files);
        assert_eq!(descriptors_in_use(), at_rest, "with {free} descriptors free");
        assert_eq!(be_searched(&mut node, address), Search::Found, "after {free} descriptors were free");
        comes_to_rest(&mut node);
    }
    assert!(found > 0 && found < PLENTY as u32, "{found} greetings of {PLENTY} came through");
    search_with_few(&mut node);
}

/// Whether a socket listens under a name that ends so: it has the name before that, and refuses connections. (proc(5): the fourth field is the
/// kernel's flags, of which __SO_ACCEPTCON says so.)
fn is_listened_on(name: &str) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.lines().any(|line| line.ends_with(name) && line.split_ascii_whitespace().nth(3) == Some("00010000"))
}

/// The other way round: who looks has too few.
fn search_with_few(node: &mut Member) {
    let mut came_through = 0;
    for free in 0..PLENTY {
        let there = fresh_address();
        let child = fork(|| {
            node.rendezvous().after_fork_in_child();
            let mut found = Member::join();
            found.settle(there);
            loop {
                found.turn();
            }
        });
        let name = format!("tcp/{there}");
        until("its name", || is_listened_on(&name).then_some(()));
        let at_rest = descriptors_in_use();
        let files = fill(free);
        let begin = Instant::now();
        let search = node.rendezvous().resolve(Protocol::Tcp, there).map(|found| found.is_some());
        assert!(begin.elapsed() < Duration::from_secs(1), "{free} descriptors free: {:?}", begin.elapsed());
        drop(files);
        match search {
            Ok(true) => came_through += 1,
            Err(crate::ResolveError::System { .. }) => {
                assert_eq!(descriptors_in_use(), at_rest, "with {free} descriptors free");
                assert!(node.rendezvous().resolve(Protocol::Tcp, there).unwrap().is_some(), "after {free} descriptors were free");
            }
            other => panic!("{free} descriptors free: {other:?}"),
        }
        end(child);
        comes_to_rest(node);
        assert_eq!(descriptors_in_use(), at_rest, "after {free} descriptors were free");
    }
    assert!(came_through > 0 && came_through < PLENTY, "{came_through} of {PLENTY} came through");
}

#[test]
#[ignore = "run alone, by a test above"]
fn file_size() {
    let mut node = Member::join();
    let address = fresh_address();
    node.settle(address);
    // Its segment is there; the channel to a peer is not.
    set_limit(libc::RLIMIT_FSIZE, 4096);
    assert_eq!(be_searched(&mut node, address), Search::Nobody);
    comes_to_rest(&mut node);
    assert!(node.rendezvous().resolve(Protocol::Tcp, address).is_err(), "the channel to itself cannot be had either");
    set_limit(libc::RLIMIT_FSIZE, u64::MAX);
    assert_eq!(be_searched(&mut node, address), Search::Found);
}
