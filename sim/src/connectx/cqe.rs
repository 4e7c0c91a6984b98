//! Completions: what the card writes, and what a driver reads.
//!
//! A completion has 64 bytes; in a queue of entries of 128 it is the second half. Its last byte holds the opcode, the format and the owner's
//! bit, which changes with each lap of the queue, and is written last.

pub mod compressed;

#[cfg(test)]
mod tests;

use super::constants as c;

/// A completion's bytes.
pub type CqeBytes = [u8; 64];

/// Bytes of an entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqeSize {
    /// 64.
    Bytes64,
    /// 128: the completion is the second half, and the first is for payload, which the model never puts there.
    Bytes128,
}

impl CqeSize {
    /// As a number.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bytes64 => 64,
            Self::Bytes128 => 128,
        }
    }

    /// Where in the entry the completion begins.
    pub fn offset(self) -> u64 {
        self.bytes() - 64
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cqe {
    /// A send was done.
    Sent(Sent),
    /// Something was received.
    Received(Received),
    /// An entry failed.
    Failed(Failed),
    /// The queue goes on in its new buffer.
    Resized,
}

/// A send that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// User's index of the queue, 24 bits.
    pub uidx: u32,
    /// Bytes that a read or an atomic brought.
    pub byte_count: u32,
    /// The card's clock.
    pub timestamp: u64,
    /// Opcode of the entry.
    pub opcode: u8,
    /// The queue's number, 24 bits.
    pub qpn: u32,
    /// First block of the entry.
    pub wqe_counter: u16,
}

/// How something was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receipt {
    /// A send, or a frame.
    #[default]
    Send,
    /// A send with immediate data.
    SendImmediate,
    /// A send that invalidated a key.
    SendInvalidate,
    /// A write with immediate data.
    WriteImmediate,
}

/// Something that was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// How.
    pub receipt: Receipt,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// Entry of a striding queue.
    pub wqe_id: u16,
    /// Of receive side scaling; 0 where there is none.
    pub rss_hash: u32,
    /// What the hash is of; 0 where there is none.
    pub rss_hash_type: u8,
    /// The ones' complement sum over the packet behind its Ethernet header.
    pub checksum: u16,
    /// The peer's local identifier, or the top of the peer's Ethernet address.
    pub slid: u16,
    /// Flags in bits 31:24 (28: there is a global routing header), the peer's queue pair below.
    pub flags_rqpn: u32,
    /// `CQE_L2_OK`, `CQE_L3_OK`, `CQE_L4_OK`.
    pub checks: u8,
    /// Kind of the transport header, 3 bits.
    pub l4_type: u8,
    /// `CQE_L3_*`, 2 bits.
    pub l3_type: u8,
    /// The VLAN tag that was taken off.
    pub vlan: Option<u16>,
    /// The shared receive queue, or the user's index, 24 bits.
    pub srqn_uidx: u32,
    /// Immediate data, or the key that was invalidated.
    pub imm: u32,
    /// Bytes; of a striding queue, see [`striding`].
    pub byte_count: u32,
    /// The card's clock.
    pub timestamp: u64,
    /// The local queue's number, or the flow tag, 24 bits.
    pub qpn_or_tag: u32,
    /// Index of the entry; of a striding queue, of the first stride in it.
    pub wqe_counter: u16,
}

/// An entry that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// Of a receive queue.
    pub receive: bool,
    /// The shared receive queue, or the user's index, 24 bits.
    pub srqn_uidx: u32,
    /// The vendor's own number.
    pub vendor: u8,
    /// `SYNDROME_*`.
    pub syndrome: u8,
    /// Opcode of the entry.
    pub opcode: u8,
    /// The queue's number, 24 bits.
    pub qpn: u32,
    /// Index of the entry.
    pub wqe_counter: u16,
}

/// Why 64 bytes are no completion that can be read by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCqe {
    /// Nobody: the entry was never written.
    #[error("the entry was never written")]
    Never,
    /// Nobody: it is the title of a compressed run; see [`compressed`].
    #[error("the entry begins a compressed run")]
    Compressed,
    /// Card: an opcode that the model does not write.
    #[error("opcode {0:#x}")]
    Opcode(u8),
    /// Card: the payload is said to be in the completion.
    #[error("payload in the completion")]
    Inline,
    /// Card: a compressed run of so many.
    #[error("a compressed run of {0}")]
    Run(u32),
}

