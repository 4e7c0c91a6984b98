//! Memory on the card: allocated, registered, freed (the kernel's uverbs_std_types_dm.c and mlx5's dm.c, by what they answer).

use ringway_preload::Errno;
use ringway_sim::connectx::{Access as KeyAccess, Region};
use ringway_stack::roce::memory::{Access, Pd, RegisterError};

use crate::abi::{Call, Input, id};
use crate::engine::device_memory::{BYTES, PAGE};
use crate::engine::memory::{ProcessMemory, Registered};
use crate::engine::{Context, Engine, Object};

/// `IB_ACCESS_ZERO_BASED`, without which it is not registered.
const ZERO_BASED: u32 = 1 << 5;
/// Besides: the four of [`Access`], and the optional ones.
const ACCESS_KNOWN: u32 = ZERO_BASED | 0xf | 0x3ff << 20;

fn context(engine: &mut Engine, context: u32) -> Result<&mut Context, Errno> {
    engine.contexts.get_mut(&context).ok_or(Errno(libc::EIO))
}

/// Where the memory of a handle begins.
fn find(context: &Context, handle: Option<u32>) -> Result<(u32, usize), Errno> {
    let handle = handle.ok_or(Errno(libc::EINVAL))?;
    match context.objects.get(&handle) {
        Some(Object::Dm(start)) => Ok((handle, *start)),
        _ => Err(Errno(libc::ENOENT)),
    }
}

/// Allocates. EINVAL: nothing, or more than there is at all; ENOMEM: more than is free; EOPNOTSUPP: of another kind.
pub(super) fn alloc(engine: &mut Engine, number: u32, memory: &ProcessMemory, call: &Call) -> Result<(), Errno> {
    let input = |id| call.input(memory, id);
    let (len, align_log) = (Input(&input(id::DM_LENGTH)?).u64(0), Input(&input(id::DM_ALIGNMENT)?).u32(0));
    if Input(&input(id::DM_TYPE)?).u64(0) != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let len = usize::try_from(len).ok().filter(|len| (1..=BYTES).contains(len)).ok_or(Errno(libc::EINVAL))?;
    if align_log > PAGE.ilog2() {
        return Err(Errno(libc::EINVAL));
    }
    context(engine, number)?;
    let start = engine.device_memory.alloc(len)?;
    let handle = context(engine, number)?.add(Object::Dm(start));
    let told = call.output(memory, id::DM_START, &0u64.to_ne_bytes());
    let told = told.and_then(|()| call.output(memory, id::DM_PAGE, &((start / PAGE) as u16).to_ne_bytes()));
    told.and_then(|()| call.return_handle(memory, id::DM_HANDLE, handle)).inspect_err(|_| {
        engine.device_memory.free(start);
        if let Some(context) = engine.contexts.get_mut(&number) {
            context.objects.remove(&handle);
        }
    })
}

/// Frees. EBUSY: a region of it is still registered.
pub(super) fn free(engine: &mut Engine, number: u32, call: &Call) -> Result<(), Errno> {
    let context = context(engine, number)?;
    let (handle, start) = find(context, call.handle(id::DM_HANDLE))?;
    if context.objects.values().any(|object| matches!(object, Object::Mr { dm, .. } if *dm == handle)) {
        return Err(Errno(libc::EBUSY));
    }
    context.objects.remove(&handle);
    engine.device_memory.free(start);
    Ok(())
}

/// Registers a part. EINVAL: beyond the end, or access that it cannot have.
pub(super) fn register(engine: &mut Engine, number: u32, memory: &ProcessMemory, call: &Call) -> Result<(), Errno> {
    let input = |id| call.input(memory, id);
    let (offset, len) = (Input(&input(id::DM_MR_OFFSET)?).u64(0), Input(&input(id::DM_MR_LENGTH)?).u64(0));
    let flags = Input(&input(id::DM_MR_ACCESS)?).u32(0);
    let owner = context(engine, number)?;
    let pd_handle = call.handle(id::DM_MR_PD).ok_or(Errno(libc::EINVAL))?;
    let pd = owner.pd(pd_handle)?;
    let (dm, start) = find(owner, call.handle(id::DM_MR_DM))?;
    let fits = offset.checked_add(len).is_some_and(|end| end <= engine.device_memory.len(start) as u64);
    if !fits || flags & ZERO_BASED == 0 || flags & !ACCESS_KNOWN != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let at = engine.device_memory.address(start) + offset;
    let registered = Registered::Program { start: at, len, memory: engine.memory };
    let key = engine.node.hca_mut().register(Pd(pd), 0, registered, Access::from_bits_truncate(flags)).map_err(|error| match error {
        RegisterError::Flags | RegisterError::Wraps => Errno(libc::EINVAL),
        RegisterError::Full => Errno(libc::ENOMEM),
    })?;
    // The two have the same bits.
    let access = KeyAccess::from_bits_truncate(flags as u8);
    engine.card.keys.register(key, Region { pd, addr: 0, at, len, access });
    let object = Object::Mr { pd: pd_handle, key, dm };
    let handle = context(engine, number)?.add(object);
    let told = call.output(memory, id::DM_MR_LKEY, &key.to_ne_bytes());
    let told = told.and_then(|()| call.output(memory, id::DM_MR_RKEY, &key.to_ne_bytes()));
    told.and_then(|()| call.return_handle(memory, id::DM_MR_HANDLE, handle)).inspect_err(|_| {
        engine.end(object);
        if let Some(context) = engine.contexts.get_mut(&number) {
            context.objects.remove(&handle);
        }
    })
}
