//! From calls to requests, and from replies to outcomes that mean the same in both worlds.

use core::fmt;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use libc::{
    IPPROTO_IPV6, IPPROTO_TCP, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, SOCK_DGRAM, SOCK_NONBLOCK,
    SOCK_STREAM, SOL_SOCKET,
};

use crate::program::{AcceptBy, Ctl, DupBy, Op, Place, Question, RecvFlags, SendFlags, Setting, State, Target};
use crate::wire::{Call, Fields, Reply, Request};

/// The first port that nobody but the system chooses (the default of net.ipv4.ip_local_port_range).
pub(crate) const EPHEMERAL: u16 = 32_768;

/// The first port that programs name. Each program has ports of its own for these, since IPv6's loopback is one address for all.
pub(crate) const FIRST_NAMED: u16 = 5000;
/// How many.
pub(crate) const NAMED: u16 = 4;

/// `ODD` and `LOOPBACK_OF_IPV6` of wire.h.
const ODD: u16 = 0x8000;
const LOOPBACK_OF_IPV6: i64 = -1;

/// Where a program is at home in its world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    /// An address of IPv4 that no other has.
    pub(crate) ip: Ipv4Addr,
    /// What stands for [`FIRST_NAMED`].
    pub(crate) first: u16,
}

impl Home {
    fn port(self, named: u16) -> u16 {
        named - FIRST_NAMED + self.first
    }

    /// As [`Home::port`], from there.
    fn named(self, port: u16) -> u16 {
        if (self.first..self.first + NAMED).contains(&port) { port - self.first + FIRST_NAMED } else { port }
    }
}

/// A world's own address: family, IP (IPv4's is mapped), port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Raw {
    pub(crate) family: u16,
    pub(crate) ip: Ipv6Addr,
    pub(crate) port: u16,
}

impl Raw {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let (family, port) = (fields.u16(), fields.u16());
        Self { family, port, ip: fields.ip() }
    }
}

/// Gives addresses their meaning: the program's own, and the ports that the system chose in the order in which they were seen.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    home: Home,
    chosen: BTreeMap<u16, usize>,
}

impl Names {
    pub(crate) fn new(home: Home) -> Self {
        Self { home, chosen: BTreeMap::new() }
    }

    pub(crate) fn name(&mut self, raw: Raw) -> String {
        let is_six = i32::from(raw.family & !ODD) == libc::AF_INET6;
        let host = match (raw.ip.to_ipv4_mapped(), raw.ip) {
            _ if raw.family == 0 => return "none".to_owned(),
            (Some(Ipv4Addr::UNSPECIFIED), _) if !is_six => "*".to_owned(),
            (Some(ip), _) if ip == self.home.ip => "host".to_owned(),
            (Some(ip), _) => ip.to_string(),
            (None, Ipv6Addr::UNSPECIFIED) => "*".to_owned(),
            (None, Ipv6Addr::LOCALHOST) => "six".to_owned(),
            (None, ip) => format!("[{ip}]"),
        };
        let port = if raw.port < EPHEMERAL {
            self.home.named(raw.port).to_string()
        } else {
            let next = self.chosen.len();
            format!("#{}", self.chosen.entry(raw.port).or_insert(next))
        };
        format!("{host}:{port}{}{}", if is_six { " (IPv6)" } else { "" }, if raw.family & ODD != 0 { " ODD" } else { "" })
    }
}

/// What a call came to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: i64,
    pub(crate) error: i32,
    pub(crate) pipes: i32,
    pub(crate) detail: Detail,
}

/// What a call gave beside its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Nothing,
    Address(String),
    /// Received bytes, who sent them, msg_flags, and whether anything was written behind them.
    Bytes(Vec<u8>, String, i32, bool),
    /// revents.
    Ready(Vec<i32>),
    /// epoll events by slot.
    Events(BTreeMap<u32, u32>),
    Value(Vec<u8>),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            0 => write!(f, "{}", self.result)?,
            error => f.write_str(&errno_name(error))?,
        }
        if self.pipes > 0 {
            write!(f, " SIGPIPE")?;
        }
        match &self.detail {
            Detail::Nothing => Ok(()),
            Detail::Bytes(bytes, from, flags, beyond) => {
                write!(f, " {:02x?} from {from} flags {flags:x}{}", &bytes[..bytes.len().min(3)], if *beyond { " AND MORE" } else { "" })
            }
            other => write!(f, " {other:x?}"),
        }
    }
}

