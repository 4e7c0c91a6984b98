//! An AF_XDP socket: its memory, its queues, and the queue of the interface that it is bound to.

use core::time::Duration;
use std::io;
use std::os::fd::RawFd;

use libc::xdp_desc;
use ringway_host::Fd;

use crate::error::AttachError;
use crate::interface::Interface;
use crate::queue::{Consumer, Producer};
use crate::umem::{CHUNK, Umem};

/// XDP_USE_SG (include/uapi/linux/if_xdp.h): frames may lie in several chunks.
const USE_SG: u16 = 1 << 4;
/// XDP_PKT_CONTD: of a frame that does, all but the last of its descriptors have this.
pub(crate) const CONTINUES: u32 = 1;

/// include/uapi/asm-generic/socket.h.
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// A call of an AF_XDP socket polls once, however many microseconds this says, if it says any (net/xdp/xsk.c).
const BUSY_POLL_US: i32 = 20;

const BIND: &str = "bind of an AF_XDP socket";

/// A socket, and its four queues.
#[derive(Debug)]
pub(crate) struct XskSocket {
    // (The queues before what they belong to.)
    /// Chunks to receive into.
    pub(crate) fill: Producer<u64>,
    /// Chunks that were sent.
    pub(crate) completions: Consumer<u64>,
    /// Frames that came.
    pub(crate) received: Consumer<xdp_desc>,
    /// Frames to send.
    pub(crate) send: Producer<xdp_desc>,
    fd: Fd,
}

impl XskSocket {
    /// A socket on queue `queue` of an interface, with that memory; which `first`, of another queue of the interface, has registered, if it is there.
    pub(crate) fn open(umem: &Umem, interface: &Interface, queue: u32, first: Option<&Self>) -> Result<Self, AttachError> {
        let fd = make(first.is_none().then_some(umem), chunks(umem))?;
        // (Its queues are mapped before it is bound: before Linux 6.4 they cannot be afterwards.)
        let socket = Self::of(fd, umem)?;
        bind_patiently(&socket.fd, interface, queue, first.map(Self::fd)).map_err(AttachError::of_frames(interface, BIND))?;
        Ok(socket)
    }

    /// One that is bound, or is about to be, with its queues mapped.
    pub(crate) fn of(fd: Fd, umem: &Umem) -> Result<Self, AttachError> {
        let [receives, sends] = sizes(chunks(umem));
        let offsets = offsets(&fd).map_err(AttachError::system("XDP_MMAP_OFFSETS"))?;
        let raw = fd.raw();
        let mapped = || -> io::Result<_> {
            let fill = Producer::map(raw, libc::XDP_UMEM_PGOFF_FILL_RING as i64, &offsets.fr, receives)?;
            let completions = Consumer::map(raw, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, &offsets.cr, sends)?;
            let received = Consumer::map(raw, libc::XDP_PGOFF_RX_RING, &offsets.rx, receives)?;
            let send = Producer::map(raw, libc::XDP_PGOFF_TX_RING, &offsets.tx, sends)?;
            Ok((fill, completions, received, send))
        };
        let (fill, completions, received, send) = mapped().map_err(AttachError::system("mmap of a queue"))?;
        Ok(Self { fill, completions, received, send, fd })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// Has the kernel send what was queued.
    pub(crate) fn wake_sender(&self) -> io::Result<()> {
        // SAFETY: no memory is involved.
        let result = unsafe { libc::syscall(libc::SYS_sendto, self.fd(), 0, 0, libc::MSG_DONTWAIT, 0, 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether its interface is gone: the kernel has taken the socket off it (net/xdp/xsk.c, `xsk_notifier`). Says so once.
    pub(crate) fn is_unbound(&self) -> bool {
        let (mut error, mut len) = (0_i32, size_of::<i32>() as u32);
        // SAFETY: both are writable for their lengths.
        let result =
            unsafe { libc::syscall(libc::SYS_getsockopt, self.fd(), libc::SOL_SOCKET, libc::SO_ERROR, &raw mut error, &raw mut len) };
        result == 0 && error == libc::ENETDOWN
    }

    /// Has calls on the socket poll its queue of the interface, for so many frames each. As long as they come often enough, the interface is to raise no interrupts
    /// (Documentation/networking/napi.rst, "IRQ mitigation"; which takes gro_flush_timeout and napi_defer_hard_irqs as well).
    ///
    /// # Errors
    /// EPERM: CAP_NET_ADMIN is lacking; ENOPROTOOPT: Linux before 5.11.
    pub(crate) fn prefer_busy_poll(&self, frames: u16) -> io::Result<()> {
        let all = [(SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, BUSY_POLL_US), (SO_BUSY_POLL_BUDGET, frames.into())];
        all.iter().try_for_each(|(name, value)| set_at(&self.fd, libc::SOL_SOCKET, *name, value))
    }

    /// Has the kernel look at the fill queue; and poll the interface's queue, where that is preferred.
    pub(crate) fn wake_receiver(&self) {
        // SAFETY: no memory is involved.
        unsafe { libc::syscall(libc::SYS_recvfrom, self.fd(), 0, 0, libc::MSG_DONTWAIT, 0, 0) };
    }
}

/// A socket, with queues for so many chunks to receive into and to send from. It is not bound. The first one registers the memory.
pub(crate) fn make(umem: Option<&Umem>, chunks: [u32; 2]) -> Result<Fd, AttachError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd =
        Fd::make(|| unsafe { libc::syscall(libc::SYS_socket, libc::AF_XDP, kind, 0) }).map_err(AttachError::system("socket(AF_XDP)"))?;
    if let Some(umem) = umem {
        register(&fd, umem)?;
    }
    let [receives, sends] = sizes(chunks);
    for (name, what, size) in [
        (libc::XDP_UMEM_FILL_RING, "XDP_UMEM_FILL_RING", receives),
        (libc::XDP_UMEM_COMPLETION_RING, "XDP_UMEM_COMPLETION_RING", sends),
        (libc::XDP_RX_RING, "XDP_RX_RING", receives),
        (libc::XDP_TX_RING, "XDP_TX_RING", sends),
    ] {
        set(&fd, name, &size).map_err(AttachError::system(what))?;
    }
    Ok(fd)
}

/// For another process: binds a socket whose queues nobody has mapped, at once: where the interface's queue is not free yet, this fails, and the socket is as it was.
pub(crate) fn bind_at_once(fd: &Fd, interface: &Interface, queue: u32, first: Option<&Fd>) -> Result<(), AttachError> {
    bind(fd, interface, queue, first.map(Fd::raw)).map_err(AttachError::of_frames(interface, BIND))
}

/// Whether the queues of a socket that is bound can be mapped: before Linux 6.4 they cannot.
pub(crate) fn is_mappable(fd: &Fd, receives: u32) -> Result<(), AttachError> {
    let offsets = offsets(fd).map_err(AttachError::system("XDP_MMAP_OFFSETS"))?;
    let mapped = Consumer::<xdp_desc>::map(fd.raw(), libc::XDP_PGOFF_RX_RING, &offsets.rx, receives.next_power_of_two());
    mapped.map(drop).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => AttachError::TooOld,
        _ => AttachError::system("mmap of a queue")(error),
    })
}

fn chunks(umem: &Umem) -> [u32; 2] {
    [umem.receives().len() as u32, umem.sends().len() as u32]
}

/// Entries of the queues of what is received, and of what is sent.
fn sizes(chunks: [u32; 2]) -> [u32; 2] {
    chunks.map(u32::next_power_of_two)
}

fn register(fd: &Fd, umem: &Umem) -> Result<(), AttachError> {
    // SAFETY: all zeroes is a valid registration. (Fields that this kernel's headers have beyond these are zero, which is their default.)
    let mut registration: libc::xdp_umem_reg = unsafe { core::mem::zeroed() };
    (registration.addr, registration.len) = (umem.address(), umem.len() as u64);
    registration.chunk_size = CHUNK as u32;
    if umem.send_at() > 0 {
        (registration.flags, registration.tx_metadata_len) = (libc::XDP_UMEM_TX_METADATA_LEN, umem.send_at() as u32);
    }
    set(fd, libc::XDP_UMEM_REG, &registration).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => AttachError::Memlock { bytes: registration.len },
        _ => AttachError::system("XDP_UMEM_REG")(error),
    })
}

