use ringway_host::capture::Frame;
use ringway_stack::wire::checksum::{self, Checksum};

use super::file::{CaptureFile, Interface};
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
    let mut bytes = Vec::new();
    let mut file = CaptureFile::new(&mut bytes, Clock::system()).unwrap();
    let interface = file.describe(&Interface { name: "shm", description: "web[7] ring 0", snaplen: 65_536 }).unwrap();
    for lost in [0, 9] {
        file.write(Seen { interface, is_shared_memory: true, frame: Frame { lost, ..frame(datagram(b"x")) } }).unwrap();
    }
    file.tell_count(interface, 11, 9).unwrap();
    assert_eq!((file.written(), file.lost()), (2, 9));
    drop(file);
    let mut reader = pcap_file::pcapng::PcapNgReader::new(&*bytes).unwrap();
    let mut drops = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            pcap_file::pcapng::Block::EnhancedPacket(packet) => {
                use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
                drops.extend(packet.options.iter().filter_map(|option| match option {
                    EnhancedPacketOption::DropCount(lost) => Some(*lost),
                    _ => None,
                }));
            }
            pcap_file::pcapng::Block::InterfaceStatistics(statistics) => {
                use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
                let [InterfaceStatisticsOption::IsbIfRecv(11), InterfaceStatisticsOption::IsbIfDrop(lost)] = statistics.options[..] else {
                    panic!("{statistics:?}")
                };
                drops.push(lost);
            }
            _ => {}
        }
    }
    assert_eq!(drops, [9, 9]);
}
