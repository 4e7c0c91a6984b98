//! Which rule of libvma.conf decides about a program's sockets.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use ringway_params::rules::{Placed, Process, Role, Rules, Transport};
use ringway_params::{Id, Settings, rules};
use serde::Serialize;

use crate::table::table;

/// A role, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Named {
    /// It listens there.
    TcpServer,
    /// It connects there.
    TcpClient,
    /// It sends datagrams there.
    UdpSender,
    /// It receives datagrams there.
    UdpReceiver,
    /// It connects a UDP socket there.
    UdpConnect,
}

impl Named {
    const fn role(self) -> Role {
        match self {
            Self::TcpServer => Role::TcpServer,
            Self::TcpClient => Role::TcpClient,
            Self::UdpSender => Role::UdpSender,
            Self::UdpReceiver => Role::UdpReceiver,
            Self::UdpConnect => Role::UdpConnect,
        }
    }
}

/// What decides about one role.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Decision {
    role: &'static str,
    /// The ports for which it does, as `80`, `1-79, 81-65535`, or `*` for all.
    ports: String,
    /// `kernel` or `ring`.
    carried_by: &'static str,
    /// The rule's file and line; `None`: there is no rule, so the ring may have it.
    place: Option<String>,
    /// The rule.
    rule: Option<String>,
}

/// Prints which rule decides about a program's sockets at an address, for each role.
///
/// # Errors
/// The address is none; the file is there and cannot be read.
pub(super) fn run(program: &str, address: &str, role: Option<Named>, json: bool) -> Result<()> {
    let settings = Settings::from_environment();
    let path = settings.path(Id::ConfigFile).unwrap_or_default();
    let text = match rules::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound || path.is_empty() => {
            if settings.is_set(Id::ConfigFile) && !path.is_empty() {
                eprintln!("ringway: VMA_CONFIG_FILE={path}: {error}; there are no rules");
            }
            String::new()
        }
        Err(error) => return Err(error).context(path),
    };
    let (rules, error) = Rules::parse(&text);
    if let Some(error) = error {
        eprintln!("ringway: {path}, {error}; what stands before that holds");
    }
    let process =
        Process { program: program.rsplit('/').next().unwrap_or_default().to_owned(), id: settings.text(Id::ApplicationId).to_owned() };
    let roles = role.map_or_else(|| Role::ALL.to_vec(), |role| vec![role.role()]);
    let decisions = decide(&rules, &path, &process, parse(address)?, &roles);
    if json {
        println!("{}", serde_json::to_string_pretty(&decisions)?);
        return Ok(());
    }
    let mut rows = table(&["role", "ports", "carried by", "rule", ""]);
    for decision in &decisions {
        let place = decision.place.as_deref().unwrap_or("no rule");
        rows.add_row([decision.role, &decision.ports, decision.carried_by, place, decision.rule.as_deref().unwrap_or_default()]);
    }
    println!("{rows}");
    Ok(())
}

/// `ADDRESS` or `ADDRESS:PORT`.
fn parse(address: &str) -> Result<(IpAddr, Option<u16>)> {
    let whole = SocketAddr::from_str(address).ok().map(|address| (address.ip(), Some(address.port())));
    let alone = IpAddr::from_str(address).ok().map(|ip| (ip, None));
    whole.or(alone).with_context(|| format!("{address} is neither an IP address nor one with a port"))
}

/// What a rule decides about; no rule, likewise.
struct Share<'a> {
    placed: Option<&'a Placed>,
    /// The first and the last ones of ranges that do not touch, in rising order.
    ports: Vec<(u16, u16)>,
}

/// For each role, what decides about that port; without one, what decides about which ports.
fn decide(rules: &Rules, path: &str, process: &Process, (ip, port): (IpAddr, Option<u16>), roles: &[Role]) -> Vec<Decision> {
    let of_role = |&role: &Role| {
        let pieces = port.map_or_else(|| pieces(rules.of(process), role), |port| vec![(port, port)]);
        let decided = pieces.into_iter().map(|piece| (rules.decide(process, role, SocketAddr::new(ip, piece.0), None), piece));
        shares(decided).into_iter().map(move |Share { placed, ports }| Decision {
            role: role.name(),
            ports: shown(&ports),
            carried_by: if placed.is_some_and(|placed| placed.rule.transport == Transport::Os) { "kernel" } else { "ring" },
            place: placed.map(|placed| format!("{path}:{}", placed.line)),
            rule: placed.map(|placed| placed.rule.to_string()),
        })
    };
    roles.iter().flat_map(of_role).collect()
}

