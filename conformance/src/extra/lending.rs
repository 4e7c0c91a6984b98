//! Receiving by reference: seed 000's packets and buffers, seed 001's recvfrom_zcopy and free_packets.

use core::time::Duration;
use std::io::IoSliceMut;

use anyhow::{Context as _, Result, ensure};
use ringway_stack::device::RxBuffer as _;
use ringway_stack::ring::{FlowId, RecvFlags, UdpOptions};
use ringway_stack::{Error, tcp};

use super::Side::{self, Receiver, Sender};
use super::net::{all, bytes, is_message, is_uncopied, message};
use super::{Net, PORT};
use crate::sentences::frames::pattern;

/// Room that the cases never fill.
const AMPLE: usize = 200_000;
/// What a few ten thousand bytes take at most, on a network that loses one frame in twenty.
const TRANSFER_MAX: Duration = Duration::from_secs(300);

/// Whatever its size, a datagram goes up to the program as handles on where the device put it.
pub fn a_datagram_is_lent_from_where_the_device_put_it<N: Net>(net: &mut N) -> Result<()> {
    ensure!(net.ring(Receiver).lend_from_now_on(), "the device keeps no heads");
    let (from, to) = net.datagrams(AMPLE)?;
    for len in [1, 40, 58, 59, 300, 1472] {
        let sent = pattern(len);
        net.tell(from, PORT, &sent)?;
        let (datagram, pieces) = net.take(to)?;
        ensure!((datagram.len, datagram.copied) == (len, 0), "{len} bytes: {datagram:?}");
        ensure!(!pieces.is_empty() && pieces.iter().all(is_uncopied), "{len} bytes were copied");
        ensure!(all(&pieces) == sent, "{len} bytes are not those that were sent");
        drop(pieces);
        net.give_back(Receiver, to, len);
        ensure!(net.take(to).err() == Some(Error::WouldBlock), "it comes once");
    }
    Ok(())
}

/// The sender's address comes with what is lent, as with what is read; and a new connection has its peer's.
pub fn senders_are_named<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    net.tell(from, PORT, b"who?")?;
    let sender = net.ring(Sender).info(from).context("the sender's socket is gone")?.local;
    let peeked = net.ring(Receiver).udp_recv(to, &mut [IoSliceMut::new(&mut [0; 9])], RecvFlags::PEEK)?;
    let (lent, _pieces) = net.take(to)?;
    ensure!((peeked.from, lent.from) == (sender, sender), "{sender} sent, and {peeked:?} was peeked at and {lent:?} lent");
    ensure!((peeked.to, lent.to) == (net.ip(Receiver).into(), net.ip(Receiver).into()), "{peeked:?}, {lent:?}");
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    let client = net.ring(Sender).info(client).context("the client is gone")?;
    let server = net.ring(Receiver).info(server).context("the connection is gone")?;
    ensure!((Some(client.local), client.remote) == (server.remote, Some(server.local)), "{client:?}, {server:?}");
    Ok(())
}

/// What the program holds stays as it is, whatever arrives meanwhile, until it is given back; and then its buffers are free.
pub fn what_is_held_stays_as_it_is<N: Net>(net: &mut N) -> Result<()> {
    net.ring(Receiver).lend_from_now_on();
    let before = net.held();
    let (from, to) = net.datagrams(AMPLE)?;
    let address = net.address(Receiver, PORT + 1);
    let other = net.ring(Receiver).udp_open(address.into(), &UdpOptions::default())?;
    let mut held = Vec::new();
    for number in 0..60 {
        net.tell(from, PORT, &message(number))?;
        net.tell(from, PORT + 1, &message(number.wrapping_add(100)))?;
        _ = net.hear(other);
        while let Ok((datagram, pieces)) = net.take(to) {
            held.push((datagram.len, pieces));
        }
    }
    ensure!(if net.delivers() { held.len() == 60 } else { held.len() > 20 }, "{} of 60 arrived", held.len());
    net.pass(Duration::from_secs(1));
    for (len, pieces) in &held {
        let bytes = all(pieces);
        ensure!(bytes.len() == *len && is_message(&bytes) && bytes[0] < 60, "{len} bytes have changed: {bytes:?}");
    }
    ensure!(net.held() > before, "they are held in no buffers");
    for (len, pieces) in held {
        drop(pieces);
        net.give_back(Receiver, to, len);
    }
    while net.hear(other).is_ok() {}
    net.pass(Duration::from_secs(1));
    ensure!(net.held() == before, "{} buffers are still held", net.held() - before);
    Ok(())
}

