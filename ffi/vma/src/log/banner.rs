//! What the log of a process begins with (vma.md s3, "Startup banner"): who it is, where and since when, and what its parameters are. (There
//! is no OFED whose version could be told.)

use core::ffi::{CStr, c_char};
use core::mem;

use ringway_params::{Row, Settings};

use super::level;

/// Says it: those parameters that differ from their defaults at INFO, and all others at DETAILS.
pub(super) fn tell(settings: &Settings) {
    tracing::info!("VMA_VERSION: Ringway {}", env!("CARGO_PKG_VERSION"));
    tracing::info!("Cmd Line: {}", command_line());
    tracing::info!("Current Time: {}", now());
    tracing::info!("Pid: {}", std::process::id());
    if let Some((architecture, node)) = machine() {
        tracing::info!("Architecture: {architecture}");
        tracing::info!("Node: {node}");
    }
    for (row, setting) in settings.iter() {
        let line = parameter(row, &setting.text);
        if setting.text == row.default {
            tracing::info!(target: level::DETAILS, "{line}");
        } else {
            tracing::info!("{line}");
        }
    }
}

/// The program and its arguments.
fn command_line() -> String {
    let arguments: Vec<_> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    arguments.join(" ")
}

/// A parameter: `<label> <value> [VMA_NAME]`.
fn parameter(row: &Row, value: &str) -> String {
    let words = row.name.trim_start_matches("VMA_").replace('_', " ").to_ascii_lowercase();
    let label: String = words.char_indices().map(|(at, c)| if at == 0 { c.to_ascii_uppercase() } else { c }).collect();
    format!("{label:<30} {value:<26} [{}]", row.name)
}

/// The time, as date(1) tells it here, and how far that is from UTC.
fn now() -> String {
    let mut text = [0 as c_char; 64];
    // SAFETY: all of a `tm` is integers and a pointer, for which zero is a value; the calls get valid pointers, and the array's length.
    unsafe {
        let seconds = libc::time(core::ptr::null_mut());
        let mut broken: libc::tm = mem::zeroed();
        if libc::localtime_r(&raw const seconds, &raw mut broken).is_null() {
            return seconds.to_string();
        }
        libc::strftime(text.as_mut_ptr(), text.len(), c"%a %b %e %H:%M:%S %Y %z".as_ptr(), &raw const broken);
    }
    word(&text)
}

/// The architecture, and the host's name.
fn machine() -> Option<(String, String)> {
    // SAFETY: all of it is bytes, for which zero is a value; the call gets a valid pointer.
    let names = unsafe {
        let mut names: libc::utsname = mem::zeroed();
        (libc::uname(&raw mut names) == 0).then_some(names)?
    };
    Some((word(&names.machine), word(&names.nodename)))
}

/// A C string in an array; nothing, if it does not end there. (A `c_char` is signed on x86-64 and unsigned on aarch64.)
fn word(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().flat_map(|c| c.to_ne_bytes()).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ringway_params::Id;

    use super::*;

    #[test]
    fn a_parameter_has_label_value_and_name() {
        let line = parameter(Id::RxPoll.row(), "-1");
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["Rx", "poll", "-1", "[VMA_RX_POLL]"]);
    }

    #[test]
    fn the_machine_is_told_as_uname_does() {
        let (architecture, node) = machine().expect("uname(2) fails for bad pointers only");
        assert_eq!(architecture, std::env::consts::ARCH);
        let known = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("procfs");
        assert_eq!(node, known.trim());
        assert!(now().len() > 20, "{}", now());
    }
}
