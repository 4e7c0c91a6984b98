use proptest::prelude::*;

use super::*;

/// As a program writes a control message, with a length that may be a lie.
fn message(len: usize, level: c_int, kind: c_int, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), payload].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// `vma_cmsg_ioctl_user_alloc_t`'s bytes.
fn alloc(flags: u8, allocate: usize, free: usize) -> Vec<u8> {
    [&[flags][..], &allocate.to_ne_bytes(), &free.to_ne_bytes()].concat()
}

/// What the messages come to: the answer, and how often an allocator was set.
fn outcome(room: &[u8], is_late: bool) -> (c_int, u32) {
    let mut set = 0;
    let result = obey(room, is_late, |_| {
        set += 1;
        set == 1
    });
    (result.map_or_else(|Errno(code)| code, |()| 0), set)
}

#[test]
fn an_allocator_is_taken_once_and_in_time() {
    let good = message(16 + 17, 1, USER_ALLOC, &alloc(FOR_RX, 4096, 8192));
    assert_eq!(outcome(&good, false), (0, 1));
    assert_eq!(outcome(&good, true), (libc::EINVAL, 0));
    assert_eq!(outcome(&good.repeat(2), false), (libc::EINVAL, 2));
    for (payload, code) in [
        (alloc(FOR_TX, 1, 1), libc::EOPNOTSUPP),
        (alloc(FOR_RX | FOR_TX, 1, 1), 0),
        (alloc(0, 1, 1), libc::EINVAL),
        (alloc(4, 1, 1), libc::EINVAL),
        (alloc(FOR_RX, 0, 1), libc::EINVAL),
        (alloc(FOR_RX, 1, 0), libc::EINVAL),
        (alloc(FOR_RX, 1, 1)[..16].to_vec(), libc::EINVAL),
        ([alloc(FOR_RX, 1, 1), vec![0]].concat(), libc::EINVAL),
    ] {
        assert_eq!(outcome(&message(16 + payload.len(), 1, USER_ALLOC, &payload), false).0, code, "{payload:?}");
    }
}

/// A message of a program's, and what is to be answered to it if it is the first that is not zero: of another type; an allocator of any
/// flags and addresses; one of any length; one whose length is a lie; others' messages inside a message, which are not looked at.
fn one() -> impl Strategy<Value = (Vec<u8>, c_int)> {
    let other = (any::<i32>(), proptest::collection::vec(any::<u8>(), 0..40))
        .prop_filter("of another type", |(kind, _)| *kind != USER_ALLOC)
        .prop_map(|(kind, payload)| (message(16 + payload.len(), 1, kind, &payload), 0));
    let allocator = (any::<u8>(), prop_oneof![Just(0_usize), any::<usize>()], prop_oneof![Just(0_usize), any::<usize>()]).prop_map(
        |(flags, allocate, free)| {
            let code = match flags & 3 {
                _ if allocate == 0 || free == 0 => libc::EINVAL,
                0 => libc::EINVAL,
                FOR_TX => libc::EOPNOTSUPP,
                _ => 0,
            };
            (message(33, 1, USER_ALLOC, &alloc(flags, allocate, free)), code)
        },
    );
    let of_another_length = proptest::collection::vec(any::<u8>(), 0..40)
        .prop_filter("of another length", |payload| payload.len() != 17)
        .prop_map(|payload| (message(16 + payload.len(), 1, USER_ALLOC, &payload), libc::EINVAL));
    let lie = prop_oneof![0..16_usize, 10_000..usize::MAX].prop_map(|len| (message(len, 1, 5, &[0; 24]), libc::EINVAL));
    let nested = Just(message(16 + 40, 1, 7, &message(33, 1, USER_ALLOC, &alloc(FOR_RX, 1, 1)))).prop_map(|bytes| (bytes, 0));
    prop_oneof![4 => other, 3 => allocator, 1 => of_another_length, 1 => lie, 1 => nested]
}

proptest! {
    #[test]
    fn the_first_that_is_refused_is_the_answer(messages in proptest::collection::vec(one(), 0..6), shift in 0..8_usize) {
        let mut bytes = vec![0xff; shift];
        let (mut expected, mut taken) = (0, 0);
        for (message, code) in &messages {
            bytes.extend(message);
            let is_allocator = *code == 0 && message[12..16] == USER_ALLOC.to_ne_bytes();
            if expected == 0 && is_allocator {
                taken += 1;
            }
            if expected == 0 {
                expected = if taken > 1 { libc::EINVAL } else { *code };
            }
        }
        prop_assert_eq!(outcome(&bytes[shift..], false), (expected, taken));
    }

    #[test]
    fn any_bytes_have_an_answer(bytes in proptest::collection::vec(prop_oneof![Just(0_u8), Just(0x54), Just(0x0b), Just(33), any::<u8>()], 0..200), is_late: bool) {
        let (code, _) = outcome(&bytes, is_late);
        prop_assert!(matches!(code, 0 | libc::EINVAL | libc::EOPNOTSUPP));
    }
}
