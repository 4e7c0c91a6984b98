//! What a program asks of a socket, and is told (accept(2), poll(2), send(2), shutdown(2), tcp(7)).

use core::time::Duration;
use std::io::IoSlice;

use ringway_stack::Error;
use ringway_stack::ring::{FlowId, Readiness, SendFlags, Shutdown};
use ringway_stack::tcp::{Keepalive, State};

use super::Drill;
use super::bench::{Bench, Peer, TICK, bytes_at};
use super::paths::unreachable;
use crate::addresses::v4;
use crate::segment::{ACK, FIN, RST, SYN};

pub(super) const DRILLS: &[Drill] = &[
    ("what a poll says", polls),
    ("the order of accepts", order),
    ("options that let something go", let_go),
    ("an error, by whatever call it is told", told_once),
    ("why a connection timed out", reasons),
    ("keepalive with a user's timeout", patience),
];

/// Linux's TCP_RTO_MAX, and a little more.
const LONG: Duration = Duration::from_secs(130);
/// RFC 792: a host is not reachable.
const HOST: u8 = 1;
/// RFC 792: nobody has the port.
const NOBODY: u8 = 3;

/// The stack does what is due; what it raises for this socket.
fn edges(bench: &mut Bench, socket: FlowId) -> Readiness {
    let mut raised = Readiness::empty();
    loop {
        let done = bench.ring.poll(bench.now);
        while let Some(event) = bench.ring.take_event() {
            if event.flow == socket {
                raised |= event.edges;
            }
        }
        if done == 0 {
            return raised;
        }
    }
}

/// A segment in order waits for the stack.
fn queue(bench: &mut Bench, peer: &mut Peer, ack: u32, flags: u8, len: u32) {
    let mut options = Vec::new();
    if peer.stamps && flags & RST == 0 {
        options.extend([1, 1, 8, 10]);
        options.extend(bench.clock().to_be_bytes());
        options.extend(peer.echo.to_be_bytes());
    }
    let first = peer.nxt.wrapping_sub(peer.iss).wrapping_sub(1);
    let payload = bytes_at(first, len as usize);
    bench.queue((peer.remote, peer.local), peer.nxt, ack, flags, peer.window, &options, &payload);
    peer.nxt = peer.nxt.wrapping_add(len + u32::from(flags & FIN != 0));
}

/// What a program can know of its connection.
#[derive(Debug, Default)]
struct Known {
    unread: usize,
    /// The peer's stream ended, or the program reads no more.
    read_ended: bool,
    write_ended: bool,
    /// A write found no room.
    is_full: bool,
}

impl Known {
    /// poll(2): what is to be said, and what must not be said.
    fn levels(&self) -> (Readiness, Readiness) {
        let mut yes = Readiness::empty();
        yes.set(Readiness::IN, self.unread > 0 || self.read_ended);
        yes.set(Readiness::RDHUP, self.read_ended);
        yes.set(Readiness::HUP, self.read_ended && self.write_ended);
        yes.set(Readiness::OUT, self.write_ended || !self.is_full);
        (yes, Readiness::all() - yes)
    }
}

