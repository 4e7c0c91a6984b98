//! Objects of libibverbs, each of which ends when it is dropped, and holds what it stands on: so all end in the order that the library wants.
//!
//! What is made here is control: nothing of it is on the path of a frame. Where the queues lie, mlx5dv_init_obj(3) tells.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::sync::Arc;

use rdma_core_sys as sys;
use rdma_core_sys::{Ibverbs, Mlx5dv};
use ringway_host::Adopted;

use crate::error::AttachError;

/// What the library made, or its errno.
fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// A call's answer: zero, or an errno.
fn done(errno: c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno.abs())) }
}

/// A card of this process was removed.
static WAS_REMOVED: AtomicBool = AtomicBool::new(false);

/// What an object's end says, which nobody can help.
fn ended(what: &str, errno: c_int) {
    match errno.abs() {
        0 => {}
        // (Of a card that was removed, all has ended already; but what stands on it counts for the library still.)
        libc::EIO => {
            WAS_REMOVED.store(true, Ordering::Relaxed);
            tracing::debug!("{what} has ended with its card");
        }
        libc::EBUSY if WAS_REMOVED.load(Ordering::Relaxed) => tracing::debug!("{what} has ended with its card, and stays in memory"),
        errno => tracing::warn!("{what} does not end: {}", io::Error::from_raw_os_error(errno)),
    }
}

/// Makes a descriptor's reads return at once. (By number: fcntl(2) may be interposed.)
fn set_nonblocking(fd: c_int) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let set = unsafe {
        let flags = libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL);
        if flags < 0 { flags } else { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, flags | libc::c_long::from(libc::O_NONBLOCK)) }
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An opened card.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) verbs: &'static Ibverbs,
    dv: &'static Mlx5dv,
    raw: NonNull<sys::ibv_context>,
    /// The library's descriptors of it.
    adopted: Vec<Adopted>,
}

