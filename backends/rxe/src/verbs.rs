//! Objects of libibverbs, each of which ends when it is dropped, and holds what it stands on: so all end in the order that the library wants.

use core::ptr::{self, NonNull};
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use rdma_core_sys as sys;
use rdma_core_sys::Ibverbs;
use ringway_host::Adopted;
use ringway_stack::device::messages::QpConfig;

use crate::error::OpenError;
use crate::memory::CardMemory;

/// Completions that are taken from the device at a time.
const BATCH: usize = 16;

/// What the library made, or its errno.
pub(crate) fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// A call's answer: zero, or an errno.
pub(crate) fn done(errno: c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno.abs())) }
}

/// What an object's end says. Of a device that was removed (EIO) all has ended already.
pub(crate) fn ended(what: &str, errno: c_int) {
    if errno != 0 {
        tracing::debug!("{what} does not end: {}", io::Error::from_raw_os_error(errno.abs()));
    }
}

/// Makes a descriptor's reads return at once. (By number: fcntl(2) may be interposed.)
pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let set = unsafe {
        let flags = libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL);
        if flags < 0 { flags } else { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, flags | libc::c_long::from(libc::O_NONBLOCK)) }
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Names of all RDMA devices.
///
/// # Errors
/// [`OpenError::Library`]; [`OpenError::NoList`].
pub fn device_names() -> Result<Vec<String>, OpenError> {
    let verbs = Ibverbs::get().map_err(Clone::clone)?;
    let mut names = Vec::new();
    // SAFETY: the devices are the list's, which lasts while they are looked at.
    with_devices(verbs, |device| unsafe { names.push(name_of(verbs, device)) })?;
    Ok(names)
}

fn with_devices(verbs: &Ibverbs, mut look: impl FnMut(*mut sys::ibv_device)) -> Result<(), OpenError> {
    let mut count = 0;
    // SAFETY: the list is used before it is freed, and has as many entries as it says.
    unsafe {
        let list = made(verbs.ibv_get_device_list(&raw mut count)).map_err(OpenError::NoList)?;
        (0..usize::try_from(count).unwrap_or(0)).for_each(|at| look(*list.as_ptr().add(at)));
        verbs.ibv_free_device_list(list.as_ptr());
    }
    Ok(())
}

/// # Safety
/// The device is the library's, and there.
pub(crate) unsafe fn name_of(verbs: &Ibverbs, device: *mut sys::ibv_device) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(verbs.ibv_get_device_name(device)) }.to_string_lossy().into_owned()
}

/// An opened device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) verbs: &'static Ibverbs,
    raw: NonNull<sys::ibv_context>,
    pub(crate) name: String,
    /// The library's descriptors of it.
    _adopted: [Adopted; 2],
}

// SAFETY: libibverbs' objects may be used by any thread, and by several at once (ibv_open_device(3) and the library's README say so of all verbs).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the device of that name.
    pub(crate) fn open(name: &str) -> Result<Self, OpenError> {
        let verbs = Ibverbs::get().map_err(Clone::clone)?;
        let mut opened = Err(OpenError::NoDevice(name.to_owned()));
        // SAFETY: a device is looked at and opened while the list is there, and stays while it is open.
        with_devices(verbs, |device| unsafe {
            if name_of(verbs, device) == name {
                opened = match (*device).transport_type {
                    sys::IBV_TRANSPORT_IB => made(verbs.ibv_open_device(device)).map_err(OpenError::system("ibv_open_device")),
                    _ => Err(OpenError::Transport(name.to_owned())),
                };
            }
        })?;
        let raw = opened?;
        // SAFETY: the context was opened; these fields are never written again.
        let (cmd_fd, async_fd) = unsafe { ((*raw.as_ptr()).cmd_fd, (*raw.as_ptr()).async_fd) };
        let context = Self { verbs, raw, name: name.to_owned(), _adopted: [cmd_fd, async_fd].map(Adopted::new) };
        set_nonblocking(async_fd).map_err(OpenError::system("fcntl of the asynchronous events"))?;
        Ok(context)
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_context {
        self.raw.as_ptr()
    }

    /// Readable when an asynchronous event is there.
    pub(crate) fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open, and the field is never written again.
        unsafe { (*self.raw()).async_fd }
    }

    pub(crate) fn query(&self) -> io::Result<sys::ibv_device_attr> {
        let mut attr = sys::ibv_device_attr::default();
        // SAFETY: the context is open, and the attribute writable.
        done(unsafe { self.verbs.ibv_query_device(self.raw(), &raw mut attr) })?;
        Ok(attr)
    }

    pub(crate) fn query_port(&self, port: u8) -> io::Result<sys::ibv_port_attr> {
        let mut attr = sys::ibv_port_attr::default();
        // SAFETY: as above.
        done(unsafe { self.verbs.ibv_query_port(self.raw(), port, &raw mut attr) })?;
        Ok(attr)
    }

    /// An entry of a port's table of GIDs; `None`: it is not in use.
    pub(crate) fn gid(&self, port: u8, index: u32) -> Option<sys::ibv_gid_entry> {
        let mut entry = sys::ibv_gid_entry::default();
        // SAFETY: as above.
        let found = unsafe { self.verbs.ibv_query_gid_ex(self.raw(), port.into(), index, &raw mut entry, 0) };
        (found == 0).then_some(entry)
    }

    /// The next asynchronous event, if there is one; it is handed back when `take` is done with it.
    pub(crate) fn next_event(&self, take: impl FnOnce(&sys::ibv_async_event)) -> bool {
        let mut event = sys::ibv_async_event::default();
        // SAFETY: the context is open; the event is handed back once, after it was filled in.
        unsafe {
            if self.verbs.ibv_get_async_event(self.raw(), &raw mut event) != 0 {
                return false;
            }
            take(&event);
            self.verbs.ibv_ack_async_event(&raw mut event);
        }
        true
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nothing that was made of it is left, for each of that holds it.
        ended("the device", unsafe { self.verbs.ibv_close_device(self.raw()) });
    }
}

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) context: Arc<Context>,
    raw: NonNull<sys::ibv_pd>,
}

