//! Who lives on the bus. A process that is killed, or executes another program, says nothing any more, where a kernel would part its connections for it. So each has a socket that listens beside its slot's, and nobody ever
//! accepts there: whoever has connections with it holds one to that socket, which the kernel ends when the process ends, however that came.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};

use ringway_preload::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::getuid;

use super::{Bus, SLOTS};
use crate::paths::from_rustix;

/// Those whose end is waited for: `None` for one who had ended before.
#[derive(Debug, Default)]
pub(super) struct Lives(BTreeMap<u8, Option<OwnedFd>>);

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(from_rustix)
}

/// A socket by which others see that its process lives, until it is dropped.
///
/// # Errors
/// The kernel's, of sockets.
pub(super) fn live(at: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    rustix::net::bind(&socket, at).map_err(from_rustix)?;
    rustix::net::listen(&socket, SLOTS.into()).map_err(from_rustix)?;
    Ok(socket)
}

impl Lives {
    /// Waits for the ends of these processes, and of no others.
    pub(super) fn watch(&mut self, slots: &BTreeSet<u8>, address: impl Fn(u8) -> Option<SocketAddrUnix>) {
        self.0.retain(|slot, _| slots.contains(slot));
        for slot in slots {
            self.0.entry(*slot).or_insert_with(|| {
                let (socket, at) = (socket().ok()?, address(*slot)?);
                rustix::net::connect(&socket, &at).is_ok().then_some(socket)
            });
        }
    }

    /// Whose end has come since the last time.
    pub(super) fn ended(&mut self) -> Vec<u8> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let (slots, sockets): (Vec<u8>, Vec<_>) =
            self.0.iter().filter_map(|(slot, socket)| Some((*slot, socket.as_ref()?.as_fd()))).unzip();
        let mut looked_at: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket, PollFlags::empty())).collect();
        // (What cannot be asked now can be the next time.)
        let _ = poll(&mut looked_at, Some(&Timespec::default()));
        let has_ended = |looked: &PollFd<'_>| looked.revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let hung_up = slots.iter().zip(&looked_at).filter(|(_, looked)| has_ended(looked)).map(|(slot, _)| *slot);
        let had_ended = self.0.iter().filter(|(_, socket)| socket.is_none()).map(|(slot, _)| *slot);
        let ended: Vec<u8> = hung_up.chain(had_ended).collect();
        self.0.retain(|slot, _| !ended.contains(slot));
        ended
    }
}

impl Bus {
    /// Waits for the ends of the processes in these slots, and of no others.
    pub(crate) fn watch(&mut self, slots: &BTreeSet<u8>) {
        let mut lives = core::mem::take(&mut self.lives);
        lives.watch(slots, |slot| self.life_of(slot).ok());
        self.lives = lives;
    }

    /// The slots of those whose end has come since the last time.
    pub(crate) fn ended(&mut self) -> Vec<u8> {
        self.lives.ended()
    }

    /// Where a slot's process shows that it lives.
    pub(super) fn life_of(&self, slot: u8) -> Result<SocketAddrUnix, Errno> {
        match self.life_path(slot) {
            Some(path) => SocketAddrUnix::new(path).map_err(from_rustix),
            None => {
                let name = format!("ringway-lives/{}/{}/{slot}", getuid().as_raw(), self.name);
                SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(from_rustix)
            }
        }
    }

    /// Its file, on a bus that is a folder. (No name is longer than the slot's own, which a long bus leaves just room for.)
    pub(super) fn life_path(&self, slot: u8) -> Option<String> {
        self.name.starts_with('/').then(|| format!("{}/{}.{slot}", self.name, getuid().as_raw()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_hear_of_the_end(name: &str) {
        let join = || Bus::join(name.to_owned()).unwrap();
        let (mut a, b, c) = (join(), join(), join());
        a.watch(&BTreeSet::from([1, 2, 7]));
        assert_eq!(a.ended(), [7], "nobody was there");
        drop(b);
        assert_eq!(a.ended(), [1]);
        assert!(a.ended().is_empty(), "it is told once");
        a.watch(&BTreeSet::from([1]));
        let again = join();
        assert_eq!((a.ended(), again.slot()), (vec![1], 1), "who has its slot now is another");
        a.watch(&BTreeSet::from([1]));
        assert!(a.ended().is_empty());
        drop(c);
        assert!(a.ended().is_empty(), "nobody waits for it any more");
        drop(again);
        assert_eq!(a.ended(), [1]);
    }

    #[test]
    fn a_bus_may_have_the_longest_name_that_a_slot_has_room_for() {
        // (sun_path has 108 bytes, the first of which is 0: unix(7).)
        let own = format!("ringway-connectx/{}//255", getuid().as_raw()).len();
        drop(Bus::join("b".repeat(107 - own)).unwrap());
    }

    #[test]
    fn those_who_have_connections_with_a_process_hear_of_its_end() {
        all_hear_of_the_end(&format!("lives-{}", std::process::id()));
        let folder = std::env::temp_dir().join(format!("connectx-lives-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        all_hear_of_the_end(folder.to_str().unwrap());
        std::fs::remove_dir(&folder).expect("it is empty");
    }
}