/// poll(2), epoll(7), connect(2), shutdown(2): a socket is ready for what can be done without waiting and for nothing else; and whatever it becomes ready
/// for, or gets more of, is an event.
fn polls(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (1000, 60_000, None);
    (setup.config.rcvbuf, setup.config.sndbuf) = (Some(100_000), Some(6000));
    let mut peer = bench.begin(&setup);
    if !setup.passive {
        let socket = peer.id();
        let early = bench.ring.readiness(socket);
        bench.must(early.is_empty(), format_args!("connect(2), poll(2): {early:?} while a connection is under way"));
        let options = bench.syn_options(&setup, peer.echo);
        bench.queue((peer.remote, peer.local), peer.iss, peer.rcv, SYN | ACK, setup.window, &options, &[]);
        peer.nxt = peer.iss.wrapping_add(1);
        let raised = edges(bench, socket);
        bench.must(raised.contains(Readiness::OUT), format_args!("connect(2), epoll(7): {raised:?} raised as a connection stands"));
        bench.take().iter().for_each(|heard| bench.note_window(&mut peer, heard));
    } else {
        bench.finish_handshake(&setup, &mut peer);
    }
    let socket = peer.id();
    edges(bench, socket);
    let mut known = Known::default();
    let (mut written, mut una) = (0, peer.rcv);
    for _ in 0..8 {
        let before = bench.ring.readiness(socket);
        let (what, due) = match bench.below(6) {
            0 if !known.read_ended => {
                let len = bench.between(1, 900) as u32;
                queue(bench, &mut peer, una, ACK, len);
                known.unread += len as usize;
                ("bytes arrive", Readiness::IN)
            }
            1 if known.unread > 0 => {
                let len = bench.between(1, 1500) as usize;
                let read = bench.read(&peer, len);
                let right = len.min(known.unread);
                bench.must(read == Ok(right), format_args!("recv(2): {read:?} of {} bytes, for {len}", known.unread));
                known.unread -= right;
                ("bytes are read", Readiness::empty())
            }
            2 if !known.read_ended => {
                queue(bench, &mut peer, una, ACK | FIN, 0);
                known.read_ended = true;
                ("the peer's stream ends", Readiness::IN | Readiness::RDHUP)
            }
            3 if !known.read_ended => {
                let shut = bench.ring.shutdown(bench.now, socket, Shutdown::Read);
                bench.must(shut.is_ok(), format_args!("shutdown(2): {shut:?}"));
                known.read_ended = true;
                ("the program reads no more", Readiness::IN | Readiness::RDHUP)
            }
            4 if !known.write_ended && bench.chance(2) => {
                let shut = bench.ring.shutdown(bench.now, socket, Shutdown::Write);
                bench.must(shut.is_ok(), format_args!("shutdown(2): {shut:?}"));
                known.write_ended = true;
                ("the program writes no more", Readiness::empty())
            }
            _ if !known.write_ended && !known.is_full => {
                loop {
                    let bytes = bytes_at(written as u32, 2000);
                    match bench.ring.tcp_send(bench.now, socket, &[IoSlice::new(&bytes)], SendFlags::empty()) {
                        Ok(wrote) => written += wrote,
                        Err(error) => {
                            bench.must(error == Error::WouldBlock, format_args!("send(2): {error:?}"));
                            break;
                        }
                    }
                }
                known.is_full = true;
                ("the program writes until there is no room", Readiness::empty())
            }
            _ if !known.write_ended => {
                edges(bench, socket);
                let mut raised = Readiness::empty();
                while bench.ring.info(socket).is_some_and(|info| info.send_queue > 0) {
                    bench.receive(&mut peer);
                    una = peer.rcv;
                    queue(bench, &mut peer, una, ACK, 0);
                    raised |= edges(bench, socket);
                }
                bench.must(raised.contains(Readiness::OUT), format_args!("epoll(7): {raised:?} raised as there is room again"));
                known.is_full = false;
                ("all is acknowledged", Readiness::empty())
            }
            _ => continue,
        };
        let raised = edges(bench, socket);
        let now = bench.ring.readiness(socket);
        let (yes, no) = known.levels();
        bench
            .must(now.contains(yes) && !now.intersects(no), format_args!("poll(2): {now:?} after {what}, and {yes:?} is to be: {known:?}"));
        let due = due | (now - before - if what == "all is acknowledged" { Readiness::OUT } else { Readiness::empty() });
        bench.must(raised.contains(due), format_args!("epoll(7): {raised:?} raised as {what}, and {due:?} is new"));
        bench.receive(&mut peer);
    }
    queue(bench, &mut peer, una, RST, 0);
    let raised = edges(bench, socket);
    let now = bench.ring.readiness(socket);
    let all = Readiness::IN | Readiness::OUT | Readiness::ERR | Readiness::HUP | Readiness::RDHUP;
    bench.must(now == all, format_args!("poll(2): {now:?} after a reset"));
    let due = Readiness::ERR | Readiness::HUP;
    bench.must(raised.contains(due), format_args!("epoll(7): {raised:?} raised by a reset"));
    bench.ring.close(bench.now, socket, false);
}

