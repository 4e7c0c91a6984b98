//! The log: tracing, with VMA_TRACELEVEL's names. An unmodified program's standard error stays clean unless something
//! needs saying, so the default is `warn`.

use core::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;

use ringway_stack::offload::Reason;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::process::Process;
use crate::real;

/// Starts the log; only the first call does anything.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = level_named(&std::env::var("VMA_TRACELEVEL").unwrap_or_default());
        let details = std::env::var("VMA_LOG_DETAILS").ok().and_then(|d| d.parse().ok());
        let details = details.unwrap_or(if level >= LevelFilter::DEBUG { 2 } else { 0 });
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .event_format(Line { details })
            .with_writer(Output::open())
            .finish();
        // The program cannot have set this library's own global subscriber.
        let _ = tracing::subscriber::set_global_default(subscriber);
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
    tracing::info!("offloading over {} as {}", "shm", process.rendezvous.member_name());
}

/// `VMA WARNING: …`, with what VMA_LOG_DETAILS adds.
struct Line {
    details: u8,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
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
        ctx.format_fields(out.by_ref(), event)?;
        out.write_char('\n')
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
}

impl<'a> MakeWriter<'a> for Output {
    type Writer = Descriptor;
    fn make_writer(&'a self) -> Descriptor {
        Descriptor(match self {
            Self::StandardError => libc::STDERR_FILENO,
            Self::File(file) => file.as_raw_fd(),
        })
    }
}

/// Writes past the interposed `write`: a log line may be due while the state is locked.
struct Descriptor(RawFd);

impl io::Write for Descriptor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let saved = crate::errno::current();
        let _masked = crate::cancel::Masked::new();
        // SAFETY: the pointer and length are a slice's.
        let written = unsafe { real::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
        let result = usize::try_from(written).map_err(|_| io::Error::last_os_error());
        crate::errno::set(saved);
        result
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
