//! A process: its rings' program, whose threads take turns with its connections, so that these go over from ring to ring.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::device::MacAddr;
use ringway_stack::ring::FlowId;
use ringway_stack::tcp::{Config, Keepalive};
use ringway_stack::{Error, Instant};

use super::channel::{Answer, Channel};
use super::end::End;
use super::job::{Job, Place, Went};
use super::{CONNECTIONS, Plan, breach};
use crate::host::Step;
use crate::machine::{MachineApp, MachineContext};
use crate::random::{SplitMix, scale};

/// A ring has room for its listener, and for every connection.
const FLOWS_OF_ALL: usize = 1 + 2 * CONNECTIONS as usize;

/// Between two looks, while something goes on, and at most.
const TICK: Duration = Duration::from_micros(20);
const TICK_MAX: Duration = Duration::from_millis(4);

/// What both processes see of each other, beside what their rings do.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) channel: RefCell<Channel>,
    /// So many have a listener; and whether each has ended all of its connections.
    pub(super) listening: Cell<usize>,
    pub(super) is_through: [Cell<bool>; 2],
    pub(super) healed_at: Instant,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Process {
    machine: usize,
    plan: Plan,
    seed: u64,
    dice: SplitMix,
    ips: [SocketAddr; 2],
    macs: [MacAddr; 2],
    shared: Rc<Shared>,
    listener: Option<FlowId>,
    opened: u16,
    accepted: u16,
    ends: Vec<End>,
    jobs: Vec<Job>,
    tick: Duration,
    tick_at: Instant,
}

