//! A scenario on stage: hosts and programs set up, both phases played, everything checked.

use core::time::Duration;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use ringway_stack::Instant;
use ringway_stack::mutants::Mutant;
use ringway_stack::ring::RingConfig;

use super::{Options, Scenario};
use crate::host::HostConfig;
use crate::nic::Outstanding;
use crate::report::Report;
use crate::workloads::{Site, Verdict, WorkloadSet};
use crate::world::{Capture, HostId, Unfinished, World, WorldConfig};
use crate::{drills, machines, migrations};

/// How long after the last fault every program must have finished or failed. The longest lawful silence is one retransmission timeout
/// at its cap of 120 s (Linux's TCP_RTO_MAX); keepalives find a dead peer within 45 s, a slow reader takes up to 20 s,
/// and at 10 Mbit/s all of a scenario's bytes take a few seconds, once over and again after losses to full queues.
pub const LIVENESS_BOUND: Duration = Duration::from_secs(300);

/// How long after that every buffer, queue slot and flow rule must be back: another timeout at its cap, then FIN-WAIT-2 and
/// TIME-WAIT at 60 s each.
pub const WIND_DOWN_BOUND: Duration = Duration::from_secs(300);

/// One seed of so many plays the machines' story as well. (Such a story takes as long as a scenario does, or longer.)
const MACHINES_SHARE: u64 = 96;

/// One of so many plays the story of connections that go over to other MAC addresses: those with this remainder.
const MIGRATIONS_SHARE: u64 = 96;
const MIGRATIONS_REST: u64 = 9;

/// How often what lingers is looked at.
const LINGER_LOOK: Duration = Duration::from_millis(100);

/// Most events of a run, which is some hundred times what the busiest of thousands of seeds needs: more mean that it never ends.
pub const EVENTS_MAX: u64 = 50_000_000;

/// The longest silence, beyond a round trip, in which nothing is wrong. Longer than a delayed acknowledgment (40 ms), than pings' largest
/// interval (100 ms) and than the serialisation of what a round trip can hold; shorter than Linux's least retransmission
/// timeout (200 ms), which would hide a stall.
const SILENCE_MAX: Duration = Duration::from_millis(190);

/// A scenario, set up.
pub struct Stage {
    scenario: Scenario,
    options: Options,
    config: WorldConfig,
    world: World,
    hosts: Vec<HostId>,
    mutant: Mutant,
    /// What the stories beside it came upon.
    beside: Option<Report>,
    /// The world of such a story while it is played, and after it failed.
    world_beside: Option<World>,
    pcap: Option<PathBuf>,
}

impl Stage {
    /// Sets a scenario up. `RINGWAY_SIM_PCAP` names a file that its frames are written to when it is over, however it ends.
    pub fn set(scenario: &Scenario) -> Self {
        let pcap = std::env::var_os("RINGWAY_SIM_PCAP").map(PathBuf::from);
        let capture = if pcap.is_some() { Capture::Frames } else { Capture::Hash };
        let mut stage = Self::capturing(scenario, capture);
        stage.pcap = pcap;
        stage
    }

    /// Sets a scenario up whose world keeps as much as `capture` says.
    pub fn capturing(scenario: &Scenario, capture: Capture) -> Self {
        Self::with_options(scenario, scenario.options(), capture)
    }

    /// The same, with options that are not quite those that the seed draws.
    pub fn with_options(scenario: &Scenario, options: Options, capture: Capture) -> Self {
        let config = WorldConfig { seed: scenario.seed, capture };
        let mut world = World::new(config);
        let hosts = add_hosts(&mut world, &options, scenario.workloads.contains(WorkloadSet::MULTICAST));
        let mut stage = Self {
            scenario: *scenario,
            options,
            config,
            world,
            hosts,
            mutant: Mutant::Healthy,
            beside: None,
            world_beside: None,
            pcap: None,
        };
        stage.world.limit_events(EVENTS_MAX);
        if stage.options.introduce {
            stage.world.introduce_all();
        }
        stage.add_workloads();
        stage
    }

