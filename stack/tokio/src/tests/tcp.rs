use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use std::io::{ErrorKind, Result};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4};
use std::pin::pin;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::device::Wire;
use super::{A, A6, B, B6, PORT, Pair};
use crate::{TcpListener, TcpStream};

/// One connection: the client's stream and the server's.
fn connected(pair: &Pair) -> (TcpStream<Wire>, TcpStream<Wire>) {
    let (client, server) = pair.run(TcpStream::connect(&pair.a, PORT), async {
        let listener = TcpListener::bind(&pair.b, PORT).await?;
        listener.accept().await
    });
    (client.expect("connects"), server.expect("accepts").0)
}

/// Polls `future` once and drops it; says whether it was not done.
async fn pends(future: impl Future) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[test]
fn both_ends_know_both_addresses() {
    let pair = Pair::new();
    let (client, server) = connected(&pair);
    assert_eq!(server.local_addr().unwrap(), SocketAddr::from(PORT));
    assert_eq!(client.peer_addr().unwrap(), SocketAddr::from(PORT));
    assert_eq!(client.local_addr().unwrap().ip(), A);
    assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
}

#[test]
fn a_megabyte_there_and_back() {
    let pair = Pair::new();
    let (client, mut server) = connected(&pair);
    let sent: Vec<u8> = (0..1u32 << 20).map(|i| (i % 251) as u8).collect();
    let (mut reader, mut writer) = client.into_split();
    let there = async {
        writer.write_all(&sent).await?;
        writer.shutdown().await
    };
    let mut received = Vec::new();
    let back = async {
        let (mut reader, mut writer) = tokio::io::split(&mut server);
        tokio::io::copy(&mut reader, &mut writer).await?;
        writer.shutdown().await
    };
    let client = async {
        let both = async { tokio::join!(there, reader.read_to_end(&mut received)) };
        let (wrote, read) = both.await;
        wrote.and(read)
    };
    let (client, server) = pair.run(client, back);
    server.unwrap();
    assert_eq!(client.unwrap(), sent.len());
    assert!(received == sent, "what came back is what was sent");
}

#[test]
fn nobody_listens() {
    let pair = Pair::new();
    let (refused, ()) = pair.run(TcpStream::connect(&pair.a, PORT), async {});
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(pair.a.with_ring(|ring| ring.occupied()), Some(0));
}

#[test]
fn nobody_has_the_address() {
    let pair = Pair::new();
    let (error, ()) = pair.run(TcpStream::connect(&pair.a, SocketAddrV4::new([10, 0, 0, 9].into(), 80)), async {});
    assert_eq!(error.unwrap_err().kind(), ErrorKind::HostUnreachable);
}

#[test]
fn a_mapped_address_is_ipv4_and_no_packet_has_addresses_of_both_versions() {
    let pair = Pair::new();
    let (error, mapped) = pair.run(TcpStream::connect(&pair.a, (B6, 80)), TcpListener::bind(&pair.b, (B.to_ipv6_mapped(), 80)));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(mapped.unwrap().local_addr().unwrap(), SocketAddr::from(PORT));
}

#[test]
fn a_connection_over_ipv6_carries_bytes_both_ways() {
    let pair = Pair::at(A6.into(), B6.into());
    let client = async {
        let mut stream = TcpStream::connect(&pair.a, (B6, 80)).await?;
        assert_eq!((stream.local_addr()?.ip(), stream.peer_addr()?), (A6.into(), SocketAddr::from((B6, 80))));
        stream.write_all(b"ping").await?;
        let mut back = [0; 4];
        stream.read_exact(&mut back).await?;
        Result::Ok(back)
    };
    let server = async {
        let listener = TcpListener::bind(&pair.b, (Ipv6Addr::UNSPECIFIED, 80)).await?;
        let (mut stream, from) = listener.accept().await?;
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await?;
        stream.write_all(&bytes).await?;
        Result::Ok(from.ip())
    };
    let (client, server) = pair.run(client, server);
    assert_eq!((client.unwrap(), server.unwrap()), (*b"ping", A6.into()));
}

#[test]
fn a_port_has_one_listener_and_zero_finds_a_free_one() {
    let pair = Pair::new();
    let ((), result) = pair.run(async {}, async {
        let first = TcpListener::bind(&pair.b, PORT).await?;
        let second = TcpListener::bind(&pair.b, PORT).await;
        assert_eq!(second.unwrap_err().kind(), ErrorKind::AddrInUse);
        let (any, other) = (TcpListener::bind(&pair.b, (B, 0)).await?, TcpListener::bind(&pair.b, (B, 0)).await?);
        assert_ne!(any.local_addr()?, other.local_addr()?);
        drop(first);
        TcpListener::bind(&pair.b, PORT).await.map(drop)
    });
    result.unwrap();
}

#[test]
fn dropping_a_connect_gives_it_up() {
    let pair = Pair::new();
    let (pending, ()) = pair.run(async { pends(TcpStream::connect(&pair.a, PORT)).await }, async {});
    assert!(pending);
    assert_eq!(pair.a.with_ring(|ring| ring.occupied()), Some(0));
}

