//! Both worlds take the same step, come to rest, and are compared.

use core::fmt;
use std::collections::BTreeMap;

use super::program::{Op, Role, Source, Target};
use super::sockets::{Address, EPHEMERAL, Errno, Flags, Host, How, Kind, Revents, SLOTS, Slot, Sockets};

/// How long the worlds may take to agree, in milliseconds of each one's time, step by step. It covers a delayed acknowledgment
/// (40 ms) and a cork's patience (200 ms).
const PATIENCE_MS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// What [`Op::Fill`] writes at once, and the most in all, in bytes.
const FILL_CHUNK: usize = 64 << 10;
const FILL_MAX: usize = 64 << 20;
/// Rounds without a byte after which [`Op::Fill`] takes a stream for full, of one millisecond, two, and so on: more than a delayed
/// acknowledgment takes.
const FULL_ROUNDS: u64 = 12;
/// The same for bytes that don't come: more than a cork's patience.
const EMPTY_ROUNDS: u64 = 24;

/// A port by its meaning: the same in both worlds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The program named it.
    Fixed(u16),
    /// The system chose it: the so-and-so-manieth that was seen.
    Chosen(usize),
}

/// An address by its meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name(pub Host, pub Port);

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Port::Fixed(port) => write!(f, "{:?}:{port}", self.0),
            Port::Chosen(number) => write!(f, "{:?}:#{number}", self.0),
        }
    }
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its return value, or errno; and an address that it gave.
    Returned(Result<i64, Errno>, Option<Name>),
    /// A receive call's bytes, and whose they are.
    Received(usize, Bytes, Option<Name>),
    /// What became of [`Op::Fill`].
    Filled(Filled),
}

/// Received bytes, shown by length and beginning.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())?;
        if !self.0.is_empty() {
            write!(f, " {:02x?}", &self.0[..self.0.len().min(4)])?;
        }
        Ok(())
    }
}

/// What [`Op::Fill`] saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// What ended the writing.
    pub stopped_by: Result<(), Errno>,
    /// poll at the writer (but for what it may read: its peer may be corked just now) and at the reader, when nothing more went in.
    pub at_full: (Revents, Revents),
    /// Everything that was written was read, in order.
    pub whole: bool,
    /// poll at both when everything was read.
    pub at_empty: (Revents, Revents),
}

/// A socket as seen from outside at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// poll.
    pub revents: Revents,
    /// getsockname.
    pub local: Option<Name>,
    /// getpeername.
    pub peer: Result<Name, Errno>,
    /// FIONREAD.
    pub unread: Result<u64, Errno>,
}

/// Everything that was seen of a step in one world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What the call came to.
    pub outcome: Outcome,
    /// All sockets afterwards.
    pub views: [Option<View>; SLOTS],
}

/// Where the worlds differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// What the call came to.
    Outcome,
    /// poll of that socket.
    Revents(Slot),
    /// getsockname of that socket.
    Local(Slot),
    /// getpeername of that socket.
    Peer(Slot),
    /// FIONREAD of that socket.
    Unread(Slot),
}

/// One call, and what both worlds made of it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The call.
    pub op: Op,
    /// What the sockets were used for before it.
    pub roles: [Option<Role>; SLOTS],
    /// The simulated world.
    pub sim: Seen,
    /// Linux.
    pub kernel: Seen,
}

/// A difference between the worlds, with what led to it.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// The steps so far; the last one shows the difference.
    pub steps: &'a [Step],
    /// Where.
    pub at: Where,
}

impl<'a> Difference<'a> {
    /// The step that shows it.
    pub fn step(&self) -> &'a Step {
        self.steps.last().expect("a difference has a step")
    }
}

/// What a judge says of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is a bug of one side.
    Bug,
    /// It is listed. The worlds are no longer alike, and nothing after it is compared.
    Known,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// All steps.
    pub steps: Vec<Step>,
    /// The first difference that no judge knew.
    pub bug: Option<Where>,
}

