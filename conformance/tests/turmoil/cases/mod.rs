//! The cases, and the servers that they share.

mod calm;
mod cut;
mod down;

use core::time::Duration;
use std::io;

use tokio::io::AsyncWriteExt;
use turmoil::{Result, Sim};

use crate::host::{Net, TcpListener, TcpStream, UdpSockets, address, boot};
use crate::run_log::RunLog;

/// The servers' port.
const PORT: u16 = 80;

/// A host that sends back what it gets, on every connection and by datagrams; a bounce boots it again.
fn echo_server(sim: &mut Sim<'_>, log: &RunLog) {
    let log = log.clone();
    sim.host("server", move || {
        let log = log.clone();
        async move {
            log.note("the server boots");
            let net = boot("server", &log).await?;
            tokio::task::spawn_local(echo_datagrams(net.clone()));
            echo_streams(&net).await?;
            Ok(())
        }
    });
}

async fn echo_streams(net: &Net) -> io::Result<()> {
    let listener = TcpListener::bind(net, (net.ip(), PORT)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::task::spawn_local(async move {
            let (mut reader, mut writer) = stream.into_split();
            tokio::io::copy(&mut reader, &mut writer).await?;
            writer.shutdown().await
        });
    }
}

async fn echo_datagrams(net: Net) -> io::Result<()> {
    let socket = UdpSockets::bind(&net, (net.ip(), PORT)).await?;
    let mut bytes = [0; 1500];
    loop {
        let (len, from) = socket.recv_from(&mut bytes).await?;
        socket.send_to(&bytes[..len], from).await?;
    }
}

/// A host with a program that runs to its end.
fn client<F: Future<Output = Result> + 'static>(
    sim: &mut Sim<'_>,
    name: &'static str,
    log: &RunLog,
    program: impl FnOnce(Net, RunLog) -> F + 'static,
) {
    let log = log.clone();
    sim.client(name, async move {
        let net = boot(name, &log).await?;
        // Hosts boot in any order: a server that isn't there yet would only answer the second ARP request, a second later.
        tokio::time::sleep(Duration::from_millis(50)).await;
        program(net, log).await
    });
}

/// Connects to the server.
async fn connect(net: &Net) -> io::Result<TcpStream> {
    TcpStream::connect(net, (address("server"), PORT)).await
}

/// Bytes that show where they are from: none repeats at a segment's length.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 65_521) as u8).collect()
}
