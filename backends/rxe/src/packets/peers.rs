//! At which queue pair a peer's port is, and the way there.
//!
//! Both are found without waiting: librdmacm looks for the neighbour, then asks it by SIDR for the port, and tells by events. A peer that has sent something needs no question
//! but for the way: its datagrams say by which queue pair. The kernel's own questions have long time limits, so a question is asked anew here when no answer has come.
//!
//! What peers can have noted here is bounded: so many hosts, and so many ports of each, of which the oldest ones are forgotten. Whoever is forgotten is found again.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use rdma_core_sys as sys;
use ringway_stack::device::Protocol;
use ringway_stack::device::messages::{Addresses, Path};
use ringway_stack::time::Instant;
use ringway_stack::ud::Ends;

use super::datagrams::To;
use super::presences::Peer;
use super::services::asked_for;
use crate::adapter::PORT;
use crate::cm::{Depths, Event, EventChannel, Id};
use crate::paths::Handle;
use crate::verbs::Domain;

/// Hosts that are known, or asked about.
const HOSTS_MAX: usize = 1024;
/// Ports of one of them.
const PORTS_MAX: usize = 4096;
/// Questions that are not answered yet.
const QUESTIONS_MAX: usize = 256;
/// A question is asked anew after that time, so often.
const ANSWERS_WITHIN: Duration = Duration::from_millis(250);
const TRIES: u8 = 4;
/// A port where nobody is is asked for again after that time, and a host that does not answer after this.
const REFUSED_FOR: Duration = Duration::from_millis(200);
const SILENT_FOR: Duration = Duration::from_secs(30);
/// What librdmacm's own steps may take, in milliseconds.
const STEP_MS: i32 = 2000;

/// What is known of a way, or a port.
#[derive(Debug)]
enum Known<T> {
    /// It is asked for.
    Asked,
    /// There it is, since then.
    Found(T, Instant),
    /// It is not there, or not to be had, until then.
    Not(Instant),
}

#[derive(Debug, Default)]
struct Host {
    way: Option<Known<Arc<Handle>>>,
    ports: BTreeMap<(Protocol, u16), Known<u32>>,
    used: Option<Instant>,
}

/// What is asked about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// The way there.
    Way,
    /// A port.
    Port(Protocol, u16),
}

#[derive(Debug)]
struct Question {
    id: Id,
    host: Addresses,
    about: About,
    asked: Instant,
    tries: u8,
}

/// Where something is to go.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// There.
    At(To),
    /// It is asked for.
    Asked,
    /// Nobody is there.
    Nobody,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    hosts: BTreeMap<Addresses, Host>,
    questions: BTreeMap<u32, Question>,
    /// Where the last frame of a host went: fragments follow each other.
    last: Option<(Addresses, u32)>,
}

/// What questions are asked by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means<'a> {
    pub(crate) channel: &'a Arc<EventChannel>,
    pub(crate) domain: &'a Arc<Domain>,
    pub(crate) now: Instant,
    /// For the next question's events.
    pub(crate) number: u32,
}

impl Peers {
    /// Where a frame of ours goes; what is not known is asked for.
    pub(crate) fn find(&mut self, means: Means<'_>, ends: &Ends) -> Found {
        let Some(addresses) = Addresses::new(ends.src(), ends.dst()) else { return Found::Nobody };
        match *ends {
            Ends::Flow { protocol, dst, .. } => {
                let found = self.find_port(means, addresses, protocol, dst.port());
                if let Found::At(to) = &found {
                    self.last = Some((addresses, to.qpn));
                }
                found
            }
            Ends::Hosts { is_fragment: true, .. } => {
                let qpn = self.last.filter(|(last, _)| *last == addresses).map(|(_, qpn)| qpn);
                qpn.map_or(Found::Nobody, |qpn| self.find_way(means, addresses, qpn))
            }
            // (What is said between kernels goes between these.)
            Ends::Hosts { .. } => Found::Nobody,
        }
    }

