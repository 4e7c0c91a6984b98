//! Why a device is not to be had.

use std::io;

use rdma_core_sys::LoadError;
use ringway_host::Refused;

/// Why a device was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The machine: rdma-core is not installed, or is too old.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The machine: its librdmacm lacks a function that is needed here; rdma-core 23 has it.
    #[error("librdmacm has no function {0}")]
    OldLibrary(&'static str),
    /// The machine: its kernel has no RDMA devices (ENOSYS), or none may be listed.
    #[error("RDMA devices cannot be listed: {0}")]
    NoList(io::Error),
    /// The caller: there is no such device.
    #[error("no RDMA device is called {0}")]
    NoDevice(String),
    /// The caller: it is a device of another kind than InfiniBand and RoCE.
    #[error("{0} is neither InfiniBand nor RoCE")]
    Transport(String),
    /// The system refused something: memory that may not be locked (ENOMEM: RLIMIT_MEMLOCK), descriptors, the device of rdma_cm (ENODEV: the module rdma_ucm).
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl OpenError {
    /// For what the system said of `what`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Refused::of(what, &[], error).into()
    }
}
