//! libvma.conf: which sockets are left to the kernel (vma.md section 4).
//!
//! A file is a list of *instances* (`application-id PROGRAM ID`), each with its `use` rules. Of the first instance that a process
//! matches, the first rule that matches a socket decides; where none does, the socket is offloaded. [`Rules::parse`] reads a file,
//! [`Rules::decide`] asks it. [`grammar`] has the words.

pub mod grammar;

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

pub use grammar::ParseError;

/// The longest file of rules, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// What is in a file of rules. It is not waited for: a program that makes its first socket is held up by nobody who may write to a FIFO.
///
/// # Errors
/// The system's; `InvalidInput`: neither a regular file nor a character device, such as /dev/null; `FileTooLarge`: more than 4 MiB
/// (/dev/zero, for one, has no end).
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = Vec::new();
    // (O_NOCTTY: a terminal does not become the process's by being named here.)
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a regular file nor a device"));
    }
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// VMA_APPLICATION_ID's value in a rule, or in the environment, that is as good as any other.
const ANY: &str = "*";

/// What is to carry a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The kernel.
    Os,
    /// Ringway.
    Vma,
    /// Sockets Direct Protocol: a rule for others, which decides nothing here.
    Sdp,
    /// Storage accelerator: likewise.
    Sa,
    /// `*`: as [`Transport::Vma`].
    Any,
}

/// What a socket does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It listens; the first address is its own.
    TcpServer,
    /// It connects; the first address is the peer's, the second its own.
    TcpClient,
    /// It sends datagrams; the address is the peer's.
    UdpSender,
    /// It receives datagrams; the address is its own.
    UdpReceiver,
    /// It is connected; the first address is the peer's, the second its own.
    UdpConnect,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::TcpServer, Self::TcpClient, Self::UdpSender, Self::UdpReceiver, Self::UdpConnect];

    /// Its word in libvma.conf.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpServer => "tcp_server",
            Self::TcpClient => "tcp_client",
            Self::UdpSender => "udp_sender",
            Self::UdpReceiver => "udp_receiver",
            Self::UdpConnect => "udp_connect",
        }
    }
}

impl Transport {
    const ALL: [Self; 5] = [Self::Os, Self::Vma, Self::Sdp, Self::Sa, Self::Any];

    /// Its word in libvma.conf.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::Vma => "vma",
            Self::Sdp => "sdp",
            Self::Sa => "sa",
            Self::Any => "*",
        }
    }
}

/// Addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The network, and the bits of it that count; `None`: any address.
    pub net: Option<(Ipv4Addr, u8)>,
    /// The first port.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl Endpoint {
    /// Whether `address` is among these. The network's mask is applied to both sides. (What is named is a network of IPv4: addresses of IPv6 are
    /// among those of a `*` only.)
    pub fn matches(&self, address: SocketAddr) -> bool {
        let ports = (self.first..=self.last).contains(&address.port());
        ports
            && self.net.is_none_or(|(net, bits)| {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
                matches!(address.ip(), IpAddr::V4(ip) if net.to_bits() & mask == ip.to_bits() & mask)
            })
    }
}

/// A `use` statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What is to carry the sockets that it matches.
    pub transport: Transport,
    /// What they do.
    pub role: Role,
    /// What their first address is.
    pub first: Endpoint,
    /// What their second one is, where the rule says so.
    pub second: Option<Endpoint>,
}

impl Rule {
    /// Whether it decides about such a socket.
    pub fn matches(&self, role: Role, first: SocketAddr, second: Option<SocketAddr>) -> bool {
        let ours = matches!(self.transport, Transport::Os | Transport::Vma | Transport::Any);
        let pair = match (self.second, second) {
            (Some(rule), Some(address)) => rule.matches(address),
            _ => true,
        };
        ours && self.role == role && self.first.matches(first) && pair
    }
}

/// An `application-id` statement: the processes that rules are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The program's short name: a pattern of fnmatch(3).
    pub program: String,
    /// VMA_APPLICATION_ID's value, or `*`.
    pub id: String,
}

