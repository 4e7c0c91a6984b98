//! Copies to and from memory that another process, or another thread by mistake, may be writing or reading.
//!
//! Rust calls a plain copy undefined when its bytes change underneath. These copies are machine code that the
//! compiler doesn't look into: bytes that change give some value, and nothing else goes wrong.

use core::sync::atomic::{AtomicU64, Ordering};

/// Copies from here on are counted, and made by the processor's own string copy, which wins over sixteen bytes at a time.
const BULK_MIN: usize = 1024;

/// Counters among which threads are spread out, so that no two write to one line all the time.
const SPREAD: usize = 64;

/// Bytes of such copies since the device was attached. Plain loads and stores do: of two threads that come to the same one within the same nanosecond,
/// one's copy may be missing.
static BULK: [Counter; SPREAD] = [const { Counter(AtomicU64::new(0)) }; SPREAD];

/// By itself in its line, and in the pair of lines that is fetched together.
#[repr(align(128))]
struct Counter(AtomicU64);

/// Bytes that were copied into and out of shared memory, in copies of 1 KiB and more: small messages are not to pay for a counter.
#[must_use]
pub(crate) fn bulk_copied() -> u64 {
    BULK.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
}

/// The count begins anew: after a fork, the child's memory has its parent's.
pub(crate) fn reset_bulk_copied() {
    BULK.iter().for_each(|counter| counter.0.store(0, Ordering::Relaxed));
}

#[inline]
fn count_bulk(len: usize) {
    let Counter(counter) = &BULK[of_thread(core::ptr::from_ref(&len).addr())];
    counter.store(counter.load(Ordering::Relaxed) + len as u64, Ordering::Relaxed);
}

/// The counter of the thread on whose stack this is: stacks are megabytes apart.
const fn of_thread(on_stack: usize) -> usize {
    ((on_stack >> 20) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (64 - SPREAD.trailing_zeros())
}

/// Copies `len` bytes.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, they don't overlap, and neither range is behind a Rust
/// reference that forbids it.
#[inline(always)]
pub(crate) unsafe fn opaque(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise covers `len` bytes from both pointers; every piece below lies within them.
    unsafe {
        if len >= BULK_MIN {
            bulk(src, dst, len);
        } else {
            pieces(src, dst, len);
        }
    }
}

/// The same, of many bytes: in a function of its own, so that small copies stay small wherever they are inlined.
///
/// # Safety
/// As [`opaque`].
#[inline(never)]
unsafe fn bulk(src: *const u8, dst: *mut u8, len: usize) {
    count_bulk(len);
    // SAFETY: the caller's promise.
    unsafe { machine::bulk(src, dst, len) };
}

/// The same, piece by piece.
///
/// # Safety
/// As [`opaque`].
#[inline(always)]
unsafe fn pieces(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise covers `len` bytes from both pointers; every piece lies within them.
    unsafe {
        // The last piece overlaps the one before, or, of a few bytes, each one the others.
        if len >= 64 {
            let mut at = 0;
            while at + 128 <= len {
                machine::piece64(src.add(at), dst.add(at));
                at += 64;
            }
            machine::piece64(src.add(at), dst.add(at));
            if len > 64 {
                machine::last64(src, dst, len);
            }
            return;
        }
        if len >= 16 {
            if len > 32 {
                machine::ends32(src, dst, len);
            } else {
                machine::ends16(src, dst, len);
            }
            return;
        }
        let mut at = 0;
        if len & 8 != 0 {
            machine::piece8(src, dst);
            at = 8;
        }
        if len & 4 != 0 {
            machine::piece4(src.add(at), dst.add(at));
            at += 4;
        }
        while at < len {
            dst.add(at).write_volatile(src.add(at).read_volatile());
            at += 1;
        }
    }
}

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        #[path = "copy/x86_64.rs"]
        mod machine;
    } else if #[cfg(target_arch = "aarch64")] {
        #[path = "copy/aarch64.rs"]
        mod machine;
    } else {
        compile_error!("copies of memory that changes meanwhile are written for x86-64 and aarch64");
    }
}

pub(crate) use machine::{prefetch, prefetch_for_write};

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
