//! Extension headers (RFC 8200 s4): the walk from an IPv6 header to its upper layer, and what to answer where it ends early.
//!
//! A chain is as long as its sender likes, so that there are limits (RFC 8504 s5.3): [`HEADERS_MAX`] headers, [`OPTIONS_MAX`] options and
//! [`PADDING_MAX`] bytes of padding together in each. Jumbograms (RFC 2675) are refused as any option that is not known.

use super::super::{be16, first, ipv4, udp};
use super::{Header, LEN, PROTOCOL_ICMPV6};

/// Options for every node on the way.
pub const HOP_BY_HOP: u8 = 0;
/// A route that the sender chose.
pub const ROUTING: u8 = 43;
/// A part of a packet only.
pub const FRAGMENT: u8 = 44;
/// Options for the destination.
pub const DESTINATION_OPTIONS: u8 = 60;

/// Extension headers of one packet: each kind once and destination options twice (RFC 8200 s4.1), and as many again for kinds to come.
pub const HEADERS_MAX: usize = 10;
/// Options of one header, padding apart: Linux's max_hbh_opts_number and max_dst_opts_number.
pub const OPTIONS_MAX: usize = 8;
/// Bytes of padding in a row; more align nothing (RFC 8504 s5.3).
pub const PADDING_MAX: usize = 7;

/// [`Problem::code`]: a field has a value that it may not have (RFC 4443 s3.4).
pub const CODE_ERRONEOUS_FIELD: u8 = 0;
/// [`Problem::code`]: nobody knows that protocol (RFC 4443 s3.4).
pub const CODE_UNRECOGNIZED_NEXT_HEADER: u8 = 1;
/// [`Problem::code`]: nobody knows that option, and it does not want to be passed over (RFC 4443 s3.4).
pub const CODE_UNRECOGNIZED_OPTION: u8 = 2;
/// [`Problem::code`]: a first fragment without all headers (RFC 7112 s5).
pub const CODE_INCOMPLETE_CHAIN: u8 = 3;

const PAD1: u8 = 0;
const PADN: u8 = 1;
const ROUTER_ALERT: u8 = 5;

/// Where a packet's payload length and a packet's end are (RFC 8200 s4.5).
const PAYLOAD_LEN_AT: u32 = 4;
const NEXT_HEADER_AT: usize = 6;
const PACKET_MAX: usize = 65_535;

/// What an ICMPv6 parameter problem is to say (RFC 4443 s3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which problem.
    pub code: u8,
    /// The offset of the octet at fault, from the IPv6 header's first.
    pub pointer: u32,
}

impl Problem {
    const fn new(code: u8, pointer: u32) -> Self {
        Self { code, pointer }
    }
}

/// Why a chain leads to no upper layer. The packet is dropped; only [`ChainError::Problem`] is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The bytes end before the chain does.
    #[error("the extension headers are cut off")]
    Truncated,
    /// The sender was too generous: see the module's limits.
    #[error("too many extension headers, options or bytes of padding")]
    TooMany,
    /// Headers or options that contradict themselves or each other.
    #[error("malformed extension header")]
    Malformed,
    /// An option that is not known says that the packet is to be dropped without a word (RFC 8200 s4.2).
    #[error("an unknown option asks for the packet to be discarded")]
    Discard,
    /// The sender is to be told.
    #[error("parameter problem {} at {}", .0.code, .0.pointer)]
    Problem(Problem),
}

/// A fragment header (RFC 8200 s4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// What the packet has behind it.
    pub next_header: u8,
    /// Where this fragment's bytes belong, in bytes; a multiple of 8.
    pub offset: u16,
    /// More fragments follow this one.
    pub more: bool,
    /// Groups the fragments of one packet.
    pub id: u32,
}

impl Fragment {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Whether it has a packet's beginning: its headers and ports.
    #[inline]
    pub const fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Whether it is all of its packet, which waits for no others (RFC 6946 s4).
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Reads the header at the front of `bytes`.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let &[next_header, _, o0, o1, i0, i1, i2, i3] = bytes.first_chunk()?;
        let field = be16(o0, o1);
        Some(Self { next_header, offset: field & !7, more: field & 1 == 1, id: u32::from_be_bytes([i0, i1, i2, i3]) })
    }

    /// Writes the header to the front of `out`, which must have room for [`Fragment::LEN`] bytes.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let field = self.offset & !7 | u16::from(self.more);
        out[..2].copy_from_slice(&[self.next_header, 0]);
        out[2..4].copy_from_slice(&field.to_be_bytes());
        out[4..8].copy_from_slice(&self.id.to_be_bytes());
        Self::LEN
    }
}

