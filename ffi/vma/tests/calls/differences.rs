//! Where Ringway and Linux differ, and may.

use crate::lockstep::{Done, Seen, View, Where};
use crate::program::{DupBy, Entry, Op, Place, Question, Role, SLOTS, Setting, State, Step, Target};
use crate::translate::Detail;
use crate::world::Who;

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
        id: "gathered-and-shut",
        reason: "a datagram that MSG_MORE gathers while shutdown(2) ends the sending: Linux asks only at the first piece, and sends it after \
                 the shutdown; Ringway refuses the later pieces too, with EPIPE",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            let Where::Outcome(who) = at else { return false };
            let gathers =
                |done: &Done| matches!(done.step.2, Op::Send(slot, _, _, flags) if flags.more && role(done, slot) == Some(Role::Datagram));
            matches!(last.step.2, Op::Send(slot, ..) | Op::SendTo(slot, ..) if role(last, slot) == Some(Role::Datagram))
                && last.kernel.returned[&who].error == 0
                && last.ringway.returned[&who].error == libc::EPIPE
                && steps.iter().any(gathers)
                && steps.iter().any(|done| matches!(done.step.2, Op::Shutdown(..)))
        },
    },
    Known {
        id: "overtakes-itself",
        reason: "a UDP socket that sends to itself before it is known on the ring does so by the kernel, and is overtaken by what it sends next, by \
                 the ring: UDP promises no order (RFC 768), and to wait for the first would cost each socket's sends a system call",
        applies: |steps, at| {
            let Where::Unread(process, slot) = at else { return false };
            let last = steps.last().expect("there is a step");
            let unread = |seen: &Seen| seen.views.get(&(process, slot)).is_some_and(|view| view.unread.is_ok_and(|count| count > 0));
            let to_itself = |done: &Done| matches!(done.step.2, Op::SendTo(from, _, _, Target::Of(to, at) | Target::Of6(to, at)) if (done.step.0, from) == (to, at));
            role_at(steps, process, slot) == Some(Role::Datagram)
                && unread(&last.kernel)
                && unread(&last.ringway)
                && steps.iter().any(to_itself)
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
        id: "restarted-patience",
        reason: "SO_RCVTIMEO that another thread sets while a call waits for ever: when a handler with SA_RESTART has run, Linux begins the call \
                 again, which is given up after that time; Ringway's goes on as it began",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            at == Where::Returned
                && matches!(last.step.2, Op::Interrupt(_, true))
                && gives_up_alone(&last.kernel, &last.ringway)
                && steps.iter().any(sets_others_patience)
        },
    },
    Known {
        id: "moved-patience",
        reason: "SO_RCVTIMEO that another thread sets while a call waits for ever, whose connection then moves to the kernel for a fork's child: \
                 Linux's call goes on as it began; Ringway's goes on in the kernel, which gives it up after that time",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            at == Where::Returned
                && gives_up_alone(&last.ringway, &last.kernel)
                && steps.iter().any(sets_others_patience)
                && forks(steps).next().is_some()
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
    Known {
        id: "edge-again",
        reason: "to who watches a connection edge-triggered, and only for room, Linux tells of the room again when the peer's stream ends: its \
                 state's changes wake everybody; Ringway tells of what has changed",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            let is_end = matches!(last.step.2, Op::Shutdown(..) | Op::Close(_) | Op::Exit | Op::Kill);
            let only_room = |events: u32| {
                events & libc::EPOLLET as u32 != 0
                    && events & libc::EPOLLOUT as u32 != 0
                    && events & (libc::EPOLLIN | libc::EPOLLRDHUP) as u32 == 0
            };
            let more = match at {
                Where::Revents(process, slot) => {
                    let [kernel, ringway] = [&last.kernel, &last.ringway].map(|seen| seen.views[&(process, slot)].revents);
                    role_at(steps, process, slot) == Some(Role::Epoll) && ringway & !kernel == 0
                }
                Where::Returned => last.kernel.returned.len() > last.ringway.returned.len(),
                _ => false,
            };
            is_end && more && steps.iter().any(|done| matches!(done.step.2, Op::EpollCtl(.., events) if only_room(events)))
        },
    },
    Known {
        id: "untold-and-moved",
        reason: "a connection that failed before connect(2) was asked how it went, and then moved to the kernel for a fork's child: Linux's \
                 next connect tells why, what moved says that it is connected",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            let (Where::Outcome(who), Op::Connect(..)) = (at, &last.step.2) else { return false };
            last.ringway.returned[&who].error == libc::EISCONN && was_inherited_as(steps, at, Role::Stream)
        },
    },
    Known {
        id: "mapped-and-moved",
        reason: "a connection between an IPv6 socket and one of IPv4 that moved to the kernel is one of two sockets of one family there: what \
                 depends on the socket's family (an address for it, an option of IPv6's level) is answered by that one",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            let Where::Outcome(who) = at else { return false };
            let (Op::Bind(slot, _) | Op::Set(slot, Setting::V6Only(_)) | Op::Ask(slot, Question::V6Only)) = last.step.2 else {
                return false;
            };
            let for_its_family = |seen: &Seen| matches!(seen.returned[&who].error, libc::EAFNOSUPPORT | libc::ENOPROTOOPT);
            role(last, slot) == Some(Role::Stream)
                && for_its_family(&last.ringway) != for_its_family(&last.kernel)
                && forks(steps).next().is_some()
        },
    },
    Known {
        id: "alone-since-connected",
        reason: "the kernel gives IPV6_V6ONLY to a socket that is bound to an address of IPv6: with Ringway, connect(2) binds what stands in the \
                 kernel for the socket, so that it has the option, and a port, once the connection has moved to the kernel or was reset",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            let Where::Outcome(who) = at else { return false };
            match last.step.2 {
                Op::Ask(slot, Question::V6Only) => role(last, slot) == Some(Role::Stream) && forks(steps).next().is_some(),
                Op::Set(slot, Setting::V6Only(_)) => {
                    role(last, slot) == Some(Role::Stream)
                        && last.kernel.returned[&who].error == 0
                        && last.ringway.returned[&who].error == libc::EINVAL
                }
                _ => false,
            }
        },
    },
    Known {
        id: "port-held",
        reason: "in Linux an accepted connection holds its listener's port also after the listener is closed, and who binds it without \
                 SO_REUSEADDR is refused; one that the ring carries holds no port",
        applies: |steps, at| {
            let last = steps.last().expect("there is a step");
            let Where::Outcome(who) = at else { return false };
            let port = match last.step.2 {
                Op::Bind(_, Place::At(port) | Place::At6(port) | Place::WildAt(port)) => port.to_string(),
                // Again, after it was shut down.
                Op::Listen(slot, _) => match &last.kernel.views[&(last.step.0, slot)].local {
                    Ok(local) => local.split([':', ' ']).nth(1).unwrap_or_default().to_owned(),
                    Err(_) => return false,
                },
                _ => return false,
            };
            let holds = |local: &String| local.split([':', ' ']).any(|part| part == port);
            // (Also after its process has ended.)
            let has_held = |done: &Done| {
                let is_held = |(&(process, slot), view): (&(u8, u8), &View)| {
                    done.before.role(process, slot) == Some(Role::Stream) && view.local.as_ref().is_ok_and(holds)
                };
                done.kernel.views.iter().any(is_held)
            };
            let refused = |seen: &Seen| seen.returned[&who].error == libc::EADDRINUSE;
            refused(&last.kernel) && !refused(&last.ringway) && steps.iter().any(has_held)
        },
    },
    Known {
        id: "inherited-datagrams",
        reason: "a UDP socket that a fork's child has too: the ring's half stays its parent's, who alone gets what comes there, and what the \
                 child sends by the kernel is in no order with what the parent sends by the ring",
        applies: |steps, at| {
            concerned(steps, at).iter().any(|&(process, slot)| role_at(steps, process, slot) == Some(Role::Datagram))
                && forks(steps).any(|(state, forker)| state.open(forker).any(|(_, role)| role == Role::Datagram))
        },
    },
    Known {
        id: "inherited-epoll",
        reason: "an epoll instance that a fork's child has too: each process goes on with its own list of what the ring carries, and what \
                 either changes, or what a connection's move changes, is not in the other's",
        applies: |steps, at| was_inherited_as(steps, at, Role::Epoll),
    },
    Known {
        id: "inherited-fresh",
        reason: "a TCP socket that was neither connected nor listening at the fork is each process's own afterwards: what one does with it, \
                 the other does not see",
        applies: |steps, at| was_inherited_as(steps, at, Role::Fresh),
    },
    Known {
        id: "inherited-listener",
        reason: "a listener that one process shuts down ends in the kernel for all that share it, but its ring's half only in that process",
        applies: |steps, at| {
            let ended = |of: usize| {
                steps.iter().any(|done| match done.step.2 {
                    Op::Shutdown(slot, _) => done.before.entry(done.step.0, slot).is_some_and(|entry| entry.description == of),
                    _ => false,
                })
            };
            let is_ended = |&(process, slot): &(u8, u8)| entry_at(steps, process, slot).is_some_and(|entry| ended(entry.description));
            was_inherited_as(steps, at, Role::Listener) && concerned(steps, at).iter().any(is_ended)
        },
    },
];

