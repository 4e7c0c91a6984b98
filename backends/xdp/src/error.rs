//! Why an interface is not a device.

use std::io;
use std::path::PathBuf;

use ringway_host::{Refused, capabilities};

use crate::broker::{BrokerError, Refusal};
use crate::interface::Interface;

/// Why an interface was not attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no interface of that name in this network namespace.
    #[error("no interface is called {0}")]
    NoInterface(String),
    /// It is no Ethernet interface.
    #[error("{0} is no Ethernet interface")]
    NotEthernet(String),
    /// It has fewer queues than were asked for.
    #[error("{interface} has {there} queues, and no queue {asked}")]
    NoQueue {
        /// Its name.
        interface: String,
        /// The one that was asked for.
        asked: u32,
        /// How many it has.
        there: u32,
    },
    /// Another program (or another process of Ringway's) has an XDP program in front of it, or has the queue.
    #[error("{what}: the interface, or its queue, is taken by another program")]
    Taken {
        /// What was tried.
        what: &'static str,
    },
    /// The memory that frames are received into may not be locked: RLIMIT_MEMLOCK is too low.
    #[error("RLIMIT_MEMLOCK is too low for {bytes} bytes of frames")]
    Memlock {
        /// How many were to be locked.
        bytes: u64,
    },
    /// Its frames do not fit into one buffer, and the kernel or the driver has no others.
    #[error(
        "{what}: an MTU of {mtu} takes frames of several buffers, which this kernel (Linux 6.6 has them) or the driver lacks; a smaller MTU will do: {error}"
    )]
    LongFrames {
        /// What was tried.
        what: &'static str,
        /// The interface's.
        mtu: usize,
        /// The system's answer.
        error: io::Error,
    },
    /// The kernel: nobody maps the queues of a socket that is bound, as whoever gets a ring from another process has to.
    #[error("a broker needs Linux 6.4 or later: before, a ring that is bound cannot be mapped by whom it is given to")]
    TooOld,
    /// No broker has given the process a ring.
    #[error("the broker at {}: {why}", broker.display())]
    NotLent {
        /// Where it listens, or would.
        broker: PathBuf,
        /// Why not.
        why: Box<BrokerError>,
    },
    /// The system refused something: the process lacks CAP_NET_RAW, CAP_NET_ADMIN or CAP_BPF, or else.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl AttachError {
    /// What is in the way is another program, which has it: it may be free later.
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Taken { .. } => true,
            Self::NotLent { why, .. } => matches!(**why, BrokerError::Refused(Refusal::Taken(_) | Refusal::NotYet(_))),
            _ => false,
        }
    }

    /// For what the system said of `what`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => Self::Taken { what },
            _ => Refused::of(what, &capabilities::OF_INTERFACES, error).into(),
        }
    }
}

impl AttachError {
    /// The same, of what an interface may be refused for the length of its frames.
    pub(crate) fn of_frames(interface: &Interface, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let (is_long, mtu) = (interface.is_long, interface.mtu);
        move |error| match error.raw_os_error() {
            Some(libc::EINVAL | libc::ERANGE | libc::EOPNOTSUPP | libc::E2BIG) if is_long => Self::LongFrames { what, mtu, error },
            _ => Self::system(what)(error),
        }
    }
}
