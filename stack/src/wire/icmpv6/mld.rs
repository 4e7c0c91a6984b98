//! Multicast listener discovery's messages: version 2 (RFC 3810 s5) and version 1 (RFC 2710 s3), and the packets around them.

use core::net::Ipv6Addr;
use core::time::Duration;

use super::super::{be16, ipv6};
use crate::wire::ipv6::extension::{self, HOP_BY_HOP, ROUTER_ALERT_LEN};

/// The router alert's value (RFC 2711 s2.1).
pub const ROUTER_ALERT: u16 = 0;
/// Bytes of a packet before the message.
pub const HEADERS_LEN: usize = ipv6::LEN + ROUTER_ALERT_LEN;
/// Bytes of a report before its records.
pub const REPORT_LEN: usize = 8;
/// Bytes of a record before its sources.
pub const RECORD_LEN: usize = 20;

/// Bytes of a message of version 1, and of a query of version 2 without sources.
const V1_LEN: usize = 24;
const QUERY_V2_LEN: usize = 28;

const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const DONE: u8 = 132;
const REPORT_V2: u8 = 143;

/// Whether a message of that type is listener discovery's.
pub const fn is_kind(kind: u8) -> bool {
    matches!(kind, QUERY | REPORT_V1 | DONE | REPORT_V2)
}

/// Why a message is none to believe. It is dropped without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is of another type: not listener discovery's at all.
    #[error("not multicast listener discovery")]
    Kind,
    /// It is shorter than its type is, or than its counts say.
    #[error("truncated")]
    Truncated,
    /// It comes from no link-local address, has passed a router, or has no router alert (RFC 3810 s5.1.14, s6.2).
    #[error("not from a node of this link")]
    Stranger,
    /// It is about something that is no group.
    #[error("not about a group")]
    Group,
}

/// What only queries of version 2 have (RFC 3810 s5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryV2<'a> {
    /// Routers that hear it are not to prepare for the group's end.
    pub suppress: bool,
    /// The querier's robustness variable; zero: it is more than 7.
    pub robustness: u8,
    /// How often it asks.
    pub interval: Duration,
    /// The sources asked for, which are none if all are.
    pub sources: Sources<'a>,
}

/// What a record tells (RFC 3810 s5.2.12): the state, or how it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// These sources are listened to.
    IsInclude,
    /// All sources but these are listened to.
    IsExclude,
    /// From now on these sources are listened to.
    ToInclude,
    /// From now on all sources but these are listened to.
    ToExclude,
    /// These sources are listened to, too.
    Allow,
    /// These sources are listened to no longer.
    Block,
    /// A kind that had no meaning when this was written.
    Other(u8),
}

impl RecordKind {
    const KNOWN: [Self; 6] = [Self::IsInclude, Self::IsExclude, Self::ToInclude, Self::ToExclude, Self::Allow, Self::Block];

    fn from_code(code: u8) -> Self {
        usize::from(code).checked_sub(1).and_then(|at| Self::KNOWN.get(at)).copied().unwrap_or(Self::Other(code))
    }

    fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            known => Self::KNOWN.iter().position(|&kind| kind == known).unwrap_or_default() as u8 + 1,
        }
    }
}

/// A record of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it tells.
    pub kind: RecordKind,
    /// About which group.
    pub group: Ipv6Addr,
    /// And which sources.
    pub sources: Sources<'a>,
}

/// Addresses of sources. Invariant: whole ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources<'a>(&'a [[u8; 16]]);

impl<'a> Sources<'a> {
    /// How many.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sources in order.
    pub fn iter(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        self.0.iter().map(|octets| Ipv6Addr::from(*octets))
    }

    /// The first `count` addresses in `bytes`, and what follows them.
    fn parse(bytes: &'a [u8], count: u16) -> Result<(Self, &'a [u8]), Invalid> {
        let (sources, rest) = bytes.split_at_checked(usize::from(count) * 16).ok_or(Invalid::Truncated)?;
        Ok((Self(sources.as_chunks().0), rest))
    }
}

/// The records of a report. Invariant: their counts add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// The records in order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (record, after) = Record::parse(rest).ok()?;
            rest = after;
            Some(record)
        })
    }

    /// The first `count` records in `bytes`.
    fn parse(bytes: &'a [u8], count: u16) -> Result<Self, Invalid> {
        let mut rest = bytes;
        for _ in 0..count {
            (_, rest) = Record::parse(rest)?;
        }
        Ok(Self(&bytes[..bytes.len() - rest.len()]))
    }
}

