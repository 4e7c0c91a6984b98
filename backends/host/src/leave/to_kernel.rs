//! From a ring to the kernel: the connection is restored into a socket of the kernel's that is bound to its address.

use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ringway_stack::device::Queues;
use ringway_stack::ring::{Handover, LatePacket};
use ringway_stack::tcp::{ControlBlock, State};
use ringway_stack::wire::tcp::{Flags, Header, Options as Wire, SeqNumber};

use super::inject::{self, Injector, packet};
use super::means::{Means, is_at};
use super::repair::{Options, Queue, Socket, Window};
use super::{Leave, LeaveError, Refused, Way, at};
use crate::clock::Clock;
use crate::lender::Lender;
use crate::syscall::check;

/// Beyond the window and what is unread: what the kernel counts beside bytes.
const BUFFER_SLACK: usize = 64 << 10;
/// Payload of a segment by which the kernel hears of bytes that came out of order.
const PIECE: usize = 8 << 10;
/// How long an injected segment may take: it is worked off before sendto(2) returns, or by the processor's ksoftirqd.
const HEARD_WITHIN: Duration = Duration::from_millis(200);

/// The kernel as one that takes connections over, in the network namespace of the thread that opened this.
#[derive(Debug)]
pub struct Kernel {
    clock: Clock,
    means: Means,
    abilities: Abilities,
}

/// What the kernel can take over from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The kernel can be told of packets (a raw socket, CAP_NET_RAW): what arrives during the move is not sent again, and connections may be in states behind a
    /// FIN. Without it the other states still move.
    pub injects: bool,
}

impl Kernel {
    /// Asks the kernel, by a socket of its own. `clock`: that of the rings.
    ///
    /// # Errors
    /// [`LeaveError::NeedsNetAdmin`], [`LeaveError::KernelTooOld`], [`LeaveError::Step`].
    pub fn open(clock: Clock) -> Result<Self, LeaveError> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is involved.
        let fd = crate::sleep::internal_fd(|| check(unsafe { libc::syscall(libc::SYS_socket, libc::AF_INET, kind, 0) }))
            .map_err(at("socket"))?;
        let asked = ask(fd);
        crate::syscall::close(fd);
        asked?;
        let injectors = [false, true].map(|is_v6| Injector::open(is_v6).ok());
        let abilities = Abilities { injects: injectors[0].is_some() };
        Ok(Self { clock, means: Means::Own(injectors), abilities })
    }

    /// By a broker, which has asked the kernel.
    pub fn lent(clock: Clock, lender: Arc<dyn Lender>) -> Self {
        let abilities = Abilities { injects: lender.injects() };
        Self { clock, means: Means::Lent(lender), abilities }
    }

    /// What it found.
    pub const fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// Has the kernel take packets no more by injection, as without CAP_NET_RAW.
    #[must_use]
    pub fn without_injection(self) -> Self {
        Self { means: Means::Own([None, None]), abilities: Abilities { injects: false }, ..self }
    }

    /// The way into this socket: bound to the connection's address, or fresh; neither listening nor connected.
    pub const fn into_socket<'a>(&'a self, placeholder: BorrowedFd<'a>) -> ToKernel<'a> {
        ToKernel { kernel: self, socket: Socket(placeholder), exempt: None }
    }
}

/// Whether a socket can be repaired, and tells its window.
fn ask(fd: std::os::fd::RawFd) -> Result<(), LeaveError> {
    // SAFETY: the descriptor is the caller's and open; it is closed by the caller, by number.
    let socket = Socket(unsafe { BorrowedFd::borrow_raw(fd) });
    socket.begin_repair()?;
    if socket.knows_windows() { Ok(()) } else { Err(LeaveError::KernelTooOld { lacks: "TCP_REPAIR_WINDOW", since: "4.8" }) }
}

/// What a connection's program had written before it left, and that was never sent: it is written to the kernel's socket by ordinary calls, before anything else that
/// the program writes. The socket is to be shown writable only when this is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "these bytes are the program's"]
pub struct Unsent {
    bytes: Vec<u8>,
    written: usize,
    /// A FIN follows.
    ends: bool,
}

