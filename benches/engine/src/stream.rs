//! One connection at work: a stream one way, and messages to and fro. Time is virtual: it passes by as much each turn, whatever a turn takes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::wire::Checksums;
use crate::{ALLOCATOR, ours, smol};

/// Bytes of each socket's buffers.
const BUFFER: usize = 512 << 10;
/// Bytes that the programs send and receive at a time.
const CHUNK: usize = 64 << 10;
/// How much time passes each turn.
const TURN: Duration = Duration::from_micros(10);
/// Exchanges before anything counts, and how much time passes with each: by then each slot of the stack's timers has been used that the connection's come to.
const WARM: u32 = 60_000;
const WARM_TURN: Duration = Duration::from_millis(5);
/// Bytes of a message.
const MESSAGE: usize = 64;
/// Turns without a byte after which a stream has failed: a timeout's, and more.
const STALLED: u32 = 200_000;

/// What something came to, once it was warm.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    wall: Duration,
    bytes: u64,
    /// Segments with payload, or round trips.
    units: u64,
    /// Bytes that were allocated meanwhile.
    pub(crate) allocated: usize,
}

impl Run {
    pub(crate) fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.wall.as_secs_f64()
    }

    pub(crate) fn ns_per_unit(&self) -> f64 {
        self.wall.as_secs_f64() * 1e9 / self.units as f64
    }
}

/// When measuring began.
struct Start {
    at: Instant,
    units: u64,
    allocated: usize,
}

impl Start {
    fn now(units: u64) -> Self {
        Self { units, allocated: ALLOCATOR.total_allocated(), at: Instant::now() }
    }

    fn end(self, bytes: u64, units: u64) -> Run {
        let wall = self.at.elapsed();
        Run { wall, bytes, units: units - self.units, allocated: ALLOCATOR.total_allocated() - self.allocated }
    }
}

/// A client and a server with one connection, between which a stream goes by turns.
trait Pair {
    /// The client's program sends what fits, the hosts look, and the server's program reads what is there. How many bytes it read.
    fn turn(&mut self, chunk: &[u8], into: &mut [u8]) -> Result<usize>;
    /// 64 bytes there, and 64 back.
    fn exchange(&mut self, message: &[u8], into: &mut [u8]) -> Result<()>;
    /// Time passes.
    fn pass(&mut self, time: Duration);
    /// Segments with payload that the client has sent.
    fn segments(&self) -> u64;
}

struct Ours {
    hosts: ours::Hosts,
    client: ringway_stack::ring::FlowId,
    server: ringway_stack::ring::FlowId,
}

impl Ours {
    fn new(mtu: usize, checksums: Checksums) -> Result<Self> {
        let mut hosts = ours::Hosts::new(mtu, Some(BUFFER), checksums)?;
        let (client, server) = hosts.connect()?;
        Ok(Self { hosts, client, server })
    }
}

impl Pair for Ours {
    fn turn(&mut self, chunk: &[u8], into: &mut [u8]) -> Result<usize> {
        let Self { hosts, client, server } = self;
        let now = hosts.now;
        while ours::send(&mut hosts.client, now, *client, chunk)? > 0 {}
        ours::poll_all(&mut hosts.client, now);
        ours::poll_all(&mut hosts.server, now);
        let mut read = 0;
        loop {
            match ours::receive(&mut hosts.server, now, *server, into)? {
                0 => break,
                len => read += len,
            }
        }
        ours::poll_all(&mut hosts.server, now);
        hosts.take_events();
        Ok(read)
    }

    fn exchange(&mut self, message: &[u8], into: &mut [u8]) -> Result<()> {
        let Self { hosts, client, server } = self;
        let now = hosts.now;
        let sent = ours::send(&mut hosts.client, now, *client, message)?;
        ours::poll_all(&mut hosts.server, now);
        let read = ours::receive(&mut hosts.server, now, *server, into)?;
        let answered = ours::send(&mut hosts.server, now, *server, message)?;
        ours::poll_all(&mut hosts.client, now);
        let heard = ours::receive(&mut hosts.client, now, *client, into)?;
        ensure!([sent, read, answered, heard] == [message.len(); 4], "an exchange: {sent}, {read}, {answered}, {heard} bytes");
        hosts.take_events();
        Ok(())
    }

    fn pass(&mut self, time: Duration) {
        self.hosts.now += time;
    }

    fn segments(&self) -> u64 {
        self.hosts.segments()
    }
}

struct Smoltcp(smol::Hosts);

impl Smoltcp {
    fn new(mtu: usize, checksums: Checksums) -> Result<Self> {
        let mut hosts = smol::Hosts::new(mtu, BUFFER, checksums)?;
        hosts.connect()?;
        Ok(Self(hosts))
    }
}

impl Pair for Smoltcp {
    fn turn(&mut self, chunk: &[u8], into: &mut [u8]) -> Result<usize> {
        let smol::Hosts { client, server, now, .. } = &mut self.0;
        while client.socket().can_send() && client.socket().send_slice(chunk)? > 0 {}
        client.poll(*now);
        server.poll(*now);
        let mut read = 0;
        while server.socket().can_recv() {
            read += server.socket().recv_slice(into)?;
        }
        server.poll(*now);
        Ok(read)
    }