impl Cqe {
    /// The bytes of it, with the owner's bit.
    pub fn encode(&self, owner: bool) -> CqeBytes {
        let mut bytes = [0; 64];
        let (opcode, solicited) = match self {
            Self::Sent(sent) => {
                sent.encode(&mut bytes);
                (c::CQE_REQ, false)
            }
            Self::Received(received) => {
                received.encode(&mut bytes);
                (received.receipt.opcode(), received.solicited)
            }
            Self::Failed(failed) => {
                failed.encode(&mut bytes);
                (if failed.receive { c::CQE_RESP_ERR } else { c::CQE_REQ_ERR }, false)
            }
            Self::Resized => (c::CQE_RESIZE, false),
        };
        bytes[63] = opcode << 4 | u8::from(solicited) << 1 | u8::from(owner);
        bytes
    }

    /// What the bytes say.
    ///
    /// # Errors
    /// They are no completion, or a compressed one.
    pub fn decode(bytes: &CqeBytes) -> Result<Self, NoCqe> {
        let opcode = bytes[63] >> 4;
        match bytes[63] >> 2 & 3 {
            _ if opcode == c::CQE_INVALID => return Err(NoCqe::Never),
            0 => {}
            c::CQE_FORMAT_COMPRESSED => return Err(NoCqe::Compressed),
            _ => return Err(NoCqe::Inline),
        }
        match opcode {
            c::CQE_REQ => Ok(Self::Sent(Sent::decode(bytes))),
            c::CQE_REQ_ERR | c::CQE_RESP_ERR => Ok(Self::Failed(Failed::decode(bytes))),
            c::CQE_RESIZE => Ok(Self::Resized),
            _ => Received::decode(bytes).map(Self::Received).ok_or(NoCqe::Opcode(opcode)),
        }
    }

    /// Whether it counts for a queue that is armed for solicited completions: those, and failures (infiniband, ibv_req_notify_cq(3)).
    pub fn is_solicited(&self) -> bool {
        match self {
            Self::Sent(_) | Self::Resized => false,
            Self::Received(received) => received.solicited,
            Self::Failed(_) => true,
        }
    }
}

/// The owner's bit of an entry: whose lap it is of.
pub fn owner(bytes: &CqeBytes) -> bool {
    bytes[63] & c::CQE_OWNER_MASK != 0
}

impl Sent {
    fn encode(&self, bytes: &mut CqeBytes) {
        put(bytes, 32, low24(self.uidx).to_be_bytes());
        put(bytes, 44, self.byte_count.to_be_bytes());
        put(bytes, 48, self.timestamp.to_be_bytes());
        put(bytes, 56, (u32::from(self.opcode) << 24 | low24(self.qpn)).to_be_bytes());
        put(bytes, 60, self.wqe_counter.to_be_bytes());
    }

    fn decode(bytes: &CqeBytes) -> Self {
        Self {
            uidx: low24(u32::from_be_bytes(at(bytes, 32))),
            byte_count: u32::from_be_bytes(at(bytes, 44)),
            timestamp: u64::from_be_bytes(at(bytes, 48)),
            opcode: bytes[56],
            qpn: low24(u32::from_be_bytes(at(bytes, 56))),
            wqe_counter: u16::from_be_bytes(at(bytes, 60)),
        }
    }
}

impl Receipt {
    fn opcode(self) -> u8 {
        match self {
            Self::Send => c::CQE_RESP_SEND,
            Self::SendImmediate => c::CQE_RESP_SEND_IMM,
            Self::SendInvalidate => c::CQE_RESP_SEND_INV,
            Self::WriteImmediate => c::CQE_RESP_WR_IMM,
        }
    }

    fn from_opcode(opcode: u8) -> Option<Self> {
        [Self::Send, Self::SendImmediate, Self::SendInvalidate, Self::WriteImmediate].into_iter().find(|r| r.opcode() == opcode)
    }
}