// SAFETY: as of the context.
unsafe impl Send for Domain {}
// SAFETY: as of the context.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = made(unsafe { context.verbs.ibv_alloc_pd(context.raw()) })?;
        Ok(Self { context: context.clone(), raw })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: nothing that was made of it is left.
        ended("a protection domain", unsafe { self.context.verbs.ibv_dealloc_pd(self.raw()) });
    }
}

/// Memory that is registered. (It is no more the device's before it is given back, or dropped.)
#[derive(Debug)]
pub(crate) struct Registered<M> {
    registration: Option<Registration>,
    pub(crate) memory: M,
}

#[derive(Debug)]
struct Registration {
    domain: Arc<Domain>,
    raw: NonNull<sys::ibv_mr>,
}

// SAFETY: as of the context.
unsafe impl Send for Registration {}

impl<M: CardMemory> Registered<M> {
    /// `access`: verbs' own flags.
    pub(crate) fn new(domain: &Arc<Domain>, memory: M, access: u32) -> io::Result<Self> {
        let start = memory.start().ok_or(io::ErrorKind::Unsupported)?;
        let len = usize::try_from(memory.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: the memory stays where it is until it is dropped, which is after the registration has ended, and nobody makes references to it.
        let raw = made(unsafe { domain.context.verbs.ibv_reg_mr(domain.raw(), start.as_ptr().cast(), len, access as c_int) })?;
        Ok(Self { registration: Some(Registration { domain: domain.clone(), raw }), memory })
    }

    /// The keys: ours, and the peers'. None of a device that was removed.
    pub(crate) fn keys(&self) -> Option<(u32, u32)> {
        let raw = self.registration.as_ref()?.raw.as_ptr();
        // SAFETY: the region is there, and these fields are never written again.
        Some(unsafe { ((*raw).lkey, (*raw).rkey) })
    }

    /// The memory is the device's no more.
    pub(crate) fn end(&mut self) {
        self.registration = None;
    }

    /// The memory, which is the device's no more.
    pub(crate) fn into_memory(self) -> M {
        self.memory
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: made here, and ended once. Requests that name it fail from now on.
        ended("a memory region", unsafe { self.domain.context.verbs.ibv_dereg_mr(self.raw.as_ptr()) });
    }
}

/// Where events of completions come.
#[derive(Debug)]
pub(crate) struct Channel {
    context: Arc<Context>,
    raw: NonNull<sys::ibv_comp_channel>,
    _adopted: Adopted,
}

// SAFETY: as of the context.
unsafe impl Send for Channel {}
// SAFETY: as of the context.
unsafe impl Sync for Channel {}

impl Channel {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = made(unsafe { context.verbs.ibv_create_comp_channel(context.raw()) })?;
        // SAFETY: just made; the field is never written again.
        let fd = unsafe { (*raw.as_ptr()).fd };
        let channel = Self { context: context.clone(), raw, _adopted: Adopted::new(fd) };
        set_nonblocking(fd)?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// The number of the next completion queue that has an event, if one has.
    pub(crate) fn next_event(&self) -> Option<u32> {
        let (mut cq, mut number) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is there. An event's queue is, too: its end waits until the event was handed back, which is here and now.
        unsafe {
            if self.context.verbs.ibv_get_cq_event(self.raw.as_ptr(), &raw mut cq, &raw mut number) != 0 {
                return None;
            }
            self.context.verbs.ibv_ack_cq_events(cq, 1);
        }
        Some(number.addr() as u32)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: no completion queue is left that has it.
        ended("a completion channel", unsafe { self.context.verbs.ibv_destroy_comp_channel(self.raw.as_ptr()) });
    }
}

/// A completion queue.
pub(crate) struct CompletionQueue {
    channel: Arc<Channel>,
    raw: NonNull<sys::ibv_cq>,
    /// Completions that were taken from the device and not asked for yet: those from `next` up to `end`.
    batch: [sys::ibv_wc; BATCH],
    next: usize,
    end: usize,
    /// The device had fewer than were asked for, when they were: those of the batch were all.
    is_last: bool,
    /// An event is asked for, and has not come.
    pub(crate) is_armed: bool,
    /// An event came that nobody has asked about.
    pub(crate) has_event: bool,
    /// Queue pairs that complete here.
    pub(crate) users: usize,
}

// SAFETY: as of the context.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    pub(crate) fn new(channel: &Arc<Channel>, depth: usize, number: u32) -> io::Result<Self> {
        let depth = c_int::try_from(depth).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (context, name) = (&channel.context, ptr::without_provenance_mut::<c_void>(number as usize));
        // SAFETY: the context and the channel are there; the queue's own pointer is a number to the library.
        let raw = made(unsafe { context.verbs.ibv_create_cq(context.raw(), depth, name, channel.raw.as_ptr(), 0) })?;
        let batch = [sys::ibv_wc::default(); BATCH];
        Ok(Self { channel: channel.clone(), raw, batch, next: 0, end: 0, is_last: false, is_armed: false, has_event: false, users: 0 })
    }

    /// The next completion. Once there is none, the device is asked again by the next call.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<&sys::ibv_wc> {
        if self.is_empty() {
            return None;
        }
        self.next += 1;
        Some(&self.batch[self.next - 1])
    }

    /// Whether [`CompletionQueue::poll`] finds none: then this was the call that did.
    #[inline(always)]
    pub(crate) fn is_empty(&mut self) -> bool {
        let asks = self.next == self.end;
        if asks && core::mem::take(&mut self.is_last) || !self.look() {
            return true;
        }
        // (Of what was taken ahead, before an event was asked for or had come, nobody knows whether it was all.)
        self.is_last |= asks && self.end < BATCH;
        false
    }

    /// Whether there is one.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> bool {
        if self.next == self.end {
            // SAFETY: the queue is there, and the array has room for so many.
            let count = unsafe { sys::ibv_poll_cq(self.raw.as_ptr(), BATCH as c_int, self.batch.as_mut_ptr()) };
            // (A device that failed has none: the stack is told of that by its asynchronous event.)
            (self.next, self.end) = (0, usize::try_from(count).unwrap_or(0).min(BATCH));
            self.is_last = false;
        }
        self.next < self.end
    }

    /// Whether completions were taken from the device that nobody asked for.
    pub(crate) const fn has_taken(&self) -> bool {
        self.next < self.end
    }

    /// Its event has come: there is something that nobody has seen.
    pub(crate) fn on_event(&mut self) {
        (self.is_armed, self.has_event, self.is_last) = (false, true, false);
    }

    /// Asks for an event about a completion that is yet to come.
    pub(crate) fn arm(&mut self, solicited_only: bool) {
        // SAFETY: the queue is there.
        self.is_armed = unsafe { sys::ibv_req_notify_cq(self.raw.as_ptr(), c_int::from(solicited_only)) } == 0;
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: no queue pair completes here any more, and all events were handed back.
        ended("a completion queue", unsafe { self.channel.context.verbs.ibv_destroy_cq(self.raw.as_ptr()) });
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    domain: Arc<Domain>,
    raw: NonNull<sys::ibv_qp>,
}