#[test]
fn dropping_an_accept_or_a_read_loses_nothing() {
    let pair = Pair::new();
    let client = async {
        let mut stream = TcpStream::connect(&pair.a, PORT).await?;
        stream.write_all(b"once").await?;
        stream.shutdown().await?;
        stream.read_to_end(&mut Vec::new()).await
    };
    let server = async {
        let listener = TcpListener::bind(&pair.b, PORT).await?;
        assert!(pends(listener.accept()).await);
        let (mut stream, _) = listener.accept().await?;
        let mut text = String::new();
        assert!(pends(stream.read(&mut [0; 4])).await);
        stream.read_to_string(&mut text).await?;
        Result::Ok(text)
    };
    let (client, server) = pair.run(client, server);
    assert_eq!((client.unwrap(), server.unwrap().as_str()), (0, "once"));
}

#[test]
fn dropping_sends_what_was_written_and_an_end() {
    let pair = Pair::new();
    let (mut client, mut server) = connected(&pair);
    let (sent, received) = pair.run(
        async move {
            let sent = client.write(&[7; 40_000]).await;
            drop(client);
            sent
        },
        async {
            let mut bytes = Vec::new();
            server.read_to_end(&mut bytes).await.map(|_| bytes)
        },
    );
    assert_eq!(received.unwrap(), vec![7; sent.unwrap()]);
}

#[test]
fn dropping_unread_bytes_resets() {
    let pair = Pair::new();
    let (client, mut server) = connected(&pair);
    let (error, wrote) = pair.run(
        async {
            client.readable().await?;
            drop(client);
            Result::Ok(())
        },
        async {
            server.write_all(b"unread").await?;
            server.read(&mut [0; 8]).await
        },
    );
    error.unwrap();
    assert_eq!(wrote.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn zero_linger_resets() {
    let pair = Pair::new();
    let (client, mut server) = connected(&pair);
    client.set_zero_linger();
    drop(client);
    let ((), read) = pair.run(async {}, async { server.read(&mut [0; 8]).await });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(pair.a.with_ring(|ring| ring.occupied()), Some(0));
}

#[test]
fn writing_after_a_reset_is_a_broken_pipe() {
    let pair = Pair::new();
    let (client, mut server) = connected(&pair);
    client.set_zero_linger();
    drop(client);
    let ((), kinds) = pair.run(async {}, async {
        let first = server.read(&mut [0; 8]).await.unwrap_err().kind();
        [first, server.write(b"x").await.unwrap_err().kind()]
    });
    assert_eq!(kinds, [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe]);
}

#[test]
fn a_dropped_write_half_ends_the_stream_and_a_forgotten_one_does_not() {
    let pair = Pair::new();
    let (client, mut server) = connected(&pair);
    let (reader, writer) = client.into_split();
    writer.forget();
    pair.pass(Duration::from_secs(1));
    assert_eq!(server.try_read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(reader);
    let ((), end) = pair.run(async {}, async { server.read(&mut [0; 8]).await });
    assert_eq!(end.unwrap(), 0);

    let pair = Pair::new();
    let (client, mut server) = connected(&pair);
    let (mut reader, writer) = client.into_split();
    drop(writer);
    let (word, end) = pair.run(
        async {
            let mut word = String::new();
            reader.read_to_string(&mut word).await.map(|_| word)
        },
        async {
            let end = server.read(&mut [0; 8]).await?;
            server.write_all(b"still").await?;
            server.shutdown().await.map(|()| end)
        },
    );
    assert_eq!((word.unwrap().as_str(), end.unwrap()), ("still", 0));
}

#[test]
fn halves_reunite_with_their_own() {
    let pair = Pair::new();
    let (client, server) = connected(&pair);
    let (read, write) = client.into_split();
    let (read2, write2) = server.into_split();
    let error = read.reunite(write2).unwrap_err();
    let stream = error.0.reunite(write).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), SocketAddr::from(PORT));
    assert!(read2.reunite(error.1).is_ok());
}

#[test]
fn options_are_kept() {
    let pair = Pair::new();
    let (client, _server) = connected(&pair);
    assert!(!client.nodelay().unwrap());
    client.set_nodelay(true).unwrap();
    assert!(client.nodelay().unwrap());
    assert_eq!(client.ttl().unwrap(), 64);
}

#[test]
fn peeking_leaves_the_bytes() {
    let pair = Pair::new();
    let (mut client, mut server) = connected(&pair);
    let (wrote, read) = pair.run(client.write_all(b"word"), async {
        let (mut peeked, mut read) = ([0; 4], [0; 4]);
        server.peek(&mut peeked).await?;
        server.read_exact(&mut read).await?;
        Result::Ok((peeked, read))
    });
    wrote.unwrap();
    assert_eq!(read.unwrap(), (*b"word", *b"word"));
}
