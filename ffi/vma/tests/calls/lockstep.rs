//! Both worlds take the same step, come to rest, and are compared.
//!
//! The kernel is at rest when every thread that has not answered sleeps in its call: what a call sends over the loopback arrives
//! before it returns. Ringway is at rest when it has come to the same; it has [`PATIENCE_MS`] for that, in which the kernel's timers (delayed
//! acknowledgments, corks) go on as well.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use crate::program::{Description, Entry, Kind, Op, PROCESSES, RecvBy, Role, SLOTS, Source, State, Step, Wait};
use crate::translate::{Names, Outcome, Raw, errno_name, outcome, request, transfer_receive};
use crate::wire::{Call, Fields, Reply, Request};
use crate::world::{Who, World};

/// How long the worlds may take to agree, step by step. It covers a delayed acknowledgment (40 ms) and a cork's patience (200 ms).
const PATIENCE_MS: [u64; 10] = [1, 1, 2, 4, 8, 16, 32, 64, 128, 256];
/// How long a call may take that must return.
const RETURN: Duration = Duration::from_secs(10);

/// A descriptor as seen from outside at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) revents: i32,
    pub(crate) local: Result<String, i32>,
    pub(crate) peer: Result<String, i32>,
    pub(crate) unread: Result<i32, i32>,
    /// F_GETFL's O_NONBLOCK and access mode, F_GETFD, fstat's type.
    pub(crate) flags: (i32, i32, i32),
}

/// Everything that was seen of a step in one world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The calls that returned, of this step's or an earlier one's.
    pub(crate) returned: BTreeMap<Who, Outcome>,
    /// All descriptors afterwards.
    pub(crate) views: BTreeMap<(u8, u8), View>,
    /// Each process's lowest free number.
    pub(crate) lowest: BTreeMap<u8, i64>,
}

/// Where the worlds differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Which calls returned.
    Returned,
    /// What a call came to.
    Outcome(Who),
    /// A descriptor of a process.
    Revents(u8, u8),
    Local(u8, u8),
    Peer(u8, u8),
    Unread(u8, u8),
    Flags(u8, u8),
    /// A process's lowest free number.
    Lowest(u8),
}

/// One step, and what both worlds made of it.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) step: Step,
    /// What there was before it.
    pub(crate) before: State,
    pub(crate) kernel: Seen,
    pub(crate) ringway: Seen,
}

/// How a program went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) steps: Vec<Done>,
    /// The first difference, and whether it is listed (its place in the list). Nothing after it was done.
    pub(crate) difference: Option<Where>,
    pub(crate) known: Option<usize>,
    /// What went wrong beside the calls.
    pub(crate) trouble: Option<String>,
}

impl Run {
    pub(crate) fn failed(&self) -> bool {
        self.trouble.is_some() || (self.difference.is_some() && self.known.is_none())
    }

    /// What kind of failure it is: a program is made smaller only as long as that stays.
    pub(crate) fn signature(&self) -> Option<String> {
        let word = |text: String| text.split(['(', ' ']).next().unwrap_or_default().to_owned();
        let last = self.steps.last()?;
        let verdict = match self.difference {
            Some(Where::Outcome(who)) => {
                let says = |seen: &Seen| seen.returned.get(&who).map(|outcome| word(format!("{outcome:?}")));
                format!("{:?} {:?}", says(&last.kernel), says(&last.ringway))
            }
            Some(Where::Revents(process, slot)) => {
                let says = |seen: &Seen| seen.views.get(&(process, slot)).map(|view| view.revents);
                format!("{:?} {:?}", says(&last.kernel), says(&last.ringway))
            }
            at => word(format!("{at:?}")),
        };
        self.failed().then(|| format!("{} {verdict} {}", word(format!("{:?}", last.step.2)), self.trouble.is_some()))
    }

    pub(crate) fn program(&self) -> Vec<Step> {
        self.steps.iter().map(|done| done.step.clone()).collect()
    }
}

/// Says of a difference at the last of the steps whether it is listed.
pub(crate) type Judge<'a> = &'a dyn Fn(&[Done], Where) -> Option<usize>;

