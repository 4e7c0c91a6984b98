//! The file in which this process publishes its report, when a reader asks for one: [`ringway_report::published`] is its form.
//!
//! The progress thread looks for a question when the control socket says that there is one, and ten times a second while it is awake anyhow. What
//! it takes to answer bounds how soon the next answer comes: all readers together cost a fiftieth of a core at most (more only where an answer takes
//! longer than 40 ms).

use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use std::ffi::CString;
use std::io;
use std::sync::Mutex;

use libc::c_int;
use ringway_host::numbers;
use ringway_params::{Id, Level};
use ringway_report::birth::Birth;
use ringway_report::published::{BODY, BODY_MAX, FILE_PREFIX, HEADER, Header, REQUEST, Request, checksum};

use super::gather;
use crate::fdtable::{self, Entry};
use crate::process::Process;
use crate::{descendants, errno, extra, fd_counters, log, params, real};

/// How often the file is looked at without a call.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Who has not asked for so long does not watch any more.
const WATCHED_FOR: Duration = Duration::from_secs(3);

/// A report may come after so many times the time that the last one took; but the time may have been another program's, which had the processor
/// meanwhile, and nobody waits for longer than this.
const SHARE: u32 = 50;
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Files that are made, if others lock them.
const TRIES: u32 = 100;

/// See the module's documentation.
pub(crate) struct Published {
    /// `None`: nothing is published.
    path: Option<CString>,
    /// -1: the file could not be made, or is a parent's.
    fd: AtomicI32,
    state: Mutex<State>,
}

struct State {
    header: Header,
    /// The last request's number.
    seen: u64,
    /// A request that waits for its time.
    owed: Option<Request>,
    looked: std::time::Instant,
    not_before: std::time::Instant,
    asked: std::time::Instant,
    watched: bool,
}

impl Published {
    /// Makes this process's file, of which a control socket tells when to look at it. What goes wrong is not the program's concern: there
    /// are no statistics then.
    pub(crate) fn new(control: &str) -> Self {
        let saved = errno::current();
        let directory = params::settings().path(Id::StatsShmemDir);
        let name = |directory: String| CString::new(format!("{}/{FILE_PREFIX}{}", directory.trim_end_matches('/'), std::process::id()));
        let path = directory.and_then(|directory| name(directory).ok());
        let header = Header { pid: std::process::id(), birth: birth(), control: control.to_owned(), ..Header::default() };
        let fd = path.as_ref().map_or(Ok(-1), |path| make(path, &header));
        if let (Err(error), Some(path)) = (&fd, &path) {
            // (Where nobody named the directory, nobody waits for them.)
            if params::settings().is_set(Id::StatsShmemDir) {
                tracing::warn!("no statistics are published in {}: {error}", path.to_string_lossy());
            } else {
                tracing::debug!("no statistics are published in {}: {error}", path.to_string_lossy());
            }
        }
        let now = std::time::Instant::now();
        let state = State { header, seen: 0, owed: None, looked: now, not_before: now, asked: now, watched: false };
        errno::set(saved);
        Self { path, fd: AtomicI32::new(fd.unwrap_or(-1)), state: Mutex::new(state) }
    }

    /// The process ends, or becomes another program.
    pub(crate) fn remove(&self) {
        let fd = self.fd.load(Ordering::Relaxed);
        if fd >= 0
            && let Some(path) = &self.path
            && is_at(path, fd)
        {
            let saved = errno::current();
            // SAFETY: a C string.
            unsafe { libc::unlink(path.as_ptr()) };
            errno::set(saved);
        }
    }

    /// There is no process to speak of: its file goes, and its descriptor.
    pub(crate) fn withdraw(&self) {
        self.remove();
        self.leave_to_parent();
    }

    /// The process did not become another program after all.
    pub(crate) fn restore(&self) {
        self.leave_to_parent();
        let (Some(path), Ok(mut state)) = (&self.path, self.state.try_lock()) else { return };
        state.header.len = 0;
        if let Ok(fd) = make(path, &state.header) {
            self.fd.store(fd, Ordering::Relaxed);
        }
    }

