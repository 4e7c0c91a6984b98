//! Groups of datagrams: which of them a queue pair hears.

use std::net::{IpAddr, Ipv6Addr};

use ringway_preload::Errno;
use ringway_stack::roce::CreateError;
use ringway_stack::roce::qp::Transport;

use super::{Reply, Request, pairs};

const BAD: Errno = Errno(libc::EINVAL);

/// `ib_uverbs_attach_mcast` {gid 0, qp_handle 16, mlid 20}: twice is once. EINVAL: the queue pair is not of datagrams, or the GID is no group's; ENOMEM: there are too many.
pub(super) fn attach(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let (qpn, group) = named(request)?;
    let engine = &mut *request.engine;
    engine.node.hca_mut().join(qpn, group).map_err(|error| match error {
        CreateError::Full | CreateError::Limit => Errno(libc::ENOMEM),
        CreateError::Missing | CreateError::InUse => BAD,
    })?;
    if let Some(qp) = engine.qps.get_mut(&qpn) {
        qp.groups.insert(group);
    }
    engine.hear_groups();
    Ok(Reply::nothing())
}

/// `ib_uverbs_detach_mcast`: as the other. EINVAL: it is not attached.
pub(super) fn detach(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let (qpn, group) = named(request)?;
    let engine = &mut *request.engine;
    engine.node.hca_mut().leave(qpn, group).map_err(|_| BAD)?;
    if let Some(qp) = engine.qps.get_mut(&qpn) {
        qp.groups.remove(&group);
    }
    engine.hear_groups();
    Ok(Reply::nothing())
}

/// The queue pair and the group.
fn named(request: &mut Request<'_>) -> Result<(u32, IpAddr), Errno> {
    let (gid, handle) = (request.core().gid(0), request.core().u32(16));
    let qpn = pairs::find(request, handle)?;
    let group = Ipv6Addr::from(gid).to_canonical();
    let is_of_datagrams = request.engine.qps.get(&qpn).is_some_and(|qp| qp.transport == Transport::Ud);
    if is_of_datagrams && group.is_multicast() { Ok((qpn, group)) } else { Err(BAD) }
}
