//! A stream between the two hosts: the first connects, both write, both read to the end.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Ring, SendFlags, Shutdown};
use ringway_stack::tcp::Config;
use ringway_stack::{Error, Instant};

use super::super::plan::StreamPlan;
use super::super::watched::WatchedQueues;
use super::{address, bytes, ip};

/// Until it asks again for what was refused.
const RETRY: Duration = Duration::from_millis(20);

/// One end of a stream.
pub(crate) struct End {
    host: usize,
    number: usize,
    plan: StreamPlan,
    listener: Option<FlowId>,
    flow: Option<FlowId>,
    out: Vec<u8>,
    written: usize,
    read: usize,
    expected: Vec<u8>,
    has_shut: bool,
    is_through: bool,
    is_closed: bool,
    /// When it asks once more for what was refused.
    retry_at: Option<Instant>,
    /// Times that it connects once more.
    tries: u32,
    /// It ended as connections do whose card is gone.
    pub(crate) is_down: bool,
}

impl End {
    pub(crate) fn new(host: usize, number: usize, plan: StreamPlan, tries: u32) -> Self {
        let of = |from: usize| bytes(plan.bytes[from], (2 * number + from) as u64);
        Self {
            host,
            number,
            plan,
            listener: None,
            flow: None,
            out: of(host),
            written: 0,
            read: 0,
            expected: of(1 - host),
            has_shut: false,
            is_through: false,
            is_closed: false,
            retry_at: None,
            tries,
            is_down: false,
        }
    }

    /// When it does something by itself.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.retry_at.filter(|_| !self.is_done())
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_closed || self.is_down
    }

    /// How far it is, for who looks at a world that hangs.
    pub(crate) fn state(&self) -> String {
        let (written, read) = (self.written, self.read);
        format!(
            "stream {} of host {}: {written} of {} bytes written, {read} of {} read",
            self.number,
            self.host,
            self.out.len(),
            self.expected.len()
        )
    }

    /// Does what can be done now.
    ///
    /// # Errors
    /// What no stream may come to.
    pub(crate) fn step(&mut self, now: Instant, ring: &mut Ring<WatchedQueues>) -> Result<(), String> {
        self.is_down |= self.flow.is_none() && ring.is_gone();
        if self.is_done() {
            return Ok(());
        }
        match self.go_on(now, ring) {
            Ok(()) | Err(Error::WouldBlock | Error::InProgress) => Ok(()),
            // (Whether the card may be gone is the world's to say.)
            Err(Error::NetworkDown | Error::Pipe) if ring.is_gone() => {
                self.is_down = true;
                Ok(())
            }
            // Nobody listens yet, or nobody has heard for too long: it is tried once more, where something goes wrong.
            Err(Error::Refused | Error::HostUnreachable) if self.host == 0 && self.read == 0 && self.tries > 0 => {
                self.tries -= 1;
                self.flow.take().into_iter().for_each(|flow| ring.close(now, flow, true));
                self.written = 0;
                self.has_shut = false;
                Ok(())
            }
            Err(error) => Err(format!("{}: {error:?}", self.state())),
        }
    }

    fn go_on(&mut self, now: Instant, ring: &mut Ring<WatchedQueues>) -> Result<(), Error> {
        let Some(flow) = self.flow.map_or_else(|| self.begin(now, ring), |flow| Ok(Some(flow)))? else { return Ok(()) };
        self.flow = Some(flow);
        self.write(now, ring, flow)?;
        self.read(now, ring, flow)?;
        if self.is_through && self.has_shut {
            ring.close(now, flow, false);
            self.listener.into_iter().for_each(|listener| ring.close(now, listener, false));
            self.is_closed = true;
        }
        Ok(())
    }

    /// Its connection, once there is one. (A rule that is refused is asked for again.)
    fn begin(&mut self, now: Instant, ring: &mut Ring<WatchedQueues>) -> Result<Option<FlowId>, Error> {
        let (ours, theirs) = (address(0, 5000 + self.number as u16), address(1, 80 + self.number as u16));
        let config = Config::default();
        let begun = if self.host == 0 {
            ring.tcp_connect(now, ours, theirs, NextHop::Neighbour(ip(1)), &config).map(Some)
        } else if let Some(listener) = self.listener {
            ring.tcp_accept(listener).map(Some)
        } else {
            ring.tcp_listen(theirs, 4, &config).map(|listener| {
                self.listener = Some(listener);
                None
            })
        };
        self.retry_at = None;
        match begun {
            Err(Error::NoBuffers | Error::AddressInUse) => {
                self.retry_at = Some(now + RETRY);
                Ok(None)
            }
            begun => begun,
        }
    }

    fn write(&mut self, now: Instant, ring: &mut Ring<WatchedQueues>, flow: FlowId) -> Result<(), Error> {
        while self.written < self.out.len() {
            let end = self.out.len().min(self.written + self.plan.chunk);
            match ring.tcp_send(now, flow, &[IoSlice::new(&self.out[self.written..end])], SendFlags::empty()) {
                Ok(len) => self.written += len,
                // (Before it is connected, and while there is no room.)
                Err(Error::WouldBlock | Error::NotConnected | Error::NoBuffers) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if !self.has_shut {
            match ring.shutdown(now, flow, Shutdown::Write) {
                Ok(()) => self.has_shut = true,
                Err(Error::NotConnected) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, now: Instant, ring: &mut Ring<WatchedQueues>, flow: FlowId) -> Result<(), Error> {
        let mut into = vec![0; self.plan.chunk];
        while !self.is_through {
            match ring.tcp_recv(now, flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()) {
                Ok(0) => {
                    assert_eq!(self.read, self.expected.len(), "law stream: {} ends early", self.state());
                    self.is_through = true;
                }
                Ok(len) => {
                    let expected = self.expected.get(self.read..self.read + len);
                    assert!(expected == Some(&into[..len]), "law stream: {}: other bytes than were written", self.state());
                    self.read += len;
                }
                Err(Error::WouldBlock | Error::NotConnected) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
