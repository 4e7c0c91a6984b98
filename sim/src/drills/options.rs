//! Segments as other stacks write them: options in any order, beside some that nobody here knows, and flags that are none of TCP's own business
//! (RFC 9293 s3.1, s3.2).

use core::time::Duration;

use ringway_stack::ring::SendFlags;
use ringway_stack::tcp::{Config, Ecn, State};

use super::Drill;
use super::bench::{Bench, Peer, Setup};
use crate::segment::{ACK, CWR, ECE, FIN, PSH, SYN};

pub(super) const DRILLS: &[Drill] = &[("options in any order", any_order), ("options and flags beside data", beside_data)];

const STAMPS: u32 = 12;
const ETHERNET_MSS: u16 = 1460;
/// Bytes that a header's options have (RFC 9293 s3.1).
const ROOM: usize = 40;

/// An option that nobody here knows, of a few bytes (RFC 6994, and numbers that are assigned to others).
fn unknown(bench: &mut Bench) -> Vec<u8> {
    let kind = bench.pick(&[6, 14, 19, 28, 30, 34, 69, 253, 254]);
    let len = bench.between(2, 6) as u8;
    let mut option = vec![kind, len];
    option.resize(usize::from(len), 0x5a);
    option
}

/// These options in any order, with paddings and unknown ones between them, as far as there is room; and behind an end of the list what is none.
fn scattered(bench: &mut Bench, mut known: Vec<Vec<u8>>) -> Vec<u8> {
    let mut room = ROOM - known.iter().map(Vec::len).sum::<usize>();
    let mut options = Vec::new();
    while !known.is_empty() {
        if bench.chance(2) {
            let more = if bench.chance(2) { unknown(bench) } else { vec![1] };
            if more.len() <= room {
                room -= more.len();
                options.extend(more);
            }
        }
        let next = bench.below(known.len() as u64) as usize;
        options.extend(known.swap_remove(next));
    }
    if room >= 5 && bench.chance(3) {
        // The end of the list: an MSS behind it is padding.
        options.extend([0, 2, 4, 0, 200]);
    }
    let padding = if bench.chance(2) { 0 } else { 1 };
    options.resize(options.len().next_multiple_of(4), padding);
    options
}

/// The options of the peer's SYN, one by one.
fn of_syn(bench: &mut Bench, setup: &Setup, echo: u32) -> Vec<u8> {
    let mut known = vec![[&[2, 4][..], &setup.mss.to_be_bytes()].concat()];
    if let Some(scale) = setup.scale {
        known.push(vec![3, 3, scale]);
    }
    if setup.sack {
        known.push(vec![4, 2]);
    }
    if setup.stamps {
        known.push(stamp(bench.clock(), echo));
    }
    scattered(bench, known)
}

