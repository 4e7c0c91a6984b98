//! What people look for in the log of a run at VMA_TRACELEVEL=debug: the queues that were made, and what they can do (seed 001, "Verifying
//! 'Dummy Send' capability in HW").

use ringway_devices::Ring;

use crate::process::Process;

/// Says it of shared memory.
pub(crate) fn tell(process: &Process) {
    let guard = process.lock();
    let ring = &guard.rings.first().ring;
    tell_of(ring, &ring.capabilities().kind.to_string(), &process.rendezvous().member_name(), " (for each peer)");
}

/// Says it of a ring on a device; its queues go by the name of `member`, and `size_of` says whose their size is.
pub(crate) fn tell_of(ring: &Ring, device: &str, member: &str, size_of: &str) {
    let fd = ring.wait_fd().unwrap_or(-1);
    tracing::debug!("qpm[{member}]:configure() Creating QP of transport type 'ETH' on device '{device}' [{member}] on port 1");
    tracing::debug!("qpm[{member}]:configure() HW Dummy send support for QP = {}", u8::from(ring.capabilities().dummy));
    for direction in ["Rx", "Tx"] {
        let size = ring.queue_frames();
        tracing::debug!("cqm[{member}]:cq_mgr() Created CQ as {direction} with fd[{fd}] and of size {size} elements{size_of}");
    }
}
