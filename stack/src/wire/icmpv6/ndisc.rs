//! Neighbour discovery's messages (RFC 4861 s4) over Ethernet (RFC 2464), with the checks that come before any of them is believed.

use core::net::Ipv6Addr;
use core::time::Duration;

use super::super::{be16, ipv6};
use crate::addr::MacAddr;

mod options;

pub use self::options::{Opt, Options, OptionsBuf, Prefix};

/// The hop limit that every message has: no router lets one pass, so that it comes from the link (RFC 4861 s3.1).
pub const HOP_LIMIT: u8 = 255;
/// The most bytes that [`Message::emit_packet`] writes for a solicitation or advertisement of a neighbour with what [`OptionsBuf`] holds.
pub const NEIGHBOR_PACKET_MAX: usize = ipv6::LEN + super::LEN + 16 + OptionsBuf::LEN_MAX;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// The type of [`Message::Redirect`].
pub(super) const REDIRECT: u8 = 137;

/// Why a message is none to believe. It is dropped without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is of another type: not neighbour discovery's at all.
    #[error("not neighbour discovery")]
    Kind,
    /// It passed a router, or was never on this link.
    #[error("the hop limit is not 255")]
    HopLimit,
    /// Its code is not zero.
    #[error("the code is not zero")]
    Code,
    /// It is shorter than its type is, or than its options say.
    #[error("truncated")]
    Truncated,
    /// An option that is empty, and would be so for ever.
    #[error("an option of length zero")]
    Option,
    /// It is about a group, or about a router that is none.
    #[error("wrong target")]
    Target,
    /// It comes from whom it may not come from.
    #[error("wrong source")]
    Source,
    /// It goes to whom it may not go to.
    #[error("wrong destination")]
    Destination,
}

/// What a router tells hosts (RFC 4861 s4.2). Zero in the first and the last three: it doesn't say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router {
    /// The hop limit to send with.
    pub hop_limit: u8,
    /// All flags: managed addresses 0x80, other configuration 0x40, and a preference in 0x18 (RFC 4191 s2.2).
    pub flags: u8,
    /// For how long it serves as a default router; zero: it doesn't.
    pub lifetime: Duration,
    /// For how long a neighbour counts as reachable, with whole milliseconds.
    pub reachable: Duration,
    /// How long to wait between solicitations, with whole milliseconds.
    pub retransmit: Duration,
}

/// A message of neighbour discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Which routers are there?
    RouterSolicitation {
        /// May have: source link-layer address.
        options: Options<'a>,
    },
    /// I am a router.
    RouterAdvertisement {
        /// What it says.
        router: Router,
        /// May have: source link-layer address, MTU, prefixes, and much more.
        options: Options<'a>,
    },
    /// Who has this address?
    NeighborSolicitation {
        /// The address. Invariant after parsing: no group.
        target: Ipv6Addr,
        /// May have: source link-layer address, and a nonce (RFC 7527).
        options: Options<'a>,
    },
    /// I have this address.
    NeighborAdvertisement {
        /// The address. Invariant after parsing: no group.
        target: Ipv6Addr,
        /// Its sender is a router.
        router: bool,
        /// It answers a solicitation that went to it alone or came from a real address.
        solicited: bool,
        /// What was known before is to give way.
        overriding: bool,
        /// May have: target link-layer address.
        options: Options<'a>,
    },
    /// There is a better way.
    Redirect {
        /// The better first hop. Invariant after parsing: link-local (a router), or the destination (it is on the link).
        target: Ipv6Addr,
        /// Where to. Invariant after parsing: no group.
        destination: Ipv6Addr,
        /// May have: target link-layer address, and the packet that was redirected.
        options: Options<'a>,
    },
}

