//! The calls of libc's that take a path, or read a folder. What `ringway-preload` has no row for has its C symbol here.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::collections::BTreeMap;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libc::{DIR, FILE, dirent, stat as Stat, statx as Statx};
use ringway_preload::{Errno, errno};
use rustix::fs::{MemfdFlags, Mode, OFlags, SeekFrom};
use rustix::io::FdFlags;

use crate::descriptors::{self, Kind};
use crate::process::{self, undisturbed};
use crate::sysfs::{self, Found, Node, TREE};

/// What is at a program's path, if it is the device's to say.
///
/// # Safety
/// The path leads nowhere, or is a C string.
pub(crate) unsafe fn find(directory: c_int, path: *const c_char) -> Option<Found> {
    if errno::is_nowhere(path) {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    let found = match descriptors::kind(directory) {
        Some(Kind::Folder(folder)) => sysfs::find_below(folder as usize, path),
        // Most paths are somewhere else.
        _ if path.starts_with("/sys/class/") || path.starts_with("/dev/") => sysfs::find(path),
        _ => Found::Elsewhere,
    };
    (found != Found::Elsewhere && !process::is_removed()).then_some(found)
}

/// Opens what was found.
///
/// # Errors
/// As open(2).
pub(crate) fn open(found: Found, flags: c_int) -> Result<c_int, Errno> {
    let Found::At(place) = found else { return Err(Errno(libc::ENOENT)) };
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    let wants_folder = flags & libc::O_DIRECTORY != 0;
    let oflags = if close_on_exec { OFlags::CLOEXEC } else { OFlags::empty() };
    let kept = |fd: OwnedFd, kind: Kind| {
        let fd = fd.into_raw_fd();
        if descriptors::set(fd, kind) {
            return Ok(fd);
        }
        // SAFETY: a descriptor that nobody knows yet.
        unsafe { ringway_preload::next::close(fd) };
        Err(Errno(libc::EMFILE))
    };
    match TREE[place].node {
        Node::Folder => {
            if flags & libc::O_ACCMODE != libc::O_RDONLY {
                return Err(Errno(libc::EISDIR));
            }
            let fd = rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY | oflags, Mode::empty()).map_err(from_rustix)?;
            kept(fd, Kind::Folder(place as u32))
        }
        _ if wants_folder => Err(Errno(libc::ENOTDIR)),
        Node::File(_) if flags & libc::O_ACCMODE != libc::O_RDONLY => Err(Errno(libc::EACCES)),
        Node::File(_) => Ok(file(&TREE[place].text(), close_on_exec)?.into_raw_fd()),
        Node::Device => {
            let access = OFlags::from_bits_truncate((flags & libc::O_ACCMODE).cast_unsigned());
            let fd = rustix::fs::open(sysfs::STAND_IN, access | oflags, Mode::empty()).map_err(from_rustix)?;
            let context = process::open()?;
            kept(fd, Kind::Context(context)).inspect_err(|_| process::close(context))
        }
        Node::RdmaCm => {
            let context = process::open()?;
            let open = || process::lock().as_mut().ok_or(Errno(libc::ENXIO))?.open_rdma_cm(context);
            open()
                .and_then(|fd| {
                    if !close_on_exec {
                        rustix::io::fcntl_setfd(&fd, FdFlags::empty()).map_err(from_rustix)?;
                    }
                    if flags & libc::O_NONBLOCK != 0 {
                        rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK).map_err(from_rustix)?;
                    }
                    kept(fd, Kind::RdmaCm(context))
                })
                .inspect_err(|_| process::close(context))
        }
    }
}

/// A descriptor from which `text` is read.
fn file(text: &str, close_on_exec: bool) -> Result<OwnedFd, Errno> {
    let flags = if close_on_exec { MemfdFlags::CLOEXEC } else { MemfdFlags::empty() };
    let fd = rustix::fs::memfd_create("connectx", flags).map_err(from_rustix)?;
    rustix::io::write(&fd, text.as_bytes()).map_err(from_rustix)?;
    rustix::fs::seek(&fd, SeekFrom::Start(0)).map_err(from_rustix)?;
    Ok(fd)
}

pub(crate) fn from_rustix(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

/// The next definition of the function `name`, looked up once.
pub(crate) fn next_of(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut found = place.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is a C string; RTLD_NEXT asks for the definition after this library's.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        assert!(!found.is_null(), "libc has it");
        place.store(found, Ordering::Relaxed);
    }
    found
}

