//! Options of neighbour discovery (RFC 4861 s4.6): read in place, written into a small buffer.

use core::net::Ipv6Addr;
use core::time::Duration;

use arrayvec::ArrayVec;

use super::{Invalid, unicast_mac};
use crate::addr::MacAddr;

const SOURCE: u8 = 1;
const TARGET: u8 = 2;
const PREFIX: u8 = 3;
const REDIRECTED: u8 = 4;
const MTU: u8 = 5;
const NONCE: u8 = 14;

/// Lengths count units of so many bytes.
const UNIT: usize = 8;

/// A prefix that a router announces (RFC 4861 s4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// How many of its bits count: at most 128.
    pub len: u8,
    /// Whose addresses are all on this link.
    pub on_link: bool,
    /// Hosts may make themselves addresses of it (RFC 4862 s5.5.3).
    pub autonomous: bool,
    /// For how long it is on the link; all ones in its 32 bits of seconds: for ever.
    pub valid: Duration,
    /// For how long its addresses are for new connections, too.
    pub preferred: Duration,
    /// The prefix; bits beyond its length are to be ignored.
    pub prefix: Ipv6Addr,
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opt<'a> {
    /// The sender's link-layer address.
    Source(MacAddr),
    /// The target's link-layer address.
    Target(MacAddr),
    /// A prefix.
    Prefix(Prefix),
    /// The packet that a redirect is about, cut off somewhere.
    Redirected(&'a [u8]),
    /// What all hosts of the link can receive, in bytes.
    Mtu(u32),
    /// Whose question it is, so that it knows it again (RFC 3971 s5.3.2, RFC 7527 s4.1).
    Nonce([u8; 6]),
    /// Anything else, and what has another length than its kind has on Ethernet: to be passed over (RFC 4861 s4.6).
    Other(u8),
}

/// A message's options. Invariant: their lengths add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// Walks `bytes` once.
    ///
    /// # Errors
    /// [`Invalid::Option`], [`Invalid::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let mut rest = bytes;
        while let Some(&unit) = rest.first_chunk::<UNIT>() {
            if unit[1] == 0 {
                return Err(Invalid::Option);
            }
            rest = rest.get(usize::from(unit[1]) * UNIT..).ok_or(Invalid::Truncated)?;
        }
        if rest.is_empty() { Ok(Self(bytes)) } else { Err(Invalid::Truncated) }
    }

    /// As they are on the wire.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The options in order.
    pub fn iter(&self) -> impl Iterator<Item = Opt<'a>> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let len = usize::from(*rest.get(1)?) * UNIT;
            let option;
            (option, rest) = rest.split_at_checked(len)?;
            Some(Opt::parse(option))
        })
    }

    /// The sender's link-layer address, if the options have one that a host can have.
    pub fn source(&self) -> Option<MacAddr> {
        self.iter().find_map(|option| if let Opt::Source(mac) = option { Some(mac) } else { None })
    }

    /// The target's link-layer address, likewise.
    pub fn target(&self) -> Option<MacAddr> {
        self.iter().find_map(|option| if let Opt::Target(mac) = option { Some(mac) } else { None })
    }

    /// The nonce, if there is one.
    pub fn nonce(&self) -> Option<[u8; 6]> {
        self.iter().find_map(|option| if let Opt::Nonce(nonce) = option { Some(nonce) } else { None })
    }
}

impl<'a> Opt<'a> {
    fn parse(option: &'a [u8]) -> Self {
        let kind = option.first().copied().unwrap_or_default();
        let data = option.get(2..).unwrap_or_default();
        let known = match (kind, option.len()) {
            (SOURCE, UNIT) => unicast_mac(data).map(Self::Source),
            (TARGET, UNIT) => unicast_mac(data).map(Self::Target),
            (MTU, UNIT) => data[2..].first_chunk().map(|mtu| Self::Mtu(u32::from_be_bytes(*mtu))),
            (NONCE, UNIT) => data.first_chunk().map(|nonce| Self::Nonce(*nonce)),
            (PREFIX, 32) => Prefix::parse(data).map(Self::Prefix),
            // (Six reserved bytes come first: RFC 4861 s4.6.3.)
            (REDIRECTED, _) => data.get(6..).map(Self::Redirected),
            _ => None,
        };
        known.unwrap_or(Self::Other(kind))
    }
}

impl Prefix {
    fn parse(data: &[u8]) -> Option<Self> {
        let seconds = |at: usize| Some(Duration::from_secs(u32::from_be_bytes(*data.get(at..)?.first_chunk()?).into()));
        let len = data[0];
        let prefix = Ipv6Addr::from(*data.get(14..)?.first_chunk::<16>()?);
        let (on_link, autonomous) = (data[1] & 0x80 != 0, data[1] & 0x40 != 0);
        (len <= 128).then_some(Self { len, on_link, autonomous, valid: seconds(2)?, preferred: seconds(6)?, prefix })
    }
}

/// Room for the options of what a host sends: a link-layer address and a nonce.
#[derive(Clone, Debug, Default)]
pub struct OptionsBuf(ArrayVec<u8, { Self::LEN_MAX }>);

impl OptionsBuf {
    /// The most bytes that fit.
    pub const LEN_MAX: usize = 2 * UNIT;

    /// Adds the sender's link-layer address. No more than two options fit; others are left out.
    #[must_use]
    pub fn source(self, mac: MacAddr) -> Self {
        self.add(SOURCE, mac.0)
    }

    /// Adds the target's link-layer address, likewise.
    #[must_use]
    pub fn target(self, mac: MacAddr) -> Self {
        self.add(TARGET, mac.0)
    }

    /// Adds a nonce, likewise.
    #[must_use]
    pub fn nonce(self, nonce: [u8; 6]) -> Self {
        self.add(NONCE, nonce)
    }

    fn add(mut self, kind: u8, data: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = data;
        // One unit of 8 bytes; a buffer that is full takes none of it.
        let _ = self.0.try_extend_from_slice(&[kind, 1, a, b, c, d, e, f]);
        self
    }

    /// What is in it.
    pub fn options(&self) -> Options<'_> {
        Options(&self.0)
    }
}
