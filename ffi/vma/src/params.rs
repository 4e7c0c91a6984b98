//! The parameters: RINGWAY_* and VMA_* environment variables (vma.md section 3).
//!
//! Every number is checked, also those that no device here heeds yet: a parameter that cannot be understood leaves the
//! program on the kernel from its first call, and the log names it.

use std::io;
use std::sync::OnceLock;

use ringway_stack::offload::Reason;

/// What the parameters came to.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    /// VMA_RX_POLL in microseconds: -1 spins for ever, 0 not at all. `None`: not set, so the policy decides, below the default.
    pub(crate) rx_poll_us: Option<i64>,
    /// VMA_SELECT_POLL, likewise.
    pub(crate) select_poll_us: Option<i64>,
    /// VMA_RX_UDP_POLL_OS_RATIO: the kernel's half of a socket is asked once in so many polls; 0: only before sleeping.
    pub(crate) rx_udp_poll_os_ratio: u32,
    /// VMA_SELECT_POLL_OS_RATIO, likewise for poll, select and epoll.
    pub(crate) select_poll_os_ratio: u32,
    /// VMA_PROGRESS_ENGINE_INTERVAL; 0: no progress between the program's calls.
    pub(crate) progress_engine_interval_ms: u32,
    /// VMA_CQ_POLL_BATCH_MAX.
    pub(crate) cq_poll_batch_max: usize,
    /// VMA_TCP_NODELAY: no Nagle algorithm, whatever the program asks for.
    pub(crate) tcp_nodelay: bool,
    /// VMA_TCP_QUICKACK.
    pub(crate) tcp_quickack: bool,
    /// VMA_RX_BYTES_MIN: the floor under SO_RCVBUF.
    pub(crate) rx_bytes_min: usize,
    /// VMA_OFFLOADED_SOCKETS.
    pub(crate) offloaded_sockets: bool,
}

/// VMA_RX_POLL's and VMA_SELECT_POLL's default, which is a ceiling.
pub(crate) const POLL_US_DEFAULT: i64 = 100_000;

/// A VMA_SPEC: its names, and what it sets as far as a parameter is heeded here.
struct Spec {
    names: &'static [&'static str],
    sets: &'static [(&'static str, i64)],
}

const SPECS: &[Spec] = &[
    Spec { names: &["none", "0"], sets: &[] },
    Spec {
        names: &["latency", "15"],
        sets: &[
            ("VMA_RX_POLL", -1),
            ("VMA_SELECT_POLL", -1),
            ("VMA_SELECT_POLL_OS_RATIO", 1),
            ("VMA_PROGRESS_ENGINE_INTERVAL", 100),
            ("VMA_TCP_NODELAY", 1),
        ],
    },
    Spec {
        names: &["ultra-latency", "10"],
        sets: &[
            ("VMA_RX_POLL", -1),
            ("VMA_RX_UDP_POLL_OS_RATIO", 0),
            ("VMA_SELECT_POLL", -1),
            ("VMA_SELECT_POLL_OS_RATIO", 0),
            ("VMA_PROGRESS_ENGINE_INTERVAL", 0),
            ("VMA_TCP_NODELAY", 1),
        ],
    },
    Spec { names: &["multi_ring_latency"], sets: &[("VMA_RX_POLL", -1), ("VMA_SELECT_POLL", -1), ("VMA_SELECT_POLL_OS_RATIO", 0)] },
    Spec { names: &["mcd", "623"], sets: &[] },
    Spec { names: &["mcd-irq", "624"], sets: &[("VMA_RX_POLL", 0), ("VMA_SELECT_POLL", 0)] },
    Spec { names: &["rti", "784"], sets: &[("VMA_RX_POLL", -1)] },
    Spec {
        names: &["29west", "29"],
        sets: &[("VMA_RX_POLL", 0), ("VMA_RX_UDP_POLL_OS_RATIO", 100), ("VMA_SELECT_POLL", 100_000), ("VMA_SELECT_POLL_OS_RATIO", 100)],
    },
    Spec { names: &["wombat_fh", "554"], sets: &[("VMA_RX_POLL", 0), ("VMA_RX_UDP_POLL_OS_RATIO", 100), ("VMA_SELECT_POLL", 0)] },
    Spec { names: &["7750"], sets: &[("VMA_RX_POLL", -1), ("VMA_SELECT_POLL", -1), ("VMA_SELECT_POLL_OS_RATIO", 0)] },
];