impl<'a> Record<'a> {
    fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Invalid> {
        let (&[kind, auxiliary, n0, n1], rest) = bytes.split_first_chunk().ok_or(Invalid::Truncated)?;
        let (group, rest) = rest.split_first_chunk::<16>().ok_or(Invalid::Truncated)?;
        let (sources, rest) = Sources::parse(rest, be16(n0, n1))?;
        // Auxiliary data, in units of 4 bytes, have no meaning (RFC 3810 s5.2.6).
        let rest = rest.get(usize::from(auxiliary) * 4..).ok_or(Invalid::Truncated)?;
        Ok((Self { kind: RecordKind::from_code(kind), group: Ipv6Addr::from(*group), sources }, rest))
    }
}

/// A message of listener discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A router asks who listens.
    Query {
        /// To which group; `None`: to any.
        group: Option<Ipv6Addr>,
        /// How long an answer may take.
        max_response: Duration,
        /// What a router of version 2 says beyond that; `None`: it is one of version 1.
        v2: Option<QueryV2<'a>>,
    },
    /// Someone listens, and speaks version 1.
    ReportV1 {
        /// To which group.
        group: Ipv6Addr,
    },
    /// Someone listens no longer, and speaks version 1.
    Done {
        /// To which group.
        group: Ipv6Addr,
    },
    /// Someone listens, or does so differently.
    Report {
        /// To what.
        records: Records<'a>,
    },
}

impl<'a> Message<'a> {
    /// Reads the message that is all of `bytes`, and came in a packet with `header` and `router_alert` (as
    /// [`Upper`](ipv6::extension::Upper) has it). The checksum is the caller's to check before.
    ///
    /// # Errors
    /// Every variant of [`Invalid`]; [`Invalid::Kind`] before all others.
    pub fn parse(header: &ipv6::Header, router_alert: Option<u16>, bytes: &'a [u8]) -> Result<Self, Invalid> {
        let &[kind, .., c0, c1, n0, n1] = bytes.first_chunk::<8>().ok_or(Invalid::Truncated)?;
        if !is_kind(kind) {
            return Err(Invalid::Kind);
        }
        // A report may come from who has no address yet (RFC 3810 s5.2.13), a query may not.
        let from_link = header.src.is_unicast_link_local() || (header.src.is_unspecified() && kind != QUERY);
        if !from_link || header.hop_limit != 1 || router_alert != Some(ROUTER_ALERT) {
            return Err(Invalid::Stranger);
        }
        if kind == REPORT_V2 {
            return Ok(Self::Report { records: Records::parse(&bytes[REPORT_LEN..], be16(n0, n1))? });
        }
        let group = Ipv6Addr::from(*bytes[8..].first_chunk::<16>().ok_or(Invalid::Truncated)?);
        if !(group.is_multicast() || group.is_unspecified() && kind == QUERY) {
            return Err(Invalid::Group);
        }
        let code = be16(c0, c1);
        Ok(match kind {
            QUERY => {
                // RFC 3810 s8.1: the length tells the versions apart, and what lies between them is neither.
                let v2 = match bytes.len() {
                    V1_LEN => None,
                    len if len < QUERY_V2_LEN => return Err(Invalid::Truncated),
                    _ => Some(QueryV2::parse(&bytes[V1_LEN..])?),
                };
                let max_response = Duration::from_millis(if v2.is_some() { response_code(code) } else { code.into() });
                Self::Query { group: Some(group).filter(|group| !group.is_unspecified()), max_response, v2 }
            }
            REPORT_V1 => Self::ReportV1 { group },
            _ => Self::Done { group },
        })
    }
}

impl<'a> QueryV2<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let (&[flags, interval, n0, n1], rest) = bytes.split_first_chunk().ok_or(Invalid::Truncated)?;
        let (sources, _) = Sources::parse(rest, be16(n0, n1))?;
        Ok(Self { suppress: flags & 8 != 0, robustness: flags & 7, interval: Duration::from_secs(interval_code(interval)), sources })
    }
}

/// Milliseconds that a maximum response code stands for (RFC 3810 s5.1.3): from 32768 a small floating-point number.
fn response_code(code: u16) -> u64 {
    if code < 0x8000 { code.into() } else { u64::from(code & 0x0fff | 0x1000) << ((code >> 12 & 7) + 3) }
}

