//! Which descriptors are ours: a lock-free table, looked up by every interposed call.
//!
//! Two levels, the second made as descriptors appear: a lookup of a descriptor that is not ours is one or two loads,
//! and a huge RLIMIT_NOFILE costs nothing. What an entry names lives in the slabs of [`crate::process::Offload`] and is
//! verified by its generation under the lock, so that no call counts references.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use ringway_stack::Instant;

use crate::byfd::{ByFd, Empty};
use crate::errno::Errno;
use crate::real;
use crate::slab::Key;
use crate::socket::connect::kernel_result;
use crate::unseen::{self, Wiped};

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

const KIND_SHIFT: u32 = 61;
const INDEX_BITS: u32 = 29;

/// The kind of [`Entry::Socket`].
const SOCKET: u64 = 1;

/// Descriptors from here on are not in the table.
pub(crate) const LIMIT: u32 = (CHUNK * CHUNKS) as u32;

/// The index of an epoll instance that has no entry in the epolls' table yet.
pub(crate) const UNREGISTERED: u32 = (1 << INDEX_BITS) - 1;

/// What a descriptor is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Not ours: the call is the kernel's.
    None,
    /// A socket that is, or may yet be, offloaded.
    Socket(Key),
    /// A socket that was left to the kernel for good; the key is for statistics.
    Kernel(Key),
    /// An epoll instance: its place in the epolls' table, or [`UNREGISTERED`].
    Epoll(u32),
    /// A descriptor of the library's own, which the program does not know of.
    Internal,
    /// A connection that this process inherited by fork, and has not used: it is its parent's; see [`crate::moving::inherited`].
    Inherited(Key),
    /// A connection that is neither the ring's any more nor the kernel's yet; see [`crate::moving`].
    Moving(Key),
    /// A connection that was inherited, and is the kernel's now; the key is for its addresses.
    Settled(Key),
}

impl Entry {
    #[inline]
    const fn key(word: u64) -> Key {
        Key { index: (word >> 32) as u32 & ((1 << INDEX_BITS) - 1), generation: word as u32 }
    }

    #[inline]
    const fn unpack(word: u64) -> Self {
        let key = Self::key(word);
        match word >> KIND_SHIFT {
            SOCKET => Self::Socket(key),
            2 => Self::Kernel(key),
            3 => Self::Epoll(key.index),
            4 => Self::Internal,
            5 => Self::Inherited(key),
            6 => Self::Moving(key),
            7 => Self::Settled(key),
            _ => Self::None,
        }
    }

    const fn pack(self) -> u64 {
        let (kind, key) = match self {
            Self::None => return 0,
            Self::Socket(key) => (SOCKET, key),
            Self::Kernel(key) => (2, key),
            Self::Epoll(index) => (3, Key { index, generation: 0 }),
            Self::Internal => (4, Key { index: 0, generation: 0 }),
            Self::Inherited(key) => (5, key),
            Self::Moving(key) => (6, key),
            Self::Settled(key) => (7, key),
        };
        kind << KIND_SHIFT | (key.index as u64) << 32 | key.generation as u64
    }

    /// The key of a socket, wherever it is carried.
    pub(crate) const fn socket(self) -> Option<Key> {
        match self {
            Self::Socket(key) | Self::Kernel(key) | Self::Moving(key) => Some(key),
            _ => None,
        }
    }
}

struct Slot {
    entry: AtomicU64,
    /// Successful receive calls that the kernel served.
    kernel_rx: AtomicU64,
    /// Successful send calls that the kernel served.
    kernel_tx: AtomicU64,
    /// Which open file it is (the upper half: [`identity`]), and when that was last looked at (the lower: [`ticks`]).
    stamp: AtomicU64,
}

impl Slot {
    /// See [`is_stale`].
    #[inline(always)]
    fn is_stale(&self, fd: i32, now: Instant) -> bool {
        !self.is_fresh(now) && names_another(self, fd, self.stamp.load(Ordering::Relaxed), ticks(now))
    }

    /// Whether it was looked at not long ago, and numbers name what they did.
    #[inline(always)]
    fn is_fresh(&self, now: Instant) -> bool {
        ticks(now).wrapping_sub(self.stamp.load(Ordering::Relaxed) as u32) < LOOK_EVERY && !UNSEEN.load(Ordering::Relaxed)
    }
}

/// Every piece of the table.
static PIECES: ByFd<Slot, CHUNK, CHUNKS> = ByFd::new();

/// The same pieces, as every call finds them: gone in the child of a fork that nobody told of, so that it notices ([`crate::unseen`]).
static TABLE: Wiped<ByFd<Slot, CHUNK, CHUNKS>> = Wiped::new(ByFd::new());

