//! Fast Open (RFC 7413): cookies that a listener gives and takes, bytes in SYNs, how many connections may be under way, and what who connects makes of it all.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::ring::{EarlyData, FlowId, NextHop, RecvFlags, SendFlags};
use ringway_stack::tcp::{Config, FastOpen, FastOpenKeys, State};

use super::Drill;
use super::bench::{Bench, Heard, PORT, bytes_at};
use super::card::PEER;
use super::paths::unreachable;
use crate::segment::{ACK, PSH, RST, SYN};

pub(super) const DRILLS: &[Drill] = &[
    ("cookies that a listener gives", given),
    ("cookies that a listener takes", taken),
    ("bytes that come with a SYN", early),
    ("Fast Open connections that are under way", bound),
    ("a cookie that a peer gives", learnt),
    ("bytes that go with a SYN", sent),
    ("SYNs with bytes that are lost", lost),
    ("a SYN whose bytes are too many for its path", too_long),
];

const OWN_END: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), PORT);
/// How long a connection that was reset counts as one that is under way (RFC 7413 s5.1, and Linux's 60 s).
const RESET_COUNTS: Duration = Duration::from_secs(60);
/// The first SYN waits so long for an answer (RFC 6298 s2.1).
const RTO_INITIAL: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_millis(5);
const ISS: u32 = 1000;

/// A listener with Fast Open, and how many of its connections may be under way.
fn listens(bench: &mut Bench, keys: FastOpenKeys) -> (FlowId, usize) {
    let under_way_max = bench.between(1, 4) as usize;
    let fast_open = FastOpen { under_way_max, without_cookie: false, keys: Some(keys) };
    (bench.listen(64, &Config { fast_open, nodelay: true, ..Config::default() }), under_way_max)
}

fn draws_key(bench: &mut Bench) -> [u8; 16] {
    core::array::from_fn(|_| bench.below(256) as u8)
}

/// An end of a host's, which has not been used.
fn host(bench: &mut Bench, last: u8) -> SocketAddrV4 {
    let (_, remote) = bench.addresses(true);
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), remote.port())
}

/// The option, as it stands in a header (RFC 7413 s4.1.1, RFC 6994), padded. No bytes: it asks for a cookie.
fn option(cookie: &[u8], is_experimental: bool) -> Vec<u8> {
    let len = cookie.len() as u8;
    let mut bytes = if is_experimental { vec![254, 4 + len, 0xf9, 0x89] } else { vec![34, 2 + len] };
    bytes.extend(cookie);
    bytes.resize(bytes.len().next_multiple_of(4), 1);
    bytes
}

/// A SYN comes from there, with that option and bytes; and its answer.
fn syn(bench: &mut Bench, from: SocketAddrV4, option: &[u8], bytes: &[u8]) -> Heard {
    let options = [&[2, 4, 5, 180], option].concat();
    bench.queue((from, OWN_END), ISS, 0, SYN, 60_000, &options, bytes);
    let answer = bench.one("RFC 9293 s3.10.7.2: a SYN for a listener");
    bench.must(answer.flags == SYN | ACK && answer.len() == 0, "RFC 9293 s3.10.7.2: a SYN is answered by a SYN-ACK");
    answer
}

/// The cookie that a host is given.
fn ask(bench: &mut Bench, last: u8) -> Vec<u8> {
    let from = host(bench, last);
    let answer = syn(bench, from, &option(&[], false), &[]);
    bench.queue((from, OWN_END), ISS + 1, 0, RST, 0, &[], &[]);
    bench.poll();
    bench.take();
    let said = answer.fast_open.unwrap_or_default();
    let len = said.cookie().len();
    bench.must((4..=16).contains(&len) && len.is_multiple_of(2), format_args!("RFC 7413 s4.1.1: a cookie of {len} bytes for who asks"));
    said.cookie().to_vec()
}

/// How many bytes of a SYN are acknowledged with it.
fn took(answer: &Heard) -> u32 {
    answer.ack.wrapping_sub(ISS + 1)
}