/// Runs a program in both worlds. They rest for `slow` after each step, whether or not they agree.
pub(crate) fn run(kernel: &mut World, ringway: &mut World, source: &mut dyn Source, slow: Duration, judge: Judge<'_>) -> Run {
    let mut run = Run::default();
    if let Err(error) = kernel.begin().and_then(|()| ringway.begin()) {
        run.trouble = Some(format!("cannot start: {error}"));
        return run;
    }
    let mut pair = Pair { kernel: Side::new(kernel), ringway: Side::new(ringway), state: State::new(), last: None, slow };
    while let Some(step) = source.next(&pair.state) {
        match pair.step(run.steps.len(), &step) {
            Ok(None) => continue,
            Ok(Some(done)) => run.steps.push(done),
            Err(error) => run.trouble = Some(format!("{step:?}: {error}")),
        }
        run.difference = run.steps.last().and_then(differs);
        if let Some(at) = run.difference {
            run.known = judge(&run.steps, at);
        }
        if run.difference.is_some() || run.trouble.is_some() {
            break;
        }
        pair.conclude(run.steps.last().expect("just done"));
    }
    let ends = pair.end();
    if run.trouble.is_none() && run.known.is_none() {
        run.trouble = ends.err();
    }
    run
}

/// A world on its way through a program.
struct Side<'a> {
    world: &'a mut World,
    names: Names,
    locals: BTreeMap<(u8, u8), Raw>,
    under_way: BTreeMap<Who, UnderWay>,
}

struct UnderWay {
    request: Request,
    /// It returns by itself.
    timed: bool,
}

impl<'a> Side<'a> {
    fn new(world: &'a mut World) -> Self {
        let names = Names::new(world.home());
        Self { world, names, locals: BTreeMap::new(), under_way: BTreeMap::new() }
    }

    fn request(&self, number: usize, step: &Step, state: &State) -> Option<Request> {
        request((step.0, &step.2, number), state, self.world.home(), &|process, slot| self.locals.get(&(process, slot)).copied())
    }

    fn tell(&mut self, who: Who, request: Request, timed: bool) -> io::Result<()> {
        self.world.tell(who, &request)?;
        self.under_way.insert(who, UnderWay { request, timed });
        Ok(())
    }

    /// Takes the answers that are there; `true`: there are no others to come by themselves.
    fn listen(&mut self, returned: &mut BTreeMap<Who, Reply>, limit: Duration) -> io::Result<bool> {
        let mut rest = true;
        for (&who, under_way) in &self.under_way {
            if returned.contains_key(&who) {
                continue;
            }
            // First whether it sleeps, then whether it has answered: one that sleeps and has not answered is in its call.
            let asleep = self.world.asleep(who)?;
            let limit = if under_way.timed { RETURN } else { limit };
            match self.world.hear(who, limit)? {
                Some(reply) => _ = returned.insert(who, reply),
                None => rest &= asleep,
            }
        }
        Ok(rest)
    }

    fn settle(&mut self, returned: &mut BTreeMap<Who, Reply>) -> io::Result<()> {
        let deadline = Instant::now() + RETURN;
        let mut at_rest = 0;
        // Twice: a thread may sleep for a moment on its way, for a lock or a page.
        while at_rest < 2 {
            at_rest = if self.listen(returned, Duration::ZERO)? { at_rest + 1 } else { 0 };
            if self.under_way.keys().all(|who| returned.contains_key(who)) {
                break;
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a thread neither answers nor sleeps"));
            }
            std::thread::sleep(Duration::from_micros(if at_rest > 0 { 300 } else { 30 }));
        }
        Ok(())
    }

    /// Looks at every descriptor. The names that addresses get are kept apart until both worlds agree on them.
    fn look(&mut self, state: &State, names: &mut Names) -> io::Result<Seen> {
        let mut seen = Seen::default();
        for process in state.living() {
            let slots: Vec<u8> = state.open(process).map(|(slot, _)| slot).collect();
            let fds = slots.iter().filter_map(|&slot| state.entry(process, slot)).map(|entry| entry.fd);
            let reply = self.world.observe(process, &Request::new(Call::View, &[]).with_numbers(fds))?;
            // See `Pair::races`.
            let accepts = self.under_way.iter().any(|(who, under_way)| who.0 == process && under_way.request.call == Call::Accept);
            if !accepts {
                seen.lowest.insert(process, reply.result);
            }
            let mut fields = Fields(&reply.data);
            for slot in slots {
                let [revents, local_error, peer_error, unread_error, unread, status, descriptor, kind] = [0; 8].map(|_| fields.i32());
                let (local, peer) = (Raw::read(&mut fields), Raw::read(&mut fields));
                self.locals.insert((process, slot), local);
                let mut either = |raw, error| if error == 0 { Ok(names.name(raw)) } else { Err(error) };
                let (local, peer) = (either(local, local_error), either(peer, peer_error));
                let unread = if unread_error == 0 { Ok(unread) } else { Err(unread_error) };
                seen.views.insert((process, slot), View { revents, local, peer, unread, flags: (status, descriptor, kind) });
            }
        }
        Ok(seen)
    }
}

