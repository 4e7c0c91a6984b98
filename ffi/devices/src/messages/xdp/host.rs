//! What the kernel knows of the network: kept by the progress thread, and looked at by whoever polls the plane.

use core::sync::atomic::{AtomicU64, Ordering};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_host::netlink::Error;
use ringway_host::{Lender, Monitor};
use ringway_stack::net::LinkId;
use ringway_stack::roce::Network;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Host {
    link: LinkId,
    fd: RawFd,
    monitor: Mutex<Monitor>,
    /// Of the tables that the monitor has.
    generation: AtomicU64,
    /// Who tells the kernel that a neighbour is in use, where the process may not.
    lender: Option<Arc<dyn Lender>>,
}

impl Host {
    /// Of that interface.
    ///
    /// # Errors
    /// All of [`Error`].
    pub(super) fn open(interface: &str, lender: Option<Arc<dyn Lender>>) -> Result<Self, Error> {
        let mut monitor = Monitor::open()?;
        // (One that is gone by now has no addresses.)
        let link = monitor.tables().link_named(interface).map_or(LinkId(0), |link| link.id);
        monitor.tell_of(link);
        let generation = monitor.tables().generation();
        Ok(Self { link, fd: monitor.fd(), monitor: Mutex::new(monitor), generation: AtomicU64::new(generation), lender })
    }

    fn monitor(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network, and of which generation it is.
    pub(super) fn network(&self) -> (Network, u64) {
        let tables = Arc::clone(self.monitor().tables());
        let generation = tables.generation();
        (Network::new(self.link, tables), generation)
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The interface.
    pub(super) const fn link(&self) -> LinkId {
        self.link
    }

    /// Readable once something may have changed.
    pub(super) const fn fd(&self) -> RawFd {
        self.fd
    }

    pub(super) fn refresh(&self) {
        self.refreshed(&mut self.monitor());
    }

    /// (What cannot be read the monitor has said, and tries again.)
    fn refreshed(&self, monitor: &mut Monitor) {
        let _ = monitor.refresh();
        self.generation.store(monitor.tables().generation(), Ordering::Release);
    }

    /// Tells the kernel that these neighbours are in use: it asks for those that it does not know.
    pub(super) fn ask(&self, neighbours: &[IpAddr]) {
        let mut monitor = self.monitor();
        for neighbour in neighbours {
            let told = match &self.lender {
                Some(lender) => monitor.have_neighbour_used(|| lender.use_neighbour(*neighbour)),
                None => monitor.use_neighbour(self.link, *neighbour),
            };
            if let Err(error) = told {
                tracing::debug!("{neighbour}: {error}");
            }
        }
        self.refreshed(&mut monitor);
    }
}
