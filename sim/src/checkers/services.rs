//! Services: what a host's ring did between being woken and going back to sleep.

use core::time::Duration;

use ringway_stack::Instant;
use ringway_stack::device::Queues;
use ringway_stack::ring::{Event, FlowId, Readiness, Ring};

use super::{Checkers, Moment, closing, edges, forged, info, loans, moves, resources, rto, shadow, timers, window};
use crate::nic::{Outstanding, SimQueues};
use crate::sockets::{Sockets, readiness};

type R = Ring<SimQueues>;

/// A deadline this near may be that of a device which refused a frame.
const STALL_MAX: Duration = Duration::from_millis(5);
/// A NIC with so few receive buffers may run out of them in the middle of a service.
const FEW_BUFFERS: usize = 1024;
/// Services from one look at a connection in TIME-WAIT to the next one.
const TURNS: usize = 4;
/// When to look again at who may be waiting for the device.
const STALL_LOOK: Duration = Duration::from_millis(100);

impl Checkers {
    /// A host is about to poll its ring.
    pub(crate) fn polls(&mut self, place: usize, now: Instant, ring: &R) {
        let ring_state = &mut self.ring_states[place];
        ring_state.now = now;
        for &socket in &ring_state.hearers {
            if let Some(sock) = ring_state.sockets.get_mut(&socket) {
                sock.hearing.polls();
            }
        }
        let standing = ring.queues().standing();
        ring_state.scarce |= standing.scarce || standing.rx_buffers_max <= FEW_BUFFERS;
        (ring_state.merges, ring_state.mac_per_ring) = (standing.merges, standing.has_mac_per_ring);
        ring_state.gathers = standing.gathers;
        ring_state.raw |= standing.has_raw_ring;
        ring_state.mtu = ring.queues().capabilities().mtu;
        let host = ring_state.host;
        self.flows.unsteered(host, ring.queues().take_unsteered());
    }

    /// A host's clock jumped: each of its timers may run out at once, and from now on everything there goes by the new time.
    pub(crate) fn jumped(&mut self, now: Instant, host: usize, by: Duration) {
        self.note_jumped(by);
        for &place in &self.places[host] {
            let ring_state = &mut self.ring_states[place];
            ring_state.ahead += by;
            ring_state.excused = ring_state.excused.max(now + ring_state.ahead);
        }
    }

    /// An event was taken.
    pub(crate) fn event(&mut self, place: usize, event: Event) {
        let moment = self.moment(place, None);
        let ring_state = &mut self.ring_states[place];
        let Some(sock) = ring_state.sockets.get_mut(&event.flow) else { return };
        if sock.closed.is_some() {
            edges::after_close(&moment, event.edges);
        }
        sock.edges.told(event.edges);
        if let Some(id) = sock.endpoint.filter(|_| event.edges.contains(Readiness::ERR)) {
            self.flows.at_mut(id).shadow.failed = true;
        }
        sock.raised |= event.edges;
        if event.edges.contains(Readiness::IN) {
            sock.hearing.raised();
        }
        ring_state.touch(event.flow);
    }

