//! A library's log: lines on standard error, as many as a variable of the environment says (off, error, warn, info, debug). Without it, warnings.

use core::fmt::{self, Write as _};

use libc::STDERR_FILENO;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::{errno, next};

/// Starts it, unless the process has one: `variable` names the level, and `library` stands before each line.
pub fn start(variable: &str, library: &'static str) {
    let level = std::env::var(variable).ok().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::WARN);
    let _ = tracing::subscriber::set_global_default(Log(level, library));
}

struct Log(LevelFilter, &'static str);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.0
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }

    fn event(&self, event: &Event<'_>) {
        let label = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            _ => "debug",
        };
        let mut line = format!("{}[{}] {label}: ", self.1, std::process::id());
        event.record(&mut Fields(&mut line));
        line.push('\n');
        let saved = errno::current();
        // SAFETY: the bytes of a string. (Past the function that stands in front of libc's: a line may be due where a lock is held.)
        unsafe { next::write(STDERR_FILENO, line.as_ptr().cast(), line.len()) };
        errno::set(saved);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

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
