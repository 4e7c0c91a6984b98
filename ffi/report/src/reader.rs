//! Reading what processes publish: whatever lies in the file, a reader gets a report or an error, and the process nothing but a question.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

use crate::ProcessReport;
use crate::birth::Birth;
use crate::published::{BODY, BODY_MAX, FILE_PREFIX, HEADER, Header, REQUEST, Request, checksum};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system's: it is gone, or this user may not read it.
    #[error("{path}")]
    System {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The file is no process's, or of another version of the library.
    #[error("{0} is not a process's statistics, or of another version")]
    Foreign(PathBuf),
    /// It lies about its length, or is cut short, or what it holds is no report.
    #[error("{0} is damaged")]
    Damaged(PathBuf),
    /// Nobody asked the process yet (and this user may not).
    #[error("{0} holds no report yet: ask as the process's user, or as root")]
    Empty(PathBuf),
    /// Something was to be changed in the process, by somebody who may not ask it.
    #[error("{0} is not this user's to ask by: ask as the process's user, or as root")]
    NotAllowed(PathBuf),
}

/// A report, and when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What the process said.
    pub report: ProcessReport,
    /// When: nanoseconds since 1970.
    pub taken_ns: u64,
    /// It was made for the question that was asked last, and not for an earlier one.
    pub is_answer: bool,
}

/// A process's file.
#[derive(Debug)]
pub struct Published {
    path: PathBuf,
    file: File,
    /// This user may ask.
    writable: bool,
    control: String,
    /// The last question's number.
    asked: u64,
}

/// Times that a report is read again which the process was writing.
const TRIES: u32 = 50;

impl Published {
    /// Opens a process's file; for asking as well, if this user may.
    ///
    /// # Errors
    /// [`ReadError::System`], [`ReadError::Foreign`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let system = |source| ReadError::System { path: path.to_owned(), source };
        // In a directory that all may write to, there may lie anything: a link, or a pipe that nobody writes to.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        let open = |write| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
        let (file, writable) = match open(true) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(system(error)),
            Err(_) => (open(false).map_err(system)?, false),
        };
        let metadata = file.metadata().map_err(system)?;
        if !metadata.is_file() {
            return Err(ReadError::Foreign(path.to_owned()));
        }
        let mut published = Self { path: path.to_owned(), file, writable, control: String::new(), asked: 0 };
        let header = published.header()?;
        // What another user put there under the name of a process is not that process's.
        let is_its = fs::metadata(format!("/proc/{}", header.pid)).is_ok_and(|process| process.uid() == metadata.uid());
        let name_fits = path.file_name().is_some_and(|name| *name == *format!("{FILE_PREFIX}{}", header.pid));
        let is_trusted = metadata.uid() == geteuid().as_raw() || is_its;
        if !name_fits || !is_trusted {
            return Err(ReadError::Foreign(published.path));
        }
        published.control = header.control;
        Ok(published)
    }

    /// The process's control socket, by which it is woken after a question.
    pub fn control(&self) -> &str {
        &self.control
    }

    /// Whether this user may ask.
    pub fn may_ask(&self) -> bool {
        self.writable
    }

    /// Whether the process that made the file lives.
    pub fn is_held(&self) -> bool {
        // (What cannot be asked is not taken for dead.)
        let is_locked = fcntl_lock(&self.file, FlockOperation::NonBlockingLockShared).is_err();
        if !is_locked {
            let _ = fcntl_lock(&self.file, FlockOperation::Unlock);
        }
        // A clone that knows nothing of it may have the lock still. (In another namespace, the number is another's.)
        let is_over = |header: Header| header.birth.is_beside(namespace()) && !lives(header.pid, header.birth);
        is_locked && !self.header().is_ok_and(is_over)
    }

    /// Asks the process for a report; its [`Published::control`] wakes it.
    ///
    /// # Errors
    /// [`ReadError::System`]; [`ReadError::NotAllowed`].
    pub fn ask(&mut self, mut request: Request) -> Result<(), ReadError> {
        let system = |source| ReadError::System { path: self.path.clone(), source };
        if !self.writable {
            return Err(ReadError::NotAllowed(self.path.clone()));
        }
        // Another one than any reader's before: this reader's process, and the time.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        request.number = (now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40).max(1);
        self.file.write_all_at(&request.encode(), REQUEST.start as u64).map_err(system)?;
        self.asked = request.number;
        Ok(())
    }

    /// The report: that for the last question, if it comes within `patience`; else the one that is there.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&self, patience: Duration) -> Result<Snapshot, ReadError> {
        let deadline = Instant::now() + patience;
        loop {
            // (What is no file of a process's now may become one again by its answer.)
            let is_answer = self.asked != 0 && self.header().is_ok_and(|header| header.answers == self.asked);
            if is_answer || self.asked == 0 || Instant::now() >= deadline {
                return self.read_now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn read_now(&self) -> Result<Snapshot, ReadError> {
        let mut empty = false;
        for _ in 0..TRIES {
            let header = self.header()?;
            empty = header.len == 0 && header.version.is_multiple_of(2);
            if empty {
                break;
            }
            if header.version.is_multiple_of(2)
                && let Some(body) = self.body(&header)
                && self.header()?.version == header.version
            {
                let mut report: ProcessReport = serde_json::from_slice(&body).map_err(|_| ReadError::Damaged(self.path.clone()))?;
                report.clean();
                report.pid = header.pid;
                return Ok(Snapshot { report, taken_ns: header.taken_ns, is_answer: self.asked != 0 && header.answers == self.asked });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(if empty { ReadError::Empty(self.path.clone()) } else { ReadError::Damaged(self.path.clone()) })
    }

    fn header(&self) -> Result<Header, ReadError> {
        let mut bytes = [0; HEADER.end];
        match self.file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Header::decode(&bytes).ok_or_else(|| ReadError::Foreign(self.path.clone())),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ReadError::Foreign(self.path.clone())),
            Err(source) => Err(ReadError::System { path: self.path.clone(), source }),
        }
    }

    /// `None`: not what the header says.
    fn body(&self, header: &Header) -> Option<Vec<u8>> {
        let len = usize::try_from(header.len).ok().filter(|&len| len <= BODY_MAX)?;
        // (Memory is taken for what is there, not for what is said to be.)
        let there = self.file.metadata().ok()?.len().saturating_sub(BODY as u64);
        let mut body = vec![0; (header.len <= there).then_some(len)?];
        self.file.read_exact_at(&mut body, BODY as u64).ok()?;
        (checksum(&body) == header.checksum).then_some(body)
    }
}

/// Where this process's number counts; 0: not known.
fn namespace() -> u32 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino() as u32)
}

