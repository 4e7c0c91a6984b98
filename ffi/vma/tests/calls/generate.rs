//! Programs at random: a wish says what is to be done, and picks among what there is by then.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::program::{
    AcceptBy, Ctl, DupBy, How, Kind, Op, PROCESSES, Place, PollBy, Question, RecvBy, RecvFlags, Role, SendBy, SendFlags, Setting, Source,
    State, Step, Target, WORKERS, Wait,
};

/// What programs are made of. (All have sockets of both families.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Addresses of IPv4.
    Four,
    /// Addresses of IPv6.
    Six,
    /// Sockets of IPv6 on every address, which those of IPv4 come to.
    Both,
}

impl Mode {
    /// The kind of who is come to.
    fn of_server(self, kind: Kind) -> Kind {
        match (self, kind) {
            (Self::Four, kind) => kind,
            (_, Kind::Tcp | Kind::Tcp6) => Kind::Tcp6,
            (_, Kind::Udp | Kind::Udp6) => Kind::Udp6,
        }
    }

    /// The kind of who comes.
    fn of_client(self, kind: Kind) -> Kind {
        if self == Self::Six { self.of_server(kind) } else { kind }
    }

    fn place(self, port: u16) -> Place {
        match self {
            Self::Four => Place::At(port),
            Self::Six => Place::At6(port),
            Self::Both => Place::WildAt(port),
        }
    }

    fn port(self, port: u16) -> Target {
        if self == Self::Six { Target::Port6(port) } else { Target::Port(port) }
    }

    fn of(self, process: u8, slot: u8) -> Target {
        if self == Self::Six { Target::Of6(process, slot) } else { Target::Of(process, slot) }
    }
}

/// The ports that programs name.
const PORTS: [u16; 3] = [5001, 5002, 5003];
/// Calls in a program, what the opening takes apart.
const CALLS_MAX: usize = 24;

/// What is to be done, by whom and to what is chosen when it comes to it.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    verb: Verb,
    process: u8,
    worker: u8,
    /// Which of the descriptors that it makes sense for.
    pick: u8,
    /// Which descriptor, process or thread else.
    other: u8,
    /// Any descriptor, sense or not.
    blind: bool,
    /// An address that it asks of another socket is IPv6's, if that one has several.
    six: bool,
}

#[derive(Clone, Debug)]
enum Verb {
    Socket(Kind, bool),
    Bind(Place),
    Listen(i32),
    ConnectPort(Target),
    Connect,
    Disconnect,
    Accept(AcceptBy),
    Send(SendBy, usize, SendFlags),
    SendTo(SendBy, usize),
    Recv(RecvBy, usize, RecvFlags),
    Shutdown(How),
    Close,
    Dup(u8, i32),
    NonBlock(bool, bool),
    Set(Setting),
    Ask(Question),
    Poll(PollBy, [i16; 3], Wait),
    EpollCreate,
    EpollCtl(Ctl, u32),
    EpollWait(u8, usize, Wait),
    Interrupt(bool),
    Transfer(usize),
    Fork,
    Kill,
    Exit,
}

/// A program, before its wishes have met anything.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    opening: Vec<Step>,
    wishes: Vec<Wish>,
}

impl Draft {
    /// Its calls, in order.
    pub(crate) fn into_calls(self) -> Calls {
        Calls { opening: self.opening.into_iter(), wishes: self.wishes.into_iter() }
    }
}

/// See [`Draft::into_calls`].
pub(crate) struct Calls {
    opening: std::vec::IntoIter<Step>,
    wishes: std::vec::IntoIter<Wish>,
}

impl Source for Calls {
    fn next(&mut self, state: &State) -> Option<Step> {
        Iterator::next(&mut self.opening).or_else(|| self.wishes.find_map(|wish| wish.resolve(state)))
    }
}

impl Wish {
    fn resolve(&self, state: &State) -> Option<Step> {
        let process = pick(state.living(), self.process)?;
        let idle = (0..WORKERS).filter(|&worker| !state.busy.contains(&(process, worker)));
        let op = self.op(state, process)?;
        Some(match op {
            Op::Interrupt(..) | Op::Fork | Op::Kill | Op::Exit => Step(process, 0, op),
            op => Step(process, pick(idle, self.worker)?, op),
        })
    }

