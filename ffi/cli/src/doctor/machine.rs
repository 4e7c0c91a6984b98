//! What this machine can do: the library, what shared memory needs of the kernel, and each device.

use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};

use ringway_devices::broker::{BrokerError, interfaces_served};
use ringway_devices::{VerbsDeviceFound, cards_found, verbs_devices_found};
use ringway_host::capabilities;
use ringway_params::kind::{self, Driver, Named};
use ringway_params::{Id, Settings};
use ringway_stack::offload::{DeviceKind, Reason};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{getegid, geteuid, getgid, getuid};
use serde::Serialize;

use super::interfaces::{self, Interface, KERNEL_MIN};
use crate::library;
use crate::table::table;

/// All checks.
#[derive(Serialize)]
pub(super) struct Machine {
    checks: Vec<Check>,
    devices: Vec<Device>,
    interfaces: Vec<Interface>,
}

/// Something that must work.
#[derive(Serialize)]
struct Check {
    what: &'static str,
    ok: bool,
    /// What was found; or what failed, and what follows.
    detail: String,
}

/// A device, and why it is not available.
#[derive(Serialize)]
struct Device {
    device: &'static str,
    available: bool,
    reason: Option<&'static str>,
    advice: Option<String>,
    /// Whose it is, if not the process's own.
    by: Option<String>,
}

impl Machine {
    pub(super) fn examine() -> Self {
        let settings = Settings::from_environment();
        let shared_memory = [
            check("sealed memory", sealed_memory(), "kernel 5.1 or later, and a memfd_create that no sandbox forbids"),
            check("abstract sockets", abstract_socket(), "a sandbox that forbids Unix sockets cannot use shared memory"),
            check("eventfd", eventfd_works(), "raise the limit of open files (ulimit -n)"),
            check("one user", one_user(), "start it without set-user-id or set-group-id"),
        ];
        let missing = shared_memory.iter().find(|c| !c.ok).map(|c| format!("{}: {}", c.what, c.detail));
        let mut checks = vec![
            check("library", library::VMA.find().map(|l| l.display().to_string()).map_err(io::Error::other), "build or install it"),
            check("preloading", preloading(), "the library does not load into programs of this machine"),
            device_variable(&settings),
            kernel(),
            // (Shared memory takes none.)
            Check { what: "locked memory", ok: true, detail: interfaces::locked_memory().1 },
        ];
        checks.extend(shared_memory);
        let devices = [DeviceKind::Mlx5, DeviceKind::Rxe, DeviceKind::Xdp, DeviceKind::Shm].map(|kind| match (kind, &missing) {
            (DeviceKind::Shm, None) => available(kind, None),
            (DeviceKind::Shm, Some(why)) => unavailable(kind, Reason::NoResources, why.clone()),
            (DeviceKind::Xdp, _) => of_interfaces(&settings),
            (DeviceKind::Mlx5, _) => cards(),
            (DeviceKind::Rxe, _) => verbs_devices(),
            (DeviceKind::Sim, _) => unavailable(kind, Reason::DeviceMissing, "it is for tests".to_owned()),
        });
        Self { checks, devices: devices.into(), interfaces: interfaces::examine(&settings) }
    }

    /// Whether a program started now would be offloaded.
    pub(super) fn usable(&self) -> bool {
        self.checks.iter().all(|c| c.ok) && self.devices.iter().any(|d| d.available)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut checks = table(&["check", "", ""]);
        for check in &self.checks {
            checks.add_row([check.what, if check.ok { "ok" } else { "NO" }, &check.detail]);
        }
        let mut devices = table(&["device", "", ""]);
        for device in &self.devices {
            let reason = device.reason.zip(device.advice.as_deref()).map(|(r, a)| format!("{r}: {a}"));
            let reason = reason.or_else(|| device.by.clone()).unwrap_or_default();
            devices.add_row([device.device, if device.available { "yes" } else { "no" }, &reason]);
        }
        writeln!(f, "{checks}\n\n{devices}")?;
        if self.interfaces.is_empty() {
            return Ok(());
        }
        let mut interfaces = table(&["interface", "mode", ""]);
        for Interface { name, mode, detail } in &self.interfaces {
            interfaces.add_row([&format!("xdp:{name}"), *mode, detail]);
        }
        writeln!(f, "\n{interfaces}")
    }
}

