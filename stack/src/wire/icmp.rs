//! ICMP messages (RFC 792): echo, and the errors that end or warn connections.

use super::checksum::Checksum;
use super::{ParseError, be16, first, ipv4};

/// Bytes of a message's own header.
pub const LEN: usize = 8;
/// The most bytes that an error of ours quotes: a header with all the options that it has room for, and [`QUOTED_MIN`].
pub const QUOTE_MAX: usize = ipv4::LEN_MAX + QUOTED_MIN;
/// What an error quotes behind the header at least (RFC 792): both ports and, in TCP, the sequence number.
pub const QUOTED_MIN: usize = 8;

/// [`Message::DestinationUnreachable`]: nobody has that protocol.
pub const CODE_PROTOCOL_UNREACHABLE: u8 = 2;
/// [`Message::DestinationUnreachable`]: nobody listens on that port.
pub const CODE_PORT_UNREACHABLE: u8 = 3;
/// [`Message::DestinationUnreachable`]: too long for the next link, and not to be fragmented.
pub const CODE_FRAGMENTATION_NEEDED: u8 = 4;

/// The packet that an error is about: its IPv4 header and the first bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its header.
    pub header: ipv4::Header,
    /// The first bytes of its transport header.
    pub transport: [u8; QUOTED_MIN],
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

    /// Reads what an error quotes.
    ///
    /// # Errors
    /// As [`ipv4::Header::parse`], and [`ParseError::Truncated`] where too little follows the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (header, len) = ipv4::Header::parse(bytes)?;
        Ok(Self { header, transport: *first(&bytes[len..])? })
    }
}

/// An ICMP message.
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
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// Why.
        code: u8,
        /// The next link's MTU in bytes, if `code` is [`CODE_FRAGMENTATION_NEEDED`] (RFC 1191 s4).
        mtu: u16,
        /// Which packet.
        quoted: Quoted,
    },
    /// A packet's time to live ran out, or its fragments were not complete in time.
    TimeExceeded {
        /// Which of the two.
        code: u8,
        /// Which packet.
        quoted: Quoted,
    },
    /// Anything else.
    Other {
        /// The message's type.
        kind: u8,
        /// The message's code.
        code: u8,
    },
}

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;

impl Message {
    /// Reads the message at the front of `bytes`; also gives the length of its own header, behind which an echo's data
    /// or what an error quotes follow. Does not look at the checksum (which is over all of the message).
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: an error that quotes no IPv4 packet.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let &[kind, code, _, _, a, b, c, d] = first::<LEN>(bytes)?;
        let rest = &bytes[LEN..];
        let message = match kind {
            ECHO_REPLY => Self::EchoReply { id: be16(a, b), seq: be16(c, d) },
            ECHO_REQUEST => Self::EchoRequest { id: be16(a, b), seq: be16(c, d) },
            DESTINATION_UNREACHABLE => Self::DestinationUnreachable { code, mtu: be16(c, d), quoted: Quoted::parse(rest)? },
            TIME_EXCEEDED => Self::TimeExceeded { code, quoted: Quoted::parse(rest)? },
            _ => Self::Other { kind, code },
        };
        Ok((message, LEN))
    }

    /// Writes the message's own header to the front of `out`, which must have room for [`LEN`] bytes, and gives its length. `data` is
    /// the sum over the bytes that the caller puts behind it: an echo's data, or the packet that an error is about as it came (`quoted`
    /// only tells what was read of one).
    pub fn emit(&self, out: &mut [u8], data: Checksum) -> usize {
        let out = &mut out[..LEN];
        out.fill(0);
        let (kind, code, high, low) = match *self {
            Self::EchoReply { id, seq } => (ECHO_REPLY, 0, id, seq),
            Self::EchoRequest { id, seq } => (ECHO_REQUEST, 0, id, seq),
            Self::DestinationUnreachable { code, mtu, .. } => (DESTINATION_UNREACHABLE, code, 0, mtu),
            Self::TimeExceeded { code, .. } => (TIME_EXCEEDED, code, 0, 0),
            Self::Other { kind, code } => (kind, code, 0, 0),
        };
        out[0] = kind;
        out[1] = code;
        out[4..6].copy_from_slice(&high.to_be_bytes());
        out[6..8].copy_from_slice(&low.to_be_bytes());
        let mut sum = Checksum::new();
        sum.add(out);
        sum.add_sum(data.folded(), 0);
        out[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        LEN
    }
}