struct Pair<'a> {
    kernel: Side<'a>,
    ringway: Side<'a>,
    state: State,
    /// What was seen when the worlds last agreed.
    last: Option<Seen>,
    slow: Duration,
}

impl Pair<'_> {
    /// Takes a step; `None`: it makes no sense here.
    fn step(&mut self, number: usize, step: &Step) -> io::Result<Option<Done>> {
        let before = self.state.clone();
        let started = match step.2 {
            Op::Fork | Op::Kill | Op::Exit => self.process_step(step)?,
            _ => self.call_step(number, step)?,
        };
        if !started {
            return Ok(None);
        }
        let (kernel, ringway) = self.compare()?;
        Ok(Some(Done { step: step.clone(), before, kernel, ringway }))
    }

    fn process_step(&mut self, step: &Step) -> io::Result<bool> {
        let process = step.0;
        if !self.state.alive(process) {
            return Ok(false);
        }
        if step.2 == Op::Fork {
            if self.races(step) {
                return Ok(false);
            }
            let Some(child) = (0..PROCESSES).find(|&p| !self.state.alive(p)) else { return Ok(false) };
            for side in [&mut self.kernel, &mut self.ringway] {
                side.world.fork(process, child)?;
            }
            self.state.processes[usize::from(child)] = self.state.processes[usize::from(process)];
            return Ok(true);
        }
        for side in [&mut self.kernel, &mut self.ringway] {
            side.under_way.retain(|&(of, _), _| of != process);
            if step.2 == Op::Kill {
                side.world.kill(process);
            } else {
                side.world.exit(process);
            }
        }
        self.state.busy.retain(|&(of, _)| of != process);
        self.state.processes[usize::from(process)] = None;
        Ok(true)
    }

    fn call_step(&mut self, number: usize, step: &Step) -> io::Result<bool> {
        let who = (step.0, step.1);
        if let Op::Interrupt(worker, _) = step.2 {
            return self.interrupt(step, (step.0, worker));
        }
        let takes_slot = matches!(step.2, Op::Socket(..) | Op::Accept(..) | Op::EpollCreate | Op::Dup(..));
        if !self.state.alive(step.0) || self.state.busy.contains(&who) || (takes_slot && self.reserved(step.0)) || self.races(step) {
            return Ok(false);
        }
        let requests = self.kernel.request(number, step, &self.state).zip(self.ringway.request(number, step, &self.state));
        let Some((kernel, ringway)) = requests else { return Ok(false) };
        let second = transfer_receive(&step.2, &self.state);
        if matches!(step.2, Op::Transfer(..)) && second.as_ref().is_none_or(|(other, _)| *other == who || !self.undisturbed(step)) {
            return Ok(false);
        }
        let timed = self.timed(step);
        self.kernel.tell(who, kernel, timed)?;
        self.ringway.tell(who, ringway, timed)?;
        self.state.busy.push(who);
        if let Some((other, request)) = second {
            self.kernel.tell(other, request.clone(), false)?;
            self.ringway.tell(other, request, false)?;
            self.state.busy.push(other);
        }
        Ok(true)
    }

    /// Whether what comes of a call would be decided by a race, in any world.
    fn races(&self, step: &Step) -> bool {
        let under_way = || self.kernel.under_way.iter().map(|(&(process, _), under_way)| (process, &under_way.request));
        let of = |process, fd| {
            (0..SLOTS).find_map(|slot| self.state.entry(process, slot).filter(|e| i64::from(e.fd) == fd)).map(|e| e.description)
        };
        let description = |slot: u8| self.state.entry(step.0, slot).map(|entry| entry.description);
        // Linux's accept takes its descriptor's number when it begins to wait, ours when it returns: what is numbered meanwhile differs.
        let renumbers = matches!(step.2, Op::Socket(..) | Op::Accept(..) | Op::EpollCreate | Op::Dup(..) | Op::Close(_) | Op::Fork);
        if renumbers && under_way().any(|(process, request)| process == step.0 && request.call == Call::Accept) {
            return true;
        }
        // Who of two that wait for the same bytes, or connection, gets them; or whether who only waits for them sees them before.
        let taken = |slot: u8| {
            under_way().any(|(process, request)| match request.call {
                Call::Recv | Call::Accept => of(process, request.arguments[0]) == description(slot),
                Call::EpollWait => true,
                Call::Poll => request.data.chunks(8).any(|pair| of(process, i64::from(Fields(pair).i32())) == description(slot)),
                _ => false,
            })
        };
        let consumed = |slot: u8| {
            under_way().any(|(process, request)| {
                matches!(request.call, Call::Recv | Call::Accept) && of(process, request.arguments[0]) == description(slot)
            })
        };
        match &step.2 {
            // A wait goes by what the flag was when it began; ours looks again when it was woken.
            Op::NonBlock(slot, ..) => consumed(*slot),
            Op::Recv(_, by, _, flags) if flags.dontwait && !matches!(by, RecvBy::Read | RecvBy::Readv) => false,
            Op::Recv(slot, ..) | Op::Accept(slot, _) => taken(*slot),
            Op::Poll(_, of, Wait::Forever) => of.iter().any(|&(slot, _)| consumed(slot)),
            Op::EpollWait(_, _, _, Wait::Forever) => {
                under_way().any(|(_, request)| matches!(request.call, Call::Recv | Call::Accept | Call::EpollWait))
            }
            _ => false,
        }
    }

    /// Whether a transfer can only go one way: between the two ends of a connection, both open and blocking, and nobody else at work.
    fn undisturbed(&self, step: &Step) -> bool {
        let (Op::Transfer(from, process, _, to, _), Some(last)) = (&step.2, &self.last) else { return false };
        let whole = |view: &View| view.revents & i32::from(!(libc::POLLIN | libc::POLLOUT)) == 0 && view.flags.0 & libc::O_NONBLOCK == 0;
        let ends = last.views.get(&(step.0, *from)).zip(last.views.get(&(*process, *to)));
        // One that waits only so long would say how quick the machine is.
        let is_timed = self.state.description(*process, *to).is_some_and(|description| description.timed);
        self.state.busy.is_empty()
            && !is_timed
            && ends.is_some_and(|(a, b)| a.local == b.peer && b.local == a.peer && a.peer.is_ok() && whole(a) && whole(b))
    }

    /// Whether every free slot is spoken for by a call under way.
    fn reserved(&self, process: u8) -> bool {
        let free = (0..SLOTS).filter(|&slot| self.state.entry(process, slot).is_none()).count();
        free <= self.state.busy.iter().filter(|who| who.0 == process).count()
    }

    fn interrupt(&mut self, step: &Step, whom: Who) -> io::Result<bool> {
        if !self.state.busy.contains(&whom) {
            return Ok(false);
        }
        let Op::Interrupt(worker, restart) = step.2 else { return Ok(false) };
        let request = Request::new(Call::Interrupt, &[i64::from(worker), i64::from(restart)]);
        for side in [&mut self.kernel, &mut self.ringway] {
            side.world.observe(step.0, &request)?;
        }
        Ok(true)
    }

    fn timed(&self, step: &Step) -> bool {
        match step.2 {
            Op::Poll(_, _, wait) | Op::EpollWait(_, _, _, wait) => wait != Wait::Forever,
            Op::Recv(slot, ..) | Op::Accept(slot, ..) => self.state.description(step.0, slot).is_some_and(|d| d.timed),
            Op::Connect(..) | Op::Send(..) | Op::SendTo(..) | Op::Transfer(..) => false,
            _ => true,
        }
    }

    /// Waits until both worlds have come to the same; or, in the end, to what they have come to.
    fn compare(&mut self) -> io::Result<(Seen, Seen)> {
        let (mut kernel_says, mut ringway_says) = (BTreeMap::new(), BTreeMap::new());
        std::thread::sleep(self.slow);
        self.kernel.settle(&mut kernel_says)?;
        let mut patience = PATIENCE_MS.iter();
        loop {
            // What returned in the kernel's world must return in Ringway's by itself, with nobody looking at its sockets.
            self.ringway.listen(&mut ringway_says, Duration::ZERO)?;
            let replies = |side: &Side<'_>, says: &BTreeMap<Who, Reply>, names: &mut Names| -> BTreeMap<Who, Outcome> {
                says.iter().map(|(&who, reply)| (who, outcome(&side.under_way[&who].request, reply, names))).collect()
            };
            let (mut kernel_names, mut ringway_names) = (self.kernel.names.clone(), self.ringway.names.clone());
            let kernel_returned = replies(&self.kernel, &kernel_says, &mut kernel_names);
            let ringway_returned = replies(&self.ringway, &ringway_says, &mut ringway_names);
            let returned: BTreeSet<Who> = kernel_returned.keys().copied().collect();
            let alike = ringway_returned.keys().copied().collect::<BTreeSet<_>>() == returned;
            let give_up = patience.len() == 0;
            if alike || give_up {
                let mut state = self.state.clone();
                if kernel_returned == ringway_returned {
                    conclude(&mut state, &kernel_returned, &self.kernel.under_way);
                }
                let mut kernel = self.kernel.look(&state, &mut kernel_names)?;
                let mut ringway = self.ringway.look(&state, &mut ringway_names)?;
                (kernel.returned, ringway.returned) = (kernel_returned, ringway_returned);
                if kernel == ringway || give_up || kernel.returned != ringway.returned && alike {
                    (self.kernel.names, self.ringway.names) = (kernel_names, ringway_names);
                    return Ok((kernel, ringway));
                }
            }
            let ms = patience.next().copied().unwrap_or(1);
            std::thread::sleep(Duration::from_millis(ms));
            self.kernel.settle(&mut kernel_says)?;
        }
    }

    /// Takes over what a step on which the worlds agree came to.
    fn conclude(&mut self, done: &Done) {
        conclude(&mut self.state, &done.kernel.returned, &self.kernel.under_way);
        self.last = Some(done.kernel.clone());
        for who in done.kernel.returned.keys() {
            self.kernel.under_way.remove(who);
            self.ringway.under_way.remove(who);
        }
    }

    fn end(self) -> Result<(), String> {
        let open: Vec<(u8, i32)> = self
            .state
            .living()
            .flat_map(|process| (0..SLOTS).map(move |slot| (process, slot)).collect::<Vec<_>>())
            .filter_map(|(process, slot)| Some((process, self.state.entry(process, slot)?.fd)))
            .collect();
        self.kernel.world.end(&open).map_err(|what| format!("kernel: {what}"))?;
        self.ringway.world.end(&open).map_err(|what| format!("Ringway: {what}"))
    }
}

