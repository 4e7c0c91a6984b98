//! 003.13 to 003.26: device memory.

use core::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ringway_stack::device::{DEVICE_MEMORY_ALIGN, DeviceMemory, DeviceMemoryError, Protocol, Queues, TxOffload, TxSlice};
use ringway_stack::raw::{RawError, RawQueue};

use super::{MESSAGE_PLANE, device_memory};
use crate::sentences::frames::{UDP_HEAD, pattern};
use crate::sentences::{Case, Rig};

const A_WHILE: Duration = Duration::from_micros(200);
const PORT: u16 = 7;
/// Longer than any device sends inline, so that a queued frame refers to its memory.
const LONG: usize = 1_200;
/// The contract posts receive buffers of its own.
const NO_POST: &str = "the contract has no receive buffers in device memory";

pub(super) fn supported<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("all of its calls work, or all are refused with a typed error", |c| c.packet_plane, all_or_nothing)]
}

pub(super) fn data_buffer<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("for sends", device_memory, send_from_it),
        Case::not_yet("for receives", NO_POST),
        Case::not_yet("for RDMA operations", MESSAGE_PLANE),
    ]
}

pub(super) fn can_be<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::not_yet("mapped and accessed directly", "the contract copies, and maps nothing"),
        Case::new("allocated in various sizes", device_memory, various_sizes),
        Case::new("registered with a local key, several times over", device_memory, local_keys),
        Case::not_yet("registered with a remote key", MESSAGE_PLANE),
    ]
}

pub(super) fn latency<R: Rig>() -> Vec<Case<R>> {
    vec![Case::not_yet("less latency than from host memory", "no device here has a bus to save; to be measured on a card")]
}

pub(super) fn similar<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("by the same send call, alone and in one list with host memory", device_memory, one_list)]
}

pub(super) fn alloc_free<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("until it is exhausted, and what is freed can be had again", device_memory, exhaustion),
        Case::new("an allocation of nothing is an error", device_memory, nothing),
        Case::new("freeing it while it is registered is an error", device_memory, free_registered),
        Case::new("so it is while a frame in flight reads it", device_memory, free_in_flight),
        Case::new("once freed, every use is an error", device_memory, use_after_free),
    ]
}

pub(super) fn register<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("the key stands for its range, and for nothing past the end", device_memory, registered_range),
        Case::not_yet("a key for remote access", MESSAGE_PLANE),
    ]
}

pub(super) fn copy<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("what was copied in comes out, and nothing else changes", device_memory, in_and_out),
        Case::new("bytes of a queued frame are not overwritten", device_memory, not_under_a_frame),
    ]
}

pub(super) fn post<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("send, again and again with one key", device_memory, send_again), Case::not_yet("receive", NO_POST)]
}

pub(super) fn alignment<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("a destination that is none is an error, and copies nothing", device_memory, unaligned_offset),
        Case::new("so is a length", device_memory, unaligned_length),
    ]
}

pub(super) fn example<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("the example, step by step", device_memory, follow_the_example)]
}

pub(super) fn registration_offset<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("a registration from any offset on, aligned or not", device_memory, any_registration)]
}

pub(super) fn copy_offset<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("every aligned offset, up to the end and no further", device_memory, every_copy_offset)]
}

pub(super) fn packet_offset<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("packets from several places of one buffer", device_memory, packets_of_one_buffer)]
}

type Queue<R> = RawQueue<<R as Rig>::Queues>;

/// The sender's ring, with the receiver waiting for datagrams.
fn sender<R: Rig>(rig: &mut R) -> Result<&mut Queue<R>> {
    let rule = rig.rule(Protocol::Udp, PORT);
    rig.receiver()?.steer(&rule)?;
    Ok(rig.sender()?)
}

/// Device memory that holds `bytes`.
fn filled<Q: Queues>(queue: &mut RawQueue<Q>, bytes: &[u8]) -> Result<DeviceMemory> {
    let memory = queue.memory(bytes.len())?;
    queue.write_memory(memory, 0, bytes)?;
    Ok(memory)
}

fn contents<Q: Queues>(queue: &mut RawQueue<Q>, memory: DeviceMemory, len: usize) -> Result<Vec<u8>> {
    let mut out = vec![0xee; len];
    queue.read_memory(memory, 0, &mut out)?;
    Ok(out)
}

