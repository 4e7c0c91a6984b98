//! A peer of another make and of bad manners at a server's door: TCP by hand, beyond the window, against the order, and worse. The server
//! must keep to the RFCs, and its programs get what they may get.

use core::fmt;
use core::time::Duration;

use ringway_stack::raw::RawQueue;

use super::{Ground, Site, Standing, Verdict, Workload, exchanges, sides};
use crate::apps::{Dialogue, Goodbye, Pattern, Shared, Side, Stranger, Transfer, Visit, Visited};
use crate::random::{Purpose, RandomStream};
use crate::world::World;

#[derive(Debug)]
struct Call {
    visit: Visit,
    visited: Shared<Visited>,
    /// What the server says.
    server: Side,
    transfer: Shared<Transfer>,
}

/// A stranger, and whom it visits.
#[derive(Debug)]
pub(super) struct Strangers {
    stranger: usize,
    server: usize,
    seed: u64,
    calls: Vec<Call>,
    standing: Standing,
}

impl Strangers {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let [stranger, server] = ground.two_hosts();
        let count = ground.stream.between(1, 4);
        // IPv4 and TCP headers without options are 40 bytes: a datagram's would be 28.
        let payload_max = ground.hosts.iter().map(|host| host.datagram_max()).min().unwrap_or(0) - 12;
        let payload_max = u32::try_from(payload_max.clamp(2, 1400)).unwrap_or(2);
        let calls = (0..count).map(|_| call(ground, payload_max)).collect();
        Self { stranger, server, seed: ground.seed, calls, standing: Standing::default() }
    }
}

fn call(ground: &mut Ground<'_>, payload_max: u32) -> Call {
    let total_max = (1024 << ground.scale.min(7)).max(2);
    let server = sides::side(ground, total_max);
    let stream = &mut *ground.stream;
    let visit = Visit {
        pattern: Pattern(stream.bits()),
        total: stream.magnitude(1, 128 << 10),
        mss: stream.pick(&[None, Some(100), Some(536), Some(1460), Some(8960)]),
        sack: stream.chance_ppm(600_000),
        payload_max,
        moves: u32::try_from(stream.magnitude(8, 256)).unwrap_or(8),
        interval: Duration::from_nanos(stream.magnitude(100_000, 20_000_000)),
        goodbye: stream.pick(&[Goodbye::Fin, Goodbye::Fin, Goodbye::Reset, Goodbye::Vanish]),
    };
    Call { visit, visited: Shared::default(), server, transfer: Shared::default() }
}

impl Call {
    /// From the server's point of view.
    fn dialogue(&self) -> Dialogue {
        let peer = Side { pattern: self.visit.pattern, total: self.visit.total, ..Side::silent() };
        sides::paced(Dialogue { own: self.server, peer })
    }
}

impl fmt::Display for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for call in &self.calls {
            writeln!(f, "a stranger on host {} visits host {}: {:?}\n  server {:?}", self.stranger, self.server, call.visit, call.server)?;
        }
        Ok(())
    }
}

impl Workload for Strangers {
    fn set_up(&mut self, site: &mut Site<'_>) {
        let port = site.server_port(0);
        let address = site.address(self.server, port);
        let expected: Vec<_> = self
            .calls
            .iter()
            .zip(0..)
            .map(|(call, number)| (site.address(self.stranger, site.client_port(number)), call.dialogue(), call.transfer.clone()))
            .collect();
        expected.iter().for_each(|(client, ..)| site.world.expect_stranger(*client));
        site.add_server(self.server, &mut self.standing, move |config, socket| exchanges::server(port, config, socket, &expected));
        let host = site.hosts[self.stranger];
        let queue = RawQueue::new(site.world.add_raw_ring(host));
        let mac = site.world.host(site.hosts[self.server]).mac();
        let dice = RandomStream::new(self.seed, Purpose::Workload, site.workload.bits().trailing_zeros(), 0);
        let mut program = Stranger::new(queue, address, mac, site.vlan, dice);
        for (call, number) in self.calls.iter().zip(0..) {
            program.visit(site.client_port(number), call.visit, call.visited.clone());
        }
        site.world.add_app_on(host, 0, program);
    }

    fn pauses(&self) -> bool {
        true
    }

    fn progress(&self) -> Vec<String> {
        let line = |call: &Call| {
            let (total, Transfer { written, read, ending }) = (call.visit.total, *call.transfer.read());
            format!(
                "host {} visited by a stranger: {:?}; wrote {written} of {}, read {read} of {total}, {ending:?}",
                self.server,
                *call.visited.read(),
                call.server.total
            )
        };
        self.calls.iter().map(line).collect()
    }

    /// Whatever a stranger does, no more can be asked of its victim than that its stream is believed once it has arrived. (What its reader gets
    /// is checked with every read.)
    fn check(&self, verdict: &Verdict) {
        if !verdict.calm() {
            return;
        }
        for call in &self.calls {
            let (Visited { opened, delivered, .. }, transfer) = (*call.visited.read(), *call.transfer.read());
            assert!(opened, "a stranger was not let in, though nothing went wrong");
            assert!(
                !delivered || transfer.read == call.visit.total,
                "all of a stranger's stream was acknowledged, and not all was read: {transfer:?}"
            );
        }
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}
