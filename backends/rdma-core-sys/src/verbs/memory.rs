//! Protection domains, memory regions, memory windows and device memory (infiniband/verbs.h).

use std::ffi::{c_int, c_uint, c_void};

use crate::ibv_context;

c_items! {
    types {
        /// A protection domain: objects of one domain may use each other (ibv_alloc_pd(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_pd {
            /// Its device.
            pub context: *mut ibv_context,
            /// The kernel's number of it.
            pub handle: u32,
        }

        /// What a thread domain is made of: nothing beyond the usual.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_td_init_attr {
            /// Must be 0.
            pub comp_mask: u32,
        }

        /// A thread domain: its objects are used by one thread at a time, and take no locks (ibv_alloc_td(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_td {
            /// Its device.
            pub context: *mut ibv_context,
        }

        /// What a parent domain is made of (ibv_alloc_parent_domain(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_parent_domain_init_attr {
            /// The protection domain below it.
            pub pd: *mut ibv_pd,
            /// The thread domain that its objects belong to; null for none.
            pub td: *mut ibv_td,
            /// [`ibv_parent_domain_init_attr_mask`].
            pub comp_mask: u32,
            /// Allocates memory of queues; the address [`IBV_ALLOCATOR_USE_DEFAULT`] leaves it to the driver.
            pub alloc: Option<
                unsafe extern "C" fn(
                    pd: *mut ibv_pd,
                    pd_context: *mut c_void,
                    size: usize,
                    alignment: usize,
                    resource_type: u64,
                ) -> *mut c_void,
            >,
            /// Frees what `alloc` gave.
            pub free: Option<unsafe extern "C" fn(pd: *mut ibv_pd, pd_context: *mut c_void, ptr: *mut c_void, resource_type: u64)>,
            /// Handed to `alloc` and `free`.
            pub pd_context: *mut c_void,
        }

        /// What a domain of extended reliable connections is made of (ibv_open_xrcd(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_xrcd_init_attr {
            /// [`ibv_xrcd_init_attr_mask`]: both bits are needed.
            pub comp_mask: u32,
            /// A file that processes share the domain by; -1 for none.
            pub fd: c_int,
            /// O_CREAT, O_EXCL, as open(2) has them.
            pub oflags: c_int,
        }

        /// A domain of extended reliable connections.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_xrcd {
            /// Its device.
            pub context: *mut ibv_context,
        }

        /// A memory region: memory that the card may read or write (ibv_reg_mr(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_mr {
            /// Its device.
            pub context: *mut ibv_context,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// Where it begins.
            pub addr: *mut c_void,
            /// Its length, bytes.
            pub length: usize,
            /// The kernel's number of it.
            pub handle: u32,
            /// Its key in local scatter/gather elements.
            pub lkey: u32,
            /// Its key in a peer's requests.
            pub rkey: u32,
        }

        /// What a memory window is bound to.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_mw_bind_info {
            /// The region; null unbinds.
            pub mr: *mut ibv_mr,
            /// Where the window begins.
            pub addr: u64,
            /// Its length, bytes; 0 unbinds.
            pub length: u64,
            /// What a peer may do there: [`ibv_access_flags`].
            pub mw_access_flags: c_uint,
        }

        /// A memory window: a part of a region with a key of its own (ibv_alloc_mw(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_mw {
            /// Its device.
            pub context: *mut ibv_context,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// Its key in a peer's requests.
            pub rkey: u32,
            /// The kernel's number of it.
            pub handle: u32,
            /// [`IBV_MW_TYPE_1`] or [`IBV_MW_TYPE_2`].
            pub r#type: ibv_mw_type,
        }

        /// A request that binds a memory window of type 1 (ibv_bind_mw(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_mw_bind {
            /// The request's number in its completion.
            pub wr_id: u64,
            /// [`ibv_send_flags`](crate::ibv_send_flags).
            pub send_flags: c_uint,
            /// What it is bound to.
            pub bind_info: ibv_mw_bind_info,
        }

        /// What device memory is asked for (ibv_alloc_dm(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_alloc_dm_attr {
            /// Bytes.
            pub length: usize,
            /// Alignment: 2^this bytes.
            pub log_align_req: u32,
            /// Must be 0.
            pub comp_mask: u32,
        }

        /// Memory on the card. It is reached by offsets, never by address.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_dm {
            /// Its device.
            pub context: *mut ibv_context,
            /// Copies to it; [`ibv_memcpy_to_dm`](crate::ibv_memcpy_to_dm) calls it.
            pub memcpy_to_dm: Option<
                unsafe extern "C" fn(dm: *mut ibv_dm, dm_offset: u64, host_addr: *const c_void, length: usize) -> c_int,
            >,
            /// Copies from it; [`ibv_memcpy_from_dm`](crate::ibv_memcpy_from_dm) calls it.
            pub memcpy_from_dm: Option<
                unsafe extern "C" fn(host_addr: *mut c_void, dm: *mut ibv_dm, dm_offset: u64, length: usize) -> c_int,
            >,
            /// [`ibv_dm_mask`].
            pub comp_mask: u32,
            /// The kernel's number of it, if `comp_mask` says so.
            pub handle: u32,
        }
    }
    enums {
        /// Who may do what with a memory region (ibv_reg_mr(3)), and in `qp_access_flags` with a QP.
        pub enum ibv_access_flags: u32 {
            /// The card may write it for local requests. Reading is always allowed.
            IBV_ACCESS_LOCAL_WRITE = 1,
            /// A peer may write it; needs local writing.
            IBV_ACCESS_REMOTE_WRITE = 1 << 1,
            /// A peer may read it.
            IBV_ACCESS_REMOTE_READ = 1 << 2,
            /// A peer may use atomics; needs local writing.
            IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
            /// Memory windows may be bound to it.
            IBV_ACCESS_MW_BIND = 1 << 4,
            /// Addresses in it are offsets from its beginning.
            IBV_ACCESS_ZERO_BASED = 1 << 5,
            /// Pages are faulted in, not pinned.
            IBV_ACCESS_ON_DEMAND = 1 << 6,
            /// All of it is in huge pages.
            IBV_ACCESS_HUGETLB = 1 << 7,
            /// The card's accesses may be reordered by PCIe.
            IBV_ACCESS_RELAXED_ORDERING = 0x0010_0000,
        }

        /// Kinds of memory window.
        pub enum ibv_mw_type: u32 {
            /// Bound by [`ibv_bind_mw`](crate::ibv_bind_mw).
            IBV_MW_TYPE_1 = 1,
            /// Bound by a posted work request.
            IBV_MW_TYPE_2 = 2,
        }

        /// What of an [`ibv_dm`] counts.
        pub enum ibv_dm_mask: u32 {
            /// `handle`.
            IBV_DM_MASK_HANDLE = 1 << 0,
        }

        /// What ibv_rereg_mr(3) changes.
        pub enum ibv_rereg_mr_flags: u32 {
            /// The memory.
            IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0,
            /// The protection domain.
            IBV_REREG_MR_CHANGE_PD = 1 << 1,
            /// The access flags.
            IBV_REREG_MR_CHANGE_ACCESS = 1 << 2,
            /// All of them.
            IBV_REREG_MR_FLAGS_SUPPORTED = 7,
        }

        /// How ibv_rereg_mr(3) failed. From [`IBV_REREG_MR_ERR_CMD`] on the region can no longer be used.
        pub enum ibv_rereg_mr_err_code: i32 {
            /// Wrong arguments: the region is as it was.
            IBV_REREG_MR_ERR_INPUT = -1,
            /// The new memory could not be kept from children: the region is as it was.
            IBV_REREG_MR_ERR_DONT_FORK_NEW = -2,
            /// The old memory could not be given back to children; the region is the new one.
            IBV_REREG_MR_ERR_DO_FORK_OLD = -3,
            /// The kernel refused.
            IBV_REREG_MR_ERR_CMD = -4,
            /// The kernel refused, and the new memory could not be given back to children.
            IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5,
        }

        /// What of an [`ibv_xrcd_init_attr`] counts.
        pub enum ibv_xrcd_init_attr_mask: u32 {
            /// `fd`.
            IBV_XRCD_INIT_ATTR_FD = 1 << 0,
            /// `oflags`.
            IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1,
            /// The first bit that means nothing.
            IBV_XRCD_INIT_ATTR_RESERVED = 1 << 2,
        }

        /// What of an [`ibv_parent_domain_init_attr`] counts.
        pub enum ibv_parent_domain_init_attr_mask: u32 {
            /// `alloc` and `free`.
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0,
            /// `pd_context`.
            IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1,
        }

        /// What is advised about memory under on-demand paging (ibv_advise_mr(3)).
        pub enum ibv_advise_mr_advice: u32 {
            /// It will be read soon.
            IBV_ADVISE_MR_ADVICE_PREFETCH = 0,
            /// It will be written soon.
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1,
            /// It will be read soon: take what is resident, fault nothing in.
            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2,
        }
    }
    constants {
        /// A flag of ibv_advise_mr(3): wait until it is carried out.
        pub const IBV_ADVISE_MR_FLAG_FLUSH: u32 = 1 << 0;

        /// An address that a parent domain's `alloc` gives: let the driver allocate.
        pub const IBV_ALLOCATOR_USE_DEFAULT: usize = usize::MAX;

        /// The lowest of the access flags that a device may ignore.
        pub const IBV_ACCESS_OPTIONAL_FIRST: u32 = 1 << 20;

        /// All access flags that a device may ignore.
        pub const IBV_ACCESS_OPTIONAL_RANGE: u32 = 0x3ff0_0000;
    }
}
