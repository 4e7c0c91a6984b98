//! Sends that carry a cookie, and what becomes of them.

use core::time::Duration;

use super::*;
use ringway_stack::device::{Completion, DeviceEvent, SendStatus, TimeSource};

fn frame() -> Vec<u8> {
    frames::experimental(frames::mac(1), frames::mac(0), &[1; 100])
}

fn send_with(device: &mut SimQueues, cookie: u64) -> Result<(), SendError> {
    device.send_with_cookie(&TxFrame { head: &frame(), body: &[], offload: TxOffload::default() }, cookie)
}

/// What is told now.
fn told(device: &mut SimQueues) -> Vec<Completion> {
    device.reap();
    core::iter::from_fn(|| device.completion()).collect()
}

fn cookies(device: &mut SimQueues) -> Vec<u64> {
    told(device).iter().map(|completion| completion.cookie).collect()
}

/// Sends with these cookies, which are read at `now` and have left a microsecond later.
fn sent(nic: &Nic, device: &mut SimQueues, cookies: &[u64], now: Instant) {
    cookies.iter().for_each(|&cookie| send_with(device, cookie).unwrap());
    device.doorbell();
    while nic.transmit(now).is_some() {
        nic.leaves(now + Duration::from_micros(1));
    }
}

fn troubled(fault: NicFault) -> (Nic, SimQueues) {
    let mut faults = NicFaults::default();
    *faults.strength_mut(fault) = Strength { ppm: 1_000_000, lasts_max: Duration::from_millis(1) };
    let nic = Nic::seeded(frames::mac(0), NicConfig { faults, ..NicConfig::default() }, 7, 0);
    let device = nic.ring();
    (nic, device)
}

#[test]
fn a_cookie_comes_back_with_the_time_at_which_its_frame_left() {
    for (hardware_time, source, time) in [(true, TimeSource::Hardware, 6_000), (false, TimeSource::Software, 5_000)] {
        let nic = nic(NicConfig { hardware_time, ..NicConfig::default() });
        let mut device = nic.ring();
        assert_eq!((device.capabilities().completions, device.capabilities().completion_time), (true, Some(source)));
        nic.advance(at(5_000));
        sent(&nic, &mut device, &[7, 0, u64::MAX], at(5_000));
        assert_eq!(told(&mut device), [], "nothing has left yet");
        nic.settle(at(6_000));
        let completion = |cookie| Completion { cookie, at: Some(at(time)), status: SendStatus::Sent };
        assert_eq!(told(&mut device), [completion(7), completion(u64::MAX)], "and nothing of the one without");
        assert_eq!(told(&mut device), []);
        assert_eq!(nic.outstanding(), Outstanding::default());
    }
}

#[test]
fn a_frame_that_is_cut_completes_once_with_its_last_segment() {
    let nic = nic(NicConfig::full());
    let mut device = nic.ring();
    let tcp = frames::Tcp { seq: 1, flags: 0x10, timestamp: None };
    let head = frames::tcp(address("10.0.0.1:80"), address("10.0.0.2:9"), tcp, &[]);
    let mut buffer = device.tx_alloc(3000).unwrap();
    buffer.write(0, &[3; 3000]);
    let body = [TxSlice { buffer: &buffer, offset: 0, len: 3000 }];
    let offload = TxOffload { checksum: true, tso_mss: Some(1000), ..TxOffload::default() };
    device.send_with_cookie(&TxFrame { head: &head, body: &body, offload }, 9).unwrap();
    device.doorbell();
    assert_eq!(leaving(&nic, Instant::ZERO).len(), 3);
    let when: Vec<_> = (0..3).map(|_| (nic.complete(), cookies(&mut device)).1).collect();
    assert_eq!(when, [vec![], vec![], vec![9]]);
}

#[test]
fn a_dummy_completes_too() {
    let nic = nic(NicConfig::default());
    let mut device = nic.ring();
    let offload = TxOffload { dummy: true, ..TxOffload::default() };
    device.send_with_cookie(&TxFrame { head: &frame(), body: &[], offload }, 5).unwrap();
    device.doorbell();
    assert!(leaving(&nic, at(3)).is_empty());
    assert_eq!(told(&mut device), [Completion { cookie: 5, at: Some(at(3)), status: SendStatus::Sent }]);
}

#[test]
fn a_nic_without_completions_refuses_cookies_and_sends_nothing() {
    let nic = nic(NicConfig::bare());
    let mut device = nic.ring();
    assert_eq!((device.capabilities().completions, device.capabilities().completion_time), (false, None));
    let refused = send_with(&mut device, 1).unwrap_err();
    assert_eq!(refused, device.capabilities().lacks("completions of sends").into());
    assert_eq!(send_with(&mut device, 0), Ok(()));
    device.doorbell();
    assert_eq!(leaving(&nic, Instant::ZERO).len(), 1);
}