    fn exchange(&mut self, message: &[u8], into: &mut [u8]) -> Result<()> {
        let smol::Hosts { client, server, now, .. } = &mut self.0;
        let sent = client.socket().send_slice(message)?;
        client.poll(*now);
        server.poll(*now);
        let read = server.socket().recv_slice(into)?;
        let answered = server.socket().send_slice(message)?;
        server.poll(*now);
        client.poll(*now);
        let heard = client.socket().recv_slice(into)?;
        ensure!([sent, read, answered, heard] == [message.len(); 4], "an exchange: {sent}, {read}, {answered}, {heard} bytes");
        Ok(())
    }

    fn pass(&mut self, time: Duration) {
        self.0.pass(time);
    }

    fn segments(&self) -> u64 {
        self.0.segments()
    }
}

/// Our stream of so many bytes over frames of up to `mtu` bytes of IP packet, a quarter more going before that.
///
/// # Errors
/// It did not arrive.
pub(crate) fn ours(mtu: usize, bytes: u64, checksums: Checksums) -> Result<Run> {
    bulk(Ours::new(mtu, checksums)?, bytes, TURN)
}

/// smoltcp's.
///
/// # Errors
/// As [`ours()`].
pub(crate) fn smoltcp(mtu: usize, bytes: u64, checksums: Checksums) -> Result<Run> {
    bulk(Smoltcp::new(mtu, checksums)?, bytes, TURN)
}

/// Our round trips of 64 bytes, a quarter more going before them.
///
/// # Errors
/// Something was lost.
pub(crate) fn ping_pong_ours(count: u32, checksums: Checksums) -> Result<Run> {
    ping_pong(Ours::new(1500, checksums)?, count, TURN)
}

/// smoltcp's.
///
/// # Errors
/// As [`ping_pong_ours`].
pub(crate) fn ping_pong_smoltcp(count: u32, checksums: Checksums) -> Result<Run> {
    ping_pong(Smoltcp::new(1500, checksums)?, count, TURN)
}

/// Bytes that ours allocates while a stream fills its buffers every 5 ms, so many times: what its timers do in a long life.
///
/// # Errors
/// As [`ours()`].
pub(crate) fn allocated_by_timers(turns: u32) -> Result<usize> {
    let mut pair = Ours::new(1500, Checksums::Stack)?;
    exchanges(&mut pair, WARM, WARM_TURN)?;
    let mut buffers = (vec![0x5a; CHUNK], vec![0; CHUNK]);
    transfer(&mut pair, 64 << 20, WARM_TURN, &mut buffers)?;
    let start = Start::now(0);
    transfer(&mut pair, u64::from(turns) * BUFFER as u64, WARM_TURN, &mut buffers)?;
    Ok(start.end(0, 0).allocated)
}

fn bulk(mut pair: impl Pair, bytes: u64, turn: Duration) -> Result<Run> {
    exchanges(&mut pair, WARM, WARM_TURN)?;
    let mut buffers = (vec![0x5a; CHUNK], vec![0; CHUNK]);
    transfer(&mut pair, bytes / 4, turn, &mut buffers)?;
    let start = Start::now(pair.segments());
    let read = transfer(&mut pair, bytes, turn, &mut buffers)?;
    Ok(start.end(read, pair.segments()))
}

/// How many bytes arrived: so many, or a few more. `buffers`: what is sent, and where to read it to.
fn transfer(pair: &mut impl Pair, bytes: u64, turn: Duration, (chunk, into): &mut (Vec<u8>, Vec<u8>)) -> Result<u64> {
    let (mut read, mut silent) = (0, 0);
    while read < bytes {
        let more = pair.turn(chunk, into)? as u64;
        pair.pass(turn);
        silent = if more == 0 { silent + 1 } else { 0 };
        ensure!(silent < STALLED, "{read} of {bytes} bytes arrived");
        read += more;
    }
    Ok(read)
}

fn ping_pong(mut pair: impl Pair, count: u32, turn: Duration) -> Result<Run> {
    exchanges(&mut pair, WARM, WARM_TURN)?;
    exchanges(&mut pair, count / 4, turn)?;
    let start = Start::now(0);
    exchanges(&mut pair, count, turn)?;
    Ok(start.end(u64::from(count) * MESSAGE as u64, u64::from(count)))
}

fn exchanges(pair: &mut impl Pair, count: u32, turn: Duration) -> Result<()> {
    let (message, mut into) = ([0x5a; MESSAGE], [0; 2 * MESSAGE]);
    for _ in 0..count {
        pair.exchange(&message, &mut into)?;
        pair.pass(turn);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While the clock all but stands, so that it is segments alone. (One test: the count is the whole process's.)
    #[test]
    fn segments_allocate_nothing_once_a_connection_is_warm() {
        let turn = Duration::from_nanos(1);
        for mtu in crate::MTUS {
            let run = bulk(Ours::new(mtu, Checksums::Stack).unwrap(), 64 << 20, turn).unwrap();
            assert_eq!((run.allocated, run.bytes >= 64 << 20), (0, true), "at an MTU of {mtu}");
        }
        assert_eq!(ping_pong(Ours::new(1500, Checksums::Stack).unwrap(), 50_000, turn).unwrap().allocated, 0, "to and fro");
    }
}
