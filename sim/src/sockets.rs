//! A host's sockets as its programs call them: the ring, with each call noted for the checkers.
//!
//! On a ring that lends ([`Lending`]), what programs read they take by reference, and hold for a while: a read copies the bytes out for them, and
//! what was lent is given back later, in whatever order. Some of their UDP sockets are read from cyclic buffers, and of some the program
//! decides about each datagram before it is read.

mod filters;
mod loans;
mod records;
mod segments;

pub(crate) use filters::readiness;
pub use loans::Lending;
pub(crate) use loans::gather;

use core::cell::RefCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ringway_stack::device::Queues as _;
use ringway_stack::ring::{
    Datagram, EarlyData, Event, FlowId, Handover, NextHop, Readiness, RecvFlags, Ring, SendFlags, Shutdown, SourceFilter, UdpHandover,
    UdpOptions,
};
use ringway_stack::{Error, Instant, tcp};

use self::loans::{Loan, Loans};
use crate::checkers::Checkers;
use crate::nic::SimQueues;
use crate::random::RandomStream;
use crate::reached::State;

/// A host's ring. Its calls are [`Ring`]'s; those that programs make with bytes are compared with what the wire shows.
pub struct Sockets {
    ring: Ring<SimQueues>,
    /// Where the checkers note what they see of it.
    place: usize,
    checkers: Option<Rc<RefCell<Checkers>>>,
    /// What programs hold of what they read, if they read by reference.
    loans: Option<Box<Loans>>,
    /// Nothing was called since the host went to sleep: what came meanwhile came to what slept.
    is_as_it_slept: bool,
    /// Reads poll, and it is so late.
    reading: Option<Instant>,
    /// Events of what they polled for.
    told: VecDeque<Event>,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Deref for Sockets {
    type Target = Ring<SimQueues>;

    fn deref(&self) -> &Ring<SimQueues> {
        &self.ring
    }
}

impl DerefMut for Sockets {
    fn deref_mut(&mut self) -> &mut Ring<SimQueues> {
        &mut self.ring
    }
}

impl Sockets {
    /// Nobody checks yet.
    pub(crate) fn new(ring: Ring<SimQueues>) -> Self {
        Self { ring, place: 0, checkers: None, loans: None, is_as_it_slept: false, reading: None, told: VecDeque::new() }
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// From now on `checkers` see every call.
    pub(crate) fn watch(&mut self, checkers: &Rc<RefCell<Checkers>>, host_and_ring: (usize, usize), ip: IpAddr, time_wait: Duration) {
        self.place = checkers.borrow_mut().adopt(host_and_ring, ip, time_wait);
        self.checkers = Some(Rc::clone(checkers));
    }

    fn note(&self, note: impl FnOnce(&mut Checkers, usize, &Ring<SimQueues>)) {
        if let Some(checkers) = &self.checkers {
            note(&mut checkers.borrow_mut(), self.place, &self.ring);
        }
    }

    /// From now on, programs read by reference.
    pub(crate) fn lend(&mut self, lending: Lending, streams: [RandomStream; 3]) {
        if lending.from_start {
            self.ring.lend_from_now_on();
        }
        self.loans = Some(Box::new(Loans::new(lending, streams, self.ring.queues().nic().rx_buffers_max())));
    }

    /// Makes its stack, or its device, a mutant.
    #[cfg(feature = "mutants")]
    pub(crate) fn infect(&mut self, mutant: ringway_stack::mutants::Mutant) {
        self.ring.mutate(mutant);
        if mutant == ringway_stack::mutants::Mutant::RecycleHeld {
            self.ring.queues_mut().recycle_held();
        }
    }

    /// A program calls the ring itself.
    pub(crate) fn call_unseen(&self) {
        self.note(|checkers, place, _| checkers.unseen(place));
    }

    /// Whether programs hold something that they took by reference.
    pub(crate) fn holds_loans(&self) -> bool {
        self.loans.as_ref().is_some_and(|loans| loans.next_at().is_some())
    }

    /// When something is to be given back, or the ring polled, at the latest.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let given_back = self.loans.as_ref().and_then(|loans| loans.next_at());
        self.ring.next_deadline().into_iter().chain(given_back).min()
    }

