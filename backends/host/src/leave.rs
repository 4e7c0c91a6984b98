//! How a connection leaves its ring for another owner: because a child process uses it after a fork, because it is passed on by SCM_RIGHTS or kept over an
//! exec, or because something is asked of it that only the kernel can do.
//!
//! The ways stand behind one trait, [`Leave`]: the kernel takes it over by TCP_REPAIR ([`ToKernel`]; [`FromKernel`] is the way back), or another ring does,
//! of this process ([`ToRing`]) or of another ([`ToProcess`]). Where none of them can be, its owner stays, and is to relay for as long as it lives
//! ([`Way::Relay`]): that way has no implementation yet.
//!
//! What is handed over goes on steering to the ring that gives it away until the other owner is complete: a connection's rule travels in its [`Handover`], and
//! the way ends it. A segment that reached the kernel before would be answered by a reset. What arrives meanwhile is kept by the ring
//! ([`ringway_stack::ring::Ring::tcp_keep_late`]). A way that fails gives the handover back whole, and the peer has noticed nothing:
//! [`ringway_stack::ring::Ring::adopt`] goes on with it.
//!
//! Where the peer hears nothing of this host's kernel, both ends leave together: the connection enters the kernel in silence ([`ToKernel::enter`]), and speaks when the other end's kernel
//! has it as well ([`Entered::speak`]), or goes back.
//!
//! What the kernel does in repair mode was measured; the order of steps and the reason for each are in the repository, `stack/docs/redesign.md`.

mod between;
mod from_kernel;
mod inject;
mod means;
mod repair;
mod to_kernel;

use std::io;

use ringway_stack::device::Queues;
use ringway_stack::ring::{Handover, LatePacket};
use ringway_stack::tcp::State;

pub use between::{ToProcess, ToRing, Written};
pub use from_kernel::{FromKernel, settle};
pub use inject::Injector;
pub use means::{begin_repair, end_repair, is_tcp, reserve, retire};
pub use repair::state_of;
pub use to_kernel::{Abilities, Entered, Kernel, ToKernel, Unsent};

/// Who goes on with a connection that leaves its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Another ring of this process, or one of another process, by a snapshot.
    Ring,
    /// The kernel, by TCP_REPAIR.
    Kernel,
    /// Its owner, which passes bytes on for as long as it lives.
    Relay,
}

/// Why a connection cannot leave its ring that way. The text fits into one line of a report.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// The process: TCP_REPAIR needs CAP_NET_ADMIN in the user namespace that owns the socket's network namespace (EPERM).
    #[error("the kernel takes connections over (TCP_REPAIR) only from who has CAP_NET_ADMIN in its network namespace")]
    NeedsNetAdmin,
    /// The process: in the states behind a FIN of the peer's, and behind an acknowledged one of ours, the kernel has to be told of it by a raw socket.
    #[error("the kernel takes over a connection in state {0:?} only from who has CAP_NET_RAW in its network namespace")]
    NeedsNetRaw(State),
    /// The kernel: it lacks an option.
    #[error("this kernel has no {lacks} (Linux {since}), without which it takes no connection over")]
    KernelTooOld {
        /// The option.
        lacks: &'static str,
        /// The first version with it.
        since: &'static str,
    },
    /// The connection: in this state it stays where it is.
    #[error("a connection in state {0:?} stays where it is")]
    State(State),
    /// The connection: the program has borrowed bytes of it, has yet to hear of an error, or has closed it.
    #[error("a connection with borrowed bytes, a pending error or no program any more stays where it is")]
    Engaged,
    /// The connection: no flow rule is its own, so that none can be ended for it alone. Its frames come by its listener's.
    #[error("a connection whose frames come by its listener's flow rule stays there as long as the listener")]
    NoRuleOfItsOwn,
    /// The caller: the socket is not what the way needs.
    #[error("the kernel's socket {0}")]
    Placeholder(&'static str),
    /// The kernel, or a filter of the host's: it did not hear what a raw socket told it on `lo`.
    #[error("the kernel did not hear of the end of a stream (a filter on lo?)")]
    Unheard,
    /// The kernel refused a step for another reason.
    #[error("{step}: {source}")]
    Step {
        /// The option, or call.
        step: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The other ring.
    #[error("the other ring: {0}")]
    Ring(ringway_stack::Error),
    /// The other process did not take it.
    #[error("the other process: {0}")]
    Process(io::Error),
}

/// A connection that did not leave, with everything that it has.
pub struct Refused<Q: Queues> {
    /// Why.
    pub error: LeaveError,
    /// To go on with by [`ringway_stack::ring::Ring::adopt`].
    pub handover: Handover<Q>,
}

impl<Q: Queues> core::fmt::Debug for Refused<Q> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).field("handover", &self.handover).finish()
    }
}

/// A way of leaving a ring. No ring's lock is held while a connection leaves by it.
pub trait Leave<Q: Queues> {
    /// What its former owner has of it afterwards.
    type Left;

    /// Who goes on with it.
    fn way(&self) -> Way;

    /// Gives a connection away. `late` gives what came for it meanwhile: it takes the ring's lock, polls, and is
    /// [`ringway_stack::ring::Ring::tcp_take_late`].
    ///
    /// # Errors
    /// [`Refused`].
    fn leave(&mut self, handover: Handover<Q>, late: &mut dyn FnMut() -> Vec<LatePacket>) -> Result<Self::Left, Refused<Q>>;
}

/// The kernel refused a step.
fn at(step: &'static str) -> impl FnOnce(io::Error) -> LeaveError {
    move |source| LeaveError::Step { step, source }
}
