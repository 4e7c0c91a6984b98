//! Send queue entries: how long one is, and how it is written where it lies.
//!
//! An entry is a control segment, an Ethernet segment with the frame's first bytes in line, and a data segment for each piece of memory that follows
//! (infiniband/mlx5dv.h). It is `ds` units of 16 bytes long, takes whole blocks of 64, and goes on at the queue's beginning where the queue ends.

use core::mem::offset_of;

use rdma_core_sys as sys;

use crate::mutants::{self, Mutant};

/// Bytes of a unit of an entry's length.
const UNIT: usize = 16;
/// Bytes of a block.
const BLOCK: usize = sys::MLX5_SEND_WQE_BB;
/// Units in a block.
pub(crate) const UNITS: usize = BLOCK / UNIT;
/// Where in the Ethernet segment the bytes in line begin. (The first of its bytes are for what libmlx5 needs 18 bytes of at least; there may be fewer, and more.)
const INLINE_AT: usize = offset_of!(sys::mlx5_wqe_eth_seg, inline_hdr_start);
/// The field `ds` has six bits.
pub(crate) const DS_MAX: usize = 63;
/// Frames of so many bytes are sent in line: what goes into four blocks.
pub(crate) const INLINE_MAX: usize = 4 * BLOCK - UNIT - INLINE_AT;
/// Bytes of a VLAN tag, and where it stands in a frame.
const TAG: usize = 4;
const TAG_AT: usize = 12;

/// An entry's length in units: the control segment, the Ethernet segment with so many bytes in line, and so many pieces of memory.
#[inline(always)]
pub(crate) fn ds(in_line: usize, pieces: usize) -> usize {
    // (Rounded up by a sum, which is cheaper than what `div_ceil` does against an overflow.)
    1 + ((INLINE_AT + in_line + (UNIT - 1)) >> UNIT.ilog2()) + pieces
}

/// Blocks that it takes.
#[inline(always)]
pub(crate) const fn blocks(ds: usize) -> usize {
    ds.div_ceil(UNITS)
}

/// The field `ds` of an entry of so many units.
#[inline(always)]
fn said(ds: usize) -> u32 {
    ds as u32 + u32::from(mutants::is(Mutant::DsLong)) - u32::from(mutants::is(Mutant::DsShort))
}

/// The index of the entry at a block.
#[inline(always)]
fn index_of(block: u16) -> u16 {
    if mutants::is(Mutant::IndexShort) { block & 0xff } else { block }
}

/// What an entry asks of the card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) opcode: u8,
    /// `MLX5_ETH_WQE_*`.
    pub(crate) checksums: u8,
    /// Payload of a segment in bytes, of a large send; else zero.
    pub(crate) mss: u16,
}

/// A send queue's blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Invariant: a power of two of bytes, one more than `mask`, which are whole blocks and live as long as the queue.
    buf: *mut u8,
    mask: usize,
    number: u32,
    /// The first eight bytes of a short entry, but for its index and its length.
    short: u64,
}

// SAFETY: the blocks are the queue's, which outlives this; whoever has this is the only one to write them.
unsafe impl Send for Blocks {}

impl Blocks {
    /// Of the queue of that number.
    pub(crate) fn new(layout: &sys::mlx5dv_qp, number: u32) -> Self {
        Self::in_memory(layout.sq.buf.cast(), BLOCK << layout.sq.wqe_cnt.max(1).ilog2(), number)
    }

    /// In so many bytes.
    fn in_memory(buf: *mut u8, len: usize, number: u32) -> Self {
        Self { buf, mask: len - 1, number, short: u64::from(sys::MLX5_OPCODE_SEND) << 32 | u64::from(number << 8) }
    }

    /// The queue's number, as entries name it.
    #[inline(always)]
    fn qpn(&self) -> u32 {
        self.number + u32::from(mutants::is(Mutant::NumberWrong))
    }

    pub(crate) const fn count(&self) -> usize {
        (self.mask + 1) / BLOCK
    }

    /// The place of a block by its running counter.
    #[inline(always)]
    pub(crate) const fn place(&self, block: u16) -> usize {
        block as usize & (self.mask / BLOCK)
    }

    /// Where so many bytes behind the beginning of a block are, and how many there are up to the queue's end.
    #[inline(always)]
    fn at(&self, block: u16, bytes: usize) -> (*mut u8, usize) {
        let offset = (usize::from(block) * BLOCK + bytes) & self.mask;
        // SAFETY: within the blocks.
        (unsafe { self.buf.add(offset) }, self.mask + 1 - offset)
    }

    /// Copies bytes there.
    ///
    /// # Safety
    /// The blocks are the driver's; `from` is readable, and no part of them.
    #[inline(always)]
    unsafe fn copy(&self, block: u16, at: usize, from: *const u8, len: usize) {
        let (to, room) = self.at(block, at);
        // SAFETY: the caller's promise; no more is written than there is up to the end, and the rest goes to the beginning.
        unsafe {
            core::ptr::copy_nonoverlapping(from, to, len.min(room));
            if len > room && !mutants::is(Mutant::WrapLost) {
                core::ptr::copy_nonoverlapping(from.add(room), self.buf, len - room);
            }
        }
    }

