//! Operations of connections: a stack over the device, as a program has it.

use core::sync::atomic::Ordering;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ringway_stack::device::Protocol;
use ringway_stack::ring::{FlowId, NextHop, Readiness, RecvFlags, Ring, RingConfig, SendFlags, Shutdown, UdpOptions};
use ringway_stack::{Error, Instant, tcp};

use super::stage::{Board, Endpoint, Operation, Part, Places};
use crate::tests::{pattern, small};
use crate::{Rendezvous, Settings, ShmQueues, attach};

const SMALL: usize = 100;
const LARGE: usize = 1 << 20;
/// Datagrams of each length.
const DATAGRAMS: usize = 4;

/// A member with a stack.
pub(super) struct Host {
    ring: Ring<ShmQueues>,
    rendezvous: Arc<Rendezvous>,
    listener: Option<FlowId>,
    udp: Option<FlowId>,
    /// The witness's side: who asked. The survivor's: its connection to the witness.
    questioned: Vec<FlowId>,
    answer: u64,
    /// The operation's connections.
    streams: Vec<FlowId>,
    /// Bytes that came by the first of them, and that went.
    got: usize,
    sent: usize,
    datagrams: usize,
    /// Its end was seen, and how.
    ended: Option<Result<(), Error>>,
    board: Option<&'static Board>,
    is_victim: bool,
    at: SocketAddrV4,
    into: Vec<u8>,
}

fn now() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// What every stream consists of. Made once, before there is a victim.
fn bytes(from: usize, len: usize) -> &'static [u8] {
    static STREAM: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(LARGE + 1, 0));
    &STREAM[from..from + len]
}

impl Endpoint for Host {
    fn join() -> Self {
        let (device, rendezvous) = attach(&Settings { resolve_timeout: Duration::from_millis(200), ..small() }).unwrap();
        bytes(0, 0);
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&std::process::id().to_le_bytes());
        let config = RingConfig { reset_strangers: true, ..RingConfig::default() };
        Self {
            ring: Ring::new(device, config, seed),
            rendezvous,
            listener: None,
            udp: None,
            questioned: Vec::new(),
            answer: 0,
            streams: Vec::new(),
            got: 0,
            sent: 0,
            datagrams: 0,
            ended: None,
            board: None,
            is_victim: false,
            at: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            into: vec![0; 64 << 10],
        }
    }

    fn device(&mut self) -> &mut ShmQueues {
        self.ring.queues_mut()
    }

    fn rendezvous(&self) -> &Rendezvous {
        &self.rendezvous
    }

    fn turn(&mut self) -> usize {
        self.rendezvous.service();
        let done = self.ring.poll(now());
        ringway_stack::device::Queues::reap(self.ring.queues_mut());
        while self.ring.take_event().is_some() {}
        done
    }

    fn may_sleep(&self) -> Option<Duration> {
        self.ring.next_deadline().map(|deadline| deadline.since(now()))
    }

    fn usage(&self) -> (usize, usize) {
        let usage = self.ring.usage();
        (usage.flows, usage.addresses)
    }

    fn settle(&mut self, at: SocketAddrV4) {
        self.at = at;
        self.listener = Some(self.ring.tcp_listen(at.into(), 16, &tcp::Config::default()).unwrap());
        self.udp = Some(self.ring.udp_open(at.into(), &UdpOptions::default()).unwrap());
    }

    fn answer(&mut self) {
        self.turn();
        self.questioned.extend(self.listener.and_then(|listener| self.ring.tcp_accept(listener).ok()));
        let mut question = [0; 8];
        for &stream in &self.questioned {
            while let Ok(8) = self.ring.tcp_recv(now(), stream, &mut [IoSliceMut::new(&mut question)], RecvFlags::empty()) {
                let _the_asker_may_be_gone = self.ring.tcp_send(now(), stream, &[IoSlice::new(&question)], SendFlags::empty());
            }
        }
    }

    fn ask(&mut self, witness: SocketAddrV4, question: u64) {
        let stream = match self.questioned.first() {
            Some(&stream) => stream,
            None => {
                let local = SocketAddrV4::new(*self.at.ip(), self.at.port() + 5000);
                // Acknowledged at once, so that nothing is in flight when buffers are counted.
                let config = tcp::Config { nodelay: true, ..tcp::Config::default() };
                let stream = self.open(local, witness, &config).expect("the witness");
                self.questioned.push(stream);
                while !self.ring.readiness(stream).contains(Readiness::OUT) {
                    self.turn();
                }
                stream
            }
        };
        let sent = self.ring.tcp_send(now(), stream, &[IoSlice::new(&question.to_le_bytes())], SendFlags::empty());
        assert_eq!(sent, Ok(8), "the witness's connection");
    }

    fn has_answer(&mut self, question: u64) -> bool {
        let mut answer = [0; 8];
        let Some(&stream) = self.questioned.first() else { return false };
        if let Ok(8) = self.ring.tcp_recv(now(), stream, &mut [IoSliceMut::new(&mut answer)], RecvFlags::empty()) {
            self.answer = u64::from_le_bytes(answer);
        }
        self.answer == question
    }

    /// A connection keeps a buffer that has room left, for a second.
    fn keeps_at_most(&self) -> usize {
        self.questioned.len()
    }

    fn begin(&mut self, board: &'static Board, is_victim: bool) {
        (self.got, self.sent, self.datagrams, self.ended) = (0, 0, 0, None);
        (self.board, self.is_victim) = (Some(board), is_victim);
    }
}

