//! Cyclic buffers: seed 002's vma_add_ring_profile and vma_cyclic_buffer_read, as the stack has them.

use core::ops::Range;

use anyhow::{Context as _, Result, ensure};
use ringway_stack::cyclic::{CyclicBuffer, Geometry, Records, Run};
use ringway_stack::device::Queues as _;
use ringway_stack::ring::FlowId;

use super::Side::{Receiver, Sender};
use super::net::{is_message, message};
use super::{Net, PORT};
use crate::sentences::frames::{UDP_HEAD, be16, be32, pattern};

/// Room that the cases never fill.
const AMPLE: usize = 200_000;
/// The longest of the messages that cases number.
const MESSAGE_MAX: usize = 1470;

type Buffer = CyclicBuffer<Vec<u8>>;

/// A record is a packet as it came: its headers of 14, 20 and 8 bytes, and its payload, where the run says.
pub fn records_are_the_packets_as_they_came<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let mut buffer = buffer(Records::Raw, 16, MESSAGE_MAX, 0)?;
    // (What came before the first call has headers that are made up.)
    ensure!(net.ring(Receiver).cyclic_read(&[to], &mut buffer, 1, 16)?.is_none(), "nothing has arrived");
    let mac = net.ring(Receiver).queues().mac();
    let (source, target) = (net.ip(Sender), net.ip(Receiver));
    let mut records = 0;
    for number in 0..40 {
        net.tell(from, PORT, &message(number))?;
        let Some(run) = net.ring(Receiver).cyclic_read(&[to], &mut buffer, 1, 16)? else {
            ensure!(!net.delivers(), "message {number} did not arrive");
            continue;
        };
        ensure!(run.payload.len() == run.packets * (UDP_HEAD + MESSAGE_MAX) && run.headers.is_empty(), "{run:?}");
        for record in buffer.memory()[run.payload].chunks(UDP_HEAD + MESSAGE_MAX) {
            let payload = &record[UDP_HEAD..usize::from(be16(record, 16)) + 14];
            ensure!(is_message(payload) && (!net.delivers() || payload[0] == number), "message {number}: {payload:?}");
            ensure!(record[..6] == mac.0 && be16(record, 12) == 0x0800, "Ethernet's header: {:x?}", &record[..14]);
            ensure!((record[14], record[23]) == (0x45, 17), "IPv4's header: {:x?}", &record[14..34]);
            ensure!((be32(record, 26), be32(record, 30)) == (source.to_bits(), target.to_bits()), "addresses: {:x?}", &record[26..34]);
            let udp = (be16(record, 34), be16(record, 36), usize::from(be16(record, 38)));
            ensure!(udp == (1000, PORT, 8 + payload.len()), "UDP's header: {udp:?}");
            ensure!(record[UDP_HEAD + payload.len()..].iter().all(|&byte| byte == 0), "bytes behind a short packet");
            records += 1;
        }
    }
    ensure!(if net.delivers() { records == 40 } else { records > 15 }, "{records} records");
    Ok(())
}

/// Of a packet, each way of recording keeps what it says, and where it says: whole, or without its network headers, with or without an array for
/// headers, or in strides of a power of two.
pub fn each_geometry_keeps_what_it_says_where_it_says<N: Net>(net: &mut N) -> Result<()> {
    const PACKETS: usize = 4;
    let (from, to) = net.datagrams(AMPLE)?;
    net.ring(Receiver).udp_keep_headers(to)?;
    // Header bytes of the program's own; then the sizes that follow: a record's, and an entry's of the array of headers.
    for (records, own, record_bytes, entry_bytes) in [
        (Records::Raw, 0, UDP_HEAD + 100, 0),
        (Records::StripHeaders, 0, 100, 0),
        (Records::StripHeaders, 6, 100, 6),
        (Records::SeparateHeaders, 6, 100, UDP_HEAD + 6),
        (Records::Padded, 0, 256, 0),
    ] {
        let mut buffer = buffer(records, PACKETS, 100, own)?;
        let sent: Vec<Vec<u8>> = (0..PACKETS).map(|n| pattern(own + 100 + n)[n..].to_vec()).collect();
        for bytes in &sent {
            net.tell(from, PORT, bytes)?;
        }
        let run = net.ring(Receiver).cyclic_read(&[to], &mut buffer, PACKETS, PACKETS)?.context("no run")?;
        ensure!((run.packets, run.payload.len(), run.headers.len()) == (PACKETS, PACKETS * record_bytes, PACKETS * entry_bytes), "{run:?}");
        let headers = &buffer.memory()[run.headers.clone()];
        for (n, (record, bytes)) in buffer.memory()[run.payload.clone()].chunks(record_bytes).zip(&sent).enumerate() {
            let whole = matches!(records, Records::Raw | Records::Padded);
            let at = if whole { UDP_HEAD } else { 0 };
            ensure!(record[at..at + 100] == bytes[own..], "{records:?}, record {n}");
            ensure!(!whole || (be16(record, 12), be16(record, 36)) == (0x0800, PORT), "{records:?}, record {n}: no headers");
            let Some(entry) = headers.chunks(entry_bytes.max(1)).nth(n) else { continue };
            ensure!(entry[entry_bytes - own..] == bytes[..own], "{records:?}, the program's header {n}");
            ensure!(entry_bytes == own || (be16(entry, 12), be16(entry, 36)) == (0x0800, PORT), "{records:?}, headers {n}");
        }
    }
    Ok(())
}

