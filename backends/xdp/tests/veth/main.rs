//! The device between two network namespaces, on a veth pair: our ring in one, and in the other a kernel that knows nothing of it.

mod broker;
mod faults;
mod link;
mod long;
#[path = "../../../host/tests/leave/namespaces.rs"]
mod namespaces;
mod neighbours;
mod peers;
mod program;
mod rings;
mod roce;
mod sharing;
mod sockets;
mod turns;
mod vlan;
mod world;
