//! Datagrams that the program looks at before its reader does.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{Buffers, OVERHEAD, UdpSocket, Waiting};
use crate::cyclic::made_up_headers;
use crate::device::{Device, RxBuffer};
use crate::tcp::{Decision, Lent, LentPieces, RxPayload};
use crate::time::Instant;

/// A datagram that nobody has decided about.
pub(in crate::ring) struct Undecided<B> {
    pub(in crate::ring) from: SocketAddrV4,
    pub(in crate::ring) to: Ipv4Addr,
    pub(in crate::ring) received: Instant,
    pub(in crate::ring) pieces: LentPieces<B>,
}

impl<B: RxBuffer> Undecided<B> {
    pub(in crate::ring) fn len(&self) -> usize {
        self.pieces.iter().map(Lent::len).sum()
    }
}

impl<D: Device> UdpSocket<D> {
    /// `on`: what arrives from now on is not read before it is admitted. Else all that waits for that is admitted: whether there was any.
    pub(in crate::ring) fn set_screen(&mut self, on: bool) -> bool {
        if on {
            self.lend_from_now_on();
            self.screen.get_or_insert_default();
            return false;
        }
        let mut admitted = false;
        while self.decide(Decision::Admit).is_some() {
            admitted = true;
        }
        self.screen = None;
        admitted
    }

    pub(in crate::ring) fn candidate(&self) -> Option<&Undecided<D::Rx>> {
        self.screen.as_ref()?.front()
    }

    /// Decides about the candidate; its length in bytes.
    pub(in crate::ring) fn decide(&mut self, decision: Decision) -> Option<usize> {
        let undecided = self.screen.as_mut()?.pop_front()?;
        let len = undecided.len();
        if decision != Decision::Hold {
            self.lent = self.lent.saturating_sub(len + OVERHEAD);
        }
        if decision == Decision::Admit {
            self.admit(undecided, len);
        }
        Some(len)
    }

    /// Bytes and datagrams that wait to be read.
    pub(in crate::ring) fn ready(&self) -> (usize, usize) {
        (self.waiting().0, self.queue.len())
    }

    fn admit(&mut self, undecided: Undecided<D::Rx>, len: usize) {
        let (mut head, mut buffers) = (0, Buffers::None);
        for piece in undecided.pieces {
            buffers = match (piece, buffers) {
                (Lent::Copied(bytes), buffers) => {
                    head += bytes.len();
                    self.bytes.push(&bytes);
                    buffers
                }
                (Lent::Buffer(only), Buffers::None) => Buffers::One(only),
                (Lent::Buffer(body), Buffers::One(head)) => Buffers::Two(Box::new([head, body])),
                (Lent::Buffer(_), both @ Buffers::Two(_)) => both,
            };
        }
        if let Some(headers) = &mut self.headers {
            headers.push_back(made_up_headers(undecided.from, SocketAddrV4::new(undecided.to, self.local.port()), len));
        }
        self.enqueue(Waiting { from: undecided.from, to: undecided.to, received: undecided.received, head, buffers }, len);
    }

    /// Takes a datagram in that nobody has decided about.
    pub(super) fn push_undecided(&mut self, now: Instant, from: SocketAddrV4, to: Ipv4Addr, payload: RxPayload<'_, D::Rx>) {
        let Some(screen) = &mut self.screen else { return };
        let head =
            payload.held_head().map(Lent::Buffer).or_else(|| (!payload.head.is_empty()).then(|| Lent::Copied(payload.head.to_vec())));
        let pieces = head.into_iter().chain(payload.body.map(Lent::Buffer)).collect();
        let undecided = Undecided { from, to, received: now, pieces };
        self.lent += undecided.len() + OVERHEAD;
        screen.push_back(undecided);
    }
}
