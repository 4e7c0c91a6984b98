//! Management datagrams of connection management (IBTA spec, volume 1, s13.4.2, and chapter 12): 256 bytes each, sent as UD from queue
//! pair 1 to queue pair 1.
//!
//! What is reserved is not looked at and is sent as zeros. Alternate paths (LAP, APR) are not among the messages: nobody migrates over
//! RoCE.

mod connect;
pub mod private;
mod sidr;
mod small;

#[cfg(test)]
mod tests;

pub use connect::{PathRecord, Reply, Request};
pub use sidr::{ServiceIdReply, ServiceIdRequest, SidrStatus};
pub use small::{DisconnectReply, DisconnectRequest, ReadyToUse, ReceiptAcknowledgment, Reject, RejectReason, Responded};

use super::bytes::{Reader, Writer};
use crate::wire::ParseError;

/// Bytes of a management datagram.
pub const LEN: usize = 256;
/// The queue pair of general services.
pub const GSI_QP: u32 = 1;
/// Its queue key.
pub const GSI_QKEY: u32 = 0x8001_0000;
/// The queue key of RDMA-CM's own UD queue pairs and multicast groups.
pub const RDMA_UDP_QKEY: u32 = 0x0123_4567;

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 0x03;

/// A management datagram of the class of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Chosen by who begins; an answer has its question's.
    pub transaction: u64,
    /// What it says.
    pub message: Message,
}

/// The messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// REQ: asks for a connection.
    Request(Request),
    /// MRA: an answer will take longer.
    ReceiptAcknowledgment(ReceiptAcknowledgment),
    /// REJ: no.
    Reject(Reject),
    /// REP: yes.
    Reply(Reply),
    /// RTU: the reply has come.
    ReadyToUse(ReadyToUse),
    /// DREQ: asks for the end.
    DisconnectRequest(DisconnectRequest),
    /// DREP: agrees to the end.
    DisconnectReply(DisconnectReply),
    /// SIDR_REQ: asks for the UD queue pair of a service.
    ServiceIdRequest(ServiceIdRequest),
    /// SIDR_REP: tells it, or refuses.
    ServiceIdReply(ServiceIdReply),
}

impl Message {
    /// The attribute's number.
    pub const fn attribute(&self) -> u16 {
        match self {
            Self::Request(_) => 0x10,
            Self::ReceiptAcknowledgment(_) => 0x11,
            Self::Reject(_) => 0x12,
            Self::Reply(_) => 0x13,
            Self::ReadyToUse(_) => 0x14,
            Self::DisconnectRequest(_) => 0x15,
            Self::DisconnectReply(_) => 0x16,
            Self::ServiceIdRequest(_) => 0x17,
            Self::ServiceIdReply(_) => 0x18,
        }
    }
}

impl Mad {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: another class, version, method or attribute than those of connection
    /// management.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; LEN] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
        let mut reader = Reader::new(bytes);
        let head = reader.take::<4>()?;
        if head != [BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND] {
            return Err(ParseError::Malformed);
        }
        let _status_and_class_specific = reader.be32()?;
        let transaction = reader.be64()?;
        let attribute = reader.be16()?;
        let _reserved = reader.be16()?;
        let _modifier = reader.be32()?;
        let message = match attribute {
            0x10 => Message::Request(Request::parse(&mut reader)?),
            0x11 => Message::ReceiptAcknowledgment(ReceiptAcknowledgment::parse(&mut reader)?),
            0x12 => Message::Reject(Reject::parse(&mut reader)?),
            0x13 => Message::Reply(Reply::parse(&mut reader)?),
            0x14 => Message::ReadyToUse(ReadyToUse::parse(&mut reader)?),
            0x15 => Message::DisconnectRequest(DisconnectRequest::parse(&mut reader)?),
            0x16 => Message::DisconnectReply(DisconnectReply::parse(&mut reader)?),
            0x17 => Message::ServiceIdRequest(ServiceIdRequest::parse(&mut reader)?),
            0x18 => Message::ServiceIdReply(ServiceIdReply::parse(&mut reader)?),
            _ => return Err(ParseError::Malformed),
        };
        Ok(Self { transaction, message })
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut out = Writer::new(&mut bytes);
        out.put(&[BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND]);
        out.be32(0);
        out.be64(self.transaction);
        out.be16(self.message.attribute());
        out.be16(0);
        out.be32(0);
        match &self.message {
            Message::Request(message) => message.emit(&mut out),
            Message::ReceiptAcknowledgment(message) => message.emit(&mut out),
            Message::Reject(message) => message.emit(&mut out),
            Message::Reply(message) => message.emit(&mut out),
            Message::ReadyToUse(message) => message.emit(&mut out),
            Message::DisconnectRequest(message) => message.emit(&mut out),
            Message::DisconnectReply(message) => message.emit(&mut out),
            Message::ServiceIdRequest(message) => message.emit(&mut out),
            Message::ServiceIdReply(message) => message.emit(&mut out),
        }
        bytes
    }
}
