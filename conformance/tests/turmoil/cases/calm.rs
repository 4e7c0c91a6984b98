//! Nothing goes wrong, but for messages that take their time.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turmoil::Result;

use super::{PORT, client, connect, echo_server, pattern};
use crate::host::{Net, TcpStream, UdpSockets, address};
use crate::run_log::{RunLog, builder, twice};

#[test]
fn echo() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net, log: RunLog| {
            let mut stream = connect(&net).await?;
            assert_eq!(stream.peer_addr()?, SocketAddr::from((address("server"), PORT)));
            stream.write_all(b"hello").await?;
            stream.shutdown().await?;
            let mut back = String::new();
            stream.read_to_string(&mut back).await?;
            assert_eq!(back, "hello");
            log.note("echoed");
            Ok(())
        });
        sim.run().expect("it echoes");
        assert!(log.has("echoed"));
    });
}

/// Writes and reads `len` bytes at once, and compares.
pub(super) async fn bulk(stream: TcpStream, len: usize) -> Result {
    let sent = Rc::new(pattern(len));
    let (mut reader, mut writer) = stream.into_split();
    let sending = Rc::clone(&sent);
    let writing = tokio::task::spawn_local(async move {
        writer.write_all(&sending).await?;
        writer.shutdown().await
    });
    let mut back = Vec::new();
    reader.read_to_end(&mut back).await?;
    writing.await??;
    assert!(back == *sent, "{} of {len} bytes came back, or others", back.len());
    Ok(())
}

#[test]
fn a_megabyte() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net, log: RunLog| {
            bulk(connect(&net).await?, 1 << 20).await?;
            log.note("all came back");
            Ok(())
        });
        sim.run().expect("a megabyte there and back");
        assert!(log.has("all came back"));
    });
}

#[test]
fn many_connections() {
    const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
    const EACH: usize = 40;
    async fn one(net: Net, number: usize) -> Result {
        let mut stream = connect(&net).await?;
        let word = format!("{} {number}", net.ip());
        stream.write_all(word.as_bytes()).await?;
        stream.shutdown().await?;
        let mut back = String::new();
        stream.read_to_string(&mut back).await?;
        assert_eq!(back, word);
        Ok(())
    }
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        for host in HOSTS {
            client(&mut sim, host, log, async |net: Net, log: RunLog| {
                let tasks: Vec<_> = (0..EACH)
                    .map(|number| {
                        let net = net.clone();
                        tokio::task::spawn_local(async move { one(net, number).await.map_err(|error| error.to_string()) })
                    })
                    .collect();
                for task in tasks {
                    task.await??;
                }
                log.note(format!("{} is done", net.ip()));
                Ok(())
            });
        }
        sim.run().expect("every connection echoes");
        assert!(log.has("192.168.0.5 is done"));
    });
}

#[test]
fn datagrams() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net: Net, log: RunLog| {
            let socket = UdpSockets::bind(&net, (net.ip(), 0)).await?;
            let server = (address("server"), PORT);
            for number in 0..32u8 {
                socket.send_to(&vec![number; usize::from(number) * 40], server).await?;
            }
            let (mut bytes, mut seen) = ([0; 1500], [false; 32]);
            for _ in 0..32 {
                let (len, from) = socket.recv_from(&mut bytes).await?;
                assert_eq!(from, SocketAddr::from(server));
                let number = len / 40;
                assert!(bytes[..len].iter().all(|&byte| usize::from(byte) == number), "a datagram comes whole");
                assert!(!core::mem::replace(&mut seen[number], true), "and once");
            }
            log.note("all came back");
            Ok(())
        });
        sim.run().expect("datagrams come back");
        assert!(log.has("all came back"));
    });
}

#[test]
fn nobody_listens() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net: Net, _| {
            let refused = TcpStream::connect(&net, (address("server"), 81)).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let nowhere = TcpStream::connect(&net, ([192, 168, 0, 99], 80)).await;
            assert_eq!(nowhere.unwrap_err().kind(), ErrorKind::HostUnreachable);
            Ok(())
        });
        sim.run().expect("both connects fail as they must");
    });
}
