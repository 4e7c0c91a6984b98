//! The files in which an administrator sets defaults (rsocket(7)).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use ringway_stack::rsocket::Settings;

/// Where they are, as librdmacm's packages have it.
const FOLDER: &str = "/etc/rdma/rsocket";

/// What RINGWAY_DEVICE says.
pub(crate) fn device() -> String {
    std::env::var("RINGWAY_DEVICE").unwrap_or_default()
}

/// Whether rsockets are to be on a network, and not on shared memory.
pub(crate) fn is_on_network() -> bool {
    static IS_ON_NETWORK: OnceLock<bool> = OnceLock::new();
    *IS_ON_NETWORK.get_or_init(|| ringway_devices::messages::is_on_network(&device()))
}

/// Whoever connects has TCP as well, and so waits for no answer for long.
pub(crate) static HAS_TCP: AtomicBool = AtomicBool::new(false);

/// Where a broker listens that lends interfaces: what RINGWAY_BROKER says.
pub(crate) fn broker() -> PathBuf {
    std::env::var_os("RINGWAY_BROKER").map_or_else(ringway_devices::broker::default_socket, PathBuf::from)
}

/// What the files say, and defaults for the rest, of which the device knows how long receive buffers are.
pub(crate) fn settings(recv_buffer: u32) -> Settings {
    read(Path::new(FOLDER), recv_buffer)
}

/// librdmacm's defaults, but for what pays on the device.
fn defaults(recv_buffer: u32) -> Settings {
    let mut settings = Settings::default();
    settings.sizes.recv_buffer = recv_buffer;
    settings
}

fn read(folder: &Path, recv_buffer: u32) -> Settings {
    let mut settings = defaults(recv_buffer);
    for file in Settings::FILES {
        let path = folder.join(file);
        if let Ok(text) = fs::read_to_string(&path)
            && !settings.set(file, &text)
        {
            tracing::warn!("{}: not a number that can be used", path.display());
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_there_count() {
        let folder = std::env::temp_dir().join(format!("rsocket-config-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("sqsize_default"), "200\n").unwrap();
        fs::write(folder.join("mem_default"), "nonsense").unwrap();
        let settings = read(&folder, 4096);
        fs::remove_dir_all(&folder).unwrap();
        let default = defaults(4096);
        assert_eq!((settings.sizes.send_queue, settings.sizes.recv_buffer), (200, default.sizes.recv_buffer));
        assert_eq!(read(&folder, 4096), default, "none is there");
    }
}
