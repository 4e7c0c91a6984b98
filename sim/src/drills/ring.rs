//! Drills of all that is not TCP's own: sockets and their calls, neighbours, groups, errors, frames of every kind, and what is given back.
//!
//! Each walks through a page of the sockets API or a section of an RFC with what its seed draws, beside a model of what must come of it.

mod adapter;
mod calls;
mod dummies;
mod errors;
mod frames;
mod groups;
mod host;
mod ipv6;
mod kept;
mod listeners;
mod moves;
mod names;
mod neighbours;
mod queues;
mod rates;
mod reports;
mod steering;
mod streams;
mod waiting;

use super::Drill;
use super::bench::Bench;

pub(super) const DRILLS: &[Drill] = &[
    ("a queue of datagrams", queues::reading),
    ("a queue whose reader never catches up", queues::behind),
    ("a queue that is lent from", queues::lending),
    ("a receive filter before a queue", queues::filtering),
    ("a buffer that several queues are read into", queues::cyclic),
    ("halves that are shut", calls::halves),
    ("datagrams of every size", calls::sizes),
    ("datagrams that nobody takes", calls::refused),
    ("one peer after another", calls::peers),
    ("sockets that share an address", calls::sharers),
    ("names of closed sockets", names::closed),
    ("a table of sockets that is full", names::full),
    ("options of a listener", names::inherited),
    ("errors for datagrams", errors::told),
    ("errors for connection attempts", errors::attempts),
    ("a path that was too small once", errors::remembered),
    ("datagrams for closed ports", errors::closed_ports),
    ("pings of every length", errors::pings),
    ("frames with datagrams", frames::datagrams),
    ("frames with segments", frames::segments),
    ("members of groups", groups::members),
    ("what a sender of a group hears", groups::loops),
    ("reports of membership", reports::reports),
    ("questions about some groups", reports::questions),
    ("who asks for an address", neighbours::asked),
    ("a neighbour that moves", neighbours::moved),
    ("several neighbours that are unknown", neighbours::several),
    ("a MAC address that changes", neighbours::readdressed),
    ("a connection that moves", moves::moves),
    ("a connection that comes back", moves::returns),
    ("sockets whose receiving side is shut down", moves::rx_shutdown),
    ("buffers that are used up", moves::buffers),
    ("a receive filter before a stream", moves::filtered),
    ("sends that send nothing", dummies::dummies),
    ("frames in the device's memory", dummies::memory),
    ("connections that nobody accepts", waiting::unaccepted),
    ("connections in a TIME-WAIT's place", waiting::followers),
    ("a neighbour that falls silent", neighbours::silent),
    ("as many groups as there may be", reports::limit),
    ("a path that is asked for again and again", errors::believed),
    ("who asks for an address of IPv6", ipv6::solicited),
    ("a neighbour of IPv6", ipv6::resolved),
    ("errors and pings of IPv6", ipv6::messages),
    ("datagrams of IPv6", ipv6::datagrams),
    ("a path of IPv6 that is too small", ipv6::too_big),
    ("a listener whose connections outlive it", steering::accepted),
    ("a connection that waits for its rule", steering::opening),
    ("frames with flow tags", steering::tags),
    ("datagrams with flow tags", steering::datagram_tags),
    ("a connection that moves with its rule", steering::moved),
];

/// Those that came later than all others.
pub(super) const LATER: &[Drill] = &[
    ("sockets with rates of their own", rates::rates),
    ("who listens to groups of IPv6", listeners::reports),
    ("questions about groups of IPv6", listeners::questions),
    ("members of groups that want some sources", listeners::sources),
    ("a connection whose rate its ring keeps", kept::kept),
    ("what a rate holds back, and what it does not", kept::beside),
];

type Host<'b> = host::Host<'b>;

fn host(bench: &mut Bench) -> Host<'_> {
    Host::new(bench, host::Link::Direct)
}