impl Host {
    /// Begins a connection, if somebody has the address.
    fn open(&mut self, local: SocketAddrV4, remote: SocketAddrV4, config: &tcp::Config) -> Option<FlowId> {
        let found = crate::tests::find(&self.rendezvous, Protocol::Tcp, remote)?;
        Some(self.ring.tcp_connect(now(), local.into(), remote.into(), NextHop::Mac(found.mac), config).unwrap())
    }

    fn stream(&self) -> Option<FlowId> {
        self.streams.first().copied()
    }

    fn accept(&mut self) {
        let accepted = self.listener.and_then(|listener| self.ring.tcp_accept(listener).ok());
        self.streams.extend(accepted);
    }

    /// Sends towards `total` bytes of the stream, as much as fits.
    fn send(&mut self, total: usize) {
        let Some(stream) = self.stream() else { return };
        while self.sent < total {
            let piece = bytes(self.sent, (total - self.sent).min(16 << 10));
            match self.ring.tcp_send(now(), stream, &[IoSlice::new(piece)], SendFlags::empty()) {
                Ok(len) => {
                    self.sent += len;
                    if let (Some(board), true) = (self.board, self.is_victim) {
                        board.written.store(self.sent as u64, Ordering::SeqCst);
                    }
                }
                Err(Error::WouldBlock) => return,
                // (Nobody is told it again.)
                Err(error) => {
                    self.ended.get_or_insert(Err(error));
                    return;
                }
            }
        }
    }

    /// Reads what is there, and holds it to be the next bytes of the stream.
    fn receive(&mut self) {
        let Some(stream) = self.stream() else { return };
        let into = &mut self.into;
        while self.ended.is_none() {
            match self.ring.tcp_recv(now(), stream, &mut [IoSliceMut::new(into)], RecvFlags::empty()) {
                Ok(0) => self.ended = Some(Ok(())),
                Ok(len) => {
                    assert!(into[..len] == *bytes(self.got, len), "bytes {}.. of the stream are not what was sent", self.got);
                    self.got += len;
                    if let (Some(board), true) = (self.board, self.is_victim) {
                        board.read.store(self.got as u64, Ordering::SeqCst);
                    }
                }
                Err(Error::WouldBlock | Error::NotConnected) => return,
                Err(error) => self.ended = Some(Err(error)),
            }
        }
    }