// SAFETY: libibverbs' objects may be used by any thread, and by several at once (ibv_open_device(3) and the library's README say so of all verbs).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Names of all RDMA devices, whether they are cards or not.
    pub(crate) fn names() -> Result<Vec<String>, AttachError> {
        let verbs = Ibverbs::get().map_err(Clone::clone)?;
        let mut count = 0;
        // SAFETY: the list is used before it is freed, and so are the names in it.
        unsafe {
            let list = made(verbs.ibv_get_device_list(&raw mut count)).map_err(AttachError::NoList)?;
            let devices = (0..usize::try_from(count).unwrap_or(0)).map(|at| *list.as_ptr().add(at));
            let name = |device| CStr::from_ptr(verbs.ibv_get_device_name(device)).to_string_lossy().into_owned();
            let names = devices.map(name).collect();
            verbs.ibv_free_device_list(list.as_ptr());
            Ok(names)
        }
    }

    /// Opens the card of that name.
    pub(crate) fn open(name: &str) -> Result<Self, AttachError> {
        let verbs = Ibverbs::get().map_err(Clone::clone)?;
        let dv = Mlx5dv::get().map_err(Clone::clone)?;
        let mut count = 0;
        // SAFETY: the list is used before it is freed; devices in it are the library's, and stay while they are open.
        unsafe {
            let list = made(verbs.ibv_get_device_list(&raw mut count)).map_err(AttachError::NoList)?;
            let devices = (0..usize::try_from(count).unwrap_or(0)).map(|at| *list.as_ptr().add(at));
            let is_it = |device: &*mut sys::ibv_device| CStr::from_ptr(verbs.ibv_get_device_name(*device)).to_bytes() == name.as_bytes();
            let opened = match devices.into_iter().find(is_it) {
                None => Err(AttachError::NoDevice(name.to_owned())),
                Some(device) if dv.mlx5dv_is_supported.is_some_and(|is_mlx5| !is_mlx5(device)) => {
                    Err(AttachError::NotMlx5(name.to_owned()))
                }
                Some(device) => made(verbs.ibv_open_device(device)).map_err(AttachError::system("ibv_open_device")),
            };
            verbs.ibv_free_device_list(list.as_ptr());
            Self::of(verbs, dv, opened?)
        }
    }

    /// One that these libraries have opened.
    ///
    /// # Safety
    /// They have, and nobody else uses or closes it.
    pub(crate) unsafe fn of(verbs: &'static Ibverbs, dv: &'static Mlx5dv, raw: NonNull<sys::ibv_context>) -> Result<Self, AttachError> {
        let mut context = Self { verbs, dv, raw, adopted: Vec::new() };
        // SAFETY: the context is open, and the field is never written again.
        let command_fd = unsafe { (*context.raw()).cmd_fd };
        context.adopted = [command_fd, context.async_fd()].map(Adopted::new).into();
        set_nonblocking(context.async_fd()).map_err(AttachError::system("fcntl of the asynchronous events"))?;
        Ok(context)
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_context {
        self.raw.as_ptr()
    }

    /// Readable when an asynchronous event is there.
    pub(crate) fn async_fd(&self) -> c_int {
        // SAFETY: the context is open, and the field is never written again.
        unsafe { (*self.raw()).async_fd }
    }

    /// What the card can do.
    pub(crate) fn query(&self) -> io::Result<sys::ibv_device_attr_ex> {
        let mut attr = sys::ibv_device_attr_ex::default();
        // SAFETY: the context is open, and the attribute writable.
        done(unsafe { self.verbs.ibv_query_device_ex(self.raw(), core::ptr::null(), &raw mut attr) })?;
        Ok(attr)
    }

    /// What it can do beyond verbs: compress completions, and receive into strides.
    pub(crate) fn query_more(&self) -> io::Result<sys::mlx5dv_context> {
        let mask = sys::MLX5DV_CONTEXT_MASK_CQE_COMPRESION | sys::MLX5DV_CONTEXT_MASK_STRIDING_RQ;
        let mut attr = sys::mlx5dv_context { comp_mask: mask.into(), ..Default::default() };
        // SAFETY: the context is open, and the attribute writable.
        done(unsafe { self.dv.mlx5dv_query_device(self.raw(), &raw mut attr) })?;
        Ok(attr)
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

    /// Asks where queues lie.
    fn ask(&self, mut object: sys::mlx5dv_obj, kind: u32) -> io::Result<()> {
        // SAFETY: the caller filled in the pair of pointers that `kind` names: an object of this library's, and a place for the answer.
        done(unsafe { self.dv.mlx5dv_init_obj(&raw mut object, kind.into()) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.adopted.clear();
        // SAFETY: nothing that stands on it is left, as each holds it.
        ended("a context", unsafe { self.verbs.ibv_close_device(self.raw()) });
    }
}

/// An object that ends by a call on itself. `$of` is what it stands on, which is dropped after it.
macro_rules! object {
    ($(#[$meta:meta])* $name:ident($raw:ty) of $of:ty, $what:literal, |$self:ident| $end:expr) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub(crate) struct $name {
            raw: NonNull<$raw>,
            #[allow(dead_code, reason = "of some, what they stand on is only held")]
            of: $of,
        }

        // SAFETY: as of the context.
        unsafe impl Send for $name {}
        // SAFETY: as of the context.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                let $self = self;
                // SAFETY: it was made by the library, has not ended, and nothing stands on it any more.
                ended($what, unsafe { $end });
            }
        }
    };
}

object!(
    /// A protection domain.
    Pd(sys::ibv_pd) of Arc<Context>, "a protection domain", |pd| pd.of.verbs.ibv_dealloc_pd(pd.raw.as_ptr())
);
object!(
    /// Registered memory.
    Region(sys::ibv_mr) of Arc<Pd>, "a memory region", |region| region.of.context().verbs.ibv_dereg_mr(region.raw.as_ptr())
);
object!(
    /// Memory on the card.
    Dm(sys::ibv_dm) of Arc<Pd>, "memory on the card", |memory| sys::ibv_free_dm(memory.raw.as_ptr())
);
object!(
    /// What completion events come by.
    Channel(sys::ibv_comp_channel) of (Arc<Pd>, Option<Adopted>), "a completion channel", |channel| {
        channel.of.1 = None;
        channel.of.0.context().verbs.ibv_destroy_comp_channel(channel.raw.as_ptr())
    }
);
object!(
    /// A completion queue, and its channel if it has one.
    Cq(sys::ibv_cq) of (Arc<Pd>, Option<Channel>, Completions), "a completion queue", |cq| cq.of.0.context().verbs.ibv_destroy_cq(cq.raw.as_ptr())
);
object!(
    /// A receive queue, and its completion queue.
    Wq(sys::ibv_wq) of Arc<Cq>, "a receive queue", |wq| sys::ibv_destroy_wq(wq.raw.as_ptr())
);
object!(
    /// A table of receive queues that a hash chooses from.
    Table(sys::ibv_rwq_ind_table) of Vec<Arc<Wq>>, "an indirection table", |table| sys::ibv_destroy_rwq_ind_table(table.raw.as_ptr())
);
object!(
    /// A queue pair that flow rules lead to, and that hashes over its table.
    HashQp(sys::ibv_qp) of (Arc<Pd>, Table), "a hash over receive queues", |qp| qp.of.0.context().verbs.ibv_destroy_qp(qp.raw.as_ptr())
);
object!(
    /// What the library keeps apart for one thread: a register of the card's.
    Thread(sys::ibv_td) of Arc<Pd>, "a thread domain", |thread| sys::ibv_dealloc_td(thread.raw.as_ptr())
);
object!(
    /// A protection domain, of which a thread's part is used.
    Own(sys::ibv_pd) of Thread, "a parent domain", |own| own.of.of.context().verbs.ibv_dealloc_pd(own.raw.as_ptr())
);
object!(
    /// A queue pair that frames are sent by, its completion queue, and its part of the domain, if it has one.
    SendQp(sys::ibv_qp) of (Arc<Cq>, Option<Own>), "a raw packet queue pair", |qp| qp.of.0.context().verbs.ibv_destroy_qp(qp.raw.as_ptr())
);
object!(
    /// A flow rule.
    Flow(sys::ibv_flow) of Arc<HashQp>, "a flow rule", |flow| sys::ibv_destroy_flow(flow.raw.as_ptr())
);

impl Pd {
    pub(crate) fn new(context: Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = made(unsafe { context.verbs.ibv_alloc_pd(context.raw()) })?;
        Ok(Self { raw, of: context })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.of
    }
}

impl Region {
    /// Registers memory that the card may read and write.
    ///
    /// # Safety
    /// The memory is mapped until the region is dropped, and whoever refers to it knows that the card writes there what is posted to receive into.
    pub(crate) unsafe fn new(pd: &Arc<Pd>, address: *mut u8, len: usize) -> io::Result<Self> {
        let access = sys::IBV_ACCESS_LOCAL_WRITE as c_int;
        // SAFETY: the domain is there; the rest is the caller's promise.
        let raw = made(unsafe { pd.context().verbs.ibv_reg_mr(pd.raw.as_ptr(), address.cast(), len, access) })?;
        Ok(Self { raw, of: Arc::clone(pd) })
    }

    /// Registers the first bytes of memory on the card, which are named from zero on.
    pub(crate) fn of_card(pd: &Arc<Pd>, memory: &Dm, len: usize) -> io::Result<Self> {
        let access = sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_ZERO_BASED;
        // SAFETY: both are there, and who holds the region holds the memory longer.
        let raw = made(unsafe { sys::ibv_reg_dm_mr(pd.raw.as_ptr(), memory.raw.as_ptr(), 0, len, access) })?;
        Ok(Self { raw, of: Arc::clone(pd) })
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the region is there, and its key never changes.
        unsafe { (*self.raw.as_ptr()).lkey }
    }
}

impl Dm {
    /// So many bytes.
    pub(crate) fn new(pd: &Arc<Pd>, len: usize) -> io::Result<Self> {
        let mut attr = sys::ibv_alloc_dm_attr { length: len, ..Default::default() };
        // SAFETY: the context is open.
        let raw = made(unsafe { sys::ibv_alloc_dm(pd.context().raw(), &raw mut attr) })?;
        Ok(Self { raw, of: Arc::clone(pd) })
    }

    /// Copies there: whole words of 4 bytes. (The library refuses what is beyond the end.)
    pub(crate) fn copy_to(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the memory is there, and the bytes are readable.
        done(unsafe { sys::ibv_memcpy_to_dm(self.raw.as_ptr(), offset as u64, bytes.as_ptr().cast(), bytes.len()) })
    }

    /// Copies from there, as above.
    pub(crate) fn copy_from(&self, offset: usize, out: &mut [u8]) -> io::Result<()> {
        // SAFETY: the memory is there, and the bytes are writable.
        done(unsafe { sys::ibv_memcpy_from_dm(out.as_mut_ptr().cast(), self.raw.as_ptr(), offset as u64, out.len()) })
    }
}

impl Channel {
    /// One whose descriptor does not block.
    pub(crate) fn new(pd: &Arc<Pd>) -> io::Result<Self> {
        let context = pd.context();
        // SAFETY: the context is open.
        let raw = made(unsafe { context.verbs.ibv_create_comp_channel(context.raw()) })?;
        let mut channel = Self { raw, of: (Arc::clone(pd), None) };
        channel.of.1 = Some(Adopted::new(channel.fd()));
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> c_int {
        // SAFETY: the channel is there, and the field is never written again.
        unsafe { (*self.raw.as_ptr()).fd }
    }
}

/// A number as the pointer that the library hands back with events of an object.
fn named(owner: u32) -> *mut c_void {
    core::ptr::without_provenance_mut(owner as usize)
}

/// How completions of receives lie in their queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completions {
    /// Each is whole.
    Whole,
    /// Runs are compressed.
    Compressed {
        /// They are of a striding queue.
        strides: bool,
    },
}

impl Cq {
    /// Of so many completions at least.
    pub(crate) fn new(pd: &Arc<Pd>, completions: u32, channel: Option<Channel>, owner: u32, form: Completions) -> io::Result<Self> {
        let context = pd.context();
        let by = channel.as_ref().map_or(core::ptr::null_mut(), |channel| channel.raw.as_ptr());
        let count = c_int::try_from(completions).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let raw = match form {
            // SAFETY: the context is open, the channel is there or none.
            Completions::Whole => made(unsafe { context.verbs.ibv_create_cq(context.raw(), count, named(owner), by, 0) })?,
            Completions::Compressed { strides } => {
                let mut attr = sys::ibv_cq_init_attr_ex { cqe: completions, cq_context: named(owner), channel: by, ..Default::default() };
                let format = if strides { sys::MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX } else { sys::MLX5DV_CQE_RES_FORMAT_CSUM };
                let mut more = sys::mlx5dv_cq_init_attr {
                    comp_mask: sys::MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE.into(),
                    cqe_comp_res_format: format as u8,
                    ..Default::default()
                };
                // SAFETY: as above, and both attributes are there until the call returns. (An extended queue is a queue: ibv_cq_ex_to_cq(3) is a cast.)
                made(unsafe { context.dv.mlx5dv_create_cq(context.raw(), &raw mut attr, &raw mut more) })?.cast()
            }
        };
        Ok(Self { raw, of: (Arc::clone(pd), channel, form) })
    }

    /// Whether runs in it are compressed, and then, whether of a striding queue.
    pub(crate) fn compresses(&self) -> Option<bool> {
        match self.of.2 {
            Completions::Whole => None,
            Completions::Compressed { strides } => Some(strides),
        }
    }

    fn context(&self) -> &Context {
        self.of.0.context()
    }

    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.of.1.as_ref()
    }

    /// Where it lies.
    pub(crate) fn layout(&self) -> io::Result<sys::mlx5dv_cq> {
        let mut out = sys::mlx5dv_cq::default();
        let cq = sys::mlx5dv_obj_cq { r#in: self.raw.as_ptr(), out: &raw mut out };
        self.context().ask(sys::mlx5dv_obj { cq, ..Default::default() }, sys::MLX5DV_OBJ_CQ)?;
        Ok(out)
    }

    /// Takes the events that have come; how many.
    pub(crate) fn take_events(&self) -> u32 {
        let Some(channel) = self.channel() else { return 0 };
        let (mut count, mut cq, mut owner) = (0, core::ptr::null_mut(), core::ptr::null_mut());
        let verbs = self.context().verbs;
        // SAFETY: the channel is there, does not block, and is this queue's alone; events are acknowledged as often as they were read.
        unsafe {
            while verbs.ibv_get_cq_event(channel.raw.as_ptr(), &raw mut cq, &raw mut owner) == 0 {
                count += 1;
            }
            if count > 0 {
                verbs.ibv_ack_cq_events(self.raw.as_ptr(), count);
            }
        }
        count
    }
}

/// How many strides a striding queue's entry has, and of how many bytes: 2^these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) log_bytes: u32,
    pub(crate) log_count: u32,
}

