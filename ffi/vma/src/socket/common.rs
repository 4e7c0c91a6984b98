//! Placeholders that accepted connections have in common.
//!
//! A connection of the ring needs a descriptor of the kernel's: a number that is a socket to fstat, and whose options getsockopt tells. But
//! a kernel's TCP socket of its own costs nearly 4 KiB, and an idle connection asks nothing of it. So accepted connections whose
//! options and O_NONBLOCK are alike (a [`OptionSet`]) share one: their descriptors are duplicates of it. An option that is set, or O_NONBLOCK,
//! puts the descriptor onto the one with that option set. Whatever else is to be done to the placeholder itself makes it the connection's own
//! first ([`own`]): a move to the kernel, a fork (whose child shares it from then on), connect, O_ASYNC, and options of unusual length.

use core::ffi::{c_int, c_void};

use libc::socklen_t;
use ringway_host::numbers;

use super::connect::kernel_result;
use super::{Family, lifecycle};
use crate::errno::Errno;
use crate::fdtable::{self, Entry};
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::{descendants, real};

/// So many option sets, and no more: a program that sets something else on every connection has placeholders of their own.
const OPTION_SETS_MAX: usize = 32;

/// The longest value of an option that an option set has.
const VALUE_MAX: usize = 16;

/// An option that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    level: c_int,
    name: c_int,
    len: u8,
    value: [u8; VALUE_MAX],
}

impl Setting {
    /// `None`: no option set has such a value.
    fn new(level: c_int, name: c_int, bytes: &[u8]) -> Option<Self> {
        let mut value = [0; VALUE_MAX];
        value.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { level, name, len: bytes.len() as u8, value })
    }

    /// (What did not fail when the program set it does not fail now.)
    fn apply(&self, fd: c_int) {
        let value = self.value.as_ptr().cast();
        // SAFETY: the value is longer than it says.
        unsafe { real::setsockopt(fd, self.level, self.name, value, socklen_t::from(self.len)) };
    }
}

/// What connections have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OptionSet {
    family: Family,
    nonblocking: bool,
    /// In the order in which they were set.
    settings: Vec<Setting>,
}

/// An option set's placeholder, and which open file that is ([`fdtable::identity`]).
#[derive(Clone, Copy, Debug)]
struct Placeholder {
    fd: c_int,
    identity: u32,
}

/// What an accepted connection shares: its option set's place, and which open file its descriptor names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    pub(super) place: u8,
    pub(super) identity: u32,
}

/// The option sets of a process's connections, each with its placeholder.
#[derive(Debug, Default)]
pub(crate) struct OptionSets {
    known: Vec<(OptionSet, Placeholder)>,
    /// Sockets on which the kernel is asked what it thinks of an option, of both families.
    scratch: [Option<c_int>; 2],
}

impl OptionSets {
    fn find(&self, option_set: &OptionSet) -> Option<u8> {
        self.known.iter().position(|(known, _)| known == option_set).and_then(|place| u8::try_from(place).ok())
    }

    fn placeholder(&self, place: u8) -> Placeholder {
        self.known[usize::from(place)].1
    }
}

/// A descriptor for a connection that this listener accepts (`flags` as accept4's), and what it shares with others.
pub(super) fn accepted(process: &Process, listener: Key, flags: c_int) -> Result<(c_int, Option<Common>), Errno> {
    let option_set = {
        let guard = process.lock();
        let listener = guard.sockets.find(listener).ok_or(Errno(libc::EBADF))?;
        let inherited = listener.inherited_by_accepted().filter_map(|(level, name, value)| Setting::new(level, name, &value.to_ne_bytes()));
        OptionSet { family: listener.family, nonblocking: flags & libc::SOCK_NONBLOCK != 0, settings: inherited.collect() }
    };
    let family = option_set.family;
    let Some(place) = place_of(process, option_set)? else {
        return Ok((lifecycle::placeholder(family, flags)?, None));
    };
    let Placeholder { fd: source, identity } = process.lock().option_sets.placeholder(place);
    let command = if flags & libc::SOCK_CLOEXEC == 0 { libc::F_DUPFD } else { libc::F_DUPFD_CLOEXEC };
    // SAFETY: plain integers.
    let fd = kernel_result(numbers::lowest(|| unsafe { real::fcntl(source, command, 0) }))?;
    lifecycle::arriving(fd);
    Ok((fd, Some(Common { place, identity })))
}

