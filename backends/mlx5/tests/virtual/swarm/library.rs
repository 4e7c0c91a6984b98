//! libibverbs and libmlx5 in the simulator: as much of both as the driver calls, and no more, by the card of the simulator in place of the kernel's.
//!
//! So what the driver does by the libraries is the same code here as on a machine, and so is all of its data path. Objects are as the headers have them, with what is
//! the library's own behind (`Of`).

mod device_memory;
mod flows;
mod objects;
mod strides;

use core::ffi::{CStr, c_int, c_void};
use core::ptr::{NonNull, null_mut};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::OnceLock;

use rdma_core_sys as sys;
use rdma_core_sys::{Ibverbs, LoadError, Mlx5dv};

use super::card::Card;
use super::card::objects::{RUN_MAX, TSO_MAX};

/// A card, as all who use it hold it.
pub(super) type Shared = Rc<RefCell<Card>>;

/// An object of the libraries', whose beginning the header has, and what is behind it.
#[repr(C)]
struct Of<V, T> {
    verbs: V,
    card: Shared,
    rest: T,
}

/// Makes an object.
fn make<V, T>(verbs: V, card: &Shared, rest: T) -> *mut V {
    Box::into_raw(Box::new(Of { verbs, card: Rc::clone(card), rest })).cast()
}

/// # Safety
/// [`make`] made it, of the same types, and it has not ended.
unsafe fn of<'a, V, T>(raw: *mut V) -> &'a Of<V, T> {
    // SAFETY: the caller's promise.
    unsafe { &*raw.cast() }
}

/// Ends an object: what it had.
///
/// # Safety
/// As of [`of`].
unsafe fn end<V, T>(raw: *mut V) -> Box<Of<V, T>> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(raw.cast()) }
}

/// What a call gives that makes an object.
fn given<T>(made: Result<*mut T, c_int>) -> *mut T {
    made.unwrap_or_else(|errno| {
        // SAFETY: the calling thread's errno.
        unsafe { *libc::__errno_location() = errno };
        null_mut()
    })
}

/// What a call gives that does something.
fn answer(done: Result<(), c_int>) -> c_int {
    done.err().unwrap_or(0)
}

/// The card of a context.
///
/// # Safety
/// [`open`] has made the context.
unsafe fn card_of(context: *mut sys::ibv_context) -> Shared {
    // SAFETY: the caller's promise.
    unsafe { Rc::clone(&of::<_, ()>(sys::verbs_get_ctx(context)).card) }
}

/// Opens a card.
pub(super) fn open(card: &Shared) -> NonNull<sys::ibv_context> {
    let [cmd_fd, async_fd] = card.borrow().fds();
    let context = sys::ibv_context {
        cmd_fd,
        async_fd,
        num_comp_vectors: 1,
        abi_compat: core::ptr::without_provenance_mut(usize::MAX),
        ..Default::default()
    };
    let verbs = sys::verbs_context {
        query_device_ex: Some(query_device_ex),
        alloc_td: Some(objects::alloc_td),
        dealloc_td: Some(objects::dealloc_td),
        alloc_parent_domain: Some(objects::alloc_parent_domain),
        create_wq: Some(objects::create_wq),
        modify_wq: Some(objects::modify_wq),
        destroy_wq: Some(objects::destroy_wq),
        create_rwq_ind_table: Some(objects::create_rwq_ind_table),
        destroy_rwq_ind_table: Some(objects::destroy_rwq_ind_table),
        create_qp_ex: Some(objects::create_qp_ex),
        modify_qp_rate_limit: Some(objects::modify_qp_rate_limit),
        alloc_dm: Some(device_memory::alloc_dm),
        free_dm: Some(device_memory::free_dm),
        reg_dm_mr: Some(device_memory::reg_dm_mr),
        ibv_create_flow: Some(flows::create_flow),
        ibv_destroy_flow: Some(flows::destroy_flow),
        sz: size_of::<sys::verbs_context>(),
        context,
        ..Default::default()
    };
    let raw = make(verbs, card, ());
    // SAFETY: the object was just made.
    NonNull::from(unsafe { &mut (*raw).context })
}

/// A function that the driver does not call.
unsafe extern "C" fn absent() {
    panic!("a function of rdma-core's that the simulator does not have");
}

/// Functions by their names.
macro_rules! functions {
    ($name:expr; $($function:ident in $($module:ident)?),* $(,)?) => {
        $(if $name.to_bytes() == stringify!($function).as_bytes() {
            return Some(NonNull::new($($module::)?$function as *mut c_void).expect("a function"));
        })*
    };
}

