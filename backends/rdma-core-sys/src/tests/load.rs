//! The installed libraries, a library of the test's own, and none.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

use libc::{EINVAL, ENOSYS, EOPNOTSUPP};

use super::cc;
use super::extended::{Answer as _, extended_context, object};
use super::recorder::{RESULT, Word, calls, recorder};
use crate::*;

/// What to do where libraries are missing.
const ADVICE: &str = "apt-get install libibverbs-dev librdmacm-dev";

fn installed_verbs() -> Ibverbs {
    Ibverbs::open(Ibverbs::FILE).unwrap_or_else(|error| panic!("{error}: {ADVICE}"))
}

#[test]
fn the_installed_libraries_have_every_function() {
    let verbs = Ibverbs::get().unwrap_or_else(|error| panic!("{error}: {ADVICE}"));
    let cm = Rdmacm::get().unwrap_or_else(|error| panic!("{error}: {ADVICE}"));
    let mlx5 = Mlx5dv::get().unwrap_or_else(|error| panic!("{error}: {ADVICE}"));
    let none: [&str; 0] = [];
    assert_eq!(verbs.absent(), none);
    assert_eq!(cm.absent(), none);
    assert_eq!(mlx5.absent(), none);
    println!("{} {} {} functions", Ibverbs::SYMBOLS.len(), Rdmacm::SYMBOLS.len(), Mlx5dv::SYMBOLS.len());
    assert!(ptr::eq(verbs, Ibverbs::get().unwrap()), "a library is opened once");
}

/// Of several versions of a function, the one that a program linked today gets.
#[test]
fn the_newest_version_is_taken() {
    // SAFETY: names are C strings; the library is open already or is opened here, and stays so.
    let versioned = |file: &CStr, name: &CStr, version: &CStr| unsafe {
        let handle = libc::dlopen(file.as_ptr(), libc::RTLD_NOW);
        libc::dlvsym(handle, name.as_ptr(), version.as_ptr()).addr()
    };
    let verbs = installed_verbs();
    let query = |version| versioned(Ibverbs::FILE, c"ibv_query_device", version);
    assert_eq!(verbs.ibv_query_device as usize, query(c"IBVERBS_1.1"));
    assert_ne!(verbs.ibv_query_device as usize, query(c"IBVERBS_1.0"));
    let mlx5 = Mlx5dv::open(Mlx5dv::FILE).unwrap_or_else(|error| panic!("{error}: {ADVICE}"));
    let init = |version| versioned(Mlx5dv::FILE, c"mlx5dv_init_obj", version);
    assert_eq!(mlx5.mlx5dv_init_obj as usize, init(c"MLX5_1.2"));
    assert_ne!(mlx5.mlx5dv_init_obj as usize, init(c"MLX5_1.0"));
}

#[test]
fn devices_can_be_listed_and_queried() {
    let verbs = installed_verbs();
    // SAFETY: the list is used before it is freed, and a context before it is closed.
    unsafe {
        let mut count = -1;
        let list = verbs.ibv_get_device_list(&mut count);
        if list.is_null() {
            // A kernel without RDMA.
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(ENOSYS));
            return;
        }
        for index in 0..usize::try_from(count).unwrap() {
            let context = verbs.ibv_open_device(*list.add(index));
            if context.is_null() {
                continue; // Another user's.
            }
            let mut attr = ibv_device_attr_ex::default();
            assert_eq!(verbs.ibv_query_device_ex(context, ptr::null(), &mut attr), 0);
            assert!(attr.orig_attr.max_qp > 0 && attr.orig_attr.phys_port_cnt > 0);
            let mut port = ibv_port_attr::default();
            assert_eq!(verbs.ibv_query_port(context, 1, &mut port), 0);
            assert!((IBV_MTU_256..=IBV_MTU_4096).contains(&port.max_mtu));
            assert_eq!(verbs.ibv_close_device(context), 0);
        }
        verbs.ibv_free_device_list(list);
    }
}

