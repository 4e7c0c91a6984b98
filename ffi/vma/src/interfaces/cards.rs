//! Rings of a card: one more for each place that asks for one (a thread, a core, an address …), by the allocation logic.
//!
//! A ring is real: it has queues, completions, buffers and a lock of its own, and flow rules lead to it. The card takes its time to make one, so that is done without the process's
//! lock, and without any ring's: before a socket connects, listens or is bound, and by a thread of its own for a place that uses what another one's ring has
//! ([`crate::moving::steered`]). As on shared memory rings stay, and that of a thread which has ended goes to the next one.

use core::ffi::c_int;

use ringway_devices::RingQueues;
use ringway_host::Blocked;
use ringway_stack::net::LinkId;
use ringway_stack::socket::Place;

use super::{Grows, Interface, Interfaces, On, RINGS_KEPT};
use crate::cancel::Masked;
use crate::extra::rings::is_of_profile;
use crate::params;
use crate::process::{self, Offload, Process};
use crate::rings::RINGS_MAX;
use crate::slab::Key;
use crate::socket::{Kind, address};

/// Attempts to have a ring for a place: another thread may take each.
const TRIES: usize = 4;

/// Has each card that is meant make rings for a socket's flows there, if it has none that is for them. It is the calling thread's, by whose places rings are chosen.
pub(crate) fn provide(key: Key, is_meant: impl Fn(&Offload, LinkId) -> bool) {
    let Some(process) = process::process() else { return };
    if process.lock().place_on_cards(key, &is_meant).is_none() || process::INIT.is_mine() {
        return;
    }
    let (_masked, _undisturbed) = (Masked::new(), Blocked::new());
    // (A child of a fork in between would have memory of queues that nobody has noted yet.)
    let _one_at_a_time = process::INIT.lock();
    for _ in 0..TRIES {
        let Some(link) = process.lock().place_on_cards(key, &is_meant) else { return };
        if !open_beside(process, link) {
            return;
        }
    }
}

/// The same for a listener, or UDP socket, that is bound there: on each card that has its address.
pub(crate) fn provide_for_bound(key: Key) {
    provide(key, |offload, link| {
        let (Some(interfaces), Some(socket)) = (&offload.interfaces, offload.sockets.find(key)) else { return false };
        socket.bound.is_none_or(|bound| interfaces.has_address(link, bound.ip()))
    });
}

/// The same for a UDP socket that the kernel has bound, or will have.
pub(crate) fn provide_for_datagrams(key: Key, fd: c_int) {
    provide(key, |offload, link| {
        let (Some(interfaces), Some(socket)) = (&offload.interfaces, offload.sockets.find(key)) else { return false };
        let bound = address::of_placeholder(fd, socket.family).filter(|_| socket.kind == Kind::Datagram(None));
        bound.is_some_and(|bound| interfaces.has_address(link, bound.ip()))
    });
}

/// Has a card make one ring more by a thread of its own. Whether one will be there.
pub(crate) fn open_later(offload: &mut Offload, link: LinkId) -> bool {
    let Some(process) = process::process() else { return false };
    let work = move || {
        crate::boundary!((), {
            let _one_at_a_time = process::INIT.lock();
            open_beside(process, link);
        });
    };
    let Some(interface) = offload.interfaces.as_deref_mut().and_then(|interfaces| interfaces.steered_mut(link)) else { return false };
    match interface.grows {
        Grows::Now => true,
        Grows::Never | Grows::NoMore => false,
        Grows::AsWanted => {
            // No handler of the program's runs on a thread that is not its.
            let _undisturbed = Blocked::new();
            let has_thread = std::thread::Builder::new().name("ringway-ring".to_owned()).spawn(work).is_ok();
            if has_thread {
                interface.grows = Grows::Now;
            }
            has_thread
        }
    }
}

