//! Raw Ethernet on simulated NICs: the program supplies headers and payload; the NIC paces, cuts, steers, and sends from its own memory.
//!
//!     cargo run -p ringway-sim --example raw_ethernet

use core::time::Duration;
use std::error::Error;
use std::net::Ipv4Addr;

use ringway_sim::{HostConfig, HostId, NicConfig, SimDevice, SimRx, World, WorldConfig};
use ringway_stack::device::{FlowRule, HeaderMatch, IpMatch, MacAddr, Pacing, RxBatch, TxOffload, VxlanMatch};
use ringway_stack::raw::RawQueue;

type Done = Result<(), Box<dyn Error>>;

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const UDP: u8 = 17;
const TCP: u8 = 6;

fn main() -> Done {
    pacing()?;
    segmentation()?;
    type_of_service()?;
    flow_id()?;
    vxlan()?;
    device_memory()
}

/// Ten frames at eight megabits a second, the first two of them at once.
fn pacing() -> Done {
    let mut pair = Pair::new();
    pair.to.steer(&FlowRule::any())?;
    pair.from.pace(Pacing { rate_kbps: 8_000, burst_bytes: 2_000, typical_packet_bytes: 1_000 })?;
    let head = pair.udp(0, 1_000 - 42, 7);
    for _ in 0..10 {
        pair.from.send(&head, &[1; 1_000 - 42], TxOffload::default())?;
    }
    let times: Vec<_> = pair.exchange().iter().map(|frame| frame.at_us).collect();
    println!("packet pacing: frames arrive at {times:?} us");
    assert!(times[1] - times[0] < 10, "the burst");
    assert!(times.windows(2).skip(1).all(|pair| (990..=1_010).contains(&(pair[1] - pair[0]))), "then a byte a microsecond");
    Ok(())
}

