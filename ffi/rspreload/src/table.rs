//! Which descriptors are ours. Whether one is at all takes a load, so that all others' calls go on at once; what it is stands behind one lock, under which
//! nothing else is locked and nothing of rsockets' is called, and which a fork holds.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_preload::vfork::SHARES_MEMORY;

use crate::epoll::Interest;
use crate::socket::Socket;

/// Descriptors from here on are never ours (fs.nr_open's default).
const LIMIT: usize = 1 << 20;

const SOCKET: u8 = 1;
const EPOLL: u8 = 2;
const INTERNAL: u8 = 3;

/// What each descriptor is. (Pages that are never written are never there.)
static KINDS: [AtomicU8; LIMIT] = [const { AtomicU8::new(0) }; LIMIT];

/// What stands behind the lock.
pub(crate) struct Table {
    pub(crate) sockets: BTreeMap<c_int, Arc<Socket>>,
    pub(crate) epolls: BTreeMap<c_int, Interest>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { sockets: BTreeMap::new(), epolls: BTreeMap::new() });

/// The process that the table is of. A child of vfork has its memory, and descriptors of its own.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// From now on, the table is this process's.
pub(crate) fn own() {
    // SAFETY: it takes nothing.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Whether the calling process is the table's. (Only after a child that shares memory need the kernel be asked.)
pub(crate) fn is_owner() -> bool {
    // SAFETY: it takes nothing.
    !SHARES_MEMORY.load(Ordering::Relaxed) || OWNER.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

pub(crate) fn lock() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kind(fd: c_int) -> u8 {
    usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd)).map_or(0, |kind| kind.load(Ordering::Relaxed))
}

fn set_kind(fd: c_int, to: u8) -> bool {
    usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd)).map(|kind| kind.store(to, Ordering::Relaxed)).is_some()
}

/// Whether it is a socket or an epoll instance of ours.
#[inline]
pub(crate) fn is_known(fd: c_int) -> bool {
    matches!(kind(fd), SOCKET | EPOLL)
}

/// Whether it is an epoll instance that we know.
#[inline]
pub(crate) fn is_epoll(fd: c_int) -> bool {
    kind(fd) == EPOLL
}

/// Whether it is this library's own, of which the program does not know.
#[inline]
pub(crate) fn is_internal(fd: c_int) -> bool {
    kind(fd) == INTERNAL || ringway_host::is_internal(fd) || rsocket::api::is_internal(fd)
}

/// Says so.
pub(crate) fn set_internal(fd: c_int, is_internal: bool) {
    set_kind(fd, if is_internal { INTERNAL } else { 0 });
}

/// A socket that is ours.
#[inline]
pub(crate) fn socket(fd: c_int) -> Option<Arc<Socket>> {
    if kind(fd) != SOCKET || !is_owner() {
        return None;
    }
    lock().sockets.get(&fd).cloned()
}

impl Table {
    /// A descriptor is that socket's from now on. (One too high to be remembered stays the kernel's.)
    pub(crate) fn insert(&mut self, fd: c_int, socket: Arc<Socket>) {
        if set_kind(fd, SOCKET) {
            socket.names.fetch_add(1, Ordering::Relaxed);
            self.sockets.insert(fd, socket);
        }
    }

    /// A descriptor is that epoll instance from now on.
    pub(crate) fn insert_epoll(&mut self, fd: c_int) {
        if set_kind(fd, EPOLL) {
            self.epolls.insert(fd, Interest::default());
        }
    }

    /// A descriptor is nobody's that we know. Its socket, if it was the last name of one.
    pub(crate) fn remove(&mut self, fd: c_int) -> Option<Arc<Socket>> {
        if !is_known(fd) {
            return None;
        }
        set_kind(fd, 0);
        self.epolls.remove(&fd);
        let socket = self.sockets.remove(&fd)?;
        self.epolls.values_mut().for_each(|interest| interest.forget(fd));
        (socket.names.fetch_sub(1, Ordering::Relaxed) == 1).then_some(socket)
    }
}
