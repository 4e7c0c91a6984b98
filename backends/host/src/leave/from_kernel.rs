//! From the kernel to a ring: the connection of a socket of the kernel's is read in repair mode.
//!
//! Its frames are steered to the ring first ([`ringway_stack::ring::Ring::tcp_expect`], until [`ringway_stack::ring::Ring::tcp_is_expected`]); then [`settle`], then
//! [`FromKernel::take`], then [`ringway_stack::ring::Ring::adopt_snapshot`] and [`ringway_stack::ring::Ring::tcp_retarget`], then [`FromKernel::release`], and the socket is closed.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use ringway_stack::Instant;
use ringway_stack::tcp::{Config, ControlBlock, Snapshot, State};
use ringway_stack::wire::tcp::SeqNumber;

use super::repair::{Options, Queue, Socket};
use super::{LeaveError, at};
use crate::clock::Clock;
use crate::syscall::check;

/// membarrier(2).
const MEMBARRIER_CMD_GLOBAL: i32 = 1;

/// Waits until no processor is in the middle of a packet that passed before a flow rule was there: packets are processed inside of RCU's read-side sections, and
/// membarrier(2) waits for a grace period. It takes some milliseconds, needs no privilege, and delays nothing but itself. Bytes that the kernel acknowledged after
/// they were read would be lost for good.
///
/// # Errors
/// [`LeaveError::Step`]: the kernel has no such call, or was started with `nohz_full` (EINVAL).
pub fn settle() -> Result<(), LeaveError> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) }).map(drop).map_err(at("membarrier"))
}

/// A connection of the kernel's, read. Its socket is in repair mode: closing it is silent, once nobody else has it. Dropped, this leaves the socket so.
#[derive(Debug)]
#[must_use = "the socket stands still until it is closed or given back"]
pub struct FromKernel<'fd> {
    socket: Socket<'fd>,
    block: ControlBlock,
    local: SocketAddr,
    remote: SocketAddr,
    reuses_address: bool,
}

impl<'fd> FromKernel<'fd> {
    /// Reads the connection of a socket. `clock`: the ring's.
    ///
    /// # Errors
    /// [`LeaveError::State`], [`LeaveError::NeedsNetAdmin`], [`LeaveError::KernelTooOld`], [`LeaveError::Step`]: the kernel goes on with it.
    pub fn take(socket: BorrowedFd<'fd>, clock: &Clock) -> Result<Self, LeaveError> {
        let socket = Socket(socket);
        let (local, remote) = (socket.address(false), socket.address(true));
        let (local, remote) = (local.map_err(at("getsockname"))?, remote.map_err(at("getpeername"))?);
        let reuses_address = socket.reuses_address().map_err(at("SO_REUSEADDR"))?;
        socket.begin_repair()?;
        match read(socket, clock) {
            Ok(block) => Ok(Self { socket, block, local, remote, reuses_address }),
            Err(error) => {
                go_on(socket, reuses_address);
                Err(error)
            }
        }
    }

    /// Our address.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The peer's.
    pub const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// What was read.
    pub const fn control_block(&self) -> &ControlBlock {
        &self.block
    }

    /// The connection as bytes, for [`ringway_stack::ring::Ring::adopt_snapshot`]. `config`: the options that the program set.
    ///
    /// # Errors
    /// [`LeaveError::Ring`]: no connection can be so.
    pub fn snapshot(&self, now: Instant, config: &Config) -> Result<Vec<u8>, LeaveError> {
        let snapshot = Snapshot::from_control_block(&self.block, now, config);
        Ok(snapshot.map_err(|_| LeaveError::Ring(ringway_stack::Error::Invalid))?.to_bytes())
    }

    /// The kernel forgets the connection, in silence: its addresses are free, whoever else has the socket. (Closing it would not do: a child that another thread
    /// has just forked has it too, until it executes its program, and so long the connection could not be given to the kernel again.)
    ///
    /// # Errors
    /// [`LeaveError::Step`]: the socket has the connection yet, in repair mode.
    pub fn release(self) -> Result<(), LeaveError> {
        self.socket.drop_connection().map_err(at("connect to nobody"))
    }

