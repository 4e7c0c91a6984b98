//! A plain tokio program, for `tests/programs`: `serve PORT STREAMS [HOST]` echoes on as many connections and on a UDP socket, and ends;
//! `talk PORT STREAMS SIZE [HOST]` has that many conversations at once, each of `SIZE` bytes, compares, and prints `equal`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

const DATAGRAMS: usize = 200;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers = arguments.iter().skip(1).map_while(|a| a.parse().ok()).collect::<Vec<usize>>();
    let host = arguments.get(1 + numbers.len()).map_or(Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)), |host| host.parse())?;
    // Several threads, of which each may poll any socket.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build()?;
    match (arguments.first().map(String::as_str), numbers.as_slice()) {
        (Some("serve"), &[port, streams]) => runtime.block_on(serve(at(host, port)?, streams)),
        (Some("talk"), &[port, streams, size]) => runtime.block_on(talk(at(host, port)?, streams, size)),
        _ => bail!("serve PORT STREAMS [HOST], or talk PORT STREAMS SIZE [HOST]"),
    }
}

fn at(host: IpAddr, port: usize) -> Result<SocketAddr> {
    Ok(SocketAddr::new(host, u16::try_from(port)?))
}

async fn serve(address: SocketAddr, streams: usize) -> Result<()> {
    let datagrams = UdpSocket::bind(address).await?;
    let listener = TcpListener::bind(address).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(echo_datagrams(datagrams));
    for _ in 0..streams {
        let (stream, _) = listener.accept().await?;
        tasks.spawn(echo(stream));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn echo(mut stream: TcpStream) -> Result<()> {
    let (mut from, mut to) = stream.split();
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await?;
    Ok(())
}

async fn echo_datagrams(socket: UdpSocket) -> Result<()> {
    let mut buffer = vec![0; 65_536];
    for _ in 0..DATAGRAMS {
        let (len, peer) = socket.recv_from(&mut buffer).await?;
        socket.send_to(&buffer[..len], peer).await?;
    }
    Ok(())
}

async fn talk(server: SocketAddr, streams: usize, size: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..streams {
        tasks.spawn(converse(server, number, size));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let any: IpAddr = if server.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    for number in 0..DATAGRAMS {
        let sent = pattern(number, 10 * number);
        socket.send(&sent).await?;
        let mut got = vec![0; sent.len() + 1];
        let len = socket.recv(&mut got).await?;
        ensure!(got[..len] == sent, "other bytes in datagram {number}");
    }
    println!("equal");
    Ok(())
}

/// Sends and receives at the same time, from two tasks.
async fn converse(server: SocketAddr, number: usize, size: usize) -> Result<()> {
    let stream = TcpStream::connect(server).await.context("no connection")?;
    stream.set_nodelay(number.is_multiple_of(2))?;
    let (mut from, mut to) = stream.into_split();
    let data = pattern(number, size);
    let expected = data.clone();
    let sender = tokio::spawn(async move {
        for piece in data.chunks(10_007) {
            to.write_all(piece).await?;
        }
        to.shutdown().await
    });
    let mut got = Vec::with_capacity(size);
    from.read_to_end(&mut got).await?;
    sender.await??;
    ensure!(got == expected, "other bytes came back on stream {number}");
    Ok(())
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(31) ^ (n >> 8) ^ seed) as u8).collect()
}