#[test]
fn words_and_rates_come_from_the_library() {
    let verbs = installed_verbs();
    // SAFETY: the functions take any number, and their strings are constants.
    unsafe {
        assert_eq!(CStr::from_ptr(verbs.ibv_wc_status_str(IBV_WC_SUCCESS)).to_str(), Ok("success"));
        assert_eq!(verbs.ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103_125, "four lanes of EDR, encoded 64b/66b");
        assert_eq!(verbs.mbps_to_ibv_rate(103_125), IBV_RATE_100_GBPS);
        let cm = Rdmacm::open(Rdmacm::FILE).unwrap_or_else(|error| panic!("{error}: {ADVICE}"));
        assert_eq!(CStr::from_ptr(cm.rdma_event_str(RDMA_CM_EVENT_ESTABLISHED)).to_str(), Ok("RDMA_CM_EVENT_ESTABLISHED"));
    }
}

#[test]
fn an_absent_library_is_named() {
    let error = Ibverbs::open(c"libibverbs-that-nobody-has.so.1").unwrap_err();
    let LoadError::Library { library, reason } = &error else { panic!("{error:?}") };
    assert_eq!(library, "libibverbs-that-nobody-has.so.1");
    assert!(reason.contains("No such file"), "{reason}");
    assert!(error.to_string().starts_with("libibverbs-that-nobody-has.so.1 cannot be loaded: "), "{error}");
}

#[test]
fn a_missing_function_is_named() {
    let error = Rdmacm::open(c"libc.so.6").unwrap_err();
    let LoadError::Symbol { library, symbol, reason } = &error else { panic!("{error:?}") };
    assert_eq!((library.as_str(), *symbol), ("libc.so.6", "rdma_create_event_channel"));
    assert!(reason.contains("undefined symbol: rdma_create_event_channel"), "{reason}");
    assert!(error.to_string().starts_with("libc.so.6 has no function rdma_create_event_channel: "), "{error}");
}

/// A library that has only what every release has.
#[test]
fn an_old_library_can_be_used() {
    let scratch = cc::Scratch::new();
    let (optional, required): (Vec<&Symbol>, Vec<_>) = Ibverbs::SYMBOLS.iter().partition(|symbol| symbol.optional);
    let special = "void *ibv_reg_mr(void *pd, void *addr, unsigned long length, int access) { return (void *)(unsigned long)access; }\n";
    let plain = required.iter().filter(|symbol| symbol.name != "ibv_reg_mr");
    let source = plain.map(|symbol| format!("void {}(void) {{}}\n", symbol.name)).collect::<String>() + special;
    let library = CString::new(cc::shared_library(&scratch, &source).as_os_str().as_bytes()).unwrap();
    let verbs = Ibverbs::open(&library).unwrap();
    assert_eq!(verbs.absent(), optional.iter().map(|symbol| symbol.name).collect::<Vec<_>>());
    // SAFETY: no function of the library follows a pointer.
    unsafe {
        let null = ptr::null_mut();
        assert_eq!(verbs.ibv_query_gid_ex(null, 1, 0, ptr::null_mut(), 0), EOPNOTSUPP);
        assert_eq!(verbs.ibv_query_gid_table(null, ptr::null_mut(), 0, 0), -(EOPNOTSUPP as isize));
        assert!(verbs.ibv_reg_mr_iova(ptr::null_mut(), ptr::null_mut(), 0, 0, 0).says_unsupported());
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
        assert_eq!(verbs.ibv_reg_mr(ptr::null_mut(), ptr::null_mut(), 0, access as c_int).addr(), 1);
    }
}