// SAFETY: as of the context.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Makes one. The completion queues outlive it, by their counts of users.
    pub(crate) fn new(domain: &Arc<Domain>, config: &QpConfig, kind: sys::ibv_qp_type, cqs: [&CompletionQueue; 2]) -> io::Result<Self> {
        let mut attr = sys::ibv_qp_init_attr {
            send_cq: cqs[0].raw.as_ptr(),
            recv_cq: cqs[1].raw.as_ptr(),
            cap: sys::ibv_qp_cap {
                max_send_wr: config.send_depth as u32,
                max_recv_wr: config.recv_depth as u32,
                max_send_sge: config.sges_max as u32,
                max_recv_sge: config.sges_max as u32,
                max_inline_data: config.inline_max as u32,
            },
            qp_type: kind,
            ..sys::ibv_qp_init_attr::default()
        };
        // SAFETY: the domain and the queues are there, and the attribute writable.
        let raw = made(unsafe { domain.context.verbs.ibv_create_qp(domain.raw(), &raw mut attr) })?;
        Ok(Self { domain: domain.clone(), raw })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_qp {
        self.raw.as_ptr()
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is there, and the field is never written again.
        unsafe { (*self.raw()).qp_num }
    }

    pub(crate) fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: u32) -> io::Result<()> {
        // SAFETY: the queue pair is there.
        done(unsafe { self.domain.context.verbs.ibv_modify_qp(self.raw(), attr, mask as c_int) })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made here, and ended once.
        ended("a queue pair", unsafe { self.domain.context.verbs.ibv_destroy_qp(self.raw()) });
    }
}
