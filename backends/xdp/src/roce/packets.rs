//! A packet socket (packet(7)) for what the program in front of the interface has left to the kernel: frames come by a ring that is mapped
//! (Documentation/networking/packet_mmap.rst), so that a look costs no system call, and leave by system calls.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use ringway_host::{Fd, SendBuffer};
use ringway_stack::device::{GATHER_LIMIT, HEAD_MAX, RxBatch, SendError, TxFrame, TxSlice};

use super::filter;
use crate::error::AttachError;
use crate::interface::Interface;
use crate::tso::{of, set};
use crate::umem::{Received, Umem};

/// Bytes of the ring.
const RING: usize = 8 << 20;
/// The kernel allocates it in blocks of so many bytes.
const BLOCK: usize = 1 << 16;
/// Bytes of a frame, with what the kernel says of it: RoCE's packets have 4096 bytes at most, and headers, also if the interface has shorter ones now.
const FRAME: usize = 8192;
/// Bytes that may be on their way out of the kernel.
const UNSENT_MAX: i32 = 4 << 20;

const TPACKET_V2: i32 = 1;
const ETH_P_ALL: u16 = 0x0003;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Packets {
    fd: Fd,
    ring: NonNull<u8>,
    /// The next frame's place.
    at: usize,
    /// Where those lie that are longer than a head.
    umem: Arc<Umem>,
}

// SAFETY: the mapping lives as long as the value, and is read by whoever has it, which is one thread at a time; what it shares with the kernel are the frames' states, which are atomic.
unsafe impl Send for Packets {}

impl Packets {
    /// On an interface of the calling thread's network namespace, for RoCE's packets of that seat. `copies`: frames of up to 4 KiB that programs may leave unread.
    pub(super) fn open(interface: &Interface, mark: u8, copies: u32) -> Result<Self, AttachError> {
        let umem = Umem::map(0, 0, copies).map_err(AttachError::system("memory for frames"))?;
        let fd = open(interface, mark).map_err(AttachError::system("a packet socket"))?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let ring = unsafe { libc::mmap(core::ptr::null_mut(), RING, protection, libc::MAP_SHARED, fd.raw(), 0) };
        let ring = NonNull::new(ring.cast::<u8>()).filter(|_| ring != libc::MAP_FAILED).ok_or_else(io::Error::last_os_error);
        let ring = ring.map_err(AttachError::system("a packet socket's ring"))?;
        // SAFETY: the range is the mapping, which is none of a fork's child's.
        unsafe { libc::madvise(ring.as_ptr().cast(), RING, libc::MADV_DONTFORK) };
        Ok(Self { fd, ring, at: 0, umem: Arc::new(umem) })
    }

    pub(super) const fn fd(&self) -> RawFd {
        self.fd.raw()
    }

    fn state(&self) -> &AtomicU32 {
        // SAFETY: a place of a frame in the mapping, which begins with its state, and is aligned to more than that.
        unsafe { &*self.ring.as_ptr().add(self.at * FRAME).cast::<AtomicU32>() }
    }

    /// Whether a frame has come.
    #[inline]
    pub(super) fn has_some(&self) -> bool {
        self.state().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Whether the interface was down is forgotten: as long as the socket has that to say, who sleeps on it would be woken.
    pub(super) fn forget_error(&self) {
        let _ = rustix::net::sockopt::socket_error(&self.fd);
    }

    /// Takes so many frames, as long as there is room for them.
    pub(super) fn receive(&mut self, batch: &mut RxBatch<Received>, frames_max: usize) {
        for _ in 0..frames_max {
            if batch.is_full() || !self.has_some() || !self.take(batch) {
                break;
            }
            self.state().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.at = (self.at + 1) % (RING / FRAME);
        }
    }

    /// Copies the next frame. `false`: there is no room for it.
    fn take(&self, batch: &mut RxBatch<Received>) -> bool {
        // SAFETY: the frame is ours until its state says otherwise, and begins with what the kernel says of it.
        let said = unsafe { core::ptr::read(self.ring.as_ptr().add(self.at * FRAME).cast::<libc::tpacket2_hdr>()) };
        let (at, len) = (usize::from(said.tp_mac), said.tp_snaplen as usize);
        // (What was cut, or has a tag, is not for us.)
        if said.tp_len != said.tp_snaplen || at + len > FRAME || said.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
            return true;
        }
        // SAFETY: within the frame's place, as was just seen.
        let bytes = unsafe { core::slice::from_raw_parts(self.ring.as_ptr().add(self.at * FRAME + at), len) };
        let buffer = if len > HEAD_MAX { self.umem.hold_copy(bytes) } else { None };
        if len > HEAD_MAX && buffer.is_none() {
            return false;
        }
        if let Some(frame) = batch.push_slot() {
            frame.fill(bytes, buffer);
        }
        true
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::TooLong`].
    pub(super) fn send(&self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        let empty = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
        let mut parts = [empty; GATHER_LIMIT + 1];
        parts[0] = of(frame.head);
        let slices = parts.get_mut(1..1 + frame.body.len()).ok_or(SendError::TooLong)?;
        for (part, TxSlice { buffer, offset, len }) in slices.iter_mut().zip(frame.body) {
            *part = of(buffer.bytes(*offset, *len));
        }
        // SAFETY: all zeroes is a valid message.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), 1 + frame.body.len());
        // SAFETY: the parts are readable for their lengths, and outlive the call, which writes to none of them.
        let sent = unsafe { libc::syscall(libc::SYS_sendmsg, self.fd.raw(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Err(SendError::Full),
            Some(libc::EMSGSIZE) => Err(SendError::TooLong),
            // The interface is down (ENETDOWN), or gone (ENXIO): it is lost, as on a wire that was cut.
            error => {
                tracing::debug!("a frame is not sent: errno {}", error.unwrap_or_default());
                Ok(())
            }
        }
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's, and nobody has a reference to it any more.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), RING) };
    }
}

/// A socket with its ring, whose filter is there before anything comes.
fn open(interface: &Interface, mark: u8) -> io::Result<Fd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved. (Of no protocol: it receives nothing yet.)
    let fd = Fd::make(|| unsafe { libc::syscall(libc::SYS_socket, libc::AF_PACKET, kind, 0) })?;
    set(&fd, libc::SOL_PACKET, libc::PACKET_VERSION, TPACKET_V2)?;
    let blocks = (RING / BLOCK) as u32;
    let request = libc::tpacket_req {
        tp_block_size: BLOCK as u32,
        tp_block_nr: blocks,
        tp_frame_size: FRAME as u32,
        tp_frame_nr: (RING / FRAME) as u32,
    };
    set(&fd, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
    let mut code = filter::of(mark);
    set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() })?;
    set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, UNSENT_MAX).or_else(|_| set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, UNSENT_MAX))?;
    // SAFETY: all zeroes is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    (address.sll_family, address.sll_protocol) = (libc::AF_PACKET as u16, ETH_P_ALL.to_be());
    address.sll_ifindex = interface.index as i32;
    // SAFETY: the address is readable for its length.
    let bound = unsafe { libc::syscall(libc::SYS_bind, fd.raw(), &raw const address, size_of_val(&address)) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}
