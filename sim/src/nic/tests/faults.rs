use super::*;
use crate::faults::FaultSet;
use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::device::{DeviceEvent, Protocol};

/// A NIC on which one class always strikes, for exactly a time of up to a millisecond.
fn troubled(fault: NicFault) -> Nic {
    let mut faults = NicFaults::default();
    *faults.strength_mut(fault) = Strength { ppm: 1_000_000, lasts_max: Duration::from_millis(1) };
    Nic::seeded(frames::mac(0), NicConfig { faults, inline_max: 0, ..NicConfig::default() }, 7, 0)
}

fn frame() -> Vec<u8> {
    frames::experimental(frames::mac(0), frames::mac(1), &[1; 500])
}

fn try_send(device: &mut SimQueues) -> Result<usize, SendError> {
    let head = frames::experimental(frames::mac(1), frames::mac(0), &[]);
    send(device, &head, &[1; 100], TxOffload::default()).map(|frames| frames.len())
}

/// Ends a condition, and gives when that was.
fn end(nic: &Nic) -> Instant {
    let until = nic.next_at().expect("a condition lasts");
    assert!(until > Instant::ZERO && until <= at(1_000_001), "{until:?}");
    assert!(!nic.advance(at(until.as_nanos() - 1)), "it isn't over");
    until
}

fn struck(nic: &Nic) -> Vec<NicFault> {
    nic.take_strikes().into_iter().map(|strike| strike.fault).collect()
}

#[test]
fn a_reset_loses_what_was_queued_and_tells_when_it_is_over() {
    let nic = troubled(NicFault::Reset);
    let mut device = nic.ring();
    let rule = device.steer(&FlowRule::any()).unwrap();
    nic.set_faults(false);
    receive(&nic, &frame()).outcome.unwrap();
    let mut buffer = device.tx_alloc(100).unwrap();
    buffer.write(0, &[1; 100]);
    let body = [TxSlice { buffer: &buffer, offset: 0, len: 100 }];
    device.send(&TxFrame { head: &frame()[..14], body: &body, offload: TxOffload::default() }).unwrap();
    device.doorbell();
    drop(buffer);
    nic.set_faults(true);
    assert_eq!(receive(&nic, &frame()).outcome, Err(RxDrop::Down));
    assert_eq!(struck(&nic), [NicFault::Reset]);
    assert!(leaving(&nic, Instant::ZERO).is_empty() && poll(&mut device).is_empty());
    device.reap();
    assert_eq!(nic.outstanding(), Outstanding { rules: 1, ..Outstanding::default() }, "buffers are back, rules stay");
    assert_eq!(receive(&nic, &frame()).outcome, Err(RxDrop::Down));
    assert_eq!(try_send(&mut device), Err(SendError::Full));
    let until = end(&nic);
    assert_eq!(device.poll_event(), None);
    assert!(nic.advance(until), "its driver is woken");
    assert!(device.rx_ready());
    assert_eq!(device.poll_event(), Some(DeviceEvent::Reset));
    nic.set_faults(false);
    receive(&nic, &frame()).outcome.unwrap();
    assert_eq!(try_send(&mut device), Ok(1));
    device.device().detach(rule.rule);
}

#[test]
fn a_send_error_flushes_until_the_queue_has_recovered() {
    let nic = troubled(NicFault::SendError);
    let mut device = nic.ring();
    assert_eq!(try_send(&mut device), Ok(0), "it vanished");
    assert_eq!(struck(&nic), [NicFault::SendError]);
    device.reap();
    assert_eq!(nic.outstanding(), Outstanding::default(), "its buffer is back");
    let until = end(&nic);
    nic.trouble_off();
    assert_eq!(try_send(&mut device), Ok(0), "those behind it are flushed");
    nic.advance(until);
    assert_eq!(try_send(&mut device), Ok(1));
}

#[test]
fn an_overrun_loses_what_was_received() {
    let nic = troubled(NicFault::CqOverrun);
    let mut device = nic.ring();
    nic.set_faults(false);
    receive(&nic, &frame()).outcome.unwrap();
    nic.set_faults(true);
    assert_eq!(receive(&nic, &frame()).outcome, Err(RxDrop::Down));
    assert!(poll(&mut device).is_empty());
    let until = end(&nic);
    assert!(nic.advance(until));
    assert_eq!(device.poll_event(), Some(DeviceEvent::Reset));
    nic.set_faults(false);
    receive(&nic, &frame()).outcome.unwrap();
    assert_eq!(struck(&nic), [NicFault::CqOverrun]);
}

#[test]
fn without_receive_buffers_frames_are_dropped_for_a_time() {
    let nic = troubled(NicFault::RxExhausted);
    let mut device = nic.ring();
    assert_eq!(receive(&nic, &frame()).outcome, Err(RxDrop::NoBuffer));
    let until = end(&nic);
    nic.trouble_off();
    assert_eq!(receive(&nic, &frame()).outcome, Err(RxDrop::NoBuffer));
    nic.advance(until);
    nic.receive(until, &frame().into()).outcome.unwrap();
    assert_eq!(poll(&mut device).len(), 1);
}