    /// Begins the entry at a block, with so many bytes in line and so many pieces.
    pub(crate) fn begin(&mut self, block: u16, in_line: usize, pieces: usize, ask: Ask) -> Entry<'_> {
        let ds = ds(in_line, pieces);
        let ethernet = sys::mlx5_wqe_eth_seg {
            cs_flags: ask.checksums,
            mss: ask.mss.to_be(),
            inline_hdr_sz: (in_line as u16 - u16::from(mutants::is(Mutant::InlineShort))).to_be(),
            ..Default::default()
        };
        let control = sys::mlx5_wqe_ctrl_seg {
            opmod_idx_opcode: (u32::from(index_of(block)) << 8 | u32::from(ask.opcode)).to_be(),
            qpn_ds: (self.qpn() << 8 | said(ds)).to_be(),
            ..Default::default()
        };
        let (first, _) = self.at(block, 0);
        // SAFETY: the blocks are the driver's, as it has an exclusive reference to the queue and counts those that are the card's (`SendQueue`); segments are
        // plain bytes without gaps, and the first two are in one block.
        unsafe {
            core::ptr::copy_nonoverlapping((&raw const control).cast(), first, UNIT);
            core::ptr::copy_nonoverlapping((&raw const ethernet).cast(), first.add(UNIT), UNIT);
        }
        Entry { block, at: UNIT + INLINE_AT, blocks: self }
    }

    /// Writes the entry of a frame that is all in line and asks for nothing more than checksums, with so many blocks, at a block. `false`: nothing was written, since the
    /// queue ends within it.
    #[inline(always)]
    pub(crate) fn write_short(&mut self, block: u16, taken: usize, frame: &[u8], checksums: u8) -> bool {
        let (first, room) = self.at(block, 0);
        if taken * BLOCK > room {
            return false;
        }
        let short = self.short + (u64::from(mutants::is(Mutant::NumberWrong)) << 8);
        let control = short | u64::from(index_of(block)) << 40 | u64::from(said(ds(frame.len(), 0)));
        // SAFETY: as of `begin`; an entry of as many blocks has room for two segments and the frame, and no block goes on behind the queue's end. The words are those of a
        // control segment that asks for no completion, and of an Ethernet segment.
        unsafe {
            let words: *mut u64 = first.cast();
            words.write(control.to_be());
            words.add(1).write(0);
            words.add(2).write((u64::from(checksums) << 24).to_be());
            words.add(3).write(((frame.len() as u64) << 16).to_be());
            core::ptr::copy_nonoverlapping(frame.as_ptr(), first.add(UNIT + INLINE_AT), frame.len());
        }
        true
    }

    /// Asks for the completion of the entry that begins at a block. What rings for it: the first eight bytes of its control segment.
    #[inline(always)]
    pub(crate) fn ask_completion(&mut self, block: u16) -> u64 {
        let (control, _) = self.at(block, 0);
        // SAFETY: an entry begins with a control segment, aligned as a block is, and the card has not been told of it.
        unsafe {
            if !mutants::is(Mutant::CompletionUnasked) {
                (*control.cast::<sys::mlx5_wqe_ctrl_seg>()).fm_ce_se = sys::MLX5_WQE_CTRL_CQ_UPDATE;
            }
            control.cast::<u64>().read()
        }
    }

    /// What rings for the entry that begins at a block, whose completion was asked for.
    pub(crate) fn bell(&self, block: u16) -> u64 {
        // SAFETY: as above, and it is only read.
        unsafe { self.at(block, 0).0.cast::<u64>().read() }
    }

    /// Where a block lies.
    pub(crate) fn block(&mut self, block: u16) -> *mut [u8; BLOCK] {
        self.at(block, 0).0.cast()
    }

    /// Where the blocks from one on lie: so many to the queue's end, and the others from its beginning on.
    #[inline(always)]
    pub(crate) fn from(&self, block: u16) -> [(*const u8, usize); 2] {
        let (first, room) = self.at(block, 0);
        [(first, room / BLOCK), (self.buf, usize::MAX)]
    }
}

/// An entry that is being written: first what is in line, then pieces of memory.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    block: u16,
    /// Where the next bytes go, from the entry's beginning.
    at: usize,
    blocks: &'a mut Blocks,
}