    /// The same for whoever is about to send from `local` to `to`. `fresh`: what was found longer ago than that is asked for again.
    pub(crate) fn reach(
        &mut self,
        means: Means<'_>,
        protocol: Protocol,
        local: SocketAddr,
        to: SocketAddr,
        fresh: Option<Duration>,
    ) -> Found {
        let Some(addresses) = Addresses::new(local.ip(), to.ip()) else { return Found::Nobody };
        if let Some(host) = self.hosts.get_mut(&addresses)
            && let Some(Known::Found(_, since)) = host.ports.get(&(protocol, to.port()))
            && fresh.is_some_and(|fresh| means.now.since(*since) > fresh)
        {
            host.ports.remove(&(protocol, to.port()));
        }
        self.find_port(means, addresses, protocol, to.port())
    }

    fn find_port(&mut self, means: Means<'_>, addresses: Addresses, protocol: Protocol, port: u16) -> Found {
        let host = self.hosts.get(&addresses);
        match host.and_then(|host| host.ports.get(&(protocol, port))) {
            Some(&Known::Found(qpn, _)) => self.find_way(means, addresses, qpn),
            Some(Known::Asked) => Found::Asked,
            Some(Known::Not(until)) if *until > means.now => Found::Nobody,
            Some(Known::Not(_)) | None => self.ask(means, addresses, About::Port(protocol, port), 1),
        }
    }

    fn find_way(&mut self, means: Means<'_>, addresses: Addresses, qpn: u32) -> Found {
        match self.hosts.get(&addresses).and_then(|host| host.way.as_ref()) {
            Some(Known::Found(way, _)) => Found::At(To { way: Arc::clone(way), qpn }),
            Some(Known::Asked) => Found::Asked,
            Some(Known::Not(until)) if *until > means.now => Found::Nobody,
            Some(Known::Not(_)) | None => self.ask(means, addresses, About::Way, 1),
        }
    }

    /// A frame came from a peer's queue pair.
    pub(crate) fn learn(&mut self, now: Instant, ends: &Ends, qpn: u32) {
        let Ends::Flow { protocol, src, dst } = *ends else { return };
        let Some(addresses) = Addresses::new(dst.ip(), src.ip()) else { return };
        let host = self.host(now, addresses);
        host.used = Some(now);
        match host.ports.get_mut(&(protocol, src.port())) {
            Some(known) => *known = Known::Found(qpn, now),
            None => {
                if host.ports.len() >= PORTS_MAX {
                    // (Any of them: who is still there is learned again by what it sends next.)
                    host.ports.pop_first();
                }
                host.ports.insert((protocol, src.port()), Known::Found(qpn, now));
            }
        }
    }

    fn host(&mut self, now: Instant, addresses: Addresses) -> &mut Host {
        if !self.hosts.contains_key(&addresses) && self.hosts.len() >= HOSTS_MAX {
            let oldest = self.hosts.iter().min_by_key(|(_, host)| host.used).map(|(addresses, _)| *addresses);
            oldest.and_then(|oldest| self.hosts.remove(&oldest));
        }
        self.hosts.entry(addresses).or_insert_with(|| Host { used: Some(now), ..Host::default() })
    }

    fn ask(&mut self, means: Means<'_>, host: Addresses, about: About, tries: u8) -> Found {
        if self.questions.len() >= QUESTIONS_MAX {
            return Found::Nobody;
        }
        let Means { channel, now, number, .. } = means;
        let port = if let About::Port(_, port) = about { port } else { 0 };
        let begin = || {
            let id = Id::new(channel, sys::RDMA_PS_UDP, number)?;
            id.resolve_address(Some(SocketAddr::new(host.src(), 0)), SocketAddr::new(host.dst(), port), STEP_MS)?;
            Ok::<_, std::io::Error>(id)
        };
        match begin() {
            Ok(id) => {
                self.note(now, host, about, Known::Asked);
                self.questions.insert(number, Question { id, host, about, asked: now, tries });
                Found::Asked
            }
            Err(error) => {
                tracing::debug!("{} is not asked for: {error}", host.dst());
                self.note(now, host, about, Known::Not(now + SILENT_FOR));
                Found::Nobody
            }
        }
    }

    fn note(&mut self, now: Instant, host: Addresses, about: About, known: Known<u32>) {
        let host = self.host(now, host);
        match (about, known) {
            (About::Port(protocol, port), known) => _ = host.ports.insert((protocol, port), known),
            (About::Way, Known::Not(until)) => host.way = Some(Known::Not(until)),
            (About::Way, _) => host.way = Some(Known::Asked),
        }
    }

