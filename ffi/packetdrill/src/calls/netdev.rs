//! The tester's side: packets in and out, and time.

use core::ffi::{c_int, c_longlong, c_uint, c_void};
use core::time::Duration;

use libc::timeval;

use super::host;
use crate::errno::{Errno, returned_int};
use crate::memory;

/// The longest packet of IP.
const PACKET_MAX: usize = 65_575;

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn netdev_send(userdata: *mut c_void, packet: *const c_void, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        if len > PACKET_MAX {
            return Err(Errno(libc::EMSGSIZE));
        }
        let packet = memory::read(packet, len)?;
        host.now(|world| {
            world.ring.queues_mut().arrive(&packet);
            Ok(0)
        })
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn netdev_receive(
    userdata: *mut c_void,
    buffer: *mut c_void,
    len: *mut usize,
    time_us: *mut c_longlong,
) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let room = memory::get(len.cast_const())?;
        let Some(sent) = host.next_packet() else {
            memory::put(len, &0)?;
            return Ok(0);
        };
        let packet = &sent.packet[..sent.packet.len().min(room)];
        memory::write(buffer, packet)?;
        memory::put(len, &packet.len())?;
        memory::put(time_us, &((sent.at.as_nanos() / 1000) as c_longlong))?;
        Ok(0)
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn usleep(userdata: *mut c_void, time_us: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        host.pass(Duration::from_micros(u64::from(time_us)));
        Ok(0)
    })
}

/// # Safety
/// As [`host`].
pub(crate) unsafe extern "C" fn gettimeofday(userdata: *mut c_void, time: *mut timeval, _zone: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let host = unsafe { host(userdata) };
    returned_int(|| {
        let micros = host.time().as_nanos() / 1000;
        memory::put(time, &timeval { tv_sec: (micros / 1_000_000) as i64, tv_usec: (micros % 1_000_000) as i64 })?;
        Ok(0)
    })
}