/// Runs a program on both worlds. `slow`: they rest for so many milliseconds after each call, whether or not they agree.
pub fn run(
    sim: &mut dyn Sockets,
    kernel: &mut dyn Sockets,
    source: &mut dyn Source,
    slow: u64,
    judge: &mut dyn FnMut(Difference<'_>) -> Verdict,
) -> Run {
    let mut worlds = Worlds { sim: World::new(sim), kernel: World::new(kernel), roles: [None; SLOTS] };
    let mut run = Run { steps: Vec::new(), bug: None };
    while let Some(op) = source.next(&worlds.roles) {
        let Some(step) = worlds.step(op, run.steps.len(), slow, &mut |step, at| {
            // A difference is shown with all that led to it.
            let mut steps = run.steps.clone();
            steps.push(step.clone());
            judge(Difference { steps: &steps, at })
        }) else {
            continue;
        };
        let (step, ending) = step;
        run.steps.push(step);
        match ending {
            Ending::Agreed => {}
            Ending::Over => break,
            Ending::Bug(at) => {
                run.bug = Some(at);
                break;
            }
        }
    }
    run
}

enum Ending {
    Agreed,
    Over,
    Bug(Where),
}

struct Worlds<'a> {
    sim: World<'a>,
    kernel: World<'a>,
    roles: [Option<Role>; SLOTS],
}