fn set<T>(fd: &Fd, name: i32, value: &T) -> io::Result<()> {
    set_at(fd, libc::SOL_XDP, name, value)
}

fn set_at<T>(fd: &Fd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value is readable for its length.
    let result = unsafe { libc::syscall(libc::SYS_setsockopt, fd.raw(), level, name, core::ptr::from_ref(value), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Where the parts of the queues are.
fn offsets(fd: &Fd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all zeroes are valid offsets.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { core::mem::zeroed() };
    let mut len = size_of_val(&offsets) as u32;
    // SAFETY: both are writable for their lengths.
    let result =
        unsafe { libc::syscall(libc::SYS_getsockopt, fd.raw(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &raw mut offsets, &raw mut len) };
    match result {
        0 if len as usize == size_of_val(&offsets) => Ok(offsets),
        // (Before Linux 5.4 there were no flags.)
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How long a queue is waited for whose last socket was just closed: the kernel lets go of it a little later, by a work queue (net/xdp/xsk_buff_pool.c). (Where
/// another process serves the interface it has its program there, too, which was found before.)
const FREE_WITHIN: Duration = Duration::from_secs(2);
const FREE_LOOK: Duration = Duration::from_millis(1);

fn bind_patiently(fd: &Fd, interface: &Interface, queue: u32, first: Option<RawFd>) -> io::Result<()> {
    let began = std::time::Instant::now();
    loop {
        match bind(fd, interface, queue, first) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && began.elapsed() < FREE_WITHIN => std::thread::sleep(FREE_LOOK),
            result => return result,
        }
    }
}

fn bind(fd: &Fd, interface: &Interface, queue: u32, first: Option<RawFd>) -> io::Result<()> {
    // SAFETY: all zeroes is a valid address.
    let mut address: libc::sockaddr_xdp = unsafe { core::mem::zeroed() };
    address.sxdp_family = libc::AF_XDP as u16;
    // (Without another flag the kernel takes zero-copy mode where the driver has it, else copies.)
    // Whoever shares memory has its mode, too.
    match first {
        None if interface.is_long => address.sxdp_flags = libc::XDP_USE_NEED_WAKEUP | USE_SG,
        None => address.sxdp_flags = libc::XDP_USE_NEED_WAKEUP,
        Some(first) => (address.sxdp_flags, address.sxdp_shared_umem_fd) = (libc::XDP_SHARED_UMEM, first as u32),
    }
    (address.sxdp_ifindex, address.sxdp_queue_id) = (interface.index, queue);
    // SAFETY: the address is readable for its length.
    let result = unsafe { libc::syscall(libc::SYS_bind, fd.raw(), &raw const address, size_of_val(&address)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
