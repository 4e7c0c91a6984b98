//! Receive filters: the reader of a UDP socket whose datagrams a program decides about gets those that it admitted, each once, in order and whole, and none
//! that it dropped or holds; and that of a stream its bytes alike, and the end behind the last decision. (That what waits for it takes room, and what is dropped makes some, shows in the [`super::loans`].)

use ringway_stack::ring::FlowId;

use super::Checkers;

const NAME: &str = "recv_filter";

impl Checkers {
    /// A reader got something else than what was admitted.
    pub(crate) fn misread(&mut self, place: usize, socket: FlowId, wrong: &str) {
        self.moment(place, None).breach(NAME, format_args!("on {socket:?}, {wrong}"));
    }
}
