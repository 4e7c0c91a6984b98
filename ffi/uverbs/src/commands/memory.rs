//! Protection domains, memory regions, addresses, register pages.

use ringway_preload::Errno;
use ringway_sim::connectx::{Access as KeyAccess, Region};
use ringway_stack::roce::group_mac;
use ringway_stack::roce::memory::{Access, Pd, RegisterError};

use super::{Reply, Request};
use crate::abi::{Call, Output, id};
use crate::engine::memory::{ProcessMemory, Registered};
use crate::engine::{Engine, Object, path};
use crate::sysfs::MAC;

const PAGE: u64 = 4096;
/// Where mmap(2) has register pages: their number, in pages, from here on. (What libmlx5 maps otherwise, it has lower places for.)
pub(crate) const PAGES_AT: u64 = 1 << 44;
/// `IB_ACCESS_ON_DEMAND`.
const ON_DEMAND: u32 = 1 << 6;
/// The access flags that there are: the four of [`Access`], windows, huge pages, and the optional ones from bit 20 on.
const ACCESS_KNOWN: u32 = 0xf | 1 << 4 | ON_DEMAND | 1 << 7 | 0x3ff << 20;

/// `ib_uverbs_alloc_pd_resp` {pd_handle 0}; `mlx5_ib_alloc_pd_resp` {pdn 0}.
pub(super) fn alloc_pd(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let Pd(pd) = request.engine.node.hca_mut().alloc_pd();
    let handle = request.context()?.add(Object::Pd(pd));
    Ok(Reply { core: Output::new(4).u32(0, handle), driver: Output::new(4).u32(0, pd), made: Some(handle) })
}

/// `ib_uverbs_dealloc_pd` {pd_handle 0}. EBUSY: something lives in it.
pub(super) fn dealloc_pd(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let handle = request.core().u32(0);
    if request.context()?.uses_pd(handle) {
        return Err(Errno(libc::EBUSY));
    }
    request.remove(handle, |object| matches!(object, Object::Pd(_)))?;
    Ok(Reply::nothing())
}

/// `ib_uverbs_reg_mr` {start 8, length 16, hca_va 24, pd_handle 32, access_flags 36}; `ib_uverbs_reg_mr_resp` {mr_handle 0, lkey 4, rkey 8}.
pub(super) fn register(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    let (start, len, addr, pd_handle, flags) = (core.u64(8), core.u64(16), core.u64(24), core.u32(32), core.u32(36));
    let pd = request.context()?.pd(pd_handle)?;
    if start % PAGE != addr % PAGE || flags & !ACCESS_KNOWN != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if flags & ON_DEMAND != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    is_mapped(start, len)?;
    let memory = Registered::Program { start, len, memory: request.engine.memory };
    let access = Access::from_bits_truncate(flags);
    let key = request.engine.node.hca_mut().register(Pd(pd), addr, memory, access).map_err(|error| match error {
        RegisterError::Flags | RegisterError::Wraps => Errno(libc::EINVAL),
        RegisterError::Full => Errno(libc::ENOMEM),
    })?;
    // The two have the same bits.
    let access = KeyAccess::from_bits_truncate(flags as u8);
    request.engine.card.keys.register(key, Region { pd, addr, at: addr, len, access });
    let handle = request.context()?.add(Object::Mr { pd: pd_handle, key, dm: 0 });
    Ok(Reply { made: Some(handle), ..Reply::of(Output::new(12).u32(0, handle).u32(4, key).u32(8, key)) })
}

