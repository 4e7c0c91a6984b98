//! Interfaces lent to programs without privileges: what the command `ringway broker` serves.

use std::path::PathBuf;

pub use ringway_xdp::Settings;
pub use ringway_xdp::broker::{Broker, BrokerError, BrokerSettings, Users, interfaces_served};

/// Where a broker listens that was not told otherwise.
pub fn default_socket() -> PathBuf {
    ringway_xdp::broker::SOCKET.into()
}