#[test]
fn who_takes_no_completions_cannot_ask_for_more_and_may_send_on_without() {
    let nic = nic(NicConfig { tx_queue_max: 3, ..NicConfig::default() });
    let mut device = nic.ring();
    for round in 0..3 {
        sent(&nic, &mut device, &[1 + round], Instant::ZERO);
        nic.settle(at(1_000));
        device.reap();
    }
    assert_eq!(send_with(&mut device, 4), Err(SendError::Full));
    assert_eq!(send_with(&mut device, 0), Ok(()));
    device.doorbell();
    assert_eq!(cookies(&mut device), [1, 2, 3]);
    assert_eq!(send_with(&mut device, 4), Ok(()));
    device.doorbell();
}

#[test]
fn an_error_is_told_and_so_is_what_was_flushed_behind_it() {
    let (nic, mut device) = troubled(NicFault::SendError);
    sent(&nic, &mut device, &[1], Instant::ZERO);
    nic.trouble_off();
    sent(&nic, &mut device, &[2], Instant::ZERO);
    let unsent = |cookie, status| Completion { cookie, at: None, status };
    assert_eq!(told(&mut device), [unsent(1, SendStatus::Failed), unsent(2, SendStatus::Flushed)]);
    let until = nic.next_at().unwrap();
    nic.advance(until);
    sent(&nic, &mut device, &[3], until);
    nic.settle(at(2_000_000));
    assert_eq!(cookies(&mut device), [3]);
}

#[test]
fn a_late_completion_holds_up_those_behind_it_and_their_buffers() {
    let (nic, mut device) = troubled(NicFault::Completion);
    sent(&nic, &mut device, &[1], Instant::ZERO);
    assert!(!nic.settle(at(1_000)));
    assert_eq!(nic.take_strikes().into_iter().map(|strike| strike.fault).collect::<Vec<_>>(), [NicFault::Completion]);
    nic.trouble_off();
    sent(&nic, &mut device, &[2], at(1_000));
    nic.settle(at(2_000));
    assert_eq!((cookies(&mut device), nic.outstanding().tx_frames), (vec![], 2));
    let until = nic.next_at().unwrap();
    assert!(until > at(1_000) && until <= at(1_001_001), "{until:?}");
    nic.advance(until);
    let times: Vec<_> = told(&mut device).iter().map(|completion| (completion.cookie, completion.at)).collect();
    assert_eq!(times, [(1, Some(at(1_000))), (2, Some(at(2_000)))], "the times are those of leaving");
    assert_eq!(nic.outstanding(), Outstanding::default());
}

#[test]
fn whoever_found_the_queue_full_of_late_completions_is_woken() {
    let mut faults = NicFaults::default();
    *faults.strength_mut(NicFault::Completion) = Strength { ppm: 1_000_000, lasts_max: Duration::from_millis(1) };
    let nic = Nic::seeded(frames::mac(0), NicConfig { faults, tx_queue_max: 1, ..NicConfig::default() }, 7, 0);
    let mut device = nic.ring();
    sent(&nic, &mut device, &[1], Instant::ZERO);
    nic.settle(at(1_000));
    device.reap();
    assert_eq!(send_with(&mut device, 2), Err(SendError::Full));
    let until = nic.next_at().unwrap();
    assert!(nic.advance(until), "someone was refused");
    assert_eq!(cookies(&mut device), [1]);
    assert_eq!(send_with(&mut device, 2), Ok(()));
    device.doorbell();
}

#[test]
fn cookies_are_lost_with_a_reset_and_none_goes_between_it_and_its_news() {
    for fault in [NicFault::Reset, NicFault::CqOverrun] {
        let (nic, mut device) = troubled(fault);
        nic.set_faults(false);
        // One that was told of, one to be reaped, one on the wire, one that waits for its doorbell to be heard.
        sent(&nic, &mut device, &[1], Instant::ZERO);
        nic.settle(at(1_000));
        device.reap();
        sent(&nic, &mut device, &[2], at(1_000));
        nic.settle(at(2_000));
        sent(&nic, &mut device, &[3], at(2_000));
        send_with(&mut device, 4).unwrap();
        device.doorbell();
        nic.set_faults(true);
        assert_eq!(nic.receive(at(2_000), &frame().into()).outcome, Err(RxDrop::Down));
        nic.trouble_off();
        let until = at(2_000_000);
        nic.advance(until);
        while nic.transmit(until).is_some() {
            nic.leaves(until);
        }
        nic.settle(until + Duration::from_millis(1));
        assert!(cookies(&mut device).is_empty(), "{fault:?}");
        assert_eq!(send_with(&mut device, 5), Err(SendError::Full), "it would be taken for lost");
        assert_eq!(device.poll_event(), Some(DeviceEvent::Reset));
        sent(&nic, &mut device, &[6], until);
        nic.settle(until + Duration::from_millis(2));
        assert_eq!(cookies(&mut device), [6], "{fault:?}");
    }
}

#[test]
fn another_owner_of_a_ring_hears_nothing_of_the_first_ones_cookies() {
    let nic = nic(NicConfig::default());
    let mut device = nic.ring();
    sent(&nic, &mut device, &[1], Instant::ZERO);
    nic.settle(at(1_000));
    device.reap();
    sent(&nic, &mut device, &[2], at(1_000));
    drop(device);
    let mut device = nic.ring();
    nic.settle(at(3_000));
    assert!(cookies(&mut device).is_empty());
}