impl Worlds<'_> {
    /// `None`: there is nothing to call.
    fn step(&mut self, op: Op, number: usize, slow: u64, judge: &mut dyn FnMut(&Step, Where) -> Verdict) -> Option<(Step, Ending)> {
        let plan = self.plan(op)?;
        let roles = self.roles;
        let [sim, kernel] = [&mut self.sim, &mut self.kernel].map(|world| world.act(op, &plan, number));
        self.note(op, &plan, &sim, &kernel);
        self.sim.sockets.pass(1);
        if slow > 0 {
            self.sim.sockets.pass(slow);
            self.kernel.sockets.pass(slow);
        }
        let mut patience = PATIENCE_MS.iter();
        loop {
            let [sim_views, kernel_views] = [&mut self.sim, &mut self.kernel].map(|world| world.views(&self.roles));
            let sim = Seen { outcome: self.sim.outcome(&sim), views: sim_views };
            let kernel = Seen { outcome: self.kernel.outcome(&kernel), views: kernel_views };
            let step = Step { op, roles, sim, kernel };
            // The first difference decides: if it is listed, the worlds have parted, and the others may follow from it.
            let ending = match differences(&step).first() {
                None => Ending::Agreed,
                Some(&at) if judge(&step, at) == Verdict::Known => Ending::Over,
                Some(&at) => Ending::Bug(at),
            };
            match (&ending, patience.next()) {
                // What a call returned doesn't change any more.
                (Ending::Bug(at), Some(&ms)) if *at != Where::Outcome => {
                    self.sim.sockets.pass(ms);
                    self.kernel.sockets.pass(ms);
                }
                _ => return Some((step, ending)),
            }
        }
    }

    /// What a call needs to know in advance; `None`: it makes no sense now.
    fn plan(&self, op: Op) -> Option<Plan> {
        let mut plan = Plan::default();
        if let Some(slot) = op.slot() {
            self.roles[slot.index()]?;
        }
        match op {
            Op::Socket(host, _) => plan.free = Some(self.free(host)?),
            Op::Accept(slot) => plan.free = Some(self.free(slot.host())?),
            Op::Connect(slot, Target::Of(to)) | Op::SendTo(slot, _, Target::Of(to)) => {
                // A simulated NIC has no way from itself to itself.
                (to.host() != slot.host()).then_some(())?;
                self.roles[to.index()]?;
                self.sim.sockets.local(to)?;
                self.kernel.sockets.local(to)?;
            }
            Op::Fill(slot) => {
                let other = self.other_end(slot)?;
                // A reader that called SHUT_RD and reads on: Linux no longer says that there is room again (tcp_cleanup_rbuf), and
                // the writer finds out by probes, ever more seldom. Neither world comes to rest alike then.
                (self.kernel.sockets.revents(other).0 & Revents::RDHUP == 0).then_some(())?;
                plan.other = Some(other);
            }
            _ => {}
        }
        let streams_only = matches!(op, Op::SendTo(..));
        (!streams_only || op.slot().is_some_and(|slot| self.roles[slot.index()] == Some(Role::Datagram))).then_some(plan)
    }

    fn free(&self, host: Host) -> Option<Slot> {
        Slot::all().find(|slot| slot.host() == host && self.roles[slot.index()].is_none())
    }

    /// The socket that a stream leads to, in both worlds.
    fn other_end(&self, slot: Slot) -> Option<Slot> {
        let [a, b] = [&self.sim, &self.kernel].map(|world| {
            let (local, peer) = (world.sockets.local(slot)?, world.sockets.peer(slot).ok()?);
            let leads_here = |other: Slot| {
                self.roles[other.index()] == Some(Role::Stream)
                    && world.sockets.local(other) == Some(peer)
                    && world.sockets.peer(other) == Ok(local)
            };
            Slot::all().find(|&other| leads_here(other))
        });
        a.filter(|_| a == b && self.roles[slot.index()] == Some(Role::Stream))
    }

    /// What sockets are for now. If the worlds disagree, their outcomes differ, and that ends the program.
    fn note(&mut self, op: Op, plan: &Plan, sim: &Raw, kernel: &Raw) {
        let worked = ![sim, kernel].iter().any(|raw| matches!(raw, Raw::Returned(Err(_), _)));
        let goes_on = [Errno::IN_PROGRESS, Errno::ALREADY, Errno::IS_CONNECTED, Errno::INVALID];
        let streams = op.slot().is_some_and(|slot| self.roles[slot.index()] == Some(Role::Stream));
        let failed = |raw: &Raw| streams && matches!(raw, Raw::Returned(Err(error), _) if !goes_on.contains(error));
        let change = match op {
            Op::Socket(_, Kind::Tcp) => Some((plan.free(), Some(Role::Fresh))),
            Op::Socket(_, Kind::Udp) => Some((plan.free(), Some(Role::Datagram))),
            Op::Accept(_) if worked => Some((plan.free(), Some(Role::Stream))),
            Op::Listen(slot, _) if worked => Some((slot, Some(Role::Listener))),
            Op::Connect(slot, _) if matches!(sim, Raw::Returned(Err(Errno::IN_PROGRESS), _)) => Some((slot, Some(Role::Stream))),
            Op::Close(slot) => Some((slot, None)),
            // A failed attempt was told, and the socket is as new.
            Op::Connect(slot, _) if failed(sim) && failed(kernel) => Some((slot, Some(Role::Fresh))),
            // A listener listens no more (inet_shutdown).
            Op::Shutdown(slot, How::Read | How::Both) if self.roles[slot.index()] == Some(Role::Listener) => {
                Some((slot, Some(Role::Fresh)))
            }
            Op::Disconnect(slot) if self.roles[slot.index()] != Some(Role::Datagram) => Some((slot, Some(Role::Fresh))),
            _ => None,
        };
        if let Some((slot, role)) = change {
            self.roles[slot.index()] = role;
        }
    }
}

#[derive(Default)]
struct Plan {
    free: Option<Slot>,
    other: Option<Slot>,
}

impl Plan {
    fn free(&self) -> Slot {
        self.free.expect("planned for")
    }
}

/// An outcome with the world's own addresses.
enum Raw {
    Returned(Result<i64, Errno>, Option<Address>),
    Received(usize, Vec<u8>, Option<Address>),
    Filled(Filled),
}

struct World<'a> {
    sockets: &'a mut dyn Sockets,
    names: BTreeMap<Address, usize>,
}

impl<'a> World<'a> {
    fn new(sockets: &'a mut dyn Sockets) -> Self {
        Self { sockets, names: BTreeMap::new() }
    }

