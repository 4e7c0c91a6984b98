//! The world: hosts, the network between them, and the one loop in which time passes.

mod mishaps;

pub(crate) use mishaps::Turn;

use core::fmt;
use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::device::Device;

use crate::device::{Outstanding, SimDevice};
use crate::fabric::{Direction, LinkConfig, Strike};
use crate::faults::HostFaults;
use crate::host::{App, Context, Host, HostConfig};
use crate::network::{Event, Network};
use crate::random::{Purpose, Stream};
use crate::report::Report;
use crate::trace::{Interface, Trace, What};
use mishaps::Courses;

/// How much of the wire's story is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// Its hash.
    #[default]
    Hash,
    /// Its hash, and every frame.
    Frames,
}

/// How a world is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldConfig {
    /// Everything random follows from it.
    pub seed: u64,
    /// How much is kept.
    pub capture: Capture,
}

impl WorldConfig {
    /// The world of a seed, which keeps no frames.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, capture: Capture::Hash }
    }
}

/// Names a host of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub(crate) usize);

/// Programs that had not finished when time was up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not finished by {} ms of virtual time: {hosts:?}", .until.as_millis())]
pub struct Unfinished {
    /// When time was up.
    pub until: Instant,
    /// The names of the hosts with unfinished programs.
    pub hosts: Vec<String>,
}

/// Hosts, wires and time.
pub struct World {
    seed: u64,
    network: Network,
    hosts: Vec<Host>,
    courses: Courses,
    /// Hosts were told each other's Ethernet addresses.
    introduced: bool,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).field("now", &self.network.now).finish_non_exhaustive()
    }
}

impl World {
    /// An empty world at the origin of time, with its faults on.
    pub fn new(config: WorldConfig) -> Self {
        let trace = Trace::new(config.seed, config.capture == Capture::Frames);
        Self { seed: config.seed, network: Network::new(trace), hosts: Vec::new(), courses: Courses::default(), introduced: false }
    }

    /// Adds a host.
    ///
    /// # Panics
    /// The world has [`crate::HOSTS_MAX`] of them already.
    pub fn add_host(&mut self, config: HostConfig) -> HostId {
        let index = self.hosts.len();
        assert!(index < crate::HOSTS_MAX, "a world has at most {} hosts", crate::HOSTS_MAX);
        let seed = Stream::new(self.seed, Purpose::Stack, u32::try_from(index).unwrap_or(u32::MAX), 0).seed();
        let (name, link) = (config.name.clone(), config.link);
        let host = Host::new(index, config, seed);
        self.network.trace.add_interface(Interface { name, mac: host.mac(), bandwidth_bps: link.bandwidth_bps });
        self.network.fabric.attach(self.seed, host.mac(), link);
        self.network.silence.push(Stream::new(self.seed, Purpose::MtuSilence, u32::try_from(index).unwrap_or(u32::MAX), 0));
        self.hosts.push(host);
        self.plan_all(index);
        HostId(index)
    }

    /// Starts a program on a host, now.
    pub fn add_app(&mut self, host: HostId, app: impl App + 'static) {
        self.hosts[host.0].add(Box::new(app));
        self.wake(host.0, self.network.now);
    }

    /// Starts a program on a host, now and again each time the host starts after a crash. (A program that [`World::add_app`] started ends with
    /// its host.)
    pub fn add_restartable(&mut self, host: HostId, make: impl FnMut() -> Box<dyn App> + 'static) {
        self.hosts[host.0].add_restartable(Box::new(make));
        self.wake(host.0, self.network.now);
    }

