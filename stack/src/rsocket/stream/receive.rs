//! The program's bytes, as they come.

use super::{State, Stream};
use crate::device::messages::{Memory, Messages};
use crate::error::Error;
use crate::roce::Flaw;
use crate::time::Instant;

impl Stream {
    /// The peer wrote so many bytes. Whether it may.
    #[inline(always)]
    pub(super) fn take_data(&mut self, len: u32) -> bool {
        if u64::from(len) > self.rx.granted || self.rx.messages.len() >= usize::from(self.sizes.recv_queue) {
            return false;
        }
        self.rx.granted -= u64::from(len);
        self.rx.totals.add(len);
        if len == 0 {
            self.rx.seq = self.rx.seq.wrapping_add(1);
        } else {
            self.rx.messages.push_back(len);
        }
        true
    }

    /// Copies bytes that came to `out`, and gives how many; zero at the end of the stream. With `peek` they stay to be read again.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: nothing has come; [`Error::Reset`], and why the connection failed: nothing will.
    #[inline(always)]
    pub fn recv<D: Messages>(&mut self, now: Instant, device: &mut D, out: &mut [u8], peek: bool) -> Result<usize, Error> {
        if !peek && self.rx.messages.is_empty() {
            // (Programs that do not sleep find nothing, again and again: what they run through then is here.)
            match device.poll_cq(self.cq) {
                None if self.owes_nothing() && !out.is_empty() => return self.nothing_to_read(),
                None => self.follow_completions(now, device),
                Some(first) => self.poll_to_read(now, device, first),
            }
        }
        self.recv_what_came(now, device, out, peek)
    }

    /// Whether nothing is to be told the peer or the device, whatever there is room for.
    #[inline(always)]
    fn owes_nothing(&self) -> bool {
        self.rx.spent == 0 && self.rx.free < self.sizes.recv_buffer / 2 && self.to_tell.is_none() && !self.wants_drained
    }

    #[inline(never)]
    fn recv_what_came<D: Messages>(&mut self, now: Instant, device: &mut D, out: &mut [u8], peek: bool) -> Result<usize, Error> {
        if peek {
            // (Who looks at bytes that stay wants all that there are: they are not asked for one after the other.)
            self.poll(now, device);
        }
        if out.is_empty() {
            return Ok(0);
        }
        if self.rx.messages.is_empty() {
            self.post_spent(now, device);
            return self.nothing_to_read();
        }
        let done = if peek { self.peek(device, out) } else { self.read(device, out) };
        if !peek {
            self.update_credits(now, device);
        }
        Ok(done)
    }

    #[inline(always)]
    fn nothing_to_read(&self) -> Result<usize, Error> {
        if self.state == State::Connected && self.readable { Err(Error::WouldBlock) } else { self.no_more_to_read() }
    }

    #[inline(never)]
    fn no_more_to_read(&self) -> Result<usize, Error> {
        match self.state {
            State::Failed(error) => Err(error),
            State::Connected if self.readable => Err(Error::WouldBlock),
            State::Opening => Err(Error::WouldBlock),
            State::Connected | State::Disconnected if self.host.has(Flaw::EndIsAnError) => Err(Error::Reset),
            State::Connected | State::Disconnected => Ok(0),
        }
    }

    #[inline(always)]
    fn read<D: Messages>(&mut self, device: &D, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(left) = self.rx.messages.front_mut().filter(|_| done < out.len()) {
            let len = (*left as usize).min(out.len() - done) as u32;
            *left -= len;
            if *left == 0 || self.host.has(Flaw::DropsRests) {
                self.rx.messages.pop_front();
                self.rx.seq = self.rx.seq.wrapping_add(1);
            }
            self.copy_out(device, self.rx.offset, &mut out[done..done + len as usize]);
            self.rx.offset = self.wrapped(self.rx.offset, len + u32::from(self.host.has(Flaw::SkipsBytes)));
            self.rx.free += if self.host.has(Flaw::KeepsWhatWasRead) { 0 } else { len };
            done += len as usize;
        }
        done
    }

    fn peek<D: Messages>(&self, device: &D, out: &mut [u8]) -> usize {
        let available: u64 = self.rx.messages.iter().map(|len| u64::from(*len)).sum();
        let len = out.len().min(usize::try_from(available).unwrap_or(usize::MAX));
        self.copy_out(device, self.rx.offset, &mut out[..len]);
        len
    }

    #[inline(always)]
    fn wrapped(&self, offset: u32, len: u32) -> u32 {
        let (end, of) = (u64::from(offset) + u64::from(len), u64::from(self.sizes.recv_buffer));
        (if end < of { end } else { end % of }) as u32
    }

    /// Copies from the receive buffer, which `out` is not longer than, across its end.
    #[inline(always)]
    fn copy_out<D: Messages>(&self, device: &D, offset: u32, out: &mut [u8]) {
        let Some(memory) = device.memory(self.recv_buffer.key) else { return };
        let first = out.len().min((self.sizes.recv_buffer - offset) as usize);
        let (head, tail) = out.split_at_mut(first);
        memory.read(offset.into(), head);
        if !tail.is_empty() {
            memory.read(0, tail);
        }
    }
}
