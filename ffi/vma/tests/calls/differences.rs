//! Where Ringway and Linux differ, and may.

use crate::lockstep::{Done, Where};
use crate::program::{DupBy, Op, Role, Target};
use crate::translate::Detail;

/// A difference that is known. Nothing after it is compared.
pub(crate) struct Known {
    /// Its name.
    pub(crate) id: &'static str,
    /// Why it is no bug.
    pub(crate) reason: &'static str,
    /// Whether a difference at the last of the steps is this one.
    pub(crate) applies: fn(&[Done], Where) -> bool,
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        id: "killed",
        reason: "the kernel ends the connections of a killed process as close(2) would; of a killed owner of a ring nobody is left to, and \
                 its peers see a reset",
        applies: |steps, at| in_sight(at) && steps.iter().any(|done| ends(done, &Op::Kill)),
    },
    Known {
        id: "exited-unread",
        reason: "of a process that ends with bytes unread the kernel resets the connection, and what it had sent may be lost with it; \
                 Ringway ends it in order",
        applies: |steps, at| {
            in_sight(at) && (1..steps.len()).any(|i| ends(&steps[i], &Op::Exit) && has_unread(&steps[i - 1], steps[i].step.0))
        },
    },
    Known {
        id: "early-shutdown",
        reason: "Linux refuses to shut down a socket that isn't connected (ENOTCONN), and yet remembers it for readiness and for the \
                 connection that follows, or for those that it accepts; Ringway's start afresh",
        applies: |steps, at| {
            let refused = |done: &Done| done.kernel.returned.values().any(|outcome| outcome.error == libc::ENOTCONN);
            in_sight(at) && steps.iter().any(|done| matches!(done.step.2, Op::Shutdown(..)) && refused(done))
        },
    },
    Known {
        id: "disconnected",
        reason: "a stream that is disconnected, by AF_UNSPEC or by a second connect(2) that tells why the first failed: Linux leaves \
                 ECONNRESET to be asked for, and goes on showing the port that it gave back without the address; Ringway's socket is as new",
        applies: |steps, at| {
            steps.iter().any(|done| match done.step.2 {
                Op::Connect(slot, Target::Nobody) => role(done, slot) == Some(Role::Stream),
                Op::Connect(slot, _) => matches!(at, Where::Local(..)) && role(done, slot) == Some(Role::Stream),
                _ => false,
            })
        },
    },
    Known {
        id: "closed-in-use",
        reason: "a call that waits when another thread closes its last descriptor goes on in Linux, and the socket with it; with Ringway the \
                 socket ends and the call fails with EBADF",
        applies: |steps, _| steps.iter().any(closes_in_use),
    },
    Known {
        id: "bound-after-reset",
        reason: "Linux lets an accepted connection that was reset be bound as a new socket may; Ringway, which never connects it again, doesn't",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            matches!(at, Where::Outcome(_) | Where::Local(..))
                && matches!(last.step.2, Op::Bind(slot, _) if role(last, slot) == Some(Role::Stream))
                && last.kernel.returned.values().all(|outcome| outcome.error != libc::EINVAL)
        },
    },
    Known {
        id: "told-by-one-half",
        reason: "an ICMP error that the kernel's half of a UDP socket has is told by the next call that goes to the kernel, not by one that \
                 the ring serves: asking each time would cost a system call a datagram",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            let Where::Outcome(who) = at else { return false };
            matches!(last.step.2, Op::Send(slot, ..) | Op::SendTo(slot, ..) | Op::Recv(slot, ..) if role(last, slot) == Some(Role::Datagram))
                && last.kernel.returned[&who].error == libc::ECONNREFUSED
                && last.ringway.returned[&who].error != libc::ECONNREFUSED
        },
    },
    Known {
        id: "gathered-unbound",
        reason: "Linux binds a UDP socket at the first piece of a datagram that MSG_MORE gathers, also if it has nowhere to go; Ringway when \
                 the whole is sent",
        applies: |steps, at| {
            let gathers =
                |done: &Done| matches!(done.step.2, Op::Send(slot, _, _, flags) if flags.more && role(done, slot) == Some(Role::Datagram));
            matches!(at, Where::Local(..)) && steps.iter().any(gathers)
        },
    },
    Known {
        id: "waits-on",
        reason: "a receive call that began to wait on a UDP socket before that had an address waits in the kernel; what another thread does \
                 to the socket after it got one, on the ring, does not end it",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            at == Where::Returned
                && matches!(last.step.2, Op::Shutdown(slot, _) if role(last, slot) == Some(Role::Datagram))
                && last.kernel.returned.len() == last.ringway.returned.len() + 1
        },
    },
    Known {
        id: "looks-on",
        reason: "MSG_PEEK with MSG_WAITALL: a signal ends Linux's wait once there is something to look at; with SA_RESTART, Ringway's goes on",
        applies: |steps, at| {
            let looks = |done: &Done| matches!(done.step.2, Op::Recv(_, _, _, flags) if flags.peek && flags.waitall);
            at == Where::Returned
                && matches!(steps.last().map(|done| &done.step.2), Some(Op::Interrupt(_, true)))
                && steps.iter().any(looks)
        },
    },
    Known {
        id: "part-of-a-set",
        reason: "a wait that finds something ready on the ring asks the kernel for its part, of the set or of a UDP socket, only every so often \
                 (VMA_SELECT_POLL_OS_RATIO): what it names is ready, but need not be all that is",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            match at {
                Where::Outcome(who) => {
                    let (kernel, ringway) = (&last.kernel.returned[&who], &last.ringway.returned[&who]);
                    ringway.result > 0 && is_part(&ringway.detail, &kernel.detail)
                }
                Where::Revents(process, slot) => {
                    let [kernel, ringway] = [&last.kernel, &last.ringway].map(|seen| seen.views[&(process, slot)].revents);
                    last.before.role(process, slot) == Some(Role::Datagram) && ringway != 0 && ringway & !kernel == 0
                }
                _ => false,
            }
        },
    },
];

