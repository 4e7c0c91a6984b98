//! A frame is whole, however it came.

use std::sync::Arc;

use super::*;

/// A part of some bytes: where it begins, and how long it is.
#[derive(Clone, Debug)]
struct Part(Arc<[u8]>, usize, usize);

impl RxBuffer for Part {
    fn len(&self) -> usize {
        self.2
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[self.1 + offset..][..out.len()]);
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        let folded = |sum: u32| (sum & 0xffff) + (sum >> 16);
        self.0[self.1 + offset..][..len].chunks(2).fold(0, |sum, pair| folded(sum + word(pair))) as u16
    }
    fn slice(&self, offset: usize, len: usize) -> Self {
        Self(Arc::clone(&self.0), self.1 + offset, len)
    }
}

fn bytes(len: usize) -> Arc<[u8]> {
    (0..=u8::MAX).cycle().take(len).collect()
}

fn read(part: &Part) -> Vec<u8> {
    let mut out = vec![0; part.len()];
    part.copy_to(0, &mut out);
    out
}

/// The frame as it comes: filled, with a buffer even if it is short; and apart, with so many bytes in the head.
fn frames(bytes: &Arc<[u8]>) -> [RxFrame<Part>; 3] {
    let mut frames = [const { 0 }; 3].map(|_| RxFrame::empty());
    let whole = Part(Arc::clone(bytes), 0, bytes.len());
    frames[0].fill(bytes, (bytes.len() > HEAD_MAX).then(|| whole.clone()));
    frames[1].fill(bytes, Some(whole.clone()));
    let head = bytes.len().min(54);
    frames[2].head[..head].copy_from_slice(&bytes[..head]);
    frames[2].set_parted(head, (bytes.len() > head).then(|| whole.slice(head, bytes.len() - head)));
    frames
}

#[test]
fn each_byte_is_there_whichever_part_it_came_in() {
    for len in [14, 54, 55, HEAD_MAX, HEAD_MAX + 1, 1514] {
        let sent = bytes(len);
        for frame in frames(&sent) {
            assert_eq!((frame.len(), &frame.to_vec()[..]), (len, &sent[..]));
            assert!(sent.starts_with(frame.head()));
            let at = [0, 13, 53, 54, 55, HEAD_MAX - 1, HEAD_MAX, len - 1];
            for at in at.into_iter().filter(|at| *at < len) {
                let mut out = vec![0; len - at];
                frame.copy_to(at, &mut out);
                assert_eq!(out, sent[at..]);
            }
        }
    }
}

#[test]
fn what_is_in_a_buffer_can_be_held_and_the_head_alone_cannot() {
    let sent = bytes(1000);
    let [filled, _, parted] = frames(&sent);
    for frame in [&filled, &parted] {
        assert_eq!(read(&frame.held_from(60).unwrap()), sent[60..]);
        assert!(frame.held_from(1001).is_none() && frame.held(990, 11).is_none());
    }
    assert_eq!(read(&filled.held_from(10).unwrap()), sent[10..]);
    assert!(parted.held_from(53).is_none());
    assert_eq!(read(&parted.held_from(54).unwrap()), sent[54..]);
    let [short, lent, _] = frames(&bytes(100));
    assert!(short.held_from(0).is_none());
    assert_eq!(read(&lent.held(42, 10).unwrap()), sent[42..52]);
}

#[test]
fn a_rest_is_what_the_head_lacks() {
    let rest = |frame: &mut RxFrame<Part>| frame.take_rest().map(|(buffer, len)| (buffer.len(), frame.rest_at(), len));
    let of = |len| frames(&bytes(len)).map(|mut frame| rest(&mut frame));
    assert_eq!(of(54), [None, None, None]);
    assert_eq!(of(100), [None, None, Some((46, 0, 46))]);
    assert_eq!(of(1000), [Some((1000, HEAD_MAX, 744)), Some((1000, HEAD_MAX, 744)), Some((946, 0, 946))]);
    // It stays where it is no rest: whoever lends takes it.
    let [_, mut lent, _] = frames(&bytes(100));
    assert!(lent.take_rest().is_none());
    assert_eq!(lent.take(42, 58).map(|part| part.len()), Some(58));
    assert!(lent.take_buffer().is_none());
}

#[test]
fn a_batch_lets_go_of_what_nobody_took() {
    let mut batch = RxBatch::new(1);
    let sent = bytes(1000);
    batch.push_slot().unwrap().fill(&sent, Some(Part(Arc::clone(&sent), 0, 1000)));
    assert!(batch.push_slot().is_none());
    assert_eq!(Arc::strong_count(&sent), 2);
    batch.clear();
    assert_eq!((Arc::strong_count(&sent), batch.push_slot().unwrap().len()), (1, 0));
}
