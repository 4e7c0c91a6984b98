//! The headers of datagrams: one before each UD message, which says whose it is, and one before what goes by UDP until the queue pairs know each other.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use arrayvec::ArrayVec;

/// What precedes the program's bytes in a UD message: the sender's address. The flow information of IPv6's is zero here, and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// From whom.
    pub source: SocketAddr,
}

impl DatagramHeader {
    /// Bytes before an IPv4 sender's.
    pub const LEN_V4: usize = 8;
    /// Bytes before an IPv6 sender's.
    pub const LEN_V6: usize = 24;

    /// How many bytes a header of this sender's has.
    pub const fn len_of(source: SocketAddr) -> usize {
        if source.is_ipv4() { Self::LEN_V4 } else { Self::LEN_V6 }
    }

    /// Reads it from the front of a message; gives its length, too. `None`: it makes no sense.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        match (bytes[0], usize::from(bytes[1])) {
            (4, Self::LEN_V4) => {
                let octets: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
                Some((Self { source: (Ipv4Addr::from(octets), port).into() }, Self::LEN_V4))
            }
            (6, Self::LEN_V6) => {
                let octets: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
                Some((Self { source: SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, 0).into() }, Self::LEN_V6))
            }
            _ => None,
        }
    }

    /// Its bytes.
    pub fn emit(&self) -> ArrayVec<u8, 24> {
        let mut bytes = ArrayVec::new();
        bytes.extend([if self.source.is_ipv4() { 4 } else { 6 }, Self::len_of(self.source) as u8]);
        bytes.extend(self.source.port().to_be_bytes());
        match self.source.ip() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => {
                bytes.extend([0; 4]);
                bytes.extend(ip.octets());
            }
        }
        bytes
    }
}

/// What a UDP datagram between two rsockets is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceOp {
    /// The program's bytes follow.
    Data,
    /// It only tells the queue pair.
    Control,
}

/// What precedes everything on the UDP sockets: the sender's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceHeader {
    /// What it is for.
    pub op: ServiceOp,
    /// The sender's UD queue pair; 24 bits.
    pub qpn: u32,
    /// The address of that queue pair.
    pub address: IpAddr,
}

const TAG: u32 = 0x5555_5555;

impl ServiceHeader {
    /// Bytes before an IPv4 sender's.
    pub const LEN_V4: usize = 16;
    /// Bytes before an IPv6 sender's.
    pub const LEN_V6: usize = 28;

    /// Reads it from the front of a UDP datagram; gives its length, too. `None`: it is none of rsockets', or makes no sense.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let head: &[u8; 12] = bytes.first_chunk()?;
        if u32::from_be_bytes([head[0], head[1], head[2], head[3]]) != TAG {
            return None;
        }
        let (address, len) = match (head[4], usize::from(head[6])) {
            (4, Self::LEN_V4) => (IpAddr::from(*bytes.get(12..)?.first_chunk::<4>()?), Self::LEN_V4),
            (6, Self::LEN_V6) => (IpAddr::from(*bytes.get(12..)?.first_chunk::<16>()?), Self::LEN_V6),
            _ => return None,
        };
        let op = match head[5] {
            0 => ServiceOp::Data,
            7 => ServiceOp::Control,
            _ => return None,
        };
        let qpn = u32::from_be_bytes([0, head[9], head[10], head[11]]);
        Some((Self { op, qpn, address }, len))
    }

    /// Its bytes.
    pub fn emit(&self) -> ArrayVec<u8, 28> {
        let op = match self.op {
            ServiceOp::Data => 0,
            ServiceOp::Control => 7,
        };
        let (version, len) = if self.address.is_ipv4() { (4, Self::LEN_V4) } else { (6, Self::LEN_V6) };
        let mut bytes = ArrayVec::new();
        bytes.extend(TAG.to_be_bytes());
        bytes.extend([version, op, len as u8, 0]);
        bytes.extend((self.qpn & 0x00ff_ffff).to_be_bytes());
        match self.address {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        bytes
    }
}