#[test]
fn whoever_found_the_send_queue_full_is_woken() {
    let nic = troubled(NicFault::SendFull);
    let mut device = nic.ring();
    assert_eq!(try_send(&mut device), Err(SendError::Full));
    let until = end(&nic);
    assert!(nic.advance(until), "someone was refused");
    nic.trouble_off();
    assert_eq!(try_send(&mut device), Ok(1));
}

#[test]
fn whoever_got_no_buffer_or_rule_is_woken() {
    for attaches in [false, true] {
        let nic = troubled(NicFault::Registration);
        let mut device = nic.ring();
        if attaches {
            assert_eq!(device.steer(&FlowRule::any()), Err(RuleError::Full));
        } else {
            assert!(device.tx_alloc(1).is_none());
        }
        let until = end(&nic);
        assert!(nic.advance(until));
        nic.trouble_off();
        device.steer(&FlowRule::any()).unwrap();
        assert!(device.tx_alloc(1).is_some());
    }
}

#[test]
fn connections_whose_rule_fails_late_are_known() {
    let mut faults = NicFaults::default();
    *faults.strength_mut(NicFault::Registration) = Strength { ppm: 1_000_000, lasts_max: Duration::from_millis(1) };
    let rule_delay = Duration::from_micros(1);
    let nic = Nic::seeded(frames::mac(0), NicConfig { faults, rule_delay, ..NicConfig::default() }, 7, 0);
    let device = nic.ring();
    nic.set_faults(false);
    let (local, peer) = (SocketAddr::from(([10, 0, 0, 1], 80)), SocketAddr::from(([10, 0, 0, 2], 1024)));
    for rule in [FlowRule::flow(Protocol::Tcp, local, None), FlowRule::flow(Protocol::Udp, local, Some(peer))] {
        device.steer(&rule).unwrap();
    }
    device.steer(&FlowRule::flow(Protocol::Tcp, local, Some(peer))).unwrap();
    nic.set_faults(true);
    assert!(device.take_unsteered().is_empty());
    nic.advance(at(1000));
    assert_eq!(device.take_unsteered(), [(local, peer)]);
    assert!(device.take_unsteered().is_empty());
}

#[test]
fn a_late_doorbell_is_late_and_in_order() {
    let nic = troubled(NicFault::Doorbell);
    let mut device = nic.ring();
    assert_eq!(try_send(&mut device), Ok(0));
    nic.trouble_off();
    assert_eq!(try_send(&mut device), Ok(0), "nothing overtakes");
    let until = end(&nic);
    assert_eq!(leaving(&nic, until).len(), 2);
}

#[test]
fn faults_that_are_switched_off_end_at_once() {
    for fault in [NicFault::RxExhausted, NicFault::Reset] {
        let nic = troubled(fault);
        let _device = nic.ring();
        receive(&nic, &frame()).outcome.unwrap_err();
        nic.set_faults(false);
        nic.advance(Instant::ZERO);
        receive(&nic, &frame()).outcome.unwrap();
        assert_eq!(nic.next_at(), None, "{fault:?}");
    }
}

#[test]
fn classes_are_chosen_by_their_bits() {
    let mut faults = NicFaults::default();
    for fault in NicFault::ALL {
        faults.strength_mut(fault).ppm = 5;
    }
    for fault in NicFault::ALL {
        let kept = faults.only(fault.class());
        let mut expected = NicFaults::default();
        expected.strength_mut(fault).ppm = 5;
        assert_eq!(kept, expected);
    }
    assert_eq!(faults.only(FaultSet::LOSS), NicFaults::default());
}

#[test]
fn a_class_takes_nothing_from_another_ones_stream() {
    let story = |also: Option<NicFault>| {
        let rx_exhausted = Strength { ppm: 300_000, lasts_max: Duration::from_nanos(1) };
        let mut faults = NicFaults { rx_exhausted, ..NicFaults::default() };
        if let Some(also) = also {
            faults.strength_mut(also).ppm = 500_000;
        }
        let nic = Nic::seeded(frames::mac(0), NicConfig { faults, ..NicConfig::default() }, 7, 0);
        let mut device = nic.ring();
        let mut exhausted = Vec::new();
        for i in 0..200 {
            nic.advance(at(10 * i));
            nic.receive(at(10 * i), &frame().into());
            let _ = try_send(&mut device);
            device.reap();
            exhausted.extend(struck(&nic).contains(&NicFault::RxExhausted).then_some(i));
            poll(&mut device);
        }
        exhausted
    };
    let alone = story(None);
    assert!((30..=90).contains(&alone.len()), "{}", alone.len());
    for also in [NicFault::SendError, NicFault::SendFull, NicFault::Doorbell, NicFault::CqOverrun] {
        assert_eq!(story(Some(also)), alone, "{also:?}");
    }
}
