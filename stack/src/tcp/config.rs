//! What a program, or its host, decides about a connection.

use core::time::Duration;

use super::congestion::Algorithm;
use crate::mutants::{Mutant, Mutation};

/// Explicit congestion notification (RFC 3168): routers mark packets instead of dropping them (Linux's tcp_ecn).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// No connection has it (0).
    Off,
    /// Those have it whose peers ask for it (2).
    #[default]
    Accepted,
    /// All ask for it (1).
    Asked,
}

/// Keepalive probes (SO_KEEPALIVE and its TCP options).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe (TCP_KEEPIDLE).
    pub idle: Duration,
    /// Time between probes (TCP_KEEPINTVL).
    pub interval: Duration,
    /// Probes without an answer that end the connection (TCP_KEEPCNT).
    pub count: u32,
}

impl Default for Keepalive {
    /// Linux's sysctls.
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), count: 9 }
    }
}

/// Fast Open of a listener (RFC 7413).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpen {
    /// TCP_FASTOPEN: so many connections may be their program's before the handshake is over; zero: none.
    pub under_way_max: usize,
    /// Bytes are taken from whoever sends them, cookie or not: for networks in which no address is made up.
    pub without_cookie: bool,
    /// TCP_FASTOPEN_KEY; `None`: the ring's own.
    pub keys: Option<FastOpenKeys>,
}

/// What cookies are made with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenKeys {
    /// The key of those that are given.
    pub primary: [u8; 16],
    /// The key before that, whose cookies are good as well.
    pub backup: Option<[u8; 16]>,
}

impl core::fmt::Debug for FastOpenKeys {
    /// (Nobody reads them in a log.)
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FastOpenKeys")
    }
}

/// A connection's configuration. The default is Linux's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The largest segment that the device carries, in bytes: its MTU less 40.
    pub mss_max: u16,
    /// TCP_MAXSEG.
    pub mss_user: Option<u16>,
    /// SO_RCVBUF in bytes as the program gave it (not doubled); `None`: autotuned.
    pub rcvbuf: Option<usize>,
    /// tcp_rmem's second value. As on Linux, half of it can be filled with bytes.
    pub rcvbuf_initial: usize,
    /// tcp_rmem's third value.
    pub rcvbuf_max: usize,
    /// SO_SNDBUF in bytes as the program gave it (not doubled); `None`: autotuned.
    pub sndbuf: Option<usize>,
    /// tcp_wmem's second value.
    pub sndbuf_initial: usize,
    /// tcp_wmem's third value.
    pub sndbuf_max: usize,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// TCP_QUICKACK: acknowledge at once.
    pub quickack: bool,
    /// SO_KEEPALIVE.
    pub keepalive: Option<Keepalive>,
    /// TCP_USER_TIMEOUT: how long sent bytes may stay without an answer.
    pub user_timeout: Option<Duration>,
    /// Retransmissions of a SYN (tcp_syn_retries, TCP_SYNCNT), or of a SYN-ACK (tcp_synack_retries), whichever is less.
    pub syn_retries: u32,
    /// Retransmissions of anything else (tcp_retries2).
    pub retries: u32,
    /// Offer timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer SACK (RFC 2018).
    pub sack: bool,
    /// Offer window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Time in TIME-WAIT.
    pub time_wait: Duration,
    /// Time in FIN-WAIT-2 once the program has closed the socket (tcp_fin_timeout).
    pub fin_wait2: Duration,
    /// Take a full segment that times out again and again for too long for its path, and try shorter ones (tcp_mtu_probing=1).
    pub black_hole_detection: bool,
    /// What carries the segments. (The ring sets it, by the addresses.)
    pub family: Family,
    /// Time to live, or hop limit, of the packets.
    pub ttl: u8,
    /// Type-of-service byte, or traffic class, of the packets.
    pub tos: u8,
    /// How long an acknowledgment waits for something to ride on.
    pub delayed_ack: Duration,
    /// The most slices of send buffers in one segment; at most [`crate::device::GATHER_LIMIT`] count.
    pub gather_max: usize,
    /// Payload bytes of the longest segment that the device cuts into smaller ones (TSO); zero: it cuts none.
    pub tso_max: usize,
    /// TCP_CONGESTION: how much may be in the network (Linux's tcp_congestion_control).
    pub congestion: Algorithm,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// SO_LINGER with a time of zero: a connection that its process leaves behind is reset. (One that the program closes is where
    /// [`crate::ring::Ring::close`] is told so.)
    pub linger_zero: bool,
    /// Segments with urgent data are not taken, so that they come again, and [`crate::flow::Readiness::PRI`] is raised: their mark and signals (RFC 9293 s3.8.5)
    /// are the kernel's, which takes the connection over. Else they are data as all others (RFC 6093 s4). (It is for who has such a kernel: where none is beside
    /// the device, the ring clears it; whoever finds that the kernel does not take it clears it by [`crate::ring::Ring::tcp_configure`].)
    pub urgent_waits: bool,
    /// SO_REUSEPORT: listeners of several rings of one device may have one address, and share its connections.
    pub reuse_port: bool,
    /// Connections that a listener lets begin in a second; zero: any number. Beyond them a SYN is dropped, and comes again.
    pub syn_rate_max: u32,
    /// Fast Open, of a listener.
    pub fast_open: FastOpen,
    /// Keeps when the bytes came that wait to be read ([`crate::ring::Ring::tcp_arrival`]).
    pub arrival_times: bool,
    /// What is deliberately wrong (set by [`crate::ring::RingConfig::mutant`]).
    #[cfg(feature = "mutants")]
    pub mutant: Mutant,
}

