//! The kernel's part of a socket that is above rings ([`ringway_stack::socket::Kernel`]): a socket of the kernel's own, which never blocks.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd};

use ringway_stack::Error;
use ringway_stack::device::Protocol;
use ringway_stack::flow::Readiness;
use ringway_stack::ring::{Datagram, RecvFlags, Shutdown};
use ringway_stack::socket::Kernel;
use ringway_stack::time::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// A socket of the kernel's.
#[derive(Debug)]
pub struct KernelSocket {
    /// `None`: closed.
    fd: Option<OwnedFd>,
    protocol: Protocol,
}

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

impl KernelSocket {
    /// A fresh one, in the network namespace of the calling thread. `is_v6`: of IPv6 alone (IPV6_V6ONLY), as sockets above rings are.
    ///
    /// # Errors
    /// socket(2)'s.
    pub fn open(protocol: Protocol, is_v6: bool) -> Result<Self, Error> {
        let kind = match protocol {
            Protocol::Tcp => SocketType::STREAM,
            Protocol::Udp => SocketType::DGRAM,
        };
        let family = if is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let fd = net::socket_with(family, kind, FLAGS, None).map_err(error)?;
        if is_v6 {
            net::sockopt::set_ipv6_v6only(&fd, true).map_err(error)?;
        }
        Ok(Self { fd: Some(fd), protocol })
    }

    /// Its descriptor, to wait on; none once it is closed.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    fn open_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.fd().ok_or(Error::BadSocket)
    }

    fn local(&self) -> Result<SocketAddr, Error> {
        net::getsockname(self.open_fd()?).ok().and_then(|address| SocketAddr::try_from(address).ok()).ok_or(Error::Invalid)
    }
}

/// What the stack calls an error of the kernel's; what it has no name for is the socket's own fault.
fn error(error: Errno) -> Error {
    const KNOWN: [Error; 20] = [
        Error::WouldBlock,
        Error::InProgress,
        Error::Already,
        Error::Refused,
        Error::Reset,
        Error::Aborted,
        Error::TimedOut,
        Error::NotConnected,
        Error::AlreadyConnected,
        Error::Pipe,
        Error::AddressInUse,
        Error::AddressNotAvailable,
        Error::Invalid,
        Error::BadSocket,
        Error::NotSupported,
        Error::MessageTooLong,
        Error::DestinationRequired,
        Error::NoBuffers,
        Error::HostUnreachable,
        Error::NetworkDown,
    ];
    match error {
        Errno::NETUNREACH => Error::HostUnreachable,
        Errno::NOMEM | Errno::MFILE | Errno::NFILE => Error::NoBuffers,
        Errno::ACCESS | Errno::PERM => Error::NotSupported,
        _ => KNOWN.into_iter().find(|known| known.errno() == error.raw_os_error()).unwrap_or(Error::Invalid),
    }
}

impl Kernel for KernelSocket {
    fn bind(&mut self, local: SocketAddr) -> Result<SocketAddr, Error> {
        net::bind(self.open_fd()?, &local).map_err(error)?;
        self.local()
    }

    fn listen(&mut self, backlog: usize) -> Result<(), Error> {
        net::listen(self.open_fd()?, i32::try_from(backlog).unwrap_or(i32::MAX)).map_err(error)
    }

    fn accept(&mut self) -> Result<Box<dyn Kernel>, Error> {
        let fd = net::accept_with(self.open_fd()?, FLAGS).map_err(error)?;
        Ok(Box::new(Self { fd: Some(fd), protocol: self.protocol }))
    }

    fn connect(&mut self, remote: SocketAddr) -> Result<(), Error> {
        net::connect(self.open_fd()?, &remote).map_err(error)
    }

