//! What is read when, and what has changed.

use core::ops::BitOrAssign;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use netlink_packet_core::NLMSG_ERROR;
use ringway_stack::net::{Address, Builder, Changes, Link, LinkId, Neighbour, RouteEntry, Rule, Tables};

use super::Error;
use super::dump::{Messages, Questions, TRIES_MAX};
use super::failures::Failures;
use super::parse;
use super::socket::Socket;
use super::told;

/// Room for events that nobody has looked at, in bytes. More of them are told by ENOBUFS, and everything is read again.
const EVENTS: u32 = 1 << 20;

/// So many receives at most are one burst: then the tables are read, however much is still to come.
const BURST_MAX: u32 = 4096;

/// RTNETLINK groups (linux/rtnetlink.h), each with what it tells of, and whether a kernel may lack it.
const GROUPS: [(u32, &str, bool); 10] = [
    (libc::RTNLGRP_LINK, "links", false),
    (libc::RTNLGRP_NEIGH, "neighbours", false),
    (libc::RTNLGRP_IPV4_IFADDR, "IPv4 addresses", false),
    (libc::RTNLGRP_IPV4_ROUTE, "IPv4 routes", false),
    (libc::RTNLGRP_IPV4_RULE, "IPv4 rules", false),
    (libc::RTNLGRP_IPV6_IFADDR, "IPv6 addresses", true),
    (libc::RTNLGRP_IPV6_ROUTE, "IPv6 routes", true),
    (libc::RTNLGRP_IPV6_RULE, "IPv6 rules", true),
    (libc::RTNLGRP_IPV6_NETCONF, "IPv6 settings", true),
    // Since Linux 5.3.
    (libc::RTNLGRP_NEXTHOP, "nexthop objects", true),
];

/// Events of nexthop objects (linux/rtnetlink.h).
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// `NETCONFA_IFINDEX`, `NETCONFA_FORWARDING`, and the index that stands for `all` (linux/netconf.h).
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const ALL_LINKS: i32 = -1;

/// The kernel's links, addresses, routes, rules and neighbours, kept.
///
/// It belongs to the network namespace of the thread that opened it. Nothing of it blocks.
#[derive(Debug)]
pub struct Monitor {
    /// Subscribed to changes.
    pub(super) events: Socket,
    pub(super) questions: Questions,
    parts: Parts,
    /// What `parts` no longer tells truly.
    stale: Stale,
    failures: Failures,
    tables: Arc<Tables>,
    buffer: Vec<u8>,
    /// The last look failed, and that was logged.
    is_failing: bool,
    /// Links of which the log tells.
    told: Vec<LinkId>,
}

/// What a snapshot is built of, kept apart so that only what changed is read again.
#[derive(Clone, Debug, Default, PartialEq)]
struct Parts {
    links: Vec<Link>,
    addresses: Vec<Address>,
    routes: Vec<RouteEntry>,
    /// `None`: the kernel has no rules to choose.
    rules: Option<Vec<Rule>>,
    neighbours: Vec<Neighbour>,
    forwards_v6: bool,
}

/// What is to be read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stale {
    links: bool,
    addresses: bool,
    routes: bool,
    rules: bool,
    neighbours: bool,
    settings: bool,
}

impl Stale {
    const NOTHING: Self = Self { links: false, addresses: false, routes: false, rules: false, neighbours: false, settings: false };
    const ALL: Self = Self { links: true, addresses: true, routes: true, rules: true, neighbours: true, settings: true };

    /// What an event says is no longer as it was. With a link or an address go routes of which no event tells.
    const fn by(event: u16) -> Self {
        match event {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => Self { rules: false, ..Self::ALL },
            libc::RTM_NEWADDR | libc::RTM_DELADDR => Self { addresses: true, routes: true, ..Self::NOTHING },
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE | RTM_NEWNEXTHOP | RTM_DELNEXTHOP => Self { routes: true, ..Self::NOTHING },
            libc::RTM_NEWRULE | libc::RTM_DELRULE => Self { rules: true, ..Self::NOTHING },
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => Self { neighbours: true, ..Self::NOTHING },
            libc::RTM_NEWNETCONF | libc::RTM_DELNETCONF => Self { settings: true, ..Self::NOTHING },
            _ => Self::NOTHING,
        }
    }