    fn op(&self, state: &State, process: u8) -> Option<Op> {
        match self.verb {
            Verb::Socket(kind, nonblocking) => return Some(Op::Socket(kind, nonblocking)),
            Verb::EpollCreate => return Some(Op::EpollCreate),
            Verb::Fork => return Some(Op::Fork),
            // One must be left to see what becomes of it.
            Verb::Kill | Verb::Exit if state.living().count() < 2 => return None,
            Verb::Kill => return Some(Op::Kill),
            Verb::Exit => return Some(Op::Exit),
            Verb::Interrupt(restart) => {
                let busy = state.busy.iter().filter(|(of, _)| *of == process).map(|&(_, worker)| worker);
                return Some(Op::Interrupt(pick(busy, self.pick)?, restart));
            }
            _ => {}
        }
        let slots = || state.open(process);
        let (slot, role) =
            pick(slots().filter(|&(_, role)| self.blind || self.suits(role)), self.pick).or_else(|| pick(slots(), self.pick))?;
        Some(match self.verb.clone() {
            // One that was shut down first becomes another thing altogether: a socket connected to itself.
            Verb::Connect | Verb::ConnectPort(_) | Verb::Disconnect if role == Role::Listener => return None,
            Verb::Bind(place) => Op::Bind(slot, place),
            Verb::Listen(backlog) => Op::Listen(slot, backlog),
            Verb::ConnectPort(target) => Op::Connect(slot, target),
            Verb::Connect => Op::Connect(slot, self.target(state, role)?),
            Verb::Disconnect => Op::Connect(slot, Target::Nobody),
            Verb::Accept(by) => Op::Accept(slot, by),
            Verb::Send(by, length, flags) => Op::Send(slot, by, length, flags),
            Verb::SendTo(by, length) => Op::SendTo(slot, by, length, self.target(state, role)?),
            // A signal while it waits for nothing at all is no error to Linux, only the end of the wait: nobody can mean that.
            Verb::Recv(by, 0, flags) => Op::Recv(slot, by, 0, RecvFlags { dontwait: true, ..flags }),
            Verb::Recv(by, length, flags) => Op::Recv(slot, by, length, flags),
            Verb::Shutdown(how) => Op::Shutdown(slot, how),
            Verb::Close => Op::Close(slot),
            Verb::Dup(by, first) => {
                let other = pick(slots(), self.other)?.0;
                Op::Dup(
                    slot,
                    match by {
                        0 => DupBy::Dup,
                        1 => DupBy::Onto(other),
                        2 => DupBy::Exactly(other),
                        3 => DupBy::From(first),
                        _ => DupBy::FromCloexec(first),
                    },
                )
            }
            Verb::NonBlock(on, ioctl) => Op::NonBlock(slot, on, ioctl),
            Verb::Set(setting) => Op::Set(slot, setting),
            Verb::Ask(question) => Op::Ask(slot, question),
            Verb::Poll(by, events, wait) => {
                let first = usize::from(self.pick) % 3;
                let some = slots().skip(first).take(1 + usize::from(self.other) % 3).enumerate();
                let some: Vec<(u8, i16)> = some.map(|(index, (slot, _))| (slot, events[index])).collect();
                Op::Poll(by, if some.is_empty() { vec![(slot, events[0])] } else { some }, wait)
            }
            Verb::EpollCtl(what, events) => Op::EpollCtl(slot, what, pick(slots().filter(|&(of, _)| of != slot), self.other)?.0, events),
            Verb::EpollWait(by, most, wait) => Op::EpollWait(slot, by, most, wait),
            Verb::Transfer(length) => {
                let there = pick(state.living(), self.other)?;
                let streams = state.open(there).filter(|&(_, role)| role == Role::Stream);
                let receiver = pick(streams, self.other / 3)?.0;
                let idle = (0..WORKERS).filter(|&worker| !state.busy.contains(&(there, worker)));
                Op::Transfer(slot, there, pick(idle, self.other)?, receiver, length)
            }
            Verb::Socket(..) | Verb::EpollCreate | Verb::Fork | Verb::Kill | Verb::Exit | Verb::Interrupt(_) => return None,
        })
    }

