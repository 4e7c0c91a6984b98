//! What happens to links that somebody has rings on, told in the log: what hangs, and why, is seen there by whoever looks.

use std::fmt::Write as _;

use ringway_stack::net::{Change, Changes, LinkId, Tables};

/// Of so many routes it is said which; of the others, how many.
const ROUTES_TOLD: usize = 3;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// Nothing comes or goes; or does again.
    Outage,
    /// Some things go another way from now on.
    Other,
}

/// Tells what has changed, as far as it concerns these links.
pub(super) fn tell(of: &[LinkId], changes: &Changes, old: &Tables, new: &Tables) {
    for (weight, line) in lines(of, changes, old, new) {
        match weight {
            Weight::Outage => tracing::warn!("{line}"),
            Weight::Other => tracing::info!("{line}"),
        }
    }
}

fn lines(of: &[LinkId], changes: &Changes, old: &Tables, new: &Tables) -> Vec<(Weight, String)> {
    let mut lines: Vec<(Weight, String)> = changes.iter().filter_map(|change| line(of, change, old, new)).collect();
    let routes: Vec<_> = changes
        .iter()
        .filter_map(|change| if let Change::RoutesChanged { destination, .. } = change { Some(destination) } else { None })
        .collect();
    if !routes.is_empty() && !of.is_empty() {
        let named: Vec<_> = routes.iter().take(ROUTES_TOLD).map(ToString::to_string).collect();
        let mut line = format!("routes have changed, to {}", named.join(", "));
        if routes.len() > ROUTES_TOLD {
            let _ = write!(line, " and {} more", routes.len() - ROUTES_TOLD);
        }
        lines.push((Weight::Other, line + ": sockets follow them (ringway route ADDRESS)"));
    }
    lines
}

fn line(of: &[LinkId], change: &Change, old: &Tables, new: &Tables) -> Option<(Weight, String)> {
    let link = match change {
        Change::LinkDown(link) | Change::LinkUp(link) | Change::MtuChanged { link, .. } => *link,
        Change::AddressAdded { link, .. } | Change::AddressGone { link, .. } => *link,
        _ => return None,
    };
    // (What is no more is told by whoever has a ring there.)
    let now = new.link(link).filter(|_| of.contains(&link))?;
    let name = &now.name;
    let told = match change {
        Change::LinkDown(_) if now.is_up => (
            Weight::Outage,
            format!("{name} has lost its carrier: what its sockets send waits, or is lost, until it is back (ip link show {name})"),
        ),
        Change::LinkDown(_) => (
            Weight::Outage,
            format!("{name} was set down: its connections wait, and nothing new goes by it until it is up (ip link set {name} up)"),
        ),
        Change::LinkUp(_) => (Weight::Outage, format!("{name} is up again: its sockets go on")),
        Change::MtuChanged { mtu, .. } => (
            Weight::Other,
            format!("{name} has an MTU of {mtu} bytes now: its connections keep to it, but for what is beyond that of before"),
        ),
        Change::AddressAdded { address, .. } => (Weight::Other, format!("{name} has the address {address} now")),
        // (Those of IPv6 go with an interface that is set down.)
        Change::AddressGone { .. } if !now.is_up && old.link(link).is_some_and(|before| before.is_up) => return None,
        Change::AddressGone { address, .. } => (
            Weight::Other,
            format!("{name} has lost the address {address}: its connections from there wait until it is back (ip addr show {name})"),
        ),
        _ => return None,
    };
    Some(told)
}

#[cfg(test)]
mod tests {
    use ringway_stack::net::{Address, Builder, Link, LinkKind};

    use super::*;

    fn tables(up: bool, carrier: bool, mtu: u32, addresses: &[&str]) -> Tables {
        let mut link = Link::new(7, "eth0", LinkKind::Other("veth".into()));
        (link.is_up, link.has_carrier, link.mtu) = (up, carrier, mtu);
        let other = Link { is_up: carrier, ..Link::new(8, "eth1", LinkKind::Other("veth".into())) };
        let addresses = addresses.iter().filter_map(|ip| Address::new(link.id, ip.parse().unwrap(), 24)).collect();
        Builder { links: vec![link, other], addresses, ..Builder::default() }.build(1)
    }

    #[test]
    fn what_happens_to_ones_links_is_told_and_what_to_do() {
        let said = |old: &Tables, new: &Tables| -> Vec<String> {
            lines(&[LinkId(7)], &Changes::between(old, new), old, new)
                .into_iter()
                .map(|(weight, line)| format!("{weight:?}: {line}"))
                .collect()
        };
        let plain = tables(true, true, 1500, &["10.0.0.1"]);
        let others = [
            tables(false, true, 1500, &["10.0.0.1"]),
            tables(false, true, 1500, &[]),
            tables(true, false, 1500, &["10.0.0.1"]),
            tables(true, true, 1400, &["10.0.0.1"]),
            tables(true, true, 1500, &[]),
        ];
        assert_eq!(said(&plain, &plain), [""; 0]);
        let down = "Outage: eth0 was set down: its connections wait, and nothing new goes by it until it is up (ip link set eth0 up)";
        assert_eq!(said(&plain, &others[0]), [down]);
        assert_eq!(said(&plain, &others[1]), [down], "what goes with it is no news");
        let carrier = "Outage: eth0 has lost its carrier: what its sockets send waits, or is lost, until it is back (ip link show eth0)";
        assert_eq!(said(&plain, &others[2]), [carrier]);
        assert_eq!(said(&others[2], &plain), ["Outage: eth0 is up again: its sockets go on"]);
        let mtu = "Other: eth0 has an MTU of 1400 bytes now: its connections keep to it, but for what is beyond that of before";
        assert_eq!(said(&plain, &others[3]), [mtu]);
        let gone = "Other: eth0 has lost the address 10.0.0.1: its connections from there wait until it is back (ip addr show eth0)";
        assert_eq!(said(&plain, &others[4]), [gone]);
        assert_eq!(said(&others[4], &plain), ["Other: eth0 has the address 10.0.0.1 now"]);
        let (old, new) = (&plain, &others[0]);
        assert!(lines(&[LinkId(9)], &Changes::between(old, new), old, new).is_empty(), "what is nobody's is told to nobody");
    }
}
