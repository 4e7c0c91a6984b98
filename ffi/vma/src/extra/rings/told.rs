//! What reports tell of the rings that a socket is on (vma.md s5, the third view).

use super::{Asked, Direction, Logic, Rings};
use crate::socket::{Kind, Socket};

/// Of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The number that the program chose the ring by; `None`: it is not chosen by one.
    pub(crate) user_id: Option<u32>,
    /// How often the socket went over to another ring.
    pub(crate) migrations: u64,
}

impl Rings {
    /// Of a socket, which may be known by no name any more.
    pub(crate) fn told(&self, socket: &Socket, direction: Direction) -> Told {
        let at = direction as usize;
        let on = socket.rare.as_ref().map(|rare| &rare.rings);
        let asked = on.and_then(|on| on.asked[at]).unwrap_or(Asked::by(self.logics[at]));
        // (One of the kernel's has a ring where its completions are polled.)
        let has_ring = socket.kind != Kind::Kernel || on.is_some_and(|on| on.ring(direction).is_some());
        Told {
            user_id: (has_ring && asked.logic == Logic::UserId).then_some(asked.user_id),
            migrations: on.map_or(0, |on| on.migrations[at]) + u64::from(socket.migrations[at]),
        }
    }
}
