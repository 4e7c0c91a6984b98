//! A trace as a page for a browser: hosts as columns, frames as slanted arrows from when they were sent to when they arrived, drops
//! as crosses, timers and sockets' states beside the columns. One file that asks for nothing else, from nowhere.

mod data;

use std::io::{self, Write};

use crate::trace::{Trace, TraceError};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const DRAW: &str = include_str!("draw.js");
const BEHAVE: &str = include_str!("page.js");

/// Why a timeline could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The world was not told to keep frames.
    #[error(transparent)]
    NotKept(TraceError),
    /// The file could not be written.
    #[error("the timeline could not be written: {0}")]
    Write(#[from] io::Error),
}

/// Writes `trace` as a page called `title`, with `about` (a few lines: options, outcome) at hand.
///
/// # Errors
/// [`TimelineError`].
pub fn write(trace: &Trace, title: &str, about: &str, mut out: impl Write) -> Result<(), TimelineError> {
    if !trace.keeps_frames() {
        return Err(TimelineError::NotKept(TraceError::NotKept));
    }
    let data = data::of(trace, title, about);
    // `</script>` inside a string would end the element; `\u003c` is the same character to a JSON parser.
    let json = serde_json::to_string(&data).map_err(io::Error::from)?.replace('<', "\\u003c");
    let pieces = [("/*STYLE*/", STYLE), ("/*DATA*/", &json), ("/*DRAW*/", DRAW), ("/*BEHAVE*/", BEHAVE)];
    let mut rest = PAGE;
    for (mark, piece) in pieces {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(piece.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests;
