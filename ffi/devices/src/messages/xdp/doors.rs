//! UDP sockets of the kernel's at RoCE's port, from which nobody reads: what the program in front of the interface leaves to the kernel is answered by no ICMP error, and nobody has the port
//! meanwhile, but for others that have RoCE's packets on the interface as well, of the same user (SO_REUSEPORT), and share it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, IntoRawFd as _};

use ringway_host::Fd;
use ringway_stack::roce::packet::UDP_PORT;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Doors {
    _sockets: Vec<Fd>,
}

impl Doors {
    /// At all of an interface's addresses, for this process alone or with others that share it.
    ///
    /// # Errors
    /// The system's. (A kernel without IPv6 has no door there.)
    pub(super) fn take(interface: &str, is_shared: bool) -> io::Result<Self> {
        let mut sockets = vec![door(interface, Ipv4Addr::UNSPECIFIED.into(), is_shared)?];
        match door(interface, Ipv6Addr::UNSPECIFIED.into(), is_shared) {
            Ok(socket) => sockets.push(socket),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {}
            Err(error) => return Err(error),
        }
        Ok(Self { _sockets: sockets })
    }
}

fn door(interface: &str, ip: std::net::IpAddr, is_shared: bool) -> io::Result<Fd> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut refused = None;
    let socket = Fd::make(|| match socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None) {
        Ok(fd) => fd.into_raw_fd().into(),
        Err(error) => {
            refused = Some(error);
            -1
        }
    });
    let socket = socket.map_err(|error| refused.map_or(error, io::Error::from))?;
    // SAFETY: it is open as long as `socket` lives.
    let fd = unsafe { BorrowedFd::borrow_raw(socket.raw()) };
    if ip.is_ipv6() {
        sockopt::set_ipv6_v6only(fd, true)?;
    }
    if is_shared {
        sockopt::set_socket_reuseport(fd, true)?;
    }
    // (What comes there all the same is not kept: the kernel has a least size.)
    sockopt::set_socket_recv_buffer_size(fd, 0)?;
    bind_to_device(fd, interface)?;
    bind(fd, &SocketAddr::new(ip, UDP_PORT))?;
    Ok(socket)
}

/// socket(7), SO_BINDTODEVICE: anybody may, since Linux 5.7, of a socket that is bound to none.
fn bind_to_device(fd: BorrowedFd<'_>, interface: &str) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: as many bytes as are said can be read.
    let set = unsafe {
        libc::syscall(libc::SYS_setsockopt, fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_ptr(), interface.len())
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
