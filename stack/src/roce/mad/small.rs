//! MRA, REJ, RTU, DREQ and DREP (IBTA spec, volume 1, s12.6.6, s12.6.7, s12.6.9 to s12.6.11).

use crate::roce::bytes::{Reader, Writer};
use crate::wire::ParseError;

/// Which message another one is about; 2 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responded {
    /// REQ.
    Request,
    /// REP.
    Reply,
    /// LAP in an MRA; none of these in a REJ.
    Other,
}

impl Responded {
    const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Request,
            1 => Self::Reply,
            _ => Self::Other,
        }
    }
}

/// MRA: an answer will take longer than was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptAcknowledgment {
    /// The sender's number for this connection.
    pub local_id: u32,
    /// The receiver's.
    pub remote_id: u32,
    /// Which message is worked on.
    pub responded: Responded,
    /// How long it takes: 4.096 us * 2^v; 5 bits.
    pub service_timeout: u8,
    /// The program's.
    pub private_data: [u8; 222],
}

impl ReceiptAcknowledgment {
    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (local_id, remote_id) = (bytes.be32()?, bytes.be32()?);
        let responded = Responded::from_bits(bytes.u8()? >> 6);
        Ok(Self { local_id, remote_id, responded, service_timeout: bytes.u8()? >> 3, private_data: bytes.take()? })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.be32(self.local_id);
        out.be32(self.remote_id);
        out.put(&[(self.responded as u8) << 6, self.service_timeout << 3]);
        out.put(&self.private_data);
    }
}

/// REJ: no, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The sender's number for this connection; zero if it has none.
    pub local_id: u32,
    /// The receiver's; zero if the sender does not know it.
    pub remote_id: u32,
    /// Which message is refused.
    pub responded: Responded,
    /// Why.
    pub reason: RejectReason,
    /// How many bytes of `info` mean something; at most 72.
    pub info_len: u8,
    /// What would have been accepted, by the reason.
    pub info: [u8; Self::INFO_LEN],
    /// The program's.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Reject {
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 148;

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (local_id, remote_id) = (bytes.be32()?, bytes.be32()?);
        let responded = Responded::from_bits(bytes.u8()? >> 6);
        let info_len = bytes.u8()? >> 1;
        if usize::from(info_len) > Self::INFO_LEN {
            return Err(ParseError::Malformed);
        }
        let reason = RejectReason(bytes.be16()?);
        Ok(Self { local_id, remote_id, responded, reason, info_len, info: bytes.take()?, private_data: bytes.take()? })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.be32(self.local_id);
        out.be32(self.remote_id);
        out.put(&[(self.responded as u8) << 6, self.info_len << 1]);
        out.be16(self.reason.0);
        out.put(&self.info);
        out.put(&self.private_data);
    }
}

/// Why a connection is refused (IBTA spec, table 105). Programs see the number; others than these are passed on, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// There is no queue pair left.
    pub const NO_QP: Self = Self(1);
    /// There are no resources left.
    pub const NO_RESOURCES: Self = Self(3);
    /// The peer did not answer in time.
    pub const TIMEOUT: Self = Self(4);
    /// The connection's number is unknown.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// Nobody serves this service.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// RC or not does not suit.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// A connection of the same numbers is still ending.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The path MTU is none, or too large.
    pub const INVALID_MTU: Self = Self(26);
    /// The program said no.
    pub const CONSUMER_DEFINED: Self = Self(28);
    /// The RNR retry count does not suit.
    pub const INVALID_RNR_RETRY: Self = Self(29);
    /// There is a connection of this number already.
    pub const DUPLICATE_COMM_ID: Self = Self(30);
}

macro_rules! two_ids {
    ($(#[$doc:meta])* $name:ident, $private:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            /// The sender's number for this connection.
            pub local_id: u32,
            /// The receiver's.
            pub remote_id: u32,
            /// The program's.
            pub private_data: [u8; $private],
        }

        impl $name {
            pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
                Ok(Self { local_id: bytes.be32()?, remote_id: bytes.be32()?, private_data: bytes.take()? })
            }

            pub(super) fn emit(&self, out: &mut Writer<'_>) {
                out.be32(self.local_id);
                out.be32(self.remote_id);
                out.put(&self.private_data);
            }
        }
    };
}

two_ids!(
    /// RTU: the reply has come.
    ReadyToUse,
    224
);
two_ids!(
    /// DREP: agrees to the end.
    DisconnectReply,
    224
);

/// DREQ: asks for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisconnectRequest {
    /// The sender's number for this connection.
    pub local_id: u32,
    /// The receiver's.
    pub remote_id: u32,
    /// The receiver's queue pair; 24 bits.
    pub remote_qpn: u32,
    /// The program's.
    pub private_data: [u8; 220],
}

impl DisconnectRequest {
    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (local_id, remote_id) = (bytes.be32()?, bytes.be32()?);
        Ok(Self { local_id, remote_id, remote_qpn: bytes.be24_8()?.0, private_data: bytes.take()? })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.be32(self.local_id);
        out.be32(self.remote_id);
        out.be24_8(self.remote_qpn, 0);
        out.put(&self.private_data);
    }
}