    /// See [`Ring::poll`]. What was held for long enough is given back first.
    pub fn poll(&mut self, now: Instant) -> usize {
        self.note(|checkers, place, ring| checkers.polls(place, now, ring));
        self.give_back_due(now);
        let idle = !self.ring.has_events() && self.ring.next_deadline().is_none_or(|at| at > now) && !self.ring.refused();
        let spoken = self.ring.queues().slept_through().filter(|_| idle && self.is_as_it_slept);
        let done = self.ring.poll(now);
        if let Some(spoken) = spoken {
            let spoken = self.ring.queues().spoken() - spoken;
            self.note(|checkers, place, ring| checkers.slept_through(place, spoken, ring.has_events()));
        }
        done
    }

    /// A program of the ring's runs, and may call anything: what it hands to the ring may wait for what came while the host slept.
    pub(crate) fn program_runs(&mut self) {
        self.is_as_it_slept = false;
    }

    /// Reads poll, where there is something to poll for. `false`: there is not, or they are by reference.
    pub(crate) fn begin_reading(&mut self, now: Instant) -> bool {
        self.reading = Some(now).filter(|_| self.loans.is_none() && self.ring.is_due(now));
        self.reading.is_some()
    }

    /// They do no longer.
    pub(crate) fn end_reading(&mut self) {
        self.reading = None;
    }

    /// A call that polls. Who waits for something else that came is told at once.
    fn polling<T>(&mut self, now: Instant, socket: FlowId, call: impl FnOnce(&mut Ring<SimQueues>) -> T) -> T {
        self.note(|checkers, place, ring| checkers.polls(place, now, ring));
        let result = call(&mut self.ring);
        while let Some(event) = self.next_event(Some(socket)) {
            self.told.push_back(event);
        }
        result
    }

    /// A read that polls, if it must, got something.
    fn note_polling(&self, state: State, got: bool) {
        if got {
            self.note(|checkers, _, _| checkers.reached_by_call(state));
        }
    }

    /// Until something comes that somebody waits for.
    pub(crate) fn sleep(&mut self) {
        self.is_as_it_slept = true;
        let wake = self.ring.wake();
        self.ring.queues_mut().arm(wake);
    }

    fn give_back_due(&mut self, now: Instant) {
        while let Some(loan) = self.loans.as_mut().and_then(|loans| loans.take_due(now)) {
            self.return_loan(now, loan);
        }
    }

    /// Gives back what is held of a socket which is about to go; what outlives it, if anything may, stays.
    fn settle_loans(&mut self, now: Instant, socket: FlowId, may_outlive: bool) {
        let Some(loans) = &mut self.loans else { return };
        for loan in loans.take_of(now, socket, may_outlive) {
            self.return_loan(now, Box::new(loan));
        }
    }

    fn return_loan(&mut self, now: Instant, loan: Box<Loan>) {
        self.note(|checkers, place, _| checkers.gives_back(place, now, loan.socket, loan.read(), &loan.held()));
        let (socket, len) = loan.done();
        drop(loan);
        self.ring.give_back(now, socket, len);
        self.note(|checkers, place, ring| checkers.gave_back(place, ring, socket));
    }

    /// Tells the checkers what the read before took by reference, and gives back what is not held for any time.
    fn note_loans(&mut self, now: Instant, socket: FlowId) {
        let Some(taken) = self.loans.as_mut().map(|loans| loans.take_taken()) else { return };
        for &(len, copied) in &taken {
            self.note(|checkers, place, ring| checkers.lent(place, ring, socket, len, copied));
        }
        self.give_back_due(now);
        if let Some(loans) = &mut self.loans {
            loans.reuse(taken);
        }
    }

    /// See [`Ring::readiness`]. Who decides before reading is ready to read when there is something to decide.
    pub fn readiness(&self, socket: FlowId) -> Readiness {
        readiness(&self.ring, socket)
    }

