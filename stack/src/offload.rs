//! The devices' names, and the reasons why a process or a socket runs on the kernel instead.
//! `ringway doctor`, the log and the statistics all speak in these two enums.

use core::fmt;

/// A device that can carry flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// ConnectX by direct verbs.
    Mlx5,
    /// Soft-RoCE.
    Rxe,
    /// AF_XDP on an ordinary interface.
    Xdp,
    /// Shared memory between processes of one user.
    Shm,
    /// The simulator.
    Sim,
}

impl DeviceKind {
    /// The name used on command lines and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mlx5 => "mlx5",
            Self::Rxe => "rxe",
            Self::Xdp => "xdp",
            Self::Shm => "shm",
            Self::Sim => "sim",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why something is not offloaded. Each has a stable short name and a sentence that a person can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `RINGWAY_DEVICE=off` (or `--device off`), `VMA_OFFLOADED_SOCKETS=0`, or the Extra API's `thread_offload`.
    SwitchedOff,
    /// `RINGWAY_DEVICE` names something else than auto, shm, interfaces beside it, or off.
    UnknownDevice,
    /// The named device isn't built into this library yet.
    DeviceMissing,
    /// The kernel refused memory, descriptors or a thread.
    NoResources,
    /// Another process came to use the connection: by fork, exec or SCM_RIGHTS.
    SharedConnection,
    /// Set-user-id or otherwise privileged start: preloading is not trusted.
    Privileged,
    /// Neither a stream nor a datagram socket of IPv4 or IPv6, or an address that is a link-local one of IPv6's, or of another family than the socket's own.
    Family,
    /// The destination isn't an address of this machine, so shared memory cannot reach it.
    NotLocal,
    /// No offloaded process listens on that address.
    NoOffloadedPeer,
    /// The peer belongs to another user.
    OtherUser,
    /// An offloaded process has that address, and does not answer.
    PeerSilent,
    /// The peer cannot be told from another process, so that it could not be found again when a connection is to leave for the kernel; or it
    /// has not bound its address in the kernel.
    PeerUnverified,
    /// The socket hasn't been bound or connected yet.
    Undecided,
    /// Multicast or broadcast, which this device does not carry.
    Multicast,
    /// A socket option or call that only the kernel can serve.
    KernelOnlyOption,
    /// Urgent data (MSG_OOB) were sent on the connection.
    UrgentData,
    /// The device is connected to as many peers as it can be.
    TooManyPeers,
    /// The device has as many flow rules as it can have, or the process as many descriptors.
    TooManyRules,
    /// No local port could be had for the connection.
    NoFreePort,
    /// Another offloaded process holds this port's rule already (SO_REUSEPORT, or a listener inherited from a living parent).
    RuleTaken,
    /// A rule of libvma.conf says so.
    Rule,
}

impl Reason {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::SwitchedOff,
        Self::UnknownDevice,
        Self::DeviceMissing,
        Self::NoResources,
        Self::SharedConnection,
        Self::Privileged,
        Self::Family,
        Self::NotLocal,
        Self::NoOffloadedPeer,
        Self::OtherUser,
        Self::PeerSilent,
        Self::PeerUnverified,
        Self::Undecided,
        Self::Multicast,
        Self::KernelOnlyOption,
        Self::UrgentData,
        Self::TooManyPeers,
        Self::TooManyRules,
        Self::NoFreePort,
        Self::RuleTaken,
        Self::Rule,
    ];

    /// The reason with that [`Reason::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }

    /// A stable identifier, for JSON and tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SwitchedOff => "switched-off",
            Self::UnknownDevice => "unknown-device",
            Self::DeviceMissing => "device-missing",
            Self::NoResources => "no-resources",
            Self::SharedConnection => "shared-connection",
            Self::Privileged => "privileged",
            Self::Family => "family",
            Self::NotLocal => "not-local",
            Self::NoOffloadedPeer => "no-offloaded-peer",
            Self::OtherUser => "other-user",
            Self::PeerSilent => "peer-silent",
            Self::PeerUnverified => "peer-unverified",
            Self::Undecided => "undecided",
            Self::Multicast => "multicast",
            Self::KernelOnlyOption => "kernel-only-option",
            Self::UrgentData => "urgent-data",
            Self::TooManyPeers => "too-many-peers",
            Self::TooManyRules => "too-many-rules",
            Self::NoFreePort => "no-free-port",
            Self::RuleTaken => "rule-taken",
            Self::Rule => "rule",
        }
    }

    /// One sentence: what it is and what to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::SwitchedOff => {
                "offloading is switched off: by RINGWAY_DEVICE=off, VMA_OFFLOADED_SOCKETS=0, or the program's thread_offload"
            }
            Self::UnknownDevice => "RINGWAY_DEVICE must be auto, shm, shm,xdp:INTERFACE or off",
            Self::DeviceMissing => "that device is not part of this build; RINGWAY_DEVICE may be auto, shm, shm,xdp:INTERFACE or off",
            Self::NoResources => "the system refused memory, descriptors or a thread; raise the limits",
            Self::SharedConnection => "another process shares the connection (by fork, exec or SCM_RIGHTS), so the kernel carries it",
            Self::Privileged => "the program was started with raised privileges, where preloading is not trusted",
            Self::Family => {
                "only TCP and UDP over IPv4 and IPv6 are offloaded, and no link-local addresses; or the socket cannot have that address (IPV6_V6ONLY)"
            }
            Self::NotLocal => "the peer is on another machine, and no interface in use leads there (RINGWAY_DEVICE=shm,xdp:INTERFACE)",
            Self::NoOffloadedPeer => "no process on Ringway has that address; start the peer under ringway run, as the same user",
            Self::OtherUser => "the peer runs as another user; shared memory is only used within one user",
            Self::PeerSilent => {
                "the process that has that address does not answer (it is stopped, or gets no processor time); it is asked again later"
            }
            Self::PeerUnverified => {
                "the peer is not certain to be the process that it says, has not bound that address in the kernel, or is one of another PID namespace, which a kernel before 6.9 cannot name"
            }
            Self::Undecided => "the socket has not been bound, connected or used yet",
            Self::Multicast => "what is sent to a group or to all, and groups that others on this machine hear too, go through the kernel",
            Self::KernelOnlyOption => "a socket option was set that only the kernel can serve",
            Self::UrgentData => "urgent data were sent (MSG_OOB), which the kernel delivers; the connection is its from then on",
            Self::TooManyPeers => "the process is connected to as many others as its device can be (shared memory: 1023)",
            Self::TooManyRules => {
                "the process serves as many addresses as its device can (shared memory: 4096), or has no descriptor left: raise ulimit -n"
            }
            Self::NoFreePort => {
                "no local port is free for the connection (net.ipv4.ip_local_port_range); the kernel, which shares ports, has its turn"
            }
            Self::RuleTaken => "another offloaded process already serves this port; this one is reached through the kernel",
            Self::Rule => "a rule of libvma.conf leaves it to the kernel; ringway doctor --rules says which",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