/// A function of libc's by its name and signature.
macro_rules! next {
    ($symbol:expr => fn($($type:ty),*) -> $ret:ty) => {{
        static PLACE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
        let found = next_of(&PLACE, $symbol);
        #[allow(unused_unsafe, reason = "some stand in an unsafe block of their own")]
        // SAFETY: the symbol has this signature in libc's headers.
        let function = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $ret>(found) };
        function
    }};
}
pub(crate) use next;

/// How far each folder that is being read was read, and the entry that was returned last.
static STREAMS: Mutex<BTreeMap<usize, (usize, Box<Room>)>> = Mutex::new(BTreeMap::new());

/// An entry that a program reads until it asks for the next. On 64-bit machines `dirent` and `dirent64` are one.
struct Room(dirent);

fn streams() -> std::sync::MutexGuard<'static, BTreeMap<usize, (usize, Box<Room>)>> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folder_of(stream: *mut DIR) -> Option<usize> {
    // SAFETY: the program's promise to readdir(3) and its like: a stream that is open.
    match descriptors::kind(unsafe { libc::dirfd(stream) }) {
        Some(Kind::Folder(folder)) => Some(folder as usize),
        _ => None,
    }
}

/// The next entry of a folder of the tree; null at its end.
fn read_entry(stream: *mut DIR, folder: usize) -> *mut dirent {
    let mut streams = streams();
    // SAFETY: zero is a value of every field.
    let (at, room) = streams.entry(stream.addr()).or_insert_with(|| (0, Box::new(Room(unsafe { core::mem::zeroed() }))));
    let Some((name, is_folder)) = sysfs::children(folder).get(*at).copied() else { return null_mut() };
    *at += 1;
    let entry = &mut room.0;
    entry.d_ino = *at as u64;
    entry.d_off = *at as i64;
    entry.d_reclen = size_of::<dirent>() as u16;
    entry.d_type = if is_folder { libc::DT_DIR } else { libc::DT_REG };
    entry.d_name.fill(0);
    for (to, from) in entry.d_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    &raw mut *entry
}

/// opendir(3).
///
/// # Safety
/// As opendir(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: the program's promise.
    let Some(found) = (unsafe { find(libc::AT_FDCWD, path) }) else {
        // SAFETY: as above.
        return unsafe { next!(c"opendir" => fn(*const c_char) -> *mut DIR)(path) };
    };
    undisturbed!(
        null_mut(),
        match open(found, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) {
            // SAFETY: a descriptor of a folder, which is the stream's from now on.
            Ok(fd) => unsafe { libc::fdopendir(fd) },
            Err(Errno(code)) => {
                errno::set(code);
                null_mut()
            }
        }
    )
}

/// readdir(3).
///
/// # Safety
/// As readdir(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn readdir(stream: *mut DIR) -> *mut dirent {
    match folder_of(stream) {
        Some(folder) => undisturbed!(null_mut(), read_entry(stream, folder)),
        // SAFETY: the program's promise.
        None => unsafe { next!(c"readdir" => fn(*mut DIR) -> *mut dirent)(stream) },
    }
}

/// readdir(3), as programs with 64-bit offsets call it.
///
/// # Safety
/// As readdir(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn readdir64(stream: *mut DIR) -> *mut dirent {
    // SAFETY: the program's promise.
    unsafe { readdir(stream) }
}

/// rewinddir(3).
///
/// # Safety
/// As rewinddir(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn rewinddir(stream: *mut DIR) {
    match folder_of(stream) {
        Some(_) => undisturbed!((), drop(streams().remove(&stream.addr()))),
        // SAFETY: the program's promise.
        None => unsafe { next!(c"rewinddir" => fn(*mut DIR) -> ())(stream) },
    }
}

/// closedir(3).
///
/// # Safety
/// As closedir(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn closedir(stream: *mut DIR) -> c_int {
    if !stream.is_null() && folder_of(stream).is_some() {
        undisturbed!((), drop(streams().remove(&stream.addr())));
        // SAFETY: the stream is open. libc closes its descriptor without a call that comes here.
        descriptors::clear(unsafe { libc::dirfd(stream) });
    }
    // SAFETY: the program's promise.
    unsafe { next!(c"closedir" => fn(*mut DIR) -> c_int)(stream) }
}

/// fopen(3).
///
/// # Safety
/// As fopen(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's promise.
    let Some(found) = (unsafe { find(libc::AT_FDCWD, path) }) else {
        // SAFETY: as above.
        return unsafe { next!(c"fopen" => fn(*const c_char, *const c_char) -> *mut FILE)(path, mode) };
    };
    undisturbed!(
        null_mut(),
        match open(found, libc::O_RDONLY | libc::O_CLOEXEC) {
            // SAFETY: a descriptor that is the stream's from now on, and the program's mode.
            Ok(fd) => unsafe { libc::fdopen(fd, mode) },
            Err(Errno(code)) => {
                errno::set(code);
                null_mut()
            }
        }
    )
}

