//! Each law, broken by hand-made frames, and kept by others.

use core::time::Duration;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use ringway_stack::ring::FlowId;
use ringway_stack::tcp::congestion::Algorithm;
use ringway_stack::tcp::{Config, Keepalive};
use ringway_stack::{Error, Instant};

use super::super::Moment;
use super::super::flow::{Endpoint, Flows};
use super::super::segment::{ACK, FIN, Options, PSH, RST, SYN, Segment, URG};
use super::super::{stream, window};
use super::{Service, duties, errors, format, resets};

pub(in crate::checkers) const MSS: u32 = 1448;
pub(in crate::checkers) const OWN: &str = "10.0.0.1:5000";
pub(in crate::checkers) const PEER: &str = "10.0.0.2:80";
pub(in crate::checkers) const ISS: u32 = 1000;
pub(in crate::checkers) const IRS: u32 = 9000;
const CALM: Service = Service { calm: true, free: true, refused: false, dropped: false, scarce: false, merges: false };

pub(in crate::checkers) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(in crate::checkers) fn segment(from: &str, to: &str, seq: u32, ack: u32, flags: u8, len: usize) -> Segment {
    Segment {
        src: address(from),
        dst: address(to),
        seq,
        ack,
        flags,
        codepoint: 0,
        reserved: 0,
        urgent: 0,
        window: 512,
        options_len: 12,
        fast_open: None,
        options: Options::default(),
        payload: 0..len,
    }
}

/// One side of a connection, whose handshake is over at a second after the beginning.
pub(in crate::checkers) struct Side {
    pub(in crate::checkers) flows: Flows,
    own: usize,
    now: Instant,
    /// Until when its host has a reason to be late.
    excused: Instant,
    /// What timestamps its segments and its peer's carry.
    stamps: (u32, u32),
}

impl Side {
    pub(in crate::checkers) fn new() -> Self {
        // (Whose window is known to the byte.)
        Self::configured(Config { congestion: Algorithm::Reno, ..Config::default() })
    }

    fn configured(config: Config) -> Self {
        let mut options = Options::default();
        (options.mss, options.scale, options.sack_permitted, options.timestamps) = (Some(1460), Some(7), true, Some((1, 0)));
        let now = Instant::ZERO + Duration::from_secs(1);
        let syn = Segment { options, ..segment(OWN, PEER, ISS, 0, SYN, 0) };
        let mut flows = Flows::default();
        let own = flows.sender(None, 0, now, &syn).unwrap();
        let mut side = Self { flows, own, now, excused: Instant::ZERO, stamps: (1, 1) };
        side.flows.at_mut(own).calm = true;
        side.flows.at_mut(own).shadow.config = Some(Rc::new(config));
        side.sends(syn);
        let answer = Segment { options, ..segment(PEER, OWN, IRS, ISS + 1, SYN | ACK, 0) };
        let peer = side.flows.sender(None, 1, now, &answer).unwrap();
        side.flows.sent(peer, now, &answer);
        side.comes(&answer);
        side.own().stream.watch();
        side.sends(side.out(ISS + 1, IRS + 1, ACK, 0));
        side.service();
        side
    }

    pub(in crate::checkers) fn own(&mut self) -> &mut Endpoint {
        self.flows.at_mut(self.own)
    }

    pub(in crate::checkers) fn id(&self) -> usize {
        self.own
    }

    pub(in crate::checkers) fn peer(&mut self) -> &mut Endpoint {
        let id = self.flows.at(self.own).peer.unwrap();
        self.flows.at_mut(id)
    }

    /// The peer sends a segment, which may come, or not.
    pub(in crate::checkers) fn peer_says(&mut self, segment: &Segment) {
        let (moment, id) = (self.moment(), self.flows.at(self.own).peer.unwrap());
        let (own, peer) = self.flows.both(id);
        super::super::sequence::sent(&moment, &[0; 2000], segment, own, peer.map(|peer| &*peer));
        self.flows.sent(id, moment.at, segment);
    }

    /// The endpoint and its peer's.
    pub(in crate::checkers) fn both(&mut self) -> (&mut Endpoint, Option<&Endpoint>) {
        let (own, peer) = self.flows.both(self.own);
        (own, peer.map(|peer| &*peer))
    }

    pub(in crate::checkers) fn moment(&self) -> Moment {
        Moment { at: self.now, excused: self.excused, ..Moment::after(0) }
    }

    pub(in crate::checkers) fn passes(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.stamps.0 += u32::try_from(millis).unwrap();
    }

    pub(in crate::checkers) fn out(&self, seq: u32, ack: u32, flags: u8, len: usize) -> Segment {
        let mut segment = segment(OWN, PEER, seq, ack, flags, len);
        segment.options.timestamps = Some(self.stamps);
        segment
    }

    /// One of the peer's, whose clock shows `value`.
    pub(in crate::checkers) fn of_peer(value: u32, seq: u32, ack: u32, flags: u8, len: usize) -> Segment {
        let mut segment = segment(PEER, OWN, seq, ack, flags, len);
        segment.options.timestamps = Some((value, 1));
        segment
    }

    fn writes(&mut self, len: usize) {
        self.own().stream.write(&[std::io::IoSlice::new(&vec![0; len])], len);
    }

    pub(in crate::checkers) fn sends(&mut self, segment: Segment) {
        let (moment, at) = (self.moment(), self.now);
        let (own, peer) = self.flows.both(self.own);
        super::sent(&moment, &segment, own, peer.map(|peer| &*peer));
        self.flows.sent(self.own, at, &segment);
    }

    pub(in crate::checkers) fn comes(&mut self, segment: &Segment) {
        let moment = self.moment();
        self.own().delivered(&moment, segment, 7);
        super::delivered(segment, self.own());
        self.flows.pair(self.own);
    }

    /// One that somebody forged, and that must be seen through.
    fn attacked(&mut self, segment: &Segment) {
        super::attacked(segment, self.own());
    }

    /// It acknowledges so many bytes, and announces a window, in units of its scale.
    fn announces(&mut self, received: u32, window: u16) {
        let (moment, segment) = (self.moment(), Segment { window, ..self.out(ISS + 1, IRS + 1 + received, ACK, 0) });
        let (own, peer) = self.flows.both(self.own);
        window::sent(&moment, &segment, own, peer.map(|peer| &*peer));
    }

    pub(in crate::checkers) fn service(&mut self) {
        self.service_with(CALM);
    }

    fn service_with(&mut self, service: Service) {
        let moment = self.moment();
        let (own, peer) = self.flows.both(self.own);
        super::serviced(&moment, own, peer.map(|peer| &*peer), service);
        own.free = service.free;
    }

    /// Ten full segments go out.
    pub(in crate::checkers) fn fills_window(&mut self) {
        self.writes(100_000);
        for n in 0..10 {
            self.sends(self.out(ISS + 1 + n * MSS, IRS + 1, ACK, MSS as usize));
        }
        self.service();
    }

