//! Cyclic buffers that the device fills by itself: seed 002's MP-RQ, on a striding receive queue.

use anyhow::{Context as _, Result, ensure};
use ringway_stack::cyclic::{Geometry, Layout, Records, Run};
use ringway_stack::device::{CyclicId, Queues as _};
use ringway_stack::ring::{FlowId, Readiness};

use super::Side::{Receiver, Sender};
use super::net::{is_message, message};
use super::{Net, PORT};
use crate::sentences::frames::{UDP_HEAD, be16, be32, pattern};

const AMPLE: usize = 200_000;
/// Payload of packets that are records of 512 bytes.
const PAYLOAD: usize = 512 - UDP_HEAD;

/// Packets lie where the device wrote them, whole as they came, in the order in which they did: each in a record of a power of two of bytes, or in as many strides as it needs.
pub fn the_device_writes_records_as_the_packets_came<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let mac = net.ring(Receiver).queues().mac();
    let (source, target) = (net.ip(Sender), net.ip(Receiver));
    for (records, lens, strides) in [(Records::Raw, [PAYLOAD, 3, PAYLOAD], [1, 1, 1]), (Records::Padded, [20, 600, 1400], [1, 2, 3])] {
        let queue = open(net, to, records)?;
        for (n, &len) in lens.iter().enumerate() {
            net.tell(from, PORT, &pattern(len + n)[n..])?;
        }
        ensure!(net.ring(Receiver).readiness(to).contains(Readiness::IN), "nobody is told that something waits");
        ensure!(read(net, queue, 4, 4)?.is_none(), "fewer than the least");
        let run = read(net, queue, 3, 3)?.context("no run")?;
        ensure!((run.packets, run.payload.len()) == (3, strides.iter().sum::<usize>() * 512) && run.headers.is_empty(), "{run:?}");
        let mut place = run.payload.start;
        for (n, (&len, strides)) in lens.iter().zip(strides).enumerate() {
            let packet = bytes(net, queue, place, UDP_HEAD + len)?;
            ensure!(packet[..6] == mac.0 && be16(&packet, 12) == 0x0800, "Ethernet's header: {:x?}", &packet[..14]);
            ensure!((be32(&packet, 26), be32(&packet, 30)) == (source.to_bits(), target.to_bits()), "addresses: {:x?}", &packet[26..34]);
            ensure!((be16(&packet, 36), usize::from(be16(&packet, 38))) == (PORT, 8 + len), "UDP's header: {:x?}", &packet[34..42]);
            ensure!(packet[UDP_HEAD..] == pattern(len + n)[n..], "payload {n}");
            place += strides * 512;
        }
        ensure!(!net.ring(Receiver).readiness(to).contains(Readiness::IN), "nothing waits any more");
        net.ring(Receiver).strides_close(queue);
    }
    // The socket receives as others do.
    net.tell(from, PORT, b"again")?;
    ensure!(net.ring(Receiver).udp_backlog(to).is_some_and(|backlog| backlog.packets == 1), "nothing came to the socket");
    Ok(())
}

/// What was given out is as it was until a call goes on behind a linear end, whatever arrives; no run reaches over one, and the device goes around.
pub fn what_the_device_wrote_stays_until_a_read_goes_on_behind_a_linear_end<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let queue = open(net, to, Records::Raw)?;
    let part = layout(Records::Raw)?.striding().context("such records")?.strides / 2 * 512;
    let mut given: Vec<(usize, Vec<u8>)> = Vec::new();
    let (mut at, mut ends, mut packets) = (0, 0, 0_u64);
    for number in 0..5 * part as u64 / 512 {
        net.tell(from, PORT, &number.to_be_bytes())?;
        if !number.is_multiple_of(97) {
            continue;
        }
        while let Some(run) = read(net, queue, 1, 61)? {
            ensure!(run.payload.len() == run.packets * 512, "{run:?}");
            if run.payload.start / part != at / part || run.payload.start < at {
                (ends, given) = (ends + 1, Vec::new());
            }
            ensure!(run.payload.start / part == (run.payload.end - 1) / part, "{run:?} reaches over a linear end");
            at = run.payload.start;
            for place in run.payload.step_by(512) {
                let payload = bytes(net, queue, place + UDP_HEAD, 8)?;
                let number = u64::from_be_bytes(payload[..].try_into()?);
                ensure!(!net.delivers() || number == packets, "{number} in place of {packets}");
                packets += 1;
                given.push((place, bytes(net, queue, place, UDP_HEAD + 8)?));
            }
        }
        for (place, was) in given.iter().step_by(13) {
            ensure!(bytes(net, queue, *place, was.len())? == *was, "overwritten at {place}");
        }
    }
    ensure!(ends >= 4, "{ends} ends, {packets} packets");
    Ok(())
}

