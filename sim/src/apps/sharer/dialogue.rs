//! What two sharers say to each other, and do about it: both ends leave their rings, that of the one who was asked first.

use ringway_stack::tcp::{State, Undelivered};
use ringway_stack::{Error, Instant};

use super::{Account, Letter, Role, Sharer};
use crate::apps::{Ending, Parting};
use crate::host::Context;

impl Sharer {
    pub(super) fn hear_all(&mut self, cx: &mut Context<'_>) {
        loop {
            let (own, now) = (self.own, cx.now);
            let inbox = &mut self.inbox;
            let Some(letter) = self.line.change(|line| inbox.take(line, own, now)) else { break };
            self.hear(cx, letter);
        }
        if self.line.read().dead[self.other()] && self.inbox.next_at().is_none() {
            self.hear_of_death(cx);
        }
    }

    fn hear(&mut self, cx: &mut Context<'_>, letter: Letter) {
        match (letter, self.role) {
            (Letter::Leave(dialogue), _) => {
                let answer = self.leave(cx, dialogue);
                self.post(answer);
            }
            (Letter::Left(dialogue, left), Role::Asking(asked, _)) if dialogue == asked => self.follow(cx, dialogue, &left.0, left.1),
            (Letter::Gone(dialogue), Role::Asking(asked, _)) if dialogue == asked => self.go_alone(cx),
            (Letter::Wait(dialogue), Role::Asking(asked, _)) if dialogue == asked => self.ask_later(cx.now),
            (Letter::Take(dialogue, took), Role::Peer(asked)) if dialogue == asked => {
                self.receive(cx, &took.0, took.1);
                self.end(Ending::Carried);
                self.role = Role::Done;
                self.line.change(|line| line.carried = true);
                self.post(Letter::Taken(dialogue));
            }
            (Letter::Taken(dialogue), Role::Owner(asked, _)) if dialogue == asked => {
                self.end(Ending::Carried);
                self.role = Role::Done;
            }
            (Letter::HungUp(dialogue), Role::Peer(asked)) if dialogue == asked => self.break_off(),
            // The answer to who waits for it no longer, or never got what it answers.
            _ => {}
        }
    }

    /// The other's host has crashed: nobody answers any more, and who waits for more is reset.
    fn hear_of_death(&mut self, cx: &mut Context<'_>) {
        match self.role {
            Role::Asking(..) => self.go_alone(cx),
            Role::Owner(..) | Role::Peer(_) => self.break_off(),
            Role::Free | Role::Done => {}
        }
    }

    pub(super) fn lose_patience(&mut self, cx: &mut Context<'_>) {
        let (Role::Asking(dialogue, since) | Role::Owner(dialogue, since)) = self.role else { return };
        if cx.now < since + self.share.plan.patience {
            return;
        }
        self.post(Letter::HungUp(dialogue));
        match self.role {
            Role::Asking(..) if self.asked < self.share.plan.tries => self.ask_later(cx.now),
            Role::Asking(..) => {
                // It is there, and silent: it is to see a reset, and not wait for somebody who is gone.
                if let Some(conversation) = self.conversation.as_ref().filter(|c| !c.ended()) {
                    cx.ring.close(cx.now, conversation.socket(), true);
                }
                self.end(Ending::Failed(Error::TimedOut));
                self.break_off();
            }
            _ => self.break_off(),
        }
    }

    fn ask_later(&mut self, now: Instant) {
        self.role = Role::Free;
        self.begin_at = Some(now + self.share.plan.look);
    }

    fn post(&self, letter: Letter) {
        let other = self.other();
        self.line.change(|line| line.post(other, letter));
    }

    /// What its program has done so far.
    fn account(&self) -> Account {
        let Some(conversation) = &self.conversation else { return Account::default() };
        Account { written: self.transfer().written, ended: conversation.ended_stream() }
    }

    /// Whether its program, which has not closed it, knows or could know that the connection is over.
    fn is_over(&self, cx: &Context<'_>) -> bool {
        let open = self.conversation.as_ref().filter(|c| !c.ended() && !self.left);
        open.and_then(|c| cx.ring.info(c.socket())).is_some_and(|info| info.state == Some(State::Closed))
    }

    /// The other takes the connection along.
    fn leave(&mut self, cx: &mut Context<'_>, dialogue: u64) -> Letter {
        if self.round > 0 || self.is_over(cx) {
            return Letter::Gone(dialogue);
        }
        match self.role {
            Role::Free => {}
            // Both have begun: one gives way, and both know which. It waits for no answer of its own any longer: what it asked, the other may yet
            // hear, and obey, after it has given up this dialogue.
            Role::Asking(asked, _) if self.own == 1 => self.post(Letter::HungUp(asked)),
            // What is in the middle of it, or has been through it.
            Role::Done if !self.left => {}
            Role::Done => return Letter::Gone(dialogue),
            _ => return Letter::Wait(dialogue),
        }
        let undelivered = match cx.ring.end_silently(cx.now, self.local, self.remote) {
            Ok(undelivered) => undelivered,
            Err(Error::NotConnected) => return Letter::Wait(dialogue),
            Err(_) => return Letter::Gone(dialogue),
        };
        let closed = self.conversation.as_ref().is_some_and(|c| c.ended());
        assert_eq!((undelivered.accepted, undelivered.orphaned), (self.conversation.is_some(), closed), "{}: {undelivered:?}", cx.ip);
        self.left = true;
        // Of who has closed it, the other has all that there is now.
        self.role = if closed { Role::Done } else { Role::Peer(dialogue) };
        Letter::Left(dialogue, Box::new((undelivered, self.account())))
    }