    pub(in crate::checkers) fn breaks(mut self, law: &str, act: impl FnOnce(&mut Self)) {
        let failure = catch_unwind(AssertUnwindSafe(|| act(&mut self))).expect_err(law);
        let message = failure.downcast_ref::<String>().unwrap();
        assert!(message.contains(law), "{message}");
    }
}

fn sacks(mut segment: Segment, blocks: &[(u32, u32)]) -> Segment {
    segment.options = segment.options.reporting(blocks);
    segment
}

#[test]
fn the_form_of_segments() {
    Side::new()
        .breaks("checker format: host 0 at 1000000000 ns: RFC 9293 s3.1", |side| side.sends(side.out(ISS + 1, IRS + 1, ACK | URG, 0)));
    Side::new().breaks("ACK bit", |side| side.sends(side.out(ISS + 1, IRS + 1, PSH, 0)));
    Side::new().breaks("no PSH", |side| {
        side.writes(10);
        side.sends(side.out(ISS + 1, IRS + 1, ACK, 10));
    });
    Side::new().breaks("RFC 6691 s2", |side| {
        let moment = side.moment();
        let (own, peer) = side.flows.both(side.own);
        format::configured(&moment, own, peer.map(|peer| &*peer), 1400);
    });
}

#[test]
fn acknowledgments_at_once() {
    let unanswered = |law: &str, segments: &[Segment]| {
        Side::new().breaks(law, |side| {
            segments.iter().for_each(|segment| side.comes(segment));
            side.service();
        });
    };
    unanswered("out-of-order", &[Side::of_peer(2, IRS + 101, ISS + 1, ACK, 100)]);
    unanswered("a FIN is acknowledged", &[Side::of_peer(2, IRS + 1, ISS + 1, ACK | FIN, 0)]);
    unanswered("received before", &[Side::of_peer(2, IRS, ISS + 1, ACK, 1)]);
    let full = |n: u32| Side::of_peer(2, IRS + 1 + n * MSS, ISS + 1, ACK, MSS as usize);
    unanswered("RFC 9293 s3.8.6.3", &[full(0), full(1)]);
    Side::new().breaks("says nothing new", |side| side.sends(side.out(ISS + 1, IRS + 1, ACK, 0)));
}

#[test]
fn timestamps_that_are_echoed() {
    let answer = |echo: u32, arrival: Segment, ack: u32| {
        let mut side = Side::new();
        side.comes(&arrival);
        side.stamps.1 = echo;
        let run = catch_unwind(AssertUnwindSafe(|| side.sends(side.out(ISS + 1, ack, ACK, 0))));
        run.map_err(|failure| failure.downcast_ref::<String>().unwrap().clone())
    };
    // At the left edge its stamp counts; above a gap it does not.
    assert_eq!(answer(5, Side::of_peer(5, IRS + 1, ISS + 1, ACK, 10), IRS + 11), Ok(()));
    assert!(answer(1, Side::of_peer(5, IRS + 1, ISS + 1, ACK, 10), IRS + 11).unwrap_err().contains("TSecr 1"));
    assert!(answer(5, Side::of_peer(5, IRS + 21, ISS + 1, ACK, 10), IRS + 1).unwrap_err().contains("TSecr 5"));
    Side::new().breaks("ticks of the timestamp clock", |side| {
        side.stamps.0 += 50;
        side.sends(side.out(ISS + 1, IRS + 1, ACK, 0));
    });
}

#[test]
fn what_sack_reports() {
    let gap = || {
        let mut side = Side::new();
        side.comes(&Side::of_peer(2, IRS + 101, ISS + 1, ACK, 100));
        side
    };
    gap().breaks("newest segment", |side| {
        side.sends(side.out(ISS + 1, IRS + 1, ACK, 0));
        side.service();
    });
    gap().breaks("acknowledged by", |side| {
        side.sends(sacks(side.out(ISS + 1, IRS + 1, ACK, 0), &[(IRS + 101, IRS + 201), (IRS - 9, IRS - 5)]));
    });
    let mut lawful = gap();
    lawful.sends(sacks(lawful.out(ISS + 1, IRS + 1, ACK, 0), &[(IRS + 101, IRS + 201)]));
    lawful.service();
    lawful.breaks("RFC 2883", |side| {
        side.comes(&Side::of_peer(2, IRS + 101, ISS + 1, ACK, 100));
        side.sends(sacks(side.out(ISS + 1, IRS + 1, ACK, 0), &[(IRS + 101, IRS + 151)]));
        side.service();
    });
}

/// The reset with which a peer hears that it was given up while it was half open may be what a full device refuses (as in the seed 90372715).
#[test]
fn what_a_full_device_refuses_of_strangers() {
    let ended = |half_open: bool| {
        let mut side = Side::new();
        side.own().passive = true;
        if half_open {
            side.own().shadow.sender.una = None;
        }
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK | FIN, 0));
        side
    };
    let refuses = |side: &mut Side| side.service_with(Service { dropped: true, ..CALM });
    refuses(&mut ended(true));
    ended(true).breaks("a FIN is acknowledged at once", Side::service);
    ended(false).breaks("a FIN is acknowledged at once", refuses);
}

/// RFC 9293 s3.10.7.4: an old duplicate of an earlier connection, beyond the window, is acknowledged and dropped: it leaves no gap (as in the seed 78252458).
#[test]
fn what_lies_beyond_the_window_leaves_no_gap() {
    let goes_on = |at: u32| {
        let mut side = Side::new();
        side.announces(0, 512);
        side.comes(&Side::of_peer(2, IRS + 1 + at, ISS + 1, ACK, 100));
        side.sends(sacks(side.out(ISS + 1, IRS + 1, ACK, 0), &[(IRS + 1 + at, IRS + 101 + at)][usize::from(at > 512 << 7)..]));
        side.service();
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 100));
        side
    };
    goes_on((512 << 7) + 1).service();
    goes_on((512 << 7) - 100).breaks("a segment that fills a gap is acknowledged at once", Side::service);
    let mut side = Side::new();
    side.announces(0, 512);
    side.comes(&Side::of_peer(2, IRS + 1 + (512 << 7) + 1, ISS + 1, ACK, 100));
    side.breaks("a segment beyond the window is acknowledged", Side::service);
}

#[test]
fn an_acknowledgment_in_what_fills_a_gap_counts() {
    let mut side = Side::new();
    side.writes(10);
    side.sends(side.out(ISS + 1, IRS + 1, ACK | PSH, 10));
    side.service();
    side.comes(&Side::of_peer(2, IRS + 101, ISS + 1, ACK, 100));
    side.sends(sacks(side.out(ISS + 11, IRS + 1, ACK, 0), &[(IRS + 101, IRS + 201)]));
    side.service();
    side.passes(5);
    // Both parts are acknowledged, which is more than this segment's end.
    side.comes(&Side::of_peer(3, IRS + 1, ISS + 11, ACK, 100));
    side.stamps.1 = 3;
    side.sends(side.out(ISS + 11, IRS + 201, ACK, 0));
    side.service();
    let now = side.now;
    assert_eq!((side.own().shadow.sender.una, side.own().shadow.sender.una_at), (Some(ISS + 11), now));
}

