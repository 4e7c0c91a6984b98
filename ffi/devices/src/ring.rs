//! A ring, of whichever device it is on. Each call of it is one match: below that, all is of one device.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use ringway_host::queues::SLEEPER;
use ringway_host::{HostQueues as _, Lender, Monitor, Neighbours};
use ringway_mlx5::Mlx5Queues;
use ringway_rxe::{Reach, RxeQueues};
use ringway_shm::ShmQueues;
use ringway_stack::cyclic::{CyclicBuffer, CyclicError, Layout, RecordMemory, Run};
use ringway_stack::device::{
    self, Capabilities, CyclicId, FiveTuple, LendBuffer as _, MacAddr, Pacing, Protocol, Queues, QueuesConfig, Wake,
};
use ringway_stack::ring::{
    self, Answer, Backlog, Batches, Counters, Datagram, Decision, Event, FlowId, FlowInfo, HEADERS_MAX, LatePacket, NextHop, Readiness,
    RecvFlags, RingConfig, SendFlags, Shown, Shutdown, SourceFilter, Tap, UdpOptions, UdpPast, Usage,
};
use ringway_stack::socket::FlowRing;
use ringway_stack::tcp::{self, Lent, Undelivered};
use ringway_stack::{Error, Instant};
use ringway_xdp::XdpQueues;

use super::absent::AbsentQueues;
use super::{Entered, Handover, Landing, RingQueues, RxBuf, UdpHandover, apart, lent};

/// See the module's documentation.
#[expect(clippy::large_enum_variant, reason = "a process has few, which are never moved: each call would go by one address more")]
pub enum Ring {
    /// On shared memory.
    Shm(ring::Ring<ShmQueues>),
    /// On an interface.
    Xdp(ring::Ring<XdpQueues>),
    /// On a card.
    Mlx5(ring::Ring<Mlx5Queues>),
    /// On a verbs device, in UD datagrams.
    Rxe(ring::Ring<RxeQueues>),
    /// On nothing any more.
    Absent(ring::Ring<AbsentQueues>),
}

macro_rules! by_device {
    ($this:expr, $of:ident => $call:expr) => {
        match $this {
            Self::Shm($of) => $call,
            Self::Xdp($of) => apart(|| $call),
            Self::Mlx5($of) => apart(|| $call),
            Self::Rxe($of) => apart(|| $call),
            Self::Absent($of) => apart(|| $call),
        }
    };
}

/// Queues of an interface or a card.
trait CountsFrames: Queues {
    /// Frames received, each by itself: a frame of the ring's may be many of the queue's.
    fn received(&self) -> u64;
}

impl CountsFrames for XdpQueues {
    fn received(&self) -> u64 {
        self.counters().received
    }
}

impl CountsFrames for Mlx5Queues {
    fn received(&self) -> u64 {
        self.counters().received
    }
}

impl CountsFrames for RxeQueues {
    fn received(&self) -> u64 {
        self.counters().received
    }
}

/// Frames that one call takes from an interface's queue at the most, about.
const POLLED_MAX: usize = 512;

/// Takes what more has come by an interface. (What lies in its queue is in nobody's receive window, and who sends is held back by nothing but that: if a call took
/// less than what comes until the next one, the queue would become full.)
fn poll_on<Q: CountsFrames>(of: &mut ring::Ring<Q>, now: Instant) -> usize {
    let received = |of: &ring::Ring<Q>| of.queues().received();
    let (mut done, most) = (0, received(of) + POLLED_MAX as u64);
    while done < POLLED_MAX && received(of) < most && of.queues().rx_ready() {
        done += of.poll(now).max(1);
    }
    done
}

