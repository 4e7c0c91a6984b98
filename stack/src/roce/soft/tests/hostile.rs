//! A neighbour that sends frames of any kind: bytes at random, and those of a real session that are changed and have a good CRC.

use proptest::prelude::*;

use super::*;
use crate::roce::packet::icrc;

/// What B has besides what it told A of.
struct Victim {
    switch: Switch,
    now: Instant,
    b: Machine,
    canary: u32,
    advertised: End,
    /// What A sent to B.
    session: Vec<Vec<u8>>,
}

fn victim(bytes_are_vouched: bool) -> Victim {
    let switch = Switch::new(100_000);
    let (mut a, mut b) = (machine_that(&switch, 1, bytes_are_vouched), machine_that(&switch, 2, bytes_are_vouched));
    let mut now = Instant::ZERO;
    // (B's node gets them all the same: they are delivered again.)
    let mut session = Vec::new();
    let (of_a, of_b, ids) = connect(&mut now, &mut a, &mut b, 2);
    let asking = end(&mut a);
    a.node_mut().resolve(TO, gid(2));
    a.node_mut().connect(now, asking.qp, "0.0.0.0:0".parse().unwrap(), TO, b"ask").unwrap();
    write(now, &mut a, &of_a, &of_b, 20_000);
    a.node_mut().post_send(now, of_a.qp, &SendWr::new(2, SendOp::Send { immediate: Some(7) }, Data::Inline(b"hello"))).unwrap();
    a.node_mut().destroy(now, ids[0]);
    a.transmit(now);
    session.extend(switch.take(2));
    let pd = Messages::alloc_pd(b.node_mut());
    let canary = Messages::register(b.node_mut(), pd, vec![0x5a; 4096], Access::all()).unwrap().key;
    Victim { switch, now, b, canary, advertised: of_b, session }
}

/// Makes a frame's CRC good again.
fn with_good_crc(frame: &mut [u8]) {
    let packet = &mut frame[ethernet::LEN..];
    if let Some(at) = packet.len().checked_sub(icrc::LEN)
        && let Some(crc) = icrc::compute(&packet[..at], ipv6::LEN)
    {
        packet[at..].copy_from_slice(&crc);
    }
}

impl Victim {
    fn check(&mut self) {
        let now = self.now;
        run(&mut self.now, Duration::from_millis(100), &mut [&mut self.b]);
        assert!(self.now > now);
        assert!(Messages::memory(self.b.node(), self.canary).unwrap().iter().all(|byte| *byte == 0x5a));
        assert_eq!(Messages::memory(self.b.node(), self.advertised.region.key).unwrap().len(), 20_000);
        // What nobody takes is bounded.
        let waiting: usize = self.b.waiting.values().map(|waiting| waiting.frames.len()).sum();
        assert!(waiting <= WAITING_MAX && self.b.ways.known() <= 2);
        let events = core::iter::from_fn(|| self.b.node_mut().poll_connection()).count();
        assert!(events <= 8 + 1, "the backlog, and the end of what there was: {events}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn changed_frames(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..40),
        is_vouched: bool,
    ) {
        let mut victim = victim(is_vouched);
        for (which, at, byte, is_headers) in changes {
            let mut frame = victim.session[which.index(victim.session.len())].clone();
            let len = if is_headers { frame.len().min(HEAD + 32) } else { frame.len() };
            frame[ethernet::LEN + at.index(len - ethernet::LEN)] = byte;
            with_good_crc(&mut frame);
            victim.switch.deliver(1, 2, frame);
            run(&mut victim.now, Duration::ZERO, &mut [&mut victim.b]);
        }
        victim.check();
    }

    #[test]
    fn short_and_long_frames(lens in proptest::collection::vec((any::<prop::sample::Index>(), 0..9000usize), 1..20), is_vouched: bool) {
        let mut victim = victim(is_vouched);
        for (which, len) in lens {
            let mut frame = victim.session[which.index(victim.session.len())].clone();
            frame.resize(len, 0);
            victim.switch.deliver(1, 2, frame);
        }
        victim.check();
    }

    #[test]
    fn random_bytes(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 1..20), is_vouched: bool) {
        let mut victim = victim(is_vouched);
        let count = frames.len() as u64;
        frames.into_iter().for_each(|frame| victim.switch.deliver(1, 2, frame));
        victim.check();
        prop_assert_eq!(victim.b.traffic().strange, count);
    }
}

/// A session that is repeated again and again is one session.
#[test]
fn repeated_frames() {
    for is_vouched in [false, true] {
        repeat(victim(is_vouched));
    }
}

fn repeat(mut victim: Victim) {
    for _ in 0..50 {
        for frame in victim.session.clone() {
            victim.switch.deliver(1, 2, frame);
        }
        run(&mut victim.now, MS, &mut [&mut victim.b]);
    }
    victim.check();
}