/// The payloads that arrive.
fn payloads<R: Rig>(rig: &mut R) -> Result<Vec<Vec<u8>>> {
    Ok(rig.exchange(A_WHILE)?.iter().map(|frame| frame.bytes[UDP_HEAD..].to_vec()).collect())
}

/// Demands this error.
fn refused<T>(what: &str, outcome: Result<T, RawError>, why: DeviceMemoryError) -> Result<()> {
    match outcome {
        Err(RawError::Memory(error)) if error == why => Ok(()),
        Err(other) => Err(other).context(format!("{what}, instead of: {why}")),
        Ok(_) => bail!("{what}: taken"),
    }
}

fn all_or_nothing<R: Rig>(rig: &mut R) -> Result<()> {
    let (has, kind) = (rig.capabilities().device_memory > 0, rig.capabilities().kind);
    let head = rig.headers().udp(0, PORT, 64);
    let queue = rig.sender()?;
    let memory = queue.memory(64);
    let named = memory.unwrap_or(DeviceMemory(1));
    let asked = [
        ("alloc", memory.map(drop)),
        ("copy in", queue.write_memory(named, 0, &[0; 64])),
        ("copy out", queue.read_memory(named, 0, &mut [0; 64])),
        ("register", queue.queues_mut().dm_register(named, 0, 64).map(drop).map_err(Into::into)),
        ("send", queue.send_memory(&head, named, 0, 64, TxOffload::default())),
    ];
    rig.run_for(A_WHILE);
    let freed = ("free", rig.sender()?.free_memory(named));
    for (what, outcome) in asked.into_iter().chain([freed]) {
        match outcome {
            Ok(()) => ensure!(has, "{what}: a silent no"),
            Err(RawError::Memory(DeviceMemoryError::Unsupported(refused))) => ensure!(!has && refused.device == kind, "{what}: {refused}"),
            Err(other) => return Err(other).context(what),
        }
    }
    Ok(())
}

fn send_from_it<R: Rig>(rig: &mut R) -> Result<()> {
    let head = rig.headers().udp(0, PORT, LONG);
    let queue = sender(rig)?;
    let memory = filled(queue, &pattern(LONG))?;
    let checksums = queue.checksums();
    queue.send_memory(&head, memory, 0, LONG, checksums)?;
    let received = payloads(rig)?;
    ensure!(received == [pattern(LONG)], "{} frames, or other bytes", received.len());
    Ok(rig.sender()?.free_memory(memory)?)
}

fn various_sizes<R: Rig>(rig: &mut R) -> Result<()> {
    let all = rig.capabilities().device_memory;
    let queue = rig.sender()?;
    for len in [4, 8, 64, 100, 1_500, 4_096, 10_000, all / 2, all] {
        let len = len.min(all) / DEVICE_MEMORY_ALIGN * DEVICE_MEMORY_ALIGN;
        let memory = queue.memory(len).with_context(|| format!("{len} bytes of {all}"))?;
        queue.write_memory(memory, 0, &pattern(len))?;
        ensure!(contents(queue, memory, len)? == pattern(len), "{len} bytes: others came out");
        queue.free_memory(memory)?;
    }
    // Lengths of allocations need not be multiples of 4, though those of copies must.
    let odd = queue.memory(7)?;
    queue.write_memory(odd, 0, &[1; 4])?;
    refused("past an odd end", queue.write_memory(odd, 4, &[1; 4]), DeviceMemoryError::OutOfRange)?;
    Ok(queue.free_memory(odd)?)
}

fn local_keys<R: Rig>(rig: &mut R) -> Result<()> {
    let head = rig.headers().udp(0, PORT, LONG);
    let queue = sender(rig)?;
    let memory = filled(queue, &pattern(LONG))?;
    let whole = queue.queues_mut().dm_register(memory, 0, LONG)?;
    let part = queue.queues_mut().dm_register(memory, 400, 800)?;
    queue.send_slices(&head, &[TxSlice { buffer: &whole, offset: 0, len: LONG }], TxOffload::default())?;
    let short = rig.headers().udp(0, PORT, 800);
    rig.sender()?.send_slices(&short, &[TxSlice { buffer: &part, offset: 0, len: 800 }], TxOffload::default())?;
    let received = payloads(rig)?;
    ensure!(received == [pattern(LONG), pattern(LONG)[400..].to_vec()], "{} frames, or other bytes", received.len());
    Ok(())
}