    fn suits(&self, role: Role) -> bool {
        match self.verb {
            Verb::Bind(_) | Verb::Listen(_) | Verb::Connect | Verb::ConnectPort(_) => matches!(role, Role::Fresh | Role::Datagram),
            Verb::Accept(_) => role == Role::Listener,
            Verb::SendTo(..) => role == Role::Datagram,
            Verb::Send(..) | Verb::Recv(..) | Verb::Shutdown(_) => matches!(role, Role::Stream | Role::Datagram),
            Verb::Transfer(_) => role == Role::Stream,
            Verb::EpollCtl(..) | Verb::EpollWait(..) => role == Role::Epoll,
            Verb::Disconnect => matches!(role, Role::Stream | Role::Datagram),
            Verb::Set(_) | Verb::Ask(_) | Verb::NonBlock(..) => role != Role::Epoll,
            _ => true,
        }
    }

    /// A socket of the kind that one of this role may reach: of any process.
    fn target(&self, state: &State, role: Role) -> Option<Target> {
        let all = || {
            (0..PROCESSES)
                .filter(|&p| state.alive(p))
                .flat_map(|p| state.open(p).map(move |(slot, role)| (p, slot, role)).collect::<Vec<_>>())
        };
        let wanted = if role == Role::Datagram { Role::Datagram } else { Role::Listener };
        let (process, slot, _) = pick(all().filter(|&(_, _, role)| role == wanted), self.other).or_else(|| pick(all(), self.other))?;
        Some(if self.six { Target::Of6(process, slot) } else { Target::Of(process, slot) })
    }
}

fn pick<T>(from: impl Iterator<Item = T>, number: u8) -> Option<T> {
    let mut all: Vec<T> = from.collect();
    let index = usize::from(number).checked_rem(all.len())?;
    Some(all.swap_remove(index))
}

/// 1.0 listens.
fn listener(mode: Mode) -> Vec<Step> {
    vec![Step(1, 0, Op::Socket(mode.of_server(Kind::Tcp), false)), Step(1, 0, Op::Bind(0, mode.place(5001))), Step(1, 0, Op::Listen(0, 8))]
}

/// 1.0 listens, and has accepted 1.1 from 0.0.
fn connection(mode: Mode) -> Vec<Step> {
    let mut steps = listener(mode);
    steps.extend([
        Step(0, 0, Op::Socket(mode.of_client(Kind::Tcp), false)),
        Step(0, 0, Op::Connect(0, mode.port(5001))),
        Step(1, 0, Op::Accept(0, AcceptBy::Accept)),
    ]);
    steps
}

/// 0 listens for itself, and has accepted 0.2 from 0.1.
fn own_connection(mode: Mode) -> Vec<Step> {
    vec![
        Step(0, 0, Op::Socket(mode.of_server(Kind::Tcp), false)),
        Step(0, 0, Op::Bind(0, mode.place(5002))),
        Step(0, 0, Op::Listen(0, 8)),
        Step(0, 0, Op::Socket(mode.of_client(Kind::Tcp), true)),
        Step(0, 0, Op::Connect(1, mode.port(5002))),
        Step(0, 0, Op::Accept(0, AcceptBy::Accept4)),
    ]
}

/// A UDP socket in each process; 0's is connected.
fn datagrams(mode: Mode) -> Vec<Step> {
    vec![
        Step(1, 0, Op::Socket(mode.of_server(Kind::Udp), false)),
        Step(1, 0, Op::Bind(0, mode.place(5002))),
        Step(0, 0, Op::Socket(mode.of_client(Kind::Udp), false)),
        Step(0, 0, Op::Bind(0, mode.place(5003))),
        Step(0, 0, Op::Connect(0, mode.of(1, 0))),
    ]
}

/// A connection, each end of it in an epoll instance.
fn watched(mode: Mode) -> Vec<Step> {
    let mut steps = connection(mode);
    let all = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP) as u32;
    steps.extend([
        Step(0, 0, Op::EpollCreate),
        Step(0, 0, Op::EpollCtl(1, Ctl::Add, 0, all)),
        Step(1, 0, Op::EpollCreate),
        Step(1, 0, Op::EpollCtl(2, Ctl::Add, 1, libc::EPOLLIN as u32)),
        Step(1, 0, Op::EpollCtl(2, Ctl::Add, 0, libc::EPOLLIN as u32)),
    ]);
    steps
}

/// All programs.
pub(crate) fn drafts() -> impl Strategy<Value = Draft> {
    prop_oneof![2 => drafts_of(Mode::Four), 1 => drafts_of(Mode::Six), 1 => drafts_of(Mode::Both)]
}

