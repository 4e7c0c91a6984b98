//! Calling a callback: what it is called with, and what becomes of its answer.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use std::net::SocketAddrV4;

use libc::{in_addr, iovec, sa_family_t, size_t, sockaddr_in, timespec};
use ringway_stack::ring::{Lent, SocketId};

use super::super::abi::Info;
use super::super::left;
use super::super::loans::{Loan, write_iovecs};
use super::{Function, Running, me};
use crate::exports::control::wall_time;
use crate::fdtable;
use crate::process::{self, Process};

/// Packets that callbacks see before the call that they run in looks whether it has what it wants.
const BATCH: usize = 16;

/// The most pieces of a packet: what was copied, a head, and a device's gather list.
const PIECES_MAX: usize = 64;

/// What is lent to a callback is nobody's to be given back before it is held.
const NOBODY: SocketId = SocketId { index: u32::MAX, generation: 0 };

/// All that a callback is called with; nothing in it needs dropping.
struct Call {
    function: Function,
    serial: u64,
    process: *const Process,
    fd: c_int,
    context: *mut c_void,
    pieces: size_t,
    iov: [MaybeUninit<iovec>; PIECES_MAX],
    info: Info,
    from: sockaddr_in,
    to: sockaddr_in,
}

/// Runs callbacks that are due: as many as are worth it before another look. Nothing that needs dropping may be on the stack.
pub(in crate::extra) fn run() {
    for _ in 0..BATCH {
        let mut call = MaybeUninit::<Call>::uninit();
        if !crate::boundary!(false, prepare(&mut call)) {
            return;
        }
        // SAFETY: it was written just now.
        let call = unsafe { call.assume_init_mut() };
        call.info.src = &raw mut call.from;
        call.info.dst = &raw mut call.to;
        let left = left::Guard::new(call.serial);
        let left = core::pin::pin!(left);
        left.as_ref().arm();
        let iov = call.iov.as_mut_ptr().cast();
        // SAFETY: the program's function, as it registered it, with what the header promises. No lock is held, and no panic passes: it is the
        // program's own exception that may.
        let answer = unsafe { (call.function)(call.fd, call.pieces, iov, &raw mut call.info, call.context) };
        left.as_ref().disarm();
        crate::boundary!((), {
            // In the child of a fork there is another process, which knows nothing of it.
            if let Some(process) = process::process().filter(|process| ptr::eq(*process, call.process)) {
                process.lock().settle(process, call.serial, answer);
            }
        });
    }
    crate::boundary!((), {
        if let Some(process) = process::process() {
            process.lock().hand_on();
        }
    });
}

/// Writes down what the next callback is called with. `false`: none is due.
fn prepare(out: &mut MaybeUninit<Call>) -> bool {
    let Some(process) = process::process() else { return false };
    let mut guard = process.lock();
    let offload = &mut *guard;
    offload.sweep(process);
    if !offload.callbacks.are_due() {
        return false;
    }
    let Some((key, ring, callback, mut candidate)) = offload.next_candidate(process) else { return false };
    let Some(function) = callback.function else { return false };
    let len = candidate.pieces.iter().map(Lent::len).sum();
    let Some(socket) = offload.sockets.find(key) else { return false };
    let fd = if fdtable::peek(callback.fd).socket() == Some(key) { callback.fd } else { socket.fd };
    let wants_time = socket.ancillary.timestamp != 0 || socket.ancillary.timestamping != 0;
    let sw_timestamp = if wants_time { to_timespec(wall_time(candidate.received)) } else { NEVER };
    let mut iov = [const { MaybeUninit::uninit() }; PIECES_MAX];
    // SAFETY: there is room for so many.
    let (pieces, _) = unsafe { write_iovecs(&mut candidate.pieces, iov.as_mut_ptr().cast(), PIECES_MAX) };
    let packet = offload.loans.lend(Loan { socket: key, fd, ring: NOBODY, len: 0, pieces: candidate.pieces });
    offload.callbacks.serial += 1;
    let serial = offload.callbacks.serial;
    offload.callbacks.running.push(Running { serial, thread: me(), socket: key, ring, len, packet: packet.addr(), left: false });
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let info = Info {
        struct_sz: size_of::<Info>(),
        packet_id: packet,
        src: ptr::null_mut(),
        dst: ptr::null_mut(),
        payload_sz: len,
        socket_ready_queue_pkt_count: count(candidate.ready_packets),
        socket_ready_queue_byte_count: count(candidate.ready_bytes),
        hw_timestamp: NEVER,
        sw_timestamp,
    };
    let (from, to) = (to_sockaddr(candidate.from), to_sockaddr(candidate.to));
    let context = ptr::with_exposed_provenance_mut(callback.context);
    out.write(Call { function, serial, process: ptr::from_ref(process), fd, context, pieces, iov, info, from, to });
    true
}

const NEVER: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

fn to_timespec(time: core::time::Duration) -> timespec {
    timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}

fn to_sockaddr(address: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}
