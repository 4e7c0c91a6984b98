//! What the process may do: capabilities(7).

/// A capability that a device takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Interfaces, neighbours and routes may be changed, and connections taken over.
    NetAdmin,
    /// Raw and packet sockets may be opened.
    NetRaw,
    /// Maps and programs may be loaded (before Linux 5.8: CAP_SYS_ADMIN).
    Bpf,
    /// Memory may be locked beyond RLIMIT_MEMLOCK.
    IpcLock,
}

impl Capability {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::Bpf => "CAP_BPF",
            Self::IpcLock => "CAP_IPC_LOCK",
        }
    }

    /// Its bits (linux/capability.h): each of them does.
    const fn bits(self) -> u64 {
        match self {
            Self::NetAdmin => 1 << 12,
            Self::NetRaw => 1 << 13,
            Self::Bpf => 1 << 39 | 1 << 21,
            Self::IpcLock => 1 << 14,
        }
    }
}

/// What an AF_XDP device takes.
pub const OF_INTERFACES: [Capability; 3] = [Capability::NetRaw, Capability::NetAdmin, Capability::Bpf];

/// What raw packets of a card take.
pub const OF_CARDS: [Capability; 1] = [Capability::NetRaw];

/// Those of them that the calling process lacks; none, where that cannot be told.
pub fn lacking(wanted: &[Capability]) -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    lacking_in(&status, wanted)
}

fn lacking_in(status: &str, wanted: &[Capability]) -> Vec<&'static str> {
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let Some(effective) = effective else { return Vec::new() };
    wanted.iter().filter(|capability| effective & capability.bits() == 0).map(|capability| capability.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(lacking_in("Name:\tx\nCapEff:\t000001ffffffffff\n", &OF_INTERFACES), <[&str; 0]>::default());
        assert_eq!(lacking_in("CapEff:\t0000000000000000\n", &OF_INTERFACES), ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"]);
        assert_eq!(lacking_in("CapEff:\t0000000000003000\n", &OF_INTERFACES), ["CAP_BPF"]);
        assert_eq!(lacking_in("CapEff:\t0000000000202000\n", &OF_INTERFACES), ["CAP_NET_ADMIN"]);
        assert!(lacking_in("", &OF_INTERFACES).is_empty());
    }
}
