//! Programs at random: a wish says what is to be done, and picks among the sockets that there are by then.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use ringway_conformance::reference::program::{Op, Role, Source, Target};
use ringway_conformance::reference::sockets::{Flags, Host, How, Kind, Setting, Slot};

/// The ports that programs name.
pub(crate) const PORTS: [u16; 3] = [5001, 5002, 5003];
/// Calls in a program, what the opening takes apart.
const CALLS_MAX: usize = 26;

/// What is to be done, to a socket that is chosen when it comes to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    verb: Verb,
    /// Which of the sockets that it makes sense for.
    pick: u8,
    /// Which socket of the other host.
    other: u8,
    /// Any socket, sense or not.
    blind: bool,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Socket(Host, Kind),
    Bind(u16),
    Listen(i32),
    ConnectTo(u16),
    Connect,
    Disconnect,
    Accept,
    Send(usize, bool),
    SendTo(usize),
    SendToPort(usize, u16),
    Recv(usize, Flags),
    Shutdown(How),
    Close,
    Set(Setting),
    TakeError,
    Fill,
}

/// A program, before its wishes have met any socket.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    opening: &'static [Op],
    wishes: Vec<Wish>,
}

impl Draft {
    /// Its calls, in order.
    pub(crate) fn calls(&self) -> Calls<'_> {
        Calls { opening: self.opening.iter(), wishes: self.wishes.iter() }
    }
}

/// See [`Draft::calls`].
pub(crate) struct Calls<'a> {
    opening: std::slice::Iter<'a, Op>,
    wishes: std::slice::Iter<'a, Wish>,
}

impl Source for Calls<'_> {
    fn next(&mut self, roles: &[Option<Role>]) -> Option<Op> {
        if let Some(op) = self.opening.next() {
            return Some(*op);
        }
        self.wishes.find_map(|wish| wish.resolve(roles))
    }
}

impl Wish {
    fn resolve(self, roles: &[Option<Role>]) -> Option<Op> {
        if let Verb::Socket(host, kind) = self.verb {
            return Some(Op::Socket(host, kind));
        }
        let suits = |role: Role| match self.verb {
            Verb::Listen(_) | Verb::Bind(_) | Verb::Connect | Verb::ConnectTo(_) => matches!(role, Role::Fresh | Role::Datagram),
            Verb::Accept => role == Role::Listener,
            Verb::SendTo(_) | Verb::SendToPort(..) => role == Role::Datagram,
            Verb::Send(..) | Verb::Recv(..) | Verb::Shutdown(_) | Verb::Set(_) | Verb::TakeError => {
                matches!(role, Role::Stream | Role::Datagram)
            }
            Verb::Fill => role == Role::Stream,
            Verb::Close | Verb::Disconnect | Verb::Socket(..) => true,
        };
        let open = || Slot::all().filter_map(|slot| Some((slot, roles[slot.index()]?)));
        let (slot, role) = match pick(open().filter(|&(_, role)| self.blind || suits(role)), self.pick) {
            Some(found) => found,
            None => pick(open(), self.pick)?,
        };
        let of_its_kind = |other: Role| (other == Role::Datagram) == (role == Role::Datagram);
        let likely = |other: Role| of_its_kind(other) && (role == Role::Datagram || other == Role::Listener);
        let target = || {
            let others = || open().filter(|&(other, _)| other.host() != slot.host());
            let other = pick(others().filter(|&(_, role)| likely(role)), self.other).or_else(|| pick(others(), self.other))?;
            Some(Target::Of(other.0))
        };
        Some(match self.verb {
            Verb::Socket(host, kind) => Op::Socket(host, kind),
            Verb::Bind(port) => Op::Bind(slot, port),
            Verb::Listen(backlog) => Op::Listen(slot, backlog),
            Verb::ConnectTo(port) => Op::Connect(slot, Target::Port(port)),
            Verb::Connect => Op::Connect(slot, target()?),
            Verb::Disconnect => Op::Disconnect(slot),
            Verb::Accept => Op::Accept(slot),
            // Only rarely on a UDP socket: little can be compared after it.
            Verb::Send(len, more) => Op::Send(slot, len, more && (role != Role::Datagram || self.pick < 16)),
            Verb::SendTo(len) => Op::SendTo(slot, len, target()?),
            Verb::SendToPort(len, port) => Op::SendTo(slot, len, Target::Port(port)),
            Verb::Recv(len, flags) => Op::Recv(slot, len, flags),
            Verb::Shutdown(how) => Op::Shutdown(slot, how),
            Verb::Close => Op::Close(slot),
            Verb::Set(setting) => Op::Set(slot, setting),
            Verb::TakeError => Op::TakeError(slot),
            Verb::Fill => Op::Fill(slot),
        })
    }
}