    fn send_datagrams(&mut self, to: SocketAddrV4, count: usize) -> bool {
        let Ok(Some(found)) = self.rendezvous.resolve(Protocol::Udp, to) else { return false };
        let Some(udp) = self.udp else { return false };
        for i in 0..count {
            let len = if i % 2 == 0 { SMALL } else { 20_000 };
            let target = Some((to.into(), NextHop::Mac(found.mac)));
            let _a_peer_that_died = self.ring.udp_send(now(), udp, &[IoSlice::new(bytes(i, len))], (*self.at.ip()).into(), target);
        }
        true
    }

    fn receive_datagrams(&mut self) {
        let Some(udp) = self.udp else { return };
        let into = &mut self.into;
        while let Ok(datagram) = self.ring.udp_recv(udp, &mut [IoSliceMut::new(into)], RecvFlags::empty()) {
            let i = usize::from(into[0] / 31);
            assert!(into[..datagram.len] == *bytes(i, datagram.len), "datagram {i} is not what was sent");
            self.datagrams += 1;
        }
    }

    fn close_all(&mut self) {
        for stream in core::mem::take(&mut self.streams) {
            self.ring.close(now(), stream, false);
        }
    }
}

pub(super) fn operations() -> Vec<Operation<Host>> {
    let mut operations = vec![
        Operation { name: "TCP listen", prepare: joined, act: listen, survivor: connect_to_it, judge: has_ended_in_order },
        Operation { name: "TCP connect", prepare: joined, act: connect, survivor: accept, judge: has_ended_in_order },
        Operation { name: "TCP accept", prepare: listening, act: be_connected, survivor: connect_to_it, judge: has_ended_in_order },
        Operation { name: "TCP send small", prepare: connected, act: |part| send(part, SMALL), survivor: read, judge: got_small },
        Operation {
            name: "TCP receive small",
            prepare: accepted,
            act: |part| receive(part, SMALL),
            survivor: send_small,
            judge: has_ended_in_order,
        },
        Operation { name: "TCP send 1 MiB", prepare: connected, act: |part| send(part, LARGE), survivor: read, judge: got_large },
        Operation {
            name: "TCP receive 1 MiB",
            prepare: accepted,
            act: |part| receive(part, LARGE),
            survivor: send_large,
            judge: has_ended_in_order,
        },
        Operation { name: "TCP echo", prepare: accepted, act: echo, survivor: send_and_read, judge: has_ended },
    ];
    operations.extend([
        Operation { name: "TCP shutdown", prepare: connected, act: shut_down, survivor: read, judge: has_ended },
        Operation { name: "TCP peer's shutdown", prepare: accepted, act: be_shut_down, survivor: shut_it_down, judge: has_ended },
        Operation { name: "TCP close", prepare: connected, act: close, survivor: read_and_close, judge: has_ended },
        Operation { name: "TCP abort", prepare: connected, act: abort, survivor: read, judge: has_ended },
        Operation { name: "TCP peer's close", prepare: accepted, act: be_shut_down, survivor: close_it, judge: has_ended },
        Operation { name: "TCP close of a listener", prepare: accepted, act: close_listener, survivor: read, judge: has_ended },
        Operation { name: "UDP send", prepare: listening, act: send_udp, survivor: read_udp, judge: got_datagrams },
        Operation { name: "UDP receive", prepare: listening, act: receive_udp, survivor: send_udp_to_it, judge: has_ended },
        Operation { name: "leave with a connection", prepare: talked, act: leave, survivor: read, judge: has_ended },
    ]);
    operations
}

// --- the victim's part ---

fn joined(part: &mut Part<Host>) {
    part.join();
}

fn listen(part: &mut Part<Host>) {
    let at = part.places.victim;
    part.endpoint().settle(at);
    be_connected(part);
}

fn listening(part: &mut Part<Host>) {
    let at = part.places.victim;
    part.join().settle(at);
}

fn be_connected(part: &mut Part<Host>) {
    part.until(|host| {
        host.accept();
        host.stream().is_some()
    });
}

fn connected(part: &mut Part<Host>) {
    part.join();
    connect(part);
}

