//! A host: a card, the driver, the stack's ring above it, and programs. It sleeps on the ring's descriptor, as hosts do, or looks again and again.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

use ringway_host::sleep;
use ringway_mlx5::Mlx5Device;
use ringway_stack::Instant;
use ringway_stack::device::{Device as _, Queues as _, QueuesConfig, Wake};
use ringway_stack::ring::{Ring, RingConfig};

use super::card::Card;
use super::library::{self, Shared};
use super::plan::{HostPlan, Plan, dice};
use super::programs::datagrams::Datagrams;
use super::programs::frames::Frames;
use super::programs::ip;
use super::programs::lanes::Lanes;
use super::programs::streams::End;
use super::watched::{Watched, WatchedQueues};

/// Rounds of looking and doing at one point in time, of those that time goes on after.
const ROUNDS_AT_ONCE: u32 = 100;

/// See the module's documentation.
pub(super) struct Host {
    pub(super) number: usize,
    pub(super) card: Shared,
    pub(super) device: Watched,
    pub(super) ring: Ring<WatchedQueues>,
    pub(super) streams: Vec<End>,
    pub(super) datagrams: Datagrams,
    pub(super) frames: Frames,
    pub(super) lanes: Lanes,
    sleeps: bool,
    pub(super) looks_after: Duration,
    is_asleep: bool,
    /// When it looks next; when the card does something by itself; when the driver's thread hears of events.
    pub(super) looks_at: Option<Instant>,
    pub(super) works_at: Option<Instant>,
    pub(super) hears_at: Option<Instant>,
}

impl Host {
    pub(super) fn new(number: usize, plan: &Plan) -> Self {
        let HostPlan { settings, khz, sleeps, looks_after, datagrams, frames, lanes } = &plan.hosts[number];
        let card: Shared = Rc::new(RefCell::new(Card::new(*khz, plan.trouble(number))));
        #[cfg(feature = "mutants")]
        watch(&card);
        let (verbs, dv) = library::libraries();
        let context = library::open(&card);
        // (To be opened is no part of the story.)
        let refused_ppm = core::mem::take(&mut card.borrow_mut().trouble.refused_ppm);
        // SAFETY: the libraries are those that have opened the context.
        let driver = unsafe { Mlx5Device::open_context(verbs, dv, context, settings) }.expect("a card");
        let device = Watched { driver, card: Rc::clone(&card) };
        let queues = device.open(&QueuesConfig::default()).expect("its ring");
        card.borrow_mut().trouble.refused_ppm = refused_ppm;
        let config = RingConfig { addresses: vec![ip(number)], ..RingConfig::default() };
        let mut seed = [number as u8; 32];
        seed[1..9].copy_from_slice(&plan.seed.to_le_bytes());
        Self {
            number,
            ring: Ring::new(queues, config, seed),
            streams: plan
                .streams
                .iter()
                .zip(0..)
                .map(|(stream, at)| End::new(number, at, *stream, if plan.is_calm { 0 } else { 1000 }))
                .collect(),
            datagrams: Datagrams::new(number, *datagrams),
            frames: Frames::new(number, device.clone(), *frames, dice(plan.seed, 8 + number as u32)),
            lanes: Lanes::new(number, device.clone(), *lanes, dice(plan.seed, 24 + number as u32)),
            card,
            device,
            sleeps: *sleeps,
            looks_after: *looks_after,
            is_asleep: false,
            looks_at: Some(Instant::ZERO),
            works_at: None,
            hears_at: None,
        }
    }

    /// Whether its programs have done all that they do by themselves.
    pub(super) fn is_done(&self) -> bool {
        self.streams.iter().all(End::is_done) && self.datagrams.is_done() && self.frames.is_done() && self.lanes.is_done()
    }

