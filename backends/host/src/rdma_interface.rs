//! What is to be known of the interface that the kernel has on a card's port. (By netdevice(7): /sys/class/net is of whichever network namespace it was mounted in.)

use std::fs;
use std::io;

use crate::Fd;
use ringway_stack::device::MacAddr;

/// The interface that the kernel has on a card's port, whose addresses and routes are the port's.
///
/// # Errors
/// There is none, or no such card: what sysfs says.
pub fn interface_of(device: &str, port: u8) -> io::Result<String> {
    let name = fs::read_to_string(format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/ndevs/0"))?;
    Ok(name.trim().to_owned())
}

/// Its Ethernet address and its MTU, in the network namespace of the calling thread.
///
/// # Errors
/// There is no such interface: ENODEV.
pub fn address_and_mtu(name: &str) -> io::Result<(MacAddr, usize)> {
    // SAFETY: no memory is involved.
    let socket = Fd::make(|| unsafe { libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    let hardware = ask(&socket, name, libc::SIOCGIFHWADDR)?;
    let mtu = ask(&socket, name, libc::SIOCGIFMTU)?;
    // SAFETY: each request has filled in what it is about, and any bytes are a value of that.
    let (hardware, mtu) = unsafe { (hardware.ifr_ifru.ifru_hwaddr.sa_data, mtu.ifr_ifru.ifru_mtu) };
    let mut mac = [0; 6];
    // (Characters have a sign on x86-64, and none on aarch64.)
    mac.iter_mut().zip(hardware).for_each(|(to, from)| *to = from as u8);
    Ok((MacAddr(mac), usize::try_from(mtu).unwrap_or(0)))
}

fn ask(socket: &Fd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all zeroes is a request.
    let mut ifreq: libc::ifreq = unsafe { core::mem::zeroed() };
    if name.is_empty() || name.len() >= ifreq.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    ifreq.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    // SAFETY: the request is readable and writable.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, socket.raw(), request, &raw mut ifreq) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(ifreq) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_it() {
        let (mac, mtu) = address_and_mtu("lo").expect("there is always one");
        assert_eq!(mac, MacAddr([0; 6]));
        assert!(mtu >= 1500, "{mtu}");
        for nowhere in ["", "nowhere0", "a-name-that-is-too-long"] {
            assert_eq!(address_and_mtu(nowhere).map_err(|error| error.raw_os_error()), Err(Some(libc::ENODEV)), "{nowhere}");
        }
    }
}