/// Every parameter that is a number, with the least and greatest value that upstream documents.
const NUMBERS: &[(&str, i64, i64)] = &[
    ("VMA_CPU_USAGE_STATS", i64::MIN, i64::MAX),
    ("VMA_CQ_AIM_INTERRUPTS_RATE_PER_SEC", 0, i64::MAX),
    ("VMA_CQ_AIM_INTERVAL_MSEC", 0, i64::MAX),
    ("VMA_CQ_AIM_MAX_COUNT", 0, i64::MAX),
    ("VMA_CQ_AIM_MAX_PERIOD_USEC", 0, i64::MAX),
    ("VMA_CQ_KEEP_QP_FULL", i64::MIN, i64::MAX),
    ("VMA_CQ_MODERATION_COUNT", 0, i64::MAX),
    ("VMA_CQ_MODERATION_ENABLE", i64::MIN, i64::MAX),
    ("VMA_CQ_MODERATION_PERIOD_USEC", 0, i64::MAX),
    ("VMA_CQ_POLL_BATCH_MAX", 1, 128),
    ("VMA_FORK", i64::MIN, i64::MAX),
    ("VMA_GRO_STREAMS_MAX", 0, i64::MAX),
    ("VMA_LOG_DETAILS", 0, 3),
    ("VMA_MSS", 0, 65_535),
    ("VMA_MTU", 0, 65_535),
    ("VMA_OFFLOADED_SOCKETS", i64::MIN, i64::MAX),
    ("VMA_PROGRESS_ENGINE_INTERVAL", 0, 1 << 31),
    ("VMA_PROGRESS_ENGINE_WCE_MAX", 0, i64::MAX),
    ("VMA_QP_COMPENSATION_LEVEL", 0, i64::MAX),
    ("VMA_RING_ALLOCATION_LOGIC_RX", 0, 31),
    ("VMA_RING_ALLOCATION_LOGIC_TX", 0, 31),
    ("VMA_RING_LIMIT_PER_INTERFACE", 0, i64::MAX),
    ("VMA_RING_MIGRATION_RATIO_RX", -1, i64::MAX),
    ("VMA_RING_MIGRATION_RATIO_TX", -1, i64::MAX),
    ("VMA_RX_BUFS", 0, i64::MAX),
    ("VMA_RX_BYTES_MIN", 0, 1 << 31),
    ("VMA_RX_POLL", -1, 100_000_000),
    ("VMA_RX_POLL_INIT", -1, 100_000_000),
    ("VMA_RX_POLL_ON_TX_TCP", i64::MIN, i64::MAX),
    ("VMA_RX_POLL_YIELD", i64::MIN, i64::MAX),
    ("VMA_RX_UDP_POLL_OS_RATIO", 0, 1 << 31),
    ("VMA_RX_WRE", 0, i64::MAX),
    ("VMA_RX_WRE_BATCHING", 1, 1024),
    ("VMA_SELECT_POLL", -1, 100_000_000),
    ("VMA_SELECT_POLL_OS_RATIO", 0, 1 << 31),
    ("VMA_SELECT_SKIP_OS", 0, 1 << 31),
    ("VMA_STATS_FD_NUM", 0, i64::MAX),
    ("VMA_TCP_CC_ALGO", 0, 2),
    ("VMA_TCP_CTL_THREAD", 0, 2),
    ("VMA_TCP_MAX_SYN_RATE", 0, 100_000),
    ("VMA_TCP_NODELAY", i64::MIN, i64::MAX),
    ("VMA_TCP_QUICKACK", i64::MIN, i64::MAX),
    ("VMA_TCP_TIMER_RESOLUTION_MSEC", 0, i64::MAX),
    ("VMA_TCP_TIMESTAMP_OPTION", 0, 2),
    ("VMA_THREAD_MODE", 0, 3),
    ("VMA_TIMER_RESOLUTION_MSEC", 0, i64::MAX),
    ("VMA_TX_BUFS", 0, i64::MAX),
    ("VMA_TX_MAX_INLINE", 0, 884),
    ("VMA_TX_MC_LOOPBACK", i64::MIN, i64::MAX),
    ("VMA_TX_SEGS_TCP", 0, i64::MAX),
    ("VMA_TX_WRE", 0, i64::MAX),
    ("VMA_TX_WRE_BATCHING", 1, 64),
];

/// Programs that hand what they accept to forked workers, or inherit listeners into them: left to the kernel until
/// connections can change their owner.
const PREFORK_SERVERS: &[&str] =
    &["apache2", "httpd", "postgres", "postmaster", "sshd", "php-fpm", "gunicorn", "uwsgi", "unicorn", "lighttpd", "smbd", "dovecot"];

/// The parameters, read once.
///
/// # Errors
/// [`Reason::BadParameter`], with its name and value.
pub(crate) fn read() -> Result<&'static Params, (Reason, String)> {
    static PARAMS: OnceLock<Result<Params, String>> = OnceLock::new();
    PARAMS
        .get_or_init(|| parse(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())))
        .as_ref()
        .map_err(|detail| (Reason::BadParameter, detail.clone()))
}

