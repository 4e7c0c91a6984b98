//! How the card is told: words of doorbell records in memory, and then a register of the card's.
//!
//! A register takes the first eight bytes of an entry, and the card fetches the rest (a doorbell); or all of a short entry, so that the card has nothing to fetch
//! (BlueFlame). What is written so must come in one piece, and is so if nobody else writes to the register: a queue that has its own may send by it.

#[cfg(target_arch = "aarch64")]
use core::arch::asm;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::__m128i;

use rdma_core_sys as sys;

use crate::barrier;
use crate::mutants::{self, Mutant};

/// Words of a completion queue's doorbell record: what was taken, and what event is wanted (rdma-core's providers/mlx5/mlx5.h).
const TAKEN: usize = 0;
const ARM: usize = 1;
/// Bytes of a block of an entry.
const BLOCK: usize = sys::MLX5_SEND_WQE_BB;

/// A doorbell record, and the register that goes with it.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// Two words.
    record: *mut u32,
    /// Where a write rings.
    register: *mut u64,
    /// Bytes from one half of the register to the other; zero: there is one.
    toggle: usize,
    /// Blocks of an entry that the register takes whole; zero: it takes doorbells alone, as others write to it as well.
    blocks_max: u16,
}

// SAFETY: record and register are a queue's, which outlives this; whoever has this is the only one to write them.
unsafe impl Send for Doorbell {}

impl Doorbell {
    /// Of a send queue, which has its register for itself, or not.
    ///
    /// # Safety
    /// The layout is that of a queue pair which is there as long as the value is used.
    pub(crate) unsafe fn of_sends(layout: &sys::mlx5dv_qp, is_own: bool) -> Self {
        let toggle = layout.bf.size as usize;
        Self { record: layout.dbrec, register: layout.bf.reg.cast(), toggle, blocks_max: if is_own { (toggle / BLOCK) as u16 } else { 0 } }
    }

