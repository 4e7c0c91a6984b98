use super::*;
use crate::frames;
use crate::scenario::{Scenario, Stage};
use crate::world::Capture;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::collections::BTreeSet;

fn record(trace: &mut Trace, at_us: u64, host: usize, what: What, marks: Marks, bytes: &[u8]) {
    let frame = Frame { id: 3, bytes: bytes.into(), marks, sound: false, unsolicited: false };
    trace.record(Instant::from_nanos(at_us * 1000), host, what, &frame);
}

fn sample() -> Trace {
    let mut trace = Trace::new(5, true);
    for (i, name) in ["a", "b"].into_iter().enumerate() {
        let mac = frames::mac(u8::try_from(i).unwrap());
        trace.add_interface(Interface { name: name.to_owned(), mac, bandwidth_bps: Some(1_000_000) });
    }
    let bytes = frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), b"data");
    record(&mut trace, 1_000_000, 0, What::Sent, Marks::default(), &bytes);
    let strike = Strike::HeldBack { by: core::time::Duration::from_micros(12) };
    record(&mut trace, 1_000_001, 0, What::Struck(Direction::Up, strike), Marks::default(), &bytes);
    record(&mut trace, 1_000_020, 1, What::Delivered, Marks::HELD_BACK, &bytes);
    trace
}

#[test]
fn lines_say_what_happened() {
    let expected = "  1.000000        a > 10.0.0.1:1 > 10.0.0.2:2: UDP, length 4
  1.000001        a ! 10.0.0.1:1 > 10.0.0.2:2: UDP, length 4  [up: held back by 12µs]
  1.000020        b < 10.0.0.1:1 > 10.0.0.2:2: UDP, length 4  [held back]
";
    assert_eq!(render(&sample()), expected);
}

#[test]
fn pcapng_reads_back() {
    let trace = sample();
    let mut file = Vec::new();
    trace.write_pcapng(&mut file).unwrap();
    let mut reader = PcapNgReader::new(&file[..]).unwrap();
    let mut seen = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap().into_owned() {
            seen.push((packet.interface_id, packet.timestamp.as_micros(), format!("{:?}", packet.options)));
            assert_eq!(packet.data[..], trace.records()[0].bytes[..]);
        }
    }
    assert_eq!(reader.interfaces().len(), 2);
    let expected = [
        (0, 1_000_000, r#"[Flags(2), Comment("a's link, up: held back by 12µs")]"#.to_owned()),
        (1, 1_000_020, r#"[Flags(1), Comment("held back")]"#.to_owned()),
    ];
    assert_eq!(seen, expected);
}

/// Both ends of every frame, each at its own host; and whatever a link did to a frame stands beside it where it was sent.
#[test]
fn a_capture_has_both_ends_and_every_strike() {
    let scenario: Scenario = "7/loss+duplication+reordering+corruption/3".parse().unwrap();
    let mut stage = Stage::capturing(&scenario, Capture::Frames);
    stage.perform();
    let trace = stage.world().trace();
    let mut file = Vec::new();
    trace.write_pcapng(&mut file).unwrap();
    let mut reader = PcapNgReader::new(&file[..]).unwrap();
    let (mut ends, mut comments) = (Vec::new(), 0);
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            let outbound = packet.options.contains(&EnhancedPacketOption::Flags(2));
            let comment = packet.options.iter().any(|o| matches!(o, EnhancedPacketOption::Comment(_)));
            comments += usize::from(outbound && comment);
            ends.push((packet.interface_id as usize, outbound, packet.timestamp.as_nanos()));
        }
    }
    let kept = |r: &&Record| matches!(r.what, What::Sent | What::Delivered);
    let expected = trace.records().iter().filter(kept).map(|r| (r.host, r.what == What::Sent, u128::from(r.at.as_nanos())));
    assert!(expected.eq(ends));
    let struck: BTreeSet<_> = trace.records().iter().filter(|r| !kept(r)).map(|r| r.frame).collect();
    assert!(struck.len() > 1, "nothing was struck");
    assert_eq!(comments, struck.len());
}

