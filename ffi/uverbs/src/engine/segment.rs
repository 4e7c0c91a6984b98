//! Who else is on the Ethernet segment, and which frames they want: processes with raw packet queue pairs tell each other, as a switch would
//! learn it.
//!
//! A process tells everybody when it begins to send or receive frames, and when its flow rules change; who hears of somebody new tells him. Until
//! somebody has said what he wants he gets everything, so that nothing is lost to whoever comes first.

use std::collections::BTreeMap;

use crate::bus::{Bus, Kind, SLOTS};

/// Addresses that are told at most; who wants more gets everything.
const ADDRESSES_MAX: usize = 256;
/// An address, and the bits of it that count.
type Masked = [[u8; 6]; 2];

/// The others.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// Who is there; what he wants, or nothing if it is all.
    others: BTreeMap<u8, Option<Vec<Masked>>>,
    /// What this process wants.
    own: Option<Vec<Masked>>,
    /// Others were told that there is one more.
    joined: bool,
}

impl Segment {
    /// This process wants frames to these addresses (`None`: all), or only sends.
    pub(crate) fn want(&mut self, bus: &mut Bus, addresses: Option<Vec<Masked>>) {
        if self.joined && self.own == addresses {
            return;
        }
        self.own = addresses;
        let slots: Vec<u8> = match self.joined {
            true => self.others.keys().copied().collect(),
            false => (0..SLOTS).filter(|slot| *slot != bus.slot()).collect(),
        };
        let message = self.message(bus.slot(), !self.joined);
        self.joined = true;
        for slot in slots {
            match bus.send(slot, Kind::Wants, &message) {
                true => _ = self.others.entry(slot).or_insert(None),
                false => _ = self.others.remove(&slot),
            }
        }
    }

    /// Slot, whether an answer is wanted, whether it is all that is wanted, addresses.
    fn message(&self, slot: u8, asks: bool) -> Vec<u8> {
        let listed = self.own.as_ref().filter(|addresses| addresses.len() <= ADDRESSES_MAX);
        let mut message = vec![slot, asks.into(), listed.is_none().into()];
        message.extend(listed.into_iter().flatten().flatten().flatten());
        message
    }

    /// Somebody told what he wants.
    pub(crate) fn told(&mut self, bus: &mut Bus, message: &[u8]) {
        let [slot, asks, all, addresses @ ..] = message else { return };
        if *slot == bus.slot() || *slot == SLOTS {
            return;
        }
        let (addresses, _) = addresses.as_chunks::<12>();
        let masked = |bytes: &[u8; 12]| [core::array::from_fn(|i| bytes[i]), core::array::from_fn(|i| bytes[6 + i])];
        self.others.insert(*slot, (*all == 0).then(|| addresses.iter().map(masked).collect()));
        if *asks != 0 {
            // Who has no raw queue pair wants nothing, and says so.
            let nothing = Self { own: Some(Vec::new()), ..Self::default() };
            let message = if self.joined { self.message(bus.slot(), false) } else { nothing.message(bus.slot(), false) };
            bus.send(*slot, Kind::Wants, &message);
        }
    }

    /// Sends a frame to whoever may want it.
    pub(crate) fn send(&mut self, bus: &mut Bus, frame: &[u8]) {
        let Some(dst) = frame.first_chunk::<6>() else { return };
        let takes = |[value, mask]: &Masked| (0..6).all(|i| (dst[i] ^ value[i]) & mask[i] == 0);
        self.others.retain(|slot, wants| {
            let wanted = wants.as_ref().is_none_or(|addresses| addresses.iter().any(takes));
            !wanted || bus.send(*slot, Kind::Frame, frame)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
    const FULL: [u8; 6] = [0xff; 6];

    /// All that came, as kinds and lengths; what others want is taken note of.
    fn take(bus: &mut Bus, segment: &mut Segment) -> Vec<(Kind, usize)> {
        let mut out = [0; 4096];
        let mut taken = Vec::new();
        while let Some(len) = bus.receive(&mut out) {
            let (kind, rest) = Kind::split(&out[..len]).unwrap();
            taken.push((kind, rest.len()));
            if kind == Kind::Wants {
                segment.told(bus, rest);
            }
        }
        taken
    }

    #[test]
    fn frames_go_to_whoever_wants_them_and_to_whoever_has_not_said() {
        let name = format!("segment-{}", std::process::id());
        let join = || (Bus::join(name.clone()).unwrap(), Segment::default());
        let ((mut a, mut on_a), (mut b, mut on_b)) = (join(), join());
        on_b.want(&mut b, Some(vec![[A, FULL]]));
        on_a.want(&mut a, Some(Vec::new()));
        // B has not answered yet: it gets everything.
        on_a.send(&mut a, &[9; 60]);
        let wants = Kind::Wants;
        assert_eq!(take(&mut b, &mut on_b), [(wants, 3), (Kind::Frame, 60)]);
        // A was told twice: when B came, which A answers, and when B answered.
        assert_eq!(take(&mut a, &mut on_a), [(wants, 15), (wants, 15)]);
        assert_eq!(take(&mut b, &mut on_b), [(wants, 3)]);
        on_a.send(&mut a, &[9; 60]);
        on_a.send(&mut a, &[&A[..], &[0; 54]].concat());
        on_b.send(&mut b, &[9; 60]);
        assert_eq!((take(&mut b, &mut on_b), take(&mut a, &mut on_a)), (vec![(Kind::Frame, 60)], vec![]));
        on_b.want(&mut b, None);
        assert_eq!(take(&mut a, &mut on_a), [(wants, 3)]);
        on_a.send(&mut a, &[9; 60]);
        assert_eq!(take(&mut b, &mut on_b), [(Kind::Frame, 60)]);
        // Short messages, and some from oneself, are none.
        on_a.told(&mut a, &[1]);
        on_a.told(&mut a, &[0, 1, 1]);
        on_a.told(&mut a, &[255, 1, 1]);
        drop(b);
        on_a.send(&mut a, &[9; 60]);
        assert!(on_a.others.is_empty());
    }
}