    /// Of a receive queue, for which nothing rings: the card looks at the record when a frame comes.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn of_receives(layout: &sys::mlx5dv_rwq) -> Self {
        Self { record: layout.dbrec, register: core::ptr::null_mut(), toggle: 0, blocks_max: 0 }
    }

    /// Of a completion queue.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn of_completions(layout: &sys::mlx5dv_cq) -> Self {
        let page: *mut u8 = layout.cq_uar.cast();
        Self { record: layout.dbrec, register: page.wrapping_add(sys::MLX5_CQ_DOORBELL).cast(), toggle: 0, blocks_max: 0 }
    }

    #[inline(always)]
    fn write_record(&self, word: usize, value: u32) {
        // SAFETY: the record has two words, which live as long as the queue (of a receive queue of its own, the first alone is written).
        unsafe { self.record.add(word).write_volatile(value.to_be()) };
    }

    #[inline(always)]
    fn write_register(&mut self, value: u64) {
        barrier::before_register();
        // SAFETY: the register is the queue's.
        unsafe { self.register.write_volatile(value) };
        barrier::after_register();
        self.turn();
        mutants::rang();
    }

    /// A register's halves are used by turns (rdma-core's providers/mlx5/qp.c).
    #[inline(always)]
    fn turn(&mut self) {
        self.register = self.register.map_addr(|addr| addr ^ self.toggle);
    }

    /// Blocks of an entry that the register takes whole; zero: it takes doorbells alone.
    #[inline(always)]
    pub(crate) fn blocks_max(&self) -> u16 {
        self.blocks_max
    }

    /// There is one entry more, up to `head`, and so many blocks are its own: as many as there may be ([`Doorbell::blocks_max`]). They lie in two places, the first of so
    /// many blocks.
    ///
    /// # Safety
    /// Each block is readable, and aligned as in the queue.
    #[inline(always)]
    pub(crate) unsafe fn send_whole(&mut self, head: u16, blocks: usize, [(first, here), (rest, _)]: [(*const u8, usize); 2]) {
        barrier::before_record();
        self.write_record(sys::MLX5_SND_DBR, head.into());
        barrier::before_register();
        let blocks = if mutants::is(Mutant::FirstBlockOnly) { 1 } else { blocks };
        // SAFETY: the register has room for so many, is the queue's, and aligned; the blocks are readable, by the caller's promise.
        unsafe {
            copy_blocks(self.register, first, blocks.min(here));
            if blocks > here {
                copy_blocks(self.register.add(here * BLOCK / 8), rest, blocks - here);
            }
        }
        barrier::after_register();
        self.turn();
        mutants::rang();
    }

    /// There are send entries up to `head`; `bell` is the first eight bytes of the last one, as they lie in memory.
    #[inline]
    pub(crate) fn ring_sends(&mut self, head: u16, bell: u64) {
        let [no_record, late_record, no_register] =
            [Mutant::RecordForgotten, Mutant::RecordBehindRegister, Mutant::RegisterForgotten].map(mutants::is);
        barrier::before_record();
        if !no_record && !late_record {
            self.write_record(sys::MLX5_SND_DBR, head.into());
        }
        if !no_register {
            self.write_register(bell);
        }
        if late_record {
            self.write_record(sys::MLX5_SND_DBR, head.into());
        }
    }

    /// There are receive entries up to `head`.
    #[inline]
    pub(crate) fn post_receives(&self, head: u16) {
        barrier::before_record();
        self.write_record(sys::MLX5_RCV_DBR, head.into());
    }

    /// So many completions were taken, of a counter of 24 bits.
    #[inline]
    pub(crate) fn take_completions(&self, taken: u32) {
        barrier::before_record();
        self.write_record(TAKEN, taken);
    }

    /// One event is wanted of the completion queue of that number: at the next completion, or at once if there is one that was not taken. `events` have come
    /// so far, by which the card tells a new request from an old one.
    pub(crate) fn arm(&mut self, number: u32, taken: u32, events: u32) {
        let request = (events & 3) << 28 | sys::MLX5_CQ_DB_REQ_NOT | taken;
        if !mutants::is(Mutant::ArmRecordForgotten) {
            self.write_record(ARM, request);
        }
        if mutants::is(Mutant::ArmRegisterForgotten) {
            return;
        }
        self.write_register((u64::from(request) << 32 | u64::from(number)).to_be());
    }
}

/// Copies blocks into a register.
///
/// # Safety
/// Each is readable and writable; both addresses are aligned as blocks are.
#[inline(always)]
unsafe fn copy_blocks(mut to: *mut u64, mut from: *const u8, blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let end = from.add(blocks * BLOCK);
        while from < end {
            copy_block(to, from.cast());
            (to, from) = (to.add(BLOCK / 8), from.add(BLOCK));
        }
    }
}

