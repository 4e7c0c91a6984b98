//! Which addresses are this machine's: what shared memory can reach.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use ringway_stack::Instant;

use crate::clock::Clock;
use crate::signals::Blocked;

/// An address that was not found is asked for again at most this often.
const REFRESH: Duration = Duration::from_secs(1);

/// The addresses of this network namespace's interfaces, remembered.
#[derive(Debug, Default)]
pub struct Addresses {
    cache: Mutex<Cache>,
    /// `::1` was among them.
    has_v6: AtomicBool,
}

#[derive(Debug, Default)]
struct Cache {
    /// Sorted.
    known: Vec<IpAddr>,
    read: Option<Instant>,
}

impl Addresses {
    /// Nothing known yet: the first question reads them.
    pub const fn new() -> Self {
        Self { cache: Mutex::new(Cache { known: Vec::new(), read: None }), has_v6: AtomicBool::new(false) }
    }

    /// Whether packets to `address` stay on this machine: 127.0.0.0/8 (RFC 1122 s3.2.1.3 (g)), or an interface's own. `::1` (RFC 4291 s2.5.3) is the
    /// loopback's, where IPv6 is not switched off. `0.0.0.0` and `::`, as a destination, are this host (RFC 1122 ibid. (a), and Linux).
    /// Link-local addresses of IPv6, which mean something only together with an interface, are not among them.
    pub fn contains(&self, address: impl Into<IpAddr>) -> bool {
        match address.into() {
            IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => true,
            IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => {
                if !self.has_v6.load(Ordering::Relaxed) && self.is_interface(Ipv6Addr::LOCALHOST.into(), Clock::system().now()) {
                    self.has_v6.store(true, Ordering::Relaxed);
                }
                self.has_v6.load(Ordering::Relaxed)
            }
            ip => self.is_interface(ip, Clock::system().now()),
        }
    }

    fn is_interface(&self, address: IpAddr, now: Instant) -> bool {
        // (Dropped after the lock.)
        let _blocked = Blocked::new();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.known.binary_search(&address).is_ok() {
            return true;
        }
        if cache.read.is_some_and(|read| now.since(read) < REFRESH) {
            return false;
        }
        cache.read = Some(now);
        match interfaces() {
            Ok(known) => cache.known = known,
            Err(error) => tracing::debug!(%error, "cannot list the interfaces' addresses"),
        }
        cache.known.binary_search(&address).is_ok()
    }

    /// The interfaces' addresses as they are now, sorted.
    ///
    /// # Errors
    /// The system's, from listing the interfaces.
    pub fn all(&self) -> io::Result<Vec<IpAddr>> {
        let known = interfaces()?;
        let _blocked = Blocked::new();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        *cache = Cache { known: known.clone(), read: Some(Clock::system().now()) };
        Ok(known)
    }
}

/// The interfaces' addresses, sorted, by getifaddrs(3).
fn interfaces() -> io::Result<Vec<IpAddr>> {
    let mut list: *mut libc::ifaddrs = core::ptr::null_mut();
    // SAFETY: `list` is valid for writing.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut known = Vec::new();
    let mut entry = list;
    // SAFETY: getifaddrs made a list whose entries and addresses live until freeifaddrs; an address of family AF_INET is a
    // sockaddr_in, and one of AF_INET6 a sockaddr_in6.
    unsafe {
        while let Some(interface) = entry.as_ref() {
            match interface.ifa_addr.as_ref().map(|address| i32::from(address.sa_family)) {
                Some(libc::AF_INET) => {
                    let address = interface.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    known.push(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into());
                }
                Some(libc::AF_INET6) => {
                    let address = interface.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
                    known.extend((!address.is_unicast_link_local()).then_some(IpAddr::V6(address)));
                }
                _ => {}
            }
            entry = interface.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    known.sort_unstable();
    known.dedup();
    Ok(known)
}

#[cfg(test)]
mod tests;
