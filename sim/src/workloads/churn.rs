//! Many short connections from few ports: each port is used again while its last connection's TIME-WAIT lasts.

use core::fmt;
use core::time::Duration;

use super::{Ground, Site, Standing, Verdict, Workload, sides};
use crate::apps::{Churner, Cycles, Listening, PORT_RETRY_MAX, Pace, Reactor, Registry, Shared};
use crate::host::App;
use crate::world::World;

/// Cycles of one client, at most.
const CYCLES_MAX: u64 = 256;
const PORTS_MAX: u16 = 8;

/// One client.
#[derive(Debug)]
struct Client {
    host: usize,
    ports: u16,
    cycles: Shared<Cycles>,
}

/// All clients, and their server.
#[derive(Debug)]
pub(super) struct Churn {
    server: usize,
    clients: Vec<Client>,
    registry: Shared<Registry>,
    standing: Standing,
}

impl Churn {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let [server, first] = ground.two_hosts();
        let count = ground.stream.between(1, 3);
        let mut clients = vec![client(ground, first, server)];
        for _ in 1..count {
            let [host, other] = ground.two_hosts();
            clients.push(client(ground, if host == server { other } else { host }, server));
        }
        Self { server, clients, registry: Shared::default(), standing: Standing::default() }
    }
}

fn client(ground: &mut Ground<'_>, host: usize, server: usize) -> Client {
    let mut dialogue = sides::exchange(ground.stream, 2, 256, 512);
    // A server that speaks freely ends first, and has the TIME-WAIT.
    if ground.stream.chance_ppm(400_000) {
        dialogue.peer.pace = Pace::Free;
    }
    let wanted = ground.stream.magnitude(1, (16 << ground.scale.min(4)).min(CYCLES_MAX));
    let pause = Duration::from_nanos(ground.stream.pick(&[0, 0, 1_000, 100_000, 20_000_000]));
    let key = ground.stream.bits();
    let ports = u16::try_from(ground.stream.magnitude(1, u64::from(PORTS_MAX))).unwrap_or(1);
    let wanted = u32::try_from(wanted).unwrap_or(1).min(cycles_max(ground, host, server, ports));
    let cycles = Cycles::new(dialogue, wanted, pause, key);
    Client { host, ports, cycles: Shared::new(cycles) }
}

/// Without timestamps that tell connections apart, each port has to wait for its TIME-WAIT to end (RFC 6191 s2): no more cycles than do
/// so in a third of the time that a liveness phase has.
fn cycles_max(ground: &Ground<'_>, host: usize, server: usize, ports: u16) -> u32 {
    const WAITING_MAX: Duration = Duration::from_secs(100);
    let [client, server] = [host, server].map(|host| &ground.hosts[host]);
    // With them, until they have ticked for sure (RFC 7323 s5.4).
    let tick = if client.tcp.timestamps && server.tcp.timestamps { Duration::from_secs(1) } else { Duration::MAX };
    let rounds = WAITING_MAX.as_nanos() / (client.time_wait.min(tick) + PORT_RETRY_MAX).as_nanos() + 1;
    u32::from(ports).saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
}

impl fmt::Display for Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Client { host, ports, cycles } in &self.clients {
            let Cycles { dialogue, wanted, pause, .. } = &*cycles.read();
            writeln!(f, "host {host} connects {wanted} times to host {} from {ports} ports, {pause:?} apart:", self.server)?;
            writeln!(f, "  client {:?}\n  server {:?}", dialogue.own, dialogue.peer)?;
        }
        Ok(())
    }
}

impl Workload for Churn {
    fn set_up(&mut self, site: &mut Site<'_>) {
        let (port, registry) = (site.server_port(0), self.registry.clone());
        site.add_server(self.server, &mut self.standing, move |config, socket| {
            let accept_every = Duration::ZERO;
            Reactor::new().listening(Listening { port, backlog: 128, config, registry: registry.clone(), socket, accept_every })
        });
        for (client, number) in self.clients.iter().zip(0..) {
            let ports: Vec<_> = (0..client.ports).map(|p| site.client_port(number * PORTS_MAX + p)).collect();
            let (address, config) = (site.address(self.server, port), site.options[client.host].tcp.clone());
            let (registry, cycles, ring) = (self.registry.clone(), client.cycles.clone(), site.ring(client.host));
            // After a crash it connects from the ports of connections that the server still has.
            let make = move || -> Box<dyn App> {
                Box::new(Churner::new(ports.clone(), address, config.clone(), registry.clone(), cycles.clone()))
            };
            site.world.add_restartable_on(site.hosts[client.host], ring, make);
        }
    }

    /// A port that is used again too early for its old connection waits for the second SYN.
    fn pauses(&self) -> bool {
        true
    }

    fn progress(&self) -> Vec<String> {
        let line = |Client { host, cycles, .. }: &Client| {
            let cycles = cycles.read();
            format!("host {host}: {} of {} connections whole, others {:?}", cycles.whole, cycles.wanted, cycles.failed)
        };
        self.clients.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for client in &self.clients {
            let cycles = client.cycles.read();
            assert!(
                verdict.may_misread() || cycles.failed.iter().all(|&error| verdict.excuses(error)),
                "short connections failed, though nothing went wrong: {:?}",
                cycles.failed
            );
            for served in &cycles.served {
                verdict.check_ending(&"short connection", &served.read(), verdict.may_misread());
            }
        }
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}
