//! Neighbours and ICMP, from frames alone: who is asked for and how often, whose address is believed for how long, who answers for whom, and what an
//! error quotes (RFC 826, RFC 1122 s2.3.2, RFC 792).

use core::time::Duration;
use std::net::IpAddr;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;

use super::Moment;
use crate::addresses::Family;
use crate::dissect::{self, Ip};

const ARP: &str = "arp";
const ICMP: &str = "icmp";

/// RFC 1122 s2.3.2.1: "A recommended maximum rate is 1 per second per destination." A host's clock may run a little fast.
const ASKED_APART: Duration = Duration::from_millis(900);
/// RFC 1122 s2.3.2.1, (2): "if no ARP Reply is received from N successive polls. Typically N is 2"; the stack declares Linux's three.
const POLLS_MAX: u32 = 3;
/// How long the stack believes an answer (Linux's base_reachable_time), and some time for asking while nobody answers.
const BELIEVED: Duration = Duration::from_secs(30 + 5);

/// How long a host may take to come to what a reason to be late was the reason for.
const JUST_NOW: Duration = Duration::from_millis(100);

/// What a host knows of a neighbour, for all that can be seen.
#[derive(Debug, Default)]
pub(super) struct Neighbour {
    /// When everybody was asked last, if nothing was heard of it since.
    asked_at: Option<Instant>,
    /// How often it alone was asked, in a row, since.
    polls: u32,
    /// When it was last heard of, or asked for.
    known_at: Instant,
    /// When it was last heard of.
    heard_at: Option<Instant>,
    /// The first poll may be of an earlier row, which what was heard has ended: that may have waited for its turn in a NIC while this poll was sent.
    may_be_earlier: bool,
}

impl Neighbour {
    /// It claimed its address, or a connection from it began.
    pub(super) fn heard(&mut self, at: Instant) {
        *self = Self { known_at: at, heard_at: Some(at), ..Self::default() };
    }

    /// A host asked for it. `to`: the MAC address that was asked.
    pub(super) fn asked(&mut self, moment: &Moment, target: IpAddr, to: MacAddr) {
        let since = moment.at.since(core::mem::replace(&mut self.known_at, moment.at));
        if !to.is_multicast() {
            // (What was heard may have waited for its turn in a NIC, while the last poll of an earlier row was sent.)
            let (is_first, may_be_earlier) = (self.polls == 0, core::mem::take(&mut self.may_be_earlier));
            if self.polls != 1 || since >= ASKED_APART && !may_be_earlier {
                self.polls += 1;
            }
            self.may_be_earlier = is_first && self.heard_at.is_some_and(|heard| moment.at < heard + ASKED_APART);
            if self.polls > POLLS_MAX {
                moment.breach(ARP, format_args!("RFC 1122 s2.3.2.1: {target} was polled {} times, and did not answer", self.polls));
            }
            return;
        }
        self.polls = 0;
        if let Some(before) = self.asked_at.replace(moment.at)
            && moment.at.since(before) < ASKED_APART
        {
            let apart = moment.at.since(before);
            moment.breach(ARP, format_args!("RFC 1122 s2.3.2.1: {target} is asked for again after {apart:?}"));
        }
    }

    /// A packet goes to it by what its address was found to be. `refused`: the device of its host had no room for all that was to be sent, so that the question
    /// whether it is still there may wait, while what was ready before goes out.
    pub(super) fn used(&self, moment: &Moment, target: IpAddr, refused: impl FnOnce() -> bool) {
        let since = moment.at.since(self.known_at.max(moment.hampered));
        // (A clock that jumps past the moment for asking lets what is sent again at that moment leave first.)
        let is_late = moment.at > moment.excused + JUST_NOW;
        if since > BELIEVED && is_late && !refused() {
            moment.breach(ARP, format_args!("RFC 1122 s2.3.2.1: {target} was last heard of, or asked for, {since:?} ago"));
        }
    }
}

/// RFC 826: a host claims its own address, with the MAC address that it has.
pub(super) fn claims(moment: &Moment, sender: IpAddr) {
    let is_link_local = || moment.ip.and_then(Family::link_local) == Some(sender);
    if moment.ip.is_some_and(|ip| ip != sender) && !is_link_local() {
        moment.breach(ARP, format_args!("RFC 826: a claim to {sender}"));
    }
}

/// RFC 792: an error goes to who sent the packet that it quotes, which came to the host.
pub(super) fn error_sent(moment: &Moment, frame: &[u8], ip: &Ip) {
    let Some((src, dst)) = dissect::addresses_at(frame, ip.l4 + 8) else { return };
    if (src, dst) != (ip.dst, ip.src) {
        moment.breach(ICMP, format_args!("RFC 792: an error to {} quotes a packet from {src} to {dst}", ip.dst));
    }
}

#[cfg(test)]
mod tests;
