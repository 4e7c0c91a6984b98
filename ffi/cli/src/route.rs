//! `ringway route`: which link, source address and next hop a destination has, and whether Ringway can carry it.

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail};
use ringway_host::netlink::{KernelRoute, Monitor};
use ringway_stack::net::{Delivery, LinkKind, Query, Route, Tables};
use ringway_stack::offload::Reason;
use serde::Serialize;

/// Where to.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// An IPv4 or IPv6 address.
    destination: IpAddr,
    /// The address that the socket is bound to.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// The link that the socket is bound to (SO_BINDTODEVICE), or a link-local address's scope.
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// The socket's mark (SO_MARK).
    #[arg(long, default_value_t = 0)]
    mark: u32,
    /// The socket's type of service or traffic class.
    #[arg(long, default_value_t = 0)]
    tos: u8,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// What is printed.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Answer {
    destination: IpAddr,
    link: String,
    source: IpAddr,
    /// `None`: the destination is on the link, or this host.
    next_hop: Option<IpAddr>,
    /// The next hop's link-layer address, if it is known.
    link_address: Option<String>,
    /// In bytes.
    mtu: u32,
    /// `local`, `unicast`, `broadcast` or `multicast`.
    delivery: &'static str,
    /// Why no device of Ringway's carries it; `None`: shared memory does, if the peer is on Ringway as well.
    not_offloaded: Option<String>,
    /// What the kernel says, if that is something else.
    kernel: Option<String>,
}

/// Prints how a destination is reached.
///
/// # Errors
/// It is not; there is no such link; the kernel's tables cannot be read.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut monitor = Monitor::open()?;
    let tables = monitor.tables().clone();
    let link =
        options.link.as_deref().map(|name| tables.link_named(name).with_context(|| format!("there is no link {name}"))).transpose()?;
    let query = Query {
        source: options.from,
        link: link.map(|link| link.id),
        mark: options.mark,
        tos: options.tos,
        uid: rustix::process::getuid().as_raw(),
        ..Query::to(options.destination.to_canonical())
    };
    let theirs = monitor.ask_kernel(&query)?;
    let route = match tables.route(&query) {
        Ok(route) => route,
        Err(error) => bail!("{}: {error}{}", options.destination, beside(&tables, error.errno(), &theirs)),
    };
    let answer = answer(&tables, &query, &route, &theirs);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&answer)?);
    } else {
        print!("{}", text(&answer));
    }
    Ok(())
}

/// What the kernel says beside an error, unless it is the same.
fn beside(tables: &Tables, errno: Option<i32>, theirs: &Result<KernelRoute, i32>) -> String {
    if theirs.as_ref().err().copied() == errno && errno.is_some() {
        String::new()
    } else {
        format!(" (the kernel: {})", kernel(tables, theirs))
    }
}

fn kernel(tables: &Tables, theirs: &Result<KernelRoute, i32>) -> String {
    match theirs {
        Ok(route) => {
            let name = tables.link(route.link).map_or("?", |link| &link.name);
            let by = route.gateway.map_or_else(String::new, |gateway| format!(", by {gateway}"));
            let from = route.source.map_or_else(String::new, |source| format!(", from {source}"));
            format!("over {name}{by}{from}")
        }
        Err(errno) => std::io::Error::from_raw_os_error(*errno).to_string(),
    }
}

fn answer(tables: &Tables, query: &Query, route: &Route, theirs: &Result<KernelRoute, i32>) -> Answer {
    let link = tables.link(route.link);
    let neighbour = tables.neighbour(route.link, route.neighbour(query.destination));
    // (Which of several ways a flow takes may be another in the kernel: it hashes otherwise.)
    let is_same = theirs.as_ref().is_ok_and(|theirs| {
        (theirs.link, theirs.gateway) == (route.link, route.next_hop)
            && theirs.source.is_none_or(|source| Some(source) == query.source || source == route.source)
    });
    Answer {
        destination: query.destination,
        link: link.map_or_else(String::new, |link| described(&link.name, &link.kind)),
        source: route.source,
        next_hop: route.next_hop,
        link_address: neighbour.and_then(|neighbour| neighbour.destination()).map(ToString::to_string),
        mtu: route.mtu,
        delivery: match route.delivery {
            Delivery::Local => "local",
            Delivery::Unicast => "unicast",
            Delivery::Broadcast => "broadcast",
            Delivery::Multicast => "multicast",
        },
        not_offloaded: reason(query, route).map(|reason| format!("{reason}: {}", reason.advice())),
        kernel: (!is_same).then(|| kernel(tables, theirs)),
    }
}

