//! What the tasks need beside Rust: Debian's packages, cargo's tools, rustup's components. Each is looked for first; what
//! is missing is installed where that is allowed, and otherwise named in one line.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::workspace::{cargo, run_command};

/// A Debian package, and the program by which its presence is seen.
#[derive(Clone, Copy)]
pub(crate) struct Package {
    name: &'static str,
    binary: &'static str,
}

impl Package {
    pub(crate) const APACHE_UTILS: Self = Self { name: "apache2-utils", binary: "ab" };
    pub(crate) const ARM_CC: Self = Self { name: "gcc-aarch64-linux-gnu", binary: "aarch64-linux-gnu-gcc" };
    pub(crate) const ARM_LIBC: Self = Self { name: "libc6-dev-arm64-cross", binary: "/usr/aarch64-linux-gnu/include/stdio.h" };
    /// One that needs no libraries.
    pub(crate) const BUSYBOX: Self = Self { name: "busybox-static", binary: "busybox" };
    pub(crate) const CC: Self = Self { name: "gcc libc6-dev", binary: "cc" };
    pub(crate) const CPIO: Self = Self { name: "cpio", binary: "cpio" };
    pub(crate) const CURL: Self = Self { name: "curl", binary: "curl" };
    pub(crate) const DIG: Self = Self { name: "bind9-dnsutils", binary: "dig" };
    pub(crate) const DNSMASQ: Self = Self { name: "dnsmasq-base", binary: "dnsmasq" };
    pub(crate) const DPKG: Self = Self { name: "dpkg", binary: "dpkg-deb" };
    pub(crate) const ETHTOOL: Self = Self { name: "ethtool", binary: "ethtool" };
    pub(crate) const GIT: Self = Self { name: "git", binary: "git" };
    pub(crate) const GO: Self = Self { name: "golang-go", binary: "go" };
    /// Drivers of verbs, among them mlx5's.
    pub(crate) const IBVERBS_PROVIDERS: Self = Self { name: "ibverbs-providers", binary: "/etc/libibverbs.d/mlx5.driver" };
    pub(crate) const IBVERBS_UTILS: Self = Self { name: "ibverbs-utils", binary: "ibv_rc_pingpong" };
    /// Debian's busybox is built without its inetd.
    pub(crate) const INETD: Self = Self { name: "inetutils-inetd", binary: "inetutils-inetd" };
    pub(crate) const IPERF3: Self = Self { name: "iperf3", binary: "iperf3" };
    pub(crate) const IPROUTE: Self = Self { name: "iproute2", binary: "ip" };
    pub(crate) const JAVA: Self = Self { name: "default-jdk-headless", binary: "javac" };
    /// Headers of verbs and of mlx5's direct verbs; with them come the libraries and the drivers.
    /// depmod and modprobe.
    pub(crate) const KMOD: Self = Self { name: "kmod", binary: "depmod" };
    pub(crate) const LIBIBVERBS: Self = Self { name: "libibverbs-dev", binary: "/usr/include/infiniband/mlx5dv.h" };
    pub(crate) const LIBMEMCACHED: Self = Self { name: "libmemcached-tools", binary: "memcaslap" };
    pub(crate) const LIBRDMACM: Self = Self { name: "librdmacm-dev", binary: "/usr/include/rdma/rdma_verbs.h" };
    pub(crate) const LIBUV: Self = Self { name: "libuv1-dev", binary: "/usr/include/uv.h" };
    pub(crate) const MEMCACHED: Self = Self { name: "memcached", binary: "memcached" };
    pub(crate) const NGINX: Self = Self { name: "nginx-light", binary: "nginx" };
    pub(crate) const NODE: Self = Self { name: "nodejs", binary: "node" };
    pub(crate) const PERFTEST: Self = Self { name: "perftest", binary: "ib_send_bw" };
    pub(crate) const PKG_CONFIG: Self = Self { name: "pkgconf", binary: "pkg-config" };
    pub(crate) const POSTGRES: Self = Self { name: r"^postgresql-[0-9]+$", binary: "/usr/lib/postgresql/*/bin/postgres" };
    /// Debian's own interpreter, not one that comes first in PATH: its calls go through libc's symbols.
    pub(crate) const PYTHON: Self = Self { name: "python3", binary: "/usr/bin/python3" };
    /// Python's own tests, in a package that has the interpreter's version in its name: apt takes an expression.
    pub(crate) const PYTHON_TESTS: Self =
        Self { name: r"^libpython3\.[0-9]+-testsuite$", binary: "/usr/lib/python3*/test/test_socketserver.py" };
    /// rdma-core's own tests, and what they are written for.
    pub(crate) const PYVERBS: Self = Self { name: "python3-pyverbs rdma-core", binary: "/usr/share/doc/rdma-core/tests/test_pd.py" };
    /// Machines.
    pub(crate) const QEMU_SYSTEM: Self = Self { name: "qemu-system-x86", binary: "qemu-system-x86_64" };
    /// Programs of other architectures, run one process at a time.
    pub(crate) const QEMU_USER: Self = Self { name: "qemu-user", binary: "qemu-aarch64" };
    pub(crate) const RDMACM_UTILS: Self = Self { name: "rdmacm-utils", binary: "rping" };
    pub(crate) const REDIS_SERVER: Self = Self { name: "redis-server", binary: "redis-server" };
    pub(crate) const REDIS_TOOLS: Self = Self { name: "redis-tools", binary: "redis-benchmark" };
    pub(crate) const RSYNC: Self = Self { name: "rsync", binary: "rsync" };
    pub(crate) const SOCAT: Self = Self { name: "socat", binary: "socat" };
    pub(crate) const SOCKPERF: Self = Self { name: "sockperf", binary: "sockperf" };
    pub(crate) const SSH: Self = Self { name: "openssh-client", binary: "ssh" };
    pub(crate) const SSHD: Self = Self { name: "openssh-server", binary: "sshd" };
    pub(crate) const STRACE: Self = Self { name: "strace", binary: "strace" };
    pub(crate) const TCPDUMP: Self = Self { name: "tcpdump", binary: "tcpdump" };
    pub(crate) const TSHARK: Self = Self { name: "tshark", binary: "tshark" };
    pub(crate) const UNSHARE: Self = Self { name: "util-linux", binary: "unshare" };
    pub(crate) const VALGRIND: Self = Self { name: "valgrind", binary: "valgrind" };
    pub(crate) const WRK: Self = Self { name: "wrk", binary: "wrk" };
    pub(crate) const XZ: Self = Self { name: "xz-utils", binary: "xz" };

