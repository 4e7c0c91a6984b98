//! Rings on interfaces, beside those of shared memory: RINGWAY_DEVICE=shm,xdp:eth0. And on cards, RINGWAY_DEVICE=mlx5:mlx5_0, each of which has an interface of the kernel's.
//!
//! The kernel has the same interface, its addresses and its routes, and answers for its neighbours. So what a socket asks about a destination is asked of
//! the kernel's tables ([`Monitor`]), and what a ring asks about a neighbour, of the kernel ([`Neighbours`]): after each call that left such a question, and
//! by the progress thread, which sleeps on the monitor's descriptor.
//!
//! An interface with several queues may have several rings, among which they are shared out. Which queue a frame comes by is the interface's to say (RSS): so listeners and UDP
//! sockets have flows on all of them, what is accepted is on the ring that it comes to, and a connect takes a port whose answers come to the ring that it wants, where
//! the interface tells. Where it does not, answers find the connection, which goes over to where they come (`moving/landing.rs`).
//!
//! A card makes a ring when one is wanted ([`cards`]), and its rules say what comes to which: so there a listener or UDP socket has flows on one ring of it, by the allocation logic.
//!
//! A process that may not attach to an interface asks a broker for its ring ([`ringway_host::Lender`]), where one listens (RINGWAY_BROKER).
//!
//! An interface that cannot be attached to is the kernel's, and one line of the log says why. In the child of a fork it stays the parent's: the descriptors of its
//! program and its queues are closed there, so that they end with the parent; or the parent gives it up ([`late`]).

pub(crate) mod cards;
pub(crate) mod late;
mod several;

pub(crate) use self::several::Lands;

use core::sync::atomic::{AtomicU64, Ordering};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use ringway_devices::{NotAttached, Ring, RingQueues};
use ringway_host::{Monitor, Neighbours};
use ringway_params::Id;
use ringway_params::kind::{self, Driver, Named};
use ringway_report::{CarriedReport, InterfaceReport};
use ringway_stack::device::Protocol;
use ringway_stack::net::{Link, LinkId, LinkKind, Query};
use ringway_stack::offload::DeviceKind;
use ringway_stack::ring::{NextHop, RingConfig};
use ringway_stack::socket::way;
use ringway_stack::time::Instant;

use crate::params;
use crate::process::{self, Offload, Process};
use crate::rings::{RINGS_MAX, RingSet, Rings};
use crate::socket::flows::Place;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Interfaces {
    monitor: Monitor,
    all: Vec<Interface>,
    /// Their addresses, as sockets have flows for them.
    addresses: Vec<(u16, IpAddr)>,
    /// Of which tables those are.
    generation: u64,
}

#[derive(Debug)]
struct Interface {
    /// As RINGWAY_DEVICE has it.
    named: String,
    link: LinkId,
    /// Invariant: there is one.
    rings: Vec<Own>,
    /// The interface says to which of them something comes.
    knows_queues: bool,
    /// Others have some of its queues, or the kernel alone has.
    is_partial: bool,
    /// The card that its rings are on: they are not the interface's own.
    card: Option<String>,
    /// The card makes further rings, and rules say what comes to which of them.
    grows: Grows,
}

/// Whether an interface's rings become more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grows {
    /// They are as many as they were when it was attached to.
    Never,
    /// By one, when one is wanted.
    AsWanted,
    /// One is being opened.
    Now,
    /// They did, until the card had no more.
    NoMore,
}

#[derive(Debug)]
struct Own {
    number: u16,
    neighbours: Neighbours,
}

impl Interface {
    /// The first of its rings.
    fn first(&self) -> u16 {
        self.rings[0].number
    }

    fn numbers(&self) -> impl Iterator<Item = u16> {
        self.rings.iter().map(|own| own.number)
    }

    fn has(&self, ring: u16) -> bool {
        self.rings.iter().any(|own| own.number == ring)
    }

    /// Rules say what comes to which of its rings.
    fn is_steered(&self) -> bool {
        self.grows != Grows::Never
    }
}

/// Rings of the process that interfaces leave to threads, on shared memory.
const RINGS_KEPT: usize = 16;

/// How a destination is reached over an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// The first ring of the interface.
    pub(crate) ring: u16,
    /// From which address of the interface.
    pub(crate) source: IpAddr,
    pub(crate) hop: NextHop,
    /// The longest packet, in bytes, that the route carries.
    pub(crate) mtu: u16,
}

