//! The ioctl of /dev/infiniband/uverbs*: one number, a header, attributes (the kernel's public rdma/rdma_user_ioctl_cmds.h).
//!
//! Numbers in attributes are the machine's own; a program's pointers are followed by copying, so that a bad one is EFAULT.

use ringway_preload::Errno;

use crate::engine::memory::ProcessMemory;

/// The number of the ioctl: direction both ways, 24 bytes, magic 0x1b, number 1.
pub const VERBS_IOCTL: u64 = 0xc018_1b01;

const HEADER: usize = 24;
const ATTRIBUTE: usize = 16;
/// Attributes in one call at most; a longer call is refused (the kernel's limit is its page).
const ATTRIBUTES_MAX: usize = 64;
/// Bytes of one attribute that are read at most.
const BYTES_MAX: usize = 4096;
/// The kernel wrote to it.
const VALID_OUTPUT: u16 = 1 << 1;

/// Objects and methods, and attributes of the device's.
pub mod id {
    /// The device.
    pub const DEVICE: u16 = 0;
    /// A command of the older interface, by its number.
    pub const INVOKE_WRITE: u16 = 0;
    /// What the core reads.
    pub const CORE_IN: u16 = 0;
    /// What the core writes.
    pub const CORE_OUT: u16 = 1;
    /// The command's number; bit 31 says that it is an extended one.
    pub const WRITE_COMMAND: u16 = 2;
    /// What the driver reads.
    pub const DRIVER_IN: u16 = 0x1000;
    /// What the driver writes.
    pub const DRIVER_OUT: u16 = 0x1001;
    /// A memory region.
    pub const MR: u16 = 7;
    /// Registers memory on the card.
    pub const DM_MR_REGISTER: u16 = 0;
    /// The region's handle.
    pub const DM_MR_HANDLE: u16 = 0;
    /// Where it begins in the memory.
    pub const DM_MR_OFFSET: u16 = 1;
    /// Its bytes.
    pub const DM_MR_LENGTH: u16 = 2;
    /// Its protection domain.
    pub const DM_MR_PD: u16 = 3;
    /// What it may be used for.
    pub const DM_MR_ACCESS: u16 = 4;
    /// The memory.
    pub const DM_MR_DM: u16 = 5;
    /// Its key.
    pub const DM_MR_LKEY: u16 = 6;
    /// Its key for peers.
    pub const DM_MR_RKEY: u16 = 7;
    /// Memory on the card.
    pub const DM: u16 = 14;
    /// Allocates some.
    pub const DM_ALLOC: u16 = 0;
    /// Frees it.
    pub const DM_FREE: u16 = 1;
    /// Its handle.
    pub const DM_HANDLE: u16 = 0;
    /// How many bytes.
    pub const DM_LENGTH: u16 = 1;
    /// Its address is a multiple of 2^this.
    pub const DM_ALIGNMENT: u16 = 2;
    /// Where it begins in the first page (rdma/mlx5_user_ioctl_cmds.h).
    pub const DM_START: u16 = 0x1000;
    /// The first page's number, for mmap(2).
    pub const DM_PAGE: u16 = 0x1001;
    /// Of which kind; absent or zero: what programs may map.
    pub const DM_TYPE: u16 = 0x1002;
    /// A register page (rdma/mlx5_user_ioctl_cmds.h).
    pub const UAR: u16 = 0x1008;
    /// Allocates one.
    pub const UAR_ALLOC: u16 = 0x1000;
    /// Frees one.
    pub const UAR_DESTROY: u16 = 0x1001;
    /// Its handle.
    pub const UAR_HANDLE: u16 = 0x1000;
    /// Where mmap(2) has it.
    pub const UAR_OFFSET: u16 = 0x1002;
    /// Its bytes.
    pub const UAR_LENGTH: u16 = 0x1003;
    /// Its number, for queues.
    pub const UAR_PAGE: u16 = 0x1004;
}

/// One call, read from the program's memory.
#[derive(Debug)]
pub struct Call {
    /// Which kind of object.
    pub object: u16,
    /// What to do with it.
    pub method: u16,
    attributes: Vec<Attribute>,
}

#[derive(Clone, Copy, Debug)]
struct Attribute {
    id: u16,
    len: u16,
    flags: u16,
    data: u64,
    /// Where it is in the program's memory.
    at: u64,
}

