//! A simulated host: a NIC, its rings, and the programs that use their sockets.

use core::time::Duration;
use std::net::Ipv4Addr;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;
use ringway_stack::ring::{Event, Ring, RingConfig};

use crate::fabric::LinkConfig;
use crate::nic::{Nic, NicConfig, SimDevice};

/// Rounds of polling and stepping at one point in virtual time before it counts as a livelock.
const ROUNDS_MAX: u32 = 20_000;

/// A program on a simulated host. It never blocks and never asks for the time: it is called when there is something to do.
pub trait App {
    /// Does what can be done now, and says when to be called next at the latest. Called when sockets of the host changed, when the wake-up
    /// asked for has come, and once at the start.
    fn step(&mut self, cx: &mut Context<'_>) -> Step;
}

/// What a program sees of its host.
pub struct Context<'a> {
    /// Virtual time.
    pub now: Instant,
    /// The sockets of the program's ring.
    pub ring: &'a mut Ring<SimDevice>,
    /// Sockets (of all programs of the ring) that changed since the last call; none at the start and at a wake-up.
    pub events: &'a [Event],
    /// The host's address.
    pub ip: Ipv4Addr,
}

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits for its sockets.
    Wait,
    /// It waits for its sockets, or for this time.
    Until(Instant),
    /// It waits for its sockets, but counts as finished: a server without clients.
    Idle,
    /// It waits for its sockets, or for this time, but counts as finished.
    IdleUntil(Instant),
    /// It has finished, and is not called again.
    Finished,
}

/// How a host is set up.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its name in traces.
    pub name: String,
    /// Its address; `None`: 10.0.0.1 for the first host, 10.0.0.2 for the second, and so on.
    pub ip: Option<Ipv4Addr>,
    /// Its NIC.
    pub nic: NicConfig,
    /// Its link to the switch.
    pub link: LinkConfig,
    /// Its rings. The host's address is added to theirs.
    pub ring: RingConfig,
    /// How many rings it has. What no rule steers goes to the first, but for frames that aren't IP: those go to all.
    pub rings: usize,
    /// How long a frame lies in the receive queue before the host polls: what comes meanwhile is polled with it.
    pub poll_delay: Duration,
}

impl HostConfig {
    /// A host like any other.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ip: None,
            nic: NicConfig::default(),
            link: LinkConfig::default(),
            ring: RingConfig::default(),
            rings: 1,
            poll_delay: Duration::ZERO,
        }
    }

    /// With this NIC.
    #[must_use]
    pub fn nic(self, nic: NicConfig) -> Self {
        Self { nic, ..self }
    }

    /// With this link.
    #[must_use]
    pub fn link(self, link: LinkConfig) -> Self {
        Self { link, ..self }
    }
}

/// A host of a world.
pub struct Host {
    name: String,
    ip: Ipv4Addr,
    nic: Nic,
    /// Invariant: at least one.
    rings: Vec<Ring<SimDevice>>,
    poll_delay: Duration,
    programs: Vec<Program>,
    /// When the agenda wakes it; other entries of the agenda are stale.
    wake_at: Option<Instant>,
    /// When the agenda looks at its NIC.
    nic_at: Option<Instant>,
    events: Vec<Event>,
}

struct Program {
    ring: usize,
    app: Box<dyn App>,
    last: Step,
}

