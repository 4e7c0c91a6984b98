//! Our own addresses on a link, each tentative until nobody else is found to have it (RFC 4862 s5.4).

use core::net::Ipv6Addr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use rand_chacha::ChaCha8Rng;
use rand_core::Rng;

use super::{Action, ask_all, some_time};
use crate::time::Instant;

/// Addresses of one link: Linux's max_addresses limits those that it makes itself to 16.
const ADDRESSES_MAX: usize = 256;
/// How often an address is asked for: RFC 4862 s5.1's DupAddrDetectTransmits, Linux's dad_transmits.
const TRANSMITS: u8 = 1;
/// The first question waits for up to this long, so that a link's hosts don't all ask at once after a failure of power (RFC 4862 s5.4.2).
const DELAY_MAX: Duration = Duration::from_secs(1);

/// Why an address is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The caller: a group, or no address that a node on a link can have.
    #[error("not an address of a node on a link")]
    Unfit,
    /// The caller: it is there already, though perhaps as somebody else's.
    #[error("the address is there already")]
    Exists,
    /// The caller: a stated limit is reached.
    #[error("too many addresses")]
    Full,
}

#[derive(Debug)]
enum State {
    /// Not to be used yet: `left` questions are still to be asked, or the last one's answer is awaited.
    Tentative { left: u8, at: Instant, nonce: [u8; 6] },
    /// Ours. Whether it was said that somebody else claims it.
    Valid { conflict: bool },
    /// Somebody else's.
    Duplicate,
}

/// What a message means for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Nothing,
    /// The question is for us.
    Ours,
    /// It turned out to be somebody else's.
    Duplicate,
    /// It is ours, and somebody claims it, as is now known for the first time.
    Conflict,
}

/// All addresses. Ordered, so that simulations iterate alike.
#[derive(Debug, Default)]
pub struct Addresses {
    table: BTreeMap<Ipv6Addr, State>,
    /// Nothing is due before this.
    due: Option<Instant>,
}

impl Addresses {
    /// Whether packets may come from, and are for, this address.
    pub fn is_ours(&self, ip: Ipv6Addr) -> bool {
        matches!(self.table.get(&ip), Some(State::Valid { .. }))
    }

    /// Whether it is still to be found out if somebody else has this address.
    pub fn is_tentative(&self, ip: Ipv6Addr) -> bool {
        matches!(self.table.get(&ip), Some(State::Tentative { .. }))
    }

    /// Whether it was taken, whatever became of it.
    pub(super) fn knows(&self, ip: Ipv6Addr) -> bool {
        self.table.contains_key(&ip)
    }

    /// Whether it is ours at once.
    pub(super) fn add(&mut self, now: Instant, ip: Ipv6Addr, detects: bool, random: &mut ChaCha8Rng) -> Result<bool, AddError> {
        if ip.is_multicast() || ip.is_unspecified() || ip.is_loopback() || ip.to_ipv4_mapped().is_some() {
            return Err(AddError::Unfit);
        }
        if self.table.contains_key(&ip) {
            return Err(AddError::Exists);
        }
        if self.table.len() >= ADDRESSES_MAX {
            return Err(AddError::Full);
        }
        if detects {
            let at = now + some_time(random, DELAY_MAX);
            let mut nonce = [0; 6];
            random.fill_bytes(&mut nonce);
            self.table.insert(ip, State::Tentative { left: TRANSMITS, at, nonce });
            self.due = self.due.into_iter().chain([at]).min();
        } else {
            self.table.insert(ip, State::Valid { conflict: false });
        }
        Ok(!detects)
    }

    pub(super) fn remove(&mut self, ip: Ipv6Addr) -> bool {
        self.table.remove(&ip).is_some()
    }

    /// RFC 4862 s5.4.3: who asks from no address wants the address for itself. Who has one wants to talk to it, which has to wait.
    pub(super) fn on_solicitation(&mut self, src: Ipv6Addr, target: Ipv6Addr, asked: Option<[u8; 6]>) -> Verdict {
        match self.table.get_mut(&target) {
            Some(State::Valid { .. }) => Verdict::Ours,
            // RFC 7527 s4.2: a link that is looped brings our own question back.
            Some(State::Tentative { nonce, .. }) if src.is_unspecified() && asked != Some(*nonce) => self.lose(target),
            _ => Verdict::Nothing,
        }
    }

    /// RFC 4862 s5.4.4.
    pub(super) fn on_advertisement(&mut self, target: Ipv6Addr) -> Verdict {
        match self.table.get_mut(&target) {
            None => Verdict::Nothing,
            Some(State::Tentative { .. }) => self.lose(target),
            Some(State::Valid { conflict: conflict @ false }) => {
                *conflict = true;
                Verdict::Conflict
            }
            Some(State::Valid { .. } | State::Duplicate) => Verdict::Ours,
        }
    }

    fn lose(&mut self, ip: Ipv6Addr) -> Verdict {
        self.table.insert(ip, State::Duplicate);
        Verdict::Duplicate
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn on_timer<P>(&mut self, now: Instant, retransmit: Duration, actions: &mut VecDeque<Action<P>>) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for (&ip, state) in &mut self.table {
            match state {
                State::Tentative { left, at, nonce } if *at <= now && *left > 0 => {
                    actions.push_back(ask_all(Ipv6Addr::UNSPECIFIED, ip, Some(*nonce)));
                    (*left, *at) = (*left - 1, now + retransmit);
                }
                State::Tentative { at, .. } if *at <= now => {
                    *state = State::Valid { conflict: false };
                    actions.push_back(Action::AddressReady(ip));
                }
                _ => {}
            }
        }
        let deadlines = self.table.values().filter_map(|state| if let State::Tentative { at, .. } = state { Some(*at) } else { None });
        self.due = deadlines.min();
    }
}