    fn readiness(&self) -> Readiness {
        const KINDS: [(PollFlags, Readiness); 5] = [
            (PollFlags::IN, Readiness::IN),
            (PollFlags::OUT, Readiness::OUT),
            (PollFlags::ERR, Readiness::ERR),
            (PollFlags::HUP, Readiness::HUP),
            (PollFlags::RDHUP, Readiness::RDHUP),
        ];
        let Ok(fd) = self.open_fd() else { return Readiness::ERR | Readiness::HUP };
        let mut asked = [PollFd::new(&fd, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut asked, Some(&at_once)) {
            Ok(_) => KINDS.iter().filter(|(flag, _)| asked[0].revents().contains(*flag)).map(|(_, kind)| *kind).collect(),
            // (A signal came: nothing is known to have changed.)
            Err(_) => Readiness::empty(),
        }
    }

    fn send(&mut self, data: &[IoSlice<'_>], to: Option<SocketAddr>) -> Result<usize, Error> {
        let (fd, flags, mut control) = (self.open_fd()?, net::SendFlags::NOSIGNAL, net::SendAncillaryBuffer::default());
        match to {
            None => net::sendmsg(fd, data, &mut control, flags),
            Some(to) => net::sendmsg_addr(fd, &to, data, &mut control, flags),
        }
        .map_err(error)
    }

    /// A datagram's destination is the socket's own address, where it is bound to one.
    fn recv(&mut self, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error> {
        let mut how = net::RecvFlags::empty();
        how.set(net::RecvFlags::PEEK, flags.contains(RecvFlags::PEEK));
        // (Of a stream it would throw the bytes away.)
        how.set(net::RecvFlags::TRUNC, self.protocol == Protocol::Udp);
        let room: usize = into.iter().map(|part| part.len()).sum();
        let got = net::recvmsg(self.open_fd()?, into, &mut net::RecvAncillaryBuffer::default(), how).map_err(error)?;
        let from = got.address.and_then(|address| SocketAddr::try_from(address).ok());
        let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let to = self.local().map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |local| local.ip());
        let (copied, from) = (got.bytes.min(room), from.unwrap_or(nobody));
        Ok(Datagram { copied, len: got.bytes, from, to, received: Instant::ZERO, hardware_time: None, drops: 0 })
    }

    fn take_error(&mut self) -> Option<Error> {
        net::sockopt::socket_error(self.open_fd().ok()?).ok()?.err().map(error)
    }

    fn shutdown(&mut self, how: Shutdown) -> Result<(), Error> {
        let how = match how {
            Shutdown::Read => net::Shutdown::Read,
            Shutdown::Write => net::Shutdown::Write,
            Shutdown::Both => net::Shutdown::Both,
        };
        net::shutdown(self.open_fd()?, how).map_err(error)
    }

    fn close(&mut self) {
        if let Some(fd) = self.fd.take() {
            // (By number, as everything here.)
            crate::syscall::close(fd.into_raw_fd());
        }
    }
}

impl Drop for KernelSocket {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(protocol: Protocol) -> (KernelSocket, SocketAddr) {
        let mut socket = KernelSocket::open(protocol, false).expect("a socket");
        let local = socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        (socket, local)
    }

    /// Nothing blocks, so what takes a moment is asked for again.
    fn soon<T>(mut try_once: impl FnMut() -> Result<T, Error>) -> T {
        for _ in 0..2000 {
            match try_once() {
                Err(Error::WouldBlock | Error::InProgress) => std::thread::sleep(core::time::Duration::from_millis(1)),
                done => return done.expect("it works"),
            }
        }
        panic!("not within two seconds");
    }

    #[test]
    fn a_stream_comes_and_goes() {
        let ((mut listener, there), (mut client, here)) = (open(Protocol::Tcp), open(Protocol::Tcp));
        listener.listen(4).unwrap();
        assert_eq!((listener.accept().map(drop), listener.readiness()), (Err(Error::WouldBlock), Readiness::empty()));
        assert!(matches!(client.connect(there), Ok(()) | Err(Error::InProgress)));
        let mut server = soon(|| listener.accept());
        assert_eq!(client.send(&[IoSlice::new(b"ab"), IoSlice::new(b"c")], None), Ok(3));
        let mut bytes = [0; 8];
        let got = soon(|| server.recv(&mut [IoSliceMut::new(&mut bytes)], RecvFlags::PEEK));
        assert_eq!((got.copied, &bytes[..3]), (3, &b"abc"[..]));
        assert!(server.readiness().contains(Readiness::IN | Readiness::OUT) && here != there);
        assert_eq!(soon(|| server.recv(&mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())).copied, 3);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(soon(|| server.recv(&mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())).copied, 0);
        client.close();
        assert_eq!((client.send(&[], None), client.fd().is_none()), (Err(Error::BadSocket), true));
    }

    #[test]
    fn a_datagram_tells_its_length_and_where_it_comes_from() {
        let ((mut receiver, there), (mut sender, here)) = (open(Protocol::Udp), open(Protocol::Udp));
        assert_eq!(sender.send(&[IoSlice::new(b"hello")], Some(there)), Ok(5));
        let mut bytes = [0; 2];
        let got = soon(|| receiver.recv(&mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
        assert_eq!((got.copied, got.len, got.from, got.to), (2, 5, here, there.ip()));
        assert_eq!(receiver.bind(there), Err(Error::Invalid));
        // A port that nobody has.
        receiver.close();
        sender.connect(there).unwrap();
        sender.send(&[IoSlice::new(b"anybody?")], None).unwrap();
        assert_eq!(soon(|| sender.take_error().ok_or(Error::WouldBlock)), Error::Refused);
    }
}
