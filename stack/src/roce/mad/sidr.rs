//! SIDR_REQ and SIDR_REP: which UD queue pair serves a service (IBTA spec, volume 1, s12.11.1).

use crate::roce::bytes::{Reader, Writer};
use crate::wire::ParseError;

/// SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceIdRequest {
    /// The sender's number for this question.
    pub request_id: u32,
    /// The partition.
    pub pkey: u16,
    /// Which service.
    pub service_id: u64,
    /// The program's.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl ServiceIdRequest {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 216;

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (request_id, pkey) = (bytes.be32()?, bytes.be16()?);
        let _reserved = bytes.be16()?;
        Ok(Self { request_id, pkey, service_id: bytes.be64()?, private_data: bytes.take()? })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.be32(self.request_id);
        out.be16(self.pkey);
        out.be16(0);
        out.be64(self.service_id);
        out.put(&self.private_data);
    }
}

/// SIDR_REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceIdReply {
    /// The question's number.
    pub request_id: u32,
    /// Whether there is such a queue pair.
    pub status: SidrStatus,
    /// How many bytes of `info` mean something; at most 72.
    pub info_len: u8,
    /// The queue pair; 24 bits.
    pub qpn: u32,
    /// Which service.
    pub service_id: u64,
    /// The queue pair's key.
    pub qkey: u32,
    /// By the status.
    pub info: [u8; Self::INFO_LEN],
    /// The program's.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidrStatus {
    /// There is one.
    Valid,
    /// Nobody serves this service.
    Unsupported,
    /// The service said no.
    Rejected,
    /// There is no queue pair left.
    NoQp,
    /// Somebody else serves it.
    Redirected,
    /// The version is not supported.
    UnsupportedVersion,
}

impl SidrStatus {
    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Valid,
            1 => Self::Unsupported,
            2 => Self::Rejected,
            3 => Self::NoQp,
            4 => Self::Redirected,
            5 => Self::UnsupportedVersion,
            _ => return None,
        })
    }
}

impl ServiceIdReply {
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 136;

    /// That there is no such queue pair; `status` says why.
    pub const fn refusal(status: SidrStatus) -> Self {
        let (info, private_data) = ([0; Self::INFO_LEN], [0; Self::PRIVATE_LEN]);
        Self { request_id: 0, status, info_len: 0, qpn: 0, service_id: 0, qkey: 0, info, private_data }
    }

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let request_id = bytes.be32()?;
        let status = SidrStatus::from_bits(bytes.u8()?).ok_or(ParseError::Malformed)?;
        let info_len = bytes.u8()?;
        if usize::from(info_len) > Self::INFO_LEN {
            return Err(ParseError::Malformed);
        }
        let _reserved = bytes.be16()?;
        let (qpn, _) = bytes.be24_8()?;
        let (service_id, qkey) = (bytes.be64()?, bytes.be32()?);
        Ok(Self { request_id, status, info_len, qpn, service_id, qkey, info: bytes.take()?, private_data: bytes.take()? })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.be32(self.request_id);
        out.put(&[self.status as u8, self.info_len]);
        out.be16(0);
        out.be24_8(self.qpn, 0);
        out.be64(self.service_id);
        out.be32(self.qkey);
        out.put(&self.info);
        out.put(&self.private_data);
    }
}