/// Its release, and what that lacks.
fn kernel() -> Check {
    let release = interfaces::release();
    let lacks = interfaces::kernel().map(interfaces::lacks).filter(|lacks| !lacks.is_empty());
    Check { what: "kernel", ok: true, detail: lacks.map_or_else(|| release.clone(), |lacks| format!("{release}: {lacks}")) }
}

fn check(what: &'static str, result: io::Result<String>, advice: &str) -> Check {
    match result {
        Ok(detail) => Check { what, ok: true, detail },
        Err(error) => Check { what, ok: false, detail: format!("{error}; {advice}") },
    }
}

fn unavailable(kind: DeviceKind, reason: Reason, advice: String) -> Device {
    Device { device: kind.name(), available: false, reason: Some(reason.name()), advice: Some(advice), by: None }
}

fn available(kind: DeviceKind, by: Option<String>) -> Device {
    Device { device: kind.name(), available: true, reason: None, advice: None, by }
}

/// Interfaces, beside shared memory: the process's own privileges do, or a broker's.
fn of_interfaces(settings: &Settings) -> Device {
    if let Some(kernel) = interfaces::kernel().filter(|kernel| *kernel < KERNEL_MIN) {
        let advice = format!("Linux {}.{} puts no program in front of an interface by a link: that takes Linux 5.9", kernel.0, kernel.1);
        return unavailable(DeviceKind::Xdp, Reason::NoResources, advice);
    }
    let mut lacking = capabilities::lacking(&capabilities::OF_INTERFACES);
    if !interfaces::locked_memory().0 {
        lacking.insert(0, "memory that it may lock");
    }
    if lacking.is_empty() {
        return available(DeviceKind::Xdp, None);
    }
    let broker = Path::new(settings.text(Id::Broker));
    let why = match interfaces_served(broker) {
        Ok(served) => return available(DeviceKind::Xdp, Some(format!("by the broker at {}: {}", broker.display(), served.join(", ")))),
        Err(BrokerError::NotThere(_)) => format!("no broker listens at {} (ringway broker)", broker.display()),
        Err(why) => format!("the broker at {}: {why}", broker.display()),
    };
    let advice = format!("the process lacks {}, and {why}, so what interfaces would carry is the kernel's", lacking.join(", "));
    unavailable(DeviceKind::Xdp, Reason::NoResources, advice)
}

/// Cards, of which one that could have a ring is enough.
fn cards() -> Device {
    let missing = |advice| unavailable(DeviceKind::Mlx5, Reason::DeviceMissing, advice);
    let all = match cards_found() {
        Ok(all) if all.is_empty() => return missing("there is no RDMA device (ibv_devices)".to_owned()),
        Ok(all) => all,
        Err(why) => return missing(why),
    };
    let usable: Vec<_> = all.iter().filter_map(|card| Some(format!("mlx5:{}, on {}", card.name, card.interface.as_ref().ok()?))).collect();
    if !usable.is_empty() {
        return available(DeviceKind::Mlx5, Some(usable.join("; ")));
    }
    let why: Vec<_> = all.into_iter().filter_map(|card| Some(format!("{}: {}", card.name, card.interface.err()?))).collect();
    unavailable(DeviceKind::Mlx5, Reason::NoResources, why.join("; "))
}

/// Verbs devices, of which one that could have a ring is enough.
fn verbs_devices() -> Device {
    let missing = |advice| unavailable(DeviceKind::Rxe, Reason::DeviceMissing, advice);
    let all = match verbs_devices_found() {
        Ok(all) if all.is_empty() => {
            return missing("there is no RDMA device (rdma link add rxe0 type rxe netdev INTERFACE makes one)".to_owned());
        }
        Ok(all) => all,
        Err(why) => return missing(why),
    };
    let of = |device: &VerbsDeviceFound| {
        let (interface, datagram) = device.port.as_ref().ok()?;
        Some(format!("rxe:{}, on {interface}: rsockets, and TCP and UDP in datagrams of {datagram} bytes", device.name))
    };
    let usable: Vec<_> = all.iter().filter_map(of).collect();
    if !usable.is_empty() {
        return available(DeviceKind::Rxe, Some(usable.join("; ")));
    }
    let why: Vec<_> = all.into_iter().filter_map(|device| Some(format!("{}: {}", device.name, device.port.err()?))).collect();
    unavailable(DeviceKind::Rxe, Reason::NoResources, why.join("; "))
}

