//! Connections that move from program to program of a host while data flow, as a server's do that forks.

use core::fmt;
use core::time::Duration;

use super::{Ground, Site, Standing, Verdict, Workload, exchanges, sides};
use crate::apps::{Baton, Client, Dialogue, Runner, Server, Shared, Transfer, Turns};
use crate::world::World;

#[derive(Debug)]
struct Race {
    client: usize,
    server: usize,
    /// Whether it is the client's end that moves.
    client_moves: bool,
    turns: Turns,
    /// From the client's point of view.
    dialogue: Dialogue,
    transfers: [Shared<Transfer>; 2],
    baton: Shared<Baton>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Handovers {
    races: Vec<Race>,
    standing: Standing,
}

impl Handovers {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let count = ground.stream.between(1, 3);
        Self { races: (0..count).map(|_| race(ground)).collect(), standing: Standing::default() }
    }
}

fn race(ground: &mut Ground<'_>) -> Race {
    let [client, server] = ground.two_hosts();
    let total_max = 1024 << ground.scale.min(8);
    let mut both = Dialogue { own: sides::side(ground, total_max), peer: sides::side(ground, total_max) };
    // Slow readers have something waiting in their queues when they are passed on, and live to be.
    if ground.stream.chance_ppm(600_000) {
        (both.own.read_pause, both.peer.read_pause) = (sides::rest(ground.stream), sides::rest(ground.stream));
    }
    let exchange = sides::exchange(ground.stream, 32, 1024, 4096);
    Race {
        client,
        server,
        client_moves: ground.stream.chance_ppm(500_000),
        turns: Turns {
            every: Duration::from_nanos(ground.stream.magnitude(50_000, 200_000_000)),
            count: u32::try_from(ground.stream.between(8, 64)).unwrap_or(8),
        },
        dialogue: if ground.stream.chance_ppm(500_000) { exchange } else { sides::paced(both) },
        transfers: [(); 2].map(|()| Shared::new(Transfer::default())),
        baton: Shared::default(),
    }
}

impl fmt::Display for Handovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Race { client, server, client_moves, turns, dialogue, .. } in &self.races {
            let who = if *client_moves { "client" } else { "server" };
            writeln!(f, "host {client} talks to host {server}, the {who}'s end moves ({turns:?}):")?;
            writeln!(f, "  client {:?}\n  server {:?}", dialogue.own, dialogue.peer)?;
        }
        Ok(())
    }
}

impl Workload for Handovers {
    fn set_up(&mut self, site: &mut Site<'_>) {
        for (race, number) in self.races.iter().zip(0..) {
            let (client, server) = (site.hosts[race.client], site.hosts[race.server]);
            let client_address = site.address(race.client, site.client_port(number));
            let server_address = site.address(race.server, site.server_port(number));
            let (client_config, server_config) = (site.options[race.client].tcp.clone(), site.options[race.server].tcp.clone());
            // The connection begins on the first ring: that one gets what comes while the connection is nobody's.
            let mover = if race.client_moves { race.client } else { race.server };
            let (other, elsewhere) = (if race.client_moves { race.server } else { race.client }, site.ring(mover));
            let here = site.ring(other);
            let [own, peer] = &race.transfers;
            if race.client_moves {
                let mut program = Server::new(server_address.port(), server_config, self.standing.add(server, here));
                program.expect(client_address, race.dialogue.turned(), peer.clone());
                site.world.add_app_on(server, here, program);
                let runner = || {
                    let (baton, config) = (race.baton.clone(), client_config.clone());
                    Runner::second(client_address.port(), config, race.dialogue, own.clone(), baton, race.turns)
                };
                site.world.add_app(client, runner().connecting(server_address));
                site.world.add_app_on(client, elsewhere, runner());
            } else {
                let runner = || {
                    let (baton, config) = (race.baton.clone(), server_config.clone());
                    Runner::second(server_address.port(), config, race.dialogue.turned(), peer.clone(), baton, race.turns)
                };
                site.world.add_app(server, runner().accepting(client_address, self.standing.add(server, 0)));
                site.world.add_app_on(server, elsewhere, runner());
                let program = Client::new(client_address.port(), server_address, race.dialogue, client_config, own.clone());
                site.world.add_app_on(client, here, program);
            }
        }
    }

    /// What arrives while the connection is nobody's is lost, and comes again after a timeout.
    fn pauses(&self) -> bool {
        true
    }

    fn progress(&self) -> Vec<String> {
        let line = |Race { client, server, dialogue, transfers, baton, .. }: &Race| {
            let sides = exchanges::progress(dialogue, *transfers[0].read(), *transfers[1].read());
            format!("hosts {client} and {server} (passed on {} times): {sides}", baton.read().passed)
        };
        self.races.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for race in &self.races {
            race.transfers.iter().for_each(|transfer| verdict.check_ending(&"passed on", &transfer.read(), false));
        }
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}
