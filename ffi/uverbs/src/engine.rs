//! The card: `sim::connectx` for what is bytes in the program's memory, `stack::roce` for what goes over the wire, and between both the
//! queue pairs. A send queue entry becomes a request of the adapter's, a receive queue entry a receive of it, and its completions become
//! entries of completion queues.

pub(crate) mod channels;
pub(crate) mod clock;
pub(crate) mod device_memory;
mod events;
mod link;
mod members;
pub(crate) mod memory;
mod objects;
pub(crate) mod raw;
mod registers;
mod rings;
mod segment;

use core::ffi::c_int;
use core::hash::BuildHasher as _;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant as Clock;

use ringway_host::Fd;
use ringway_preload::Errno;
use ringway_sim::connectx::Violation;
use ringway_sim::connectx::cqe::Cqe;
use ringway_sim::connectx::queues::{Action, Card};
use ringway_sim::connectx::steering;
use ringway_stack::device::messages::{MULTICAST_QP, QpConfig, Transport};
use ringway_stack::roce::mad::GSI_QP;
use ringway_stack::roce::memory::{Access, Pd};
use ringway_stack::roce::qp::Mtu;
use ringway_stack::roce::{Hca, Limits, Node, NodeConfig, Tuning};
use ringway_stack::time::Instant;

use crate::bus::{Bus, Kind};
use crate::log::say;
use crate::paths::from_rustix;
use crate::rdma_cm::RdmaCm;
use crate::sysfs;
use crate::wire::port::{Plug, plug};
use crate::wire::{Arrival, Wire};
pub(crate) use channels::Channel;
use clock::ClockPages;
use device_memory::DeviceMemory;
pub(crate) use events::{Life, Told};
pub(crate) use link::{INLINE_MAX, path};
use memory::{ProcessMemory, Registered};
pub(crate) use objects::{Attributes, Context, Cq, Object, Qp, Srq};
pub(crate) use raw::{Hash, Raw, Wq};
pub(crate) use registers::{PAGE, Registers};
use rings::Rings;
use segment::Segment;

/// Queue pairs of a process at most: what one slot has numbers for.
pub(crate) const QPS_MAX: usize = 255;
/// Completions that the adapter holds until they are written: they are after every step.
const CQ_DEPTH: usize = 1 << 17;
/// Packets that are taken or sent before doorbells are looked at again.
const BATCH: usize = 64;
/// How long the card's thread sleeps at least, and at most.
pub(crate) const SLEEP_MIN: Duration = Duration::from_micros(10);
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(5);
/// Of contexts, channels and queues, beside queue pairs.
static NUMBERS: AtomicU32 = AtomicU32::new(1);
/// The first of them that the process gives itself: those below are its parent's.
static FIRST: AtomicU32 = AtomicU32::new(1);
/// Of the bus's name, in the environment.
const BUS: &str = "RINGWAY_CONNECTX_BUS";

/// What the card's thread waits on. In the child of a fork, all are closed, so that what they are of ends with the parent.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The process's end of the bus.
    pub(crate) bus: Fd,
    /// The interface that the port is plugged into.
    pub(crate) wire: Option<Fd>,
    /// [`Engine::ring`].
    pub(crate) bell: Fd,
}

/// Whether a number was given by the process that this one was forked from.
pub(crate) fn is_of_parent(number: u32) -> bool {
    number < FIRST.load(Ordering::Relaxed)
}