fn differs(done: &Done) -> Option<Where> {
    let (kernel, ringway) = (&done.kernel, &done.ringway);
    if !kernel.returned.keys().eq(ringway.returned.keys()) {
        return Some(Where::Returned);
    }
    if let Some((&who, _)) = kernel.returned.iter().find(|&(who, outcome)| ringway.returned[who] != *outcome) {
        return Some(Where::Outcome(who));
    }
    for (&(process, slot), k) in &kernel.views {
        let r = &ringway.views[&(process, slot)];
        let each = [
            (k.revents != r.revents, Where::Revents(process, slot)),
            (k.local != r.local, Where::Local(process, slot)),
            (k.peer != r.peer, Where::Peer(process, slot)),
            (k.unread != r.unread, Where::Unread(process, slot)),
            (k.flags != r.flags, Where::Flags(process, slot)),
        ];
        if let Some((_, at)) = each.into_iter().find(|(differs, _)| *differs) {
            return Some(at);
        }
    }
    kernel.lowest.iter().find(|&(process, lowest)| ringway.lowest[process] != *lowest).map(|(&process, _)| Where::Lowest(process))
}

/// What the calls that returned change.
fn conclude(state: &mut State, returned: &BTreeMap<Who, Outcome>, under_way: &BTreeMap<Who, UnderWay>) {
    for (&(process, worker), outcome) in returned {
        state.busy.retain(|&who| who != (process, worker));
        if let Some(under_way) = under_way.get(&(process, worker)) {
            change(state, process, &under_way.request, outcome);
        }
    }
}

