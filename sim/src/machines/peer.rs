//! The program of a machine: it opens connections to the other one and accepts its, sends datagrams to it and reads its, as the laws watch.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use ringway_stack::device::Protocol;
use ringway_stack::mutants::Mutant;
use ringway_stack::net::Tables;
use ringway_stack::ring::{Datagram, FlowId, Readiness, RecvFlags};
use ringway_stack::socket::{Allocation, Caller, Choice, Env, Kernel, Logic, Setup, Socket, SocketId, Spread, State};
use ringway_stack::{Error, Instant, tcp};

use super::beside::Beside;
use super::end::End;
use super::laws::{Taken, Waiting};
use super::network::{Detour, Links};
use super::turns::Turns;
use super::{Plan, Told, breach};
use crate::host::Step;
use crate::machine::{MachineApp, MachineContext, Ports};
use crate::random::{SplitMix, scale};

const PORT: u16 = 80;
const DATAGRAM_PORT: u16 = 53;
/// The port that one of a machine's rings has already.
const TAKEN_PORT: u16 = 99;
/// Between two looks, while something happens, and at most.
const TICK: Duration = Duration::from_micros(200);
const TICK_MAX: Duration = Duration::from_millis(50);
/// How long datagrams may be under way.
const UNDER_WAY: Duration = Duration::from_millis(10);
const CONNECTIONS: u64 = 5;
const DATAGRAMS: u64 = 60;

/// Which ring sent each of a machine's datagrams.
pub(super) type Senders = Rc<RefCell<[Vec<u16>; 2]>>;

/// What both machines know: how far they are, what came of one of them, and who sent what.
pub(super) type Shared<'a> = (&'a Rc<Cell<[u32; 2]>>, &'a Rc<Cell<Told>>, &'a Senders);

/// A listener or datagram socket, with what is known to wait there.
#[derive(Debug)]
struct Door {
    socket: Socket,
    kernel: Option<Beside>,
    waiting: Waiting,
}

/// See the module's documentation.
pub(super) struct Peer {
    plan: Plan,
    links: Links,
    dice: SplitMix,
    tables: Tables,
    detour: Option<Detour>,
    detour_at: Instant,
    choice: Choice,
    sockets: u64,
    listener: Option<Door>,
    datagrams: Option<Door>,
    ends: Vec<End>,
    opened: u16,
    accepted: u64,
    sent: u64,
    /// The rings that datagrams were sent by: each machine's, by their numbers.
    senders: Senders,
    heard: BTreeSet<u32>,
    turns: Turns,
    tick_at: Instant,
    tick: Duration,
    /// How many machines have opened their doors, and how many are through.
    stages: Rc<Cell<[u32; 2]>>,
    has_begun: bool,
    ready_at: Option<Instant>,
    told: Rc<Cell<Told>>,
}

