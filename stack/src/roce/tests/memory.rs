//! Memory regions and their keys.

use std::collections::BTreeSet;

use super::pair::Adapter;
use crate::roce::memory::{Access, AccessError, Pd, Regions, RegisterError};
use crate::roce::work::Sge;
use crate::roce::{Limits, Tuning};

const PD: Pd = Pd(1);

fn regions() -> (Regions<Vec<u8>>, u32) {
    let mut regions = Regions::new(10);
    let key = regions.register(PD, 1000, vec![0; 100], Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    (regions, key)
}

#[test]
fn keys_of_before_name_nobody() {
    let mut hca = Adapter::new(Limits { regions: 1, ..Limits::default() }, Tuning::default());
    let pd = hca.alloc_pd();
    let mut keys = BTreeSet::new();
    for _ in 0..256 {
        let key = hca.register(pd, 0, vec![1], Access::empty()).unwrap();
        assert!(keys.iter().all(|old| hca.memory(*old).is_none()));
        assert_eq!(hca.register(pd, 0, vec![], Access::empty()), Err(RegisterError::Full));
        assert_eq!(hca.deregister(key), Some(vec![1]));
        assert_eq!(hca.deregister(key), None);
        assert!(keys.insert(key) && key != 0);
    }
}

#[test]
fn bounds_are_the_region_s() {
    let (regions, key) = regions();
    let check = |address, len| regions.check(PD, key, address, len, Access::REMOTE_READ);
    assert_eq!(check(1000, 100), Ok(0));
    assert_eq!(check(1099, 1), Ok(99));
    assert_eq!(check(1100, 0), Ok(100));
    for (address, len) in [(999, 1), (1000, 101), (1100, 1), (1001, u64::MAX), (u64::MAX, 2), (0, 2000)] {
        assert_eq!(check(address, len), Err(AccessError::Bounds), "{len} at {address}");
    }
}

#[test]
fn flags_and_domains_are_held_to() {
    let (mut regions, key) = regions();
    assert_eq!(regions.check(PD, key, 1000, 1, Access::REMOTE_WRITE), Err(AccessError::Denied));
    assert_eq!(regions.check(Pd(2), key, 1000, 1, Access::REMOTE_READ), Err(AccessError::Key));
    assert_eq!(regions.check(PD, key + 1, 1000, 1, Access::REMOTE_READ), Err(AccessError::Key));
    assert_eq!(regions.register(PD, 0, vec![0], Access::REMOTE_WRITE), Err(RegisterError::Flags));
    assert_eq!(regions.register(PD, 0, vec![0], Access::REMOTE_ATOMIC), Err(RegisterError::Flags));
    assert_eq!(regions.register(PD, u64::MAX, vec![0], Access::empty()), Ok(0x200), "its last byte is the last of all");
    assert_eq!(regions.register(PD, u64::MAX, vec![0; 2], Access::empty()), Err(RegisterError::Wraps));
    let constant = regions.register(PD, 0, vec![0; 8], Access::empty()).unwrap();
    assert_eq!(regions.write(PD, constant, 0, Access::LOCAL_WRITE, &[1]), Err(AccessError::Denied));
}

#[test]
fn lists_are_one_run_of_bytes() {
    let (mut regions, key) = regions();
    let sge = |address, len| Sge { address, len, lkey: key };
    let list = [sge(1010, 3), sge(1050, 0), sge(1000, 4)];
    regions.scatter(PD, &list, 0, b"abcdefg").unwrap();
    assert_eq!(regions.memory(key).unwrap()[10..13], *b"abc");
    assert_eq!(regions.memory(key).unwrap()[..4], *b"defg");
    for offset in 0..7u32 {
        for len in 0..=7 - offset as usize {
            let mut out = vec![0; len];
            regions.gather(PD, &list, offset, &mut out).unwrap();
            assert_eq!(out, b"abcdefg"[offset as usize..][..len]);
        }
    }
    assert_eq!(regions.gather(PD, &list, 1, &mut [0; 7]), Err(AccessError::Bounds));
    assert_eq!(regions.check_list(PD, &[sge(1000, 1), sge(1090, 11)], Access::empty()), Err(AccessError::Bounds));
}
