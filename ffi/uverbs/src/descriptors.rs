//! Which of the process's descriptors are the device's. Looking takes no lock: close(2) and its like may be called in signal handlers.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

/// Descriptors beyond it are never the device's.
const MAX: usize = 4096;

static TABLE: [AtomicU32; MAX] = [const { AtomicU32::new(0) }; MAX];

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The character device, opened: a context's number, above zero.
    Context(u32),
    /// A completion channel: its number, above zero.
    Channel(u32),
    /// A folder of sysfs: its place in the tree.
    Folder(u32),
    /// /dev/infiniband/rdma_cm, opened: the number of a context that is its own.
    RdmaCm(u32),
}

impl Kind {
    const fn encode(self) -> u32 {
        match self {
            Self::Context(number) => number << 3 | 1,
            Self::Channel(number) => number << 3 | 2,
            Self::Folder(place) => place << 3 | 3,
            Self::RdmaCm(number) => number << 3 | 4,
        }
    }

    const fn decode(code: u32) -> Option<Self> {
        match code & 7 {
            1 => Some(Self::Context(code >> 3)),
            2 => Some(Self::Channel(code >> 3)),
            3 => Some(Self::Folder(code >> 3)),
            4 => Some(Self::RdmaCm(code >> 3)),
            _ => None,
        }
    }
}

fn place(fd: c_int) -> Option<&'static AtomicU32> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// What the descriptor is, if it is the device's.
pub(crate) fn kind(fd: c_int) -> Option<Kind> {
    Kind::decode(place(fd)?.load(Ordering::Acquire))
}

/// Says what a new descriptor is; whether there is a place for it.
pub(crate) fn set(fd: c_int, kind: Kind) -> bool {
    place(fd).map(|place| place.store(kind.encode(), Ordering::Release)).is_some()
}

/// Forgets a descriptor; what it was.
pub(crate) fn clear(fd: c_int) -> Option<Kind> {
    let place = place(fd)?;
    match place.load(Ordering::Acquire) {
        0 => None,
        _ => Kind::decode(place.swap(0, Ordering::AcqRel)),
    }
}

/// Descriptors from `first` to `last` that are the device's.
pub(crate) fn known(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let fds = first as usize..MAX.min((last as usize).saturating_add(1));
    fds.filter(|fd| TABLE[*fd].load(Ordering::Acquire) != 0).map(|fd| fd as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_what_they_were_said_to_be_until_they_are_forgotten() {
        for (fd, kind) in [(4000, Kind::Context(1)), (4001, Kind::Channel(7)), (4002, Kind::Folder(0)), (4003, Kind::RdmaCm(9))] {
            assert_eq!(super::kind(fd), None);
            assert!(set(fd, kind));
            assert_eq!(super::kind(fd), Some(kind));
        }
        assert_eq!(known(3999, 4001).collect::<Vec<_>>(), [4000, 4001]);
        assert_eq!(clear(4001), Some(Kind::Channel(7)));
        assert_eq!(clear(4001), None);
        assert!(!set(MAX as c_int, Kind::Context(1)) && !set(-1, Kind::Context(1)));
    }
}