impl Interfaces {
    /// Attaches to the interfaces that RINGWAY_DEVICE names, and that the process has not. Each that cannot be had is the kernel's. Whether it has some now that it had not.
    pub(crate) fn attach(process: &'static Process) -> bool {
        let all_named = kind::interfaces(params::settings().text(Id::Device)).unwrap_or_default();
        if all_named.is_empty() {
            return false;
        }
        let (had, is_first) = {
            let offload = process.lock();
            (offload.interfaces.as_deref().map(Self::named).unwrap_or_default(), !offload.late.are_taken)
        };
        let mut monitor = match Monitor::open() {
            Ok(monitor) => Some(monitor),
            Err(error) => {
                tracing::warn!("interfaces are the kernel's: {error}");
                return false;
            }
        };
        let (mut has_more, mut are_taken) = (false, false);
        for named in all_named {
            if had.contains(&named.to_string()) {
                continue;
            }
            let name = match named.driver {
                Driver::Xdp => named.name.to_owned(),
                Driver::Mlx5 | Driver::Rxe => named.to_string(),
            };
            match Prepared::of(process, named).and_then(|prepared| prepared.add(process, &mut monitor)) {
                Ok(()) => {
                    tracing::info!("offloading over {name} as well");
                    has_more = true;
                }
                // (A parent has it, most likely, which has said so.)
                Err(NotAttached { why, is_taken }) => {
                    are_taken |= is_taken;
                    match () {
                        () if !is_first => tracing::debug!("{name} is still the kernel's: {why}"),
                        () if process::fork_generation() > 0 => tracing::info!("{name} is the kernel's: {why}"),
                        () => tracing::warn!("{name} is the kernel's: {why}"),
                    }
                }
            }
        }
        let mut offload = process.lock();
        // (Those that it had may have been given up meanwhile.)
        offload.late.are_taken = are_taken || !had.is_empty() && offload.interfaces.is_none();
        has_more
    }

    /// What they were called when they were attached to.
    fn named(&self) -> Vec<String> {
        self.all.iter().map(|interface| interface.named.clone()).collect()
    }

    /// The numbers of all rings that they have.
    fn rings(&self) -> Vec<u16> {
        self.all.iter().flat_map(Interface::numbers).collect()
    }