/// Whether a process lives whose number counts here.
fn lives(pid: u32, birth: Birth) -> bool {
    // (There may be another namespace's there: pid_namespaces(7).)
    let is_ours = fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str());
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) if is_ours => Birth::started_by_stat(&stat) == Some(birth.started),
        // (It may be hidden: proc(5), hidepid.)
        _ => i32::try_from(pid).ok().and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH)),
    }
}

/// The files of processes in a directory, by process id.
///
/// # Errors
/// It cannot be listed.
pub fn list(directory: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut files: Vec<_> = fs::read_dir(directory)?
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.strip_prefix(FILE_PREFIX)?.parse().ok()?;
            Some((pid, entry.path()))
        })
        .collect();
    files.sort();
    Ok(files)
}

/// Removes the files that killed processes left, as far as this user may. Returns how many.
///
/// # Errors
/// The directory cannot be listed.
pub fn remove_leftovers(directory: &Path) -> io::Result<usize> {
    let dead = |pid: u32, path: &Path| Published::open_left(pid, path).is_some_and(|published| !published.is_held());
    Ok(list(directory)?.iter().filter(|(pid, path)| dead(*pid, path) && fs::remove_file(path).is_ok()).count())
}

/// An empty file is left alone for so long: its process, which may be another pid namespace's, is about to lock it and to write its header.
const EMPTY_FOR: Duration = Duration::from_secs(10);

/// Whether a file without a word in it was left by a process that was killed right after it had made the file.
fn is_left_empty(pid: u32, metadata: &fs::Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok());
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    metadata.len() == 0 && age.is_some_and(|age| age >= EMPTY_FOR) && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

impl Published {
    /// As [`Published::open`], of a process that may be gone: only this user's own, for anybody's may lie there. (Root takes all.)
    fn open_left(pid: u32, path: &Path) -> Option<Self> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let user = geteuid();
        if !user.is_root() && metadata.uid() != user.as_raw() {
            return None;
        }
        let published = Self { path: path.to_owned(), file, writable: false, control: String::new(), asked: 0 };
        (published.header().is_ok() || is_left_empty(pid, &metadata)).then_some(published)
    }
}

#[cfg(test)]
mod tests;
