//! GET_EVENT, and where events wait.

use std::collections::VecDeque;
use std::net::IpAddr;

use ringway_preload::Errno;
use ringway_stack::cm::{CmId, Event, EventKind};
use ringway_stack::device::messages::PortSpace;
use ringway_stack::roce::Node;
use ringway_stack::time::Instant;

use super::commands::Request;
use super::{RdmaCm, layouts};
use crate::abi::Output;
use crate::engine::memory::Registered;

/// Bytes of `struct rdma_ucm_event_resp`: {uid 0, id 8, event 12, status 16, param 20, ece 328}.
const LEN: usize = 336;
/// The same without what newer libraries have at its end.
const LEN_MIN: usize = 324;
/// Where the parameters of a connection, or of a datagrams' peer, begin.
const PARAM: usize = 20;

/// An event as the program gets it.
struct Told {
    /// The identifier that it is counted for, and the membership, if it is about one.
    about: u32,
    membership: Option<u32>,
    output: Output,
}

/// {response 0}. EAGAIN: there is none; EFAULT: the response has no place, and the event waits on.
pub(super) fn get(request: &mut Request<'_>) -> Result<(), Errno> {
    let (to, number) = (request.input().u64(0), request.channel);
    request.has_room(LEN_MIN)?;
    let Told { about, membership, output } = loop {
        let cm = request.cm();
        let channel = cm.channels.get(&number).ok_or(Errno(libc::EIO))?;
        let event = channel.events.front().cloned().ok_or(Errno(libc::EAGAIN))?;
        match cm.telling(&event) {
            Some(told) => break told,
            None => cm.next(number),
        }
    };
    // (What the program could not be given, it gets the next time: ucma_get_event.)
    request.respond(to, LEN_MIN, &output)?;
    let cm = request.cm();
    if let Some(known) = cm.ids.get_mut(&about) {
        known.reported += 1;
    }
    if let Some(joined) = membership.and_then(|number| cm.memberships.get_mut(&number)) {
        joined.reported += 1;
    }
    cm.next(number);
    Ok(())
}

impl RdmaCm {
    /// A channel's first event is over.
    fn next(&mut self, channel: u32) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.events.pop_front();
            channel.silence_if_empty();
        }
    }

    /// An event as the program gets it. `None`: the program knows nothing of it any more, or not yet.
    fn telling(&self, event: &Event) -> Option<Told> {
        let (number, known) = self.known_of(event.id)?;
        let request = matches!(event.kind, EventKind::ConnectRequest(_));
        let (about, uid) = match event.listener.filter(|_| request) {
            Some(listener) => self.known_of(listener).map(|(about, known)| (about, known.uid))?,
            None => (number, known.uid),
        };
        // Of a group, the event is about the membership.
        let joined = match &event.kind {
            EventKind::MulticastJoined(peer) => Some(self.membership_of(number, peer.path.addresses.dst())?),
            _ => None,
        };
        let (number, uid) = joined.unwrap_or((number, uid));
        let output = Output::new(LEN).u64(0, uid).u32(8, number).u32(12, event.kind.number());
        let is_datagrams = self.manager.port_space(event.id).is_some_and(|space| space != PortSpace::Tcp);
        let (output, membership) = (with_kind(output, &event.kind, is_datagrams), joined.map(|(number, _)| number));
        Some(Told { about, membership, output })
    }

    /// Lets go of an identifier, and of what waits to be told of it. Of a listener, requests of which the program has not heard are refused.
    pub(super) fn forget(&mut self, now: Instant, node: &mut Node<Registered>, number: u32) {
        let Some(known) = self.ids.remove(&number) else { return };
        self.claims.remove(&number);
        self.memberships.retain(|_, membership| membership.id != number);
        self.ports.give_up(number);
        let is_about =
            |event: &Event| event.id == known.id || event.listener == Some(known.id) && matches!(event.kind, EventKind::ConnectRequest(_));
        let mut unheard = Vec::new();
        for channel in self.channels.values_mut() {
            unheard.extend(channel.events.iter().filter(|event| is_about(event) && event.id != known.id).map(|event| event.id));
            channel.events.retain(|event| !is_about(event));
            channel.silence_if_empty();
        }
        self.manager.destroy_id(now, node, known.id);
        for id in unheard {
            self.ids.retain(|_, known| known.id != id);
            self.manager.destroy_id(now, node, id);
        }
    }

    /// That a group was joined is not told of any more.
    pub(super) fn forget_joined(&mut self, id: CmId, group: IpAddr) {
        for channel in self.channels.values_mut() {
            let is_its = |event: &Event| {
                event.id == id && matches!(&event.kind, EventKind::MulticastJoined(peer) if peer.path.addresses.dst() == group)
            };
            channel.events.retain(|event| !is_its(event));
            channel.silence_if_empty();
        }
    }

    /// What waits to be told of an identifier goes over to another channel; of a listener, requests of which the program has not heard as well.
    pub(super) fn move_events(&mut self, id: CmId, from: u32, to: u32) {
        let Some(channel) = self.channels.get_mut(&from) else { return };
        let (moving, staying) =
            core::mem::take(&mut channel.events).into_iter().partition(|event| event.id == id || event.listener == Some(id));
        channel.events = staying;
        channel.silence_if_empty();
        let moving: VecDeque<Event> = moving;
        for known in self.ids.values_mut().filter(|known| moving.iter().any(|event| event.id == known.id)) {
            known.channel = to;
        }
        if let Some(channel) = self.channels.get_mut(&to) {
            moving.into_iter().for_each(|event| channel.put(event));
        }
    }
}