fn function(name: &CStr) -> Option<NonNull<c_void>> {
    functions!(name;
        ibv_close_device in, ibv_get_async_event in, ibv_ack_async_event in, ibv_alloc_pd in objects, ibv_dealloc_pd in objects,
        ibv_reg_mr in objects, ibv_dereg_mr in objects, ibv_create_comp_channel in objects, ibv_destroy_comp_channel in objects,
        ibv_create_cq in objects, ibv_destroy_cq in objects, ibv_get_cq_event in objects, ibv_ack_cq_events in objects,
        ibv_create_qp in objects, ibv_modify_qp in objects, ibv_destroy_qp in objects, mlx5dv_query_device in, mlx5dv_init_obj in objects,
        mlx5dv_create_cq in objects, mlx5dv_create_wq in strides,
    );
    None
}

fn required(name: &'static CStr) -> Result<NonNull<c_void>, LoadError> {
    let absent = || NonNull::new(absent as *mut c_void).expect("a function");
    Ok(function(name).unwrap_or_else(absent))
}

/// The libraries.
pub(super) fn libraries() -> (&'static Ibverbs, &'static Mlx5dv) {
    static VERBS: OnceLock<Ibverbs> = OnceLock::new();
    static DV: OnceLock<Mlx5dv> = OnceLock::new();
    // SAFETY: each function has its name's type, or is one that is never called.
    let verbs = VERBS.get_or_init(|| unsafe { Ibverbs::of(required, |_| None) }.expect("none is missing"));
    // SAFETY: as above.
    let dv = DV.get_or_init(|| unsafe { Mlx5dv::of(required, |_| None) }.expect("none is missing"));
    (verbs, dv)
}

unsafe extern "C" fn ibv_close_device(context: *mut sys::ibv_context) -> c_int {
    // SAFETY: it was opened here, and nothing stands on it.
    drop(unsafe { end::<_, ()>(sys::verbs_get_ctx(context)) });
    0
}

unsafe extern "C" fn ibv_get_async_event(context: *mut sys::ibv_context, event: *mut sys::ibv_async_event) -> c_int {
    // SAFETY: it was opened here; the event is writable.
    unsafe {
        let Some(told) = card_of(context).borrow_mut().next_event() else { return -1 };
        event.write(told);
    }
    0
}

unsafe extern "C" fn ibv_ack_async_event(_: *mut sys::ibv_async_event) {}

const ON_RAW: u32 = 1 << sys::IBV_QPT_RAW_PACKET;

unsafe extern "C" fn query_device_ex(
    context: *mut sys::ibv_context,
    _: *const sys::ibv_query_device_ex_input,
    attr: *mut sys::ibv_device_attr_ex,
    _: usize,
) -> c_int {
    // SAFETY: it was opened here; the attribute is writable.
    unsafe {
        let card = card_of(context);
        let (khz, max_dm_size) = (card.borrow().khz(), card.borrow().trouble.own_memory as u64);
        attr.write(sys::ibv_device_attr_ex {
            completion_timestamp_mask: u64::MAX,
            hca_core_clock: khz,
            tso_caps: sys::ibv_tso_caps { max_tso: TSO_MAX, supported_qpts: ON_RAW },
            rss_caps: sys::ibv_rss_caps { supported_qpts: ON_RAW, ..Default::default() },
            packet_pacing_caps: sys::ibv_packet_pacing_caps {
                qp_rate_limit_min: 1,
                qp_rate_limit_max: 100_000_000,
                supported_qpts: ON_RAW,
            },
            max_dm_size,
            max_wq_type_rq: 1 << 15,
            raw_packet_caps: sys::IBV_RAW_PACKET_CAP_IP_CSUM | sys::IBV_RAW_PACKET_CAP_CVLAN_STRIPPING,
            ..Default::default()
        });
    }
    0
}

unsafe extern "C" fn mlx5dv_query_device(_: *mut sys::ibv_context, attr: *mut sys::mlx5dv_context) -> c_int {
    let formats = sys::MLX5DV_CQE_RES_FORMAT_CSUM | sys::MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
    let striding_rq_caps = sys::mlx5dv_striding_rq_caps {
        min_single_stride_log_num_of_bytes: 6,
        max_single_stride_log_num_of_bytes: 13,
        min_single_wqe_log_num_of_strides: 3,
        max_single_wqe_log_num_of_strides: 13,
        supported_qpts: ON_RAW,
    };
    // SAFETY: the attribute is writable.
    unsafe {
        (*attr).cqe_comp_caps = sys::mlx5dv_cqe_comp_caps { max_num: RUN_MAX, supported_format: formats };
        (*attr).striding_rq_caps = striding_rq_caps;
    }
    0
}
