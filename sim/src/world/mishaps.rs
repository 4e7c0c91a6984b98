//! Faults that strike in episodes: they are drawn here, begin and end as the agenda has it, and are undone when faults are switched off.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ringway_stack::device::{DeviceEvent, MacAddr};

use super::{HostId, World};
use crate::fabric::forge::Attacker;
use crate::fabric::{Cut, Direction, Drawer, HostSet};
use crate::faults::{Course, Episodes, FaultSet, HostFaults, Mishap, TIMED};
use crate::network::Event;
use crate::nic::LeftBehind;
use crate::random::{Purpose, RandomStream};

/// A class at a host, or at its link.
type Spot = (usize, FaultSet);

/// An entry of the agenda.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    spot: Spot,
    /// Entries of an earlier one are void: faults were switched off since.
    epoch: u32,
    /// `Some`: an episode begins, of this length and kind. `None`: it ends.
    begins: Option<(Duration, u64)>,
}

/// A host that died, and what its rings left behind.
#[derive(Debug)]
pub(crate) struct Dead {
    host: usize,
    left_behind: Vec<(MacAddr, Rc<LeftBehind>)>,
}

/// All episodes of a world.
#[derive(Debug, Default)]
pub(super) struct Courses {
    courses: BTreeMap<Spot, Course>,
    /// The agenda holds a turn for them.
    planned: BTreeSet<Spot>,
    /// Their episode has begun, and not ended.
    under_way: BTreeSet<Spot>,
    epoch: u32,
}

impl World {
    /// Cuts two groups of hosts off from each other, until [`World::heal`].
    pub fn partition(&mut self, some: &[HostId], others: &[HostId]) {
        self.cut(some, others, false);
    }

    /// Lets `others` hear nothing of `some`, who still hear them, until [`World::heal`].
    pub fn partition_one_way(&mut self, some: &[HostId], others: &[HostId]) {
        self.cut(some, others, true);
    }

    /// Ends every [`World::partition`] and [`World::partition_one_way`].
    pub fn heal(&mut self) {
        self.network.fabric.cuts.remove(Drawer::User);
    }

    /// Crashes a host: its sockets and programs are gone, and nobody is told. [`World::restart`] starts it again.
    pub fn crash(&mut self, host: HostId) {
        if !self.host(host).is_down() {
            self.crash_now(host.0);
        }
    }

    /// Starts a host again that crashed: same addresses, other sequence numbers, and the programs of [`World::add_restartable`].
    pub fn restart(&mut self, host: HostId) {
        if self.host(host).is_down() {
            self.restart_now(host.0);
        }
    }

