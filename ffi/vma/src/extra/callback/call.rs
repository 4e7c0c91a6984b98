//! Calling a callback: what it is called with, and what becomes of its answer.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use std::net::{IpAddr, SocketAddr};

use libc::{in_addr, iovec, sa_family_t, size_t, sockaddr_in, sockaddr_in6, timespec};

use super::super::abi::Info;
use super::super::left;
use super::super::loans::{Pieces, write_iovecs};
use super::{Function, Next, Running, me};
use crate::exports::control::wall_time;
use crate::process::{self, Offload, Process};
use crate::slab::Key;

/// Packets that callbacks see before the call that they run in looks whether it has what it wants.
const BATCH: usize = 16;

/// The most pieces of a packet: what was copied, a head, and a device's gather list.
const PIECES_MAX: usize = 64;

/// Where a packet's pieces are written down.
type Vectors = [MaybeUninit<iovec>; PIECES_MAX];

/// All that a callback is called with, beside those; nothing in it needs dropping.
struct Call {
    function: Function,
    serial: u64,
    process: *const Process,
    fd: c_int,
    context: *mut c_void,
    pieces: size_t,
    info: Info,
    from: sockaddr_in6,
    to: sockaddr_in6,
}

/// Runs callbacks that are due: as many as are worth it before another look. Nothing that needs dropping may be on the stack.
pub(in crate::extra) fn run() {
    let mut call = MaybeUninit::<Call>::uninit();
    let mut iov = [const { MaybeUninit::uninit() }; PIECES_MAX];
    // (Each is another callback, but they have one name, since they run one after the other: so one guard does for all. A signal that was put off
    // is raised when the first one is there: its handler may leave by longjmp.)
    let left = core::pin::pin!(left::Guard::new());
    left.as_ref().arm();
    if !crate::boundary!(false, begin(&mut call, &mut iov, &left)) {
        left.as_ref().disarm();
        return;
    }
    for left_to_run in (0..BATCH).rev() {
        // SAFETY: it was written before, and is written anew for each.
        let call = unsafe { call.assume_init_mut() };
        call.info.src = (&raw mut call.from).cast();
        call.info.dst = (&raw mut call.to).cast();
        // SAFETY: the program's function, as it registered it, with what the header promises. No lock is held, and no panic passes: it is the
        // program's own exception that may.
        let answer = unsafe { (call.function)(call.fd, call.pieces, iov.as_mut_ptr().cast(), &raw mut call.info, call.context) };
        // (No cancellation point of libc's is in there.)
        if !crate::bare_boundary!(false, go_on(call, &mut iov, answer, left_to_run > 0)) {
            break;
        }
    }
    left.as_ref().disarm();
    crate::boundary!((), {
        if let Some(process) = process::process() {
            process.lock().hand_on();
        }
    });
}

/// Writes down what the first callback is called with. `false`: none is due.
fn begin(out: &mut MaybeUninit<Call>, iov: &mut Vectors, left: &left::Guard) -> bool {
    let Some(process) = process::process() else { return false };
    let mut guard = process.lock();
    let offload = &mut *guard;
    offload.sweep(process);
    if !offload.callbacks.are_due() {
        return false;
    }
    offload.callbacks.serial += 1;
    let serial = offload.callbacks.serial;
    left.watch(serial);
    prepare(process, offload, (out.as_mut_ptr(), iov), serial, None)
}

/// Acts on what a callback answered, and writes down what the next one is called with. `false`: there is none, or it is not to be.
fn go_on(call: &mut Call, iov: &mut Vectors, answer: c_int, may_go_on: bool) -> bool {
    // In the child of a fork there is another process, which knows nothing of it.
    let Some(process) = process::process().filter(|process| ptr::eq(*process, call.process)) else { return false };
    let mut guard = process.lock();
    let offload = &mut *guard;
    if !may_go_on {
        offload.settle_last(process, call.serial, answer);
        return false;
    }
    let same = offload.settle(process, call.serial, answer);
    offload.sweep(process);
    let goes_on = prepare(process, offload, (call, iov), call.serial, same);
    // (After that: whoever hears of what was let through need not look for somebody to show the next packet to.)
    match same {
        Some(key) if goes_on => offload.tell_of_decided(key),
        _ => offload.dispatch(),
    }
    goes_on
}

