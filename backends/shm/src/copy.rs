//! Copies to and from memory that another process, or another thread by mistake, may be writing or reading.
//!
//! Rust calls a plain copy undefined when its bytes change underneath. These copies are machine code that the
//! compiler doesn't look into: bytes that change give some value, and nothing else goes wrong.

use core::sync::atomic::{AtomicU64, Ordering};

/// Copies from here on are counted, and made by the processor's own string copy, which wins over sixteen bytes at a time.
const BULK_MIN: usize = 1024;

/// Bytes of such copies since the device was attached. Whoever copies holds the device's lock, so that plain loads and stores do: a
/// process has one device (where a test has several, it is a figure of no use).
static BULK: AtomicU64 = AtomicU64::new(0);

/// Bytes that were copied into and out of shared memory, in copies of 1 KiB and more: small messages are not to pay for a counter.
#[must_use]
pub fn bulk_copied() -> u64 {
    BULK.load(Ordering::Relaxed)
}

/// The count begins anew: after a fork, the child's memory has its parent's.
pub(crate) fn reset_bulk_copied() {
    BULK.store(0, Ordering::Relaxed);
}

#[inline]
fn count_bulk(len: usize) {
    BULK.store(BULK.load(Ordering::Relaxed) + len as u64, Ordering::Relaxed);
}

/// Copies `len` bytes.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, they don't overlap, and neither range is behind a Rust
/// reference that forbids it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn opaque(src: *const u8, dst: *mut u8, len: usize) {
    if len >= BULK_MIN {
        count_bulk(len);
    }
    // SAFETY: the caller's promise covers `len` bytes from both pointers; every piece below lies within them.
    unsafe {
        if len >= BULK_MIN {
            core::arch::asm!("rep movsb", inout("rcx") len => _, inout("rsi") src => _, inout("rdi") dst => _, options(nostack, preserves_flags));
        } else if len >= 16 {
            let mut at = 0;
            while at + 64 <= len {
                piece64(src.add(at), dst.add(at));
                at += 64;
            }
            while at + 16 <= len {
                piece16(src.add(at), dst.add(at));
                at += 16;
            }
            // The last piece overlaps the one before.
            if at < len {
                piece16(src.add(len - 16), dst.add(len - 16));
            }
        } else {
            let mut at = 0;
            if len & 8 != 0 {
                core::arch::asm!("mov {x}, [{s}]", "mov [{d}], {x}", x = out(reg) _, s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags));
                at = 8;
            }
            if len & 4 != 0 {
                core::arch::asm!("mov {x:e}, [{s}]", "mov [{d}], {x:e}", x = out(reg) _, s = in(reg) src.add(at), d = in(reg) dst.add(at), options(nostack, preserves_flags));
                at += 4;
            }
            while at < len {
                dst.add(at).write_volatile(src.add(at).read_volatile());
                at += 1;
            }
        }
    }
}

/// All loads before all stores, so that what is far away comes in at once.
///
/// # Safety
/// As [`opaque`] with `len` 64.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn piece64(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's promise; unaligned moves are allowed on any address.
    unsafe {
        core::arch::asm!(
            "movdqu {a}, [{s}]", "movdqu {b}, [{s} + 16]", "movdqu {c}, [{s} + 32]", "movdqu {e}, [{s} + 48]",
            "movdqu [{d}], {a}", "movdqu [{d} + 16], {b}", "movdqu [{d} + 32], {c}", "movdqu [{d} + 48], {e}",
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
            s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// As [`opaque`] with `len` 16.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn piece16(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's promise; unaligned moves are allowed on any address.
    unsafe {
        core::arch::asm!("movdqu {x}, [{s}]", "movdqu [{d}], {x}", x = out(xmm_reg) _, s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags));
    }
}

/// Copies `len` bytes.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, they don't overlap, and neither range is behind a Rust
/// reference that forbids it.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) unsafe fn opaque(src: *const u8, dst: *mut u8, len: usize) {
    if len >= BULK_MIN {
        count_bulk(len);
    }
    let aligned = (src as usize | dst as usize).is_multiple_of(8);
    let words = if aligned { len / 8 } else { 0 };
    // SAFETY: the caller's promise covers `len` bytes from both pointers; words are used only where both are aligned.
    unsafe {
        for i in 0..words {
            dst.cast::<u64>().add(i).write_volatile(src.cast::<u64>().add(i).read_volatile());
        }
        for i in words * 8..len {
            dst.add(i).write_volatile(src.add(i).read_volatile());
        }
    }
}

/// The Internet checksum's running sum (RFC 1071), fed in pieces of any length.
#[derive(Default)]
pub(crate) struct Sum {
    sum: u64,
    odd: bool,
}

impl Sum {
    /// The folded sum of `len` bytes that `copy` copies out, a piece at a time: no sum is taken over memory that may change.
    pub(crate) fn over(len: usize, copy: impl Fn(usize, &mut [u8])) -> u16 {
        let mut sum = Self::default();
        let mut piece = [0u8; 512];
        let mut done = 0;
        while done < len {
            let piece = &mut piece[..(len - done).min(512)];
            copy(done, piece);
            sum.add(piece);
            done += piece.len();
        }
        sum.fold()
    }

    /// Adds the next bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.odd
            && let Some((&low, rest)) = bytes.split_first()
        {
            self.sum += u64::from(low);
            self.odd = false;
            bytes = rest;
        }
        let mut pairs = bytes.chunks_exact(2);
        for pair in &mut pairs {
            self.sum += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        if let [high] = pairs.remainder() {
            self.sum += u64::from(*high) << 8;
            self.odd = true;
        }
    }

    /// The sum, folded to sixteen bits.
    pub(crate) fn fold(self) -> u16 {
        let mut sum = self.sum;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Sum, opaque};

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let from: Vec<u8> = (0..4200u32).map(|i| (i * 7 + 3) as u8).collect();
        for len in (0..300).chain([1023, 1024, 1025, 4096]) {
            for skew in 0..17 {
                let mut to = vec![0xEE; 4200];
                // SAFETY: both vectors are longer than skew + len.
                unsafe { opaque(from.as_ptr().add(skew), to.as_mut_ptr().add(3), len) };
                assert_eq!(&to[3..3 + len], &from[skew..skew + len]);
                assert!(to[..3].iter().chain(&to[3 + len..]).all(|&b| b == 0xEE), "len {len} skew {skew}");
            }
        }
    }

    #[test]
    fn the_sum_does_not_depend_on_the_pieces() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut whole = Sum::default();
        whole.add(&bytes);
        let whole = whole.fold();
        for cut in 0..bytes.len() {
            let mut sum = Sum::default();
            sum.add(&bytes[..cut]);
            sum.add(&bytes[cut..]);
            assert_eq!(sum.fold(), whole);
        }
        // RFC 1071 s3's example.
        let mut example = Sum::default();
        example.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(example.fold(), 0xddf2);
    }
}
