//! A tester as packetdrill is one: it has the structure of functions, and knows nothing else of the library.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use std::ffi::CString;
use std::net::{IpAddr, SocketAddr};
use std::ptr;

use libc::socklen_t;
use ringway_packetdrill::{Interface, packetdrill_interface_init};
use ringway_stack::wire::checksum::Checksum;
use ringway_stack::wire::tcp::{self, Flags, Options, SeqNumber};
use ringway_stack::wire::{ipv4, ipv6};

/// A segment, as far as stories tell of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) options: Options,
    pub(crate) bytes: Vec<u8>,
}

/// The host under test, and the tester's end of its one connection.
pub(crate) struct Tester {
    pub(crate) calls: Interface,
    pub(crate) host: SocketAddr,
    pub(crate) peer: SocketAddr,
    window: u16,
}

// SAFETY: the library serves two threads by its contract.
unsafe impl Sync for Tester {}

impl Tester {
    pub(crate) fn new(flags: &str, host: SocketAddr, peer: SocketAddr) -> Self {
        let flags = CString::new(flags).expect("flags have no zero");
        let mut calls = MaybeUninit::uninit();
        // SAFETY: the string ends by a zero, and there is room for the structure.
        let calls = unsafe {
            packetdrill_interface_init(flags.as_ptr(), calls.as_mut_ptr());
            calls.assume_init()
        };
        Self { calls, host, peer, window: 50_000 }
    }

    /// A host and a peer of IPv4.
    pub(crate) fn v4(flags: &str) -> Self {
        Self::new(flags, "192.168.0.1:8080".parse().unwrap(), "192.0.2.1:5000".parse().unwrap())
    }

    pub(crate) fn socket(&self, domain: c_int, flags: c_int) -> c_int {
        // SAFETY: plain numbers.
        let fd = unsafe { (self.calls.socket)(self.calls.userdata, domain, libc::SOCK_STREAM | flags, 0) };
        assert!(fd >= 0);
        fd
    }

    /// bind, or connect.
    pub(crate) fn name(
        &self,
        call: unsafe extern "C" fn(*mut c_void, c_int, *const libc::sockaddr, socklen_t) -> c_int,
        fd: c_int,
        to: SocketAddr,
    ) -> c_int {
        let bytes = sockaddr(to);
        // SAFETY: the address is as long as it says.
        unsafe { call(self.calls.userdata, fd, bytes.as_ptr().cast(), bytes.len() as socklen_t) }
    }

    /// A socket that listens at the host's address.
    pub(crate) fn listener(&self, flags: c_int) -> c_int {
        let domain = if self.host.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let fd = self.socket(domain, flags);
        assert_eq!(self.name(self.calls.bind, fd, self.host), 0);
        // SAFETY: plain numbers.
        assert_eq!(unsafe { (self.calls.listen)(self.calls.userdata, fd, 1) }, 0);
        fd
    }

    pub(crate) fn accept(&self, listener: c_int) -> c_int {
        let (mut name, mut len) = ([0u8; 28], 28);
        // SAFETY: there is room for an address.
        let fd = unsafe { (self.calls.accept)(self.calls.userdata, listener, name.as_mut_ptr().cast(), &raw mut len) };
        if fd >= 0 {
            let expected = sockaddr(self.peer);
            assert_eq!(&name[..len as usize], expected);
        }
        fd
    }

    pub(crate) fn read(&self, fd: c_int, room: usize) -> Result<Vec<u8>, c_int> {
        let mut bytes = vec![0xee; room];
        // SAFETY: there is that much room.
        let len = unsafe { (self.calls.read)(self.calls.userdata, fd, bytes.as_mut_ptr().cast(), room) };
        bytes.truncate(usize::try_from(len).map_err(|_| errno())?);
        Ok(bytes)
    }

