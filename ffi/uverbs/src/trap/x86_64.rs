//! Stores as instructions of x86-64 (Intel's manual, volume 2): those by which libmlx5, Ringway's own driver and compilers write to registers. A general register or a constant, or 16 bytes of a vector register, to
//! memory.

use core::iter;

/// A store that an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Store {
    /// Bytes of the instruction.
    pub(super) len: usize,
    bytes: [u8; 16],
    count: usize,
}

impl Store {
    /// What is written.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

/// What registers have, by their numbers in instructions.
pub(super) trait Values {
    fn general(&self, number: u8) -> u64;
    /// Its lower half, where it has two; `None`: it is not known.
    fn vector(&self, number: u8) -> Option<[u8; 16]>;
}

/// Prefixes: operands of two bytes, and others that are part of an opcode where it has two bytes.
const OPERAND_SIZE: u8 = 0x66;
const REPEAT: u8 = 0xf3;
/// Those of VEX, of two bytes and of three.
const VEX_2: u8 = 0xc5;
const VEX_3: u8 = 0xc4;

/// The store whose instruction these bytes begin with, which are asked for one by one, and none beyond the instruction's end. `None`: it is of another form.
pub(super) fn decode(code: impl Iterator<Item = u8>, values: &impl Values) -> Option<Store> {
    let mut len = 0;
    let mut code = code.inspect(|_| len += 1);
    let (bytes, count) = stored(&mut || code.next(), values)?;
    Some(Store { len, bytes, count })
}

/// What is stored, and how many bytes of it.
fn stored(next: &mut impl FnMut() -> Option<u8>, values: &impl Values) -> Option<([u8; 16], usize)> {
    let first = next()?;
    if matches!(first, VEX_2 | VEX_3) {
        return vex(first, next, values);
    }
    let prefix = if matches!(first, OPERAND_SIZE | REPEAT) { first } else { 0 };
    let first = if prefix == 0 { first } else { next()? };
    let rex = if first & 0xf0 == 0x40 { first } else { 0 };
    let opcode = if rex != 0 { next()? } else { first };
    let high = (rex & 4) << 1;
    match opcode {
        0x0f => match next()? {
            // MOVNTI.
            0xc3 if prefix == 0 => {
                let reg = operand(next)? | high;
                Some((widened(values.general(reg)), if rex & 8 != 0 { 8 } else { 4 }))
            }
            second if is_vector_store(prefix, second) => Some((values.vector(operand(next)? | high)?, 16)),
            _ => None,
        },
        // (Before these, the other prefix ends a transaction.)
        _ if prefix == REPEAT => None,
        _ => plain(opcode, (rex, prefix == OPERAND_SIZE), next, values),
    }
}

/// MOV to memory: 88, 89 from a register, C6, C7 a constant.
fn plain(
    opcode: u8,
    (rex, is_short): (u8, bool),
    next: &mut impl FnMut() -> Option<u8>,
    values: &impl Values,
) -> Option<([u8; 16], usize)> {
    let (is_byte, is_constant) = match opcode {
        0x88 => (true, false),
        0x89 => (false, false),
        0xc6 => (true, true),
        0xc7 => (false, true),
        _ => return None,
    };
    let count = match (is_byte, rex & 8 != 0, is_short) {
        (true, ..) => 1,
        (_, true, _) => 8,
        (_, _, true) => 2,
        _ => 4,
    };
    let reg = operand(next)?;
    let value = if is_constant {
        // (An extension of the opcode, which MOV has none of.)
        if reg != 0 {
            return None;
        }
        constant(next, count.min(4))?
    } else {
        // (Without REX, these are the second bytes of the first four registers.)
        if is_byte && rex == 0 && reg >= 4 {
            return None;
        }
        values.general(reg | (rex & 4) << 1)
    };
    Some((widened(value), count))
}

/// Whether an opcode of two bytes, the second of which this is, stores 16 bytes of a vector register: MOVUPS, MOVUPD 11; MOVAPS, MOVAPD 29; MOVNTPS, MOVNTPD 2B; MOVDQA, MOVDQU 7F; MOVNTDQ E7.
fn is_vector_store(prefix: u8, opcode: u8) -> bool {
    match prefix {
        0 => matches!(opcode, 0x11 | 0x29 | 0x2b),
        OPERAND_SIZE => matches!(opcode, 0x11 | 0x29 | 0x2b | 0x7f | 0xe7),
        _ => opcode == 0x7f,
    }
}

/// The same, encoded by VEX: what is of 32 bytes is none.
fn vex(first: u8, next: &mut impl FnMut() -> Option<u8>, values: &impl Values) -> Option<([u8; 16], usize)> {
    let second = next()?;
    // (The bit of the register's number is there upside down. Of three bytes, the second has the map of opcodes.)
    let high = if second & 0x80 == 0 { 8 } else { 0 };
    let last = if first == VEX_3 {
        if second & 0x1f != 1 {
            return None;
        }
        next()?
    } else {
        second
    };
    let prefix = [Some(0), Some(OPERAND_SIZE), Some(REPEAT), None][usize::from(last & 3)]?;
    let is_128 = last & 4 == 0 && last & 0x78 == 0x78;
    if !is_128 || !is_vector_store(prefix, next()?) {
        return None;
    }
    Some((values.vector(operand(next)? | high)?, 16))
}

fn widened(value: u64) -> [u8; 16] {
    u128::from(value).to_le_bytes()
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

    struct Test;

    impl Values for Test {
        fn general(&self, number: u8) -> u64 {
            register(number)
        }

        fn vector(&self, number: u8) -> Option<[u8; 16]> {
            Some(vector(number))
        }
    }

    fn vector(number: u8) -> [u8; 16] {
        core::array::from_fn(|byte| number << 4 | byte as u8)
    }

    fn store(code: &[u8]) -> Option<(usize, Vec<u8>)> {
        // (What is behind it is not looked at.)
        decode(code.iter().copied(), &Test).map(|store| (store.len, store.bytes().to_vec()))
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
    fn vectors_are_stored_whole() {
        for (code, number) in [
            (&[0x0f, 0x11, 0x02][..], 0),                     // movups %xmm0,(%rdx)
            (&[0x0f, 0x29, 0x4a, 0x10], 1),                   // movaps %xmm1,0x10(%rdx)
            (&[0x66, 0x0f, 0x7f, 0x02], 0),                   // movdqa %xmm0,(%rdx)
            (&[0xf3, 0x0f, 0x7f, 0x3a], 7),                   // movdqu %xmm7,(%rdx)
            (&[0x66, 0x44, 0x0f, 0x7f, 0x3c, 0x24], 15),      // movdqa %xmm15,(%rsp)
            (&[0x66, 0x41, 0x0f, 0xe7, 0x04, 0x24], 0),       // movntdq %xmm0,(%r12)
            (&[0x0f, 0x2b, 0x05, 1, 2, 3, 4], 0),             // movntps %xmm0,0x4030201(%rip)
            (&[0xc5, 0xf8, 0x11, 0x02], 0),                   // vmovups %xmm0,(%rdx)
            (&[0xc5, 0x79, 0x7f, 0x02], 8),                   // vmovdqa %xmm8,(%rdx)
            (&[0xc4, 0xc1, 0x7a, 0x7f, 0x4c, 0x24, 0x20], 1), // vmovdqu %xmm1,0x20(%r12)
        ] {
            assert_eq!(store(code), Some((code.len(), vector(number).to_vec())), "{code:x?}");
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
            &[0x0f, 0x10, 0x02],       // movups (%rdx),%xmm0
            &[0xf3, 0x0f, 0x11, 0x02], // movss %xmm0,(%rdx)
            &[0x0f, 0x29, 0xc1],       // movaps %xmm0,%xmm1
            &[0xc5, 0xfd, 0x7f, 0x02], // vmovdqa %ymm0,(%rdx)
            &[0xc4, 0xe2, 0x79, 0x7f], // (another map)
            &[0xf3, 0x89, 0x02],       // xrelease mov %eax,(%rdx)
            &[0xf3, 0x48, 0xa5],       // rep movsq
            &[0x64, 0x48, 0x89, 0x02], // mov %rax,%fs:(%rdx)
            &[0x48, 0xc7, 0x3a],       // (xbegin and its like)
            &[0x48, 0x89],
        ] {
            assert_eq!(store(code), None, "{code:x?}");
        }
    }
}