    fn act(&mut self, op: Op, plan: &Plan, number: usize) -> Raw {
        let unit = |result: Result<(), Errno>| Raw::Returned(result.map(|()| 0), None);
        let count = |result: Result<usize, Errno>| Raw::Returned(result.map(|n| n as i64), None);
        match op {
            Op::Socket(_, kind) => unit(self.sockets.socket(plan.free(), kind)),
            Op::Bind(slot, port) => unit(self.sockets.bind(slot, port)),
            Op::Listen(slot, backlog) => unit(self.sockets.listen(slot, backlog)),
            Op::Connect(slot, to) => {
                let to = self.resolve(slot, to);
                unit(self.sockets.connect(slot, to))
            }
            Op::Disconnect(slot) => unit(self.sockets.disconnect(slot)),
            Op::Accept(slot) => {
                let accepted = self.sockets.accept(slot, plan.free());
                Raw::Returned(accepted.map(|_| 0), accepted.ok())
            }
            Op::Send(slot, len, more) => count(self.sockets.send(slot, &payload(number, len), more)),
            Op::SendTo(slot, len, to) => {
                let to = self.resolve(slot, to);
                count(self.sockets.send_to(slot, &payload(number, len), to))
            }
            Op::Recv(slot, len, flags) => match self.sockets.recv(slot, len, flags) {
                Ok(received) => Raw::Received(received.count, received.bytes, received.from),
                Err(error) => Raw::Returned(Err(error), None),
            },
            Op::Shutdown(slot, how) => unit(self.sockets.shutdown(slot, how)),
            Op::Close(slot) => {
                self.sockets.close(slot);
                unit(Ok(()))
            }
            Op::Set(slot, setting) => unit(self.sockets.set(slot, setting)),
            Op::TakeError(slot) => Raw::Returned(Err(self.sockets.take_error(slot)), None),
            Op::Fill(slot) => Raw::Filled(self.fill(slot, plan.other.expect("planned for"), number)),
        }
    }

    fn resolve(&self, slot: Slot, to: Target) -> Address {
        let host = if slot.host() == Host::A { Host::B } else { Host::A };
        match to {
            Target::Port(port) => Address { host, port },
            Target::Of(to) => self.sockets.local(to).expect("planned for"),
        }
    }

    fn fill(&mut self, writer: Slot, reader: Slot, number: usize) -> Filled {
        let mut written = Vec::new();
        let mut refused = 0;
        let stopped_by = loop {
            let chunk = payload(number + written.len(), FILL_CHUNK);
            match self.sockets.send(writer, &chunk, false) {
                Ok(count) => {
                    written.extend_from_slice(&chunk[..count]);
                    refused = 0;
                }
                Err(Errno::AGAIN) if refused < FULL_ROUNDS => {
                    refused += 1;
                    self.sockets.pass(refused);
                }
                Err(error) => break Err(error),
            }
            if written.len() > FILL_MAX {
                break Ok(());
            }
        };
        let at_full = self.revents_of(writer, reader);
        let read = self.drain(reader, &written);
        let at_empty = self.revents_of(writer, reader);
        Filled { stopped_by, at_full, whole: read.ends_with(&written), at_empty }
    }

    fn revents_of(&self, writer: Slot, reader: Slot) -> (Revents, Revents) {
        (Revents(self.sockets.revents(writer).0 & !Revents::IN), self.sockets.revents(reader))
    }

    /// Reads until `expected` has come, after whatever came before it.
    fn drain(&mut self, reader: Slot, expected: &[u8]) -> Vec<u8> {
        let mut read = Vec::new();
        let mut empty = 0;
        while empty < EMPTY_ROUNDS && (expected.is_empty() || !read.ends_with(expected)) {
            match self.sockets.recv(reader, 1 << 20, Flags::default()) {
                Ok(received) if received.count > 0 => {
                    read.extend_from_slice(&received.bytes);
                    empty = 0;
                    self.sockets.pass(0);
                }
                // After SHUT_RD an empty queue reads as an end, and yet more may come.
                Ok(_) | Err(Errno::AGAIN) => {
                    empty += 1;
                    self.sockets.pass(empty);
                }
                Err(_) => break,
            }
        }
        read
    }