    /// Drills the stack, plays both phases and winds down.
    ///
    /// # Panics
    /// A check failed.
    pub fn play(mut self) -> Report {
        self.perform()
    }

    /// As [`Self::play`], and leaves the world for a look, however it ended.
    ///
    /// # Panics
    /// A check failed.
    pub fn perform(&mut self) -> Report {
        drills::run(self.scenario.seed, self.mutant);
        // (What a ring does wrong shows in the scenario itself.)
        if self.mutant == Mutant::Healthy && self.scenario.seed.is_multiple_of(MACHINES_SHARE) {
            machines::play_in(self.world_beside.insert(World::new(self.config)), self.scenario.seed, self.mutant);
        }
        if self.mutant == Mutant::Healthy && self.scenario.seed % MIGRATIONS_SHARE == MIGRATIONS_REST {
            let world = self.world_beside.insert(World::new(self.config));
            self.beside = Some(migrations::play_in(world, self.scenario.seed, self.mutant));
        }
        self.world_beside = None;
        let heal_at = Instant::ZERO + self.options.safety;
        if self.world.run_until_finished(heal_at).is_ok() {
            self.check_promptness();
        }
        // Faults go on striking what lingers until the appointed time.
        self.world.run_until(heal_at);
        self.world.set_faults(false);
        let silence: Duration = self.options.workloads.iter().map(|workload| workload.silence()).sum();
        let finished = self.finish(heal_at + LIVENESS_BOUND + silence);
        assert!(finished.is_ok(), "liveness: {finished:?}");
        self.check_endings();
        self.wind_down();
        let mut report = self.world.report();
        if let Some(beside) = &self.beside {
            report.comes_with(beside);
        }
        report
    }

    /// Waits for the programs to finish, and for what they left to their stacks: its arrival may be some server's first news of them.
    fn finish(&mut self, until: Instant) -> Result<(), Unfinished> {
        loop {
            self.world.run_until_finished(until)?;
            let lingers = |&host: &HostId| self.world.host(host).rings().iter().any(|ring| ring.lingering());
            if !self.hosts.iter().any(lingers) || self.world.now() >= until {
                return Ok(());
            }
            self.world.run_for(LINGER_LOOK);
        }
    }

    /// Makes every host's stack a mutant.
    #[cfg(feature = "mutants")]
    pub fn infect(&mut self, mutant: Mutant) {
        self.mutant = mutant;
        self.world.infect(mutant);
    }

    /// From now on, all connections are written down and read in again in each service: see [`World::rewrite`].
    #[cfg(feature = "mutants")]
    pub fn rewrite(&mut self) {
        self.world.rewrite();
    }

    /// The world for a look, which is that of a story beside the scenario's own if that failed.
    pub fn world(&self) -> &World {
        self.world_beside.as_ref().unwrap_or(&self.world)
    }

    fn add_workloads(&mut self) {
        let Self { scenario, options, world, hosts, .. } = self;
        for (workload, which) in options.workloads.iter_mut().zip(scenario.workloads.iter()) {
            workload.set_up(&mut Site::new(world, hosts, (&options.hosts, options.vlan), scenario.seed, which));
        }
    }

    fn verdict(&self) -> Verdict {
        let rings = self.hosts.iter().flat_map(|&host| self.world.host(host).rings());
        let unsent = rings.map(|ring| ring.counters().tx_drops).sum();
        let lends = self.options.hosts.iter().any(|host| host.lending.iter().any(Option::is_some));
        let slow_rules = self.options.hosts.iter().any(|host| !host.nic.rule_delay.is_zero());
        Verdict { faults: self.scenario.faults, counts: self.world.trace().faults(), unsent, lends, slow_rules }
    }

