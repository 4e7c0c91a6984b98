use core::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::tcp::congestion::{Algorithm, Beginning, Congestion, CongestionControl as _, Selected};
use crate::tcp::connection::Phase;
use crate::tcp::connection::tail::TailProbe;
use crate::tcp::fields::Fields;
use crate::tcp::records::{Arrived, Records};
use crate::tcp::test_util::{TestRx, TestTx};
use crate::tcp::timers::Timer;
use crate::tcp::{Config, Keepalive};
use crate::time::Instant;

fn range(start: u32, end: u32) -> SackBlock {
    SackBlock { start: SeqNumber(start), end: SeqNumber(end) }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A window that reaches so far. (How large its buffer may become is the configuration's.)
fn window(nxt: u32, adv: u32, scale: u8) -> ReceiveWindow {
    let mut window = ReceiveWindow::new(at(4000), (64 << 10, 0));
    window.start(SeqNumber(nxt));
    (window.adv, window.scale) = (SeqNumber(adv), scale);
    window
}

/// Of five bytes in flight, some of which were sent again or reported.
fn flight() -> Flight {
    let number = |at: u32| SeqNumber(0xffff_fffe_u32.wrapping_add(at));
    let mut records = Records::default();
    records.push(at(4100), (number(0), number(2)), 0, 1400);
    records.push(at(4101), (number(2), number(5)), 2, 1400);
    records.report(at(4200), (number(4), number(5)), 1400, &crate::tcp::rtt::Rtt::new(), &mut Arrived::default());
    records.resend(at(4201), (number(0), number(1)), 4, 1400);
    records.look_from(number(0));
    records.lose(number(3), 1400);
    records.written()
}

/// A controller after a loss with so much in flight.
fn after_loss(algorithm: Algorithm, flight: u64) -> Selected {
    let mut congestion = algorithm.begin(&Beginning { mss: u64::from(Config::MSS_MIN), ..Beginning::default() });
    congestion.on_congestion(&Congestion { now: at(4000), flight, sacked: flight / 3, delivered: 7, ..Congestion::default() });
    congestion
}

fn held(blocks: Vec<SackBlock>, fin: Option<SeqNumber>) -> Option<Held> {
    let mut held = Held::default();
    (held.blocks, held.fin) = (blocks, fin);
    Some(held)
}

/// Something in each of its fields.
fn snapshot() -> Snapshot {
    let mut variables = Variables::blank();
    variables.state = State::FinWait1;
    variables.agreement =
        Agreement { peer_mss: 1400, send_scale: 7, receive_scale: 3, scaling: true, timestamps: true, sack: true, ecn: true, echoes: true };
    variables.path = Path { mss: 1300, oversized: Some(SeqNumber(2)) };
    variables.sending = Sending {
        snd_una: SeqNumber(0xffff_fffe),
        snd_nxt: SeqNumber(3),
        written: SeqNumber(3),
        snd_small: SeqNumber(1),
        snd_wl1: SeqNumber(77),
        snd_wl2: SeqNumber(0xffff_fffe),
        snd_wnd: 65_535 << 14,
        snd_wnd_max: 65_535 << 14,
    };
    variables.window = window(90, 120, 3);
    variables.clock = Clock { ts_offset: 5, ts_recent: 6, ts_recent_known: true, ts_recent_at: at(4000) };
    variables.silence.last_rx = at(4990);
    variables.silence.challenge_at = at(5001);
    variables.timers.set(Timer::Retransmit, at(5300));
    variables.timers.set(Timer::Keepalive, at(9_000_000));
    variables.timers.take_sooner();
    variables.congestion = after_loss(Algorithm::Cubic, 20_000);
    variables.loss = Loss {
        phase: Phase::Recovery,
        recover: SeqNumber(3),
        high_rxt: SeqNumber(0),
        partially_acked: true,
        went_elsewhere: true,
        retransmit_now: false,
        tail_probe: TailProbe::None,
        dupacks: 3,
        retries: 2,
    };
    variables.reported = vec![range(0, 1), range(2, 3)];
    variables.flight = flight();
    (variables.flight.una_at, variables.flight.limited_at, variables.flight.pace_at) = (1 << 40, 5, at(4321));
    variables.held = held(vec![range(92, 94), range(100, 103)], Some(SeqNumber(110)));
    variables.flags = Flags { fin_queued: true, more: true, soft_error: Some(Error::HostUnreachable), starved: 4, ..Flags::default() };
    let user_timeout = Some(Duration::from_millis(3001));
    variables.options =
        SocketOptions { keepalive: Some(Keepalive::default()), user_timeout, ttl: 7, rcvbuf: Some(5000), ..SocketOptions::default() };
    variables.counters.rx_bytes = 1 << 40;
    Snapshot { variables, unacknowledged: b"bytes".to_vec(), unread: b"more of them".to_vec(), held: b"12345".to_vec() }
}

#[test]
fn a_connection_survives_as_bytes() {
    assert_eq!(Snapshot::from_bytes(&snapshot().to_bytes()), Ok(snapshot()));
}

#[test]
fn nothing_else_is_taken_for_one() {
    let good = snapshot().to_bytes();
    for len in 0..good.len() {
        assert_eq!(Snapshot::from_bytes(&good[..len]), Err(SnapshotError::Length), "cut at {len}");
    }
    assert_eq!(Snapshot::from_bytes(&[&good[..], &[0]].concat()), Err(SnapshotError::Length));
    let mut older = good.clone();
    older[0] = 2;
    assert_eq!(Snapshot::from_bytes(&older), Err(SnapshotError::Version(2)));
    let mut strange = good;
    strange[4] = 99;
    assert_eq!(Snapshot::from_bytes(&strange), Err(SnapshotError::Value), "there is no such state");
    let wrong: [fn(&mut Variables); 19] = [
        |v| v.flags.fin_queued = false,
        |v| v.flags.peer_fin = true,
        |v| v.flags.peer_exited = true,
        |v| v.sending.snd_nxt = SeqNumber(5),
        |v| v.sending.snd_nxt = SeqNumber(0xffff_fffd),
        |v| v.sending.written = SeqNumber(4),
        |v| v.window.adv = SeqNumber(89),
        |v| v.window.adv = SeqNumber(91 + (1 << 30)),
        |v| v.agreement.peer_mss = 3,
        |v| v.agreement.send_scale = 15,
        |v| v.acks.peer_mss = 0,
        |v| v.reported = vec![range(0, 1), range(1, 3)],
        |v| v.reported = vec![range(0, 4)],
        |v| v.held = held(vec![range(90, 95)], None),
        |v| v.held = held(vec![range(92, 94), range(118, 121)], None),
        |v| v.held = held(vec![range(92, 94), range(100, 103)], Some(SeqNumber(102))),
        |v| v.held = None,
        |v| v.loss.recover = SeqNumber(4),
        |v| v.flight = Flight::of_unknown((SeqNumber(1), SeqNumber(4)), at(4000)),
    ];
    for (at, change) in wrong.into_iter().enumerate() {
        let mut other = snapshot();
        change(&mut other.variables);
        assert_eq!(Snapshot::from_bytes(&other.to_bytes()), Err(SnapshotError::Inconsistent), "change {at}: {other:?}");
    }
}

#[test]
fn what_is_said_to_follow_takes_no_memory_before_it_does() {
    for count in [257, u32::MAX] {
        let (mut ranges, bytes) = (Vec::new(), count.to_le_bytes());
        assert_eq!(Reader(&bytes).ranges(&mut ranges, 256), Err(SnapshotError::Value));
        assert_eq!(ranges.capacity(), 0);
    }
    assert_eq!(Reader(&[0; 100]).bytes(u32::MAX), Err(SnapshotError::Length));
}

#[test]
fn it_is_small() {
    let mut least = Snapshot { unacknowledged: Vec::new(), unread: Vec::new(), held: Vec::new(), ..snapshot() };
    least.variables.held = None;
    least.variables.reported.clear();
    least.variables.flight = Flight::default();
    let variables = least.to_bytes().len();
    assert!(variables <= 1000, "{variables} bytes of a connection at rest");
    // As many gaps as are kept track of, on either side.
    least.variables.reported = vec![range(0, 1); 256];
    least.variables.held = held(vec![range(0, 1); 256], None);
    let most = least.to_bytes().len();
    assert!(most <= variables + 2 * 256 * 8 + 64, "{most} bytes of the worst");
}

/// Any that can be.
fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let numbers = (any::<u32>(), any::<u32>(), 1000..=100_000u32, any::<[u32; 5]>(), any::<[u32; 8]>());
    let queues = (vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..300), vec(any::<u8>(), 4..100));
    (0..STATES.len(), any::<[bool; 12]>(), numbers, queues).prop_map(
        |(state, is, (una, nxt, open, any, more), (unacknowledged, unread, held_bytes))| {
            let state = STATES[state];
            let mut variables = Variables::blank();
            variables.state = state;
            let fin = matches!(state, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck);
            let is_acknowledged = state == State::FinWait2;
            let unacknowledged = if is_acknowledged { Vec::new() } else { unacknowledged };
            let sent = any[0] % (unacknowledged.len() as u32 + u32::from(fin && !is_acknowledged) + 1);
            let receive_scale = (any[1] % 15) as u8;
            variables.agreement = Agreement {
                peer_mss: 88 + (any[2] % 9000) as u16,
                send_scale: (any[3] % 15) as u8,
                receive_scale,
                scaling: true,
                timestamps: is[1],
                sack: is[2],
                ecn: is[0],
                echoes: is[1],
            };
            if is[3] {
                variables.path = Path { mss: (any[4] % 65_535) as u16, oversized: is[0].then_some(SeqNumber(una.wrapping_add(sent))) };
            }
            variables.sending = Sending {
                snd_una: SeqNumber(una),
                snd_nxt: SeqNumber(una.wrapping_add(sent)),
                written: SeqNumber(una.wrapping_add(unacknowledged.len() as u32).wrapping_sub(u32::from(is_acknowledged))),
                snd_small: SeqNumber(una),
                snd_wl1: SeqNumber(more[1]),
                snd_wl2: SeqNumber(una),
                snd_wnd: more[2] % (1 << 30),
                snd_wnd_max: more[2] % (1 << 30),
            };
            variables.window = window(nxt, nxt.wrapping_add(open), receive_scale);
            variables.clock = Clock {
                ts_offset: more[3],
                ts_recent: more[4],
                ts_recent_known: more[4] % 2 == 0,
                ts_recent_at: at(u64::from(more[5] % 5000)),
            };
            variables.silence.last_rx = at(u64::from(more[6] % 5000));
            variables.silence.unanswered_probes = more[7] % 10;
            variables.timers.set(Timer::Retransmit, at(5000 + u64::from(any[1] % 100_000)));
            variables.timers.take_sooner();
            variables.congestion = after_loss(Algorithm::ALL[(more[5] % 3) as usize], u64::from(20_000 + any[2] % 1_000_000));
            if sent > 3 {
                variables.reported = vec![range(una.wrapping_add(1), una.wrapping_add(sent.min(3)))];
                variables.loss.phase = if is[4] { Phase::Recovery } else { Phase::Loss };
                (variables.loss.recover, variables.loss.high_rxt) = (variables.sending.snd_nxt, SeqNumber(una));
            }
            let held_bytes = if state.receives() { held_bytes } else { Vec::new() };
            if let Some(rest) = held_bytes.len().checked_sub(2) {
                let first = nxt.wrapping_add(5);
                let last = range(first.wrapping_add(9), first.wrapping_add(9 + rest as u32));
                variables.held = held(vec![range(first, first.wrapping_add(2)), last], None);
            }
            variables.flags = Flags {
                fin_queued: fin,
                peer_fin: matches!(state, State::CloseWait | State::Closing | State::LastAck),
                read_shut: is[5],
                tx_pending: is[6],
                more: is[7],
                push: is[8],
                probe_due: is[9],
                held: is[10],
                ..Flags::default()
            };
            variables.options.nodelay = is[11];
            variables.counters.tx_bytes = u64::from(any[3]);
            Snapshot { variables, unacknowledged, unread, held: held_bytes }
        },
    )
}

