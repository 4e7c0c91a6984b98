//! Joining and leaving groups. The program's queue pair is its own: librdmacm has it attached to the group (`commands/groups.rs`) when it hears that it has joined.

use std::net::IpAddr;

use ringway_preload::Errno;

use super::commands::{Request, refused};
use super::{RdmaCm, layouts};
use crate::abi::Output;

const BAD: Errno = Errno(libc::EINVAL);
/// `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`: it sends, and does not listen.
const SENDS_ONLY: u16 = 1;

/// A group that an identifier has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    /// The identifier's number.
    pub(super) id: u32,
    pub(super) group: IpAddr,
    /// What events name it by.
    pub(super) uid: u64,
    /// Events that were told.
    pub(super) reported: u32,
    /// Whether it is joined to listen.
    hears: bool,
}

/// {response 0, uid 8, addr 16, id 44}; {id 0}.
pub(super) fn join_ip(request: &mut Request<'_>) -> Result<(), Errno> {
    let number = request.input().u32(44);
    join_at(request, number, 16, true)
}

/// {response 0, uid 8, id 16, addr_size 20, join_flags 22, addr 24}; {id 0}.
pub(super) fn join(request: &mut Request<'_>) -> Result<(), Errno> {
    let (number, flags) = (request.input().u32(16), request.input().u16(22));
    if flags > SENDS_ONLY {
        return Err(BAD);
    }
    join_at(request, number, 24, flags != SENDS_ONLY)
}

fn join_at(request: &mut Request<'_>, number: u32, at: usize, hears: bool) -> Result<(), Errno> {
    let (to, uid) = (request.input().u64(0), request.input().u64(8));
    let group = layouts::address(request.input(), at).map(|address| address.ip()).filter(IpAddr::is_multicast).ok_or(BAD)?;
    request.has_room(4)?;
    let id = request.known(number)?.id;
    let engine = &mut *request.engine;
    let cm = &mut engine.rdma_cm;
    cm.manager.join_multicast(&mut engine.node, id, group).map_err(refused)?;
    cm.last += 1;
    let membership = cm.last;
    cm.memberships.insert(membership, Membership { id: number, group, uid, reported: 0, hears });
    engine.hear_groups();
    let told = request.respond(to, 4, &Output::new(4).u32(0, membership));
    if told.is_err() {
        // (The program could not leave what it does not know the number of: ucma_process_join.)
        let engine = &mut *request.engine;
        engine.rdma_cm.memberships.remove(&membership);
        engine.rdma_cm.manager.leave_multicast(&mut engine.node, id, group).map_err(refused)?;
        engine.hear_groups();
    }
    told
}

/// {response 0, id 8}, where that is the membership; {events_reported 0}. ENOENT: there is none of that number; EINVAL: it is another channel's.
pub(super) fn leave(request: &mut Request<'_>) -> Result<(), Errno> {
    let (to, number) = (request.input().u64(0), request.input().u32(8));
    let membership = *request.cm().memberships.get(&number).ok_or(Errno(libc::ENOENT))?;
    let id = request.known(membership.id)?.id;
    let engine = &mut *request.engine;
    let cm = &mut engine.rdma_cm;
    cm.memberships.remove(&number);
    cm.manager.leave_multicast(&mut engine.node, id, membership.group).map_err(refused)?;
    cm.forget_joined(id, membership.group);
    engine.hear_groups();
    request.respond(to, 4, &Output::new(4).u32(0, membership.reported))
}

impl RdmaCm {
    /// The groups that are listened to.
    pub(crate) fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.memberships.values().filter(|membership| membership.hears).map(|membership| membership.group)
    }

    /// The number and the name by which the program knows that an identifier has joined a group.
    pub(super) fn membership_of(&self, id: u32, group: IpAddr) -> Option<(u32, u64)> {
        let (number, membership) = self.memberships.iter().find(|(_, known)| known.id == id && known.group == group)?;
        Some((*number, membership.uid))
    }
}