/// What a packet carries, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    /// The upper layer's protocol, or [`super::NO_NEXT_HEADER`].
    pub protocol: u8,
    /// Where it begins: bytes from the IPv6 header's first. Invariant: no more than the packet's length.
    pub at: usize,
    /// Where its protocol is named.
    pub named_at: usize,
    /// It is a part of a packet. If not the first one, then what is at `at` is the upper layer's continuation, or what comes before it.
    pub fragment: Option<Fragment>,
    /// Routers on the way are to look at it, for this reason: 0 is MLD (RFC 2711 s2.1).
    pub router_alert: Option<u16>,
}

impl Upper {
    /// Whether all of the packet's upper layer is here.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.fragment.is_none_or(|fragment| fragment.is_atomic())
    }

    /// What to answer if the protocol is none that we know.
    pub const fn unrecognized(&self) -> Problem {
        Problem::new(CODE_UNRECOGNIZED_NEXT_HEADER, self.named_at as u32)
    }
}

/// The way from a header to its upper layer. `head` begins with the header that `header` was read from, and has all headers of the packet;
/// of what they carry as much as there is.
///
/// # Errors
/// Every variant of [`ChainError`].
pub fn walk(header: &Header, head: &[u8]) -> Result<Upper, ChainError> {
    let mut upper = Upper { protocol: header.next_header, at: LEN, named_at: NEXT_HEADER_AT, fragment: None, router_alert: None };
    // RFC 2675 s3: this is how a jumbogram begins. Its option is not known here, and it is told so (s4); whatever else says that it is empty is cut off.
    let claims_jumbo = header.payload_len == 0 && header.next_header == HOP_BY_HOP;
    let end = if claims_jumbo { head.len() } else { LEN + usize::from(header.payload_len) };
    for _ in 0..=HEADERS_MAX {
        let kind = upper.protocol;
        // RFC 8200 s4: a zero that is not the first is none that anybody knows.
        let is_misplaced = kind == HOP_BY_HOP && upper.named_at != NEXT_HEADER_AT;
        if is_misplaced {
            return Err(ChainError::Problem(upper.unrecognized()));
        }
        if !is_extension(kind) {
            return finish(upper, end);
        }
        let incomplete = if upper.fragment.is_some_and(|fragment| fragment.more) { INCOMPLETE } else { ChainError::Truncated };
        let at = upper.at;
        if at + 8 > end {
            return Err(incomplete);
        }
        let fixed: &[u8; 8] = head.get(at..).and_then(|rest| rest.first_chunk()).ok_or(ChainError::Truncated)?;
        let len = len(kind, fixed);
        if at + len > end {
            return Err(incomplete);
        }
        let bytes = head.get(at..at + len).ok_or(ChainError::Truncated)?;
        match kind {
            HOP_BY_HOP | DESTINATION_OPTIONS => {
                let alert = options(header, kind, bytes, at)?;
                upper.router_alert = upper.router_alert.or(alert);
            }
            ROUTING => routing(fixed, at)?,
            _ => {
                if upper.fragment.is_some() {
                    return Err(ChainError::Malformed);
                }
                upper.fragment = Some(fragment(bytes, at, end)?);
            }
        }
        (upper.protocol, upper.named_at, upper.at) = (fixed[0], at, at + len);
        if claims_jumbo {
            return Err(ChainError::Truncated);
        }
        if upper.fragment.is_some_and(|fragment| !fragment.is_first()) {
            return Ok(upper);
        }
    }
    Err(ChainError::TooMany)
}

const INCOMPLETE: ChainError = ChainError::Problem(Problem::new(CODE_INCOMPLETE_CHAIN, 0));

/// RFC 7112 s5: a first fragment has the upper layer's header, too.
fn finish(upper: Upper, end: usize) -> Result<Upper, ChainError> {
    let needs = match upper.protocol {
        ipv4::PROTOCOL_TCP => 20,
        ipv4::PROTOCOL_UDP => udp::LEN,
        PROTOCOL_ICMPV6 => 8,
        _ => 0,
    };
    if upper.fragment.is_some_and(|fragment| fragment.more) && upper.at + needs > end {
        return Err(INCOMPLETE);
    }
    Ok(upper)
}

/// The protocol and the first 8 bytes of the upper layer of a packet that came back to its sender, cut off somewhere.
pub(in crate::wire) fn upper_of_quoted(header: &Header, packet: &[u8]) -> Option<(u8, [u8; 8])> {
    let (protocol, at) = skip(header, packet)?;
    Some((protocol, *first(packet.get(at?..)?).ok()?))
}

