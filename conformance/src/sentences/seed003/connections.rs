//! 003.27 to 003.34: RDMA-CM's timeout control, late establishment, and the attributes of queue pairs.
//!
//! Each side has an adapter in software, with RDMA-CM's identifiers over it, whose packets are frames on the device.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use ringway_stack::Instant;
use ringway_stack::cm::{CmId, ConnectParams, EventKind, IdOption, Manager};
use ringway_stack::device::messages::{Data, Messages, Modify, QpConfig, SendOp, SendWr, State, Status, Transport};
use ringway_stack::net::{Address, Builder, Link, LinkId, LinkKind, NextHop, Prefix, RouteEntry, RouteKind, Scope, Table, Tables};

use super::packets;
use crate::sentences::roce::{ASKS, Above, Machine, Machines, SERVES};
use crate::sentences::{Case, Rig};

/// Where the passive side listens.
const PORT: u16 = 7471;
/// The timeout that is calculated where none is set: 2.1 s.
const CALCULATED: u8 = 19;

pub(super) fn timeout<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("a packet is sent again after the timeout that was set, and not before", packets, timeout_in_force)]
}

pub(super) fn option<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("without it the timeout is the calculated one, with it that one, on either side", packets, option_overrides)]
}

pub(super) fn flag<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("the flag, and the call before the connection is asked for", packets, flag_and_call)]
}

pub(super) fn postponed<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("the passive side waits", packets, passive_side_waits)]
}

pub(super) fn response<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("the event, with a queue pair and without", packets, which_event)]
}

pub(super) fn setup<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("a queue pair is made ready between the events, and gets the passive side's first message", packets, setup_between)]
}

pub(super) fn establish<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("the call and the event; refused of an identifier with a queue pair", packets, call_and_event)]
}

pub(super) fn attributes<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("the way, the peer's queue pair, and the terms", packets, attributes_are_the_peers)]
}

/// RDMA-CM's identifiers on both sides.
struct Ids([Manager; 2]);

impl Above for Ids {
    fn look(&mut self, now: Instant, side: usize, node: &mut Machine) -> Option<Instant> {
        self.0[side].poll(now, node);
        None
    }
}

struct Pair<'a, R> {
    machines: Machines<'a, R>,
    ids: Ids,
    is_listening: bool,
}

/// One link, one address, and its subnet.
fn tables(own: IpAddr) -> Tables {
    let link = LinkId(2);
    let mut builder = Builder::default();
    // (On shared memory the addresses are loopback's.)
    builder.links.push(Link::new(2, "roce0", if own.is_loopback() { LinkKind::Loopback } else { LinkKind::Ethernet }));
    builder.addresses.extend(Address::new(link, own, 24));
    let base = RouteEntry { preferred_source: Some(own), ..RouteEntry::new(Prefix::host(own), NextHop::new(link, None)) };
    builder.routes.push(RouteEntry { table: Table::LOCAL, kind: RouteKind::Local, scope: Scope::HOST, ..base.clone() });
    builder.routes.push(RouteEntry { destination: Prefix::new(own, 24).unwrap_or(base.destination), ..base });
    builder.build(1)
}

impl<'a, R: Rig> Pair<'a, R> {
    fn new(rig: &'a mut R) -> Result<Self> {
        Ok(Self { machines: Machines::new(rig)?, ids: Ids([Manager::new(), Manager::new()]), is_listening: false })
    }

    fn run_for(&mut self, time: Duration) -> Result<()> {
        self.machines.run_for(time, &mut self.ids)
    }

    fn run(&mut self) -> Result<()> {
        self.run_for(Duration::from_millis(100))
    }

    /// One side's identifiers, and its machine.
    fn half(&mut self, side: usize) -> (Instant, &mut Manager, &mut Machine) {
        (self.machines.now, &mut self.ids.0[side], &mut self.machines.nodes[side])
    }

