//! Where Ringway and Linux differ, and may.

use ringway_conformance::reference::lockstep::{Difference, Outcome, Verdict, Where};
use ringway_conformance::reference::program::{Op, Role};
use ringway_conformance::reference::sockets::Errno;

/// A difference that is known.
pub(crate) struct Known {
    /// Its name.
    pub(crate) id: &'static str,
    /// Why it is no bug.
    pub(crate) reason: &'static str,
    /// Whether the worlds go on alike.
    pub(crate) goes_on: bool,
    /// Whether a difference is this one.
    pub(crate) applies: fn(&Difference<'_>) -> bool,
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        id: "udp-more",
        reason: "MSG_MORE on a UDP socket corks Linux's datagram; Ringway sends it at once (the flag is a hint that it may ignore)",
        goes_on: false,
        applies: |d| matches!(d.step().op, Op::Send(slot, _, true) if d.step().roles[slot.index()] == Some(Role::Datagram)),
    },
    Known {
        id: "port-still-used",
        reason: "Linux keeps a port from others while a connection that nobody has open any more, or one that was accepted, uses it; \
                 Ringway tells connections apart by both addresses, and leaves the port to who asks",
        goes_on: false,
        applies: |d| {
            matches!(d.step().op, Op::Bind(..) | Op::Listen(..))
                && d.at == Where::Outcome
                && d.step().kernel.outcome == Outcome::Returned(Err(Errno::IN_USE), None)
                && d.step().sim.outcome == Outcome::Returned(Ok(0), None)
        },
    },
    Known {
        id: "shutdown-before-connect",
        reason: "Linux refuses to shut down a TCP socket that isn't connected (ENOTCONN), and yet remembers it for the connection \
                 that follows; Ringway's starts afresh",
        goes_on: false,
        applies: |d| {
            let shut_early = |op: &Op| matches!(op, Op::Shutdown(..));
            let step = d.step();
            matches!(step.op, Op::Connect(slot, _) | Op::Listen(slot, _) if d.steps.iter().any(|s| shut_early(&s.op) && s.op.slot() == Some(slot)
                && s.roles[slot.index()] == Some(Role::Fresh)))
        },
    },
];

/// How often each was met.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) Vec<usize>);

impl Usage {
    pub(crate) fn new() -> Self {
        Self(vec![0; KNOWN.len()])
    }

    /// Whether a difference is listed.
    pub(crate) fn judge(&mut self, difference: &Difference<'_>) -> Verdict {
        match KNOWN.iter().position(|known| (known.applies)(difference)) {
            None => Verdict::Bug,
            Some(index) => {
                self.0[index] += 1;
                if KNOWN[index].goes_on { Verdict::Known } else { Verdict::KnownAndOver }
            }
        }
    }

    /// A line for each.
    pub(crate) fn print(&self) {
        for (known, count) in KNOWN.iter().zip(&self.0) {
            println!("{count:>6} x {}: {}", known.id, known.reason);
        }
    }
}
