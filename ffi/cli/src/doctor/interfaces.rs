//! What interfaces are good for: how their drivers have XDP, who has their queues, and what this machine lacks for them.

use std::fs;
use std::path::Path;

use ringway_devices::{InFront, Runs, Survey, interface_found, locked_by_interface};
use ringway_host::capabilities::{self, Capability};
use ringway_host::netlink::{SendOffer, XdpMode, XdpOffer, XdpSocket, xdp_offer, xdp_sockets};
use ringway_params::kind::{self, Driver};
use ringway_params::{Id, Settings};
use ringway_report::printable;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// So many are shown, where none is named.
const SHOWN_MAX: usize = 16;

/// The oldest kernel that puts a program in front of an interface by a link (BPF_LINK_CREATE).
pub(super) const KERNEL_MIN: (u32, u32) = (5, 9);
/// What later ones have in addition.
const SINCE: [((u32, u32), &str); 3] = [
    ((6, 3), "what modes a driver has, this kernel does not say (Linux 6.3)"),
    ((6, 4), "no broker (Linux 6.4)"),
    ((6, 6), "no MTU beyond 3822 bytes on interfaces (Linux 6.6)"),
];

/// An interface.
#[derive(Serialize)]
pub(super) struct Interface {
    pub(super) name: String,
    /// zero-copy, native, generic, or unknown.
    pub(super) mode: &'static str,
    /// What that means, its queues, and who has them.
    pub(super) detail: String,
}

/// The kernel's release, as far as it counts.
pub(super) fn kernel() -> Option<(u32, u32)> {
    version(&release())
}

/// As uname(1) has it.
pub(super) fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim_end().to_owned()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// What a kernel lacks; nothing, if that is empty.
pub(super) fn lacks(kernel: (u32, u32)) -> String {
    SINCE.iter().filter(|(since, _)| kernel < *since).map(|(_, what)| *what).collect::<Vec<_>>().join("; ")
}

/// How much memory may be locked; and whether that is enough for a ring of an interface.
pub(super) fn locked_memory() -> (bool, String) {
    locked(getrlimit(Resource::Memlock).current, capabilities::lacking(&[Capability::IpcLock]).is_empty())
}

fn locked(limit: Option<u64>, is_exempt: bool) -> (bool, String) {
    let wanted = locked_by_interface();
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    match limit {
        _ if is_exempt => (true, "as much as there is (CAP_IPC_LOCK)".to_owned()),
        None => (true, "as much as there is".to_owned()),
        Some(limit) if limit >= wanted => (true, format!("{}, of which a ring of an interface takes {}", mib(limit), mib(wanted))),
        Some(limit) => {
            let advice = "raise it (ulimit -l, LimitMEMLOCK= of a unit), or have a broker";
            (false, format!("{}, and a ring of an interface takes {}: {advice}", mib(limit), mib(wanted)))
        }
    }
}

/// The interfaces that RINGWAY_DEVICE names; else all of Ethernet that are up.
pub(super) fn examine(settings: &Settings) -> Vec<Interface> {
    let named = kind::interfaces(settings.text(Id::Device)).unwrap_or_default();
    let of_xdp = named.into_iter().filter(|named| named.driver == Driver::Xdp);
    let mut names: Vec<String> = of_xdp.map(|named| named.name.to_owned()).collect();
    if names.is_empty() {
        names = all_up();
    }
    let sockets = xdp_sockets().ok().flatten();
    names.into_iter().take(SHOWN_MAX).map(|name| Interface::of(name, sockets.as_deref())).collect()
}

/// (sysfs has those of the network namespace that it was mounted in, which need not be this one.)
fn all_up() -> Vec<String> {
    let listed = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = listed.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    names.filter(|name| interface_found(name).is_ok()).collect()
}

impl Interface {
    fn of(name: String, sockets: Option<&[XdpSocket]>) -> Self {
        let survey = match interface_found(&name) {
            Ok(survey) => survey,
            Err(detail) => return Self { name, mode: "none", detail },
        };
        let offer = xdp_offer(survey.index).ok().flatten();
        let mode = mode(&survey, offer);
        let holders = sockets.map(|all| holders(all, &survey));
        let owner = survey.program.map(|program| who_has_program(program.id)).unwrap_or_default();
        let mut detail = detail(&survey, (mode, offer.is_some()), holders.as_deref(), &owner);
        detail += &offer.map(|offer| sends(offer.send)).unwrap_or_default();
        detail += &Deferral::of(&name, survey.index).map(Deferral::tell).unwrap_or_default();
        Self { name, mode: name_of(mode), detail }
    }
}