fn described(name: &str, kind: &LinkKind) -> String {
    match kind {
        LinkKind::Vlan { id, .. } => format!("{name} (VLAN {id})"),
        LinkKind::Bond { .. } => format!("{name} (bond)"),
        LinkKind::Bridge => format!("{name} (bridge)"),
        LinkKind::Vrf { table } => format!("{name} (VRF of table {table})"),
        LinkKind::Loopback | LinkKind::Ethernet | LinkKind::InfiniBand | LinkKind::Other(_) => name.into(),
    }
}

/// Why shared memory, the one device of today, does not carry it.
fn reason(query: &Query, route: &Route) -> Option<Reason> {
    match route.delivery {
        Delivery::Broadcast | Delivery::Multicast => Some(Reason::Multicast),
        Delivery::Unicast => Some(Reason::NotLocal),
        // (They mean nothing without their interface.)
        Delivery::Local => matches!(query.destination, IpAddr::V6(ip) if ip.is_unicast_link_local()).then_some(Reason::Family),
    }
}

fn text(answer: &Answer) -> String {
    let Answer { destination, link, source, mtu, delivery, .. } = answer;
    let mut text = format!("{destination}: {delivery}, over {link}, from {source}, MTU {mtu}\n");
    if let Some(next_hop) = answer.next_hop {
        text += &format!("  next hop {next_hop}\n");
    }
    if let Some(address) = &answer.link_address {
        text += &format!("  link-layer address {address}\n");
    }
    text += &answer
        .not_offloaded
        .as_ref()
        .map_or_else(|| "  offloaded by shm, if the peer is on Ringway as well\n".into(), |reason| format!("  not offloaded: {reason}\n"));
    if let Some(kernel) = &answer.kernel {
        text += &format!("  the kernel: {kernel} (of a route with several ways, it may take another)\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use ringway_stack::net::{Link, LinkId, Scope};

    use super::*;

    fn printed(destination: &str, delivery: Delivery, theirs: &Result<KernelRoute, i32>) -> String {
        let mut builder = ringway_stack::net::Builder::default();
        builder.links.push(Link::new(7, "eth0.5", LinkKind::Vlan { id: 5, protocol: 0x8100 }));
        let query = Query::to(destination.parse().expect("an address"));
        let (source, next_hop) = ([10, 0, 0, 1].into(), Some([10, 0, 0, 254].into()));
        let route = Route { link: LinkId(7), source, next_hop, mtu: 1400, scope: Scope::UNIVERSE, delivery };
        text(&answer(&builder.build(1), &query, &route, theirs))
    }

    #[test]
    fn a_route_is_printed_with_the_reason_and_what_the_kernel_says_otherwise() {
        let same = KernelRoute { link: LinkId(7), source: Some([10, 0, 0, 1].into()), gateway: Some([10, 0, 0, 254].into()), mtu: None };
        let text = printed("192.0.2.1", Delivery::Unicast, &Ok(same.clone()));
        let reason = Reason::NotLocal;
        let wanted = "192.0.2.1: unicast, over eth0.5 (VLAN 5), from 10.0.0.1, MTU 1400\n  next hop 10.0.0.254\n";
        assert_eq!(text, format!("{wanted}  not offloaded: {reason}: {}\n", reason.advice()));
        let other = KernelRoute { gateway: Some([10, 0, 0, 253].into()), ..same };
        let text = printed("192.0.2.1", Delivery::Unicast, &Ok(other));
        assert!(text.contains("the kernel: over eth0.5, by 10.0.0.253, from 10.0.0.1"), "{text}");
        for own in ["10.0.0.1", "::1"] {
            assert!(printed(own, Delivery::Local, &Err(101)).contains("  offloaded by shm"), "{own}");
        }
        assert!(printed("fe80::1", Delivery::Local, &Err(101)).contains("not offloaded: family"));
    }
}