#[test]
fn the_congestion_window() {
    let mut side = Side::new();
    side.fills_window();
    // (One more may be let go by an acknowledgment that has yet to be looked at.)
    side.sends(side.out(ISS + 1 + 10 * MSS, IRS + 1, ACK, MSS as usize));
    side.breaks("checker cwnd", |side| side.sends(side.out(ISS + 1 + 11 * MSS, IRS + 1, ACK, MSS as usize)));
    let mut side = Side::new();
    side.fills_window();
    side.passes(10);
    side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + 2 * MSS, ACK, 0));
    for n in 10..15 {
        side.sends(side.out(ISS + 1 + n * MSS, IRS + 1, ACK, MSS as usize));
    }
    side.breaks("checker cwnd", |side| side.sends(side.out(ISS + 1 + 15 * MSS, IRS + 1, ACK, MSS as usize)));
}

#[test]
fn retransmissions_with_a_cause() {
    let early = |millis: u64| {
        let mut side = Side::new();
        side.fills_window();
        side.passes(millis);
        catch_unwind(AssertUnwindSafe(|| side.sends(side.out(ISS + 1, IRS + 1, ACK, MSS as usize)))).is_err()
    };
    assert!(early(150) && !early(250));
    let mut side = Side::new();
    side.fills_window();
    side.passes(300);
    side.breaks("nothing says that it was lost", |side| side.sends(side.out(ISS + 1 + MSS, IRS + 1, ACK, MSS as usize)));
    let three = || {
        let mut side = Side::new();
        side.fills_window();
        side.passes(10);
        for n in 2..5 {
            let dup = Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0);
            side.comes(&sacks(dup, &[(ISS + 1 + MSS, ISS + 1 + n * MSS)]));
            if n < 4 {
                side.service();
            }
        }
        side
    };
    three().breaks("3 duplicate acknowledgments", Side::service);
    // The peer reported the first byte that it asks for now, and has dropped it (RFC 2018 s8).
    let mut side = Side::new();
    side.writes(10 * MSS as usize);
    for n in 0..10 {
        side.sends(side.out(ISS + 1 + n * MSS, IRS + 1, if n == 9 { ACK | PSH } else { ACK }, MSS as usize));
    }
    side.service();
    side.passes(10);
    side.comes(&sacks(Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0), &[(ISS + 1 + MSS, ISS + 1 + 2 * MSS)]));
    side.service();
    side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + MSS, ACK, 0));
    side.service();
    for n in 4..8 {
        let dup = Side::of_peer(2, IRS + 1, ISS + 1 + MSS, ACK, 0);
        side.comes(&sacks(dup, &[(ISS + 1 + 3 * MSS, ISS + 1 + n * MSS)]));
        side.service();
    }
    let mut side = three();
    side.sends(side.out(ISS + 1, IRS + 1, ACK, MSS as usize));
    side.service();
    side.breaks("which SACK reported", |side| side.sends(side.out(ISS + 1 + MSS, IRS + 1, ACK, MSS as usize)));
}

/// RFC 9293 s3.10.7.4: what acknowledges everything in a segment before the window is dropped, and the timer of what is in flight goes on.
#[test]
fn what_is_acknowledged_below_the_window_times_out_when_it_was_sent() {
    let sent_again = |seq: u32| {
        let mut side = Side::new();
        side.writes(10 * MSS as usize);
        for n in 0..10 {
            side.sends(side.out(ISS + 1 + n * MSS, IRS + 1, if n == 9 { ACK | PSH } else { ACK }, MSS as usize));
        }
        side.service();
        side.passes(190);
        side.comes(&Side::of_peer(2, seq, ISS + 1 + 10 * MSS, ACK, 0));
        side.service();
        side.passes(5);
        side.writes(MSS as usize);
        side.sends(side.out(ISS + 1 + 10 * MSS, IRS + 1, ACK | PSH, MSS as usize));
        side.service();
        side.passes(10);
        let first = if seq == IRS { ISS + 1 } else { ISS + 1 + 10 * MSS };
        catch_unwind(AssertUnwindSafe(|| side.sends(side.out(first, IRS + 1, ACK, MSS as usize)))).is_ok()
    };
    assert_eq!([sent_again(IRS), sent_again(IRS + 1)], [true, false]);
}

/// RFC 9293 s3.10.7.4: what repeats old bytes is dropped, with what it acknowledges. What is sent again then begins before that, and its timer backs off (as in the
/// seed 76121386).
#[test]
fn what_is_sent_again_was_acknowledged_below_the_window() {
    let mut side = Side::new();
    side.fills_window();
    side.passes(10);
    side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + MSS, ACK, 100));
    side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + 4 * MSS, ACK, 50));
    side.stamps.1 = 2;
    side.sends(side.out(ISS + 1 + 10 * MSS, IRS + 101, ACK, 0));
    side.service();
    assert_eq!(side.own().shadow.sender.una, Some(ISS + 1 + 4 * MSS));
    let mut gaps = Vec::new();
    for wait in [200, 400, 800, 1600] {
        side.passes(wait);
        side.sends(side.out(ISS + 1 + MSS, IRS + 101, ACK, MSS as usize));
        side.service();
        let (now, state) = (side.now, &side.own().shadow.sender);
        assert_eq!((state.una, state.head_at), (Some(ISS + 1 + MSS), now));
        gaps.extend(state.retry_at(Instant::ZERO).map(|at| at.since(now) > Duration::from_millis(2 * wait)));
    }
    assert_eq!(gaps, [true; 4]);
}

/// RFC 9293 s3.10.7.4: what repeats what came before, and was not acknowledged yet, is dropped, with what it acknowledges: what the program writes then may wait
/// (as in the seed 90049106).
#[test]
fn what_repeats_what_came_before_may_acknowledge_nothing() {
    let acknowledges = |side: &mut Side, seq: u32| {
        side.own().agrees_on_sack = false;
        side.writes(10);
        side.sends(side.out(ISS + 1, IRS + 1, ACK | PSH, 10));
        side.service();
        side.passes(1);
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 100));
        side.service();
        side.passes(1);
        side.writes(10);
        side.comes(&Side::of_peer(2, seq, ISS + 11, ACK, 50));
        side.stamps.1 = 2;
        side.sends(side.out(ISS + 11, IRS + 101, ACK, 0));
        side.service();
    };
    acknowledges(&mut Side::new(), IRS + 1);
    acknowledges(&mut Side::new(), IRS + 51);
    Side::new().breaks("wait for nothing", |side| acknowledges(side, IRS + 52));
    Side::new().breaks("wait for nothing", |side| acknowledges(side, IRS + 101));
}