    fn views(&mut self, roles: &[Option<Role>; SLOTS]) -> [Option<View>; SLOTS] {
        let mut views = [const { None }; SLOTS];
        for slot in Slot::all().filter(|slot| roles[slot.index()].is_some()) {
            let (local, peer) = (self.sockets.local(slot), self.sockets.peer(slot));
            views[slot.index()] = Some(View {
                revents: self.sockets.revents(slot),
                local: local.map(|address| self.name(address)),
                peer: peer.map(|address| self.name(address)),
                unread: self.sockets.unread(slot),
            });
        }
        views
    }

    fn outcome(&mut self, raw: &Raw) -> Outcome {
        match raw {
            Raw::Returned(result, address) => Outcome::Returned(*result, address.map(|address| self.name(address))),
            Raw::Received(count, bytes, from) => Outcome::Received(*count, Bytes(bytes.clone()), from.map(|address| self.name(address))),
            Raw::Filled(filled) => Outcome::Filled(filled.clone()),
        }
    }

    fn name(&mut self, address: Address) -> Name {
        let port = if address.port < EPHEMERAL {
            Port::Fixed(address.port)
        } else {
            let next = self.names.len();
            Port::Chosen(*self.names.entry(address).or_insert(next))
        };
        Name(address.host, port)
    }
}

/// The bytes of a program's call: any two calls' differ.
fn payload(number: usize, len: usize) -> Vec<u8> {
    let start = (number as u32).wrapping_mul(0x9e37_79b9);
    (0..len as u32).map(|i| (start.wrapping_add(i).wrapping_mul(0x85eb_ca6b) >> 24) as u8).collect()
}

fn differences(step: &Step) -> Vec<Where> {
    let mut found = Vec::new();
    if step.sim.outcome != step.kernel.outcome {
        found.push(Where::Outcome);
    }
    for slot in Slot::all() {
        let (Some(sim), Some(kernel)) = (&step.sim.views[slot.index()], &step.kernel.views[slot.index()]) else { continue };
        let each = [
            (sim.revents != kernel.revents, Where::Revents(slot)),
            (sim.local != kernel.local, Where::Local(slot)),
            (sim.peer != kernel.peer, Where::Peer(slot)),
            (sim.unread != kernel.unread, Where::Unread(slot)),
        ];
        found.extend(each.into_iter().filter(|(differs, _)| *differs).map(|(_, at)| at));
    }
    found
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<44} {:<52} | Linux", "", "Ringway")?;
        for (number, step) in self.steps.iter().enumerate() {
            let (sim, kernel) = (format!("{:?}", step.sim.outcome), format!("{:?}", step.kernel.outcome));
            let mark = if sim == kernel { ' ' } else { '!' };
            writeln!(f, "{number:>2} {:<41} {sim:<52} |{mark}{kernel}", format!("{:?}", step.op))?;
        }
        let Some(last) = self.steps.last() else { return Ok(()) };
        for slot in Slot::all() {
            let (Some(sim), Some(kernel)) = (&last.sim.views[slot.index()], &last.kernel.views[slot.index()]) else { continue };
            let mark = if sim == kernel { ' ' } else { '!' };
            writeln!(f, "{:<44} {:<52} |{mark}{kernel}", format!("   then {slot:?}"), sim.to_string())?;
        }
        if let Some(at) = self.bug {
            writeln!(f, "they differ in: {at:?}")?;
        }
        Ok(())
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { revents, local, peer, unread } = self;
        write!(f, "{revents:?} ")?;
        match local {
            Some(local) => write!(f, "{local:?}")?,
            None => f.write_str("unbound")?,
        }
        match peer {
            Ok(peer) => write!(f, "->{peer:?}")?,
            Err(error) => write!(f, "->{error:?}")?,
        }
        match unread {
            Ok(count) => write!(f, " {count} unread"),
            Err(error) => write!(f, " unread {error:?}"),
        }
    }
}

#[cfg(test)]
mod tests;
