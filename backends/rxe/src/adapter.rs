//! One device, and all that was made of it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rdma_core_sys as sys;
use ringway_host::Fd;
use ringway_host::sleep::{epoll_ctl, epoll_wait};
use ringway_stack::device::Wake;
use ringway_stack::device::messages::{ConnectionEvent, ConnectionId, MessageLimits, Pd, QpConfig, State, Transport};
use ringway_stack::time::Instant;

use crate::cm::{Depths, EventChannel};
use crate::connections::Connection;
use crate::error::OpenError;
use crate::listeners::Ports;
use crate::memory::CardMemory;
use crate::numbered::Numbered;
use crate::paths::Handles;
use crate::verbs::{Channel, CompletionQueue, Context, Domain, QueuePair, Registered};

/// How long what the kernel has to tell may wait while calls follow each other: asking is a system call. While connections come and go, that is sooner.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOK_SOON: Duration = Duration::from_micros(50);
/// For so long after something about a connection there is more to come.
const ACTIVE_FOR: Duration = Duration::from_millis(100);

/// Events of connections, and of the device, that are taken at a time: others want their turn.
const EVENTS_MAX: usize = 256;

/// The port that is used.
pub(crate) const PORT: u8 = 1;

/// Inline bytes that are tried when a device is opened: what it can is nowhere written.
const INLINE_TRIES: [u32; 5] = [512, 256, 128, 64, 0];

/// How a device is used.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The device's name (`rxe0`).
    pub device: String,
    /// Reads and atomics at once, of each side, that [`connect`](ringway_stack::device::messages::Connections::connect) asks for: zero, as librdmacm's rsockets have
    /// it. Who accepts takes what is asked for, as far as the device can.
    pub rd_atomic: u8,
    /// How long a peer is to wait where there is no receive; 5 bits (IBTA spec, table 45). The kernel's connection management has 0, which is 655 ms; 12 is 0.64 ms.
    pub min_rnr_timer: u8,
}

impl Settings {
    /// What rsockets have.
    pub fn new(device: &str) -> Self {
        Self { device: device.to_owned(), rd_atomic: 0, min_rnr_timer: 12 }
    }
}

/// A queue pair, and what it was made with.
pub(crate) struct Queue {
    pub(crate) pair: QueuePair,
    pub(crate) transport: Transport,
    pub(crate) state: State,
    pub(crate) cqs: [u32; 2],
    pub(crate) domain: Arc<Domain>,
    pub(crate) sges_max: usize,
    pub(crate) inline_max: usize,
    /// Of datagrams: the ways there.
    pub(crate) handles: Handles,
}

/// The device while it is there.
pub(crate) struct Opened {
    pub(crate) context: Arc<Context>,
    pub(crate) channel: Arc<Channel>,
}

/// A device's message plane. `M`: what its queue pairs may read and write.
pub struct Adapter<M> {
    pub(crate) settings: Settings,
    pub(crate) limits: MessageLimits,
    /// Reads and atomics at once that the device can.
    pub(crate) depths_max: Depths,
    /// Ends the queue pairs first, then the queues and regions, then the device: the order of these fields.
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) ports: Ports,
    pub(crate) qps: Numbered<Queue>,
    pub(crate) cqs: Numbered<CompletionQueue>,
    pub(crate) regions: Numbered<Registered<M>>,
    domains: BTreeMap<u32, Weak<Domain>>,
    /// `None`: it was removed.
    pub(crate) opened: Option<Opened>,
    /// `None`: it has no connection management.
    events: Option<Arc<EventChannel>>,
    epoll: Fd,
    pub(crate) happened: VecDeque<(ConnectionId, ConnectionEvent)>,
    /// Completion queues, some of which have no event asked for.
    pub(crate) unarmed: Vec<u32>,
    /// Completions that arming has found, of which [`Adapter::poll`] has not told yet.
    found: usize,
    /// The kernel is to be asked at once: who slept on it was woken.
    must_look: bool,
    looked_at: Option<Instant>,
    /// When something about a connection was heard, or asked for.
    pub(crate) active_at: Option<Instant>,
    next_number: u32,
    /// How long a peer may take to answer who asks for a connection; `None`: as long as the kernel's connection management has it, which is about a minute.
    answer_within: Option<Duration>,
    /// When that is over, of those that were asked for; the first is the first.
    pub(crate) asked: VecDeque<(Instant, ConnectionId)>,
}

impl<M> core::fmt::Debug for Adapter<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Adapter").field("device", &self.settings.device).field("qps", &self.qps.len()).finish_non_exhaustive()
    }
}

