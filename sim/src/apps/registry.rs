//! Which conversations clients will begin, by the first bytes that they send.

use std::collections::BTreeMap;

use super::{Dialogue, Shared, Transfer};

/// Conversations that a server may be drawn into.
#[derive(Debug, Default)]
pub struct Registry {
    expected: BTreeMap<u64, Entry>,
    /// Connections that ended without a byte, and without an error.
    pub silent: u64,
    /// Connections that failed before they had named themselves.
    pub broken: u64,
}

#[derive(Debug)]
struct Entry {
    /// From the server's point of view.
    dialogue: Dialogue,
    transfer: Shared<Transfer>,
    begun: bool,
}

impl Registry {
    /// Announces a conversation; `dialogue` and `transfer` are the client's and the server's.
    ///
    /// # Panics
    /// The client's stream is too short to name it, or its name is taken.
    pub fn announce(&mut self, dialogue: Dialogue, transfer: Shared<Transfer>) {
        assert!(dialogue.own.total >= 8, "a stream of {} bytes has no name", dialogue.own.total);
        let entry = Entry { dialogue: dialogue.turned(), transfer, begun: false };
        let taken = self.expected.insert(dialogue.own.pattern.name(), entry);
        assert!(taken.is_none(), "two streams have the same name");
    }

    /// Someone gave a name: what is to be said to it.
    ///
    /// `None`: its bytes may have changed on their way (`tainted`), and it is nobody; or it came before, and what came with its SYN comes once more, as it may
    /// (`repeats`; RFC 7413 s2.1).
    ///
    /// # Panics
    /// Nobody has that name, or whoever has it came before: what was received is not what was sent.
    pub(super) fn begin(&mut self, name: u64, tainted: bool, repeats: bool) -> Option<(Dialogue, Shared<Transfer>)> {
        let entry = self.expected.get_mut(&name);
        assert!(entry.is_some() || tainted, "a connection that begins with {name:016x}, which nobody wrote");
        let entry = entry?;
        assert!(!entry.begun || repeats, "a conversation was begun twice: {:?}", entry.dialogue);
        let is_first = !core::mem::replace(&mut entry.begun, true);
        is_first.then(|| (entry.dialogue, entry.transfer.clone()))
    }
}