/// The program accepts what there is: sockets, and whether their handshakes are over.
fn accepts(bench: &mut Bench, listener: FlowId) -> Vec<(FlowId, bool)> {
    let mut all = Vec::new();
    while let Ok(socket) = bench.ring.tcp_accept(listener) {
        let state = bench.ring.info(socket).and_then(|info| info.state);
        all.push((socket, state != Some(State::SynReceived)));
    }
    all
}

fn reads(bench: &mut Bench, socket: FlowId) -> Vec<u8> {
    let mut room = vec![0; 4000];
    let read = bench.ring.tcp_recv(bench.now, socket, &mut [IoSliceMut::new(&mut room)], RecvFlags::empty());
    bench.poll();
    room.truncate(read.unwrap_or(0));
    room
}

/// RFC 7413 s4.2.2: who asks is given a cookie, in the form that was asked in; who does not ask is given none. None of them has bytes taken from its SYN.
fn given(bench: &mut Bench) {
    let keys = FastOpenKeys { primary: draws_key(bench), backup: None };
    let (listener, _) = listens(bench, keys);
    for _ in 0..4 {
        let (asks, is_experimental) = (bench.chance(2), bench.chance(2));
        let len = if bench.chance(2) { bench.between(1, 1000) as usize } else { 0 };
        let from = host(bench, 2);
        let said = if asks { option(&[], is_experimental) } else { Vec::new() };
        let answer = syn(bench, from, &said, &bytes_at(0, len));
        bench.must(took(&answer) == 0, "RFC 7413 s4.2.2: bytes of a SYN without a cookie are acknowledged");
        let early = accepts(bench, listener).len();
        bench.must(early == 0, "RFC 7413 s4.2.2: a connection without a cookie is its program's before the handshake is over");
        match answer.fast_open {
            None => bench.must(!asks, "RFC 7413 s4.2.2: who asks for a cookie is given none"),
            Some(told) => {
                bench.must(asks, "RFC 7413 s4.2.2: a cookie for who did not ask");
                bench.must(!told.asks(), "RFC 7413 s4.2.2: a SYN-ACK asks for a cookie");
                bench.must(told.is_experimental == is_experimental, "RFC 7413 s4.2.2: a cookie in another form than it was asked for in");
            }
        }
        // The bytes come again when it is over, and are read once.
        bench.queue((from, OWN_END), ISS + 1, answer.end(), ACK | PSH, 60_000, &[], &bytes_at(0, len));
        bench.poll();
        bench.take();
        let accepted = accepts(bench, listener);
        bench.must(accepted.len() == 1, "accept(2): a handshake is over");
        for (socket, _) in accepted {
            let read = reads(bench, socket);
            bench.must(read == bytes_at(0, len), format_args!("RFC 7413 s4.2.2: {} bytes are read of {len}", read.len()));
            bench.ring.close(bench.now, socket, true);
        }
        bench.take();
    }
    // RFC 7413 s4.1.2: a cookie is of its host, and the same each time.
    let (one, again, other) = (ask(bench, 2), ask(bench, 2), ask(bench, 3));
    bench.must(one == again, "RFC 7413 s4.1.2: a host is given another cookie, and the key is the same");
    bench.must(one != other, "RFC 7413 s4.1.2: two hosts are given the same cookie");
}

