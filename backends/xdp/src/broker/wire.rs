//! Messages and descriptors on a Unix socket. (By system calls: libc's functions may be those of the library that this crate is linked into.)

use core::mem::MaybeUninit;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg,
    sendmsg,
};

use super::message::DESCRIPTORS_MAX;

/// Room for more descriptors than belong to a message is room for the kernel's most (SCM_MAX_FD): none is left out in silence.
pub(super) const KERNELS_MAX: usize = 253;

/// Sends a message.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return if sent? == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) },
        }
    }
}

/// What came.
pub(super) struct Received {
    pub(super) len: usize,
    /// There was more than there was room for.
    pub(super) is_cut: bool,
}

/// Receives a message; at its end, [`io::ErrorKind::UnexpectedEof`].
pub(super) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], flags: RecvFlags) -> io::Result<(Received, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(KERNELS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags | RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC) {
            Err(Errno::INTR) => {}
            message => break message?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if message.bytes == 0 && descriptors.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let is_cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) || message.bytes > bytes.len();
    Ok((Received { len: message.bytes.min(bytes.len()), is_cut }, descriptors))
}
