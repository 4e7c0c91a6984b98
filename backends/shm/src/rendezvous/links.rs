//! The links of a member: their slots, their beginning and their end.

use core::sync::atomic::Ordering;
use std::io;
use std::sync::Arc;

use ringway_stack::device::MacAddr;

use super::hello::{Half, PeerHalf};
use super::serve::Token;
use super::{Rendezvous, State};
use crate::fd::Fd;
use crate::link::Link;
use crate::member::{Notice, mac_of, slot_of};
use crate::sys;

/// A connected peer. Stays until the device has let go of its slot.
pub(super) struct Entry {
    pub(super) link: Arc<Link>,
    /// What proves that the peer lives; none for this member itself, and for a peer that is gone.
    pub(super) socket: Option<Arc<Fd>>,
}

/// A slot's generation has this many bits of an address.
const GENERATION_MASK: u32 = 0xff_ffff;

impl Rendezvous {
    /// Takes a slot for a new peer; none if the limit is reached.
    pub(super) fn reserve(&self, state: &mut State) -> Option<MacAddr> {
        let slot = state.free_slots.pop().or_else(|| {
            // The first slot is this member's own.
            let next = state.generations.len().max(1);
            (next < self.slots).then_some(next as u16)
        })?;
        let at = usize::from(slot);
        if state.generations.len() <= at {
            state.generations.resize(at + 1, 0);
            state.links.resize_with(at + 1, || None);
        }
        state.generations[at] = (state.generations[at] + 1) & GENERATION_MASK;
        Some(mac_of(slot, state.generations[at]))
    }

    /// Gives a slot back that was never used.
    pub(super) fn unreserve(state: &mut State, mac: MacAddr) {
        state.free_slots.push(slot_of(mac) as u16);
    }

    /// The living link to member `id`.
    pub(super) fn living(&self, state: &mut State, id: u64) -> Option<Arc<Link>> {
        let slot = usize::from(*state.by_id.get(&id)?);
        let entry = state.links.get(slot)?.as_ref()?;
        if entry.socket.as_ref().is_some_and(|socket| sys::is_hung_up(socket)) {
            self.lost(state, slot);
            return None;
        }
        Some(entry.link.clone())
    }

    /// Makes a link usable: from here on, the device polls it.
    pub(super) fn install(&self, state: &mut State, link: &Arc<Link>) -> io::Result<()> {
        let slot = slot_of(link.mac);
        let socket = link.connection.clone();
        if let Some(socket) = &socket {
            // What can be read there are wake-ups, and the device's.
            self.epoll.add(socket, libc::EPOLLRDHUP, Token::Alive(slot as u64).pack())?;
            self.member.wake_ups.add(socket, slot).inspect_err(|_| self.epoll.remove(socket))?;
        }
        state.by_id.insert(link.peer.id, slot as u16);
        state.links[slot] = Some(Entry { link: link.clone(), socket });
        self.member.notify(Notice::Joined(link.clone()));
        tracing::debug!(pid = link.pid, mac = %link.mac, "peer joined");
        Ok(())
    }

    /// A peer is gone: no new flows to it. The device drains what it has sent.
    pub(super) fn lost(&self, state: &mut State, slot: usize) {
        let Some(entry) = state.links.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(socket) = entry.socket.take() else { return };
        entry.link.alive.store(false, Ordering::Relaxed);
        self.losses.fetch_add(1, Ordering::Relaxed);
        let (id, mac) = (entry.link.peer.id, entry.link.mac);
        if state.by_id.get(&id) == Some(&(slot as u16)) {
            state.by_id.remove(&id);
        }
        self.hang_up(&socket);
        self.member.notify(Notice::Gone(mac));
    }

    /// Ends a link's connection. Who still has frames of the peer's has the link, too, so it is closed later; the peer learns now.
    pub(super) fn hang_up(&self, connection: &Fd) {
        self.epoll.remove(connection);
        self.member.wake_ups.remove(connection);
        sys::shut_down(connection.raw());
    }

    /// The device has let go of a peer (perhaps because of what it wrote; then it learns that by this connection's end).
    pub(crate) fn release_slot(&self, link: &Link) {
        let mut state = self.lock();
        let slot = slot_of(link.mac);
        let Some(entry) = state.links.get_mut(slot).and_then(|entry| entry.take_if(|entry| entry.link.mac == link.mac)) else { return };
        if entry.link.alive.swap(false, Ordering::Relaxed) {
            self.losses.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(socket) = entry.socket {
            self.hang_up(&socket);
        }
        if state.by_id.get(&link.peer.id) == Some(&(slot as u16)) {
            state.by_id.remove(&link.peer.id);
        }
        if slot != 0 {
            state.free_slots.push(slot as u16);
        }
    }

    /// The channel to ourselves, made when it is first needed. No socket is involved: we know whether we live.
    pub(super) fn to_myself(&self, state: &mut State) -> io::Result<Arc<Link>> {
        if let Some(Some(entry)) = state.links.first() {
            return Ok(entry.link.clone());
        }
        let half = Half::new(&self.member, self.member.id)?;
        let other = PeerHalf::of_myself(&self.member, &half)?;
        let (link, _) = half.join(&self.member, other, mac_of(0, 0), None);
        if state.links.is_empty() {
            state.links.push(None);
            state.generations.push(0);
        }
        self.install(state, &link)?;
        Ok(link)
    }
}