    /// A host dies for good, with the machine's program that it has. Its peers, where each ring has a MAC address of its own ([`crate::NicConfig::mac_per_ring`]), are told by
    /// [`World::tell_of_death`].
    pub(crate) fn kill(&mut self, host: HostId) -> Dead {
        let left_behind = self.hosts[host.0].nic().left_behind();
        self.crash(host);
        self.end_machines_of(host.0);
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().died(host.0);
        }
        Dead { host: host.0, left_behind }
    }

    /// What a dead host had sent is there; now its peers learn of its death.
    pub(crate) fn tell_of_death(&mut self, dead: &Dead) {
        for host in (0..self.hosts.len()).filter(|&host| host != dead.host) {
            if self.hosts[host].nic().has_mac_per_ring() {
                dead.left_behind.iter().for_each(|(mac, left)| self.hosts[host].nic().tell_of_death(*mac, left));
                self.wake(host, self.network.now);
            }
        }
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().death_told(dead.host);
        }
    }

    /// Lets a host's clock jump forward.
    pub fn jump_clock(&mut self, host: HostId, by: Duration) {
        self.befell(host.0, Mishap::ClockJumped { by });
        self.hosts[host.0].jump(by);
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().jumped(self.network.now, host.0, by);
        }
        self.wake(host.0, self.network.now);
    }

    /// Plans what a host and its link have strengths for, and no plans yet.
    pub(super) fn plan_all(&mut self, host: usize) {
        for (class, _) in TIMED {
            self.plan((host, class));
        }
    }

    /// Faults were switched on, or off.
    pub(super) fn turn_faults(&mut self) {
        self.courses.epoch += 1;
        self.courses.planned.clear();
        for spot in core::mem::take(&mut self.courses.under_way) {
            self.undo(spot);
        }
        (0..self.hosts.len()).for_each(|host| self.plan_all(host));
    }

    /// An entry of the agenda comes up.
    pub(super) fn turn(&mut self, turn: Turn) {
        if turn.epoch != self.courses.epoch {
            return;
        }
        let spot = turn.spot;
        self.courses.planned.remove(&spot);
        match turn.begins {
            // Its strength was taken away since.
            Some(_) if self.strength(spot).never() => {}
            Some((length, detail)) if self.strike(spot, length, detail) => {
                self.courses.under_way.insert(spot);
                self.push(spot, length, None);
            }
            Some(_) => self.plan(spot),
            None => {
                self.courses.under_way.remove(&spot);
                self.undo(spot);
                self.plan(spot);
            }
        }
    }

    /// Puts an attacker beside a host that has the strength for one.
    pub(super) fn attack(&mut self, host: usize) {
        let HostFaults { forge_ppm, forge_lies, .. } = self.hosts[host].faults;
        if forge_ppm == 0 {
            self.network.attackers.remove(&host);
            return;
        }
        let stream = RandomStream::new(self.seed, Purpose::Forge, u32::try_from(host).unwrap_or(u32::MAX), 0);
        self.network.attackers.insert(host, Attacker::new(stream, forge_ppm, forge_lies));
    }

    fn plan(&mut self, spot: Spot) {
        let episodes = self.strength(spot);
        if episodes.never() || !self.network.faults_on || self.courses.planned.contains(&spot) {
            return;
        }
        let (host, class) = spot;
        let purpose = TIMED.iter().find(|(timed, _)| *timed == class).map_or(Purpose::Delay, |&(_, purpose)| purpose);
        let seed = self.seed;
        let index = u32::try_from(host).unwrap_or(u32::MAX);
        let course = self.courses.courses.entry(spot).or_insert_with(|| Course::new(seed, purpose, index));
        let plan = course.next(episodes);
        if class == FaultSet::ICMP {
            self.network.taps.entry(host).or_default();
        }
        self.push(spot, plan.after, Some((plan.length, plan.detail)));
    }

    fn push(&mut self, spot: Spot, after: Duration, begins: Option<(Duration, u64)>) {
        self.courses.planned.insert(spot);
        let turn = Turn { spot, epoch: self.courses.epoch, begins };
        self.network.agenda.push(self.network.now + after, Event::Episode(turn));
    }

    fn strength(&mut self, (host, class): Spot) -> Episodes {
        let link = self.network.fabric.lane(host, Direction::Down).config().faults;
        let own = self.hosts[host].faults;
        match class {
            FaultSet::CLOCK => own.clock,
            FaultSet::PAUSE => own.pause,
            FaultSet::CRASH => own.crash,
            FaultSet::NEIGHBOUR => own.neighbour,
            FaultSet::ICMP => own.icmp,
            _ => link.episodes(class),
        }
    }

    /// Lets an episode begin. Whether it has an end.
    fn strike(&mut self, (host, class): Spot, length: Duration, detail: u64) -> bool {
        match class {
            FaultSet::DELAY | FaultSet::BANDWIDTH | FaultSet::MTU => self.degrade(host, class, detail),
            FaultSet::PARTITION | FaultSet::ONE_WAY => {
                let one_way = class == FaultSet::ONE_WAY;
                let cut = Cut::drawn(detail, host, self.hosts.len(), one_way);
                self.network.fabric.cuts.add(Drawer::Episode { link: host, one_way }, cut);
                self.befell(host, Mishap::Partitioned { one_way });
            }
            FaultSet::FLAP => self.carrier(host, false),
            FaultSet::PAUSE => {
                self.hosts[host].paused = true;
                self.befell(host, Mishap::Paused);
            }
            FaultSet::CRASH if self.hosts[host].is_down() => return false,
            FaultSet::CRASH => self.crash_now(host),
            FaultSet::CLOCK => {
                self.jump_clock(HostId(host), length);
                return false;
            }
            FaultSet::NEIGHBOUR => {
                self.change_neighbour(host, detail);
                return false;
            }
            FaultSet::ICMP => {
                let mac = self.hosts[host].mac();
                self.network.forge(host, mac, detail);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Undoes what an episode did.
    fn undo(&mut self, (host, class): Spot) {
        match class {
            FaultSet::DELAY | FaultSet::BANDWIDTH | FaultSet::MTU => self.network.fabric.weather(host, |conditions| conditions.end(class)),
            FaultSet::PARTITION | FaultSet::ONE_WAY => {
                self.network.fabric.cuts.remove(Drawer::Episode { link: host, one_way: class == FaultSet::ONE_WAY });
            }
            FaultSet::FLAP => self.carrier(host, true),
            FaultSet::PAUSE => {
                self.hosts[host].paused = false;
                self.befell(host, Mishap::Resumed);
                if let Some(checkers) = &self.network.checkers {
                    checkers.borrow_mut().resumed(self.network.now, host);
                }
                self.wake(host, self.network.now);
            }
            FaultSet::CRASH => self.restart(HostId(host)),
            _ => {}
        }
    }

    /// A link gets slower, narrower, or carries shorter packets.
    fn degrade(&mut self, host: usize, class: FaultSet, detail: u64) {
        let mishap = self.network.fabric.lane(host, Direction::Down).config().episode(class, detail);
        self.befell(host, mishap);
        self.network.fabric.weather(host, |conditions| conditions.begin(mishap));
    }

    fn carrier(&mut self, host: usize, up: bool) {
        self.network.fabric.weather(host, |c| c.down = !up);
        self.befell(host, if up { Mishap::CarrierFound } else { Mishap::CarrierLost });
        if let Some(checkers) = self.network.checkers.as_ref().filter(|_| up) {
            checkers.borrow_mut().carrier_found(host);
        }
        self.hosts[host].nic().notify(DeviceEvent::Link { up });
        self.wake(host, self.network.now);
    }

    fn crash_now(&mut self, host: usize) {
        self.befell(host, Mishap::Crashed);
        // The stack's streams again, as many further on as there are rings a boot: other numbers than before, and the same in every run.
        let (index, boots, seed) = (u32::try_from(host).unwrap_or(u32::MAX), self.hosts[host].boots() + 1, self.seed);
        let rings = u32::try_from(self.hosts[host].rings().len()).unwrap_or(1);
        let part = |ring: u8| u8::try_from((boots * rings + u32::from(ring)) % 256).unwrap_or(u8::MAX);
        let nic_seed = seed.wrapping_add(u64::from(boots) << 32);
        self.hosts[host].crash(nic_seed, index, |ring| RandomStream::new(seed, Purpose::Stack, index, part(ring)).seed());
        if let Some(checkers) = &self.network.checkers {
            self.hosts[host].watch(checkers);
        }
        self.hosts[host].nic().advance(self.network.now);
        self.hosts[host].nic().set_faults(self.network.faults_on);
    }

    fn restart_now(&mut self, host: usize) {
        self.befell(host, Mishap::Restarted);
        self.hosts[host].restart();
        self.wake(host, self.network.now);
    }

    /// A host gets another Ethernet address, or forgets all others'.
    fn change_neighbour(&mut self, host: usize, detail: u64) {
        if self.hosts[host].is_down() {
            return;
        }
        let (kind, others) = (detail % 3, self.hosts.iter().map(|h| h.ip()).collect::<Vec<_>>());
        if kind == 0 {
            self.befell(host, Mishap::Forgot);
            if let Some(checkers) = &self.network.checkers {
                checkers.borrow_mut().forgot_neighbours(host);
            }
            for ring in self.hosts[host].rings_mut() {
                others.iter().for_each(|&ip| ring.set_neighbour(ip, None));
            }
            return;
        }
        let MacAddr([a, b, version_hi, version_lo, hi, lo]) = self.hosts[host].mac();
        let [version_hi, version_lo] = u16::from_be_bytes([version_hi, version_lo]).wrapping_add(1).to_be_bytes();
        let mac = MacAddr([a, b, version_hi, version_lo, hi, lo]);
        let announced = kind == 1;
        self.befell(host, Mishap::Moved { announced });
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().readdressed(host, announced);
        }
        self.network.fabric.readdress(host, mac);
        let ip = self.hosts[host].ip();
        self.hosts[host].nic().set_mac(mac);
        // One announcement is enough: the first ring's.
        for (number, ring) in self.hosts[host].rings_mut().iter_mut().enumerate() {
            ring.readdress(announced && number == 0);
        }
        if self.introduced {
            // Whoever told them will not tell them again: they have to ask.
            let rings = self.hosts.iter_mut().flat_map(|other| other.rings_mut());
            rings.for_each(|ring| ring.set_neighbour(ip, None));
        }
        self.wake(host, self.network.now);
    }

    fn cut(&mut self, some: &[HostId], others: &[HostId], one_way: bool) {
        let set = |hosts: &[HostId]| hosts.iter().map(|h| h.0).collect::<HostSet>();
        self.network.fabric.cuts.add(Drawer::User, Cut { from: set(some), to: set(others), one_way });
    }

    fn befell(&mut self, host: usize, mishap: Mishap) {
        self.network.trace.befell(self.network.now, host, mishap);
    }
}

#[cfg(test)]
mod tests;