    /// Whether answers are awaited.
    pub(crate) fn is_asking(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Asks anew what was not answered, and gives up what was asked often enough. `number`: for the events of each question.
    pub(crate) fn tend(&mut self, means: Means<'_>, mut number: impl FnMut() -> u32) {
        let is_late = |question: &Question| means.now.since(question.asked) > ANSWERS_WITHIN;
        let late: Vec<u32> = self.questions.iter().filter(|(_, question)| is_late(question)).map(|(number, _)| *number).collect();
        for late in late {
            let Some(Question { host, about, tries, .. }) = self.questions.remove(&late) else { continue };
            if tries < TRIES {
                self.ask(Means { number: number(), ..means }, host, about, tries + 1);
            } else {
                tracing::debug!("{} does not answer", host.dst());
                self.note(means.now, host, about, Known::Not(means.now + SILENT_FOR));
            }
        }
    }

    /// About which addresses, ours and a peer's, a question of that number is.
    pub(crate) fn asked_of(&self, number: u32) -> Option<Addresses> {
        self.questions.get(&number).map(|question| question.host)
    }

    /// Which queue pair a peer's port is at, as far as is known.
    pub(crate) fn known(&self, addresses: Addresses, protocol: Protocol, port: u16) -> Option<u32> {
        match self.hosts.get(&addresses)?.ports.get(&(protocol, port))? {
            Known::Found(qpn, _) => Some(*qpn),
            Known::Asked | Known::Not(_) => None,
        }
    }

    /// Nobody is at that queue pair any more: what was there is asked for again.
    pub(crate) fn forget(&mut self, (addresses, gone): Peer) {
        if let Some(host) = self.hosts.get_mut(&addresses) {
            host.ports.retain(|_, known| !matches!(known, Known::Found(qpn, _) if *qpn == gone));
        }
    }

    /// Takes an event of a question. Whether something that was asked for is known now, one way or the other.
    pub(crate) fn on_event(&mut self, means: Means<'_>, event: &Event) -> bool {
        let now = means.now;
        let Some(question) = self.questions.get(&event.number) else { return false };
        let (host, about) = (question.host, question.about);
        match event.kind {
            sys::RDMA_CM_EVENT_ADDR_RESOLVED => {
                // (The kernel knows the neighbour now: to make the handle waits for nothing.)
                let known = match Handle::new(means.domain, PORT, &Path::new(host, 0)) {
                    Ok(handle) => Known::Found(Arc::new(handle), now),
                    Err(error) => {
                        tracing::debug!("no way to {}: {error}", host.dst());
                        Known::Not(now + SILENT_FOR)
                    }
                };
                let is_way = matches!(known, Known::Found(..));
                self.host(now, host).way = Some(known);
                if about != About::Way
                    && is_way
                    && self.questions.get(&event.number).is_some_and(|question| question.id.resolve_route(STEP_MS).is_ok())
                {
                    return false;
                }
                self.questions.remove(&event.number);
                if about != About::Way {
                    self.note(now, host, about, Known::Not(now + SILENT_FOR));
                }
                true
            }
            sys::RDMA_CM_EVENT_ROUTE_RESOLVED => {
                let About::Port(protocol, _) = about else { return false };
                if question.id.connect(0, Depths::default(), &asked_for(protocol)).is_ok() {
                    return false;
                }
                self.end(now, event.number, Known::Not(now + SILENT_FOR))
            }
            sys::RDMA_CM_EVENT_ESTABLISHED => self.end(now, event.number, Known::Found(event.datagrams_to.0, now)),
            sys::RDMA_CM_EVENT_REJECTED | sys::RDMA_CM_EVENT_UNREACHABLE => self.end(now, event.number, Known::Not(now + REFUSED_FOR)),
            sys::RDMA_CM_EVENT_ADDR_ERROR | sys::RDMA_CM_EVENT_ROUTE_ERROR | sys::RDMA_CM_EVENT_CONNECT_ERROR => {
                self.end(now, event.number, Known::Not(now + SILENT_FOR))
            }
            _ => false,
        }
    }

    fn end(&mut self, now: Instant, number: u32, known: Known<u32>) -> bool {
        let Some(Question { host, about, .. }) = self.questions.remove(&number) else { return false };
        self.note(now, host, about, known);
        true
    }

    /// The port's addresses have changed: ways are found anew.
    pub(crate) fn forget_ways(&mut self) {
        self.hosts.values_mut().for_each(|host| host.way = None);
    }

    /// All end.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
