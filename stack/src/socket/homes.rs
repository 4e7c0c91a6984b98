//! Datagram sockets that are in one ring of a link go over to another's as connections do ([`super::migrate`]): once another thread, or core, has used them alone for so
//! many calls.
//!
//! A flow in the new ring takes over the address, and the device moves the rule; the flow before is closed when it has been read to its end, and until then
//! what waits there comes first. So datagrams are read in the order in which they came, each once. A socket goes over again only when that has been done.
//! Where the new ring has no room, or the rule cannot be moved, all stays as it was.
//!
//! A receive is a call on all of a socket's links, as all are looked at; a send is one on the link that it goes by. What cannot go stays
//! ([`crate::ring::Ring::udp_may_leave`]).

use core::net::IpAddr;

use super::choice::{Direction, Place};
use super::migrate::Stranger;
use super::state::Setup;
use super::{Choice, Env, SocketId};
use crate::mutants::Mutant;
use crate::net::LinkId;
use crate::ring::FlowId;

/// Where a socket is that is in one ring of each link.
#[derive(Debug, Default)]
pub(super) struct Homes {
    all: Vec<Home>,
    /// How often it went over to another ring.
    pub(super) migrations: u64,
}

/// On one link.
#[derive(Debug)]
struct Home {
    link: LinkId,
    /// The flow to which datagrams come.
    flow: FlowId,
    /// The one before, as long as it has something to be read.
    former: Option<FlowId>,
    stranger: Stranger,
}

impl Homes {
    /// Of a socket that has those flows, one on each link.
    pub(super) fn new(flows: &[FlowId], choice: &Choice) -> Self {
        let home = |&flow: &FlowId| {
            let link = choice.link_of(flow.ring)?;
            Some(Home { link, flow, former: None, stranger: Stranger::default() })
        };
        Self { all: flows.iter().filter_map(home).collect(), migrations: 0 }
    }

    /// Whether that flow is only read to its end.
    pub(super) fn is_former(&self, flow: FlowId) -> bool {
        self.all.iter().any(|home| home.former == Some(flow))
    }

    /// Whether there is such a flow.
    pub(super) fn have_formers(&self) -> bool {
        self.all.iter().any(|home| home.former.is_some())
    }

    /// Whether what waits in that flow has to wait for what came before to the one in whose place it is.
    pub(super) fn waits(&self, env: &mut Env<'_>, flow: FlowId) -> bool {
        if env.choice.is(Mutant::NewFlowFirst) {
            let has_some = |flow: FlowId, env: &mut Env<'_>| env.rings.at(flow.ring).is_some_and(|ring| ring.arrived(flow).is_some());
            return self.all.iter().any(|home| home.former == Some(flow) && has_some(home.flow, env));
        }
        self.all.iter().any(|home| home.flow == flow && home.former.is_some())
    }

    /// A datagram was read from a flow: if that is a former one, there is more room in the one in its place.
    pub(super) fn was_read(&self, env: &mut Env<'_>, flow: FlowId, len: usize) {
        if let Some(home) = self.all.iter().find(|home| home.former == Some(flow))
            && let Some(ring) = env.rings.at(home.flow.ring)
        {
            ring.give_back(env.now, home.flow, len);
        }
    }

    /// Closes the flows that have been read to their end.
    pub(super) fn close_formers(&mut self, env: &mut Env<'_>, flows: &mut Vec<FlowId>) {
        for home in &mut self.all {
            let Some(former) = home.former else { continue };
            let is_empty = env.rings.at(former.ring).is_none_or(|ring| ring.arrived(former).is_none());
            if is_empty || env.choice.is(Mutant::FormerFlowClosed) {
                if let Some(ring) = env.rings.at(former.ring) {
                    ring.close(env.now, former, false);
                }
                flows.retain(|flow| *flow != former);
                home.former = None;
            }
        }
    }

    /// A call uses the socket on one link, or on all: it may be the one by which it goes over to the caller's ring.
    pub(super) fn note_use(
        &mut self,
        env: &mut Env<'_>,
        (setup, id, bound): (&Setup, SocketId, IpAddr),
        (direction, link): (Direction, Option<LinkId>),
        flows: &mut Vec<FlowId>,
    ) {
        if self.all.is_empty() || !setup.allocation.counts(direction) {
            return;
        }
        // (One flow serves both directions; whose calls are counted is up to each direction's logic and ratio.)
        let Some(ratio) = env.choice.ratio(direction) else { return };
        // (Where nothing is left, it may go on.)
        self.close_formers(env, flows);
        let place = setup.allocation.home(id, bound, env.caller);
        for home in self.all.iter_mut().filter(|home| link.is_none_or(|link| link == home.link)) {
            if let Some(to) = home.is_due(env, place, ratio) {
                self.migrations += u64::from(home.go(env, to, flows));
            }
        }
    }

    /// Goes over to that ring, where the socket has a flow on its link. Whether it is there.
    pub(super) fn go(&mut self, env: &mut Env<'_>, to: u16, flows: &mut Vec<FlowId>) -> bool {
        self.close_formers(env, flows);
        let link = env.choice.link_of(to);
        let Some(home) = self.all.iter_mut().find(|home| Some(home.link) == link) else { return false };
        if home.flow.ring == to {
            return true;
        }
        let goes = home.may_go(env) && home.go(env, to, flows);
        self.migrations += u64::from(goes);
        goes
    }
}

impl Home {
    /// Counts a call from that place, and says to which ring it makes the socket go over.
    fn is_due(&mut self, env: &mut Env<'_>, place: Place, ratio: u32) -> Option<u16> {
        if env.choice.known(self.link, place) == Some(self.flow.ring) {
            self.stranger.forget();
            return None;
        }
        if !self.stranger.calls(place, ratio) {
            return None;
        }
        let to = env.choice.ring(self.link, place).filter(|to| *to != self.flow.ring);
        // (What was before has yet to be read, or something else keeps it here: one of the next calls takes it.)
        if to.is_some() && !self.may_go(env) {
            return None;
        }
        self.stranger.forget();
        to
    }

    fn may_go(&self, env: &mut Env<'_>) -> bool {
        self.former.is_none() && env.rings.at(self.flow.ring).is_some_and(|ring| ring.may_leave(self.flow))
    }

    /// Goes over to another ring of its link, if that takes it. Whether it does.
    fn go(&mut self, env: &mut Env<'_>, to: u16, flows: &mut Vec<FlowId>) -> bool {
        let former = self.flow;
        let Some(Ok(parcel)) = env.rings.at(former.ring).map(|ring| ring.hand_over(former)) else { return false };
        let taken = match env.rings.at(to) {
            Some(ring) => ring.take_over(parcel).map_err(|(_, parcel)| parcel),
            None => Err(parcel),
        };
        let flow = match taken {
            Ok(flow) => flow,
            Err(parcel) => {
                if let Some(ring) = env.rings.at(former.ring) {
                    ring.take_back(former, parcel);
                }
                return false;
            }
        };
        // What had come before the rule was moved is all that comes to the former one.
        let filled = env.rings.at(former.ring).map_or(0, |ring| ring.come_to(env.now, former));
        if let Some(ring) = env.rings.at(to) {
            ring.count_elsewhere(flow, filled);
        }
        (self.flow, self.former) = (flow, Some(former));
        flows.push(flow);
        true
    }
}