fn change(state: &mut State, process: u8, request: &Request, outcome: &Outcome) {
    let fd = request.arguments[0] as i32;
    let slot = (0..SLOTS).find(|&slot| state.entry(process, slot).is_some_and(|entry| entry.fd == fd));
    let description = slot.and_then(|slot| state.entry(process, slot)).map(|entry| entry.description);
    let worked = outcome.result >= 0;
    let number = outcome.result as i32;
    match request.call {
        Call::Socket if worked => {
            let six = fd == libc::AF_INET6;
            let tcp = request.arguments[1] as i32 & 0xf == libc::SOCK_STREAM;
            let (role, kind) = match (tcp, six) {
                (true, false) => (Role::Fresh, Kind::Tcp),
                (true, true) => (Role::Fresh, Kind::Tcp6),
                (false, false) => (Role::Datagram, Kind::Udp),
                (false, true) => (Role::Datagram, Kind::Udp6),
            };
            take(state, process, number, Description { role, kind, timed: false });
        }
        Call::EpollCreate if worked => take(state, process, number, Description { role: Role::Epoll, kind: Kind::Tcp, timed: false }),
        Call::Accept if worked => {
            let of = description.map(|index| state.descriptions[index]);
            let of = of.unwrap_or(Description { role: Role::Stream, kind: Kind::Tcp, timed: false });
            take(state, process, number, Description { role: Role::Stream, ..of });
        }
        Call::Dup if worked => {
            let Some(description) = description else { return };
            let onto = (0..SLOTS).find(|&slot| state.entry(process, slot).is_some_and(|entry| entry.fd == number));
            let slot = onto.or_else(|| state.free(process)).expect("a slot was kept free");
            place(state, process, slot, Some(Entry { fd: number, description }));
        }
        Call::Close if worked => {
            if let Some(slot) = slot {
                place(state, process, slot, None);
            }
        }
        Call::Connect if worked || outcome.error == libc::EINPROGRESS => become_role(state, description, Role::Stream),
        Call::Listen if worked => become_role(state, description, Role::Listener),
        Call::SetSockOpt if worked && request.arguments[2] as i32 == libc::SO_RCVTIMEO => {
            if let Some(index) = description {
                state.descriptions[index].timed = request.data.iter().any(|&byte| byte != 0);
            }
        }
        _ => {}
    }
}