fn stamp(value: u32, echo: u32) -> Vec<u8> {
    [&[8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

/// A connection whose peer's SYN has its options in any order.
fn open(bench: &mut Bench, setup: &Setup) -> Peer {
    let setup = &Setup { config: Config { ecn: Ecn::Off, ..setup.config.clone() }, ..setup.clone() };
    if !setup.passive {
        let mut peer = bench.begin(setup);
        let options = of_syn(bench, setup, peer.echo);
        // (A peer that does not speak of congestion may set whatever it likes.)
        let flags = SYN | ACK | bench.pick(&[0, ECE]);
        bench.queue((peer.remote, peer.local), peer.iss, peer.rcv, flags, setup.window, &options, &[]);
        peer.nxt = peer.iss.wrapping_add(1);
        let ack = bench.one("RFC 9293 s3.10.7.3: a SYN-ACK");
        bench.is_ack(&ack, &peer, "RFC 9293 s3.10.7.3: a SYN-ACK is acknowledged");
        bench.note_window(&mut peer, &ack);
        return peer;
    }
    let listener = bench.listen(16, &setup.config);
    let (local, remote) = bench.addresses(true);
    let (iss, options) = (bench.below(1 << 32) as u32, of_syn(bench, setup, 0));
    let sent = bench.clock();
    // RFC 3168 s6.1.1: a SYN that asks whether we speak of congestion is a SYN.
    let flags = SYN | bench.pick(&[0, ECE | CWR]);
    bench.queue((remote, local), iss, 0, flags, setup.window, &options, &[]);
    let answer = bench.one("RFC 9293 s3.10.7.2, s3.2: a SYN for a listener, whatever its options");
    bench.must(answer.flags & !PSH == SYN | ACK, "RFC 9293 s3.10.7.2, RFC 3168 s6.1.1: a SYN is answered by a SYN-ACK");
    let (offered, config) = (&answer.options, &setup.config);
    let stamps = setup.stamps && config.timestamps;
    let echoed = offered.timestamps.map(|(_, echo)| echo);
    bench.must(echoed == stamps.then_some(sent), format_args!("RFC 7323 s3.2: {echoed:?} echoed of a SYN with {options:?}"));
    let scales = setup.scale.is_some() && config.window_scaling;
    bench.must(offered.scale.is_some() == scales, format_args!("RFC 7323 s2.2: {:?} for a SYN with {options:?}", offered.scale));
    let sack = setup.sack && config.sack;
    bench.must(offered.sack_permitted == sack, format_args!("RFC 2018 s2: {} for a SYN with {options:?}", offered.sack_permitted));
    let mut peer = Peer {
        local,
        remote,
        socket: None,
        nxt: iss.wrapping_add(1),
        iss,
        rcv: answer.end(),
        irs: answer.seq,
        window: setup.window,
        scale: setup.scale.filter(|_| scales).unwrap_or(0),
        stack_scale: offered.scale.filter(|_| scales).unwrap_or(0),
        stamps,
        sack,
        mss: u32::from(setup.mss) - if stamps { STAMPS } else { 0 },
        echo: offered.timestamps.map_or(0, |(value, _)| value),
        syn_window: answer.window,
        edge: iss.wrapping_add(1).wrapping_add(u32::from(answer.window)),
    };
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.take();
    peer.socket = bench.ring.tcp_accept(listener).ok();
    bench.must(peer.socket.is_some(), "accept(2): a connection whose handshake is over");
    peer
}

/// The first full segment that the stack sends has this many bytes.
fn sends_full(bench: &mut Bench, peer: &mut Peer, law: &str) {
    let before = peer.rcv;
    let written = before.wrapping_sub(peer.irs) as usize - 1;
    bench.write(peer, written, 3 * peer.mss as usize, SendFlags::empty());
    let all = bench.take();
    let first = all.first().map(|heard| heard.len());
    bench.must(first == Some(peer.mss), format_args!("{law}: {first:?} bytes in a full segment, and {} are to be", peer.mss));
    all.iter().for_each(|heard| bench.take_in(peer, heard));
    bench.give(peer, peer.nxt, peer.rcv, ACK, 0);
    bench.receive(peer);
    bench.give(peer, peer.nxt, peer.rcv, ACK, 0);
    bench.take();
}

/// RFC 9293 s3.1, s3.2 (MUST-4, MUST-6): each option counts wherever it stands, and what is not known is passed over; so is what follows the list's end.
fn any_order(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.mss = bench.pick(&[300, 536, 1000, ETHERNET_MSS]);
    let mut peer = open(bench, &setup);
    sends_full(bench, &mut peer, "RFC 9293 s3.7.1: an MSS that stands among other options");
    bench.ring.close(bench.now, peer.id(), true);
}

/// What stands beside data: RFC 9293 s3.1 (reserved bits are ignored, and so are flags of mechanisms that are not in use), s3.2 (MUST-5, MUST-6, MUST-7: any
/// segment may have options, those of SYNs mean nothing elsewhere, and lengths that lead nowhere do no harm).
fn beside_data(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.mss = 1000;
    let mut peer = open(bench, &setup);
    let mut waiting = 0;
    for _ in 0..4 {
        bench.pass(Duration::from_millis(7));
        let value = bench.clock();
        let mut known = Vec::new();
        if peer.stamps {
            known.push(stamp(value, peer.echo));
        }
        match bench.below(5) {
            0 => known.push(vec![2, 4, 1, 0]),
            1 => known.push(vec![3, 3, 0]),
            2 => known.push(vec![4, 2]),
            _ => {}
        }
        let mut options = scattered(bench, known);
        let broken = options.len() + 4 <= ROOM && bench.chance(3) && !options.contains(&0);
        if broken {
            options.extend(bench.pick(&[[254, 0, 1, 1], [254, 1, 1, 1], [254, 40, 1, 1], [1, 1, 1, 8]]));
        }
        let flags = ACK | bench.pick(&[0, PSH]) | bench.pick(&[0, ECE, CWR, ECE | CWR]);
        let len = bench.between(1, 200) as u32;
        let first = peer.nxt.wrapping_sub(peer.iss).wrapping_sub(1);
        let payload = super::bench::bytes_at(first, len as usize);
        bench.queue((peer.remote, peer.local), peer.nxt, peer.rcv, flags, peer.window, &options, &payload);
        peer.nxt = peer.nxt.wrapping_add(len);
        waiting += len as usize;
        let law = "RFC 9293 s3.1, s3.2: bytes beside options and flags";
        let Some(ack) = bench.await_segment(setup.config.delayed_ack + super::bench::TICK) else {
            return bench.must(false, format_args!("{law}: nothing acknowledges them (options {options:?}, flags {flags:#x})"));
        };
        bench.is_ack(&ack, &peer, law);
        bench.must(ack.flags & (ECE | CWR) == 0, "RFC 3168 s6.1: congestion is spoken of, and nobody agreed to that");
        if peer.stamps {
            let echoed = ack.options.timestamps.map(|(_, echo)| echo);
            bench.must(echoed == Some(value), format_args!("RFC 7323 s4.3: {echoed:?} echoed of {value}, with options {options:?}"));
        }
        let found = bench.ring.info(peer.id()).map_or(0, |info| info.recv_queue);
        bench.must(found == waiting, format_args!("{law}: {found} bytes wait of {waiting} (options {options:?}, flags {flags:#x})"));
        bench.note_window(&mut peer, &ack);
        bench.take();
    }
    sends_full(bench, &mut peer, "RFC 9293 s3.7.1, RFC 7323 s2.2: an MSS, or a scale, in a segment that is no SYN");
    let options = if peer.stamps { [vec![1, 1], stamp(bench.clock(), peer.echo)].concat() } else { Vec::new() };
    let flags = ACK | FIN | bench.pick(&[0, ECE, CWR]);
    bench.queue((peer.remote, peer.local), peer.nxt, peer.rcv, flags, peer.window, &options, &[]);
    bench.take();
    let state = bench.state(&peer);
    bench.must(state == Some(State::CloseWait), format_args!("RFC 9293 s3.10.7.4: {state:?} after a FIN with flags {flags:#x}"));
    bench.ring.close(bench.now, peer.id(), true);
}