/// RFC 6582 s3.2 step 3: the timer that the first partial acknowledgment started goes on while the device refuses what a later one asks for (as in the seed
/// 71085641); and what goes then may as well be for a timeout, once.
#[test]
fn what_waited_for_the_device_times_out_when_the_first_partial_acknowledgment_says() {
    let again = |side: &mut Side, n: u32| side.sends(side.out(ISS + 1 + n * MSS, IRS + 1, ACK, MSS as usize));
    let acks = |side: &mut Side, n: u32| side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + n * MSS, ACK, 0));
    // The first partial acknowledgment comes at 30 ms, the next one at 220 ms, and what that asks for goes at 240 ms.
    let goes = |refused: bool| {
        let mut side = Side::new();
        side.own().agrees_on_sack = false;
        side.fills_window();
        side.passes(10);
        (0..3).for_each(|_| acks(&mut side, 0));
        again(&mut side, 0);
        side.service();
        side.passes(20);
        acks(&mut side, 2);
        again(&mut side, 2);
        side.service();
        side.passes(190);
        acks(&mut side, 4);
        side.own().shadow.refused = refused;
        side.service_with(Service { free: !refused, refused, ..CALM });
        side.passes(20);
        again(&mut side, 4);
        side.own().shadow.refused = false;
        side.service_with(Service { refused, ..CALM });
        side.passes(40);
        side
    };
    again(&mut goes(true), 4);
    goes(true).breaks("is sent again after 40ms; 200ms is the least", |side| {
        again(side, 4);
        side.service();
        side.passes(40);
        again(side, 4);
    });
    goes(false).breaks("is sent again after 40ms; 200ms is the least", |side| again(side, 4));
}

/// RFC 6298 s5.4, s5.5: what a timer sends again may wait for the neighbour's address until something else is acknowledged, and goes as soon as it may, once (as
/// in the seed 78128314).
#[test]
fn a_timeout_that_waited_for_the_neighbour_is_followed_up() {
    let again = |side: &mut Side| side.sends(side.out(ISS + 1 + MSS, IRS + 1, ACK | PSH, MSS as usize));
    let acknowledged = |waits: bool, after: u64| {
        let mut side = Side::new();
        side.writes(2 * MSS as usize);
        side.sends(side.out(ISS + 1, IRS + 1, ACK, MSS as usize));
        side.sends(side.out(ISS + 1 + MSS, IRS + 1, ACK | PSH, MSS as usize));
        side.service();
        if waits {
            side.excused = side.now + Duration::from_secs(1);
        }
        side.passes(after);
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + MSS, ACK, 0));
        side.service();
        side.passes(40);
        side
    };
    again(&mut acknowledged(true, 250));
    for (waits, after) in [(false, 250), (true, 150)] {
        acknowledged(waits, after).breaks("is sent again after 40ms; 200ms is the least", again);
    }
    // (Counted from the acknowledgment.)
    acknowledged(true, 250).breaks("is sent again after 80ms; 200ms is the least", |side| {
        again(side);
        side.service();
        side.passes(40);
        again(side);
    });
}

/// RFC 9293 s3.10.7.4, RFC 5681 s2: a segment that repeats what fills a gap is dropped, with the window that it brings: the first acknowledgment that brings it then
/// changes the window, and is no duplicate (as in the seed 77030036).
#[test]
fn a_window_that_came_with_what_repeats_may_be_new() {
    let duplicates = |count: usize, repeats: bool| {
        let mut side = Side::new();
        side.own().agrees_on_sack = false;
        side.fills_window();
        let answers = |side: &mut Side, received: u32| {
            side.sends(side.out(ISS + 1 + 10 * MSS, IRS + 1 + received, ACK, 0));
            side.service();
        };
        side.comes(&Side::of_peer(2, IRS + 101, ISS + 1, ACK, 100));
        answers(&mut side, 0);
        side.stamps.1 = 3;
        side.comes(&Side::of_peer(3, IRS + 1, ISS + 1, ACK, 100));
        if repeats {
            side.comes(&Segment { window: 500, ..Side::of_peer(3, IRS + 101, ISS + 1, ACK, 100) });
        }
        answers(&mut side, 200);
        let window = if repeats { 500 } else { 512 };
        (0..count).for_each(|_| side.comes(&Segment { window, ..Side::of_peer(3, IRS + 201, ISS + 1, ACK, 0) }));
        catch_unwind(AssertUnwindSafe(|| side.service())).is_ok()
    };
    assert_eq!([duplicates(3, true), duplicates(4, true)], [true, false]);
    assert_eq!([duplicates(2, false), duplicates(3, false)], [true, false]);
}

/// RFC 6582 s3.2 step 2: three duplicates among what came at once may have begun another recovery, and duplicates of what ended that one begin none (as in the seed
/// 77051810).
#[test]
fn duplicates_of_what_ended_a_recovery_that_nobody_saw_begin() {
    let start = |n: u32| ISS + 1 + n * MSS;
    let sends = |side: &mut Side, n: u32| side.sends(side.out(start(n), IRS + 1, ACK, MSS as usize));
    let acks = |side: &mut Side, n: u32| side.comes(&Side::of_peer(2, IRS + 1, start(n), ACK, 0));
    let passes = |at_once: bool| {
        let mut side = Side::new();
        side.own().agrees_on_sack = false;
        let hears = |side: &mut Side, n: u32| {
            acks(side, n);
            if !at_once {
                side.service();
            }
        };
        side.fills_window();
        side.passes(10);
        (0..2).for_each(|_| hears(&mut side, 0));
        acks(&mut side, 0);
        sends(&mut side, 0);
        side.service();
        side.passes(10);
        (0..4).for_each(|_| hears(&mut side, 5));
        sends(&mut side, 10);
        sends(&mut side, 5);
        side.service();
        side.passes(10);
        acks(&mut side, 11);
        (11..15).for_each(|n| sends(&mut side, n));
        side.service();
        side.passes(10);
        let last = |side: &mut Side| {
            acks(side, 11);
            side.service();
        };
        catch_unwind(AssertUnwindSafe(|| (0..3).for_each(|_| last(&mut side)))).is_ok()
    };
    assert_eq!([passes(true), passes(false)], [true, false]);
}

/// RFC 6675 s5 step 4.3: a recovery sends the oldest byte again, though the one that ended just before may have done so, for what is reported above (as in the
/// seed 77161128).
#[test]
fn a_recovery_sends_again_what_the_one_before_did() {
    let start = |n: u32| ISS + 1 + n * MSS;
    let again = |side: &mut Side, n: u32| side.sends(side.out(start(n), IRS + 1, ACK, MSS as usize));
    let reports = |side: &mut Side, una: u32, (from, to): (u32, u32)| {
        side.comes(&sacks(Side::of_peer(2, IRS + 1, start(una), ACK, 0), &[(start(from), start(to))]));
    };
    // A recovery that ends in the service in which more is reported: what is sent again may still be of that one.
    let ended = || {
        let mut side = Side::new();
        side.fills_window();
        side.passes(10);
        reports(&mut side, 0, (1, 5));
        again(&mut side, 0);
        side.service();
        side.writes(8 * MSS as usize);
        (10..14).for_each(|n| again(&mut side, n));
        side.service();
        side.passes(10);
        reports(&mut side, 10, (11, 14));
        again(&mut side, 10);
        side.service();
        side.passes(1);
        side
    };
    let mut side = ended();
    side.comes(&sacks(Side::of_peer(3, IRS + 1, start(10), ACK, 0), &[(start(11), start(14))]));
    side.service();
    again(&mut side, 10);
    side.breaks("200ms is the least", |side| {
        side.service();
        side.service();
        again(side, 10);
    });
}

