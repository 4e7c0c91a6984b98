//! What became of requests, and what came.

use super::post::{PART, RECEIVE, SILENT, SPEAKS};
use super::{State, Stream};
use crate::device::messages::{Completion, Memory, Messages, Status};
use crate::error::Error;
use crate::roce::Flaw;
use crate::rsocket::config::TARGET_ENTRIES;
use crate::rsocket::wire::{Control, IomapEntry, Message};
use crate::time::Instant;

/// Receives are posted anew in such a fraction of their queue: or, sooner, when there is nothing else to do, or the peer is told of credits.
const SPENT_PART: u16 = 4;

impl Stream {
    /// Takes what completed, and tells the peer what it is to know. Comes before whatever asks for the state.
    pub fn poll<D: Messages>(&mut self, now: Instant, device: &mut D) {
        while let Some(completion) = device.poll_cq(self.cq) {
            self.on_completion(now, device, &completion);
        }
        self.follow_completions(now, device);
    }

    /// What completions have as a consequence, once there are no more.
    #[inline(always)]
    pub(super) fn follow_completions<D: Messages>(&mut self, now: Instant, device: &mut D) {
        self.go_on_ending(now, device);
        self.update_credits(now, device);
    }

    /// The same for who wants to read, from its first completion on, until there is something to: what completed after that is for the next call to take, which finds it
    /// in its turn.
    pub(super) fn poll_to_read<D: Messages>(&mut self, now: Instant, device: &mut D, first: Completion) {
        self.on_completion(now, device, &first);
        while self.rx.messages.is_empty() {
            let Some(completion) = device.poll_cq(self.cq) else { return self.follow_completions(now, device) };
            self.on_completion(now, device, &completion);
        }
        self.go_on_ending(now, device);
    }

    #[inline]
    fn on_completion<D: Messages>(&mut self, now: Instant, device: &mut D, completion: &Completion) {
        if completion.id & RECEIVE == 0 {
            self.on_sent(completion);
        } else {
            self.on_received(now, device, completion);
        }
    }

    fn on_sent(&mut self, completion: &Completion) {
        if completion.id & SPEAKS != 0 {
            let took = self.tx.silent.spoken(self.host.has(Flaw::SpeaksTooEarly));
            self.tx.free_requests += took.requests;
            self.tx.room += took.bytes;
        }
        if completion.id & PART != 0 {
            self.on_part_sent(Message::parse(completion.id as u32));
        } else if completion.id & SILENT == 0 {
            self.on_message_sent(Message::parse(completion.id as u32), completion.status == Status::Success);
        }
        if completion.status != Status::Success && self.state == State::Connected {
            self.fail(if completion.status == Status::RetryExceeded { Error::TimedOut } else { Error::Reset });
        }
    }

    fn on_part_sent(&mut self, message: Message) {
        match message {
            Message::Sgl(_) | Message::Control(_) => self.tx.controls -= 1,
            Message::Data(_) | Message::Write(_) | Message::IomapSgl(_) => self.tx.free_requests += 1,
        }
    }

    fn on_message_sent(&mut self, message: Message, is_success: bool) {
        match message {
            Message::Sgl(_) => self.tx.controls -= 1,
            Message::Control(control) => {
                self.tx.controls -= 1;
                if control == Control::Disconnect && is_success {
                    self.peer_gone = true;
                    self.disconnected();
                }
            }
            Message::IomapSgl(_) => {
                self.tx.free_requests += 1;
                self.tx.room += IomapEntry::LEN as u32;
            }
            Message::Data(len) | Message::Write(len) => {
                self.tx.direct_writes -= u16::from(matches!(message, Message::Write(_)));
                self.tx.free_requests += 1;
                self.tx.room += len;
            }
        }
    }

    #[inline(always)]
    fn on_received<D: Messages>(&mut self, now: Instant, device: &mut D, completion: &Completion) {
        let place = completion.id as u16;
        if self.state == State::Disconnected && completion.status == Status::Success {
            // Nothing that it says matters any more, but while it has no receive it would ask again and again, and what we sent would not be acknowledged.
            let _ = self.post_receive(now, device, place);
            return;
        }
        if self.state != State::Connected {
            return;
        }
        if completion.status != Status::Success {
            // The peer wrote where it may not, or something of ours failed: the queue pair is of no use any more.
            return self.fail(Error::Reset);
        }
        self.is_heard = true;
        let Some(message) = self.message_of(device, completion, place) else { return self.refuse(now, device) };
        self.on_message(now, device, message, completion.len);
        if !matches!(self.state, State::Connected | State::Disconnected) {
            return;
        }
        // (The peer has a credit for the next message of data only once it is told of this one's. Of all else it sends more than it has credits for.)
        if self.host.by_sends || !matches!(message, Message::Data(_)) {
            self.post_again(now, device, place);
        } else {
            self.rx.spent += 1;
            if self.rx.spent >= self.sizes.recv_queue / SPENT_PART {
                self.post_spent(now, device);
            }
        }
    }

    /// Posts receives anew whose messages came. (All are alike where messages are no sends.)
    pub(super) fn post_spent<D: Messages>(&mut self, now: Instant, device: &mut D) {
        for _ in 0..core::mem::take(&mut self.rx.spent) {
            self.post_again(now, device, 0);
        }
    }

    fn post_again<D: Messages>(&mut self, now: Instant, device: &mut D, place: u16) {
        if self.post_receive(now, device, place).is_err() {
            self.fail(Error::Reset);
        }
    }

    /// The message that came; `None`: something else did.
    #[inline(always)]
    fn message_of<D: Messages>(&self, device: &D, completion: &Completion, place: u16) -> Option<Message> {
        match completion.immediate {
            Some(word) if !self.host.by_sends => Some(Message::parse(word)),
            None if self.host.by_sends => {
                let mut bytes = [0; 4];
                device.memory(self.recv_buffer.key)?.read(self.message_offset(place), &mut bytes);
                Some(Message::parse(self.peer?.order.word(bytes)))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn on_message<D: Messages>(&mut self, now: Instant, device: &mut D, message: Message, written: u32) {
        match message {
            Message::Sgl(limit) => {
                self.tx.limit = limit;
                // (Where messages are sends, what was written before them has no length here.)
                if self.host.by_sends {
                    self.tx.offered = TARGET_ENTRIES;
                } else if written > 0 {
                    self.tx.offered = (self.tx.offered + 1).min(TARGET_ENTRIES);
                }
            }
            // librdmacm counts these when it sends them and not when it gets them, so that each would take a credit for good. Counted here, they take none.
            Message::IomapSgl(_) => self.rx.seq = self.rx.seq.wrapping_add(1),
            Message::Control(Control::Disconnect) => {
                (self.peer_ended, self.peer_gone) = (true, true);
                self.disconnected();
            }
            Message::Control(Control::Shutdown) => {
                self.peer_ended = true;
                self.readable = false;
                self.writable &= !self.host.has(Flaw::EndsTogether);
                if !self.writable && self.to_tell.is_none() {
                    self.disconnected();
                }
            }
            Message::Control(_) | Message::Write(_) => {}
            Message::Data(len) => {
                // (Of what the peer has placed by itself, the request has no bytes.)
                let is_told = self.host.by_sends || written == len || (self.is_shared && written == 0);
                if !is_told || !self.take_data(len) {
                    self.refuse(now, device);
                }
            }
        }
    }

    /// The peer broke the protocol: nothing that it says is taken any more.
    pub(super) fn refuse<D: Messages>(&mut self, now: Instant, device: &mut D) {
        self.fail(Error::Reset);
        self.stop_queue_pair(now, device);
    }
}
