//! SO_MAX_PACING_RATE of connections: kept by the device, where it paces flows, and else by the ring. (A rate of a UDP socket only a device keeps, as on Linux
//! only a queueing discipline does.)

use core::ffi::c_int;
use core::mem::size_of;

use libc::socklen_t;
use ringway_stack::Error;
use ringway_stack::device::{Pacing, Protocol};

use super::flows::now;
use super::{Kind, common};
use crate::errno::Errno;
use crate::process::{Offload, Process};
use crate::slab::Key;

/// `vma_rate_limit_t`'s length, and those of Linux's own forms of the option: since 5.0 an unsigned long as well.
pub(crate) const RATE_VMA: usize = 12;
const RATE_INT: usize = 4;
const RATE_LONG: usize = 8;

/// What an option's bytes say. `None`: they are of no form that it has.
pub(crate) fn parse(bytes: &[u8]) -> Option<Pacing> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    // (All ones lift the limit: socket(7).)
    let bytes_per_second =
        |rate: u64, most: u64| Pacing { rate_bps: if rate == most { 0 } else { rate.saturating_mul(8) }, ..Pacing::UNLIMITED };
    match bytes.len() {
        RATE_INT => Some(bytes_per_second(word(0)?.into(), u32::MAX.into())),
        RATE_LONG => Some(bytes_per_second(u64::from_ne_bytes(bytes.try_into().ok()?), u64::MAX)),
        RATE_VMA => Some(Pacing {
            rate_bps: u64::from(word(0)?) * 1000,
            burst_bytes: word(4)?,
            typical_packet_bytes: u16::from_ne_bytes([bytes[8], bytes[9]]),
        }),
        _ => None,
    }
}

/// The same in the kernel's longer form.
pub(crate) fn in_kernels_form(rate: Pacing) -> u64 {
    if rate.rate_bps == 0 { u64::MAX } else { rate.rate_bps / 8 }
}

/// A rate was set in a form that the kernel does not know: it is to show it, and to keep it should the connection become its own.
pub(crate) fn tell_kernel(process: &Process, fd: c_int, key: Key) {
    let rate = process.lock().sockets.find(key).and_then(|socket| socket.rare.as_ref()?.rate).unwrap_or(Pacing::UNLIMITED);
    let bytes_per_second = in_kernels_form(rate);
    let option = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
    let len = size_of::<u64>() as socklen_t;
    // SAFETY: the value is as long as it says.
    if let Err(Errno(error)) = unsafe { common::set_of_placeholder(process, (fd, key), option, (&raw const bytes_per_second).cast(), len) }
    {
        tracing::debug!("the kernel does not know of a rate: {}", std::io::Error::from_raw_os_error(error));
    }
}

impl Offload {
    /// A socket has that rate from now on, and what it accepts.
    ///
    /// # Errors
    /// EBADF; EOPNOTSUPP, ENOBUFS: a device's that keeps the rates of its flows.
    pub(crate) fn pace(&mut self, key: Key, rate: Pacing) -> Result<(), Errno> {
        let socket = self.sockets.find_mut(key).ok_or(Errno(libc::EBADF))?;
        if rate.rate_bps > 0 || socket.rare.is_some() {
            socket.rare().rate = Some(rate).filter(|rate| rate.rate_bps > 0);
        }
        let paced = match socket.kind {
            Kind::Connecting(flow) | Kind::Stream(flow) => self.rings.of_mut(flow).set_rate(now(), flow, rate),
            _ => Ok(()),
        };
        self.dispatch();
        paced.map_err(|error| if error == Error::NotSupported { Errno(libc::EOPNOTSUPP) } else { Errno::from(error) })
    }

    /// A connection has begun: it has its socket's rate.
    pub(crate) fn begin_pacing(&mut self, key: Key) {
        let Some(rate) = self.sockets.find(key).and_then(|socket| socket.rare.as_ref()?.rate) else { return };
        if let Err(Errno(error)) = self.pace(key, rate) {
            tracing::warn!("SO_MAX_PACING_RATE: a connection has no rate: {}", std::io::Error::from_raw_os_error(error));
        }
    }
}

/// Whether a socket's rate is kept, once it has one.
pub(crate) fn is_kept(protocol: Protocol, device_paces: bool) -> bool {
    protocol == Protocol::Tcp || device_paces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_says_bits_a_second() {
        let plain = |rate_bps| Some(Pacing { rate_bps, ..Pacing::UNLIMITED });
        assert_eq!(parse(&1_000_u32.to_ne_bytes()), plain(8_000));
        assert_eq!(parse(&5_000_000_000_u64.to_ne_bytes()), plain(40_000_000_000));
        assert_eq!((parse(&[0xff; 4]), parse(&[0xff; 8])), (Some(Pacing::UNLIMITED), Some(Pacing::UNLIMITED)));
        let mut long = Vec::new();
        long.extend(2_000_u32.to_ne_bytes());
        long.extend(1_500_u32.to_ne_bytes());
        long.extend(700_u16.to_ne_bytes());
        long.extend([0; 2]);
        let rate = Pacing { rate_bps: 2_000_000, burst_bytes: 1_500, typical_packet_bytes: 700 };
        assert_eq!((parse(&long), in_kernels_form(rate), in_kernels_form(Pacing::UNLIMITED)), (Some(rate), 250_000, u64::MAX));
        assert!([0, 3, 5, 11, 13].iter().all(|&len| parse(&vec![1; len]).is_none()));
    }
}