impl Received {
    /// Offsets that mlx5dv.h has no name for (hash, checksum) are those of linux/mlx5/device.h.
    fn encode(&self, bytes: &mut CqeBytes) {
        put(bytes, 2, self.wqe_id.to_be_bytes());
        put(bytes, 12, self.rss_hash.to_be_bytes());
        bytes[16] = self.rss_hash_type;
        put(bytes, 20, self.checksum.to_be_bytes());
        put(bytes, 22, self.slid.to_be_bytes());
        put(bytes, 24, self.flags_rqpn.to_be_bytes());
        bytes[28] = self.checks;
        bytes[29] = (self.l4_type & 7) << 4 | (self.l3_type & 3) << 2 | u8::from(self.vlan.is_some());
        put(bytes, 30, self.vlan.unwrap_or(0).to_be_bytes());
        put(bytes, 32, low24(self.srqn_uidx).to_be_bytes());
        put(bytes, 36, self.imm.to_be_bytes());
        put(bytes, 44, self.byte_count.to_be_bytes());
        put(bytes, 48, self.timestamp.to_be_bytes());
        put(bytes, 56, low24(self.qpn_or_tag).to_be_bytes());
        put(bytes, 60, self.wqe_counter.to_be_bytes());
    }

    /// Nothing where the opcode is not a receive's.
    fn decode(bytes: &CqeBytes) -> Option<Self> {
        let types = bytes[29];
        Some(Self {
            receipt: Receipt::from_opcode(bytes[63] >> 4)?,
            solicited: bytes[63] & 2 != 0,
            wqe_id: u16::from_be_bytes(at(bytes, 2)),
            rss_hash: u32::from_be_bytes(at(bytes, 12)),
            rss_hash_type: bytes[16],
            checksum: u16::from_be_bytes(at(bytes, 20)),
            slid: u16::from_be_bytes(at(bytes, 22)),
            flags_rqpn: u32::from_be_bytes(at(bytes, 24)),
            checks: bytes[28],
            l4_type: types >> 4 & 7,
            l3_type: types >> 2 & 3,
            vlan: (types & 1 != 0).then(|| u16::from_be_bytes(at(bytes, 30))),
            srqn_uidx: low24(u32::from_be_bytes(at(bytes, 32))),
            imm: u32::from_be_bytes(at(bytes, 36)),
            byte_count: u32::from_be_bytes(at(bytes, 44)),
            timestamp: u64::from_be_bytes(at(bytes, 48)),
            qpn_or_tag: low24(u32::from_be_bytes(at(bytes, 56))),
            wqe_counter: u16::from_be_bytes(at(bytes, 60)),
        })
    }
}

impl Failed {
    fn encode(&self, bytes: &mut CqeBytes) {
        put(bytes, 32, low24(self.srqn_uidx).to_be_bytes());
        bytes[54] = self.vendor;
        bytes[55] = self.syndrome;
        put(bytes, 56, (u32::from(self.opcode) << 24 | low24(self.qpn)).to_be_bytes());
        put(bytes, 60, self.wqe_counter.to_be_bytes());
    }

    fn decode(bytes: &CqeBytes) -> Self {
        Self {
            receive: bytes[63] >> 4 == c::CQE_RESP_ERR,
            srqn_uidx: low24(u32::from_be_bytes(at(bytes, 32))),
            vendor: bytes[54],
            syndrome: bytes[55],
            opcode: bytes[56],
            qpn: low24(u32::from_be_bytes(at(bytes, 56))),
            wqe_counter: u16::from_be_bytes(at(bytes, 60)),
        }
    }
}

/// The byte count of a striding queue's completion: strides in bits 29:16, bytes below, and bit 31 says that no packet is in them
/// (linux/mlx5 driver's `MPWRQ` masks; the header of rdma-core has none).
pub mod striding {
    /// Most bytes of a packet.
    pub const BYTES_MAX: u32 = 0xffff;
    /// Most strides of a packet.
    pub const STRIDES_MAX: u32 = 0x3fff;

    /// As one number; what is too large for its field is cut.
    pub fn join(strides: u32, bytes: u32, filler: bool) -> u32 {
        u32::from(filler) << 31 | (strides & STRIDES_MAX) << 16 | bytes & BYTES_MAX
    }

    /// Strides, bytes, and whether they are only filler.
    pub fn split(byte_count: u32) -> (u32, u32, bool) {
        (byte_count >> 16 & STRIDES_MAX, byte_count & BYTES_MAX, byte_count >> 31 != 0)
    }
}

fn put<const N: usize>(bytes: &mut CqeBytes, at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn at<const N: usize>(bytes: &CqeBytes, at: usize) -> [u8; N] {
    core::array::from_fn(|i| bytes[at + i])
}

fn low24(value: u32) -> u32 {
    value & 0xff_ffff
}
