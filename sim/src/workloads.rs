//! What hosts do in a scenario: each workload is a module of its own behind one small trait, [`Workload`].
//!
//! A workload draws its options from its own stream, so that taking one away changes no other; sets programs up; and when they have
//! finished, judges how they ended. It gets its own block of ports, so that workloads never meet by accident.

mod caller;
mod churn;
mod exchanges;
mod handover;
mod idle;
mod meeting;
mod multicast;
mod overflow;
mod pings;
mod probes;
mod set;
mod shared;
mod sides;
mod storm;
mod stranger;
#[cfg(test)]
mod tests;

pub use set::{UnknownWorkload, WorkloadSet};

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::Error;
use ringway_stack::device::Steering;
use ringway_stack::ring::FlowId;
use ringway_stack::tcp::Config;

use crate::apps::{Ending, Pings, Shared, Transfer};
use crate::faults::{FaultCounts, FaultSet};
use crate::host::App;
use crate::random::{Purpose, RandomStream, SplitMix, scale};
use crate::scenario::HostOptions;
use crate::world::{HostId, World};

/// Ports that each workload has for its servers and for its clients, and where the first workload's begin.
const SERVER_PORTS: u16 = 16;
const CLIENT_PORTS: u16 = 4096;
const SERVER_BASE: u16 = 80;
const CLIENT_BASE: u16 = 4096;

/// Where workloads' streams begin among those of [`Purpose::Options`].
const STREAM_BASE: u32 = 0x100;

/// One workload of a scenario. What it drew is its `Display`.
pub trait Workload: fmt::Debug + fmt::Display {
    /// Starts its programs.
    fn set_up(&mut self, site: &mut Site<'_>);

    /// For how long programs of its may do nothing, beyond what the bound of liveness allows for.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether silence on the wire can be of its making: someone pauses, or waits for a timer by design.
    fn pauses(&self) -> bool {
        false
    }

    /// How far its programs got, one line each.
    fn progress(&self) -> Vec<String>;

    /// Its programs have finished. Were they right to?
    ///
    /// # Panics
    /// They weren't.
    fn check(&self, verdict: &Verdict);

    /// Closes what still listens.
    fn wind_down(&mut self, world: &mut World);
}

/// Draws the options of all workloads in `set`.
pub(crate) fn draw(seed: u64, scale: u8, set: WorkloadSet, hosts: &[HostOptions]) -> Vec<Box<dyn Workload>> {
    let one = |workload: WorkloadSet| {
        let mut stream = RandomStream::new(seed, Purpose::Options, STREAM_BASE + workload.bits().trailing_zeros(), 0);
        draw_one(workload, &mut Ground { stream: &mut stream, seed, scale, hosts })
    };
    set.iter().map(one).collect()
}

fn draw_one(workload: WorkloadSet, ground: &mut Ground<'_>) -> Box<dyn Workload> {
    match workload {
        WorkloadSet::CHURN => Box::new(churn::Churn::draw(ground)),
        WorkloadSet::IDLE => Box::new(idle::Idle::draw(ground)),
        WorkloadSet::OVERFLOW => Box::new(overflow::Overflow::draw(ground)),
        WorkloadSet::UDP => Box::new(pings::PingSeries::draw(ground)),
        WorkloadSet::MULTICAST => Box::new(multicast::Multicast::draw(ground)),
        WorkloadSet::EPOLL => Box::new(storm::Storm::draw(ground)),
        WorkloadSet::HANDOVER => Box::new(handover::Handovers::draw(ground)),
        WorkloadSet::MEETING => Box::new(meeting::Meetings::draw(ground)),
        WorkloadSet::STRANGER => Box::new(stranger::Strangers::draw(ground)),
        WorkloadSet::SHARED => Box::new(shared::Sharings::draw(ground)),
        WorkloadSet::PROBES => Box::new(probes::Probes::draw(ground)),
        _ => Box::new(exchanges::Exchanges::draw(workload, ground)),
    }
}

/// What a workload's options are drawn on.
pub(crate) struct Ground<'a> {
    /// The workload's own stream.
    pub(crate) stream: &'a mut RandomStream,
    pub(crate) seed: u64,
    pub(crate) scale: u8,
    pub(crate) hosts: &'a [HostOptions],
}