/// Every fork so far: what there was before it, and who forked.
fn forks(steps: &[Done]) -> impl Iterator<Item = (&State, u8)> {
    steps.iter().filter(|done| done.step.2 == Op::Fork).map(|done| (&done.before, done.step.0))
}

/// Whether the difference is about a descriptor that a fork copied while it was of this role.
fn was_inherited_as(steps: &[Done], at: Where, role: Role) -> bool {
    concerned(steps, at).iter().any(|&(process, slot)| {
        let Some(description) = entry_at(steps, process, slot).map(|entry| entry.description) else { return false };
        forks(steps).any(|(state, forker)| {
            let has_it = |slot: u8| state.entry(forker, slot).is_some_and(|entry| entry.description == description);
            state.descriptions.get(description).is_some_and(|d| d.role == role) && (0..SLOTS).any(has_it)
        })
    })
}

/// A descriptor when the last step was over, of those that it did not make; a fork's child has what its parent has.
fn entry_at(steps: &[Done], process: u8, slot: u8) -> Option<Entry> {
    let last = steps.last()?;
    let is_new = last.step.2 == Op::Fork && !last.before.alive(process);
    last.before.entry(if is_new { last.step.0 } else { process }, slot)
}

fn role_at(steps: &[Done], process: u8, slot: u8) -> Option<Role> {
    let description = entry_at(steps, process, slot)?.description;
    steps.last()?.before.descriptions.get(description).map(|description| description.role)
}