/// What the kernel says that the driver can, or, before it does so (Linux 6.3), who runs the program that is there.
fn mode(survey: &Survey, offer: Option<XdpOffer>) -> Option<XdpMode> {
    let in_use = survey.program.and_then(|program| match program.runs {
        Runs::Driver => Some(XdpMode::Native),
        Runs::Kernel => Some(XdpMode::Generic),
        // (Of the driver and the kernel, it says nothing.)
        Runs::Hardware => None,
    });
    match offer.map(|offer| offer.mode) {
        // (A driver may have a mode, and not for the interface as it is set up.)
        Some(_) if in_use == Some(XdpMode::Generic) => in_use,
        None => in_use,
        said => said,
    }
}

/// What the driver does to what AF_XDP sends.
fn sends(offer: SendOffer) -> String {
    let all = [(offer.checksum, "checksums"), (offer.timestamp, "timestamps"), (offer.launch_time, "launch times")];
    let own: Vec<_> = all.iter().filter(|(is_offered, _)| *is_offered).map(|(_, what)| *what).collect();
    if own.is_empty() { "; no offloads of sends".to_owned() } else { format!("; offloads of sends: {}", own.join(", ")) }
}

/// How long the kernel has an interface raise no interrupts (Documentation/networking/napi.rst).
#[derive(Clone, Copy, Debug)]
struct Deferral {
    /// napi_defer_hard_irqs: looks at a queue that found nothing, until which it raises none.
    looks: u64,
    /// gro_flush_timeout: from one of these to the next, unless a program has it look before.
    each_ns: u64,
}

impl Deferral {
    /// As sysfs has it, if that is this network namespace's.
    fn of(name: &str, index: u32) -> Option<Self> {
        let number = |file| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok()?.trim_end().parse::<u64>().ok();
        let is_its = number("ifindex") == Some(index.into());
        is_its.then_some(())?;
        Some(Self { looks: number("napi_defer_hard_irqs")?, each_ns: number("gro_flush_timeout")? })
    }

    fn tell(self) -> String {
        match self {
            Self { looks: 0, .. } | Self { each_ns: 0, .. } => {
                "; interrupts are not deferred (napi_defer_hard_irqs and gro_flush_timeout, for RINGWAY_BUSY_POLL)".to_owned()
            }
            Self { looks, each_ns } => {
                format!("; interrupts are deferred for {looks} times {} us (napi_defer_hard_irqs, gro_flush_timeout)", each_ns as f64 / 1e3)
            }
        }
    }
}

const fn name_of(mode: Option<XdpMode>) -> &'static str {
    match mode {
        Some(XdpMode::ZeroCopy) => "zero-copy",
        Some(XdpMode::Native) => "native",
        Some(XdpMode::Generic) => "generic",
        None => "unknown",
    }
}

/// A process that has a queue, and whether frames get there without a copy.
type Holder = (u32, String, bool);

