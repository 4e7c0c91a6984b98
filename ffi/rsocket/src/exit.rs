//! The end of a process that calls exit(3), or returns from main: what it has sent still arrives, and its connections end as if it had closed them. (One that is
//! killed, or ends by _exit(2), ends them by a reset.)

use core::time::Duration;
use std::sync::Once;

use ringway_preload::bare_boundary;

use crate::library::{self, enter};

/// How long what was sent may take to arrive.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// Registers the handler, once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function of this library, which is never unloaded. If there is no room for it, the process ends as one that is killed.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    bare_boundary!((), close_all_if_free());
}

/// Unless the calls' lock is not to be had: the thread itself may have it, interrupted by a signal whose handler ends the process. (sockperf's does.)
pub(crate) fn close_all_if_free() {
    if library::is_free() {
        close_all();
    }
}

fn close_all() {
    let Ok(mut library) = enter() else { return };
    let began = library.poll();
    let ids: Vec<_> = library.table.values().filter_map(|entry| entry.stream().ok()).collect();
    for id in ids {
        let (sockets, device) = library.parts();
        // It may be another thread's to close at this moment.
        let _ = sockets.close(began, device, id);
    }
    drop(library);
    loop {
        let Ok(mut library) = enter() else { return };
        let now = library.poll();
        if library.sockets.closing() == 0 || now.since(began) > TIME_MAX {
            return;
        }
        drop(library);
        std::thread::sleep(PAUSE);
    }
}
