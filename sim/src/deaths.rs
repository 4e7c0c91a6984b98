//! Hosts that die: two hosts whose device tells of a peer's death, as shared memory does of a process's. Their programs do what a seed says, until
//! one of the hosts dies in the middle of it; then each of the other's connections must end as Linux ends one whose process is killed:
//!
//! - all that the dead one had put on the fabric is read, and nothing else;
//! - then the stream ends, if the dead program had read all bytes that had been sent to it, and its stack had sent all that it had written;
//! - else the connection is reset, and so is one that the program had not accepted, or for which it had asked for that (SO_LINGER of zero).

mod device;

use core::cell::RefCell;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use ringway_stack::mutants::Mutant;
use ringway_stack::ring::{FlowId, NextHop, Readiness, RecvFlags, Ring, RingConfig, SendFlags, Shutdown};
use ringway_stack::{Error, Instant, tcp};

use crate::random::{SplitMix, scale};
use device::{Ends, Fabric, Nic, mac};

/// Connections of each way round.
const CONNECTIONS: u16 = 3;
/// What programs and hosts do before one dies, at most.
const STEPS_MAX: u64 = 120;
/// The longest piece that a program reads or writes.
const PIECE_MAX: u64 = 9000;

const DYING: usize = 0;
const SURVIVING: usize = 1;

/// One end of a connection, as its program knows it.
struct End {
    /// `None`: nobody has accepted it.
    socket: Option<FlowId>,
    ends: Ends,
    wrote: usize,
    read: usize,
    is_shut: bool,
    lingers: bool,
}

/// What each run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    /// Connections that the dead one left in order.
    pub ended: u32,
    /// Those that had to be reset.
    pub reset: u32,
}

struct Scenario {
    dice: SplitMix,
    now: Instant,
    fabric: Rc<RefCell<Fabric>>,
    rings: [Ring<Nic>; 2],
    listeners: [FlowId; 2],
    /// By host; the ends of one connection have the same place in both.
    ends: [Vec<End>; 2],
}

/// Lets a host die, once, in the middle of what the seed says.
///
/// # Panics
/// A connection did not end as it must.
pub fn play(seed: u64, mutant: Mutant) -> Deaths {
    let mut scenario = Scenario::begin(seed, mutant);
    for _ in 0..scenario.below(STEPS_MAX) {
        scenario.step();
    }
    scenario.rings[DYING].queues().die();
    scenario.judge()
}

fn address(host: usize, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + host as u8)), port)
}

/// What every stream consists of.
fn byte_at(place: usize) -> u8 {
    (place.wrapping_mul(0x9e37_79b1) >> 13) as u8
}

impl Scenario {
    fn begin(seed: u64, mutant: Mutant) -> Self {
        let fabric = Rc::new(RefCell::new(Fabric::default()));
        let ring = |host: usize| {
            let config = RingConfig { reset_strangers: true, ..RingConfig::default() };
            let ring = Ring::new(Nic::new(host, &fabric), config, [host as u8; 32]);
            infected(ring, mutant)
        };
        let mut rings = [ring(DYING), ring(SURVIVING)];
        // (Small, so that windows shut.)
        let config = tcp::Config { rcvbuf: Some(12_000), ..tcp::Config::default() };
        let listen = |rings: &mut [Ring<Nic>; 2], host: usize| rings[host].tcp_listen(address(host, 80), 16, &config);
        let listeners = [DYING, SURVIVING].map(|host| listen(&mut rings, host).expect("a fresh host"));
        let mut scenario = Self {
            dice: SplitMix(seed),
            now: Instant::from_nanos(1_000_000_000),
            fabric,
            rings,
            listeners,
            ends: [Vec::new(), Vec::new()],
        };
        for number in 0..2 * CONNECTIONS {
            let from = usize::from(number % 2);
            let (local, remote) = (address(from, 1000 + number), address(1 - from, 80));
            let hop = NextHop::Mac(mac(1 - from));
            let opened = scenario.rings[from].tcp_connect(scenario.now, local, remote, hop, &config).expect("a fresh host");
            let end = |socket, ends| End { socket, ends, wrote: 0, read: 0, is_shut: false, lingers: false };
            scenario.ends[from].push(end(Some(opened), (local, remote)));
            scenario.ends[1 - from].push(end(None, (remote, local)));
            for _ in 0..4 {
                scenario.poll(1 - from);
                scenario.poll(from);
            }
            // The survivor accepts at once; who dies may never come to it.
            if from == DYING || scenario.below(4) > 0 {
                scenario.accept(1 - from);
            }
        }
        scenario
    }