    /// Tells every host every other's Ethernet address, so that nobody needs ARP.
    pub fn introduce_all(&mut self) {
        self.introduced = true;
        let known: Vec<_> = self.hosts.iter().map(|h| (h.ip(), h.mac())).collect();
        for host in &mut self.hosts {
            let own = host.mac();
            for &(ip, mac) in known.iter().filter(|&&(_, mac)| mac != own) {
                host.ring_mut().set_neighbour(ip, Some(mac));
            }
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.network.now
    }

    /// A host.
    pub fn host(&self, host: HostId) -> &Host {
        &self.hosts[host.0]
    }

    /// What happened so far.
    pub fn trace(&self) -> &Trace {
        &self.network.trace
    }

    /// Switches all faults on or off: a run's safety phase ends, and its liveness phase begins. What lasts ends at once, and the configured
    /// state is restored: links, paths and partitions heal, paused hosts go on, crashed ones start again. (A clock that jumped never goes back.)
    pub fn set_faults(&mut self, on: bool) {
        if on != self.network.faults_on {
            self.network.faults_on = on;
            self.turn_faults();
        }
    }

    /// Changes a host's link, both ways.
    pub fn change_link(&mut self, host: HostId, change: impl Fn(&mut LinkConfig)) {
        for direction in [Direction::Up, Direction::Down] {
            change(self.network.fabric.lane(host.0, direction).config_mut());
        }
        self.plan_all(host.0);
    }

    /// Changes what goes wrong with a host.
    pub fn change_host_faults(&mut self, host: HostId, change: impl FnOnce(&mut HostFaults)) {
        change(&mut self.hosts[host.0].faults);
        self.plan_all(host.0);
    }

    /// Lets the caller act as a program of a host, once, now. A host that pauses, or is down, obeys all the same.
    pub fn call<R>(&mut self, host: HostId, act: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let target = &mut self.hosts[host.0];
        let now = target.clock(self.network.now);
        let ip = target.ip();
        let result = act(&mut Context { now, ring: target.ring_mut(), events: &[], ip });
        self.service(host.0);
        result
    }

    /// Lets time pass until `until`, and everything happen that happens by then.
    pub fn run_until(&mut self, until: Instant) {
        while let Some((at, event)) = self.network.agenda.pop_until(until) {
            self.network.now = at;
            self.happen(event);
        }
        self.network.now = until;
    }

    /// Lets time pass for `time`.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.network.now + time);
    }

    /// Lets time pass until all programs have finished, `until` at the latest. Says when that was.
    ///
    /// # Errors
    /// [`Unfinished`]: time was up.
    pub fn run_until_finished(&mut self, until: Instant) -> Result<Instant, Unfinished> {
        while !self.finished() {
            let Some((at, event)) = self.network.agenda.pop_until(until) else {
                self.network.now = until;
                let hosts = self.hosts.iter().filter(|h| !h.finished()).map(|h| h.name().to_owned()).collect();
                return Err(Unfinished { until, hosts });
            };
            self.network.now = at;
            self.happen(event);
        }
        Ok(self.network.now)
    }

    /// Whether all programs have finished.
    pub fn finished(&self) -> bool {
        self.hosts.iter().all(Host::finished)
    }

    /// What each host's NIC has lent out, after reaping what is complete.
    pub fn outstanding(&mut self) -> Vec<Outstanding> {
        let lent = |host: &mut Host| {
            let device: &mut SimDevice = host.ring_mut().device_mut();
            device.reap();
            device.outstanding()
        };
        self.hosts.iter_mut().map(lent).collect()
    }

    /// What this run came to so far.
    pub fn report(&self) -> Report {
        let trace = &self.network.trace;
        Report { seed: self.seed, hash: trace.hash(), events: trace.events(), faults: trace.faults(), ended: self.network.now }
    }

    fn happen(&mut self, event: Event) {
        let now = self.network.now;
        match event {
            Event::AtSwitch { from, frame } => self.network.switch(from, frame),
            Event::AtHost { host, frame } if self.hosts[host].is_down() => {
                self.network.trace.record(now, host, What::Struck(Direction::Down, Strike::HostDown), &frame);
            }
            Event::AtHost { host, frame } => {
                let target = &mut self.hosts[host];
                let clock = target.clock(now);
                let outcome = target.ring_mut().device_mut().receive(clock, &frame.bytes);
                let poll_at = now + target.poll_delay();
                self.network.received(host, &frame, outcome);
                self.wake(host, poll_at);
            }
            // What a NIC sent before its host crashed is nobody's any more.
            Event::Departed { host, boot } if self.hosts[host].boots() != boot => {}
            Event::Departed { host, .. } => {
                if self.hosts[host].ring_mut().device_mut().complete() {
                    self.wake(host, now);
                }
            }
            Event::Wake { host } => {
                if self.hosts[host].woken(now) && self.hosts[host].runs() {
                    self.service(host);
                }
            }
            Event::Episode(turn) => self.turn(turn),
        }
    }

    fn service(&mut self, host: usize) {
        let next = self.hosts[host].service(self.network.now);
        let boot = self.hosts[host].boots();
        let device = self.hosts[host].ring_mut().device_mut();
        while let Some(bytes) = device.transmit() {
            self.network.send(host, boot, bytes);
        }
        if let Some(at) = next {
            self.wake(host, at);
        }
    }

    fn wake(&mut self, host: usize, at: Instant) {
        if self.hosts[host].wake_by(at) {
            self.network.agenda.push(at, Event::Wake { host });
        }
    }
}

#[cfg(test)]
mod tests;