impl<M: CardMemory> Adapter<M> {
    /// Opens a device.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(settings: Settings) -> Result<Self, OpenError> {
        Self::open_with(settings, || EventChannel::open().map(Some))
    }

    /// Opens a device for its queue pairs alone, whose numbers the caller brings to peers in a way of its own: of one that the kernel's connection management does not know.
    /// Nobody listens and connects there ([`ringway_stack::device::messages::CmError::Unsupported`]).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_unconnected(settings: Settings) -> Result<Self, OpenError> {
        Self::open_with(settings, || Ok(None))
    }

    fn open_with(settings: Settings, events: impl FnOnce() -> Result<Option<Arc<EventChannel>>, OpenError>) -> Result<Self, OpenError> {
        let context = Arc::new(Context::open(&settings.device)?);
        let events = events()?;
        let attr = context.query().map_err(OpenError::system("ibv_query_device"))?;
        let port = context.query_port(PORT).map_err(OpenError::system("ibv_query_port"))?;
        let channel = Arc::new(Channel::new(&context).map_err(OpenError::system("ibv_create_comp_channel"))?);
        let fds = [channel.fd(), context.async_fd()].into_iter().chain(events.as_ref().map(|events| events.fd()));
        let epoll = watch(fds).map_err(OpenError::system("epoll"))?;
        let number = |value: i32| usize::try_from(value).unwrap_or(0);
        let limits = MessageLimits {
            wrs: number(attr.max_qp_wr),
            cq_depth: number(attr.max_cqe),
            inline: inline_of(&context, &channel).map_err(OpenError::system("ibv_create_qp"))? as usize,
            datagram: 128 << port.active_mtu.clamp(1, 5),
        };
        let depth = |value: i32| u8::try_from(value.clamp(0, 0xfe)).unwrap_or(0);
        Ok(Self {
            settings,
            limits,
            depths_max: Depths { responder: depth(attr.max_qp_rd_atom), initiator: depth(attr.max_qp_init_rd_atom) },
            connections: BTreeMap::new(),
            ports: Ports::default(),
            qps: Numbered::default(),
            cqs: Numbered::default(),
            regions: Numbered::default(),
            domains: BTreeMap::new(),
            opened: Some(Opened { context, channel }),
            events,
            epoll,
            happened: VecDeque::new(),
            unarmed: Vec::new(),
            found: 0,
            must_look: false,
            looked_at: None,
            active_at: None,
            next_number: 0,
            answer_within: None,
            asked: VecDeque::new(),
        })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.settings.device
    }

    /// From now on, a peer that has not answered within that time is [`ConnectionEvent::Unreachable`].
    pub const fn set_answer_within(&mut self, limit: Duration) {
        self.answer_within = Some(limit);
    }

    /// A connection was asked for.
    pub(crate) fn note_asked(&mut self, now: Instant, id: ConnectionId) {
        self.asked.extend(self.answer_within.map(|limit| (now + limit, id)));
    }

    /// When to poll at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.asked.front().map(|(at, _)| *at)
    }

    /// The descriptor to sleep on, once [`Adapter::arm`] said so. It is readable while the kernel has something to tell.
    pub fn wait_fd(&self) -> RawFd {
        self.epoll.raw()
    }

    /// Takes what the kernel has to tell: of connections, of the device, and that completions came that were slept for. How much that was. (Completions themselves
    /// are for whoever polls their queues.)
    pub fn poll(&mut self, now: Instant) -> usize {
        let mut found = core::mem::take(&mut self.found);
        while let Some(&(at, id)) = self.asked.front()
            && at <= now
        {
            self.asked.pop_front();
            self.give_up_asking(id);
            found += 1;
        }
        if core::mem::take(&mut self.must_look) {
            // (Most often it was this.)
            let came = self.take_completion_events();
            return found + came + if came == 0 || self.is_time(now) { self.look(now) } else { 0 };
        }
        found + if self.is_time(now) { self.look(now) } else { 0 }
    }

    /// Whether [`Adapter::poll`] would ask the kernel, or there is something to tell.
    pub fn is_due(&self, now: Instant) -> bool {
        let is_over = self.deadline().is_some_and(|at| at <= now);
        self.must_look || self.found > 0 || !self.happened.is_empty() || is_over || self.is_time(now)
    }

    fn is_time(&self, now: Instant) -> bool {
        let is_active = self.active_at.is_some_and(|at| now.since(at) < ACTIVE_FOR);
        let pause = if is_active { LOOK_SOON } else { LOOK_EVERY };
        self.looked_at.is_none_or(|at| now.since(at) >= pause)
    }

    /// Who slept on [`Adapter::wait_fd`] found it readable: the next [`Adapter::poll`] sees why.
    pub fn on_woken(&mut self) {
        self.must_look = true;
    }

    fn look(&mut self, now: Instant) -> usize {
        self.looked_at = Some(now);
        let mut ready = [libc::epoll_event { events: 0, u64: 0 }; 3];
        match epoll_wait(self.epoll.raw(), &mut ready, Some(Duration::ZERO), None) {
            Ok(0) | Err(_) => return 0,
            Ok(_) => {}
        }
        let mut done = self.take_completion_events();
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.events.as_ref().and_then(|events| events.next()) else { break };
            self.active_at = Some(now);
            self.on_event(event);
            done += 1;
        }
        done + self.take_async_events(EVENTS_MAX)
    }

    /// Where connections' events come.
    ///
    /// # Errors
    /// EOPNOTSUPP: the device was opened without.
    pub(crate) fn channel(&self) -> io::Result<&Arc<EventChannel>> {
        self.events.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    fn take_completion_events(&mut self) -> usize {
        let mut done = 0;
        // (Asking is a system call, and each queue has one event at the most.)
        while done < self.cqs.len()
            && let Some(number) = self.opened.as_ref().and_then(|opened| opened.channel.next_event())
        {
            done += 1;
            if let Some(cq) = self.cqs.get_mut(number) {
                cq.on_event();
                self.unarmed.push(number);
            }
        }
        done
    }

    /// Makes [`Adapter::wait_fd`] readable at what comes next: with [`Wake::Any`] at completions, too. `false`: there are some that nobody has seen yet.
    ///
    /// A queue's completions that are there already count once: whoever cares for them has polled, or does so before sleeping.
    pub fn arm(&mut self, wake: Wake) -> bool {
        if wake == Wake::Solicited {
            return true;
        }
        for number in core::mem::take(&mut self.unarmed) {
            let Some(cq) = self.cqs.get_mut(number).filter(|cq| !cq.is_armed) else { continue };
            cq.arm(false);
            if !cq.has_taken() && cq.look() {
                self.found += 1;
            }
        }
        self.found == 0
    }

    /// The domain of that number, made where nothing of it is there.
    pub(crate) fn domain(&mut self, pd: Pd) -> io::Result<Arc<Domain>> {
        let known = self.domains.get_mut(&pd.0).ok_or(io::ErrorKind::NotFound)?;
        if let Some(domain) = known.upgrade() {
            return Ok(domain);
        }
        let opened = self.opened.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let domain = Arc::new(Domain::new(&opened.context)?);
        *known = Arc::downgrade(&domain);
        Ok(domain)
    }

    pub(crate) fn new_domain(&mut self) -> Pd {
        let number = self.number();
        self.domains.insert(number, Weak::new());
        Pd(number)
    }

    /// A number for what has none of the device's.
    pub(crate) fn number(&mut self) -> u32 {
        loop {
            self.next_number = self.next_number.wrapping_add(1);
            let number = self.next_number;
            let is_taken = self.cqs.has(number) || self.connections.contains_key(&ConnectionId(number));
            if !is_taken && !self.domains.contains_key(&number) {
                return number;
            }
        }
    }

    /// The device was removed: nothing of it is held any more, so that its driver can go. What was received stays to be read.
    pub(crate) fn on_removed(&mut self) {
        self.end_all();
        self.connections.values_mut().for_each(|connection| connection.id = None);
        self.qps.clear();
        self.cqs.clear();
        self.regions.values_mut().for_each(Registered::end);
        self.ports = Ports::default();
        self.opened = None;
    }
}

