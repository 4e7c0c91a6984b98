//! One process: what it says itself, if it is on Ringway; else what /proc tells about why it is not.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, ensure};
use ringway_params::{Id, Kind};
use ringway_report::{Decision, InterfaceReport, ProcessReport, SocketReport, printable};
use ringway_stack::offload::Reason;
use rustix::process::geteuid;
use serde::Serialize;

use crate::table::table;
use crate::{binary, members};

/// What is known of a process.
#[derive(Serialize)]
pub(super) struct Diagnosis {
    pid: u32,
    program: String,
    /// What it says itself; `None`: it did not answer.
    report: Option<ProcessReport>,
    /// Why it did not.
    silence: Option<String>,
    /// What it does, or is, that no preloaded library sees.
    unseen: Vec<String>,
}

impl Diagnosis {
    /// Of a process that answered.
    pub(super) fn of_member(mut report: ProcessReport) -> Self {
        report.clean();
        let unseen = binary::unseen(report.pid);
        Self { pid: report.pid, program: report.program.clone(), report: Some(report), silence: None, unseen }
    }

    /// Of any process.
    ///
    /// # Errors
    /// There is no such process.
    pub(super) fn of_pid(pid: u32) -> Result<Self> {
        ensure!(
            fs::exists("/proc/self").unwrap_or(false),
            "there is no /proc here, which tells about processes (in a container: mount it)"
        );
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).with_context(|| format!("no process {pid}"))?;
        match members::reports(&[pid], "doctor") {
            Ok(mut reports) if !reports.is_empty() => Ok(Self::of_member(reports.remove(0))),
            _ => Ok(Self {
                pid,
                program: printable(program.trim_end().to_owned()),
                report: None,
                silence: Some(silence(pid)),
                unseen: binary::unseen(pid),
            }),
        }
    }

    /// Whether it has a device.
    pub(super) fn on_a_device(&self) -> bool {
        self.report.as_ref().is_some_and(|r| r.device.is_some())
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, program, report, silence, unseen } = self;
        if let Some(why) = silence {
            writeln!(f, "{program} ({pid}): not on Ringway: {why}")?;
            return unseen.iter().try_for_each(|what| writeln!(f, "  {what}"));
        }
        let Some(report) = report else { return Ok(()) };
        match &report.device {
            Some(d) => writeln!(f, "{program} ({pid}): offloaded by {}, address {}, {} peers, MTU {}", d.kind, d.mac, d.peers, d.mtu)?,
            None => writeln!(f, "{program} ({pid}): on the kernel")?,
        }
        report.interfaces.iter().try_for_each(|interface| writeln!(f, "  {}", queues(interface)))?;
        unseen.iter().try_for_each(|what| writeln!(f, "  {what}"))?;
        decisions(f, &report.decisions)?;
        sockets(f, report)
    }
}

/// Which queues of an interface it has, and on how many rings.
fn queues(interface: &InterfaceReport) -> String {
    let InterfaceReport { name, rings, carried: _, queues, knows_queues, by_broker, card } = interface;
    let list = |of: &[u32]| of.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let of_rings = rings.iter().map(|of| list(of)).collect::<Vec<_>>().join("; ");
    let whose = if *by_broker { " (a broker's)" } else { "" };
    let noun = |count: usize, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    if let Some(card) = card {
        return format!("mlx5:{card}, on {name}: {}", noun(rings.len(), "ring"));
    }
    let had: usize = rings.iter().map(Vec::len).sum();
    let unknown = if rings.len() > 1 && !knows_queues { ", and it does not say what comes to which" } else { "" };
    format!("xdp:{name}{whose}: {had} of {}, on {}: {of_rings}{unknown}", noun(*queues as usize, "queue"), noun(rings.len(), "ring"))
}

fn decisions(f: &mut fmt::Formatter<'_>, decisions: &[Decision]) -> fmt::Result {
    let mut rows = table(&["  decision", "device", "outcome", ">times", "advice"]);
    for d in decisions {
        let outcome = if d.reason.is_empty() { "offloaded" } else { &d.reason };
        rows.add_row([&format!("  {}", d.what), &d.device, outcome, &d.count.to_string(), &d.advice]);
    }
    if decisions.is_empty() { Ok(()) } else { writeln!(f, "{rows}") }
}

fn sockets(f: &mut fmt::Formatter<'_>, report: &ProcessReport) -> fmt::Result {
    let mut rows = table(&["  fd", "proto", "local", "remote", "state", "offloaded", "why not"]);
    for socket in &report.sockets {
        let fd = format!("  {}", socket.fd);
        let offloaded = if socket.offloaded { "yes" } else { "no" };
        rows.add_row([&fd, &socket.protocol, &socket.local, &socket.remote, &socket.state, offloaded, &why_not(socket)]);
    }
    if report.sockets.is_empty() { writeln!(f, "  no sockets") } else { writeln!(f, "{rows}") }
}

fn why_not(socket: &SocketReport) -> String {
    let Some(name) = &socket.reason else { return String::new() };
    if let Some(rule) = &socket.rule {
        return format!("{name}: {rule}");
    }
    match Reason::from_name(name) {
        Some(reason) => format!("{name}: {}", reason.advice()),
        None => name.clone(),
    }
}

