//! A cable between two network namespaces: a veth pair, whose ends are interfaces that programs may have by RINGWAY_DEVICE.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::eventually;

/// How long the kernel may take for what it does at once, on a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longer than any case takes: a namespace ends with its last process.
const HELD_FOR_S: &str = "1200";

/// A network namespace, which ends with this.
pub(crate) struct Namespace {
    holder: Child,
}

/// An end of the cable: a network namespace with an interface, and its addresses.
pub(crate) struct End {
    namespace: Namespace,
    pub(crate) interface: &'static str,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

/// The end of those who ask, and that of those who serve.
pub(crate) struct Cable {
    pub(crate) asks: End,
    pub(crate) serves: End,
}

impl Cable {
    pub(crate) fn lay() -> Self {
        let cable = Self::unjoined();
        let [near, far] = [&cable.asks, &cable.serves].map(|end| (&end.namespace, end.interface));
        join(near, far);
        cable.raise();
        cable
    }

    /// Both ends, and nothing between them.
    pub(super) fn unjoined() -> Self {
        Self { asks: End::hold("a0", 1), serves: End::hold("b0", 2) }
    }

    /// Takes both ends into use.
    pub(super) fn raise(&self) {
        let ends = [&self.asks, &self.serves];
        for End { namespace, interface, v4, v6 } in ends {
            let addresses = format!("addr add {v4}/24 dev {interface}\naddr add {v6}/64 dev {interface} nodad\n");
            namespace.ip(&format!("link set lo up\nlink set {interface} up\n{addresses}"));
        }
        for end in ends {
            eventually("the interface is up", PATIENCE, || end.shows("state UP"));
        }
    }

    /// Nothing of those who had the interfaces is left in front of them. (The kernel ends a link a little later than its last descriptor.)
    pub(crate) fn is_bare(&self) {
        for end in [&self.asks, &self.serves] {
            eventually("nobody's program is in front of the interface", PATIENCE, || !end.shows("prog/xdp"));
        }
    }
}

/// A veth pair between two namespaces.
pub(super) fn join(near: (&Namespace, &str), far: (&Namespace, &str)) {
    let [near, far] = [near, far].map(|(namespace, interface)| format!("{interface} netns {}", namespace.holder.id()));
    let made = Command::new("ip").args(format!("link add name {near} type veth peer name {far}").split(' ')).status().expect("ip(8)");
    assert!(made.success(), "no cable is to be had: it takes root");
}

impl Namespace {
    pub(super) fn hold() -> Self {
        let holder = Command::new("unshare").args(["--net", "sleep", HELD_FOR_S]).spawn().expect("unshare is part of util-linux");
        let namespace = Self { holder };
        let own = fs::read_link("/proc/self/ns/net").expect("our network namespace");
        eventually("a namespace of its own", PATIENCE, || fs::read_link(namespace.path()).is_ok_and(|its| its != own));
        namespace
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// The calling thread is there from now on.
    pub(super) fn enter(&self) {
        let namespace = File::open(self.path()).expect("the holder lives");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns takes root");
    }

    /// Does something there.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                self.enter();
                work()
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub(super) fn ip(&self, lines: &str) {
        let mut child = self.within(|| Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip(8)"));
        child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("ip(8) reads");
        assert!(child.wait().expect("ip(8)").success(), "{lines}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl End {
    fn hold(interface: &'static str, number: u8) -> Self {
        let (v4, v6) = (Ipv4Addr::new(10, 79, 0, number), Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, number.into()));
        Self { namespace: Namespace::hold(), interface, v4, v6 }
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// What /proc/net is there.
    pub(crate) fn proc_net(&self) -> PathBuf {
        format!("/proc/{}/net", self.namespace.holder.id()).into()
    }

    /// Does something there.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.within(work)
    }

    fn shows(&self, what: &str) -> bool {
        let shown = self.within(|| Command::new("ip").args(["-details", "link", "show", self.interface]).output().expect("ip(8)"));
        String::from_utf8_lossy(&shown.stdout).contains(what)
    }
}