    /// See [`Ring::take_event`].
    pub fn take_event(&mut self) -> Option<Event> {
        self.told.pop_front().or_else(|| self.next_event(None))
    }

    /// `caller`: whose call has polled.
    fn next_event(&mut self, caller: Option<FlowId>) -> Option<Event> {
        let event = self.ring.take_event();
        self.note(|checkers, place, ring| match event {
            Some(event) => checkers.event(place, event),
            None => checkers.polled(place, ring, caller),
        });
        event
    }

    /// See [`Ring::tcp_connect`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        hop: NextHop,
        config: &tcp::Config,
    ) -> Result<FlowId, Error> {
        let socket = self.ring.tcp_connect(now, local, remote, hop, config)?;
        self.note(|checkers, place, ring| checkers.connected(place, now, ring, (local, remote), config, socket));
        Ok(socket)
    }

    /// See [`Ring::tcp_connect_fast`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_connect_fast(
        &mut self,
        now: Instant,
        ends: (SocketAddr, SocketAddr),
        hop: NextHop,
        config: &tcp::Config,
        data: &[u8],
    ) -> Result<(FlowId, usize), Error> {
        let early = EarlyData { data: &[IoSlice::new(data)], all: false, without_cookie: false };
        let (socket, taken) = self.ring.tcp_connect_fast(now, ends, hop, config, &early)?;
        self.note(|checkers, place, ring| {
            checkers.connected(place, now, ring, ends, config, socket);
            checkers.wrote_early(place, socket, &data[..taken]);
        });
        Ok((socket, taken))
    }

    /// See [`Ring::tcp_route`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_route(&mut self, now: Instant, socket: FlowId, hop: NextHop) -> Result<(), Error> {
        self.ring.tcp_route(now, socket, hop)
    }

    /// See [`Ring::tcp_listen`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_listen(&mut self, local: SocketAddr, backlog: usize, config: &tcp::Config) -> Result<FlowId, Error> {
        let socket = self.ring.tcp_listen(local, backlog, config)?;
        self.note(|checkers, place, ring| checkers.listens(place, ring, local.port(), config, socket));
        Ok(socket)
    }

    /// See [`Ring::tcp_accept`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_accept(&mut self, listener: FlowId) -> Result<FlowId, Error> {
        let socket = self.ring.tcp_accept(listener)?;
        self.note(|checkers, place, ring| checkers.accepted(place, ring, listener, socket));
        Ok(socket)
    }

    /// See [`Ring::tcp_configure`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_configure(&mut self, now: Instant, socket: FlowId, change: impl FnOnce(&mut tcp::Config)) -> Result<(), Error> {
        let mut changed = None;
        self.ring.tcp_configure(now, socket, |config| {
            change(config);
            changed = Some(config.clone());
        })?;
        if let Some(config) = changed {
            self.note(|checkers, place, ring| checkers.configured(place, now, ring, socket, &config));
        }
        Ok(())
    }

    /// See [`Ring::tcp_send`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_send(&mut self, now: Instant, socket: FlowId, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error> {
        let result = match self.reading {
            Some(_) => self.polling(now, socket, |ring| ring.tcp_send_polling(now, socket, data, flags, now).0),
            None => self.ring.tcp_send(now, socket, data, flags),
        };
        self.note(|checkers, place, ring| checkers.wrote(place, now, ring, socket, data, flags, result));
        result
    }

    /// See [`Ring::tcp_recv`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_recv(&mut self, now: Instant, socket: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Error> {
        let result = match &mut self.loans {
            Some(loans) if !flags.contains(RecvFlags::PEEK) => loans.tcp_recv(&mut self.ring, now, socket, into),
            _ if self.reading.is_some() && !flags.contains(RecvFlags::PEEK) => {
                let read = self.polling(now, socket, |ring| ring.tcp_recv_polling(now, socket, into));
                self.note_polling(State::ReadPolledForBytes, read.is_ok_and(|len| len > 0));
                read
            }
            _ => self.ring.tcp_recv(now, socket, into, flags),
        };
        if let Some(wrong) = self.loans.as_mut().and_then(|loans| loans.take_wrong()) {
            self.note(|checkers, place, _| checkers.misread(place, socket, &wrong));
        }
        self.note(|checkers, place, ring| checkers.read(place, now, ring, socket, into, flags, result));
        self.note_loans(now, socket);
        result
    }

    /// See [`Ring::take_error`].
    pub fn take_error(&mut self, socket: FlowId) -> Option<Error> {
        let error = self.ring.take_error(socket);
        self.note(|checkers, place, ring| checkers.took_error(place, ring, socket, error));
        error
    }

    /// See [`Ring::shutdown`].
    ///
    /// # Errors
    /// The ring's.
    pub fn shutdown(&mut self, now: Instant, socket: FlowId, how: Shutdown) -> Result<(), Error> {
        let result = self.ring.shutdown(now, socket, how);
        self.note(|checkers, place, ring| checkers.shut(place, now, ring, socket, how, result));
        result
    }

    /// See [`Ring::close`].
    pub fn close(&mut self, now: Instant, socket: FlowId, abort: bool) {
        self.settle_loans(now, socket, true);
        self.note(|checkers, place, ring| checkers.closes(place, now, ring, socket, abort));
        self.ring.close(now, socket, abort);
        self.note(|checkers, place, _| checkers.closed(place, socket));
    }

    /// See [`Ring::udp_open`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_open(&mut self, local: SocketAddr, options: &UdpOptions) -> Result<FlowId, Error> {
        let socket = self.ring.udp_open(local, options)?;
        let lends = self.loans.is_some();
        self.note(|checkers, place, ring| checkers.udp_opened(place, ring, local.port(), options, lends, socket));
        Ok(socket)
    }

    /// See [`Ring::udp_configure`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_configure(&mut self, socket: FlowId, change: impl FnOnce(&mut UdpOptions)) -> Result<(), Error> {
        let mut changed = None;
        let result = self.ring.udp_configure(socket, |options| {
            change(options);
            changed = Some(*options);
        });
        if let Some(options) = changed {
            self.note(|checkers, place, _| checkers.udp_configured(place, socket, options));
        }
        result
    }

    /// See [`Ring::udp_join`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_join(&mut self, now: Instant, socket: FlowId, group: IpAddr, from: IpAddr) -> Result<(), Error> {
        self.ring.udp_join(now, socket, group, from)?;
        self.note(|checkers, place, _| checkers.joined(place, now, socket, group, SourceFilter::ANY));
        Ok(())
    }

    /// See [`Ring::udp_listen`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_listen(&mut self, now: Instant, socket: FlowId, group: IpAddr, from: IpAddr, filter: SourceFilter) -> Result<(), Error> {
        self.ring.udp_listen(now, socket, group, from, filter.clone())?;
        self.note(|checkers, place, _| match filter.is_none() {
            true => checkers.left(place, now, socket, group),
            false => checkers.joined(place, now, socket, group, filter),
        });
        Ok(())
    }

    /// See [`Ring::join_solicited_nodes`].
    ///
    /// # Errors
    /// The ring's.
    pub fn join_solicited_nodes(&mut self, now: Instant) -> Result<(), Error> {
        self.ring.join_solicited_nodes(now)?;
        self.note(|checkers, place, _| checkers.joined_solicited_nodes(place, now));
        Ok(())
    }

    /// See [`Ring::udp_leave`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_leave(&mut self, now: Instant, socket: FlowId, group: IpAddr) -> Result<(), Error> {
        self.ring.udp_leave(now, socket, group)?;
        self.note(|checkers, place, _| checkers.left(place, now, socket, group));
        Ok(())
    }

    /// See [`Ring::udp_connect`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_connect(&mut self, socket: FlowId, source: IpAddr, remote: Option<(SocketAddr, NextHop)>) -> Result<(), Error> {
        self.ring.udp_connect(socket, source, remote)?;
        self.note(|checkers, place, ring| checkers.udp_connected(place, ring, socket));
        Ok(())
    }

    /// See [`Ring::udp_send`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_send(
        &mut self,
        now: Instant,
        socket: FlowId,
        data: &[IoSlice<'_>],
        source: IpAddr,
        to: Option<(SocketAddr, NextHop)>,
    ) -> Result<usize, Error> {
        let result = self.ring.udp_send(now, socket, data, source, to);
        self.note(|checkers, place, ring| checkers.udp_sent(place, now, ring, socket, data, source, to.map(|(to, _)| to), result));
        result
    }

    /// See [`Ring::udp_recv`].
    ///
    /// # Errors
    /// The ring's.
    pub fn udp_recv(&mut self, socket: FlowId, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error> {
        let result = match &mut self.loans {
            Some(loans) if !flags.contains(RecvFlags::PEEK) => loans.udp_recv(&mut self.ring, socket, into),
            _ if !flags.contains(RecvFlags::PEEK)
                && let Some(now) = self.reading =>
            {
                let read = self.polling(now, socket, |ring| ring.udp_recv_polling(now, socket, into, |datagram| datagram));
                self.note_polling(State::ReadPolledForDatagram, read.is_ok());
                read
            }
            _ => self.ring.udp_recv(socket, into, flags),
        };
        if let Some(wrong) = self.loans.as_mut().and_then(|loans| loans.take_wrong()) {
            self.note(|checkers, place, _| checkers.misread(place, socket, &wrong));
        }
        self.note(|checkers, place, ring| checkers.udp_read(place, ring, socket, into, flags, result));
        if let Some(now) = self.loans.as_ref().map(|loans| loans.now()) {
            self.note_loans(now, socket);
        }
        result
    }

    /// See [`Ring::udp_adopt`]. (Who gives an address away tells of nothing: the flow there goes on as it is.)
    ///
    /// # Errors
    /// The ring's; the address comes back.
    pub fn udp_adopt(&mut self, handover: Box<UdpHandover<SimQueues>>) -> Result<FlowId, (Error, Box<UdpHandover<SimQueues>>)> {
        let options = *handover.options();
        let socket = self.ring.udp_adopt(handover)?;
        let (lends, info) = (self.loans.is_some(), self.ring.info(socket));
        let port = info.map_or(0, |info| info.local.port());
        self.note(|checkers, place, ring| checkers.udp_opened(place, ring, port, &options, lends, socket));
        Ok(socket)
    }

    /// See [`Ring::udp_come_to`].
    pub fn udp_come_to(&mut self, now: Instant, socket: FlowId) -> usize {
        // (The checkers see each look.)
        while self.poll(now) > 0 {}
        self.ring.udp_come_to(now, socket)
    }

    /// See [`Ring::detach_stream`].
    ///
    /// # Errors
    /// The ring's.
    pub fn detach_stream(&mut self, now: Instant, socket: FlowId) -> Result<Handover<SimQueues>, Error> {
        // What is lent counts on the ring that lent it; and nobody there knows what is yet to be decided.
        self.settle_loans(now, socket, false);
        let _ = self.ring.set_recv_filter(socket, false);
        let handover = self.ring.detach_stream(now, socket)?;
        self.note(|checkers, place, _| checkers.detached(place, socket, (handover.local(), handover.remote())));
        Ok(handover)
    }

    /// See [`Ring::adopt`].
    ///
    /// # Errors
    /// The ring's; the connection comes back.
    pub fn adopt(&mut self, now: Instant, handover: Handover<SimQueues>) -> Result<FlowId, (Error, Handover<SimQueues>)> {
        let tuple = (handover.local(), handover.remote());
        let socket = self.ring.adopt(now, handover)?;
        if let Some(loans) = &mut self.loans {
            loans.adopted(socket);
        }
        self.note(|checkers, place, ring| checkers.adopted(place, now, ring, tuple, socket));
        Ok(socket)
    }

    /// See [`Ring::adopt_snapshot`]: the same connection, by way of bytes, if it can be written down. `unnoticed`: nothing that is on its way is sent again.
    ///
    /// # Errors
    /// The ring's; the connection comes back.
    pub fn adopt_written(
        &mut self,
        now: Instant,
        mut handover: Handover<SimQueues>,
        hop: NextHop,
        config: &tcp::Config,
        unnoticed: bool,
    ) -> Result<FlowId, (Error, Handover<SimQueues>)> {
        let Some(bytes) = handover.snapshot() else { return self.adopt(now, handover) };
        let tuple = (handover.local(), handover.remote());
        handover.end_rule();
        let socket = match self.ring.adopt_snapshot(now, (tuple.0, tuple.1), hop, config, &bytes) {
            Ok(socket) => socket,
            // Two copies may be more than the NIC has buffers for, and the first one's go only with it. Two processes have a pool each.
            Err(Error::NoBuffers) => return self.adopt(now, handover),
            Err(error) => return Err((error, handover)),
        };
        if let Some(loans) = &mut self.loans {
            loans.adopted(socket);
        }
        self.note(|checkers, place, ring| checkers.adopted(place, now, ring, tuple, socket));
        let goes_on = if unnoticed {
            self.ring.tcp_go_on(now, socket)
        } else {
            self.note(|checkers, place, _| checkers.continued(place, socket));
            self.ring.tcp_retarget(now, socket, hop)
        };
        goes_on.expect("it has just been taken");
        Ok(socket)
    }

    /// See [`Ring::adopt_snapshot`].
    ///
    /// # Errors
    /// The ring's.
    pub fn adopt_snapshot(
        &mut self,
        now: Instant,
        ends: (SocketAddr, SocketAddr),
        hop: NextHop,
        config: &tcp::Config,
        bytes: &[u8],
    ) -> Result<FlowId, Error> {
        let result = self.ring.adopt_snapshot(now, ends, hop, config, bytes);
        if result == Err(Error::NoBuffers) {
            self.note(|checkers, _, _| checkers.found_no_room());
        }
        result
    }

    /// A connection of another ring has been read in here ([`Ring::adopt_snapshot`]), and has left that one.
    pub(crate) fn came_over(&mut self, now: Instant, ends: (SocketAddr, SocketAddr), socket: FlowId) {
        if let Some(loans) = &mut self.loans {
            loans.adopted(socket);
        }
        self.note(|checkers, place, ring| checkers.adopted(place, now, ring, ends, socket));
    }

    /// See [`Ring::tcp_keep_silent`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_keep_silent(&mut self, now: Instant, socket: FlowId) -> Result<(), Error> {
        self.ring.tcp_keep_silent(socket)?;
        self.note(|checkers, place, _| checkers.silenced(place, now, socket));
        Ok(())
    }

    /// See [`Ring::tcp_speak`].
    pub fn tcp_speak(&mut self, now: Instant, socket: FlowId) {
        self.note(|checkers, place, ring| checkers.speaks(place, now, ring, socket));
        self.ring.tcp_speak(now, socket);
    }

    /// See [`Ring::tcp_retarget`].
    ///
    /// # Errors
    /// The ring's.
    pub fn tcp_retarget(&mut self, now: Instant, socket: FlowId, hop: NextHop) -> Result<(), Error> {
        self.note(|checkers, place, ring| checkers.follows(place, now, ring, socket));
        self.ring.tcp_retarget(now, socket, hop)
    }

    /// See [`Ring::end_silently`].
    ///
    /// # Errors
    /// The ring's.
    pub fn end_silently(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Result<tcp::Undelivered, Error> {
        self.note(|checkers, place, ring| checkers.ends_silently(place, now, ring, (local, remote)));
        let undelivered = self.ring.end_silently(now, local, remote)?;
        self.note(|checkers, place, ring| checkers.ended_silently(place, ring, (local, remote), &undelivered));
        Ok(undelivered)
    }
}
