use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{
    ChecksumVerdict, FlowRule, Protocol, Queues, RuleError, RuleId, RxBatch, RxBuffer, RxMeta, SendError, TxBuffer, TxFrame, TxOffload,
    TxSlice,
};

use super::*;
use crate::frames;

mod completions;
mod cyclic;
mod faults;
mod heads;
mod memory;
mod rates;
mod receive;
mod ring;
mod send;
mod steering;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn nic(config: NicConfig) -> Nic {
    Nic::new(frames::mac(0), config)
}

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn receive(nic: &Nic, bytes: &[u8]) -> Reception {
    nic.receive(Instant::ZERO, &Rc::from(bytes))
}

/// The frames that a ring has for its driver, whole.
fn poll(device: &mut SimQueues) -> Vec<(Vec<u8>, RxMeta)> {
    let mut batch = RxBatch::new(64);
    device.poll_rx(Instant::ZERO, &mut batch);
    batch.frames_mut().iter().map(|frame| (frame.to_vec(), frame.meta)).collect()
}

/// Queues `head` and `payload`, rings the doorbell, and gives what leaves now.
fn send(device: &mut SimQueues, head: &[u8], payload: &[u8], offload: TxOffload) -> Result<Vec<Rc<[u8]>>, SendError> {
    let mut buffers = Vec::new();
    for part in payload.chunks(2048) {
        let mut buffer = device.tx_alloc(part.len()).unwrap();
        buffer.write(0, part);
        buffers.push((buffer, part.len()));
    }
    let body: Vec<_> = buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len }).collect();
    device.send(&TxFrame { head, body: &body, offload })?;
    device.doorbell();
    Ok(leaving(device.nic(), Instant::ZERO))
}

fn leaving(nic: &Nic, now: Instant) -> Vec<Rc<[u8]>> {
    core::iter::from_fn(|| nic.transmit(now)).collect()
}

/// Which rings got a frame.
fn who(devices: &mut [SimQueues]) -> Vec<usize> {
    (0..devices.len()).filter(|&i| !poll(&mut devices[i]).is_empty()).collect()
}
