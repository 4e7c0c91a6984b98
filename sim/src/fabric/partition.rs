//! Who doesn't hear whom.

use super::Strike;
use crate::HOSTS_MAX;
use crate::random::SplitMix;

/// Hosts by their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostSet([u64; HOSTS_MAX / 64]);

impl HostSet {
    pub(crate) fn contains(&self, host: usize) -> bool {
        self.0.get(host / 64).is_some_and(|word| word >> (host % 64) & 1 == 1)
    }

    pub(crate) fn set(&mut self, host: usize, member: bool) {
        if let Some(word) = self.0.get_mut(host / 64) {
            *word = *word & !(1 << (host % 64)) | u64::from(member) << (host % 64);
        }
    }

    fn complement(mut self) -> Self {
        for word in &mut self.0 {
            *word = !*word;
        }
        self
    }
}

impl FromIterator<usize> for HostSet {
    fn from_iter<I: IntoIterator<Item = usize>>(hosts: I) -> Self {
        let mut set = Self::default();
        hosts.into_iter().for_each(|host| set.set(host, true));
        set
    }
}

/// A line between two groups of hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// They aren't heard by `to`…
    pub(crate) from: HostSet,
    pub(crate) to: HostSet,
    /// …and, unless this is set, don't hear it either.
    pub(crate) one_way: bool,
}

impl Cut {
    /// All `hosts` fall into two groups, neither empty, `host` into either.
    pub(crate) fn drawn(detail: u64, host: usize, hosts: usize, one_way: bool) -> Self {
        let mut dice = SplitMix(detail);
        let mut from = HostSet(core::array::from_fn(|_| dice.next()));
        let neighbour = (host + 1) % hosts.max(1);
        from.set(neighbour, !from.contains(host));
        Self { from, to: from.complement(), one_way }
    }

    fn stops(&self, sender: usize, receiver: usize) -> bool {
        let there = self.from.contains(sender) && self.to.contains(receiver);
        let back = self.to.contains(sender) && self.from.contains(receiver);
        there || (back && !self.one_way)
    }
}

/// Who drew a line: the episodes of a link's class, or whoever runs the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawer {
    Episode { link: usize, one_way: bool },
    User,
}

/// All lines at present.
#[derive(Debug, Default)]
pub(crate) struct Cuts(Vec<(Drawer, Cut)>);

impl Cuts {
    pub(crate) fn add(&mut self, drawer: Drawer, cut: Cut) {
        self.0.push((drawer, cut));
    }

    pub(crate) fn remove(&mut self, drawer: Drawer) {
        self.0.retain(|(by, _)| *by != drawer);
    }

    /// What stops a frame between two hosts, if anything does.
    pub(crate) fn stop(&self, sender: usize, receiver: usize) -> Option<Strike> {
        let (_, cut) = self.0.iter().find(|(_, cut)| cut.stops(sender, receiver))?;
        Some(if cut.one_way { Strike::OneWay } else { Strike::Partitioned })
    }
}
