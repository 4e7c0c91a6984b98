//! Flow rules of an interface's rings. What the map in front of it steers goes to the ring whose queue it came by; so a rule that several rings have (a listener's, a UDP
//! socket's) is in the map once. A connection is one ring's, which is its home.

use std::collections::BTreeMap;

use ringway_stack::device::{FiveTuple, Protocol, RuleError, RuleId};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    all: BTreeMap<u64, (FiveTuple, u32)>,
    held: BTreeMap<FiveTuple, Held>,
    /// Connections whose frames were seen to come to another ring than has them, since somebody asked last.
    landed: Vec<FiveTuple>,
    last: u64,
}

/// Who has a flow.
#[derive(Debug, Default)]
struct Held {
    /// A bit for each ring.
    rings: u64,
    /// To which other ring its frames came last.
    lands_at: Option<u32>,
}

fn is_connection(flow: &FiveTuple) -> bool {
    flow.protocol == Protocol::Tcp && flow.remote.is_some()
}

impl Rules {
    /// Whether a ring may have a flow, and whether it is the first one to.
    pub(crate) fn may_have(&self, flow: &FiveTuple, ring: u32) -> Result<bool, RuleError> {
        match self.held.get(flow) {
            None => Ok(true),
            Some(held) if is_connection(flow) || held.rings & 1 << ring != 0 => Err(RuleError::Taken),
            Some(_) => Ok(false),
        }
    }

    /// A ring has a flow.
    pub(crate) fn add(&mut self, flow: FiveTuple, ring: u32) -> RuleId {
        self.last += 1;
        self.all.insert(self.last, (flow, ring));
        self.held.entry(flow).or_default().rings |= 1 << ring;
        RuleId(self.last)
    }

    /// Another ring has what that one had.
    pub(crate) fn retarget(&mut self, rule: RuleId, to: u32) -> Result<(), RuleError> {
        let (flow, ring) = self.all.get_mut(&rule.0).ok_or(RuleError::Ended)?;
        let held = self.held.entry(*flow).or_default();
        if *ring != to && held.rings & 1 << to != 0 {
            return Err(RuleError::Taken);
        }
        *held = Held { rings: held.rings & !(1 << *ring) | 1 << to, lands_at: None };
        *ring = to;
        Ok(())
    }

    /// The flow of a rule that ends, if no ring has it any more.
    pub(crate) fn remove(&mut self, rule: RuleId) -> Option<FiveTuple> {
        let (flow, ring) = self.all.remove(&rule.0)?;
        let held = self.held.get_mut(&flow)?;
        held.rings &= !(1 << ring);
        if held.rings != 0 {
            return None;
        }
        self.held.remove(&flow);
        Some(flow)
    }

    /// The same of all that a ring has.
    pub(crate) fn remove_all(&mut self, ring: u32) -> Vec<FiveTuple> {
        let of_it: Vec<u64> = self.all.iter().filter(|(_, (_, of))| *of == ring).map(|(rule, _)| *rule).collect();
        of_it.into_iter().filter_map(|rule| self.remove(RuleId(rule))).collect()
    }

    /// The ring that has a connection, by a rule of its own.
    pub(crate) fn home(&self, connection: &FiveTuple) -> Option<u32> {
        self.held.get(connection).map(|held| held.rings.trailing_zeros())
    }

    /// A connection's frames come to that ring, which does not have it.
    pub(crate) fn note_landing(&mut self, connection: &FiveTuple, ring: u32) {
        if let Some(held) = self.held.get_mut(connection)
            && held.lands_at.replace(ring).is_none()
        {
            self.landed.push(*connection);
        }
    }

    /// Connections whose frames were seen to come to other rings than have them since this was asked last, and to which. (Of those for which that goes on, it is noted again.)
    pub(crate) fn take_landings(&mut self) -> Vec<(FiveTuple, u32)> {
        let Self { held, landed, .. } = self;
        landed.drain(..).filter_map(|connection| Some((connection, held.get_mut(&connection)?.lands_at.take()?))).collect()
    }

    /// How many steer.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(protocol: Protocol, remote: Option<&str>) -> FiveTuple {
        FiveTuple { protocol, local: "10.0.0.1:80".parse().unwrap(), remote: remote.map(|remote| remote.parse().unwrap()) }
    }

    #[test]
    fn a_listener_is_several_rings_and_a_connection_ones() {
        let (listener, connection) = (flow(Protocol::Tcp, None), flow(Protocol::Tcp, Some("10.0.0.2:7")));
        let mut rules = Rules::default();
        assert_eq!(rules.may_have(&listener, 0), Ok(true));
        let first = rules.add(listener, 0);
        assert_eq!([rules.may_have(&listener, 0), rules.may_have(&listener, 1)], [Err(RuleError::Taken), Ok(false)]);
        let second = rules.add(listener, 1);
        rules.add(connection, 2);
        assert_eq!((rules.may_have(&connection, 1), rules.home(&connection), rules.len()), (Err(RuleError::Taken), Some(2), 2));
        assert_eq!([rules.remove(first), rules.remove(first), rules.remove(second)], [None, None, Some(listener)]);
        assert_eq!((rules.remove_all(0), rules.remove_all(2), rules.len()), (vec![], vec![connection], 0));
    }

    #[test]
    fn a_connection_that_goes_over_lands_where_it_is() {
        let connection = flow(Protocol::Tcp, Some("10.0.0.2:7"));
        let mut rules = Rules::default();
        let rule = rules.add(connection, 0);
        assert_eq!(rules.take_landings(), []);
        [1, 3].into_iter().for_each(|ring| rules.note_landing(&connection, ring));
        assert_eq!([rules.take_landings(), rules.take_landings()], [vec![(connection, 3)], vec![]]);
        rules.note_landing(&connection, 3);
        assert_eq!((rules.retarget(rule, 3), rules.home(&connection)), (Ok(()), Some(3)));
        assert_eq!(rules.take_landings(), [], "it is there");
        assert_eq!((rules.remove(rule), rules.retarget(rule, 1)), (Some(connection), Err(RuleError::Ended)));
    }
}