    /// All events of a poll were taken: each socket that something came for is looked at. `caller`: the one whose call has polled.
    pub(crate) fn polled(&mut self, place: usize, ring: &R, caller: Option<FlowId>) {
        let ring_state = &mut self.ring_states[place];
        ring_state.errors_under_way.polled(ring_state.now);
        if ring_state.touched.is_empty() {
            return;
        }
        let moment = self.moment(place, None);
        self.datagrams_polled(&moment, ring);
        for at in 0..self.ring_states[place].touched.len() {
            let socket = self.ring_states[place].touched[at];
            let endpoint = self.endpoint(place, socket);
            let Some(info) = ring.info(socket) else { continue };
            let mut had_room = false;
            if let Some(id) = endpoint {
                let own = self.flows.at_mut(id);
                had_room = own.info.progressed();
                had_room |= own.info.sampled(moment.at, info.cwnd);
            }
            let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) else { continue };
            let raised = core::mem::replace(&mut sock.raised, Readiness::empty());
            if sock.closed.is_none() {
                sock.loans.polled(&moment, &info, loans::dropped_bytes(ring, socket), sock.receive_max);
                let now = (readiness(ring, socket), sock.arrivals(&self.flows, info.recv_queue));
                if caller == Some(socket) {
                    sock.edges.polled_by_call(&moment, info.local, now, raised);
                } else {
                    sock.edges.polled(&moment, info.local, now, raised, had_room);
                }
            }
        }
    }

    /// A host has come to rest, and its frames are on the wire.
    pub(crate) fn serviced(&mut self, place: usize, now: Instant, ring: &R) {
        let ring_state = &mut self.ring_states[place];
        let now = now + ring_state.ahead;
        ring_state.now = now;
        let moment = self.moment(place, None);
        let deadline = ring.next_deadline();
        if deadline.is_some_and(|at| at <= now) {
            moment.breach(timers::NAME, format_args!("a deadline ({deadline:?}) that is not in the future"));
        }
        let stalled = deadline.is_some_and(|at| at <= now + STALL_MAX);
        let mut touched = core::mem::take(&mut self.ring_states[place].touched);
        for socket in touched.drain(..) {
            self.look(&moment, socket, ring, stalled);
        }
        self.ring_states[place].touched = touched;
        self.ring_states[place].hearers.clear();
        self.take_turn(&moment, ring);
        self.settle(&moment, ring);
        let drops = ring.counters().tx_drops;
        let ring_state = &mut self.ring_states[place];
        ring_state.dropped |= drops > ring_state.tx_drops;
        (ring_state.refused, ring_state.tx_drops) = (ring.refused(), drops);
        ring_state.balked |= ring_state.refused || drops > 0;
        let before = core::mem::replace(&mut ring_state.serviced_at, now);
        ring_state.refused_since = ring_state.refused.then(|| ring_state.refused_since.unwrap_or(before));
        if self.places[moment.host].last() == Some(&place) {
            self.settle_shadows(moment.host);
        }
    }

    /// A host's rings have all been serviced: what they owe for all that came is on the wire.
    fn settle_shadows(&mut self, host: usize) {
        if self.was_idle(host) {
            return self.settle_idle(host);
        }
        let mut service = shadow::Service { calm: self.is_calm(host), free: true, ..shadow::Service::default() };
        for &place in &self.places[host] {
            let ring_state = &mut self.ring_states[place];
            service.free &= !ring_state.refused;
            service.refused |= ring_state.balked;
            service.dropped |= ring_state.dropped;
            service.scarce |= core::mem::take(&mut ring_state.scarce);
            service.merges |= ring_state.merges;
        }
        let excused = self.places[host].iter().map(|&place| self.ring_states[place].excused).max();
        if service.free {
            // What the device refused of what strangers are told is told no more.
            let dropped = self.places[host].iter().fold(false, |any, &place| core::mem::take(&mut self.ring_states[place].dropped) | any);
            self.settle_strays(
                host,
                service.calm && !dropped && excused.is_none_or(|excused| self.ring_states[self.first(host)].now > excused),
            );
            let judged = service.calm && !dropped && !self.is_raw(host);
            self.settle_answers(host, judged);
            self.settle_groups(host, judged);
            self.settle_neighbours(host, judged);
            self.settle_move(host, !dropped && !self.is_raw(host));
        } else {
            self.settle_answers(host, false);
            self.settle_groups(host, false);
            self.settle_neighbours(host, false);
            self.settle_move(host, false);
        }
        let mut stirred = core::mem::take(&mut self.stirred[host]);
        for id in stirred.drain(..) {
            self.settle_shadow(host, id, service);
        }
        self.stirred[host] = stirred;
    }

    /// Whether nothing came to a host, or went from it, since the service before, and nothing is awaited of it.
    fn was_idle(&self, host: usize) -> bool {
        let neighbour_table = &self.neighbour_tables[host];
        self.stirred[host].is_empty()
            && self.strays[host].is_empty()
            && !self.answers[host].is_stirred()
            && !neighbour_table.is_busy()
            && !neighbour_table.moved
            && self.places[host].iter().all(|&place| self.ring_states[place].groups.are_quiet())
    }

    /// As [`Checkers::settle_shadows`], where only what is noted of the device is to be forgotten.
    fn settle_idle(&mut self, host: usize) {
        let free = !self.places[host].iter().any(|&place| self.ring_states[place].refused);
        for &place in &self.places[host] {
            let ring_state = &mut self.ring_states[place];
            ring_state.scarce = false;
            ring_state.dropped &= !free;
        }
    }

    /// An endpoint of a host that was serviced, which something came to or went from since the service before.
    fn settle_shadow(&mut self, host: usize, id: usize, service: shadow::Service) {
        let own = self.flows.at(id);
        // Its addresses may already be another connection's, which the program began as soon as this one had left the ring; and its place another host's.
        if own.host != host || own.succeeded {
            return;
        }
        let (own, peer) = self.flows.both(id);
        (own.merges, own.calm) = (service.merges, service.calm);
        let (place, peer) = (own.owner.map_or(usize::MAX, |(place, _)| place), peer.map(|peer| &*peer));
        let ring_state = self.ring_states.get(place).or(self.ring_states.get(self.places[host][0]));
        let (ip, at, excused) =
            ring_state.map_or((None, Instant::ZERO, Instant::ZERO), |ring_state| (ring_state.ip, ring_state.now, ring_state.excused));
        let (hampered, hampered_since) =
            ring_state.map_or((Instant::ZERO, Instant::ZERO), |ring_state| (ring_state.hampered, ring_state.hampered_since));
        let steady = ring_state.is_some_and(|ring_state| !ring_state.balked);
        let moment = Moment { place, host, ip, at, excused, hampered, hampered_since, frame: None, connection: Some(own.tuple) };
        let received = own.irs.and_then(|irs| own.shadow.receiver.bytes(irs));
        shadow::serviced(&moment, own, peer, service);
        moves::serviced(&moment, own, service.free && !service.refused);
        own.free = service.free;
        if let Some(peer) = peer {
            info::serviced(&moment, own, peer, service, steady);
        }
        let more = received.is_some() && received < own.irs.and_then(|irs| own.shadow.receiver.bytes(irs));
        if let Some((place, socket)) = own.owner
            && let Some(sock) = self.ring_states[place].sockets.get_mut(&socket).filter(|sock| sock.closed.is_none())
        {
            sock.edges.serviced(&moment, own, more && sock.since < moment.at);
        }
        if let Some(since) = shadow::begins_waiting(own)
            && let Some((place, socket)) = own.owner
            && let ring_state = &mut self.ring_states[place]
            && let Some(sock) = ring_state.sockets.get_mut(&socket)
        {
            sock.waiting = Some(rto::Waiting { since, time: ring_state.time_wait });
            ring_state.waiting.push(socket);
        }
    }

    /// Whoever spoke to nobody was told so (RFC 9293 s3.10.7.1). `judged`: the host has no excuse.
    fn settle_strays(&mut self, host: usize, judged: bool) {
        if judged && self.strays[host].has_unknown() && !self.places[host].iter().any(|&place| self.ring_states[place].raw) {
            self.judge_strays(host);
        }
        self.strays[host].serviced();
    }

    fn judge_strays(&self, host: usize) {
        let moment = self.moment(self.first(host), None);
        for stray in self.strays[host].unknown() {
            let (local, remote) = stray.tuple;
            let listens = || self.places[host].iter().any(|&place| self.ring_states[place].bound.contains_key(&(true, local.port())));
            let is_known =
                || self.flows.id(stray.tuple).is_some() || self.flows.id((remote, local)).is_some_and(|id| self.flows.at(id).lawless);
            let ours = moment.ip == Some(local.ip()) && !self.strangers.contains(&local) && !self.strangers.contains(&remote);
            let once = || self.begun.contains(&stray.tuple) || self.opened_at.contains_key(&(host, local.port()));
            if ours && !listens() && !is_known() && !once() {
                self.strays[host].must_reset(&moment, stray);
            }
        }
    }

    /// Time has passed, perhaps without the host noticing: what it should have asked to be woken for is overdue.
    pub(crate) fn passed(&mut self, place: usize, now: Instant, ring: &R) {
        // A host that asked and was not served (it was paused) is not to blame.
        let Some(now) = self.ring_states.get(place).map(|ring_state| now + ring_state.ahead) else { return };
        if ring.next_deadline().is_some_and(|at| at <= now) || ring.queues().rx_ready() {
            return;
        }
        self.ring_states[place].now = now;
        let moment = self.moment(place, None);
        self.settle(&moment, ring);
    }

    fn look(&mut self, moment: &Moment, socket: FlowId, ring: &R, stalled: bool) {
        let endpoint = self.endpoint(moment.place, socket);
        let info = ring.info(socket);
        if let Some(id) = endpoint {
            let own = self.flows.at_mut(id);
            if let Some(info) = &info {
                info::told(&moment.about(own.tuple), own, *info);
            }
            let asks = own.window.is_shut() && self.questions.contains_key(&(moment.host, own.tuple.1.ip()));
            let stalled = stalled || own.moves.is_silent();
            window::serviced(moment.at, own, stalled, asks);
            self.schedule(moment.place, id);
        }
        let ring_state = &mut self.ring_states[moment.place];
        let Some(sock) = ring_state.sockets.get_mut(&socket) else { return };
        sock.touched = false;
        sock.hearing.polls();
        if let (false, Some(info)) = (sock.unsummed.is_empty(), &info) {
            // What the program's filter holds or has dropped, it has heard of.
            let filtered =
                ring.has_candidate(socket) || loans::dropped_bytes(ring, socket) > 0 || info.counters.rx_drops > sock.drops_before;
            forged::unheard(moment, &mut sock.unsummed, info.recv_queue > 0, filtered);
        }
        sock.drops_before = info.as_ref().map_or(0, |info| info.counters.rx_drops);
        let state = info.and_then(|info| info.state);
        if let Some(waiting) = sock.waiting {
            let excused = endpoint.is_some_and(|id| self.flows.at(id).disturbed);
            if !rto::is_kept(moment, waiting, state, excused) {
                sock.waiting = None;
            }
        }
        if info.is_none() && sock.waiting.is_none() && sock.closed.is_none_or(|closed| !closed.reset_due) {
            ring_state.sockets.remove(&socket);
        }
    }

    fn schedule(&mut self, place: usize, id: usize) {
        let own = self.flows.at_mut(id);
        let ring_state = &mut self.ring_states[place];
        if let Some((at, _)) = timers::due(own, ring_state.excused)
            && own.timers.scheduled.is_none_or(|scheduled| at < scheduled)
        {
            own.timers.scheduled = Some(at);
            ring_state.agenda.insert((at, id));
        }
    }

    /// Looks at one connection in TIME-WAIT, in one service of some: nothing else might touch it before its time is up.
    fn take_turn(&mut self, moment: &Moment, ring: &R) {
        let ring_state = &mut self.ring_states[moment.place];
        ring_state.turn = ring_state.turn.wrapping_add(1);
        if ring_state.waiting.is_empty() || !ring_state.turn.is_multiple_of(TURNS) {
            return;
        }
        let turn = ring_state.turn / TURNS % ring_state.waiting.len();
        let socket = ring_state.waiting[turn];
        self.look(moment, socket, ring, true);
        let ring_state = &mut self.ring_states[moment.place];
        if ring_state.sockets.get(&socket).is_none_or(|sock| sock.waiting.is_none()) {
            ring_state.waiting.swap_remove(turn);
        }
    }

    /// What is due by now must have been done.
    fn settle(&mut self, moment: &Moment, ring: &R) {
        while let Some(&(at, id)) = self.ring_states[moment.place].agenda.first()
            && at <= moment.at
        {
            self.ring_states[moment.place].agenda.pop_first();
            self.judge(moment, at, id, ring);
        }
        while let Some(&(at, socket)) = self.ring_states[moment.place].closing.first()
            && at <= moment.at
        {
            self.ring_states[moment.place].closing.pop_first();
            self.judge_closed(moment, socket, ring);
        }
    }

    fn judge(&mut self, moment: &Moment, at: Instant, id: usize, ring: &R) {
        let excused = self.ring_states[moment.place].excused;
        let own = self.flows.at_mut(id);
        let Some((place, _)) = own.owner else { return };
        if place != moment.place || own.timers.scheduled != Some(at) {
            return;
        }
        own.timers.scheduled = None;
        match timers::due(own, excused) {
            // Whether it is this one that waits for a device whose queue is full of others' frames is not to be seen.
            Some((due, _)) if due <= moment.at && ring.refused() => {
                let again = moment.at + STALL_LOOK;
                own.timers.scheduled = Some(again);
                self.ring_states[moment.place].agenda.insert((again, id));
            }
            Some((due, law)) if due <= moment.at => {
                moment.breach(timers::NAME, format_args!("{law}: {:?} late, {:?}", moment.at.since(due), own.tuple));
            }
            Some(_) => self.schedule(moment.place, id),
            None => {}
        }
    }

    /// Whether a host's device ever refused what strangers are told.
    fn drops_answers(&self, host: usize) -> bool {
        self.places[host].iter().any(|&place| self.ring_states[place].tx_drops > 0)
    }

    /// When a host's NIC last had no receive buffer for a frame, by the world's clock.
    fn overrun_at(&self, host: usize) -> Instant {
        self.places[host].iter().map(|&place| self.ring_states[place].overrun_at).max().unwrap_or(Instant::ZERO)
    }

    fn judge_closed(&mut self, moment: &Moment, socket: FlowId, ring: &R) {
        let ahead = self.ring_states[moment.place].ahead;
        let healed_at = self.healed_at.map(|at| at + ahead);
        let Some(sock) = self.ring_states[moment.place].sockets.get(&socket) else { return };
        let Some(closed) = sock.closed else { return };
        let state = ring.info(socket).and_then(|info| info.state);
        // A peer that doesn't read keeps a connection for as long as it answers probes.
        let waits = |id| self.flows.at(id).flight() == 0 && self.flows.at(id).has_unsent();
        // Nor does one whose answers the peer's device has no room for: whoever closed may have to ask for as long as it tries.
        let untold = |id| self.flows.at(id).peer.is_some_and(|peer| self.drops_answers(self.flows.at(peer).host));
        let shut_out = sock.endpoint.is_some_and(|id| waits(id) || untold(id));
        let lost = sock.endpoint.is_some_and(|id| self.flows.at(id).lost);
        let own = sock.endpoint.map(|id| self.flows.at(id));
        let (silent, spoke_at) = own.map_or((false, closed.at), |own| (own.moves.is_silent(), own.moves.excused()));
        // (A peer that read again only now acknowledged the rest only now.)
        let acknowledged_at = own.map_or(closed.at, |own| own.una_at);
        let closed = closing::Closed { reset_due: closed.reset_due && !lost && !silent, at: closed.at.max(spoke_at).max(acknowledged_at) };
        // (Whom the peer's device had no receive buffer for, as its readers are slow, waits from then on for a timer that has long grown.)
        let overrun_at = own.and_then(|own| own.peer).map(|peer| self.overrun_at(self.flows.at(peer).host) + ahead);
        let healed_at = healed_at.max(overrun_at.filter(|_| healed_at.is_some()));
        closing::check(moment, closed, healed_at.filter(|_| !shut_out), state);
        let ring_state = &mut self.ring_states[moment.place];
        if state.is_some() {
            let since = closed.at.max(healed_at.unwrap_or(moment.at)).max(if shut_out { moment.at } else { closed.at });
            ring_state.closing.insert((since.max(closed.at) + closing::BOUND, socket));
        } else if !closed.reset_due {
            ring_state.sockets.remove(&socket);
        }
    }

    /// What a host's NIC has lent out: nothing, once all of the host's sockets are gone.
    pub(crate) fn outstanding(&mut self, host: usize, rings: &[Sockets], outstanding: &Outstanding) {
        let mut busy = false;
        for sockets in rings {
            let Some(ring_state) = self.ring_states.get_mut(sockets.place()) else { return };
            ring_state.sockets.retain(|socket| sockets.info(socket).is_some());
            busy |= !ring_state.sockets.is_empty() || sockets.occupied() > 0 || sockets.holds_loans();
        }
        let moment = self.moment(self.first(host), None);
        // What is between two rings holds its buffers.
        let ip = self.ring_states[moment.place].ip;
        busy |= self.moving.keys().any(|(local, _)| ip == Some(local.ip()));
        if !busy {
            rings.iter().for_each(|sockets| resources::check(&moment, sockets.usage(), outstanding));
        }
    }
}
