//! What a fuzzer does to TCP: each entry point takes its input as a program, and panics where something is wrong.

mod bytes;
mod connection;
mod options;
mod pair;
mod peer;
mod reassembly;
mod scoreboard;
mod snapshot;

pub(crate) use bytes::Bytes;
pub(crate) use connection::connection;
pub(crate) use options::options;
pub(crate) use pair::pair;
pub(crate) use reassembly::reassembly;
pub(crate) use scoreboard::scoreboard;
pub(crate) use snapshot::snapshot;

use super::Config;
use super::config::{Ecn, Keepalive};
use super::congestion::Algorithm;
use crate::device::TxBuffer;
use crate::tcp::Segment;
use crate::tcp::test_util::TestTx;
use crate::wire::tcp::SeqNumber;
use core::time::Duration;

/// The byte that a stream has at a sequence number: whoever gets another one there got what was not sent there.
fn byte_at(seq: SeqNumber, salt: u32) -> u8 {
    (seq.0 ^ salt).wrapping_mul(2_654_435_761).to_be_bytes()[0]
}

fn bytes_at(seq: SeqNumber, len: usize, salt: u32) -> Vec<u8> {
    (0..len).map(|at| byte_at(seq + at, salt)).collect()
}

/// A segment's payload, as a device would put it together.
fn payload_of(segment: &Segment<'_, TestTx>) -> Vec<u8> {
    let mut payload = vec![0; segment.payload_len];
    let mut at = 0;
    for slice in segment.payload {
        slice.buffer.copy_to(slice.offset, &mut payload[at..at + slice.len]);
        at += slice.len;
    }
    assert_eq!(at, segment.payload_len, "a segment has as many bytes as it says");
    payload
}

const ALGORITHMS: [Algorithm; 4] = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp, Algorithm::Bbr];

/// A configuration: small buffers, so that they are full at times.
fn config(bytes: &mut Bytes<'_>) -> Config {
    let flags = bytes.short();
    let is = |bit: u16| flags >> bit & 1 == 1;
    let mut config = Config {
        mss_max: [1460, 536, 88, 65_495][usize::from(bytes.byte() % 4)],
        nodelay: is(0),
        cork: is(1),
        quickack: is(2),
        timestamps: !is(3),
        sack: !is(4),
        window_scaling: !is(5),
        urgent_waits: is(6),
        black_hole_detection: is(7),
        arrival_times: is(8),
        linger_zero: is(9),
        ecn: [Ecn::Off, Ecn::Accepted, Ecn::Asked, Ecn::Asked][usize::from(flags >> 10 & 3)],
        congestion: ALGORITHMS[usize::from(flags >> 12 & 3)],
        tso_max: if is(14) { 20_000 } else { 0 },
        gather_max: if is(15) { 1 } else { 8 },
        ..Config::default()
    };
    let sizes = bytes.byte();
    config.rcvbuf = [None, Some(2_000), Some(20_000), Some(300_000)][usize::from(sizes & 3)];
    config.sndbuf = [None, Some(5_000), Some(30_000), Some(300_000)][usize::from(sizes >> 2 & 3)];
    if sizes >> 4 & 1 == 1 {
        config.keepalive = Some(Keepalive { idle: Duration::from_secs(1), interval: Duration::from_millis(300), count: 3 });
    }
    config.user_timeout = (sizes >> 5 & 1 == 1).then_some(Duration::from_secs(3));
    config
}