impl Unsent {
    /// Whether nothing is left to be done.
    pub const fn is_done(&self) -> bool {
        self.written == self.bytes.len() && !self.ends
    }

    /// Bytes left to be written.
    pub const fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether no bytes are left to be written.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes what the socket takes without waiting, and ends the stream behind the last byte if the program had. Whether all is done; if not: again when it is
    /// writable.
    ///
    /// # Errors
    /// Those of send(2), but EAGAIN.
    pub fn write(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let socket = Socket(socket);
        while self.written < self.bytes.len() {
            match socket.send(&self.bytes[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if core::mem::take(&mut self.ends) {
            socket.shut_writing()?;
        }
        Ok(true)
    }
}

/// The way of a connection into a socket of the kernel's ([`Kernel::into_socket`]).
pub struct ToKernel<'a> {
    kernel: &'a Kernel,
    socket: Socket<'a>,
    exempt: Option<Exempt<'a>>,
}

/// Has what comes for a connection, between these addresses (ours, the peer's), go to the kernel, although a wider flow rule matches it. Whether it does.
type Exempt<'a> = &'a dyn Fn(SocketAddr, SocketAddr) -> bool;

impl core::fmt::Debug for ToKernel<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ToKernel").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl<'a> ToKernel<'a> {
    /// The device can leave a connection to the kernel that comes by its listener's rule: so one without a rule of its own leaves as well.
    #[must_use]
    pub const fn exempting(self, exempt: Exempt<'a>) -> Self {
        Self { exempt: Some(exempt), ..self }
    }
}

impl<'a> ToKernel<'a> {
    /// The connection is the kernel's, which hears of it what comes, and says nothing before [`Entered::speak`]: the other end's host knows nothing of it yet, and would answer by a reset. (One that comes
    /// nevertheless, for the kernel repeats what is not acknowledged, is not heard.)
    ///
    /// # Errors
    /// [`Refused`].
    pub fn enter<Q: Queues>(self, handover: Handover<Q>) -> Result<Entered<'a, Q>, Refused<Q>> {
        let (local, remote) = (handover.local(), handover.remote());
        let entered = self.block_of(&handover).and_then(|block| {
            let reuses_address = self.put(&block, local, remote)?;
            // (What it answers to what it is told goes to where nobody knows it yet.)
            let is_deaf = self.socket.hear_no_resets();
            let told = if is_deaf { self.tell(&block, local, remote) } else { Ok(()) };
            told.inspect_err(|_| self.withdraw(is_deaf, reuses_address))?;
            Ok((block, reuses_address, is_deaf))
        });
        match entered {
            Ok((block, reuses_address, is_deaf)) => Ok(Entered { by: self, handover, block, reuses_address, is_deaf }),
            Err(error) => Err(Refused { error, handover }),
        }
    }

    /// The socket is what it was before.
    fn withdraw(&self, is_deaf: bool, reuses_address: bool) {
        if is_deaf {
            self.socket.hear_all();
        }
        self.socket.abandon(&self.kernel.means, reuses_address);
    }
}

/// A connection that the kernel has, and that says nothing yet: see [`ToKernel::enter`]. Dropped, this leaves the socket so.
#[must_use = "the socket stands still until it speaks or is given back"]
pub struct Entered<'a, Q: Queues> {
    by: ToKernel<'a>,
    handover: Handover<Q>,
    block: ControlBlock,
    reuses_address: bool,
    is_deaf: bool,
}

impl<Q: Queues> core::fmt::Debug for Entered<'_, Q> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Entered").field("by", &self.by).field("handover", &self.handover).finish_non_exhaustive()
    }
}