/// Always from the same port: what a dead one had must be free.
fn connect(part: &mut Part<Host>) {
    let (from, to) = (part.places.victim, part.places.survivor);
    part.until(|host| {
        if host.stream().is_none() {
            let stream = host.open(from, to, &tcp::Config::default());
            host.streams.extend(stream);
        }
        host.stream().is_some_and(|stream| host.ring.readiness(stream).contains(Readiness::OUT))
    });
}

fn accepted(part: &mut Part<Host>) {
    listening(part);
    part.board.cue.store(1, Ordering::SeqCst);
    be_connected(part);
}

/// Until it is acknowledged.
fn send(part: &mut Part<Host>, total: usize) {
    part.until(|host| {
        host.send(total);
        let stream = host.stream().expect("it is connected");
        host.sent == total && host.ring.info(stream).is_some_and(|info| info.send_queue == 0)
    });
}

fn receive(part: &mut Part<Host>, total: usize) {
    part.until(|host| {
        host.receive();
        host.got == total
    });
}

fn echo(part: &mut Part<Host>) {
    part.until(|host| {
        host.receive();
        let got = host.got;
        host.send(got);
        host.got == SMALL * 20
    });
}

fn shut_down(part: &mut Part<Host>) {
    send(part, SMALL);
    let stream = part.endpoint().stream().expect("it is connected");
    part.endpoint().ring.shutdown(now(), stream, Shutdown::Write).unwrap();
    part.until(|host| host.ring.info(stream).and_then(|info| info.state) == Some(tcp::State::FinWait2));
}

fn be_shut_down(part: &mut Part<Host>) {
    part.until(|host| {
        host.receive();
        host.ended.is_some()
    });
    let host = part.endpoint();
    host.close_all();
    part.until(|host| host.ring.occupied() == 2);
}

fn close(part: &mut Part<Host>) {
    send(part, SMALL);
    part.endpoint().close_all();
    // Its TIME-WAIT remains.
    part.until(|host| !host.ring.lingering());
}

fn abort(part: &mut Part<Host>) {
    part.endpoint().send(SMALL);
    let stream = part.endpoint().streams.pop().expect("it is connected");
    part.endpoint().ring.close(now(), stream, true);
    part.until(|host| host.ring.occupied() == 0);
}

fn close_listener(part: &mut Part<Host>) {
    let host = part.endpoint();
    if let Some(listener) = host.listener.take() {
        host.ring.close(now(), listener, false);
    }
    host.send(SMALL);
}

fn send_udp(part: &mut Part<Host>) {
    let at = part.places.survivor;
    part.until(|host| host.send_datagrams(at, DATAGRAMS));
}

fn receive_udp(part: &mut Part<Host>) {
    part.until(|host| {
        host.receive_datagrams();
        host.datagrams >= DATAGRAMS
    });
}

/// A connection that has carried something both ways.
fn talked(part: &mut Part<Host>) {
    connected(part);
    send(part, SMALL);
}

fn leave(part: &mut Part<Host>) {
    part.endpoint().send(SMALL * 2);
    drop(part.endpoint.take());
}

// --- the survivor's part ---

fn accept(host: &mut Host, _: &Places, _: &Board) {
    host.accept();
}

fn read(host: &mut Host, places: &Places, board: &Board) {
    host.accept();
    if host.streams.is_empty() && board.cue.load(Ordering::SeqCst) == 1 {
        connect_to_it(host, places, board);
    }
    host.receive();
}

fn connect_to_it(host: &mut Host, places: &Places, board: &Board) {
    let is_wanted = board.is_acting() || board.cue.load(Ordering::SeqCst) == 1;
    if !is_wanted || !host.streams.is_empty() {
        return;
    }
    // A port of its own: the same in each run.
    let from = SocketAddrV4::new(*places.survivor.ip(), places.survivor.port() + 6000);
    let stream = host.open(from, places.victim, &tcp::Config::default());
    host.streams.extend(stream);
}

fn send_up_to(host: &mut Host, places: &Places, board: &Board, total: usize) {
    connect_to_it(host, places, board);
    if board.is_acting() {
        host.send(total);
    }
}

fn send_small(host: &mut Host, places: &Places, board: &Board) {
    send_up_to(host, places, board, SMALL);
}

