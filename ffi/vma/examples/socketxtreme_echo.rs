//! A server that sends back whatever it receives, over TCP and UDP, in Rust: without a receive call, without accept, and without copying what
//! it received, by SocketXtreme.
//!
//! All sockets of a process share a ring by default. One call tells what happened on it, to any of them; while nothing does, the
//! server sleeps on the ring's descriptor. It ends when so many connections have ended, if it is told how many.
//!
//! Try it:
//!     cc -o sender sender.c
//!     rustc --edition 2024 -O socketxtreme_echo.rs
//!     VMA_SOCKETXTREME=1 ringway run -- ./socketxtreme_echo 127.0.0.1:7216 1 &
//!     ringway run -- ./sender tcp 7216 1000
//!     wait $!

mod vma_extra;

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::process::ExitCode;

use vma_extra::{Api, Completion, POLLIN, PollFd, SOCKETXTREME_NEW_CONNECTION_ACCEPTED, SOCKETXTREME_PACKET};

/// EPOLLERR, EPOLLHUP and EPOLLRDHUP: a connection has ended, or its peer's half of it.
const ENDED: u64 = 0x8 | 0x10 | 0x2000;

fn serve(api: &Api, address: SocketAddrV4, mut left: Option<u32>) -> io::Result<()> {
    let (listener, udp, mut ring) = (TcpListener::bind(address)?, UdpSocket::bind(address)?, -1);
    // SAFETY: room for one descriptor.
    if unsafe { (api.get_socket_rings_fds)(listener.as_raw_fd(), &raw mut ring, 1) } != 1 {
        return Err(io::Error::other("the listener is not offloaded"));
    }
    println!("echoing on {}", listener.local_addr()?);
    let (mut connections, mut done) = (HashMap::new(), [Completion::NONE; 32]);
    while left != Some(0) {
        // SAFETY: room for so many.
        let count = unsafe { (api.socketxtreme_poll)(ring, done.as_mut_ptr(), done.len() as u32, 0) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for completion in &done[..count] {
            // The descriptor, as nobody said otherwise (SO_VMA_USER_DATA).
            let fd = completion.user_data as i32;
            if completion.events & SOCKETXTREME_NEW_CONNECTION_ACCEPTED != 0 {
                // SAFETY: a new descriptor, which nobody else has.
                connections.insert(fd, unsafe { TcpStream::from_raw_fd(fd) });
            }
            if completion.events & SOCKETXTREME_PACKET != 0 {
                answer(&udp, connections.get_mut(&fd), completion);
                // SAFETY: one packet, of which nothing is used any more.
                unsafe { (api.socketxtreme_free_vma_packets)(&raw const completion.packet, 1) };
            }
            // (Dropping it closes it.)
            if completion.events & ENDED != 0 && connections.remove(&fd).is_some() {
                left = left.map(|left| left.saturating_sub(1));
            }
        }
        if count == 0 {
            let mut asleep = PollFd { fd: ring, events: POLLIN, revents: 0 };
            // SAFETY: one entry.
            unsafe { vma_extra::poll(&raw mut asleep, 1, -1) };
        }
    }
    Ok(())
}

/// What arrived goes back from where it is: each buffer is a piece of it.
fn answer(udp: &UdpSocket, connection: Option<&mut TcpStream>, completion: &Completion) {
    // SAFETY: it is given back after this, and no piece is kept.
    let mut pieces = unsafe { completion.packet.pieces() };
    let sent = match connection {
        Some(connection) => pieces.try_for_each(|piece| connection.write_all(piece)),
        // (std sends a datagram from one place. Few lie in several.)
        None => udp.send_to(&pieces.collect::<Vec<_>>().concat(), completion.src.to_std()).map(drop),
    };
    if let Err(error) = sent {
        eprintln!("socketxtreme_echo: {error}");
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = arguments.first().and_then(|address| address.parse::<SocketAddrV4>().ok());
    let (Some(address), Some(api)) = (address, vma_extra::api()) else {
        eprintln!("VMA_SOCKETXTREME=1 socketxtreme_echo ADDRESS:PORT [CONNECTIONS], with libvma.so preloaded");
        return ExitCode::from(2);
    };
    match serve(api, address, arguments.get(1).and_then(|count| count.parse().ok())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("socketxtreme_echo: {error}");
            ExitCode::FAILURE
        }
    }
}
