//! A simulated host: one ring, one NIC, and the programs that use its sockets.

use core::cell::RefCell;
use core::time::Duration;
use std::net::Ipv4Addr;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{Device, MacAddr};
use ringway_stack::ring::{Event, Ring, RingConfig};

use crate::checkers::Checkers;
use crate::device::{NicConfig, SimDevice};
use crate::fabric::LinkConfig;
use crate::sockets::Sockets;

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
    /// The host's sockets.
    pub ring: &'a mut Sockets,
    /// Sockets (of all programs of the host) that changed since the last call; none at the start and at a wake-up.
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
    /// Its ring. The host's address is added to the ring's.
    pub ring: RingConfig,
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
    ring: Sockets,
    time_wait: Duration,
    poll_delay: Duration,
    programs: Vec<Program>,
    /// When the agenda wakes it; other entries of the agenda are stale.
    wake_at: Option<Instant>,
    events: Vec<Event>,
}

struct Program {
    app: Box<dyn App>,
    last: Step,
}

impl Host {
    pub(crate) fn new(index: usize, config: HostConfig, seed: [u8; 32]) -> Self {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let ip = config.ip.unwrap_or(Ipv4Addr::from_bits((10 << 24) + number));
        let [_, _, hi, lo] = number.to_be_bytes();
        // Locally administered (IEEE 802 s8.4).
        let mac = MacAddr([0x02, 0, 0, 0, hi, lo]);
        let mut ring_config = config.ring;
        ring_config.addresses.push(ip);
        let time_wait = ring_config.time_wait;
        let ring = Ring::new(SimDevice::new(mac, config.nic), ring_config, seed);
        let ring = Sockets::new(index, ring);
        Self {
            name: config.name,
            ip,
            ring,
            time_wait,
            poll_delay: config.poll_delay,
            programs: Vec::new(),
            wake_at: None,
            events: Vec::new(),
        }
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
        self.ring.device().mac()
    }

    /// Its ring, to look at.
    pub fn ring(&self) -> &Ring<SimDevice> {
        &self.ring
    }

    /// Whether all of its programs have finished.
    pub fn finished(&self) -> bool {
        self.programs.iter().all(|p| matches!(p.last, Step::Idle | Step::Finished))
    }

    /// Lets the checkers see all that its programs do.
    pub(crate) fn watch(&mut self, checkers: &Rc<RefCell<Checkers>>) {
        self.ring.watch(checkers, self.ip, self.time_wait);
    }

    pub(crate) fn sockets_mut(&mut self) -> &mut Sockets {
        &mut self.ring
    }

    pub(crate) fn ring_mut(&mut self) -> &mut Ring<SimDevice> {
        &mut self.ring
    }

    pub(crate) fn poll_delay(&self) -> Duration {
        self.poll_delay
    }

    pub(crate) fn add(&mut self, app: Box<dyn App>) {
        self.programs.push(Program { app, last: Step::Until(Instant::ZERO) });
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
            let polled = self.ring.poll(now);
            self.events.clear();
            while let Some(event) = self.ring.take_event() {
                self.events.push(event);
            }
            let stepped = self.step(now);
            self.ring.device().check_doorbell();
            let next = self.next_wake();
            if polled == 0 && !stepped && self.events.is_empty() && next.is_none_or(|at| at > now) {
                return next;
            }
        }
        panic!("host {} never comes to rest at {} ns: deadline {:?}", self.name, now.as_nanos(), self.ring.next_deadline());
    }

    fn step(&mut self, now: Instant) -> bool {
        let mut stepped = false;
        for program in &mut self.programs {
            let due = match program.last {
                Step::Finished => continue,
                Step::Until(at) => at <= now,
                Step::Wait | Step::Idle => false,
            };
            if due || !self.events.is_empty() {
                stepped = true;
                let mut cx = Context { now, ring: &mut self.ring, events: &self.events, ip: self.ip };
                program.last = program.app.step(&mut cx);
            }
        }
        stepped
    }

    fn next_wake(&self) -> Option<Instant> {
        let programs = self.programs.iter().filter_map(|p| match p.last {
            Step::Until(at) => Some(at),
            _ => None,
        });
        programs.chain(self.ring.next_deadline()).min()
    }
}
