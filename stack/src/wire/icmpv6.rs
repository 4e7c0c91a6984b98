//! ICMPv6 messages (RFC 4443): echo and errors here, neighbour discovery in [`ndisc`], listener discovery in [`mld`].
//!
//! As elsewhere in [`super`], nothing looks at a checksum but who is asked to ([`ipv6::Header::check_upper`]): the caller does so before it
//! believes a message. Emitting fills it in.

use core::net::Ipv6Addr;

use super::checksum::Checksum;
use super::ipv6::extension::{self, CODE_UNRECOGNIZED_OPTION, Problem};
use super::{ParseError, be16, first, ipv6};

pub mod mld;
pub mod ndisc;

#[cfg(test)]
mod tests;

/// Bytes of a message's own header.
pub const LEN: usize = 8;
/// Bytes of a packet that an error quotes at most: with its headers it is no longer than what every path carries (RFC 4443 s2.4 (c)).
pub const QUOTED_MAX: usize = ipv6::MTU_MIN as usize - ipv6::LEN - LEN;

/// Why a packet could not be delivered: the codes of destination unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No route leads there.
    NoRoute,
    /// A filter forbids it.
    Prohibited,
    /// It would have left the scope of its source address.
    BeyondScope,
    /// The last router found nobody, for whatever other reason.
    Address,
    /// Nobody listens on that port.
    Port,
    /// A filter forbids its source address.
    SourcePolicy,
    /// The route there says no.
    RejectRoute,
    /// A router could not follow its routing header (RFC 6550 s20.18).
    SourceRoute,
    /// Its headers are longer than a router looks at (RFC 8883 s3.1).
    HeadersTooLong,
    /// A code that had no meaning when this was written.
    Other(u8),
}

impl Unreachable {
    const KNOWN: [Self; 9] = [
        Self::NoRoute,
        Self::Prohibited,
        Self::BeyondScope,
        Self::Address,
        Self::Port,
        Self::SourcePolicy,
        Self::RejectRoute,
        Self::SourceRoute,
        Self::HeadersTooLong,
    ];

    /// The reason that `code` stands for.
    pub fn from_code(code: u8) -> Self {
        Self::KNOWN.get(usize::from(code)).copied().unwrap_or(Self::Other(code))
    }

    /// Its number on the wire.
    pub fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            known => Self::KNOWN.iter().position(|&reason| reason == known).unwrap_or_default() as u8,
        }
    }

    /// Whether trying again is of no use: as Linux has it (its `icmpv6_err_convert`), where somebody decided so, rather than failed to find
    /// the way.
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::Prohibited | Self::Port | Self::SourcePolicy | Self::RejectRoute)
    }
}

/// What went wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It could not be delivered.
    DestinationUnreachable(Unreachable),
    /// It was longer than the next link carries.
    PacketTooBig {
        /// What that link carries, in bytes. [`believed_mtu`] says what to make of it.
        mtu: u32,
    },
    /// It was on the way for too long.
    TimeExceeded {
        /// 0: too many hops; 1: its fragments were not complete in time.
        code: u8,
    },
    /// Its headers make no sense to somebody.
    ParameterProblem {
        /// Which problem: 0 to 3 are [`extension`]'s constants, 4 (RFC 8986) and up (RFC 8883) are routers'.
        code: u8,
        /// The offset of the octet at fault in the packet, which need not be quoted.
        pointer: u32,
    },
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self::ParameterProblem { code: problem.code, pointer: problem.pointer }
    }
}

/// The packet that an error is about: its header, and what its upper layer begins with, behind whatever extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its header.
    pub header: ipv6::Header,
    /// Its upper layer's protocol.
    pub protocol: u8,
    /// The first 8 bytes of its upper layer: both ports and, in TCP, the sequence number.
    pub transport: [u8; 8],
}

impl Quoted {
    /// The source port: ours, if we sent the packet.
    pub fn src_port(&self) -> u16 {
        be16(self.transport[0], self.transport[1])
    }

