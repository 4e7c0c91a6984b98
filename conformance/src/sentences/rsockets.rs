//! Seed 004: rsockets, as cases that run on every device that carries frames: the stack's sockets ([`ringway_stack::rsocket`]) over two adapters in software.

use core::time::Duration;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use ringway_stack::device::messages::{Memory as _, Messages};
use ringway_stack::flow::Readiness;
use ringway_stack::rsocket::{Host, Mapping, OptionName, OptionValue, Settings, Shutdown, SocketId, Sockets};
use ringway_stack::{Error, Instant};

use super::Rig;
use super::frames::pattern;
use super::roce::{ASKS, Above, Machine, Machines, SERVES};

const PORT: u16 = 7471;
/// How long a case gives what it sent to arrive.
const A_WHILE: Duration = Duration::from_millis(100);
/// Where the passive side maps its buffer, and how long that is.
const OFFSET: u64 = 4_000;
const MAPPED: usize = 3_000;

/// The sockets of both sides.
struct Tables([Sockets; 2]);

impl Above for Tables {
    fn look(&mut self, now: Instant, side: usize, node: &mut Machine) -> Option<Instant> {
        let sockets = &mut self.0[side];
        sockets.poll(now, node);
        sockets.on_timer(now, node);
        sockets.deadline()
    }
}

/// Two programs, each with a socket.
struct Pair<'a, R> {
    machines: Machines<'a, R>,
    tables: Tables,
    sockets: [SocketId; 2],
}

impl<'a, R: Rig> Pair<'a, R> {
    /// Not connected.
    fn new(rig: &'a mut R) -> Result<Self> {
        let mut machines = Machines::new(rig)?;
        let [a, b] = &mut machines.nodes;
        let mut tables = [a, b].map(|node| Sockets::new(node, Settings::default(), Host::default()));
        let sockets = [tables[ASKS].socket(), tables[SERVES].socket()];
        Ok(Self { machines, tables: Tables(tables), sockets })
    }

    /// Connected, with so many mappings set aside on the side that asks.
    fn connected(rig: &'a mut R, mappings: u32) -> Result<Self> {
        let mut pair = Self::new(rig)?;
        let (name, value) = (OptionName::IomapSize, OptionValue::Number(mappings));
        pair.tables.0[ASKS].set_option(pair.machines.now, pair.sockets[ASKS], name, &value)?;
        pair.connect()?;
        Ok(pair)
    }