    /// The other's end is off its ring; ours follows.
    fn follow(&mut self, cx: &mut Context<'_>, dialogue: u64, theirs: &Undelivered, account: Account) {
        let ours = cx.ring.end_silently(cx.now, self.local, self.remote);
        self.left = true;
        let Some(ours) = ours.ok().filter(|ours| !ours.is_broken()) else {
            // It failed meanwhile, or ended by a reset. (Or it is over, and a request from long ago has its addresses: then it is there still.)
            if let Some(conversation) = self.conversation.as_ref().filter(|c| !c.ended() && cx.ring.info(c.socket()).is_some()) {
                cx.ring.close(cx.now, conversation.socket(), true);
            }
            self.post(Letter::HungUp(dialogue));
            return self.break_off();
        };
        assert!(ours.accepted, "{}: {ours:?}", cx.ip);
        assert!(!theirs.is_broken(), "{}: {theirs:?}", cx.ip);
        let (to_us, to_them) = (theirs.owed_to(&ours), ours.owed_to(theirs));
        let (Some(to_us), Some(to_them)) = (to_us, to_them) else { panic!("{}: {ours:?} and {theirs:?} do not fit", cx.ip) };
        assert_eq!(theirs.ended, account.ended, "{}: an end that was, or was not: {theirs:?}", cx.ip);
        assert_eq!(ours.ended, self.account().ended, "{}: an end that was, or was not: {ours:?}", cx.ip);
        if !ours.orphaned {
            self.receive(cx, &to_us, account);
        }
        if theirs.orphaned {
            self.end(Ending::Carried);
            self.role = Role::Done;
            self.line.change(|line| line.carried = true);
        } else {
            self.post(Letter::Take(dialogue, Box::new((to_them, self.account()))));
            self.role = Role::Owner(dialogue, cx.now);
        }
    }

    /// Nobody is at the other end: what it sent is there to be read, and then its end, or its reset.
    pub(super) fn go_alone(&mut self, cx: &mut Context<'_>) {
        let ours = match cx.ring.end_silently(cx.now, self.local, self.remote) {
            Ok(ours) => ours,
            Err(Error::NotConnected) => return self.ask_later(cx.now),
            Err(_) => {
                self.role = Role::Done;
                return;
            }
        };
        (self.left, self.role) = (true, Role::Done);
        // An answer that was lost may have had what is missing now.
        let unheard = self.asked > 1;
        self.line.change(|line| (line.alone, line.broken) = (true, line.broken || unheard));
        if !ours.orphaned {
            self.read(cx, &ours.unread);
        }
        if ours.peer_ended && ours.error.is_none() {
            self.end(Ending::Carried);
        } else {
            self.end(Ending::Failed(ours.error.unwrap_or(Error::Reset)));
        }
    }

    /// All that the other wrote is here: what was read, and what is owed.
    fn receive(&mut self, cx: &Context<'_>, owed: &[u8], account: Account) {
        self.read(cx, owed);
        let (read, total) = (self.transfer().read, self.share.dialogues[0].peer.total);
        assert_eq!(read, account.written, "{}: read to the end of what was owed, and the other wrote another number of bytes", cx.ip);
        if account.ended && !matches!(self.share.dialogues[0].peer.parting, Parting::Leave { .. }) {
            assert_eq!(read, total, "{}: the stream ended early", cx.ip);
        }
    }

    /// Reads what did not come by the ring.
    fn read(&self, cx: &Context<'_>, bytes: &[u8]) {
        let (at, pattern) = (self.transfer().read, self.share.dialogues[0].peer.pattern);
        let wrong = pattern.mismatch(at, bytes).filter(|_| !cx.tainted);
        assert!(wrong.is_none(), "{}: byte {wrong:?} of the stream is not what was written ({} bytes owed at {at})", cx.ip, bytes.len());
        self.share.transfers[0].change(|t| t.read += bytes.len() as u64);
    }

    /// The other waits no longer, or cannot be asked: a reset.
    fn break_off(&mut self) {
        self.end(Ending::Failed(Error::Reset));
        (self.left, self.role) = (true, Role::Done);
        self.line.change(|line| line.broken = true);
    }

    /// Its part in the first connection ends so, if it has not yet.
    fn end(&self, ending: Ending) {
        self.share.transfers[0].change(|t| t.ending = t.ending.or(Some(ending)));
    }
}
