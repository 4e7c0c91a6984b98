//! RTM_NEWRULE.

use core::ops::RangeInclusive;

use ringway_stack::net::{Action, Family, Prefix, Rule, Table};

use super::{family_of, ip_of, split, text_of, u8_of, u32_of};
use crate::netlink::Error;

const WHAT: &str = "rules";

/// Actions, flags and attributes of linux/fib_rules.h.
const TO_TABLE: u8 = 1;
const GOTO: u8 = 2;
const NOP: u8 = 3;
const BLACKHOLE: u8 = 6;
const UNREACHABLE: u8 = 7;
const PROHIBIT: u8 = 8;
const INVERT: u32 = 2;

const DST: u16 = 1;
const SRC: u16 = 2;
const IIFNAME: u16 = 3;
const TARGET: u16 = 4;
const PRIORITY: u16 = 6;
const FWMARK: u16 = 10;
const TUN_ID: u16 = 12;
const SUPPRESS_IFGROUP: u16 = 13;
const SUPPRESS_PREFIXLEN: u16 = 14;
const TABLE: u16 = 15;
const FWMASK: u16 = 16;
const OIFNAME: u16 = 17;
const L3MDEV: u16 = 19;
const UID_RANGE: u16 = 20;
const IP_PROTO: u16 = 22;
const SPORT_RANGE: u16 = 23;
const DPORT_RANGE: u16 = 24;
const DSCP: u16 = 25;
const FLOWLABEL: u16 = 26;
const FLOWLABEL_MASK: u16 = 27;
const SPORT_MASK: u16 = 28;
const DPORT_MASK: u16 = 29;
const DSCP_MASK: u16 = 30;

/// `struct fib_rule_hdr` and its attributes.
pub(in super::super) fn rule(payload: &[u8]) -> Result<Option<Rule>, Error> {
    let (header, attributes) = split::<12>(WHAT, payload)?;
    let [family, to_length, from_length, tos, table, _, _, action, f0, f1, f2, f3] = *header;
    let Some(family) = family_of(family) else {
        return Ok(None);
    };
    let mut rule = Rule::new(family, 0, Action::Nop);
    rule.is_inverted = u32::from_ne_bytes([f0, f1, f2, f3]) & INVERT != 0;
    rule.tos = (tos != 0).then_some(tos);
    (rule.from, rule.to) = (some_prefix(family, from_length), some_prefix(family, to_length));
    let (mut table, mut target, mut mark, mut mask) = (u32::from(table), 0, None, None);
    for attribute in attributes {
        let (kind, value) = attribute?;
        match kind {
            DST => rule.to = Some(prefix(value, to_length)?),
            SRC => rule.from = Some(prefix(value, from_length)?),
            IIFNAME => rule.input = Some(text_of(value)),
            OIFNAME => rule.output = Some(text_of(value)),
            TARGET => target = u32_of(WHAT, value)?,
            PRIORITY => rule.priority = u32_of(WHAT, value)?,
            TABLE => table = u32_of(WHAT, value)?,
            FWMARK => mark = Some(u32_of(WHAT, value)?),
            FWMASK => mask = Some(u32_of(WHAT, value)?),
            // -1 is none.
            SUPPRESS_PREFIXLEN => rule.suppress_length = u8::try_from(u32_of(WHAT, value)?).ok(),
            L3MDEV => rule.is_vrf = u8_of(WHAT, value)? != 0,
            UID_RANGE => rule.uid = Some(uids(value)?),
            IP_PROTO => rule.protocol = Some(u8_of(WHAT, value)?),
            SPORT_RANGE => rule.source_port = Some(ports(value)?),
            DPORT_RANGE => rule.destination_port = Some(ports(value)?),
            DSCP => rule.dscp = Some(u8_of(WHAT, value)?),
            SPORT_MASK | DPORT_MASK => rule.is_opaque |= value != [0xff, 0xff],
            DSCP_MASK => rule.is_opaque |= value != [0x3f],
            TUN_ID | SUPPRESS_IFGROUP | FLOWLABEL | FLOWLABEL_MASK => rule.is_opaque = true,
            _ => {}
        }
    }
    rule.mark = mask.or(mark.map(|_| u32::MAX)).map(|mask| (mark.unwrap_or(0), mask));
    rule.action = match action {
        // A VRF's rule names no table: its packets' link does.
        TO_TABLE => Action::Lookup(Table(table)),
        GOTO => Action::Goto(target),
        NOP => Action::Nop,
        BLACKHOLE => Action::Blackhole,
        UNREACHABLE => Action::Unreachable,
        PROHIBIT => Action::Prohibit,
        _ => {
            rule.is_opaque = true;
            Action::Nop
        }
    };
    Ok(Some(rule))
}

/// The prefix of a length alone: its address is all zeroes, and not in the message.
fn some_prefix(family: Family, length: u8) -> Option<Prefix> {
    Prefix::new(family.unspecified(), length).filter(|prefix| prefix.length() > 0)
}

fn prefix(address: &[u8], length: u8) -> Result<Prefix, Error> {
    Prefix::new(ip_of(WHAT, address)?, length).ok_or(Error::Malformed { what: WHAT })
}

/// `struct fib_rule_uid_range`.
fn uids(value: &[u8]) -> Result<RangeInclusive<u32>, Error> {
    let (first, last) = value.split_at_checked(4).ok_or(Error::Malformed { what: WHAT })?;
    Ok(u32_of(WHAT, first)?..=u32_of(WHAT, last)?)
}

/// `struct fib_rule_port_range`, in this machine's byte order.
fn ports(value: &[u8]) -> Result<RangeInclusive<u16>, Error> {
    let &[s0, s1, e0, e1] = value else {
        return Err(Error::Malformed { what: WHAT });
    };
    Ok(u16::from_ne_bytes([s0, s1])..=u16::from_ne_bytes([e0, e1]))
}
