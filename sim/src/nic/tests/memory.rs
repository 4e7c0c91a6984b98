use super::*;
use ringway_stack::device::{DeviceMemory, DeviceMemoryError};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn copies_are_multiples_of_four_bytes() {
    let mut device = nic(NicConfig::default()).ring();
    let memory = device.dm_alloc(64).unwrap();
    device.dm_copy_to(memory, 8, &[1, 2, 3, 4]).unwrap();
    let mut out = [0; 12];
    device.dm_copy_from(memory, 4, &mut out).unwrap();
    assert_eq!(out, [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
    for (offset, len) in [(1, 4), (2, 4), (6, 4), (4, 3), (0, 1)] {
        assert_eq!(device.dm_copy_to(memory, offset, &vec![0; len]), Err(DeviceMemoryError::Unaligned), "{offset} {len}");
        assert_eq!(device.dm_copy_from(memory, offset, &mut vec![0; len]), Err(DeviceMemoryError::Unaligned));
    }
    assert_eq!(device.dm_copy_to(memory, 64, &[0; 4]), Err(DeviceMemoryError::OutOfRange));
    assert_eq!(device.dm_copy_to(memory, 60, &[0; 8]), Err(DeviceMemoryError::OutOfRange));
    assert_eq!(device.dm_copy_to(DeviceMemory(99), 0, &[0; 4]), Err(DeviceMemoryError::Unknown));
}

#[test]
fn it_is_limited_and_counted() {
    let nic = nic(NicConfig { device_memory: 100, ..NicConfig::default() });
    let mut device = nic.ring();
    let memory = device.dm_alloc(60).unwrap();
    assert_eq!(device.dm_alloc(41), Err(DeviceMemoryError::Full));
    assert_eq!(device.dm_alloc(0), Err(DeviceMemoryError::OutOfRange));
    assert_eq!(nic.outstanding().device_memory, 60);
    device.dm_free(memory).unwrap();
    assert_eq!(device.dm_free(memory), Err(DeviceMemoryError::Unknown));
    assert_eq!(nic.outstanding(), Outstanding::default());
    let mut without = super::nic(NicConfig { device_memory: 0, ..NicConfig::default() }).ring();
    assert!(matches!(without.dm_alloc(4), Err(DeviceMemoryError::Unsupported(_))));
    assert!(matches!(without.dm_register(memory, 0, 4), Err(DeviceMemoryError::Unsupported(_))));
}

#[test]
fn frames_are_sent_from_it_and_it_stays_until_they_are() {
    let nic = nic(NicConfig { inline_max: 0, ..NicConfig::default() });
    let mut device = nic.ring();
    let memory = device.dm_alloc(512).unwrap();
    device.dm_copy_to(memory, 0, &[7; 512]).unwrap();
    let payload = device.dm_register(memory, 3, 500).unwrap();
    let head = frames::experimental(frames::mac(1), frames::mac(0), &[]);
    let body = [TxSlice { buffer: &payload, offset: 0, len: 500 }];
    device.send(&TxFrame { head: &head, body: &body, offload: TxOffload::default() }).unwrap();
    drop(payload);
    assert_eq!(device.dm_copy_to(memory, 0, &[1; 4]), Err(DeviceMemoryError::Busy), "a frame that reads it waits");
    device.dm_copy_to(memory, 508, &[1; 4]).unwrap();
    device.doorbell();
    assert_eq!(leaving(&nic, Instant::ZERO)[0][..], [head, vec![7; 500]].concat());
    device.dm_copy_to(memory, 0, &[1; 4]).unwrap();
    assert_eq!(device.dm_free(memory), Err(DeviceMemoryError::Busy), "still registered: the frame has not completed");
    nic.complete();
    device.reap();
    device.dm_free(memory).unwrap();
    assert_eq!(nic.outstanding(), Outstanding::default());
}

#[test]
fn a_registration_is_not_written_like_a_buffer() {
    let mut device = nic(NicConfig::default()).ring();
    let memory = device.dm_alloc(8).unwrap();
    let mut registered = device.dm_register(memory, 0, 8).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| registered.write(0, &[1]))).is_err());
    assert!(matches!(device.dm_register(memory, 4, 8), Err(DeviceMemoryError::OutOfRange)));
}