/// An epoll instance over these.
fn watch(fds: impl Iterator<Item = RawFd>) -> io::Result<Fd> {
    // SAFETY: no memory is involved.
    let epoll = Fd::make(|| unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
    for fd in fds {
        let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, fd, Some(event))?;
    }
    Ok(epoll)
}

/// How many inline bytes the device's queue pairs can have, of those that are tried.
fn inline_of(context: &Arc<Context>, channel: &Arc<Channel>) -> io::Result<u32> {
    let domain = Arc::new(Domain::new(context)?);
    let cq = CompletionQueue::new(channel, 16, 0)?;
    let mut refused = None;
    for bytes in INLINE_TRIES {
        let config = QpConfig {
            transport: Transport::Rc,
            pd: Pd(0),
            send_cq: 0,
            recv_cq: 0,
            send_depth: 16,
            recv_depth: 16,
            sges_max: 2,
            inline_max: bytes as usize,
        };
        match QueuePair::new(&domain, &config, sys::IBV_QPT_RC, [&cq, &cq]) {
            Ok(_) => return Ok(bytes),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pages;

    #[test]
    fn without_the_device_its_name_is_said() {
        // (What is in the way differs from machine to machine: no library, no RDMA in the kernel, or no device of that name.)
        let error = Adapter::<Pages>::open(Settings::new("ringway_none0")).unwrap_err();
        match error {
            OpenError::NoDevice(name) => assert_eq!(name, "ringway_none0"),
            OpenError::NoList(_) | OpenError::Library(_) => {}
            other => panic!("{other}"),
        }
    }
}
