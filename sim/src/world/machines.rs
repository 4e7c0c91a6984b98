//! Machines in a world: hosts that share a program.

use core::fmt;

use super::{HostId, World};
use crate::host::Step;
use crate::machine::{MachineApp, MachineContext, Ports};

/// Rounds of a machine at one point in virtual time before it counts as a livelock.
const ROUNDS_MAX: u32 = 20_000;

/// A machine's hosts, and its program.
pub(super) struct Machine {
    /// Invariant: neighbours in the world, in its order.
    hosts: core::ops::Range<usize>,
    app: Box<dyn MachineApp>,
    last: Step,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("hosts", &self.hosts).field("last", &self.last).finish_non_exhaustive()
    }
}

impl Machine {
    pub(super) fn finished(&self) -> bool {
        matches!(self.last, Step::Idle | Step::IdleUntil(_) | Step::Finished)
    }
}

impl World {
    /// Starts a program, now, whose rings are those of several hosts: in their order, with numbers from zero on
    /// ([`crate::HostConfig::first_ring`]). Faults that strike a whole host (pauses, crashes, clocks that jump) are not for them.
    ///
    /// # Panics
    /// The hosts were not added one after the other.
    pub fn add_machine(&mut self, hosts: &[HostId], app: impl MachineApp + 'static) {
        let first = hosts.first().expect("a machine has a host").0;
        assert!(hosts.iter().zip(first..).all(|(host, at)| host.0 == at), "a machine's hosts are added one after the other");
        self.machines.push(Machine { hosts: first..first + hosts.len(), app: Box::new(app), last: Step::Until(self.network.now) });
        self.wake(first, self.network.now);
    }

    /// The programs of the machines that have this host end with it.
    pub(super) fn end_machines_of(&mut self, host: usize) {
        let its = self.machines.iter_mut().filter(|machine| machine.hosts.contains(&host));
        its.for_each(|machine| machine.last = Step::Finished);
    }

    /// One of a machine's hosts was looked at: its program may have something to do, and the hosts after it.
    pub(super) fn step_machine_of(&mut self, host: usize) {
        let Some(at) = self.machines.iter().position(|machine| machine.hosts.contains(&host)) else { return };
        let now = self.network.now;
        let hosts = self.machines[at].hosts.clone();
        for _ in 0..ROUNDS_MAX {
            let stirred = self.hosts[hosts.clone()].iter_mut().fold(false, |stirred, host| host.take_stirred() | stirred);
            let machine = &mut self.machines[at];
            let is_due = match machine.last {
                Step::Finished => return,
                Step::Until(at) | Step::IdleUntil(at) => at <= now,
                Step::Wait | Step::Idle => false,
            };
            if !is_due && !stirred {
                if let Step::Until(at) | Step::IdleUntil(at) = machine.last {
                    self.wake(hosts.start, at);
                }
                return;
            }
            let mut rings = Vec::new();
            for host in &mut self.hosts[hosts.clone()] {
                host.nic().advance(now);
                rings.extend(host.rings_mut().iter_mut());
            }
            rings.iter_mut().for_each(|ring| ring.program_runs());
            machine.last = machine.app.step(&mut MachineContext { now, ports: Ports(rings) });
            hosts.clone().for_each(|host| self.service_alone(host));
        }
        panic!("a machine never comes to rest at {} ns", now.as_nanos());
    }
}