impl Call {
    /// Reads the call at `at`.
    ///
    /// # Errors
    /// EFAULT; EINVAL: lengths do not fit each other, as in the kernel's `ib_uverbs_ioctl`.
    pub fn read(memory: &ProcessMemory, at: u64) -> Result<Self, Errno> {
        let mut header = [0; HEADER];
        memory.copy_in(at, &mut header)?;
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let (length, object, method, count) = (usize::from(word(0)), word(2), word(4), usize::from(word(6)));
        if header[8..16] != [0; 8] || header[20..24] != [0; 4] {
            return Err(Errno(libc::EPROTONOSUPPORT));
        }
        if count > ATTRIBUTES_MAX || length != HEADER + count * ATTRIBUTE {
            return Err(Errno(libc::EINVAL));
        }
        let mut bytes = vec![0; count * ATTRIBUTE];
        memory.copy_in(at + HEADER as u64, &mut bytes)?;
        let attribute = |(index, bytes): (usize, &[u8])| {
            let input = Input(bytes);
            let at = at + (HEADER + index * ATTRIBUTE) as u64;
            Attribute { id: input.u16(0), len: input.u16(2), flags: input.u16(4), data: input.u64(8), at }
        };
        Ok(Self { object, method, attributes: bytes.chunks(ATTRIBUTE).enumerate().map(attribute).collect() })
    }

    fn attribute(&self, id: u16) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.id == id)
    }

    /// The bytes of an input; empty if it was not passed. Up to eight bytes are in the attribute itself.
    ///
    /// # Errors
    /// EFAULT; EINVAL: longer than any.
    pub fn input(&self, memory: &ProcessMemory, id: u16) -> Result<Vec<u8>, Errno> {
        let Some(attribute) = self.attribute(id) else { return Ok(Vec::new()) };
        let len = usize::from(attribute.len);
        match len {
            0..=8 => Ok(attribute.data.to_ne_bytes()[..len].to_vec()),
            9..=BYTES_MAX => {
                let mut bytes = vec![0; len];
                memory.copy_in(attribute.data, &mut bytes)?;
                Ok(bytes)
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// A handle that was passed.
    pub fn handle(&self, id: u16) -> Option<u32> {
        self.attribute(id).map(|attribute| attribute.data as u32)
    }

    /// Writes an output, as much of it as there is room for; the rest of the room is zeroed. An output that was not asked for is none.
    ///
    /// # Errors
    /// EFAULT.
    pub fn output(&self, memory: &ProcessMemory, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        let Some(attribute) = self.attribute(id).filter(|attribute| attribute.len > 0) else { return Ok(()) };
        let mut bytes = bytes.to_vec();
        bytes.resize(attribute.len.into(), 0);
        memory.copy_out(attribute.data, &bytes)?;
        memory.copy_out(attribute.at + 4, &(attribute.flags | VALID_OUTPUT).to_ne_bytes())
    }

    /// Returns a new object's handle, in the attribute itself.
    ///
    /// # Errors
    /// EFAULT.
    pub fn return_handle(&self, memory: &ProcessMemory, id: u16, handle: u32) -> Result<(), Errno> {
        let Some(attribute) = self.attribute(id) else { return Err(Errno(libc::EINVAL)) };
        memory.copy_out(attribute.at + 8, &u64::from(handle).to_ne_bytes())
    }

    /// Bytes of the room for an output.
    pub fn room(&self, id: u16) -> usize {
        self.attribute(id).map_or(0, |attribute| attribute.len.into())
    }
}

/// Bytes of a structure that a program passed. Fields that it is too short for are zero, as the kernel reads older programs.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        core::array::from_fn(|i| self.0.get(at + i).copied().unwrap_or(0))
    }

    /// One byte.
    pub fn u8(&self, at: usize) -> u8 {
        self.bytes::<1>(at)[0]
    }

    /// Two bytes.
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(at))
    }

    /// Four bytes.
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    /// Eight bytes.
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }

    /// A GID.
    pub fn gid(&self, at: usize) -> [u8; 16] {
        self.bytes(at)
    }
}

/// A structure that a program gets.
#[derive(Clone, Debug)]
pub struct Output(Vec<u8>);

impl Output {
    /// Of so many bytes, all zero.
    pub fn new(len: usize) -> Self {
        Self(vec![0; len])
    }

    /// With `value` at `at`; what is beyond its length is lost.
    #[must_use]
    pub fn with<const N: usize>(mut self, at: usize, value: [u8; N]) -> Self {
        if let Some(room) = self.0.get_mut(at..at + N) {
            room.copy_from_slice(&value);
        }
        self
    }

    /// With one byte.
    #[must_use]
    pub fn u8(self, at: usize, value: u8) -> Self {
        self.with(at, [value])
    }

    /// With two bytes.
    #[must_use]
    pub fn u16(self, at: usize, value: u16) -> Self {
        self.with(at, value.to_ne_bytes())
    }

    /// With four bytes.
    #[must_use]
    pub fn u32(self, at: usize, value: u32) -> Self {
        self.with(at, value.to_ne_bytes())
    }

    /// With eight bytes.
    #[must_use]
    pub fn u64(self, at: usize, value: u64) -> Self {
        self.with(at, value.to_ne_bytes())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
