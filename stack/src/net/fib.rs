//! The longest prefix match.
//!
//! Prefixes nest or are apart, so sorted by network and then by length each stands behind all that contain it. The last one that is not
//! behind an address therefore lies within, or is, the longest that contains the address, and every prefix knows the one around it:
//! one binary search and a short climb, without a tree of bits.

use core::cmp::Reverse;

use super::prefix::mask;
use super::route::RouteEntry;

/// No prefix is around it.
const NONE: u32 = u32::MAX;

/// An index over some routes of one family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fib {
    /// Sorted by `bits`, then by `length`.
    nodes: Vec<Node>,
    /// Indices of routes, those of one prefix together, in the order in which they are tried.
    order: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Node {
    bits: u128,
    length: u8,
    /// The longest prefix around it.
    around: u32,
    /// Its routes in `order`.
    first: u32,
    end: u32,
}

impl Fib {
    /// Over `members`, indices into `routes` in the order of a dump.
    pub(crate) fn new(routes: &[RouteEntry], members: impl IntoIterator<Item = u32>) -> Self {
        let route = |index: u32| &routes[index as usize];
        let mut order: Vec<u32> = members.into_iter().collect();
        // Of one prefix: the local table before main, where both are one; a type of service before none; a source before none.
        order.sort_by_cached_key(|&index| {
            let route = route(index);
            let order = (Reverse(route.table), Reverse(route.tos), Reverse(route.source.length()), route.metric);
            (route.destination.bits(), route.destination.length(), order)
        });
        let mut nodes: Vec<Node> = Vec::new();
        for (at, &index) in (0u32..).zip(&order) {
            let (bits, length) = (route(index).destination.bits(), route(index).destination.length());
            match nodes.last_mut() {
                Some(last) if (last.bits, last.length) == (bits, length) => last.end = at + 1,
                _ => {
                    let before = nodes.len().checked_sub(1).map_or(NONE, |last| last as u32);
                    let around = climb(&nodes, before, bits, length);
                    nodes.push(Node { bits, length, around, first: at, end: at + 1 });
                }
            }
        }
        Self { nodes, order }
    }

    /// The prefixes that contain an address, the longest first: of each its routes.
    pub(crate) fn matches(&self, bits: u128) -> impl Iterator<Item = &[u32]> {
        let behind = self.nodes.partition_point(|node| node.bits <= bits);
        let start = behind.checked_sub(1).map_or(NONE, |last| last as u32);
        let mut at = climb(&self.nodes, start, bits, u8::MAX);
        core::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.around;
            Some(&self.order[node.first as usize..node.end as usize])
        })
    }
}

/// The first of `at` and what is around it that contains `bits` and is shorter than `length`.
fn climb(nodes: &[Node], mut at: u32, bits: u128, length: u8) -> u32 {
    while let Some(node) = nodes.get(at as usize) {
        if node.length < length && bits & mask(node.length) == node.bits {
            break;
        }
        at = node.around;
    }
    at
}
