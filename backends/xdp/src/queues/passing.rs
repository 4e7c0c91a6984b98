//! A ring's part in what comes to one and is for another ([`crate::strays`]).

use ringway_stack::device::{ChecksumVerdict, HEAD_MAX, RxBatch, RxFrame};

use super::XdpQueues;
use crate::partial;
use crate::strays::{Exchange, Path, Stray};
use crate::umem::Received;

impl XdpQueues {
    /// Whether there are some for this ring.
    #[inline]
    pub(super) fn has_strays(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.has_some(self.id))
    }

    /// Takes frames that came to other rings, as far as they came the same way.
    pub(super) fn receive_strays(&mut self, batch: &mut RxBatch<Received>) -> usize {
        let Some(exchange) = &self.exchange else { return 0 };
        let mut count = 0;
        while !batch.is_full()
            && let Some(Stray { bytes, path }) = exchange.take(self.id, self.path)
        {
            self.path = Some(path);
            let is_held = bytes.len() > HEAD_MAX || self.lends_heads;
            let copy = if is_held { self.umem.hold_copy(&bytes) } else { None };
            // (There is no room for more that programs leave unread: it is sent again.)
            if copy.is_none() && bytes.len() > HEAD_MAX {
                continue;
            }
            let Some(frame) = batch.push_slot() else { break };
            let head = bytes.len().min(HEAD_MAX);
            frame.head[..head].copy_from_slice(&bytes[..head]);
            frame.set_whole(head, copy);
            if self.device.interface().is_virtual && partial::is_left_to_device(frame.head()) {
                frame.meta.checksum = ChecksumVerdict::Good;
            }
            count += 1;
        }
        count
    }

    /// It goes to the ring that has the connection, or else from ring to ring, and what none has to the kernel, if it has the connection.
    pub(super) fn passes_on(&mut self, frame: &RxFrame<Received>, buffer: Option<&Received>, had_it: bool) -> bool {
        let path = self.path;
        let to = self.exchange.as_ref().and_then(|exchange| self.next_for(exchange, frame, path, had_it));
        let (Some((to, path)), Some(exchange)) = (to, &self.exchange) else { return !had_it && self.is_kernels(frame) };
        let bytes = match buffer {
            Some(whole) => whole.to_vec(),
            None => frame.to_vec(),
        };
        exchange.put(to, Stray { bytes: bytes.into(), path });
        self.counters.passed_on += 1;
        true
    }

    /// The ring that looks at it next, and where it has been then.
    fn next_for(&self, exchange: &Exchange, frame: &RxFrame<Received>, path: Option<Path>, had_it: bool) -> Option<(u32, Path)> {
        let before = path.unwrap_or(Path { came_to: self.id, looked: 0 });
        let path = Path { looked: before.looked + 1, ..before };
        let to = match self.device.home_of(frame.head(), before.came_to) {
            // (Its rule is here still, and the connection no more.)
            Some(home) if home == self.id => None,
            // (It is the kernel's, perhaps, and this ring answers nothing.)
            None if had_it => None,
            home => exchange.next(self.id, path).map(|next| home.unwrap_or(next)),
        };
        to.map(|to| (to, path))
    }
}
