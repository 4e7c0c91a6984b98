use super::*;
use crate::frames;
use ringway_stack::device::HEAD_MAX;
use ringway_stack::device::{RxBuffer, TxBuffer, TxOffload, TxSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn device(config: NicConfig) -> SimQueues {
    SimQueues::new(frames::mac(0), config)
}

fn receive(device: &SimQueues, bytes: &Rc<[u8]>) -> Result<(), RxDrop> {
    device.nic().receive(Instant::ZERO, bytes).outcome
}

fn head() -> Vec<u8> {
    frames::experimental(frames::mac(1), frames::mac(0), &[])
}

fn send(device: &mut SimQueues, body: &[TxSlice<'_, SimTx>]) -> Result<(), SendError> {
    device.send(&TxFrame { head: &head(), body, offload: TxOffload::default() })
}

#[test]
fn a_large_frame_holds_its_buffer_until_it_is_reaped() {
    let mut device = device(NicConfig { inline_max: 100, ..NicConfig::default() });
    let mut buffer = device.tx_alloc(500).unwrap();
    buffer.write(0, &[9; 500]);
    send(&mut device, &[TxSlice { buffer: &buffer, offset: 0, len: 500 }]).unwrap();
    drop(buffer);
    assert!(device.nic().transmit(Instant::ZERO).is_none(), "nothing moves before the doorbell");
    device.doorbell();
    let bytes = device.nic().transmit(Instant::ZERO).unwrap();
    assert_eq!(bytes[..], [head(), vec![9; 500]].concat());
    assert_eq!(device.outstanding().tx_buffers, 1);
    device.nic().complete();
    assert_eq!(device.outstanding().tx_buffers, 1);
    device.reap();
    assert_eq!(device.outstanding(), Outstanding::default());
}

#[test]
fn an_inline_frame_holds_nothing_and_is_padded() {
    let mut device = device(NicConfig::default());
    let mut buffer = device.tx_alloc(1).unwrap();
    buffer.write(0, b"abc");
    send(&mut device, &[TxSlice { buffer: &buffer, offset: 1, len: 2 }]).unwrap();
    drop(buffer);
    assert_eq!(device.outstanding().tx_buffers, 0);
    device.doorbell();
    let bytes = device.nic().transmit(Instant::ZERO).unwrap();
    assert_eq!(bytes.len(), 60);
    assert_eq!(bytes[14..18], *b"bc\0\0");
}

#[test]
fn limits_are_enforced() {
    let mut device = device(NicConfig { tx_queue_max: 1, tx_buffers_max: 1, gather_max: 1, mtu: 100, ..NicConfig::default() });
    let buffer = device.tx_alloc(10).unwrap();
    assert!(device.tx_alloc(10).is_none());
    let slice = |len| TxSlice { buffer: &buffer, offset: 0, len };
    assert_eq!(send(&mut device, &[slice(101)]), Err(SendError::TooLong));
    assert_eq!(send(&mut device, &[slice(1), slice(1)]), Err(SendError::TooLong));
    assert_eq!(send(&mut device, &[slice(100)]), Ok(()));
    assert_eq!(send(&mut device, &[]), Err(SendError::Full));
    device.doorbell();
    device.nic().transmit(Instant::ZERO).unwrap();
    assert!(device.nic().complete(), "someone was refused, and waits");
}

#[test]
fn a_long_frame_is_held_whole_behind_its_head() {
    let mut device = device(NicConfig { rx_queue_max: 2, rx_buffers_max: 1, ..NicConfig::default() });
    let long: Rc<[u8]> = (0..=255).cycle().take(300).collect::<Vec<u8>>().into();
    assert_eq!(receive(&device, &long), Ok(()));
    assert_eq!(receive(&device, &long), Err(RxDrop::NoBuffer));
    assert_eq!(receive(&device, &long[..HEAD_MAX].into()), Ok(()));
    assert_eq!(receive(&device, &long[..20].into()), Err(RxDrop::QueueFull));

    let mut batch = RxBatch::new(8);
    assert_eq!(device.poll_rx(Instant::ZERO, &mut batch), 2);
    let [first, second] = batch.frames_mut() else { panic!("two frames") };
    assert_eq!((first.head(), first.len()), (&long[..HEAD_MAX], 300));
    assert!(second.held_from(0).is_none());
    let part = first.held_from(HEAD_MAX).unwrap().slice(4, 8);
    let mut copied = [0; 8];
    part.copy_to(0, &mut copied);
    assert_eq!(copied, long[HEAD_MAX + 4..HEAD_MAX + 12]);
    batch.clear();
    assert_eq!(device.outstanding().rx_buffers, 1);
    drop(part);
    assert_eq!(device.outstanding(), Outstanding::default());
}

#[test]
fn checksums_are_the_nics_if_it_can() {
    let mut frame = frames::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap(), b"payload");
    let summed = frame.clone();
    frame[24..26].fill(0xee);
    frame[40..42].fill(0xee);
    let mut device = device(NicConfig::default());
    device.send(&TxFrame { head: &frame, body: &[], offload: TxOffload { checksum: true, ..TxOffload::default() } }).unwrap();
    device.doorbell();
    assert_eq!(device.nic().transmit(Instant::ZERO).unwrap()[..summed.len()], summed);

    let mut batch = RxBatch::new(2);
    for bytes in [summed, frame] {
        receive(&device, &Rc::from(bytes)).unwrap();
    }
    device.poll_rx(Instant::ZERO, &mut batch);
    let verdicts: Vec<_> = batch.frames_mut().iter().map(|f| f.meta.checksum).collect();
    assert_eq!(verdicts, [ChecksumVerdict::Good, ChecksumVerdict::Bad]);
}

#[test]
fn breaches_of_the_contract_panic() {
    let breach = |what: fn(&mut SimQueues)| {
        let mut device = device(NicConfig { tx_checksum: false, ..NicConfig::default() });
        catch_unwind(AssertUnwindSafe(|| what(&mut device))).is_err()
    };
    assert!(breach(|device| {
        let mut buffer = device.tx_alloc(100).unwrap();
        send(device, &[TxSlice { buffer: &buffer, offset: 10, len: 10 }]).unwrap();
        buffer.write(19, &[1]);
    }));
    assert!(!breach(|device| {
        let mut buffer = device.tx_alloc(100).unwrap();
        send(device, &[TxSlice { buffer: &buffer, offset: 10, len: 10 }]).unwrap();
        buffer.write(20, &[1]);
        buffer.write(0, &[1; 10]);
    }));
    assert!(breach(|device| {
        send(device, &[]).unwrap();
        device.nic().check_doorbells();
    }));
    assert!(breach(|device| device.device().detach(RuleId(1))));
}

#[test]
fn rules_are_counted_and_taken_once() {
    use ringway_stack::device::Protocol;
    let device = device(NicConfig { rules_max: 1, ..NicConfig::default() });
    let rule = FlowRule::flow(Protocol::Tcp, "10.0.0.1:80".parse().unwrap(), None);
    let id = device.steer(&rule).unwrap();
    assert_eq!(device.steer(&rule), Err(RuleError::Taken));
    assert_eq!(device.steer(&FlowRule::flow(Protocol::Udp, "10.0.0.1:80".parse().unwrap(), None)), Err(RuleError::Full));
    device.device().detach(id.rule);
    assert_eq!(device.outstanding(), Outstanding::default());
}