    fn connect(&mut self) -> Result<()> {
        let listener = self.sockets[SERVES];
        let at = self.address();
        self.tables.0[SERVES].bind(listener, at)?;
        self.tables.0[SERVES].listen(&mut self.machines.nodes[SERVES], listener, 8)?;
        self.tables.0[ASKS].bind(self.sockets[ASKS], SocketAddr::new(self.machines.addresses[ASKS], 40_001))?;
        let (now, node) = (self.machines.now, &mut self.machines.nodes[ASKS]);
        let begun = self.tables.0[ASKS].connect(now, node, self.sockets[ASKS], at);
        ensure!(begun == Err(Error::InProgress), "connecting does not block: {begun:?}");
        self.run()?;
        let (socket, _) = self.tables.0[SERVES].accept(listener).context("raccept")?;
        self.sockets[SERVES] = socket;
        self.run()
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.machines.addresses[SERVES], PORT)
    }

    /// Lets what was sent arrive; both programs look at their sockets.
    fn run(&mut self) -> Result<()> {
        for _ in 0..4 {
            self.machines.run_for(A_WHILE / 4, &mut self.tables)?;
            for side in [ASKS, SERVES] {
                let _ = self.readiness(side);
            }
        }
        Ok(())
    }

    fn readiness(&mut self, side: usize) -> Readiness {
        let (now, node) = (self.machines.now, &mut self.machines.nodes[side]);
        self.tables.0[side].readiness(now, node, self.sockets[side]).unwrap_or(Readiness::empty())
    }

    fn send(&mut self, side: usize, bytes: &[u8]) -> Result<usize, Error> {
        let (now, node) = (self.machines.now, &mut self.machines.nodes[side]);
        self.tables.0[side].send(now, node, self.sockets[side], bytes)
    }

    fn recv(&mut self, side: usize, len: usize, peek: bool) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len];
        let (now, node) = (self.machines.now, &mut self.machines.nodes[side]);
        let got = self.tables.0[side].recv(now, node, self.sockets[side], &mut bytes, peek)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    fn shutdown(&mut self, side: usize, how: Shutdown) -> Result<(), Error> {
        let (now, node) = (self.machines.now, &mut self.machines.nodes[side]);
        self.tables.0[side].shutdown(now, node, self.sockets[side], how)
    }

    fn close(&mut self, side: usize) -> Result<(), Error> {
        let (now, node) = (self.machines.now, &mut self.machines.nodes[side]);
        self.tables.0[side].close(now, node, self.sockets[side])
    }

    fn map(&mut self, side: usize, is_remote: bool, offset: Option<u64>) -> Result<Mapping, Error> {
        let node = &mut self.machines.nodes[side];
        self.tables.0[side].map(node, self.sockets[side], vec![0; MAPPED], is_remote, offset)
    }

    fn write_direct(&mut self, side: usize, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        let (now, node) = (self.machines.now, &mut self.machines.nodes[side]);
        self.tables.0[side].write_direct(now, node, self.sockets[side], bytes, offset)
    }

    /// What is in a mapped buffer.
    fn mapped(&self, side: usize, mapping: &Mapping) -> Result<Vec<u8>> {
        let mut bytes = vec![0; MAPPED];
        Messages::memory(&self.machines.nodes[side], mapping.region.key).context("the region")?.read(0, &mut bytes);
        Ok(bytes)
    }

    fn option(&mut self, side: usize, name: OptionName) -> Result<OptionValue> {
        Ok(self.tables.0[side].option(&self.machines.nodes[side], self.sockets[side], name)?)
    }
}

/// rsocket, rbind, rlisten, raccept, rconnect, rsend, rrecv, rgetpeername, rgetsockname: as sockets have them.
///
/// # Errors
/// What was not as promised.
pub fn a_stream_of_bytes_goes_both_ways<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::connected(rig, 0)?;
    let names = [(ASKS, SERVES), (SERVES, ASKS)];
    for (own, peer) in names {
        let (remote, local) = (pair.tables.0[own].remote(pair.sockets[own])?, pair.tables.0[peer].local(pair.sockets[peer])?);
        ensure!(remote == local, "names: {remote} is {local}");
    }
    ensure!(pair.tables.0[ASKS].remote(pair.sockets[ASKS])? == pair.address(), "who was asked");
    for (side, len) in [(ASKS, 1), (SERVES, 64), (ASKS, 2_048), (SERVES, 30_000), (ASKS, 100_000)] {
        let bytes = pattern(len);
        let (mut sent, mut got) = (0, Vec::new());
        for _ in 0..50 {
            sent += pair.send(side, &bytes[sent..]).or_else(|error| if error == Error::WouldBlock { Ok(0) } else { Err(error) })?;
            pair.run()?;
            while let Ok(some) = pair.recv(1 - side, 50_000, false) {
                got.extend(some);
            }
            if got.len() == len {
                break;
            }
        }
        ensure!(got == bytes, "{len} bytes, of which {} came", got.len());
    }
    Ok(())
}

/// MSG_PEEK, MSG_DONTWAIT, O_NONBLOCK.
///
/// # Errors
/// What was not as promised.
pub fn bytes_are_looked_at_and_nothing_blocks<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::connected(rig, 0)?;
    ensure!(pair.recv(SERVES, 10, false) == Err(Error::WouldBlock), "EAGAIN where nothing has come");
    ensure!(!pair.readiness(SERVES).contains(Readiness::IN), "nor is it readable");
    pair.send(ASKS, b"hello")?;
    pair.run()?;
    ensure!(pair.readiness(SERVES).contains(Readiness::IN), "readable");
    for len in [2, 10] {
        ensure!(pair.recv(SERVES, len, true)? == b"hello"[..len.min(5)], "looked at");
    }
    ensure!(pair.recv(SERVES, 10, false)? == b"hello", "and still there");
    // Until the peer reads, there is an end to what can be sent.
    let mut sent = 0;
    while let Ok(more) = pair.send(ASKS, &[7; 4_000]) {
        sent += more;
        pair.run()?;
        ensure!(sent < 10 << 20, "no end");
    }
    ensure!(pair.send(ASKS, b"x") == Err(Error::WouldBlock), "EAGAIN where there is no room");
    Ok(())
}