/// {private_data, responder_resources 266, initiator_depth 267, flow_control 268, retry_count 269, rnr_retry_count 270} and so on.
fn with_kind(output: Output, kind: &EventKind, is_datagrams: bool) -> Output {
    // (A datagrams' peer has its private data elsewhere.)
    let said = |output: Output, bytes: &[u8]| match is_datagrams {
        true => layouts::with_datagrams_private_data(output, PARAM, bytes),
        false => layouts::with_private_data(output, PARAM, bytes),
    };
    match kind {
        EventKind::ConnectRequest(incoming) => {
            let output = said(output, &incoming.private_data);
            if is_datagrams {
                return output;
            }
            let (resources, depth) = (incoming.responder_resources, incoming.initiator_depth);
            output.u8(PARAM + 266, resources).u8(PARAM + 267, depth).u8(PARAM + 268, 1).u8(PARAM + 269, 7).u8(PARAM + 270, 7)
        }
        EventKind::ConnectResponse(bytes) | EventKind::Established(bytes) => said(output, bytes),
        EventKind::Rejected(rejection) | EventKind::ServiceRefused(rejection) => {
            said(output.u32(16, rejection.reason.into()), &rejection.private_data)
        }
        EventKind::ServiceFound(peer) | EventKind::MulticastJoined(peer) => layouts::with_datagram_peer(output, PARAM, peer),
        EventKind::AddressError(error) => output.u32(16, (-error.errno()).cast_unsigned()),
        EventKind::RouteError | EventKind::Unreachable => output.u32(16, (-libc::ETIMEDOUT).cast_unsigned()),
        EventKind::AddressResolved | EventKind::RouteResolved | EventKind::Disconnected | EventKind::TimewaitExit => output,
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::device::messages::PrivateData;

    use super::*;

    #[test]
    fn an_event_says_what_the_peer_s_program_said() {
        let said: PrivateData = [1, 2, 3].into_iter().collect();
        let output = with_kind(Output::new(LEN), &EventKind::Established(said), false);
        let bytes = output.bytes();
        assert_eq!((&bytes[PARAM + 8..PARAM + 12], bytes[PARAM + 264]), (&[1, 2, 3, 0][..], 3));
        let output = with_kind(Output::new(LEN), &EventKind::Unreachable, false);
        assert_eq!(i32::from_ne_bytes(output.bytes()[16..20].try_into().unwrap()), -libc::ETIMEDOUT);
    }
}
