//! Profiles: rings that a program has described, by number.

use core::ffi::c_int;
use core::mem::size_of;

use ringway_stack::cyclic::{Geometry, Records};

use crate::errno;
use crate::process::process_or_init;

/// A kind of ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// As rings are without one.
    Packets,
    /// One whose packets lie in the program's memory; as far as ours go, the same.
    External,
    Cyclic(Geometry),
}

/// `vma_ring_type_attr`, as far as all programs have it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::extra) struct RingType {
    comp_mask: u32,
    ring_type: u32,
    attr_comp_mask: u32,
}

/// The union's wider member, `vma_cyclic_buffer_ring_attr`, where a program has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct CyclicRingType {
    _comp_mask: u32,
    _ring_type: u32,
    comp_mask: u32,
    num: u32,
    stride_bytes: u16,
    hdr_bytes: u16,
    mode: u32,
}

/// VMA_CB_HDR_BYTE.
const HAS_HEADER: u32 = 1;

/// VMA_RING_CYCLIC_BUFFER and VMA_RING_EXTERNAL_MEM: before libvma 9.3, and in our header.
const OLDER: (u32, u32) = (1, 2);
const OURS: (u32, u32) = (2, 1);

/// See the header.
pub(in crate::extra) unsafe extern "C" fn add_ring_profile(profile: *const RingType, key: *mut c_int) -> c_int {
    // SAFETY: the program's promise.
    unsafe { add(profile, key, OURS) }
}

/// As [`add_ring_profile`], for programs that were compiled with an older header.
pub(in crate::extra) unsafe extern "C" fn add_older(profile: *const RingType, key: *mut c_int) -> c_int {
    // SAFETY: the program's promise.
    unsafe { add(profile, key, OLDER) }
}

/// # Safety
/// Both are null, or what the header says.
unsafe fn add(profile: *const RingType, key: *mut c_int, (cyclic, external): (u32, u32)) -> c_int {
    if profile.is_null() || key.is_null() {
        return errno::fail(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let described = match unsafe { profile.read_unaligned() }.ring_type {
        0 => Some(Profile::Packets),
        // SAFETY: the caller's promise: for this type it is the wider structure.
        wanted if wanted == cyclic => geometry(&unsafe { profile.cast::<CyclicRingType>().read_unaligned() }).map(Profile::Cyclic),
        wanted => (wanted == external).then_some(Profile::External),
    };
    let Some(described) = described else { return errno::fail(libc::EINVAL) };
    let Some(process) = process_or_init() else { return errno::fail(libc::EINVAL) };
    crate::boundary!(-1, {
        let mut guard = process.lock();
        let known = &mut guard.cyclic.profiles;
        let index = known.iter().position(|profile| *profile == described).unwrap_or_else(|| {
            known.push(described);
            known.len() - 1
        });
        // SAFETY: the caller's promise.
        unsafe { key.write_unaligned(c_int::try_from(index + 1).unwrap_or(c_int::MAX)) };
        0
    })
}

/// What it describes, if that makes sense.
fn geometry(attr: &CyclicRingType) -> Option<Geometry> {
    let records = match attr.mode {
        0 => Records::Raw,
        1 => Records::StripHeaders,
        2 => Records::SeparateHeaders,
        3 => Records::Padded,
        _ => return None,
    };
    let geometry = Geometry {
        records,
        packets: usize::try_from(attr.num).ok()?,
        payload_bytes: attr.stride_bytes.into(),
        header_bytes: if attr.comp_mask & HAS_HEADER != 0 { attr.hdr_bytes.into() } else { 0 },
        // (No VLAN goes through shared memory.)
        vlan: false,
    };
    geometry.layout().is_ok().then_some(geometry)
}

const _: () = assert!(size_of::<RingType>() == 12 && size_of::<CyclicRingType>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    const ATTR: CyclicRingType =
        CyclicRingType { _comp_mask: 0, _ring_type: 2, comp_mask: 0, num: 16, stride_bytes: 100, hdr_bytes: 8, mode: 1 };

    #[test]
    fn a_header_counts_only_if_it_is_said_to() {
        assert_eq!(geometry(&ATTR).expect("it makes sense").header_bytes, 0);
        assert_eq!(geometry(&CyclicRingType { comp_mask: HAS_HEADER, ..ATTR }).expect("it makes sense").header_bytes, 8);
    }

    #[test]
    fn what_makes_no_sense_is_no_geometry() {
        for attr in [
            CyclicRingType { mode: 4, ..ATTR },
            CyclicRingType { num: 0, ..ATTR },
            CyclicRingType { stride_bytes: 0, ..ATTR },
            CyclicRingType { mode: 0, comp_mask: HAS_HEADER, ..ATTR },
            CyclicRingType { num: u32::MAX, ..ATTR },
        ] {
            assert_eq!(geometry(&attr), None);
        }
    }
}
