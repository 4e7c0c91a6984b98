//! Connection management as RDMA-CM has it: peers are found by IP address and port, and a queue pair is ready when its connection is.

use core::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;

use super::{ConnectionParams, DatagramPeer, Endpoint, Messages, Mtu, Path, QpAttributes, Rejection};
use crate::time::Instant;

/// Bytes of private data at most: those of an InfiniBand reply.
pub const PRIVATE_DATA_MAX: usize = 196;

/// What a peer's program says as the connection is made. Zeros may follow what was sent: lengths say nothing.
pub type PrivateData = ArrayVec<u8, PRIVATE_DATA_MAX>;

/// RDMA-CM's port spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortSpace {
    /// RDMA_PS_TCP: connections.
    Tcp,
    /// RDMA_PS_UDP: datagrams.
    Udp,
    /// RDMA_PS_IPOIB: datagrams, with the key of the link's broadcast group, of which there is none over Ethernet: it is the program's to say.
    Ipoib,
}

/// A connection's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

/// Why a call was refused. The program is at fault, except for the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmError {
    /// There are as many connections as there can be.
    #[error("no room for one more connection")]
    Full,
    /// There is no such connection, or service.
    #[error("no such connection")]
    Missing,
    /// Its state does not allow it.
    #[error("the connection's state does not allow it")]
    State,
    /// Somebody listens there already.
    #[error("service in use")]
    InUse,
    /// No address of this machine leads there.
    #[error("no route")]
    Unroutable,
    /// The kernel's routes do not lead there by this device.
    #[error(transparent)]
    NoWay(#[from] NoWay),
    /// More private data than there is room for.
    #[error("too much private data")]
    TooLong,
    /// The device lacks it.
    #[error("the device cannot")]
    Unsupported,
}

/// Why the kernel's routes lead to no peer, where they are asked for one: what rdma_resolve_addr(3) and its event say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    /// There is no route (ENETUNREACH).
    #[error("network is unreachable")]
    Network,
    /// A route says that there is none (EHOSTUNREACH); or more is not known.
    #[error("host is unreachable")]
    Host,
    /// A route forbids it (EACCES).
    #[error("a route forbids it")]
    Prohibited,
    /// The route leads over another interface than the device's (ENODEV).
    #[error("the route does not lead over this device")]
    Device,
}

impl NoWay {
    /// What an errno says of it, if it is one of these.
    pub const fn of_errno(errno: i32) -> Option<Self> {
        Some(match errno {
            101 => Self::Network,
            113 => Self::Host,
            13 => Self::Prohibited,
            19 => Self::Device,
            _ => return None,
        })
    }
}

/// Somebody asks for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingRequest {
    /// Whom it asks: an address of ours, and the port that is listened at.
    pub local: SocketAddr,
    /// Who asks.
    pub remote: SocketAddr,
    /// What it says.
    pub private_data: PrivateData,
}

/// What a program is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It is to be accepted or rejected.
    Request(Box<IncomingRequest>),
    /// The connection stands. The active side gets what the passive one said, the passive side nothing.
    Established(PrivateData),
    /// Somebody asks for the queue pair of a datagrams' service ([`Connections::serve`]): it is to be answered ([`Connections::answer`]) or refused.
    Question(PortSpace, Box<IncomingRequest>),
    /// Where datagrams to the service go that was asked for.
    Served(Box<DatagramPeer>),
    /// The peer agrees, and the queue pair is the program's own ([`Endpoint::Own`]): [`Connections::establish`] is due, once it is ready.
    Response(PrivateData),
    /// The peer, or its connection management, said no.
    Rejected,
    /// There was no answer.
    Unreachable,
    /// There is no way to ask.
    Unroutable(NoWay),
    /// It is over, by either side.
    Disconnected,
    /// Its numbers may be used again. The connection is gone.
    TimewaitExit,
    /// It is over, or came to nothing, because the device's port is down, or the device is gone.
    Down,
}