impl Peer {
    pub(super) fn new(plan: Plan, links: Links, seed: u64, shared: Shared<'_>, mutant: Mutant) -> Self {
        let mut choice = Choice::default();
        choice.set_ratios(Some(plan.ratio), Some(plan.ratio));
        for number in 0..u16::from(plan.links) * plan.rings {
            choice.add(Links::id((number / plan.rings) as u8), number);
        }
        infect(&mut choice, mutant);
        let mut dice = SplitMix(seed);
        let detour_at = Instant::ZERO + Duration::from_micros(scale(dice.next(), 20_000));
        Self {
            plan,
            links,
            dice,
            tables: links.tables(None, 1),
            detour: None,
            detour_at,
            choice,
            sockets: 0,
            listener: None,
            datagrams: None,
            ends: Vec::new(),
            opened: 0,
            accepted: 0,
            sent: 0,
            senders: Rc::clone(shared.2),
            heard: BTreeSet::new(),
            turns: Turns::default(),
            tick_at: Instant::ZERO,
            tick: TICK,
            stages: Rc::clone(shared.0),
            has_begun: false,
            ready_at: None,
            told: Rc::clone(shared.1),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        scale(self.dice.next(), bound)
    }

    fn reaches(&self, stage: usize) {
        let mut stages = self.stages.get();
        stages[stage] += 1;
        self.stages.set(stages);
    }

    fn socket(&mut self, protocol: Protocol, spread: Spread, kernel: Option<&Beside>) -> Socket {
        self.sockets += 1;
        let allocation = Allocation { rx: Logic::Thread, tx: Logic::Thread, user_id: 0 };
        let config = tcp::Config { rcvbuf: Some(20_000), ..tcp::Config::default() };
        let setup = Setup { allocation, spread, tcp: config, ..Setup::new(protocol) };
        Socket::new(SocketId(self.sockets), setup, kernel.map(|kernel| Box::new(kernel.clone()) as Box<dyn Kernel>))
    }

    fn spread(&self) -> Spread {
        if self.plan.spreads { Spread::Every } else { Spread::One }
    }

    /// Opens the doors, if that can be done by now.
    fn begin(&mut self, cx: &mut MachineContext<'_>) -> bool {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let door = if protocol == Protocol::Tcp { &self.listener } else { &self.datagrams };
            if door.is_some() {
                continue;
            }
            let kernel = self.plan.has_kernel.then(Beside::default);
            let mut socket = self.socket(protocol, self.spread(), kernel.as_ref());
            let port = if protocol == Protocol::Tcp { PORT } else { DATAGRAM_PORT };
            let opened = self.env(cx, |env| {
                socket.bind(env, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))?;
                if protocol == Protocol::Tcp { socket.listen(env, 16) } else { Ok(()) }
            });
            // (Where the rings have no rule for it, the kernel has it now, or it is refused; another time, then.)
            if opened.is_err() || matches!(socket.state(), State::Kernel) {
                self.env(cx, |env| socket.close(env, true));
                return false;
            }
            let door = Some(Door { socket, kernel, waiting: Waiting::default() });
            if protocol == Protocol::Tcp {
                self.listener = door;
                self.fail_to_listen(cx);
            } else {
                self.datagrams = door;
            }
        }
        true
    }

    /// A port that one of the rings has already: nothing stays open.
    fn fail_to_listen(&mut self, cx: &mut MachineContext<'_>) {
        let last = u16::from(self.plan.links) * self.plan.rings - 1;
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), TAKEN_PORT);
        let Ok(taken) = cx.ports.ring(last).tcp_listen(any, 1, &tcp::Config::default()) else { return };
        let before = open_flows(&cx.ports);
        let mut socket = self.socket(Protocol::Tcp, Spread::Every, None);
        let result = self.env(cx, |env| socket.bind(env, any).and_then(|_| socket.listen(env, 4)));
        if result.is_ok() || open_flows(&cx.ports) != before {
            breach(format_args!("listening at a taken port: {result:?}, and {} flows are open of {before}", open_flows(&cx.ports)));
        }
        self.env(cx, |env| socket.close(env, false));
        cx.ports.ring(last).close(cx.now, taken, false);
    }

    fn env<R>(&mut self, cx: &mut MachineContext<'_>, act: impl FnOnce(&mut Env<'_>) -> R) -> R {
        let Self { tables, choice, .. } = self;
        act(&mut Env { now: cx.now, rings: &mut cx.ports, tables, choice, caller: Caller::default() })
    }

    /// Notes what has come.
    fn see(&mut self, cx: &mut MachineContext<'_>) {
        if let Some(door) = &mut self.listener {
            door.waiting.see_connections(cx.now, &mut cx.ports, door.socket.flows());
        }
        if let Some(door) = &mut self.datagrams {
            door.waiting.see_datagrams(cx.now, &mut cx.ports, door.socket.flows());
        }
    }

    /// Whether it leaves the rest where it is for now, so that more comes behind that.
    fn rests(&mut self) -> bool {
        self.ready_at.is_none() && self.below(4) == 0
    }

    /// Opens one more connection, if there is room.
    fn open(&mut self, cx: &mut MachineContext<'_>) -> bool {
        let port = 1000 * (1 + u16::from(self.links.machine)) + self.opened;
        let link = self.below(u64::from(self.links.count)) as u8;
        let to = SocketAddr::new(self.links.peer(link), PORT);
        let mut socket = self.socket(Protocol::Tcp, Spread::One, None);
        let caller = Caller { thread: self.below(self.plan.threads), core: 0 };
        let result = self.env(cx, |env| {
            env.caller = caller;
            socket.bind(env, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))?;
            socket.connect(env, to)
        });
        match result {
            Err(Error::InProgress) if matches!(socket.state(), State::Connecting(_)) => {
                self.opened += 1;
                self.ends.push(End::new(socket, port, Some(to)));
                true
            }
            Err(Error::NoBuffers) => {
                self.env(cx, |env| socket.close(env, false));
                false
            }
            result => breach(format_args!("a connection is opened: {result:?}, {socket:?}")),
        }
    }

    /// Accepts all that wait.
    fn accept(&mut self, cx: &mut MachineContext<'_>) -> bool {
        let Some(mut door) = self.listener.take() else { return false };
        let mut got_on = false;
        loop {
            check_readiness(&mut door, cx, &self.choice);
            let had = door.kernel.as_ref().map(Beside::waiting);
            door.waiting.asks(cx.now, door.kernel.as_ref());
            self.sockets += 1;
            let id = SocketId(self.sockets);
            let Ok(mut accepted) = self.env(cx, |env| door.socket.accept(env, id)) else { break };
            got_on = true;
            let mut told = self.told.get();
            match accepted.state() {
                State::Connected(stream) => {
                    let (remote, flow) = (stream.remote(), accepted.flows()[0]);
                    door.waiting.taken(Taken::Connection(flow), &mut told);
                    self.accepted += 1;
                    self.ends.push(End::new(accepted, remote.port(), None));
                }
                _ => {
                    if had == door.kernel.as_ref().map(Beside::waiting) {
                        breach(format_args!("what was accepted is neither a ring's nor the kernel's: {accepted:?}"));
                    }
                    door.waiting.taken(Taken::Kernel, &mut told);
                    self.env(cx, |env| accepted.close(env, false));
                }
            }
            self.told.set(told);
            if self.rests() {
                break;
            }
        }
        self.listener = Some(door);
        got_on
    }

    /// Sends a datagram, which says where it must come from.
    fn send(&mut self, cx: &mut MachineContext<'_>) {
        let Some(mut door) = self.datagrams.take() else { return };
        let link = self.below(u64::from(self.links.count)) as u8;
        let to = SocketAddr::new(self.links.peer(link), DATAGRAM_PORT);
        let over = Links::over(to.ip(), self.detour);
        let IpAddr::V4(source) = self.links.own(over) else { return };
        let number = (self.sent as u32).to_be_bytes();
        let caller = self.turns.next_caller(&mut self.dice, &self.plan);
        let before = sent_by_link(&cx.ports, door.socket.flows(), self.plan.rings, over);
        let was = self.turns.before(&mut cx.ports, &self.choice, &self.plan, (door.socket.flows(), Some(Links::id(over))));
        let result = self.env(cx, |env| {
            env.caller = caller;
            door.socket.send_to(env, &[IoSlice::new(&number), IoSlice::new(&source.octets())], Some(to))
        });
        let mut told = self.told.get();
        self.turns.after((&mut cx.ports, &self.choice), &self.plan, (door.socket.flows(), was), &mut told);
        self.told.set(told);
        door.waiting.see_datagrams(cx.now, &mut cx.ports, door.socket.flows());
        let after = sent_by_link(&cx.ports, door.socket.flows(), self.plan.rings, over);
        // (One that had been read to its end may be gone, and one new.)
        let sent_before = |flow| before.iter().find(|(of, _)| *of == flow).map_or(0, |(_, sent)| *sent);
        let by: Vec<_> = after.iter().filter(|&&(flow, sent)| sent > sent_before(flow)).collect();
        match result {
            Ok(8)
                if let [(flow, sent)] = by[..]
                    && *sent == sent_before(*flow) + 1 =>
            {
                self.sent += 1;
                self.senders.borrow_mut()[usize::from(self.links.machine)].push(flow.ring);
            }
            // (What was refused before may be told now.)
            Err(Error::Refused) => {}
            result => breach(format_args!("a datagram to {to}: {result:?}, sent by link {over}: {by:?}")),
        }
        self.datagrams = Some(door);
    }

    /// Reads all datagrams that wait.
    fn read(&mut self, cx: &mut MachineContext<'_>) -> bool {
        let Some(mut door) = self.datagrams.take() else { return false };
        let mut got_on = false;
        loop {
            check_readiness(&mut door, cx, &self.choice);
            let flows = door.socket.flows().to_vec();
            let caller = self.turns.next_caller(&mut self.dice, &self.plan);
            let was = self.turns.before(&mut cx.ports, &self.choice, &self.plan, (&flows, None));
            let before: Vec<_> = queued(&mut cx.ports, &flows);
            let (since, mut bytes) = (door.waiting.kernel_since(), [0; 16]);
            door.waiting.asks(cx.now, door.kernel.as_ref());
            let result = self.env(cx, |env| {
                env.caller = caller;
                door.socket.recv_from(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())
            });
            let is_gone = |(flow, waiting): &&(FlowId, usize)| *waiting > 1 && !door.socket.flows().contains(flow);
            if let Some((flow, waiting)) = before.iter().find(is_gone) {
                breach(format_args!("{waiting} datagrams are gone with {flow:?}, in which they waited"));
            }
            let mut told = self.told.get();
            self.turns.after((&mut cx.ports, &self.choice), &self.plan, (door.socket.flows(), was), &mut told);
            self.told.set(told);
            let datagram = match result {
                Ok(datagram) => datagram,
                Err(Error::WouldBlock) => break,
                Err(Error::Refused) => {
                    door.waiting.failed(since);
                    continue;
                }
                Err(error) => breach(format_args!("a datagram is read: {error}")),
            };
            got_on = true;
            let after = queued(&mut cx.ports, &flows);
            let from = before.iter().zip(&after).find(|((_, before), (_, after))| before != after).map(|((flow, _), _)| *flow);
            let mut told = self.told.get();
            door.waiting.taken(from.map_or(Taken::Kernel, Taken::Datagram), &mut told);
            self.told.set(told);
            if from.is_some() {
                self.check_datagram(&bytes, &datagram);
            }
            if self.rests() {
                break;
            }
        }
        self.datagrams = Some(door);
        got_on
    }

    fn check_datagram(&mut self, bytes: &[u8], datagram: &Datagram) {
        let &[a, b, c, d, e, f, g, h, ..] = bytes else { return };
        let must = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(e, f, g, h)), DATAGRAM_PORT);
        let &Datagram { len, from, to, .. } = datagram;
        if len != 8 || from != must {
            breach(format_args!("a datagram of {len} bytes came from {from}, and was to leave by {must}"));
        }
        let number = u32::from_be_bytes([a, b, c, d]);
        let ring = self.senders.borrow()[usize::from(1 - self.links.machine)].get(number as usize).copied();
        let Some(ring) = ring else { breach("a datagram came that nobody sent") };
        self.turns.came((from, to, ring), number, &self.plan);
        let is_new = self.heard.insert(number);
        if !is_new && !self.plan.is_lossy {
            breach("a datagram was read twice");
        }
    }

    /// What a program does again and again. Whether anything came of it.
    fn work(&mut self, cx: &mut MachineContext<'_>) -> bool {
        if self.detour.is_none() && self.detour_at <= cx.now {
            let to = self.below(u64::from(self.links.count)) as u8;
            let detour = Detour { to, over: (to + 1) % self.links.count };
            (self.detour, self.tables) = (Some(detour), self.links.tables(Some(detour), 2));
        }
        let mut got_on = false;
        if u64::from(self.opened) < CONNECTIONS && self.below(2) == 0 {
            got_on |= self.open(cx);
        }
        if self.sent < DATAGRAMS {
            for _ in 0..self.below(5).min(DATAGRAMS - self.sent) {
                self.send(cx);
            }
            got_on = true;
        }
        for door in [&self.listener, &self.datagrams].into_iter().flatten() {
            if let Some(kernel) = &door.kernel
                && self.sent < DATAGRAMS
                && scale(self.dice.next(), 3) == 0
            {
                kernel.comes();
            }
        }
        if self.below(3) == 0 {
            got_on |= self.accept(cx);
        }
        if self.below(3) == 0 {
            got_on |= self.read(cx);
        }
        let mut ends = core::mem::take(&mut self.ends);
        let (mut dice, plan) = (SplitMix(self.dice.next()), self.plan);
        for end in &mut ends {
            got_on |= self.env(cx, |env| end.go(env, &mut dice, &plan));
        }
        ends.retain_mut(|end| {
            if end.is_done() {
                let mut told = self.told.get();
                told.stayed += end.stayed;
                if let State::Connected(stream) = end.socket.state() {
                    told.migrations += stream.migrations();
                }
                self.told.set(told);
                self.env(cx, |env| end.socket.close(env, false));
            }
            !end.is_done()
        });
        self.ends = ends;
        got_on
    }

    /// Both are through: everything is closed, and nothing is left open.
    fn end(&mut self, cx: &mut MachineContext<'_>) {
        self.accept(cx);
        self.read(cx);
        if !self.plan.is_lossy && self.heard.len() as u64 != DATAGRAMS {
            breach(format_args!("{} datagrams were read of {DATAGRAMS}, on a network that loses none", self.heard.len()));
        }
        for mut door in [self.listener.take(), self.datagrams.take()].into_iter().flatten() {
            self.env(cx, |env| door.socket.close(env, false));
            if door.kernel.is_some_and(|kernel| !kernel.is_closed()) {
                breach("the kernel's part of a socket outlives it");
            }
        }
        let left = open_flows(&cx.ports);
        if left > 0 {
            breach(format_args!("{left} flows are left behind of sockets that are closed"));
        }
    }
}

