//! Checkers: what must be true of every frame, every socket call and every service, whatever the network does.
//!
//! They see three things: each frame as it leaves or reaches a NIC, parsed by code of their own; each call of a program on its
//! sockets ([`crate::Sockets`]); and each host's sockets after each service. From the wire alone they know what an endpoint may
//! claim to have received, and from the calls what its bytes must be. A breach panics with the checker's name, host, time, frame and law.
//!
//! One law a file: [`stream`], [`datagrams`], [`after_close`], [`sequence`], [`window`], [`congestion`], [`rto`], [`timers`], [`edges`],
//! [`closing`], [`resources`]. Where a frame may have been lost between the NIC and the stack, they assume whatever excuses more.
//! Corruption that no checksum catches exempts content, nothing else. That each of them can fail is shown by mutants of the stack
//! (`tests/mutants.rs`).

mod after_close;
mod calls;
mod closing;
mod congestion;
mod datagrams;
mod desk;
mod edges;
mod flow;
mod ranges;
mod resources;
mod rto;
mod segment;
mod sequence;
mod services;
mod stream;
mod timers;
mod window;
mod wire;

#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;
use std::net::Ipv4Addr;

use ringway_stack::Instant;

use self::datagrams::Datagrams;
use self::desk::Desk;
use self::flow::Flows;
use crate::fabric::Marks;

/// Names of all checkers, as they stand in the message of a breach: `checker NAME: …`.
pub const CHECKERS: [&str; 11] =
    ["stream", "datagrams", "after_close", "sequence", "window", "congestion", "rto", "timers", "edges", "closing", "resources"];

/// Where and when something is checked.
#[derive(Clone, Copy, Debug)]
struct Moment {
    host: usize,
    ip: Option<Ipv4Addr>,
    at: Instant,
    frame: Option<u64>,
}

impl Moment {
    /// Ends the run.
    #[cold]
    fn breach(&self, checker: &str, law: impl fmt::Display) -> ! {
        let frame = self.frame.map_or(String::new(), |frame| format!(", frame {frame}"));
        let ip = self.ip.map_or(String::new(), |ip| format!(" ({ip})"));
        panic!("checker {checker}: host {}{ip} at {} ns{frame}: {law}", self.host, self.at.as_nanos());
    }
}

/// All checkers of a world, and what they remember.
#[derive(Debug, Default)]
pub struct Checkers {
    flows: Flows,
    datagrams: Datagrams,
    desks: Vec<Desk>,
    /// Since when no fault strikes any more.
    healed_at: Option<Instant>,
}

impl Checkers {
    /// A host is there.
    pub(crate) fn adopt(&mut self, host: usize, ip: Ipv4Addr, time_wait: Duration) {
        if self.desks.len() <= host {
            self.desks.resize_with(host + 1, Desk::default);
        }
        self.desks[host] = Desk { ip: Some(ip), time_wait, ..Desk::default() };
    }

    /// A host crashed: whatever it was is forgotten, but for its clock.
    pub(crate) fn restart(&mut self, host: usize) {
        self.flows.forget(host);
        if let Some(desk) = self.desks.get_mut(host) {
            *desk = Desk { ip: desk.ip, time_wait: desk.time_wait, now: desk.now, ahead: desk.ahead, ..Desk::default() };
        }
    }

    /// Faults were switched on or off.
    pub(crate) fn set_faults(&mut self, now: Instant, on: bool) {
        self.healed_at = (!on).then_some(now);
    }

    fn moment(&self, host: usize, frame: Option<u64>) -> Moment {
        let desk = self.desks.get(host);
        Moment { host, ip: desk.and_then(|d| d.ip), at: desk.map_or(Instant::ZERO, |d| d.now), frame }
    }
}

/// Whether a frame was corrupted where no checksum tells: its content is exempt, and nothing else.
fn is_tainted(marks: Marks) -> bool {
    Marks::from_name("HIDDEN").is_some_and(|hidden| marks.contains(hidden))
}