/// fopen(3), as programs with 64-bit offsets call it.
///
/// # Safety
/// As fopen(3).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's promise.
    unsafe { fopen(path, mode) }
}

/// The kernel's file by which stat(2) answers for what was found.
fn stand_in(found: Found) -> Option<&'static CStr> {
    let Found::At(place) = found else { return None };
    Some(match TREE[place].node {
        Node::Device | Node::RdmaCm => c"/dev/zero",
        Node::Folder => c"/",
        Node::File(_) => c"/proc/self/stat",
    })
}

/// What stat(2) says of what was found.
///
/// # Safety
/// As stat(2).
unsafe fn stat_of(found: Found, out: *mut Stat) -> c_int {
    let Some(stand_in) = stand_in(found) else { return errno::fail(libc::ENOENT) };
    // SAFETY: the caller's room, and a C string.
    unsafe { next!(c"stat" => fn(*const c_char, *mut Stat) -> c_int)(stand_in.as_ptr(), out) }
}

/// stat(2) and its kin: what is the device's is answered here.
macro_rules! stats {
    ($($name:ident = $symbol:literal($($before:ident: $type:ty),*; $directory:expr; $path:ident, $out:ident $(, $after:ident: $after_type:ty)?);)*) => {$(
        #[doc = concat!($symbol, "(2).")]
        ///
        /// # Safety
        /// As stat(2).
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name(
            $($before: $type,)* $path: *const c_char, $out: *mut Stat $(, $after: $after_type)?
        ) -> c_int {
            // SAFETY: the program's promise.
            match unsafe { find($directory, $path) } {
                // SAFETY: as above.
                Some(found) => undisturbed!(-1, unsafe { stat_of(found, $out) }),
                None => {
                    const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a symbol's name has one NUL, at its end"),
                    };
                    // SAFETY: as above.
                    unsafe {
                        next!(NAME => fn($($type,)* *const c_char, *mut Stat $(, $after_type)?) -> c_int)(
                            $($before,)* $path, $out $(, $after)?
                        )
                    }
                }
            }
        }
    )*};
}

stats! {
    stat = "stat"(; libc::AT_FDCWD; path, out);
    stat64 = "stat64"(; libc::AT_FDCWD; path, out);
    lstat = "lstat"(; libc::AT_FDCWD; path, out);
    lstat64 = "lstat64"(; libc::AT_FDCWD; path, out);
    fstatat = "fstatat"(directory: c_int; directory; path, out, flags: c_int);
    fstatat64 = "fstatat64"(directory: c_int; directory; path, out, flags: c_int);
}

/// fstat(2): a descriptor of connection management's is a socket, and says that it is a character device.
///
/// # Safety
/// As fstat(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fstat(fd: c_int, out: *mut Stat) -> c_int {
    match descriptors::kind(fd) {
        Some(Kind::RdmaCm(_)) => {
            // SAFETY: the caller's room, and a C string.
            undisturbed!(-1, unsafe { next!(c"stat" => fn(*const c_char, *mut Stat) -> c_int)(c"/dev/zero".as_ptr(), out) })
        }
        // SAFETY: the program's promise.
        _ => unsafe { next!(c"fstat" => fn(c_int, *mut Stat) -> c_int)(fd, out) },
    }
}

/// fstat(2), as programs with 64-bit offsets call it.
///
/// # Safety
/// As fstat(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fstat64(fd: c_int, out: *mut Stat) -> c_int {
    // SAFETY: the program's promise.
    unsafe { fstat(fd, out) }
}

/// access(2).
///
/// # Safety
/// As access(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the program's promise.
    match unsafe { find(libc::AT_FDCWD, path) } {
        Some(Found::At(_)) => 0,
        Some(_) => errno::fail(libc::ENOENT),
        // SAFETY: as above.
        None => unsafe { next!(c"access" => fn(*const c_char, c_int) -> c_int)(path, mode) },
    }
}

/// statx(2).
///
/// # Safety
/// As statx(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut Statx) -> c_int {
    // SAFETY: the program's promise.
    let (directory, path) = match unsafe { find(directory, path) } {
        None => (directory, path),
        Some(found) => match stand_in(found) {
            Some(stand_in) => (libc::AT_FDCWD, stand_in.as_ptr()),
            None => return errno::fail(libc::ENOENT),
        },
    };
    // SAFETY: the program's promise, or a C string.
    unsafe { next!(c"statx" => fn(c_int, *const c_char, c_int, c_uint, *mut Statx) -> c_int)(directory, path, flags, mask, out) }
}