impl Wq {
    /// Of so many entries of one buffer each, for one frame or, in strides, for many. It receives nothing yet.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        cq: &Arc<Cq>,
        entries: u32,
        strips_tags: bool,
        owner: u32,
        strides: Option<Strides>,
    ) -> io::Result<Self> {
        let mut attr = sys::ibv_wq_init_attr {
            wq_context: named(owner),
            wq_type: sys::IBV_WQT_RQ,
            max_wr: entries,
            max_sge: 1,
            pd: pd.raw.as_ptr(),
            cq: cq.raw.as_ptr(),
            comp_mask: if strips_tags { sys::IBV_WQ_INIT_ATTR_FLAGS } else { 0 },
            create_flags: if strips_tags { sys::IBV_WQ_FLAGS_CVLAN_STRIPPING } else { 0 },
        };
        let context = pd.context();
        let raw = match strides {
            // SAFETY: the context is open, and what the attribute names is there.
            None => made(unsafe { sys::ibv_create_wq(context.raw(), &raw mut attr) })?,
            Some(Strides { log_bytes, log_count }) => {
                let mut more = sys::mlx5dv_wq_init_attr {
                    comp_mask: sys::MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ.into(),
                    striding_rq_attrs: sys::mlx5dv_striding_rq_init_attr {
                        single_stride_log_num_of_bytes: log_bytes,
                        single_wqe_log_num_of_strides: log_count,
                        two_byte_shift_en: 0,
                    },
                };
                // SAFETY: as above, and both attributes are there until the call returns.
                made(unsafe { context.dv.mlx5dv_create_wq(context.raw(), &raw mut attr, &raw mut more) })?
            }
        };
        Ok(Self { raw, of: Arc::clone(cq) })
    }

    pub(crate) fn set_state(&self, state: u32) -> io::Result<()> {
        let mut attr = sys::ibv_wq_attr { attr_mask: sys::IBV_WQ_ATTR_STATE, wq_state: state, ..Default::default() };
        // SAFETY: the queue is there.
        done(unsafe { sys::ibv_modify_wq(self.raw.as_ptr(), &raw mut attr) })
    }

    /// Where it lies.
    pub(crate) fn layout(&self) -> io::Result<sys::mlx5dv_rwq> {
        let mut out = sys::mlx5dv_rwq::default();
        let rwq = sys::mlx5dv_obj_rwq { r#in: self.raw.as_ptr(), out: &raw mut out };
        self.of.context().ask(sys::mlx5dv_obj { rwq, ..Default::default() }, sys::MLX5DV_OBJ_RWQ)?;
        Ok(out)
    }
}

