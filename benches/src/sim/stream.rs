//! Programs that only send, and only receive: what is measured is the stack and the simulator, not the workload.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use ringway_sim::apps::Shared;
use ringway_sim::{App, Context, HostConfig, HostId, LinkConfig, Step, World, WorldConfig};
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, SendFlags};
use ringway_stack::tcp::Config;
use ringway_stack::{Error, Instant};

use super::{BUFFER, Run};

const CHUNK: usize = 64 << 10;
const PORT: u16 = 9;

/// Sends `left` bytes, and closes.
pub(super) struct Source {
    from: u16,
    to: SocketAddr,
    left: u64,
    chunk: Vec<u8>,
    config: Config,
    socket: Option<FlowId>,
}

impl Source {
    pub(super) fn new(from: u16, to: SocketAddr, bytes: u64) -> Self {
        Self { from, to, left: bytes, chunk: vec![0x5a; CHUNK], config: Config::default(), socket: None }
    }

    fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }
}

impl App for Source {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let socket = *self.socket.get_or_insert_with(|| {
            let local = SocketAddr::new(cx.ip, self.from);
            cx.ring.tcp_connect(cx.now, local, self.to, NextHop::Neighbour(self.to.ip()), &self.config).expect("a free port")
        });
        while self.left > 0 {
            let len = usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK);
            match cx.ring.tcp_send(cx.now, socket, &[IoSlice::new(&self.chunk[..len])], SendFlags::empty()) {
                Ok(taken) => self.left -= taken as u64,
                Err(Error::WouldBlock | Error::NoBuffers | Error::InProgress | Error::NotConnected) => return Step::Wait,
                Err(error) => panic!("send: {error}"),
            }
        }
        cx.ring.close(cx.now, socket, false);
        Step::Finished
    }
}

/// Accepts, reads everything and counts it, until `expected` streams have ended.
pub(super) struct Sink {
    port: u16,
    expected: usize,
    read: Shared<u64>,
    buffer: Vec<u8>,
    total: u64,
    config: Config,
    listener: Option<FlowId>,
    streams: Vec<FlowId>,
}

impl Sink {
    pub(super) fn new(port: u16, expected: usize, read: Shared<u64>) -> Self {
        Self { port, expected, read, buffer: vec![0; CHUNK], total: 0, config: Config::default(), listener: None, streams: Vec::new() }
    }

    fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Reads what is there, and closes behind the end.
    fn serve(&mut self, cx: &mut Context<'_>, socket: FlowId) {
        if !self.read(cx, socket) {
            cx.ring.close(cx.now, socket, false);
            self.streams.retain(|stream| *stream != socket);
            self.expected -= 1;
        }
    }

    /// Reads what is there; `false`: the stream has ended.
    fn read(&mut self, cx: &mut Context<'_>, socket: FlowId) -> bool {
        loop {
            match cx.ring.tcp_recv(cx.now, socket, &mut [IoSliceMut::new(&mut self.buffer)], RecvFlags::empty()) {
                Ok(0) => return false,
                Ok(len) => self.total += len as u64,
                Err(Error::WouldBlock) => return true,
                Err(error) => panic!("receive: {error}"),
            }
        }
    }
}

impl App for Sink {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let listener = *self
            .listener
            .get_or_insert_with(|| cx.ring.tcp_listen(SocketAddr::new(cx.ip, self.port), 128, &self.config).expect("a free port"));
        for event in cx.events {
            if self.streams.contains(&event.flow) {
                self.serve(cx, event.flow);
            }
        }
        while let Ok(socket) = cx.ring.tcp_accept(listener) {
            self.streams.push(socket);
            self.serve(cx, socket);
        }
        self.read.set(self.total);
        if self.expected == 0 { Step::Finished } else { Step::Wait }
    }
}

/// Frames that all stacks of a world received.
pub(super) fn packets(world: &World, hosts: &[HostId]) -> u64 {
    hosts.iter().map(|&host| world.host(host).ring().counters().rx_packets).sum()
}

/// One stream of so many bytes between two hosts over 25 Gbit/s, without faults.
/// `poll_delay`: how often the hosts poll, at most.
pub(super) fn bulk(bytes: u64, poll_delay: Duration) -> Result<Run> {
    let config = Config { rcvbuf: Some(BUFFER), sndbuf: Some(BUFFER), ..Config::default() };
    let link = LinkConfig { bandwidth_bps: Some(25_000_000_000), ..LinkConfig::default() };
    let mut world = World::new(WorldConfig::seeded(1)).unchecked();
    let [sink, source] = ["sink", "source"].map(|name| world.add_host(HostConfig { poll_delay, ..HostConfig::named(name).link(link) }));
    world.introduce_all();
    let read = Shared::new(0);
    let to = SocketAddr::new(world.host(sink).ip(), PORT);
    world.add_app(sink, Sink::new(PORT, 1, read.clone()).config(config.clone()));
    world.add_app(source, Source::new(40_000, to, bytes).config(config));
    Run::measure(|| {
        let ended = world.run_until_finished(Instant::ZERO + Duration::from_secs(60))?;
        ensure!(*read.read() == bytes, "{} of {bytes} bytes arrived", *read.read());
        Ok((packets(&world, &[sink, source]), ended.since(Instant::ZERO)))
    })
}