    /// The destination port.
    pub fn dst_port(&self) -> u16 {
        be16(self.transport[2], self.transport[3])
    }

    /// TCP's sequence number.
    pub fn seq(&self) -> super::tcp::SeqNumber {
        let [.., a, b, c, d] = self.transport;
        super::tcp::SeqNumber(u32::from_be_bytes([a, b, c, d]))
    }

    /// Bytes of the packet, all of it.
    pub fn packet_len(&self) -> usize {
        ipv6::LEN + usize::from(self.header.payload_len)
    }

    /// RFC 4443 s2.4 (d): an error that doesn't show whose packet it is about is dropped without a word.
    fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (header, _) = ipv6::Header::parse(bytes)?;
        let (protocol, transport) = extension::upper_of_quoted(&header, bytes).ok_or(ParseError::Truncated)?;
        Ok(Self { header, protocol, transport })
    }
}

/// An ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A ping. Its data follow the header.
    EchoRequest {
        /// Whose ping.
        id: u16,
        /// Which ping.
        seq: u16,
    },
    /// A ping's answer. Its data follow the header.
    EchoReply {
        /// Whose ping.
        id: u16,
        /// Which ping.
        seq: u16,
    },
    /// An error. The packet that it quotes follows the header.
    Error {
        /// What went wrong.
        fault: Fault,
        /// With which packet.
        quoted: Quoted,
    },
    /// Anything else: one of [`ndisc::Message`] or [`mld::Message`], perhaps.
    Other {
        /// The message's type.
        kind: u8,
        /// The message's code.
        code: u8,
    },
}

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// The first type that is no error's (RFC 4443 s2.1).
const FIRST_INFORMATIONAL: u8 = 128;

impl Message {
    /// Reads the message at the front of `bytes`; also gives the length of its own header, behind which an echo's data follow, or what an
    /// error quotes. Does not look at the checksum.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]: also where an error doesn't quote enough; [`ParseError::Malformed`]: an error that quotes no IPv6 packet.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let &[kind, code, _, _, a, b, c, d] = first::<LEN>(bytes)?;
        let word = u32::from_be_bytes([a, b, c, d]);
        let fault = match kind {
            ECHO_REQUEST => return Ok((Self::EchoRequest { id: be16(a, b), seq: be16(c, d) }, LEN)),
            ECHO_REPLY => return Ok((Self::EchoReply { id: be16(a, b), seq: be16(c, d) }, LEN)),
            DESTINATION_UNREACHABLE => Fault::DestinationUnreachable(Unreachable::from_code(code)),
            // (Its code is to be ignored: RFC 4443 s3.2.)
            PACKET_TOO_BIG => Fault::PacketTooBig { mtu: word },
            TIME_EXCEEDED => Fault::TimeExceeded { code },
            PARAMETER_PROBLEM => Fault::ParameterProblem { code, pointer: word },
            _ => return Ok((Self::Other { kind, code }, LEN)),
        };
        Ok((Self::Error { fault, quoted: Quoted::parse(&bytes[LEN..])? }, LEN))
    }
}

/// Writes a ping, or its answer, with its data to the front of `out`, which must have room for [`LEN`] bytes more than `data` has, and gives
/// how many it wrote.
pub fn emit_echo((src, dst): (Ipv6Addr, Ipv6Addr), is_reply: bool, (id, seq): (u16, u16), data: &[u8], out: &mut [u8]) -> usize {
    let word = u32::from(id) << 16 | u32::from(seq);
    emit((src, dst), if is_reply { ECHO_REPLY } else { ECHO_REQUEST }, 0, word, data, out)
}

/// Writes the error `fault` about `packet`, which begins with its IPv6 header and is quoted as far as [`QUOTED_MAX`], to the front of `out`,
/// which must have room for that and [`LEN`]; gives how many bytes it wrote. [`may_answer`] says whether it is to be sent at all.
pub fn emit_error((src, dst): (Ipv6Addr, Ipv6Addr), fault: Fault, packet: &[u8], out: &mut [u8]) -> usize {
    let (kind, code, word) = match fault {
        Fault::DestinationUnreachable(why) => (DESTINATION_UNREACHABLE, why.code(), 0),
        Fault::PacketTooBig { mtu } => (PACKET_TOO_BIG, 0, mtu),
        Fault::TimeExceeded { code } => (TIME_EXCEEDED, code, 0),
        Fault::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, pointer),
    };
    emit((src, dst), kind, code, word, &packet[..packet.len().min(QUOTED_MAX)], out)
}