    /// In a child, whose parent's it is. Async-signal-safe.
    pub(crate) fn leave_to_parent(&self) {
        let fd = self.fd.swap(-1, Ordering::Relaxed);
        if fd >= 0 && fdtable::peek(fd) == Entry::Internal {
            fdtable::clear(fd);
            // SAFETY: made here, and nobody else closes it.
            unsafe { real::close(fd) };
        }
    }

    /// Looks whether somebody asked, and answers; at once (`called`) or if it is time. Returns when to look again, if it must be.
    pub(crate) fn look(&self, process: &Process, called: bool) -> Option<Duration> {
        let fd = self.fd.load(Ordering::Relaxed);
        let mut state = self.state.try_lock().ok().filter(|_| fd >= 0)?;
        let now = std::time::Instant::now();
        if called || now.duration_since(state.looked) >= LOOK_EVERY {
            state.looked = now;
            state.hear(fd, now);
        }
        if state.watched && now.duration_since(state.asked) >= WATCHED_FOR {
            state.watched = false;
            fd_counters::set_watched(false);
        }
        state.owed?;
        let early = state.not_before.saturating_duration_since(now);
        if !early.is_zero() {
            return Some(early);
        }
        let request = state.owed.take()?;
        obey(process, &request);
        if let Err(error) = state.publish(process, fd, request.number) {
            tracing::debug!("the statistics were not published: {error}");
        }
        state.not_before = now + pause_after(now.elapsed());
        None
    }
}

impl State {
    /// Takes a question up.
    fn hear(&mut self, fd: c_int, now: std::time::Instant) {
        let mut bytes = [0; REQUEST.end - REQUEST.start];
        let read = read_at(fd, &mut bytes, REQUEST.start);
        let Some(request) = Request::decode(&bytes).filter(|request| read && request.number != self.seen) else { return };
        self.seen = request.number;
        self.owed = Some(request);
        self.asked = now;
        self.watched = true;
        fd_counters::set_watched(true);
    }

    fn publish(&mut self, process: &Process, fd: c_int, number: u64) -> io::Result<()> {
        let most = params::settings().count(Id::StatsFdNum) as usize;
        let body = serde_json::to_vec(&gather::process(process, most))?;
        if body.len() > BODY_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // Odd, until all of it is there.
        self.header.version |= 1;
        write_at(fd, &self.header.encode(), 0)?;
        write_at(fd, &body, BODY)?;
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.header.version += 1;
        self.header.len = body.len() as u64;
        self.header.checksum = checksum(&body);
        self.header.answers = number;
        self.header.taken_ns = since.as_nanos() as u64;
        write_at(fd, &self.header.encode(), 0)
    }
}

/// What is asked for beside a report.
fn obey(process: &Process, request: &Request) {
    if let Some(level) = request.log_level.and_then(Level::from_number) {
        log::set_level(level);
    }
    if let Some(details) = request.log_details {
        log::set_details(details.into());
    }
    if let Some((fd, level)) = request.dump
        && let Some(level) = Level::from_number(level)
    {
        extra::dump(process, fd, level);
    }
}

/// How long readers wait after a report that took so long.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(SHARE).min(PAUSE_MAX)
}