/// accept(2): the first connection of the queue comes first; a listener is ready as long as there is one, and each one that comes is an event.
fn order(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.passive = true;
    let listener = bench.listen(16, &setup.config);
    edges(bench, listener);
    let mut begun = Vec::new();
    for _ in 0..bench.between(2, 8) {
        let (local, remote) = bench.addresses(true);
        let iss = bench.below(1 << 32) as u32;
        let options = bench.syn_options(&setup, 0);
        bench.queue((remote, local), iss, 0, SYN, setup.window, &options, &[]);
        let answer = bench.one("RFC 9293 s3.10.7.2: a SYN for a listener");
        begun.push((local, remote, iss, answer));
    }
    let mut ready = std::collections::VecDeque::new();
    while !begun.is_empty() || !ready.is_empty() {
        if !begun.is_empty() && bench.chance(2) {
            let next = bench.below(begun.len() as u64) as usize;
            let (local, remote, iss, answer) = begun.swap_remove(next);
            let mut options = Vec::new();
            if let Some((value, _)) = answer.options.timestamps {
                options = [&[1, 1, 8, 10][..], &bench.clock().to_be_bytes(), &value.to_be_bytes()].concat();
            }
            bench.queue((remote, local), iss.wrapping_add(1), answer.end(), ACK, setup.window, &options, &[]);
            let raised = edges(bench, listener);
            bench.must(raised.contains(Readiness::IN), format_args!("epoll(7): {raised:?} raised as a connection can be accepted"));
            ready.push_back(remote);
        } else {
            let accepted = bench.ring.tcp_accept(listener);
            let who = accepted.ok().and_then(|socket| bench.ring.info(socket)).and_then(|info| info.remote).map(v4);
            let first = ready.pop_front();
            bench.must(who == first, format_args!("accept(2): {who:?} is accepted, and {first:?} is the first of {}", ready.len() + 1));
            if let Ok(socket) = accepted {
                bench.ring.close(bench.now, socket, true);
                bench.take();
            }
        }
        let level = bench.ring.readiness(listener);
        let right = if ready.is_empty() { Readiness::empty() } else { Readiness::IN };
        bench.must(level == right, format_args!("poll(2): {level:?} of a listener with {} connections", ready.len()));
    }
}

/// tcp(7), TCP_CORK, TCP_NODELAY: full segments wait for nothing; and what waits goes when the program says that it need not, without another write.
fn let_go(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (1000, 60_000, None);
    // (A probe of the end would let it go: RFC 8985 s7.3.)
    setup.sack = false;
    setup.config.cork = bench.chance(2);
    setup.config.nodelay = false;
    let mut peer = bench.connect(&setup);
    let full = bench.between(0, 4) as usize;
    let rest = bench.between(1, 400) as usize;
    let mut written = 0;
    if !setup.config.cork {
        // A small segment in flight holds the next one (RFC 9293 s3.7.4).
        written = bench.write(&peer, 0, 100, SendFlags::empty());
        bench.receive(&mut peer);
    }
    let len = full * peer.mss as usize + rest;
    bench.write(&peer, written, len, SendFlags::empty());
    let sent = bench.receive(&mut peer);
    bench.must(sent == full, format_args!("tcp(7), TCP_CORK; RFC 9293 s3.7.4: {sent} segments for {full} full ones and {rest} bytes"));
    let pause = Duration::from_millis(bench.between(0, 100));
    bench.pass(pause);
    bench.silence("tcp(7), TCP_CORK; RFC 9293 s3.7.4: what is not full is sent");
    let set = bench.ring.tcp_configure(bench.now, peer.id(), |config| (config.cork, config.nodelay) = (false, true));
    bench.must(set.is_ok(), format_args!("setsockopt(2): {set:?}"));
    let last = bench.one("tcp(7), TCP_CORK, TCP_NODELAY: what was held goes when it need not wait");
    bench.take_in(&mut peer, &last);
    bench.must(last.len() as usize == rest, format_args!("tcp(7), TCP_CORK: {} bytes of {rest}", last.len()));
    bench.ring.close(bench.now, peer.id(), true);
}

/// Whatever call is the first to say it says why the connection ended; and none says it again (socket(7), SO_ERROR; send(2), recv(2)).
fn told_once(bench: &mut Bench) {
    let setup = bench.setup();
    let mut peer = bench.begin(&setup);
    let refused = !setup.passive && bench.chance(3);
    let mut expected = Error::Refused;
    if refused {
        bench.give(&peer, 0, peer.rcv, RST | ACK, 0);
    } else {
        bench.finish_handshake(&setup, &mut peer);
        let ended = bench.chance(2);
        if ended {
            bench.give(&peer, peer.nxt, peer.rcv, ACK | FIN, 0);
            peer.nxt = peer.nxt.wrapping_add(1);
            bench.take();
        }
        bench.give(&peer, peer.nxt, peer.rcv, RST, 0);
        expected = if ended { Error::Pipe } else { Error::Reset };
        if ended {
            let read = bench.read(&peer, 10);
            bench.must(read == Ok(0), format_args!("recv(2): {read:?} at the end of the peer's stream"));
        }
    }
    bench.silence("RFC 9293 s3.5.3: a reset is not answered");
    let write = |bench: &mut Bench, peer: &Peer| bench.ring.tcp_send(bench.now, peer.id(), &[IoSlice::new(b"more")], SendFlags::empty());
    let (call, error) = match bench.below(3) {
        0 => ("SO_ERROR", bench.ring.take_error(peer.id())),
        1 if expected != Error::Pipe => ("recv(2)", bench.read(&peer, 10).err()),
        _ => ("send(2)", write(bench, &peer).err()),
    };
    bench.must(error == Some(expected), format_args!("{call}: {error:?}, and {expected:?} is why the connection ended"));
    let again = bench.ring.take_error(peer.id());
    bench.must(again.is_none(), format_args!("socket(7), SO_ERROR: {again:?}, though {call} said it before"));
    let level = bench.ring.readiness(peer.id());
    let right = level.contains(Readiness::IN | Readiness::OUT | Readiness::HUP) && !level.contains(Readiness::ERR);
    bench.must(right, format_args!("poll(2): {level:?} once {call} has said why"));
    let (read, written) = (bench.read(&peer, 10), write(bench, &peer));
    bench.must(read == Ok(0) && written == Err(Error::Pipe), format_args!("recv(2), send(2): {read:?} and {written:?} after {call}"));
    bench.ring.close(bench.now, peer.id(), false);
}