impl Table {
    /// Of these queues by turns: as many places as the next power of two. There is at least one.
    fn new(pd: &Arc<Pd>, queues: &[Arc<Wq>]) -> io::Result<Self> {
        let places = queues.len().next_power_of_two();
        let mut list: Vec<*mut sys::ibv_wq> = queues.iter().cycle().take(places).map(|wq| wq.raw.as_ptr()).collect();
        let mut attr = sys::ibv_rwq_ind_table_init_attr { log_ind_tbl_size: places.ilog2(), ind_tbl: list.as_mut_ptr(), comp_mask: 0 };
        let context = pd.context();
        // SAFETY: the context is open; the list has as many queues as it says, which the table holds.
        let raw = made(unsafe { sys::ibv_create_rwq_ind_table(context.raw(), &raw mut attr) })?;
        Ok(Self { raw, of: queues.to_vec() })
    }
}

/// What a hash is of: all that sockets' frames differ by, of one family and protocol, as a card takes no two of either at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashOf {
    /// Nothing that differs much: where there is one queue, it matters to nobody.
    Addresses,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over IPv4.
    UdpV4,
    /// UDP over IPv6.
    UdpV6,
}

impl HashOf {
    fn fields(self) -> u32 {
        let v4 = sys::IBV_RX_HASH_SRC_IPV4 | sys::IBV_RX_HASH_DST_IPV4;
        let v6 = sys::IBV_RX_HASH_SRC_IPV6 | sys::IBV_RX_HASH_DST_IPV6;
        let tcp = sys::IBV_RX_HASH_SRC_PORT_TCP | sys::IBV_RX_HASH_DST_PORT_TCP;
        let udp = sys::IBV_RX_HASH_SRC_PORT_UDP | sys::IBV_RX_HASH_DST_PORT_UDP;
        match self {
            Self::Addresses => v4,
            Self::TcpV4 => v4 | tcp,
            Self::TcpV6 => v6 | tcp,
            Self::UdpV4 => v4 | udp,
            Self::UdpV6 => v6 | udp,
        }
    }
}

