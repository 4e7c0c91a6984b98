//! Deciding about packets before the reader gets them: seed 001's receive callbacks, as the stack has them.

use core::time::Duration;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use anyhow::{Context as _, Result, ensure};
use ringway_stack::ring::{Decision, Lent, Readiness, RecvFlags, UdpOptions};
use ringway_stack::{Error, tcp};

use super::Side::{Receiver, Sender};
use super::net::{all, is_message, message};
use super::{Net, PORT};
use crate::sentences::frames::pattern;

/// Room that the cases never fill.
const AMPLE: usize = 200_000;
/// Longer than any retransmission that a few ten thousand bytes need, on a network that loses one frame in twenty.
const TRANSFER_MAX: Duration = Duration::from_secs(300);

/// Of datagrams the reader gets, in order and whole, those that were admitted, and no other.
pub fn a_datagram_is_read_once_it_is_admitted_and_never_if_it_is_dropped_or_held<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    net.ring(Receiver).set_recv_filter(to, true)?;
    let (mut admitted, mut held, mut dropped) = (VecDeque::new(), Vec::new(), 0);
    for number in 0..60 {
        net.tell(from, PORT, &message(number))?;
        ensure!(!admitted.is_empty() || net.hear(to).err() == Some(Error::WouldBlock), "read before anybody decided");
        while let Ok(candidate) = net.candidate(to) {
            let bytes = all(&candidate.pieces);
            ensure!(is_message(&bytes), "shown: {bytes:?}");
            let decision = [Decision::Admit, Decision::Drop, Decision::Hold][usize::from(bytes[0] % 3)];
            ensure!(net.decide(to, decision)? == bytes.len(), "another one was decided about");
            match decision {
                Decision::Admit => admitted.push_back(bytes),
                Decision::Drop => dropped += 1,
                Decision::Hold => held.push((bytes, candidate.pieces)),
            }
        }
        if number % 4 == 0 {
            while let Some(expected) = admitted.pop_front() {
                ensure!(net.hear(to)? == expected, "the reader got something else than {expected:?}");
            }
        }
    }
    ensure!(if net.delivers() { (dropped, held.len()) == (20, 20) } else { dropped > 5 && held.len() > 5 }, "{dropped} dropped");
    while let Some(expected) = admitted.pop_front() {
        ensure!(net.hear(to)? == expected, "the reader got something else than {expected:?}");
    }
    ensure!(net.hear(to).err() == Some(Error::WouldBlock), "more was read than was admitted");
    ensure!(held.iter().all(|(bytes, pieces)| all(pieces) == *bytes), "what is held has changed");
    Ok(())
}

/// Of a stream the reader gets the bytes that were admitted, in order and each once, whatever becomes of its segments on their way; and behind the
/// last decision, its end.
pub fn a_stream_is_read_as_it_was_admitted_and_ends_behind_the_last_decision<N: Net>(net: &mut N) -> Result<()> {
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    net.ring(Receiver).set_recv_filter(server, true)?;
    let sent = pattern(60_000);
    let (mut written, mut shown, mut admitted, mut held) = (0, 0, VecDeque::new(), VecDeque::new());
    let (until, mut turn) = (net.now() + TRANSFER_MAX, 0);
    while shown < sent.len() && net.now() < until {
        turn += 1;
        let end = sent.len().min(written + (turn * 613) % 5_000);
        written += net.write(Sender, client, &sent[written..end]);
        net.pass(Duration::from_millis(3));
        ensure!(turn % 5 != 0 || !admitted.is_empty() || net.read(server, 1) == Err(Error::WouldBlock), "read before anybody decided");
        while let Ok(candidate) = net.candidate(server) {
            let bytes = all(&candidate.pieces);
            ensure!(sent[shown..].starts_with(&bytes), "bytes from {shown} on are shown out of order, or twice");
            shown += bytes.len();
            let decision = [Decision::Drop, Decision::Admit, Decision::Admit, Decision::Hold][turn % 4];
            ensure!(net.decide(server, decision)? == bytes.len(), "another one was decided about");
            match decision {
                Decision::Admit => admitted.extend(bytes),
                Decision::Drop => {}
                Decision::Hold => held.push_back((bytes, candidate.pieces)),
            }
            if held.len() > 3
                && let Some((bytes, pieces)) = held.pop_front()
            {
                ensure!(all(&pieces) == bytes, "what is held has changed");
                net.give_back(Receiver, server, bytes.len());
            }
        }
        let got = net.read(server, (turn * 457) % 4_000 + 1).unwrap_or_default();
        ensure!(got.iter().copied().eq(admitted.drain(..got.len().min(admitted.len()))), "not what was admitted");
    }
    ensure!(shown == sent.len(), "{shown} bytes of {} were shown", sent.len());
    let got = net.read(server, sent.len()).unwrap_or_default();
    ensure!(got.iter().copied().eq(admitted), "not what was admitted");
    let now = net.now();
    net.ring(Sender).close(now, client, false);
    while net.now() < until + TRANSFER_MAX {
        match net.read(server, 1) {
            Ok(end) => {
                ensure!(end.is_empty(), "a byte that was not admitted");
                return Ok(());
            }
            Err(error) => ensure!(error == Error::WouldBlock, "{error}"),
        }
        net.pass(Duration::from_millis(10));
    }
    anyhow::bail!("the end of the stream never comes")
}

