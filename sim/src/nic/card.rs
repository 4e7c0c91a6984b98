//! The driver's control plane: a [`Nic`] as the [`Device`] contract has it.

use ringway_stack::device::{Attached, Capabilities, Device, FlowRule, OpenError, QueueId, QueuesConfig, RuleError, RuleId, Target};

use super::Nic;
use super::hardware::Hardware;
use super::ring::SimQueues;
use super::steering::Aim;

/// Of a ring, by its number.
pub(super) const fn queue_id(ring: usize) -> QueueId {
    QueueId(ring as u32)
}

impl Device for Nic {
    type Queues = SimQueues;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The first ring that isn't of those that are only steered to gets the IP frames, and each of those gets the others, that no rule steers.
    fn open(&self, config: &QueuesConfig) -> Result<SimQueues, OpenError> {
        let ring = self.hardware().open_ring(config.steered_only).ok_or(OpenError::Full)?;
        Ok(SimQueues::of_nic(self.clone(), ring))
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        if !self.capabilities.steering.contains(rule.needs()) {
            return Err(self.capabilities.lacks("steering by all fields of this rule").into());
        }
        let hardware = &mut *self.hardware();
        let aim = hardware.aim(target, rule.tag)?;
        if hardware.registration_fails(aim.ring) {
            return Err(RuleError::Full);
        }
        let is_connections = rule.addresses().is_some_and(|flow| flow.remote.is_some());
        let delay = hardware.config.rule_delay;
        // (Each ring's rules are its own, and steer nothing.)
        let rule = &if hardware.config.mac_per_ring { rule.shared() } else { *rule };
        let ready_at = (is_connections && !delay.is_zero()).then(|| hardware.now + delay);
        let id = hardware.steering.attach(rule, aim, hardware.config.rules_max, ready_at)?;
        hardware.count_cyclic(aim, 1);
        Ok(Attached { rule: id, is_ready: ready_at.is_none() })
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        let hardware = &mut *self.hardware();
        let aim = hardware.aim(target, tag)?;
        // (A connection whose rule stays behind is told its frames by a third ring; of a socket's it is all the same.)
        if hardware.steering.is_sockets(rule) && hardware.registration_fails(aim.ring) {
            return Err(RuleError::Full);
        }
        let Some(before) = hardware.steering.retarget(rule, aim) else {
            assert!(hardware.steering.has_ended(rule), "device contract: a rule was moved that is not attached");
            return Err(RuleError::Ended);
        };
        hardware.count_cyclic(before, -1);
        hardware.count_cyclic(aim, 1);
        Ok(())
    }

    fn detach(&self, rule: RuleId) {
        let hardware = &mut *self.hardware();
        match hardware.steering.detach(rule) {
            Some(held) => hardware.count_cyclic(held, -1),
            None => assert!(hardware.steering.has_ended(rule), "device contract: a rule was detached that is not attached"),
        }
    }
}

impl Hardware {
    /// Where a rule is to steer.
    fn aim(&self, target: Target, tag: u32) -> Result<Aim, RuleError> {
        let ring = target.queue().0 as usize;
        let queue = if let Target::Cyclic(_, queue) = target { Some(queue) } else { None };
        let of_ring = self.rings.get(ring).filter(|ring| ring.open).ok_or(RuleError::NoQueue)?;
        if queue.is_some_and(|queue| !of_ring.cyclic.contains_key(&queue.0)) {
            return Err(RuleError::NoQueue);
        }
        Ok(Aim { ring, queue, tag })
    }

    /// A cyclic queue has a rule more, or less.
    pub(super) fn count_cyclic(&mut self, aim: Aim, more: isize) {
        if let Some(cyclic) = aim.queue.and_then(|queue| self.rings[aim.ring].cyclic.get_mut(&queue.0)) {
            cyclic.rules = cyclic.rules.checked_add_signed(more).expect("a queue's rules are counted");
        }
    }
}
