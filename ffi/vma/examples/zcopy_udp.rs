//! Receives datagrams without copying them, in Rust: std's own socket, and two functions of the VMA Extra API's table.
//!
//! Try it:
//!     cc -o sender sender.c
//!     rustc --edition 2024 -O zcopy_udp.rs
//!     ringway run -- ./zcopy_udp 7205 &
//!     ringway run -- ./sender udp 7205 1000
//!     wait $!

mod vma_extra;

use std::io;
use std::mem::size_of_val;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;
use std::ptr::null_mut;
use std::slice;

use vma_extra::{Api, MSG_VMA_ZCOPY, Packets, Piece};

fn main() -> ExitCode {
    let port = std::env::args().nth(1).and_then(|port| port.parse::<u16>().ok());
    let (Some(port), Some(api)) = (port, vma_extra::api()) else {
        eprintln!("zcopy_udp PORT, with libvma.so preloaded");
        return ExitCode::from(2);
    };
    match receive(api, port) {
        Ok([lent, copied, bytes]) => {
            println!("{bytes} bytes in {lent} datagrams, and in {copied} that had to be copied");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("zcopy_udp: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Until the last one: datagrams that were lent, those that came from outside of the library and were copied, and the bytes of both.
fn receive(api: &Api, port: u16) -> io::Result<[usize; 3]> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    let fd = socket.as_raw_fd();
    let [mut lent, mut copied, mut bytes] = [0; 3];
    loop {
        // Room for the description of a packet, or for a datagram that has to be copied.
        let mut buffer = [0_u64; 256];
        let (at, mut flags) = (buffer.as_mut_ptr(), 0);
        // SAFETY: there is room for so many bytes, and the address of the sender is not asked for.
        let got = unsafe { (api.recvfrom_zcopy)(fd, at.cast(), size_of_val(&buffer), &raw mut flags, null_mut(), null_mut()) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        bytes += got;
        let mut is_last = false;
        if flags & MSG_VMA_ZCOPY == 0 {
            copied += 1;
            // SAFETY: so many bytes were written there.
            is_last = unsafe { slice::from_raw_parts(at.cast::<u8>(), got) } == b"end";
        } else {
            lent += 1;
            // SAFETY: with that flag, the library has described a packet there; what it says of its own memory holds until free_packets.
            unsafe {
                let packet = &raw const (*at.cast::<Packets>()).first;
                for piece in slice::from_raw_parts(packet.add(1).cast::<Piece>(), (*packet).sz_iov) {
                    is_last = piece.bytes() == b"end";
                }
                if (api.free_packets)(fd, packet, 1) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
        }
        if is_last {
            return Ok([lent, copied, bytes]);
        }
    }
}
