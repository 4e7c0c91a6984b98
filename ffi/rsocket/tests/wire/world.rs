//! Two network namespaces, and a bridge between them in a third one, where all frames are seen. All end with the test.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Seconds that a program may compute.
const CPU_S: &str = "100";

/// Who is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Client,
    Server,
    /// The bridge between them.
    Bridge,
}

pub(crate) struct World {
    /// By [`Host`].
    namespaces: [File; 3],
}

impl World {
    /// With interfaces of that MTU: `wa` the client's, `wb` the server's, and `pa` and `pb` at the bridge. `None`: there are no namespaces to be had.
    pub(crate) fn make(mtu: u32) -> Option<Self> {
        let made = thread::spawn(|| {
            let namespaces = [new_namespace()?, new_namespace()?, new_namespace()?];
            Command::new("ip").arg("-V").output().ok()?;
            Some(Self { namespaces })
        });
        let world = made.join().expect("as it should be")?;
        let id = std::process::id();
        let place = |host: Host| format!("/proc/{id}/fd/{}", world.namespaces[host as usize].as_raw_fd());
        world.ip(
            Host::Bridge,
            &format!(
                "link add br0 type bridge\nlink set br0 mtu {mtu}\nlink set br0 up\n\
                 link add pa mtu {mtu} type veth peer name wa mtu {mtu}\nlink add pb mtu {mtu} type veth peer name wb mtu {mtu}\n\
                 link set wa netns {}\nlink set wb netns {}\n\
                 link set pa master br0\nlink set pb master br0\nlink set pa up\nlink set pb up\n",
                place(Host::Client),
                place(Host::Server)
            ),
        );
        for (host, name, last) in [(Host::Client, "wa", 1), (Host::Server, "wb", 2)] {
            let (v4, v6) = (format!("10.78.0.{last}/24"), format!("fd78::{last}/64"));
            world.ip(host, &format!("link set lo up\nlink set {name} up\naddr add {v4} dev {name}\naddr add {v6} dev {name} nodad\n"));
        }
        Some(world)
    }

    /// Does something in a namespace.
    pub(crate) fn within<T: Send>(&self, host: Host, what: impl FnOnce() -> T + Send) -> T {
        let namespace = &self.namespaces[host as usize];
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: no memory is involved.
                let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(entered, 0, "setns: {}", std::io::Error::last_os_error());
                what()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs lines of ip(8), each of which must do.
    pub(crate) fn ip(&self, host: Host, lines: &str) {
        let output = self.within(host, || {
            let mut command = Command::new("ip");
            command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("ip(8)");
            child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("ip(8) reads");
            child.wait_with_output().expect("ip(8)")
        });
        assert!(output.status.success(), "ip: {}\n{lines}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts a program.
    pub(crate) fn start(&self, host: Host, mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.within(host, || command.spawn().expect("it runs"));
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        Running { child: Some(child), said }
    }
}

/// A program that runs; it is killed (SIGKILL) where this is dropped before its end.
pub(crate) struct Running {
    pub(crate) child: Option<Child>,
    said: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Waits until it says so.
    pub(crate) fn is_ready(&mut self) {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it says something");
        if line != "ready\n" {
            let output = self.child.take().expect("it runs").wait_with_output().expect("it ends");
            panic!("not ready: {line:?}, {:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
    }

    /// Waits for its end, which is to be a good one; gives what it said on standard error.
    pub(crate) fn ends_well(mut self) -> String {
        let output = self.child.take().expect("it runs").wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{:?}\n{said}", output.status);
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `program`, whose processor time has a limit. (It is the child itself: prlimit(1) becomes it.)
pub(crate) fn limited(program: &std::path::Path) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--cpu={CPU_S}")).arg(program);
    command
}

/// The calling thread's from now on.
fn new_namespace() -> Option<File> {
    // SAFETY: no memory is involved.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return None;
    }
    File::open("/proc/thread-self/ns/net").ok()
}

pub(crate) fn addresses(is_v6: bool) -> [IpAddr; 2] {
    let all = if is_v6 { ["fd78::1", "fd78::2"] } else { ["10.78.0.1", "10.78.0.2"] };
    all.map(|ip| ip.parse().expect("an address"))
}
