//! What is seen of a ring on an interface by who captures (`ringway capture`).

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use ringway_host::capture::{Answer, Frame, RINGS_MAX, Reader, SNAPLEN_MAX, Watched};
use ringway_host::members::MemberName;

use crate::cable::{ENDS, PORT, eventually, on_cable};

/// Memory for all that is said here: nobody reads until the end.
const BYTES: usize = 16 << 20;
const STREAM: usize = 1 << 20;

#[test]
fn everything_is_seen_of_both_families_and_directions() {
    on_cable(|cable| {
        for ([here, _], kind) in ENDS.into_iter().zip([0x0800, 0x86dd]) {
            let server = cable.here(&["serve", here, PORT]);
            cable.await_listener(true);
            let watched = watch(server.pid());
            let mut reader = shown(&watched);
            cable.there(&["talk", here, PORT]).join().expect("the kernel's program");
            server.ends_well();
            let frames: Vec<Frame> = std::iter::from_fn(|| reader.next_frame()).collect();
            assert!(frames.iter().all(|frame| frame.lost == 0 && frame.len == frame.bytes.len()), "{here}");
            let packets: Vec<Packet<'_>> = frames.iter().filter_map(|frame| Packet::parse(&frame.bytes, frame.is_sent, kind)).collect();
            let port: u16 = PORT.parse().expect("a port");
            for is_sent in [true, false] {
                let of = |protocol| packets.iter().filter(move |packet| packet.protocol == protocol && packet.is_sent == is_sent);
                assert!(of(17).any(|packet| packet.payload == b"hello") && of(17).count() >= 101, "{here} {is_sent}");
                assert!(of(6).chain(of(17)).all(|packet| packet.own == port), "{here} {is_sent}");
                let whole = of(6).map(|packet| packet.other).find(|&other| is_the_stream(of(6).filter(|packet| packet.other == other)));
                assert!(whole.is_some(), "{here} {is_sent}: {} segments", of(6).count());
            }
        }
    });
}

/// The control socket's name is in the network namespace of the calling thread.
fn watch(pid: i32) -> Watched {
    let mut watched = None;
    eventually("the process can be asked", || {
        let sockets = fs::read_to_string("/proc/thread-self/net/unix").expect("proc(5)");
        let name = sockets.lines().filter_map(|line| line.split_once('@')).find(|(_, name)| name.contains(&format!("/member/{pid}-")));
        watched = name.and_then(|(_, name)| Watched::new(&MemberName { pid, name: name.to_owned() }).ok());
        watched.is_some()
    });
    watched.expect("it was found")
}

/// What passes the interface. (The ring may be opened a little later than the listener.)
fn shown(watched: &Watched) -> Reader {
    let mut ring = 0;
    let mut found = None;
    eventually("it has a ring on the interface", || {
        watched.ask(ring, BYTES, SNAPLEN_MAX, Some("xdp:a0")).expect("it lives");
        let answer = loop {
            match watched.answer().expect("it lives") {
                Some(answer) => break answer,
                None => sleep(Duration::from_millis(1)),
            }
        };
        match answer {
            Answer::Shown { device, reader, .. } => {
                assert_eq!(device, "xdp:a0");
                found = Some(reader);
            }
            Answer::Other if ring < RINGS_MAX => ring += 1,
            Answer::None => {}
            other => panic!("{other:?}"),
        }
        found.is_some()
    });
    found.expect("it was shown")
}

pub(crate) struct Packet<'a> {
    pub(crate) is_sent: bool,
    pub(crate) protocol: u8,
    own: u16,
    pub(crate) other: u16,
    /// A segment's sequence number, and whether it is the first.
    seq: (u32, bool),
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Of TCP and UDP over IP of that EtherType; there is no other.
    pub(crate) fn parse(bytes: &'a [u8], is_sent: bool, kind: u16) -> Option<Self> {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(word(12), kind, "{bytes:?}");
        let (protocol, at, end) = match kind {
            0x0800 => (bytes[23], 14 + usize::from(bytes[14] & 15) * 4, 14 + usize::from(word(16))),
            _ => (bytes[20], 54, 54 + usize::from(word(18))),
        };
        let [own, other] = if is_sent { [word(at), word(at + 2)] } else { [word(at + 2), word(at)] };
        let (header, seq) = match protocol {
            6 => {
                let seq = u32::from(word(at + 4)) << 16 | u32::from(word(at + 6));
                (usize::from(bytes[at + 12] >> 4) * 4, (seq, bytes[at + 13] & 2 != 0))
            }
            17 => (8, (0, false)),
            _ => return None,
        };
        Some(Self { is_sent, protocol, own, other, seq, payload: &bytes[at + header..end] })
    }
}

/// Whether what these segments carry is what the programs say to each other by a stream.
pub(crate) fn is_the_stream<'a>(segments: impl Iterator<Item = &'a Packet<'a>> + Clone) -> bool {
    let Some(first) = segments.clone().find(|packet| packet.seq.1) else { return false };
    // (Of what was sent twice, the longer one: what was cut by the device is sent again piece by piece.)
    let mut by_place: BTreeMap<u32, &[u8]> = BTreeMap::new();
    for packet in segments {
        let there = by_place.entry(packet.seq.0.wrapping_sub(first.seq.0).wrapping_sub(1)).or_default();
        if packet.payload.len() > there.len() {
            *there = packet.payload;
        }
    }
    let mut bytes = Vec::new();
    for (place, payload) in by_place {
        // (What was sent twice is there twice.)
        if let Some(new) = bytes.len().checked_sub(place as usize).and_then(|known| payload.get(known..)) {
            bytes.extend_from_slice(new);
        }
    }
    bytes.len() == STREAM && bytes.iter().zip(0_u32..).all(|(&byte, at)| byte == (at.wrapping_mul(2_654_435_761) >> 24) as u8)
}
