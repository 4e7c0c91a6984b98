//! Many connections: how fast they come and go beside idle ones, what an idle one costs, and how long one waits while tables grow.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::wire::Checksums;
use crate::{ALLOCATOR, ours, smol};

const MTU: usize = 1500;
/// Bytes of each socket's buffers (which are there from the start in smoltcp, and as they are filled in ours).
const BUFFER: usize = 64 << 10;
/// How much time passes from one connection to the next.
const TURN: Duration = Duration::from_micros(100);
/// Connections before those that count.
const FIRST: u32 = 200;

/// Our two hosts with so many idle connections.
pub(crate) struct Ours(ours::Hosts);

impl Ours {
    /// Each has said 64 bytes each way, and is silent for 10 s.
    ///
    /// # Errors
    /// A connection failed.
    pub(crate) fn new(idle: u32) -> Result<Self> {
        let mut hosts = ours::Hosts::new(MTU, Some(BUFFER), Checksums::Stack)?;
        for _ in 0..FIRST {
            let both = hosts.connect()?;
            hosts.close(both)?;
            hosts.pass(TURN);
        }
        let mut crowd = Self(hosts);
        crowd.grow(idle)?;
        Ok(crowd)
    }

    fn grow(&mut self, count: u32) -> Result<()> {
        let hosts = &mut self.0;
        let mut into = [0; 128];
        for _ in 0..count {
            let (client, server) = hosts.connect()?;
            ours::send(&mut hosts.client, hosts.now, client, &[0x5a; 64])?;
            hosts.settle();
            ours::receive(&mut hosts.server, hosts.now, server, &mut into)?;
            ours::send(&mut hosts.server, hosts.now, server, &[0x5a; 64])?;
            hosts.settle();
            ours::receive(&mut hosts.client, hosts.now, client, &mut into)?;
            hosts.now += TURN;
        }
        hosts.pass(Duration::from_secs(10));
        Ok(())
    }

    /// Connections that are made, accepted and closed in a second.
    ///
    /// # Errors
    /// One failed.
    pub(crate) fn rate(&mut self, count: u32) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            let both = self.0.connect()?;
            self.0.close(both)?;
            self.0.now += TURN;
        }
        Ok(f64::from(count) / start.elapsed().as_secs_f64())
    }
}

/// smoltcp's two hosts with so many idle connections.
pub(crate) struct Smoltcp(smol::Hosts);

impl Smoltcp {
    /// Those have said nothing.
    ///
    /// # Errors
    /// A connection failed.
    pub(crate) fn new(idle: u32) -> Result<Self> {
        let mut hosts = smol::Hosts::new(MTU, BUFFER, Checksums::Stack)?;
        for _ in 0..idle {
            hosts.connect()?;
            hosts.keep();
            hosts.pass(TURN);
        }
        Ok(Self(hosts))
    }

    /// As [`Ours::rate`].
    ///
    /// # Errors
    /// One failed.
    pub(crate) fn rate(&mut self, count: u32) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            self.0.connect()?;
            self.0.close()?;
            self.0.pass(TURN);
        }
        Ok(f64::from(count) / start.elapsed().as_secs_f64())
    }
}

/// Bytes of one end of an idle connection, of so many.
///
/// # Errors
/// A connection failed.
pub(crate) fn bytes_each(count: u32) -> Result<f64> {
    let mut crowd = Ours::new(0)?;
    crowd.0.pass(Duration::from_secs(10));
    let before = ALLOCATOR.allocated();
    crowd.grow(count)?;
    Ok((ALLOCATOR.allocated() - before) as f64 / 2.0 / f64::from(count))
}

/// How long each of so many connections took to be made and accepted, both ends' tables growing from nothing.
///
/// # Errors
/// One failed.
pub(crate) fn stalls(count: u32) -> Result<Vec<Duration>> {
    let mut hosts = ours::Hosts::new(MTU, Some(BUFFER), Checksums::Stack)?;
    let mut taken = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        hosts.connect()?;
        taken.push(start.elapsed());
        hosts.now += TURN;
    }
    Ok(taken)
}