/// Puts together what the same rule decides about.
fn shares<'a>(decided: impl Iterator<Item = (Option<&'a Placed>, (u16, u16))>) -> Vec<Share<'a>> {
    let mut shares: Vec<Share<'a>> = Vec::new();
    for (placed, (first, last)) in decided {
        match shares.iter_mut().find(|share| share.placed == placed) {
            Some(share) => match share.ports.last_mut() {
                Some(before) if before.1.checked_add(1) == Some(first) => before.1 = last,
                _ => share.ports.push((first, last)),
            },
            None => shares.push(Share { placed, ports: vec![(first, last)] }),
        }
    }
    shares
}

/// All ports that a socket can have, in pieces of which each is decided about alike: no rule begins or ends within one.
fn pieces(rules: &[Placed], role: Role) -> Vec<(u16, u16)> {
    let ranges = rules.iter().filter(|placed| placed.rule.role == role).map(|placed| placed.rule.first);
    let begins = ranges.flat_map(|range| [Some(range.first), range.last.checked_add(1)]).flatten().filter(|&port| port != 0);
    let begins: Vec<u16> = begins.chain([1]).collect::<BTreeSet<_>>().into_iter().collect();
    let ends = begins.iter().skip(1).map(|&next| next - 1).chain([u16::MAX]);
    begins.iter().copied().zip(ends).collect()
}

fn shown(ports: &[(u16, u16)]) -> String {
    if ports == [(1, u16::MAX)] {
        return "*".to_owned();
    }
    let piece = |&(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ports.iter().map(piece).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_that_decides_is_named() {
        let (rules, _) = Rules::parse("# none\napplication-id redis* *\nuse os tcp_server 127.0.0.1:6379\n");
        let process = |program: &str| Process { program: program.to_owned(), id: "*".to_owned() };
        let of = |program, address| decide(&rules, "/etc/libvma.conf", &process(program), parse(address).unwrap(), &[Role::TcpServer]);
        let decided = Decision {
            role: "tcp_server",
            ports: "6379".to_owned(),
            carried_by: "kernel",
            place: Some("/etc/libvma.conf:3".to_owned()),
            rule: Some("use os tcp_server 127.0.0.1:6379".to_owned()),
        };
        assert_eq!(of("redis-server", "127.0.0.1:6379"), [decided]);
        assert_eq!(of("nginx", "127.0.0.1:6379")[0].place, None);
    }

    #[test]
    fn without_a_port_all_of_them_are_decided_about() {
        let text = "use os tcp_server *:80\nuse vma tcp_server 10.0.0.0/8:1-90\nuse os tcp_server *:70-100\nuse os tcp_client *:7\n";
        let (rules, _) = Rules::parse(text);
        let process = Process { program: "nginx".to_owned(), id: "*".to_owned() };
        let of = |address, role| -> Vec<_> {
            let decisions = decide(&rules, "f", &process, parse(address).unwrap(), &[role]);
            decisions.into_iter().map(|d| (d.ports, d.carried_by, d.place.unwrap_or_default())).collect()
        };
        let expected = |rows: &[(&str, &'static str, &str)]| -> Vec<_> {
            rows.iter().map(|&(ports, by, place)| (ports.to_owned(), by, place.to_owned())).collect()
        };
        let here = [("1-69, 101-65535", "ring", ""), ("70-79, 81-100", "kernel", "f:3"), ("80", "kernel", "f:1")];
        assert_eq!(of("127.0.0.1", Role::TcpServer), expected(&here));
        let there = [("1-79, 81-90", "ring", "f:2"), ("80", "kernel", "f:1"), ("91-100", "kernel", "f:3"), ("101-65535", "ring", "")];
        assert_eq!(of("10.1.1.1", Role::TcpServer), expected(&there));
        assert_eq!(of("10.1.1.1", Role::UdpSender), expected(&[("*", "ring", "")]));
        assert_eq!(of("10.1.1.1:7", Role::TcpClient), expected(&[("7", "kernel", "f:4")]));
        let (all, _) = Rules::parse("use os tcp_server *:*\nuse vma tcp_server *:65535\n");
        let decided = decide(&all, "f", &process, parse("1.2.3.4").unwrap(), &[Role::TcpServer]);
        assert_eq!((decided.len(), decided[0].ports.as_str()), (1, "*"));
    }

    #[test]
    fn addresses_may_lack_a_port() {
        assert_eq!(parse("10.0.0.1").unwrap(), (IpAddr::from([10, 0, 0, 1]), None));
        assert_eq!(parse("10.0.0.1:5").unwrap(), (IpAddr::from([10, 0, 0, 1]), Some(5)));
        assert!(parse("host:5").is_err());
    }

    #[test]
    fn every_role_has_a_name() {
        let names: Vec<_> = Named::value_variants().iter().map(|named| named.to_possible_value().unwrap().get_name().to_owned()).collect();
        assert_eq!(names, Role::ALL.map(Role::name));
        assert!(Named::value_variants().iter().map(|named| named.role()).eq(Role::ALL));
    }
}
