//! Memory of the card's own: parts of it are made, registered, and written past the process's caches, in words of 4 bytes.

use ringway_sim::connectx::{Access, Memory as _, Region};

use super::Card;

/// What it reads and writes by (libmlx5's copies).
const WORD: usize = 4;

impl Card {
    /// So many bytes, if there are as many left: where they lie.
    pub(crate) fn make_own(&mut self, len: usize) -> Result<*mut u8, i32> {
        self.may()?;
        let used: usize = self.own_memory.values().sum();
        if len == 0 || used + len > self.trouble.own_memory {
            return Err(libc::ENOMEM);
        }
        let base = self.memory.add_own(len);
        self.own_memory.insert(base.addr(), len);
        Ok(base)
    }

    /// They are the card's again: frames that refer to them break a rule from now on.
    pub(crate) fn end_own(&mut self, base: *mut u8) {
        self.own_memory.remove(&base.addr());
        self.memory.remove(base);
    }

    /// Registers the first bytes of a part, which are named from zero on.
    pub(crate) fn register_own(&mut self, pd: u32, base: *mut u8, len: usize) -> Result<u32, i32> {
        self.may()?;
        if self.own_memory.get(&base.addr()).is_none_or(|own| len > *own) {
            return Err(libc::EINVAL);
        }
        let key = 0x1000 + self.number();
        self.queues.keys.register(key, Region { pd, addr: 0, at: base.addr() as u64, len: len as u64, access: Access::LOCAL_WRITE });
        self.count_one(true);
        Ok(key)
    }

    /// Whether so many bytes of a part may be copied from an offset on.
    fn own_at(&self, base: *mut u8, offset: usize, len: usize) -> Result<u64, i32> {
        let own = *self.own_memory.get(&base.addr()).ok_or(libc::EINVAL)?;
        let fits = offset.checked_add(len).is_some_and(|end| end <= own);
        let is_aligned = offset.is_multiple_of(WORD) && len.is_multiple_of(WORD);
        if fits && is_aligned { Ok((base.addr() + offset) as u64) } else { Err(libc::EINVAL) }
    }

    pub(crate) fn write_own(&mut self, base: *mut u8, offset: usize, bytes: &[u8]) -> Result<(), i32> {
        let at = self.own_at(base, offset, bytes.len())?;
        self.memory.write(at, bytes).map_err(|_| libc::EFAULT)
    }

    pub(crate) fn read_own(&self, base: *mut u8, offset: usize, out: &mut [u8]) -> Result<(), i32> {
        let at = self.own_at(base, offset, out.len())?;
        self.memory.read(at, out).map_err(|_| libc::EFAULT)
    }
}