fn send_large(host: &mut Host, places: &Places, board: &Board) {
    send_up_to(host, places, board, LARGE);
}

fn send_and_read(host: &mut Host, places: &Places, board: &Board) {
    // A request at a time.
    let next = host.got + SMALL;
    send_up_to(host, places, board, next.min(SMALL * 20));
    host.receive();
}

fn shut_it_down(host: &mut Host, places: &Places, board: &Board) {
    send_small(host, places, board);
    if host.sent == SMALL
        && let Some(stream) = host.stream()
    {
        let _done_before = host.ring.shutdown(now(), stream, Shutdown::Write);
    }
    host.receive();
}

fn close_it(host: &mut Host, places: &Places, board: &Board) {
    if host.sent < SMALL {
        send_small(host, places, board);
    } else {
        host.close_all();
    }
}

fn read_and_close(host: &mut Host, places: &Places, board: &Board) {
    read(host, places, board);
    if host.ended.is_some() {
        host.close_all();
    }
}

fn read_udp(host: &mut Host, _: &Places, _: &Board) {
    host.receive_datagrams();
}

fn send_udp_to_it(host: &mut Host, places: &Places, board: &Board) {
    if board.is_acting() && host.datagrams == 0 && host.send_datagrams(places.victim, DATAGRAMS) {
        host.datagrams = 1;
    }
}

// --- what must be true ---

/// Every connection to the dead one has ended, and says so; closing it leaves nothing.
fn has_ended(host: &mut Host, _: &Places, _: bool) -> Result<bool, String> {
    host.accept();
    host.receive();
    // One whose peer had ended its stream in order sees that and no more, until it sends.
    let over = |host: &Host, stream: &FlowId| host.ring.readiness(*stream).intersects(Readiness::RDHUP | Readiness::HUP | Readiness::ERR);
    if !host.streams.iter().all(|stream| over(host, stream)) {
        return Ok(false);
    }
    let is_right = match (host.stream(), host.ended) {
        (Some(stream), Some(Ok(()))) => ended_rightly(host, stream),
        _ => Ok(()),
    };
    host.close_all();
    // Whoever finds it now would connect to a dead one.
    is_right.map(|()| true)
}

/// The end of a stream is one only if nothing is lost: else there is a reset, be it behind the end (of what was not sent yet).
fn ended_rightly(host: &mut Host, stream: FlowId) -> Result<(), String> {
    let board = host.board.expect("a run is under way");
    let (read, written) = (board.read.load(Ordering::SeqCst) as usize, board.written.load(Ordering::SeqCst) as usize);
    if host.got < written {
        return Err(format!("an end of the stream after {} bytes of {written}", host.got));
    }
    if read < host.sent && host.ring.take_error(stream).is_none() {
        return Err(format!("an end of the stream, and of {} bytes sent, {read} were read", host.sent));
    }
    Ok(())
}

/// The same, and one that had nothing left to do has not reset it.
fn has_ended_in_order(host: &mut Host, places: &Places, done: bool) -> Result<bool, String> {
    let has_ended = has_ended(host, places, done)?;
    match host.ended {
        Some(Err(error)) if done => Err(format!("the stream of one that was through with it ends by {error}")),
        _ => Ok(has_ended),
    }
}

fn got_small(host: &mut Host, places: &Places, done: bool) -> Result<bool, String> {
    got(host, places, done, SMALL)
}

fn got_large(host: &mut Host, places: &Places, done: bool) -> Result<bool, String> {
    got(host, places, done, LARGE)
}

fn got(host: &mut Host, places: &Places, done: bool, total: usize) -> Result<bool, String> {
    let has_ended = has_ended_in_order(host, places, done)?;
    if has_ended && done && host.got != total {
        return Err(format!("{} bytes of {total} arrived, and all were acknowledged", host.got));
    }
    Ok(has_ended)
}

fn got_datagrams(host: &mut Host, places: &Places, done: bool) -> Result<bool, String> {
    host.receive_datagrams();
    Ok(has_ended(host, places, done)? && (!done || host.datagrams == DATAGRAMS))
}
