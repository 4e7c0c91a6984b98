//! Memory of a connection: send buffers that are given back, a receive buffer that grows (tcp(7)).

use core::time::Duration;

use ringway_stack::ring::SendFlags;

use super::Drill;
use super::bench::{Bench, TICK};
use super::sending::roomy;
use crate::heap::BUFFER_BYTES;
use crate::segment::{ACK, before};

pub(super) const DRILLS: &[Drill] = &[("send buffers that are acknowledged", given_back), ("a window that a reader earns", earned)];

/// Windows that a reader empties, each at once, until its buffer must be as large as it may become.
const ROUNDS: usize = 12;

/// The device's send buffers are few: one whose bytes are acknowledged, all of them, is the device's again, whatever follows it.
fn given_back(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let mut written = 0;
    let total = bench.between(1, 60) as usize * 1000;
    while written < total {
        let len = bench.between(1, 9000) as usize;
        written += bench.write(&peer, written, len.min(total - written), SendFlags::empty());
        bench.receive(&mut peer);
    }
    let mut una = peer.irs.wrapping_add(1);
    while una != peer.irs.wrapping_add(1).wrapping_add(total as u32) {
        let flight = peer.rcv.wrapping_sub(una);
        una = una.wrapping_add(bench.between(1, u64::from(flight)) as u32);
        bench.give(&peer, peer.nxt, una, ACK, 0);
        bench.receive(&mut peer);
        let left = total - (una.wrapping_sub(peer.irs) as usize - 1);
        let (held, most) = (bench.wire.borrow().buffers.get(), left.div_ceil(BUFFER_BYTES) + 2);
        bench.must(held <= most, format_args!("{held} send buffers are held for {left} bytes, each of which has {BUFFER_BYTES}"));
        let queue = bench.ring.info(peer.id()).map_or(0, |info| info.send_queue);
        bench.must(queue == left, format_args!("tcp(7), SIOCOUTQ: {queue} bytes, and {left} are not acknowledged"));
    }
    bench.pass(Duration::from_secs(3));
    let held = bench.wire.borrow().buffers.get();
    bench.must(held == 0, format_args!("{held} send buffers are held by a connection that has nothing to send"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// tcp(7), tcp_moderate_rcvbuf: where a reader keeps up and the peer fills each window, the window becomes as large as it may.
fn earned(bench: &mut Bench) {
    let mut setup = bench.setup();
    let most = bench.between(40_000, 100_000) as usize;
    (setup.config.rcvbuf, setup.config.rcvbuf_initial, setup.config.rcvbuf_max) = (None, 16_000, 2 * most);
    (setup.mss, setup.config.mss_max, setup.config.window_scaling) = (1460, 1460, true);
    setup.scale = Some(5);
    let mut peer = bench.connect(&setup);
    let mut window = 0;
    for _ in 0..ROUNDS {
        window = 0;
        while before(peer.nxt, peer.edge) {
            let len = peer.edge.wrapping_sub(peer.nxt).min(1400);
            bench.give(&peer, peer.nxt, peer.rcv, ACK, len);
            peer.nxt = peer.nxt.wrapping_add(len);
            window += len as usize;
        }
        bench.take();
        bench.pass(Duration::from_millis(2));
        let read = bench.read(&peer, window).unwrap_or(0);
        bench.must(read == window, format_args!("recv(2): {read} of {window} bytes"));
        bench.pass(setup.config.delayed_ack + TICK);
        for heard in bench.take() {
            bench.note_window(&mut peer, &heard);
        }
    }
    bench.must(
        window + (2 << peer.stack_scale) >= most,
        format_args!(
            "tcp(7), tcp_moderate_rcvbuf: a window of {window} after {ROUNDS} that were filled and read at once, and {most} may be"
        ),
    );
    bench.ring.close(bench.now, peer.id(), true);
}
