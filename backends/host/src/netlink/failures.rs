//! Neighbours that did not answer, and that the kernel has asked again since.

use std::net::IpAddr;

use ringway_stack::net::{LinkId, Neighbour, NeighbourState};

use super::parse;

/// So many are kept between two looks. Of more the failure is seen if nobody asks again.
const KEPT_MAX: usize = 1024;

/// Whom events have called failed since neighbours were last read, and whether they were read since. Who sends to one of them has the kernel ask again, at once, and then a dump has it as
/// incomplete: a failure that only dumps tell of may never be seen where somebody else keeps sending there.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<(LinkId, IpAddr, bool)>);

impl Failures {
    /// Takes in what an RTM_NEWNEIGH says.
    pub(super) fn note(&mut self, payload: &[u8]) {
        // (What cannot be understood fails where neighbours are read.)
        let Ok(Some(neighbour)) = parse::neighbour(payload) else { return };
        let key = (neighbour.link, neighbour.address);
        self.0.retain(|&(link, address, _)| (link, address) != key);
        if neighbour.state == NeighbourState::Failed && self.0.len() < KEPT_MAX {
            self.0.push((neighbour.link, neighbour.address, false));
        }
    }

    /// Has neighbours that were read say so.
    pub(super) fn tell(&mut self, neighbours: &mut [Neighbour]) {
        for (link, address, is_told) in &mut self.0 {
            let is_it = |neighbour: &&mut Neighbour| (neighbour.link, neighbour.address) == (*link, *address);
            if let Some(neighbour) = neighbours.iter_mut().find(is_it)
                && neighbour.state == NeighbourState::Incomplete
            {
                neighbour.state = NeighbourState::Failed;
            }
            *is_told = true;
        }
    }

    /// A snapshot was made of what was read: each failure is told once.
    pub(super) fn forget_told(&mut self) {
        self.0.retain(|&(_, _, is_told)| !is_told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct ndmsg` of 10.0.0.9 at link 3, and its address.
    fn event(state: u16) -> Vec<u8> {
        let [s0, s1] = state.to_ne_bytes();
        let mut event = vec![libc::AF_INET as u8, 0, 0, 0, 0, 0, 0, 0, s0, s1, 0, 0];
        event[4..8].copy_from_slice(&3_i32.to_ne_bytes());
        event.extend([8_u16, libc::NDA_DST].map(u16::to_ne_bytes).concat());
        event.extend([10, 0, 0, 9]);
        event
    }

    fn neighbour(link: u32, state: NeighbourState) -> Neighbour {
        Neighbour { link: LinkId(link), address: IpAddr::from([10, 0, 0, 9]), state, link_address: None, is_router: false }
    }

    #[test]
    fn a_failure_is_seen_though_the_kernel_asks_again() {
        let mut failures = Failures::default();
        failures.note(&event(libc::NUD_FAILED));
        let mut read = [3, 4].map(|link| neighbour(link, NeighbourState::Incomplete));
        failures.tell(&mut read);
        assert_eq!(read.map(|read| read.state), [NeighbourState::Failed, NeighbourState::Incomplete]);
        failures.forget_told();
        let mut read = [neighbour(3, NeighbourState::Incomplete)];
        failures.tell(&mut read);
        assert_eq!(read[0].state, NeighbourState::Incomplete, "it is told once");
    }

    #[test]
    fn who_has_answered_since_has_not_failed() {
        let mut failures = Failures::default();
        failures.note(&event(libc::NUD_FAILED));
        failures.note(&event(libc::NUD_REACHABLE));
        let mut read = [neighbour(3, NeighbourState::Incomplete)];
        failures.tell(&mut read);
        assert_eq!(read[0].state, NeighbourState::Incomplete);
        failures.note(&event(libc::NUD_FAILED));
        let mut read = [neighbour(3, NeighbourState::Reachable)];
        failures.tell(&mut read);
        assert_eq!(read[0].state, NeighbourState::Reachable);
    }
}