fn make(path: &CString, header: &Header) -> io::Result<c_int> {
    let mut whole = [0; BODY];
    whole[HEADER].copy_from_slice(&header.encode());
    for _ in 0..TRIES {
        // A living process's of the same number, in another pid namespace that has the same directory: that one keeps it.
        if is_anothers(path, header.birth.namespace) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // A dead one's, or this one's own, before it became the program that it is.
        // SAFETY: a C string.
        unsafe { libc::unlink(path.as_ptr()) };
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: a C string and plain integers.
        let open = || unsafe { real::open(path.as_ptr(), flags, 0o644) };
        let fd = descendants::make_out_of_the_way(|| match open() {
            fd @ 0.. => Ok(fd),
            _ => Err(io::Error::last_os_error()),
        })?;
        let lock = whole_file(libc::F_WRLCK);
        // SAFETY: a lock's description, which outlives the call.
        let is_locked = unsafe { real::fcntl(fd, libc::F_OFD_SETLK, (&raw const lock).addr()) } == 0;
        // (What knows no locks may do without: readers take the process for dead then.)
        if is_locked || errno::current() != libc::EAGAIN {
            let Err(error) = write_at(fd, &whole, 0) else { return Ok(fd) };
            fdtable::clear(fd);
            // SAFETY: a C string; the file and its descriptor were made here.
            unsafe {
                libc::unlink(path.as_ptr());
                real::close(fd);
            }
            return Err(error);
        }
        // A reader was there first, and has one: another file, then.
        fdtable::clear(fd);
        // SAFETY: made here.
        unsafe { real::close(fd) };
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Whether the file under this process's name is a living one's in another pid namespace. (A lock on what this very number's left, where it counts, is
/// a clone's that has outlived it.)
fn is_anothers(path: &CString, namespace: u32) -> bool {
    numbers::make_internal(|| has_anothers(path, namespace))
}

fn has_anothers(path: &CString, namespace: u32) -> bool {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // SAFETY: a C string and plain integers.
    let fd = unsafe { real::open(path.as_ptr(), flags, 0) };
    if fd < 0 {
        return false;
    }
    let mut bytes = [0; HEADER.end];
    let header = read_at(fd, &mut bytes, 0).then(|| Header::decode(&bytes)).flatten();
    let is_of_here = header.is_some_and(|header| header.birth.is_beside(namespace));
    let mut lock = whole_file(libc::F_RDLCK);
    // SAFETY: a lock's description, which outlives the calls; the descriptor was made here.
    let asked = unsafe { real::fcntl(fd, libc::F_OFD_GETLK, (&raw mut lock).addr()) };
    // SAFETY: as above.
    unsafe { real::close(fd) };
    !is_of_here && asked == 0 && c_int::from(lock.l_type) != libc::F_UNLCK
}

fn whole_file(kind: c_int) -> libc::flock {
    libc::flock { l_type: kind as libc::c_short, l_whence: libc::SEEK_SET as libc::c_short, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Which of all processes with its number this one is.
fn birth() -> Birth {
    numbers::make_internal(read_birth)
}

fn read_birth() -> Birth {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let mut stat = [0; 1024];
    // SAFETY: C strings, plain integers, an array with its length, and all of a structure; the descriptor was made here.
    unsafe {
        let mut file: libc::stat = core::mem::zeroed();
        let namespace = if libc::stat(c"/proc/self/ns/pid".as_ptr(), &raw mut file) == 0 { file.st_ino as u32 } else { 0 };
        let fd = real::open(c"/proc/self/stat".as_ptr(), flags, 0);
        let len = if fd >= 0 { real::pread(fd, stat.as_mut_ptr().cast(), stat.len(), 0) } else { 0 };
        if fd >= 0 {
            real::close(fd);
        }
        let started = Birth::started_by_stat(&stat[..usize::try_from(len).unwrap_or(0)]);
        // (Where one of the two is not known, the other one says nothing.)
        started.map_or(Birth::default(), |started| Birth { namespace, started })
    }
}

/// Whether what has that name is this file.
fn is_at(path: &CString, fd: c_int) -> bool {
    // SAFETY: a C string, an integer, and all of two structures, for which zero is a value.
    unsafe {
        let mut files: [libc::stat; 2] = core::mem::zeroed();
        let both = libc::fstat(fd, &raw mut files[0]) == 0 && libc::lstat(path.as_ptr(), &raw mut files[1]) == 0;
        both && (files[0].st_dev, files[0].st_ino) == (files[1].st_dev, files[1].st_ino)
    }
}

/// By libc's own calls, as all of this.
fn write_at(fd: c_int, bytes: &[u8], at: usize) -> io::Result<()> {
    let vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: one vector over the slice, which is only read.
    let written = unsafe { real::pwritev2(fd, &raw const vector, 1, at as libc::off_t, 0) };
    match usize::try_from(written) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::StorageFull.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn read_at(fd: c_int, bytes: &mut [u8], at: usize) -> bool {
    // SAFETY: the pointer and length are the slice's.
    let read = unsafe { real::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), at as libc::off_t) };
    usize::try_from(read) == Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_long() {
        assert_eq!(pause_after(Duration::from_millis(1)), Duration::from_millis(50));
        assert_eq!(pause_after(Duration::from_secs(1)), PAUSE_MAX);
        assert_eq!(pause_after(Duration::MAX), PAUSE_MAX);
    }
}