    fn below(&mut self, bound: u64) -> u64 {
        scale(self.dice.next(), bound)
    }

    fn poll(&mut self, host: usize) {
        self.now += Duration::from_micros(1);
        self.rings[host].poll(self.now);
        while self.rings[host].take_event().is_some() {}
    }

    fn accept(&mut self, host: usize) {
        let Ok(socket) = self.rings[host].tcp_accept(self.listeners[host]) else { return };
        let info = self.rings[host].info(socket).expect("it was accepted just now");
        let ends = (info.local, info.remote.expect("a connection"));
        let end = self.ends[host].iter_mut().find(|end| end.ends == ends).expect("somebody opened it");
        end.socket = Some(socket);
    }

    /// A host polls, or a program does something to a connection.
    fn step(&mut self) {
        let host = self.below(2) as usize;
        let place = self.below(self.ends[host].len() as u64) as usize;
        let len = 1 + self.below(PIECE_MAX) as usize;
        match self.below(12) {
            0..=3 => self.poll(host),
            4 | 5 => self.write(host, place, len),
            6..=8 => self.read(host, place, len, RecvFlags::empty()),
            9 => self.read(host, place, len, RecvFlags::PEEK),
            10 if self.below(4) == 0 => self.shut_down(host, place),
            11 if self.below(4) == 0 => self.linger(host, place),
            _ => self.accept(host),
        }
    }

    fn write(&mut self, host: usize, place: usize, len: usize) {
        let end = &mut self.ends[host][place];
        let Some(socket) = end.socket.filter(|_| !end.is_shut) else { return };
        let bytes: Vec<u8> = (end.wrote..end.wrote + len).map(byte_at).collect();
        self.now += Duration::from_micros(1);
        if let Ok(wrote) = self.rings[host].tcp_send(self.now, socket, &[IoSlice::new(&bytes)], SendFlags::empty()) {
            end.wrote += wrote;
        }
    }

    fn read(&mut self, host: usize, place: usize, len: usize, flags: RecvFlags) {
        let end = &mut self.ends[host][place];
        let Some(socket) = end.socket else { return };
        let mut bytes = vec![0; len];
        self.now += Duration::from_micros(1);
        if let Ok(read) = self.rings[host].tcp_recv(self.now, socket, &mut [IoSliceMut::new(&mut bytes)], flags)
            && !flags.contains(RecvFlags::PEEK)
        {
            end.read += read;
        }
    }

    fn shut_down(&mut self, host: usize, place: usize) {
        let end = &mut self.ends[host][place];
        let Some(socket) = end.socket else { return };
        end.is_shut |= self.rings[host].shutdown(self.now, socket, Shutdown::Write).is_ok();
    }

    fn linger(&mut self, host: usize, place: usize) {
        let end = &mut self.ends[host][place];
        let Some(socket) = end.socket else { return };
        end.lingers = !end.lingers;
        let lingers = end.lingers;
        self.rings[host].tcp_configure(self.now, socket, |config| config.linger_zero = lingers).expect("it is a connection");
    }