/// The protocol of a packet's upper layer, and where it begins if that is in this packet at all, whatever its headers ask for. `None`: they
/// are cut off, or too many.
pub(in crate::wire) fn skip(header: &Header, packet: &[u8]) -> Option<(u8, Option<usize>)> {
    let (mut protocol, mut at) = (header.next_header, LEN);
    for _ in 0..=HEADERS_MAX {
        if !is_extension(protocol) {
            return Some((protocol, Some(at)));
        }
        let fixed: &[u8; 8] = first(packet.get(at..)?).ok()?;
        if protocol == FRAGMENT && !Fragment::parse(fixed)?.is_first() {
            return Some((fixed[0], None));
        }
        (protocol, at) = (fixed[0], at + len(protocol, fixed));
    }
    None
}

const fn is_extension(kind: u8) -> bool {
    matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS)
}

/// The length of an extension header that begins with `fixed`.
const fn len(kind: u8, fixed: &[u8; 8]) -> usize {
    if kind == FRAGMENT { Fragment::LEN } else { (fixed[1] as usize + 1) * 8 }
}

/// RFC 8200 s4.4, and RFC 5095: no type of routing is known here. One that has reached its end is none of our business.
fn routing(fixed: &[u8; 8], at: usize) -> Result<(), ChainError> {
    let segments_left = fixed[3];
    if segments_left == 0 { Ok(()) } else { Err(ChainError::Problem(Problem::new(CODE_ERRONEOUS_FIELD, at as u32 + 2))) }
}

/// RFC 8200 s4.5: all but the last fragment carry a multiple of 8 bytes, and none carries bytes that no packet has.
fn fragment(bytes: &[u8], at: usize, end: usize) -> Result<Fragment, ChainError> {
    let fragment = Fragment::parse(bytes).ok_or(ChainError::Truncated)?;
    let len = end - at - Fragment::LEN;
    if fragment.more && !len.is_multiple_of(8) {
        return Err(ChainError::Problem(Problem::new(CODE_ERRONEOUS_FIELD, PAYLOAD_LEN_AT)));
    }
    // (The headers before it count, too, and are in every fragment.)
    if at - LEN + usize::from(fragment.offset) + len > PACKET_MAX {
        return Err(ChainError::Problem(Problem::new(CODE_ERRONEOUS_FIELD, at as u32 + 2)));
    }
    Ok(fragment)
}

/// Looks at every option of a header that lies `at` bytes into the packet; gives a router alert, if there is one.
fn options(header: &Header, kind: u8, bytes: &[u8], at: usize) -> Result<Option<u16>, ChainError> {
    let (mut alert, mut options, mut padding) = (None, 0, 0);
    let mut next = 2;
    while let Some(&option) = bytes.get(next) {
        if option == PAD1 {
            (padding, next) = (padding + 1, next + 1);
        } else {
            let len = usize::from(*bytes.get(next + 1).ok_or(ChainError::Malformed)?);
            let data = bytes.get(next + 2..next + 2 + len).ok_or(ChainError::Malformed)?;
            if option == PADN {
                padding += 2 + len;
            } else {
                (padding, options) = (0, options + 1);
            }
            match option {
                PADN => {}
                ROUTER_ALERT if kind == HOP_BY_HOP => {
                    let &value = data.first_chunk().filter(|_| len == 2).ok_or(ChainError::Malformed)?;
                    alert = alert.or(Some(u16::from_be_bytes(value)));
                }
                _ => unknown(header, option, at + next)?,
            }
            next += 2 + len;
        }
        if options > OPTIONS_MAX || padding > PADDING_MAX {
            return Err(ChainError::TooMany);
        }
    }
    Ok(alert)
}

/// RFC 8200 s4.2: an option's two highest bits say what to do where nobody knows it.
fn unknown(header: &Header, option: u8, at: usize) -> Result<(), ChainError> {
    let problem = Problem::new(CODE_UNRECOGNIZED_OPTION, at as u32);
    match option >> 6 {
        0b00 => Ok(()),
        0b10 => Err(ChainError::Problem(problem)),
        0b11 if !header.dst.is_multicast() => Err(ChainError::Problem(problem)),
        _ => Err(ChainError::Discard),
    }
}

/// Bytes of the hop-by-hop header that [`emit_router_alert`] writes.
pub const ROUTER_ALERT_LEN: usize = 8;

/// Writes a hop-by-hop header that asks routers on the way to look at the packet for the reason `value` (RFC 2711).
pub fn emit_router_alert(next_header: u8, value: u16, out: &mut [u8]) -> usize {
    let [high, low] = value.to_be_bytes();
    // Its own length counts units of 8 bytes beyond the first; two bytes of padding fill it up.
    out[..ROUTER_ALERT_LEN].copy_from_slice(&[next_header, 0, ROUTER_ALERT, 2, high, low, PADN, 0]);
    ROUTER_ALERT_LEN
}
