//! A program that a broker serves: nothing that it says is believed.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use ringway_host::{Fd, leave};
use ringway_stack::device::{Device as _, FiveTuple, FlowRule, Protocol, QueueId, RuleError, RuleId, Target};
use ringway_stack::net::{LinkId, Query};
use ringway_stack::wire::{ipv4, ipv6, tcp};

use super::allowed::{self, kernel};
use super::house::House;
use super::message::{Answer, Question, Refusal, VERSION, namespace};
use super::repair::Repairs;
use super::threads::Threads;
use crate::card::XdpDevice;
use crate::error::AttachError;
use crate::loan::Loan;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Guest {
    /// No other has it, nor had it.
    pub(super) id: u64,
    pub(super) socket: OwnedFd,
    pub(super) uid: u32,
    pub(super) pid: i32,
    /// Why it is not served, which its first question is answered by.
    pub(super) refusal: Option<Refusal>,
    pub(super) since: Instant,
    pub(super) ring: Option<Lent>,
    /// A thread answers its question: it asks nothing else meanwhile.
    pub(super) is_asked: bool,
}

/// The ring that it has.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) interface: String,
    device: XdpDevice,
    pub(super) link: LinkId,
    pub(super) rules: BTreeMap<FiveTuple, RuleId>,
    pub(super) repairs: Repairs,
}

/// An answer, and what comes with it.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    loan: Option<(Loan, Arc<Fd>)>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, loan: None }
    }
}

impl Reply {
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let Some((Loan { memory, sockets, .. }, link)) = &self.loan else { return Vec::new() };
        let all = [link.raw(), memory.raw()].into_iter().chain(sockets.iter().map(Fd::raw));
        // SAFETY: the reply has them.
        all.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }).collect()
    }
}

impl Guest {
    /// What a question is answered by; `None`: a thread answers it ([`Guest::is_asked`]). Descriptors that are left are the caller's to close.
    pub(super) fn hear(
        &mut self,
        house: &mut House,
        question: Question,
        packet: &[u8],
        passed: &mut Vec<OwnedFd>,
    ) -> Result<Option<Reply>, Refusal> {
        let takes = matches!(question, Question::BeginRepair { .. } | Question::EndRepair { .. } | Question::Reserve { .. });
        // (A TCP socket of the broker's own network namespace.)
        let is_one = |socket: &OwnedFd| leave::is_tcp(socket) && house.is_here(socket.as_fd());
        if passed.len() != usize::from(takes) || !passed.iter().all(is_one) {
            return Err(Refusal::Descriptor);
        }
        let later = |asked: Result<(), Refusal>| asked.map(|()| None);
        let reply = match question {
            Question::Served { version } => {
                is_spoken(version)?;
                Ok(Answer::Served { interfaces: house.interfaces.keys().cloned().collect() }.into())
            }
            Question::Open { version, interface, namespace: theirs } => {
                is_spoken(version)?;
                if theirs != namespace() {
                    return Err(Refusal::Elsewhere);
                }
                self.open(house, &interface)
            }
            // All others are about a ring.
            _ if self.ring.is_none() => Err(Refusal::Malformed("there is no ring yet".to_owned())),
            Question::Attach(flow) => self.attach(house, flow.into()),
            Question::Detach(flow) => self.detach(house, &flow.into()),
            Question::LeaveToKernel(flow) => self.leave_to_kernel(house, &flow.into()),
            Question::UseNeighbour(address) => self.use_neighbour(house, address),
            Question::Inject { local } => self.inject(house, packet, local),
            Question::BeginRepair { local, remote } => return later(self.begin_repair(house, passed, (local, remote))),
            Question::EndRepair { probes } => return later(self.end_repair(house, passed, probes)),
            Question::Reserve { receive, send } => return later(self.reserve(house, passed, receive, send)),
        };
        reply.map(Some)
    }

    fn open(&mut self, house: &mut House, interface: &str) -> Result<Reply, Refusal> {
        if self.ring.is_some() {
            return Err(Refusal::Malformed("there is a ring already".to_owned()));
        }
        let (device, link) = house.device(interface)?;
        let (loan, front) = device.lend_ring().map_err(|error| match error {
            AttachError::Taken { what: XdpDevice::A_RING } => Refusal::Taken(interface.to_owned()),
            AttachError::Taken { .. } => Refusal::NotYet(interface.to_owned()),
            error => Refusal::CannotAttach(error.to_string()),
        })?;
        let answer = Answer::Opened { receives: loan.receives, sends: loan.sends, injects: house.injects() };
        self.ring = Some(Lent { interface: interface.to_owned(), device, link, rules: BTreeMap::new(), repairs: Repairs::default() });
        Ok(Reply { answer, loan: Some((loan, front)) })
    }

    pub(super) fn ring(&mut self) -> Result<&mut Lent, Refusal> {
        self.ring.as_mut().ok_or_else(|| Refusal::Malformed("there is no ring yet".to_owned()))
    }