impl<Q: Queues> Entered<'_, Q> {
    /// As it was on its ring.
    pub const fn handover(&self) -> &Handover<Q> {
        &self.handover
    }

    /// The other end's kernel has it as well: the socket is live once this returns. `late`: as of [`Leave::leave`].
    ///
    /// # Errors
    /// [`LeaveError`]: nobody has it any more. The socket is connected to nobody.
    pub fn speak(mut self, late: &mut dyn FnMut() -> Vec<LatePacket>) -> Result<Unsent, LeaveError> {
        let (local, remote) = (self.handover.local(), self.handover.remote());
        if self.is_deaf {
            self.by.socket.hear_all();
        }
        let unsent = self.by.go_live(&self.block, (local, remote), self.reuses_address, !self.is_deaf)?;
        self.handover.end_rule();
        self.by.inject_late(late(), local);
        Ok(unsent)
    }

    /// It stays with its ring: the socket is what it was before.
    pub fn take_back(self) -> Handover<Q> {
        self.by.withdraw(self.is_deaf, self.reuses_address);
        self.handover
    }
}

impl<Q: Queues> Leave<Q> for ToKernel<'_> {
    type Left = Unsent;

    fn way(&self) -> Way {
        Way::Kernel
    }

    /// The socket is live once this returns. Where it fails, it is what it was before: the placeholder.
    fn leave(&mut self, mut handover: Handover<Q>, late: &mut dyn FnMut() -> Vec<LatePacket>) -> Result<Unsent, Refused<Q>> {
        let local = handover.local();
        let unsent = match self.take_over(&handover) {
            Ok(unsent) => unsent,
            Err(error) => return Err(Refused { error, handover }),
        };
        // What came meanwhile is heard before the rule ends, so that nothing overtakes it; and what came until then, after.
        self.inject_late(late(), local);
        let carries_rule = handover.carries_rule();
        handover.end_rule();
        // (Also of one that had a rule: its listener's may match it.)
        let is_left = self.exempt.is_none_or(|exempt| exempt(local, handover.remote()));
        if !carries_rule && !is_left {
            tracing::warn!("the connection {local} - {} is the kernel's, and its frames are not", handover.remote());
        }
        self.inject_late(late(), local);
        Ok(unsent)
    }
}