/// A run has at least and at most as many packets as were asked for; until there are as many, there is none.
pub fn a_run_has_the_least_and_the_most_that_was_asked_for<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let mut buffer = buffer(Records::StripHeaders, 100, 1, 0)?;
    let mut told = 0;
    let mut given = 0;
    for (arrive, min, max, expected) in [(0, 1, 4, 0), (2, 3, 4, 0), (1, 3, 4, 3), (9, 1, 4, 4), (0, 5, 8, 5), (0, 1, 9, 0), (3, 0, 2, 2)] {
        for _ in 0..arrive {
            told += 1;
            net.tell(from, PORT, &[told])?;
        }
        let run = net.ring(Receiver).cyclic_read(&[to], &mut buffer, min, max)?;
        let got = run.map_or_else(Vec::new, |run| buffer.memory()[run.payload].to_vec());
        ensure!(got.len() == expected && got.iter().all(|&byte| byte > given), "of {told}, between {min} and {max}: {got:?}");
        given += got.len() as u8;
        ensure!(got.last().is_none_or(|&last| last == given), "not in order: {got:?}");
    }
    for (min, max) in [(2, 1), (0, 0)] {
        ensure!(net.ring(Receiver).cyclic_read(&[to], &mut buffer, min, max).is_err(), "between {min} and {max}");
    }
    Ok(())
}

/// Fewer than the least come only where the buffer ends; the next run begins at its beginning, with what waited meanwhile.
pub fn fewer_than_the_least_come_only_where_the_buffer_ends<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let mut buffer = buffer(Records::StripHeaders, 5, 1, 0)?;
    let mut told = 0;
    for (arrive, expected) in [(2, None), (1, Some((0..3, 1))), (4, Some((3..5, 4))), (0, None), (1, Some((0..3, 6)))] {
        for _ in 0..arrive {
            told += 1;
            net.tell(from, PORT, &[told])?;
        }
        let run = net.ring(Receiver).cyclic_read(&[to], &mut buffer, 3, 3)?;
        let got = run.map(|run| (run.payload.clone(), buffer.memory()[run.payload][0]));
        ensure!(got == expected, "after {told}: {got:?}");
    }
    Ok(())
}

/// What was given out is as it was until a call to read goes back to the beginning, whatever arrives; nothing else goes back.
pub fn what_was_given_out_stays_until_a_read_rewinds<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let mut buffer = buffer(Records::Raw, 8, MESSAGE_MAX, 0)?;
    let mut given: Vec<(Range<usize>, Vec<u8>)> = Vec::new();
    let (mut rewinds, mut packets) = (0, 0);
    for number in 0..120 {
        net.tell(from, PORT, &message(number))?;
        ensure!(buffer.rewinds() == rewinds, "it went back while nobody read");
        ensure!(given.iter().all(|(range, bytes)| buffer.memory()[range.clone()] == bytes[..]), "overwritten while nobody read");
        if number % 3 != 0 {
            continue;
        }
        let is_at_end = given.last().is_some_and(|(range, _)| range.end == buffer.layout().payload_bytes());
        let Some(run) = net.ring(Receiver).cyclic_read(&[to], &mut buffer, 1, 3)? else { continue };
        if buffer.rewinds() > rewinds {
            ensure!(is_at_end && run.payload.start == 0, "it went back before its end, from {:?}", given.last());
            rewinds = buffer.rewinds();
            given.clear();
        }
        ensure!(given.iter().all(|(range, bytes)| buffer.memory()[range.clone()] == bytes[..]), "overwritten without going back");
        ensure!(given.last().map_or(0, |(range, _)| range.end) == run.payload.start, "{run:?} is not behind the last one");
        packets += run.packets;
        let bytes = buffer.memory()[run.payload.clone()].to_vec();
        given.push((run.payload, bytes));
    }
    ensure!(rewinds > 3 && packets > 40, "{rewinds} rewinds, {packets} packets");
    Ok(())
}

/// With padding a packet takes as many strides as it needs, which lie behind each other: never some at the end and some at the beginning.
pub fn a_long_packet_takes_several_strides_and_never_wraps<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    net.ring(Receiver).udp_keep_headers(to)?;
    let mut buffer = buffer(Records::Padded, 10, 80, 0)?;
    let stride = buffer.layout().record_bytes;
    ensure!(stride == 128, "strides of {stride} bytes");
    let mut next = 0;
    for len in [80, 500, 100, 86, 400, 80, 1000, 700] {
        let sent = pattern(len);
        net.tell(from, PORT, &sent)?;
        let strides = (UDP_HEAD + len).div_ceil(stride);
        let run = one(net, to, &mut buffer)?;
        let at = if next + strides > 10 { 0 } else { next };
        ensure!(run.payload == (at * stride..(at + strides) * stride), "{len} bytes: {run:?}, not from stride {at} on");
        let record = &buffer.memory()[run.payload];
        ensure!(usize::from(be16(record, 16)) == 28 + len && record[UDP_HEAD..UDP_HEAD + len] == sent, "{len} bytes");
        next = at + strides;
    }
    Ok(())
}

/// The next run, of one packet.
fn one<N: Net>(net: &mut N, socket: FlowId, buffer: &mut Buffer) -> Result<Run> {
    let run = net.ring(Receiver).cyclic_read(&[socket], buffer, 1, 1)?.context("nothing arrived")?;
    ensure!(run.packets == 1, "{run:?}");
    Ok(run)
}

/// A buffer of this geometry.
fn buffer(records: Records, packets: usize, payload_bytes: usize, header_bytes: usize) -> Result<Buffer> {
    let geometry = Geometry { records, packets, payload_bytes, header_bytes, vlan: false };
    Ok(CyclicBuffer::new(&geometry, vec![0xee; geometry.layout()?.bytes()])?)
}
