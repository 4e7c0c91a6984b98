//! The threads that use a datagram socket in turn, and the law of where it is then.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ringway_stack::net::LinkId;
use ringway_stack::ring::FlowId;
use ringway_stack::socket::{Caller, Choice, Place, Rings};

use super::network::Links;
use super::{Plan, Told, breach};
use crate::machine::Ports;
use crate::random::{SplitMix, scale};

/// Who uses the socket, and who has used it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    thread: u64,
    /// For how many calls yet.
    burst: u64,
    /// By link: the thread that has used it alone since its ring's own, and how often.
    strangers: BTreeMap<LinkId, (u64, u32)>,
    /// The last datagram that was read of those between two addresses that one ring sent. (Between those of several rings, devices keep no order.)
    last: BTreeMap<(SocketAddr, IpAddr, u16), u32>,
}

/// Where the socket was on a link before a call.
#[derive(Debug)]
pub(super) struct Was {
    link: LinkId,
    /// Its flow, and whether the call is the one by which it goes over.
    flow: FlowId,
    is_due: bool,
    own: Option<u16>,
}

impl Turns {
    /// Who calls next.
    pub(super) fn next_caller(&mut self, dice: &mut SplitMix, plan: &Plan) -> Caller {
        if self.burst == 0 {
            self.burst = 1 + scale(dice.next(), 12);
            self.thread = scale(dice.next(), plan.threads);
        }
        self.burst -= 1;
        Caller { thread: self.thread, core: 0 }
    }

    /// A call is about to be made, on one link or on all: where the socket is there, and whether it goes.
    pub(super) fn before(
        &mut self,
        ports: &mut Ports<'_>,
        choice: &Choice,
        plan: &Plan,
        (flows, link): (&[FlowId], Option<LinkId>),
    ) -> Vec<Was> {
        if plan.spreads {
            return Vec::new();
        }
        let links = (0..plan.links).map(Links::id).filter(|of| link.is_none_or(|link| link == *of));
        links.filter_map(|link| self.before_on(ports, choice, plan, (flows, link))).collect()
    }

    fn before_on(&mut self, ports: &mut Ports<'_>, choice: &Choice, plan: &Plan, (flows, link): (&[FlowId], LinkId)) -> Option<Was> {
        let mut there: Vec<FlowId> = flows.iter().copied().filter(|flow| choice.link_of(flow.ring) == Some(link)).collect();
        // (The one that it has left is before the one in its place, and hinders nobody once it is empty.)
        if there.len() == 2 && ports.ring(there[0].ring).udp_backlog(there[0]).is_none_or(|backlog| backlog.packets == 0) {
            there.remove(0);
        }
        let flow = *there.last()?;
        let own = choice.known(link, Place::Thread(self.thread));
        if own == Some(flow.ring) {
            self.strangers.remove(&link);
            return Some(Was { link, flow, is_due: false, own });
        }
        let stranger = self.strangers.entry(link).or_insert((self.thread, 0));
        if stranger.0 != self.thread {
            *stranger = (self.thread, 0);
        }
        stranger.1 += 1;
        let may_go = there.len() == 1 && ports.at(flow.ring).is_some_and(|ring| ring.may_leave(flow));
        Some(Was { link, flow, is_due: stranger.1 > plan.ratio && may_go, own })
    }

    /// It was made.
    pub(super) fn after(
        &mut self,
        (ports, choice): (&mut Ports<'_>, &Choice),
        plan: &Plan,
        (flows, was): (&[FlowId], Vec<Was>),
        told: &mut Told,
    ) {
        for Was { link, flow, is_due, own } in was {
            let now = flows.iter().rev().find(|flow| choice.link_of(flow.ring) == Some(link));
            let own = choice.known(link, Place::Thread(self.thread)).or(own);
            if is_due {
                self.strangers.remove(&link);
            }
            let may_stay = plan.flows_max < 100 || plan.refuses || own == Some(flow.ring);
            match now.map(|flow| flow.ring) {
                Some(ring) if is_due && Some(ring) == own && ring != flow.ring => {
                    told.moved += 1;
                    let waiting = ports.ring(flow.ring).udp_backlog(flow).map_or(0, |backlog| backlog.packets);
                    told.left_behind += waiting as u64;
                }
                // There may have been no room, or the rule was not moved.
                Some(ring) if is_due && ring == flow.ring && may_stay => told.kept += 1,
                Some(ring) if !is_due && ring == flow.ring => {}
                after => {
                    let was = if is_due { "due" } else { "not due" };
                    breach(format_args!("a datagram socket was in ring {}, and {was} to go to {own:?}; it is in {after:?}", flow.ring));
                }
            }
        }
    }

    /// A datagram was read: from there, to there, sent by that ring.
    pub(super) fn came(&mut self, way: (SocketAddr, IpAddr, u16), number: u32, plan: &Plan) {
        if let Some(last) = self.last.insert(way, number)
            && last >= number
            && !plan.is_lossy
        {
            breach(format_args!("datagram {number} is read after {last}, and both are of {way:?}, on a network that keeps all in order"));
        }
    }
}