/// The numbers that were given so far are the parent's.
pub(crate) fn numbers_in_child() {
    FIRST.store(NUMBERS.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Passes over some numbers of queue pairs, other ones in each process: whoever had this slot before may have had the first of them, and peers refuse a connection of a queue pair
/// that they know another connection of, until its time of waiting is over (REJ, stale connection: IBTA spec, s12.9.8.3.1). They come last.
fn pass_over(hca: &mut Hca<Registered>, cq: u32, process: u32) -> Result<(), Errno> {
    let depth = 1;
    let config = QpConfig {
        transport: Transport::Ud,
        pd: Pd(0),
        send_cq: cq,
        recv_cq: cq,
        send_depth: depth,
        recv_depth: depth,
        sges_max: 1,
        inline_max: 0,
    };
    // (Processes that follow each other closely have numbers far apart.)
    let passed = process.wrapping_mul(37) as usize % QPS_MAX;
    let made: Result<Vec<u32>, _> = (0..passed).map(|_| hca.create_qp(config)).collect();
    made.and_then(|made| made.into_iter().try_for_each(|qp| hca.destroy_qp(qp))).map_err(|_| Errno(libc::ENOMEM))
}

/// The card, and what programs made with it.
pub(crate) struct Engine {
    pub(crate) memory: ProcessMemory,
    pub(crate) card: Card,
    /// What goes over the wire, and the connection management over it.
    pub(crate) node: Node<Registered>,
    /// The adapter's one completion queue.
    pub(crate) hca_cq: u32,
    pub(crate) bus: Bus,
    /// The interface that the port is plugged into, if it is into one: frames, and what RoCE sends to other machines, go there.
    wire: Option<Wire>,
    /// An eventfd, by which the card's thread wakes up.
    bell: Fd,
    /// When it began.
    origin: Clock,
    pub(crate) clock: ClockPages,
    pub(crate) contexts: BTreeMap<u32, Context>,
    pub(crate) qps: BTreeMap<u32, Qp>,
    pub(crate) cqs: BTreeMap<u32, Cq>,
    pub(crate) srqs: BTreeMap<u32, Srq>,
    /// Raw packet queue pairs, by number.
    pub(crate) raws: BTreeMap<u32, Raw>,
    /// Receive queues of their own, by number.
    pub(crate) wqs: BTreeMap<u32, Wq>,
    pub(crate) steering: steering::Table,
    pub(crate) registers: Registers,
    pub(crate) device_memory: DeviceMemory,
    pub(crate) rings: Rings,
    segment: Segment,
    pub(crate) rdma_cm: RdmaCm,
    mtu: Mtu,
    last_raw: u32,
    /// When doorbells were last looked at: what was rung for then leaves then, however long the card's thread takes.
    turn_at: Instant,
    /// When it is looked at again who has ended.
    look_at: Instant,
    port_up: bool,
    life: Life,
    /// How many flow rules from now each one is that is to be refused.
    rules_refused: Vec<u8>,
    /// Since when receivers have no room.
    paused: Option<Instant>,
    pub(crate) channels: BTreeMap<u32, Channel>,
    packet: Vec<u8>,
}

impl Engine {
    /// A card that is plugged into the bus.
    pub(crate) fn new() -> Result<Self, Errno> {
        let bus = Bus::join(std::env::var(BUS).unwrap_or_else(|_| "default".into()))?;
        let (wire, mtu) = match plug() {
            Plug::Bus => (None, Mtu::B4096),
            Plug::Nothing => return Err(Errno(libc::ENODEV)),
            Plug::Interface(port) => (Some(Wire::plug_into(port)?), port.roce_mtu()),
        };
        let limits = Limits { qps: QPS_MAX, cq_depth: CQ_DEPTH, wrs: 1 << 15, inline: INLINE_MAX, ..Limits::default() };
        let tuning = Tuning { datagram_mtu: mtu, ..Tuning::default() };
        // (By nothing that a stranger could know.)
        let seed = std::hash::RandomState::new().hash_one(std::process::id());
        // (Another process had this slot before, whose connections its peers may still know.)
        let (first_qp, qps_turned) = (u16::from(bus.slot()) << 8, seed);
        let config = NodeConfig { limits, tuning, mtu, first_qp, qps_turned, ..NodeConfig::new(sysfs::address().into()) };
        let mut node = Node::new(config, seed);
        let hca = node.hca_mut();
        let memory = ProcessMemory::new();
        // The first key is the one that ends scatter lists: it stays taken, by nothing.
        let nothing = Registered::Program { start: 0, len: 0, memory };
        hca.register(Pd(0), 0, nothing, Access::empty()).map_err(|_| Errno(libc::ENOMEM))?;
        let hca_cq = hca.create_cq(CQ_DEPTH).map_err(|_| Errno(libc::ENOMEM))?;
        pass_over(hca, hca_cq, std::process::id())?;
        Ok(Self {
            memory,
            card: Card::default(),
            node,
            hca_cq,
            bus,
            wire,
            bell: bell()?,
            origin: Clock::now(),
            clock: ClockPages::new()?,
            contexts: BTreeMap::new(),
            qps: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            raws: BTreeMap::new(),
            wqs: BTreeMap::new(),
            steering: steering::Table::default(),
            registers: Registers::default(),
            device_memory: DeviceMemory::default(),
            rings: Rings::default(),
            segment: Segment::default(),
            rdma_cm: RdmaCm::default(),
            mtu,
            last_raw: 0,
            turn_at: Instant::ZERO,
            look_at: Instant::ZERO,
            paused: None,
            port_up: true,
            life: Life::Works,
            rules_refused: Vec::new(),
            channels: BTreeMap::new(),
            packet: vec![0; Hca::<Registered>::PACKET_MAX.max(raw::FRAME_MAX as usize) + 64],
        })
    }

    /// What a thread waits on, in copies.
    pub(crate) fn to_wait_on(&self) -> Result<Ends, Errno> {
        let copy = |fd: c_int| {
            // SAFETY: no memory is involved.
            let copied = Fd::make(|| unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) });
            copied.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))
        };
        let wire = self.wire.as_ref().and_then(Wire::wait_fd).map(copy).transpose()?;
        Ok(Ends { bus: copy(self.bus.socket().raw())?, wire, bell: copy(self.bell.raw())? })
    }

    /// The card's thread looks again, soon.
    pub(crate) fn ring(&self) {
        let one = 1_u64;
        // (Where it has been rung more often than it counts, it is awake.)
        // SAFETY: eight bytes that are there.
        unsafe { libc::syscall(libc::SYS_write, self.bell.raw(), &raw const one, 8) };
    }

    /// How long the card's thread may sleep if every doorbell is seen as it is written: until something is due, but not for longer than 5 ms.
    pub(crate) fn sleep_max(&self) -> Duration {
        let is_pacing = self.raws.iter().any(|(number, raw)| raw.pace.waits(self.card.send_queue(*number)));
        let until = self.node.deadline().map_or(SLEEP_MAX, |at| at.since(self.now()));
        if is_pacing { SLEEP_MIN } else { until.clamp(SLEEP_MIN, SLEEP_MAX) }
    }

    /// Whether there is nothing to do at once: what comes by the interface ends a wait from now on.
    pub(crate) fn arm(&mut self) -> bool {
        self.wire.as_mut().is_none_or(Wire::arm)
    }

    /// Whether `bus` was made by [`to_wait_on`](Self::to_wait_on) of this card: the same socket.
    pub(crate) fn is_of(&self, bus: BorrowedFd<'_>) -> bool {
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| stat.st_ino).map_err(from_rustix);
        inode(bus).is_ok_and(|own| inode(self.bus.socket().as_fd()) == Ok(own))
    }

    /// A number that nothing had before.
    pub(crate) fn number(&self) -> u32 {
        // (A forked child's card goes on with them, so that a descriptor of the parent's context names none of its own.)
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Instant {
        now_of(self.origin)
    }

    /// The clock's page says what time it is.
    pub(crate) fn set_clock(&self) {
        self.clock.set(self.now().as_nanos());
    }

    /// The longest payload of a packet of RoCE.
    pub(crate) fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// Whether there may be doorbells to look at.
    pub(crate) fn has_queues(&self) -> bool {
        !self.qps.is_empty() || !self.raws.is_empty() || !self.cqs.is_empty()
    }

    /// Looks at everything once; whether there was something to do.
    pub(crate) fn turn(&mut self) -> bool {
        self.set_clock();
        if self.life != Life::Works {
            self.packets();
            self.flush_events();
            return false;
        }
        let mut worked = self.doorbells();
        let now = self.now();
        self.turn_at = now;
        self.card.clock = now.as_nanos();
        worked |= self.receives() | self.sends() | self.raw_sends();
        worked |= self.packets() | self.members(now);
        if self.node.deadline().is_some_and(|at| at <= now) {
            self.node.on_timer(now);
            worked = true;
        }
        self.completions();
        self.refused();
        let now = self.now();
        self.rdma_cm.poll(now, &mut self.node);
        worked |= self.transmit();
        let actions = self.card.flush(&mut self.memory);
        self.act(actions);
        self.forgotten();
        self.flush_events();
        worked
    }

    fn flush_events(&mut self) {
        self.channels.values_mut().for_each(Channel::flush);
        self.contexts.values_mut().filter_map(|context| context.events.as_mut()).for_each(Channel::flush);
    }

    /// Does what was posted before a command. (A card has begun with it when its doorbell was rung, and a program that destroys a queue right
    /// after its last send relies on that.)
    pub(crate) fn catch_up(&mut self) {
        for _ in 0..BATCH {
            if !self.has_queues() || !self.turn() {
                break;
            }
        }
    }

    /// Takes packets off the bus.
    fn packets(&mut self) -> bool {
        let mut packet = std::mem::take(&mut self.packet);
        let mut taken = 0;
        while taken < BATCH
            && let Some(len) = self.bus.receive(&mut packet)
        {
            match Kind::split(&packet[..len]) {
                // What a port that is down would carry is lost.
                Some((Kind::Packet | Kind::Frame, _)) if !self.port_up || self.life != Life::Works => {}
                // (Behind the bus's one address there are many machines.)
                Some((Kind::Packet, packet)) if link::is_management(packet) && !self.node.concerns(packet) => {}
                Some((Kind::Packet, packet)) => self.on_packet(packet),
                Some((Kind::Frame, frame)) => self.on_frame(frame),
                Some((Kind::Wants, message)) => self.segment.told(&mut self.bus, message),
                Some((Kind::Port, [state @ (0 | 1)])) => self.set_port(*state == 1),
                Some((Kind::Fault, [what])) => self.fault(*what),
                Some((Kind::Fault, [events::REFUSAL, at])) => self.rules_refused.push(*at),
                Some((Kind::Port | Kind::Fault, _)) | None => {}
            }
            taken += 1;
        }
        self.packet = packet;
        let any = self.arrivals();
        taken > 0 || any
    }

    /// Takes what came by the interface.
    fn arrivals(&mut self) -> bool {
        let now = self.now();
        let Some(wire) = &mut self.wire else { return false };
        let arrivals = wire.receive(now);
        if let Some(up) = wire.carrier(now) {
            self.set_port(up);
        }
        if self.wire.as_mut().is_some_and(Wire::is_gone) {
            self.fault(events::REMOVAL);
        }
        let any = !arrivals.is_empty();
        for arrival in arrivals {
            match arrival {
                _ if !self.port_up || self.life != Life::Works => {}
                Arrival::Packet(packet) => self.on_packet(&packet),
                Arrival::Frame(frame) => self.on_frame(&frame),
            }
        }
        any
    }

    /// A packet of RoCE has come.
    fn on_packet(&mut self, packet: &[u8]) {
        self.on_roce(packet);
        self.before_packet(packet);
        let now = self.now();
        self.node.on_packet(now, packet);
        self.completions();
    }

    /// The interface is to bring what is sent to the groups that are heard now.
    pub(crate) fn hear_groups(&mut self) {
        if let Some(wire) = &mut self.wire {
            let attached = self.qps.values().flat_map(|qp| qp.groups.iter().copied());
            wire.hear(&attached.chain(self.rdma_cm.groups()).collect());
        }
    }

    /// Puts packets onto the bus, and the interface.
    fn transmit(&mut self) -> bool {
        let mut packet = std::mem::take(&mut self.packet);
        self.bus.flush();
        let mut sent = 0;
        // (What the interface has no room for waits where it is sent again from, if need be.)
        while sent < BATCH
            && !self.is_wire_full()
            && let Some(len) = self.node.poll_transmit(now_of(self.origin), &mut packet)
        {
            if let Some((qpn, is_here)) = link::destination(&packet[..len]).filter(|_| self.port_up) {
                let now = self.now();
                match self.wire.as_mut().filter(|_| !is_here) {
                    Some(wire) => wire.send_packet(now, &packet[..len]),
                    None if qpn == GSI_QP => match Node::<Registered>::service_asked(&packet[..len]) {
                        // There, this process would refuse it as well as any other.
                        Some(service) if !self.bus.is_claimed(service) => self.node.on_packet(now, &packet[..len]),
                        _ => self.bus.send_to_all(Kind::Packet, &packet[..len]),
                    },
                    // (Who sends to a group hears it by the adapter itself.)
                    None if qpn == MULTICAST_QP => self.bus.send_to_others(Kind::Packet, &packet[..len]),
                    None => _ = self.bus.send((qpn >> 16) as u8, Kind::Packet, &packet[..len]),
                }
                self.on_roce(&packet[..len]);
            }
            self.completions();
            sent += 1;
        }
        let now = self.now();
        if let Some(wire) = &mut self.wire {
            wire.flush(now);
        }
        self.packet = packet;
        sent > 0 || self.bus.waiting() > 0 || self.wire.as_ref().is_some_and(|wire| wire.has_waiting(now))
    }

    /// Does what the card says, beside completions, which it has written itself.
    pub(crate) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Request { qpn, control, body } => self.request(qpn, control, body),
                Action::Event { cqn } => self.event(cqn),
                Action::Broken { number, violation } => broken(number, violation),
                Action::QueueFailed { number } => {
                    say(format_args!("queue {number:#x} has failed"));
                    self.queue_failed(number);
                }
                Action::Transmit(transmit) => self.send_frames(&transmit),
                Action::Complete { cqe: Cqe::Failed(failed), .. } => self.entry_failed(&failed),
                Action::Complete { .. } | Action::NoReceive { .. } | Action::Lost { .. } => {}
            }
        }
    }

    /// A completion event is due.
    fn event(&mut self, cqn: u32) {
        let Some(cq) = self.cqs.get_mut(&cqn) else { return };
        if let Some(channel) = self.channels.get_mut(&cq.channel) {
            cq.events += 1;
            channel.send(cq.user_handle);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let [rung, whole] = self.registers.rung;
        if rung > 0 {
            say(format_args!("{rung} doorbells of sends, {whole} of them with their entry"));
        }
        let [stores, steps] = self.registers.trapped;
        if stores > 0 || steps > 0 {
            say(format_args!("{stores} stores trapped, and {steps} other instructions"));
        }
    }
}

fn bell() -> Result<Fd, Errno> {
    // SAFETY: no memory is involved.
    let bell = Fd::make(|| unsafe { libc::syscall(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) });
    bell.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))
}

fn now_of(origin: Clock) -> Instant {
    Instant::from_nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

pub(crate) fn broken(number: u32, violation: Violation) {
    say(format_args!("queue {number:#x}: {violation}"));
}