    /// Whether what is read would not fit together. Neighbours change all the time, and fit everything.
    const fn is_structural(self) -> bool {
        self.links || self.addresses || self.routes || self.rules
    }
}

impl BitOrAssign for Stale {
    fn bitor_assign(&mut self, other: Self) {
        self.links |= other.links;
        self.addresses |= other.addresses;
        self.routes |= other.routes;
        self.rules |= other.rules;
        self.neighbours |= other.neighbours;
        self.settings |= other.settings;
    }
}

impl Monitor {
    /// Subscribes, and reads everything.
    ///
    /// # Errors
    /// All of [`Error`].
    pub fn open() -> Result<Self, Error> {
        let events = Socket::open(libc::NETLINK_ROUTE).map_err(Error::Open)?;
        if let Err(error) = events.set_receive_buffer(EVENTS) {
            tracing::debug!(%error, "events of the network may get lost, and everything be read more often");
        }
        for (group, what, may_lack) in GROUPS {
            match events.subscribe(group) {
                Err(error) if !may_lack => return Err(Error::Subscribe { what, error }),
                Err(error) => tracing::debug!(%error, "changes of {what} are not told by this kernel"),
                Ok(()) => {}
            }
        }
        let mut monitor = Self {
            events,
            questions: Questions::new()?,
            parts: Parts::default(),
            stale: Stale::ALL,
            failures: Failures::default(),
            tables: Arc::new(Builder::default().build(0)),
            buffer: vec![0; 64 * 1024],
            is_failing: false,
            told: Vec::new(),
        };
        monitor.refresh()?;
        Ok(monitor)
    }

    /// The snapshot as of the last [`Monitor::refresh`].
    pub const fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Has the log tell what happens to a link from now on: somebody has a ring there.
    pub fn tell_of(&mut self, link: LinkId) {
        if !self.told.contains(&link) {
            self.told.push(link);
        }
    }

    /// To sleep on: readable once something may have changed.
    pub const fn fd(&self) -> RawFd {
        self.events.raw()
    }

    /// Takes in all events that came since, and if any of them matters, makes one new snapshot, with the next generation; what changed
    /// from the last one. `None`: nothing did. (Changes may be empty: a neighbour was only confirmed.)
    ///
    /// # Errors
    /// All of [`Error`] but those of opening. The snapshot stays as it was, and the next call tries again: there may be no event to wait for.
    pub fn refresh(&mut self) -> Result<Option<Changes>, Error> {
        let result = self.try_refresh();
        match &result {
            Err(error) if !self.is_failing => tracing::warn!("routes and addresses may be out of date: {error}"),
            Ok(_) if self.is_failing => tracing::warn!("routes and addresses are up to date again"),
            _ => {}
        }
        self.is_failing = result.is_err();
        result
    }

    /// The next refresh reads them, whatever events there are.
    pub(super) const fn neighbours_are_stale(&mut self) {
        self.stale.neighbours = true;
    }

    fn try_refresh(&mut self) -> Result<Option<Changes>, Error> {
        self.drain()?;
        if self.stale == Stale::NOTHING {
            return Ok(None);
        }
        let before = self.parts.clone();
        self.settle()?;
        self.failures.forget_told();
        if self.parts == before && self.tables.generation() > 0 {
            return Ok(None);
        }
        let tables = self.parts.clone().build(self.tables.generation() + 1);
        let changes = Changes::between(&self.tables, &tables);
        told::tell(&self.told, &changes, &self.tables, &tables);
        self.tables = Arc::new(tables);
        Ok(Some(changes))
    }

    /// Reads until nothing changes meanwhile, so that links, addresses and routes are of one moment.
    fn settle(&mut self) -> Result<(), Error> {
        for _ in 0..TRIES_MAX {
            self.read()?;
            self.drain()?;
            if !self.stale.is_structural() {
                return Ok(());
            }
        }
        Err(Error::Unsettled { what: "links, addresses or routes", tries: TRIES_MAX })
    }