impl MachineApp for Peer {
    fn step(&mut self, cx: &mut MachineContext<'_>) -> Step {
        self.see(cx);
        if cx.now < self.tick_at {
            return Step::Until(self.tick_at);
        }
        if !self.has_begun && self.begin(cx) {
            self.has_begun = true;
            self.reaches(0);
        }
        if self.stages.get()[0] < 2 {
            self.tick_at = cx.now + TICK;
            return Step::Until(self.tick_at);
        }
        self.see(cx);
        self.tick = if self.work(cx) { TICK } else { (self.tick * 2).min(TICK_MAX) };
        self.tick_at = cx.now + self.tick;
        let all = u64::from(self.opened) == CONNECTIONS && self.accepted == CONNECTIONS && self.sent == DATAGRAMS;
        if all && self.ends.is_empty() && self.ready_at.is_none() {
            self.ready_at = Some(cx.now);
            self.reaches(1);
        }
        if self.stages.get()[1] == 2 && self.ready_at.is_some_and(|at| at + UNDER_WAY < cx.now) {
            self.end(cx);
            return Step::Finished;
        }
        Step::Until(self.tick_at)
    }
}

fn open_flows(ports: &Ports<'_>) -> usize {
    ports.iter().map(|ring| ring.open_flows().len()).sum()
}