    /// The survivor learns of the death, and reads all its connections to their ends.
    fn judge(mut self) -> Deaths {
        // What the dead one sent is received whenever there is room for it; then comes the news.
        for _ in 0..64 {
            self.poll(SURVIVING);
        }
        let mut deaths = Deaths::default();
        for place in 0..self.ends[SURVIVING].len() {
            let is_clean = self.is_clean(place);
            *(if is_clean { &mut deaths.ended } else { &mut deaths.reset }) += 1;
            self.judge_one(place, is_clean);
        }
        deaths
    }

    /// Whether the dead one was through with a connection.
    fn is_clean(&self, place: usize) -> bool {
        let (dead, alive) = (&self.ends[DYING][place], &self.ends[SURVIVING][place]);
        let fabric = self.fabric.borrow();
        let sent = |end: &End| fabric.sent.get(&end.ends).map_or(0, |(sent, _)| *sent);
        dead.socket.is_some() && !dead.lingers && dead.read == sent(alive) && dead.wrote == sent(dead)
    }

    fn judge_one(&mut self, place: usize, is_clean: bool) {
        let (sent, had_ended) = self.fabric.borrow().sent.get(&self.ends[DYING][place].ends).copied().unwrap_or_default();
        let unsent = {
            let alive = &self.ends[SURVIVING][place];
            let sent = self.fabric.borrow().sent.get(&alive.ends).map_or(0, |(sent, _)| *sent);
            assert!(sent <= alive.wrote, "checker deaths: {sent} bytes sent, of {}", alive.wrote);
            alive.wrote - sent
        };
        let end = &mut self.ends[SURVIVING][place];
        let (ring, socket) = (&mut self.rings[SURVIVING], end.socket.expect("the survivor has it"));
        let ready = ring.readiness(socket);
        assert!(ready.contains(Readiness::IN | Readiness::RDHUP), "checker deaths: {ready:?} after the peer's death");
        let mut bytes = vec![0; 4096];
        let outcome = loop {
            match ring.tcp_recv(self.now, socket, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()) {
                Ok(0) => break Ok(()),
                Ok(len) => {
                    let is_right = bytes[..len].iter().zip(end.read..).all(|(byte, place)| *byte == byte_at(place));
                    assert!(is_right, "checker deaths: other bytes than were sent");
                    end.read += len;
                }
                Err(error) => break Err(error),
            }
        };
        assert!(end.read == sent, "checker deaths: {} bytes read, and {sent} were sent", end.read);
        let expected = if is_clean || had_ended { Ok(()) } else { Err(Error::Reset) };
        assert!(outcome == expected, "checker deaths: {outcome:?}, clean {is_clean}, ended before {had_ended}");
        if end.is_shut {
            return;
        }
        // Who goes on writing is answered by a reset.
        let mut write = || ring.tcp_send(self.now, socket, &[IoSlice::new(b"more")], SendFlags::empty());
        let first = write();
        let takes_it = is_clean && unsent == 0;
        assert!(first.is_ok() == takes_it, "checker deaths: {first:?}, clean {is_clean}, {unsent} bytes unsent");
        let second = write();
        assert!(second == Err(Error::Pipe), "checker deaths: {second:?} of a write to a dead peer");
    }
}

#[cfg(feature = "mutants")]
fn infected(mut ring: Ring<Nic>, mutant: Mutant) -> Ring<Nic> {
    ring.mutate(mutant);
    ring
}

#[cfg(not(feature = "mutants"))]
fn infected(ring: Ring<Nic>, _mutant: Mutant) -> Ring<Nic> {
    ring
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_end_as_their_dead_host_left_them() {
        let mut all = Deaths::default();
        for seed in 0..if cfg!(debug_assertions) { 3000 } else { 20_000 } {
            let deaths = std::panic::catch_unwind(|| play(seed, Mutant::Healthy)).unwrap_or_else(|_| panic!("seed {seed}"));
            (all.ended, all.reset) = (all.ended + deaths.ended, all.reset + deaths.reset);
        }
        assert!(all.ended > 2000 && all.reset > 2000, "{all:?}");
    }
}