impl Entry<'_> {
    /// Bytes in line.
    ///
    /// # Safety
    /// They are readable, and no part of the queue.
    #[inline(always)]
    pub(crate) unsafe fn put(&mut self, from: *const u8, len: usize) {
        // SAFETY: the entry's blocks are the driver's; the rest is the caller's promise.
        unsafe { self.blocks.copy(self.block, self.at, from, len) };
        self.at += len;
    }

    /// Bytes of headers in line, with a tag behind the addresses if there is one.
    #[inline]
    pub(crate) fn put_head(&mut self, head: &[u8], vlan: Option<u16>) {
        let Some(tag) = vlan else {
            // SAFETY: a slice, which is no part of the queue.
            return unsafe { self.put(head.as_ptr(), head.len()) };
        };
        let at = if mutants::is(Mutant::TagMisplaced) { TAG_AT + 2 } else { TAG_AT };
        let (first, rest) = head.split_at(at.min(head.len()));
        for bytes in [first, &[0x81, 0x00, (tag >> 8) as u8, tag as u8], rest] {
            // SAFETY: as above.
            unsafe { self.put(bytes.as_ptr(), bytes.len()) };
        }
    }

    /// A piece of registered memory. Nothing in line comes after it.
    #[inline]
    pub(crate) fn point(&mut self, address: *const u8, len: usize, lkey: u32) {
        self.at = self.at.next_multiple_of(UNIT);
        let byte_count = if mutants::is(Mutant::LengthSwapped) { len as u32 } else { (len as u32).to_be() };
        let lkey = (lkey + u32::from(mutants::is(Mutant::KeyWrong))).to_be();
        let addr = (address.addr() as u64 + u64::from(mutants::is(Mutant::AddressWrong))).to_be();
        let segment = sys::mlx5_wqe_data_seg { byte_count, lkey, addr };
        // SAFETY: the entry's blocks are the driver's; a segment is plain bytes without gaps.
        unsafe { self.blocks.copy(self.block, self.at, (&raw const segment).cast(), UNIT) };
        self.at += UNIT;
    }
}

/// Bytes in line that a head takes.
#[inline(always)]
pub(crate) const fn head_len(head: usize, vlan: Option<u16>) -> usize {
    if vlan.is_some() { head + TAG } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(memory: &mut [u64]) -> Blocks {
        Blocks::in_memory(memory.as_mut_ptr().cast(), 8 * memory.len(), 0x12_3456)
    }

    fn bytes(memory: &[u64]) -> Vec<u8> {
        memory.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn lengths_are_those_of_libmlx5() {
        // 18 bytes in line end with the second unit; nothing in line takes one.
        assert_eq!([ds(0, 1), ds(2, 1), ds(3, 0), ds(18, 2), ds(19, 0)], [3, 3, 3, 5, 4]);
        assert_eq!([blocks(1), blocks(4), blocks(5), blocks(63)], [1, 1, 2, 16]);
        assert_eq!((INLINE_MAX, blocks(ds(INLINE_MAX, 0)), blocks(ds(INLINE_MAX + 1, 0))), (226, 4, 5));
        assert!(ds(256 + TAG, ringway_stack::device::GATHER_LIMIT) <= DS_MAX);
    }

    #[test]
    fn a_short_entry_is_what_the_long_way_writes() {
        let frame: Vec<u8> = (1..=INLINE_MAX as u8).collect();
        for len in [14, 18, 19, 60, 64, 98, 99, INLINE_MAX] {
            for block in [0, 3, 0xfff4] {
                let mut memories = [[0x55; 8 * 8], [0x55; 8 * 8]];
                let [long, short] = &mut memories;
                let ask = Ask { opcode: sys::MLX5_OPCODE_SEND, checksums: 0xc0, mss: 0 };
                queue(long).begin(block, len, 0, ask).put_head(&frame[..len], None);
                assert!(queue(short).write_short(block, blocks(ds(len, 0)), &frame[..len], 0xc0));
                assert_eq!(long, short, "{len} bytes at {block:#x}");
            }
        }
        let mut memory = [0x55; 8 * 8];
        assert!(!queue(&mut memory).write_short(7, 2, &frame[..64], 0), "it would go on behind the end");
        assert_eq!(memory, [0x55; 8 * 8]);
    }

    #[test]
    fn an_entry_goes_on_at_the_beginning_where_the_queue_ends() {
        let mut memory = vec![0; 4 * 8];
        let mut queue = queue(&mut memory);
        let head: Vec<u8> = (1..=60).collect();
        let ask = Ask { opcode: sys::MLX5_OPCODE_SEND, checksums: 0xc0, mss: 0 };
        let mut entry = queue.begin(7, 64, 1, ask);
        entry.put_head(&head, Some(0x6009));
        entry.point(core::ptr::without_provenance(0x1122), 0x33, 0x44);
        let bell = queue.ask_completion(7);
        assert_eq!(bell.to_ne_bytes(), [0, 0, 7, 0x0a, 0x12, 0x34, 0x56, 7]);
        let bytes = bytes(&memory);
        let at = |from: usize, len: usize| (from..from + len).map(|at| bytes[(3 * 64 + at) % 256]).collect::<Vec<u8>>();
        // 1 + ceil(78 / 16) + 1 units.
        assert_eq!(at(0, 16), [0, 0, 7, 0x0a, 0x12, 0x34, 0x56, 7, 0, 0, 0, 8, 0, 0, 0, 0]);
        assert_eq!(at(16, 14), [0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 64]);
        assert_eq!(at(30, 64), [&head[..12], &[0x81, 0, 0x60, 9], &head[12..]].concat());
        assert_eq!(at(96, 16), [0, 0, 0, 0x33, 0, 0, 0, 0x44, 0, 0, 0, 0, 0, 0, 0x11, 0x22]);
    }
}
