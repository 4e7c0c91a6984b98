//! The machine's end of a TAP interface, without waiting.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use super::Failure;

/// This machine's address.
pub(crate) const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

/// Bytes before an IP packet.
pub(crate) const ETHERNET: usize = 14;

/// IPv4.
const ETHERTYPE: [u8; 2] = [0x08, 0x00];

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(10);

pub(crate) struct Tap {
    file: File,
    /// The kernel's end.
    to: [u8; 6],
}

impl Tap {
    /// The other end of `interface`.
    pub(crate) fn attach(interface: &str) -> Result<Self, Failure> {
        let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        // SAFETY: all zeroes are a valid request.
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        let name = interface.as_bytes();
        if name.len() >= request.ifr_name.len() {
            return Err("a name that is too long for an interface".into());
        }
        for (to, &from) in request.ifr_name.iter_mut().zip(name) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
        // SAFETY: the request is readable and writable, and its name ends with a zero.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } != 0 {
            return Err(format!("{interface}: {}", std::io::Error::last_os_error()).into());
        }
        Ok(Self { file, to: mac_of(interface)? })
    }

    /// The next IP packet that is for this machine, in `frame`; `None`: nothing has come.
    pub(crate) fn receive<'a>(&mut self, frame: &'a mut [u8]) -> Result<Option<&'a [u8]>, Failure> {
        loop {
            let len = match self.file.read(frame) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            // (Of IPv4; what else the kernel says is not for RoCE.)
            if len > ETHERNET && frame[12..ETHERNET] == ETHERTYPE && frame[..6] == MAC {
                return Ok(Some(&frame[ETHERNET..len]));
            }
        }
    }

    /// Sends the IP packet of `len` bytes that stands in `frame` behind the room for Ethernet's header.
    pub(crate) fn send(&mut self, frame: &mut [u8], len: usize) {
        frame[..6].copy_from_slice(&self.to);
        frame[6..12].copy_from_slice(&MAC);
        frame[12..ETHERNET].copy_from_slice(&ETHERTYPE);
        // (What the interface has no room for is sent again.)
        _ = self.file.write(&frame[..ETHERNET + len]);
    }

    /// Waits a moment for more to come, but no longer than until something is due.
    pub(crate) fn wait(&self, due: Option<Duration>) {
        let pause = due.map_or(PAUSE_MAX, |due| due.min(PAUSE_MAX));
        let mut poll = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry is readable and writable.
        unsafe { libc::poll(&raw mut poll, 1, pause.as_millis() as i32) };
    }
}

/// The kernel's end of the interface.
fn mac_of(interface: &str) -> Result<[u8; 6], Failure> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
    let bytes: Vec<u8> = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>()?;
    bytes.try_into().map_err(|_| "an address that is none of Ethernet's".into())
}