impl Scope {
    /// Every process.
    pub fn any() -> Self {
        Self { program: ANY.to_owned(), id: ANY.to_owned() }
    }

    /// Whether a process is meant.
    pub fn matches(&self, process: &Process) -> bool {
        (process.id == ANY || self.id == ANY || self.id == process.id) && matches_pattern(&self.program, &process.program)
    }
}

/// A process, as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The program's short name.
    pub program: String,
    /// VMA_APPLICATION_ID.
    pub id: String,
}

#[expect(unsafe_code, reason = "fnmatch(3) is what the file's format is defined by")]
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (Ok(pattern), Ok(name)) = (CString::new(pattern), CString::new(name)) else { return false };
    // SAFETY: both are C strings that live for the call.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), 0) == 0 }
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `application-id`: whom the rules after it are for.
    ApplicationId(Scope),
    /// `log`: understood, and without effect (VMA_LOG_FILE and VMA_TRACELEVEL say where the log goes, and what is in it).
    Log(grammar::Log),
    /// `use`.
    Use(Rule),
}

/// A rule and its line, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The rule.
    pub rule: Rule,
    /// Where it is.
    pub line: u32,
}

/// A file's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    instances: Vec<(Scope, Vec<Placed>)>,
}

impl Rules {
    /// Reads a file's text. Where it has an error, the rules before that hold.
    pub fn parse(text: &str) -> (Self, Option<ParseError>) {
        let mut rules = Self::default();
        // Statements before any application-id are everybody's.
        let mut scope = Scope::any();
        for (line, number) in text.lines().zip(1..) {
            match grammar::statement(line, number) {
                Ok(Some(Statement::ApplicationId(next))) => {
                    rules.instance(&next);
                    scope = next;
                }
                Ok(Some(Statement::Use(rule))) => rules.instance(&scope).push(Placed { rule, line: number }),
                Ok(Some(Statement::Log(_)) | None) => {}
                Err(error) => return (rules, Some(error)),
            }
        }
        (rules, None)
    }

    /// The rules of an instance, which a second declaration of it opens again.
    fn instance(&mut self, scope: &Scope) -> &mut Vec<Placed> {
        let place = self.instances.iter().position(|(known, _)| known == scope).unwrap_or_else(|| {
            self.instances.push((scope.clone(), Vec::new()));
            self.instances.len() - 1
        });
        &mut self.instances[place].1
    }

    /// Whether there is nothing to decide.
    pub fn is_empty(&self) -> bool {
        self.instances.iter().all(|(_, rules)| rules.is_empty())
    }

    /// Whether some instance has this id, or takes any.
    pub fn knows_id(&self, id: &str) -> bool {
        id == ANY || self.instances.is_empty() || self.instances.iter().any(|(scope, _)| scope.id == ANY || scope.id == id)
    }

    /// The rules that hold for a process: those of the first instance that it matches, and of no other.
    pub fn of(&self, process: &Process) -> &[Placed] {
        self.instances.iter().find(|(scope, _)| scope.matches(process)).map_or(&[], |(_, rules)| rules)
    }

    /// The rule that decides about a socket; `None`: there is none, so it is offloaded.
    pub fn decide(&self, process: &Process, role: Role, first: SocketAddr, second: Option<SocketAddr>) -> Option<&Placed> {
        self.of(process).iter().find(|placed| placed.rule.matches(role, first, second))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.net {
            None => f.write_str("*:")?,
            Some((net, 32)) => write!(f, "{net}:")?,
            Some((net, bits)) => write!(f, "{net}/{bits}:")?,
        }
        match (self.first, self.last) {
            (0, u16::MAX) => f.write_str("*"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "use {} {} {}", self.transport.name(), self.role.name(), self.first)?;
        self.second.map_or(Ok(()), |second| write!(f, ":{second}"))
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApplicationId(scope) => write!(f, "application-id {} {}", scope.program, scope.id),
            Self::Log(log) => log.fmt(f),
            Self::Use(rule) => rule.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