fn drafts_of(mode: Mode) -> impl Strategy<Value = Draft> {
    let connections = [connection(mode), connection(mode), connection(mode), watched(mode), watched(mode)];
    let openings = [Vec::new(), listener(mode), own_connection(mode), datagrams(mode)].into_iter().chain(connections);
    let openings: Vec<Vec<Step>> = openings.collect();
    (select(openings), vec(wishes(mode), 1..CALLS_MAX)).prop_map(|(opening, wishes)| Draft { opening, wishes })
}

fn wishes(mode: Mode) -> impl Strategy<Value = Wish> {
    let six = match mode {
        Mode::Four => 0.0,
        Mode::Six => 0.9,
        Mode::Both => 0.4,
    };
    let all = (verbs(mode), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), prop::bool::weighted(0.08), prop::bool::weighted(six));
    all.prop_map(|(verb, process, worker, pick, other, blind, six)| Wish { verb, process, worker, pick, other, blind, six })
}

fn verbs(mode: Mode) -> impl Strategy<Value = Verb> {
    prop_oneof![
        14 => life(mode),
        26 => data(),
        7 => descriptors(mode),
        9 => waits(),
        3 => ends(),
    ]
}

/// Sockets come and go.
fn life(mode: Mode) -> impl Strategy<Value = Verb> {
    let kind = select(match mode {
        Mode::Four => vec![Kind::Tcp, Kind::Tcp, Kind::Tcp, Kind::Udp, Kind::Udp, Kind::Tcp6, Kind::Udp6],
        Mode::Six => vec![Kind::Tcp6, Kind::Tcp6, Kind::Tcp6, Kind::Udp6, Kind::Udp6, Kind::Tcp, Kind::Udp],
        Mode::Both => vec![Kind::Tcp6, Kind::Tcp6, Kind::Tcp, Kind::Tcp, Kind::Udp6, Kind::Udp],
    });
    let port = || select(PORTS.to_vec());
    let (anywhere, other) = match mode {
        Mode::Four => (Place::Any, 5001),
        Mode::Six => (Place::Any6, 5002),
        Mode::Both => (Place::Any, 5003),
    };
    // (Some of the other family.)
    type At = fn(u16) -> Place;
    let (own, strange): (At, At) = match mode {
        Mode::Four => (Place::At, Place::At),
        Mode::Six => (Place::At6, Place::At),
        Mode::Both => (Place::WildAt, Place::At6),
    };
    let place = prop_oneof![
        8 => port().prop_map(own),
        2 => port().prop_map(strange),
        4 => Just(anywhere),
        1 => Just(Place::WildAt(other)),
        2 => Just(Place::Wild),
    ];
    let target = match mode {
        Mode::Four => vec![Target::Port, Target::Port, Target::Port, Target::Port6],
        Mode::Six => vec![Target::Port6, Target::Port6, Target::Port6, Target::Port],
        Mode::Both => vec![Target::Port, Target::Port6],
    };
    let accept = select(vec![AcceptBy::Accept, AcceptBy::Accept4, AcceptBy::NonBlocking]);
    prop_oneof![
        5 => (kind, any::<bool>()).prop_map(|(kind, nonblocking)| Verb::Socket(kind, nonblocking)),
        3 => place.prop_map(Verb::Bind),
        3 => select(vec![1, 2, 8, 8]).prop_map(Verb::Listen),
        1 => (select(target as Vec<fn(u16) -> Target>), port()).prop_map(|(target, port)| Verb::ConnectPort(target(port))),
        6 => Just(Verb::Connect),
        1 => Just(Verb::Disconnect),
        6 => accept.prop_map(Verb::Accept),
        3 => Just(Verb::Close),
    ]
}

