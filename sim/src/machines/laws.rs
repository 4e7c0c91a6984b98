//! In which order what a socket has is taken, as an observer sees it who is called whenever something has come, and knows nothing of time stamps.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use ringway_stack::Instant;
use ringway_stack::ring::FlowId;

use super::beside::Beside;
use super::{Told, breach};
use crate::machine::Ports;

/// Datagrams of one poll have times that are nanoseconds apart, and so are those of polls at one time.
const SLACK: Duration = Duration::from_micros(1);

/// What waits with a socket, by its flows, and since when; and with the kernel's part of it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    flows: BTreeMap<FlowId, VecDeque<(Instant, Option<FlowId>)>>,
    /// How much each flow had ever received.
    counted: BTreeMap<FlowId, u64>,
    kernel_since: Option<Instant>,
}

/// What was taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// A connection, from a listener's flow.
    Connection(FlowId),
    /// A datagram, from that flow.
    Datagram(FlowId),
    Kernel,
}

impl Waiting {
    /// Notes what has come to a listener.
    pub(super) fn see_connections(&mut self, now: Instant, ports: &mut Ports<'_>, listener: &[FlowId]) {
        for &flow in listener {
            let children = ports.ring(flow.ring).tcp_waiting(flow);
            let known = self.flows.entry(flow).or_default();
            known.retain(|(_, child)| child.is_some_and(|child| children.contains(&child)));
            for child in children {
                if !known.iter().any(|(_, known)| *known == Some(child)) {
                    known.push_back((now, Some(child)));
                }
            }
        }
    }

    /// Notes what has come to a datagram socket.
    pub(super) fn see_datagrams(&mut self, now: Instant, ports: &mut Ports<'_>, socket: &[FlowId]) {
        for &flow in socket {
            let Some(info) = ports.ring(flow.ring).info(flow) else { continue };
            let counted = self.counted.entry(flow).or_default();
            let new = info.counters.rx_packets - core::mem::replace(counted, info.counters.rx_packets);
            self.flows.entry(flow).or_default().extend((0..new).map(|_| (now, None)));
        }
    }

    /// The socket is about to be asked: what the kernel has is found, if it was not before. Whether there is anything at all.
    pub(super) fn asks(&mut self, now: Instant, kernel: Option<&Beside>) -> bool {
        let waits = kernel.is_some_and(|kernel| kernel.waiting() > 0);
        self.kernel_since = waits.then(|| self.kernel_since.unwrap_or(now));
        waits || self.flows.values().any(|flow| !flow.is_empty())
    }

    /// It was asked, and told of an error instead: the kernel has not been looked at.
    pub(super) const fn failed(&mut self, before: Option<Instant>) {
        self.kernel_since = before;
    }

    /// Since when the kernel is known to have something.
    pub(super) const fn kernel_since(&self) -> Option<Instant> {
        self.kernel_since
    }

    /// That was taken. Was it the first to come?
    pub(super) fn taken(&mut self, taken: Taken, told: &mut Told) {
        let at = match taken {
            Taken::Kernel => {
                told.by_kernel += 1;
                self.kernel_since.take().unwrap_or_else(|| breach("the kernel had nothing"))
            }
            Taken::Datagram(flow) => {
                told.datagrams += 1;
                let waiting = self.flows.get_mut(&flow).and_then(VecDeque::pop_front);
                waiting.unwrap_or_else(|| breach(format_args!("a datagram of {flow:?}, to which none came"))).0
            }
            Taken::Connection(child) => {
                told.accepted += 1;
                let is_it = |flow: &&mut VecDeque<(Instant, Option<FlowId>)>| flow.front().is_some_and(|(_, of)| *of == Some(child));
                let waiting = self.flows.values_mut().find(is_it).and_then(VecDeque::pop_front);
                waiting.unwrap_or_else(|| breach(format_args!("{child:?} was accepted, and was not the first in any ring"))).0
            }
        };
        let others = self.flows.values().filter_map(|flow| flow.front()).map(|(since, _)| *since).chain(self.kernel_since);
        let Some(first) = others.min() else { return };
        told.merged += 1;
        if first + SLACK < at {
            let late = at.since(first);
            breach(format_args!("{taken:?} was taken before what had come {late:?} earlier"));
        }
    }
}