/// RFC 6582 s3.2 step 2: duplicates of what ended a recovery begin no other, and where the first of what a recovery sent again may have been the last of the one
/// before, it ends where that which three duplicates began would (as in the seed 71212222).
#[test]
fn duplicates_of_what_ended_a_recovery_after_another() {
    let start = |n: u32| ISS + 1 + n * MSS;
    let goes = |side: &mut Side, n: u32| side.sends(side.out(start(n), IRS + 1, ACK, MSS as usize));
    let acks = |side: &mut Side, n: u32, times: u32| {
        side.passes(10);
        (0..times).for_each(|_| side.comes(&Side::of_peer(2, IRS + 1, start(n), ACK, 0)));
    };
    let ended = || {
        let mut side = Side::new();
        side.own().agrees_on_sack = false;
        side.fills_window();
        acks(&mut side, 0, 3);
        goes(&mut side, 0);
        side.service();
        (10..15).for_each(|n| goes(&mut side, n));
        side.service();
        // The first recovery ends with the second of these; what a partial acknowledgment names may end behind it.
        acks(&mut side, 9, 1);
        acks(&mut side, 10, 1);
        goes(&mut side, 11);
        (15..18).for_each(|n| goes(&mut side, n));
        side.service();
        acks(&mut side, 13, 4);
        goes(&mut side, 13);
        (18..21).for_each(|n| goes(&mut side, n));
        side.service();
        side
    };
    let mut side = ended();
    acks(&mut side, 18, 4);
    side.service();
    ended().breaks("3 duplicate acknowledgments", |side| {
        acks(side, 19, 4);
        side.service();
    });
}

/// RFC 6675 s5: what SACK reports above a hole is why that is sent again, though what was sent again before may have been for a timeout.
#[test]
fn holes_that_are_reported_after_what_may_have_been_a_timeout() {
    let sent_again = |fuzzy: bool| {
        let mut side = Side::new();
        side.fills_window();
        side.passes(10);
        side.own().shadow.sender.after_perhaps_a_timeout(ISS + 1 + 2 * MSS, fuzzy);
        for n in 5..8 {
            side.comes(&sacks(Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0), &[(ISS + 1 + 4 * MSS, ISS + 1 + n * MSS)]));
            side.service();
        }
        catch_unwind(AssertUnwindSafe(|| side.sends(side.out(ISS + 1 + 3 * MSS, IRS + 1, ACK, MSS as usize)))).is_ok()
    };
    assert_eq!([sent_again(true), sent_again(false)], [true, false]);
}

/// RFC 2018 s5, RFC 6675 s4: what is reported is not sent again in a recovery, as far as a sender keeps so many ranges (as in the seed 66243726).
#[test]
fn more_reports_than_anybody_keeps() {
    let sent_again = |ranges: u32| {
        let mut side = Side::new();
        side.fills_window();
        side.passes(10);
        let start = |n: u32| ISS + 1 + MSS + 20 * n;
        for n in 0..ranges {
            side.comes(&sacks(Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0), &[(start(n), start(n) + 10)]));
            if n == 2 {
                side.sends(side.out(ISS + 1, IRS + 1, ACK, MSS as usize));
            }
            side.service();
        }
        catch_unwind(AssertUnwindSafe(|| side.sends(side.out(start(ranges - 1), IRS + 1, ACK, 10)))).is_ok()
    };
    assert_eq!([256, 257].map(sent_again), [false, true]);
}

/// RFC 6582 s3.2 step 3: a recovery that begins and ends with what comes at a time leaves room for two segments.
#[test]
fn what_tells_of_a_loss_and_acknowledges_it_leaves_a_window_of_its_own() {
    let sends_two_more = |reports: u32| {
        let mut side = Side::new();
        side.fills_window();
        side.passes(10);
        for n in 0..reports {
            let dup = Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0);
            side.comes(&sacks(dup, &[(ISS + 1 + MSS, ISS + 1 + (n + 2) * MSS)]));
        }
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + 10 * MSS, ACK, 0));
        (10..12).for_each(|n| side.sends(side.out(ISS + 1 + n * MSS, IRS + 1, ACK, MSS as usize)));
        side
    };
    sends_two_more(2).breaks("in flight of a first window", Side::service);
    sends_two_more(3).service();
}

/// RFC 5681 s3.1: a timeout whose retransmission the device refused, and whose segments were acknowledged meanwhile.
#[test]
fn a_timeout_that_nobody_saw_leaves_a_window_of_its_own() {
    let sends_two_more = |millis: u64, refused: bool| {
        let mut side = Side::new();
        side.fills_window();
        side.passes(millis);
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + 10 * MSS, ACK, 0));
        (10..12).for_each(|n| side.sends(side.out(ISS + 1 + n * MSS, IRS + 1, ACK, MSS as usize)));
        side.service_with(Service { refused, ..CALM });
        side.passes(1);
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + 10 * MSS, ACK, 0));
        side
    };
    for (millis, refused) in [(100, true), (250, false)] {
        let acts = |side: &mut Side| side.service();
        let side = catch_unwind(AssertUnwindSafe(|| sends_two_more(millis, refused)));
        assert!(side.map_or(true, |mut side| catch_unwind(AssertUnwindSafe(|| acts(&mut side))).is_err()), "{millis} ms, {refused}");
    }
    sends_two_more(250, true).service();
}

/// RFC 9293 s3.8.6.2.2: a window opens when its reader has read; but word of it may wait for the MAC address of the peer, and be given up with that.
#[test]
fn a_window_that_opens_unheard() {
    let opens = |asks: bool| {
        let mut side = Side::new();
        side.announces(0, 512);
        side.announces(512 << 7, 0);
        let now = side.now;
        window::serviced(now, side.own(), false, asks);
        side.passes(200);
        window::serviced(side.now, side.own(), false, false);
        side.announces(512 << 7, 512);
    };
    opens(true);
    assert!(catch_unwind(|| opens(false)).is_err());
}

/// RFC 9293 s3.8.6: what was offered stays so. What a connection's ring before made, with a smaller window, may go after what its new one did, and shuts nothing (as in
/// the seed 77014560).
#[test]
fn a_window_stays_open_whatever_the_ring_before_had_made() {
    let mut side = Side::new();
    side.announces(0, 512);
    let now = side.now;
    (side.own().moved, side.own().moved_at) = (true, now);
    side.announces(1000, 504);
    side.announces(1000, 4);
    assert!(!side.own().window.is_shut());
    window::serviced(now, side.own(), false, false);
    side.passes(200);
    side.announces(1000, 504);
}