/// Why a process that exists does not answer, as far as /proc tells.
fn silence(pid: u32) -> String {
    let file = |name: &str| format!("/proc/{pid}/{name}");
    let uid = fs::metadata(file("")).map(|m| m.uid());
    let ours = geteuid().as_raw();
    if uid.as_ref().is_ok_and(|&uid| uid != ours) {
        return format!("it runs as user {}, this is user {ours}; ask as that user", uid.unwrap_or_default());
    }
    let namespace = |path: &str| fs::read_link(path).ok();
    // (What cannot be read is not taken for another one.)
    let both = namespace(&file("ns/net")).zip(namespace("/proc/self/ns/net"));
    if both.is_some_and(|(its, ours)| its != ours) {
        return "it is in another network namespace; ask from there (nsenter --net)".to_owned();
    }
    match fs::read_to_string(file("maps")) {
        Err(error) => format!("nobody knows: it did not answer, and /proc/{pid}/maps cannot be read ({error}); ask as root"),
        Ok(maps) if maps.contains("libvma.so") => loaded(&file("environ")),
        Ok(maps) if !maps.contains("libc.so") => "a static program, which cannot be preloaded".to_owned(),
        Ok(_) => "libvma.so is not loaded; start it by ringway run".to_owned(),
    }
}

/// The library is there, and yet the process has no control socket: it decided for the kernel, or has not used a socket yet.
fn loaded(environ: &str) -> String {
    // (As the library reads it: blank is not set.)
    let device =
        read_variable(environ, "RINGWAY_DEVICE").map(|value| value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()));
    let sockets = read_variable(environ, Id::OffloadedSockets.row().name).unwrap_or_default();
    let sockets_are_off = sockets.is_some_and(|value| is_no(&value));
    match device.as_ref().map(Option::as_deref) {
        Ok(Some("off")) => format!("{}: RINGWAY_DEVICE=off; unset it, or set it to auto", Reason::SwitchedOff),
        Ok(None | Some("auto" | "shm")) if sockets_are_off => {
            format!("{}: VMA_OFFLOADED_SOCKETS=0; unset it, or set it to 1", Reason::SwitchedOff)
        }
        Ok(None | Some("auto" | "shm")) => {
            "libvma.so is loaded; either no socket was opened yet, or no device could be used (its log says why)".to_owned()
        }
        Ok(Some(name)) => format!("{} {}: {}", Reason::UnknownDevice, printable(name.to_owned()), Reason::UnknownDevice.advice()),
        Err(error) => format!("libvma.so is loaded; its environment cannot be read: {error}"),
    }
}

/// Whether a yes or no is no.
fn is_no(value: &str) -> bool {
    Kind::Bool.parse(value).is_some_and(|(_, number)| number == 0)
}

/// A variable of the environment that a process was started with.
fn read_variable(environ: &str, name: &str) -> Result<Option<String>, io::Error> {
    let all = fs::read(environ)?;
    let mut entries = all.split(|&b| b == 0).map(String::from_utf8_lossy);
    Ok(entries.find_map(|e| e.strip_prefix(name)?.strip_prefix('=').map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_calls_itself_commands_no_terminal() {
        let socket = SocketReport { state: "\u{1b}[2J".into(), ..Default::default() };
        let report = ProcessReport { program: "\u{1b}[31mred".into(), sockets: vec![socket], ..Default::default() };
        let diagnosis = Diagnosis::of_member(report);
        assert_eq!(diagnosis.program, "[31mred");
        let text = diagnosis.to_string();
        assert!(text.contains("[31mred") && text.contains("[2J") && !text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn it_is_told_which_queues_a_process_has() {
        let all = InterfaceReport { name: "eth0".into(), rings: vec![vec![0, 2], vec![1, 3]], queues: 4, ..Default::default() };
        assert_eq!(queues(&all), "xdp:eth0: 4 of 4 queues, on 2 rings: 0, 2; 1, 3, and it does not say what comes to which");
        let one = InterfaceReport { name: "eth0".into(), rings: vec![vec![0]], queues: 1, by_broker: true, ..Default::default() };
        assert_eq!(queues(&one), "xdp:eth0 (a broker's): 1 of 1 queue, on 1 ring: 0");
        let card = InterfaceReport { name: "eth0".into(), rings: vec![vec![]], card: Some("mlx5_0".into()), ..Default::default() };
        assert_eq!(queues(&card), "mlx5:mlx5_0, on eth0: 1 ring");
    }

    #[test]
    fn what_is_switched_off_is_named() {
        let path = std::env::temp_dir().join(format!("ringway-environ-{}", std::process::id()));
        let says = |environ: &str| {
            fs::write(&path, environ.replace(' ', "\0")).expect("a file");
            loaded(&path.to_string_lossy())
        };
        assert!(says("A=1 RINGWAY_DEVICE=off").contains("RINGWAY_DEVICE=off"));
        let sockets = says("VMA_OFFLOADED_SOCKETS=0 A=1");
        assert!(sockets.contains("VMA_OFFLOADED_SOCKETS=0") && !sockets.contains("RINGWAY_DEVICE"), "{sockets}");
        assert!(says("VMA_OFFLOADED_SOCKETS=1").contains("no socket was opened yet"));
        assert!(says("RINGWAY_DEVICE=foo").contains("unknown-device foo"));
        fs::remove_file(&path).expect("it was made here");
    }
}
