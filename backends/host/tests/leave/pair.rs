//! A connection between us, in a ring or in the kernel beside it, and a kernel that knows nothing of moves.

use core::time::Duration;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};

use ringway_host::leave::{FromKernel, Kernel, Leave as _, LeaveError, Unsent, settle};
use ringway_stack::ring::{FlowId, Handover, RecvFlags, SendFlags, Shutdown as Direction};
use ringway_stack::tcp::{Config, State};
use ringway_stack::{Error, Instant};

use crate::device::PacketQueues;
use crate::world::World;

/// What is waited for, at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who has our end.
pub(crate) enum Ours {
    Ring(FlowId),
    Kernel(TcpStream, Unsent),
    Nobody,
}

pub(crate) struct Pair<'w> {
    pub(crate) world: &'w mut World,
    pub(crate) kernel: Kernel,
    pub(crate) ours: Ours,
    pub(crate) peers: TcpStream,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Bytes that were written and read: by us, by the peer.
    pub(crate) written: [u64; 2],
    pub(crate) read: [u64; 2],
    pub(crate) moves: usize,
    /// For how long nobody had our end, each time that the kernel took it over.
    pub(crate) frozen: Vec<Duration>,
    /// The state in which the kernel gave our end back last.
    pub(crate) state_taken: Option<State>,
}

/// Whose.
pub(crate) const US: usize = 0;
pub(crate) const PEER: usize = 1;

/// The byte at a position of a stream.
fn byte(whose: usize, at: u64) -> u8 {
    let z = (at / 7 + 1 + (whose as u64) * 0x51_7c_c1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z >> 32) as u8 ^ at as u8
}

pub(crate) fn bytes(whose: usize, at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|at| byte(whose, at)).collect()
}

impl<'w> Pair<'w> {
    pub(crate) fn connect(world: &'w mut World) -> Self {
        Self::connect_with(world, &Config::default())
    }

    pub(crate) fn connect_with(world: &'w mut World, config: &Config) -> Self {
        let (local, listener) = (world.fresh(), world.listener());
        let remote = listener.local_addr().expect("its address");
        let id = world.ring.tcp_connect(world.clock.now(), local, remote, World::hop(), config).expect("a place");
        let end = world.now() + PATIENCE;
        while world.ring.info(id).and_then(|info| info.state) != Some(State::Established) {
            world.ring.poll(world.clock.now());
            assert!(world.now() < end, "the handshake");
        }
        let (peers, _) = listener.accept().expect("it is there");
        Self::of(world, Ours::Ring(id), peers, local, remote)
    }

    pub(crate) fn of(world: &'w mut World, ours: Ours, peers: TcpStream, local: SocketAddr, remote: SocketAddr) -> Self {
        peers.set_nonblocking(true).expect("an option");
        let kernel = Kernel::open(world.clock).expect("the kernel takes connections over");
        Self { world, kernel, ours, peers, local, remote, written: [0; 2], read: [0; 2], moves: 0, frozen: Vec::new(), state_taken: None }
    }

    /// Where our end is, and in which state.
    pub(crate) fn state(&self) -> Option<State> {
        match &self.ours {
            Ours::Ring(id) => self.world.ring.info(*id).and_then(|info| info.state),
            _ => None,
        }
    }

    /// Does what is due on our side.
    pub(crate) fn turn(&mut self) {
        self.world.ring.poll(self.world.clock.now());
        if let Ours::Kernel(stream, unsent) = &mut self.ours {
            unsent.write(stream.as_fd()).expect("what was not sent");
        }
    }

    /// Writes as many of these bytes as are taken.
    pub(crate) fn write(&mut self, whose: usize, len: usize) -> usize {
        let data = bytes(whose, self.written[whose], len);
        let written = match (whose, &mut self.ours) {
            (PEER, _) => would_block(self.peers.write(&data)),
            (_, Ours::Ring(id)) => {
                match self.world.ring.tcp_send(self.world.clock.now(), *id, &[IoSlice::new(&data)], SendFlags::empty()) {
                    Err(Error::WouldBlock) => 0,
                    written => written.expect("our stream takes bytes"),
                }
            }
            (_, Ours::Kernel(stream, unsent)) => {
                let is_done = unsent.write(stream.as_fd()).expect("what was not sent");
                if is_done { would_block(stream.write(&data)) } else { 0 }
            }
            (_, Ours::Nobody) => panic!("nobody has it"),
        };
        self.written[whose] += written as u64;
        written
    }