/// A SYN that came twice begins another connection with the addresses of one that was reset before its program accepted it.
#[test]
fn what_a_program_accepts_may_have_been_followed_already() {
    let now = Instant::ZERO + Duration::from_secs(1);
    let opens = |flows: &mut Flows, iss: u32, acknowledged: bool| {
        let answer = segment(PEER, OWN, iss, ISS + 1, SYN | ACK, 0);
        let before = flows.id((answer.src, answer.dst));
        let id = flows.sender(before, 1, now, &answer).unwrap();
        flows.sent(id, now, &answer);
        if acknowledged {
            flows.at_mut(id).delivered(&Moment { at: now, ..Moment::after(0) }, &segment(OWN, PEER, ISS + 1, iss + 1, ACK, 0), 7);
        }
        id
    };
    let tuple = (address(PEER), address(OWN));
    for (first, second) in [(true, false), (true, true), (false, true), (false, false)] {
        let mut flows = Flows::default();
        let ids = [opens(&mut flows, IRS, first), opens(&mut flows, IRS + 5000, second)];
        flows.accepted(tuple, 1);
        assert_eq!(flows.at(ids[1]).shadow.blurred, first, "{first} {second}");
    }
    let mut flows = Flows::default();
    let ids = [opens(&mut flows, IRS, true), opens(&mut flows, IRS + 5000, true)];
    flows.at_mut(ids[0]).owner = Some((0, FlowId { ring: 0, index: 0, generation: 0 }));
    flows.accepted(tuple, 1);
    assert!(!flows.at(ids[1]).shadow.blurred, "the first was accepted before");
}

/// Two rings of a host each answer a SYN that came twice, since its port's group changed meanwhile; the one's answer waited for its neighbour's MAC address, and
/// came last. Whose connection it is the client says (as in the seed 68000304).
#[test]
fn two_rings_answer_one_syn() {
    let now = Instant::ZERO + Duration::from_secs(1);
    let tuple = (address(PEER), address(OWN));
    let answers = |flows: &mut Flows, iss: u32, irs: u32| {
        let answer = segment(PEER, OWN, iss, irs + 1, SYN | ACK, 0);
        let id = flows.sender(flows.id(tuple), 1, now, &answer).unwrap();
        flows.sent(id, now, &answer);
        id
    };
    let mut flows = Flows::default();
    let [first, second] = [answers(&mut flows, IRS, ISS), answers(&mut flows, IRS + 5000, ISS)];
    flows.tell_twins_apart(tuple, IRS + 5001);
    assert_eq!(flows.id(tuple), Some(second), "the client took the later one");
    flows.tell_twins_apart(tuple, IRS + 1);
    assert_eq!(flows.id(tuple), Some(first), "the client took the earlier one");
    assert!(flows.at(second).succeeded && !flows.at(first).succeeded);
    // Who asks again for an acknowledgment of the other one is no third.
    assert_eq!(flows.twin_from(first, IRS + 5000), Some(second));
    assert_eq!(flows.twin_from(first, IRS + 9000), None);
    // A client that begins anew has another number: that is another connection, and what came before it is over.
    let mut flows = Flows::default();
    let [_, second] = [answers(&mut flows, IRS, ISS), answers(&mut flows, IRS + 5000, ISS + 7000)];
    flows.tell_twins_apart(tuple, IRS + 1);
    assert_eq!((flows.id(tuple), flows.twin_from(second, IRS)), (Some(second), None));
    // So it is if either has been acknowledged: what the SYN was has long been told, and it came again.
    for which in 0..2 {
        let mut flows = Flows::default();
        let ids = [answers(&mut flows, IRS, ISS), answers(&mut flows, IRS + 5000, ISS)];
        let ack = segment(OWN, PEER, ISS + 1, [IRS, IRS + 5000][which] + 1, ACK, 0);
        flows.at_mut(ids[which]).delivered(&Moment { at: now, ..Moment::after(0) }, &ack, 7);
        flows.tell_twins_apart(tuple, IRS + 1);
        assert_eq!(flows.id(tuple), Some(ids[1]), "the client has taken {which}");
    }
}

/// It is the first that the program has, whose bytes came corrupted where no checksum tells.
#[test]
fn what_a_program_accepts_may_be_as_corrupted_as_what_it_was_followed_by_is_not() {
    let bytes = |tainted: bool, byte: u8| {
        let mut side = Side::new();
        let moment = side.moment();
        side.peer().stream.watch();
        side.peer().stream.write(&[std::io::IoSlice::new(b"x")], 1);
        let tuple = (address(OWN), address(PEER));
        side.own().passive = true;
        if tainted {
            side.own().stream.taint();
        }
        let again = side.flows.sender(Some(side.id()), 0, moment.at, &segment(OWN, PEER, ISS + 5000, IRS + 1, SYN | ACK, 0)).unwrap();
        side.flows.sent(again, moment.at, &segment(OWN, PEER, ISS + 5000, IRS + 1, SYN | ACK, 0));
        side.flows.accepted(tuple, 0);
        let (own, peer) = side.flows.both(again);
        assert!(peer.is_some(), "of the same client");
        stream::read(&moment, own, peer, [&[byte][..]].into_iter(), 1, false);
    };
    bytes(false, b'x');
    bytes(true, b'y');
    assert!(catch_unwind(|| bytes(false, b'y')).is_err(), "neither of the two is corrupted");
}

/// RFC 9293 s3.10.7.4: what repeats old bytes may bring the window of the new ones that it ends with, or not.
#[test]
fn whether_what_repeats_old_bytes_shuts_the_window_is_open() {
    let holds_back = |seq: u32| {
        let mut side = Side::new();
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 10));
        side.service();
        side.comes(&Segment { window: 0, ..Side::of_peer(2, seq, ISS + 1, ACK, 20) });
        side.writes(100);
        side
    };
    holds_back(IRS + 1).service();
    holds_back(IRS + 11).service();
    let old = catch_unwind(AssertUnwindSafe(|| holds_back(IRS - 19).service()));
    assert!(old.is_err(), "what is wholly old shuts no window");
}

