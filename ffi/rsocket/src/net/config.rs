//! What a socket is made with.

use std::io;
use std::net::SocketAddr;

use libc::c_int;
use ringway_stack::rsocket::options::SOL_RDMA;

use super::listener::Listener;
use super::socket::Socket;
use super::stream::Stream;

/// RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE.
const SEND_QUEUE: c_int = 0;
const RECV_QUEUE: c_int = 1;
const INLINE: c_int = 2;
const MAPPINGS: c_int = 3;

/// Options that count before a stream is connected, or a listener listens (whose connections have them, too). What is not set is as an administrator has it
/// (/etc/rdma/rsocket), or as rsockets have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    options: Vec<(c_int, c_int, u32)>,
    local: Option<SocketAddr>,
}

impl Config {
    /// Nothing is set.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, level: c_int, number: c_int, value: u32) -> Self {
        self.options.retain(|option| (option.0, option.1) != (level, number));
        self.options.push((level, number, value));
        self
    }

    /// Work requests in the send queue, 16 to 65534 (RDMA_SQSIZE).
    #[must_use]
    pub fn send_queue(self, size: u32) -> Self {
        self.with(SOL_RDMA, SEND_QUEUE, size)
    }

    /// Work requests in the receive queue, 16 to 65534: also the messages that may come before the program reads (RDMA_RQSIZE).
    #[must_use]
    pub fn recv_queue(self, size: u32) -> Self {
        self.with(SOL_RDMA, RECV_QUEUE, size)
    }

    /// Bytes up to which a message is copied into its work request (RDMA_INLINE).
    #[must_use]
    pub fn inline(self, bytes: u32) -> Self {
        self.with(SOL_RDMA, INLINE, bytes)
    }

    /// How many buffers the peer may map for our [`Stream::write_at`]; none at first (RDMA_IOMAPSIZE).
    #[must_use]
    pub fn mappings(self, count: u32) -> Self {
        self.with(SOL_RDMA, MAPPINGS, count)
    }

    /// Half of the send buffer's bytes, as with Linux's SO_SNDBUF.
    #[must_use]
    pub fn send_buffer(self, bytes: u32) -> Self {
        self.with(libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)
    }

    /// Half of the receive buffer's bytes, as with Linux's SO_RCVBUF.
    #[must_use]
    pub fn recv_buffer(self, bytes: u32) -> Self {
        self.with(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
    }

    /// The stream's own address.
    #[must_use]
    pub const fn local(mut self, at: SocketAddr) -> Self {
        self.local = Some(at);
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Stream::connect`]'s; `InvalidInput`: a size is out of its range; `AddrInUse`, `AddrNotAvailable`: of the own address.
    pub fn connect(&self, to: SocketAddr) -> io::Result<Stream> {
        let socket = self.socket(&to)?;
        if let Some(local) = self.local {
            socket.bind(local)?;
        }
        Stream::connect_by(socket, to)
    }

    /// Listens, with room for `backlog` connections that nobody has accepted.
    ///
    /// # Errors
    /// [`Listener::bind`]'s; `InvalidInput`: a size is out of its range.
    pub fn listen(&self, at: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let socket = self.socket(&at)?;
        socket.bind(at)?;
        Listener::listen_by(socket, backlog)
    }

    fn socket(&self, like: &SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(like, libc::SOCK_STREAM)?;
        for (level, number, value) in &self.options {
            socket.set_number(*level, *number, *value)?;
        }
        Ok(socket)
    }
}
