//! Stores as instructions of x86-64 (Intel's manual, volume 2): those by which libmlx5 and compilers write to registers, a general register or a constant to memory.

use core::iter;

/// A store that an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Store {
    /// Bytes of the instruction.
    pub(super) len: usize,
    bytes: [u8; 8],
    count: usize,
}

impl Store {
    /// What is written.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

/// Prefix: operands of two bytes.
const OPERAND_SIZE: u8 = 0x66;

/// The store whose instruction these bytes begin with, which are asked for one by one, and none beyond the instruction's end; `register` is what general registers
/// have, by their numbers. `None`: it is of another form.
pub(super) fn decode(code: impl Iterator<Item = u8>, register: impl Fn(u8) -> u64) -> Option<Store> {
    let mut len = 0;
    let mut code = code.inspect(|_| len += 1);
    let mut next = || code.next();
    let mut first = next()?;
    let is_short = first == OPERAND_SIZE;
    if is_short {
        first = next()?;
    }
    let rex = if first & 0xf0 == 0x40 { first } else { 0 };
    let opcode = if rex != 0 { next()? } else { first };
    let (is_wide, high) = (rex & 8 != 0, (rex & 4) << 1);
    // MOV to memory: 88, 89 from a register, C6, C7 a constant. MOVNTI: 0F C3.
    let (is_byte, is_constant) = match opcode {
        0x88 => (true, false),
        0x89 => (false, false),
        0xc6 => (true, true),
        0xc7 => (false, true),
        0x0f if next()? == 0xc3 && !is_short => (false, false),
        _ => return None,
    };
    let count = match (is_byte, is_wide, is_short) {
        (true, ..) => 1,
        (_, true, _) => 8,
        (_, _, true) => 2,
        _ => 4,
    };
    let reg = operand(&mut next)?;
    let value = if is_constant {
        // (An extension of the opcode, which MOV has none of.)
        if reg != 0 {
            return None;
        }
        constant(&mut next, count.min(4))?
    } else {
        // (Without REX, these are the second bytes of the first four registers.)
        if is_byte && rex == 0 && reg >= 4 {
            return None;
        }
        register(reg | high)
    };
    Some(Store { len, bytes: value.to_le_bytes(), count })
}

/// Goes past an operand in memory; the other operand's number. `None`: it is not in memory.
fn operand(next: &mut impl FnMut() -> Option<u8>) -> Option<u8> {
    let modrm = next()?;
    let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    let has_sib = rm == 4;
    let base = if has_sib { next()? & 7 } else { rm };
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        2 => 4,
        _ => return None,
    };
    for _ in 0..displacement {
        next()?;
    }
    Some(reg)
}

/// A constant of so many bytes, with its sign.
fn constant(next: &mut impl FnMut() -> Option<u8>, count: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    for byte in &mut bytes[..count] {
        *byte = next()?;
    }
    let unused = 64 - 8 * count as u32;
    Some((i64::from_le_bytes(bytes) << unused >> unused).cast_unsigned())
}

/// What is at an address, and behind it.
///
/// # Safety
/// Bytes are asked for no further than the instruction goes that is there, which was about to be executed.
pub(super) unsafe fn code_at(address: usize) -> impl Iterator<Item = u8> {
    let mut at = core::ptr::with_exposed_provenance::<u8>(address);
    iter::from_fn(move || {
        // SAFETY: the caller's promise.
        unsafe {
            let byte = at.read();
            at = at.add(1);
            Some(byte)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(number: u8) -> u64 {
        0x1111_1111_1111_1100 | u64::from(number)
    }

    fn store(code: &[u8]) -> Option<(usize, Vec<u8>)> {
        // (What is behind it is not looked at.)
        decode(code.iter().copied(), register).map(|store| (store.len, store.bytes().to_vec()))
    }

    fn of(number: u8, count: usize) -> Vec<u8> {
        register(number).to_le_bytes()[..count].to_vec()
    }

    #[test]
    fn stores_of_registers_are_read_in_each_way_to_say_where() {
        for (code, reg, count) in [
            (&[0x48, 0x89, 0x02][..], 0, 8),               // mov %rax,(%rdx)
            (&[0x4c, 0x89, 0x42, 0x08], 8, 8),             // mov %r8,0x8(%rdx)
            (&[0x4d, 0x89, 0x3c, 0x24], 15, 8),            // mov %r15,(%r12)
            (&[0x48, 0x89, 0x84, 0x11, 0, 8, 0, 0], 0, 8), // mov %rax,0x800(%rcx,%rdx,1)
            (&[0x48, 0x89, 0x05, 1, 2, 3, 4], 0, 8),       // mov %rax,0x4030201(%rip)
            (&[0x48, 0x89, 0x04, 0x25, 1, 2, 3, 4], 0, 8), // mov %rax,0x4030201
            (&[0x89, 0x0a], 1, 4),                         // mov %ecx,(%rdx)
            (&[0x66, 0x41, 0x89, 0x4d, 0], 1, 2),          // mov %cx,0x0(%r13)
            (&[0x88, 0x0a], 1, 1),                         // mov %cl,(%rdx)
            (&[0x40, 0x88, 0x32], 6, 1),                   // mov %sil,(%rdx)
            (&[0x48, 0x0f, 0xc3, 0x0a], 1, 8),             // movnti %rcx,(%rdx)
        ] {
            assert_eq!(store(code), Some((code.len(), of(reg, count))), "{code:x?}");
        }
    }

    #[test]
    fn constants_have_their_sign() {
        assert_eq!(store(&[0x48, 0xc7, 0x02, 0xfe, 0xff, 0xff, 0xff]), Some((7, vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])));
        assert_eq!(store(&[0xc7, 0x42, 0x10, 1, 2, 3, 4]), Some((7, vec![1, 2, 3, 4])));
        assert_eq!(store(&[0x66, 0xc7, 0x02, 1, 2]), Some((5, vec![1, 2])));
        assert_eq!(store(&[0xc6, 0x02, 9]), Some((3, vec![9])));
    }

    #[test]
    fn other_instructions_are_none() {
        for code in [
            &[0x48, 0x8b, 0x02][..],   // mov (%rdx),%rax
            &[0x48, 0x89, 0xc2],       // mov %rax,%rdx
            &[0x88, 0x22],             // mov %ah,(%rdx)
            &[0x0f, 0x11, 0x02],       // movups %xmm0,(%rdx)
            &[0xf3, 0x48, 0xa5],       // rep movsq
            &[0x64, 0x48, 0x89, 0x02], // mov %rax,%fs:(%rdx)
            &[0x48, 0xc7, 0x3a],       // (xbegin and its like)
            &[0x48, 0x89],
        ] {
            assert_eq!(store(code), None, "{code:x?}");
        }
    }
}
