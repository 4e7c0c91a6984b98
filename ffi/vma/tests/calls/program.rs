//! Programs: lists of socket calls, by threads of processes. What `Debug` prints of one is Rust again: a case for `cases.rs`.

/// Processes that a program may have at once; it begins with [`FIRST_PROCESSES`].
pub(crate) const PROCESSES: u8 = 3;
/// Processes that a program begins with.
pub(crate) const FIRST_PROCESSES: u8 = 2;
/// Threads of a process that make calls. (One more looks at the sockets.)
pub(crate) const WORKERS: u8 = 2;
/// Descriptors that a process may have.
pub(crate) const SLOTS: u8 = 10;

/// Thread `.1` of process `.0` does `.2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step(pub(crate) u8, pub(crate) u8, pub(crate) Op);

/// One call. A number of type `u8` that comes first is a descriptor of the process that calls: the so-and-so-manieth of its slots. Where
/// the outcome takes a slot it is the first free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// socket; `true`: SOCK_NONBLOCK.
    Socket(Kind, bool),
    Bind(u8, Place),
    Listen(u8, i32),
    Connect(u8, Target),
    Accept(u8, AcceptBy),
    /// So many bytes.
    Send(u8, SendBy, usize, SendFlags),
    SendTo(u8, SendBy, usize, Target),
    /// A buffer of so many bytes.
    Recv(u8, RecvBy, usize, RecvFlags),
    Shutdown(u8, How),
    Close(u8),
    Dup(u8, DupBy),
    /// O_NONBLOCK, by fcntl or (`true`) FIONBIO.
    NonBlock(u8, bool, bool),
    Set(u8, Setting),
    Ask(u8, Question),
    Poll(PollBy, Vec<(u8, i16)>, Wait),
    EpollCreate,
    /// epoll_ctl: on which epoll instance, what, which descriptor, which events.
    EpollCtl(u8, Ctl, u8, u32),
    /// epoll_wait: on which instance, by which of the calls, for how many events.
    EpollWait(u8, u8, usize, Wait),
    /// A signal to a thread of the process; `true`: its handler was installed with SA_RESTART.
    Interrupt(u8, bool),
    /// A blocking send of so many bytes, and at the same time a receive of as many by another process, thread, descriptor.
    Transfer(u8, u8, u8, u8, usize),
    /// The process forks.
    Fork,
    /// SIGKILL.
    Kill,
    /// exit(3).
    Exit,
}

impl Step {
    /// The same by IPv6.
    pub(crate) fn by_ipv6(&self) -> Self {
        let target = |target| match target {
            Target::Port(port) => Target::Port6(port),
            Target::Of(process, slot) => Target::Of6(process, slot),
            other => other,
        };
        let op = match self.2.clone() {
            Op::Socket(kind, nonblocking) => Op::Socket(if kind.is_tcp() { Kind::Tcp6 } else { Kind::Udp6 }, nonblocking),
            Op::Bind(slot, Place::At(port)) => Op::Bind(slot, Place::At6(port)),
            Op::Bind(slot, Place::Any) => Op::Bind(slot, Place::Any6),
            Op::Connect(slot, to) => Op::Connect(slot, target(to)),
            Op::SendTo(slot, by, length, to) => Op::SendTo(slot, by, length, target(to)),
            other => other,
        };
        Self(self.0, self.1, op)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
    /// A socket of IPv6, which may have an address of IPv4 all the same.
    Tcp6,
    Udp6,
}

impl Kind {
    pub(crate) fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Tcp6)
    }

    pub(crate) fn family(self) -> i32 {
        match self {
            Self::Tcp | Self::Udp => libc::AF_INET,
            Self::Tcp6 | Self::Udp6 => libc::AF_INET6,
        }
    }
}

/// Where to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The program's address of IPv4, a port of its choice.
    At(u16),
    /// The same address, any port.
    Any,
    /// IPv6's loopback, a port of its choice.
    At6(u16),
    /// IPv6's loopback, any port.
    Any6,
    /// Every address, any port.
    Wild,
    /// Every address, a port of its choice.
    WildAt(u16),
}