/// Where an option set is, made if there is none such. `None`: there is no room for it.
fn place_of(process: &Process, option_set: OptionSet) -> Result<Option<u8>, Errno> {
    {
        let guard = process.lock();
        match guard.option_sets.find(&option_set) {
            None if guard.option_sets.known.len() >= OPTION_SETS_MAX => return Ok(None),
            None => {}
            place => return Ok(place),
        }
    }
    let nonblocking = if option_set.nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    let fd = descendants::make_out_of_the_way(|| lifecycle::placeholder(option_set.family, libc::SOCK_CLOEXEC | nonblocking))?;
    option_set.settings.iter().for_each(|setting| setting.apply(fd));
    let placeholder = Placeholder { fd, identity: fdtable::identity(fd) };
    let mut guard = process.lock();
    // (Another thread may have made the same meanwhile: then there are two, and the first is used.)
    guard.option_sets.known.push((option_set, placeholder));
    Ok(u8::try_from(guard.option_sets.known.len() - 1).ok())
}

/// Sets an option of a socket's placeholder, be it its own or not, as setsockopt(2) does.
///
/// # Safety
/// As setsockopt(2).
pub(super) unsafe fn set_of_placeholder(
    process: &Process,
    (fd, key): (c_int, Key),
    option: (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Result<c_int, Errno> {
    let is_common = process.lock().sockets.find(key).is_some_and(|socket| socket.common.is_some());
    // SAFETY: the caller's promise.
    match if is_common { unsafe { set(process, key, option, value, len) } } else { None } {
        Some(result) => result,
        // SAFETY: the caller's promise.
        None => kernel_result(unsafe { real::setsockopt(fd, option.0, option.1, value, len) }),
    }
}

/// A socket to ask the kernel with.
fn scratch(process: &Process, family: Family) -> Result<c_int, Errno> {
    let place = usize::from(family == Family::V6);
    if let Some(fd) = process.lock().option_sets.scratch[place] {
        return Ok(fd);
    }
    let fd = descendants::make_out_of_the_way(|| lifecycle::placeholder(family, libc::SOCK_CLOEXEC))?;
    process.lock().option_sets.scratch[place] = Some(fd);
    Ok(fd)
}

/// Sets an option on a connection whose placeholder is a common one. `None`: it has one of its own (by now), where it is to be set.
///
/// # Safety
/// As setsockopt(2).
pub(super) unsafe fn set(
    process: &Process,
    key: Key,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Option<Result<c_int, Errno>> {
    let mut wanted = option_set_of(process, key)?;
    // The kernel says whether it is an option and a value, and in the program's memory.
    let asked = scratch(process, wanted.family).ok().map(|fd| {
        // SAFETY: the caller's promise; a bad pointer is the kernel's to find.
        kernel_result(unsafe { real::setsockopt(fd, level, name, value, len) })
    });
    let bytes = match asked {
        Some(Err(error)) => return Some(Err(error)),
        // SAFETY: the kernel read them there just now.
        Some(Ok(_)) if (1..=VALUE_MAX).contains(&(len as usize)) => unsafe {
            core::slice::from_raw_parts(value.cast::<u8>(), len as usize)
        },
        _ => &[],
    };
    match Setting::new(level, name, bytes) {
        Some(setting) if setting.len > 0 => {
            match wanted.settings.iter_mut().find(|known| (known.level, known.name) == (level, name)) {
                Some(known) => *known = setting,
                None => wanted.settings.push(setting),
            }
            change(process, key, wanted).transpose()
        }
        _ => {
            own(&mut process.lock(), key);
            None
        }
    }
}

/// O_NONBLOCK of a connection whose placeholder is a common one. `false`: it has one of its own, where it is to be set.
pub(crate) fn set_nonblocking(process: &Process, key: Key, nonblocking: bool) -> bool {
    let Some(mut wanted) = option_set_of(process, key) else { return false };
    wanted.nonblocking = nonblocking;
    matches!(change(process, key, wanted), Ok(Some(_)))
}

fn option_set_of(process: &Process, key: Key) -> Option<OptionSet> {
    let guard = process.lock();
    let place = guard.sockets.find(key)?.common?;
    Some(guard.option_sets.known[usize::from(place)].0.clone())
}

/// Puts a connection onto another option set. `None`: there is no room for that one, and it has a placeholder of its own now.
fn change(process: &Process, key: Key, option_set: OptionSet) -> Result<Option<c_int>, Errno> {
    let place = place_of(process, option_set)?;
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(place) = place else {
        own(offload, key);
        return Ok(None);
    };
    let source = offload.option_sets.placeholder(place).fd;
    match offload.sockets.find(key).map(|socket| socket.common) {
        None | Some(None) => return Ok(None),
        Some(Some(now)) if now == place => return Ok(Some(0)),
        Some(_) => {}
    }
    put(offload, key, source)?;
    if let Some(socket) = offload.sockets.find_mut(key) {
        socket.common = Some(place);
    }
    Ok(Some(0))
}

/// Makes the placeholder of a connection its own, if it is not: `false`: there is none to be had.
pub(crate) fn own(offload: &mut Offload, key: Key) -> bool {
    let Some(place) = offload.sockets.find(key).and_then(|socket| socket.common) else { return true };
    numbers::make_internal(|| make_own(offload, key, place))
}

fn make_own(offload: &mut Offload, key: Key, place: u8) -> bool {
    let (option_set, _) = &offload.option_sets.known[usize::from(place)];
    let nonblocking = if option_set.nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    let domain = lifecycle::domain(option_set.family);
    // (A number that a close nobody saw has left in the tables is kept from arriving: it is gone again at once.)
    // SAFETY: plain integers.
    let fresh = unsafe { real::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | nonblocking, 0) };
    if fresh < 0 {
        tracing::warn!("no kernel socket is to be had for a connection that is about to need one: {:?}", Errno::last());
        return false;
    }
    option_set.settings.iter().for_each(|setting| setting.apply(fresh));
    let put = put(offload, key, fresh);
    // SAFETY: made above, and nobody knows of it.
    unsafe { real::close(fresh) };
    if put.is_err() {
        return false;
    }
    if let Some(socket) = offload.sockets.find_mut(key) {
        socket.common = None;
    }
    true
}

/// Every connection gets a placeholder of its own: a child is about to share them.
pub(crate) fn own_all(offload: &mut Offload) {
    let common: Vec<Key> = offload.sockets.iter().filter(|(_, socket)| socket.common.is_some()).map(|(key, _)| key).collect();
    for key in common {
        own(offload, key);
    }
}

/// In the child of a fork: what its parent's connections have in common is not its own. Async-signal-safe.
pub(crate) fn leave_to_parent(parent: &Offload) {
    let placeholders = parent.option_sets.known.iter().map(|(_, placeholder)| placeholder.fd);
    for fd in placeholders.chain(parent.option_sets.scratch.into_iter().flatten()) {
        if fdtable::peek(fd) == Entry::Internal {
            fdtable::clear(fd);
            // SAFETY: made in `place_of`, and nobody else closes it.
            unsafe { real::close(fd) };
        }
    }
}

/// Puts an open file under every number of a socket's. Under the lock, so that no number is closed meanwhile.
fn put(offload: &Offload, key: Key, file: c_int) -> Result<(), Errno> {
    let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    if socket.fds == 1 {
        return put_under(key, socket.fd, file);
    }
    // (One that is being closed just now does without.)
    let put = offload.descriptors(key).into_iter().filter(|&fd| put_under(key, fd, file).is_ok()).count();
    if put > 0 { Ok(()) } else { Err(Errno(libc::EBADF)) }
}

fn put_under(key: Key, fd: c_int, file: c_int) -> Result<(), Errno> {
    // Being closed, right now; or closed by a call that nobody saw, and something else by now.
    if fdtable::peek(fd).socket() != Some(key) || fdtable::is_stale_now(fd) {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: plain integers.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
    let cloexec = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    fdtable::renew(fd, file, cloexec)
}