/// RFC 7413 s4.1.2, s4.2.2: a cookie is good if it was given to that host, by that key or by the one before. Who shows another is told the right one.
fn taken(bench: &mut Bench) {
    let [first, second] = [draws_key(bench), draws_key(bench)];
    let (listener, _) = listens(bench, FastOpenKeys { primary: first, backup: None });
    let (old, of_another) = (ask(bench, 2), ask(bench, 3));
    bench.ring.close(bench.now, listener, false);
    let (keeps, changes) = (bench.chance(2), bench.chance(2));
    let primary = if changes { second } else { first };
    let listener = listens(bench, FastOpenKeys { primary, backup: (changes && keeps).then_some(first) }).0;
    let newest = ask(bench, 2);
    let mut wrong = newest.clone();
    let at = bench.below(wrong.len() as u64) as usize;
    wrong[at] ^= 1 << bench.below(8);
    let longer = [&newest[..], &[0, 0]].concat();
    let of_before = (&old[..], !changes || keeps);
    let shown = [(&newest[..], true), of_before, (&of_another, false), (&wrong, false), (&newest[..4], false), (&longer, false)];
    // (Each that is good is under way for as long as its handshake is not over.)
    for (cookie, is_good) in shown {
        let is_experimental = bench.chance(4) && cookie.len() <= 12;
        let len = bench.between(1, 1000) as usize;
        let from = host(bench, 2);
        let answer = syn(bench, from, &option(cookie, is_experimental), &bytes_at(0, len));
        let wanted = if is_good { len as u32 } else { 0 };
        bench.must(
            took(&answer) == wanted,
            format_args!("RFC 7413 s4.2.2: {} bytes are taken of {len} (good {is_good}, {cookie:?})", took(&answer)),
        );
        let told = answer.fast_open.map(|told| told.cookie().to_vec());
        let is_current = cookie == newest;
        bench.must(
            is_current && told.is_none() || told.as_ref() == Some(&newest),
            format_args!("RFC 7413 s4.2.2: who shows a cookie that is not the newest is told {told:?}"),
        );
        let early = accepts(bench, listener);
        bench.must(early.len() == usize::from(is_good), "RFC 7413 s4.2.2: whose connection is its program's before the handshake is over");
        bench.queue((from, OWN_END), ISS + 1 + wanted, answer.end(), ACK, 60_000, &[], &[]);
        bench.poll();
        bench.take();
        for (socket, _) in early.into_iter().chain(accepts(bench, listener)) {
            bench.ring.close(bench.now, socket, true);
        }
        bench.take();
    }
}

/// RFC 7413 s3, s4.2.2: what comes with a SYN and a good cookie is read and answered at once, and read once, however often the SYN comes.
fn early(bench: &mut Bench) {
    let keys = FastOpenKeys { primary: draws_key(bench), backup: None };
    let (listener, _) = listens(bench, keys);
    let cookie = option(&ask(bench, 2), false);
    let from = host(bench, 2);
    let len = bench.between(0, 1400) as usize;
    let answer = syn(bench, from, &cookie, &bytes_at(0, len));
    bench.must(took(&answer) == len as u32, format_args!("RFC 7413 s4.2.2: {} of {len} bytes of a SYN are taken", took(&answer)));
    let accepted = accepts(bench, listener);
    let Some(&(socket, false)) = accepted.first() else {
        return bench.must(false, "RFC 7413 s4.2.2: a SYN with a good cookie is no connection of its program's at once");
    };
    let repeats = bench.below(3);
    for _ in 0..repeats {
        let with_bytes = bench.chance(2);
        let again = syn(bench, from, if with_bytes { &cookie } else { &[] }, &bytes_at(0, if with_bytes { len } else { 0 }));
        bench.must(again.ack == answer.ack && again.seq == answer.seq, "RFC 9293 s3.10.7.4: a SYN that comes again is answered as before");
    }
    let read = reads(bench, socket);
    bench.must(read == bytes_at(0, len), format_args!("RFC 7413 s4.2.2: {} bytes are read of {len}", read.len()));
    let written = bench.between(1, 5000) as usize;
    let bytes = bytes_at(7, written);
    let wrote = bench.ring.tcp_send(bench.now, socket, &[IoSlice::new(&bytes)], SendFlags::empty());
    bench.must(wrote == Ok(written), format_args!("RFC 7413 s3: {wrote:?} of {written} bytes before the handshake is over"));
    let all: Vec<u8> = bench.take().iter().flat_map(|heard| heard.bytes[heard.payload.clone()].to_vec()).collect();
    bench.must(all == bytes, format_args!("RFC 7413 s3: {} of {written} bytes go before the handshake is over", all.len()));
    // Its end; and more bytes.
    let more = bench.between(1, 1000) as usize;
    let (seq, ack) = (ISS + 1 + len as u32, answer.end().wrapping_add(written as u32));
    bench.queue((from, OWN_END), seq, ack, ACK | PSH, 60_000, &[], &bytes_at(len as u32, more));
    bench.poll();
    let state = bench.ring.info(socket).and_then(|info| info.state);
    bench.must(state == Some(State::Established), format_args!("RFC 9293 s3.10.7.4: {state:?} once the SYN-ACK is acknowledged"));
    let read = reads(bench, socket);
    bench.must(read == bytes_at(len as u32, more), format_args!("RFC 9293 s3.4: {} bytes are read of {more} more", read.len()));
    bench.pass(Duration::from_secs(3));
    let again = bench.take().iter().any(|heard| heard.len() > 0 || heard.has(SYN));
    bench.must(!again, "RFC 6298 s5.2: all is acknowledged, and goes again");
    bench.ring.close(bench.now, socket, true);
}

