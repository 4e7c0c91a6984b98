//! A preloaded library that turns connections to one port of IPv4 to another one, and counts what it sees: `TURN=7001:7002`. When the program
//! ends, the counts go to standard error.
//!
//!     TURN=7001:7002 LD_PRELOAD=target/debug/examples/libturned.so PROGRAM

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use libc::{AF_INET, nfds_t, pollfd, sigset_t, size_t, sockaddr, sockaddr_in, socklen_t, ssize_t};
use ringway_preload::{Intercept, Timeout, boundary, errno, next};

/// From which port to which: the upper half and the lower.
static TURN: AtomicU32 = AtomicU32::new(0);

static TURNED: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static POLLS: AtomicUsize = AtomicUsize::new(0);
static EXITS: AtomicUsize = AtomicUsize::new(0);

struct Turned;

fn tell() {
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    eprintln!("turned {} received {} polls {} exits {}", count(&TURNED), count(&BYTES), count(&POLLS), count(&EXITS));
}

fn count_bytes(received: ssize_t) -> ssize_t {
    BYTES.fetch_add(usize::try_from(received).unwrap_or(0), Ordering::Relaxed);
    received
}

impl Intercept for Turned {
    fn loaded() {
        let turn = std::env::var("TURN").ok();
        let ports = turn.as_deref().and_then(|turn| turn.split_once(':')).map(|(from, to)| (from.parse::<u16>(), to.parse::<u16>()));
        if let Some((Ok(from), Ok(to))) = ports {
            TURN.store(u32::from(from) << 16 | u32::from(to), Ordering::Relaxed);
        }
    }

    unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        let turn = TURN.load(Ordering::Relaxed);
        // SAFETY: the program's promise to connect(2): so many bytes are there, of a family first.
        let is_ipv4 =
            !errno::is_nowhere(address) && len as usize >= size_of::<sockaddr_in>() && unsafe { (*address).sa_family } == AF_INET as u16;
        if !is_ipv4 || turn == 0 {
            // SAFETY: the program's arguments, as they are.
            return unsafe { next::connect(fd, address, len) };
        }
        // SAFETY: as above.
        let mut to = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
        if u32::from(u16::from_be(to.sin_port)) == turn >> 16 {
            to.sin_port = (turn as u16).to_be();
            TURNED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: an address of that length.
        unsafe { next::connect(fd, (&raw const to).cast(), size_of::<sockaddr_in>() as socklen_t) }
    }

    unsafe fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        // SAFETY: the program's arguments, as they are.
        count_bytes(unsafe { next::read(fd, buffer, len) })
    }

    unsafe fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's arguments, as they are.
        count_bytes(unsafe { next::recv(fd, buffer, len, flags) })
    }

    unsafe fn poll(_: *mut pollfd, _: nfds_t, _: Timeout, _: *const sigset_t, next: impl Fn() -> c_int) -> c_int {
        POLLS.fetch_add(1, Ordering::Relaxed);
        next()
    }

    fn before_exit() {
        EXITS.fetch_add(1, Ordering::Relaxed);
        boundary!((), tell());
    }
}

ringway_preload::interpose!(Turned);