/// The key of the Toeplitz hash that every vendor's documentation has (Microsoft's RSS verification suite).
const HASH_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b,
    0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

impl HashQp {
    /// Over these queues, of which there is at least one.
    pub(crate) fn new(pd: &Arc<Pd>, queues: &[Arc<Wq>], of: HashOf) -> io::Result<Self> {
        let table = Table::new(pd, queues)?;
        let mut key = HASH_KEY;
        let mut attr = sys::ibv_qp_init_attr_ex {
            qp_type: sys::IBV_QPT_RAW_PACKET,
            comp_mask: sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_IND_TABLE | sys::IBV_QP_INIT_ATTR_RX_HASH,
            pd: pd.raw.as_ptr(),
            rwq_ind_tbl: table.raw.as_ptr(),
            rx_hash_conf: sys::ibv_rx_hash_conf {
                rx_hash_function: sys::IBV_RX_HASH_FUNC_TOEPLITZ as u8,
                rx_hash_key_len: key.len() as u8,
                rx_hash_key: key.as_mut_ptr(),
                rx_hash_fields_mask: of.fields().into(),
            },
            ..Default::default()
        };
        let context = pd.context();
        // SAFETY: the context is open; what the attribute names is there, the key until the call returns.
        let raw = made(unsafe { context.verbs.ibv_create_qp_ex(context.raw(), &raw mut attr) })?;
        Ok(Self { raw, of: (Arc::clone(pd), table) })
    }
}

