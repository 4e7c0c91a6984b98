//! VMA_TRACELEVEL's levels, of which tracing has half. Events of the others are of the next one of tracing's below, and of a target of
//! their own, which is all that tells them apart.

use ringway_params::Level;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;

/// An error that is a PANIC.
pub(crate) const PANIC: &str = "vma::panic";
/// A word that is one of DETAILS: more than INFO, less than DEBUG (vma.md s2.6).
pub(crate) const DETAILS: &str = "vma::details";
/// A trace that is FINER than FINE.
pub(crate) const FINER: &str = "vma::finer";
/// A trace that only ALL shows.
pub(crate) const ALL: &str = "vma::all";

/// Logs a line at a level that is only known when it is there.
pub(crate) fn log(level: Level, line: &str) {
    match level {
        Level::None => {}
        Level::Panic => tracing::error!(target: PANIC, "{line}"),
        Level::Error => tracing::error!("{line}"),
        Level::Warn => tracing::warn!("{line}"),
        Level::Info => tracing::info!("{line}"),
        Level::Details => tracing::info!(target: DETAILS, "{line}"),
        Level::Debug => tracing::debug!("{line}"),
        Level::Fine => tracing::trace!("{line}"),
        Level::Finer => tracing::trace!(target: FINER, "{line}"),
        Level::All => tracing::trace!(target: ALL, "{line}"),
    }
}

/// An event's level.
pub(super) fn of(metadata: &Metadata<'_>) -> Level {
    match (*metadata.level(), metadata.target()) {
        (tracing::Level::ERROR, PANIC) => Level::Panic,
        (tracing::Level::ERROR, _) => Level::Error,
        (tracing::Level::WARN, _) => Level::Warn,
        (tracing::Level::INFO, DETAILS) => Level::Details,
        (tracing::Level::INFO, _) => Level::Info,
        (tracing::Level::DEBUG, _) => Level::Debug,
        (tracing::Level::TRACE, FINER) => Level::Finer,
        (tracing::Level::TRACE, ALL) => Level::All,
        (tracing::Level::TRACE, _) => Level::Fine,
    }
}

/// The least of tracing's levels that has all events of a level.
pub(super) const fn filter(level: Level) -> LevelFilter {
    match level {
        Level::None => LevelFilter::OFF,
        Level::Panic | Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info | Level::Details => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Fine | Level::Finer | Level::All => LevelFilter::TRACE,
    }
}

/// What a line of it is called.
pub(super) const fn label(level: Level) -> &'static str {
    match level {
        Level::None => "NONE",
        Level::Panic => "PANIC",
        Level::Error => "ERROR",
        Level::Warn => "WARNING",
        Level::Info => "INFO",
        Level::Details => "DETAILS",
        Level::Debug => "DEBUG",
        Level::Fine => "FINE",
        Level::Finer => "FINER",
        Level::All => "ALL",
    }
}
