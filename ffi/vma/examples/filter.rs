//! A packet filter, in Rust: a callback sees each datagram before it is queued, and decides whether the program is to receive it at all.
//!
//! What it drops costs no wake-up and no room in the socket's buffer. The callback runs in the program's own thread, inside recv.
//!
//! Try it:
//!     cc -o sender sender.c
//!     rustc --edition 2024 -O filter.rs
//!     ringway run -- ./filter 7212 &
//!     ringway run -- ./sender udp 7212 1000
//!     wait $!

mod vma_extra;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;

use vma_extra::{Api, Info, PACKET_DROP, PACKET_RECV, Piece};

/// What the callback counts.
#[derive(Default)]
struct Filter {
    seen: Cell<usize>,
    dropped: Cell<usize>,
}

/// The number in "message N".
fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.strip_prefix("message ")?.trim().parse().ok()
}

/// Lets only messages with an even number pass, and what is none.
unsafe extern "C" fn is_wanted(_fd: c_int, count: usize, pieces: *const Piece, _info: *const Info, context: *mut c_void) -> c_int {
    // SAFETY: what was registered, which outlives the socket.
    let filter = unsafe { &*context.cast::<Filter>() };
    // SAFETY: the library's, until this returns. A datagram may lie in several pieces.
    let text: Vec<u8> = unsafe { std::slice::from_raw_parts(pieces, count).iter().flat_map(|piece| piece.bytes()) }.copied().collect();
    filter.seen.set(filter.seen.get() + 1);
    if number(&text).is_none_or(|number| number % 2 == 0) {
        return PACKET_RECV;
    }
    filter.dropped.set(filter.dropped.get() + 1);
    PACKET_DROP
}

/// Until the last one: how many datagrams were received, and how many of them should have been dropped.
fn receive(api: &Api, port: u16, filter: &Filter) -> io::Result<[usize; 2]> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    let context = (&raw const *filter).cast_mut().cast();
    // SAFETY: the function is what it is to be, and its context outlives the socket.
    if unsafe { (api.register_recv_callback)(socket.as_raw_fd(), Some(is_wanted), context) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let ([mut received, mut odd], mut text) = ([0; 2], [0; 64]);
    loop {
        let got = socket.recv(&mut text)?;
        received += 1;
        odd += usize::from(number(&text[..got]).is_some_and(|number| number % 2 == 1));
        if &text[..got] == b"end" {
            return Ok([received, odd]);
        }
    }
}

fn main() -> ExitCode {
    let port = std::env::args().nth(1).and_then(|port| port.parse::<u16>().ok());
    let (Some(port), Some(api)) = (port, vma_extra::api()) else {
        eprintln!("filter PORT, with libvma.so preloaded");
        return ExitCode::from(2);
    };
    let filter = Filter::default();
    match receive(api, port, &filter) {
        Ok([received, odd]) => {
            println!("{} datagrams came, {} were dropped, {received} received", filter.seen.get(), filter.dropped.get());
            if odd == 0 && filter.dropped.get() > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("filter: {error}");
            ExitCode::FAILURE
        }
    }
}
