//! What a checker found, as one line that can be read back, so that the place can be shown in the trace.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, SocketAddr};

use ringway_stack::Instant;

use super::flow::Tuple;

/// A law that a host broke. It is written as `checker NAME: host N (IP) at T ns, frame F, connection A to B: LAW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The checker that found it.
    pub checker: String,
    /// Which host broke the law.
    pub host: usize,
    /// The host's address.
    pub ip: Option<IpAddr>,
    /// When, by the host's own clock.
    pub at: Instant,
    /// The frame that broke it ([`Record::frame`](crate::trace::Record::frame)), if it was a frame.
    pub frame: Option<u64>,
    /// The connection, seen from the host.
    pub connection: Option<Tuple>,
    /// The law, and what was seen instead.
    pub law: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checker, host, ip, at, frame, connection, law } = self;
        write!(f, "checker {checker}: host {host}")?;
        if let Some(ip) = ip {
            write!(f, " ({ip})")?;
        }
        write!(f, " at {} ns", at.as_nanos())?;
        if let Some(frame) = frame {
            write!(f, ", frame {frame}")?;
        }
        if let Some((local, remote)) = connection {
            write!(f, ", connection {local} to {remote}")?;
        }
        write!(f, ": {law}")
    }
}

/// A line that no checker wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the line of a checker")]
pub struct NotABreach;

impl FromStr for Breach {
    type Err = NotABreach;

    fn from_str(line: &str) -> Result<Self, NotABreach> {
        parse(line).ok_or(NotABreach)
    }
}

fn parse(line: &str) -> Option<Breach> {
    let (checker, rest) = line.strip_prefix("checker ")?.split_once(": host ")?;
    let (place, law) = rest.split_once(": ")?;
    let (host, place) = place.split_once(' ')?;
    let (ip, place) = match place.strip_prefix('(') {
        Some(place) => place.split_once(") ").map(|(ip, place)| Some((Some(ip.parse().ok()?), place)))??,
        None => (None, place),
    };
    let mut parts = place.strip_prefix("at ")?.split(", ");
    let at = Instant::from_nanos(parts.next()?.strip_suffix(" ns")?.parse().ok()?);
    let (mut frame, mut connection) = (None, None);
    for part in parts {
        if let Some(number) = part.strip_prefix("frame ") {
            frame = Some(number.parse().ok()?);
        } else {
            let (local, remote) = part.strip_prefix("connection ")?.split_once(" to ")?;
            connection = Some((local.parse::<SocketAddr>().ok()?, remote.parse::<SocketAddr>().ok()?));
        }
    }
    Some(Breach { checker: checker.to_owned(), host: host.parse().ok()?, ip, at, frame, connection, law: law.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_reads_back() {
        let ends = ("10.0.0.2:16384".parse().unwrap(), "10.0.0.3:128".parse().unwrap());
        let whole = Breach {
            checker: "recovery".to_owned(),
            host: 1,
            ip: "10.0.0.2".parse().ok(),
            at: Instant::from_nanos(3_608_838_947),
            frame: Some(77),
            connection: Some(ends),
            law: "RFC 5681 s3.2: 3 duplicate acknowledgments of 1025, and it was not sent again".to_owned(),
        };
        let bare = Breach { ip: None, frame: None, connection: None, ..whole.clone() };
        for breach in [whole, bare] {
            assert_eq!(breach.to_string().parse(), Ok(breach));
        }
    }

    #[test]
    fn other_lines_are_no_breaches() {
        for line in [
            "",
            "liveness: Err(Unfinished)",
            "checker x: host y at 7 ns: z",
            "checker x: host 1 at 7: z",
            "checker x: host 1 at 7 ns, page 3: z",
        ] {
            assert_eq!(line.parse::<Breach>(), Err(NotABreach), "{line}");
        }
    }
}
