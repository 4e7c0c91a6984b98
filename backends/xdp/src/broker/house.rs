//! What all of a broker's programs have a part in.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use ringway_host::Monitor;
use ringway_host::leave::Injector;
use ringway_stack::net::LinkId;

use super::events::{Event, StartError};
use super::holders::Holders;
use super::listener::namespace_of;
use super::message::Refusal;
use super::threads::Threads;
use crate::card::XdpDevice;
use crate::error::AttachError;
use crate::settings::Settings;

/// What all programs have a part in.
#[derive(Debug)]
pub(super) struct House {
    pub(super) interfaces: BTreeMap<String, Served>,
    pub(super) monitor: Monitor,
    pub(super) holders: Holders,
    /// Of IPv4, and of IPv6.
    pub(super) injectors: [Option<Injector>; 2],
    pub(super) threads: Threads,
    pub(super) namespace: Option<u64>,
}

/// An interface.
#[derive(Debug)]
pub(super) struct Served {
    settings: Settings,
    device: Option<XdpDevice>,
}

impl House {
    /// Attaches to the interfaces. (One that another program has for now is tried again.)
    pub(super) fn open(interfaces: Vec<Settings>, threads: Threads, tell: &mut dyn FnMut(Event)) -> Result<Self, StartError> {
        let mut served = BTreeMap::new();
        for settings in interfaces {
            let interface = settings.interface.clone();
            let device = match attached(&settings) {
                Ok(device) => Some(device),
                Err(why @ AttachError::Taken { .. }) => {
                    tell(Event::NotAttached { interface: interface.clone(), why });
                    None
                }
                Err(why) => return Err(StartError::Attach { interface, why }),
            };
            served.insert(interface, Served { settings, device });
        }
        let holders = Holders::open().map_err(|error| StartError::System { what: "NETLINK_SOCK_DIAG", error })?;
        let injectors = [false, true].map(|is_v6| Injector::open(is_v6).ok());
        Ok(Self { interfaces: served, monitor: Monitor::open()?, holders, injectors, threads, namespace: None })
    }

    /// An interface that it serves, with its program in front of it.
    pub(super) fn device(&mut self, interface: &str) -> Result<(XdpDevice, LinkId), Refusal> {
        let served = self.interfaces.get_mut(interface).ok_or_else(|| Refusal::NotServed(interface.to_owned()))?;
        // (The interface may have been made anew, or somebody has taken the program away.)
        served.device.take_if(|device| !device.is_in_front());
        if served.device.is_none() {
            served.device = Some(XdpDevice::attach(&served.settings).map_err(|error| Refusal::CannotAttach(error.to_string()))?);
        }
        let _ = self.monitor.refresh();
        let link = self.monitor.tables().link_named(interface).map(|link| link.id);
        match (&served.device, link) {
            (Some(device), Some(link)) => Ok((device.clone(), link)),
            _ => Err(Refusal::CannotAttach(format!("no interface is called {interface}"))),
        }
    }

    pub(super) const fn injects(&self) -> bool {
        self.injectors[0].is_some()
    }

    /// Whether a socket is of the broker's network namespace, as far as this kernel tells.
    pub(super) fn is_here(&self, socket: BorrowedFd<'_>) -> bool {
        self.namespace.is_none() || namespace_of(socket) == self.namespace
    }
}

/// An interface that rings can be had on: one is made, and given back, so that what is in the way is told at once, and not to each program.
fn attached(settings: &Settings) -> Result<XdpDevice, AttachError> {
    let device = XdpDevice::attach(settings)?;
    let (loan, _) = device.lend_ring()?;
    loan.is_mappable()?;
    drop(loan);
    device.leave(0);
    Ok(device)
}