/// `is_said`: the kernel says what the driver has, and not just who runs the program that is there; `holders`: who has which of its queues, as far as that is known; `owner`: and who the program in front of it.
fn detail(survey: &Survey, (mode, is_said): (Option<XdpMode>, bool), holders: Option<&[Holder]>, owner: &str) -> String {
    let Survey { driver, queues, program, .. } = survey;
    let driver = if driver.is_empty() { "its driver".to_owned() } else { printable(driver.clone()) };
    let meaning = match mode {
        Some(XdpMode::ZeroCopy) => format!("{driver} puts frames into the ring's own memory"),
        Some(XdpMode::Native) if !is_said => {
            format!("{driver} runs the program; what else it has, this kernel does not say (Linux 6.3 does)")
        }
        Some(XdpMode::Native) => format!("{driver} runs the program, and has no zero-copy mode: the kernel copies frames"),
        Some(XdpMode::Generic) => format!("{driver} has no XDP: the kernel runs the program behind it, and copies frames, which is slower"),
        None => format!("{driver}; this kernel does not say what that has (Linux 6.3 does)"),
    };
    let noun = if *queues == 1 { "queue" } else { "queues" };
    let of = if owner.is_empty() { String::new() } else { format!(" of {owner}") };
    let front = program.map(|InFront { id, runs }| {
        let place = if runs == Runs::Hardware { "in its hardware" } else { "in front of it" };
        format!("; program {id}{of} is {place} (bpftool prog show id {id})")
    });
    let front = front.unwrap_or_default();
    let taken = match holders {
        // (Somebody has a program there, and who cannot be told.)
        None if program.is_some() => "; who has them, this kernel does not say (CONFIG_XDP_SOCKETS_DIAG)".to_owned(),
        None | Some([]) => String::new(),
        Some(holders) => {
            // (A driver that has the mode may refuse it, and the kernel copies then.)
            let copied = |is_zero_copy: &bool| if mode == Some(XdpMode::ZeroCopy) && !is_zero_copy { ", by copies" } else { "" };
            let each: Vec<_> = holders.iter().map(|(queue, who, is_zero_copy)| format!("{queue}: {who}{}", copied(is_zero_copy))).collect();
            format!("; in use: {}", each.join(", "))
        }
    };
    format!("{meaning}; {queues} {noun}{taken}{front}")
}

/// Who has which queues of an interface.
fn holders(sockets: &[XdpSocket], survey: &Survey) -> Vec<Holder> {
    let mut own: Vec<_> = sockets.iter().filter(|socket| socket.interface == survey.index).collect();
    own.sort_by_key(|socket| socket.queue);
    own.iter().map(|socket| (socket.queue, who_has(socket.inode), socket.is_zero_copy)).collect()
}

/// The process with that socket, as far as this user may see.
fn who_has(inode: u32) -> String {
    let wanted = format!("socket:[{inode}]");
    let all = who(|_, link| link == Path::new(&wanted));
    if all.is_empty() { "a process that this user may not look at".to_owned() } else { all }
}

/// The processes with a link that has that program somewhere; nobody that this user sees, if that is empty.
fn who_has_program(id: u32) -> String {
    let is_its = |info: String| info.lines().any(|line| line.strip_prefix("prog_id:").is_some_and(|of| of.trim() == id.to_string()));
    who(|fd, link| link == Path::new("anon_inode:bpf_link") && fs::read_to_string(fd).is_ok_and(is_its))
}