    /// Of which of the kernel's tables it speaks.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.monitor.tables().generation()
    }

    /// Says which these are to those who have not the process's lock ([`tables_generation`]).
    fn publish_generation(&self) {
        TABLES.store(self.generation(), Ordering::Relaxed);
    }

    /// The way to a destination, if it leads over one of these interfaces: for a socket that is bound there, if it is bound.
    pub(crate) fn path(&self, protocol: Protocol, bound: Option<SocketAddr>, to: SocketAddr) -> Option<Path> {
        let tables = self.monitor.tables();
        let query = Query {
            source: bound.map(|bound| bound.ip()).filter(|ip| !ip.is_unspecified()),
            // SAFETY: getuid has no preconditions.
            uid: unsafe { libc::getuid() },
            protocol: match protocol {
                Protocol::Tcp => libc::IPPROTO_TCP as u8,
                Protocol::Udp => libc::IPPROTO_UDP as u8,
            },
            source_port: bound.map_or(0, |bound| bound.port()),
            destination_port: to.port(),
            ..Query::to(to.ip())
        };
        let way = way(tables, &query).ok()?;
        let interface = self.all.iter().find(|interface| interface.link == way.link)?;
        // (A broadcast is the kernel's, and so is what leaves from another link's address: the answers come there.)
        let is_to_one = !matches!(way.hop, NextHop::Mac(mac) if mac.is_multicast());
        let is_its = tables.owner(way.source) == Some(interface.link);
        let mtu = u16::try_from(way.mtu).unwrap_or(u16::MAX);
        (is_to_one && is_its).then_some(Path { ring: interface.first(), source: way.source, hop: way.hop, mtu })
    }

    /// Where a socket that is bound there has flows: on which rings, with which addresses. One that is bound to every address has one for each that its
    /// interfaces have, so that what is for others, or for many, goes past it. `on_cards`: the ring that it has of each card, where that is not the first one.
    pub(crate) fn places(&self, bound: SocketAddr, takes_both: bool, on_cards: &[(LinkId, u16)]) -> Vec<Place> {
        let tables = self.monitor.tables();
        let is_any = bound.ip().is_unspecified();
        let is_meant = |ip: IpAddr| {
            if is_any { ip.is_ipv4() == bound.is_ipv4() || takes_both && ip.is_ipv4() } else { ip == bound.ip() }
        };
        // (A link-local address is one on each link, and the kernel's.)
        let is_plain = |ip: IpAddr| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let of = |interface: &Interface| {
            let own = tables.addresses_of(interface.link).iter().map(|own| own.address);
            let meant: Vec<_> = own.filter(|&ip| is_meant(ip) && is_plain(ip)).collect();
            let chosen =
                on_cards.iter().find(|(link, ring)| *link == interface.link && interface.has(*ring)).map_or(interface.first(), |of| of.1);
            let rings = interface.numbers().filter(|ring| !interface.is_steered() || *ring == chosen);
            rings.flat_map(|ring| meant.iter().map(move |&ip| (ring, ip))).collect::<Vec<_>>()
        };
        self.all.iter().flat_map(of).collect()
    }

    /// All links that there are.
    pub(crate) fn all_links(&self) -> impl Iterator<Item = LinkId> {
        self.monitor.tables().links().iter().map(|link| link.id)
    }

    /// Whether what comes by a link for a group is for sockets alone: neither for other links, above it or beside it on a bridge, nor to be sent on by a router of groups.
    pub(crate) fn is_apart(&self, link: LinkId) -> bool {
        let tables = self.monitor.tables();
        let Some(own) = tables.link(link) else { return false };
        // (A veth's other end is no link above it, and its number may be one of another network namespace.)
        let is_above = |other: &Link| other.parent == Some(link) && other.kind != LinkKind::Other("veth".into());
        let is_routed = |family: &str| {
            let path = format!("/proc/sys/net/{family}/conf/{}/mc_forwarding", own.name);
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
        };
        own.master.is_none() && !tables.links().iter().any(is_above) && !["ipv4", "ipv6"].iter().any(|family| is_routed(family))
    }

    /// The rings, with the names of their devices: those that their interfaces have now.
    pub(crate) fn names(&self) -> Vec<(u16, String)> {
        let tables = self.monitor.tables();
        let name = |interface: &Interface| match &interface.card {
            Some(_) => Some(interface.named.clone()),
            None => tables.link(interface.link).map(|link| format!("{}:{}", DeviceKind::Xdp, link.name)),
        };
        let of = |interface: &Interface| interface.rings.iter().filter_map(|own| Some((own.number, name(interface)?))).collect::<Vec<_>>();
        self.all.iter().flat_map(of).collect()
    }

    /// What there is to say of them.
    pub(crate) fn report(&self, rings: &Rings) -> Vec<InterfaceReport> {
        let tables = self.monitor.tables();
        let of = |interface: &Interface| {
            let own = interface.rings.iter().map(|own| rings.at(own.number).ring.queues_of_interface());
            let (of_rings, all): (Vec<_>, Vec<_>) = own.unzip();
            InterfaceReport {
                name: tables.link(interface.link).map(|link| link.name.to_string()).unwrap_or_default(),
                rings: of_rings,
                carried: interface.numbers().map(|ring| carried(&rings.at(ring).ring)).collect(),
                queues: all.into_iter().max().unwrap_or(0),
                knows_queues: interface.knows_queues,
                by_broker: rings.at(interface.first()).ring.lender().is_some(),
                card: interface.card.clone(),
            }
        };
        self.all.iter().map(of).collect()
    }

    /// Whether the tables are others than when this was asked last.
    fn have_changed(&mut self) -> bool {
        let generation = self.monitor.tables().generation();
        core::mem::replace(&mut self.generation, generation) != generation
    }

    /// Whether they have other addresses than when this was asked last.
    fn has_moved(&mut self) -> bool {
        let tables = self.monitor.tables();
        let of = |interface: &Interface| -> Vec<_> {
            tables.addresses_of(interface.link).iter().map(|own| (interface.first(), own.address)).collect()
        };
        let now: Vec<_> = self.all.iter().flat_map(of).collect();
        core::mem::replace(&mut self.addresses, now) != self.addresses
    }

    /// What the progress thread sleeps on.
    pub(crate) const fn monitor_fd(&self) -> RawFd {
        self.monitor.fd()
    }

    /// Passes on what these rings ask about neighbours, and tells them what the kernel knows. Which were told something, and polled.
    fn serve(&mut self, rings: &mut Rings, which: RingSet, now: Instant) -> RingSet {
        let mut told = RingSet::NONE;
        let all = self.all.iter_mut().flat_map(|interface| &mut interface.rings);
        for Own { number, neighbours } in all.filter(|own| which.contains(own.number)) {
            let own = rings.at_mut(*number);
            match own.ring.serve_neighbours(now, neighbours, &mut self.monitor) {
                Ok(false) => {}
                Ok(true) => {
                    own.poll(now);
                    told = told.with(RingSet::of(*number));
                }
                Err(error) => tracing::debug!("a neighbour is not asked for: {error}"),
            }
        }
        self.publish_generation();
        told
    }
}

