//! Device memory: a payload that lies on the NIC already needs no trip over the bus when it is sent.
//!
//!     cargo run -p ringway-sim --example raw_device_memory
//!
//! The steps are verbs': allocate, copy in (by multiples of 4 bytes), register, send by the registration, free. What may not be done
//! is an error that says which rule was broken.

use core::time::Duration;

use ringway_stack::device::{DeviceMemoryError, FlowRule, Queues, TxSlice};
use ringway_stack::raw::RawError;

use frames::{Done, Pair, UDP_HEAD};

#[path = "raw/frames.rs"]
mod frames;

pub(crate) fn main() -> Done {
    let mut pair = Pair::new();
    pair.to.steer(&FlowRule::any())?;
    let capacity = pair.from.capabilities().device_memory;
    println!("the NIC has {capacity} bytes of its own");
    assert_eq!(pair.from.memory(capacity + 4), Err(RawError::Memory(DeviceMemoryError::Full)));

    // Two messages in one allocation, copied in once and sent as often as one likes.
    let memory = pair.from.memory(2_048)?;
    pair.from.write_memory(memory, 0, &[b'a'; 1_024])?;
    pair.from.write_memory(memory, 1_024, &[b'b'; 1_024])?;

    let unaligned = Err(RawError::Memory(DeviceMemoryError::Unaligned));
    assert_eq!(pair.from.write_memory(memory, 2, &[0; 4]), unaligned, "an address that is no multiple of 4 bytes");
    assert_eq!(pair.from.write_memory(memory, 0, &[0; 3]), unaligned, "a length that is none");
    let beyond = Err(RawError::Memory(DeviceMemoryError::OutOfRange));
    assert_eq!(pair.from.write_memory(memory, 2_044, &[0; 8]), beyond);

    // A registration can begin anywhere; the handle stands for its bytes as any send buffer does.
    let registered = pair.from.queues_mut().dm_register(memory, 1_000, 48)?;
    let checksums = pair.from.checksums();
    let (short_head, long_head) = (pair.udp(0, 48, 7), pair.udp(0, 1_024, 7));
    pair.from.send_slices(&short_head, &[TxSlice { buffer: &registered, offset: 0, len: 48 }], checksums)?;
    pair.from.send_memory(&long_head, memory, 1_024, 1_024, checksums)?;

    let busy = Err(RawError::Memory(DeviceMemoryError::Busy));
    assert_eq!(pair.from.free_memory(memory), busy, "it is registered, and a frame reads it");
    assert_eq!(pair.from.write_memory(memory, 1_024, &[0; 4]), busy, "a frame is about to be made of these bytes");

    let received = pair.exchange(Duration::from_millis(1));
    for frame in &received {
        let payload = &frame.bytes[UDP_HEAD..];
        println!(
            "sent from device memory: {} bytes, {:?} to {:?}",
            payload.len(),
            char::from(payload[0]),
            char::from(payload[payload.len() - 1])
        );
    }
    assert_eq!(received[0].bytes[UDP_HEAD..], [[b'a'; 24], [b'b'; 24]].concat());
    assert_eq!(received[1].bytes[UDP_HEAD..], [b'b'; 1_024]);

    drop(registered);
    pair.from.free_memory(memory)?;
    assert_eq!(pair.from.read_memory(memory, 0, &mut [0; 4]), Err(RawError::Memory(DeviceMemoryError::Unknown)), "it is gone");
    Ok(())
}
