//! Version 1 (RFC 2710), which a listener speaks for as long as an older querier is about (RFC 3810 s8.2).

use core::net::Ipv6Addr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::report::push;
use super::{Answer, Changes, Listener, Packet, is_reported, some_time};
use crate::time::Instant;
use crate::wire::icmpv6::mld;

/// RFC 3810 s9.3, which queries of version 1 don't tell.
const RESPONSE_INTERVAL: Duration = Duration::from_secs(10);
/// Joining is told again within this time (RFC 2710 s7.10).
const UNSOLICITED: Duration = Duration::from_secs(10);

impl Listener {
    /// RFC 3810 s8.2.1: whoever hears an older querier speaks its version, and forgets what it was about to say in the newer one.
    pub(super) fn on_query_v1(&mut self, now: Instant, group: Option<Ipv6Addr>, max_response: Duration) {
        let was_v1 = self.speaks_v1(now);
        self.v1_until = Some(now + self.interval * u32::from(self.robustness) + RESPONSE_INTERVAL);
        if !was_v1 {
            self.forget_plans();
        }
        self.answer_v1(now, group, max_response);
    }

    /// RFC 2710 s4: each group has a time of its own, and one that is planned and sooner stays.
    pub(super) fn answer_v1(&mut self, now: Instant, asked: Option<Ipv6Addr>, max_response: Duration) {
        for (&ip, group) in &mut self.groups {
            if asked.is_some_and(|asked| asked != ip) || !is_reported(ip) || group.filter.is_none() {
                continue;
            }
            let at = now + some_time(&mut self.random, max_response);
            if group.answer.as_ref().is_none_or(|answer| answer.at > at) {
                group.answer = Some(Answer { at, sources: BTreeSet::new() });
            }
        }
    }

    /// Version 1 knows no sources: a group is listened to, or it is not.
    pub(super) fn settle_v1(&mut self, now: Instant, ip: Ipv6Addr, was_none: bool) {
        let Some(group) = self.groups.get_mut(&ip) else { return };
        let is_none = group.filter.is_none();
        if is_none {
            (group.changes, group.answer) = (Changes::default(), None);
            self.tell_v1(ip, true);
            self.tidy();
        } else if was_none {
            group.changes = Changes { mode: self.robustness, sources: BTreeMap::new(), at: Some(now) };
            self.report_changes_v1(now);
        }
    }

    pub(super) fn report_changes_v1(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (&ip, group) in &mut self.groups {
            if group.changes.at.is_none_or(|at| at > now) {
                continue;
            }
            group.changes.mode = group.changes.mode.saturating_sub(1);
            group.changes.at = (group.changes.mode > 0).then(|| now + some_time(&mut self.random, UNSOLICITED));
            due.extend((!group.filter.is_none()).then_some(ip));
        }
        due.into_iter().for_each(|ip| self.tell_v1(ip, false));
        self.tidy();
    }

    pub(super) fn tell_v1(&mut self, group: Ipv6Addr, is_done: bool) {
        let mut bytes = vec![0; mld::V1_PACKET_LEN];
        let dst = mld::emit_v1(self.src, group, is_done, &mut bytes);
        push(&mut self.out, Packet { dst, bytes });
    }

    /// Whether a querier of version 1 was heard lately.
    pub fn speaks_v1(&self, now: Instant) -> bool {
        self.v1_until.is_some_and(|until| now < until)
    }
}