impl Process {
    pub(super) fn new(machine: usize, plan: Plan, seed: u64, ips: [SocketAddr; 2], macs: [MacAddr; 2], shared: &Rc<Shared>) -> Self {
        Self {
            machine,
            plan,
            seed,
            dice: SplitMix(seed ^ (0x70_726f_6365_7373 + machine as u64)),
            ips,
            macs,
            shared: Rc::clone(shared),
            listener: None,
            opened: 0,
            accepted: 0,
            ends: Vec::new(),
            jobs: Vec::new(),
            tick: TICK,
            tick_at: Instant::ZERO,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        scale(self.dice.next(), bound)
    }

    fn config(&self) -> Config {
        // Whoever only reads learns of a peer's end by nothing else if its reset is lost.
        let keepalive = Keepalive { idle: Duration::from_secs(20), interval: Duration::from_secs(5), count: 5 };
        Config { rcvbuf: self.plan.rcvbuf, nodelay: self.plan.nodelay, keepalive: Some(keepalive), ..Config::default() }
    }

    fn place<R>(&self, cx: &mut MachineContext<'_>, act: impl FnOnce(&mut Place<'_, '_>) -> R) -> R {
        let Self { machine, macs, shared, .. } = self;
        let channel = &mut shared.channel.borrow_mut();
        let (now, ports, healed_at) = (cx.now, &mut cx.ports, shared.healed_at);
        act(&mut Place { now, machine: *machine, macs: *macs, ports, channel, healed_at })
    }

    fn listen(&mut self, cx: &mut MachineContext<'_>) {
        let address = self.ips[self.machine];
        match cx.ports.ring(0).tcp_listen(address, usize::from(CONNECTIONS), &self.config()) {
            Ok(listener) => {
                self.listener = Some(listener);
                self.shared.listening.set(self.shared.listening.get() + 1);
            }
            Err(error) => breach(format_args!("a fresh ring listens: {error}")),
        }
    }

    /// Opens one more connection, by any of its rings; where those are small, not by the one that listens: two of those, full of connections that are being opened
    /// to each other, have no room for one.
    fn open(&mut self, cx: &mut MachineContext<'_>) {
        let port = 1000 * (1 + self.machine as u16) + self.opened;
        let first = u64::from(self.plan.flows_max < FLOWS_OF_ALL);
        let ring = (first + self.below(u64::from(self.plan.rings[self.machine]) - first)) as u16;
        let local = SocketAddr::new(self.ips[self.machine].ip(), port);
        let (remote, config) = (self.ips[1 - self.machine], self.config());
        let hop = self.place(cx, |place| place.channel.meet(place.machine, ring, 0).then(|| place.hop(0)));
        let Some(hop) = hop else { return };
        match cx.ports.ring(ring).tcp_connect(cx.now, local, remote, hop, &config) {
            Ok(socket) => {
                self.opened += 1;
                self.ends.push(End::new(socket, self.seed, port, true));
            }
            Err(Error::NoBuffers) => {}
            Err(error) => breach(format_args!("a connection is opened: {error}")),
        }
    }

    fn accept(&mut self, cx: &mut MachineContext<'_>) -> bool {
        let Some(listener) = self.listener else { return false };
        let Ok(socket) = cx.ports.ring(0).tcp_accept(listener) else { return false };
        let remote = cx.ports.ring(0).info(socket).and_then(|info| info.remote);
        let port = remote.map_or(0, |remote| remote.port());
        self.accepted += 1;
        self.ends.push(End::new(socket, self.seed, port, false));
        true
    }

    /// A connection that another ring's thread uses is to go over to that.
    fn sends_over(&mut self, cx: &mut MachineContext<'_>) {
        if self.ends.is_empty() {
            return;
        }
        let at = self.below(self.ends.len() as u64) as usize;
        let rings = u64::from(self.plan.rings[self.machine]);
        let (flow, step) = (self.ends[at].socket, 1 + self.below(rings - 1) as u16);
        let to = (flow.ring + step) % self.plan.rings[self.machine];
        let peer = self.place(cx, |place| if place.may_go_over(flow) { place.member(flow) } else { None });
        if let Some(peer) = peer
            && !self.jobs.iter().any(|job| job.flow == flow)
        {
            self.jobs.push(Job::new(flow, to, peer));
        }
    }

    /// What is under way goes on. When to look again.
    fn work(&mut self, cx: &mut MachineContext<'_>) -> Option<Instant> {
        let (machine, now) = (self.machine, cx.now);
        let asked = self.shared.channel.borrow_mut().take(now, machine);
        for (question, puts_off) in asked {
            let answer = self.place(cx, |place| place.follow(&question, puts_off));
            if matches!(answer, Answer::Follows(_)) {
                self.jobs.iter_mut().for_each(|job| job.note_told(question.ends));
            }
            self.shared.channel.borrow_mut().answer(now, machine, question.number, answer);
        }
        let (config, mut jobs) = (self.config(), core::mem::take(&mut self.jobs));
        let mut next = None;
        jobs.retain_mut(|job| {
            loop {
                let at = self.ends.iter().position(|end| end.socket == job.flow);
                match self.place(cx, |place| job.step(place, at.is_some(), &config)) {
                    Went::Done => return false,
                    Went::Over(id) => at.into_iter().for_each(|at| self.ends[at].socket = id),
                    Went::Until(until) => {
                        next = next.into_iter().chain([until]).min();
                        return true;
                    }
                }
            }
        });
        self.jobs = jobs;
        next.into_iter().chain(self.shared.channel.borrow().next_at(machine)).min()
    }

    /// Programs' calls. Whether anything came of them.
    fn calls(&mut self, cx: &mut MachineContext<'_>) -> bool {
        let is_dead = self.shared.channel.borrow().is_dead;
        let mut got_on = false;
        if self.opened < CONNECTIONS && !is_dead && self.below(3) == 0 {
            self.open(cx);
        }
        if self.below(2) == 0 {
            got_on |= self.accept(cx);
        }
        let mut ends = core::mem::take(&mut self.ends);
        for end in &mut ends {
            if self.below(2) == 0 {
                let is_silent = self.jobs.iter().any(|job| job.is_silent(end.socket));
                let ring = cx.ports.ring(end.socket.ring);
                got_on |= end.go(cx.now, ring, &mut self.dice, is_silent, is_dead);
            }
        }
        ends.retain(|end| !end.is_over);
        self.ends = ends;
        // (Threads settle at last: a connection that goes over again in the very moment in which it may speak, each time, hears of nothing.)
        if cx.now < self.shared.healed_at && self.below(100) < self.plan.moves {
            self.sends_over(cx);
        }
        got_on
    }

    fn is_through(&self) -> bool {
        let is_dead = self.shared.channel.borrow().is_dead;
        let all = self.opened == CONNECTIONS && self.accepted == CONNECTIONS;
        self.ends.is_empty() && self.jobs.is_empty() && (all || is_dead)
    }
}

impl MachineApp for Process {
    fn step(&mut self, cx: &mut MachineContext<'_>) -> Step {
        if self.listener.is_none() {
            self.listen(cx);
        }
        let next = self.work(cx).filter(|&at| at > cx.now);
        if cx.now >= self.tick_at {
            let got_on = self.shared.listening.get() == 2 && self.calls(cx);
            self.tick = if got_on { TICK } else { (self.tick * 2).min(TICK_MAX) };
            self.tick_at = cx.now + self.tick;
        }
        self.shared.is_through[self.machine].set(self.is_through());
        // (A peer whose end is still there may ask where this one is.)
        if self.shared.is_through.iter().all(Cell::get)
            && let Some(listener) = self.listener
        {
            // What was in its backlog when the peer died is refused.
            cx.ports.ring(0).close(cx.now, listener, false);
            return Step::Finished;
        }
        Step::Until(next.map_or(self.tick_at, |next| next.min(self.tick_at)))
    }
}