/// Opens one ring more on a card. Whether there is one more.
fn open_beside(process: &'static Process, link: LinkId) -> bool {
    let opener = {
        let offload = process.lock();
        let first = offload.interfaces.as_ref().and_then(|interfaces| interfaces.steered_links().find(|(of, _)| *of == link));
        first.and_then(|(_, first)| offload.rings.at(first).ring.opener())
    };
    let Some(opener) = opener else { return false };
    let opened = opener().and_then(|queues| Ok((queues, params::random_seed().map_err(|error| error.to_string())?)));
    let mut guard = process.lock();
    let added = opened.and_then(|(queues, seed)| guard.add_on_card(process, link, queues, seed));
    let is_there = added.is_ok();
    if let Err(why) = &added {
        tracing::info!("no further ring can be had of a card, so that one is shared: {why}");
    }
    let grows = if is_there { Grows::AsWanted } else { Grows::NoMore };
    if let Some(interface) = guard.interfaces.as_deref_mut().and_then(|interfaces| interfaces.steered_mut(link)) {
        interface.grows = grows;
    }
    is_there
}

impl Interfaces {
    fn steered_mut(&mut self, link: LinkId) -> Option<&mut Interface> {
        self.all.iter_mut().find(|interface| interface.link == link && interface.is_steered())
    }
}

impl Offload {
    /// Gives that socket's place a ring of each card that is meant. A card that has to make one first; `None`: there is none.
    fn place_on_cards(&mut self, key: Key, is_meant: impl Fn(&Self, LinkId) -> bool) -> Option<LinkId> {
        let links: Vec<(LinkId, u16)> = self.interfaces.as_ref()?.steered_links().collect();
        let (place, most) = self.place_on_card(key)?;
        for (link, first) in links {
            if is_of_profile(place) {
                self.keep_for_all(link, first);
            }
            if self.known_ring_on(link, place).is_some() || !is_meant(self, link) {
                continue;
            }
            if self.wants_ring_on(link, place, most) {
                return Some(link);
            }
            // (So that no other place takes the same one.)
            self.ring_on(link, place);
        }
        None
    }

    /// Whether a card is to make a ring for a place.
    pub(crate) fn wants_ring_on(&mut self, link: LinkId, place: Place, most: usize) -> bool {
        let grows = |interface: &&Interface| interface.link == link && matches!(interface.grows, Grows::AsWanted | Grows::Now);
        let Some(interface) = self.interfaces.as_ref().and_then(|interfaces| interfaces.all.iter().find(grows)) else { return false };
        let has_room = interface.rings.len() < most && self.rings.interfaces.iter().count() < RINGS_MAX - RINGS_KEPT;
        has_room && self.rings.len() < RINGS_MAX && self.has_no_ring_for(link, place)
    }

    /// A card has made one.
    fn add_on_card(&mut self, process: &'static Process, link: LinkId, queues: RingQueues, seed: [u8; 32]) -> Result<(), String> {
        let interfaces = self.interfaces.as_deref().ok_or("its interface was given up")?;
        let at = interfaces.all.iter().position(|interface| interface.link == link && interface.is_steered());
        let at = at.ok_or("its interface was given up")?;
        let Interface { named, card, .. } = &interfaces.all[at];
        let name = interfaces.monitor.tables().link(link).map(|link| link.name.to_string()).unwrap_or_default();
        let (named, card) = (named.clone(), card.clone());
        if self.ending || self.rings.len() >= RINGS_MAX {
            return Err("there are as many rings as there may be".to_owned());
        }
        let own = self.add_ring_on(process, &On { link, named: &named, name: &name, card: card.as_deref() }, queues, seed);
        let number = own.number;
        if let Some(interfaces) = self.interfaces.as_deref_mut() {
            interfaces.all[at].rings.push(own);
        }
        crate::capture::ring_begins(self, process.clock, number);
        // That thread serves it from now on.
        self.mux.call_progress();
        Ok(())
    }
}