impl ToKernel<'_> {
    fn take_over<Q: Queues>(&self, handover: &Handover<Q>) -> Result<Unsent, LeaveError> {
        if !handover.carries_rule() && self.exempt.is_none() {
            return Err(LeaveError::NoRuleOfItsOwn);
        }
        let block = self.block_of(handover)?;
        let (local, remote) = (handover.local(), handover.remote());
        let reuses_address = self.put(&block, local, remote)?;
        self.go_live(&block, (local, remote), reuses_address, true)
    }

    /// The connection as it can be restored.
    fn block_of<Q: Queues>(&self, handover: &Handover<Q>) -> Result<ControlBlock, LeaveError> {
        let state = handover.state();
        if !state.is_synchronized() || state == State::TimeWait {
            return Err(LeaveError::State(state));
        }
        handover.control_block(self.kernel.clock.now()).ok_or(LeaveError::Engaged)
    }

    /// Restores a connection into the socket, which is in repair mode afterwards, and says nothing. Whether it had SO_REUSEADDR.
    fn put(&self, block: &ControlBlock, local: SocketAddr, remote: SocketAddr) -> Result<bool, LeaveError> {
        let Self { kernel, socket, .. } = *self;
        let must_tell = block.peer_ended() || block.state == State::FinWait2;
        if must_tell && !kernel.means.injects(local) {
            return Err(LeaveError::NeedsNetRaw(block.state));
        }
        self.has_place(local)?;
        let reuses_address = socket.reuses_address().map_err(at("SO_REUSEADDR"))?;
        kernel.means.begin_repair(socket, local, remote)?;
        self.write_down(block, remote).inspect_err(|_| socket.abandon(&kernel.means, reuses_address))?;
        Ok(reuses_address)
    }

    /// It speaks from now on, and is told what it has not been told yet.
    fn go_live(
        &self,
        block: &ControlBlock,
        (local, remote): (SocketAddr, SocketAddr),
        reuses_address: bool,
        tells: bool,
    ) -> Result<Unsent, LeaveError> {
        let Self { kernel, socket, .. } = *self;
        let ended = kernel.means.end_repair(socket, true).map_err(at("TCP_REPAIR"));
        let is_live = ended.and_then(|()| {
            let told = if tells { self.tell(block, local, remote) } else { Ok(()) };
            if told.is_err() {
                // (Live it was, and said no more than a probe: it is dropped in silence.)
                kernel.means.begin_repair(socket, local, remote)?;
            }
            told
        });
        if let Err(error) = is_live {
            socket.abandon(&kernel.means, reuses_address);
            return Err(error);
        }
        // (Neither is worth losing the connection for.)
        let _ = socket.set_reuses_address(reuses_address);
        let _ = socket.set_buffers(block.buffers);
        let (_, unsent) = block.sent_and_unsent();
        Ok(Unsent { bytes: unsent.to_vec(), written: 0, ends: block.state.has_ended() && !block.fin_sent() })
    }

    /// The socket has the connection's address, or none yet; and no peer.
    fn has_place(&self, local: SocketAddr) -> Result<(), LeaveError> {
        let socket = self.socket;
        if socket.info().map_err(at("TCP_INFO"))?.state != Some(State::Closed) {
            return Err(LeaveError::Placeholder("is connected already, or listens"));
        }
        let bound = socket.address(false).map_err(at("getsockname"))?;
        if bound.port() == 0 || is_at(bound, local) { Ok(()) } else { Err(LeaveError::Placeholder("is bound to another address")) }
    }

    /// All that a socket in repair mode takes. The order is the kernel's: queues' numbers before `connect`, options before the queues' bytes.
    fn write_down(&self, block: &ControlBlock, remote: SocketAddr) -> Result<(), LeaveError> {
        let socket = self.socket;
        let (sent, _) = block.sent_and_unsent();
        let received = received_up_to(block);
        let window = block.rcv_adv.since(block.rcv_nxt);
        // The kernel announces about half of what is free. (Forcing more than that lets the window grow at each move.)
        let receive = window + block.unread.len() * 9 / 16 + BUFFER_SLACK;
        self.kernel
            .means
            .reserve(socket, receive, sent.len() + sent.len() / 2 + BUFFER_SLACK)
            .map_err(at("SO_RCVBUFFORCE, SO_SNDBUFFORCE"))?;

        socket.select(Queue::Receive).map_err(at("TCP_REPAIR_QUEUE"))?;
        socket.set_queue_seq((received - block.unread.len()).0).map_err(at("TCP_QUEUE_SEQ of the receive queue"))?;
        let fin_acknowledged = usize::from(block.state == State::FinWait2);
        socket.select(Queue::Send).map_err(at("TCP_REPAIR_QUEUE"))?;
        socket.set_queue_seq((block.snd_una - fin_acknowledged).0).map_err(at("TCP_QUEUE_SEQ of the send queue"))?;

        // The segment's size is computed by `connect`, from this.
        socket.set_mss(block.peer_mss).map_err(at("TCP_MAXSEG"))?;
        socket.connect(remote).map_err(at("connect"))?;
        socket.set_mss(block.mss_user.unwrap_or(0)).map_err(at("TCP_MAXSEG"))?;
        let (timestamps, scales, sack) = (block.timestamp.is_some(), block.scales, block.sack);
        socket.set_options(&Options { mss: block.peer_mss, scales, sack, timestamps }).map_err(at("TCP_REPAIR_OPTIONS"))?;
        if let Some(clock) = block.timestamp_at(self.kernel.clock.now()) {
            socket.set_timestamp(clock).map_err(at("TCP_TIMESTAMP"))?;
        }

        socket.select(Queue::Receive).map_err(at("TCP_REPAIR_QUEUE"))?;
        socket.fill(&block.unread).map_err(at("send to the receive queue"))?;
        socket.select(Queue::Send).map_err(at("TCP_REPAIR_QUEUE"))?;
        socket.fill(sent).map_err(at("send to the send queue"))?;
        if block.fin_sent() {
            // With the send queue selected it counts as sent.
            socket.shut_writing().map_err(at("shutdown"))?;
        }
        socket.set_window(&window_of(block)).map_err(at("TCP_REPAIR_WINDOW"))
    }

    /// Tells the live socket what no option says: of bytes that came out of order, of the peer's FIN, and of its acknowledgment of ours.
    fn tell(&self, block: &ControlBlock, local: SocketAddr, remote: SocketAddr) -> Result<(), LeaveError> {
        if !self.kernel.means.injects(local) {
            return Ok(());
        }
        let clock = block.timestamp_at(self.kernel.clock.now());
        let header = Header {
            src_port: remote.port(),
            dst_port: local.port(),
            seq: received_up_to(block),
            ack: block.snd_una,
            flags: Flags::ACK,
            window: u16::try_from(block.snd_wnd >> block.scales.map_or(0, |scales| scales.0)).unwrap_or(u16::MAX),
            options: Wire { timestamps: clock.map(|clock| (block.ts_recent.unwrap_or(0), clock)), ..Wire::default() },
            ..Header::default()
        };
        let inject = |header: Header, payload: &[u8]| self.kernel.means.inject(&packet(remote, local, &header, payload), local);
        for (start, bytes) in &block.out_of_order {
            for (index, piece) in bytes.chunks(PIECE).enumerate() {
                // (Lost, they are sent again.)
                let _ = inject(Header { seq: *start + index * PIECE, ..header }, piece);
            }
        }
        if let Some(seq) = block.early_fin {
            let _ = inject(Header { seq, flags: Flags::ACK | Flags::FIN, ..header }, &[]);
        }
        if block.peer_ended() {
            inject(Header { flags: Flags::ACK | Flags::FIN, ..header }, &[]).map_err(at("sendto of the peer's FIN"))?;
        } else if block.state == State::FinWait2 {
            inject(header, &[]).map_err(at("sendto of the peer's acknowledgment"))?;
        }
        self.await_state(state_there(block))
    }

    fn await_state(&self, state: State) -> Result<(), LeaveError> {
        let end = self.kernel.clock.now() + HEARD_WITHIN;
        loop {
            let there = self.socket.info().map_err(at("TCP_INFO"))?.state;
            // (Its peer may have gone on already.)
            if there.is_some_and(|there| there == state || follows(state, there)) {
                return Ok(());
            }
            if self.kernel.clock.now() >= end {
                return Err(LeaveError::Unheard);
            }
            std::thread::yield_now();
        }
    }

    /// (What is not heard, its sender sends again.)
    fn inject_late(&self, late: Vec<LatePacket>, local: SocketAddr) {
        if self.kernel.means.injects(local) {
            for packet in late {
                let _ = self.kernel.means.inject(&inject::late(packet), local);
            }
        }
    }
}