fn parse(lookup: impl Fn(&str) -> Option<String>) -> Result<Params, String> {
    let spec = match lookup("VMA_SPEC") {
        Some(name) if !name.is_empty() => {
            let wanted = name.to_ascii_lowercase();
            let known = SPECS.iter().find(|spec| spec.names.contains(&wanted.as_str()));
            known.ok_or_else(|| format!("VMA_SPEC={name} is not a known specification"))?.sets
        }
        _ => &[],
    };
    for &(name, ..) in NUMBERS {
        number(&lookup, name)?;
    }
    let value = |name: &str| -> Result<Option<i64>, String> {
        let from_spec = || spec.iter().find(|(set, _)| *set == name).map(|&(_, value)| value);
        Ok(number(&lookup, name)?.or_else(from_spec))
    };
    let unsigned =
        |name: &str, default: u32| -> Result<u32, String> { Ok(value(name)?.map_or(default, |v| u32::try_from(v).unwrap_or(u32::MAX))) };
    let flag = |name: &str, default: bool| -> Result<bool, String> { Ok(value(name)?.map_or(default, |v| v != 0)) };
    Ok(Params {
        rx_poll_us: value("VMA_RX_POLL")?,
        select_poll_us: value("VMA_SELECT_POLL")?,
        rx_udp_poll_os_ratio: unsigned("VMA_RX_UDP_POLL_OS_RATIO", 100)?,
        select_poll_os_ratio: unsigned("VMA_SELECT_POLL_OS_RATIO", 10)?,
        progress_engine_interval_ms: unsigned("VMA_PROGRESS_ENGINE_INTERVAL", 10)?,
        cq_poll_batch_max: unsigned("VMA_CQ_POLL_BATCH_MAX", 16)? as usize,
        tcp_nodelay: flag("VMA_TCP_NODELAY", false)?,
        tcp_quickack: flag("VMA_TCP_QUICKACK", false)?,
        rx_bytes_min: unsigned("VMA_RX_BYTES_MIN", 65_536)? as usize,
        offloaded_sockets: flag("VMA_OFFLOADED_SOCKETS", true)?,
    })
}

/// A number as C's strtol takes it, within what is documented for its name.
fn number(lookup: impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<i64>, String> {
    let Some(text) = lookup(name) else { return Ok(None) };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Ok(None);
    }
    let parsed = match trimmed.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => trimmed.parse().ok(),
    };
    let (_, least, greatest) = NUMBERS.iter().find(|(known, ..)| *known == name).copied().unwrap_or((name, i64::MIN, i64::MAX));
    match parsed {
        Some(value) if (least..=greatest).contains(&value) => Ok(Some(value)),
        Some(value) => Err(format!("{name}={value} is outside of {least} to {greatest}")),
        None => Err(format!("{name}={trimmed} is not a number")),
    }
}

/// Whether this process may be offloaded at all.
///
/// # Errors
/// The reason why not, with what a person needs beside its advice.
pub(crate) fn admissible(params: &Params) -> Result<(), (Reason, String)> {
    // SAFETY: getauxval has no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Err((Reason::Privileged, String::new()));
    }
    let device = std::env::var_os("RINGWAY_DEVICE").map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
    match device.as_str() {
        "" | "auto" | "shm" => {}
        "off" => return Err((Reason::SwitchedOff, String::new())),
        "mlx5" | "rxe" | "xdp" => return Err((Reason::DeviceMissing, format!("RINGWAY_DEVICE={device}"))),
        _ => return Err((Reason::UnknownDevice, format!("RINGWAY_DEVICE={device}"))),
    }
    if !params.offloaded_sockets {
        return Err((Reason::SwitchedOff, "VMA_OFFLOADED_SOCKETS=0".to_owned()));
    }
    let program = program_name();
    if is_prefork_server(&program) {
        return Err((Reason::PreforkServer, program));
    }
    Ok(())
}

/// By the beginning of its name: distributions number their builds (php-fpm8.2), and parts have names of their own (sshd-session).
fn is_prefork_server(program: &str) -> bool {
    PREFORK_SERVERS.iter().any(|known| program.starts_with(known))
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

impl Params {
    /// What the shared-memory device is to be attached with.
    #[expect(clippy::unused_self, reason = "VMA_TX_BUFS and its like will be heeded here")]
    pub(crate) fn shm_settings(&self) -> ringway_shm::Settings {
        ringway_shm::Settings::default()
    }
}

#[cfg(test)]
mod tests;