    pub(crate) fn write(&self, fd: c_int, bytes: &[u8]) -> Result<usize, c_int> {
        // SAFETY: the bytes are there.
        let len = unsafe { (self.calls.write)(self.calls.userdata, fd, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(len).map_err(|_| errno())
    }

    pub(crate) fn close(&self, fd: c_int) {
        // SAFETY: plain numbers.
        assert_eq!(unsafe { (self.calls.close)(self.calls.userdata, fd) }, 0);
    }

    pub(crate) fn set(&self, fd: c_int, level: c_int, name: c_int, value: c_int) -> c_int {
        // SAFETY: the value is as long as it says.
        unsafe { (self.calls.setsockopt)(self.calls.userdata, fd, level, name, (&raw const value).cast(), 4) }
    }

    pub(crate) fn get(&self, fd: c_int, level: c_int, name: c_int) -> Result<c_int, c_int> {
        let (mut value, mut len): (c_int, socklen_t) = (0, 4);
        // SAFETY: there is room for an int.
        let result = unsafe { (self.calls.getsockopt)(self.calls.userdata, fd, level, name, (&raw mut value).cast(), &raw mut len) };
        if result == 0 { Ok(value) } else { Err(errno()) }
    }

    /// What the descriptor is ready for after at most so many milliseconds.
    pub(crate) fn poll(&self, fd: c_int, events: i16, timeout_ms: c_int) -> (c_int, i16) {
        let mut asked = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one descriptor is asked for.
        let found = unsafe { (self.calls.poll)(self.calls.userdata, &raw mut asked, 1, timeout_ms) };
        (found, asked.revents)
    }

    /// The time in microseconds.
    pub(crate) fn time(&self) -> i64 {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: there is room for a time.
        assert_eq!(unsafe { (self.calls.gettimeofday)(self.calls.userdata, &raw mut time, ptr::null_mut()) }, 0);
        time.tv_sec * 1_000_000 + time.tv_usec
    }

    pub(crate) fn pass(&self, time_us: u32) {
        // SAFETY: a plain number.
        assert_eq!(unsafe { (self.calls.usleep)(self.calls.userdata, time_us) }, 0);
    }

    /// The peer sends a segment.
    pub(crate) fn send(&self, segment: &Segment) {
        let header = tcp::Header {
            src_port: self.peer.port(),
            dst_port: self.host.port(),
            seq: SeqNumber(segment.seq),
            ack: SeqNumber(segment.ack),
            flags: segment.flags,
            window: self.window,
            options: segment.options,
            ..tcp::Header::default()
        };
        let mut tcp = vec![0; header.header_len()];
        header.emit(&mut tcp);
        tcp.extend(&segment.bytes);
        let (mut packet, mut sum) = self.ip(tcp.len());
        sum.add(&tcp);
        tcp[tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.finish().to_be_bytes());
        packet.extend(tcp);
        // SAFETY: the packet is as long as it says.
        assert_eq!(unsafe { (self.calls.netdev_send)(self.calls.userdata, packet.as_ptr().cast(), packet.len()) }, 0);
    }

    /// IP's header of a packet to the host, and the sum of the pseudo-header.
    fn ip(&self, len: usize) -> (Vec<u8>, Checksum) {
        match (self.peer.ip(), self.host.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = ipv4::Header {
                    src,
                    dst,
                    protocol: ipv4::PROTOCOL_TCP,
                    ttl: 255,
                    tos: 0,
                    id: 0,
                    total_len: (ipv4::LEN + len) as u16,
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: 0,
                    header_len: ipv4::LEN as u8,
                };
                let mut packet = vec![0; ipv4::LEN];
                header.emit(&mut packet, true);
                (packet, header.pseudo_header(len))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let payload_len = len as u16;
                let header = ipv6::Header { src, dst, next_header: 6, hop_limit: 255, traffic_class: 0, flow_label: 0, payload_len };
                let mut packet = vec![0; 40];
                header.emit(&mut packet);
                (packet, header.pseudo_header(6, len))
            }
            _ => unreachable!("a story is of one family"),
        }
    }

    /// The next segment that the host sends, and when it did; `None`: none will come. Its checksum is right.
    pub(crate) fn receive(&self) -> Option<(Segment, i64)> {
        let (mut packet, mut len, mut time) = (vec![0u8; 65_536], 65_536, 0i64);
        // SAFETY: there is that much room.
        let result = unsafe { (self.calls.netdev_receive)(self.calls.userdata, packet.as_mut_ptr().cast(), &raw mut len, &raw mut time) };
        assert_eq!(result, 0);
        if len == 0 {
            return None;
        }
        packet.truncate(len);
        let (at, mut sum) = if packet[0] >> 4 == 4 {
            let (header, at) = ipv4::Header::parse(&packet).unwrap();
            assert!(ipv4::verify_checksum(&packet[..at]) && usize::from(header.total_len) == len);
            (at, header.pseudo_header(len - at))
        } else {
            let (header, at) = ipv6::Header::parse(&packet).unwrap();
            (at, header.pseudo_header(6, len - at))
        };
        sum.add(&packet[at..]);
        assert!(sum.is_good());
        let (header, header_len) = tcp::Header::parse(&packet[at..]).unwrap();
        assert_eq!((header.src_port, header.dst_port), (self.host.port(), self.peer.port()));
        let bytes = packet[at + header_len..].to_vec();
        Some((Segment { flags: header.flags, seq: header.seq.0, ack: header.ack.0, options: header.options, bytes }, time))
    }

    /// The next segment; there is one.
    pub(crate) fn expect(&self) -> Segment {
        self.receive().expect("a segment comes").0
    }

    /// A connection to a listener, from the peer: what accept(2) gives, and the host's initial sequence number. The peer's is 0.
    pub(crate) fn open(&self, listener: c_int) -> (c_int, u32) {
        self.send(&Segment { flags: Flags::SYN, options: Options { mss: Some(1000), ..Options::default() }, ..Segment::default() });
        let answer = self.expect();
        assert_eq!((answer.flags, answer.ack), (Flags::SYN | Flags::ACK, 1));
        self.send(&Segment { flags: Flags::ACK, seq: 1, ack: answer.seq.wrapping_add(1), ..Segment::default() });
        let fd = self.accept(listener);
        assert!(fd >= 0, "errno {}", errno());
        (fd, answer.seq)
    }
}

impl Drop for Tester {
    fn drop(&mut self) {
        // SAFETY: no other thread has it any more.
        unsafe { (self.calls.free)(self.calls.userdata) };
    }
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// struct sockaddr_in, or sockaddr_in6.
pub(crate) fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => bytes.extend(ip.octets()),
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
        }
    }
    bytes.resize(if address.is_ipv4() { 16 } else { 28 }, 0);
    bytes
}