/// Seconds that a querier's query interval code stands for (RFC 3810 s5.1.9), likewise from 128.
fn interval_code(code: u8) -> u64 {
    if code < 0x80 { code.into() } else { u64::from(code & 0x0f | 0x10) << ((code >> 4 & 7) + 3) }
}

/// Writes a record to the front of `out`, which must have room for [`RECORD_LEN`] and 16 bytes a source; gives its length.
pub fn emit_record(kind: RecordKind, group: Ipv6Addr, sources: &[Ipv6Addr], out: &mut [u8]) -> usize {
    let len = RECORD_LEN + sources.len() * 16;
    let out = &mut out[..len];
    out[..2].copy_from_slice(&[kind.code(), 0]);
    out[2..4].copy_from_slice(&(sources.len() as u16).to_be_bytes());
    out[4..RECORD_LEN].copy_from_slice(&group.octets());
    for (chunk, source) in out[RECORD_LEN..].chunks_exact_mut(16).zip(sources) {
        chunk.copy_from_slice(&source.octets());
    }
    len
}

/// Writes a report's packet, IPv6 header and all, around `records`, which are `count`, to the front of `out`, which must have room for
/// [`HEADERS_LEN`] and [`REPORT_LEN`] more than they; gives its length.
pub fn emit_report(src: Ipv6Addr, count: u16, records: &[u8], out: &mut [u8]) -> usize {
    let len = REPORT_LEN + records.len();
    let message = &mut out[HEADERS_LEN..HEADERS_LEN + len];
    message[..6].copy_from_slice(&[REPORT_V2, 0, 0, 0, 0, 0]);
    message[6..REPORT_LEN].copy_from_slice(&count.to_be_bytes());
    message[REPORT_LEN..].copy_from_slice(records);
    finish((src, ipv6::ALL_MLDV2_ROUTERS), len, out)
}

/// Bytes of a packet that [`emit_v1`] writes.
pub const V1_PACKET_LEN: usize = HEADERS_LEN + V1_LEN;

/// Writes the packet by which version 1 reports that `group` is listened to, or is no longer, to the front of `out`, which must have room
/// for [`V1_PACKET_LEN`] bytes; gives its destination (RFC 2710 s4: the group itself, or all routers).
pub fn emit_v1(src: Ipv6Addr, group: Ipv6Addr, is_done: bool, out: &mut [u8]) -> Ipv6Addr {
    let (kind, dst) = if is_done { (DONE, ipv6::ALL_ROUTERS) } else { (REPORT_V1, group) };
    emit_short((src, dst), kind, 0, group, &[], out);
    dst
}

/// Writes a query's packet to the front of `out`, which must have room for it: one of version 2 if `tail` has its flags, its interval code,
/// and its sources with their count. `code`: the maximum response code.
pub fn emit_query((src, dst): (Ipv6Addr, Ipv6Addr), group: Option<Ipv6Addr>, code: u16, tail: &[u8], out: &mut [u8]) -> usize {
    emit_short((src, dst), QUERY, code, group.unwrap_or(Ipv6Addr::UNSPECIFIED), tail, out)
}

fn emit_short(addresses: (Ipv6Addr, Ipv6Addr), kind: u8, code: u16, group: Ipv6Addr, tail: &[u8], out: &mut [u8]) -> usize {
    let len = V1_LEN + tail.len();
    let message = &mut out[HEADERS_LEN..HEADERS_LEN + len];
    message[..4].copy_from_slice(&[kind, 0, 0, 0]);
    message[4..6].copy_from_slice(&code.to_be_bytes());
    message[6..8].copy_from_slice(&[0, 0]);
    message[8..V1_LEN].copy_from_slice(&group.octets());
    message[V1_LEN..].copy_from_slice(tail);
    finish(addresses, len, out)
}

/// Puts the headers before a message of `len` bytes, and its checksum into it.
fn finish((src, dst): (Ipv6Addr, Ipv6Addr), len: usize, out: &mut [u8]) -> usize {
    super::fill_checksum((src, dst), &mut out[HEADERS_LEN..HEADERS_LEN + len]);
    extension::emit_router_alert(ipv6::PROTOCOL_ICMPV6, ROUTER_ALERT, &mut out[ipv6::LEN..]);
    let header = ipv6::Header {
        src,
        dst,
        next_header: HOP_BY_HOP,
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
        payload_len: (ROUTER_ALERT_LEN + len) as u16,
    };
    header.emit(out);
    HEADERS_LEN + len
}
