use proptest::collection::vec;
use proptest::prelude::*;

use super::compressed::{Compression, MiniFormat, begins_run, invalidate};
use super::*;

#[test]
fn a_frame_received() {
    let received = Received {
        checks: c::CQE_L2_OK | c::CQE_L3_OK | c::CQE_L4_OK,
        l3_type: c::CQE_L3_IPV4,
        vlan: Some(0x0123),
        rss_hash: 0xdead_beef,
        byte_count: 1514,
        timestamp: 0x0102_0304_0506_0708,
        qpn_or_tag: 0x00ab_cdef,
        wqe_counter: 9,
        ..Received::default()
    };
    let bytes = Cqe::Received(received).encode(true);
    // Offsets by hand, from mlx5dv.h and linux/mlx5/device.h.
    assert_eq!(bytes[12..16], [0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(bytes[28..32], [7, 2 << 2 | 1, 0x01, 0x23]);
    assert_eq!(bytes[44..48], [0, 0, 0x05, 0xea]);
    assert_eq!(bytes[48..56], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bytes[56..60], [0, 0xab, 0xcd, 0xef]);
    assert_eq!(bytes[60..64], [0, 9, 0, 0x21]);
}

#[test]
fn a_send_that_failed() {
    let failed =
        Failed { syndrome: c::SYNDROME_LOCAL_PROT, vendor: 0x51, opcode: c::OPCODE_SEND, qpn: 0x42, wqe_counter: 3, ..Failed::default() };
    let bytes = Cqe::Failed(failed).encode(false);
    assert_eq!(bytes[54..64], [0x51, 0x04, 0x0a, 0, 0, 0x42, 0, 3, 0, 0xd0]);
    let receive = Cqe::Failed(Failed { receive: true, ..failed }).encode(true);
    assert_eq!(receive[63], 0xe1);
}

#[test]
fn what_is_no_completion() {
    let mut bytes = Cqe::Resized.encode(false);
    assert_eq!(Cqe::decode(&bytes), Ok(Cqe::Resized));
    for (op_own, expected) in [
        (0x60, NoCqe::Opcode(6)),
        (0xc1, NoCqe::Opcode(12)),
        (0xf1, NoCqe::Never),
        (0x24, NoCqe::Inline),
        (0x28, NoCqe::Inline),
        (0x2d, NoCqe::Compressed),
    ] {
        bytes[63] = op_own;
        assert_eq!(Cqe::decode(&bytes), Err(expected), "{op_own:#x}");
    }
    invalidate(&mut bytes);
    assert_eq!(Cqe::decode(&bytes), Err(NoCqe::Never));
}

#[test]
fn where_minis_lie() {
    let compression = Compression { format: MiniFormat::Checksum, striding: false, run_max: 64 };
    let run: Vec<_> =
        (0..18).map(|i| Received { checksum: 100 + i, byte_count: 60 + u32::from(i), wqe_counter: i, ..Received::default() }).collect();
    assert_eq!(compression.run(&run), 18);
    let entries = compression.compress(&run, true);
    assert_eq!(entries.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [1, 8, 16, 0]);
    assert_eq!(entries[0].1[..16], [0, 100, 0, 0, 0, 0, 0, 60, 0, 101, 0, 0, 0, 0, 0, 61]);
    assert_eq!(entries[2].1[..8], [0, 116, 0, 0, 0, 0, 0, 76]);
    let title = entries[3].1;
    assert_eq!(title[44..48], [0, 0, 0, 18]);
    assert_eq!(title[63], 0x2d);
    assert!(begins_run(&title, true) && !begins_run(&title, false));
    assert_eq!(compression.expand(&title, 17, |_| [0; 64]), Err(NoCqe::Run(18)));
    assert_eq!(compression.expand(&entries[0].1, 64, |_| [0; 64]), Err(NoCqe::Opcode(4)));
}

#[test]
fn where_a_run_ends() {
    let compression = Compression { format: MiniFormat::Hash, striding: false, run_max: 4 };
    let receive = |wqe_counter, qpn_or_tag| Received { wqe_counter, qpn_or_tag, ..Received::default() };
    assert_eq!(compression.run(&[]), 0);
    assert_eq!(compression.run(&[receive(1, 5), receive(2, 5), receive(3, 6)]), 2, "another flow tag");
    assert_eq!(compression.run(&[receive(1, 5), receive(3, 5)]), 1, "an entry is missing");
    assert_eq!(compression.run(&[receive(0xffff, 5), receive(0, 5)]), 2, "the counter wraps");
    assert_eq!(compression.run(&(0..9).map(|i| receive(i, 5)).collect::<Vec<_>>()), 4, "the card's limit");
}

prop_compose! {
    fn received()(
        (receipt, solicited, wqe_id, rss_hash, rss_hash_type) in (0..4usize, any::<bool>(), any::<u16>(), any::<u32>(), any::<u8>()),
        (checksum, slid, flags_rqpn, checks, l4_type, l3_type, vlan)
            in (any::<u16>(), any::<u16>(), any::<u32>(), any::<u8>(), 0..8u8, 0..4u8, any::<Option<u16>>()),
        (srqn_uidx, imm, byte_count, timestamp, qpn_or_tag, wqe_counter)
            in (0..1u32 << 24, any::<u32>(), any::<u32>(), any::<u64>(), 0..1u32 << 24, any::<u16>()),
    ) -> Received {
        let receipt = [Receipt::Send, Receipt::SendImmediate, Receipt::SendInvalidate, Receipt::WriteImmediate][receipt];
        Received {
            receipt, solicited, wqe_id, rss_hash, rss_hash_type, checksum, slid, flags_rqpn, checks, l4_type, l3_type, vlan, srqn_uidx, imm,
            byte_count, timestamp, qpn_or_tag, wqe_counter,
        }
    }
}

fn cqe() -> impl Strategy<Value = Cqe> {
    let low = 0..1u32 << 24;
    prop_oneof![
        received().prop_map(Cqe::Received),
        (low.clone(), any::<u32>(), any::<u64>(), any::<u8>(), low.clone(), any::<u16>()).prop_map(
            |(uidx, byte_count, timestamp, opcode, qpn, wqe_counter)| {
                Cqe::Sent(Sent { uidx, byte_count, timestamp, opcode, qpn, wqe_counter })
            }
        ),
        (any::<bool>(), low.clone(), any::<u8>(), any::<u8>(), any::<u8>(), low, any::<u16>()).prop_map(
            |(receive, srqn_uidx, vendor, syndrome, opcode, qpn, wqe_counter)| {
                Cqe::Failed(Failed { receive, srqn_uidx, vendor, syndrome, opcode, qpn, wqe_counter })
            }
        ),
        Just(Cqe::Resized),
    ]
}

fn compression() -> impl Strategy<Value = Compression> {
    (0..3usize, any::<bool>()).prop_map(|(format, striding)| Compression {
        format: [MiniFormat::Hash, MiniFormat::Checksum, MiniFormat::ChecksumStride][format],
        striding,
        run_max: 64,
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read(cqe in cqe(), lap: bool) {
        let bytes = cqe.encode(lap);
        prop_assert_eq!(owner(&bytes), lap);
        prop_assert_eq!(Cqe::decode(&bytes), Ok(cqe));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in vec(any::<u8>(), 64), compression in compression(), count in 0..120u32, entries in 0..100u32,
    ) {
        let mut bytes: CqeBytes = bytes.try_into().unwrap();
        let _ = Cqe::decode(&bytes);
        // A title of a plausible length, for hardly any random bytes are one.
        put(&mut bytes, 44, count.to_be_bytes());
        bytes[63] = 0x2c;
        prop_assert_eq!(compression.expand(&bytes, entries, |_| bytes).is_ok(), (2..=entries).contains(&count));
        if let Ok(run) = compression.expand(&bytes, entries, |_| bytes) {
            prop_assert!(run.len() <= entries as usize);
        }
    }

    #[test]
    fn what_was_compressed_is_expanded(
        title in received(), compression in compression(), says in vec((any::<u32>(), any::<u16>(), 1..100u32, 0..1500u32), 2..40), lap: bool,
    ) {
        // A run as a queue makes it: what a mini says is each receive's own, and indices follow each other.
        let mut run: Vec<Received> = Vec::new();
        for (rss_hash, checksum, strides, bytes) in says {
            let byte_count = if compression.striding { striding::join(strides, bytes, false) } else { bytes };
            let wqe_counter = run.last().map_or(title.wqe_counter, |last| {
                last.wqe_counter.wrapping_add(if compression.striding { striding::split(last.byte_count).0 as u16 } else { 1 })
            });
            run.push(match compression.format {
                MiniFormat::Hash => Received { rss_hash, byte_count, wqe_counter, ..title },
                _ => Received { rss_hash: 0, rss_hash_type: 0, checksum, byte_count, wqe_counter, ..title },
            });
        }
        prop_assert_eq!(compression.run(&run), run.len());
        let entries = compression.compress(&run, lap);
        let (slot, title) = entries.last().unwrap();
        prop_assert_eq!((*slot, owner(title)), (0, lap));
        let read = |slot| entries.iter().find(|(at, _)| *at == slot).unwrap().1;
        prop_assert_eq!(compression.expand(title, 64, read).unwrap(), run);
    }

    #[test]
    fn a_striding_count_is_split(strides in 0..=striding::STRIDES_MAX, bytes in 0..=striding::BYTES_MAX, filler: bool) {
        prop_assert_eq!(striding::split(striding::join(strides, bytes, filler)), (strides, bytes, filler));
    }
}
