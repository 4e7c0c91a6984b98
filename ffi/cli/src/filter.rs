//! Filters of frames, in the language of pcap-filter(7). Libpcap compiles them; it is opened when there is one, so that the command starts where it is not installed.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use anyhow::{Context as _, Result, bail};

/// Its names: upstream's, and Debian's for the same.
const LIBRARIES: [&CStr; 2] = [c"libpcap.so.1", c"libpcap.so.0.8"];

/// DLT_EN10MB (pcap-linktype(7)).
const ETHERNET: c_int = 1;
/// PCAP_NETMASK_UNKNOWN: only `ip broadcast` would need it.
const NETMASK_UNKNOWN: c_uint = c_uint::MAX;

/// `struct bpf_program`.
#[repr(C)]
struct Program {
    len: c_uint,
    instructions: *mut c_void,
}

/// `struct pcap_pkthdr`.
#[repr(C)]
struct Header {
    time: libc::timeval,
    kept: u32,
    len: u32,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut Program, *const c_char, c_int, c_uint) -> c_int;
type ErrorOf = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type OfflineFilter = unsafe extern "C" fn(*const Program, *const Header, *const u8) -> c_int;

/// A filter. It is kept as long as the process lives.
pub struct Filter {
    /// Invariant: pcap_compile(3) has made it, and nobody frees it.
    program: Program,
    run: OfflineFilter,
}

impl Filter {
    /// Compiles an expression for Ethernet frames of which `snaplen` bytes are kept.
    ///
    /// # Errors
    /// Libpcap is not installed; what it finds wrong.
    #[expect(unsafe_code, reason = "libpcap is a C library")]
    pub fn compile(expression: &str, snaplen: u32) -> Result<Self> {
        let library = LIBRARIES.into_iter().find_map(open).context("filters need libpcap (libpcap.so.1), which is not installed")?;
        let text = CString::new(expression)?;
        // SAFETY: these are the functions' types in pcap/pcap.h, which have not changed since there is a libpcap.so.1.
        let (open_dead, compile, error_of, run) = unsafe {
            (
                core::mem::transmute::<NonNull<c_void>, OpenDead>(find(library, c"pcap_open_dead")?),
                core::mem::transmute::<NonNull<c_void>, Compile>(find(library, c"pcap_compile")?),
                core::mem::transmute::<NonNull<c_void>, ErrorOf>(find(library, c"pcap_geterr")?),
                core::mem::transmute::<NonNull<c_void>, OfflineFilter>(find(library, c"pcap_offline_filter")?),
            )
        };
        // SAFETY: plain integers.
        let handle = unsafe { open_dead(ETHERNET, c_int::try_from(snaplen).unwrap_or(c_int::MAX)) };
        if handle.is_null() {
            bail!("libpcap has no memory");
        }
        let mut program = Program { len: 0, instructions: core::ptr::null_mut() };
        // SAFETY: the handle is open, the program to be written, and the expression a C string.
        if unsafe { compile(handle, &raw mut program, text.as_ptr(), 1, NETMASK_UNKNOWN) } != 0 {
            // SAFETY: the handle is open, and is never closed, so that its words stay.
            let why = unsafe { CStr::from_ptr(error_of(handle)) };
            bail!("the filter {expression:?}: {}", why.to_string_lossy());
        }
        Ok(Self { program, run })
    }

    /// Whether it matches a frame, of `len` bytes, which begins with these.
    #[expect(unsafe_code, reason = "libpcap is a C library")]
    pub fn matches(&self, bytes: &[u8], len: usize) -> bool {
        let limited = |len| u32::try_from(len).unwrap_or(u32::MAX);
        let header = Header { time: libc::timeval { tv_sec: 0, tv_usec: 0 }, kept: limited(bytes.len()), len: limited(len) };
        // SAFETY: the program is compiled, and its interpreter reads as many bytes as the header says are kept.
        unsafe { (self.run)(&raw const self.program, &raw const header, bytes.as_ptr()) != 0 }
    }
}

#[expect(unsafe_code, reason = "libpcap is a C library")]
fn open(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a C string; what libpcap does when it is loaded concerns nobody here.
    NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
}

#[expect(unsafe_code, reason = "libpcap is a C library")]
fn find(library: NonNull<c_void>, name: &CStr) -> Result<NonNull<c_void>> {
    // SAFETY: the library is open, and never closed; a C string.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
        .with_context(|| format!("this libpcap has no {}", name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram of IPv4 between two ports.
    fn datagram(from: u16, to: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([from.to_be_bytes(), to.to_be_bytes(), 8_u16.to_be_bytes(), [0; 2]].concat());
        frame
    }

    #[test]
    fn it_is_that_of_tcpdump() {
        let filter = match Filter::compile("udp port 53 and not src host 10.0.0.2", 65_536) {
            Ok(filter) => filter,
            Err(error) if error.to_string().contains("not installed") => return eprintln!("left out: {error}"),
            Err(error) => panic!("{error}"),
        };
        assert!(filter.matches(&datagram(53, 7), 42) && filter.matches(&datagram(7, 53), 42));
        assert!(!filter.matches(&datagram(7, 8), 42));
        // What was cut off matches nothing that would look at it.
        let frame = datagram(53, 7);
        assert!((0..frame.len()).all(|kept| kept >= 36 || !filter.matches(&frame[..kept], 42)));
        let wrong = Filter::compile("udp prt 53", 65_536).err().expect("an error").to_string();
        assert!(wrong.contains("udp prt 53") && wrong.contains("syntax error"), "{wrong}");
    }
}