fn data() -> impl Strategy<Value = Verb> {
    let length = || prop_oneof![6 => 1..200_usize, 2 => 200..4000_usize, 1 => Just(0_usize)];
    let send_by = || select(vec![SendBy::Write, SendBy::Send, SendBy::SendTo, SendBy::Writev, SendBy::SendMsg, SendBy::SendMmsg]);
    let send_to_by = select(vec![SendBy::SendTo, SendBy::SendMsg, SendBy::SendMmsg]);
    let recv_by = select(vec![RecvBy::Read, RecvBy::Recv, RecvBy::RecvFrom, RecvBy::Readv, RecvBy::RecvMsg, RecvBy::RecvMmsg]);
    let rarely = || prop::bool::weighted(0.1);
    let send_flags = (rarely(), rarely(), any::<bool>()).prop_map(|(dontwait, more, nosignal)| SendFlags { dontwait, more, nosignal });
    let recv_flags = (any::<bool>(), prop::bool::weighted(0.2), rarely(), rarely())
        .prop_map(|(dontwait, peek, waitall, trunc)| RecvFlags { dontwait, peek, waitall, trunc });
    prop_oneof![
        10 => (send_by(), length(), send_flags).prop_map(|(by, length, flags)| Verb::Send(by, length, flags)),
        3 => (send_to_by, length()).prop_map(|(by, length)| Verb::SendTo(by, length)),
        10 => (recv_by, length(), recv_flags).prop_map(|(by, length, flags)| Verb::Recv(by, length, flags)),
        3 => select(vec![How::Read, How::Write, How::Write, How::Both]).prop_map(Verb::Shutdown),
        1 => (1..600_000_usize).prop_map(Verb::Transfer),
    ]
}

/// What is done to descriptors and options.
fn descriptors(mode: Mode) -> impl Strategy<Value = Verb> {
    let family = if mode == Mode::Four { 1 } else { 3 };
    let setting = prop_oneof![
        family => any::<bool>().prop_map(Setting::V6Only),
        2 => any::<bool>().prop_map(Setting::NoDelay),
        2 => any::<bool>().prop_map(Setting::Cork),
        2 => any::<bool>().prop_map(Setting::LingerZero),
        2 => any::<bool>().prop_map(Setting::ReuseAddress),
        2 => any::<bool>().prop_map(Setting::ReusePort),
        2 => any::<bool>().prop_map(Setting::KeepAlive),
        2 => select(vec![0, 12]).prop_map(Setting::RecvTimeout),
    ];
    let question = select(vec![
        Question::Error,
        Question::Error,
        Question::Type,
        Question::AcceptConn,
        Question::Domain,
        Question::Protocol,
        Question::ReuseAddress,
        Question::KeepAlive,
        Question::NoDelay,
        Question::Linger,
        Question::RecvTimeout,
        Question::V6Only,
    ]);
    prop_oneof![
        3 => (0..5_u8, 3..60_i32).prop_map(|(by, first)| Verb::Dup(by, first)),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(on, ioctl)| Verb::NonBlock(on, ioctl)),
        3 => setting.prop_map(Verb::Set),
        3 => question.prop_map(Verb::Ask),
    ]
}

fn waits() -> impl Strategy<Value = Verb> {
    let wait = || select(vec![Wait::No, Wait::No, Wait::Short, Wait::Forever]);
    let by = select(vec![PollBy::Poll, PollBy::Ppoll, PollBy::Select, PollBy::Pselect]);
    let events = || select(vec![libc::POLLIN, libc::POLLOUT, libc::POLLIN | libc::POLLOUT, libc::POLLIN | libc::POLLPRI, libc::POLLRDHUP]);
    let all = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP) as u32;
    let watched = select(vec![libc::EPOLLIN as u32, libc::EPOLLOUT as u32, all, all]);
    let mode = select(vec![0, 0, 0, libc::EPOLLET as u32, libc::EPOLLONESHOT as u32]);
    prop_oneof![
        4 => (by, [events(), events(), events()], wait()).prop_map(|(by, events, wait)| Verb::Poll(by, events, wait)),
        1 => Just(Verb::EpollCreate),
        5 => (select(vec![Ctl::Add, Ctl::Add, Ctl::Mod, Ctl::Del]), watched, mode)
            .prop_map(|(what, events, mode)| Verb::EpollCtl(what, events | mode)),
        5 => (0..3_u8, select(vec![1, 2, 16]), wait()).prop_map(|(by, most, wait)| Verb::EpollWait(by, most, wait)),
    ]
}

fn ends() -> impl Strategy<Value = Verb> {
    prop_oneof![
        6 => any::<bool>().prop_map(Verb::Interrupt),
        6 => Just(Verb::Fork),
        1 => Just(Verb::Kill),
        1 => Just(Verb::Exit),
    ]
}
