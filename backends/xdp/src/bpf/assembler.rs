//! BPF's instructions (RFC 9669), with jumps to labels.

use std::os::fd::RawFd;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg(pub(crate) u8);

/// How many bytes a load or store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Long = 0x18,
}

/// A function of the kernel's, by its number in include/uapi/linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    MapLookupElem = 1,
    RedirectMap = 51,
}

/// The stack's end: the stack is addressed from there downwards.
pub(crate) const FRAME: Reg = Reg(10);

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<[u8; 8]>,
    jumps: Vec<(usize, &'static str)>,
    labels: Vec<(&'static str, usize)>,
}

impl Assembler {
    fn emit(&mut self, code: u8, dst: Reg, src: Reg, offset: i16, immediate: i32) {
        let (offset, immediate) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
        let registers = if cfg!(target_endian = "little") { src.0 << 4 | dst.0 } else { dst.0 << 4 | src.0 };
        self.code.push([code, registers, offset[0], offset[1], immediate[0], immediate[1], immediate[2], immediate[3]]);
    }

    /// `dst = immediate`
    pub(crate) fn set(&mut self, dst: Reg, immediate: i32) {
        self.emit(0xb7, dst, Reg(0), 0, immediate);
    }

    /// `dst = src`
    pub(crate) fn copy(&mut self, dst: Reg, src: Reg) {
        self.emit(0xbf, dst, src, 0, 0);
    }

    /// `dst += immediate`
    pub(crate) fn add(&mut self, dst: Reg, immediate: i32) {
        self.emit(0x07, dst, Reg(0), 0, immediate);
    }

    /// `dst += src`
    pub(crate) fn add_register(&mut self, dst: Reg, src: Reg) {
        self.emit(0x0f, dst, src, 0, 0);
    }

    /// `dst &= immediate`
    pub(crate) fn and(&mut self, dst: Reg, immediate: i32) {
        self.emit(0x57, dst, Reg(0), 0, immediate);
    }

    /// `dst = *(size *)(src + offset)`
    pub(crate) fn load(&mut self, size: Size, dst: Reg, src: Reg, offset: i16) {
        self.emit(0x61 | size as u8, dst, src, offset, 0);
    }

    /// `*(size *)(dst + offset) = src`
    pub(crate) fn store(&mut self, size: Size, dst: Reg, offset: i16, src: Reg) {
        self.emit(0x63 | size as u8, dst, src, offset, 0);
    }

    /// `*(size *)(dst + offset) = immediate`
    pub(crate) fn store_immediate(&mut self, size: Size, dst: Reg, offset: i16, immediate: i32) {
        self.emit(0x62 | size as u8, dst, Reg(0), offset, immediate);
    }

    /// `dst = ` the map of this descriptor.
    pub(crate) fn map(&mut self, dst: Reg, map: RawFd) {
        // (A 64-bit immediate takes two; a source register of one says that it is a map's descriptor.)
        self.emit(0x18, dst, Reg(1), 0, map);
        self.emit(0, Reg(0), Reg(0), 0, 0);
    }

    pub(crate) fn call(&mut self, helper: Helper) {
        self.emit(0x85, Reg(0), Reg(0), 0, helper as i32);
    }

    pub(crate) fn exit(&mut self) {
        self.emit(0x95, Reg(0), Reg(0), 0, 0);
    }

    pub(crate) fn jump(&mut self, to: &'static str) {
        self.jump_with(0x05, Reg(0), Reg(0), 0, to);
    }

    /// Jumps where `left == immediate`.
    pub(crate) fn jump_if(&mut self, left: Reg, immediate: i32, to: &'static str) {
        self.jump_with(0x15, left, Reg(0), immediate, to);
    }

    /// Jumps where `left != immediate`.
    pub(crate) fn jump_unless(&mut self, left: Reg, immediate: i32, to: &'static str) {
        self.jump_with(0x55, left, Reg(0), immediate, to);
    }

    /// Jumps where `left > right`, without signs.
    pub(crate) fn jump_if_above(&mut self, left: Reg, right: Reg, to: &'static str) {
        self.jump_with(0x2d, left, right, 0, to);
    }

    fn jump_with(&mut self, code: u8, dst: Reg, src: Reg, immediate: i32, to: &'static str) {
        self.jumps.push((self.code.len(), to));
        self.emit(code, dst, src, 0, immediate);
    }

    /// Here is where jumps to `label` lead.
    pub(crate) fn label(&mut self, label: &'static str) {
        self.labels.push((label, self.code.len()));
    }

    /// The program's bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        for (at, to) in self.jumps {
            let target = self.labels.iter().find(|(label, _)| *label == to).expect("each jump has its label").1;
            let offset = (target as i16 - at as i16 - 1).to_ne_bytes();
            self.code[at][2..4].copy_from_slice(&offset);
        }
        self.code.concat()
    }
}