/// Behind the last byte that was received in order: before the peer's FIN.
fn received_up_to(block: &ControlBlock) -> SeqNumber {
    block.rcv_nxt - usize::from(block.peer_ended())
}

/// The kernel holds the numbers against those of its socket, which has no FIN of the peer's yet.
fn window_of(block: &ControlBlock) -> Window {
    let nxt = received_up_to(block);
    let wup = block.rcv_wup.min(nxt);
    let snd_wnd = block.snd_wnd;
    Window {
        snd_wl1: block.snd_wl1.min(nxt).0,
        snd_wnd,
        max_window: block.snd_wnd_max.max(snd_wnd),
        rcv_wnd: block.rcv_adv.since(wup) as u32,
        rcv_wup: wup.0,
    }
}

/// The state in which the kernel has a connection once it was told of it: one whose FIN was not sent yet gets there when it is ([`Unsent::write`]), and LAST-ACK is
/// CLOSING, since the kernel heard of the two FINs in the other order.
fn state_there(block: &ControlBlock) -> State {
    match block.state {
        State::FinWait1 if !block.fin_sent() => State::Established,
        State::Closing | State::LastAck if !block.fin_sent() => State::CloseWait,
        State::LastAck => State::Closing,
        state => state,
    }
}

/// Whether a connection can have come from one state to the other by what its peer said.
fn follows(from: State, to: State) -> bool {
    match from {
        State::Established => to == State::CloseWait,
        State::FinWait1 => matches!(to, State::FinWait2 | State::Closing | State::TimeWait | State::Closed),
        State::FinWait2 | State::Closing => matches!(to, State::TimeWait | State::Closed),
        _ => false,
    }
}