/// From when it is asked for, and as long, something is to be decided; the end of it admits all that waits.
pub fn a_receive_filter_begins_and_ends_when_the_program_says_so<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    for round in 0..3 {
        let send = |net: &mut N, bytes: &[u8]| -> Result<()> {
            net.tell(from, PORT, bytes)?;
            ensure!(net.write(Sender, client, bytes) == bytes.len());
            net.pass(Duration::from_millis(100));
            Ok(())
        };
        send(net, b"before")?;
        ensure!((net.hear(to)?, net.read(server, 99)?) == (b"before".to_vec(), b"before".to_vec()));
        for socket in [to, server] {
            ensure!(!net.ring(Receiver).has_candidate(socket), "round {round}: nobody asked for it");
            net.ring(Receiver).set_recv_filter(socket, true)?;
        }
        send(net, b"waits")?;
        ensure!((net.hear(to).err(), net.read(server, 9).err()) == (Some(Error::WouldBlock), Some(Error::WouldBlock)));
        for socket in [to, server] {
            ensure!(net.ring(Receiver).has_candidate(socket), "round {round}: nothing to decide");
            net.ring(Receiver).set_recv_filter(socket, false)?;
            ensure!(!net.ring(Receiver).has_candidate(socket), "round {round}: it was ended");
        }
        ensure!((net.hear(to)?, net.read(server, 99)?) == (b"waits".to_vec(), b"waits".to_vec()));
    }
    Ok(())
}

/// Who decides is shown the payload alone, with what its headers said, while the socket's queue knows nothing of it yet.
pub fn a_packet_is_shown_behind_its_headers_and_before_the_queue<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let sender = net.ring(Sender).info(from).context("the sender's socket is gone")?.local;
    let address = net.address(Receiver, PORT);
    net.ring(Receiver).set_recv_filter(to, true)?;
    let lens = [1, 300, 1472];
    for len in lens {
        net.tell(from, PORT, &pattern(len))?;
    }
    ensure!(
        net.events(Receiver, to).iter().any(|edges| edges.contains(Readiness::IN)),
        "nobody was told that there is something to decide"
    );
    for (n, len) in lens.into_iter().enumerate() {
        let info = net.ring(Receiver).info(to).context("the socket is gone")?;
        let queued: usize = lens[..n].iter().sum();
        ensure!(info.recv_queue == queued, "{} bytes are queued, {queued} were admitted", info.recv_queue);
        ensure!(net.ring(Receiver).readiness(to).contains(Readiness::IN) == (n > 0), "readable before anything was admitted");
        let candidate = net.candidate(to)?;
        ensure!(all(&candidate.pieces) == pattern(len), "{len} bytes are shown as {}", candidate.pieces.len());
        ensure!((candidate.from, candidate.to) == (sender, address.into()), "from {} to {}", candidate.from, candidate.to);
        ensure!((candidate.ready_bytes, candidate.ready_packets) == (queued, n), "{candidate:?}");
        ensure!(candidate.received.is_some_and(|at| at <= net.now()), "when it was received: {:?}", candidate.received);
        net.decide(to, Decision::Admit)?;
        ensure!(net.events(Receiver, to) == [Readiness::IN], "an admitted one is news");
    }
    net.tell(from, PORT, b"dropped")?;
    net.events(Receiver, to);
    net.decide(to, Decision::Drop)?;
    ensure!(net.events(Receiver, to).is_empty(), "a dropped one is no news");
    Ok(())
}

