//! Memory keys: what the card may reach, and for whom.

use std::collections::BTreeMap;

use super::violation::Violation;

bitflags::bitflags! {
    /// What a region may be used for; reading it for sends is always allowed (infiniband, ibv_reg_mr(3)).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Receives, and results of reads and atomics.
        const LOCAL_WRITE = 1 << 0;
        /// A peer's writes.
        const REMOTE_WRITE = 1 << 1;
        /// A peer's reads.
        const REMOTE_READ = 1 << 2;
        /// A peer's atomics.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

/// A registered run of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its protection domain.
    pub pd: u32,
    /// Where it begins, as who uses it says.
    pub addr: u64,
    /// Where that is in the memory that the card reaches. (The same, but for what is named from zero on: ibv_reg_mr(3), `IBV_ACCESS_ZERO_BASED`.)
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// What it may be used for.
    pub access: Access,
}

impl Region {
    fn holds(&self, addr: u64, len: u64) -> bool {
        addr.checked_sub(self.addr).and_then(|at| at.checked_add(len)).is_some_and(|end| end <= self.len)
    }
}

/// All regions, by key. Local and remote keys are the same number, as libmlx5 gets them.
#[derive(Clone, Debug, Default)]
pub struct KeyTable {
    regions: BTreeMap<u32, Region>,
}

impl KeyTable {
    /// Adds a region under `key`; the one that had it before is returned.
    pub fn register(&mut self, key: u32, region: Region) -> Option<Region> {
        self.regions.insert(key, region)
    }

    /// Removes the region of `key`.
    pub fn deregister(&mut self, key: u32) -> Option<Region> {
        self.regions.remove(&key)
    }

    /// Whether a queue of `pd` may read (or, with `write`, write) `len` bytes at `addr`; where these are in memory.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn check_local(&self, key: u32, pd: u32, addr: u64, len: u64, write: bool) -> Result<u64, Violation> {
        let region = self.regions.get(&key).ok_or(Violation::UnknownKey { key })?;
        if region.pd != pd {
            return Err(Violation::OtherDomain { key });
        }
        if !region.holds(addr, len) {
            return Err(Violation::OutsideRegion { key, addr, len });
        }
        match write && !region.access.contains(Access::LOCAL_WRITE) {
            true => Err(Violation::AccessDenied { key }),
            false => Ok(region.at.wrapping_add(addr - region.addr)),
        }
    }

    /// Whether a peer of a queue of `pd` has all of `access` to `len` bytes at `addr`.
    ///
    /// # Errors
    /// [`Violation::RemoteAccess`]; the peer is not told more.
    pub fn check_remote(&self, key: u32, pd: u32, addr: u64, len: u64, access: Access) -> Result<(), Violation> {
        let allowed = self.regions.get(&key).is_some_and(|r| r.pd == pd && r.holds(addr, len) && r.access.contains(access));
        allowed.then_some(()).ok_or(Violation::RemoteAccess { key })
    }
}
