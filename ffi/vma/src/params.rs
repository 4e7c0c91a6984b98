//! What the environment's parameters ([`ringway_params`]) come to in this library.

use std::io;
use std::sync::OnceLock;

use ringway_devices::SharedMemory;
use ringway_params::{Id, Settings};
use ringway_stack::offload::Reason;
use ringway_stack::ring::UdpOptions;
use ringway_stack::tcp;
use ringway_stack::tcp::congestion::Algorithm;

use crate::card_time::Conversion;
use crate::mux::turns::Ratio;

/// What the library looks at while it works, in the form that it looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    /// VMA_RX_POLL in microseconds: -1 spins for ever, 0 not at all. `None`: not set, so the policy decides, below the default.
    pub(crate) rx_poll_us: Option<i64>,
    /// VMA_SELECT_POLL, likewise.
    pub(crate) select_poll_us: Option<i64>,
    /// VMA_RX_POLL_YIELD: rounds of a receive's spinning between yields; 0: time alone decides.
    pub(crate) rx_poll_yield: u32,
    /// VMA_RX_UDP_POLL_OS_RATIO: the kernel's half of a socket is asked once in so many polls; 0: only before sleeping.
    pub(crate) rx_udp_poll_os_ratio: Ratio,
    /// VMA_SELECT_POLL_OS_RATIO, likewise for poll, select and epoll.
    pub(crate) select_poll_os_ratio: Ratio,
    /// VMA_SELECT_SKIP_OS: so many calls that find something for one that asks the kernel as well; 0: none does.
    pub(crate) select_skip_os: Ratio,
    /// VMA_PROGRESS_ENGINE_INTERVAL; 0: no progress between the program's calls.
    pub(crate) progress_engine_interval_ms: u32,
    /// VMA_PROGRESS_ENGINE_WCE_MAX: frames.
    pub(crate) progress_engine_frames_max: usize,
    /// VMA_CQ_POLL_BATCH_MAX.
    pub(crate) cq_poll_batch_max: usize,
    /// VMA_TCP_NODELAY: no Nagle algorithm, whatever the program asks for.
    pub(crate) tcp_nodelay: bool,
    /// VMA_TCP_QUICKACK.
    pub(crate) tcp_quickack: bool,
    /// VMA_TCP_TIMESTAMP_OPTION.
    pub(crate) tcp_timestamps: bool,
    /// net.ipv4.tcp_ecn.
    pub(crate) tcp_ecn: tcp::Ecn,
    /// VMA_TCP_MAX_SYN_RATE: connections a second that a listener lets begin; 0: any number.
    pub(crate) tcp_max_syn_rate: u32,
    pub(crate) tcp_congestion: Algorithm,
    /// VMA_MTU in bytes; 0: the device's.
    pub(crate) mtu: usize,
    /// VMA_MSS in bytes; 0: by the MTU.
    pub(crate) mss: usize,
    /// VMA_RX_BYTES_MIN: the floor under SO_RCVBUF.
    pub(crate) rx_bytes_min: usize,
    /// VMA_RING_DEV_MEM_TX: bytes.
    pub(crate) ring_dev_mem_tx: usize,
    /// VMA_HW_TS_CONVERSION.
    pub(crate) hw_ts_conversion: Conversion,
    /// VMA_TX_BUFS.
    pub(crate) tx_bufs: usize,
    /// VMA_RX_BUFS.
    pub(crate) rx_bufs: usize,
    /// Send buffers are to be in huge pages (VMA_MEM_ALLOC_TYPE=2).
    pub(crate) huge_pages: bool,
    /// VMA_TX_MC_LOOPBACK.
    pub(crate) tx_mc_loopback: bool,
    /// VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME: each getsockname warms the way of what is sent.
    pub(crate) dummy_send_getsockname: bool,
    /// VMA_RX_POLL_ON_TX_TCP: each TCP send polls the ring.
    pub(crate) rx_poll_on_tx_tcp: bool,
    /// VMA_TX_NONBLOCKED_EAGAINS: a datagram that is lost at once is the program's to send again.
    pub(crate) tx_nonblocked_eagains: bool,
    /// RINGWAY_LEND_COPIES.
    pub(crate) lend_copies: bool,
    /// VMA_HANDLE_SIGSEGV.
    pub(crate) handle_sigsegv: bool,
}