/// The version of IP below a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The version that an address is of.
    pub const fn of(address: std::net::IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Bytes of IP's and TCP's headers without options.
    pub(super) const fn headers(self) -> u16 {
        match self {
            Self::V4 => 40,
            Self::V6 => 60,
        }
    }

    /// What a SYN without the option means (RFC 9293 s3.7.1: the least MTU that there may be, less these headers).
    pub(super) const fn mss_default(self) -> u16 {
        match self {
            Self::V4 => 536,
            Self::V6 => 1220,
        }
    }

    /// No report makes packets smaller than this: of IPv4 Linux's min_pmtu, so that a forged one can't make segments tiny (RFC 5927 s7.3); of IPv6 what every link
    /// carries (RFC 8201 s4).
    pub(crate) const fn path_mtu_min(self) -> u16 {
        match self {
            Self::V4 => 552,
            Self::V6 => 1280,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss_max: 1460,
            mss_user: None,
            rcvbuf: None,
            rcvbuf_initial: 131_072,
            rcvbuf_max: 6 << 20,
            sndbuf: None,
            sndbuf_initial: 87_040,
            sndbuf_max: 4 << 20,
            nodelay: false,
            cork: false,
            quickack: false,
            keepalive: None,
            user_timeout: None,
            syn_retries: 6,
            retries: 15,
            timestamps: true,
            sack: true,
            window_scaling: true,
            time_wait: Duration::from_secs(60),
            fin_wait2: Duration::from_secs(60),
            black_hole_detection: true,
            family: Family::V4,
            ttl: 64,
            tos: 0,
            delayed_ack: Duration::from_millis(40),
            gather_max: 8,
            tso_max: 0,
            congestion: Algorithm::Cubic,
            ecn: Ecn::Accepted,
            linger_zero: false,
            urgent_waits: false,
            reuse_port: false,
            syn_rate_max: 0,
            fast_open: FastOpen::default(),
            arrival_times: false,
            #[cfg(feature = "mutants")]
            mutant: Mutant::Healthy,
        }
    }
}

impl Config {
    /// The smallest send buffer in bytes (Linux's SOCK_MIN_SNDBUF).
    pub(super) const SEND_LIMIT_MIN: usize = 4608;
    /// Linux's TCP_MIN_MSS: less would not leave room for options.
    pub const MSS_MIN: u16 = 88;

    /// The same for the parts.
    pub(super) fn mutation(&self) -> Mutation {
        Mutation {
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
        }
    }

    /// Whether the stack is this mutant; a constant `false` without the feature.
    #[inline(always)]
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutant == mutant;
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }

    /// Whether a connection's SYN asks for ECN. (DCTCP is nothing without: RFC 8257 s3.)
    pub(super) fn asks_for_ecn(&self) -> bool {
        self.ecn == Ecn::Asked || (self.congestion == Algorithm::Dctcp && self.ecn != Ecn::Off)
    }

    /// The segment size that we announce.
    pub(super) fn mss_announced(&self) -> u16 {
        self.mss_user.unwrap_or(u16::MAX).min(self.mss_max).max(Self::MSS_MIN)
    }

    /// Bytes of receive buffer that can be filled at first, and at most.
    pub(super) fn receive_limits(&self) -> (usize, usize) {
        const LEAST: usize = 1152;
        match self.rcvbuf {
            Some(fixed) => (fixed.max(LEAST), fixed.max(LEAST)),
            None => ((self.rcvbuf_initial / 2).max(LEAST), (self.rcvbuf_max / 2).max(LEAST)),
        }
    }

    /// The shift that lets the window count to the largest buffer (as Linux: to the whole of `rcvbuf_max`).
    pub(super) fn receive_scale(&self) -> u8 {
        let largest = self.rcvbuf.unwrap_or(0).max(self.rcvbuf_max);
        (0..14).find(|shift| largest >> shift <= 65_535).unwrap_or(14)
    }

    /// Bytes that may be queued to be sent, for a congestion window of `cwnd` bytes.
    #[inline]
    pub(super) fn send_limit(&self, cwnd: usize) -> usize {
        match self.sndbuf {
            Some(fixed) => fixed.max(Self::SEND_LIMIT_MIN),
            // Linux's tcp_sndbuf_expand: twice what can be in flight.
            None => (2 * cwnd).max(self.sndbuf_initial).max(Self::SEND_LIMIT_MIN).min(self.sndbuf_max.max(Self::SEND_LIMIT_MIN)),
        }
    }
}
