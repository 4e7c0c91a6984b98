//! A connection's bytes, which another process wrote, or anybody.

use core::time::Duration;
use std::io::IoSliceMut;

use super::connection::connection_after;
use super::{Bytes, payload_of};
use crate::tcp::test_util::{TestRx, TestTx};
use crate::tcp::{Config, Connection, RxPayload, Snapshot};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

/// Of the input's bytes, so many after the first say what is done with the connection.
const PROGRAM: usize = 24;
/// And so many what is changed: twice a place, and what is there instead.
const CHANGES: usize = 9;

pub(crate) fn snapshot(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    let Some((program, rest)) = rest.split_at_checked(PROGRAM) else { return };
    if how & 1 == 0 {
        return read(rest, program);
    }
    let Some((changes, rest)) = rest.split_at_checked(CHANGES) else { return };
    let Some(snapshot) = connection_after(rest).snapshot() else { return };
    let mut written = snapshot.to_bytes();
    for change in changes.chunks_exact(3).take(usize::from(how >> 1 & 3)) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % written.len();
        written[place] = change[2];
    }
    read(&written, program);
}

fn read(written: &[u8], program: &[u8]) {
    let Ok(snapshot) = Snapshot::from_bytes(written) else { return };
    snapshot.check_written(written);
    let now = Instant::from_nanos(6_000_000_000);
    let block = snapshot.control_block(now);
    let _ = (block.peer_ended(), block.fin_sent(), block.sent_and_unsent(), block.timestamp_at(now));
    go_on(now, &snapshot, &mut Bytes::new(program));
}

/// It does something; what, is the snapshot's. Nothing of it is a panic.
fn go_on(mut now: Instant, snapshot: &Snapshot, program: &mut Bytes<'_>) {
    let mut alloc = |len: usize| Some(TestTx::new(len.clamp(1, 1 << 16)));
    let Ok(mut conn) = Connection::<TestRx, TestTx>::resume(now, &Config::default(), (80, 40_000), snapshot, &mut alloc) else { return };
    if let Some(moved) = conn.snapshot() {
        let written = moved.to_bytes();
        match Snapshot::from_bytes(&written) {
            Ok(read) => read.check_written(&written),
            Err(error) => panic!("what goes on can be written down: {error:?}, {moved:?}"),
        }
    }
    while !program.is_empty() {
        match program.byte() % 8 {
            0 | 1 => {
                let mut room = 64;
                conn.poll_transmit(now, &mut |segment| {
                    payload_of(segment);
                    room -= 1;
                    if room == 0 { Err(crate::device::SendError::Full) } else { Ok(()) }
                });
            }
            2 => now += Duration::from_millis(u64::from(program.byte()) * 20),
            3 => {
                if let Some(due) = conn.deadline() {
                    now = now.max(due.min(now + Duration::from_secs(3600)));
                    conn.on_timer(now);
                }
            }
            4 => {
                let mut out = [0; 1500];
                let _ = conn.read(now, &mut [IoSliceMut::new(&mut out)], false);
            }
            5 => {
                let data = [program.byte(); 700];
                let _ = conn.write(now, &[std::io::IoSlice::new(&data)], false, &mut alloc);
            }
            kind => {
                let (una, nxt, rcv_nxt, _) = conn.numbers();
                let ack = if kind == 6 { nxt } else { SeqNumber(una.0.wrapping_add(program.near())) };
                let seq = SeqNumber(rcv_nxt.0.wrapping_add(program.near()));
                let header = Header { src_port: 40_000, dst_port: 80, seq, ack, flags: Flags::ACK, window: 5000, ..Header::default() };
                let payload = [7; 100];
                conn.on_segment(now, &header, RxPayload { head: &payload[..usize::from(kind == 7) * 100], frame: None, body: None });
            }
        }
    }
}
