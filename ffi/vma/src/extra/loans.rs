//! What is lent to the program, by id.

use core::ffi::{c_int, c_void};

use arrayvec::ArrayVec;
use libc::iovec;
use ringway_devices::RxBuf;
use ringway_stack::ring::{FlowId, Lent};

use crate::exports::signal::faults;
use crate::process::{Offload, Process};
use crate::slab::{Key, Slab};

/// The handles of a packet: a datagram's most.
pub(super) type Pieces = ArrayVec<Lent<RxBuf>, 3>;

/// What is lent to a callback is nobody's to be given back before it is held.
const NOBODY: FlowId = FlowId { ring: 0, index: u32::MAX, generation: 0 };

/// A packet that the program has.
#[derive(Debug)]
pub(super) struct Loan {
    /// The socket that received it, and the number by which it was received.
    pub(super) socket: Key,
    pub(super) fd: c_int,
    /// What it is to be given back to, and how much of it.
    pub(super) ring: FlowId,
    pub(super) len: usize,
    /// Keep the bytes where they are.
    pub(super) pieces: Pieces,
}

/// All that is lent.
#[derive(Debug)]
pub(crate) struct Loans {
    packets: Slab<Loan>,
    /// What arrives stays where the device put it.
    pub(crate) lends: bool,
}

impl Loans {
    pub(crate) const fn new() -> Self {
        Self { packets: Slab::new(), lends: false }
    }

    /// The sockets that received what is lent, once for each packet.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Key> {
        self.packets.iter().map(|(_, loan)| loan.socket)
    }

    #[cfg(test)]
    const fn len(&self) -> usize {
        self.packets.len()
    }

    /// Lends what `fill` puts there.
    #[inline(always)]
    pub(super) fn lend<T>(&mut self, (socket, fd): (Key, c_int), fill: impl FnOnce(&mut Loan) -> T) -> (*mut c_void, Option<T>) {
        // (Filled where it stays: pieces are large, and would be copied at each step.)
        let key = self.packets.insert(Loan { socket, fd, ring: NOBODY, len: 0, pieces: Pieces::new() });
        (id_of(key), self.packets.find_mut(key).map(fill))
    }

    /// What a callback was shown is the program's, until it gives it back. `false`: it has done that already.
    pub(super) fn hold(&mut self, id: *mut c_void, ring: FlowId, len: usize) -> bool {
        let Some(loan) = key_of(id).and_then(|key| self.packets.find_mut(key)) else { return false };
        (loan.ring, loan.len) = (ring, len);
        true
    }

    /// What a callback was shown is not the program's.
    pub(super) fn forget(&mut self, id: *mut c_void) {
        key_of(id).map(|key| self.packets.discard(key));
    }

    /// Takes a loan back that `fd`, which is `socket` (if it is one), was given: to whom it goes, and how much. `None`: it has no such loan.
    fn take(&mut self, id: *mut c_void, fd: c_int, socket: Option<Key>, is_open: impl Fn(Key) -> bool) -> Option<(FlowId, usize)> {
        let key = key_of(id)?;
        let loan = self.packets.find(key)?;
        // Of a socket that is closed, the number that it had gives back.
        let is_its = socket == Some(loan.socket) || (loan.fd == fd && !is_open(loan.socket));
        let back = (loan.ring, loan.len);
        (is_its && self.packets.discard(key)).then_some(back)
    }

    /// Whether a closed socket left something that this number can still give back.
    fn has_left(&self, fd: c_int, is_open: impl Fn(Key) -> bool) -> bool {
        self.packets.iter().any(|(_, loan)| loan.fd == fd && !is_open(loan.socket))
    }
}

/// An id is the loan's name: no address, so that nothing is read through it.
fn id_of(key: Key) -> *mut c_void {
    core::ptr::without_provenance_mut((key.generation as usize) << 32 | key.index as usize)
}

