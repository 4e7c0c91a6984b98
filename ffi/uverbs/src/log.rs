//! What a program could not know otherwise: one line each, on standard error, if `RINGWAY_CONNECTX_LOG` is set; and whatever that says, what is wrong with how it was set up.

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
    let line = format!("ringway-connectx: {what}\n");
    // (By number: libc's write(2) is a point at which a thread may be cancelled, and this one may have the card's lock. Whoever closed standard error does not want to know.)
    // SAFETY: as many bytes as there are.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.as_ptr(), line.len()) };
}