/// RFC 7413 s5.1: no more are under way than the listener allows; those that are over, whichever way, make room, and those that were reset do in a minute.
fn bound(bench: &mut Bench) {
    let keys = FastOpenKeys { primary: draws_key(bench), backup: None };
    let (listener, most) = listens(bench, keys);
    let cookie = option(&ask(bench, 2), false);
    let begin = |bench: &mut Bench| {
        let from = host(bench, 2);
        let answer = syn(bench, from, &cookie, b"request");
        (from, answer.end(), took(&answer) > 0)
    };
    let all: Vec<_> = (0..most + 2).map(|_| begin(bench)).collect();
    let early = all.iter().filter(|(.., is_early)| *is_early).count();
    bench.must(early == most, format_args!("RFC 7413 s5.1: {early} connections are under way, and {most} may"));
    let sockets = accepts(bench, listener);
    let mut resets = 0;
    let mut times_out = false;
    for &(from, end, is_early) in &all {
        match bench.below(3) {
            0 if is_early => times_out = true,
            0 | 1 => {
                bench.queue((from, OWN_END), ISS + 1 + if is_early { 7 } else { 0 }, 0, RST, 0, &[], &[]);
                resets += usize::from(is_early);
            }
            _ => bench.queue((from, OWN_END), ISS + 1 + if is_early { 7 } else { 0 }, end, ACK, 60_000, &[], &[]),
        }
        bench.poll();
    }
    bench.take();
    if times_out {
        // (By then those that were reset are forgotten, too.)
        bench.pass(Duration::from_secs(200));
        resets = 0;
    } else if resets > 0 && bench.chance(2) {
        bench.pass(RESET_COUNTS + SLACK);
        resets = 0;
    }
    bench.take();
    let wanted = most - resets;
    let early = (0..most + 2).map(|_| begin(bench)).filter(|(.., is_early)| *is_early).count();
    bench.must(early == wanted, format_args!("RFC 7413 s5.1: {early} connections begin early, where {wanted} may ({resets} were reset)"));
    for (socket, _) in sockets.into_iter().chain(accepts(bench, listener)) {
        bench.ring.close(bench.now, socket, true);
    }
    bench.ring.close(bench.now, listener, false);
    bench.poll();
    bench.take();
}

/// The stack connects with bytes: its SYN, the socket, and how many bytes were taken.
fn connects(bench: &mut Bench, bytes: &[u8]) -> (FlowId, Heard, usize) {
    let (local, remote) = bench.addresses(false);
    let early = EarlyData { data: &[IoSlice::new(bytes)], all: false, without_cookie: false };
    let config = Config { nodelay: true, ..Config::default() };
    let opened = bench.ring.tcp_connect_fast(bench.now, (local.into(), remote.into()), NextHop::Mac(PEER), &config, &early);
    let first = bench.one("RFC 9293 s3.10.1: an active open");
    bench.must(first.flags & !PSH == SYN, "RFC 9293 s3.10.1: an active open begins with a SYN");
    let (socket, taken) = opened.expect("nobody has these addresses");
    bench.must(taken == first.len() as usize, format_args!("RFC 7413 s4.2.1: {taken} bytes are taken, and {} go", first.len()));
    bench.must(first.bytes[first.payload.clone()] == bytes[..taken], "RFC 7413 s4.2.1: other bytes go with a SYN than were written");
    (socket, first, taken)
}

/// The peer answers a SYN, and acknowledges so many bytes of it. What the stack says to that.
fn answers(bench: &mut Bench, first: &Heard, acked: u32, mss: u16, said: &[u8]) -> Vec<Heard> {
    let [high, low] = mss.to_be_bytes();
    let options = [&[2, 4, high, low], said].concat();
    let ends = (crate::addresses::v4(first.dst), crate::addresses::v4(first.src));
    let ack = first.seq.wrapping_add(1).wrapping_add(acked);
    bench.queue(ends, 77, ack, SYN | ACK, 60_000, &options, &[]);
    bench.take()
}

