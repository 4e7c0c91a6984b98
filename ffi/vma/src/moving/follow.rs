//! The side that is told that the other end of a connection is at another MAC address from now on: with a child that it was left to
//! ([`super::awaiting_child`]), or on another ring of its process ([`super::migration`]).

use std::net::SocketAddr;

use ringway_stack::ring::{FlowId, NextHop};

use super::{awaiting_child, peer};
use crate::process::{Offload, Process};

/// What is sent goes on, from the ring that is named behind the word.
pub(super) const FOLLOWS: &str = "follows";

/// Whether that is the answer of who follows, wherever it is.
pub(super) fn is_followed(answer: &[u8]) -> bool {
    answer.split(|byte| *byte == b' ').next() == Some(FOLLOWS.as_bytes())
}

/// It cannot be said yet: the connection is in the middle of another move.
pub(super) const WAIT: &str = "wait";

/// The other end's owner, who is these peers, has given the connection to another ring, of its own or of another process, that is this member: what is sent
/// goes there from now on. The answer, which may name the ring of ours that the member is to meet first.
pub(super) fn follow(process: &Process, offload: &mut Offload, from: &[u64], ends: (SocketAddr, SocketAddr), member: u64) -> String {
    let now = process.now();
    // What it sent from where it was is there by now, and is heard before it is a stranger's.
    offload.poll_if_due(now);
    // What has begun to move is its owner's as it was.
    if offload.moves.iter().any(|moving| moving.is_between(ends.0, ends.1)) {
        return WAIT.to_owned();
    }
    let Some(id) = flow_between(offload, ends) else {
        return if awaiting_child::is_given(offload, ends) { WAIT } else { "no" }.to_owned();
    };
    let Some(NextHop::Mac(mac)) = offload.rings.of(id).tcp_hop(id) else { return "no".to_owned() };
    let rendezvous = process.rendezvous_of(id);
    // Only who is at the other end may give it away.
    if !rendezvous.member_at(mac).is_some_and(|member| from.contains(&member.id())) {
        return "no".to_owned();
    }
    let Some(other) = rendezvous.peers().into_iter().find(|peer| peer.id == member) else {
        return format!("meet {:016x}", rendezvous.member_ref().id());
    };
    let is_told = offload.rings.of_mut(id).tcp_retarget(now, id, NextHop::Mac(other.mac)).is_ok();
    if is_told {
        offload.migrations.note_told(id);
    }
    offload.dispatch();
    offload.attend(now);
    // (It may have gone over itself, of which the other end has yet to be told.)
    if is_told { format!("{FOLLOWS} {:016x}", rendezvous.member_ref().id()) } else { "no".to_owned() }
}

/// The connection between two addresses: whether the program has it, has closed it, or has yet to accept it.
fn flow_between(offload: &Offload, (local, remote): (SocketAddr, SocketAddr)) -> Option<FlowId> {
    let of_socket = || peer::socket_between(offload, local, remote).and_then(|key| offload.sockets.find(key)?.kind.stream());
    offload.rings.tcp_between(local, remote).or_else(of_socket)
}
