//! What a program tells the library, and asks it, beside its packets: rules and statistics.

use core::ffi::{CStr, c_char, c_int};

use ringway_params::Level;
use ringway_report::full::{self, SEPARATOR, Unit};

use crate::errno;
use crate::fdtable::{self, Entry};
use crate::process::{Process, process_or_init};
use crate::{log, report, rules};

/// What add_conf_rule returns where there is no rule (vma.md s2.4).
const NO_RULE: c_int = 1;

/// See the header.
pub(super) unsafe extern "C" fn add_conf_rule(line: *const c_char) -> c_int {
    if line.is_null() {
        errno::set(libc::EINVAL);
        return NO_RULE;
    }
    // SAFETY: the program's promise: a C string.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    crate::boundary!(NO_RULE, {
        log::start();
        match rules::add(&line) {
            Ok(()) => 0,
            Err(error) => {
                tracing::warn!("add_conf_rule: {error}");
                errno::set(libc::EINVAL);
                NO_RULE
            }
        }
    })
}

/// A level by its number in vlogger.h's `vlog_levels_t`, which begins with VLOG_NONE at -1; what is none of them is VLOG_INFO (vma.md s2.6).
fn level_of(number: c_int) -> Level {
    let place = number.checked_add(1).and_then(|place| u8::try_from(place).ok());
    place.and_then(Level::from_number).unwrap_or(Level::Info)
}

/// See the header.
pub(super) extern "C" fn dump_fd_stats(fd: c_int, level: c_int) -> c_int {
    let Some(process) = process_or_init().filter(|process| process.is_owner()) else { return errno::fail(libc::ENODEV) };
    crate::boundary!(-1, {
        dump(process, fd, level_of(level));
        0
    })
}

/// Logs a socket's statistics (0: all sockets'), in the words and the order of vma_stats' third view (vma.md s5); of what is no socket, only
/// their frame.
pub(crate) fn dump(process: &Process, fd: c_int, level: Level) {
    let is_socket = matches!(fdtable::lookup(fd), Entry::Socket(_) | Entry::Kernel(_));
    let reports = match fd {
        0 => report::all(process),
        fd => is_socket.then(|| report::one(process, fd)).flatten().into_iter().collect(),
    };
    for line in reports.iter().flat_map(|report| full::socket(report, Unit::Total)).chain([SEPARATOR.to_owned()]) {
        log::level::log(level, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_vloggers() {
        let levels =
            [Level::None, Level::Panic, Level::Error, Level::Warn, Level::Info, Level::Details, Level::Debug, Level::Fine, Level::Finer];
        for (number, level) in (-1..).zip(levels) {
            assert_eq!(level_of(number), level, "{number}");
        }
        assert_eq!(level_of(8), Level::All);
        for number in [-2, 9, 255, c_int::MAX, c_int::MIN] {
            assert_eq!(level_of(number), Level::Info, "{number}");
        }
    }
}