#[test]
fn small_segments_and_idle_senders() {
    let mut side = Side::new();
    // (The window, too, must be that of an established connection.)
    side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0));
    side.writes(10);
    side.sends(side.out(ISS + 1, IRS + 1, ACK | PSH, 10));
    side.service();
    side.writes(10);
    side.breaks("checker nagle", |side| side.sends(side.out(ISS + 11, IRS + 1, ACK | PSH, 10)));
    let twice = |len: usize, narrow: bool| {
        let mut side = Side::new();
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0));
        side.service();
        if narrow {
            side.own().shadow.sender.narrow();
        }
        side.writes(2 * len);
        let first = ISS + 1;
        let send = |side: &mut Side, seq| side.sends(side.out(seq, IRS + 1, ACK | PSH, len));
        send(&mut side, first);
        catch_unwind(AssertUnwindSafe(|| send(&mut side, first + u32::try_from(len).unwrap()))).is_ok()
    };
    // On a narrow path, 200 bytes may be as much as a segment carries but for a few; 50 never are.
    assert_eq!([twice(200, false), twice(200, true), twice(50, true)], [false, true, false]);
    Side::new().breaks("wait for nothing", |side| {
        side.writes(10);
        side.service();
    });
    Side::new().breaks("no FIN follows", |side| {
        side.own().stream.end();
        side.service();
    });
    // One that the peer's window has no room for waits.
    let mut side = Side::new();
    side.comes(&Segment { window: 0, ..Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0) });
    side.service();
    side.own().stream.end();
    side.service();
}

/// RFC 5681 s4.1: who has sent no data for longer than the least timeout may have begun anew with the restart window, which then grows where a larger one would
/// not have been used (as in the seed 77069718).
#[test]
fn a_sender_that_was_idle_may_have_a_smaller_window() {
    let grows = |millis: u64, value: u32| {
        let mut side = Side::new();
        for (first, end, value) in [(0, 10, value), (10, 19, 2)] {
            side.writes((end - first) as usize * MSS as usize);
            for n in first..end {
                side.sends(side.out(ISS + 1 + n * MSS, IRS + 1, if n + 1 == end { ACK | PSH } else { ACK }, MSS as usize));
            }
            side.service();
            side.passes(10);
            side.comes(&Side::of_peer(value, IRS + 1, ISS + 1 + end * MSS, ACK, 0));
            side.service();
            side.passes(millis);
        }
        side.own().shadow.sender.window_most().map(|most| most / u64::from(MSS))
    };
    assert_eq!([grows(100, 2), grows(210, 2)], [Some(20), Some(29)]);
    // What has an old timestamp may have been dropped, and makes nothing grow for certain (RFC 7323 s5.3).
    assert_eq!(grows(100, 0), Some(29));
}

/// RFC 5681 s4.1: who has sent no data for longer than a timeout can be begins anew with the restart window, whatever it has acknowledged meanwhile.
#[test]
fn acknowledgments_keep_no_window_open() {
    let window = |millis: u64| {
        let mut side = Side::new();
        side.writes(10 * MSS as usize);
        for n in 0..10 {
            side.sends(side.out(ISS + 1 + n * MSS, IRS + 1, if n == 9 { ACK | PSH } else { ACK }, MSS as usize));
        }
        side.service();
        side.passes(10);
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1 + 10 * MSS, ACK, 0));
        side.service();
        side.stamps.1 = 2;
        for n in 0..10 {
            side.passes(millis);
            side.comes(&Side::of_peer(2, IRS + 1 + 10 * n, ISS + 1 + 10 * MSS, ACK | PSH, 10));
            side.sends(side.out(ISS + 1 + 10 * MSS, IRS + 11 + 10 * n, ACK, 0));
            side.service();
        }
        side.writes(MSS as usize);
        side.sends(side.out(ISS + 1 + 10 * MSS, IRS + 101, ACK | PSH, MSS as usize));
        side.own().shadow.sender.window_most().map(|most| most / u64::from(MSS))
    };
    assert_eq!([window(10), window(300)], [Some(20), Some(10)]);
}

#[test]
fn resets_answer_something() {
    let mut strays = resets::State::default();
    let side = Side::new();
    let reset = segment(PEER, OWN, 77, 0, RST, 0);
    let judge = |strays: &resets::State, reset: &Segment| catch_unwind(|| resets::sent(&side.moment(), reset, None, strays)).is_ok();
    assert!(!judge(&strays, &reset));
    strays.delivered(&segment(OWN, PEER, 5, 77, ACK, 3), true);
    assert!(
        judge(&strays, &reset)
            && !judge(&strays, &segment(PEER, OWN, 78, 0, RST, 0))
            && !judge(&strays, &segment(PEER, OWN, 77, 0, RST, 4))
    );
    strays.delivered(&segment(OWN, PEER, 5, 0, SYN, 0), false);
    assert!(judge(&strays, &segment(PEER, OWN, 0, 6, RST | ACK, 0)) && !judge(&strays, &segment(PEER, OWN, 0, 5, RST | ACK, 0)));
    let tuple = (address(PEER), address(OWN));
    let stray = *strays.unknown().next().unwrap();
    assert!(stray.tuple == tuple && strays.has_unknown() && catch_unwind(|| strays.must_reset(&side.moment(), &stray)).is_err());
    strays.reset(tuple);
    strays.must_reset(&side.moment(), &stray);
    strays.serviced();
    assert!(!strays.has_unknown() && strays.unknown().next().is_none());
}

#[test]
fn who_is_given_up_or_refused() {
    Side::new().breaks("is refused, and not reset", |side| {
        side.own().irs = None;
        errors::told(&side.moment(), side.flows.at(side.own), Error::Reset, None);
    });
    let gives_up = |after: u64| {
        let mut side = Side::new();
        side.comes(&Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0));
        side.service();
        side.passes(after);
        // It did ask, and was not answered any more.
        side.own().shadow.probed = true;
        catch_unwind(AssertUnwindSafe(|| errors::told(&side.moment(), side.flows.at(side.own), Error::TimedOut, None))).is_err()
    };
    assert_eq!([gives_up(30_000), gives_up(90_000)], [true, false]);
}

#[test]
fn probes_of_a_shut_window_back_off() {
    let probes = |pauses: &[u64]| {
        let mut side = Side::new();
        side.comes(&Segment { window: 0, ..Side::of_peer(2, IRS + 1, ISS + 1, ACK, 0) });
        side.service();
        side.writes(100);
        pauses.iter().all(|&millis| {
            side.passes(millis);
            let probe = side.out(ISS, IRS + 1, ACK, 0);
            catch_unwind(AssertUnwindSafe(|| side.sends(probe))).is_ok()
        })
    };
    assert!(probes(&[1000, 2000, 4000, 8000]));
    assert!(!probes(&[1000, 2000, 4000, 4000]));
}

#[test]
fn a_syn_that_crosses_is_answered() {
    let crossing = [segment(PEER, OWN, IRS, 0, SYN, 0)];
    let judge = |refused: bool, sent: &[Segment]| {
        let mut side = Side::new();
        side.passes(1);
        let moment = side.moment();
        let own = side.own();
        (own.una, own.nxt, own.irs) = (ISS, ISS + 1, Some(IRS));
        own.shadow.reset = refused;
        catch_unwind(AssertUnwindSafe(|| duties::answers(&moment, own, CALM, &crossing, sent))).is_ok()
    };
    assert!(!judge(false, &[]) && judge(false, &[segment(OWN, PEER, ISS, IRS + 1, SYN | ACK, 0)]));
    // Who was refused before is there no more.
    assert!(judge(true, &[]));
}

