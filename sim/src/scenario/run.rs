//! A scenario on stage: hosts and programs set up, both phases played, everything checked.

use core::time::Duration;
use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddrV4;
use std::path::PathBuf;

use ringway_stack::Instant;
use ringway_stack::ring::{RingConfig, SocketId};

use super::{Options, Scenario};
use crate::apps::{Client, Dialogue, Echo, Ending, Parting, Pinger, Pings, Server, Shared, Tally};
use crate::device::Outstanding;
use crate::faults::FaultCounts;
use crate::host::HostConfig;
use crate::report::Report;
use crate::world::{Capture, HostId, World, WorldConfig};

/// How long after the last fault every program must have finished or failed. The longest lawful silence is one retransmission timeout
/// at its cap of 120 s (Linux's TCP_RTO_MAX); keepalives find a dead peer within 45 s, a slow reader takes up to 20 s,
/// and at 10 Mbit/s all of a scenario's bytes take a few seconds, once over and again after losses to full queues.
pub const LIVENESS_BOUND: Duration = Duration::from_secs(300);

/// How long after that every buffer, queue slot and flow rule must be back: another timeout at its cap, then FIN-WAIT-2 and
/// TIME-WAIT at 60 s each.
pub const WIND_DOWN_BOUND: Duration = Duration::from_secs(300);

/// The longest silence, beyond a round trip, in which nothing is wrong. Longer than a delayed acknowledgment (40 ms), than pings' largest
/// interval (100 ms) and than the serialisation of what a round trip can hold; shorter than Linux's least retransmission
/// timeout (200 ms), which would hide a stall.
const SILENCE_MAX: Duration = Duration::from_millis(190);

const TCP_PORT: u16 = 80;
const UDP_PORT: u16 = 7;
const CLIENT_PORT: u16 = 40_000;

/// A scenario, set up.
pub struct Stage {
    scenario: Scenario,
    options: Options,
    world: World,
    hosts: Vec<HostId>,
    /// The client's and the server's part of each conversation.
    talks: Vec<[(Dialogue, Shared<Tally>); 2]>,
    pings: Vec<Shared<Pings>>,
    /// The server's listener and its echo socket.
    servers: [Shared<Option<SocketId>>; 2],
    pcap: Option<PathBuf>,
}

impl Stage {
    /// Sets a scenario up. `RINGWAY_SIM_PCAP` names a file that its frames are written to when it is over, however it ends.
    pub fn set(scenario: &Scenario) -> Self {
        let options = scenario.options();
        let pcap = std::env::var_os("RINGWAY_SIM_PCAP").map(PathBuf::from);
        let capture = if pcap.is_some() { Capture::Frames } else { Capture::Hash };
        let mut world = World::new(WorldConfig { seed: scenario.seed, capture });
        let hosts = add_hosts(&mut world, &options);
        let servers = [Shared::new(None), Shared::new(None)];
        let mut stage = Self { scenario: *scenario, options, world, hosts, talks: Vec::new(), pings: Vec::new(), servers, pcap };
        if stage.options.introduce {
            stage.world.introduce_all();
        }
        stage.add_talks();
        stage.add_pings();
        stage
    }

    /// Plays both phases and winds down.
    ///
    /// # Panics
    /// A check failed.
    pub fn play(mut self) -> Report {
        let heal_at = Instant::ZERO + self.options.safety;
        if self.world.run_until_finished(heal_at).is_ok() {
            self.check_promptness();
        }
        // Faults go on striking what lingers until the appointed time.
        self.world.run_until(heal_at);
        self.world.set_faults(false);
        let finished = self.world.run_until_finished(heal_at + LIVENESS_BOUND);
        assert!(finished.is_ok(), "liveness: {finished:?}\n{}\n{:?}", self.describe(), self.world.outstanding());
        self.check_endings();
        self.wind_down();
        self.world.report()
    }

    /// Makes every host's stack a mutant.
    #[cfg(feature = "mutants")]
    pub fn infect(&mut self, mutant: ringway_stack::mutants::Mutant) {
        self.world.infect(mutant);
    }

    /// The world, for a look.
    pub fn world(&self) -> &World {
        &self.world
    }

    fn add_talks(&mut self) {
        let server = self.hosts[0];
        let address = SocketAddrV4::new(self.world.host(server).ip(), TCP_PORT);
        let config = self.options.hosts[0].tcp.clone();
        let mut program = Server::new(TCP_PORT, config, self.servers[0].clone());
        let mut clients = Vec::new();
        for (talk, port) in self.options.talks.iter().zip(CLIENT_PORT..) {
            let host = self.hosts[talk.host];
            let parts = [talk.dialogue, talk.dialogue.turned()].map(|d| (d, Shared::new(Tally::default())));
            let [(client, client_tally), (turned, server_tally)] = &parts;
            program.expect(SocketAddrV4::new(self.world.host(host).ip(), port), *turned, server_tally.clone());
            let config = self.options.hosts[talk.host].tcp.clone();
            clients.push((host, Client::new(port, address, *client, config, client_tally.clone())));
            self.talks.push(parts);
        }
        self.world.add_app(server, program);
        for (host, client) in clients {
            self.world.add_app(host, client);
        }
    }

