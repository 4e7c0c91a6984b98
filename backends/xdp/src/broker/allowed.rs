//! Which flows a user's program may have: of the interface's own addresses, at ports that the user may have, and that no socket of another user's has.

use std::io;
use std::net::SocketAddr;

use ringway_host::Monitor;
use ringway_stack::device::FiveTuple;
use ringway_stack::net::LinkId;

use super::holders::Holders;
use super::message::Refusal;

/// ip-sysctl: below this, ports are root's.
const PRIVILEGED_BELOW: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
const PRIVILEGED_BELOW_DEFAULT: u32 = 1024;

/// A flow whose local end may be there at all. (A group's never may: the kernel lets others hear it as well, who come later.)
pub(super) fn is_ours(monitor: &mut Monitor, link: LinkId, local: SocketAddr) -> Result<(), Refusal> {
    if local.ip().is_multicast() {
        return Err(Refusal::Group(local.ip()));
    }
    // (What is out of date is told by the log, and by the next call.)
    let _ = monitor.refresh();
    match monitor.tables().addresses_of(link).iter().any(|own| own.address == local.ip()) {
        true if local.port() != 0 => Ok(()),
        true => Err(Refusal::Malformed("a flow has a port".to_owned())),
        false => Err(Refusal::NotItsAddress(local.ip())),
    }
}

/// A flow that is to be a user's.
pub(super) fn may_have(monitor: &mut Monitor, link: LinkId, holders: &mut Holders, flow: &FiveTuple, uid: u32) -> Result<(), Refusal> {
    is_ours(monitor, link, flow.local)?;
    if flow.remote.is_some_and(|remote| remote.port() == 0 || remote.is_ipv4() != flow.local.is_ipv4()) {
        return Err(Refusal::Malformed("a peer has a port, and an address of the same family".to_owned()));
    }
    if uid == 0 {
        return Ok(());
    }
    if u32::from(flow.local.port()) < privileged_below() {
        return Err(Refusal::Privileged(flow.local.port()));
    }
    match holders.is_anothers(flow, link, uid) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Refusal::AnothersSocket(flow.local)),
        Err(error) => Err(kernel(&error)),
    }
}

fn privileged_below() -> u32 {
    let text = std::fs::read_to_string(PRIVILEGED_BELOW).unwrap_or_default();
    text.trim().parse().unwrap_or(PRIVILEGED_BELOW_DEFAULT)
}

/// What the kernel has said.
pub(super) fn kernel(error: &io::Error) -> Refusal {
    Refusal::Kernel { error: error.to_string(), errno: error.raw_os_error() }
}