/// While something is shown, before it is decided about, the program may call anything, also of the same socket.
pub fn any_call_can_be_made_before_it_is_decided<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    for socket in [to, server] {
        net.ring(Receiver).set_recv_filter(socket, true)?;
    }
    for text in [&b"first"[..], b"second"] {
        net.tell(from, PORT, text)?;
        net.write(Sender, client, text);
        net.pass(Duration::from_millis(100));
    }
    let (now, back, hop, source) = (net.now(), net.address(Sender, 1000), net.hop(Sender), net.ip(Receiver));
    let shown = net.candidate(to)?;
    let of_stream = net.candidate(server)?;
    let peek = net.ring(Receiver).udp_recv(to, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::PEEK);
    ensure!(peek.err() == Some(Error::WouldBlock) && net.hear(to).is_err() && net.read(server, 9).is_err());
    net.ring(Receiver).udp_send(now, to, &[IoSlice::new(b"reply")], source.into(), Some((back.into(), hop)))?;
    ensure!(net.write(Receiver, server, b"reply") == 5);
    let address = net.address(Receiver, PORT + 1);
    let other = net.ring(Receiver).udp_open(address.into(), &UdpOptions::default())?;
    net.tell(from, PORT + 1, b"other")?;
    ensure!(net.hear(other)? == b"other");
    net.ring(Receiver).close(now, other, false);
    ensure!((all(&shown.pieces), all(&of_stream.pieces)) == (b"first".to_vec(), b"first".to_vec()), "what is shown has changed");
    // What came meanwhile waits behind it.
    for socket in [to, server] {
        ensure!(net.decide(socket, Decision::Admit)? == 5);
        ensure!(all(&net.candidate(socket)?.pieces) == b"second");
    }
    ensure!((net.hear(to)?, net.read(server, 9)?) == (b"first".to_vec(), b"first".to_vec()));
    let mut reply = [0; 9];
    let heard = net.ring(Sender).udp_recv(from, &mut [IoSliceMut::new(&mut reply)], RecvFlags::empty())?;
    ensure!(&reply[..heard.copied] == b"reply");
    ensure!(matches!(net.lend(Sender, client)?, Some(Lent::Copied(bytes)) if bytes == b"reply"), "the stream's reply");
    // Even closing the socket itself: then there is nothing to decide any more.
    for socket in [to, server] {
        let shown = net.candidate(socket)?;
        net.ring(Receiver).close(now, socket, false);
        ensure!(net.decide(socket, Decision::Admit).is_err() && all(&shown.pieces) == b"second");
    }
    Ok(())
}

/// What waits for a decision fills its socket's buffer, beyond which datagrams are lost; who decides in time loses none.
pub fn who_decides_late_loses_and_who_decides_in_time_does_not<N: Net>(net: &mut N) -> Result<()> {
    const TOLD: usize = 30;
    let (from, to) = net.datagrams(4096)?;
    net.ring(Receiver).set_recv_filter(to, true)?;
    let drops = |net: &mut N| net.ring(Receiver).info(to).map_or(0, |info| info.counters.rx_drops);
    for _ in 0..TOLD {
        net.tell(from, PORT, &[1; 200])?;
    }
    let late = core::iter::from_fn(|| net.decide(to, Decision::Drop).ok()).count();
    let lost = drops(net);
    ensure!(late > 3 && lost > 0 && late + lost as usize == TOLD, "{late} of {TOLD} waited, {lost} were lost");
    let mut read = 0;
    for number in 0..TOLD {
        net.tell(from, PORT, &[1; 200])?;
        net.decide(to, [Decision::Drop, Decision::Admit][number % 2])?;
        read += usize::from(net.hear(to).is_ok());
    }
    ensure!((drops(net), read) == (lost, TOLD / 2), "{read} were read, {} lost", drops(net));
    Ok(())
}

/// What is held is the program's: it stays as it is, whatever arrives, and takes room until it is given back.
pub fn what_is_held_stays_until_it_is_given_back<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(8192)?;
    net.ring(Receiver).set_recv_filter(to, true)?;
    let mut held: Vec<(Vec<u8>, _)> = Vec::new();
    for number in 0..200 {
        net.tell(from, PORT, &message(number))?;
        while let Ok(candidate) = net.candidate(to) {
            let bytes = all(&candidate.pieces);
            // Some of it, so that there is room for what could overwrite it.
            let decision = if bytes[0] % 8 == 0 { Decision::Hold } else { Decision::Drop };
            net.decide(to, decision)?;
            if decision == Decision::Hold {
                held.push((bytes, candidate.pieces));
            }
        }
    }
    ensure!(held.len() > 3, "only {} are held", held.len());
    ensure!(net.ring(Receiver).info(to).is_some_and(|info| info.counters.rx_drops > 0), "what is held takes no room");
    for (bytes, pieces) in &held {
        ensure!(is_message(bytes) && all(pieces) == *bytes, "what is held has changed: {bytes:?}");
    }
    for (bytes, pieces) in held {
        drop(pieces);
        net.give_back(Receiver, to, bytes.len());
    }
    for number in 0..3 {
        net.tell(from, PORT, &message(number))?;
    }
    net.pass(Duration::from_millis(100));
    ensure!(!net.delivers() || core::iter::from_fn(|| net.decide(to, Decision::Drop).ok()).count() == 3, "there is room again");
    Ok(())
}
