//! A handshake that the ring refused, and that no call waits for.
//!
//! Between the question where a listener is and the handshake, it may have been left to other processes (a fork, an exec, a close of one of
//! those that share it), and is in the kernel all the while. So the ring's no is not the last word: the kernel's is.

use ringway_stack::offload::Reason;
use ringway_stack::tcp;

use super::Kind;
use super::address::Raw;
use super::connect::kernel_result;
use crate::errno::{self, Errno};
use crate::process::{self, Offload};
use crate::real;

/// A socket has failed. `true`: its handshake was refused, and the kernel connects it now.
#[cold]
pub(crate) fn connects_again(offload: &mut Offload, index: u32) -> bool {
    let (Some(key), Some(process)) = (offload.sockets.key_at(index), process::process()) else { return false };
    let Some(socket) = offload.sockets.find(key).filter(|socket| socket.is_nonblocking()) else { return false };
    let (Kind::Connecting(id), Some(remote)) = (socket.kind, socket.peer) else { return false };
    // One that was established once has a round-trip time.
    let is_refused = offload.rings.of(id).info(id).is_some_and(|info| info.state == Some(tcp::State::Closed) && info.srtt.is_zero());
    if !is_refused {
        return false;
    }
    let to = Raw::new(remote, socket.family);
    let saved = errno::current();
    // SAFETY: the address is as long as it says; O_NONBLOCK is set.
    let result = kernel_result(unsafe { real::connect(socket.fd, to.as_ptr(), to.len()) });
    errno::set(saved);
    if !matches!(result, Ok(_) | Err(Errno(libc::EINPROGRESS))) {
        return false;
    }
    offload.rings.of_mut(id).close(process.now(), id, true);
    offload.leave_to_kernel(key, "connect", Reason::NoOffloadedPeer);
    true
}
