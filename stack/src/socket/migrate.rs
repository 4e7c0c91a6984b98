//! VMA_RING_MIGRATION_RATIO_*: a connection whose ring was chosen by its thread, or core, goes over to another's once that other alone has used it for so
//! many calls.
//!
//! It is taken out of its ring, and put into the other, with everything that it has; its flow rule is retargeted (see [`crate::ring::Handover`]). No lock is
//! held over both: in between, it is its socket's, and where neither ring has room for it, it stays that until one has.

use super::choice::{Direction, Place};
use super::datagram::Datagrams;
use super::rings::Parcel;
use super::state::{Socket, State};
use super::stream::Stream;
use super::{Env, Rings};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::ring::FlowId;
use crate::time::Instant;

/// Who uses a socket, and is not whom its ring is for.
#[derive(Debug, Default)]
pub struct Stranger {
    place: Option<Place>,
    /// Calls in a row.
    calls: u32,
}

impl Stranger {
    /// One call more from there. Whether that was one more than `ratio` of them.
    pub fn calls(&mut self, from: Place, ratio: u32) -> bool {
        if self.place != Some(from) {
            *self = Self { place: Some(from), calls: 0 };
        }
        self.calls = self.calls.saturating_add(1);
        self.calls > ratio
    }

    /// The ring's own place has used it, or it has moved.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Where a connection is.
#[derive(Debug)]
pub(super) enum Home {
    /// In a ring.
    Ring(FlowId),
    /// Between two rings of one device, by their numbers.
    Between {
        /// It. (`None` only while it is being handed over.)
        parcel: Option<Parcel>,
        /// Where it comes from, and goes to if there is room.
        from: u16,
        to: u16,
    },
}

impl Socket {
    /// A call uses the connection: it may be the one by which it goes over to the caller's ring.
    pub(super) fn note_use(&mut self, env: &mut Env<'_>, direction: Direction) {
        let allocation = self.setup.allocation;
        let (State::Connected(stream), true) = (&mut self.state, allocation.counts(Direction::Rx) || allocation.counts(Direction::Tx))
        else {
            return;
        };
        let Home::Ring(flow) = stream.home else { return };
        let Some(link) = env.choice.link_of(flow.ring) else { return };
        // (One flow serves both directions; whose calls are counted is up to each direction's logic and ratio.)
        let place = allocation.home(self.id, stream.local.ip(), env.caller);
        if env.choice.known(link, place) == Some(flow.ring) {
            if !env.choice.is(Mutant::OwnCallsForgotten) {
                stream.stranger.forget();
            }
            return;
        }
        let Some(ratio) = env.choice.ratio(direction).filter(|_| allocation.counts(direction)) else { return };
        if !stream.stranger.calls(place, ratio) {
            return;
        }
        let to = env.choice.ring(link, place).filter(|to| *to != flow.ring);
        // (Where its rule does not steer yet, one of the next calls takes it.)
        if to.is_some() && !env.rings.at(flow.ring).is_some_and(|ring| ring.may_leave(flow)) {
            return;
        }
        stream.stranger.forget();
        if let Some(to) = to {
            stream.depart(env, flow, to);
        }
    }

    /// Hands its connection, or its address as a datagram socket, over to another ring of the same link, now: what a thread does that is about to use it for
    /// long.
    ///
    /// # Errors
    /// Of a connection: [`Error::NotConnected`]: there is none, or it is between two rings; [`Error::Invalid`]: that ring is on another link, or is none;
    /// [`Error::NoBuffers`]: there is no room, and it is where it was, or between ([`Socket::settle`]); [`Error::WouldBlock`]: its rule does not
    /// steer yet. Of a datagram socket: [`Error::NoBuffers`]: it is not in one ring of that link, or stays where it is.
    pub fn migrate(&mut self, env: &mut Env<'_>, to: u16) -> Result<(), Error> {
        self.settle(env);
        if let State::Datagram(Datagrams { homes, flows, .. }) = &mut self.state {
            return if homes.go(env, to, flows) { Ok(()) } else { Err(Error::NoBuffers) };
        }
        let State::Connected(stream) = &mut self.state else { return Err(Error::NotConnected) };
        let Home::Ring(flow) = stream.home else { return Err(Error::NotConnected) };
        let links = [flow.ring, to].map(|number| env.choice.link_of(number));
        if links[0].is_none() || links[0] != links[1] {
            return Err(Error::Invalid);
        }
        if !env.rings.at(flow.ring).is_some_and(|ring| ring.may_leave(flow)) {
            return Err(Error::WouldBlock);
        }
        if flow.ring != to {
            stream.depart(env, flow, to);
        }
        match &stream.home {
            Home::Ring(flow) if flow.ring == to => Ok(()),
            _ => Err(Error::NoBuffers),
        }
    }
}

impl Stream {
    /// Leaves its ring for another one of its device.
    fn depart(&mut self, env: &mut Env<'_>, flow: FlowId, to: u16) {
        let Some(Ok(parcel)) = env.rings.at(flow.ring).map(|ring| ring.detach(env.now, flow)) else { return };
        self.home = Home::Between { parcel: Some(parcel), from: flow.ring, to };
        self.land(env);
    }

    /// Finds a ring, if it has none: the one that it goes to, or else the one that it comes from. Whether it has one.
    pub(super) fn land(&mut self, env: &mut Env<'_>) -> bool {
        let Home::Between { parcel, from, to } = &mut self.home else { return true };
        let Some(mut parcel) = parcel.take() else { return false };
        let (from, to) = (*from, *to);
        let targets = if env.choice.is(Mutant::NoWayBack) { [to, to] } else { [to, from] };
        for number in targets {
            match adopt(env.rings, env.now, number, parcel) {
                Ok(flow) => {
                    self.home = Home::Ring(flow);
                    self.migrations += u64::from(number == to);
                    return true;
                }
                Err(back) => parcel = back,
            }
        }
        let parcel = Some(parcel).filter(|_| !env.choice.is(Mutant::ParcelDropped));
        self.home = Home::Between { parcel, from, to };
        false
    }
}

fn adopt(rings: &mut dyn Rings, now: Instant, number: u16, parcel: Parcel) -> Result<FlowId, Parcel> {
    let Some(ring) = rings.at(number) else { return Err(parcel) };
    ring.adopt(now, parcel).map_err(|(_, parcel)| parcel)
}
