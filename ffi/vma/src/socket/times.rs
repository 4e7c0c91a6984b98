//! SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING: when what is received came.

use core::ffi::c_int;

use super::Socket;
use crate::card_time::Conversion;
use crate::errno::Errno;
use crate::params;
use crate::process::Offload;

const TIMESTAMPING: c_int = 37;
const TIMESTAMP_NEW: c_int = 63;
const TIMESTAMPNS_NEW: c_int = 64;
const TIMESTAMPING_NEW: c_int = 65;
/// Times of what is sent (SOF_TIMESTAMPING_TX_HARDWARE and _TX_SOFTWARE).
const SENT: c_int = 1 | 2;
/// Times that hardware took of what is received, and below that software took, and that they are told (SOF_TIMESTAMPING_RX_HARDWARE, SOF_TIMESTAMPING_RAW_HARDWARE).
const BY_HARDWARE: c_int = 4 | 64;
const RECEIVED: c_int = 8 | 16;

/// Whether an option is one of these.
pub(super) const fn concerns(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET
        && (matches!(name, libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | TIMESTAMP_NEW | TIMESTAMPNS_NEW) || is_timestamping(level, name))
}

/// Whether it is SO_TIMESTAMPING, in one of its forms.
pub(super) const fn is_timestamping(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && matches!(name, TIMESTAMPING | TIMESTAMPING_NEW)
}

/// Whether the kernel is to take some of the times that SO_TIMESTAMPING asks for: those of what is sent; and those of hardware, where there is no card.
///
/// # Errors
/// EPERM: a card's, which are not told (VMA_HW_TS_CONVERSION).
pub(super) fn are_kernels(offload: &Offload, asked: c_int) -> Result<bool, Errno> {
    let by_hardware = asked & BY_HARDWARE != 0;
    let by_card = by_hardware && offload.has_card_time();
    if by_card && params::read().hw_ts_conversion == Conversion::Off {
        return Err(Errno(libc::EPERM));
    }
    Ok(asked & SENT != 0 || by_hardware && !by_card)
}

/// Notes what a socket is to tell, by one of these options.
pub(super) fn note(socket: &mut Socket, name: c_int, value: c_int) {
    let told = &mut socket.ancillary;
    if is_timestamping(libc::SOL_SOCKET, name) {
        let wants = |flags| value & flags == flags;
        (told.software_times, told.hardware_times) = (wants(RECEIVED), wants(BY_HARDWARE));
        told.timestamping = if told.software_times || told.hardware_times { name } else { 0 };
    } else {
        told.timestamp = if value != 0 { name } else { 0 };
    }
    socket.tcp.arrival_times = told.tells_times();
}
