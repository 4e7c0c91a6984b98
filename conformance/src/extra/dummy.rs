//! Dummy sends: seed 001's VMA_SND_FLAGS_DUMMY, as the stack has them.

use core::time::Duration;
use std::io::IoSlice;

use anyhow::{Context as _, Result, ensure};
use ringway_stack::ring::{Shutdown, UdpOptions};
use ringway_stack::{Error, tcp};

use super::Side::{Receiver, Sender};
use super::{Net, PORT};
use crate::sentences::frames::pattern;

/// What a few thousand bytes take at most, on a network that loses one frame in twenty.
const TRANSFER_MAX: Duration = Duration::from_secs(300);

/// A dummy datagram goes as far as the device: its receiver's device and socket see nothing of it, and its sender counts it apart.
pub fn a_dummy_datagram_reaches_nobody<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(200_000)?;
    let other = net.ring(Sender).info(from).context("the sender's socket is gone")?.counters;
    let before = net.ring(Receiver).counters();
    let (source, target) = (net.ip(Sender), Some((net.address(Receiver, PORT).into(), net.hop(Receiver))));
    for len in [1, 100, 300, 1000, 1472] {
        ensure!(net.ring(Sender).udp_dummy(from, &[IoSlice::new(&pattern(len))], source.into(), target)? == len);
        net.pass(Duration::from_millis(10));
    }
    ensure!(net.hear(to).err() == Some(Error::WouldBlock), "it was received");
    ensure!(net.ring(Receiver).counters() == before, "the receiver's device saw something");
    let after = net.ring(Sender).info(from).context("the sender's socket is gone")?.counters;
    ensure!((after.tx_dummies, after.tx_packets) == (5, other.tx_packets), "{after:?}");
    net.tell(from, PORT, b"real")?;
    ensure!(net.hear(to)? == b"real" && net.hear(to).is_err(), "what is sent after it");
    Ok(())
}

/// Between two writes, a dummy segment changes nothing of a stream: not its bytes, not its numbers.
pub fn a_dummy_segment_is_no_part_of_its_stream<N: Net>(net: &mut N) -> Result<()> {
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    let sent = pattern(20_000);
    let (mut written, mut got, mut dummies) = (0, Vec::new(), 0);
    let until = net.now() + TRANSFER_MAX;
    while got.len() < sent.len() && net.now() < until {
        let end = sent.len().min(written + 400);
        written += net.write(Sender, client, &sent[written..end]);
        let now = net.now();
        let dummy = net.ring(Sender).tcp_dummy(now, client, &[IoSlice::new(&[0xdd; 700])]);
        match dummy {
            Ok(len) => {
                ensure!(len == 700);
                dummies += 1;
            }
            // (There is something unsent, which is warmer than a dummy.)
            Err(error) => ensure!(error == Error::WouldBlock, "{error}"),
        }
        net.pass(Duration::from_millis(20));
        got.extend(net.read(server, 10_000).unwrap_or_default());
    }
    ensure!(got == sent, "{} bytes of {}, or not those that were written", got.len(), sent.len());
    let counters = net.ring(Sender).info(client).context("the connection is gone")?.counters;
    let least = if net.delivers() { 10 } else { 1 };
    ensure!(dummies >= least && counters.tx_dummies == dummies, "{dummies} dummies, {counters:?}");
    ensure!(!net.delivers() || (counters.retransmissions, counters.tx_bytes) == (0, sent.len() as u64), "{counters:?}");
    Ok(())
}

/// What sending would say, a dummy says: how many bytes it took, or what is wrong.
pub fn a_dummy_returns_what_sending_would<N: Net>(net: &mut N) -> Result<()> {
    let (from, _) = net.datagrams(200_000)?;
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    let (now, source, target) = (net.now(), net.ip(Sender), Some((net.address(Receiver, PORT).into(), net.hop(Receiver))));
    for len in [0, 1, 1472, 70_000] {
        let bytes = pattern(len);
        let dummy = net.ring(Sender).udp_dummy(from, &[IoSlice::new(&bytes)], source.into(), target);
        let real = net.ring(Sender).udp_send(now, from, &[IoSlice::new(&bytes)], source.into(), target);
        ensure!(dummy == real, "{len} bytes: {dummy:?}, and a send's {real:?}");
    }
    let lost = net.ring(Sender).udp_dummy(from, &[], source.into(), None);
    ensure!(lost == net.ring(Sender).udp_send(now, from, &[], source.into(), None), "without a destination: {lost:?}");
    let dummy = |net: &mut N, len: usize| {
        let now = net.now();
        net.ring(Sender).tcp_dummy(now, client, &[IoSlice::new(&pattern(len))])
    };
    ensure!(dummy(net, 900) == Ok(900));
    // Nothing more is taken behind a shut window.
    while net.write(Sender, client, &pattern(50_000)) > 0 {
        net.pass(Duration::from_millis(20));
    }
    ensure!(dummy(net, 1) == Err(Error::WouldBlock), "a full stream takes no byte");
    let now = net.now();
    net.ring(Receiver).close(now, server, true);
    net.pass(Duration::from_millis(100));
    ensure!(dummy(net, 1) == Err(Error::Reset), "a stream that was reset");
    let (client, _) = net.connected(PORT + 1, &tcp::Config::default())?;
    let now = net.now();
    net.ring(Sender).shutdown(now, client, Shutdown::Write)?;
    ensure!(net.ring(Sender).tcp_dummy(now, client, &[IoSlice::new(b"x")]) == Err(Error::Pipe), "a stream that was shut");
    let address = net.address(Sender, PORT + 2);
    let unknown = net.ring(Sender).udp_open(address.into(), &UdpOptions::default())?;
    net.ring(Sender).close(now, unknown, false);
    ensure!(net.ring(Sender).udp_dummy(unknown, &[], source.into(), target) == Err(Error::BadSocket), "a socket that is gone");
    Ok(())
}