impl Flow {
    /// A rule, from an attribute and the specifications behind it, in as many bytes as the attribute says.
    pub(crate) fn new(qp: &Arc<HashQp>, rule: &mut [u64]) -> io::Result<Self> {
        // SAFETY: the queue pair is there; the words are an attribute with its specifications (`spec`), aligned as the library's structures are.
        let raw = made(unsafe { sys::ibv_create_flow(qp.raw.as_ptr(), rule.as_mut_ptr().cast()) })?;
        Ok(Self { raw, of: Arc::clone(qp) })
    }
}

impl Own {
    /// One with a register that no other queue writes to.
    fn new(pd: &Arc<Pd>) -> io::Result<Self> {
        let mut attr = sys::ibv_td_init_attr::default();
        // SAFETY: the context is open.
        let raw = made(unsafe { sys::ibv_alloc_td(pd.context().raw(), &raw mut attr) })?;
        let of = Thread { raw, of: Arc::clone(pd) };
        let mut attr = sys::ibv_parent_domain_init_attr { pd: pd.raw.as_ptr(), td: raw.as_ptr(), ..Default::default() };
        // SAFETY: the context is open, and both domains are there.
        let raw = made(unsafe { sys::ibv_alloc_parent_domain(pd.context().raw(), &raw mut attr) })?;
        Ok(Self { raw, of })
    }
}