#[test]
fn registering_chooses_its_function_by_the_flags() {
    let mut verbs = installed_verbs();
    verbs.ibv_reg_mr = recorder!(ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr).unwrap();
    verbs.ibv_reg_mr_iova = recorder!(
        ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr
    );
    verbs.ibv_reg_mr_iova2 = recorder!(
        ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr
    );
    let (pd, addr) = (ptr::without_provenance_mut(0x1000), ptr::without_provenance_mut(0x2000));
    let (plain, relaxed) = (1, 1 | IBV_ACCESS_RELAXED_ORDERING as c_int);
    let relaxed_word = u64::from(relaxed.unsigned_abs());
    // SAFETY: the functions follow no pointer.
    unsafe {
        assert_eq!(verbs.ibv_reg_mr(pd, addr, 64, plain).word(), RESULT);
        assert_eq!(calls(), [("ibv_reg_mr", vec![0x1000, 0x2000, 64, 1])]);
        assert_eq!(verbs.ibv_reg_mr(pd, addr, 64, relaxed).word(), RESULT);
        assert_eq!(calls(), [("ibv_reg_mr_iova2", vec![0x1000, 0x2000, 64, 0x2000, relaxed_word])]);
        assert_eq!(verbs.ibv_reg_mr_iova(pd, addr, 64, 0, plain).word(), RESULT);
        assert_eq!(calls(), [("ibv_reg_mr_iova", vec![0x1000, 0x2000, 64, 0, 1])]);
        assert_eq!(verbs.ibv_reg_mr_iova(pd, addr, 64, 0, relaxed).word(), RESULT);
        assert_eq!(calls(), [("ibv_reg_mr_iova2", vec![0x1000, 0x2000, 64, 0, relaxed_word])]);
        verbs.ibv_reg_mr_iova2 = None;
        assert_eq!(verbs.ibv_reg_mr_iova(pd, addr, 64, 0, relaxed).word(), RESULT);
        assert_eq!(calls(), [("ibv_reg_mr_iova", vec![0x1000, 0x2000, 64, 0, 1])]);
    }
}

#[test]
fn queries_fall_back_to_what_old_drivers_know() {
    let mut verbs = installed_verbs();
    verbs.ibv_query_port =
        recorder!(ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut _compat_ibv_port_attr) -> c_int).unwrap();
    verbs.ibv_query_device = recorder!(ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int).unwrap();
    let (extended, context) = extended_context();
    let port = &raw mut *object(ibv_port_attr { flags: 9, ..ibv_port_attr::default() });
    let attr = object(ibv_device_attr_ex { max_dm_size: 9, ..ibv_device_attr_ex::default() });
    let input = object(ibv_query_device_ex_input { comp_mask: 1 });
    // SAFETY: tables and objects are the test's own.
    unsafe {
        assert_eq!(verbs.ibv_query_port(context, 2, port).word(), RESULT);
        assert_eq!(calls(), [("ibv_query_port", vec![context.word(), 2, port.word()])]);
        assert_eq!((*port).flags, 0, "what the old call does not fill in is zero");
        (*extended).query_port =
            recorder!(query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, length: usize) -> c_int);
        assert_eq!(verbs.ibv_query_port(context, 2, port).word(), RESULT);
        assert_eq!(calls(), [("query_port", vec![context.word(), 2, port.word(), size_of::<ibv_port_attr>() as u64])]);

        assert_eq!(verbs.ibv_query_device_ex(context, input, attr), EINVAL);
        assert_eq!(calls(), []);
        (*input).comp_mask = 0;
        assert_eq!(verbs.ibv_query_device_ex(context, input, attr).word(), RESULT);
        assert_eq!(calls(), [("ibv_query_device", vec![context.word(), attr.word()])]);
        assert_eq!((*attr).max_dm_size, 0);
        unsafe extern "C" fn unsupported(
            _: *mut ibv_context,
            _: *const ibv_query_device_ex_input,
            attr: *mut ibv_device_attr_ex,
            _: usize,
        ) -> c_int {
            // SAFETY: the attribute is the test's own.
            unsafe { (*attr).max_dm_size = 9 };
            EOPNOTSUPP
        }
        (*extended).query_device_ex = Some(unsupported);
        assert_eq!(verbs.ibv_query_device_ex(context, ptr::null(), attr).word(), RESULT);
        assert_eq!(calls(), [("ibv_query_device", vec![context.word(), attr.word()])]);
        assert_eq!((*attr).max_dm_size, 0);
        (*extended).query_device_ex = recorder!(query_device_ex(
            context: *mut ibv_context, input: *const ibv_query_device_ex_input, attr: *mut ibv_device_attr_ex, size: usize
        ) -> c_int);
        assert_eq!(verbs.ibv_query_device_ex(context, input, attr).word(), RESULT);
        let size = size_of::<ibv_device_attr_ex>() as u64;
        assert_eq!(calls(), [("query_device_ex", vec![context.word(), input.word(), attr.word(), size])]);
    }
}