/// Of what a network damages, loses and doubles, nothing that is wrong is given out.
pub fn the_device_writes_no_record_that_is_damaged<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let queue = open(net, to, Records::Padded)?;
    let mut packets = 0;
    for number in 0..120 {
        net.tell(from, PORT, &message(number))?;
        while let Some(run) = read(net, queue, 1, 1)? {
            let head = bytes(net, queue, run.payload.start, UDP_HEAD)?;
            let len = usize::from(be16(&head, 16)) + 14;
            let packet = bytes(net, queue, run.payload.start, len)?;
            ensure!(run.payload.len() == len.div_ceil(512) * 512 && is_message(&packet[UDP_HEAD..]), "{run:?}: {packet:x?}");
            packets += 1;
        }
    }
    ensure!(if net.delivers() { packets == 120 } else { packets > 60 }, "{packets} packets");
    Ok(())
}

/// A packet that is longer than its record is told of, once, and lost alone.
pub fn a_packet_longer_than_the_device_s_record_is_told_of<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let queue = open(net, to, Records::Raw)?;
    for (n, len) in [(1, 8), (2, PAYLOAD + 1), (3, 8)] {
        net.tell(from, PORT, &vec![n; len])?;
    }
    ensure!(read(net, queue, 2, 3)?.is_some_and(|run| run.packets == 1), "what came before it");
    let now = net.now();
    ensure!(net.ring(Receiver).strides_read(now, queue, 1, 3).is_err(), "nothing is told");
    let run = read(net, queue, 1, 3)?.context("what came behind it")?;
    ensure!(run.packets == 1 && bytes(net, queue, run.payload.start + UDP_HEAD, 1)? == [3], "{run:?}");
    Ok(())
}

/// A socket that gets a peer or a filter is received from as others are, from then on; what had come before can still be read where it lies.
pub fn who_wants_more_of_each_datagram_has_them_in_the_socket_again<N: Net>(net: &mut N) -> Result<()> {
    for way in 0..2 {
        let (from, to) = net.datagrams(AMPLE)?;
        let queue = open(net, to, Records::Raw)?;
        net.tell(from, PORT, b"before")?;
        if way == 0 {
            let (source, peer, hop) = (net.ip(Receiver), net.address(Sender, 9), net.hop(Sender));
            net.ring(Receiver).udp_connect(to, source.into(), Some((peer.into(), hop)))?;
        } else {
            net.ring(Receiver).set_recv_filter(to, true)?;
        }
        ensure!(net.ring(Receiver).udp_to_strides(to, queue).is_err(), "it may not go there");
        net.tell(from, PORT, b"behind")?;
        ensure!(read(net, queue, 1, 9)?.is_some_and(|run| run.packets == 1), "what had come");
        ensure!(read(net, queue, 1, 9)?.is_none(), "and nothing more, whoever sent it");
        let now = net.now();
        net.ring(Sender).close(now, from, false);
        net.ring(Receiver).close(now, to, false);
        net.ring(Receiver).strides_close(queue);
    }
    Ok(())
}

fn layout(records: Records) -> Result<Layout> {
    // (With padding, of packets of up to 512 bytes, longer ones take several strides.)
    Ok(Geometry { records, packets: 100, payload_bytes: PAYLOAD, header_bytes: 0, vlan: false }.layout()?)
}

/// A striding queue, to which a socket's datagrams come.
fn open<N: Net>(net: &mut N, socket: FlowId, records: Records) -> Result<CyclicId> {
    let queue = net.ring(Receiver).strides_open(&layout(records)?)?;
    net.ring(Receiver).udp_to_strides(socket, queue)?;
    Ok(queue)
}

fn read<N: Net>(net: &mut N, queue: CyclicId, min: usize, max: usize) -> Result<Option<Run>> {
    let now = net.now();
    Ok(net.ring(Receiver).strides_read(now, queue, min, max)?)
}

/// Bytes of what was given out.
fn bytes<N: Net>(net: &mut N, queue: CyclicId, place: usize, len: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; len];
    ensure!(net.ring(Receiver).strides_copy(queue, place, &mut out), "nothing is held at {place}");
    Ok(out)
}
