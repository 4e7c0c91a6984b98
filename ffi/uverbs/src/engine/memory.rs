//! The process's own memory, as the card reaches it: by copying through the kernel, so that an address where nothing is mapped is an
//! error, and not the end of the process.

use libc::{c_ulong, iovec, pid_t};
use ringway_preload::Errno;
use ringway_sim::connectx::{Memory, Unmapped};
use ringway_stack::roce::memory;

/// All of the process's memory, by address.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    pid: pid_t,
}

impl ProcessMemory {
    /// Of this process.
    pub fn new() -> Self {
        Self { pid: std::process::id().cast_signed() }
    }

    /// Copies from the program's memory.
    ///
    /// # Errors
    /// EFAULT.
    pub fn copy_in(&self, from: u64, out: &mut [u8]) -> Result<(), Errno> {
        let local = iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        let remote = iovec { iov_base: from as *mut _, iov_len: out.len() };
        if out.is_empty() {
            return Ok(());
        }
        // SAFETY: the kernel writes at most `out.len()` bytes at `out`, and reads from `from` or fails.
        let copied = unsafe { libc::process_vm_readv(self.pid, &raw const local, 1 as c_ulong, &raw const remote, 1, 0) };
        if copied == out.len().cast_signed() { Ok(()) } else { Err(Errno(libc::EFAULT)) }
    }

    /// Copies to the program's memory.
    ///
    /// # Errors
    /// EFAULT. What is mapped before the first page that is not may be written.
    pub fn copy_out(&self, to: u64, bytes: &[u8]) -> Result<(), Errno> {
        let local = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = iovec { iov_base: to as *mut _, iov_len: bytes.len() };
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the kernel reads `bytes`, and writes where the program said that its device may write, or fails. What is there is the
        // program's: its buffers and queues, which it shares with its device.
        let copied = unsafe { libc::process_vm_writev(self.pid, &raw const local, 1 as c_ulong, &raw const remote, 1, 0) };
        if copied == bytes.len().cast_signed() { Ok(()) } else { Err(Errno(libc::EFAULT)) }
    }
}

impl Memory for ProcessMemory {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        self.copy_in(addr, out).map_err(|_| Unmapped { addr })
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        self.copy_out(addr, bytes).map_err(|_| Unmapped { addr })
    }
}

/// A registered part of it. A card has the pages that were there; here, what was unmapped since reads as zeroes, and is not written.
#[derive(Clone, Debug)]
pub(crate) enum Registered {
    /// The program's.
    Program {
        /// Where it begins.
        start: u64,
        /// Its bytes.
        len: u64,
        /// Whose it is.
        memory: ProcessMemory,
    },
    /// The card's own.
    Own(Vec<u8>),
}

impl From<Vec<u8>> for Registered {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(bytes)
    }
}

impl memory::Memory for Registered {
    fn len(&self) -> u64 {
        match self {
            Self::Program { len, .. } => *len,
            Self::Own(bytes) => memory::Memory::len(bytes),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        match self {
            Self::Program { start, memory, .. } => {
                if memory.copy_in(start.wrapping_add(offset), out).is_err() {
                    out.fill(0);
                    is_unmapped(start.wrapping_add(offset));
                }
            }
            Self::Own(bytes) => bytes.read(offset, out),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        match self {
            Self::Program { start, memory, .. } => {
                if memory.copy_out(start.wrapping_add(offset), bytes).is_err() {
                    is_unmapped(start.wrapping_add(offset));
                }
            }
            Self::Own(own) => own.write(offset, bytes),
        }
    }
}

fn is_unmapped(at: u64) {
    crate::log::say(format_args!("registered memory at {at:#x} is not mapped any more"));
}
