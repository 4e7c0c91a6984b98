//! The protocol: a question in JSON, behind which a packet may follow, and one answer. Descriptors go beside it (SCM_RIGHTS).

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;

use ringway_stack::device::{FiveTuple, Protocol};
use serde::{Deserialize, Serialize};

/// Of this protocol. A broker refuses another one's questions.
pub(super) const VERSION: u32 = 2;

/// The longest packet behind a question (IPv4's and IPv6's without jumbograms).
const PACKET_MAX: usize = 1 << 16;
/// The longest question without one.
const WORDS_MAX: usize = 1 << 10;
/// The longest message.
pub(super) const MESSAGE_MAX: usize = WORDS_MAX + 1 + PACKET_MAX;
/// Descriptors that an answer may bring: a link, memory, and a socket for each queue.
pub(super) const DESCRIPTORS_MAX: usize = 2 + crate::card::QUEUES_MAX as usize;

/// What a program asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Question {
    /// Which interfaces there are.
    Served { version: u32 },
    /// The ring of an interface, which the connection is about from then on. `namespace`: where the program is ([`namespace`]).
    Open { version: u32, interface: String, namespace: u64 },
    /// Frames of a flow are to come to the ring.
    Attach(Flow),
    /// They are the kernel's again.
    Detach(Flow),
    /// Frames of a connection are to go to the kernel, whatever rule matches its listener's.
    LeaveToKernel(Flow),
    /// The kernel is to ask for a neighbour.
    UseNeighbour(IpAddr),
    /// The socket that comes with it is to be in repair mode, and bound to `local`, to become that connection's.
    BeginRepair { local: SocketAddr, remote: SocketAddr },
    /// It no longer is to be: it is that connection's, or nobody's.
    EndRepair { probes: bool },
    /// Its buffers are to have that size.
    Reserve { receive: u32, send: u32 },
    /// The packet that follows is to be put into the kernel's input path.
    Inject { local: SocketAddr },
}

/// [`FiveTuple`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flow {
    is_tcp: bool,
    local: SocketAddr,
    remote: Option<SocketAddr>,
}

impl From<&FiveTuple> for Flow {
    fn from(&FiveTuple { protocol, local, remote }: &FiveTuple) -> Self {
        Self { is_tcp: protocol == Protocol::Tcp, local, remote }
    }
}

impl From<Flow> for FiveTuple {
    fn from(Flow { is_tcp, local, remote }: Flow) -> Self {
        Self { protocol: if is_tcp { Protocol::Tcp } else { Protocol::Udp }, local, remote }
    }
}

/// What the broker answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It is done.
    Done,
    /// These interfaces.
    Served { interfaces: Vec<String> },
    /// A ring, with so many frames to receive into and to send from; its descriptors come with it: the link's, the memory's, the sockets'.
    Opened { receives: u32, sends: u32, injects: bool },
    /// It is not done.
    Refused(Refusal),
}

