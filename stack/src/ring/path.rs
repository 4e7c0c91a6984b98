//! What is known of paths: the MTU that ICMP reported for a destination, for as long as that is believed (RFC 1191 s6.3).

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::mutants::{Mutant, Mutation};
use crate::tcp::PATH_MTU_TIME;
use crate::time::Instant;

/// A limit on what ICMP can make us remember.
const TABLE_MAX: usize = 1024;

/// Common MTUs, for routers that report none (RFC 1191 s7.1).
const PLATEAUS: [u16; 11] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 576, 296, 128, 68];

/// The MTU that a report means about a packet of `len` bytes.
pub(super) fn reported(len: u16, mtu: u16) -> u16 {
    match mtu {
        // RFC 1191 s5: a router from before it. The next lower plateau is the likeliest.
        0 => PLATEAUS.into_iter().find(|&plateau| plateau < len).unwrap_or(0),
        mtu => mtu,
    }
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Paths {
    table: BTreeMap<IpAddr, (u16, Instant)>,
    pub(super) mutation: Mutation,
}

impl Paths {
    /// Remembers a destination's path MTU. Where there is no room, connections learn it one by one.
    pub(super) fn learn(&mut self, now: Instant, destination: IpAddr, mtu: u16) {
        if self.table.len() >= TABLE_MAX {
            self.table.retain(|_, (_, until)| now < *until);
        }
        if self.table.len() < TABLE_MAX || self.table.contains_key(&destination) {
            self.table.insert(destination, (mtu, now + PATH_MTU_TIME));
        }
    }

    /// A destination's path MTU, if one is known and still believed.
    pub(super) fn mtu(&mut self, now: Instant, destination: IpAddr) -> Option<u16> {
        if self.table.is_empty() {
            return None;
        }
        let (mtu, until) = *self.table.get(&destination)?;
        if now < until {
            if self.mutation.is(Mutant::PathMtuRenewedByUse) {
                self.table.insert(destination, (mtu, now + PATH_MTU_TIME));
            }
            return Some(mtu);
        }
        self.table.remove(&destination);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_router_means_the_next_plateau() {
        assert_eq!([1500, 1492, 577, 576, 60].map(|len| reported(len, 0)), [1492, 1006, 576, 296, 0]);
        assert_eq!(reported(1500, 1280), 1280);
    }

    #[test]
    fn what_is_known_ages_and_has_a_limit() {
        let (a, mut paths) = (IpAddr::from([10, 0, 0, 1]), Paths::default());
        let later = |secs| Instant::ZERO + core::time::Duration::from_secs(secs);
        paths.learn(Instant::ZERO, a, 1280);
        assert_eq!(paths.mtu(later(599), a), Some(1280));
        assert_eq!(paths.mtu(later(600), a), None);
        for n in 0..5000_u32 {
            paths.learn(later(700), IpAddr::from(n.to_be_bytes()), 576);
        }
        assert_eq!(paths.table.len(), TABLE_MAX);
        paths.learn(later(1400), a, 1000);
        assert_eq!((paths.table.len(), paths.mtu(later(1400), a)), (1, Some(1000)));
    }
}