    fn add_pings(&mut self) {
        let server = self.hosts[0];
        let address = SocketAddrV4::new(self.world.host(server).ip(), UDP_PORT);
        self.world.add_app(server, Echo::new(UDP_PORT, self.servers[1].clone()));
        for (pings, port) in self.options.pings.iter().zip(CLIENT_PORT..) {
            let shared = Shared::new(Pings::new(pings.wanted, pings.len, pings.interval, pings.pattern));
            self.world.add_app(self.hosts[pings.host], Pinger::new(port, address, shared.clone()));
            self.pings.push(shared);
        }
    }

    /// Whether nothing went wrong: no fault was let loose, and no queue overflowed.
    fn calm(&self) -> bool {
        self.scenario.faults.is_empty() && self.world.trace().faults() == FaultCounts::default()
    }

    /// While nothing goes wrong and no reader rests, the wire is never silent for long: otherwise someone forgot to go on, and only a
    /// retransmission, a probe or a keepalive helped.
    fn check_promptness(&self) {
        let rests = self.options.talks.iter().any(|t| [t.dialogue.own, t.dialogue.peer].iter().any(|s| s.read_pause > Duration::ZERO));
        if rests || !self.calm() {
            return;
        }
        let one_way = |host: &super::HostOptions| host.link.latency + host.poll_delay;
        let round_trip: Duration = self.options.hosts.iter().map(one_way).sum::<Duration>() * 2;
        let trace = self.world.trace();
        let silence = trace.silence_max().max(self.world.now().since(trace.last_at()));
        assert!(silence <= SILENCE_MAX + round_trip, "a silence of {silence:?}, though nothing went wrong\n{}", self.describe());
    }

    /// Programs have finished; were they right to?
    fn check_endings(&self) {
        let calm = self.calm();
        for (talk, parts) in self.options.talks.iter().zip(&self.talks) {
            let aborts = parts.iter().any(|(dialogue, _)| dialogue.own.parting == Parting::Abort);
            for (_, tally) in parts {
                let ending = tally.read().ending;
                let lawful = match ending {
                    Some(Ending::Failed(_)) => !calm || aborts,
                    Some(_) => true,
                    // A client that failed before the server heard of it leaves the server without a part.
                    None => !calm || aborts,
                };
                assert!(lawful, "nothing went wrong, yet a conversation ({}) did: {ending:?}\n{}", talk.kind, self.describe());
            }
        }
        let duplicated = self.world.trace().faults().duplicated > 0;
        for pings in &self.pings {
            let twice = pings.read().echoed.values().any(|&times| times > 1);
            assert!(duplicated || !twice, "an echo came twice, though nothing was duplicated");
        }
    }

    /// Closes what still listens, and waits for everything to be given back.
    fn wind_down(&mut self) {
        let sockets: Vec<_> = self.servers.iter().filter_map(|s| *s.read()).collect();
        self.world.call(self.hosts[0], |cx| sockets.iter().for_each(|&socket| cx.ring.close(cx.now, socket, false)));
        let until = self.world.now() + WIND_DOWN_BOUND;
        while !self.at_rest() && self.world.now() < until {
            self.world.run_for(Duration::from_secs(1));
        }
        assert!(self.at_rest(), "not at rest: {:?}\n{}", self.world.outstanding(), self.describe());
    }

    fn at_rest(&mut self) -> bool {
        let back = self.world.outstanding().iter().all(|o| *o == Outstanding::default());
        let quiet = |&host: &HostId| {
            let ring = self.world.host(host).ring();
            ring.occupied() == 0
        };
        back && self.hosts.iter().all(quiet)
    }

    /// Where everybody stands.
    fn describe(&self) -> String {
        let mut lines = vec![format!("at {} ms, {:?}", self.world.now().as_millis(), self.world.trace().faults())];
        for (talk, parts) in self.options.talks.iter().zip(&self.talks) {
            let [client, server] = parts.each_ref().map(|(dialogue, tally)| {
                let Tally { written, read, ending } = *tally.read();
                format!("wrote {written} of {}, read {read} of {}, {ending:?}", dialogue.own.total, dialogue.peer.total)
            });
            lines.push(format!("host {} ({}): client {client}; server {server}", talk.host, talk.kind));
        }
        for (options, pings) in self.options.pings.iter().zip(&self.pings) {
            let pings = pings.read();
            lines.push(format!("host {} pings: {} sent, {} of {} came back", options.host, pings.sent, pings.echoed.len(), pings.wanted));
        }
        for &host in &self.hosts {
            let ring = self.world.host(host).ring();
            lines.push(format!("{}: deadline {:?}, lingering {}", self.world.host(host).name(), ring.next_deadline(), ring.lingering()));
            lines.extend(ring.sockets().into_iter().filter_map(|s| Some(format!("  {:?} {:?}", ring.info(s)?, ring.readiness(s)))));
        }
        lines.join("\n")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Some(path) = &self.pcap else { return };
        let written = File::create(path)
            .map_err(|e| e.to_string())
            .and_then(|file| self.world.trace().write_pcapng(BufWriter::new(file)).map_err(|e| e.to_string()));
        if let Err(error) = written {
            eprintln!("{}: {error}", path.display());
        }
    }
}

fn add_hosts(world: &mut World, options: &Options) -> Vec<HostId> {
    let add = |(i, host): (usize, &super::HostOptions)| {
        world.add_host(HostConfig {
            nic: host.nic.clone(),
            link: host.link,
            ring: RingConfig { time_wait: host.time_wait, ..RingConfig::default() },
            poll_delay: host.poll_delay,
            ..HostConfig::named(&if i == 0 { "server".to_owned() } else { format!("host{i}") })
        })
    };
    options.hosts.iter().enumerate().map(add).collect()
}
