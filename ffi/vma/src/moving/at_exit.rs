//! What a process leaves that ends, or becomes another program: the last of its streams is the kernel's to give to their readers, and
//! what the kernel has no room for, the readers' processes'.

use ringway_devices::Fd;
use ringway_stack::tcp::Undelivered;

use super::job::{Conversation, Job};
use super::{Role, memfd, pair, peer};
use crate::errno::Errno;
use crate::exit;
use crate::process::Offload;

impl Job {
    /// What the reader has not read yet is for the kernel to keep, which gives it to the reader after our end.
    pub(super) fn leave_to_peer(&self, theirs: &Undelivered, dialogue: Conversation) -> Result<(), Errno> {
        let ours = self.end_silently()?;
        if theirs.orphaned {
            return Ok(());
        }
        if ours.is_broken() || theirs.is_broken() {
            dialogue.hang_up(self.process);
            return Err(Errno(libc::ECONNRESET));
        }
        let to_them = ours.owed_to(theirs).ok_or(Errno(libc::EPROTO))?;
        // Until it is complete, our end is no end of a stream.
        pair::break_off(&self.placeholder.fd);
        let fresh = self.connect()?;
        // First, as in `go_to`.
        let rest = self.write_what_fits(&to_them)?;
        // Of what the peer wrote, nobody here reads anything; lying unread, it would make a reset of our end (RFC 2525 s2.17).
        let passed = vec![fresh, memfd::holding(&[]).map_err(|_| Errno(libc::EMFILE))?];
        match dialogue.ask(self.process, &format!("take {} {}", self.remote, self.local), passed) {
            Some((answer, _)) if answer == "taken" => {}
            _ => return Err(Errno(libc::ECONNRESET)),
        }
        exit::pulse();
        self.write_the_last(rest, || Some(dialogue))
    }

    /// Writes the last of our stream, and its end. What there is no room for, the reader's process keeps until there is.
    pub(super) fn write_the_last(&self, bytes: &[u8], dialogue: impl FnOnce() -> Option<Conversation>) -> Result<(), Errno> {
        let rest = self.write_what_fits(bytes)?;
        if !rest.is_empty() {
            return self.give_to_keep(rest, &dialogue().ok_or(Errno(libc::ESRCH))?, None);
        }
        pair::end_in_order(&self.placeholder.fd);
        pair::end_writing(self.placeholder.raw());
        Ok(())
    }

    /// Our descriptor, and what is to be written into it, are the reader's process's.
    fn give_to_keep(&self, rest: &[u8], dialogue: &Conversation, until: Option<Fd>) -> Result<(), Errno> {
        let passed = [peer::copy_of(self.placeholder.raw()), memfd::holding(&[rest]).ok()];
        let mut passed = passed.into_iter().collect::<Option<Vec<Fd>>>().ok_or(Errno(libc::EMFILE))?;
        passed.extend(until);
        match dialogue.ask(self.process, &format!("keep {} {}", self.remote, self.local), passed) {
            Some((answer, _)) if answer == "kept" => Ok(()),
            _ => Err(Errno(libc::ENOBUFS)),
        }
    }

    /// Writes what goes ahead of everything else; or waits until the reader's process has, should this one go on after an exec.
    pub(super) fn write_or_leave(&self, bytes: &[u8], dialogue: &Conversation) -> Result<(), Errno> {
        let is_left = |offload: &Offload| {
            let moving = offload.moves.iter().find(|moving| moving.is_between(self.local, self.remote));
            moving.and_then(|moving| offload.sockets.find(moving.key?)).is_some_and(|socket| socket.is_left)
        };
        if bytes.is_empty() || matches!(dialogue, Conversation::Ourselves(_)) || !is_left(&self.process.lock()) {
            return pair::write_all(self.placeholder.raw(), bytes);
        }
        let (written, until) = pair::pipe()?;
        self.give_to_keep(bytes, dialogue, Some(until))?;
        for moving in self.process.lock().moves.iter_mut().filter(|moving| moving.is_between(self.local, self.remote)) {
            moving.role = Role::Kept;
        }
        while pair::wait_for(written.raw(), libc::POLLIN) == Err(Errno(libc::EAGAIN)) {}
        Ok(())
    }

    /// What is left then.
    fn write_what_fits<'a>(&self, mut bytes: &'a [u8]) -> Result<&'a [u8], Errno> {
        while !bytes.is_empty()
            && let count @ 1.. = pair::write_some(self.placeholder.raw(), bytes)?
        {
            bytes = &bytes[count..];
        }
        Ok(bytes)
    }
}
