//! Receives datagrams without copying them, in Rust: std's own socket, and two functions of the VMA Extra API's table.
//!
//! Try it:
//!     cc -o sender sender.c
//!     rustc --edition 2024 -O zcopy_udp.rs
//!     ringway run -- ./zcopy_udp 7205 &
//!     ringway run -- ./sender udp 7205 1000
//!     wait $!

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;
use std::ptr::null_mut;
use std::slice;

/// The beginning of `struct vma_api_t` (mellanox/vma_extra.h): as much of it as is used here.
#[repr(C)]
struct Api {
    register_recv_callback: *const c_void,
    recvfrom_zcopy: unsafe extern "C" fn(c_int, *mut c_void, usize, *mut c_int, *mut c_void, *mut u32) -> c_int,
    free_packets: unsafe extern "C" fn(c_int, *const Packet, usize) -> c_int,
}

/// `struct iovec`.
#[repr(C)]
struct Piece {
    base: *const u8,
    len: usize,
}

/// `struct vma_packet_t`; `sz_iov` pieces follow.
#[repr(C, packed)]
struct Packet {
    packet_id: *const c_void,
    sz_iov: usize,
}

/// What recvfrom_zcopy fills in (`struct vma_packets_t`), with room for one datagram of up to 8 pieces.
#[repr(C, packed)]
struct Packets {
    count: usize,
    packet: Packet,
    pieces: [Piece; 8],
}

const SOL_SOCKET: c_int = 1;
const SO_VMA_GET_API: c_int = 2800;
const MSG_VMA_ZCOPY: c_int = 0x0004_0000;
const MSG_VMA_ZCOPY_FORCE: c_int = 0x0100_0000;

unsafe extern "C" {
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut u32) -> c_int;
}

/// The table, if the library is preloaded.
fn api() -> Option<&'static Api> {
    let (mut table, mut len) = (null_mut::<Api>(), size_of::<*mut Api>() as u32);
    // SAFETY: there is room for a pointer. The library writes one to a table that is never freed; without it, the kernel writes nothing.
    unsafe {
        getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, (&raw mut table).cast(), &raw mut len);
        table.as_ref()
    }
}

fn main() -> ExitCode {
    let port = std::env::args().nth(1).and_then(|port| port.parse::<u16>().ok());
    let (Some(port), Some(api)) = (port, api()) else {
        eprintln!("zcopy_udp PORT, with libvma.so preloaded");
        return ExitCode::from(2);
    };
    match receive(api, port) {
        Ok((datagrams, bytes)) => {
            println!("{datagrams} datagrams, {bytes} bytes, none of them copied");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("zcopy_udp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn receive(api: &Api, port: u16) -> io::Result<(u64, usize)> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    let fd = socket.as_raw_fd();
    let (mut datagrams, mut bytes) = (0, 0);
    loop {
        let mut packets = MaybeUninit::<Packets>::zeroed();
        // Fails rather than copy.
        let mut flags = MSG_VMA_ZCOPY_FORCE;
        let room = size_of::<Packets>();
        // SAFETY: there is room for so many bytes, and the address of the sender is not asked for.
        let got = unsafe { (api.recvfrom_zcopy)(fd, packets.as_mut_ptr().cast(), room, &raw mut flags, null_mut(), null_mut()) };
        if got < 0 || flags & MSG_VMA_ZCOPY == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: with that flag, the library has filled it in; zero is a value of what it did not need.
        let packets = unsafe { packets.assume_init() };
        let (count, pieces) = (packets.packet.sz_iov, packets.pieces);
        let mut is_last = false;
        for piece in &pieces[..count] {
            // SAFETY: the memory is lent until free_packets.
            let data = unsafe { slice::from_raw_parts(piece.base, piece.len) };
            bytes += data.len();
            is_last = data == b"end";
        }
        datagrams += 1;
        // SAFETY: the packet that was just lent; nothing refers to its memory any more.
        if unsafe { (api.free_packets)(fd, &raw const packets.packet, 1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        if is_last {
            return Ok((datagrams, bytes));
        }
    }
}