impl Empty for Slot {
    const EMPTY: Self =
        Self { entry: AtomicU64::new(0), kernel_rx: AtomicU64::new(0), kernel_tx: AtomicU64::new(0), stamp: AtomicU64::new(0) };
}

/// A number of which there is no piece; unless the table is gone.
#[cold]
#[inline(never)]
fn missing(fd: i32) -> Option<&'static Slot> {
    unseen::look();
    TABLE.find(fd)
}

/// Lets the kernel take the table away from a child.
pub(crate) fn wipe_on_fork() -> bool {
    TABLE.wipe_on_fork()
}

/// In a child: the table is there again.
pub(crate) fn restore() {
    TABLE.share(&PIECES);
}

#[inline(always)]
fn slot(fd: i32) -> Option<&'static Slot> {
    match TABLE.find(fd) {
        None if !unseen::is_here() => missing(fd),
        found => found,
    }
}

/// What `fd` is to a program's call that uses it. What this process does not have yet, or has no more, is waited for.
#[inline]
pub(crate) fn lookup(fd: i32) -> Entry {
    let Some(slot) = slot(fd) else { return Entry::None };
    let word = slot.entry.load(Ordering::Acquire);
    // (The one that a busy program asks for, first: no table of eight jumps.)
    if word >> KIND_SHIFT == SOCKET {
        return Entry::Socket(Entry::key(word));
    }
    if word == 0 { Entry::None } else { lookup_other(fd, word) }
}

/// As [`lookup`], for a call with these flags (recv(2)): if it is not to wait, it does not wait for a connection that moves either, but
/// finds it on its way.
#[inline]
pub(crate) fn lookup_with(fd: i32, flags: i32) -> Entry {
    match lookup_socket(fd, flags) {
        Ok(found) => Entry::Socket(found.key),
        Err(entry) => entry,
    }
}

/// A socket of ours, and its number's place in the table.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) key: Key,
    slot: &'static Slot,
}

impl Found {
    /// Whether the number, which is `fd`, has come to name another open file. Costs a system call every 100 ms at most, until
    /// [`note_unseen`].
    #[inline(always)]
    pub(crate) fn is_stale(&self, fd: i32, now: Instant) -> bool {
        self.slot.is_stale(fd, now)
    }

    /// Whether that it has not is known without a look.
    #[inline(always)]
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        self.slot.is_fresh(now)
    }
}

/// As [`lookup_socket`], where there is nothing to be waited for. `None`: it is no socket of ours, or not yet, or no more.
#[inline(always)]
pub(crate) fn find_socket(fd: i32) -> Option<Found> {
    let slot = TABLE.find(fd)?;
    let word = slot.entry.load(Ordering::Acquire);
    (word >> KIND_SHIFT == SOCKET).then(|| Found { key: Entry::key(word), slot })
}

/// As [`lookup_with`], for those that go on with the number's place in the table.
///
/// # Errors
/// It is no socket of ours, but this.
#[inline]
pub(crate) fn lookup_socket(fd: i32, flags: i32) -> Result<Found, Entry> {
    let Some(slot) = slot(fd) else { return Err(Entry::None) };
    let word = slot.entry.load(Ordering::Acquire);
    if word >> KIND_SHIFT == SOCKET {
        return Ok(Found { key: Entry::key(word), slot });
    }
    if word == 0 {
        return Err(Entry::None);
    }
    match lookup_other_with(fd, word, flags) {
        Entry::Socket(key) => Ok(Found { key, slot }),
        entry => Err(entry),
    }
}

#[inline(never)]
fn lookup_other_with(fd: i32, word: u64, flags: i32) -> Entry {
    match Entry::unpack(word) {
        Entry::Moving(_) if crate::moving::is_impatient(fd, flags) => crate::moving::await_end_for(fd, crate::moving::MOMENTS),
        _ => lookup_other(fd, word),
    }
}

#[inline(never)]
fn lookup_other(fd: i32, word: u64) -> Entry {
    match Entry::unpack(word) {
        Entry::Inherited(key) => crate::moving::inherited::settle(fd, key),
        Entry::Moving(_) => crate::moving::await_end(fd),
        Entry::Settled(_) => Entry::None,
        entry => entry,
    }
}

/// Whether a call that lost its socket under its hands finds it in the kernel.
#[cold]
pub(crate) fn has_moved(fd: i32) -> bool {
    matches!(lookup(fd), Entry::Kernel(_))
}

/// Whether `fd` is on its way from the ring to the kernel.
pub(crate) fn is_moving(fd: i32) -> bool {
    matches!(peek(fd), Entry::Moving(_))
}

/// What `fd` is to us.
#[inline]
pub(crate) fn peek(fd: i32) -> Entry {
    match slot(fd) {
        Some(slot) => Entry::unpack(slot.entry.load(Ordering::Acquire)),
        None => Entry::None,
    }
}