impl Ground<'_> {
    /// Two different hosts.
    fn two_hosts(&mut self) -> [usize; 2] {
        let first = self.host();
        let step = usize::try_from(self.stream.between(1, self.hosts.len() as u64 - 1)).unwrap_or(1);
        [first, (first + step) % self.hosts.len()]
    }

    fn host(&mut self) -> usize {
        self.index(self.hosts.len())
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.stream.below(bound as u64)).unwrap_or(0)
    }

    fn size(&mut self, low: usize, high: usize) -> usize {
        usize::try_from(self.stream.magnitude(low as u64, high as u64)).unwrap_or(high)
    }
}

/// Where a workload is set up.
pub struct Site<'a> {
    /// The world.
    pub world: &'a mut World,
    /// Its hosts.
    pub hosts: &'a [HostId],
    /// What was drawn for them.
    pub options: &'a [HostOptions],
    /// The VLAN that all of them are in.
    vlan: Option<u16>,
    workload: WorkloadSet,
    /// Which ring a program is put on follows from this, so that a workload less changes no other.
    places: SplitMix,
}

impl<'a> Site<'a> {
    pub(crate) fn new(
        world: &'a mut World,
        hosts: &'a [HostId],
        (options, vlan): (&'a [HostOptions], Option<u16>),
        seed: u64,
        workload: WorkloadSet,
    ) -> Self {
        let places = SplitMix(seed ^ u64::from(workload.bits()).rotate_left(32));
        Self { world, hosts, options, vlan, workload, places }
    }

    /// A server's port.
    fn server_port(&self, index: u16) -> u16 {
        SERVER_BASE + self.number() * SERVER_PORTS + index
    }

    /// A client's port; clients count theirs from zero on.
    fn client_port(&self, index: u16) -> u16 {
        assert!(index < CLIENT_PORTS, "a workload has {CLIENT_PORTS} client ports");
        CLIENT_BASE + self.number() * CLIENT_PORTS + index
    }

    /// A ring of a host for a program to run on.
    fn ring(&mut self, host: usize) -> usize {
        let draw = self.places.next();
        usize::try_from(scale(draw, self.options[host].rings as u64)).unwrap_or(0)
    }

    /// Starts a server, now and after each crash: on one ring of its host, or on each, and there one program or several, which then share the
    /// listening port. `make` is given the configuration of a listening socket and where to note it.
    fn add_server<A: App + 'static>(
        &mut self,
        host: usize,
        standing: &mut Standing,
        make: impl Fn(Config, Shared<Option<FlowId>>) -> A + Clone + 'static,
    ) {
        let (one, everywhere) = (self.ring(host), self.places.next().is_multiple_of(2));
        // A listening port is shared by a group of rings.
        let shares = self.options[host].nic.steering.contains(Steering::RSS);
        let rings = if everywhere && shares { 0..self.options[host].rings } else { one..one + 1 };
        // So may several listeners of one ring share it, where rules that are shared can be had.
        let programs = if shares { [1, 1, 2, 3][usize::try_from(scale(self.places.next(), 4)).unwrap_or(0)] } else { 1 };
        let config = Config { reuse_port: rings.len() * programs > 1, ..self.options[host].tcp.clone() };
        for ring in rings {
            for _ in 0..programs {
                let (make, config, socket) = (make.clone(), config.clone(), standing.add(self.hosts[host], ring));
                let start = move || -> Box<dyn App> {
                    socket.set(None);
                    Box::new(make(config.clone(), socket.clone()))
                };
                self.world.add_restartable_on(self.hosts[host], ring, start);
            }
        }
    }

    fn address(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::new(self.world.host(self.hosts[host]).ip(), port)
    }

    fn number(&self) -> u16 {
        u16::try_from(self.workload.bits().trailing_zeros()).unwrap_or(0)
    }
}

/// Sockets that stay open until a workload winds down.
#[derive(Debug, Default)]
struct Standing(Vec<(HostId, usize, Shared<Option<FlowId>>)>);

impl Standing {
    /// A place where a program notes such a socket.
    fn add(&mut self, host: HostId, ring: usize) -> Shared<Option<FlowId>> {
        let socket = Shared::new(None);
        self.0.push((host, ring, socket.clone()));
        socket
    }

    fn close(&self, world: &mut World) {
        for (host, ring, socket) in &self.0 {
            if let Some(socket) = *socket.read() {
                world.call_on(*host, *ring, |cx| cx.ring.close(cx.now, socket, false));
            }
        }
    }
}

