//! What a program could not know otherwise: one line each, on standard error, if `RINGWAY_CONNECTX_LOG` is set; and whatever that says, what is wrong with how it was set up.

use std::io::Write as _;
use std::sync::OnceLock;

static WANTED: OnceLock<bool> = OnceLock::new();

/// Says `what`, if that is wanted.
pub(crate) fn say(what: core::fmt::Arguments<'_>) {
    if *WANTED.get_or_init(|| std::env::var_os("RINGWAY_CONNECTX_LOG").is_some_and(|value| value != "0")) {
        warn(what);
    }
}

/// Says `what`.
pub(crate) fn warn(what: core::fmt::Arguments<'_>) {
    // Whoever closed standard error does not want to know.
    let _ = std::io::stderr().write_all(format!("ringway-connectx: {what}\n").as_bytes());
}
