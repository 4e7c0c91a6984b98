//! Screening: the reader of a UDP socket whose datagrams a program decides about gets those that it admitted, each once, in order and whole, and none
//! that it dropped or holds. (That what waits for it takes room, and what is dropped makes some, shows in the [`super::loans`].)

use ringway_stack::device::Device;
use ringway_stack::ring::{Readiness, Ring, SocketId};

use super::Checkers;

const NAME: &str = "screening";

impl Checkers {
    /// A reader got something else than what was admitted.
    pub(crate) fn misread(&mut self, place: usize, socket: SocketId, wrong: &str) {
        self.moment(place, None).breach(NAME, format_args!("on {socket:?}, {wrong}"));
    }
}

/// What a socket is ready for, as its events tell it: that somebody is to decide is told as if there were something to read.
pub(super) fn readiness<D: Device>(ring: &Ring<D>, socket: SocketId) -> Readiness {
    let undecided = if ring.has_candidate(socket) { Readiness::IN } else { Readiness::empty() };
    ring.readiness(socket) | undecided
}
