//! What RDMA-CM puts into connection management (IBTA spec, volume 1, annex A11; spec of rsockets' connection data): the service's number
//! tells port space and port, and a request's private data begins with the addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use crate::device::messages::PortSpace;
use crate::wire::ParseError;

/// Bytes of the header that comes before the program's private data in REQ and SIDR_REQ.
pub const HEADER_LEN: usize = 36;
/// Bytes that are left for the program in a REQ.
pub const REQUEST_LEN_MAX: usize = super::Request::PRIVATE_LEN - HEADER_LEN;

/// Bytes that are left for the program in a SIDR_REQ.
pub const QUESTION_LEN_MAX: usize = super::ServiceIdRequest::PRIVATE_LEN - HEADER_LEN;

/// The number of the service at `port`.
pub const fn service_id(space: PortSpace, port: u16) -> u64 {
    // Linux's numbers (`enum rdma_ucm_port_space`): IP's protocol with annex A11's prefix, but for IPoIB's.
    let number: u64 = match space {
        PortSpace::Tcp => 0x0106,
        PortSpace::Udp => 0x0111,
        PortSpace::Ipoib => 0x0002,
    };
    number << 16 | port as u64
}

/// Port space and port of a service's number, if it is of RDMA-CM's.
pub const fn of_service_id(service_id: u64) -> Option<(PortSpace, u16)> {
    let port = service_id as u16;
    match service_id >> 16 {
        0x0106 => Some((PortSpace::Tcp, port)),
        0x0111 => Some((PortSpace::Udp, port)),
        0x0002 => Some((PortSpace::Ipoib, port)),
        _ => None,
    }
}

/// The header before the program's private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// From whom. The port is the sender's.
    pub src: SocketAddr,
    /// To whom. Of the same family as `src`; its port is in the service's number.
    pub dst: IpAddr,
}

impl IpHeader {
    /// Reads the header at the front of a request's private data.
    ///
    /// # Errors
    /// [`ParseError`]: another version of RDMA-CM or of IP.
    pub fn parse(private_data: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; HEADER_LEN] = private_data.first_chunk().ok_or(ParseError::Truncated)?;
        // The major version must be known, the minor one need not (annex A11.3).
        if bytes[0] >> 4 != 0 {
            return Err(ParseError::Malformed);
        }
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[at..at + 16]);
            match bytes[1] >> 4 {
                4 => Ok(IpAddr::V4(Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]))),
                6 => Ok(IpAddr::V6(Ipv6Addr::from(octets))),
                _ => Err(ParseError::Malformed),
            }
        };
        Ok(Self { src: SocketAddr::new(address(4)?, port), dst: address(20)? })
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[1] = if self.dst.is_ipv4() { 0x40 } else { 0x60 };
        bytes[2..4].copy_from_slice(&self.src.port().to_be_bytes());
        let mut put = |at: usize, address: IpAddr| match address {
            IpAddr::V4(address) => bytes[at + 12..at + 16].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes[at..at + 16].copy_from_slice(&address.octets()),
        };
        put(4, self.src.ip());
        put(20, self.dst);
        bytes
    }
}
