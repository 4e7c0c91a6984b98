//! Where Ringway and Linux differ, and may.

use ringway_conformance::reference::lockstep::{Difference, Outcome, Step, Verdict};
use ringway_conformance::reference::program::{Op, Role};
use ringway_conformance::reference::sockets::{Errno, Slot};

/// A difference that is known. Nothing after it is compared.
pub(crate) struct Known {
    /// Its name.
    pub(crate) id: &'static str,
    /// Why it is no bug.
    pub(crate) reason: &'static str,
    /// Whether a difference is this one.
    pub(crate) applies: fn(&Difference<'_>) -> bool,
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        id: "udp-more",
        reason: "udp(7): MSG_MORE gathers what follows into one datagram. The ring sends each at once: only the kernel corks datagrams",
        applies: |d| d.steps.iter().any(corks_datagram),
    },
    Known {
        id: "no-fragments",
        reason: "the ring neither cuts a datagram into IP fragments nor puts them together: one that is longer than the MTU is EMSGSIZE",
        applies: |d| {
            d.step().sim.outcome == Outcome::Returned(Err(Errno::MESSAGE_TOO_LONG), None)
                && matches!(d.step().op, Op::Send(_, len, _) | Op::SendTo(_, len, _) if len > 1452)
        },
    },
    Known {
        id: "udp-disconnect-port",
        reason: "a UDP socket that was disconnected gives its port back: the kernel's placeholder does, its ring socket goes on taking what \
                 comes for the old one until it has another",
        applies: |d| d.steps.iter().any(|step| matches!(step.op, Op::Disconnect(slot) if role(step, slot) == Some(Role::Datagram))),
    },
    Known {
        id: "port-still-used",
        reason: "Linux keeps a port from others while a connection that nobody has open any more, or one that was accepted, uses it; \
                 Ringway tells connections apart by both addresses, and leaves the port to who asks",
        applies: |d| {
            matches!(d.step().op, Op::Bind(..) | Op::Listen(..))
                && d.step().kernel.outcome == Outcome::Returned(Err(Errno::IN_USE), None)
                && d.step().sim.outcome == Outcome::Returned(Ok(0), None)
        },
    },
    Known {
        id: "time-wait-second",
        reason: "Linux lets a bound socket connect with the addresses of a TIME-WAIT at once; Ringway, until a second has passed, doesn't: \
                 without a tick of the timestamps, an old duplicate could be read as the new stream (RFC 6191 s2; the simulator's seed 14324)",
        applies: |d| {
            matches!(d.step().op, Op::Connect(..))
                && d.step().kernel.outcome == Outcome::Returned(Err(Errno::IN_PROGRESS), None)
                && d.step().sim.outcome == Outcome::Returned(Err(Errno::NOT_AVAILABLE), None)
        },
    },
    Known {
        id: "early-shutdown",
        reason: "Linux refuses to shut down a TCP socket that isn't connected (ENOTCONN), and yet remembers it for the connection \
                 that follows, or for those that it accepts; Ringway's start afresh",
        applies: |d| {
            let goes_on = |op: Op, to_be: Slot| matches!(op, Op::Connect(slot, _) | Op::Listen(slot, _) if slot == to_be);
            d.steps.iter().enumerate().any(|(index, step)| match step.op {
                Op::Shutdown(slot, _) => {
                    role(step, slot) == Some(Role::Fresh) && d.steps[index..].iter().any(|later| goes_on(later.op, slot))
                }
                _ => false,
            })
        },
    },
];

fn role(step: &Step, slot: Slot) -> Option<Role> {
    step.roles[slot.index()]
}

fn corks_datagram(step: &Step) -> bool {
    let datagram = |slot| role(step, slot) == Some(Role::Datagram);
    matches!(step.op, Op::Send(slot, _, true) if datagram(slot)) && matches!(step.sim.outcome, Outcome::Returned(Ok(_), _))
}

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
                Verdict::Known
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