fn emit((src, dst): (Ipv6Addr, Ipv6Addr), kind: u8, code: u8, word: u32, data: &[u8], out: &mut [u8]) -> usize {
    let len = LEN + data.len();
    let out = &mut out[..len];
    out[..4].copy_from_slice(&[kind, code, 0, 0]);
    out[4..LEN].copy_from_slice(&word.to_be_bytes());
    out[LEN..].copy_from_slice(data);
    fill_checksum((src, dst), out);
    len
}

/// Fills in the checksum of the message that is all of `message`, whose own is zero.
fn fill_checksum((src, dst): (Ipv6Addr, Ipv6Addr), message: &mut [u8]) {
    let mut sum = Checksum::pseudo_header_v6(src, dst, ipv6::PROTOCOL_ICMPV6, message.len());
    sum.add(message);
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
}

/// Whether `fault` may be reported about the packet that `head` begins with (RFC 4443 s2.4 (e)). `frame_was_for_many`: it came by a group's
/// or everyone's Ethernet address. How often is the caller's to limit (s2.4 (f)).
pub fn may_answer(header: &ipv6::Header, head: &[u8], fault: Fault, frame_was_for_many: bool) -> bool {
    // (e.1) and (e.2): an error about an error goes on for ever. What cannot be told apart from one counts as one.
    let is_error = match extension::skip(header, head) {
        Some((ipv6::PROTOCOL_ICMPV6, at)) => {
            let kind = at.and_then(|at| head.get(at));
            kind.is_none_or(|&kind| kind < FIRST_INFORMATIONAL || kind == ndisc::REDIRECT)
        }
        _ => false,
    };
    // (e.3) to (e.5), and their two exceptions: path MTU discovery for groups, and options whose type begins with 10.
    let is_exception = match fault {
        Fault::PacketTooBig { .. } => true,
        Fault::ParameterProblem { code: CODE_UNRECOGNIZED_OPTION, pointer } => {
            usize::try_from(pointer).ok().and_then(|at| head.get(at)).is_some_and(|option| option >> 6 == 0b10)
        }
        _ => false,
    };
    let was_for_many = header.dst.is_multicast() || frame_was_for_many;
    // (e.6): a source that is no one node's.
    let src_is_one = !header.src.is_unspecified() && !header.src.is_multicast();
    !is_error && src_is_one && (is_exception || !was_for_many)
}

/// The path MTU that a report of `mtu` means about a packet of `packet_len` bytes; `None`: nothing, the report is to be discarded.
///
/// RFC 8201 s4: a report of less than 1280, which every link carries, is discarded. It can only be a forgery, or come from a translator to
/// IPv4, which since RFC 8021 has to cut packets up itself. Nor does a report make a path wider: an MTU that the packet fitted into
/// tells nothing.
pub fn believed_mtu(packet_len: usize, mtu: u32) -> Option<u16> {
    let believed = u16::try_from(mtu).ok().filter(|&mtu| mtu >= ipv6::MTU_MIN)?;
    (usize::from(believed) < packet_len).then_some(believed)
}

/// Writes the header of a packet that carries an ICMPv6 message of `message_len` bytes behind it to the front of `out`.
fn emit_header((src, dst): (Ipv6Addr, Ipv6Addr), hop_limit: u8, message_len: usize, out: &mut [u8]) -> usize {
    let header = ipv6::Header {
        src,
        dst,
        next_header: ipv6::PROTOCOL_ICMPV6,
        hop_limit,
        traffic_class: 0,
        flow_label: 0,
        payload_len: message_len as u16,
    };
    header.emit(out)
}