/// VMA_RX_POLL's and VMA_SELECT_POLL's default, which is a ceiling.
pub(crate) const POLL_US_DEFAULT: i64 = 100_000;

/// What the environment set, as it was when the process first asked.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(Settings::from_environment)
}

/// What it comes to.
pub(crate) fn read() -> &'static Params {
    static PARAMS: OnceLock<Params> = OnceLock::new();
    PARAMS.get_or_init(|| Params::of(settings()))
}

/// What the host says of ECN; what cannot be read is Linux's default. (3, 4 and 5 are of AccECN, which asks or accepts as 1 and 2 do where the peer has none.)
fn ecn(value: Option<&str>) -> tcp::Ecn {
    match value.map(str::trim) {
        Some("0") => tcp::Ecn::Off,
        Some("1" | "3") => tcp::Ecn::Asked,
        _ => tcp::Ecn::Accepted,
    }
}

impl Params {
    fn of(settings: &Settings) -> Self {
        let size = |id| settings.count(id) as usize;
        let set = |id| settings.is_set(id).then(|| settings.number(id));
        let ratio = |id| Ratio { looks: settings.count(id), is_exact: settings.is_set(id) };
        Self {
            rx_poll_us: set(Id::RxPoll),
            select_poll_us: set(Id::SelectPoll),
            rx_poll_yield: settings.count(Id::RxPollYield),
            rx_udp_poll_os_ratio: ratio(Id::RxUdpPollOsRatio),
            select_poll_os_ratio: ratio(Id::SelectPollOsRatio),
            select_skip_os: ratio(Id::SelectSkipOs),
            progress_engine_interval_ms: settings.count(Id::ProgressInterval),
            progress_engine_frames_max: size(Id::ProgressWceMax),
            cq_poll_batch_max: size(Id::CqPollBatchMax),
            tcp_nodelay: settings.flag(Id::TcpNodelay),
            tcp_quickack: settings.flag(Id::TcpQuickack),
            tcp_timestamps: match settings.number(Id::TcpTimestampOption) {
                0 => false,
                1 => true,
                // What cannot be read is Linux's default.
                _ => std::fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps").map_or(true, |value| value.trim() != "0"),
            },
            tcp_ecn: ecn(std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").ok().as_deref()),
            tcp_max_syn_rate: settings.count(Id::TcpMaxSynRate),
            tcp_congestion: u64::try_from(settings.number(Id::TcpCcAlgo))
                .ok()
                .and_then(Algorithm::by_vma_number)
                .unwrap_or(Algorithm::Reno),
            mtu: size(Id::Mtu),
            mss: size(Id::Mss),
            rx_bytes_min: size(Id::RxBytesMin),
            ring_dev_mem_tx: size(Id::RingDevMemTx),
            hw_ts_conversion: Conversion::of(settings.number(Id::HwTsConversion)),
            tx_bufs: size(Id::TxBufs),
            rx_bufs: size(Id::RxBufs),
            // (Only where it is asked for: a process that sends little takes little memory.)
            huge_pages: settings.is_set(Id::MemAllocType) && settings.number(Id::MemAllocType) == 2,
            tx_mc_loopback: settings.flag(Id::TxMcLoopback),
            dummy_send_getsockname: settings.flag(Id::TriggerDummySend),
            rx_poll_on_tx_tcp: settings.flag(Id::RxPollOnTxTcp),
            tx_nonblocked_eagains: settings.flag(Id::TxNonblockedEagains),
            lend_copies: settings.flag(Id::LendCopies),
            handle_sigsegv: settings.flag(Id::HandleSigsegv),
        }
    }

    /// What TCP connections start with, over a device whose packets have up to `mtu` bytes in up to `gather_max` pieces.
    pub(crate) fn tcp_defaults(&self, mtu: usize, gather_max: usize) -> tcp::Config {
        let defaults = tcp::Config::default();
        let mtu = if self.mtu == 0 { mtu } else { self.mtu.min(mtu) };
        // RFC 9293 s3.7.1: the MTU less both fixed headers.
        let by_mtu = mtu.saturating_sub(40);
        let mss = if self.mss == 0 { by_mtu } else { self.mss.min(by_mtu) };
        tcp::Config {
            mss_max: u16::try_from(mss).unwrap_or(u16::MAX).max(MSS_MIN),
            gather_max,
            nodelay: self.tcp_nodelay,
            quickack: self.tcp_quickack,
            timestamps: self.tcp_timestamps,
            ecn: self.tcp_ecn,
            syn_rate_max: self.tcp_max_syn_rate,
            congestion: self.tcp_congestion,
            urgent_waits: true,
            // Half of it can be filled.
            rcvbuf_initial: defaults.rcvbuf_initial.max(2 * self.rx_bytes_min),
            rcvbuf_max: defaults.rcvbuf_max.max(2 * self.rx_bytes_min),
            ..defaults
        }
    }

    /// What shared memory is attached with.
    pub(crate) fn shared_memory(&self) -> SharedMemory {
        SharedMemory {
            send_buffers: self.tx_bufs,
            received_frames: self.rx_bufs,
            huge_pages: self.huge_pages,
            head_memory: crate::extra::ioctl::head_memory(),
        }
    }

    /// What UDP sockets start with.
    pub(crate) fn udp_defaults(&self) -> UdpOptions {
        let defaults = UdpOptions::default();
        // The kernel doubles SO_RCVBUF for its overhead; the ring counts overhead likewise.
        let rcvbuf = defaults.rcvbuf.max(2 * self.rx_bytes_min);
        UdpOptions { rcvbuf, multicast_loop: self.tx_mc_loopback, passing_errors: false, ..defaults }
    }
}

/// Frames of an interface, if somebody has said so: the default of VMA_RX_WRE is a card's.
pub(crate) fn frames_of_interface(said: &Settings) -> Option<u32> {
    said.is_set(Id::RxWre).then(|| u32::try_from(said.number(Id::RxWre)).unwrap_or(u32::MAX))
}

/// Whether the memory of a card's rings may be on huge pages, where there are some: unless somebody says that it is to be on ordinary ones.
pub(crate) fn huge_pages_of_card(said: &Settings) -> bool {
    !said.is_set(Id::MemAllocType) || said.number(Id::MemAllocType) == 2
}

/// Frames that the kernel takes from a queue of an interface each time that it is asked to (RINGWAY_BUSY_POLL).
pub(crate) fn busy_poll(said: &Settings) -> u16 {
    u16::try_from(said.number(Id::BusyPoll)).unwrap_or(u16::MAX)
}

/// Linux's TCP_MIN_MSS, below which the stack does not go.
const MSS_MIN: u16 = 88;

/// Whether this process may be offloaded at all.
///
/// # Errors
/// The reason why not, with what a person needs beside its advice.
pub(crate) fn admissible() -> Result<(), (Reason, String)> {
    // SAFETY: getauxval has no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Err((Reason::Privileged, String::new()));
    }
    let device = settings().text(Id::Device);
    match device {
        "" | "auto" | "shm" => {}
        // (Each may fail by itself: then its sockets are the kernel's.)
        _ if ringway_params::kind::interfaces(device).is_some() => {}
        "off" => return Err((Reason::SwitchedOff, "RINGWAY_DEVICE=off; unset it, or set it to auto".to_owned())),
        "mlx5" | "rxe" | "xdp" => return Err((Reason::DeviceMissing, format!("RINGWAY_DEVICE={device}"))),
        _ => return Err((Reason::UnknownDevice, format!("RINGWAY_DEVICE={device}"))),
    }
    enough_descriptors()
}

/// The library's own are about ten, and some for each peer: of fewer than this, too many would be missing in the program.
const DESCRIPTORS_MIN: libc::rlim_t = 32;

fn enough_descriptors() -> Result<(), (Reason, String)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: there is room for a limit.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    if known && limit.rlim_cur < DESCRIPTORS_MIN {
        return Err((Reason::NoResources, format!("RLIMIT_NOFILE is {}, and less than {DESCRIPTORS_MIN}", limit.rlim_cur)));
    }
    Ok(())
}

/// The program's short name: that of the file that was executed, which a process that renames itself does not change.
/// Not where symbolic links lead (/proc/self/exe): several programs may be links to one file, as Debian's redis-server is.
pub(crate) fn program_name() -> String {
    // SAFETY: getauxval only reads the auxiliary vector.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    if name.is_null() {
        return String::new();
    }
    // SAFETY: AT_EXECFN is a C string that the kernel put on the first stack, and that stays there (getauxval(3)).
    let path = unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The ring's seed, from the kernel.
pub(crate) fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0u8; 32];
    // SAFETY: the pointer and length are the array's.
    let filled = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    if usize::try_from(filled) == Ok(seed.len()) { Ok(seed) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
pub(crate) mod tests;