fn one_list<R: Rig>(rig: &mut R) -> Result<()> {
    use ringway_stack::device::TxBuffer as _;

    let gathers = rig.capabilities().gather_max > 1;
    let head = rig.headers().udp(0, PORT, LONG);
    let queue = sender(rig)?;
    let memory = filled(queue, &pattern(LONG))?;
    queue.send(&head, &pattern(LONG), TxOffload::default())?;
    queue.send_memory(&head, memory, 0, LONG, TxOffload::default())?;
    if gathers {
        let on_device = queue.queues_mut().dm_register(memory, 0, LONG)?;
        let mut on_host = queue.queues_mut().tx_alloc(100).context("a send buffer")?;
        on_host.write(0, &pattern(100));
        let list = [TxSlice { buffer: &on_host, offset: 0, len: 100 }, TxSlice { buffer: &on_device, offset: 100, len: LONG - 100 }];
        queue.send_slices(&head, &list, TxOffload::default())?;
    }
    let received = payloads(rig)?;
    ensure!(received.len() == 2 + usize::from(gathers), "{} frames", received.len());
    ensure!(received.iter().all(|payload| *payload == pattern(LONG)), "from different memory, different bytes");
    Ok(())
}

fn exhaustion<R: Rig>(rig: &mut R) -> Result<()> {
    let all = rig.capabilities().device_memory;
    let queue = rig.sender()?;
    refused("more than there is", queue.memory(all + 1), DeviceMemoryError::Full)?;
    let mut held = Vec::new();
    // On a card, each allocation may be rounded up: so many fit at most, and at least one does.
    let error = loop {
        match queue.memory(1_024) {
            Ok(memory) => held.push(memory),
            Err(error) => break error,
        }
        ensure!(held.len() <= all / 1_024, "{} KiB of {all} bytes", held.len());
    };
    ensure!(error == RawError::Memory(DeviceMemoryError::Full) || held.is_empty(), "{error}");
    let Some(one) = held.pop() else { return Err(error.into()) };
    queue.free_memory(one)?;
    held.push(queue.memory(1_024).context("what was freed a moment ago")?);
    for memory in held {
        queue.free_memory(memory)?;
    }
    let whole = queue.memory(all).context("all of it, after all was freed")?;
    Ok(queue.free_memory(whole)?)
}

fn nothing<R: Rig>(rig: &mut R) -> Result<()> {
    let queue = rig.sender()?;
    refused("no bytes", queue.memory(0), DeviceMemoryError::OutOfRange)
}

fn free_registered<R: Rig>(rig: &mut R) -> Result<()> {
    let queue = rig.sender()?;
    let memory = queue.memory(64)?;
    let key = queue.queues_mut().dm_register(memory, 0, 32)?;
    let another = key.clone();
    refused("with a key", queue.free_memory(memory), DeviceMemoryError::Busy)?;
    drop(key);
    refused("with a key's clone", queue.free_memory(memory), DeviceMemoryError::Busy)?;
    queue.write_memory(memory, 0, &[1; 64]).context("a refused free changes nothing")?;
    drop(another);
    Ok(queue.free_memory(memory)?)
}

fn free_in_flight<R: Rig>(rig: &mut R) -> Result<()> {
    let head = rig.headers().udp(0, PORT, LONG);
    let queue = sender(rig)?;
    let memory = filled(queue, &pattern(LONG))?;
    queue.send_memory(&head, memory, 0, LONG, TxOffload::default())?;
    refused("before the doorbell", queue.free_memory(memory), DeviceMemoryError::Busy)?;
    queue.flush();
    refused("behind the doorbell", queue.free_memory(memory), DeviceMemoryError::Busy)?;
    let received = payloads(rig)?;
    ensure!(received == [pattern(LONG)], "the frame: {} arrived", received.len());
    Ok(rig.sender()?.free_memory(memory)?)
}

fn use_after_free<R: Rig>(rig: &mut R) -> Result<()> {
    let head = rig.headers().udp(0, PORT, 64);
    let queue = sender(rig)?;
    let memory = queue.memory(64)?;
    queue.free_memory(memory)?;
    // Another one in its place does not bring the old name back.
    let next = queue.memory(64)?;
    ensure!(next != memory, "one name for two allocations");
    refused("copy in", queue.write_memory(memory, 0, &[1; 4]), DeviceMemoryError::Unknown)?;
    refused("copy out", queue.read_memory(memory, 0, &mut [1; 4]), DeviceMemoryError::Unknown)?;
    refused("send", queue.send_memory(&head, memory, 0, 64, TxOffload::default()), DeviceMemoryError::Unknown)?;
    refused("free", queue.free_memory(memory), DeviceMemoryError::Unknown)?;
    ensure!(payloads(rig)?.is_empty(), "a refused frame left");
    Ok(rig.sender()?.free_memory(next)?)
}

