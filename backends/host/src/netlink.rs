//! The kernel's links, addresses, routes, rules and neighbours, over rtnetlink(7).
//!
//! A [`Monitor`] keeps them as [`Tables`](ringway_stack::net::Tables). It reads them once, subscribes to what the kernel tells of changes,
//! and reads anew what has changed: never patches a snapshot by an event, for events get lost (ENOBUFS), say nothing of order among equals,
//! and are not sent at all for IPv4 routes that go with a link or an address.
//!
//! - `socket`: an AF_NETLINK socket, by system calls
//! - `dump`: a question and its answers, whole or again
//! - `parse`: messages to what a snapshot is made of
//! - `monitor`: what is read when, and what has changed
//! - `ask`: the kernel's own answer for one destination (`ip route get`)
//! - `diag`: the kernel's sockets, by sock_diag(7)
//! - `told`: what happens to links that rings are on, for the log
//! - `xdp`: what drivers have of XDP, and who has AF_XDP sockets on them

mod ask;
mod diag;
mod dump;
mod failures;
mod monitor;
mod parse;
mod socket;
mod told;
mod xdp;

use std::io;

pub use ask::KernelRoute;
pub use diag::{DiagSocket, SocketDiag};
pub use monitor::Monitor;
pub use xdp::{SendOffer, XdpMode, XdpOffer, XdpSocket, xdp_offer, xdp_sockets};

/// Why the kernel's state is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system: no netlink socket is to be had. Seccomp filters and sandboxes forbid them; descriptors may be used up.
    #[error("cannot open a netlink socket ({0}): the sandbox must allow socket(AF_NETLINK, SOCK_RAW)")]
    Open(#[source] io::Error),
    /// The system: it does not tell of changes.
    #[error("cannot subscribe to changes of {what} ({error})")]
    Subscribe {
        /// Of what.
        what: &'static str,
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// The system: a question could not be sent, or its answer not be received.
    #[error("cannot ask the kernel for {what} ({error})")]
    Ask {
        /// For what.
        what: &'static str,
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// The kernel answered with what is no message of rtnetlink(7).
    #[error("the kernel's answer on {what} cannot be read; please report it with the kernel's version")]
    Malformed {
        /// On what.
        what: &'static str,
    },
    /// The kernel's state changes faster than it can be read.
    #[error("{what} change faster than they can be read ({tries} times in a row); look for a routing daemon or a script that flaps")]
    Unsettled {
        /// What.
        what: &'static str,
        /// How often it was read.
        tries: u32,
    },
}

#[cfg(test)]
mod tests;