/// Connection management above a message plane. A queue pair is the program's to make, and to put into INIT; from there on to RTS it goes as its connection does.
pub trait Connections: Messages {
    /// The way to `to`, and how much of a message goes into one packet there; from `from`, if that is given.
    fn path(&self, from: Option<IpAddr>, to: IpAddr) -> Option<(Path, Mtu)>;

    /// As [`Connections::path`], to whoever has datagrams' port `to`, where several adapters may be behind one address; also the address of ours that it is to
    /// know.
    fn datagram_path(&self, from: Option<IpAddr>, to: SocketAddr) -> Option<(Path, Mtu, IpAddr)> {
        self.path(from, to.ip()).map(|(path, mtu)| (path, mtu, path.addresses.src()))
    }

    /// Why there is no path to `to`.
    fn no_way(&self, _to: IpAddr) -> NoWay {
        NoWay::Host
    }

    /// Listens at a port; of an unspecified address: at all that are ours. `backlog` requests may wait for an answer.
    ///
    /// # Errors
    /// [`CmError::InUse`].
    fn listen(&mut self, at: SocketAddr, backlog: usize) -> Result<(), CmError>;

    /// Listens no more. Requests that wait stay to be answered.
    fn unlisten(&mut self, port: u16);

    /// Asks for a connection of `qp` to `to`. An unspecified address in `from` is chosen by the route.
    ///
    /// # Errors
    /// [`CmError`].
    fn connect(&mut self, now: Instant, qp: u32, from: SocketAddr, to: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, CmError>;

    /// Agrees to a request, with `qp`, which can send and receive from now on.
    ///
    /// # Errors
    /// [`CmError::State`]: it is not a request that waits, or no such queue pair; [`CmError::TooLong`].
    fn accept(&mut self, now: Instant, id: ConnectionId, qp: u32, private_data: &[u8]) -> Result<(), CmError>;

    /// Refuses a request.
    fn reject(&mut self, now: Instant, id: ConnectionId);

    /// The queue pair of a connection that was accepted got a message, which says as much as that the connection stands.
    fn on_communication(&mut self, id: ConnectionId);

    /// Lets go of a connection: whatever its state, it ends, and there are no more events of it.
    fn destroy(&mut self, now: Instant, id: ConnectionId);

    /// Whether a connection to `to` finds a way, from `from` if that is given.
    fn leads_to(&self, from: Option<IpAddr>, to: SocketAddr) -> bool {
        self.path(from, to.ip()).is_some()
    }

    /// As [`Connections::connect`], with all that can be said.
    ///
    /// # Errors
    /// [`CmError`].
    fn connect_with(
        &mut self,
        _now: Instant,
        _endpoint: Endpoint,
        _from: SocketAddr,
        _to: SocketAddr,
        _params: &ConnectionParams<'_>,
    ) -> Result<ConnectionId, CmError> {
        Err(CmError::Unsupported)
    }

    /// As [`Connections::accept`], with all that can be said.
    ///
    /// # Errors
    /// As there; [`CmError::Unsupported`].
    fn accept_with(&mut self, _now: Instant, _id: ConnectionId, _to: Endpoint, _params: &ConnectionParams<'_>) -> Result<(), CmError> {
        Err(CmError::Unsupported)
    }

    /// Refuses a request, or the answer to one's own ([`ConnectionEvent::Response`]), and tells the peer's program why.
    ///
    /// # Errors
    /// [`CmError::State`]: there is nothing to refuse; [`CmError::TooLong`], [`CmError::Unsupported`].
    fn reject_with(&mut self, _now: Instant, _id: ConnectionId, _private_data: &[u8]) -> Result<(), CmError> {
        Err(CmError::Unsupported)
    }

    /// Tells the peer that the program's own queue pair is ready: now the connection stands there.
    ///
    /// # Errors
    /// [`CmError::State`]: no [`ConnectionEvent::Response`] came; [`CmError::Unsupported`].
    fn establish(&mut self, _now: Instant, _id: ConnectionId) -> Result<(), CmError> {
        Err(CmError::Unsupported)
    }

    /// Ends a connection, whose events go on: both sides hear that it is over, and later that its numbers are free.
    ///
    /// # Errors
    /// [`CmError::State`]: there is none, or not any more; [`CmError::Unsupported`].
    fn disconnect(&mut self, _now: Instant, _id: ConnectionId) -> Result<(), CmError> {
        Err(CmError::Unsupported)
    }

    /// Has questions for the datagrams' service at a port come as [`ConnectionEvent::Question`], of which `backlog` may wait for an answer.
    ///
    /// # Errors
    /// [`CmError::InUse`]; [`CmError::Unsupported`].
    fn serve(&mut self, _space: PortSpace, _at: SocketAddr, _backlog: usize) -> Result<(), CmError> {
        Err(CmError::Unsupported)
    }

    /// Takes no more questions. Those that wait stay to be answered.
    fn unserve(&mut self, _space: PortSpace, _port: u16) {}

    /// Asks for the queue pair of the datagrams' service at `to`: [`ConnectionEvent::Served`], [`ConnectionEvent::Rejected`] (whose reason is a status of SIDR's) or
    /// [`ConnectionEvent::Unreachable`].
    ///
    /// # Errors
    /// [`CmError`].
    fn ask(
        &mut self,
        _now: Instant,
        _space: PortSpace,
        _from: SocketAddr,
        _to: SocketAddr,
        _params: &ConnectionParams<'_>,
    ) -> Result<ConnectionId, CmError> {
        Err(CmError::Unsupported)
    }

    /// Answers a question with a queue pair and its key. The question is gone with that.
    ///
    /// # Errors
    /// [`CmError::State`]: it is none that waits; [`CmError::TooLong`], [`CmError::Unsupported`].
    fn answer(&mut self, _now: Instant, _id: ConnectionId, _qp: u32, _qkey: u32, _private_data: &[u8]) -> Result<(), CmError> {
        Err(CmError::Unsupported)
    }

    /// The way to a group, from `from` if that is given; one hop, as IP has it.
    ///
    /// # Errors
    /// [`CmError::Unroutable`]: no group's address, or none of that family's here; [`CmError::Unsupported`].
    fn group_path(&self, _from: Option<IpAddr>, _group: IpAddr) -> Result<(Path, Mtu), CmError> {
        Err(CmError::Unsupported)
    }

    /// Has datagrams to a group come to a UD queue pair, as `ibv_attach_mcast` does; its own ones, too. Twice is once.
    ///
    /// # Errors
    /// [`CmError::Missing`]: no such queue pair of datagrams; [`CmError::Full`], [`CmError::Unroutable`], [`CmError::Unsupported`].
    fn join(&mut self, _qp: u32, _group: IpAddr) -> Result<(), CmError> {
        Err(CmError::Unsupported)
    }

    /// Ends that.
    ///
    /// # Errors
    /// [`CmError::Missing`]: it is no member; [`CmError::Unsupported`].
    fn leave(&mut self, _qp: u32, _group: IpAddr) -> Result<(), CmError> {
        Err(CmError::Unsupported)
    }

    /// What the queue pair of a request that waits, or of a connection of the program's own queue pair, is made ready with; `None`: that is not known yet, or
    /// was the device's to do.
    fn qp_attributes(&self, _id: ConnectionId) -> Option<QpAttributes> {
        None
    }

    /// How the peer said no, of a connection whose event was [`ConnectionEvent::Rejected`], if it said more than that.
    fn rejection(&self, _id: ConnectionId) -> Option<Rejection> {
        None
    }

    /// Our name of a connection, where the device has chosen it; once it stands.
    fn local_name(&self, _id: ConnectionId) -> Option<SocketAddr> {
        None
    }

    /// What happened next.
    fn poll_connection(&mut self) -> Option<(ConnectionId, ConnectionEvent)>;
}
