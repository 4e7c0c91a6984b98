//! Which IPv4 addresses are this machine's: what shared memory can reach.

use core::time::Duration;
use std::io;
use std::net::Ipv4Addr;
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
}

#[derive(Debug, Default)]
struct Cache {
    /// Sorted.
    known: Vec<Ipv4Addr>,
    read: Option<Instant>,
}

impl Addresses {
    /// Nothing known yet: the first question reads them.
    pub const fn new() -> Self {
        Self { cache: Mutex::new(Cache { known: Vec::new(), read: None }) }
    }

    /// Whether packets to `address` stay on this machine: 127.0.0.0/8 (RFC 1122 s3.2.1.3 (g)), or an interface's own.
    /// `0.0.0.0`, as a destination, is this host (ibid. (a), and Linux).
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.is_loopback() || address.is_unspecified() || self.is_interface(address, Clock::system().now())
    }

    fn is_interface(&self, address: Ipv4Addr, now: Instant) -> bool {
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
    pub fn all(&self) -> io::Result<Vec<Ipv4Addr>> {
        let known = interfaces()?;
        let _blocked = Blocked::new();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        *cache = Cache { known: known.clone(), read: Some(Clock::system().now()) };
        Ok(known)
    }
}

/// The interfaces' IPv4 addresses, sorted, by getifaddrs(3).
fn interfaces() -> io::Result<Vec<Ipv4Addr>> {
    let mut list: *mut libc::ifaddrs = core::ptr::null_mut();
    // SAFETY: `list` is valid for writing.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut known = Vec::new();
    let mut entry = list;
    // SAFETY: getifaddrs made a list whose entries and addresses live until freeifaddrs; an address of family AF_INET is a
    // sockaddr_in.
    unsafe {
        while let Some(interface) = entry.as_ref() {
            if interface.ifa_addr.as_ref().is_some_and(|address| i32::from(address.sa_family) == libc::AF_INET) {
                let address = interface.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                known.push(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)));
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
