//! Two hosts, the link between them, and time, which goes from one thing that happens to the next.

use core::time::Duration;

use ringway_sim::relay::Port;
use ringway_sim::{LinkConfig, Relay};
use ringway_stack::Instant;
use ringway_stack::device::Queues as _;

use super::card::Fault;
use super::host::Host;
use super::plan::Plan;
use super::{Changes, Report};

/// How long after the last fault everything must have come to its end: as long as the stack's timers may have been backed off, and then some.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long who is told that his card is gone may take to notice.
const NOTICE: Duration = Duration::from_secs(1);
/// Things that happen in a world at most.
const EVENTS_MAX: u64 = 200_000;

/// See the module's documentation.
pub(super) struct World {
    plan: Plan,
    now: Instant,
    pub(super) hosts: [Host; 2],
    /// The link, and what it is once faults have ended.
    relays: [Relay; 2],
    faults: std::vec::IntoIter<(Instant, usize, Fault)>,
    next_fault: Option<(Instant, usize, Fault)>,
    gone_at: Option<Instant>,
    events: u64,
    struck: u64,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Frame(usize),
    Card(usize),
    Thread(usize),
    Fault,
    Look(usize),
}

const PORTS: [Port; 2] = [Port::Near, Port::Far];

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let hosts = [0, 1].map(|number| Host::new(number, &plan));
        let calm = LinkConfig { faults: ringway_sim::Faults::default(), ..plan.link };
        let relays = [Relay::new(plan.seed, plan.link), Relay::new(plan.seed, calm)];
        let mut faults = plan.faults.clone().into_iter();
        let next_fault = faults.next();
        Self { plan, now: Instant::ZERO, hosts, relays, faults, next_fault, gone_at: None, events: 0, struck: 0 }
    }

    /// Lets everything come to its end.
    pub(super) fn play(mut self) -> Report {
        let end = self.plan.faults_end + PATIENCE;
        while !self.is_done() {
            assert!(self.step(end), "law liveness: not done at {end:?}: {}; {}", self.hosts[0].state(), self.hosts[1].state());
        }
        // What is under way arrives, what was sent completes, and connections that were closed are forgotten.
        let quiet = self.now.max(self.plan.faults_end) + Duration::from_secs(200);
        while self.step(quiet) {}
        self.now = quiet;
        self.end()
    }

    /// Whether all that must come to its end has done so. (Of a connection whose other end is gone, nobody waits for the end.)
    fn is_done(&self) -> bool {
        let is_peer_of_gone = |host: &Host| self.gone_at.is_some() && self.plan.gone == Some(1 - host.number);
        let is_quiet = self.next_fault.is_none() || self.plan.is_calm;
        is_quiet && self.hosts.iter().all(|host| is_peer_of_gone(host) || host.is_done())
    }

    /// What happens next, and when.
    fn next(&self) -> Option<(Instant, Next)> {
        let relays = (0..2).filter_map(|relay| Some((self.relays[relay].next_at()?, Next::Frame(relay))));
        let fault = self.next_fault.map(|(at, _, _)| (at, Next::Fault));
        let of_hosts = self.hosts.iter().flat_map(|host| {
            let all = [
                (host.works_at, Next::Card(host.number)),
                (host.hears_at, Next::Thread(host.number)),
                (host.looks_at, Next::Look(host.number)),
            ];
            all.into_iter().filter_map(|(at, what)| Some((at?, what)))
        });
        relays.chain(fault).chain(of_hosts).min_by_key(|(at, _)| *at)
    }

    /// Lets the next thing happen. `false`: nothing does until `end`.
    fn step(&mut self, end: Instant) -> bool {
        let Some((at, what)) = self.next().filter(|(at, _)| *at <= end) else { return false };
        self.now = self.now.max(at);
        self.events += 1;
        assert!(self.events < EVENTS_MAX, "law liveness: too much happens: {}; {}", self.hosts[0].state(), self.hosts[1].state());
        let now = self.now;
        self.hosts.iter().for_each(|host| host.card.borrow_mut().set_now(now));
        match what {
            Next::Frame(relay) => self.frame(relay),
            Next::Card(host) => {
                let host = &mut self.hosts[host];
                host.works_at = None;
                let mut card = host.card.borrow_mut();
                let most = card.trouble.dice.between(1, 8) as usize;
                card.work(most);
            }
            Next::Thread(host) => {
                self.hosts[host].hears_at = None;
                self.hosts[host].device.driver.hear();
            }
            Next::Fault => self.fault(),
            Next::Look(host) => self.hosts[host].look(now),
        }
        for number in 0..2 {
            self.hosts[number].notice(now);
            self.carry(number);
        }
        self.check();
        true
    }

    /// A frame arrives.
    fn frame(&mut self, relay: usize) {
        if let Some(frame) = self.relays[relay].leave(self.now) {
            let host = usize::from(frame.port == Port::Far);
            let mut card = self.hosts[host].card.borrow_mut();
            card.arrive(frame.bytes.to_vec());
            // (Or it looks at it later.)
            let most = card.trouble.dice.below(3) as usize;
            card.work(most);
        }
    }

    /// What has left a card goes onto the link.
    fn carry(&mut self, host: usize) {
        let relay = usize::from(self.now >= self.plan.faults_end);
        while let Some(frame) = { self.hosts[host].card.borrow_mut().depart() } {
            self.relays[relay].arrive(self.now, PORTS[host], &frame);
        }
    }

    fn fault(&mut self) {
        let Some((_, host, fault)) = self.next_fault.take() else { return };
        self.next_fault = self.faults.next();
        if fault == Fault::Gone {
            self.gone_at = Some(self.now);
        }
        self.struck += u64::from(self.hosts[host].card.borrow_mut().strike(fault));
    }

    /// No law is broken so far.
    fn check(&self) {
        for host in &self.hosts {
            if let Some(breach) = host.card.borrow().laws.breaches.first() {
                panic!("{breach} (host {}, at {:?})", host.number, self.now);
            }
        }
        if let (Some(gone), Some(at)) = (self.plan.gone, self.gone_at) {
            let host = &self.hosts[gone];
            assert!(self.now < at + NOTICE || host.ring.is_gone(), "law liveness: host {gone} does not notice that its card is gone");
        }
    }

    /// Everything is given back, and nothing was lost that need not be.
    fn end(mut self) -> Report {
        // (Who looks now and then rings once more for what the card may have missed, after a while.)
        for _ in 0..3 {
            self.now += Duration::from_millis(20);
            self.hosts.iter_mut().for_each(|host| host.look_at(Some(self.now)));
            while self.step(self.now) {}
        }
        // (And what it rings for leaves at the queue's rate, and is looked at where it comes to.)
        for _ in 0..2 {
            let until = self.now + Duration::from_secs(10);
            while self.step(until) {}
            self.now = until;
            for host in &mut self.hosts {
                assert!(!host.oversleeps(), "law liveness: host {} sleeps, and something has come: {}", host.number, host.state());
                host.card.borrow_mut().set_now(until);
                host.look(until);
            }
        }
        for host in &mut self.hosts {
            let number = host.number;
            host.lanes.drain(self.now);
            host.datagrams.close(self.now, &mut host.ring);
            host.ring.poll(self.now);
            host.card.borrow_mut().work(usize::MAX);
            host.look(self.now);
            let sends = host.card.borrow().sends();
            host.each_ring(|queues| {
                queues.reap();
                while queues.completion().is_some() {}
                let unsent = queues.queues.unsent();
                let ring = queues.id().0;
                assert!(
                    unsent == 0,
                    "law resources: host {number}: {unsent} blocks of ring {ring} are never done: {}, {:?}",
                    sends,
                    queues.queues.counters()
                );
            });
            let astray = host.card.borrow().led_astray().filter(|_| !host.ring.is_gone());
            assert!(astray.is_none(), "law steering: host {number}: frames go to {astray:x?}, for which no rule was asked");
            let dead = host.card.borrow().dead_receiver().filter(|_| !host.ring.is_gone());
            assert!(dead.is_none(), "law liveness: host {number}: the receive queue {dead:x?} receives nothing any more");
            let unpolled = host.card.borrow().unpolled();
            assert!(
                unpolled.is_empty() || host.ring.is_gone(),
                "law received: host {number}: frames never reach who polls, of {unpolled:x?}"
            );
            let cookies = host.card.borrow().laws.cookies_out();
            assert!(cookies == 0, "law cookies: host {number}: {cookies} never come back");
        }
        self.check();
        self.check_arrivals();
        let report = self.report();
        for host in self.hosts {
            let card = std::rc::Rc::clone(&host.card);
            drop(host);
            let objects = card.borrow().objects();
            assert!(objects == 0, "law resources: {objects} objects are left at the card");
            if let Some(breach) = card.borrow().laws.breaches.first() {
                panic!("{breach} (at the end)");
            }
        }
        report
    }

    /// Where nothing goes wrong, everything arrives once.
    fn check_arrivals(&self) {
        for host in self.hosts.iter().filter(|_| self.plan.is_calm) {
            let peer = &self.hosts[1 - host.number];
            if host.card.borrow().missed > 0 {
                continue;
            }
            let once = host.datagrams.received.values().filter(|times| **times == 1).count();
            let (sent, received) = (peer.datagrams.sent() as usize, host.datagrams.received.len());
            assert!(once == sent && received == sent, "law arrivals: {once} of {sent} datagrams arrive once, and {received} at all");
            let (sent, received) = (peer.frames.sent() - peer.frames.dummies, host.frames.received);
            assert!(host.frames.is_busy() || received == sent, "law arrivals: {received} of {sent} frames");
        }
    }

    fn report(&self) -> Report {
        let counters = self.hosts.each_ref().map(|host| {
            let rings = core::iter::once(host.ring.queues()).chain(host.frames.queues()).chain(host.lanes.rings());
            rings.map(|queues| queues.queues.counters()).collect::<Vec<_>>()
        });
        let sum = |of: fn(&ringway_mlx5::Counters) -> u64| counters.iter().flatten().map(of).sum::<u64>();
        let of_laws = |of: fn(&super::laws::Laws) -> u64| self.hosts.iter().map(|host| of(&host.card.borrow().laws)).sum::<u64>();
        Report {
            seed: self.plan.seed,
            events: self.events,
            faults: self.struck,
            frames: self.hosts.iter().map(|host| host.card.borrow().laws.sent).sum(),
            received: self.hosts.iter().map(|host| host.card.borrow().laws.received).sum(),
            send_failures: sum(|counters| counters.send_failures),
            receive_failures: sum(|counters| counters.receive_failures),
            whole_entries: sum(|counters| counters.whole_entries),
            compressed_runs: sum(|counters| counters.compressed_runs),
            in_strides: of_laws(|laws| laws.in_strides),
            steered: of_laws(|laws| laws.steering.steered),
            paced: of_laws(|laws| laws.paced),
            cut: of_laws(|laws| laws.cut),
            staged: sum(|counters| counters.staged),
            from_card: self.hosts.iter().map(|host| host.lanes.from_card).sum(),
            changes: self.hosts.iter().map(|host| host.lanes.done).fold(Changes::default(), Changes::plus),
            of_groups: of_laws(|laws| laws.steering.of_groups),
            after_moves: of_laws(|laws| laws.steering.after_moves),
            ended: self.now,
        }
    }
}
