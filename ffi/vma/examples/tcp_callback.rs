//! Zero copy on a TCP connection by a callback, in Rust: it is called for each segment in order, keeps the segment where the device put it
//! (VMA_PACKET_HOLD), and the program works on it later and then gives it back. Until then, that much of the window stays shut.
//!
//! Try it:
//!     cc -o sender sender.c
//!     rustc --edition 2024 -O tcp_callback.rs
//!     ringway run -- ./tcp_callback 7213 &
//!     ringway run -- ./sender tcp 7213 10000
//!     wait $!

mod vma_extra;

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::io::{self, ErrorKind, Read as _};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;

use vma_extra::{Api, Info, PACKET_HOLD, PACKET_RECV, POLLIN, Packet, Piece, PollFd};

/// Segments that are held and not worked on yet, at most.
const HELD_MAX: usize = 64;

/// A segment: by which name it is given back, and where it lies.
struct Held {
    packet_id: *const c_void,
    pieces: Vec<Piece>,
}

unsafe extern "C" fn keep(_fd: c_int, count: usize, pieces: *const Piece, info: *const Info, context: *mut c_void) -> c_int {
    // SAFETY: what was registered, which outlives the connection.
    let mut held = unsafe { &*context.cast::<RefCell<Vec<Held>>>() }.borrow_mut();
    // What cannot be kept is received in the ordinary way.
    if held.len() == HELD_MAX {
        return PACKET_RECV;
    }
    // SAFETY: the library's, until this returns; what the pieces point to, until it is given back.
    held.push(unsafe { Held { packet_id: (*info).packet_id, pieces: std::slice::from_raw_parts(pieces, count).to_vec() } });
    PACKET_HOLD
}

/// What was received.
#[derive(Default)]
struct Counts {
    bytes: usize,
    lines: usize,
    segments: usize,
}

impl Counts {
    fn add(&mut self, data: &[u8]) {
        self.bytes += data.len();
        self.lines += data.iter().filter(|&&byte| byte == b'\n').count();
    }
}

fn receive(api: &Api, port: u16) -> io::Result<Counts> {
    let (mut connection, _) = TcpListener::bind(("0.0.0.0", port))?.accept()?;
    connection.set_nonblocking(true)?;
    let (fd, held) = (connection.as_raw_fd(), RefCell::new(Vec::<Held>::new()));
    // SAFETY: the function is what it is to be, and its context outlives the connection.
    if unsafe { (api.register_recv_callback)(fd, Some(keep), (&raw const held).cast_mut().cast()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut counts, mut rest, mut has_ended) = (Counts::default(), [0; 4096], false);
    while !has_ended {
        let mut ready = PollFd { fd, events: POLLIN, revents: 0 };
        // The callback runs in here, and in read; what it held is worked on outside of both.
        // SAFETY: one entry.
        unsafe { vma_extra::poll(&raw mut ready, 1, 1000) };
        let got = connection.read(&mut rest);
        // What was held came before what was read: the callback is not asked about what waits behind bytes that nobody has read.
        for segment in held.take() {
            for piece in &segment.pieces {
                // SAFETY: it is given back below.
                counts.add(unsafe { piece.bytes() });
            }
            counts.segments += 1;
            let packet = Packet { packet_id: segment.packet_id, sz_iov: 0 };
            // SAFETY: one packet, and no piece of it is used any more.
            if unsafe { (api.free_packets)(fd, &raw const packet, 1) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        match got {
            Ok(got) => {
                counts.add(&rest[..got]);
                has_ended = got == 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(counts)
}

fn main() -> ExitCode {
    let port = std::env::args().nth(1).and_then(|port| port.parse::<u16>().ok());
    let (Some(port), Some(api)) = (port, vma_extra::api()) else {
        eprintln!("tcp_callback PORT, with libvma.so preloaded");
        return ExitCode::from(2);
    };
    match receive(api, port) {
        Ok(Counts { bytes, lines, segments }) => {
            println!("{bytes} bytes, {lines} lines; {segments} segments were held");
            if lines == 10000 && segments > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("tcp_callback: {error}");
            ExitCode::FAILURE
        }
    }
}
