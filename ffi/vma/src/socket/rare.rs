//! What few sockets have: kept apart, so that the others stay small.

use core::cell::Cell;

use arrayvec::ArrayVec;
use libc::c_int;
use ringway_stack::device::Pacing;
use ringway_stack::net::LinkId;

use super::cork::Gathered;
use super::flows::Former;
use super::groups::Groups;
use crate::extra::{Callback, OnRings};
use crate::mux;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// The error of a connection that was given up by the program itself: SO_ERROR of a socket that is fresh again.
    pub(crate) error: Option<c_int>,
    /// SO_ZEROCOPY.
    pub(crate) zerocopy: bool,
    /// Sends with MSG_ZEROCOPY so far, by which the next one is named.
    pub(crate) zerocopy_next: u32,
    /// The first and the last whose completion nobody has taken yet.
    pub(crate) completed: Option<(u32, u32)>,
    /// The rule of libvma.conf that left it to the kernel.
    pub(crate) rule: Option<String>,
    /// Multicast.
    pub(crate) groups: Groups,
    /// UDP_CORK.
    pub(crate) cork: bool,
    /// A datagram that is not complete.
    pub(crate) corked: Option<Gathered>,
    /// SO_VMA_FLOW_TAG; zero: none.
    pub(crate) flow_tag: u32,
    /// SO_MAX_PACING_RATE, if it is limited.
    pub(crate) rate: Option<Pacing>,
    /// What the program looks at before its reader does.
    pub(crate) callback: Option<Callback>,
    /// That callback has held something, and nobody who polls the socket has been told.
    pub(crate) held: Cell<bool>,
    /// Options that are set by which the kernel prefers it to others of its address.
    pub(crate) preferences: ArrayVec<c_int, 2>,
    /// A program of the kernel's was given to it, which chooses among the sockets of its address.
    pub(crate) has_group_program: bool,
    /// Of a UDP socket that has gone over to another ring: its flow in the one before.
    pub(crate) former: Option<Former>,
    /// What it has to do with the Extra API's rings.
    pub(crate) rings: OnRings,
    /// The ring of each card's link on which it has flows, where that is not the first one.
    pub(crate) on_cards: Vec<(LinkId, u16)>,
}

impl Rare {
    /// A send with MSG_ZEROCOPY took bytes, which were copied: it is complete (tcp_zerocopy; Documentation/networking/msg_zerocopy).
    /// Completions in a row are told as one.
    pub(crate) fn complete_zerocopy(&mut self) {
        let id = self.zerocopy_next;
        self.zerocopy_next = id.wrapping_add(1);
        self.completed = Some((self.completed.map_or(id, |(first, _)| first), id));
    }

    /// Whether nothing in here says what becomes of a UDP socket's datagrams, once it is known which flow they come and go by.
    pub(crate) fn lets_datagrams_be_plain(&self) -> bool {
        !self.cork
            && self.corked.is_none()
            && self.callback.is_none()
            && !self.held.get()
            && self.error.is_none()
            && self.completed.is_none()
    }

    /// Epoll's bits for what is in here.
    pub(crate) fn readiness(&self) -> u32 {
        let error = if self.error.is_some() || self.completed.is_some() { libc::EPOLLERR as u32 } else { 0 };
        if self.held.get() { error | mux::IN } else { error }
    }
}