/// Whom to connect or send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The program's address of IPv4 and a port, whoever has it.
    Port(u16),
    /// IPv6's loopback and a port, whoever has it.
    Port6(u16),
    /// The address that a process's descriptor has by then; of one that has every address, IPv4's.
    Of(u8, u8),
    /// The same; of one that has every address, IPv6's.
    Of6(u8, u8),
    /// AF_UNSPEC.
    Nobody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptBy {
    Accept,
    Accept4,
    /// accept4 with SOCK_NONBLOCK.
    NonBlocking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendBy {
    Write,
    Send,
    SendTo,
    Writev,
    SendMsg,
    SendMmsg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvBy {
    Read,
    Recv,
    RecvFrom,
    Readv,
    RecvMsg,
    RecvMmsg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendFlags {
    pub(crate) dontwait: bool,
    pub(crate) more: bool,
    pub(crate) nosignal: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecvFlags {
    pub(crate) dontwait: bool,
    pub(crate) peek: bool,
    pub(crate) waitall: bool,
    pub(crate) trunc: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    Write,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DupBy {
    Dup,
    /// dup2 onto another of the process's descriptors.
    Onto(u8),
    /// dup3, with O_CLOEXEC.
    Exactly(u8),
    /// F_DUPFD.
    From(i32),
    /// F_DUPFD_CLOEXEC.
    FromCloexec(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    NoDelay(bool),
    Cork(bool),
    LingerZero(bool),
    ReuseAddress(bool),
    ReusePort(bool),
    KeepAlive(bool),
    /// SO_RCVTIMEO, in milliseconds; zero: none.
    RecvTimeout(i64),
    V6Only(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Error,
    Type,
    AcceptConn,
    Domain,
    Protocol,
    ReuseAddress,
    KeepAlive,
    NoDelay,
    Linger,
    RecvTimeout,
    V6Only,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollBy {
    Poll,
    Ppoll,
    Select,
    Pselect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ctl {
    Add,
    Mod,
    Del,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    /// A few milliseconds.
    Short,
    Forever,
}

impl Wait {
    pub(crate) fn ms(self) -> i64 {
        match self {
            Self::No => 0,
            Self::Short => 4,
            Self::Forever => -1,
        }
    }
}

/// What a descriptor is, as far as the calls that worked tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A TCP socket that nothing was done with.
    Fresh,
    /// It was told to connect, or was accepted.
    Stream,
    Listener,
    Datagram,
    Epoll,
}

/// What stands behind descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    pub(crate) role: Role,
    pub(crate) kind: Kind,
    /// SO_RCVTIMEO was set: a receive call ends by itself.
    pub(crate) timed: bool,
}

/// A descriptor: its number, and the place of what it stands for in [`State::descriptions`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) fd: i32,
    pub(crate) description: usize,
}

/// What there is at a step, the same in both worlds.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// `None`: no such process.
    pub(crate) processes: [Option<[Option<Entry>; SLOTS as usize]>; PROCESSES as usize],
    pub(crate) descriptions: Vec<Description>,
    /// Threads in the middle of a call.
    pub(crate) busy: Vec<(u8, u8)>,
}

impl State {
    pub(crate) fn new() -> Self {
        let mut state = Self::default();
        for process in 0..FIRST_PROCESSES {
            state.processes[usize::from(process)] = Some([None; SLOTS as usize]);
        }
        state
    }

    pub(crate) fn alive(&self, process: u8) -> bool {
        self.processes.get(usize::from(process)).is_some_and(Option::is_some)
    }

    pub(crate) fn entry(&self, process: u8, slot: u8) -> Option<Entry> {
        *self.processes.get(usize::from(process))?.as_ref()?.get(usize::from(slot))?
    }

    pub(crate) fn description(&self, process: u8, slot: u8) -> Option<Description> {
        self.entry(process, slot).map(|entry| self.descriptions[entry.description])
    }

    pub(crate) fn role(&self, process: u8, slot: u8) -> Option<Role> {
        self.description(process, slot).map(|description| description.role)
    }

    pub(crate) fn free(&self, process: u8) -> Option<u8> {
        (0..SLOTS).find(|&slot| self.alive(process) && self.entry(process, slot).is_none())
    }

    /// All descriptors of a process, with their roles.
    pub(crate) fn open(&self, process: u8) -> impl Iterator<Item = (u8, Role)> + '_ {
        (0..SLOTS).filter_map(move |slot| Some((slot, self.role(process, slot)?)))
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = u8> + '_ {
        (0..PROCESSES).filter(|&process| self.alive(process))
    }
}

/// Where the next call comes from, given what there is by then: a fixed list, or wishes that pick among it.
pub(crate) trait Source {
    /// The next call; `None`: the program is over.
    fn next(&mut self, state: &State) -> Option<Step>;
}

impl<I: Iterator<Item = Step>> Source for I {
    fn next(&mut self, _: &State) -> Option<Step> {
        Iterator::next(self)
    }
}