fn registered_range<R: Rig>(rig: &mut R) -> Result<()> {
    use ringway_stack::device::TxBuffer as _;

    let queue = rig.sender()?;
    let memory = filled(queue, &pattern(64))?;
    for (offset, len) in [(0, 64), (0, 1), (63, 1), (20, 30)] {
        let key = queue.queues_mut().dm_register(memory, offset, len)?;
        let mut out = vec![0; len];
        key.copy_to(0, &mut out);
        ensure!(key.capacity() == len && out == pattern(64)[offset..offset + len], "{len} bytes from {offset} on");
    }
    for (offset, len) in [(0, 65), (64, 1), (60, 8), (0, 0), (usize::MAX, 2)] {
        let key = queue.queues_mut().dm_register(memory, offset, len);
        refused(&format!("{len} bytes from {offset} on"), key.map_err(Into::into), DeviceMemoryError::OutOfRange)?;
    }
    Ok(queue.free_memory(memory)?)
}

fn in_and_out<R: Rig>(rig: &mut R) -> Result<()> {
    let queue = rig.sender()?;
    let (memory, neighbour) = (filled(queue, &[0xaa; 256])?, filled(queue, &[0xbb; 256])?);
    queue.write_memory(memory, 64, &pattern(128))?;
    let right = [&[0xaa; 64][..], &pattern(128), &[0xaa; 64]].concat();
    ensure!(contents(queue, memory, 256)? == right, "what was copied in, and nothing else");
    ensure!(contents(queue, neighbour, 256)? == [0xbb; 256], "the neighbour changed");
    let mut part = [0; 32];
    queue.read_memory(memory, 96, &mut part)?;
    ensure!(part[..] == right[96..128], "a part");
    Ok(())
}

fn not_under_a_frame<R: Rig>(rig: &mut R) -> Result<()> {
    let head = rig.headers().udp(0, PORT, LONG);
    let queue = sender(rig)?;
    let memory = filled(queue, &pattern(2 * LONG))?;
    queue.send_memory(&head, memory, 0, LONG, TxOffload::default())?;
    refused("its last bytes", queue.write_memory(memory, LONG - 4, &[0; 8]), DeviceMemoryError::Busy)?;
    queue.write_memory(memory, LONG, &[0; 8]).context("the bytes behind it are free")?;
    let received = payloads(rig)?;
    ensure!(received == [pattern(LONG)], "the frame: {} arrived", received.len());
    rig.sender()?.write_memory(memory, 0, &[0; 8]).context("it was sent: all are free")
}

fn send_again<R: Rig>(rig: &mut R) -> Result<()> {
    let head = rig.headers().udp(0, PORT, LONG);
    let queue = sender(rig)?;
    let memory = filled(queue, &pattern(LONG))?;
    let key = queue.queues_mut().dm_register(memory, 0, LONG)?;
    for round in 0u8..5 {
        let mut right = pattern(LONG);
        right[..4].fill(round);
        rig.sender()?.write_memory(memory, 0, &[round; 4])?;
        rig.sender()?.send_slices(&head, &[TxSlice { buffer: &key, offset: 0, len: LONG }], TxOffload::default())?;
        let received = payloads(rig)?;
        ensure!(received == [right], "round {round}: {} frames, or other bytes", received.len());
    }
    Ok(())
}

fn unaligned_offset<R: Rig>(rig: &mut R) -> Result<()> {
    let queue = rig.sender()?;
    let memory = filled(queue, &pattern(64))?;
    for offset in (0..40).filter(|offset| offset % DEVICE_MEMORY_ALIGN != 0) {
        let what = format!("offset {offset}");
        refused(&what, queue.write_memory(memory, offset, &[0; 4]), DeviceMemoryError::Unaligned)?;
        refused(&what, queue.read_memory(memory, offset, &mut [0; 4]), DeviceMemoryError::Unaligned)?;
    }
    ensure!(contents(queue, memory, 64)? == pattern(64), "a refused copy changed something");
    Ok(())
}