/// rshutdown, rclose: what was sent arrives, and then the end.
///
/// # Errors
/// What was not as promised.
pub fn each_direction_ends_by_itself<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::connected(rig, 0)?;
    pair.send(ASKS, b"last")?;
    pair.shutdown(ASKS, Shutdown::Write)?;
    ensure!(pair.send(ASKS, b"x") == Err(Error::Pipe), "EPIPE");
    pair.run()?;
    ensure!(pair.recv(SERVES, 10, false)? == b"last" && pair.recv(SERVES, 10, false)?.is_empty(), "what was sent, and then the end");
    pair.send(SERVES, b"answer")?;
    pair.run()?;
    ensure!(pair.recv(ASKS, 10, false)? == b"answer", "the other direction goes on");
    pair.close(SERVES)?;
    pair.run()?;
    ensure!(pair.recv(ASKS, 10, false)?.is_empty(), "the end");
    pair.close(ASKS)?;
    pair.run()?;
    ensure!(pair.tables.0.iter().all(|sockets| sockets.closing() == 0), "nothing is left");
    Ok(())
}

/// Where nobody listens: ECONNREFUSED, by SO_ERROR, once.
///
/// # Errors
/// What was not as promised.
pub fn a_failure_is_told_once<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::new(rig)?;
    let to = pair.address();
    let (now, node) = (pair.machines.now, &mut pair.machines.nodes[ASKS]);
    let begun = pair.tables.0[ASKS].connect(now, node, pair.sockets[ASKS], to);
    ensure!(begun == Err(Error::InProgress), "{begun:?}");
    pair.run()?;
    let errors = [pair.option(ASKS, OptionName::Error)?, pair.option(ASKS, OptionName::Error)?];
    ensure!(errors == [OptionValue::Number(111), OptionValue::Number(0)], "SO_ERROR: {errors:?}");
    Ok(())
}

/// rsetsockopt and rgetsockopt at SOL_SOCKET, IPPROTO_TCP, IPPROTO_IPV6 and SOL_RDMA.
///
/// # Errors
/// What was not as promised.
pub fn options_are_what_they_were_set_to<R: Rig>(rig: &mut R) -> Result<()> {
    use OptionName as Name;
    let mut pair = Pair::new(rig)?;
    let flags = [Name::ReuseAddress, Name::KeepAlive, Name::OobInline, Name::NoDelay, Name::V6Only].map(|name| (name, 1, 1));
    let buffers = [(Name::SendBuffer, 70_000, 140_000), (Name::RecvBuffer, 60_000, 120_000)];
    let rdma = [(Name::SendQueue, 100, 100), (Name::RecvQueue, 90, 90), (Name::Inline, 32, 32), (Name::IomapSize, 4, 4)];
    let now = pair.machines.now;
    for (name, set, get) in flags.into_iter().chain(buffers).chain(rdma) {
        pair.tables.0[ASKS].set_option(now, pair.sockets[ASKS], name, &OptionValue::Number(set))?;
        ensure!(pair.option(ASKS, name)? == OptionValue::Number(get), "{name:?}: {:?}", pair.option(ASKS, name)?);
    }
    let path = OptionValue::Bytes(vec![9; 72]);
    pair.tables.0[ASKS].set_option(now, pair.sockets[ASKS], Name::Route, &path)?;
    ensure!(pair.option(ASKS, Name::Route)? == path, "RDMA_ROUTE");
    pair.tables.0[ASKS].set_option(now, pair.sockets[ASKS], Name::Linger, &OptionValue::Linger(false, 5))?;
    ensure!(matches!(pair.option(ASKS, Name::Linger)?, OptionValue::Linger(false, _)), "SO_LINGER");
    ensure!(pair.option(SERVES, Name::IomapSize)? == OptionValue::Number(0), "no mappings by default");
    pair.connect()?;
    let late = pair.tables.0[ASKS].set_option(now, pair.sockets[ASKS], Name::SendQueue, &OptionValue::Number(50));
    ensure!(late == Err(Error::Invalid), "queues are made with the connection");
    ensure!(pair.option(ASKS, Name::MaxSegment)? == OptionValue::Number(1024), "TCP_MAXSEG is the path MTU");
    Ok(())
}