/// The generation of the kernel's tables that are in use.
static TABLES: AtomicU64 = AtomicU64::new(0);

/// Which of the kernel's tables are in use: what was found by others is not believed any more.
#[inline]
pub(crate) fn tables_generation() -> u64 {
    TABLES.load(Ordering::Relaxed)
}

/// The index of the link that a ring is on. What comes by shared memory comes by the loopback, which is the first in each network namespace.
pub(crate) fn link_of(ring: u16) -> u32 {
    let of = |interfaces: &Interfaces| interfaces.all.iter().find(|interface| interface.has(ring)).map(|interface| interface.link.0);
    process::process().and_then(|process| process.lock().interfaces.as_deref().and_then(of)).unwrap_or(1)
}

fn carried(ring: &ringway_devices::Ring) -> CarriedReport {
    let counters = ring.counters();
    CarriedReport { rx_packets: counters.rx_packets, tx_packets: counters.tx_packets }
}

/// An interface that is attached to, before the process has it. (What is asked of the system, and of brokers, takes its time: without the process's lock.)
struct Prepared<'a> {
    named: Named<'a>,
    /// As the kernel calls it.
    name: String,
    card: Option<String>,
    knows_queues: bool,
    /// Of each ring, with its seed.
    queues: Vec<(RingQueues, [u8; 32])>,
}

impl<'a> Prepared<'a> {
    fn of(process: &'static Process, named: Named<'a>) -> Result<Self, NotAttached> {
        let broker = std::path::Path::new(params::settings().text(Id::Broker));
        let (said, staged_bytes) = (params::settings(), params::read().ring_dev_mem_tx);
        let (received_frames, huge_pages) = (params::frames_of_interface(said), params::huge_pages_of_card(said));
        let busy_poll = params::busy_poll(said);
        let attached = ringway_devices::Interface { named, broker, received_frames, staged_bytes, huge_pages, busy_poll };
        // (A card would give both a copy of what is for either.)
        if attached.card().is_some() && process::fork_generation() > 0 {
            return Err("a parent of this process may have rings there".to_owned().into());
        }
        let name = attached.of_kernel()?;
        let mut knows_queues = false;
        let wanted = |is_known| {
            knows_queues = is_known;
            let offload = process.lock();
            let room = RINGS_MAX.saturating_sub(offload.rings.present() + RINGS_KEPT).max(1) as u32;
            offload.extra_rings.wanted_of_interface(is_known).min(room)
        };
        let all = attached.attach(wanted)?;
        let seeded = all.into_iter().map(|queues| Ok((queues, params::random_seed()?)));
        let queues = seeded.collect::<Result<Vec<_>, std::io::Error>>().map_err(|error| error.to_string())?;
        Ok(Self { named, name, card: attached.card().map(str::to_owned), knows_queues, queues })
    }

