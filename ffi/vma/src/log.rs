//! The log: tracing, with VMA_TRACELEVEL's names. An unmodified program's standard error stays clean unless something
//! needs saying, so the default is `warn`. From `info` on it begins with the parameters that differ from their defaults.

use core::fmt;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, RawFd};
use std::sync::Once;

use ringway_params::{Id, Row};
use ringway_stack::offload::Reason;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::process::Process;
use crate::{lineage, params, real};

/// Starts the log; only the first call does anything. What is wrong with the parameters is its first line.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let settings = params::settings();
        let output = Output::open(settings.path(Id::LogFile));
        let line = Line { details: settings.count(Id::LogDetails), colours: settings.flag(Id::LogColors) && output.is_a_terminal() };
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(filter(settings.level()))
            .with_ansi(false)
            .event_format(line)
            .with_writer(output)
            .finish();
        // The program cannot have set this library's own global subscriber.
        let _ = tracing::subscriber::set_global_default(subscriber);
        settings.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        settings.changed().for_each(|(row, setting)| tracing::info!("{}", banner(row, &setting.text)));
    });
}

/// A parameter that differs from its default: `<label> <value> [VMA_NAME]`.
fn banner(row: &Row, value: &str) -> String {
    let words = row.name.trim_start_matches("VMA_").replace('_', " ").to_ascii_lowercase();
    let label: String = words.char_indices().map(|(at, c)| if at == 0 { c.to_ascii_uppercase() } else { c }).collect();
    format!("{label:<30} {value:<26} [{}]", row.name)
}

/// What tracing calls a level.
const fn filter(level: ringway_params::Level) -> LevelFilter {
    use ringway_params::Level as L;
    match level {
        L::None => LevelFilter::OFF,
        L::Panic | L::Error => LevelFilter::ERROR,
        L::Warn => LevelFilter::WARN,
        L::Info => LevelFilter::INFO,
        L::Details | L::Debug => LevelFilter::DEBUG,
        L::Fine | L::Finer | L::All => LevelFilter::TRACE,
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
    details: u32,
    colours: bool,
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
        let colour = colour(*event.metadata().level()).filter(|_| self.colours);
        colour.map_or(Ok(()), |colour| out.write_str(colour))?;
        out.write_str(match *event.metadata().level() {
            Level::ERROR => "VMA ERROR: ",
            Level::WARN => "VMA WARNING: ",
            Level::INFO => "VMA INFO: ",
            Level::DEBUG => "VMA DEBUG: ",
            Level::TRACE => "VMA FINE: ",
        })?;
        ctx.format_fields(out.by_ref(), event)?;
        colour.map_or(Ok(()), |_| out.write_str("\u{1b}[0m"))?;
        out.write_char('\n')
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
    fn open(path: Option<String>) -> Self {
        let Some(file) = path.and_then(|path| File::options().create(true).append(true).open(path).ok()) else {
            return Self::StandardError;
        };
        // The program counts on the lowest numbers.
        let fd = lineage::out_of_the_way(file.into_raw_fd());
        // SAFETY: the file's own descriptor, under another number, which nobody else knows of.
        Self::File(unsafe { File::from_raw_fd(fd) })
    }

    fn is_a_terminal(&self) -> bool {
        match self {
            Self::StandardError => io::stderr().is_terminal(),
            Self::File(file) => file.is_terminal(),
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

    /// What a subscriber with this format writes of an error, a warning and a word.
    fn written(line: Line) -> String {
        let path = std::env::temp_dir().join(format!("ringway-log-{}-{}", std::process::id(), line.colours));
        let output = Output::open(Some(path.to_string_lossy().into_owned()));
        assert!(!output.is_a_terminal());
        let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).event_format(line).with_writer(output).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!("one");
            tracing::warn!("two");
            tracing::info!("three");
            tracing::debug!("four");
        });
        let text = std::fs::read_to_string(&path).expect("the log is there");
        std::fs::remove_file(&path).expect("it was made here");
        text
    }

    #[test]
    fn terminals_see_colours() {
        assert_eq!(written(Line { details: 0, colours: false }), "VMA ERROR: one\nVMA WARNING: two\nVMA INFO: three\n");
        let coloured = "\u{1b}[31mVMA ERROR: one\u{1b}[0m\n\u{1b}[33mVMA WARNING: two\u{1b}[0m\nVMA INFO: three\n";
        assert_eq!(written(Line { details: 0, colours: true }), coloured);
    }

    #[test]
    fn levels_are_tracings() {
        use ringway_params::Level as L;
        for (name, level) in [("none", LevelFilter::OFF), ("0", LevelFilter::ERROR), ("3", LevelFilter::INFO), ("all", LevelFilter::TRACE)]
        {
            assert_eq!(L::from_name(name).map(filter), Some(level), "{name}");
        }
    }

    #[test]
    fn the_banner_has_label_value_and_name() {
        let line = banner(Id::RxPoll.row(), "-1");
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["Rx", "poll", "-1", "[VMA_RX_POLL]"]);
    }
}
