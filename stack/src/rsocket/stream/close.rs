//! The ends of a connection. Nothing here waits: what is still to be said goes out when there is room, and who closes gives up when it has waited long enough
//! (`crate::rsocket::Sockets`).

use core::time::Duration;

use super::post::NOWHERE;
use super::{Shutdown, State, Stream};
use crate::device::messages::{Data, Messages, Modify};
use crate::error::Error;
use crate::rsocket::config::CONTROL_SLOTS;
use crate::rsocket::wire::{Control, Message};
use crate::time::Instant;

impl Stream {
    /// Ends one direction or both. The peer is told after all that was sent.
    ///
    /// # Errors
    /// [`Error::NotConnected`].
    pub fn shutdown<D: Messages>(&mut self, now: Instant, device: &mut D, how: Shutdown) -> Result<(), Error> {
        if self.state != State::Connected {
            return Err(Error::NotConnected);
        }
        let ended_before = !self.writable;
        if how != Shutdown::Write {
            self.readable = false;
        }
        if how != Shutdown::Read {
            self.writable = false;
        }
        if !self.readable && !self.writable {
            // Whoever said that it sends no more, and now reads no more, says that it is gone.
            self.to_tell = Some(Control::Disconnect);
        } else if !self.writable && !ended_before {
            self.to_tell = Some(Control::Shutdown);
        }
        self.wants_drained = true;
        self.poll(now, device);
        Ok(())
    }

    /// Does what an end asks for, as far as there is room: tells the peer of it, and has what was sent in silence completed where nothing is told.
    pub(super) fn go_on_ending<D: Messages>(&mut self, now: Instant, device: &mut D) {
        self.tell_end(now, device);
        if !self.wants_drained || self.to_tell.is_some() || !self.is_live() {
            return;
        }
        if self.is_drained() {
            self.wants_drained = false;
        } else if self.tx.silent.is_any() && self.tx.controls == 0 {
            // (Others may send in silence meanwhile: one at a time, as long as it takes.)
            self.probe(now, device);
        }
    }

    /// Tells the peer of an end that is still to be told, if there is room.
    fn tell_end<D: Messages>(&mut self, now: Instant, device: &mut D) {
        let Some(control) = self.to_tell.filter(|_| self.is_live() && self.has_control_slot(false)) else { return };
        self.to_tell = None;
        // What fails has failed the stream.
        let _ = self.post_control(now, device, Message::Control(control));
        if control == Control::Shutdown && self.peer_ended {
            self.disconnected();
        }
    }

    /// Whether all that was sent has arrived, or never will.
    pub fn is_drained(&self) -> bool {
        let idle = self.sizes.send_queue - CONTROL_SLOTS == self.tx.free_requests && self.tx.controls == 0;
        match self.state {
            State::Opening | State::Failed(_) => true,
            State::Connected => idle && self.to_tell.is_none(),
            State::Disconnected => idle || self.peer_gone,
        }
    }

    /// Both directions have ended.
    pub(super) fn disconnected(&mut self) {
        if self.state == State::Connected {
            self.state = State::Disconnected;
            self.to_tell = None;
            self.next_keepalive = None;
            self.readable = false;
        }
    }

    /// Connection management says that it is over. If the peer had not said so itself, what it meant to send may be missing.
    pub fn on_disconnected<D: Messages>(&mut self, now: Instant, device: &mut D) {
        // What came before it comes first.
        self.poll(now, device);
        self.peer_gone = true;
        if self.peer_ended || !self.readable && self.state == State::Connected {
            self.disconnected();
        } else {
            self.fail(Error::Reset);
        }
    }

    /// The device's port is down, or the device is gone. What has come can still be read.
    pub fn on_down<D: Messages>(&mut self, now: Instant, device: &mut D) {
        self.poll(now, device);
        self.peer_gone = true;
        self.fail(Error::NetworkDown);
    }

    /// Stops the queue pair: whatever is under way ends, and completes.
    pub(super) fn stop_queue_pair<D: Messages>(&self, now: Instant, device: &mut D) {
        // It can only fail if there is none.
        let _ = device.modify_qp(now, self.qp, &Modify::Err);
    }

    /// Sees every so often whether the peer is there, and as often as the device needs it; `None`: no more often than that.
    pub fn set_keepalive(&mut self, now: Instant, interval: Option<Duration>) {
        self.keepalive = interval;
        let shortest = [interval, self.host.keepalive].into_iter().flatten().min();
        self.next_keepalive = shortest.filter(|_| self.state == State::Connected).map(|interval| now + interval);
    }

    /// Does what is due.
    pub fn on_timer<D: Messages>(&mut self, now: Instant, device: &mut D) {
        if self.next_keepalive.is_none_or(|at| at > now) {
            return;
        }
        self.poll(now, device);
        self.set_keepalive(now, self.keepalive);
        // Where there is no room, something is under way that tells as much.
        if self.is_live() && self.has_control_slot(false) {
            self.probe(now, device);
        }
    }

    /// A write of nothing, of which the peer's program hears nothing, where there is a slot for it: whether the peer is there, and has what went before, its adapter says.
    fn probe<D: Messages>(&mut self, now: Instant, device: &mut D) {
        self.tx.controls += 1;
        // What fails has failed the stream.
        let _ = self.post_write(now, device, Message::Control(Control::Keepalive), Data::Inline(&[]), NOWHERE);
    }
}
