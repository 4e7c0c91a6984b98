//! Why a card is not a device.

use std::io;

use rdma_core_sys::LoadError;
use ringway_host::{Refused, capabilities};

/// Why a card was not opened, or a ring of it.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The machine: rdma-core is not installed, or is too old.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The machine: its kernel has no RDMA devices (ENOSYS), or none may be listed.
    #[error("RDMA devices cannot be listed: {0}")]
    NoList(io::Error),
    /// The caller: there is no such device.
    #[error("no RDMA device is called {0}")]
    NoDevice(String),
    /// The caller: it is not driven by libmlx5.
    #[error("{0} is no mlx5 device")]
    NotMlx5(String),
    /// The card, or its firmware's configuration, lacks something that every ring needs.
    #[error("{device} has no {what}")]
    Lacks {
        /// Its name.
        device: String,
        /// What it lacks.
        what: &'static str,
    },
    /// The caller: no MAC address or MTU was given, and the port has no interface to ask.
    #[error("the interface of port {port} of {device} cannot be asked: {error}")]
    NoInterface {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// What the system says.
        error: io::Error,
    },
    /// The system refused something: memory that may not be locked (ENOMEM: RLIMIT_MEMLOCK), raw packets without CAP_NET_RAW.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl AttachError {
    /// For what the system said of `what`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Refused::of(what, &capabilities::OF_CARDS, error).into()
    }
}