/// The check that ended a run stands in the text and in the file, with the frame that it names.
#[test]
fn a_failure_stands_with_its_frame() {
    let mut trace = sample();
    let later = frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), b"later");
    let frame = Frame { id: 4, bytes: later[..].into(), marks: Marks::default(), sound: false, unsolicited: false };
    trace.record(Instant::from_nanos(1_000_030_000), 0, What::Sent, &frame);
    trace.fail(
        Instant::from_nanos(1_000_040_000),
        "checker sequence: host 0 (10.0.0.1) at 7 ns, frame 3: RFC 9293 s3.4: no\nand more",
        None,
    );
    let expected = "  1.000000        a > 10.0.0.1:1 > 10.0.0.2:2: UDP, length 4
  1.000040        a # FAILED: checker sequence: RFC 9293 s3.4: no
  1.000001        a ! 10.0.0.1:1 > 10.0.0.2:2: UDP, length 4  [up: held back by 12µs]
";
    assert!(render(&trace).starts_with(expected), "{}", render(&trace));
    let mark = "FAILED: checker sequence: RFC 9293 s3.4: no";
    for (seen, packets) in [(Seen::All, 3), (Seen::Sent, 2), (Seen::By(0), 2), (Seen::By(1), 1)] {
        let comments = comments(&trace, seen);
        assert_eq!(comments.len(), packets, "{seen:?}");
        // Host 1 has no frame before it.
        let expected = usize::from(seen != Seen::By(1));
        assert_eq!(comments.iter().filter(|all| all.contains(mark)).count(), expected, "{seen:?}");
    }
}

/// A failure that names no frame stands with the last one of its connection; one that is no checker's, with the last of all.
#[test]
fn a_failure_without_a_frame_stands_with_the_last_that_concerns_it() {
    let mut trace = sample();
    let other = frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:9".parse().unwrap(), b"other");
    record(&mut trace, 1_000_030, 0, What::Sent, Marks::default(), &other);
    let messages = [
        ("checker rto: host 0 at 7 ns, connection 10.0.0.1:1 to 10.0.0.2:2: late", 0),
        ("checker rto: host 0 at 7 ns: late", 3),
        ("liveness: Err(…)", 3),
    ];
    for (message, at) in messages {
        trace.fail(Instant::from_nanos(1_000_040_000), message, None);
        assert_eq!(trace.failure().unwrap().record, Some(at), "{message}");
    }
}

/// The comments of each packet of a file.
fn comments(trace: &Trace, seen: Seen) -> Vec<String> {
    let mut file = Vec::new();
    trace.write_pcapng_of(seen, &mut file).unwrap();
    let mut reader = PcapNgReader::new(&file[..]).unwrap();
    let mut all = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            all.push(format!("{:?}", packet.options));
        }
    }
    all
}

#[test]
fn without_frames_there_is_nothing_to_write() {
    let trace = Trace::new(1, false);
    assert!(matches!(trace.write_pcapng(Vec::new()), Err(TraceError::NotKept)));
}

#[test]
fn every_part_of_an_event_is_hashed() {
    let base = |at, host, what, bytes: &[u8]| {
        let mut trace = Trace::new(1, false);
        record(&mut trace, at, host, what, Marks::default(), bytes);
        trace.hash()
    };
    let original = base(1, 0, What::Sent, b"frame");
    let others = [
        base(2, 0, What::Sent, b"frame"),
        base(1, 1, What::Sent, b"frame"),
        base(1, 0, What::Delivered, b"frame"),
        base(1, 0, What::Sent, b"fraMe"),
        base(1, 0, What::Sent, b"frame\0"),
    ];
    assert!(others.iter().all(|&other| other != original));
}
