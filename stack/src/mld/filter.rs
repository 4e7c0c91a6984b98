//! Source filters: whose datagrams for a group are wanted, by one socket or by all of them (RFC 3810 s4); of either family (RFC 3678 s4).

use core::net::Ipv6Addr;
use std::collections::BTreeSet;

use crate::wire::icmpv6::mld::RecordKind;

/// How many sources one socket can name: Linux's mld_max_msf.
pub const SOURCES_MAX: usize = 64;

/// Whose datagrams are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter<A = Ipv6Addr> {
    /// Those of these sources alone. Of none: the group is not listened to.
    Include(BTreeSet<A>),
    /// Those of all sources but these.
    Exclude(BTreeSet<A>),
}

impl<A: Copy + Ord> Filter<A> {
    /// Everybody's.
    pub const ANY: Self = Self::Exclude(BTreeSet::new());
    /// Nobody's.
    pub const NONE: Self = Self::Include(BTreeSet::new());

    /// Whether datagrams from `source` are wanted.
    pub fn admits(&self, source: A) -> bool {
        match self {
            Self::Include(sources) => sources.contains(&source),
            Self::Exclude(sources) => !sources.contains(&source),
        }
    }

    /// Whether nobody's are.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Include(sources) if sources.is_empty())
    }

    /// The sources that are named.
    pub const fn sources(&self) -> &BTreeSet<A> {
        match self {
            Self::Include(sources) | Self::Exclude(sources) => sources,
        }
    }

    const fn is_exclude(&self) -> bool {
        matches!(self, Self::Exclude(_))
    }
}

/// What the link's state is made of.
impl Filter {
    /// What the sockets with these filters want together (RFC 3810 s4.2).
    pub(super) fn merge<'a>(filters: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let included = || filters.clone().filter(|filter| !filter.is_exclude()).flat_map(|filter| filter.sources().iter().copied());
        let mut excluded = filters.clone().filter(|filter| filter.is_exclude()).map(Self::sources);
        let Some(first) = excluded.next() else { return Self::Include(included().collect()) };
        // Unwanted is what all who exclude exclude, and nobody includes.
        let mut unwanted = first.clone();
        for sources in excluded {
            unwanted.retain(|source| sources.contains(source));
        }
        for source in included() {
            unwanted.remove(&source);
        }
        Self::Exclude(unwanted)
    }

    /// Sources that are wanted now and were not before, or the other way round; `None`: the mode itself is another (RFC 3810 s6.1).
    pub(super) fn changes(&self, old: &Self) -> Option<BTreeSet<Ipv6Addr>> {
        (self.is_exclude() == old.is_exclude()).then(|| self.sources().symmetric_difference(old.sources()).copied().collect())
    }

    /// The kind of record that tells of this state, or that it has come about.
    pub(super) const fn record(&self, has_changed: bool) -> RecordKind {
        match (self.is_exclude(), has_changed) {
            (false, false) => RecordKind::IsInclude,
            (true, false) => RecordKind::IsExclude,
            (false, true) => RecordKind::ToInclude,
            (true, true) => RecordKind::ToExclude,
        }
    }
}