/// What each of the datagram flows of a link's rings has sent.
fn sent_by_link(ports: &Ports<'_>, flows: &[FlowId], rings: u16, link: u8) -> Vec<(FlowId, u64)> {
    let of = |flow: &FlowId| {
        ports.iter().nth(usize::from(flow.ring)).and_then(|ring| ring.info(*flow)).map_or(0, |info| info.counters.tx_packets)
    };
    flows.iter().filter(|flow| flow.ring / rings == u16::from(link)).map(|flow| (*flow, of(flow))).collect()
}

/// How many datagrams wait in each flow.
fn queued(ports: &mut Ports<'_>, flows: &[FlowId]) -> Vec<(FlowId, usize)> {
    let waiting = |flow: &FlowId| (*flow, ports.ring(flow.ring).udp_backlog(*flow).map_or(0, |backlog| backlog.packets));
    flows.iter().map(waiting).collect()
}

/// It is ready to read if one of its flows has something, or the kernel has, and else is not.
fn check_readiness(door: &mut Door, cx: &mut MachineContext<'_>, choice: &Choice) {
    let ready = door.socket.readiness(&mut cx.ports, choice);
    let before = door.waiting.kernel_since();
    let waits = door.waiting.asks(cx.now, door.kernel.as_ref());
    door.waiting.failed(before);
    if ready.contains(Readiness::IN) != waits {
        breach(format_args!("{:?} is {ready:?}, and something waits: {waits}", door.socket));
    }
}

#[cfg(feature = "mutants")]
fn infect(choice: &mut Choice, mutant: Mutant) {
    choice.mutate(mutant);
}

#[cfg(not(feature = "mutants"))]
fn infect(_: &mut Choice, _: Mutant) {}