/// What befell a run, as far as it excuses anything.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The classes that were let loose.
    pub faults: FaultSet,
    /// How often they, and full queues, struck.
    pub counts: FaultCounts,
    /// Frames that hosts had to drop before they were sent, their send queues or buffers being full.
    pub unsent: u64,
    /// Programs hold datagrams that they have read: those behind them may find no room.
    pub lends: bool,
    /// Some NIC's rules steer a while after they were asked for.
    pub slow_rules: bool,
}

impl Verdict {
    /// Whether nothing went wrong: no fault was let loose, and no queue overflowed.
    pub fn calm(&self) -> bool {
        self.faults.is_empty() && self.counts == FaultCounts::default()
    }

    /// Whether a conversation that both sides meant to keep may have failed: something did strike that takes frames, or keeps a host
    /// from answering, for as long as connections last. What only makes frames late, or has them twice, ends none: drawn delays are far
    /// shorter than the least time that a connection waits for an answer (4.5 s). Nor does what the stack must see through:
    /// forged errors, a path's smaller MTU that it was told of, a send queue or registration that fails for a while.
    pub fn may_fail(&self) -> bool {
        let FaultCounts { lost, burst_lost, corrupted, frame_check, queue_full, host_down, crashes, link_down, .. } = self.counts;
        let FaultCounts {
            partitioned,
            one_way,
            nic_resets,
            send_errors,
            cq_overruns,
            rx_exhausted,
            pauses,
            clock_jumps,
            neighbour_changes,
            lied,
            ..
        } = self.counts;
        let taken = [lost, burst_lost, corrupted, frame_check, queue_full, host_down, link_down, partitioned, one_way];
        // (A neighbour's old address is believed for 30 s, as Linux's base_reachable_time has it: longer than keepalives wait.)
        let silenced = [neighbour_changes, lied, self.untold()];
        let broken = [crashes, nic_resets, send_errors, cq_overruns, rx_exhausted, pauses, clock_jumps];
        taken.iter().chain(&broken).chain(&silenced).any(|&count| count > 0)
    }

    /// Frames too long for their path of which nobody was told: a black hole.
    fn untold(&self) -> u64 {
        self.counts.too_long.saturating_sub(self.counts.fragmentation_needed)
    }

    /// Whether a connection may have ended so: see [`Verdict::may_fail`]; a server that could not listen yet refuses whoever comes; and a client may learn
    /// late that its NIC has no rule for it. A listener that joins its port's group late takes handshakes over from another, and resets them until the
    /// connection's own rule steers, as with SO_REUSEPORT in a kernel (socket(7), tcp_migrate_req aside). Behind its peer's end, a connection that
    /// is reset says [`Error::Pipe`].
    fn excuses(&self, error: Error) -> bool {
        let late = self.counts.registration_failures > 0;
        let lacks_rule = error == Error::NoBuffers && late;
        let joined_late = matches!(error, Error::Reset | Error::Pipe) && late && self.slow_rules;
        self.may_fail() || lacks_rule || joined_late || self.may_refuse() && error == Error::Refused
    }

    /// Whether a server may not have been there: it had no rule yet, or its host was starting again.
    fn may_refuse(&self) -> bool {
        self.counts.registration_failures > 0 || self.counts.crashes > 0
    }

    /// Whether a program may have read something that was not written, and sent someone away who had been announced under another name.
    fn may_misread(&self) -> bool {
        self.counts.hidden_corrupted > 0
    }

    /// Whether a frame may have arrived twice.
    pub fn may_repeat(&self) -> bool {
        self.counts.duplicated > 0 || self.counts.forged > 0
    }

    /// Whether the datagram of this number may have been heard so often. One with hardly more than its number in it may have been another, until it was changed
    /// where no checksum tells.
    fn may_be_heard(&self, pings: &Pings, number: u64, times: u64) -> bool {
        times == 1 || self.may_repeat() || self.may_misread() && !pings.is_distinct(number)
    }

    /// A side's ending must have been a whole conversation's, unless it is excused.
    fn check_ending(&self, what: &dyn fmt::Display, transfer: &Transfer, excused: bool) {
        let lawful = match transfer.ending {
            Some(Ending::Whole | Ending::Aborted | Ending::Left | Ending::Carried) => true,
            Some(Ending::Failed(error)) => excused || self.excuses(error),
            // A client that failed before the server heard of it leaves the server without a part.
            None => excused || self.may_fail() || self.may_refuse(),
        };
        assert!(lawful, "nothing went wrong that could end a conversation, yet one ({what}) did: {:?}", transfer.ending);
    }
}
