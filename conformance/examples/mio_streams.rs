//! A plain mio program, for `tests/programs`: one thread and one edge-triggered poll. `serve PORT STREAMS [HOST]` echoes on as many connections
//! and ends; `talk PORT STREAMS SIZE [HOST]` has that many conversations at once, each of `SIZE` bytes, compares, and prints `equal`.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};

use anyhow::{Result, bail, ensure};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

/// What may wait to be echoed before reading pauses.
const QUEUE_MAX: usize = 256 * 1024;

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers = arguments.iter().skip(1).map_while(|a| a.parse().ok()).collect::<Vec<usize>>();
    let host = arguments.get(1 + numbers.len()).map_or(Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)), |host| host.parse())?;
    match (arguments.first().map(String::as_str), numbers.as_slice()) {
        (Some("serve"), &[port, streams]) => serve(at(host, port)?, streams),
        (Some("talk"), &[port, streams, size]) => talk(at(host, port)?, streams, size),
        _ => bail!("serve PORT STREAMS [HOST], or talk PORT STREAMS SIZE [HOST]"),
    }
}

fn at(host: IpAddr, port: usize) -> Result<SocketAddr> {
    Ok(SocketAddr::new(host, u16::try_from(port)?))
}

/// One connection, and what waits to be written to it.
struct Flow {
    stream: TcpStream,
    queue: VecDeque<u8>,
    /// The peer's stream ended.
    ended: bool,
    /// So did ours.
    shut: bool,
    received: Vec<u8>,
}

impl Flow {
    fn new(stream: TcpStream, queue: Vec<u8>) -> Self {
        Self { stream, queue: queue.into(), ended: false, shut: false, received: Vec::new() }
    }

    /// Reads until there is nothing, or `echo` has queued enough. Whether anything was read.
    fn read(&mut self, echo: bool) -> Result<bool> {
        let mut buffer = [0; 65_536];
        let mut any = false;
        while !self.ended && (!echo || self.queue.len() <= QUEUE_MAX) {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(len) if echo => self.queue.extend(&buffer[..len]),
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
            any = true;
        }
        Ok(any)
    }

    /// Writes until there is nothing left, or no room. Whether anything was written.
    fn write(&mut self) -> Result<bool> {
        let mut any = false;
        while !self.queue.is_empty() {
            match self.stream.write(self.queue.as_slices().0) {
                Ok(len) => drop(self.queue.drain(..len)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => break,
                Err(error) => return Err(error.into()),
            }
            any = true;
        }
        Ok(any)
    }

    /// Ends our stream once all was written.
    fn shut_when_drained(&mut self) -> Result<()> {
        if self.queue.is_empty() && !self.shut {
            self.stream.shutdown(Shutdown::Write)?;
            self.shut = true;
        }
        Ok(())
    }
}

fn serve(address: SocketAddr, streams: usize) -> Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(address)?;
    poll.registry().register(&mut listener, Token(streams), Interest::READABLE)?;
    let mut flows: Vec<Flow> = Vec::new();
    let mut events = Events::with_capacity(64);
    while flows.len() < streams || flows.iter().any(|flow| !flow.shut) {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() != Token(streams) {
                let flow = &mut flows[event.token().0];
                // An edge comes once: go on until neither side moves.
                while flow.read(true)? | flow.write()? {}
                if flow.ended {
                    flow.shut_when_drained()?;
                }
                continue;
            }
            while flows.len() < streams {
                let mut stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                };
                poll.registry().register(&mut stream, Token(flows.len()), BOTH)?;
                flows.push(Flow::new(stream, Vec::new()));
            }
        }
    }
    Ok(())
}

fn talk(server: SocketAddr, streams: usize, size: usize) -> Result<()> {
    let mut poll = Poll::new()?;
    let mut flows = Vec::new();
    for number in 0..streams {
        let mut stream = TcpStream::connect(server)?;
        poll.registry().register(&mut stream, Token(number), BOTH)?;
        flows.push(Flow::new(stream, pattern(number, size)));
    }
    let mut events = Events::with_capacity(64);
    while flows.iter().any(|flow| !flow.ended) {
        poll.poll(&mut events, None)?;
        for event in &events {
            let flow = &mut flows[event.token().0];
            if let Some(error) = flow.stream.take_error()? {
                return Err(error.into());
            }
            flow.write()?;
            flow.shut_when_drained()?;
            flow.read(false)?;
        }
    }
    for (number, flow) in flows.iter().enumerate() {
        ensure!(flow.received == pattern(number, size), "other bytes came back on stream {number}");
    }
    println!("equal");
    Ok(())
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(31) ^ (n >> 8) ^ seed) as u8).collect()
}