fn become_role(state: &mut State, description: Option<usize>, role: Role) {
    let Some(description) = description.and_then(|index| state.descriptions.get_mut(index)) else { return };
    if matches!(description.role, Role::Fresh | Role::Stream) {
        description.role = role;
    }
}

fn take(state: &mut State, process: u8, fd: i32, description: Description) {
    let slot = state.free(process).expect("a slot was kept free");
    state.descriptions.push(description);
    place(state, process, slot, Some(Entry { fd, description: state.descriptions.len() - 1 }));
}

fn place(state: &mut State, process: u8, slot: u8, entry: Option<Entry>) {
    if let Some(slots) = &mut state.processes[usize::from(process)] {
        slots[usize::from(slot)] = entry;
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for done in &self.steps {
            writeln!(f, "    {:?},", done.step)?;
        }
        writeln!(f, "{:<58} {:<46} | Ringway", "", "kernel")?;
        let says =
            |seen: &Seen| seen.returned.iter().map(|((p, t), outcome)| format!("{p}.{t} {outcome:?}")).collect::<Vec<_>>().join(", ");
        for done in &self.steps {
            let (kernel, ringway) = (says(&done.kernel), says(&done.ringway));
            let mark = if kernel == ringway { ' ' } else { '!' };
            writeln!(f, "{:<58} {kernel:<46} |{mark}{ringway}", format!("{:?}", done.step))?;
        }
        if let Some(last) = self.steps.last() {
            for (at, kernel) in &last.kernel.views {
                let (kernel, ringway) = (kernel.to_string(), last.ringway.views.get(at).map_or_else(String::new, ToString::to_string));
                let mark = if kernel == ringway { ' ' } else { '!' };
                writeln!(f, "{:<58} {kernel:<46} |{mark}{ringway}", format!("  then {at:?}"))?;
            }
            writeln!(f, "  lowest free: {:?} | {:?}", last.kernel.lowest, last.ringway.lowest)?;
        }
        if let Some(at) = self.difference {
            writeln!(f, "they differ in: {at:?}")?;
        }
        if let Some(trouble) = &self.trouble {
            writeln!(f, "trouble: {trouble}")?;
        }
        Ok(())
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let either = |name: &Result<String, i32>| name.clone().unwrap_or_else(errno_name);
        let unread = self.unread.map_or_else(errno_name, |count| count.to_string());
        write!(f, "{} {}->{} {unread} unread {:x?}", events(self.revents), either(&self.local), either(&self.peer), self.flags)
    }
}

fn events(bits: i32) -> String {
    const NAMES: [(i32, &str); 6] = [(0x1, "IN"), (0x2, "PRI"), (0x4, "OUT"), (0x8, "ERR"), (0x10, "HUP"), (0x2000, "RDHUP")];
    let names: Vec<&str> = NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|&(_, name)| name).collect();
    if names.is_empty() { "-".to_owned() } else { names.join("|") }
}