/// The descriptors that a difference is about: the one that looks different, or those of the call that ended differently.
fn concerned(steps: &[Done], at: Where) -> Vec<(u8, u8)> {
    let Some(last) = steps.last() else { return Vec::new() };
    let call_of = |who: Who| steps.iter().rev().find(|done| calls(&done.step, who)).map_or_else(Vec::new, |done| slots(&done.step, who));
    match at {
        Where::Revents(process, slot)
        | Where::Local(process, slot)
        | Where::Peer(process, slot)
        | Where::Unread(process, slot)
        | Where::Flags(process, slot) => vec![(process, slot)],
        Where::Outcome(who) => call_of(who),
        Where::Returned => {
            let (kernel, ringway) = (&last.kernel.returned, &last.ringway.returned);
            let alone = |who: &&Who| kernel.contains_key(who) != ringway.contains_key(who);
            kernel.keys().chain(ringway.keys()).filter(alone).flat_map(|&who| call_of(who)).collect()
        }
        Where::Lowest(_) => Vec::new(),
    }
}

/// Whether a step is a call of this thread's.
fn calls(step: &Step, who: Who) -> bool {
    match step.2 {
        Op::Interrupt(..) | Op::Fork | Op::Kill | Op::Exit => false,
        Op::Transfer(_, process, worker, ..) if (process, worker) == who => true,
        _ => (step.0, step.1) == who,
    }
}

/// The descriptors that a step names on behalf of a thread.
fn slots(step: &Step, who: Who) -> Vec<(u8, u8)> {
    let some = match step.2 {
        Op::Transfer(_, process, worker, slot, _) if (process, worker) == who => vec![slot],
        Op::Poll(_, ref of, _) => of.iter().map(|&(slot, _)| slot).collect(),
        Op::EpollCtl(epoll, _, slot, _) => vec![epoll, slot],
        Op::Bind(slot, _)
        | Op::Listen(slot, _)
        | Op::Connect(slot, _)
        | Op::Accept(slot, _)
        | Op::Send(slot, ..)
        | Op::SendTo(slot, ..)
        | Op::Recv(slot, ..)
        | Op::Shutdown(slot, _)
        | Op::Close(slot)
        | Op::Dup(slot, _)
        | Op::NonBlock(slot, ..)
        | Op::Set(slot, _)
        | Op::Ask(slot, _)
        | Op::EpollWait(slot, ..)
        | Op::Transfer(slot, ..) => vec![slot],
        Op::Socket(..) | Op::EpollCreate | Op::Interrupt(..) | Op::Fork | Op::Kill | Op::Exit => Vec::new(),
    };
    some.into_iter().map(|slot| (who.0, slot)).collect()
}

/// Whether all calls that returned in one world alone did so for their time was over, and there are such calls.
fn gives_up_alone(one: &Seen, other: &Seen) -> bool {
    let mut alone = one.returned.iter().filter(|(who, _)| !other.returned.contains_key(who)).peekable();
    let is_contained = other.returned.keys().all(|who| one.returned.contains_key(who));
    is_contained && alone.peek().is_some() && alone.all(|(_, outcome)| outcome.error == libc::EAGAIN)
}

/// Whether the step changes for how long calls wait, with one under way.
fn sets_others_patience(done: &Done) -> bool {
    matches!(done.step.2, Op::Set(_, Setting::RecvTimeout(_))) && !done.before.busy.is_empty()
}

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
