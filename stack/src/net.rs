//! Links, addresses, routes, rules and neighbours, as a snapshot.
//!
//! All of it is somebody else's: the kernel's (read over rtnetlink by `ringway-host`) or the simulator's. Nothing here changes it, and
//! nothing here does I/O. [`Tables`] is one consistent state with a generation; whoever keeps it swaps it whole. [`Tables::route`] answers
//! what Linux would: which link, source address and next hop a destination has, or why it has none. [`Changes`] is what happened between
//! two snapshots, as far as a socket must hear of it.
//!
//! - [`prefix`], [`link`], [`address`], [`neighbour`], [`rule`], [`route`](mod@route): what a snapshot consists of
//! - [`tables`]: the snapshot and its builder
//! - [`query`]: what is asked, and the answer
//! - `fib`: the longest prefix match
//! - `lookup`, `source`: how the answer is found: rules, routes, next hops; the source address (RFC 6724)
//! - [`changes`]: the difference of two snapshots

pub mod address;
pub mod changes;
mod fib;
pub mod link;
mod lookup;
pub mod neighbour;
pub mod prefix;
pub mod query;
pub mod route;
pub mod rule;
mod source;
pub mod tables;

pub use address::{Address, Scope};
pub use changes::{Change, Changes};
pub use link::{Link, LinkAddress, LinkId, LinkKind};
pub use neighbour::{Neighbour, NeighbourState};
pub use prefix::{Family, Prefix};
pub use query::{Delivery, Query, Route, Unroutable};
pub use route::{NextHop, Preference, RouteEntry, RouteKind, Table};
pub use rule::{Action, Rule};
pub use tables::{Builder, Tables};

#[cfg(test)]
mod tests;