/// Why a broker does not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The user: it is not among the broker's.
    #[error("user {uid} is not one of its users (ringway broker --users)")]
    NotListed {
        /// Who asked, as the kernel says.
        uid: u32,
    },
    /// The program, or the broker: it speaks another version of the protocol.
    #[error("it speaks version {broker} of its protocol")]
    Version {
        /// The broker's.
        broker: u32,
    },
    /// The program: what it said is no question, or none that may be asked now.
    #[error("the question makes no sense to it: {0}")]
    Malformed(String),
    /// The program: it is in another network namespace.
    #[error("it serves another network namespace")]
    Elsewhere,
    /// The user: it has so many connections already.
    #[error("the user has {0} connections to it already")]
    TooMany(usize),
    /// The user: so many descriptors that were passed are not closed yet, for what they are does not let them be.
    #[error("{0} descriptors that the user's programs passed are being closed still")]
    Lingering(usize),
    /// The broker: it was not told to serve that interface.
    #[error("it does not serve {0}")]
    NotServed(String),
    /// Another program has the interface's ring.
    #[error("another program has the ring of {0}")]
    Taken(String),
    /// The kernel still clears up what a program has left that ended: again in a moment.
    #[error("{0} is not free yet")]
    NotYet(String),
    /// The interface cannot be attached to.
    #[error("{0}")]
    CannotAttach(String),
    /// The program: that is no address of the interface.
    #[error("{0} is no address of the interface")]
    NotItsAddress(IpAddr),
    /// The program: that is a group's address, whose datagrams the kernel shares out among all who hear them. (Who else comes to hear them later, of another user's,
    /// a program that was given them might not care for.)
    #[error("{0} is a group's address, and groups are the kernel's for whoever has a broker's ring")]
    Group(IpAddr),
    /// The program: nobody on the interface's link can have that address.
    #[error("{0} is no neighbour")]
    NoNeighbour(IpAddr),
    /// The user may not have that port.
    #[error("port {0} is root's")]
    Privileged(u16),
    /// A socket of another user's has that address.
    #[error("{0} belongs to a socket of another user's")]
    AnothersSocket(SocketAddr),
    /// Somebody has a rule for that flow.
    #[error("another ring has that flow")]
    FlowTaken,
    /// There is no room for another rule.
    #[error("no room for another flow rule")]
    Full,
    /// The program has no rule for that.
    #[error("no flow of the program's has {0}")]
    NotItsFlow(SocketAddr),
    /// The program: the broker has not put that socket into repair mode, or it is in it no more.
    #[error("the socket is not in repair mode by it")]
    NotInRepair,
    /// The program: so many of its sockets are in repair mode already.
    #[error("{0} sockets of the program's are in repair mode already")]
    Repairs(usize),
    /// The program: what it passed is not the one descriptor that belongs to the question.
    #[error("the descriptor is not a TCP socket of this network namespace")]
    Descriptor,
    /// The kernel does not do it.
    #[error("the kernel says: {error}")]
    Kernel {
        /// Its words.
        error: String,
        /// Its number, if it has one.
        errno: Option<i32>,
    },
}

/// The network namespace of the calling thread, by a number; zero where that is not told.
pub(super) fn namespace() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |found| found.ino())
}

/// Writes a question, and what follows it.
pub(super) fn encode(question: &Question, packet: &[u8]) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(question).expect("plain data");
    if !packet.is_empty() {
        // (JSON's text has no such byte.)
        bytes.push(0);
        bytes.extend_from_slice(packet);
    }
    bytes
}

/// Reads one that anybody may have written.
pub(super) fn decode(bytes: &[u8]) -> Result<(Question, &[u8]), Refusal> {
    let (words, packet) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    if words.len() > WORDS_MAX {
        return Err(Refusal::Malformed("it is too long".to_owned()));
    }
    let question = serde_json::from_slice(words).map_err(|error| Refusal::Malformed(error.to_string()))?;
    if !packet.is_empty() && !matches!(question, Question::Inject { .. }) {
        return Err(Refusal::Malformed("something follows it".to_owned()));
    }
    Ok((question, packet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let flow = FiveTuple { protocol: Protocol::Udp, local: "[fd00::1]:7".parse().unwrap(), remote: None };
        let packet = [0, 1, 0];
        for (question, packet) in [
            (Question::Open { version: VERSION, interface: "a0".into(), namespace: 7 }, &[][..]),
            (Question::Attach((&flow).into()), &[]),
            (Question::UseNeighbour("10.0.0.1".parse().unwrap()), &[]),
            (Question::Inject { local: "10.0.0.1:80".parse().unwrap() }, &packet),
        ] {
            assert_eq!(decode(&encode(&question, packet)), Ok((question, packet)));
        }
        assert_eq!(FiveTuple::from(Flow::from(&flow)), flow);
    }

    #[test]
    fn nonsense_is_refused() {
        let long = vec![b' '; WORDS_MAX + 1];
        for bytes in [
            &b""[..],
            b"\0",
            b"7",
            b"{}",
            b"{\"attach\":{}}",
            b"{\"open\":{\"version\":-1,\"interface\":\"a0\",\"namespace\":7}}",
            b"{\"open\":{\"version\":1,\"interface\":\"a0\",\"namespace\":7,\"more\":1}}",
            b"{\"use-neighbour\":\"10.0.0.1\"}\0packet",
            b"{\"attach\":{\"is_tcp\":true,\"local\":\"10.0.0.1:80\",\"remote\":null}} and more",
            b"\xff\xfe",
            &long,
        ] {
            assert!(matches!(decode(bytes), Err(Refusal::Malformed(_))), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