    /// Reads at most so many bytes, and compares them. `None`: the stream has ended.
    pub(crate) fn read(&mut self, whose: usize, len: usize) -> Option<usize> {
        let mut into = vec![0; len];
        let read = match (whose, &mut self.ours) {
            (PEER, _) => self.peers.read(&mut into),
            (_, Ours::Ring(id)) => {
                let read = self.world.ring.tcp_recv(self.world.clock.now(), *id, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty());
                match read {
                    Err(Error::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
                    read => Ok(read.expect("our stream gives bytes")),
                }
            }
            (_, Ours::Kernel(stream, _)) => stream.read(&mut into),
            (_, Ours::Nobody) => panic!("nobody has it"),
        };
        let count = match read {
            Ok(0) => return None,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(0),
            Err(error) => panic!("{} cannot read: {error}", ["we", "the peer"][whose]),
        };
        let wanted = bytes(1 - whose, self.read[whose], count);
        if let Some(at) = (0..count).find(|at| wanted[*at] != into[*at]) {
            panic!("byte {} that {} read is wrong, after {} moves", self.read[whose] + at as u64, ["we", "the peer"][whose], self.moves);
        }
        self.read[whose] += count as u64;
        Some(count)
    }

    /// Writes all of so many bytes, while nobody reads.
    pub(crate) fn write_all(&mut self, whose: usize, len: usize) {
        let (goal, end) = (self.written[whose] + len as u64, self.world.now() + PATIENCE);
        while self.written[whose] < goal {
            let rest = (goal - self.written[whose]) as usize;
            self.write(whose, rest.min(1 << 16));
            self.turn();
            assert!(self.world.now() < end, "{} could not write", ["we", "the peer"][whose]);
        }
    }

    /// Reads until all that the other side wrote is there.
    pub(crate) fn drain(&mut self, whose: usize) {
        let end = self.world.now() + PATIENCE;
        while self.read[whose] < self.written[1 - whose] {
            self.turn();
            let read = self.read(whose, 1 << 16);
            assert!(read.is_some(), "{} read the end at {} of {}", ["we", "the peer"][whose], self.read[whose], self.written[1 - whose]);
            let (read, written, moves) = (self.read[whose], self.written[1 - whose], self.moves);
            assert!(self.world.now() < end, "{} read {read} of {written} bytes, after {moves} moves", ["we", "the peer"][whose]);
        }
    }

    /// A few bytes each way.
    pub(crate) fn talk(&mut self) {
        for whose in [US, PEER] {
            self.write_all(whose, 1000);
            self.drain(1 - whose);
        }
    }

    /// For so long.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.turn();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Until our end is in that state.
    pub(crate) fn until(&mut self, state: State) {
        let end = self.world.now() + PATIENCE;
        while self.state() != Some(state) {
            self.turn();
            assert!(self.world.now() < end, "{:?} is not {state:?}", self.state());
        }
    }

    pub(crate) fn shut(&mut self, whose: usize) {
        match (whose, &mut self.ours) {
            (PEER, _) => self.peers.shutdown(Shutdown::Write).expect("the peer's end"),
            (_, Ours::Ring(id)) => self.world.ring.shutdown(self.world.clock.now(), *id, Direction::Write).expect("our end"),
            (_, Ours::Kernel(stream, _)) => stream.shutdown(Shutdown::Write).expect("our end"),
            (_, Ours::Nobody) => panic!("nobody has it"),
        }
    }

    /// Both read all there is, and the end behind it.
    pub(crate) fn both_read_the_end(&mut self) {
        for whose in [US, PEER] {
            self.drain(whose);
            let end = self.world.now() + PATIENCE;
            while self.read(whose, 1).is_some_and(|count| {
                assert_eq!(count, 0);
                true
            }) {
                self.turn();
                assert!(self.world.now() < end, "{} did not see the end", ["we", "the peer"][whose]);
            }
        }
    }

    /// As [`Pair::both_read_the_end`], after both have ended their streams; and nothing is left of it.
    pub(crate) fn finish(mut self, shut: &[usize]) {
        for whose in shut {
            self.shut(*whose);
        }
        self.both_read_the_end();
        self.turn();
        let peers_error = self.peers.take_error().expect("an option");
        assert!(peers_error.is_none(), "{peers_error:?}");
        match core::mem::replace(&mut self.ours, Ours::Nobody) {
            Ours::Ring(id) => self.world.ring.close(self.world.clock.now(), id, false),
            Ours::Kernel(mut stream, _) => assert_eq!(stream.read(&mut [0]).expect("the end"), 0),
            Ours::Nobody => {}
        }
    }

    /// Our end, between two owners.
    pub(crate) fn detach(&mut self) -> (Instant, Handover<PacketQueues>) {
        let Ours::Ring(id) = core::mem::replace(&mut self.ours, Ours::Nobody) else { panic!("the kernel has it") };
        let now = self.world.now();
        (now, self.world.ring.detach_stream(now, id).expect("it can be given away"))
    }

    /// Gives our end to the kernel.
    pub(crate) fn move_to_kernel(&mut self) {
        let placeholder = self.world.placeholder(self.local);
        let refused = self.try_kernel(placeholder).err().map(|(error, _)| error);
        assert!(refused.is_none(), "{refused:?}");
        self.moves += 1;
    }

    /// The same; where it is refused, our end is in the ring again.
    pub(crate) fn try_kernel(&mut self, placeholder: OwnedFd) -> Result<(), (LeaveError, OwnedFd)> {
        let Self { world, kernel, local, remote, .. } = self;
        let Ours::Ring(id) = self.ours else { panic!("the kernel has it") };
        let (local, remote, clock) = (*local, *remote, world.clock);
        let began = clock.now();
        let handover = world.ring.detach_stream(began, id).expect("it can be given away");
        world.ring.tcp_keep_late(local, remote);
        let mut late = || {
            while world.ring.poll(clock.now()) > 0 {}
            world.ring.tcp_take_late(local, remote)
        };
        let left = kernel.into_socket(placeholder.as_fd()).leave(handover, &mut late);
        match left {
            Ok(unsent) => {
                self.world.ring.tcp_end_late(local, remote);
                self.frozen.push(clock.now() - began);
                self.ours = Ours::Kernel(TcpStream::from(placeholder), unsent);
                Ok(())
            }
            Err(refused) => {
                let id = self.world.ring.adopt(clock.now(), refused.handover).map_err(|(error, _)| error).expect("it goes back");
                self.ours = Ours::Ring(id);
                Err((refused.error, placeholder))
            }
        }
    }

    /// Gives our end to the kernel, where it says nothing for so long. `speaks`: then it does; else it is in the ring again.
    pub(crate) fn enter_kernel(&mut self, silence: Duration, speaks: bool) {
        let placeholder = self.world.placeholder(self.local);
        let (_, handover) = self.detach();
        let Self { world, kernel, local, remote, .. } = self;
        let (local, remote, clock) = (*local, *remote, world.clock);
        world.ring.tcp_keep_late(local, remote);
        let entered =
            kernel.into_socket(placeholder.as_fd()).enter(handover).map_err(|refused| refused.error).expect("the kernel takes it");
        let end = clock.now() + silence;
        while clock.now() < end {
            world.ring.poll(clock.now());
            std::thread::sleep(Duration::from_micros(200));
        }
        if !speaks {
            let id = world.ring.adopt(clock.now(), entered.take_back()).map_err(|(error, _)| error).expect("it goes back");
            self.ours = Ours::Ring(id);
            return;
        }
        let mut late = || {
            while world.ring.poll(clock.now()) > 0 {}
            world.ring.tcp_take_late(local, remote)
        };
        let unsent = entered.speak(&mut late).expect("it is live");
        world.ring.tcp_end_late(local, remote);
        self.ours = Ours::Kernel(TcpStream::from(placeholder), unsent);
        self.moves += 1;
    }

    /// Takes our end back into the ring.
    pub(crate) fn move_to_ring(&mut self) {
        let end = self.world.now() + PATIENCE;
        // (What was never sent goes before all else: the socket has it, or the way back waits.)
        while let Ours::Kernel(stream, unsent) = &mut self.ours {
            if unsent.write(stream.as_fd()).expect("what was not sent") {
                break;
            }
            assert!(self.world.clock.now() < end, "the kernel takes no more");
            let read = self.peers_read_some();
            assert!(read, "nobody reads");
        }
        self.expect();
        self.take();
    }

    /// Steers what comes from now on to the ring.
    pub(crate) fn expect(&mut self) {
        self.world.ring.tcp_expect(self.local, self.remote).expect("a rule");
        assert_eq!(self.world.ring.tcp_is_expected(self.local, self.remote), Ok(true));
    }

    /// Takes our end out of the kernel, once it is expected.
    pub(crate) fn take(&mut self) {
        let Ours::Kernel(stream, unsent) = core::mem::replace(&mut self.ours, Ours::Nobody) else { panic!("the ring has it") };
        assert!(unsent.is_done());
        let Self { world, local, remote, .. } = self;
        let (local, remote) = (*local, *remote);
        settle().expect("membarrier");
        let taken = FromKernel::take(stream.as_fd(), &world.clock).expect("the kernel gives it");
        assert_eq!((taken.local(), taken.remote()), (local, remote));
        self.state_taken = Some(taken.control_block().state);
        let now = world.now();
        let bytes = taken.snapshot(now, &Config::default()).expect("a connection");
        let id = world.ring.adopt_snapshot(now, (local, remote), World::hop(), &Config::default(), &bytes).expect("a place");
        world.ring.tcp_retarget(world.clock.now(), id, World::hop()).expect("it is there");
        taken.release().expect("the kernel forgets it");
        drop(stream);
        self.ours = Ours::Ring(id);
        self.moves += 1;
    }

    /// Whether all that was not sent when the kernel took our end over has been given to it.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(&self.ours, Ours::Kernel(_, unsent) if unsent.is_done())
    }

    fn peers_read_some(&mut self) -> bool {
        self.turn();
        self.read(PEER, 1 << 16).is_some()
    }
}

fn would_block(written: io::Result<usize>) -> usize {
    match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        written => written.expect("a stream takes bytes"),
    }
}

/// How many segments a socket of the kernel's has sent again (`tcpi_total_retrans`).
pub(crate) fn total_retransmissions(stream: &TcpStream) -> u32 {
    let (mut info, mut len) = ([0u8; 104], 104 as libc::socklen_t);
    let fd = std::os::fd::AsRawFd::as_raw_fd(stream);
    // SAFETY: there is room for so many bytes.
    let got = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len) };
    assert_eq!((got, len), (0, 104));
    u32::from_ne_bytes([info[100], info[101], info[102], info[103]])
}