    /// The process has it from now on. The first of all has the tables.
    fn add(self, process: &'static Process, monitor: &mut Option<Monitor>) -> Result<(), NotAttached> {
        let Self { named, name, card, knows_queues, queues } = self;
        let mut guard = process.lock();
        let offload = &mut *guard;
        let tables = match (&offload.interfaces, &*monitor) {
            (Some(interfaces), _) => interfaces.monitor.tables(),
            (None, Some(monitor)) => monitor.tables(),
            (None, None) => return Err("its tables went to interfaces that were given up".to_owned().into()),
        };
        let link = tables.link_named(&name).ok_or_else(|| "there is no such interface".to_owned())?.id;
        if offload.ending {
            return Err("the process ends".to_owned().into());
        }
        if offload.rings.present() + queues.len() > RINGS_MAX {
            return Err(format!("there are {} rings already", offload.rings.present()).into());
        }
        let of = On { link, named: &named.to_string(), name: &name, card: card.as_deref() };
        let own: Vec<Own> = queues.into_iter().map(|(queues, seed)| offload.add_ring_on(process, &of, queues, seed)).collect();
        if own.len() > 1 {
            tracing::info!("{name} has {} rings{}", own.len(), if knows_queues { "" } else { ", and does not say what comes to which" });
            if !knows_queues {
                offload.rings.watch_together(own.iter().map(|own| own.number).collect());
            }
        }
        let of_rings = own.iter().map(|own| offload.rings.at(own.number).ring.queues_of_interface());
        let (had, there) = of_rings.fold((0, 0), |(had, _), (queues, there)| (had + queues.len(), there));
        let is_partial = had < there as usize;
        if is_partial {
            let streams = if knows_queues { "" } else { ", and streams" };
            tracing::info!("of {name}, the kernel has what comes by other queues than these{streams}: {named}");
        }
        let grows = if offload.rings.at(own[0].number).ring.opener().is_some() { Grows::AsWanted } else { Grows::Never };
        let interface = Interface { named: named.to_string(), link, rings: own, knows_queues, is_partial, card, grows };
        let numbers: Vec<u16> = interface.numbers().collect();
        match (&mut offload.interfaces, monitor.take()) {
            (Some(interfaces), left) => {
                interfaces.all.push(interface);
                *monitor = left;
            }
            (none, Some(monitor)) => {
                *none = Some(Box::new(Interfaces { monitor, all: vec![interface], addresses: Vec::new(), generation: 0 }));
            }
            (None, None) => {}
        }
        if let Some(interfaces) = &mut offload.interfaces {
            interfaces.has_moved();
            interfaces.publish_generation();
        }
        numbers.into_iter().for_each(|ring| crate::capture::ring_begins(offload, process.clock, ring));
        Ok(())
    }
}

/// What a ring is on.
struct On<'a> {
    link: LinkId,
    /// As RINGWAY_DEVICE has it.
    named: &'a str,
    /// As the kernel calls the interface.
    name: &'a str,
    card: Option<&'a str>,
}

impl Offload {
    /// The process has one ring more, which is on that.
    fn add_ring_on(&mut self, process: &'static Process, on: &On<'_>, queues: RingQueues, seed: [u8; 32]) -> Own {
        let absent = self.rings.absent();
        let number = absent.unwrap_or(self.rings.len() as u16);
        let config = RingConfig { number, batch: process.params.cq_poll_batch_max, ..RingConfig::default() };
        let ring = Ring::new(queues, config, seed);
        let lender = ring.lender();
        match absent {
            Some(_) => self.rings.renew(number, ring, on.link),
            None => self.rings.add_of_interface(process.add_ring_of_interface(number, ring), on.link),
        }
        tracing::debug!("ring {number}: {}", on.named);
        if let Some(card) = on.card {
            crate::extra::facts::tell_of(&self.rings.at(number).ring, card, on.name, "");
        }
        if self.loans.lends {
            self.rings.at_mut(number).ring.lend_from_now_on();
        }
        Own { number, neighbours: Neighbours::new(on.link).told_by(lender) }
    }

    /// A call has used some rings: what those on interfaces ask about neighbours is passed on.
    #[inline]
    pub(crate) fn ask_for_neighbours(&mut self, touched: RingSet) {
        let asking = touched.and(self.rings.interfaces);
        if !asking.is_empty() && asking.iter().any(|ring| self.rings.at(ring).ring.has_neighbour_questions()) {
            self.serve_interfaces(asking, None);
        }
    }

    /// What has changed in the kernel's tables is told to all rings on interfaces. For the progress thread.
    pub(crate) fn serve_all_interfaces(&mut self, now: Instant) {
        if self.interfaces.is_some() {
            self.serve_interfaces(self.rings.interfaces, Some(now));
            if self.interfaces.as_mut().is_some_and(|interfaces| interfaces.have_changed()) {
                if self.interfaces.as_mut().is_some_and(|interfaces| interfaces.has_moved()) {
                    self.follow_addresses();
                }
                self.follow_path_mtus(now);
            }
            self.follow_landings(now);
            self.go_over_by_rules(now);
        }
    }

    #[cold]
    fn serve_interfaces(&mut self, which: RingSet, now: Option<Instant>) {
        let Some(now) = now.or_else(|| process::process().map(Process::now)) else { return };
        let Self { interfaces: Some(interfaces), rings, .. } = self else { return };
        let told = interfaces.serve(rings, which, now);
        self.tell_of_these(told);
    }
}