/// The name of an errno.
pub(crate) fn errno_name(error: i32) -> String {
    let name = match error {
        libc::EBADF => "EBADF",
        libc::EINTR => "EINTR",
        libc::EAGAIN => "EAGAIN",
        libc::EEXIST => "EEXIST",
        libc::ENOENT => "ENOENT",
        libc::EINVAL => "EINVAL",
        libc::ENOTTY => "ENOTTY",
        libc::EPIPE => "EPIPE",
        libc::ENOTSOCK => "ENOTSOCK",
        libc::EDESTADDRREQ => "EDESTADDRREQ",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::ENOPROTOOPT => "ENOPROTOOPT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::EADDRINUSE => "EADDRINUSE",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ECONNABORTED => "ECONNABORTED",
        libc::ECONNRESET => "ECONNRESET",
        libc::EISCONN => "EISCONN",
        libc::ENOTCONN => "ENOTCONN",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::EALREADY => "EALREADY",
        libc::EINPROGRESS => "EINPROGRESS",
        libc::EPERM => "EPERM",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}

/// The request for a call, given what there is; `home` is the program's in this world, `local` tells the address that a
/// descriptor has there. `None`: the call makes no sense (its descriptor is not there).
pub(crate) fn request(
    (process, op, number): (u8, &Op, usize),
    state: &State,
    home: Home,
    local: &dyn Fn(u8, u8) -> Option<Raw>,
) -> Option<Request> {
    let fd = |slot: u8| state.entry(process, slot).map(|entry| i64::from(entry.fd));
    let family = |slot: u8| state.description(process, slot).map(|d| i64::from(d.kind.family()));
    let host = i64::from(home.ip.to_bits());
    let named = |port: u16| i64::from(home.port(port));
    let new = Request::new;
    // IP, port, family. (To a socket of IPv4, IPv6's addresses are IPv4's: it can't do anything with others.)
    let target = |slot: u8, target: Target| -> Option<[i64; 3]> {
        let is_four = family(slot)? == i64::from(libc::AF_INET);
        let six = if is_four { host } else { LOOPBACK_OF_IPV6 };
        Some(match target {
            Target::Port(port) => [host, named(port), family(slot)?],
            Target::Port6(port) => [six, named(port), family(slot)?],
            Target::Of(process, other) | Target::Of6(process, other) => {
                let raw = local(process, other).filter(|raw| raw.port != 0)?;
                let ip = match (raw.ip.to_ipv4_mapped(), raw.ip) {
                    (Some(Ipv4Addr::UNSPECIFIED), _) | (None, Ipv6Addr::UNSPECIFIED) if matches!(target, Target::Of(..)) => host,
                    (Some(ip), _) if ip != Ipv4Addr::UNSPECIFIED => i64::from(ip.to_bits()),
                    _ => six,
                };
                [ip, i64::from(raw.port), family(slot)?]
            }
            Target::Nobody => [0, 0, i64::from(libc::AF_UNSPEC)],
        })
    };
    Some(match *op {
        Op::Socket(kind, nonblocking) => {
            let socket = if kind.is_tcp() { SOCK_STREAM } else { SOCK_DGRAM };
            new(Call::Socket, &[i64::from(kind.family()), i64::from(socket | if nonblocking { SOCK_NONBLOCK } else { 0 })])
        }
        Op::Bind(slot, place) => {
            let family = family(slot)?;
            let six = if family == i64::from(libc::AF_INET) { host } else { LOOPBACK_OF_IPV6 };
            let (ip, port) = match place {
                Place::At(port) => (host, named(port)),
                Place::Any => (host, 0),
                Place::At6(port) => (six, named(port)),
                Place::Any6 => (six, 0),
                Place::Wild => (0, 0),
                Place::WildAt(port) => (0, named(port)),
            };
            new(Call::Bind, &[fd(slot)?, ip, port, family])
        }
        Op::Listen(slot, backlog) => new(Call::Listen, &[fd(slot)?, i64::from(backlog)]),
        Op::Connect(slot, to) => {
            let [ip, port, family] = target(slot, to)?;
            new(Call::Connect, &[fd(slot)?, ip, port, family])
        }
        Op::Accept(slot, by) => {
            let flags = match by {
                AcceptBy::Accept => -1,
                AcceptBy::Accept4 => 0,
                AcceptBy::NonBlocking => i64::from(SOCK_NONBLOCK),
            };
            new(Call::Accept, &[fd(slot)?, flags])
        }
        Op::Send(slot, by, length, flags) => new(Call::Send, &[fd(slot)?, by as i64, send_flags(flags)]).with(payload(number, length)),
        Op::SendTo(slot, by, length, to) => {
            let [ip, port, family] = target(slot, to)?;
            new(Call::Send, &[fd(slot)?, by as i64, i64::from(MSG_NOSIGNAL), ip, port, family]).with(payload(number, length))
        }
        Op::Recv(slot, by, length, flags) => new(Call::Recv, &[fd(slot)?, by as i64, recv_flags(flags), length as i64]),
        Op::Transfer(slot, .., length) => new(Call::Send, &[fd(slot)?, 1, i64::from(MSG_NOSIGNAL)]).with(payload(number, length)),
        Op::Shutdown(slot, how) => new(Call::Shutdown, &[fd(slot)?, how as i64]),
        Op::Close(slot) => new(Call::Close, &[fd(slot)?]),
        Op::Dup(slot, by) => {
            let (by, argument) = match by {
                DupBy::Dup => (0, 0),
                DupBy::Onto(other) => (1, fd(other)?),
                DupBy::Exactly(other) => (2, fd(other)?),
                DupBy::From(first) => (3, i64::from(first)),
                DupBy::FromCloexec(first) => (4, i64::from(first)),
            };
            new(Call::Dup, &[fd(slot)?, by, argument])
        }
        Op::NonBlock(slot, on, false) => {
            new(Call::Fcntl, &[fd(slot)?, i64::from(libc::F_SETFL), i64::from(if on { libc::O_NONBLOCK } else { 0 })])
        }
        Op::NonBlock(slot, on, true) => new(Call::Ioctl, &[fd(slot)?, libc::FIONBIO as i64, i64::from(on)]),
        Op::Set(slot, setting) => set(fd(slot)?, setting),
        Op::Ask(slot, question) => ask(fd(slot)?, question),
        Op::Poll(by, ref of, wait) => {
            let mut numbers = Vec::new();
            for &(slot, events) in of {
                numbers.extend([fd(slot)? as i32, i32::from(events)]);
            }
            new(Call::Poll, &[wait.ms(), by as i64]).with_numbers(numbers)
        }
        Op::EpollCreate => new(Call::EpollCreate, &[i64::from(libc::EPOLL_CLOEXEC)]),
        Op::EpollCtl(slot, what, of, events) => {
            let what = match what {
                Ctl::Add => libc::EPOLL_CTL_ADD,
                Ctl::Mod => libc::EPOLL_CTL_MOD,
                Ctl::Del => libc::EPOLL_CTL_DEL,
            };
            new(Call::EpollCtl, &[fd(slot)?, i64::from(what), fd(of)?, i64::from(events), i64::from(of)])
        }
        Op::EpollWait(slot, by, most, wait) => new(Call::EpollWait, &[fd(slot)?, most as i64, wait.ms(), i64::from(by)]),
        Op::Interrupt(worker, restart) => new(Call::Interrupt, &[i64::from(worker), i64::from(restart)]),
        Op::Fork | Op::Kill | Op::Exit => return None,
    })
}

/// The other half of [`Op::Transfer`].
pub(crate) fn transfer_receive(op: &Op, state: &State) -> Option<((u8, u8), Request)> {
    let &Op::Transfer(_, process, worker, slot, length) = op else { return None };
    let fd = i64::from(state.entry(process, slot)?.fd);
    Some(((process, worker), Request::new(Call::Recv, &[fd, 1, i64::from(MSG_WAITALL), length as i64])))
}

fn send_flags(flags: SendFlags) -> i64 {
    let SendFlags { dontwait, more, nosignal } = flags;
    all_of(&[(dontwait, MSG_DONTWAIT), (more, MSG_MORE), (nosignal, MSG_NOSIGNAL)])
}

fn all_of(flags: &[(bool, i32)]) -> i64 {
    flags.iter().filter(|(on, _)| *on).fold(0, |all, &(_, flag)| all | i64::from(flag))
}

fn recv_flags(flags: RecvFlags) -> i64 {
    let RecvFlags { dontwait, peek, waitall, trunc } = flags;
    all_of(&[(dontwait, MSG_DONTWAIT), (peek, MSG_PEEK), (waitall, MSG_WAITALL), (trunc, MSG_TRUNC)])
}

fn set(fd: i64, setting: Setting) -> Request {
    let (level, name, value) = match setting {
        Setting::NoDelay(on) => (IPPROTO_TCP, libc::TCP_NODELAY, vec![i32::from(on)]),
        Setting::Cork(on) => (IPPROTO_TCP, libc::TCP_CORK, vec![i32::from(on)]),
        Setting::LingerZero(on) => (SOL_SOCKET, libc::SO_LINGER, vec![i32::from(on), 0]),
        Setting::ReuseAddress(on) => (SOL_SOCKET, libc::SO_REUSEADDR, vec![i32::from(on)]),
        Setting::ReusePort(on) => (SOL_SOCKET, libc::SO_REUSEPORT, vec![i32::from(on)]),
        Setting::KeepAlive(on) => (SOL_SOCKET, libc::SO_KEEPALIVE, vec![i32::from(on)]),
        Setting::V6Only(on) => (IPPROTO_IPV6, libc::IPV6_V6ONLY, vec![i32::from(on)]),
        // A timeval: seconds and microseconds, each of 64 bits.
        Setting::RecvTimeout(ms) => (SOL_SOCKET, libc::SO_RCVTIMEO, vec![0, 0, ms as i32 * 1000, 0]),
    };
    Request::new(Call::SetSockOpt, &[fd, i64::from(level), i64::from(name)]).with_numbers(value)
}

fn ask(fd: i64, question: Question) -> Request {
    let (level, name, length) = match question {
        Question::Error => (SOL_SOCKET, libc::SO_ERROR, 4),
        Question::Type => (SOL_SOCKET, libc::SO_TYPE, 4),
        Question::AcceptConn => (SOL_SOCKET, libc::SO_ACCEPTCONN, 4),
        Question::Domain => (SOL_SOCKET, libc::SO_DOMAIN, 4),
        Question::Protocol => (SOL_SOCKET, libc::SO_PROTOCOL, 4),
        Question::ReuseAddress => (SOL_SOCKET, libc::SO_REUSEADDR, 4),
        Question::KeepAlive => (SOL_SOCKET, libc::SO_KEEPALIVE, 4),
        Question::NoDelay => (IPPROTO_TCP, libc::TCP_NODELAY, 4),
        Question::Linger => (SOL_SOCKET, libc::SO_LINGER, 8),
        Question::V6Only => (IPPROTO_IPV6, libc::IPV6_V6ONLY, 4),
        Question::RecvTimeout => (SOL_SOCKET, libc::SO_RCVTIMEO, 16),
    };
    Request::new(Call::GetSockOpt, &[fd, i64::from(level), i64::from(name), length])
}

/// The bytes of a program's call: any two calls' differ.
pub(crate) fn payload(number: usize, length: usize) -> Vec<u8> {
    let start = (number as u32).wrapping_mul(0x9e37_79b9);
    (0..length as u32).map(|i| (start.wrapping_add(i).wrapping_mul(0x85eb_ca6b) >> 24) as u8).collect()
}

/// What a reply says.
pub(crate) fn outcome(request: &Request, reply: &Reply, names: &mut Names) -> Outcome {
    let mut fields = Fields(&reply.data);
    let detail = match request.call {
        _ if reply.result < 0 => Detail::Nothing,
        // Which of several events come first is nobody's promise.
        Call::EpollWait if reply.result == request.arguments[1] && reply.result < 8 => Detail::Nothing,
        Call::Accept => Detail::Address(names.name(Raw::read(&mut fields))),
        Call::Recv => {
            let from = names.name(Raw::read(&mut fields));
            let (flags, beyond) = (fields.i32(), fields.i32());
            Detail::Bytes(fields.0.to_vec(), from, flags, beyond != 0)
        }
        Call::Poll => Detail::Ready((0..reply.data.len() / 4).map(|_| fields.i32()).collect()),
        Call::EpollWait => Detail::Events((0..reply.data.len() / 8).map(|_| (fields.u32(), fields.u32())).collect()),
        Call::GetSockOpt => Detail::Value(reply.data.clone()),
        _ => Detail::Nothing,
    };
    Outcome { result: reply.result, error: reply.error, pipes: reply.pipes, detail }
}