impl<'a> Message<'a> {
    /// Reads the message that is all of `bytes`, and came in a packet with `header`. The checksum is the caller's to check before; so is,
    /// for a redirect, that it comes from the router that is in use (RFC 4861 s8.1).
    ///
    /// # Errors
    /// Every variant of [`Invalid`]; [`Invalid::Kind`] before all others.
    pub fn parse(header: &ipv6::Header, bytes: &'a [u8]) -> Result<Self, Invalid> {
        let &[kind, code, _, _, a, b, c, d] = bytes.first_chunk().ok_or(Invalid::Truncated)?;
        if !(ROUTER_SOLICITATION..=REDIRECT).contains(&kind) {
            return Err(Invalid::Kind);
        }
        // RFC 4861 s6.1.1, s6.1.2, s7.1.1, s7.1.2, s8.1 begin alike.
        if header.hop_limit != HOP_LIMIT {
            return Err(Invalid::HopLimit);
        }
        if code != 0 {
            return Err(Invalid::Code);
        }
        let rest = &bytes[8..];
        let message = match kind {
            ROUTER_SOLICITATION => Self::RouterSolicitation { options: Options::parse(rest)? },
            ROUTER_ADVERTISEMENT => {
                let (&[r0, r1, r2, r3, t0, t1, t2, t3], options) = rest.split_first_chunk().ok_or(Invalid::Truncated)?;
                let millis = |bytes| Duration::from_millis(u32::from_be_bytes(bytes).into());
                let router = Router {
                    hop_limit: a,
                    flags: b,
                    lifetime: Duration::from_secs(be16(c, d).into()),
                    reachable: millis([r0, r1, r2, r3]),
                    retransmit: millis([t0, t1, t2, t3]),
                };
                Self::RouterAdvertisement { router, options: Options::parse(options)? }
            }
            NEIGHBOR_SOLICITATION => {
                let (target, options) = address(rest)?;
                Self::NeighborSolicitation { target, options: Options::parse(options)? }
            }
            NEIGHBOR_ADVERTISEMENT => {
                let (target, options) = address(rest)?;
                let [router, solicited, overriding] = [0x80, 0x40, 0x20].map(|flag| a & flag != 0);
                Self::NeighborAdvertisement { target, router, solicited, overriding, options: Options::parse(options)? }
            }
            _ => {
                let (target, rest) = address(rest)?;
                let (destination, options) = address(rest)?;
                Self::Redirect { target, destination, options: Options::parse(options)? }
            }
        };
        message.check(header)?;
        Ok(message)
    }

    /// What else those sections ask for, by type.
    fn check(&self, header: &ipv6::Header) -> Result<(), Invalid> {
        let says_source = |options: &Options<'_>| options.source().is_some();
        match self {
            // s6.1.1: who has no address yet has none to tell.
            Self::RouterSolicitation { options } if header.src.is_unspecified() && says_source(options) => Err(Invalid::Source),
            // s6.1.2, s8.1: routers speak from link-local addresses, so that hosts can tell them apart.
            Self::RouterAdvertisement { .. } | Self::Redirect { .. } if !header.src.is_unicast_link_local() => Err(Invalid::Source),
            // s7.1.1, s7.1.2: a group has no one link-layer address.
            Self::NeighborSolicitation { target, .. } | Self::NeighborAdvertisement { target, .. } if target.is_multicast() => {
                Err(Invalid::Target)
            }
            Self::NeighborSolicitation { target, options } if header.src.is_unspecified() => {
                if header.dst != ipv6::solicited_node(*target) {
                    Err(Invalid::Destination)
                } else if says_source(options) {
                    Err(Invalid::Source)
                } else {
                    Ok(())
                }
            }
            // s7.1.2: nobody solicits for all.
            Self::NeighborAdvertisement { solicited: true, .. } if header.dst.is_multicast() => Err(Invalid::Destination),
            Self::Redirect { destination, .. } if destination.is_multicast() => Err(Invalid::Destination),
            Self::Redirect { target, destination, .. } if target != destination && !target.is_unicast_link_local() => Err(Invalid::Target),
            _ => Ok(()),
        }
    }

