//! Which rule of libvma.conf decides about a program's sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use ringway_params::rules::{Process, Role, Rules, Transport};
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
    let mut rows = table(&["role", "carried by", "rule", ""]);
    for decision in &decisions {
        let place = decision.place.as_deref().unwrap_or("no rule");
        rows.add_row([decision.role, decision.carried_by, place, decision.rule.as_deref().unwrap_or_default()]);
    }
    println!("{rows}");
    Ok(())
}

/// `ADDRESS` or `ADDRESS:PORT`. Without a port, it is zero, which only rules for all ports match.
fn parse(address: &str) -> Result<SocketAddrV4> {
    let whole = SocketAddrV4::from_str(address).ok();
    let alone = Ipv4Addr::from_str(address).ok().map(|ip| SocketAddrV4::new(ip, 0));
    whole.or(alone).with_context(|| format!("{address} is neither an IPv4 address nor one with a port"))
}

fn decide(rules: &Rules, path: &str, process: &Process, address: SocketAddrV4, roles: &[Role]) -> Vec<Decision> {
    let decision = |&role: &Role| {
        let placed = rules.decide(process, role, address, None);
        Decision {
            role: role.name(),
            carried_by: if placed.is_some_and(|placed| placed.rule.transport == Transport::Os) { "kernel" } else { "ring" },
            place: placed.map(|placed| format!("{path}:{}", placed.line)),
            rule: placed.map(|placed| placed.rule.to_string()),
        }
    };
    roles.iter().map(decision).collect()
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
            carried_by: "kernel",
            place: Some("/etc/libvma.conf:3".to_owned()),
            rule: Some("use os tcp_server 127.0.0.1:6379".to_owned()),
        };
        assert_eq!(of("redis-server", "127.0.0.1:6379"), [decided]);
        assert_eq!(of("redis-server", "127.0.0.1")[0].carried_by, "ring", "the rule is about one port");
        assert_eq!(of("nginx", "127.0.0.1:6379")[0].place, None);
    }

    #[test]
    fn addresses_may_lack_a_port() {
        assert_eq!(parse("10.0.0.1").unwrap(), "10.0.0.1:0".parse().unwrap());
        assert_eq!(parse("10.0.0.1:5").unwrap(), "10.0.0.1:5".parse().unwrap());
        assert!(parse("host:5").is_err());
    }

    #[test]
    fn every_role_has_a_name() {
        let names: Vec<_> = Named::value_variants().iter().map(|named| named.to_possible_value().unwrap().get_name().to_owned()).collect();
        assert_eq!(names, Role::ALL.map(Role::name));
        assert!(Named::value_variants().iter().map(|named| named.role()).eq(Role::ALL));
    }
}