    fn event(&mut self, side: usize) -> Option<EventKind> {
        self.ids.0[side].next_event().map(|event| event.kind)
    }

    /// An identifier that can connect; somebody listens.
    fn resolved(&mut self) -> Result<CmId> {
        let addresses = self.machines.addresses;
        let at = SocketAddr::new(addresses[SERVES], PORT);
        if !core::mem::replace(&mut self.is_listening, true) {
            let (_, cm, node) = self.half(SERVES);
            let listener = cm.create_id()?;
            cm.bind_address(&tables(addresses[SERVES]), listener, at)?;
            cm.listen(node, listener, 4)?;
        }
        let (_, cm, node) = self.half(ASKS);
        let id = cm.create_id()?;
        cm.resolve_address(&tables(addresses[ASKS]), node, id, None, at)?;
        cm.resolve_route(node, id)?;
        let events = [cm.next_event(), cm.next_event()].map(|event| event.map(|event| event.kind));
        ensure!(events == [Some(EventKind::AddressResolved), Some(EventKind::RouteResolved)], "{events:?}");
        Ok(id)
    }

    fn config(&mut self, side: usize) -> Result<QpConfig> {
        let (.., node) = self.half(side);
        let (pd, cq) = (Messages::alloc_pd(node), Messages::create_cq(node, 16)?);
        Ok(QpConfig { transport: Transport::Rc, pd, send_cq: cq, recv_cq: cq, send_depth: 4, recv_depth: 4, sges_max: 1, inline_max: 64 })
    }

    /// A queue pair of the identifier's.
    fn create_qp(&mut self, side: usize, id: CmId) -> Result<u32> {
        let config = self.config(side)?;
        let (now, cm, node) = self.half(side);
        Ok(cm.create_qp(now, node, id, config)?)
    }

    /// A queue pair of the program's own, and its completion queue.
    fn own_qp(&mut self, side: usize) -> Result<(u32, u32)> {
        let config = self.config(side)?;
        Ok((Messages::create_qp(&mut self.machines.nodes[side], config)?, config.recv_cq))
    }

    /// Asks, and gives the identifier that came with the request.
    fn ask(&mut self, id: CmId, qp_num: u32) -> Result<CmId> {
        let (now, cm, node) = self.half(ASKS);
        cm.connect(now, node, id, &ConnectParams { qp_num, ..ConnectParams::default() })?;
        self.run()?;
        match self.ids.0[SERVES].next_event() {
            Some(event) if matches!(event.kind, EventKind::ConnectRequest(_)) => Ok(event.id),
            other => bail!("no request: {other:?}"),
        }
    }

    /// Agrees, with a queue pair of the identifier's, which has a receive.
    fn agree(&mut self, asked: CmId) -> Result<u32> {
        let qp = self.create_qp(SERVES, asked)?;
        let (now, cm, node) = self.half(SERVES);
        Messages::post_recv(node, now, qp, 7, &[])?;
        cm.accept(now, node, asked, &ConnectParams::default())?;
        self.run()?;
        Ok(qp)
    }

    fn attribute(&self, side: usize, id: CmId, state: State) -> Result<Modify> {
        Ok(self.ids.0[side].init_qp_attr(&self.machines.nodes[side], id, state)?)
    }

    /// How long a queue pair of the identifier's would wait.
    fn timeout(&self, side: usize, id: CmId) -> Result<u8> {
        match self.attribute(side, id, State::Rts)? {
            Modify::Rts(sending) => Ok(sending.timeout),
            other => bail!("not from RTR to RTS: {other:?}"),
        }
    }

    /// The program makes its own queue pair ready, as far as `states` go.
    fn make_ready(&mut self, id: CmId, qp: u32, states: &[State]) -> Result<()> {
        for &state in states {
            let modify = self.attribute(ASKS, id, state)?;
            Messages::modify_qp(&mut self.machines.nodes[ASKS], self.machines.now, qp, &modify)?;
        }
        Ok(())
    }