/// The seals under which peers may map a member's memory: it cannot shrink below them, nor can they write.
fn sealed_memory() -> io::Result<String> {
    let memory = memfd_create("ringway-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, 4096)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
    Ok(String::new())
}

fn abstract_socket() -> io::Result<String> {
    let name = format!("ringway/{}/doctor/{}", geteuid(), std::process::id());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    Ok(String::new())
}

fn eventfd_works() -> io::Result<String> {
    eventfd(0, EventfdFlags::CLOEXEC)?;
    Ok(String::new())
}

fn one_user() -> io::Result<String> {
    if getuid() == geteuid() && getgid() == getegid() {
        Ok(format!("uid {}", geteuid()))
    } else {
        Err(io::Error::other("the real and the effective user differ"))
    }
}

/// Loads the library into a program that does nothing. ld.so(8) goes on without a library that it cannot preload, and
/// says so on standard error.
fn preloading() -> io::Result<String> {
    let library = library::VMA.find().map_err(io::Error::other)?;
    let mut program = Command::new("true");
    let output = program.env("LD_PRELOAD", library).env("RINGWAY_DEVICE", "off").stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().find(|l| l.contains("cannot be preloaded")) {
        Some(line) => Err(io::Error::other(line.to_owned())),
        None if output.status.success() => Ok(String::new()),
        None => Err(io::Error::other(format!("a program that does nothing ended with {}", output.status))),
    }
}

/// The variable that chooses the device. Advice is given only where it is another setting than the present one.
fn device_variable(settings: &Settings) -> Check {
    let (ok, detail) = match settings.text(Id::Device) {
        "off" => (false, format!("off ({}): unset it, or set it to auto", Reason::SwitchedOff)),
        name @ ("auto" | "shm") if settings.is_set(Id::Device) => (true, name.to_owned()),
        "auto" => (true, "not set: auto".to_owned()),
        devices if kind::interfaces(devices).is_some() => interfaces_named(devices),
        other => (false, format!("{other:?}: {}", Reason::UnknownDevice.advice())),
    };
    Check { what: "RINGWAY_DEVICE", ok, detail }
}

/// Those that RINGWAY_DEVICE names, of which some may not be there.
fn interfaces_named(devices: &str) -> (bool, String) {
    let place = |driver| match driver {
        Driver::Xdp => ("/sys/class/net", "interface"),
        Driver::Mlx5 | Driver::Rxe => ("/sys/class/infiniband", "RDMA device"),
    };
    let mut all = kind::interfaces(devices).unwrap_or_default().into_iter();
    match all.find(|named| !Path::new(place(named.driver).0).join(named.name).exists()) {
        Some(Named { name, driver, .. }) => {
            (false, format!("{devices}: no {} is called {name}, so its sockets are the kernel's", place(driver).1))
        }
        None => (true, devices.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_another_setting_than_the_present_one() {
        let with = |device: Option<&str>| {
            let settings = Settings::read(|name| device.filter(|_| name == "RINGWAY_DEVICE").map(str::to_owned));
            let Check { ok, detail, .. } = device_variable(&settings);
            (ok, detail)
        };
        assert_eq!(with(None), (true, "not set: auto".to_owned()));
        assert_eq!(with(Some("auto")), (true, "auto".to_owned()));
        assert_eq!(with(Some("off")), (false, "off (switched-off): unset it, or set it to auto".to_owned()));
        let (ok, detail) = with(Some("mlx6"));
        assert!(!ok && detail.contains("mlx6") && detail.contains("auto, shm, shm,xdp:INTERFACE or off"), "{detail}");
        let (ok, detail) = with(Some("shm,xdp:lo,xdp:nowhere0"));
        assert!(!ok && detail.contains("nowhere0") && !detail.contains("lo:"), "{detail}");
        assert!(with(Some("shm,xdp:lo")).0);
        let (ok, detail) = with(Some("mlx5:nowhere0"));
        assert!(!ok && detail.contains("no RDMA device is called nowhere0"), "{detail}");
        // (What is not built in is no matter of the setting.)
        let advised = Machine::examine().devices.into_iter().filter_map(|device| device.advice);
        assert!(advised.into_iter().all(|advice| !advice.contains("RINGWAY_DEVICE")));
    }
}
