//! What the kernel says of XDP on its interfaces: what their drivers can do (the generic netlink family `netdev`, Linux 6.3), and which AF_XDP sockets are on which of their queues
//! (sock_diag(7), CONFIG_XDP_SOCKETS_DIAG).

use std::io;

use super::Error;
use super::dump::Questions;
use super::monitor::attribute;
use super::parse::{Attributes, u32_of};

/// linux/genetlink.h: the family that knows the others' numbers, and how it is asked.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// linux/netdev.h.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XSK_FEATURES: u16 = 6;
/// XDP_PASS and XDP_REDIRECT in the driver; and AF_XDP without a copy.
const NATIVE: u64 = 1 << 0 | 1 << 1;
const ZERO_COPY: u64 = 1 << 3;
/// What it does in zero-copy mode to what it sends: when that left, its checksum, and when it is to leave.
const XSK_TX_TIMESTAMP: u64 = 1 << 0;
const XSK_TX_CHECKSUM: u64 = 1 << 1;
const XSK_TX_LAUNCH_TIME: u64 = 1 << 2;

/// linux/sock_diag.h and linux/xdp_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const XDP_SHOW_INFO: u32 = 1 << 0;
const XDP_SHOW_UMEM: u32 = 1 << 2;
const XDP_DIAG_INFO: u16 = 1;
const XDP_DIAG_UMEM: u16 = 5;
/// Where the flags are in `struct xdp_diag_umem`, and the one of zero-copy mode.
const UMEM_FLAGS: core::ops::Range<usize> = 32..36;
const XDP_DU_F_ZEROCOPY: u32 = 1 << 0;

/// How an interface's driver has XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The driver runs the program, and its frames lie in the ring's own memory.
    ZeroCopy,
    /// The driver runs the program, and the kernel copies what goes to a ring, or leaves by it.
    Native,
    /// The driver knows nothing of it: the kernel runs the program behind it, and copies as well.
    Generic,
}

/// What an interface's driver has for XDP, and for AF_XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpOffer {
    /// How it has XDP.
    pub mode: XdpMode,
    /// Whether it does these to what AF_XDP sends without a copy, where it is asked to (Documentation/networking/xsk-tx-metadata.rst; Linux 6.8, 6.14 for the last).
    pub send: SendOffer,
}

/// What a driver does to what it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOffer {
    /// Fills in the checksum.
    pub checksum: bool,
    /// Says when it left.
    pub timestamp: bool,
    /// Holds it back until a time that it is given.
    pub launch_time: bool,
}

/// An AF_XDP socket that is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpSocket {
    /// The index of the interface.
    pub interface: u32,
    /// Its queue.
    pub queue: u32,
    /// By which processes' descriptors are told: `socket:[…]` in `/proc/PID/fd`.
    pub inode: u32,
    /// Its frames lie in its own memory, without a copy.
    pub is_zero_copy: bool,
}

/// What the driver of the interface of that index has; `None`: the kernel does not say (before Linux 6.3).
///
/// # Errors
/// The system's: there is no socket of netlink to be had; no such interface.
pub fn xdp_offer(interface: u32) -> io::Result<Option<XdpOffer>> {
    Ok(features(interface)?.map(|[xdp, xsk]| XdpOffer { mode: mode_of(xdp), send: send_of(xsk) }))
}