    fn attach(&mut self, house: &mut House, flow: FiveTuple) -> Result<Reply, Refusal> {
        let uid = self.uid;
        let ring = self.ring()?;
        allowed::may_have(&mut house.monitor, ring.link, &mut house.holders, &flow, uid)?;
        let rule = FlowRule::flow(flow.protocol, flow.local, flow.remote);
        let attached = ring.device.attach(&rule, Target::Queue(QueueId(0))).map_err(|error| match error {
            RuleError::Taken => Refusal::FlowTaken,
            _ => Refusal::Full,
        })?;
        ring.rules.insert(flow, attached.rule);
        Ok(Answer::Done.into())
    }

    fn detach(&mut self, house: &House, flow: &FiveTuple) -> Result<Reply, Refusal> {
        let uid = self.uid;
        let ring = self.ring()?;
        let rule = ring.rules.remove(flow).ok_or(Refusal::NotItsFlow(flow.local))?;
        ring.device.detach(rule);
        ring.retire_ruleless(&house.threads, uid);
        Ok(Answer::Done.into())
    }

    fn leave_to_kernel(&mut self, house: &mut House, flow: &FiveTuple) -> Result<Reply, Refusal> {
        let uid = self.uid;
        let ring = self.ring()?;
        allowed::may_have(&mut house.monitor, ring.link, &mut house.holders, flow, uid)?;
        if flow.protocol != Protocol::Tcp || flow.remote.is_none() {
            return Err(Refusal::Malformed("a connection has a peer".to_owned()));
        }
        if ring.device.leave_to_kernel(flow) { Ok(Answer::Done.into()) } else { Err(Refusal::FlowTaken) }
    }

    fn use_neighbour(&mut self, house: &mut House, address: IpAddr) -> Result<Reply, Refusal> {
        let link = self.ring()?.link;
        let _ = house.monitor.refresh();
        let tables = house.monitor.tables();
        let route = tables.route(&Query { link: Some(link), ..Query::to(address) });
        let is_one = !address.is_multicast() && !address.is_loopback() && !address.is_unspecified() && tables.owner(address).is_none();
        // (Others it has no use for: they are reached by a router.)
        if !is_one || !route.is_ok_and(|route| route.neighbour(address) == address) {
            return Err(Refusal::NoNeighbour(address));
        }
        by_kernel(house.monitor.use_neighbour(link, address).map_err(io::Error::other))
    }

    /// A packet for the kernel, of a connection that is leaving for it. (Each time it is asked whose the connection is: it may have become another's.)
    fn inject(&mut self, house: &mut House, packet: &[u8], local: SocketAddr) -> Result<Reply, Refusal> {
        let uid = self.uid;
        let ring = self.ring()?;
        let (to, from) = ends_of(packet).ok_or_else(|| Refusal::Malformed("no packet of TCP follows it".to_owned()))?;
        let flow = FiveTuple { protocol: Protocol::Tcp, local, remote: Some(from) };
        if to != local || !ring.has(&flow) && !ring.device.is_left(&flow) {
            return Err(Refusal::NotItsFlow(to));
        }
        allowed::may_have(&mut house.monitor, ring.link, &mut house.holders, &flow, uid)?;
        let injector = house.injectors[usize::from(local.is_ipv6())].as_ref();
        by_kernel(injector.map_or_else(|| Err(io::ErrorKind::Unsupported.into()), |injector| injector.inject(packet, local)))
    }
}

impl Lent {
    /// The ring's rules end, and its place is free.
    pub(super) fn end(mut self, threads: &Threads, uid: u32) {
        self.device.leave(0);
        self.retire_all(threads, uid);
    }
}

fn is_spoken(version: u32) -> Result<(), Refusal> {
    if version == VERSION { Ok(()) } else { Err(Refusal::Version { broker: VERSION }) }
}

fn by_kernel(done: io::Result<()>) -> Result<Reply, Refusal> {
    done.map(|()| Answer::Done.into()).map_err(|error| kernel(&error))
}

/// For whom a packet of TCP is, and from whom.
fn ends_of(packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (source, destination, protocol, at): (IpAddr, IpAddr, u8, usize) = match packet.first()? >> 4 {
        4 => ipv4::Header::parse(packet).ok().map(|(ip, at)| (ip.src.into(), ip.dst.into(), ip.protocol, at))?,
        6 => ipv6::Header::parse(packet).ok().map(|(ip, at)| (ip.src.into(), ip.dst.into(), ip.next_header, at))?,
        _ => return None,
    };
    let segment = packet.get(at..).filter(|segment| protocol == ipv4::PROTOCOL_TCP && segment.len() >= tcp::LEN)?;
    let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    Some((SocketAddr::new(destination, port(2)), SocketAddr::new(source, port(0))))
}
