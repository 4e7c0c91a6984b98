//! Datagrams a second: of a kernel's flood, what a program receives by the kernel's sockets, what it receives by Ringway's interface, and what an interface's queues
//! take that does nothing with them. Sender and receiver are this program, started again at the ends of the cable.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ringway_stack::Instant as Moment;
use ringway_stack::device::{Device as _, Queues as _, QueuesConfig, RxBatch};
use ringway_stack::ring::{Ring, RingConfig, UdpOptions};
use ringway_xdp::{Settings, XdpDevice};

use super::cable::{At, Cable, HOST, said};
use crate::apps::program::{World, free_port};
use crate::row::Row;

const SIZE: usize = 64;
/// Of a flood, in all.
const LASTS: Duration = Duration::from_millis(1500);
/// Before anything counts.
const WARM_UP: Duration = Duration::from_millis(200);

/// One end of a flood.
#[derive(Clone, Copy, Debug, clap::Subcommand)]
pub(crate) enum End {
    /// Sends.
    Floods { to: SocketAddr },
    /// Receives by the socket calls, and prints how many a second.
    Receives { at: SocketAddr },
    /// Takes them out of the queues of `b0`, and prints how many a second.
    Drops { at: SocketAddr },
}

/// Who receives.
const RECEIVERS: [(&str, World); 3] = [("receives", World::Kernel), ("receives", World::Ringway), ("drops", World::Kernel)];

pub(super) fn rows(cable: &Cable, rounds: u32) -> Result<Vec<Row>> {
    let mut figures = [const { Vec::new() }; RECEIVERS.len()];
    for _ in 0..rounds {
        for (&(word, world), figures) in RECEIVERS.iter().zip(&mut figures) {
            figures.push(per_second(cable, world, word)?);
            if world == World::Ringway {
                cable.check_offloaded()?;
            }
        }
    }
    let [kernels, ours, drops] = &figures;
    let row = |peer, theirs: &[f64]| Row::new("udp 64 B, a kernel's flood", "received by recv(2)", "/s", ours, peer, theirs);
    Ok(vec![row("the kernel's sockets", kernels), row("AF_XDP queues that are emptied", drops)])
}

fn per_second(cable: &Cable, world: World, word: &str) -> Result<f64> {
    let (own, port) = (std::env::current_exe()?, free_port()?);
    let line = |word: &str| format!("{} --library - --output - datagrams {word} {HOST}:{port}", own.display());
    let mut sender = cable.command(At::Asks, World::Kernel, true, &line("floods")).spawn()?;
    let rate = said(&mut cable.command(At::Serves, world, true, &line(word)), word);
    sender.wait()?;
    rate?.trim().parse().context("a rate")
}

/// Plays one end.
///
/// # Errors
/// The system refused something.
pub(crate) fn play(end: End) -> Result<()> {
    match end {
        End::Floods { to } => floods(to),
        End::Receives { at } => receives(at),
        End::Drops { at } => drops(at),
    }
}

fn floods(to: SocketAddr) -> Result<()> {
    let (socket, bytes) = (UdpSocket::bind("0.0.0.0:0")?, [1; SIZE]);
    let began = Instant::now();
    while began.elapsed() < WARM_UP + LASTS + WARM_UP {
        for _ in 0..64 {
            // (Whom nobody hears yet is told so.)
            let _ = socket.send_to(&bytes, to);
        }
    }
    Ok(())
}

fn receives(at: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(at)?;
    socket.set_read_timeout(Some(WARM_UP))?;
    let mut bytes = [0; SIZE];
    print(|| u64::from(socket.recv(&mut bytes).is_ok()));
    Ok(())
}

fn drops(at: SocketAddr) -> Result<()> {
    let device = XdpDevice::attach(&Settings::new(At::Serves.interface()))?;
    let queues = device.open(&QueuesConfig::default())?;
    let mut ring = Ring::new(queues, RingConfig { addresses: vec![at.ip()], ..RingConfig::default() }, [9; 32]);
    ring.udp_open(at, &UdpOptions::default())?;
    let (mut batch, began) = (RxBatch::new(64), Instant::now());
    print(|| {
        let count = ring.queues_mut().poll_rx(Moment::ZERO + began.elapsed(), &mut batch);
        batch.clear();
        count as u64
    });
    Ok(())
}

/// Takes for as long as that lasts; how many a second.
fn print(mut take: impl FnMut() -> u64) {
    let took_for = |time: Duration, take: &mut dyn FnMut() -> u64| {
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < time {
            // (A look at the clock costs as much as a datagram.)
            count += (0..32).map(|_| take()).sum::<u64>();
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = count as f64 / began.elapsed().as_secs_f64();
        rate
    };
    took_for(WARM_UP, &mut take);
    println!("{}", took_for(LASTS, &mut take));
}