/// Of XDP, and of AF_XDP.
fn features(interface: u32) -> io::Result<Option<[u64; 2]>> {
    const WHAT: &str = "XDP features";
    let mut questions = Questions::of(libc::NETLINK_GENERIC).map_err(io::Error::other)?;
    // `struct genlmsghdr`: command, version, and two bytes.
    let mut body = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
    attribute(&mut body, CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let family = questions.get(WHAT, GENL_ID_CTRL, &body, |answer| {
        let id = value(WHAT, answer.get(4..), CTRL_ATTR_FAMILY_ID)?;
        let id = id.and_then(|id| id.first_chunk().copied()).ok_or(Error::Malformed { what: WHAT })?;
        Ok(u16::from_ne_bytes(id))
    });
    let Ok(family) = family.map_err(io::Error::other)? else { return Ok(None) };
    let mut body = vec![NETDEV_CMD_DEV_GET, 1, 0, 0];
    attribute(&mut body, NETDEV_A_DEV_IFINDEX, &interface.to_ne_bytes());
    let features = questions.get(WHAT, family, &body, |answer| {
        let of = |kind| -> Result<u64, Error> {
            let features = value(WHAT, answer.get(4..), kind)?;
            Ok(features.and_then(|features| features.first_chunk().copied()).map_or(0, u64::from_ne_bytes))
        };
        Ok([of(NETDEV_A_DEV_XDP_FEATURES)?, of(NETDEV_A_DEV_XSK_FEATURES)?])
    });
    let features = features.map_err(io::Error::other)?.map_err(io::Error::from_raw_os_error)?;
    Ok(Some(features))
}

const fn mode_of(features: u64) -> XdpMode {
    match features {
        _ if features & NATIVE != NATIVE => XdpMode::Generic,
        _ if features & ZERO_COPY == 0 => XdpMode::Native,
        _ => XdpMode::ZeroCopy,
    }
}

const fn send_of(features: u64) -> SendOffer {
    SendOffer {
        checksum: features & XSK_TX_CHECKSUM != 0,
        timestamp: features & XSK_TX_TIMESTAMP != 0,
        launch_time: features & XSK_TX_LAUNCH_TIME != 0,
    }
}

/// All AF_XDP sockets of the calling thread's network namespace that are bound; `None`: the kernel does not say.
///
/// # Errors
/// The system's: there is no socket of netlink to be had.
pub fn xdp_sockets() -> io::Result<Option<Vec<XdpSocket>>> {
    const WHAT: &str = "AF_XDP sockets";
    let mut questions = Questions::of(libc::NETLINK_SOCK_DIAG).map_err(io::Error::other)?;
    // `struct xdp_diag_req`: family, protocol, two bytes, inode, what is shown, and a cookie.
    let mut body = vec![libc::AF_XDP as u8, 0, 0, 0, 0, 0, 0, 0];
    body.extend((XDP_SHOW_INFO | XDP_SHOW_UMEM).to_ne_bytes());
    body.extend([0; 8]);
    let listed = questions.dump(WHAT, SOCK_DIAG_BY_FAMILY, &body, |answer| {
        // `struct xdp_diag_msg`: family, type, two bytes, inode, and a cookie. (Of one that is not bound there is no more.)
        let (Some(inode), Some(info)) = (answer.get(4..8), value(WHAT, answer.get(16..), XDP_DIAG_INFO)?) else { return Ok(None) };
        let [interface, queue] = [info.get(..4), info.get(4..8)].map(|word| u32_of(WHAT, word.unwrap_or_default()));
        let umem = value(WHAT, answer.get(16..), XDP_DIAG_UMEM)?;
        let flags = umem.and_then(|umem| umem.get(UMEM_FLAGS)).map_or(Ok(0), |flags| u32_of(WHAT, flags))?;
        let is_zero_copy = flags & XDP_DU_F_ZEROCOPY != 0;
        Ok(Some(XdpSocket { interface: interface?, queue: queue?, inode: u32_of(WHAT, inode)?, is_zero_copy }))
    });
    match listed {
        Ok(listed) => Ok(listed),
        // (No such module: sock_diag_rcv_msg.)
        Err(Error::Ask { error, .. }) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn value<'a>(what: &'static str, attributes: Option<&'a [u8]>, wanted: u16) -> Result<Option<&'a [u8]>, Error> {
    for attribute in Attributes::new(what, attributes.ok_or(Error::Malformed { what })?) {
        let (kind, value) = attribute?;
        if kind == wanted {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drivers_features_say_its_mode() {
        assert_eq!([0, 1, 2, 8].map(mode_of), [XdpMode::Generic; 4]);
        assert_eq!([3, 0x23].map(mode_of), [XdpMode::Native; 2], "veth's");
        assert_eq!([0x0b, 0x7f].map(mode_of), [XdpMode::ZeroCopy; 2]);
    }

    #[test]
    fn a_drivers_features_say_what_it_does_to_what_it_sends() {
        let each = |checksum, timestamp, launch_time| SendOffer { checksum, timestamp, launch_time };
        assert_eq!(
            [0, 1, 2, 4, 7].map(send_of),
            [
                each(false, false, false),
                each(false, true, false),
                each(true, false, false),
                each(false, false, true),
                each(true, true, true)
            ]
        );
    }

    #[test]
    fn the_kernel_is_asked_in_its_own_words() {
        // (The loopback has no driver with XDP, where the kernel says so.)
        let none = XdpOffer { mode: XdpMode::Generic, send: SendOffer::default() };
        assert!(xdp_offer(1).unwrap().is_none_or(|offer| offer == none));
        assert!(xdp_offer(u32::MAX >> 1).is_err() || xdp_offer(1).unwrap().is_none());
        xdp_sockets().unwrap();
    }
}
