//! Two hosts that connect to each other from agreed ports at the same instant: simultaneous open (RFC 9293 s3.5, figure 7).

use core::fmt;
use core::time::Duration;

use ringway_stack::Instant;

use super::{Ground, Site, Verdict, Workload, exchanges, sides};
use crate::apps::{Client, Dialogue, Shared, Transfer};
use crate::world::World;

#[derive(Debug)]
struct Meeting {
    hosts: [usize; 2],
    at: Instant,
    dialogue: Dialogue,
    /// One's SYN may arrive before the other's leaves, which waits for a flow rule, and at a ring that knows nothing of it.
    may_miss: bool,
    transfers: [Shared<Transfer>; 2],
}

/// All of them.
#[derive(Debug)]
pub(super) struct Meetings(Vec<Meeting>);

impl Meetings {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let count = ground.stream.between(1, 3);
        Self((0..count).map(|_| meeting(ground)).collect())
    }
}

fn meeting(ground: &mut Ground<'_>) -> Meeting {
    let hosts = ground.two_hosts();
    let at = Instant::ZERO + Duration::from_nanos(ground.stream.below(100_000_000));
    let total_max = 256 << ground.scale.min(6);
    let dialogue = Dialogue { own: sides::side(ground, total_max), peer: sides::side(ground, total_max) };
    Meeting { hosts, at, dialogue: sides::paced(dialogue), may_miss: false, transfers: [(); 2].map(|()| Shared::new(Transfer::default())) }
}

impl fmt::Display for Meetings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Meeting { hosts, at, dialogue, .. } in &self.0 {
            writeln!(f, "hosts {hosts:?} meet at {} ns:\n  {:?}\n  {:?}", at.as_nanos(), dialogue.own, dialogue.peer)?;
        }
        Ok(())
    }
}

impl Workload for Meetings {
    fn set_up(&mut self, site: &mut Site<'_>) {
        for (meeting, number) in self.0.iter_mut().zip(0..) {
            meeting.may_miss = meeting.hosts.iter().any(|&host| !site.options[host].nic.rule_delay.is_zero());
            let port = site.client_port(number);
            let [a, b] = meeting.hosts;
            let sides = [(a, b, meeting.dialogue, 0), (b, a, meeting.dialogue.turned(), 1)];
            for (own, peer, dialogue, side) in sides {
                let (address, config) = (site.address(peer, port), site.options[own].tcp.clone());
                let client = Client::new(port, address, dialogue, config, meeting.transfers[side].clone());
                let ring = site.ring(own);
                site.world.add_app_on(site.hosts[own], ring, client.starting_at(meeting.at));
            }
        }
    }

    fn progress(&self) -> Vec<String> {
        let line = |Meeting { hosts, dialogue, transfers, .. }: &Meeting| {
            format!("hosts {hosts:?} meet: {}", exchanges::progress(dialogue, *transfers[0].read(), *transfers[1].read()))
        };
        self.0.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for meeting in &self.0 {
            meeting.transfers.iter().for_each(|transfer| verdict.check_ending(&"meeting", &transfer.read(), meeting.may_miss));
        }
    }

    fn wind_down(&mut self, _: &mut World) {}
}
