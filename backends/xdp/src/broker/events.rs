//! What a broker has to tell: why it does not begin, and what happens.

use core::fmt;
use std::io;
use std::path::PathBuf;

use ringway_host::netlink;

use super::message::Refusal;
use crate::error::AttachError;

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An interface is no device.
    #[error("{interface}: {why}")]
    Attach {
        /// Which.
        interface: String,
        /// Why.
        why: AttachError,
    },
    /// Another one listens there.
    #[error("a broker listens at {} already", .0.display())]
    Running(PathBuf),
    /// Another broker serves that interface.
    #[error("a broker serves {0} already")]
    Served(String),
    /// It cannot listen there.
    #[error("{}: {error}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The kernel does not tell of addresses, routes and neighbours.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    /// It refused something else.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        error: io::Error,
    },
}

/// What a broker has to tell.
#[derive(Debug)]
pub enum Event {
    /// An interface is another program's for now.
    NotAttached {
        /// Which.
        interface: String,
        /// Why.
        why: AttachError,
    },
    /// It may have too few descriptors open for what its users can have it have (RLIMIT_NOFILE).
    FewDescriptors {
        /// How many it may.
        have: u64,
        /// How many they can.
        need: u64,
    },
    /// A program has a ring.
    Lent {
        /// Whose.
        uid: u32,
        /// Its number.
        pid: i32,
        /// On which interface.
        interface: String,
    },
    /// It has it no more.
    Returned {
        /// Whose it was.
        uid: u32,
        /// Its number.
        pid: i32,
        /// On which interface.
        interface: String,
    },
    /// A program was told no.
    Refused {
        /// Whose.
        uid: u32,
        /// Its number.
        pid: i32,
        /// Why.
        why: Refusal,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAttached { interface, why } => write!(f, "{interface} is tried again when a program asks for it: {why}"),
            Self::FewDescriptors { have, need } => {
                write!(f, "RLIMIT_NOFILE is {have}, and {need} descriptors can be wanted: without them programs wait for each other")
            }
            Self::Lent { uid, pid, interface } => write!(f, "process {pid} of user {uid} has the ring of {interface}"),
            Self::Returned { uid, pid, interface } => write!(f, "process {pid} of user {uid} has left {interface}"),
            Self::Refused { uid, pid, why } => write!(f, "process {pid} of user {uid} was told: {}", why.to_string().escape_debug()),
        }
    }
}