/// Finds the next packet to be decided about, and has it shown by the callback of that number. `same`: the socket whose turn it was. `false`: there
/// is none, and nothing was written.
#[inline]
fn prepare(process: &Process, offload: &mut Offload, out: (*mut Call, &mut Vectors), serial: u64, same: Option<Key>) -> bool {
    let (out, iov) = out;
    let mut pieces = Pieces::new();
    let take = |piece| pieces.push(piece);
    let next = match same {
        Some(key) if offload.callbacks.due.is_empty() => offload.candidate_of(process, key, take),
        Some(key) => {
            offload.list(key);
            offload.next_candidate(process, take)
        }
        None => offload.next_candidate(process, take),
    };
    let Some(Next { key, ring, function, context, fd, wants_time, wants_card_time, shown }) = next else { return false };
    // SAFETY: there is room for so many.
    let (count, _) = unsafe { write_iovecs(&mut pieces, iov.as_mut_ptr().cast(), PIECES_MAX) };
    let (packet, _) = offload.loans.lend((key, fd), |loan| loan.pieces = pieces);
    offload.callbacks.running.push(Running { serial, thread: me(), socket: key, ring, len: shown.len, packet: packet.addr(), left: false });
    let by_card = shown.hardware_time.filter(|_| wants_card_time).zip(shown.received);
    let by_card = by_card.and_then(|(at, seen)| offload.card_time(ring.ring, at, seen));
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let info = Info {
        struct_sz: size_of::<Info>(),
        packet_id: packet,
        src: ptr::null_mut(),
        dst: ptr::null_mut(),
        payload_sz: shown.len,
        socket_ready_queue_pkt_count: narrow(shown.ready_packets),
        socket_ready_queue_byte_count: narrow(shown.ready_bytes),
        hw_timestamp: by_card.map_or(NEVER, to_timespec),
        sw_timestamp: if wants_time { to_timespec(wall_time(shown.received)) } else { NEVER },
    };
    let (from, to) = (to_sockaddr(shown.from), to_sockaddr(shown.to));
    let context = ptr::with_exposed_provenance_mut(context);
    let call = Call { function, serial, process: ptr::from_ref(process), fd, context, pieces: count, info, from, to };
    // SAFETY: the callers' own, and all of it is plain data.
    unsafe { out.write(call) };
    true
}

const NEVER: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

fn to_timespec(time: core::time::Duration) -> timespec {
    timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}

/// A `sockaddr_in`, or, as its family says, a `sockaddr_in6`.
fn to_sockaddr(address: SocketAddr) -> sockaddr_in6 {
    // SAFETY: all of it is integers, for which zero is a value.
    let mut raw: sockaddr_in6 = unsafe { core::mem::zeroed() };
    match address.ip() {
        IpAddr::V4(ip) => {
            let v4 = sockaddr_in {
                sin_family: libc::AF_INET as sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: in_addr { s_addr: ip.to_bits().to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the longer structure has room for the other, and is aligned as it.
            unsafe { (&raw mut raw).cast::<sockaddr_in>().write(v4) };
        }
        IpAddr::V6(ip) => {
            raw.sin6_family = libc::AF_INET6 as sa_family_t;
            raw.sin6_port = address.port().to_be();
            raw.sin6_addr.s6_addr = ip.octets();
        }
    }
    raw
}

const _: () = assert!(size_of::<sockaddr_in>() <= size_of::<sockaddr_in6>() && align_of::<sockaddr_in>() <= align_of::<sockaddr_in6>());