impl SendQp {
    /// A queue pair that sends, with at least so many blocks, ready to.
    pub(crate) fn new(pd: &Arc<Pd>, cq: &Arc<Cq>, blocks: u32, port: u8, owner: u32) -> io::Result<Self> {
        let mut attr = sys::ibv_qp_init_attr {
            qp_context: named(owner),
            send_cq: cq.raw.as_ptr(),
            recv_cq: cq.raw.as_ptr(),
            // (An entry with one element takes at most one block, so that there are as many blocks as entries.)
            cap: sys::ibv_qp_cap { max_send_wr: blocks, max_send_sge: 1, ..Default::default() },
            qp_type: sys::IBV_QPT_RAW_PACKET,
            ..Default::default()
        };
        let verbs = pd.context().verbs;
        // (Where there is none, it shares a register.)
        let own = Own::new(pd).inspect_err(|error| tracing::debug!("no register of a queue's own: {error}")).ok();
        let domain = own.as_ref().map_or(pd.raw, |own| own.raw);
        // SAFETY: the domain and the queue are there.
        let raw = made(unsafe { verbs.ibv_create_qp(domain.as_ptr(), &raw mut attr) })?;
        let qp = Self { raw, of: (Arc::clone(cq), own) };
        let state = |qp_state| sys::ibv_qp_attr { qp_state, port_num: port, ..Default::default() };
        qp.modify(state(sys::IBV_QPS_INIT), sys::IBV_QP_STATE | sys::IBV_QP_PORT)?;
        qp.modify(state(sys::IBV_QPS_RTR), sys::IBV_QP_STATE)?;
        qp.modify(state(sys::IBV_QPS_RTS), sys::IBV_QP_STATE)?;
        Ok(qp)
    }

    fn modify(&self, mut attr: sys::ibv_qp_attr, mask: u32) -> io::Result<()> {
        // SAFETY: the queue pair is there.
        done(unsafe { self.of.0.context().verbs.ibv_modify_qp(self.raw.as_ptr(), &raw mut attr, mask.cast_signed()) })
    }

    /// Holds it to so many kilobits a second; zero: to none. With a burst or a typical packet, by the call that takes them.
    pub(crate) fn set_rate(&self, kilobits: u32, burst_bytes: u32, packet_bytes: u16) -> io::Result<()> {
        if kilobits == 0 || burst_bytes == 0 && packet_bytes == 0 {
            let attr = sys::ibv_qp_attr { qp_state: sys::IBV_QPS_RTS, rate_limit: kilobits, ..Default::default() };
            return self.modify(attr, sys::IBV_QP_STATE | sys::IBV_QP_RATE_LIMIT);
        }
        let mut attr =
            sys::ibv_qp_rate_limit_attr { rate_limit: kilobits, max_burst_sz: burst_bytes, typical_pkt_sz: packet_bytes, comp_mask: 0 };
        // SAFETY: the queue pair is there.
        done(unsafe { sys::ibv_modify_qp_rate_limit(self.raw.as_ptr(), &raw mut attr) })
    }

    /// Whether no other queue writes to its register.
    pub(crate) fn has_own_register(&self) -> bool {
        self.of.1.is_some()
    }

    /// The number that entries name.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is there, and its number never changes.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Where it lies.
    pub(crate) fn layout(&self) -> io::Result<sys::mlx5dv_qp> {
        let mut out = sys::mlx5dv_qp::default();
        let qp = sys::mlx5dv_obj_qp { r#in: self.raw.as_ptr(), out: &raw mut out };
        self.of.0.context().ask(sys::mlx5dv_obj { qp, ..Default::default() }, sys::MLX5DV_OBJ_QP)?;
        Ok(out)
    }
}