fn unaligned_length<R: Rig>(rig: &mut R) -> Result<()> {
    let queue = rig.sender()?;
    let memory = filled(queue, &pattern(64))?;
    for len in (0..40).filter(|len| len % DEVICE_MEMORY_ALIGN != 0) {
        let what = format!("{len} bytes");
        refused(&what, queue.write_memory(memory, 0, &vec![0; len]), DeviceMemoryError::Unaligned)?;
        refused(&what, queue.read_memory(memory, 0, &mut vec![0; len]), DeviceMemoryError::Unaligned)?;
    }
    ensure!(contents(queue, memory, 64)? == pattern(64), "a refused copy changed something");
    Ok(())
}

/// The whole packet lies in device memory. (Of its headers, the contract wants Ethernet's in the send call, since devices look at them.)
fn follow_the_example<R: Rig>(rig: &mut R) -> Result<()> {
    const PACKET: usize = UDP_HEAD + 602;
    const ETHERNET: usize = 14;
    let packet = [rig.headers().udp(0, PORT, 602), pattern(602)].concat();
    let queue = sender(rig)?;
    let memory = queue.memory(PACKET)?;
    let key = queue.queues_mut().dm_register(memory, ETHERNET, PACKET - ETHERNET)?;
    queue.write_memory(memory, 0, &packet)?;
    queue.send_slices(&packet[..ETHERNET], &[TxSlice { buffer: &key, offset: 0, len: PACKET - ETHERNET }], TxOffload::default())?;
    let received = rig.exchange(A_WHILE)?;
    ensure!(received.len() == 1 && received[0].bytes == packet, "{} frames, or other bytes", received.len());
    drop(key);
    Ok(rig.sender()?.free_memory(memory)?)
}

fn any_registration<R: Rig>(rig: &mut R) -> Result<()> {
    let head = rig.headers().udp(0, PORT, 100);
    let queue = sender(rig)?;
    let memory = filled(queue, &pattern(256))?;
    let offsets = [0, 1, 2, 3, 4, 17, 100, 156];
    for offset in offsets {
        rig.sender()?.send_memory(&head, memory, offset, 100, TxOffload::default())?;
    }
    let received = payloads(rig)?;
    ensure!(received.len() == offsets.len(), "{} of {} frames", received.len(), offsets.len());
    for (offset, payload) in offsets.into_iter().zip(received) {
        ensure!(payload == pattern(256)[offset..offset + 100], "from {offset} on");
    }
    Ok(())
}

fn every_copy_offset<R: Rig>(rig: &mut R) -> Result<()> {
    const LEN: usize = 128;
    let queue = rig.sender()?;
    let memory = filled(queue, &[0; LEN])?;
    for offset in (0..LEN).step_by(DEVICE_MEMORY_ALIGN) {
        queue.write_memory(memory, offset, &pattern(LEN)[offset..offset + 4])?;
        let mut out = [0; 4];
        queue.read_memory(memory, offset, &mut out)?;
        ensure!(out[..] == pattern(LEN)[offset..offset + 4], "offset {offset}");
    }
    ensure!(contents(queue, memory, LEN)? == pattern(LEN), "put together");
    for (offset, len) in [(LEN, 4), (LEN - 4, 8), (0, LEN + 4), (usize::MAX - 3, 4)] {
        let what = format!("{len} bytes at {offset}");
        refused(&what, queue.write_memory(memory, offset, &vec![0; len]), DeviceMemoryError::OutOfRange)?;
        refused(&what, queue.read_memory(memory, offset, &mut vec![0; len]), DeviceMemoryError::OutOfRange)?;
    }
    ensure!(contents(queue, memory, LEN)? == pattern(LEN), "a refused copy changed something");
    Ok(())
}

fn packets_of_one_buffer<R: Rig>(rig: &mut R) -> Result<()> {
    const LEN: usize = 300;
    let head = rig.headers().udp(0, PORT, LEN);
    let queue = sender(rig)?;
    let memory = queue.memory(4 * LEN)?;
    for (place, byte) in [(2, b'c'), (0, b'a'), (3, b'd'), (1, b'b')] {
        queue.write_memory(memory, place * LEN, &[byte; LEN])?;
    }
    for place in [3, 0, 2, 1] {
        queue.send_memory(&head, memory, place * LEN, LEN, TxOffload::default())?;
    }
    let received = payloads(rig)?;
    ensure!(received == [[b'd'; LEN], [b'a'; LEN], [b'c'; LEN], [b'b'; LEN]], "{} frames, or other bytes", received.len());
    Ok(())
}