/// Whether all pages of it are there. (The kernel pins them.)
fn is_mapped(start: u64, len: u64) -> Result<(), Errno> {
    let first = start & !(PAGE - 1);
    let end = start.checked_add(len).ok_or(Errno(libc::EINVAL))?;
    let pages = usize::try_from((end - first).div_ceil(PAGE)).map_err(|_| Errno(libc::ENOMEM))?;
    let mut at = first;
    let mut room = vec![0u8; pages.min(1 << 16)];
    while at < end {
        let now = (end - at).min(room.len() as u64 * PAGE);
        // SAFETY: the kernel writes a byte a page into `room`, which has as many, and fails where nothing is mapped.
        if unsafe { libc::mincore(at as *mut _, now as usize, room.as_mut_ptr()) } != 0 {
            return Err(Errno(libc::EFAULT));
        }
        at += now.next_multiple_of(PAGE);
    }
    Ok(())
}

/// `ib_uverbs_dereg_mr` {mr_handle 0}.
pub(super) fn deregister(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let object = request.remove(request.core().u32(0), |object| matches!(object, Object::Mr { .. }))?;
    request.engine.end(object);
    Ok(Reply::nothing())
}

/// `ib_uverbs_create_ah` {pd_handle 16, attr 24 (`ib_uverbs_ah_attr`: dgid 0, sgid_index 20, hop_limit 21, traffic_class 22, is_global 29,
/// port_num 30)}; `ib_uverbs_create_ah_resp` {ah_handle 0}; `mlx5_ib_create_ah_resp` {response_length 0, dmac 4}.
pub(super) fn create_ah(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    let (pd, sgid_index, is_global, port) = (core.u32(16), core.u8(24 + 20), core.u8(24 + 29), core.u8(24 + 30));
    request.context()?.pd(pd)?;
    let path = path(core.gid(24), 0, 1, 0).filter(|_| port == 1 && is_global != 0 && sgid_index == 0).ok_or(Errno(libc::EINVAL))?;
    let mac = group_mac(path.addresses.dst()).map_or(MAC, |mac| mac.0);
    let handle = request.context()?.add(Object::Ah { pd });
    Ok(Reply { core: Output::new(4).u32(0, handle), driver: Output::new(16).u32(0, 16).with(4, mac), made: Some(handle) })
}

/// `ib_uverbs_destroy_ah` {ah_handle 0}.
pub(super) fn destroy_ah(request: &mut Request<'_>) -> Result<Reply, Errno> {
    request.remove(request.core().u32(0), |object| matches!(object, Object::Ah { .. }))?;
    Ok(Reply::nothing())
}

/// A register page: memory that libmlx5 maps at the offset, of the character device (`mapping`).
pub(super) fn alloc_uar(engine: &mut Engine, context: u32, memory: &ProcessMemory, call: &Call) -> Result<(), Errno> {
    let number = engine.number();
    let Some(context) = engine.contexts.get_mut(&context) else { return Err(Errno(libc::EIO)) };
    engine.registers.add(number)?;
    let handle = context.add(Object::Uar(number));
    let outputs = [
        (id::UAR_OFFSET, (PAGES_AT + u64::from(number) * PAGE).to_ne_bytes().to_vec()),
        (id::UAR_LENGTH, (PAGE as u32).to_ne_bytes().to_vec()),
        (id::UAR_PAGE, handle.to_ne_bytes().to_vec()),
    ];
    let told = outputs.iter().try_for_each(|(id, bytes)| call.output(memory, *id, bytes));
    told.and_then(|()| call.return_handle(memory, id::UAR_HANDLE, handle)).inspect_err(|_| {
        context.objects.remove(&handle);
        engine.registers.remove(number);
    })
}

/// Frees a register page. The program unmaps it.
pub(super) fn free_uar(engine: &mut Engine, context: u32, call: &Call) -> Result<(), Errno> {
    let Some(context) = engine.contexts.get_mut(&context) else { return Err(Errno(libc::EIO)) };
    let handle = call.handle(id::UAR_HANDLE).ok_or(Errno(libc::EINVAL))?;
    match context.objects.get(&handle) {
        Some(&Object::Uar(number)) => {
            context.objects.remove(&handle);
            engine.registers.remove(number);
            Ok(())
        }
        _ => Err(Errno(libc::ENOENT)),
    }
}
