//! Why joining, or finding a peer, failed.

use std::io;

use ringway_stack::offload::Reason;

/// Why [`crate::attach`] failed. The process then runs on the kernel.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The system: it refused memory, address space, or a descriptor.
    #[error("{what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The system: the process's user has no number in its user namespace, and so looks like every other such user.
    #[error("user {uid} stands for all users that are not mapped in this user namespace (or /proc, which tells, is not mounted)")]
    UnknownUser {
        /// The number that all of them have here.
        uid: u32,
    },
    /// The system: RLIMIT_FSIZE is below the size of the segment (growing it would raise SIGXFSZ).
    #[error("the file size limit is {limit} bytes, and the segment needs {needed}")]
    FileSizeLimit {
        /// The limit in force.
        limit: u64,
        /// What the settings ask for.
        needed: u64,
    },
}

/// Why [`crate::Rendezvous::resolve`] could not tell who has an address. (That nobody has it is no error.)
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The peer: another user's process holds the address.
    #[error("the address belongs to a process of user {uid}")]
    OtherUser {
        /// That user.
        uid: u32,
    },
    /// The peer: a process of this user holds the address, and does not answer: it is stopped, or gets no processor time.
    #[error("the process that has the address does not answer")]
    Silent,
    /// The peer: it cannot be told from another process, or says that it is one which it is not.
    #[error("the process that has the address is not certain to be the one that it says")]
    Unverified,
    /// The peer: it has published the address, and has not bound it in the kernel.
    #[error("a process has published the address, and nobody listens there in the kernel")]
    Unbound,
    /// The settings: as many peers as [`crate::Settings::peers_max`] allows are connected.
    #[error("no room for another peer")]
    Full,
    /// The peer: it has the address, but what it said or passed isn't what a member passes. It may be of another version.
    #[error("the peer does not speak this version's protocol")]
    Incompatible,
    /// The system: it refused memory, address space, or a descriptor.
    #[error("{what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

impl ResolveError {
    /// Why a program's socket that wants to go there is left to the kernel.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::OtherUser { .. } => Reason::OtherUser,
            Self::Silent => Reason::PeerSilent,
            Self::Unverified | Self::Unbound => Reason::PeerUnverified,
            Self::Full => Reason::TooManyPeers,
            Self::Incompatible => Reason::NoOffloadedPeer,
            Self::System { .. } => Reason::NoResources,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

impl AttachError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// Why bytes were not written to a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The peer does not let this member, or the kernel does not, or the peer is gone: frames may carry the bytes.
    #[error("the peer's memory cannot be written to")]
    Refused,
    /// The peer: what it published is not all there.
    #[error("the peer's memory is not mapped there")]
    Fault,
}

/// A value in a peer's memory that no correct member writes. It ends the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer's memory is not a member's: {0}")]
pub(crate) struct Forged(pub(crate) &'static str);