    fn present(self) -> bool {
        found(self.binary)
    }
}

/// How this user may act as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// It is root.
    Root,
    /// sudo asks for no password.
    Sudo,
    /// Not at all.
    None,
}

impl Privilege {
    pub(crate) fn of_this_user() -> Self {
        let quiet = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output();
            output.ok().filter(|o| o.status.success()).map(|o| o.stdout)
        };
        if quiet("id", &["-u"]).is_some_and(|uid| uid == b"0\n") {
            Self::Root
        } else if quiet("sudo", &["-n", "true"]).is_some() {
            Self::Sudo
        } else {
            Self::None
        }
    }

    /// `program`, run as root; `None` if that may not be.
    pub(crate) fn command(self, program: &str) -> Option<Command> {
        match self {
            Self::Root => Some(Command::new(program)),
            Self::Sudo => {
                let mut command = Command::new("sudo");
                command.args(["-n", "--preserve-env", program]);
                Some(command)
            }
            Self::None => None,
        }
    }
}

/// Makes sure that `packages` are there.
///
/// # Errors
/// One line that names what is missing, if it may not be installed or apt could not.
pub(crate) fn packages(packages: &[Package]) -> Result<()> {
    let missing: Vec<&str> = packages.iter().filter(|p| !p.present()).flat_map(|p| p.name.split(' ')).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let advice = format!("missing packages: sudo apt-get install -y {}", missing.join(" "));
    if !found("apt-get") {
        bail!("{advice} (or this distribution's packages of these programs)");
    }
    let privilege = Privilege::of_this_user();
    let apt = |args: &[&str]| {
        let mut command = privilege.command("apt-get")?;
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("-qq").args(args);
        Some(command)
    };
    let (Some(mut update), Some(mut install)) = (apt(&["update"]), apt(&["install", "-y", "--no-install-recommends"])) else {
        bail!(advice);
    };
    println!("installing {}", missing.join(" "));
    run_command(&mut update).and_then(|()| run_command(install.args(&missing)).map(drop)).context(advice)
}

/// Makes sure that cargo has the subcommand `name`, from the crate `cargo-<name>`.
///
/// # Errors
/// It could not be built.
pub(crate) fn cargo_tool(name: &str) -> Result<()> {
    if answers(name) {
        return Ok(());
    }
    // (Not optimised: it runs for seconds, and would be built for minutes.)
    println!("installing cargo-{name}; this takes a minute or two, once");
    run_command(cargo().args(["install", "--locked", "--quiet", "--debug", &format!("cargo-{name}")]))
}

/// Makes sure that rustfmt and clippy are there: rustup's minimal profile has neither.
///
/// # Errors
/// They are missing, and rustup could not add them.
pub(crate) fn rust_components() -> Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !answers(subcommand) {
            run_command(Command::new("rustup").args(["component", "add", component])).with_context(|| format!("{component} is missing"))?;
        }
    }
    Ok(())
}

/// Makes sure that there is a standard library for an architecture.
///
/// # Errors
/// There is none, and rustup could not add it.
pub(crate) fn rust_target(target: &str) -> Result<()> {
    let sysroot = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output().context("rustc")?;
    let folder = String::from_utf8_lossy(&sysroot.stdout).trim().to_owned();
    if sysroot.status.success() && Path::new(&folder).is_dir() {
        return Ok(());
    }
    run_command(Command::new("rustup").args(["target", "add", target])).with_context(|| format!("no standard library for {target}"))
}

/// Whether `cargo <subcommand> --version` works.
fn answers(subcommand: &str) -> bool {
    let status = cargo().args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}

/// Whether a program is in PATH, or in the directories of the system's own that PATH may lack. One `*` in a directory's name stands for
/// the rest of that name.
fn found(binary: &str) -> bool {
    if let Some((pattern, below)) = binary.split_once("*/") {
        let (parent, prefix) = pattern.rsplit_once('/').unwrap_or((".", pattern));
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let mut named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        return named.any(|entry| entry.path().join(below).is_file());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(Path::new);
    env::split_paths(&path).any(|dir| dir.join(binary).is_file()) || system.iter().any(|dir| dir.join(binary).is_file())
}
