//! Sends that send nothing, beside those that do (libvma's VMA_SND_FLAGS_DUMMY); and frames that lie in the device's own memory.

use core::time::Duration;
use std::io::IoSlice;
use std::net::SocketAddrV4;

use ringway_stack::device::{FlowRule, RxBatch};
use ringway_stack::ring::{NextHop, SendFlags, UdpOptions};

use super::host::{OURS, Packet, address, udp};
use super::streams::{PeerEnd, plain, segment};
use crate::dissect::UDP;
use crate::drills::bench::{Bench, bytes_at};
use crate::drills::card::PEER;
use crate::segment::ACK;
use crate::{HostConfig, NicConfig, World, WorldConfig};

/// Nobody gets a dummy, whether the device takes it or not, and whatever is sent beside it goes as if there had been none.
pub(in crate::drills) fn dummies(bench: &mut Bench) {
    let mut host = super::host(bench);
    let socket = host.open(SocketAddrV4::new(OURS[0], 500), UdpOptions::default());
    let mut stream = PeerEnd::connect(&mut host, 3000, address(2, 80), &plain());
    let to = Some((address(2, 600), NextHop::Mac(PEER)));
    let (mut written, mut taken) = (0_u32, [0; 2]);
    for _ in 0..20 {
        let len = host.bench.between(1, 1400) as usize;
        let bytes = bytes_at(written, len);
        let which = host.bench.below(2) as usize;
        if host.bench.chance(2) {
            let is_full = host.bench.chance(3);
            host.port.borrow_mut().room = is_full.then_some(0);
            let before = host.port.borrow().dummies;
            let sent = match which {
                0 => host.ring.udp_dummy(socket, &[IoSlice::new(&bytes)], OURS[0].into(), to.map(|(to, hop)| (to.into(), hop))),
                _ => host.ring.tcp_dummy(host.now, stream.socket, &[IoSlice::new(&bytes)]),
            };
            host.must(sent == Ok(len), format_args!("{sent:?} of a dummy of {len} bytes"));
            host.silence("VMA_SND_FLAGS_DUMMY: a dummy is sent");
            let count = host.port.borrow().dummies - before;
            host.must(count == usize::from(!is_full), format_args!("the device was given {count} dummies, full ({is_full})"));
            taken[which] += count as u64;
            host.port.borrow_mut().room = None;
            continue;
        }
        if which == 0 {
            let sent = host.send(socket, &bytes, to, true);
            host.must(sent == Ok(len), format_args!("send(2): {sent:?} of {len} bytes, after dummies"));
            let frames = host.sent();
            let right = matches!(&frames[..], [frame] if frame.datagram().is_some_and(|(_, _, payload)| payload == bytes));
            host.must(right, format_args!("send(2): {} frames of a datagram, after dummies", frames.len()));
            continue;
        }
        let wrote = host.ring.tcp_send(host.now, stream.socket, &[IoSlice::new(&bytes)], SendFlags::empty());
        host.must(wrote == Ok(len), format_args!("send(2): {wrote:?} of {len} bytes, after dummies"));
        let heard = stream.heard(&mut host);
        let right = matches!(&heard[..], [one] if one.seq == stream.rcv && one.len() as usize == len && one.ack == stream.nxt);
        host.must(right, format_args!("RFC 9293 s3.10.4: {} segments of what was written after dummies", heard.len()));
        (stream.rcv, written) = (stream.rcv.wrapping_add(len as u32), written + len as u32);
        host.give(segment(stream.remote, stream.local, stream.nxt, stream.rcv, ACK, &[]));
        host.silence("RFC 9293 s3.10.7.4: an acknowledgment is not answered");
    }
    let counted = [socket, stream.socket].map(|socket| host.ring.info(socket).map(|info| info.counters.tx_dummies));
    host.must(
        counted[1] == Some(taken[1]) && counted[0] >= Some(taken[0]),
        format_args!("{counted:?} dummies are counted, of {taken:?} that the device took"),
    );
    host.close(socket);
    host.ring.close(host.now, stream.socket, true);
    host.sent();
    host.is_empty();
}

/// A frame whose payload lies in the device's memory has just those bytes, wherever they begin (`RawQueue::send_memory`).
pub(in crate::drills) fn memory(bench: &mut Bench) {
    let mut world = World::new(WorldConfig::seeded(bench.below(u64::MAX)));
    let nic = NicConfig { lro: false, ..NicConfig::full() };
    let hosts = ["sender", "receiver"].map(|name| world.add_host(HostConfig::named(name).nic(nic.clone())));
    let macs = hosts.map(|host| world.host(host).mac());
    let [mut from, mut to] = hosts.map(|host| bench.infected_raw(world.add_raw_ring(host)));
    let steered = to.steer(&FlowRule::any());
    bench.must(steered.is_ok(), format_args!("{steered:?} of a queue that takes everything"));
    let total = 4 * bench.between(1, 500) as usize;
    let bytes = bytes_at(0, total);
    let Ok(memory) = from.memory(total) else { return bench.must(false, format_args!("no {total} bytes of device memory")) };
    let written = from.write_memory(memory, 0, &bytes);
    bench.must(written.is_ok(), format_args!("{written:?} of {total} bytes to device memory"));
    for _ in 0..4 {
        let at = bench.below(total as u64) as usize;
        let len = (bench.between(1, 1400) as usize).min(total - at);
        let part = &bytes[at..at + len];
        let packet = Packet { to: macs[1], from: macs[0], ..Packet::new(OURS[0], *address(2, 0).ip(), UDP, udp(500, 600, part)) };
        let frame = packet.filled();
        let sent = from.send_memory(&frame[..frame.len() - len], memory, at, len, ringway_stack::device::TxOffload::default());
        bench.must(sent.is_ok(), format_args!("{sent:?} of {len} bytes from {at} on, of {total} in device memory"));
        world.call(hosts[0], |_| from.flush());
        world.run_for(Duration::from_millis(1));
        let mut batch = RxBatch::new(8);
        let count = to.poll(world.now(), &mut batch);
        let mut got = Vec::new();
        for frame in batch.frames_mut() {
            got.extend(frame.to_vec());
        }
        bench.must(
            // (Ethernet pads short frames.)
            count == 1 && got.starts_with(&frame) && got.len() == frame.len().max(60),
            format_args!("{count} frames come, of {len} bytes from {at} on, of {total} in device memory: {} bytes", got.len()),
        );
        from.reap();
    }
}