#[test]
fn errors_and_probes_have_a_cause() {
    Side::new().breaks("checker errors", |side| errors::told(&side.moment(), side.flows.at(side.own), Error::Reset, None));
    Side::new().breaks("checker errors", |side| errors::told(&side.moment(), side.flows.at(side.own), Error::TimedOut, None));
    let mut side = Side::new();
    let mut inexact = segment(PEER, OWN, IRS + 5, 0, RST, 0);
    side.service();
    side.comes(&inexact);
    assert!(!side.own().shadow.reset);
    inexact.seq = IRS + 1;
    side.comes(&inexact);
    errors::told(&side.moment(), side.flows.at(side.own), Error::Reset, None);
    // What its host asks about the peer's MAC address now holds up what is sent; what it asked before did not (as in the seed 60499277).
    let mut side = Side::new();
    side.passes(100_000);
    let (asked_at, earlier) = (side.moment().at, Instant::ZERO + Duration::from_millis(500));
    errors::told(&side.moment(), side.flows.at(side.own), Error::TimedOut, Some(asked_at));
    side.breaks("nothing was ever sent again", |side| {
        errors::told(&side.moment(), side.flows.at(side.own), Error::TimedOut, Some(earlier));
    });

    let seconds = Duration::from_secs;
    let keepalive = Some(Keepalive { idle: seconds(10), interval: seconds(2), count: 2 });
    let probe = |side: &mut Side| side.sends(side.out(ISS, IRS + 1, ACK, 0));
    let kept = || {
        let mut side = Side::configured(Config { keepalive, ..Config::default() });
        side.comes(&Side::of_peer(1, IRS + 1, ISS + 1, ACK, 0));
        side.service();
        side
    };
    Side::new().breaks("keepalive is off", probe);
    kept().breaks("of silence", probe);
    let mut side = kept();
    side.passes(10_000);
    probe(&mut side);
    side.passes(1000);
    side.breaks("probes 1s apart", probe);
    let mut side = kept();
    side.passes(10_000);
    probe(&mut side);
    side.passes(3000);
    side.breaks("probes 3s apart", probe);
    // Behind those of many connections, one may wait for the device for as long as that refuses frames: the next comes when it is due all the same.
    let waits = |first: bool, second: bool| {
        let mut side = kept();
        side.passes(10_300);
        side.own().shadow.refused = first;
        probe(&mut side);
        side.passes(if first { 1700 } else { 2300 });
        side.own().shadow.refused = second;
        probe(&mut side);
    };
    waits(true, false);
    waits(false, true);
    let mut side = kept();
    side.passes(10_300);
    probe(&mut side);
    side.passes(1700);
    side.breaks("probes 1.7s apart", probe);
    let mut side = kept();
    side.passes(8000);
    (0..2).for_each(|_| {
        side.passes(2000);
        probe(&mut side);
    });
    side.passes(2000);
    side.breaks("probe 3 without an answer", probe);
}

#[test]
fn attacks_are_challenged_once_in_an_interval() {
    let attacked = || {
        let mut side = Side::new();
        side.announces(0, 512);
        side.comes(&Side::of_peer(1, IRS + 1, ISS + 1, ACK, 0));
        side.service();
        side.passes(600);
        side
    };
    let reset = segment(PEER, OWN, IRS + 5, 0, RST, 0);
    let syn = segment(PEER, OWN, IRS + 5, 0, SYN, 0);
    let unsent = Side::of_peer(2, IRS + 1, ISS + (1 << 24), ACK, 5);
    let beyond = Side::of_peer(2, IRS + (1 << 30), ISS + 1, ACK | FIN, 5);
    let old = Side::of_peer(1u32.wrapping_sub(1 << 30), IRS + 1, ISS + 1, ACK, 5);
    let all = [(&reset, "RFC 5961 s3.2"), (&syn, "s4.2"), (&unsent, "s5.2"), (&beyond, "RFC 9293 s3.10.7.4"), (&old, "RFC 7323 s5.3")];
    for (segment, law) in all {
        attacked().breaks(law, |side| {
            side.attacked(segment);
            side.service();
        });
    }
    // One just beyond the window that was announced may have been challenged, if the window had moved on: the next need not be.
    let mut side = attacked();
    let edge = side.own().window.edge().unwrap();
    side.attacked(&self::segment(PEER, OWN, edge + 10, 0, RST, 0));
    side.service();
    side.attacked(&reset);
    side.service();
    // So may an acknowledgment that one with a newer timestamp overtook, be it by a moment (RFC 7323 s5.3; as in the seed 68193674).
    let overtaken = |later: u32| {
        let mut side = attacked();
        for value in [later, 2] {
            side.comes(&Side::of_peer(value, IRS + 1, ISS + 1, ACK, 0));
        }
        side.service();
        side.attacked(&reset);
        side.service();
    };
    overtaken(3);
    assert!(catch_unwind(|| overtaken(2)).is_err(), "none of them is older than another");
    // So may what came with the SYN, before anything was said (as in the seed 78390295).
    let began = |with: &Segment| {
        let mut side = attacked();
        let (mut strays, at) = (resets::State::default(), side.moment().at);
        strays.delivered(&self::segment(PEER, OWN, IRS, 0, SYN, 0), false);
        strays.delivered(with, false);
        if strays.has_any(side.own().tuple) {
            side.own().shadow.may_challenge(at);
        }
        side.attacked(&unsent);
        side.service();
    };
    began(&old);
    assert!(catch_unwind(|| began(&self::segment(PEER, OWN, IRS, 0, SYN, 0))).is_err(), "nothing came but SYNs");
    // Out of the window a reset is nothing (RFC 5961 s3.2).
    let mut side = attacked();
    side.attacked(&self::segment(PEER, OWN, IRS - 5, 0, RST, 0));
    side.service();
    let challenge = |side: &mut Side| {
        side.attacked(&reset);
        side.sends(side.out(ISS + 1, IRS + 1, ACK, 0));
        side.service();
    };
    challenge(&mut side);
    side.passes(100);
    side.attacked(&reset);
    side.service();
    side.passes(350);
    let again = catch_unwind(AssertUnwindSafe(|| challenge(&mut side))).unwrap_err();
    assert!(again.downcast_ref::<String>().unwrap().contains("RFC 5961 s7"));
    // What a full device refused by the last service is an answer to what came before that, and says nothing of the limit.
    let mut side = attacked();
    challenge(&mut side);
    side.passes(2);
    side.comes(&Side::of_peer(2, IRS + 100, ISS + 1, ACK, 10));
    side.service_with(Service { free: false, ..CALM });
    challenge(&mut side);
    side.passes(2);
    assert!(catch_unwind(AssertUnwindSafe(|| challenge(&mut side))).is_err(), "the device takes all now");
    let mut side = attacked();
    challenge(&mut side);
    side.passes(600);
    challenge(&mut side);
    side.passes(600);
    side.breaks("RFC 5961 s3.2", |side| {
        side.attacked(&reset);
        side.service();
    });
}