    /// What follows the message's fixed part.
    pub const fn options(&self) -> Options<'a> {
        match *self {
            Self::RouterSolicitation { options }
            | Self::RouterAdvertisement { options, .. }
            | Self::NeighborSolicitation { options, .. }
            | Self::NeighborAdvertisement { options, .. }
            | Self::Redirect { options, .. } => options,
        }
    }

    /// Bytes of the message.
    pub fn len(&self) -> usize {
        let fixed = match self {
            Self::RouterSolicitation { .. } => 0,
            Self::RouterAdvertisement { .. } => 8,
            Self::NeighborSolicitation { .. } | Self::NeighborAdvertisement { .. } => 16,
            Self::Redirect { .. } => 32,
        };
        super::LEN + fixed + self.options().as_bytes().len()
    }

    /// Never: a message has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the packet, IPv6 header and all, to the front of `out`, which must have room for it ([`ipv6::LEN`] more than the message's
    /// [`Message::len`]), and gives its length.
    pub fn emit_packet(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> usize {
        let len = self.emit((src, dst), &mut out[ipv6::LEN..]);
        super::emit_header((src, dst), HOP_LIMIT, len, out) + len
    }

    fn emit(&self, addresses: (Ipv6Addr, Ipv6Addr), out: &mut [u8]) -> usize {
        let millis = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).to_be_bytes();
        let mut word = [0; 4];
        let mut fixed = [0; 32];
        let (kind, fixed): (u8, &[u8]) = match *self {
            Self::RouterSolicitation { .. } => (ROUTER_SOLICITATION, &[]),
            Self::RouterAdvertisement { router, .. } => {
                let lifetime = u16::try_from(router.lifetime.as_secs()).unwrap_or(u16::MAX);
                word[..2].copy_from_slice(&[router.hop_limit, router.flags]);
                word[2..].copy_from_slice(&lifetime.to_be_bytes());
                fixed[..4].copy_from_slice(&millis(router.reachable));
                fixed[4..8].copy_from_slice(&millis(router.retransmit));
                (ROUTER_ADVERTISEMENT, &fixed[..8])
            }
            Self::NeighborSolicitation { target, .. } => {
                fixed[..16].copy_from_slice(&target.octets());
                (NEIGHBOR_SOLICITATION, &fixed[..16])
            }
            Self::NeighborAdvertisement { target, router, solicited, overriding, .. } => {
                word[0] = u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(overriding) << 5;
                fixed[..16].copy_from_slice(&target.octets());
                (NEIGHBOR_ADVERTISEMENT, &fixed[..16])
            }
            Self::Redirect { target, destination, .. } => {
                fixed[..16].copy_from_slice(&target.octets());
                fixed[16..].copy_from_slice(&destination.octets());
                (REDIRECT, &fixed)
            }
        };
        let options = self.options().as_bytes();
        let at = super::LEN + fixed.len();
        let len = self.len();
        out[..4].copy_from_slice(&[kind, 0, 0, 0]);
        out[4..super::LEN].copy_from_slice(&word);
        out[super::LEN..at].copy_from_slice(fixed);
        out[at..len].copy_from_slice(options);
        super::fill_checksum(addresses, &mut out[..len]);
        len
    }
}

/// The address at the front of `bytes`, and what follows it.
fn address(bytes: &[u8]) -> Result<(Ipv6Addr, &[u8]), Invalid> {
    let (octets, rest) = bytes.split_first_chunk::<16>().ok_or(Invalid::Truncated)?;
    Ok((Ipv6Addr::from(*octets), rest))
}

/// The Ethernet address in an option's bytes. One of a group, or of nobody, is none that a neighbour can have.
fn unicast_mac(bytes: &[u8]) -> Option<MacAddr> {
    let mac = MacAddr(*bytes.first_chunk()?);
    (!mac.is_multicast() && mac != MacAddr([0; 6])).then_some(mac)
}