#[cold]
fn make(fd: i32) -> Option<&'static Slot> {
    let slot = PIECES.find_or_make(fd);
    TABLE.share(&PIECES);
    slot
}

/// Enters a descriptor, with counters at zero; `false`: its number is beyond the table, and it stays the kernel's alone.
pub(crate) fn set(fd: i32, entry: Entry) -> bool {
    set_of(fd, entry, if entry.socket().is_some() { identity(fd) } else { 0 })
}

/// As [`set`], for a duplicate of a file whose identity is known.
pub(crate) fn set_of(fd: i32, entry: Entry, identity: u32) -> bool {
    let Some(slot) = slot(fd).or_else(|| make(fd)) else { return false };
    slot.kernel_rx.store(0, Ordering::Relaxed);
    slot.kernel_tx.store(0, Ordering::Relaxed);
    crate::fd_counters::forget(fd);
    slot.stamp.store(if identity != 0 { u64::from(identity) << 32 | u64::from(present()) } else { 0 }, Ordering::Relaxed);
    slot.entry.store(entry.pack(), Ordering::Release);
    true
}

/// Times that [`renew`] was called.
static RENEWED: AtomicU32 = AtomicU32::new(0);

/// Puts another open file under the number on purpose: no other thread takes that for a close that was not seen.
///
/// # Errors
/// As dup3(2).
pub(crate) fn renew(fd: i32, file: i32, flags: i32) -> Result<(), Errno> {
    let slot = slot(fd);
    if let Some(slot) = slot {
        slot.stamp.store(0, Ordering::SeqCst);
    }
    // SAFETY: plain integers; the program cannot see the moment in which the number changes its meaning.
    let result = kernel_result(unsafe { real::dup3(file, fd, flags) });
    if let Some(slot) = slot {
        // (The lower half only says when to look again; that it differs each time tells who looked before.)
        let turn = RENEWED.fetch_add(1, Ordering::Relaxed);
        slot.stamp.store(u64::from(identity(fd)) << 32 | u64::from(turn), Ordering::SeqCst);
    }
    result.map(drop)
}

/// Which open file a number names: zero if none. Two files that live at a time have the same only by chance, one in four thousand
/// million; sockets never do (the kernel numbers them with 32 bits).
pub(crate) fn identity(fd: i32) -> u32 {
    // SAFETY: all of it is integers, for which zero is a value.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    let saved = crate::errno::current();
    // SAFETY: the structure is valid for writing.
    let known = unsafe { libc::fstat(fd, &raw mut status) } == 0;
    crate::errno::set(saved);
    if !known {
        return 0;
    }
    let (device, inode) = (status.st_dev, status.st_ino);
    (inode as u32 ^ (inode >> 32) as u32 ^ (device as u32).rotate_left(20)).max(1)
}

/// The program may close a number by a call that the library does not see (its own `syscall` instruction, io_uring), and get it again
/// for something else. So a number that is used is looked at now and then; once that has happened in a process, with every call.
const LOOK_EVERY: u32 = 100;

/// Whether a number was ever found to name another file than it did.
static UNSEEN: AtomicBool = AtomicBool::new(false);

/// Whether the number has come to name another open file. Costs a system call every 100 ms at most, until [`note_unseen`].
#[inline(always)]
pub(crate) fn is_stale(fd: i32, now: Instant) -> bool {
    slot(fd).is_some_and(|slot| slot.is_stale(fd, now))
}

/// A time in units of 2^20 ns, about a millisecond.
#[inline]
const fn ticks(now: Instant) -> u32 {
    (now.as_nanos() >> 20) as u32
}

/// The present in such units: what was looked at just now need not be looked at again by the next call.
fn present() -> u32 {
    crate::process::process().map_or(0, |process| ticks(process.now()))
}

/// Whether the number has come to name another open file, or none.
pub(crate) fn is_stale_now(fd: i32) -> bool {
    slot(fd).is_some_and(|slot| {
        let stamp = slot.stamp.load(Ordering::Relaxed);
        names_another(slot, fd, stamp, stamp as u32)
    })
}

#[cold]
fn names_another(slot: &Slot, fd: i32, stamp: u64, now: u32) -> bool {
    let known = stamp & !u64::from(u32::MAX);
    if known == 0 || known == u64::from(identity(fd)) << 32 {
        // (Not over what [`renew`] has stored meanwhile.)
        let _ = slot.stamp.compare_exchange(stamp, known | u64::from(now), Ordering::SeqCst, Ordering::Relaxed);
        return false;
    }
    // (Else it was renewed meanwhile, or another thread looked.)
    slot.stamp.load(Ordering::SeqCst) == stamp
}