#[test]
fn tables_of_gids_are_asked_with_the_entrys_size() {
    let mut verbs = installed_verbs();
    verbs._ibv_query_gid_ex = recorder!(
        gid_ex(context: *mut ibv_context, port: u32, index: u32, entry: *mut ibv_gid_entry, flags: u32, size: usize) -> c_int
    );
    unsafe extern "C" fn table(_: *mut ibv_context, _: *mut ibv_gid_entry, max: usize, flags: u32, size: usize) -> isize {
        (max * 10_000 + flags as usize * 100 + size) as isize
    }
    verbs._ibv_query_gid_table = Some(table);
    let (context, entry) = (ptr::without_provenance_mut(0x1000), ptr::without_provenance_mut(0x2000));
    // SAFETY: the functions follow no pointer.
    unsafe {
        assert_eq!(verbs.ibv_query_gid_ex(context, 1, 3, entry, 0).word(), RESULT);
        assert_eq!(calls(), [("gid_ex", vec![0x1000, 1, 3, 0x2000, 0, size_of::<ibv_gid_entry>() as u64])]);
        assert_eq!(verbs.ibv_query_gid_table(context, entry, 5, 7), 50_732);
    }
    let mut mlx5 = Mlx5dv::open(Mlx5dv::FILE).unwrap_or_else(|error| panic!("{error}: {ADVICE}"));
    mlx5._mlx5dv_query_port = recorder!(port(context: *mut ibv_context, port: u32, info: *mut mlx5dv_port, size: usize) -> c_int);
    // SAFETY: the function follows no pointer.
    unsafe {
        assert_eq!(mlx5.mlx5dv_query_port(context, 1, ptr::without_provenance_mut(0x3000)).word(), RESULT);
        assert_eq!(calls(), [("port", vec![0x1000, 1, 0x3000, size_of::<mlx5dv_port>() as u64])]);
        mlx5._mlx5dv_query_port = None;
        assert_eq!(mlx5.mlx5dv_query_port(context, 1, ptr::null_mut()), EOPNOTSUPP);
    }
}

#[test]
fn plain_queues_are_made_by_the_plain_functions() {
    let mut verbs = installed_verbs();
    verbs.ibv_create_qp = recorder!(ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp).unwrap();
    verbs.ibv_create_srq = recorder!(ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq).unwrap();
    let (extended, context) = extended_context();
    let pd = ptr::without_provenance_mut(0x1000);
    let qp = object(ibv_qp_init_attr_ex { pd, comp_mask: IBV_QP_INIT_ATTR_PD, ..ibv_qp_init_attr_ex::default() });
    let srq = object(ibv_srq_init_attr_ex { pd, comp_mask: IBV_SRQ_INIT_ATTR_PD, ..ibv_srq_init_attr_ex::default() });
    // SAFETY: tables and attributes are the test's own.
    unsafe {
        assert_eq!(verbs.ibv_create_qp_ex(context, qp).word(), RESULT);
        assert_eq!(calls(), [("ibv_create_qp", vec![0x1000, qp.word()])]);
        (*qp).comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
        assert!(verbs.ibv_create_qp_ex(context, qp).says_unsupported());
        (*extended).create_qp_ex = recorder!(create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp);
        assert_eq!(verbs.ibv_create_qp_ex(context, qp).word(), RESULT);
        assert_eq!(calls(), [("create_qp_ex", vec![context.word(), qp.word()])]);

        for (mask, kind, plain) in [
            (IBV_SRQ_INIT_ATTR_PD, IBV_SRQT_XRC, true),
            (IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC, true),
            (IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_XRC, false),
            (IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC, false),
            (IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ, IBV_SRQT_BASIC, false),
        ] {
            ((*srq).comp_mask, (*srq).srq_type, (*extended).create_srq_ex) = (mask, kind, None);
            let answer = verbs.ibv_create_srq_ex(context, srq);
            if plain {
                assert_eq!(answer.word(), RESULT);
                assert_eq!(calls(), [("ibv_create_srq", vec![0x1000, srq.word()])]);
                continue;
            }
            assert!(answer.says_unsupported());
            (*extended).create_srq_ex =
                recorder!(create_srq_ex(context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq);
            assert_eq!(verbs.ibv_create_srq_ex(context, srq).word(), RESULT);
            assert_eq!(calls(), [("create_srq_ex", vec![context.word(), srq.word()])]);
        }
    }
}
