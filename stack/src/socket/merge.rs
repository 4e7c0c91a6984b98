//! Which of a socket's flows has its turn.

use super::Rings;
use super::kernel::Beside;
use crate::flow::Readiness;
use crate::mutants::{Mutant, Mutation};
use crate::ring::FlowId;
use crate::time::Instant;

/// Where something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Flow(FlowId),
    Kernel,
}

/// Where what came first waits; a pending error comes before that, as on Linux.
pub(super) fn next(
    rings: &mut dyn Rings,
    flows: &[FlowId],
    beside: Option<&mut Beside>,
    now: Instant,
    mutation: Mutation,
) -> Option<Source> {
    // (There is nothing to choose between: its own call says what there is.)
    if let (&[flow], None) = (flows, &beside) {
        return Some(Source::Flow(flow));
    }
    let mut first = first_waiting(rings, flows.iter().copied(), mutation).map(|(at, flow)| (at, Source::Flow(flow)));
    if let Some(at) = beside.and_then(|beside| beside.arrived(now))
        && first.is_none_or(|(before, _)| at < before && !mutation.is(Mutant::KernelLast))
    {
        first = Some((at, Source::Kernel));
    }
    first.map(|(_, source)| source)
}

/// Of several flows, the one where what came first waits, or an error. `None`: nothing waits anywhere.
pub fn first_of(rings: &mut dyn Rings, flows: impl IntoIterator<Item = FlowId>) -> Option<FlowId> {
    first_waiting(rings, flows, Mutation::HEALTHY).map(|(_, flow)| flow)
}

/// The same, and since when it waits. (An error does since ever.)
fn first_waiting(rings: &mut dyn Rings, flows: impl IntoIterator<Item = FlowId>, mutation: Mutation) -> Option<(Instant, FlowId)> {
    let mut first: Option<(Instant, FlowId)> = None;
    for flow in flows {
        let Some(ring) = rings.at(flow.ring) else { continue };
        if ring.readiness(flow).contains(Readiness::ERR) {
            return Some((Instant::ZERO, flow));
        }
        let Some(at) = ring.arrived(flow) else { continue };
        if mutation.is(Mutant::FirstRingFirst) {
            return Some((Instant::ZERO, flow));
        }
        if first.is_none_or(|(before, _)| at < before) {
            first = Some((at, flow));
        }
    }
    first
}

/// What several flows, and the kernel's part, are ready for together: reading and writing if one is; ended if all are.
pub(super) fn readiness(rings: &mut dyn Rings, flows: &[FlowId], beside: Option<&Beside>, mutation: Mutation) -> Readiness {
    const ANY: Readiness = Readiness::IN.union(Readiness::OUT).union(Readiness::ERR);
    let (mut any, mut all) = (Readiness::empty(), Readiness::all());
    for flow in flows {
        let ready = rings.at(flow.ring).map_or(Readiness::ERR | Readiness::HUP, |ring| ring.readiness(*flow));
        (any, all) = (any | ready, all & ready);
        if mutation.is(Mutant::ReadinessOfOne) {
            break;
        }
    }
    if let Some(beside) = beside {
        let ready = beside.part.readiness();
        any |= ready & (Readiness::IN | Readiness::ERR);
        if flows.is_empty() {
            return ready;
        }
    }
    (any & ANY) | (all - ANY)
}