fn draws_cookie(bench: &mut Bench) -> (Vec<u8>, bool) {
    let is_experimental = bench.chance(3);
    let len = 2 * bench.between(2, if is_experimental { 6 } else { 8 });
    ((0..len).map(|_| bench.below(256) as u8).collect(), is_experimental)
}

/// RFC 7413 s4.1.3, s4.2.1: who has no cookie asks, and sends no bytes; who is given one shows it, to that host alone.
fn learnt(bench: &mut Bench) {
    let bytes = bytes_at(0, 300);
    let (socket, first, taken) = connects(bench, &bytes);
    bench.must(first.fast_open.is_some_and(|said| said.asks() && !said.is_experimental), "RFC 7413 s4.1.3: a first SYN asks for a cookie");
    bench.must(taken == 0, "RFC 7413 s4.1.3: a SYN without a cookie has bytes");
    let (cookie, is_experimental) = draws_cookie(bench);
    // Not all give one; and one of an odd length is none.
    let kind = bench.below(3);
    let said = match kind {
        0 => Vec::new(),
        1 => option(&cookie[..3], is_experimental),
        _ => option(&cookie, is_experimental),
    };
    answers(bench, &first, 0, 1000, &said);
    bench.ring.close(bench.now, socket, true);
    bench.take();
    let (socket, first, taken) = connects(bench, &bytes);
    if kind == 2 {
        bench.must(
            first.fast_open.is_some_and(|said| said.cookie() == cookie && said.is_experimental == is_experimental),
            format_args!("RFC 7413 s4.1.3: a cookie that was given is not shown: {:?}", first.fast_open),
        );
        bench.must(taken == bytes.len(), format_args!("RFC 7413 s4.2.1: {taken} bytes go with a cookie"));
    } else {
        // It may speak the other form.
        bench.must(
            first.fast_open.is_some_and(|said| said.asks() && said.is_experimental),
            "RFC 7413 s4.1.3: a host that gave no cookie is asked again as before",
        );
        bench.must(taken == 0, "RFC 7413 s4.1.3: a SYN without a cookie has bytes");
    }
    bench.ring.close(bench.now, socket, true);
    bench.take();
}

/// The peer has given a cookie, and takes segments of `mss` bytes.
fn acquainted(bench: &mut Bench, mss: u16) -> Vec<u8> {
    let (socket, first, _) = connects(bench, &[]);
    let (cookie, is_experimental) = draws_cookie(bench);
    answers(bench, &first, 0, mss, &option(&cookie, is_experimental));
    bench.ring.close(bench.now, socket, true);
    bench.take();
    cookie
}

/// RFC 7413 s4.2.1: a SYN has no more bytes than the peer takes; what its answer does not acknowledge of them goes at once, as if it had not gone.
fn sent(bench: &mut Bench) {
    let mss = bench.pick(&[536, 1000, 1460]);
    acquainted(bench, mss);
    let len = bench.between(1, 2000) as usize;
    let bytes = bytes_at(0, len);
    let (socket, first, taken) = connects(bench, &bytes);
    let room = usize::from(mss) - first.options_len;
    bench.must(taken <= room, format_args!("RFC 7413 s4.2.1: {taken} bytes in a SYN, where {room} fit"));
    bench.must(taken == len || taken + 40 > room, format_args!("RFC 7413 s4.2.1: {taken} of {len} bytes go, where {room} fit"));
    let part = bench.below(taken as u64 + 1) as u32;
    let acked = bench.pick(&[0, taken as u32, part]);
    let all = answers(bench, &first, acked, mss, &[]);
    let mut next = first.seq.wrapping_add(1).wrapping_add(acked);
    let from = acked as usize;
    for heard in &all {
        bench.must(heard.ack == 78 && heard.has(ACK), "RFC 9293 s3.10.7.3: a SYN-ACK is acknowledged");
        bench.must(heard.seq == next, format_args!("RFC 7413 s4.2.1: {} is sent, and {next} is next", heard.seq));
        next = heard.end();
    }
    let again: Vec<u8> = all.iter().flat_map(|heard| heard.bytes[heard.payload.clone()].to_vec()).collect();
    bench.must(!all.is_empty(), "RFC 9293 s3.10.7.3: a SYN-ACK is acknowledged");
    bench.must(
        again == bytes[from..taken],
        format_args!("RFC 7413 s4.2.1: {} bytes go at once, where {from} of {taken} were acknowledged", again.len()),
    );
    bench.ring.close(bench.now, socket, true);
    bench.take();
}