/// RFC 1122 s4.2.3.9, RFC 5927 s5.2: what ICMP says of a connection that stands does not end it, and is the reason if it times out; unless something was
/// acknowledged since.
fn reasons(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.config.retries = bench.between(1, 5) as u32;
    setup.mss = 1000;
    let mut peer = bench.connect(&setup);
    let code = bench.pick(&[None, Some(HOST), Some(NOBODY)]);
    let refuted = bench.chance(3);
    bench.write(&peer, 0, 200, SendFlags::empty());
    let first = bench.one("RFC 9293 s3.9.1.2: bytes are sent");
    bench.take_in(&mut peer, &first);
    if let Some(code) = code {
        unreachable(bench, &first, code, 0);
    }
    let state = bench.state(&peer);
    bench.must(state == Some(State::Established), format_args!("RFC 1122 s4.2.3.9: {state:?} after ICMP code {code:?}"));
    if refuted {
        bench.pass(Duration::from_millis(5));
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.write(&peer, 200, 100, SendFlags::empty());
        let next = bench.one("RFC 9293 s3.9.1.2: bytes are sent");
        bench.take_in(&mut peer, &next);
    }
    while bench.await_segment(LONG).is_some() {}
    let expected = match code.filter(|_| !refuted) {
        Some(HOST) => Error::HostUnreachable,
        Some(_) => Error::Refused,
        None => Error::TimedOut,
    };
    let error = bench.ring.take_error(peer.id());
    bench.must(
        error == Some(expected),
        format_args!("RFC 1122 s4.2.3.9: {error:?} of a connection that timed out after ICMP code {code:?}, refuted ({refuted})"),
    );
    bench.ring.close(bench.now, peer.id(), false);
}

/// tcp(7), TCP_USER_TIMEOUT: with keepalive, it says when a silent peer is given up, and the number of probes does not.
fn patience(bench: &mut Bench) {
    let mut setup = bench.setup();
    let (idle, interval) = (Duration::from_secs(bench.between(2, 30)), Duration::from_secs(bench.between(1, 20)));
    let limit = Duration::from_secs(bench.between(1, 200));
    setup.config.keepalive = Some(Keepalive { idle, interval, count: bench.between(1, 6) as u32 });
    setup.config.user_timeout = Some(limit);
    let mut peer = bench.connect(&setup);
    super::windows::perhaps_ended(bench, &mut peer);
    let begun = bench.now;
    let mut probes = 0;
    let ended = loop {
        let Some(heard) = bench.await_segment(LONG) else { break false };
        if heard.has(RST) || bench.state(&peer).is_none_or(|state| state == State::Closed) {
            break true;
        }
        probes += 1;
        bench.must(heard.span() == 0, "RFC 9293 s3.8.4: a keepalive probe brings nothing");
        bench.must(probes < 250, format_args!("tcp(7), TCP_USER_TIMEOUT: probe {probes} of a peer that is silent for {limit:?}"));
    };
    let silent = bench.now.since(begun);
    let (least, most) = (limit.max(idle), limit.max(idle) + interval + TICK * (probes + 2));
    bench.must(
        ended && silent + TICK >= least && silent <= most,
        format_args!(
            "tcp(7), TCP_USER_TIMEOUT: given up ({ended}) after {silent:?} of silence and {probes} probes, and {limit:?} were asked for"
        ),
    );
    let error = bench.ring.take_error(peer.id());
    bench.must(error == Some(Error::TimedOut), format_args!("tcp(7), TCP_USER_TIMEOUT: {error:?} of a peer that is silent"));
    bench.ring.close(bench.now, peer.id(), false);
}
