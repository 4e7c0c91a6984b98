//! How long packets are: seed 002's VMA_MTU, as the stack keeps to it.

use core::time::Duration;

use anyhow::{Result, ensure};
use ringway_stack::device::Queues as _;
use ringway_stack::ring::Decision;
use ringway_stack::{Error, tcp};

use super::Side::{Receiver, Sender};
use super::net::all;
use super::{Net, PORT};
use crate::sentences::frames::pattern;

/// What a few thousand bytes take at most, on a network that loses one frame in twenty.
const TRANSFER_MAX: Duration = Duration::from_secs(300);
/// Bytes of IPv4's and TCP's headers without options, which an MTU includes.
const HEADERS: usize = 40;

/// A connection's packets are as long as its configuration lets them be, also those that are sent again, and a datagram that is longer than
/// the device's is refused.
pub fn no_packet_is_longer_than_it_may_be<N: Net>(net: &mut N) -> Result<()> {
    const MTU: usize = 600;
    let config = tcp::Config { mss_max: (MTU - HEADERS) as u16, ..tcp::Config::default() };
    let (client, server) = net.connected(PORT, &config)?;
    // Deciding shows segments as they came.
    net.ring(Receiver).set_recv_filter(server, true)?;
    let sent = pattern(20_000);
    let (mut written, mut got, mut longest) = (0, Vec::new(), 0);
    let until = net.now() + TRANSFER_MAX;
    while got.len() < sent.len() && net.now() < until {
        written += net.write(Sender, client, &sent[written..]);
        net.pass(Duration::from_millis(5));
        while let Ok(candidate) = net.candidate(server) {
            let bytes = all(&candidate.pieces);
            longest = longest.max(bytes.len());
            got.extend(bytes);
            net.decide(server, Decision::Drop)?;
        }
    }
    ensure!(got == sent, "{} bytes of {}", got.len(), sent.len());
    // (Options take up to forty bytes of it.)
    ensure!((MTU - HEADERS - 40..=MTU - HEADERS).contains(&longest), "a segment of {longest} bytes");
    let (from, _) = net.datagrams(200_000)?;
    let mtu = net.ring(Sender).queues().capabilities().mtu;
    ensure!(net.tell(from, PORT, &pattern(mtu - 28)).is_ok(), "a datagram of the MTU");
    let refused = net.tell(from, PORT, &pattern(mtu - 27));
    ensure!(refused.is_err_and(|error| error.downcast_ref() == Some(&Error::MessageTooLong)), "a datagram beyond the MTU");
    Ok(())
}