fn pick<T>(from: impl Iterator<Item = T>, number: u8) -> Option<T> {
    let mut all: Vec<T> = from.collect();
    let index = usize::from(number).checked_rem(all.len())?;
    Some(all.swap_remove(index))
}

const A0: Slot = Slot::new(Host::A, 0);
const A1: Slot = Slot::new(Host::A, 1);
const B0: Slot = Slot::new(Host::B, 0);

/// A listener on B.
const LISTENER: &[Op] = &[Op::Socket(Host::B, Kind::Tcp), Op::Bind(B0, 5001), Op::Listen(B0, 2)];
/// A listener on B, and a connection from A that it accepted.
const CONNECTION: &[Op] = &[
    Op::Socket(Host::B, Kind::Tcp),
    Op::Bind(B0, 5001),
    Op::Listen(B0, 2),
    Op::Socket(Host::A, Kind::Tcp),
    Op::Connect(A0, Target::Port(5001)),
    Op::Accept(B0),
];
/// A UDP socket on each host; A's is connected.
const DATAGRAMS: &[Op] = &[
    Op::Socket(Host::B, Kind::Udp),
    Op::Bind(B0, 5002),
    Op::Socket(Host::A, Kind::Udp),
    Op::Connect(A0, Target::Of(B0)),
    Op::Socket(Host::A, Kind::Udp),
    Op::Bind(A1, 5003),
];

/// All programs.
pub(crate) fn drafts() -> impl Strategy<Value = Draft> {
    let openings: Vec<&'static [Op]> = vec![&[], LISTENER, CONNECTION, CONNECTION, CONNECTION, DATAGRAMS];
    (select(openings), vec(wishes(), 1..CALLS_MAX)).prop_map(|(opening, wishes)| Draft { opening, wishes })
}

fn wishes() -> impl Strategy<Value = Wish> {
    (verbs(), any::<u8>(), any::<u8>(), prop::bool::weighted(0.1)).prop_map(|(verb, pick, other, blind)| Wish { verb, pick, other, blind })
}

fn verbs() -> impl Strategy<Value = Verb> {
    let host = || select(vec![Host::A, Host::B]);
    let kind = select(vec![Kind::Tcp, Kind::Tcp, Kind::Udp]);
    let port = || select(PORTS.to_vec());
    let ends = select(vec![How::Read, How::Write, How::Write, How::Both]);
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.15)).prop_map(|(peek, trunc)| Flags { peek, trunc });
    let small = || prop_oneof![4 => 1..200_usize, 2 => 200..1400_usize, 1 => Just(0_usize)];
    let setting = prop_oneof![
        2 => any::<bool>().prop_map(Setting::NoDelay),
        2 => any::<bool>().prop_map(Setting::Cork),
        1 => any::<bool>().prop_map(Setting::LingerZero),
    ];
    prop_oneof![
        5 => (host(), kind).prop_map(|(host, kind)| Verb::Socket(host, kind)),
        2 => prop_oneof![2 => port(), 1 => Just(0)].prop_map(Verb::Bind),
        3 => select(vec![0, 1, 2, 8]).prop_map(Verb::Listen),
        2 => port().prop_map(Verb::ConnectTo),
        6 => Just(Verb::Connect),
        1 => Just(Verb::Disconnect),
        5 => Just(Verb::Accept),
        10 => (small(), prop::bool::weighted(0.15)).prop_map(|(len, more)| Verb::Send(len, more)),
        4 => small().prop_map(Verb::SendTo),
        1 => (small(), port()).prop_map(|(len, port)| Verb::SendToPort(len, port)),
        10 => (1..1500_usize, flags).prop_map(|(len, flags)| Verb::Recv(len, flags)),
        4 => ends.prop_map(Verb::Shutdown),
        4 => Just(Verb::Close),
        2 => setting.prop_map(Verb::Set),
        2 => Just(Verb::TakeError),
        1 => Just(Verb::Fill),
    ]
}