fn key_of(id: *mut c_void) -> Option<Key> {
    let word = id.addr();
    // (A generation is never zero, so that no id is NULL.)
    (word >> 32 != 0).then_some(Key { index: word as u32, generation: (word >> 32) as u32 })
}

impl Offload {
    /// From now on, what arrives is lent from where the device put it.
    pub(super) fn begin_lending(&mut self) {
        if !self.loans.lends {
            self.loans.lends = true;
            faults::watch();
            let keeps_small = self.rings.iter_mut().map(|own| own.ring.lend_from_now_on()).fold(true, |all, keeps| all & keeps);
            if !keeps_small {
                tracing::info!("this device keeps no small packets: they are copied once before they are lent");
            }
        }
    }

    /// Takes a packet back. `false`: it was not lent by that socket.
    pub(super) fn take_back(&mut self, process: &Process, id: *mut c_void, fd: c_int, socket: Option<Key>) -> bool {
        let Self { loans, sockets, .. } = self;
        let Some((ring, len)) = loans.take(id, fd, socket, |key| sockets.find(key).is_some()) else { return false };
        // (Most are datagrams, and those need no clock.)
        if !self.rings.of_mut(ring).udp_give_back(ring, len) {
            self.rings.of_mut(ring).give_back(process.now(), ring, len);
        }
        true
    }

    /// Whether `fd` was a socket that has lent something.
    pub(super) fn has_left_loans(&self, fd: c_int) -> bool {
        self.loans.has_left(fd, |key| self.sockets.find(key).is_some())
    }
}

/// Where the bytes of pieces lie, for a program that may write there, as far as there is room; how many iovecs, and how many bytes.
///
/// # Safety
/// `room` iovecs can be written at `out`.
pub(super) unsafe fn write_iovecs(pieces: &mut [Lent<RxBuf>], out: *mut iovec, room: usize) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    let mut write = |base: *const u8, len: usize| {
        if count < room {
            let piece = iovec { iov_base: base.cast_mut().cast(), iov_len: len };
            // SAFETY: the caller's promise. (A program's buffer may lie anywhere.)
            unsafe { out.add(count).write_unaligned(piece) };
            count += 1;
            bytes += len;
        }
    };
    for piece in pieces {
        piece.make_writable();
        piece.for_each_piece(&mut write);
    }
    (count, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32, generation: u32) -> Key {
        Key { index, generation }
    }

    fn lend(loans: &mut Loans, socket: Key, fd: c_int) -> *mut c_void {
        loans.lend((socket, fd), |loan| loan.len = 7).0
    }

    #[test]
    fn ids_survive_being_pointers() {
        for key in [key(0, 1), key(u32::MAX - 1, u32::MAX), key(7, 9)] {
            assert_eq!(key_of(id_of(key)), Some(key));
        }
        assert_eq!(key_of(core::ptr::null_mut()), None);
    }

    #[test]
    fn only_the_socket_that_lent_it_takes_a_packet_back_and_only_once() {
        let mut loans = Loans::new();
        let (mine, other) = (key(1, 1), key(2, 1));
        let id = lend(&mut loans, mine, 5);
        let open = |_| true;
        assert!(loans.take(id, 6, Some(other), open).is_none());
        assert!(loans.take(id.wrapping_byte_add(1), 5, Some(mine), open).is_none());
        assert_eq!(loans.take(id, 5, Some(mine), open), Some((NOBODY, 7)));
        assert!(loans.take(id, 5, Some(mine), open).is_none());
        assert_eq!(loans.len(), 0);
    }

    #[test]
    fn what_a_closed_socket_lent_is_taken_back_by_the_number_it_had() {
        let mut loans = Loans::new();
        let id = lend(&mut loans, key(1, 1), 5);
        let closed = |_| false;
        assert!(loans.has_left(5, closed) && !loans.has_left(6, closed));
        assert!(loans.take(id, 6, None, closed).is_none());
        assert!(loans.take(id, 5, None, closed).is_some());
    }
}