    /// Takes all events that wait, and notes what they make stale.
    fn drain(&mut self) -> Result<(), Error> {
        for _ in 0..BURST_MAX {
            match self.events.receive(&mut self.buffer) {
                Ok(received) => {
                    for event in Messages(received) {
                        if let Ok((header, payload)) = &event
                            && header.message_type == libc::RTM_NEWNEIGH
                        {
                            self.failures.note(payload);
                        }
                        let event = event.map(|(header, _)| header.message_type);
                        // (An error message answers nothing here, and tells of nothing.)
                        self.stale |= event.map_or(Stale::ALL, |kind| if kind == NLMSG_ERROR { Stale::NOTHING } else { Stale::by(kind) });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // netlink(7): "ENOBUFS ... the kernel can't send a netlink message if the socket buffer is full: the message will be dropped
                // and the kernel and the user-space process will no longer have the same view of kernel state." Or one was too long.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) || error.kind() == io::ErrorKind::OutOfMemory => {
                    self.stale = Stale::ALL;
                }
                Err(error) => return Err(Error::Ask { what: "changes", error }),
            }
        }
        Ok(())
    }

    /// Reads what is stale. What cannot be read stays so.
    fn read(&mut self) -> Result<(), Error> {
        let Self { questions, parts, stale, failures, .. } = self;
        if stale.links {
            // struct ifinfomsg: of any family.
            let links = questions.dump("links", libc::RTM_GETLINK, &[0; 16], parse::link)?;
            parts.links = links.unwrap_or_default();
            stale.links = false;
        }
        if stale.addresses {
            parts.addresses = both(questions, "addresses", libc::RTM_GETADDR, 8, parse::address)?.unwrap_or_default();
            stale.addresses = false;
        }
        if stale.routes {
            parts.routes = both(questions, "routes", libc::RTM_GETROUTE, 12, parse::route)?.unwrap_or_default();
            stale.routes = false;
        }
        if stale.rules {
            parts.rules = both(questions, "rules", libc::RTM_GETRULE, 12, parse::rule)?;
            stale.rules = false;
        }
        if stale.neighbours {
            parts.neighbours = both(questions, "neighbours", libc::RTM_GETNEIGH, 12, parse::neighbour)?.unwrap_or_default();
            failures.tell(&mut parts.neighbours);
            stale.neighbours = false;
        }
        if stale.settings {
            parts.forwards_v6 = forwards_v6(questions)?;
            stale.settings = false;
        }
        Ok(())
    }
}

impl Parts {
    fn build(self, generation: u64) -> Tables {
        let Self { links, addresses, routes, rules, neighbours, forwards_v6 } = self;
        let defaults = Builder::default();
        let rules = rules.unwrap_or(defaults.rules);
        Builder { links, addresses, routes, rules, neighbours, forwards_v6 }.build(generation)
    }
}

/// A dump of each family, one behind the other: each question begins with its family, in a structure of `length` bytes. `None`: the kernel has
/// no such thing at all.
fn both<T>(
    questions: &mut Questions,
    what: &'static str,
    kind: u16,
    length: usize,
    parse: impl Fn(&[u8]) -> Result<Option<T>, Error>,
) -> Result<Option<Vec<T>>, Error> {
    let mut all: Option<Vec<T>> = None;
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = vec![0; length];
        body[0] = family as u8;
        if let Some(found) = questions.dump(what, kind, &body, &parse)? {
            all.get_or_insert_default().extend(found);
        }
    }
    Ok(all)
}

/// `net.ipv6.conf.all.forwarding` (RTM_GETNETCONF). A kernel that cannot tell forwards nothing.
fn forwards_v6(questions: &mut Questions) -> Result<bool, Error> {
    const WHAT: &str = "IPv6 settings";
    // struct netconfmsg: its family, padded; then one attribute of 8 bytes.
    let mut body = vec![libc::AF_INET6 as u8, 0, 0, 0];
    attribute(&mut body, NETCONFA_IFINDEX, &ALL_LINKS.to_ne_bytes());
    let answer = questions.get(WHAT, libc::RTM_GETNETCONF, &body, |payload| {
        let attributes = payload.get(4..).ok_or(Error::Malformed { what: WHAT })?;
        for attribute in parse::Attributes::new(WHAT, attributes) {
            if let (NETCONFA_FORWARDING, value) = attribute? {
                return Ok(parse::u32_of(WHAT, value)? != 0);
            }
        }
        Ok(false)
    })?;
    Ok(answer.unwrap_or(false))
}

/// Appends an attribute.
pub(super) fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
