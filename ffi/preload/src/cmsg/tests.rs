use proptest::prelude::*;

use super::*;

/// As a program writes one, with a length that may be a lie.
fn message(len: usize, level: c_int, kind: c_int, payload: &[u8]) -> Vec<u8> {
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn whole(level: c_int, kind: c_int, payload: &[u8]) -> Vec<u8> {
    message(HEADER + payload.len(), level, kind, payload)
}

/// All that is found, and whether it ends well.
fn found(bytes: &[u8]) -> (Vec<(c_int, c_int, Vec<u8>)>, bool) {
    let mut all = Vec::new();
    let result = each::<Cut>(bytes, |message| {
        all.push((message.level, message.kind, message.payload.to_vec()));
        Ok(())
    });
    (all, result.is_ok())
}

#[test]
fn messages_follow_each_other_and_none_is_cut() {
    let mut bytes = message(19, 1, 5, b"abc");
    bytes.extend(message(16, 1, 6, b""));
    assert_eq!(found(&bytes), (vec![(1, 5, b"abc".to_vec()), (1, 6, Vec::new())], true));
    // The last needs no padding.
    assert_eq!(found(&bytes[..19]), (vec![(1, 5, b"abc".to_vec())], true));
    for (bytes, why) in [(&bytes[..15], "no header"), (&bytes[..18], "no payload"), (&bytes[..25], "no second header")] {
        assert!(!found(bytes).1, "{why}");
    }
    for len in [0, 15, usize::MAX, usize::MAX - 6, isize::MAX as usize] {
        assert!(next(&message(len, 1, 5, b"abc")).is_err(), "{len}");
    }
}

#[test]
fn a_room_is_not_longer_than_any() {
    let byte = 0_u8;
    // SAFETY: the first is null; the second is not looked at; of the third there is as much as it says.
    unsafe {
        assert_eq!(room(core::ptr::null(), 8), None);
        assert_eq!(room((&raw const byte).cast(), usize::MAX), None);
        assert_eq!(room((&raw const byte).cast(), 1), Some(&[0_u8][..]));
    }
}

proptest! {
    /// What was written is read, at any address; cut anywhere, it is the same up to there.
    #[test]
    fn what_is_written_is_read(
        messages in proptest::collection::vec((any::<i32>(), any::<i32>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
        shift in 0..16_usize, cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = vec![0xa5; shift];
        for (level, kind, payload) in &messages {
            bytes.extend(whole(*level, *kind, payload));
        }
        let bytes = &bytes[shift..];
        prop_assert_eq!(found(bytes), (messages.clone(), true));
        let (some, _) = found(&bytes[..cut.index(bytes.len() + 1)]);
        prop_assert_eq!(&some[..], &messages[..some.len()]);
    }

    /// Lengths that lie end the reading, or lead to other bytes of the same room; it always ends.
    #[test]
    fn any_bytes_come_to_an_end(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), lies in proptest::collection::vec((0..25_usize, 0..300_usize), 0..8)) {
        for (at, len) in lies {
            if let Some(place) = bytes.get_mut(at * 8..at * 8 + 8) {
                place.copy_from_slice(&len.to_ne_bytes());
            }
        }
        let (all, ends_well) = found(&bytes);
        prop_assert!(all.len() <= bytes.len() / HEADER);
        let used: usize = all.iter().map(|(_, _, payload)| HEADER + payload.len()).sum();
        prop_assert!(used <= bytes.len() && (used > 0 || !ends_well || bytes.is_empty()));
    }
}