    /// The kernel goes on with it as if nothing had been. (Bytes that the socket only counted as sent wait for its retransmission timer.)
    pub fn give_back(self) {
        go_on(self.socket, self.reuses_address);
    }
}

fn go_on(socket: Socket<'_>, reuses_address: bool) {
    let _ = socket.end_repair();
    let _ = socket.set_reuses_address(reuses_address);
}

fn read(socket: Socket<'_>, clock: &Clock) -> Result<ControlBlock, LeaveError> {
    // All that concerns receiving.
    let info = socket.info().map_err(at("TCP_INFO"))?;
    let state = info.state.unwrap_or(State::Closed);
    let may_leave = [State::Established, State::FinWait1, State::FinWait2, State::CloseWait, State::Closing, State::LastAck];
    if !may_leave.contains(&state) {
        return Err(LeaveError::State(state));
    }
    socket.select(Queue::Receive).map_err(at("TCP_REPAIR_QUEUE"))?;
    let rcv_nxt = SeqNumber(socket.queue_seq().map_err(at("TCP_QUEUE_SEQ of the receive queue"))?);
    let unread_len = socket.unread().map_err(at("FIONREAD"))?;
    let unread = socket.peek(unread_len).map_err(at("recv of the receive queue"))?;
    all_of(unread_len, unread.len(), "recv of the receive queue")?;

    // From here on the socket sends nothing: what it would have sent it counts as sent, which is harmless.
    socket.select(Queue::Send).map_err(at("TCP_REPAIR_QUEUE"))?;
    let (in_queue, not_sent) = socket.unacknowledged().map_err(at("SIOCOUTQ"))?;
    let write_seq = SeqNumber(socket.queue_seq().map_err(at("TCP_QUEUE_SEQ of the send queue"))?);
    let (snd_una, snd_nxt) = (write_seq - in_queue, write_seq - not_sent);
    // A FIN is counted, and is no byte.
    let fin = usize::from(matches!(state, State::FinWait1 | State::Closing | State::LastAck));
    let queued = in_queue.saturating_sub(fin);
    let unacknowledged = socket.peek(queued).map_err(at("recv of the send queue"))?;
    all_of(queued, unacknowledged.len(), "recv of the send queue")?;

    let window = socket.window().map_err(|_| LeaveError::KernelTooOld { lacks: "TCP_REPAIR_WINDOW", since: "4.8" })?;
    let peer_mss = socket.peer_mss().map_err(at("TCP_MAXSEG"))?.max(Config::MSS_MIN);
    let Options { scales, sack, timestamps, .. } = info.options;
    // Last of all: until then it may have sent, with a younger clock. Its lowest bit says how fast the clock ticks, and is not read.
    let timestamp = if timestamps { Some(socket.timestamp().map_err(at("TCP_TIMESTAMP"))?.wrapping_add(1)) } else { None };
    Ok(ControlBlock {
        state,
        peer_mss,
        scales,
        sack,
        timestamp,
        ts_recent: None,
        at: clock.now(),
        snd_una,
        snd_nxt,
        snd_wnd: window.snd_wnd,
        snd_wnd_max: window.max_window.max(window.snd_wnd),
        snd_wl1: SeqNumber(window.snd_wl1),
        rcv_nxt,
        rcv_wup: SeqNumber(window.rcv_wup).min(rcv_nxt),
        rcv_adv: (SeqNumber(window.rcv_wup) + window.rcv_wnd as usize).max(rcv_nxt),
        unacknowledged,
        unread,
        out_of_order: Vec::new(),
        early_fin: None,
        rtt: (info.rtt, info.rtt_var),
        buffers: (None, None),
        mss_user: None,
    })
}

fn all_of(wanted: usize, read: usize, step: &'static str) -> Result<(), LeaveError> {
    if wanted == read { Ok(()) } else { Err(at(step)(io::ErrorKind::UnexpectedEof.into())) }
}
