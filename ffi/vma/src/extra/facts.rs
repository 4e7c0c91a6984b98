//! What people look for in the log of a run at VMA_TRACELEVEL=debug: the queues that were made, and what they can do (seed 001, "Verifying
//! 'Dummy Send' capability in HW").

use crate::process::Process;

/// Says it.
pub(crate) fn tell(process: &Process) {
    let guard = process.lock();
    let device = &guard.rings.first().ring;
    let capabilities = device.capabilities();
    let (kind, member) = (capabilities.kind, process.rendezvous().member_name());
    let fd = device.wait_fd().unwrap_or(-1);
    tracing::debug!("qpm[{member}]:configure() Creating QP of transport type 'ETH' on device '{kind}' [{member}] on port 1");
    tracing::debug!("qpm[{member}]:configure() HW Dummy send support for QP = {}", u8::from(capabilities.dummy));
    for direction in ["Rx", "Tx"] {
        let size = device.queue_frames();
        tracing::debug!("cqm[{member}]:cq_mgr() Created CQ as {direction} with fd[{fd}] and of size {size} elements (for each peer)");
    }
}