/// The processes with a descriptor that is so: by what it is of, and where more of it is told.
fn who(is_so: impl Fn(&Path, &Path) -> bool) -> String {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has = |pid: &u32| {
        let mut fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let told_at = |fd: &fs::DirEntry| Path::new(&format!("/proc/{pid}/fdinfo")).join(fd.file_name());
        fds.any(|fd| fs::read_link(fd.path()).is_ok_and(|link| is_so(&told_at(&fd), &link)))
    };
    let name = |pid: u32| printable(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned());
    let all: Vec<_> = pids.filter(has).map(|pid| format!("{} ({pid})", name(pid))).collect();
    all.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_told_what_it_lacks() {
        assert_eq!([version("6.1.0-18-amd64"), version("5.9"), version("x")], [Some((6, 1)), Some((5, 9)), None]);
        assert_eq!(lacks((6, 18)), "");
        insta::assert_snapshot!(lacks((6, 1)), @"what modes a driver has, this kernel does not say (Linux 6.3); no broker (Linux 6.4); no MTU beyond 3822 bytes on interfaces (Linux 6.6)");
        assert_eq!(lacks((6, 5)), "no MTU beyond 3822 bytes on interfaces (Linux 6.6)");
    }

    #[test]
    fn too_little_memory_to_lock_is_told_with_what_would_do() {
        insta::assert_snapshot!(locked(Some(64 << 10), false).1, @"0.1 MiB, and a ring of an interface takes 12.0 MiB: raise it (ulimit -l, LimitMEMLOCK= of a unit), or have a broker");
        assert!(
            !locked(Some(64 << 10), false).0 && locked(Some(64 << 10), true).0 && locked(None, false).0 && locked(Some(12 << 20), false).0
        );
    }

    #[test]
    fn an_interfaces_line_says_how_it_does_and_who_has_it() {
        let survey = |driver: &str, queues, program: Option<u32>| {
            let runs = if program == Some(5) { Runs::Hardware } else { Runs::Driver };
            let program = program.map(|id| InFront { id, runs });
            Survey { index: 7, driver: driver.to_owned(), queues, program }
        };
        let holders = [(0, "redis (7)".into(), true), (1, "curl (8)".into(), false)];
        let says = [
            detail(&survey("veth", 1, None), (Some(XdpMode::Native), true), Some(&[]), ""),
            detail(&survey("ice", 2, Some(12)), (Some(XdpMode::ZeroCopy), true), Some(&holders), ""),
            detail(&survey("", 1, Some(12)), (Some(XdpMode::Generic), true), None, "ringway (9)"),
            detail(&survey("ena", 8, None), (None, false), None, ""),
            detail(&survey("virtio_net", 1, Some(4)), (Some(XdpMode::Native), false), None, "curl (8)"),
            detail(&survey("nfp", 1, Some(5)), (Some(XdpMode::Native), true), Some(&[]), ""),
        ];
        insta::assert_snapshot!(says.join("\n"), @r"
        veth runs the program, and has no zero-copy mode: the kernel copies frames; 1 queue
        ice puts frames into the ring's own memory; 2 queues; in use: 0: redis (7), 1: curl (8), by copies; program 12 is in front of it (bpftool prog show id 12)
        its driver has no XDP: the kernel runs the program behind it, and copies frames, which is slower; 1 queue; who has them, this kernel does not say (CONFIG_XDP_SOCKETS_DIAG); program 12 of ringway (9) is in front of it (bpftool prog show id 12)
        ena; this kernel does not say what that has (Linux 6.3 does); 8 queues
        virtio_net runs the program; what else it has, this kernel does not say (Linux 6.3 does); 1 queue; who has them, this kernel does not say (CONFIG_XDP_SOCKETS_DIAG); program 4 of curl (8) is in front of it (bpftool prog show id 4)
        nfp runs the program, and has no zero-copy mode: the kernel copies frames; 1 queue; program 5 is in its hardware (bpftool prog show id 5)
        ");
    }

    #[test]
    fn an_interfaces_mode_is_its_drivers_unless_the_kernel_runs_the_program() {
        let of = |offer: Option<XdpMode>, runs: Option<Runs>| {
            let program = runs.map(|runs| InFront { id: 1, runs });
            let offer = offer.map(|mode| XdpOffer { mode, send: SendOffer::default() });
            mode(&Survey { index: 7, driver: String::new(), queues: 1, program }, offer)
        };
        let (native, generic, zero_copy) = (Some(XdpMode::Native), Some(XdpMode::Generic), Some(XdpMode::ZeroCopy));
        let [driver, kernel, hardware] = [Runs::Driver, Runs::Kernel, Runs::Hardware].map(Some);
        assert_eq!([of(None, None), of(None, driver), of(None, kernel), of(None, hardware)], [None, native, generic, None]);
        assert_eq!([of(zero_copy, None), of(zero_copy, driver), of(zero_copy, hardware)], [zero_copy; 3]);
        assert_eq!(of(zero_copy, kernel), generic);
    }

    #[test]
    fn what_it_does_to_sends_is_told_and_how_long_it_raises_no_interrupts() {
        let all = SendOffer { checksum: true, timestamp: true, launch_time: true };
        let said = [
            sends(SendOffer::default()),
            sends(all),
            Deferral { looks: 0, each_ns: 200_000 }.tell(),
            Deferral { looks: 2, each_ns: 200_500 }.tell(),
        ];
        insta::assert_snapshot!(said.join("\n"), @r"
        ; no offloads of sends
        ; offloads of sends: checksums, timestamps, launch times
        ; interrupts are not deferred (napi_defer_hard_irqs and gro_flush_timeout, for RINGWAY_BUSY_POLL)
        ; interrupts are deferred for 2 times 200.5 us (napi_defer_hard_irqs, gro_flush_timeout)
        ");
    }
}
