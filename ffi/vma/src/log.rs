//! The log: tracing, with VMA_TRACELEVEL's levels ([`level`]). An unmodified program's standard error stays clean unless something
//! needs saying, so the default is `warn`. From `info` on it begins with the [`banner`].

mod banner;
pub(crate) mod level;

use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Once;

use ringway_params::Id;
use ringway_stack::offload::Reason;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::fdtable::{self, Entry};
use crate::process::Process;
use crate::{descendants, params, real};

/// Starts the log; only the first call does anything. What is wrong with the parameters is its first line.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let settings = params::settings();
        let (output, unopened) = Output::open(settings.path(Id::LogFile));
        let colours = settings.flag(Id::LogColors) && output.is_a_terminal();
        LEVEL.store(settings.level() as u8, Ordering::Relaxed);
        DETAILS.store(settings.count(Id::LogDetails), Ordering::Relaxed);
        let log = Log { colours, output };
        // The program cannot have set this library's own global subscriber.
        let _ = tracing::subscriber::set_global_default(log);
        if let Some(why) = unopened {
            tracing::warn!("VMA_LOG_FILE={}: {why}; the log goes to standard error", settings.text(Id::LogFile));
        }
        settings.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        banner::tell(settings);
    });
}

/// A [`ringway_params::Level`], which vma_stats may change.
static LEVEL: AtomicU8 = AtomicU8::new(ringway_params::Level::Warn as u8);
/// VMA_LOG_DETAILS, likewise.
static DETAILS: AtomicU32 = AtomicU32::new(0);

/// From now on, so much is logged.
pub(crate) fn set_level(level: ringway_params::Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    // What was not to be logged is known as such where it happens.
    tracing::callsite::rebuild_interest_cache();
}

/// From now on, lines begin with so much: as VMA_LOG_DETAILS.
pub(crate) fn set_details(details: u32) {
    DETAILS.store(details.min(3), Ordering::Relaxed);
}

/// What is logged now.
fn most() -> ringway_params::Level {
    ringway_params::Level::from_number(LEVEL.load(Ordering::Relaxed)).unwrap_or(ringway_params::Level::Warn)
}

/// The one line that says why the process runs on the kernel. Of what is switched off, `detail` has the advice: where.
pub(crate) fn declined(reason: Reason, detail: &str) {
    start();
    let separator = if detail.is_empty() { "" } else { ": " };
    match reason {
        // Somebody who switched it off knows.
        Reason::SwitchedOff => tracing::info!("not offloading ({reason}){separator}{detail}"),
        // The parameters' warning has told of it.
        Reason::UnknownDevice | Reason::DeviceMissing => {
            tracing::info!("not offloading ({reason}){separator}{detail}: {}", reason.advice());
        }
        _ => tracing::warn!("not offloading ({reason}){separator}{detail}: {}", reason.advice()),
    }
}

/// What was set up, for whoever asked for it.
pub(crate) fn offloading(process: &Process) {
    tracing::info!("offloading over {} as {}", "shm", process.rendezvous().member_name());
    crate::extra::facts::tell(process);
}

/// `VMA WARNING: …`, with what VMA_LOG_DETAILS adds.
///
/// It has nothing of a thread's own: at the end of the process, when there is something to say as well, that has been destroyed.
struct Log {
    /// Lines that somebody should see are coloured.
    colours: bool,
    output: Output,
}

impl Log {
    fn line(&self, event: &Event<'_>) -> Result<String, fmt::Error> {
        let mut out = String::new();
        let details = DETAILS.load(Ordering::Relaxed);
        if details >= 3 {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            write!(out, "Time: {}.{:06} ", since.as_secs(), since.subsec_micros())?;
        }
        if details >= 2 {
            write!(out, "Pid: {:5} ", std::process::id())?;
        }
        if details >= 1 {
            // SAFETY: gettid has no preconditions.
            write!(out, "Tid: {:5} ", unsafe { libc::gettid() })?;
        }
        let colour = colour(*event.metadata().level()).filter(|_| self.colours);
        out.push_str(colour.unwrap_or_default());
        write!(out, "VMA {}: ", level::label(level::of(event.metadata())))?;
        event.record(&mut Fields(&mut out));
        out.push_str(colour.map_or("", |_| "\u{1b}[0m"));
        out.write_char('\n')?;
        Ok(out)
    }
}

/// (Spans are not used.)
impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        level::of(metadata) <= most()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(level::filter(most()))
    }

    fn event(&self, event: &Event<'_>) {
        if let Ok(line) = self.line(event) {
            self.output.write(line.as_bytes());
        }
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}
    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}
    fn enter(&self, _span: &span::Id) {}
    fn exit(&self, _span: &span::Id) {}
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

/// The escape sequence (ECMA-48's SGR) before lines that somebody should see: red for errors, yellow for warnings.
const fn colour(level: Level) -> Option<&'static str> {
    match level {
        Level::ERROR => Some("\u{1b}[31m"),
        Level::WARN => Some("\u{1b}[33m"),
        _ => None,
    }
}

/// VMA_LOG_FILE, or standard error.
enum Output {
    StandardError,
    File(File),
}

impl Output {
    /// With the reason why it is not the file, if one was named.
    fn open(path: Option<String>) -> (Self, Option<io::Error>) {
        let Some(path) = path else { return (Self::StandardError, None) };
        // (A FIFO that nobody reads is not to be waited for.)
        let open = || File::options().create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path);
        // The program counts on the lowest numbers.
        match descendants::make_out_of_the_way(|| open().map(IntoRawFd::into_raw_fd)) {
            // SAFETY: the file's own descriptor, under another number, which nobody else knows of.
            Ok(fd) => (Self::File(unsafe { File::from_raw_fd(fd) }), None),
            Err(error) => (Self::StandardError, Some(error)),
        }
    }

    fn is_a_terminal(&self) -> bool {
        match self {
            Self::StandardError => io::stderr().is_terminal(),
            Self::File(file) => file.is_terminal(),
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

    /// What a log at that level writes of a line at each level.
    fn written(colours: bool, most: ringway_params::Level) -> String {
        // (There is one level in the process.)
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("ringway-log-{}", std::process::id()));
        let (output, unopened) = Output::open(Some(path.to_string_lossy().into_owned()));
        assert!(unopened.is_none());
        assert!(!output.is_a_terminal());
        set_level(most);
        let log = Log { colours, output };
        tracing::subscriber::with_default(log, || {
            for level in (0..).map_while(ringway_params::Level::from_number) {
                level::log(level, "line");
            }
        });
        let text = std::fs::read_to_string(&path).expect("the log is there");
        std::fs::remove_file(&path).expect("it was made here");
        text
    }

    #[test]
    fn terminals_see_colours() {
        let coloured = "\u{1b}[31mVMA PANIC: line\u{1b}[0m\n\u{1b}[31mVMA ERROR: line\u{1b}[0m\n\u{1b}[33mVMA WARNING: line\u{1b}[0m\n";
        assert_eq!(written(true, ringway_params::Level::Info), format!("{coloured}VMA INFO: line\n"));
    }

    #[test]
    fn each_level_has_its_own_lines_and_those_of_all_that_are_less() {
        let labels = ["PANIC", "ERROR", "WARNING", "INFO", "DETAILS", "DEBUG", "FINE", "FINER", "ALL"];
        for (count, most) in (0..).map_while(ringway_params::Level::from_number).enumerate() {
            let lines: String = labels[..count].iter().map(|label| format!("VMA {label}: line\n")).collect();
            assert_eq!(written(false, most), lines, "{most:?}");
        }
    }
}
