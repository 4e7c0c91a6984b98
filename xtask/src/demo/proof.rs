//! Proof that a round was offloaded: what Ringway's processes reported at their end, and what the kernel says it sent.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The file that Ringway's processes leave their reports in.
pub(crate) const REPORTS: &str = "reports";

/// What the kernel has sent on all its interfaces, loopback included.
#[derive(Clone, Copy)]
pub(super) struct Kernel(u64);

impl Kernel {
    /// TCP's OutSegs and UDP's OutDatagrams in /proc/net/snmp.
    pub(super) fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/net/snmp").context("/proc/net/snmp")?;
        let value = |protocol: &str, name: &str| {
            let mut lines = text.lines().filter(|l| l.starts_with(protocol));
            let column = lines.next()?.split_whitespace().position(|n| n == name)?;
            lines.next()?.split_whitespace().nth(column)?.parse::<u64>().ok()
        };
        let sum = value("Tcp:", "OutSegs").zip(value("Udp:", "OutDatagrams")).map(|(tcp, udp)| tcp + udp);
        Ok(Self(sum.context("/proc/net/snmp has neither OutSegs nor OutDatagrams")?))
    }

    pub(super) fn sent_since(self, before: Self) -> u64 {
        self.0 - before.0
    }
}

/// What Ringway's processes say they carried, summed over the rounds.
#[derive(Default)]
pub(crate) struct Carried {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    processes: u64,
    devices: Vec<String>,
    reasons: Vec<String>,
}

impl Carried {
    /// Adds a round's reports, and clears the file.
    pub(crate) fn add(&mut self, scratch: &Path) -> Result<()> {
        let file = scratch.join(REPORTS);
        let text = fs::read_to_string(&file).context("the processes on Ringway left no report: was the library preloaded?")?;
        fs::remove_file(&file)?;
        for line in text.lines() {
            let report: serde_json::Value = serde_json::from_str(line)?;
            self.processes += 1;
            self.frames += report["ring"]["tx_packets"].as_u64().unwrap_or(0);
            self.bytes += report["ring"]["tx_bytes"].as_u64().unwrap_or(0);
            remember(&mut self.devices, report["device"]["kind"].as_str());
            for decision in report["decisions"].as_array().into_iter().flatten() {
                remember(&mut self.reasons, decision["advice"].as_str().filter(|a| !a.is_empty()));
            }
        }
        Ok(())
    }

    /// Whether both directions of that many round trips went through the rings.
    pub(crate) fn check(&self, round_trips: u64) -> Result<()> {
        ensure!(
            self.frames >= 2 * round_trips,
            "not offloaded: {} frames for {round_trips} round trips; {}",
            self.frames,
            self.reasons.join("; ")
        );
        Ok(())
    }
}

/// The lines below the histogram.
pub(super) fn print(carried: &Carried, [kernel_rounds, ringway_rounds]: [u64; 2]) {
    println!("\nOffloaded? {} processes on the device {}:", carried.processes, carried.devices.join(", "));
    println!("  Ringway's rings sent {} frames with {} bytes", carried.frames, carried.bytes);
    println!("  the kernel sent {kernel_rounds} packets in its own rounds, and {ringway_rounds} in Ringway's (/proc/net/snmp)");
}

fn remember(list: &mut Vec<String>, word: Option<&str>) {
    if let Some(word) = word.filter(|w| !list.iter().any(|l| l == w)) {
        list.push(word.to_owned());
    }
}