impl Host {
    pub(crate) fn new(index: usize, config: HostConfig, seed: u64, ring_seed: impl Fn(u8) -> [u8; 32]) -> Self {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let ip = config.ip.unwrap_or(Ipv4Addr::from_bits((10 << 24) + number));
        let [_, _, hi, lo] = number.to_be_bytes();
        // Locally administered (IEEE 802 s8.4).
        let mac = MacAddr([0x02, 0, 0, 0, hi, lo]);
        let mut ring_config = config.ring;
        ring_config.addresses.push(ip);
        let nic = Nic::seeded(mac, config.nic, seed, u32::try_from(index).unwrap_or(u32::MAX));
        let count = u8::try_from(config.rings.max(1)).unwrap_or(u8::MAX);
        let rings = (0..count).map(|i| Ring::new(nic.ring(), ring_config.clone(), ring_seed(i))).collect();
        let (programs, events) = (Vec::new(), Vec::new());
        Self { name: config.name, ip, nic, rings, poll_delay: config.poll_delay, programs, wake_at: None, nic_at: None, events }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> MacAddr {
        self.nic.mac()
    }

    /// Its first ring, to look at.
    pub fn ring(&self) -> &Ring<SimDevice> {
        &self.rings[0]
    }

    /// Its rings, to look at.
    pub fn rings(&self) -> &[Ring<SimDevice>] {
        &self.rings
    }

    /// Its NIC.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Whether all of its programs have finished.
    pub fn finished(&self) -> bool {
        self.programs.iter().all(|p| matches!(p.last, Step::Idle | Step::IdleUntil(_) | Step::Finished))
    }

    /// How many programs were ever started on it.
    pub(crate) fn programs(&self) -> usize {
        self.programs.len()
    }

    /// Lets every program step at the next service, whatever it waits for.
    pub(crate) fn rouse(&mut self) {
        for program in self.programs.iter_mut().filter(|p| p.last != Step::Finished) {
            program.last = Step::Until(Instant::ZERO);
        }
    }

    pub(crate) fn ring_mut(&mut self) -> &mut Ring<SimDevice> {
        &mut self.rings[0]
    }

    pub(crate) fn rings_mut(&mut self) -> &mut [Ring<SimDevice>] {
        &mut self.rings
    }

    pub(crate) fn poll_delay(&self) -> Duration {
        self.poll_delay
    }

    pub(crate) fn add(&mut self, ring: usize, app: Box<dyn App>) {
        assert!(ring < self.rings.len(), "host {} has {} rings", self.name, self.rings.len());
        self.programs.push(Program { ring, app, last: Step::Until(Instant::ZERO) });
    }

    /// As [`Host::wake_by`], for the NIC.
    pub(crate) fn nic_due_by(&mut self, at: Instant) -> bool {
        let news = self.nic_at.is_none_or(|planned| at < planned);
        if news {
            self.nic_at = Some(at);
        }
        news
    }

    /// As [`Host::woken`], for the NIC.
    pub(crate) fn nic_due(&mut self, now: Instant) -> bool {
        self.nic_at.take_if(|at| *at == now).is_some()
    }

    /// Notes that the host is to wake at `at`; says whether that is news to the agenda.
    pub(crate) fn wake_by(&mut self, at: Instant) -> bool {
        let news = self.wake_at.is_none_or(|planned| at < planned);
        if news {
            self.wake_at = Some(at);
        }
        news
    }

    /// Whether an entry of the agenda is the one that counts; if so it is used up.
    pub(crate) fn woken(&mut self, now: Instant) -> bool {
        let due = self.wake_at == Some(now);
        if due {
            self.wake_at = None;
        }
        due
    }

    /// Polls and steps until nothing is left to do at this instant, then says when to do so again.
    pub(crate) fn service(&mut self, now: Instant) -> Option<Instant> {
        for _ in 0..ROUNDS_MAX {
            let mut busy = false;
            // What arrived on a ring that a program polls itself concerns every program: no ring's events tell of it.
            let news = self.nic.take_news();
            for ring in 0..self.rings.len() {
                busy |= self.round(now, ring, news);
            }
            self.nic.check_doorbells();
            let next = self.next_wake();
            if !busy && next.is_none_or(|at| at > now) {
                return next;
            }
        }
        let deadlines: Vec<_> = self.rings.iter().map(Ring::next_deadline).collect();
        panic!("host {} never comes to rest at {} ns: deadlines {deadlines:?}", self.name, now.as_nanos());
    }

    /// Polls one ring and steps its programs, once. Whether there was anything to do.
    fn round(&mut self, now: Instant, ring: usize, news: bool) -> bool {
        let polled = self.rings[ring].poll(now);
        self.events.clear();
        while let Some(event) = self.rings[ring].take_event() {
            self.events.push(event);
        }
        let mut busy = polled > 0 || !self.events.is_empty();
        for program in self.programs.iter_mut().filter(|program| program.ring == ring) {
            let due = match program.last {
                Step::Finished => continue,
                Step::Until(at) | Step::IdleUntil(at) => at <= now,
                Step::Wait | Step::Idle => false,
            };
            if due || news || !self.events.is_empty() {
                busy = true;
                let mut cx = Context { now, ring: &mut self.rings[ring], events: &self.events, ip: self.ip };
                program.last = program.app.step(&mut cx);
            }
        }
        busy
    }

    fn next_wake(&self) -> Option<Instant> {
        let programs = self.programs.iter().filter_map(|p| match p.last {
            Step::Until(at) | Step::IdleUntil(at) => Some(at),
            _ => None,
        });
        programs.chain(self.rings.iter().filter_map(Ring::next_deadline)).min()
    }
}