/// 10,000 bytes of TCP payload with one set of headers.
fn segmentation() -> Done {
    let mut pair = Pair::new();
    pair.to.steer(&FlowRule::any())?;
    let mut head = pair.ip(0, TCP, 20 + 10_000);
    head.extend([0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    let offload = TxOffload { tso_mss: Some(1_460), ..pair.from.checksums() };
    pair.from.send(&head, &[2; 10_000], offload)?;
    let lengths: Vec<_> = pair.exchange().iter().map(|frame| frame.bytes.len() - 54).collect();
    println!("TSO: one frame of 10,000 bytes left as {lengths:?}");
    assert_eq!(lengths, [1_460, 1_460, 1_460, 1_460, 1_460, 1_460, 1_240]);
    Ok(())
}

/// Only what is marked for expedited forwarding.
fn type_of_service() -> Done {
    let mut pair = Pair::new();
    let expedited = IpMatch::V4 { src: None, dst: None, tos: Some(0xb8) };
    pair.to.steer(&FlowRule { outer: HeaderMatch { ip: Some(expedited), ..HeaderMatch::default() }, ..FlowRule::any() })?;
    for tos in [0, 0xb8, 0x28] {
        let head = pair.udp(tos, 1, 7);
        pair.from.send(&head, &[tos], TxOffload::default())?;
    }
    let received = pair.exchange();
    println!("ToS steering: {} of 3 frames, marked {:#x}", received.len(), received[0].bytes[15]);
    assert_eq!((received.len(), received[0].bytes[15]), (1, 0xb8));
    Ok(())
}

/// Two rules, told apart by what they tag.
fn flow_id() -> Done {
    let mut pair = Pair::new();
    for (port, tag) in [(7, 700), (9, 900)] {
        let local = std::net::SocketAddrV4::new(B, port);
        pair.to.steer(&FlowRule::flow(ringway_stack::device::Protocol::Udp, local, None).tag(tag))?;
    }
    for port in [9, 7, 8, 9] {
        let head = pair.udp(0, 1, port);
        pair.from.send(&head, &[3], TxOffload::default())?;
    }
    let tags: Vec<_> = pair.exchange().iter().map(|frame| frame.tag).collect();
    println!("flow id steering: frames tagged {tags:?}");
    assert_eq!(tags, [900, 700, 900]);
    Ok(())
}

/// One tunnel of two.
fn vxlan() -> Done {
    let mut pair = Pair::new();
    let tunnel = VxlanMatch { vni: Some(77), inner: HeaderMatch::default() };
    pair.to.steer(&FlowRule { vxlan: Some(tunnel), ..FlowRule::any() }.tag(77))?;
    for vni in [76u32, 77] {
        let inner = pair.udp(0, 4, 7);
        let payload = [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes(), &inner, &[4; 4]].concat();
        let head = pair.udp(0, u16::try_from(payload.len())?, 4789);
        let checksums = pair.from.checksums();
        pair.from.send(&head, &payload, checksums)?;
    }
    let received = pair.exchange();
    println!("VXLAN steering: {} of 2 frames, tagged {}", received.len(), received[0].tag);
    assert_eq!((received.len(), received[0].tag), (1, 77));
    Ok(())
}

/// A payload that never crosses the bus when it is sent.
fn device_memory() -> Done {
    let mut pair = Pair::new();
    pair.to.steer(&FlowRule::any())?;
    let memory = pair.from.memory(512)?;
    assert!(pair.from.write_memory(memory, 2, &[5; 4]).is_err(), "an address that is no multiple of 4 bytes");
    pair.from.write_memory(memory, 0, &[5; 512])?;
    let head = pair.udp(0, 512, 7);
    let checksums = pair.from.checksums();
    pair.from.send_memory(&head, memory, 0, 512, checksums)?;
    assert!(pair.from.free_memory(memory).is_err(), "a frame still reads it");
    let received = pair.exchange();
    pair.from.reap();
    pair.from.free_memory(memory)?;
    println!("device memory: {} bytes sent from it", received[0].bytes.len() - 42);
    assert_eq!(received[0].bytes[42..], [5; 512]);
    Ok(())
}

/// A frame as it was received.
struct Received {
    at_us: u64,
    tag: u32,
    bytes: Vec<u8>,
}

/// Two hosts, and a raw queue on each.
struct Pair {
    world: World,
    sender: HostId,
    macs: [MacAddr; 2],
    from: RawQueue<SimDevice>,
    to: RawQueue<SimDevice>,
}

impl Pair {
    fn new() -> Self {
        let mut world = World::new(WorldConfig::seeded(1));
        let [sender, receiver] =
            ["sender", "receiver"].map(|name| world.add_host(HostConfig::named(name).nic(NicConfig { lro: false, ..NicConfig::full() })));
        let macs = [sender, receiver].map(|host| world.host(host).mac());
        let [from, to] = [sender, receiver].map(|host| RawQueue::new(world.add_raw_ring(host)));
        Self { world, sender, macs, from, to }
    }

    /// Ethernet and IPv4 headers for `len` bytes of transport; their checksum is the NIC's.
    fn ip(&self, tos: u8, protocol: u8, len: u16) -> Vec<u8> {
        let mut head = [&self.macs[1].0[..], &self.macs[0].0, &[8, 0, 0x45, tos]].concat();
        head.extend((20 + len).to_be_bytes());
        head.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        head.extend(A.octets().iter().chain(&B.octets()));
        head
    }

    /// All headers of a UDP datagram of `len` bytes, without a checksum.
    fn udp(&self, tos: u8, len: u16, port: u16) -> Vec<u8> {
        let mut head = self.ip(tos, UDP, 8 + len);
        for field in [5_000, port, 8 + len, 0] {
            head.extend(field.to_be_bytes());
        }
        head
    }

    /// Sends what is queued, lets a while pass, and gives what has arrived.
    fn exchange(&mut self) -> Vec<Received> {
        let from = &mut self.from;
        self.world.call(self.sender, |_| from.flush());
        self.world.run_for(Duration::from_millis(20));
        let mut batch = RxBatch::<SimRx>::new(64);
        self.to.poll(self.world.now(), &mut batch);
        let received = |frame: &mut ringway_stack::device::RxFrame<SimRx>| {
            use ringway_stack::device::RxBuffer;
            let mut bytes = frame.head().to_vec();
            if let Some(body) = &frame.body {
                let at = bytes.len();
                bytes.resize(at + body.len(), 0);
                body.copy_to(0, &mut bytes[at..]);
            }
            let at_us = frame.meta.hardware_time.map_or(0, |at| at.as_nanos() / 1_000);
            Received { at_us, tag: frame.meta.flow_tag, bytes }
        };
        batch.frames_mut().iter_mut().map(received).collect()
    }
}
