//! A market-data reader on a cyclic buffer, in Rust: the device writes one datagram behind the other into a ring of equal strides, and the
//! program reads hundreds of them at a time as an array, without a call for each.
//!
//! Try it:
//!     cc -o sender sender.c
//!     rustc --edition 2024 -O cyclic.rs
//!     ringway run -- ./cyclic 7214 &
//!     ringway run -- ./sender udp 7214 5000
//!     wait $!

mod vma_extra;

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;

use vma_extra::{
    Api, CyclicCompletion, INGRESS, MSG_DONTWAIT, RING_ALLOC_MASK_RING_INGRESS, RING_ALLOC_MASK_RING_PROFILE_KEY, RING_CYCLIC_BUFFER,
    RING_LOGIC_PER_SOCKET, RingAllocLogic, RingType, SO_VMA_RING_ALLOC_LOGIC, STRIP_NETWORK_HDRS, set_option,
};

/// The longest message of the feed, without the network's headers; the library makes a stride of it.
static FEED: RingType = RingType {
    comp_mask: 0,
    ring_type: RING_CYCLIC_BUFFER,
    cyclic_comp_mask: 0,
    num: 4096,
    stride_bytes: 64,
    hdr_bytes: 0,
    packet_receive_mode: STRIP_NETWORK_HDRS,
};

/// What was read.
#[derive(Default)]
struct Counts {
    messages: u64,
    reads: u64,
    gaps: u64,
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The number in "message N\n", which zeros follow.
fn number(message: &[u8]) -> Option<u64> {
    let line = message.split(|&byte| byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.strip_prefix("message ")?.parse().ok()
}

fn read(api: &Api, port: u16) -> io::Result<Counts> {
    let (mut key, mut ring) = (0, -1);
    // SAFETY: a profile, and room for its key.
    check(unsafe { (api.vma_add_ring_profile)(&raw const FEED, &raw mut key) })?;
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    let fd = socket.as_raw_fd();
    // A socket that has a ring already goes over to the one that is asked for.
    let logic = RingAllocLogic {
        comp_mask: RING_ALLOC_MASK_RING_PROFILE_KEY | RING_ALLOC_MASK_RING_INGRESS,
        ring_alloc_logic: RING_LOGIC_PER_SOCKET,
        ring_profile_key: key.cast_unsigned(),
        user_id: 0,
        directions: INGRESS,
    };
    set_option(fd, SO_VMA_RING_ALLOC_LOGIC, &logic)?;
    // SAFETY: room for one descriptor.
    if check(unsafe { (api.get_socket_rings_fds)(fd, &raw mut ring, 1) })? != 1 {
        return Err(io::Error::other("the socket is not offloaded"));
    }
    let (mut counts, mut next) = (Counts::default(), 0);
    loop {
        let mut done = CyclicCompletion::NONE;
        // Up to 512 at a time; what was returned stays as it is until the next call.
        // SAFETY: room for a completion.
        check(unsafe { (api.vma_cyclic_buffer_read)(ring, &raw mut done, 1, 512, MSG_DONTWAIT) })?;
        if done.packets == 0 {
            continue;
        }
        counts.reads += 1;
        // SAFETY: the library's, until the next call.
        let all = unsafe { std::slice::from_raw_parts(done.payload, done.payload_len) };
        for message in all.chunks_exact(done.payload_len / done.packets) {
            if message.starts_with(b"end") {
                return Ok(counts);
            }
            if let Some(number) = number(message) {
                counts.gaps += u64::from(number != next);
                counts.messages += 1;
                next = number + 1;
            }
        }
    }
}

fn main() -> ExitCode {
    let port = std::env::args().nth(1).and_then(|port| port.parse::<u16>().ok());
    let (Some(port), Some(api)) = (port, vma_extra::api()) else {
        eprintln!("cyclic PORT, with libvma.so preloaded");
        return ExitCode::from(2);
    };
    match read(api, port) {
        Ok(Counts { messages, reads, gaps }) => {
            println!("{messages} messages in {reads} reads, {gaps} gaps");
            if messages > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("cyclic: {error}");
            ExitCode::FAILURE
        }
    }
}
