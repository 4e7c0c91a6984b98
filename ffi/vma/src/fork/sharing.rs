//! Connections, and UDP sockets on interfaces, that children of a fork may have as well.
//!
//! On the kernel they go on when the parent is killed. Here they end with its ring; but their peers are not to take that for the end of a stream, to
//! which a child might have written more. So the ring is told which connections are shared, before the fork, and that they no longer are, once
//! the children have ended or become other programs.

use core::time::Duration;

use ringway_stack::time::Instant;

use crate::descendants;
use crate::process::Offload;

/// Between two looks at the children: at first, and at most. In between it doubles, so that nobody looks for children that stay.
const LOOK_MIN: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_secs(10);

/// When the children are looked at next. `None`: nothing is shared.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    next: Option<(Instant, Duration)>,
}

/// A child is about to be made that has all connections.
pub(crate) fn begin(offload: &mut Offload, now: Instant) {
    let streams = offload.sockets.iter().filter_map(|(_, socket)| socket.kind.stream());
    let mut is_any = offload.has_datagrams_left();
    for id in streams {
        is_any |= offload.rings.of_mut(id).tcp_share(id, true).is_ok();
    }
    if is_any {
        offload.sharing.next = Some((now + LOOK_MIN, LOOK_MIN));
        // (The progress thread looks, and may be asleep for longer.)
        offload.mux.call_progress();
    }
}

/// Looks whether the children are still there. For how long they need not be looked at again.
pub(crate) fn look_after(offload: &mut Offload, now: Instant) -> Option<Duration> {
    let (at, pause) = offload.sharing.next?;
    if now < at {
        return Some(at.since(now));
    }
    let youngest = descendants::youngest_child();
    let mut is_any = offload.return_datagrams(youngest);
    for (_, socket) in offload.sockets.iter() {
        let Some(id) = socket.kind.stream() else { continue };
        let is_shared = socket.birth < youngest;
        is_any |= is_shared && offload.rings.of_mut(id).tcp_share(id, is_shared).is_ok();
        if !is_shared {
            let _ended = offload.rings.of_mut(id).tcp_share(id, false);
        }
    }
    let pause = (pause * 2).min(LOOK_MAX);
    offload.sharing.next = is_any.then_some((now + pause, pause));
    is_any.then_some(pause)
}
