//! What a program tells the library, and asks it, beside its packets: rules and statistics.

use core::ffi::{CStr, c_char, c_int};

use ringway_params::Level;
use ringway_report::full::{self, Unit};

use crate::errno;
use crate::fdtable::{self, Entry};
use crate::process::{Process, process_or_init};
use crate::{log, report, rules};

/// See the header.
pub(super) unsafe extern "C" fn add_conf_rule(line: *const c_char) -> c_int {
    if line.is_null() {
        return errno::fail(libc::EINVAL);
    }
    // SAFETY: the program's promise: a C string.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    crate::boundary!(-1, {
        log::start();
        match rules::add(&line) {
            Ok(()) => 0,
            Err(error) => {
                tracing::warn!("add_conf_rule: {error}");
                errno::fail(libc::EINVAL)
            }
        }
    })
}

/// The levels that dump_fd_stats takes: VMA_TRACELEVEL's, without those that are for nobody.
const LEVELS: core::ops::RangeInclusive<c_int> = 1..=6;

/// See the header.
pub(super) extern "C" fn dump_fd_stats(fd: c_int, level: c_int) -> c_int {
    if !LEVELS.contains(&level) {
        return errno::fail(libc::EINVAL);
    }
    let level = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Fine, Level::Finer][level as usize - 1];
    let is_known = fd == 0 || matches!(fdtable::lookup(fd), Entry::Socket(_) | Entry::Kernel(_));
    let Some(process) = process_or_init().filter(|process| is_known && process.is_owner()) else { return errno::fail(libc::EINVAL) };
    crate::boundary!(-1, if dump(process, fd, level) { 0 } else { errno::fail(libc::EINVAL) })
}

/// Logs a socket's statistics (0: all sockets'), in the words and the order of vma_stats' third view (vma.md s5). `false`: there is no such
/// socket.
pub(crate) fn dump(process: &Process, fd: c_int, level: Level) -> bool {
    let reports = match fd {
        0 => report::all(process),
        fd => report::one(process, fd).into_iter().collect(),
    };
    for line in reports.iter().flat_map(|report| full::socket(report, Unit::Total)) {
        match level {
            Level::None => {}
            Level::Panic | Level::Error => tracing::error!("{line}"),
            Level::Warn => tracing::warn!("{line}"),
            Level::Info => tracing::info!("{line}"),
            Level::Details | Level::Debug => tracing::debug!("{line}"),
            Level::Fine | Level::Finer | Level::All => tracing::trace!("{line}"),
        }
    }
    fd == 0 || !reports.is_empty()
}
