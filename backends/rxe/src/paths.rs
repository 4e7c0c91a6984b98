//! Address vectors: which entry of the port's table of GIDs a packet goes out with, and what is made of it once for many datagrams.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rdma_core_sys as sys;
use ringway_stack::device::messages::{Addresses, Mtu, NoWay, Path};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::verbs::{Context, Domain, ended, made};

/// Address handles that are kept, of one protection domain: of any more, all are made anew.
const HANDLES_MAX: usize = 1024;

/// An address as RoCE has it: IPv4's is mapped into IPv6's (IBTA spec, annex A17).
pub(crate) const fn gid_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// A path in verbs' form; `None`: no entry of the port's table is the source.
pub(crate) fn vector_of(context: &Context, port: u8, path: &Path) -> Option<sys::ibv_ah_attr> {
    let entries = u32::try_from(context.query_port(port).ok()?.gid_tbl_len).unwrap_or(0);
    let source = gid_of(path.addresses.src());
    // SAFETY: both members of the union are 16 bytes.
    let is_source = |entry: &sys::ibv_gid_entry| unsafe { entry.gid.raw } == source && entry.gid_type != sys::IBV_GID_TYPE_ROCE_V1;
    // (Tables have holes.)
    let entry = (0..entries).filter_map(|index| context.gid(port, index)).find(is_source)?;
    let grh = sys::ibv_global_route {
        dgid: sys::ibv_gid { raw: gid_of(path.addresses.dst()) },
        flow_label: path.flow_label,
        sgid_index: u8::try_from(entry.gid_index).ok()?,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
    };
    Some(sys::ibv_ah_attr { grh, is_global: 1, port_num: port, ..sys::ibv_ah_attr::default() })
}

/// The port's path MTU.
pub(crate) fn mtu_of(context: &Context, port: u8) -> Option<Mtu> {
    Mtu::from_code(context.query_port(port).ok()?.active_mtu as u8)
}

/// The address of ours from which the kernel's routes lead to `to`: a UDP socket is connected, by which nothing is sent.
pub(crate) fn source_towards(to: IpAddr) -> Option<IpAddr> {
    ask_for_source(to).ok()
}

/// Why there is none.
pub(crate) fn why_no_source(to: IpAddr) -> NoWay {
    let asked = ask_for_source(to);
    // (A way there is, and it is none of this device's.)
    asked.map_or_else(|error| error.raw_os_error().and_then(NoWay::of_errno).unwrap_or(NoWay::Host), |_| NoWay::Device)
}

fn ask_for_source(to: IpAddr) -> io::Result<IpAddr> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    // (Not by libc's functions, nor std's, which may be interposed, and take it for a socket of the program's.)
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddr::new(to, 9))?;
    Ok(SocketAddr::try_from(rustix::net::getsockname(&socket)?)?.ip())
}

/// An address handle.
#[derive(Debug)]
pub(crate) struct Handle {
    domain: Arc<Domain>,
    raw: NonNull<sys::ibv_ah>,
}

// SAFETY: libibverbs' objects may be used by any thread, and by several at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// The handle for a path; none where no entry of the port's table is the source, or the device has no more. It waits for the neighbour's address, unless the kernel knows it.
    pub(crate) fn new(domain: &Arc<Domain>, port: u8, path: &Path) -> io::Result<Self> {
        let mut vector = vector_of(&domain.context, port, path).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // SAFETY: the domain is there, and the attribute readable.
        let raw = made(unsafe { domain.context.verbs.ibv_create_ah(domain.raw(), &raw mut vector) })?;
        Ok(Self { domain: domain.clone(), raw })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_ah {
        self.raw.as_ptr()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made here, and ended once.
        ended("an address handle", unsafe { self.domain.context.verbs.ibv_destroy_ah(self.raw.as_ptr()) });
    }
}

/// The address handles of a protection domain.
#[derive(Debug, Default)]
pub(crate) struct Handles(BTreeMap<(Addresses, u8, u8, u32), Handle>);

impl Handles {
    /// The handle for a path; none where no entry of the port's table is the source, or the device has no more.
    pub(crate) fn of(&mut self, domain: &Arc<Domain>, port: u8, path: &Path) -> io::Result<*mut sys::ibv_ah> {
        let key = (path.addresses, path.traffic_class, path.hop_limit, path.flow_label);
        if let Some(handle) = self.0.get(&key) {
            return Ok(handle.raw.as_ptr());
        }
        if self.0.len() >= HANDLES_MAX {
            // (Datagrams that wait to be sent with one of them may be lost, as datagrams may be.)
            self.0.clear();
        }
        let handle = Handle::new(domain, port, path)?;
        let raw = handle.raw();
        self.0.insert(key, handle);
        Ok(raw)
    }

    /// The table of GIDs has changed: all are made anew.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn ipv4_is_mapped() {
        assert_eq!(gid_of(Ipv4Addr::new(10, 9, 0, 1).into()), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1]);
        assert_eq!(gid_of(Ipv6Addr::LOCALHOST.into())[15], 1);
    }

    #[test]
    fn loopback_is_reached_from_itself() {
        assert_eq!(source_towards(Ipv4Addr::LOCALHOST.into()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
