//! Connections on an interface that go over to the ring that their frames come to. Which of an interface's rings that is, some interfaces do not say beforehand, and any may change it.
//! What comes to another ring than has the connection finds it, by a copy and a wake-up; so the connection goes there as well. Both rings are of one interface,
//! with one address: nobody else has to know. The progress thread does it, in a hold of the process's lock in which nobody is about to use the connection.
//!
//! What stays where it is: a connection that is not open yet, or that something else than its socket knows by its ring.

use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::ring::FlowId;
use ringway_stack::tcp::State;

use crate::descendants;
use crate::mux;
use crate::process::Offload;
use crate::slab::Key;
use crate::socket::{Kind, Socket};

impl Offload {
    /// Has connections go over whose frames were seen to come to other rings.
    pub(crate) fn follow_landings(&mut self, now: Instant) {
        let Some(interfaces) = self.interfaces.as_deref() else { return };
        let firsts: Vec<u16> = interfaces.firsts_of_several().collect();
        for first in firsts {
            for (local, remote, at) in self.rings.at(first).ring.take_landings() {
                let to = self.interfaces.as_deref().and_then(|interfaces| interfaces.beside(first, at));
                if let Some((to, flow)) = to.zip(self.rings.tcp_between(local, remote)).filter(|(to, flow)| *to != flow.ring) {
                    self.go_over_beside(now, flow, to, (local, remote));
                }
            }
        }
    }

    /// A connection goes over to another ring of its interface, or card. Where it is then, if it does.
    pub(super) fn go_over_beside(&mut self, now: Instant, flow: FlowId, to: u16, ends: (SocketAddr, SocketAddr)) -> Option<FlowId> {
        let key = self.socket_of(flow).and_then(|index| self.sockets.key_at(index))?;
        if !self.may_go_beside(key, flow) {
            return None;
        }
        self.rings.touch(to);
        let handover = self.rings.of_mut(flow).detach_stream(now, flow).ok()?;
        let adopted = self.rings.at_mut(to).ring.adopt(now, handover);
        // (Its place on its own ring is free still.)
        let back = |(_, handover)| self.rings.of_mut(flow).adopt(now, handover);
        let id = match adopted.or_else(back) {
            Ok(id) => id,
            Err((error, _)) => {
                tracing::error!("the connection {} - {} is lost on its way to another ring: {error}", ends.0, ends.1);
                return None;
            }
        };
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.ring = id.ring;
            socket.kind = if matches!(socket.kind, Kind::Connecting(_)) { Kind::Connecting(id) } else { Kind::Stream(id) };
        }
        tracing::debug!("the connection {} - {} is on ring {}", ends.0, ends.1, id.ring);
        self.migrations.done += 1;
        self.link(id, key.index);
        mux::went_over(self, key.index);
        self.dispatch();
        self.watch_held(now, id);
        Some(id).filter(|id| id.ring == to)
    }

    pub(super) fn may_go_beside(&self, key: Key, flow: FlowId) -> bool {
        let may_socket = |socket: &Socket| {
            let ends = socket.bound.zip(socket.peer);
            let is_moving = || self.moves.iter().any(|moving| ends.is_none_or(|(local, remote)| moving.is_between(local, remote)));
            !socket.is_shared && !descendants::shared_since(socket.birth) && !is_moving()
        };
        let state = self.rings.of(flow).info(flow).and_then(|info| info.state);
        let is_open = matches!(state, Some(State::Established | State::CloseWait));
        // (Of what has come, readers by the Extra API have handles, or notes, by its ring.)
        let is_read_as_ever = !self.callbacks.are_used() && !self.is_heard() && !self.rings_are_used() && !self.loans.lends;
        is_open && is_read_as_ever && !self.ending && self.sockets.find(key).is_some_and(may_socket)
    }
}