    /// Up to the peer's answer, of a queue pair of the program's own.
    fn answered(&mut self) -> Result<Late> {
        let id = self.resolved()?;
        let (qp, cq) = self.own_qp(ASKS)?;
        let asked = self.ask(id, qp)?;
        let passive_qp = self.agree(asked)?;
        let event = self.event(ASKS);
        ensure!(matches!(event, Some(EventKind::ConnectResponse(_))), "the response: {event:?}");
        Ok(Late { id, qp, cq, passive_qp })
    }

    fn establish(&mut self, id: CmId) -> Result<()> {
        let (now, cm, node) = self.half(ASKS);
        cm.establish(now, node, id)?;
        self.run()
    }
}

/// A connection that the program is to establish.
struct Late {
    id: CmId,
    qp: u32,
    cq: u32,
    passive_qp: u32,
}

fn set<R: Rig>(pair: &mut Pair<'_, R>, side: usize, id: CmId, code: u8) -> Result<()> {
    Ok(pair.ids.0[side].set_option(id, IdOption::AckTimeout(code))?)
}

fn timeout_in_force<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::new(rig)?;
    let id = pair.resolved()?;
    let code = 14;
    set(&mut pair, ASKS, id, code)?;
    let qp = pair.create_qp(ASKS, id)?;
    let asked = pair.ask(id, 0)?;
    pair.agree(asked)?;
    pair.machines.is_cut = true;
    let wr = SendWr::new(1, SendOp::Send { immediate: None }, Data::Inline(b"x"));
    Messages::post_send(&mut pair.machines.nodes[ASKS], pair.machines.now, qp, &wr)?;
    pair.machines.sent = 0;
    let timeout = Duration::from_nanos(4096 << code);
    pair.run_for(timeout - Duration::from_nanos(1))?;
    ensure!(pair.machines.sent == 1, "{} packets before the timeout is over", pair.machines.sent);
    // At the earliest then, and at the latest after four times that (IBTA spec, volume 1, s9.7.6.1.3).
    pair.run_for(timeout * 3 + Duration::from_micros(1))?;
    ensure!(pair.machines.sent > 1, "nothing is sent again");
    Ok(())
}

fn option_overrides<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::new(rig)?;
    let id = pair.resolved()?;
    let (qp, _) = pair.own_qp(ASKS)?;
    let asked = pair.ask(id, qp)?;
    ensure!(pair.timeout(SERVES, asked)? == CALCULATED, "calculated: {}", pair.timeout(SERVES, asked)?);
    set(&mut pair, SERVES, asked, 12)?;
    ensure!(pair.timeout(SERVES, asked)? == 12, "the passive side's own");
    pair.agree(asked)?;
    ensure!(pair.timeout(ASKS, id)? == CALCULATED, "the active side has set none");
    Ok(())
}

fn flag_and_call<R: Rig>(rig: &mut R) -> Result<()> {
    ensure!(IdOption::AckTimeout(0).numbers() == (0, 3), "RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT");
    let mut pair = Pair::new(rig)?;
    let id = pair.resolved()?;
    set(&mut pair, ASKS, id, 17)?;
    ensure!(set(&mut pair, ASKS, id, 32).is_err(), "the timeout has five bits");
    let (qp, _) = pair.own_qp(ASKS)?;
    let asked = pair.ask(id, qp)?;
    ensure!(set(&mut pair, ASKS, id, 18).is_err(), "the connection was asked for");
    pair.agree(asked)?;
    ensure!(pair.timeout(ASKS, id)? == 17, "as it was set");
    Ok(())
}

fn passive_side_waits<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::new(rig)?;
    let late = pair.answered()?;
    // Connection management asks again after 4.3 s; the answer is not to be that the connection stands.
    pair.run_for(Duration::from_secs(6))?;
    ensure!(pair.event(SERVES).is_none(), "the passive side heard something");
    pair.make_ready(late.id, late.qp, &[State::Init, State::Rtr, State::Rts])?;
    pair.establish(late.id)?;
    ensure!(matches!(pair.event(SERVES), Some(EventKind::Established(_))), "now it stands");
    Ok(())
}