/// riomap without RDMA_IOMAPSIZE of the peer's: there is no mapping for remote access, but one for local access.
///
/// # Errors
/// What was not as promised.
pub fn nothing_is_mapped_that_the_peer_has_set_no_room_for<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::connected(rig, 1)?;
    ensure!(pair.map(ASKS, true, Some(0)).is_err(), "the peer has set nothing aside");
    pair.map(ASKS, false, Some(0))?;
    pair.map(SERVES, true, Some(OFFSET))?;
    ensure!(pair.map(SERVES, true, Some(9)).is_err(), "one mapping was set aside");
    Ok(())
}

/// riomap, riowrite: the offset that was given, or chosen; silent; there before what is sent after it; not before the peer has heard of the mapping.
///
/// # Errors
/// What was not as promised.
pub fn direct_writes_come_before_what_is_sent_after_them<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::connected(rig, 2)?;
    let given = pair.map(SERVES, true, Some(OFFSET))?;
    let chosen = pair.map(SERVES, true, None)?;
    ensure!(given.offset == OFFSET && chosen.offset == chosen.region.address, "offsets: {given:?}, {chosen:?}");
    ensure!(pair.write_direct(ASKS, b"early", OFFSET)? == 0, "of a mapping that was not told");
    pair.send(SERVES, &chosen.offset.to_be_bytes())?;
    pair.run()?;
    ensure!(pair.recv(ASKS, 8, false)? == chosen.offset.to_be_bytes(), "the peer hears of it");

    let bytes = pattern(MAPPED);
    ensure!(pair.write_direct(ASKS, &bytes, OFFSET)? == MAPPED, "all of it");
    ensure!(pair.write_direct(ASKS, &bytes, chosen.offset)? == MAPPED, "at the offset that was chosen");
    ensure!(pair.write_direct(ASKS, &bytes, OFFSET + MAPPED as u64 - 10)? == 10, "as far as it is mapped");
    pair.run()?;
    ensure!(!pair.readiness(SERVES).contains(Readiness::IN), "the receiver is not told");
    ensure!(pair.recv(SERVES, 10, false) == Err(Error::WouldBlock), "and reads nothing");

    ensure!(pair.write_direct(ASKS, &[5; MAPPED], OFFSET)? == MAPPED, "another one");
    pair.send(ASKS, b"!")?;
    while pair.recv(SERVES, 1, false).is_err() {
        pair.run()?;
    }
    ensure!(pair.mapped(SERVES, &given)? == [5; MAPPED], "there before what was sent after it");
    ensure!(pair.mapped(SERVES, &chosen)? == bytes, "and where it was chosen");
    Ok(())
}

/// riounmap: whoever writes there afterwards loses the connection, and nothing is written.
///
/// # Errors
/// What was not as promised.
pub fn what_is_unmapped_is_not_written<R: Rig>(rig: &mut R) -> Result<()> {
    let mut pair = Pair::connected(rig, 1)?;
    let mapping = pair.map(SERVES, true, Some(OFFSET))?;
    pair.send(SERVES, b"x")?;
    pair.run()?;
    pair.recv(ASKS, 1, false)?;
    let node = &mut pair.machines.nodes[SERVES];
    let socket = pair.sockets[SERVES];
    ensure!(pair.tables.0[SERVES].unmap(node, socket, mapping.region.address, 7).is_err(), "another length is none of its mappings");
    let memory = pair.tables.0[SERVES].unmap(node, socket, mapping.region.address, MAPPED as u64)?;
    pair.write_direct(ASKS, &[9; MAPPED], OFFSET)?;
    pair.run()?;
    ensure!(memory.iter().all(|byte| *byte == 0), "the buffer is the program's alone");
    ensure!(pair.send(ASKS, b"x") == Err(Error::Reset), "the writer's adapter was refused");
    Ok(())
}
