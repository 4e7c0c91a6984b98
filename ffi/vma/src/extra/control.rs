//! What a program tells the library, and asks it, beside its packets: rules and statistics.

use core::ffi::{CStr, c_char, c_int};

use ringway_report::SocketReport;

use crate::errno;
use crate::fdtable::{self, Entry};
use crate::process::process_or_init;
use crate::{log, report, rules};

/// See the header.
pub(super) unsafe extern "C" fn add_conf_rule(line: *const c_char) -> c_int {
    if line.is_null() {
        return errno::fail(libc::EINVAL);
    }
    // SAFETY: the program's promise: a C string.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    crate::boundary!(-1, {
        log::start();
        match rules::add(&line) {
            Ok(()) => 0,
            Err(error) => {
                tracing::warn!("add_conf_rule: {error}");
                errno::fail(libc::EINVAL)
            }
        }
    })
}

/// The levels that dump_fd_stats takes: VMA_TRACELEVEL's, without those that are for nobody.
const LEVELS: core::ops::RangeInclusive<c_int> = 1..=6;

/// See the header.
pub(super) extern "C" fn dump_fd_stats(fd: c_int, level: c_int) -> c_int {
    if !LEVELS.contains(&level) {
        return errno::fail(libc::EINVAL);
    }
    let wanted = |found: c_int| fd == 0 || found == fd;
    let is_known = fd == 0 || matches!(fdtable::lookup(fd), Entry::Socket(_) | Entry::Kernel(_));
    let Some(process) = process_or_init().filter(|process| is_known && process.is_owner()) else { return errno::fail(libc::EINVAL) };
    crate::boundary!(-1, {
        let mut reports = report::sockets(&process.lock());
        reports.retain(|report| wanted(report.fd));
        if reports.is_empty() && fd != 0 {
            return errno::fail(libc::EINVAL);
        }
        for line in reports.iter().flat_map(lines) {
            match level {
                1 => tracing::error!("{line}"),
                2 => tracing::warn!("{line}"),
                3 => tracing::info!("{line}"),
                4 => tracing::debug!("{line}"),
                _ => tracing::trace!("{line}"),
            }
        }
        0
    })
}

/// One socket's statistics in the words and the order of vma_stats' third view (vma.md s5); what is zero has no line.
fn lines(report: &SocketReport) -> Vec<String> {
    let mut lines = vec!["=".repeat(54), format!("\tFd=[{}]", report.fd), format!("\t- {}", report.protocol.to_uppercase())];
    let mut line = |is_there: bool, line: &dyn Fn() -> String| {
        if is_there {
            lines.push(line());
        }
    };
    line(!report.local.is_empty(), &|| format!("\t- Local Address   = [{}]", report.local));
    line(!report.remote.is_empty(), &|| format!("\t- Foreign Address = [{}]", report.remote));
    line(report.tx_packets > 0, &|| format!("\tTx Offload: {} / {} [kilobytes/packets]", report.tx_bytes / 1024, report.tx_packets));
    line(report.kernel_tx_packets > 0, &|| format!("\tTx OS info: {} [packets]", report.kernel_tx_packets));
    line(report.rx_packets > 0, &|| format!("\tRx Offload: {} / {} [kilobytes/packets]", report.rx_bytes / 1024, report.rx_packets));
    line(report.kernel_rx_packets > 0, &|| format!("\tRx OS info: {} [packets]", report.kernel_rx_packets));
    line(report.recv_queue > 0, &|| format!("\tRx byte: cur {}", report.recv_queue));
    line(report.retransmissions > 0, &|| format!("\tRetransmissions: {}", report.retransmissions));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_zero_has_no_line() {
        let report = SocketReport { fd: 20, protocol: "udp".to_owned(), local: "0.0.0.0:5".to_owned(), ..SocketReport::default() };
        assert_eq!(lines(&report)[1..], ["\tFd=[20]", "\t- UDP", "\t- Local Address   = [0.0.0.0:5]"]);
        let report = SocketReport { rx_packets: 9413, rx_bytes: 131_072, kernel_tx_packets: 2, ..report };
        assert_eq!(lines(&report)[4..], ["\tTx OS info: 2 [packets]", "\tRx Offload: 128 / 9413 [kilobytes/packets]"]);
    }
}