/// Calls that need nothing but the match: [`ring::Ring`] has their documentation.
macro_rules! calls {
    ($(fn $name:ident(&mut $this:ident $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {
        $(
            #[doc = concat!("See [`ring::Ring::", stringify!($name), "`].")]
            #[inline]
            #[allow(clippy::missing_errors_doc, reason = "it is documented there")]
            pub fn $name(&mut $this $(, $argument: $type)*) $(-> $answer)? {
                by_device!($this, of => of.$name($($argument),*))
            }
        )*
    };
    ($(fn $name:ident(&$this:ident $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {
        $(
            #[doc = concat!("See [`ring::Ring::", stringify!($name), "`].")]
            #[inline]
            #[allow(clippy::missing_errors_doc, reason = "it is documented there")]
            pub fn $name(&$this $(, $argument: $type)*) $(-> $answer)? {
                by_device!($this, of => of.$name($($argument),*))
            }
        )*
    };
}

/// The same, of the ring's queues.
macro_rules! calls_of_queues {
    ($(fn $name:ident(&mut $this:ident $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` of the device's queues.")]
            #[inline]
            pub fn $name(&mut $this $(, $argument: $type)*) $(-> $answer)? {
                by_device!($this, of => of.queues_mut().$name($($argument),*))
            }
        )*
    };
    ($(fn $name:ident(&$this:ident $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` of the device's queues.")]
            #[inline]
            pub fn $name(&$this $(, $argument: $type)*) $(-> $answer)? {
                by_device!($this, of => of.queues().$name($($argument),*))
            }
        )*
    };
}

impl Ring {
    /// Frames received: that one of the [`Ring::counters`], which would be copied for it on the way of each message.
    #[inline]
    pub fn rx_packets(&self) -> u64 {
        by_device!(self, of => of.counters().rx_packets)
    }

    /// See [`ring::Ring::new`].
    pub fn new(queues: RingQueues, config: RingConfig, seed: [u8; 32]) -> Self {
        match queues {
            RingQueues::Shm(of) => Self::Shm(ring::Ring::new(of, config, seed)),
            RingQueues::Xdp(of) => Self::Xdp(ring::Ring::new(of, config, seed)),
            RingQueues::Mlx5(of) => Self::Mlx5(ring::Ring::new(of, config, seed)),
            RingQueues::Rxe(of) => Self::Rxe(ring::Ring::new(of, config, seed)),
        }
    }

    /// A ring on nothing, which takes the place of one whose device is given up, with all flows that it has, until there is another. (What was received and lent is
    /// there until it is given back.)
    ///
    /// # Errors
    /// The system's: there are no descriptors for it.
    pub fn absent(number: u16) -> io::Result<Self> {
        let config = RingConfig { number, ..RingConfig::default() };
        Ok(Self::Absent(ring::Ring::new(AbsentQueues::new()?, config, [0; 32])))
    }

    /// Whether it is such a ring.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }

    calls! {
        fn batches(&self) -> Batches;
        fn counters(&self) -> Counters;
        fn has_candidate(&self, flow: FlowId) -> bool;
        fn has_events(&self) -> bool;
        fn has_leavers(&self) -> bool;
        fn has_bereft(&self) -> bool;
        fn has_neighbour_questions(&self) -> bool;
        fn info(&self, flow: FlowId) -> Option<FlowInfo>;
        fn is_due(&self, now: Instant) -> bool;
        fn is_gone(&self) -> bool;
        fn is_held(&self, flow: FlowId) -> bool;
        fn lingering(&self) -> bool;
        fn lingering_bytes(&self) -> usize;
        fn lingering_streams(&self) -> Vec<FlowId>;
        fn may_await_acknowledgment(&self) -> bool;
        fn open_flows(&self) -> Vec<FlowId>;
        fn readiness(&self, flow: FlowId) -> Readiness;
        fn streams_without_owner(&self, most: usize) -> Vec<FlowId>;
        fn tcp_arrival(&self, flow: FlowId, peeked: usize) -> Option<tcp::Arrival>;
        fn tcp_between(&self, local: SocketAddr, remote: SocketAddr) -> Option<FlowId>;
        fn tcp_details(&self, now: Instant, flow: FlowId) -> Option<tcp::Details>;
        fn tcp_half_open(&self, listener: FlowId) -> usize;
        fn tcp_hop(&self, flow: FlowId) -> Option<NextHop>;
        fn tcp_state(&self, local: SocketAddr, remote: SocketAddr) -> Option<tcp::State>;
        fn tcp_waiting(&self, listener: FlowId) -> Vec<FlowId>;
        fn udp_backlog(&self, flow: FlowId) -> Option<Backlog>;
        fn udp_groups(&self, flow: FlowId) -> &[IpAddr];
        fn udp_may_leave(&self, flow: FlowId) -> bool;
        fn usage(&self) -> Usage;
    }

    calls! {
        fn tidy(&mut self);
        fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) -> Option<Box<dyn Tap>>;
        fn sleep_deadline(&mut self) -> Option<Instant>;
        fn set_rate(&mut self, now: Instant, flow: FlowId, rate: Pacing) -> Result<(), Error>;
        fn take_event(&mut self) -> Option<Event>;
        fn wake(&mut self) -> Wake;
        fn take_error(&mut self, flow: FlowId) -> Option<Error>;
        fn shutdown(&mut self, now: Instant, flow: FlowId, how: Shutdown) -> Result<(), Error>;
        fn shutdown_rx(&mut self, flow: FlowId) -> Result<(), Error>;
        fn close(&mut self, now: Instant, flow: FlowId, abort: bool);

        fn tcp_listen(&mut self, local: SocketAddr, backlog: usize, config: &tcp::Config) -> Result<FlowId, Error>;
        fn tcp_set_backlog(&mut self, listener: FlowId, backlog: usize) -> Result<(), Error>;
        fn tcp_accept(&mut self, listener: FlowId) -> Result<FlowId, Error>;
        fn tcp_withdraw(&mut self, listener: FlowId);
        fn tcp_publish(&mut self, listener: FlowId) -> Result<(), Error>;
        fn tcp_is_free(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> bool;
        fn tcp_connect(
            &mut self, now: Instant, local: SocketAddr, remote: SocketAddr, hop: NextHop, config: &tcp::Config
        ) -> Result<FlowId, Error>;
        fn tcp_configure(&mut self, now: Instant, flow: FlowId, change: impl FnOnce(&mut tcp::Config)) -> Result<(), Error>;
        fn tcp_send(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error>;
        fn tcp_recv(&mut self, now: Instant, flow: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Error>;
        fn tcp_dummy(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>]) -> Result<usize, Error>;
        fn tcp_share(&mut self, flow: FlowId, is_shared: bool) -> Result<(), Error>;

        fn tcp_route(&mut self, now: Instant, flow: FlowId, hop: NextHop) -> Result<(), Error>;
        fn tcp_retarget(&mut self, now: Instant, flow: FlowId, hop: NextHop) -> Result<(), Error>;
        fn tcp_written(&mut self, flow: FlowId) -> Option<Vec<u8>>;
        fn tcp_keep_silent(&mut self, flow: FlowId) -> Result<(), Error>;
        fn tcp_speak(&mut self, now: Instant, flow: FlowId);
        fn tcp_keep_late(&mut self, local: SocketAddr, remote: SocketAddr);
        fn tcp_take_late(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<LatePacket>;
        fn tcp_end_late(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<LatePacket>;
        fn tcp_answer(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Answer;
        fn tcp_take_leaver(&mut self) -> Option<FlowId>;
        fn tcp_take_bereft(&mut self) -> Vec<(SocketAddr, SocketAddr)>;
        fn tcp_stays(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr);
        fn tcp_has_parted(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr, has_left: bool);
        fn end_silently(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Result<Undelivered, Error>;
        fn adopt_snapshot(
            &mut self, now: Instant, ends: (SocketAddr, SocketAddr), hop: NextHop, config: &tcp::Config, bytes: &[u8]
        ) -> Result<FlowId, Error>;

        fn udp_open(&mut self, local: SocketAddr, options: &UdpOptions) -> Result<FlowId, Error>;
        fn udp_connect(&mut self, flow: FlowId, source: IpAddr, remote: Option<(SocketAddr, NextHop)>) -> Result<(), Error>;
        fn udp_configure(&mut self, flow: FlowId, change: impl FnOnce(&mut UdpOptions)) -> Result<(), Error>;
        fn udp_send(
            &mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], source: IpAddr, to: Option<(SocketAddr, NextHop)>
        ) -> Result<usize, Error>;
        fn udp_try_send(
            &mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>], source: IpAddr, to: Option<(&SocketAddr, NextHop)>
        ) -> Result<usize, Error>;
        fn udp_recv(&mut self, flow: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error>;
        fn udp_dummy(
            &mut self, flow: FlowId, data: &[IoSlice<'_>], source: IpAddr, to: Option<(SocketAddr, NextHop)>
        ) -> Result<usize, Error>;
        fn udp_let_go(&mut self, flow: FlowId) -> Result<(), Error>;
        fn udp_listen(
            &mut self, now: Instant, flow: FlowId, group: IpAddr, from: IpAddr, filter: SourceFilter
        ) -> Result<(), Error>;
        fn udp_leave(&mut self, now: Instant, flow: FlowId, group: IpAddr) -> Result<(), Error>;
        fn udp_leave_group_to_kernel(&mut self, group: SocketAddr);
        fn udp_requeue(&mut self, flow: FlowId, datagram: &Datagram, bytes: &[u8]) -> Result<(), Error>;
        fn udp_take_past(&mut self, flow: FlowId) -> UdpPast;
        fn udp_add_past(&mut self, flow: FlowId, past: UdpPast);
        fn udp_keep_headers(&mut self, flow: FlowId) -> Result<(), Error>;
        fn headers(&mut self, flow: FlowId, source: IpAddr) -> Result<arrayvec::ArrayVec<u8, HEADERS_MAX>, Error>;

        fn lend_from_now_on(&mut self) -> bool;
        fn give_back(&mut self, now: Instant, flow: FlowId, len: usize);
        fn udp_give_back(&mut self, flow: FlowId, len: usize) -> bool;
        fn set_recv_filter(&mut self, flow: FlowId, on: bool) -> Result<(), Error>;
        fn decide(&mut self, now: Instant, flow: FlowId, decision: Decision) -> Result<usize, Error>;
        fn strides_open(&mut self, layout: &Layout) -> Result<CyclicId, device::CyclicError>;
        fn strides_close(&mut self, queue: CyclicId);
        fn strides_read(&mut self, now: Instant, queue: CyclicId, min: usize, max: usize) -> Result<Option<Run>, CyclicError>;
        fn udp_to_strides(&mut self, flow: FlowId, queue: CyclicId) -> Result<(), Error>;
        fn cyclic_read(
            &mut self, sockets: &[FlowId], buffer: &mut CyclicBuffer<impl RecordMemory>, min: usize, max: usize
        ) -> Result<Option<Run>, CyclicError>;
    }

    /// See [`ring::Ring::tcp_send_polling`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn tcp_send_polling(
        &mut self,
        now: Instant,
        flow: FlowId,
        data: &[IoSlice<'_>],
        flags: SendFlags,
        stale: Instant,
    ) -> (Result<usize, Error>, bool) {
        by_device!(self, of => of.tcp_send_polling(now, flow, data, flags, stale))
    }

    calls_of_queues! {
        fn capabilities(&self) -> &Capabilities;
        fn mac(&self) -> MacAddr;
        fn rx_ready(&self) -> bool;
        fn wait_fd(&self) -> Option<i32>;
        fn queue_frames(&self) -> usize;
        fn copied_bytes(&self) -> u64;
    }

    calls_of_queues! {
        fn arm(&mut self, wake: Wake) -> bool;
        fn disarm(&mut self);
        fn begin_sleep(&mut self) -> RawFd;
        fn slept(&mut self, events: impl ExactSizeIterator<Item = u64>);
        fn clear_sleeper(&mut self);
        fn end_sleep(&mut self);
        fn claim_core(&mut self, core: usize) -> bool;
        fn release_core(&mut self, core: usize);
        fn pause(&mut self);
        fn resume(&mut self) -> bool;
        fn tx_buffers(&mut self) -> (usize, usize);
    }

    /// See [`ring::Ring::poll`]. Of an interface or a card, several batches.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> usize {
        match self {
            Self::Shm(of) => of.poll(now),
            Self::Xdp(of) => apart(|| of.poll(now) + poll_on(of, now)),
            Self::Mlx5(of) => apart(|| of.poll(now) + poll_on(of, now)),
            Self::Rxe(of) => apart(|| of.poll(now) + poll_on(of, now)),
            Self::Absent(of) => apart(|| of.poll(now)),
        }
    }

    /// See [`ring::Ring::tcp_recv_polling`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn tcp_recv_polling(&mut self, now: Instant, flow: FlowId, into: &mut [IoSliceMut<'_>]) -> Result<usize, Error> {
        match self {
            Self::Shm(of) => of.tcp_recv_polling(now, flow, into),
            Self::Xdp(of) => apart(|| {
                poll_on(of, now);
                of.tcp_recv_polling(now, flow, into)
            }),
            Self::Mlx5(of) => apart(|| {
                poll_on(of, now);
                of.tcp_recv_polling(now, flow, into)
            }),
            Self::Rxe(of) => apart(|| {
                poll_on(of, now);
                of.tcp_recv_polling(now, flow, into)
            }),
            Self::Absent(of) => apart(|| of.tcp_recv_polling(now, flow, into)),
        }
    }

    /// See [`ring::Ring::udp_recv_polling`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn udp_recv_polling<T>(
        &mut self,
        now: Instant,
        flow: FlowId,
        into: &mut [IoSliceMut<'_>],
        tell: impl FnOnce(Datagram) -> T,
    ) -> Result<T, Error> {
        match self {
            Self::Shm(of) => of.udp_recv_polling(now, flow, into, tell),
            Self::Xdp(of) => apart(|| {
                poll_on(of, now);
                of.udp_recv_polling(now, flow, into, tell)
            }),
            Self::Mlx5(of) => apart(|| {
                poll_on(of, now);
                of.udp_recv_polling(now, flow, into, tell)
            }),
            Self::Rxe(of) => apart(|| {
                poll_on(of, now);
                of.udp_recv_polling(now, flow, into, tell)
            }),
            Self::Absent(of) => apart(|| of.udp_recv_polling(now, flow, into, tell)),
        }
    }

    /// Whether a datagram waits to be read.
    pub fn udp_has_some(&self, flow: FlowId) -> bool {
        by_device!(self, of => of.arrived(flow)).is_some()
    }

    /// See [`ringway_host::HostQueues::is_of_sleeper`].
    pub fn is_of_sleeper(event: u64) -> bool {
        event == SLEEPER
    }

    /// Whether a frame to that member, which found no room, may find some soon: see [`ShmQueues::is_worth_waiting`]. (An interface's queue is as long as it is.)
    pub fn is_worth_waiting(&mut self, mac: MacAddr) -> bool {
        match self {
            Self::Shm(of) => of.queues_mut().is_worth_waiting(mac),
            Self::Xdp(_) | Self::Mlx5(_) | Self::Rxe(_) | Self::Absent(_) => false,
        }
    }

    /// Somebody waited for room at that member in vain.
    pub fn give_up(&mut self, mac: MacAddr) {
        if let Self::Shm(of) = self {
            of.queues_mut().give_up(mac);
        }
    }

    /// Takes the oldest bytes of a stream by reference, at most `bytes` of the first so many pieces of the buffer that they are in: see [`ring::Ring::tcp_lend`].
    ///
    /// # Errors
    /// As there.
    pub fn tcp_lend(&mut self, flow: FlowId, pieces: usize, bytes: usize) -> Result<Option<Lent<RxBuf>>, Error> {
        by_device!(self, of => Ok(of.tcp_lend(flow, |buffer| buffer.leading(pieces).min(bytes))?.map(lent)))
    }

    /// See [`ring::Ring::udp_lend_each`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn udp_lend_each(&mut self, flow: FlowId, mut take: impl FnMut(Lent<RxBuf>)) -> Result<Datagram, Error> {
        by_device!(self, of => of.udp_lend_each(flow, |piece| take(lent(piece))))
    }

    /// See [`ring::Ring::candidate_each`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn candidate_each(&self, flow: FlowId, mut take: impl FnMut(Lent<RxBuf>)) -> Result<Shown, Error> {
        by_device!(self, of => of.candidate_each(flow, |piece| take(lent(piece))))
    }

    /// The program may write to the candidate's bytes: see [`ring::Ring::change_candidate`].
    pub fn make_candidate_writable(&mut self, flow: FlowId) {
        by_device!(self, of => of.change_candidate(flow, |buffer| buffer.make_writable()));
    }

    /// Takes over what the program has written to the candidate's bytes.
    pub fn take_written_candidate(&mut self, flow: FlowId) {
        by_device!(self, of => of.change_candidate(flow, |buffer| buffer.take_written()));
    }

    /// A connection leaves this ring: see [`ring::Ring::detach_stream`].
    ///
    /// # Errors
    /// As there.
    pub fn detach_stream(&mut self, now: Instant, flow: FlowId) -> Result<Handover, Error> {
        match self {
            Self::Shm(of) => of.detach_stream(now, flow).map(Handover::Shm),
            Self::Xdp(of) => of.detach_stream(now, flow).map(Handover::Xdp),
            Self::Mlx5(of) => of.detach_stream(now, flow).map(Handover::Mlx5),
            Self::Rxe(of) => of.detach_stream(now, flow).map(Handover::Rxe),
            Self::Absent(_) => Err(Error::BadSocket),
        }
    }

    /// The same of one that the program has closed: see [`ring::Ring::detach_closed`].
    ///
    /// # Errors
    /// As there.
    pub fn detach_closed(&mut self, now: Instant, flow: FlowId) -> Result<Handover, Error> {
        match self {
            Self::Shm(of) => of.detach_closed(now, flow).map(Handover::Shm),
            Self::Xdp(of) => of.detach_closed(now, flow).map(Handover::Xdp),
            Self::Mlx5(of) => of.detach_closed(now, flow).map(Handover::Mlx5),
            Self::Rxe(of) => of.detach_closed(now, flow).map(Handover::Rxe),
            Self::Absent(_) => Err(Error::BadSocket),
        }
    }

    /// Whether a connection leaves for the kernels at both its ends, or at neither: see [`Capabilities::leaves_at_both_ends`].
    pub fn leaves_at_both_ends(&self) -> bool {
        self.capabilities().leaves_at_both_ends
    }

    /// Has the other end of a connection asked to leave its ring for its kernel: see [`ring::Ring::tcp_ask_to_leave`].
    ///
    /// # Errors
    /// As there; and it may be of another device.
    pub fn tcp_ask_to_leave(&mut self, now: Instant, entered: &Entered<'_>) -> Result<(), Error> {
        match self {
            Self::Rxe(of) => of.tcp_ask_to_leave(now, entered.0.handover()),
            _ => Err(Error::NotSupported),
        }
    }

    /// Takes a connection over: see [`ring::Ring::adopt`].
    ///
    /// # Errors
    /// As there; and it may be of another device.
    pub fn adopt(&mut self, now: Instant, handover: Handover) -> Result<FlowId, (Error, Handover)> {
        match (self, handover) {
            (Self::Shm(of), Handover::Shm(handover)) => of.adopt(now, handover).map_err(|(error, it)| (error, Handover::Shm(it))),
            (Self::Xdp(of), Handover::Xdp(handover)) => of.adopt(now, handover).map_err(|(error, it)| (error, Handover::Xdp(it))),
            (Self::Mlx5(of), Handover::Mlx5(handover)) => of.adopt(now, handover).map_err(|(error, it)| (error, Handover::Mlx5(it))),
            (Self::Rxe(of), Handover::Rxe(handover)) => of.adopt(now, handover).map_err(|(error, it)| (error, Handover::Rxe(it))),
            (_, handover) => Err((Error::NotSupported, handover)),
        }
    }

    /// Has the frames of connections go to the kernel from then on, although a wider rule matches them. Whether they do: shared memory has no kernel beside it; and what comes for
    /// the kernel comes by no verbs device. `None`: they never do, since a card's rules have no exceptions.
    pub fn exempter(&self) -> Option<impl Fn(SocketAddr, SocketAddr) -> bool + use<>> {
        let (device, is_apart) = match self {
            Self::Mlx5(_) => return None,
            Self::Shm(_) | Self::Absent(_) => (None, false),
            Self::Rxe(_) => (None, true),
            Self::Xdp(of) => (Some(of.queues().device().clone()), false),
        };
        Some(move |local, remote| {
            let flow = FiveTuple { protocol: Protocol::Tcp, local, remote: Some(remote) };
            is_apart || device.as_ref().is_some_and(|device| device.leave_to_kernel(&flow))
        })
    }

    /// The queues of its interface that it has, and how many there are.
    pub fn queues_of_interface(&self) -> (Vec<u32>, u32) {
        match self {
            // (A card makes queues as they are wanted.)
            Self::Shm(_) | Self::Mlx5(_) | Self::Rxe(_) | Self::Absent(_) => (Vec::new(), 0),
            Self::Xdp(of) => (of.queues().queues(), of.queues().device().queues_there()),
        }
    }

    /// Where what comes for a flow comes to, of its interface's rings: see [`XdpDevice::lands_at`].
    ///
    /// [`XdpDevice::lands_at`]: ringway_xdp::XdpDevice::lands_at
    pub fn lands_at(&self, protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> Landing {
        match self {
            Self::Shm(_) | Self::Mlx5(_) | Self::Rxe(_) | Self::Absent(_) => Landing::Unknown,
            Self::Xdp(of) => of.queues().device().lands_at(protocol, local, remote),
        }
    }

    /// Connections of its interface's rings that are to go over to others of these: see [`XdpDevice::take_landings`].
    ///
    /// [`XdpDevice::take_landings`]: ringway_xdp::XdpDevice::take_landings
    pub fn take_landings(&self) -> Vec<(SocketAddr, SocketAddr, usize)> {
        let Self::Xdp(of) = self else { return Vec::new() };
        of.queues().device().take_landings().into_iter().map(|(local, remote, ring)| (local, remote, ring.0 as usize)).collect()
    }

    /// Where a striding queue's buffer lies, how long it is in bytes, and by which key the card knows it. `None`: it is nothing that a program can be shown.
    pub fn strides_memory(&self, queue: CyclicId) -> Option<(*mut u8, usize, u32)> {
        match self {
            Self::Mlx5(of) => of.queues().cyclic_memory(queue),
            Self::Shm(_) | Self::Xdp(_) | Self::Rxe(_) | Self::Absent(_) => None,
        }
    }

    /// The broker that the ring is from, which does for the process what takes privileges.
    pub fn lender(&self) -> Option<Arc<dyn Lender>> {
        match self {
            Self::Shm(_) | Self::Mlx5(_) | Self::Rxe(_) | Self::Absent(_) => None,
            Self::Xdp(of) => of.queues().device().lender(),
        }
    }

    /// Whether a peer's port is reached over this ring from an address of ours. Of a verbs device, whose peers are others of its kind, somebody has to be there, who is asked; what
    /// was found longer ago than `fresh` is asked for again. Every other device carries what its interface's routes lead to.
    pub fn reach(&self, now: Instant, protocol: Protocol, local: IpAddr, to: SocketAddr, fresh: Option<Duration>) -> Reach {
        match self {
            Self::Rxe(of) => of.queues().device().reach(now, protocol, local, to, fresh),
            _ => Reach::Yes,
        }
    }

    /// Passes on to the kernel what the ring asks about its neighbours: see [`Neighbours::serve`].
    ///
    /// # Errors
    /// As there.
    pub fn serve_neighbours(
        &mut self,
        now: Instant,
        neighbours: &mut Neighbours,
        monitor: &mut Monitor,
    ) -> Result<bool, ringway_host::netlink::Error> {
        by_device!(self, of => neighbours.serve(now, monitor, of))
    }

    /// What opens one ring more on its card, whoever has this one's lock meanwhile: the card is asked, which takes its time. `None`: its device has no more than those that it was
    /// attached with.
    pub fn opener(&self) -> Option<impl FnOnce() -> Result<RingQueues, String> + Send + use<>> {
        let Self::Mlx5(of) = self else { return None };
        let card = of.queues().device().clone();
        let beside_kernel = QueuesConfig { steered_only: true };
        Some(move || card.open_ring(&beside_kernel).map(RingQueues::Mlx5).map_err(|error| error.to_string()))
    }

    /// A UDP socket's address leaves for another ring of the same card: see [`ring::Ring::udp_hand_over`].
    ///
    /// # Errors
    /// As there; [`Error::NotSupported`]: no rule says what comes to which ring of its device.
    pub fn udp_hand_over(&mut self, flow: FlowId) -> Result<UdpHandover, Error> {
        let Self::Mlx5(of) = self else { return Err(Error::NotSupported) };
        of.udp_hand_over(flow).map(UdpHandover)
    }

    /// Takes one over: see [`ring::Ring::udp_adopt`].
    ///
    /// # Errors
    /// As there; it comes back as it was.
    pub fn udp_adopt(&mut self, handover: UdpHandover) -> Result<FlowId, (Error, UdpHandover)> {
        let Self::Mlx5(of) = self else { return Err((Error::NotSupported, handover)) };
        of.udp_adopt(handover.0).map_err(|(error, it)| (error, UdpHandover(it)))
    }

    /// It could not go over: see [`ring::Ring::udp_take_back`].
    pub fn udp_take_back(&mut self, flow: FlowId, handover: UdpHandover) {
        if let Self::Mlx5(of) = self {
            of.udp_take_back(flow, *handover.0);
        }
    }

    /// Takes in what had come for a UDP socket whose address has gone over: see [`ring::Ring::udp_come_to`].
    pub fn udp_come_to(&mut self, now: Instant, flow: FlowId) {
        if let Self::Mlx5(of) = self {
            of.udp_come_to(now, flow);
        }
    }

    /// As sockets see it.
    pub fn as_flow_ring(&mut self) -> &mut dyn FlowRing {
        match self {
            Self::Shm(of) => of,
            Self::Xdp(of) => of,
            Self::Mlx5(of) => of,
            Self::Rxe(of) => of,
            Self::Absent(of) => of,
        }
    }
}