/// RFC 7413 s4.1.3.1: what may have been dropped for its bytes or its cookie goes again without both; and after some such losses, so do all for a time.
fn lost(bench: &mut Bench) {
    acquainted(bench, 1460);
    let bytes = bytes_at(0, 200);
    for round in 0..3 {
        let (socket, first, taken) = connects(bench, &bytes);
        bench.must(taken == bytes.len(), format_args!("RFC 7413 s4.1.3: {taken} bytes go with a cookie, in round {round}"));
        let begun = bench.now;
        let Some(again) = bench.await_segment(2 * RTO_INITIAL) else {
            return bench.must(false, "RFC 6298 s5.4: a SYN that is lost is not sent again");
        };
        let waited = bench.now.since(begun);
        bench.must(waited >= RTO_INITIAL, format_args!("RFC 6298 s2.1: a SYN goes again after {waited:?}"));
        bench.must(
            again.flags == SYN && again.len() == 0 && again.fast_open.is_none(),
            format_args!("RFC 7413 s4.1.3.1: a SYN goes again with {} bytes and {:?}", again.len(), again.fast_open),
        );
        bench.must(again.seq == first.seq, "RFC 9293 s3.8.1: a SYN that goes again has another number");
        let all = answers(bench, &again, 0, 1460, &[]);
        let sent: Vec<u8> = all.iter().flat_map(|heard| heard.bytes[heard.payload.clone()].to_vec()).collect();
        bench.must(sent == bytes, "RFC 7413 s4.2.1: the bytes of a SYN go at once when the handshake is over");
        bench.ring.close(bench.now, socket, true);
        bench.take();
    }
    let (socket, first, taken) = connects(bench, &bytes);
    bench.must(
        taken == 0 && first.fast_open.is_none(),
        format_args!("RFC 7413 s4.1.3.1: three SYNs in a row were lost, and the next has {taken} bytes and {:?}", first.fast_open),
    );
    bench.ring.close(bench.now, socket, true);
    bench.take();
    bench.pass(Duration::from_secs(3601));
    let (socket, _, taken) = connects(bench, &bytes);
    bench.must(taken == bytes.len(), "RFC 7413 s4.1.3.1: after an hour it is not tried again");
    bench.ring.close(bench.now, socket, true);
    bench.take();
}

/// RFC 1191 s6.4: a SYN that was too long goes again at once, without the bytes that made it so; and these follow in segments that fit.
fn too_long(bench: &mut Bench) {
    acquainted(bench, 1460);
    let bytes = bytes_at(0, 1300);
    let (socket, first, taken) = connects(bench, &bytes);
    bench.must(taken == bytes.len(), format_args!("RFC 7413 s4.2.1: {taken} bytes go with a cookie"));
    let mtu = bench.between(600, 1300) as u16;
    unreachable(bench, &first, 4, mtu);
    let again = bench.one("RFC 1191 s6.4: a SYN that was too long for its path");
    bench.must(
        again.flags == SYN && again.len() == 0 && again.seq == first.seq,
        format_args!("RFC 7413 s4.1.3.1: a SYN that was too long goes again with {} bytes", again.len()),
    );
    let all = answers(bench, &again, 0, 1460, &[]);
    let sent: Vec<u8> = all.iter().flat_map(|heard| heard.bytes[heard.payload.clone()].to_vec()).collect();
    bench.must(sent == bytes, "RFC 7413 s4.2.1: the bytes of a SYN go at once when the handshake is over");
    let longest = all.iter().map(|heard| heard.bytes.len() - 14).max().unwrap_or(0);
    bench.must(longest <= usize::from(mtu), format_args!("RFC 1191 s6.3: a packet of {longest} bytes, where {mtu} pass"));
    bench.ring.close(bench.now, socket, true);
    bench.take();
}
