//! Of the crates of devices, what commands are about: the one module here that names them.

use std::path::PathBuf;

use ringway_xdp::broker::SOCKET;

pub(crate) use ringway_xdp::broker::{Broker, BrokerError, BrokerSettings, Users, interfaces_served};

/// An interface, as a broker serves it.
pub(crate) fn interface(name: &str) -> ringway_xdp::Settings {
    ringway_xdp::Settings::new(name)
}

/// Where a broker listens that was not told otherwise.
pub(crate) fn broker_socket() -> PathBuf {
    SOCKET.into()
}
