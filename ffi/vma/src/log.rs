//! The log: tracing, with VMA_TRACELEVEL's names. An unmodified program's standard error stays clean unless something
//! needs saying, so the default is `warn`.

use core::fmt::{self, Write as _};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;

use ringway_stack::offload::Reason;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::fdtable::{self, Entry};
use crate::process::Process;
use crate::real;

/// Starts the log; only the first call does anything.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = level_named(&std::env::var("VMA_TRACELEVEL").unwrap_or_default());
        let details = std::env::var("VMA_LOG_DETAILS").ok().and_then(|d| d.parse().ok());
        let details = details.unwrap_or(if level >= LevelFilter::DEBUG { 2 } else { 0 });
        // The program cannot have set this library's own global subscriber.
        let _ = tracing::subscriber::set_global_default(Log { level, details, output: Output::open() });
    });
}

/// VMA_TRACELEVEL's names and numbers (vma.md section 3); what is not known means the default.
fn level_named(name: &str) -> LevelFilter {
    match name.trim().to_ascii_lowercase().as_str() {
        "none" | "-1" => LevelFilter::OFF,
        "panic" | "0" | "error" | "1" => LevelFilter::ERROR,
        "info" | "information" | "3" => LevelFilter::INFO,
        "details" | "debug" | "4" => LevelFilter::DEBUG,
        "fine" | "func" | "5" | "finer" | "func+" | "funcall" | "func_all" | "func-all" | "6" | "all" => LevelFilter::TRACE,
        _ => LevelFilter::WARN,
    }
}

/// The one line that says why the whole process runs on the kernel.
pub(crate) fn declined(reason: Reason, detail: &str) {
    start();
    let separator = if detail.is_empty() { "" } else { ": " };
    // Somebody who switched it off knows.
    if reason == Reason::SwitchedOff {
        tracing::info!("not offloading ({reason}){separator}{detail}: {}", reason.advice());
    } else {
        tracing::warn!("not offloading ({reason}){separator}{detail}: {}", reason.advice());
    }
}

/// What was set up, for whoever asked for it.
pub(crate) fn offloading(process: &Process) {
    start();
    tracing::info!("offloading over {} as {}", "shm", process.rendezvous.member_name());
}

/// `VMA WARNING: …`, with what VMA_LOG_DETAILS adds.
///
/// It has nothing of a thread's own: at the end of the process, when there is something to say as well, that has been destroyed.
struct Log {
    level: LevelFilter,
    details: u8,
    output: Output,
}

impl Log {
    fn line(&self, event: &Event<'_>) -> Result<String, fmt::Error> {
        let mut out = String::new();
        if self.details >= 3 {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            write!(out, "Time: {}.{:06} ", since.as_secs(), since.subsec_micros())?;
        }
        if self.details >= 2 {
            write!(out, "Pid: {:5} ", std::process::id())?;
        }
        if self.details >= 1 {
            // SAFETY: gettid has no preconditions.
            write!(out, "Tid: {:5} ", unsafe { libc::gettid() })?;
        }
        out.write_str(match *event.metadata().level() {
            Level::ERROR => "VMA ERROR: ",
            Level::WARN => "VMA WARNING: ",
            Level::INFO => "VMA INFO: ",
            Level::DEBUG => "VMA DEBUG: ",
            Level::TRACE => "VMA FINE: ",
        })?;
        event.record(&mut Fields(&mut out));
        out.write_char('\n')?;
        Ok(out)
    }
}

/// (Spans are not used.)
impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        if let Ok(line) = self.line(event) {
            self.output.write(line.as_bytes());
        }
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// The message, and behind it what else is named.
struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // (Writing to a string does not fail.)
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// VMA_LOG_FILE, or standard error.
enum Output {
    StandardError,
    File(File),
}

impl Output {
    fn open() -> Self {
        let Ok(path) = std::env::var("VMA_LOG_FILE") else { return Self::StandardError };
        if path.is_empty() {
            return Self::StandardError;
        }
        let path = path.replacen("%d", &std::process::id().to_string(), 1);
        match File::options().create(true).append(true).open(path) {
            Ok(file) => Self::File(file),
            Err(_) => Self::StandardError,
        }
    }

    /// Writes past the interposed `write`: a line may be due while the state is locked.
    fn write(&self, line: &[u8]) {
        let fd: RawFd = match self {
            Self::File(file) => file.as_raw_fd(),
            // (By now it may be one of the program's connections.)
            Self::StandardError if fdtable::peek(libc::STDERR_FILENO) != Entry::None => return,
            Self::StandardError => libc::STDERR_FILENO,
        };
        let saved = crate::errno::current();
        let _masked = crate::cancel::Masked::new();
        if has_room(fd) {
            write_unkilled(fd, line);
        }
        crate::errno::set(saved);
    }
}

/// Whether a line can be written at once: a pipe that nobody reads must not hold up the program (or its end) for a line of the log.
fn has_room(fd: RawFd) -> bool {
    let mut entry = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid pollfd.
    (unsafe { real::poll(&raw mut entry, 1, 0) }) == 1 && entry.revents & libc::POLLOUT != 0
}

/// Writes, and takes the SIGPIPE of a pipe whose reader has gone: it would end the program, whose own write this is not.
fn write_unkilled(fd: RawFd, line: &[u8]) {
    // SAFETY: a signal set is plain words, for which zero is a value; sigemptyset and its like only write to the sets they are given.
    let (mut pipe, mut pending, mut before): (libc::sigset_t, libc::sigset_t, libc::sigset_t) = unsafe { core::mem::zeroed() };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above; the pointer and length are a slice's; the thread's mask is put back.
    unsafe {
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        let was_pending = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        let written = real::write(fd, line.as_ptr().cast(), line.len());
        if written < 0 && crate::errno::current() == libc::EPIPE && !was_pending {
            libc::sigtimedwait(&raw const pipe, core::ptr::null_mut(), &raw const at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_their_documented_names() {
        for (name, level) in [
            ("none", LevelFilter::OFF),
            ("panic", LevelFilter::ERROR),
            ("1", LevelFilter::ERROR),
            ("WARNING", LevelFilter::WARN),
            ("information", LevelFilter::INFO),
            ("4", LevelFilter::DEBUG),
            ("details", LevelFilter::DEBUG),
            ("func-all", LevelFilter::TRACE),
            ("all", LevelFilter::TRACE),
            ("no such level", LevelFilter::WARN),
        ] {
            assert_eq!(level_named(name), level, "{name}");
        }
    }
}
