//! Programs: lists of socket calls.

use super::sockets::{Flags, Host, How, Kind, Setting, Slot};

/// Whom a call is meant for, on the other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A port, whoever has it.
    Port(u16),
    /// The address that a socket there has by then.
    Of(Slot),
}

/// One call. Where a slot is taken by the outcome ([`Op::Socket`], [`Op::Accept`]) it is the first free one of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// socket.
    Socket(Host, Kind),
    /// bind; zero: any port.
    Bind(Slot, u16),
    /// listen.
    Listen(Slot, i32),
    /// connect.
    Connect(Slot, Target),
    /// connect with `AF_UNSPEC`.
    Disconnect(Slot),
    /// accept.
    Accept(Slot),
    /// send so many bytes; `true`: with MSG_MORE.
    Send(Slot, usize, bool),
    /// sendto so many bytes.
    SendTo(Slot, usize, Target),
    /// recvfrom, with a buffer of so many bytes.
    Recv(Slot, usize, Flags),
    /// shutdown.
    Shutdown(Slot, How),
    /// close.
    Close(Slot),
    /// setsockopt.
    Set(Slot, Setting),
    /// getsockopt of SO_ERROR.
    TakeError(Slot),
    /// Sends until nothing more is taken, and reads everything on the connection's other end. How many bytes it took is each
    /// world's own; that all of them came, and what poll said meanwhile, is compared.
    Fill(Slot),
}

impl Op {
    /// The socket that is called.
    pub const fn slot(self) -> Option<Slot> {
        match self {
            Self::Socket(..) => None,
            Self::Bind(slot, _)
            | Self::Listen(slot, _)
            | Self::Connect(slot, _)
            | Self::Disconnect(slot)
            | Self::Accept(slot)
            | Self::Send(slot, ..)
            | Self::SendTo(slot, ..)
            | Self::Recv(slot, ..)
            | Self::Shutdown(slot, _)
            | Self::Close(slot)
            | Self::Set(slot, _)
            | Self::TakeError(slot)
            | Self::Fill(slot) => Some(slot),
        }
    }
}

/// What a socket has been used for so far, as far as the calls that worked tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A TCP socket that nothing was done with.
    Fresh,
    /// It was told to connect, or was accepted.
    Stream,
    /// It listens.
    Listener,
    /// UDP.
    Datagram,
}

/// Where the next call comes from, given what each slot holds: a fixed list, or a wish that picks among the sockets there are.
pub trait Source {
    /// The next call; `None`: the program is over.
    fn next(&mut self, roles: &[Option<Role>]) -> Option<Op>;
}

impl<I: Iterator<Item = Op>> Source for I {
    fn next(&mut self, _: &[Option<Role>]) -> Option<Op> {
        Iterator::next(self)
    }
}
