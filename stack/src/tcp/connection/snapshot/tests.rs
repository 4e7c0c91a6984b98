use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::tcp::test_util::{TestRx, TestTx};

fn snapshot() -> Snapshot {
    Snapshot {
        state: State::CloseWait,
        flags: TIMESTAMPS | PEER_FIN,
        peer_mss: 1400,
        path_mss: 1300,
        send_scale: 7,
        receive_scale: 3,
        snd_una: SeqNumber(0xffff_fffe),
        snd_nxt: SeqNumber(1),
        written: SeqNumber(3),
        snd_small: SeqNumber(1),
        snd_wl1: SeqNumber(77),
        snd_wl2: SeqNumber(0xffff_fffe),
        snd_wnd: 65_535 << 7,
        snd_wnd_max: 65_535 << 7,
        rcv_nxt: SeqNumber(90),
        rcv_adv: SeqNumber(100),
        rcv_wup: SeqNumber(88),
        clock: 5,
        ts_recent: 6,
        ts_recent_age_ms: 7,
        srtt_ns: 1 << 33,
        var_ns: 9,
        unacknowledged: b"bytes".to_vec(),
        unread: b"more of them".to_vec(),
    }
}

#[test]
fn a_connection_survives_as_bytes() {
    assert_eq!(Snapshot::from_bytes(&snapshot().to_bytes()), Some(snapshot()));
}

#[test]
fn nothing_else_is_taken_for_one() {
    let good = snapshot().to_bytes();
    for len in 0..good.len() {
        assert_eq!(Snapshot::from_bytes(&good[..len]), None, "cut at {len}");
    }
    let wrong: [fn(&mut Snapshot); 7] = [
        |s| s.flags |= FIN_QUEUED,
        |s| s.flags &= !PEER_FIN,
        |s| s.snd_nxt = SeqNumber(4),
        |s| s.snd_nxt = SeqNumber(0xffff_fffd),
        |s| s.written = SeqNumber(4),
        |s| s.rcv_adv = SeqNumber(89),
        |s| s.peer_mss = 3,
    ];
    for change in wrong {
        let mut other = snapshot();
        change(&mut other);
        assert_eq!(Snapshot::from_bytes(&other.to_bytes()), None, "{other:?}");
    }
}

/// Any that can be.
fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let numbers = (any::<u32>(), any::<u32>(), 0..=100_000u32, any::<[u32; 5]>(), any::<[u32; 4]>());
    let queues = (vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..300));
    (0..STATES.len(), 0..8u32, numbers, queues).prop_map(|(state, flags, (una, nxt, open, any, more), (unacknowledged, unread))| {
        let state = STATES[state];
        let fin = matches!(state, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck);
        let peer_fin = matches!(state, State::CloseWait | State::Closing | State::LastAck);
        let flag = |set, flag| if set { flag } else { 0 };
        let unacknowledged = if state == State::FinWait2 { Vec::new() } else { unacknowledged };
        let acknowledged_fin = u32::from(state == State::FinWait2);
        let sent = nxt % (unacknowledged.len() as u32 + u32::from(fin) - acknowledged_fin + 1);
        Snapshot {
            state,
            flags: flags | flag(fin, FIN_QUEUED) | flag(peer_fin, PEER_FIN) | flag(any[0] & 1 != 0, READ_SHUT),
            peer_mss: Config::MSS_MIN + (any[1] % 9000) as u16,
            path_mss: any[2] as u16,
            send_scale: (any[3] % (SCALE_MAX + 1)) as u8,
            receive_scale: (any[4] % (SCALE_MAX + 1)) as u8,
            snd_una: SeqNumber(una),
            snd_nxt: SeqNumber(una.wrapping_add(sent)),
            written: SeqNumber(una.wrapping_add(unacknowledged.len() as u32).wrapping_sub(acknowledged_fin)),
            snd_small: SeqNumber(una),
            snd_wl1: SeqNumber(more[0]),
            snd_wl2: SeqNumber(una),
            snd_wnd: more[1] % (65_536 << SCALE_MAX),
            snd_wnd_max: more[1] % (65_536 << SCALE_MAX),
            rcv_nxt: SeqNumber(nxt),
            rcv_adv: SeqNumber(nxt.wrapping_add(open)),
            rcv_wup: SeqNumber(nxt),
            clock: more[2],
            ts_recent: more[3],
            ts_recent_age_ms: more[0],
            srtt_ns: u64::from(more[0]) << 12,
            var_ns: u64::from(more[1]) << 12,
            unacknowledged,
            unread,
        }
    })
}

/// A connection that goes on with it, and lives for a while with nobody at its other end.
fn live_with(snapshot: &Snapshot) {
    let mut now = Instant::from_nanos(5_000_000_000);
    let mut alloc = |len: usize| Some(TestTx::new(len.clamp(1, 4096)));
    let resumed = Connection::<TestRx, TestTx>::resume(now, &Config::default(), (80, 4000), snapshot, &mut alloc);
    let mut connection = resumed.expect("there are buffers");
    assert!(!connection.wants_transmit(), "it says nothing by itself");
    assert_eq!(connection.available(), snapshot.unread.len());
    assert_eq!(connection.send_queue(), snapshot.unacknowledged.len());
    connection.go_on_elsewhere(now);
    for _ in 0..8 {
        connection.poll_transmit(now, &mut |segment| {
            assert!(segment.header.seq.le(snapshot.written + 1usize), "nothing is sent that was not written");
            Ok(())
        });
        let Some(deadline) = connection.deadline() else { break };
        now = deadline.max(now);
        connection.on_timer(now);
    }
}

proptest! {
    #[test]
    fn any_connection_survives_as_bytes(snapshot in any_snapshot()) {
        let read = Snapshot::from_bytes(&snapshot.to_bytes());
        prop_assert_eq!(read.as_ref(), Some(&snapshot));
        live_with(&snapshot);
        // And once more, from the connection.
        let now = Instant::from_nanos(7_000_000);
        let mut alloc = |len: usize| Some(TestTx::new(len.clamp(1, 4096)));
        let resumed = Connection::<TestRx, TestTx>::resume(now, &Config::default(), (80, 4000), &snapshot, &mut alloc).expect("there are buffers");
        let again = resumed.snapshot(now).expect("nothing is borrowed");
        let known = |snapshot: &Snapshot| Snapshot { ts_recent_age_ms: 0, srtt_ns: 0, var_ns: 0, ..snapshot.clone() };
        prop_assert_eq!(known(&again), known(&snapshot));
    }

    #[test]
    fn garbage_is_refused_or_harmless(bytes in vec(any::<u8>(), 0..400)) {
        if let Some(snapshot) = Snapshot::from_bytes(&bytes) {
            live_with(&snapshot);
        }
    }

    #[test]
    fn what_is_almost_a_connection_is_refused_or_harmless(snapshot in any_snapshot(), changes in vec((0..27usize, any::<u32>(), 0..32u32), 1..4)) {
        let mut bytes = snapshot.to_bytes();
        for (word, value, shift) in changes {
            bytes[word * 4..word * 4 + 4].copy_from_slice(&(value >> shift).to_le_bytes());
        }
        if let Some(snapshot) = Snapshot::from_bytes(&bytes) {
            live_with(&snapshot);
        }
    }
}
