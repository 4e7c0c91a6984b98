//! Reading from a cyclic buffer: a UDP socket's datagrams as records, from which the program takes them one by one.

use core::ops::Range;
use std::io::IoSliceMut;

use ringway_stack::Error;
use ringway_stack::cyclic::{CyclicBuffer, CyclicError, Geometry, Records, Run};
use ringway_stack::ring::{Datagram, FlowId, Ring};

use super::loans::scatter;
use crate::dissect::{self, Payload, be16};
use crate::nic::SimQueues;
use crate::random::RandomStream;

/// The longest payload: that of the largest MTU that a host draws.
const PAYLOAD_MAX: usize = 9000;
/// How many ranges are looked at again, of those that were given out: headers and payload of each record.
const GIVEN_MAX: usize = 16;
/// Bytes of Ethernet headers without a VLAN tag, and with one; and of UDP's.
const HEADERS: (usize, usize) = (14, 18);
const UDP_LEN: usize = 8;

/// A socket's cyclic buffer.
#[derive(Debug)]
pub(super) struct Reader {
    geometry: Geometry,
    buffer: CyclicBuffer<Vec<u8>>,
    /// Where what was given out last, since the last rewind, lies, and what that was.
    given: Vec<(Range<usize>, Vec<u8>)>,
    rewinds: u64,
}

impl Reader {
    /// One of any geometry that has whole packets, if perhaps in two parts.
    pub(super) fn draw(stream: &mut RandomStream) -> Self {
        let records = stream.pick(&[Records::Raw, Records::SeparateHeaders, Records::Padded]);
        let size = |number| usize::try_from(number).unwrap_or(1);
        let (packets, payload_bytes, header_bytes) = match records {
            // A longest packet takes 75 strides of 128 bytes.
            Records::Padded => (size(stream.between(75, 300)), size(stream.pick(&[80, 200, 2000])), 0),
            Records::SeparateHeaders => (size(stream.between(1, 8)), PAYLOAD_MAX, size(stream.between(0, 40))),
            Records::Raw | Records::StripHeaders => (size(stream.between(1, 8)), PAYLOAD_MAX, 0),
        };
        let geometry = Geometry { records, packets, payload_bytes, header_bytes, vlan: true };
        let bytes = geometry.layout().map_or(0, |layout| layout.bytes());
        let buffer = CyclicBuffer::new(&geometry, vec![0xee; bytes]).expect("the geometry makes sense, and the memory is for it");
        Self { geometry, buffer, given: Vec::new(), rewinds: 0 }
    }

    /// As [`Ring::udp_recv`].
    ///
    /// # Panics
    /// A record is not what it should be.
    pub(super) fn recv(&mut self, ring: &mut Ring<SimQueues>, socket: FlowId, into: &mut [IoSliceMut<'_>]) -> Result<Datagram, Error> {
        for (range, bytes) in &self.given {
            assert!(self.buffer.memory()[range.clone()] == bytes[..], "a record at {range:?} was overwritten before a call rewound");
        }
        // (More than one would leave the others in nobody's queue, and the program asleep.)
        let run = match ring.cyclic_read(&[socket], &mut self.buffer, 1, 1) {
            Ok(Some(run)) => run,
            Ok(None) => return Err(Error::WouldBlock),
            Err(CyclicError::Socket(error)) => return Err(error),
            Err(other) => panic!("every datagram has a record that is long enough: {other}"),
        };
        if self.rewinds != self.buffer.rewinds() {
            (self.rewinds, self.given) = (self.buffer.rewinds(), Vec::new());
            assert_eq!(run.payload.start, 0, "a rewind is to the beginning");
        }
        let expected = self.given.iter().rev().find(|(range, _)| range.end <= self.buffer.layout().payload_bytes());
        assert_eq!(run.payload.start, expected.map_or(0, |(range, _)| range.end), "records lie one behind the other");
        if self.given.len() >= GIVEN_MAX {
            self.given.drain(..2);
        }
        for range in [run.headers.clone(), run.payload.clone()] {
            self.given.push((range.clone(), self.buffer.memory()[range].to_vec()));
        }
        let frame = self.frame(&run);
        let Payload::Ip(ip) = dissect::payload(&frame) else { panic!("a record without a packet: {frame:02x?}") };
        let (from, to) = dissect::ports(&frame, &ip).expect("a datagram has ports");
        let len = usize::from(be16(&frame, ip.l4 + 4).expect("a datagram has a length")) - 8;
        let payload = &frame[ip.l4 + 8..ip.l4 + 8 + len];
        let to = to.ip();
        Ok(Datagram {
            copied: scatter(into, 0, payload),
            len,
            from,
            to,
            received: run.received,
            hardware_time: run.hardware_time,
            drops: 0,
        })
    }

    /// The packet that a run of one is.
    fn frame(&self, run: &Run) -> Vec<u8> {
        let memory = self.buffer.memory();
        let record = &memory[run.payload.clone()];
        let mut frame = if self.geometry.records == Records::SeparateHeaders {
            let (network, own) = memory[run.headers.clone()].split_at(self.geometry.net_bytes());
            // (Some have options, where there is room for them.)
            let ip = ip_at(network);
            let network = &network[..ip + usize::from(network[ip] & 0xf) * 4 + UDP_LEN];
            [network, own, record].concat()
        } else {
            record.to_vec()
        };
        // What IP counts, and UDP does not, is no part of the datagram.
        let ip = ip_at(&frame);
        let counted = be16(&frame, ip + 2).map_or(0, usize::from);
        frame.resize(frame.len().max(ip + counted), 0);
        frame
    }
}

/// Where the IP header begins.
fn ip_at(frame: &[u8]) -> usize {
    let tagged = be16(frame, 12) == Some(0x8100);
    if tagged { HEADERS.1 } else { HEADERS.0 }
}
