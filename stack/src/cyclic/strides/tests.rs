use std::sync::Arc;

use super::*;
use crate::cyclic::Geometry;
use crate::device::RxMeta;

/// Some bytes that somebody has, all alike.
#[derive(Clone, Debug)]
struct Bytes(Arc<u8>);

impl RxBuffer for Bytes {
    fn len(&self) -> usize {
        2 * PART * STRIDE
    }
    fn copy_to(&self, _: usize, out: &mut [u8]) {
        out.fill(*self.0);
    }
    fn checksum(&self, _: usize, _: usize) -> u16 {
        0
    }
    fn slice(&self, _: usize, _: usize) -> Self {
        self.clone()
    }
}

const STRIDE: usize = 128;
const PART: usize = STRIDES_MIN;

fn strides(records: Records) -> Strides<Bytes> {
    let geometry = Geometry { records, packets: 100, payload_bytes: STRIDE - 42, header_bytes: 0, vlan: false };
    Strides::new(&geometry.layout().unwrap()).unwrap()
}

/// Packets of these lengths, from a stride on, as one run of the device's.
fn add(strides: &mut Strides<Bytes>, buffer: &Bytes, mut stride: usize, lens: &[usize]) {
    let first = stride;
    let mut packets = Vec::new();
    for &len in lens {
        let (offset, place) = ((stride - first) * STRIDE, stride % (2 * PART) * STRIDE);
        stride += len.div_ceil(STRIDE);
        packets.push((CyclicPacket { offset, place, len, meta: RxMeta::default() }, Some(3)));
    }
    strides.add(buffer.clone(), packets, Instant::from_nanos(stride as u64));
}

fn read(strides: &mut Strides<Bytes>, min: usize, max: usize) -> Option<(usize, core::ops::Range<usize>)> {
    let mut told = 0;
    let run = strides.read(min, max, |socket| told += usize::from(socket == 3)).unwrap()?;
    assert_eq!(told, run.packets);
    Some((run.packets, run.payload.start / STRIDE..run.payload.end / STRIDE))
}

#[test]
fn only_whole_packets_of_a_power_of_two_are_a_device_s() {
    let striding = |records, payload_bytes| {
        let geometry = Geometry { records, packets: 3000, payload_bytes, header_bytes: 0, vlan: false };
        geometry.layout().unwrap().striding().map(|CyclicConfig { stride_bytes, strides }| (stride_bytes, strides))
    };
    assert_eq!(
        [striding(Records::Raw, 86), striding(Records::Padded, 86), striding(Records::Padded, 87)],
        [Some((128, 8192)), Some((128, 8192)), Some((256, 8192))]
    );
    assert_eq!([striding(Records::Raw, 85), striding(Records::StripHeaders, 128), striding(Records::SeparateHeaders, 128)], [None; 3]);
}

#[test]
fn a_run_has_the_least_and_the_most_and_ends_where_the_next_is_elsewhere() {
    let (mut strides, buffer) = (strides(Records::Padded), Bytes(Arc::new(7)));
    add(&mut strides, &buffer, 0, &[100, 100, 300]);
    assert_eq!(read(&mut strides, 4, 9), None);
    add(&mut strides, &buffer, 5, &[1]);
    assert_eq!([read(&mut strides, 1, 1), read(&mut strides, 3, 3)], [Some((1, 0..1)), Some((3, 1..6))]);
    // The device left strides out between two runs.
    add(&mut strides, &buffer, 6, &[1]);
    add(&mut strides, &buffer, 8, &[1]);
    assert_eq!([read(&mut strides, 2, 4), read(&mut strides, 2, 4), read(&mut strides, 1, 4)], [Some((1, 6..7)), None, Some((1, 8..9))]);
    assert!(matches!(strides.read(2, 1, |_| ()), Err(CyclicError::Invalid { .. })));
}

#[test]
fn what_was_given_out_is_held_until_a_read_goes_on_behind_a_linear_end() {
    let (mut strides, buffer) = (strides(Records::Raw), Bytes(Arc::new(7)));
    // One run of the device's reaches over the first end.
    add(&mut strides, &buffer, 0, &[60; PART - 2]);
    add(&mut strides, &buffer, PART - 2, &[60; 4]);
    assert_eq!(read(&mut strides, 1, PART - 2), Some((PART - 2, 0..PART - 2)));
    assert_eq!(read(&mut strides, 5, 9), Some((2, PART - 2..PART)), "fewer, at the end");
    assert_eq!(Arc::strong_count(&buffer.0), 3, "held until more is read");
    assert_eq!(read(&mut strides, 1, 1), Some((1, PART..PART + 1)));
    assert_eq!(Arc::strong_count(&buffer.0), 2, "the other reaches into this part");
    add(&mut strides, &buffer, PART + 2, &[60; PART - 2]);
    assert_eq!(read(&mut strides, 1, PART), Some((PART - 1, PART + 1..2 * PART)));
    assert_eq!(read(&mut strides, 0, 1), None);
    assert_eq!(Arc::strong_count(&buffer.0), 3);
    add(&mut strides, &buffer, 0, &[60]);
    assert_eq!((read(&mut strides, 1, 1), Arc::strong_count(&buffer.0)), (Some((1, 0..1)), 2), "it has gone around");
}

#[test]
fn what_is_longer_than_its_record_is_told_of_and_passed_over() {
    let (mut strides, buffer) = (strides(Records::Raw), Bytes(Arc::new(7)));
    add(&mut strides, &buffer, 0, &[60, STRIDE + 1, 60]);
    assert_eq!(read(&mut strides, 2, 3), Some((1, 0..1)));
    assert_eq!(strides.read(1, 3, |_| ()), Err(CyclicError::Oversized(Refused::Oversized)));
    assert_eq!((read(&mut strides, 1, 3), strides.oversized()), (Some((1, 3..4)), 1));
}

#[test]
fn what_nobody_wants_is_neither_given_out_nor_held() {
    let (mut strides, buffer) = (strides(Records::Raw), Bytes(Arc::new(7)));
    add(&mut strides, &buffer, 0, &[60]);
    let dropped =
        |stride: usize| (CyclicPacket { offset: (stride - 1) * STRIDE, place: stride * STRIDE, len: 60, meta: RxMeta::default() }, None);
    strides.add(buffer.clone(), (1..PART + 1).map(dropped), Instant::ZERO);
    assert_eq!((read(&mut strides, 1, 9), Arc::strong_count(&buffer.0)), (Some((1, 0..1)), 2));
    // All that came was dropped, and the device has gone on behind the end.
    assert_eq!((read(&mut strides, 1, 9), Arc::strong_count(&buffer.0)), (None, 1));
    add(&mut strides, &buffer, PART + 1, &[60, 60]);
    strides.forget(3);
    assert_eq!((read(&mut strides, 1, 9), strides.waiting()), (None, 0));
}
