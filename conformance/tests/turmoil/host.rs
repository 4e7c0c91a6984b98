//! A Ringway stack on a turmoil host, and the task that drives it.

use core::time::Duration;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringway_stack::Instant;
use ringway_stack::ring::{Ring, RingConfig};
use ringway_tokio::NetConfig;
use tokio::time;
use turmoil::net::UdpSocket;

use crate::device::{Frames, TurmoilQueues};
use crate::run_log::RunLog;

pub(crate) type Net = ringway_tokio::Net<TurmoilQueues>;
pub(crate) type TcpListener = ringway_tokio::TcpListener<TurmoilQueues>;
pub(crate) type TcpStream = ringway_tokio::TcpStream<TurmoilQueues>;
pub(crate) type UdpSockets = ringway_tokio::UdpSocket<TurmoilQueues>;

/// The port whose datagrams are frames.
const WIRE: u16 = 4789;
/// The longest frame: an MTU of 1500 and an Ethernet header.
const FRAME_MAX: usize = 1514;

/// Boots a stack on the turmoil host `name`, at its address. It runs as long as the host does.
pub(crate) async fn boot(name: &str, log: &RunLog) -> io::Result<Net> {
    let ip = address(name);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, WIRE)).await?;
    socket.set_broadcast(true)?;
    let frames = Frames::default();
    let device = TurmoilQueues::new(ip, frames.clone());
    // What a machine would have from its hardware; a host that was bounced must not begin with the same numbers again.
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&ip.octets());
    seed[4..20].copy_from_slice(&turmoil::sim_elapsed().unwrap_or_default().as_nanos().to_le_bytes());
    let ring = Ring::new(device, RingConfig { addresses: vec![ip.into()], ..RingConfig::default() }, seed);
    let port_first = 49_152 + u16::from(seed[4] ^ seed[5] ^ seed[6]) * 32;
    let origin = time::Instant::now();
    let net = Net::owning(ring, NetConfig { port_first, ..NetConfig::at(ip) }, move || Instant::ZERO + origin.elapsed());
    tokio::task::spawn_local(drive(net.clone(), socket, frames, origin, log.clone()));
    Ok(net)
}

/// A turmoil host's address.
pub(crate) fn address(name: &str) -> Ipv4Addr {
    match turmoil::lookup(name) {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("turmoil gave {name} the address {ip}"),
    }
}

/// Pumps frames between stack and socket, and keeps the stack's deadlines.
async fn drive(net: Net, socket: UdpSocket, frames: Frames, origin: time::Instant, log: RunLog) {
    let mut bytes = vec![0; FRAME_MAX];
    loop {
        while net.poll() > 0 {}
        while let Some((to, frame)) = frames.outgoing() {
            let target = SocketAddr::from((to, WIRE));
            // A host that turmoil doesn't know is one that isn't plugged in.
            let _unplugged = socket.send_to(&frame, target).await;
        }
        let deadline = net.next_deadline().map_or(Duration::from_secs(3600), |at| Duration::from_nanos(at.as_nanos()));
        tokio::select! {
            biased;
            received = socket.recv_from(&mut bytes) => {
                let (len, _) = received.expect("turmoil's socket receives");
                log.frame(&bytes[..len]);
                frames.arrived(&bytes[..len]);
            }
            () = net.touched() => {}
            () = time::sleep_until(origin + deadline) => {}
        }
    }
}
