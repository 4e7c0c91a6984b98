//! What `--so_flags` says: `name=value`, separated by commas. Names are Linux's sysctls, the interface's MTU and the host's addresses.
//!
//! `net.ipv4.tcp_timestamps=0,net.ipv4.tcp_rmem=4096 540000 15728640,mtu=1500,local_ip=192.168.0.1`
//!
//! A script may change sysctls while it runs, by a shell command: one that adds a line like these to the file which the flag `sysctls` names is heard of
//! before the next call.

use core::time::Duration;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ringway_stack::tcp::{self, congestion::Algorithm};

/// The host's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What sockets begin with.
    pub(crate) tcp: tcp::Config,
    /// Linux's tcp_fastopen: clients (1), servers (2), clients without a cookie (4), servers without (0x200), all listeners (0x400).
    pub(crate) fast_open: u32,
    /// Keepalive of sockets that ask for it.
    pub(crate) keepalive: tcp::Keepalive,
    /// The interface's, in bytes of IP packet.
    pub(crate) mtu: usize,
    /// Where connections come from that their socket is not bound for, of each family.
    pub(crate) local_v4: IpAddr,
    pub(crate) local_v6: IpAddr,
    /// Where sysctls that change come from, and how many bytes of it were read.
    changes: Option<(PathBuf, usize)>,
}

impl Default for Settings {
    /// Linux's defaults, and packetdrill's addresses.
    fn default() -> Self {
        Self {
            tcp: tcp::Config::default(),
            fast_open: 1,
            keepalive: tcp::Keepalive::default(),
            mtu: 1500,
            local_v4: IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
            local_v6: IpAddr::V6(Ipv6Addr::new(0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1)),
            changes: None,
        }
    }
}

impl Settings {
    /// Reads flags. What the stack has no setting for (or no such value) is returned, and changes nothing.
    pub(crate) fn parse(flags: &str) -> (Self, Vec<&str>) {
        let mut settings = Self::default();
        let flags = flags.split(',').map(str::trim).filter(|flag| !flag.is_empty());
        let unknown = flags.filter(|flag| flag.split_once('=').and_then(|(name, value)| settings.set(name.trim(), value.trim())).is_none());
        let unknown = unknown.collect();
        (settings, unknown)
    }

    /// Reads what was added to the file of changes since the last call. Whether there was anything.
    pub(crate) fn change(&mut self) -> bool {
        let Some((path, read)) = &mut self.changes else { return false };
        let is_new = fs::metadata(&*path).is_ok_and(|file| file.len() > *read as u64);
        let Some(text) = is_new.then(|| fs::read_to_string(&*path).ok()).flatten() else { return false };
        let added = text.get(*read..).unwrap_or_default().to_owned();
        *read = text.len();
        for (name, value) in added.lines().filter_map(|line| line.split_once('=')) {
            // (What the stack has no setting for changes nothing, as among the flags.)
            let _ = self.set(name.trim(), value.trim());
        }
        true
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let name = name.strip_prefix("net.ipv4.").unwrap_or(name);
        match name {
            "local_ip" => match value.parse().ok()? {
                ip @ IpAddr::V4(_) => self.local_v4 = ip,
                ip @ IpAddr::V6(_) => self.local_v6 = ip,
            },
            "sysctls" => self.changes = Some((value.into(), 0)),
            "mtu" => self.mtu = value.parse().ok().filter(|mtu| (576..=65_535).contains(mtu))?,
            "tcp_fastopen" => {
                let (digits, radix) = value.strip_prefix("0x").map_or((value, 10), |digits| (digits, 16));
                self.fast_open = u32::from_str_radix(digits, radix).ok()?;
            }
            "tcp_fastopen_key" => self.tcp.fast_open.keys = Some(fast_open_keys(value)?),
            "tcp_rmem" => [_, self.tcp.rcvbuf_initial, self.tcp.rcvbuf_max] = three(value)?,
            "tcp_congestion_control" => self.tcp.congestion = Algorithm::by_name(value)?,
            "tcp_wmem" => [_, self.tcp.sndbuf_initial, self.tcp.sndbuf_max] = three(value)?,
            _ => self.set_number(name, value.parse().ok()?)?,
        }
        Some(())
    }

    fn set_number(&mut self, name: &str, value: u32) -> Option<()> {
        let seconds = Duration::from_secs(u64::from(value));
        match name {
            // (2: without the random offset that 1 has. The tester doesn't care.)
            "tcp_timestamps" => self.tcp.timestamps = value != 0,
            "tcp_sack" => self.tcp.sack = value != 0,
            "tcp_window_scaling" => self.tcp.window_scaling = value != 0,
            // (3 to 5 are of AccECN, which asks or accepts as 1 and 2 do where the peer has none.)
            "tcp_ecn" => {
                self.tcp.ecn = match value {
                    0 => tcp::Ecn::Off,
                    1 | 3 => tcp::Ecn::Asked,
                    2 | 4 | 5 => tcp::Ecn::Accepted,
                    _ => return None,
                }
            }
            // (One number serves both: of which the scripts at hand change the first alone.)
            "tcp_syn_retries" => self.tcp.syn_retries = value,
            "tcp_retries2" => self.tcp.retries = value,
            "tcp_fin_timeout" => self.tcp.fin_wait2 = seconds,
            "tcp_mtu_probing" => self.tcp.black_hole_detection = value != 0,
            "tcp_keepalive_time" => self.keepalive.idle = seconds,
            "tcp_keepalive_intvl" => self.keepalive.interval = seconds,
            "tcp_keepalive_probes" => self.keepalive.count = value,
            _ => return None,
        }
        Some(())
    }
}

/// tcp_fastopen_key: a key, or two with a comma between them, each four words in hexadecimal, whose least significant byte is the key's first.
fn fast_open_keys(value: &str) -> Option<tcp::FastOpenKeys> {
    let words: Option<Vec<u32>> = value.split(['-', ',']).map(|word| u32::from_str_radix(word.trim(), 16).ok()).collect();
    let bytes: Vec<u8> = words?.iter().flat_map(|word| word.to_le_bytes()).collect();
    tcp::FastOpenKeys::of_bytes(&bytes)
}

/// Three numbers, as tcp_rmem and tcp_wmem have.
fn three(value: &str) -> Option<[usize; 3]> {
    let numbers: Option<Vec<usize>> = value.split_whitespace().map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_what_has_no_meaning_is_told() {
        let (settings, unknown) = Settings::parse(
            "net.ipv4.tcp_timestamps=0, tcp_rmem=4096 540000 15728640,mtu=1520,net.ipv4.tcp_frto=2,local_ip=10.0.0.9,tcp_wmem=1 2",
        );
        assert_eq!((settings.tcp.timestamps, settings.tcp.sack), (false, true));
        assert_eq!((settings.tcp.rcvbuf_initial, settings.tcp.rcvbuf_max, settings.mtu), (540_000, 15_728_640, 1520));
        assert_eq!(settings.local_v4, IpAddr::from([10, 0, 0, 9]));
        assert_eq!(unknown, ["net.ipv4.tcp_frto=2", "tcp_wmem=1 2"]);
        assert_eq!(settings.tcp.sndbuf_initial, tcp::Config::default().sndbuf_initial);
    }
}
