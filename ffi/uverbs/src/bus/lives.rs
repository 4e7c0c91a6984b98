//! Who lives on the bus. A process that is killed, or executes another program, says nothing any more, where a kernel would part its connections for it. So each has a socket that listens beside its slot's, and nobody ever
//! sends anything there: whoever has connections with it holds one to that socket, which the kernel ends when the process ends, however that came. The process accepts those and holds them, too, until their other
//! ends are gone: what is not accepted takes a place of the socket's queue, whose it was or not.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;

use ringway_host::Fd;
use ringway_preload::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Error;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::getuid;

use super::{Bus, SLOTS};
use crate::paths::from_rustix;

/// Those whose end is waited for, and who wait for this process's.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// `None` for one who had ended before.
    watched: BTreeMap<u8, Option<Fd>>,
    /// At most [`VISITORS_MAX`].
    visitors: Vec<Fd>,
}

/// Each process on the bus has one, unless it begins anew before its last one is seen to be gone.
const VISITORS_MAX: usize = 2 * SLOTS as usize;

fn socket() -> Result<Fd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Fd::of(|| rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)).map_err(from_rustix)
}

/// A socket by which others see that its process lives, until it is dropped.
///
/// # Errors
/// The kernel's, of sockets.
pub(super) fn live(at: &SocketAddrUnix) -> Result<Fd, Errno> {
    let socket = socket()?;
    rustix::net::bind(&socket, at).map_err(from_rustix)?;
    rustix::net::listen(&socket, SLOTS.into()).map_err(from_rustix)?;
    Ok(socket)
}

impl Lives {
    /// Waits for the ends of these processes, and of no others.
    pub(super) fn watch(&mut self, slots: &BTreeSet<u8>, address: impl Fn(u8) -> Option<SocketAddrUnix>) {
        self.watched.retain(|slot, _| slots.contains(slot));
        for slot in slots.iter().filter(|slot| !self.watched.contains_key(slot)).copied().collect::<Vec<_>>() {
            let (Ok(socket), Some(at)) = (socket(), address(slot)) else { continue };
            match rustix::net::connect(&socket, &at) {
                Ok(()) => _ = self.watched.insert(slot, Some(socket)),
                // It lives, and has not come to accept others: it is asked again the next time.
                Err(Error::AGAIN) => {}
                Err(_) => _ = self.watched.insert(slot, None),
            }
        }
    }

    /// Lets those in who wait for the end of this process, at whose socket they are, and forgets those who are gone.
    pub(super) fn receive_visitors(&mut self, life: &Fd) {
        while self.visitors.len() < VISITORS_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(visitor) = Fd::of(|| rustix::net::accept_with(life, flags)) else { break };
            // (Abstract names are open to everybody.)
            if sockopt::socket_peercred(&visitor).is_ok_and(|peer| peer.uid == getuid()) {
                self.visitors.push(visitor);
            }
        }
        let mut looked_at: Vec<_> = self.visitors.iter().map(|visitor| PollFd::new(visitor, PollFlags::empty())).collect();
        let _ = poll(&mut looked_at, Some(&Timespec::default()));
        let mut stay = looked_at.iter().map(|looked| !has_ended(looked)).collect::<Vec<_>>().into_iter();
        self.visitors.retain(|_| stay.next().unwrap_or(true));
    }

    /// Whose end has come since the last time.
    pub(super) fn ended(&mut self) -> Vec<u8> {
        if self.watched.is_empty() {
            return Vec::new();
        }
        let (slots, sockets): (Vec<u8>, Vec<_>) =
            self.watched.iter().filter_map(|(slot, socket)| Some((*slot, socket.as_ref()?.as_fd()))).unzip();
        let mut looked_at: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket, PollFlags::empty())).collect();
        // (What cannot be asked now can be the next time.)
        let _ = poll(&mut looked_at, Some(&Timespec::default()));
        let hung_up = slots.iter().zip(&looked_at).filter(|(_, looked)| has_ended(looked)).map(|(slot, _)| *slot);
        let had_ended = self.watched.iter().filter(|(_, socket)| socket.is_none()).map(|(slot, _)| *slot);
        let ended: Vec<u8> = hung_up.chain(had_ended).collect();
        self.watched.retain(|slot, _| !ended.contains(slot));
        ended
    }
}

fn has_ended(looked: &PollFd<'_>) -> bool {
    looked.revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

impl Bus {
    /// Lets those in who wait for this process's end. To be called now and then.
    pub(crate) fn receive_visitors(&mut self) {
        if let Some(life) = &self.life {
            self.lives.receive_visitors(life);
        }
    }

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

    /// Two processes that live, and so many after each other with which they have to do for a moment each, that no queue has room for all of them.
    #[test]
    fn a_process_lives_however_many_have_had_to_do_with_it() {
        let name = format!("visited-{}", std::process::id());
        let join = || Bus::join(name.clone()).unwrap();
        let (mut receives, sleeps) = (join(), join());
        for _ in 0..2 * usize::from(SLOTS) {
            let mut visitor = join();
            visitor.watch(&BTreeSet::from([0, 1]));
            assert!(visitor.ended().is_empty());
            receives.receive_visitors();
            assert!(receives.lives.visitors.len() <= 2, "those who are gone are forgotten");
        }
        let mut visitor = join();
        visitor.watch(&BTreeSet::from([0, 1]));
        drop((receives, sleeps));
        // (The one that sleeps could not be waited for.)
        visitor.watch(&BTreeSet::from([0, 1]));
        assert_eq!(visitor.ended().into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([0, 1]));
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
