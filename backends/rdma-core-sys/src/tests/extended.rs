use std::ffi::{c_int, c_uint};
use std::mem::offset_of;
use std::ptr;

use libc::EOPNOTSUPP;

use super::recorder::{RESULT, Word, calls, recorder};
use crate::*;

/// An object that lives as long as the process.
pub(super) fn object<T>(of: T) -> *mut T {
    Box::leak(Box::new(of))
}

/// A context with tables around it, all empty.
pub(super) fn extended_context() -> (*mut verbs_context, *mut ibv_context) {
    let extended = object(verbs_context { sz: size_of::<verbs_context>(), ..verbs_context::default() });
    // SAFETY: the tables are the test's own.
    unsafe {
        (*extended).context.abi_compat = ptr::without_provenance_mut(usize::MAX);
        (extended, &raw mut (*extended).context)
    }
}

/// What a function says where its operation is not there.
pub(super) trait Answer: Word {
    fn says_unsupported(self) -> bool;
}

impl Answer for c_int {
    fn says_unsupported(self) -> bool {
        self == EOPNOTSUPP
    }
}

impl<T> Answer for *mut T {
    fn says_unsupported(self) -> bool {
        let errno = std::io::Error::last_os_error().raw_os_error();
        crate::verbs::extended::set_errno(0);
        self.is_null() && errno == Some(EOPNOTSUPP)
    }
}

/// Of each row: the function says that it is unsupported without the operation, with tables that end before it, and with an old library's
/// context; otherwise it reaches it.
macro_rules! goes_through {
    (
        $extended:expr;
        $($op:ident($object:ident: $type:ty $(, $arg:ident: $arg_type:ty = $value:expr)*) -> $result:ty => $function:ident;)*
    ) => {$({
        let (extended, object): (*mut verbs_context, *mut $type) = ($extended, $object);
        // SAFETY: tables and objects are the test's own.
        let call = || unsafe { $function(object $(, <$arg_type as Word>::from_word($value))*) };
        assert!(call().says_unsupported(), "{} without its operation", stringify!($function));
        // SAFETY: as above; nobody calls the operation while it is replaced.
        unsafe { (*extended).$op = recorder!($op(object: *mut $type $(, $arg: $arg_type)*) -> $result) };
        let arguments = vec![object.word() $(, <$arg_type as Word>::from_word($value).word())*];
        let needed = size_of::<verbs_context>() - offset_of!(verbs_context, $op);
        for (size, reached) in [(needed - 1, false), (needed, true)] {
            // SAFETY: as above.
            unsafe { (*extended).sz = size };
            let answer = call();
            if reached {
                assert_eq!(answer.word(), RESULT, "{}", stringify!($function));
                assert_eq!(calls(), [(stringify!($op), arguments.clone())]);
            } else {
                assert!(answer.says_unsupported(), "{} of a shorter table", stringify!($function));
            }
        }
        // SAFETY: as above.
        unsafe {
            (*extended).sz = size_of::<verbs_context>();
            (*extended).context.abi_compat = ptr::null_mut();
            assert!(call().says_unsupported(), "{} of an old library's context", stringify!($function));
            (*extended).context.abi_compat = ptr::without_provenance_mut(usize::MAX);
        }
        assert_eq!(calls(), []);
    })*};
}