/// A connection that goes on with it, `elsewhere` or where it was, and lives for a while with nobody at its other end.
fn live_with(snapshot: &Snapshot, elsewhere: bool) {
    let mut now = at(5000);
    let mut alloc = |len: usize| Some(TestTx::new(len.clamp(1, 4096)));
    let resumed = Connection::<TestRx, TestTx>::resume(now, &Config::default(), (80, 4000), snapshot, &mut alloc);
    let mut connection = resumed.expect("there are buffers");
    assert_eq!(connection.available(), snapshot.unread.len());
    assert_eq!(connection.send_queue(), snapshot.unacknowledged.len());
    if elsewhere {
        connection.go_on_elsewhere(now);
    }
    for _ in 0..8 {
        connection.poll_transmit(now, &mut |segment| {
            assert!(segment.header.seq.le(snapshot.variables.sending.written + 1usize), "nothing is sent that was not written");
            Ok(())
        });
        let Some(deadline) = connection.deadline() else { break };
        now = deadline.max(now);
        connection.on_timer(now);
    }
}

proptest! {
    #[test]
    fn any_connection_survives_as_bytes(snapshot in any_snapshot(), elsewhere in any::<bool>()) {
        let read = Snapshot::from_bytes(&snapshot.to_bytes());
        prop_assert_eq!(read.as_ref(), Ok(&snapshot));
        live_with(&snapshot, elsewhere);
        // And once more, from the connection.
        let mut alloc = |len: usize| Some(TestTx::new(len.clamp(1, 4096)));
        let config = Config::default();
        let resumed = Connection::<TestRx, TestTx>::resume(at(5000), &config, (80, 4000), &snapshot, &mut alloc).expect("there are buffers");
        let again = resumed.snapshot().expect("nothing is borrowed");
        prop_assert_eq!(Snapshot::from_bytes(&again.to_bytes()), Ok(snapshot));
    }

    #[test]
    fn garbage_is_refused_or_harmless(bytes in vec(any::<u8>(), 0..1000), elsewhere in any::<bool>()) {
        let mut bytes = bytes;
        if let Some(version) = bytes.first_chunk_mut() {
            *version = VERSION.to_le_bytes();
        }
        if let Ok(snapshot) = Snapshot::from_bytes(&bytes) {
            live_with(&snapshot, elsewhere);
        }
    }

    #[test]
    fn what_is_almost_a_connection_is_refused_or_harmless(
        snapshot in any_snapshot(),
        changes in vec((any::<proptest::sample::Index>(), any::<u32>(), 0..32u32), 1..4),
        elsewhere in any::<bool>(),
    ) {
        let queues = snapshot.unacknowledged.len() + snapshot.unread.len() + snapshot.held.len();
        let mut bytes = snapshot.to_bytes();
        let words = (bytes.len() - queues) / 4;
        for (word, value, shift) in changes {
            let at = word.index(words) * 4;
            bytes[at..at + 4].copy_from_slice(&(value >> shift).to_le_bytes());
        }
        if let Ok(snapshot) = Snapshot::from_bytes(&bytes) {
            live_with(&snapshot, elsewhere);
        }
    }
}
