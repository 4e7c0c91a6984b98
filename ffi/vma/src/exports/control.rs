//! Control messages that tell when something was received.

use core::time::Duration;
use std::time::SystemTime;

use ringway_preload::control::{Control, pair};
use ringway_stack::Instant;

use crate::process::process;
use crate::socket::Ancillary;

/// Adds when it was received: the ring's time on the wall's clock, or now; and what the card says, as it is told.
pub(super) fn put_times(control: &mut Control<'_>, asked: Ancillary, received: Option<Instant>, by_card: Option<Duration>) {
    let wall = wall_time(received);
    let seconds = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
    if asked.timestamp != 0 {
        // A timespec for the nanoseconds' forms, else a timeval.
        let fraction = if matches!(asked.timestamp, libc::SO_TIMESTAMPNS | 64) { wall.subsec_nanos() } else { wall.subsec_micros() };
        control.put(libc::SOL_SOCKET, asked.timestamp, &pair(seconds, fraction));
    }
    if asked.timestamping != 0 && (asked.software_times || by_card.is_some()) {
        // struct scm_timestamping: the software's time, one that is no more, the hardware's.
        let mut times = [0; 48];
        if asked.software_times {
            times[..16].copy_from_slice(&pair(seconds, wall.subsec_nanos()));
        }
        if let Some(by_card) = by_card {
            times[32..].copy_from_slice(&pair(i64::try_from(by_card.as_secs()).unwrap_or(i64::MAX), by_card.subsec_nanos()));
        }
        control.put(libc::SOL_SOCKET, asked.timestamping, &times);
    }
}

/// The ring's time on the wall's clock, since 1970; without one: now.
pub(crate) fn wall_time(at: Option<Instant>) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match (at, process()) {
        (Some(at), Some(process)) => now.saturating_sub(process.now().since(at)),
        _ => now,
    }
}
