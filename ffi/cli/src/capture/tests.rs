mod strangers;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use ringway_host::capture::Frame;
use ringway_stack::wire::checksum::{self, Checksum};

use super::file::{CaptureFile, Interface, Limits};
use super::packet::on_the_wire;
use super::sources::Seen;
use super::*;

/// A datagram of IPv4 with these bytes, with nothing in the places of its checksums.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    let len = 28 + payload.len() as u16;
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0, 0x20, 0]);
    frame.extend((len - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn frame(bytes: Vec<u8>) -> Frame {
    Frame { time_ns: 1_000, is_sent: true, len: bytes.len(), bytes, ..Frame::default() }
}

#[test]
fn what_a_device_would_fill_in_is_there() {
    for payload in [&b""[..], b"x", b"even", b"odd"] {
        let (bytes, len) = on_the_wire(frame(datagram(payload)), true);
        assert_eq!(len, bytes.len());
        assert_eq!(checksum::sum(&bytes[14..34]), 0xffff, "of the header");
        let mut sum = Checksum::pseudo_header([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, bytes.len() - 34);
        sum.add(&bytes[34..]);
        assert_eq!(sum.folded(), 0xffff, "of {payload:?}");
    }
    // Of what was cut, and of what has its own, nothing is changed.
    let cut = Frame { len: 100, ..frame(datagram(b"cut")) };
    assert_eq!(on_the_wire(cut.clone(), true), (cut.bytes, 100));
    assert_eq!(on_the_wire(frame(datagram(b"own")), false).0, datagram(b"own"));
    // The tag is where it belongs.
    let (bytes, len) = on_the_wire(Frame { vlan: Some(0x2007), ..frame(datagram(b"")) }, false);
    assert_eq!((&bytes[10..18], len), (&[2, 2, 0x81, 0, 0x20, 7, 8, 0][..], 46));
}

#[test]
fn nothing_that_is_no_packet_is_touched_or_panics() {
    let whole = datagram(b"payload");
    for len in 0..whole.len() {
        on_the_wire(frame(whole[..len].to_vec()), true);
        let mut wrong = whole.clone();
        wrong[len] = 0xff;
        on_the_wire(frame(wrong), true);
    }
}

#[test]
fn what_is_seen_at_both_ends_is_known_again_as_often_as_it_was_sent() {
    let mut under_way = super::once::UnderWay::default();
    let sent = frame(datagram(b"one"));
    // (The receiver has the Ethernet header of its own.)
    let mut came = Frame { is_sent: false, time_ns: 7, ..sent.clone() };
    came.bytes[..12].fill(9);
    assert!(!under_way.has_come(&came));
    under_way.sent(&sent);
    under_way.sent(&sent);
    assert_eq!([0; 3].map(|_| under_way.has_come(&came)), [true, true, false]);
    under_way.sent(&sent);
    assert!(!under_way.has_come(&frame(datagram(b"two"))));
}

#[test]
fn what_was_lost_is_told_of() {
    let (blocks, counts) = written(Limits { snaplen: 65_536, ..Limits::default() }, |file| {
        let interface = file.describe(&Interface { name: "shm", description: "web[7] ring 0" }).unwrap();
        for lost in [0, 9] {
            file.write(seen(interface, Frame { lost, ..frame(datagram(b"x")) })).unwrap();
        }
        // What is not shown has not lost less.
        file.pass_over(&seen(interface, Frame { lost: 4, ..frame(datagram(b"x")) }));
        file.write(seen(interface, Frame { lost: 1, ..frame(datagram(b"x")) })).unwrap();
        file.tell_count(interface, 17, 14).unwrap();
        assert_eq!((file.written(), file.lost()), (3, 14));
    });
    assert_eq!(blocks.iter().map(|(_, lost)| *lost).collect::<Vec<_>>(), [None, Some(9), Some(5)]);
    assert_eq!(counts, [(17, 14)]);
}

#[test]
fn no_more_is_written_than_was_asked_for() {
    let limits = Limits { snaplen: 60, count: Some(2), filter: None };
    let (blocks, _) = written(limits, |file| {
        let interface = file.describe(&Interface { name: "xdp:eth0", description: "web[7] ring 1" }).unwrap();
        for _ in 0..3 {
            assert!(file.written() < 2 || file.is_full());
            // (The tag is put in by the command.)
            file.write(seen(interface, Frame { vlan: Some(7), ..frame(datagram(&[0; 18])) })).unwrap();
        }
    });
    assert_eq!(blocks.iter().map(|(len, _)| *len).collect::<Vec<_>>(), [60, 60]);
}

fn seen(interface: u32, frame: Frame) -> Seen {
    Seen { interface, is_shared_memory: true, frame }
}

/// The frames that a file has then, by their length and what was lost before, and its counts.
type Written = (Vec<(usize, Option<u64>)>, Vec<(u64, u64)>);

fn written(limits: Limits, write: impl FnOnce(&mut CaptureFile<&mut Vec<u8>>)) -> Written {
    let mut bytes = Vec::new();
    write(&mut CaptureFile::new(&mut bytes, Clock::system(), limits).unwrap());
    let mut reader = PcapNgReader::new(&*bytes).unwrap();
    let (mut frames, mut counts) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::EnhancedPacket(packet) => {
                let lost = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::DropCount(lost) => Some(*lost),
                    _ => None,
                });
                frames.push((packet.data.len(), lost));
            }
            Block::InterfaceStatistics(statistics) => match statistics.options[..] {
                [InterfaceStatisticsOption::IsbIfRecv(seen), InterfaceStatisticsOption::IsbIfDrop(lost)] => counts.push((seen, lost)),
                _ => panic!("{statistics:?}"),
            },
            _ => {}
        }
    }
    (frames, counts)
}
