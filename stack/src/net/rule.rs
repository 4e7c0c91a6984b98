//! Rules of policy routing (ip-rule(8)): which table is asked for which packet.

use core::ops::RangeInclusive;

use super::prefix::{Family, Prefix};
use super::route::Table;

/// What a rule does with a packet that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Asks a table; the next rule is tried if it has no route.
    Lookup(Table),
    /// Goes on with the rule of that priority.
    Goto(u32),
    /// Nothing: the next rule.
    Nop,
    /// "Network is unreachable" (ENETUNREACH).
    Unreachable,
    /// "Communication is administratively prohibited" (EACCES).
    Prohibit,
    /// The packet is dropped (EINVAL).
    Blackhole,
}

/// One rule. All that is `Some` must match; with `is_inverted`, not all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Of which family.
    pub family: Family,
    /// Rules are tried from the least on; those of one priority in the order of a dump.
    pub priority: u32,
    /// What it does.
    pub action: Action,
    /// `not`.
    pub is_inverted: bool,
    /// The source address. A packet whose source is not chosen yet does not match.
    pub from: Option<Prefix>,
    /// The destination address.
    pub to: Option<Prefix>,
    /// `tos`: bits 2 to 4 of the type of service, as RFC 1349 has them (IPv4), or all of the traffic class (IPv6).
    pub tos: Option<u8>,
    /// `dscp`: the six bits of RFC 2474, as a number from 0 to 63.
    pub dscp: Option<u8>,
    /// `fwmark`: the value, and which bits of the mark count.
    pub mark: Option<(u32, u32)>,
    /// `uidrange`: the socket's owner.
    pub uid: Option<RangeInclusive<u32>>,
    /// `iif`, a link's name. This host's own packets come in by `lo`.
    pub input: Option<Box<str>>,
    /// `oif`, a link's name: sockets that are bound to it.
    pub output: Option<Box<str>>,
    /// `ipproto`.
    pub protocol: Option<u8>,
    /// `sport`.
    pub source_port: Option<RangeInclusive<u16>>,
    /// `dport`.
    pub destination_port: Option<RangeInclusive<u16>>,
    /// `l3mdev`: packets of VRFs.
    pub is_vrf: bool,
    /// `suppress_prefixlength`: a route of at most so many bits is none.
    pub suppress_length: Option<u8>,
    /// It asks for more, which a snapshot cannot decide (tunnel keys, flow labels, groups of links).
    pub is_opaque: bool,
}

impl Rule {
    /// A rule for every packet.
    pub const fn new(family: Family, priority: u32, action: Action) -> Self {
        Self {
            family,
            priority,
            action,
            is_inverted: false,
            from: None,
            to: None,
            tos: None,
            dscp: None,
            mark: None,
            uid: None,
            input: None,
            output: None,
            protocol: None,
            source_port: None,
            destination_port: None,
            is_vrf: false,
            suppress_length: None,
            is_opaque: false,
        }
    }

    /// The rules that a kernel starts with (ip-rule(8)): the local table, main, and for IPv4 the default table.
    pub fn defaults(family: Family) -> Vec<Self> {
        let mut rules = vec![
            Self::new(family, 0, Action::Lookup(Table::LOCAL)),
            Self::new(family, 0x7ffe, Action::Lookup(Table::MAIN)),
            Self::new(family, 0x7fff, Action::Lookup(Table::DEFAULT)),
        ];
        if family == Family::V6 {
            rules.pop();
        }
        rules
    }
}