/// Whether what one wait found is some of what another did.
fn is_part(some: &Detail, all: &Detail) -> bool {
    match (some, all) {
        (Detail::Ready(some), Detail::Ready(all)) => some.iter().zip(all).all(|(one, other)| one & !other == 0),
        (Detail::Events(some), Detail::Events(all)) => {
            some.iter().all(|(slot, events)| all.get(slot).is_some_and(|other| events & !other == 0))
        }
        _ => false,
    }
}

/// What the end of a connection shows in.
fn in_sight(at: Where) -> bool {
    !matches!(at, Where::Flags(..) | Where::Lowest(_))
}

fn role(done: &Done, slot: u8) -> Option<Role> {
    done.before.role(done.step.0, slot)
}

/// Whether the step ends a process in that way. (It may have no socket any more, and yet connections that it closed.)
fn ends(done: &Done, how: &Op) -> bool {
    done.step.2 == *how && !done.before.descriptions.is_empty()
}

/// Whether a process had bytes to read when the step was over.
fn has_unread(done: &Done, process: u8) -> bool {
    done.kernel.views.iter().any(|(&(of, _), view)| of == process && view.unread.is_ok_and(|count| count > 0))
}

/// Whether the step closes a description's last descriptor, with a call under way somewhere in the process.
fn closes_in_use(done: &Done) -> bool {
    let (Op::Close(slot) | Op::Dup(_, DupBy::Onto(slot) | DupBy::Exactly(slot))) = done.step.2 else { return false };
    let Some(entry) = done.before.entry(done.step.0, slot) else { return false };
    let same = |other: u8| done.before.entry(done.step.0, other).is_some_and(|other| other.description == entry.description);
    let last = done.before.open(done.step.0).filter(|&(other, _)| same(other)).count() == 1;
    last && done.before.busy.iter().any(|&(process, _)| process == done.step.0)
}

/// The place in [`KNOWN`] of a difference.
pub(crate) fn judge(steps: &[Done], at: Where) -> Option<usize> {
    KNOWN.iter().position(|known| (known.applies)(steps, at))
}