/// A close was missed: from now on every call looks.
pub(crate) fn note_unseen() -> bool {
    !UNSEEN.swap(true, Ordering::Relaxed)
}

/// Changes what a descriptor is, and keeps its counters.
pub(crate) fn change(fd: i32, entry: Entry) {
    if let Some(slot) = slot(fd) {
        slot.entry.store(entry.pack(), Ordering::Release);
    }
}

/// As [`change`], unless another thread has changed it, or taken it out, meanwhile.
pub(crate) fn change_if(fd: i32, from: Entry, to: Entry) {
    if let Some(slot) = slot(fd) {
        let _ = slot.entry.compare_exchange(from.pack(), to.pack(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Takes a descriptor out; what it was.
pub(crate) fn clear(fd: i32) -> Entry {
    match slot(fd) {
        // A plain load first: close() of what is not ours must not dirty the line.
        Some(slot) if slot.entry.load(Ordering::Relaxed) != 0 => Entry::unpack(slot.entry.swap(0, Ordering::AcqRel)),
        _ => Entry::None,
    }
}

/// Takes a descriptor out if it is still that. Whether it was.
pub(crate) fn clear_if(fd: i32, entry: Entry) -> bool {
    slot(fd).is_some_and(|slot| slot.entry.compare_exchange(entry.pack(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

/// Counts a receive call that the kernel served.
#[inline]
pub(crate) fn count_kernel_rx(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.kernel_rx.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a send call that the kernel served.
#[inline]
pub(crate) fn count_kernel_tx(fd: i32) {
    SENT_BY_KERNEL.fetch_add(1, Ordering::Relaxed);
    if let Some(slot) = slot(fd) {
        slot.kernel_tx.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the process has sent through the kernel, which may be for a socket of its own.
static SENT_BY_KERNEL: AtomicU64 = AtomicU64::new(0);

/// How many send calls of the process's the kernel has served.
#[inline]
pub(crate) fn sent_by_kernel() -> u64 {
    SENT_BY_KERNEL.load(Ordering::Relaxed)
}

/// A thread is about to wait in the plain real epoll behind `fd`. (An epoll instance receives nothing: the counter is free.)
#[inline]
pub(crate) fn begin_plain_wait(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.kernel_rx.fetch_add(1, Ordering::SeqCst);
    }
}

/// That wait is over.
#[inline]
pub(crate) fn end_plain_wait(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.kernel_rx.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether threads wait in the plain real epoll behind `fd`.
pub(crate) fn has_plain_waits(fd: i32) -> bool {
    slot(fd).is_some_and(|slot| slot.kernel_rx.load(Ordering::SeqCst) != 0)
}

/// Receive and send calls that the kernel served.
pub(crate) fn kernel_counts(fd: i32) -> (u64, u64) {
    slot(fd).map_or((0, 0), |s| (s.kernel_rx.load(Ordering::Relaxed), s.kernel_tx.load(Ordering::Relaxed)))
}

/// Every descriptor that is ours in some way, ascending.
pub(crate) fn entries() -> impl Iterator<Item = (i32, Entry)> {
    unseen::look();
    TABLE.numbers().map(|fd| (fd, peek(fd))).filter(|&(_, entry)| entry != Entry::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { index: 0x1fff_fffe, generation: 0xdead_beef };

    #[test]
    fn entries_survive_packing() {
        let all = [
            Entry::None,
            Entry::Socket(KEY),
            Entry::Kernel(KEY),
            Entry::Epoll(UNREGISTERED),
            Entry::Internal,
            Entry::Inherited(KEY),
            Entry::Moving(KEY),
            Entry::Settled(KEY),
        ];
        for entry in all {
            assert_eq!(Entry::unpack(entry.pack()), entry);
        }
    }

    #[test]
    fn what_was_inserted_is_found_until_removed() {
        let fd = 700_001;
        assert_eq!(lookup(fd), Entry::None);
        assert!(set(fd, Entry::Socket(KEY)));
        count_kernel_rx(fd);
        change(fd, Entry::Kernel(KEY));
        assert_eq!(lookup(fd), Entry::Kernel(KEY));
        assert_eq!(kernel_counts(fd), (1, 0));
        assert_eq!(entries().filter(|e| e.0 == fd).count(), 1);
        assert_eq!(clear(fd), Entry::Kernel(KEY));
        assert_eq!(clear(fd), Entry::None);
    }

    #[test]
    fn numbers_beyond_the_table_are_never_ours() {
        for fd in [-1, i32::MIN, i32::MAX] {
            assert_eq!(lookup(fd), Entry::None);
            assert!(!set(fd, Entry::Socket(KEY)));
            assert_eq!(clear(fd), Entry::None);
        }
    }
}