#[test]
fn each_function_goes_through_its_operation() {
    let (extended, context) = extended_context();
    let qp = object(ibv_qp { context, ..ibv_qp::default() });
    let flow = object(ibv_flow { context, ..ibv_flow::default() });
    let action = object(ibv_flow_action { context });
    let xrcd = object(ibv_xrcd { context });
    let srq = object(ibv_srq { context, ..ibv_srq::default() });
    let pd = object(ibv_pd { context, handle: 0 });
    let dm = object(ibv_dm { context, ..ibv_dm::default() });
    let td = object(ibv_td { context });
    let cq = object(ibv_cq { context, ..ibv_cq::default() });
    let wq = object(ibv_wq { context, ..ibv_wq::default() });
    let table = object(ibv_rwq_ind_table { context, ..ibv_rwq_ind_table::default() });
    let counters = object(ibv_counters { context });
    goes_through! { extended;
        ibv_create_flow(qp: ibv_qp, attr: *mut ibv_flow_attr = 1) -> *mut ibv_flow => ibv_create_flow;
        ibv_destroy_flow(flow: ibv_flow) -> c_int => ibv_destroy_flow;
        destroy_flow_action(action: ibv_flow_action) -> c_int => ibv_destroy_flow_action;
        open_xrcd(context: ibv_context, attr: *mut ibv_xrcd_init_attr = 1) -> *mut ibv_xrcd => ibv_open_xrcd;
        close_xrcd(xrcd: ibv_xrcd) -> c_int => ibv_close_xrcd;
        open_qp(context: ibv_context, attr: *mut ibv_qp_open_attr = 1) -> *mut ibv_qp => ibv_open_qp;
        get_srq_num(srq: ibv_srq, num: *mut u32 = 1) -> c_int => ibv_get_srq_num;
        advise_mr(pd: ibv_pd, advice: ibv_advise_mr_advice = 1, flags: u32 = 2, list: *mut ibv_sge = 3, num: u32 = 4) -> c_int
            => ibv_advise_mr;
        alloc_null_mr(pd: ibv_pd) -> *mut ibv_mr => ibv_alloc_null_mr;
        alloc_dm(context: ibv_context, attr: *mut ibv_alloc_dm_attr = 1) -> *mut ibv_dm => ibv_alloc_dm;
        free_dm(dm: ibv_dm) -> c_int => ibv_free_dm;
        reg_dm_mr(pd: ibv_pd, dm: *mut ibv_dm = 1, offset: u64 = 2, length: usize = 3, access: c_uint = 4) -> *mut ibv_mr
            => ibv_reg_dm_mr;
        alloc_td(context: ibv_context, attr: *mut ibv_td_init_attr = 1) -> *mut ibv_td => ibv_alloc_td;
        dealloc_td(td: ibv_td) -> c_int => ibv_dealloc_td;
        alloc_parent_domain(context: ibv_context, attr: *mut ibv_parent_domain_init_attr = 1) -> *mut ibv_pd => ibv_alloc_parent_domain;
        create_cq_ex(context: ibv_context, attr: *mut ibv_cq_init_attr_ex = 1) -> *mut ibv_cq_ex => ibv_create_cq_ex;
        modify_cq(cq: ibv_cq, attr: *mut ibv_modify_cq_attr = 1) -> c_int => ibv_modify_cq;
        modify_qp_rate_limit(qp: ibv_qp, attr: *mut ibv_qp_rate_limit_attr = 1) -> c_int => ibv_modify_qp_rate_limit;
        modify_wq(wq: ibv_wq, attr: *mut ibv_wq_attr = 1) -> c_int => ibv_modify_wq;
        destroy_wq(wq: ibv_wq) -> c_int => ibv_destroy_wq;
        create_rwq_ind_table(context: ibv_context, attr: *mut ibv_rwq_ind_table_init_attr = 1) -> *mut ibv_rwq_ind_table
            => ibv_create_rwq_ind_table;
        destroy_rwq_ind_table(table: ibv_rwq_ind_table) -> c_int => ibv_destroy_rwq_ind_table;
        query_rt_values(context: ibv_context, values: *mut ibv_values_ex = 1) -> c_int => ibv_query_rt_values_ex;
        create_counters(context: ibv_context, attr: *mut ibv_counters_init_attr = 1) -> *mut ibv_counters => ibv_create_counters;
        destroy_counters(counters: ibv_counters) -> c_int => ibv_destroy_counters;
        attach_counters_point_flow(counters: ibv_counters, attr: *mut ibv_counter_attach_attr = 1, flow: *mut ibv_flow = 2) -> c_int
            => ibv_attach_counters_point_flow;
        read_counters(counters: ibv_counters, values: *mut u64 = 1, num: u32 = 2, flags: u32 = 3) -> c_int => ibv_read_counters;
    }
}

#[test]
fn a_work_queue_is_completed() {
    unsafe extern "C" fn create(context: *mut ibv_context, attr: *mut ibv_wq_init_attr) -> *mut ibv_wq {
        // SAFETY: the attribute is the test's own.
        if unsafe { (*attr).max_wr } == 0 {
            return ptr::null_mut();
        }
        object(ibv_wq { context, events_completed: 7, wq_num: 9, ..ibv_wq::default() })
    }
    let (extended, context) = extended_context();
    let mut own = 0_u8;
    let mut attr = ibv_wq_init_attr { wq_context: (&raw mut own).cast(), max_wr: 1, ..ibv_wq_init_attr::default() };
    // SAFETY: tables and objects are the test's own.
    unsafe {
        assert!(ibv_create_wq(context, &mut attr).says_unsupported());
        (*extended).create_wq = Some(create);
        let wq = ibv_create_wq(context, &mut attr);
        assert_eq!(((*wq).wq_num, (*wq).events_completed, (*wq).wq_context), (9, 0, attr.wq_context));
        assert_eq!(libc::pthread_mutex_trylock(&raw mut (*wq).mutex), 0);
        assert_eq!(libc::pthread_mutex_unlock(&raw mut (*wq).mutex), 0);
        assert_eq!(libc::pthread_cond_signal(&raw mut (*wq).cond), 0);
        attr.max_wr = 0;
        assert!(ibv_create_wq(context, &mut attr).is_null());
    }
}