fn which_event<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::new(rig)?;
    let id = pair.resolved()?;
    let (qp, _) = pair.own_qp(ASKS)?;
    let asked = pair.ask(id, qp)?;
    pair.agree(asked)?;
    let event = pair.event(ASKS).context("an event")?;
    ensure!(event.number() == 5, "RDMA_CM_EVENT_CONNECT_RESPONSE, and not {event:?}");
    ensure!(Messages::qp_state(&pair.machines.nodes[ASKS], qp) == Some(State::Reset), "nobody touched the program's queue pair");

    let id = pair.resolved()?;
    pair.create_qp(ASKS, id)?;
    let asked = pair.ask(id, 0)?;
    pair.agree(asked)?;
    let events = [pair.event(ASKS), pair.event(SERVES)].map(|event| event.map(|event| event.number()));
    ensure!(events == [Some(9), Some(9)], "RDMA_CM_EVENT_ESTABLISHED on both sides, and not {events:?}");
    Ok(())
}

fn setup_between<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::new(rig)?;
    let late = pair.answered()?;
    pair.make_ready(late.id, late.qp, &[State::Init, State::Rtr])?;
    Messages::post_recv(&mut pair.machines.nodes[ASKS], pair.machines.now, late.qp, 3, &[])?;
    pair.make_ready(late.id, late.qp, &[State::Rts])?;
    pair.establish(late.id)?;
    ensure!(matches!(pair.event(SERVES), Some(EventKind::Established(_))), "it stands");
    let wr = SendWr::new(1, SendOp::Send { immediate: Some(9) }, Data::Inline(b""));
    Messages::post_send(&mut pair.machines.nodes[SERVES], pair.machines.now, late.passive_qp, &wr)?;
    pair.run()?;
    let got = Messages::poll_cq(&mut pair.machines.nodes[ASKS], late.cq).map(|got| (got.id, got.status, got.immediate));
    ensure!(got == Some((3, Status::Success, Some(9))), "the passive side's message: {got:?}");
    Ok(())
}

fn call_and_event<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::new(rig)?;
    let late = pair.answered()?;
    pair.establish(late.id)?;
    ensure!(matches!(pair.event(SERVES), Some(EventKind::Established(_))), "the passive side's event");
    ensure!(pair.event(ASKS).is_none(), "the active side needs none");
    ensure!(pair.establish(late.id).is_err(), "twice");

    let id = pair.resolved()?;
    pair.create_qp(ASKS, id)?;
    let asked = pair.ask(id, 0)?;
    pair.agree(asked)?;
    ensure!(pair.establish(id).is_err(), "an identifier with a queue pair is established already");
    Ok(())
}

fn attributes_are_the_peers<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::new(rig)?;
    let id = pair.resolved()?;
    ensure!(pair.attribute(ASKS, id, State::Rtr).is_err(), "before the peer's answer");
    let (qp, _) = pair.own_qp(ASKS)?;
    let asked = pair.ask(id, qp)?;
    let passive = pair.attribute(SERVES, asked, State::Rtr)?;
    let passive_qp = pair.agree(asked)?;
    let active = pair.attribute(ASKS, id, State::Rtr)?;
    for (modify, side, number) in [(active, ASKS, passive_qp), (passive, SERVES, qp)] {
        let Modify::Rtr(peer) = modify else { bail!("not from INIT to RTR: {modify:?}") };
        let ends = (peer.path.addresses.src(), peer.path.addresses.dst());
        ensure!(ends == (pair.machines.addresses[side], pair.machines.addresses[1 - side]), "the way of an address handle: {ends:?}");
        ensure!(peer.dest_qp == number, "the peer's queue pair: {} and not {number}", peer.dest_qp);
    }
    Ok(())
}