    /// Looks at its rings, lets programs act, and goes to sleep, if it does.
    pub(super) fn look(&mut self, now: Instant) {
        if core::mem::take(&mut self.is_asleep) {
            self.each_ring(WatchedQueues::disarm);
        }
        self.looks_at = None;
        for round in 0.. {
            let done = self.round(now);
            if done && round < ROUNDS_AT_ONCE {
                continue;
            }
            self.ring.tidy();
            if !self.sleeps || round >= ROUNDS_AT_ONCE {
                break;
            }
            let mut is_armed = true;
            self.each_ring(|queues| is_armed &= queues.arm(Wake::Any));
            if is_armed {
                self.is_asleep = true;
                break;
            }
            self.each_ring(WatchedQueues::disarm);
            if !done {
                break;
            }
        }
        let programs = self.datagrams.deadline().into_iter().chain(self.frames.deadline()).chain(self.lanes.deadline());
        let programs = programs.chain(self.streams.iter().filter_map(End::deadline));
        let deadline = programs.chain(self.ring.sleep_deadline()).min();
        self.look_at(deadline.map(|at| at.max(now + Duration::from_nanos(1))));
        self.notice(now);
    }

    /// Looks once. Whether something was done.
    fn round(&mut self, now: Instant) -> bool {
        let mut done = self.ring.poll(now) > 0;
        while self.ring.take_event().is_some() {
            done = true;
        }
        let ring = &mut self.ring;
        let told = self.streams.iter_mut().try_for_each(|stream| stream.step(now, ring)).and_then(|()| self.datagrams.step(now, ring));
        if let Err(what) = told {
            panic!("law programs: {what}");
        }
        done | self.frames.step(now) | self.lanes.step(now)
    }

    pub(super) fn each_ring(&mut self, mut of: impl FnMut(&mut WatchedQueues)) {
        of(self.ring.queues_mut());
        self.frames.queues_mut().into_iter().for_each(&mut of);
        self.lanes.rings_mut().for_each(of);
    }

    pub(super) fn look_at(&mut self, at: Option<Instant>) {
        self.looks_at = self.looks_at.into_iter().chain(at).min();
    }

    /// The card has done something, perhaps: whoever is to look at it does so, in time.
    pub(super) fn notice(&mut self, now: Instant) {
        let raw = || self.frames.queues().into_iter().chain(self.lanes.rings());
        let is_woken = if self.is_asleep {
            core::iter::once(self.ring.queues()).chain(raw()).filter_map(|queues| queues.wait_fd()).any(is_readable)
        } else {
            self.ring.is_due(now) || raw().any(|queues| queues.rx_ready())
        };
        if is_woken {
            self.look_at(Some(now + self.looks_after));
        }
        let mut card = self.card.borrow_mut();
        if self.works_at.is_none() && card.has_work() {
            let after = card.trouble.dice.magnitude(50, 5_000);
            self.works_at = Some(now + Duration::from_nanos(after));
        }
        self.works_at = self.works_at.into_iter().chain(card.next_at()).min();
        if self.hears_at.is_none() && card.has_news() {
            let after = card.trouble.dice.magnitude(1_000, 1_000_000);
            self.hears_at = Some(now + Duration::from_nanos(after));
        }
    }

    /// It sleeps, and something has come that does not wake it.
    pub(super) fn oversleeps(&self) -> bool {
        let rings = || core::iter::once(self.ring.queues()).chain(self.frames.queues()).chain(self.lanes.rings());
        let has_news = self.is_asleep && rings().any(|queues| queues.rx_ready());
        has_news && !rings().filter_map(|queues| queues.wait_fd()).any(is_readable)
    }

    /// How far it is.
    pub(super) fn state(&self) -> String {
        let counters = self.ring.queues().queues.counters();
        let mut text = format!(
            "host {}: {}, {} and {} sent, {counters:?}, asleep: {}",
            self.number,
            self.datagrams.sent(),
            self.frames.sent(),
            self.lanes.state(),
            self.is_asleep
        );
        for stream in self.streams.iter().filter(|stream| !stream.is_done()) {
            text += &format!("; {}", stream.state());
        }
        text
    }
}

/// The card looks at each register when it is written, and not only between the driver's calls: so the order matters in which the driver writes.
#[cfg(feature = "mutants")]
fn watch(card: &Shared) {
    let card = Rc::downgrade(card);
    ringway_mlx5::mutants::watch(Rc::new(move || {
        if let Some(card) = card.upgrade() {
            let mut card = card.borrow_mut();
            let most = card.trouble.dice.below(3) as usize;
            card.work(most);
        }
    }));
}

fn is_readable(fd: i32) -> bool {
    let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    sleep::ppoll(&mut fds, Some(Duration::ZERO), None).is_ok_and(|ready| ready > 0)
}