    /// While nothing goes wrong and no reader pauses, the wire is never silent for long: otherwise someone forgot to go on, and only a
    /// retransmission, a probe or a keepalive helped.
    fn check_promptness(&self) {
        // A cork holds back for 200 ms.
        let pauses = self.options.workloads.iter().any(|workload| workload.pauses()) || self.options.hosts.iter().any(|host| host.tcp.cork);
        if pauses || !self.verdict().calm() {
            return;
        }
        // What a program holds by reference may shut its peer's window, for as long.
        let lending = || self.options.hosts.iter().flat_map(|host| &host.lending).flatten();
        if lending().any(|lending| lending.keeps_ppm > 0) {
            return;
        }
        let held = lending().map(|lending| lending.hold_max).max().unwrap_or_default();
        let one_way = |host: &super::HostOptions| host.link.latency + host.poll_delay;
        let round_trip: Duration = self.options.hosts.iter().map(one_way).sum::<Duration>() * 2;
        let trace = self.world.trace();
        let silence = trace.silence_max().max(self.world.now().since(trace.last_at()));
        assert!(silence <= SILENCE_MAX + round_trip + held, "a silence of {silence:?}, though nothing went wrong");
    }

    /// Programs have finished; were they right to?
    fn check_endings(&self) {
        let verdict = self.verdict();
        self.options.workloads.iter().for_each(|workload| workload.check(&verdict));
    }

    /// Closes what still listens, and waits for everything to be given back.
    fn wind_down(&mut self) {
        let Self { options, world, .. } = self;
        options.workloads.iter_mut().for_each(|workload| workload.wind_down(world));
        let until = self.world.now() + WIND_DOWN_BOUND;
        while !self.at_rest() && self.world.now() < until {
            self.world.run_for(Duration::from_secs(1));
        }
        assert!(self.at_rest(), "not at rest: {:?}", self.world.outstanding());
    }

    fn at_rest(&mut self) -> bool {
        let back = self.world.outstanding().iter().all(|o| *o == Outstanding::default());
        let quiet = |&host: &HostId| self.world.host(host).rings().iter().all(|ring| ring.occupied() == 0);
        back && self.hosts.iter().all(quiet)
    }

    /// A check ended the run, and said so in `message`: the trace shows where.
    pub fn fail(&mut self, message: &str) {
        self.world_beside.as_mut().unwrap_or(&mut self.world).fail(message);
    }

    /// Where everybody stands: programs, sockets, and what NICs have lent out.
    pub fn describe(&self) -> String {
        let mut lines = vec![format!("at {} ms, {:?}", self.world.now().as_millis(), self.world.trace().faults())];
        lines.extend(self.options.workloads.iter().flat_map(|workload| workload.progress()));
        for &host in &self.hosts {
            for (number, ring) in self.world.host(host).rings().iter().enumerate() {
                let name = self.world.host(host).name();
                lines.push(format!("{name} ring {number}: deadline {:?}, lingering {}", ring.next_deadline(), ring.lingering()));
                lines.extend(ring.open_flows().into_iter().filter_map(|s| Some(format!("  {:?} {:?}", ring.info(s)?, ring.readiness(s)))));
            }
        }
        let lent: Vec<_> = self.hosts.iter().map(|&host| self.world.host(host).nic().outstanding()).collect();
        lines.push(format!("outstanding: {lent:?}"));
        lines.join("\n")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Some(path) = &self.pcap else { return };
        let written = File::create(path)
            .map_err(|e| e.to_string())
            .and_then(|file| self.world().trace().write_pcapng(BufWriter::new(file)).map_err(|e| e.to_string()));
        if let Err(error) = written {
            eprintln!("{}: {error}", path.display());
        }
    }
}

/// `has_groups`: hosts speak of groups, which those of IPv6 do from addresses of their link.
fn add_hosts(world: &mut World, options: &Options, has_groups: bool) -> Vec<HostId> {
    let add = |(i, host): (usize, &super::HostOptions)| {
        let number = u32::try_from(i + 1).unwrap_or(u32::MAX);
        world.add_host(HostConfig {
            ip: Some(host.family.address(number)),
            nic: host.nic.clone(),
            link: host.link,
            ring: RingConfig { time_wait: host.time_wait, vlan: options.vlan, batch: host.batch, ..RingConfig::default() },
            rings: host.rings,
            lending: host.lending.clone(),
            reads_first: host.reads_first,
            faults: host.faults,
            poll_delay: host.poll_delay,
            link_local: has_groups,
            ..HostConfig::named(&format!("host{i}"))
        })
    };
    options.hosts.iter().enumerate().map(add).collect()
}
