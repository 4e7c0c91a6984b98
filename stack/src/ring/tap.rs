//! Frames as whoever captures a ring's traffic sees them. A ring that nobody captures pays a load and a branch for each look at its completion
//! queue, and nothing for a frame that it sends: whether the device is to drop it is asked with the same branch.

use core::fmt;

use super::Ring;
use crate::device::{Queues, RxBuffer, RxFrame, TxBuffer, TxFrame};

/// Sees each frame of a ring: when the device has taken it, or before the ring looks at it. Called under the ring's lock, in the middle of its work.
pub trait Tap: fmt::Debug + Send {
    /// A frame was sent, or came.
    fn frame(&mut self, seen: &Seen<'_>);
}

/// A frame, on its way through a ring. What the device is to cut into segments is one frame, as the ring has it.
pub struct Seen<'a> {
    /// It leaves; else it came.
    pub is_sent: bool,
    /// Its first bytes, from the Ethernet header on.
    pub head: &'a [u8],
    /// How many bytes it has in all.
    pub len: usize,
    /// The VLAN tag that the device adds to these bytes, or has taken out of them.
    pub vlan: Option<u16>,
    /// Its checksums are left to the device.
    pub checksums_left: bool,
    /// Fills what it is given from the first byte behind the head on: at most `len - head.len()` bytes.
    pub rest: &'a dyn Fn(&mut [u8]),
}

impl fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").field("is_sent", &self.is_sent).field("len", &self.len).finish_non_exhaustive()
    }
}

impl<Q: Queues> Ring<Q> {
    /// Shows each frame to `tap` from now on, or to nobody. Returns who saw them until now, to be dropped where that may take its time.
    pub fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) -> Option<Box<dyn Tap>> {
        self.output.set_tap(tap)
    }
}

/// A device has taken a frame.
#[cold]
#[inline(never)]
pub(super) fn sent<T: TxBuffer>(tap: &mut dyn Tap, frame: &TxFrame<'_, T>) {
    let rest = |out: &mut [u8]| {
        let mut left = out;
        for slice in frame.body {
            let (first, more) = left.split_at_mut(slice.len.min(left.len()));
            slice.buffer.copy_to(slice.offset, first);
            left = more;
        }
    };
    tap.frame(&Seen {
        is_sent: true,
        head: frame.head,
        len: frame.len(),
        vlan: frame.offload.vlan,
        checksums_left: frame.offload.checksum,
        rest: &rest,
    });
}

/// A device has received these.
#[cold]
#[inline(never)]
pub(super) fn received<B: RxBuffer>(tap: &mut dyn Tap, frames: &[RxFrame<B>]) {
    for frame in frames {
        let head = frame.head();
        let rest = |out: &mut [u8]| frame.copy_to(head.len(), out);
        tap.frame(&Seen { is_sent: false, head, len: frame.len(), vlan: frame.meta.vlan, checksums_left: false, rest: &rest });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::tests::{Pair, read, write};
    use super::*;

    /// Each with whether it was sent.
    type Frames = Vec<(bool, Vec<u8>)>;

    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Frames>>);

    impl Tap for Kept {
        fn frame(&mut self, seen: &Seen<'_>) {
            let mut bytes = seen.head.to_vec();
            bytes.resize(seen.len, 0);
            (seen.rest)(&mut bytes[seen.head.len()..]);
            self.0.lock().unwrap().push((seen.is_sent, bytes));
        }
    }

    impl Kept {
        fn of(&self, is_sent: bool) -> Vec<Vec<u8>> {
            self.0.lock().unwrap().iter().filter(|(sent, _)| *sent == is_sent).map(|(_, bytes)| bytes.clone()).collect()
        }
    }

    /// What one end sends is, byte for byte, what the other one gets.
    #[test]
    fn every_frame_is_seen_whole_on_its_way_out_and_on_its_way_in() {
        let mut pair = Pair::new();
        let (client, server, _) = pair.connected();
        let (at_a, at_b) = (Kept::default(), Kept::default());
        pair.a.set_tap(Some(Box::new(at_a.clone())));
        pair.b.set_tap(Some(Box::new(at_b.clone())));
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n * 7) as u8).collect();
        assert_eq!(write(&mut pair.a, pair.now, client, &bytes), Ok(bytes.len()));
        pair.settle();
        assert_eq!(read(&mut pair.b, pair.now, server, 65_536), Ok(bytes.clone()));
        assert_eq!(write(&mut pair.b, pair.now, server, b"short"), Ok(5));
        pair.settle();
        assert_eq!((at_a.of(true), at_b.of(true)), (at_b.of(false), at_a.of(false)));
        assert!(at_a.of(true).iter().map(Vec::len).sum::<usize>() > bytes.len());
        assert!(at_b.of(true).iter().any(|frame| frame.ends_with(b"short")));
        // Nobody looks any more.
        let before = at_a.0.lock().unwrap().len();
        pair.a.set_tap(None);
        assert_eq!(write(&mut pair.a, pair.now, client, b"unseen"), Ok(6));
        pair.settle();
        assert_eq!(at_a.0.lock().unwrap().len(), before);
        assert!(at_b.of(false).iter().any(|frame| frame.ends_with(b"unseen")));
    }
}