/// Copies a block into a register: on aarch64 by one store; elsewhere by several, which the processor puts together, as the page is mapped for that
/// (write-combining), and sends when the last is there (rdma-core's util/mmio.h).
///
/// # Safety
/// 64 bytes are readable and writable; both addresses are aligned to 64 bytes.
#[inline(always)]
unsafe fn copy_block(to: *mut u64, from: *const u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "ld1 {{v0.2d, v1.2d, v2.2d, v3.2d}}, [{from}]",
            "st1 {{v0.2d, v1.2d, v2.2d, v3.2d}}, [{to}]",
            from = in(reg) from, to = in(reg) to,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(target_arch = "x86_64")]
    for part in 0..BLOCK / size_of::<__m128i>() {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<__m128i>().add(part).write_volatile(from.cast::<__m128i>().add(part).read()) };
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    for word in 0..BLOCK / 8 {
        // SAFETY: the caller's promise.
        unsafe { to.add(word).write_volatile(from.add(word).read()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aligned as the card's are.
    #[repr(align(4096))]
    struct Page([u64; 512]);

    /// A register page and a record.
    struct Card {
        page: Box<Page>,
        record: Box<[u32; 2]>,
    }

    impl Card {
        fn new() -> Self {
            Self { page: Box::new(Page([0; 512])), record: Box::new([0; 2]) }
        }

        fn words(&self) -> [u32; 2] {
            self.record.map(u32::from_be)
        }
    }

    #[test]
    fn a_send_is_in_the_record_and_in_both_halves_of_the_register_by_turns() {
        let mut card = Card::new();
        let bf = sys::mlx5dv_qp_bf { reg: (&raw mut card.page.0[0x800 / 8]).cast(), size: 256 };
        let layout = sys::mlx5dv_qp { dbrec: card.record.as_mut_ptr(), bf, ..Default::default() };
        // SAFETY: the memory is the test's own, and there until its end.
        let mut doorbell = unsafe { Doorbell::of_sends(&layout, false) };
        for (turn, at) in [(1, 0x800), (2, 0x900), (3, 0x800)] {
            doorbell.ring_sends(0xfff0 + turn, u64::from(turn));
            assert_eq!((card.words(), card.page.0[at / 8]), ([0, 0xfff0 + u32::from(turn)], u64::from(turn)));
        }
        assert_eq!(card.page.0.iter().filter(|word| **word != 0).count(), 2);
        assert_eq!(doorbell.blocks_max(), 0, "others write to it as well");
    }

    #[test]
    fn an_entry_is_in_its_register_whole() {
        let mut card = Card::new();
        let bf = sys::mlx5dv_qp_bf { reg: (&raw mut card.page.0[0x800 / 8]).cast(), size: 256 };
        let layout = sys::mlx5dv_qp { dbrec: card.record.as_mut_ptr(), bf, ..Default::default() };
        // SAFETY: the memory is the test's own, and there until its end.
        let mut doorbell = unsafe { Doorbell::of_sends(&layout, true) };
        assert_eq!(doorbell.blocks_max(), 4);
        let mut blocks = Box::new(Page([0; 512]));
        let queue = &mut blocks.0[..16];
        queue.iter_mut().zip(1..).for_each(|(word, value)| *word = value);
        // (It goes on at the queue's beginning.)
        let places = || [(&raw const queue[8], 1), (queue.as_ptr(), 1)].map(|(at, blocks)| (at.cast::<u8>(), blocks));
        for (head, at) in [(7, 0x800 / 8), (9, 0x900 / 8)] {
            // SAFETY: the blocks are in the queue.
            unsafe { doorbell.send_whole(head, 2, places()) };
            assert_eq!((card.words(), &card.page.0[at..at + 17]), ([0, head.into()], &[&queue[8..], &queue[..8], &[0]].concat()[..]));
        }
        doorbell.ring_sends(10, 77);
        assert_eq!((card.page.0[0x800 / 8], card.page.0[0x808 / 8]), (77, queue[9]));
    }

    #[test]
    fn completions_are_taken_by_the_record_and_armed_by_both() {
        let mut card = Card::new();
        let layout = sys::mlx5dv_cq { dbrec: card.record.as_mut_ptr(), cq_uar: card.page.0.as_mut_ptr().cast(), ..Default::default() };
        // SAFETY: as above.
        let mut doorbell = unsafe { Doorbell::of_completions(&layout) };
        doorbell.take_completions(0x12_3456);
        doorbell.arm(0x77, 0x12_3456, 6);
        assert_eq!(card.words(), [0x12_3456, 0x2012_3456]);
        assert_eq!(card.page.0[0x20 / 8].to_ne_bytes(), [0x20, 0x12, 0x34, 0x56, 0, 0, 0, 0x77]);
        let layout = sys::mlx5dv_rwq { dbrec: card.record.as_mut_ptr(), ..Default::default() };
        // SAFETY: as above.
        unsafe { Doorbell::of_receives(&layout) }.post_receives(0xffff);
        assert_eq!(card.words()[0], 0xffff);
    }
}