/// Both ends of a connection receive by reference alone: neither reads, nor waits for anything but its ring.
pub fn everything_can_be_received_by_reference<N: Net>(net: &mut N) -> Result<()> {
    for side in [Sender, Receiver] {
        net.ring(side).lend_from_now_on();
    }
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    let ends = [(Sender, client), (Receiver, server)];
    let sent = pattern(30_000);
    let (mut written, mut got) = ([0; 2], [Vec::new(), Vec::new()]);
    let until = net.now() + TRANSFER_MAX;
    while got.iter().any(|got| got.len() < sent.len()) && net.now() < until {
        for (n, (side, socket)) in ends.into_iter().enumerate() {
            let end = sent.len().min(written[n] + 3_000);
            written[n] += net.write(side, socket, &sent[written[n]..end]);
            got[n].extend(take_all(net, side, socket)?.0);
        }
        net.pass(Duration::from_millis(5));
    }
    ensure!(got.iter().all(|got| *got == sent), "{} and {} bytes of {}", got[0].len(), got[1].len(), sent.len());
    let now = net.now();
    net.ring(Sender).close(now, client, false);
    ensure!(ends_in_time(net, server)?, "the end of the stream never comes");
    Ok(())
}

/// A stream comes in pieces, as many bytes of each as the program has room for, in order, uncopied; and then its end.
pub fn a_stream_is_lent_piece_by_piece_and_ends<N: Net>(net: &mut N) -> Result<()> {
    net.ring(Receiver).lend_from_now_on();
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    let sent = pattern(5_000);
    let (mut written, mut got, mut pieces) = (0, Vec::new(), 0);
    let until = net.now() + TRANSFER_MAX;
    while got.len() < sent.len() && net.now() < until {
        // Pieces of every length, and of them every third cut short.
        let end = sent.len().min(written + 1 + pieces * 97);
        written += net.write(Sender, client, &sent[written..end]);
        net.pass(Duration::from_millis(5));
        let room = if pieces % 3 == 0 { 2 } else { usize::MAX };
        let piece = net.ring(Receiver).tcp_lend(server, |buffer| room.min(buffer.len()));
        match piece {
            Ok(piece) => {
                let piece = piece.context("it ended before anybody closed it")?;
                ensure!(piece.len() <= room && is_uncopied(&piece), "{piece:?} for {room} bytes");
                got.extend(bytes(&piece));
                let len = piece.len();
                drop(piece);
                net.give_back(Receiver, server, len);
                pieces += 1;
            }
            Err(Error::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
    }
    ensure!(got == sent, "{} bytes of {}", got.len(), sent.len());
    let now = net.now();
    net.ring(Sender).close(now, client, false);
    ensure!(ends_in_time(net, server)?, "the end of the stream never comes");
    Ok(())
}

/// What is lent and not given back keeps the peer's window shut; giving it back opens the window, and tells the peer.
pub fn the_window_stays_shut_until_what_was_lent_is_given_back<N: Net>(net: &mut N) -> Result<()> {
    const ROOM: usize = 20_000;
    net.ring(Receiver).lend_from_now_on();
    let (client, server) = net.connected(PORT, &tcp::Config { rcvbuf: Some(ROOM), ..tcp::Config::default() })?;
    let chunk = pattern(10_000);
    let (mut held, mut len, mut quiet) = (Vec::new(), 0, 0);
    // Ten seconds without a byte: whatever is lost is sent again sooner.
    while quiet < 20 {
        net.write(Sender, client, &chunk);
        net.pass(Duration::from_millis(500));
        quiet += 1;
        while let Ok(piece) = net.lend(Receiver, server) {
            let piece = piece.context("it ended before anybody closed it")?;
            len += piece.len();
            held.push(piece);
            quiet = 0;
        }
        ensure!(len <= 2 * ROOM, "{len} bytes are lent of a buffer of {ROOM}");
    }
    ensure!(len > ROOM / 2, "only {len} bytes came");
    ensure!(net.read(server, 1) == Err(Error::WouldBlock), "nothing else is there");
    let got: Vec<u8> = held.iter().flat_map(bytes).collect();
    ensure!(got.iter().zip(chunk.iter().cycle()).all(|(got, sent)| got == sent), "what is held has changed");
    // (More than was lent counts as all of it.)
    net.give_back(Receiver, server, usize::MAX);
    let until = net.now() + TRANSFER_MAX;
    while net.now() < until {
        net.pass(Duration::from_millis(100));
        if net.lend(Receiver, server).is_ok() {
            return Ok(());
        }
    }
    anyhow::bail!("the peer was never told of the room")
}

/// Who holds everything starves that one socket; giving back makes room in it.
pub fn a_socket_whose_datagrams_are_all_held_drops_and_others_do_not<N: Net>(net: &mut N) -> Result<()> {
    net.ring(Receiver).lend_from_now_on();
    let (from, to) = net.datagrams(4096)?;
    let address = net.address(Receiver, PORT + 1);
    let other = net.ring(Receiver).udp_open(address.into(), &UdpOptions::default())?;
    let mut held = Vec::new();
    for _ in 0..30 {
        net.tell(from, PORT, &[1; 200])?;
        held.extend(net.take(to).ok());
    }
    let drops = net.ring(Receiver).info(to).map(|info| info.counters.rx_drops);
    ensure!((4..21).contains(&held.len()) && drops == Some(30 - held.len() as u64), "{} held, dropped: {drops:?}", held.len());
    net.tell(from, PORT + 1, b"others")?;
    ensure!(net.hear(other)? == b"others", "another socket hears");
    for (datagram, pieces) in held {
        drop(pieces);
        net.give_back(Receiver, to, datagram.len);
    }
    net.tell(from, PORT, b"again")?;
    ensure!(all(&net.take(to)?.1) == b"again", "there is room again");
    Ok(())
}

/// Each handle counts: a buffer is free when the last one is dropped, and not before.
pub fn a_buffer_is_freed_with_its_last_reference<N: Net>(net: &mut N) -> Result<()> {
    net.ring(Receiver).lend_from_now_on();
    let (from, to) = net.datagrams(AMPLE)?;
    let before = net.held();
    let sent = pattern(1400);
    net.tell(from, PORT, &sent)?;
    let (datagram, pieces) = net.take(to)?;
    ensure!(pieces.iter().map(ringway_stack::ring::Lent::len).sum::<usize>() == datagram.len, "its buffers are all of it");
    ensure!(net.held() == before + 1, "{} buffers for one datagram", net.held() - before);
    let second = pieces.clone();
    drop(pieces);
    net.give_back(Receiver, to, datagram.len);
    net.pass(Duration::from_millis(1));
    ensure!(net.held() == before + 1 && all(&second) == sent, "its packet was freed, and a reference holds its buffer");
    drop(second);
    net.pass(Duration::from_millis(1));
    ensure!(net.held() == before, "the last reference is gone, and the buffer is not free");
    Ok(())
}

/// Receiving by reference and reading take turns, and neither a datagram nor a byte is lost, doubled or out of its place.
pub fn a_lending_socket_can_also_be_read<N: Net>(net: &mut N) -> Result<()> {
    net.ring(Receiver).lend_from_now_on();
    let (from, to) = net.datagrams(AMPLE)?;
    for number in 0..20 {
        net.tell(from, PORT, &message(number))?;
        let got = if number % 2 == 0 { net.hear(to) } else { net.take(to).map(|(_, pieces)| all(&pieces)) };
        match got {
            Ok(got) => ensure!(is_message(&got) && (!net.delivers() || got[0] == number), "message {number}: {got:?}"),
            Err(error) => ensure!(error == Error::WouldBlock && !net.delivers(), "message {number}: {error}"),
        }
    }
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    let sent = pattern(20_000);
    let (mut written, mut got, mut turn) = (0, Vec::new(), 0);
    let until = net.now() + TRANSFER_MAX;
    while got.len() < sent.len() && net.now() < until {
        turn += 1;
        let end = sent.len().min(written + 1 + turn * 41);
        written += net.write(Sender, client, &sent[written..end]);
        net.pass(Duration::from_millis(2));
        if turn % 2 == 0 {
            got.extend(net.read(server, 1 + turn * 13).unwrap_or_default());
        } else if let Ok(Some(piece)) = net.lend(Receiver, server) {
            got.extend(bytes(&piece));
            net.give_back(Receiver, server, piece.len());
        }
    }
    ensure!(got == sent, "{} bytes of {}, or not in order", got.len(), sent.len());
    Ok(())
}

/// What came, and was small, before a socket lent was copied already: it comes as a copy, in its place; what comes later does not.
pub fn what_came_before_the_first_was_lent_comes_as_a_copy<N: Net>(net: &mut N) -> Result<()> {
    let (from, to) = net.datagrams(AMPLE)?;
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    net.tell(from, PORT, b"early")?;
    net.write(Sender, client, b"early");
    net.pass(Duration::from_millis(100));
    ensure!(net.ring(Receiver).lend_from_now_on(), "the device keeps no heads");
    net.tell(from, PORT, b"late")?;
    net.write(Sender, client, b"late");
    net.pass(Duration::from_millis(100));
    for (expected, uncopied) in [(&b"early"[..], false), (b"late", true)] {
        let (_, pieces) = net.take(to)?;
        ensure!(all(&pieces) == expected && pieces.iter().all(is_uncopied) == uncopied, "a datagram: {pieces:?}");
        let piece = net.lend(Receiver, server)?.context("it ended before anybody closed it")?;
        ensure!(bytes(&piece) == expected && is_uncopied(&piece) == uncopied, "of a stream: {piece:?}");
    }
    Ok(())
}

/// Giving back frees what was given out once: a second time, or of a socket that is gone, it means nothing.
pub fn giving_back_twice_means_nothing<N: Net>(net: &mut N) -> Result<()> {
    net.ring(Receiver).lend_from_now_on();
    let (from, to) = net.datagrams(4096)?;
    for _ in 0..30 {
        net.tell(from, PORT, &[1; 200])?;
    }
    let room = core::iter::from_fn(|| net.take(to).ok()).count();
    for _ in 0..2 * room {
        net.give_back(Receiver, to, 200);
    }
    for _ in 0..30 {
        net.tell(from, PORT, &[1; 200])?;
    }
    let held: Vec<_> = core::iter::from_fn(|| net.take(to).ok()).collect();
    ensure!(held.len() == room, "room for {room} datagrams has become room for {}", held.len());
    let now = net.now();
    net.ring(Receiver).close(now, to, false);
    net.give_back(Receiver, to, 200);
    ensure!(held.iter().all(|(_, pieces)| all(pieces) == [1; 200]), "what is held outlives its socket");
    Ok(())
}

/// Everything that a stream has to give, by reference, given back at once; and whether that was its end.
fn take_all<N: Net>(net: &mut N, side: Side, socket: FlowId) -> Result<(Vec<u8>, bool)> {
    let mut got = Vec::new();
    loop {
        match net.lend(side, socket) {
            Ok(Some(piece)) => {
                got.extend(bytes(&piece));
                let len = piece.len();
                drop(piece);
                net.give_back(side, socket, len);
            }
            Ok(None) => return Ok((got, true)),
            Err(Error::WouldBlock) => return Ok((got, false)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a stream of the receiver's, of which all bytes were taken, ends.
fn ends_in_time<N: Net>(net: &mut N, socket: FlowId) -> Result<bool> {
    let until = net.now() + TRANSFER_MAX;
    while net.now() < until {
        let (more, is_end) = take_all(net, Receiver, socket)?;
        ensure!(more.is_empty(), "{} bytes that nobody wrote", more.len());
        if is_end {
            return Ok(true);
        }
        net.pass(Duration::from_millis(10));
    }
    Ok(false)
}
